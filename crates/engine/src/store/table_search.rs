//! Looking a key up in the tables of a version.
//!
//! 1. Beginning finds the table of the key in the newest runs, and asks the processor for what
//!    their point indexes say of it.
//! 2. The rest looks into the indexes, newest run first, and opens the block that one names. Of many runs
//!    some are found at a time.
//! 3. While the disk is waited for, the system is told which pages that used.

use crate::error::Result;
use crate::head::Entry;
use crate::key::SeqNo;
use crate::options::LEVEL_COUNT;
use crate::stages::{Exit, Stage, Trace};
use crate::version::{RUNS_AHEAD, RunSlots, Slot, Version};
use crate::vfs::cycles;

/// Runs that are looked into from the beginning, before it is known whether the memtables have the key:
/// as many as most stores at rest have. With eight, a get that ends in a memtable took 0.036 us longer
/// (`ycsb-d`); with two nothing that can be measured.
const RUNS_BEGUN: usize = 2;

/// What a search came to.
pub(crate) struct Found {
    /// The newest version, unless a range deletion covers it.
    pub(crate) entry: Option<Entry>,
    /// The level that ended the search; `None` for the memtables, `LEVEL_COUNT` when nothing did.
    level: Option<usize>,
}

impl Found {
    /// The memtables ended it.
    pub(super) fn in_memory(entry: Option<Entry>) -> Found {
        Found { entry, level: None }
    }

    /// Where the search ended.
    pub(super) fn end(&self) -> (Exit, Stage) {
        match self.level {
            None => (Exit::Memory, Stage::HeadMemory),
            Some(0) => (Exit::L0, Stage::HeadL0),
            Some(1) => (Exit::L1, Stage::HeadL1),
            Some(2) => (Exit::L2, Stage::HeadL2),
            Some(LEVEL_COUNT) => (Exit::Missed, Stage::HeadMissed),
            Some(_) => (Exit::Lower, Stage::HeadLower),
        }
    }
}

/// The runs that a search begins with, and the others.
#[inline]
fn split(runs: &[RunSlots]) -> (&[RunSlots], &[RunSlots]) {
    runs.split_at(runs.len().min(RUNS_BEGUN))
}

/// A search that has begun.
pub(super) struct TableSearch<'a> {
    version: &'a Version,
    user_key: &'a [u8],
    hash: u64,
    /// Of the runs that it begins with, the table that may hold the key.
    newest: [Option<&'a Slot>; RUNS_BEGUN],
}

/// Tables that a search went past.
#[derive(Default)]
struct Passed {
    /// Runs without a table around the key.
    outside: u64,
    /// Tables whose index has no such key.
    excluded: u64,
}

impl<'a> TableSearch<'a> {
    /// Begins one; `hash` is `key::hash` of the key.
    #[inline]
    pub(super) fn begin(
        version: &'a Version,
        user_key: &'a [u8],
        hash: u64,
        trace: &mut Trace<'_>,
    ) -> TableSearch<'a> {
        trace.skip();
        let directory = version.directory();
        let newest = directory.find(split(directory.runs()).0, user_key, hash);
        trace.lap(Stage::TableIndex);
        TableSearch { version, user_key, hash, newest }
    }

    /// The newest version of the key at or below `seqno`, newest run first. `wait` as in
    /// `ReadState::find`.
    #[inline]
    pub(super) fn find(&self, seqno: SeqNo, wait: bool, trace: &mut Trace<'_>) -> Result<Found> {
        let mut passed = Passed::default();
        let (begun, others) = split(self.version.directory().runs());
        let mut ended = self.look_into(begun, &self.newest, seqno, wait, &mut passed, trace)?;
        if ended.is_none() && !others.is_empty() {
            ended = self.find_in_others(others, seqno, wait, &mut passed, trace)?;
        }
        trace.count_many(Exit::FileIndex, passed.outside);
        trace.count_many(Exit::FileFilter, passed.excluded);
        Ok(ended.unwrap_or(Found { entry: None, level: Some(LEVEL_COUNT) }))
    }

    /// As `find`, in the runs that the search did not begin with.
    #[inline(never)]
    fn find_in_others(
        &self,
        others: &[RunSlots],
        seqno: SeqNo,
        wait: bool,
        passed: &mut Passed,
        trace: &mut Trace<'_>,
    ) -> Result<Option<Found>> {
        for runs in others.chunks(RUNS_AHEAD) {
            let tables: [_; RUNS_AHEAD] =
                self.version.directory().find(runs, self.user_key, self.hash);
            trace.lap(Stage::TableIndex);
            let ended = self.look_into(runs, &tables, seqno, wait, passed, trace)?;
            if ended.is_some() {
                return Ok(ended);
            }
        }
        Ok(None)
    }

    /// Looks into the tables found in some runs; what ended the search, if one of them did.
    #[inline]
    fn look_into(
        &self,
        runs: &[RunSlots],
        tables: &[Option<&Slot>],
        seqno: SeqNo,
        wait: bool,
        passed: &mut Passed,
        trace: &mut Trace<'_>,
    ) -> Result<Option<Found>> {
        let &TableSearch { user_key, hash, .. } = self;
        for (run, table) in runs.iter().zip(tables) {
            let Some(slot) = table else {
                passed.outside += 1;
                continue;
            };
            let mut candidates = slot.candidates(hash);
            if candidates.is_empty() && !slot.has_range_tombstones {
                passed.excluded += 1;
                continue;
            }
            let table = slot.live.table();
            let cover = table.range_tombstones().cover(user_key, seqno);
            let found = table.get_among(&mut candidates, user_key, hash, seqno, wait, trace)?;
            if found.is_some() || cover > 0 {
                let entry = found.filter(|entry| entry.seqno > cover);
                return Ok(Some(Found { entry, level: Some(run.level) }));
            }
        }
        trace.lap(Stage::TableFilter);
        Ok(None)
    }

    /// As `find`, while the disk is waited for, and now and then to see whether it is.
    #[cold]
    pub(super) fn find_timed(
        &self,
        seqno: SeqNo,
        wait: bool,
        trace: &mut Trace<'_>,
    ) -> Result<Found> {
        let waits = trace.disk_waits();
        let begun = cycles::now();
        let found = self.find(seqno, wait, trace)?;
        waits.end(Some(begun), 0);
        if waits.are_recent() {
            self.note_used();
        }
        Ok(found)
    }

    /// Tells the system which pages of the tables the search used. What all look-ups use, indexes and
    /// tables of values in the journal, is kept by this; what one of them uses goes.
    fn note_used(&self) {
        let directory = self.version.directory();
        for runs in directory.runs().chunks(RUNS_AHEAD) {
            let tables: [_; RUNS_AHEAD] = directory.find(runs, self.user_key, self.hash);
            if tables.into_iter().flatten().any(|slot| slot.live.table().note_used(self.hash)) {
                return;
            }
        }
    }
}

/// The newest version of a key at or below `seqno` in the tables. `hash` is `key::hash` of the key.
pub(crate) fn find_in_tables(
    version: &Version,
    user_key: &[u8],
    hash: u64,
    seqno: SeqNo,
    wait: bool,
    trace: &mut Trace<'_>,
) -> Result<Found> {
    TableSearch::begin(version, user_key, hash, trace).find(seqno, wait, trace)
}
