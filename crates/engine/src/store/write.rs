//! The write path.
//!
//! 1. Before the lock: check, frame the writes, wait if flushes lag.
//! 2. Under the commit lock: test the condition, number the writes, append them to the journal, put
//!    them into the memtable, make them visible; change memtables when this one is full.
//! 3. After the lock: wait for a sync if this write asked for one.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::inner::{Commit, Inner, PendingFlush};
use super::stats::{add, add_alone};
use super::{Condition, WriteOptions};
use crate::batch::{Operation, WriteBatch};
use crate::error::{Error, Result};
use crate::fault_points::{self, Bug};
use crate::journal::{Change, PreparedGroup};
use crate::key::{self, ATTRIBUTES_BYTES_MAX, SEQNO_MAX, SeqNo, VALUE_BYTES_MAX, check_key};
use crate::memtable::{self, MemtableWriter};
use crate::options::Durability;
use crate::range_tombstone::RangeTombstone;
use crate::resources::Work;
use crate::stages::{Stage, Trace};
use crate::stall::{self, Lag, SegmentLag};
use crate::waits;

thread_local! {
    /// For framing the thread's next put or delete, which spares asking the allocator each time. No
    /// longer than a key and its attributes may be.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The thread's buffer, for as long as a write lasts; a new one while the thread ends, or writes within a write.
struct OwnBuffer(Vec<u8>);

impl OwnBuffer {
    #[inline]
    fn take() -> OwnBuffer {
        OwnBuffer(BUFFER.try_with(Cell::take).unwrap_or_default())
    }
}

impl Drop for OwnBuffer {
    #[inline]
    fn drop(&mut self) {
        // A thread that ends needs none.
        let _ = BUFFER.try_with(|own| own.set(std::mem::take(&mut self.0)));
    }
}

/// A condition and the key it is about.
type KeyCondition<'a> = (&'a [u8], Condition);

/// What a group of writes adds up to.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    puts: u64,
    deletes: u64,
    bytes: usize,
}

impl Inner {
    /// Sets a key; answers the SeqNo.
    pub(super) fn put(&self, key: &[u8], value: &[u8], options: &WriteOptions) -> Result<SeqNo> {
        let trace = self.recorder.begin();
        check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::InvalidArgument(format!(
                "a value has at most {VALUE_BYTES_MAX} bytes, this one has {}",
                value.len()
            )));
        }
        if options.attributes.len() > ATTRIBUTES_BYTES_MAX {
            return Err(Error::InvalidArgument(format!(
                "attributes have at most {ATTRIBUTES_BYTES_MAX} bytes, these have {}",
                options.attributes.len()
            )));
        }
        let bytes = key.len() + value.len() + options.attributes.len();
        let inline_max_bytes = self.options.inline_max_bytes;
        let (expires_at_ms, attributes) = (options.expires_at_ms, &options.attributes);
        let tally = Tally { puts: 1, deletes: 0, bytes };
        let mut buffer = OwnBuffer::take();
        let mut group = PreparedGroup::put(
            &mut buffer.0,
            key,
            value,
            expires_at_ms,
            attributes,
            inline_max_bytes,
        );
        let condition = options.condition.map(|condition| (key, condition));
        self.write_group(&mut group, tally, condition, options.durability, trace)
    }

    /// Deletes a key; answers the SeqNo.
    pub(super) fn delete(&self, key: &[u8], options: &WriteOptions) -> Result<SeqNo> {
        let trace = self.recorder.begin();
        check_key(key)?;
        let tally = Tally { puts: 0, deletes: 1, bytes: key.len() };
        let mut buffer = OwnBuffer::take();
        let mut group = PreparedGroup::delete(&mut buffer.0, key);
        let condition = options.condition.map(|condition| (key, condition));
        self.write_group(&mut group, tally, condition, options.durability, trace)
    }

    /// Applies a batch; answers the SeqNo of its last write.
    pub(super) fn write(
        &self,
        batch: &WriteBatch,
        durability: Option<Durability>,
    ) -> Result<SeqNo> {
        if batch.is_empty() {
            self.check_writable()?;
            return Ok(self.visible_seqno.load(Ordering::Acquire));
        }
        let trace = self.recorder.begin();
        let puts =
            batch.operations().iter().filter(|op| matches!(op, Operation::Put { .. })).count();
        let tally =
            Tally { puts: puts as u64, deletes: (batch.len() - puts) as u64, bytes: batch.bytes() };
        let mut buffer = Vec::new();
        let mut group = PreparedGroup::new(&mut buffer, batch, self.options.inline_max_bytes);
        self.write_group(&mut group, tally, None, durability, trace)
    }

    fn write_group(
        &self,
        group: &mut PreparedGroup<'_>,
        tally: Tally,
        condition: Option<KeyCondition<'_>>,
        durability: Option<Durability>,
        mut trace: Trace<'_>,
    ) -> Result<SeqNo> {
        self.check_writable()?;
        trace.lap(Stage::PutPrepare);
        self.admit(group)?;
        trace.lap(Stage::PutStall);
        let committed = self.commit(group, tally, condition, &mut trace);
        let (last_seqno, end_lsn) =
            committed.inspect_err(|error| self.poison_if_sync_failed(error))?;
        let acknowledged = match durability.unwrap_or(self.options.durability) {
            Durability::Os => Ok(()),
            Durability::Interval(ms) => {
                self.note_interval(ms);
                Ok(())
            }
            Durability::Sync if fault_points::is_planted(Bug::AckBeforeSync) => Ok(()),
            Durability::Sync => {
                trace.skip();
                let synced = self.sync_upto(end_lsn);
                trace.lap(Stage::PutSync);
                synced
            }
        };
        trace.total(Stage::PutTotal);
        self.run_inline();
        acknowledged?;
        // A sync that failed meanwhile may have been of this write.
        self.check_poison()?;
        Ok(last_seqno)
    }

    /// Slows the writer while background work lags; `Busy` when flushes make no progress for the deadline.
    fn admit(&self, group: &PreparedGroup<'_>) -> Result<()> {
        let is_short = self.short_since_ns.load(Ordering::Relaxed) != 0;
        if !is_short && self.pressure() <= stall::PRESSURE_SLOW {
            return Ok(());
        }
        let clock = &self.resources.clock;
        let started_ns = clock.steady_ns();
        let since_progress_ns = started_ns.saturating_sub(self.progress_ns.load(Ordering::Relaxed));
        let lag = Lag {
            pressure: self.flush_pressure(),
            in_space: self.lag_in_space(),
            left_bytes: self.memtable_room(),
            flush_bytes: self.options.memtable_bytes as u64,
            since_progress: Duration::from_nanos(since_progress_ns),
            segment: if is_short { self.segment_lag(started_ns) } else { None },
        };
        let memtable_bytes =
            group.memtable_bytes() + u64::from(group.count()) * memtable::ENTRY_BYTES;
        let delay = self.throttle.delay(group.record_bytes(), memtable_bytes, &lag);
        if let Some(delay) = delay {
            clock.sleep(delay);
        }
        if self.memtable_room() == 0 {
            self.wait_for_room()?;
        } else if delay.is_none() {
            return Ok(());
        }
        let stalled_ns = clock.steady_ns() - started_ns;
        add(&self.counters.stalled_writes, 1);
        add(&self.counters.stalled_ns, stalled_ns);
        waits::note(Stage::PutStall.name(), Duration::from_nanos(stalled_ns));
        Ok(())
    }

    /// How far the making of the next segment lags, if the writer may have to wait for it.
    fn segment_lag(&self, now_ns: u64) -> Option<SegmentLag> {
        let (ready, in_making) = self.pool.successors();
        if ready > 0 {
            self.short_since_ns.store(0, Ordering::Relaxed);
        }
        if ready > 0 || in_making == 0 {
            return None;
        }
        let since_ns = now_ns.saturating_sub(self.short_since_ns.load(Ordering::Relaxed));
        let newest = self.newest_segment()?;
        Some(SegmentLag {
            since_taken: Duration::from_nanos(since_ns),
            used_bytes: newest.end(),
            left_bytes: newest.capacity() - newest.end(),
        })
    }

    /// Waits, a millisecond at a time, until flushes have made room.
    fn wait_for_room(&self) -> Result<()> {
        let clock = &self.resources.clock;
        let mut installed = self.flushes.lock().installed;
        let mut progress_ns = clock.steady_ns();
        while self.memtable_room() == 0 {
            self.check_writable()?;
            self.run_inline();
            clock.sleep(stall::POLL);
            let (now_installed, now_ns) = (self.flushes.lock().installed, clock.steady_ns());
            if now_installed != installed {
                (installed, progress_ns) = (now_installed, now_ns);
            } else if Duration::from_nanos(now_ns - progress_ns) > self.options.stall_deadline {
                return Err(match self.flushes.lock().failure.clone() {
                    Some(no_space @ Error::NoSpace { .. }) => no_space,
                    _ => Error::Busy,
                });
            }
        }
        Ok(())
    }

    /// Appends, inserts and publishes a group; answers its last SeqNo and the LSN behind it.
    fn commit(
        &self,
        group: &mut PreparedGroup<'_>,
        tally: Tally,
        condition: Option<KeyCondition<'_>>,
        trace: &mut Trace<'_>,
    ) -> Result<(SeqNo, u64)> {
        let mut commit = match condition {
            None => self.commit.lock(),
            Some(condition) => self.lock_if(condition)?,
        };
        trace.lap(Stage::PutWait);
        self.check_writable()?;
        // Where the memtable will look first is there by the time that the journal has the write.
        let hash = group.only_key().map(key::hash);
        if let Some(hash) = hash {
            commit.active.expect(hash);
        }
        let now_ms = self.resources.clock.now_ms();
        let first_seqno = commit.last_seqno + 1;
        let appended = commit.writer.append(group, first_seqno, now_ms);
        self.note_rotation(&mut commit);
        let appended = appended?;
        if commit.writer.active().is_some_and(|active| active.asks_for_successor()) {
            self.request(Work::Prepare);
        }
        commit.last_seqno += u64::from(group.count());
        let last_seqno = commit.last_seqno;
        let counters = &self.counters;
        add_alone(&counters.puts, tally.puts);
        add_alone(&counters.deletes, tally.deletes);
        add_alone(&counters.user_bytes_written, tally.bytes as u64);
        add_alone(&counters.journal_bytes_written, group.record_bytes());
        trace.lap(Stage::PutJournal);
        match hash.zip(group.only_entry(appended.values_at, first_seqno, now_ms)) {
            Some((hash, (key, entry))) => commit.active.insert(key, hash, &entry),
            None => {
                for change in group.changes(appended.values_at, first_seqno, now_ms) {
                    insert(&mut commit.active, change);
                }
            }
        }
        self.visible_seqno.store(last_seqno, Ordering::Release);
        trace.lap(Stage::PutMemtable);
        self.note_write(&mut commit, now_ms);
        let end_lsn = appended.end.lsn;
        if commit.active.memtable().bytes() >= self.options.memtable_bytes
            || end_lsn - commit.memtable_start.lsn >= self.options.memtable_journal_bytes
        {
            // The next is likely to be like this one.
            let keys = commit.active.memtable().keys_expected(self.options.memtable_bytes);
            self.change_memtable(&mut commit, keys);
        }
        Ok((last_seqno, end_lsn))
    }

    /// Takes the commit lock with the condition holding.
    ///
    /// What the key's version is may have to be read from the disk, so it is looked up before the
    /// lock; under it only what was written since is checked, which is in memory.
    fn lock_if(
        &self,
        (key, condition): KeyCondition<'_>,
    ) -> Result<parking_lot::MutexGuard<'_, Commit>> {
        loop {
            let read_at = self.visible_seqno.load(Ordering::Acquire);
            let version = self.head_at(key, None, true)?.map(|head| head.version);
            let commit = self.commit.lock();
            if !self.changed_since(key, read_at) {
                check_condition(condition, version)?;
                return Ok(commit);
            }
        }
    }

    /// Whether anything newer than `seqno` may touch the key. Requires: the commit lock.
    fn changed_since(&self, key: &[u8], seqno: SeqNo) -> bool {
        let state = self.state.load();
        let hash = key::hash(key);
        // A write since is in a memtable, or was flushed: the tables may show nothing of it any more, as
        // a deletion goes with what it deleted.
        state.version.last_seqno > seqno
            || state.memtables().any(|memtable| {
                memtable.find(key, hash, SEQNO_MAX).is_some_and(|entry| entry.seqno > seqno)
                    || memtable.cover(key, SEQNO_MAX) > seqno
            })
    }

    /// Makes the active memtable immutable and starts another, with room for so many keys before its index
    /// grows. Requires: the commit lock.
    pub(super) fn change_memtable(&self, commit: &mut Commit, keys: usize) {
        let end = commit.writer.position();
        commit.memtable_start = end;
        let memtable = commit.active.change(&self.recorder, keys);
        let active = commit.active.memtable().clone();
        self.immutable_bytes.fetch_add(memtable.bytes(), Ordering::Relaxed);
        self.resources.memtable_bytes.fetch_add(memtable.bytes(), Ordering::Relaxed);
        {
            let mut flushes = self.flushes.lock();
            if flushes.pending.is_empty() {
                self.progress_ns.store(self.resources.clock.steady_ns(), Ordering::Relaxed);
            }
            flushes.pending.push_back(PendingFlush::new(memtable.clone(), end));
        }
        self.change_state(|state| {
            state.immutables.insert(0, memtable);
            state.active = active;
        });
        self.request(Work::Flush);
    }

    /// Notes that the store is not idle. The steady clock is asked once a millisecond.
    fn note_write(&self, commit: &mut Commit, now_ms: u64) {
        if commit.noted_ms != now_ms {
            commit.noted_ms = now_ms;
            self.last_write_ns.store(self.resources.clock.steady_ns(), Ordering::SeqCst);
        }
        if self.settled.load(Ordering::SeqCst) {
            self.settled.store(false, Ordering::SeqCst);
            // Spares went when the store came to rest, and it was looked at less often.
            self.request(Work::Prepare);
            self.resources.hurry();
        }
    }
}

fn check_condition(condition: Condition, version: Option<SeqNo>) -> Result<()> {
    if condition.holds(version) { Ok(()) } else { Err(Error::Conflict { current: version }) }
}

/// Puts one change into a memtable.
pub(super) fn insert(active: &mut MemtableWriter, change: Change<'_>) {
    match change {
        Change::Entry { key, entry } => active.insert(key, key::hash(key), &entry),
        Change::DeleteRange { start, end, seqno } => {
            let (start, end) = (Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
            active.insert_range_tombstone(RangeTombstone { start, end, seqno });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::resources::{Participant, ResourceOptions, Resources};
    use crate::vfs::{Clock, ManualClock, MemoryFileSystem};
    use crate::{Options, Store};

    /// A merge takes a deletion away with what it deleted: nothing in the tables is newer then than what the
    /// condition was held against.
    #[test]
    fn a_key_that_was_deleted_and_merged_away_has_changed() {
        let (fs, clock) = (Arc::new(MemoryFileSystem::new()), Arc::new(ManualClock::at_ms(1)));
        let resources = Resources::inline(ResourceOptions::default(), fs, clock);
        let store = Store::open_with("/s", Options::default(), resources).unwrap();
        store.put(b"key", b"value").unwrap();
        store.put(b"other", b"value").unwrap();
        let read_at = store.inner.visible_seqno.load(Ordering::Acquire);
        let changed = || {
            let _commit = store.inner.commit.lock();
            store.inner.changed_since(b"key", read_at)
        };
        assert!(!changed());
        store.delete(b"key").unwrap();
        assert!(changed());
        store.compact(None, None, &mut |_, _| {}).unwrap();
        let version = &store.inner.state.load().version;
        assert!(version.tables().all(|(_, table)| table.properties.seqno_max <= read_at));
        assert!(changed());
    }

    #[test]
    fn overwrites_are_slowed_while_nothing_is_merged_and_never_stopped() {
        let clock = Arc::new(ManualClock::at_ms(1));
        let options = Options {
            memtable_journal_bytes: 64 << 10,
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 64 << 10,
            level_runs_max: 2,
            ..Options::default()
        };
        let fs = Arc::new(MemoryFileSystem::new());
        let resources = Resources::inline(ResourceOptions::default(), fs, clock.clone());
        let store = Store::open_with("/s", options, resources).unwrap();
        let overwrite = || {
            let began_ns = clock.steady_ns();
            for at in 0..2000u32 {
                store.put(&[(at % 100) as u8], &[at as u8; 4000]).unwrap();
            }
            Duration::from_nanos(clock.steady_ns() - began_ns)
        };
        assert_eq!(overwrite(), Duration::ZERO, "merges keep up");
        let (pressure, written_bytes) = (|| store.write_pressure(), 2000.0 * 4000.0);
        let compacting = store.inner.compacting.lock();
        let took = overwrite() + overwrite();
        assert!(took.as_secs_f64() > written_bytes / (256 << 20) as f64, "{took:?}");
        assert!((stall::PRESSURE_SLOW..1.0).contains(&pressure()), "{}", pressure());
        assert!(!store.inner.is_stalled());
        drop(compacting);
        while store.inner.compaction_step() {}
        assert_eq!(pressure(), 0.0);
        assert_eq!(overwrite(), Duration::ZERO);
    }
}
