//! Entries that look-ups found lately, by the place in a table where they stand.
//!
//! It stands between a table's point index and the block that the index names: a key that is read
//! again costs no block. Invariant: an answer is what the block would have said. A table never
//! changes and its id is never used again, so nothing is ever invalidated: flushes, compactions and
//! removed tables only leave entries that nobody asks for, until others take their slots. What is
//! newer, deleted by range, expired or moved by a collection is decided by the caller, as for any entry.
//!
//! Each place has one slot. A key is kept when its slot meets it twice in a row, so that keys that
//! are read once cost no copy.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::head::{Body, Entry};

/// An entry with more bytes than this in key, value and attributes is not kept: reading it takes so
/// long that finding its block matters little.
const ENTRY_BYTES_MAX: usize = 1024;

/// Bytes of the capacity for each slot: the slot, and what a small entry needs besides.
const BYTES_PER_SLOT: usize = 320;

/// What an allocation takes besides its bytes, about: the allocator's part and the count of users.
const ALLOCATION_BYTES: usize = 48;

/// Entries that look-ups found lately.
#[derive(Debug)]
pub struct RecentKeys {
    /// Of each slot: in the upper half the tag of the key in it, in the lower that of the last it met.
    /// Only hints, so that a miss takes no lock.
    tags: Box<[AtomicU64]>,
    slots: Box<[Mutex<Option<Recent>>]>,
    copy_bytes: AtomicUsize,
    copy_bytes_max: usize,
}

/// A process-unique id for one opening of one table.
pub fn next_table_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Where an entry stands: the id of its table, and the place that the point index names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPlace {
    /// From [`next_table_id`].
    pub table_id: u64,
    /// Block and slot in it, as one number.
    pub place: u32,
}

#[derive(Debug)]
struct Recent {
    place: EntryPlace,
    key: Bytes,
    entry: Entry,
}

impl Recent {
    /// A copy that holds no other memory than its own: a block must not stay for one entry.
    fn copy(place: EntryPlace, key: &[u8], entry: &Entry) -> Recent {
        let mut bytes = Vec::with_capacity(copied_bytes(key, entry));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&entry.attributes);
        if let Body::Inline(value) = &entry.body {
            bytes.extend_from_slice(value);
        }
        let bytes = Bytes::from(bytes);
        let attributes_end = key.len() + entry.attributes.len();
        let attributes = bytes.slice(key.len()..attributes_end);
        let body = match &entry.body {
            Body::Inline(_) => Body::Inline(bytes.slice(attributes_end..)),
            other => other.clone(),
        };
        let entry = Entry { attributes, body, ..*entry };
        Recent { place, key: bytes.slice(..key.len()), entry }
    }

    fn bytes(&self) -> usize {
        copied_bytes(&self.key, &self.entry) + ALLOCATION_BYTES
    }
}

fn copied_bytes(key: &[u8], entry: &Entry) -> usize {
    let inline = if let Body::Inline(value) = &entry.body { value.len() } else { 0 };
    key.len() + entry.attributes.len() + inline
}

impl RecentKeys {
    /// Holds at most `capacity_bytes`; too few for one slot: keeps nothing.
    pub fn new(capacity_bytes: usize) -> RecentKeys {
        // Slots are found by 32 bits of a hash.
        let slots = (capacity_bytes / BYTES_PER_SLOT).min(u32::MAX as usize);
        let fixed = slots * (size_of::<Mutex<Option<Recent>>>() + size_of::<AtomicU64>());
        RecentKeys {
            tags: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            slots: (0..slots).map(|_| Mutex::new(None)).collect(),
            copy_bytes: AtomicUsize::new(0),
            copy_bytes_max: capacity_bytes.saturating_sub(fixed),
        }
    }

    /// The entry of `key` at a place, if it is kept. `hash` is `key::hash` of the key.
    #[inline]
    pub fn get(&self, place: EntryPlace, hash: u64, key: &[u8]) -> Option<Entry> {
        let (at, tag) = self.slot_of(place, hash)?;
        if self.tags[at].load(Ordering::Relaxed) >> 32 != tag {
            return None;
        }
        // Whoever holds it is about to change it, or reads the same key: the block serves as well.
        let slot = self.slots[at].try_lock()?;
        let recent = slot.as_ref().filter(|recent| recent.place == place && recent.key == key)?;
        Some(recent.entry.clone())
    }

    /// Tells of an entry that was found in a block; it is kept if it was the last its slot was told of.
    /// Requires: the block passed its checksum, and `entry` is the one that stands at `place`.
    #[inline]
    pub fn note(&self, place: EntryPlace, hash: u64, key: &[u8], entry: &Entry) {
        let Some((at, tag)) = self.slot_of(place, hash) else { return };
        let tags = self.tags[at].load(Ordering::Relaxed);
        if tags & u64::from(u32::MAX) != tag {
            // A tag that is lost to another thread's costs one more look into the block.
            self.tags[at].store(tags >> 32 << 32 | tag, Ordering::Relaxed);
        } else {
            self.keep(at, tag, place, key, entry);
        }
    }

    #[cold]
    fn keep(&self, at: usize, tag: u64, place: EntryPlace, key: &[u8], entry: &Entry) {
        let bytes = copied_bytes(key, entry);
        if bytes > ENTRY_BYTES_MAX {
            return;
        }
        let Some(mut slot) = self.slots[at].try_lock() else { return };
        let before = slot.as_ref().map_or(0, Recent::bytes);
        let after = bytes + ALLOCATION_BYTES;
        if self.copy_bytes.fetch_add(after, Ordering::Relaxed) + after
            > self.copy_bytes_max + before
        {
            self.copy_bytes.fetch_sub(after, Ordering::Relaxed);
            return;
        }
        *slot = Some(Recent::copy(place, key, entry));
        self.copy_bytes.fetch_sub(before, Ordering::Relaxed);
        self.tags[at].store(tag << 32 | tag, Ordering::Relaxed);
    }

    /// The slot of a place, and the tag of the key there; `None` when there are no slots.
    #[inline]
    fn slot_of(&self, place: EntryPlace, hash: u64) -> Option<(usize, u64)> {
        // Another table's entry of the same key has another slot (multiplier: Knuth, 2^64 / phi).
        let mixed = hash ^ place.table_id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = ((mixed >> 32) * self.slots.len() as u64) >> 32;
        (!self.slots.is_empty()).then_some((at as usize, mixed & u64::from(u32::MAX) | 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::hash;

    const PLACE: EntryPlace = EntryPlace { table_id: 7, place: 65 };

    fn entry(seqno: u64, value: Vec<u8>) -> Entry {
        Entry {
            seqno,
            written_at_ms: 5,
            expires_at_ms: 9,
            attributes: Bytes::from_static(b"attributes"),
            body: Body::Inline(value.into()),
        }
    }

    fn note_twice(recent: &RecentKeys, place: EntryPlace, key: &[u8], entry: &Entry) {
        recent.note(place, hash(key), key, entry);
        recent.note(place, hash(key), key, entry);
    }

    #[test]
    fn a_key_read_twice_is_answered_with_the_same_entry() {
        let recent = RecentKeys::new(64 << 10);
        let entry = entry(3, b"value".to_vec());
        recent.note(PLACE, hash(b"key"), b"key", &entry);
        assert_eq!(recent.get(PLACE, hash(b"key"), b"key"), None, "read once");
        recent.note(PLACE, hash(b"key"), b"key", &entry);
        assert_eq!(recent.get(PLACE, hash(b"key"), b"key"), Some(entry));
    }

    #[test]
    fn another_table_place_or_key_is_not_answered() {
        // One slot, and hashes that all agree: only what is kept in the slot tells them apart.
        let recent = RecentKeys::new(BYTES_PER_SLOT);
        note_twice(&recent, PLACE, b"key", &entry(3, Vec::new()));
        let hash = hash(b"key");
        assert!(recent.get(PLACE, hash, b"key").is_some());
        assert_eq!(recent.get(PLACE, hash, b"kez"), None);
        assert_eq!(recent.get(EntryPlace { place: 66, ..PLACE }, hash, b"key"), None);
        assert_eq!(recent.get(EntryPlace { table_id: 8, ..PLACE }, hash, b"key"), None);
    }

    #[test]
    fn copies_stay_within_the_capacity() {
        for capacity in [0, 100, 1000, 20_000, 1 << 20] {
            let recent = RecentKeys::new(capacity);
            for at in 0..20_000u64 {
                let entry = entry(1, vec![7; (at % 1200) as usize]);
                note_twice(&recent, PLACE, &at.to_le_bytes(), &entry);
            }
            let kept =
                recent.slots.iter().filter_map(|slot| slot.lock().as_ref().map(Recent::bytes));
            let kept: usize = kept.sum();
            assert_eq!(kept, recent.copy_bytes.load(Ordering::Relaxed));
            assert!(kept <= recent.copy_bytes_max && recent.copy_bytes_max <= capacity);
            assert!(kept > 0 || capacity < 1000, "{capacity} bytes keep something");
        }
    }
}
