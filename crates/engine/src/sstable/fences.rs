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

/// 16 bytes a block, so that the fences of a table stay in the processor's cache.
#[derive(Debug, Clone, Copy)]
struct Fence {
    /// In units of [`BLOCK_ALIGNMENT`].
    offset: u32,
    frame_bytes: u32,
    key_start: u32,
    key_bytes: u32,
}

/// The fences of a table.
#[derive(Debug)]
pub(super) struct Fences {
    section: Bytes,
    fences: Box<[Fence]>,
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
        let mut fences = Vec::with_capacity(count);
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
            fences.push(Fence {
                offset: u32::try_from(offset / BLOCK_ALIGNMENT).ok()?,
                frame_bytes: u32::try_from(frame_bytes).ok()?,
                key_start: u32::try_from(decoder.position() - key.len()).ok()?,
                key_bytes: key.len() as u32,
            });
        }
        if decoder.remaining() != 0 || end != data_end {
            return None;
        }
        let key_of =
            |fence: &Fence| &section[fence.key_start as usize..][..fence.key_bytes as usize];
        // Keys ascend, so what the first and the last share, all share.
        let common_bytes = match (fences.first(), fences.last()) {
            (Some(first), Some(last)) => key::common_prefix(key_of(first), key_of(last)),
            _ => 0,
        };
        let words: Vec<u64> =
            fences.iter().map(|fence| key::word(key_of(fence), common_bytes)).collect();
        let words = SortedWords::new(&words);
        Some(Fences { fences: fences.into_boxed_slice(), common_bytes, words, section })
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.fences.len()
    }

    /// Whether the table has no data blocks.
    pub(super) fn is_empty(&self) -> bool {
        self.fences.is_empty()
    }

    /// Bytes that all first keys begin with.
    pub(super) fn common_bytes(&self) -> usize {
        self.common_bytes
    }

    /// Where a block is; `None` when there is no such block.
    #[inline]
    pub(super) fn handle(&self, block: usize) -> Option<BlockHandle> {
        let fence = self.fences.get(block)?;
        Some(BlockHandle {
            offset: u64::from(fence.offset) * BLOCK_ALIGNMENT,
            frame_bytes: fence.frame_bytes as usize,
        })
    }

    /// The first user key of a block. Requires: the block exists.
    pub(super) fn first_key(&self, block: usize) -> &[u8] {
        self.key_of(&self.fences[block])
    }

    /// The first user keys of all blocks.
    pub(super) fn first_keys(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        self.fences.iter().map(|fence| self.key_of(fence))
    }

    /// Number of blocks whose first key is below `user_key`. The first version of the key is in the
    /// last of these, or else starts the block behind it.
    pub(super) fn count_below(&self, user_key: &[u8]) -> usize {
        let common = match self.fences.first() {
            Some(first) => &self.key_of(first)[..self.common_bytes],
            None => return 0,
        };
        if !user_key.starts_with(common) {
            return if user_key < common { 0 } else { self.len() };
        }
        let word = key::word(user_key, common.len());
        let (below, may_be_next) = self.words.search(word);
        if !may_be_next {
            return below;
        }
        below + self.fences[below..].partition_point(|fence| self.key_of(fence) < user_key)
    }

    /// Offset behind the last block.
    pub(super) fn data_end(&self) -> u64 {
        self.len().checked_sub(1).and_then(|last| self.handle(last)).map_or(0, |last| last.end())
    }

    /// Memory held, the section included.
    pub(super) fn resident_bytes(&self) -> usize {
        self.section.len() + size_of_val(&*self.fences) + self.words.resident_bytes()
    }

    #[inline]
    fn key_of(&self, fence: &Fence) -> &[u8] {
        &self.section[fence.key_start as usize..][..fence.key_bytes as usize]
    }
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
