//! What is compared of records: each metric's name, unit, and whether more of it is better.

use std::collections::BTreeSet;

use crate::chart::Unit;
use crate::record::{Latency, Record};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// Operations per second.
    Throughput,
    /// CPU time per operation, background work included.
    CpuPerOperation,
    /// The median latency of one kind of operation.
    P50,
    /// Its 99th percentile.
    P99,
    /// Its 99.9th percentile.
    P999,
    /// Peak resident memory.
    PeakResident,
    /// Peak resident memory that is no file's.
    PeakAnonymous,
    /// Bytes on disk at the end.
    Disk,
    /// Bytes written to the device per byte written by the user.
    WriteAmplification,
    /// Bytes on disk per byte that lives.
    SpaceAmplification,
}

impl Measure {
    const OF_RUN: [Measure; 7] = [
        Measure::Throughput,
        Measure::CpuPerOperation,
        Measure::PeakResident,
        Measure::PeakAnonymous,
        Measure::Disk,
        Measure::WriteAmplification,
        Measure::SpaceAmplification,
    ];
    const OF_KIND: [Measure; 3] = [Measure::P50, Measure::P99, Measure::P999];

    fn name(self) -> &'static str {
        match self {
            Measure::Throughput => "operations/s",
            Measure::CpuPerOperation => "CPU per operation",
            Measure::P50 => "p50",
            Measure::P99 => "p99",
            Measure::P999 => "p99.9",
            Measure::PeakResident => "peak resident",
            Measure::PeakAnonymous => "peak anonymous",
            Measure::Disk => "disk",
            Measure::WriteAmplification => "write amplification",
            Measure::SpaceAmplification => "space amplification",
        }
    }
}

/// A measure, of one kind of operation where it has one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric {
    /// What is measured.
    pub measure: Measure,
    /// Of which kind of operation; `None` of the run.
    pub kind: Option<String>,
}

impl Metric {
    /// A metric of the whole run.
    pub fn of_run(measure: Measure) -> Metric {
        Metric { measure, kind: None }
    }

    /// A metric of one kind of operation.
    pub fn of_kind(measure: Measure, kind: impl Into<String>) -> Metric {
        Metric { measure, kind: Some(kind.into()) }
    }

    /// Those that the records have figures for, in the order in which they are told.
    pub fn in_records<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<Metric> {
        let mut found = BTreeSet::new();
        for record in records {
            let of_run = Measure::OF_RUN.into_iter().map(Metric::of_run);
            let of_kinds = record.outcome.kinds.keys().flat_map(|kind| {
                Measure::OF_KIND.into_iter().map(move |measure| Metric::of_kind(measure, kind))
            });
            found.extend(of_run.chain(of_kinds).filter(|metric| metric.of(record).is_some()));
        }
        found.into_iter().collect()
    }

    /// Its name: `operations/s`, `get p99`.
    pub fn name(&self) -> String {
        match &self.kind {
            Some(kind) => format!("{kind} {}", self.measure.name()),
            None => self.measure.name().to_owned(),
        }
    }

    /// Its unit.
    pub fn unit(&self) -> Unit {
        match self.measure {
            Measure::Throughput => Unit::PerSecond,
            Measure::CpuPerOperation => Unit::Microseconds,
            Measure::P50 | Measure::P99 | Measure::P999 => Unit::Nanoseconds,
            Measure::PeakResident | Measure::PeakAnonymous | Measure::Disk => Unit::Bytes,
            Measure::WriteAmplification | Measure::SpaceAmplification => Unit::Ratio,
        }
    }

    /// Whether it is speed or processor time, which a report is read for first: decided apart from the many
    /// others, among which chance would hide them.
    pub fn is_headline(&self) -> bool {
        matches!(self.measure, Measure::Throughput | Measure::CpuPerOperation)
    }

    /// Whether more of it is better; of all others less is.
    pub fn more_is_better(&self) -> bool {
        self.measure == Measure::Throughput
    }

    /// The figure of a record; `None` where it wasn't measured.
    pub fn of(&self, record: &Record) -> Option<f64> {
        let outcome = &record.outcome;
        let latency = |pick: fn(&Latency) -> u64| {
            let kind = outcome.kinds.get(self.kind.as_deref()?)?;
            (kind.count > 0).then(|| pick(&kind.latency) as f64)
        };
        let measured = |value: f64| (value > 0.0).then_some(value);
        let figure = match self.measure {
            Measure::Throughput => measured(outcome.throughput()),
            Measure::CpuPerOperation => measured(outcome.cpu_us_per_operation()),
            Measure::P50 => latency(|latency| latency.p50_ns),
            Measure::P99 => latency(|latency| latency.p99_ns),
            Measure::P999 => latency(|latency| latency.p999_ns),
            Measure::PeakResident => measured(outcome.peak_resident_bytes as f64),
            Measure::PeakAnonymous => measured(outcome.peak_anonymous_bytes as f64),
            Measure::Disk => measured(outcome.disk_bytes as f64),
            Measure::WriteAmplification => outcome.write_amplification().and_then(measured),
            Measure::SpaceAmplification => outcome.space_amplification().and_then(measured),
        };
        figure.filter(|value| value.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::records::tests::record;

    #[test]
    fn what_was_not_measured_is_no_metric() {
        let records = [record("a", "1", 0, 1000.0)];
        let names: Vec<String> = Metric::in_records(&records).iter().map(Metric::name).collect();
        let expected = ["operations/s", "CPU per operation", "get p50", "get p99", "get p99.9"];
        assert_eq!(names[..5], expected);
        assert_eq!(names[5..], ["peak resident", "disk"]);
        assert_eq!(Metric::of_kind(Measure::P99, "put").of(&records[0]), None);
        assert_eq!(Metric::of_kind(Measure::P99, "get").of(&records[0]), Some(5e6));
    }
}
