//! A table as far as it can be read, for who saves what is whole of a damaged store.
//!
//! Blocks are found by the fences, so that a damaged point index costs nothing, and a damaged block its own
//! entries. Without footer or fences nothing is found. What leaves this module passed its checksum, and is in
//! internal order, also with what is in the next block, as far as that can be read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::block::Block;
use super::fences::Fences;
use super::footer::Footer;
use super::properties::Properties;
use super::range_deletions;
use super::reader::{open_source, read_footer, read_properties};
use super::source::{Purpose, TableSource};
use crate::block_cache::BlockCache;
use crate::error::{Error, Result};
use crate::file_cache::FileCache;
use crate::head::Entry;
use crate::key::{ATTRIBUTES_BYTES_MAX, check_key};
use crate::options::Reading;
use crate::range_tombstone::RangeTombstone;

const OUT_OF_ORDER: &str = "entries are out of order, or impossible";

/// A table as far as it can be read.
#[derive(Debug)]
pub struct SalvagedTable {
    source: TableSource,
    footer: Footer,
    fences: Fences,
    properties: Result<Properties>,
    range_tombstones: Result<Vec<RangeTombstone>>,
}

impl SalvagedTable {
    /// Opens table `number`, which must have `file_bytes`. An error: nothing of it can be read, as its footer or
    /// its fences can't.
    pub fn open(
        files: &Arc<FileCache>,
        path: PathBuf,
        number: u64,
        file_bytes: u64,
    ) -> Result<SalvagedTable> {
        let cache = Arc::new(BlockCache::new(0, 0));
        let (mut source, _) = open_source(files, path, file_bytes, Reading::Pread, cache)?;
        let footer = read_footer(&source, number, file_bytes)?;
        source.set_salt(footer.salt);
        let fences = Fences::decode(source.section(footer.fences)?, footer.range_tombstones.offset)
            .ok_or_else(|| source.corruption(footer.fences.offset, "malformed fences"))?;
        source.set_block_count(fences.len());
        let properties = read_properties(&source, &footer, file_bytes);
        let range_tombstones = source.section(footer.range_tombstones).and_then(|section| {
            range_deletions::decode(&section).ok_or_else(|| {
                source.corruption(footer.range_tombstones.offset, "malformed range deletions")
            })
        });
        Ok(SalvagedTable { source, footer, fences, properties, range_tombstones })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// What the table holds, in numbers.
    pub fn properties(&self) -> Result<&Properties, &Error> {
        self.properties.as_ref()
    }

    /// The deleted ranges.
    pub fn range_tombstones(&self) -> Result<&[RangeTombstone], &Error> {
        self.range_tombstones.as_deref()
    }

    /// What is wrong with the point index, which nothing here needs.
    pub fn check_index(&self) -> Result<()> {
        self.source.section(self.footer.point_index).map(drop)
    }

    /// Number of data blocks.
    pub fn block_count(&self) -> usize {
        self.fences.len()
    }

    /// The first key of a block. Requires: there is such a block.
    pub fn first_key(&self, block: usize) -> &[u8] {
        self.fences.first_key(block)
    }

    /// Bytes of a block in the file.
    pub fn block_bytes(&self, block: usize) -> u64 {
        self.fences.handle(block).map_or(0, |handle| handle.frame_bytes as u64)
    }

    /// That this is wrong with a block.
    pub fn damage(&self, block: usize, what: &'static str) -> Error {
        let offset = self.fences.handle(block).map_or(0, |handle| handle.offset);
        self.source.corruption(offset, what)
    }

    /// The keys and entries of a block. Requires: there is such a block.
    pub fn entries(&self, block: usize) -> Result<Vec<(Bytes, Entry)>> {
        let entries = self.entries_of_block(block)?;
        let Some((key, last)) = entries.last() else { return Ok(entries) };
        // What the fences don't tell is which of the writes to a key is in which block.
        let is_split = block + 1 < self.fences.len() && *key == self.fences.first_key(block + 1);
        let next = is_split.then(|| self.entries_of_block(block + 1).ok()).flatten();
        match next.as_ref().and_then(|next| next.first()) {
            Some((_, next)) if next.seqno >= last.seqno => Err(self.damage(block, OUT_OF_ORDER)),
            _ => Ok(entries),
        }
    }

    fn entries_of_block(&self, block: usize) -> Result<Vec<(Bytes, Entry)>> {
        let offset = self.fences.handle(block).map_or(0, |handle| handle.offset);
        let damage = |what| self.damage(block, what);
        let handle = || self.fences.handle(block).ok_or_else(|| damage("no such block"));
        let bytes = self.source.block(block, || offset, handle, Purpose::Pass)?;
        let parsed = Block::parse(bytes.bytes()).ok_or_else(|| damage("malformed block"))?;
        let mut entries: Vec<(Bytes, Entry)> = Vec::with_capacity(parsed.len());
        for slot in 0..parsed.len() {
            let raw = parsed.entry(slot).ok_or_else(|| damage("malformed entry"))?;
            let entry = parsed.whole(raw.seqno, raw.tail);
            let entry = bytes.keep(&entry.ok_or_else(|| damage("malformed entry"))?);
            let key = Bytes::from([parsed.prefix(), raw.suffix].concat());
            let follows = match entries.last() {
                None => key == self.fences.first_key(block),
                Some((last, before)) => *last < key || (*last == key && entry.seqno < before.seqno),
            };
            let is_possible =
                check_key(&key).is_ok() && entry.attributes.len() <= ATTRIBUTES_BYTES_MAX;
            if !follows || !is_possible {
                return Err(damage(OUT_OF_ORDER));
            }
            entries.push((key, entry));
        }
        let ends_by = (block + 1 < self.fences.len()).then(|| self.fences.first_key(block + 1));
        let last = entries.last().map(|(key, _)| &key[..]);
        if ends_by.is_some_and(|next| last.is_some_and(|last| last > next)) {
            return Err(damage("keys are beyond the next block's first"));
        }
        Ok(entries)
    }
}
