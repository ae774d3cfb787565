//! One run on a store of files: what is asked, and what its process takes meanwhile.
//!
//! 1. What the file system still has to write is written, so that no run pays for another.
//! 2. The child is asked, one thing at a time; CPU time is looked at between, memory and open files
//!    all the time.
//! 3. What the store does afterwards by itself is waited for, and charged to the run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::handle::FilesChild;
use crate::error::{Error, Result};
use crate::load::Loaded;
use crate::process::{Process, disk_bytes};
use crate::record::{KindOutcome, Latency, Outcome};
use crate::run::{RunOptions, invalid};
use crate::spec::{Length, Spec, ValueSizes, Workload};
use crate::statistics::quantile;

/// How often memory and open files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The longest that is waited for what a store does by itself.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// A segment takes writes, and two are ready ahead of need.
const SEGMENTS_AHEAD: usize = 3;

/// Makes one run of a workload of files on the store in `directory`. What ends it early is in what
/// comes back.
pub fn run(child: &mut FilesChild, spec: &Spec, options: &RunOptions, directory: &Path) -> Loaded {
    let made = match spec.workload {
        Workload::WriteReadUnlink => file(child, spec, options, directory),
        Workload::EachBucket => each_bucket(child, spec, options, directory),
        Workload::Rest => rest(child, spec, directory),
        other => Err(Error::Invalid(format!("{} is for stores of keys", other.name()))),
    };
    match made {
        Ok(outcome) => Loaded { outcome, error: None },
        Err(error) => Loaded { outcome: invalid(&error), error: Some(error) },
    }
}

/// The name of a file: 40 hex digits, which every store takes for the hash that decides where it goes.
/// The first two are those of `place`.
pub fn file_name(place: u8, seed: u32, bytes: u64) -> String {
    format!("{place:02x}{seed:014x}{bytes:024x}")
}

/// Writes a file, reads it, unlinks it.
fn file(
    child: &mut FilesChild,
    spec: &Spec,
    options: &RunOptions,
    directory: &Path,
) -> Result<Outcome> {
    let (bytes, seed) = of_spec(spec)?;
    // Scattered over the buckets by a number that depends on the seed and the size.
    let place = (u64::from(seed).wrapping_add(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let name = file_name(place as u8, seed, bytes);
    watched(child, options, directory, |child, figures| {
        let mut kinds = BTreeMap::new();
        let process = Process::new(child.process());
        let mut before_s = process.usage()?.cpu_s;
        for kind in ["write", "read", "unlink"] {
            let ns = match kind {
                "write" => child.write(&name, bytes, seed)?,
                "read" => child.read(&name, bytes, seed)?,
                _ => child.unlink(&name)?,
            };
            let now_s = process.usage()?.cpu_s;
            figures.insert(format!("{kind}.cpu_s"), now_s - before_s);
            before_s = now_s;
            kinds.insert(kind.to_owned(), kind_outcome(&[ns]));
        }
        Ok((kinds, bytes))
    })
}

/// Writes a small file into each of many buckets, and reads some of them.
fn each_bucket(
    child: &mut FilesChild,
    spec: &Spec,
    options: &RunOptions,
    directory: &Path,
) -> Result<Outcome> {
    let (bytes, seed) = of_spec(spec)?;
    let count = spec.keys.clamp(1, 256);
    // Whatever the reference id is, names that differ in their first byte fall into different buckets.
    let names = (0..count).map(|at| file_name(at as u8, seed, bytes));
    watched(child, options, directory, |child, _| {
        let names: Vec<String> = names.collect();
        let written: Result<Vec<u64>> =
            names.iter().map(|name| child.write(name, bytes, seed)).collect();
        let read: Result<Vec<u64>> =
            names.iter().rev().step_by(8).map(|name| child.read(name, bytes, seed)).collect();
        let kinds = [("write", written?), ("read", read?)];
        let kinds = kinds.map(|(kind, ns)| (kind.to_owned(), kind_outcome(&ns)));
        Ok((kinds.into(), bytes * count))
    })
}

/// Watches the disk once a second, while nobody asks for anything, until nothing has changed for a
/// sixth of the time that there is.
fn rest(child: &mut FilesChild, spec: &Spec, directory: &Path) -> Result<Outcome> {
    let Length::Time(longest) = spec.length else {
        return Err(Error::Invalid("rest: it is a time".into()));
    };
    let process = Process::new(child.process());
    let before = process.usage()?;
    let begun = Instant::now();
    let mut outcome = Outcome::default();
    let mut last = (disk_bytes(directory), before.cpu_s);
    let mut still_since = begun;
    outcome.figures.insert("disk_bytes.00".into(), last.0 as f64);
    for second in 1.. {
        if begun.elapsed() >= longest || still_since.elapsed() >= longest / 6 {
            break;
        }
        std::thread::sleep(Duration::from_secs(second).saturating_sub(begun.elapsed()));
        let now = (disk_bytes(directory), process.usage()?.cpu_s);
        outcome.figures.insert(format!("disk_bytes.{second:02}"), now.0 as f64);
        if now.0 != last.0 || now.1 - last.1 > 0.02 {
            still_since = Instant::now();
        }
        last = now;
    }
    outcome.seconds = begun.elapsed().as_secs_f64();
    finish(&mut outcome, child, directory, &before)?;
    Ok(outcome)
}

/// What is measured around what is asked: `ask` answers its kinds of operations and the bytes written.
fn watched(
    child: &mut FilesChild,
    options: &RunOptions,
    directory: &Path,
    ask: impl FnOnce(
        &mut FilesChild,
        &mut BTreeMap<String, f64>,
    ) -> Result<(BTreeMap<String, KindOutcome>, u64)>,
) -> Result<Outcome> {
    write_back(directory)?;
    let process = Process::new(child.process());
    process.reset_peak();
    let before = process.usage()?;
    let mut outcome = Outcome::default();
    let (done, anonymous, handles) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let asked = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                anonymous.fetch_max(process.anonymous_bytes(), Ordering::Relaxed);
                handles.fetch_max(process.handles(), Ordering::Relaxed);
                std::thread::sleep(LOOK_EVERY);
            }
        });
        let begun = Instant::now();
        let asked = ask(child, &mut outcome.figures);
        let seconds = begun.elapsed().as_secs_f64();
        let used = process.usage();
        if asked.is_ok() && options.settle {
            settle(process, SETTLE_MAX, &mut outcome);
        }
        done.store(true, Ordering::Relaxed);
        asked.and_then(|asked| Ok((asked, seconds, used?)))
    });
    let ((kinds, bytes), seconds, used) = asked?;
    outcome.seconds = seconds;
    outcome.operations = kinds.values().map(|kind| kind.count).sum();
    outcome.kinds = kinds;
    outcome.user_written_bytes = bytes;
    outcome.cpu_s = used.cpu_s - before.cpu_s;
    outcome.peak_anonymous_bytes = anonymous.into_inner();
    outcome.figures.insert("handles_max".into(), handles.into_inner() as f64);
    finish(&mut outcome, child, directory, &before)?;
    Ok(outcome)
}

/// What is looked at when a run is over.
fn finish(
    outcome: &mut Outcome,
    child: &mut FilesChild,
    directory: &Path,
    before: &crate::process::Usage,
) -> Result<()> {
    let after = Process::new(child.process()).usage()?;
    outcome.cpu_settled_s = after.cpu_s - before.cpu_s;
    outcome.cpu_s = outcome.cpu_s.min(outcome.cpu_settled_s);
    outcome.peak_resident_bytes = after.peak_resident_bytes;
    outcome.peak_anonymous_bytes = outcome.peak_anonymous_bytes.max(after.anonymous_bytes);
    outcome.device_written_bytes =
        after.device_written_bytes.saturating_sub(before.device_written_bytes);
    outcome.disk_bytes = disk_bytes(directory);
    outcome.figures.extend(child.figures()?);
    let ahead = ahead_bytes(directory);
    if ahead > 0 {
        outcome.figures.insert("segments_ahead_bytes".into(), ahead as f64);
    }
    Ok(())
}

/// Waits until a process does nothing more by itself. A run doesn't count whose store goes on: the next would pay
/// for the rest.
fn settle(process: Process, longest: Duration, outcome: &mut Outcome) {
    let begun = Instant::now();
    // A stop is too little reason to lose an old store for. One that is gone is found out when it is looked at next.
    if let Ok(false) = process.wait_until_quiet(longest, &AtomicBool::new(false)) {
        let what = format!("process {} isn't at rest after {longest:?}", process.id());
        outcome.invalid = Some(what);
    }
    outcome.settle_s = begun.elapsed().as_secs_f64();
}

/// Has the file system that holds a directory write what it still holds.
fn write_back(directory: &Path) -> Result<()> {
    let name = directory.display().to_string();
    let open = File::open(directory).map_err(Error::io(&*name))?;
    rustix::fs::syncfs(&open).map_err(|errno| Error::io(name)(errno.into()))
}

/// Bytes on disk of the newest segments of Tallybook's journals below a directory: of each the one that
/// takes writes, and those that are ready.
fn ahead_bytes(directory: &Path) -> u64 {
    let mut segments: Vec<(String, u64)> = Vec::new();
    let mut below = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        // A file that goes meanwhile counts for nothing.
        let Ok(metadata) = entry.metadata() else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        if metadata.is_dir() {
            below += ahead_bytes(&entry.path());
        } else if name.ends_with(".journal") {
            segments.push((name, metadata.blocks() * 512));
        }
    }
    segments.sort_unstable();
    below + segments.iter().rev().take(SEGMENTS_AHEAD).map(|(_, bytes)| bytes).sum::<u64>()
}

fn of_spec(spec: &Spec) -> Result<(u64, u32)> {
    match (spec.values, u32::try_from(spec.seed)) {
        (ValueSizes::Fixed(bytes), Ok(seed)) => Ok((u64::from(bytes), seed)),
        _ => Err(Error::Invalid("a file has one length, and a seed of 32 bits".into())),
    }
}

/// Latencies in nanoseconds of one kind of operation.
fn kind_outcome(ns: &[u64]) -> KindOutcome {
    let all: Vec<f64> = ns.iter().map(|&ns| ns as f64).collect();
    let share = |share| quantile(&all, share).unwrap_or(0.0) as u64;
    let latency = Latency {
        mean_ns: all.iter().sum::<f64>() / all.len().max(1) as f64,
        p50_ns: share(0.5),
        p90_ns: share(0.9),
        p99_ns: share(0.99),
        p999_ns: share(0.999),
        p9999_ns: share(0.9999),
        max_ns: share(1.0),
        histogram: String::new(),
    };
    let from_sent = latency.clone();
    KindOutcome { count: ns.len() as u64, latency, from_sent, ..KindOutcome::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_in_which_bucket_they_fall() {
        let name = file_name(0xad, 7, 1 << 20);
        assert!(name.len() == 40 && name.starts_with("ad"), "{name}");
        assert_ne!(name, file_name(0xad, 8, 1 << 20));
        assert_ne!(name, file_name(0xad, 7, 2 << 20));
    }

    #[test]
    fn a_store_that_does_not_come_to_rest_has_its_run_not_count() {
        let spin = ["-c", "while :; do :; done"];
        let mut child = std::process::Command::new("sh").args(spin).spawn().unwrap();
        let mut outcome = Outcome::default();
        settle(Process::new(child.id()), Duration::from_millis(600), &mut outcome);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(outcome.invalid.unwrap().contains("isn't at rest after 600ms"));
        assert!(outcome.settle_s >= 0.6);
    }

    #[test]
    fn the_newest_segments_of_each_journal_are_ahead() {
        let dir = tempfile::tempdir().unwrap();
        let bucket = dir.path().join("000");
        fs::create_dir(&bucket).unwrap();
        for number in 1..=5 {
            fs::write(bucket.join(format!("{number:06}.journal")), vec![1; 8192]).unwrap();
        }
        fs::write(bucket.join("000009.sst"), vec![1; 8192]).unwrap();
        assert_eq!(ahead_bytes(dir.path()), 3 * 8192);
    }
}
