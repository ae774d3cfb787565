//! Dead values leave the journal by themselves; live ones stay readable.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tallybook::vfs::{FileSystem, ManualClock, MemoryFileSystem};
use tallybook::{Options, ResourceOptions, Resources, Store};

fn open(fs: &MemoryFileSystem, clock: &Arc<ManualClock>) -> Store {
    let resources =
        Resources::inline(ResourceOptions::default(), Arc::new(fs.clone()), clock.clone());
    let options = Options {
        memtable_bytes: 64 << 10,
        memtable_journal_bytes: 1 << 20,
        write_buffer_bytes: 256 << 10,
        segment_bytes_min: 256 << 10,
        segment_bytes_max: 256 << 10,
        ..Options::default()
    };
    Store::open_with("/s", options, resources).unwrap()
}

fn value(round: u32, at: u32) -> Vec<u8> {
    let mut value = vec![(round ^ at) as u8; 10_000];
    value[..4].copy_from_slice(&round.to_le_bytes());
    value[4..8].copy_from_slice(&at.to_le_bytes());
    value
}

#[test]
fn overwritten_values_are_given_back_when_the_store_is_idle() {
    let fs = MemoryFileSystem::new();
    let clock = Arc::new(ManualClock::at_ms(1));
    let store = open(&fs, &clock);
    for round in 0..200 {
        for at in 0..20u32 {
            store.put(&at.to_be_bytes(), &value(round, at)).unwrap();
        }
    }
    clock.advance(Duration::from_secs(2));
    // Anything that runs the background work of an idle store.
    store.get(b"x").unwrap();
    store.put(b"x", b"").unwrap();
    clock.advance(Duration::from_secs(2));
    store.sync().unwrap();
    store.flush().unwrap();
    store.compact(None, None, &mut |_, _| {}).unwrap();
    let stats = store.stats();
    let live = 20 * 10_000;
    let at_rest = stats.segment_bytes + stats.levels.iter().map(|level| level.bytes).sum::<u64>();
    assert!(at_rest <= live * 13 / 10, "{at_rest} bytes at rest for {live} live: {stats:?}");
    let on_disk: u64 = fs
        .list(Path::new("/s"))
        .unwrap()
        .iter()
        .map(|name| fs.open_read(&Path::new("/s").join(name)).unwrap().len().unwrap())
        .sum();
    let apart = stats.active_segment_bytes + stats.spare_segment_bytes;
    assert!(on_disk <= live * 13 / 10 + apart + 100_000, "{on_disk} bytes on disk");
    for at in 0..20u32 {
        assert!(store.get(&at.to_be_bytes()).unwrap().unwrap() == value(199, at));
    }
}

#[test]
fn values_are_found_through_one_collection_after_another_and_reopening() {
    let fs = MemoryFileSystem::new();
    let clock = Arc::new(ManualClock::at_ms(1));
    let mut expected = vec![0u32; 100];
    let mut index_bytes = Vec::new();
    for round in 0..30u32 {
        let store = open(&fs, &clock);
        for at in 0..100u32 {
            // A few keys stay for long, so that their values are collected again and again.
            if round == 0 || (at % 10) > 2 + (round % 7) {
                store.put(&at.to_be_bytes(), &value(round, at)).unwrap();
                expected[at as usize] = round;
            }
        }
        store.compact(None, None, &mut |_, _| {}).unwrap();
        for at in 0..100u32 {
            let found = store.get(&at.to_be_bytes()).unwrap().unwrap();
            assert!(found == value(expected[at as usize], at), "key {at} in round {round}");
        }
        assert!(store.verify(&mut |_, _| {}).unwrap().damage.is_empty());
        index_bytes.push(store.stats().collected_index_bytes);
        store.close().unwrap();
    }
    // Every value could have moved, and few places of each are named at once.
    assert!(index_bytes.iter().any(|&bytes| bytes > 0), "the books say where values moved to");
    assert!(index_bytes.iter().all(|&bytes| bytes < 100 * 100), "{index_bytes:?}");
}
