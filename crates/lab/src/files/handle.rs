//! The lab's side: a child process with a store of files.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use super::content::Content;
use super::message::{Ask, FilesOpening, Tell};
use crate::child::piped::Piped;
use crate::error::{Error, Result};

/// The longest that one file may take; a child that takes longer is killed.
const PATIENCE: Duration = Duration::from_secs(600);

/// A child process with a store of files.
#[derive(Debug)]
pub struct FilesChild {
    piped: Piped,
    settings: BTreeMap<String, String>,
}

impl FilesChild {
    /// Starts a program that speaks the protocol, and has it open a store.
    pub fn open(command: Command, opening: &FilesOpening) -> Result<FilesChild> {
        let mut piped = Piped::spawn(command)?;
        piped.name.clone_from(&opening.name);
        let mut child = FilesChild { piped, settings: BTreeMap::new() };
        match child.ask(&Ask::Open { opening: opening.clone() })? {
            Tell::Opened { settings } => {
                child.settings = settings;
                Ok(child)
            }
            other => Err(child.unexpected(&other)),
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
        match self.piped.hear(PATIENCE)? {
            Some(Tell::Wrong { what }) => {
                Err(Error::WrongData(format!("{}: {what}", self.piped.name)))
            }
            Some(Tell::Failed { what }) => {
                Err(Error::Target { target: self.piped.name.clone(), what })
            }
            Some(tell) => Ok(tell),
            None => Err(self.piped.kill_because("it fell silent, and was killed")),
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
