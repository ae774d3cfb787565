//! What the fuzz targets call of tables: decoders behind the checksums, held to what they promise.

use bytes::Bytes;

use crate::head::{BodyRef, EntryRef};
use crate::key::{self, SEQNO_MAX};
use crate::range_tombstone::RangeTombstones;
use crate::sstable::block::{BLOCK_BYTES_MAX, Block};
use crate::sstable::block_builder::BlockBuilder;
use crate::sstable::fences::{Fences, FencesBuilder};
use crate::sstable::footer::{FOOTER_BYTES, Footer};
use crate::sstable::frame::{self, RAW_BYTES_MAX, TRAILER_BYTES};
use crate::sstable::point_index::PointIndex;
use crate::sstable::range_deletions;

/// A data block. One whose entries are sound and in order is built anew, and holds the same.
pub fn block(bytes: &[u8]) -> bool {
    let Some(block) = Block::parse(bytes) else {
        return false;
    };
    let mut entries = Vec::new();
    for slot in 0..block.len() {
        let Some(raw) = block.entry(slot) else { continue };
        let key = [block.prefix(), raw.suffix].concat();
        assert!(block.key_is(&raw, &key));
        assert!(!block.key_is(&raw, &[&key[..], b"x"].concat()));
        let whole = block.whole(raw.seqno, raw.tail);
        if raw.tail.is_inline()
            && let Some(entry) = &whole
        {
            let value = block.inline_value(raw.tail).expect("a sound entry has its value");
            assert_eq!(entry.body, BodyRef::Inline(value));
        }
        entries.extend(whole.map(|entry| (key, entry)));
    }
    assert!(block.entry(block.len()).is_none());
    block.lower_bound(b"", SEQNO_MAX);
    block.lower_bound(block.prefix(), 0);
    let in_order = entries
        .is_sorted_by(|(a, one), (b, other)| key::compare(a, one.seqno, b, other.seqno).is_lt());
    if entries.len() < block.len() || !in_order {
        return false;
    }
    for (slot, (key, entry)) in entries.iter().enumerate() {
        assert_eq!(block.lower_bound(key, entry.seqno), Some(slot));
    }
    build_again(&entries);
    true
}

fn build_again(entries: &[(Vec<u8>, EntryRef<'_>)]) {
    let mut builder = BlockBuilder::default();
    for (key, entry) in entries {
        if !builder.add(key, entry, BLOCK_BYTES_MAX) {
            return;
        }
    }
    let (mut built, bound) = (Vec::new(), builder.bytes());
    builder.finish(&mut built);
    assert!(built.len() <= bound.max(BLOCK_BYTES_MAX));
    let block = Block::parse(&built).expect("a block that was built is one");
    assert_eq!(block.len(), entries.len());
    for (slot, (key, entry)) in entries.iter().enumerate() {
        let raw = block.entry(slot).expect("an entry that was added is there");
        assert!(block.key_is(&raw, key));
        assert_eq!(block.whole(raw.seqno, raw.tail).as_ref(), Some(entry));
    }
}

/// A footer whose checksum is right, of a file with so many bytes.
pub fn footer(bytes: &[u8; FOOTER_BYTES], file_bytes: u64) -> bool {
    let Ok(footer) = Footer::decode(bytes, file_bytes) else {
        return false;
    };
    let mut free = 0;
    for section in footer.sections() {
        assert!(section.offset >= free && section.end() <= file_bytes - FOOTER_BYTES as u64);
        free = section.end();
    }
    assert_eq!(Footer::decode(&footer.encode(), file_bytes), Ok(footer));
    true
}

/// The fences of data blocks that end at `data_end`; `probe` is looked for among them.
pub fn fences(section: &[u8], data_end: u64, probe: &[u8]) -> bool {
    let Some(fences) = Fences::decode(Bytes::copy_from_slice(section), data_end) else {
        return false;
    };
    assert_eq!(fences.data_end(), data_end);
    let keys: Vec<&[u8]> = fences.first_keys().collect();
    assert_eq!(keys.len(), fences.len());
    for key in keys.iter().copied().chain([probe]) {
        let below = keys.iter().filter(|first| **first < key).count();
        assert_eq!(fences.count_below(key), below);
    }
    assert_eq!(fences.handle(fences.len()), None);
    let mut builder = FencesBuilder::default();
    for (block, key) in keys.iter().enumerate() {
        let handle = fences.handle(block).expect("each block has a place");
        // A hint, which may be wrong and must not panic.
        let _ = fences.about(block);
        assert!(handle.end() <= data_end);
        builder.add(handle.frame_bytes - TRAILER_BYTES, key);
    }
    let again = Fences::decode(Bytes::from(builder.finish()), data_end);
    assert!(again.expect("fences that were built are some").first_keys().eq(keys));
    true
}

/// A point index of so many keys in so many blocks.
pub fn point_index(section: &[u8], keys: u64, blocks: usize, hash: u64) -> bool {
    let Some(index) = PointIndex::new(Bytes::copy_from_slice(section), keys, blocks) else {
        return false;
    };
    assert!(index.entry_count() <= section.len() as u64 / 4);
    index.prefetch(hash);
    assert_eq!(index.candidates(hash).is_empty(), index.candidates(hash).next().is_none());
    true
}

/// The deleted ranges of a table.
pub fn range_deletions(section: &[u8]) -> bool {
    let Some(tombstones) = range_deletions::decode(section) else {
        return false;
    };
    let again = range_deletions::decode(&range_deletions::encode(&tombstones));
    assert_eq!(again.as_ref(), Some(&tombstones));
    // Set by set, what covers a key is the newest deletion whose range it is in.
    let set = RangeTombstones::new(tombstones.clone());
    for key in tombstones.iter().take(16).flat_map(|range| [&range.start, &range.end]) {
        let covering = tombstones.iter().filter(|range| range.start <= *key && *key < range.end);
        let newest = covering.map(|range| range.seqno).max().unwrap_or(0);
        assert_eq!(set.cover(key, SEQNO_MAX), newest);
    }
    true
}

/// Bytes as they are stored, in a frame whose checksum is right.
pub fn frame(stored: &[u8], kind: u8) -> bool {
    let (salt, offset) = (7 << 32, 4096);
    let mut framed = Vec::new();
    frame::encode_stored(stored, kind, salt, offset, &mut framed);
    let Ok(raw) = frame::decode(Bytes::from(framed.clone()), salt, offset) else {
        return false;
    };
    assert!(raw.len() <= RAW_BYTES_MAX || frame::is_plain(&framed));
    let elsewhere = frame::decode(Bytes::from(framed), salt, offset + 8);
    assert!(elsewhere.is_err(), "a frame is sound at its own offset only");
    true
}
