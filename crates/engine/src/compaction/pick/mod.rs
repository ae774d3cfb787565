//! Picking: from a version to what compaction does next. Pure and deterministic.
//!
//! The policy is lazy leveling (Dayan and Idreos, "Dostoevsky", SIGMOD 2018): every level collects
//! runs until it has too many, and only the deepest is one run. A full level goes down whole: as a
//! new run of the next level, or into the deepest level's run. In order:
//!
//! 1. tables in which everything is dead are dropped;
//! 2. full levels, L0 first, then downwards: upper runs are small, and every read passes them. L0
//!    waits for more runs than others, unless it may hide much;
//! 3. tables of mostly tombstones, and expired ones, are merged with all that they hide;
//! 4. runs that reads pass, as far as the reads have paid for it;
//! 5. when idle, upper runs that hide much of the store, then dead entries at the bottom.
//!
//! Each answer is one job of bounded size; the store applies it and asks again.
//!
//! No merge comes to what can't be read, and nothing else waits for it: `damage` says how.

mod choice;
mod damage;
mod dead;
mod slice;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod simulation;

use std::cell::Cell;

use bytes::Bytes;

pub use choice::{
    Choice, Drop, InFlight, Merge, MergeInput, Move, OutputRun, Reason, Slice, Unreadable,
};
use damage::Damage;
use slice::{Source, Sweep, Target};

use crate::key::SeqNo;
use crate::options::LEVEL_COUNT;
use crate::range_tombstone::RangeTombstone;
use crate::version::{Level, LiveTable, Run, TableMeta, Version};

/// A table of mostly tombstones is merged when it hides at most this many times as many entries.
/// More would rewrite large old data for a few deletions, again with each flush of deletions.
const HIDDEN_PER_TOMBSTONE_MAX: u64 = 4;

/// L0 may hide much when it weighs so many times what is below it: an overwritten store grows no larger
/// than three times, or by eight flushes.
const LEVEL0_TIMES_BELOW: u64 = 2;

/// Or when it weighs so many times its files: as much lies in the journal as in them.
const LEVEL0_TIMES_FILES: u64 = 2;

/// When idle, upper runs of at most this share of the store are left alone, as a divisor.
const IDLE_SHARE: u64 = 10;

/// And those that hide at most this share of it: a merge would free less, and what reads pass they pay
/// for themselves. As a divisor.
const IDLE_HIDDEN_SHARE: u64 = 32;

/// Entries that newer ones hide, and what they weigh.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hidden {
    /// How many.
    pub entries: u64,
    /// Their bytes, those of values in the journal included.
    pub bytes: u64,
}

impl Hidden {
    /// All there is.
    pub const ALL: Hidden = Hidden { entries: u64::MAX, bytes: u64::MAX };

    /// Whether these are more, or heavier.
    pub fn exceed(&self, others: Hidden) -> bool {
        self.entries > others.entries || self.bytes > others.bytes
    }
}

/// What picking depends on besides the version.
#[derive(Clone)]
pub struct PickOptions<'a> {
    /// Runs that make a level full; of L0 only if a merge may free much.
    pub level_runs_max: usize,
    /// Runs that make L0 full in any case.
    pub level0_runs_max: usize,
    /// Most bytes that one merge reads, as far as boundaries allow.
    pub job_bytes_max: u64,
    /// Bytes that L1 holds; each further level holds `level_runs_max` times more.
    pub level1_bytes: u64,
    /// Pinned SeqNos, in any order.
    pub snapshots: &'a [SeqNo],
    /// Now, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Tables that may be looked into for what of them has expired. None left: pick again, there is more to see.
    pub looks: &'a Cell<u32>,
    /// Entries that may be merged for the sake of reads.
    pub reads_paid: u64,
    /// Whether there is time for what isn't urgent.
    pub idle: bool,
    /// What upper runs hide, about, or some of it that exceeds what is given; asked at most once, when idle.
    pub hidden: &'a dyn Fn(Hidden) -> Hidden,
    /// Merges that run.
    pub busy: &'a [InFlight],
    /// What no merge may come to.
    pub unreadable: &'a [Unreadable],
    /// What was unreadable and is tried again: by merges that begin there, so that little is done in vain.
    pub retried: &'a [Unreadable],
    /// Merge these keys to the bottom, and nothing else.
    ///
    /// The caller asks again until nothing is left to do, after a merge with `start` set to the end
    /// of the merge's slice.
    pub manual: Option<Slice>,
    /// Keys that cut a table into parts of about equal size, ascending; none is fine.
    pub boundaries: &'a dyn Fn(&LiveTable) -> Vec<Bytes>,
    /// The deleted ranges that a table holds.
    pub range_tombstones: &'a dyn Fn(&LiveTable) -> Vec<RangeTombstone>,
}

impl PickOptions<'_> {
    /// Bytes that a level holds.
    fn capacity(&self, level: usize) -> u64 {
        let factor = (self.level_runs_max as u64).saturating_pow(level.saturating_sub(1) as u32);
        self.level1_bytes.saturating_mul(factor)
    }
}

/// What to do next.
pub fn pick(version: &Version, options: &PickOptions<'_>) -> Choice {
    let damage = Damage::find(version, options);
    let picker = Picker { version, options, damage: &damage };
    let choice = match &options.manual {
        Some(range) => picker.manual(range),
        None => dead::dead_tables(version, options)
            .map(Choice::Drop)
            .or_else(|| (0..LEVEL_COUNT - 1).find_map(|level| picker.full_level(level)))
            .or_else(|| picker.hiding_table())
            .or_else(|| picker.passed_by_reads())
            .or_else(|| options.idle.then(|| picker.upper_runs().or_else(|| picker.garbage()))?),
    };
    choice.unwrap_or(Choice::DoNothing)
}

struct Picker<'v, 'o> {
    version: &'v Version,
    options: &'o PickOptions<'o>,
    damage: &'o Damage<'v>,
}

impl<'v, 'o> Picker<'v, 'o> {
    /// A part of a level that has too many runs or bytes, into the next level.
    fn full_level(&self, level: usize) -> Option<Choice> {
        let deepest = self.version.deepest()?;
        let all = &self.version.levels[level].runs[..];
        let mut runs = all;
        while self.is_full(level, runs) {
            if level + 1 == deepest
                && let Some(relabel) = self.overgrown_bottom(deepest)
            {
                return relabel;
            }
            let from = unfinished(runs, |at| self.down_a_level(level, &all[at..]));
            let down = self.down_a_level(level, &all[from..]);
            let job = self.past_damage(&down);
            let job = job.or_else(|| self.above_damage(level, &runs[from..]));
            if job.is_some() || self.damage.unreadable.is_empty() {
                return job;
            }
            // What is left of those waits for what can't be read. Once the newer ones fill the level by
            // themselves, they go down as far as they can; one by one they would rewrite much below each time.
            runs = &runs[..from];
        }
        None
    }

    /// Whether these runs, the newest of a level, are too many or too large for it.
    fn is_full(&self, level: usize, runs: &[Run]) -> bool {
        let has_many = self.has_many(level, runs);
        // Sequential loading grows one run of a level without end; by its bytes it still goes down.
        let is_large = || {
            let bytes = runs.iter().map(Run::bytes).fold(0, u64::saturating_add);
            bytes > self.options.capacity(level + 1)
        };
        has_many || level > 0 && self.version.deepest() > Some(level) && is_large()
    }

    /// Whether these runs, the newest of a level, are too many for it.
    fn has_many(&self, level: usize, runs: &[Run]) -> bool {
        let has_many = runs.len() >= self.options.level_runs_max;
        match level {
            // Runs of L0 wait for more of them: a merge of many costs each entry no more than one of a
            // few, and what readers pass they pay for.
            0 => runs.len() >= self.options.level0_runs_max || has_many && self.may_hide_much(runs),
            _ => has_many,
        }
    }

    /// Whether runs of L0 weigh most of the store, or point at values in the journal, which cost a merge nothing.
    fn may_hide_much(&self, runs: &[Run]) -> bool {
        let weight = runs.iter().map(Run::weight).fold(0, u64::saturating_add);
        let bytes = runs.iter().map(Run::bytes).fold(0, u64::saturating_add);
        let below = self.version.levels[1..].iter().map(Level::weight).fold(0, u64::saturating_add);
        let outweighs_rest = below > 0 && weight / LEVEL0_TIMES_BELOW > below;
        let points_at_much = weight / LEVEL0_TIMES_FILES > bytes;
        // A sweep that has begun goes on: what it has moved no longer weighs in L0. Where all that is left of a table
        // waits for what can't be read, it is over.
        let is_begun = |run: &Run| {
            let mut tables = run.tables.iter();
            tables.any(|table| table.is_clipped() && !self.is_held_up(run, table))
        };
        outweighs_rest || points_at_much || runs.iter().any(is_begun)
    }

    /// The oldest runs of a level into the next one.
    fn down_a_level(&self, level: usize, runs: &'v [Run]) -> Sweep<'v, 'o> {
        let mut sources: Vec<_> =
            runs.iter().map(|run| Source { level, run, leaves: true }).collect();
        let mut target = Target::Newest { level: level + 1 };
        if self.version.deepest() == Some(level + 1) {
            let bottom = &self.version.levels[level + 1].runs;
            let stays = |run| Source { level: level + 1, run, leaves: false };
            sources.extend(bottom.iter().map(stays));
            target = Target::Run { level: level + 1, id: bottom[bottom.len() - 1].id };
        }
        self.sweep(sources, target, Reason::Full)
    }

    /// The bottom run goes one level down when it outgrows its level, before anything is merged into
    /// it. `Some(None)`: it should, and a running merge is in the way.
    fn overgrown_bottom(&self, level: usize) -> Option<Option<Choice>> {
        let [run] = &self.version.levels[level].runs[..] else {
            return None;
        };
        if level + 1 == LEVEL_COUNT || run.bytes() <= self.options.capacity(level) {
            return None;
        }
        if self.options.busy.iter().any(|job| job.touches(level, level + 1)) {
            return Some(None);
        }
        Some(Some(Choice::Move(Move {
            tables: run.tables.to_vec(),
            from_level: level,
            to_level: level + 1,
            run: OutputRun::Existing(run.id),
        })))
    }

    /// A table of mostly tombstones, or an expired one, with everything older in its range.
    fn hiding_table(&self) -> Option<Choice> {
        for (level, run) in self.version.runs() {
            for table in run.tables.iter() {
                let properties = &table.properties;
                let expired = dead::is_expired(table, self.options.now_ms);
                if properties.tombstones.saturating_mul(2) <= properties.entries && !expired {
                    continue;
                }
                let older = dead::older_tables(self.version, level, run, table);
                let older = older.map(|older| older.properties.entries);
                let hidden = older.fold(0, u64::saturating_add);
                let hiding = if expired { properties.entries } else { properties.tombstones };
                if hidden > hiding.saturating_mul(HIDDEN_PER_TOMBSTONE_MAX) {
                    continue;
                }
                let reason = if expired { Reason::Expired } else { Reason::Tombstones };
                let choice = if dead::has_older(self.version, level, run, table) {
                    self.merge_down(level, run, table, reason)
                } else {
                    self.rewrite(level, run, table)
                };
                if choice.is_some() {
                    return choice;
                }
            }
        }
        None
    }

    /// A part of all runs, into the bottom run, if reads have paid for so many entries.
    fn passed_by_reads(&self) -> Option<Choice> {
        if self.options.reads_paid == 0 || self.version.runs().nth(1).is_none() {
            return None;
        }
        let job = self.past_damage(&self.all_runs(Reason::Reads))?;
        let entries = match &job {
            Choice::Merge(merge) => merge.input_entries(),
            _ => 0,
        };
        (entries <= self.options.reads_paid).then_some(job)
    }

    /// When upper runs hide much: all of them, into the bottom run. What only has to move moves anyway.
    fn upper_runs(&self) -> Option<Choice> {
        let (_, bottom) = self.version.runs().next_back()?;
        let figures = |run: &Run| (run.weight(), run.entries());
        let (mut upper, mut all, mut deletes_ranges) = ((0u64, 0u64), figures(bottom), false);
        let sweep = self.all_runs(Reason::Idle);
        // What waits for what can't be read is no reason to merge what is little, nor to cut it.
        let waits = |at: usize, run: &Run| {
            let starts = run.tables.iter().map(|table| table.smallest.clone());
            !self.damage.unreadable.is_empty()
                && sweep.suffix(at).opening(starts).is_none()
                && self.cut(&sweep, at, &Slice::default()).is_none()
        };
        let runs = self.version.runs().enumerate();
        for (at, (_, run)) in runs.filter(|(_, (_, run))| run.id != bottom.id) {
            let (weight, entries) = figures(run);
            all = (all.0.saturating_add(weight), all.1.saturating_add(entries));
            if !waits(at, run) {
                upper = (upper.0.saturating_add(weight), upper.1.saturating_add(entries));
                let mut tables = run.tables.iter();
                deletes_ranges |= tables.any(|table| table.properties.range_tombstones > 0);
            }
        }
        // Entries count as well as bytes: a light tombstone may hide a heavy value.
        let weighs = upper.0 > all.0 / IDLE_SHARE || upper.1 > all.1 / IDLE_SHARE;
        if upper.1 == 0 && upper.0 == 0 || !weighs && !deletes_ranges {
            return None;
        }
        let mut openings =
            sweep.suffixes().filter_map(|older| Some((older.opening(older.starts())?, older)));
        if let Some((opening, older)) = openings.next()
            && opening.moves()
        {
            return Some(older.job_at(opening));
        }
        let hides_much = || {
            let share = IDLE_HIDDEN_SHARE;
            let little = Hidden { entries: all.1 / share, bytes: all.0 / share };
            (self.options.hidden)(little).exceed(little)
        };
        // How far a merge reaches is worked out only if there is to be one: an idle store asks often.
        (deletes_ranges || hides_much()).then(|| self.past_damage(&sweep))?
    }

    /// A table at the bottom that holds something dead.
    fn garbage(&self) -> Option<Choice> {
        self.version.runs().find_map(|(level, run)| {
            let candidates = run.tables.iter().filter(|table| {
                !dead::has_older(self.version, level, run, table)
                    && dead::has_garbage(table, self.options)
            });
            candidates.into_iter().find_map(|table| self.rewrite(level, run, table))
        })
    }

    /// The first part of `range` that isn't merged to the bottom yet.
    fn manual(&self, range: &Slice) -> Option<Choice> {
        self.version.runs().next()?;
        let all = self.all_runs(Reason::Manual);
        let reaching_left = self.reaching_left(&all, range);
        if let Some(cut) = self.cut_behind_damage(&all, &reaching_left) {
            return Some(cut);
        }
        // Without newer runs that hold it up, only what lies before all that goes down with them.
        let (mut end, mut first) = (range.end.clone(), None);
        for sweep in all.suffixes() {
            let sweep = Sweep { end: end.clone(), ..sweep };
            let wanted = Slice { start: range.start.clone(), end: end.clone() };
            let wanted = self.reaching_left(&sweep, &wanted);
            if let Some(opening) = sweep.opening(self.manual_starts(&sweep, &wanted)) {
                end = Some(opening.start.clone());
                first = Some((sweep, opening));
            }
        }
        first.map(|(sweep, opening)| sweep.job_at(opening))
    }

    /// `range`, and where a job that begins with it is held up by what can't be read, what lies to the left of it as
    /// far as one has to begin that isn't: what reaches into the range goes down part by part.
    fn reaching_left(&self, sweep: &Sweep<'v, 'o>, range: &Slice) -> Slice {
        let start = range.start.clone().map(|mut start| {
            loop {
                let (first, shares) = sweep.shares(&start);
                let mut met = sweep.met(&shares, &self.damage.unreadable);
                if first == start || met.all(|from| *from > start) {
                    break start;
                }
                start = first;
            }
        });
        Slice { start, end: range.end.clone() }
    }

    /// Where what isn't merged to the bottom yet begins in `range`, ascending.
    fn manual_starts(&self, sweep: &Sweep<'v, 'o>, range: &Slice) -> impl Iterator<Item = Bytes> {
        let mut starts: Vec<Bytes> = Vec::new();
        for &Source { run, leaves, .. } in &sweep.sources {
            let tables = range.tables(run).iter();
            let wanted = tables.filter(|table| leaves || dead::has_garbage(table, self.options));
            starts.extend(wanted.map(|table| match &range.start {
                Some(start) => start.max(&table.smallest).clone(),
                None => table.smallest.clone(),
            }));
        }
        starts.sort();
        starts.into_iter()
    }

    /// All runs into the bottom run; into L1 when there are only runs of L0.
    fn all_runs(&self, reason: Reason) -> Sweep<'v, 'o> {
        let (deepest, bottom) = self.version.runs().next_back().expect("there is a run");
        let runs = self.version.runs();
        // A run of L0 is never the bottom run, even when there is nothing else.
        let sources = runs.map(|(level, run)| Source {
            level,
            run,
            leaves: deepest == 0 || run.id != bottom.id,
        });
        self.sweep(sources.collect(), self.bottom_target(), reason)
    }

    fn bottom_target(&self) -> Target {
        match self.version.runs().next_back() {
            Some((level, run)) if level > 0 => Target::Run { level, id: run.id },
            _ => Target::Newest { level: 1 },
        }
    }

    /// A table's range from its run down to the bottom run.
    fn merge_down(
        &self,
        level: usize,
        run: &'v Run,
        table: &TableMeta,
        reason: Reason,
    ) -> Option<Choice> {
        let older = self.version.runs().skip_while(|(_, other)| other.id != run.id).skip(1);
        let older = older.map(|(level, run)| Source { level, run, leaves: false });
        let sources = [Source { level, run, leaves: false }].into_iter().chain(older);
        let sweep = self.sweep(sources.collect(), self.bottom_target(), reason);
        Sweep { end: Some(table.end()), ..sweep }.job([table.smallest.clone()].into_iter())
    }

    /// A table in its place.
    fn rewrite(&self, level: usize, run: &'v Run, table: &LiveTable) -> Option<Choice> {
        if !dead::has_garbage(table, self.options) {
            return None;
        }
        self.in_place(level, run, table, table.end(), Reason::Garbage)
    }

    /// A table in its place, up to `end`.
    fn in_place(
        &self,
        level: usize,
        run: &'v Run,
        table: &TableMeta,
        end: Bytes,
        reason: Reason,
    ) -> Option<Choice> {
        let source = Source { level, run, leaves: false };
        let sweep = self.sweep(vec![source], Target::Run { level, id: run.id }, reason);
        Sweep { end: Some(end), ..sweep }.job([table.smallest.clone()].into_iter())
    }

    fn sweep(&self, sources: Vec<Source<'v>>, target: Target, reason: Reason) -> Sweep<'v, 'o> {
        let &Picker { version, options, damage } = self;
        Sweep { version, options, damage, sources, target, end: None, reason }
    }
}

impl Sweep<'_, '_> {
    /// The leftmost job that is free.
    fn first_job(&self) -> Option<Choice> {
        self.job(self.starts())
    }

    /// Where the tables that are to leave begin, ascending.
    fn starts(&self) -> impl Iterator<Item = Bytes> + use<> {
        let leaving = self.sources.iter().filter(|source| source.leaves);
        let tables = leaving.flat_map(|source| source.run.tables.iter());
        let mut starts: Vec<_> = tables.map(|table| table.smallest.clone()).collect();
        starts.sort();
        starts.dedup();
        starts.into_iter()
    }
}

/// Where the runs of a full level begin to go on with; of a sweep, `sweep_from` gives what it would be from a run on.
///
/// A sweep that is under way has clipped the runs it works on at its end; runs that came since begin further left,
/// and wait until those are gone. Without this, each new run would start the sweep over, in jobs that leave many
/// small runs. What waits for what can't be read lies further left as well, and so do clips of sweeps that ended:
/// the sweep is at the rightmost clip that the oldest run has nothing to the left of.
fn unfinished<'v: 'o, 'o>(runs: &[Run], sweep_from: impl Fn(usize) -> Sweep<'v, 'o>) -> usize {
    let tables = runs.iter().flat_map(|run| run.tables.iter());
    let clips = tables.filter(|table| table.is_clipped()).map(|table| &table.smallest);
    let mut clips: Vec<&Bytes> = clips.collect();
    clips.sort();
    clips.dedup();
    let from = clips.into_iter().rev().find_map(|reached| {
        let newer = (0..runs.len()).rev().find(|&at| sweep_from(at).begins_before(reached));
        let from = newer.map_or(0, |at| at + 1);
        // What is merged into the oldest of its own runs doesn't begin with that.
        (from < runs.len() && sweep_from(from).sources[0].leaves).then_some(from)
    });
    from.unwrap_or(0)
}
