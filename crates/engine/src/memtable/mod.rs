//! The write buffer: what was written and not yet flushed.
//!
//! 1. A write copies its entry into the arena and puts it first under its key in the index: a few
//!    cache lines, whatever the memtable's size.
//! 2. A look-up goes from the index along the versions of the key, newest first, and takes no lock.
//! 3. Order is made when somebody asks for it: a flush once, a scan for what is new since the last.
//!
//! Invariant: what was written never changes; readers ignore entries newer than the SeqNo they read at.
//! A memtable has one [`MemtableWriter`], and so takes no lock to be written either.

mod chunk;
mod arena;
mod index;
mod order;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arena::Arena;
pub use chunk::SpareChunks;
use index::Index;
use order::Order;
pub use order::RunCursor;

use crate::head::EntryRef;
use crate::key::SeqNo;
use crate::lock::Mutex;
use crate::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::stages::{Recorder, Stage};

/// About what an entry takes beside its key and an inline value: its header, perhaps a pointer, and two to
/// four slots of the index.
pub const ENTRY_BYTES: u64 = 80;

/// The write buffer, as it is read.
#[derive(Debug)]
pub struct Memtable {
    arena: Arena,
    index: Index,
    order: Mutex<Order>,
    /// Deleted ranges, in sets as large as the powers of two in their number, largest first: a new one
    /// takes the smaller ones in, so that a set is made anew `log n` times for each range.
    range_tombstones: parking_lot::RwLock<Vec<Arc<RangeTombstones>>>,
    has_range_tombstones: AtomicBool,
    range_tombstone_bytes: AtomicUsize,
    keys: AtomicUsize,
    entries: AtomicU64,
    seqno_max: AtomicU64,
}

/// What writes a memtable; there is one of each.
#[derive(Debug)]
pub struct MemtableWriter {
    memtable: Arc<Memtable>,
}

impl MemtableWriter {
    /// That of an empty memtable, whose waits go to `recorder` and whose memory comes from `spares`, with
    /// room for so many keys before its index grows.
    pub fn new(recorder: &Arc<Recorder>, spares: &Arc<SpareChunks>, keys: usize) -> MemtableWriter {
        let memtable = Arc::new(Memtable {
            arena: Arena::new(spares.clone()),
            index: Index::with_room_for(keys),
            order: Mutex::new(Stage::LockMemtable, recorder, Order::default()),
            range_tombstones: parking_lot::RwLock::default(),
            has_range_tombstones: AtomicBool::new(false),
            range_tombstone_bytes: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            entries: AtomicU64::new(0),
            seqno_max: AtomicU64::new(0),
        });
        MemtableWriter { memtable }
    }

    /// What it writes.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }

    /// Goes on in a new memtable, with room for so many keys before its index grows; the one it leaves.
    pub fn change(&mut self, recorder: &Arc<Recorder>, keys: usize) -> Arc<Memtable> {
        let next = MemtableWriter::new(recorder, self.memtable.arena.spares(), keys);
        std::mem::replace(self, next).memtable
    }

    /// Asks the processor for where an `insert` of a key with this hash will look first.
    #[inline]
    pub fn expect(&self, hash: u64) {
        self.memtable.index.prefetch(hash);
    }

    /// Adds an entry of a key with this `key::hash`. Requires: the SeqNos of a key's entries ascend.
    #[inline]
    pub fn insert(&mut self, user_key: &[u8], hash: u64, entry: &EntryRef<'_>) {
        let Memtable { arena, index, keys, .. } = &*self.memtable;
        let place = index.place(hash, |record| arena.record(record).key() == user_key);
        let record = arena.push(user_key, entry, place.record);
        let mut count = keys.load(Ordering::Relaxed);
        if place.record.is_none() {
            count += 1;
            keys.store(count, Ordering::Relaxed);
        }
        index.put(&place, hash, record, count);
        self.note(entry.seqno);
    }

    /// Adds a deleted range. Requires: as `insert`.
    pub fn insert_range_tombstone(&mut self, tombstone: RangeTombstone) {
        self.note(tombstone.seqno);
        // Only this changes the sets, and readers go on meanwhile: to make a large one takes long.
        let mut sets = self.memtable.range_tombstones();
        let mut joined = vec![tombstone];
        while let Some(last) = sets.pop_if(|last| last.len() <= joined.len()) {
            joined.extend(last.iter().cloned());
        }
        sets.push(Arc::new(RangeTombstones::new(joined)));
        let bytes = sets.iter().map(|set| set.bytes()).sum();
        let replaced = std::mem::replace(&mut *self.memtable.range_tombstones.write(), sets);
        drop(replaced);
        self.memtable.range_tombstone_bytes.store(bytes, Ordering::Relaxed);
        self.memtable.has_range_tombstones.store(true, Ordering::Release);
    }

    fn note(&mut self, seqno: SeqNo) {
        let Memtable { entries, seqno_max, .. } = &*self.memtable;
        entries.store(entries.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        seqno_max.store(seqno_max.load(Ordering::Relaxed).max(seqno), Ordering::Relaxed);
    }
}

impl Memtable {
    /// The newest version of a key at or below `max_seqno`; `hash` is `key::hash` of the key. Range
    /// deletions are the caller's matter.
    #[inline]
    pub fn find(&self, user_key: &[u8], hash: u64, max_seqno: SeqNo) -> Option<EntryRef<'_>> {
        if self.keys() == 0 {
            // Its index isn't: looking there would be a wait for memory.
            return None;
        }
        let is_key = |record| self.arena.record(record).key() == user_key;
        let mut record = self.arena.record(self.index.find(hash, is_key)?);
        while record.seqno() > max_seqno {
            record = self.arena.record(record.prev()?);
        }
        Some(record.entry())
    }

    /// The newest range deletion of `user_key` at or below `max_seqno`; 0 for none.
    pub fn cover(&self, user_key: &[u8], max_seqno: SeqNo) -> SeqNo {
        if !self.has_range_tombstones.load(Ordering::Acquire) {
            return 0;
        }
        let sets = self.range_tombstones.read();
        sets.iter().map(|set| set.cover(user_key, max_seqno)).max().unwrap_or(0)
    }

    /// The deleted ranges so far, in a few sets.
    pub fn range_tombstones(&self) -> Vec<Arc<RangeTombstones>> {
        self.range_tombstones.read().clone()
    }

    /// Memory taken, about.
    pub fn bytes(&self) -> usize {
        let ranges = self.range_tombstone_bytes.load(Ordering::Relaxed);
        self.arena.bytes() + self.index.bytes() + ranges
    }

    /// Entries and range deletions held.
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Keys with an entry.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Keys that the next memtable is likely to have, of so many bytes: as many as this one, which a large
    /// batch may have filled far beyond that. Their index leaves half of the bytes to the entries.
    pub fn keys_expected(&self, memtable_bytes: usize) -> usize {
        self.keys().min(memtable_bytes / (2 * index::BYTES_PER_KEY_MAX))
    }

    /// Whether nothing was written to it.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// The newest SeqNo held; 0 when empty.
    pub fn seqno_max(&self) -> SeqNo {
        self.seqno_max.load(Ordering::Relaxed)
    }

    /// Cursors that show, between them, every entry added so far.
    pub fn sources(self: &Arc<Self>) -> impl Iterator<Item = RunCursor> {
        let runs = self.order.lock().runs(&self.arena);
        let memtable = self.clone();
        runs.into_iter().map(move |run| RunCursor::new(memtable.clone(), run))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::head::{BodyRef, Entry};
    use crate::iter::{InternalIterator, MergingIterator};
    use crate::key::{self, SEQNO_MAX};

    fn memtable() -> (MemtableWriter, Arc<Memtable>) {
        let writer =
            MemtableWriter::new(&Arc::new(Recorder::new(0)), &Arc::new(SpareChunks::new(0)), 0);
        let memtable = writer.memtable().clone();
        (writer, memtable)
    }

    fn put(writer: &mut MemtableWriter, key: &[u8], seqno: SeqNo) {
        let value = [key, &seqno.to_le_bytes()].concat();
        let entry = EntryRef {
            seqno,
            written_at_ms: 0,
            expires_at_ms: 0,
            attributes: b"",
            body: BodyRef::Inline(&value),
        };
        writer.insert(key, key::hash(key), &entry);
    }

    /// A key for each number, in another order than the numbers.
    fn scattered(at: u64) -> [u8; 8] {
        at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
    }

    fn get(memtable: &Memtable, key: &[u8], max_seqno: SeqNo) -> Option<Entry> {
        memtable.find(key, key::hash(key), max_seqno).map(|entry| entry.to_entry())
    }

    fn cursor(memtable: &Arc<Memtable>) -> MergingIterator<RunCursor> {
        MergingIterator::new(memtable.sources().collect())
    }

    #[test]
    fn deleted_ranges_are_few_sets_and_each_reader_sees_its_own() {
        let (mut writer, memtable) = memtable();
        for seqno in 1..=100u8 {
            let (start, end) = ([seqno % 7], [seqno % 7 + 1 + seqno % 3]);
            writer.insert_range_tombstone(RangeTombstone {
                start: start.to_vec().into(),
                end: end.to_vec().into(),
                seqno: seqno.into(),
            });
        }
        // 100 is 64 and 32 and 4.
        let sizes: Vec<_> = memtable.range_tombstones().iter().map(|set| set.len()).collect();
        assert_eq!(sizes, [64, 32, 4]);
        for key in 0..10u8 {
            for max_seqno in 0..=100u8 {
                let covers = |seqno: &u8| {
                    seqno % 7 <= key && key < seqno % 7 + 1 + seqno % 3 && *seqno <= max_seqno
                };
                let expected = (1..=100u8).filter(covers).max().unwrap_or(0);
                assert_eq!(memtable.cover(&[key], max_seqno.into()), SeqNo::from(expected));
            }
        }
        assert!(memtable.bytes() > 100 * size_of::<RangeTombstone>());
    }

    #[test]
    fn a_read_sees_the_newest_version_at_its_seqno() {
        let (mut writer, memtable) = memtable();
        put(&mut writer, b"a", 1);
        put(&mut writer, b"b", 2);
        put(&mut writer, b"a", 3);
        assert_eq!(get(&memtable, b"a", SEQNO_MAX).unwrap().seqno, 3);
        assert_eq!(get(&memtable, b"a", 2).unwrap().seqno, 1);
        assert_eq!(get(&memtable, b"b", 1), None);
        assert_eq!(get(&memtable, b"aa", SEQNO_MAX), None);
        assert_eq!((memtable.entries(), memtable.keys(), memtable.seqno_max()), (3, 2, 3));
    }

    #[test]
    fn a_cursor_walks_both_ways_and_shows_what_was_there_when_it_was_made() {
        let (mut writer, memtable) = memtable();
        for at in 0..100 {
            put(&mut writer, format!("{at:03}").as_bytes(), at + 1);
        }
        let mut iter = cursor(&memtable);
        put(&mut writer, b"0401", 1000);
        iter.seek_to_first().unwrap();
        for at in 0..100 {
            assert_eq!(iter.user_key(), format!("{at:03}").as_bytes());
            iter.next().unwrap();
        }
        assert!(!iter.valid());
        iter.seek_before(b"050").unwrap();
        for at in (0..50).rev() {
            assert_eq!(iter.user_key(), format!("{at:03}").as_bytes());
            iter.prev().unwrap();
        }
        assert!(!iter.valid());
        iter.seek(b"0405", SEQNO_MAX).unwrap();
        iter.prev().unwrap();
        iter.next().unwrap();
        assert_eq!(iter.user_key(), b"041");
        let mut later = cursor(&memtable);
        later.seek(b"0405", SEQNO_MAX).unwrap();
        later.prev().unwrap();
        assert_eq!(later.user_key(), b"0401");
    }

    #[test]
    fn keys_with_long_names_are_in_order() {
        let (mut writer, memtable) = memtable();
        let mut expected = Vec::new();
        for at in 0..4000_u64 {
            // Names within names, deeper than there are words; keys that end where others go on in zeros; and
            // several versions of some.
            let name = "deep in/".repeat(at as usize % 13);
            let end = &scattered(at % 200)[..1 + at as usize % 5];
            let key = [name.as_bytes(), &[0; 9][..at as usize % 10], end].concat();
            put(&mut writer, &key, at + 1);
            expected.push((key, SEQNO_MAX - (at + 1)));
        }
        expected.sort();
        let mut iter = cursor(&memtable);
        iter.seek_to_first().unwrap();
        for expected in &expected {
            assert_eq!((iter.user_key(), SEQNO_MAX - iter.seqno()), (&expected.0[..], expected.1));
            iter.next().unwrap();
        }
        assert!(!iter.valid());
        for (key, age) in &expected {
            iter.seek(key, SEQNO_MAX - age).unwrap();
            assert_eq!((iter.user_key(), SEQNO_MAX - iter.seqno()), (&key[..], *age));
        }
    }

    #[test]
    fn looks_between_writes_leave_few_runs() {
        let (mut writer, memtable) = memtable();
        for at in 0..5000_u64 {
            put(&mut writer, &scattered(at), at + 1);
            if at % 7 == 0 {
                assert!(memtable.sources().count() <= 12);
            }
        }
        let mut iter = cursor(&memtable);
        iter.seek_to_first().unwrap();
        let mut keys = Vec::new();
        while iter.valid() {
            keys.push(iter.user_key().to_vec());
            iter.next().unwrap();
        }
        assert!(keys.is_sorted() && keys.len() == 5000);
    }

    #[test]
    fn looks_pay_for_one_run() {
        let (mut writer, memtable) = memtable();
        let mut written = 0..;
        let mut fill = |count| {
            for at in written.by_ref().take(count) {
                put(&mut writer, &scattered(at), at + 1);
            }
            memtable.sources().count()
        };
        assert_eq!(fill(10_000), 1);
        assert_eq!(fill(100), 2, "a merge of ten thousand isn't paid for by one look");
        let looks = std::iter::repeat_with(|| memtable.sources().count());
        let looks = looks.take_while(|&runs| runs > 1).count();
        assert!((100..1000).contains(&looks), "{looks} looks");
    }

    #[test]
    fn readers_see_everything_up_to_what_was_made_visible_while_it_grows() {
        let (mut writer, memtable) = memtable();
        let visible = AtomicU64::new(0);
        let key = |number: u64| (number % 5000).wrapping_mul(0x9e37_79b9).to_le_bytes();
        std::thread::scope(|scope| {
            for reader in 0..2_u64 {
                let (memtable, visible) = (&memtable, &visible);
                scope.spawn(move || {
                    let mut at = reader;
                    loop {
                        let seqno = visible.load(Ordering::Acquire);
                        if seqno > 0 {
                            at = (at.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1) % seqno;
                            let found = get(memtable, &key(at), seqno).expect("a visible key");
                            assert!(found.seqno > at && found.seqno <= seqno);
                        }
                        if seqno == 20_000 {
                            return;
                        }
                    }
                });
            }
            for number in 0..20_000 {
                put(&mut writer, &key(number), number + 1);
                visible.store(number + 1, Ordering::Release);
            }
        });
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_map(
            writes in prop::collection::vec((prop::collection::vec(0u8..3, 1..12), any::<bool>()), 1..200),
            probes in prop::collection::vec((prop::collection::vec(0u8..3, 0..12), 0u64..220), 20),
        ) {
            let (mut writer, memtable) = memtable();
            let mut model = BTreeMap::new();
            for (at, (key, look)) in writes.iter().enumerate() {
                let seqno = at as u64 + 1;
                put(&mut writer, key, seqno);
                model.insert((key.clone(), SEQNO_MAX - seqno), ());
                if *look {
                    prop_assert!(memtable.sources().count() > 0);
                }
            }
            let mut iter = cursor(&memtable);
            for (key, seqno) in probes {
                let next = model.range((key.clone(), SEQNO_MAX - seqno)..).next();
                let found = get(&memtable, &key, seqno).map(|entry| SEQNO_MAX - entry.seqno);
                let expected = next.filter(|((next, _), ())| *next == key).map(|((_, age), ())| *age);
                prop_assert_eq!(found, expected);
                iter.seek(&key, seqno).unwrap();
                let here = iter.valid().then(|| (iter.user_key().to_vec(), SEQNO_MAX - iter.seqno()));
                prop_assert_eq!(here.as_ref(), next.map(|(at, ())| at));
                iter.seek_before(&key).unwrap();
                let before = model.range(..(key.clone(), 0)).next_back();
                let here = iter.valid().then(|| (iter.user_key().to_vec(), SEQNO_MAX - iter.seqno()));
                prop_assert_eq!(here.as_ref(), before.map(|(at, ())| at));
            }
        }
    }
}
