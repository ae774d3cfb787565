//! The books tell the truth: a delay shows in the stage where it was made, and in no other.
//!
//! Each delay is made several times, and medians are looked at, so that being put off the processor
//! once in a while proves nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::options::{Durability, JournalWriting, Options, Reading};
use crate::resources::{ResourceOptions, Resources};
use crate::stages::{Exit, Stage, Stages};
use crate::store::{Store, WriteOptions};
use crate::vfs::faulty::{Fault, FaultyFileSystem};
use crate::vfs::{MemoryFileSystem, SystemClock};

const DELAY: Duration = Duration::from_millis(5);
const TIMES: usize = 7;

struct Bench {
    fs: FaultyFileSystem,
    store: Store,
}

impl Bench {
    /// A store that reads and writes by system calls, and does nothing in the background.
    fn new() -> Bench {
        let fs = FaultyFileSystem::new(Arc::new(MemoryFileSystem::new()));
        let (shared, clock) = (Arc::new(fs.clone()), Arc::new(SystemClock::default()));
        let no_cache = ResourceOptions { block_cache_bytes: 0, ..ResourceOptions::default() };
        let options = Options {
            durability: Durability::Os,
            journal_writing: JournalWriting::Written,
            reading: Reading::Pread,
            background: false,
            sample_every: 1,
            ..Options::default()
        };
        let resources = Resources::inline(no_cache, shared, clock);
        let store = Store::open_with(Path::new("/store"), options, resources).unwrap();
        Bench { fs, store }
    }

    /// Delays the next operation for which `only` is true of name and path.
    fn delay(&self, only: fn(&str, &Path) -> bool) {
        self.fs.fail_at(1, Fault::delay(DELAY).only(only));
    }

    /// Does `work` several times; the stages whose median was as long as the delay.
    fn slow_stages(&self, mut work: impl FnMut(usize)) -> Vec<&'static str> {
        let (before, fired) = (self.store.stages(), self.fs.fired());
        (0..TIMES).for_each(&mut work);
        let fired = self.fs.fired() - fired;
        assert!(fired == 0 || fired == TIMES as u64, "a delay came to nothing: {fired}");
        let stages = self.store.stages().since(&before);
        let is_slow = |stage: &Stage| stages.times(*stage).percentile(50.0) >= DELAY * 9 / 10;
        Stage::ALL.iter().copied().filter(is_slow).map(Stage::name).collect()
    }
}

fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "journal")
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sst")
}

#[test]
fn a_slow_append_shows_in_the_journal_stage_of_puts() {
    let bench = Bench::new();
    bench.store.put(b"first", b"makes a segment").unwrap();
    let slow = bench.slow_stages(|_| {
        bench.delay(|operation, path| operation == "write_all_at" && is_journal(path));
        bench.store.put(b"key", b"value").unwrap();
    });
    assert_eq!(slow, ["put.journal", "put.total"]);
}

#[test]
fn a_slow_sync_shows_in_the_sync_stages() {
    let bench = Bench::new();
    let options = WriteOptions { durability: Some(Durability::Sync), ..WriteOptions::default() };
    bench.store.put_with(b"first", b"makes a segment", &options).unwrap();
    let slow = bench.slow_stages(|_| {
        bench.delay(|operation, path| operation == "sync_data" && is_journal(path));
        bench.store.put_with(b"key", b"value", &options).unwrap();
    });
    assert_eq!(slow, ["put.sync", "put.total", "sync.journal"]);
}

#[test]
fn a_slow_block_shows_in_the_fetch_stage_of_tables() {
    let bench = Bench::new();
    bench.store.put(b"key", b"value").unwrap();
    bench.store.flush().unwrap();
    let slow = bench.slow_stages(|_| {
        bench.delay(|operation, path| operation == "read_exact_at" && is_table(path));
        assert_eq!(bench.store.get(b"key").unwrap().unwrap(), "value");
    });
    assert_eq!(slow, ["get.head", "get.total", "head.l0", "table.fetch"]);
}

#[test]
fn a_slow_value_shows_in_the_fetch_stage_of_the_journal() {
    let bench = Bench::new();
    bench.store.put(b"key", &[7; 5000]).unwrap();
    let slow = bench.slow_stages(|_| {
        bench.delay(|operation, path| operation == "read_exact_at" && is_journal(path));
        assert_eq!(bench.store.get(b"key").unwrap().unwrap(), [7; 5000][..]);
    });
    assert_eq!(slow, ["get.body", "get.total", "journal.fetch"]);
}

#[test]
fn a_lock_that_is_held_shows_under_its_name() {
    let bench = Bench::new();
    let inner = &bench.store.inner;
    let slow = bench.slow_stages(|_| {
        let commit = inner.commit.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| bench.store.put(b"key", b"value").unwrap());
            // The writer has to come to the lock before the delay counts for it.
            std::thread::sleep(DELAY + DELAY);
            drop(commit);
        });
    });
    assert_eq!(slow, ["put.wait", "put.total", "lock.commit"]);
}

#[test]
fn a_slow_table_shows_in_the_write_stage_of_flushes() {
    let bench = Bench::new();
    let slow = bench.slow_stages(|at| {
        bench.store.put(format!("key{at}").as_bytes(), b"value").unwrap();
        bench.delay(|operation, path| operation == "write_all_at" && is_table(path));
        bench.store.flush().unwrap();
    });
    assert_eq!(slow, ["flush.write", "flush.total"]);
}

#[test]
fn exits_add_up_to_the_reads_that_were_made() {
    let bench = Bench::new();
    let put = |key: &str| bench.store.put(key.as_bytes(), &[1; 2000]).unwrap();
    put("table");
    bench.store.flush().unwrap();
    put("memory");
    bench.store.delete(b"gone").unwrap();
    let before = bench.store.stages();
    for _ in 0..10 {
        for (key, is_there) in [("table", true), ("memory", true), ("gone", false), ("none", false)]
        {
            assert_eq!(bench.store.get(key.as_bytes()).unwrap().is_some(), is_there);
            assert_eq!(bench.store.head(key.as_bytes()).unwrap().is_some(), is_there);
        }
    }
    let stages: Stages = bench.store.stages().since(&before);
    let found = [Exit::Memory, Exit::L0, Exit::L1, Exit::Missed].map(|exit| stages.exits(exit));
    assert_eq!(found, [40, 20, 0, 20]);
    let files = [Exit::FileIndex, Exit::FileFilter, Exit::FileBlock].map(|exit| stages.exits(exit));
    assert_eq!(files, [20, 0, 20], "none sorts before the only key of the only file");
    assert_eq!((stages.exits(Exit::ValueJournal), stages.exits(Exit::ValueInline)), (20, 0));
    assert_eq!(stages.times(Stage::GetTotal).count(), 40);
    assert_eq!(stages.times(Stage::GetBody).count(), 20);
    assert_eq!(stages.times(Stage::HeadMissed).count(), 20);
}

#[test]
fn the_parts_of_a_put_lie_within_its_total() {
    let bench = Bench::new();
    for at in 0..500_u32 {
        bench.store.put(&at.to_be_bytes(), b"value").unwrap();
    }
    let stages = bench.store.stages();
    let total = |stage| stages.times(stage).total();
    let parts = [
        Stage::PutPrepare,
        Stage::PutStall,
        Stage::PutWait,
        Stage::PutJournal,
        Stage::PutMemtable,
        Stage::PutSync,
    ];
    assert_eq!(stages.times(Stage::PutTotal).count(), 500);
    let sum: Duration = parts.into_iter().map(total).sum();
    assert!(sum <= total(Stage::PutTotal), "{sum:?} of {:?}", total(Stage::PutTotal));
    assert!(total(Stage::PutJournal) > Duration::ZERO);
}
