//! What the books say: distributions of times and counts, since the opening or between two looks.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{Exit, Stage};

/// A distribution of times, exact to 1 % and to the nanosecond. Recorded values only; nothing is
/// scaled up for sampling.
#[derive(Debug, Clone)]
pub struct Distribution {
    ns: Histogram<u64>,
    total_ns: u64,
}

/// A distribution in a few figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Times recorded.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
    /// Their mean.
    pub mean: Duration,
    /// Half were shorter.
    pub p50: Duration,
    /// 90 % were shorter.
    pub p90: Duration,
    /// 99 % were shorter.
    pub p99: Duration,
    /// 99.9 % were shorter.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for Distribution {
    fn default() -> Self {
        let ns = Histogram::new(2).expect("two significant digits are allowed");
        Distribution { ns, total_ns: 0 }
    }
}

impl Distribution {
    /// Adds one time.
    pub fn record(&mut self, time: Duration) {
        self.record_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds one time in nanoseconds.
    pub(super) fn record_ns(&mut self, ns: u64) {
        // A day; nothing takes longer, and the size of a histogram grows with its largest value.
        let ns = ns.min(86_400_000_000_000);
        self.total_ns = self.total_ns.saturating_add(ns);
        // It grows by itself, so nothing is out of range.
        let _ = self.ns.record(ns);
    }

    /// Adds every time of another.
    pub fn add(&mut self, other: &Distribution) {
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        let _ = self.ns.add(&other.ns);
    }

    /// The times recorded since `earlier`, an earlier state of the same distribution.
    pub fn since(&self, earlier: &Distribution) -> Distribution {
        let mut ns = self.ns.clone();
        match ns.subtract(&earlier.ns) {
            Ok(()) => Distribution { ns, total_ns: self.total_ns.saturating_sub(earlier.total_ns) },
            // Not an earlier state: the store was opened anew between the two looks.
            Err(_) => self.clone(),
        }
    }

    /// Times recorded.
    pub fn count(&self) -> u64 {
        self.ns.len()
    }

    /// Their sum.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total_ns)
    }

    /// How many were at most as long as `time`, to within 1 % of `time`.
    pub fn count_up_to(&self, time: Duration) -> u64 {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if self.ns.is_empty() { 0 } else { self.ns.count_between(0, ns.min(self.ns.high())) }
    }

    /// The time that `percent` of all were not longer than; zero when there are none.
    pub fn percentile(&self, percent: f64) -> Duration {
        // The top of a bucket may lie above the largest value in it.
        Duration::from_nanos(self.ns.value_at_percentile(percent).min(self.ns.max()))
    }

    /// The usual figures.
    pub fn summary(&self) -> Summary {
        let count = self.count();
        Summary {
            count,
            total: self.total(),
            mean: Duration::from_nanos(self.total_ns.checked_div(count).unwrap_or(0)),
            p50: self.percentile(50.0),
            p90: self.percentile(90.0),
            p99: self.percentile(99.0),
            p999: self.percentile(99.9),
            max: Duration::from_nanos(self.ns.max()),
        }
    }
}

/// The books of one store: how long each stage took, and where reads ended.
#[derive(Debug, Clone)]
pub struct Stages {
    /// One operation in this many is timed; 0: none. Exits and rare stages are complete whatever it is.
    pub sample_every: u32,
    times: Vec<Distribution>,
    exits: [u64; Exit::COUNT],
}

impl Default for Stages {
    fn default() -> Self {
        let times = vec![Distribution::default(); Stage::COUNT];
        Stages { sample_every: 0, times, exits: [0; Exit::COUNT] }
    }
}

impl Stages {
    /// The times of a stage.
    pub fn times(&self, stage: Stage) -> &Distribution {
        &self.times[stage as usize]
    }

    /// The stages of which a time was recorded, in the order of [`Stage::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Stage, &Distribution)> {
        Stage::ALL.iter().map(|&stage| (stage, self.times(stage))).filter(|(_, t)| t.count() > 0)
    }

    /// How often reads, or requests to files, ended here.
    pub fn exits(&self, exit: Exit) -> u64 {
        self.exits[exit as usize]
    }

    /// What happened since `earlier`, an earlier look at the same store.
    pub fn since(&self, earlier: &Stages) -> Stages {
        let times = self.times.iter().zip(&earlier.times).map(|(now, then)| now.since(then));
        let exits = exits_since(&self.exits, &earlier.exits);
        Stages { sample_every: self.sample_every, times: times.collect(), exits }
    }

    pub(super) fn times_mut(&mut self, stage: Stage) -> &mut Distribution {
        &mut self.times[stage as usize]
    }

    pub(super) fn add_exits(&mut self, exit: Exit, count: u64) {
        self.exits[exit as usize] += count;
    }
}

fn exits_since(now: &[u64; Exit::COUNT], earlier: &[u64; Exit::COUNT]) -> [u64; Exit::COUNT] {
    std::array::from_fn(|at| now[at].saturating_sub(earlier[at]))
}

/// The books of one store without their distributions: count and sum of each stage's times, and where reads
/// ended. Far less to look at than [`Stages`], so that who records waits less for it.
#[derive(Debug, Clone)]
pub struct StageSums {
    /// As in [`Stages`].
    pub sample_every: u32,
    times: [(u64, Duration); Stage::COUNT],
    exits: [u64; Exit::COUNT],
}

impl Default for StageSums {
    fn default() -> Self {
        let times = [(0, Duration::ZERO); Stage::COUNT];
        StageSums { sample_every: 0, times, exits: [0; Exit::COUNT] }
    }
}

impl StageSums {
    /// How many times were recorded of a stage, and their sum.
    pub fn times(&self, stage: Stage) -> (u64, Duration) {
        self.times[stage as usize]
    }

    /// How often reads, or requests to files, ended here.
    pub fn exits(&self, exit: Exit) -> u64 {
        self.exits[exit as usize]
    }

    /// What happened since `earlier`, an earlier look at the same store.
    pub fn since(&self, earlier: &StageSums) -> StageSums {
        let mut times = self.times;
        for (now, then) in times.iter_mut().zip(earlier.times) {
            *now = (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
        }
        let exits = exits_since(&self.exits, &earlier.exits);
        StageSums { sample_every: self.sample_every, times, exits }
    }

    pub(super) fn add_times(&mut self, stage: Stage, times: &Distribution) {
        let (count, total) = &mut self.times[stage as usize];
        *count += times.count();
        *total += times.total();
    }

    pub(super) fn add_exits(&mut self, exit: Exit, count: u64) {
        self.exits[exit as usize] += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_recorded_times() {
        let mut distribution = Distribution::default();
        for us in 1..=1000 {
            distribution.record(Duration::from_micros(us));
        }
        let summary = distribution.summary();
        assert_eq!((summary.count, summary.total), (1000, Duration::from_micros(500_500)));
        assert_eq!(summary.mean, Duration::from_nanos(500_500));
        for (found, expected_us) in
            [(summary.p50, 500.0), (summary.p99, 990.0), (summary.max, 1000.0)]
        {
            let ratio = found.as_nanos() as f64 / 1000.0 / expected_us;
            assert!((0.99..1.01).contains(&ratio), "{found:?}, expected {expected_us} us");
        }
        let below = distribution.count_up_to(Duration::from_micros(100));
        assert!((99..=102).contains(&below), "{below}");
    }

    #[test]
    fn an_interval_holds_only_what_came_in_it() {
        let mut distribution = Distribution::default();
        distribution.record(Duration::from_secs(1));
        let earlier = distribution.clone();
        distribution.record(Duration::from_micros(7));
        let between = distribution.since(&earlier).summary();
        assert_eq!((between.count, between.total), (1, Duration::from_micros(7)));
        assert!(between.max <= Duration::from_nanos(7100), "{between:?}");
        assert_eq!(Distribution::default().summary(), Summary::default());
    }
}
