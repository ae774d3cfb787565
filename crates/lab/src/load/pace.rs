//! When requests are due: the schedule of one thread or connection, and the waiting for it.
//!
//! Invariant: a schedule never looks at the clock or at answers, so no slot is ever moved or skipped.
//! Constant slots are counted, not added up, so they don't drift.

use std::sync::OnceLock;
use std::time::Duration;

use quanta::Instant;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::stop::Stop;
use crate::keys::mix;
use crate::process::thread_cpu_time;
use crate::spec::{Length, Pace, Spec};

/// A sleeper wakes up to this late, so the rest is spent looking at the clock.
const SPIN: Duration = Duration::from_micros(80);
/// So long before a request is due it is looked how much processor time the spinning took: that look is a
/// system call, which must not hold the request up.
const SPIN_LAST: Duration = Duration::from_micros(3);
/// A sleep is no longer than this, so that stopping is noticed.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(50);

/// How the time until a request is due is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waiting {
    /// `Spin` when the process may run on several processors, else `Sleep`.
    #[default]
    Auto,
    /// Asleep until shortly before, then looking at the clock: to the microsecond.
    Spin,
    /// Asleep: tens of microseconds late, but leaves the processor to the target.
    Sleep,
}

impl Waiting {
    /// How long before the due time sleep ends.
    pub(super) fn margin(self) -> Duration {
        let spins = match self {
            Waiting::Spin => true,
            Waiting::Sleep => false,
            Waiting::Auto => std::thread::available_parallelism().is_ok_and(|n| n.get() > 1),
        };
        if spins { SPIN } else { Duration::ZERO }
    }
}

/// The slots of one thread or connection.
#[derive(Debug)]
pub(super) struct Schedule {
    slots: Slots,
    /// Slots left.
    left: u64,
    /// No slot is due this long after the start or later.
    until: Option<Duration>,
}

#[derive(Debug)]
enum Slots {
    /// Due when the one before was answered.
    Closed,
    Constant {
        nth: u64,
        step: u64,
        per_second: f64,
    },
    Poisson {
        random: Box<Xoshiro256PlusPlus>,
        mean_s: f64,
        last_s: f64,
    },
}

/// A slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// Whenever there is room.
    AtOnce,
    /// So long after the start.
    At(Duration),
}

impl Schedule {
    /// The slots of the `place`-th of the spec's threads: every `threads`-th of all.
    pub(super) fn new(spec: &Spec, place: u32) -> Schedule {
        let (place, threads) = (u64::from(place), u64::from(spec.threads));
        let (slots, per_second) = match spec.pace {
            Pace::Closed => (Slots::Closed, None),
            Pace::Constant { per_second } => {
                (Slots::Constant { nth: place, step: threads, per_second }, Some(per_second))
            }
            Pace::Poisson { per_second } => {
                let seed = mix(spec.seed ^ 0x706f_6973_736f_6e00).wrapping_add(place);
                let random = Box::new(Xoshiro256PlusPlus::seed_from_u64(seed));
                let mean_s = threads as f64 / per_second;
                (Slots::Poisson { random, mean_s, last_s: 0.0 }, None)
            }
        };
        let share = |all: u64| all / threads + u64::from(place < all % threads);
        let (left, until) = match (spec.length, per_second) {
            (Length::Operations(all), _) => (share(all), None),
            (Length::Time(time), Some(rate)) => {
                (share((rate * time.as_secs_f64()).round() as u64), None)
            }
            (Length::Time(time), None) => (u64::MAX, Some(time)),
        };
        Schedule { slots, left, until }
    }

    /// The slots of a writer beside the others: endless; as fast as possible when the rate is 0.
    pub(super) fn endless(per_second: f64) -> Schedule {
        let slots = if per_second > 0.0 {
            Slots::Constant { nth: 0, step: 1, per_second }
        } else {
            Slots::Closed
        };
        Schedule { slots, left: u64::MAX, until: None }
    }

    /// Whether its slots are due when the ones before were answered.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.slots, Slots::Closed)
    }

    /// The next slot; `elapsed` tells when a closed loop's time is over.
    pub(super) fn next(&mut self, elapsed: impl FnOnce() -> Duration) -> Option<Slot> {
        if self.left == 0 {
            return None;
        }
        let slot = match &mut self.slots {
            Slots::Closed => {
                if self.until.is_some_and(|until| elapsed() >= until) {
                    return None;
                }
                Slot::AtOnce
            }
            Slots::Constant { nth, step, per_second } => {
                let due = Duration::from_nanos((*nth as f64 * 1e9 / *per_second) as u64);
                *nth += *step;
                Slot::At(due)
            }
            Slots::Poisson { random, mean_s, last_s } => {
                let gap: f64 = Exp1.sample(random);
                *last_s += gap * *mean_s;
                Slot::At(Duration::from_secs_f64(*last_s))
            }
        };
        if let (Slot::At(due), Some(until)) = (slot, self.until)
            && due >= until
        {
            self.left = 0;
            return None;
        }
        self.left -= 1;
        Some(slot)
    }
}

/// How long a run of this spec is meant to take; `None` when that depends on the target.
pub(crate) fn planned(spec: &Spec) -> Option<Duration> {
    match (spec.length, spec.pace) {
        (Length::Time(time), _) => Some(time),
        (Length::Operations(_), Pace::Closed) => None,
        (
            Length::Operations(count),
            Pace::Constant { per_second } | Pace::Poisson { per_second },
        ) => Duration::try_from_secs_f64(count as f64 / per_second).ok(),
    }
}

/// Has the system wake this thread when it asked for it, not up to 50 us later.
pub(super) fn wake_punctually() {
    let least = std::num::NonZeroU64::new(1);
    // Refused in some sandboxes; then lateness shows in the generator's lag.
    let _ = rustix::thread::set_current_timer_slack(least);
}

/// Processor time that a look at it takes, the least of a few. The first call measures it, which must not be a
/// run's.
pub(super) fn look_time() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    let look = || {
        let from = thread_cpu_time();
        thread_cpu_time() - from
    };
    *TIME.get_or_init(|| (0..32).map(|_| look()).min().unwrap_or_default())
}

/// When a wait ended, and how much processor time went by in looking at the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waited {
    pub(super) until: Instant,
    pub(super) spun: Duration,
}

/// What a wait's looking at the clock took. It is processor time, because a thread that looks may lose its
/// processor, and that costs none.
#[derive(Debug, Default)]
struct Spinning {
    from: Option<Duration>,
    /// Processor time until shortly before the end, and when that was.
    last: Option<(Duration, Instant)>,
}

impl Spinning {
    /// One more look at the clock, which says how long it is until the end.
    fn goes_on(&mut self, left: Duration) {
        if left > SPIN_LAST {
            self.from.get_or_insert_with(thread_cpu_time);
        } else if self.last.is_none() {
            self.last = Some((self.so_far(), Instant::now()));
        }
    }

    fn so_far(&self) -> Duration {
        self.from.map_or(Duration::ZERO, |from| thread_cpu_time() - from + look_time())
    }

    fn ends(&self, now: Instant) -> Duration {
        match self.last {
            // Too short to be worth another look.
            Some((spun, since)) => spun + now.saturating_duration_since(since).min(SPIN_LAST),
            None => self.so_far(),
        }
    }
}

/// Waits until `due`; not as long when `stop` is set.
pub(super) fn wait_until(due: Instant, margin: Duration, stop: &Stop<'_>) -> Waited {
    let mut spinning = Spinning::default();
    loop {
        let now = Instant::now();
        if now >= due || stop.is_set() {
            return Waited { until: now, spun: spinning.ends(now) };
        }
        let left = due - now;
        if left > margin {
            std::thread::sleep((left - margin).min(SLEEP_MAX));
        } else {
            spinning.goes_on(left);
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn slots(spec: &Spec) -> Vec<Duration> {
        let mut all = Vec::new();
        for place in 0..spec.threads {
            let mut schedule = Schedule::new(spec, place);
            while let Some(Slot::At(due)) = schedule.next(|| unreachable!("it is open")) {
                all.push(due);
            }
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn constant_slots_are_all_there_and_even() {
        for (per_second, threads) in [(1000.0, 1), (2500.0, 7), (40_000.0, 64), (3.0, 2)] {
            let pace = Pace::Constant { per_second };
            let length = Length::Time(Duration::from_secs(4));
            let slots = slots(&Spec { pace, length, threads, ..Spec::default() });
            assert_eq!(slots.len() as f64, per_second * 4.0);
            for (nth, due) in slots.iter().enumerate() {
                let exact = nth as f64 / per_second;
                assert!((due.as_secs_f64() - exact).abs() < 2e-9, "{nth} of {per_second}");
            }
        }
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let pace = Pace::Poisson { per_second: 10_000.0 };
        let length = Length::Time(Duration::from_secs(10));
        let slots = slots(&Spec { pace, length, threads: 8, ..Spec::default() });
        // Five standard deviations of a Poisson count.
        assert!((slots.len() as f64 - 100_000.0).abs() < 5.0 * 100_000_f64.sqrt());
        let gaps: Vec<f64> = slots.windows(2).map(|two| (two[1] - two[0]).as_secs_f64()).collect();
        let longer = gaps.iter().filter(|&&gap| gap > 2e-4).count() as f64 / gaps.len() as f64;
        assert!((longer - (-2.0_f64).exp()).abs() < 0.006, "{longer}");
    }

    #[test]
    fn operations_are_shared_out_exactly() {
        let length = Length::Operations(1001);
        let spec = Spec { length, threads: 4, ..Spec::default() };
        let counts = (0..4).map(|place| {
            let mut schedule = Schedule::new(&spec, place);
            std::iter::from_fn(|| schedule.next(Duration::default)).count()
        });
        assert_eq!(counts.collect::<Vec<_>>(), [251, 250, 250, 250]);
        assert_eq!(planned(&spec), None);
        let open = Spec { pace: Pace::Constant { per_second: 2002.0 }, ..spec };
        assert_eq!((slots(&open).len(), planned(&open)), (1001, Some(Duration::from_millis(500))));
    }

    #[test]
    fn closed_loop_ends_with_its_time() {
        let length = Length::Time(Duration::from_secs(1));
        let mut schedule = Schedule::new(&Spec { length, ..Spec::default() }, 0);
        assert_eq!(schedule.next(|| Duration::from_millis(999)), Some(Slot::AtOnce));
        assert_eq!(schedule.next(|| Duration::from_secs(1)), None);
    }

    #[test]
    fn waiting_is_never_too_short() {
        for waiting in [Waiting::Spin, Waiting::Sleep] {
            let due = Instant::now() + Duration::from_millis(3);
            let running = AtomicBool::new(false);
            assert!(wait_until(due, waiting.margin(), &Stop::new(&running)).until >= due);
        }
        let far = Instant::now() + Duration::from_secs(3600);
        let interrupted = AtomicBool::new(true);
        assert!(wait_until(far, Duration::ZERO, &Stop::new(&interrupted)).until < far);
    }

    /// Time in which others had the processor was charged to the generator, and taken off what the target took.
    #[test]
    fn a_spinner_that_loses_its_processor_has_spun_only_what_it_took() {
        let running = AtomicBool::new(false);
        let is_over = AtomicBool::new(false);
        let busy = 3 * std::thread::available_parallelism().map_or(1, |count| count.get());
        std::thread::scope(|scope| {
            for _ in 0..busy {
                scope.spawn(|| {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let wait = Duration::from_millis(300);
            let (from, began) = (thread_cpu_time(), Instant::now());
            let waited = wait_until(began + wait, wait, &Stop::new(&running));
            let took = thread_cpu_time() - from;
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(took < wait * 3 / 4, "{busy} others left it {took:?}");
            let bounds = took * 9 / 10..took + Duration::from_millis(1);
            assert!(bounds.contains(&waited.spun), "{waited:?}, {took:?}");
        });
    }
}
