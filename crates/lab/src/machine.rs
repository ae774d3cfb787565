//! What the machine is, and whether it has room: for the record, and before a run starts.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use memmap2::MmapOptions;

use crate::error::{Error, Result};
use crate::record::Machine;
use crate::spec::{Length, Pace, Spec, ValueSizes, Workload};
use crate::values::Values;

/// What a store may take on disk per byte put, with its journal, levels being merged and spares.
const SPACE_FACTOR: f64 = 3.0;
/// What a store takes however little is in it.
const SPACE_LEAST: u64 = 256 << 20;

/// What the fastest engines measured write in a second at most: operations, and bytes of memory and files.
const OPERATIONS_PER_S: f64 = 2.5e6;
const BYTES_PER_S: f64 = 1.5e9;

/// The machine, and the file system that holds `directory`.
pub fn machine(directory: Option<&Path>) -> Machine {
    Machine {
        cpu: cpu_model(&read("/proc/cpuinfo")),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_bytes: meminfo("MemTotal:", &read("/proc/meminfo")),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        file_system: directory.map_or_else(String::new, |directory| {
            let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
            file_system(&read("/proc/self/mounts"), &directory)
        }),
        memory_limit_bytes: memory_limit(),
        read_ahead_bytes: directory.and_then(|directory| read_ahead(Path::new("/sys"), directory)),
    }
}

/// Refuses, before the start, a run whose store may not fit beside `directory`'s other contents.
pub fn check_space(directory: &Path, spec: &Spec) -> Result<()> {
    let available_bytes = available_bytes(directory)?;
    let needed_bytes = space_needed(spec)?;
    if available_bytes < needed_bytes {
        let what = format!("{} with {} keys", spec.workload.name(), spec.keys);
        return Err(Error::NoSpace { what, needed_bytes, available_bytes });
    }
    Ok(())
}

/// Bytes free for this user on the file system that holds, or is to hold, `directory`.
pub fn available_bytes(directory: &Path) -> Result<u64> {
    let here = std::env::current_dir().unwrap_or_default();
    let absolute = here.join(directory);
    let existing = absolute.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let free = rustix::fs::statvfs(existing)
        .map_err(|errno| Error::io(format!("space of {}", existing.display()))(errno.into()))?;
    Ok(free.f_bavail.saturating_mul(free.f_frsize))
}

/// Bytes of disk that a run of this spec may take.
pub fn space_needed(spec: &Spec) -> Result<u64> {
    let values = Values::new(spec.values, spec.compressible)?;
    Ok(bytes_stored(spec, values.length_mean()) as u64 + SPACE_LEAST)
}

/// Bytes that a store of the spec's keys may take, with values of this length in the mean.
fn bytes_stored(spec: &Spec, value_bytes: f64) -> f64 {
    spec.keys as f64 * (f64::from(spec.key_bytes) + value_bytes) * SPACE_FACTOR
}

/// Bytes of memory that a run of the spec is likely to take: those of its store, or more when it writes for
/// a time, over and over.
fn memory_taken(spec: &Spec, value_bytes: f64) -> f64 {
    let stored = bytes_stored(spec, value_bytes);
    let Length::Time(length) = spec.length else { return stored };
    if !spec.workload.writes() {
        return stored;
    }
    let per_s = match spec.pace {
        // The reads take none.
        _ if spec.workload == Workload::ReadWhileWriting && spec.background_rate > 0.0 => {
            spec.background_rate
        }
        Pace::Closed => OPERATIONS_PER_S,
        Pace::Constant { per_second } | Pace::Poisson { per_second } => per_second,
    };
    let written_per_s = per_s * (f64::from(spec.key_bytes) + value_bytes) * SPACE_FACTOR;
    stored.max(length.as_secs_f64() * written_per_s.min(BYTES_PER_S))
}

/// Has the host of a virtual machine back the memory that a run of this spec is likely to take: it takes
/// back pages that are free, and gives them again at 4 to 9 us each, to whoever touches them first.
/// Without that, what an engine is charged depends on which one ran before it (decision 16).
///
/// Nothing where a control group limits memory: pages of others would have to go for it.
pub fn bring_in_memory(spec: &Spec) -> Result<()> {
    let available_bytes = meminfo("MemAvailable:", &read("/proc/meminfo"));
    let value_bytes = match spec.values {
        // Files are longer than the longest value.
        ValueSizes::Fixed(bytes) => f64::from(bytes),
        sizes => Values::new(sizes, spec.compressible)?.length_mean(),
    };
    let bytes = (memory_taken(spec, value_bytes) as u64).min(available_bytes / 2);
    if bytes > 0 && memory_limit().is_none() {
        let map = MmapOptions::new().len(bytes as usize).populate().map_anon();
        drop(map.map_err(Error::io("memory to bring in"))?);
    }
    Ok(())
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn cpu_model(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let name = model.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
    name.unwrap_or("unknown").to_owned()
}

/// Bytes that a line of `/proc/meminfo` tells; 0 if there is none.
fn meminfo(name: &str, meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The type of the mount with the longest path above `directory`; later mounts cover earlier ones.
fn file_system(mounts: &str, directory: &Path) -> String {
    let mut best = (0, String::new());
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (fields.next(), fields.next()) else { continue };
        // Spaces in a path are written as octal escapes.
        let point = point.replace("\\040", " ");
        if directory.starts_with(&point) && point.len() >= best.0 {
            best = (point.len(), kind.to_owned());
        }
    }
    best.1
}

/// Bytes that the system reads ahead of the device on which a directory is: a partition's are its disk's.
fn read_ahead(system: &Path, directory: &Path) -> Option<u64> {
    let device = fs::metadata(directory).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let block = system.join(format!("dev/block/{major}:{minor}"));
    let places = [block.join("queue"), block.join("../queue")];
    let kib = places.iter().find_map(|place| read(place.join("read_ahead_kb")).trim().parse().ok());
    kib.map(|kib: u64| kib * 1024)
}

/// The limit of the control group that this process is in (version 2), if one is set.
fn memory_limit() -> Option<u64> {
    let groups = read("/proc/self/cgroup");
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(group.trim_start_matches('/'));
    own.ancestors()
        .take_while(|path| path.starts_with(root))
        .filter_map(|path| read(path.join("memory.max")).trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn this_machine_is_known() {
        let machine = machine(Some(Path::new(".")));
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(!machine.kernel.is_empty() && !machine.file_system.is_empty(), "{machine:?}");
    }

    #[test]
    fn read_ahead_is_that_of_the_disk_even_on_a_partition() {
        let system = tempfile::tempdir().unwrap();
        let device = fs::metadata(system.path()).unwrap().dev();
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let disk = system.path().join("disk");
        fs::create_dir_all(system.path().join("dev/block")).unwrap();
        fs::create_dir_all(disk.join("partition")).unwrap();
        fs::create_dir_all(disk.join("queue")).unwrap();
        let block = system.path().join("dev/block").join(number);
        std::os::unix::fs::symlink(disk.join("partition"), block).unwrap();
        assert_eq!(read_ahead(system.path(), system.path()), None);
        fs::write(disk.join("queue/read_ahead_kb"), "8192\n").unwrap();
        assert_eq!(read_ahead(system.path(), system.path()), Some(8 << 20));
    }

    #[test]
    fn lines_of_meminfo_are_in_kib() {
        let text = "MemTotal:       24689204 kB\nMemFree:  12 kB\nMemAvailable:   1000 kB\n";
        assert_eq!(meminfo("MemAvailable:", text), 1_024_000);
        assert_eq!(meminfo("SwapTotal:", text), 0);
    }

    #[test]
    fn a_value_beyond_the_longest_is_refused_before_the_start_but_files_may_be_longer() {
        let spec = Spec { keys: 1, values: ValueSizes::Fixed(257 << 20), ..Spec::default() };
        assert!(space_needed(&spec).is_err());
        bring_in_memory(&spec).unwrap();
    }

    #[test]
    fn who_writes_for_a_time_takes_more_memory_than_its_store() {
        let reads = Spec {
            workload: Workload::ReadRandom,
            keys: 1_000_000,
            length: Length::Time(Duration::from_secs(10)),
            ..Spec::default()
        };
        let overwrites = Spec { workload: Workload::Overwrite, ..reads.clone() };
        let slowly = Pace::Constant { per_second: 1000.0 };
        assert_eq!(memory_taken(&reads, 984.0), 3e9);
        assert_eq!(memory_taken(&overwrites, 984.0), 15e9);
        assert_eq!(memory_taken(&overwrites, 84.0), 7.5e9);
        assert_eq!(memory_taken(&Spec { pace: slowly, ..overwrites }, 84.0), 3e8);
        let beside = Spec { workload: Workload::ReadWhileWriting, keys: 1000, ..reads };
        assert_eq!(memory_taken(&beside, 984.0), 6e8);
    }

    #[test]
    fn longest_and_last_mount_counts() {
        let mounts =
            "a / ext4 rw 0 0\nb /data xfs rw 0 0\nc /data/x\\040y btrfs rw 0 0\nd / zfs rw";
        assert_eq!(file_system(mounts, Path::new("/data/z")), "xfs");
        assert_eq!(file_system(mounts, Path::new("/data/x y/z")), "btrfs");
        assert_eq!(file_system(mounts, Path::new("/database")), "zfs");
    }

    #[test]
    fn too_small_a_disk_is_said_before_the_start() {
        let spec = Spec { keys: 1 << 46, ..Spec::default() };
        let error = check_space(Path::new("./not/there/yet"), &spec).unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    }
}
