//! Figures of a store: that they are those of what it holds and of what background work is behind by.

use tallybook::options::{Durability, Options};
use tallybook::store::Store;

#[test]
fn journal_is_unsynced_until_it_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Os, ..Options::default() };
    let store = Store::open(dir.path().join("store"), options).unwrap();
    assert_eq!(store.stats().unsynced_bytes, 0);
    store.put(b"key", &[0; 5000]).unwrap();
    assert!(store.stats().unsynced_bytes >= 5000);
    store.sync().unwrap();
    assert_eq!(store.stats().unsynced_bytes, 0);
    assert!(store.stats().disk_available_bytes.unwrap() > 0);
    store.close().unwrap();
}

#[test]
fn debt_is_the_bytes_of_a_level_with_too_many_runs() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { background: false, level_runs_max: 2, ..Options::default() };
    let store = Store::open(dir.path().join("store"), options).unwrap();
    for round in 1..=8 {
        store.put(b"key", b"value").unwrap();
        store.flush().unwrap();
        let stats = store.stats();
        assert_eq!(stats.levels[0].runs, round);
        let debt = if round < 8 { 0 } else { stats.levels[0].bytes };
        assert_eq!(stats.compaction_debt_bytes, debt);
        assert!(stats.table_index_bytes > 0);
        assert_eq!(stats.immutable_memtable_bytes, 0);
    }
    store.compact(None, None, &mut |_, _| ()).unwrap();
    assert_eq!(store.stats().compaction_debt_bytes, 0);
    store.close().unwrap();
}
