//! Collection: freeing mostly dead journal segments without touching the tree.
//!
//! 1. Pick the deadest closed segments.
//! 2. Copy the values that are still seen, by the tables as they stand or by a pinned snapshot, to a
//!    collected segment with an index from where they stood.
//! 3. Install: the new segment is kept, the old ones are dropped and answered by it.
//!
//! A segment in which a live value can't be read stays as it is, and its neighbours go without it: to copy a
//! damaged value would make what may be a passing fault a lasting one. It is tried again by collecting it, or where
//! that isn't worth it by reading what is live.
//!
//! Memtables have no say in what is seen: a newer version that a power loss may still take back must
//! not cost the older one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::inner::Inner;
use super::state::{ReadState, SegmentEntry, Segments};
use super::stats::add;
use super::stored_values::{self, Failed, StoredValue, Where};
use super::table_search::find_in_tables;
use crate::collection::{self, SegmentShare};
use crate::error::{Error, Result};
use crate::fault_points::{self, Bug};
use crate::file_name;
use crate::head::{Body, Entry, ValuePointer};
use crate::journal::{Collected, CollectedIndex, CollectedWriter, ValuePlace};
use crate::key::{self, SEQNO_MAX, SeqNo};
use crate::stages::{Stage, Trace};
use crate::version::{SegmentKind, SegmentMeta, VersionEdit};

impl Inner {
    /// Collects the segments that are worth it, if any, or finds out that some can't be; whether there were.
    /// Requires: the caller holds `compacting`.
    pub(super) fn collect_one(&self, idle: bool) -> Result<bool> {
        let state = self.state.load_full();
        self.segments_avoided.forget(|&number| state.version.segments.get(number).is_none());
        let shares = self.collectable(&state);
        // A copy takes room before it gives any: on a disk that is nearly full, a little at a time.
        let available = self.resources.fs.available_bytes(&self.dir).unwrap_or(u64::MAX);
        let (ratio, bytes_max) =
            (self.options.collection_live_ratio, self.options.segment_bytes_max);
        let picked = collection::pick(&shares, ratio, bytes_max, available / 2, idle);
        if picked.is_empty() {
            return Ok(false);
        }
        let mut trace = self.recorder.begin_rare();
        // Listed after the tables were looked at: a snapshot that is pinned later sees nothing older
        // than what the tables show.
        let snapshots = self.snapshots.list();
        let copied = stored_values::in_either(|place| {
            self.copy_live(&state, &picked, &snapshots, place, &mut trace)
        });
        let collected = match copied {
            Err(failed) if failed.error.is_damage() && !failed.concerns.is_empty() => {
                self.leave_out(&failed.concerns, &failed.error);
                return Ok(true);
            }
            copied => copied.map_err(|failed| failed.error)?,
        };
        let installed = self.install_collected(&state, &picked, &collected);
        // After a failed sync of the manifest, it may name the new segment.
        if installed.is_err() && self.poison.get().is_none() {
            self.resources.file_cache.forget(collected.segment.path());
            let _ = self.resources.fs.remove(collected.segment.path());
        }
        installed?;
        trace.lap(Stage::CollectInstall);
        trace.total(Stage::CollectTotal);
        let number = collected.segment.number();
        let version = self.state.load().version.clone();
        let mut collected_values = self.collected_values.lock();
        collected_values.insert(number, version.segments.live(number).count);
        // Others may have died by themselves.
        collected_values.retain(|&number, _| version.segments.get(number).is_some());
        drop(collected_values);
        self.segments_avoided.forget(|number| picked.contains(number));
        add(&self.counters.collections, picked.len() as u64);
        add(&self.counters.collection_bytes_written, collected.segment.end());
        Ok(true)
    }

    /// Copies what is live in the segments into another, and syncs it.
    fn copy_live(
        &self,
        state: &ReadState,
        picked: &[u64],
        snapshots: &[SeqNo],
        place: Where,
        trace: &mut Trace<'_>,
    ) -> Result<Collected, Failed> {
        let number = self.next_file_number.fetch_add(1, Ordering::Relaxed);
        let writer = CollectedWriter::new(self.pool.files().clone(), number, self.salts.next())?;
        let live = Live { inner: self, state, snapshots };
        let mut collector = Collector { live, writer, origins: (0, Origins::new()) };
        stored_values::each(state, picked, place, &self.cancel, &mut |value| {
            collector.copy_if_live(value)
        })?;
        trace.lap(Stage::CollectCopy);
        let collected = collector.writer.finish()?;
        trace.lap(Stage::CollectSync);
        Ok(collected)
    }

    /// Reads what is live in a segment that is tried again, but was not worth collecting: it is well, or left out for
    /// longer, for what it met. Requires: the caller holds `compacting`.
    pub(super) fn read_left_out(&self, number: u64) -> Result<Option<Error>> {
        let state = self.state.load_full();
        let live = Live { inner: self, state: &state, snapshots: &self.snapshots.list() };
        // None once a flush has let it go.
        let picked = state.version.segments.get(number).map(|kept| kept.number);
        let mut read = |stored: &StoredValue<'_>| live.read(stored).map(drop);
        let read = stored_values::in_either(|place| {
            stored_values::each(&state, picked.as_slice(), place, &self.cancel, &mut read)
        });
        match read {
            Ok(()) => {
                self.segments_avoided.forget(|&other| other == number);
                Ok(None)
            }
            Err(failed) if failed.error.is_damage() => {
                self.leave_out(&[number], &failed.error);
                Ok(Some(failed.error))
            }
            Err(failed) => Err(failed.error),
        }
    }

    /// Leaves segments as they are, for a while, in which a live value can't be read.
    fn leave_out(&self, numbers: &[u64], error: &Error) {
        let now_ns = self.resources.clock.steady_ns();
        for &number in numbers {
            self.segments_avoided.note(number, error, now_ns);
        }
        self.refresh_pressure();
    }

    /// The closed segments, but for those that were collected and have lost no value since, and those in
    /// which a live value can't be read.
    pub(super) fn collectable(&self, state: &ReadState) -> Vec<SegmentShare> {
        let mut shares = segment_shares(state);
        let avoided = self.segments_avoided.list();
        shares.retain(|share| !avoided.contains(&share.number));
        let collected_values = self.collected_values.lock();
        let referred = |number| state.version.segments.live(number).count;
        shares.retain(|share| collected_values.get(&share.number) != Some(&referred(share.number)));
        shares
    }

    fn install_collected(
        &self,
        state: &ReadState,
        picked: &[u64],
        collected: &Collected,
    ) -> Result<()> {
        let segment = &collected.segment;
        let number = segment.number();
        let mut edit = VersionEdit { segments_dropped: picked.to_vec(), ..VersionEdit::default() };
        if collected.values > 0 {
            edit.segments_kept.push(SegmentMeta {
                number,
                end_offset: segment.end(),
                base_lsn: 0,
                kind: SegmentKind::Collected,
                capacity: segment.end(),
            });
            // Whatever one of the picked answered for, the new one answers for now.
            let forwards = state.version.segments.forwards().map(|(old, _)| old);
            let answered =
                forwards.filter(|&old| picked.contains(&state.version.segments.answering(old)));
            edit.forwards =
                answered.chain(picked.iter().copied()).map(|old| (old, number)).collect();
        } else {
            let forwards = state.version.segments.forwards().map(|(old, _)| old);
            edit.forwards_dropped = forwards
                .filter(|&old| picked.contains(&state.version.segments.answering(old)))
                .collect();
        }
        let index = CollectedIndex::read(segment)?;
        let forwarded: Vec<u64> = edit.forwards.iter().map(|&(old, _)| old).collect();
        let mut tree = self.tree.lock();
        self.install(&mut tree, edit, |state| {
            let segments = Arc::make_mut(&mut state.segments);
            if collected.values == 0 {
                return;
            }
            segments.insert(segment.clone());
            let named = &state.version.segments;
            for old in forwarded {
                if named.named(old).count > 0 {
                    segments.forward(old, &index, segment);
                }
            }
        })?;
        if collected.values == 0 {
            let path = file_name::segment(&self.dir, number);
            self.obsolete.push(path);
        }
        Ok(())
    }
}

/// The closed segments of a state and how much of each is live.
pub(super) fn segment_shares(state: &ReadState) -> Vec<SegmentShare> {
    let segments = &state.version.segments;
    segments
        .kept()
        .map(|kept| SegmentShare {
            number: kept.number,
            bytes: kept.end_offset,
            live_bytes: segments.live(kept.number).bytes,
        })
        .collect()
}

/// By offset in a collected segment: the older places that still lead there.
type Origins = HashMap<u64, Vec<ValuePlace>>;

/// Copies what is live in some segments.
struct Collector<'a> {
    live: Live<'a>,
    writer: CollectedWriter,
    /// Of the segment that the last value was in.
    origins: (u64, Origins),
}

impl Collector<'_> {
    fn copy_if_live(&mut self, stored: &StoredValue<'_>) -> Result<()> {
        let &StoredValue { pointer, key, seqno, .. } = stored;
        let ValuePointer { segment: number, offset, checksum, .. } = pointer;
        let Some((entry, value)) = self.live.read(stored)? else { return Ok(()) };
        if fault_points::is_planted(Bug::CollectionDropsLiveValue) && seqno % 2 == 0 {
            return Ok(());
        }
        if self.origins.0 != number {
            self.origins = (number, origins(&self.live.state.segments, number));
        }
        let mut places = vec![(number, offset)];
        places.extend(self.origins.1.get(&offset).into_iter().flatten());
        self.writer.copy(&places, key, &entry, &value, checksum)?;
        Ok(())
    }
}

/// What is live in some segments.
struct Live<'a> {
    inner: &'a Inner,
    state: &'a ReadState,
    snapshots: &'a [SeqNo],
}

impl Live<'_> {
    /// A value that is live, and its entry.
    fn read(&self, stored: &StoredValue<'_>) -> Result<Option<(Entry, Bytes)>> {
        let &StoredValue { segment, pointer, key, seqno } = stored;
        let ValuePointer { segment: number, offset, length, checksum } = pointer;
        let Some(entry) = self.entry(key, seqno, number, offset)? else { return Ok(None) };
        Ok(Some((entry, segment.read_value(offset, length, checksum, true)?)))
    }

    /// The entry of `seqno` if some reader of the tables sees it and its value is the one here.
    fn entry(&self, key: &[u8], seqno: SeqNo, segment: u64, offset: u64) -> Result<Option<Entry>> {
        let mut trace = self.inner.recorder.begin_unrecorded();
        let hash = key::hash(key);
        let after = self.snapshots.partition_point(|&snapshot| snapshot < seqno);
        let readers = self.snapshots[after..].iter().rev().copied();
        for reader in std::iter::once(SEQNO_MAX).chain(readers) {
            let found = find_in_tables(&self.state.version, key, hash, reader, true, &mut trace)?;
            let Some(entry) = found.entry.filter(|entry| entry.seqno == seqno) else { continue };
            if let Body::Ref(pointer) = &entry.body
                && let Some((to, at)) = self.state.segments.locate(pointer)
                && (to.number(), at) == (segment, offset)
            {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

fn origins(segments: &Segments, number: u64) -> Origins {
    let mut origins = Origins::new();
    for (&old, entry) in &segments.by_number {
        if let SegmentEntry::Forwarded { moved, to } = entry
            && to.number() == number
        {
            for (offset, new_offset) in moved.iter() {
                origins.entry(new_offset).or_default().push((old, offset));
            }
        }
    }
    origins
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::compaction::pick::Slice;
    use crate::options::Reading;
    use crate::resources::{Participant, ResourceOptions, Resources};
    use crate::store::compacting::Compacted;
    use crate::store::retries::Task;
    use crate::vfs::faulty::{Fault, FaultyFileSystem};
    use crate::vfs::{File, FileSystem, ManualClock, MemoryFileSystem};
    use crate::{Options, Store};

    type Before = Box<dyn FnMut(&str)>;

    thread_local! {
        /// Is called before each operation of this thread on a segment.
        static BEFORE: RefCell<Option<Before>> = const { RefCell::new(None) };
    }

    fn call_before(operation: &str, path: &Path) -> bool {
        if path.extension().is_some_and(|extension| extension == "journal") {
            BEFORE.with_borrow_mut(|before| before.iter_mut().for_each(|before| before(operation)));
        }
        false
    }

    fn open(fs: &MemoryFileSystem, clock: &Arc<ManualClock>) -> Store {
        let options = Options {
            reading: Reading::Pread,
            memtable_journal_bytes: 128 << 10,
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 64 << 10,
            ..Options::default()
        };
        let fs = FaultyFileSystem::new(Arc::new(fs.clone()));
        fs.fail_at(0, Fault::errno(5).only(call_before));
        let resources = Resources::inline(ResourceOptions::default(), Arc::new(fs), clock.clone());
        Store::open_with("/s", options, resources).unwrap()
    }

    #[test]
    fn nothing_is_remembered_of_collected_segments_that_died() {
        let store = open(&MemoryFileSystem::new(), &Arc::new(ManualClock::at_ms(1)));
        let inner = &*store.inner;
        for _ in 0..3 {
            // One in five stays, and is collected; then it dies too.
            for every in [1, 5] {
                for at in (0..300u32).filter(|at| every == 1 || at % every != 0) {
                    store.put(&at.to_be_bytes(), &[7; 1500]).unwrap();
                }
                store.compact(None, None, &mut |_, _| {}).unwrap();
            }
            let state = inner.state.load();
            let collected_values = inner.collected_values.lock();
            assert!(!collected_values.is_empty(), "nothing was collected");
            let mut numbers = collected_values.keys();
            assert!(numbers.all(|&number| state.version.segments.get(number).is_some()));
            drop((state, collected_values));
            store.delete_range(&[0], &[1]).unwrap();
            store.compact(None, None, &mut |_, _| {}).unwrap();
            while inner.compaction_step() {}
        }
    }

    /// The value of key 10, and of no other.
    const RARE: [u8; 1500] = [9; 1500];

    /// A store of 300 values in segments of 64 KiB, of which some are deleted and none is collected yet.
    fn store_of_300(
        fs: &MemoryFileSystem,
        clock: &Arc<ManualClock>,
        is_dead: fn(u32) -> bool,
    ) -> Store {
        let store = open(fs, clock);
        for at in 0..300u32 {
            store.put(&at.to_be_bytes(), if at == 10 { &RARE } else { &[7; 1500] }).unwrap();
        }
        store.flush().unwrap();
        for at in (0..300u32).filter(|&at| is_dead(at)) {
            store.delete(&at.to_be_bytes()).unwrap();
        }
        store.flush().unwrap();
        assert_eq!(store.stats().collections, 0);
        store
    }

    /// The file with the value of key 10, and where it is.
    fn rare_value(fs: &MemoryFileSystem, store: &Store) -> (Arc<dyn File>, u64) {
        let version = store.inner.state.load().version.clone();
        let found = version.segments.kept().find_map(|kept| {
            let file = fs.open(&file_name::segment(&store.inner.dir, kept.number)).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            let at = bytes.windows(RARE.len()).position(|bytes| bytes == RARE)?;
            Some((file, at as u64))
        });
        found.expect("the value is in a segment that is kept")
    }

    /// Has the disk have so much left.
    fn leave(fs: &MemoryFileSystem, bytes: u64) {
        const LARGE: u64 = 1 << 40;
        fs.set_capacity(Some(LARGE));
        let left = fs.available_bytes("/s".as_ref()).unwrap();
        fs.set_capacity(Some(LARGE - left + bytes));
    }

    fn check_collected(store: &Store) {
        let before = segment_shares(&store.inner.state.load()).len() as u64;
        store.compact(None, None, &mut |_, _| {}).unwrap();
        assert!(store.stats().collections >= before, "{:?} of {before}", store.stats());
        for at in 0..300u32 {
            let value = store.get(&at.to_be_bytes()).unwrap();
            assert_eq!(value.is_some(), at % 5 == 0, "{at}");
        }
    }

    /// It failed where what was kept ready for writers had the room that it lacked; background work gives that up.
    #[test]
    fn a_compaction_that_finds_no_room_gives_up_spare_segments() {
        let fs = MemoryFileSystem::new();
        let store = store_of_300(&fs, &Arc::new(ManualClock::at_ms(1)), |at| at % 5 != 0);
        while store.inner.prepare_step() {}
        assert!(store.stats().spare_segments > 0);
        leave(&fs, 8 << 10);
        check_collected(&store);
    }

    /// It went round for as long as what it had given up was made ready again meanwhile.
    #[test]
    fn what_a_compaction_gives_up_for_room_is_not_made_ready_again_before_it_is_tried_again() {
        let store =
            store_of_300(&MemoryFileSystem::new(), &Arc::new(ManualClock::at_ms(1)), |_| false);
        let inner = &*store.inner;
        while inner.prepare_step() {}
        let tries = Cell::new(Vec::new());
        let done: Result<()> = inner.making_room(|| {
            inner.prepare_step();
            let mut so_far = tries.take();
            so_far.push(inner.pool.spares().0 > 0);
            assert!(so_far.len() < 10, "it goes on and on");
            tries.set(so_far);
            Err(Error::NoSpace { path: "/s".into() })
        });
        assert!(matches!(done, Err(Error::NoSpace { .. })));
        assert_eq!(tries.take(), [true, false]);
    }

    /// It failed before anything was collected: a merge held up what would have made the room for it.
    #[test]
    fn a_merge_without_room_is_tried_again_once_collections_have_made_some() {
        let all_live: fn(u32) -> bool = |_| false;
        for (is_dead, makes_room) in
            [((|at| at % 20 != 0) as fn(u32) -> bool, true), (all_live, false)]
        {
            let fs = MemoryFileSystem::new();
            let store = store_of_300(&fs, &Arc::new(ManualClock::at_ms(1)), is_dead);
            let inner = &*store.inner;
            let merge_one = || inner.compact_one(true, Some(Slice::default())).unwrap();
            while merge_one() != Compacted::Nothing {}
            // No collection until the clock goes on.
            inner.retries.note_failure(Task::Collect, &Error::Busy, 0);
            for at in (0..3000u32).map(|at| at * 1237 % 3000) {
                store.put(&[&at.to_be_bytes()[..], b"s"].concat(), &[7; 100]).unwrap();
            }
            store.flush().unwrap();
            while inner.pool.release_spare() {}
            leave(&fs, 32 << 10);
            let runs = || inner.state.load().version.runs().count();
            assert!(store.stats().collections == 0 && runs() > 1);
            let compacted = store.compact(None, None, &mut |_, _| {});
            assert_eq!(compacted.is_ok(), makes_room, "{compacted:?}");
            assert!(makes_room || matches!(compacted, Err(Error::NoSpace { .. })));
            assert_eq!(runs() == 1, makes_room);
        }
    }

    /// It was to copy as much as a segment holds before anything was given back: where that found no room, nothing was.
    #[test]
    fn a_disk_that_is_nearly_full_is_collected_a_little_at_a_time() {
        let fs = MemoryFileSystem::new();
        let store = store_of_300(&fs, &Arc::new(ManualClock::at_ms(1)), |at| at % 5 != 0);
        while store.inner.pool.release_spare() {}
        leave(&fs, 16 << 10);
        check_collected(&store);
    }

    /// It is tried again minutes later, and was forgotten by a compaction that took as long.
    #[test]
    fn a_long_compaction_tells_of_a_segment_that_could_not_be_collected() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = store_of_300(&fs, &clock, |at| at % 5 != 0);
        let (file, at) = rare_value(&fs, &store);
        file.write_all_at(&[8], at).unwrap();
        let mut is_met = false;
        let compacted = store.compact(None, None, &mut |_, _| {
            let avoided = &store.inner.segments_avoided;
            if !avoided.list().is_empty() {
                is_met = true;
                for _ in 0..2 {
                    clock.advance(Duration::from_secs(601));
                    store.inner.tick();
                }
                assert!(avoided.list().is_empty());
            }
        });
        assert!(is_met && compacted.unwrap_err().is_damage());
    }

    /// It was picked while the store was idle, and alone is not dead enough for one that is written. Nobody tried it
    /// again, and that it is not collected was told for as long as the store was open.
    #[test]
    fn a_segment_that_can_be_read_again_is_found_out_though_it_is_not_worth_collecting() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = store_of_300(&fs, &clock, |at| at % 5 > 2);
        let (file, at) = rare_value(&fs, &store);
        let run = |looks: usize, is_written: bool| {
            for _ in 0..looks {
                if is_written {
                    store.put(b"key", b"value").unwrap();
                }
                clock.advance(Duration::from_millis(500));
                store.inner.tick();
                while store.inner.compaction_step() {}
            }
        };
        file.write_all_at(&[8], at).unwrap();
        run(6, false);
        assert!(store.stats().background_error.is_some());
        run(600, true);
        let collections = store.stats().collections;
        assert!(collections > 0 && store.stats().background_error.is_some());
        file.write_all_at(&[9], at).unwrap();
        run(1200, true);
        let stats = store.stats();
        assert_eq!((stats.background_error, stats.collections), (None, collections));
    }

    #[test]
    fn a_compaction_tries_segments_again_that_are_not_worth_collecting() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = store_of_300(&fs, &clock, |_| false);
        let (file, at) = rare_value(&fs, &store);
        let avoided = &store.inner.segments_avoided;
        for is_damaged in [false, true] {
            if is_damaged {
                file.write_all_at(&[8], at).unwrap();
            }
            let error = Error::corruption(Path::new("segment"), 0, "it could not be read");
            let version = store.inner.state.load().version.clone();
            version.segments.kept().for_each(|kept| avoided.note(kept.number, &error, 0));
            assert!(avoided.list().len() > 3);
            let compacted = store.compact(None, None, &mut |_, _| {});
            assert_eq!(compacted.is_err_and(|error| error.is_damage()), is_damaged);
            assert_eq!(avoided.list().len(), usize::from(is_damaged));
            assert_eq!(store.stats().background_error.is_some(), is_damaged);
        }
    }

    /// Has time go by before such operations of this thread on segments, as a busy thread sees it.
    fn pass_time(store: &Store, clock: &Arc<ManualClock>, before: fn(&Inner, &str) -> bool) {
        let (inner, clock) = (store.inner.clone(), clock.clone());
        BEFORE.set(Some(Box::new(move |operation| {
            if before(&inner, operation) {
                clock.advance(Duration::from_millis(300));
                inner.segments_avoided.end_due(inner.resources.clock.steady_ns());
            }
        })));
    }

    /// The first was damaged, and to be tried again by the time that the others were read: its damage was told by
    /// nobody.
    #[test]
    fn a_compaction_tells_of_a_segment_that_it_tried_again_however_long_the_others_take() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = store_of_300(&fs, &clock, |_| false);
        let (file, at) = rare_value(&fs, &store);
        file.write_all_at(&[8], at).unwrap();
        let error = Error::corruption(Path::new("segment"), 0, "it could not be read");
        let version = store.inner.state.load().version.clone();
        let avoided = &store.inner.segments_avoided;
        version.segments.kept().for_each(|kept| avoided.note(kept.number, &error, 0));
        pass_time(&store, &clock, |_, operation| operation.starts_with("read"));
        let compacted = store.compact(None, None, &mut |_, _| {});
        BEFORE.take();
        assert!(avoided.list().is_empty() && avoided.due().len() == 1);
        assert!(compacted.unwrap_err().is_damage());
    }

    /// It was left alone, and well when it was read again, and still told as what could not be collected.
    #[test]
    fn a_compaction_does_not_tell_of_what_it_has_read_after_all() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        // The first is hardly worth it, the others are collected in two turns.
        let store =
            store_of_300(&fs, &clock, |at| if at < 50 { at % 10 == 9 } else { at % 4 != 0 });
        let avoided = &store.inner.segments_avoided;
        let first = store.inner.state.load().version.segments.kept().next().unwrap().number;
        let error = Error::corruption(Path::new("segment"), 0, "it could not be read");
        pass_time(&store, &clock, |inner, operation| {
            operation == "rename" && inner.counters.collections.load(Ordering::Relaxed) > 0
        });
        let mut is_noted = false;
        let compacted = store.compact(None, None, &mut |_, _| {
            if !std::mem::replace(&mut is_noted, true) {
                avoided.note(first, &error, store.inner.resources.clock.steady_ns());
            }
        });
        BEFORE.take();
        compacted.unwrap();
        assert!(store.inner.state.load().version.segments.get(first).is_some());
        assert!(store.stats().collections > 3 && avoided.due().is_empty());
    }

    /// All tables that point at it were read from end to end, minutes of reading for one segment, and what one of
    /// them met elsewhere was held against it.
    #[test]
    fn a_segment_that_is_tried_again_is_read_by_its_records_where_that_is_less() {
        let (fs, clock) = (MemoryFileSystem::new(), Arc::new(ManualClock::at_ms(1)));
        let store = open(&fs, &clock);
        for at in 0..4000u32 {
            store.put(&at.to_be_bytes(), &[7; 1500]).unwrap();
            // Each run reaches over all keys, so that they are merged.
            store.put(&[0], b"first").unwrap();
            store.put(&[255], b"last").unwrap();
        }
        store.compact(None, None, &mut |_, _| {}).unwrap();
        let inner = &*store.inner;
        let version = inner.state.load().version.clone();
        let mut tables = version.tables();
        let path = tables.next().unwrap().1.table().path().to_owned();
        assert!(tables.next().is_none());
        let file = fs.open(&path).unwrap();
        let (mut byte, middle) = ([0], file.len().unwrap() / 2);
        file.read_exact_at(&mut byte, middle).unwrap();
        file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
        assert!(!store.verify(&mut |_, _| {}).unwrap().damage.is_empty());
        let first = version.segments.kept().next().unwrap().number;
        let error = Error::corruption(Path::new("segment"), 0, "it could not be read");
        inner.segments_avoided.note(first, &error, 0);
        assert!(inner.read_left_out(first).unwrap().is_none());
        assert!(inner.segments_avoided.list().is_empty());
        // One that is gone by then is well.
        assert!(inner.read_left_out(u64::MAX).unwrap().is_none());
    }
}
