//! How much writers are slowed while background work lags: a pure function from lag to delay.
//!
//! Below half pressure nobody is slowed. From there each written byte owes time, so that at full
//! pressure writers are let in just as fast as flushes drain. When a flush takes longer than flushes
//! do, as when the disk is slow to sync, writers are slowed further, the more the longer it takes, so
//! that the room that is left lasts and nobody has to wait for its end; so they are while the making of the
//! journal's next segment takes longer than what they have of the last would last. Writers who overwrite
//! faster than merges and collection find and free what is dead are slowed too, the more the further those
//! lag, so that a store doesn't take ever more of the disk. A debt is slept off once it is worth a sleep, a
//! few milliseconds at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Pressure from which writers are slowed.
pub const PRESSURE_SLOW: f64 = 0.5;

/// Work that slows writers and never has them wait adds at most so much to that.
pub const SLOWED_SHARE: f64 = 0.45;

/// Writers who are slowed as much as merges and collection can ask for still write so many bytes a second.
const LAGGING_BYTES_PER_S: f64 = (128 << 20) as f64;

/// A sleep is worth making from this debt on. Of many small writes few sleep then: at 800,000 puts a
/// second, sleeps of 0.1 ms were more than one put in a thousand, which made them the 99.9th percentile.
const SLEEP_NS_MIN: u64 = 1_000_000;

/// No single sleep is longer.
pub const SLEEP_MAX: Duration = Duration::from_millis(4);

/// Who must wait looks this often whether it still must.
pub const POLL: Duration = Duration::from_millis(1);

/// How far flushes lag, 0.0 to 1.0, from what is unflushed.
pub fn lag_of_flushes(
    immutable_bytes: usize,
    write_buffer_bytes: usize,
    memtable_bytes: usize,
) -> f64 {
    let room = write_buffer_bytes.saturating_sub(memtable_bytes).max(1);
    (immutable_bytes as f64 / room as f64).min(1.0)
}

/// How far merges lag, as a pressure, from how many runs L0 holds. Runs alone slow writers but never stop
/// them: reads stay cheap per run.
pub fn lag_of_merges(l0_runs: usize, level0_runs_max: usize, level_runs_max: usize) -> f64 {
    let (slow, stop) = (level0_runs_max + level_runs_max * 2, level0_runs_max + level_runs_max * 7);
    let runs = l0_runs.saturating_sub(slow) as f64 / (stop - slow) as f64;
    if runs > 0.0 { PRESSURE_SLOW + runs.min(1.0) * SLOWED_SHARE } else { 0.0 }
}

/// How far merges and collection lag, 0.0 to 1.0.
///
/// `uncollected_bytes` is what L0 holds and points at, and what is known to be dead and not yet freed: of
/// overwrites a merge makes one of the other. `merge_bytes` is what L0 holds at most when it is merged.
/// So much is usual, and so is a quarter of what the store holds; twice as much is all of the lag.
pub fn lag_in_space(uncollected_bytes: u64, merge_bytes: u64, live_bytes: u64) -> f64 {
    let usual = (merge_bytes as f64 + live_bytes as f64 / 4.0).max(1.0);
    ((uncollected_bytes as f64 - usual) / usual).clamp(0.0, 1.0)
}

/// How far background work lags, as a writer meets it.
#[derive(Debug, Clone, Copy)]
pub struct Lag {
    /// The larger of [`lag_of_flushes`] and [`lag_of_merges`].
    pub pressure: f64,
    /// As [`lag_in_space`].
    pub in_space: f64,
    /// Bytes that memtables may still take before writers must wait.
    pub left_bytes: u64,
    /// Bytes that one flush makes room for.
    pub flush_bytes: u64,
    /// Since a flush last made room, or since there was one to make.
    pub since_progress: Duration,
    /// Where no segment is ready behind the one that takes the writes, and one is being made.
    pub segment: Option<SegmentLag>,
}

/// How far the making of the next segment lags.
#[derive(Debug, Clone, Copy)]
pub struct SegmentLag {
    /// Since the writer took the last that was ready.
    pub since_taken: Duration,
    /// Bytes that it has written since.
    pub used_bytes: u64,
    /// Bytes that it may still write before it has to wait.
    pub left_bytes: u64,
}

impl SegmentLag {
    /// What a record of so many bytes owes, in seconds. The next segment is taken to last as long again: what
    /// is left must do until then, and does at the writer's own pace while no more than half is used.
    fn owed_s(&self, record_bytes: u64) -> f64 {
        let own = 1.0 / self.used_bytes.max(1) as f64;
        let needed = 1.0 / self.left_bytes.max(1) as f64;
        record_bytes as f64 * self.since_taken.as_secs_f64() * (needed - own).max(0.0)
    }
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

    /// What the writer of a record of `record_bytes`, of which memtables take `memtable_bytes`, must
    /// sleep now.
    pub fn delay(&self, record_bytes: u64, memtable_bytes: u64, lag: &Lag) -> Option<Duration> {
        // Slowly at first: who writes a little faster than is kept up is slowed a little.
        let for_space = record_bytes as f64 * lag.in_space.powi(2) / LAGGING_BYTES_PER_S;
        let for_segment = lag.segment.map_or(0.0, |lag| lag.owed_s(record_bytes));
        let owed_s = for_space.max(for_segment).max(self.owed_for_flushes_s(memtable_bytes, lag));
        let owed = (owed_s * 1e9).min(SLEEP_MAX.as_nanos() as f64) as u64;
        if owed == 0 {
            return None;
        }
        let total = self.owed_ns.fetch_add(owed, Ordering::Relaxed) + owed;
        if total < SLEEP_NS_MIN {
            return None;
        }
        let slept = total.min(SLEEP_MAX.as_nanos() as u64);
        // Another writer may have taken it over meanwhile.
        let taken = self
            .owed_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |debt| debt.checked_sub(slept));
        taken.ok().map(|_| Duration::from_nanos(slept))
    }

    /// What so many bytes in memtables owe to flushes, in seconds.
    fn owed_for_flushes_s(&self, memtable_bytes: u64, lag: &Lag) -> f64 {
        if lag.pressure <= PRESSURE_SLOW {
            return 0.0;
        }
        let drain = self.drain_bytes_per_s.load(Ordering::Relaxed).max(16 << 20) as f64;
        // From nothing at the threshold to the whole drain time of the bytes at full pressure.
        let share = (lag.pressure - PRESSURE_SLOW) / (1.0 - PRESSURE_SLOW);
        let usual = share.min(1.0) / drain;
        // A flush that takes long is taken to last as long again: what is left must do until then.
        let overdue_s = lag.since_progress.as_secs_f64() - lag.flush_bytes as f64 / drain;
        let overdue = overdue_s.max(0.0) / lag.left_bytes.max(1) as f64;
        memtable_bytes as f64 * usual.max(overdue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_grows_with_unflushed_bytes_and_runs() {
        assert_eq!(lag_of_flushes(0, 256, 64), 0.0);
        assert_eq!(lag_of_flushes(96, 256, 64), 0.5);
        assert_eq!(lag_of_flushes(500, 256, 64), 1.0);
        assert_eq!(lag_of_merges(24, 8, 8), 0.0);
        assert!(lag_of_merges(30, 8, 8) > PRESSURE_SLOW);
        assert!(lag_of_merges(1000, 8, 8) < 1.0, "runs alone never stop writers");
    }

    #[test]
    fn space_lags_beyond_a_merge_and_a_quarter_of_the_store() {
        assert_eq!(lag_in_space(0, 0, 0), 0.0);
        assert_eq!(lag_in_space(350, 100, 1000), 0.0);
        assert_eq!(lag_in_space(525, 100, 1000), 0.5);
        assert_eq!(lag_in_space(5000, 100, 1000), 1.0);
    }

    #[test]
    fn who_overwrites_faster_than_is_freed_is_slowed_by_what_it_writes() {
        let slept = |in_space, record_bytes| {
            let throttle = Throttle::default();
            let lag = Lag { in_space, ..lag(0.0, 64 << 20, 60_000) };
            let delays = (0..10_000).filter_map(|_| throttle.delay(record_bytes, 10, &lag));
            delays.map(|delay| delay.as_secs_f64()).sum::<f64>()
        };
        assert_eq!(slept(0.0, 4096), 0.0);
        let all = (10_000 * 4096) as f64 / LAGGING_BYTES_PER_S;
        assert!((slept(1.0, 4096) - all).abs() < 0.01 * all);
        assert!((slept(0.5, 4096) - all / 4.0).abs() < 0.02 * all);
    }

    fn lag(pressure: f64, left_bytes: u64, since_progress_ms: u64) -> Lag {
        let since_progress = Duration::from_millis(since_progress_ms);
        Lag {
            pressure,
            in_space: 0.0,
            left_bytes,
            flush_bytes: 8 << 20,
            since_progress,
            segment: None,
        }
    }

    #[test]
    fn the_room_that_is_left_outlasts_a_flush_that_hangs() {
        let throttle = Throttle::default();
        throttle.note_drain(100 << 20, Duration::from_secs(1));
        let (mut now, mut left) = (Duration::ZERO, 16u64 << 20);
        let mut longest = Duration::ZERO;
        // A writer at 100 MB/s, for two seconds in which nothing is flushed.
        while now < Duration::from_secs(2) {
            let delay = throttle.delay(100, 100, &lag(0.7, left, now.as_millis() as u64));
            longest = longest.max(delay.unwrap_or_default());
            now += Duration::from_micros(1) + delay.unwrap_or_default();
            left = left.checked_sub(100).expect("there is room");
        }
        assert!(longest <= SLEEP_MAX && left > 100 << 10, "{longest:?}, {left} bytes");
    }

    #[test]
    fn a_segment_outlasts_the_making_of_the_next() {
        let throttle = Throttle::default();
        const SEGMENT_BYTES: u64 = 32 << 20;
        let (mut now, mut left_bytes) = (Duration::ZERO, SEGMENT_BYTES);
        let (mut longest, mut at_first) = (Duration::ZERO, Duration::ZERO);
        // A writer at 1.6 GB/s, for half a second in which no segment is ready behind its own.
        while now < Duration::from_millis(500) {
            let used_bytes = SEGMENT_BYTES - left_bytes;
            let segment = Some(SegmentLag { since_taken: now, used_bytes, left_bytes });
            let lag = Lag { segment, ..lag(0.0, 64 << 20, 0) };
            let delay = throttle.delay(4096, 100, &lag).unwrap_or_default();
            longest = longest.max(delay);
            if used_bytes <= SEGMENT_BYTES / 2 {
                at_first += delay;
            }
            now += Duration::from_nanos(2_500) + delay;
            left_bytes = left_bytes.checked_sub(4096).expect("there is room");
        }
        assert!(longest <= SLEEP_MAX && left_bytes > 32 << 10, "{longest:?}, {left_bytes} bytes");
        assert_eq!(at_first, Duration::ZERO);
    }

    #[test]
    fn writers_at_once_sleep_what_they_owe_together() {
        let throttle = Throttle::default();
        const PUTS: u64 = 500_000;
        let lag = Lag { in_space: 1.0, ..lag(0.0, 64 << 20, 0) };
        let owed = (4096.0 / LAGGING_BYTES_PER_S * 1e9) as u64 * 4 * PUTS;
        let slept: u64 = std::thread::scope(|scope| {
            let writer = || {
                let delays = (0..PUTS).filter_map(|_| throttle.delay(4096, 10, &lag));
                delays.map(|delay| delay.as_nanos() as u64).sum::<u64>()
            };
            let writers: Vec<_> = (0..4).map(|_| scope.spawn(writer)).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        assert_eq!(slept + throttle.owed_ns.load(Ordering::Relaxed), owed);
    }

    #[test]
    fn delays_are_short_and_add_up_to_the_drain_time() {
        let throttle = Throttle::default();
        throttle.note_drain(100 << 20, Duration::from_secs(1));
        assert_eq!(throttle.delay(1 << 20, 1 << 20, &lag(0.5, 64 << 20, 0)), None);
        let mut slept = Duration::ZERO;
        for _ in 0..10_240 {
            let delay =
                throttle.delay(10 << 10, 10 << 10, &lag(1.0, 64 << 20, 0)).unwrap_or_default();
            assert!(delay <= SLEEP_MAX);
            slept += delay;
        }
        assert!(
            slept > Duration::from_millis(900) && slept < Duration::from_millis(1100),
            "{slept:?}"
        );
    }
}
