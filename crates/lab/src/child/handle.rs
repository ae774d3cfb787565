//! The lab's side: a child process, asked one thing at a time.
//!
//! Invariant: whatever the child does (die, hang, talk nonsense), a run comes back with what is known
//! of it.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::message::{Ask, How, Opening, Tell};
use super::piped::{Died, PATIENCE, Piped, SILENCE_MAX, Wait};
use crate::error::{Error, Result};
use crate::load::{Loaded, Progress};
use crate::record::Outcome;
use crate::run::RunOptions;
use crate::spec::Spec;

/// A child process with a target.
#[derive(Debug)]
pub struct Child {
    piped: Piped,
    settings: BTreeMap<String, String>,
    /// Set when the user wants no more.
    stop: Arc<AtomicBool>,
    /// How long it may take to stop, and to close.
    patience: Duration,
}

/// What comes while an answer is waited for.
type OnProgress<'a> = &'a mut dyn FnMut(&Progress);

impl Child {
    /// Starts a program whose `main` calls [`super::serve`].
    pub fn spawn(command: Command) -> Result<Child> {
        Ok(Child {
            piped: Piped::spawn(command)?,
            settings: BTreeMap::new(),
            stop: Arc::default(),
            patience: PATIENCE,
        })
    }

    /// With a flag that, once set, has it killed if what it is asked takes longer than it may take to stop. What it was
    /// asked is interrupted then, and hasn't failed.
    pub fn with_stop(self, stop: Arc<AtomicBool>) -> Child {
        Child { stop, ..self }
    }

    /// With another time that it may take to stop, and to close, after which it is killed. Default 60 s.
    pub fn with_patience(self, patience: Duration) -> Child {
        Child { patience, ..self }
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.piped.id()
    }

    /// Version and settings of the open target, for the record.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings
    }

    /// Opens a target; one that was open is closed before.
    pub fn open(&mut self, opening: &Opening) -> Result<()> {
        self.piped.name.clone_from(&opening.name);
        match self.ask(&Ask::Open { opening: opening.clone() })? {
            Tell::Opened { settings, .. } => {
                self.settings = settings;
                Ok(())
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// As [`crate::run::prefill`].
    pub fn prefill(
        &mut self,
        spec: &Spec,
        options: &RunOptions,
        watch: OnProgress<'_>,
    ) -> Result<()> {
        let ask = Ask::Prefill { spec: Box::new(spec.clone()), how: How::new(options) };
        let mut so_far = None;
        match self.ask_and_watch(&ask, &options.load.stop, watch, &mut so_far)? {
            Tell::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// As [`crate::run::run`]; a child that dies in it leaves what it last told.
    pub fn run(
        &mut self,
        spec: &Spec,
        options: &RunOptions,
        watch: OnProgress<'_>,
    ) -> Result<Loaded> {
        let ask = Ask::Run { spec: Box::new(spec.clone()), how: How::new(options) };
        let mut so_far: Option<Outcome> = None;
        match self.ask_and_watch(&ask, &options.load.stop, watch, &mut so_far) {
            Ok(Tell::Ran { outcome, problem }) => {
                let error = problem.map(super::message::Problem::into_error);
                Ok(Loaded { outcome: *outcome, error })
            }
            Ok(other) => Err(self.unexpected(&other)),
            Err(Died(error)) if so_far.is_some() || self.piped.has_ended() => {
                let mut outcome = so_far.unwrap_or_default();
                outcome.invalid = Some(error.to_string());
                Ok(Loaded { outcome, error: Some(error) })
            }
            Err(Died(error)) => Err(error),
        }
    }

    /// Waits until background work is done.
    pub fn settle(&mut self) -> Result<()> {
        self.ask_done(&Ask::Settle)
    }

    /// What the target alone can tell.
    pub fn figures(&mut self) -> Result<BTreeMap<String, f64>> {
        match self.ask(&Ask::Figures)? {
            Tell::Figures { figures } => Ok(figures),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Closes the target in order, and ends the process.
    pub fn close(mut self) -> Result<()> {
        self.ask_done(&Ask::Close)?;
        self.piped.end()
    }

    fn ask_done(&mut self, ask: &Ask) -> Result<()> {
        match self.ask(ask)? {
            Tell::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<Tell> {
        let stop = self.stop.clone();
        Ok(self.ask_and_watch(ask, &stop, &mut |_| {}, &mut None)?)
    }

    /// Asks, and waits for the answer; passes a stop on. One that doesn't answer in time is killed.
    fn ask_and_watch(
        &mut self,
        ask: &Ask,
        stop: &Arc<AtomicBool>,
        watch: OnProgress<'_>,
        so_far: &mut Option<Outcome>,
    ) -> std::result::Result<Tell, Died> {
        self.piped.say(ask)?;
        let mut wait = match ask {
            // It may take no longer anyway.
            Ask::Close => Wait::unhurried(self.patience),
            _ => Wait { patience: self.patience, ..Wait::new(stop.clone(), SILENCE_MAX) },
        };
        // Nothing else can be broken off.
        let is_load = matches!(ask, Ask::Prefill { .. } | Ask::Run { .. });
        let word = is_load.then_some(&Ask::Stop);
        loop {
            match self.piped.hear_in_time(&mut wait, word)? {
                Tell::Progress { progress, so_far: told } => {
                    if let Some(told) = told {
                        *so_far = Some(*told);
                    }
                    watch(&progress);
                }
                Tell::Refused { problem } => return Err(Died(problem.into_error())),
                answer => return Ok(answer),
            }
        }
    }

    fn unexpected(&mut self, answer: &Tell) -> Error {
        let name = serde_json::to_value(answer).ok();
        let name = name.as_ref().and_then(|value| value["tell"].as_str()).unwrap_or("nothing");
        self.piped.kill_because(&format!("it answered {name:?} to another question"))
    }
}
