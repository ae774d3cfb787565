//! Keys: numbers that are asked for, and the bytes they are asked by.
//!
//! A key's number is its place in the order of all keys. Between any two keys of the prefilled store
//! lie places that no workload fills (for reads that must miss) and places for later inserts:
//!
//! ```text
//! number = index (56 bits) | place (8 bits): 0x40 absent, 0x80 prefilled, 0x81.. inserted later
//! ```
//!
//! Invariant: the bytes of keys order as their numbers do, and need no escaping in a URL.

use crate::error::{Error, Result};

/// Digits in the order of their bytes; all of them stand for themselves in a URL (RFC 3986).
const DIGITS: &[u8; 64] = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
/// Digits that hold every number: 11 times 6 bits.
const DIGITS_MAX: usize = 11;

const PLACE_BITS: u32 = 8;
const PLACE_ABSENT: u64 = 0x40;
const PLACE_PREFILLED: u64 = 0x80;
/// Inserts that fit between two prefilled keys.
const INSERTS_BETWEEN: u64 = 0xff - PLACE_PREFILLED;

/// A key by its place in the order of all keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyNumber(u64);

impl KeyNumber {
    /// The prefilled key of this index.
    pub fn present(index: u64) -> KeyNumber {
        KeyNumber(index << PLACE_BITS | PLACE_PREFILLED)
    }

    /// A key just before the prefilled one of this index, which nothing ever puts.
    pub fn absent(index: u64) -> KeyNumber {
        KeyNumber(index << PLACE_BITS | PLACE_ABSENT)
    }

    /// The key of the `insert`-th insertion into a store of `keys`, scattered among them as YCSB's
    /// hashed order does. After 127 times `keys` inserts, places are used again.
    pub fn inserted(insert: u64, keys: u64, scatter: &Permutation) -> KeyNumber {
        let round = insert / keys % INSERTS_BETWEEN;
        let index = scatter.at(insert % keys);
        KeyNumber(index << PLACE_BITS | (PLACE_PREFILLED + 1 + round))
    }

    /// The index of the prefilled key that it is, or that it follows or precedes.
    pub fn index(self) -> u64 {
        self.0 >> PLACE_BITS
    }

    /// Whether it is a prefilled key.
    pub fn is_prefilled(self) -> bool {
        self.0 & ((1 << PLACE_BITS) - 1) == PLACE_PREFILLED
    }

    /// The number itself, for hashes.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Its bytes, `key_bytes` of them, in place of another key's or nothing.
    pub fn write(self, key_bytes: usize, key: &mut Vec<u8>) {
        // The padding stays as it is when a key is written over another of its length.
        if key.len() != key_bytes {
            key.clear();
            key.resize(key_bytes, DIGITS[0]);
        }
        let mut rest = self.0;
        for digit in key.iter_mut().rev().take(DIGITS_MAX) {
            *digit = DIGITS[(rest & 63) as usize];
            rest >>= 6;
        }
    }

    /// The number of a key that `write` made; `None` for other bytes.
    pub fn read(key: &[u8]) -> Option<KeyNumber> {
        let digits = key.len().min(DIGITS_MAX);
        let (padding, digits) = key.split_at(key.len() - digits);
        let is_padded = padding.iter().fold(true, |is, &byte| is & (byte == DIGITS[0]));
        if digits.is_empty() || !is_padded {
            return None;
        }
        // No branch for each digit: this is done for each key that a scan shows. Eleven digits are 66
        // bits, of which the first has to leave two clear.
        let mut number = 0_u64;
        let mut seen = 0;
        for &byte in digits {
            let digit = DIGIT_OF[usize::from(byte)];
            seen |= digit;
            number = number << 6 | u64::from(digit);
        }
        let fits = digits.len() < DIGITS_MAX || DIGIT_OF[usize::from(digits[0])] < 16;
        (seen & NO_DIGIT == 0 && fits).then_some(KeyNumber(number))
    }
}

/// What `DIGIT_OF` says of other bytes: more than any digit.
const NO_DIGIT: u8 = 0x40;

/// The number of each digit.
static DIGIT_OF: [u8; 256] = {
    let mut numbers = [NO_DIGIT; 256];
    let mut at = 0;
    while at < DIGITS.len() {
        numbers[DIGITS[at] as usize] = at as u8;
        at += 1;
    }
    numbers
};

/// Refuses a key length too short for this many keys.
pub fn check_length(keys: u64, key_bytes: u32) -> Result<()> {
    let bits = 6 * (key_bytes as usize).min(DIGITS_MAX) as u32;
    let index_bits = bits.min(64) - PLACE_BITS;
    if keys > 1 << index_bits.min(48) {
        return Err(Error::Invalid(format!(
            "{keys} keys don't fit into keys of {key_bytes} bytes"
        )));
    }
    Ok(())
}

/// Every number below a bound, each once, in an order that looks random, without memory.
///
/// Each step (add, multiply by an odd number, fold the high half onto the low one) is a bijection of
/// the numbers of so many bits; results beyond the bound are sent through again, which leaves a
/// bijection of those below it (cycle walking, Black and Rogaway 2002). Not for secrets.
#[derive(Debug, Clone)]
pub struct Permutation {
    bound: u64,
    mask: u64,
    fold: u32,
    keys: [u64; 3],
}

impl Permutation {
    /// The permutation of the numbers below `bound` that `seed` names. Requires: 0 < bound <= 2^63.
    pub fn new(bound: u64, seed: u64) -> Permutation {
        assert!((1..=1 << 63).contains(&bound), "a permutation has 1 to 2^63 members");
        let bits = (64 - (bound - 1).leading_zeros()).max(2);
        let keys = [1, 2, 3].map(|round| mix(seed.wrapping_add(round)));
        Permutation { bound, mask: u64::MAX >> (64 - bits), fold: bits.div_ceil(2), keys }
    }

    /// The `position`-th number. Requires: position < bound.
    pub fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.bound);
        let mut number = position;
        loop {
            for key in self.keys {
                number = number.wrapping_add(key).wrapping_mul(key | 5) & self.mask;
                number ^= number >> self.fold;
            }
            if number < self.bound {
                return number;
            }
        }
    }
}

/// Mixes all bits of a number (the finalizer of splitmix64; Steele, Lea and Flood 2014).
pub fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(number: KeyNumber, key_bytes: usize) -> Vec<u8> {
        let mut key = Vec::new();
        number.write(key_bytes, &mut key);
        key
    }

    #[test]
    fn keys_order_as_their_numbers_and_read_back() {
        let scatter = Permutation::new(1000, 1);
        for key_bytes in [8, 11, 16, 40] {
            let mut numbers: Vec<KeyNumber> = (0..1000)
                .flat_map(|index| [KeyNumber::absent(index), KeyNumber::present(index)])
                .chain((0..3000).map(|insert| KeyNumber::inserted(insert, 1000, &scatter)))
                .chain([KeyNumber::present((1 << 40) - 1)])
                .collect();
            numbers.sort_unstable();
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "all are different");
            let keys: Vec<Vec<u8>> = numbers.iter().map(|n| bytes(*n, key_bytes)).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
            for (number, key) in numbers.iter().zip(&keys) {
                assert_eq!((key.len(), KeyNumber::read(key)), (key_bytes, Some(*number)));
            }
        }
    }

    #[test]
    fn foreign_bytes_are_no_key() {
        for foreign in
            [&b""[..], b"a/b", b"x-----------------0", b"zzzzzzzzzzz", b"F----------", b"-\xff\xff"]
        {
            assert_eq!(KeyNumber::read(foreign), None, "{foreign:?}");
        }
        // The least and the greatest of eleven digits that fit 64 bits.
        assert_eq!(KeyNumber::read(b"-----------"), Some(KeyNumber(0)));
        assert_eq!(KeyNumber::read(b"Ezzzzzzzzzz"), Some(KeyNumber(u64::MAX)));
    }

    #[test]
    fn too_many_keys_for_their_length_are_refused() {
        assert!(check_length(1 << 40, 8).is_ok());
        assert!(check_length((1 << 40) + 1, 8).is_err());
        assert!(check_length(1 << 48, 16).is_ok());
        assert!(check_length(u64::MAX, 4096).is_err());
    }

    #[test]
    fn permutation_covers_every_number_once() {
        for bound in [1, 2, 3, 5, 64, 1000, 65_537, 200_000] {
            for seed in [0, 7] {
                let permutation = Permutation::new(bound, seed);
                let mut seen = vec![false; bound as usize];
                for position in 0..bound {
                    let number = permutation.at(position) as usize;
                    assert!(!std::mem::replace(&mut seen[number], true), "{bound} {seed}");
                }
            }
        }
    }

    #[test]
    fn permutation_looks_random_and_depends_on_its_seed() {
        let bound = 100_000_u64;
        let one = Permutation::new(bound, 1);
        let other = Permutation::new(bound, 2);
        let same = (0..bound).filter(|&at| one.at(at) == other.at(at)).count();
        assert!(same < 30, "{same} of {bound} stay where they were under another seed");
        // The mean distance of neighbours is a third of the range for a random order.
        let distance: u64 = (1..bound).map(|at| one.at(at).abs_diff(one.at(at - 1))).sum();
        let mean = distance as f64 / (bound - 1) as f64 / bound as f64;
        assert!((0.31..0.36).contains(&mean), "{mean}");
    }
}
