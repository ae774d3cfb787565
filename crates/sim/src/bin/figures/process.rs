//! What the system says of this process and of a directory.

use std::path::Path;
use std::time::Duration;

/// A field of `/proc/self/status` in bytes.
fn status_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let line = status.lines().find(|line| line.starts_with(field)).expect("a known field");
    let kib = line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok());
    kib.expect("a number of KiB") * 1024
}

/// Memory of the process's own, maps of files apart, in bytes.
pub(crate) fn anonymous_bytes() -> u64 {
    status_bytes("RssAnon:")
}

/// Memory resident, maps of files included, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// CPU time of all threads so far.
pub(crate) fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let fields = stat.rsplit(')').next().expect("a name in parentheses");
    let ticks = |at: usize| -> u64 {
        fields.split_whitespace().nth(at).and_then(|text| text.parse().ok()).expect("a number")
    };
    // Fields 14 and 15 of proc(5), in hundredths of a second.
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// Page faults of the process that waited for the disk.
pub(crate) fn major_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let fields = stat.rsplit(')').next().expect("a name in parentheses");
    // Field 12 of proc(5).
    fields.split_whitespace().nth(9).and_then(|text| text.parse().ok()).expect("a number")
}

/// CPU time of the calling thread so far, to the nanosecond.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes that the files of a directory take on disk.
pub(crate) fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).expect("the store's directory");
    entries.map(|entry| entry.unwrap().metadata().map_or(0, |meta| meta.blocks() * 512)).sum()
}

/// Prints one figure.
pub(crate) fn figure(name: &str, value: f64, unit: &str) {
    if value >= 1000.0 {
        println!("{name:<44} {value:>14.0} {unit}");
    } else {
        println!("{name:<44} {value:>14.3} {unit}");
    }
}
