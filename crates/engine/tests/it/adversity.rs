//! What goes wrong beside the disk being full: damage where nothing is needed, a directory that was
//! replaced, calls of the system that fail.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tallybook::options::JournalWriting;
use tallybook::vfs::faulty::{Fault, FaultyFileSystem, OperationClass};
use tallybook::vfs::{Clock, CrashMode, FileSystem, ManualClock, MemoryFileSystem};
use tallybook::{Error, Options, ResourceOptions, Resources, Store, WriteBatch};

const SEGMENT_BYTES: u64 = 512 << 10;
const NO_SPACE: i32 = 28;

fn resources(fs: Arc<dyn FileSystem>) -> (Arc<Resources>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at_ms(1));
    (Resources::inline(ResourceOptions::default(), fs, clock.clone()), clock)
}

fn options() -> Options {
    Options {
        segment_bytes_min: SEGMENT_BYTES,
        segment_bytes_max: SEGMENT_BYTES,
        ..Options::default()
    }
}

fn value(at: u32, bytes: usize) -> Vec<u8> {
    at.to_le_bytes().repeat(bytes / 4)
}

fn check(store: &Store, count: u32, bytes: usize) {
    for at in 0..count {
        let found = store.get(&at.to_be_bytes()).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!(found.is_some_and(|found| found == value(at, bytes)), "{at}");
    }
}

fn journals(fs: &dyn FileSystem) -> Vec<String> {
    let names = fs.list(Path::new("/s")).unwrap();
    names.into_iter().filter(|name| name.ends_with(".journal")).collect()
}

/// The first record of a segment says only how the log goes on. Where the manifest keeps a segment for its
/// values, nobody asks.
#[test]
fn damage_to_the_first_record_of_a_kept_segment_costs_nothing() {
    let fs = MemoryFileSystem::new();
    let (shared, _) = resources(Arc::new(fs.clone()));
    let store = Store::open_with("/s", options(), shared).unwrap();
    for at in 0..500 {
        store.put(&u32::to_be_bytes(at), &value(at, 4000)).unwrap();
    }
    store.flush().unwrap();
    store.close().unwrap();
    drop(store);
    let names = journals(&fs);
    assert!(names.len() > 3, "{names:?}");
    for name in &names {
        let fs = fs.image().crash(CrashMode::KeepAll, 1);
        let file = fs.open(&Path::new("/s").join(name)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 100).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 100).unwrap();
        let (resources, _) = resources(Arc::new(fs));
        for _ in 0..2 {
            match Store::open_with("/s", options(), resources.clone()) {
                Ok(store) => {
                    check(&store, 500, 4000);
                    store.close().unwrap();
                }
                // That in which the log ends is needed.
                Err(error) => assert!(name == names.last().unwrap(), "{name}: {error}"),
            }
        }
    }
}

#[test]
fn a_store_in_the_place_of_another_reads_its_own_files() {
    let fs = MemoryFileSystem::new();
    let (resources, _) = resources(Arc::new(fs.clone()));
    for round in 0..3 {
        // What the next finds cached are files of the same names.
        for _ in 0..2 {
            let store = Store::open_with("/s", options(), resources.clone()).unwrap();
            store.put(b"key", &value(round, 4000)).unwrap();
            store.close().unwrap();
        }
        let store = Store::open_with("/s", options(), resources.clone()).unwrap();
        assert!(store.get(b"key").unwrap().unwrap() == value(round, 4000));
        let version = store.head(b"key").unwrap().unwrap().version;
        assert_eq!(version, 2, "round {round}");
        store.close().unwrap();
        drop(store);
        for name in fs.list(Path::new("/s")).unwrap() {
            fs.remove(&Path::new("/s").join(name)).unwrap();
        }
    }
}

/// A put may fail after the segment was started that it was to stand in. Those behind it stand there.
#[test]
fn what_is_acknowledged_behind_a_failed_put_is_read_and_outlives_a_restart() {
    for journal_writing in [JournalWriting::Mapped, JournalWriting::Written] {
        let mut failed = 0;
        for ordinal in 0..40 {
            let memory = MemoryFileSystem::new();
            let faulty = Arc::new(FaultyFileSystem::new(Arc::new(memory.clone())));
            let (resources, _) = resources(faulty.clone());
            let options = Options { journal_writing, background: false, ..options() };
            let store = Store::open_with("/s", options.clone(), resources.clone()).unwrap();
            store.put(b"first", &value(1, 400_000)).unwrap();
            // Longer than what is backed of a segment when it is started.
            let fault = Fault { class: OperationClass::Writes, ..Fault::errno(NO_SPACE) };
            faulty.fail_at(faulty.operation_count() + ordinal, fault);
            failed += u32::from(store.put(b"second", &value(2, 400_000)).is_err());
            faulty.clear();
            for at in 0..500 {
                store.put(&u32::to_be_bytes(at), &value(at, 4000)).unwrap();
            }
            check(&store, 500, 4000);
            store.flush().unwrap();
            check(&store, 500, 4000);
            store.close().unwrap();
            drop(store);
            let store = Store::open_with("/s", options, resources).unwrap();
            check(&store, 500, 4000);
            assert!(store.get(b"first").unwrap().unwrap() == value(1, 400_000));
        }
        assert!(failed > 2, "{failed} puts failed");
    }
}

#[test]
fn collections_that_fail_leave_no_file_behind() {
    let memory = MemoryFileSystem::new();
    let faulty = Arc::new(FaultyFileSystem::new(Arc::new(memory.clone())));
    let (resources, clock) = resources(faulty.clone());
    let options = Options { background: false, ..options() };
    let store = Store::open_with("/s", options, resources).unwrap();
    for round in 0..2 {
        for at in 0..500 {
            if round == 0 || at % 8 != 0 {
                store.put(&u32::to_be_bytes(at), &value(at, 4000)).unwrap();
            }
        }
    }
    store.flush().unwrap();
    let is_collected = |name: &str, path: &Path| {
        matches!(name, "write_all_at" | "sync_data" | "rename")
            && path.to_string_lossy().ends_with(".journal.tmp")
    };
    // For as long as there are spare segments to give up, too.
    let fault = Fault { only: Some(is_collected), ..Fault::errno(NO_SPACE) }.sticky();
    let mut failed = 0;
    for _ in 0..20 {
        faulty.fail_at(faulty.operation_count(), Fault { class: OperationClass::Writes, ..fault });
        let compacted = store.compact(None, None, &mut |_, _| {});
        faulty.clear();
        let names = memory.list(Path::new("/s")).unwrap();
        assert!(!names.iter().any(|name| name.ends_with(".tmp")), "{names:?}");
        failed += u32::from(matches!(compacted, Err(Error::NoSpace { .. })));
        clock.advance(Duration::from_secs(1));
    }
    assert!(failed > 0);
    store.compact(None, None, &mut |_, _| {}).unwrap();
    check(&store, 500, 4000);
}

/// The records of a segment tell which values are in it. One that is damaged, though of a value that is long
/// dead, kept that segment from being collected, and with it all others.
#[test]
fn a_damaged_record_of_a_dead_value_does_not_end_collection() {
    let fs = MemoryFileSystem::new();
    let open = || {
        let (shared, _) = resources(Arc::new(fs.clone()));
        Store::open_with("/s", Options { background: false, ..options() }, shared).unwrap()
    };
    let store = open();
    for at in 0..500 {
        store.put(&u32::to_be_bytes(at), &value(at, 4000)).unwrap();
    }
    // So many entries that the records are fewer to look at.
    for at in 0..60_000u32 {
        store.put(&[b"small", &at.to_be_bytes()[..]].concat(), b"value").unwrap();
    }
    store.flush().unwrap();
    store.close().unwrap();
    drop(store);
    for name in &journals(&fs)[..3] {
        let file = fs.open(&Path::new("/s").join(name)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 100).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 100).unwrap();
    }
    let store = open();
    // Few of the first values stay.
    for at in (0..500).filter(|at| at % 20 > 0) {
        store.put(&u32::to_be_bytes(at), &value(at, 4000)).unwrap();
    }
    for _ in 0..3 {
        store.compact(None, None, &mut |_, _| {}).unwrap();
    }
    check(&store, 500, 4000);
    let stats = store.stats();
    assert!(stats.collections >= 3, "{} segments were collected", stats.collections);
    store.close().unwrap();
    drop(store);
    check(&open(), 500, 4000);
}

/// Links keep what they link to on the disk, and a second try wants an empty directory.
#[test]
fn a_checkpoint_that_fails_leaves_nothing() {
    let memory = Arc::new(MemoryFileSystem::new());
    let faulty = Arc::new(FaultyFileSystem::new(memory.clone()));
    let (shared, _) = resources(faulty.clone());
    let store = Store::open_with("/s", options(), shared.clone()).unwrap();
    for at in 0..500 {
        store.put(&u32::to_be_bytes(at), &value(at, 4000)).unwrap();
    }
    store.flush().unwrap();
    let copy = Path::new("/copy");
    let within = |_: &str, path: &Path| path.starts_with("/copy");
    let mut failed = 0;
    loop {
        let fault = Fault { only: Some(within), ..Fault::errno(NO_SPACE) };
        faulty.fail_at(faulty.operation_count() + failed, fault);
        let made = store.checkpoint(copy);
        faulty.clear();
        if made.is_ok() {
            break;
        }
        failed += 1;
        let left = memory.list(copy).unwrap_or_default();
        assert!(left.is_empty(), "{left:?} after {failed} failures");
    }
    assert!(failed > 10, "{failed}");
    drop(store);
    check(&Store::open_with(copy, options(), shared).unwrap(), 500, 4000);
}

/// The index of a memtable is made as large as the one before came to, and that may have been one batch.
#[test]
fn a_put_behind_a_large_batch_finds_room() {
    let options = Options {
        memtable_bytes: 64 << 10,
        write_buffer_bytes: 256 << 10,
        stall_deadline: Duration::from_secs(600),
        ..options()
    };
    let (shared, clock) = resources(Arc::new(MemoryFileSystem::new()));
    let store = Store::open_with("/s", options, shared).unwrap();
    let mut batch = WriteBatch::new();
    for at in 0..8_200u32 {
        batch.put(at.to_be_bytes().to_vec(), "value").unwrap();
    }
    store.write(batch, None).unwrap();
    let from_ns = clock.steady_ns();
    for at in 0..100u32 {
        store.put(&at.to_be_bytes(), b"value").unwrap();
    }
    let waited = Duration::from_nanos(clock.steady_ns() - from_ns);
    assert!(waited < Duration::from_secs(1), "{waited:?}");
}

#[test]
fn impossible_settings_are_told_and_none_of_the_shared_ones_stops_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let impossible = Options { write_buffer_bytes: usize::MAX, ..options() };
    let opened = Store::open(dir.path().join("store"), impossible);
    assert!(matches!(opened, Err(Error::InvalidArgument(_))));

    let clock = Arc::new(ManualClock::at_ms(1));
    let shared = ResourceOptions { write_buffer_bytes: 0, ..ResourceOptions::default() };
    let shared = Resources::inline(shared, Arc::new(MemoryFileSystem::new()), clock);
    let options = Options { memtable_bytes: 64 << 10, write_buffer_bytes: 256 << 10, ..options() };
    let store = Store::open_with("/s", options, shared).unwrap();
    for at in 0..2_000 {
        store.put(&u32::to_be_bytes(at), &value(at, 400)).unwrap();
    }
    check(&store, 2_000, 400);
}

/// The segments in which the value of a key stands, and where.
fn places(fs: &MemoryFileSystem, at: u32) -> Vec<(String, u64)> {
    let wanted = value(at, 64);
    let place = |name: String| {
        let file = fs.open_read(&Path::new("/s").join(&name)).unwrap();
        let bytes = file.read_new_at(0, file.len().unwrap() as usize).unwrap();
        let found = bytes.windows(wanted.len()).position(|window| window == wanted)?;
        Some((name, found as u64))
    };
    journals(fs).into_iter().filter_map(place).collect()
}

/// A live value that can't be read has its segment stay as it is. No other segment was collected either, and
/// each compaction that was asked for failed.
#[test]
fn a_damaged_live_value_ends_collection_of_its_segment_alone() {
    // With so many entries the records are fewer to look at, without them the tables.
    for small in [0..60_000u32, 0..0] {
        let fs = MemoryFileSystem::new();
        let open = || {
            let (shared, _) = resources(Arc::new(fs.clone()));
            Store::open_with("/s", Options { background: false, ..options() }, shared).unwrap()
        };
        let store = open();
        for at in 0..1000 {
            store.put(&u32::to_be_bytes(at), &value(at, 4000)).unwrap();
        }
        for at in small {
            store.put(&[b"small", &at.to_be_bytes()[..]].concat(), b"value").unwrap();
        }
        store.flush().unwrap();
        store.close().unwrap();
        drop(store);
        const DAMAGED: u32 = 300;
        let [(damaged, offset)] = &places(&fs, DAMAGED)[..] else { panic!("it stands once") };
        let flip = || {
            let file = fs.open(&Path::new("/s").join(damaged)).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, *offset).unwrap();
            file.write_all_at(&[byte[0] ^ 1], *offset).unwrap();
        };
        flip();
        let store = open();
        // Few of the first values stay.
        for at in (0..1000).filter(|at| at % 20 > 0) {
            store.put(&u32::to_be_bytes(at), &value(at, 4000)).unwrap();
        }
        let check_all = |store: &Store| {
            for at in 0..1000 {
                match store.get(&u32::to_be_bytes(at)) {
                    Err(Error::Corruption { file, .. }) if at == DAMAGED => {
                        assert!(file.ends_with(damaged), "{file:?}");
                    }
                    found => assert!(found.unwrap().unwrap() == value(at, 4000), "{at}"),
                }
            }
        };
        for _ in 0..2 {
            // It tells of the damage, once all the others are collected.
            let compacted = store.compact(None, None, &mut |_, _| {});
            assert!(matches!(compacted, Err(Error::Corruption { .. })), "{compacted:?}");
            check_all(&store);
        }
        let stats = store.stats();
        assert!(stats.collections >= 6, "{} segments were collected", stats.collections);
        let cause = stats.background_error.expect("a segment is not collected");
        assert!(cause.contains("is not collected") && cause.contains(damaged), "{cause}");
        store.close().unwrap();
        drop(store);
        let store = open();
        check_all(&store);
        store.close().unwrap();
        drop(store);
        // Nothing of the segment was lost.
        flip();
        let store = open();
        store.compact(None, None, &mut |_, _| {}).unwrap();
        check(&store, 1000, 4000);
        assert_eq!(store.stats().background_error, None);
        assert!(!journals(&fs).contains(damaged), "it was collected with what is live in it");
    }
}
