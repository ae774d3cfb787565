//! The lab's side: a child process with a store of files.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::content::Content;
use super::message::{Ask, FilesOpening, Tell};
use crate::child::piped::{Piped, Wait};
use crate::error::{Error, Result};

/// The longest that one file may take; a child that takes longer is killed.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// A child process with a store of files.
#[derive(Debug)]
pub struct FilesChild {
    piped: Piped,
    settings: BTreeMap<String, String>,
    /// How long it may take for what it is asked.
    wait: Wait,
}

impl FilesChild {
    /// Starts a program that speaks the protocol.
    pub fn spawn(command: Command) -> Result<FilesChild> {
        Ok(FilesChild {
            piped: Piped::spawn(command)?,
            settings: BTreeMap::new(),
            wait: Wait::new(Arc::default(), SILENCE_MAX),
        })
    }

    /// With a flag that, once set, has it killed if it doesn't finish what it does soon.
    pub fn with_stop(self, stop: Arc<AtomicBool>) -> FilesChild {
        FilesChild { wait: Wait { stop, ..self.wait }, ..self }
    }

    /// With another time that it may take for all it is asked after a stop, until it is asked for its figures.
    /// Default 60 s.
    pub fn with_patience(self, patience: Duration) -> FilesChild {
        FilesChild { wait: Wait { patience, ..self.wait }, ..self }
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
        let unhurried = &mut Wait::unhurried(SILENCE_MAX);
        let wait = if *ask == Ask::Close { unhurried } else { &mut self.wait };
        if *ask == Ask::Figures {
            // They come after its rest.
            wait.stopped_at = None;
        }
        match self.piped.hear_in_time(wait, None::<&Ask>)? {
            Tell::Wrong { what } => Err(Error::WrongData(format!("{}: {what}", self.piped.name))),
            Tell::Failed { what } => Err(Error::Target { target: self.piped.name.clone(), what }),
            tell => Ok(tell),
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
