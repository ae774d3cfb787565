//! Runs of disjoint tables, and the levels that hold them.
//!
//! Invariant: tables of a run ascend by key and are disjoint in what is visible of them; runs of a
//! level descend by id, newest first.

use std::ops::Range;
use std::sync::Arc;

use super::table::LiveTable;

/// Tables that are disjoint in key, so that a look-up asks one of them.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its number, from the counter of file numbers: unique in the store, larger in newer runs.
    pub id: u64,
    /// Ascending by key. Shared by the versions that have the same, and by cursors.
    pub tables: Arc<Vec<Arc<LiveTable>>>,
}

impl Run {
    /// The one table that may hold `user_key`.
    #[inline]
    pub fn find(&self, user_key: &[u8]) -> Option<&Arc<LiveTable>> {
        let after = self.tables.partition_point(|table| table.smallest[..] <= *user_key);
        let table = &self.tables[after.checked_sub(1)?];
        (!table.ends_by(user_key)).then_some(table)
    }

    /// The tables that may hold a key of `[start, end)`; `None` is unbounded.
    pub fn overlapping(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> &[Arc<LiveTable>] {
        &self.tables[self.places(start, end)]
    }

    /// As `overlapping`, where they stand in the run.
    pub fn places(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Range<usize> {
        let from =
            start.map_or(0, |start| self.tables.partition_point(|table| table.ends_by(start)));
        let to = end.map_or(self.tables.len(), |end| {
            self.tables.partition_point(|table| table.smallest[..] < *end)
        });
        // Of an empty range, `to` may come first.
        from.min(to)..to
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes()).sum()
    }

    /// Bytes of its files and of the journal values that they point at.
    pub fn weight(&self) -> u64 {
        self.tables.iter().map(|table| table.weight()).fold(0, u64::saturating_add)
    }

    /// Entries of its files.
    pub fn entries(&self) -> u64 {
        self.tables.iter().map(|table| table.properties.entries).fold(0, u64::saturating_add)
    }

    /// The tables, to change those of this version alone.
    pub(super) fn tables_mut(&mut self) -> &mut Vec<Arc<LiveTable>> {
        Arc::make_mut(&mut self.tables)
    }

    /// Adds a table in its place.
    pub(super) fn insert(&mut self, table: Arc<LiveTable>) {
        let at = self.tables.partition_point(|other| other.smallest < table.smallest);
        self.tables_mut().insert(at, table);
    }
}

/// The runs of one level, newest first.
#[derive(Debug, Clone, Default)]
pub struct Level {
    /// Descending by id.
    pub runs: Vec<Run>,
}

impl Level {
    /// The run with this id.
    pub fn run(&self, id: u64) -> Option<&Run> {
        let at = self.runs.partition_point(|run| run.id > id);
        self.runs.get(at).filter(|run| run.id == id)
    }

    /// Its tables, run by run.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<LiveTable>> {
        self.runs.iter().flat_map(|run| run.tables.iter())
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(Run::bytes).sum()
    }

    /// Bytes of its files and of the journal values that they point at.
    pub fn weight(&self) -> u64 {
        self.runs.iter().map(Run::weight).fold(0, u64::saturating_add)
    }

    pub(super) fn run_or_new(&mut self, id: u64) -> &mut Run {
        let at = self.runs.partition_point(|run| run.id > id);
        if self.runs.get(at).is_none_or(|run| run.id != id) {
            self.runs.insert(at, Run { id, tables: Arc::default() });
        }
        &mut self.runs[at]
    }

    /// Run and position of a table.
    pub(super) fn position(&self, number: u64) -> Option<(usize, usize)> {
        self.runs.iter().enumerate().find_map(|(run_at, run)| {
            let at = run.tables.iter().position(|table| table.number == number)?;
            Some((run_at, at))
        })
    }
}
