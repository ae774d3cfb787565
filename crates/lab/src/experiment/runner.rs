//! Makes an experiment's runs, and writes down each as soon as it is done.
//!
//! 1. Leave out what `runs.jsonl` has already, unless its store went on and is gone; refuse to add to what
//!    another command, program or machine made.
//! 2. Refuse, before anything starts, what can't be had here: programs, disk.
//! 3. Run by run: open, fill, have memory there, load, write the record. One that fails is written down
//!    as invalid with its reason, its store is thrown away, and the next is made that doesn't go on from it.
//! 4. Once all are made, the same with the runs that follow from them.
//! 5. Stop between any two requests when asked to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::Experiment;
use super::estimate::Estimate;
use super::fingerprints::{Fingerprints, PROGRAM};
use super::kept;
use super::plan::PlannedRun;
use super::profiles;
use super::sequences::Left;
use super::stores::{self, Stores};
pub use super::subject::{Programs, RIVALS_VARIABLE};
use crate::error::{Error, Result};
use crate::load::{Loaded, Progress, planned};
use crate::machine;
use crate::record::{Record, Standing};
use crate::report::Report;
use crate::run::{self, RunOptions};
use crate::runs_file::{RunsFile, last_of_each, load_records, standing_runs};

/// The records' file in an experiment's directory.
pub const RUNS_FILE: &str = "runs.jsonl";
/// Holds the command by which the runs of a directory are made.
pub const COMMAND_FILE: &str = "command.txt";
/// Held while an experiment is under way.
const LOCK_FILE: &str = "lab.lock";
/// Shorter runs aren't profiled: there is too little to sample.
const PROFILED_MIN: Duration = Duration::from_secs(3);

/// Why a run that was to go on from one that failed is none.
const NOT_MADE: &str = "not made: its store broke";

/// Where and with what runs are made.
#[derive(Debug, Clone)]
pub struct Bench<'a> {
    /// The experiment's directory, which is made if need be.
    pub directory: &'a Path,
    /// The command that makes its runs, and no other's: it is kept beside them.
    pub command: &'a str,
    /// What starts targets.
    pub programs: &'a Programs,
    /// Set to stop early; what is done is kept.
    pub stop: Arc<AtomicBool>,
}

/// What a run does at the moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage<'a> {
    /// Its target is being opened and filled.
    Filling(Option<Progress>),
    /// It is under way.
    Running(Progress),
    /// Its record is written.
    Done(&'a Record),
}

/// How far an experiment is.
#[derive(Debug, Clone, Copy)]
pub struct Status<'a> {
    /// The run, from 1.
    pub number: usize,
    /// Of how many that are to be made.
    pub count: usize,
    /// The run.
    pub run: &'a PlannedRun,
    /// What it does.
    pub stage: Stage<'a>,
    /// Until the end of all, as far as the runs so far tell.
    pub left: Option<Duration>,
}

/// What came of an experiment's runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs that were asked for, those that follow from others included once they are known.
    pub asked: usize,
    /// Runs that were made.
    pub made: usize,
    /// Runs that were there already.
    pub kept: usize,
    /// Runs that don't count, in their order.
    pub uncounted: Vec<Uncounted>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// Then, how many runs are left, those that follow from others included once they are known.
    pub left: usize,
    /// How many of those were made already: they don't count, or their store is gone with the stop.
    pub again: usize,
    /// Why no more were made, where a target that was opened after others is of another version than its kept runs.
    pub refused: Option<String>,
}

/// A run that doesn't count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncounted {
    /// Its label.
    pub run: String,
    /// Why.
    pub why: String,
    /// What became of it.
    pub became: Became,
}

/// What became of a run that doesn't count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Became {
    /// It failed: wrong data, a target that died or refused, or one before it on its store failed.
    Failed,
    /// Its target could not keep the rate.
    FellBehind,
    /// It was made to its end: the generator lagged, or too many requests failed.
    Lost,
}

impl Summary {
    /// The runs of which this became, each with why.
    pub fn told(&self, became: Became) -> Vec<String> {
        let of = self.uncounted.iter().filter(|one| one.became == became);
        of.map(|Uncounted { run, why, .. }| format!("{run}: {why}")).collect()
    }

    /// The runs that failed, each with why.
    pub fn failed(&self) -> Vec<String> {
        self.told(Became::Failed)
    }

    fn note(&mut self, run: &PlannedRun, why: impl ToString, became: Became) {
        self.uncounted.push(Uncounted { run: run.label(), why: why.to_string(), became });
    }
}

/// Makes the runs that `runs.jsonl` lacks. An error means that none could be begun, or that records
/// can't be kept; runs that fail are in the summary.
pub fn make(
    experiment: &dyn Experiment,
    runs: &[PlannedRun],
    bench: &Bench<'_>,
    watch: &mut dyn FnMut(&Status<'_>),
) -> Result<Summary> {
    let directory = bench.directory;
    fs::create_dir_all(directory).map_err(Error::io(directory.display().to_string()))?;
    let _lock = lock(directory)?;
    let file = RunsFile::open(&directory.join(RUNS_FILE))?;
    let mut fingerprints = Fingerprints::new(bench.programs);
    // Again, now that nobody else can add to them.
    kept::check(experiment, runs, file.records(), &mut fingerprints, bench)?;
    kept::claim(bench)?;
    let mut making =
        Making { experiment, bench, file, fingerprints, summary: Summary::default(), watch };
    making.make_left(runs)?;
    let is_stopped = || bench.stop.load(Ordering::Relaxed);
    let are_made = !is_stopped() || making.left(runs).runs.is_empty();
    let is_whole = making.summary.failed().is_empty() && making.summary.refused.is_none();
    let following = match is_whole && are_made {
        true => experiment.following(runs, making.file.records()),
        false => Vec::new(),
    };
    making.make_left(&following)?;
    if is_stopped() {
        making.count_left(&[runs, &following[..]].concat());
    }
    Ok(making.summary)
}

/// Refuses, before anything is touched, a directory whose runs another command, program or machine made than
/// would make the planned ones: a report of both would answer nothing.
pub fn check(experiment: &dyn Experiment, runs: &[PlannedRun], bench: &Bench<'_>) -> Result<()> {
    let path = bench.directory.join(RUNS_FILE);
    if !path.exists() {
        return Ok(());
    }
    let records = last_of_each(load_records(&path)?);
    kept::check(experiment, runs, &records, &mut Fingerprints::new(bench.programs), bench)
}

/// An experiment under way.
struct Making<'a> {
    experiment: &'a dyn Experiment,
    bench: &'a Bench<'a>,
    file: RunsFile,
    fingerprints: Fingerprints<'a>,
    summary: Summary,
    watch: &'a mut dyn FnMut(&Status<'_>),
}

impl<'a> Making<'a> {
    /// Makes those of the runs that are left.
    fn make_left(&mut self, runs: &[PlannedRun]) -> Result<()> {
        let left = self.left(runs);
        self.summary.asked += runs.len();
        self.summary.kept += runs.len() - left.runs.len();
        if left.runs.is_empty() {
            return Ok(());
        }
        let mut stores = self.stores(runs, &left)?;
        let mut estimate = Estimate::default();
        let mut broken = BTreeSet::new();
        for (at, run) in left.runs.iter().enumerate() {
            if self.bench.stop.load(Ordering::Relaxed) {
                break;
            }
            let sequence = left.sequence_of(run);
            let (number, count) = (at + 1, left.runs.len());
            if sequence.is_some_and(|store| broken.contains(store)) {
                let record = not_made(self.experiment, run, stores.root());
                self.file.append(record.clone())?;
                self.summary.note(run, NOT_MADE, Became::Failed);
                let stage = Stage::Done(&record);
                (self.watch)(&Status { number, count, run, stage, left: None });
                continue;
            }
            let began = Instant::now();
            let time_left = estimate.of(&left.runs[at..]);
            let mut tell = |stage: Stage<'_>| {
                let left = time_left.map(|left| left.saturating_sub(began.elapsed()));
                (self.watch)(&Status { number, count, run, stage, left });
            };
            let fingerprint = self.fingerprints.of(&run.subject)?;
            let file = &mut self.file;
            let made =
                make_one(self.experiment, &left, at, file, &mut stores, self.bench, &mut tell);
            let (mut record, error) = match made {
                Ok(Some(made)) => made,
                Ok(None) => break,
                // What came of those before it is told none the less.
                Err(Error::Refused(why)) if self.summary.made > 0 => {
                    self.summary.refused = Some(why);
                    break;
                }
                Err(error) => return Err(error),
            };
            record.target_settings.extend(fingerprint.map(|one| (PROGRAM.to_owned(), one)));
            estimate.learn(run, began.elapsed());
            self.file.append(record.clone())?;
            tell(Stage::Done(&record));
            match error {
                Some(Error::Interrupted) => break,
                Some(error) => {
                    self.summary.note(run, error, Became::Failed);
                    broken.extend(sequence);
                }
                None => {
                    let became = match record.outcome.standing() {
                        Standing::FellBehind => Became::FellBehind,
                        _ => Became::Lost,
                    };
                    if let Some(why) = record.outcome.invalid {
                        self.summary.note(run, why, became);
                    }
                }
            }
            self.summary.made += 1;
        }
        Ok(())
    }

    /// Counts what a stop left, of all runs.
    fn count_left(&mut self, runs: &[PlannedRun]) {
        let left = self.left(runs).runs;
        self.summary.left = left.len();
        self.summary.again = left.iter().filter(|run| self.was_made(run)).count();
        self.summary.interrupted = self.summary.left > 0;
    }

    /// Whether a run was made, whatever came of it.
    fn was_made(&self, run: &PlannedRun) -> bool {
        let found = self.file.find(&run.name(self.experiment.name()));
        found.is_some_and(|record| {
            !matches!(record.outcome.standing(), Standing::Interrupted | Standing::TakenBack)
        })
    }

    fn left<'r>(&self, runs: &'r [PlannedRun]) -> Left<'r> {
        let is_there = |store: &str| stores::is_kept(self.bench.directory, store);
        Left::of(runs, self.experiment.name(), &self.file, is_there)
    }

    /// Where the stores of what is left will be, once all that it takes is there.
    fn stores(&self, runs: &[PlannedRun], left: &Left<'_>) -> Result<Stores<'a>> {
        let Bench { directory, programs, .. } = self.bench;
        programs.check(&left.runs.iter().map(|run| (*run).clone()).collect::<Vec<_>>())?;
        stores::check_space(self.experiment.name(), directory, &left.runs)?;
        let going_on: Vec<&str> = runs
            .iter()
            .filter(|run| self.file.has(&run.name(self.experiment.name())))
            .filter_map(PlannedRun::kept_store)
            .filter(|store| stores::is_used_later(store, &left.runs))
            .collect();
        Stores::new(directory, programs, &going_on)
    }
}

/// The record of a run that can't be made, because one before it on its store failed.
fn not_made(experiment: &dyn Experiment, run: &PlannedRun, directory: &Path) -> Record {
    let outcome = run::invalid(&Error::Invalid(NOT_MADE.to_owned()));
    let name = run.name(experiment.name());
    name.record(BTreeMap::new(), Some(directory), SystemTime::now(), outcome)
}

/// The record of the run at `at`, and what failed. `None`: it was stopped before it began. What refuses the run
/// leaves every record as it was.
fn make_one(
    experiment: &dyn Experiment,
    left: &Left<'_>,
    at: usize,
    file: &mut RunsFile,
    stores: &mut Stores<'_>,
    bench: &Bench<'_>,
    tell: &mut dyn FnMut(Stage<'_>),
) -> Result<Option<(Record, Option<Error>)>> {
    let (run, later) = (left.runs[at], &left.runs[at + 1..]);
    let mut stoppable = run.clone();
    stoppable.options.load.stop = bench.stop.clone();
    let name = run.name(experiment.name());
    let started = SystemTime::now();
    tell(Stage::Filling(None));
    let taken = stores.take(&stoppable, &mut |progress| tell(Stage::Filling(Some(*progress))));
    let mut held = match taken {
        Ok(held) => held,
        Err(_) if bench.stop.load(Ordering::Relaxed) => return Ok(None),
        Err(error) => {
            let outcome = run::invalid(&error);
            let record = name.record(BTreeMap::new(), Some(stores.root()), started, outcome);
            return Ok(Some((record, Some(error))));
        }
    };
    let settings = held.opened.settings();
    let ready = kept::check_version(experiment, run, &settings, file.records(), bench.directory)
        .and_then(|()| machine::bring_in_memory(&run.spec));
    if let Err(error) = ready {
        // A store of files is left to the version that it is of.
        held.leave_unfinished();
        let _ = stores.close(held);
        return Err(error);
    }
    left.take_back(at, experiment.name(), file)?;
    // What others, and the filling, left to be written would be written at this run's cost.
    rustix::fs::sync();
    held.begin()?;
    let started = SystemTime::now();
    let options: &RunOptions = &stoppable.options;
    let profiles = match (held.opened.admin_url().filter(|_| run.is_profiled), planned(&run.spec)) {
        (Some(url), Some(length)) if length >= PROFILED_MIN => {
            let seconds = length.as_secs() - 1;
            Some(profiles::take(url, run, seconds, bench.directory))
        }
        _ => None,
    };
    let mut watch = |progress: &Progress| tell(Stage::Running(*progress));
    let ran = held.opened.run(&run.spec, options, &mut watch);
    if let Some(profiles) = profiles {
        profiles.finish();
    }
    let Loaded { mut outcome, mut error } =
        ran.unwrap_or_else(|error| Loaded { outcome: run::invalid(&error), error: Some(error) });
    let has_ended = error.is_none();
    if outcome.invalid.is_some() {
        held.leave_unfinished();
    }
    match &run.shared_store {
        _ if error.is_some() => stores.drop_broken(held)?,
        Some(store) if stores::is_used_later(store, later) => stores.keep(store, held),
        _ => error = stores.close(held).err(),
    }
    if let (Some(error), true) = (&error, has_ended) {
        outcome.invalid = Some(format!("it didn't close in order: {error}"));
    }
    let record = name.record(settings, Some(stores.root()), started, outcome);
    Ok(Some((record, error)))
}

/// Draws the report from the records of a directory, and writes it there. Records of other experiments
/// in the same file are left alone.
pub fn write_report(experiment: &dyn Experiment, directory: &Path, rerun: &str) -> Result<Report> {
    let mut records = standing_runs(&directory.join(RUNS_FILE))?;
    records.retain(|record| record.experiment == experiment.name());
    if records.is_empty() {
        let what = format!("{}: it holds no run of {}", directory.display(), experiment.name());
        return Err(Error::Invalid(what));
    }
    let mut report = experiment.report(&records, rerun);
    profiles::add_to(&mut report, directory);
    report.write(directory)?;
    Ok(report)
}

fn lock(directory: &Path) -> Result<File> {
    let path = directory.join(LOCK_FILE);
    let file = File::create(&path).map_err(Error::io(path.display().to_string()))?;
    file.try_lock().map_err(|_| {
        Error::Invalid(format!("{}: another experiment is under way there", directory.display()))
    })?;
    Ok(file)
}
