//! Collected segments: live values of mostly dead segments, with an index of where they came from.
//!
//! Old pointers keep working: what names the old place is looked up in the index. A collected segment
//! is written once under a temporary name, and gets its own name when all of it is durable.

use std::path::PathBuf;
use std::sync::Arc;

use super::collected_index::ValuePlace;
use super::group_meta::{PutHead, encode_put};
use super::record::{RECORD_ALIGNMENT, RecordHeader, RecordType, Salt};
use super::segment::{JournalFiles, Segment};
use super::segment_header::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentType};
use crate::coding::put_varint;
use crate::error::{Error, Result};
use crate::file_name;
use crate::head::Entry;
use crate::key::ValueKind;
use crate::vfs::{File, PIECE_BYTES};

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// A collected segment that was written.
#[derive(Debug)]
pub struct Collected {
    /// The segment, ready to be read.
    pub segment: Arc<Segment>,
    /// Values copied.
    pub values: u64,
    /// Old places the index answers for.
    pub places: u64,
}

/// Writes a collected segment. One that is dropped unfinished leaves nothing behind.
#[derive(Debug)]
pub struct CollectedWriter {
    files: Arc<JournalFiles>,
    header: SegmentHeader,
    temporary: PathBuf,
    file: Arc<dyn File>,
    /// Gathered records; the first byte belongs at `buffer_at`.
    buffer: Vec<u8>,
    buffer_at: u64,
    meta: Vec<u8>,
    index: Vec<(ValuePlace, u64)>,
    values: u64,
    is_finished: bool,
}

impl CollectedWriter {
    /// A writer of the segment `number`, whose checksums are seeded with `salt`.
    pub fn new(files: Arc<JournalFiles>, number: u64, salt: u64) -> Result<CollectedWriter> {
        let temporary = file_name::temporary(&files.dir, &format!("{number:06}.journal"));
        let file = files.fs.create(&temporary);
        let file = file.map_err(|source| Error::io("create", &temporary, source))?;
        let header = SegmentHeader {
            segment_type: SegmentType::Collected,
            number,
            salt: Salt::new(salt),
            is_recycled: false,
            index_offset: 0,
            file_bytes: 0,
        };
        Ok(CollectedWriter {
            files,
            header,
            temporary,
            file,
            buffer: header.encode().to_vec(),
            buffer_at: 0,
            meta: Vec::new(),
            index: Vec::new(),
            values: 0,
            is_finished: false,
        })
    }

    /// Bytes of records written so far.
    pub fn bytes(&self) -> u64 {
        self.offset() - SEGMENT_HEADER_BYTES
    }

    /// Copies one value, and answers its offset here. `places` are where pointers name it: where it
    /// stands, and where it stood before if that is a collected segment itself. Of `entry`, all but
    /// the body counts. Requires: `checksum` is that of `value`.
    pub fn copy(
        &mut self,
        places: &[ValuePlace],
        key: &[u8],
        entry: &Entry,
        value: &[u8],
        checksum: u32,
    ) -> Result<u64> {
        self.meta.clear();
        let head = PutHead { expires_at_ms: entry.expires_at_ms, attributes: &entry.attributes };
        let value_bytes = value.len() as u64;
        encode_put(&mut self.meta, ValueKind::PutRef, key, value_bytes, checksum, head);
        let header = RecordHeader {
            record_type: RecordType::Group,
            first_seqno: entry.seqno,
            synced_upto: 0,
            written_at_ms: entry.written_at_ms,
            meta_bytes: self.meta.len() as u32,
            value_bytes: value.len() as u32,
            count: 1,
            meta_crc: 0,
        };
        let offset = self.offset();
        self.push_record(header, value)?;
        let new_offset = header.values_offset(offset);
        self.index.extend(places.iter().map(|&place| (place, new_offset)));
        self.values += 1;
        Ok(new_offset)
    }

    /// Writes the index, makes all of it durable and gives the file its name.
    pub fn finish(mut self) -> Result<Collected> {
        self.index.sort_unstable();
        self.index.dedup_by_key(|(place, _)| *place);
        self.meta.clear();
        for ((segment, offset), new_offset) in &self.index {
            put_varint(&mut self.meta, *segment);
            put_varint(&mut self.meta, *offset);
            put_varint(&mut self.meta, *new_offset);
        }
        let (Ok(meta_bytes), Ok(count)) =
            (u32::try_from(self.meta.len()), u32::try_from(self.index.len()))
        else {
            return Err(Error::InvalidArgument("too many values for one segment".into()));
        };
        self.header.index_offset = self.offset();
        let header = RecordHeader {
            record_type: RecordType::Index,
            first_seqno: 0,
            synced_upto: 0,
            written_at_ms: 0,
            meta_bytes,
            value_bytes: 0,
            count,
            meta_crc: 0,
        };
        self.push_record(header, &[])?;
        let end = self.offset();
        self.write_upto(end)?;
        let temporary = &self.temporary;
        let path = file_name::segment(&self.files.dir, self.header.number);
        self.file
            .write_all_at(&self.header.encode(), 0)
            .map_err(|source| Error::io("write", temporary, source))?;
        self.file.sync_data().map_err(|source| Error::io("sync", temporary, source))?;
        let fs = &self.files.fs;
        fs.rename(temporary, &path).map_err(|source| Error::io("rename", temporary, source))?;
        self.is_finished = true;
        let dir = &self.files.dir;
        fs.sync_dir(dir).map_err(|source| Error::io("sync", dir, source))?;
        Ok(Collected {
            segment: Arc::new(Segment::sealed(self.files.clone(), self.header, end, end)),
            values: self.values,
            places: self.index.len() as u64,
        })
    }

    fn offset(&self) -> u64 {
        self.buffer_at + self.buffer.len() as u64
    }

    fn push_record(&mut self, mut header: RecordHeader, value: &[u8]) -> Result<()> {
        let offset = self.offset();
        let salt = self.header.salt;
        header.meta_crc = salt.crc(offset, &self.meta);
        self.buffer.extend_from_slice(&header.encode(salt, offset));
        self.buffer.extend_from_slice(&self.meta);
        self.buffer.extend_from_slice(value);
        let padded = self.buffer.len().next_multiple_of(RECORD_ALIGNMENT as usize);
        self.buffer.resize(padded, 0);
        if self.buffer.len() < BUFFER_BYTES {
            return Ok(());
        }
        self.write_upto(self.offset() / PIECE_BYTES * PIECE_BYTES)
    }

    fn write_upto(&mut self, end: u64) -> Result<()> {
        let (at, bytes) = (self.buffer_at, (end - self.buffer_at) as usize);
        let written = self.file.write_all_at(&self.buffer[..bytes], at);
        written.map_err(|source| Error::io("write", &self.temporary, source))?;
        self.file.start_writeback(at, bytes as u64);
        self.buffer_at = end;
        self.buffer.drain(..bytes);
        self.buffer.shrink_to(2 * BUFFER_BYTES);
        Ok(())
    }
}

impl Drop for CollectedWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            // One that can't be removed is found by the next open.
            let _ = self.files.fs.remove(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::collected_index::CollectedIndex;
    use super::super::reader::{SegmentReader, Step};
    use super::super::testing::Bench;
    use super::*;
    use crate::checksum;
    use crate::head::Body;
    use bytes::Bytes;

    fn entry(seqno: u64) -> Entry {
        Entry {
            seqno,
            written_at_ms: 1_000 + seqno,
            expires_at_ms: 0,
            attributes: Bytes::from("attributes"),
            body: Body::Delete,
        }
    }

    fn value(n: u64) -> Vec<u8> {
        vec![n as u8; 1_000 + n as usize]
    }

    fn collect(bench: &Bench) -> Collected {
        let mut writer = CollectedWriter::new(bench.files.clone(), 9, 77).unwrap();
        for n in (0..50u64).rev() {
            let checksum = checksum::crc32c(&value(n));
            writer
                .copy(&[(3, 64 + n), (2, 500 - n)], b"key", &entry(n), &value(n), checksum)
                .unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn values_are_found_by_every_old_place() {
        for bench in [Bench::pread(), Bench::mapped()] {
            let collected = collect(&bench);
            assert_eq!((collected.values, collected.places), (50, 100));
            let end = collected.segment.end();
            let segment = Segment::open(bench.files.clone(), 9, end).unwrap();
            let index = CollectedIndex::read(&segment).unwrap();
            let lookup = |number, offset| index.of(number).and_then(|moved| moved.lookup(offset));
            for n in 0..50u64 {
                let new = lookup(3, 64 + n).unwrap();
                assert_eq!(lookup(2, 500 - n), Some(new));
                let crc = checksum::crc32c(&value(n));
                let len = value(n).len() as u32;
                assert_eq!(segment.read_value(new, len, crc, true).unwrap(), value(n));
            }
            assert_eq!(lookup(3, 63), None);
            assert_eq!(lookup(4, 64), None);
        }
    }

    #[test]
    fn records_keep_their_seqno_and_head() {
        let bench = Bench::pread();
        let segment = collect(&bench).segment;
        let mut reader = SegmentReader::new(&segment, SEGMENT_HEADER_BYTES).unwrap();
        let Step::Record(record) = reader.step().unwrap() else { panic!("no record") };
        assert_eq!((record.header.first_seqno, record.header.written_at_ms), (49, 1_049));
        assert_eq!(&record.meta[record.entries[0].attributes.clone()], b"attributes");
    }

    #[test]
    fn who_skips_values_finds_the_same_records_and_reads_few_bytes() {
        let bench = Bench::pread();
        let mut writer = CollectedWriter::new(bench.files.clone(), 9, 77).unwrap();
        for number in 0..240_u64 {
            let is_large = (20..220).contains(&number);
            let value = vec![number as u8; if is_large { 40_000 } else { 100 }];
            let place = (3, 64 * (number + 1));
            writer
                .copy(&[place], b"key", &entry(number), &value, checksum::crc32c(&value))
                .unwrap();
        }
        let segment = writer.finish().unwrap().segment;
        let bytes_read = || bench.fs.faults.bytes_read.swap(0, Ordering::SeqCst);
        let read = |skips_values: bool| {
            bytes_read();
            let mut reader = SegmentReader::new(&segment, 0).unwrap();
            if skips_values {
                reader.skip_values();
            }
            let mut records = Vec::new();
            while let Step::Record(record) = reader.step().unwrap() {
                records.push((record.offset, record.header, record.meta));
            }
            assert_eq!(records.len(), 241, "the index is one too");
            (records, bytes_read())
        };
        let (all, all_bytes) = read(false);
        let (skipped, skipped_bytes) = read(true);
        assert!(skipped == all);
        assert!(all_bytes > 200 * 40_000 / 4 * 3, "{all_bytes}");
        assert!(skipped_bytes < all_bytes / 4, "{skipped_bytes}");
    }

    #[test]
    fn an_unfinished_segment_has_no_segment_name() {
        let bench = Bench::pread();
        let mut writer = CollectedWriter::new(bench.files.clone(), 9, 77).unwrap();
        writer.copy(&[(3, 64)], b"key", &entry(1), b"value", checksum::crc32c(b"value")).unwrap();
        assert_eq!(bench.fs.names(), ["000009.journal.tmp"]);
        drop(writer);
        assert!(bench.fs.names().is_empty());
    }

    #[test]
    fn a_damaged_index_is_corruption() {
        let bench = Bench::pread();
        let segment = collect(&bench).segment;
        bench.fs.flip(segment.path(), segment.header().index_offset + 60);
        let error = CollectedIndex::read(&segment).unwrap_err();
        assert!(matches!(error, Error::Corruption { .. }), "{error}");
    }
}
