//! What merges do with damage that they meet, and with what lies around it.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::background::LOOK_INTERVAL;
use crate::error::Error;
use crate::file_name;
use crate::options::{Options, Reading};
use crate::resources::{Participant, ResourceOptions, Resources};
use crate::store::{Store, WriteOptions};
use crate::vfs::faulty::{Fault, FaultyFileSystem, OperationClass::Reads};
use crate::vfs::{File, FileSystem, ManualClock, MemoryFileSystem};

fn open(fs: &MemoryFileSystem, clock: &Arc<ManualClock>, options: Options) -> Store {
    let fs = Arc::new(fs.clone());
    let resources = Resources::inline(ResourceOptions::default(), fs, clock.clone());
    Store::open_with("/s", options, resources).unwrap()
}

/// A merge that comes to a damaged block had written up to 256 MiB by then, and did so again 200 ms later,
/// for ever. Between the two, flushes were refused as well.
#[test]
fn a_merge_that_meets_damage_is_tried_ever_more_rarely_and_flushes_go_on() {
    let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
    let open = || {
        let reading = Reading::Pread;
        let store = open(&fs, &clock, Options { reading, ..Options::default() });
        for key in 0..20_000u32 {
            store.put(&key.to_be_bytes(), &[7; 100]).unwrap();
        }
        store
    };
    let store = open();
    store.compact(None, None, &mut |_, _| {}).unwrap();
    let bottom = store.inner.state.load().version.tables().next().unwrap().1.number;
    store.close().unwrap();
    drop(store);
    let flip = || {
        let file = fs.open(&file_name::table(Path::new("/s"), bottom)).unwrap();
        let middle = file.len().unwrap() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, middle).unwrap();
        file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
    };
    flip();
    let store = open();
    store.flush().unwrap();
    let flushes = store.stats().flushes;
    for tick in 1..=600u32 {
        clock.advance(LOOK_INTERVAL);
        if tick % 100 == 0 {
            // At once, with no call that waits for it.
            store.put(&tick.to_be_bytes(), b"value").unwrap();
            let mut commit = store.inner.commit.lock();
            store.inner.change_memtable(&mut commit, 0);
            drop(commit);
            assert!(store.inner.flush_step(), "{tick}");
        }
        store.inner.run_inline();
    }
    let stats = store.stats();
    assert_eq!(stats.flushes - flushes, 6);
    // What is before the damage was merged once, and once more with what was flushed since, at most.
    assert!((1..=7).contains(&stats.compactions), "{}", stats.compactions);
    let error = stats.background_error.expect("the merge still fails");
    assert!(error.contains(&format!("{bottom:06}.sst")), "{error}");
    // Tried five times, and so next behind the minute.
    let now_ns = store.inner.resources.clock.steady_ns();
    let retry_at_ns = store.inner.merges_avoided.retry_at_ns().unwrap();
    let left = Duration::from_nanos(retry_at_ns - now_ns);
    assert!((5..10).contains(&left.as_secs()), "{left:?}");
    flip();
    for _ in 0..60 {
        clock.advance(Duration::from_secs(10));
        store.inner.run_inline();
    }
    assert_eq!(store.stats().background_error, None);
    assert!(store.stats().compactions > 0 && store.inner.settled.load(Ordering::Relaxed));
}

fn small_tables() -> Options {
    Options { reading: Reading::Pread, table_bytes: 64 << 10, ..Options::default() }
}

fn nth_key(at: u32) -> [u8; 4] {
    (at * 1000).to_be_bytes()
}

/// A store of 20,000 keys in some tables, each written twice, and one of the tables damaged in its first block,
/// or where the second half of it begins; answers where the byte is that was changed.
fn damaged_store(
    fs: &MemoryFileSystem,
    clock: &Arc<ManualClock>,
    options: &Options,
    is_in_front: bool,
) -> (Store, Arc<dyn File>, u64) {
    let store = open(fs, clock, options.clone());
    for at in 0..20_000 {
        store.put(&nth_key(at), &[7; 100]).unwrap();
    }
    store.compact(None, None, &mut |_, _| {}).unwrap();
    let bottom = store.inner.state.load().version.tables().nth(9).unwrap().1.number;
    let file = fs.open(&file_name::table(Path::new("/s"), bottom)).unwrap();
    store.close().unwrap();
    drop(store);
    let at = if is_in_front { 1000 } else { file.len().unwrap() / 2 };
    flip(&*file, at);
    let store = open(fs, clock, options.clone());
    // All keys are written anew, so that a merge of everything is due.
    for at in 0..20_000 {
        store.put(&nth_key(at), &[8; 100]).unwrap();
    }
    store.flush().unwrap();
    (store, file, at)
}

fn flip(file: &dyn File, at: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

fn entries(store: &Store) -> u64 {
    let version = &store.inner.state.load().version;
    version.tables().map(|(_, table)| table.properties.entries).sum()
}

#[test]
fn damage_holds_up_no_merge_of_other_keys() {
    let small_jobs = Options { compaction_job_bytes_max: 128 << 10, ..small_tables() };
    // An idle store leaves what is a tenth of it, and the damaged table's front is merged beside it.
    for (options, is_in_front, entries_max) in [
        (&small_jobs, true, 22_000),
        (&small_jobs, false, 22_800),
        (&small_tables(), true, 22_000),
        (&small_tables(), false, 22_800),
    ] {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let (store, ..) = damaged_store(&fs, &clock, options, is_in_front);
        let run = |times: u32| {
            for _ in 0..times {
                clock.advance(LOOK_INTERVAL);
                store.inner.run_inline();
            }
        };
        run(100);
        assert!(store.stats().background_error.is_some());
        assert!(entries(&store) < entries_max, "{} entries", entries(&store));
        let before = store.stats().compactions;
        for round in 0..40u8 {
            for at in 0..1000 {
                store.put(&nth_key(at), &[round; 100]).unwrap();
            }
            store.flush().unwrap();
            run(1);
        }
        run(30);
        assert!(store.stats().compactions > before);
        assert!(entries(&store) < entries_max, "{} entries", entries(&store));
    }
}

/// What waited above the damage grew by a run with each flush, and nothing was merged any more.
#[test]
fn flushes_above_damage_are_merged_and_writes_in_vain_are_few() {
    let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
    let (store, file, at) = damaged_store(&fs, &clock, &small_tables(), false);
    let mut runs_max = 0;
    for round in 0..150u8 {
        for at in (0..20_000).skip(round.into()).step_by(97) {
            store.put(&nth_key(at), &[round; 100]).unwrap();
        }
        store.flush().unwrap();
        clock.advance(LOOK_INTERVAL);
        store.inner.run_inline();
        runs_max = runs_max.max(store.stats().levels[0].runs);
    }
    assert!(runs_max < 50, "{runs_max} runs in L0");
    clock.advance(Duration::from_secs(2));
    store.inner.run_inline();
    assert!(entries(&store) < 23_000, "{} entries", entries(&store));
    let stats = store.stats();
    assert!(stats.background_error.is_some());
    let flushed = stats.flush_bytes_written;
    assert!(
        stats.compaction_bytes_written < flushed * 10,
        "{} bytes",
        stats.compaction_bytes_written
    );
    flip(&*file, at);
    store.compact(None, None, &mut |_, _| {}).unwrap();
    assert_eq!((entries(&store), store.stats().background_error), (20_000, None));
}

#[test]
fn a_compaction_goes_past_damage_and_tells_of_it() {
    for is_in_front in [true, false] {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let (store, file, at) = damaged_store(&fs, &clock, &small_tables(), is_in_front);
        let compact = || store.compact(None, None, &mut |_, _| {});
        for _ in 0..2 {
            let error = compact().unwrap_err();
            assert!(error.is_damage(), "{error}");
            assert!(entries(&store) < 22_000, "{} entries", entries(&store));
        }
        flip(&*file, at);
        compact().unwrap();
        assert_eq!((entries(&store), store.stats().background_error), (20_000, None));
    }
}

/// Of a damaged table and a segment that the disk didn't read once, it told of the table: who goes by that whether
/// to ask again didn't, and the segment stayed.
#[test]
fn a_compaction_tells_first_of_what_may_be_read_another_time() {
    let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
    let options = Options {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 64 << 10,
        background: false,
        ..small_tables()
    };
    let (store, ..) = damaged_store(&fs, &clock, &options, true);
    let large = |at: u32| nth_key(20_000 + at);
    for at in 0..300 {
        store.put(&large(at), &[7; 1500]).unwrap();
    }
    store.flush().unwrap();
    for at in (0..300).filter(|at| at % 5 != 0) {
        store.delete(&large(at)).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let faulty = Arc::new(FaultyFileSystem::new(Arc::new(fs)));
    let resources = Resources::inline(ResourceOptions::default(), faulty.clone(), clock);
    let store = Store::open_with("/s", options, resources).unwrap();
    let is_segment = |_: &str, path: &Path| path.extension().is_some_and(|end| end == "journal");
    faulty.fail_at(0, Fault::errno(libc::EIO).class(Reads).only(is_segment).sticky());
    let compact = || store.compact_past_damage(None, None, &mut |_, _| {}).unwrap();
    let unread = compact();
    assert!(matches!(unread, Some(Error::Io { .. })), "{unread:?}");
    faulty.clear();
    let unread = compact();
    assert!(matches!(unread, Some(Error::Corruption { .. })), "{unread:?}");
}

/// It may be tried again before the end of a compaction, and was forgotten by one that took ten minutes longer.
#[test]
fn a_long_compaction_tells_of_damage_that_it_met_early() {
    let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
    let options = Options { compaction_job_bytes_max: 128 << 10, ..small_tables() };
    let (store, ..) = damaged_store(&fs, &clock, &options, false);
    let mut calls = 0;
    let compacted = store.compact(None, None, &mut |_, _| {
        let avoided = &store.inner.merges_avoided;
        calls += usize::from(!avoided.list().is_empty());
        // First what is before the damage is merged, then some of what is behind.
        if calls == 3 && !avoided.list().is_empty() {
            for _ in 0..2 {
                clock.advance(Duration::from_secs(601));
                store.inner.tick();
            }
            assert!(avoided.list().is_empty());
        }
    });
    assert_eq!(calls, 3, "it was come to once");
    assert!(compacted.unwrap_err().is_damage());
}

/// What waits for it may be too little to be merged again.
#[test]
fn damage_is_told_for_as_long_as_it_is_there() {
    let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
    let (store, file, at) = damaged_store(&fs, &clock, &small_tables(), true);
    let run = |waits: Duration| {
        for _ in 0..100 {
            clock.advance(waits);
            store.inner.run_inline();
        }
    };
    run(LOOK_INTERVAL);
    run(Duration::from_secs(20));
    assert!(store.stats().background_error.is_some());
    // What lies elsewhere is merged.
    store.compact(Some(&nth_key(19_000)), None, &mut |_, _| {}).unwrap();
    assert!(store.stats().background_error.is_some());
    // What can be read again is tried, though no merge is due that would come to it.
    flip(&*file, at);
    let compactions = store.stats().compactions;
    run(Duration::from_secs(20));
    let stats = store.stats();
    assert_eq!((stats.background_error, stats.compactions), (None, compactions));
    assert!(store.inner.settled.load(Ordering::Relaxed));
}

/// Each merge that came to it failed as a whole, and was picked again.
#[test]
fn a_table_that_can_not_be_opened_holds_up_no_merge_of_other_keys() {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let faulty = Arc::new(FaultyFileSystem::new(Arc::new(MemoryFileSystem::new())));
    let clock = Arc::new(ManualClock::at_ms(1));
    let few_handles = ResourceOptions { file_handles_max: 0, ..ResourceOptions::default() };
    let resources = Resources::inline(few_handles, faulty.clone(), clock.clone());
    let store = Store::open_with("/s", small_tables(), resources).unwrap();
    let put = |value: u8| {
        for at in 0..20_000 {
            store.put(&nth_key(at), &[value; 100]).unwrap();
        }
    };
    put(7);
    store.compact(None, None, &mut |_, _| {}).unwrap();
    let number = store.inner.state.load().version.tables().nth(9).unwrap().1.number;
    PATH.set(file_name::table(Path::new("/s"), number)).unwrap();
    let fails = |operation: &str, path: &Path| {
        operation == "open_read" && PATH.get().is_some_and(|lost| path == lost)
    };
    faulty.fail_at(0, Fault::errno(libc::EIO).sticky().only(fails));
    put(8);
    store.flush().unwrap();
    for _ in 0..100 {
        clock.advance(LOOK_INTERVAL);
        store.inner.run_inline();
    }
    let error = store.stats().background_error.expect("a table can't be opened");
    assert!(error.contains(&format!("{number:06}.sst")), "{error}");
    assert!(entries(&store) < 22_000, "{} entries", entries(&store));
    faulty.clear();
    store.compact(None, None, &mut |_, _| {}).unwrap();
    assert_eq!((entries(&store), store.stats().background_error), (20_000, None));
}

/// Blocks are read many at once, of which the last may be the unreadable one.
#[test]
fn a_merge_comes_as_far_as_can_be_read() {
    let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
    let options = Options { reading: Reading::Pread, ..Options::default() };
    let store = open(&fs, &clock, options);
    let put = || {
        for at in 0..20_000 {
            store.put(&nth_key(at), &[7; 100]).unwrap();
        }
        store.flush().unwrap();
    };
    put();
    store.compact(None, None, &mut |_, _| {}).unwrap();
    put();
    let bottom = || store.inner.state.load().version.runs().next_back().unwrap().1.clone();
    let number = bottom().tables[0].number;
    let file = fs.open(&file_name::table(Path::new("/s"), number)).unwrap();
    file.set_len(file.len().unwrap() / 2).unwrap();
    assert!(store.compact(None, None, &mut |_, _| {}).unwrap_err().is_damage());
    let tables = bottom().tables;
    let left = tables.iter().find(|table| table.number == number).unwrap();
    assert!(left.smallest[..] > nth_key(9_800)[..], "{left:?}");
    assert!(store.get(&nth_key(9_800)).unwrap().is_some());
}

/// What of a table has expired is found out by a sample, which kept to itself what it could not read.
#[test]
fn damage_met_in_search_of_what_has_expired_is_told() {
    let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
    let options = Options { reading: Reading::Pread, ..Options::default() };
    let store = open(&fs, &clock, options.clone());
    let now_ms = store.inner.resources.clock.now_ms();
    for key in 0..20_000u32 {
        let expires_at_ms = now_ms + 10_000 + u64::from(key % 2) * 1_000_000;
        let options = WriteOptions { expires_at_ms, ..Default::default() };
        store.put_with(&key.to_be_bytes(), &[7; 100], &options).unwrap();
    }
    store.compact(None, None, &mut |_, _| {}).unwrap();
    let bottom = store.inner.state.load().version.tables().next().unwrap().1.number;
    store.close().unwrap();
    drop(store);
    let file = fs.open(&file_name::table(Path::new("/s"), bottom)).unwrap();
    flip(&*file, 1000);
    let store = open(&fs, &clock, options);
    clock.advance(Duration::from_secs(20));
    for _ in 0..50 {
        clock.advance(LOOK_INTERVAL);
        store.inner.run_inline();
    }
    let error = store.stats().background_error.expect("the table is damaged");
    assert!(error.contains(&format!("{bottom:06}.sst")), "{error}");
    assert!(store.inner.settled.load(Ordering::Relaxed));
    flip(&*file, 1000);
    for _ in 0..100 {
        clock.advance(Duration::from_secs(10));
        store.inner.run_inline();
    }
    assert_eq!(store.stats().background_error, None);
}
