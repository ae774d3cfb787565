//! Table blocks in memory, verified and decompressed, shared by all stores of a process.
//!
//! A table holds a slot for each of its blocks, so that a block in memory is found by its number: no hash,
//! no lock, no count of users. A full cache takes a block only at its second miss within a while (as 2Q:
//! Johnson and Shasha, VLDB 1994), so that a scan, or reads all over a store far larger than the cache, turn
//! little over; what goes for it is chosen by a clock (Corbato, 1968). Invariant: what is in here passed its
//! checksum. Mapped, uncompressed tables don't use it: the page cache serves them.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{
    AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering,
};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapAny, Guard};
use parking_lot::Mutex;

use crate::block_memory::{BLOCK_OVERHEAD_BYTES, BlockMemory, SharedBlock};
use crate::recent_keys::RecentKeys;
use crate::vfs::thread_number::Count;

/// Memory of a cached block besides its bytes: its header, its place on the clock, the allocator's part.
const OVERHEAD_BYTES: u64 = (BLOCK_OVERHEAD_BYTES + size_of::<ClockPlace>()) as u64;

/// Bytes that are worth a lock of their own, and the most locks.
const SHARD_BYTES_MIN: u64 = 4 << 20;
const SHARDS_MAX: u64 = 16;

/// Lengths of blocks are noted in so many bytes, rounded down.
const LENGTH_UNIT: usize = 8;

/// The clock's hand passes a used block so often at most.
const USES_MAX: u8 = 3;

/// So many blocks in a row are passed for having been used; then one goes whatever its uses, so that no
/// insertion takes long.
const PASSED_MAX: usize = 64;

/// Blocks of tables, the least useful dropped first.
#[derive(Debug)]
pub struct BlockCache {
    shards: Box<[Shard]>,
    memory: Arc<BlockMemory>,
    recent_keys: RecentKeys,
    hits: Count,
    misses: Count,
}

impl BlockCache {
    /// An empty cache that holds at most `capacity_bytes`, of which `recent_keys_bytes`, but no more
    /// than half, are for recently read keys; 0 keeps nothing.
    pub fn new(capacity_bytes: usize, recent_keys_bytes: usize) -> Self {
        let recent_keys_bytes = recent_keys_bytes.min(capacity_bytes / 2);
        let block_bytes = (capacity_bytes - recent_keys_bytes) as u64;
        let shards = (block_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        BlockCache {
            shards: (0..shards).map(|_| Shard::new(block_bytes / shards)).collect(),
            memory: BlockMemory::new(),
            recent_keys: RecentKeys::new(recent_keys_bytes),
            hits: Count::default(),
            misses: Count::default(),
        }
    }

    /// Entries that look-ups found in blocks lately.
    pub fn recent_keys(&self) -> &RecentKeys {
        &self.recent_keys
    }

    /// Where its blocks are, with room for what else is read all over.
    pub(crate) fn memory(&self) -> &Arc<BlockMemory> {
        &self.memory
    }

    /// Bytes held now, bookkeeping included.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Look-ups that found their block.
    pub fn hits(&self) -> u64 {
        self.hits.sum()
    }

    /// Look-ups that did not.
    pub fn misses(&self) -> u64 {
        self.misses.sum()
    }

    /// Neighbours are read together, so they go to different locks.
    fn shard(&self, block: usize) -> &Shard {
        &self.shards[block % self.shards.len()]
    }
}

/// The blocks of one table that are in memory. They leave it with the table.
#[derive(Debug)]
pub struct TableBlocks {
    cache: Arc<BlockCache>,
    slots: Arc<[Slot]>,
}

/// The place of one block: half a cache line.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Slot {
    /// The block, from the first on; then replacing it waits for whoever may have loaded the one before.
    block: OnceLock<ArcSwapAny<Option<SharedBlock>>>,
    /// Of the block that came last, to ask the processor for it, and never read from: where its bytes are, and
    /// how many, in `LENGTH_UNIT`.
    front: AtomicPtr<u8>,
    length: AtomicU16,
    /// The block's last miss that did not bring it in, by the count of its shard; 0 for none.
    missed_at: AtomicU32,
    /// Times it was used since the clock's hand passed, at most `USES_MAX`.
    uses: AtomicU8,
}

const _: () = assert!(size_of::<Slot>() == 32, "two slots are a cache line");

impl Slot {
    #[inline]
    fn load(&self) -> Option<Guard<Option<SharedBlock>>> {
        let found = self.block.get()?.load();
        found.is_some().then_some(found)
    }

    /// Puts a block in. Where none ever was, nobody can have loaded one, for whom the debts of all threads
    /// would be looked through: 5 % of a server's time while its cache filled. Requires: the slot is empty, and
    /// the clock of its shard is locked.
    fn fill(&self, block: SharedBlock) {
        let mut block = Some(block);
        let place = self.block.get_or_init(|| ArcSwapAny::new(block.take()));
        if block.is_some() {
            place.store(block);
        }
    }

    fn take(&self) -> Option<SharedBlock> {
        self.block.get()?.swap(None)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // What is empty owns nothing, and dropping it would look through the debts of all threads.
        if let Some(place) = self.block.take()
            && place.load().is_none()
        {
            std::mem::forget(place);
        }
    }
}

/// A block that is in the cache, for as long as it is looked at.
#[derive(Debug)]
pub(crate) struct CachedBlock(Guard<Option<SharedBlock>>);

impl Deref for CachedBlock {
    type Target = SharedBlock;

    #[inline]
    fn deref(&self) -> &SharedBlock {
        self.0.as_ref().expect("only a block that is there is answered")
    }
}

impl TableBlocks {
    /// Of a table of so many blocks, none of which is in memory.
    pub fn new(cache: Arc<BlockCache>, block_count: usize) -> TableBlocks {
        TableBlocks { cache, slots: (0..block_count).map(|_| Slot::default()).collect() }
    }

    /// The block of a number, if it is in memory.
    #[inline]
    pub(crate) fn get(&self, block: usize) -> Option<CachedBlock> {
        let slot = self.slots.get(block)?;
        let Some(found) = slot.load() else {
            self.cache.misses.add_one();
            return None;
        };
        self.cache.hits.add_one();
        let uses = slot.uses.load(Ordering::Relaxed);
        if uses < USES_MAX {
            // A use that is lost to another thread's matters little.
            slot.uses.store(uses + 1, Ordering::Relaxed);
        }
        Some(CachedBlock(found))
    }

    /// Where a block's bytes are and about how many, to ask the processor for them before `get` waits for what
    /// stands before them. `None` where none was ever in memory.
    #[inline]
    pub fn expect(&self, block: usize) -> Option<(*const u8, usize)> {
        let slot = self.slots.get(block)?;
        let front = slot.front.load(Ordering::Relaxed);
        if front.is_null() {
            return None;
        }
        Some((front, usize::from(slot.length.load(Ordering::Relaxed)) * LENGTH_UNIT))
    }

    /// Tells of a block that was missed and read; whether a copy of it is kept is for the cache to say.
    /// Requires: its checksum was checked.
    pub fn offer(&self, block: usize, raw: &[u8]) {
        self.cache.shard(block).offer(&self.cache.memory, &self.slots, block, raw);
    }

    /// Memory of the slots themselves.
    pub fn slot_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
}

impl Drop for TableBlocks {
    fn drop(&mut self) {
        for (block, slot) in self.slots.iter().enumerate() {
            let shard = self.cache.shard(block);
            if shard.vacate(slot) {
                shard.orphans.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.cache.shards.iter().for_each(Shard::clean);
    }
}

/// What a block takes of the cache.
fn weight(raw: &[u8]) -> u64 {
    raw.len() as u64 + OVERHEAD_BYTES
}

/// Blocks under one lock.
#[derive(Debug)]
struct Shard {
    capacity_bytes: u64,
    /// Bytes of the blocks in slots.
    bytes: AtomicU64,
    /// Blocks that were offered to a full cache.
    offers: AtomicU32,
    /// Places on the clock whose block left with its table, about.
    orphans: AtomicI64,
    /// Every block in a slot, the next that the hand comes to first.
    clock: Mutex<VecDeque<ClockPlace>>,
}

/// A place on the clock: of a block in its slot, or of one that left with its table.
#[derive(Debug)]
struct ClockPlace {
    slots: Arc<[Slot]>,
    block: usize,
}

impl ClockPlace {
    fn slot(&self) -> &Slot {
        &self.slots[self.block]
    }
}

impl Shard {
    fn new(capacity_bytes: u64) -> Shard {
        Shard {
            capacity_bytes,
            bytes: AtomicU64::new(0),
            offers: AtomicU32::new(0),
            orphans: AtomicI64::new(0),
            clock: Mutex::default(),
        }
    }

    fn offer(&self, memory: &Arc<BlockMemory>, slots: &Arc<[Slot]>, block: usize, raw: &[u8]) {
        let (slot, weight) = (&slots[block], weight(raw));
        if weight > self.capacity_bytes {
            return;
        }
        let is_full = self.bytes.load(Ordering::Relaxed) + weight > self.capacity_bytes;
        if is_full && !self.comes_back(slot, weight) {
            return;
        }
        let mut clock = self.clock.lock();
        if slot.load().is_some() {
            return;
        }
        let Some(held) = memory.copy(raw) else { return };
        slot.uses.store(0, Ordering::Relaxed);
        let length = u16::try_from(raw.len() / LENGTH_UNIT).unwrap_or(u16::MAX);
        slot.length.store(length, Ordering::Relaxed);
        slot.front.store(held.as_ptr().cast_mut(), Ordering::Relaxed);
        slot.fill(held);
        self.bytes.fetch_add(weight, Ordering::Relaxed);
        clock.push_back(ClockPlace { slots: slots.clone(), block });
        self.make_room(&mut clock);
    }

    /// Whether the block was missed within as many misses as blocks of its weight fit in here; if not, this
    /// miss is noted.
    fn comes_back(&self, slot: &Slot, weight: u64) -> bool {
        let now = self.offers.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        let missed_at = slot.missed_at.load(Ordering::Relaxed);
        let blocks = self.capacity_bytes / weight;
        let comes_back = missed_at != 0 && u64::from(now.wrapping_sub(missed_at)) <= blocks;
        slot.missed_at.store(if comes_back { 0 } else { now }, Ordering::Relaxed);
        comes_back
    }

    fn make_room(&self, clock: &mut VecDeque<ClockPlace>) {
        let mut passed = 0;
        while self.bytes.load(Ordering::Relaxed) > self.capacity_bytes {
            let Some(place) = clock.pop_front() else { return };
            let uses = place.slot().uses.load(Ordering::Relaxed);
            if uses > 0 && passed < PASSED_MAX {
                passed += 1;
                place.slot().uses.store(uses - 1, Ordering::Relaxed);
                clock.push_back(place);
            } else if !self.vacate(place.slot()) {
                self.orphans.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Takes the block out of a slot; whether there was one.
    fn vacate(&self, slot: &Slot) -> bool {
        let Some(raw) = slot.take() else { return false };
        self.bytes.fetch_sub(weight(&raw), Ordering::Relaxed);
        true
    }

    /// Drops the places of blocks that left with their tables, once they are most.
    fn clean(&self) {
        let mut clock = self.clock.lock();
        let before = clock.len();
        if self.orphans.load(Ordering::Relaxed) * 2 <= before as i64 {
            return;
        }
        let places = std::mem::take(&mut *clock).into_iter();
        let (kept, gone): (VecDeque<_>, VecDeque<_>) =
            places.partition(|place| place.slot().load().is_some());
        *clock = kept;
        self.orphans.fetch_sub((before - clock.len()) as i64, Ordering::Relaxed);
        drop(clock);
        // With the last place of a table go its slots, for which no read should wait.
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(cache: &Arc<BlockCache>, blocks: usize) -> TableBlocks {
        let table = TableBlocks::new(cache.clone(), blocks);
        (0..blocks).for_each(|block| table.offer(block, &raw(block)));
        table
    }

    fn raw(block: usize) -> Vec<u8> {
        vec![block as u8; 1000]
    }

    fn held(table: &TableBlocks, blocks: std::ops::Range<usize>) -> usize {
        blocks.filter(|&block| table.get(block).is_some()).count()
    }

    #[test]
    fn a_block_is_found_by_its_number() {
        let cache = Arc::new(BlockCache::new(1 << 20, 0));
        let (a, b) = (TableBlocks::new(cache.clone(), 3), TableBlocks::new(cache.clone(), 3));
        a.offer(1, &raw(1));
        a.offer(1, &raw(2));
        assert!(a.get(0).is_none() && b.get(1).is_none());
        assert!(a.expect(0).is_none() && a.expect(3).is_none());
        let found = a.get(1).unwrap();
        assert_eq!(**found, *raw(1));
        assert_eq!(a.expect(1), Some((found.as_ptr(), 1000)));
        assert_eq!((cache.hits(), cache.misses()), (1, 2));
        assert_eq!(cache.bytes(), 1000 + OVERHEAD_BYTES);
    }

    #[test]
    fn bytes_held_stay_below_the_capacity() {
        for capacity in [0, 100, 10_000, 1 << 20, 20 << 20] {
            let cache = Arc::new(BlockCache::new(capacity, 0));
            let table = filled(&cache, 30_000);
            let (bytes, block) = (cache.bytes(), 1000 + OVERHEAD_BYTES);
            assert!(bytes <= capacity as u64, "{bytes} of {capacity}");
            assert!(bytes + 16 * block > capacity as u64, "{bytes} of {capacity}");
            assert_eq!(held(&table, 0..30_000) as u64, bytes / block);
        }
    }

    /// A table of 10,000 blocks of which the first, about 900, fill the cache, with how many.
    fn full() -> (TableBlocks, usize) {
        let cache = Arc::new(BlockCache::new(1 << 20, 0));
        let table = TableBlocks::new(cache, 10_000);
        let fit = (1 << 20) / (1000 + OVERHEAD_BYTES as usize);
        (0..fit).for_each(|block| table.offer(block, &raw(block)));
        assert_eq!(held(&table, 0..fit), fit);
        (table, fit)
    }

    #[test]
    fn what_is_read_once_does_not_displace_what_is_held() {
        let (table, fit) = full();
        (fit..10_000).for_each(|block| table.offer(block, &raw(block)));
        assert_eq!(held(&table, 0..10_000), fit);
        assert_eq!(held(&table, 0..fit), fit);
    }

    #[test]
    fn a_block_that_is_missed_twice_within_a_while_is_kept() {
        let (table, fit) = full();
        (5000..5000 + fit).for_each(|block| table.offer(block, &raw(block)));
        table.offer(5000, &raw(5000));
        assert!(table.get(5000).is_some());
        (6000..6000 + fit).for_each(|block| table.offer(block, &raw(block)));
        table.offer(5001, &raw(5001));
        assert!(table.get(5001).is_none(), "its first miss is too long ago");
    }

    #[test]
    fn the_clock_passes_blocks_that_are_used() {
        let (table, fit) = full();
        let used = [0, 5, fit - 1];
        for block in 5000..5000 + 2 * fit {
            used.iter().for_each(|&used| assert!(table.get(used).is_some()));
            (0..2).for_each(|_| table.offer(block, &raw(block)));
        }
        let newest = held(&table, 5000..5000 + 2 * fit);
        assert!(newest + used.len() + 10 >= fit, "{newest} of {fit}");
    }

    #[test]
    fn a_block_outlives_its_place_while_it_is_looked_at() {
        let (table, fit) = full();
        let looked_at = table.get(7).unwrap();
        for block in (5000..5000 + 4 * fit).flat_map(|block| [block, block]) {
            table.offer(block, &raw(block));
        }
        assert!(table.get(7).is_none());
        drop(table);
        assert_eq!(**looked_at, *raw(7));
    }

    #[test]
    fn a_table_takes_its_blocks_with_it() {
        let cache = Arc::new(BlockCache::new(1 << 20, 0));
        let kept = filled(&cache, 100);
        let before = cache.bytes();
        for _ in 0..1000 {
            drop(filled(&cache, 100));
            assert_eq!(cache.bytes(), before);
        }
        let places: usize = cache.shards.iter().map(|shard| shard.clock.lock().len()).sum();
        assert!(places <= 400, "{places} places for 100 blocks");
        assert_eq!(held(&kept, 0..100), 100);
    }

    #[test]
    fn threads_that_read_offer_and_drop_leave_the_sums_right() {
        let cache = Arc::new(BlockCache::new(200_000, 0));
        let shared = TableBlocks::new(cache.clone(), 500);
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let (cache, shared) = (&cache, &shared);
                scope.spawn(move || {
                    for round in 0..200 {
                        let own = filled(cache, 50);
                        for step in 0..100 {
                            let block = (thread * 7919 + round * 104_729 + step * 31) % 500;
                            match shared.get(block) {
                                Some(found) => assert_eq!(**found, *raw(block)),
                                None => shared.offer(block, &raw(block)),
                            }
                        }
                        drop(own);
                    }
                });
            }
        });
        assert_eq!(cache.bytes(), held(&shared, 0..500) as u64 * (1000 + OVERHEAD_BYTES));
        drop(shared);
        assert_eq!(cache.bytes(), 0);
    }
}
