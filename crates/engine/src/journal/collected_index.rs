//! Where the values of a collected segment came from, in memory: old segment by old segment.
//!
//! Old places stand in order. A directory tells of each stretch of an old segment which of its places are
//! there, two to four, so that a look-up waits for two cache lines however many there are: each read of a
//! value that was moved makes one, until a compaction makes its pointer direct.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::reader::{SegmentReader, Step};
use super::record::RecordType;
use super::segment::Segment;
use super::segment_header::{SEGMENT_HEADER_BYTES, SegmentType};
use crate::coding::Decoder;
use crate::error::{Error, Result};

/// A stretch is of so many powers of two more bytes than lie between two places, so that the directory is small.
const STRETCH_BITS: u32 = 2;

/// A place of a value: segment number and offset.
pub type ValuePlace = (u64, u64);

/// What was moved from one segment, one value at least.
#[derive(Debug)]
pub struct MovedValues {
    /// Where a value was, and where it is now; ascending.
    offsets: Box<[(u64, u64)]>,
    /// The first old offset, told here so that a look-up need not wait for it there.
    first: u64,
    /// A stretch, the first from `first` on, has two to the power of this bytes.
    stretch_bits: u32,
    /// How many offsets lie before each stretch, and at the end how many there are.
    before: Box<[u32]>,
}

impl MovedValues {
    /// Requires: between 1 and `u32::MAX` places, ascending, all of one segment.
    fn new(places: &[(ValuePlace, u64)]) -> MovedValues {
        let ((_, first), _) = places[0];
        let ((_, last), _) = places[places.len() - 1];
        let gap = (last - first) / places.len() as u64;
        let stretch_bits = (gap.checked_ilog2().unwrap_or(0) + STRETCH_BITS).min(u64::BITS - 1);
        let mut before = Vec::with_capacity(((last - first) >> stretch_bits) as usize + 2);
        for (at, ((_, offset), _)) in places.iter().enumerate() {
            let stretch = (offset - first) >> stretch_bits;
            before.resize(before.len().max(stretch as usize + 1), at as u32);
        }
        before.push(places.len() as u32);
        MovedValues {
            offsets: places.iter().map(|&((_, offset), new_offset)| (offset, new_offset)).collect(),
            first,
            stretch_bits,
            before: before.into(),
        }
    }

    /// Where the value that stood at an old offset is.
    pub fn lookup(&self, offset: u64) -> Option<u64> {
        let stretch = usize::try_from(offset.checked_sub(self.first)? >> self.stretch_bits).ok()?;
        let (start, end) = (self.before.get(stretch)?, self.before.get(stretch + 1)?);
        let offsets = &self.offsets[*start as usize..*end as usize];
        let at = offsets.binary_search_by_key(&offset, |&(old, _)| old).ok()?;
        Some(offsets[at].1)
    }

    /// Old and new offsets, ascending by old offset.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.offsets.iter().copied()
    }

    /// Memory held.
    pub fn resident_bytes(&self) -> usize {
        size_of::<MovedValues>() + size_of_val(&*self.offsets) + size_of_val(&*self.before)
    }
}

/// Where the values of a collected segment came from, by the number of the segment they were in.
#[derive(Debug)]
pub struct CollectedIndex {
    segments: BTreeMap<u64, Arc<MovedValues>>,
}

impl CollectedIndex {
    /// Reads the index of a collected segment.
    pub fn read(segment: &Segment) -> Result<CollectedIndex> {
        let offset = segment.header().index_offset;
        let damage = |what: &str| Error::corruption(segment.path(), offset, what);
        if segment.segment_type() != SegmentType::Collected {
            return Err(damage("not a collected segment"));
        }
        if offset < SEGMENT_HEADER_BYTES || offset >= segment.end() {
            return Err(damage("the index lies outside the segment"));
        }
        match SegmentReader::new(segment, offset)?.step()? {
            Step::Record(record) if record.header.record_type == RecordType::Index => {
                let places = decode_index(&record.meta, record.header.count);
                Ok(CollectedIndex::new(&places.ok_or_else(|| damage("a malformed index"))?))
            }
            Step::Bad(what) => Err(damage(what)),
            _ => Err(damage("no index where the header says")),
        }
    }

    /// Of places that ascend.
    fn new(places: &[(ValuePlace, u64)]) -> CollectedIndex {
        let of_one = places.chunk_by(|((a, _), _), ((b, _), _)| a == b);
        let moved = of_one.map(|places| (places[0].0.0, Arc::new(MovedValues::new(places))));
        CollectedIndex { segments: moved.collect() }
    }

    /// What was moved from a segment; `None` when nothing was.
    pub fn of(&self, segment: u64) -> Option<&Arc<MovedValues>> {
        self.segments.get(&segment)
    }

    /// What was moved from each segment, by its number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &MovedValues)> {
        self.segments.iter().map(|(&number, moved)| (number, &**moved))
    }
}

impl IntoIterator for CollectedIndex {
    type Item = (u64, Arc<MovedValues>);
    type IntoIter = std::collections::btree_map::IntoIter<u64, Arc<MovedValues>>;

    fn into_iter(self) -> Self::IntoIter {
        self.segments.into_iter()
    }
}

pub(super) fn decode_index(meta: &[u8], count: u32) -> Option<Vec<(ValuePlace, u64)>> {
    let mut fields = Decoder::new(meta);
    let mut places: Vec<(ValuePlace, u64)> =
        Vec::with_capacity((count as usize).min(meta.len() / 3));
    for _ in 0..count {
        let place = (fields.varint()?, fields.varint()?);
        if places.last().is_some_and(|(before, _)| *before >= place) {
            return None;
        }
        places.push((place, fields.varint()?));
    }
    (fields.remaining() == 0).then_some(places)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Offsets of every kind: close together, far apart, at both ends of what a number holds.
    fn offset() -> impl Strategy<Value = u64> {
        prop_oneof![0..100_u64, any::<u32>().prop_map(u64::from), any::<u64>(), u64::MAX - 100..]
    }

    proptest! {
        #[test]
        fn every_place_is_found_and_no_other(
            places in prop::collection::btree_map((0..4_u64, offset()), any::<u64>(), 0..200),
            others in prop::collection::vec((0..5_u64, offset()), 100),
        ) {
            let listed: Vec<(ValuePlace, u64)> = places.clone().into_iter().collect();
            let index = CollectedIndex::new(&listed);
            let moved = index.iter().flat_map(|(number, moved)| {
                moved.iter().map(move |(old, new)| ((number, old), new))
            });
            prop_assert_eq!(moved.collect::<Vec<_>>(), listed.clone());
            let near = listed.iter().flat_map(|&((number, offset), _)| {
                [offset.wrapping_sub(1), offset, offset.wrapping_add(1)].map(|near| (number, near))
            });
            for (number, offset) in near.chain(others) {
                let expected = places.get(&(number, offset)).copied();
                let found = index.of(number).and_then(|moved| moved.lookup(offset));
                prop_assert_eq!(found, expected);
            }
            for (_, moved) in index.iter() {
                prop_assert!(moved.before.len() <= moved.offsets.len() / 2 + 2, "{:?}", moved);
            }
        }

        #[test]
        fn any_index_decodes_without_a_panic(
            meta in prop::collection::vec(any::<u8>(), 0..100),
            count in any::<u32>(),
        ) {
            for count in [count, count % 8] {
                if let Some(places) = decode_index(&meta, count) {
                    CollectedIndex::new(&places);
                }
            }
        }
    }
}
