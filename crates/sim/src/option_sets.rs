//! Settings that make a small store do what a large one does: flush, merge, collect, roll over.

use std::time::Duration;

use tallybook::options::{Compression, Durability, JournalWriting, LEVEL_COUNT, Options, Reading};
use tallybook::resources::ResourceOptions;

use crate::random::Random;

/// The smallest sizes allowed, so that a few hundred writes reach every part of the engine.
pub fn tiny() -> Options {
    Options {
        inline_max_bytes: 512,
        memtable_bytes: 4 << 10,
        memtable_journal_bytes: 64 << 10,
        write_buffer_bytes: 64 << 10,
        segment_bytes_min: 4 << 10,
        segment_bytes_max: 16 << 10,
        block_bytes: 256,
        table_bytes: 4 << 10,
        level_runs_max: 2,
        compaction_job_bytes_max: 16 << 10,
        stall_deadline: Duration::from_secs(10),
        ..Options::default()
    }
}

/// Settings drawn at random, all of them valid.
pub fn random(random: &mut Random) -> Options {
    let memtable_bytes = random.pick(&[4 << 10, 16 << 10, 64 << 10, 1 << 20]);
    let segment_bytes_min = random.pick(&[4 << 10, 32 << 10, 256 << 10]);
    let mut compression = [Compression::None; LEVEL_COUNT];
    for level in &mut compression {
        *level = random.pick(&[Compression::None, Compression::Lz4, Compression::Zstd]);
    }
    let options = Options {
        durability: random.pick(&[
            Durability::Os,
            Durability::Interval(0),
            Durability::Interval(100),
            Durability::Sync,
        ]),
        inline_max_bytes: random.pick(&[1, 64, 512, 1024, 4 << 10, 32 << 10]),
        memtable_bytes,
        memtable_journal_bytes: random.pick(&[16 << 10, 256 << 10, 256 << 20]),
        write_buffer_bytes: memtable_bytes * random.pick(&[1, 2, 8]),
        segment_bytes_min,
        segment_bytes_max: segment_bytes_min * random.pick(&[1, 4, 16]),
        journal_writing: random.pick(&[
            JournalWriting::Auto,
            JournalWriting::Mapped,
            JournalWriting::Written,
        ]),
        reading: random.pick(&[Reading::Mapped, Reading::Pread]),
        block_bytes: random.pick(&[256, 512, 4 << 10, 32 << 10]),
        table_bytes: random.pick(&[4 << 10, 32 << 10, 1 << 20]),
        compression,
        level_runs_max: random.pick(&[2, 3, 8]),
        compaction_job_bytes_max: random.pick(&[4 << 10, 64 << 10, 256 << 20]),
        background: random.chance(80),
        collection_live_ratio: random.pick(&[0.0, 0.3, 0.5, 0.9, 1.0]),
        ..Options::default()
    };
    options.check().expect("every option drawn is within its range");
    options
}

/// Caches and budgets small enough to be exhausted.
pub fn resources(random: &mut Random) -> ResourceOptions {
    ResourceOptions {
        block_cache_bytes: random.pick(&[0, 4 << 10, 1 << 20]),
        file_handles_max: random.pick(&[1, 4, 64]),
        ..ResourceOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_valid() {
        tiny().check().unwrap();
        for seed in 0..1000 {
            random(&mut Random::new(seed));
        }
    }
}
