//! Figures of the valid records that a report's table or chart shows: medians with their intervals.

use crate::chart::Bar;
use crate::record::Record;
use crate::report::Metric;
use crate::statistics::{Bootstrap, median};

/// A selection of records: those that count and that `wanted` holds of.
pub(super) fn of(records: &[Record], wanted: impl Fn(&Record) -> bool) -> Vec<&Record> {
    records.iter().filter(|one| one.outcome.invalid.is_none() && wanted(one)).collect()
}

/// A metric's figures of a selection.
pub(super) fn figures(selection: &[&Record], metric: &Metric) -> Vec<f64> {
    selection.iter().filter_map(|record| metric.of(record)).collect()
}

/// A metric's median.
pub(super) fn median_of(selection: &[&Record], metric: &Metric) -> Option<f64> {
    median(&figures(selection, metric))
}

/// The same as a bar with its interval.
pub(super) fn bar_of(selection: &[&Record], metric: &Metric) -> Option<Bar> {
    Bootstrap::default().median(&figures(selection, metric)).map(Into::into)
}

/// The different values of something, by first appearance.
pub(super) fn different<T: PartialEq>(
    records: &[Record],
    pick: impl Fn(&Record) -> Option<T>,
) -> Vec<T> {
    let mut seen = Vec::new();
    for value in records.iter().filter_map(pick) {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// A parameter's value of a record.
pub(super) fn case<'a>(record: &'a Record, name: &str) -> &'a str {
    record.case.get(name).map_or("", String::as_str)
}

/// A figure that may be missing.
pub(super) fn or_dash(figure: Option<f64>, format: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| "-".to_owned(), format)
}
