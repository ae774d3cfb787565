//! The lab's side: a child process with a store of files.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::content::Content;
use super::message::{Ask, FilesOpening, Tell};
use crate::child::piped::{self, Piped, TICK};
use crate::error::{Error, Result};

/// The longest that one file may take; a child that takes longer is killed.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// A child process with a store of files.
#[derive(Debug)]
pub struct FilesChild {
    piped: Piped,
    settings: BTreeMap<String, String>,
    /// Set when the user wants no more.
    stop: Arc<AtomicBool>,
    /// How long it may take to finish what it does then.
    patience: Duration,
}

impl FilesChild {
    /// Starts a program that speaks the protocol.
    pub fn spawn(command: Command) -> Result<FilesChild> {
        Ok(FilesChild {
            piped: Piped::spawn(command)?,
            settings: BTreeMap::new(),
            stop: Arc::default(),
            patience: piped::PATIENCE,
        })
    }

    /// With a flag that, once set, has it killed if it doesn't finish what it does soon.
    pub fn with_stop(self, stop: Arc<AtomicBool>) -> FilesChild {
        FilesChild { stop, ..self }
    }

    /// With another time that it may take to finish after a stop. Default 60 s.
    pub fn with_patience(self, patience: Duration) -> FilesChild {
        FilesChild { patience, ..self }
    }

    /// Has it open a store.
    pub fn open(mut self, opening: &FilesOpening) -> Result<FilesChild> {
        self.piped.name.clone_from(&opening.name);
        match self.ask(&Ask::Open { opening: opening.clone() })? {
            Tell::Opened { settings } => {
                self.settings = settings;
                Ok(self)
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.piped.id()
    }

    /// Version and settings of the store, for the record.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings
    }

    /// Writes a file; how long that took, in nanoseconds.
    pub fn write(&mut self, name: &str, bytes: u64, seed: u32) -> Result<u64> {
        let (ns, sum) = self.ask_done(&Ask::Write { name: name.to_owned(), bytes, seed })?;
        self.check_sum(sum, bytes, seed)?;
        Ok(ns)
    }

    /// Reads a file and compares it with what was written; how long that took, in nanoseconds.
    pub fn read(&mut self, name: &str, bytes: u64, seed: u32) -> Result<u64> {
        let (ns, sum) = self.ask_done(&Ask::Read { name: name.to_owned(), bytes, seed })?;
        self.check_sum(sum, bytes, seed)?;
        Ok(ns)
    }

    /// Unlinks a file; how long that took, in nanoseconds. That it is gone is looked at afterwards.
    pub fn unlink(&mut self, name: &str) -> Result<u64> {
        Ok(self.ask_done(&Ask::Unlink { name: name.to_owned() })?.0)
    }

    /// What the store alone can tell.
    pub fn figures(&mut self) -> Result<BTreeMap<String, f64>> {
        match self.ask(&Ask::Figures)? {
            Tell::Figures { figures } => Ok(figures),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Closes the store in order, and ends the process.
    pub fn close(mut self) -> Result<()> {
        match self.ask(&Ask::Close)? {
            Tell::Closed => self.piped.end(),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask_done(&mut self, ask: &Ask) -> Result<(u64, Option<u32>)> {
        match self.ask(ask)? {
            Tell::Done { ns, sum } => Ok((ns, sum)),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<Tell> {
        self.piped.say(ask)?;
        match self.hear(*ask == Ask::Close)? {
            Tell::Wrong { what } => Err(Error::WrongData(format!("{}: {what}", self.piped.name))),
            Tell::Failed { what } => Err(Error::Target { target: self.piped.name.clone(), what }),
            tell => Ok(tell),
        }
    }

    /// Waits for the answer. A child that doesn't give it in time is killed; after a stop that is no failure. A stop
    /// hurries none that is closing: its last run was made, and would count no more.
    fn hear(&mut self, is_closing: bool) -> Result<Tell> {
        let asked_at = Instant::now();
        let mut stopped_at = None;
        loop {
            if let Some(tell) = self.piped.hear(TICK)? {
                return Ok(tell);
            }
            if self.stop.load(Ordering::Relaxed) && !is_closing {
                let since = *stopped_at.get_or_insert_with(Instant::now);
                if since.elapsed() > self.patience {
                    self.piped.kill_because("it was stopped");
                    return Err(Error::Interrupted);
                }
            }
            if asked_at.elapsed() > SILENCE_MAX {
                return Err(self.piped.kill_because("it fell silent, and was killed"));
            }
        }
    }

    /// A child that makes other bytes does other work.
    fn check_sum(&self, sum: Option<u32>, bytes: u64, seed: u32) -> Result<()> {
        let expected = Content::new(seed, bytes).sum();
        match sum {
            Some(sum) if sum == expected => Ok(()),
            _ => Err(Error::WrongData(format!(
                "{}: its file has the sum {sum:?}, ours {expected}",
                self.piped.name
            ))),
        }
    }

    fn unexpected(&mut self, answer: &Tell) -> Error {
        self.piped.kill_because(&format!("it answered {answer:?} to another question"))
    }
}
