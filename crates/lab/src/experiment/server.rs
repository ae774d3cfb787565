//! A server in a process of its own, which tells on its first line where it listens.
//!
//! Invariant: it doesn't outlive its handle. It is in a process group of its own, so that Ctrl-C reaches
//! the lab alone, and its standard input ends with the lab, however that ends.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::memory_group::MemoryGroup;
use crate::child::piped::{SILENCE_MAX, TICK};
use crate::error::{Error, Result};

/// A server that was asked to end, and doesn't, is killed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest end of what it said that is told.
const LAST_WORDS_BYTES_MAX: usize = 1000;

/// The program and arguments of a command, in the group if one is given. More arguments may follow.
pub(super) fn command(words: &[OsString], group: Option<&MemoryGroup>) -> Result<Command> {
    let entered = group.filter(|_| !words.is_empty()).map(|group| group.entered_by(words));
    let [program, arguments @ ..] = entered.as_deref().unwrap_or(words) else {
        return Err(Error::Invalid("there is no program for this kind of target here".into()));
    };
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    // Settings come from the experiment alone.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TALLYBOOK_") {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// What an admin listener answers at this URL.
pub(super) fn ask(url: &str, patience: Duration) -> Result<String> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(patience)).proxy(None).build().into();
    let failed = |error: ureq::Error| Error::Target {
        target: "admin listener".into(),
        what: error.to_string(),
    };
    agent.get(url).call().map_err(failed)?.body_mut().read_to_string().map_err(failed)
}

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    process: Child,
    url: String,
    /// Of its admin listener, if it says that it has one.
    admin_url: Option<String>,
    name: String,
    log: PathBuf,
}

impl Server {
    /// Starts one, and waits until it says where it listens; what else it says goes to `log`. Once `stop` is set it
    /// isn't waited for.
    pub(super) fn start(
        command: Command,
        name: &str,
        log: &Path,
        stop: &AtomicBool,
    ) -> Result<Server> {
        Server::start_within(command, name, log, stop, SILENCE_MAX)
    }

    fn start_within(
        mut command: Command,
        name: &str,
        log: &Path,
        stop: &AtomicBool,
        patience: Duration,
    ) -> Result<Server> {
        let file = File::create(log).map_err(Error::io(log.display().to_string()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let process = command.spawn().map_err(Error::io(format!("start {name}")))?;
        let mut server = Server {
            process,
            url: String::new(),
            admin_url: None,
            name: name.to_owned(),
            log: log.to_owned(),
        };
        let line = match server.process.stdout.take() {
            Some(stdout) => server.first_line(stdout, stop, patience)?,
            None => String::new(),
        };
        // `http://ADDRESS`, or `listening on http://ADDRESS (data), ...`.
        let mut urls = line.split([' ', ',', '\n']).filter(|word| word.starts_with("http://"));
        match urls.next() {
            Some(url) => server.url = url.to_owned(),
            None => return Err(server.ended().unwrap_or_else(|| server.error("it never listens"))),
        }
        server.admin_url = urls.next().map(str::to_owned);
        Ok(server)
    }

    /// Its first line; empty where it ends without one.
    fn first_line(
        &self,
        stdout: ChildStdout,
        stop: &AtomicBool,
        patience: Duration,
    ) -> Result<String> {
        let (sender, lines) = mpsc::channel();
        let read = move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line).map(|_| line);
            // Nobody may wait for it any more.
            let _ = sender.send(read);
        };
        // It ends with the server's output, and so with the server.
        let thread = std::thread::Builder::new().name("lab-server".into()).spawn(read);
        thread.map_err(Error::io("thread"))?;
        let since = Instant::now();
        loop {
            match lines.recv_timeout(TICK) {
                Ok(read) => return read.map_err(Error::io(format!("where {} listens", self.name))),
                Err(RecvTimeoutError::Disconnected) => return Ok(String::new()),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    return Err(Error::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) if since.elapsed() > patience => {
                    return Err(self.error("it doesn't say where it listens, and was killed"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// The URL of its admin listener.
    pub(super) fn admin_url(&self) -> Option<&str> {
        self.admin_url.as_deref()
    }

    /// Runs in level 0 of its tree, as its admin listener tells.
    pub(super) fn level0_runs(&self) -> Option<f64> {
        let stats = ask(&format!("{}/stats", self.admin_url()?), PATIENCE).ok()?;
        let stats: serde_json::Value = serde_json::from_str(&stats).ok()?;
        stats["levels"][0]["runs"].as_f64()
    }

    /// Its URL.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Its process.
    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }

    /// How it ended and what it said last, if it has ended or is about to.
    pub(super) fn ended(&mut self) -> Option<Error> {
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(1) {
            match self.process.try_wait() {
                Ok(Some(status)) => {
                    let words = self.last_words();
                    let said = if words.is_empty() { words } else { format!("; it said: {words}") };
                    return Some(self.error(&format!("its process ended: {status}{said}")));
                }
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        None
    }

    /// Asks it to end in order, and waits.
    pub(super) fn stop(mut self) -> Result<()> {
        self.ask(Signal::TERM);
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            match self.process.try_wait().map_err(Error::io("wait for the server"))? {
                // The bare server ends by the signal itself, and nothing by another in order.
                Some(status)
                    if status.success() || status.signal() == Some(Signal::TERM.as_raw()) =>
                {
                    return Ok(());
                }
                Some(status) => {
                    let words = self.last_words();
                    return Err(
                        self.error(&format!("its process ended: {status}; it said: {words}"))
                    );
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Err(self.error("it doesn't end, and was killed"))
    }

    fn ask(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.process), signal);
    }

    fn last_words(&self) -> String {
        let said = std::fs::read(&self.log).unwrap_or_default();
        let from = said.len().saturating_sub(LAST_WORDS_BYTES_MAX);
        String::from_utf8_lossy(&said[from..]).trim().to_owned()
    }

    fn error(&self, what: &str) -> Error {
        Error::Target { target: self.name.clone(), what: what.to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            // It may end by itself meanwhile.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that came up without a word held the laboratory for good, whatever was pressed.
    #[test]
    fn a_server_that_never_listens_is_waited_for_only_so_long() {
        let directory = tempfile::tempdir().unwrap();
        let started = |stop: bool, patience| {
            let mut command = Command::new("sleep");
            command.arg("3600");
            let (log, stop) = (directory.path().join("log"), AtomicBool::new(stop));
            Server::start_within(command, "mute", &log, &stop, patience).unwrap_err()
        };
        let killed = started(false, Duration::from_millis(10)).to_string();
        assert!(killed.contains("where it listens, and was killed"), "{killed}");
        assert!(matches!(started(true, PATIENCE), Error::Interrupted));
    }

    /// One that aborted on its way out counted as stopped in order.
    #[test]
    fn a_server_that_dies_while_it_stops_did_not_stop_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let stopped = |trap: &str| {
            let script = format!(
                "trap '{trap}' TERM; echo http://127.0.0.1:1; while :; do sleep 0.01; done"
            );
            let mut command = Command::new("sh");
            command.args(["-c", &script]);
            let (log, stop) = (directory.path().join("log"), AtomicBool::new(false));
            Server::start(command, "sh", &log, &stop).unwrap().stop()
        };
        stopped("exit 0").unwrap();
        stopped("trap - TERM; kill -TERM $$").unwrap();
        for trap in ["kill -KILL $$", "exit 1"] {
            let error = stopped(trap).unwrap_err().to_string();
            assert!(error.contains("its process ended"), "{error}");
        }
    }
}
