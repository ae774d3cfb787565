//! Applying edits to a version, and checking what comes out.
//!
//! Edits may come from a damaged file: one that doesn't fit is an error, never a panic and never a
//! version whose invariants are broken.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::Version;
use super::directory::Directory;
use super::edit::VersionEdit;
use super::level::Level;
use super::segments::{Referenced, SegmentSet};
use super::table::{LiveTable, TableMeta};
use crate::error::{Error, Result};

impl Version {
    /// Says what breaks the invariants, as far as it shows without reading tables: ages show in the
    /// order of run ids only. SeqNo ranges of tables can't tell more: a newer run's table may hold
    /// only old entries, of keys that no older run has.
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
            for table in run.tables.iter() {
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
        self.journal_synced = edit.journal_synced.unwrap_or(self.journal_synced);
        self.journal_newest = edit.journal_newest.unwrap_or(self.journal_newest);
        self.seqno_next = edit.seqno_next.unwrap_or(self.seqno_next);
        self.last_seqno = edit.last_seqno.unwrap_or(self.last_seqno).max(self.last_seqno);
        let named = edit.added.iter().flat_map(|added| [added.run_id, added.meta.number]);
        let named = named.chain(edit.moved.iter().map(|moved| moved.run_id));
        let named = named.chain(edit.segments_kept.iter().map(|segment| segment.number));
        let beyond = named.map(|number| number.saturating_add(1));
        self.next_file_number =
            beyond.chain(edit.next_file_number).fold(self.next_file_number, u64::max);
        Ok(())
    }

    /// Counts what tables point at, which folds leave out.
    pub(crate) fn count_references(&mut self) {
        let Version { levels, segments, .. } = self;
        let tables = levels.iter().flat_map(Level::tables);
        segments.count(tables.flat_map(|table| {
            table.properties.segment_refs.iter().map(|reference| {
                let referenced = Referenced { count: reference.count, bytes: reference.bytes };
                (reference.segment, referenced)
            })
        }));
    }

    /// Counts references and checks: the end of a row of folds.
    pub(crate) fn finish(mut self) -> Result<Version> {
        self.count_references();
        self.check().map_err(misfit)?;
        self.directory = Arc::new(Directory::new(&self.levels));
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
            let table = &mut level.runs[run].tables_mut()[at];
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
        Ok(level.runs[run].tables_mut().remove(at))
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
