//! What one read uses: the memtables, the tables and the journal segments of a moment.
//!
//! A `ReadState` is immutable but for the active memtable, which only grows. Whoever holds one keeps
//! everything in it on disk. Readers take the newest with one atomic load; writers, flushes and
//! compactions replace it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::head::{Body, Entry, ValuePointer};
use crate::journal::{CollectedIndex, Segment};
use crate::key::{self, SeqNo};
use crate::memtable::Memtable;
use crate::options::LEVEL_COUNT;
use crate::stages::{Exit, Stage, Trace};
use crate::version::{RUNS_AHEAD, Version};
use crate::vfs::cycles;

/// A value that a cursor shows; it is its bytes.
#[derive(Debug, Clone)]
pub enum ValueRef<'a> {
    /// Where the cursor stands.
    Borrowed(&'a [u8]),
    /// Read from the journal, or kept by the cursor.
    Owned(Bytes),
}

impl std::ops::Deref for ValueRef<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ValueRef::Borrowed(bytes) => bytes,
            ValueRef::Owned(bytes) => bytes,
        }
    }
}

/// The memtables, tables and segments of a moment.
#[derive(Debug, Clone)]
pub(crate) struct ReadState {
    /// Takes the writes.
    pub(crate) active: Arc<Memtable>,
    /// Wait for their flush, newest first.
    pub(crate) immutables: Vec<Arc<Memtable>>,
    /// The tables.
    pub(crate) version: Arc<Version>,
    /// Where values in the journal are.
    pub(crate) segments: Arc<Segments>,
}

impl ReadState {
    /// Every memtable, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.immutables)
    }

    /// The newest version of a key at or below `seqno`; `None` too when a range deletion covers it.
    /// It may be a deletion or expired. `wait` false: `Error::WouldWait` rather than wait for the disk.
    #[inline]
    pub(crate) fn find(
        &self,
        user_key: &[u8],
        seqno: SeqNo,
        wait: bool,
        trace: &mut Trace<'_>,
    ) -> Result<Option<Entry>> {
        let mark = trace.mark();
        let hash = key::hash(user_key);
        let found = match self.find_in_memtables(user_key, hash, seqno) {
            Some(entry) => Found { entry, level: None },
            None => {
                trace.skip();
                let version = &self.version;
                match trace.disk_waits().is_look_up_timed(hash) {
                    true => find_timed(version, user_key, hash, seqno, wait, trace)?,
                    false => find_in_tables(version, user_key, hash, seqno, wait, trace)?,
                }
            }
        };
        let (exit, stage) = found.end();
        trace.count(exit);
        trace.since(stage, mark);
        Ok(found.entry)
    }

    /// As `find`, in the memtables: `None` when they know nothing of the key, `Some(None)` when it is
    /// in a deleted range.
    #[inline]
    fn find_in_memtables(&self, user_key: &[u8], hash: u64, seqno: SeqNo) -> Option<Option<Entry>> {
        for memtable in self.memtables() {
            let cover = memtable.cover(user_key, seqno);
            if let Some(entry) = memtable.find(user_key, hash, seqno) {
                return Some((entry.seqno > cover).then(|| entry.to_entry()));
            }
            if cover > 0 {
                return Some(None);
            }
        }
        None
    }

    /// The value of an entry that is not a deletion, read and verified.
    pub(crate) fn value(&self, entry: Entry, wait: bool, trace: &mut Trace<'_>) -> Result<Bytes> {
        match entry.body {
            Body::Inline(value) => {
                trace.count(Exit::ValueInline);
                Ok(value)
            }
            Body::Ref(pointer) => {
                let ValuePointer { length, checksum, .. } = pointer;
                self.journal_value(&pointer, trace, |segment, offset| {
                    segment.read_value(offset, length, checksum, wait)
                })
            }
            Body::Delete => unreachable!("a deletion has no value"),
        }
    }

    /// A value that is in the journal, verified, where it stands if that can be lent.
    pub(crate) fn value_ref(
        &self,
        pointer: &ValuePointer,
        trace: &mut Trace<'_>,
    ) -> Result<ValueRef<'_>> {
        let &ValuePointer { length, checksum, .. } = pointer;
        self.journal_value(pointer, trace, |segment, offset| {
            Ok(match segment.lend_value(offset, length, checksum)? {
                Some(value) => ValueRef::Borrowed(value),
                None => ValueRef::Owned(segment.read_value(offset, length, checksum, true)?),
            })
        })
    }

    #[inline]
    fn journal_value<'a, T>(
        &'a self,
        pointer: &ValuePointer,
        trace: &mut Trace<'_>,
        read: impl FnOnce(&'a Segment, u64) -> Result<T>,
    ) -> Result<T> {
        trace.skip();
        let (segment, offset) = self.segments.find(pointer)?;
        trace.lap(Stage::JournalIndex);
        let value = read(segment, offset)?;
        trace.lap(Stage::JournalFetch);
        trace.count(Exit::ValueJournal);
        Ok(value)
    }

    /// Has the system begin to read a value that is in the journal, if it isn't in memory.
    pub(crate) fn want(&self, pointer: &ValuePointer) {
        if let Ok((segment, offset)) = self.segments.find(pointer) {
            segment.want_value(offset, pointer.length);
        }
    }

    /// Has the processor fetch a value that is in the journal and will be read soon.
    pub(crate) fn prefetch(&self, pointer: &ValuePointer) {
        if let Ok((segment, offset)) = self.segments.find(pointer) {
            segment.prefetch_value(offset, pointer.length);
        }
    }
}

/// What a search came to.
pub(crate) struct Found {
    /// The newest version, unless a range deletion covers it.
    pub(crate) entry: Option<Entry>,
    /// The level that ended the search; `None` for the memtables, `LEVEL_COUNT` when nothing did.
    level: Option<usize>,
}

impl Found {
    /// Where the search ended.
    fn end(&self) -> (Exit, Stage) {
        match self.level {
            None => (Exit::Memory, Stage::HeadMemory),
            Some(0) => (Exit::L0, Stage::HeadL0),
            Some(1) => (Exit::L1, Stage::HeadL1),
            Some(2) => (Exit::L2, Stage::HeadL2),
            Some(LEVEL_COUNT) => (Exit::Missed, Stage::HeadMissed),
            Some(_) => (Exit::Lower, Stage::HeadLower),
        }
    }
}

/// The newest version of a key at or below `seqno` in the tables, newest run first. `hash` is `key::hash`
/// of the key.
pub(crate) fn find_in_tables(
    version: &Version,
    user_key: &[u8],
    hash: u64,
    seqno: SeqNo,
    wait: bool,
    trace: &mut Trace<'_>,
) -> Result<Found> {
    let directory = version.directory();
    let (mut outside, mut excluded) = (0, 0);
    for runs in directory.runs().chunks(RUNS_AHEAD) {
        let tables = directory.find(runs, user_key, hash);
        trace.lap(Stage::TableIndex);
        for (run, table) in runs.iter().zip(tables) {
            let Some(slot) = table else {
                outside += 1;
                continue;
            };
            let mut candidates = slot.candidates(hash);
            if candidates.is_empty() && !slot.has_range_tombstones {
                excluded += 1;
                continue;
            }
            let table = slot.live.table();
            let cover = table.range_tombstones().cover(user_key, seqno);
            let found = table.get_among(&mut candidates, user_key, hash, seqno, wait, trace)?;
            if found.is_some() || cover > 0 {
                trace.count_many(Exit::FileIndex, outside);
                trace.count_many(Exit::FileFilter, excluded);
                let entry = found.filter(|entry| entry.seqno > cover);
                return Ok(Found { entry, level: Some(run.level) });
            }
        }
        trace.lap(Stage::TableFilter);
    }
    trace.count_many(Exit::FileIndex, outside);
    trace.count_many(Exit::FileFilter, excluded);
    Ok(Found { entry: None, level: Some(LEVEL_COUNT) })
}

/// As `find_in_tables`, while the disk is waited for, and now and then to see whether it is.
#[cold]
fn find_timed(
    version: &Version,
    user_key: &[u8],
    hash: u64,
    seqno: SeqNo,
    wait: bool,
    trace: &mut Trace<'_>,
) -> Result<Found> {
    let waits = trace.disk_waits();
    let begun = cycles::now();
    let found = find_in_tables(version, user_key, hash, seqno, wait, trace)?;
    waits.end(Some(begun), 0);
    if waits.are_recent() {
        note_used(version, user_key, hash);
    }
    Ok(found)
}

/// Tells the system which pages of the tables a look-up of this key used. What all look-ups use, indexes
/// and tables of values in the journal, is kept by this; what one of them uses goes.
fn note_used(version: &Version, user_key: &[u8], hash: u64) {
    let directory = version.directory();
    for runs in directory.runs().chunks(RUNS_AHEAD) {
        let tables = directory.find(runs, user_key, hash);
        if tables.into_iter().flatten().any(|slot| slot.live.table().note_used(hash)) {
            return;
        }
    }
}

/// Where the values of one segment number are.
#[derive(Debug, Clone)]
pub(crate) enum SegmentEntry {
    /// In the segment of that number.
    Direct(Arc<Segment>),
    /// The segment was collected: in another, by its index.
    Forwarded {
        /// From old places to new offsets.
        index: Arc<CollectedIndex>,
        /// Holds the values now.
        to: Arc<Segment>,
    },
}

/// Every segment that a pointer may name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segments {
    pub(crate) by_number: BTreeMap<u64, SegmentEntry>,
}

impl Segments {
    /// Adds a segment under its own number.
    pub(crate) fn insert(&mut self, segment: Arc<Segment>) {
        self.by_number.insert(segment.number(), SegmentEntry::Direct(segment));
    }

    /// The segment and offset where a pointer's value is now; damage when it is nowhere.
    fn find(&self, pointer: &ValuePointer) -> Result<(&Arc<Segment>, u64)> {
        self.locate(pointer).ok_or_else(|| {
            Error::corruption(
                format!("{:06}.journal", pointer.segment).as_ref(),
                pointer.offset,
                "a table names a value here, but no such value is known",
            )
        })
    }

    /// The segment and offset where a pointer's value is now.
    pub(crate) fn locate(&self, pointer: &ValuePointer) -> Option<(&Arc<Segment>, u64)> {
        match self.by_number.get(&pointer.segment)? {
            SegmentEntry::Direct(segment) => Some((segment, pointer.offset)),
            SegmentEntry::Forwarded { index, to } => {
                Some((to, index.lookup(pointer.segment, pointer.offset)?))
            }
        }
    }

    /// The pointer with its segment collected away; unchanged when its value is unknown, because it
    /// was dead when its segment was collected.
    pub(crate) fn direct(&self, pointer: &ValuePointer) -> ValuePointer {
        match self.locate(pointer) {
            Some((segment, offset)) => {
                ValuePointer { segment: segment.number(), offset, ..*pointer }
            }
            None => *pointer,
        }
    }

    /// The segments themselves, forwards apart.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.by_number.values().filter_map(|entry| match entry {
            SegmentEntry::Direct(segment) => Some(segment),
            SegmentEntry::Forwarded { .. } => None,
        })
    }
}
