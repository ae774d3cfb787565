//! Salts: the random numbers that seed the checksums in a file, so that bytes of another file never pass for
//! its own, though they lie at the same place and the files have one number.
//!
//! Invariant: no two salts of an opening are the same; those of two openings or stores are by chance.

use std::sync::atomic::{AtomicU64, Ordering};

/// A sequence of well-mixed numbers (SplitMix64, Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
#[derive(Debug)]
pub struct Salts {
    state: AtomicU64,
}

impl Salts {
    /// A sequence that starts from `seed`, another one for each opening of a store.
    pub fn new(seed: u64) -> Salts {
        Salts { state: AtomicU64::new(seed) }
    }

    /// The next one.
    pub fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of SplitMix64 from 1234567, as its authors' code gives them.
    #[test]
    fn salts_are_those_of_splitmix64() {
        let salts = Salts::new(1_234_567);
        let expected = [6457827717110365317, 3203168211198807973, 9817491932198370423];
        assert_eq!([salts.next(), salts.next(), salts.next()], expected);
    }
}
