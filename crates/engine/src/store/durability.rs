//! When the journal is synced: by a write that waits for it, by the clock, on request.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::inner::{Commit, Inner};
use super::stats::add;
use crate::error::Result;
use crate::resources::Work;
use crate::stall;

/// An interval sync is started this long before it is due: the thread that does it may have to wait for a
/// processor.
const EARLY_NS: u64 = 10_000_000;

/// Writers are slowed once an interval sync is later than this.
const LATE_NS: u64 = 100_000_000;

/// `sync_due_ns` when nothing waits for a sync.
pub(super) const NEVER_NS: u64 = u64::MAX;

impl Inner {
    /// Waits until everything up to `lsn` is durable; a mark follows each sync.
    pub(super) fn sync_upto(&self, lsn: u64) -> Result<()> {
        self.note_sync(self.sync.sync_upto(lsn))
    }

    /// Waits until tables that are made of what was written up to `lsn` may be installed. What they hold
    /// themselves is durable with them; a value that they point at has to be synced.
    pub(super) fn sync_values(&self, lsn: u64) -> Result<()> {
        match self.sync.has_unsynced_values() {
            true => self.note_sync(self.sync.sync_journal_upto(lsn)),
            false => Ok(()),
        }
    }

    fn note_sync(&self, synced: Result<bool>) -> Result<()> {
        match synced {
            Ok(false) => Ok(()),
            Ok(true) => {
                add(&self.counters.syncs, 1);
                let mut commit = self.commit.lock();
                // A store that has ended writing syncs what it acknowledged, and no more.
                if self.check_writable().is_err() {
                    return Ok(());
                }
                self.append_mark(&mut commit);
                drop(commit);
                if self.is_naming_due() {
                    self.request(Work::Flush);
                }
                Ok(())
            }
            Err(error) => {
                self.poison_if_sync_failed(&error);
                Err(error)
            }
        }
    }

    /// Appends a mark. One that can't be written proves nothing and costs nothing: the sync was made.
    pub(super) fn append_mark(&self, commit: &mut Commit) {
        let next_seqno = commit.last_seqno + 1;
        let marked = commit.writer.append_mark(next_seqno, self.resources.clock.now_ms());
        if let Err(error) = marked {
            self.poison_if_sync_failed(&error);
        }
        self.note_rotation(commit);
    }

    /// Waits until everything acknowledged so far is synced.
    pub(super) fn sync_all(&self) -> Result<()> {
        self.check_writable()?;
        self.sync_upto(self.sync.appended_lsn())
    }

    /// Has a sync started within `ms`; slows the writer while one is late.
    pub(super) fn note_interval(&self, ms: u32) {
        let now_ns = self.resources.clock.steady_ns();
        let due_ns = now_ns + u64::from(ms) * 1_000_000;
        let before_ns = self.sync_due_ns.fetch_min(due_ns, Ordering::AcqRel);
        if due_ns < before_ns {
            self.resources.hurry();
        }
        if now_ns > before_ns.saturating_add(LATE_NS) && !self.resources.is_inline() {
            add(&self.counters.stalled_writes, 1);
            add(&self.counters.stalled_ns, stall::POLL.as_nanos() as u64);
            self.resources.clock.sleep(stall::POLL);
        }
    }

    /// When the interval sync is started that is due next, if one is. What was acknowledged is synced though
    /// writing has ended since, unless it did so by a sync of the journal.
    pub(super) fn sync_start_ns(&self) -> Option<u64> {
        let due_ns = self.sync_due_ns.load(Ordering::Acquire);
        let can_sync = !self.closed.load(Ordering::Acquire) && self.sync.check().is_ok();
        let is_due = due_ns != NEVER_NS && can_sync;
        is_due.then(|| due_ns.saturating_sub(EARLY_NS))
    }

    /// Starts the interval sync if it is time.
    pub(super) fn sync_if_due(&self) {
        let now_ns = self.resources.clock.steady_ns();
        let Some(start_ns) = self.sync_start_ns().filter(|&start_ns| now_ns >= start_ns) else {
            return;
        };
        let due_ns = start_ns + EARLY_NS;
        if now_ns > due_ns {
            add(&self.counters.sync_overruns, 1);
            self.counters.sync_overrun_max_ns.fetch_max(now_ns - due_ns, Ordering::Relaxed);
        }
        // Writes from here on set a new time; those before are covered by the sync. By an exchange, so that
        // what a write appended before it set its time is seen below.
        self.sync_due_ns.swap(NEVER_NS, Ordering::AcqRel);
        // A failure has poisoned the store, which every writer will see.
        let _ = self.sync_upto(self.sync.appended_lsn());
    }

    /// How long nothing was written.
    pub(super) fn idle_for(&self) -> Duration {
        let now_ns = self.resources.clock.steady_ns();
        Duration::from_nanos(now_ns.saturating_sub(self.last_write_ns.load(Ordering::SeqCst)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use crate::error::Error;
    use crate::resources::{Participant, ResourceOptions, Resources};
    use crate::vfs::faulty::{Fault, FaultyFileSystem};
    use crate::vfs::{CrashMode, FileSystem, ManualClock, MemoryFileSystem};
    use crate::{Durability, Options, Store};

    const SEGMENT_BYTES: u64 = 16 << 10;

    fn open(fs: &MemoryFileSystem) -> crate::error::Result<Store> {
        let options = Options {
            durability: Durability::Os,
            segment_bytes_min: SEGMENT_BYTES,
            segment_bytes_max: SEGMENT_BYTES,
            ..Options::default()
        };
        let clock = Arc::new(ManualClock::at_ms(1));
        let resources = Resources::inline(ResourceOptions::default(), Arc::new(fs.clone()), clock);
        Store::open_with("/s", options, resources)
    }

    /// Puts these numbers, each with a value of so many bytes.
    fn put(store: &Store, numbers: std::ops::Range<u32>, bytes: usize) {
        for number in numbers {
            store.put(&number.to_be_bytes(), &vec![number as u8; bytes]).unwrap();
        }
    }

    /// Numbers that have their values; the others have none.
    fn found(store: &Store, numbers: std::ops::Range<u32>, bytes: usize) -> usize {
        let is_there = |number: &u32| match store.get(&number.to_be_bytes()).unwrap() {
            Some(value) => {
                assert_eq!(value, vec![*number as u8; bytes]);
                true
            }
            None => false,
        };
        numbers.filter(is_there).count()
    }

    #[test]
    fn a_flush_syncs_the_journal_only_for_values_that_tables_point_at() {
        for (bytes, syncs) in [(100, 0), (4000, 1)] {
            let fs = MemoryFileSystem::new();
            let store = open(&fs).unwrap();
            put(&store, 0..500, bytes);
            let before = store.stats();
            assert!(before.unsynced_bytes > 0);
            store.flush().unwrap();
            let after = store.stats();
            assert_eq!(after.syncs - before.syncs, syncs, "{bytes} bytes");
            assert_eq!(after.unsynced_bytes, 0, "{bytes} bytes");
        }
    }

    #[test]
    fn what_was_flushed_survives_power_loss_and_writing_goes_on() {
        for bytes in [100, 4000] {
            for seed in 0..40 {
                let fs = MemoryFileSystem::new();
                let store = open(&fs).unwrap();
                put(&store, 0..300, bytes);
                store.flush().unwrap();
                put(&store, 300..600, bytes);
                let mode = if seed == 0 { CrashMode::LoseUnsynced } else { CrashMode::Random };
                let fs = fs.image().crash(mode, seed);
                drop(store);

                let store = open(&fs).unwrap();
                assert_eq!(found(&store, 0..300, bytes), 300);
                let survived = 300 + found(&store, 300..600, bytes) as u32;
                assert_eq!(found(&store, 0..survived, bytes), survived as usize, "a prefix");
                put(&store, 600..700, bytes);
                let fs = fs.image().crash(CrashMode::KeepAll, 0);
                drop(store);

                let store = open(&fs).unwrap();
                assert_eq!(found(&store, 0..survived, bytes), survived as usize);
                assert_eq!(found(&store, survived..600, bytes), 0);
                assert_eq!(found(&store, 600..700, bytes), 100);
            }
        }
    }

    #[test]
    fn a_missing_newest_segment_is_found_out() {
        let fs = MemoryFileSystem::new();
        let store = open(&fs).unwrap();
        put(&store, 0..500, 100);
        while store.inner.flush_step() {}
        let newest = store.inner.log.lock().last().unwrap().segment.number();
        let fs = fs.image().crash(CrashMode::KeepAll, 0);
        drop(store);
        let newest = crate::file_name::segment(Path::new("/s"), newest);
        assert!(fs.exists(&newest).unwrap());
        fs.remove(&newest).unwrap();
        match open(&fs) {
            Err(Error::Corruption { file, .. }) => assert_eq!(file, newest),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_segment_that_replay_starts_behind_is_not_missed() {
        let fs = MemoryFileSystem::new();
        let store = open(&fs).unwrap();
        put(&store, 0..500, 100);
        while store.inner.flush_step() {}
        store.close().unwrap();
        for _ in 0..2 {
            let store = open(&fs).unwrap();
            assert_eq!(found(&store, 0..500, 100), 500);
            while store.inner.flush_step() {}
            store.close().unwrap();
        }
    }

    /// A failed write of the manifest ends writing. What was acknowledged before, to be synced within its
    /// interval, was never synced then, not even by closing: a power loss later took it.
    #[test]
    fn what_was_acknowledged_is_synced_though_writing_has_ended_since() {
        type End = fn(Store, &ManualClock);
        let by_clock: End = |store, clock| {
            assert_eq!(store.inner.tick(), Duration::from_millis(90));
            clock.advance(Duration::from_millis(90));
            store.inner.tick();
            // The process ends here.
            std::mem::forget(store);
        };
        let by_close: End =
            |store, _| assert!(matches!(store.close(), Err(Error::ReadOnly { .. })));
        let by_drop: End = |store, _| drop(store);
        for end in [by_clock, by_close, by_drop] {
            let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
            let faulty = FaultyFileSystem::new(Arc::new(fs.clone()));
            let resources = Resources::inline(
                ResourceOptions::default(),
                Arc::new(faulty.clone()),
                clock.clone(),
            );
            let durability = Durability::Interval(100);
            let options = Options { durability, ..Options::default() };
            let store = Store::open_with("/s", options, resources).unwrap();
            store.put(b"key", b"value").unwrap();
            let is_edit = |operation: &str, path: &Path| {
                operation == "write_all_at" && path.to_string_lossy().contains("MANIFEST")
            };
            faulty.fail_at(0, Fault::errno(libc::EIO).only(is_edit));
            assert!(matches!(store.flush(), Err(Error::ReadOnly { .. })));
            assert!(matches!(store.put(b"later", b""), Err(Error::ReadOnly { .. })));
            end(store, &clock);
            let store = open(&fs.image().crash(CrashMode::LoseUnsynced, 0)).unwrap();
            assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        }
    }

    /// Who waited for the lock while the store was closed handed over a memtable that nobody took: what it
    /// takes stayed counted among the memory of all stores.
    #[test]
    fn a_flush_that_was_overtaken_by_a_close_takes_no_memory() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let resources = Resources::inline(ResourceOptions::default(), Arc::new(fs), clock);
        let store = Store::open_with("/s", Options::default(), resources.clone()).unwrap();
        store.put(b"key", b"value").unwrap();
        let commit = store.inner.commit.lock();
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| store.flush());
            // It comes to the lock, most likely: else it is refused sooner.
            std::thread::sleep(Duration::from_millis(100));
            store.inner.closed.store(true, Ordering::Release);
            drop(commit);
            assert!(flush.join().unwrap().is_err());
        });
        assert_eq!(resources.memtable_bytes.load(Ordering::Relaxed), 0);
    }
}
