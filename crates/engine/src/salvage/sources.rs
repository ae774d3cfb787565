//! All that tables and journal tell of keys, as one sequence: of each key the newest write that can be read.
//!
//! What can't be read of a table is a range of keys with the number of the newest write that may have been there:
//! of a key in it, an older one may not be the last. Such ranges are held, and asked, as deleted ranges are.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::path::Path;
use std::sync::Arc;
use std::vec;

use bytes::Bytes;

use super::errors::Errors;
use crate::error::{Error, Result};
use crate::head::Entry;
use crate::key::{KEY_BYTES_MAX, SEQNO_MAX, SEQNO_SAVED_MAX, SEQNO_USED_MAX, SeqNo};
use crate::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::sstable::{Properties, SalvagedTable};
use crate::version::TableMeta;

/// The writes that the journal tells of, in internal order. Values are where their pointers say.
pub(super) type JournalWrites = BTreeMap<(Bytes, Reverse<SeqNo>), Entry>;

const IMPOSSIBLE_SEQNOS: &str = "its writes have impossible SeqNos";

/// A table that counts, and what counts of it.
#[derive(Debug)]
pub(super) struct Source {
    table: SalvagedTable,
    /// What it holds, and what of it counts; `None` if nothing tells.
    known: Option<TableMeta>,
    /// What could not be read when all of it was.
    lost_blocks: BTreeSet<usize>,
    /// The newest write in what could.
    seqno_read: SeqNo,
}

/// What can't be read, with the writes that are lost by it.
#[derive(Debug, Default)]
pub(super) struct Lost {
    ranges: Vec<RangeTombstone>,
    /// What was found.
    pub(super) errors: Errors,
}

impl Lost {
    /// Notes that writes up to `seqno_max` to the keys from `start` to `end` are lost.
    fn note(&mut self, error: &Error, start: &[u8], end: Bound<&[u8]>, seqno_max: SeqNo) {
        let (to, end) = match end {
            Included(last) => (format!(" to \"{}\"", last.escape_ascii()), [last, &[0]].concat()),
            Excluded(end) => (format!(" to before \"{}\"", end.escape_ascii()), end.to_vec()),
            Unbounded => (String::new(), vec![0xff; KEY_BYTES_MAX + 1]),
        };
        let what = format!("lost are writes to keys from \"{}\"{to}", start.escape_ascii());
        self.errors.add(with_consequence(error, &what));
        let (start, end) = (Bytes::copy_from_slice(start), Bytes::from(end));
        // As block after block of a table: it may have millions that can't be read.
        if let Some(before) = self.ranges.last_mut()
            && before.seqno == seqno_max
            && (&before.start..&before.end).contains(&&start)
        {
            before.end = end.max(std::mem::take(&mut before.end));
            return;
        }
        self.ranges.push(RangeTombstone { start, end, seqno: seqno_max });
    }

    /// Notes that a table is lost, of which this is known.
    pub(super) fn note_table(&mut self, error: &Error, known: Option<&TableMeta>) {
        let start = known.map_or(&[][..], |known| &known.smallest);
        self.note(error, start, end_of(known), seqno_lost_max(known));
    }

    /// The ranges so far.
    pub(super) fn ranges(&self) -> RangeTombstones {
        RangeTombstones::new(self.ranges.iter().cloned())
    }

    /// The newest write to a key that may be lost; 0 for none. Forgets what is behind. Requires: keys ascend.
    pub(super) fn newest_lost(&mut self, key: &[u8]) -> SeqNo {
        self.ranges.retain(|range| *key < range.end[..]);
        let lost = self.ranges.iter().filter(|range| range.start <= key);
        lost.map(|range| range.seqno).max().unwrap_or(0)
    }
}

/// The same error, saying what it leads to.
fn with_consequence(error: &Error, consequence: &str) -> Error {
    match error {
        Error::Corruption { file, offset, what } => {
            Error::corruption(file, *offset, format!("{what}; {consequence}"))
        }
        Error::Io { path: file, .. } | Error::NewerFormat { file, .. } => {
            Error::corruption(file, 0, format!("{error}; {consequence}"))
        }
        other => Error::corruption(Path::new(""), 0, format!("{other}; {consequence}")),
    }
}

/// Where the keys of a table end of which this is known.
fn end_of(known: Option<&TableMeta>) -> Bound<&[u8]> {
    match known {
        Some(known) if known.largest_exclusive => Excluded(&known.largest),
        Some(known) => Included(&known.largest),
        None => Unbounded,
    }
}

/// No write that is lost with a part of it is newer.
fn seqno_lost_max(known: Option<&TableMeta>) -> SeqNo {
    known.map_or(SEQNO_MAX, |known| known.properties.seqno_max)
}

impl Source {
    /// What counts of table `number`, by what the manifest says of it, or without one by what it says itself. An
    /// error: it is not the table that the manifest means.
    pub(super) fn new(
        number: u64,
        table: SalvagedTable,
        meta: Option<&TableMeta>,
    ) -> Result<Source> {
        let damage = |what| Err(Error::corruption(table.path(), 0, what));
        let own = table.properties().ok();
        if meta.zip(own).is_some_and(|(meta, own)| *meta.properties != *own) {
            return damage("this is another store's table");
        }
        let of_own = |own: &Properties| TableMeta::new(number, Arc::new(own.clone()));
        let known = meta.cloned().or_else(|| own.map(of_own));
        let seqno_max = meta.map_or(SEQNO_SAVED_MAX, |_| SEQNO_USED_MAX);
        if known.as_ref().is_some_and(|known| known.properties.seqno_max > seqno_max) {
            return damage(IMPOSSIBLE_SEQNOS);
        }
        Ok(Source { table, known, lost_blocks: BTreeSet::new(), seqno_read: 0 })
    }

    /// Whether it is known that it would have a write to a key, if nothing has hidden it.
    pub(super) fn would_have(&self, key: &[u8], seqno: SeqNo) -> bool {
        self.known.as_ref().is_some_and(|known| known.covers(key)) && self.may_have(seqno)
    }

    /// Whether a write with this number may be in it.
    fn may_have(&self, seqno: SeqNo) -> bool {
        match &self.known {
            Some(TableMeta { properties: known, .. }) => {
                (known.seqno_min..=known.seqno_max).contains(&seqno)
            }
            None => seqno <= SEQNO_SAVED_MAX,
        }
    }

    /// The newest write that is known to be in it.
    pub(super) fn seqno_max(&self) -> SeqNo {
        self.known.as_ref().map_or(self.seqno_read, |known| known.properties.seqno_max)
    }

    /// What stands before this key doesn't count.
    fn smallest(&self) -> Bytes {
        self.known.as_ref().map(|known| known.smallest.clone()).unwrap_or_default()
    }

    fn range_tombstones(&self) -> Result<&[RangeTombstone]> {
        let tombstones = self.table.range_tombstones().map_err(Error::clone)?;
        match tombstones.iter().all(|tombstone| self.may_have(tombstone.seqno)) {
            true => Ok(tombstones),
            false => Err(Error::corruption(self.table.path(), 0, IMPOSSIBLE_SEQNOS)),
        }
    }

    /// Reads all of it; notes what can't be, and adds the ranges that it deletes. Tells of the bytes of each block.
    pub(super) fn survey(
        &mut self,
        lost: &mut Lost,
        deleted: &mut Vec<RangeTombstone>,
        read: &mut dyn FnMut(u64),
    ) {
        let properties = self.table.properties().err().cloned();
        self.table.check_index().err().into_iter().chain(properties).for_each(|error| {
            lost.errors.add(error);
        });
        let has_no_range_tombstones = |known: &TableMeta| known.properties.range_tombstones == 0;
        let mut seqno_read = 0;
        match self.range_tombstones() {
            Ok(tombstones) => deleted.extend(tombstones.iter().cloned().map(|mut tombstone| {
                tombstone.start = tombstone.start.max(self.smallest());
                seqno_read = seqno_read.max(tombstone.seqno);
                tombstone
            })),
            Err(error) if self.known.as_ref().is_some_and(has_no_range_tombstones) => {
                lost.errors.add(error);
            }
            Err(error) => lost.note_table(&error, self.known.as_ref()),
        }
        for block in 0..self.table.block_count() {
            match self.entries(block, lost) {
                Some(entries) => {
                    let seqnos = entries.iter().map(|(_, entry)| entry.seqno);
                    seqno_read = seqnos.fold(seqno_read, SeqNo::max);
                }
                None => drop(self.lost_blocks.insert(block)),
            }
            read(self.table.block_bytes(block));
        }
        self.seqno_read = seqno_read;
    }

    /// What counts of a block; `None`, and noted, if it can't be read.
    fn entries(&self, block: usize, lost: &mut Lost) -> Option<Vec<(Bytes, Entry)>> {
        let (smallest, known) = (self.smallest(), self.known.as_ref());
        let start = self.table.first_key(block).max(&smallest);
        let end = match block + 1 < self.table.block_count() {
            // The next block may have older writes to its first key.
            true => Included(self.table.first_key(block + 1)),
            false => end_of(known),
        };
        if let Included(last) | Excluded(last) = end
            && *last < smallest[..]
        {
            return Some(Vec::new());
        }
        let entries = self.table.entries(block).and_then(|entries| {
            match entries.iter().all(|(_, entry)| self.may_have(entry.seqno)) {
                true => Ok(entries),
                false => Err(self.table.damage(block, IMPOSSIBLE_SEQNOS)),
            }
        });
        match entries {
            Ok(mut entries) => {
                entries.retain(|(key, _)| *key >= smallest);
                Some(entries)
            }
            Err(error) => {
                lost.note(&error, start, end, seqno_lost_max(known));
                None
            }
        }
    }
}

/// The newest write to each key, ascending by key.
pub(super) struct Newest<'a> {
    tables: Vec<Cursor<'a>>,
    journal: btree_map::IntoIter<(Bytes, Reverse<SeqNo>), Entry>,
    /// The next of each source, by internal order; the journal is the last source.
    heads: BTreeMap<(Bytes, Reverse<SeqNo>, usize), Entry>,
    /// What could be read at first and can't any more.
    pub(super) lost: Lost,
    bytes_read: u64,
}

/// A way through a table.
struct Cursor<'a> {
    source: &'a Source,
    next_block: usize,
    entries: vec::IntoIter<(Bytes, Entry)>,
}

impl<'a> Newest<'a> {
    pub(super) fn new(tables: &'a [Source], journal: JournalWrites) -> Newest<'a> {
        let cursor = |source| Cursor { source, next_block: 0, entries: Vec::new().into_iter() };
        let mut newest = Newest {
            tables: tables.iter().map(cursor).collect(),
            journal: journal.into_iter(),
            heads: BTreeMap::new(),
            lost: Lost::default(),
            bytes_read: 0,
        };
        (0..=tables.len()).for_each(|source| newest.advance(source));
        newest
    }

    /// Bytes of blocks read since this was last asked.
    pub(super) fn take_bytes_read(&mut self) -> u64 {
        std::mem::take(&mut self.bytes_read)
    }

    fn advance(&mut self, source: usize) {
        let Some(cursor) = self.tables.get_mut(source) else {
            if let Some(((key, seqno), entry)) = self.journal.next() {
                self.heads.insert((key, seqno, source), entry);
            }
            return;
        };
        loop {
            if let Some((key, entry)) = cursor.entries.next() {
                self.heads.insert((key, Reverse(entry.seqno), source), entry);
                return;
            }
            if cursor.next_block == cursor.source.table.block_count() {
                return;
            }
            let block = cursor.next_block;
            cursor.next_block += 1;
            if cursor.source.lost_blocks.contains(&block) {
                continue;
            }
            let entries = cursor.source.entries(block, &mut self.lost);
            cursor.entries = entries.unwrap_or_default().into_iter();
            self.bytes_read += cursor.source.table.block_bytes(block);
        }
    }
}

impl Iterator for Newest<'_> {
    type Item = (Bytes, Entry);

    fn next(&mut self) -> Option<(Bytes, Entry)> {
        let ((key, _, source), newest) = self.heads.pop_first()?;
        self.advance(source);
        while let Some(head) = self.heads.first_entry()
            && head.key().0 == key
        {
            let ((_, _, source), _) = head.remove_entry();
            self.advance(source);
        }
        Some((key, newest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes a block that begins with a key, and is before another.
    fn note(lost: &mut Lost, start: u8, next: u8, seqno: SeqNo) {
        let error = Error::corruption(Path::new("table"), 0, "damage");
        lost.note(&error, &[start], Included(&[next]), seqno);
    }

    /// A table without one block that can be read had half a kilobyte of memory for each.
    #[test]
    fn blocks_side_by_side_that_can_not_be_read_are_one_range() {
        let mut lost = Lost::default();
        (0..200).for_each(|block| note(&mut lost, block, block + 1, 7));
        assert_eq!(lost.ranges.len(), 1);
        let ranges = lost.ranges();
        assert_eq!([0, 100, 200, 201].map(|key| ranges.cover(&[key], SEQNO_MAX)), [7, 7, 7, 0]);
        // Not behind a gap, nor of another table.
        note(&mut lost, 210, 211, 7);
        note(&mut lost, 210, 220, 8);
        let ranges = lost.ranges();
        assert_eq!([205, 210, 211, 215].map(|key| ranges.cover(&[key], SEQNO_MAX)), [0, 8, 8, 8]);
        assert_eq!((lost.ranges.len(), ranges.len()), (3, 3));
    }

    /// They were looked through for each key.
    #[test]
    fn what_is_lost_before_a_key_is_forgotten() {
        let mut lost = Lost::default();
        (0..200).step_by(4).for_each(|block| note(&mut lost, block, block + 1, 7));
        let found =
            [1, 2, 100, 103, 197, 198].map(|key| (lost.newest_lost(&[key]), lost.ranges.len()));
        assert_eq!(found, [(7, 50), (0, 49), (7, 25), (0, 24), (7, 1), (0, 0)]);
        assert!(!lost.errors.is_empty());
    }
}
