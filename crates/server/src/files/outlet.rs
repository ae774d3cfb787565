//! Gives the bytes of a file, a few chunks at a time.

use tallybook_files::{Error, Reader};

use crate::body::Piece;
use crate::stream::{BATCH_BYTES, Produce};

/// Reads a file, or a part of one.
pub(crate) struct Outlet {
    reader: Reader,
}

impl Outlet {
    pub(crate) fn new(reader: Reader) -> Outlet {
        Outlet { reader }
    }
}

impl Produce<Unnamed> for Outlet {
    fn fill(&mut self, pieces: &mut Vec<Piece>) -> Result<bool, Unnamed> {
        let mut bytes = 0;
        while bytes < BATCH_BYTES {
            let Some(chunk) = self.reader.next_chunk().map_err(Unnamed)? else { return Ok(false) };
            bytes += chunk.len();
            pieces.push(Piece::from(chunk));
        }
        Ok(true)
    }
}

/// An error of the file store that is shown without the file's name, as logs must not have it.
#[derive(Debug)]
pub(crate) struct Unnamed(pub(crate) Error);

impl std::fmt::Display for Unnamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Error::Damaged { offset, what, .. } => {
                write!(f, "a file is damaged at byte {offset}: {what}")
            }
            Error::NotFound { .. } => f.write_str("there is no such file"),
            other => other.fmt(f),
        }
    }
}
