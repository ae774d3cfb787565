//! Compactions: running what [`pick`] chose.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::inner::Inner;
use super::stats::add;
use super::tree::table_meta;
use crate::compaction::job::{self, Job};
use crate::compaction::output::OutputTable;
use crate::compaction::pick::{self, Choice, Merge, PickOptions, Reason, Slice, Unreadable};
use crate::error::{Error, Result};
use crate::file_name;
use crate::key::SeqNo;
use crate::stages::{Stage, Stopwatch, Trace};
use crate::version::{LiveTable, RunIter, TableMeta, Version};
use crate::vfs::cycles;

/// Without a write for this long a store is idle: what is dead is cleaned up then.
pub(super) const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Places inside a table where a job's slice may end.
const BOUNDARIES_PER_TABLE: usize = 16;

/// Tables of which one pick reads some blocks.
const LOOKS: u32 = 16;

/// How a compaction went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Compacted {
    /// Nothing was worth doing.
    Nothing,
    /// A job was done. Of a manual compaction, where to go on.
    Job(Option<Bytes>),
}

impl Inner {
    /// Runs one compaction job, if one is due. Requires: the caller holds `compacting`.
    pub(super) fn compact_one(&self, idle: bool, manual: Option<Slice>) -> Result<Compacted> {
        let mut trace = self.recorder.begin_rare();
        let version = self.state.load().version.clone();
        let snapshots = self.snapshots.list();
        self.merges_avoided.forget(|unreadable| !unreadable.is_in(&version));
        let looks = Cell::new(if manual.is_some() { u32::MAX } else { LOOKS });
        let options = PickOptions {
            looks: &looks,
            level_runs_max: self.options.level_runs_max,
            level0_runs_max: self.options.runs_max(0),
            job_bytes_max: self.options.compaction_job_bytes_max,
            level1_bytes: self.options.memtable_bytes as u64 * self.options.runs_max(0) as u64,
            snapshots: &snapshots,
            now_ms: self.resources.clock.now_ms(),
            reads_paid: self.ask_read_credit(idle),
            idle,
            hidden: &|little| self.hidden_once(&version, little),
            busy: &[],
            unreadable: &self.merges_avoided.list(),
            retried: &self.merges_avoided.due(),
            manual,
            boundaries: &boundaries,
            range_tombstones: &|table| table.range_tombstones().collect(),
        };
        let choice = pick::pick(&version, &options);
        trace.lap(Stage::CompactionPick);
        let mut start = options.manual.as_ref().and_then(|slice| slice.start.clone());
        let edit = match choice {
            // Who closes the store, or has something to merge, comes in between.
            Choice::DoNothing if looks.get() == 0 => return Ok(Compacted::Job(None)),
            Choice::DoNothing => {
                let retried = options.retried.first().filter(|_| options.manual.is_none());
                let Some(retried) = retried else { return Ok(Compacted::Nothing) };
                self.read_again(&version, retried)?;
                None
            }
            Choice::Move(moved) => Some(moved.edit(moved.run.id(|| self.take_number()))),
            Choice::Drop(drop) => Some(drop.edit()),
            Choice::Merge(merge) => {
                // What is flushed first is merged along; else the next merge would read all of this one again.
                if merge.reason == Reason::Idle && self.flush_more_than(0) {
                    return Ok(Compacted::Nothing);
                }
                match self.merge(&merge, &snapshots, &mut trace) {
                    // What reaches in from the left may have gone first.
                    Ok(()) if merge.reason == Reason::Manual => start = start.max(merge.slice.end),
                    Ok(()) => {}
                    // What was left out of it is picked next.
                    Err(error) => self.avoid(&merge, error, options.unreadable)?,
                }
                None
            }
        };
        if let Some(edit) = edit {
            self.install(&mut self.tree.lock(), edit, |_| {})?;
            trace.lap(Stage::CompactionInstall);
            trace.total(Stage::CompactionTotal);
        }
        Ok(Compacted::Job(start))
    }

    /// Has merges leave alone, for a while, what this one could not read. Any other error is answered, and so is
    /// one that was met though it was to be left alone.
    fn avoid(&self, merge: &Merge, error: Error, avoided: &[Unreadable]) -> Result<()> {
        match unreadable_of(merge, &error).filter(|unreadable| !avoided.contains(unreadable)) {
            Some(unreadable) => {
                let now_ns = self.resources.clock.steady_ns();
                self.merges_avoided.note(unreadable, &error, now_ns);
                Ok(())
            }
            None => Err(error),
        }
    }

    /// Reads what of a table is tried again, where no merge is worth doing that would: it is well, or left alone for
    /// longer.
    fn read_again(&self, version: &Version, unreadable: &Unreadable) -> Result<()> {
        let mut tables = version.tables().map(|(_, table)| table);
        let table = tables.find(|table| table.number == unreadable.table);
        let read = |table: &Arc<LiveTable>| table.table().read_from(&unreadable.from, &self.cancel);
        match table.map_or(Ok(()), read) {
            Ok(()) => self.merges_avoided.forget(|other| other == unreadable),
            Err(error) if error.is_damage() => {
                let now_ns = self.resources.clock.steady_ns();
                self.merges_avoided.note(unreadable.clone(), &error, now_ns);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn merge(&self, merge: &Merge, snapshots: &[SeqNo], trace: &mut Trace<'_>) -> Result<()> {
        let reading = Arc::new(Stopwatch::default());
        let segments = self.state.load().segments.clone();
        let sources = merge.inputs.iter().map(|input| {
            let (tables, places) = (Arc::new(input.tables.clone()), 0..input.tables.len());
            RunIter::new(tables, places, false).timed(reading.clone())
        });
        let job = Job {
            sources: sources.collect(),
            range_tombstones: merge.tables().flat_map(|table| table.range_tombstones()).collect(),
            start: merge.slice.start.clone(),
            end: merge.slice.end.clone(),
            bottom: merge.bottom,
            snapshots: snapshots.to_vec(),
            now_ms: self.resources.clock.now_ms(),
            direct: &|pointer| segments.direct(pointer),
            cancel: &self.cancel,
        };
        let output = self.output(merge.output_level);
        let from = cycles::now();
        let result = job::run(job, &self.resources.fs, &self.next_file_number, output)?;
        let all_ns = cycles::to_ns(cycles::now() - from);
        let (read_ns, times) = (reading.ns(), &result.times);
        let elsewhere_ns = read_ns + times.build_ns() + times.write_ns();
        for (stage, ns) in [
            (Stage::CompactionRead, read_ns),
            (Stage::CompactionMerge, all_ns.saturating_sub(elsewhere_ns)),
            (Stage::CompactionBuild, times.build_ns()),
            (Stage::CompactionWrite, times.write_ns()),
        ] {
            self.recorder.record_ns(stage, ns);
        }
        trace.skip();
        let metas: Vec<TableMeta> = result.tables.iter().map(table_meta).collect();
        let bytes_out = result.tables.iter().map(|table| table.built.file_bytes).sum();
        let installed = {
            let mut tree = self.tree.lock();
            let edit = merge.edit(metas, merge.output_run.id(|| self.take_number()));
            self.install(&mut tree, edit, |_| {})
        };
        if installed.is_err() {
            self.discard(&result.tables);
        }
        installed?;
        trace.lap(Stage::CompactionInstall);
        trace.total(Stage::CompactionTotal);
        self.spend_read_credit(result.entries_in);
        add(&self.counters.compactions, 1);
        add(&self.counters.compaction_bytes_read, merge.input_bytes());
        add(&self.counters.compaction_bytes_written, bytes_out);
        Ok(())
    }

    /// A number for a file or a run.
    pub(super) fn take_number(&self) -> u64 {
        self.next_file_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Removes files that a job wrote and could not install, unless the manifest may name them. What
    /// can't be removed goes at the next open.
    pub(super) fn discard(&self, tables: &[OutputTable]) {
        if self.poison.get().is_some() {
            return;
        }
        for table in tables {
            let path = file_name::table(&self.dir, table.number);
            self.resources.file_cache.forget(&path);
            let _ = self.resources.fs.remove(&path);
        }
    }
}

/// Which of a merge's tables can't be read, and from where on, if that is what went wrong.
fn unreadable_of(merge: &Merge, error: &Error) -> Option<Unreadable> {
    let file = error.file().filter(|_| error.is_damage())?;
    let table = merge.tables().find(|table| table.table().path() == file)?;
    let from = table.table().readable_up_to(error, &table.smallest);
    Some(Unreadable { table: table.number, from })
}

/// Keys that cut a table into parts of about equal size.
fn boundaries(table: &LiveTable) -> Vec<Bytes> {
    let keys = table.table().boundary_keys();
    let step = (keys.len() / BOUNDARIES_PER_TABLE).max(1);
    keys.step_by(step).skip(1).map(Bytes::copy_from_slice).collect()
}
