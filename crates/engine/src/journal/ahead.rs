//! A segment's map, and how much of it is backed by memory and disk space already.
//!
//! Invariant: what is stored lies in the part that is backed, so that a full or failing disk is an
//! error of `populate`, never a signal in the middle of a store. A thread works ahead of the writer, a
//! piece at a time: it writes zeros over what was never written, far ahead, and has pages mapped, a
//! little ahead; a writer that catches up does both for a small piece. It stays so far ahead and no
//! further, because a sync writes all that was zeroed, and takes away the permission to store in each
//! page that is mapped, which costs an interrupt then and a fault later. What a file that is used again
//! held is in memory mostly, and is stored over; where the system has taken the memory away, it is written
//! over with zeros, instead of being read from the disk for nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::segment_header::SEGMENT_HEADER_BYTES;
use crate::error::{Error, Result};
use crate::vfs::{PIECE_BYTES, SegmentMap};

/// Bytes that are written with zeros before they are needed.
const ZEROED_AHEAD_BYTES: u64 = 4 << 20;

/// Bytes that are backed before they are needed.
const BACKED_AHEAD_BYTES: u64 = 512 << 10;

/// Pages are mapped in pieces that end at multiples of this.
const MAPPED_PIECE_BYTES: u64 = 64 << 10;

/// Bytes a writer backs when the thread has not come by.
const CATCH_UP_BYTES: u64 = 128 << 10;

/// Bytes that the processor is asked for behind each record. The zeros there were written on another
/// one; each line that a store waits for holds up the release of the lock that orders writes, which waits
/// for all stores: fills and overwrites of 100 bytes take 0.95 of the processor time.
const EXPECTED_BYTES: u64 = 320;

/// No system's pages are larger, huge ones apart, which files don't get.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// The map of a segment.
#[derive(Debug)]
pub(super) struct AheadMap {
    map: Arc<dyn SegmentMap>,
    capacity: u64,
    /// The file was a segment before, so that it holds bytes which nobody needs.
    is_used: bool,
    /// Everything before was written, with zeros at least. Changes with `backing` held.
    zeroed: AtomicU64,
    /// Everything before can be stored in; at most `zeroed`.
    backed: AtomicU64,
    /// Held while a piece is backed.
    backing: Mutex<()>,
    /// The thread was asked for more, and has not come by since.
    is_asked: AtomicBool,
    /// Everything before is prepared for being written back; a multiple of `PAGE_BYTES_MAX`.
    released: AtomicU64,
}

impl AheadMap {
    /// A map of `capacity` bytes of a new file, of which nothing but a segment's header was ever written:
    /// nothing is backed, and `zero_ahead` has zeros written over the rest.
    pub(super) fn new(map: Arc<dyn SegmentMap>, capacity: u64, zero_ahead: bool) -> AheadMap {
        let zeroed = if zero_ahead { SEGMENT_HEADER_BYTES } else { capacity };
        AheadMap::zeroed_upto(zeroed, map, capacity, false)
    }

    /// A map of a file that was a segment before, all over which something was written: nothing is backed.
    pub(super) fn of_used(map: Arc<dyn SegmentMap>, capacity: u64) -> AheadMap {
        AheadMap::zeroed_upto(capacity, map, capacity, true)
    }

    /// The map for the next use of its segment's file.
    pub(super) fn again(&self) -> AheadMap {
        AheadMap::of_used(self.map.clone(), self.capacity)
    }

    fn zeroed_upto(
        zeroed: u64,
        map: Arc<dyn SegmentMap>,
        capacity: u64,
        is_used: bool,
    ) -> AheadMap {
        AheadMap {
            map,
            capacity,
            is_used,
            zeroed: AtomicU64::new(zeroed),
            // The header's page comes with the first piece.
            backed: AtomicU64::new(SEGMENT_HEADER_BYTES),
            backing: Mutex::new(()),
            is_asked: AtomicBool::new(false),
            released: AtomicU64::new(0),
        }
    }

    /// Backs everything before `end`.
    #[inline]
    pub(super) fn back_upto(&self, end: u64, path: &Path) -> Result<()> {
        match self.backed.load(Ordering::Acquire) >= end {
            true => Ok(()),
            false => self.catch_up(end, path),
        }
    }

    /// Backs a small piece that the thread has not come by for.
    #[cold]
    fn catch_up(&self, end: u64, path: &Path) -> Result<()> {
        let _backing = self.backing.lock();
        let backed = self.backed.load(Ordering::Acquire);
        if backed >= end {
            return Ok(());
        }
        self.back(end.max(backed + CATCH_UP_BYTES).min(self.capacity), path)
    }

    /// Does the next piece ahead of a writer that has come to `end`; false when all is far enough.
    pub(super) fn back_ahead(&self, end: u64, path: &Path) -> Result<bool> {
        let _backing = self.backing.lock();
        let is_near = |done: u64, ahead: u64| done < self.capacity.min(end + ahead);
        let backed = self.backed.load(Ordering::Acquire);
        let zeroed = self.zeroed.load(Ordering::Relaxed);
        if is_near(backed, BACKED_AHEAD_BYTES) {
            self.back((backed + 1).next_multiple_of(MAPPED_PIECE_BYTES).min(self.capacity), path)?;
        } else if is_near(zeroed, ZEROED_AHEAD_BYTES) {
            self.zero(zeroed + 1, path)?;
        } else {
            self.is_asked.store(false, Ordering::Relaxed);
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether the thread should come by, for a writer that has come to `end`; true once until it does.
    #[inline]
    pub(super) fn asks_for_more(&self, end: u64) -> bool {
        let backed = self.backed.load(Ordering::Relaxed);
        backed < self.capacity.min(end + BACKED_AHEAD_BYTES / 2)
            && !self.is_asked.swap(true, Ordering::Relaxed)
    }

    /// Writes zeros over what was never written, up to the end of the piece of the page cache that `end`
    /// is in. Requires: `backing` is held.
    fn zero(&self, end: u64, path: &Path) -> Result<()> {
        let from = self.zeroed.load(Ordering::Relaxed);
        if from < end {
            let end = end.next_multiple_of(PIECE_BYTES).min(self.capacity);
            let zeroed = self.map.write_zeros(from, end - from);
            zeroed.map_err(|source| Error::io("populate", path, source))?;
            self.zeroed.store(end, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Has everything before `end` stored in from now on. Requires: `backing` is held.
    fn back(&self, end: u64, path: &Path) -> Result<()> {
        let from = self.backed.load(Ordering::Acquire);
        let is_new = self.zeroed.load(Ordering::Relaxed) < self.capacity;
        if self.is_used && !is_new && !self.map.is_resident(from, end - from) {
            // What is behind it is likely to have gone too: from here on the file is as a new one.
            self.zeroed.store(from, Ordering::Relaxed);
        }
        self.zero(end, path)?;
        let populated = self.map.populate(from, end - from);
        populated.map_err(|source| Error::io("populate", path, source))?;
        self.backed.store(end, Ordering::Release);
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

    /// The same where it stands, if it can be lent.
    pub(super) fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.map.lend(offset, len)
    }

    /// Asks the processor for a range that will be read soon.
    pub(super) fn prefetch(&self, offset: u64, len: usize) {
        self.map.prefetch(offset, len);
    }

    /// Asks the processor for what the next record will be stored in, behind one that ends at `end`.
    #[inline]
    pub(super) fn expect_after(&self, end: u64) {
        let len = EXPECTED_BYTES.min(self.capacity.saturating_sub(end));
        self.map.prefetch_for_writing(end, len as usize);
    }

    /// Whether a slice still lives.
    pub(super) fn is_shared(&self) -> bool {
        self.map.is_shared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// A map of a file some of which is not in memory; it notes what is done with it.
    #[derive(Debug)]
    struct Paged {
        gone_from: u64,
        done: Mutex<Vec<(&'static str, u64, u64)>>,
    }

    impl SegmentMap for Paged {
        fn populate(&self, offset: u64, len: u64) -> io::Result<()> {
            self.done.lock().push(("populate", offset, offset + len));
            Ok(())
        }
        fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
            self.done.lock().push(("zeros", offset, offset + len));
            Ok(())
        }
        fn is_resident(&self, offset: u64, len: u64) -> bool {
            offset + len <= self.gone_from
        }
        fn write(&self, _offset: u64, _bytes: &[u8]) {}
        fn slice(&self, _offset: u64, _len: usize) -> Bytes {
            Bytes::new()
        }
        fn release(&self, _offset: u64, _len: u64) {}
        fn is_shared(&self) -> bool {
            false
        }
    }

    #[test]
    fn what_has_left_memory_is_written_over_and_not_read() {
        const KIB: u64 = 1 << 10;
        let map = Arc::new(Paged { gone_from: 192 * KIB, done: Mutex::default() });
        let ahead = AheadMap::of_used(map.clone(), 1 << 20);
        while ahead.back_ahead(0, Path::new("segment")).unwrap() {}
        let done = std::mem::take(&mut *map.done.lock());
        let at_first = [
            ("populate", SEGMENT_HEADER_BYTES, 64 * KIB),
            ("populate", 64 * KIB, 128 * KIB),
            ("populate", 128 * KIB, 192 * KIB),
            ("zeros", 192 * KIB, 256 * KIB),
            ("populate", 192 * KIB, 256 * KIB),
            ("zeros", 256 * KIB, 512 * KIB),
            ("populate", 256 * KIB, 320 * KIB),
        ];
        assert_eq!(done[..at_first.len()], at_first);
        let zeros = done.iter().filter(|(what, ..)| *what == "zeros");
        assert_eq!(zeros.map(|(_, from, end)| end - from).sum::<u64>(), (1 << 20) - 192 * KIB);

        let resident = Arc::new(Paged { gone_from: u64::MAX, done: Mutex::default() });
        let ahead = AheadMap::of_used(resident.clone(), 1 << 20);
        while ahead.back_ahead(0, Path::new("segment")).unwrap() {}
        assert!(resident.done.lock().iter().all(|(what, ..)| *what == "populate"));
    }
}
