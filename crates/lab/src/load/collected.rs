//! What all threads measured, added up, and turned into an outcome at any time.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use quanta::Instant;

use super::interval::{Interval, Tally, histogram};
use crate::record::{KindOutcome, Latency, Outcome};
use crate::workload::Kind;

/// A second's histograms are folded into its percentiles once it is so many seconds old.
const SECONDS_OPEN: u64 = 10;

/// What all threads measured.
#[derive(Debug)]
pub struct Collected {
    start: Instant,
    is_open_loop: bool,
    tallies: BTreeMap<Kind, Tally>,
    /// Seconds that threads may still be in.
    open: BTreeMap<u64, BTreeMap<Kind, Histogram<u64>>>,
    per_second: Vec<u64>,
    /// Operations of a writer beside what the run is about.
    beside: u64,
    percentiles: BTreeMap<Kind, Vec<[u64; 3]>>,
    checksum: u64,
    written_bytes: u64,
    lag: Histogram<u64>,
    late_max: Duration,
    last_answer: Duration,
}

impl Collected {
    pub(super) fn new(start: Instant, is_open_loop: bool) -> Collected {
        Collected {
            start,
            is_open_loop,
            tallies: BTreeMap::new(),
            open: BTreeMap::new(),
            per_second: Vec::new(),
            beside: 0,
            percentiles: BTreeMap::new(),
            checksum: 0,
            written_bytes: 0,
            lag: histogram(),
            late_max: Duration::ZERO,
            last_answer: Duration::ZERO,
        }
    }

    pub(super) fn start(&self) -> Instant {
        self.start
    }

    pub(super) fn add(&mut self, interval: &Interval) {
        let second = usize::try_from(interval.second).unwrap_or(usize::MAX - 1);
        let (mut answered, mut has_latency) = (0, false);
        for (kind, tally) in Kind::ALL.into_iter().zip(&interval.tallies) {
            let Some(tally) = tally else { continue };
            self.tallies.entry(kind).or_insert_with(Tally::new).add(tally);
            // Of time-outs there are latencies, though nothing was answered.
            if tally.latency.is_empty() {
                continue;
            }
            has_latency = true;
            answered += tally.count;
            let kinds = self.open.entry(interval.second).or_default();
            kinds
                .entry(kind)
                .or_insert_with(histogram)
                .add(&tally.latency)
                .expect("a growing histogram takes any other");
        }
        if has_latency {
            if self.per_second.len() <= second {
                self.per_second.resize(second + 1, 0);
            }
            self.per_second[second] += interval.operations;
            self.beside += answered - interval.operations;
        }
        self.checksum ^= interval.checksum;
        self.written_bytes += interval.written_bytes;
        self.lag.add(&interval.lag).expect("a growing histogram takes any other");
        self.late_max = self.late_max.max(interval.late_max);
        self.last_answer = self.last_answer.max(interval.last_answer);
        let newest = self.per_second.len() as u64;
        while let Some(oldest) = self.open.first_entry()
            && *oldest.key() + SECONDS_OPEN < newest
        {
            let (second, kinds) = oldest.remove_entry();
            fold(&mut self.percentiles, second, &kinds);
        }
    }

    /// Operations answered so far, but for those of a writer beside what the run is about.
    pub fn operations(&self) -> u64 {
        self.per_second.iter().sum()
    }

    /// What share of its rate the writer beside made.
    pub(super) fn kept_share(&self, per_second: f64) -> f64 {
        let asked = per_second * self.last_answer.as_secs_f64();
        if asked > 0.0 { (self.beside as f64 / asked).min(1.0) } else { 1.0 }
    }

    /// Those operations in each second so far.
    pub fn per_second(&self) -> &[u64] {
        &self.per_second
    }

    /// How late the generator sent requests by its own fault: 99.9th percentile and worst.
    pub(super) fn lag(&self) -> (Duration, Duration) {
        let p999 = self.lag.value_at_quantile(0.999).min(self.lag.max());
        (Duration::from_nanos(p999), Duration::from_nanos(self.lag.max()))
    }

    /// How late a request was sent at worst, by whoever's fault.
    pub(super) fn late_max(&self) -> Duration {
        self.late_max
    }

    /// What was measured so far, as far as the load generator knows it.
    pub fn outcome(&self) -> Outcome {
        let mut percentiles = self.percentiles.clone();
        for (second, kinds) in &self.open {
            fold(&mut percentiles, *second, kinds);
        }
        let kinds = self.tallies.iter().map(|(kind, tally)| {
            let mut per_second = percentiles.remove(kind).unwrap_or_default();
            per_second.resize(self.per_second.len(), [0; 3]);
            let latency = latency(&tally.latency);
            let from_sent = match self.is_open_loop {
                true => latency_or_same(&tally.from_sent, &latency),
                false => latency.clone(),
            };
            let outcome = KindOutcome {
                count: tally.count,
                missed: tally.missed,
                errors: tally.errors.clone(),
                latency,
                from_sent,
                per_second,
            };
            (kind.name().to_owned(), outcome)
        });
        Outcome {
            seconds: self.last_answer.as_secs_f64(),
            operations: self.operations(),
            kinds: kinds.collect(),
            per_second: self.per_second.clone(),
            generator_lag_max_s: self.lag().1.as_secs_f64(),
            user_written_bytes: self.written_bytes,
            work_checksum: format!("{:016x}", self.checksum),
            ..Outcome::default()
        }
    }
}

/// A writer beside an open loop may itself be a closed one, which has only one latency.
fn latency_or_same(from_sent: &Histogram<u64>, same: &Latency) -> Latency {
    if from_sent.is_empty() { same.clone() } else { latency(from_sent) }
}

fn fold(
    percentiles: &mut BTreeMap<Kind, Vec<[u64; 3]>>,
    second: u64,
    kinds: &BTreeMap<Kind, Histogram<u64>>,
) {
    let second = usize::try_from(second).unwrap_or(usize::MAX - 1);
    for (kind, histogram) in kinds {
        let all = percentiles.entry(*kind).or_default();
        if all.len() <= second {
            all.resize(second + 1, [0; 3]);
        }
        // A thread that was stuck for long may add to a second that was folded already.
        for (place, quantile) in all[second].iter_mut().zip([0.5, 0.99, 1.0]) {
            *place = (*place).max(histogram.value_at_quantile(quantile).min(histogram.max()));
        }
    }
}

/// A histogram of nanoseconds, as records hold it.
pub fn latency(histogram: &Histogram<u64>) -> Latency {
    use base64::Engine as _;
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
    if histogram.is_empty() {
        return Latency::default();
    }
    let at = |quantile| histogram.value_at_quantile(quantile).min(histogram.max());
    let mut bytes = Vec::new();
    let written = V2DeflateSerializer::new().serialize(histogram, &mut bytes);
    written.expect("writing to memory can't fail");
    Latency {
        mean_ns: histogram.mean(),
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        p9999_ns: at(0.9999),
        max_ns: histogram.max(),
        histogram: base64::engine::general_purpose::STANDARD.encode(bytes),
    }
}
