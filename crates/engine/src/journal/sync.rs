//! Making the journal durable: one sync serves every writer that waits for one.
//!
//! 1. A writer that finds its LSN unsynced and no leader becomes the leader, once those have come who
//!    are about to ([`Gathering`]); later ones wait.
//! 2. The leader notes how far the journal reaches and syncs every segment with unsynced bytes,
//!    oldest first, without holding a lock.
//! 3. It publishes that LSN and wakes the others, one of which leads the next round if need be.
//!
//! What is in tables needs no sync of the journal: such a place counts as durable, and segments that are
//! given up leave the list.
//!
//! Invariant: after a failed sync nothing is acknowledged as synced again, and no sync is retried:
//! the system may have dropped the pages and report success the second time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::gathering::Gathering;
use super::segment::Segment;
use crate::error::{Error, Result};
use crate::lock::Mutex;
use crate::stages::{Recorder, Stage};
use crate::vfs::cycles;
use crate::vfs::rounds::Rounds;

/// Turns of looking whether the leader is done before going to sleep: a few microseconds, less than
/// what a wake-up costs.
const SPINS_MAX: u32 = 100;

/// Who waits for others to come looks after this whether somebody still looks at the clock.
const LOOK_AFTER: Duration = Duration::from_millis(2);

#[derive(Debug)]
struct Inner {
    /// Segments that may hold unsynced bytes, oldest first; the last is the active one.
    unsynced: Vec<Arc<Segment>>,
    has_leader: bool,
    gathering: Gathering,
    cause: Option<String>,
}

/// How far the journal reaches, how much of it is durable, there or in tables, and who makes it so.
#[derive(Debug)]
pub struct SyncState {
    /// LSN behind the last record.
    position: AtomicU64,
    /// LSN behind the last group; marks don't call for a sync.
    appended: AtomicU64,
    synced: AtomicU64,
    /// LSN below which everything is in tables.
    in_tables: AtomicU64,
    syncs: AtomicU64,
    /// When the last group was appended, and a time not after the first unsynced one was.
    last_append_ms: AtomicU64,
    unsynced_since_ms: AtomicU64,
    is_poisoned: AtomicBool,
    recorder: Arc<Recorder>,
    inner: Mutex<Inner>,
    /// Syncs that have ended.
    rounds: Rounds,
}

impl SyncState {
    /// The state of a journal that reaches to `lsn`, all of it durable.
    pub fn new(lsn: u64, recorder: &Arc<Recorder>) -> SyncState {
        SyncState {
            position: AtomicU64::new(lsn),
            appended: AtomicU64::new(lsn),
            synced: AtomicU64::new(lsn),
            in_tables: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            last_append_ms: AtomicU64::new(0),
            unsynced_since_ms: AtomicU64::new(0),
            is_poisoned: AtomicBool::new(false),
            inner: Mutex::new(
                Stage::LockSync,
                recorder,
                Inner {
                    unsynced: Vec::new(),
                    has_leader: false,
                    gathering: Gathering::default(),
                    cause: None,
                },
            ),
            recorder: recorder.clone(),
            rounds: Rounds::default(),
        }
    }

    /// LSN behind the last group.
    pub fn appended_lsn(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// LSN below which the journal is durable.
    pub fn synced_lsn(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// LSN below which everything is durable, in the journal or in tables.
    pub fn durable_lsn(&self) -> u64 {
        self.synced_lsn().max(self.in_tables.load(Ordering::Acquire))
    }

    /// Notes that everything below `lsn` is in tables, and that `gone` are needed no more.
    pub fn note_in_tables(&self, lsn: u64, gone: &[Arc<Segment>]) {
        self.in_tables.fetch_max(lsn, Ordering::AcqRel);
        if !gone.is_empty() {
            let is_needed =
                |segment: &Arc<Segment>| !gone.iter().any(|gone| Arc::ptr_eq(gone, segment));
            self.inner.lock().unsynced.retain(is_needed);
        }
    }

    /// Whether tables may point at values in the journal that no sync has made durable.
    pub fn has_unsynced_values(&self) -> bool {
        self.inner.lock().unsynced.iter().any(|segment| segment.holds_values())
    }

    /// Syncs made.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// A time, in the milliseconds that groups are stamped with, at or shortly before the first
    /// unsynced group was appended; `None` when there is none.
    pub fn unsynced_since(&self) -> Option<u64> {
        (self.appended_lsn() > self.durable_lsn())
            .then(|| self.unsynced_since_ms.load(Ordering::Acquire))
    }

    /// Why nothing can be synced any more, if a sync has failed.
    pub fn poison_cause(&self) -> Option<String> {
        self.is_poisoned.load(Ordering::Acquire).then(|| self.inner.lock().cause.clone())?
    }

    /// `ReadOnly` when a sync has failed.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.is_poisoned.load(Ordering::Acquire) {
            true => Err(read_only(self.inner.lock().cause.as_ref())),
            false => Ok(()),
        }
    }

    /// Returns once everything below `lsn` is durable, in the journal or in tables. True when this call
    /// led a sync: the caller then lets the writer append a mark, which this function can't do, as the
    /// caller may not hold the commit lock while it waits here.
    ///
    /// `ReadOnly` when a sync failed, now or before.
    pub fn sync_upto(&self, lsn: u64) -> Result<bool> {
        self.sync_until(lsn, || self.durable_lsn())
    }

    /// As `sync_upto`, of the journal whatever is in tables.
    pub fn sync_journal_upto(&self, lsn: u64) -> Result<bool> {
        self.sync_until(lsn, || self.synced_lsn())
    }

    fn sync_until(&self, lsn: u64, reached: impl Fn() -> u64) -> Result<bool> {
        let lsn = lsn.min(self.position.load(Ordering::Acquire));
        let from = cycles::now();
        let mut spins = 0;
        while reached() < lsn && spins < SPINS_MAX && self.has_leader() {
            std::hint::spin_loop();
            spins += 1;
        }
        let mut has_waited = spins > 0;
        let mut has_joined = false;
        let mut inner = self.inner.lock();
        loop {
            if inner.cause.is_some() {
                return Err(read_only(inner.cause.as_ref()));
            }
            if reached() >= lsn {
                if has_waited {
                    self.recorder.note_wait(Stage::SyncWait, from);
                }
                return Ok(false);
            }
            if !std::mem::replace(&mut has_joined, true) {
                inner.gathering.join(lsn);
            }
            has_waited = true;
            let mut at_most = None;
            if !inner.has_leader {
                let wait_ns = inner.gathering.wait_ns(cycles::now());
                if wait_ns == 0 {
                    break;
                }
                // Whoever comes last of those who are waited for leads. The first looks at the clock for
                // all; should it leave, as its write is in a table by now, the others do.
                let is_first = inner.gathering.is_first(lsn);
                at_most = Some(if is_first { Duration::from_nanos(wait_ns) } else { LOOK_AFTER });
            }
            let round = self.rounds.current();
            drop(inner);
            self.rounds.sleep(round, at_most);
            if reached() >= lsn && !self.is_poisoned.load(Ordering::Acquire) {
                self.recorder.note_wait(Stage::SyncWait, from);
                return Ok(false);
            }
            inner = self.inner.lock();
        }
        inner.has_leader = true;
        inner.gathering.begin();
        // A segment is listed before a record in it is published, so this list covers the position.
        let target = self.position.load(Ordering::Acquire);
        self.unsynced_since_ms
            .store(self.last_append_ms.load(Ordering::Acquire), Ordering::Release);
        let round: Vec<(Arc<Segment>, bool)> =
            inner.unsynced.iter().map(|segment| (segment.clone(), segment.is_sealed())).collect();
        drop(inner);
        let from = cycles::now();
        let outcome = round.iter().try_for_each(|(segment, _)| segment.sync());
        self.recorder.note_wait(Stage::SyncJournal, from);
        self.finish_round(target, &round, from, outcome)
    }

    /// Asks the system to begin writing what isn't synced, so that the next sync finds little left to do.
    pub fn start_writeback(&self) {
        let unsynced = self.inner.lock().unsynced.clone();
        unsynced.iter().for_each(|segment| segment.start_writeback());
    }

    fn finish_round(
        &self,
        target: u64,
        round: &[(Arc<Segment>, bool)],
        from: u64,
        outcome: Result<()>,
    ) -> Result<bool> {
        let mut inner = self.inner.lock();
        inner.has_leader = false;
        let now = cycles::now();
        inner.gathering.end(target, cycles::to_ns(now - from), now);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let result = match outcome {
            Ok(()) => {
                self.synced.store(target, Ordering::Release);
                for (segment, was_sealed) in round {
                    if *was_sealed {
                        inner.unsynced.retain(|other| !Arc::ptr_eq(other, segment));
                        segment.release_file();
                    }
                }
                Ok(true)
            }
            Err(error) => {
                inner.cause = Some(error.to_string());
                self.is_poisoned.store(true, Ordering::Release);
                Err(read_only(inner.cause.as_ref()))
            }
        };
        self.rounds.end();
        drop(inner);
        self.rounds.wake();
        result
    }

    fn has_leader(&self) -> bool {
        self.inner.try_lock().is_none_or(|inner| inner.has_leader)
    }

    /// Adds the segment that the writer goes on in. Requires: before a record in it is published.
    pub(super) fn add_segment(&self, segment: Arc<Segment>) {
        self.inner.lock().unsynced.push(segment);
    }

    /// Publishes that a group ends at `position`. Requires: one writer.
    pub(super) fn publish_group(&self, position: u64, written_at_ms: u64) {
        self.last_append_ms.store(written_at_ms, Ordering::Release);
        if self.appended.load(Ordering::Relaxed) <= self.durable_lsn() {
            self.unsynced_since_ms.store(written_at_ms, Ordering::Release);
        }
        self.position.store(position, Ordering::Release);
        self.appended.store(position, Ordering::Release);
    }

    /// Publishes that a record without entries ends at `position`. Requires: one writer.
    pub(super) fn publish_mark(&self, position: u64) {
        self.position.store(position, Ordering::Release);
    }
}

fn read_only(cause: Option<&String>) -> Error {
    Error::ReadOnly { cause: cause.cloned().unwrap_or_else(|| "a sync failed".into()) }
}
