//! What one thread measured in one second.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use quanta::Instant;

use crate::workload::Kind;

/// Significant digits of every histogram: true to 0.1 %.
const DIGITS: u8 = 3;
/// A day; no request takes longer.
const NANOSECONDS_MAX: u64 = 86_400_000_000_000;

pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("three significant digits are allowed")
}

pub(super) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(NANOSECONDS_MAX);
    // It grows by itself, so nothing is out of range.
    let _ = histogram.record(ns);
}

/// One request's moments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// When it was to be sent; of a closed loop, when it was.
    pub(super) due: Instant,
    /// When it was sent.
    pub(super) sent: Instant,
    /// When its answer was shown.
    pub(super) answered: Instant,
}

/// One kind of operation in one interval, or in all.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) count: u64,
    pub(super) missed: u64,
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) latency: Histogram<u64>,
    pub(super) from_sent: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally {
            count: 0,
            missed: 0,
            errors: BTreeMap::new(),
            latency: histogram(),
            from_sent: histogram(),
        }
    }

    pub(super) fn note_latency(&mut self, times: Times, is_open_loop: bool) {
        record(&mut self.latency, times.answered.saturating_duration_since(times.due));
        if is_open_loop {
            record(&mut self.from_sent, times.answered.saturating_duration_since(times.sent));
        }
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.count += other.count;
        self.missed += other.missed;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        self.latency.add(&other.latency).expect("a growing histogram takes any other");
        self.from_sent.add(&other.from_sent).expect("a growing histogram takes any other");
    }

    pub(super) fn clear(&mut self) {
        (self.count, self.missed) = (0, 0);
        self.errors.clear();
        self.latency.reset();
        self.from_sent.reset();
    }
}

/// What one thread measured in one second.
#[derive(Debug)]
pub(super) struct Interval {
    pub(super) second: u64,
    /// Operations answered, but for those of a writer beside what the run is about.
    pub(super) operations: u64,
    pub(super) tallies: [Option<Box<Tally>>; Kind::ALL.len()],
    pub(super) checksum: u64,
    pub(super) written_bytes: u64,
    pub(super) lag: Histogram<u64>,
    /// Longest time from a slot to its sending, whoever's fault it was.
    pub(super) late_max: Duration,
    /// Of those operations.
    pub(super) last_answer: Duration,
}

impl Interval {
    pub(super) fn new() -> Interval {
        Interval {
            second: 0,
            operations: 0,
            tallies: Default::default(),
            checksum: 0,
            written_bytes: 0,
            lag: histogram(),
            late_max: Duration::ZERO,
            last_answer: Duration::ZERO,
        }
    }

    pub(super) fn clear(&mut self) {
        self.tallies.iter_mut().flatten().for_each(|tally| tally.clear());
        self.lag.reset();
        (self.operations, self.checksum, self.written_bytes) = (0, 0, 0);
        (self.late_max, self.last_answer) = (Duration::ZERO, Duration::ZERO);
    }
}
