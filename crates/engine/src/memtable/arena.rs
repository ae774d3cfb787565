//! Where a memtable keeps its records: memory that only grows, read while it is written.
//!
//! A record is written once, whole, and never changes; its number leads to it for as long as the
//! arena lives. One thread writes at a time; any number read what was published to them. Chunks
//! double in size, so that an empty memtable takes nothing and a large one a few allocations.
//!
//! A record, in native byte order, at a multiple of 8 bytes: `prev u32 | value length u32 |
//! seqno and kind u64 | written_at_ms u64 | expires_at_ms u64 | key length u16 | attributes length
//! u16 | zeros u32 | pointer (24 bytes, of a `PutRef` only) | key | attributes | value`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::chunk::{ALIGNMENT, Chunk, SpareChunks};
use crate::head::{BodyRef, EntryRef, ValuePointer};
use crate::key::{SeqNo, ValueKind};
use crate::vfs::prefetch::prefetch_range;

/// Bytes of the first chunk; each further one has twice the size of the one before.
const FIRST_CHUNK_BYTES: usize = 16 << 10;
/// Chunks of which 16 GiB could be made, more than any memtable comes to.
const CHUNKS: usize = 20;
/// A walk asks the processor for the record that is so many further on,
const WALKED_AHEAD: usize = 8;
/// and with it for so much of its key.
const WALKED_KEY_BYTES: usize = 16;
/// Of a key that is looked at behind its name so much is asked ahead.
const PREFETCHED_KEY_BYTES: usize = 32;
/// Of a record so much is asked of the processor ahead; it goes on by itself.
const PREFETCHED_BYTES: usize = 1 << 10;
const HEADER_BYTES: usize = 40;
const POINTER_BYTES: usize = 24;

/// A record's number. Zero is the first record's, so absence is told apart by who holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordRef(u32);

impl RecordRef {
    /// The number, below 2^32 - 1.
    pub(super) fn number(self) -> u32 {
        self.0
    }

    /// The record of a number that `number` gave.
    pub(super) fn from_number(number: u32) -> RecordRef {
        RecordRef(number)
    }
}

/// Memory that only grows.
#[derive(Debug)]
pub(super) struct Arena {
    chunks: [OnceLock<Chunk>; CHUNKS],
    /// Where chunks come from, and go in the end.
    spares: Arc<SpareChunks>,
    /// Where the next record may go, as a place in all chunks laid end to end.
    end: AtomicUsize,
}

/// The chunk that a place is in, and where in it.
fn locate(place: usize) -> (usize, usize) {
    let chunk = (place / FIRST_CHUNK_BYTES + 1).ilog2() as usize;
    (chunk, place - chunk_start(chunk))
}

/// Where a chunk starts, in all chunks laid end to end.
fn chunk_start(chunk: usize) -> usize {
    FIRST_CHUNK_BYTES * ((1 << chunk) - 1)
}

fn chunk_bytes(chunk: usize) -> usize {
    FIRST_CHUNK_BYTES << chunk
}

impl Drop for Arena {
    fn drop(&mut self) {
        let chunks = self.chunks.iter_mut().filter_map(OnceLock::take);
        chunks.for_each(|chunk| self.spares.give_back(chunk));
    }
}

impl Arena {
    /// An empty arena, which takes nothing yet.
    pub(super) fn new(spares: Arc<SpareChunks>) -> Arena {
        Arena { chunks: [const { OnceLock::new() }; CHUNKS], spares, end: AtomicUsize::new(0) }
    }

    /// Where its chunks come from.
    pub(super) fn spares(&self) -> &Arc<SpareChunks> {
        &self.spares
    }

    /// Adds a record whose older version, if it has one, is `prev`; it is published when this returns.
    /// Requires: one thread at a time.
    #[inline]
    pub(super) fn push(
        &self,
        key: &[u8],
        entry: &EntryRef<'_>,
        prev: Option<RecordRef>,
    ) -> RecordRef {
        let (kind, value) = match &entry.body {
            BodyRef::Inline(value) => (ValueKind::Put, *value),
            BodyRef::Ref(_) => (ValueKind::PutRef, &[][..]),
            BodyRef::Delete => (ValueKind::Delete, &[][..]),
        };
        // Absence is 0, so that numbers are one more than they are elsewhere.
        let prev = prev.map_or(0, |prev| prev.0 + 1);
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&prev.to_ne_bytes());
        header[4..8].copy_from_slice(&(value.len() as u32).to_ne_bytes());
        header[8..16].copy_from_slice(&(entry.seqno << 8 | kind as u64).to_ne_bytes());
        header[16..24].copy_from_slice(&entry.written_at_ms.to_ne_bytes());
        header[24..32].copy_from_slice(&entry.expires_at_ms.to_ne_bytes());
        header[32..34].copy_from_slice(&(key.len() as u16).to_ne_bytes());
        header[34..36].copy_from_slice(&(entry.attributes.len() as u16).to_ne_bytes());
        let parts = [key, entry.attributes, value];
        let BodyRef::Ref(pointer) = &entry.body else { return self.write(&header, &parts) };
        let mut with_pointer = [0; HEADER_BYTES + POINTER_BYTES];
        with_pointer[..HEADER_BYTES].copy_from_slice(&header);
        with_pointer[40..48].copy_from_slice(&pointer.segment.to_ne_bytes());
        with_pointer[48..56].copy_from_slice(&pointer.offset.to_ne_bytes());
        with_pointer[56..60].copy_from_slice(&pointer.length.to_ne_bytes());
        with_pointer[60..64].copy_from_slice(&pointer.checksum.to_ne_bytes());
        self.write(&with_pointer, &parts)
    }

    /// Inlined so that a header's fields go where they belong one by one.
    #[inline(always)]
    fn write<const N: usize>(&self, header: &[u8; N], parts: &[&[u8]; 3]) -> RecordRef {
        let filled = N + parts.iter().map(|part| part.len()).sum::<usize>();
        let bytes = filled.next_multiple_of(ALIGNMENT);
        let (mut number, mut offset) = locate(self.end.load(Ordering::Relaxed));
        while offset + bytes > chunk_bytes(number) {
            (number, offset) = (number + 1, 0);
        }
        let chunk = self.chunks[number].get_or_init(|| self.spares.take(chunk_bytes(number)));
        chunk.append(offset, header, parts, bytes);
        let place = chunk_start(number) + offset;
        self.end.store(place + bytes, Ordering::Release);
        RecordRef(u32::try_from(place / ALIGNMENT).expect("an arena stays below 32 GiB"))
    }

    /// The record of a number. Requires: its publication happened before.
    #[inline]
    pub(super) fn record(&self, record: RecordRef) -> Record<'_> {
        let (chunk, offset) = locate(record.0 as usize * ALIGNMENT);
        let chunk = self.chunks[chunk].get().expect("a record's chunk was made before it");
        Record { bytes: chunk.published(offset) }
    }

    /// Asks the processor for the front of a record that will soon be looked at.
    #[inline]
    pub(super) fn prefetch_front(&self, record: RecordRef) {
        // It stands across two lines more often than not.
        prefetch_range(self.record(record).bytes.as_ptr(), HEADER_BYTES);
    }

    /// Asks the processor for the key of a record that will soon be looked at, and what leads to it.
    #[inline]
    pub(super) fn prefetch_key(&self, record: RecordRef) {
        prefetch_range(self.record(record).bytes.as_ptr(), HEADER_BYTES + PREFETCHED_KEY_BYTES);
    }

    /// Asks the processor for a record that will soon be looked at, by what its front says of its size.
    #[inline]
    pub(super) fn prefetch(&self, record: RecordRef) {
        let record = self.record(record);
        prefetch_range(record.bytes.as_ptr(), record.bytes_in_all().min(PREFETCHED_BYTES));
    }

    /// Bytes taken by records.
    pub(super) fn bytes(&self) -> usize {
        self.end.load(Ordering::Relaxed)
    }

    /// Shows the records from `from` on in the order of their writing; where a later walk goes on.
    pub(super) fn walk<'a>(
        &'a self,
        from: Walk,
        mut visit: impl FnMut(RecordRef, Record<'a>),
    ) -> Walk {
        let Walk { mut chunk, mut offset } = from;
        let end = locate(self.end.load(Ordering::Acquire));
        loop {
            let published = self.chunks[chunk].get().map_or(&[][..], |chunk| chunk.published(0));
            while offset < published.len() {
                let record = Record { bytes: &published[offset..] };
                let bytes = record.bytes_in_all();
                // Those that follow are likely as long.
                let ahead = record.bytes.as_ptr().wrapping_add(WALKED_AHEAD * bytes);
                prefetch_range(ahead, HEADER_BYTES + WALKED_KEY_BYTES);
                visit(RecordRef(((chunk_start(chunk) + offset) / ALIGNMENT) as u32), record);
                offset += bytes;
            }
            if chunk >= end.0 {
                return Walk { chunk, offset };
            }
            (chunk, offset) = (chunk + 1, 0);
        }
    }
}

/// How far a walk through an arena has come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Walk {
    chunk: usize,
    offset: usize,
}

/// A record, and whatever follows it in its chunk.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    #[inline]
    fn u64_at(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes[at..at + 8].try_into().expect("8 bytes"))
    }

    #[inline]
    fn u32_at(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes[at..at + 4].try_into().expect("4 bytes"))
    }

    #[inline]
    fn u16_at(&self, at: usize) -> usize {
        usize::from(u16::from_ne_bytes(self.bytes[at..at + 2].try_into().expect("2 bytes")))
    }

    #[inline]
    fn kind(&self) -> u8 {
        self.bytes[if cfg!(target_endian = "little") { 8 } else { 15 }]
    }

    #[inline]
    fn key_start(&self) -> usize {
        let has_pointer = self.kind() == ValueKind::PutRef as u8;
        if has_pointer { HEADER_BYTES + POINTER_BYTES } else { HEADER_BYTES }
    }

    fn bytes_in_all(&self) -> usize {
        let value_bytes = self.u32_at(4) as usize;
        let filled = self.key_start() + self.u16_at(32) + self.u16_at(34) + value_bytes;
        filled.next_multiple_of(ALIGNMENT)
    }

    /// The older version of the same key.
    #[inline]
    pub(super) fn prev(&self) -> Option<RecordRef> {
        self.u32_at(0).checked_sub(1).map(RecordRef)
    }

    /// The SeqNo.
    #[inline]
    pub(super) fn seqno(&self) -> SeqNo {
        self.u64_at(8) >> 8
    }

    /// The user key.
    #[inline]
    pub(super) fn key(&self) -> &'a [u8] {
        let start = self.key_start();
        &self.bytes[start..start + self.u16_at(32)]
    }

    /// As `EntryRef::expiry`.
    #[inline]
    pub(super) fn expiry(&self) -> Option<u64> {
        (self.kind() != ValueKind::Delete as u8).then(|| self.u64_at(24))
    }

    /// The entry. Inlined for the same reason as that of a table's block.
    #[inline(always)]
    pub(super) fn entry(&self) -> EntryRef<'a> {
        let attributes_start = self.key_start() + self.u16_at(32);
        let value_start = attributes_start + self.u16_at(34);
        let body = match self.kind() {
            kind if kind == ValueKind::Put as u8 => {
                BodyRef::Inline(&self.bytes[value_start..value_start + self.u32_at(4) as usize])
            }
            kind if kind == ValueKind::PutRef as u8 => BodyRef::Ref(ValuePointer {
                segment: self.u64_at(40),
                offset: self.u64_at(48),
                length: self.u32_at(56),
                checksum: self.u32_at(60),
            }),
            _ => BodyRef::Delete,
        };
        EntryRef {
            seqno: self.seqno(),
            written_at_ms: self.u64_at(16),
            expires_at_ms: self.u64_at(24),
            attributes: &self.bytes[attributes_start..value_start],
            body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seqno: SeqNo, body: BodyRef<'_>) -> EntryRef<'_> {
        EntryRef { seqno, written_at_ms: 7, expires_at_ms: seqno + 1, attributes: b"at", body }
    }

    /// Records with their keys from `from` on, and where a walk goes on.
    fn walked(arena: &Arena, from: Walk) -> (Vec<(RecordRef, Vec<u8>)>, Walk) {
        let mut seen = Vec::new();
        let rest = arena.walk(from, |at, record| seen.push((at, record.key().to_vec())));
        (seen, rest)
    }

    #[test]
    fn records_of_every_kind_come_back_whatever_chunk_they_are_in() {
        let arena = Arena::new(Arc::new(SpareChunks::new(0)));
        let pointer = ValuePointer { segment: 1, offset: 2, length: 3, checksum: 4 };
        let long = vec![9; 100_000];
        let bodies = [
            BodyRef::Inline(b"value"),
            BodyRef::Ref(pointer),
            BodyRef::Delete,
            BodyRef::Inline(&long),
            BodyRef::Inline(b""),
        ];
        let mut pushed: Vec<(RecordRef, String, SeqNo, BodyRef<'_>, Option<RecordRef>)> =
            Vec::new();
        for seqno in 0..3000 {
            let key = format!("key{seqno}");
            let prev = pushed.last().map(|(record, ..)| *record);
            let body = bodies[seqno as usize % 5];
            let record = arena.push(key.as_bytes(), &entry(seqno, body), prev);
            pushed.push((record, key, seqno, body, prev));
        }
        for (record, key, seqno, body, prev) in &pushed {
            let found = arena.record(*record);
            assert_eq!((found.key(), found.seqno()), (key.as_bytes(), *seqno));
            assert_eq!(found.prev(), *prev);
            assert_eq!(found.entry(), entry(*seqno, *body));
            assert_eq!(found.expiry(), found.entry().expiry());
        }
        let (seen, rest) = walked(&arena, Walk::default());
        let expected = pushed.iter().map(|(record, key, ..)| (*record, key.clone().into_bytes()));
        assert!(seen.into_iter().eq(expected));
        assert!(walked(&arena, rest).0.is_empty());
        let last = arena.push(b"last", &entry(1, BodyRef::Delete), None);
        assert_eq!(walked(&arena, rest).0, [(last, b"last".to_vec())]);
    }

    #[test]
    fn places_lie_in_the_chunk_that_holds_them() {
        for place in (0..1 << 20).step_by(8) {
            let (chunk, offset) = locate(place);
            assert_eq!(chunk_start(chunk) + offset, place);
            assert!(offset < chunk_bytes(chunk));
        }
    }

    #[test]
    fn an_empty_arena_takes_nothing() {
        let arena = Arena::new(Arc::new(SpareChunks::new(0)));
        assert!(walked(&arena, Walk::default()).0.is_empty());
        assert!(arena.chunks.iter().all(|chunk| chunk.get().is_none()));
    }
}
