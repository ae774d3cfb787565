//! What segment files there are, by their headers and their `Start` records; and what these tell of the log.
//!
//! Invariant: a file called `*.journal` had a durable header before it got that name, so that one with
//! a bad header is damage. Of records but the first nothing is judged here.

use std::path::PathBuf;

use super::reader::{SegmentReader, Step};
use super::record::{RecordType, Start};
use super::segment::{JournalFiles, read_header};
use super::segment_header::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentType};
use super::writer::JournalPosition;
use crate::error::{Error, Result};
use crate::file_name;

pub(super) const IMPOSSIBLE_PLACE: &str = "the manifest names an impossible place";

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

    /// LSN of the first record, as the manifest has it by a place in this segment. An error: there is no such
    /// place, or the segment is another store's.
    pub(super) fn base_lsn(&self, place: JournalPosition) -> Result<u64> {
        let JournalPosition { offset, lsn, .. } = place;
        let distance = offset.checked_sub(SEGMENT_HEADER_BYTES);
        let Some(base_lsn) = distance.and_then(|distance| lsn.checked_sub(distance)) else {
            return Err(self.damage(offset, IMPOSSIBLE_PLACE));
        };
        match self.start {
            Some(start) if start.lsn != base_lsn => {
                Err(self.damage(offset, "the manifest and the segment differ about its LSN"))
            }
            _ => Ok(base_lsn),
        }
    }

    /// Whether what stands before the place where replay starts is there, synced or not, if that place is in this
    /// segment and beyond what is known to have been synced.
    pub(super) fn has_front(
        &self,
        files: &JournalFiles,
        from: JournalPosition,
        synced_lsn: u64,
    ) -> Result<bool> {
        if synced_lsn >= from.lsn || self.header.number != from.segment {
            return Ok(true);
        }
        if self.len < from.offset {
            return Ok(false);
        }
        let mut reader = self.reader(files, SEGMENT_HEADER_BYTES, from.offset)?;
        loop {
            match reader.step()? {
                Step::End => return Ok(true),
                Step::Bad(_) => return Ok(false),
                Step::Record(record) => {
                    if reader.check_values(&record)?.is_err() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Whether the file is shorter than it was made or cut to: then it has lost an unknown number of records,
    /// even if it ends where one does.
    pub(super) fn is_short(&self) -> bool {
        self.len < self.header.file_bytes
    }

    /// Whether the log was ended on purpose at `end`: 8 zeros follow, and nothing else but in a file that was
    /// used before. Requires: `reader` reads up to the file's end, and no record stands behind `end`.
    pub(super) fn is_ended_at(&self, reader: &mut SegmentReader, end: u64) -> Result<bool> {
        Ok(reader.is_terminated(end)?
            && (self.header.is_recycled || reader.last_nonzero(end)? == end))
    }

    pub(super) fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what)
    }
}

/// Of segments, the one that continues `number` from `from_lsn` on or later, and what its start says.
///
/// Two may claim to when the start of one could not be written whole; that one holds no records.
pub(super) fn successor<'a>(
    segments: impl Iterator<Item = &'a Candidate>,
    number: u64,
    from_lsn: u64,
) -> Option<(&'a Candidate, Start)> {
    let others = segments.filter(|segment| segment.header.number != number);
    let claims = others.filter_map(|segment| Some((segment, segment.start?)));
    claims
        .filter(|(_, start)| start.predecessor == number && start.lsn >= from_lsn)
        .max_by_key(|(segment, start)| (segment.has_records, start.predecessor_end))
}

/// Whether a segment with this start goes on where the log got to.
pub(super) fn goes_on_at(start: &Start, end: JournalPosition) -> bool {
    start.predecessor_end == end.offset && start.lsn == end.lsn
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
