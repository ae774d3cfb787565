//! Whether a sync waits a moment for writers who are about to want one too.
//!
//! Writers who were answered by one sync come back with their next write while the next sync runs, if
//! that begins at once: they fall into two halves that wait for each other's syncs. So a sync waits until
//! as many want it as wanted the last, or for twice as long as a sync takes: on a quick disk, waking the
//! writers takes about as long as a sync. Where they don't come back, waiting is soon given up, and tried
//! again from time to time. (PostgreSQL's `commit_delay` is the same for a fixed time.)

use crate::vfs::cycles;

/// Longest wait, in syncs.
const PATIENCE_SYNCS: u64 = 2;

/// Longest wait.
const PATIENCE_NS_MAX: u64 = 1_000_000;

/// Shorter waits are given up: to sleep and wake takes as long.
const PATIENCE_NS_MIN: u64 = 5_000;

/// Syncs without waiting until it is tried again.
const SYNCS_UNTIL_TRIED: u32 = 64;

/// Who waits for a sync, and how many are expected to.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// The LSN that each waits for, in the order in which they came.
    waiting: Vec<u64>,
    /// How many waited when the last sync ended, those that it served among them.
    expected: usize,
    patience_ns: u64,
    /// When the last sync ended, in cycles.
    ended: u64,
    /// Whether somebody waited for others before this sync.
    has_waited: bool,
    /// Whether all who were expected came before this sync began.
    is_complete: bool,
    /// Syncs that somebody is missing from until waiting, once given up, is tried again.
    until_tried: u32,
}

impl Gathering {
    /// Somebody waits for `lsn` to be synced.
    pub(super) fn join(&mut self, lsn: u64) {
        self.waiting.push(lsn);
    }

    /// For how long yet whoever could begin a sync should wait for others; 0: not at all.
    pub(super) fn wait_ns(&mut self, now: u64) -> u64 {
        if self.waiting.len() >= self.expected {
            return 0;
        }
        let waited_ns = cycles::to_ns(now.saturating_sub(self.ended));
        let wait_ns = self.patience_ns.saturating_sub(waited_ns);
        self.has_waited |= wait_ns > 0;
        wait_ns
    }

    /// Whether whoever waits for `lsn` came first: it looks at the clock for all.
    pub(super) fn is_first(&self, lsn: u64) -> bool {
        self.waiting.first() == Some(&lsn)
    }

    /// A sync begins.
    pub(super) fn begin(&mut self) {
        self.is_complete = self.waiting.len() >= self.expected;
    }

    /// A sync of everything below `lsn` has ended, which took so long.
    pub(super) fn end(&mut self, lsn: u64, took_ns: u64, now: u64) {
        let full_ns = (took_ns * PATIENCE_SYNCS).min(PATIENCE_NS_MAX);
        if self.is_complete {
            // What came by itself says nothing of waiting.
            if std::mem::take(&mut self.has_waited) {
                self.patience_ns = (self.patience_ns * 2).min(full_ns);
            }
        } else if self.patience_ns > 0 {
            let half_ns = (self.patience_ns / 2).min(full_ns);
            self.patience_ns = if half_ns < PATIENCE_NS_MIN { 0 } else { half_ns };
            (self.has_waited, self.until_tried) = (false, SYNCS_UNTIL_TRIED);
        } else if self.until_tried > 0 {
            self.until_tried -= 1;
        } else {
            self.patience_ns = full_ns;
        }
        self.expected = self.waiting.len();
        self.waiting.retain(|&wanted| wanted > lsn);
        self.ended = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One sync of 100 us, wanted by `came` more; how long it would have waited for others.
    fn round(gathering: &mut Gathering, lsn: u64, came: usize) -> u64 {
        (0..came).for_each(|_| gathering.join(lsn));
        let wait_ns = gathering.wait_ns(gathering.ended);
        gathering.begin();
        gathering.end(lsn, 100_000, cycles::now());
        wait_ns
    }

    #[test]
    fn one_writer_never_waits() {
        let mut gathering = Gathering::default();
        assert!((1..100).all(|lsn| round(&mut gathering, lsn, 1) == 0));
    }

    #[test]
    fn a_sync_waits_for_those_whom_the_last_one_served() {
        let mut gathering = Gathering::default();
        assert_eq!(round(&mut gathering, 1, 3), 0);
        // Nothing is known of them yet.
        assert_eq!(round(&mut gathering, 2, 1), 0);
        assert_eq!(round(&mut gathering, 3, 3), 0);
        gathering.join(4);
        gathering.join(4);
        assert_eq!(gathering.wait_ns(gathering.ended), 200_000);
        assert!(gathering.is_first(4) && !gathering.is_first(5));
        gathering.join(4);
        assert_eq!(gathering.wait_ns(gathering.ended), 0);
        gathering.begin();
        // It was late for the sync that ran, and is counted with those that were served.
        gathering.join(5);
        gathering.end(4, 100_000, cycles::now());
        assert_eq!((gathering.expected, gathering.waiting.len()), (4, 1));
        assert_eq!(gathering.wait_ns(gathering.ended), 200_000);
        assert_eq!(gathering.wait_ns(u64::MAX), 0);
    }

    #[test]
    fn waiting_for_those_who_do_not_come_is_given_up_and_tried_again() {
        let mut gathering = Gathering::default();
        // Two writers who never come at the same time: each sync serves one, while the other waits.
        let mut waits = Vec::new();
        gathering.join(1);
        for lsn in 1..200 {
            waits.push(gathering.wait_ns(gathering.ended));
            gathering.begin();
            gathering.join(lsn + 1);
            gathering.end(lsn, 100_000, cycles::now());
        }
        assert_eq!(waits[..9], [0, 0, 200_000, 100_000, 50_000, 25_000, 12_500, 6_250, 0]);
        let waited = waits.iter().filter(|&&wait_ns| wait_ns > 0).count();
        assert_eq!(waited, 18, "of 199 syncs");
    }
}
