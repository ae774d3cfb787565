//! Cursors and ranges, both ways, over memtables and tables, while writes go on.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tallybook::vfs::{ManualClock, MemoryFileSystem};
use tallybook::{Error, Options, ResourceOptions, Resources, ScanOptions, Store};

fn open() -> Store {
    let resources = Resources::inline(
        ResourceOptions::default(),
        Arc::new(MemoryFileSystem::new()),
        Arc::new(ManualClock::at_ms(1)),
    );
    let options = Options {
        memtable_bytes: 16 << 10,
        write_buffer_bytes: 64 << 10,
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 64 << 10,
        table_bytes: 8 << 10,
        level_runs_max: 4,
        ..Options::default()
    };
    Store::open_with("/s", options, resources).unwrap()
}

/// A store with several levels of versions, and what it should hold.
fn filled() -> (Store, BTreeMap<Vec<u8>, Vec<u8>>) {
    let (store, mut model) = (open(), BTreeMap::new());
    let mut state = 1u64;
    for round in 0..3000u64 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let key = format!("key{:03}", (state >> 33) % 500).into_bytes();
        if state >> 60 == 0 {
            store.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = round.to_le_bytes().to_vec();
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
    assert!(store.stats().levels.iter().any(|level| level.files > 0));
    (store, model)
}

fn keys(store: &Store, options: ScanOptions) -> Vec<Bytes> {
    store.range(options).unwrap().map(|item| item.unwrap().key).collect()
}

#[test]
fn range_stays_at_a_value_longer_than_asked_for() {
    let store = open();
    for (key, length) in [("a", 1), ("b", 5000), ("c", 2), ("d", 3000)] {
        store.put(key.as_bytes(), &vec![7; length]).unwrap();
    }
    for (reverse, keys) in [(false, ["a", "b", "c", "d"]), (true, ["d", "c", "b", "a"])] {
        let mut range = store.range(ScanOptions { reverse, ..Default::default() }).unwrap();
        for key in keys {
            let next = range.next_within(10);
            let Some(Err(Error::Longer { length })) = next else {
                assert_eq!(next.unwrap().unwrap().key, key);
                continue;
            };
            assert!(matches!(range.next_within(length - 1), Some(Err(Error::Longer { .. }))));
            let record = range.next_within(length).unwrap().unwrap();
            assert_eq!((&record.key[..], record.value.len() as u64), (key.as_bytes(), length));
        }
        assert!(range.next().is_none());
    }
}

#[test]
fn ranges_equal_a_sorted_map_both_ways() {
    let (store, model) = filled();
    let forward: Vec<_> = model.keys().cloned().map(Bytes::from).collect();
    assert_eq!(keys(&store, ScanOptions::default()), forward);
    let mut backward = forward.clone();
    backward.reverse();
    assert_eq!(keys(&store, ScanOptions { reverse: true, ..Default::default() }), backward);
    for item in store.range(ScanOptions::default()).unwrap() {
        let item = item.unwrap();
        assert_eq!(model[&item.key[..]], item.value);
    }
}

#[test]
fn bounds_and_prefixes_cut_what_is_seen() {
    let (store, model) = filled();
    for (start, end, prefix) in [
        (Some("key100"), Some("key200"), None),
        (None, Some("key050"), None),
        (Some("key450"), None, None),
        (None, None, Some("key1")),
        (Some("key15"), None, Some("key1")),
        (Some("key2"), Some("key3"), Some("key1")),
    ] {
        for reverse in [false, true] {
            let bytes = |text: Option<&'static str>| text.map(Bytes::from);
            let options = ScanOptions {
                start: bytes(start),
                end: bytes(end),
                prefix: bytes(prefix),
                reverse,
            };
            let mut expected: Vec<_> = model
                .keys()
                .filter(|key| start.is_none_or(|start| &key[..] >= start.as_bytes()))
                .filter(|key| end.is_none_or(|end| &key[..] < end.as_bytes()))
                .filter(|key| prefix.is_none_or(|prefix| key.starts_with(prefix.as_bytes())))
                .cloned()
                .map(Bytes::from)
                .collect();
            if reverse {
                expected.reverse();
            }
            assert_eq!(keys(&store, options), expected, "{start:?} {end:?} {prefix:?} {reverse}");
        }
    }
}

#[test]
fn a_cursor_turns_round_anywhere() {
    let (store, model) = filled();
    let sorted: Vec<_> = model.into_iter().collect();
    let mut cursor = store.cursor(ScanOptions::default()).unwrap();
    let mut at = sorted.len() / 2;
    cursor.seek(&sorted[at].0).unwrap();
    let mut state = 9u64;
    for _ in 0..2000 {
        assert_eq!(cursor.key(), sorted[at].0);
        assert_eq!(cursor.value().unwrap(), sorted[at].1);
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        match (state >> 33) % 2 {
            0 if at + 1 < sorted.len() => {
                cursor.next().unwrap();
                at += 1;
            }
            1 if at > 0 => {
                cursor.prev().unwrap();
                at -= 1;
            }
            _ => {}
        }
    }
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.key(), sorted[sorted.len() - 1].0);
    cursor.next().unwrap();
    assert!(!cursor.valid());
    cursor.seek_before(&sorted[10].0).unwrap();
    assert_eq!(cursor.key(), sorted[9].0);
}

#[test]
fn a_range_sees_one_instant_while_writes_and_compactions_go_on() {
    let (store, model) = filled();
    let mut range = store.range(ScanOptions::default()).unwrap();
    let mut seen = Vec::new();
    for at in 0.. {
        let Some(item) = range.next() else { break };
        let item = item.unwrap();
        seen.push((item.key.to_vec(), item.value.to_vec()));
        store.put(format!("key{at:03}").as_bytes(), b"later").unwrap();
        store.delete(&item.key).unwrap();
        if at % 100 == 0 {
            store.compact(None, None, &mut |_, _| {}).unwrap();
        }
    }
    assert_eq!(seen, model.into_iter().collect::<Vec<_>>());
}

#[test]
fn blocks_begin_with_keys_in_order_that_have_the_prefix() {
    let (store, model) = filled();
    store.compact(None, None, &mut |_, _| {}).unwrap();
    let all = store.block_keys(b"");
    assert!(all.len() > 2 && all.is_sorted());
    assert!(all.iter().all(|key| model.contains_key(&key[..])));
    assert_eq!(all[0], keys(&store, ScanOptions::default())[0]);
    let some = store.block_keys(b"key2");
    assert!(all.iter().filter(|key| key.starts_with(b"key2")).eq(&some));
}
