//! The child's side: answers the lab's questions until its standard input ends.
//!
//! What is timed is the store's own work and, of a read, the comparison with what was written; making
//! the file's first chunk isn't.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::time::Instant;

use super::content::{Check, Content};
use super::message::{Ask, FilesOpening, Tell};
use super::ours::{self, TallybookFiles};
use super::target::FileTarget;
use crate::child::take_standard_output;
use crate::error::{Error, Result};

/// Answers the lab's questions until there are no more. `open` opens stores by name.
///
/// For the `main` of a child's program: whatever it prints itself must go to standard error.
pub fn serve_files(open: &dyn Fn(&FilesOpening) -> Result<Box<dyn FileTarget>>) -> Result<()> {
    let mut out = take_standard_output().map_err(Error::io("standard output"))?;
    let mut target: Option<Box<dyn FileTarget>> = None;
    for line in BufReader::new(std::io::stdin()).lines() {
        let line = line.map_err(Error::io("standard input"))?;
        let ask = serde_json::from_str(&line)
            .map_err(|error| Error::Invalid(format!("not a question: {error}")));
        let tell = match ask.and_then(|ask| answer(ask, &mut target, open)) {
            Ok(tell) => tell,
            Err(Error::WrongData(what)) => Tell::Wrong { what },
            Err(error) => Tell::Failed { what: error.to_string() },
        };
        say(&mut out, &tell)?;
    }
    target.map_or(Ok(()), FileTarget::close)
}

/// As [`serve_files`], with Tallybook's file store as the only one.
pub fn serve_tallybook() -> Result<()> {
    serve_files(&|opening| match &*opening.name {
        ours::NAME => Ok(Box::new(TallybookFiles::open(opening)?)),
        other => Err(Error::Unknown {
            what: "store of files",
            name: other.to_owned(),
            known: vec![ours::NAME.to_owned()],
        }),
    })
}

fn answer(
    ask: Ask,
    target: &mut Option<Box<dyn FileTarget>>,
    open: &dyn Fn(&FilesOpening) -> Result<Box<dyn FileTarget>>,
) -> Result<Tell> {
    if let Ask::Open { opening } = &ask {
        let opened = open(opening)?;
        let settings = opened.settings();
        *target = Some(opened);
        return Ok(Tell::Opened { settings });
    }
    if ask == Ask::Close {
        return target.take().map_or(Ok(()), FileTarget::close).map(|()| Tell::Closed);
    }
    let target = target.as_mut().ok_or_else(|| Error::Invalid("no store is open".into()))?;
    match ask {
        Ask::Write { name, bytes, seed } => {
            let mut content = Content::new(seed, bytes);
            let ns = timed(|| target.write(&name, &mut content))?;
            Ok(Tell::Done { ns, sum: Some(content.sum()) })
        }
        Ask::Read { name, bytes, seed } => {
            let mut content = Content::new(seed, bytes);
            let mut check = Check::new(content.clone());
            let mut is_there = false;
            let ns = timed(|| {
                is_there = target.read(&name, &mut |bytes| check.piece(bytes))?;
                Ok(())
            })?;
            let wrong = |what: &str| Err(Error::WrongData(format!("{name}: {what}")));
            match check.finish() {
                _ if !is_there => wrong("it isn't there"),
                Err(what) => wrong(&what),
                Ok(()) => Ok(Tell::Done { ns, sum: Some(content.sum()) }),
            }
        }
        Ask::Unlink { name } => {
            let ns = timed(|| target.unlink(&name))?;
            match target.read(&name, &mut |_| {})? {
                true => Err(Error::WrongData(format!("{name}: it is there after its unlinking"))),
                false => Ok(Tell::Done { ns, sum: None }),
            }
        }
        Ask::Figures => Ok(Tell::Figures { figures: target.figures() }),
        Ask::Open { .. } | Ask::Close => unreachable!("they are answered above"),
    }
}

/// How long something took, in nanoseconds.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let start = Instant::now();
    work()?;
    Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

fn say(out: &mut File, tell: &Tell) -> Result<()> {
    let mut line = serde_json::to_vec(tell)
        .map_err(|error| Error::Invalid(format!("an answer that JSON can't hold: {error}")))?;
    line.push(b'\n');
    out.write_all(&line).map_err(Error::io("the lab is gone"))
}
