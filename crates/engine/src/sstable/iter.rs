//! A cursor over the entries of one table, both ways.
//!
//! It holds the current block, and the current key put together from the block's prefix and the
//! entry's suffix. Invariant: while valid, block, slot, key and SeqNo belong together.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::head::{BodyRef, Entry, EntryRef, ValuePointer};
use crate::iter::InternalIterator;
use crate::key::{self, SEQNO_MAX, SeqNo};
use crate::sstable::block::{Block, BlockHeader, Tail};
use crate::sstable::fences::BlockHandle;
use crate::sstable::reader::Table;
use crate::sstable::source::Purpose;
use crate::stages::Stopwatch;
use crate::vfs::prefetch::prefetch_range;

/// Bytes that a pass reads at once when the file is not mapped: a system call for 64 blocks.
const READ_AHEAD_BYTES: u64 = 256 << 10;

/// Bytes ahead of which a mapped file is asked for, half at a time. Maps are told that they are read at
/// random, so that without it a pass over a file that isn't in memory waits for every page of it.
const WANTED_AHEAD_BYTES: u64 = 1 << 20;

/// Of a block that a user's scan comes to so much is asked of the processor at once, before the first entry
/// is searched for in it: a seek and 100 entries take 0.93 of the time. Those that follow it finds itself.
const PREFETCHED_BYTES: usize = 4 << 10;

/// A user's scan asks ahead too, once it has come through so many blocks in order.
const SCAN_BLOCKS_MIN: usize = 16;

/// Which way a block is entered, and so whether those behind it will be wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// A cursor over the entries of one table.
#[derive(Debug)]
pub struct TableIter {
    table: Arc<Table>,
    purpose: Purpose,
    /// Number of the block held, if one is.
    loaded: Option<usize>,
    bytes: Bytes,
    header: BlockHeader,
    slot: usize,
    key: Vec<u8>,
    /// Whether `key` starts with the prefix of the block held.
    has_prefix: bool,
    seqno: SeqNo,
    tail: Tail,
    valid: bool,
    /// Frames read ahead, and the offset of the first.
    ahead: (u64, Bytes),
    /// Blocks are read one by one up to here, as something before it could not be read.
    reads_singly_upto: u64,
    /// Of a mapped file: what lies before was asked for.
    wanted_upto: u64,
    /// Blocks entered one after the other.
    in_order: usize,
    /// Told how long blocks take to get.
    watch: Option<Arc<Stopwatch>>,
}

impl Table {
    /// A cursor over the entries; range deletions are not among them.
    ///
    /// `fill_cache`: for scans by users. Without, for one pass over much of the table (compaction):
    /// every block is verified again, none is kept in the cache, blocks are read many at once, and a
    /// value that is kept may keep 256 KiB.
    pub fn iter(self: &Arc<Self>, fill_cache: bool) -> TableIter {
        TableIter {
            table: self.clone(),
            purpose: if fill_cache { Purpose::Scan } else { Purpose::Pass },
            loaded: None,
            bytes: Bytes::new(),
            header: BlockHeader::default(),
            slot: 0,
            key: Vec::new(),
            has_prefix: false,
            seqno: 0,
            tail: Tail::default(),
            valid: false,
            ahead: (0, Bytes::new()),
            reads_singly_upto: 0,
            wanted_upto: 0,
            in_order: 0,
            watch: None,
        }
    }
}

impl TableIter {
    /// Has `watch` told how long blocks take to get.
    pub fn timed(self, watch: Option<Arc<Stopwatch>>) -> TableIter {
        TableIter { watch, ..self }
    }

    fn block(&self) -> Block<'_> {
        Block::with_header(&self.bytes, self.header)
    }

    /// Holds block `number`.
    fn load(&mut self, number: usize, direction: Direction) -> Result<()> {
        if self.loaded == Some(number) {
            return Ok(());
        }
        let is_next =
            direction == Direction::Forward && self.loaded.is_some_and(|at| at + 1 == number);
        self.in_order = if is_next { self.in_order + 1 } else { 0 };
        self.loaded = None;
        self.bytes = match self.watch.clone() {
            Some(watch) => watch.time(|| self.read(number, direction))?,
            None => self.read(number, direction)?,
        };
        if direction == Direction::Forward && self.purpose == Purpose::Scan && !is_next {
            prefetch_range(self.bytes.as_ptr(), self.bytes.len().min(PREFETCHED_BYTES));
        }
        self.header = self.table.parse(number, &self.bytes)?.header();
        self.has_prefix = false;
        self.loaded = Some(number);
        Ok(())
    }

    fn read(&mut self, number: usize, direction: Direction) -> Result<Bytes> {
        let table = &self.table;
        let is_pass = self.purpose == Purpose::Pass && direction == Direction::Forward;
        let reads_ahead = is_pass && !table.source.is_mapped();
        let Some(handle) = table.fences.handle(number).filter(|_| reads_ahead) else {
            if is_pass || self.in_order >= SCAN_BLOCKS_MIN {
                self.want_from(number);
            }
            return Ok(self.table.block_bytes(number, self.purpose)?.into_bytes());
        };
        let (start, frames) = &self.ahead;
        if handle.offset < *start || handle.end() > start + frames.len() as u64 {
            self.ahead = (handle.offset, self.read_from(handle)?);
        }
        let (start, frames) = &self.ahead;
        let at = (handle.offset - start) as usize;
        self.table.source.decode(frames.slice(at..at + handle.frame_bytes), handle)
    }

    /// The frame of a block, and some of what follows it.
    fn read_from(&mut self, handle: BlockHandle) -> Result<Bytes> {
        let Table { source, fences, .. } = &*self.table;
        let read = |end: u64| source.read(handle.offset, (end - handle.offset) as usize, true);
        if handle.offset >= self.reads_singly_upto {
            let limit = handle.offset + READ_AHEAD_BYTES;
            let end = limit.min(fences.data_end()).max(handle.end());
            match read(end) {
                Ok(frames) => return Ok(frames),
                // What is ahead may be what can't be read, and not be wanted. A disk may take seconds for each try.
                Err(_) => self.reads_singly_upto = end,
            }
        }
        read(handle.end())
    }

    /// Has what a mapped file holds from block `number` on be in memory soon.
    fn want_from(&mut self, number: usize) {
        let (source, fences) = (&self.table.source, &self.table.fences);
        let Some(at) = fences.handle(number).map(|handle| handle.offset) else { return };
        let left = self.wanted_upto.checked_sub(at).filter(|&left| left <= WANTED_AHEAD_BYTES);
        let from = match left {
            Some(left) if left >= WANTED_AHEAD_BYTES / 2 => return,
            Some(_) => self.wanted_upto,
            None => at,
        };
        let end = (at + WANTED_AHEAD_BYTES).min(fences.data_end());
        if from < end {
            source.want(from, end - from);
            self.wanted_upto = end;
        }
    }

    /// Stands on an entry of the block held.
    #[inline(always)]
    fn stand(&mut self, slot: usize) -> Result<()> {
        let block = Block::with_header(&self.bytes, self.header);
        let Some(entry) = block.entry(slot) else {
            return Err(self.table.malformed(self.loaded.unwrap_or(0)));
        };
        if !self.has_prefix {
            key::assign(&mut self.key, block.prefix());
            self.has_prefix = true;
        }
        key::assign_behind(&mut self.key, block.prefix_bytes(), entry.suffix);
        (self.seqno, self.tail) = (entry.seqno, entry.tail);
        (self.slot, self.valid) = (slot, true);
        Ok(())
    }

    /// Stands on the first entry of block `number`, or nowhere when there is no such block. Once a block, so it
    /// is no part of a step.
    #[inline(never)]
    fn enter_front(&mut self, number: usize) -> Result<()> {
        if number == self.table.fences.len() {
            return Ok(());
        }
        self.load(number, Direction::Forward)?;
        self.stand(0)
    }

    /// Stands on the last entry of the block before `number`, or nowhere when there is none.
    fn enter_back(&mut self, number: usize) -> Result<()> {
        let Some(before) = number.checked_sub(1) else {
            return Ok(());
        };
        self.load(before, Direction::Backward)?;
        self.stand(self.header_len() - 1)
    }

    fn header_len(&self) -> usize {
        self.block().len()
    }

    /// The block held. Requires: valid.
    fn current(&self) -> usize {
        self.loaded.expect("a valid cursor holds a block")
    }

    fn lower_bound(&self, user_key: &[u8], seqno: SeqNo) -> Result<usize> {
        let slot = self.block().lower_bound(user_key, seqno);
        slot.ok_or_else(|| self.table.malformed(self.loaded.unwrap_or(0)))
    }
}

impl InternalIterator for TableIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.valid = false;
        self.enter_front(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.valid = false;
        self.enter_back(self.table.fences.len())
    }

    fn seek(&mut self, user_key: &[u8], seqno: SeqNo) -> Result<()> {
        self.valid = false;
        // The key may begin in the last block that starts below it, and its versions may fill blocks
        // behind that.
        let first = self.table.fences.count_below(user_key).saturating_sub(1);
        for number in first..self.table.fences.len() {
            self.load(number, Direction::Forward)?;
            let slot = self.lower_bound(user_key, seqno)?;
            if slot < self.header_len() {
                return self.stand(slot);
            }
        }
        Ok(())
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<()> {
        self.valid = false;
        let Some(number) = self.table.fences.count_below(user_key).checked_sub(1) else {
            return Ok(());
        };
        self.load(number, Direction::Backward)?;
        match self.lower_bound(user_key, SEQNO_MAX)?.checked_sub(1) {
            Some(slot) => self.stand(slot),
            // The block's fence is below the key, so its first entry must be.
            None => Err(self.table.malformed(number)),
        }
    }

    #[inline(always)]
    fn next(&mut self) -> Result<()> {
        assert!(self.valid, "next is called on a valid cursor");
        self.valid = false;
        if self.slot + 1 < self.header_len() {
            self.stand(self.slot + 1)
        } else {
            self.enter_front(self.current() + 1)
        }
    }

    fn prev(&mut self) -> Result<()> {
        assert!(self.valid, "prev is called on a valid cursor");
        self.valid = false;
        match self.slot.checked_sub(1) {
            Some(slot) => self.stand(slot),
            None => self.enter_back(self.current()),
        }
    }

    #[inline(always)]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline(always)]
    fn internal_key(&self) -> (&[u8], SeqNo) {
        assert!(self.valid, "internal_key is called on a valid cursor");
        (&self.key, self.seqno)
    }

    #[inline(always)]
    fn entry(&self) -> Result<EntryRef<'_>> {
        assert!(self.valid, "entry is called on a valid cursor");
        let entry = self.block().whole(self.seqno, self.tail);
        entry.ok_or_else(|| self.table.malformed(self.current()))
    }

    fn owned_entry(&self) -> Result<Entry> {
        Ok(self.entry()?.slices_of(&self.bytes))
    }

    #[inline(always)]
    fn expiry(&self) -> Result<Option<u64>> {
        assert!(self.valid, "expiry is called on a valid cursor");
        let expiry = self.block().expiry(self.tail);
        expiry.ok_or_else(|| self.table.malformed(self.current()))
    }

    #[inline(always)]
    fn inline_value(&self) -> Result<Option<&[u8]>> {
        if !self.tail.is_inline() {
            return Ok(None);
        }
        let value = self.block().inline_value(self.tail);
        value.map(Some).ok_or_else(|| self.table.malformed(self.current()))
    }

    fn values_ahead(&self, steps: usize, tell: &mut dyn FnMut(&ValuePointer)) {
        let block = self.block();
        let from = if self.slot == 0 { 1 } else { steps };
        for steps in from..=steps {
            let Some(entry) = block.entry(self.slot + steps) else { return };
            if let Some(BodyRef::Ref(pointer)) =
                block.whole(entry.seqno, entry.tail).map(|entry| entry.body)
            {
                tell(&pointer);
            }
        }
    }

    fn corruption(&self, what: &str) -> Option<Error> {
        Some(self.table.corrupt_block(self.current(), what))
    }
}
