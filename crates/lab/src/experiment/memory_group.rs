//! A control group that limits the memory of a process, the page cache of its files included.
//!
//! Invariant: a group is removed with its handle, which therefore outlives the processes in it. Making
//! one takes root, and the memory controller of either version at its usual place.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};

/// Where groups are: version 1, version 2.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
/// A group's file with its limit, of each version.
const LIMITS: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];
/// What a shell does to enter the group that it is told of and to become the program.
const ENTER: &str = r#"echo $$ >"$0/cgroup.procs" && exec "$@""#;

/// Groups made by this process, so that each has a name of its own.
static MADE: AtomicU32 = AtomicU32::new(0);

/// One group.
#[derive(Debug)]
pub(super) struct MemoryGroup {
    directory: PathBuf,
}

impl MemoryGroup {
    /// A group without processes.
    pub(super) fn new(bytes_max: u64) -> Result<MemoryGroup> {
        let cannot = |why: String| {
            Error::Invalid(format!(
                "no control group with a memory limit can be made here ({why}): that takes root, and the \
                 memory controller in {} (version 1), or in {}/cgroup.subtree_control (version 2)",
                ROOTS[0], ROOTS[1],
            ))
        };
        let version = usize::from(!Path::new(ROOTS[0]).join(LIMITS[0]).exists());
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("tallybook-lab-{}-{number}", std::process::id());
        let directory = Path::new(ROOTS[version]).join(name);
        let at = |error: io::Error| cannot(format!("{}: {error}", directory.display()));
        fs::create_dir(&directory).map_err(at)?;
        let group = MemoryGroup { directory: directory.clone() };
        fs::write(directory.join(LIMITS[version]), bytes_max.to_string()).map_err(at)?;
        Ok(group)
    }

    /// The same program and arguments, in the group from its first moment. More arguments may follow.
    pub(super) fn entered_by(&self, words: &[OsString]) -> Vec<OsString> {
        let shell = ["sh".into(), "-c".into(), ENTER.into(), self.directory.clone().into()];
        shell.into_iter().chain(words.iter().cloned()).collect()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // It is empty by now; one that isn't removed takes no memory from anybody.
        let _ = fs::remove_dir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_program_begins_in_its_group_or_it_is_told_why_there_is_none() {
        let group = match MemoryGroup::new(64 << 20) {
            Ok(group) => group,
            Err(error) => {
                assert!(error.to_string().contains("that takes root"), "{error}");
                return;
            }
        };
        let name = group.directory.file_name().unwrap().to_string_lossy().into_owned();
        let words = group.entered_by(&["cat".into()]);
        let told = Command::new(&words[0]).args(&words[1..]).arg("/proc/self/cgroup").output();
        let told = String::from_utf8(told.unwrap().stdout).unwrap();
        assert!(told.lines().any(|line| line.ends_with(&name)), "{told}");
        let directory = group.directory.clone();
        drop(group);
        assert!(!directory.exists());
    }
}
