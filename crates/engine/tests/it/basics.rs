//! Writing, reading, deleting, conditions, expiry, attributes, reopening.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tallybook::checksum;
use tallybook::vfs::{ManualClock, MemoryFileSystem};
use tallybook::{
    Condition, Durability, Error, Options, ReadOptions, ResourceOptions, Resources, Store,
    WriteBatch, WriteOptions,
};

fn small() -> Options {
    Options {
        memtable_bytes: 64 << 10,
        write_buffer_bytes: 256 << 10,
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 256 << 10,
        inline_max_bytes: 256,
        table_bytes: 32 << 10,
        ..Options::default()
    }
}

fn inline() -> (MemoryFileSystem, Arc<ManualClock>, Arc<Resources>) {
    let fs = MemoryFileSystem::new();
    let clock = Arc::new(ManualClock::at_ms(1_000_000));
    let resources =
        Resources::inline(ResourceOptions::default(), Arc::new(fs.clone()), clock.clone());
    (fs, clock, resources)
}

#[test]
fn what_was_put_is_read_until_it_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small()).unwrap();
    assert_eq!(store.get(b"a").unwrap(), None);
    let first = store.put(b"a", b"1").unwrap();
    let second = store.put(b"a", b"2").unwrap();
    assert!(second > first);
    assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(store.head(b"a").unwrap().unwrap().version, second);
    store.delete(b"a").unwrap();
    assert_eq!(store.get(b"a").unwrap(), None);
    assert_eq!(store.head(b"a").unwrap(), None);
}

#[test]
fn a_value_longer_than_asked_for_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small()).unwrap();
    for (key, length) in [(b"inline", 100), (b"stored", 5000)] {
        let value = vec![7; length];
        store.put(key, &value).unwrap();
        let within =
            |bytes: usize| ReadOptions { value_bytes_max: bytes as u64, ..ReadOptions::default() };
        for is_flushed in [false, true] {
            if is_flushed {
                store.flush().unwrap();
            }
            assert_eq!(store.get_with(key, within(length)).unwrap().unwrap(), value);
            assert_eq!(store.get_entry_with(key, within(length)).unwrap().unwrap().1, value);
            let is_longer =
                |error| matches!(error, Error::Longer { length: l } if l == length as u64);
            assert!(is_longer(store.get_with(key, within(length - 1)).unwrap_err()));
            assert!(is_longer(store.get_entry_with(key, within(length - 1)).unwrap_err()));
        }
    }
    let none = ReadOptions { value_bytes_max: 0, ..ReadOptions::default() };
    assert_eq!(store.get_with(b"absent", none).unwrap(), None);
}

#[test]
fn everything_is_there_after_reopening_with_and_without_close() {
    let dir = tempfile::tempdir().unwrap();
    let value = |at: u32| vec![at as u8; (at as usize * 37) % 5000];
    for round in 0..4u32 {
        let store = Store::open(dir.path(), small()).unwrap();
        for at in 0..round * 500 {
            let found = store.get(&at.to_be_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(&value(at)[..]), "{at} in round {round}");
        }
        for at in round * 500..(round + 1) * 500 {
            store.put(&at.to_be_bytes(), &value(at)).unwrap();
        }
        if round % 2 == 0 {
            store.close().unwrap();
            assert!(matches!(store.get(b"x"), Err(Error::InvalidArgument(_))));
        }
    }
}

#[test]
fn a_second_store_on_the_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small()).unwrap();
    assert!(matches!(Store::open(dir.path(), small()), Err(Error::Locked { .. })));
    store.close().unwrap();
    Store::open(dir.path(), small()).unwrap();
}

#[test]
fn conditions_are_tested_against_the_current_version() {
    let (_fs, _clock, resources) = inline();
    let store = Store::open_with("/s", small(), resources).unwrap();
    let version = store.put_if(b"k", b"1", Condition::Absent).unwrap();
    assert!(matches!(
        store.put_if(b"k", b"2", Condition::Absent),
        Err(Error::Conflict { current }) if current == Some(version)
    ));
    store.flush().unwrap();
    let next = store.put_if(b"k", b"2", Condition::Version(version)).unwrap();
    assert!(store.put_if(b"k", b"3", Condition::Version(version)).is_err());
    assert!(store.put_if(b"k", b"3", Condition::NotVersion(next)).is_err());
    assert!(store.put_if(b"other", b"3", Condition::Present).is_err());
    let options =
        WriteOptions { condition: Some(Condition::Version(next)), ..WriteOptions::default() };
    store.delete_with(b"k", &options).unwrap();
    assert!(matches!(store.delete_with(b"k", &options), Err(Error::Conflict { current: None })));
}

#[test]
fn expired_entries_are_gone_from_every_door() {
    let (_fs, clock, resources) = inline();
    let store = Store::open_with("/s", small(), resources).unwrap();
    let options = WriteOptions { expires_at_ms: 1_005_000, ..WriteOptions::default() };
    store.put_with(b"k", b"v", &options).unwrap();
    store.put(b"stays", b"v").unwrap();
    assert_eq!(store.head(b"k").unwrap().unwrap().expires_at_ms, Some(1_005_000));
    clock.advance(Duration::from_secs(6));
    for _ in 0..2 {
        assert_eq!(store.get(b"k").unwrap(), None);
        assert_eq!(store.head(b"k").unwrap(), None);
        assert_eq!(store.range(Default::default()).unwrap().count(), 1);
        store.put_if(b"k", b"again", Condition::Absent).unwrap();
        store.put_with(b"k", b"v", &options).unwrap();
        store.flush().unwrap();
    }
    store.compact(None, None, &mut |_, _| {}).unwrap();
    let entries: u64 = store.stats().levels.iter().map(|level| level.entries).sum();
    assert_eq!(entries, 1, "compaction drops what has expired");
}

#[test]
fn attributes_and_heads_come_back() {
    let (_fs, _clock, resources) = inline();
    let store = Store::open_with("/s", small(), resources).unwrap();
    for value in [vec![], vec![7; 100], vec![9; 10_000]] {
        let options =
            WriteOptions { attributes: Bytes::from(vec![1; 1024]), ..WriteOptions::default() };
        let version = store.put_with(b"k", &value, &options).unwrap();
        for _ in 0..2 {
            let head = store.head(b"k").unwrap().unwrap();
            assert_eq!((head.version, head.length), (version, value.len() as u64));
            assert_eq!(head.checksum, checksum::crc32c(&value));
            assert_eq!(head.written_at_ms, 1_000_000);
            assert_eq!(head.attributes, vec![1; 1024]);
            assert_eq!(store.get(b"k").unwrap().unwrap(), value);
            store.flush().unwrap();
        }
    }
    let options =
        WriteOptions { attributes: Bytes::from(vec![1; 1025]), ..WriteOptions::default() };
    assert!(matches!(store.put_with(b"k", b"", &options), Err(Error::InvalidArgument(_))));
}

#[test]
fn impossible_keys_and_values_are_refused() {
    let (_fs, _clock, resources) = inline();
    let store = Store::open_with("/s", small(), resources).unwrap();
    for key in [vec![], vec![1; 4097]] {
        assert!(matches!(store.put(&key, b""), Err(Error::InvalidArgument(_))));
        assert!(matches!(store.get(&key), Err(Error::InvalidArgument(_))));
        assert!(matches!(store.delete(&key), Err(Error::InvalidArgument(_))));
    }
    store.put(&[255; 4096], b"").unwrap();
    assert_eq!(store.get(&[255; 4096]).unwrap().as_deref(), Some(&b""[..]));
    assert!(store.delete_range(b"b", b"a").is_err());
}

#[test]
fn a_batch_larger_than_a_segment_and_a_memtable_is_one_write() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small()).unwrap();
    let mut batch = WriteBatch::new();
    for at in 0..5000u32 {
        batch.put(at.to_be_bytes().to_vec(), vec![3; 300]).unwrap();
    }
    batch.delete(7u32.to_be_bytes().to_vec()).unwrap();
    let last = store.write(batch, Some(Durability::Sync)).unwrap();
    assert_eq!(last, 5001);
    assert_eq!(store.get(&7u32.to_be_bytes()).unwrap(), None);
    assert_eq!(store.range(Default::default()).unwrap().count(), 4999);
    drop(store);
    let store = Store::open(dir.path(), small()).unwrap();
    assert_eq!(store.range(Default::default()).unwrap().count(), 4999);
}

#[test]
fn range_deletion_hides_older_keys_only() {
    let (_fs, _clock, resources) = inline();
    let store = Store::open_with("/s", small(), resources).unwrap();
    for key in ["a", "b", "c", "d"] {
        store.put(key.as_bytes(), b"old").unwrap();
    }
    store.flush().unwrap();
    store.delete_range(b"b", b"d").unwrap();
    store.put(b"c", b"new").unwrap();
    for step in 0..4 {
        let keys: Vec<_> =
            store.range(Default::default()).unwrap().map(|item| item.unwrap().key).collect();
        assert_eq!(keys, ["a", "c", "d"], "step {step}");
        assert_eq!(store.get(b"b").unwrap(), None);
        assert_eq!(store.get(b"c").unwrap().as_deref(), Some(&b"new"[..]));
        match step {
            0 => store.flush().unwrap(),
            1 => store.compact(None, None, &mut |_, _| {}).unwrap(),
            _ => store.put(b"a", b"newer").map(drop).unwrap(),
        }
    }
}

#[test]
fn a_log_that_is_trimmed_from_its_front_stays_small() {
    let (_fs, _clock, resources) = inline();
    let options = || Options { memtable_bytes: 4 << 20, write_buffer_bytes: 8 << 20, ..small() };
    let store = Store::open_with("/s", options(), resources.clone()).unwrap();
    let key = |at: u32| at.to_be_bytes();
    let held = |store: &Store| -> Vec<Bytes> {
        store.range(Default::default()).unwrap().map(|item| item.unwrap().key).collect()
    };
    let mut halfway = None;
    for at in 0..3_000 {
        store.put(&key(at), b"line").unwrap();
        if at >= 10 {
            store.delete_range(&key(0), &key(at - 9)).unwrap();
        }
        if at == 1_500 {
            halfway = Some(store.snapshot());
        }
    }
    let last: Vec<Bytes> = (2_990..3_000).map(|at| Bytes::copy_from_slice(&key(at))).collect();
    assert_eq!(held(&store), last);
    let halfway = halfway.unwrap();
    assert_eq!(halfway.get(&key(1_491)).unwrap().as_deref(), Some(&b"line"[..]));
    assert_eq!(halfway.get(&key(1_490)).unwrap(), None);
    store.flush().unwrap();
    assert_eq!(halfway.get(&key(1_491)).unwrap().as_deref(), Some(&b"line"[..]));
    assert_eq!(halfway.get(&key(1_490)).unwrap(), None);
    assert_eq!(held(&store), last);
    // Of 2,990 ranges within ranges two are left: one that the snapshot sees, one for all others.
    let bytes: u64 = store.stats().levels.iter().map(|level| level.bytes).sum();
    assert!(bytes < 8 << 10, "{bytes} bytes");
    drop((halfway, store));
    let store = Store::open_with("/s", options(), resources).unwrap();
    assert_eq!(held(&store), last);
}

#[test]
fn a_large_value_has_a_segment_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small()).unwrap();
    let value: Vec<u8> = (0..20_000_000u32).map(|at| (at % 251) as u8).collect();
    store.put(b"large", &value).unwrap();
    store.put(b"small", b"x").unwrap();
    assert!(store.get(b"large").unwrap().unwrap() == value);
    store.flush().unwrap();
    drop(store);
    let store = Store::open(dir.path(), small()).unwrap();
    assert!(store.get(b"large").unwrap().unwrap() == value);
    assert_eq!(store.get(b"small").unwrap().as_deref(), Some(&b"x"[..]));
}

#[test]
fn opening_and_closing_leaves_no_files_behind() {
    let dir = tempfile::tempdir().unwrap();
    let files = || std::fs::read_dir(dir.path()).unwrap().count();
    let store = Store::open(dir.path(), small()).unwrap();
    store.put(b"a", b"1").unwrap();
    store.close().unwrap();
    let before = files();
    for _ in 0..5 {
        let store = Store::open(dir.path(), small()).unwrap();
        assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
        store.close().unwrap();
    }
    assert!(files() <= before, "{} files became {}", before, files());
}
