//! Values that prove themselves: any value read can be checked with its key alone.
//!
//! ```text
//! u64 generation (56 bits) | compressible share in 255ths (8 bits)
//! u64 check = mix of key number, generation word and length
//! the rest: words made of the check and their place, in blocks of 512 bytes; the last share of
//!     every block repeats one word, which is what a compressor can save
//! ```
//!
//! So another key's value, a shortened or lengthened one, and one mixed of two generations all fail.
//! Values shorter than 16 bytes have no room for a generation: they say only whose they are.

use rand::RngExt as _;
use rand_distr::{Distribution, Pareto};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::error::{Error, Result};
use crate::keys::{KeyNumber, mix};
use crate::spec::ValueSizes;

const HEADER_BYTES: usize = 16;
const BLOCK_BYTES: usize = 512;
/// Longest value; what Tallybook and its server take at most.
pub const VALUE_BYTES_MAX: u32 = 256 << 20;

/// Makes the values of one spec.
#[derive(Debug, Clone)]
pub struct Values {
    sizes: Sizes,
    share: u8,
}

#[derive(Debug, Clone)]
enum Sizes {
    Fixed(u32),
    Uniform { min: u32, max: u32 },
    Pareto { pareto: Pareto<f64>, min: u32, max: u32 },
}

impl Values {
    /// Values of these lengths, of which compression could save `compressible` (0.0 to 1.0, kept to
    /// a 255th).
    pub fn new(sizes: ValueSizes, compressible: f64) -> Result<Values> {
        let refuse = |what: &str| Err(Error::Invalid(format!("value sizes: {what}")));
        let sizes = match sizes {
            ValueSizes::Fixed(length) => Sizes::Fixed(length),
            ValueSizes::Uniform { min, max } if min <= max => Sizes::Uniform { min, max },
            ValueSizes::Uniform { .. } => return refuse("the shortest is longer than the longest"),
            ValueSizes::Pareto { min, shape, max } => match Pareto::new(f64::from(min), shape) {
                Ok(pareto) if min <= max => Sizes::Pareto { pareto, min, max },
                _ => return refuse("a pareto has a shortest above 0, a shape above 0, a longest"),
            },
        };
        if sizes.max() > VALUE_BYTES_MAX {
            return refuse("the longest is beyond 256 MiB");
        }
        Ok(Values { sizes, share: (compressible * 255.0).round() as u8 })
    }

    /// The length of the next value.
    pub fn length(&self, random: &mut Xoshiro256PlusPlus) -> u32 {
        match &self.sizes {
            Sizes::Fixed(length) => *length,
            Sizes::Uniform { min, max } => random.random_range(*min..=*max),
            Sizes::Pareto { pareto, max, .. } => pareto.sample(random).min(f64::from(*max)) as u32,
        }
    }

    /// Whether a value may be this long.
    pub fn may_be_long(&self, length: u64) -> bool {
        match &self.sizes {
            Sizes::Fixed(only) => length == u64::from(*only),
            Sizes::Uniform { min, max } => (u64::from(*min)..=u64::from(*max)).contains(&length),
            Sizes::Pareto { min, max, .. } => (u64::from(*min)..=u64::from(*max)).contains(&length),
        }
    }

    /// The mean length, from a sample that is always the same.
    pub fn length_mean(&self) -> f64 {
        const SAMPLE: u32 = 1 << 16;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(0);
        let sum: u64 = (0..SAMPLE).map(|_| u64::from(self.length(&mut random))).sum();
        sum as f64 / f64::from(SAMPLE)
    }

    /// Writes the value of `key` in this generation in place of what `value` held. Requires:
    /// generation < 2^56.
    pub fn write(&self, key: KeyNumber, generation: u64, length: u32, value: &mut Vec<u8>) {
        let length = length as usize;
        // Every byte is overwritten below, so nothing is cleared first.
        value.resize(length, 0);
        if length < HEADER_BYTES {
            value.copy_from_slice(&short_value(key, length)[..length]);
            return;
        }
        let word = generation << 8 | u64::from(self.share);
        let check = check_word(key, word, length);
        let (header, rest) = value.split_at_mut(HEADER_BYTES);
        header[..8].copy_from_slice(&word.to_le_bytes());
        header[8..].copy_from_slice(&check.to_le_bytes());
        for (number, block) in rest.chunks_mut(BLOCK_BYTES).enumerate() {
            let words = BlockWords::new(check, number, block.len(), self.share);
            let (random, repeated) = block.split_at_mut(words.random * 8);
            for (at, bytes) in random.chunks_exact_mut(8).enumerate() {
                bytes.copy_from_slice(&words.at(at as u64).to_le_bytes());
            }
            let filler = words.filler.to_le_bytes();
            // Whole words apart from the rest: of a known length they need no call to copy.
            let mut whole = repeated.chunks_exact_mut(8);
            for bytes in whole.by_ref() {
                bytes.copy_from_slice(&filler);
            }
            let tail = whole.into_remainder();
            tail.copy_from_slice(&filler[..tail.len()]);
        }
    }
}

impl Sizes {
    fn max(&self) -> u32 {
        match self {
            Sizes::Fixed(length) => *length,
            Sizes::Uniform { max, .. } | Sizes::Pareto { max, .. } => *max,
        }
    }
}

/// What a genuine value says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Genuine {
    /// Which write of the key made it; `None` for values too short to say.
    pub generation: Option<u64>,
}

/// Checks a value against its key; says what is wrong with it otherwise.
pub fn check(key: KeyNumber, value: &[u8]) -> std::result::Result<Genuine, &'static str> {
    if value.len() < HEADER_BYTES {
        return if *value == short_value(key, value.len())[..value.len()] {
            Ok(Genuine { generation: None })
        } else {
            Err("a short value is not this key's, or has another length")
        };
    }
    let (header, rest) = value.split_at(HEADER_BYTES);
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    let (generation, found) = (word(0), word(8));
    if found != check_word(key, generation, value.len()) {
        return Err("the value is not this key's, or has another length");
    }
    for (number, block) in rest.chunks(BLOCK_BYTES).enumerate() {
        let words = BlockWords::new(found, number, block.len(), generation as u8);
        if !words.are_in(block) {
            return Err("the value is torn, or mixed of several");
        }
    }
    Ok(Genuine { generation: Some(generation >> 8) })
}

fn check_word(key: KeyNumber, generation: u64, length: usize) -> u64 {
    mix(mix(mix(key.get()) ^ generation) ^ length as u64)
}

fn short_value(key: KeyNumber, length: usize) -> [u8; HEADER_BYTES] {
    let low = check_word(key, 0, length);
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&low.to_le_bytes());
    bytes[8..].copy_from_slice(&mix(low).to_le_bytes());
    bytes
}

/// The words of one block.
struct BlockWords {
    first: u64,
    /// Words of their own; those after them are the filler.
    random: usize,
    filler: u64,
}

impl BlockWords {
    fn new(check: u64, number: usize, block_bytes: usize, share: u8) -> BlockWords {
        let random = block_bytes / 8 * usize::from(255 - share) / 255;
        let first = check.wrapping_add(mix(number as u64));
        BlockWords { first, random, filler: mix(first) }
    }

    /// A Weyl sequence, folded so that no byte of it repeats early. Additions, shifts and XOR are
    /// what the compiler turns into vector instructions; different starts differ in every word.
    fn at(&self, at: u64) -> u64 {
        let word = self.first.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        word ^ (word >> 32)
    }

    fn are_in(&self, block: &[u8]) -> bool {
        let (random, repeated) = block.split_at(self.random * 8);
        let mut word = self.first;
        let mut difference = 0;
        for bytes in random.chunks_exact(8) {
            let found = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            difference |= found ^ word ^ (word >> 32);
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        let mut words = repeated.chunks_exact(8);
        for bytes in words.by_ref() {
            difference |= u64::from_le_bytes(bytes.try_into().expect("8 bytes")) ^ self.filler;
        }
        // Byte by byte: a comparison of slices would be a call.
        for (found, filler) in words.remainder().iter().zip(self.filler.to_le_bytes()) {
            difference |= u64::from(found ^ filler);
        }
        difference == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(index: u64, generation: u64, length: u32, compressible: f64) -> Vec<u8> {
        let values = Values::new(ValueSizes::Fixed(length), compressible).unwrap();
        let mut value = vec![0xaa; 7];
        values.write(KeyNumber::present(index), generation, length, &mut value);
        value
    }

    #[test]
    fn genuine_values_pass_and_name_their_generation() {
        for length in [0, 1, 7, 8, 15, 16, 17, 24, 100, 527, 528, 529, 4096, 100_001] {
            for compressible in [0.0, 0.3, 0.5, 1.0] {
                let genuine = check(KeyNumber::present(5), &value(5, 9, length, compressible));
                let generation = (length >= 16).then_some(9);
                assert_eq!(genuine, Ok(Genuine { generation }), "{length} {compressible}");
            }
        }
    }

    #[test]
    fn wrong_key_cut_torn_mixed_and_flipped_values_fail() {
        for length in [4, 16, 40, 100, 1024, 5000] {
            let genuine = value(5, 9, length, 0.5);
            assert!(check(KeyNumber::present(6), &genuine).is_err(), "{length}: another key");
            assert!(check(KeyNumber::absent(5), &genuine).is_err());
            let whole = genuine.len();
            for cut in [1, whole / 2, whole - 1] {
                let cut_off = check(KeyNumber::present(5), &genuine[..cut]);
                assert!(cut_off.is_err(), "{length}: cut to {cut}");
            }
            let longer = [&genuine[..], &genuine[whole - 1..]].concat();
            assert!(check(KeyNumber::present(5), &longer).is_err());
            for at in 0..whole {
                let mut flipped = genuine.clone();
                flipped[at] ^= 0x10;
                assert!(check(KeyNumber::present(5), &flipped).is_err(), "{length}: flipped {at}");
            }
            let newer = value(5, 10, length, 0.5);
            for at in (1..whole).filter(|_| length > 16) {
                // Both begin with the same share, so a cut there changes nothing.
                let mixed = [&newer[..at], &genuine[at..]].concat();
                if mixed != newer && mixed != genuine {
                    assert!(check(KeyNumber::present(5), &mixed).is_err(), "{length}: mixed {at}");
                }
            }
        }
    }

    #[test]
    fn no_word_repeats_but_the_filler() {
        for (compressible, share) in [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)] {
            let value = value(1, 2, 1 << 20, compressible);
            let words: std::collections::HashSet<&[u8]> = value.chunks_exact(8).collect();
            let found = words.len() as f64 / (value.len() / 8) as f64;
            assert!((found - share).abs() < 0.03, "{compressible}: {found}");
        }
    }

    #[test]
    fn lengths_are_as_asked() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let uniform = Values::new(ValueSizes::Uniform { min: 10, max: 20 }, 0.5).unwrap();
        let lengths: Vec<u32> = (0..10_000).map(|_| uniform.length(&mut random)).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&10), Some(&20)));
        assert!((14.8..15.2).contains(&uniform.length_mean()));
        let sizes = ValueSizes::Pareto { min: 50, shape: 2.0, max: 10_000 };
        let pareto = Values::new(sizes, 0.5).unwrap();
        let mut lengths: Vec<u32> = (0..100_000).map(|_| pareto.length(&mut random)).collect();
        lengths.sort_unstable();
        // The quantile of a Pareto distribution: min / (1 - q)^(1 / shape).
        assert!((69..=72).contains(&lengths[50_000]), "median {}", lengths[50_000]);
        assert!((480..=520).contains(&lengths[99_000]), "p99 {}", lengths[99_000]);
        assert!(lengths.iter().all(|&length| pareto.may_be_long(length.into())));
        assert!(Values::new(ValueSizes::Uniform { min: 2, max: 1 }, 0.5).is_err());
        assert!(Values::new(ValueSizes::Pareto { min: 9, shape: 0.0, max: 99 }, 0.5).is_err());
    }
}
