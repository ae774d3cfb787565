//! A position among the live keys of one moment.
//!
//! Below lies the merge of every memtable and run, with all versions of every key. The cursor shows,
//! of each key, the newest version its moment sees, if that is a value.
//!
//! Invariant: moving forward, the merge stands on the entry shown; moving backward, on the last entry
//! before all versions of the key shown, whose entry is kept.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::ScanOptions;
use super::runs_passed::RunsPassed;
use super::sorted_run::SortedRun;
use super::state::{ReadState, ValueRef};
use crate::error::Result;
use crate::head::{self, Body, BodyRef, Entry, Head, ValuePointer};
use crate::iter::{InternalIterator, MergingIterator};
use crate::journal::Sequence;
use crate::key::{self, SeqNo};
use crate::range_tombstone::{RangeTombstone, RangeTombstones, newest};
use crate::stages::{Recorder, Trace};
use crate::version::RunIter;
use crate::vfs::Clock;

/// After this many steps over versions of one key, the cursor seeks past them instead.
const STEPS_BEFORE_SEEK: usize = 8;

/// While values come from the disk, so many of them are wanted at once. Of values of 4 KiB that lie in random
/// order, with 1 a scan reads 93 MB/s, with 8, 16 and 32 of them 177, 206 and 199.
const WANTED_AHEAD: usize = 16;

/// The keys a cursor may show: `[start, end)`.
#[derive(Debug, Clone, Default)]
struct Bounds {
    start: Option<Bytes>,
    end: Option<Bytes>,
}

impl Bounds {
    fn of(options: &ScanOptions) -> Bounds {
        let mut bounds = Bounds { start: options.start.clone(), end: options.end.clone() };
        if let Some(prefix) = options.prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
            if bounds.start.as_ref().is_none_or(|start| start < prefix) {
                bounds.start = Some(prefix.clone());
            }
            if let Some(end) = key::prefix_end(prefix).map(Bytes::from)
                && bounds.end.as_ref().is_none_or(|bound| *bound > end)
            {
                bounds.end = Some(end);
            }
        }
        bounds
    }

    fn is_below(&self, user_key: &[u8]) -> bool {
        self.start.as_ref().is_some_and(|start| user_key < &start[..])
    }

    fn is_beyond(&self, user_key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| user_key >= &end[..])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// A position among the live keys, movable both ways. Not valid until a seek.
///
/// It pins the files it reads for as long as it lives; what is written meanwhile it does not see.
pub struct Cursor {
    state: Arc<ReadState>,
    clock: Arc<dyn Clock>,
    recorder: Arc<Recorder>,
    merged: MergingIterator<SortedRun>,
    range_tombstones: Vec<Arc<RangeTombstones>>,
    seqno: SeqNo,
    bounds: Bounds,
    direction: Direction,
    runs_passed: RunsPassed,
    /// The key shown.
    key: Vec<u8>,
    shown: Shown,
    /// How far values were read one behind another, once any came from the disk.
    sequence: Mutex<Option<Box<Sequence>>>,
}

/// Where the entry shown is.
#[derive(Debug)]
enum Shown {
    /// Nowhere: the cursor is not valid.
    Nothing,
    /// Under the merge.
    Here,
    /// The merge has passed it.
    Kept(Entry),
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("seqno", &self.seqno).finish_non_exhaustive()
    }
}

impl Cursor {
    pub(super) fn new(
        state: Arc<ReadState>,
        clock: Arc<dyn Clock>,
        recorder: Arc<Recorder>,
        seqno: SeqNo,
        options: &ScanOptions,
    ) -> Cursor {
        let bounds = Bounds::of(options);
        let mut sources: Vec<SortedRun> = Vec::new();
        let mut range_tombstones = Vec::new();
        for memtable in state.memtables() {
            if !memtable.is_empty() {
                sources.extend(memtable.sources().map(SortedRun::Memory));
                range_tombstones.extend(memtable.range_tombstones());
            }
        }
        let (start, end) = (bounds.start.as_deref(), bounds.end.as_deref());
        let of_memtables = sources.len();
        for (_, run) in state.version.runs() {
            let places = run.places(start, end);
            if !places.is_empty() {
                let run = RunIter::new(run.tables.clone(), places, true);
                sources.push(SortedRun::Tables(Box::new(run)));
            }
        }
        let runs_passed = RunsPassed::new(sources.len() - of_memtables);
        let deleting = state.version.directory().deleting().iter();
        let mut deleted: Vec<RangeTombstone> = deleting
            .filter(|table| table.overlaps(start, end))
            .flat_map(|table| table.range_tombstones())
            .filter(|tombstone| tombstone.seqno <= seqno)
            .collect();
        if !deleted.is_empty() {
            deleted.sort_unstable();
            range_tombstones.push(Arc::new(RangeTombstones::new(newest(&deleted))));
        }
        Cursor {
            state,
            clock,
            recorder,
            merged: MergingIterator::new(sources),
            range_tombstones,
            seqno,
            bounds,
            direction: Direction::Forward,
            runs_passed,
            key: Vec::new(),
            shown: Shown::Nothing,
            sequence: Mutex::default(),
        }
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        match self.bounds.start.clone() {
            Some(start) => self.seek(&start),
            None => {
                self.direction = Direction::Forward;
                self.shown = Shown::Nothing;
                self.runs_passed.seek(&self.recorder);
                self.merged.seek_to_first()?;
                self.find_forward(false)
            }
        }
    }

    /// Moves to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.direction = Direction::Backward;
        self.shown = Shown::Nothing;
        self.runs_passed.seek(&self.recorder);
        match &self.bounds.end {
            Some(end) => self.merged.seek_before(end)?,
            None => self.merged.seek_to_last()?,
        }
        self.find_backward()
    }

    /// Moves to the first key at or after `user_key`.
    pub fn seek(&mut self, user_key: &[u8]) -> Result<()> {
        self.direction = Direction::Forward;
        self.shown = Shown::Nothing;
        let from = match &self.bounds.start {
            Some(start) if user_key < &start[..] => &start[..],
            _ => user_key,
        };
        self.runs_passed.seek(&self.recorder);
        self.merged.seek(from, self.seqno)?;
        self.find_forward(false)
    }

    /// Moves to the last key before `user_key`.
    pub fn seek_before(&mut self, user_key: &[u8]) -> Result<()> {
        self.direction = Direction::Backward;
        self.shown = Shown::Nothing;
        let before = match &self.bounds.end {
            Some(end) if user_key > &end[..] => &end[..],
            _ => user_key,
        };
        self.runs_passed.seek(&self.recorder);
        self.merged.seek_before(before)?;
        self.find_backward()
    }

    /// Moves to the next key; not valid after the last. Requires: valid.
    #[expect(clippy::should_implement_trait, reason = "a cursor moves, it does not yield")]
    pub fn next(&mut self) -> Result<()> {
        assert!(self.valid(), "a cursor is moved on only while it is valid");
        self.shown = Shown::Nothing;
        self.runs_passed.step();
        if self.direction == Direction::Backward {
            self.direction = Direction::Forward;
            self.merged.seek(&self.key, 0)?;
        } else {
            self.merged.next()?;
        }
        self.find_forward(true)
    }

    /// Moves to the key before; not valid after the first. Requires: valid.
    pub fn prev(&mut self) -> Result<()> {
        assert!(self.valid(), "a cursor is moved back only while it is valid");
        self.shown = Shown::Nothing;
        self.runs_passed.step();
        if self.direction == Direction::Forward {
            self.direction = Direction::Backward;
            self.merged.seek_before(&self.key)?;
        }
        self.find_backward()
    }

    /// Whether there is a key here.
    #[inline]
    pub fn valid(&self) -> bool {
        !matches!(self.shown, Shown::Nothing)
    }

    /// The key. Requires: valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        assert!(self.valid(), "a cursor has a key only while it is valid");
        &self.key
    }

    /// What is known of the value. Requires: valid.
    pub fn head(&self) -> Result<Head> {
        Ok(self.entry()?.head().expect("a cursor shows values only"))
    }

    /// The value, read from the journal if it is there. Requires: valid.
    pub fn value(&self) -> Result<Bytes> {
        self.value_of(self.entry()?)
    }

    /// The value where it stands, until the cursor moves, or read from the journal if it can't be lent
    /// there. It is cheaper than `value` for values that are looked at and not kept. Requires: valid.
    #[inline]
    pub fn value_ref(&self) -> Result<ValueRef<'_>> {
        if matches!(self.shown, Shown::Here)
            && let Some(value) = self.merged.inline_value()?
        {
            return Ok(ValueRef::Borrowed(value));
        }
        self.value_elsewhere()
    }

    /// As `value_ref`, of a value that isn't under the merge.
    #[inline(never)]
    fn value_elsewhere(&self) -> Result<ValueRef<'_>> {
        if !matches!(self.shown, Shown::Here) {
            return self.value().map(ValueRef::Owned);
        }
        let BodyRef::Ref(pointer) = self.merged.entry()?.body else {
            unreachable!("a cursor shows values only");
        };
        let mut trace = self.recorder.begin();
        if let Some(value) = self.read_ahead(&pointer, &mut trace)? {
            return Ok(ValueRef::Owned(value));
        }
        self.state.value_ref(&pointer, &mut trace)
    }

    /// The value of the entry shown.
    pub(super) fn value_of(&self, entry: Entry) -> Result<Bytes> {
        let pointer = match entry.body {
            Body::Inline(value) => return Ok(value),
            Body::Ref(pointer) => pointer,
            Body::Delete => unreachable!("a cursor shows values only"),
        };
        let mut trace = self.recorder.begin();
        // Once the merge has passed the entry shown it moves backward.
        if matches!(self.shown, Shown::Here)
            && let Some(value) = self.read_ahead(&pointer, &mut trace)?
        {
            return Ok(value);
        }
        self.state.journal_value(&pointer, true, &mut trace)
    }

    /// Has values behind the one shown, which is at `pointer`, fetched: the next by the processor, while this
    /// one's checksum is compared, or several by the system, while values come from the disk. Answers the value
    /// itself where it was read with those behind it. Requires: the entry shown is the merge's.
    #[inline(always)]
    fn read_ahead(&self, pointer: &ValuePointer, trace: &mut Trace<'_>) -> Result<Option<Bytes>> {
        if self.recorder.disk_waits().are_expected() {
            return self.read_ahead_from_disk(pointer, trace);
        }
        self.merged.values_ahead(1, &mut |pointer| self.state.prefetch(pointer));
        Ok(None)
    }

    #[cold]
    fn read_ahead_from_disk(
        &self,
        pointer: &ValuePointer,
        trace: &mut Trace<'_>,
    ) -> Result<Option<Bytes>> {
        let mut sequence = self.sequence.lock();
        let sequence = sequence.get_or_insert_default();
        let value = self.state.value_in_sequence(pointer, sequence, trace)?;
        if value.is_none() {
            self.merged.values_ahead(WANTED_AHEAD, &mut |pointer| self.state.want(pointer));
        }
        Ok(value)
    }

    /// The entry shown. Requires: valid.
    pub(super) fn entry(&self) -> Result<Entry> {
        match &self.shown {
            Shown::Here => self.merged.owned_entry(),
            Shown::Kept(entry) => Ok(entry.clone()),
            Shown::Nothing => panic!("a cursor has an entry only while it is valid"),
        }
    }

    /// Goes on to the first key at or behind the merge that has a value. `passed`: not of `self.key`,
    /// whose older versions may come first.
    #[inline(always)]
    fn find_forward(&mut self, mut passed: bool) -> Result<()> {
        let mut steps = 0;
        while self.merged.valid() {
            let source = self.merged.winner();
            let (user_key, seqno) = source.internal_key();
            let is_older = passed && key::same(user_key, &self.key);
            if !is_older {
                if self.bounds.is_beyond(user_key) {
                    break;
                }
                passed = seqno <= self.seqno;
                if passed {
                    let expiry = source.expiry()?;
                    key::assign(&mut self.key, user_key);
                    if self.shows(&self.key, seqno, expiry) {
                        self.shown = Shown::Here;
                        break;
                    }
                    steps = 0;
                } else if !key::same(user_key, &self.key) {
                    key::assign(&mut self.key, user_key);
                    steps = 0;
                }
            }
            steps += 1;
            if steps < STEPS_BEFORE_SEEK {
                self.merged.next()?;
            } else {
                steps = 0;
                let behind = if passed { 0 } else { self.seqno };
                self.merged.seek(&self.key, behind)?;
            }
        }
        Ok(())
    }

    fn find_backward(&mut self) -> Result<()> {
        while self.merged.valid() && !self.bounds.is_below(self.merged.user_key()) {
            key::assign(&mut self.key, self.merged.user_key());
            let mut newest = None;
            while self.merged.valid() && self.merged.user_key() == &self.key[..] {
                if self.merged.seqno() <= self.seqno {
                    newest = Some(self.merged.owned_entry()?);
                }
                self.merged.prev()?;
            }
            if let Some(entry) = newest
                && self.shows(&self.key, entry.seqno, entry.by_ref().expiry())
            {
                self.shown = Shown::Kept(entry);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the newest visible version of a key, of that number and expiry, is a value.
    fn shows(&self, user_key: &[u8], seqno: SeqNo, expiry: Option<u64>) -> bool {
        let deletes = |set: &Arc<RangeTombstones>| set.cover(user_key, self.seqno) >= seqno;
        head::is_live(expiry, || self.clock.now_ms()) && !self.range_tombstones.iter().any(deletes)
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.runs_passed.tell(&self.recorder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::options::{Options, Reading};
    use crate::resources::{ResourceOptions, Resources};
    use crate::store::Store;
    use crate::vfs::faulty::Fault;
    use crate::vfs::{FaultyFileSystem, FileSystem, ManualClock, MemoryFileSystem};

    #[test]
    fn values_are_lent_wanted_ahead_and_found_whatever_way_they_are_read() {
        for reading in [Reading::Mapped, Reading::Pread] {
            let dir = tempfile::tempdir().unwrap();
            let options = Options { reading, background: false, ..Options::default() };
            let value = |number: u64| vec![number as u8; 50 + (number % 3) as usize * 4000];
            let mut store = Store::open(dir.path(), options.clone()).unwrap();
            for number in 0..300 {
                // Written in another order than that of the keys.
                let number = number * 7 % 300;
                store.put(format!("{number:03}").as_bytes(), &value(number)).unwrap();
                if number == 100 {
                    store.flush().unwrap();
                }
            }
            for is_reopened in [false, true] {
                if is_reopened {
                    store.close().unwrap();
                    store = Store::open(dir.path(), options.clone()).unwrap();
                }
                for from_disk in [false, true] {
                    let mut cursor = store.cursor(ScanOptions::default()).unwrap();
                    cursor.seek_to_first().unwrap();
                    let (mut seen, mut lent) = (0, 0);
                    while cursor.valid() {
                        if from_disk {
                            cursor.recorder.disk_waits().expect();
                            assert!(cursor.recorder.disk_waits().are_expected());
                        }
                        let key = format!("{seen:03}");
                        assert_eq!(store.get(key.as_bytes()).unwrap().unwrap(), value(seen));
                        assert!(store.get((key + "x").as_bytes()).unwrap().is_none());
                        let found = cursor.value_ref().unwrap();
                        assert_eq!(&found[..], value(seen));
                        assert_eq!(cursor.value().unwrap(), value(seen));
                        if found.len() > 1000 && matches!(found, ValueRef::Borrowed(_)) {
                            lent += 1;
                        }
                        seen += 1;
                        cursor.next().unwrap();
                    }
                    assert_eq!(seen, 300);
                    assert_eq!(lent > 0, reading == Reading::Mapped);
                }
            }
        }
    }

    /// Files in memory of a store of 300 values of 128 KiB, put in this order.
    fn files_of(order: impl Iterator<Item = u32>) -> Arc<MemoryFileSystem> {
        let fs = Arc::new(MemoryFileSystem::new());
        let store = open(fs.clone(), Reading::Mapped);
        for number in order {
            store.put(&number.to_be_bytes(), &large_value(number)).unwrap();
        }
        store.close().unwrap();
        fs
    }

    fn open(fs: Arc<dyn FileSystem>, reading: Reading) -> Store {
        let clock = Arc::new(ManualClock::at_ms(1));
        let resources = Resources::inline(ResourceOptions::default(), fs, clock);
        Store::open_with("/s", Options { reading, ..Options::default() }, resources).unwrap()
    }

    fn large_value(number: u32) -> Vec<u8> {
        number.to_be_bytes().repeat(32 << 10)
    }

    /// Walks over values that all come from the disk; true of those that are not lent from a map.
    fn read_in_pieces(store: &Store) -> Vec<bool> {
        let mut cursor = store.cursor(ScanOptions::default()).unwrap();
        cursor.seek_to_first().unwrap();
        let mut in_pieces = Vec::new();
        for number in 0..300 {
            cursor.recorder.disk_waits().expect();
            let value = cursor.value_ref().unwrap();
            assert!(value[..] == large_value(number)[..]);
            in_pieces.push(matches!(value, ValueRef::Owned(_)));
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        in_pieces
    }

    #[test]
    fn a_long_range_from_the_disk_is_read_in_pieces_where_values_lie_in_its_order() {
        let store = open(files_of(0..300), Reading::Mapped);
        let in_pieces = read_in_pieces(&store);
        let first = in_pieces.iter().position(|&is| is).unwrap();
        assert!((128..135).contains(&first), "after 16 MiB: {first}");
        // The first of a segment lies behind no other.
        assert!(in_pieces[first..].iter().filter(|&&is| !is).count() < 5, "{in_pieces:?}");
        let mut range = store.range(ScanOptions::default()).unwrap();
        for number in 0..300 {
            store.inner.recorder.disk_waits().expect();
            let found = range.next().unwrap().unwrap();
            assert!(found.value[..] == large_value(number)[..] && found.head.length == 128 << 10);
        }
        let shuffled = open(files_of((0..300).map(|number| number * 7 % 300)), Reading::Mapped);
        assert!(!read_in_pieces(&shuffled).contains(&true));
    }

    #[test]
    fn damage_in_a_piece_is_found_and_the_values_around_it_are_not_lost() {
        for reading in [Reading::Mapped, Reading::Pread] {
            let fs = files_of(0..300);
            let dir = std::path::Path::new("/s");
            let mut damaged = 0;
            for name in fs.list(dir).unwrap().iter().filter(|name| name.ends_with(".journal")) {
                let file = fs.open(&dir.join(name)).unwrap();
                let bytes = file.read_new_at(0, file.len().unwrap() as usize).unwrap();
                let part = 250u32.to_be_bytes().repeat(100);
                if let Some(at) = bytes.windows(part.len()).position(|bytes| bytes == part) {
                    file.write_all_at(&[0xee], at as u64 + 200).unwrap();
                    damaged += 1;
                }
            }
            assert_eq!(damaged, 1);
            let store = open(fs, reading);
            let mut cursor = store.cursor(ScanOptions::default()).unwrap();
            cursor.seek_to_first().unwrap();
            for number in 0..300 {
                cursor.recorder.disk_waits().expect();
                match (number, cursor.value_ref()) {
                    (250, value) => assert!(matches!(value, Err(Error::Corruption { .. }))),
                    (_, value) => assert!(value.unwrap()[..] == large_value(number)[..]),
                }
                cursor.next().unwrap();
            }
        }
    }

    #[test]
    fn a_piece_that_cannot_be_read_fails_no_value() {
        for reading in [Reading::Mapped, Reading::Pread] {
            let fs = FaultyFileSystem::new(files_of(0..300));
            let store = open(Arc::new(fs.clone()), reading);
            let mut cursor = store.cursor(ScanOptions::default()).unwrap();
            cursor.seek_to_first().unwrap();
            for number in 0..300 {
                cursor.recorder.disk_waits().expect();
                if number == 150 {
                    let piece = Fault::errno(5).only(|operation, _| operation == "read_once_at");
                    fs.fail_at(fs.operation_count() + 1, piece);
                }
                assert!(cursor.value_ref().unwrap()[..] == large_value(number)[..]);
                cursor.next().unwrap();
            }
            assert_eq!(fs.fired(), 1);
        }
    }
}
