//! A write batch as it stands in a group record.
//!
//! Encoding (and the checksums of values) needs no lock: [`PreparedGroup`] is made before the commit
//! lock is taken. What the memtable gets is decoded from it again, but for a group of one entry.

use super::changes::{Change, Changes, InlineValues};
use super::group_meta::{
    PUT_HEAD_BYTES, PutHead, body, encode_delete, encode_delete_range, encode_put,
};
use super::record::{SEED_BYTES, Salt, record_bytes};
use crate::batch::{Operation, WriteBatch};
use crate::checksum;
use crate::head::{EntryRef, ValuePointer};
use crate::key::{SeqNo, ValueKind};

/// A group that is ready to be written: all that doesn't depend on where it will stand.
#[derive(Debug)]
pub struct PreparedGroup<'a> {
    /// The meta section, behind room for what its checksum begins with. Borrowed: moved in and out again, it
    /// would be read in wider pieces than it was just written in, which wait for the stores.
    seeded_meta: &'a mut Vec<u8>,
    values: Values<'a>,
    value_bytes: u32,
    inline_max_bytes: usize,
    count: u32,
    uses_reserve: bool,
    /// The entry of a group of one put or deletion, which need not be decoded then.
    only: Option<OnlyEntry<'a>>,
}

/// What the meta section of a group of one put or deletion was made of.
#[derive(Debug, Clone, Copy)]
struct OnlyEntry<'a> {
    kind: ValueKind,
    key: &'a [u8],
    attributes: &'a [u8],
    expires_at_ms: u64,
    checksum: u32,
}

/// The values of a group; a group of one allocates nothing for them.
#[derive(Debug)]
enum Values<'a> {
    One([&'a [u8]; 1]),
    Many(Vec<&'a [u8]>),
}

impl<'a> PreparedGroup<'a> {
    /// The group for a batch; `buffer` is used for the meta section. A value of at least `inline_max_bytes` will
    /// be pointed at.
    pub fn new(
        buffer: &'a mut Vec<u8>,
        batch: &'a WriteBatch,
        inline_max_bytes: usize,
    ) -> PreparedGroup<'a> {
        make_room_for_seed(buffer);
        let (mut values, mut value_bytes) = (Vec::new(), 0);
        for operation in batch.operations() {
            match operation {
                Operation::Put { key, value, expires_at_ms, attributes } => {
                    let head = PutHead { expires_at_ms: *expires_at_ms, attributes };
                    push_put(buffer, key, value, head, inline_max_bytes);
                    value_bytes += value.len() as u32;
                    values.push(&value[..]);
                }
                Operation::Delete { key } => encode_delete(buffer, key),
                Operation::DeleteRange { start, end } => encode_delete_range(buffer, start, end),
            }
        }
        let (values, count) = (Values::Many(values), batch.len() as u32);
        PreparedGroup {
            seeded_meta: buffer,
            values,
            value_bytes,
            inline_max_bytes,
            count,
            uses_reserve: batch.uses_reserve(),
            only: None,
        }
    }

    /// The group of one put.
    #[inline]
    pub fn put(
        buffer: &'a mut Vec<u8>,
        key: &'a [u8],
        value: &'a [u8],
        expires_at_ms: u64,
        attributes: &'a [u8],
        inline_max_bytes: usize,
    ) -> PreparedGroup<'a> {
        make_room_for_seed(buffer);
        buffer.reserve(key.len() + attributes.len() + PUT_HEAD_BYTES);
        let head = PutHead { expires_at_ms, attributes };
        let (kind, checksum) = push_put(buffer, key, value, head, inline_max_bytes);
        PreparedGroup {
            seeded_meta: buffer,
            values: Values::One([value]),
            value_bytes: value.len() as u32,
            inline_max_bytes,
            count: 1,
            uses_reserve: false,
            only: Some(OnlyEntry { kind, key, attributes, expires_at_ms, checksum }),
        }
    }

    /// The group of one deletion.
    #[inline]
    pub fn delete(buffer: &'a mut Vec<u8>, key: &'a [u8]) -> PreparedGroup<'a> {
        make_room_for_seed(buffer);
        encode_delete(buffer, key);
        let (kind, attributes) = (ValueKind::Delete, &[][..]);
        PreparedGroup {
            seeded_meta: buffer,
            values: Values::Many(Vec::new()),
            value_bytes: 0,
            inline_max_bytes: usize::MAX,
            count: 1,
            uses_reserve: false,
            only: Some(OnlyEntry { kind, key, attributes, expires_at_ms: 0, checksum: 0 }),
        }
    }

    /// Number of entries, and so of SeqNos it takes.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether the group may use what is kept on a full disk for what frees space: it only deletes, or says so.
    pub fn may_use_reserve(&self) -> bool {
        self.uses_reserve || self.values().is_empty()
    }

    /// Whether a value of it stays in the journal, and is pointed at.
    #[inline]
    pub(super) fn has_pointers(&self) -> bool {
        self.values().iter().any(|value| !self.is_inline(value))
    }

    /// Bytes the record takes in the journal.
    #[inline]
    pub fn record_bytes(&self) -> u64 {
        record_bytes(self.meta_bytes(), self.value_bytes)
    }

    /// What memtables take of its bytes: all but the values that stay in the journal.
    pub fn memtable_bytes(&self) -> u64 {
        let inline = self.values().iter().filter(|value| self.is_inline(value));
        let inline_bytes: usize = inline.map(|value| value.len()).sum();
        (self.meta().len() + inline_bytes) as u64
    }

    #[inline]
    pub(super) fn meta(&self) -> &[u8] {
        &self.seeded_meta[SEED_BYTES..]
    }

    /// The checksum of the meta section in a record at `offset`.
    #[inline]
    pub(super) fn meta_crc(&mut self, salt: Salt, offset: u64) -> u32 {
        salt.crc_in(offset, self.seeded_meta)
    }

    #[inline]
    pub(super) fn meta_bytes(&self) -> u32 {
        // A batch is limited to 512 MiB of keys, values and attributes in all.
        self.meta().len() as u32
    }

    pub(super) fn value_bytes(&self) -> u32 {
        self.value_bytes
    }

    /// The values, in the order they are written.
    #[inline]
    pub(super) fn values(&self) -> &[&'a [u8]] {
        match &self.values {
            Values::One(one) => one,
            Values::Many(many) => many,
        }
    }

    /// The key of a group of one put or deletion.
    #[inline]
    pub fn only_key(&self) -> Option<&'a [u8]> {
        self.only.map(|only| only.key)
    }

    /// Key and entry of a group of one put or deletion, once it stands in the journal as `changes` has it:
    /// the same that `changes` decodes, which costs a tenth of all that a put of 100 bytes takes its caller.
    #[inline]
    pub fn only_entry(
        &self,
        (segment, values_offset): (u64, u64),
        seqno: SeqNo,
        written_at_ms: u64,
    ) -> Option<(&'a [u8], EntryRef<'a>)> {
        let OnlyEntry { kind, key, attributes, expires_at_ms, checksum } = self.only?;
        let value = self.values().first().copied().unwrap_or_default();
        let place =
            ValuePointer { segment, offset: values_offset, length: value.len() as u32, checksum };
        let body = body(kind, value, place);
        let entry = EntryRef { seqno, written_at_ms, expires_at_ms, attributes, body };
        debug_assert!(
            self.changes((segment, values_offset), seqno, written_at_ms)
                .eq([Change::Entry { key, entry }]),
            "what was encoded is what is decoded"
        );
        Some((key, entry))
    }

    /// What the memtable takes of the group, once it stands in the journal with its value section at
    /// `values_offset` of `segment`.
    pub fn changes(
        &self,
        (segment, values_offset): (u64, u64),
        first_seqno: SeqNo,
        written_at_ms: u64,
    ) -> Changes<'_> {
        let inline = InlineValues::Listed(self.values());
        let header = (first_seqno, written_at_ms, self.count);
        Changes::new(self.meta(), inline, segment, values_offset, header)
    }

    /// Whether the value goes to memtables and tables, instead of being pointed at.
    fn is_inline(&self, value: &[u8]) -> bool {
        is_inline(value, self.inline_max_bytes)
    }
}

#[inline]
fn is_inline(value: &[u8], inline_max_bytes: usize) -> bool {
    value.len() < inline_max_bytes
}

/// Makes a buffer one that has nothing but the room, whose bytes are written over.
#[inline]
fn make_room_for_seed(buffer: &mut Vec<u8>) {
    buffer.truncate(SEED_BYTES);
    if buffer.len() < SEED_BYTES {
        buffer.resize(SEED_BYTES, 0);
    }
}

/// Appends the meta of one put; how the value is held, and its checksum.
#[inline]
fn push_put(
    out: &mut Vec<u8>,
    key: &[u8],
    value: &[u8],
    head: PutHead<'_>,
    inline_max_bytes: usize,
) -> (ValueKind, u32) {
    let is_inline = is_inline(value, inline_max_bytes);
    let kind = if is_inline { ValueKind::Put } else { ValueKind::PutRef };
    let checksum = checksum::crc32c(value);
    encode_put(out, kind, key, value.len() as u64, checksum, head);
    (kind, checksum)
}

#[cfg(test)]
mod tests {
    use super::super::group_meta::decode_group;
    use super::*;
    use crate::head::BodyRef;
    use bytes::Bytes;

    fn batch() -> WriteBatch {
        let mut batch = WriteBatch::new();
        batch.put("a", "small").unwrap();
        batch.put_entry("b", vec![7; 100], 5_000, Bytes::from("attributes")).unwrap();
        batch.delete("c").unwrap();
        batch.delete_range("d", "f").unwrap();
        batch.put("g", "").unwrap();
        batch
    }

    fn changes<'a>(group: &'a PreparedGroup<'_>) -> Vec<Change<'a>> {
        group.changes((3, 1_000), 10, 77).collect()
    }

    #[test]
    fn a_batch_comes_back_with_large_values_pointed_at() {
        let batch = batch();
        let mut buffer = Vec::new();
        let group = PreparedGroup::new(&mut buffer, &batch, 64);
        let changes = changes(&group);
        assert_eq!(changes.len(), 5);
        let Change::Entry { key, entry } = &changes[1] else { panic!("not an entry") };
        assert_eq!((*key, entry.seqno, entry.written_at_ms), (&b"b"[..], 11, 77));
        assert_eq!((entry.expires_at_ms, entry.attributes), (5_000, &b"attributes"[..]));
        let BodyRef::Ref(pointer) = entry.body else { panic!("not a pointer") };
        assert_eq!((pointer.segment, pointer.offset, pointer.length), (3, 1_005, 100));
        assert_eq!(pointer.checksum, checksum::crc32c(&[7; 100]));
        let Change::Entry { entry, .. } = &changes[0] else { panic!("not an entry") };
        assert_eq!(entry.body, BodyRef::Inline(b"small"));
        let range = Change::DeleteRange { start: b"d", end: b"f", seqno: 13 };
        assert_eq!(changes[3], range);
        let Change::Entry { entry, .. } = &changes[4] else { panic!("not an entry") };
        assert_eq!(entry.body, BodyRef::Inline(b""));
    }

    #[test]
    fn single_writes_encode_as_a_batch_of_one() {
        let (mut buffer, mut other) = (vec![1, 2], vec![3; 100]);
        let mut one = WriteBatch::new();
        one.put_entry("key", "value", 9, Bytes::from("x")).unwrap();
        let put = PreparedGroup::put(&mut buffer, b"key", b"value", 9, b"x", 1024);
        let batch = PreparedGroup::new(&mut other, &one, 1024);
        assert_eq!((put.meta(), put.values()), (batch.meta(), batch.values()));
        assert_eq!((put.count(), put.record_bytes()), (batch.count(), batch.record_bytes()));

        let mut one = WriteBatch::new();
        one.delete("key").unwrap();
        let delete = PreparedGroup::delete(&mut buffer, b"key");
        let batch = PreparedGroup::new(&mut other, &one, 1024);
        assert_eq!((delete.meta(), delete.values()), (batch.meta(), batch.values()));
        assert_eq!((delete.count(), delete.record_bytes()), (batch.count(), batch.record_bytes()));
    }

    #[test]
    fn an_only_entry_is_what_the_group_decodes_to() {
        let (long_key, large, mut buffer) = ([7; 300], vec![9; 2000], Vec::new());
        for key in [&b"k"[..], &long_key] {
            for (value, expires_at_ms, attributes) in [
                (&b""[..], 0, &b""[..]),
                (b"value", 9, b"x"),
                (&large, 0, b"more"),
                (&large, 5, b""),
            ] {
                let put =
                    PreparedGroup::put(&mut buffer, key, value, expires_at_ms, attributes, 1024);
                let (found, entry) = put.only_entry((3, 1_000), 10, 77).unwrap();
                assert_eq!((found, put.only_key()), (key, Some(key)));
                assert_eq!(changes(&put), [Change::Entry { key, entry }]);
            }
            let delete = PreparedGroup::delete(&mut buffer, key);
            let (found, entry) = delete.only_entry((3, 1_000), 10, 77).unwrap();
            assert_eq!((found, entry.body), (key, BodyRef::Delete));
            assert_eq!(changes(&delete), [Change::Entry { key, entry }]);
        }
        let batch = batch();
        let group = PreparedGroup::new(&mut buffer, &batch, 64);
        assert!(group.only_entry((3, 1_000), 10, 77).is_none());
    }

    #[test]
    fn a_shortened_or_lengthened_group_is_refused() {
        let batch = batch();
        let mut buffer = Vec::new();
        let group = PreparedGroup::new(&mut buffer, &batch, 64);
        let (meta, count, values) = (group.meta(), group.count(), group.value_bytes());
        assert!(decode_group(meta, count, values).is_some());
        assert!(decode_group(meta, count - 1, values).is_none());
        assert!(decode_group(meta, count + 1, values).is_none());
        assert!(decode_group(meta, count, values + 1).is_none());
        for len in 0..meta.len() {
            assert!(decode_group(&meta[..len], count, values).is_none(), "{len}");
        }
    }
}
