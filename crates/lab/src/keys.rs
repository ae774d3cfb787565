//! Keys: numbers that are asked for, and the bytes they are asked by.
//!
//! A key's number is its place in the order of all keys. Between any two keys of the prefilled store
//! lie places that no workload fills (for reads that must miss) and places for later inserts:
//!
//! ```text
//! number = index (56 bits) | place (8 bits): 0x40 absent, 0x80 prefilled, 0x81.. inserted later
//! key    = front | 11 digits of 6 bits, the last of the number
//! front  = zeros, or a name that 65,536 keys have in common, as those of a table in a store of many:
//!          3 digits that count the names | letters | '.'
//! ```
//!
//! Invariant: the bytes of keys order as their numbers do, and need no escaping in a URL.

use std::fmt;
use std::ops::RangeInclusive;

use crate::error::{Error, Result};

/// Digits in the order of their bytes; all of them stand for themselves in a URL (RFC 3986).
const DIGITS: &[u8; 64] = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
/// Digits that hold every number: 11 times 6 bits.
const DIGITS_MAX: usize = 11;

const PLACE_BITS: u32 = 8;
const PLACE_ABSENT: u64 = 0x40;
const PLACE_PREFILLED: u64 = 0x80;
/// Keys that have a name in common: 16 bits of their index.
const KEYS_OF_A_NAME_BITS: u32 = 16;
/// Digits of a name that count it, and the bits that they hold.
const NAME_DIGITS: usize = 3;
const NAME_BITS: u32 = 6 * NAME_DIGITS as u32;
/// What a name ends with: no digit, and it stands for itself in a URL.
const NAME_END: &[u8] = b".";
/// Longest name.
const NAME_BYTES_MAX: usize = 64;
/// Bytes of a key that begins with a name.
const NAMED_BYTES: RangeInclusive<usize> =
    NAME_DIGITS + NAME_END.len() + DIGITS_MAX..=NAME_BYTES_MAX + DIGITS_MAX;

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
}

/// What the bytes of keys look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyShape {
    /// Bytes of a key.
    pub bytes: usize,
    /// Whether keys begin with names, instead of zeros.
    pub is_named: bool,
}

impl KeyShape {
    /// The shape of this key.
    pub fn of(key: &[u8]) -> KeyShape {
        let front = key.len().saturating_sub(DIGITS_MAX);
        KeyShape { bytes: key.len(), is_named: key[..front].ends_with(NAME_END) }
    }

    /// Refuses a length too short for this many keys.
    pub fn check(self, keys: u64) -> Result<()> {
        let digits_bits = 6 * self.bytes.min(DIGITS_MAX) as u32;
        let index_bits = match self.is_named {
            true if !NAMED_BYTES.contains(&self.bytes) => {
                let (least, most) = (NAMED_BYTES.start(), NAMED_BYTES.end());
                let what = format!("keys that begin with names have {least} to {most} bytes");
                return Err(Error::Invalid(what));
            }
            true => NAME_BITS + KEYS_OF_A_NAME_BITS,
            false => (digits_bits.min(64) - PLACE_BITS).min(48),
        };
        if keys > 1 << index_bits {
            let what = format!("{keys} keys don't fit into keys of {} bytes", self.bytes);
            return Err(Error::Invalid(what));
        }
        Ok(())
    }

    /// The bytes of the key of this number, in place of another key's of this shape or nothing.
    pub fn write(self, number: KeyNumber, key: &mut Vec<u8>) {
        // Zeros in front stay as they are when a key is written over another.
        if key.len() != self.bytes {
            key.clear();
            key.resize(self.bytes, DIGITS[0]);
        }
        let (front, digits) = key.split_at_mut(self.bytes.saturating_sub(DIGITS_MAX));
        if self.is_named {
            write_name(number.index() >> KEYS_OF_A_NAME_BITS, front);
        }
        write_digits(number.0, digits);
    }

    /// The number of a key that `write` made; `None` for other bytes.
    pub fn read(self, key: &[u8]) -> Option<KeyNumber> {
        let (front, digits) = key.split_at(key.len().saturating_sub(DIGITS_MAX));
        if digits.is_empty() || key.len() != self.bytes {
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
        let number = KeyNumber(number);
        let is_front = match self.is_named {
            false => front.iter().fold(true, |is, &byte| is & (byte == DIGITS[0])),
            true => is_name(number.index() >> KEYS_OF_A_NAME_BITS, front),
        };
        (seen & NO_DIGIT == 0 && fits && is_front).then_some(number)
    }
}

/// As it is told in reports, behind "keys of".
impl fmt::Display for KeyShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = if self.is_named { " that begin with names" } else { "" };
        write!(f, "{} bytes{names}", self.bytes)
    }
}

/// The last digits of a number.
fn write_digits(mut number: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(number & 63) as usize];
        number >>= 6;
    }
}

/// The `nth` name: names order as their numbers, and are of as many bytes as there is room for.
fn write_name(nth: u64, name: &mut [u8]) {
    let (name, end) = name.split_at_mut(name.len() - NAME_END.len());
    end.copy_from_slice(NAME_END);
    let (count, letters) = name.split_at_mut(NAME_DIGITS);
    write_digits(nth, count);
    let start = mix(nth) as usize % (LETTERS.len() - NAME_BYTES_MAX);
    letters.copy_from_slice(&LETTERS[start..start + letters.len()]);
}

fn is_name(nth: u64, bytes: &[u8]) -> bool {
    let mut name = [0; NAME_BYTES_MAX];
    match name.get_mut(..bytes.len()) {
        Some(name) if bytes.len() > NAME_DIGITS => {
            write_name(nth, name);
            name == bytes
        }
        _ => false,
    }
}

/// What `DIGIT_OF` says of other bytes: more than any digit.
const NO_DIGIT: u8 = 0x40;

/// What names take their letters from: each begins somewhere else.
static LETTERS: [u8; 1 << 12] = {
    let mut letters = [0; 1 << 12];
    let mut at = 0;
    while at < letters.len() {
        letters[at] = DIGITS[(mix(at as u64) & 63) as usize];
        at += 1;
    }
    letters
};

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
pub const fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn plain(bytes: usize) -> KeyShape {
        KeyShape { bytes, is_named: false }
    }

    const fn named(bytes: usize) -> KeyShape {
        KeyShape { bytes, is_named: true }
    }

    #[test]
    fn keys_order_as_their_numbers_and_read_back() {
        let scatter = Permutation::new(1000, 1);
        for shape in [8, 11, 16, 40].map(plain).into_iter().chain([15, 16, 32, 75].map(named)) {
            let mut numbers: Vec<KeyNumber> = (0..1000)
                .flat_map(|index| [KeyNumber::absent(index), KeyNumber::present(index)])
                .chain((0..3000).map(|insert| KeyNumber::inserted(insert, 1000, &scatter)))
                // The last of one name and the first of the next, and the last of all.
                .chain([(1 << 16) - 1, 1 << 16, (1 << 34) - 1].map(KeyNumber::present))
                .collect();
            numbers.sort_unstable();
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "all are different");
            let mut key = Vec::new();
            let mut key_of = |number: &KeyNumber| {
                shape.write(*number, &mut key);
                key.clone()
            };
            let keys: Vec<Vec<u8>> = numbers.iter().map(&mut key_of).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{shape:?}");
            for (number, key) in numbers.iter().zip(&keys) {
                assert_eq!(KeyShape::of(key), shape);
                assert_eq!(shape.read(key), Some(*number));
                let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
                assert!(key.iter().all(plain), "{key:?} needs escaping");
            }
        }
    }

    #[test]
    fn foreign_bytes_are_no_key() {
        for foreign in
            [&b""[..], b"a/b", b"x-----------------0", b"zzzzzzzzzzz", b"F----------", b"-\xff\xff"]
        {
            assert_eq!(KeyShape::of(foreign).read(foreign), None, "{foreign:?}");
        }
        // The least and the greatest of eleven digits that fit 64 bits.
        assert_eq!(plain(11).read(b"-----------"), Some(KeyNumber(0)));
        assert_eq!(plain(11).read(b"Ezzzzzzzzzz"), Some(KeyNumber(u64::MAX)));

        let mut key = Vec::new();
        named(32).write(KeyNumber::present(70_000), &mut key);
        for at in 0..key.len() - 1 {
            let mut other = key.clone();
            other[at] = if other[at] == b'x' { b'y' } else { b'x' };
            assert_ne!(named(32).read(&other), Some(KeyNumber::present(70_000)), "byte {at}");
        }
        for foreign in [&b""[..], b".-----------", b"x.-----------", &[b'.'; 100]] {
            assert_eq!(named(foreign.len()).read(foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn names_differ_within_a_store_of_a_few_hundred_thousand_keys() {
        let name = |index: u64| {
            let mut key = Vec::new();
            named(32).write(KeyNumber::present(index), &mut key);
            key[..21].to_vec()
        };
        assert_eq!(name(0), name(65_535));
        let names: std::collections::BTreeSet<_> = (0..500_000).step_by(1000).map(name).collect();
        assert_eq!(names.len(), 8);
        assert!(names.iter().all(|name| name.ends_with(b".") && name[..2] == *b"--"));
    }

    #[test]
    fn too_many_keys_for_their_length_are_refused() {
        assert!(plain(8).check(1 << 40).is_ok());
        assert!(plain(8).check((1 << 40) + 1).is_err());
        assert!(plain(16).check(1 << 48).is_ok());
        assert!(plain(4096).check(u64::MAX).is_err());
        assert!(named(15).check(1 << 34).is_ok() && named(75).check(1 << 34).is_ok());
        assert!(named(32).check((1 << 34) + 1).is_err());
        assert!(named(14).check(1).is_err() && named(76).check(1).is_err());
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
