//! What a crash may do, and the random source that decides it.
//!
//! The source is SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
//! 2014), the same on every machine, so that a seed names one crash for ever. Not for secrets.

/// How much of what was never synced a crash takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashMode {
    /// All of it: only durable contents and names are left.
    LoseUnsynced,
    /// None of it, as when the process is killed and the machine runs on.
    KeepAll,
    /// By the seed: each page written is old, new, or torn between sectors; growth is lost, zeros, or
    /// there in part; each name is as it was at some moment since it was durable.
    Random,
}

/// A stream of random choices.
#[derive(Debug)]
pub(super) struct Chance {
    state: u64,
}

impl Chance {
    /// The stream number `stream` of a seed; streams of one seed have nothing in common.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut chance = Chance { state: seed };
        chance.state = chance.next() ^ stream;
        chance.state = chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..end`. Requires: `end` is not 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        // The bias of a remainder is below 2^-40 for the small ranges drawn here.
        self.next() % end
    }

    /// True in `count` of `total` cases.
    pub(super) fn odds(&mut self, count: u64, total: u64) -> bool {
        self.below(total) < count
    }
}
