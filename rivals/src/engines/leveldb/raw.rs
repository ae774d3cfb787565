//! The declarations of `leveldb/c.h` that are needed here; made safe in `database`.

use std::ffi::{c_char, c_int, c_void};

use crate::c_api::opaque;

opaque! {
    RawDatabase RawOptions RawReadOptions RawWriteOptions RawCache RawFilter RawIterator
}

// Signatures are those of `leveldb/c.h`, as of 1.23.
unsafe extern "C" {
    pub(super) fn leveldb_free(pointer: *mut c_void);
    pub(super) fn leveldb_major_version() -> c_int;
    pub(super) fn leveldb_minor_version() -> c_int;
    pub(super) fn leveldb_open(
        options: *const RawOptions,
        path: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut RawDatabase;
    pub(super) fn leveldb_close(database: *mut RawDatabase);
    pub(super) fn leveldb_put(
        database: *mut RawDatabase,
        options: *const RawWriteOptions,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn leveldb_delete(
        database: *mut RawDatabase,
        options: *const RawWriteOptions,
        key: *const u8,
        key_bytes: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn leveldb_get(
        database: *mut RawDatabase,
        options: *const RawReadOptions,
        key: *const u8,
        key_bytes: usize,
        value_bytes: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut u8;
    pub(super) fn leveldb_property_value(
        database: *mut RawDatabase,
        name: *const c_char,
    ) -> *mut c_char;

    pub(super) fn leveldb_create_iterator(
        database: *mut RawDatabase,
        options: *const RawReadOptions,
    ) -> *mut RawIterator;
    pub(super) fn leveldb_iter_destroy(iterator: *mut RawIterator);
    pub(super) fn leveldb_iter_seek(iterator: *mut RawIterator, key: *const u8, key_bytes: usize);
    pub(super) fn leveldb_iter_next(iterator: *mut RawIterator);
    pub(super) fn leveldb_iter_valid(iterator: *const RawIterator) -> u8;
    pub(super) fn leveldb_iter_key(iterator: *const RawIterator, bytes: *mut usize) -> *const u8;
    pub(super) fn leveldb_iter_value(iterator: *const RawIterator, bytes: *mut usize) -> *const u8;
    pub(super) fn leveldb_iter_get_error(iterator: *const RawIterator, error: *mut *mut c_char);

    pub(super) fn leveldb_readoptions_create() -> *mut RawReadOptions;
    pub(super) fn leveldb_readoptions_destroy(options: *mut RawReadOptions);
    pub(super) fn leveldb_readoptions_set_verify_checksums(options: *mut RawReadOptions, yes: u8);
    pub(super) fn leveldb_writeoptions_create() -> *mut RawWriteOptions;
    pub(super) fn leveldb_writeoptions_destroy(options: *mut RawWriteOptions);
    pub(super) fn leveldb_writeoptions_set_sync(options: *mut RawWriteOptions, yes: u8);

    pub(super) fn leveldb_options_create() -> *mut RawOptions;
    pub(super) fn leveldb_options_destroy(options: *mut RawOptions);
    pub(super) fn leveldb_options_set_create_if_missing(options: *mut RawOptions, yes: u8);
    pub(super) fn leveldb_options_set_compression(options: *mut RawOptions, kind: c_int);
    pub(super) fn leveldb_options_set_write_buffer_size(options: *mut RawOptions, bytes: usize);
    pub(super) fn leveldb_options_set_cache(options: *mut RawOptions, cache: *mut RawCache);
    pub(super) fn leveldb_options_set_filter_policy(
        options: *mut RawOptions,
        filter: *mut RawFilter,
    );
    pub(super) fn leveldb_cache_create_lru(bytes: usize) -> *mut RawCache;
    pub(super) fn leveldb_cache_destroy(cache: *mut RawCache);
    pub(super) fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut RawFilter;
    pub(super) fn leveldb_filterpolicy_destroy(filter: *mut RawFilter);
}

/// `leveldb_no_compression`.
pub(super) const NO_COMPRESSION: c_int = 0;
