//! The benchmark history: one line of medians for each change that landed, and the chart of them.
//!
//! Lines are only ever added, so that a change that made something slower stays visible. Figures of
//! different machines are not to be compared: each machine has lines of its own in the chart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::chart::{LineChart, Point, Unit};
use crate::error::{Error, Result};
use crate::json_lines::JsonLines;
use crate::record::Record;
use crate::report::{Measure, Metric, case_name};
use crate::statistics::median;
use crate::target::engine;

/// What one change measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The change: its commit, and what it says of itself.
    pub change: String,
    /// When its first run began, in milliseconds since 1970.
    pub measured_at_ms: u64,
    /// The processor, and how many of it.
    pub machine: String,
    /// By row (workload, target where it isn't Tallybook, varied parameters): the medians.
    pub rows: BTreeMap<String, Figures>,
}

/// Medians over repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// CPU time per operation, in microseconds.
    pub cpu_us: f64,
    /// Operations per second.
    pub per_second: f64,
    /// How many runs they are of.
    pub runs: usize,
}

impl Entry {
    /// The medians of the runs that tell of their targets.
    pub fn new(change: &str, records: &[Record]) -> Result<Entry> {
        let telling: Vec<&Record> =
            records.iter().filter(|record| record.outcome.tells()).collect();
        let Some(first) = telling.iter().min_by_key(|record| record.started_at_ms) else {
            return Err(Error::Invalid("there are no runs that count".into()));
        };
        let mut groups: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
        for record in &telling {
            groups.entry(row(record)).or_default().push(record);
        }
        let of = |records: &[&Record], measure| {
            let metric = Metric::of_run(measure);
            let figures: Vec<f64> = records.iter().filter_map(|record| metric.of(record)).collect();
            median(&figures).unwrap_or(0.0)
        };
        let figures = |records: Vec<&Record>| Figures {
            cpu_us: of(&records, Measure::CpuPerOperation),
            per_second: of(&records, Measure::Throughput),
            runs: records.len(),
        };
        Ok(Entry {
            change: change.to_owned(),
            measured_at_ms: first.started_at_ms,
            machine: format!("{} cores of {}", first.machine.cores, first.machine.cpu),
            rows: groups.into_iter().map(|(name, records)| (name, figures(records))).collect(),
        })
    }

    /// Adds it to a file of such lines, which is made if need be, unless it is there: what follows on this may fail
    /// and be tried again. Answers all of them, oldest first.
    pub fn append(&self, path: &Path) -> Result<Vec<Entry>> {
        let (mut lines, mut entries) = JsonLines::open(path)?;
        if !entries.contains(self) {
            lines.append(self)?;
            entries.push(self.clone());
        }
        Ok(entries)
    }
}

/// CPU time per operation of every row, change by change, a line for each machine; rows that most entries lack are in
/// it too. A row has one colour.
pub fn chart(entries: &[Entry]) -> LineChart {
    let mut rows: Vec<&String> = Vec::new();
    let mut machines: Vec<&String> = Vec::new();
    for entry in entries {
        rows.extend(entry.rows.keys());
        machines.push(&entry.machine);
    }
    for names in [&mut rows, &mut machines] {
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(*name));
    }
    let mut chart =
        LineChart::sweep("change", Unit::Count, "CPU per operation", Unit::Microseconds).log_y();
    for (slot, row) in rows.iter().enumerate() {
        for machine in &machines {
            let of_machine = entries.iter().enumerate().filter(|(_, one)| one.machine == **machine);
            let points: Vec<Point> = of_machine
                .filter_map(|(at, one)| {
                    Some(Point::new((at + 1) as f64, one.rows.get(*row)?.cpu_us))
                })
                .collect();
            let name = match machines.len() {
                1 => (*row).clone(),
                _ => format!("{row}, {machine}"),
            };
            if !points.is_empty() {
                chart = chart.line_in(slot, name, points);
            }
        }
    }
    chart
}

/// What tells the runs of one row from others.
fn row(record: &Record) -> String {
    match &*record.target {
        engine::NAME => case_name(record),
        other => format!("{}, {other}", case_name(record)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Chart as _, WIDE};
    use crate::record::{Machine, Outcome};
    use crate::spec::Spec;

    fn record(cpu_s: f64, invalid: Option<&str>) -> Record {
        Record {
            experiment: "synthetic".into(),
            case: [("value bytes".to_owned(), "100".to_owned())].into(),
            target: engine::NAME.into(),
            target_settings: BTreeMap::new(),
            repetition: 0,
            spec: Spec::default(),
            started_at_ms: 1_700_000_000_000,
            machine: Machine { cpu: "a processor".into(), cores: 2, ..Machine::default() },
            version: "0.1.0".into(),
            outcome: Outcome {
                invalid: invalid.map(str::to_owned),
                seconds: 1.0,
                operations: 1_000_000,
                cpu_settled_s: cpu_s,
                ..Outcome::default()
            },
        }
    }

    #[test]
    fn medians_of_what_counts_are_added_and_drawn() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.jsonl");
        let records =
            [record(1.0, None), record(3.0, None), record(9.0, Some("the generator lagged"))];
        let entry = Entry::new("abc it is faster", &records).unwrap();
        let figures = entry.rows["fillrandom, value bytes 100"];
        assert_eq!(figures, Figures { cpu_us: 2.0, per_second: 1e6, runs: 2 });
        assert_eq!(entry.machine, "2 cores of a processor");
        let alone = std::slice::from_ref(&entry);
        assert_eq!(entry.append(&path).unwrap(), alone);
        assert_eq!(entry.append(&path).unwrap(), alone, "tried again it is there once");
        let other = Entry { change: "def it is slower".into(), ..entry.clone() };
        let entries = other.append(&path).unwrap();
        assert_eq!(entries, [entry, other]);
        let drawing = chart(&entries).draw(WIDE).standalone("history");
        assert!(drawing.contains("fillrandom"));
        assert!(Entry::new("nothing", &records[2..]).is_err());
    }

    #[test]
    fn a_line_goes_from_change_to_change_of_one_machine() {
        let entry = |machine: &str, cpu_us: f64| Entry {
            change: "abc".into(),
            measured_at_ms: 1,
            machine: machine.into(),
            rows: [("get".to_owned(), Figures { cpu_us, per_second: 1.0, runs: 3 })].into(),
        };
        let entries = [entry("a", 1.0), entry("b", 2.0), entry("a", 1.1), entry("b", 2.1)];
        let chart = chart(&entries).draw(WIDE).standalone("history");
        // The title of a line's path.
        for name in ["get, a", "get, b"] {
            assert!(chart.contains(&format!(">{name}</title>")), "{chart}");
        }
        assert_eq!(chart.matches("class=\"line s0\"").count(), 2, "{chart}");
        let one = super::chart(&entries[..1]).draw(WIDE).standalone("history");
        assert!(!one.contains("get, a<"), "{one}");
    }
}
