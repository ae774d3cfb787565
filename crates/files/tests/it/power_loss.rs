//! What a power loss takes out of the catalogue is not brought back by the buckets' entries, which are
//! there to make a lost catalogue anew.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tallybook::vfs::faulty::{Fault, FaultError, OperationClass};
use tallybook::vfs::{
    CrashMode, FaultyFileSystem, FileSystem, MemoryFileSystem, MemoryImage, SystemClock,
};
use tallybook::{Resources, ScanOptions, Store};
use tallybook_files::record::{ContentId, FileRecord, Stat};
use tallybook_files::{
    CopyOptions, CreateOptions, Durability, Error, FileStore, OpenOptions, RepairOptions,
    UnlinkOptions, VerifyOptions, WriteOptions, key_layout, resource_options,
};

use crate::failing_bucket::{chunk_count, name_in};
use crate::support::{
    CHUNK, assert_reads, bytes, engine_store, in_memory, inline, lose_catalogue, memory_dir,
    reopen, small, write,
};

/// A version that no store here comes to.
const LOST_VERSION: u64 = 1 << 60;

/// One bucket, so that whoever syncs it syncs what others put there.
fn one_bucket() -> CreateOptions {
    CreateOptions { bucket_count: 1, ..small() }
}

/// A new store in memory whose changes are of this durability.
fn in_memory_at(durability: Durability, fs: &MemoryFileSystem, create: CreateOptions) -> FileStore {
    let options = OpenOptions { durability, ..OpenOptions::default() };
    FileStore::create_with(memory_dir(), create, options, inline(fs.clone())).unwrap()
}

fn write_at(store: &FileStore, durability: Durability, name: &str, bytes: &[u8]) {
    let options = WriteOptions { durability: Some(durability), ..Default::default() };
    store.write(name, bytes, options).unwrap();
}

fn copy_at_sync() -> CopyOptions {
    CopyOptions { durability: Some(Durability::Sync), ..Default::default() }
}

fn bucket(fs: &MemoryFileSystem) -> Store {
    engine_store(fs, "buckets/000-000001")
}

/// Names and versions of a bucket's entries.
fn entries(bucket: &Store) -> Vec<(String, u64)> {
    let prefix = Some(vec![key_layout::ENTRY].into());
    let heads = bucket.range_heads(ScanOptions { prefix, ..Default::default() }).unwrap();
    let parse = |key: &[u8]| key_layout::parse_entry(key).map(|(name, of)| (name.to_owned(), of));
    heads.map(|head| parse(&head.unwrap().key).unwrap()).collect()
}

/// Entries of versions that the catalogue knows neither as current nor as past.
fn lost_entries(fs: &MemoryFileSystem) -> Vec<(String, u64)> {
    let catalogue = engine_store(fs, "catalogue-000001");
    let is_known = |name: &str, version| {
        let record = catalogue.get(&key_layout::key(key_layout::NAME, name.as_bytes())).unwrap();
        let record = record.and_then(|value| FileRecord::decode(&value));
        let dead = key_layout::of_version(key_layout::ENTRY_DEAD, version);
        record.is_some_and(|record| record.version == version)
            || catalogue.get(&dead).unwrap().is_some()
    };
    entries(&bucket(fs)).into_iter().filter(|(name, of)| !is_known(name, *of)).collect()
}

/// Puts entries of versions that the catalogue doesn't know.
fn put_lost_entries(fs: &MemoryFileSystem, names: impl Iterator<Item = String>) {
    let bucket = bucket(fs);
    for name in names {
        bucket.put(&key_layout::entry(&name, LOST_VERSION), b"lost").unwrap();
    }
    bucket.close().unwrap();
}

/// What a power loss after each of the operations of `body` leaves.
fn losses(fs: &MemoryFileSystem, body: impl FnOnce()) -> Vec<MemoryFileSystem> {
    let images: Arc<Mutex<Vec<MemoryImage>>> = Arc::default();
    let taken = images.clone();
    fs.set_observer(Some(Box::new(move |_, _, moment| {
        taken.lock().unwrap().push(moment.image());
    })));
    body();
    fs.set_observer(None);
    let images = std::mem::take(&mut *images.lock().unwrap());
    images.iter().map(|image| image.crash(CrashMode::LoseUnsynced, 0)).collect()
}

/// The bucket was synced with the new entry before the catalogue was with the change. A power loss in
/// between left an entry of a version that never was, which nobody took away but a whole verification.
#[test]
fn an_entry_is_on_disk_no_sooner_than_what_it_says() {
    for durability in [Durability::Interval(100), Durability::Sync] {
        let fs = MemoryFileSystem::new();
        let store = in_memory_at(durability, &fs, one_bucket());
        write_at(&store, Durability::Sync, "first", &bytes(1, 100));
        let losses = losses(&fs, || {
            write_at(&store, Durability::Sync, "a", &bytes(2, CHUNK + 1));
            write_at(&store, Durability::Sync, "a", &bytes(3, 10));
            write_at(&store, Durability::Sync, "empty", b"");
            store.copy("a", "b", copy_at_sync()).unwrap();
            store.rename("b", "first", copy_at_sync()).unwrap();
        });
        assert!(losses.len() > 20, "{} operations", losses.len());
        for (ordinal, fs) in losses.iter().enumerate() {
            assert_eq!(lost_entries(fs), [], "after operation {ordinal} at {durability:?}");
        }
    }
}

/// A store that syncs what it acknowledges took that for each chunk and each note: fifteen syncs for ten
/// chunks, of which three are needed. What it acknowledged is there whenever the power goes.
#[test]
fn a_store_at_sync_syncs_what_is_acknowledged_and_not_each_chunk() {
    let fs = MemoryFileSystem::new();
    let store = in_memory_at(Durability::Sync, &fs, one_bucket());
    write(&store, "first", &bytes(1, 100));
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = syncs.clone();
    fs.set_observer(Some(Box::new(move |_, operation, _| {
        let is_sync = matches!(operation, "sync_data" | "sync_range");
        counted.fetch_add(u64::from(is_sync), Ordering::Relaxed);
    })));
    let file = bytes(2, 10 * CHUNK);
    write(&store, "file", &file);
    fs.set_observer(None);
    let syncs = syncs.load(Ordering::Relaxed);
    // The chunks, the catalogue, the entry; and a segment that is begun.
    assert!((3..=5).contains(&syncs), "{syncs} syncs");
    let lose_power = || reopen(&fs.image().crash(CrashMode::LoseUnsynced, 0)).unwrap();
    assert_reads(&lose_power(), "file", &file);
    store.copy("file", "copy", Default::default()).unwrap();
    assert_reads(&lose_power(), "copy", &file);
    store.rename("copy", "name", Default::default()).unwrap();
    assert_reads(&lose_power(), "name", &file);
    assert!(store.unlink("name", Default::default()).unwrap());
    let left = lose_power();
    assert!(left.stat("name").unwrap().is_none() && left.stat("copy").unwrap().is_none());
}

/// With the catalogue synced first, the bytes have to be on disk before it: those of a file written at
/// `Os` are only asked for when its name is changed at `Sync`.
#[test]
fn a_name_given_at_sync_has_its_bytes_whenever_the_power_goes() {
    type Give = fn(&FileStore) -> tallybook_files::Result<tallybook_files::Stat>;
    let gives: [Give; 2] = [
        |store| store.rename("source", "target", copy_at_sync()),
        |store| store.copy("source", "target", copy_at_sync()),
    ];
    for give in gives {
        let fs = MemoryFileSystem::new();
        let create = CreateOptions { bucket_cap_bytes: 3 * CHUNK as u64, ..small() };
        let store = in_memory(&fs, create);
        let (old, new) = (bytes(1, 100), bytes(2, 7 * CHUNK));
        // All buckets are made before.
        write_at(&store, Durability::Sync, "filler", &bytes(3, 11 * CHUNK));
        store.unlink("filler", Default::default()).unwrap();
        store.reap().unwrap();
        write_at(&store, Durability::Sync, "target", &old);
        write_at(&store, Durability::Os, "source", &new);
        let losses = losses(&fs, || drop(give(&store).unwrap()));
        assert!(losses.len() > 5, "{} operations", losses.len());
        for (ordinal, fs) in losses.iter().enumerate() {
            let read = reopen(fs).unwrap().read("target");
            let read = read.unwrap_or_else(|error| panic!("operation {ordinal}: {error}"));
            assert!(read.is_some_and(|read| read == old || read == new), "operation {ordinal}");
        }
        assert_reads(&reopen(losses.last().unwrap()).unwrap(), "target", &new);
    }
}

/// Only buckets that were open were synced: what a process that was killed had written to others at `Os` was
/// not on disk, though a name was given to it at `Sync`.
#[test]
fn what_a_killed_process_wrote_is_synced_by_whoever_asks_for_it() {
    type Ask = fn(&FileStore) -> tallybook_files::Result<()>;
    let fs = MemoryFileSystem::new();
    let create = CreateOptions { bucket_cap_bytes: 3 * CHUNK as u64, ..small() };
    let store = in_memory(&fs, create);
    let file = bytes(1, 7 * CHUNK);
    write_at(&store, Durability::Os, "file", &file);
    let killed = || fs.image().crash(CrashMode::KeepAll, 0);
    let rename: Ask = |store| store.rename("file", "name", copy_at_sync()).map(drop);
    // Three of the four have chunks of it.
    let asks = [(rename, 3, 1), (FileStore::sync, 3, 0)];
    for (ask, opened, opened_after_a_close) in asks {
        let left = killed();
        let store = reopen(&left).unwrap();
        ask(&store).unwrap();
        assert_eq!(store.open_buckets(), opened);
        drop(store);

        let left = killed();
        let store = reopen(&left).unwrap();
        store.reap().unwrap();
        store.close().unwrap();
        drop(store);
        let store = reopen(&left).unwrap();
        ask(&store).unwrap();
        assert_eq!(store.open_buckets(), opened_after_a_close, "a close syncs");
    }
    // One that is lost is nobody's business but who reads it.
    let left = killed();
    let home = store.bucket_of("file");
    let current = |bucket: u8| memory_dir().join(format!("buckets/{bucket:03}-000001/CURRENT"));
    left.remove(&current(home ^ 1)).unwrap();
    let store = reopen(&left).unwrap();
    rename(&store).unwrap();
    store.sync().unwrap();
}

/// A store whose bucket's disk has the entry of a version of `file` that a power loss took out of the
/// catalogue, and what is in the file.
fn after_a_loss() -> (MemoryFileSystem, Vec<u8>) {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, one_bucket());
    let file = bytes(1, CHUNK + 7);
    write_at(&store, Durability::Sync, "file", &file);
    store.reap().unwrap();
    write_at(&store, Durability::Os, "file", &bytes(2, CHUNK));
    // Its chunks are synced, and with them what was put into the bucket before.
    write_at(&store, Durability::Interval(100), "other", b"other");
    let left = fs.image().crash(CrashMode::LoseUnsynced, 0);
    assert_eq!(lost_entries(&left).len(), 1, "the entry is there and what it says is not");
    (left, file)
}

/// Has the catalogue lost and made anew.
fn make_anew(fs: &MemoryFileSystem) -> FileStore {
    lose_catalogue(fs);
    FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone())).unwrap();
    reopen(fs).unwrap()
}

/// A version that a power loss had taken was the newest that the buckets knew: it replaced the one that
/// was there when the catalogue was made anew, however long after.
#[test]
fn a_version_that_a_power_loss_took_does_not_come_back_with_a_lost_catalogue() {
    let (fs, file) = after_a_loss();
    let store = reopen(&fs).unwrap();
    assert_reads(&store, "file", &file);
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    let store = make_anew(&fs);
    assert_reads(&store, "file", &file);
    assert!(store.read("other").unwrap().is_none());
}

/// Their bytes took room, and counted nowhere, until somebody had all of the store verified.
#[test]
fn chunks_of_what_a_power_loss_took_are_swept_with_its_entries() {
    let (fs, file) = after_a_loss();
    let chunks = |fs: &MemoryFileSystem| {
        chunk_count(&fs.image().crash(CrashMode::KeepAll, 0), "buckets/000-000001")
    };
    let is_swept = |fs: &MemoryFileSystem| {
        engine_store(fs, "catalogue-000001").head(&[key_layout::SWEPT]).unwrap().is_some()
    };
    assert_eq!(chunks(&fs), 4);
    // Closed before, it is not said to be swept.
    reopen(&fs).unwrap().close().unwrap();
    assert_eq!((chunks(&fs), is_swept(&fs)), (4, false));
    let store = reopen(&fs).unwrap();
    // What is being written meanwhile is nobody's yet, either.
    let mut writer = store.writer("new", WriteOptions::default()).unwrap();
    writer.write(&bytes(3, CHUNK)).unwrap();
    store.reap().unwrap();
    writer.write(&bytes(4, CHUNK)).unwrap();
    writer.commit().unwrap();
    assert_reads(&store, "file", &file);
    assert_reads(&store, "new", &[bytes(3, CHUNK), bytes(4, CHUNK)].concat());
    store.unlink("new", Default::default()).unwrap();
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    assert_eq!((chunks(&fs), is_swept(&fs)), (2, true));
}

/// The chunks were gone, and the space that they took was not: nothing had the bucket compacted.
#[test]
fn space_of_chunks_that_are_swept_comes_back() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, one_bucket());
    write(&store, "file", &bytes(1, CHUNK));
    let left = fs.image().crash(CrashMode::KeepAll, 0);
    let lost = bucket(&left);
    for number in 0..256 {
        let chunk_key = key_layout::chunk(ContentId::new(1 << 40, 7), number);
        lost.put(&chunk_key, &bytes(2, CHUNK)).unwrap();
    }
    lost.close().unwrap();
    drop(lost);
    let bucket_bytes = || -> u64 {
        let dir = memory_dir().join("buckets/000-000001");
        let names = left.list(&dir).unwrap();
        names.iter().map(|name| left.open_read(&dir.join(name)).unwrap().len().unwrap()).sum()
    };
    let before = bucket_bytes();
    assert!(before >= 256 * CHUNK as u64);
    let store = reopen(&left).unwrap();
    store.reap().unwrap();
    assert!(bucket_bytes() < before / 2, "{} of {before} are left", bucket_bytes());
    assert_reads(&store, "file", &bytes(1, CHUNK));
}

/// More contents than are swept in one step, with those of files among them.
#[test]
fn all_chunks_are_swept_step_by_step() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, one_bucket());
    (0..20).for_each(|at| drop(write(&store, &format!("{at}"), &bytes(at, 10))));
    let left = fs.image().crash(CrashMode::KeepAll, 0);
    let lost = bucket(&left);
    for at in 0..2500_u64 {
        // Some come before those of files.
        let id = ContentId::new(if at % 2 == 0 { at } else { (1 << 40) + at }, at);
        lost.put(&key_layout::chunk(id, 3), b"lost").unwrap();
    }
    lost.close().unwrap();
    drop(lost);
    let store = reopen(&left).unwrap();
    store.reap().unwrap();
    (0..20).for_each(|at| assert_reads(&store, &format!("{at}"), &bytes(at, 10)));
    store.close().unwrap();
    drop(store);
    assert_eq!(chunk_count(&left, "buckets/000-000001"), 20);
}

/// The first bucket that had nothing freed kept all others from being swept, for as long as it failed.
#[test]
fn a_bucket_that_fails_keeps_no_other_from_being_swept() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, CreateOptions { bucket_count: 2, ..small() });
    for bucket in 0..2 {
        write(&store, &name_in(&store, bucket, 0), &bytes(1, CHUNK));
    }
    store.reap().unwrap();
    store.unlink(&name_in(&store, 0, 0), Default::default()).unwrap();
    let left = fs.image().crash(CrashMode::KeepAll, 0);
    let lost = key_layout::entry("lost", LOST_VERSION);
    let bucket = engine_store(&left, "buckets/001-000001");
    bucket.put(&lost, b"lost").unwrap();
    bucket.close().unwrap();
    drop(bucket);
    let faulty = FaultyFileSystem::new(Arc::new(left.clone()));
    let in_bucket_0 = |_: &str, path: &Path| path.starts_with("/files/buckets/000-000001");
    faulty.fail_at(0, Fault::errno(5).class(OperationClass::Reads).only(in_bucket_0).sticky());
    let options = OpenOptions::default();
    let store = FileStore::open_with(memory_dir(), options, inline(faulty)).unwrap();
    let reaped = store.reap();
    assert!(reaped.is_err(), "{reaped:?}");
    drop(store);
    assert!(engine_store(&left, "buckets/001-000001").head(&lost).unwrap().is_none());
}

/// A store with threads, on the machine's clock.
fn open_with_threads(fs: &MemoryFileSystem) -> FileStore {
    let clock = Arc::new(SystemClock::default());
    let resources = Resources::with(resource_options(), Arc::new(fs.clone()), clock).unwrap();
    FileStore::open_with(memory_dir(), OpenOptions::default(), resources).unwrap()
}

/// Waits until the store that is open on `fs` has been swept.
fn wait_until_swept(fs: &MemoryFileSystem) {
    let start = Instant::now();
    let has_lost = || {
        let bucket = bucket(&fs.image().crash(CrashMode::KeepAll, 0));
        entries(&bucket).iter().any(|(_, version)| *version == LOST_VERSION)
    };
    while has_lost() {
        assert!(start.elapsed() < Duration::from_secs(30), "lost entries stay");
        thread::sleep(Duration::from_millis(50));
    }
}

/// More entries than are swept in one step.
fn many_lost_names() -> impl Iterator<Item = String> {
    (0..2500).map(|at| format!("lost {at:04}"))
}

#[test]
fn the_thread_sweeps_after_an_unclean_end_and_nothing_that_is_written_meanwhile() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, one_bucket());
    write_at(&store, Durability::Sync, "before", b"before");
    let left = fs.image().crash(CrashMode::KeepAll, 0);
    put_lost_entries(&left, many_lost_names());
    let store = open_with_threads(&left);
    thread::scope(|scope| {
        for thread in 0..4 {
            let store = store.clone();
            scope.spawn(move || {
                for round in 0..200_u64 {
                    // The names of lost entries too.
                    let name = format!("lost {:04}", thread * 600 + round % 50);
                    write_at(&store, Durability::Os, &name, &bytes(round, 10));
                    store.copy(&name, &format!("{thread} {round}"), Default::default()).unwrap();
                    store.rename(&name, &format!("{thread}"), Default::default()).unwrap();
                }
            });
        }
    });
    wait_until_swept(&left);
    store.reap().unwrap();
    let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!((report.files, report.orphans, report.entries_restored), (805, 0, 0), "{report:?}");
    assert!(report.damage.is_empty(), "{report:?}");
}

/// Lost entries that are found by a verification, after `reap` if asked for.
fn found_by_verify(fs: &MemoryFileSystem, reaps: bool) -> u64 {
    let store = reopen(fs).unwrap();
    if reaps {
        store.reap().unwrap();
    }
    let found = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap().orphans;
    store.close().unwrap();
    found
}

#[test]
fn only_an_end_without_a_close_has_the_buckets_swept() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, one_bucket());
    write_at(&store, Durability::Sync, "file", b"file");
    let left = fs.image().crash(CrashMode::KeepAll, 0);
    let put_one = |fs| put_lost_entries(fs, std::iter::once("lost".to_owned()));
    store.close().unwrap();
    put_one(&fs);
    assert_eq!(found_by_verify(&fs, true), 1, "it was closed, so nobody looked");

    put_one(&left);
    assert_eq!(found_by_verify(&left, true), 0, "it was swept");
    put_one(&left);
    assert_eq!(found_by_verify(&left, true), 1, "it was closed after the sweep");

    // A close before the sweep proves nothing.
    let left = fs.image().crash(CrashMode::KeepAll, 0);
    let catalogue = engine_store(&left, "catalogue-000001");
    catalogue.delete(&[key_layout::SWEPT]).unwrap();
    catalogue.close().unwrap();
    put_one(&left);
    reopen(&left).unwrap().close().unwrap();
    assert_eq!(found_by_verify(&left, true), 0, "the sweep was left to the next opening");
    put_one(&left);
    assert_eq!(found_by_verify(&left, false), 1);
}

#[test]
fn a_bucket_that_was_lost_meanwhile_is_swept_when_it_is_back() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, one_bucket());
    write_at(&store, Durability::Sync, "file", b"file");
    let left = fs.image().crash(CrashMode::KeepAll, 0);
    put_lost_entries(&left, std::iter::once("lost".to_owned()));
    let dir = memory_dir().join("buckets/000-000001");
    let (current, away) = (dir.join("CURRENT"), dir.join("away"));
    left.rename(&current, &away).unwrap();
    let store = reopen(&left).unwrap();
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    left.rename(&away, &current).unwrap();
    assert_eq!(found_by_verify(&left, true), 0);
    assert_eq!(lost_entries(&left), []);
}

/// A version whose end is not on disk yet may be the current one after a power loss: its entry waits for
/// the reaper, which syncs the catalogue first. A verification took it for one that nobody knew.
#[test]
fn a_sweep_leaves_the_entry_of_a_version_that_a_power_loss_may_bring_back() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, one_bucket());
    let file = bytes(1, CHUNK);
    write_at(&store, Durability::Sync, "file", &file);
    // The note that its entry is due is worked off, and that is on disk.
    store.reap().unwrap();
    store.sync().unwrap();
    write_at(&store, Durability::Os, "file", &bytes(2, CHUNK));
    store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    // Its chunks are synced, and with them what was done in the bucket before.
    write_at(&store, Durability::Interval(100), "other", b"other");
    let left = fs.image().crash(CrashMode::LoseUnsynced, 0);
    let store = reopen(&left).unwrap();
    assert_reads(&store, "file", &file);
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    assert_reads(&make_anew(&left), "file", &file);
}

/// A bucket that was closed to make room for another counted as synced, though its last sync had failed.
#[test]
fn a_bucket_that_could_not_be_synced_when_it_was_to_be_closed_is_not_said_to_be() {
    let fires = |ordinal, closes: bool| {
        let memory = MemoryFileSystem::new();
        let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
        let options = OpenOptions { open_buckets_max: 1, ..OpenOptions::default() };
        let resources = inline(fs.clone());
        let store = FileStore::create_with(memory_dir(), small(), options, resources).unwrap();
        let mut names = (0..).map(|number: u32| number.to_string());
        let other = names.find(|name| store.bucket_of(name) != store.bucket_of("file")).unwrap();
        write_at(&store, Durability::Sync, &other, b"other");
        let file = bytes(1, CHUNK + 1);
        write_at(&store, Durability::Os, "file", &file);
        let (error, class) = (FaultError::Errno(5), OperationClass::Syncs);
        let fault =
            Fault { error, sticky: true, short_write: false, class, delay: None, only: None };
        fs.fail_at(fs.operation_count() + ordinal, fault);
        // Opens the other's bucket, and closes the file's.
        let is_opened = store.read(&other).is_ok();
        let fired = fs.fired();
        fs.clear();
        let is_synced = if closes { store.close().is_ok() } else { store.sync().is_ok() };
        let left = reopen(&memory.image().crash(CrashMode::LoseUnsynced, 0)).unwrap();
        if is_synced {
            assert_reads(&left, "file", &file);
        }
        is_opened && fired > 0
    };
    for closes in [false, true] {
        assert!((1..100).filter(|&ordinal| fires(ordinal, closes)).count() > 0);
    }
}

/// Who asked again was told that the file was gone, though the sync that this waited for had failed, or was still to
/// come: after a power loss it was there.
#[test]
fn a_name_that_is_gone_is_told_when_that_is_durable() {
    let memory = MemoryFileSystem::new();
    let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
    let options = OpenOptions { durability: Durability::Sync, ..OpenOptions::default() };
    let store =
        FileStore::create_with(memory_dir(), one_bucket(), options, inline(fs.clone())).unwrap();
    let is_gone = || {
        let left = reopen(&memory.image().crash(CrashMode::LoseUnsynced, 0)).unwrap();
        left.stat("file").unwrap().is_none()
    };
    let unlink = |durability| {
        let options = UnlinkOptions { durability, ..UnlinkOptions::default() };
        store.unlink("file", options)
    };
    // As while another waits for its sync.
    write(&store, "file", b"bytes");
    assert!(unlink(Some(Durability::Os)).unwrap() && !is_gone());
    assert!(!unlink(None).unwrap() && is_gone());

    write(&store, "file", b"bytes");
    fs.fail_at(0, Fault::errno(28).class(OperationClass::Syncs).sticky());
    assert!(unlink(None).is_err() && store.stat("file").unwrap().is_none() && !is_gone());
    assert!(unlink(None).is_err());
}

/// A name that was given to what has it was acknowledged at `Sync` with nothing synced but the bytes: after a power
/// loss it was gone.
#[test]
fn a_name_that_stays_is_told_when_it_is_durable() {
    type Give = fn(&FileStore) -> Result<Stat, Error>;
    let gives: [Give; 2] = [
        |store| store.copy("file", "file", copy_at_sync()),
        |store| store.rename("file", "file", copy_at_sync()),
    ];
    for give in gives {
        let memory = MemoryFileSystem::new();
        let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
        let options = OpenOptions { durability: Durability::Sync, ..OpenOptions::default() };
        let store = FileStore::create_with(memory_dir(), one_bucket(), options, inline(fs.clone()))
            .unwrap();
        let is_there = || {
            let left = reopen(&memory.image().crash(CrashMode::LoseUnsynced, 0)).unwrap();
            left.stat("file").unwrap().is_some()
        };
        // As while another waits for its sync.
        write_at(&store, Durability::Os, "file", b"bytes");
        assert!(!is_there());
        let of_catalogue = |_: &str, path: &Path| path.starts_with("/files/catalogue-000001");
        let stat = give(&store).unwrap();
        assert_eq!(Some(stat), store.stat("file").unwrap());
        assert!(is_there());
        store.unlink("file", UnlinkOptions::default()).unwrap();
        write_at(&store, Durability::Os, "file", b"bytes");
        fs.fail_at(0, Fault::errno(28).class(OperationClass::Syncs).only(of_catalogue).sticky());
        assert!(give(&store).is_err() && !is_there());
    }
}

/// What a file was made of is told by another name, which goes in the step that makes it.
#[test]
fn a_name_is_given_and_another_unlinked_in_one_step() {
    let unlinks = || Some("note".to_owned());
    type Ask = fn(&FileStore, Option<String>) -> Result<Stat, Error>;
    let asks: [Ask; 2] = [
        |store, unlinks| {
            store.write("file", b"bytes", WriteOptions { unlinks, ..Default::default() })
        },
        |store, unlinks| store.rename("part", "file", CopyOptions { unlinks, ..copy_at_sync() }),
    ];
    for ask in asks {
        let fs = MemoryFileSystem::new();
        let store = in_memory_at(Durability::Sync, &fs, one_bucket());
        write(&store, "note", b"of the upload");
        write(&store, "part", b"bytes");
        let same = ask(&store, Some("file".to_owned()));
        assert!(matches!(same, Err(Error::InvalidArgument(_))), "{same:?}");
        let left = losses(&fs, || drop(ask(&store, unlinks()).unwrap()));
        let mut seen = [0; 2];
        for left in left {
            let left = reopen(&left).unwrap();
            let [file, note] = ["file", "note"].map(|name| left.stat(name).unwrap().is_some());
            assert!(file != note, "{file} {note}");
            seen[usize::from(file)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
        // One that isn't there is no matter.
        write(&store, "part", b"bytes");
        ask(&store, unlinks()).unwrap();
        store.reap().unwrap();
        let files = store.list(Default::default()).unwrap().entries.len() as u64;
        let totals = store.totals();
        assert_eq!((totals.files, totals.dead_bytes), (files, 0));
        assert_eq!(totals.live_bytes, files * 5);
        assert_reads(&store, "file", b"bytes");
    }
}
