//! The declarations of `rocksdb/c.h` that are needed here; made safe in `settings` and `database`.

use std::ffi::{c_char, c_int, c_uchar, c_void};

use crate::c_api::opaque;

opaque! {
    RawDatabase RawOptions RawTableOptions RawReadOptions RawWriteOptions RawFlushOptions RawCache
    RawFilter RawIterator RawPinned
}

// Signatures are those of `rocksdb/c.h`, as of 7.8 and unchanged since.
unsafe extern "C" {
    pub(super) fn rocksdb_free(pointer: *mut c_void);
    pub(super) fn rocksdb_open(
        options: *const RawOptions,
        path: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut RawDatabase;
    pub(super) fn rocksdb_close(database: *mut RawDatabase);
    pub(super) fn rocksdb_put(
        database: *mut RawDatabase,
        options: *const RawWriteOptions,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_delete(
        database: *mut RawDatabase,
        options: *const RawWriteOptions,
        key: *const u8,
        key_bytes: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_get_pinned(
        database: *mut RawDatabase,
        options: *const RawReadOptions,
        key: *const u8,
        key_bytes: usize,
        error: *mut *mut c_char,
    ) -> *mut RawPinned;
    pub(super) fn rocksdb_pinnableslice_value(
        pinned: *const RawPinned,
        bytes: *mut usize,
    ) -> *const u8;
    pub(super) fn rocksdb_pinnableslice_destroy(pinned: *mut RawPinned);
    pub(super) fn rocksdb_property_int(
        database: *mut RawDatabase,
        name: *const c_char,
        value: *mut u64,
    ) -> c_int;
    pub(super) fn rocksdb_property_value(
        database: *mut RawDatabase,
        name: *const c_char,
    ) -> *mut c_char;
    pub(super) fn rocksdb_flush(
        database: *mut RawDatabase,
        options: *const RawFlushOptions,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_flushoptions_create() -> *mut RawFlushOptions;
    pub(super) fn rocksdb_flushoptions_destroy(options: *mut RawFlushOptions);

    pub(super) fn rocksdb_create_iterator(
        database: *mut RawDatabase,
        options: *const RawReadOptions,
    ) -> *mut RawIterator;
    pub(super) fn rocksdb_iter_destroy(iterator: *mut RawIterator);
    pub(super) fn rocksdb_iter_seek(iterator: *mut RawIterator, key: *const u8, key_bytes: usize);
    pub(super) fn rocksdb_iter_next(iterator: *mut RawIterator);
    pub(super) fn rocksdb_iter_valid(iterator: *const RawIterator) -> c_uchar;
    pub(super) fn rocksdb_iter_key(iterator: *const RawIterator, bytes: *mut usize) -> *const u8;
    pub(super) fn rocksdb_iter_value(iterator: *const RawIterator, bytes: *mut usize) -> *const u8;
    pub(super) fn rocksdb_iter_get_error(iterator: *const RawIterator, error: *mut *mut c_char);

    pub(super) fn rocksdb_readoptions_create() -> *mut RawReadOptions;
    pub(super) fn rocksdb_readoptions_destroy(options: *mut RawReadOptions);
    pub(super) fn rocksdb_writeoptions_create() -> *mut RawWriteOptions;
    pub(super) fn rocksdb_writeoptions_destroy(options: *mut RawWriteOptions);
    pub(super) fn rocksdb_writeoptions_set_sync(options: *mut RawWriteOptions, sync: c_uchar);

    pub(super) fn rocksdb_options_create() -> *mut RawOptions;
    pub(super) fn rocksdb_options_destroy(options: *mut RawOptions);
    pub(super) fn rocksdb_options_set_create_if_missing(options: *mut RawOptions, yes: c_uchar);
    pub(super) fn rocksdb_options_set_compression(options: *mut RawOptions, kind: c_int);
    pub(super) fn rocksdb_options_set_write_buffer_size(options: *mut RawOptions, bytes: usize);
    pub(super) fn rocksdb_options_set_max_write_buffer_number(
        options: *mut RawOptions,
        count: c_int,
    );
    pub(super) fn rocksdb_options_set_allow_mmap_reads(options: *mut RawOptions, yes: c_uchar);
    pub(super) fn rocksdb_options_set_memtable_prefix_bloom_size_ratio(
        options: *mut RawOptions,
        ratio: f64,
    );
    pub(super) fn rocksdb_options_set_memtable_whole_key_filtering(
        options: *mut RawOptions,
        yes: c_uchar,
    );
    pub(super) fn rocksdb_options_set_level_compaction_dynamic_level_bytes(
        options: *mut RawOptions,
        yes: c_uchar,
    );
    pub(super) fn rocksdb_options_set_bytes_per_sync(options: *mut RawOptions, bytes: u64);
    pub(super) fn rocksdb_options_increase_parallelism(options: *mut RawOptions, threads: c_int);
    pub(super) fn rocksdb_options_set_enable_blob_files(options: *mut RawOptions, yes: c_uchar);
    pub(super) fn rocksdb_options_set_min_blob_size(options: *mut RawOptions, bytes: u64);
    pub(super) fn rocksdb_options_set_enable_blob_gc(options: *mut RawOptions, yes: c_uchar);
    pub(super) fn rocksdb_options_set_blob_cache(options: *mut RawOptions, cache: *mut RawCache);
    pub(super) fn rocksdb_options_set_block_based_table_factory(
        options: *mut RawOptions,
        table: *mut RawTableOptions,
    );

    pub(super) fn rocksdb_block_based_options_create() -> *mut RawTableOptions;
    pub(super) fn rocksdb_block_based_options_destroy(table: *mut RawTableOptions);
    pub(super) fn rocksdb_block_based_options_set_block_cache(
        table: *mut RawTableOptions,
        cache: *mut RawCache,
    );
    pub(super) fn rocksdb_block_based_options_set_no_block_cache(
        table: *mut RawTableOptions,
        yes: c_uchar,
    );
    pub(super) fn rocksdb_block_based_options_set_filter_policy(
        table: *mut RawTableOptions,
        filter: *mut RawFilter,
    );
    pub(super) fn rocksdb_block_based_options_set_data_block_index_type(
        table: *mut RawTableOptions,
        kind: c_int,
    );
    pub(super) fn rocksdb_block_based_options_set_data_block_hash_ratio(
        table: *mut RawTableOptions,
        ratio: f64,
    );
    pub(super) fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> *mut RawFilter;
    pub(super) fn rocksdb_cache_create_lru(bytes: usize) -> *mut RawCache;
    pub(super) fn rocksdb_cache_destroy(cache: *mut RawCache);
}

/// `rocksdb_no_compression`.
pub(super) const NO_COMPRESSION: c_int = 0;
/// `rocksdb_block_based_table_data_block_index_type_binary_search_and_hash`.
pub(super) const BINARY_SEARCH_AND_HASH: c_int = 1;
