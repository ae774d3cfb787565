//! The server under test as a child process, which never outlives its handle.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::report::Violation;

/// An open that takes longer hangs.
const OPEN_TIME_MAX: Duration = Duration::from_secs(120);

/// A stop that takes longer hangs.
const STOP_TIME_MAX: Duration = Duration::from_secs(120);

/// A server that was started.
pub(crate) struct Server {
    child: Process,
    started: Instant,
}

/// A server that says where it listens.
pub(crate) struct Opened {
    child: Process,
    address: SocketAddr,
    pub(crate) open_time: Duration,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when the process has ended and been waited for, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts a server on the store in `dir`, with settings so small that flushes, merges and
    /// collections never stop, and different at each start, as they may be.
    pub(crate) fn start(
        binary: &Path,
        dir: &Path,
        random: &mut Random,
    ) -> Result<Server, Violation> {
        let log = log_file(dir)?;
        let kib = |choices: &[u64], random: &mut Random| {
            format!("{}KiB", choices[random.below(choices.len() as u64) as usize])
        };
        let reading = if random.chance(50) { "pread" } else { "mapped" };
        let child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--log", "warn"])
            .args(["--reading", reading])
            .args(["--memtable-bytes", &kib(&[64, 256, 1024], random)])
            .args(["--memtable-journal-bytes", &kib(&[512, 2048], random)])
            .args(["--write-buffer-bytes", &kib(&[4096, 16384], random)])
            .args(["--segment-bytes-min", &kib(&[64, 256], random)])
            .args(["--segment-bytes-max", &kib(&[256, 1024, 4096], random)])
            .args(["--table-bytes", &kib(&[64, 512], random)])
            .args(["--inline-max-bytes", &kib(&[1, 2], random)])
            .arg("--data")
            .arg(dir.join("store"))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log))
            .spawn()
            .map_err(|error| Violation::harness(format!("cannot start {binary:?}: {error}")))?;
        Ok(Server { child: Process(child), started: Instant::now() })
    }

    /// Kills it, whatever it is doing.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Waits for the line that says where the server listens.
    pub(crate) fn wait_until_open(mut self) -> Result<Opened, Violation> {
        let stdout = self.child.0.stdout.take().expect("the child's output is a pipe");
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            // An error leaves the line empty, which is a failed open too.
            let _ = BufReader::new(stdout).read_line(&mut line);
            // Nobody listens when the wait was given up.
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(OPEN_TIME_MAX).map_err(|_| {
            Violation::new(format!("the server did not open within {OPEN_TIME_MAX:?}"))
        })?;
        let address = line
            .strip_prefix("listening on http://")
            .and_then(|rest| rest.split(' ').next())
            .and_then(|address| address.parse().ok())
            .ok_or_else(|| Violation::new("the server did not open; its log says why"))?;
        Ok(Opened { child: self.child, address, open_time: self.started.elapsed() })
    }
}

impl Opened {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it is no longer running.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.0.try_wait(), Ok(None))
    }

    /// Sends SIGTERM.
    pub(crate) fn ask_to_stop(&self) {
        let ask = format!("kill -TERM {}", self.child.0.id());
        // It fails only when the server has ended already.
        let _ = Command::new("sh").args(["-c", &ask]).stderr(Stdio::null()).status();
    }

    /// Kills it, whatever it is doing.
    pub(crate) fn kill(&mut self) {
        // Both fail only when the process has ended and been waited for.
        let _ = self.child.0.kill();
        let _ = self.child.0.wait();
    }

    /// Asks it to stop and demands that it does so with exit code 0.
    pub(crate) fn stop_cleanly(mut self) -> Result<(), Violation> {
        self.ask_to_stop();
        let asked = Instant::now();
        while asked.elapsed() < STOP_TIME_MAX {
            match self.child.0.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    return Err(Violation::new(format!("a clean stop ended with {status}")));
                }
                _ => thread::sleep(Duration::from_millis(10)),
            }
        }
        Err(Violation::new(format!("the server did not stop within {STOP_TIME_MAX:?}")))
    }
}

/// Has the command check every byte of the store in `dir`.
pub(crate) fn verify(binary: &Path, dir: &Path) -> Result<(), Violation> {
    let output = Command::new(binary)
        .args(["verify", "--data"])
        .arg(dir.join("store"))
        .output()
        .map_err(|error| Violation::harness(format!("cannot start {binary:?}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(Violation::new(format!("verify: {}", String::from_utf8_lossy(&said).trim())))
}

fn log_file(dir: &Path) -> Result<File, Violation> {
    let path = dir.join("server.log");
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|error| Violation::harness(format!("cannot write {path:?}: {error}")))
}
