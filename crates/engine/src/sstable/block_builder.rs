//! Makes a data block of entries in internal order.
//!
//! The shared prefix and the smallest SeqNo, which every entry is written against, are known only at a
//! block's end: entries are held back until then, what doesn't depend on it encoded already.

use super::block::{ENTRIES_MAX, HAS_ATTRIBUTES, HAS_EXPIRY, HEADER_BYTES};
use crate::coding::{Encoder, append, put_bytes, put_varint, varint_len};
use crate::head::{BodyRef, EntryRef};
use crate::key::{self, SeqNo};

/// Collects the entries of one block.
#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    pending: Vec<Pending>,
    /// The keys, one after the other.
    keys: Vec<u8>,
    /// What follows the written-at of each entry, encoded.
    tails: Vec<u8>,
    /// How many bytes all keys start with.
    prefix_bytes: usize,
    span: Span,
}

#[derive(Debug)]
struct Pending {
    flags: u8,
    key_end: usize,
    tail_end: usize,
    seqno: SeqNo,
    written_at_ms: u64,
}

/// From when entries are, which says how long their differences may be.
#[derive(Debug, Default, Clone, Copy)]
struct Span {
    seqnos: (u64, u64),
    written_at_ms: (u64, u64),
    /// Bytes of an entry beside its key and tail, at most: follows from the two above.
    fixed_bytes: usize,
}

impl Span {
    fn new(seqnos: (u64, u64), written_at_ms: (u64, u64)) -> Span {
        let deltas =
            varint_len(seqnos.1 - seqnos.0) + varint_len(written_at_ms.1 - written_at_ms.0);
        // The offset, the flags, the suffix's length.
        Span { seqnos, written_at_ms, fixed_bytes: 2 + 1 + 2 + deltas }
    }

    /// Of one entry.
    fn of(entry: &EntryRef<'_>) -> Span {
        Span::new((entry.seqno, entry.seqno), (entry.written_at_ms, entry.written_at_ms))
    }

    #[inline]
    fn holds(&self, entry: &EntryRef<'_>) -> bool {
        let (seqnos, times) = (&self.seqnos, &self.written_at_ms);
        (seqnos.0..=seqnos.1).contains(&entry.seqno)
            && (times.0..=times.1).contains(&entry.written_at_ms)
    }

    /// One that holds an entry more.
    #[cold]
    fn widened(&self, entry: &EntryRef<'_>) -> Span {
        let widen = |(min, max): (u64, u64), value: u64| (min.min(value), max.max(value));
        Span::new(widen(self.seqnos, entry.seqno), widen(self.written_at_ms, entry.written_at_ms))
    }
}

impl BlockBuilder {
    /// Entries held.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether no entry is held.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The first user key. Requires: not empty.
    pub(super) fn first_key(&self) -> &[u8] {
        &self.keys[..self.pending[0].key_end]
    }

    /// The last user key; `None` when no entry is held.
    #[inline]
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        let [before @ .., last] = &self.pending[..] else { return None };
        let start = before.last().map_or(0, |entry| entry.key_end);
        Some(&self.keys[start..last.key_end])
    }

    /// Bytes of the block as it is now, rounded up.
    pub(super) fn bytes(&self) -> usize {
        let (keys, tails) = (self.keys.len(), self.tails.len());
        bytes_at_most(self.len(), self.prefix_bytes, self.span.fixed_bytes, keys, tails)
    }

    /// Takes an entry if it fits a block of `block_bytes`; whether it did. An empty block takes any entry.
    /// Requires: it follows the one before in internal order.
    pub(super) fn add(
        &mut self,
        user_key: &[u8],
        entry: &EntryRef<'_>,
        block_bytes: usize,
    ) -> bool {
        let (prefix_bytes, span) = match self.len() {
            0 => (user_key.len(), Some(Span::of(entry))),
            // Keys ascend, so what the first and the last share, all share. The first few entries widen
            // the span, the others hardly ever.
            _ => (
                key::common_prefix(&self.keys[..self.prefix_bytes], user_key),
                (!self.span.holds(entry)).then(|| self.span.widened(entry)),
            ),
        };
        let fixed_bytes = span.as_ref().unwrap_or(&self.span).fixed_bytes;
        let keys = self.keys.len() + user_key.len();
        let tails = self.tails.len() + tail_bytes(entry);
        let bytes = bytes_at_most(self.len() + 1, prefix_bytes, fixed_bytes, keys, tails);
        let fits = self.len() < ENTRIES_MAX && bytes <= block_bytes;
        if !fits && !self.is_empty() {
            return false;
        }
        self.prefix_bytes = prefix_bytes;
        if let Some(span) = span {
            self.span = span;
        }
        append(&mut self.keys, user_key);
        let mut flags = entry.kind() as u8;
        if entry.expires_at_ms != 0 {
            flags |= HAS_EXPIRY;
            put_varint(&mut self.tails, entry.expires_at_ms);
        }
        if !entry.attributes.is_empty() {
            flags |= HAS_ATTRIBUTES;
            put_bytes(&mut self.tails, entry.attributes);
        }
        match &entry.body {
            BodyRef::Inline(value) => put_bytes(&mut self.tails, value),
            BodyRef::Ref(pointer) => {
                put_varint(&mut self.tails, pointer.segment);
                put_varint(&mut self.tails, pointer.offset);
                put_varint(&mut self.tails, u64::from(pointer.length));
                self.tails.extend_from_slice(&pointer.checksum.to_le_bytes());
            }
            BodyRef::Delete => {}
        }
        self.pending.push(Pending {
            flags,
            key_end: self.keys.len(),
            tail_end: self.tails.len(),
            seqno: entry.seqno,
            written_at_ms: entry.written_at_ms,
        });
        true
    }

    /// Appends the block to `out` and empties the builder. Requires: not empty.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let (count, prefix) = (self.len(), self.prefix_bytes);
        let (seqno_min, written_at_ms_min) = (self.span.seqnos.0, self.span.written_at_ms.0);
        let start = out.len();
        out.resize(start + self.bytes(), 0);
        let mut block = Encoder::new(&mut out[start..]);
        block.put(&(count as u16).to_le_bytes());
        block.put(&(prefix as u16).to_le_bytes());
        block.put(&seqno_min.to_le_bytes());
        block.put(&written_at_ms_min.to_le_bytes());
        block.put(&self.keys[..prefix]);
        let mut offset_at = block.position();
        block.skip(2 * count);
        let (mut key_start, mut tail_start) = (0, 0);
        for entry in &self.pending {
            let offset =
                u16::try_from(block.position()).expect("entries of a block start below 64 KiB");
            block.put_at(offset_at, offset.to_le_bytes());
            offset_at += 2;
            let suffix = key_start + prefix..entry.key_end;
            block.put(&[entry.flags]);
            block.put_varint(suffix.len() as u64);
            block.put_front(&self.keys[suffix.start..], suffix.len());
            block.put_varint(entry.seqno - seqno_min);
            block.put_varint(entry.written_at_ms - written_at_ms_min);
            block.put(&self.tails[tail_start..entry.tail_end]);
            (key_start, tail_start) = (entry.key_end, entry.tail_end);
        }
        let bytes = block.position();
        out.truncate(start + bytes);
        self.pending.clear();
        self.keys.clear();
        self.tails.clear();
    }
}

/// Bytes of a block at most: differences are counted at their largest, suffix lengths with 2 bytes.
#[inline]
fn bytes_at_most(
    count: usize,
    prefix_bytes: usize,
    fixed_bytes: usize,
    key_bytes: usize,
    tail_bytes: usize,
) -> usize {
    HEADER_BYTES + prefix_bytes + count * fixed_bytes + key_bytes - count * prefix_bytes
        + tail_bytes
}

#[inline]
fn prefixed_bytes(len: usize) -> usize {
    varint_len(len as u64) + len
}

/// Bytes of an entry behind its written-at.
#[inline]
fn tail_bytes(entry: &EntryRef<'_>) -> usize {
    let expiry = if entry.expires_at_ms == 0 { 0 } else { varint_len(entry.expires_at_ms) };
    let attributes =
        if entry.attributes.is_empty() { 0 } else { prefixed_bytes(entry.attributes.len()) };
    let body = match &entry.body {
        BodyRef::Inline(value) => prefixed_bytes(value.len()),
        BodyRef::Ref(pointer) => {
            varint_len(pointer.segment)
                + varint_len(pointer.offset)
                + varint_len(u64::from(pointer.length))
                + 4
        }
        BodyRef::Delete => 0,
    };
    expiry + attributes + body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(value: &[u8]) -> EntryRef<'_> {
        EntryRef {
            seqno: 1,
            written_at_ms: 1001,
            expires_at_ms: 0,
            attributes: &[],
            body: BodyRef::Inline(value),
        }
    }

    #[test]
    fn a_block_takes_64_entries_or_its_size() {
        let mut builder = BlockBuilder::default();
        let big = put(&[0; 40_000]);
        let small = put(b"");
        assert!(builder.add(b"k", &big, 256), "an empty block takes any entry");
        let mut builder = BlockBuilder::default();
        for number in 0..ENTRIES_MAX as u8 {
            assert!(builder.add(&[number], &small, 4096));
        }
        assert!(!builder.add(b"z", &small, 4096));
        assert_eq!(builder.len(), ENTRIES_MAX);
        let mut builder = BlockBuilder::default();
        assert!(builder.add(b"k", &small, 256));
        let before = builder.bytes();
        assert!(!builder.add(b"z", &put(&[0; 300]), 256));
        assert_eq!(builder.bytes(), before, "what doesn't fit changes nothing");
    }
}
