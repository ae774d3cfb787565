//! The journal as far as it can be read, for who saves what is whole of a damaged store.
//!
//! Recovery ends where a record is missing, and refuses if it was synced; here it is told of as a hole, and what
//! lies behind it is told too. Each write that is told is one that was made: what a failed write left, behind the
//! end that the next segment names, is not read.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::reader::{Record, SegmentReader, Step};
use super::record::{
    RECORD_ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, RecordType, START_RECORD_BYTES, Start,
};
use super::segment::JournalFiles;
use super::segment_header::{SEGMENT_HEADER_BYTES, SegmentType};
use super::survey::{Candidate, goes_on_at, header_of, successor};
use super::writer::JournalPosition;
use crate::error::{Error, Result};
use crate::file_name;
use crate::head::{Body, Entry, ValuePointer};
use crate::key::{SEQNO_SAVED_MAX, SEQNO_USED_MAX, SeqNo, ValueKind};
use crate::range_tombstone::RangeTombstone;

/// Behind a place that can't be read the next record is looked for in pieces of this, each by itself.
const PIECE_BYTES: u64 = 64 << 10;

/// And of a piece that can't be read in parts of this, which is the least that a disk can't read.
const SECTOR_BYTES: u64 = 512;

const TORN: &str = "a torn record: writes that were not synced may be lost";

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

/// What is known of the log without reading it.
#[derive(Debug, Default)]
pub struct KnownLog {
    /// Where it begins. What was written before is in tables.
    pub from: JournalPosition,
    /// The newest write that is in tables.
    pub seqno_in_tables: SeqNo,
    /// LSN up to which it is known to have been synced.
    pub synced_lsn: u64,
    /// Its newest segment that is known, if the file is needed.
    pub newest: Option<u64>,
    /// Older segments, which are kept for their values.
    pub kept: HashSet<u64>,
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

    /// Whether the segment that a place is in is there, and is the one that is meant.
    pub fn has(&self, place: JournalPosition) -> bool {
        self.of(place).is_some_and(|segment| segment.base_lsn(place).is_ok())
    }

    /// The segment of the log that a place should be in.
    fn of(&self, place: JournalPosition) -> Option<&Candidate> {
        self.log_segments().find(|segment| segment.header.number == place.segment)
    }

    fn log_segments(&self) -> impl Iterator<Item = &Candidate> {
        self.segments.iter().filter(|it| it.header.segment_type == SegmentType::Log)
    }

    /// Tells what was written where the log is `known` to begin, and since.
    pub fn log(&self, known: &KnownLog, told: &mut dyn FnMut(Told)) {
        let from = known.from;
        let mut walk = Walk {
            journal: self,
            end_lsn: Some(from.lsn),
            end_offset: from.offset,
            proven_lsn: known.synced_lsn,
            next_seqno: 0,
            held: None,
            has_hole: false,
            told,
        };
        if let Some(Err(error)) = self.of(from).map(|first| first.base_lsn(from)) {
            walk.hole(error);
        }
        let links = self.links(known);
        if links.first().is_some_and(|first| !goes_on_from(first.segment, from)) {
            walk.end_lsn = None;
        }
        for link in &links {
            walk.segment(link);
        }
        walk.end(links.last());
        let is_missing =
            |number: u64| !links.iter().any(|link| link.segment.header.number == number);
        // Not even of its start something is left: the log may have gone on there.
        let emptied = self.log_segments().find(|segment| {
            let number = segment.header.number;
            let is_other = known.kept.contains(&number) || !is_missing(number);
            let has_no_start = segment.len < SEGMENT_HEADER_BYTES + START_RECORD_BYTES;
            has_no_start && segment.is_short() && !is_other
        });
        if let Some(segment) = emptied {
            (walk.told)(Told::Torn(segment.damage(segment.len, TORN)));
        }
        let had_records = from.segment != 0 || known.synced_lsn > from.lsn;
        let begun = (links.is_empty() && had_records).then_some(from.segment);
        let is_gone =
            |number: &u64| !self.log_segments().any(|segment| segment.header.number == *number);
        // One that is there may have no record: what is known to have been synced tells whether it had.
        let gone = known.newest.into_iter().chain(begun).find(is_gone);
        if let Some(number) = gone.filter(|_| !walk.has_hole) {
            let path = file_name::segment(&self.files.dir, number);
            walk.hole(Error::corruption(&path, 0, "the segment is missing, or its header is"));
        }
    }

    /// Tells of everything that stands in the segment `number`, before `end` if there is a manifest, which says so,
    /// and of each place there that can't be read. Answers the largest number that its records tell of, also those
    /// without writes.
    pub fn segment(&self, number: u64, end: Option<u64>, told: &mut dyn FnMut(Told)) -> SeqNo {
        let Some(segment) = self.segments.iter().find(|found| found.header.number == number) else {
            return 0;
        };
        let mut seqno_max = 0;
        let possible_max = end.map_or(SEQNO_SAVED_MAX, |_| SEQNO_USED_MAX);
        let named = self.successor(number, 0).map(|(_, start)| start.predecessor_end);
        let limit = end.or(named).unwrap_or(segment.len).min(segment.len);
        let part = SEGMENT_HEADER_BYTES..limit;
        let reached = self.records(segment, part, true, &mut |found| match found {
            Ok((_, record)) => match next_seqno(&record.header, possible_max) {
                Some(next) => {
                    seqno_max = seqno_max.max(next.saturating_sub(1));
                    tell(number, &record, told);
                }
                None => told(Told::Hole(segment.damage(record.offset, "impossible SeqNos"))),
            },
            Err(error) => told(Told::Hole(error)),
        });
        if end.is_some_and(|end| reached < end) {
            told(Told::Hole(segment.damage(reached, "its last records can't be read")));
        }
        seqno_max
    }

    /// The segments of the log, in its order.
    fn links(&self, known: &KnownLog) -> Vec<Link<'_>> {
        let from = known.from;
        let mut links = Vec::new();
        for segment in self.log_segments() {
            let number = segment.header.number;
            let is_first = number == from.segment;
            let base_lsn = match is_first {
                true => segment.base_lsn(from).ok(),
                false => self.base_lsn(segment),
            };
            let is_of_log = match is_first {
                true => base_lsn.is_some() && !self.is_given_up(segment, known).unwrap_or(false),
                false => self.is_of_log(segment, base_lsn, known),
            };
            if is_of_log {
                let end = self.successor(number, from.lsn).map(|(_, start)| start.predecessor_end);
                links.push(Link {
                    segment,
                    base_lsn,
                    from: if is_first { from.offset } else { SEGMENT_HEADER_BYTES },
                    limit: end.unwrap_or(segment.len).min(segment.len),
                });
            }
        }
        links.sort_by_key(|link| link.base_lsn.unwrap_or(u64::MAX));
        links
    }

    /// LSN of a segment's first record, as it says itself, or by where its successor says that it ends.
    fn base_lsn(&self, segment: &Candidate) -> Option<u64> {
        if let Some(start) = segment.start {
            return Some(start.lsn);
        }
        let (_, next) = self.successor(segment.header.number, 0)?;
        next.lsn.checked_sub(next.predecessor_end.checked_sub(SEGMENT_HEADER_BYTES)?)
    }

    /// Whether a segment that the log doesn't begin in is part of it.
    fn is_of_log(&self, segment: &Candidate, base_lsn: Option<u64>, known: &KnownLog) -> bool {
        let number = segment.header.number;
        if known.kept.contains(&number) {
            return false;
        }
        let Some(base_lsn) = base_lsn else {
            // A spare has no record; in one that was let go are writes that tables have.
            let Some(RecordHeader { first_seqno, .. }) = self.first_header(segment) else {
                return false;
            };
            // Merges may have dropped the newest write that tables had.
            let begun = self.of(known.from).and_then(|first| self.first_header(first));
            return first_seqno > known.seqno_in_tables
                && begun.is_none_or(|begun| first_seqno >= begun.first_seqno);
        };
        // Its start could not be written whole, and another was begun in its place.
        let is_superseded = segment.start.is_some_and(|start| {
            let other = self.successor(start.predecessor, known.from.lsn);
            !segment.has_records && other.is_some_and(|(other, _)| other.header.number != number)
        });
        base_lsn >= known.from.lsn && !is_superseded
    }

    /// Whether the segment that the log begins in tells nothing: what is lost of its front was never synced, and is
    /// in tables, and behind stands nothing.
    fn is_given_up(&self, first: &Candidate, known: &KnownLog) -> Result<bool> {
        let KnownLog { from, synced_lsn, .. } = *known;
        if first.is_short() || first.has_front(self.files, from, synced_lsn)? {
            return Ok(false);
        }
        let begin = from.offset.min(first.len);
        let mut reader = first.reader(self.files, begin, first.len)?;
        let is_blank = first.header.is_recycled || reader.last_nonzero(begin)? == begin;
        Ok(is_blank && self.look_on(first, begin, first.len).is_none())
    }

    /// The first record header that can be read.
    fn first_header(&self, segment: &Candidate) -> Option<RecordHeader> {
        let at = self.look_on(segment, SEGMENT_HEADER_BYTES, segment.len)?;
        let mut reader = segment.reader(self.files, at, at + RECORD_HEADER_BYTES).ok()?;
        let mut first = None;
        reader.scan_headers(at, |_, header| first = Some(*header)).ok()?;
        first
    }

    fn successor(&self, number: u64, from_lsn: u64) -> Option<(&Candidate, Start)> {
        successor(self.segments.iter(), number, from_lsn)
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
            let next = reader.next_header_in_memory(at + 1);
            let Some(next) = next.or_else(|| self.look_on(segment, at + 1, limit)) else {
                return at;
            };
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
            let Some(next) = next_seqno(&header, SEQNO_USED_MAX).filter(|_| {
                header.first_seqno >= self.next_seqno && header.record_type != RecordType::Index
            }) else {
                return self.hole(segment.damage(record.offset, "a record that doesn't follow"));
            };
            // Recovery ends there. What such a record tells was written nevertheless.
            if is_start != (record.offset == SEGMENT_HEADER_BYTES) {
                self.hole(segment.damage(record.offset, "a segment begins with its start alone"));
            }
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
        if let Some((number, held)) = self.held.take() {
            match link.lsn_at(held.offset).is_none_or(|lsn| self.proven_lsn > lsn) {
                true => tell(number, &held, self.told),
                false => (self.told)(Told::Torn(link.segment.damage(held.offset, TORN))),
            }
        } else if !self.is_ended(link.segment) {
            (self.told)(Told::Torn(link.segment.damage(self.end_offset, TORN)));
        }
        if self.end_lsn.is_some_and(|end| self.proven_lsn > end) {
            self.hole(
                link.segment.damage(link.limit, "writes that were synced are missing behind"),
            );
        }
    }

    /// Whether the last segment's records end as the writer ends them.
    fn is_ended(&self, last: &Candidate) -> bool {
        let reader = last.reader(self.journal.files, self.end_offset, last.len);
        let is_ended = reader.and_then(|mut it| last.is_ended_at(&mut it, self.end_offset));
        is_ended.unwrap_or(false) && !last.is_short()
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

/// Whether the log goes on at `from` in a segment: it is the one that is meant, or the next where that is gone.
fn goes_on_from(segment: &Candidate, from: JournalPosition) -> bool {
    let is_next = |start: &Start| start.predecessor == from.segment && goes_on_at(start, from);
    segment.header.number == from.segment || segment.start.as_ref().is_some_and(is_next)
}

/// The number behind those of a record's entries; `None` if these are beyond `seqno_max`.
fn next_seqno(header: &RecordHeader, seqno_max: SeqNo) -> Option<SeqNo> {
    let next = header.first_seqno.checked_add(u64::from(header.count))?;
    (next <= seqno_max + 1).then_some(next)
}

/// Tells of the entries of a record with possible numbers, if it is a group.
fn tell(segment: u64, record: &Record, told: &mut dyn FnMut(Told)) {
    for (seqno, entry) in (record.header.first_seqno..).zip(&record.entries) {
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
    use std::sync::atomic::Ordering;

    use super::super::segment_header::SegmentHeader;
    use super::super::testing::Bench;
    use super::*;
    use crate::vfs::FileSystem;

    /// The keys that the log tells of, in its order, and how many holes there are, and torn ends.
    fn told(bench: &Bench, known: &KnownLog) -> (Vec<Bytes>, u64, u64) {
        let salvaged = SalvagedJournal::survey(&bench.files, &bench.numbers());
        let (mut keys, mut holes, mut torn) = (Vec::new(), 0, 0);
        salvaged.log(known, &mut |told| match told {
            Told::Entry(key, _) => keys.push(key),
            Told::Hole(_) => holes += 1,
            Told::Torn(_) => torn += 1,
            other => panic!("{other:?}"),
        });
        (keys, holes, torn)
    }

    /// A log of five segments or so, with the first number in each, and where it ends.
    fn long_log(bench: &Bench) -> (Vec<SeqNo>, JournalPosition) {
        let mut journal = bench.journal();
        let mut firsts = vec![1];
        while firsts.len() < 5 {
            let seqno = journal.next_seqno;
            if journal.put(b"key", &[7; 3_000]).has_rotated && seqno > 1 {
                firsts.push(seqno);
            }
        }
        journal.sync_and_mark();
        (firsts, journal.writer.position())
    }

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
        let (keys, holes, torn) = told(&bench, &KnownLog::default());
        let expected = (0..20).filter(|at| !(3..6).contains(at));
        assert!(keys.iter().map(|key| key[1]).eq(expected), "{keys:?}");
        assert_eq!((holes, torn), (1, 0));
    }

    /// For each damaged record 320 KiB were.
    #[test]
    fn a_log_with_many_damaged_places_is_not_read_for_each() {
        let bench = Bench::pread();
        let mut journal = bench.journal();
        let mut places = Vec::new();
        for key in 0..41 {
            places.push(journal.writer.position().offset);
            journal.put(&[b'k', key], &[key; 100]);
        }
        let path = journal.writer.active().unwrap().path().to_owned();
        let damaged = places.iter().skip(1).step_by(2);
        damaged.for_each(|at| bench.fs.flip(&path, at + RECORD_HEADER_BYTES));
        let mut bytes = bench.fs.bytes(&path);
        bytes.resize(1 << 20, 0);
        bench.fs.put(&path, bytes);
        bench.fs.faults.bytes_read.store(0, Ordering::SeqCst);
        let (keys, holes, torn) = told(&bench, &KnownLog::default());
        assert_eq!((keys.len(), holes, torn), (21, 20, 0));
        let bytes_read = bench.fs.faults.bytes_read.load(Ordering::SeqCst);
        assert!(bytes_read < (3 << 20) + holes * (64 << 10), "{bytes_read} bytes were read");
    }

    #[test]
    fn another_stores_segment_is_not_taken_for_the_one_that_the_log_begins_in() {
        let bench = Bench::pread();
        let mut journal = bench.journal();
        journal.put(b"first", b"value");
        let from = journal.writer.position();
        journal.put(b"second", b"value");
        let known = KnownLog { from, ..KnownLog::default() };
        assert_eq!(told(&bench, &known), (vec![Bytes::from("second")], 0, 0));
        let from = JournalPosition { lsn: from.lsn + 8, ..from };
        let known = KnownLog { from, ..KnownLog::default() };
        assert_eq!(told(&bench, &known), (Vec::new(), 1, 0));
        let salvaged = SalvagedJournal::survey(&bench.files, &bench.numbers());
        assert!(!salvaged.has(from));
    }

    /// What it was before follows from its successor, or from what is in tables.
    #[test]
    fn a_segment_that_was_let_go_is_no_part_of_the_log_without_its_start_either() {
        for is_alone in [false, true] {
            let bench = Bench::pread();
            let (firsts, from) = long_log(&bench);
            let numbers = bench.numbers();
            let first = bench.path(numbers[0]);
            bench.fs.flip(&first, SEGMENT_HEADER_BYTES + 6);
            if is_alone {
                let between = &numbers[1..numbers.len() - 1];
                between.iter().for_each(|number| bench.fs.remove(&bench.path(*number)).unwrap());
            }
            // Merges may have dropped the newest of what tables had.
            for seqno_in_tables in [firsts[4], 0] {
                let known = KnownLog { from, seqno_in_tables, ..KnownLog::default() };
                let expected = (Vec::new(), 0, 0);
                assert_eq!(told(&bench, &known), expected, "alone: {is_alone}, {seqno_in_tables}");
            }
        }
    }

    /// It was named when it was begun, and of what was written there nothing got to the disk.
    #[test]
    fn the_newest_segment_may_have_no_record() {
        let bench = Bench::pread();
        bench.journal().put(b"key", b"value");
        let number = bench.numbers()[0];
        let mut bytes = bench.fs.bytes(&bench.path(number));
        bytes[SEGMENT_HEADER_BYTES as usize..].fill(0);
        bench.fs.put(&bench.path(number), bytes);
        for (newest, holes) in [(number, 0), (number + 1, 1)] {
            let known = KnownLog { newest: Some(newest), ..KnownLog::default() };
            assert_eq!(told(&bench.restart(), &known), (Vec::new(), holes, 0));
        }
    }

    /// Nothing in a file that was used before got to the disk, and tables have it all.
    #[test]
    fn an_unsynced_front_that_is_lost_is_judged_as_recovery_does() {
        let bench = Bench::pread();
        let mut journal = bench.journal();
        (0..10).for_each(|at| drop(journal.put(&[at], b"value")));
        let from = journal.writer.position();
        let path = bench.path(from.segment);
        let mut bytes = bench.fs.bytes(&path);
        let header = SegmentHeader::decode(&path, from.segment, &bytes).unwrap();
        let header = SegmentHeader { is_recycled: true, ..header };
        bytes[..SEGMENT_HEADER_BYTES as usize].copy_from_slice(&header.encode());
        bytes[from.offset as usize / 2..].fill(0x55);
        bench.fs.put(&path, bytes);
        let known = KnownLog { from, synced_lsn: 8, ..KnownLog::default() };
        let bench = bench.restart();
        assert_eq!(told(&bench, &known), (Vec::new(), 0, 0));
        let (_, recovered) = bench.recover_from(from).unwrap();
        assert_eq!((recovered.start.segment, recovered.torn_records), (0, 0));
        // A crash before the manifest names another start.
        assert_eq!(told(&bench.restart(), &known), (Vec::new(), 0, 0));
    }

    #[test]
    fn a_segment_that_ends_before_its_known_end_has_a_hole() {
        let bench = Bench::pread();
        let mut journal = bench.journal();
        journal.put(b"first", b"value");
        let last = journal.writer.position();
        let end = journal.put(b"last", b"value").end.offset;
        let holes = |end: Option<u64>| {
            let salvaged = SalvagedJournal::survey(&bench.files, &bench.numbers());
            let (mut keys, mut holes) = (0, 0);
            salvaged.segment(last.segment, end, &mut |told| match told {
                Told::Entry(..) => keys += 1,
                _ => holes += 1,
            });
            (keys, holes)
        };
        assert_eq!(holes(Some(end)), (2, 0));
        bench.fs.flip(&bench.path(last.segment), last.offset + 9);
        assert_eq!((holes(Some(end)), holes(None)), ((1, 1), (1, 0)));
    }

    #[test]
    fn a_number_that_no_store_gives_out_is_damage_of_its_record_alone() {
        let bench = Bench::pread();
        let mut journal = bench.journal();
        for (key, seqno) in [(b"a", 1), (b"b", SEQNO_USED_MAX + 1), (b"c", 2)] {
            journal.next_seqno = seqno;
            journal.put(key, b"value");
        }
        let expected = vec![Bytes::from("a"), Bytes::from("c")];
        assert_eq!(told(&bench, &KnownLog::default()), (expected.clone(), 1, 0));
        let salvaged = SalvagedJournal::survey(&bench.files, &bench.numbers());
        let (mut keys, mut holes) = (Vec::new(), 0);
        salvaged.segment(bench.numbers()[0], None, &mut |told| match told {
            Told::Entry(key, _) => keys.push(key),
            _ => holes += 1,
        });
        assert_eq!((keys, holes), (expected, 1));
    }
}
