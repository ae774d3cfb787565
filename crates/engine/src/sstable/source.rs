//! Where a table's bytes come from: a map of the whole file, or reads through kept handles.
//!
//! Invariant: bytes that leave this module passed their checksum, since the table was opened (mapped)
//! or since they were read. It knows frames and offsets, not what is in them.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::block_cache::{BlockCache, CachedBlock, TableBlocks};
use crate::block_memory::BlockMemory;
use crate::error::{Error, Result};
use crate::file_cache::FileCache;
use crate::head::{BodyRef, Entry, EntryRef};
use crate::recent_keys::{EntryPlace, next_table_id};
use crate::sstable::fences::BlockHandle;
use crate::sstable::footer::Section;
use crate::sstable::frame::{self, FrameError};
use crate::sstable::point_index::Place;
use crate::vfs::Advice;
use crate::vfs::handles::{Handles, handles_of};
use crate::vfs::prefetch::prefetch;

/// What a block is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A look-up; without `wait` it fails with `WouldWait` rather than wait for the disk.
    Lookup {
        /// Whether it may wait.
        wait: bool,
    },
    /// A scan by a user: blocks are kept, they may be read again.
    Scan,
    /// One pass over everything (compaction, `verify`): blocks are not kept, and always verified.
    Pass,
}

/// Most bytes of value and attributes that a look-up copies out of a block.
const COPIED_BYTES_MAX: usize = 512;

/// A block's raw bytes, and what holds them, of which values are slices.
#[derive(Debug)]
pub(super) enum BlockBytes<'a> {
    /// A part of the map of the file.
    Mapped {
        /// The file.
        map: &'a Bytes,
        /// Where the block is in it.
        range: Range<usize>,
    },
    /// From the block cache.
    Cached(CachedBlock),
    /// Read just now.
    Read(Bytes),
}

impl BlockBytes<'_> {
    /// The block.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            BlockBytes::Mapped { map, range } => &map[range.clone()],
            BlockBytes::Cached(raw) => raw,
            BlockBytes::Read(raw) => raw,
        }
    }

    /// Whether it came from the block cache.
    #[inline]
    pub(super) fn is_cached(&self) -> bool {
        matches!(self, BlockBytes::Cached(_))
    }

    /// An entry of the block, to keep. Little is copied out of a block in memory: to count one more user of
    /// it is to wait for a count that no cache has, and one entry would keep all of the block.
    #[inline]
    pub(super) fn keep(&self, entry: &EntryRef<'_>) -> Entry {
        let inline_bytes = match entry.body {
            BodyRef::Inline(value) => value.len(),
            BodyRef::Ref(_) | BodyRef::Delete => 0,
        };
        match self {
            BlockBytes::Mapped { map, .. } => entry.slices_of(map),
            _ if inline_bytes + entry.attributes.len() <= COPIED_BYTES_MAX => entry.to_entry(),
            BlockBytes::Cached(raw) => entry.slices_of(&raw.to_bytes()),
            BlockBytes::Read(raw) => entry.slices_of(raw),
        }
    }

    /// The block, to keep.
    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            BlockBytes::Mapped { map, range } => map.slice(range),
            BlockBytes::Cached(raw) => raw.to_bytes(),
            BlockBytes::Read(raw) => raw,
        }
    }
}

/// Where a table's bytes come from.
#[derive(Debug)]
pub(super) struct TableSource {
    bytes: SourceBytes,
    path: PathBuf,
    /// Seeds the checksums, once the footer told it.
    salt: u64,
    cache: Arc<BlockCache>,
    table_id: u64,
    block_count: usize,
    /// The blocks in the cache, once one was asked for.
    blocks: OnceLock<TableBlocks>,
}

#[derive(Debug)]
enum SourceBytes {
    /// The whole file, and a bit for each block that is stored as it is and was verified.
    Mapped { map: Handles<Bytes>, verified: Box<[AtomicU64]>, files: Arc<FileCache> },
    /// Reads.
    Pread(Arc<FileCache>),
}

impl TableSource {
    /// A file that is mapped.
    pub(super) fn mapped(
        map: Bytes,
        files: Arc<FileCache>,
        path: PathBuf,
        cache: Arc<BlockCache>,
    ) -> Self {
        let map = handles_of(map);
        let bytes = SourceBytes::Mapped { map, verified: Box::default(), files };
        TableSource::new(bytes, path, cache)
    }

    /// A file that is read.
    pub(super) fn pread(files: Arc<FileCache>, path: PathBuf, cache: Arc<BlockCache>) -> Self {
        TableSource::new(SourceBytes::Pread(files), path, cache)
    }

    fn new(bytes: SourceBytes, path: PathBuf, cache: Arc<BlockCache>) -> Self {
        let (table_id, blocks) = (next_table_id(), OnceLock::new());
        TableSource { bytes, path, salt: 0, cache, table_id, block_count: 0, blocks }
    }

    /// Says what seeds the checksums. Requires: nothing but the footer was read.
    pub(super) fn set_salt(&mut self, salt: u64) {
        self.salt = salt;
    }

    /// Says how many blocks there are, once that is known.
    pub(super) fn set_block_count(&mut self, blocks: usize) {
        self.block_count = blocks;
        if let SourceBytes::Mapped { verified, .. } = &mut self.bytes {
            *verified = (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        }
    }

    /// Whether slices stay in the map of the file.
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.bytes, SourceBytes::Mapped { .. })
    }

    /// Memory for what is read all over.
    pub(super) fn memory(&self) -> &Arc<BlockMemory> {
        self.cache.memory()
    }

    /// The entry of `key` at a place, if it was read lately. Blocks that are mapped are as fast.
    #[inline]
    pub(super) fn recent_entry(&self, place: Place, hash: u64, key: &[u8]) -> Option<Entry> {
        match self.bytes {
            SourceBytes::Mapped { .. } => None,
            SourceBytes::Pread(_) => {
                self.cache.recent_keys().get(self.entry_place(place), hash, key)
            }
        }
    }

    /// Tells of the entry at a place, which was found in its block.
    #[inline]
    pub(super) fn note_entry(&self, place: Place, hash: u64, key: &[u8], entry: &Entry) {
        if !self.is_mapped() {
            self.cache.recent_keys().note(self.entry_place(place), hash, key, entry);
        }
    }

    /// Where a block's bytes are if it is in the block cache, and about how many; a hint, not to be read
    /// from.
    #[inline]
    pub(super) fn expect_cached(&self, block: usize) -> Option<(*const u8, usize)> {
        self.blocks.get()?.expect(block)
    }

    fn entry_place(&self, place: Place) -> EntryPlace {
        EntryPlace { table_id: self.table_id, place: place.number() }
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// An error about this file.
    #[cold]
    pub(super) fn corruption(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what)
    }

    /// Bytes that are in no frame (the footer).
    pub(super) fn bare(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.read(offset, len, true)
    }

    /// Reads and checks a part other than a data block.
    pub(super) fn section(&self, section: Section) -> Result<Bytes> {
        let frame_bytes = (section.end() - section.offset) as usize;
        let raw = self.verified(BlockHandle { offset: section.offset, frame_bytes }, true)?;
        if raw.len() != section.bytes as usize {
            return Err(self.corruption(section.offset, "a compressed section"));
        }
        Ok(raw)
    }

    /// The raw bytes of data block `block`. `handle` tells where it is in the file, which one in the block cache
    /// need not wait for, and `about` where it probably is: asked for that, the processor goes through its page
    /// tables while it waits for the handle.
    #[inline]
    pub(super) fn block(
        &self,
        block: usize,
        about: impl FnOnce() -> u64,
        handle: impl FnOnce() -> Result<BlockHandle>,
        purpose: Purpose,
    ) -> Result<BlockBytes<'_>> {
        if purpose == Purpose::Pass {
            return Ok(BlockBytes::Read(self.verified(handle()?, true)?));
        }
        if let SourceBytes::Mapped { map, verified, .. } = &self.bytes {
            let map = map.own();
            prefetch(map.as_ptr().wrapping_add(about() as usize));
            let handle = handle()?;
            return match self.mapped_block(map, verified, block, handle)? {
                Some(range) => Ok(BlockBytes::Mapped { map, range }),
                None => self.cached_block(block, || Ok(handle), purpose),
            };
        }
        self.cached_block(block, handle, purpose)
    }

    /// Checks a frame that was read as a part of a larger piece; answers its raw bytes.
    pub(super) fn decode(&self, frame: Bytes, handle: BlockHandle) -> Result<Bytes> {
        match frame::decode(frame, self.salt, handle.offset) {
            Ok(raw) => Ok(raw),
            // The piece may have been damaged on its way into memory, so the frame is read again.
            Err(_) => self.verified(handle, true),
        }
    }

    /// Where a block that is stored as it is stands in the map; `None` for a compressed one.
    #[inline]
    fn mapped_block(
        &self,
        map: &Bytes,
        verified: &[AtomicU64],
        block: usize,
        handle: BlockHandle,
    ) -> Result<Option<Range<usize>>> {
        let start = handle.offset as usize;
        let range = start..start + handle.frame_bytes - frame::TRAILER_BYTES;
        let (word, bit) = (&verified[block / 64], 1 << (block % 64));
        if word.load(Ordering::Relaxed) & bit != 0 {
            return Ok(Some(range));
        }
        let framed = &map[start..start + handle.frame_bytes];
        if !frame::is_plain(framed) {
            return Ok(None);
        }
        frame::check(framed, self.salt, handle.offset)
            .map_err(|error| self.corruption(handle.offset, error.what()))?;
        // Threads that come at once verify twice; nothing else hangs on the bit.
        word.fetch_or(bit, Ordering::Relaxed);
        Ok(Some(range))
    }

    #[inline]
    fn cached_block(
        &self,
        block: usize,
        handle: impl FnOnce() -> Result<BlockHandle>,
        purpose: Purpose,
    ) -> Result<BlockBytes<'_>> {
        let new_blocks = || TableBlocks::new(self.cache.clone(), self.block_count);
        let blocks = self.blocks.get_or_init(new_blocks);
        if let Some(raw) = blocks.get(block) {
            return Ok(BlockBytes::Cached(raw));
        }
        let raw = self.verified(handle()?, purpose != Purpose::Lookup { wait: false })?;
        blocks.offer(block, &raw);
        Ok(BlockBytes::Read(raw))
    }

    /// Memory by which blocks in the cache are found.
    pub(super) fn slot_bytes(&self) -> usize {
        self.blocks.get().map_or(0, TableBlocks::slot_bytes)
    }

    /// Reads a frame and checks it. A read that fails its checksum is made once more, because the
    /// fault may have been in the transfer.
    fn verified(&self, handle: BlockHandle, wait: bool) -> Result<Bytes> {
        let mut attempts = if self.is_mapped() { 1 } else { 2 };
        loop {
            let frame = self.read(handle.offset, handle.frame_bytes, wait)?;
            attempts -= 1;
            match frame::decode(frame, self.salt, handle.offset) {
                Ok(raw) => return Ok(raw),
                Err(FrameError::Checksum) if attempts > 0 => continue,
                Err(error) => return Err(self.corruption(handle.offset, error.what())),
            }
        }
    }

    /// Has the system begin to read a part of a mapped file into memory, if it isn't there; a hint.
    pub(super) fn want(&self, offset: u64, len: u64) {
        if let SourceBytes::Mapped { files, .. } = &self.bytes
            && let Ok(file) = files.open(&self.path)
        {
            file.advise(Advice::WillNeed, offset, len);
        }
    }

    /// Tells the system that a part of a mapped file was used, so that it stays in memory; a hint.
    pub(super) fn note_used(&self, offset: u64, len: u64) {
        if let SourceBytes::Mapped { files, .. } = &self.bytes
            && let Ok(file) = files.open(&self.path)
        {
            file.advise(Advice::Used, offset, len);
        }
    }

    /// Unverified bytes. Requires: the range lies inside the file as it was opened.
    pub(super) fn read(&self, offset: u64, len: usize, wait: bool) -> Result<Bytes> {
        let files = match &self.bytes {
            SourceBytes::Mapped { map, .. } => {
                return Ok(map.own().slice(offset as usize..offset as usize + len));
            }
            SourceBytes::Pread(files) => files,
        };
        let file =
            files.open(&self.path).map_err(|source| Error::of_opening(&self.path, source))?;
        match file.read_at(offset, len, wait) {
            Ok(bytes) => Ok(Bytes::from(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.corruption(offset, "the file ends before the block"))
            }
            Err(error) => Err(Error::io("read", &self.path, error)),
        }
    }
}
