//! What reads pay towards merges.
//!
//! A read that passes several runs does more than one that finds a single run: a get asks indexes in
//! vain, a cursor seeks in each run and compares their entries at each step. That is counted, and
//! once it comes to what the next merge would cost, or to a quarter of that while nobody writes, that
//! merge is done. It is the rule of who rents skis and doesn't know how long there will be snow: what
//! is spent is at most twice what knowing it would have cost, or five times when idle (Karlin et al.,
//! "Competitive snoopy caching", 1988; LevelDB's seek compactions are of the same kind). So a store
//! that nobody reads isn't merged for readers, and one that is read much soon is one run.

use std::sync::atomic::Ordering;

use super::inner::Inner;
use super::runs_passed::{PROBES_PER_ENTRY, STEPS_PER_ENTRY};

/// While nobody writes, a merge is worth this many times what reads have paid: it takes time that nobody
/// else wants, and who reads goes on reading.
const WHEN_IDLE: u64 = 4;

/// Credit that is asked about: less is no reason to look for a merge.
const CREDIT_STEP: u64 = 16 << 10;

impl Inner {
    /// Entries that may be merged for what reads have passed, for a merge that is looked for now.
    pub(super) fn ask_read_credit(&self, idle: bool) -> u64 {
        self.read_credit_asked.store(self.read_credit_earned(), Ordering::Relaxed);
        self.read_credit().saturating_mul(if idle { WHEN_IDLE } else { 1 })
    }

    /// Whether so much was earned since a merge was last looked for that it is worth looking again.
    pub(super) fn is_read_credit_due(&self) -> bool {
        let asked = self.read_credit_asked.load(Ordering::Relaxed);
        self.state.load().version.runs().nth(1).is_some()
            && self.read_credit_earned() >= asked.saturating_add(CREDIT_STEP)
    }

    /// Takes what a merge cost from the credit, whatever it was for: reads pass fewer runs after it.
    pub(super) fn spend_read_credit(&self, entries: u64) {
        let spent = entries.min(self.read_credit());
        self.read_credit_spent.fetch_add(spent, Ordering::Relaxed);
    }

    /// What reads have passed and no merge has cost, in entries of a merge.
    fn read_credit(&self) -> u64 {
        self.read_credit_earned().saturating_sub(self.read_credit_spent.load(Ordering::Relaxed))
    }

    fn read_credit_earned(&self) -> u64 {
        self.recorder.probes_in_vain() / PROBES_PER_ENTRY
            + self.recorder.steps_over_runs() / STEPS_PER_ENTRY
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::compaction::pick::Hidden;
    use crate::resources::{Participant, ResourceOptions, Resources};
    use crate::store::rest::REST_AFTER;
    use crate::store::runs_passed::ENTRIES_PER_SEEK;
    use crate::vfs::{ManualClock, MemoryFileSystem};
    use crate::{Options, ScanOptions, Store};

    const KEYS: u32 = 4000;

    fn open() -> (Store, Arc<ManualClock>) {
        let (fs, clock) = (Arc::new(MemoryFileSystem::new()), Arc::new(ManualClock::at_ms(1)));
        let resources = Resources::inline(ResourceOptions::default(), fs, clock.clone());
        (Store::open_with("/s", Options::default(), resources).unwrap(), clock)
    }

    /// Puts every key whose number leaves this rest, so that runs lie across each other, and flushes.
    fn put_every(store: &Store, step: u32, rest: u32, value: &[u8]) {
        for at in (rest..KEYS).step_by(step as usize) {
            store.put(&at.to_be_bytes(), value).unwrap();
        }
        store.flush().unwrap();
    }

    fn runs(store: &Store) -> usize {
        store.inner.state.load().version.runs().count()
    }

    /// Does what is due, as the threads would.
    fn work(store: &Store) {
        store.inner.tick();
        while store.inner.compaction_step() {}
    }

    /// Lets the store come to rest.
    fn wait(store: &Store, clock: &ManualClock) {
        clock.advance(REST_AFTER);
        work(store);
    }

    #[test]
    fn runs_that_hide_nothing_are_merged_once_scans_have_paid_for_it() {
        let (store, clock) = open();
        (0..4).for_each(|rest| put_every(&store, 4, rest, b"value"));
        wait(&store, &clock);
        assert_eq!(runs(&store), 4, "nothing is hidden, and nobody reads");
        let scan = || store.range(ScanOptions::default()).unwrap().count();
        let mut scans = 0u64;
        while runs(&store) > 1 {
            // Not idle: who reads need not wait for who writes.
            store.put(b"other", b"value").unwrap();
            assert_eq!(scan(), KEYS as usize + 1);
            scans += 1;
            work(&store);
        }
        let paid = scans * (u64::from(KEYS) / STEPS_PER_ENTRY + 3 * ENTRIES_PER_SEEK);
        assert!(paid.abs_diff(u64::from(KEYS)) < 1000, "{scans} scans");
        let before = store.inner.read_credit();
        scan();
        assert_eq!(store.inner.read_credit(), before, "one run is no reason to merge");
    }

    #[test]
    fn runs_are_merged_once_gets_have_paid_for_it() {
        let (store, clock) = open();
        (0..2).for_each(|rest| put_every(&store, 2, rest, b"value"));
        wait(&store, &clock);
        let mut gets = 0u64;
        while runs(&store) > 1 && gets < 1_000_000 {
            for at in (0..KEYS).step_by(2) {
                assert!(store.get(&at.to_be_bytes()).unwrap().is_some());
                gets += 1;
            }
            work(&store);
        }
        // The older run has the even keys: each get asks the newer one in vain. A store at rest looks for a
        // merge at each step of the credit.
        let paid = gets / PROBES_PER_ENTRY;
        assert!((CREDIT_STEP..CREDIT_STEP + 1000).contains(&paid), "{gets} gets");
        let before = store.inner.read_credit();
        (0..1000).for_each(|_| assert!(store.get(&[0, 0, 0, 1, 0]).unwrap().is_none()));
        assert_eq!(store.inner.read_credit(), before, "an absent key asks one index anyway");
    }

    #[test]
    fn an_idle_store_is_merged_if_that_frees_much() {
        for (step, is_merged) in [(4, true), (100, false)] {
            let (store, clock) = open();
            put_every(&store, 1, 0, b"value");
            // A fifth of the store, of which few entries hide others.
            for at in KEYS..KEYS + KEYS / 5 {
                store.put(&at.to_be_bytes(), b"value").unwrap();
            }
            put_every(&store, step, 0, b"newer");
            let version = store.inner.state.load().version.clone();
            let hidden = store.inner.hidden(&version, Hidden::ALL).unwrap().entries;
            let expected = u64::from(KEYS / step);
            assert!(hidden.abs_diff(expected) <= expected / 2 + 20, "{hidden} for {expected}");
            wait(&store, &clock);
            assert_eq!(runs(&store) == 1, is_merged, "one key in {step} was overwritten");
        }
    }

    #[test]
    fn deletions_hide_themselves_too() {
        let (store, _) = open();
        put_every(&store, 1, 0, &[7; 100]);
        for at in (0..KEYS).step_by(2) {
            store.delete(&at.to_be_bytes()).unwrap();
        }
        store.flush().unwrap();
        let version = store.inner.state.load().version.clone();
        let hidden = store.inner.hidden(&version, Hidden::ALL).unwrap();
        assert_eq!(hidden.entries, u64::from(KEYS));
        assert!(hidden.bytes > u64::from(KEYS / 2) * 100);
    }

    #[test]
    fn no_more_runs_are_looked_into_than_it_takes_to_hide_much() {
        let (store, _) = open();
        put_every(&store, 1, 0, b"value");
        put_every(&store, 2, 0, b"newer");
        put_every(&store, 2, 1, b"newest");
        let version = store.inner.state.load().version.clone();
        let hidden = |little| store.inner.hidden(&version, little).unwrap().entries;
        assert_eq!(hidden(Hidden::ALL), u64::from(KEYS));
        assert_eq!(hidden(Hidden::default()), u64::from(KEYS / 2));
    }
}
