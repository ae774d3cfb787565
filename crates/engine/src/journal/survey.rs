//! What segment files there are, by their headers and their `Start` records.
//!
//! Invariant: a file called `*.journal` had a durable header before it got that name, so that one with
//! a bad header is damage. Of records nothing is judged here.

use std::path::PathBuf;

use super::reader::{SegmentReader, Step};
use super::record::{RecordType, Start};
use super::segment::{JournalFiles, read_header};
use super::segment_header::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentType};
use crate::error::{Error, Result};
use crate::file_name;

/// A segment file as the survey found it.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) header: SegmentHeader,
    pub(super) path: PathBuf,
    pub(super) len: u64,
    pub(super) start: Option<Start>,
    /// Whether a record follows the start.
    pub(super) has_records: bool,
}

impl Candidate {
    /// Reads the first record of a segment of the log, and whether one follows.
    pub(super) fn look_at_start(&mut self, files: &JournalFiles) -> Result<()> {
        if self.header.segment_type != SegmentType::Log {
            return Ok(());
        }
        let mut reader = self.reader(files, SEGMENT_HEADER_BYTES, self.len)?;
        reader.read_little();
        if let Step::Record(record) = reader.step()?
            && record.header.record_type == RecordType::Start
        {
            self.start = Start::decode(&record.meta);
            self.has_records = matches!(reader.step()?, Step::Record(_));
        }
        Ok(())
    }

    pub(super) fn reader(
        &self,
        files: &JournalFiles,
        offset: u64,
        limit: u64,
    ) -> Result<SegmentReader> {
        let file = files.file_cache.open(&self.path);
        let file = file.map_err(|source| Error::io("open", &self.path, source))?;
        Ok(SegmentReader::over(file, &self.path, self.header.salt, offset, limit))
    }

    pub(super) fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what)
    }
}

/// Looks at the segment files with these numbers.
pub(super) fn survey(files: &JournalFiles, numbers: &[u64]) -> Result<Vec<Candidate>> {
    let look = |&number: &u64| {
        let mut candidate = header_of(files, number)?;
        candidate.look_at_start(files)?;
        Ok(candidate)
    };
    numbers.iter().map(look).collect()
}

/// A segment file by its header alone.
pub(super) fn header_of(files: &JournalFiles, number: u64) -> Result<Candidate> {
    let path = file_name::segment(&files.dir, number);
    let (header, len) = read_header(files, number, &path)?;
    Ok(Candidate { header, path, len, start: None, has_records: false })
}
