//! Snapshots keep what they saw, and let files go when they are dropped.

use std::sync::Arc;

use tallybook::vfs::{ManualClock, MemoryFileSystem};
use tallybook::{Options, ResourceOptions, Resources, ScanOptions, Store};

#[test]
fn a_snapshot_keeps_old_values_through_overwrites_compaction_and_collection() {
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
        inline_max_bytes: 512,
        ..Options::default()
    };
    let store = Store::open_with("/s", options, resources).unwrap();
    let value = |round: u8, at: u8| vec![round ^ at; 100 + at as usize * 40];
    let mut snapshots = Vec::new();
    for round in 0..6u8 {
        for at in 0..50u8 {
            store.put(&[at], &value(round, at)).unwrap();
        }
        if round == 3 {
            store.delete_range(&[10], &[20]).unwrap();
        }
        snapshots.push((round, store.snapshot()));
    }
    for step in 0..3 {
        for (round, snapshot) in &snapshots {
            for at in 0..50u8 {
                let expected = (*round != 3 || !(10..20).contains(&at)).then(|| value(*round, at));
                let found = snapshot.get(&[at]).unwrap().map(|value| value.to_vec());
                assert!(found == expected, "key {at} of round {round} at step {step}");
            }
            let count = snapshot.range(ScanOptions::default()).unwrap().count();
            assert_eq!(count, if *round == 3 { 40 } else { 50 });
        }
        store.compact(None, None, &mut |_, _| {}).unwrap();
    }
    assert_eq!(store.stats().snapshots, 6);
    let before = store.stats();
    drop(snapshots);
    store.compact(None, None, &mut |_, _| {}).unwrap();
    let after = store.stats();
    assert_eq!(after.levels.iter().map(|level| level.entries).sum::<u64>(), 50);
    assert!(after.segment_bytes < before.segment_bytes, "{after:?}");
}
