//! Damages the files of a store at every byte, and reads it (R8).
//!
//! The answer to each read is the right value or a typed error: never a wrong value, never a silent absence, never a
//! panic. What lies beyond the last sync may be cut, as after a power loss, if the store counts it as torn. Merging
//! a damaged store must not turn what is unreadable into what is absent.
//!
//! One thing no store can tell: what wipes the end of a killed store's journal, together with every later proof of what
//! stood there, looks like a journal that ends earlier. There, any earlier state of the store is an answer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use tallybook::error::Error;
use tallybook::file_name::{self, FileKind};
use tallybook::options::Options;
use tallybook::store::Store;
use tallybook::vfs::{CrashMode, MemoryFileSystem, MemoryImage};

use crate::medium::{Medium, Memory};
use crate::model::{Model, Survival, Window, retain_possible};
use crate::record::State;
use crate::runner::{Runner, Tolerance};
use crate::violation::{At, Outcome, Violation, panic_message};
use crate::workloads::{self, Workload};

mod mutation;
mod seen;

use mutation::{Mutation, read_files};
use seen::Seen;

/// Violations that are reported in full.
const REPORTED_MAX: usize = 5;

/// How thoroughly damage is tried.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Seed of the masks and of where sampling starts.
    pub seed: u64,
    /// Every how many bytes are flipped, and lengths cut to.
    pub stride: usize,
}

/// What happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tried {
    /// Damaged stores in all.
    pub mutations: usize,
    /// Those that refused to open.
    pub refused: usize,
    /// Those that opened and answered some reads with errors.
    pub failed_reads: usize,
    /// Those that cut torn records.
    pub torn: usize,
}

/// A store whose files are damaged.
#[derive(Debug)]
pub struct Subject {
    image: MemoryImage,
    model: Model,
    options: Options,
    now_ms: u64,
    keys: Vec<Bytes>,
    /// The store's states after each step, the oldest first.
    history: Vec<State>,
    /// The newest segment of a store that was killed.
    open_segment: Option<String>,
}

impl Subject {
    /// The store that a workload leaves, closed or killed.
    pub fn new(workload: &Workload, close: bool) -> Outcome<Self> {
        let medium = Medium::memory();
        let mut runner = Runner::new(medium, workload.options.clone(), Tolerance::Nothing)?;
        let mut history = vec![State::new()];
        for step in &workload.steps {
            runner.step(step)?;
            history.extend_from_slice(runner.model().live());
        }
        if close {
            runner.close()?;
        }
        let Medium::Memory(memory) = runner.medium() else {
            unreachable!("files are damaged in memory")
        };
        let image = memory.files.image();
        let now_ms = runner.medium().now_ms();
        let (_, model) = runner.abandon();
        let keys = workloads::keys();
        let files = files_of(&image)?;
        // Of the log, not collected: the one whose start is furthest on (`docs/format.md`). Those that
        // were made ahead of need start nowhere yet.
        let start_lsn = |(name, bytes): &(String, Vec<u8>)| match file_name::parse(name) {
            Some(FileKind::Segment(_)) if bytes[12] == 1 => {
                let lsn = bytes.get(112..120)?.try_into().expect("eight bytes");
                Some((u64::from_le_bytes(lsn), name.clone()))
            }
            _ => None,
        };
        let newest = files.iter().filter_map(start_lsn).max();
        let open_segment = newest.filter(|_| !close).map(|(_, name)| name);
        let options = workload.options.clone();
        Ok(Subject { image, model, options, now_ms, keys, history, open_segment })
    }

    /// Damages it in every way and reads each result.
    pub fn damage_everywhere(&self, plan: Plan) -> Outcome<Tried> {
        self.check_untouched().at(|| "without any damage".into())?;
        let mutations = mutation::all(&files_of(&self.image)?, plan);
        let mut tried = Tried::default();
        let mut violations = Vec::new();
        for mutation in &mutations {
            tried.mutations += 1;
            if let Err(violation) = self.try_mutation(mutation, &mut tried) {
                violations.push(violation.to_string());
            }
        }
        if violations.is_empty() {
            return Ok(tried);
        }
        let shown = violations[..violations.len().min(REPORTED_MAX)].join("\n  ");
        Err(Violation::new(format!(
            "{} of {} damages were answered wrongly:\n  {shown}",
            violations.len(),
            mutations.len()
        )))
    }

    fn check_untouched(&self) -> Outcome {
        let mut tried = Tried::default();
        let files = self.image.crash(CrashMode::KeepAll, 0);
        self.examine(files, false, &mut tried)?;
        if tried != Tried::default() {
            return Err(Violation::new(format!("the store is not whole to begin with: {tried:?}")));
        }
        Ok(())
    }

    fn try_mutation(&self, mutation: &Mutation, tried: &mut Tried) -> Outcome {
        let files = self.image.crash(CrashMode::KeepAll, 0);
        mutation
            .apply(&files)
            .map_err(|error| Violation::new(error.to_string()))
            .at(|| format!("making the damage {mutation:?}"))?;
        let wiped = mutation.wipes().is_some_and(|file| self.open_segment.as_ref() == Some(file));
        catch_unwind(AssertUnwindSafe(|| self.examine(files, wiped, tried)))
            .unwrap_or_else(|payload| {
                Err(Violation::new(format!("panic: {}", panic_message(&*payload))))
            })
            .at(|| format!("{mutation:?}"))
    }

    /// Opens the store in these files and reads everything in it. `wiped`: the end of its journal may be gone.
    fn examine(&self, files: MemoryFileSystem, wiped: bool, tried: &mut Tried) -> Outcome {
        let memory = Memory::of(files, self.now_ms);
        let store = match memory.open(&self.options) {
            Ok(store) => store,
            Err(error) => {
                tried.refused += 1;
                return typed(&error).at(|| "open".into());
            }
        };
        let stats = store.stats();
        let torn = stats.torn_records > 0 || stats.torn_bytes > 0;
        let whole = self.model.window(Survival::Kill);
        let window = if torn { self.model.window(Survival::PowerLoss) } else { whole };
        tried.torn += usize::from(torn && window != whole);
        let allowed = if wiped { Allowed::History } else { Allowed::Window(window) };
        let failed = self.check_reads(&store, allowed)?;
        tried.failed_reads += usize::from(failed);
        if failed {
            check_verify_finds(&store)?;
            // Whatever it answers; what it leaves is what counts.
            if let Err(error) = store.compact(None, None, &mut |_, _| {}) {
                typed(&error).at(|| "compact".into())?;
            }
            self.check_reads(&store, allowed).at(|| "after compacting".into())?;
        }
        Ok(())
    }

    /// Whether some reads failed; those that didn't are right.
    fn check_reads(&self, store: &Store, allowed: Allowed) -> Outcome<bool> {
        let seen = Seen::read(store, &self.keys);
        for error in seen.errors() {
            typed(error).at(|| "read".into())?;
        }
        let check = |state: &State| seen.check(state, self.now_ms);
        match allowed {
            Allowed::Window(window) => self.model.explain(window, check).map(drop)?,
            Allowed::History => retain_possible(&mut self.history.clone(), check)?,
        }
        Ok(seen.errors().next().is_some())
    }
}

fn files_of(image: &MemoryImage) -> Outcome<Vec<(String, Vec<u8>)>> {
    read_files(&image.crash(CrashMode::KeepAll, 0))
        .map_err(|error| Violation::new(error.to_string()))
}

/// Which states a damaged store may show.
#[derive(Debug, Clone, Copy)]
enum Allowed {
    /// Those of a crash.
    Window(Window),
    /// Any that it ever had.
    History,
}

/// What can be said of damage: nothing but these.
fn typed(error: &Error) -> Outcome {
    match error {
        // A file of a newer format is refused as one.
        Error::Corruption { .. } | Error::Io { .. } | Error::NewerFormat { .. } => Ok(()),
        other => Err(Violation::new(format!("damage was answered with: {other}"))),
    }
}

fn check_verify_finds(store: &Store) -> Outcome {
    match store.verify(&mut |_, _| {}) {
        Ok(report) if report.damage.is_empty() => {
            Err(Violation::new("verify finds nothing, although reads fail"))
        }
        Ok(_) => Ok(()),
        Err(error) => typed(&error).at(|| "verify".into()),
    }
}
