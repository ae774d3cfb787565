//! The read state of now, and the SeqNo that goes with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};

use crate::key::SeqNo;

/// What is loaded without waiting, and replaced by one thread at a time.
#[derive(Debug)]
pub(crate) struct CurrentState<S> {
    state: ArcSwap<S>,
    /// Twice the times it was replaced, and one more while it is (a sequence lock: Lameter 2005).
    changes: AtomicU64,
}

impl<S> CurrentState<S> {
    pub(super) fn new(state: S) -> CurrentState<S> {
        CurrentState { state: ArcSwap::from_pointee(state), changes: AtomicU64::new(0) }
    }

    /// The state, to look at.
    #[inline]
    pub(super) fn load(&self) -> Guard<Arc<S>> {
        self.state.load()
    }

    /// The state, to keep.
    pub(super) fn load_full(&self) -> Arc<S> {
        self.state.load_full()
    }

    /// Requires: one thread at a time.
    pub(super) fn replace(&self, state: S) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes + 1, Ordering::Relaxed);
        // What is seen after this was replaced, the count above is seen too: the store is a release.
        self.state.store(Arc::new(state));
        self.changes.store(changes + 2, Ordering::Release);
    }

    /// A state and the last SeqNo that reads see, which belong together.
    ///
    /// Of a state newer than the SeqNo, a compaction may have dropped the version that the SeqNo sees.
    /// With a state older than the SeqNo, the active memtable, which still grows, may point into a
    /// journal segment that the state doesn't know. So the SeqNo is read while one state stands: seldom
    /// more is to be done than to see that there was no change, which spares a second load. In turn,
    /// medians of eleven: `readmissing` of 100 bytes 0.215 / 0.189 us.
    #[inline]
    pub(super) fn with_last_seqno(&self, visible_seqno: &AtomicU64) -> (Guard<Arc<S>>, SeqNo) {
        let changes = self.changes.load(Ordering::Acquire);
        let state = self.state.load();
        let seqno = visible_seqno.load(Ordering::Acquire);
        // A SeqNo that some newer state came before is seen with that state's count.
        if changes.is_multiple_of(2) && self.changes.load(Ordering::Relaxed) == changes {
            return (state, seqno);
        }
        self.between_two_loads(state, visible_seqno)
    }

    /// As above, while the state is replaced: not to wait for that, the SeqNo is read between two equal states.
    #[cold]
    fn between_two_loads(
        &self,
        mut state: Guard<Arc<S>>,
        visible_seqno: &AtomicU64,
    ) -> (Guard<Arc<S>>, SeqNo) {
        loop {
            let seqno = visible_seqno.load(Ordering::Acquire);
            let now = self.state.load();
            if Arc::ptr_eq(&state, &now) {
                return (state, seqno);
            }
            state = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn no_state_is_older_than_its_seqno() {
        let (current, visible) = (CurrentState::new(0_u64), AtomicU64::new(0));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = (0, 0);
                    while !done.load(Ordering::Relaxed) {
                        let (state, seqno) = current.with_last_seqno(&visible);
                        assert!(**state >= seqno, "state {state}, SeqNo {seqno}");
                        assert!((**state, seqno) >= last, "neither goes back");
                        last = (**state, seqno);
                    }
                });
            }
            for number in 1..=50_000 {
                current.replace(number);
                visible.store(number, Ordering::Release);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(**current.load(), 50_000);
        assert_eq!(*current.load_full(), 50_000);
    }

    #[test]
    fn a_state_that_is_being_replaced_is_read_all_the_same() {
        let (current, visible) = (CurrentState::new('a'), AtomicU64::new(7));
        current.changes.store(1, Ordering::Relaxed);
        let (state, seqno) = current.with_last_seqno(&visible);
        assert_eq!((**state, seqno), ('a', 7));
    }
}
