//! The section of a table that holds its deleted ranges.

use bytes::Bytes;

use crate::coding::{Decoder, put_bytes, put_varint};
use crate::key::{KEY_BYTES_MAX, SEQNO_MAX};
use crate::range_tombstone::RangeTombstone;

/// Fewest bytes of an encoded range: two keys of one byte, their lengths, the SeqNo.
const RANGE_BYTES_MIN: usize = 5;

/// The section.
pub(super) fn encode(tombstones: &[RangeTombstone]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, tombstones.len() as u64);
    for tombstone in tombstones {
        put_bytes(&mut out, &tombstone.start);
        put_bytes(&mut out, &tombstone.end);
        put_varint(&mut out, tombstone.seqno);
    }
    out
}

/// Reads the section; `None` when it can't be one.
pub(super) fn decode(section: &[u8]) -> Option<Vec<RangeTombstone>> {
    let mut decoder = Decoder::new(section);
    let count = usize::try_from(decoder.varint()?).ok()?;
    if count > decoder.remaining() / RANGE_BYTES_MIN {
        return None;
    }
    let mut tombstones = Vec::with_capacity(count);
    for _ in 0..count {
        let start = key(&mut decoder)?;
        let end = key(&mut decoder)?;
        let seqno = decoder.varint()?;
        if start >= end || seqno > SEQNO_MAX {
            return None;
        }
        tombstones.push(RangeTombstone { start, end, seqno });
    }
    (decoder.remaining() == 0).then_some(tombstones)
}

fn key(decoder: &mut Decoder<'_>) -> Option<Bytes> {
    let key = decoder.length_prefixed()?;
    (1..=KEY_BYTES_MAX).contains(&key.len()).then(|| Bytes::copy_from_slice(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_round_trip_and_short_or_long_sections_are_refused() {
        let tombstone = |start: &'static str, end: &'static str, seqno| RangeTombstone {
            start: Bytes::from(start),
            end: Bytes::from(end),
            seqno,
        };
        let tombstones = vec![tombstone("a", "b", 1), tombstone("a", "zebra", SEQNO_MAX)];
        let section = encode(&tombstones);
        assert_eq!(decode(&section), Some(tombstones));
        for len in 0..section.len() {
            assert_eq!(decode(&section[..len]), None);
        }
        assert_eq!(decode(&[&section[..], &[0]].concat()), None);
        assert_eq!(decode(&encode(&[tombstone("b", "b", 1)])), None);
        assert_eq!(decode(&encode(&[tombstone("", "b", 1)])), None);
    }
}
