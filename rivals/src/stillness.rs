//! Waiting until an engine that doesn't tell has finished its background work.
//!
//! What can be seen of it is looked at again and again; it counts as finished when nothing has
//! changed for a while. That while is part of what the wait takes.

use std::path::Path;
use std::thread;
use std::time::Duration;

use tallybook_lab::process::thread_cpu_time;
use tallybook_lab::{Error, Result};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(50);

/// Waits until `look` has seen the same `looks` times in a row, 50 ms apart. Answers the CPU time that
/// looking took.
pub(crate) fn wait<T: PartialEq>(
    looks: u32,
    mut look: impl FnMut() -> Result<T>,
) -> Result<Duration> {
    let from = thread_cpu_time();
    let mut last = look()?;
    let mut same = 0;
    while same < looks {
        thread::sleep(INTERVAL);
        let now = look()?;
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    Ok(thread_cpu_time() - from)
}

/// The files of a directory and their lengths, sorted by name; files that go meanwhile are left out.
pub(crate) fn files(directory: &Path) -> Result<Vec<(String, u64)>> {
    let read = |source| Error::Io { what: format!("listing {}", directory.display()), source };
    let mut files = Vec::new();
    for entry in directory.read_dir().map_err(read)? {
        let entry = entry.map_err(read)?;
        if let Ok(metadata) = entry.metadata() {
            files.push((entry.file_name().to_string_lossy().into_owned(), metadata.len()));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_until_nothing_changes_any_more() {
        let mut looks = 0;
        wait(3, || {
            looks += 1;
            Ok(looks.min(5))
        })
        .unwrap();
        assert_eq!(looks, 8);
    }

    #[test]
    fn a_file_that_grows_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), b"1").unwrap();
        let before = files(directory.path()).unwrap();
        std::fs::write(directory.path().join("a"), b"12").unwrap();
        assert_ne!(before, files(directory.path()).unwrap());
    }
}
