//! Figures picked from records: what tables, charts and answers of experiments are made of.
//!
//! Invariant: a run that doesn't count is no figure, but for one whose target could not keep the rate:
//! its latency is the finding, and its row says so.

use super::kept_rate::{counted, not_kept, telling};
use crate::chart::{Bar, LineChart, Unit};
use crate::record::{KindOutcome, Latency, Record};
use crate::report::{Table, errors_text, percentile_points, time_points};
use crate::statistics::{Bootstrap, median};

/// The records whose case has all of these values.
pub(super) fn of_case<'a>(records: &'a [Record], wanted: &[(&str, &str)]) -> Vec<&'a Record> {
    let has = |record: &Record, name: &str, value: &str| {
        record.case.get(name).is_some_and(|found| found == value)
    };
    let all = |record: &&Record| wanted.iter().all(|(name, value)| has(record, name, value));
    records.iter().filter(all).collect()
}

/// The records that tell of their target and that `wanted` holds of.
pub(super) fn of_telling(records: &[Record], wanted: impl Fn(&Record) -> bool) -> Vec<&Record> {
    records.iter().filter(|one| one.outcome.tells() && wanted(one)).collect()
}

/// Values of one parameter, by first appearance.
pub(super) fn values_of(records: &[Record], name: &str) -> Vec<String> {
    different(records, |record| record.case.get(name).cloned())
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

fn values(records: &[&Record], figure: impl Fn(&Record) -> Option<f64>) -> Vec<f64> {
    telling(records).into_iter().filter_map(figure).filter(|value| value.is_finite()).collect()
}

/// The median of a figure over repetitions.
pub(super) fn median_of(
    records: &[&Record],
    figure: impl Fn(&Record) -> Option<f64>,
) -> Option<f64> {
    median(&values(records, figure))
}

/// How many times as much one side has as the other, run beside run: the median over the repetitions that both
/// made. What the machine does to one of two runs made in turn it mostly does to the other, too.
pub(super) fn times_of(
    ours: &[&Record],
    theirs: &[&Record],
    figure: impl Fn(&Record) -> Option<f64>,
) -> Option<f64> {
    let times = ours.iter().filter_map(|one| {
        let beside = theirs.iter().find(|other| other.repetition == one.repetition)?;
        Some(figure(one)? / figure(beside)?)
    });
    median(&times.collect::<Vec<_>>())
}

/// The median of a figure with its interval, to be drawn.
pub(super) fn bar_of(records: &[&Record], figure: impl Fn(&Record) -> Option<f64>) -> Option<Bar> {
    Bootstrap::default().median(&values(records, figure)).map(Bar::from)
}

/// A latency of one kind of operation, in nanoseconds.
pub(super) fn latency<'k>(
    kind: &'k str,
    pick: fn(&Latency) -> u64,
) -> impl Fn(&Record) -> Option<f64> + Copy + use<'k> {
    move |record| {
        let outcome = record.outcome.kinds.get(kind).filter(|outcome| outcome.count > 0)?;
        Some(pick(&outcome.latency) as f64)
    }
}

/// What the target alone told, by its name.
pub(super) fn told<'n>(name: &'n str) -> impl Fn(&Record) -> Option<f64> + Copy + use<'n> {
    move |record| record.outcome.figures.get(name).copied()
}

/// A figure as text; `-` where there is none.
pub(super) fn text(unit: Unit, value: Option<f64>) -> String {
    or_dash(value, |value| unit.format(value))
}

/// A figure in a format of one's own; `-` where there is none.
pub(super) fn or_dash(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

/// How many times as much `a` is as `b`, as words; `-` where it can't be told.
pub(super) fn times(a: f64, b: f64) -> String {
    let ratio = a / b;
    if ratio.is_finite() { format!("{} times", short(ratio)) } else { "-".to_owned() }
}

fn short(ratio: f64) -> String {
    if ratio >= 99.5 { format!("{ratio:.0}") } else { format!("{ratio:.2}") }
}

/// One row of a table of latencies: a case's name, its runs, and the kind of operation.
#[derive(Clone)]
pub(super) struct LatencyRow<'a> {
    pub(super) name: String,
    pub(super) records: Vec<&'a Record>,
    pub(super) kind: &'static str,
}

/// Latencies as load generators tell them: medians over repetitions.
pub(super) fn latency_table(rows: &[LatencyRow<'_>]) -> Table {
    let errors = |row: &LatencyRow<'_>| {
        errors_text(row.records.iter().filter_map(|record| record.outcome.kinds.get(row.kind)))
    };
    let have_errors = rows.iter().any(|row| errors(row).is_some());
    let columns = ["case", "operation", "reached", "p50", "p90", "p99", "p99.9", "longest"]
        .into_iter()
        .chain(["not there"])
        .chain(have_errors.then_some("errors"))
        .chain(["CPU", "runs", "counts"]);
    rows.iter().filter(|row| !row.records.is_empty()).fold(Table::new(columns), |table, row| {
        let of = |pick| text(Unit::Nanoseconds, median_of(&row.records, latency(row.kind, pick)));
        let told = telling(&row.records);
        let counts = counts_text(&row.records);
        let class = if counts.starts_with("no") { "worse" } else { "" };
        let reached = median_of(&row.records, |record| rate_of(record, row.kind));
        let missed = median_of(&row.records, |record| missed_share(record, row.kind));
        let cpu = median_of(&row.records, |record| Some(record.outcome.cpu_us_per_operation()));
        let cells = [
            row.name.clone(),
            row.kind.to_owned(),
            text(Unit::PerSecond, reached),
            of(|latency| latency.p50_ns),
            of(|latency| latency.p90_ns),
            of(|latency| latency.p99_ns),
            of(|latency| latency.p999_ns),
            of(|latency| latency.max_ns),
            text(Unit::Share, missed),
        ];
        let failed = have_errors.then(|| errors(row).unwrap_or("0".to_owned()));
        let last = [text(Unit::Microseconds, cpu), told.len().to_string(), counts];
        table.row_in(class, cells.into_iter().chain(failed).chain(last))
    })
}

/// Whether a case's figures count, and if not, why: a rate that wasn't kept, or no run that tells.
fn counts_text(records: &[&Record]) -> String {
    let told = match not_kept(records) {
        _ if telling(records).is_empty() => return "no: see the raw runs".to_owned(),
        Some(share) => format!("no: not kept up, {} of the rate taken", percent(share)),
        None => "yes".to_owned(),
    };
    counted(records).map_or(told.clone(), |counted| format!("{told}, {counted}"))
}

/// A share as a whole number of hundredths, never rounded up: what is missing is the point.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", (100.0 * share).floor())
}

/// Answers per second of one kind.
pub(super) fn rate_of(record: &Record, kind: &str) -> Option<f64> {
    let outcome = record.outcome.kinds.get(kind)?;
    (record.outcome.seconds > 0.0).then(|| outcome.count as f64 / record.outcome.seconds)
}

fn missed_share(record: &Record, kind: &str) -> Option<f64> {
    let KindOutcome { count, missed, .. } = record.outcome.kinds.get(kind)?;
    (*count > 0).then(|| *missed as f64 / *count as f64)
}

/// Percentile curves, one a row.
pub(super) fn percentile_chart(rows: &[LatencyRow<'_>]) -> LineChart {
    rows.iter().filter(|row| !row.records.is_empty()).fold(
        LineChart::percentiles("latency from when due"),
        |chart, row| {
            let points = percentile_points(telling(&row.records), row.kind);
            chart.line(row.name.clone(), points)
        },
    )
}

/// The longest operation in each second, one line a row.
pub(super) fn longest_chart(y_title: &str, rows: &[LatencyRow<'_>]) -> LineChart {
    let chart = LineChart::over_time(y_title, Unit::Nanoseconds).log_y();
    rows.iter().fold(chart, |chart, row| {
        let of_second = |record: &Record| {
            let kind = record.outcome.kinds.get(row.kind).map(|kind| &kind.per_second[..]);
            kind.unwrap_or_default().iter().map(|second| second[2] as f64).collect()
        };
        chart.line(row.name.clone(), time_points(telling(&row.records), of_second))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::kept_rate::tests::{at_rate, took};
    use crate::record::FELL_BEHIND;

    #[test]
    fn failed_requests_are_in_the_table_where_there_are_any() {
        let table = |errors: &[(&str, u64)]| {
            let mut record = took((0, 1.0));
            let errors = errors.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            let kind = KindOutcome { count: 10, errors, ..KindOutcome::default() };
            record.outcome.kinds.insert("get".to_owned(), kind);
            let row = LatencyRow { name: "one".to_owned(), records: vec![&record], kind: "get" };
            latency_table(&[row]).text()
        };
        assert!(!table(&[]).contains("errors"));
        let with = table(&[("503", 3), ("time-out", 2)]);
        assert!(with.contains("errors") && with.contains("3 503, 2 time-out"), "{with}");
    }

    /// Rows said that they count at 84 % of the rate that was asked.
    #[test]
    fn rates_that_are_not_kept_are_told_as_such() {
        let table = |records: &[&Record]| {
            let row = LatencyRow { name: "one".to_owned(), records: records.to_vec(), kind: "get" };
            latency_table(&[row]).text()
        };
        let (kept, slow) = (at_rate(1000, None), at_rate(840, None));
        let behind = at_rate(400, Some(FELL_BEHIND));
        assert!(table(&[&kept]).trim_end().ends_with("yes"), "{}", table(&[&kept]));
        let told = table(&[&slow]);
        assert!(told.contains("no: not kept up, 84 % of the rate taken"), "{told}");
        let told = table(&[&kept, &behind, &behind]);
        assert!(told.contains("not kept up, 40 % of the rate taken, 1 of 3 counted"), "{told}");
        let told = table(&[&kept, &behind, &kept]);
        assert!(told.contains("yes, 2 of 3 counted"), "{told}");
        let told = table(&[&at_rate(1000, Some("the generator lagged"))]);
        assert!(told.contains("no: see the raw runs"), "{told}");
    }

    #[test]
    fn times_are_those_of_runs_beside_each_other() {
        // The machine takes twice as long each time, and the last of theirs failed.
        let ours = [(0, 11.0), (1, 24.0), (2, 52.0), (3, 1.0)].map(took);
        let theirs = [(2, 40.0), (0, 10.0), (1, 20.0)].map(took);
        let times = |theirs: &[Record]| {
            let (ours, theirs): (Vec<_>, Vec<_>) = (ours.iter().collect(), theirs.iter().collect());
            times_of(&ours, &theirs, |one| Some(one.outcome.seconds))
        };
        assert_eq!(times(&theirs), Some(1.2));
        assert_eq!(times(&[]), None);
    }
}
