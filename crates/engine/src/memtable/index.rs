//! From a key's hash to its newest record: tables of slots that are read while they are written.
//!
//! One thread writes at a time. Each table is twice as large as the one before, and all live as long as the
//! index: readers take the table that was newest when they came, for one load, and it holds everything
//! that was published to them, as a newer table only adds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::arena::RecordRef;
use super::slots::Slots;
use super::spares::SpareMemory;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 64;
/// Tables from the smallest to one with a slot for every tag.
const TABLES: usize = 27;

/// From a key's hash to its newest record.
#[derive(Debug)]
pub(super) struct Index {
    /// Those up to `newest` are there, but for the ones before the first.
    tables: [OnceLock<Slots>; TABLES],
    newest: AtomicUsize,
    bytes: AtomicUsize,
    /// Where tables come from, and the newest goes in the end.
    spares: Arc<SpareMemory>,
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

impl Drop for Index {
    fn drop(&mut self) {
        if let Some(slots) = self.tables[*self.newest.get_mut()].take() {
            self.spares.give_slots_back(slots);
        }
    }
}

impl Index {
    /// An index with room for about so many keys before it grows.
    pub(super) fn with_room_for(keys: usize, spares: Arc<SpareMemory>) -> Index {
        let slots = (keys * 2).next_power_of_two().max(SLOTS_MIN);
        let newest = ((slots / SLOTS_MIN).ilog2() as usize).min(TABLES - 1);
        let tables = [const { OnceLock::new() }; TABLES];
        let bytes = tables[newest].get_or_init(|| spares.take_slots(SLOTS_MIN << newest)).bytes();
        Index { tables, newest: AtomicUsize::new(newest), bytes: AtomicUsize::new(bytes), spares }
    }

    #[inline]
    fn newest(&self) -> &Slots {
        self.tables[self.newest.load(Ordering::Acquire)].get().expect("the newest table is there")
    }

    /// The slot of the newest record that `is_key` accepts, or where it would be.
    #[inline]
    fn find_slot(
        &self,
        hash: u64,
        is_key: impl Fn(RecordRef) -> bool,
    ) -> (usize, Option<RecordRef>) {
        let is_key = |number| is_key(RecordRef::from_number(number));
        let (at, number) = self.newest().find(tag(hash), is_key);
        (at, number.map(RecordRef::from_number))
    }

    /// The newest record of the key with this hash that `is_key` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_key: impl Fn(RecordRef) -> bool) -> Option<RecordRef> {
        self.find_slot(hash, is_key).1
    }

    /// Asks the processor for the place of a hash.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.newest().prefetch(tag(hash));
    }

    /// Where the key's newest record is, or would be. Requires: one thread at a time from here to
    /// `put`.
    #[inline]
    pub(super) fn place(&self, hash: u64, is_key: impl Fn(RecordRef) -> bool) -> Place {
        let (at, record) = self.find_slot(hash, is_key);
        Place { at, record }
    }

    /// Puts a record in its place; `keys` is how many keys there are with it.
    #[inline]
    pub(super) fn put(&self, place: &Place, hash: u64, record: RecordRef, keys: usize) {
        let table = self.newest();
        table.set(place.at, tag(hash), record.number());
        if keys * 2 > table.count() {
            self.grow();
        }
    }

    #[cold]
    fn grow(&self) {
        // An arena doesn't number as many records as the largest table has room for.
        let next = self.newest.load(Ordering::Relaxed) + 1;
        let table = self.tables[next].get_or_init(|| {
            let table = self.spares.take_slots(SLOTS_MIN << next);
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
        let index = Index::with_room_for(0, Arc::new(SpareMemory::new(0)));
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
        let index = Index::with_room_for(10, Arc::new(SpareMemory::new(0)));
        for number in 0..1000_u32 {
            let place = index.place(hash(5), |_| true);
            assert_eq!(place.record.map(RecordRef::number), number.checked_sub(1));
            index.put(&place, hash(5), RecordRef::from_number(number), 1);
        }
        assert_eq!(index.bytes(), SLOTS_MIN * 8);
    }
}
