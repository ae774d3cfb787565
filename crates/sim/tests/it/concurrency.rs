//! Threads against one store while it flushes and merges.

use tallybook::options::{JournalWriting, Options, Reading};
use tallybook_sim::{concurrency, option_sets, settings};

use crate::pass;

/// Both ways to read and to write files.
fn ways() -> [Options; 2] {
    let tiny = option_sets::tiny;
    [
        Options { journal_writing: JournalWriting::Mapped, reading: Reading::Mapped, ..tiny() },
        Options { journal_writing: JournalWriting::Written, reading: Reading::Pread, ..tiny() },
    ]
}

#[test]
fn snapshots_and_scans_see_whole_batches() {
    pass(settings::for_each_seed(1, |seed| {
        ways().iter().try_for_each(|options| concurrency::bank(seed, options, 400))
    }));
}

#[test]
fn conditional_puts_lose_no_update() {
    pass(settings::for_each_seed(1, |_| {
        ways().iter().try_for_each(|options| concurrency::counters(options, 4, 200))
    }));
}

#[test]
fn values_and_versions_of_a_key_only_grow() {
    pass(settings::for_each_seed(1, |_| {
        ways().iter().try_for_each(|options| concurrency::register(options, 2000))
    }));
}
