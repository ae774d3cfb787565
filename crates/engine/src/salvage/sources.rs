//! All that tables and journal tell of keys, as one sequence: of each key the newest write that can be read.
//!
//! What can't be read of a table is a range of keys with the number of the newest write that may have been there:
//! of a key in it, an older one may not be the last. Such ranges are held, and asked, as deleted ranges are.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::RangeInclusive;
use std::path::Path;
use std::vec;

use bytes::Bytes;

use crate::error::Error;
use crate::head::Entry;
use crate::key::{KEY_BYTES_MAX, SEQNO_MAX, SeqNo};
use crate::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::sstable::{Properties, SalvagedTable};
use crate::version::TableMeta;

/// The writes that the journal tells of, in internal order. Values are where their pointers say.
pub(super) type JournalWrites = BTreeMap<(Bytes, Reverse<SeqNo>), Entry>;

/// A table that counts, and what counts of it.
#[derive(Debug)]
pub(super) struct Source {
    table: SalvagedTable,
    smallest: Bytes,
    largest: Bytes,
    seqnos: RangeInclusive<SeqNo>,
    range_tombstones: u64,
    /// What could not be read when all of it was.
    lost_blocks: BTreeSet<usize>,
}

/// What can't be read, with the writes that are lost by it.
#[derive(Debug, Default)]
pub(super) struct Lost {
    ranges: Vec<RangeTombstone>,
    /// What was found.
    pub(super) errors: Vec<Error>,
}

impl Lost {
    /// Notes that writes up to `seqno_max` to the keys of `[start, last]` are lost.
    pub(super) fn note(&mut self, error: &Error, start: &[u8], last: &[u8], seqno_max: SeqNo) {
        let (from, to) = (start.escape_ascii(), last.escape_ascii());
        let what = format!("lost are writes to keys from \"{from}\" to \"{to}\"");
        self.errors.push(with_consequence(error, &what));
        let end = Bytes::from([last, &[0]].concat());
        let start = Bytes::copy_from_slice(start);
        self.ranges.push(RangeTombstone { start, end, seqno: seqno_max });
    }

    /// Notes that a table is lost, of which the manifest says this.
    pub(super) fn note_table(&mut self, error: &Error, meta: Option<&TableMeta>) {
        match meta {
            Some(meta) => {
                self.note(error, &meta.smallest, &meta.largest, meta.properties.seqno_max);
            }
            None => self.note(error, &[], &largest_key(), SEQNO_MAX),
        }
    }

    /// The ranges so far.
    pub(super) fn ranges(&self) -> RangeTombstones {
        RangeTombstones::new(self.ranges.iter().cloned())
    }

    /// The newest write to a key that may be lost, of few ranges; 0 for none.
    pub(super) fn newest_lost(&self, key: &[u8]) -> SeqNo {
        let lost = self.ranges.iter().filter(|range| range.start <= key && *key < range.end[..]);
        lost.map(|range| range.seqno).max().unwrap_or(0)
    }
}

/// No key is larger.
fn largest_key() -> Vec<u8> {
    vec![0xff; KEY_BYTES_MAX]
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

impl Source {
    /// What counts of a table, by what the manifest says of it, or without one by what it says itself. An error:
    /// it is not the table that the manifest means.
    pub(super) fn new(table: SalvagedTable, meta: Option<&TableMeta>) -> Result<Source, Error> {
        let own = table.properties().ok();
        let known: Option<&Properties> = meta.map(|meta| &*meta.properties).or(own);
        if let (Some(known), Some(own)) = (known, own)
            && known != own
        {
            return Err(Error::corruption(table.path(), 0, "this is another store's table"));
        }
        let smallest = meta.map(|meta| &meta.smallest).or(known.map(|known| &known.smallest));
        Ok(Source {
            smallest: smallest.cloned().unwrap_or_default(),
            largest: known.map_or_else(|| largest_key().into(), |known| known.largest.clone()),
            seqnos: known.map_or(0..=SEQNO_MAX, |known| known.seqno_min..=known.seqno_max),
            range_tombstones: known.map_or(u64::MAX, |known| known.range_tombstones),
            lost_blocks: BTreeSet::new(),
            table,
        })
    }

    /// Whether it would have a write to a key, if nothing has hidden it.
    pub(super) fn may_have(&self, key: &[u8], seqno: SeqNo) -> bool {
        let has_key = self.smallest[..] <= *key && *key <= self.largest[..];
        has_key && self.seqnos().is_some_and(|seqnos| seqnos.contains(&seqno))
    }

    /// The writes that may be in it, if that is known.
    pub(super) fn seqnos(&self) -> Option<&RangeInclusive<SeqNo>> {
        (*self.seqnos.end() < SEQNO_MAX).then_some(&self.seqnos)
    }

    /// Reads all of it; notes what can't be, and adds the ranges that it deletes. Tells of the bytes of each block.
    pub(super) fn survey(
        &mut self,
        lost: &mut Lost,
        deleted: &mut Vec<RangeTombstone>,
        read: &mut dyn FnMut(u64),
    ) {
        lost.errors.extend(self.table.check_index().err());
        lost.errors.extend(self.table.properties().err().cloned());
        match self.table.range_tombstones() {
            Ok(tombstones) => deleted.extend(tombstones.iter().cloned().map(|mut tombstone| {
                tombstone.start = tombstone.start.max(self.smallest.clone());
                tombstone
            })),
            Err(error) if self.range_tombstones > 0 => {
                lost.note(error, &self.smallest, &self.largest, *self.seqnos.end());
            }
            Err(error) => lost.errors.push(error.clone()),
        }
        for block in 0..self.table.block_count() {
            if self.entries(block, lost).is_none() {
                self.lost_blocks.insert(block);
            }
            read(self.table.block_bytes(block));
        }
    }

    /// What counts of a block; `None`, and noted, if it can't be read.
    fn entries(&self, block: usize, lost: &mut Lost) -> Option<Vec<(Bytes, Entry)>> {
        let start = self.table.first_key(block).max(&self.smallest);
        let next = (block + 1 < self.table.block_count()).then(|| self.table.first_key(block + 1));
        let last = next.unwrap_or(&self.largest);
        if last < &self.smallest[..] {
            return Some(Vec::new());
        }
        match self.table.entries(block) {
            Ok(mut entries) => {
                entries.retain(|(key, _)| *key >= self.smallest);
                Some(entries)
            }
            Err(error) => {
                lost.note(&error, start, last, *self.seqnos.end());
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
