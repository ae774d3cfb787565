//! Which runs are to be made: those that are missing or tell nothing of their target, and with them those that went
//! before them on a store that is gone. One whose target fell behind is not made again: that is what it found out, and
//! a lucky one would take its place.
//!
//! A store that was written to isn't what filling makes of a new one, nor is one that reads had merged. The runs
//! that share such a store are a sequence: as long as one of them is missing, all are made, from the first on.
//! Runs that only read, and warm up or begin at the disk, find in a new store what they would have found in the
//! old one; a store of files outlives an interruption, and is gone on with.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{PlannedRun, Subject};
use crate::error::Result;
use crate::record::{Record, TAKEN_BACK};
use crate::runs_file::RunsFile;

/// The runs to be made.
pub(super) struct Left<'a> {
    /// In the order in which they are planned.
    pub(super) runs: Vec<&'a PlannedRun>,
    sequences: BTreeSet<&'a str>,
}

impl<'a> Left<'a> {
    /// Those of `runs` that the file lacks, with what belongs to them. `is_there` says whether a store of files
    /// of this name was kept.
    pub(super) fn of(
        runs: &'a [PlannedRun],
        experiment: &str,
        file: &RunsFile,
        is_there: impl Fn(&str) -> bool,
    ) -> Left<'a> {
        let sequences = sequences(runs);
        let records: Vec<Option<&Record>> =
            runs.iter().map(|run| file.find(&run.name(experiment))).collect();
        let both = || runs.iter().zip(&records);
        let unfinished: BTreeSet<&str> = both()
            .filter(|(_, record)| !tells(**record))
            .filter_map(|(run, _)| run.shared_store.as_deref())
            .collect();
        let is_left = |(run, record): &(&PlannedRun, &Option<&Record>)| {
            let kept = run.kept_store().is_some_and(&is_there);
            match run.shared_store.as_deref() {
                Some(store) if sequences.contains(store) && !kept => unfinished.contains(store),
                _ => !tells(**record),
            }
        };
        let runs = both().filter(is_left).map(|(run, _)| run).collect();
        Left { runs, sequences }
    }

    /// The store of a run, if its runs are a sequence.
    pub(super) fn sequence_of(&self, run: &PlannedRun) -> Option<&'a str> {
        self.sequences.get(run.shared_store.as_deref()?).copied()
    }

    /// Has the records of the runs that go on from the one at `at`, and its own, count no more. Called before it is made,
    /// once nothing but itself can keep it from being made: a stop or a kill would leave those of the old store beside
    /// those of the new one.
    pub(super) fn take_back(&self, at: usize, experiment: &str, file: &mut RunsFile) -> Result<()> {
        let Some(store) = self.sequence_of(self.runs[at]) else { return Ok(()) };
        let of_store = |run: &&&PlannedRun| run.shared_store.as_deref() == Some(store);
        for run in self.runs[at..].iter().filter(of_store) {
            let found = file.find(&run.name(experiment));
            if let Some(record) = found.filter(|record| record.outcome.tells()) {
                let mut record = record.clone();
                record.outcome.invalid = Some(TAKEN_BACK.to_owned());
                file.append(record)?;
            }
        }
        Ok(())
    }
}

/// Whether a run needs no other in its place.
fn tells(record: Option<&Record>) -> bool {
    record.is_some_and(|record| record.outcome.tells())
}

/// The stores whose runs are a sequence.
fn sequences(runs: &[PlannedRun]) -> BTreeSet<&str> {
    let mut stores: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
    for run in runs {
        if let Some(store) = &run.shared_store {
            let (count, changes) = stores.entry(store).or_default();
            *count += 1;
            *changes |= changes_its_store(run);
        }
    }
    let is_sequence = |(_, (count, changes)): &(&str, (usize, bool))| *count > 1 && *changes;
    stores.into_iter().filter(is_sequence).map(|(store, _)| store).collect()
}

/// Whether a run may leave something else to the next than filling does. What reads set going, a warm-up of the
/// next sets going too.
fn changes_its_store(run: &PlannedRun) -> bool {
    match run.subject {
        // Nothing is filled, or it is somebody else's and no other can be had.
        Subject::Bare { .. } | Subject::Url { .. } => false,
        _ => {
            let begins_alike = run.options.warm_up.is_some() || run.options.cold;
            run.spec.workload.writes() || !begins_alike
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::experiment::{Scale, find};
    use crate::record::{FELL_BEHIND, Outcome};

    /// How many of an experiment's runs are left when those that `why` says something of are invalid for it.
    fn left(
        name: &str,
        is_there: bool,
        why: impl Fn(usize, &PlannedRun) -> Option<String>,
    ) -> (usize, usize) {
        let runs = find(name).unwrap().runs(Scale::Tiny, &[]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut file = RunsFile::open(&directory.path().join("runs.jsonl")).unwrap();
        for (at, run) in runs.iter().enumerate() {
            let outcome = Outcome { invalid: why(at, run), ..Outcome::default() };
            let record = run.name(name).record([].into(), None, SystemTime::now(), outcome);
            file.append(record).unwrap();
        }
        (Left::of(&runs, name, &file, |_| is_there).runs.len(), runs.len())
    }

    fn lagged(is_it: bool) -> Option<String> {
        is_it.then(|| "the generator lagged".to_owned())
    }

    #[test]
    fn one_round_that_does_not_count_has_all_of_its_store_made_again_and_no_other() {
        for name in ["collection", "stages-over-time", "flush-stall", "sustained", "growth"] {
            let runs = find(name).unwrap().runs(Scale::Tiny, &[]).unwrap();
            let last = runs.iter().rposition(|run| run.shared_store.is_some()).unwrap();
            let store = &runs[last].shared_store;
            let of_store = runs.iter().filter(|run| run.shared_store == *store).count();
            assert!(of_store > 1, "{name}");
            let (left, _) = left(name, false, |at, _| lagged(at == last));
            assert_eq!(left, of_store, "{name}");
        }
    }

    #[test]
    fn reads_of_a_filled_store_are_made_again_alone() {
        for name in ["head-and-body", "beyond-memory"] {
            let (left, all) = left(name, false, |at, _| lagged(at == 0));
            assert!(left == 1 && all > 1, "{name}: {left} of {all}");
        }
        let reads = |at: usize, run: &PlannedRun| lagged(at == 0 && !run.spec.workload.writes());
        assert_eq!(left("http-floor", false, reads).0, 1);
    }

    /// Outside of sequences it was made again until it was lucky.
    #[test]
    fn a_target_that_fell_behind_has_nothing_made_again() {
        let behind = |at: usize, _: &PlannedRun| (at == 0).then(|| FELL_BEHIND.to_owned());
        for name in ["sustained", "http-constant", "table-collapse"] {
            assert_eq!(left(name, false, behind).0, 0, "{name}");
            assert_eq!(left(name, false, |_, _| Some(FELL_BEHIND.to_owned())).0, 0, "{name}");
        }
    }

    /// A kill right after a new store of files was made had the rest of the old one's runs made on it.
    #[test]
    fn a_new_store_of_files_is_not_gone_on_with_as_the_old_one() {
        let runs = find("kfs").unwrap().runs(Scale::Tiny, &[]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut file = RunsFile::open(&directory.path().join("runs.jsonl")).unwrap();
        let store = runs.iter().find_map(PlannedRun::kept_store).unwrap();
        let of_store = runs.iter().filter(|run| run.kept_store() == Some(store)).count();
        let old = runs.iter().filter(|run| run.kept_store() == Some(store)).take(2);
        for run in old {
            let name = run.name("kfs");
            file.append(name.record([].into(), None, SystemTime::now(), Outcome::default()))
                .unwrap();
        }
        let left_of = |file: &RunsFile, is_there: bool| {
            let left = Left::of(&runs, "kfs", file, |_| is_there);
            left.runs.iter().filter(|run| run.kept_store() == Some(store)).count()
        };
        assert_eq!((left_of(&file, true), left_of(&file, false)), (of_store - 2, of_store));
        let left = Left::of(&runs, "kfs", &file, |_| false);
        let first = left.runs.iter().position(|run| run.kept_store() == Some(store)).unwrap();
        left.take_back(first, "kfs", &mut file).unwrap();
        assert_eq!(left_of(&file, true), of_store);
    }

    #[test]
    fn a_store_of_files_is_gone_on_with_where_it_is_there() {
        let is_second = |at: usize, _: &PlannedRun| lagged(at == 2);
        assert_eq!(left("kfs", true, is_second).0, 1);
        assert!(left("kfs", false, is_second).0 > 1);
    }
}
