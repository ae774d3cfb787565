//! The writes of a group as memtables take them.
//!
//! They are decoded from the same bytes whether these were just written or are replayed, so that the two
//! can't differ.

use super::group_meta::{Place, RecordEntry};
use crate::head::{BodyRef, EntryRef};
use crate::key::{SeqNo, ValueKind};

/// One write, as the memtable takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<'a> {
    /// A key was set or deleted.
    Entry {
        /// The user key.
        key: &'a [u8],
        /// The new version.
        entry: EntryRef<'a>,
    },
    /// A range of keys was deleted.
    DeleteRange {
        /// Its first key.
        start: &'a [u8],
        /// The key behind its last.
        end: &'a [u8],
        /// Number of the write.
        seqno: SeqNo,
    },
}

/// Where the values that are held inline are found.
#[derive(Debug, Clone, Copy)]
pub(super) enum InlineValues<'a> {
    /// In a list of all values of the group.
    Listed(&'a [&'a [u8]]),
    /// One after another, those that are pointed at left out.
    Packed(&'a [u8]),
}

/// The writes of one group, in order.
#[derive(Debug, Clone)]
pub struct Changes<'a> {
    meta: &'a [u8],
    /// What is left of it.
    inline: InlineValues<'a>,
    segment: u64,
    values_offset: u64,
    written_at_ms: u64,
    next_seqno: SeqNo,
    remaining: u32,
    place: Place,
}

impl<'a> Changes<'a> {
    /// The changes of the group in `segment` whose value section is at `values_offset`.
    ///
    /// Requires: `decode_group` accepts `meta`, and `inline` holds the values of its `Put`s.
    pub(super) fn new(
        meta: &'a [u8],
        inline: InlineValues<'a>,
        segment: u64,
        values_offset: u64,
        (next_seqno, written_at_ms, remaining): (SeqNo, u64, u32),
    ) -> Changes<'a> {
        let place = Place::default();
        Changes {
            meta,
            inline,
            segment,
            values_offset,
            written_at_ms,
            next_seqno,
            remaining,
            place,
        }
    }

    fn body(&mut self, entry: &RecordEntry) -> Option<BodyRef<'a>> {
        if !entry.is_put() {
            return Some(BodyRef::Delete);
        }
        let value = match &mut self.inline {
            InlineValues::Listed(values) => {
                let (first, rest) = values.split_first()?;
                *values = rest;
                *first
            }
            InlineValues::Packed(values) if entry.kind == ValueKind::Put => {
                let (first, rest) = values.split_at_checked(entry.value_bytes as usize)?;
                *values = rest;
                first
            }
            InlineValues::Packed(_) => &[],
        };
        Some(entry.body(value, self.segment, self.values_offset))
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Change<'a>;

    #[inline]
    fn next(&mut self) -> Option<Change<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        let entry = self.place.decode_entry(self.meta)?;
        let seqno = self.next_seqno;
        self.next_seqno += 1;
        let key = &self.meta[entry.key.clone()];
        if entry.kind == ValueKind::DeleteRange {
            let end = &self.meta[entry.range_end];
            return Some(Change::DeleteRange { start: key, end, seqno });
        }
        let body = self.body(&entry)?;
        let entry = EntryRef {
            seqno,
            written_at_ms: self.written_at_ms,
            expires_at_ms: entry.expires_at_ms,
            attributes: &self.meta[entry.attributes],
            body,
        };
        Some(Change::Entry { key, entry })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining as usize, Some(self.remaining as usize))
    }
}
