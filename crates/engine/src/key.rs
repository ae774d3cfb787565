//! Keys, versions of keys, and the order of both.
//!
//! Internal order: user key ascending as unsigned bytes, then SeqNo descending, so that the newest
//! version of a key comes first.

use std::cmp::Ordering;

use crate::coding;
use crate::error::{Error, Result};

/// Number of a write; larger is newer. The first write of a store is 1; 0 means "none".
pub type SeqNo = u64;

/// The largest SeqNo; a read at it sees everything.
pub const SEQNO_MAX: SeqNo = (1 << 56) - 1;

/// No write of a store that opens has a larger one: there is room for all that are to come.
pub const SEQNO_USED_MAX: SeqNo = SEQNO_MAX / 2;

/// No larger one is saved of a store without a manifest: the one that is made of it opens, and has room, too.
pub const SEQNO_SAVED_MAX: SeqNo = SEQNO_USED_MAX - (1 << 40);

/// Longest user key, in bytes. The shortest is 1.
pub const KEY_BYTES_MAX: usize = 4096;

/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// Longest value that stands beside its key, in bytes. A longer one stays in the journal.
pub const INLINE_BYTES_MAX: usize = 512 << 10;

/// Most attribute bytes of one entry.
pub const ATTRIBUTES_BYTES_MAX: usize = 1024;

/// What a write did. On disk: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ValueKind {
    /// A value, stored inline.
    Put = 1,
    /// A value, stored in the journal and pointed at.
    PutRef = 2,
    /// The key was deleted.
    Delete = 3,
    /// Every key in a range was deleted.
    DeleteRange = 4,
}

impl ValueKind {
    /// The kind with this number on disk.
    pub fn from_u8(byte: u8) -> Option<ValueKind> {
        match byte {
            1 => Some(ValueKind::Put),
            2 => Some(ValueKind::PutRef),
            3 => Some(ValueKind::Delete),
            4 => Some(ValueKind::DeleteRange),
            _ => None,
        }
    }
}

/// Compares two versions of keys in internal order.
#[inline]
pub fn compare(a_key: &[u8], a_seqno: SeqNo, b_key: &[u8], b_seqno: SeqNo) -> Ordering {
    a_key.cmp(b_key).then(b_seqno.cmp(&a_seqno))
}

/// The first eight bytes behind the first `skip` of a key as a number, zeros for what is missing: of two
/// words that differ, the smaller is of the smaller key. Requires: the key has `skip` bytes.
///
/// What is shorter, as behind the bytes that all keys of a table share, is cut out of the key's last eight:
/// to copy it into a word is a call, and a wait for what was just written.
#[inline]
pub fn word(key: &[u8], skip: usize) -> u64 {
    let rest = &key[skip..];
    match (rest.first_chunk(), key.last_chunk()) {
        (Some(word), _) => u64::from_be_bytes(*word),
        (None, Some(last)) => {
            let before = 8 * (8 - rest.len() as u32);
            u64::from_be_bytes(*last).checked_shl(before).unwrap_or(0)
        }
        (None, None) => {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(word)
        }
    }
}

/// As `word`, the first sixteen bytes of all.
#[inline]
pub fn front(key: &[u8]) -> u128 {
    match key.first_chunk() {
        Some(front) => u128::from_be_bytes(*front),
        None => u128::from(word(key, 0)) << 64 | u128::from(word(key, key.len().min(8))),
    }
}

/// Whether one key comes before another. Where their first sixteen bytes differ that takes no call.
#[inline]
pub fn is_before(a: &[u8], b: &[u8]) -> bool {
    let (front_a, front_b) = (front(a), front(b));
    if front_a == front_b { a < b } else { front_a < front_b }
}

/// Whether two keys are the same. Neighbours differ near their ends, so those are looked at first; up to
/// 32 bytes it takes no call.
#[inline]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    fn ends<const N: usize>(a: &[u8], b: &[u8]) -> Option<bool> {
        let same_back = a.last_chunk::<N>()? == b.last_chunk::<N>()?;
        Some(same_back && a.first_chunk::<N>()? == b.first_chunk::<N>()?)
    }
    if a.len() != b.len() {
        return false;
    }
    let same = match a.len() {
        0 => Some(true),
        1 => ends::<1>(a, b),
        2..=3 => ends::<2>(a, b),
        4..=7 => ends::<4>(a, b),
        8..=16 => ends::<8>(a, b),
        17..=32 => ends::<16>(a, b),
        _ => None,
    };
    same.unwrap_or_else(|| a == b)
}

/// Puts a key in the place of another. One of 8 to 64 bytes, as most are, takes two moves and no call.
#[inline(always)]
pub fn assign(place: &mut Vec<u8>, key: &[u8]) {
    assign_behind(place, 0, key);
}

/// As `assign`, behind the first `kept` bytes of the place. Requires: there are so many.
#[inline(always)]
pub fn assign_behind(place: &mut Vec<u8>, kept: usize, rest: &[u8]) {
    if place.len() != kept + rest.len() {
        place.resize(kept + rest.len(), 0);
    }
    coding::copy(rest, &mut place[kept..]);
}

/// How many bytes two keys share at their start.
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let Some((last_a, last_b)) = a.last_chunk().zip(b.last_chunk()) else {
        return std::iter::zip(a, b).take_while(|(a, b)| a == b).count();
    };
    let difference = |a: &[u8; 8], b: &[u8; 8]| u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
    let words = std::iter::zip(a.as_chunks().0, b.as_chunks().0).enumerate();
    for (at, (a, b)) in words {
        let difference = difference(a, b);
        if difference != 0 {
            return at * 8 + difference.trailing_zeros() as usize / 8;
        }
    }
    // The last word may begin among those before, which are equal. Of equal ones all 64 bits are.
    len - 8 + difference(last_a, last_b).trailing_zeros() as usize / 8
}

/// The hash of a user key that every point index uses (XXH3, 64 bits).
#[inline]
pub fn hash(user_key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(user_key)
}

/// Refuses a key of an impossible length.
pub fn check_key(user_key: &[u8]) -> Result<()> {
    match user_key.len() {
        0 => Err(Error::InvalidArgument("a key has at least 1 byte".into())),
        1..=KEY_BYTES_MAX => Ok(()),
        len => Err(Error::InvalidArgument(format!(
            "a key has at most {KEY_BYTES_MAX} bytes, this one has {len}"
        ))),
    }
}

/// The smallest key greater than every key with this prefix; `None` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_any_length_takes_the_place_of_another() {
        let mut place = Vec::new();
        for len in (0..70).chain((0..70).rev()) {
            let key: Vec<u8> = (0..len).map(|at| at + len).collect();
            assign(&mut place, &key);
            assert_eq!(place, key);
            for kept in 0..=key.len() {
                let (front, rest) = key.split_at(kept);
                assign(&mut place, front);
                assign_behind(&mut place, kept, rest);
                assert_eq!(place, key);
            }
        }
    }

    #[test]
    fn a_word_is_what_stands_there_and_zeros() {
        let whole: Vec<u8> = (1..=40).collect();
        for len in 0..=whole.len() {
            let mut filled = whole[..len].to_vec();
            filled.resize(60, 0);
            for skip in 0..=len {
                let expected = u64::from_be_bytes(filled[skip..][..8].try_into().unwrap());
                assert_eq!(word(&whole[..len], skip), expected, "{len} bytes without {skip}");
            }
            assert_eq!(front(&whole[..len]), u128::from_be_bytes(*filled.first_chunk().unwrap()));
        }
    }

    #[test]
    fn newest_version_of_a_key_comes_first() {
        assert_eq!(compare(b"a", 2, b"a", 1), Ordering::Less);
        assert_eq!(compare(b"a", 1, b"b", 2), Ordering::Less);
        assert_eq!(compare(b"\xff", 1, b"a", 1), Ordering::Greater);
    }

    #[test]
    fn keys_are_in_order_whatever_their_lengths() {
        let keys: Vec<Vec<u8>> = (0..40)
            .flat_map(|len| [0, 1, 0xff].map(|last| [&[7; 40][..len], &[last]].concat()))
            .collect();
        for a in &keys {
            for b in &keys {
                assert_eq!(is_before(a, b), a < b, "{a:?} {b:?}");
                assert_eq!(same(a, b), a == b, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_common_prefix_ends_at_the_first_difference() {
        let whole: Vec<u8> = (0..40).collect();
        for len in 0..=whole.len() {
            assert_eq!(common_prefix(&whole, &whole[..len]), len);
            for at in 0..len {
                let mut other = whole[..len].to_vec();
                other[at] ^= 0x80;
                assert_eq!(common_prefix(&whole, &other), at);
            }
        }
    }

    #[test]
    fn prefix_end_carries_over_ff() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_end(b"\xff\xff"), None);
    }
}
