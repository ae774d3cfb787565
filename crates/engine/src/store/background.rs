//! What the threads of the resources are called for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::compacting::{Compacted, IDLE_AFTER};
use super::inner::Inner;
use super::rest::REST_AFTER;
use super::retries::Task;
use crate::error::{Error, Result};
use crate::journal::{JournalPosition, SEGMENT_HEADER_BYTES, Segment};
use crate::key::SeqNo;
use crate::resources::{Participant, Work};
use crate::version::VersionEdit;

/// An idle store is not flushed for less unflushed journal than this.
const IDLE_FLUSH_BYTES_MIN: u64 = 1 << 20;

/// Nor for less than this share of its size.
const IDLE_FLUSH_SHARE: u64 = 10;

/// A store that isn't at rest is looked at this often: whether it is idle, or a reader has let go.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Where an idle store was found to have nothing to do, it is looked at again after this: what may call for
/// work then is the clock, or that a reader has let go.
const IDLE_LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// So often a full disk is looked at again: what filled it may be another's, and go.
const ROOM_LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl Participant for Inner {
    fn prepare_step(&self) -> bool {
        let Some(_preparing) = self.preparing.try_lock() else { return false };
        self.check_writable().is_ok() && self.prepare_spare()
    }

    fn flush_step(&self) -> bool {
        // A flush names the segment too.
        !self.waits_to_flush() && (self.flush_one() || self.name_segment())
    }

    fn compaction_step(&self) -> bool {
        if !self.options.background || self.check_writable().is_err() {
            return false;
        }
        self.remove_obsolete();
        if self.settled.load(Ordering::Relaxed) && !self.is_read_credit_due() {
            return false;
        }
        let Some(_compacting) = self.compacting.try_lock() else { return false };
        // Closing waits for whoever holds that lock, and from then on the directory is another's.
        if self.check_writable().is_err() {
            return false;
        }
        let idle = self.is_idle_and_flushed();
        let may_rest = self.begin_to_rest();
        let merge = || Ok(self.compact_one(idle, None)? != Compacted::Nothing);
        let read_left_out = || match self.segments_avoided.due().first() {
            Some(&number) => self.read_left_out(number).map(|_| true),
            None => Ok(false),
        };
        let collect = || Ok(self.collect_one(idle)? || read_left_out()?);
        // What keeps merges from succeeding holds up no collection.
        let worked = self.attempt(Task::Merge, merge) || self.attempt(Task::Collect, collect);
        let has_more = worked || self.retries.retry_at_ns().is_some();
        let is_over = !has_more
            && !self.cancel.load(Ordering::Acquire)
            && self.flushes.lock().pending.is_empty();
        if may_rest && !is_over {
            self.settled.store(false, Ordering::SeqCst);
        }
        if worked {
            self.remove_obsolete();
            return true;
        }
        if idle {
            let now_ns = self.resources.clock.steady_ns();
            self.idle_look_ns.store(now_ns, Ordering::Relaxed);
        }
        if may_rest && self.settled.load(Ordering::SeqCst) {
            self.resources.spare_chunks.clear();
            if !self.attempt(Task::Rest, || self.rest().map(|()| true)) {
                self.settled.store(false, Ordering::SeqCst);
            }
        }
        false
    }

    fn tick(&self) -> Duration {
        if self.closed.load(Ordering::Acquire) {
            return IDLE_LOOK_INTERVAL;
        }
        self.sync_if_due();
        self.look_for_room_if_due();
        if self.idle_for() < REST_AFTER {
            // A store that is written again rests no more, whatever kept it from that.
            self.retries.note_success(Task::Rest);
        }
        for task in self.retries.take_due(self.resources.clock.steady_ns()) {
            self.request(Work::Prepare);
            self.request(task.work());
        }
        let now_ns = self.resources.clock.steady_ns();
        if self.merges_avoided.end_due(now_ns) | self.segments_avoided.end_due(now_ns) {
            self.settled.store(false, Ordering::SeqCst);
            self.request(Work::Compaction);
        }
        // Files whose last reader has let go meanwhile, or runs that reads have paid to have merged.
        if self.holds_old_files() || self.is_read_credit_due() {
            self.request(Work::Compaction);
        }
        if self.settled.load(Ordering::Relaxed) && self.has_expired_at_rest() {
            self.settled.store(false, Ordering::SeqCst);
        }
        if !self.settled.load(Ordering::Relaxed) && self.is_idle() {
            let share = self.state.load().version.bytes() / IDLE_FLUSH_SHARE;
            self.flush_more_than(share);
            if self.is_idle_look_due() {
                self.request(Work::Compaction);
            }
        }
        self.quiet_for()
    }
}

impl Inner {
    /// Does what a task asks for, unless it failed and waits; whether something was done.
    fn attempt(&self, task: Task, work: impl FnOnce() -> Result<bool>) -> bool {
        if self.retries.waits(task) {
            return false;
        }
        match work() {
            Ok(worked) => {
                self.retries.note_success(task);
                worked
            }
            // The store is closing.
            Err(Error::Busy) => false,
            Err(error) => {
                self.note_background_error(task, &error);
                false
            }
        }
    }

    /// For how long nothing is due by the clock, as far as is known now.
    fn quiet_for(&self) -> Duration {
        let rests = self.settled.load(Ordering::Relaxed) && !self.holds_old_files();
        let look = if rests { IDLE_LOOK_INTERVAL } else { LOOK_INTERVAL };
        let due_ns = [
            self.sync_start_ns(),
            self.retries.retry_at_ns(),
            self.merges_avoided.retry_at_ns(),
            self.segments_avoided.retry_at_ns(),
        ];
        let due_ns = due_ns.into_iter().flatten().min();
        let now_ns = self.resources.clock.steady_ns();
        due_ns.map_or(look, |due_ns| look.min(Duration::from_nanos(due_ns.saturating_sub(now_ns))))
    }

    /// On a disk that was full, looks now and then whether it still is.
    fn look_for_room_if_due(&self) {
        if !self.pool.is_disk_full() {
            return;
        }
        let now_ns = self.resources.clock.steady_ns();
        let since_ns = now_ns.saturating_sub(self.room_look_ns.load(Ordering::Relaxed));
        if Duration::from_nanos(since_ns) >= ROOM_LOOK_INTERVAL {
            self.room_look_ns.store(now_ns, Ordering::Relaxed);
            self.pool.look_for_room();
            if !self.pool.is_disk_full() {
                // A store that came to rest meanwhile has kept what it had no room to give back.
                self.settled.store(false, Ordering::SeqCst);
                self.request(Work::Compaction);
            }
            self.request(Work::Prepare);
        }
    }

    /// Says that the store rests, if it may, before it is looked whether there is anything to do: who writes
    /// meanwhile, lets a snapshot go, or finds that something has expired, takes that back. Whether it may.
    fn begin_to_rest(&self) -> bool {
        if self.idle_for() < REST_AFTER || !self.flushes.lock().pending.is_empty() {
            return false;
        }
        self.settled_at_ms.store(self.resources.clock.now_ms(), Ordering::Relaxed);
        self.settled.store(true, Ordering::SeqCst);
        // Either a writer sees that, or this sees the write.
        let still_may = self.idle_for() >= REST_AFTER;
        if !still_may {
            self.settled.store(false, Ordering::SeqCst);
        }
        still_may
    }

    /// Whether so much of a table has expired since the store came to rest that it is looked at again.
    fn has_expired_at_rest(&self) -> bool {
        let settled_at_ms = self.settled_at_ms.load(Ordering::Relaxed);
        let now_ms = self.resources.clock.now_ms();
        self.state.load().version.expires_within(settled_at_ms, now_ms)
    }

    /// A snapshot that is let go may have kept what an idle store would have given back.
    pub(super) fn note_unpinned(&self, seqno: SeqNo) {
        if self.settled.load(Ordering::SeqCst) && seqno < self.visible_seqno.load(Ordering::Acquire)
        {
            self.settled.store(false, Ordering::Relaxed);
        }
    }

    /// Whether there are files that go once nobody reads them.
    fn holds_old_files(&self) -> bool {
        !self.retired.lock().is_empty() || !self.obsolete.is_empty()
    }

    /// Whether nothing is flushed for now: the store is closed, read-only, or waits before it tries again.
    fn waits_to_flush(&self) -> bool {
        self.check_writable().is_err() || self.retries.waits(Task::Flush)
    }

    fn is_idle(&self) -> bool {
        // On a full disk nobody waits long for what is dead to go.
        let after = if self.pool.is_disk_full() { IDLE_AFTER / 10 } else { IDLE_AFTER };
        self.idle_for() >= after
    }

    /// Whether there is time for merges that aren't urgent. What is about to be flushed would be merged by
    /// another; on a full disk it may have to wait for this one.
    fn is_idle_and_flushed(&self) -> bool {
        self.is_idle() && (self.pool.is_disk_full() || self.flushes.lock().pending.is_empty())
    }

    /// Whether an idle store is to be looked at: it was not, or not lately, or may come to rest.
    fn is_idle_look_due(&self) -> bool {
        let looked_ns = self.idle_look_ns.load(Ordering::Relaxed);
        let since_ns = self.resources.clock.steady_ns().saturating_sub(looked_ns);
        looked_ns <= self.last_write_ns.load(Ordering::Relaxed)
            || Duration::from_nanos(since_ns) >= IDLE_LOOK_INTERVAL
            || self.idle_for() >= REST_AFTER
    }

    /// Has the manifest name the segment that takes the writes, so that its loss would be found out, and
    /// once something in it is synced that too, so that it would be found out even if all that proves it
    /// were lost with it. Whether it did.
    fn name_segment(&self) -> bool {
        let Some(_naming) = self.naming.try_lock() else { return false };
        // Closing waits for whoever holds that lock, and from then on the directory is another's.
        if self.waits_to_flush() {
            return false;
        }
        let (start, mut synced) = self.unnamed();
        if start.is_none() && synced.is_none() {
            return false;
        }
        if self.sync.has_unsynced_values() {
            // The next flush would have to: what it waits for is bounded by syncing segment by segment.
            let position = self.commit.lock().writer.position();
            if let Err(error) = self.sync_upto(position.lsn) {
                self.note_background_error(Task::Flush, &error);
                return true;
            }
            synced = self.unnamed().1;
        }
        let mut tree = self.tree.lock();
        let mut edit = VersionEdit { journal_newest: start, ..VersionEdit::default() };
        if let Some(position) = synced {
            self.name_position(&mut edit, position);
        }
        match self.install(&mut tree, edit, |_| {}) {
            Ok(()) => self.retries.note_success(Task::Flush),
            Err(error) => self.note_background_error(Task::Flush, &error),
        }
        true
    }

    /// Whether the manifest should name what is synced in the segment that takes the writes.
    pub(super) fn is_naming_due(&self) -> bool {
        self.unnamed().1.is_some()
    }

    /// Of the segment that takes the writes, what the manifest doesn't name: where it starts, and how far
    /// it is synced, if anything in it is.
    fn unnamed(&self) -> (Option<JournalPosition>, Option<JournalPosition>) {
        let log = self.log.lock();
        let Some(active) = log.last() else { return (None, None) };
        let (segment, base_lsn) = (active.segment.number(), active.base_lsn);
        let at = |offset| {
            let lsn = base_lsn + (offset - SEGMENT_HEADER_BYTES);
            JournalPosition { segment, offset, lsn }
        };
        let synced_bytes = self.sync.synced_lsn().saturating_sub(base_lsn);
        // It may have ended, and another follow it that is not listed yet.
        let synced = at((SEGMENT_HEADER_BYTES + synced_bytes).min(active.segment.end()));
        drop(log);
        let version = &self.state.load().version;
        let (newest, named) = (version.journal_newest.segment, version.journal_synced.segment);
        (
            (newest != segment).then(|| at(SEGMENT_HEADER_BYTES)),
            (synced_bytes > 0 && named != segment).then_some(synced),
        )
    }

    /// Has an edit say that the journal is synced up to a place, if it is. Requires: the edit is
    /// installed under the lock of the tree that is held now.
    pub(super) fn name_position(&self, edit: &mut VersionEdit, position: JournalPosition) {
        let named = self.state.load().version.journal_synced;
        if named.lsn < position.lsn && position.lsn <= self.sync.synced_lsn() {
            edit.journal_synced = Some(position);
        }
    }

    /// The segment that takes the writes, if one was started.
    pub(super) fn newest_segment(&self) -> Option<Arc<Segment>> {
        self.log.lock().last().map(|log| log.segment.clone())
    }

    /// Makes one journal segment ready ahead of need; whether it did.
    fn prepare_spare(&self) -> bool {
        let is_at_rest = self.settled.load(Ordering::Relaxed);
        if is_at_rest || !self.newest_segment().is_some_and(|newest| self.pool.wants_spare(&newest))
        {
            return false;
        }
        // On a full disk, what frees space comes first.
        if self.retries.lacks_space() {
            return false;
        }
        self.give_back_segments();
        match self.pool.prepare() {
            Ok(made) => made,
            Err(error) => {
                // Not a flush failing: the writer makes its segment itself, and tells its caller.
                self.poison_if_sync_failed(&error);
                false
            }
        }
    }

    /// Has an idle store flush what is in memory, if more than so much of the journal waits for it, and so
    /// much that it is worth tables of its own; whether it will.
    pub(super) fn flush_more_than(&self, bytes: u64) -> bool {
        let least = match self.pool.is_disk_full() {
            true => 0,
            false => bytes.max(IDLE_FLUSH_BYTES_MIN),
        };
        let mut commit = self.commit.lock();
        let state = self.state.load();
        let unflushed = self.sync.appended_lsn().saturating_sub(commit.memtable_start.lsn);
        let can = !state.active.is_empty() && state.immutables.is_empty();
        let flushes = can && unflushed > least && self.check_writable().is_ok();
        if flushes {
            // Nobody writes: memory for as many keys might be for nothing.
            self.change_memtable(&mut commit, 0);
        }
        flushes
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::resources::{ResourceOptions, Resources};
    use crate::store::retries::RETRY_AFTER;
    use crate::vfs::{FileSystem, ManualClock, MemoryFileSystem};
    use crate::{Durability, Options, Store};

    fn open(fs: &MemoryFileSystem, clock: &Arc<ManualClock>, options: Options) -> Store {
        let fs = Arc::new(fs.clone());
        let resources = Resources::inline(ResourceOptions::default(), fs, clock.clone());
        Store::open_with("/s", options, resources).unwrap()
    }

    /// A merge may take the thread that removes files for a second, in which every segment of the journal
    /// that died was missing, and new files were made and written with zeros.
    #[test]
    fn dead_segments_are_used_again_though_nothing_is_merged_or_removed() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let options = Options {
            memtable_bytes: 64 << 10,
            segment_bytes_min: 64 << 10,
            background: false,
            ..Options::default()
        };
        let store = open(&fs, &clock, options);
        for at in 0..50_000u32 {
            store.put(&at.to_be_bytes(), &[7; 100]).unwrap();
        }
        let names = fs.list(Path::new("/s")).unwrap();
        let segments = names.iter().filter(|name| name.ends_with(".journal")).count();
        assert!(segments <= 8, "{segments} files for {} segments", 50_000 * 168 / (64 << 10));
        for at in (0..50_000u32).step_by(1000) {
            assert_eq!(store.get(&at.to_be_bytes()).unwrap().as_deref(), Some(&[7; 100][..]));
        }
    }

    #[test]
    fn an_idle_store_is_looked_at_now_and_then_and_once_it_may_rest() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = open(&fs, &clock, Options::default());
        store.put(b"key", b"value").unwrap();
        let mut looks = Vec::new();
        for tick in 1..=40 {
            clock.advance(Duration::from_millis(100));
            if store.inner.is_idle() && store.inner.is_idle_look_due() {
                looks.push(tick);
                store.inner.compaction_step();
            }
            if store.inner.settled.load(Ordering::Relaxed) {
                break;
            }
        }
        assert_eq!(looks, [10, 15, 20, 25, 30]);
        store.put(b"key", b"value").unwrap();
        assert!(store.inner.is_idle_look_due(), "it was written since");
    }

    /// What keeps an idle store from giving something back is a snapshot or the time, neither of which is a
    /// write.
    #[test]
    fn a_store_at_rest_gives_back_what_expires_and_what_a_snapshot_kept() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = open(&fs, &clock, Options::default());
        let table_bytes = || store.inner.state.load().version.table_bytes();
        let rest = || {
            store.flush().unwrap();
            for _ in 0..20 {
                clock.advance(Duration::from_millis(500));
                store.inner.tick();
                while store.inner.flush_step() || store.inner.compaction_step() {}
            }
            store.inner.settled.load(Ordering::Relaxed)
        };
        let expires_at_ms = 60_000;
        for key in 0..20_000u32 {
            let options = crate::WriteOptions { expires_at_ms, ..Default::default() };
            store.put_with(&key.to_be_bytes(), &[7; 100], &options).unwrap();
        }
        assert!(rest() && table_bytes() > 1 << 20);
        clock.advance(Duration::from_secs(60));
        assert!(rest());
        assert_eq!(table_bytes(), 0);
        for key in 0..20_000u32 {
            store.put(&key.to_be_bytes(), &[7; 100]).unwrap();
        }
        let snapshot = store.snapshot();
        for key in 0..20_000u32 {
            store.delete(&key.to_be_bytes()).unwrap();
        }
        assert!(rest() && table_bytes() > 1 << 20);
        drop(snapshot);
        assert!(rest());
        assert_eq!(table_bytes(), 0);
    }

    /// What the upper runs hide is looked into once for each version of the tree, and the time changes it.
    #[test]
    fn what_expires_among_what_does_not_is_given_back_each_time() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = open(&fs, &clock, Options::default());
        let table_bytes = || store.inner.state.load().version.table_bytes();
        // More that doesn't expire, so that only a merge takes out what does.
        for key in 0..100_000u32 {
            store.put(&[&key.to_be_bytes()[..], b"permanent"].concat(), b"value").unwrap();
        }
        store.compact(None, None, &mut |_, _| {}).unwrap();
        let permanent = table_bytes();
        let now_ms = || store.inner.resources.clock.now_ms();
        let from_ms = now_ms();
        for seconds in [100, 300] {
            for key in (0..100_000u32).step_by(20) {
                let expires_at_ms = from_ms + seconds * 1000;
                let options = crate::WriteOptions { expires_at_ms, ..Default::default() };
                let key = [&key.to_be_bytes()[..], &seconds.to_be_bytes()].concat();
                store.put_with(&key, &[7; 1000], &options).unwrap();
            }
            store.flush().unwrap();
        }
        // Written to and looked at shortly before, and come to rest after. Not flushed, as it is little:
        // nothing is installed.
        let rests_past = |at_ms: u64| {
            clock.advance(Duration::from_millis(at_ms - 2_000 - now_ms()));
            store.put(b"little", b"value").unwrap();
            for _ in 0..20 {
                clock.advance(Duration::from_millis(400));
                store.inner.tick();
                while store.inner.flush_step() || store.inner.compaction_step() {}
            }
            assert!(store.inner.settled.load(Ordering::Relaxed));
            table_bytes()
        };
        let all = rests_past(from_ms + 10_000);
        assert!(all > permanent + (9 << 20), "{all} bytes of {permanent}");
        let half = rests_past(from_ms + 100_000);
        assert!(half < all / 4 * 3, "{half} of {all} bytes");
        let none = rests_past(from_ms + 300_000);
        assert!(none < half / 2, "{none} of {half} bytes");
    }

    /// A few that expire much later: neither the first nor the last expiry of the table says what is dead.
    #[test]
    fn what_expires_in_a_table_of_what_does_so_later_is_given_back() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = open(&fs, &clock, Options::default());
        let now_ms = || store.inner.resources.clock.now_ms();
        let from_ms = now_ms();
        for key in 0..20_000u32 {
            let seconds = if key % 1000 == 0 { 1_000_000 } else { 100 + u64::from(key % 3) * 100 };
            let options = crate::WriteOptions {
                expires_at_ms: from_ms + seconds * 1000,
                ..Default::default()
            };
            store.put_with(&key.to_be_bytes(), &[7; 100], &options).unwrap();
        }
        store.compact(None, None, &mut |_, _| {}).unwrap();
        let rests_at = |seconds: u64| {
            clock.advance(Duration::from_millis(from_ms + seconds * 1000 - now_ms()));
            for _ in 0..20 {
                clock.advance(Duration::from_millis(400));
                store.inner.tick();
                while store.inner.flush_step() || store.inner.compaction_step() {}
            }
            assert!(store.inner.settled.load(Ordering::Relaxed));
            store.inner.state.load().version.table_bytes()
        };
        let all = rests_at(10);
        for (seconds, thirds) in [(100, 2), (200, 1), (300, 0)] {
            let left = rests_at(seconds);
            let most = all / 3 * thirds + all / 10;
            assert!(left < most, "{left} of {all} bytes after {seconds} s");
        }
        assert_eq!(store.range(crate::ScanOptions::default()).unwrap().count(), 20);
    }

    #[test]
    fn a_tick_tells_when_the_next_may_have_something_to_do() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let durability = Durability::Interval(50);
        let store = open(&fs, &clock, Options { durability, ..Options::default() });
        assert_eq!(store.inner.tick(), LOOK_INTERVAL);
        store.put(b"key", b"value").unwrap();
        let until_sync = store.inner.tick();
        assert!(until_sync < Duration::from_millis(50), "{until_sync:?}");
        let syncs = store.stats().syncs;
        clock.advance(until_sync - Duration::from_nanos(1));
        assert_eq!((store.inner.tick(), store.stats().syncs), (Duration::from_nanos(1), syncs));
        clock.advance(Duration::from_nanos(1));
        assert_eq!((store.inner.tick(), store.stats().syncs), (LOOK_INTERVAL, syncs + 1));
        while !store.inner.settled.load(Ordering::Relaxed) {
            clock.advance(LOOK_INTERVAL);
            store.inner.run_inline();
        }
        assert_eq!(store.inner.tick(), IDLE_LOOK_INTERVAL);
        store.put(b"key", b"value").unwrap();
        assert_eq!(store.inner.tick(), until_sync);
        store.inner.note_background_error(Task::Flush, &Error::Busy);
        let left = Duration::from_millis(30);
        clock.advance(RETRY_AFTER - left);
        assert_eq!(store.inner.tick(), left, "then it tries again");
    }

    /// A merge before the last memtable is flushed would leave out what it brings, and another would have to
    /// take all in again: 250,000 deletions of 500,000 keys were merged twice.
    #[test]
    fn an_idle_store_merges_once_everything_is_flushed() {
        // The last is much of the store, and less than a tenth of it.
        for (keys, keys_last) in [(2000, 12_000), (70_000, 9000)] {
            let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
            let store = open(&fs, &clock, Options::default());
            for (keys, flushes) in [(keys, true), (keys, true), (keys_last, false)] {
                for key in 0..keys {
                    store.put(&u32::to_be_bytes(key), &[7; 100]).unwrap();
                }
                if flushes {
                    store.flush().unwrap();
                }
            }
            clock.advance(2 * IDLE_AFTER);
            store.inner.tick();
            for _ in 0..3 {
                store.inner.compaction_step();
                assert_eq!(store.stats().compactions, 0);
            }
            assert!(store.inner.flush_step());
            while store.inner.compaction_step() {}
            let runs = store.inner.state.load().version.runs().count();
            assert_eq!((store.stats().compactions, runs), (1, 1));
        }
    }
}
