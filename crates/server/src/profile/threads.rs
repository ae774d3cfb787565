//! The threads of this process, as the kernel lists them.

use std::fs;

/// The numbers of this process's threads.
pub(super) fn threads() -> Result<Vec<i32>, String> {
    let listing = fs::read_dir("/proc/self/task")
        .map_err(|error| format!("cannot read /proc/self/task: {error}"))?;
    Ok(listing.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}
