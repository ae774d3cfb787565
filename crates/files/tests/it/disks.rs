//! Disks of buckets that are away: nothing is made in their place.

use std::path::{Path, PathBuf};

use tallybook::vfs::{FileSystem, MemoryFileSystem};
use tallybook_files::{
    CreateOptions, Error, FileStore, RepairOptions, RepairReport, Result, WriteOptions,
};

use crate::failing_bucket::{name_in, two_buckets};
use crate::support::{assert_reads, in_memory, inline, lose_catalogue, memory_dir, reopen, write};

fn repair(fs: &MemoryFileSystem) -> Result<RepairReport> {
    FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()))
}

/// A closed store whose two buckets are on a disk each, with a file in each of these buckets.
struct TwoDisks {
    memory: MemoryFileSystem,
    names: [String; 2],
    /// The store's own directory on each disk.
    roots: [PathBuf; 2],
    buckets: [PathBuf; 2],
}

impl TwoDisks {
    fn new(written: &[u8]) -> TwoDisks {
        let memory = MemoryFileSystem::new();
        let bucket_dirs = ["/disk one", "/disk two"].map(PathBuf::from).to_vec();
        let store = in_memory(&memory, CreateOptions { bucket_dirs, ..two_buckets() });
        let names = [0, 1].map(|bucket| name_in(&store, bucket, 0));
        for &bucket in written {
            write(&store, &names[usize::from(bucket)], b"file");
        }
        let buckets = [0, 1].map(|bucket| store.bucket_path(bucket));
        store.close().unwrap();
        let roots = [0, 1].map(|at: usize| buckets[at].parent().unwrap().to_owned());
        TwoDisks { memory, names, roots, buckets }
    }

    /// As it is without the second disk.
    fn unmounted(&self) -> MemoryFileSystem {
        let to = MemoryFileSystem::new();
        let dirs = [Path::new("/files"), Path::new("/files/catalogue-000001"), &self.buckets[0]];
        for dir in dirs.into_iter().filter(|dir| self.memory.exists(dir).unwrap()) {
            to.create_dir_all(dir).unwrap();
            for name in self.memory.list(dir).unwrap() {
                copy_file(&self.memory, &to, &dir.join(name));
            }
        }
        to.create_dir_all(&self.roots[0]).unwrap();
        to
    }
}

fn copy_file(from: &MemoryFileSystem, to: &MemoryFileSystem, path: &Path) {
    to.create(path).unwrap().write_all_at(&contents(from, path), 0).unwrap();
}

fn contents(fs: &MemoryFileSystem, path: &Path) -> Vec<u8> {
    let file = fs.open_read(path).unwrap();
    let mut contents = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut contents, 0).unwrap();
    contents
}

/// The bucket was made under the empty mount point, and what was written to it was gone, or in the way, once the
/// disk was back.
#[test]
fn a_bucket_is_not_made_where_its_disk_is_away() {
    let disks = TwoDisks::new(&[0]);
    let unmounted = disks.unmounted();
    let store = reopen(&unmounted).unwrap();
    for _ in 0..2 {
        let refused = store.write(&disks.names[1], b"new", WriteOptions::default());
        assert!(matches!(&refused, Err(Error::BucketLost { bucket: 1, .. })), "{refused:?}");
    }
    assert!(!unmounted.exists(&disks.roots[1]).unwrap());
    assert_eq!(store.read(&disks.names[1]).unwrap(), None);
    write(&store, &disks.names[0], b"new");
    // The disk is back.
    unmounted.create_dir_all(&disks.roots[1]).unwrap();
    write(&store, &disks.names[1], b"new");
    for name in &disks.names {
        assert_reads(&store, name, b"new");
    }
}

/// A disk that isn't mounted is most likely to come back.
#[test]
fn a_catalogue_is_made_anew_only_where_all_directories_of_buckets_are_there() {
    let disks = TwoDisks::new(&[0]);
    lose_catalogue(&disks.memory);
    let unmounted = disks.unmounted();
    let refused = repair(&unmounted);
    assert!(matches!(&refused, Err(Error::BucketLost { bucket: 1, .. })), "{refused:?}");
    unmounted.create_dir_all(&disks.roots[1]).unwrap();
    assert_eq!(repair(&unmounted).unwrap().absent_buckets, [1]);
    assert_eq!(repair(&disks.memory).unwrap().absent_buckets, [1]);
}

/// The buckets of the disk were made anew under the empty mount point, and those on the disk were the store's no
/// longer.
#[test]
fn a_lost_bucket_is_made_anew_only_where_its_directory_is_there() {
    let disks = TwoDisks::new(&[0, 1]);
    let unmounted = disks.unmounted();
    let description =
        || ["STORE", "STORE.copy"].map(|name| contents(&unmounted, &memory_dir().join(name)));
    let before = description();
    let refused = repair(&unmounted);
    assert!(matches!(&refused, Err(Error::BucketLost { bucket: 1, .. })), "{refused:?}");
    assert!(!unmounted.exists(&disks.roots[1]).unwrap());
    assert!(description() == before);
    assert_reads(&reopen(&unmounted).unwrap(), &disks.names[0], b"file");
    // It is gone for good.
    unmounted.create_dir_all(&disks.roots[1]).unwrap();
    assert_eq!(repair(&unmounted).unwrap().old_buckets, [(1, disks.buckets[1].clone())]);
    // Where it is there nothing is lost.
    assert_eq!(repair(&disks.memory).unwrap().old_buckets, []);
    let store = reopen(&disks.memory).unwrap();
    disks.names.iter().for_each(|name| assert_reads(&store, name, b"file"));
}
