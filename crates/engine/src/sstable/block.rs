//! A data block: up to 64 entries in internal order, any of which is decoded without its neighbours.
//!
//! ```text
//! u16 count | u16 prefix length | u64 smallest SeqNo | u64 smallest written-at
//! shared prefix | count x u16 offsets | entries
//! ```
//!
//! Instead of restart points there is an offset for every entry, so that the point index can name one
//! by its slot. Decoding arbitrary bytes never panics; it answers `None` when they can't be a block.

use std::cmp::Ordering;
use std::ops::Range;

use crate::coding::Decoder;
use crate::head::{BodyRef, EntryRef, ValuePointer};
use crate::key::{self, INLINE_BYTES_MAX, KEY_BYTES_MAX, SEQNO_MAX, SeqNo, ValueKind};
use crate::vfs::prefetch::{prefetch, prefetch_range};

/// Most entries of a block: a slot has 6 bits in the point index.
pub(super) const ENTRIES_MAX: usize = 64;

/// Largest block that holds more than one entry: offsets have 16 bits.
pub(super) const BLOCK_BYTES_MAX: usize = 32 << 10;

pub(super) const HEADER_BYTES: usize = 20;

pub(super) const HAS_EXPIRY: u8 = 0x10;
pub(super) const HAS_ATTRIBUTES: u8 = 0x20;
const KIND_MASK: u8 = 0x0f;

/// Bytes of an entry that a look-up asks for ahead.
const PREFETCHED_BYTES: usize = 256;

/// Bytes by which an entry may stand elsewhere than its neighbours' size says.
const SLACK_BYTES: usize = 16;

/// Says what is longer, or shorter, than what a sound block holds. Reads, which are many, don't ask.
#[inline]
pub(super) fn check_lengths(user_key: &[u8], body: &BodyRef<'_>) -> Result<(), &'static str> {
    if !(1..=KEY_BYTES_MAX).contains(&user_key.len()) {
        return Err("a key of an impossible length");
    }
    match body {
        BodyRef::Inline(value) if value.len() > INLINE_BYTES_MAX => {
            Err("an inline value of an impossible length")
        }
        _ => Ok(()),
    }
}

/// Whether an entry is of another key than the one before it, of the key and with the number that are given. Says
/// so where it doesn't follow that one in internal order.
#[inline]
pub(super) fn check_order(
    last_key: &[u8],
    last_seqno: SeqNo,
    user_key: &[u8],
    seqno: SeqNo,
) -> Result<bool, &'static str> {
    let new_key = key::is_before(last_key, user_key);
    match new_key || last_key == user_key && seqno < last_seqno {
        true => Ok(new_key),
        false => Err("entries are out of order"),
    }
}

/// A data block, read in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block<'a> {
    bytes: &'a [u8],
    header: BlockHeader,
}

/// Where the entries of a table's blocks are, about: so that a look-up need not wait for the block's front
/// before it asks the processor for the entry. Where entries differ much in size it asks for others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spacing {
    entries_per_byte: f32,
    prefix_bytes: usize,
}

impl Spacing {
    /// Of blocks with so many bytes and entries in all, whose keys begin with `prefix_bytes` that are equal.
    pub(super) fn new(bytes: u64, entries: u64, prefix_bytes: usize) -> Spacing {
        Spacing { entries_per_byte: entries as f32 / bytes.max(1) as f32, prefix_bytes }
    }

    /// Asks the processor for the entry in `slot` of a block of so many bytes, and for what leads to it.
    #[inline]
    pub(super) fn prefetch(&self, front: *const u8, block_bytes: usize, slot: usize) {
        prefetch(front);
        prefetch(front.wrapping_add(self.offsets_at() + 2 * slot));
        let entry = self.entry(block_bytes, slot);
        prefetch_range(front.wrapping_add(entry.start), entry.len());
    }

    /// Where the front of an entry probably is, in a block of so many bytes.
    #[inline]
    fn entry(&self, block_bytes: usize, slot: usize) -> Range<usize> {
        let count = (block_bytes as f32 * self.entries_per_byte).round().max(1.0);
        let front = self.offsets_at() as f32 + 2.0 * count;
        let entry_bytes = (block_bytes as f32 - front) / count;
        let at = (front + entry_bytes * slot as f32) as usize;
        let end = at + (entry_bytes as usize).min(PREFETCHED_BYTES) + SLACK_BYTES;
        at.saturating_sub(SLACK_BYTES)..end
    }

    #[inline]
    fn offsets_at(&self) -> usize {
        HEADER_BYTES + self.prefix_bytes
    }
}

/// The decoded front of a block, kept by a cursor so that it is decoded once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockHeader {
    count: usize,
    prefix_bytes: usize,
    seqno_min: SeqNo,
    written_at_ms_min: u64,
}

impl<'a> Block<'a> {
    /// Reads the front of a block. Entries are checked when they are decoded.
    #[inline]
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Block<'a>> {
        let mut decoder = Decoder::new(bytes);
        let header = BlockHeader {
            count: usize::from(decoder.u16()?),
            prefix_bytes: usize::from(decoder.u16()?),
            seqno_min: decoder.u64()?,
            written_at_ms_min: decoder.u64()?,
        };
        let offsets = decoder.remaining().checked_sub(header.prefix_bytes)?;
        let plausible =
            header.count > 0 && header.count <= ENTRIES_MAX && offsets >= 2 * header.count;
        plausible.then_some(Block { bytes, header })
    }

    /// The block of bytes whose front was read before.
    #[inline]
    pub(super) fn with_header(bytes: &'a [u8], header: BlockHeader) -> Block<'a> {
        Block { bytes, header }
    }

    /// The decoded front.
    pub(super) fn header(&self) -> BlockHeader {
        self.header
    }

    /// Number of entries, at least 1.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.header.count
    }

    /// How many bytes all keys start with.
    #[inline]
    pub(super) fn prefix_bytes(&self) -> usize {
        self.header.prefix_bytes
    }

    /// What all keys start with.
    #[inline]
    pub(super) fn prefix(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..HEADER_BYTES + self.header.prefix_bytes]
    }

    /// The entry in `slot`; `None` when there is none or it is malformed.
    #[inline]
    pub(super) fn entry(&self, slot: usize) -> Option<BlockEntry<'a>> {
        if slot >= self.header.count {
            return None;
        }
        let at = HEADER_BYTES + self.header.prefix_bytes + 2 * slot;
        let offset = u16::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?);
        let mut decoder = Decoder::new(self.bytes.get(usize::from(offset)..)?);
        let flags = decoder.u8()?;
        if flags & !(KIND_MASK | HAS_EXPIRY | HAS_ATTRIBUTES) != 0 {
            return None;
        }
        let suffix = decoder.length_prefixed()?;
        let seqno = self.header.seqno_min.checked_add(decoder.varint()?)?;
        if seqno > SEQNO_MAX {
            return None;
        }
        let tail = Tail { flags, at: usize::from(offset) + decoder.position() };
        Some(BlockEntry { suffix, seqno, tail })
    }

    /// The whole of an entry of this block; `None` when it is malformed. Called, it would write field by
    /// field what is then copied in wider pieces, which wait for the stores.
    #[inline(always)]
    pub(super) fn whole(&self, seqno: SeqNo, tail: Tail) -> Option<EntryRef<'a>> {
        let mut decoder = Decoder::new(self.bytes.get(tail.at..)?);
        let written_at_ms = self.header.written_at_ms_min.checked_add(decoder.varint()?)?;
        let expires_at_ms = if tail.flags & HAS_EXPIRY != 0 { decoder.varint()? } else { 0 };
        let attributes =
            if tail.flags & HAS_ATTRIBUTES != 0 { decoder.length_prefixed()? } else { &[] };
        let body = match ValueKind::from_u8(tail.flags & KIND_MASK)? {
            ValueKind::Put => BodyRef::Inline(decoder.length_prefixed()?),
            ValueKind::PutRef => BodyRef::Ref(ValuePointer {
                segment: decoder.varint()?,
                offset: decoder.varint()?,
                length: u32::try_from(decoder.varint()?).ok()?,
                checksum: decoder.u32()?,
            }),
            ValueKind::Delete => BodyRef::Delete,
            ValueKind::DeleteRange => return None,
        };
        Some(EntryRef { seqno, written_at_ms, expires_at_ms, attributes, body })
    }

    /// When an entry of this block expires, as `EntryRef::expiry`; `None` when it is malformed.
    #[inline(always)]
    pub(super) fn expiry(&self, tail: Tail) -> Option<Option<u64>> {
        if tail.flags & KIND_MASK == ValueKind::Delete as u8 {
            return Some(None);
        }
        if tail.flags & HAS_EXPIRY == 0 {
            return Some(Some(0));
        }
        noted_expiry(self.bytes, tail).map(Some)
    }

    /// The inline value of an entry of this block, which is one of that kind; `None` when it is malformed.
    #[inline]
    pub(super) fn inline_value(&self, tail: Tail) -> Option<&'a [u8]> {
        let mut decoder = Decoder::new(self.bytes.get(tail.at..)?);
        decoder.skip_varint()?;
        if tail.flags & HAS_EXPIRY != 0 {
            decoder.skip_varint()?;
        }
        if tail.flags & HAS_ATTRIBUTES != 0 {
            decoder.length_prefixed()?;
        }
        decoder.length_prefixed()
    }

    /// Whether the key of an entry of this block is `user_key`.
    #[inline]
    pub(super) fn key_is(&self, entry: &BlockEntry<'_>, user_key: &[u8]) -> bool {
        let split = self.header.prefix_bytes;
        user_key.len() == split + entry.suffix.len()
            && user_key[split..] == *entry.suffix
            && user_key[..split] == *self.prefix()
    }

    /// The first slot at or after (`user_key`, `seqno`) in internal order; `len` when all are before;
    /// `None` when an entry is malformed.
    pub(super) fn lower_bound(&self, user_key: &[u8], seqno: SeqNo) -> Option<usize> {
        let Some(suffix) = user_key.strip_prefix(self.prefix()) else {
            let all_before = user_key > self.prefix();
            return Some(if all_before { self.header.count } else { 0 });
        };
        let (mut low, mut high) = (0, self.header.count);
        while low < high {
            let middle = low.midpoint(high);
            let entry = self.entry(middle)?;
            match key::compare(entry.suffix, entry.seqno, suffix, seqno) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal | Ordering::Greater => high = middle,
            }
        }
        Some(low)
    }
}

/// The expiry that is in an entry's tail. Few entries have one, so it is no part of a scan's step.
#[inline(never)]
fn noted_expiry(bytes: &[u8], tail: Tail) -> Option<u64> {
    let mut decoder = Decoder::new(bytes.get(tail.at..)?);
    decoder.skip_varint()?;
    decoder.varint()
}

/// One entry of a block, decoded as far as its SeqNo.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockEntry<'a> {
    /// The user key behind the block's prefix.
    pub(super) suffix: &'a [u8],
    /// Number of the write.
    pub(super) seqno: SeqNo,
    /// The rest, for `Block::whole`.
    pub(super) tail: Tail,
}

/// Where an entry goes on behind its SeqNo, and what is there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tail {
    flags: u8,
    /// Offset in the block.
    at: usize,
}

impl Tail {
    /// Whether a value is there, and not in the journal.
    #[inline]
    pub(super) fn is_inline(self) -> bool {
        self.flags & KIND_MASK == ValueKind::Put as u8
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::head::{Body, Entry};
    use crate::sstable::block_builder::BlockBuilder;

    fn put(seqno: SeqNo, value: &[u8]) -> Entry {
        Entry {
            seqno,
            written_at_ms: 1000 + seqno,
            expires_at_ms: 0,
            attributes: Bytes::new(),
            body: Body::Inline(Bytes::copy_from_slice(value)),
        }
    }

    fn block(entries: &[(&[u8], Entry)]) -> Bytes {
        let mut builder = BlockBuilder::default();
        for (key, entry) in entries {
            assert!(builder.add(key, &entry.by_ref(), BLOCK_BYTES_MAX));
        }
        let bound = builder.bytes();
        let mut out = b"before".to_vec();
        builder.finish(&mut out);
        assert!(out.len() - 6 <= bound && builder.is_empty());
        Bytes::from(out).slice(6..)
    }

    #[test]
    fn entries_of_every_kind_round_trip() {
        let pointer = ValuePointer { segment: 1 << 40, offset: 300, length: u32::MAX, checksum: 7 };
        let entries: Vec<(&[u8], Entry)> = vec![
            (b"key", put(9, b"")),
            (b"key", Entry { body: Body::Delete, ..put(4, b"") }),
            (b"key1", Entry { body: Body::Ref(pointer), expires_at_ms: 5, ..put(SEQNO_MAX, b"") }),
            (b"key12", Entry { attributes: Bytes::from_static(b"{}"), ..put(3, b"value") }),
        ];
        let bytes = block(&entries);
        let block = Block::parse(&bytes).unwrap();
        assert_eq!((block.len(), block.prefix()), (4, &b"key"[..]));
        for (slot, (key, entry)) in entries.iter().enumerate() {
            let found = block.entry(slot).unwrap();
            assert!(block.key_is(&found, key));
            assert!(!block.key_is(&found, b"kez"));
            assert_eq!(block.whole(found.seqno, found.tail).unwrap(), entry.by_ref());
            assert_eq!(block.expiry(found.tail).unwrap(), entry.by_ref().expiry());
        }
        assert!(block.entry(4).is_none());
    }

    #[test]
    fn entries_of_like_size_are_found_where_they_are_guessed() {
        for (value_bytes, count) in [(8, 64), (100, 35), (1000, 8), (20_000, 1)] {
            let value = vec![7; value_bytes];
            let key = |slot: usize| format!("key {slot:06}");
            // Written in another order than that of the keys.
            let seqno = |slot: usize| 1 + (slot as u64 * 7919) % 10_007;
            let keys: Vec<_> = (0..count).map(key).collect();
            let entries: Vec<_> = keys
                .iter()
                .enumerate()
                .map(|(slot, key)| (key.as_bytes(), put(seqno(slot), &value)))
                .collect();
            let bytes = block(&entries);
            let spacing = Spacing::new(100 * bytes.len() as u64, 100 * count as u64, 7);
            let block = Block::parse(&bytes).unwrap();
            for slot in 0..count {
                let at = HEADER_BYTES + block.header.prefix_bytes + 2 * slot;
                let begins = usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
                let guess = spacing.entry(bytes.len(), slot);
                assert!(guess.contains(&begins), "{value_bytes}: {begins} in {guess:?}");
                assert!(guess.len() <= PREFETCHED_BYTES + 2 * SLACK_BYTES);
            }
        }
    }

    #[test]
    fn lower_bound_follows_internal_order() {
        let bytes = block(&[
            (b"abc", put(9, b"")),
            (b"abc", put(4, b"")),
            (b"abd", put(7, b"")),
            (b"abdx", put(1, b"")),
        ]);
        let block = Block::parse(&bytes).unwrap();
        for (key, seqno, slot) in [
            (&b"a"[..], 0, 0),
            (b"ab", SEQNO_MAX, 0),
            (b"abc", SEQNO_MAX, 0),
            (b"abc", 8, 1),
            (b"abc", 4, 1),
            (b"abc", 3, 2),
            (b"abd", 6, 3),
            (b"abdz", 6, 4),
            (b"ac", 6, 4),
            (b"aa", 6, 0),
        ] {
            assert_eq!(block.lower_bound(key, seqno), Some(slot), "{key:?} at {seqno}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, front in 0u8..5, prefix in 0u8..5) {
            if bytes.len() > 4 {
                bytes[..4].copy_from_slice(&[front, 0, prefix, 0]);
            }
            let bytes = Bytes::from(bytes);
            if let Some(block) = Block::parse(&bytes) {
                for slot in 0..block.len() + 1 {
                    if let Some(entry) = block.entry(slot) {
                        block.key_is(&entry, b"key");
                        let _ = block.whole(entry.seqno, entry.tail);
                        let _ = block.expiry(entry.tail);
                    }
                }
                block.lower_bound(b"key", 3);
            }
        }
    }
}
