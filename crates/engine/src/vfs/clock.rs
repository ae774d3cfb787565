//! Time: the wall clock for stamps and expiry, and a steady clock for waiting.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::cycles;

/// Tells the time and lets it pass.
pub trait Clock: Send + Sync + Debug {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;
    /// Nanoseconds since some fixed moment; never goes back.
    fn steady_ns(&self) -> u64;
    /// Waits.
    fn sleep(&self, duration: Duration);
}

/// So many turns of the cycle counter, some tens of microseconds, a reading of the wall clock is good for
/// within its millisecond: each write asks for the time, and the counter costs half of what the clock does.
const GOOD_FOR_CYCLES: u64 = 1 << 17;

const NS_PER_MS: u32 = 1_000_000;

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    /// The wall clock's last reading, and which count of the cycle counter it is good until.
    read_ms: AtomicU64,
    good_until: AtomicU64,
    /// Whoever reads the clock alone notes it: a reading that is noted late must not look fresh.
    is_being_read: AtomicBool,
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock {
            start: Instant::now(),
            read_ms: AtomicU64::new(0),
            good_until: AtomicU64::new(0),
            is_being_read: AtomicBool::new(false),
        }
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let counted = cycles::now();
        // Not so if the counter went back, as it may when a machine wakes.
        let left = self.good_until.load(Ordering::Acquire).wrapping_sub(counted);
        if (1..=GOOD_FOR_CYCLES).contains(&left) {
            return self.read_ms.load(Ordering::Relaxed);
        }
        let is_alone = !self.is_being_read.swap(true, Ordering::Acquire);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ms = since.as_millis() as u64;
        if is_alone {
            // No counter is slower than one turn in a nanosecond.
            let good_for =
                GOOD_FOR_CYCLES.min(u64::from(NS_PER_MS - since.subsec_nanos() % NS_PER_MS));
            self.read_ms.store(ms, Ordering::Relaxed);
            self.good_until.store(counted.wrapping_add(good_for), Ordering::Release);
            self.is_being_read.store(false, Ordering::Release);
        }
        ms
    }

    fn steady_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A clock that stands still until it is moved; sleeping moves it.
#[derive(Debug)]
pub struct ManualClock {
    ns: AtomicU64,
}

impl ManualClock {
    /// A clock at this many milliseconds since the Unix epoch.
    pub fn at_ms(ms: u64) -> Self {
        ManualClock { ns: AtomicU64::new(ms * 1_000_000) }
    }

    /// Moves the clock on.
    pub fn advance(&self, duration: Duration) {
        self.ns.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.ns.load(Ordering::SeqCst) / 1_000_000
    }

    fn steady_ns(&self) -> u64 {
        self.ns.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_told_to_the_millisecond_though_it_is_rarely_read() {
        let wall_ms = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let clock = SystemClock::default();
        for _ in 0..200_000 {
            let before_ms = wall_ms();
            let told_ms = clock.now_ms();
            assert!((before_ms..=wall_ms()).contains(&told_ms), "{told_ms} at {before_ms}");
        }
        clock.good_until.store(cycles::now() + (1 << 40), Ordering::Relaxed);
        clock.read_ms.store(1, Ordering::Relaxed);
        assert!(clock.now_ms() > 1, "a counter that went back is not believed");
    }
}
