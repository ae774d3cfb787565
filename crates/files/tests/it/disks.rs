//! Disks of buckets that are away, or that fail while a bucket is opened: nothing is made in their place, nothing
//! of theirs is given up, and the rest goes on.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tallybook::vfs::faulty::{Fault, FaultyFileSystem, OperationClass};
use tallybook::vfs::{CrashMode, FileSystem, MemoryFileSystem, MemoryImage};
use tallybook_files::{
    CreateOptions, Durability, Error, FileStore, OpenOptions, ReadOptions, RepairOptions,
    RepairReport, Result, VerifyOptions, VerifyReport, WriteOptions,
};

use crate::failing_bucket::{in_bucket_0, move_files, name_in, two_buckets};
use crate::support::{
    CHUNK, assert_reads, bytes, in_memory, inline, lose_catalogue, memory_dir, reopen, small, write,
};

const EIO: i32 = 5;

fn repair(fs: &MemoryFileSystem) -> Result<RepairReport> {
    FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()))
}

fn verify(store: &FileStore) -> VerifyReport {
    store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap()
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

/// What was verified while a bucket was away was refused for good, until the next verification.
#[test]
fn files_of_a_bucket_that_was_away_are_read_once_it_is_back() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, two_buckets());
    let names = [0, 1].map(|bucket| name_in(&store, bucket, 0));
    names.iter().for_each(|name| drop(write(&store, name, &bytes(1, 2 * CHUNK))));
    store.close().unwrap();
    drop(store);
    let (dir, elsewhere) = (memory_dir().join("buckets/000-000001"), Path::new("/elsewhere"));
    move_files(&memory, &dir, elsewhere);
    let store = reopen(&memory).unwrap();
    let report = verify(&store);
    let found = report.damage.iter().map(|damage| (&*damage.name, damage.is_unread));
    assert_eq!(found.collect::<Vec<_>>(), [(&*names[0], true)]);
    assert_eq!((report.lost_buckets, report.is_complete), (vec![0], true));
    // Whoever reads it is told that it is damaged.
    let options = ReadOptions { range: Some(CHUNK as u64 + 7..u64::MAX), salvage: false };
    let read = store.reader(&names[0], options).unwrap().unwrap().next_chunk();
    assert!(
        matches!(&read, Err(Error::Damaged { offset, .. }) if *offset == CHUNK as u64),
        "{read:?}"
    );
    move_files(&memory, elsewhere, &dir);
    names.iter().for_each(|name| assert_reads(&store, name, &bytes(1, 2 * CHUNK)));
}

/// What a disk answers when a bucket on it is opened: what was asked, and the error.
fn refusals() -> Vec<(&'static str, Fault)> {
    let on = |operation: &'static str, fault: Fault| (operation, fault.sticky());
    vec![
        on(
            "exists",
            Fault::errno(EIO)
                .only(|operation, path| operation == "exists" && in_bucket_0(operation, path)),
        ),
        on(
            "list",
            Fault::errno(EIO)
                .only(|operation, path| operation == "list" && in_bucket_0(operation, path)),
        ),
        on(
            "open_read",
            Fault::errno(EIO)
                .only(|operation, path| operation == "open_read" && in_bucket_0(operation, path)),
        ),
        on(
            "lock",
            Fault::kind(ErrorKind::ReadOnlyFilesystem)
                .only(|operation, path| operation == "lock" && in_bucket_0(operation, path)),
        ),
        on(
            "create",
            Fault::kind(ErrorKind::StorageFull)
                .only(|operation, path| operation == "create" && in_bucket_0(operation, path)),
        ),
    ]
}

/// A bucket that could not be opened ended every verification at its first file, and every repair.
#[test]
fn a_bucket_that_can_not_be_opened_keeps_no_other_from_being_verified_and_repaired() {
    for (operation, fault) in refusals() {
        let memory = MemoryFileSystem::new();
        let store = in_memory(&memory, two_buckets());
        let names = [0, 1].map(|bucket| name_in(&store, bucket, 0));
        names.iter().for_each(|name| drop(write(&store, name, b"file")));
        store.close().unwrap();
        drop(store);
        let without = |is_catalogue_lost: bool| {
            let image = memory.image().crash(CrashMode::KeepAll, 0);
            if is_catalogue_lost {
                lose_catalogue(&image);
            }
            let fs = FaultyFileSystem::new(Arc::new(image.clone()));
            fs.fail_at(0, fault);
            (image, fs)
        };
        let (_, fs) = without(false);
        let options = OpenOptions::default();
        let store = FileStore::open_with(memory_dir(), options, inline(fs.clone())).unwrap();
        let report = verify(&store);
        let found = report.damage.iter().map(|damage| (&*damage.name, damage.is_unread));
        assert_eq!(found.collect::<Vec<_>>(), [(&*names[0], true)], "{operation}");
        assert_eq!((report.unread_buckets, report.is_complete), (vec![0], true), "{operation}");
        // A share at a time, too.
        let share = VerifyOptions { bytes_max: Some(1) };
        let shares = (0..9).map(|_| store.verify(share.clone(), &mut |_, _| {}).unwrap());
        assert!(shares.into_iter().any(|share| share.is_complete), "{operation}");
        fs.clear();
        names.iter().for_each(|name| assert_reads(&store, name, b"file"));
        for is_catalogue_lost in [false, true] {
            let (image, fs) = without(is_catalogue_lost);
            let options = RepairOptions { unlink_damaged: true };
            let repaired = FileStore::repair_with(memory_dir(), options, inline(fs.clone()));
            let report = repaired.unwrap_or_else(|error| panic!("{operation}: {error}"));
            let unread: &[u8] = if is_catalogue_lost { &[0] } else { &[] };
            assert_eq!(report.unread_buckets, unread, "{operation}");
            assert_eq!(report.verified.unread_buckets, [0], "{operation}");
            assert_eq!(
                (report.old_buckets, report.absent_buckets),
                (vec![], vec![]),
                "{operation}"
            );
            assert_reads(&reopen(&image).unwrap(), &names[1], b"file");
            // What can be read by now is taken over.
            repair(&image).unwrap();
            let store = reopen(&image).unwrap();
            names.iter().for_each(|name| assert_reads(&store, name, b"file"));
        }
    }
}

/// What a repair isn't allowed to look at is nothing to go on without.
#[test]
fn a_bucket_that_may_not_be_opened_ends_a_repair() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, CreateOptions { bucket_count: 2, ..small() });
    write(&store, &name_in(&store, 0, 0), b"file");
    store.close().unwrap();
    drop(store);
    lose_catalogue(&memory);
    let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
    fs.fail_at(0, Fault::kind(ErrorKind::PermissionDenied).only(in_bucket_0).sticky());
    let refused = FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs));
    assert!(matches!(&refused, Err(Error::Engine(_))), "{refused:?}");
}

fn is_made(fs: &MemoryFileSystem, name: &str) -> bool {
    fs.exists(&memory_dir().join(name)).unwrap()
}

fn creates_table(operation: &str, path: &Path) -> bool {
    operation == "create" && path.extension().is_some_and(|extension| extension == "sst")
}

/// Whoever closes a store flushes it. After a kill a disk that had no room for a table ended the repair when all of
/// it was done: nothing was told of what had been made anew, and each try left another catalogue.
#[test]
fn a_disk_without_room_for_a_table_keeps_nothing_from_being_repaired() {
    let places: [fn(&str, &Path) -> bool; 2] = [
        |operation, path| creates_table(operation, path) && in_bucket_0(operation, path),
        |operation, path| creates_table(operation, path) && !in_bucket_0(operation, path),
    ];
    for (place, is_catalogue_lost) in
        places.into_iter().flat_map(|place| [(place, false), (place, true)])
    {
        let memory = MemoryFileSystem::new();
        let store = in_memory(&memory, two_buckets());
        let names = [0, 1].map(|bucket| name_in(&store, bucket, 0));
        names.iter().for_each(|name| drop(write(&store, name, b"file")));
        let left = memory.image().crash(CrashMode::KeepAll, 0);
        if is_catalogue_lost {
            lose_catalogue(&left);
        }
        let fs = FaultyFileSystem::new(Arc::new(left.clone()));
        fs.fail_at(0, Fault::kind(ErrorKind::StorageFull).only(place).sticky());
        let options = RepairOptions::default();
        let report = FileStore::repair_with(memory_dir(), options, inline(fs.clone())).unwrap();
        assert!(fs.fired() > 0);
        assert_eq!(report.old_catalogue.is_some(), is_catalogue_lost);
        assert!(report.unfinished.is_none(), "{report:?}");
        assert_eq!((report.old_buckets, report.unread_buckets), (vec![], vec![]));
        // What is closed is on the disk.
        let store = reopen(&left.image().crash(CrashMode::LoseUnsynced, 0)).unwrap();
        names.iter().for_each(|name| assert_reads(&store, name, b"file"));
    }
}

/// What unlinked a file on a full disk was done, and told that it had failed.
#[test]
fn a_store_is_closed_where_its_disk_has_no_room_for_a_table() {
    let memory = MemoryFileSystem::new();
    let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
    let options = OpenOptions { durability: Durability::Os, ..OpenOptions::default() };
    let resources = inline(fs.clone());
    let store = FileStore::create_with(memory_dir(), two_buckets(), options, resources).unwrap();
    let name = name_in(&store, 0, 0);
    write(&store, &name, &bytes(1, 3 * CHUNK));
    fs.fail_at(0, Fault::kind(ErrorKind::StorageFull).only(creates_table).sticky());
    store.close().unwrap();
    assert!(fs.fired() > 0);
    let left = reopen(&memory.image().crash(CrashMode::LoseUnsynced, 0)).unwrap();
    assert_reads(&left, &name, &bytes(1, 3 * CHUNK));
}

/// A closed store whose second bucket is lost, and known by the file that goes on in it.
fn of_a_lost_bucket() -> MemoryImage {
    let memory = MemoryFileSystem::new();
    let cap = 2 * CHUNK as u64;
    let store = in_memory(&memory, CreateOptions { bucket_cap_bytes: cap, ..two_buckets() });
    let name = name_in(&store, 0, 0);
    write(&store, &name, &bytes(1, 3 * CHUNK));
    store.close().unwrap();
    drop(store);
    let elsewhere = Path::new("/elsewhere");
    move_files(&memory, &memory_dir().join("buckets/001-000001"), elsewhere);
    memory.image()
}

/// What was made anew before a repair was refused stayed, beside that of each try; where the description couldn't be
/// written, it was told of as what the store has now. Behind the description a failure took the report away, and the
/// next repair had nothing of it to tell.
#[test]
fn a_repair_that_fails_leaves_nothing_or_tells_what_it_made() {
    let image = of_a_lost_bucket();
    let anew = ["catalogue-000002", "catalogue-000003", "buckets/001-000002", "buckets/001-000003"];
    let (mut refused, mut unfinished) = (0, 0);
    for is_catalogue_lost in [false, true] {
        for ordinal in (1..).step_by(3) {
            let left = image.crash(CrashMode::KeepAll, 0);
            if is_catalogue_lost {
                lose_catalogue(&left);
            }
            let fs = FaultyFileSystem::new(Arc::new(left.clone()));
            fs.fail_at(ordinal, Fault::errno(EIO));
            let options = RepairOptions::default();
            let first = FileStore::repair_with(memory_dir(), options, inline(fs.clone()));
            let Some(fired) = fs.last_fired() else { break };
            let report = match first {
                Ok(report) => {
                    unfinished += u32::from(report.unfinished.is_some());
                    report
                }
                Err(_) => {
                    let files = |name| left.list(&memory_dir().join(name)).unwrap_or_default();
                    let made: Vec<String> = anew.into_iter().flat_map(files).collect();
                    assert_eq!(made, Vec::<String>::new(), "{fired:?}");
                    refused += 1;
                    let report = repair(&left).unwrap();
                    assert!(!anew.iter().any(|name| name.ends_with('3') && is_made(&left, name)));
                    report
                }
            };
            assert_eq!(report.old_catalogue.is_some(), is_catalogue_lost, "{fired:?}");
            let old: Vec<u8> = report.old_buckets.iter().map(|(bucket, _)| *bucket).collect();
            assert_eq!(old, [1], "{fired:?}");
            // What was told to be made anew is what the store has since.
            let next = repair(&left).unwrap();
            assert_eq!((next.old_catalogue, next.old_buckets), (None, vec![]), "{fired:?}");
            assert!(next.unfinished.is_none());
        }
    }
    assert!(refused > 10 && unfinished > 10, "{refused} refused, {unfinished} unfinished");
}

/// The copy that had been written could not be read, and the other one was taken for the description: what the
/// written one names was removed, which then counted.
#[test]
fn a_description_that_was_written_and_can_not_be_read_is_not_taken_for_older() {
    let image = of_a_lost_bucket();
    // The second copy can't be written; the first not be read, from some operation on.
    let repaired = |unread_from: u64| {
        let left = image.crash(CrashMode::KeepAll, 0);
        lose_catalogue(&left);
        let fs = FaultyFileSystem::new(Arc::new(left.clone()));
        let second = |_: &str, path: &Path| path.ends_with("STORE.tmp");
        fs.fail_at(0, Fault::errno(EIO).class(OperationClass::Writes).only(second));
        let first = |_: &str, path: &Path| path.ends_with("STORE.copy");
        let unread = Fault::errno(EIO).class(OperationClass::Reads).only(first);
        fs.fail_at(unread_from, unread.sticky());
        let options = RepairOptions::default();
        let report = FileStore::repair_with(memory_dir(), options, inline(fs.clone()));
        (left, fs, report)
    };
    let (_, fs, _) = repaired(u64::MAX);
    let (left, fs, report) = repaired(fs.last_fired().unwrap().ordinal);
    assert!(fs.fired() > 1);
    let report = report.unwrap();
    assert!(report.unfinished.is_some() && report.old_catalogue.is_some());
    // What was told to be made anew is what the store has since.
    let next = repair(&left).unwrap();
    assert_eq!((next.old_catalogue, next.old_buckets), (None, vec![]));
}
