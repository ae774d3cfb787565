//! How much writers are slowed while flushes lag: a pure function from pressure to delay.
//!
//! Below half pressure nothing is slowed. From there each written byte owes time, so that at full
//! pressure writers are let in just as fast as flushes drain. When a flush takes longer than flushes
//! do, as when the disk is slow to sync, writers are slowed further, the more the longer it takes, so
//! that the room that is left lasts and nobody has to wait for its end. A debt is slept off once it is
//! worth a sleep, a few milliseconds at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Pressure from which writers are slowed.
pub const PRESSURE_SLOW: f64 = 0.5;

/// A sleep is worth making from this debt on. Of many small writes few sleep then: at 800,000 puts a
/// second, sleeps of 0.1 ms were more than one put in a thousand, which made them the 99.9th percentile.
const SLEEP_NS_MIN: u64 = 1_000_000;

/// No single sleep is longer.
pub const SLEEP_MAX: Duration = Duration::from_millis(4);

/// Who must wait looks this often whether it still must.
pub const POLL: Duration = Duration::from_millis(1);

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

/// How far flushes lag, as a writer meets it.
#[derive(Debug, Clone, Copy)]
pub struct Lag {
    /// As [`pressure`].
    pub pressure: f64,
    /// Bytes that memtables may still take before writers must wait.
    pub left_bytes: u64,
    /// Bytes that one flush makes room for.
    pub flush_bytes: u64,
    /// Since a flush last made room, or since there was one to make.
    pub since_progress: Duration,
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

    /// What the writer of `bytes` must sleep now.
    pub fn delay(&self, bytes: u64, lag: &Lag) -> Option<Duration> {
        if lag.pressure <= PRESSURE_SLOW {
            return None;
        }
        let drain = self.drain_bytes_per_s.load(Ordering::Relaxed).max(16 << 20) as f64;
        // From nothing at the threshold to the whole drain time of the bytes at full pressure.
        let share = (lag.pressure - PRESSURE_SLOW) / (1.0 - PRESSURE_SLOW);
        let usual = share.min(1.0) / drain;
        // A flush that takes long is taken to last as long again: what is left must do until then.
        let overdue_s = lag.since_progress.as_secs_f64() - lag.flush_bytes as f64 / drain;
        let overdue = overdue_s.max(0.0) / lag.left_bytes.max(1) as f64;
        let owed =
            (bytes as f64 * usual.max(overdue) * 1e9).min(SLEEP_MAX.as_nanos() as f64) as u64;
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

    fn lag(pressure: f64, left_bytes: u64, since_progress_ms: u64) -> Lag {
        let since_progress = Duration::from_millis(since_progress_ms);
        Lag { pressure, left_bytes, flush_bytes: 8 << 20, since_progress }
    }

    #[test]
    fn the_room_that_is_left_outlasts_a_flush_that_hangs() {
        let throttle = Throttle::default();
        throttle.note_drain(100 << 20, Duration::from_secs(1));
        let (mut now, mut left) = (Duration::ZERO, 16u64 << 20);
        let mut longest = Duration::ZERO;
        // A writer at 100 MB/s, for two seconds in which nothing is flushed.
        while now < Duration::from_secs(2) {
            let delay = throttle.delay(100, &lag(0.7, left, now.as_millis() as u64));
            longest = longest.max(delay.unwrap_or_default());
            now += Duration::from_micros(1) + delay.unwrap_or_default();
            left = left.checked_sub(100).expect("there is room");
        }
        assert!(longest <= SLEEP_MAX && left > 100 << 10, "{longest:?}, {left} bytes");
    }

    #[test]
    fn delays_are_short_and_add_up_to_the_drain_time() {
        let throttle = Throttle::default();
        throttle.note_drain(100 << 20, Duration::from_secs(1));
        assert_eq!(throttle.delay(1 << 20, &lag(0.5, 64 << 20, 0)), None);
        let mut slept = Duration::ZERO;
        for _ in 0..10_240 {
            let delay = throttle.delay(10 << 10, &lag(1.0, 64 << 20, 0)).unwrap_or_default();
            assert!(delay <= SLEEP_MAX);
            slept += delay;
        }
        assert!(
            slept > Duration::from_millis(900) && slept < Duration::from_millis(1100),
            "{slept:?}"
        );
    }
}
