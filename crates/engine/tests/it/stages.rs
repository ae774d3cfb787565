//! The books under load: nothing is lost while they are read and the sampling changes.

use std::sync::atomic::{AtomicBool, Ordering};

use tallybook::stages::{Exit, Stage};
use tallybook::{Options, Resources, Store};

fn open(dir: &tempfile::TempDir, sample_every: u32) -> Store {
    let options = Options { sample_every, memtable_bytes: 256 << 10, ..Options::default() };
    Store::open(dir.path(), options).unwrap()
}

#[test]
fn with_every_operation_timed_none_is_missed_under_load() {
    const THREADS: u32 = 4;
    const EACH: u32 = 5_000;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, 1);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut counts = vec![0];
            while !is_done.load(Ordering::Relaxed) {
                counts.push(store.stages().times(Stage::PutTotal).count());
            }
            counts
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    for at in 0..EACH {
                        let key = (at * THREADS + thread).to_be_bytes();
                        store.put(&key, &[thread as u8; 100]).unwrap();
                        assert_eq!(store.get(&key).unwrap().unwrap()[0], thread as u8);
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
        assert!(looking.join().unwrap().is_sorted(), "counts never go back");
    });
    // What the background does may come in between: both are taken while it did nothing.
    let (stages, sums) = loop {
        let (stages, sums) = (store.stages(), store.stage_sums());
        let again = store.stages();
        let is_same = |&stage: &Stage| stages.times(stage).count() == again.times(stage).count();
        if Stage::ALL.iter().all(is_same) {
            break (stages, sums);
        }
    };
    let all = u64::from(THREADS * EACH);
    for stage in [Stage::PutWait, Stage::PutJournal, Stage::PutMemtable, Stage::PutTotal] {
        assert_eq!(stages.times(stage).count(), all, "{}", stage.name());
    }
    assert_eq!(stages.times(Stage::GetTotal).count(), all);
    let ended = [Exit::Memory, Exit::L0, Exit::L1, Exit::L2, Exit::Lower, Exit::Missed];
    assert_eq!(ended.map(|exit| stages.exits(exit)).iter().sum::<u64>(), all);
    assert_eq!(stages.exits(Exit::ValueInline), all);
    assert_eq!(sums.sample_every, stages.sample_every);
    for &stage in Stage::ALL {
        let times = stages.times(stage);
        assert_eq!(sums.times(stage), (times.count(), times.total()), "{}", stage.name());
    }
    for &exit in Exit::ALL {
        assert_eq!(sums.exits(exit), stages.exits(exit), "{}", exit.name());
    }
    store.get(b"absent").unwrap();
    let since = store.stage_sums().since(&sums);
    assert_eq!((since.exits(Exit::Missed), since.times(Stage::PutTotal).0), (1, 0));
}

#[test]
fn sampling_changes_while_the_store_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, 0);
    let put = |times| {
        for _ in 0..times {
            store.put(b"key", b"value").unwrap();
        }
    };
    let timed = || store.stages().times(Stage::PutTotal).count();
    put(1000);
    assert_eq!(timed(), 0);
    store.set_sample_every(1);
    put(10);
    assert!((8..=10).contains(&timed()), "{}", timed());
    assert_eq!(store.stages().sample_every, 1);
    let out_of_range = Options { sample_every: (1 << 20) + 1, ..Options::default() };
    let other = tempfile::tempdir().unwrap();
    let refused = Store::open(other.path(), out_of_range).unwrap_err();
    assert!(refused.to_string().contains("sample_every"), "{refused}");
}

#[test]
fn compactions_tell_where_their_time_goes() {
    let dir = tempfile::tempdir().unwrap();
    let resources = Resources::new(Default::default()).unwrap();
    let options = Options { memtable_bytes: 64 << 10, ..Options::default() };
    let store = Store::open_with(dir.path(), options, resources).unwrap();
    for round in 0..20_u32 {
        for at in 0..300_u32 {
            store.put(&(at * 7 + round).to_be_bytes(), &[round as u8; 200]).unwrap();
        }
        store.flush().unwrap();
    }
    store.compact(None, None, &mut |_, _| {}).unwrap();
    let stages = store.stages();
    let count = |stage| stages.times(stage).count();
    assert!(count(Stage::FlushTotal) >= 20 && count(Stage::FlushWait) >= 20);
    assert!(count(Stage::CompactionTotal) > 0);
    let parts = [
        Stage::CompactionRead,
        Stage::CompactionMerge,
        Stage::CompactionBuild,
        Stage::CompactionWrite,
    ];
    for part in parts {
        assert!(stages.times(part).total().as_nanos() > 0, "{}", part.name());
        assert!(stages.times(part).total() <= stages.times(Stage::CompactionTotal).total());
    }
    assert!(count(Stage::SyncManifest) >= 20);
}
