//! Whether values come from the disk at present.
//!
//! Through a map the disk gives a page at a time, each when it is touched: a value that lies in two pages is
//! two waits, one after the other. The system can be told before what is wanted, but where all is in memory
//! that costs more than the read. Nor does it see which pages of a map are used again and again. So now and then
//! a read is timed, and while they take as long as a disk does, and the system tells that the disk was read, what
//! they want is announced, and what they used is noted.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::vfs::{cycles, disk_reads};

/// Of values in memory, one in so many is timed.
const TIMED_ONE_IN: u32 = 32;

/// Of look-ups in tables that are in memory, one in so many: with one in 32 those of absent keys took 4 % longer.
const LOOKUPS_TIMED_ONE_IN: u64 = 256;

/// The disk is expected until so many reads in a row have not waited for it.
const READS_UNTIL_FORGOTTEN: u32 = 256;

/// So many reads after a wait it is a recent one.
const READS_RECENT: u32 = 8;

/// No value takes longer from memory, unless the processor is taken away: ten times what is usual.
const MEMORY_NS_MAX: u64 = 15_000;

/// Nor longer than this for each of its bytes.
const MEMORY_NS_PER_BYTE: f64 = 0.5;

/// Whether values come from the disk at present.
#[derive(Debug, Default)]
pub struct DiskWaits {
    /// Reads for which the disk is still expected.
    expected: AtomicU32,
}

impl DiskWaits {
    /// Whether the next value probably comes from the disk.
    #[inline]
    pub fn are_expected(&self) -> bool {
        self.expected.load(Ordering::Relaxed) > 0
    }

    /// Whether the disk was waited for a few reads ago, so that a microsecond more is little beside it.
    #[inline]
    pub fn are_recent(&self) -> bool {
        self.expected.load(Ordering::Relaxed) > READS_UNTIL_FORGOTTEN - READS_RECENT
    }

    /// Whether a look-up of a key with this hash is timed.
    #[inline]
    pub fn is_look_up_timed(&self, hash: u64) -> bool {
        self.are_expected() || hash.is_multiple_of(LOOKUPS_TIMED_ONE_IN)
    }

    /// Called before a value is read: the reading of the cycle counter, of those that are timed.
    /// `number` is any that differs from value to value.
    #[inline]
    pub fn begin(&self, number: u32) -> Option<u64> {
        (self.are_expected() || number.is_multiple_of(TIMED_ONE_IN)).then(cycles::now)
    }

    /// Called when `len` bytes were read, or a key looked up.
    #[inline]
    pub fn end(&self, begun: Option<u64>, len: u32) {
        if let Some(begun) = begun {
            let ns = cycles::to_ns(cycles::now().saturating_sub(begun));
            self.note(ns, len, disk_reads::since_last_asked);
        }
    }

    /// `disk_was_read` is asked only of reads that took as long as from a disk.
    #[cold]
    fn note(&self, ns: u64, len: u32, disk_was_read: impl FnOnce() -> bool) {
        let was_long = ns > MEMORY_NS_MAX + (f64::from(len) * MEMORY_NS_PER_BYTE) as u64;
        let waited = was_long && disk_was_read();
        // Threads that come at once may forget one read more or less.
        let left = self.expected.load(Ordering::Relaxed);
        let now = if waited { READS_UNTIL_FORGOTTEN } else { left.saturating_sub(1) };
        if now != left {
            self.expected.store(now, Ordering::Relaxed);
        }
    }

    /// Has the disk expected from now on, as after a wait.
    #[cfg(test)]
    pub(crate) fn expect(&self) {
        self.note(u64::MAX, 0, || true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_expected_after_a_wait_until_reads_no_longer_wait() {
        let waits = DiskWaits::default();
        assert!(waits.begin(1).is_none() && waits.begin(TIMED_ONE_IN).is_some());
        waits.note(MEMORY_NS_MAX, 0, || true);
        assert!(!waits.are_expected());
        waits.note(60_000, 4096, || true);
        assert!(waits.are_expected() && waits.begin(1).is_some());
        for _ in 1..READS_UNTIL_FORGOTTEN {
            waits.note(300, 4096, || true);
        }
        assert!(waits.are_expected());
        waits.note(300, 4096, || true);
        assert!(!waits.are_expected());
    }

    #[test]
    fn a_large_value_takes_its_time_from_memory_too() {
        let waits = DiskWaits::default();
        waits.note(60_000, 128 << 10, || true);
        assert!(!waits.are_expected());
        waits.note(600_000, 128 << 10, || true);
        assert!(waits.are_expected());
    }

    #[test]
    fn a_processor_taken_away_is_no_disk() {
        let waits = DiskWaits::default();
        waits.note(60_000, 4096, || false);
        assert!(!waits.are_expected());
        waits.expect();
        for _ in 0..READS_UNTIL_FORGOTTEN {
            waits.note(60_000, 4096, || false);
        }
        assert!(!waits.are_expected());
    }
}
