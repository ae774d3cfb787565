//! `runs.jsonl`: one line per run, only ever appended to, so that an interrupted experiment goes on
//! where it was.
//!
//! Invariant: a run is told from others by experiment, case, target, repetition and spec. Of several
//! lines of one run the last counts; one that tells of its target, because it counts or because that fell
//! behind, keeps it from being made again, unless its store went with an interruption. By what program it was
//! made is among the settings of its target, and looked at by who adds to the file.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Result;
use crate::json_lines::{self, JsonLines};
use crate::machine;
use crate::record::{Outcome, Record, Standing};
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

/// The records of a file, in its order. A last line that was torn by an interruption is left out; any
/// other line that is no record is an error.
pub fn load_records(path: &Path) -> Result<Vec<Record>> {
    json_lines::read(path)
}

/// The runs that a file tells of, which reports and comparisons are made from: of each run the last line; of a run
/// that follows from another, and asks for something else once that one was made again, the newest; and none that is
/// still to be made, because it was interrupted or its store is gone.
pub fn standing_runs(path: &Path) -> Result<Vec<Record>> {
    let mut records = newest_of_each(last_of_each(load_records(path)?));
    records.retain(|record| {
        !matches!(record.outcome.standing(), Standing::Interrupted | Standing::TakenBack)
    });
    Ok(records)
}

/// Of the records of one experiment, case, target and repetition the newest.
fn newest_of_each(records: Vec<Record>) -> Vec<Record> {
    let place = |record: &Record| {
        let Record { experiment, case, target, repetition, .. } = record;
        (experiment.clone(), case.clone(), target.clone(), *repetition)
    };
    let mut newest: BTreeMap<_, u64> = BTreeMap::new();
    for record in &records {
        let at = newest.entry(place(record)).or_default();
        *at = record.started_at_ms.max(*at);
    }
    let is_newest = |record: &Record| newest[&place(record)] == record.started_at_ms;
    records.into_iter().filter(is_newest).collect()
}

/// Of each run the last record.
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

    /// Whether a record of this run is there that tells of its target.
    pub fn has(&self, name: &RunName) -> bool {
        self.find(name).is_some_and(|record| record.outcome.tells())
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
    use crate::record::{FELL_BEHIND, TAKEN_BACK};

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
    fn a_torn_last_line_is_left_out_and_a_damaged_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        let line = serde_json::to_string(&record(0, 5, None)).unwrap();
        std::fs::write(&path, format!("{line}\n\n{line}\n{}", &line[..line.len() / 2])).unwrap();
        assert_eq!(load_records(&path).unwrap().len(), 2);
        std::fs::write(&path, format!("{line}\n{line}")).unwrap();
        assert_eq!(load_records(&path).unwrap().len(), 2);
        // Half a character at the tear is no text at all.
        std::fs::write(&path, [line.as_bytes(), b"\n{\"experiment\":\"\xc3"].concat()).unwrap();
        assert_eq!(load_records(&path).unwrap().len(), 1);
        std::fs::write(&path, format!("{line}\n{{}}\n{line}\n")).unwrap();
        let error = load_records(&path).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(load_records(&directory.path().join("none")).is_err());
    }

    /// An interrupted run was drawn as one that failed, and one that was made again stood beside itself.
    #[test]
    fn what_is_still_to_be_made_is_no_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        let mut runs = RunsFile::open(&path).unwrap();
        let interrupted = crate::error::Error::Interrupted.to_string();
        for (repetition, operations, invalid) in [
            (0, 1, Some("wrong data: key 7")),
            (1, 2, None),
            (1, 3, Some(TAKEN_BACK)),
            (1, 4, None),
            (2, 5, None),
            (2, 6, Some(TAKEN_BACK)),
            (3, 7, Some(&*interrupted)),
            (4, 8, Some(FELL_BEHIND)),
        ] {
            runs.append(record(repetition, operations, invalid)).unwrap();
        }
        // It asked for a share of a rate that was measured anew.
        let mut stale = record(4, 9, None);
        stale.spec.seed += 1;
        stale.started_at_ms -= 60_000;
        runs.append(stale).unwrap();
        let standing = standing_runs(&path).unwrap();
        let operations = standing.iter().map(|record| record.outcome.operations);
        assert_eq!(operations.collect::<Vec<_>>(), [1, 4, 8]);
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
