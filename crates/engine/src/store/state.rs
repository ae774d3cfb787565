//! What one read uses: the memtables, the tables and the journal segments of a moment.
//!
//! A `ReadState` is immutable but for the active memtable, which only grows. Whoever holds one keeps
//! everything in it on disk. Readers take the newest with one atomic load; writers, flushes and
//! compactions replace it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::head::{Body, Entry, ValuePointer};
use crate::journal::{CollectedIndex, Segment};
use crate::key::{self, SeqNo};
use crate::memtable::Memtable;
use crate::sstable::ReadCounters;
use crate::version::Version;

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
    pub(crate) fn find(
        &self,
        user_key: &[u8],
        seqno: SeqNo,
        wait: bool,
        counters: &ReadCounters,
    ) -> Result<Option<Entry>> {
        for memtable in self.memtables() {
            let cover = memtable.cover(user_key, seqno);
            if let Some(entry) = memtable.get(user_key, seqno) {
                return Ok((entry.seqno > cover).then_some(entry));
            }
            if cover > 0 {
                return Ok(None);
            }
        }
        find_in_tables(&self.version, user_key, seqno, wait, counters)
    }

    /// The value of an entry that is not a deletion, read and verified.
    pub(crate) fn value(&self, entry: &Entry, wait: bool) -> Result<Bytes> {
        match &entry.body {
            Body::Inline(value) => Ok(value.clone()),
            Body::Ref(pointer) => self.segments.read(pointer, wait),
            Body::Delete => unreachable!("a deletion has no value"),
        }
    }
}

/// The newest version of a key at or below `seqno` in the tables, newest run first.
pub(crate) fn find_in_tables(
    version: &Version,
    user_key: &[u8],
    seqno: SeqNo,
    wait: bool,
    counters: &ReadCounters,
) -> Result<Option<Entry>> {
    let hash = key::hash(user_key);
    for level in &version.levels {
        for run in &level.runs {
            let Some(live) = run.find(user_key) else { continue };
            let table = live.table();
            let cover = table.range_tombstones().cover(user_key, seqno);
            if let Some(entry) = table.get(user_key, hash, seqno, wait, counters)? {
                return Ok((entry.seqno > cover).then_some(entry));
            }
            if cover > 0 {
                return Ok(None);
            }
        }
    }
    Ok(None)
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
    pub(crate) by_number: HashMap<u64, SegmentEntry>,
}

impl Segments {
    /// Adds a segment under its own number.
    pub(crate) fn insert(&mut self, segment: Arc<Segment>) {
        self.by_number.insert(segment.number(), SegmentEntry::Direct(segment));
    }

    /// The value a pointer names, verified.
    pub(crate) fn read(&self, pointer: &ValuePointer, wait: bool) -> Result<Bytes> {
        let (segment, offset) = self.locate(pointer).ok_or_else(|| {
            Error::corruption(
                format!("{:06}.journal", pointer.segment).as_ref(),
                pointer.offset,
                "a table names a value here, but no such value is known",
            )
        })?;
        segment.read_value(offset, pointer.length, pointer.checksum, wait)
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
