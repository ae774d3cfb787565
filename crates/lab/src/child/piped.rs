//! A program's standard input and output, line by line, for what asks children one thing at a time.
//!
//! Invariant: no process outlives its handle, and what is said of one that died has its last words.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// A child that was told to stop, or to close, and doesn't, is killed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// A loading child tells of its progress several times a second; one that is silent for so long hangs. Opening and
/// settling tell nothing, and may take long.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(900);
/// How often it is looked whether to stop.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Longest end of what a child said on standard error that is kept.
const LAST_WORDS_BYTES_MAX: usize = 2000;

/// How long an answer is waited for.
#[derive(Debug)]
pub(crate) struct Wait {
    /// Set when the user wants no more.
    pub(crate) stop: Arc<AtomicBool>,
    /// How long what was asked may take from when that is seen.
    pub(crate) patience: Duration,
    /// How long there may be silence.
    pub(crate) silence_max: Duration,
    /// When the stop was seen: what is asked with the same `Wait` has its patience together.
    pub(crate) stopped_at: Option<Instant>,
}

impl Wait {
    /// For a stop, with a minute from then on.
    pub(crate) fn new(stop: Arc<AtomicBool>, silence_max: Duration) -> Wait {
        Wait { stop, patience: PATIENCE, silence_max, stopped_at: None }
    }

    /// For one that is closing. A stop hurries it not: its last run was made, and would count no more.
    pub(crate) fn unhurried(silence_max: Duration) -> Wait {
        Wait::new(Arc::default(), silence_max)
    }
}

/// A process that answers lines with lines.
#[derive(Debug)]
pub(crate) struct Piped {
    process: std::process::Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    last_words: Arc<Mutex<Vec<u8>>>,
    /// What it is called in errors.
    pub(crate) name: String,
}

impl Piped {
    /// Starts a program.
    pub(crate) fn spawn(mut command: Command) -> Result<Piped> {
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
        let input = process.stdin.take();
        let piped = Piped { process, input, answers, last_words, name: program };
        spawn_thread(move || pass_lines(stdout, &sender))?;
        spawn_thread(listen)?;
        Ok(piped)
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Says one line.
    pub(crate) fn say(&mut self, what: &impl Serialize) -> std::result::Result<(), Died> {
        let mut line = serde_json::to_vec(what)
            .map_err(|error| Died(Error::Invalid(format!("a question can't be asked: {error}"))))?;
        line.push(b'\n');
        let written = self.input.as_mut().map(|input| input.write_all(&line));
        match written {
            Some(Ok(())) => Ok(()),
            // A broken pipe: it has died, and how is more telling.
            _ => Err(Died(self.death())),
        }
    }

    /// The next line, if one comes within `wait`. One that is no answer ends the process.
    fn hear<T: DeserializeOwned>(
        &mut self,
        wait: Duration,
    ) -> std::result::Result<Option<T>, Died> {
        let line = match self.answers.recv_timeout(wait) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => return Err(Died(self.death())),
        };
        serde_json::from_str(&line).map(Some).map_err(|error| {
            let start: String = line.chars().take(80).collect();
            Died(self.kill_because(&format!("it answered {start:?}, which is no answer: {error}")))
        })
    }

    /// The next line, waited for as long as it may take; once a stop is seen, `word` is said. One that is late is ended,
    /// which after a stop is no failure.
    pub(crate) fn hear_in_time<T: DeserializeOwned>(
        &mut self,
        wait: &mut Wait,
        word: Option<&impl Serialize>,
    ) -> std::result::Result<T, Died> {
        let since = Instant::now();
        loop {
            if wait.stopped_at.is_none() && wait.stop.load(Ordering::Relaxed) {
                wait.stopped_at = Some(Instant::now());
                word.map_or(Ok(()), |word| self.say(word))?;
            }
            if wait.stopped_at.is_some_and(|at| at.elapsed() > wait.patience) {
                self.kill_because("it was stopped");
                return Err(Died(Error::Interrupted));
            }
            if since.elapsed() > wait.silence_max {
                return Err(Died(self.kill_because("it fell silent, and was killed")));
            }
            if let Some(answer) = self.hear(TICK)? {
                return Ok(answer);
            }
        }
    }

    /// Waits until it ends by itself, having nothing more to answer.
    pub(crate) fn end(mut self) -> Result<()> {
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

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// Ends it, and says why.
    pub(crate) fn kill_because(&mut self, what: &str) -> Error {
        self.kill();
        self.gone(what)
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
}

impl Drop for Piped {
    fn drop(&mut self) {
        self.input = None;
        if !self.has_ended() {
            self.kill();
        }
    }
}

/// Why no answer came: the child refused, or is gone.
#[derive(Debug)]
pub(crate) struct Died(pub(crate) Error);

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
