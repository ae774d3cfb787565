//! A table as a version sees it: its figures, the part of it that is visible, its handle.
//!
//! A compaction works on a slice of the key space. A table that reaches beyond the slice's right end
//! stays in its run with its smallest bound raised to that end. So what is visible of a table may be
//! narrower than its file; nothing outside the visible bounds may be read.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::key::{self, KEY_BYTES_MAX};
use crate::obsolete::FileGuard;
use crate::range_tombstone::RangeTombstone;
use crate::sstable::{Properties, Table};

/// What is known of a table without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMeta {
    /// Number of the file.
    pub number: u64,
    /// Figures of the whole file, whatever part of it is visible.
    pub properties: Arc<Properties>,
    /// First user key visible; a compaction may have raised it above the file's own.
    pub smallest: Bytes,
    /// Last user key visible.
    pub largest: Bytes,
    /// Whether `largest` itself is not in the table: it is the end of a deleted range.
    pub largest_exclusive: bool,
}

impl TableMeta {
    /// A table all of which is visible.
    pub fn new(number: u64, properties: Arc<Properties>) -> TableMeta {
        TableMeta {
            number,
            smallest: properties.smallest.clone(),
            largest: properties.largest.clone(),
            largest_exclusive: properties.largest_exclusive,
            properties,
        }
    }

    /// The same table with only the keys from `smallest` on visible.
    pub fn clip(&self, smallest: Bytes) -> TableMeta {
        TableMeta { smallest, ..self.clone() }
    }

    /// Whether less than the whole file is visible.
    pub fn is_clipped(&self) -> bool {
        self.smallest != self.properties.smallest
    }

    /// Whether every visible key is below `key`.
    #[inline]
    pub fn ends_by(&self, key: &[u8]) -> bool {
        match self.largest_exclusive {
            true => self.largest[..] <= *key,
            false => self.largest[..] < *key,
        }
    }

    /// The smallest key above every visible one. No longer than a key may be, so that deleted ranges
    /// can be cut there, but for the largest key of all, which no range reaches beyond.
    pub fn end(&self) -> Bytes {
        if self.largest_exclusive {
            return self.largest.clone();
        }
        if self.largest.len() >= KEY_BYTES_MAX
            && let Some(end) = key::prefix_end(&self.largest)
        {
            return end.into();
        }
        let mut end = Vec::with_capacity(self.largest.len() + 1);
        end.extend_from_slice(&self.largest);
        end.push(0);
        end.into()
    }

    /// Whether `user_key` is within the visible bounds.
    #[inline]
    pub fn covers(&self, user_key: &[u8]) -> bool {
        self.smallest[..] <= *user_key && !self.ends_by(user_key)
    }

    /// Whether a key of `[start, end)` may be visible; `None` is unbounded.
    pub fn overlaps(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        !start.is_some_and(|start| self.ends_by(start))
            && end.is_none_or(|end| self.smallest[..] < *end)
    }

    /// Bytes of the file, visible or not.
    pub fn bytes(&self) -> u64 {
        self.properties.file_bytes
    }

    /// Bytes of the file and of the journal values that it points at.
    pub fn weight(&self) -> u64 {
        let values = self.properties.segment_refs.iter().map(|segment| segment.bytes);
        values.fold(self.properties.file_bytes, u64::saturating_add)
    }
}

/// A table of a version. Clipped and whole values of one table share its handle and its guard.
#[derive(Clone)]
pub struct LiveTable {
    /// Its figures and what is visible of it.
    pub meta: TableMeta,
    /// The open table; `None` before the store has opened it.
    pub table: Option<Arc<Table>>,
    /// Keeps the file on disk; `None` before the store has opened it.
    pub guard: Option<Arc<FileGuard>>,
}

impl LiveTable {
    /// A table that has not been opened.
    pub fn unopened(meta: TableMeta) -> LiveTable {
        LiveTable { meta, table: None, guard: None }
    }

    /// The open table. Requires: the store has opened it.
    #[inline]
    pub fn table(&self) -> &Arc<Table> {
        self.table.as_ref().expect("a table that is read is open")
    }

    /// Whether so much has expired that it should be written anew, or can't be read. It takes one of `looks` to find
    /// out for the first time, and without one the answer is no until all has.
    pub fn is_largely_expired(&self, now_ms: u64, looks: &Cell<u32>) -> bool {
        let Properties { expiring, expires_at_ms_min, expires_at_ms_max, .. } = *self.properties;
        let is_enough = |table: &Arc<Table>| {
            let known = table.largely_expired_if_known();
            let at_ms = known.or_else(|| {
                looks.set(looks.get().checked_sub(1)?);
                Some(table.largely_expired_at_ms())
            });
            at_ms.is_some_and(|at_ms| at_ms <= now_ms)
        };
        let has_begun = expiring > 0 && expires_at_ms_min <= now_ms;
        has_begun && (expires_at_ms_max <= now_ms || self.table.as_ref().is_some_and(is_enough))
    }

    /// When some of it expires that it matters to look at again.
    pub fn expiries(&self) -> impl Iterator<Item = u64> {
        let properties = &self.properties;
        let known = self.table.as_ref().and_then(|table| table.largely_expired_if_known());
        [properties.expires_at_ms_min, properties.expires_at_ms_max].into_iter().chain(known)
    }

    /// The deleted ranges within the visible bounds.
    pub fn range_tombstones(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.table().range_tombstones().iter().cloned().filter_map(|mut tombstone| {
            if tombstone.start < self.smallest {
                tombstone.start = self.smallest.clone();
            }
            (tombstone.start < tombstone.end).then_some(tombstone)
        })
    }
}

impl std::ops::Deref for LiveTable {
    type Target = TableMeta;

    fn deref(&self) -> &TableMeta {
        &self.meta
    }
}

impl fmt::Debug for LiveTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.smallest.escape_ascii(), self.largest.escape_ascii());
        write!(f, "{}:{from}-{to}{}", self.number, if self.largest_exclusive { ")" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(largest_exclusive: bool) -> TableMeta {
        let properties = Properties {
            smallest: Bytes::from("b"),
            largest: Bytes::from("f"),
            largest_exclusive,
            ..Properties::default()
        };
        TableMeta::new(1, Arc::new(properties))
    }

    #[test]
    fn only_what_is_visible_is_covered() {
        let whole = table(false);
        assert!(whole.covers(b"b") && whole.covers(b"f") && !whole.covers(b"a"));
        assert!(!whole.covers(b"f\0"));
        assert!(!table(true).covers(b"f"));
        let clipped = whole.clip(Bytes::from("d"));
        assert!(clipped.is_clipped() && !whole.is_clipped());
        assert!(!clipped.covers(b"c") && clipped.covers(b"d"));
    }

    #[test]
    fn overlap_counts_the_start_and_not_the_end() {
        let whole = table(false);
        for (start, end, expected) in [
            (None, None, true),
            (None, Some("b"), false),
            (None, Some("b\0"), true),
            (Some("f"), None, true),
            (Some("f\0"), None, false),
            (Some("c"), Some("d"), true),
        ] {
            let found = whole.overlaps(start.map(str::as_bytes), end.map(str::as_bytes));
            assert_eq!(found, expected, "{start:?} {end:?}");
        }
        assert!(!table(true).overlaps(Some(b"f"), None));
        assert_eq!(table(true).end(), "f");
        assert_eq!(whole.end(), "f\0");
    }

    #[test]
    fn the_end_is_a_key_itself() {
        let of = |largest: Vec<u8>| {
            let largest = Bytes::from(largest);
            TableMeta::new(1, Arc::new(Properties { largest, ..Properties::default() })).end()
        };
        assert_eq!(of(b"k".to_vec()), "k\0");
        let mut longest = vec![b'k'; KEY_BYTES_MAX];
        let end = of(longest.clone());
        assert_eq!(end.len(), KEY_BYTES_MAX);
        assert_eq!(end[KEY_BYTES_MAX - 1], b'l');
        longest[KEY_BYTES_MAX - 1] = 0xff;
        assert_eq!(of(longest).len(), KEY_BYTES_MAX - 1);
        assert!(of(vec![0xff; KEY_BYTES_MAX]) > vec![0xff; KEY_BYTES_MAX]);
    }
}
