//! `runs.jsonl`: one line per run, only ever appended to, so that an interrupted experiment goes on
//! where it was.
//!
//! Invariant: a run is told from others by experiment, case, target, repetition and spec. Of several
//! lines of one run the last counts; only a valid one keeps it from being made again. By what program it
//! was made is among the settings of its target, and looked at by who adds to the file.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Result;
use crate::json_lines::JsonLines;
use crate::machine;
use crate::record::{Outcome, Record};
use crate::spec::Spec;

/// What tells a run from others.
#[derive(Debug, Clone, PartialEq)]
pub struct RunName {
    /// The experiment it is made for.
    pub experiment: String,
    /// The varied parameters' values.
    pub case: BTreeMap<String, String>,
    /// The target's name.
    pub target: String,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// What is asked.
    pub spec: Spec,
}

impl RunName {
    /// The record of this run.
    pub fn record(
        &self,
        target_settings: BTreeMap<String, String>,
        directory: Option<&Path>,
        started: SystemTime,
        outcome: Outcome,
    ) -> Record {
        let since_epoch = started.duration_since(UNIX_EPOCH).unwrap_or_default();
        Record {
            experiment: self.experiment.clone(),
            case: self.case.clone(),
            target: self.target.clone(),
            target_settings,
            repetition: self.repetition,
            spec: self.spec.clone(),
            started_at_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
            machine: machine::machine(directory),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            outcome,
        }
    }

    /// The name of the run that a record is of.
    pub fn of(record: &Record) -> RunName {
        RunName {
            experiment: record.experiment.clone(),
            case: record.case.clone(),
            target: record.target.clone(),
            repetition: record.repetition,
            spec: record.spec.clone(),
        }
    }

    fn text(&self) -> String {
        let all = (&self.experiment, &self.case, &self.target, self.repetition, &self.spec);
        serde_json::to_string(&all).expect("names and numbers are always JSON")
    }
}

/// An open `runs.jsonl`.
#[derive(Debug)]
pub struct RunsFile {
    lines: JsonLines,
    kept: LastOfEach,
}

/// Records, of each run the last.
#[derive(Debug, Default)]
struct LastOfEach {
    records: Vec<Record>,
    places: HashMap<String, usize>,
}

impl LastOfEach {
    fn keep(&mut self, record: Record) {
        let name = RunName::of(&record).text();
        match self.places.get(&name) {
            Some(&at) => self.records[at] = record,
            None => {
                self.places.insert(name, self.records.len());
                self.records.push(record);
            }
        }
    }
}

/// The records that count: of each run the last.
pub fn last_of_each(records: Vec<Record>) -> Vec<Record> {
    let mut kept = LastOfEach::default();
    records.into_iter().for_each(|record| kept.keep(record));
    kept.records
}

impl RunsFile {
    /// Opens the file, or makes it. A last line that was cut off by a kill is dropped; any other line
    /// that is no record is an error.
    pub fn open(path: &Path) -> Result<RunsFile> {
        let (lines, records) = JsonLines::open(path)?;
        let mut kept = LastOfEach::default();
        records.into_iter().for_each(|record| kept.keep(record));
        Ok(RunsFile { lines, kept })
    }

    /// The record of this run, whether or not it counts.
    pub fn find(&self, name: &RunName) -> Option<&Record> {
        self.kept.places.get(&name.text()).map(|&at| &self.kept.records[at])
    }

    /// Whether a valid record of this run is there.
    pub fn has(&self, name: &RunName) -> bool {
        self.find(name).is_some_and(|record| record.outcome.invalid.is_none())
    }

    /// Writes a record down; it survives the process being killed.
    pub fn append(&mut self, record: Record) -> Result<()> {
        self.lines.append(&record)?;
        self.kept.keep(record);
        Ok(())
    }

    /// The runs in the order of their first lines, each as its last line says.
    pub fn records(&self) -> &[Record] {
        &self.kept.records
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use super::*;

    fn name(repetition: u32) -> RunName {
        RunName {
            experiment: "rivals".into(),
            case: BTreeMap::from([("connections".into(), "16".into())]),
            target: "tallybook".into(),
            repetition,
            // A number that reads back as another one if it is read carelessly.
            spec: Spec { background_rate: 0.234_971_040_999_999_7, ..Spec::default() },
        }
    }

    fn record(repetition: u32, operations: u64, invalid: Option<&str>) -> Record {
        let invalid = invalid.map(str::to_owned);
        let outcome = Outcome { operations, invalid, ..Outcome::default() };
        name(repetition).record(BTreeMap::new(), None, SystemTime::now(), outcome)
    }

    #[test]
    fn valid_runs_are_not_made_again_after_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs.jsonl");
        let mut runs = RunsFile::open(&path).unwrap();
        runs.append(record(0, 5, None)).unwrap();
        runs.append(record(1, 6, Some("interrupted"))).unwrap();
        drop(runs);
        // Killed in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"experiment\":\"riv").unwrap();
        let mut runs = RunsFile::open(&path).unwrap();
        assert!(runs.has(&name(0)) && !runs.has(&name(1)) && !runs.has(&name(2)));
        let other_seed = RunName { spec: Spec { seed: 2, ..name(0).spec }, ..name(0) };
        assert!(!runs.has(&other_seed));
        runs.append(record(1, 7, None)).unwrap();
        let runs = RunsFile::open(&path).unwrap();
        assert!(runs.has(&name(1)));
        let operations = runs.records().iter().map(|record| record.outcome.operations);
        assert_eq!(operations.collect::<Vec<_>>(), [5, 7]);
    }
}
