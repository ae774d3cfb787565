//! Time: the wall clock for stamps and expiry, and a steady clock for waiting.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tells the time and lets it pass.
pub trait Clock: Send + Sync + Debug {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;
    /// Nanoseconds since some fixed moment; never goes back.
    fn steady_ns(&self) -> u64;
    /// Waits.
    fn sleep(&self, duration: Duration);
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
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
