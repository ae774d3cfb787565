//! Cutting one bounded job out of the runs that call for a merge.
//!
//! 1. The job starts at a key `start`. A table that straddles the start of its run's share is taken
//!    whole, and every older run's share starts at least as far left, so that tables are only ever
//!    clipped at their left end and each key's inputs have no gap in age.
//! 2. Tables are walked by key. Those at the front that overlap no other input move without a merge.
//! 3. Else the slice grows by steps, a table's first key or a boundary inside it, until the next
//!    would exceed the job's bytes. It ends early before a table that overlaps no other input.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use bytes::Bytes;

use super::PickOptions;
use super::choice::{Choice, Merge, MergeInput, Move, OutputRun, Reason, Slice};
use super::damage::{Damage, Listed};
use super::dead;
use crate::version::{LiveTable, Run, Version};

/// A run that a job takes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'v> {
    pub(super) level: usize,
    pub(super) run: &'v Run,
    /// Whether its tables are to go to the target, so that they may move there. What is already
    /// there is taken only where others overlap it.
    pub(super) leaves: bool,
}

/// Where the output goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// This run, which is a source.
    Run { level: usize, id: u64 },
    /// The newest run of a level if it has nothing in the slice, else a new one.
    Newest { level: usize },
}

impl Target {
    fn level(self) -> usize {
        match self {
            Target::Run { level, .. } | Target::Newest { level } => level,
        }
    }
}

/// A merge that is worth doing, larger than one job may be.
pub(super) struct Sweep<'v, 'o> {
    pub(super) version: &'v Version,
    pub(super) options: &'o PickOptions<'o>,
    pub(super) damage: &'o Damage<'v>,
    /// Newest first, without a gap in age.
    pub(super) sources: Vec<Source<'v>>,
    pub(super) target: Target,
    /// Keys from here on are not wanted.
    pub(super) end: Option<Bytes>,
    pub(super) reason: Reason,
}

/// Keys that can't be had.
struct Taken {
    start: Option<Bytes>,
    end: Option<Bytes>,
}

/// Where a job may begin: steps 1 and 2.
pub(super) struct Opening<'v> {
    /// The key it begins at, of those that were asked for.
    pub(super) start: Bytes,
    /// Where keys that it may take end.
    end: Option<Bytes>,
    shares: Vec<&'v [Arc<LiveTable>]>,
    moved: Vec<(usize, &'v Arc<LiveTable>)>,
}

impl Opening<'_> {
    /// Whether tables only have to move.
    pub(super) fn moves(&self) -> bool {
        !self.moved.is_empty()
    }
}

impl<'v, 'o> Sweep<'v, 'o> {
    /// It without its newest sources: older runs go down by themselves.
    pub(super) fn suffix(&self, at: usize) -> Sweep<'v, 'o> {
        let sources = self.sources[at..].to_vec();
        Sweep { sources, end: self.end.clone(), ..*self }
    }

    /// It, and where something can't be read then without ever more of its newest sources, which may reach from
    /// there over what else the older ones hold.
    pub(super) fn suffixes(&self) -> impl Iterator<Item = Sweep<'v, 'o>> {
        let count = if self.damage.unreadable.is_empty() { 1 } else { self.sources.len() };
        (0..count).map(|at| self.suffix(at))
    }

    /// The job at the first of `starts` that isn't in the way of a running one.
    pub(super) fn job(&self, starts: impl Iterator<Item = Bytes>) -> Option<Choice> {
        self.opening(starts).map(|opening| self.job_at(opening))
    }

    /// Where the job at the first of `starts` that isn't in the way of a running one begins.
    pub(super) fn opening(&self, mut starts: impl Iterator<Item = Bytes>) -> Option<Opening<'v>> {
        let taken = self.taken();
        starts.find_map(|start| self.opening_at(start, &taken))
    }

    fn opening_at(&self, start: Bytes, taken: &[Taken]) -> Option<Opening<'v>> {
        let (first, shares) = self.shares(&start);
        let free = free_end(&first, taken)?;
        let moved = self.front(InOrder(shares.clone()), free.as_ref());
        let mut ends = vec![free, self.end.clone()];
        // What moves is not read.
        if moved.is_empty() {
            let Damage { unreadable, retried } = self.damage;
            // What is tried again is where a job ends, or begins.
            let retried = self.met(&shares, retried).filter(|from| **from > start);
            ends.extend(self.met(&shares, unreadable).chain(retried).cloned().map(Some));
        }
        let end = ends.into_iter().flatten().min();
        if end.as_ref().is_some_and(|end| *end <= start) {
            return None;
        }
        Some(Opening { start, end, shares, moved })
    }

    /// Of tables that a job takes: where those begin that are listed as damaged.
    pub(super) fn met<'a>(
        &'a self,
        shares: &'a [&'v [Arc<LiveTable>]],
        listed: &'a Listed<'v>,
    ) -> impl Iterator<Item = &'a Bytes> {
        self.sources.iter().zip(shares).flat_map(|(source, share)| {
            let listed = listed.get(&source.run.id).into_iter().flatten();
            let first = share.first().map(|first| &first.smallest);
            let met = listed.filter(move |one| first.is_some_and(|at| *at <= one.table.smallest));
            met.map(|one| &one.from)
        })
    }

    /// Whether the newest of the runs has something to go that lies to the left of `key` and doesn't wait for
    /// what can't be read, or couldn't when it was last tried.
    pub(super) fn begins_before(&self, key: &Bytes) -> bool {
        let Source { run, leaves, .. } = self.sources[0];
        let Damage { unreadable, retried } = self.damage;
        let mut starts = run.tables.iter().map(|table| &table.smallest).take_while(|at| *at < key);
        leaves
            && starts.any(|start| {
                let (_, shares) = self.shares(start);
                let mut met = self.met(&shares, unreadable).chain(self.met(&shares, retried));
                met.all(|from| from > start)
            })
    }

    /// The job that begins there: step 3, where tables don't move.
    pub(super) fn job_at(&self, opening: Opening<'v>) -> Choice {
        let Opening { start, end, shares, moved } = opening;
        if let Some(&(from, _)) = moved.first() {
            return self.relink(from, moved.into_iter().map(|(_, table)| table.clone()));
        }
        let end = self.grow(InOrder(shares.clone()), &start, end);
        self.merge(&shares, end)
    }

    /// What running jobs have taken of the sources: their slices, and each table that reaches in.
    fn taken(&self) -> Vec<Taken> {
        let first = self.sources[0].level;
        let last = self.target.level().max(self.sources[self.sources.len() - 1].level);
        let jobs = self.options.busy.iter().filter(|job| job.touches(first, last));
        jobs.flat_map(|job| {
            let tables = self.sources.iter().flat_map(|source| job.slice.tables(source.run));
            let tables = tables
                .map(|table| Taken { start: Some(table.smallest.clone()), end: Some(table.end()) });
            let Slice { start, end } = job.slice.clone();
            tables.chain([Taken { start, end }])
        })
        .collect()
    }

    /// The first key of all shares, and for each source the tables of its share: from `start` on, or
    /// from further left where a table straddles the start of the share before it.
    pub(super) fn shares(&self, start: &Bytes) -> (Bytes, Vec<&'v [Arc<LiveTable>]>) {
        let mut first = start.clone();
        let shares = self.sources.iter().map(|source| {
            let share = source.run.overlapping(Some(&first), None);
            if let Some(table) = share.first()
                && table.smallest < first
            {
                first = table.smallest.clone();
            }
            share
        });
        let shares = shares.collect();
        (first, shares)
    }

    /// The tables at the front that overlap no other input and may move, with their source.
    fn front(
        &self,
        mut tables: InOrder<'v>,
        free_end: Option<&Bytes>,
    ) -> Vec<(usize, &'v Arc<LiveTable>)> {
        let mut front: Vec<(usize, &Arc<LiveTable>)> = Vec::new();
        while let Some((at, table)) = tables.next() {
            let source = &self.sources[at];
            let same_level =
                front.first().is_none_or(|&(first, _)| self.sources[first].level == source.level);
            let alone = tables.peek().is_none_or(|(_, next)| table.ends_by(&next.smallest));
            let free = free_end.is_none_or(|end| table.ends_by(end));
            if !(source.leaves && same_level && alone && free && self.may_move(table)) {
                break;
            }
            front.push((at, table));
        }
        front
    }

    /// A full level should be gone soon; else, what a merge would drop should not move and wait.
    fn may_move(&self, table: &LiveTable) -> bool {
        self.reason == Reason::Full || !dead::has_garbage(table, self.options)
    }

    /// Where the slice from `start` on ends.
    fn grow(&self, mut tables: InOrder<'v>, start: &Bytes, end: Option<Bytes>) -> Option<Bytes> {
        let mut steps: BinaryHeap<Reverse<(Bytes, u64)>> = BinaryHeap::new();
        let mut bytes = 0u64;
        // The end of all tables so far.
        let mut reach = Bytes::new();
        loop {
            let step = steps.peek().map(|Reverse((key, _))| key);
            let table = tables.peek().map(|(_, table)| &table.smallest);
            let inside = match (step, table) {
                (Some(step), Some(table)) => step < table,
                (step, None) => step.is_some(),
                (None, Some(_)) => false,
            };
            let Some(key) = (if inside { step } else { table }).cloned() else {
                return end;
            };
            if end.as_ref().is_some_and(|end| key >= *end) {
                return end;
            }
            let may_end = key > *start;
            let (step_bytes, alone) = if inside {
                (steps.pop().map_or(0, |Reverse((_, bytes))| bytes), false)
            } else {
                let (_, table) = tables.next().expect("it was seen");
                let next = tables.peek();
                let alone = reach <= key && next.is_none_or(|(_, n)| table.ends_by(&n.smallest));
                let boundaries = (self.options.boundaries)(table);
                let step_bytes = table.bytes() / (boundaries.len() as u64 + 1);
                let visible = boundaries.into_iter().filter(|at| *at > key && table.covers(at));
                steps.extend(visible.map(|at| Reverse((at, step_bytes))));
                reach = reach.max(table.end());
                (step_bytes, alone)
            };
            bytes = bytes.saturating_add(step_bytes);
            if may_end && (alone || bytes > self.options.job_bytes_max) {
                return Some(key);
            }
        }
    }

    fn relink(&self, from: usize, tables: impl Iterator<Item = Arc<LiveTable>>) -> Choice {
        let tables: Vec<_> = tables.collect();
        let all = Slice {
            start: tables.first().map(|table| table.smallest.clone()),
            end: tables.last().map(|table| table.end()),
        };
        Choice::Move(Move {
            tables,
            from_level: self.sources[from].level,
            to_level: self.target.level(),
            run: self.output_run(&all),
        })
    }

    fn merge(&self, shares: &[&'v [Arc<LiveTable>]], end: Option<Bytes>) -> Choice {
        let inside = |share: &'v [Arc<LiveTable>]| match &end {
            Some(end) => &share[..share.partition_point(|table| table.smallest < *end)],
            None => share,
        };
        let inputs = self.sources.iter().zip(shares).map(|(source, share)| MergeInput {
            level: source.level,
            run_id: source.run.id,
            tables: inside(share).to_vec(),
        });
        let inputs: Vec<_> = inputs.filter(|input| !input.tables.is_empty()).collect();
        let start = inputs.iter().map(|input| input.tables[0].smallest.clone()).min();
        let reach = inputs.iter().filter_map(|input| Some(input.tables.last()?.end())).max();
        // No further than the inputs reach: other jobs, and older runs, are in the way of less.
        let end = reach.map(|reach| end.map_or(reach.clone(), |end| end.min(reach)));
        let slice = Slice { start, end };
        Choice::Merge(Merge {
            inputs,
            output_level: self.target.level(),
            output_run: self.output_run(&slice),
            bottom: self.is_bottom(&slice),
            slice,
            reason: self.reason,
        })
    }

    fn output_run(&self, slice: &Slice) -> OutputRun {
        let level = match self.target {
            Target::Run { id, .. } => return OutputRun::Existing(id),
            Target::Newest { level } => level,
        };
        let runs = self.version.levels[level].runs.iter().map(|run| run.id);
        let coming = self.options.busy.iter().filter(|job| job.output_level == level);
        // A running job's slice is disjoint from this one, so only what is there can be in the way.
        match runs.chain(coming.map(|job| job.output_run)).max() {
            Some(id)
                if self.version.levels[level]
                    .run(id)
                    .is_none_or(|run| slice.tables(run).is_empty()) =>
            {
                OutputRun::Existing(id)
            }
            _ => OutputRun::New,
        }
    }

    /// Whether no run older than all sources holds a key of the slice.
    fn is_bottom(&self, slice: &Slice) -> bool {
        let oldest = self.sources[self.sources.len() - 1].run.id;
        let older = self.version.runs().skip_while(|(_, run)| run.id != oldest).skip(1);
        older.into_iter().all(|(_, run)| slice.tables(run).is_empty())
    }
}

/// How far keys from `first` on are free: up to a key, or without end. `None`: `first` is taken.
fn free_end(first: &Bytes, taken: &[Taken]) -> Option<Option<Bytes>> {
    let mut free = None;
    for taken in taken {
        if taken.end.as_ref().is_some_and(|end| end <= first) {
            continue;
        }
        let start = taken.start.as_ref().filter(|start| *start > first)?;
        if free.as_ref().is_none_or(|free| start < free) {
            free = Some(start.clone());
        }
    }
    Some(free)
}

/// The tables of several runs by key.
#[derive(Debug, Clone)]
struct InOrder<'v>(Vec<&'v [Arc<LiveTable>]>);

impl<'v> InOrder<'v> {
    /// The next table and the run it is of.
    fn peek(&self) -> Option<(usize, &'v Arc<LiveTable>)> {
        let firsts = self.0.iter().enumerate();
        let firsts = firsts.filter_map(|(at, rest)| Some((at, rest.first()?)));
        firsts.min_by(|(_, a), (_, b)| a.smallest.cmp(&b.smallest))
    }
}

impl<'v> Iterator for InOrder<'v> {
    type Item = (usize, &'v Arc<LiveTable>);

    fn next(&mut self) -> Option<Self::Item> {
        let (at, table) = self.peek()?;
        self.0[at] = &self.0[at][1..];
        Some((at, table))
    }
}
