//! The meta section of a group's record: its entries, as they are written and read.
//!
//! Decoding arbitrary bytes never panics; it answers `None` when they can't be such a section.

use std::ops::Range;

use crate::coding::{Decoder, put_bytes, put_varint};
use crate::head::{BodyRef, ValuePointer};
use crate::key::{ATTRIBUTES_BYTES_MAX, INLINE_BYTES_MAX, ValueKind, check_key};

const KIND_MASK: u8 = 0x0f;
const HAS_EXPIRY: u8 = 0x10;
const HAS_ATTRIBUTES: u8 = 0x20;
/// Bytes of a put in the meta section beside key and attributes, at most.
pub(super) const PUT_HEAD_BYTES: usize = 1 + 2 + 5 + 4 + 10 + 2;

/// What a put has besides key and value.
#[derive(Debug, Clone, Copy)]
pub(super) struct PutHead<'a> {
    pub(super) expires_at_ms: u64,
    pub(super) attributes: &'a [u8],
}

/// Appends the meta of one put.
#[inline]
pub(super) fn encode_put(
    out: &mut Vec<u8>,
    kind: ValueKind,
    key: &[u8],
    value_bytes: u64,
    checksum: u32,
    head: PutHead<'_>,
) {
    let mut flags = kind as u8;
    if head.expires_at_ms != 0 {
        flags |= HAS_EXPIRY;
    }
    if !head.attributes.is_empty() {
        flags |= HAS_ATTRIBUTES;
    }
    out.push(flags);
    put_bytes(out, key);
    put_varint(out, value_bytes);
    out.extend_from_slice(&checksum.to_le_bytes());
    if head.expires_at_ms != 0 {
        put_varint(out, head.expires_at_ms);
    }
    if !head.attributes.is_empty() {
        put_bytes(out, head.attributes);
    }
}

/// Appends the meta of one deletion.
#[inline]
pub(super) fn encode_delete(out: &mut Vec<u8>, key: &[u8]) {
    out.push(ValueKind::Delete as u8);
    put_bytes(out, key);
}

/// Appends the meta of the deletion of a range.
pub(super) fn encode_delete_range(out: &mut Vec<u8>, start: &[u8], end: &[u8]) {
    out.push(ValueKind::DeleteRange as u8);
    put_bytes(out, start);
    put_bytes(out, end);
}

/// What an entry of this kind comes to: `value` if it is inline, which it is asked for then, or its place.
#[inline]
pub(super) fn body(kind: ValueKind, value: &[u8], place: ValuePointer) -> BodyRef<'_> {
    match kind {
        ValueKind::Put => BodyRef::Inline(value),
        ValueKind::PutRef => BodyRef::Ref(place),
        ValueKind::Delete | ValueKind::DeleteRange => BodyRef::Delete,
    }
}

/// One entry of a group, as places in its meta and value sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordEntry {
    /// What was done.
    pub kind: ValueKind,
    /// The key, or the first key of a range, in the meta section.
    pub key: Range<usize>,
    /// The end of a deleted range, in the meta section; else empty.
    pub range_end: Range<usize>,
    /// The attributes, in the meta section; else empty.
    pub attributes: Range<usize>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_at_ms: u64,
    /// Where the value starts in the value section; for a deletion, where it would.
    pub value_offset: u32,
    /// Bytes of the value.
    pub value_bytes: u32,
    /// CRC-32C of the value.
    pub checksum: u32,
}

impl RecordEntry {
    /// One that has nothing but a key.
    fn of_key(kind: ValueKind, key: Range<usize>) -> RecordEntry {
        RecordEntry {
            kind,
            key,
            range_end: 0..0,
            attributes: 0..0,
            expires_at_ms: 0,
            value_offset: 0,
            value_bytes: 0,
            checksum: 0,
        }
    }

    /// What it comes to, once the group's value section stands at `values_offset` of `segment`; `value` is
    /// asked for if it is inline.
    #[inline]
    pub(super) fn body<'a>(
        &self,
        value: &'a [u8],
        segment: u64,
        values_offset: u64,
    ) -> BodyRef<'a> {
        let place = ValuePointer {
            segment,
            offset: values_offset + u64::from(self.value_offset),
            length: self.value_bytes,
            checksum: self.checksum,
        };
        body(self.kind, value, place)
    }

    /// Whether the entry has a value.
    pub fn is_put(&self) -> bool {
        matches!(self.kind, ValueKind::Put | ValueKind::PutRef)
    }
}

/// The entries of a group's meta section; `None` unless they fill both sections exactly.
pub fn decode_group(meta: &[u8], count: u32, value_bytes: u32) -> Option<Vec<RecordEntry>> {
    let mut entries = Vec::with_capacity((count as usize).min(meta.len() / 3));
    let mut place = Place::default();
    for _ in 0..count {
        entries.push(place.decode_entry(meta)?);
    }
    (place.meta_at == meta.len() && place.value_at == value_bytes).then_some(entries)
}

/// How far decoding got in the two sections.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    meta_at: usize,
    value_at: u32,
}

impl Place {
    /// The entry at the place, which is behind it then.
    pub(super) fn decode_entry(&mut self, meta: &[u8]) -> Option<RecordEntry> {
        let base = self.meta_at;
        let mut fields = Decoder::new(meta.get(base..)?);
        let flags = fields.u8()?;
        let kind = ValueKind::from_u8(flags & KIND_MASK)?;
        let mut entry = RecordEntry {
            value_offset: self.value_at,
            ..RecordEntry::of_key(kind, decode_key(&mut fields, base)?)
        };
        let allowed = if entry.is_put() { HAS_EXPIRY | HAS_ATTRIBUTES } else { 0 };
        if flags & !KIND_MASK & !allowed != 0 {
            return None;
        }
        if kind == ValueKind::DeleteRange {
            entry.range_end = decode_key(&mut fields, base)?;
            if meta[entry.key.clone()] >= meta[entry.range_end.clone()] {
                return None;
            }
        }
        if entry.is_put() {
            entry.value_bytes = u32::try_from(fields.varint()?).ok()?;
            entry.checksum = fields.u32()?;
            // No table takes a longer one: the memtable that it came to would never be flushed.
            if kind == ValueKind::Put && entry.value_bytes as usize > INLINE_BYTES_MAX {
                return None;
            }
        }
        if flags & HAS_EXPIRY != 0 {
            entry.expires_at_ms = fields.varint()?;
        }
        if flags & HAS_ATTRIBUTES != 0 {
            entry.attributes = decode_range(&mut fields, base)?;
            if entry.attributes.len() > ATTRIBUTES_BYTES_MAX {
                return None;
            }
        }
        self.value_at = self.value_at.checked_add(entry.value_bytes)?;
        self.meta_at = base + fields.position();
        Some(entry)
    }
}

fn decode_range(fields: &mut Decoder<'_>, base: usize) -> Option<Range<usize>> {
    let len = fields.length_prefixed()?.len();
    let end = base + fields.position();
    Some(end - len..end)
}

fn decode_key(fields: &mut Decoder<'_>, base: usize) -> Option<Range<usize>> {
    let mut probe = fields.clone();
    check_key(probe.length_prefixed()?).ok()?;
    decode_range(fields, base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A longer one was replayed into a memtable that no flush could write to a table, one after another.
    #[test]
    fn an_inline_value_is_no_longer_than_a_table_takes() {
        let decodes = |kind: ValueKind, value_bytes: usize| {
            let mut meta = Vec::new();
            let head = PutHead { expires_at_ms: 0, attributes: &[] };
            encode_put(&mut meta, kind, b"key", value_bytes as u64, 7, head);
            decode_group(&meta, 1, value_bytes as u32).is_some()
        };
        assert!(decodes(ValueKind::Put, INLINE_BYTES_MAX));
        assert!(!decodes(ValueKind::Put, INLINE_BYTES_MAX + 1));
        assert!(decodes(ValueKind::PutRef, INLINE_BYTES_MAX + 1));
    }

    proptest! {
        #[test]
        fn any_meta_decodes_without_a_panic(
            mut meta in prop::collection::vec(any::<u8>(), 0..200),
            kind in 0u8..6,
            count in any::<u32>(),
            values in any::<u32>(),
        ) {
            let _ = decode_group(&meta, count, values);
            if let Some(first) = meta.first_mut() {
                *first = kind;
            }
            let _ = decode_group(&meta, count % 4, values);
        }
    }
}
