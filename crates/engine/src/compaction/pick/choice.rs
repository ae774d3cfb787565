//! What compaction may do next: the answer of picking, and the edits it leads to.

use std::sync::Arc;

use bytes::Bytes;

use crate::version::{
    Added, Clipped, LiveTable, Moved, Removed, Run, TableMeta, Version, VersionEdit,
};

/// A part of the key space: `[start, end)`, `None` being unbounded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice {
    /// First key.
    pub start: Option<Bytes>,
    /// First key after it.
    pub end: Option<Bytes>,
}

impl Slice {
    /// Whether the table shows a key of the slice.
    pub fn overlaps(&self, table: &TableMeta) -> bool {
        table.overlaps(self.start.as_deref(), self.end.as_deref())
    }

    /// The tables of `run` that show a key of the slice.
    pub fn tables<'v>(&self, run: &'v Run) -> &'v [Arc<LiveTable>] {
        run.overlapping(self.start.as_deref(), self.end.as_deref())
    }
}

/// What to do next.
#[derive(Debug, Clone)]
pub enum Choice {
    /// Nothing is worth doing.
    DoNothing,
    /// Give tables another place; no bytes are read or written.
    Move(Move),
    /// Merge tables into new ones.
    Merge(Merge),
    /// Remove tables whose every entry is dead.
    Drop(Drop),
}

/// The run that a merge or a move puts tables into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputRun {
    /// The run with this id; it is made if it is gone by then.
    Existing(u64),
    /// A new run, newest of its level; its id comes from the counter of file numbers.
    New,
}

impl OutputRun {
    /// The run's id; `next_id` is called for a new one.
    pub fn id(self, next_id: impl FnOnce() -> u64) -> u64 {
        match self {
            OutputRun::Existing(id) => id,
            OutputRun::New => next_id(),
        }
    }
}

/// Why a merge was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The level has too many runs or bytes.
    Full,
    /// A table is mostly tombstones that hide older entries.
    Tombstones,
    /// Every entry of a table has expired, and hides older ones.
    Expired,
    /// Reads have cost as much by passing several runs.
    Reads,
    /// Nothing else to do, and the upper runs hide much.
    Idle,
    /// Dead entries at the bottom can go now.
    Garbage,
    /// It was asked for.
    Manual,
    /// A table reaches from what can't be read over what else is below it.
    Damage,
}

/// Tables that get another place.
#[derive(Debug, Clone)]
pub struct Move {
    /// What moves, ascending by key.
    pub tables: Vec<Arc<LiveTable>>,
    /// Where it is.
    pub from_level: usize,
    /// Where it goes.
    pub to_level: usize,
    /// The run it joins.
    pub run: OutputRun,
}

impl Move {
    /// The edit that moves, into run `run_id`.
    pub fn edit(&self, run_id: u64) -> VersionEdit {
        let (from_level, to_level) = (self.from_level, self.to_level);
        let moved = self.tables.iter().map(|table| table.number);
        VersionEdit {
            moved: moved.map(|number| Moved { number, from_level, to_level, run_id }).collect(),
            ..VersionEdit::default()
        }
    }
}

/// The part of a run that a merge takes.
#[derive(Debug, Clone)]
pub struct MergeInput {
    /// Level of the run.
    pub level: usize,
    /// Id of the run.
    pub run_id: u64,
    /// The tables it takes, ascending by key. All of them show their first key inside the slice; the
    /// last may reach beyond its end. Tables of the run that lie further left are none of the merge's
    /// business, even where the slice reaches them.
    pub tables: Vec<Arc<LiveTable>>,
}

/// Tables to merge.
#[derive(Debug, Clone)]
pub struct Merge {
    /// What is merged: newest run first, and for each key of theirs without a gap in age.
    pub inputs: Vec<MergeInput>,
    /// The keys that are merged, from the first of the inputs on; it has both ends.
    pub slice: Slice,
    /// Where the output goes.
    pub output_level: usize,
    /// The run that the output joins.
    pub output_run: OutputRun,
    /// Whether nothing older than the inputs holds a key of the slice, so that what hides older
    /// entries may go.
    pub bottom: bool,
    /// Why.
    pub reason: Reason,
}

impl Merge {
    /// All tables it takes.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<LiveTable>> {
        self.inputs.iter().flat_map(|input| &input.tables)
    }

    /// Bytes of the files it takes, including what lies beyond the slice.
    pub fn input_bytes(&self) -> u64 {
        self.tables().map(|table| table.bytes()).sum()
    }

    /// Entries of these files, likewise.
    pub fn input_entries(&self) -> u64 {
        self.tables().map(|table| table.properties.entries).fold(0, u64::saturating_add)
    }

    /// What later picks must know while this runs, its output being for run `run_id`.
    pub fn in_flight(&self, run_id: u64) -> InFlight {
        InFlight {
            slice: self.slice.clone(),
            first_level: self.inputs[0].level,
            output_level: self.output_level,
            output_run: run_id,
        }
    }

    /// The edit that replaces the inputs' part of the slice by `outputs`, in run `run_id`.
    pub fn edit(&self, outputs: Vec<TableMeta>, run_id: u64) -> VersionEdit {
        let mut edit = VersionEdit::default();
        for input in &self.inputs {
            for table in &input.tables {
                let (level, number) = (input.level, table.number);
                match &self.slice.end {
                    Some(end) if !table.ends_by(end) => {
                        edit.clipped.push(Clipped { level, number, smallest: end.clone() });
                    }
                    _ => edit.removed.push(Removed { level, number }),
                }
            }
        }
        let level = self.output_level;
        edit.added = outputs.into_iter().map(|meta| Added { level, run_id, meta }).collect();
        edit
    }
}

/// Tables whose every entry is dead.
#[derive(Debug, Clone)]
pub struct Drop {
    /// The tables and their levels.
    pub tables: Vec<(usize, Arc<LiveTable>)>,
}

impl Drop {
    /// The edit that removes them.
    pub fn edit(&self) -> VersionEdit {
        let removed = self.tables.iter();
        VersionEdit {
            removed: removed
                .map(|(level, table)| Removed { level: *level, number: table.number })
                .collect(),
            ..VersionEdit::default()
        }
    }
}

/// A table that can't be read from some key on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Number of its file.
    pub table: u64,
    /// A merge ends by this key, or it would come to what can't be read. Nothing to the right of it can be merged
    /// either: tables are only ever clipped at their left end.
    pub from: Bytes,
}

impl Unreadable {
    /// Whether a version still shows what can't be read.
    pub fn is_in(&self, version: &Version) -> bool {
        let mut tables = version.tables();
        tables.any(|(_, table)| table.number == self.table && table.smallest <= self.from)
    }
}

/// A merge that runs: its tables and its slice are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    /// The keys it merges.
    pub slice: Slice,
    /// Level of its newest input.
    pub first_level: usize,
    /// Level of its output: no other job may touch the slice in these levels.
    pub output_level: usize,
    /// Id of the run of its output.
    pub output_run: u64,
}

impl InFlight {
    /// Whether it works in any of the levels `first..=last`.
    pub fn touches(&self, first: usize, last: usize) -> bool {
        self.first_level <= last && first <= self.output_level
    }
}
