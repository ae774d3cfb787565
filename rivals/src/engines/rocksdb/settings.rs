//! What a RocksDB database is opened with, turned into the library's own options.
//!
//! What isn't named here stays at RocksDB's default.

use super::raw::*;
use crate::c_api::Owned;

/// What a database is opened with; what isn't named here stays at RocksDB's default.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    /// `write_buffer_size`.
    pub(super) memtable_bytes: usize,
    /// `max_write_buffer_number`.
    pub(super) memtable_count: u16,
    /// A block cache of so many bytes; `None`: no block cache.
    pub(super) block_cache_bytes: Option<usize>,
    /// Bits per key of a full bloom filter in each table.
    pub(super) bloom_bits: Option<f64>,
    /// `allow_mmap_reads`.
    pub(super) mmap_reads: bool,
    /// A hash index in each data block, filled to this ratio.
    pub(super) block_hash_ratio: Option<f64>,
    /// A bloom filter in each memtable, of this share of its size.
    pub(super) memtable_bloom_ratio: Option<f64>,
    /// `level_compaction_dynamic_level_bytes`.
    pub(super) dynamic_level_bytes: bool,
    /// `bytes_per_sync`.
    pub(super) bytes_per_sync: Option<u64>,
    /// Threads for flushes and compactions.
    pub(super) background_threads: Option<u16>,
    /// Values of at least so many bytes go to blob files, which are collected, and share the cache.
    pub(super) blob_bytes_min: Option<u64>,
}

impl Settings {
    fn table_options(&self, cache: Option<&Owned<RawCache>>) -> Owned<RawTableOptions> {
        // SAFETY: the creators have no preconditions; the setters take live options; `cache` is live,
        // and the options keep a shared reference of their own; the filter's ownership passes over.
        unsafe {
            let table = Owned::new(
                rocksdb_block_based_options_create(),
                rocksdb_block_based_options_destroy,
            );
            match cache {
                Some(cache) => {
                    rocksdb_block_based_options_set_block_cache(table.get(), cache.get());
                }
                None => rocksdb_block_based_options_set_no_block_cache(table.get(), 1),
            }
            if let Some(bits) = self.bloom_bits {
                let filter = rocksdb_filterpolicy_create_bloom_full(bits);
                rocksdb_block_based_options_set_filter_policy(table.get(), filter);
            }
            if let Some(ratio) = self.block_hash_ratio {
                let kind = BINARY_SEARCH_AND_HASH;
                rocksdb_block_based_options_set_data_block_index_type(table.get(), kind);
                rocksdb_block_based_options_set_data_block_hash_ratio(table.get(), ratio);
            }
            table
        }
    }

    /// RocksDB's own options.
    pub(super) fn options(&self) -> Owned<RawOptions> {
        // SAFETY: the creators have no preconditions; the setters take live options, and keep shared
        // references of their own to the table's options and the cache, which are dropped here.
        unsafe {
            let options = Owned::new(rocksdb_options_create(), rocksdb_options_destroy);
            let cache = self
                .block_cache_bytes
                .map(|bytes| Owned::new(rocksdb_cache_create_lru(bytes), rocksdb_cache_destroy));
            let raw = options.get();
            rocksdb_options_set_create_if_missing(raw, 1);
            rocksdb_options_set_compression(raw, NO_COMPRESSION);
            rocksdb_options_set_write_buffer_size(raw, self.memtable_bytes);
            rocksdb_options_set_max_write_buffer_number(raw, self.memtable_count.into());
            rocksdb_options_set_allow_mmap_reads(raw, self.mmap_reads.into());
            if let Some(ratio) = self.memtable_bloom_ratio {
                rocksdb_options_set_memtable_prefix_bloom_size_ratio(raw, ratio);
                rocksdb_options_set_memtable_whole_key_filtering(raw, 1);
            }
            if self.dynamic_level_bytes {
                rocksdb_options_set_level_compaction_dynamic_level_bytes(raw, 1);
            }
            if let Some(bytes) = self.bytes_per_sync {
                rocksdb_options_set_bytes_per_sync(raw, bytes);
            }
            if let Some(threads) = self.background_threads {
                rocksdb_options_increase_parallelism(raw, threads.into());
            }
            if let Some(bytes) = self.blob_bytes_min {
                rocksdb_options_set_enable_blob_files(raw, 1);
                rocksdb_options_set_min_blob_size(raw, bytes);
                rocksdb_options_set_enable_blob_gc(raw, 1);
                if let Some(cache) = &cache {
                    rocksdb_options_set_blob_cache(raw, cache.get());
                }
            }
            let table = self.table_options(cache.as_ref());
            rocksdb_options_set_block_based_table_factory(raw, table.get());
            options
        }
    }
}
