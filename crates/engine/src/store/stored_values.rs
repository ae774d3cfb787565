//! The values of some segments that a table may point at: what a collection has to look at.
//!
//! They are found in one of two places:
//!
//! - in the segments' own records, of which most are of dead values;
//! - in the tables that point into the segments, most of whose entries may point elsewhere.
//!
//! Where there is less to look at is where they are looked for. A store that is overwritten over and over
//! has many records for each entry, a large one of which a little was deleted many entries for each record.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::state::{ReadState, SegmentEntry};
use crate::error::{Error, Result};
use crate::head::{BodyRef, ValuePointer};
use crate::iter::InternalIterator;
use crate::journal::record::RECORD_HEADER_BYTES;
use crate::journal::{Segment, SegmentReader, Step};
use crate::key::{SEQNO_MAX, SeqNo, ValueKind};
use crate::version::LiveTable;

/// A record, whose key and liveness are looked at, takes as long as this many entries of a table that are
/// passed: 0.7 us, where an entry takes 30 to 40 ns. Half of that is left for tables that lie on the disk.
const ENTRIES_PER_RECORD: u64 = 10;

/// Values are not looked for in tables that point at more than so many: they are held in memory then, with
/// their keys.
const GATHERED_MAX: u64 = 1 << 20;

/// A value of a segment.
pub(super) struct StoredValue<'a> {
    pub(super) segment: &'a Arc<Segment>,
    /// Where it stands in that segment.
    pub(super) pointer: ValuePointer,
    /// The key that it was written under, and by which write.
    pub(super) key: &'a [u8],
    pub(super) seqno: SeqNo,
}

/// Where values are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// Where there is less to look at.
    LessIs,
    /// In the tables: a damaged record, of dead values maybe, keeps the segment's others from being found.
    Tables,
}

/// Why not every value could be told of.
#[derive(Debug)]
pub(super) struct Failed {
    /// What went wrong.
    pub(super) error: Error,
    /// The segments whose live values are not all known, or can't all be read. None where records were looked
    /// at: the tables may tell, and what could not be read may be dead.
    pub(super) concerns: Vec<u64>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed { error, concerns: Vec::new() }
    }
}

/// Looks where there is less to look at, and in the tables too if what was met may be a damaged record of dead values.
pub(super) fn in_either<T>(mut look: impl FnMut(Where) -> Result<T, Failed>) -> Result<T, Failed> {
    match look(Where::LessIs) {
        Err(failed) if failed.error.is_damage() && failed.concerns.is_empty() => {
            look(Where::Tables)
        }
        looked => looked,
    }
}

/// Tells of every value in the segments `picked` that a table may point at, segment by segment from the
/// front to the end. `Busy` once `cancel` is set. Requires: they are closed segments of the state.
pub(super) fn each(
    state: &ReadState,
    picked: &[u64],
    place: Where,
    cancel: &AtomicBool,
    tell: &mut dyn FnMut(&StoredValue<'_>) -> Result<()>,
) -> Result<(), Failed> {
    let names = names(state, picked);
    if place == Where::Tables || is_less_in_tables(state, picked, &names) {
        return each_of_tables(state, &names, cancel, tell);
    }
    for &number in picked {
        each_of_records(segment(state, number), cancel, tell)?;
    }
    Ok(())
}

fn segment(state: &ReadState, number: u64) -> &Arc<Segment> {
    match state.segments.by_number.get(&number) {
        Some(SegmentEntry::Direct(segment)) => segment,
        _ => unreachable!("a kept segment is open"),
    }
}

fn check(cancel: &AtomicBool) -> Result<()> {
    if cancel.load(Ordering::Relaxed) { Err(Error::Busy) } else { Ok(()) }
}

/// The numbers by which tables name the segments: their own, and of those that they answer for.
fn names(state: &ReadState, picked: &[u64]) -> BTreeSet<u64> {
    let segments = &state.version.segments;
    let named = segments.all_named().map(|(number, _)| number);
    named.filter(|&number| picked.contains(&segments.answering(number))).collect()
}

/// Whether the tables that point into the segments are quicker to look through than the segments.
fn is_less_in_tables(state: &ReadState, picked: &[u64], names: &BTreeSet<u64>) -> bool {
    let segments = &state.version.segments;
    let (mut live, mut live_bytes, mut bytes) = (0u64, 0u64, 0u64);
    for &number in picked {
        let referenced = segments.live(number);
        live = live.saturating_add(referenced.count);
        live_bytes = live_bytes.saturating_add(referenced.bytes);
        bytes = bytes.saturating_add(segment(state, number).end());
    }
    // What is pointed at is about as long as what is not.
    let value_bytes = live_bytes.checked_div(live).unwrap_or(0);
    let records = bytes / value_bytes.saturating_add(RECORD_HEADER_BYTES);
    let entries = pointing_into(state, names).map(|table| table.properties.entries);
    let entries = entries.fold(0, u64::saturating_add);
    live <= GATHERED_MAX && entries <= records.saturating_mul(ENTRIES_PER_RECORD)
}

/// The tables that point into segments of these names.
fn pointing_into<'a>(
    state: &'a ReadState,
    names: &'a BTreeSet<u64>,
) -> impl Iterator<Item = &'a Arc<LiveTable>> {
    state.version.tables().map(|(_, table)| table).filter(|table| {
        table.properties.segment_refs.iter().any(|named| names.contains(&named.segment))
    })
}

fn each_of_records(
    segment: &Arc<Segment>,
    cancel: &AtomicBool,
    tell: &mut dyn FnMut(&StoredValue<'_>) -> Result<()>,
) -> Result<()> {
    let mut reader = SegmentReader::new(segment, 0)?;
    reader.skip_values();
    loop {
        check(cancel)?;
        let record = match reader.step()? {
            Step::Record(record) => record,
            Step::End => return Ok(()),
            Step::Bad(what) => {
                return Err(Error::corruption(segment.path(), reader.offset(), what));
            }
        };
        let written = (record.header.first_seqno..).zip(&record.entries);
        for (seqno, written) in written.filter(|(_, one)| one.kind == ValueKind::PutRef) {
            let pointer = ValuePointer {
                segment: segment.number(),
                offset: record.value_offset(written),
                length: written.value_bytes,
                checksum: written.checksum,
            };
            tell(&StoredValue { segment, pointer, key: &record.meta[written.key.clone()], seqno })?;
        }
    }
}

/// A value that a table points at, until it is its turn.
struct Gathered {
    /// Where it stands.
    pointer: ValuePointer,
    /// Where its key is among all.
    key: Range<usize>,
    seqno: SeqNo,
}

fn each_of_tables(
    state: &ReadState,
    names: &BTreeSet<u64>,
    cancel: &AtomicBool,
    tell: &mut dyn FnMut(&StoredValue<'_>) -> Result<()>,
) -> Result<(), Failed> {
    let (mut gathered, mut keys) = (Vec::new(), Vec::new());
    for table in pointing_into(state, names) {
        let done = gather(table, state, names, cancel, &mut gathered, &mut keys);
        done.map_err(|error| Failed { error, concerns: pointed_at(table, state, names) })?;
    }
    gathered.sort_unstable_by_key(|value| (value.pointer.segment, value.pointer.offset));
    for Gathered { pointer, key, seqno } in gathered {
        check(cancel)?;
        let segment = segment(state, pointer.segment);
        let told = tell(&StoredValue { segment, pointer, key: &keys[key], seqno });
        told.map_err(|error| Failed { error, concerns: vec![pointer.segment] })?;
    }
    Ok(())
}

/// The segments that answer for what a table points at by these names.
fn pointed_at(table: &LiveTable, state: &ReadState, names: &BTreeSet<u64>) -> Vec<u64> {
    let named = table.properties.segment_refs.iter().map(|named| named.segment);
    let named = named.filter(|named| names.contains(named));
    named.map(|named| state.version.segments.answering(named)).collect()
}

/// Gathers what the visible entries of a table point at in the segments.
fn gather(
    table: &LiveTable,
    state: &ReadState,
    names: &BTreeSet<u64>,
    cancel: &AtomicBool,
    gathered: &mut Vec<Gathered>,
    keys: &mut Vec<u8>,
) -> Result<()> {
    let mut iter = table.table().iter(false);
    iter.seek(&table.smallest, SEQNO_MAX)?;
    while iter.valid() {
        check(cancel)?;
        let entry = iter.entry()?;
        if let BodyRef::Ref(pointer) = entry.body
            && names.contains(&pointer.segment)
            && let Some((segment, offset)) = state.segments.locate(&pointer)
        {
            let start = keys.len();
            keys.extend_from_slice(iter.user_key());
            let pointer = ValuePointer { segment: segment.number(), offset, ..pointer };
            gathered.push(Gathered { pointer, key: start..keys.len(), seqno: entry.seqno });
        }
        iter.next()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Body;
    use crate::key;
    use crate::resources::{Participant, ResourceOptions, Resources};
    use crate::store::inner::Inner;
    use crate::store::table_search::find_in_tables;
    use crate::vfs::{ManualClock, MemoryFileSystem};
    use crate::{Options, Store};

    /// Segment, offset, length, checksum, key and SeqNo of a value.
    type Told = (u64, u64, u32, u32, Vec<u8>, SeqNo);

    fn told(value: &StoredValue<'_>) -> Told {
        let &StoredValue { segment, pointer, key, seqno } = value;
        assert_eq!(pointer.segment, segment.number());
        let ValuePointer { offset, length, checksum, .. } = pointer;
        (segment.number(), offset, length, checksum, key.to_vec(), seqno)
    }

    fn of_tables(state: &ReadState, picked: &[u64]) -> Vec<Told> {
        let mut all = Vec::new();
        let mut tell = |value: &StoredValue<'_>| {
            all.push(told(value));
            Ok(())
        };
        let names = names(state, picked);
        each_of_tables(state, &names, &AtomicBool::new(false), &mut tell).unwrap();
        all
    }

    fn of_records(state: &ReadState, picked: &[u64]) -> Vec<Told> {
        let mut all = Vec::new();
        for &number in picked {
            let mut tell = |value: &StoredValue<'_>| {
                all.push(told(value));
                Ok(())
            };
            each_of_records(segment(state, number), &AtomicBool::new(false), &mut tell).unwrap();
        }
        all
    }

    fn picked(state: &ReadState) -> Vec<u64> {
        state.version.segments.kept().map(|kept| kept.number).collect()
    }

    fn store() -> Store {
        let options = Options {
            memtable_journal_bytes: 128 << 10,
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 64 << 10,
            ..Options::default()
        };
        let fs = Arc::new(MemoryFileSystem::new());
        let clock = Arc::new(ManualClock::at_ms(1));
        let resources = Resources::inline(ResourceOptions::default(), fs, clock);
        Store::open_with("/s", options, resources).unwrap()
    }

    fn put(store: &Store, round: u32, keys: impl Iterator<Item = u32>) {
        for at in keys {
            store.put(&at.to_be_bytes(), &[(round + at) as u8; 1500]).unwrap();
        }
    }

    fn settle(inner: &Inner) {
        inner.flush_all().unwrap();
        while inner.compaction_step() {}
    }

    #[test]
    fn tables_and_records_tell_of_the_same_values() {
        let store = store();
        let inner = &*store.inner;
        put(&store, 0, 0..300);
        settle(inner);
        let _snapshot = store.snapshot();
        let mut dead = 0;
        for round in 1..12 {
            // Some keys stay for long, so that their values are collected more than once.
            put(&store, round, (0..300).filter(|at| at % 7 > round % 5));
            store.delete(&(round * 20).to_be_bytes()).unwrap();
            let (start, end) = ((round * 10).to_be_bytes(), (round * 10 + 4).to_be_bytes());
            store.delete_range(&start, &end).unwrap();
            settle(inner);
            let state = inner.state.load_full();
            for entry in state.segments.by_number.values() {
                let SegmentEntry::Forwarded { to, .. } = entry else { continue };
                assert!(state.version.segments.get(to.number()).is_some(), "round {round}: gone");
            }
            let picked = picked(&state);
            let (tables, records) = (of_tables(&state, &picked), of_records(&state, &picked));
            assert!(tables.is_sorted(), "segment by segment, from the front to the end");
            assert!(tables.iter().all(|value| records.contains(value)), "round {round}");
            dead += records.len() - tables.len();
            let mut seen = 0;
            for at in 0..300u32 {
                for reader in inner.snapshots.list().into_iter().chain([SEQNO_MAX]) {
                    let (key, mut trace) = (at.to_be_bytes(), inner.recorder.begin_unrecorded());
                    let hash = key::hash(&key);
                    let found =
                        find_in_tables(&state.version, &key, hash, reader, true, &mut trace);
                    let Some(entry) = found.unwrap().entry else { continue };
                    let Body::Ref(pointer) = entry.body else { continue };
                    let (segment, offset) = state.segments.locate(&pointer).unwrap();
                    if !picked.contains(&segment.number()) {
                        continue;
                    }
                    seen += 1;
                    let place = (segment.number(), offset);
                    assert!(
                        tables.iter().any(|value| (value.0, value.1) == place
                            && value.4 == key
                            && value.5 == entry.seqno),
                        "round {round}, key {at}"
                    );
                }
            }
            assert!(seen > 300, "{seen}");
        }
        assert!(dead > 100, "{dead} records of dead values are in no table");
        assert!(inner.stats().collections > 0);
    }

    #[test]
    fn many_entries_of_a_store_are_not_looked_through_for_a_few_records() {
        let store = store();
        let inner = &*store.inner;
        put(&store, 0, (0..4000).map(|at| at * 1237 % 4000));
        store.compact(None, None, &mut |_, _| {}).unwrap();
        let state = inner.state.load_full();
        let all = picked(&state);
        assert!(all.len() > 50, "{all:?}");
        let is_less = |picked: &[u64]| is_less_in_tables(&state, picked, &names(&state, picked));
        assert!(is_less(&all), "as many entries as records");
        assert!(!is_less(&all[..1]), "4,000 entries, 40 records");
    }

    #[test]
    fn a_store_that_closes_is_not_waited_for() {
        let store = store();
        put(&store, 0, 0..300);
        settle(&store.inner);
        let state = store.inner.state.load_full();
        let cancel = AtomicBool::new(true);
        for number in picked(&state) {
            let ended = each(&state, &[number], Where::LessIs, &cancel, &mut |_| Ok(()));
            assert!(matches!(ended, Err(Failed { error: Error::Busy, .. })));
        }
    }
}
