//! Where each data block is, and its first user key: enough to find the block of any key.
//!
//! Blocks stand one after the other from the file's start, each at the first multiple of 8 behind the
//! trailer of the one before, so that only their lengths are stored. First keys never descend; they
//! are equal where the versions of one key fill more than a block.

use bytes::Bytes;

use crate::coding::{Decoder, put_bytes, put_varint};
use crate::key::{self, KEY_BYTES_MAX};
use crate::sstable::frame::TRAILER_BYTES;
use crate::sstable::sorted_words::SortedWords;

/// Data blocks start at multiples of this.
pub(super) const BLOCK_ALIGNMENT: u64 = 8;

/// Fewest bytes of an encoded fence: length, key length, a key of one byte.
const FENCE_BYTES_MIN: usize = 3;

/// Collects fences.
#[derive(Debug, Default)]
pub(super) struct FencesBuilder {
    count: usize,
    encoded: Vec<u8>,
}

impl FencesBuilder {
    /// Takes the next block.
    pub(super) fn add(&mut self, stored_bytes: usize, first_key: &[u8]) {
        self.count += 1;
        put_varint(&mut self.encoded, stored_bytes as u64);
        put_bytes(&mut self.encoded, first_key);
    }

    /// Blocks taken.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of the finished section, but for the count.
    pub(super) fn bytes(&self) -> usize {
        self.encoded.len()
    }

    /// The finished section.
    pub(super) fn finish(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded.len() + 10);
        put_varint(&mut out, self.count as u64);
        out.extend_from_slice(&self.encoded);
        out
    }
}

/// Where a block is in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHandle {
    /// Offset of its first byte.
    pub(super) offset: u64,
    /// Bytes of its frame: stored bytes and trailer.
    pub(super) frame_bytes: usize,
}

impl BlockHandle {
    /// Offset behind the frame.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.frame_bytes as u64
    }
}

/// Blocks from one anchor to the next.
const ANCHORED_BLOCKS: usize = 16;

/// Where a block is. Look-ups of keys need no more of a fence, and the less memory they go through, the more of
/// it is in the processor's cache: apart from the keys, gets among 500,000 took 0.93 of the time.
#[derive(Debug, Clone, Copy)]
struct StoredAt {
    /// In units of [`BLOCK_ALIGNMENT`].
    offset: u32,
    frame_bytes: u32,
}

/// Where a block's first key is in the section.
#[derive(Debug, Clone, Copy)]
struct FirstKey {
    start: u32,
    bytes: u32,
}

/// The fences of a table.
#[derive(Debug)]
pub(super) struct Fences {
    section: Bytes,
    places: Box<[StoredAt]>,
    /// Offsets of every so many blocks, and one behind the last: a thirty-second of the memory of `places`.
    anchors: Box<[u32]>,
    first_keys: Box<[FirstKey]>,
    /// Bytes that all first keys begin with.
    common_bytes: usize,
    /// Eight bytes of each first key behind those, big-endian: a search looks at these, and at whole
    /// keys only where they are equal.
    words: SortedWords,
}

impl Fences {
    /// Reads the section; `None` when it can't be one, or when its blocks don't end at `data_end`.
    pub(super) fn decode(section: Bytes, data_end: u64) -> Option<Fences> {
        let mut decoder = Decoder::new(&section);
        let count = usize::try_from(decoder.varint()?).ok()?;
        if count > decoder.remaining() / FENCE_BYTES_MIN {
            return None;
        }
        let mut places = Vec::with_capacity(count);
        let mut first_keys = Vec::with_capacity(count);
        let mut end = 0u64;
        let mut last_key = &[][..];
        for _ in 0..count {
            let offset = end.next_multiple_of(BLOCK_ALIGNMENT);
            let frame_bytes = decoder.varint()?.checked_add(TRAILER_BYTES as u64)?;
            let key = decoder.length_prefixed()?;
            end = offset.checked_add(frame_bytes).filter(|&end| end <= data_end)?;
            if key < last_key || !(1..=KEY_BYTES_MAX).contains(&key.len()) {
                return None;
            }
            last_key = key;
            places.push(StoredAt {
                offset: u32::try_from(offset / BLOCK_ALIGNMENT).ok()?,
                frame_bytes: u32::try_from(frame_bytes).ok()?,
            });
            first_keys.push(FirstKey {
                start: u32::try_from(decoder.position() - key.len()).ok()?,
                bytes: key.len() as u32,
            });
        }
        if decoder.remaining() != 0 || end != data_end {
            return None;
        }
        // Keys ascend, so what the first and the last share, all share.
        let common_bytes = match (first_keys.first(), first_keys.last()) {
            (Some(first), Some(last)) => key::common_prefix(first.of(&section), last.of(&section)),
            _ => 0,
        };
        let words: Vec<u64> =
            first_keys.iter().map(|key| key::word(key.of(&section), common_bytes)).collect();
        Some(Fences {
            anchors: anchors(&places, data_end),
            places: places.into_boxed_slice(),
            first_keys: first_keys.into_boxed_slice(),
            common_bytes,
            words: SortedWords::new(&words),
            section,
        })
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether the table has no data blocks.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes that all first keys begin with.
    pub(super) fn common_bytes(&self) -> usize {
        self.common_bytes
    }

    /// Where a block is; `None` when there is no such block.
    #[inline]
    pub(super) fn handle(&self, block: usize) -> Option<BlockHandle> {
        let place = self.places.get(block)?;
        Some(BlockHandle {
            offset: u64::from(place.offset) * BLOCK_ALIGNMENT,
            frame_bytes: place.frame_bytes as usize,
        })
    }

    /// The offset of a block, about, from memory that is in the processor's cache more often than what `handle`
    /// reads: mostly the right page.
    #[inline]
    pub(super) fn about(&self, block: usize) -> u64 {
        let at = block / ANCHORED_BLOCKS;
        let Some(&[from, to]) = self.anchors.get(at..at + 2) else { return 0 };
        let behind = u64::from(to - from) * (block % ANCHORED_BLOCKS) as u64;
        (u64::from(from) + behind / ANCHORED_BLOCKS as u64) * BLOCK_ALIGNMENT
    }

    /// The first user key of a block. Requires: the block exists.
    pub(super) fn first_key(&self, block: usize) -> &[u8] {
        self.first_keys[block].of(&self.section)
    }

    /// The first user keys of all blocks.
    pub(super) fn first_keys(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        self.first_keys.iter().map(|key| key.of(&self.section))
    }

    /// Number of blocks whose first key is below `user_key`. The first version of the key is in the
    /// last of these, or else starts the block behind it.
    pub(super) fn count_below(&self, user_key: &[u8]) -> usize {
        let Some(first) = self.first_keys.first() else { return 0 };
        let common = &first.of(&self.section)[..self.common_bytes];
        if !user_key.starts_with(common) {
            return if user_key < common { 0 } else { self.len() };
        }
        let word = key::word(user_key, common.len());
        let (below, may_be_next) = self.words.search(word);
        if !may_be_next {
            return below;
        }
        below + self.first_keys[below..].partition_point(|key| key.of(&self.section) < user_key)
    }

    /// Offset behind the last block.
    pub(super) fn data_end(&self) -> u64 {
        self.len().checked_sub(1).and_then(|last| self.handle(last)).map_or(0, |last| last.end())
    }

    /// Memory held, the section included.
    pub(super) fn resident_bytes(&self) -> usize {
        let places = size_of_val(&*self.places) + size_of_val(&*self.anchors);
        let keys = size_of_val(&*self.first_keys) + self.words.resident_bytes();
        self.section.len() + places + keys
    }
}

impl FirstKey {
    #[inline]
    fn of(self, section: &[u8]) -> &[u8] {
        &section[self.start as usize..][..self.bytes as usize]
    }
}

/// The anchors of blocks that end at `data_end`. The last stands where the blocks behind the one before would
/// end if they were as many as the others.
fn anchors(places: &[StoredAt], data_end: u64) -> Box<[u32]> {
    let Some(rest) = places.chunks(ANCHORED_BLOCKS).next_back() else { return Box::default() };
    let last = rest[0].offset;
    let rest_bytes = data_end / BLOCK_ALIGNMENT - u64::from(last);
    let end = u64::from(last) + rest_bytes * ANCHORED_BLOCKS as u64 / rest.len() as u64;
    let starts = places.iter().step_by(ANCHORED_BLOCKS).map(|place| place.offset);
    starts.chain([u32::try_from(end).unwrap_or(last)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other_at_multiples_of_eight() {
        let mut builder = FencesBuilder::default();
        builder.add(7, b"b");
        builder.add(100, b"d");
        builder.add(1, b"d");
        let section = Bytes::from(builder.finish());
        let fences = Fences::decode(section.clone(), 138).unwrap();
        let handles: Vec<_> = (0..3).map(|block| fences.handle(block).unwrap()).collect();
        assert_eq!(handles.iter().map(|h| h.offset).collect::<Vec<_>>(), [0, 16, 128]);
        assert_eq!(fences.data_end(), 138);
        assert_eq!(fences.handle(3), None);
        for (key, below) in [("", 0), ("a", 0), ("b", 0), ("c", 1), ("d", 1), ("d0", 3), ("e", 3)] {
            assert_eq!(fences.count_below(key.as_bytes()), below);
        }
        for end in [0, 16, 137, 139, u64::MAX] {
            assert!(Fences::decode(section.clone(), end).is_none());
        }
        for len in 0..section.len() {
            assert!(Fences::decode(section.slice(..len), 138).is_none());
        }
    }

    #[test]
    fn a_block_is_about_where_it_is_without_its_handle() {
        for count in [1usize, 15, 16, 17, 1000] {
            let mut builder = FencesBuilder::default();
            let key = |block: usize| (block as u32).to_be_bytes();
            // As blocks of 4 KiB are that hold entries of 120 bytes.
            let bytes = |block: usize| 3950 + block * 7919 % 120;
            (0..count).for_each(|block| builder.add(bytes(block), &key(block)));
            let start = |block: usize| {
                (0..block).fold(0, |end: u64, before| {
                    (end + (bytes(before) + TRAILER_BYTES) as u64).next_multiple_of(BLOCK_ALIGNMENT)
                })
            };
            let data_end = start(count - 1) + (bytes(count - 1) + TRAILER_BYTES) as u64;
            let fences = Fences::decode(Bytes::from(builder.finish()), data_end).unwrap();
            for block in 0..count {
                let (about, at) = (fences.about(block), fences.handle(block).unwrap().offset);
                assert!(about.abs_diff(at) < 512, "{block} of {count}: {about} for {at}");
            }
            assert_eq!(fences.about(count + ANCHORED_BLOCKS), 0, "no block, no page");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_search_counts_the_blocks_that_begin_below(
            mut keys in proptest::collection::vec("[ab]{0,3}(prefix)?[ab]{1,12}", 1..20),
            common in "[ab]{0,9}",
            probes in proptest::collection::vec("[ab]{0,3}(prefix)?[ab]{0,12}", 20),
        ) {
            keys.iter_mut().for_each(|key| key.insert_str(0, &common));
            keys.sort();
            let mut builder = FencesBuilder::default();
            keys.iter().for_each(|key| builder.add(3, key.as_bytes()));
            // A trailer makes each frame a multiple of 8 but for the last.
            let frame = 3 + TRAILER_BYTES as u64;
            let data_end = (keys.len() as u64 - 1) * frame.next_multiple_of(8) + frame;
            let fences = Fences::decode(Bytes::from(builder.finish()), data_end).unwrap();
            let near = probes.iter().map(|probe| format!("{common}{probe}"));
            for probe in probes.iter().cloned().chain(near).chain(keys.iter().cloned()) {
                let expected = keys.iter().filter(|key| **key < probe).count();
                proptest::prop_assert_eq!(fences.count_below(probe.as_bytes()), expected, "{}", probe);
            }
        }
    }

    #[test]
    fn impossible_sections_are_refused() {
        for section in [&[255u8, 255, 255, 255, 15][..], &[1, 0, 0], &[0, 0]] {
            assert!(Fences::decode(Bytes::copy_from_slice(section), 9).is_none());
        }
        let mut descending = FencesBuilder::default();
        descending.add(7, b"b");
        descending.add(7, b"a");
        assert!(Fences::decode(descending.finish().into(), 32).is_none());
        assert_eq!(Fences::decode(Bytes::from_static(&[0]), 0).unwrap().len(), 0);
    }
}
