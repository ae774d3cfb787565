//! One bucket, or copy of the description, that fails, has no room, or is lost, and what the others do
//! meanwhile.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tallybook::vfs::faulty::{Fault, FaultyFileSystem, OperationClass};
use tallybook::vfs::{CrashMode, FileSystem, ManualClock, MemoryFileSystem, SystemClock};
use tallybook::{ResourceOptions, Resources};
use tallybook_files::record::ContentId;
use tallybook_files::{
    CopyOptions, CreateOptions, Durability, Error, FileStore, OpenOptions, RepairOptions,
    RepairReport, UnlinkOptions, VerifyOptions, WriteOptions, key_layout, resource_options,
};

use crate::support::{
    CHUNK, assert_reads, bytes, engine_store, in_memory, inline, lose_catalogue, memory_dir,
    reopen, small, write,
};

const EIO: i32 = 5;

pub(crate) fn two_buckets() -> CreateOptions {
    CreateOptions { bucket_count: 2, ..small() }
}

/// A store whose calls of the system can be made to fail.
fn with_faults(create: CreateOptions) -> (MemoryFileSystem, FaultyFileSystem, FileStore) {
    let memory = MemoryFileSystem::new();
    let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
    let (options, resources) = (OpenOptions::default(), inline(fs.clone()));
    let store = FileStore::create_with(memory_dir(), create, options, resources).unwrap();
    (memory, fs, store)
}

/// A name whose bucket is this one.
pub(crate) fn name_in(store: &FileStore, bucket: u8, which: usize) -> String {
    let mut names = (0..).map(|number| format!("name {number}"));
    names.by_ref().filter(|name| store.bucket_of(name) == bucket).nth(which).unwrap()
}

pub(crate) fn in_bucket_0(_: &str, path: &Path) -> bool {
    path.starts_with("/files/buckets/000-000001")
}

pub(crate) fn in_journal_of_bucket_0(operation: &str, path: &Path) -> bool {
    in_bucket_0(operation, path) && path.extension().is_some_and(|extension| extension == "journal")
}

/// Whether the current version of a file has its entry in the first bucket.
fn has_entry(memory: &MemoryFileSystem, store: &FileStore, name: &str) -> bool {
    let image = memory.image().crash(CrashMode::KeepAll, 0);
    image.set_capacity(None);
    let version = store.stat(name).unwrap().unwrap().version;
    let entry = key_layout::entry(name, version);
    engine_store(&image, "buckets/000-000001").head(&entry).unwrap().is_some()
}

pub(crate) fn chunk_count(fs: &MemoryFileSystem, bucket: &str) -> usize {
    let prefix = Some(vec![key_layout::CHUNK].into());
    let options = tallybook::ScanOptions { prefix, ..Default::default() };
    engine_store(fs, bucket).range_heads(options).unwrap().count()
}

/// The first bucket that failed ended each pass: nothing came back anywhere, and writers of sound buckets were
/// told of a disk that they have nothing to do with.
#[test]
fn a_bucket_that_fails_keeps_only_its_own_space() {
    let cap = 4 * CHUNK as u64;
    let (_, fs, store) = with_faults(CreateOptions { bucket_cap_bytes: cap, ..two_buckets() });
    let (failing, sound) = (name_in(&store, 0, 0), name_in(&store, 1, 0));
    write(&store, &failing, &bytes(1, 4 * CHUNK));
    write(&store, &sound, &bytes(2, 4 * CHUNK));
    store.unlink(&failing, UnlinkOptions::default()).unwrap();
    store.unlink(&sound, UnlinkOptions::default()).unwrap();
    let syncs = Fault::errno(EIO).class(OperationClass::Syncs).only(in_journal_of_bucket_0);
    fs.fail_at(0, syncs.sticky());
    let reaped = store.reap();
    assert!(reaped.is_err(), "{reaped:?}");
    let dead: Vec<u64> = store.totals().buckets.iter().map(|bucket| bucket.dead_bytes).collect();
    assert_eq!(dead, [cap, 0]);
    // The other bucket has no room but what is freed for it.
    let other = name_in(&store, 1, 1);
    write(&store, &other, &bytes(3, 3 * CHUNK));
    write(&store, &sound, &bytes(4, CHUNK));
    store.unlink(&other, UnlinkOptions::default()).unwrap();
    let again = name_in(&store, 1, 2);
    write(&store, &again, &bytes(5, 3 * CHUNK));
    assert_reads(&store, &again, &bytes(5, 3 * CHUNK));
    assert_reads(&store, &sound, &bytes(4, CHUNK));
}

/// The entry before was removed though the one that replaces it had found no room. With a lost catalogue the
/// file was gone, and its chunks with it.
#[test]
fn an_entry_stays_until_the_one_after_it_has_found_room() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, CreateOptions { bucket_count: 1, ..small() });
    let file = bytes(1, CHUNK);
    write(&store, "file", &file);
    store.reap().unwrap();
    // No file grows. The catalogue has room in its segment, and a deletion is let use the reserve.
    memory.set_capacity(Some(0));
    let mut large = 0;
    // Until what the segment has left is used up.
    while has_entry(&memory, &store, "file") {
        large += 1;
        let attributes = Some(bytes(large, 60_000).into());
        let options = CopyOptions { attributes, ..CopyOptions::default() };
        store.copy("file", "file", options).unwrap();
        assert!(large < 1_000);
    }
    let reaped = store.reap();
    assert!(matches!(&reaped, Err(error) if error.to_string().contains("space")), "{reaped:?}");
    let image = memory.image().crash(CrashMode::KeepAll, 0);
    image.set_capacity(None);
    lose_catalogue(&image);
    FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(image.clone())).unwrap();
    assert_reads(&reopen(&image).unwrap(), "file", &file);
}

/// The note that the entry before may go names another file, where it was renamed.
#[test]
fn an_entry_of_a_name_before_stays_until_the_new_one_has_found_room() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, CreateOptions { bucket_count: 1, ..small() });
    let file = bytes(1, CHUNK);
    write(&store, "name 0", &file);
    store.reap().unwrap();
    memory.set_capacity(Some(0));
    let mut renamed = 0;
    let name = |number: u64| format!("name {number}");
    while has_entry(&memory, &store, &name(renamed)) {
        renamed += 1;
        let attributes = Some(bytes(renamed, 60_000).into());
        let options = CopyOptions { attributes, ..CopyOptions::default() };
        store.rename(&name(renamed - 1), &name(renamed), options).unwrap();
        assert!(renamed < 1_000);
    }
    assert!(store.reap().is_err());
    let image = memory.image().crash(CrashMode::KeepAll, 0);
    image.set_capacity(None);
    lose_catalogue(&image);
    FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(image.clone())).unwrap();
    let store = reopen(&image).unwrap();
    let listed = store.list(Default::default()).unwrap().entries;
    assert!(!listed.is_empty(), "it is nowhere");
    assert!(
        (0..=renamed)
            .any(|number| store.read(&name(number)).is_ok_and(|read| read.as_ref() == Some(&file)))
    );
}

/// What a disk could not read ended the verification: files behind it were never looked at, and a repair
/// failed.
#[test]
fn what_the_disk_can_not_read_is_reported_and_the_rest_verified() {
    let (memory, fs, store) = with_faults(two_buckets());
    let (unread, behind) = (name_in(&store, 0, 0), name_in(&store, 1, 0));
    for name in [&unread, &behind] {
        write(&store, name, &bytes(1, 2 * CHUNK));
    }
    store.close().unwrap();
    drop(store);
    let open = |fs: FaultyFileSystem| {
        FileStore::open_with(memory_dir(), OpenOptions::default(), inline(fs)).unwrap()
    };
    let store = open(fs.clone());
    // Opened before.
    store.reader(&unread, Default::default()).unwrap().unwrap().next_chunk().unwrap();
    let reads = Fault::errno(EIO).class(OperationClass::Reads).only(|operation, path| {
        operation.starts_with("read_") && in_journal_of_bucket_0(operation, path)
    });
    fs.fail_at(0, reads.sticky());
    let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!(report.files, 2);
    let found = report.damage.iter().map(|damage| (&*damage.name, damage.is_unread));
    assert_eq!(found.collect::<Vec<_>>(), [(&*unread, true)]);
    // It may have been the cable.
    fs.clear();
    assert_reads(&store, &unread, &bytes(1, 2 * CHUNK));
    drop((store, memory));
}

/// A repair that was to unlink what is damaged would have unlinked what one read did not give.
#[test]
fn a_read_that_fails_once_costs_no_file() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, two_buckets());
    let name = name_in(&store, 0, 0);
    write(&store, &name, &bytes(1, 3 * CHUNK));
    store.close().unwrap();
    drop(store);
    let mut unread = 0;
    for ordinal in 1.. {
        let left = memory.image().crash(CrashMode::KeepAll, 0);
        let fs = FaultyFileSystem::new(Arc::new(left.clone()));
        fs.fail_at(ordinal, Fault::errno(EIO).class(OperationClass::Reads));
        let options = RepairOptions { unlink_damaged: true };
        let repaired = FileStore::repair_with(memory_dir(), options, inline(fs.clone()));
        let fired = fs.fired();
        let is_unread = |report: RepairReport| report.verified.damage.iter().any(|of| of.is_unread);
        unread += u32::from(repaired.is_ok_and(is_unread));
        assert_reads(&reopen(&left).unwrap(), &name, &bytes(1, 3 * CHUNK));
        if fired == 0 {
            break;
        }
    }
    assert!(unread > 0);
}

#[test]
fn a_name_given_at_interval_has_its_bytes_whenever_the_power_goes() {
    let memory = MemoryFileSystem::new();
    let options = OpenOptions { durability: Durability::Os, ..OpenOptions::default() };
    let resources = inline(memory.clone());
    let store = FileStore::create_with(memory_dir(), two_buckets(), options, resources).unwrap();
    let at = |durability| WriteOptions { durability: Some(durability), ..Default::default() };
    let (source, target) = (name_in(&store, 0, 0), name_in(&store, 0, 1));
    let (old, new) = (bytes(1, CHUNK), bytes(2, 2 * CHUNK));
    store.write(&target, &old, at(Durability::Sync)).unwrap();
    store.write(&source, &new, at(Durability::Os)).unwrap();
    let durability = Some(Durability::Interval(100));
    store.copy(&source, &target, CopyOptions { durability, ..Default::default() }).unwrap();
    // Whoever syncs the catalogue.
    store.write(&name_in(&store, 1, 0), b"other", at(Durability::Sync)).unwrap();
    let left = reopen(&memory.image().crash(CrashMode::LoseUnsynced, 0)).unwrap();
    let read = left.read(&target).unwrap_or_else(|error| panic!("{error}")).unwrap();
    assert!(read == old || read == new);
}

/// A bucket of whose tree a part is damaged ended the verification, and what it had found was lost.
#[test]
fn a_bucket_that_can_not_be_read_through_is_named_and_the_rest_verified() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, two_buckets());
    for number in 0..40 {
        write(&store, &name_in(&store, 0, number), b"file");
    }
    write(&store, &name_in(&store, 1, 0), b"file");
    store.close().unwrap();
    drop(store);
    let bucket = engine_store(&memory, "buckets/000-000001");
    bucket.flush().unwrap();
    bucket.close().unwrap();
    drop(bucket);
    let dir = memory_dir().join("buckets/000-000001");
    let names = memory.list(&dir).unwrap();
    let table = names.iter().find(|name| name.ends_with(".sst")).unwrap();
    let table = memory.open(&dir.join(table)).unwrap();
    table.write_all_at(&[0xa5; 64], 100).unwrap();
    let store = reopen(&memory).unwrap();
    let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!((report.files, &report.unread_buckets[..]), (41, &[0][..]));
    assert!(report.damage.len() >= 40, "{}", report.damage.len());
}

/// One read that failed had a catalogue made anew, in which names of a lost bucket are missing.
#[test]
fn a_catalogue_that_is_read_the_second_time_is_not_lost() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, two_buckets());
    write(&store, "file", b"file");
    store.close().unwrap();
    drop(store);
    let repair = |fs: &FaultyFileSystem| {
        FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone())).unwrap()
    };
    let of_catalogue = |operation: &str, path: &Path| {
        operation.starts_with("read_")
            && path.starts_with("/files/catalogue-000001")
            && path.extension().is_some_and(|extension| extension == "sst")
    };
    let fs = FaultyFileSystem::new(Arc::new(memory.image().crash(CrashMode::KeepAll, 0)));
    fs.fail_at(0, Fault::errno(EIO).class(OperationClass::Reads).only(of_catalogue));
    assert_eq!(repair(&fs).old_catalogue, None);
    let fs = FaultyFileSystem::new(Arc::new(memory.image().crash(CrashMode::KeepAll, 0)));
    assert_eq!((repair(&fs).old_catalogue, fs.fired()), (None, 0));
}

/// One call that failed had a catalogue made anew in which names of a bucket are missing, though it could be read.
#[test]
fn an_entry_whose_table_opens_the_second_time_is_taken_over() {
    const TIMED_OUT: i32 = 110;
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, CreateOptions { bucket_count: 1, ..small() });
    // Some blocks full: who opens the bucket reads the first.
    let names: Vec<String> = (0..200).map(|number| format!("name {number}")).collect();
    for name in &names {
        write(&store, name, b"file");
    }
    store.close().unwrap();
    drop(store);
    lose_catalogue(&memory);
    let opens_table = |operation: &str, path: &Path| {
        operation == "open_read"
            && in_bucket_0(operation, path)
            && path.extension().is_some_and(|extension| extension == "sst")
    };
    let (mut ordinal, mut repaired) = (0, 0);
    loop {
        let left = memory.image().crash(CrashMode::KeepAll, 0);
        let fs = FaultyFileSystem::new(Arc::new(left.clone()));
        fs.fail_at(ordinal, Fault::errno(TIMED_OUT).only(opens_table));
        let no_handles = ResourceOptions { file_handles_max: 0, ..resource_options() };
        let clock = Arc::new(ManualClock::at_ms(1_000_000));
        let resources = Resources::inline(no_handles, Arc::new(fs.clone()), clock);
        let report = FileStore::repair_with(memory_dir(), RepairOptions::default(), resources);
        let Some(fired) = fs.last_fired() else { break };
        ordinal = fired.ordinal + 1;
        // Where the bucket itself does not open, nothing is made.
        let Ok(report) = report else { continue };
        repaired += 1;
        assert!(report.old_catalogue.is_some());
        assert_eq!(report.unread_buckets, [] as [u8; 0], "{fired:?}");
        let store = reopen(&left).unwrap();
        assert!(names.iter().all(|name| store.stat(name).unwrap().is_some()));
    }
    assert!(repaired > 0);
}

/// The chunks in the buckets that were there were removed, and the file came back without them.
#[test]
fn a_content_is_freed_when_all_of_its_buckets_are_there() {
    let cap = 4 * CHUNK as u64;
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, CreateOptions { bucket_cap_bytes: cap, ..two_buckets() });
    let name = name_in(&store, 0, 0);
    let file = bytes(1, 6 * CHUNK);
    write(&store, &name, &file);
    store.unlink(&name, UnlinkOptions::default()).unwrap();
    let left = memory.image().crash(CrashMode::KeepAll, 0);
    let dir = memory_dir().join("buckets/000-000001");
    left.rename(&dir.join("CURRENT"), &dir.join("away")).unwrap();
    let store = reopen(&left).unwrap();
    for _ in 0..2 {
        let reaped = store.reap().unwrap();
        assert_eq!((reaped.contents, reaped.waiting), (0, 1));
    }
    store.close().unwrap();
    drop(store);
    assert_eq!(chunk_count(&left.image().crash(CrashMode::KeepAll, 0), "buckets/001-000001"), 2);
    left.rename(&dir.join("away"), &dir.join("CURRENT")).unwrap();
    lose_catalogue(&left);
    let repaired =
        FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(left.clone()));
    assert_eq!(repaired.unwrap().verified.damage, []);
    assert_reads(&reopen(&left).unwrap(), &name, &file);
}

/// It waited until somebody unlinked something.
#[test]
fn an_entry_that_found_no_room_is_put_once_there_is_some() {
    let memory = MemoryFileSystem::new();
    let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
    let clock = Arc::new(SystemClock::default());
    let resources = Resources::with(resource_options(), Arc::new(fs.clone()), clock).unwrap();
    let create = CreateOptions { bucket_count: 1, ..small() };
    let options = OpenOptions::default();
    let store = FileStore::create_with(memory_dir(), create, options, resources).unwrap();
    write(&store, "file", b"bytes");
    store.reap().unwrap();
    // By now the thread waits for somebody to call it.
    std::thread::sleep(Duration::from_millis(1500));
    fs.fail_at(
        0,
        Fault::errno(28).class(OperationClass::Writes).only(in_journal_of_bucket_0).sticky(),
    );
    let attributes = Some(bytes(1, 60_000).into());
    store.copy("file", "copy", CopyOptions { attributes, ..Default::default() }).unwrap();
    let has_entry = || has_entry(&memory, &store, "copy");
    assert!(fs.fired() > 0 && !has_entry());
    std::thread::sleep(Duration::from_millis(500));
    fs.clear();
    let start = Instant::now();
    while !has_entry() {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody put it");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The first bucket's note named only that one, and kept the others' chunks from being found.
#[test]
fn chunks_that_nobody_knows_go_from_all_buckets() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, two_buckets());
    for bucket in 0..2 {
        write(&store, &name_in(&store, bucket, 0), b"file");
    }
    store.close().unwrap();
    drop(store);
    let buckets = ["buckets/000-000001", "buckets/001-000001"];
    for bucket in buckets {
        let bucket = engine_store(&memory, bucket);
        bucket.put(&key_layout::chunk(ContentId::new(1 << 40, 7), 0), b"chunk").unwrap();
        bucket.close().unwrap();
    }
    let store = reopen(&memory).unwrap();
    let orphans = || store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap().orphans;
    assert_eq!(orphans(), 2);
    store.reap().unwrap();
    assert_eq!(orphans(), 0);
    store.close().unwrap();
    drop(store);
    assert_eq!(buckets.map(|bucket| chunk_count(&memory, bucket)), [1, 1]);
}

/// It opened its bucket again, which then answered the store that was opened after it that it is locked.
#[test]
fn a_reader_that_outlives_its_store_opens_nothing() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, two_buckets());
    let name = name_in(&store, 0, 0);
    write(&store, &name, &bytes(1, 3 * CHUNK));
    let mut reader = store.reader(&name, Default::default()).unwrap().unwrap();
    reader.next_chunk().unwrap();
    store.close().unwrap();
    let read = reader.next_chunk();
    assert!(matches!(read, Err(Error::InvalidArgument(_))), "{read:?}");
    let next = reopen(&memory).unwrap();
    write(&next, &name, b"anew");
    assert_reads(&next, &name, b"anew");
}

/// A copy that the disk can't read kept the store from being opened and repaired, whatever the other one was.
#[test]
fn a_copy_of_the_description_that_can_not_be_read_keeps_nothing_shut() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, two_buckets());
    write(&store, "file", b"bytes");
    store.close().unwrap();
    drop(store);
    let of: [fn(&str, &Path) -> bool; 3] = [
        |_, path| path.ends_with("STORE.copy"),
        |_, path| path.ends_with("STORE"),
        |_, path| path.ends_with("STORE") || path.ends_with("STORE.copy"),
    ];
    let image = memory.image();
    for (at, only) in of.into_iter().enumerate() {
        let fs = FaultyFileSystem::new(Arc::new(image.crash(CrashMode::KeepAll, 0)));
        let open =
            || FileStore::open_with(memory_dir(), OpenOptions::default(), inline(fs.clone()));
        fs.fail_at(0, Fault::errno(EIO).class(OperationClass::Reads).only(only).sticky());
        let opened = open();
        if at == 2 {
            assert!(
                matches!(&opened, Err(Error::Engine(tallybook::Error::Io { .. }))),
                "{opened:?}"
            );
            continue;
        }
        let store = opened.unwrap();
        assert_eq!(store.description_problems().len(), 1);
        assert_reads(&store, "file", b"bytes");
        drop(store);
        FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone())).unwrap();
        fs.clear();
        assert_reads(&open().unwrap(), "file", b"bytes");
    }
}

/// A bucket that has no room, or whose sync has failed, ended the verification: damage that had been found, and
/// all that was behind, was told to nobody.
#[test]
fn what_can_not_be_written_ends_no_verification() {
    for errno in [28, EIO] {
        let (memory, fs, store) = with_faults(two_buckets());
        let (entryless, torn) = (name_in(&store, 0, 0), name_in(&store, 1, 0));
        let attributes = bytes(1, 60_000).into();
        store
            .write(&entryless, b"file", WriteOptions { attributes, ..Default::default() })
            .unwrap();
        write(&store, &torn, &bytes(2, 2 * CHUNK));
        let version = store.stat(&entryless).unwrap().unwrap().version;
        store.reap().unwrap();
        store.close().unwrap();
        drop(store);
        let bucket = engine_store(&memory, "buckets/000-000001");
        bucket.delete(&key_layout::entry(&entryless, version)).unwrap();
        bucket.put(&key_layout::chunk(ContentId::new(1 << 40, 7), 0), b"nobody's").unwrap();
        bucket.close().unwrap();
        drop(bucket);
        lose_first_chunk(&memory, "buckets/001-000001");
        let open = || {
            FileStore::open_with(memory_dir(), OpenOptions::default(), inline(fs.clone())).unwrap()
        };
        let store = open();
        let fault = Fault::errno(errno).only(in_journal_of_bucket_0).sticky();
        if errno == EIO {
            fs.fail_at(0, fault.class(OperationClass::Syncs));
            let durability = Some(Durability::Sync);
            let options = WriteOptions { durability, ..Default::default() };
            assert!(store.write(&name_in(&store, 0, 1), b"file", options).is_err());
        } else {
            fs.fail_at(0, fault.class(OperationClass::Writes));
        }
        let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
        let damaged: Vec<&str> = report.damage.iter().map(|damage| &*damage.name).collect();
        assert_eq!((damaged, report.unwritten > 0), (vec![&*torn], true), "{errno}: {report:?}");
        assert_eq!((report.entries_restored, report.is_complete), (0, true), "{errno}");
        if errno == EIO {
            assert_eq!(report.unread_buckets, [0]);
        }
        fs.clear();
        drop(store);
        let store = open();
        let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
        assert_eq!((report.entries_restored, report.unwritten), (1, 0), "{errno}: {report:?}");
    }
}

/// After a kill a sync opens what may not be synced. The first bucket that it could not open ended it: what was
/// written to all others, and the catalogue, stayed unsynced for as long as that one failed.
#[test]
fn a_bucket_that_can_not_be_opened_keeps_no_other_from_being_synced() {
    let memory = MemoryFileSystem::new();
    let options = OpenOptions { durability: Durability::Os, ..OpenOptions::default() };
    let resources = inline(memory.clone());
    let store = FileStore::create_with(memory_dir(), two_buckets(), options, resources).unwrap();
    for bucket in 0..2 {
        write(&store, &name_in(&store, bucket, 0), &bytes(1, CHUNK));
    }
    store.sync().unwrap();
    let left = memory.image().crash(CrashMode::KeepAll, 0);
    let fs = FaultyFileSystem::new(Arc::new(left.clone()));
    fs.fail_at(0, Fault::errno(EIO).class(OperationClass::Reads).only(in_bucket_0).sticky());
    let options = OpenOptions { durability: Durability::Os, ..OpenOptions::default() };
    let store = FileStore::open_with(memory_dir(), options, inline(fs.clone())).unwrap();
    let name = name_in(&store, 1, 1);
    write(&store, &name, &bytes(2, CHUNK));
    let synced = store.sync();
    let is_told = matches!(&synced, Err(error) if error.to_string().contains("000-000001"));
    assert!(is_told, "{synced:?}");
    let after = reopen(&left.image().crash(CrashMode::LoseUnsynced, 0)).unwrap();
    assert_reads(&after, &name, &bytes(2, CHUNK));
    fs.clear();
    store.sync().unwrap();
}

/// Has the first chunk of a bucket be missing.
fn lose_first_chunk(fs: &MemoryFileSystem, bucket: &str) {
    let bucket = engine_store(fs, bucket);
    let prefix = Some(vec![key_layout::CHUNK].into());
    let options = tallybook::ScanOptions { prefix, ..Default::default() };
    let first = bucket.range_heads(options).unwrap().next().unwrap().unwrap().key;
    bucket.delete(&first).unwrap();
    bucket.close().unwrap();
}

/// Moves all files of a directory to another.
pub(crate) fn move_files(fs: &MemoryFileSystem, from: &Path, to: &Path) {
    fs.create_dir_all(to).unwrap();
    for name in fs.list(from).unwrap() {
        fs.rename(&from.join(&name), &to.join(&name)).unwrap();
    }
}

fn repair(fs: &MemoryFileSystem) -> tallybook_files::Result<RepairReport> {
    FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()))
}

/// It was taken for one never made. When its disk was there again, the first write opened it, and the next
/// verification removed the chunks of all its files, which the catalogue had never heard of.
#[test]
fn a_bucket_that_was_away_when_the_catalogue_was_made_anew_is_left_alone() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, small());
    let (kept, away) = (name_in(&store, 0, 0), name_in(&store, 1, 0));
    for name in [&kept, &away] {
        write(&store, name, &bytes(1, 3 * CHUNK));
    }
    let next = name_in(&store, 1, 1);
    store.close().unwrap();
    drop(store);
    let (dir, elsewhere) = (memory_dir().join("buckets/001-000001"), Path::new("/elsewhere"));
    move_files(&memory, &dir, elsewhere);
    lose_catalogue(&memory);
    let report = repair(&memory).unwrap();
    assert_eq!((&report.absent_buckets[..], &report.old_buckets[..]), (&[1, 2, 3][..], &[][..]));
    move_files(&memory, elsewhere, &dir);
    let store = reopen(&memory).unwrap();
    write(&store, &next, b"next");
    store.reap().unwrap();
    store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    store.reap().unwrap();
    assert_reads(&store, &kept, &bytes(1, 3 * CHUNK));
    assert_reads(&store, &next, b"next");
    assert_eq!(store.read(&away).unwrap(), None);
    store.close().unwrap();
    drop(store);
    assert_eq!(chunk_count(&memory, "buckets/001-000001"), 3);
}

/// A store of two buckets with many names in the first, and one file among them that goes on in the second; the
/// names, in order, and which of them that file is. Its catalogue is lost.
fn with_many_entries() -> (MemoryFileSystem, Vec<String>, usize) {
    let memory = MemoryFileSystem::new();
    let cap = 8 * CHUNK as u64;
    let store = in_memory(&memory, CreateOptions { bucket_cap_bytes: cap, ..two_buckets() });
    let mut names: Vec<String> = (0..500).map(|number| name_in(&store, 0, number)).collect();
    let spilled = (0..).map(|number| format!("name 5{number} spilled"));
    names.extend(spilled.filter(|name| store.bucket_of(name) == 0).take(1));
    names.sort();
    for name in names.iter().filter(|name| !name.ends_with("spilled")) {
        write(&store, name, name.as_bytes());
    }
    let at = names.iter().position(|name| name.ends_with("spilled")).unwrap();
    write(&store, &names[at], &bytes(1, 10 * CHUNK));
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    let bucket = engine_store(&memory, "buckets/000-000001");
    bucket.compact(None, None, &mut |_, _| {}).unwrap();
    bucket.close().unwrap();
    drop(bucket);
    lose_catalogue(&memory);
    (memory, names, at)
}

/// The table of the first bucket, and where in it the entry of the file is that goes on in the second.
fn spilled_entry(memory: &MemoryFileSystem) -> (PathBuf, u64) {
    let dir = memory_dir().join("buckets/000-000001");
    for name in memory.list(&dir).unwrap().iter().filter(|name| name.ends_with(".sst")) {
        let table = memory.open_read(&dir.join(name)).unwrap();
        let mut contents = vec![0; table.len().unwrap() as usize];
        table.read_exact_at(&mut contents, 0).unwrap();
        let needle = b" spilled";
        let found = contents.windows(needle.len()).position(|window| window == needle);
        if let Some(at) = found {
            return (dir.join(name), at as u64);
        }
    }
    panic!("the entry is in no table");
}

/// Behind a damaged block all entries were left out; that was called no damage, and what the files had in other
/// buckets was removed.
#[test]
fn entries_behind_a_damaged_block_are_taken_over_and_chunks_stay() {
    let (memory, names, spilled) = with_many_entries();
    let (path, at) = spilled_entry(&memory);
    let table = memory.open(&path).unwrap();
    let mut sound = [0; 4];
    table.read_exact_at(&mut sound, at).unwrap();
    table.write_all_at(&sound.map(|byte| !byte), at).unwrap();
    for _ in 0..2 {
        let report = repair(&memory).unwrap();
        assert_eq!(report.verified.unread_buckets, [0]);
        assert_eq!(report.verified.damage, []);
        let store = reopen(&memory).unwrap();
        store.reap().unwrap();
        let read = |name: &String| store.read(name).unwrap().is_some();
        let missing: Vec<&String> = names.iter().filter(|name| !read(name)).collect();
        assert!(missing.contains(&&names[spilled]) && missing.len() < 100, "{missing:?}");
        let first = names.iter().position(|name| name == missing[0]).unwrap();
        assert!(missing.iter().copied().eq(&names[first..first + missing.len()]), "{missing:?}");
        let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
        assert_eq!(report.unread_buckets, [0]);
        // As an unclean end has it, too.
        let left = memory.image().crash(CrashMode::KeepAll, 0);
        let store = reopen(&left).unwrap();
        store.reap().unwrap();
        store.close().unwrap();
        drop(store);
        assert_eq!(chunk_count(&left, "buckets/001-000001"), 3);
    }
    // What can be read again is taken over; what can't is given up only if asked for.
    let given_up = memory.image().crash(CrashMode::KeepAll, 0);
    let options = RepairOptions { unlink_damaged: true };
    FileStore::repair_with(memory_dir(), options, inline(given_up.clone())).unwrap();
    assert_eq!(chunk_count(&given_up, "buckets/001-000001"), 0);
    table.write_all_at(&sound, at).unwrap();
    let report = repair(&memory).unwrap();
    assert_eq!((&report.unread_buckets[..], report.verified.files), (&[][..], 501));
    assert_eq!((report.old_catalogue, &report.verified.unknown_buckets[..]), (None, &[][..]));
    let store = reopen(&memory).unwrap();
    assert_reads(&store, &names[spilled], &bytes(1, 10 * CHUNK));
    assert!(names.iter().all(|name| store.read(name).unwrap().is_some()));
    store.close().unwrap();
    drop(store);
    assert_eq!(repair(&memory).unwrap().old_catalogue, None);
}

/// One sector that the disk could not read had every repair fail, and so kept all buckets from being opened.
#[test]
fn a_table_that_the_disk_can_not_read_keeps_no_other_bucket_shut() {
    let (memory, names, spilled) = with_many_entries();
    let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
    let reads = Fault::errno(EIO).class(OperationClass::Reads).only(|operation, path| {
        operation.starts_with("read_")
            && in_bucket_0(operation, path)
            && path.extension().is_some_and(|extension| extension == "sst")
    });
    fs.fail_at(0, reads.sticky());
    let repair_with_faults =
        || FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
    for _ in 0..2 {
        let report = repair_with_faults().unwrap();
        assert_eq!(report.verified.unread_buckets, [0]);
        assert_eq!(report.old_buckets, []);
    }
    let store = FileStore::open_with(memory_dir(), OpenOptions::default(), inline(fs.clone()));
    let store = store.unwrap();
    let other = name_in(&store, 1, 0);
    write(&store, &other, b"other");
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    fs.clear();
    let report = repair_with_faults().unwrap();
    assert_eq!((report.verified.files, &report.verified.damage[..]), (502, &[][..]));
    let store = reopen(&memory).unwrap();
    assert_reads(&store, &names[spilled], &bytes(1, 10 * CHUNK));
    assert_reads(&store, &other, b"other");
}
