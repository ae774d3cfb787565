//! Table blocks in memory, verified and decompressed, shared by all stores of a process.
//!
//! Invariant: what is in here passed its checksum. Keys are process-unique table ids, so tables of
//! different stores never meet. Mapped, uncompressed tables don't use it: the page cache serves them.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::recent_keys::RecentKeys;

/// Names a block: an id from [`next_table_id`] and the block's offset in its file.
type BlockKey = (u64, u64);

/// A process-unique id for one opening of one table.
pub fn next_table_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Memory of a cached block besides its bytes: key, handle, bookkeeping.
const OVERHEAD_BYTES: u64 = 96;

/// Only used to size the cache's tables; a wrong guess costs little.
const TYPICAL_BLOCK_BYTES: usize = 4096;

#[derive(Debug, Clone)]
struct BlockWeighter;

impl Weighter<BlockKey, Bytes> for BlockWeighter {
    fn weight(&self, _key: &BlockKey, block: &Bytes) -> u64 {
        block.len() as u64 + OVERHEAD_BYTES
    }
}

/// Blocks by table and offset, the least useful dropped first.
#[derive(Debug)]
pub struct BlockCache {
    blocks: Cache<BlockKey, Bytes, BlockWeighter>,
    recent_keys: RecentKeys,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl BlockCache {
    /// An empty cache that holds at most `capacity_bytes`, of which `recent_keys_bytes`, but no more
    /// than half, are for recently read keys; 0 keeps nothing.
    pub fn new(capacity_bytes: usize, recent_keys_bytes: usize) -> Self {
        let recent_keys_bytes = recent_keys_bytes.min(capacity_bytes / 2);
        let block_bytes = capacity_bytes - recent_keys_bytes;
        let items = (block_bytes / TYPICAL_BLOCK_BYTES).max(1);
        BlockCache {
            blocks: Cache::with_weighter(items, block_bytes as u64, BlockWeighter),
            recent_keys: RecentKeys::new(recent_keys_bytes),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The block at `offset` of a table.
    pub fn get(&self, table_id: u64, offset: u64) -> Option<Bytes> {
        let block = self.blocks.get(&(table_id, offset));
        let counter = if block.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        block
    }

    /// Entries that look-ups found in blocks lately.
    pub fn recent_keys(&self) -> &RecentKeys {
        &self.recent_keys
    }

    /// Keeps a block. Requires: its checksum was checked.
    pub fn insert(&self, table_id: u64, offset: u64, block: Bytes) {
        self.blocks.insert((table_id, offset), block);
    }

    /// Bytes held now, bookkeeping included.
    pub fn bytes(&self) -> u64 {
        self.blocks.weight()
    }

    /// Look-ups that found their block.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Look-ups that did not.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_different_tables_do_not_meet() {
        let cache = BlockCache::new(1 << 20, 0);
        let (a, b) = (next_table_id(), next_table_id());
        cache.insert(a, 0, Bytes::from_static(b"a"));
        assert_eq!(cache.get(b, 0), None);
        assert_eq!(cache.get(a, 8), None);
        assert_eq!(cache.get(a, 0).as_deref(), Some(&b"a"[..]));
        assert_eq!((cache.hits(), cache.misses()), (1, 2));
    }

    #[test]
    fn bytes_held_stay_below_the_capacity() {
        for capacity in [0, 100, 10_000, 1 << 20] {
            let cache = BlockCache::new(capacity, 0);
            for offset in 0..2000 {
                cache.insert(1, offset, Bytes::from(vec![0; 1000]));
            }
            // Shards round their share up by less than a byte each.
            assert!(cache.bytes() <= capacity as u64 + 64, "{} of {capacity}", cache.bytes());
        }
    }
}
