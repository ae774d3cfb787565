//! Runs of the binary: one command to its end, or a server for as long as a test lasts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A server that is silent for this long hangs.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The binary, without settings that the environment of the test may hold.
pub(crate) fn tallybook() -> Command {
    without_settings(Command::new(env!("CARGO_BIN_EXE_tallybook")))
}

/// The same, started with these signals ignored, as `nohup` and a shell's `&` start a command.
pub(crate) fn tallybook_ignoring(signals: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("trap '' {signals}; exec \"$0\" \"$@\""));
    command.arg(env!("CARGO_BIN_EXE_tallybook"));
    without_settings(command)
}

fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TALLYBOOK_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Outcome {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("the output is text")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).expect("the output is JSON")
    }

    /// Demands exit code 0.
    #[track_caller]
    pub(crate) fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Demands this exit code and a message that contains `words`.
    #[track_caller]
    pub(crate) fn failure(self, code: i32, words: &str) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.contains(words), "{words:?} is not in {:?}", self.stderr);
        self
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Outcome { code: output.status.code(), stdout: output.stdout, stderr }
    }
}

/// A pipe that nobody reads.
pub(crate) fn unread() -> Stdio {
    let (_, writer) = std::io::pipe().expect("a pipe is made");
    writer.into()
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Outcome {
    command.output().expect("the binary starts").into()
}

/// Bytes in which every place is told from its neighbours.
pub(crate) fn bytes(len: u32) -> Vec<u8> {
    (0..len).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// A directory for a store, which the first `put` makes.
pub(crate) struct Dir {
    parent: TempDir,
}

impl Dir {
    pub(crate) fn new() -> Self {
        Dir { parent: tempfile::tempdir().expect("a temporary directory") }
    }

    /// The store's directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.beside("data")
    }

    /// Another path on the same file system.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.parent.path().join(name)
    }

    /// A verb on the store.
    pub(crate) fn verb(&self, arguments: &[&str]) -> Outcome {
        verb_on(&self.data(), arguments)
    }

    /// A verb on the store that reads this from standard input.
    pub(crate) fn verb_reading(&self, arguments: &[&str], input: &[u8]) -> Outcome {
        let mut child = tallybook()
            .args(arguments)
            .arg("--data")
            .arg(self.data())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdin = child.stdin.take().expect("standard input is a pipe");
        stdin.write_all(input).expect("the binary reads its input");
        drop(stdin);
        child.wait_with_output().expect("the binary ends").into()
    }
}

/// A verb on the store in `data`.
pub(crate) fn verb_on(data: &Path, arguments: &[&str]) -> Outcome {
    run(tallybook().args(arguments).arg("--data").arg(data))
}

/// A server that runs until it is stopped or dropped.
pub(crate) struct Server {
    child: Child,
    /// `ADDRESS:PORT` of the listeners.
    pub(crate) data: String,
    pub(crate) admin: Option<String>,
    pub(crate) announcement: String,
    /// Collects the log, so that its pipe never fills.
    log: Option<thread::JoinHandle<String>>,
}

impl Server {
    /// Starts a server and waits for its announcement.
    pub(crate) fn start(command: &mut Command) -> Server {
        Server::start_logging_to(command, Stdio::piped())
    }

    /// The same, with this as standard error. The log is kept if that is a new pipe, else it is empty.
    pub(crate) fn start_logging_to(command: &mut Command, stderr: Stdio) -> Server {
        let mut child =
            command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("the binary starts");
        let stderr = child.stderr.take();
        let log = thread::spawn(move || {
            let mut log = Vec::new();
            if let Some(mut stderr) = stderr {
                stderr.read_to_end(&mut log).expect("the log is read");
            }
            String::from_utf8_lossy(&log).into_owned()
        });
        let stdout = child.stdout.take().expect("standard output is a pipe");
        let mut announcement = String::new();
        BufReader::new(stdout).read_line(&mut announcement).expect("the announcement is read");
        let address = |name: &str| {
            let end = announcement.find(name)?;
            Some(announcement[..end].rsplit_once("http://")?.1.to_owned())
        };
        let Some(data) = address(" (data)") else {
            child.wait().expect("the server ends");
            panic!("no announcement: {}", log.join().expect("the log is read"));
        };
        let admin = address(" (admin)");
        Server { child, data, admin, announcement, log: Some(log) }
    }

    /// `serve` on free ports over the store in `dir`.
    pub(crate) fn command(dir: &Dir) -> Command {
        let mut command = tallybook();
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"]);
        command.arg(dir.data());
        command
    }

    /// One request to the data listener: status and body.
    pub(crate) fn ask(&self, method: &str, target: &str, body: &[u8]) -> (u16, Vec<u8>) {
        ask(&self.data, method, target, body)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the server takes a signal");
    }

    /// Waits for the end: exit code and log.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("the server ends");
        let log = self.log.take().expect("a server is waited for once");
        (status.code(), log.join().expect("the log is read"))
    }

    /// SIGTERM, then `wait`.
    pub(crate) fn stop(self) -> (Option<i32>, String) {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when the server has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request on a connection of its own: status and body.
pub(crate) fn ask(address: &str, method: &str, target: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(SILENCE_MAX)).expect("a time-out is set");
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).expect("the request is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the answer is read");
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("the answer has a head");
    let head = String::from_utf8_lossy(&answer[..end]);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("the answer has a status"), answer[end + 4..].to_vec())
}
