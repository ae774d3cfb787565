//! The tables of the tree at one moment: immutable, shared by the readers of that moment.
//!
//! Invariant, age: for one key, whatever a table says is newer than what any table after it says, in
//! the order L0's runs, L1's runs, ... L6's runs, each level's newest run first. Runs of a level stand
//! in descending order of id, and a newer run always takes a larger id, so that the order needs no
//! other record. Tables of one run are disjoint in what is visible of them.
//! A version doesn't touch files: what it can't know without opening a table, its caller's `opener` does.

mod edit;
mod run_iter;
mod segments;
mod table;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

pub use edit::{Added, Clipped, Moved, Removed, VersionEdit};
pub use run_iter::RunIter;
pub use segments::{Referenced, SegmentKind, SegmentMeta, SegmentSet};
pub use table::{LiveTable, TableMeta};

use crate::error::{Error, Result};
use crate::journal::JournalPosition;
use crate::key::SeqNo;
use crate::options::LEVEL_COUNT;

/// Tables that are disjoint in key, so that a look-up asks one of them.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its number, from the counter of file numbers: unique in the store, larger in newer runs.
    pub id: u64,
    /// Ascending by key.
    pub tables: Vec<Arc<LiveTable>>,
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
        let from =
            start.map_or(0, |start| self.tables.partition_point(|table| table.ends_by(start)));
        let to = end.map_or(self.tables.len(), |end| {
            self.tables.partition_point(|table| table.smallest[..] < *end)
        });
        // Of an empty range, `to` may come first.
        &self.tables[from.min(to)..to]
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes()).sum()
    }

    /// Adds a table in its place.
    fn insert(&mut self, table: Arc<LiveTable>) {
        let at = self.tables.partition_point(|other| other.smallest < table.smallest);
        self.tables.insert(at, table);
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
        self.runs.iter().flat_map(|run| &run.tables)
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(Run::bytes).sum()
    }

    fn run_or_new(&mut self, id: u64) -> &mut Run {
        let at = self.runs.partition_point(|run| run.id > id);
        if self.runs.get(at).is_none_or(|run| run.id != id) {
            self.runs.insert(at, Run { id, tables: Vec::new() });
        }
        &mut self.runs[at]
    }

    /// Run and position of a table.
    fn position(&self, number: u64) -> Option<(usize, usize)> {
        self.runs.iter().enumerate().find_map(|(run_at, run)| {
            let at = run.tables.iter().position(|table| table.number == number)?;
            Some((run_at, at))
        })
    }
}

/// The tree at one moment, with the segments that it keeps.
#[derive(Debug, Clone)]
pub struct Version {
    /// L0 to L6.
    pub levels: [Level; LEVEL_COUNT],
    /// Closed segments, forwards, and what tables point at.
    pub segments: SegmentSet,
    /// Where replay starts.
    pub replay_from: JournalPosition,
    /// SeqNo of the last write that tables hold.
    pub last_seqno: SeqNo,
    /// A number that no file named here has. The store's own counter may be ahead.
    pub next_file_number: u64,
}

impl Default for Version {
    fn default() -> Self {
        Version {
            levels: Default::default(),
            segments: SegmentSet::default(),
            replay_from: JournalPosition::default(),
            last_seqno: 0,
            next_file_number: 1,
        }
    }
}

impl Version {
    /// The version that `edit` makes of this one; `opener` makes tables of what is added. An edit that
    /// doesn't fit is `Corruption`, and nothing of it is applied.
    pub fn apply(
        &self,
        edit: &VersionEdit,
        opener: &mut dyn FnMut(TableMeta) -> Result<LiveTable>,
    ) -> Result<Version> {
        let mut version = self.clone();
        version.fold(edit, opener)?;
        version.finish()
    }

    /// The same version with every table made anew by `opener`: opens what a manifest listed.
    pub fn open_tables(
        &self,
        opener: &mut dyn FnMut(TableMeta) -> Result<LiveTable>,
    ) -> Result<Version> {
        let mut version = self.clone();
        for run in version.levels.iter_mut().flat_map(|level| &mut level.runs) {
            for table in &mut run.tables {
                *table = Arc::new(opener(table.meta.clone())?);
            }
        }
        Ok(version)
    }

    /// The edit that makes this version of an empty one.
    pub fn to_edit(&self) -> VersionEdit {
        let added = self.runs().flat_map(|(level, run)| {
            let add = move |table: &Arc<LiveTable>| Added {
                level,
                run_id: run.id,
                meta: table.meta.clone(),
            };
            run.tables.iter().map(add)
        });
        VersionEdit {
            added: added.collect(),
            replay_from: Some(self.replay_from),
            last_seqno: Some(self.last_seqno),
            next_file_number: Some(self.next_file_number),
            segments_kept: self.segments.kept().copied().collect(),
            forwards: self.segments.forwards().collect(),
            ..VersionEdit::default()
        }
    }

    /// All runs with their levels, newest first.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = (usize, &Run)> + Clone {
        self.levels
            .iter()
            .enumerate()
            .flat_map(|(level, Level { runs })| runs.iter().map(move |run| (level, run)))
    }

    /// All tables with their levels, run by run.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<LiveTable>)> {
        self.runs().flat_map(|(level, run)| run.tables.iter().map(move |table| (level, table)))
    }

    /// The deepest level that holds a table.
    pub fn deepest(&self) -> Option<usize> {
        self.levels.iter().rposition(|level| !level.runs.is_empty())
    }

    /// Marks the files of the tables that `edit` removes from this version obsolete.
    /// Requires: the edit is durable.
    pub fn mark_obsolete(&self, edit: &VersionEdit) {
        for removed in &edit.removed {
            let level = &self.levels[removed.level];
            if let Some((run, at)) = level.position(removed.number)
                && let Some(guard) = &level.runs[run].tables[at].guard
            {
                guard.mark_obsolete();
            }
        }
    }

    /// Says what breaks the invariants that can be seen without reading tables.
    pub fn check(&self) -> Result<(), String> {
        let (mut run_ids, mut numbers) = (HashSet::new(), HashSet::new());
        for (level, run) in self.runs() {
            let place = format!("run {} of L{level}", run.id);
            if run.tables.is_empty() {
                return Err(format!("{place} is empty"));
            }
            if !run_ids.insert(run.id) || run.id >= self.next_file_number {
                return Err(format!("{place} has an id that is not its own"));
            }
            for table in &run.tables {
                if !numbers.insert(table.number) || table.number >= self.next_file_number {
                    return Err(format!("table {table:?} has a number that is not its own"));
                }
                check_bounds(table).map_err(|what| format!("table {table:?} in {place} {what}"))?;
            }
            for pair in run.tables.windows(2) {
                if !pair[0].ends_by(&pair[1].smallest) {
                    return Err(format!("tables {pair:?} in {place} overlap"));
                }
            }
        }
        for level in &self.levels {
            if !level.runs.is_sorted_by(|newer, older| newer.id > older.id) {
                return Err("runs are not in descending order of id".into());
            }
        }
        // Deeper runs mix times: of them, only the entries themselves could tell.
        let newest = |run: &Run| run.tables.iter().map(|table| table.properties.seqno_max).max();
        if !self.levels[0].runs.is_sorted_by(|newer, older| newest(newer) >= newest(older)) {
            return Err("runs of L0 are not in order of age".into());
        }
        self.segments.check()
    }

    /// Applies `edit` in place, up to `finish`. After an error the version is of no use.
    pub(crate) fn fold(
        &mut self,
        edit: &VersionEdit,
        opener: &mut dyn FnMut(TableMeta) -> Result<LiveTable>,
    ) -> Result<()> {
        self.fold_tables(edit, opener)?;
        self.fold_segments(edit)?;
        self.replay_from = edit.replay_from.unwrap_or(self.replay_from);
        self.last_seqno = edit.last_seqno.unwrap_or(self.last_seqno).max(self.last_seqno);
        let named = edit.added.iter().flat_map(|added| [added.run_id, added.meta.number]);
        let named = named.chain(edit.moved.iter().map(|moved| moved.run_id));
        let named = named.chain(edit.segments_kept.iter().map(|segment| segment.number));
        let beyond = named.map(|number| number.saturating_add(1));
        self.next_file_number =
            beyond.chain(edit.next_file_number).fold(self.next_file_number, u64::max);
        Ok(())
    }

    /// Counts references and checks: the end of a row of folds.
    pub(crate) fn finish(mut self) -> Result<Version> {
        let Version { levels, segments, .. } = &mut self;
        let tables = levels.iter().flat_map(Level::tables);
        segments.count(tables.flat_map(|table| {
            table.properties.segment_refs.iter().map(|reference| {
                let referenced = Referenced { count: reference.count, bytes: reference.bytes };
                (reference.segment, referenced)
            })
        }));
        self.check().map_err(misfit)?;
        Ok(self)
    }

    fn fold_tables(
        &mut self,
        edit: &VersionEdit,
        opener: &mut dyn FnMut(TableMeta) -> Result<LiveTable>,
    ) -> Result<()> {
        for removed in &edit.removed {
            self.take(removed.level, removed.number)?;
        }
        for moved in &edit.moved {
            let table = self.take(moved.from_level, moved.number)?;
            self.levels[moved.to_level].run_or_new(moved.run_id).insert(table);
        }
        for clipped in &edit.clipped {
            let level = &mut self.levels[clipped.level];
            let (run, at) = level.position(clipped.number).ok_or_else(|| absent(clipped.number))?;
            let table = &mut level.runs[run].tables[at];
            if clipped.smallest < table.smallest {
                return Err(misfit(format!("table {} is clipped to more", clipped.number)));
            }
            let meta = table.clip(clipped.smallest.clone());
            *table = Arc::new(LiveTable { meta, ..LiveTable::clone(table) });
        }
        for added in &edit.added {
            let table = Arc::new(opener(added.meta.clone())?);
            self.levels[added.level].run_or_new(added.run_id).insert(table);
        }
        for level in &mut self.levels {
            level.runs.retain(|run| !run.tables.is_empty());
        }
        Ok(())
    }

    fn fold_segments(&mut self, edit: &VersionEdit) -> Result<()> {
        let SegmentSet { kept, forwards, .. } = &mut self.segments;
        kept.extend(edit.segments_kept.iter().map(|segment| (segment.number, *segment)));
        for &(old, new) in &edit.forwards {
            if new <= old {
                return Err(misfit(format!("segment {old} is forwarded back to {new}")));
            }
            forwards.insert(old, new);
        }
        for old in &edit.forwards_dropped {
            forwards.remove(old).ok_or_else(|| misfit(format!("segment {old} has no forward")))?;
        }
        for number in &edit.segments_dropped {
            kept.remove(number).ok_or_else(|| misfit(format!("segment {number} is not kept")))?;
        }
        Ok(())
    }

    /// Takes a table out; its run may be left empty.
    fn take(&mut self, level: usize, number: u64) -> Result<Arc<LiveTable>> {
        let level = &mut self.levels[level];
        let (run, at) = level.position(number).ok_or_else(|| absent(number))?;
        Ok(level.runs[run].tables.remove(at))
    }
}

fn check_bounds(table: &TableMeta) -> Result<(), &'static str> {
    let properties = &table.properties;
    if table.smallest < properties.smallest
        || table.largest != properties.largest
        || table.largest_exclusive != properties.largest_exclusive
    {
        return Err("shows more than its file holds");
    }
    if table.ends_by(&table.smallest) {
        return Err("shows nothing");
    }
    Ok(())
}

/// An edit that doesn't fit; whoever read it from a file puts the file's name and the offset in.
fn misfit(what: impl Into<String>) -> Error {
    Error::corruption(Path::new("MANIFEST"), 0, what)
}

fn absent(number: u64) -> Error {
    misfit(format!("table {number} is not where the edit says"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::obsolete::{FileGuard, ObsoleteQueue};
    use crate::sstable::{Properties, SegmentRef};

    fn meta(number: u64, smallest: &'static str, largest: &'static str) -> TableMeta {
        let properties = Properties {
            file_bytes: 10,
            smallest: Bytes::from(smallest),
            largest: Bytes::from(largest),
            seqno_max: number,
            segment_refs: vec![SegmentRef { segment: number % 2, count: 1, bytes: number }],
            ..Properties::default()
        };
        TableMeta::new(number, Arc::new(properties))
    }

    fn add(level: usize, run_id: u64, meta: TableMeta) -> Added {
        Added { level, run_id, meta }
    }

    fn unopened(meta: TableMeta) -> Result<LiveTable> {
        Ok(LiveTable::unopened(meta))
    }

    fn apply(version: &Version, edit: VersionEdit) -> Result<Version> {
        version.apply(&edit, &mut unopened)
    }

    fn sample() -> Version {
        let added = vec![
            add(0, 20, meta(21, "a", "m")),
            add(0, 30, meta(31, "c", "z")),
            add(1, 10, meta(12, "n", "p")),
            add(1, 10, meta(11, "b", "d")),
        ];
        apply(&Version::default(), VersionEdit { added, ..VersionEdit::default() }).unwrap()
    }

    fn drawing(version: &Version) -> String {
        let runs =
            version.runs().map(|(level, run)| format!("L{level} {}{:?}", run.id, run.tables));
        runs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn runs_stand_newest_first_and_tables_by_key() {
        assert_eq!(drawing(&sample()), "L0 30[31:c-z] L0 20[21:a-m] L1 10[11:b-d, 12:n-p]");
    }

    #[test]
    fn a_run_finds_the_one_table_of_a_key() {
        let version = sample();
        let run = version.levels[1].run(10).unwrap();
        for (key, expected) in [("a", 0), ("b", 11), ("d", 11), ("e", 0), ("o", 12), ("q", 0)] {
            let found = run.find(key.as_bytes()).map_or(0, |table| table.number);
            assert_eq!(found, expected, "{key}");
        }
        let numbers = |start: &str, end: &str| -> Vec<u64> {
            let tables = run.overlapping(Some(start.as_bytes()), Some(end.as_bytes()));
            tables.iter().map(|table| table.number).collect()
        };
        assert_eq!(numbers("a", "z"), [11, 12]);
        assert_eq!(numbers("d", "n"), [11]);
        assert_eq!(numbers("e", "n"), []);
        assert_eq!(numbers("z", "a"), []);
    }

    #[test]
    fn a_version_is_rebuilt_from_its_edit() {
        let clip = VersionEdit {
            clipped: vec![Clipped { level: 0, number: 31, smallest: Bytes::from("k") }],
            removed: vec![Removed { level: 1, number: 11 }],
            moved: vec![Moved { number: 12, from_level: 1, to_level: 2, run_id: 10 }],
            last_seqno: Some(77),
            ..VersionEdit::default()
        };
        let version = apply(&sample(), clip).unwrap();
        assert_eq!(drawing(&version), "L0 30[31:k-z] L0 20[21:a-m] L2 10[12:n-p]");
        let edit = version.to_edit();
        let again = apply(&Version::default(), edit.clone()).unwrap();
        assert_eq!(again.to_edit(), edit);
        assert_eq!(drawing(&again), drawing(&version));
        assert_eq!(again.last_seqno, 77);
        assert!(again.levels[0].run(30).unwrap().find(b"d").is_none());
    }

    #[test]
    fn an_edit_that_does_not_fit_is_refused() {
        let edit = VersionEdit::default;
        for (edit, why) in [
            (VersionEdit { removed: vec![Removed { level: 0, number: 11 }], ..edit() }, "level"),
            (VersionEdit { added: vec![add(1, 10, meta(40, "c", "e"))], ..edit() }, "overlap"),
            (VersionEdit { added: vec![add(2, 41, meta(31, "c", "e"))], ..edit() }, "number"),
            (VersionEdit { added: vec![add(2, 10, meta(40, "c", "e"))], ..edit() }, "run id"),
            (VersionEdit { added: vec![add(2, 41, meta(40, "f", "e"))], ..edit() }, "bounds"),
            (VersionEdit { added: vec![add(0, 41, meta(1, "c", "e"))], ..edit() }, "age"),
            (VersionEdit { segments_dropped: vec![5], ..edit() }, "segment"),
            (VersionEdit { forwards: vec![(5, 4)], ..edit() }, "back"),
            (VersionEdit { forwards: vec![(5, 6)], ..edit() }, "to nothing"),
            (VersionEdit { forwards_dropped: vec![5], ..edit() }, "no forward"),
        ] {
            assert!(matches!(apply(&sample(), edit), Err(Error::Corruption { .. })), "{why}");
        }
    }

    #[test]
    fn references_count_for_the_segment_that_answers() {
        let version = sample();
        assert_eq!(version.segments.live(1), Referenced { count: 3, bytes: 63 });
        assert_eq!(version.segments.live(0), Referenced { count: 1, bytes: 12 });
        let collected = |number| SegmentMeta {
            number,
            end_offset: 9,
            base_lsn: 0,
            kind: SegmentKind::Collected,
            capacity: 10,
        };
        let edit = VersionEdit {
            segments_kept: vec![collected(50), collected(51)],
            forwards: vec![(1, 50), (50, 51), (3, 51)],
            ..VersionEdit::default()
        };
        let version = apply(&version, edit).unwrap();
        assert_eq!(version.segments.live(1), Referenced::default());
        assert_eq!(version.segments.named(1), Referenced { count: 3, bytes: 63 });
        assert_eq!(version.segments.live(51), Referenced { count: 3, bytes: 63 });
        assert_eq!(version.segments.unneeded_forwards(), [3, 50]);
        let dropped = VersionEdit { segments_dropped: vec![51], ..VersionEdit::default() };
        assert!(apply(&version, dropped).is_err(), "what answers must stay");
    }

    #[test]
    fn a_clipped_table_keeps_its_file_until_all_its_values_are_gone() {
        let queue = ObsoleteQueue::new();
        let mut guarded = |meta: TableMeta| {
            let path = format!("{}", meta.number).into();
            let guard = Some(FileGuard::new(path, queue.clone()));
            Ok(LiveTable { meta, table: None, guard })
        };
        let opened = sample().open_tables(&mut guarded).unwrap();
        let clip = VersionEdit {
            clipped: vec![Clipped { level: 0, number: 31, smallest: Bytes::from("k") }],
            ..VersionEdit::default()
        };
        let clipped = opened.apply(&clip, &mut guarded).unwrap();
        let remove = VersionEdit {
            removed: vec![Removed { level: 0, number: 31 }],
            ..VersionEdit::default()
        };
        let removed = clipped.apply(&remove, &mut guarded).unwrap();
        clipped.mark_obsolete(&remove);
        drop(clipped);
        assert!(queue.is_empty(), "the first version still reads the whole table");
        drop(opened);
        assert_eq!(queue.len(), 1);
        drop(removed);
        assert_eq!(queue.len(), 1, "live files stay");
    }
}
