//! The tables of the tree at one moment: immutable, shared by the readers of that moment.
//!
//! Invariant, age: for one key, whatever a table says is newer than what any table after it says, in
//! the order L0's runs, L1's runs, ... L6's runs, each level's newest run first. Runs of a level stand
//! in descending order of id, and a newer run always takes a larger id, so that the order needs no
//! other record. Tables of one run are disjoint in what is visible of them.
//! A version doesn't touch files: what it can't know without opening a table, its caller's `opener` does.

mod segments;
mod table;
mod run_iter;
mod edit;
mod edit_coding;
mod level;
mod directory;
mod apply;

use std::sync::Arc;

pub(crate) use directory::{Directory, RUNS_AHEAD, RunSlots, Slot};
pub use edit::{Added, Clipped, Moved, Removed, VersionEdit};
pub use level::{Level, Run};
pub use run_iter::RunIter;
pub use segments::{Referenced, SegmentKind, SegmentMeta, SegmentSet};
pub use table::{LiveTable, TableMeta};

use crate::error::Result;
use crate::journal::JournalPosition;
use crate::key::SeqNo;
use crate::options::LEVEL_COUNT;

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
    /// A place in the journal up to which it was synced: recovery must reach it.
    pub journal_synced: JournalPosition,
    /// Where the newest segment of the journal that is known starts: unless replay starts behind that
    /// segment, its file is there.
    pub journal_newest: JournalPosition,
    /// SeqNo that the next opening counts from, unless the journal holds later ones: far beyond any
    /// that was given out while the store is open, the very next one once it was closed. So no number
    /// is ever given out twice, not even one whose write a power loss has taken back.
    pub seqno_next: SeqNo,
    /// A number that no file named here has. The store's own counter may be ahead.
    pub next_file_number: u64,
    /// The way to the table of a key, made when `levels` is complete.
    directory: Arc<Directory>,
}

impl Default for Version {
    fn default() -> Self {
        Version {
            levels: Default::default(),
            segments: SegmentSet::default(),
            replay_from: JournalPosition::default(),
            last_seqno: 0,
            journal_synced: JournalPosition::default(),
            journal_newest: JournalPosition::default(),
            seqno_next: 1,
            next_file_number: 1,
            directory: Arc::default(),
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
            for table in run.tables_mut() {
                *table = Arc::new(opener(table.meta.clone())?);
            }
        }
        version.directory = Arc::new(Directory::new(&version.levels));
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
            journal_synced: Some(self.journal_synced),
            journal_newest: Some(self.journal_newest),
            seqno_next: Some(self.seqno_next),
            next_file_number: Some(self.next_file_number),
            segments_kept: self.segments.kept().copied().collect(),
            forwards: self.segments.forwards().collect(),
            ..VersionEdit::default()
        }
    }

    /// The way to the table of a key.
    #[inline]
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
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

    /// Whether the first or the last entry of a table that expires does so after one moment and by another, or
    /// the one with which a merge pays, as far as that is known.
    pub fn expires_within(&self, after_ms: u64, by_ms: u64) -> bool {
        self.tables()
            .any(|(_, table)| table.expiries().any(|at_ms| after_ms < at_ms && at_ms <= by_ms))
    }

    /// Bytes of all tables.
    pub fn table_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes()).sum()
    }

    /// Bytes of all tables and of the closed segments that are kept.
    pub fn bytes(&self) -> u64 {
        let segments = self.segments.kept().map(|kept| kept.end_offset);
        segments.fold(self.table_bytes(), u64::saturating_add)
    }

    /// Bytes of all tables, and of what they point at in closed segments.
    pub fn live_bytes(&self) -> u64 {
        self.table_bytes().saturating_add(self.value_bytes())
    }

    /// Bytes of what tables point at in closed segments.
    pub fn value_bytes(&self) -> u64 {
        let values = self.segments.kept().map(|kept| self.segments.live(kept.number).bytes);
        values.fold(0, u64::saturating_add)
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
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::error::Error;
    use crate::obsolete::{FileGuard, ObsoleteQueue};
    use crate::sstable::{Properties, SegmentRef};

    fn meta(number: u64, smallest: &'static str, largest: &'static str) -> TableMeta {
        let properties = Properties {
            file_bytes: 10,
            smallest: Bytes::from(smallest),
            largest: Bytes::from(largest),
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

    fn collected(number: u64) -> SegmentMeta {
        SegmentMeta {
            number,
            end_offset: 9,
            base_lsn: 0,
            kind: SegmentKind::Collected,
            capacity: 10,
        }
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
            (VersionEdit { segments_dropped: vec![5], ..edit() }, "segment"),
            (VersionEdit { forwards: vec![(5, 4)], ..edit() }, "back"),
            (VersionEdit { forwards: vec![(5, 6)], ..edit() }, "to nothing"),
            (VersionEdit { forwards_dropped: vec![5], ..edit() }, "no forward"),
            (
                VersionEdit {
                    segments_kept: vec![collected(5), collected(6)],
                    forwards: vec![(5, 6)],
                    ..edit()
                },
                "kept and forwarded",
            ),
        ] {
            assert!(matches!(apply(&sample(), edit), Err(Error::Corruption { .. })), "{why}");
        }
    }

    #[test]
    fn references_count_for_the_segment_that_answers() {
        let version = sample();
        assert_eq!(version.segments.live(1), Referenced { count: 3, bytes: 63 });
        assert_eq!(version.segments.live(0), Referenced { count: 1, bytes: 12 });
        let edit = VersionEdit {
            segments_kept: vec![collected(51)],
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

    /// Nothing bounds what the manifest of a store that was not made by us says of its tables.
    #[test]
    fn sums_beyond_all_numbers_are_as_large_as_can_be() {
        let kept = |number| SegmentMeta { end_offset: u64::MAX, ..collected(number) };
        let refs = [50, 51].map(|segment| SegmentRef { segment, count: 1, bytes: u64::MAX });
        let properties = Properties {
            smallest: Bytes::from("a"),
            largest: Bytes::from("b"),
            segment_refs: refs.to_vec(),
            ..Properties::default()
        };
        let edit = VersionEdit {
            added: vec![add(0, 61, TableMeta::new(60, Arc::new(properties)))],
            segments_kept: vec![kept(50), kept(51)],
            ..VersionEdit::default()
        };
        let version = apply(&sample(), edit).unwrap();
        let sums = [version.bytes(), version.value_bytes(), version.live_bytes()];
        assert_eq!(sums, [u64::MAX; 3]);
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
