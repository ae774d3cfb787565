//! Makes operations on a store and on the model, and compares every answer.
//!
//! Invariant: after each step the model holds every write that the store acknowledged, and nothing else but
//! writes whose outcome the store left open. A runner either tolerates no error at all, or (while faults are
//! injected) the typed errors that faults may cause and no others.

use std::sync::Arc;

use bytes::Bytes;
use tallybook::error::{Error, Result};
use tallybook::key::SeqNo;
use tallybook::options::{Durability, Options};
use tallybook::store::{Condition, Snapshot, Store};

use crate::contents::{self, Contents};
use crate::medium::Medium;
use crate::model::{Model, Survival, Window, retain_possible};
use crate::operations::{ConditionStep, ReadStep, Step, WriteStep};
use crate::prepared::{Prepared, key_of, write_batch, write_one};
use crate::record::{Record, State, Write, live_record};
use crate::violation::{At, Outcome, Violation};

/// Writes stop when this many have an outcome that is still open.
const OPEN_COUNT_MAX: usize = 5;

/// Snapshots held at a time.
const SNAPSHOTS_MAX: usize = 4;

/// Which errors a runner takes from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tolerance {
    /// None: the file system works.
    Nothing,
    /// `Io`, `NoSpace`, `ReadOnly` and `Busy`: the file system fails.
    Faults,
    /// The same, but not from reads: the file system fails to write only.
    WriteFaults,
}

/// A store under trial, and the model of it.
#[derive(Debug)]
pub struct Runner {
    medium: Medium,
    options: Options,
    /// `None` while an injected fault keeps the store from being opened.
    store: Option<Store>,
    model: Model,
    snapshots: Vec<Held>,
    tolerance: Tolerance,
    trace: Vec<u32>,
    checkpoints: usize,
    probes: Vec<Bytes>,
}

#[derive(Debug)]
struct Held {
    snapshot: Snapshot,
    states: Vec<State>,
    taken_ms: u64,
}

impl Runner {
    /// Opens a new store on a medium.
    pub fn new(medium: Medium, options: Options, tolerance: Tolerance) -> Outcome<Self> {
        let mut runner = Runner {
            medium,
            options,
            store: None,
            model: Model::new(),
            snapshots: Vec::new(),
            tolerance,
            trace: Vec::new(),
            checkpoints: 0,
            probes: crate::generator::keys(),
        };
        runner.open().at(|| "first open".into())?;
        Ok(runner)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What the store is on.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// The store, unless a fault keeps it from being opened.
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// The store's settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// From now on, only these errors are taken.
    pub fn tolerate(&mut self, tolerance: Tolerance) {
        self.tolerance = tolerance;
    }

    /// A number for each step: stores that were given the same steps and answered the same agree on all.
    pub fn trace(&self) -> &[u32] {
        &self.trace
    }

    /// Makes every step.
    pub fn run(&mut self, steps: &[Step]) -> Outcome {
        for (at, step) in steps.iter().enumerate() {
            self.step(step).at(|| format!("step {at}: {}", brief(step)))?;
        }
        Ok(())
    }

    /// Makes one step.
    pub fn step(&mut self, step: &Step) -> Outcome {
        self.model.forget();
        if self.store.is_none() {
            self.open()?;
            self.recovered(self.model.window(Survival::Kill))?;
        }
        let Some(store) = self.store.clone() else {
            return Ok(());
        };
        let digest = match step {
            Step::Write(write, durability) => {
                self.write(&store, std::slice::from_ref(write), *durability, None)?
            }
            Step::Batch(writes, durability) => self.write(&store, writes, *durability, None)?,
            Step::Conditional(write, condition) => self.conditional(&store, write, *condition)?,
            Step::Read(read) => self.read(&store, read)?,
            Step::Snapshot => self.take_snapshot(&store),
            Step::ReadSnapshot(which, read) => self.read_snapshot(*which, read)?,
            Step::DropSnapshot(which) => {
                if !self.snapshots.is_empty() {
                    self.snapshots.swap_remove(which % self.snapshots.len());
                }
                0
            }
            Step::Advance(ms) => {
                self.medium.advance(*ms);
                0
            }
            Step::Flush => self.settle(&store, "flush", store.flush())?,
            Step::Compact(start, end) => {
                let result = store.compact(start.as_deref(), end.as_deref(), &mut |_, _| {});
                self.settle(&store, "compact", result)?
            }
            Step::Sync => self.sync(&store)?,
            Step::Verify => self.verify(&store)?,
            Step::Checkpoint => self.checkpoint(&store)?,
            Step::Reopen => {
                drop(store);
                self.reopen()?
            }
            Step::Crash { power_loss, seed } => {
                drop(store);
                self.crash(*power_loss, *seed)?
            }
        };
        self.trace.push(digest);
        Ok(())
    }

    /// Closes the store and looks at it once more after opening it again: nothing may be missing.
    pub fn finish(mut self) -> Outcome {
        self.reopen().at(|| "closing and reopening at the end".into())?;
        self.check_contents()
    }

    /// Reads the whole store and compares it with the model.
    pub fn check_contents(&mut self) -> Outcome {
        let Some(store) = self.store.clone() else {
            return Ok(());
        };
        let contents = contents::read_all(&store, &self.probes)?;
        let now_ms = self.medium.now_ms();
        self.model.read(|state| contents::check(&contents, state, now_ms))
    }

    /// Closes the store; the next step opens it again.
    pub fn close(&mut self) -> Outcome {
        self.snapshots.clear();
        if let Some(store) = self.store.take() {
            match store.close() {
                Ok(()) if store.read_only_cause().is_none() => self.model.synced(),
                Ok(()) => {}
                Err(error) => self.take("close", &error)?,
            }
        }
        Ok(())
    }

    /// Lets the store go without closing it; what it was on, and what was written, remain.
    pub fn abandon(self) -> (Medium, Model) {
        (self.medium, self.model)
    }

    fn open(&mut self) -> Outcome {
        match self.medium.open(&self.options) {
            Ok(store) => self.store = Some(store),
            Err(error) => self.take("open", &error)?,
        }
        Ok(())
    }

    // Writes.

    /// Whether so many outcomes are open that another write would blur the picture.
    fn writes_rest(&self) -> bool {
        self.model.open_count() >= OPEN_COUNT_MAX
    }

    fn write(
        &mut self,
        store: &Store,
        steps: &[WriteStep],
        durability: Option<Durability>,
        condition: Option<Condition>,
    ) -> Outcome<u32> {
        if self.writes_rest() {
            return Ok(0);
        }
        let before_ms = self.medium.now_ms();
        let prepared: Vec<Prepared> =
            steps.iter().map(|step| Prepared::new(step, before_ms)).collect();
        let expected = condition.map(|condition| self.expect(key_of(&steps[0]), condition));
        let was_read_only = store.read_only_cause().is_some();
        let result = match &prepared[..] {
            [one] => write_one(store, one, durability, condition),
            several => write_batch(store, several, durability),
        };
        if let Some(expected) = expected {
            match (&result, expected) {
                (Err(Error::Conflict { current }), Err(version)) if *current == version => {
                    return Ok(1);
                }
                (Ok(_), Ok(())) => {}
                (Err(error), _) if !matches!(error, Error::Conflict { .. }) => {}
                (result, expected) => {
                    return Err(Violation::new(format!(
                        "a write under {condition:?} answered {result:?}, expected {expected:?}"
                    )));
                }
            }
        }
        let written_ms = (before_ms, self.medium.now_ms());
        let writes = prepared.into_iter().map(|one| one.into_write(written_ms)).collect();
        let durability = durability.unwrap_or(self.options.durability);
        self.note_write(store, writes, result, durability, before_ms, was_read_only)?;
        Ok(0)
    }

    fn note_write(
        &mut self,
        store: &Store,
        writes: Vec<Write>,
        result: Result<SeqNo>,
        durability: Durability,
        now_ms: u64,
        was_read_only: bool,
    ) -> Outcome {
        let before = self.model.len();
        match result {
            Ok(_) if was_read_only => {
                Err(Violation::new("a write was acknowledged by a store that is read-only"))
            }
            Ok(version) => {
                self.model.acknowledge(writes, version, durability, now_ms)?;
                self.model.interval_passed(now_ms, before);
                Ok(())
            }
            Err(error) => {
                self.take("write", &error)?;
                check_poisoned(store, &error)?;
                let not_made = matches!(error, Error::NoSpace { .. } | Error::Busy)
                    || (was_read_only && matches!(error, Error::ReadOnly { .. }));
                if !not_made {
                    self.model.leave_open(writes);
                }
                Ok(())
            }
        }
    }

    fn conditional(
        &mut self,
        store: &Store,
        write: &WriteStep,
        step: ConditionStep,
    ) -> Outcome<u32> {
        let [state] = self.model.live() else {
            // While an outcome is open it can't be said whether the condition holds.
            return Ok(0);
        };
        let record = live_record(state, key_of(write), self.medium.now_ms());
        let other = self.model.version_max() + 1000;
        let current = match record {
            Some(Record { version: None, .. }) => return Ok(0),
            Some(Record { version: Some(version), .. }) => *version,
            None => other,
        };
        let condition = match step {
            ConditionStep::Absent => Condition::Absent,
            ConditionStep::Present => Condition::Present,
            ConditionStep::CurrentVersion => Condition::Version(current),
            ConditionStep::OtherVersion => Condition::Version(other),
            ConditionStep::NotCurrentVersion => Condition::NotVersion(current),
            ConditionStep::NotOtherVersion => Condition::NotVersion(other),
        };
        self.write(store, std::slice::from_ref(write), None, Some(condition))
    }

    /// What the model says of a condition: it holds, or the version that stands against it.
    fn expect(&self, key: &Bytes, condition: Condition) -> Result<(), Option<SeqNo>> {
        let record = live_record(&self.model.live()[0], key, self.medium.now_ms());
        let version = record.and_then(|record| record.version);
        let holds = match condition {
            Condition::Absent => version.is_none(),
            Condition::Present => version.is_some(),
            Condition::Version(wanted) => version == Some(wanted),
            Condition::NotVersion(unwanted) => version != Some(unwanted),
        };
        if holds { Ok(()) } else { Err(version) }
    }

    // Reads.

    fn read(&mut self, store: &Store, read: &ReadStep) -> Outcome<u32> {
        let before_ms = self.medium.now_ms();
        match read.run(store) {
            Ok(answer) => {
                let after_ms = self.medium.now_ms();
                self.model.read(|state| {
                    read.check(&answer, state, before_ms)
                        .or_else(|_| read.check(&answer, state, after_ms))
                })?;
                Ok(answer.digest())
            }
            Err(error) => self.take_of_read("read", &error),
        }
    }

    fn take_snapshot(&mut self, store: &Store) -> u32 {
        if self.snapshots.len() == SNAPSHOTS_MAX {
            self.snapshots.remove(0);
        }
        self.snapshots.push(Held {
            snapshot: store.snapshot(),
            states: self.model.live().to_vec(),
            taken_ms: self.medium.now_ms(),
        });
        0
    }

    fn read_snapshot(&mut self, which: usize, read: &ReadStep) -> Outcome<u32> {
        if self.snapshots.is_empty() {
            return Ok(0);
        }
        let at = which % self.snapshots.len();
        let now_ms = self.medium.now_ms();
        let held = &mut self.snapshots[at];
        match read.run(&held.snapshot) {
            Ok(answer) => {
                // What expired since the snapshot was taken may be judged by either moment, but by one.
                retain_possible(&mut held.states, |state| {
                    read.check(&answer, state, now_ms)
                        .or_else(|why| read.check(&answer, state, held.taken_ms).map_err(|_| why))
                })
                .at(|| format!("in a snapshot at version {}", held.snapshot.version()))?;
                Ok(answer.digest())
            }
            Err(error) => self.take_of_read("read of a snapshot", &error),
        }
    }

    // Upkeep.

    fn sync(&mut self, store: &Store) -> Outcome<u32> {
        let was_read_only = store.read_only_cause().is_some();
        match store.sync() {
            Ok(()) if was_read_only => {
                Err(Violation::new("a store that is read-only after a failed sync reports a sync"))
            }
            Ok(()) => {
                self.model.synced();
                Ok(0)
            }
            Err(error) => self.settle(store, "sync", Err(error)),
        }
    }

    fn verify(&mut self, store: &Store) -> Outcome<u32> {
        match store.verify(&mut |_, _| {}) {
            Ok(report) if self.tolerance == Tolerance::Nothing && !report.damage.is_empty() => {
                Err(Violation::new(format!("verify finds damage: {:?}", report.damage)))
            }
            Ok(_) => Ok(0),
            Err(error) => self.settle(store, "verify", Err(error)),
        }
    }

    fn checkpoint(&mut self, store: &Store) -> Outcome<u32> {
        self.checkpoints += 1;
        let name = format!("checkpoint-{}", self.checkpoints);
        if let Err(error) = store.checkpoint(self.medium.path(&name)) {
            return self.settle(store, "checkpoint", Err(error));
        }
        if self.tolerance != Tolerance::Nothing {
            return Ok(0);
        }
        let copy =
            self.medium.open_at(&name, &self.options).at(|| "open of a checkpoint".into())?;
        let contents = contents::read_all(&copy, &self.probes).at(|| "in a checkpoint".into())?;
        let now_ms = self.medium.now_ms();
        self.model
            .read(|state| contents::check(&contents, state, now_ms))
            .at(|| "in a checkpoint".into())?;
        copy.close().at(|| "close of a checkpoint".into())?;
        Ok(0)
    }

    fn reopen(&mut self) -> Outcome<u32> {
        self.close()?;
        self.open()?;
        self.recovered(self.model.window(Survival::Kill))?;
        Ok(0)
    }

    fn crash(&mut self, power_loss: bool, seed: u64) -> Outcome<u32> {
        let survival = if power_loss { Survival::PowerLoss } else { Survival::Kill };
        let (survival, crashed) = self.medium.crash(survival, seed);
        let window = self.model.window(survival);
        // What a disk store still has to do when it is dropped must be done before it is opened again; what a
        // store in memory does then happens to files that nobody looks at any more.
        self.snapshots.clear();
        self.store = None;
        self.medium = crashed;
        self.open()?;
        self.recovered(window)?;
        Ok(0)
    }

    /// Compares a store that was just opened with what may have survived, and goes on from there.
    fn recovered(&mut self, window: Window) -> Outcome {
        let Some(store) = &self.store else {
            return Ok(());
        };
        if self.tolerance != Tolerance::Nothing {
            self.model.restarted();
            return Ok(());
        }
        let contents = self.recovered_contents(store)?;
        let now_ms = self.medium.now_ms();
        self.model.explain(window, |state| contents::check(&contents, state, now_ms))?;
        self.model.recovered(&contents);
        Ok(())
    }

    fn recovered_contents(&self, store: &Store) -> Outcome<Contents> {
        contents::read_all(store, &self.probes).at(|| "after recovery".into())
    }

    /// Takes the result of a call that answers nothing.
    fn settle(&mut self, store: &Store, what: &str, result: Result<()>) -> Outcome<u32> {
        if let Err(error) = result {
            self.take(what, &error)?;
            check_poisoned(store, &error)?;
        }
        Ok(0)
    }

    fn take(&self, what: &str, error: &Error) -> Outcome {
        let typed = matches!(
            error,
            Error::Io { .. } | Error::NoSpace { .. } | Error::ReadOnly { .. } | Error::Busy
        );
        if typed && self.tolerance != Tolerance::Nothing {
            return Ok(());
        }
        Err(Violation::new(format!("{what} failed: {error}")))
    }

    fn take_of_read(&self, what: &str, error: &Error) -> Outcome<u32> {
        if matches!(error, Error::Io { .. }) && self.tolerance == Tolerance::Faults {
            return Ok(0);
        }
        Err(Violation::new(format!("{what} failed: {error}")))
    }
}

/// A failed sync ends writing for good.
fn check_poisoned(store: &Store, error: &Error) -> Outcome {
    match error {
        Error::Io { op, .. } if op.contains("sync") && store.read_only_cause().is_none() => Err(
            Violation::new(format!("the store still takes writes after a failed sync: {error}")),
        ),
        _ => Ok(()),
    }
}

/// A step as a reader can recognise it.
fn brief(step: &Step) -> String {
    let text = format!("{step:?}");
    match text.char_indices().nth(400) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// Runs steps on a new store and reopens it at the end; answers its trace.
pub fn run(medium: Medium, options: Options, steps: &[Step]) -> Outcome<Arc<[u32]>> {
    let mut runner = Runner::new(medium, options, Tolerance::Nothing)?;
    runner.run(steps)?;
    let trace = runner.trace().into();
    runner.finish()?;
    Ok(trace)
}
