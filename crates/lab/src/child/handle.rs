//! The lab's side: a child process, asked one thing at a time.
//!
//! Invariant: whatever the child does (die, hang, talk nonsense), a run comes back with what is known
//! of it, and no child outlives its handle.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::message::{Ask, How, Opening, Tell};
use crate::error::{Error, Result};
use crate::load::{Loaded, Progress};
use crate::record::Outcome;
use crate::run::RunOptions;
use crate::spec::Spec;

/// How often the stop flag is looked at.
const TICK: Duration = Duration::from_millis(100);
/// A child that was told to stop, or to close, and doesn't, is killed.
const PATIENCE: Duration = Duration::from_secs(60);
/// A loading child tells of its progress several times a second; one that is silent for so long hangs.
/// Settling tells nothing, and may take long.
const SILENCE_MAX: Duration = Duration::from_secs(900);
/// Longest end of what a child said on standard error that is kept.
const LAST_WORDS_BYTES_MAX: usize = 2000;

/// A child process with a target.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    last_words: Arc<Mutex<Vec<u8>>>,
    /// The name it was asked to open.
    name: String,
    settings: BTreeMap<String, String>,
}

/// What comes while an answer is waited for.
type OnProgress<'a> = &'a mut dyn FnMut(&Progress);

impl Child {
    /// Starts a program whose `main` calls [`super::serve`].
    pub fn spawn(mut command: Command) -> Result<Child> {
        let program = command.get_program().to_string_lossy().into_owned();
        let spawned =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut process = spawned.map_err(Error::io(format!("start {program}")))?;
        let pipes = (process.stdout.take(), process.stderr.take());
        let (Some(stdout), Some(stderr)) = pipes else {
            return Err(Error::Invalid(format!("{program}: its pipes are missing")));
        };
        let (sender, answers) = mpsc::channel();
        let last_words = Arc::new(Mutex::new(Vec::new()));
        let heard = last_words.clone();
        let listen = move || keep_last_words(stderr, &heard);
        let child = Child {
            input: process.stdin.take(),
            process,
            answers,
            last_words,
            name: program,
            settings: BTreeMap::new(),
        };
        spawn_thread(move || pass_lines(stdout, &sender))?;
        spawn_thread(listen)?;
        Ok(child)
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// Version and settings of the open target, for the record.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings
    }

    /// Opens a target; one that was open is closed before.
    pub fn open(&mut self, opening: &Opening) -> Result<()> {
        self.name.clone_from(&opening.name);
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
        match self.ask_and_watch(&ask, Some(options), watch, &mut so_far)? {
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
        match self.ask_and_watch(&ask, Some(options), watch, &mut so_far) {
            Ok(Tell::Ran { outcome, problem }) => {
                let error = problem.map(super::message::Problem::into_error);
                Ok(Loaded { outcome: *outcome, error })
            }
            Ok(other) => Err(self.unexpected(&other)),
            Err(Died(error)) if so_far.is_some() || self.has_ended() => {
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
        self.input = None;
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            match self.process.try_wait().map_err(Error::io("wait for the child"))? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => return Err(self.death()),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        Err(self.gone("it doesn't end, and was killed"))
    }

    fn ask_done(&mut self, ask: &Ask) -> Result<()> {
        match self.ask(ask)? {
            Tell::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<Tell> {
        Ok(self.ask_and_watch(ask, None, &mut |_| {}, &mut None)?)
    }

    /// Asks, and waits for the answer; passes a stop on.
    fn ask_and_watch(
        &mut self,
        ask: &Ask,
        options: Option<&RunOptions>,
        watch: OnProgress<'_>,
        so_far: &mut Option<Outcome>,
    ) -> std::result::Result<Tell, Died> {
        self.say(ask)?;
        let mut stopped_at = None;
        let mut heard_at = Instant::now();
        loop {
            let stops = options.is_some_and(|options| options.load.stop.load(Ordering::Relaxed));
            if stops && stopped_at.is_none() {
                self.say(&Ask::Stop)?;
                stopped_at = Some(Instant::now());
            }
            if stopped_at.is_some_and(|at| at.elapsed() > PATIENCE) {
                self.kill();
                return Err(Died(self.gone("it didn't stop when told to, and was killed")));
            }
            if options.is_some() && heard_at.elapsed() > SILENCE_MAX {
                self.kill();
                return Err(Died(self.gone("it fell silent, and was killed")));
            }
            let line = match self.answers.recv_timeout(TICK) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(Died(self.death())),
            };
            heard_at = Instant::now();
            match serde_json::from_str(&line) {
                Ok(Tell::Progress { progress, so_far: told }) => {
                    if let Some(told) = told {
                        *so_far = Some(*told);
                    }
                    watch(&progress);
                }
                Ok(Tell::Refused { problem }) => return Err(Died(problem.into_error())),
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    self.kill();
                    let start: String = line.chars().take(80).collect();
                    let what = format!("it answered {start:?}, which is no answer: {error}");
                    return Err(Died(self.gone(&what)));
                }
            }
        }
    }

    fn say(&mut self, ask: &Ask) -> std::result::Result<(), Died> {
        let mut line = serde_json::to_vec(ask)
            .map_err(|error| Died(Error::Invalid(format!("a question can't be asked: {error}"))))?;
        line.push(b'\n');
        let written = self.input.as_mut().map(|input| input.write_all(&line));
        match written {
            Some(Ok(())) => Ok(()),
            // A broken pipe: it has died, and how is more telling.
            _ => Err(Died(self.death())),
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    fn kill(&mut self) {
        // It may have ended by itself meanwhile.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// How it ended, and what it said last.
    fn death(&mut self) -> Error {
        let since = Instant::now();
        let status = loop {
            match self.process.try_wait() {
                Ok(None) if since.elapsed() < Duration::from_secs(1) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(Some(status)) => break status.to_string(),
                // It closed its output and lives on: it is of no more use.
                _ => {
                    self.kill();
                    break "it closed its output".to_owned();
                }
            }
        };
        // The thread that listens holds the other reference until it has heard all.
        while Arc::strong_count(&self.last_words) > 1 && since.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let heard = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let words = String::from_utf8_lossy(&heard).trim().to_owned();
        drop(heard);
        let what = if words.is_empty() {
            format!("its process ended: {status}")
        } else {
            format!("its process ended: {status}; it said: {words}")
        };
        self.gone(&what)
    }

    fn gone(&self, what: &str) -> Error {
        Error::Target { target: self.name.clone(), what: what.to_owned() }
    }

    fn unexpected(&mut self, answer: &Tell) -> Error {
        self.kill();
        let name = serde_json::to_value(answer).ok();
        let name = name.as_ref().and_then(|value| value["tell"].as_str()).unwrap_or("nothing");
        self.gone(&format!("it answered {name:?} to another question"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.input = None;
        if !self.has_ended() {
            self.kill();
        }
    }
}

/// Why no answer came: the child refused, or is gone.
#[derive(Debug)]
struct Died(Error);

impl From<Died> for Error {
    fn from(Died(error): Died) -> Error {
        error
    }
}

fn spawn_thread(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name("lab-child".into()).spawn(work);
    thread.map(drop).map_err(Error::io("thread"))
}

fn pass_lines(output: ChildStdout, lines: &mpsc::Sender<String>) {
    for line in BufReader::new(output).split(b'\n') {
        let Ok(line) = line else { break };
        if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
            break;
        }
    }
}

fn keep_last_words(mut stderr: ChildStderr, last_words: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut bytes) {
        let mut kept = last_words.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&bytes[..count]);
        let excess = kept.len().saturating_sub(LAST_WORDS_BYTES_MAX);
        kept.drain(..excess);
    }
}
