//! Many stores on one set of resources; checkpoints; background threads.

use std::sync::Arc;

use tallybook::{Options, ResourceOptions, Resources, Store};

fn small() -> Options {
    Options {
        memtable_bytes: 32 << 10,
        write_buffer_bytes: 128 << 10,
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 256 << 10,
        inline_max_bytes: 400,
        ..Options::default()
    }
}

#[test]
fn many_stores_share_threads_and_budgets() {
    let dir = tempfile::tempdir().unwrap();
    let options = ResourceOptions { flush_threads: 2, ..ResourceOptions::default() };
    let resources = Resources::new(options).unwrap();
    let stores: Vec<Store> = (0..20)
        .map(|at| {
            let path = dir.path().join(format!("store{at}"));
            Store::open_with(path, small(), resources.clone()).unwrap()
        })
        .collect();
    std::thread::scope(|scope| {
        for (at, store) in stores.iter().enumerate() {
            scope.spawn(move || {
                for key in 0..1000u32 {
                    store.put(&key.to_be_bytes(), &vec![at as u8; key as usize % 700]).unwrap();
                }
            });
        }
    });
    for (at, store) in stores.iter().enumerate() {
        for key in 0..1000u32 {
            let value = store.get(&key.to_be_bytes()).unwrap().unwrap();
            assert_eq!(value, vec![at as u8; key as usize % 700]);
        }
        store.close().unwrap();
    }
}

#[test]
fn a_checkpoint_opens_as_it_was_and_is_not_touched_by_later_writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), small()).unwrap();
    let value = |round: u32, at: u32| vec![(round * 7 + at) as u8; (at as usize * 13) % 1500];
    for at in 0..2000u32 {
        store.put(&at.to_be_bytes(), &value(0, at)).unwrap();
    }
    store.checkpoint(dir.path().join("copy")).unwrap();
    assert!(store.checkpoint(dir.path().join("copy")).is_err(), "the directory is not empty");
    std::fs::create_dir_all(dir.path().join("others/own")).unwrap();
    assert!(store.checkpoint(dir.path().join("others")).is_err(), "it holds a directory");
    assert!(!dir.path().join("others/CURRENT").exists());
    for round in 1..5 {
        for at in 0..2000u32 {
            store.put(&at.to_be_bytes(), &value(round, at)).unwrap();
        }
    }
    store.compact(None, None, &mut |_, _| {}).unwrap();
    store.close().unwrap();
    let copy = Store::open(dir.path().join("copy"), small()).unwrap();
    for at in 0..2000u32 {
        assert_eq!(copy.get(&at.to_be_bytes()).unwrap().unwrap(), value(0, at));
    }
    assert!(copy.verify(&mut |_, _| {}).unwrap().damage.is_empty());
    copy.put(b"new", b"x").unwrap();
    let again = Arc::new(Store::open(dir.path().join("store"), small()).unwrap());
    assert_eq!(again.get(&7u32.to_be_bytes()).unwrap().unwrap(), value(4, 7));
}
