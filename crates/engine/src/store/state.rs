//! What one read uses: the memtables, the tables and the journal segments of a moment.
//!
//! A `ReadState` is immutable but for the active memtable, which only grows. Whoever holds one keeps
//! everything in it on disk. Readers take the newest with one atomic load; writers, flushes and
//! compactions replace it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::table_search::{Found, TableSearch};
use crate::error::{Error, Result};
use crate::file_name;
use crate::head::{Body, Entry, ValuePointer};
use crate::journal::{CollectedIndex, MovedValues, Segment, Sequence};
use crate::key::{self, SeqNo};
use crate::memtable::Memtable;
use crate::stages::{Exit, Stage, Trace};
use crate::version::Version;

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
        // Begun first: the wait for a memtable's line and that for an index's are one. In turn, medians of
        // five: `readrandom` of 100 bytes 0.507 / 0.493 us, `readmissing` 0.159 / 0.152, `readhot` 0.264 /
        // 0.245.
        let tables = TableSearch::begin(&self.version, user_key, hash, trace);
        let found = match self.find_in_memtables(user_key, hash, seqno) {
            Some(entry) => Found::in_memory(entry),
            None => {
                trace.skip();
                match trace.disk_waits().is_look_up_timed(hash) {
                    true => tables.find_timed(seqno, wait, trace)?,
                    false => tables.find(seqno, wait, trace)?,
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
            Body::Ref(pointer) => self.journal_value(&pointer, wait, trace),
            Body::Delete => unreachable!("a deletion has no value"),
        }
    }

    /// A value that is in the journal, read and verified.
    pub(crate) fn journal_value(
        &self,
        pointer: &ValuePointer,
        wait: bool,
        trace: &mut Trace<'_>,
    ) -> Result<Bytes> {
        let &ValuePointer { length, checksum, .. } = pointer;
        self.read_journal(pointer, trace, |segment, offset| {
            segment.read_value(offset, length, checksum, wait)
        })
    }

    /// The same of a reader that comes to values in the order in which they lie; `None` when it doesn't, or
    /// hasn't for long.
    pub(crate) fn value_in_sequence(
        &self,
        pointer: &ValuePointer,
        sequence: &mut Sequence,
        trace: &mut Trace<'_>,
    ) -> Result<Option<Bytes>> {
        trace.skip();
        let (segment, offset) = self.segments.find(pointer)?;
        trace.lap(Stage::JournalIndex);
        let value = sequence.value(segment, offset, pointer);
        if value.is_some() {
            trace.lap(Stage::JournalFetch);
            trace.count(Exit::ValueJournal);
        }
        Ok(value)
    }

    /// A value that is in the journal, verified, where it stands if that can be lent.
    pub(crate) fn value_ref(
        &self,
        pointer: &ValuePointer,
        trace: &mut Trace<'_>,
    ) -> Result<ValueRef<'_>> {
        let &ValuePointer { length, checksum, .. } = pointer;
        self.read_journal(pointer, trace, |segment, offset| {
            Ok(match segment.lend_value(offset, length, checksum)? {
                Some(value) => ValueRef::Borrowed(value),
                None => ValueRef::Owned(segment.read_value(offset, length, checksum, true)?),
            })
        })
    }

    #[inline]
    fn read_journal<'a, T>(
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

/// Where the values of one segment number are.
#[derive(Debug, Clone)]
pub(crate) enum SegmentEntry {
    /// In the segment of that number.
    Direct(Arc<Segment>),
    /// The segment was collected: in another.
    Forwarded {
        /// From old offsets to new ones.
        moved: Arc<MovedValues>,
        /// Holds the values now.
        to: Arc<Segment>,
    },
}

/// Every segment that a pointer may name.
#[derive(Debug, Clone)]
pub(crate) struct Segments {
    dir: Arc<Path>,
    pub(crate) by_number: BTreeMap<u64, SegmentEntry>,
}

impl Segments {
    /// None yet, of the store in `dir`.
    pub(crate) fn new(dir: &Path) -> Segments {
        Segments { dir: dir.into(), by_number: BTreeMap::new() }
    }

    /// Adds a segment under its own number.
    pub(crate) fn insert(&mut self, segment: Arc<Segment>) {
        self.by_number.insert(segment.number(), SegmentEntry::Direct(segment));
    }

    /// Has a collected segment, whose index this is, answer for what was moved there from `old`; for
    /// nothing, if nothing was.
    pub(crate) fn forward(&mut self, old: u64, index: &CollectedIndex, to: &Arc<Segment>) {
        match index.of(old) {
            Some(moved) => {
                let (moved, to) = (moved.clone(), to.clone());
                self.by_number.insert(old, SegmentEntry::Forwarded { moved, to });
            }
            None => {
                self.by_number.remove(&old);
            }
        }
    }

    /// The segment and offset where a pointer's value is now; damage when it is nowhere.
    fn find(&self, pointer: &ValuePointer) -> Result<(&Arc<Segment>, u64)> {
        self.locate(pointer).ok_or_else(|| {
            Error::corruption(
                &file_name::segment(&self.dir, pointer.segment),
                pointer.offset,
                "a table names a value here, but no such value is known",
            )
        })
    }

    /// The segment and offset where a pointer's value is now.
    pub(crate) fn locate(&self, pointer: &ValuePointer) -> Option<(&Arc<Segment>, u64)> {
        match self.by_number.get(&pointer.segment)? {
            SegmentEntry::Direct(segment) => Some((segment, pointer.offset)),
            SegmentEntry::Forwarded { moved, to } => Some((to, moved.lookup(pointer.offset)?)),
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

    /// Memory that is held to find values that were moved.
    pub(crate) fn index_bytes(&self) -> usize {
        let held = |entry: &SegmentEntry| match entry {
            SegmentEntry::Direct(_) => 0,
            SegmentEntry::Forwarded { moved, .. } => moved.resident_bytes(),
        };
        self.by_number.values().map(held).sum()
    }

    /// The segments themselves, forwards apart.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.by_number.values().filter_map(|entry| match entry {
            SegmentEntry::Direct(segment) => Some(segment),
            SegmentEntry::Forwarded { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::{Participant, ResourceOptions, Resources};
    use crate::vfs::{ManualClock, MemoryFileSystem};
    use crate::{Options, Store};

    #[test]
    fn a_segment_of_which_nothing_was_moved_leads_nowhere() {
        let options = Options {
            memtable_journal_bytes: 128 << 10,
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 64 << 10,
            ..Options::default()
        };
        let (fs, clock) = (Arc::new(MemoryFileSystem::new()), Arc::new(ManualClock::at_ms(1)));
        let resources = Resources::inline(ResourceOptions::default(), fs, clock);
        let store = Store::open_with("/s", options, resources).unwrap();
        for round in 0..4u32 {
            for key in (0..300u32).filter(|key| round == 0 || key % 7 > 0) {
                store.put(&key.to_be_bytes(), &[round as u8; 1500]).unwrap();
            }
            store.inner.flush_all().unwrap();
            while store.inner.compaction_step() {}
        }
        let mut segments = Segments::clone(&store.inner.state.load_full().segments);
        let forwarded = segments.by_number.iter().find_map(|(&old, entry)| match entry {
            SegmentEntry::Forwarded { moved, to } => Some((old, moved.clone(), to.clone())),
            SegmentEntry::Direct(_) => None,
        });
        let (old, moved, to) = forwarded.expect("values of a mostly dead segment were moved");
        let (offset, new_offset) = moved.iter().next().unwrap();
        let pointer = |segment| ValuePointer { segment, offset, length: 1500, checksum: 0 };
        let found = segments.locate(&pointer(old)).unwrap();
        assert_eq!((found.0.number(), found.1), (to.number(), new_offset));
        // Another that the same collected segment answers for, where none of its values are.
        let other = u64::MAX;
        let entry = segments.by_number[&old].clone();
        segments.by_number.insert(other, entry);
        segments.forward(other, &CollectedIndex::read(&to).unwrap(), &to);
        assert!(segments.locate(&pointer(other)).is_none());
        assert!(!segments.by_number.contains_key(&other), "it would hold on to the segment before");
        match segments.find(&pointer(other)) {
            Err(Error::Corruption { file, .. }) => {
                assert_eq!(file, file_name::segment(Path::new("/s"), other));
            }
            found => panic!("{found:?}"),
        }
    }
}
