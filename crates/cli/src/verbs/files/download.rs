//! Reads a file from a server, and goes on where a connection broke.
//!
//! 1. What the file is was asked before: its version, size and hash.
//! 2. Each request asks for the rest of the range, of that version and no other.
//! 3. Bytes are counted and hashed. Fewer than were asked for are a broken connection, and the rest is
//!    asked for again, a few times in a row if nothing comes. A server cuts a connection before the
//!    first damaged byte; asked for the rest, it says so.
//!
//! Invariant: success is every byte of the range, and of a whole file the right hash.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::time::Duration;

use anyhow::anyhow;
use tallybook_files::{Error, Stat};

use super::remote::{FileServer, encode, refused};
use crate::exit::{Exit, Refused};
use crate::progress::Progress;

/// Tries in a row that may bring nothing.
const TRIES_MAX: u32 = 7;
/// Wait after the first such try; it doubles.
const WAIT: Duration = Duration::from_millis(50);
/// Bytes that are taken at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// A file, or a part of it, that is being read.
pub(super) struct Download<'a> {
    server: &'a FileServer,
    stat: Stat,
    range: Range<u64>,
    position: u64,
    /// Of a file that is read whole.
    hasher: Option<blake3::Hasher>,
}

/// Why a request didn't bring all.
enum Trouble {
    /// Ask again.
    Passing(anyhow::Error),
    /// Don't.
    Lasting(anyhow::Error),
}

impl<'a> Download<'a> {
    /// Requires: the range is within the file.
    pub(super) fn new(server: &'a FileServer, stat: Stat, range: Range<u64>) -> Download<'a> {
        let hasher = (range == (0..stat.size)).then(blake3::Hasher::new);
        Download { server, stat, position: range.start, range, hasher }
    }

    /// Writes every byte, or fails.
    pub(super) fn copy_to(mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        let progress = Progress::new("read");
        let mut tries = 0;
        while self.position < self.range.end {
            let before = self.position;
            match self.fetch(out, &progress) {
                Ok(()) => {}
                Err(Trouble::Lasting(error)) => return Err(error),
                Err(Trouble::Passing(error)) => {
                    tries = if self.position > before { 0 } else { tries + 1 };
                    if tries == TRIES_MAX {
                        let (done, all) = (self.position, self.range.end);
                        return Err(error.context(format!(
                            "the connection broke at byte {done} of {all}, and {tries} tries to \
                             go on there failed"
                        )));
                    }
                    std::thread::sleep(WAIT * 2_u32.pow(tries));
                }
            }
        }
        if self.hasher.is_some_and(|hasher| *hasher.finalize().as_bytes() != self.stat.blake3) {
            let message = "what came is not what was written: its hash is another".to_owned();
            return Err(Refused { exit: Exit::Corruption, message }.into());
        }
        Ok(out.flush()?)
    }

    /// Asks for the rest, once.
    fn fetch(&mut self, out: &mut dyn Write, progress: &Progress) -> Result<(), Trouble> {
        let (start, last) = (self.position, self.range.end - 1);
        let target = format!("/files/{}", encode(&self.stat.name));
        let headers = [
            ("range", format!("bytes={start}-{last}")),
            ("if-match", format!("\"{}\"", self.stat.version)),
        ];
        let answer = self.server.ask("GET", &target, &headers, ());
        let answer = answer.map_err(|error| Trouble::Passing(self.server.explain(error)))?;
        match answer.status().as_u16() {
            206 => {}
            408 | 502..=504 => return Err(Trouble::Passing(refused(answer, &self.stat.name))),
            _ => return Err(Trouble::Lasting(self.changed(refused(answer, &self.stat.name)))),
        }
        let expected = format!("bytes {start}-{last}/{}", self.stat.size);
        let is_expected =
            answer.headers().get("content-range").is_some_and(|range| *range == *expected);
        if !is_expected {
            let what = anyhow!("the server answers with another range than was asked for");
            return Err(Trouble::Lasting(what));
        }
        let mut body = answer.into_body().into_reader();
        let mut buffer = vec![0; BUFFER_BYTES];
        while self.position < self.range.end {
            let wanted = buffer.len().min((self.range.end - self.position) as usize);
            let len = match body.read(&mut buffer[..wanted]) {
                Ok(0) => {
                    let early = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(Trouble::Passing(early.into()));
                }
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Trouble::Passing(error.into())),
            };
            let bytes = &buffer[..len];
            out.write_all(bytes).map_err(|error| Trouble::Lasting(error.into()))?;
            if let Some(hasher) = &mut self.hasher {
                hasher.update(bytes);
            }
            self.position += len as u64;
            progress.update(self.position - self.range.start, self.range.end - self.range.start);
        }
        Ok(())
    }

    /// A refusal, with what it means here.
    fn changed(&self, error: anyhow::Error) -> anyhow::Error {
        match error.downcast_ref::<Error>() {
            Some(Error::NotFound { .. } | Error::Conflict { .. }) => {
                let what = "the file was replaced or unlinked while it was read; read it again";
                error.context(what)
            }
            _ => error,
        }
    }
}
