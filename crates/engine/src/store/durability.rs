//! When the journal is synced: by a write that waits for it, by the clock, on request.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::inner::{Commit, Inner};
use super::stats::add;
use crate::error::Result;
use crate::stall;

/// An interval sync is started this long before it is due, to make up for the ticking of the clock.
const EARLY_NS: u64 = 10_000_000;

/// Writers are slowed once an interval sync is later than this.
const LATE_NS: u64 = 100_000_000;

/// `sync_due_ns` when nothing waits for a sync.
pub(super) const NEVER_NS: u64 = u64::MAX;

impl Inner {
    /// Waits until the journal is synced up to `lsn`; a mark follows each sync.
    pub(super) fn sync_upto(&self, lsn: u64) -> Result<()> {
        match self.sync.sync_upto(lsn) {
            Ok(false) => Ok(()),
            Ok(true) => {
                add(&self.counters.syncs, 1);
                let mut commit = self.commit.lock();
                if self.closed.load(Ordering::Acquire) {
                    return Ok(());
                }
                self.append_mark(&mut commit);
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
        if before_ns == NEVER_NS {
            self.resources.hurry();
        }
        if now_ns > before_ns.saturating_add(LATE_NS) && !self.resources.is_inline() {
            add(&self.counters.stalled_writes, 1);
            add(&self.counters.stalled_ns, stall::POLL.as_nanos() as u64);
            self.resources.clock.sleep(stall::POLL);
        }
    }

    /// Starts the interval sync if it is due.
    pub(super) fn sync_if_due(&self) {
        let due_ns = self.sync_due_ns.load(Ordering::Acquire);
        let now_ns = self.resources.clock.steady_ns();
        if due_ns == NEVER_NS || now_ns + EARLY_NS < due_ns || self.check_writable().is_err() {
            return;
        }
        if now_ns > due_ns {
            add(&self.counters.sync_overruns, 1);
            self.counters.sync_overrun_max_ns.fetch_max(now_ns - due_ns, Ordering::Relaxed);
        }
        // Writes from here on set a new time; those before are covered by the sync.
        self.sync_due_ns.store(NEVER_NS, Ordering::Release);
        // A failure has poisoned the store, which every writer will see.
        let _ = self.sync_upto(self.sync.appended_lsn());
    }

    /// How long nothing was written.
    pub(super) fn idle_for(&self) -> Duration {
        let now_ns = self.resources.clock.steady_ns();
        Duration::from_nanos(now_ns.saturating_sub(self.last_write_ns.load(Ordering::Relaxed)))
    }
}
