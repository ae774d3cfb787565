//! What a table holds, in numbers: what compaction, collection and the manifest need to know of it.
//!
//! Invariant: decoded properties make sense (ranges are not reversed, segments ascend), and decoding
//! allocates no more than its input is long.

use bytes::Bytes;

use crate::coding::{Decoder, put_bytes, put_varint};
use crate::head::{BodyRef, EntryRef};
use crate::key::{KEY_BYTES_MAX, SEQNO_MAX, SeqNo};
use crate::range_tombstone::RangeTombstone;

/// How much of a journal segment a table points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentRef {
    /// Number of the segment.
    pub segment: u64,
    /// Pointers into it.
    pub count: u64,
    /// Bytes of the values pointed at.
    pub bytes: u64,
}

/// What a table holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Versions of keys, point deletions included, range deletions not.
    pub entries: u64,
    /// Distinct user keys.
    pub keys: u64,
    /// Point deletions.
    pub tombstones: u64,
    /// Range deletions.
    pub range_tombstones: u64,
    /// Smallest user key or start of a deleted range.
    pub smallest: Bytes,
    /// Largest user key or end of a deleted range.
    pub largest: Bytes,
    /// Whether `largest` is only the end of a deleted range, so that the table says nothing of it.
    pub largest_exclusive: bool,
    /// Smallest SeqNo of an entry or range deletion.
    pub seqno_min: SeqNo,
    /// Largest SeqNo of an entry or range deletion.
    pub seqno_max: SeqNo,
    /// Earliest written-at of an entry, in milliseconds since the Unix epoch; 0 without entries.
    pub written_at_ms_min: u64,
    /// Latest written-at of an entry; 0 without entries.
    pub written_at_ms_max: u64,
    /// Entries that expire.
    pub expiring: u64,
    /// Earliest expiry; 0 when none expires.
    pub expires_at_ms_min: u64,
    /// Latest expiry; 0 when none expires.
    pub expires_at_ms_max: u64,
    /// Bytes of all entries' user keys.
    pub raw_key_bytes: u64,
    /// Bytes of all inline values.
    pub raw_value_bytes: u64,
    /// What it points at in the journal, ascending by segment.
    pub segment_refs: Vec<SegmentRef>,
}

const LARGEST_EXCLUSIVE: u8 = 1;

/// Fewest bytes of an encoded `SegmentRef`.
const SEGMENT_REF_BYTES_MIN: usize = 3;

impl Properties {
    /// Whether `user_key` may have an entry or a deletion in the table.
    pub fn covers(&self, user_key: &[u8]) -> bool {
        user_key >= &self.smallest[..]
            && (user_key < &self.largest[..]
                || user_key == &self.largest[..] && !self.largest_exclusive)
    }

    /// Appends the properties. The length does not depend on `file_bytes`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.file_bytes.to_le_bytes());
        for count in [self.entries, self.keys, self.tombstones, self.range_tombstones] {
            put_varint(out, count);
        }
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        out.push(if self.largest_exclusive { LARGEST_EXCLUSIVE } else { 0 });
        for (min, max) in [
            (self.seqno_min, self.seqno_max),
            (self.written_at_ms_min, self.written_at_ms_max),
            (self.expires_at_ms_min, self.expires_at_ms_max),
        ] {
            put_varint(out, min);
            put_varint(out, max - min);
        }
        for count in [self.expiring, self.raw_key_bytes, self.raw_value_bytes] {
            put_varint(out, count);
        }
        put_varint(out, self.segment_refs.len() as u64);
        let mut before = 0;
        for reference in &self.segment_refs {
            put_varint(out, reference.segment - before);
            put_varint(out, reference.count);
            put_varint(out, reference.bytes);
            before = reference.segment;
        }
    }

    /// Reads properties; `None` when the bytes can't be any. What follows is left to the caller.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<Properties> {
        let properties = Properties {
            file_bytes: decoder.u64()?,
            entries: decoder.varint()?,
            keys: decoder.varint()?,
            tombstones: decoder.varint()?,
            range_tombstones: decoder.varint()?,
            smallest: key(decoder)?,
            largest: key(decoder)?,
            largest_exclusive: match decoder.u8()? {
                0 => false,
                LARGEST_EXCLUSIVE => true,
                _ => return None,
            },
            ..Properties::default()
        };
        let (seqno_min, seqno_max) = range(decoder)?;
        let (written_at_ms_min, written_at_ms_max) = range(decoder)?;
        let (expires_at_ms_min, expires_at_ms_max) = range(decoder)?;
        let properties = Properties {
            seqno_min,
            seqno_max,
            written_at_ms_min,
            written_at_ms_max,
            expires_at_ms_min,
            expires_at_ms_max,
            expiring: decoder.varint()?,
            raw_key_bytes: decoder.varint()?,
            raw_value_bytes: decoder.varint()?,
            segment_refs: segment_refs(decoder)?,
            ..properties
        };
        properties.make_sense().then_some(properties)
    }

    fn make_sense(&self) -> bool {
        self.smallest <= self.largest
            && self.seqno_max <= SEQNO_MAX
            && self.keys <= self.entries
            && (self.keys == 0) == (self.entries == 0)
            && self.tombstones <= self.entries
            && self.expiring <= self.entries
            && (self.entries > 0 || self.range_tombstones > 0)
    }
}

fn key(decoder: &mut Decoder<'_>) -> Option<Bytes> {
    let key = decoder.length_prefixed()?;
    (1..=KEY_BYTES_MAX).contains(&key.len()).then(|| Bytes::copy_from_slice(key))
}

fn range(decoder: &mut Decoder<'_>) -> Option<(u64, u64)> {
    let min = decoder.varint()?;
    Some((min, min.checked_add(decoder.varint()?)?))
}

fn segment_refs(decoder: &mut Decoder<'_>) -> Option<Vec<SegmentRef>> {
    let count = usize::try_from(decoder.varint()?).ok()?;
    if count > decoder.remaining() / SEGMENT_REF_BYTES_MIN {
        return None;
    }
    let mut refs: Vec<SegmentRef> = Vec::with_capacity(count);
    for _ in 0..count {
        let delta = decoder.varint()?;
        let segment = match refs.last() {
            Some(_) if delta == 0 => return None,
            Some(before) => before.segment.checked_add(delta)?,
            None => delta,
        };
        refs.push(SegmentRef { segment, count: decoder.varint()?, bytes: decoder.varint()? });
    }
    Some(refs)
}

/// Counts what goes into a table. Keys must come in order; range deletions may come at any time.
#[derive(Debug, Default)]
pub(super) struct PropertiesBuilder {
    properties: Properties,
    any_seqno: bool,
    /// Smallest start and largest end of the deleted ranges.
    deleted: Option<(Bytes, Bytes)>,
    /// Where the last pointer's segment is in `segment_refs`: pointers come in runs.
    last_ref: usize,
}

impl PropertiesBuilder {
    /// Counts an entry. `new_key`: it is the key's first.
    #[inline]
    pub(super) fn add(&mut self, user_key: &[u8], entry: &EntryRef<'_>, new_key: bool) {
        let properties = &mut self.properties;
        let first = properties.entries == 0;
        properties.entries += 1;
        properties.keys += u64::from(new_key);
        if first {
            properties.smallest = Bytes::copy_from_slice(user_key);
            properties.written_at_ms_min = entry.written_at_ms;
        }
        properties.written_at_ms_min = properties.written_at_ms_min.min(entry.written_at_ms);
        properties.written_at_ms_max = properties.written_at_ms_max.max(entry.written_at_ms);
        if entry.expires_at_ms != 0 {
            let earliest = &mut properties.expires_at_ms_min;
            *earliest = match properties.expiring {
                0 => entry.expires_at_ms,
                _ => entry.expires_at_ms.min(*earliest),
            };
            properties.expires_at_ms_max = properties.expires_at_ms_max.max(entry.expires_at_ms);
            properties.expiring += 1;
        }
        properties.raw_key_bytes += user_key.len() as u64;
        match &entry.body {
            BodyRef::Inline(value) => properties.raw_value_bytes += value.len() as u64,
            BodyRef::Ref(pointer) => self.add_pointer(pointer.segment, u64::from(pointer.length)),
            BodyRef::Delete => properties.tombstones += 1,
        }
        self.add_seqno(entry.seqno);
    }

    /// Counts a range deletion.
    pub(super) fn add_range_tombstone(&mut self, tombstone: &RangeTombstone) {
        self.properties.range_tombstones += 1;
        self.deleted = Some(match self.deleted.take() {
            Some((start, end)) => {
                (start.min(tombstone.start.clone()), end.max(tombstone.end.clone()))
            }
            None => (tombstone.start.clone(), tombstone.end.clone()),
        });
        self.add_seqno(tombstone.seqno);
    }

    /// The counts so far. `file_bytes` is 0, and `smallest` and `largest` may be missing a deletion.
    pub(super) fn so_far(&self) -> &Properties {
        &self.properties
    }

    /// The properties, but for `file_bytes`. `last_key`: the last that was added, if any was.
    pub(super) fn finish(self, last_key: &[u8]) -> Properties {
        let mut properties = self.properties;
        properties.largest = Bytes::copy_from_slice(last_key);
        if let Some((start, end)) = self.deleted {
            if properties.entries == 0 || start < properties.smallest {
                properties.smallest = start;
            }
            if properties.entries == 0 || end > properties.largest {
                properties.largest = end;
                properties.largest_exclusive = true;
            }
        }
        properties
    }

    #[inline]
    fn add_seqno(&mut self, seqno: SeqNo) {
        let properties = &mut self.properties;
        properties.seqno_min = if self.any_seqno { properties.seqno_min.min(seqno) } else { seqno };
        properties.seqno_max = properties.seqno_max.max(seqno);
        self.any_seqno = true;
    }

    fn add_pointer(&mut self, segment: u64, bytes: u64) {
        let refs = &mut self.properties.segment_refs;
        if refs.get(self.last_ref).is_none_or(|last| last.segment != segment) {
            let found = refs.binary_search_by_key(&segment, |reference| reference.segment);
            self.last_ref = found.unwrap_or_else(|at| {
                refs.insert(at, SegmentRef { segment, count: 0, bytes: 0 });
                at
            });
        }
        refs[self.last_ref].count += 1;
        refs[self.last_ref].bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::ValuePointer;

    fn entry(seqno: SeqNo, expires_at_ms: u64, body: BodyRef<'_>) -> EntryRef<'_> {
        EntryRef { seqno, written_at_ms: 100 * seqno, expires_at_ms, attributes: &[], body }
    }

    fn pointer(segment: u64, length: u32) -> BodyRef<'static> {
        BodyRef::Ref(ValuePointer { segment, offset: 64, length, checksum: 0 })
    }

    fn tombstone(start: &'static str, end: &'static str, seqno: SeqNo) -> RangeTombstone {
        RangeTombstone { start: Bytes::from(start), end: Bytes::from(end), seqno }
    }

    fn counted() -> Properties {
        let mut builder = PropertiesBuilder::default();
        builder.add(b"b", &entry(9, 700, pointer(5, 1000)), true);
        builder.add(b"b", &entry(4, 0, pointer(3, 2000)), false);
        builder.add(b"c", &entry(6, 300, pointer(5, 50)), true);
        builder.add_range_tombstone(&tombstone("a", "c", 2));
        builder.add(b"d", &entry(7, 0, BodyRef::Inline(b"value")), true);
        builder.add(b"e", &entry(8, 0, BodyRef::Delete), true);
        Properties { file_bytes: 4321, ..builder.finish(b"e") }
    }

    #[test]
    fn everything_is_counted() {
        let expected = Properties {
            file_bytes: 4321,
            entries: 5,
            keys: 4,
            tombstones: 1,
            range_tombstones: 1,
            smallest: Bytes::from_static(b"a"),
            largest: Bytes::from_static(b"e"),
            largest_exclusive: false,
            seqno_min: 2,
            seqno_max: 9,
            written_at_ms_min: 400,
            written_at_ms_max: 900,
            expiring: 2,
            expires_at_ms_min: 300,
            expires_at_ms_max: 700,
            raw_key_bytes: 5,
            raw_value_bytes: 5,
            segment_refs: vec![
                SegmentRef { segment: 3, count: 1, bytes: 2000 },
                SegmentRef { segment: 5, count: 2, bytes: 1050 },
            ],
        };
        assert_eq!(counted(), expected);
    }

    #[test]
    fn the_end_of_a_deleted_range_is_not_in_the_table_unless_a_key_is() {
        let finish = |keys: &[&[u8]], end: &'static str| {
            let mut builder = PropertiesBuilder::default();
            for key in keys {
                builder.add(key, &entry(1, 0, BodyRef::Delete), true);
            }
            builder.add_range_tombstone(&tombstone("a", end, 2));
            builder.finish(keys.last().copied().unwrap_or_default())
        };
        for (keys, end, largest, covers_end) in [
            (&[&b"m"[..]][..], "z", "z", false),
            (&[b"m"], "m", "m", true),
            (&[b"m"], "c", "m", true),
            (&[], "z", "z", false),
        ] {
            let properties = finish(keys, end);
            assert_eq!(properties.largest, largest);
            assert_eq!(properties.covers(largest.as_bytes()), covers_end);
            assert!(properties.covers(b"a") && !properties.covers(b"A"));
        }
    }

    #[test]
    fn properties_round_trip_and_cut_ones_are_refused() {
        let properties = counted();
        let mut bytes = Vec::new();
        properties.encode(&mut bytes);
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(Properties::decode(&mut decoder), Some(properties));
        assert_eq!(decoder.remaining(), 0);
        for len in 0..bytes.len() {
            assert_eq!(Properties::decode(&mut Decoder::new(&bytes[..len])), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(at: usize, bytes: [u8; 4]) {
            let mut damaged = Vec::new();
            counted().encode(&mut damaged);
            let at = at % (damaged.len() - 4);
            damaged[at..at + 4].copy_from_slice(&bytes);
            Properties::decode(&mut Decoder::new(&damaged));
        }
    }
}
