//! R9: a full disk.

use tallybook::options::{JournalWriting, Options};
use tallybook_sim::{disk_full, option_sets, settings};

use crate::pass;

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_heals_without_reopening() {
    pass(settings::for_each_seed(2, |seed| {
        for journal_writing in [JournalWriting::Mapped, JournalWriting::Written] {
            let options = Options { journal_writing, ..option_sets::tiny() };
            disk_full::fill_and_heal(seed, &options)?;
        }
        Ok(())
    }));
}
