//! What a process used: CPU time, memory, bytes written to the device, bytes on disk.
//!
//! Everything is read from `/proc`, so it works for any process of the same user. Stores into memory
//! maps are counted as written when a page is first dirtied, and again after each write-back.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Background work is done when nothing happened for so long: Tallybook's engine calls a store idle after 1 s,
/// and then begins with what it put off, and at rest after 3 s.
pub const QUIET: Duration = Duration::from_millis(3500);
/// From one look whether a process is quiet to the next.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A process that takes this share of a processor does next to nothing. Its time is seen in ticks of 10 ms.
const QUIET_SHARE: f64 = 0.05;

/// A process to be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    id: u32,
}

/// What a process used since its start, and its peaks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// CPU time of all its threads, in seconds.
    pub cpu_s: f64,
    /// Bytes that it had written to the device, less those that were dropped before they got there.
    pub device_written_bytes: u64,
    /// Peak resident memory.
    pub peak_resident_bytes: u64,
    /// Resident memory that is no file's, now.
    pub anonymous_bytes: u64,
}

impl Process {
    /// This process.
    pub fn current() -> Process {
        Process { id: std::process::id() }
    }

    /// The process of this number.
    pub fn new(id: u32) -> Process {
        Process { id }
    }

    /// Its number.
    pub fn id(self) -> u32 {
        self.id
    }

    /// What it used so far. Fails when there is no such process, or it is someone else's.
    pub fn usage(self) -> Result<Usage> {
        let status = self.read("status")?;
        let io = self.read("io")?;
        let written = field(&io, "write_bytes:");
        Ok(Usage {
            cpu_s: self.cpu_s()?,
            device_written_bytes: written.saturating_sub(field(&io, "cancelled_write_bytes:")),
            peak_resident_bytes: field(&status, "VmHWM:") * 1024,
            anonymous_bytes: field(&status, "RssAnon:") * 1024,
        })
    }

    /// Resident memory that is no file's, now; 0 when it can't be told.
    pub fn anonymous_bytes(self) -> u64 {
        self.read("status").map_or(0, |status| field(&status, "RssAnon:") * 1024)
    }

    /// Files, sockets and pipes that it has open now; 0 when it can't be told.
    pub fn handles(self) -> u64 {
        fs::read_dir(format!("/proc/{}/fd", self.id)).map_or(0, |handles| handles.count() as u64)
    }

    /// Lets the peak of resident memory begin anew. Where that is refused, the peak stays that of the
    /// whole process.
    pub fn reset_peak(self) {
        let _ = fs::write(format!("/proc/{}/clear_refs", self.id), "5");
    }

    /// CPU time of all its threads, ended ones included, in seconds.
    pub fn cpu_s(self) -> Result<f64> {
        if self == Process::current() {
            // To the nanosecond, where `stat` counts ticks of 10 ms.
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            return Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9);
        }
        let stat = self.read("stat")?;
        let ticks = cpu_ticks(&stat)
            .ok_or_else(|| Error::Invalid(format!("/proc/{}/stat can't be read", self.id)))?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Waits until it has done next to nothing for [`QUIET`], but no longer than `longest`; whether it has. Once `stop`
    /// is set it isn't waited for: `Interrupted`.
    pub fn wait_until_quiet(self, longest: Duration, stop: &AtomicBool) -> Result<bool> {
        let began = Instant::now();
        let mut quiet_since = began;
        let mut before_s = self.cpu_s()?;
        while quiet_since.elapsed() < QUIET {
            if began.elapsed() >= longest {
                return Ok(false);
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(LOOK_INTERVAL);
            let now_s = self.cpu_s()?;
            if now_s - before_s > LOOK_INTERVAL.as_secs_f64() * QUIET_SHARE {
                quiet_since = Instant::now();
            }
            before_s = now_s;
        }
        Ok(true)
    }

    /// CPU ticks of its threads whose names begin so, and whether one of them runs or waits for a
    /// disk now.
    pub fn threads_named(self, prefixes: &[&str]) -> (u64, bool) {
        let mut sum = (0, false);
        for thread in fs::read_dir(format!("/proc/{}/task", self.id)).into_iter().flatten() {
            let Ok(thread) = thread else { continue };
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            if !prefixes.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            let state = after_name(&stat).and_then(|rest| rest.split(' ').next());
            sum.0 += cpu_ticks(&stat).unwrap_or(0);
            sum.1 |= matches!(state, Some("R" | "D"));
        }
        sum
    }

    fn read(self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.id);
        fs::read_to_string(&path).map_err(Error::io(path))
    }
}

/// CPU time of the thread that asks.
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes that a directory takes on disk; blocks, not lengths, so that holes don't count. Files that
/// go while it is read count for nothing.
pub fn disk_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let metadata = fs::symlink_metadata(entry.path()).ok()?;
            let below = if metadata.is_dir() { disk_bytes(&entry.path()) } else { 0 };
            Some(metadata.blocks() * 512 + below)
        })
        .sum()
}

/// Writes a directory's files back and drops them from the page cache. Pages that a process has mapped
/// stay; files that go meanwhile are left alone.
pub fn drop_from_page_cache(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(Error::io(directory.display().to_string()))? {
        let path = entry.map_err(Error::io(directory.display().to_string()))?.path();
        if path.is_dir() {
            drop_from_page_cache(&path)?;
            continue;
        }
        let Ok(file) = fs::File::open(&path) else { continue };
        let name = path.display().to_string();
        // Dirty pages can't be dropped.
        file.sync_data().map_err(Error::io(&*name))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .map_err(|errno| Error::io(name)(errno.into()))?;
    }
    Ok(())
}

/// The number behind a name in `status` or `io`; 0 if there is none.
fn field(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    let number = rest.and_then(|rest| rest.split_ascii_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// What follows the name in a `stat` line; names may hold spaces and parentheses.
fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(") ").map(|(_, rest)| rest)
}

/// User and system time: fields 14 and 15, of which 1 and 2 are the number and the name.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = after_name(stat)?.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn cpu_time_and_memory_grow_with_use() {
        let process = Process::current();
        let before = process.usage().unwrap();
        let start = Instant::now();
        let mut touched = vec![0_u8; 64 << 20];
        while start.elapsed() < Duration::from_millis(50) {
            touched.iter_mut().step_by(4096).for_each(|byte| *byte = byte.wrapping_add(1));
        }
        std::hint::black_box(&touched);
        let after = process.usage().unwrap();
        assert!(after.cpu_s > before.cpu_s + 0.005, "{before:?} {after:?}");
        assert!(after.peak_resident_bytes >= 64 << 20, "{after:?}");
        assert!(after.anonymous_bytes >= 64 << 20, "{after:?}");
        assert!(Process::new(u32::MAX).usage().is_err());
    }

    #[test]
    fn threads_are_found_by_name() {
        let process = Process::current();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let spin = move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                std::hint::spin_loop();
            }
        };
        let thread = std::thread::Builder::new().name("lab-spin-1".into()).spawn(spin).unwrap();
        let start = Instant::now();
        while process.threads_named(&["lab-spin"]).0 == 0 {
            assert!(start.elapsed() < Duration::from_secs(30), "its time is never seen");
        }
        assert!(process.threads_named(&["lab-spin"]).1, "it runs");
        drop(stop);
        thread.join().unwrap();
        assert_eq!(process.threads_named(&["lab-nobody"]), (0, false));
    }

    /// As an engine does that begins with what it put off when it has been idle for a while.
    #[test]
    fn what_a_process_puts_off_for_two_seconds_is_waited_for() {
        let script = "sleep 2; i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; exec sleep 60";
        let mut child =
            Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap();
        let process = Process::new(child.id());
        let began = Instant::now();
        let stop = AtomicBool::new(false);
        assert!(process.wait_until_quiet(Duration::from_secs(60), &stop).unwrap());
        assert!(began.elapsed() >= Duration::from_secs(2) + QUIET, "{:?}", began.elapsed());
        assert!(process.cpu_s().unwrap() > 0.05, "its work is in what it took");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.wait_until_quiet(Duration::from_secs(60), &stop).is_err());
    }

    #[test]
    fn a_process_that_never_rests_is_not_waited_for_for_ever() {
        let spin = ["-c", "while :; do :; done"];
        let mut child = Command::new("sh").args(spin).stdin(Stdio::null()).spawn().unwrap();
        let (process, longest) = (Process::new(child.id()), Duration::from_secs(2));
        let quiet = process.wait_until_quiet(longest, &AtomicBool::new(false));
        let stopped = process.wait_until_quiet(Duration::MAX, &AtomicBool::new(true));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!quiet.unwrap());
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }

    #[test]
    fn names_with_parentheses_are_read_over() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4 0 0 0 0 12 30 0 0 20 0 1 0 5 0 0";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (a"), None);
    }

    #[test]
    fn holes_take_no_disk() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/full"), vec![1; 100_000]).unwrap();
        let holes = fs::File::create(dir.path().join("holes")).unwrap();
        holes.set_len(1 << 30).unwrap();
        let bytes = disk_bytes(dir.path());
        assert!((100_000..300_000).contains(&bytes), "{bytes}");
        assert_eq!(disk_bytes(&dir.path().join("not-there")), 0);
    }
}
