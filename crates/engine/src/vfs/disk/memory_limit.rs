//! How much memory the process may fill: the machine's, or what the control groups that it is in allow.
//!
//! What a group allows counts the pages of its files in the page cache too, of version 1 and of version 2
//! (`Documentation/admin-guide/cgroup-v2.rst` of Linux).

use std::fs;
use std::path::Path;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory that the process and the page cache of its files may take together.
pub(super) fn bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let of_machine = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    least(&groups, Path::new(GROUPS)).map_or(of_machine, |least| least.min(of_machine))
}

/// The least that is allowed by the groups that `/proc/self/cgroup` names, and by those around them.
fn least(groups: &str, mounted: &Path) -> Option<u64> {
    groups.lines().filter_map(|line| least_of_line(line, mounted)).min()
}

/// Of one line: `hierarchy:controllers:path`, where version 2 names no controllers.
fn least_of_line(line: &str, mounted: &Path) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (root, file) = match controllers {
        "" => (mounted.to_owned(), "memory.max"),
        named if named.split(',').any(|name| name == "memory") => {
            (mounted.join("memory"), "memory.limit_in_bytes")
        }
        _ => return None,
    };
    // In a container the path may be one that only the host has; then the root is the container's own.
    let around = Path::new(path.trim_start_matches('/')).ancestors();
    around
        .filter_map(|group| fs::read_to_string(root.join(group).join(file)).ok())
        // A group without a limit says `max`.
        .filter_map(|text| text.trim().parse::<u64>().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_group_counts_of_both_versions() {
        let mounted = tempfile::tempdir().unwrap();
        let root = mounted.path();
        for (file, text) in [
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/a/memory.limit_in_bytes", "4096000\n"),
            ("memory/a/b/memory.limit_in_bytes", "8192000\n"),
            ("c/memory.max", "5000000\n"),
            ("c/d/memory.max", "max\n"),
        ] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(least("4:cpu,memory:/a/b\n", root), Some(4_096_000));
        assert_eq!(least("4:memory:/only/the/host/has\n", root), Some(9_223_372_036_854_771_712));
        assert_eq!(least("0::/c/d\n", root), Some(5_000_000));
        assert_eq!(least("4:memory:/a\n0::/c/d\n", root), Some(4_096_000));
        assert_eq!(least("0::/e\n", root), None);
        assert_eq!(least("3:cpu:/a\nno groups at all\n", root), None);
    }

    #[test]
    fn there_is_some_memory() {
        assert!(bytes() > 1 << 20);
    }
}
