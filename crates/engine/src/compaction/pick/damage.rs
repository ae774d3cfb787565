//! What can't be read, and how what is around it goes on.
//!
//! A merge ends before what can't be read, and as tables are only ever clipped at their left end, none begins
//! before the end of the table it is in. What newer runs hold of those keys has to stay above. Of the rest:
//!
//! 1. a newer table that begins there and reaches beyond is cut at that end: what it holds up to there becomes a
//!    table of its own, so that all else goes down as ever;
//! 2. where a newer table can't be cut, as it is the one that can't be read, older runs go down without it;
//! 3. what has to stay is merged with itself once it is many runs.

use std::collections::HashMap;

use bytes::Bytes;

use super::choice::{Choice, Reason, Slice, Unreadable};
use super::slice::{Source, Sweep, Target};
use super::{PickOptions, Picker, unfinished};
use crate::version::{LiveTable, Run, TableMeta, Version};

/// A table that is listed as one that can't be read from some key on.
#[derive(Debug)]
pub(super) struct Damaged<'v> {
    pub(super) table: &'v LiveTable,
    /// Of the keys that it shows, the first that no merge may come to.
    pub(super) from: Bytes,
}

/// What is listed of each run, by the run's id.
pub(super) type Listed<'v> = HashMap<u64, Vec<Damaged<'v>>>;

/// What of a version is listed as damaged.
#[derive(Debug)]
pub(super) struct Damage<'v> {
    /// What no merge may come to.
    pub(super) unreadable: Listed<'v>,
    /// What is tried again.
    pub(super) retried: Listed<'v>,
}

impl<'v> Damage<'v> {
    /// Finds what is listed.
    pub(super) fn find(version: &'v Version, options: &PickOptions<'_>) -> Damage<'v> {
        let find = |listed: &[Unreadable]| {
            let mut found = Listed::new();
            if listed.is_empty() {
                return found;
            }
            for (_, run) in version.runs() {
                for table in run.tables.iter() {
                    for one in listed.iter().filter(|one| one.table == table.number) {
                        let from = one.from.clone().max(table.smallest.clone());
                        found.entry(run.id).or_default().push(Damaged { table, from });
                    }
                }
            }
            found
        };
        Damage { unreadable: find(options.unreadable), retried: find(options.retried) }
    }
}

impl<'v, 'o> Picker<'v, 'o> {
    /// Whether a table of a run of L0 can't go down for what can't be read from where it begins, or further left, to
    /// its end: in what goes down with it. That goes past newer runs, and reads no deeper level than the next.
    pub(super) fn is_held_up(&self, run: &Run, table: &TableMeta) -> bool {
        let [level0, level1, ..] = &self.version.levels;
        let older = level0.runs.iter().filter(|older| older.id <= run.id);
        let bottom = level1.runs.iter().filter(|_| self.version.deepest() == Some(1));
        let listed = older.chain(bottom).filter_map(|run| self.damage.unreadable.get(&run.id));
        let reaches_over = |damaged: &Damaged<'_>| table.ends_by(&damaged.table.end());
        let mut unreadable = listed.flatten();
        unreadable.any(|damaged| damaged.from <= table.smallest && reaches_over(damaged))
    }

    /// The leftmost job of a sweep that is free. Where none is for what can't be read, a table that reaches from there
    /// over the rest is cut; else older runs go without newer ones.
    pub(super) fn past_damage(&self, sweep: &Sweep<'v, 'o>) -> Option<Choice> {
        let cut = || self.cut_behind_damage(sweep, &Slice::default());
        let older = || sweep.suffixes().skip(1).find_map(|older| older.first_job());
        sweep.first_job().or_else(cut).or_else(older)
    }

    /// Of a sweep's tables in `range`, one that begins where an older one can't be read and reaches beyond that:
    /// what it holds up to there into a table of its own.
    ///
    /// The newest first: as long as an older one is left, nothing behind it goes down, and then all goes at once.
    pub(super) fn cut_behind_damage(&self, sweep: &Sweep<'v, 'o>, range: &Slice) -> Option<Choice> {
        (0..sweep.sources.len()).find_map(|at| self.cut(sweep, at, range))
    }

    /// As `cut_behind_damage`, of the tables of one source.
    pub(super) fn cut(&self, sweep: &Sweep<'v, 'o>, at: usize, range: &Slice) -> Option<Choice> {
        let Source { level, run, .. } = sweep.sources[at];
        let older = sweep.sources[at + 1..].iter();
        let unreadable = older.filter_map(|older| self.damage.unreadable.get(&older.run.id));
        unreadable.flatten().find_map(|damaged| {
            let end = damaged.table.end();
            let table = run.find(&end).filter(|table| table.smallest < end)?;
            let is_wanted = range.overlaps(table)
                && range.end.as_ref().is_none_or(|range_end| end < *range_end);
            let is_above = is_wanted && damaged.from <= table.smallest;
            is_above.then(|| self.in_place(level, run, table, end, Reason::Damage))?
        })
    }

    /// Where nothing of a level's runs can leave it for what can't be read: those above that are merged into the
    /// oldest of them, so that they don't become ever more.
    pub(super) fn above_damage(&self, level: usize, runs: &'v [Run]) -> Option<Choice> {
        let unreadable = &self.damage.unreadable;
        if unreadable.is_empty() {
            return None;
        }
        let is_damaged = |run: &Run| unreadable.contains_key(&run.id);
        let all = &self.version.levels[level].runs;
        // Those between two that can't be read as well.
        runs.split(is_damaged).find_map(|runs| {
            let oldest = runs.last()?;
            // Behind one that can't be read they become no more than they are.
            let is_behind = all.iter().any(|run| run.id > oldest.id && is_damaged(run));
            let is_many = match is_behind {
                true => runs.len() >= self.options.level_runs_max,
                false => self.has_many(level, runs),
            };
            if !is_many {
                return None;
            }
            let sweep_from = |at: usize| {
                let runs = runs[at..].iter();
                let sources = runs.map(|run| Source { level, run, leaves: run.id != oldest.id });
                let target = Target::Run { level, id: oldest.id };
                self.sweep(sources.collect(), target, Reason::Full)
            };
            sweep_from(unfinished(runs, sweep_from)).first_job()
        })
    }
}
