//! From a key's hash to its newest record: an open-addressed table that is read while it is written.
//!
//! A slot holds the upper half of the hash and the record's number. Its home is given by the topmost
//! bits of that half, so that growing moves slots without looking at keys, and in their order. One
//! thread writes at a time. Each table is twice as large as the one before, and all live as long as the
//! index: readers take the table that was newest when they came, for one load, and it holds everything
//! that was published to them, as a newer table only adds.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::arena::RecordRef;
use crate::vfs::prefetch::prefetch;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 64;
/// Tables from the smallest to one with a slot for every tag.
const TABLES: usize = 27;
/// Slots of a page of memory.
const PAGE_SLOTS: usize = 4096 / size_of::<AtomicU64>();
/// At most half of the slots are asked for, and they are a power of two.
pub(super) const BYTES_PER_KEY_MAX: usize = 4 * size_of::<AtomicU64>();
/// What an empty slot holds; numbers are stored one higher.
const EMPTY: u64 = 0;

/// From a key's hash to its newest record.
#[derive(Debug)]
pub(super) struct Index {
    /// Those up to `newest` are there, but for the ones before the first.
    tables: [OnceLock<Table>; TABLES],
    newest: AtomicUsize,
    bytes: AtomicUsize,
}

#[derive(Debug)]
struct Table {
    slots: Box<[AtomicU64]>,
    /// Upper bits of a tag beyond those that name its home.
    shift: u32,
}

impl Table {
    /// The table of this number.
    fn new(number: usize) -> Table {
        let slots = SLOTS_MIN << number;
        let shift = 32 - slots.ilog2();
        let slots: Box<[AtomicU64]> = (0..slots).map(|_| AtomicU64::new(EMPTY)).collect();
        // A page that is read first is given as a shared one of zeros, and taken back from every
        // processor when it is written to. So each is written to now.
        for slot in slots.iter().step_by(PAGE_SLOTS).chain(slots.last()) {
            slot.store(EMPTY, Ordering::Relaxed);
        }
        Table { slots, shift }
    }

    /// The first slot that `wanted` accepts, or the empty one that ends the search.
    #[inline]
    fn find(&self, tag: u32, wanted: impl Fn(RecordRef) -> bool) -> (usize, Option<RecordRef>) {
        let mut at = (tag >> self.shift) as usize;
        loop {
            let slot = self.slots[at].load(Ordering::Acquire);
            if slot == EMPTY {
                return (at, None);
            }
            if (slot >> 32) as u32 == tag {
                let record = RecordRef::from_number(slot as u32 - 1);
                if wanted(record) {
                    return (at, Some(record));
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn bytes(&self) -> usize {
        self.slots.len() * size_of::<AtomicU64>()
    }

    fn set(&self, at: usize, tag: u32, record: RecordRef) {
        let slot = u64::from(tag) << 32 | u64::from(record.number() + 1);
        self.slots[at].store(slot, Ordering::Release);
    }

    /// Puts in what a smaller table holds.
    fn take_in(&self, smaller: &Table) {
        for slot in &smaller.slots {
            let slot = slot.load(Ordering::Relaxed);
            if slot != EMPTY {
                let tag = (slot >> 32) as u32;
                let (at, _) = self.find(tag, |_| false);
                self.set(at, tag, RecordRef::from_number(slot as u32 - 1));
            }
        }
    }
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Where a record goes.
#[derive(Debug)]
pub(super) struct Place {
    at: usize,
    /// The record that is there now, of the same key.
    pub(super) record: Option<RecordRef>,
}

impl Index {
    /// An index with room for about so many keys before it grows, of at most `BYTES_PER_KEY_MAX` each.
    pub(super) fn with_room_for(keys: usize) -> Index {
        let slots = (keys * 2).next_power_of_two().max(SLOTS_MIN);
        let newest = ((slots / SLOTS_MIN).ilog2() as usize).min(TABLES - 1);
        let tables = [const { OnceLock::new() }; TABLES];
        let bytes = tables[newest].get_or_init(|| Table::new(newest)).bytes();
        Index { tables, newest: AtomicUsize::new(newest), bytes: AtomicUsize::new(bytes) }
    }

    #[inline]
    fn newest(&self) -> &Table {
        self.tables[self.newest.load(Ordering::Acquire)].get().expect("the newest table is there")
    }

    /// The newest record of the key with this hash that `is_key` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_key: impl Fn(RecordRef) -> bool) -> Option<RecordRef> {
        self.newest().find(tag(hash), is_key).1
    }

    /// Asks the processor for the place of a hash.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let table = self.newest();
        prefetch((&raw const table.slots[(tag(hash) >> table.shift) as usize]).cast());
    }

    /// Where the key's newest record is, or would be. Requires: one thread at a time from here to
    /// `put`.
    #[inline]
    pub(super) fn place(&self, hash: u64, is_key: impl Fn(RecordRef) -> bool) -> Place {
        let (at, record) = self.newest().find(tag(hash), is_key);
        Place { at, record }
    }

    /// Puts a record in its place; `keys` is how many keys there are with it.
    #[inline]
    pub(super) fn put(&self, place: &Place, hash: u64, record: RecordRef, keys: usize) {
        let table = self.newest();
        table.set(place.at, tag(hash), record);
        if keys * 2 > table.slots.len() {
            self.grow();
        }
    }

    #[cold]
    fn grow(&self) {
        // An arena doesn't number as many records as the largest table has room for.
        let next = self.newest.load(Ordering::Relaxed) + 1;
        let table = self.tables[next].get_or_init(|| {
            let table = Table::new(next);
            table.take_in(self.newest());
            table
        });
        self.bytes.fetch_add(table.bytes(), Ordering::Relaxed);
        self.newest.store(next, Ordering::Release);
    }

    /// Bytes of the tables.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes of which many share a tag.
    fn hash(key: u32) -> u64 {
        crate::key::hash(&(key / 3).to_le_bytes())
    }

    #[test]
    fn every_key_is_found_as_the_table_grows() {
        let index = Index::with_room_for(0);
        for key in 0..10_000 {
            let is_key = |record: RecordRef| record.number() == key;
            let place = index.place(hash(key), is_key);
            assert_eq!(place.record, None);
            index.put(&place, hash(key), RecordRef::from_number(key), key as usize + 1);
            assert!(index.find(hash(key), is_key).is_some());
        }
        for key in 0..10_000 {
            let found = index.find(hash(key), |record| record.number() == key);
            assert_eq!(found, Some(RecordRef::from_number(key)));
            assert_eq!(index.find(hash(key + 10_000), |record| record.number() == key), None);
        }
        assert!(index.bytes() >= 20_000 * 8 && index.bytes() <= 80_000 * 8, "{}", index.bytes());
    }

    #[test]
    fn a_newer_record_takes_the_place_of_the_older() {
        let index = Index::with_room_for(10);
        for number in 0..1000_u32 {
            let place = index.place(hash(5), |_| true);
            assert_eq!(place.record.map(RecordRef::number), number.checked_sub(1));
            index.put(&place, hash(5), RecordRef::from_number(number), 1);
        }
        assert_eq!(index.bytes(), SLOTS_MIN * 8);
    }
}
