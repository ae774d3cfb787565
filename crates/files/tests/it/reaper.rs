//! Freeing space while files are written: a pass of the reaper works off what was due when it began.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tallybook::Resources;
use tallybook::vfs::faulty::{Fault, OperationClass};
use tallybook::vfs::{CrashMode, FaultyFileSystem, MemoryFileSystem, SystemClock};
use tallybook_files::record::decode_numbers;
use tallybook_files::{
    CreateOptions, Durability, FileStore, OpenOptions, RepairOptions, UnlinkOptions, WriteOptions,
    key_layout, resource_options,
};

use crate::support::{
    CHUNK, assert_reads, bytes, engine_store, in_memory, inline, lose_catalogue, memory_dir,
    reopen, small, write,
};

/// A store in memory without a reaper of its own, whose syncs can be made to take long.
fn with_slow_syncs(create: CreateOptions) -> (MemoryFileSystem, FaultyFileSystem, FileStore) {
    let memory = MemoryFileSystem::new();
    let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
    let clock = Arc::new(SystemClock::default());
    let resources = Resources::with(resource_options(), Arc::new(fs.clone()), clock).unwrap();
    let options =
        OpenOptions { durability: Durability::Os, background: false, ..OpenOptions::default() };
    let store = FileStore::create_with(memory_dir(), create, options, resources).unwrap();
    (memory, fs, store)
}

/// A fault that does nothing but make a sync of a journal take `ms`.
fn slow_sync(ms: u64) -> Fault {
    let of_journal = |operation: &str, path: &Path| {
        operation.starts_with("sync_") && path.extension().is_some_and(|of| of == "journal")
    };
    Fault::delay(Duration::from_millis(ms)).class(OperationClass::Syncs).only(of_journal)
}

/// Notes were looked for again until there were none, each time after a sync. Where files are written
/// faster than the disk syncs there always were some: of entries, which come before contents. So no
/// space came back, and whoever waited for room waited as long as others wrote.
#[test]
fn space_comes_back_while_others_write_without_a_pause() {
    const WRITERS_STOP: Duration = Duration::from_secs(10);
    let create = CreateOptions { bucket_cap_bytes: 8 * CHUNK as u64, bucket_count: 1, ..small() };
    let (_, fs, store) = with_slow_syncs(create);
    write(&store, "large", &bytes(1, 7 * CHUNK));
    assert!(store.unlink("large", UnlinkOptions::default()).unwrap());
    fs.fail_at(0, slow_sync(5).sticky());
    let is_over = AtomicBool::new(false);
    let start = Instant::now();
    let (took, written) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) && start.elapsed() < WRITERS_STOP {
                // Empty files take no room.
                write(&store, &format!("{written}"), b"");
                written += 1;
            }
            written
        });
        let room = store.write("room", &bytes(2, 7 * CHUNK), WriteOptions::default());
        let took = start.elapsed();
        is_over.store(true, Ordering::Relaxed);
        room.unwrap();
        (took, writer.join().unwrap())
    });
    assert!(took < WRITERS_STOP / 2, "it waited {took:?} for room while {written} were written");
    assert_reads(&store, "room", &bytes(2, 7 * CHUNK));
    fs.clear();
    store.reap().unwrap();
    assert_eq!(store.totals().dead_bytes, 0);
}

/// What was unlinked in the middle of a pass lost its chunks in that pass, and its entry in the next.
/// In between, a catalogue made anew had a name without bytes.
#[test]
fn what_is_unlinked_during_a_pass_keeps_its_chunks_as_long_as_its_entry() {
    let (memory, fs, store) = with_slow_syncs(CreateOptions { bucket_count: 1, ..small() });
    write(&store, "late", &bytes(1, 2 * CHUNK));
    write(&store, "early", &bytes(2, CHUNK));
    store.reap().unwrap();
    assert!(store.unlink("early", UnlinkOptions::default()).unwrap());
    let fired = fs.fired();
    fs.fail_at(0, slow_sync(1000));
    let reaped = thread::scope(|scope| {
        let pass = scope.spawn(|| store.reap());
        while fs.fired() == fired {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(store.unlink("late", UnlinkOptions::default()).unwrap());
        assert!(!pass.is_finished(), "the unlink came too late: {:?}", fs.last_fired());
        pass.join().unwrap().unwrap()
    });
    let left = memory.image().crash(CrashMode::KeepAll, 0);
    lose_catalogue(&left);
    let options = RepairOptions::default();
    let report = FileStore::repair_with(memory_dir(), options, inline(left.clone())).unwrap();
    assert!(report.verified.damage.is_empty(), "{report:?}");

    assert_eq!((reaped.contents, reaped.bytes), (1, CHUNK as u64));
    assert_eq!(store.reap().unwrap().bytes, 2 * CHUNK as u64);
    assert_eq!(store.totals().dead_bytes, 0);
}

/// Each opening counted from nothing what is freed: where none freed enough for itself, no bucket was compacted.
#[test]
fn what_many_openings_free_little_by_little_adds_up() {
    let fs = MemoryFileSystem::new();
    let mut store = in_memory(&fs, CreateOptions { bucket_count: 1, ..small() });
    let mut freed = Vec::new();
    for at in 0..9 {
        write(&store, "file", &bytes(at, 16 * CHUNK));
        assert!(store.unlink("file", UnlinkOptions::default()).unwrap());
        store.reap().unwrap();
        store.close().unwrap();
        drop(store);
        let catalogue = engine_store(&fs, "catalogue-000001");
        let garbage = catalogue.get(&key_layout::key(key_layout::GARBAGE, &[0])).unwrap();
        freed.push(garbage.map(|value| decode_numbers(&value).unwrap()));
        catalogue.close().unwrap();
        drop(catalogue);
        store = reopen(&fs).unwrap();
    }
    // With 8 MiB it is compacted.
    let expected = [1, 2, 3, 4, 5, 6, 7, 0, 1].map(|mebibytes| [mebibytes << 20_u64]);
    assert_eq!(freed, expected.map(|freed| Some(freed).filter(|freed| *freed != [0])));
}

/// What becomes due while a pass is under way is worked off by the thread soon after, unasked.
#[test]
fn what_is_unlinked_during_a_pass_is_freed_by_the_next() {
    let memory = MemoryFileSystem::new();
    let fs = FaultyFileSystem::new(Arc::new(memory));
    let clock = Arc::new(SystemClock::default());
    let resources = Resources::with(resource_options(), Arc::new(fs.clone()), clock).unwrap();
    let options = OpenOptions { durability: Durability::Os, ..OpenOptions::default() };
    let store = FileStore::create_with(memory_dir(), small(), options, resources).unwrap();
    for at in 0..20 {
        write(&store, &format!("{at}"), &bytes(at, CHUNK));
    }
    fs.fail_at(0, slow_sync(20).sticky());
    for at in 0..20 {
        assert!(store.unlink(&format!("{at}"), UnlinkOptions::default()).unwrap());
        thread::sleep(Duration::from_millis(15));
    }
    let start = Instant::now();
    while store.totals().dead_bytes > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", store.totals());
        thread::sleep(Duration::from_millis(10));
    }
}
