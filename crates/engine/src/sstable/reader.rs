//! A table that is open for reading.
//!
//! Footer, properties, fences, point index and deleted ranges are verified and resident once it is
//! open. A look-up is then: one bucket of the point index, one block, one entry of it.
//!
//! Invariant: damage is an error, never an absent key.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::block_cache::BlockCache;
use crate::coding::Decoder;
use crate::error::{Error, Result};
use crate::fault_points::{Bug, is_planted};
use crate::file_cache::FileCache;
use crate::head::Entry;
use crate::key::SeqNo;
use crate::options::Reading;
use crate::range_tombstone::RangeTombstones;
use crate::sstable::block::{Block, Spacing};
use crate::sstable::fences::{BlockHandle, Fences};
use crate::sstable::footer::{FOOTER_BYTES, Footer, FooterError};
use crate::sstable::point_index::{Candidates, Place, PointIndex};
use crate::sstable::properties::Properties;
use crate::sstable::range_deletions;
use crate::sstable::source::{BlockBytes, Purpose, TableSource};
use crate::stages::{Exit, Stage, Trace};
use crate::vfs::{Advice, File};

/// A table that is open for reading.
#[derive(Debug)]
pub struct Table {
    pub(super) source: TableSource,
    pub(super) footer: Footer,
    pub(super) fences: Fences,
    pub(super) index: PointIndex,
    spacing: Spacing,
    properties: Properties,
    range_tombstones: RangeTombstones,
    file_bytes: u64,
    /// See `largely_expired_at_ms`.
    pub(super) largely_expired: OnceLock<u64>,
}

impl Table {
    /// Opens table `number`, which must have `file_bytes`. `cache` serves blocks that are not read in
    /// place. Fails with `Corruption` when the file is missing, or anything but a data block is not what
    /// was written; data blocks are verified when they are used.
    pub fn open(
        files: &Arc<FileCache>,
        path: PathBuf,
        number: u64,
        file_bytes: u64,
        reading: Reading,
        cache: Arc<BlockCache>,
    ) -> Result<Table> {
        let (mut source, file) = open_source(files, path, file_bytes, reading, cache)?;
        let footer = read_footer(&source, number, file_bytes)?;
        source.set_salt(footer.salt);
        let data_bytes = footer.range_tombstones.offset;
        file.advise(Advice::WillNeed, data_bytes, file_bytes - data_bytes);
        let properties = read_properties(&source, &footer, file_bytes)?;
        let tombstones = source.section(footer.range_tombstones)?;
        let range_tombstones = range_deletions::decode(&tombstones)
            .filter(|ranges| ranges.len() as u64 == properties.range_tombstones)
            .ok_or_else(|| {
                source.corruption(footer.range_tombstones.offset, "malformed range deletions")
            })?;
        let fences = Fences::decode(source.section(footer.fences)?, footer.range_tombstones.offset)
            .filter(|fences| fences.is_empty() == (properties.entries == 0))
            .ok_or_else(|| source.corruption(footer.fences.offset, "malformed fences"))?;
        let index = source.section(footer.point_index)?;
        let mut index = PointIndex::new(index, properties.keys, fences.len())
            .ok_or_else(|| source.corruption(footer.point_index.offset, "malformed point index"))?;
        if !source.is_mapped() {
            index = index.copied_to(source.memory());
        }
        source.set_block_count(fences.len());
        Ok(Table {
            source,
            footer,
            spacing: Spacing::new(data_bytes, properties.entries, fences.common_bytes()),
            fences,
            index,
            properties,
            range_tombstones: RangeTombstones::new(range_tombstones),
            file_bytes,
            largely_expired: OnceLock::new(),
        })
    }

    /// The newest version of a key that a read at `max_seqno` sees. Deleted ranges are not looked at.
    ///
    /// `hash` is `key::hash` of the key. Without `wait`, `Error::WouldWait` when the answer would wait
    /// for the disk (a mapped table can't tell, and waits).
    #[inline]
    pub fn get(
        &self,
        user_key: &[u8],
        hash: u64,
        max_seqno: SeqNo,
        wait: bool,
        trace: &mut Trace<'_>,
    ) -> Result<Option<Entry>> {
        self.get_among(&mut self.index.candidates(hash), user_key, hash, max_seqno, wait, trace)
    }

    /// As `get`, with what the point index says of the key.
    #[inline]
    pub(crate) fn get_among(
        &self,
        candidates: &mut Candidates<'_>,
        user_key: &[u8],
        hash: u64,
        max_seqno: SeqNo,
        wait: bool,
        trace: &mut Trace<'_>,
    ) -> Result<Option<Entry>> {
        let purpose = Purpose::Lookup { wait };
        let mut excluded = Exit::FileFilter;
        for place in candidates {
            trace.lap(Stage::TableFilter);
            self.prefetch_cached(place);
            if let Some(entry) = self.source.recent_entry(place, hash, user_key)
                && entry.seqno <= max_seqno
            {
                trace.lap(Stage::TableRecent);
                trace.count(Exit::FileRecent);
                return Ok(Some(entry));
            }
            excluded = Exit::FileInVain;
            let bytes = match self.lookup_block(place.block, purpose, trace) {
                Err(Error::Corruption { .. }) if is_planted(Bug::FallThroughOnCorruptBlock) => {
                    continue;
                }
                found => found?,
            };
            if !bytes.is_cached() {
                self.spacing.prefetch(bytes.bytes().as_ptr(), bytes.bytes().len(), place.slot);
            }
            let block = self.parse(place.block, bytes.bytes())?;
            let entry = block.entry(place.slot).ok_or_else(|| self.malformed(place.block))?;
            if !block.key_is(&entry, user_key) {
                trace.lap(Stage::TableSearch);
                continue;
            }
            let exit = if bytes.is_cached() { Exit::FileCache } else { Exit::FileBlock };
            let entry = if entry.seqno <= max_seqno {
                let entry = block.whole(entry.seqno, entry.tail);
                let entry = entry.ok_or_else(|| self.malformed(place.block))?;
                let entry = bytes.keep(&entry);
                self.source.note_entry(place, hash, user_key, &entry);
                Some(entry)
            } else {
                self.older_version(user_key, place, max_seqno, bytes, purpose, trace)?
            };
            trace.lap(Stage::TableSearch);
            trace.count(if entry.is_some() { exit } else { Exit::FileInVain });
            // The index names each key once, so no other candidate can be it.
            return Ok(entry);
        }
        if excluded == Exit::FileFilter {
            trace.lap(Stage::TableFilter);
        }
        trace.count(excluded);
        Ok(None)
    }

    /// Tells the system which parts of a mapped file a look-up used: a hint, for as long as the disk is waited
    /// for. Answers whether the index named a place of the key.
    pub(crate) fn note_used(&self, hash: u64) -> bool {
        if !self.source.is_mapped() {
            return true;
        }
        let mut candidates = self.index.candidates(hash);
        let bucket = candidates.home_offset();
        self.source.note_used(self.footer.point_index.offset + bucket, 1);
        let place = candidates.next();
        if let Some(handle) = place.and_then(|place| self.fences.handle(place.block)) {
            // Of a block's other page nothing may have been looked at. It is the front of the next.
            self.source.note_used(handle.offset, 1);
        }
        place.is_some()
    }

    /// Walks on from the newest version, at `place` in `bytes`, to the first at or below `max_seqno`.
    #[cold]
    fn older_version<'a>(
        &'a self,
        user_key: &[u8],
        place: Place,
        max_seqno: SeqNo,
        mut bytes: BlockBytes<'a>,
        purpose: Purpose,
        trace: &mut Trace<'_>,
    ) -> Result<Option<Entry>> {
        let mut number = place.block;
        loop {
            let block = self.parse(number, bytes.bytes())?;
            let slot =
                block.lower_bound(user_key, max_seqno).ok_or_else(|| self.malformed(number))?;
            if slot < block.len() {
                let entry = block.entry(slot).ok_or_else(|| self.malformed(number))?;
                if !block.key_is(&entry, user_key) {
                    return Ok(None);
                }
                let entry = block.whole(entry.seqno, entry.tail);
                let entry = entry.ok_or_else(|| self.malformed(number))?;
                return Ok(Some(bytes.keep(&entry)));
            }
            number += 1;
            if number == self.fences.len() || self.fences.first_key(number) != user_key {
                return Ok(None);
            }
            bytes = self.lookup_block(number, purpose, trace)?;
        }
    }

    /// Asks the processor for an entry in the block cache before anything that leads to it is waited for.
    #[inline]
    fn prefetch_cached(&self, place: Place) {
        if let Some((front, block_bytes)) = self.source.expect_cached(place.block) {
            self.spacing.prefetch(front, block_bytes, place.slot);
        }
    }

    #[inline]
    fn lookup_block(
        &self,
        block: usize,
        purpose: Purpose,
        trace: &mut Trace<'_>,
    ) -> Result<BlockBytes<'_>> {
        let bytes = self.block_bytes(block, purpose)?;
        let (stage, counted) = match bytes.is_cached() {
            true => (Stage::TableCache, Exit::BlockCached),
            false => (Stage::TableFetch, Exit::BlockFetched),
        };
        trace.lap(stage);
        trace.count(counted);
        Ok(bytes)
    }

    /// The raw bytes of a block.
    #[inline]
    pub(super) fn block_bytes(&self, block: usize, purpose: Purpose) -> Result<BlockBytes<'_>> {
        self.source.block(block, || self.fences.about(block), || self.handle(block), purpose)
    }

    #[inline]
    fn handle(&self, block: usize) -> Result<BlockHandle> {
        self.fences.handle(block).ok_or_else(|| {
            let offset = self.footer.point_index.offset;
            self.source.corruption(offset, "the point index names a block that does not exist")
        })
    }

    #[inline]
    pub(super) fn parse<'a>(&self, block: usize, bytes: &'a [u8]) -> Result<Block<'a>> {
        Block::parse(bytes).ok_or_else(|| self.malformed(block))
    }

    /// A block passed its checksum, but is not one.
    #[cold]
    pub(super) fn malformed(&self, block: usize) -> Error {
        self.corrupt_block(block, "malformed block")
    }

    /// What a block holds can't be what was written.
    #[cold]
    pub(super) fn corrupt_block(&self, block: usize, what: &str) -> Error {
        let offset = self.fences.handle(block).map_or(0, |handle| handle.offset);
        self.source.corruption(offset, what)
    }

    /// What the table holds, in numbers.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Where its keys are.
    pub(crate) fn point_index(&self) -> &PointIndex {
        &self.index
    }

    /// The deleted ranges.
    pub fn range_tombstones(&self) -> &RangeTombstones {
        &self.range_tombstones
    }

    /// Number of the file.
    pub fn number(&self) -> u64 {
        self.footer.number
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Number of data blocks.
    pub fn block_count(&self) -> usize {
        self.fences.len()
    }

    /// Memory held while the table is open, about; of a mapped table without what is read in place.
    pub fn index_bytes(&self) -> usize {
        let refs = size_of_val(&*self.properties.segment_refs);
        let keys = self.properties.smallest.len() + self.properties.largest.len();
        let fences = self.fences.resident_bytes()
            - if self.source.is_mapped() { self.footer.fences.bytes as usize } else { 0 };
        let index = if self.source.is_mapped() { 0 } else { self.index.bytes() };
        let fixed = size_of::<Table>() + self.fences.len() / 8 + self.source.slot_bytes();
        fixed + refs + keys + fences + index + self.range_tombstones.bytes()
    }

    /// About how many bytes of the file hold keys below `user_key`.
    pub fn approximate_offset_of(&self, user_key: &[u8]) -> u64 {
        let below = self.fences.count_below(user_key);
        self.fences.handle(below).map_or(self.fences.data_end(), |handle| handle.offset)
    }

    /// Each block's first user key, ascending: about evenly spaced in bytes.
    pub fn boundary_keys(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        self.fences.first_keys()
    }
}

pub(super) fn open_source(
    files: &Arc<FileCache>,
    path: PathBuf,
    file_bytes: u64,
    reading: Reading,
    cache: Arc<BlockCache>,
) -> Result<(TableSource, Arc<dyn File>)> {
    let opened = match reading {
        Reading::Mapped => files.open_once(&path),
        Reading::Pread => files.open(&path),
    };
    let file = opened.map_err(|source| Error::of_opening(&path, source))?;
    let len = file.len().map_err(|source| Error::io("read", &path, source))?;
    if len != file_bytes {
        let what = format!("the file has {len} bytes, expected {file_bytes}");
        return Err(Error::corruption(&path, len.min(file_bytes), what));
    }
    if file_bytes < FOOTER_BYTES as u64 {
        return Err(Error::corruption(&path, 0, "too short for a table"));
    }
    let source = match reading {
        Reading::Mapped => {
            let map = file.map(file_bytes).map_err(|source| Error::io("map", &path, source))?;
            TableSource::mapped(map, files.clone(), path, cache)
        }
        Reading::Pread => TableSource::pread(files.clone(), path, cache),
    };
    Ok((source, file))
}

pub(super) fn read_footer(source: &TableSource, number: u64, file_bytes: u64) -> Result<Footer> {
    let offset = file_bytes - FOOTER_BYTES as u64;
    let bytes = source.bare(offset, FOOTER_BYTES)?;
    let bytes = bytes[..].try_into().expect("as many bytes as were asked for");
    let footer = Footer::decode(bytes, file_bytes).map_err(|error| match error {
        FooterError::Damaged(what) => source.corruption(offset, what),
        FooterError::Newer(version) => {
            Error::NewerFormat { file: source.path().to_owned(), version }
        }
    })?;
    if footer.number != number {
        let what = format!("this is table {}, expected {number}", footer.number);
        return Err(source.corruption(offset, what));
    }
    Ok(footer)
}

pub(super) fn read_properties(
    source: &TableSource,
    footer: &Footer,
    file_bytes: u64,
) -> Result<Properties> {
    let section = source.section(footer.properties)?;
    let mut decoder = Decoder::new(&section);
    Properties::decode(&mut decoder)
        .filter(|properties| properties.file_bytes == file_bytes && decoder.remaining() == 0)
        .ok_or_else(|| source.corruption(footer.properties.offset, "malformed properties"))
}
