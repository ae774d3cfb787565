//! The journal as far as it can be read, for who saves what is whole of a damaged store.
//!
//! Recovery ends where a record is missing, and refuses if it was synced; here it is told of as a hole, and what
//! lies behind it is told too. Each write that is told is one that was made: what a failed write left, behind the
//! end that the next segment names, is not read.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::reader::{Record, SegmentReader, Step};
use super::record::{RECORD_ALIGNMENT, RECORD_HEADER_BYTES, RecordType, Start};
use super::segment::JournalFiles;
use super::segment_header::{SEGMENT_HEADER_BYTES, SegmentType};
use super::survey::{Candidate, header_of};
use super::writer::JournalPosition;
use crate::error::{Error, Result};
use crate::file_name;
use crate::head::{Body, Entry, ValuePointer};
use crate::key::{SEQNO_MAX, SeqNo, ValueKind};
use crate::range_tombstone::RangeTombstone;

/// Behind a place that can't be read the next record is looked for in pieces of this, each by itself.
const PIECE_BYTES: u64 = 64 << 10;

/// And of a piece that can't be read in parts of this, which is the least that a disk can't read.
const SECTOR_BYTES: u64 = 512;

/// Something that the journal tells.
#[derive(Debug)]
pub enum Told {
    /// A key was set or deleted. A value is where its pointer says, also one that the tree would hold itself; its
    /// checksum was not compared.
    Entry(Bytes, Entry),
    /// A range of keys was deleted.
    DeleteRange(RangeTombstone),
    /// Writes are missing between what was told before and what will be.
    Hole(Error),
    /// The log ends in what could not be read; none of it was known to have been synced.
    Torn(Error),
}

/// The segment files that have a sound header.
pub struct SalvagedJournal<'a> {
    files: &'a Arc<JournalFiles>,
    segments: Vec<Candidate>,
    damage: Vec<Error>,
}

/// A record, and the reader that is behind it; or why there is none where one should be.
type Found<'a> = Result<(&'a mut SegmentReader, Record)>;

/// A segment of the log.
struct Link<'a> {
    segment: &'a Candidate,
    /// LSN of its first record; `None` when nothing tells.
    base_lsn: Option<u64>,
    /// Where reading begins, and where the next segment says that its records end.
    from: u64,
    limit: u64,
}

impl<'a> SalvagedJournal<'a> {
    /// Looks at the segment files with these numbers.
    pub fn survey(files: &'a Arc<JournalFiles>, numbers: &[u64]) -> SalvagedJournal<'a> {
        let (mut segments, mut damage) = (Vec::new(), Vec::new());
        for number in numbers {
            match header_of(files, *number) {
                Ok(mut found) => {
                    // What can't be read of its records is told when they are.
                    let _ = found.look_at_start(files);
                    segments.push(found);
                }
                Err(error) => damage.push(error),
            }
        }
        SalvagedJournal { files, segments, damage }
    }

    /// Segments of which not even the header can be read: what else is in them can't either, but for values
    /// that are pointed at.
    pub fn damage(&self) -> &[Error] {
        &self.damage
    }

    /// The numbers of the segments that values were collected into, and the bytes of their files.
    pub fn collected(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let is_collected =
            |segment: &&Candidate| segment.header.segment_type == SegmentType::Collected;
        self.segments.iter().filter(is_collected).map(|found| (found.header.number, found.len))
    }

    /// Tells what was written from `from` on. Up to `synced_lsn` it is known to have been synced; `newest` is
    /// the newest segment that is known, if its file is needed.
    pub fn log(
        &self,
        from: JournalPosition,
        synced_lsn: u64,
        newest: Option<u64>,
        told: &mut dyn FnMut(Told),
    ) {
        let mut walk = Walk {
            journal: self,
            end_lsn: Some(from.lsn),
            end_offset: from.offset,
            proven_lsn: synced_lsn,
            next_seqno: 0,
            held: None,
            has_hole: false,
            told,
        };
        let links = self.links(from);
        for link in &links {
            walk.segment(link);
        }
        walk.end(links.last());
        let is_missing =
            |number: u64| !links.iter().any(|link| link.segment.header.number == number);
        let needed = newest.or((links.is_empty() && from.segment != 0).then_some(from.segment));
        if let Some(number) = needed.filter(|&number| !walk.has_hole && is_missing(number)) {
            let path = file_name::segment(&self.files.dir, number);
            walk.hole(Error::corruption(&path, 0, "the segment is missing, or its header is"));
        }
    }

    /// Tells of everything that stands in the segment `number`, before `end` if that is known.
    pub fn segment(&self, number: u64, end: Option<u64>, told: &mut dyn FnMut(Told)) {
        let Some(segment) = self.segments.iter().find(|found| found.header.number == number) else {
            return;
        };
        let named = self.successor(number, 0).map(|(_, start)| start.predecessor_end);
        let limit = end.or(named).unwrap_or(segment.len).min(segment.len);
        self.records(segment, SEGMENT_HEADER_BYTES..limit, true, &mut |found| {
            if let Ok((_, record)) = found {
                tell(segment.header.number, &record, told);
            }
        });
    }

    /// The segments from `from` on, in the order of the log.
    fn links(&self, from: JournalPosition) -> Vec<Link<'_>> {
        let is_log = |segment: &&Candidate| segment.header.segment_type == SegmentType::Log;
        let mut links = Vec::new();
        for segment in self.segments.iter().filter(is_log) {
            let number = segment.header.number;
            let is_first = number == from.segment;
            let successor = self.successor(number, from.lsn).map(|(_, start)| start);
            // Where records stand before an offset of the segment.
            let bytes_before = |offset: u64| offset.checked_sub(SEGMENT_HEADER_BYTES);
            let base_lsn = match segment.start {
                _ if is_first => bytes_before(from.offset).and_then(|to| from.lsn.checked_sub(to)),
                Some(start) => Some(start.lsn),
                None => successor
                    .and_then(|next| next.lsn.checked_sub(bytes_before(next.predecessor_end)?)),
            };
            let is_before = base_lsn.is_some_and(|lsn| lsn < from.lsn);
            // A spare, or one of which nothing is known but that it holds no record.
            let is_empty = || self.look_on(segment, SEGMENT_HEADER_BYTES, segment.len).is_none();
            // Its start could not be written whole, and another was begun in its place.
            let is_superseded = segment.start.is_some_and(|start| {
                let other = self.successor(start.predecessor, from.lsn);
                !segment.has_records && other.is_some_and(|(other, _)| other != number)
            });
            let is_none = is_before || is_superseded || (base_lsn.is_none() && is_empty());
            if is_none && !is_first {
                continue;
            }
            links.push(Link {
                segment,
                base_lsn,
                from: if is_first { from.offset } else { SEGMENT_HEADER_BYTES },
                limit: successor.map_or(segment.len, |next| next.predecessor_end.min(segment.len)),
            });
        }
        links.sort_by_key(|link| link.base_lsn.unwrap_or(u64::MAX));
        links
    }

    /// The segment that continues `number`, and what its start says. Of two that claim to, one has no records.
    fn successor(&self, number: u64, from_lsn: u64) -> Option<(u64, Start)> {
        let others = self.segments.iter().filter(|segment| segment.header.number != number);
        let claims = others.filter_map(|segment| Some((segment, segment.start?)));
        claims
            .filter(|(_, start)| start.predecessor == number && start.lsn >= from_lsn)
            .max_by_key(|(segment, start)| (segment.has_records, start.predecessor_end))
            .map(|(segment, start)| (segment.header.number, start))
    }

    /// Tells of each record of a part of a segment, and of each place where there should be one. Answers where they
    /// end.
    fn records(
        &self,
        segment: &Candidate,
        part: Range<u64>,
        skips_values: bool,
        found: &mut dyn FnMut(Found<'_>),
    ) -> u64 {
        let Range { start: from, end: limit } = part;
        let mut reader = match segment.reader(self.files, from.min(limit), limit) {
            Ok(reader) => reader,
            Err(error) => {
                found(Err(error));
                return from;
            }
        };
        if skips_values {
            reader.skip_values();
        }
        loop {
            let at = reader.offset();
            let error = match reader.step() {
                Ok(Step::End) => return at,
                Ok(Step::Record(record)) => {
                    found(Ok((&mut reader, record)));
                    continue;
                }
                Ok(Step::Bad(what)) => segment.damage(at, what),
                Err(error) => error,
            };
            let Some(next) = self.look_on(segment, at + 1, limit) else { return at };
            found(Err(error));
            reader.seek(next);
        }
    }

    /// Where the next record header at or after `from` stands.
    fn look_on(&self, segment: &Candidate, from: u64, limit: u64) -> Option<u64> {
        let mut at = from.max(SEGMENT_HEADER_BYTES).next_multiple_of(RECORD_ALIGNMENT);
        while at < limit {
            let end = at.saturating_add(PIECE_BYTES).min(limit);
            let found = self.header_in(segment, at..end, limit);
            let found = found.unwrap_or_else(|_| self.header_in_sectors(segment, at..end, limit));
            if found.is_some() {
                return found;
            }
            at = end;
        }
        None
    }

    /// As `header_in`, of a part that can't be read in one.
    fn header_in_sectors(&self, segment: &Candidate, part: Range<u64>, limit: u64) -> Option<u64> {
        let mut sector = part.start;
        while sector < part.end {
            let end = (sector + 1).next_multiple_of(SECTOR_BYTES).min(part.end);
            let found = self.header_in(segment, sector..end, limit);
            // Where one that begins here would end may be what can't be read.
            let found = found.or_else(|_| self.header_in(segment, sector..end, end));
            if let Ok(Some(found)) = found {
                return Some(found);
            }
            sector = end;
        }
        None
    }

    /// The first record header that begins in a part of a segment, and ends before `limit`.
    fn header_in(&self, segment: &Candidate, part: Range<u64>, limit: u64) -> Result<Option<u64>> {
        let end = (part.end + RECORD_HEADER_BYTES).min(limit);
        segment.reader(self.files, part.start, end)?.next_header(part.start)
    }
}

impl Link<'_> {
    /// LSN of an offset in the segment.
    fn lsn_at(&self, offset: u64) -> Option<u64> {
        self.base_lsn?.checked_add(offset.checked_sub(SEGMENT_HEADER_BYTES)?)
    }
}

/// A way through the log.
struct Walk<'a> {
    journal: &'a SalvagedJournal<'a>,
    /// LSN up to which all was told; `None` once that isn't known.
    end_lsn: Option<u64>,
    /// And where that is in its segment.
    end_offset: u64,
    proven_lsn: u64,
    next_seqno: SeqNo,
    /// A group that is not whole: the log may end before it.
    held: Option<(u64, Record)>,
    has_hole: bool,
    told: &'a mut dyn FnMut(Told),
}

impl Walk<'_> {
    fn segment(&mut self, link: &Link<'_>) {
        let (segment, number) = (link.segment, link.segment.header.number);
        if self.end_lsn.is_none() || link.lsn_at(link.from) != self.end_lsn {
            self.hole(segment.damage(link.from, "what was written before it is missing"));
        }
        let journal = self.journal;
        let end = journal.records(segment, link.from..link.limit, false, &mut |found| {
            let (reader, record) = match found {
                Err(error) => return self.hole(error),
                Ok(found) => found,
            };
            let header = record.header;
            let is_start = header.record_type == RecordType::Start;
            let next = header.first_seqno.checked_add(u64::from(header.count));
            let Some(next) = next.filter(|&next| {
                header.first_seqno >= self.next_seqno
                    && next <= SEQNO_MAX + 1
                    && header.record_type != RecordType::Index
            }) else {
                return self.hole(segment.damage(record.offset, "a record that doesn't follow"));
            };
            if let Some((number, held)) = self.held.take() {
                tell(number, &held, self.told);
            }
            if !is_start && self.next_seqno != 0 && header.first_seqno != self.next_seqno {
                self.hole(segment.damage(record.offset, "writes before it are missing"));
            }
            self.next_seqno = next;
            self.proven_lsn = self.proven_lsn.max(header.synced_upto);
            let puts = || record.entries.iter().filter(|entry| entry.is_put());
            let is_whole =
                puts().all(|entry| matches!(reader.is_value_sound(&record, entry), Ok(true)));
            match is_whole {
                true => tell(number, &record, self.told),
                false => self.held = Some((number, record)),
            }
        });
        (self.end_offset, self.end_lsn) = (end, link.lsn_at(end));
    }

    /// The log has ended, in the last of its segments.
    fn end(&mut self, last: Option<&Link<'_>>) {
        let Some(link) = last else { return };
        let torn = "a torn record: writes that were not synced may be lost";
        if let Some((number, held)) = self.held.take() {
            match link.lsn_at(held.offset).is_none_or(|lsn| self.proven_lsn > lsn) {
                true => tell(number, &held, self.told),
                false => (self.told)(Told::Torn(link.segment.damage(held.offset, torn))),
            }
        } else if !self.is_terminated(link) {
            (self.told)(Told::Torn(link.segment.damage(self.end_offset, torn)));
        }
        if self.end_lsn.is_some_and(|end| self.proven_lsn > end) {
            self.hole(
                link.segment.damage(link.limit, "writes that were synced are missing behind"),
            );
        }
    }

    /// Whether the last segment's records end as the writer ends them.
    fn is_terminated(&self, link: &Link<'_>) -> bool {
        let end = self.end_offset.min(link.limit);
        let reader = link.segment.reader(self.journal.files, end, link.limit);
        reader.and_then(|mut reader| reader.is_terminated(end)).unwrap_or(false)
    }

    fn hole(&mut self, error: Error) {
        // Something follows, so that the log doesn't end before it.
        if let Some((number, held)) = self.held.take() {
            tell(number, &held, self.told);
        }
        self.has_hole = true;
        // Who follows may begin anywhere.
        self.next_seqno = 0;
        (self.told)(Told::Hole(error));
    }
}

/// Tells of the entries of a record, if it is a group.
fn tell(segment: u64, record: &Record, told: &mut dyn FnMut(Told)) {
    for (seqno, entry) in (record.header.first_seqno..=SEQNO_MAX).zip(&record.entries) {
        let key = record.meta.slice(entry.key.clone());
        if entry.kind == ValueKind::DeleteRange {
            let end = record.meta.slice(entry.range_end.clone());
            told(Told::DeleteRange(RangeTombstone { start: key, end, seqno }));
            continue;
        }
        let body = match entry.is_put() {
            true => Body::Ref(ValuePointer {
                segment,
                offset: record.value_offset(entry),
                length: entry.value_bytes,
                checksum: entry.checksum,
            }),
            false => Body::Delete,
        };
        let (written_at_ms, expires_at_ms) = (record.header.written_at_ms, entry.expires_at_ms);
        let attributes = record.meta.slice(entry.attributes.clone());
        told(Told::Entry(key, Entry { seqno, written_at_ms, expires_at_ms, attributes, body }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    /// Read in pieces of 256 KiB, it cost what was up to so far before it.
    #[test]
    fn what_the_disk_can_not_read_costs_no_more_than_what_is_there() {
        let bench = Bench::pread();
        let mut journal = bench.journal();
        for at in 0..20u8 {
            journal.put(&[b'k', at], &[at; 300]);
        }
        journal.sync_and_mark();
        // The end of the record with the third key, all of the next, and the front of one more.
        *bench.fs.faults.unreadable.lock() = 3 * SECTOR_BYTES..4 * SECTOR_BYTES;
        let salvaged = SalvagedJournal::survey(&bench.files, &bench.numbers());
        assert!(salvaged.damage().is_empty());
        let (mut keys, mut holes) = (Vec::new(), 0);
        salvaged.log(JournalPosition::default(), 0, None, &mut |told| match told {
            Told::Entry(key, _) => keys.push(key[1]),
            Told::Hole(_) => holes += 1,
            other => panic!("{other:?}"),
        });
        let expected = (0..20).filter(|at| !(3..6).contains(at));
        assert!(keys.iter().copied().eq(expected), "{keys:?}");
        assert_eq!(holes, 1);
    }
}
