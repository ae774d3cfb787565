//! Sleeping until a round has ended, without a lock.
//!
//! With a condition variable everybody who is woken takes its mutex before looking: threads woken at the same
//! time wait for each other, and sleep again for as long as one of them, who holds it, gets no processor.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex::{self, Flags, Timespec};

/// A count of rounds, to sleep on (futex(2)).
#[derive(Debug, Default)]
pub struct Rounds {
    ended: AtomicU32,
}

impl Rounds {
    /// The round that has not ended. To miss no end, ask under the lock that [`Rounds::end`] is called under.
    pub fn current(&self) -> u32 {
        self.ended.load(Ordering::Acquire)
    }

    /// Sleeps until `round` has ended, or `at_most` so long; may return before.
    pub fn sleep(&self, round: u32, at_most: Option<Duration>) {
        let at_most = at_most.and_then(|at_most| Timespec::try_from(at_most).ok());
        // A round that has ended, a time that is over and a signal are errors to the system.
        let _ = futex::wait(&self.ended, Flags::PRIVATE, round, at_most.as_ref());
    }

    /// Ends the current round.
    pub fn end(&self) {
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// Wakes everybody who sleeps.
    pub fn wake(&self) {
        // It fails for a bad address alone.
        let _ = futex::wake(&self.ended, Flags::PRIVATE, i32::MAX as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_wake_when_their_round_ends_and_not_for_one_that_has() {
        let rounds = Rounds::default();
        let first = rounds.current();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while rounds.current() == first {
                        rounds.sleep(first, None);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(10));
            rounds.end();
            rounds.wake();
        });
        // It has ended, so that nobody would wake who slept.
        rounds.sleep(first, None);
        rounds.sleep(rounds.current(), Some(Duration::from_millis(1)));
    }
}
