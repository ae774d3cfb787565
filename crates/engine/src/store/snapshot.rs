//! Pinned moments: which SeqNos some reader still needs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::Mutex;

use super::inner::Inner;
use super::{Cursor, Range, RangeHeads, ReadOptions, ScanOptions, Store};
use crate::error::Result;
use crate::head::Head;
use crate::key::SeqNo;

/// The pinned SeqNos and how often each is pinned.
#[derive(Debug, Default)]
pub(super) struct SnapshotList {
    pinned: Mutex<BTreeMap<SeqNo, usize>>,
}

impl SnapshotList {
    /// Pins the last visible write. The lock is held around reading it, so that whoever lists the
    /// pins afterwards has seen this one or works on nothing newer.
    fn pin(&self, inner: &Inner) -> SeqNo {
        let mut pinned = self.pinned.lock();
        let seqno = inner.visible_seqno.load(Ordering::Acquire);
        *pinned.entry(seqno).or_default() += 1;
        seqno
    }

    fn unpin(&self, seqno: SeqNo) {
        let mut pinned = self.pinned.lock();
        let count = pinned.get_mut(&seqno).expect("a pin is in the list");
        *count -= 1;
        if *count == 0 {
            pinned.remove(&seqno);
        }
    }

    /// The pinned SeqNos, ascending.
    pub(super) fn list(&self) -> Vec<SeqNo> {
        self.pinned.lock().keys().copied().collect()
    }
}

/// A pinned moment: reads see what was written before it and nothing since. Dropping it lets go.
#[derive(Debug)]
pub struct Snapshot {
    store: Store,
    seqno: SeqNo,
}

impl Snapshot {
    pub(super) fn new(store: &Store) -> Snapshot {
        Snapshot { seqno: store.inner.snapshots.pin(&store.inner), store: store.clone() }
    }

    /// SeqNo of the last write seen.
    pub fn version(&self) -> SeqNo {
        self.seqno
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.store.inner.value_at(key, Some(self.seqno), ReadOptions::default())
    }

    /// The head of a key.
    pub fn head(&self, key: &[u8]) -> Result<Option<Head>> {
        self.store.inner.head_at(key, Some(self.seqno), true)
    }

    /// Head and value of a key.
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<(Head, Bytes)>> {
        self.store.inner.get_entry_at(key, Some(self.seqno), ReadOptions::default())
    }

    /// Keys and values of a range.
    pub fn range(&self, options: ScanOptions) -> Result<Range> {
        let reverse = options.reverse;
        Ok(Range::new(self.cursor(options)?, reverse))
    }

    /// Keys and heads of a range.
    pub fn range_heads(&self, options: ScanOptions) -> Result<RangeHeads> {
        let reverse = options.reverse;
        Ok(RangeHeads::new(self.cursor(options)?, reverse))
    }

    /// A cursor over the live keys within the options' bounds.
    pub fn cursor(&self, options: ScanOptions) -> Result<Cursor> {
        self.store.inner.cursor_at(Some(self.seqno), &options)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.store.inner.snapshots.unpin(self.seqno);
        self.store.inner.note_unpinned(self.seqno);
    }
}
