//! A segment's map, and how much of it is backed by memory and disk space already.
//!
//! Invariant: what is stored lies in the part that is backed, so that a full or failing disk is an
//! error of `populate`, never a signal in the middle of a store. A thread backs the map ahead of the
//! writer, a piece at a time; a writer that catches up backs a small piece itself. It stays so far
//! ahead and no further, because a sync writes all that was backed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::segment_header::SEGMENT_HEADER_BYTES;
use crate::error::{Error, Result};
use crate::vfs::SegmentMap;

/// Bytes that are backed before they are needed: 10 ms of the fastest writer measured, on two cores.
const AHEAD_BYTES: u64 = 16 << 20;

/// The thread backs pieces that end at multiples of this. The page cache holds a piece as one, and a
/// sync writes all of it for a record.
const PIECE_BYTES: u64 = 64 << 10;

/// Bytes a writer backs when the thread has not come by.
const CATCH_UP_BYTES: u64 = 128 << 10;

/// No system's pages are larger, huge ones apart, which files don't get.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// The map of a segment.
#[derive(Debug)]
pub(super) struct AheadMap {
    map: Arc<dyn SegmentMap>,
    capacity: u64,
    /// Whether what isn't backed was never written.
    is_fresh: bool,
    backed: AtomicU64,
    /// Held while a piece is backed.
    backing: Mutex<()>,
    /// The thread was asked for more, and has not come by since.
    is_asked: AtomicBool,
    /// Everything before is prepared for being written back; a multiple of `PAGE_BYTES_MAX`.
    released: AtomicU64,
}

impl AheadMap {
    /// A map of `capacity` bytes, nothing of which is backed. Of a fresh file nothing but a segment's
    /// header was ever written.
    pub(super) fn new(map: Arc<dyn SegmentMap>, capacity: u64, is_fresh: bool) -> AheadMap {
        AheadMap {
            map,
            capacity,
            is_fresh,
            // The header's page comes with the first piece.
            backed: AtomicU64::new(SEGMENT_HEADER_BYTES),
            backing: Mutex::new(()),
            is_asked: AtomicBool::new(false),
            released: AtomicU64::new(0),
        }
    }

    /// The map for the next use of its segment's file: nothing of it is backed.
    pub(super) fn again(&self) -> AheadMap {
        AheadMap::new(self.map.clone(), self.capacity, false)
    }

    /// Backs everything before `end`.
    #[inline]
    pub(super) fn back_upto(&self, end: u64, path: &Path) -> Result<()> {
        if self.backed.load(Ordering::Acquire) >= end {
            return Ok(());
        }
        self.back(|backed| (backed < end).then(|| end.max(backed + CATCH_UP_BYTES)), path)?;
        Ok(())
    }

    /// Backs the next piece ahead of a writer that has come to `end`; false when it is far enough.
    pub(super) fn back_ahead(&self, end: u64, path: &Path) -> Result<bool> {
        let limit = self.capacity.min(end + AHEAD_BYTES);
        let piece =
            |backed: u64| (backed < limit).then(|| (backed + 1).next_multiple_of(PIECE_BYTES));
        let was_backed = self.back(piece, path)?;
        if !was_backed {
            self.is_asked.store(false, Ordering::Relaxed);
        }
        Ok(was_backed)
    }

    /// Whether the thread should come by, for a writer that has come to `end`; true once until it does.
    #[inline]
    pub(super) fn asks_for_more(&self, end: u64) -> bool {
        let backed = self.backed.load(Ordering::Relaxed);
        backed < self.capacity.min(end + AHEAD_BYTES / 2)
            && !self.is_asked.swap(true, Ordering::Relaxed)
    }

    /// Backs a piece up to where `wanted` says, told where the part that is backed ends; whether it said.
    #[cold]
    fn back(&self, wanted: impl FnOnce(u64) -> Option<u64>, path: &Path) -> Result<bool> {
        let _backing = self.backing.lock();
        let from = self.backed.load(Ordering::Acquire);
        let Some(end) = wanted(from) else { return Ok(false) };
        let end = end.min(self.capacity);
        let populated = match self.is_fresh {
            true => self.map.populate_zeros(from, end - from),
            false => self.map.populate(from, end - from),
        };
        populated.map_err(|source| Error::io("populate", path, source))?;
        self.backed.store(end, Ordering::Release);
        Ok(true)
    }

    /// Prepares everything before `end` for being written back. Requires: nothing is stored there any
    /// more.
    pub(super) fn release_upto(&self, end: u64) {
        // The page that the next record starts in is still stored in.
        let end = end / PAGE_BYTES_MAX * PAGE_BYTES_MAX;
        let released = self.released.fetch_max(end, Ordering::AcqRel);
        if released < end {
            self.map.release(released, end - released);
        }
    }

    /// Stores bytes. Requires: as `SegmentMap::write`, and `back_upto` their end.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        debug_assert!(offset + bytes.len() as u64 <= self.backed.load(Ordering::Acquire));
        self.map.write(offset, bytes);
    }

    /// The bytes of a range that was written.
    pub(super) fn slice(&self, offset: u64, len: usize) -> Bytes {
        self.map.slice(offset, len)
    }

    /// Asks the processor for a range that will be read soon.
    pub(super) fn prefetch(&self, offset: u64, len: usize) {
        self.map.prefetch(offset, len);
    }

    /// Whether a slice still lives.
    pub(super) fn is_shared(&self) -> bool {
        self.map.is_shared()
    }
}
