//! The figures of the process that every Prometheus exporter has, under their usual names.

use std::fmt::Error;

use super::Families;
use crate::process::Process;

pub(super) fn encode(families: &mut Families<'_>, process: &Process) -> Result<(), Error> {
    families.counter(
        "process_cpu_seconds_total",
        "Processor time used, user and system",
        process.cpu_seconds,
    )?;
    families.gauge(
        "process_start_time_seconds",
        "When the process started, in seconds since 1970",
        process.start_time_seconds,
    )?;
    for (name, help, value) in [
        (
            "process_resident_memory_bytes",
            "Memory that is in RAM, mapped files included",
            Some(process.resident_bytes),
        ),
        ("process_virtual_memory_bytes", "Address space", Some(process.virtual_bytes)),
        ("process_open_fds", "Open file descriptors", Some(process.open_fds)),
        ("process_max_fds", "Most open file descriptors", process.max_fds),
        ("process_threads", "Threads", Some(process.threads)),
    ] {
        if let Some(value) = value {
            families.gauge(name, help, value)?;
        }
    }
    Ok(())
}
