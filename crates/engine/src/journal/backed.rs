//! A segment's map, and how much of it is backed by memory and disk space already.
//!
//! Invariant: what is stored lies in the part that is backed, so that a full or failing disk is an
//! error of `populate`, never a signal in the middle of a store. The writer backs a piece once it comes to
//! the end of the last, and nobody does it ahead: a thread that writes zeros has to be waited for where the
//! writer meets it, on a busy machine for as long as it waits for a processor itself. What a file that is
//! used again held is in memory mostly, and is stored over; where the system has taken the memory away, it
//! is written over with zeros, instead of being read from the disk for nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::segment_header::SEGMENT_HEADER_BYTES;
use crate::error::{Error, Result};
use crate::vfs::SegmentMap;

/// Bytes that are backed at a time, up to a multiple of this. The page cache makes a page of each: with 64 KiB
/// `fillrandom` of 100 bytes takes 0.694 us, with 256 KiB 0.669. A put waits for each: with 64, 128 and 256 KiB
/// the p99 of overwrites of 4 KiB is 20, 31 and 53 us.
const BACKED_BYTES: u64 = 128 << 10;

/// Bytes that the processor is asked for behind each record. Each line that a store waits for holds up the
/// release of the lock that orders writes, which waits for all stores: where another core had written the
/// zeros there, fills and overwrites of 100 bytes took 0.95 of the processor time with it.
const EXPECTED_BYTES: u64 = 320;

/// No system's pages are larger, huge ones apart, which a file written in such pieces doesn't get.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// What a segment's file holds where nothing was stored yet, and so how that is backed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing was ever written: zeros are, which makes backing it far cheaper.
    Nothing,
    /// The same, of a segment whose every record is synced: a sync would write the zeros too.
    Unwritten,
    /// It was a segment: bytes that nobody needs, in memory or not.
    Used,
}

/// The map of a segment.
#[derive(Debug)]
pub(super) struct BackedMap {
    map: Arc<dyn SegmentMap>,
    capacity: u64,
    before: Before,
    /// Everything before can be stored in.
    backed: AtomicU64,
    /// Everything before is prepared for being written back; a multiple of `PAGE_BYTES_MAX`.
    released: AtomicU64,
}

impl BackedMap {
    /// A map of `capacity` bytes of a file that holds this behind a segment's header; nothing is backed.
    pub(super) fn new(map: Arc<dyn SegmentMap>, capacity: u64, before: Before) -> BackedMap {
        BackedMap {
            map,
            capacity,
            before,
            // The header's page comes with the first piece.
            backed: AtomicU64::new(SEGMENT_HEADER_BYTES),
            released: AtomicU64::new(0),
        }
    }

    /// The map for the next use of its segment's file.
    pub(super) fn again(&self) -> BackedMap {
        BackedMap::new(self.map.clone(), self.capacity, Before::Used)
    }

    /// Backs everything before `end`. Requires: one thread at a time.
    #[inline]
    pub(super) fn back_upto(&self, end: u64, path: &Path) -> Result<()> {
        let from = self.backed.load(Ordering::Acquire);
        if from >= end { Ok(()) } else { self.back(from, end, path) }
    }

    /// Backs the next piece, or as many as a large record takes.
    #[cold]
    fn back(&self, from: u64, end: u64, path: &Path) -> Result<()> {
        let upto = end.next_multiple_of(BACKED_BYTES).min(self.capacity);
        let needs_zeros = match self.before {
            Before::Nothing => true,
            Before::Unwritten => false,
            Before::Used => !self.map.is_resident(from, upto - from),
        };
        let zeroed = if needs_zeros { self.map.write_zeros(from, upto - from) } else { Ok(()) };
        let populated = zeroed.and_then(|()| self.map.populate(from, upto - from));
        populated.map_err(|source| Error::io("populate", path, source))?;
        self.backed.store(upto, Ordering::Release);
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

    /// Stores parts. Requires: as `SegmentMap::write_parts`, and `back_upto` their end.
    #[inline]
    pub(super) fn write_parts(&self, offset: u64, parts: &[&[u8]]) {
        debug_assert!({
            let bytes: usize = parts.iter().map(|part| part.len()).sum();
            offset + bytes as u64 <= self.backed.load(Ordering::Acquire)
        });
        self.map.write_parts(offset, parts);
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
    use parking_lot::Mutex;
    use std::io;

    const KIB: u64 = 1 << 10;

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
        fn write_parts(&self, _offset: u64, _parts: &[&[u8]]) {}
        fn slice(&self, _offset: u64, _len: usize) -> Bytes {
            Bytes::new()
        }
        fn release(&self, _offset: u64, _len: u64) {}
        fn is_shared(&self) -> bool {
            false
        }
    }

    /// What is done with a map whose file holds this, of which so much is in memory, while it is stored in.
    fn backing(before: Before, gone_from: u64) -> Vec<(&'static str, u64, u64)> {
        let map = Arc::new(Paged { gone_from, done: Mutex::default() });
        let backed = BackedMap::new(map.clone(), 600 * KIB, before);
        // Two records in a piece, one across its end, one of several pieces, and the last.
        for end in [10 * KIB, 20 * KIB, 140 * KIB, 380 * KIB, 600 * KIB] {
            backed.back_upto(end, Path::new("segment")).unwrap();
        }
        std::mem::take(&mut *map.done.lock())
    }

    const PIECES: [(u64, u64); 4] = [
        (SEGMENT_HEADER_BYTES, 128 * KIB),
        (128 * KIB, 256 * KIB),
        (256 * KIB, 384 * KIB),
        (384 * KIB, 600 * KIB),
    ];

    #[test]
    fn a_piece_is_backed_when_a_record_comes_to_it_with_zeros_if_it_is_new() {
        let populated = PIECES.map(|(from, end)| ("populate", from, end));
        assert_eq!(backing(Before::Unwritten, 0), populated);
        let zeroed = PIECES.map(|(from, end)| [("zeros", from, end), ("populate", from, end)]);
        assert_eq!(backing(Before::Nothing, u64::MAX), zeroed.concat());
    }

    #[test]
    fn what_has_left_memory_is_written_over_and_not_read() {
        assert!(backing(Before::Used, u64::MAX).iter().all(|(what, ..)| *what == "populate"));
        let done = backing(Before::Used, 384 * KIB);
        let zeros = done.iter().filter(|(what, ..)| *what == "zeros");
        assert_eq!(zeros.collect::<Vec<_>>(), [&("zeros", 384 * KIB, 600 * KIB)]);
    }
}
