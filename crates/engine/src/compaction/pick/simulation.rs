//! Random flushes, deletions and snapshots, with every picked job carried out on tables that exist
//! only here: whatever the picker chooses, no read changes, ages stay in order, and it comes to rest. Some
//! tables can't be read for a while.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::sstable::Properties;
use crate::version::{Added, VersionEdit};

const KEYS: std::ops::Range<u8> = 1..40;
const TABLE_ENTRIES: usize = 4;
const ENTRY_BYTES: u64 = 10;
const RUNS_MAX: usize = 3;
const LEVEL0_RUNS_MAX: usize = 5;

#[derive(Debug, Clone)]
enum Write {
    Put(u8),
    Delete(u8),
    DeleteRange(u8, u8),
}

#[derive(Debug, Clone)]
enum Step {
    Flush(Vec<Write>),
    /// Pick a job and begin it; moves and drops happen at once.
    Start {
        idle: bool,
        reads_paid: u64,
    },
    /// Install what the n-th running job has made.
    Finish(usize),
    Snapshot,
    Release,
    /// Of some table, what it shows from some entry on can't be read.
    Damage(usize, usize),
    /// What can't be read is tried again.
    Retry,
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        12 => KEYS.prop_map(Write::Put),
        4 => KEYS.prop_map(Write::Delete),
        1 => (KEYS, 1..20u8).prop_map(|(start, count)| Write::DeleteRange(start, start + count)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        // Random keys, or a few neighbours, so that some flushes are disjoint.
        3 => vec(write(), 1..12).prop_map(Step::Flush),
        2 => (KEYS, 1..6u8)
            .prop_map(|(from, count)| Step::Flush((from..from + count).map(Write::Put).collect())),
        6 => (any::<bool>(), prop_oneof![Just(0), 0..40u64])
            .prop_map(|(idle, reads_paid)| Step::Start { idle, reads_paid }),
        4 => any::<usize>().prop_map(Step::Finish),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Release),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(table, entry)| Step::Damage(table, entry)),
        1 => Just(Step::Retry),
    ];
    vec(step, 1..80)
}

/// What a table's file holds.
#[derive(Debug, Clone, Default)]
struct Contents {
    /// Key, SeqNo, whether it is a put.
    entries: Vec<(Bytes, SeqNo, bool)>,
    deleted: Vec<RangeTombstone>,
}

impl Contents {
    /// The part in `[start, end)`.
    fn cut(&self, start: &Bytes, end: Option<&Bytes>) -> Contents {
        let inside = |key: &Bytes| key >= start && end.is_none_or(|end| key < end);
        let deleted = self.deleted.iter().filter_map(|deleted| {
            let start = deleted.start.clone().max(start.clone());
            let end = end.map_or(deleted.end.clone(), |end| end.clone().min(deleted.end.clone()));
            (start < end).then_some(RangeTombstone { start, end, seqno: deleted.seqno })
        });
        Contents {
            entries: self.entries.iter().filter(|(key, ..)| inside(key)).cloned().collect(),
            deleted: deleted.collect(),
        }
    }

    /// Drops what newer entries hide and, at the bottom, what hides.
    fn collapse(&mut self, bottom: bool) {
        let Contents { entries, deleted } = self;
        entries.dedup_by(|older, newer| older.0 == newer.0);
        entries.retain(|(key, seqno, put)| {
            (*put || !bottom) && !deleted.iter().any(|range| hides(range, key) > *seqno)
        });
        if bottom {
            deleted.clear();
        }
    }
}

/// The SeqNo up to which the range deletes the key; 0 for none.
fn hides(range: &RangeTombstone, key: &Bytes) -> SeqNo {
    if range.start <= *key && *key < range.end { range.seqno } else { 0 }
}

#[derive(Default)]
struct Store {
    version: Version,
    contents: HashMap<u64, Contents>,
    number: u64,
    seqno: SeqNo,
    model: BTreeMap<Bytes, SeqNo>,
    snapshots: Vec<(SeqNo, BTreeMap<Bytes, SeqNo>)>,
    running: Vec<(InFlight, VersionEdit)>,
    unreadable: Vec<Unreadable>,
    retried: Vec<Unreadable>,
    cut_tables: bool,
}

impl Store {
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn apply(&mut self, edit: &VersionEdit) {
        let mut unopened = |meta| Ok(LiveTable::unopened(meta));
        self.version = self.version.apply(edit, &mut unopened).unwrap();
        self.check_reads();
    }

    fn flush(&mut self, writes: &[Write]) {
        let mut contents = Contents::default();
        for write in writes {
            self.seqno += 1;
            match *write {
                Write::Put(key) => {
                    contents.entries.push((Bytes::from(vec![key]), self.seqno, true));
                    self.model.insert(Bytes::from(vec![key]), self.seqno);
                }
                Write::Delete(key) => {
                    contents.entries.push((Bytes::from(vec![key]), self.seqno, false));
                    self.model.remove(&vec![key][..]);
                }
                Write::DeleteRange(start, end) => {
                    let (start, end) = (Bytes::from(vec![start]), Bytes::from(vec![end]));
                    self.model.retain(|key, _| *key < start || *key >= end);
                    contents.deleted.push(RangeTombstone { start, end, seqno: self.seqno });
                }
            }
        }
        contents.entries.sort_by(|a, b| (&a.0, b.1).cmp(&(&b.0, a.1)));
        let run_id = self.next_number();
        let added = self.build(contents).into_iter();
        let added = added.map(|meta| Added { level: 0, run_id, meta }).collect();
        self.apply(&VersionEdit { added, ..VersionEdit::default() });
    }

    /// Cuts contents into tables.
    fn build(&mut self, contents: Contents) -> Vec<TableMeta> {
        let mut starts = vec![Bytes::new()];
        let mut count = 0;
        for pair in contents.entries.windows(2) {
            count += 1;
            if count >= TABLE_ENTRIES && pair[0].0 != pair[1].0 {
                starts.push(pair[1].0.clone());
                count = 0;
            }
        }
        let mut tables = Vec::new();
        for (at, start) in starts.iter().enumerate() {
            let part = contents.cut(start, starts.get(at + 1));
            if part.entries.is_empty() && part.deleted.is_empty() {
                continue;
            }
            let number = self.next_number();
            tables.push(TableMeta::new(number, Arc::new(properties(&part))));
            self.contents.insert(number, part);
        }
        tables
    }

    fn pick(&self, idle: bool, reads_paid: u64, manual: Option<Slice>) -> Choice {
        let snapshots: Vec<_> = self.snapshots.iter().map(|(seqno, _)| *seqno).collect();
        let busy: Vec<_> = self.running.iter().map(|(job, _)| job.clone()).collect();
        let options = PickOptions {
            looks: &Cell::new(0),
            level_runs_max: RUNS_MAX,
            level0_runs_max: LEVEL0_RUNS_MAX,
            job_bytes_max: 12 * ENTRY_BYTES,
            level1_bytes: 20 * ENTRY_BYTES,
            snapshots: &snapshots,
            now_ms: 0,
            reads_paid,
            idle,
            hidden: &|_| Hidden::ALL,
            busy: &busy,
            unreadable: &self.unreadable,
            retried: &self.retried,
            manual,
            boundaries: &|table| match self.cut_tables {
                true => self.contents[&table.number]
                    .entries
                    .iter()
                    .step_by(2)
                    .map(|(key, ..)| key.clone())
                    .collect(),
                false => Vec::new(),
            },
            range_tombstones: &|table| self.contents[&table.number].deleted.clone(),
        };
        pick(&self.version, &options)
    }

    /// Begins what was picked; answers whether there was something.
    fn start(&mut self, choice: Choice) -> bool {
        match choice {
            Choice::DoNothing => return false,
            Choice::Move(moved) => {
                let id = moved.run.id(|| self.next_number());
                self.apply(&moved.edit(id));
            }
            Choice::Drop(drop) => self.apply(&drop.edit()),
            Choice::Merge(merge) if self.meets_damage(&merge) => {}
            Choice::Merge(merge) => {
                let run_id = merge.output_run.id(|| self.next_number());
                let outputs = self.merge(&merge);
                self.running.push((merge.in_flight(run_id), merge.edit(outputs, run_id)));
            }
        }
        true
    }

    /// Whether a merge comes to what can't be read; then that is left alone again.
    fn meets_damage(&mut self, merge: &Merge) -> bool {
        let end = merge.slice.end.clone().unwrap();
        let is_read = |unreadable: &Unreadable| {
            let mut tables = merge.tables().filter(|table| table.number == unreadable.table);
            tables.any(|table| end > *Ord::max(&table.smallest, &unreadable.from))
        };
        assert!(!self.unreadable.iter().any(is_read), "{merge:?} can't be read");
        let (met, others): (Vec<_>, Vec<_>) = self.retried.drain(..).partition(is_read);
        let is_met = !met.is_empty();
        self.retried = others;
        self.unreadable.extend(met);
        is_met
    }

    fn damage(&mut self, table: usize, entry: usize) {
        let tables: Vec<_> = self.version.tables().map(|(_, table)| table.clone()).collect();
        if tables.is_empty() {
            return;
        }
        let table = &tables[table % tables.len()];
        let entries = &self.contents[&table.number].entries;
        let keys = entries.iter().map(|(key, ..)| key).filter(|key| **key >= table.smallest);
        let keys: Vec<_> = keys.chain([&table.smallest]).collect();
        let from = keys[entry % keys.len()].clone();
        self.unreadable.push(Unreadable { table: table.number, from });
    }

    fn retry(&mut self) {
        self.retried.append(&mut self.unreadable);
    }

    /// Everything can be read again.
    fn heal(&mut self) {
        (self.unreadable, self.retried) = Default::default();
    }

    fn merge(&mut self, merge: &Merge) -> Vec<TableMeta> {
        let mut all = Contents::default();
        let start = merge.slice.start.as_ref().unwrap();
        for table in merge.tables() {
            assert!(table.smallest >= *start, "{merge:?} would need a table clipped at its right");
            let end = merge.slice.end.clone().map_or(table.end(), |end| end.min(table.end()));
            let part = self.contents[&table.number].cut(&table.smallest, Some(&end));
            all.entries.extend(part.entries);
            all.deleted.extend(part.deleted);
        }
        all.entries.sort_by(|a, b| (&a.0, b.1).cmp(&(&b.0, a.1)));
        let newest = merge.tables().map(|table| table.properties.seqno_max).max().unwrap();
        if self.snapshots.iter().all(|(seqno, _)| *seqno >= newest) {
            all.collapse(merge.bottom);
        }
        self.build(all)
    }

    fn finish(&mut self, at: usize) {
        if !self.running.is_empty() {
            let (_, edit) = self.running.remove(at % self.running.len());
            self.apply(&edit);
        }
    }

    /// Does what is picked until nothing is; answers the number of jobs.
    fn settle(&mut self, idle: bool) -> usize {
        for jobs in 0..2000 {
            let choice = self.pick(idle, 0, None);
            if !self.start(choice) {
                return jobs;
            }
            self.finish(0);
        }
        panic!("picking does not come to rest: {:?}", self.version);
    }

    /// Does what is picked for a range until nothing is; answers the merges that it asked for.
    fn merge_manually(&mut self, start: Option<Bytes>, end: Option<Bytes>) -> Vec<Merge> {
        let mut range = Slice { start, end };
        let mut merges = Vec::new();
        for _ in 0..2000 {
            let choice = self.pick(false, 0, Some(range.clone()));
            if !self.start(choice.clone()) {
                return merges;
            }
            if let Choice::Merge(merge) = choice
                && merge.reason == Reason::Manual
                && !self.running.is_empty()
            {
                // What reaches in from the left may have to go first, where something can't be read.
                let goes_on = merge.slice.end > range.start || !self.unreadable.is_empty();
                assert!(goes_on, "a manual merge goes on");
                range.start = range.start.max(merge.slice.end.clone());
                merges.push(merge);
            }
            self.finish(0);
        }
        panic!("a manual merge does not come to rest: {:?}", self.version);
    }

    /// What the version says of a key: for each run from the newest, the SeqNos and whether each puts.
    fn history(&self, key: &Bytes) -> Vec<Vec<(SeqNo, bool)>> {
        let tables = self.version.runs().filter_map(|(_, run)| run.find(key));
        let said = tables.map(|table| {
            let contents = &self.contents[&table.number];
            let entries = contents.entries.iter().filter(|(of, ..)| of == key);
            let deleted = contents.deleted.iter().map(|range| (hides(range, key), false));
            let said = entries.map(|&(_, seqno, put)| (seqno, put));
            said.chain(deleted.filter(|(seqno, _)| *seqno > 0)).collect()
        });
        said.collect()
    }

    fn check_reads(&self) {
        for key in KEYS.map(|key| Bytes::from(vec![key])) {
            let history = self.history(&key);
            let mut older_than = SeqNo::MAX;
            for said in history.iter().filter(|said| !said.is_empty()) {
                assert!(said.iter().all(|(seqno, _)| *seqno < older_than), "{key:?} {history:?}");
                older_than = said.iter().map(|(seqno, _)| *seqno).min().unwrap();
            }
            let now = (self.seqno, self.model.clone());
            for (at, model) in self.snapshots.iter().chain([&now]) {
                let visible = history.iter().flatten().filter(|(seqno, _)| seqno <= at);
                let newest = visible.max().filter(|(_, put)| *put).map(|(seqno, _)| seqno);
                assert_eq!(newest, model.get(&key), "{key:?} at {at}: {history:?}");
            }
        }
    }
}

fn properties(contents: &Contents) -> Properties {
    let Contents { entries, deleted } = contents;
    let starts = entries.iter().map(|(key, ..)| key).chain(deleted.iter().map(|d| &d.start));
    let seqnos = entries.iter().map(|(_, seqno, _)| *seqno);
    let seqnos = seqnos.chain(deleted.iter().map(|deleted| deleted.seqno));
    let last_key = entries.last().map(|(key, ..)| key.clone()).unwrap_or_default();
    let last_end = deleted.iter().map(|deleted| deleted.end.clone()).max().unwrap_or_default();
    let mut keys: Vec<_> = entries.iter().map(|(key, ..)| key).collect();
    keys.dedup();
    Properties {
        file_bytes: entries.len() as u64 * ENTRY_BYTES + deleted.len() as u64,
        entries: entries.len() as u64,
        keys: keys.len() as u64,
        tombstones: entries.iter().filter(|(.., put)| !put).count() as u64,
        range_tombstones: deleted.len() as u64,
        smallest: starts.min().unwrap().clone(),
        largest_exclusive: last_end > last_key,
        largest: last_end.max(last_key),
        seqno_min: seqnos.clone().min().unwrap(),
        seqno_max: seqnos.max().unwrap(),
        ..Properties::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_choice_changes_a_read_and_picking_comes_to_rest(
        steps in steps(),
        cut_tables in any::<bool>(),
        range in (KEYS, KEYS),
    ) {
        let mut store = Store { cut_tables, ..Store::default() };
        for step in steps {
            match step {
                Step::Flush(writes) => store.flush(&writes),
                Step::Start { idle, reads_paid } => {
                    if store.running.len() < 3 {
                        let choice = store.pick(idle, reads_paid, None);
                        store.start(choice);
                    }
                }
                Step::Finish(at) => store.finish(at),
                Step::Snapshot => store.snapshots.push((store.seqno, store.model.clone())),
                Step::Release => drop(store.snapshots.pop()),
                Step::Damage(table, entry) => store.damage(table, entry),
                Step::Retry => store.retry(),
            }
        }
        while !store.running.is_empty() {
            store.finish(0);
        }
        let [start, end] =
            [range.0.min(range.1), range.0.max(range.1)].map(|key| Some(Bytes::from(vec![key])));
        if !(store.unreadable.is_empty() && store.retried.is_empty()) {
            for idle in [false, true] {
                store.settle(idle);
                store.retry();
                store.settle(idle);
            }
            // Those that can't be read, what is left behind each, and what is newer than all of them.
            let runs_max = LEVEL0_RUNS_MAX + RUNS_MAX * store.unreadable.len();
            for level in &store.version.levels {
                prop_assert!(level.runs.len() <= runs_max, "{:?}", store.version);
            }
            store.merge_manually(start.clone(), end.clone());
            // Nothing of the range was left that could go.
            let begins_inside = |key: &Bytes| Some(key) >= start.as_ref() && Some(key) < end.as_ref();
            for merge in store.merge_manually(None, None) {
                let going = merge.inputs.iter();
                let going = going.filter(|from| merge.output_run != OutputRun::Existing(from.run_id));
                let mut going = going.flat_map(|input| input.tables.iter());
                let is_left = merge.slice.start.as_ref().is_some_and(begins_inside)
                    && going.any(|table| begins_inside(&table.smallest));
                prop_assert!(!is_left, "{merge:?} in {start:?}..{end:?}");
            }
        }
        store.heal();
        store.settle(false);
        for (level, runs) in store.version.levels.iter().map(|level| level.runs.len()).enumerate() {
            let runs_max = if level == 0 { LEVEL0_RUNS_MAX } else { RUNS_MAX };
            prop_assert!(runs < runs_max, "L{level} is full: {:?}", store.version);
        }
        store.merge_manually(start, end);
        store.settle(true);
        store.snapshots.clear();
        store.settle(true);
        store.merge_manually(None, None);
        prop_assert!(store.version.runs().count() <= 1, "{:?}", store.version);
        let tables = || store.version.tables().map(|(_, table)| &table.properties);
        let live: u64 = tables().map(|properties| properties.entries).sum();
        prop_assert_eq!(live as usize, store.model.len(), "dead entries are left");
        prop_assert!(tables().all(|p| p.tombstones + p.range_tombstones == 0));
        prop_assert_eq!(store.settle(true), 0);
    }
}

#[test]
fn sequential_loading_never_merges() {
    let mut store = Store::default();
    for key in KEYS {
        store.flush(&[Write::Put(key)]);
        loop {
            let choice = store.pick(false, 0, None);
            assert!(!matches!(choice, Choice::Merge(_)), "{choice:?}");
            if !store.start(choice) {
                break;
            }
        }
    }
    let entries: u64 = store.version.tables().map(|(_, table)| table.properties.entries).sum();
    assert_eq!(entries, KEYS.len() as u64);
    let [level0, below @ ..] = &store.version.levels;
    assert!(level0.runs.len() < LEVEL0_RUNS_MAX);
    assert!(below.iter().all(|level| level.runs.len() < RUNS_MAX));
}

#[test]
fn random_loading_rewrites_each_entry_a_bounded_number_of_times() {
    let mut store = Store { cut_tables: true, ..Store::default() };
    let (mut flushed, mut merged) = (0, 0);
    for flush in 0..300u64 {
        // A permutation that spreads the keys of each flush over all of them.
        let keys = (0..6).map(|at| (flush * 6 + at) * 7 % KEYS.len() as u64 + 1);
        store.flush(&keys.map(|key| Write::Put(key as u8)).collect::<Vec<_>>());
        flushed += 6;
        loop {
            let choice = store.pick(false, 0, None);
            if let Choice::Merge(merge) = &choice {
                let tables = merge.tables();
                merged += tables.map(|table| table.properties.entries).sum::<u64>();
            }
            if !store.start(choice) {
                break;
            }
            store.finish(0);
        }
    }
    // Everything fits L1 or L2: an entry passes L0 and perhaps L1, and each flush of 6 of the 39
    // keys, 3 at a time, rewrites the bottom once.
    assert!(merged < flushed * 8, "{merged} entries were merged for {flushed} written");
}

/// Runs became ever more, as nothing went by what was left above a damaged table; and where flushes come between
/// the jobs of a sweep, as each flush started it over.
#[test]
fn a_table_that_can_not_be_read_has_no_runs_pile_up() {
    let tables = KEYS.len() / TABLE_ENTRIES;
    let one = &[tables / 2][..];
    // One job for each flush is about as much as is due.
    for (damaged, jobs_max, runs_max) in [
        (one, 1, 6 * LEVEL0_RUNS_MAX),
        (one, 2000, 2 * LEVEL0_RUNS_MAX),
        (&[tables / 4, tables / 4 * 3], 2000, 2 * LEVEL0_RUNS_MAX),
    ] {
        for entry in 0..4 {
            let mut store = Store { cut_tables: true, ..Store::default() };
            store.flush(&KEYS.map(Write::Put).collect::<Vec<_>>());
            store.merge_manually(None, None);
            for &table in damaged {
                store.damage(table, entry);
            }
            let (mut flushed, mut merged) = (0, 0);
            for flush in 0..300u64 {
                let keys = (0..6).map(|at| (flush * 6 + at) * 7 % KEYS.len() as u64 + 1);
                store.flush(&keys.map(|key| Write::Put(key as u8)).collect::<Vec<_>>());
                flushed += 6;
                let mut jobs = 0;
                while jobs < jobs_max {
                    let choice = store.pick(false, 0, None);
                    if let Choice::Merge(merge) = &choice {
                        merged += merge.input_entries();
                        // A cut takes the front of one table.
                        jobs += usize::from(merge.reason != Reason::Damage);
                    }
                    if !store.start(choice) {
                        break;
                    }
                    store.finish(0);
                }
                for (level, runs) in
                    store.version.levels.iter().map(|level| level.runs.len()).enumerate()
                {
                    assert!(runs <= runs_max, "{runs} runs of L{level} after {flush} flushes");
                }
            }
            assert!(merged < flushed * 12, "{merged} entries were merged for {flushed} written");
        }
    }
}
