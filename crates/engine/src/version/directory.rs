//! The way to the table of a key in every run, laid out for the processor's caches.
//!
//! A look-up asks every run. Through `Level`, `Run` and `LiveTable` each of them costs half a dozen waits
//! for memory that depend on one another. Here the bounds of all tables stand as numbers in two arrays,
//! and the point indexes of several runs are asked for before the first is looked into.
//!
//! Invariant: of each run it names the table that `Run::find` names.

use std::sync::Arc;

use bytes::Bytes;

use super::level::Level;
use super::table::LiveTable;
use crate::key;
use crate::sstable::{Candidates, PointIndex};

/// Runs that are found, and whose point indexes are fetched, at once.
pub(crate) const RUNS_AHEAD: usize = 8;

/// Where the tables of a version are, run by run, newest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Directory {
    /// What every key within the bounds of a table begins with.
    prefix: Bytes,
    /// Of every table: the word of its smallest key.
    starts: Box<[u64]>,
    /// Of every table: the word of its largest key.
    ends: Box<[u64]>,
    slots: Box<[Slot]>,
    runs: Box<[RunSlots]>,
    /// The tables that have deleted ranges, which few have.
    deleting: Box<[Arc<LiveTable>]>,
}

/// A run: which of the slots are its tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunSlots {
    /// Its level.
    pub(crate) level: usize,
    from: usize,
    to: usize,
}

/// A table, with what most look-ups need of it at hand.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    /// The table.
    pub(crate) live: Arc<LiveTable>,
    /// `None` of a table that has not been opened.
    index: Option<PointIndex>,
    /// Whether it has deleted ranges.
    pub(crate) has_range_tombstones: bool,
}

impl Slot {
    fn new(live: &Arc<LiveTable>) -> Slot {
        Slot {
            live: live.clone(),
            index: live.table.as_ref().map(|table| table.point_index().clone()),
            has_range_tombstones: live.properties.range_tombstones > 0,
        }
    }

    /// Where a key with this hash may be in the table. Requires: the table is open.
    #[inline]
    pub(crate) fn candidates(&self, hash: u64) -> Candidates<'_> {
        self.index.as_ref().expect("a table that is read is open").candidates(hash)
    }
}

impl Directory {
    /// The directory of these levels.
    pub(super) fn new(levels: &[Level]) -> Directory {
        let tables = || levels.iter().flat_map(Level::tables);
        let smallest = tables().map(|table| &table.smallest).min();
        let largest = tables().map(|table| &table.largest).max();
        let shared = |(a, b): (&Bytes, &Bytes)| a.slice(..key::common_prefix(a, b));
        let prefix = smallest.zip(largest).map(shared).unwrap_or_default();
        let word = |key: &Bytes| key::word(key, prefix.len());
        let (mut runs, mut to) = (Vec::new(), 0);
        for (level, run) in
            levels.iter().enumerate().flat_map(|(at, l)| l.runs.iter().map(move |run| (at, run)))
        {
            let from = to;
            to += run.tables.len();
            runs.push(RunSlots { level, from, to });
        }
        let slots: Box<[Slot]> = tables().map(Slot::new).collect();
        let deleting = slots.iter().filter(|slot| slot.has_range_tombstones);
        Directory {
            starts: tables().map(|table| word(&table.smallest)).collect(),
            ends: tables().map(|table| word(&table.largest)).collect(),
            deleting: deleting.map(|slot| slot.live.clone()).collect(),
            slots,
            runs: runs.into(),
            prefix,
        }
    }

    /// The runs, newest first.
    #[inline]
    pub(crate) fn runs(&self) -> &[RunSlots] {
        &self.runs
    }

    /// The tables that have deleted ranges.
    pub(crate) fn deleting(&self) -> &[Arc<LiveTable>] {
        &self.deleting
    }

    /// Of each of at most `N` runs, the one table that may hold a key; `hash` is `key::hash` of it. What
    /// their point indexes say of it is on its way when this returns.
    #[inline]
    pub(crate) fn find<const N: usize>(
        &self,
        runs: &[RunSlots],
        key: &[u8],
        hash: u64,
    ) -> [Option<&Slot>; N] {
        let mut found = [None; N];
        if !key.starts_with(&self.prefix) {
            return found;
        }
        let word = key::word(key, self.prefix.len());
        for (run, found) in runs.iter().zip(&mut found) {
            if let Some(at) = self.position(run, word, key) {
                let slot = &self.slots[at];
                if let Some(index) = &slot.index {
                    index.prefetch(hash);
                }
                *found = Some(slot);
            }
        }
        found
    }

    #[inline]
    fn position(&self, run: &RunSlots, word: u64, key: &[u8]) -> Option<usize> {
        let after = self.starts[run.from..run.to].partition_point(|&start| start <= word);
        let at = run.from + after.checked_sub(1)?;
        if self.starts[at] == word || self.ends[at] == word {
            return self.position_by_key(run, key);
        }
        (word < self.ends[at]).then_some(at)
    }

    /// As `position`, where words can't tell.
    #[cold]
    fn position_by_key(&self, run: &RunSlots, key: &[u8]) -> Option<usize> {
        let slots = &self.slots[run.from..run.to];
        let after = slots.partition_point(|slot| slot.live.smallest[..] <= *key);
        let at = after.checked_sub(1)?;
        (!slots[at].live.ends_by(key)).then_some(run.from + at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::level::Run;
    use super::super::table::TableMeta;
    use super::*;
    use crate::sstable::Properties;

    /// Runs of tables whose bounds are these keys, two by two.
    fn levels(runs: &[Vec<Vec<u8>>], ends_exclusive: bool) -> Vec<Level> {
        let table = |pair: &[Vec<u8>]| {
            let properties = Properties {
                smallest: pair[0].clone().into(),
                largest: pair[1].clone().into(),
                largest_exclusive: ends_exclusive && pair[0] < pair[1],
                ..Properties::default()
            };
            Arc::new(LiveTable::unopened(TableMeta::new(1, Arc::new(properties))))
        };
        let run = |(id, keys): (usize, &Vec<Vec<u8>>)| {
            let mut keys = keys.clone();
            keys.sort();
            keys.dedup();
            let tables: Vec<_> = keys.chunks_exact(2).map(table).collect();
            Level { runs: vec![Run { id: id as u64, tables: tables.into() }] }
        };
        runs.iter().enumerate().map(run).collect()
    }

    fn keys(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        let bytes = prop::collection::vec(prop::sample::select(vec![0u8, 1, 0xff]), length);
        (prop::sample::select(vec![&b""[..], b"abcdefg", b"abcdefgh", b"abcdefghi"]), bytes)
            .prop_map(|(prefix, bytes)| [prefix, &bytes].concat())
    }

    proptest! {
        #[test]
        fn it_names_the_tables_that_the_runs_name(
            runs in prop::collection::vec(prop::collection::vec(keys(0..4), 2..9), 1..5),
            probes in prop::collection::vec(keys(0..5), 30),
            common in prop::sample::select(vec![&b""[..], b"k", b"a long common prefix of all"]),
            ends_exclusive in any::<bool>(),
        ) {
            let within = |key: &Vec<u8>| [common, key].concat();
            let runs: Vec<Vec<_>> = runs.iter().map(|run| run.iter().map(within).collect()).collect();
            let levels = levels(&runs, ends_exclusive);
            let directory = Directory::new(&levels);
            prop_assert_eq!(directory.runs().len(), levels.len());
            for probe in probes.iter().cloned().chain(probes.iter().map(within)).chain(runs.concat()) {
                let found = directory.find::<RUNS_AHEAD>(directory.runs(), &probe, key::hash(&probe));
                for (at, level) in levels.iter().enumerate() {
                    prop_assert_eq!(directory.runs()[at].level, at);
                    let expected = level.runs[0].find(&probe);
                    let same = match (expected, found[at]) {
                        (Some(table), Some(slot)) => Arc::ptr_eq(table, &slot.live),
                        (expected, found) => expected.is_none() && found.is_none(),
                    };
                    prop_assert!(same, "{:?} in {:?}", probe, level);
                }
            }
        }
    }

    #[test]
    fn of_nothing_there_is_nothing() {
        let directory = Directory::new(&[Level::default()]);
        assert!(directory.runs().is_empty());
        assert!(directory.find::<RUNS_AHEAD>(&[], b"k", 1).iter().all(Option::is_none));
    }
}
