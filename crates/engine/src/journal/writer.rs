//! Appends records to the journal's one stream.
//!
//! Invariant: the records of a segment follow each other without a gap up to its end, and a segment's
//! `Start` record names where its predecessor's records end. A record that could not be written whole
//! ends its segment before itself. The writer is used under the store's commit lock; it syncs nothing.

use std::sync::Arc;

use super::backed::BackedMap;
use super::group::PreparedGroup;
use super::record::{RECORD_HEADER_BYTES, RecordHeader, RecordType, START_RECORD_BYTES, Start};
use super::segment::Segment;
use super::segment_header::SEGMENT_HEADER_BYTES;
use super::spares::SegmentPool;
use super::sync::SyncState;
use crate::error::{Error, Result};
use crate::key::SeqNo;

/// A value of at least this many bytes is written from where it is; smaller ones are gathered.
const DIRECT_BYTES_MIN: usize = 64 << 10;

/// Gathered bytes are written at the latest when they are this many.
const GATHER_BYTES_MAX: usize = 256 << 10;

/// In a recycled file, a record is followed by this many zeros, so that the end of the log can be
/// told from what an earlier segment left.
const TERMINATOR_BYTES: u64 = 8;

/// Where replay starts, or the journal ends: a place in a segment, and its LSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalPosition {
    /// Number of the segment; 0 before the first.
    pub segment: u64,
    /// Offset in its file.
    pub offset: u64,
    /// LSN of that place.
    pub lsn: u64,
}

/// A group that was appended.
#[derive(Debug)]
pub struct Appended {
    /// Where the journal ends with it.
    pub end: JournalPosition,
    /// Number of the segment and offset in it where the value section stands.
    pub values_at: (u64, u64),
}

/// A segment of the log that is written or may have to be replayed.
#[derive(Debug, Clone)]
pub struct LogSegment {
    /// The segment.
    pub segment: Arc<Segment>,
    /// LSN of its first record.
    pub base_lsn: u64,
}

/// Appends records.
#[derive(Debug)]
pub struct JournalWriter {
    pool: Arc<SegmentPool>,
    sync: Arc<SyncState>,
    active: Option<Arc<Segment>>,
    /// What was started since it was last asked, whether or not the record it was started for was
    /// written.
    started: Vec<LogSegment>,
    /// Number and end of the segment before the next to be started.
    predecessor: (u64, u64),
    /// LSN of the next record.
    lsn: u64,
    /// What the last record says about how far the journal was synced.
    last_synced_upto: u64,
    scratch: Vec<u8>,
}

impl JournalWriter {
    /// A writer that goes on where recovery ended, in a new segment.
    pub fn new(
        pool: Arc<SegmentPool>,
        sync: Arc<SyncState>,
        end: JournalPosition,
    ) -> JournalWriter {
        JournalWriter {
            pool,
            sync,
            active: None,
            started: Vec::new(),
            predecessor: (end.segment, end.offset),
            lsn: end.lsn,
            last_synced_upto: 0,
            scratch: Vec::new(),
        }
    }

    /// Where the journal ends.
    pub fn position(&self) -> JournalPosition {
        let (segment, offset) = match &self.active {
            Some(segment) => (segment.number(), segment.end()),
            None => self.predecessor,
        };
        JournalPosition { segment, offset, lsn: self.lsn }
    }

    /// The segment that is written, if one was started.
    pub fn active(&self) -> Option<&Arc<Segment>> {
        self.active.as_ref()
    }

    /// Whether there is something to take.
    #[inline]
    pub fn has_started(&self) -> bool {
        !self.started.is_empty()
    }

    /// The segments that were started since this was last called, oldest first.
    pub fn take_started(&mut self) -> Vec<LogSegment> {
        std::mem::take(&mut self.started)
    }

    /// Appends a group whose first entry gets `first_seqno`.
    ///
    /// After an error nothing was appended: the SeqNos are still free, and the next group gets them. A
    /// segment may have been started all the same.
    #[inline]
    pub fn append(
        &mut self,
        group: &mut PreparedGroup<'_>,
        first_seqno: SeqNo,
        written_at_ms: u64,
    ) -> Result<Appended> {
        self.sync.check()?;
        let record_bytes = group.record_bytes();
        self.make_room(record_bytes, group.may_use_reserve(), first_seqno, written_at_ms)?;
        let segment = self.active.as_ref().expect("room was made in it");
        let offset = segment.end();
        if group.has_pointers() {
            segment.note_values();
        }
        let header = RecordHeader {
            record_type: RecordType::Group,
            first_seqno,
            synced_upto: self.sync.synced_lsn(),
            written_at_ms,
            meta_bytes: group.meta_bytes(),
            value_bytes: group.value_bytes(),
            count: group.count(),
            meta_crc: group.meta_crc(segment.header().salt, offset),
        };
        let values_at = (segment.number(), header.values_offset(offset));
        self.write(offset, &header, group.meta(), group.values())?;
        self.sync.publish_group(self.lsn, written_at_ms);
        Ok(Appended { end: self.position(), values_at })
    }

    /// Appends a mark, which proves to recovery how far the journal was synced; false when the last
    /// record proves as much already. `next_seqno` is that of the next write.
    pub fn append_mark(&mut self, next_seqno: SeqNo, written_at_ms: u64) -> Result<bool> {
        self.sync.check()?;
        if self.last_synced_upto >= self.sync.synced_lsn() {
            return Ok(false);
        }
        self.make_room(RECORD_HEADER_BYTES, true, next_seqno, written_at_ms)?;
        let segment = self.active.as_ref().expect("room was made in it");
        let offset = segment.end();
        let header = self.bare_header(segment, offset, RecordType::Mark, &[], next_seqno);
        let header = RecordHeader { written_at_ms, ..header };
        self.write(offset, &header, &[], &[])?;
        self.sync.publish_mark(self.lsn);
        Ok(true)
    }

    /// Makes the active segment one with room for a record.
    #[inline]
    fn make_room(
        &mut self,
        record_bytes: u64,
        may_use_reserve: bool,
        next_seqno: SeqNo,
        written_at_ms: u64,
    ) -> Result<()> {
        if let Some(active) = &self.active
            && active.end() + record_bytes <= active.capacity()
        {
            return Ok(());
        }
        self.start_segment(record_bytes, may_use_reserve, next_seqno, written_at_ms)
    }

    /// Closes the active segment, if there is one, and starts a new one with room for a record.
    pub fn start_segment(
        &mut self,
        record_bytes: u64,
        may_use_reserve: bool,
        next_seqno: SeqNo,
        written_at_ms: u64,
    ) -> Result<()> {
        self.pool.set_scale(self.lsn);
        if let Some(active) = &self.active {
            self.pool.set_holds_values(active.holds_values());
        }
        // Until there is a new segment the old one goes on: a smaller record may still fit.
        let spare = self
            .pool
            .take(SEGMENT_HEADER_BYTES + START_RECORD_BYTES + record_bytes, may_use_reserve)?;
        let segment = match spare.start(self.pool.files()) {
            Ok(segment) => Arc::new(segment),
            Err(error) => {
                self.pool.discard(&spare);
                return Err(error);
            }
        };
        // From here on the old one is closed, even should the new one fail: its end may be on disk.
        self.close_active();
        let base_lsn = self.lsn;
        if let Err(error) = self.write_start(&segment, next_seqno, written_at_ms) {
            self.pool.discard(&spare);
            return Err(error);
        }
        self.started.push(LogSegment { segment: segment.clone(), base_lsn });
        self.active = Some(segment);
        Ok(())
    }

    fn write_start(
        &mut self,
        segment: &Arc<Segment>,
        next_seqno: SeqNo,
        written_at_ms: u64,
    ) -> Result<()> {
        let (predecessor, predecessor_end) = self.predecessor;
        let meta = Start { lsn: self.lsn, predecessor, predecessor_end }.encode();
        let offset = SEGMENT_HEADER_BYTES;
        let header = self.bare_header(segment, offset, RecordType::Start, &meta, next_seqno);
        let header = RecordHeader { written_at_ms, ..header };
        back(segment, SEGMENT_HEADER_BYTES, &header)?;
        write_parts(segment, offset, &header, &meta, &[], &mut self.scratch)?;
        self.sync.add_segment(segment.clone());
        segment.set_end(offset + header.record_bytes());
        self.advance(&header);
        self.sync.publish_mark(self.lsn);
        Ok(())
    }

    fn bare_header(
        &self,
        segment: &Segment,
        offset: u64,
        record_type: RecordType,
        meta: &[u8],
        next_seqno: SeqNo,
    ) -> RecordHeader {
        RecordHeader {
            record_type,
            first_seqno: next_seqno,
            synced_upto: self.sync.synced_lsn(),
            written_at_ms: 0,
            meta_bytes: meta.len() as u32,
            value_bytes: 0,
            count: 0,
            meta_crc: segment.header().salt.crc(offset, meta),
        }
    }

    /// Writes a record to the active segment, or closes that one before the record.
    #[inline(always)]
    fn write(
        &mut self,
        offset: u64,
        header: &RecordHeader,
        meta: &[u8],
        values: &[&[u8]],
    ) -> Result<()> {
        let segment = self.active.as_ref().expect("room was made in it");
        // Fails before anything is written, so that the segment stays as it is.
        back(segment, offset, header)?;
        if let Err(error) = write_parts(segment, offset, header, meta, values, &mut self.scratch) {
            if let Some(closed) = self.close_active() {
                // A store into a map doesn't fail, so no map of this file exists.
                closed.cut_failed_write();
            }
            return Err(error);
        }
        segment.set_end(offset + header.record_bytes());
        self.advance(header);
        Ok(())
    }

    /// Goes on behind a record that was written.
    fn advance(&mut self, header: &RecordHeader) {
        self.lsn += header.record_bytes();
        self.last_synced_upto = header.synced_upto;
    }

    fn close_active(&mut self) -> Option<Arc<Segment>> {
        let active = self.active.take()?;
        self.predecessor = (active.number(), active.end());
        active.seal();
        Some(active)
    }
}

/// Has the map backed for a record.
#[inline]
fn back(segment: &Segment, offset: u64, header: &RecordHeader) -> Result<()> {
    let Some(map) = segment.map() else { return Ok(()) };
    let end = offset + header.record_bytes() + TERMINATOR_BYTES;
    map.back_upto(end.min(segment.capacity()), segment.path())
}

/// Writes a record's parts; where there is no map, through `scratch`.
#[inline(always)]
fn write_parts(
    segment: &Segment,
    offset: u64,
    header: &RecordHeader,
    meta: &[u8],
    values: &[&[u8]],
    scratch: &mut Vec<u8>,
) -> Result<()> {
    let head = header.encode(segment.header().salt, offset);
    let record_end = offset + header.record_bytes();
    let filled = header.values_offset(offset) + u64::from(header.value_bytes);
    let mut tail_bytes = 0;
    if segment.header().is_recycled {
        tail_bytes = record_end - filled;
        if record_end + TERMINATOR_BYTES <= segment.capacity() {
            tail_bytes += TERMINATOR_BYTES;
        }
    }
    let tail = &[0u8; 16][..tail_bytes as usize];
    match segment.map() {
        Some(map) => {
            store_parts(map, offset, &head, meta, values, tail);
            Ok(())
        }
        None => {
            let written = pwrite_parts(segment, offset, &head, meta, values, tail, scratch);
            scratch.clear();
            scratch.shrink_to(GATHER_BYTES_MAX);
            written
        }
    }
}

fn pwrite_parts(
    segment: &Segment,
    mut at: u64,
    head: &[u8],
    meta: &[u8],
    values: &[&[u8]],
    tail: &[u8],
    scratch: &mut Vec<u8>,
) -> Result<()> {
    let file = segment.file("write")?;
    let mut put = |bytes: &[u8]| {
        let written = file.write_all_at(bytes, at);
        at += bytes.len() as u64;
        written.map_err(|source| Error::io("write", segment.path(), source))
    };
    scratch.clear();
    scratch.extend_from_slice(head);
    for part in std::iter::once(&meta).chain(values) {
        if part.len() < DIRECT_BYTES_MIN {
            scratch.extend_from_slice(part);
        }
        if part.len() >= DIRECT_BYTES_MIN || scratch.len() >= GATHER_BYTES_MAX {
            put(scratch)?;
            scratch.clear();
        }
        if part.len() >= DIRECT_BYTES_MIN {
            put(part)?;
        }
    }
    scratch.extend_from_slice(tail);
    if !scratch.is_empty() {
        put(scratch)?;
    }
    Ok(())
}

/// Stores a record through the map, its header last.
#[inline]
fn store_parts(
    map: &BackedMap,
    offset: u64,
    head: &[u8],
    meta: &[u8],
    values: &[&[u8]],
    tail: &[u8],
) {
    let mut at = offset + (head.len() + meta.len()) as u64;
    match values {
        [] | [_] => {
            let value = values.first().copied().unwrap_or_default();
            map.write_parts(offset, &[head, meta, value, tail]);
            at += value.len() as u64;
        }
        values => {
            for value in values {
                map.write_parts(at, &[value]);
                at += value.len() as u64;
            }
            map.write_parts(at, &[tail]);
            map.write_parts(offset, &[head, meta]);
        }
    }
    map.expect_after(at + tail.len() as u64);
}
