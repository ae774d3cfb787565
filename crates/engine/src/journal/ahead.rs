//! A segment's map, and how much of it is backed by memory and disk space already.
//!
//! Invariant: what is stored lies in the part that is backed, so that a full or failing disk is an
//! error of `populate`, never a signal in the middle of a store. A thread backs the map ahead of the
//! writer, a piece at a time; a writer that catches up backs a small piece itself. Measured under
//! load: backing 64 MiB at once takes 150 to 200 ms, which no writer should wait for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::vfs::SegmentMap;

/// Bytes the thread backs at a time.
const AHEAD_BYTES: u64 = 1 << 20;

/// Bytes a writer backs when the thread has not come by: half a millisecond's work.
const CATCH_UP_BYTES: u64 = 128 << 10;

/// No system's pages are larger, huge ones apart, which files don't get.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// The map of a segment.
#[derive(Debug)]
pub(super) struct AheadMap {
    map: Arc<dyn SegmentMap>,
    capacity: u64,
    backed: AtomicU64,
    /// Everything before is prepared for being written back; a multiple of `PAGE_BYTES_MAX`.
    released: AtomicU64,
}

impl AheadMap {
    /// A map of `capacity` bytes, nothing of which is backed.
    pub(super) fn new(map: Arc<dyn SegmentMap>, capacity: u64) -> AheadMap {
        let (backed, released) = (AtomicU64::new(0), AtomicU64::new(0));
        AheadMap { map, capacity, backed, released }
    }

    /// The map for the next use of its segment's file: nothing of it is backed.
    pub(super) fn again(&self) -> AheadMap {
        AheadMap::new(self.map.clone(), self.capacity)
    }

    /// Backs everything before `end`.
    pub(super) fn back_upto(&self, end: u64, path: &Path) -> Result<()> {
        loop {
            let backed = self.backed.load(Ordering::Acquire);
            if backed >= end {
                return Ok(());
            }
            self.back(backed, CATCH_UP_BYTES.max(end - backed), path)?;
        }
    }

    /// Backs the next piece; false when all is backed.
    pub(super) fn back_ahead(&self, path: &Path) -> Result<bool> {
        let backed = self.backed.load(Ordering::Acquire);
        if backed >= self.capacity {
            return Ok(false);
        }
        self.back(backed, AHEAD_BYTES, path)?;
        Ok(true)
    }

    /// Backs a piece. Two threads may back the same one: it changes no byte.
    fn back(&self, from: u64, len: u64, path: &Path) -> Result<()> {
        let len = len.min(self.capacity - from);
        self.map.populate(from, len).map_err(|source| Error::io("populate", path, source))?;
        self.backed.fetch_max(from + len, Ordering::AcqRel);
        Ok(())
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

    /// Whether a slice still lives.
    pub(super) fn is_shared(&self) -> bool {
        self.map.is_shared()
    }
}
