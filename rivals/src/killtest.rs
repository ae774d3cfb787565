//! Whether what was acknowledged is there after the process was killed.
//!
//! A child process writes and reports each acknowledgement; its parent kills it without notice, opens
//! the directory and looks for every write that was reported. Power loss isn't simulated.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tallybook_lab::spec::Durability;
use tallybook_lab::target::{Answers, Request};
use tallybook_lab::{Error, Result};

use crate::engines::open;
use crate::selftest::budget;

/// The verb by which the binary runs [`write_until_killed`].
pub const VERB: &str = "write-until-killed";
/// Acknowledgements after which the child is killed; many times what an engine buffers by accident.
const ACKNOWLEDGED_MIN: u64 = 3_000;
/// How long the child goes on after that.
const AHEAD: Duration = Duration::from_millis(20);

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"kill000000000000";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn value(number: u64) -> Vec<u8> {
    // Some are long enough to be separated from their keys.
    let length = if number.is_multiple_of(16) { 2_000 } else { 100 };
    number.to_le_bytes().into_iter().cycle().take(length).collect()
}

#[derive(Default)]
struct Outcome {
    written: bool,
    value: Option<Vec<u8>>,
}

impl Answers for Outcome {
    fn value(&mut self, value: Option<&[u8]>) {
        self.value = value.map(<[u8]>::to_vec);
    }

    fn length(&mut self, _length: Option<u64>) {}

    fn pair(&mut self, _key: &[u8], _value: &[u8]) {}

    fn written(&mut self) {
        self.written = true;
    }

    fn failed(&mut self, _kind: &str) {}
}

/// Writes without end, one line on `reports` per acknowledgement.
pub fn write_until_killed(name: &str, directory: &Path, reports: &mut dyn Write) -> Result<()> {
    let target = open(name, directory, &budget(Durability::Os), &BTreeMap::new())?;
    let mut session = target.session()?;
    for number in 0.. {
        let mut outcome = Outcome::default();
        let request = Request::Put { key: &key(number), value: &value(number) };
        session.perform(request, &mut outcome)?;
        if !outcome.written {
            return Err(Error::Target {
                target: name.to_owned(),
                what: format!("put {number} wasn't acknowledged"),
            });
        }
        writeln!(reports, "{number}").map_err(Error::io("reporting"))?;
    }
    Ok(())
}

/// What was found after the kill.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Writes that the child reported.
    pub acknowledged: u64,
    /// Of those, how many are not there, or wrong.
    pub lost: u64,
    /// What the engine says that its writes survive.
    pub survives: String,
}

/// Starts `binary` with the verb, kills it, and counts what is lost.
pub fn run(binary: &Path, name: &str, directory: &Path) -> Result<Found> {
    let acknowledged = kill_while_writing(binary, name, directory)?;
    let target = open(name, directory, &budget(Durability::Os), &BTreeMap::new())?;
    let survives = target.settings().remove("survives").unwrap_or_default();
    let mut session = target.session()?;
    let mut lost = 0;
    for number in 0..acknowledged {
        let mut outcome = Outcome::default();
        session.perform(Request::Get { key: &key(number) }, &mut outcome)?;
        lost += u64::from(outcome.value != Some(value(number)));
    }
    drop(session);
    target.close()?;
    Ok(Found { acknowledged, lost, survives })
}

fn kill_while_writing(binary: &Path, name: &str, directory: &Path) -> Result<u64> {
    let mut child = Command::new(binary)
        .arg(VERB)
        .arg(name)
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::io(format!("starting {}", binary.display())))?;
    let reports = child.stdout.take().expect("the child's output is a pipe");
    let mut acknowledged = 0;
    let mut killed = false;
    // Lines that were in the pipe when the child was killed are acknowledgements too.
    for line in BufReader::new(reports).lines() {
        let line = line.map_err(Error::io("reading the child's reports"))?;
        // The last line may have been cut off by the kill; a number cut off is a smaller one.
        if line.parse() == Ok(acknowledged) {
            acknowledged += 1;
        }
        if acknowledged >= ACKNOWLEDGED_MIN && !killed {
            // The child runs ahead of its reports, so that the kill meets it in the middle of a write.
            thread::sleep(AHEAD);
            child.kill().map_err(Error::io("killing the child"))?;
            killed = true;
        }
    }
    let status = child.wait().map_err(Error::io("waiting for the child"))?;
    if !killed {
        return Err(Error::Target {
            target: name.to_owned(),
            what: format!("the child ended by itself ({status}) after {acknowledged} writes"),
        });
    }
    Ok(acknowledged)
}
