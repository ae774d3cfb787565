//! How much writers are slowed while flushes lag: a pure function from pressure to delay.
//!
//! Below half pressure nothing is slowed. From there each written byte owes time, so that at full
//! pressure writers are let in just as fast as flushes drain. A debt is slept off once it is worth a
//! sleep, never more than a millisecond at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Pressure from which writers are slowed.
pub const PRESSURE_SLOW: f64 = 0.5;

/// A sleep is worth making from this debt on: the kernel's timers are no finer.
const SLEEP_NS_MIN: u64 = 100_000;

/// No single sleep is longer.
pub const SLEEP_MAX: Duration = Duration::from_millis(1);

/// How far background work lags, 0.0 to 1.0, from what is unflushed and how many runs L0 holds.
///
/// Runs alone slow writers but never stop them: reads stay cheap per run.
pub fn pressure(
    immutable_bytes: usize,
    write_buffer_bytes: usize,
    memtable_bytes: usize,
    l0_runs: usize,
    level_runs_max: usize,
) -> f64 {
    let room = write_buffer_bytes.saturating_sub(memtable_bytes).max(1);
    let memory = immutable_bytes as f64 / room as f64;
    let (slow, stop) = (level_runs_max * 3, level_runs_max * 8);
    let runs = l0_runs.saturating_sub(slow) as f64 / (stop - slow) as f64;
    memory.min(1.0).max(
        (PRESSURE_SLOW + runs * (0.95 - PRESSURE_SLOW)).min(0.95) * f64::from(u8::from(runs > 0.0)),
    )
}

/// The debt of writers in time.
#[derive(Debug, Default)]
pub struct Throttle {
    owed_ns: AtomicU64,
    /// Flush speed, in bytes per second, smoothed.
    drain_bytes_per_s: AtomicU64,
}

impl Throttle {
    /// Records how fast a flush drained.
    pub fn note_drain(&self, bytes: u64, elapsed: Duration) {
        let speed = (bytes as f64 / elapsed.as_secs_f64().max(1e-6)) as u64;
        let before = self.drain_bytes_per_s.load(Ordering::Relaxed);
        let smoothed = if before == 0 { speed } else { (before * 3 + speed) / 4 };
        self.drain_bytes_per_s.store(smoothed.max(1 << 20), Ordering::Relaxed);
    }

    /// What the writer of `bytes` must sleep now at this pressure.
    pub fn delay(&self, bytes: u64, pressure: f64) -> Option<Duration> {
        if pressure <= PRESSURE_SLOW {
            return None;
        }
        let drain = self.drain_bytes_per_s.load(Ordering::Relaxed).max(16 << 20) as f64;
        // From nothing at the threshold to the whole drain time of the bytes at full pressure.
        let share = (pressure - PRESSURE_SLOW) / (1.0 - PRESSURE_SLOW);
        let owed = (bytes as f64 / drain * share * 1e9) as u64;
        let total = self.owed_ns.fetch_add(owed, Ordering::Relaxed) + owed;
        if total < SLEEP_NS_MIN {
            return None;
        }
        let slept = total.min(SLEEP_MAX.as_nanos() as u64);
        self.owed_ns.fetch_sub(slept, Ordering::Relaxed);
        Some(Duration::from_nanos(slept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_grows_with_unflushed_bytes_and_runs() {
        assert_eq!(pressure(0, 256, 64, 0, 8), 0.0);
        assert_eq!(pressure(96, 256, 64, 0, 8), 0.5);
        assert_eq!(pressure(500, 256, 64, 0, 8), 1.0);
        assert_eq!(pressure(0, 256, 64, 24, 8), 0.0);
        assert!(pressure(0, 256, 64, 30, 8) > PRESSURE_SLOW);
        assert!(pressure(0, 256, 64, 1000, 8) < 1.0, "runs alone never stop writers");
    }

    #[test]
    fn delays_are_short_and_add_up_to_the_drain_time() {
        let throttle = Throttle::default();
        throttle.note_drain(100 << 20, Duration::from_secs(1));
        assert_eq!(throttle.delay(1 << 20, 0.5), None);
        let mut slept = Duration::ZERO;
        for _ in 0..10_240 {
            let delay = throttle.delay(10 << 10, 1.0).unwrap_or_default();
            assert!(delay <= SLEEP_MAX);
            slept += delay;
        }
        assert!(
            slept > Duration::from_millis(900) && slept < Duration::from_millis(1100),
            "{slept:?}"
        );
    }
}
