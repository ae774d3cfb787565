//! What the system says of this process: processor time, memory, descriptors, threads.
//!
//! Linux only: elsewhere, and where `/proc` is not mounted, there are no figures and nothing fails.

use std::fs;
use std::sync::OnceLock;

use rustix::param::{clock_ticks_per_second, page_size};

/// Figures of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Process {
    /// Processor time used since its start, user and system.
    pub(crate) cpu_seconds: f64,
    /// Memory that is in RAM, mapped files included.
    pub(crate) resident_bytes: u64,
    /// Of that, memory of its own.
    pub(crate) own_bytes: u64,
    /// Of that, memory that belongs to files it maps.
    pub(crate) mapped_bytes: u64,
    /// Address space.
    pub(crate) virtual_bytes: u64,
    /// Threads.
    pub(crate) threads: u64,
    /// When it started, in seconds since 1970.
    pub(crate) start_time_seconds: f64,
    /// Open descriptors.
    pub(crate) open_fds: u64,
    /// How many may be open; `None`: any number.
    pub(crate) max_fds: Option<u64>,
}

impl Process {
    /// Reads the figures, `None` where the system doesn't tell.
    pub(crate) fn read() -> Option<Process> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let (ticks, page_bytes) = (clock_ticks_per_second() as f64, page_size() as u64);
        let mut process = Process::parse(&stat, &status, booted()?, ticks, page_bytes)?;
        (process.open_fds, process.max_fds) = (count_open_fds(), limit.current);
        Some(process)
    }

    /// `booted`: when the system started, in seconds since 1970.
    fn parse(
        stat: &str,
        status: &str,
        booted: f64,
        ticks: f64,
        page_bytes: u64,
    ) -> Option<Process> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        // The second field is the name in parentheses, which may hold spaces and parentheses; what
        // follows begins with the third.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Process {
            cpu_seconds: field(14)?.saturating_add(field(15)?) as f64 / ticks,
            threads: field(20)?,
            start_time_seconds: booted + field(22)? as f64 / ticks,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)?.saturating_mul(page_bytes),
            own_bytes: bytes("RssAnon:")?,
            mapped_bytes: bytes("RssFile:")?,
            open_fds: 0,
            max_fds: None,
        })
    }
}

/// When the system started, in seconds since 1970. Read once: the file also counts every interrupt on
/// every processor, which takes the system long.
fn booted() -> Option<f64> {
    static BOOTED: OnceLock<Option<f64>> = OnceLock::new();
    *BOOTED.get_or_init(|| parse_booted(&fs::read_to_string("/proc/stat").ok()?))
}

fn parse_booted(system: &str) -> Option<f64> {
    let booted = system.lines().find_map(|line| line.strip_prefix("btime "))?;
    booted.trim().parse().ok()
}

/// Open descriptors. Since Linux 6.2 their number is the size of the directory that lists them; before,
/// that size is 0 and they are listed.
fn count_open_fds() -> u64 {
    match fs::metadata("/proc/self/fd") {
        Ok(directory) if directory.len() > 0 => directory.len(),
        _ => count_listed_fds(),
    }
}

/// The same, each listed; that which lists them is not one of them.
fn count_listed_fds() -> u64 {
    let listed = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    listed.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_whatever_the_process_is_called() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 500 6000 7 8";
        let booted = parse_booted("cpu  1 2 3\nbtime 1000\nprocesses 4\n").unwrap();
        let status = "Name:\ta b\nVmRSS:\t  300 kB\nRssAnon:\t     200 kB\nRssFile:\t 100 kB\n";
        let process = Process::parse(stat, status, booted, 100.0, 4096).unwrap();
        assert_eq!((process.cpu_seconds, process.start_time_seconds), (3.0, 1005.0));
        assert_eq!((process.threads, process.virtual_bytes), (9, 6000));
        assert_eq!(process.resident_bytes, 7 * 4096);
        assert_eq!((process.own_bytes, process.mapped_bytes), (200 << 10, 100 << 10));
        assert_eq!(Process::parse(stat, "RssAnon: much kB", booted, 100.0, 4096), None);
        for stat in ["", "7 (a", "7 (a) S 1"] {
            assert_eq!(Process::parse(stat, status, booted, 100.0, 4096), None);
        }
        assert_eq!((parse_booted(""), parse_booted("btime now")), (None, None));
    }

    #[test]
    fn this_process_has_memory_threads_and_descriptors() {
        let process = Process::read().unwrap();
        assert!(process.resident_bytes > 0 && process.resident_bytes < process.virtual_bytes);
        assert!(process.threads > 0);
        assert!(process.start_time_seconds > 1_000_000_000.0);
    }

    #[test]
    fn descriptors_are_counted_with_those_that_were_opened_meanwhile() {
        for count in [count_open_fds, count_listed_fds] {
            // Other tests of this process open and close files too, but not so many.
            let before = count();
            let held: Vec<fs::File> =
                (0..200).map(|_| fs::File::open("/dev/null").unwrap()).collect();
            let now = count();
            assert!(now.abs_diff(before + held.len() as u64) < 100, "{before}, then {now}");
        }
    }
}
