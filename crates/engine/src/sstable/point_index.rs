//! Where the newest version of each key is: a hash table that is one cache line per look-up.
//!
//! ```text
//! bucket = 16 x u32, entry = tag (12 bits or more, never 0) | block (14 bits or fewer) | slot (6 bits)
//! ```
//!
//! A key's entry is in the bucket its hash names or, past full buckets only, in a later one
//! (cyclically). A block's number takes as many bits as the table needs to number its blocks; the tag
//! has the rest. An absent key finds an equal tag, and so costs a block, 1.4 times in 1,000 where a
//! table has 8,192 blocks, and once in 100,000 where it has 64.

use std::sync::Arc;

use bytes::Bytes;

use crate::block_memory::BlockMemory;
use crate::vfs::prefetch::prefetch;

/// Most blocks that the index can name.
pub(super) const BLOCKS_MAX: usize = 1 << BLOCK_BITS;

const BLOCK_BITS: u32 = 14;
const SLOT_BITS: u32 = 6;
const BUCKET_ENTRIES: usize = 16;

/// Bytes of a bucket. The section starts at a multiple of this.
pub(super) const BUCKET_BYTES: usize = 4 * BUCKET_ENTRIES;

/// Where an entry is: block, and slot in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Number of the block in the table.
    pub(super) block: usize,
    /// Number of the entry in the block.
    pub(super) slot: usize,
}

impl Place {
    /// Both in one number.
    #[inline]
    pub(super) fn number(self) -> u32 {
        (self.block as u32) << SLOT_BITS | self.slot as u32
    }
}

/// Buckets of an index of this many keys: at most 72 % full, so that few overflow.
pub(super) fn bucket_count(keys: u64) -> u64 {
    (keys * 100).div_ceil(BUCKET_ENTRIES as u64 * 72)
}

#[inline]
fn home_bucket(hash: u64, buckets: usize) -> usize {
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

/// Lowest bit of the tag in the entries of a table of so many blocks. There may be more than the index
/// names, full of older versions of the last key.
fn tag_shift(blocks: usize) -> u32 {
    SLOT_BITS + blocks.min(BLOCKS_MAX).next_power_of_two().ilog2()
}

#[inline]
fn tag(hash: u64, shift: u32) -> u32 {
    (hash as u32 & (u32::MAX >> shift)).max(1)
}

/// Collects where keys are.
#[derive(Debug, Default)]
pub(super) struct PointIndexBuilder {
    hashes: Vec<u64>,
    places: Vec<u32>,
}

impl PointIndexBuilder {
    /// Takes a new key. Requires: the place is within the index's limits.
    pub(super) fn add(&mut self, hash: u64, place: Place) {
        assert!(place.block < BLOCKS_MAX, "the point index names {BLOCKS_MAX} blocks");
        assert!(place.slot < 1 << SLOT_BITS, "the point index names 64 slots of a block");
        self.hashes.push(hash);
        self.places.push((place.block as u32) << SLOT_BITS | place.slot as u32);
    }

    /// Keys taken.
    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Bytes of the finished index.
    pub(super) fn bytes(&self) -> usize {
        bucket_count(self.len() as u64) as usize * BUCKET_BYTES
    }

    /// The finished index of a table of so many blocks.
    pub(super) fn finish(&self, blocks: usize) -> Vec<u8> {
        let shift = tag_shift(blocks);
        let count = bucket_count(self.len() as u64) as usize;
        let mut section = vec![0; count * BUCKET_BYTES];
        let entries = section.as_chunks_mut().0;
        // How many entries each bucket has: to look that up in the bucket is to wait for it.
        let mut filled = vec![0u8; count];
        for (&hash, &place) in self.hashes.iter().zip(&self.places) {
            let mut at = home_bucket(hash, count);
            // There are more entries than keys, so that a free one always turns up.
            while usize::from(filled[at]) == BUCKET_ENTRIES {
                at = (at + 1) % count;
            }
            let entry = tag(hash, shift) << shift | place;
            entries[at * BUCKET_ENTRIES + usize::from(filled[at])] = entry.to_le_bytes();
            filled[at] += 1;
        }
        section
    }
}

/// A bucket as it is in the file.
type BucketBytes = [u8; BUCKET_BYTES];

#[inline]
fn entry(bucket: &BucketBytes, at: usize) -> u32 {
    u32::from_le_bytes(bucket.as_chunks().0[at])
}

/// Bit i is set when entry i has this tag.
#[inline]
fn matches(bucket: &BucketBytes, tag: u32, shift: u32) -> u32 {
    let mut matches = 0;
    for at in 0..BUCKET_ENTRIES {
        matches |= u32::from(entry(bucket, at) >> shift == tag) << at;
    }
    matches
}

/// Entries fill a bucket from the front.
#[inline]
fn is_full(bucket: &BucketBytes) -> bool {
    entry(bucket, BUCKET_ENTRIES - 1) != 0
}

/// A finished index. A copy shares its entries.
#[derive(Debug, Clone)]
pub(crate) struct PointIndex {
    /// The buckets, as in the file.
    buckets: Bytes,
    /// Lowest bit of the tag.
    shift: u32,
}

impl PointIndex {
    /// An index of `keys` keys in `blocks` blocks; `None` when the section has another size.
    pub(super) fn new(section: Bytes, keys: u64, blocks: usize) -> Option<PointIndex> {
        fits(&section, keys).then(|| PointIndex { buckets: section, shift: tag_shift(blocks) })
    }

    /// The same in other memory, where each bucket is one line.
    pub(super) fn copied_to(&self, memory: &Arc<BlockMemory>) -> PointIndex {
        PointIndex { buckets: memory.copy_lines(self.buckets.as_chunks().0), shift: self.shift }
    }

    /// Asks the processor for what `candidates` will look into.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let buckets = self.bucket_count();
        if buckets == 0 {
            return;
        }
        let at = home_bucket(hash, buckets);
        prefetch(self.buckets.as_ptr().wrapping_add(at * BUCKET_BYTES));
    }

    /// Where the newest version of a key with this hash may be.
    #[inline]
    pub(crate) fn candidates(&self, hash: u64) -> Candidates<'_> {
        let buckets = self.bucket_count();
        let next = home_bucket(hash, buckets);
        Candidates {
            index: self,
            tag: tag(hash, self.shift),
            next,
            left: buckets,
            bucket: &[0; BUCKET_BYTES],
            matches: 0,
        }
    }

    /// Bytes of the buckets.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.len()
    }

    /// Number of entries, for `verify`.
    pub(super) fn entry_count(&self) -> u64 {
        let entries = |bucket| (0..BUCKET_ENTRIES).filter(|&at| entry(bucket, at) != 0).count();
        (0..self.bucket_count()).map(|at| entries(self.bucket(at)) as u64).sum()
    }

    #[inline]
    fn bucket_count(&self) -> usize {
        self.buckets.len() / BUCKET_BYTES
    }

    #[inline]
    fn bucket(&self, at: usize) -> &BucketBytes {
        &self.buckets.as_chunks().0[at]
    }
}

fn fits(section: &[u8], keys: u64) -> bool {
    keys <= (BLOCKS_MAX << SLOT_BITS) as u64
        && section.len() as u64 == bucket_count(keys) * BUCKET_BYTES as u64
}

/// The places of the entries with one tag.
#[derive(Debug)]
pub(crate) struct Candidates<'a> {
    index: &'a PointIndex,
    tag: u32,
    /// The bucket to look into next.
    next: usize,
    /// Buckets that may still be looked into.
    left: usize,
    bucket: &'a BucketBytes,
    matches: u32,
}

impl Candidates<'_> {
    /// Where the bucket that is looked into next is in the index.
    pub(super) fn home_offset(&self) -> u64 {
        (self.next * BUCKET_BYTES) as u64
    }

    /// Whether the key is in no such place, so that it is absent.
    #[inline]
    pub(crate) fn is_empty(&mut self) -> bool {
        while self.matches == 0 {
            if self.left == 0 {
                return true;
            }
            self.bucket = self.index.bucket(self.next);
            self.matches = matches(self.bucket, self.tag, self.index.shift);
            self.next += 1;
            if self.next == self.index.bucket_count() {
                self.next = 0;
            }
            self.left = if is_full(self.bucket) { self.left - 1 } else { 0 };
        }
        false
    }
}

impl Iterator for Candidates<'_> {
    type Item = Place;

    #[inline]
    fn next(&mut self) -> Option<Place> {
        if self.is_empty() {
            return None;
        }
        let entry = entry(self.bucket, self.matches.trailing_zeros() as usize);
        self.matches &= self.matches - 1;
        Some(Place {
            block: ((entry & !(u32::MAX << self.index.shift)) >> SLOT_BITS) as usize,
            slot: entry as usize & ((1 << SLOT_BITS) - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key;

    fn place(number: usize) -> Place {
        Place { block: number >> SLOT_BITS, slot: number & 63 }
    }

    fn both(builder: &PointIndexBuilder) -> [PointIndex; 2] {
        let (keys, blocks) = (builder.len() as u64, builder.len().div_ceil(64));
        let index = PointIndex::new(builder.finish(blocks).into(), keys, blocks).unwrap();
        [index.copied_to(&BlockMemory::new()), index]
    }

    #[test]
    fn every_key_is_found_at_its_place() {
        for keys in [1, 2, 11, 12, 13, 500, 50_000] {
            let mut builder = PointIndexBuilder::default();
            for number in 0..keys {
                builder.add(key::hash(format!("key {number}").as_bytes()), place(number));
            }
            for index in both(&builder) {
                assert_eq!(index.entry_count(), keys as u64);
                for number in 0..keys {
                    let hash = key::hash(format!("key {number}").as_bytes());
                    assert!(index.candidates(hash).any(|found| found == place(number)));
                }
            }
        }
    }

    #[test]
    fn keys_of_one_hash_overflow_around_the_end() {
        // All keys ask for the last bucket; they fill it and go on at the first.
        let mut builder = PointIndexBuilder::default();
        for number in 0..100 {
            builder.add(u64::MAX, place(number));
        }
        for index in both(&builder) {
            let mut found: Vec<_> =
                index.candidates(u64::MAX).map(|p| p.slot + 64 * p.block).collect();
            found.sort_unstable();
            assert_eq!(found, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn absent_keys_find_a_candidate_the_less_the_fewer_blocks_there_are() {
        for (keys, candidates_max) in [(4_000, 10), (100_000, 100), (1_000_000, 1_000)] {
            let mut builder = PointIndexBuilder::default();
            for number in 0..keys {
                builder.add(key::hash(format!("key {number}").as_bytes()), place(number));
            }
            for index in both(&builder) {
                let absent = |n: &usize| key::hash(format!("absent {n}").as_bytes());
                let found = (0..100_000).filter(|n| index.candidates(absent(n)).next().is_some());
                let found = found.count();
                assert!(found < candidates_max, "{found} of 100,000 with {keys} keys");
            }
        }
    }

    #[test]
    fn an_empty_index_and_one_without_a_free_entry_end() {
        let empty = PointIndex::new(Bytes::new(), 0, 0).unwrap();
        assert_eq!(empty.candidates(77).next(), None);
        let full = PointIndex::new(vec![0xff; 2 * BUCKET_BYTES].into(), 20, BLOCKS_MAX).unwrap();
        assert_eq!(full.candidates(0).count(), 0);
        assert_eq!(full.candidates(u64::MAX).count(), 32);
    }

    #[test]
    fn a_section_of_another_size_is_refused() {
        for (bytes, keys) in [(63, 1), (65, 1), (64, 12), (128, 11), (0, u64::MAX / 100)] {
            assert!(PointIndex::new(vec![0; bytes].into(), keys, 1).is_none());
        }
    }
}
