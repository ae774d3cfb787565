//! What the runs were made on and with, as far as the records tell, and every run as a line.

use std::collections::BTreeSet;

use super::metric::Metric;
use super::records::{case_name, errors_text};
use super::table::Table;
use crate::chart::{Unit, thousands};
use crate::record::{Machine, Record};
use crate::spec::{Durability, KeyDistribution, Length, Pace, Spec, ValueSizes};

/// Most different values of one setting that are listed.
const SETTINGS_MAX: usize = 8;

/// Machine, versions, durability, times, and what was asked of every run alike.
pub(super) fn setup_table(records: &[Record]) -> Table {
    let all = |pick: &dyn Fn(&Record) -> String| different(records.iter().map(pick));
    let invalid = records.iter().filter(|record| !record.outcome.counts()).count();
    let mut table = Table::new(["what", "setting"])
        .row(["machine", &all(&|record| machine_text(&record.machine))])
        .row(["Tallybook", &all(&|record| record.version.clone())])
        .row(["a write is acknowledged", &all(&|record| durability_text(&record.spec).to_owned())])
        .row(["runs", &format!("{}, of which {invalid} don't count", records.len())])
        .row(["made", &time_span(records)]);
    for (name, pick) in SPEC_ROWS {
        table = table.row([*name, &all(&|record| pick(&record.spec))]);
    }
    table
}

/// The texts that differ, by first appearance; of many only some.
fn different(texts: impl Iterator<Item = String>) -> String {
    let mut seen: Vec<String> = Vec::new();
    for text in texts {
        if !text.is_empty() && !seen.contains(&text) {
            seen.push(text);
        }
    }
    let more = seen.len().saturating_sub(SETTINGS_MAX);
    seen.truncate(SETTINGS_MAX);
    if more > 0 {
        seen.push(format!("and {more} more, in runs.jsonl"));
    }
    seen.join("; ")
}

type SpecRow = (&'static str, fn(&Spec) -> String);

const SPEC_ROWS: &[SpecRow] = &[
    ("workloads", |spec| spec.workload.name().to_owned()),
    ("keys", |spec| format!("{} of {}", thousands(spec.keys as i64), spec.key_shape())),
    ("values", |spec| {
        let share = Unit::Share.format_round(spec.compressible);
        format!("{}, compressible by {share}", values_text(spec.values))
    }),
    ("keys asked for", |spec| distribution_text(spec.distribution)),
    ("load", |spec| pace_text(spec.pace)),
    ("threads or connections", |spec| match spec.pipeline {
        1 => spec.threads.to_string(),
        deep => format!("{}, {deep} requests under way on each", spec.threads),
    }),
    ("length of a run", |spec| match spec.length {
        Length::Operations(count) => format!("{} operations", thousands(count as i64)),
        Length::Time(time) => format!("{} s", time.as_secs_f64()),
    }),
    ("reads compared with what was written", |spec| {
        if spec.verify { "yes".to_owned() } else { "no".to_owned() }
    }),
    ("seed", |spec| spec.seed.to_string()),
];

/// Each target with its versions and settings.
pub(super) fn targets_table(records: &[Record]) -> Table {
    let mut seen = BTreeSet::new();
    let mut table = Table::new(["target", "version and settings"]);
    for record in records {
        let settings = record.target_settings.iter();
        let settings: Vec<String> =
            settings.map(|(name, value)| format!("{name} {value}")).collect();
        let settings = settings.join(", ");
        if seen.insert((record.target.clone(), settings.clone())) {
            table = table.row([record.target.clone(), settings]);
        }
    }
    table
}

/// Every run with every metric.
pub(super) fn runs_table(records: &[Record]) -> Table {
    let metrics = Metric::in_records(records);
    let columns = ["made", "target", "case", "run"].map(str::to_owned).into_iter();
    let has_errors = records.iter().any(|record| record.outcome.errors() > 0);
    let errors = |record: &Record| errors_text(record.outcome.kinds.values());
    let errors = |record: &Record| has_errors.then(|| errors(record).unwrap_or("0".to_owned()));
    let columns = columns
        .chain(metrics.iter().map(Metric::name))
        .chain(has_errors.then(|| "errors".to_owned()))
        .chain(["counts".to_owned()]);
    records.iter().fold(Table::new(columns), |table, record| {
        let figures = metrics.iter().map(|metric| {
            metric.of(record).map_or("-".to_owned(), |value| metric.unit().format(value))
        });
        let number = (record.repetition + 1).to_string();
        let head = [utc(record.started_at_ms), record.target.clone(), case_name(record), number];
        let invalid = &record.outcome.invalid;
        let counts = invalid.as_ref().map_or("yes".to_owned(), |why| format!("no: {why}"));
        let class = if invalid.is_some() { "worse" } else { "" };
        table.row_in(class, head.into_iter().chain(figures).chain(errors(record)).chain([counts]))
    })
}

/// From the first run's start to the last's.
pub(super) fn time_span(records: &[Record]) -> String {
    let times = || records.iter().map(|record| record.started_at_ms);
    match (times().min(), times().max()) {
        (Some(first), Some(last)) if first != last => format!("{} to {}", utc(first), utc(last)),
        (Some(first), _) => utc(first),
        _ => "never".to_owned(),
    }
}

/// A machine in one line.
pub fn machine_text(machine: &Machine) -> String {
    let memory = Unit::Bytes.format(machine.memory_bytes as f64);
    let mut parts = vec![
        format!("{} cores of {}", machine.cores, machine.cpu),
        format!("{memory} of memory"),
        format!("{} on {}", machine.kernel, machine.file_system),
    ];
    if let Some(bytes) = machine.read_ahead_bytes {
        parts.push(format!("{} read ahead", Unit::Bytes.format(bytes as f64)));
    }
    if let Some(limit) = machine.memory_limit_bytes {
        parts.push(format!("held to {}, page cache included", Unit::Bytes.format(limit as f64)));
    }
    parts.join(", ")
}

fn durability_text(spec: &Spec) -> &'static str {
    match spec.durability {
        _ if !spec.workload.writes() => "",
        Durability::Os => "once it survives the process being killed",
        Durability::Sync => "once it survives power loss",
    }
}

fn values_text(values: ValueSizes) -> String {
    let bytes = |count: u32| thousands(i64::from(count));
    match values {
        ValueSizes::Fixed(size) => format!("{} bytes", bytes(size)),
        ValueSizes::Uniform { min, max } => {
            format!("{} to {} bytes, uniform", bytes(min), bytes(max))
        }
        ValueSizes::Pareto { min, shape, max } => {
            format!("{} to {} bytes, pareto of shape {shape}", bytes(min), bytes(max))
        }
    }
}

fn distribution_text(distribution: KeyDistribution) -> String {
    match distribution {
        KeyDistribution::Uniform => "uniform".to_owned(),
        KeyDistribution::Sequential => "one after another".to_owned(),
        KeyDistribution::Zipfian { exponent } => format!("zipfian {exponent}"),
        KeyDistribution::Latest { exponent } => format!("the latest, zipfian {exponent}"),
    }
}

fn pace_text(pace: Pace) -> String {
    let rate = |per_second: f64| thousands(per_second.round() as i64);
    match pace {
        Pace::Closed => "closed loop: each request after the reply to the one before".to_owned(),
        Pace::Constant { per_second } => {
            format!("open loop: {}/s at even intervals, latency from when due", rate(per_second))
        }
        Pace::Poisson { per_second } => {
            format!("open loop: {}/s at random moments, latency from when due", rate(per_second))
        }
    }
}

/// A moment as `2026-11-21 07:16:38 UTC` (civil from days: Hinnant's algorithm).
pub(super) fn utc(at_ms: u64) -> String {
    let (days, second) = (at_ms / 86_400_000, at_ms / 1000 % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::records::tests::record;

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_700_000_000_000), "2023-11-14 22:13:20 UTC");
    }

    #[test]
    fn setup_and_runs_tell_what_differs() {
        let mut records = vec![record("a", "1", 0, 1000.0), record("b", "1", 0, 1000.0)];
        records[1].outcome.invalid = Some("wrong data: key 7".into());
        records[1].spec.durability = Durability::Sync;
        let setup = setup_table(&records).text();
        assert!(
            setup.contains("power loss") && setup.contains("of which 1 don't count"),
            "{setup}"
        );
        assert!(setup.contains("2 cores of A <processor>"), "{setup}");
        assert!(targets_table(&records).text().contains("cache 64 MiB"));
        let runs = runs_table(&records);
        assert!(runs.text().contains("no: wrong data: key 7"));
        assert!(runs.html().contains("<tr class=\"worse\">"));
        assert!(!runs.text().contains("errors"));
        let get = records[0].outcome.kinds.get_mut("get").unwrap();
        get.errors = [("503".to_owned(), 7), ("time-out".to_owned(), 1)].into();
        let runs = runs_table(&records).text();
        assert!(runs.contains("errors") && runs.contains("7 503, 1 time-out"), "{runs}");
        assert!(setup_table(&[]).text().contains("never"));
        let many = different((0..40).map(|at| at.to_string()));
        assert!(
            many.starts_with("0; 1; ") && many.ends_with("7; and 32 more, in runs.jsonl"),
            "{many}"
        );
    }
}
