//! Writes a table, once, from front to back.
//!
//! 1. Entries come in internal order and fill data blocks; each new key's place is noted.
//! 2. A full block goes to the output buffer, its fence is noted.
//! 3. `finish` writes deleted ranges, fences, point index, properties and footer, then syncs.
//!
//! Until `finish` has returned, the file is not a table. Removing it after an error, and syncing its
//! directory after success, is left to the caller.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::head::EntryRef;
use crate::key::{self, SEQNO_MAX, SeqNo};
use crate::options::Compression;
use crate::range_tombstone::RangeTombstone;
use crate::sstable::block::{BLOCK_BYTES_MAX, check_lengths, check_order};
use crate::sstable::block_builder::BlockBuilder;
use crate::sstable::fences::{BLOCK_ALIGNMENT, FencesBuilder};
use crate::sstable::footer::{FOOTER_BYTES, Footer, Section};
use crate::sstable::frame::{FrameEncoder, TRAILER_BYTES, encode_plain};
use crate::sstable::point_index::{BLOCKS_MAX, BUCKET_BYTES, Place, PointIndexBuilder};
use crate::sstable::properties::{Properties, PropertiesBuilder};
use crate::sstable::range_deletions;
use crate::stages::Stopwatch;
use crate::vfs::{File, PIECE_BYTES};

/// Bytes written before the system is asked to start writing them back, so that the sync at the end
/// finds little left to do.
const WRITEBACK_BYTES: u64 = 1 << 20;

/// How a table is built.
#[derive(Debug, Clone, Copy)]
pub struct TableBuilderOptions {
    /// A data block is closed at this size before compression; 256 bytes to 32 KiB.
    pub block_bytes: usize,
    /// Compression of data blocks that it makes smaller by an eighth.
    pub compression: Compression,
    /// Seeds every checksum in the table; another number for each.
    pub salt: u64,
}

/// Where the time of building tables goes. Adding an entry to an open block is not in it.
#[derive(Debug, Default)]
pub struct BuildTimes {
    /// Finishing blocks and tables, with the writing and syncing of contents.
    finishing: Stopwatch,
    /// Writing and syncing contents.
    contents: Stopwatch,
    /// Making files and syncing their names, which is for who owns the builder to count.
    pub names: Stopwatch,
}

impl BuildTimes {
    /// Nanoseconds of building blocks and indexes.
    pub fn build_ns(&self) -> u64 {
        self.finishing.ns().saturating_sub(self.contents.ns())
    }

    /// Nanoseconds of making, writing and syncing files.
    pub fn write_ns(&self) -> u64 {
        self.contents.ns() + self.names.ns()
    }
}

/// A table that was written and synced.
#[derive(Debug, Clone)]
pub struct BuiltTable {
    /// What it holds.
    pub properties: Properties,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// Writes one table.
pub struct TableBuilder {
    number: u64,
    output: Output,
    times: Arc<BuildTimes>,
    block_bytes: usize,
    block: BlockBuilder,
    frames: FrameEncoder,
    fences: FencesBuilder,
    index: PointIndexBuilder,
    properties: PropertiesBuilder,
    range_tombstones: Vec<RangeTombstone>,
    range_tombstone_bytes: usize,
    /// `estimated_bytes` when the last block was finished.
    bytes_in_blocks: u64,
    /// The last key of the last block that was finished.
    key_of_blocks: Vec<u8>,
    last_seqno: SeqNo,
}

impl TableBuilder {
    /// A builder that writes table `number` to the empty `file`, whose path is for error messages.
    /// What it takes is added to `times`.
    pub fn new(
        file: Arc<dyn File>,
        path: PathBuf,
        number: u64,
        options: TableBuilderOptions,
        times: Arc<BuildTimes>,
    ) -> Self {
        assert!(
            (256..=BLOCK_BYTES_MAX).contains(&options.block_bytes),
            "block_bytes is 256 to {BLOCK_BYTES_MAX}"
        );
        TableBuilder {
            number,
            output: Output::new(file, path, options.salt, times.clone()),
            times,
            block_bytes: options.block_bytes,
            block: BlockBuilder::default(),
            frames: FrameEncoder::new(options.compression),
            fences: FencesBuilder::default(),
            index: PointIndexBuilder::default(),
            properties: PropertiesBuilder::default(),
            range_tombstones: Vec::new(),
            range_tombstone_bytes: 0,
            bytes_in_blocks: 0,
            key_of_blocks: Vec::new(),
            last_seqno: 0,
        }
    }

    /// Adds the next entry. Requires: a new key is not added once the table `is_full` (further versions
    /// of the last key are).
    ///
    /// `Corruption` unless it follows the one before in internal order, and is as long as may be, as what sound
    /// tables hold does and is.
    pub fn add(&mut self, user_key: &[u8], entry: &EntryRef<'_>) -> Result<()> {
        let new_key = check_lengths(user_key, &entry.body)
            .and_then(|()| check_order(self.last_key(), self.last_seqno, user_key, entry.seqno))
            .map_err(|what| self.refused(what))?;
        assert!(entry.seqno <= SEQNO_MAX, "a SeqNo has 56 bits");
        if !self.block.add(user_key, entry, self.block_bytes) {
            let times = self.times.clone();
            times.finishing.time(|| self.finish_block())?;
            assert!(self.block.add(user_key, entry, self.block_bytes), "an empty block takes any");
        }
        if new_key {
            let place = Place { block: self.fences.len(), slot: self.block.len() - 1 };
            self.index.add(key::hash(user_key), place);
        }
        self.properties.add(user_key, entry, new_key);
        self.last_seqno = entry.seqno;
        Ok(())
    }

    /// The key of the entry added last; empty before the first.
    #[inline]
    pub fn last_key(&self) -> &[u8] {
        self.block.last_key().unwrap_or(&self.key_of_blocks)
    }

    /// Adds a deleted range; in any order, at any time.
    pub fn add_range_tombstone(&mut self, tombstone: RangeTombstone) {
        assert!(tombstone.start < tombstone.end, "a deleted range starts below its end");
        self.properties.add_range_tombstone(&tombstone);
        self.range_tombstone_bytes += tombstone.start.len() + tombstone.end.len() + 12;
        self.range_tombstones.push(tombstone);
    }

    /// Bytes of the file if it were finished now, about.
    pub fn estimated_bytes(&self) -> u64 {
        let pending = if self.block.is_empty() { 0 } else { self.block.bytes() };
        let rest = pending + self.fences.bytes() + self.index.bytes() + self.range_tombstone_bytes;
        self.output.offset + (rest + FOOTER_BYTES) as u64
    }

    /// Entries added, range deletions not included.
    pub fn entries(&self) -> u64 {
        self.properties.so_far().entries
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0 && self.range_tombstones.is_empty()
    }

    /// Whether the table should end before the next new key: its finished blocks make it about
    /// `table_bytes`, or the point index can't name more blocks.
    #[inline]
    pub fn is_full(&self, table_bytes: u64) -> bool {
        // The next key may close the block at hand and start one more.
        self.fences.len() + 1 >= BLOCKS_MAX || self.bytes_in_blocks >= table_bytes
    }

    /// Writes what is left, and syncs the file. Requires: something was added.
    pub fn finish(self) -> Result<BuiltTable> {
        assert!(!self.is_empty(), "a table holds at least one entry or deleted range");
        let times = self.times.clone();
        times.finishing.time(|| self.finish_file())
    }

    fn finish_file(mut self) -> Result<BuiltTable> {
        self.finish_block()?;
        self.range_tombstones.sort();
        let output = &mut self.output;
        let range_tombstones = output.section(&range_deletions::encode(&self.range_tombstones))?;
        let fences = output.section(&self.fences.finish())?;
        // A bucket is one cache line when the file is mapped.
        output.pad(BUCKET_BYTES as u64);
        let point_index = output.section(&self.index.finish(self.fences.len()))?;

        let mut properties = self.properties.finish(&self.key_of_blocks);
        let mut encoded = Vec::new();
        properties.encode(&mut encoded);
        let rest_bytes = encoded.len() + TRAILER_BYTES + FOOTER_BYTES;
        properties.file_bytes = output.offset + rest_bytes as u64;
        encoded.clear();
        properties.encode(&mut encoded);
        let footer = Footer {
            range_tombstones,
            fences,
            point_index,
            properties: output.section(&encoded)?,
            number: self.number,
            salt: output.salt,
        };
        output.append(&footer.encode())?;
        let file_bytes = output.finish()?;
        assert_eq!(file_bytes, properties.file_bytes, "a table's size is known before its end");
        Ok(BuiltTable { properties, file_bytes })
    }

    #[cold]
    fn refused(&self, what: &str) -> Error {
        Error::corruption(&self.output.path, 0, what)
    }

    fn finish_block(&mut self) -> Result<()> {
        let Some(last_key) = self.block.last_key() else { return Ok(()) };
        self.key_of_blocks.clear();
        self.key_of_blocks.extend_from_slice(last_key);
        let output = &mut self.output;
        output.pad(BLOCK_ALIGNMENT);
        let first_key = self.block.first_key().to_vec();
        let start = output.buffer.len();
        self.block.finish(&mut output.buffer);
        let (salt, offset) = (output.salt, output.offset);
        let stored = self.frames.enclose(start, salt, offset, &mut output.buffer);
        self.fences.add(stored, &first_key);
        output.appended(stored + TRAILER_BYTES)?;
        self.bytes_in_blocks = self.estimated_bytes();
        Ok(())
    }
}

/// The file, written in whole pieces of the page cache.
struct Output {
    file: Arc<dyn File>,
    path: PathBuf,
    salt: u64,
    /// Bytes not yet written.
    buffer: Vec<u8>,
    /// Bytes in all, those in the buffer included.
    offset: u64,
    /// Bytes whose writing back was started.
    started: u64,
    times: Arc<BuildTimes>,
}

impl Output {
    fn new(file: Arc<dyn File>, path: PathBuf, salt: u64, times: Arc<BuildTimes>) -> Self {
        let buffer = Vec::with_capacity(PIECE_BYTES as usize + BLOCK_BYTES_MAX);
        Output { file, path, salt, buffer, offset: 0, started: 0, times }
    }

    /// Zeros up to a multiple of `alignment`.
    fn pad(&mut self, alignment: u64) {
        let padding = self.offset.next_multiple_of(alignment) - self.offset;
        self.buffer.resize(self.buffer.len() + padding as usize, 0);
        self.offset += padding;
    }

    /// A framed part that is not compressed.
    fn section(&mut self, raw: &[u8]) -> Result<Section> {
        let bytes = u32::try_from(raw.len()).expect("a section is below 4 GiB");
        let section = Section { offset: self.offset, bytes };
        encode_plain(raw, self.salt, self.offset, &mut self.buffer);
        self.appended(raw.len() + TRAILER_BYTES)?;
        Ok(section)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.appended(bytes.len())
    }

    /// Counts bytes that were put into the buffer, and writes out the pieces that are whole.
    fn appended(&mut self, bytes: usize) -> Result<()> {
        self.offset += bytes as u64;
        let end = self.offset / PIECE_BYTES * PIECE_BYTES;
        if end <= self.written() {
            return Ok(());
        }
        self.write_upto(end)?;
        if end - self.started >= WRITEBACK_BYTES {
            let (from, bytes) = (self.started, end - self.started);
            self.times.contents.time(|| self.file.start_writeback(from, bytes));
            self.started = end;
        }
        Ok(())
    }

    /// Bytes written.
    fn written(&self) -> u64 {
        self.offset - self.buffer.len() as u64
    }

    fn write_upto(&mut self, end: u64) -> Result<()> {
        let written = self.written();
        let bytes = (end - written) as usize;
        self.times
            .contents
            .time(|| self.file.write_all_at(&self.buffer[..bytes], written))
            .map_err(|source| Error::io("write", &self.path, source))?;
        self.buffer.drain(..bytes);
        Ok(())
    }

    fn finish(&mut self) -> Result<u64> {
        self.write_upto(self.offset)?;
        self.times
            .contents
            .time(|| self.file.sync_data())
            .map_err(|source| Error::io("sync", &self.path, source))?;
        Ok(self.offset)
    }
}
