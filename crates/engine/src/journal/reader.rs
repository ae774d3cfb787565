//! Reads the records of a segment one after the other, or looks for any.
//!
//! Invariant: memory is bounded by what the file holds: lengths are compared with the file before
//! anything is allocated for them. Damage is reported as [`Step::Bad`]; what it means is for
//! [`super::recovery`] to say. Reading goes through `pread`, so that a failing disk is an error here
//! whatever the store's way of reading is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::changes::{Changes, InlineValues};
use super::group_meta::{RecordEntry, decode_group};
use super::record::{RECORD_ALIGNMENT, RECORD_HEADER_BYTES, RecordHeader, RecordType, Salt};
use super::segment::Segment;
use super::segment_header::SEGMENT_HEADER_BYTES;
use crate::checksum;
use crate::error::{Error, Result};
use crate::key::ValueKind;
use crate::vfs::File;

/// Bytes that are read at a time.
const WINDOW_BYTES: u64 = 256 << 10;

/// And for who wants to see little of what follows.
const LITTLE_BYTES: u64 = 4 << 10;

/// Values from this length on are skipped by who doesn't look at them: to read shorter ones, together
/// with what is around them, costs no more than another call of the system.
const SKIPPED_BYTES_MIN: u32 = 8 << 10;

/// A record whose header and meta section are sound.
#[derive(Debug, Clone)]
pub struct Record {
    /// Where it stands in the file.
    pub offset: u64,
    /// Its header.
    pub header: RecordHeader,
    /// Its meta section.
    pub meta: Bytes,
    /// The entries of a group; else empty.
    pub entries: Vec<RecordEntry>,
}

impl Record {
    /// Offset behind the record.
    pub fn end(&self) -> u64 {
        self.offset + self.header.record_bytes()
    }

    /// Offset of an entry's value in the file.
    pub fn value_offset(&self, entry: &RecordEntry) -> u64 {
        self.header.values_offset(self.offset) + u64::from(entry.value_offset)
    }

    /// What the memtable takes of a group. Requires: `inline` is what `check_values` gave for it.
    pub fn changes<'a>(&'a self, inline: &'a [u8], segment: u64) -> Changes<'a> {
        Changes::new(
            &self.meta,
            InlineValues::Packed(inline),
            segment,
            self.header.values_offset(self.offset),
            (self.header.first_seqno, self.header.written_at_ms, self.header.count),
        )
    }
}

/// What stands at the reader's place.
#[derive(Debug, Clone)]
pub enum Step {
    /// A record; the reader is behind it now.
    Record(Record),
    /// The end that was asked for.
    End,
    /// No record; the reader has not moved.
    Bad(&'static str),
}

/// A file, and the part of it that is in memory.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn File>,
    path: PathBuf,
    limit: u64,
    piece_bytes: u64,
    /// Before this place no more is read than is asked for, as something ahead can't be read.
    singly_until: u64,
    bytes: Vec<u8>,
    at: u64,
}

impl Window {
    /// The first `limit` bytes of a file. Requires: the file has that many.
    pub(super) fn new(file: Arc<dyn File>, path: &Path, limit: u64) -> Window {
        Window {
            file,
            path: path.to_owned(),
            limit,
            piece_bytes: WINDOW_BYTES,
            singly_until: 0,
            bytes: Vec::new(),
            at: 0,
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// At least one and at most `len` bytes at `offset`. Requires: `offset` below the limit.
    pub(super) fn some(&mut self, offset: u64, len: u64) -> Result<&[u8]> {
        // Where no more is read than this, to the end of the page: it can be read, or can't, as a whole.
        let page = LITTLE_BYTES - offset % LITTLE_BYTES;
        self.fill(offset, len.min(page).min(self.limit - offset))?;
        let from = (offset - self.at) as usize;
        let until = self.bytes.len().min(from.saturating_add(len as usize));
        Ok(&self.bytes[from..until])
    }

    /// Exactly `len` bytes at `offset`; `None` when the limit is before.
    pub(super) fn exactly(&mut self, offset: u64, len: u64) -> Result<Option<&[u8]>> {
        match offset.checked_add(len) {
            Some(end) if end <= self.limit => {}
            _ => return Ok(None),
        }
        self.fill(offset, len)?;
        let from = (offset - self.at) as usize;
        Ok(Some(&self.bytes[from..from + len as usize]))
    }

    /// Forgets what is in memory, so that it is read again.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
    }

    fn fill(&mut self, offset: u64, len: u64) -> Result<()> {
        let held = self.at..self.at + self.bytes.len() as u64;
        if held.contains(&offset) && offset + len <= held.end {
            return Ok(());
        }
        if offset >= self.singly_until {
            let wanted = self.piece_bytes.max(len).min(self.limit - offset);
            if self.read(offset, wanted).is_ok() {
                return Ok(());
            }
            // What is ahead may be what can't be read, and not be wanted. A disk may take seconds for each try.
            self.singly_until = offset + wanted;
        }
        self.read(offset, len)
    }

    fn read(&mut self, offset: u64, len: u64) -> Result<()> {
        self.bytes.clear();
        self.bytes.resize(len as usize, 0);
        self.at = offset;
        let read = self.file.read_exact_at(&mut self.bytes, offset);
        read.map_err(|source| {
            self.bytes.clear();
            Error::io("read", &self.path, source)
        })
    }
}

/// Reads records in order.
#[derive(Debug)]
pub struct SegmentReader {
    window: Window,
    salt: Salt,
    offset: u64,
    skips_values: bool,
}

impl SegmentReader {
    /// A reader of a segment's records from `offset` to the segment's end.
    pub fn new(segment: &Segment, offset: u64) -> Result<SegmentReader> {
        let file = segment.file("read")?;
        let io_error = |source| Error::io("read", segment.path(), source);
        let len = file.len().map_err(io_error)?;
        if len < segment.end() {
            return Err(Error::corruption(segment.path(), len, "the file ends before its records"));
        }
        let salt = segment.header().salt;
        Ok(SegmentReader::over(file, segment.path(), salt, offset, segment.end()))
    }

    /// A reader of the records in `[offset, limit)` of a file of at least `limit` bytes.
    pub(super) fn over(
        file: Arc<dyn File>,
        path: &Path,
        salt: Salt,
        offset: u64,
        limit: u64,
    ) -> SegmentReader {
        let offset = offset.max(SEGMENT_HEADER_BYTES);
        SegmentReader { window: Window::new(file, path, limit), salt, offset, skips_values: false }
    }

    /// Reads no more ahead than a page, for who wants to see one record only.
    pub(super) fn read_little(&mut self) {
        self.window.piece_bytes = LITTLE_BYTES;
    }

    /// Doesn't read large values, for who looks at records only: where one value is large, the next is
    /// expected to be.
    pub fn skip_values(&mut self) {
        self.skips_values = true;
    }

    /// Where the next record is expected.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes on at another place.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// The next record, its values not looked at.
    pub fn step(&mut self) -> Result<Step> {
        let mut step = self.parse()?;
        if matches!(step, Step::Bad(_)) {
            // A transfer can go wrong where the medium is right: look twice, but not at what follows, as every
            // record may be bad.
            self.window.forget();
            let ahead = std::mem::replace(&mut self.window.piece_bytes, LITTLE_BYTES);
            let again = self.parse();
            self.window.piece_bytes = ahead;
            step = again?;
        }
        if let Step::Record(record) = &step {
            self.offset = record.end();
            if self.skips_values {
                let is_large = record.header.value_bytes >= SKIPPED_BYTES_MIN;
                self.window.piece_bytes = if is_large { LITTLE_BYTES } else { WINDOW_BYTES };
            }
        }
        Ok(step)
    }

    fn parse(&mut self) -> Result<Step> {
        let (offset, limit) = (self.offset, self.window.limit());
        if offset == limit {
            return Ok(Step::End);
        }
        let Some(bytes) = self.window.exactly(offset, RECORD_HEADER_BYTES)? else {
            return Ok(Step::Bad("too few bytes left for a record"));
        };
        let Some(header) = RecordHeader::decode(bytes, self.salt, offset) else {
            return Ok(Step::Bad("not a record header"));
        };
        if header.record_bytes() > limit - offset {
            return Ok(Step::Bad("a record that reaches beyond the end"));
        }
        let meta_len = u64::from(header.meta_bytes);
        let meta = self.window.exactly(offset + RECORD_HEADER_BYTES, meta_len)?.unwrap_or(&[]);
        if self.salt.crc(offset, meta) != header.meta_crc {
            return Ok(Step::Bad("a meta section with a wrong checksum"));
        }
        let entries = match header.record_type {
            RecordType::Group => decode_group(meta, header.count, header.value_bytes),
            _ => Some(Vec::new()),
        };
        let Some(entries) = entries else {
            return Ok(Step::Bad("a malformed group"));
        };
        let meta = Bytes::copy_from_slice(meta);
        let filled = header.values_offset(offset) + u64::from(header.value_bytes);
        let padding = offset + header.record_bytes() - filled;
        if self.window.exactly(filled, padding)?.is_none_or(|bytes| bytes.iter().any(|&b| b != 0)) {
            return Ok(Step::Bad("padding that is not zero"));
        }
        Ok(Step::Record(Record { offset, header, meta, entries }))
    }

    /// Compares the checksum of every value of a group. `Ok(Err(offset))` names the first that is
    /// wrong; else the values that are not pointed at, one after another.
    pub fn check_values(&mut self, record: &Record) -> Result<Result<Bytes, u64>> {
        let mut inline = Vec::new();
        for entry in record.entries.iter().filter(|entry| entry.is_put()) {
            let keep = (entry.kind == ValueKind::Put).then_some(&mut inline);
            if !self.check_value(record, entry, keep)? {
                return Ok(Err(record.value_offset(entry)));
            }
        }
        Ok(Ok(Bytes::from(inline)))
    }

    /// Reads one value of a group and compares its checksum; `None` when it is wrong.
    pub fn value(&mut self, record: &Record, entry: &RecordEntry) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::with_capacity(entry.value_bytes as usize);
        let is_sound = self.check_value(record, entry, Some(&mut value))?;
        Ok(is_sound.then_some(value))
    }

    /// Compares the checksum of one value of a group.
    pub fn is_value_sound(&mut self, record: &Record, entry: &RecordEntry) -> Result<bool> {
        self.check_value(record, entry, None)
    }

    /// Compares a value's checksum, looking twice, and appends the value to `keep`.
    fn check_value(
        &mut self,
        record: &Record,
        entry: &RecordEntry,
        mut keep: Option<&mut Vec<u8>>,
    ) -> Result<bool> {
        let kept = keep.as_deref().map_or(0, Vec::len);
        for _ in 0..2 {
            if self.value_crc(record, entry, keep.as_deref_mut())? == entry.checksum {
                return Ok(true);
            }
            self.window.forget();
            if let Some(keep) = keep.as_deref_mut() {
                keep.truncate(kept);
            }
        }
        Ok(false)
    }

    fn value_crc(
        &mut self,
        record: &Record,
        entry: &RecordEntry,
        mut keep: Option<&mut Vec<u8>>,
    ) -> Result<u32> {
        let mut crc = 0;
        let mut at = record.value_offset(entry);
        let end = at + u64::from(entry.value_bytes);
        while at < end {
            let piece = self.window.some(at, end - at)?;
            crc = checksum::crc32c_append(crc, piece);
            at += piece.len() as u64;
            if let Some(kept) = keep.as_deref_mut() {
                kept.extend_from_slice(piece);
            }
        }
        Ok(crc)
    }

    /// Looks for valid record headers at every place in `[from, limit)` and tells of each.
    pub(super) fn scan_headers(
        &mut self,
        from: u64,
        mut found: impl FnMut(u64, &RecordHeader),
    ) -> Result<()> {
        self.find_header(from, |offset, header| {
            found(offset, header);
            false
        })?;
        Ok(())
    }

    /// Offset of the first valid record header at or after `from`.
    pub fn next_header(&mut self, from: u64) -> Result<Option<u64>> {
        self.find_header(from, |_, _| true)
    }

    /// The same, of what is in memory.
    pub(super) fn next_header_in_memory(&self, from: u64) -> Option<u64> {
        let Window { at, bytes, .. } = &self.window;
        let from = from.max(*at).next_multiple_of(RECORD_ALIGNMENT);
        let mut places = (from..at + bytes.len() as u64).step_by(RECORD_ALIGNMENT as usize);
        places.find(|place| {
            RecordHeader::decode(&bytes[(place - at) as usize..], self.salt, *place).is_some()
        })
    }

    /// Offset of the first valid record header at or after `from` that is the one.
    fn find_header(
        &mut self,
        from: u64,
        mut is_it: impl FnMut(u64, &RecordHeader) -> bool,
    ) -> Result<Option<u64>> {
        let mut offset = from.next_multiple_of(RECORD_ALIGNMENT);
        while offset + RECORD_HEADER_BYTES <= self.window.limit() {
            self.window.exactly(offset, RECORD_HEADER_BYTES)?;
            let bytes = self.window.some(offset, u64::MAX)?;
            let mut at = 0;
            while at + RECORD_HEADER_BYTES as usize <= bytes.len() {
                let header = &bytes[at..at + RECORD_HEADER_BYTES as usize];
                let place = offset + at as u64;
                if let Some(header) = RecordHeader::decode(header, self.salt, place)
                    && is_it(place, &header)
                {
                    return Ok(Some(place));
                }
                at += RECORD_ALIGNMENT as usize;
            }
            offset += at as u64;
        }
        Ok(None)
    }

    /// Offset behind the last byte in `[from, limit)` that is not zero; `from` when all are.
    pub(super) fn last_nonzero(&mut self, from: u64) -> Result<u64> {
        let (mut at, mut last) = (from, from);
        while at < self.window.limit() {
            let piece = self.window.some(at, u64::MAX)?;
            if let Some(place) = piece.iter().rposition(|&byte| byte != 0) {
                last = at + place as u64 + 1;
            }
            at += piece.len() as u64;
        }
        Ok(last)
    }

    /// Whether the log was ended on purpose at `offset`: nothing follows, or 8 zeros do.
    pub(super) fn is_terminated(&mut self, offset: u64) -> Result<bool> {
        let left = self.window.limit().saturating_sub(offset).min(RECORD_ALIGNMENT);
        let bytes = self.window.exactly(offset, left)?;
        Ok(bytes.is_none_or(|bytes| bytes.iter().all(|&byte| byte == 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fs::TestFs;
    use crate::vfs::FileSystem;

    /// Whoever came nearer read 256 KiB ahead each time, in vain: a disk may take seconds for each try.
    #[test]
    fn a_window_reads_ahead_once_to_what_can_not_be_read() {
        let (fs, path) = (TestFs::new(), Path::new("segment"));
        let file = fs.create(path).unwrap();
        let bytes: Vec<u8> = (0..1_000_000u32).map(|at| at as u8).collect();
        fs.set_contents(path, &bytes);
        fs.fail_reads_of(path, 700_000);
        let window = || Window::new(file.clone(), path, bytes.len() as u64);
        // Exact parts, and a long value piece by piece.
        let mut exact = window();
        for at in (0..700_000).step_by(100) {
            let part = exact.exactly(at, 100).unwrap().unwrap();
            assert_eq!(part, &bytes[at as usize..at as usize + 100]);
        }
        assert_eq!(fs.failed_reads(path), 1);
        let (mut pieces, mut at) = (window(), 0);
        while at < 700_000 {
            let piece = pieces.some(at, 700_000 - at).unwrap();
            assert_eq!(piece, &bytes[at as usize..at as usize + piece.len()]);
            at += piece.len() as u64;
        }
        assert_eq!(fs.failed_reads(path), 2);
        assert!(pieces.some(at, 1).is_err() && exact.exactly(at - 50, 100).is_err());
        assert_eq!(fs.failed_reads(path), 4);
        // Behind what it tried to read, it reads ahead again.
        exact.exactly(990_000, 100).unwrap();
        assert_eq!(exact.bytes.len(), 10_000);
    }
}
