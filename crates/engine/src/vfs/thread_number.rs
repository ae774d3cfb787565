//! Small numbers of threads, for what they count apart so that none waits for another's processor.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Threads that live at a time and have a number each; those beyond share one.
pub(crate) const OWN_NUMBERS: usize = 16;
/// The number that is shared, and that of a thread that ends.
pub(crate) const SHARED_NUMBER: usize = OWN_NUMBERS;

/// Which numbers living threads have, a bit each.
static TAKEN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static NUMBER: Number = Number::take();
}

/// A number below 17 that no other living thread has, but for the last, which threads share once there are
/// more of them.
#[inline]
pub(crate) fn thread_number() -> usize {
    NUMBER.try_with(|number| number.0).unwrap_or(SHARED_NUMBER)
}

/// Adds to a counter; to one that `is_own`, to which one thread at a time adds, without one of the processor's
/// locked operations, which wait for all loads before them.
#[inline]
pub(crate) fn add(counter: &AtomicU64, count: u64, is_own: bool) {
    if is_own {
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    } else {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// A count that threads add to apart.
#[derive(Debug, Default)]
pub(crate) struct Count {
    of_thread: [OwnLine; SHARED_NUMBER + 1],
}

/// Two cache lines, as processors fetch neighbours.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add_one(&self) {
        let number = thread_number();
        add(&self.of_thread[number].0, 1, number != SHARED_NUMBER);
    }

    /// What all threads added.
    pub(crate) fn sum(&self) -> u64 {
        self.of_thread.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }
}

struct Number(usize);

impl Number {
    /// The lowest that is free.
    fn take() -> Number {
        let free = |taken: u32| {
            let lowest = taken.trailing_ones();
            ((lowest as usize) < OWN_NUMBERS).then(|| taken | 1 << lowest)
        };
        match TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, free) {
            Ok(taken) => Number(taken.trailing_ones() as usize),
            Err(_) => Number(SHARED_NUMBER),
        }
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if self.0 != SHARED_NUMBER {
            // What this thread counted comes before what the next one with its number counts.
            TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}
