//! Keys that are read again and again are answered as the tables and memtables stand, not as they stood.

use std::sync::Arc;
use std::time::Duration;

use tallybook::vfs::{ManualClock, MemoryFileSystem};
use tallybook::{Exit, Options, Reading, ResourceOptions, Resources, SeqNo, Store, WriteOptions};

fn open(clock: &Arc<ManualClock>) -> Store {
    let fs = Arc::new(MemoryFileSystem::new());
    let resources = Resources::inline(ResourceOptions::default(), fs, clock.clone());
    let options = Options {
        reading: Reading::Pread,
        background: false,
        inline_max_bytes: 100,
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 64 << 10,
        ..Options::default()
    };
    Store::open_with("/s", options, resources).unwrap()
}

fn answered(store: &Store) -> u64 {
    store.stages().exits(Exit::FileRecent)
}

/// Reads a key until it is among the recently read ones, and once more.
fn read_often(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    let values: Vec<_> = (0..4).map(|_| store.get(key).unwrap()).collect();
    assert!(values.iter().all(|value| *value == values[0]), "reads in a row agree");
    assert_eq!(store.head(key).unwrap().is_some(), values[0].is_some());
    values[0].as_ref().map(|value| value.to_vec())
}

/// A store with a key in a table that is among the recently read ones.
fn with_recent_key(clock: &Arc<ManualClock>, value: &[u8]) -> (Store, SeqNo) {
    let store = open(clock);
    let version = store.put(b"key", value).unwrap();
    store.put(b"kez", b"a neighbour").unwrap();
    store.flush().unwrap();
    assert_eq!(read_often(&store, b"key").as_deref(), Some(value));
    assert!(answered(&store) > 0, "the key was kept");
    (store, version)
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at_ms(1000))
}

#[test]
fn an_overwritten_key_is_answered_anew_before_and_after_its_flush() {
    let (store, version) = with_recent_key(&clock(), b"old");
    let newer = store.put(b"key", b"new").unwrap();
    assert_eq!(read_often(&store, b"key").as_deref(), Some(&b"new"[..]));
    store.flush().unwrap();
    assert_eq!(read_often(&store, b"key").as_deref(), Some(&b"new"[..]));
    store.compact(None, None, &mut |_, _| {}).unwrap();
    assert_eq!(read_often(&store, b"key").as_deref(), Some(&b"new"[..]));
    let before = answered(&store);
    assert_eq!(store.head(b"key").unwrap().unwrap().version, newer);
    assert_eq!(answered(&store), before + 1, "the new place is kept as well");
    assert!(newer > version);
}

#[test]
fn a_deleted_key_stays_deleted() {
    for by_range in [false, true] {
        let (store, _) = with_recent_key(&clock(), b"old");
        match by_range {
            true => store.delete_range(b"k", b"key\0").unwrap(),
            false => store.delete(b"key").unwrap(),
        };
        assert_eq!(read_often(&store, b"key"), None);
        store.flush().unwrap();
        assert_eq!(read_often(&store, b"key"), None);
        store.compact(None, None, &mut |_, _| {}).unwrap();
        assert_eq!(read_often(&store, b"key"), None);
        assert!(read_often(&store, b"kez").is_some());
    }
}

#[test]
fn an_expired_key_is_gone_though_it_was_kept() {
    let clock = clock();
    let store = open(&clock);
    let options = WriteOptions { expires_at_ms: 5000, ..WriteOptions::default() };
    store.put_with(b"key", b"value", &options).unwrap();
    store.flush().unwrap();
    assert!(read_often(&store, b"key").is_some() && answered(&store) > 0);
    clock.advance(Duration::from_secs(4));
    assert_eq!(read_often(&store, b"key"), None);
}

#[test]
fn a_snapshot_sees_its_own_moment() {
    let (store, version) = with_recent_key(&clock(), b"old");
    let snapshot = store.snapshot();
    store.put(b"key", b"new").unwrap();
    store.flush().unwrap();
    store.compact(None, None, &mut |_, _| {}).unwrap();
    // The newest version is kept; the snapshot's is behind it in the same table.
    assert_eq!(read_often(&store, b"key").as_deref(), Some(&b"new"[..]));
    for _ in 0..4 {
        assert_eq!(snapshot.get(b"key").unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(snapshot.head(b"key").unwrap().unwrap().version, version);
    }
    assert_eq!(read_often(&store, b"key").as_deref(), Some(&b"new"[..]));
}

#[test]
fn a_kept_pointer_is_followed_after_its_segment_was_collected() {
    let clock = clock();
    let value = vec![7; 20_000];
    let (store, _) = with_recent_key(&clock, &value);
    // What shares the segment is written, overwritten, and so leaves it mostly dead.
    for _ in 0..2 {
        for at in 0..10u32 {
            store.put(&at.to_be_bytes(), &[1; 20_000]).unwrap();
        }
        store.flush().unwrap();
    }
    assert_eq!(read_often(&store, b"key").as_ref(), Some(&value));
    store.compact(None, None, &mut |_, _| {}).unwrap();
    assert!(store.stats().collections > 0, "{:?}", store.stats());
    assert_eq!(read_often(&store, b"key").as_ref(), Some(&value));
}
