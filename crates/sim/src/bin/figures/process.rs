//! What the system says of this process and of a directory: by the laboratory where it reads it too.

use std::time::Duration;

use tallybook_lab::process::Process;
pub(crate) use tallybook_lab::process::disk_bytes;

/// Memory of the process's own, maps of files apart, in bytes.
pub(crate) fn anonymous_bytes() -> u64 {
    Process::current().anonymous_bytes()
}

/// Memory resident, maps of files included, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a known field");
    let kib = line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok());
    kib.expect("a number of KiB") * 1024
}

/// CPU time of all threads so far.
pub(crate) fn cpu_time() -> Duration {
    Duration::from_secs_f64(Process::current().cpu_s().expect("the process has a clock"))
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

/// Prints one figure.
pub(crate) fn figure(name: &str, value: f64, unit: &str) {
    if value >= 1000.0 {
        println!("{name:<44} {value:>14.0} {unit}");
    } else {
        println!("{name:<44} {value:>14.3} {unit}");
    }
}
