//! Experiments: each a question, the runs that answer it, and the report drawn from their records.
//!
//! An experiment only plans and draws; the runs are made by [`runner`]. Invariant: a report is drawn
//! from records and nothing else, so it can be drawn again at any time from `runs.jsonl`.

mod plan;
mod repetitions;
mod memory_group;
mod subject;
mod fingerprints;
mod server;
mod stores;
mod profiles;
mod estimate;
mod sequences;
mod kept;
pub mod runner;
mod kept_rate;
mod picks;
mod planning;
mod stages_over_time;
mod flush_threads;
mod table_collapse;
mod flush_stall;
mod head_and_body;
mod collection;
mod growth;
mod sustained;
mod rivals;
mod builds;
mod kfs;
mod http_floor;
mod http_constant;
mod beyond_memory;
#[cfg(test)]
mod tests;

pub use plan::{FilesStore, PlannedRun, Scale, Subject};
pub use repetitions::with_repetitions;

use crate::error::{Error, Result};
use crate::record::Record;
use crate::report::Report;

/// A question with the runs that answer it.
pub trait Experiment: Sync {
    /// Its name, such as `flush-stall`.
    fn name(&self) -> &'static str;
    /// What it asks, in one sentence.
    fn question(&self) -> &'static str;
    /// The runs in the order in which they are made: in turn (A B A B), so that drift falls on all
    /// alike. `against` names what is compared with, where that can be chosen; empty: the experiment's
    /// own choice.
    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>>;
    /// Runs that ask for what the planned ones found out, such as a share of the highest rate. Asked once all
    /// of those are made; the same records are followed by the same runs.
    fn following(&self, _planned: &[PlannedRun], _records: &[Record]) -> Vec<PlannedRun> {
        Vec::new()
    }
    /// The report. `rerun` is the command that makes the runs again.
    fn report(&self, records: &[Record], rerun: &str) -> Report;
}

static ALL: &[&dyn Experiment] = &[
    &stages_over_time::StagesOverTime,
    &flush_threads::FlushThreads,
    &table_collapse::TableCollapse,
    &flush_stall::FlushStall,
    &head_and_body::HeadAndBody,
    &collection::Collection,
    &growth::Growth,
    &sustained::Sustained,
    &rivals::Rivals,
    &builds::Builds,
    &kfs::Kfs,
    &http_floor::HttpFloor,
    &http_constant::HttpConstant,
    &beyond_memory::BeyondMemory,
];

/// Every experiment.
pub fn all() -> &'static [&'static dyn Experiment] {
    ALL
}

/// The experiment of this name; an error that lists all when there is none.
pub fn find(name: &str) -> Result<&'static dyn Experiment> {
    let found = ALL.iter().copied().find(|one| one.name() == name);
    found.ok_or_else(|| Error::Unknown {
        what: "experiment",
        name: name.to_owned(),
        known: ALL.iter().map(|one| one.name().to_owned()).collect(),
    })
}

#[cfg(test)]
mod registry {
    use std::collections::{BTreeMap, HashSet};
    use std::time::SystemTime;

    use super::*;
    use crate::record::Outcome;
    use crate::report::RUNS_MIN;
    use crate::runs_file::RunName;

    #[test]
    fn names_lead_back_and_an_unknown_one_lists_them() {
        for one in all() {
            assert_eq!(find(one.name()).unwrap().name(), one.name());
            assert!(one.question().ends_with('?'), "{}", one.name());
        }
        let error = find("rivalz").err().unwrap().to_string();
        assert!(all().iter().all(|one| error.contains(one.name())), "{error}");
    }

    /// Two runs of one name would be taken for one when the experiment is resumed, and of two that differ in their
    /// spec alone the newer is drawn.
    #[test]
    fn every_planned_run_has_a_name_of_its_own_and_a_spec_that_makes_sense() {
        for one in all() {
            for scale in Scale::ALL {
                let runs = one.runs(*scale, &[]).unwrap();
                assert!(!runs.is_empty(), "{}", one.name());
                let mut names = HashSet::new();
                for run in &runs {
                    run.spec.check().unwrap();
                    let RunName { case, target, repetition, .. } = run.name(one.name());
                    let name = format!("{case:?} {target} {repetition}");
                    assert!(names.insert(name), "{}: {run:?}", one.name());
                }
            }
        }
    }

    /// Three runs a side of `collection` at its largest, hours of them, decided nothing.
    #[test]
    fn what_is_compared_can_be_decided_at_full_scale() {
        for one in all() {
            let runs = one.runs(Scale::Full, &[]).unwrap();
            let record = |run: &PlannedRun| {
                let name = run.name(one.name());
                name.record(BTreeMap::new(), None, SystemTime::UNIX_EPOCH, Outcome::default())
            };
            let records: Vec<Record> = runs.iter().map(record).collect();
            let is_compared = one.report(&records, "again").html().contains("Where we lose");
            let repetitions: HashSet<u32> = runs.iter().map(|run| run.repetition).collect();
            assert!(!is_compared || repetitions.len() >= RUNS_MIN, "{}", one.name());
        }
    }

    /// Three runs of one server were taken for three of a side: where its memory lay was in each of them, and so in no
    /// spread.
    #[test]
    fn no_store_serves_two_repetitions() {
        // The file store's experiment is how stores grow old, and says so.
        for one in all().iter().filter(|one| one.name() != "kfs") {
            let url = (one.name() == "http-floor").then(|| "http://127.0.0.1:8081".to_owned());
            let mut stores = BTreeMap::new();
            for run in one.runs(Scale::Small, url.as_slice()).unwrap() {
                // A server that runs already is one in all of them, and its report says so.
                let own = run.shared_store.filter(|_| !matches!(run.subject, Subject::Url { .. }));
                let Some(store) = own else { continue };
                let first = *stores.entry(store.clone()).or_insert(run.repetition);
                assert_eq!(first, run.repetition, "{}: {store}", one.name());
            }
        }
    }
}
