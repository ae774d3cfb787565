//! The ordered write buffer: what was written and not yet flushed.
//!
//! One writer at a time (the commit lock), any number of readers. An entry, once in, never changes;
//! readers ignore entries newer than the SeqNo they read at. The order is a B-tree behind a
//! reader-writer lock; iterators copy a few entries at a time and hold no lock between calls.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;

use crate::error::Result;
use crate::head::{Body, Entry};
use crate::iter::InternalIterator;
use crate::key::{SEQNO_MAX, SeqNo};
use crate::lock::RwLock;
use crate::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::stages::{Recorder, Stage};

/// What one entry takes in memory beyond its key, inline value and attributes: node, handles, slack.
const ENTRY_OVERHEAD_BYTES: usize = 200;

/// Entries an iterator copies at once.
const ITERATOR_BATCH: usize = 32;

/// The ordered write buffer.
#[derive(Debug)]
pub struct Memtable {
    map: RwLock<BTreeMap<MemKey, Entry>>,
    range_tombstones: parking_lot::RwLock<Arc<RangeTombstones>>,
    has_range_tombstones: AtomicBool,
    bytes: AtomicUsize,
    entries: AtomicU64,
    seqno_max: AtomicU64,
}

/// Internal order as the order of a map: user key, then SeqNo descending.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MemKey {
    user_key: Bytes,
    /// `SEQNO_MAX` minus the SeqNo.
    age: u64,
}

/// A key of the map by reference, so that a look-up allocates nothing.
trait KeyView {
    fn view(&self) -> (&[u8], u64);
}

impl KeyView for MemKey {
    fn view(&self) -> (&[u8], u64) {
        (&self.user_key, self.age)
    }
}

impl KeyView for (&[u8], u64) {
    fn view(&self) -> (&[u8], u64) {
        (self.0, self.1)
    }
}

impl<'a> Borrow<dyn KeyView + 'a> for MemKey {
    fn borrow(&self) -> &(dyn KeyView + 'a) {
        self
    }
}

impl PartialEq for dyn KeyView + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.view() == other.view()
    }
}

impl Eq for dyn KeyView + '_ {}

impl PartialOrd for dyn KeyView + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn KeyView + '_ {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.view().cmp(&other.view())
    }
}

impl Memtable {
    /// An empty one, whose waits go to `recorder`.
    pub fn new(recorder: &Arc<Recorder>) -> Memtable {
        Memtable {
            map: RwLock::new(Stage::LockMemtable, recorder, BTreeMap::new()),
            range_tombstones: parking_lot::RwLock::default(),
            has_range_tombstones: AtomicBool::new(false),
            bytes: AtomicUsize::new(0),
            entries: AtomicU64::new(0),
            seqno_max: AtomicU64::new(0),
        }
    }

    /// Adds an entry. Requires: the caller holds the commit lock; SeqNos ascend.
    pub fn insert(&self, user_key: Bytes, entry: Entry) {
        let inline = if let Body::Inline(value) = &entry.body { value.len() } else { 0 };
        self.note(user_key.len() + inline + entry.attributes.len(), entry.seqno);
        let key = MemKey { user_key, age: SEQNO_MAX - entry.seqno };
        self.map.write().insert(key, entry);
    }

    /// Adds a deleted range. Requires: as `insert`.
    pub fn insert_range_tombstone(&self, tombstone: RangeTombstone) {
        self.note(tombstone.start.len() + tombstone.end.len(), tombstone.seqno);
        let mut set = self.range_tombstones.write();
        let all = set.iter().chain([tombstone]);
        *set = Arc::new(RangeTombstones::new(all));
        self.has_range_tombstones.store(true, Ordering::Release);
    }

    fn note(&self, bytes: usize, seqno: SeqNo) {
        self.bytes.fetch_add(bytes + ENTRY_OVERHEAD_BYTES, Ordering::Relaxed);
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.seqno_max.fetch_max(seqno, Ordering::Relaxed);
    }

    /// The newest version of a key at or below `max_seqno`. Range deletions are the caller's matter.
    pub fn get(&self, user_key: &[u8], max_seqno: SeqNo) -> Option<Entry> {
        let from: (&[u8], u64) = (user_key, SEQNO_MAX - max_seqno);
        let map = self.map.read();
        let (key, entry) = map
            .range::<dyn KeyView, _>((Bound::Included(&from as &dyn KeyView), Bound::Unbounded))
            .next()?;
        (key.user_key == user_key).then(|| entry.clone())
    }

    /// The newest range deletion of `user_key` at or below `max_seqno`; 0 for none.
    pub fn cover(&self, user_key: &[u8], max_seqno: SeqNo) -> SeqNo {
        if !self.has_range_tombstones.load(Ordering::Acquire) {
            return 0;
        }
        self.range_tombstones.read().cover(user_key, max_seqno)
    }

    /// The deleted ranges so far.
    pub fn range_tombstones(&self) -> Arc<RangeTombstones> {
        self.range_tombstones.read().clone()
    }

    /// Memory taken, about.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Entries and range deletions held.
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether nothing was written to it.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// The newest SeqNo held; 0 when empty.
    pub fn seqno_max(&self) -> SeqNo {
        self.seqno_max.load(Ordering::Relaxed)
    }

    /// A cursor over the entries.
    pub fn iter(self: &Arc<Self>) -> MemtableIter {
        MemtableIter { memtable: self.clone(), batch: Vec::new(), at: 0, backward: false }
    }
}

/// A cursor over a memtable that copies entries a few at a time.
///
/// Entries added behind the copied ones are newer than what any reader of the copy may see.
#[derive(Debug)]
pub struct MemtableIter {
    memtable: Arc<Memtable>,
    /// Entries copied, in the order in which they are visited.
    batch: Vec<(Bytes, Entry)>,
    at: usize,
    /// Whether the batch was copied against the order.
    backward: bool,
}

impl MemtableIter {
    fn fill_forward(&mut self, from: Bound<(&[u8], SeqNo)>) {
        let age = |(key, seqno): (&'_ [u8], SeqNo)| -> (Vec<u8>, u64) {
            (key.to_vec(), SEQNO_MAX - seqno)
        };
        self.batch.clear();
        self.at = 0;
        self.backward = false;
        let from = from.map(age);
        let from = from.as_ref().map(|(key, age)| (&key[..], *age));
        let lower = match &from {
            Bound::Included(view) => Bound::Included(view as &dyn KeyView),
            Bound::Excluded(view) => Bound::Excluded(view as &dyn KeyView),
            Bound::Unbounded => Bound::Unbounded,
        };
        let map = self.memtable.map.read();
        let range = map.range::<dyn KeyView, _>((lower, Bound::Unbounded));
        let copied = range.take(ITERATOR_BATCH).map(|(k, e)| (k.user_key.clone(), e.clone()));
        self.batch.extend(copied);
    }

    fn fill_backward(&mut self, before: Bound<(&[u8], SeqNo)>) {
        self.batch.clear();
        self.at = 0;
        self.backward = true;
        let before = before.map(|(key, seqno)| (key.to_vec(), SEQNO_MAX - seqno));
        let before = before.as_ref().map(|(key, age)| (&key[..], *age));
        let upper = match &before {
            Bound::Included(view) => Bound::Included(view as &dyn KeyView),
            Bound::Excluded(view) => Bound::Excluded(view as &dyn KeyView),
            Bound::Unbounded => Bound::Unbounded,
        };
        let map = self.memtable.map.read();
        let range = map.range::<dyn KeyView, _>((Bound::Unbounded, upper)).rev();
        let copied = range.take(ITERATOR_BATCH).map(|(k, e)| (k.user_key.clone(), e.clone()));
        self.batch.extend(copied);
    }
}

impl InternalIterator for MemtableIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.fill_forward(Bound::Unbounded);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.fill_backward(Bound::Unbounded);
        Ok(())
    }

    fn seek(&mut self, user_key: &[u8], seqno: SeqNo) -> Result<()> {
        self.fill_forward(Bound::Included((user_key, seqno)));
        Ok(())
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<()> {
        self.fill_backward(Bound::Excluded((user_key, SEQNO_MAX)));
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        if !self.backward && self.at + 1 < self.batch.len() {
            self.at += 1;
        } else {
            let (key, entry) = self.batch.swap_remove(self.at);
            self.fill_forward(Bound::Excluded((&key, entry.seqno)));
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if self.backward && self.at + 1 < self.batch.len() {
            self.at += 1;
        } else {
            let (key, entry) = self.batch.swap_remove(self.at);
            self.fill_backward(Bound::Excluded((&key, entry.seqno)));
        }
        Ok(())
    }

    fn valid(&self) -> bool {
        self.at < self.batch.len()
    }

    fn user_key(&self) -> &[u8] {
        &self.batch[self.at].0
    }

    fn seqno(&self) -> SeqNo {
        self.batch[self.at].1.seqno
    }

    fn entry(&self) -> Result<Entry> {
        Ok(self.batch[self.at].1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(memtable: &Memtable, key: &str, seqno: SeqNo) {
        memtable.insert(
            Bytes::copy_from_slice(key.as_bytes()),
            Entry {
                seqno,
                written_at_ms: 0,
                expires_at_ms: 0,
                attributes: Bytes::new(),
                body: Body::Inline(Bytes::from(format!("{key}@{seqno}"))),
            },
        );
    }

    fn memtable() -> Memtable {
        Memtable::new(&Arc::new(Recorder::new(0)))
    }

    #[test]
    fn a_read_sees_the_newest_version_at_its_seqno() {
        let memtable = memtable();
        put(&memtable, "a", 1);
        put(&memtable, "b", 2);
        put(&memtable, "a", 3);
        assert_eq!(memtable.get(b"a", SEQNO_MAX).unwrap().seqno, 3);
        assert_eq!(memtable.get(b"a", 2).unwrap().seqno, 1);
        assert_eq!(memtable.get(b"b", 1), None);
        assert_eq!(memtable.get(b"aa", SEQNO_MAX), None);
        assert_eq!(memtable.entries(), 3);
        assert_eq!(memtable.seqno_max(), 3);
    }

    #[test]
    fn an_iterator_walks_both_ways_across_its_batches() {
        let memtable = Arc::new(memtable());
        for at in 0..100 {
            put(&memtable, &format!("{at:03}"), at + 1);
        }
        let mut iter = memtable.iter();
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
    }
}
