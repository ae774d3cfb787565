//! What the system says of memory: the limit that this process lives under, and what is used of it.
//!
//! Knows the files of control groups of both versions. Without a group every figure of one is 0.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Memory at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// Most bytes that the process and its part of the page cache may take; 0: no limit.
    pub(super) limit_bytes: u64,
    /// Page cache charged to the group.
    pub(super) cache_bytes: u64,
    /// Memory of the process's own.
    pub(super) anonymous_bytes: u64,
    /// Page faults that waited for the disk, since the process began.
    pub(super) major_faults: u64,
}

/// Where the figures of this process's memory group are.
#[derive(Debug)]
pub(super) enum Group {
    /// A version 1 memory controller.
    V1(PathBuf),
    /// A version 2 group.
    V2(PathBuf),
    /// There is none.
    None,
}

impl Group {
    /// The group of this process.
    pub(super) fn of_this_process() -> Group {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let root = PathBuf::from("/sys/fs/cgroup");
        let path_of = |controllers: &str| {
            groups.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (found, path) = rest.split_once(':')?;
                let is_it = found.split(',').any(|one| one == controllers);
                is_it.then(|| path.trim_start_matches('/').to_owned())
            })
        };
        if let Some(path) = path_of("memory") {
            return Group::V1(root.join("memory").join(path));
        }
        match path_of("") {
            Some(path) if root.join(&path).join("memory.max").exists() => {
                Group::V2(root.join(path))
            }
            _ => Group::None,
        }
    }

    /// The figures now.
    pub(super) fn read(&self) -> Memory {
        let (limit_bytes, cache_bytes) = match self {
            Group::V1(dir) => (
                number(&dir.join("memory.limit_in_bytes")),
                field(&dir.join("memory.stat"), "total_cache"),
            ),
            Group::V2(dir) => {
                (number(&dir.join("memory.max")), field(&dir.join("memory.stat"), "file"))
            }
            Group::None => (0, 0),
        };
        Memory {
            // "No limit" is a number near the largest in version 1.
            limit_bytes: if limit_bytes < 1 << 60 { limit_bytes } else { 0 },
            cache_bytes,
            anonymous_bytes: crate::process::anonymous_bytes(),
            major_faults: crate::process::major_faults(),
        }
    }
}

/// The number in a file; 0 when it holds none ("max") or can't be read.
fn number(path: &std::path::Path) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The number after a name at the start of a line.
fn field(path: &std::path::Path, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}
