//! The slots of a memtable's index: an open-addressed table that one thread writes and any number read.
//!
//! A slot holds a tag, the upper half of a key's hash, and a record's number. Its home is given by the topmost
//! bits of the tag, so that growing moves slots without looking at keys, and in their order.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::vfs::prefetch::prefetch;

/// Slots of a page of memory.
const PAGE_SLOTS: usize = 4096 / size_of::<AtomicU64>();
/// What an empty slot holds; numbers are stored one higher.
const EMPTY: u64 = 0;

/// A table of slots.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[AtomicU64]>,
    /// Upper bits of a tag beyond those that name its home.
    shift: u32,
}

impl Slots {
    /// So many empty ones. Requires: a power of two.
    pub(super) fn new(count: usize) -> Slots {
        let slots: Box<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(EMPTY)).collect();
        // A page that is read first is given as a shared one of zeros, and taken back from every
        // processor when it is written to. So each is written to now.
        for slot in slots.iter().step_by(PAGE_SLOTS).chain(slots.last()) {
            slot.store(EMPTY, Ordering::Relaxed);
        }
        Slots { slots, shift: 32 - count.ilog2() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.count() * size_of::<AtomicU64>()
    }

    /// Empties all of them.
    pub(super) fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| *slot.get_mut() = EMPTY);
    }

    /// The first slot of this tag whose number `wanted` accepts, or the empty one that ends the search.
    #[inline]
    pub(super) fn find(&self, tag: u32, wanted: impl Fn(u32) -> bool) -> (usize, Option<u32>) {
        let mut at = self.home(tag);
        loop {
            let slot = self.slots[at].load(Ordering::Acquire);
            if slot == EMPTY {
                return (at, None);
            }
            if (slot >> 32) as u32 == tag {
                let number = slot as u32 - 1;
                if wanted(number) {
                    return (at, Some(number));
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Asks the processor for the home of a tag.
    #[inline]
    pub(super) fn prefetch(&self, tag: u32) {
        prefetch((&raw const self.slots[self.home(tag)]).cast());
    }

    /// Writes a slot. Requires: a number below 2^32 - 1.
    #[inline]
    pub(super) fn set(&self, at: usize, tag: u32, number: u32) {
        let slot = u64::from(tag) << 32 | u64::from(number + 1);
        self.slots[at].store(slot, Ordering::Release);
    }

    /// Puts in what a smaller table holds.
    pub(super) fn take_in(&self, smaller: &Slots) {
        for slot in &smaller.slots {
            let slot = slot.load(Ordering::Relaxed);
            if slot != EMPTY {
                let tag = (slot >> 32) as u32;
                let (at, _) = self.find(tag, |_| false);
                self.set(at, tag, slot as u32 - 1);
            }
        }
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        (tag >> self.shift) as usize
    }
}
