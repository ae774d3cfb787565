//! Cells of the experiment: the times of one operation on files of one size in one store, and what is
//! said of them.

use super::TARGETS;
use crate::chart::{Bar, Unit};
use crate::experiment::picks::{case, latency, of_telling, values_of};
use crate::record::Record;
use crate::spec::Workload;
use crate::statistics::{mean, median, variance};

/// The targets that there are records of, with their places in [`TARGETS`], which are their colours.
pub(super) fn targets(records: &[Record]) -> Vec<(usize, &'static str)> {
    let there = |name: &str| records.iter().any(|record| record.target == name);
    let names = TARGETS.iter().map(|(name, ..)| *name).enumerate();
    names.filter(|(_, name)| there(name)).collect()
}

/// The sizes that there are records of, as `064 MiB`, smallest first.
pub(super) fn sizes(records: &[Record]) -> Vec<String> {
    values_of(records, "size")
}

/// A size as people write it: `64 MiB`.
pub(super) fn shown(size: &str) -> &str {
    size.trim_start_matches('0')
}

/// Bytes of a size.
pub(super) fn bytes_of(size: &str) -> f64 {
    let mib = size.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    mib.unwrap_or(0.0) * f64::from(1 << 20)
}

/// Those of the sizes from 64 MiB on, of which rates are asked.
pub(super) fn large(records: &[Record]) -> Vec<String> {
    let is_large = |size: &String| bytes_of(size) >= f64::from(64 << 20);
    sizes(records).into_iter().filter(is_large).collect()
}

/// The runs of one target on files of one size, by trial.
pub(super) fn of_size<'a>(records: &'a [Record], target: &str, size: &str) -> Vec<&'a Record> {
    let mut found =
        of_telling(records, |record| record.target == target && case(record, "size") == size);
    found.sort_by_key(|record| record.repetition);
    found
}

/// The runs of one target and one workload, by trial.
pub(super) fn of_workload<'a>(
    records: &'a [Record],
    target: &str,
    workload: Workload,
) -> Vec<&'a Record> {
    let mut found =
        of_telling(records, |record| record.target == target && record.spec.workload == workload);
    found.sort_by_key(|record| record.repetition);
    found
}

/// The times of one cell in nanoseconds, by trial.
pub(super) fn times(records: &[Record], target: &str, operation: &str, size: &str) -> Vec<f64> {
    let time = latency(operation, |latency| latency.p50_ns);
    of_size(records, target, size).into_iter().filter_map(time).collect()
}

/// The median of a cell.
pub(super) fn middle(records: &[Record], target: &str, operation: &str, size: &str) -> Option<f64> {
    median(&times(records, target, operation, size))
}

/// The standard deviation; `None` of fewer than two values.
pub(super) fn deviation(sample: &[f64]) -> Option<f64> {
    variance(sample).map(f64::sqrt)
}

/// The mean with one standard deviation to both sides, divided by something.
pub(super) fn mean_bar(sample: &[f64], divisor: f64) -> Option<Bar> {
    let value = mean(sample)? / divisor;
    let interval = deviation(sample)
        .map(|deviation| deviation / divisor)
        .map(|deviation| ((value - deviation).max(0.0), value + deviation));
    Some(Bar { value, interval })
}

/// A time in nanoseconds as text.
pub(super) fn ns(value: f64) -> String {
    Unit::Nanoseconds.format(value)
}
