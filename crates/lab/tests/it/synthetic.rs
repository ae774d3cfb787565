//! Records as runs would leave them, made up: to draw reports from without making runs.

use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use tallybook_lab::record::{KindOutcome, Latency, Machine, Outcome, Record};
use tallybook_lab::spec::{Length, Spec, ValueSizes, Workload};

/// Names that would be markup if they weren't escaped.
pub(crate) const HOSTILE: &str = "<img src=http://127.0.0.1:9/x onerror=alert(1)> & \"more\"";

/// Microseconds of a median request, per target, for the four workloads.
const TARGETS: [(&str, [f64; 4]); 5] = [
    ("tallybook", [1.9, 2.4, 0.7, 3.1]),
    ("rocksdb tuned", [3.6, 3.3, 1.1, 4.9]),
    ("leveldb", [5.4, 4.0, 1.9, 8.0]),
    ("lmdb", [1.3, 11.2, 0.9, 10.4]),
    ("redb", [2.2, 14.0, 1.5, 12.7]),
];

const WORKLOADS: [Workload; 4] =
    [Workload::ReadRandom, Workload::FillRandom, Workload::ReadMissing, Workload::YcsbA];

/// Runs of all targets in turn, so many times, of so many seconds.
pub(crate) fn records(repetitions: u32, seconds: usize) -> Vec<Record> {
    let mut random = Random(7);
    let mut records = Vec::new();
    let mut started_at_ms = 1_795_244_400_000;
    for repetition in 0..repetitions {
        for (at, workload) in WORKLOADS.into_iter().enumerate() {
            // A slow moment of the machine hits all targets of one repetition.
            let mood = 1.0 + 0.10 * random.normal().abs();
            for (target, median_us) in TARGETS {
                started_at_ms += 20_000;
                let us = median_us[at] * mood * (1.0 + 0.02 * random.normal());
                let mut one = record(target, workload, repetition, us, seconds, &mut random);
                one.started_at_ms = started_at_ms;
                records.push(one);
            }
        }
    }
    records
}

fn record(
    target: &str,
    workload: Workload,
    repetition: u32,
    median_us: f64,
    seconds: usize,
    random: &mut Random,
) -> Record {
    let kinds: &[&str] = match workload {
        Workload::FillRandom => &["put"],
        Workload::YcsbA => &["get", "put"],
        _ => &["get"],
    };
    let rate = 0.8e6 / median_us;
    let per_second: Vec<u64> =
        (0..seconds).map(|at| (rate * dip(at) * (1.0 + 0.02 * random.normal())) as u64).collect();
    let operations: u64 = per_second.iter().sum();
    let spec = Spec {
        workload,
        values: ValueSizes::Fixed(1024),
        length: Length::Operations(operations),
        ..Spec::default()
    };
    let settings = [("version", "1.0"), ("cache", "64 MiB"), ("write buffer", "64 MiB")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let writes = u64::from(workload.writes()) * operations;
    let outcome = Outcome {
        seconds: seconds as f64,
        operations,
        kinds: kinds
            .iter()
            .map(|kind| ((*kind).to_owned(), kind_outcome(median_us, operations, seconds, random)))
            .collect(),
        per_second,
        cpu_s: seconds as f64 * 0.9,
        cpu_settled_s: seconds as f64 * (1.0 + 0.02 * random.normal()),
        peak_resident_bytes: (90e6 * (1.0 + 0.1 * random.normal())) as u64,
        device_written_bytes: writes * 2400,
        user_written_bytes: writes * 1040,
        live_bytes: 1_040_000_000,
        disk_bytes: (1.2e9 * (1.0 + 0.03 * random.normal())) as u64,
        work_checksum: "5eed".to_owned(),
        ..Outcome::default()
    };
    let machine = Machine {
        cpu: "Example 9000".to_owned(),
        cores: 2,
        memory_bytes: 24_000_000_000,
        kernel: "6.18.0".to_owned(),
        file_system: "ext4".to_owned(),
        memory_limit_bytes: None,
        read_ahead_bytes: Some(131_072),
    };
    Record {
        experiment: "rivals".to_owned(),
        case: [("workload".to_owned(), workload.name().to_owned())].into(),
        target: target.to_owned(),
        target_settings: settings.into(),
        repetition,
        spec,
        started_at_ms: 0,
        machine,
        version: "0.1.0".to_owned(),
        outcome,
    }
}

/// Every fortieth second is a slow one.
fn dip(second: usize) -> f64 {
    if second % 40 == 25 { 0.6 } else { 1.0 }
}

fn kind_outcome(median_us: f64, count: u64, seconds: usize, random: &mut Random) -> KindOutcome {
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    for _ in 0..40_000 {
        let tail = if random.share() < 0.002 { 40.0 } else { 1.0 };
        let nanoseconds = median_us * 1e3 * (0.35 * random.normal()).exp() * tail;
        histogram.record_n(nanoseconds as u64 + 1, (count / 40_000).max(1)).unwrap();
    }
    let at = |share: f64| histogram.value_at_quantile(share);
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&histogram, &mut bytes).unwrap();
    let latency = Latency {
        mean_ns: histogram.mean(),
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        p9999_ns: at(0.9999),
        max_ns: histogram.max(),
        histogram: base64::engine::general_purpose::STANDARD.encode(bytes),
    };
    let mut second = |second: usize| {
        let slow = (1.0 + 0.1 * random.normal().abs()) / dip(second).powi(4);
        [0.5, 0.99, 1.0].map(|share| (at(share) as f64 * slow) as u64)
    };
    let per_second = (0..seconds).map(&mut second).collect();
    KindOutcome { count, per_second, from_sent: latency.clone(), latency, ..KindOutcome::default() }
}

/// A linear congruential generator (Knuth's MMIX): these figures need no better.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn share(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}
