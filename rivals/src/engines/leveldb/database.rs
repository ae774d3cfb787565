//! An open LevelDB database: the part of the C interface that is needed here, made safe.
//!
//! Invariant: every pointer that a type here holds came from the library, is not null, and is freed
//! once, by `Drop`. Slices borrow from what owns their memory.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;

use super::raw::*;
use crate::c_api::{self, Owned, borrowed, checked, owned_text};
use crate::engines::cursor;

/// An open database; closed when dropped.
pub(super) struct Database {
    raw: NonNull<RawDatabase>,
    // LevelDB uses these until it is closed, and doesn't own them: they are dropped after that.
    _cache: Owned<RawCache>,
    _filter: Owned<RawFilter>,
}

// SAFETY: LevelDB's database, its cache and its filter may be used from any thread, by several at
// once.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: it is open; everything that borrows from it is gone.
        unsafe { leveldb_close(self.raw.as_ptr()) }
    }
}

impl Database {
    /// Opens the database of this directory, made if there is none.
    pub(super) fn open(
        directory: &Path,
        memtable_bytes: usize,
        cache_bytes: usize,
        bloom_bits: c_int,
    ) -> Result<Self, String> {
        let path = c_api::path(directory)?;
        // SAFETY: the creators have no preconditions; the setters take live options; the cache and the
        // filter outlive the database, whose field they are.
        let (options, cache, filter) = unsafe {
            let options = Owned::new(leveldb_options_create(), leveldb_options_destroy);
            let cache = Owned::new(leveldb_cache_create_lru(cache_bytes), leveldb_cache_destroy);
            let filter = Owned::new(
                leveldb_filterpolicy_create_bloom(bloom_bits),
                leveldb_filterpolicy_destroy,
            );
            leveldb_options_set_create_if_missing(options.get(), 1);
            leveldb_options_set_compression(options.get(), NO_COMPRESSION);
            leveldb_options_set_write_buffer_size(options.get(), memtable_bytes);
            leveldb_options_set_cache(options.get(), cache.get());
            leveldb_options_set_filter_policy(options.get(), filter.get());
            (options, cache, filter)
        };
        let raw = checked(leveldb_free, |error| {
            // SAFETY: the options are live, the path ends in a zero byte.
            unsafe { leveldb_open(options.get(), path.as_ptr(), error) }
        })?;
        NonNull::new(raw)
            .map(|raw| Database { raw, _cache: cache, _filter: filter })
            .ok_or_else(|| "opened nothing and told no error".to_owned())
    }

    /// Sets a key.
    pub(super) fn put(&self, how: &WriteOptions, key: &[u8], value: &[u8]) -> Result<(), String> {
        checked(leveldb_free, |error| {
            // SAFETY: database and options are live; pointers and lengths are those of slices.
            unsafe {
                leveldb_put(
                    self.raw.as_ptr(),
                    how.0.get(),
                    key.as_ptr(),
                    key.len(),
                    value.as_ptr(),
                    value.len(),
                    error,
                );
            }
        })
    }

    /// Deletes a key.
    pub(super) fn delete(&self, how: &WriteOptions, key: &[u8]) -> Result<(), String> {
        checked(leveldb_free, |error| {
            // SAFETY: as in `put`.
            unsafe {
                leveldb_delete(self.raw.as_ptr(), how.0.get(), key.as_ptr(), key.len(), error);
            }
        })
    }

    /// A key's value, which LevelDB copies.
    pub(super) fn get(&self, how: &ReadOptions, key: &[u8]) -> Result<Option<Copied>, String> {
        let mut bytes = 0;
        let raw = checked(leveldb_free, |error| {
            // SAFETY: as in `put`; the length is written to a local.
            unsafe {
                leveldb_get(
                    self.raw.as_ptr(),
                    how.0.get(),
                    key.as_ptr(),
                    key.len(),
                    &mut bytes,
                    error,
                )
            }
        })?;
        Ok(NonNull::new(raw).map(|raw| Copied { raw, bytes }))
    }

    /// What is there now, in order, from the first key that isn't below `start` on.
    pub(super) fn iterate(&self, how: &ReadOptions, start: &[u8]) -> Cursor<'_> {
        // SAFETY: database and options are live; LevelDB reports failures through the iterator, never
        // by null.
        let raw = unsafe { leveldb_create_iterator(self.raw.as_ptr(), how.0.get()) };
        let raw = NonNull::new(raw).expect("the library allocates or ends the process");
        let cursor = Cursor { raw, _database: PhantomData };
        // SAFETY: the iterator is live; pointer and length are those of a slice.
        unsafe { leveldb_iter_seek(cursor.raw.as_ptr(), start.as_ptr(), start.len()) };
        cursor
    }

    /// A property; `None` when this version has none of that name.
    pub(super) fn text(&self, name: &CStr) -> Option<String> {
        // SAFETY: the database is live, the name ends in a zero byte.
        let text = unsafe { leveldb_property_value(self.raw.as_ptr(), name.as_ptr()) };
        owned_text(leveldb_free, text)
    }
}

/// The library's version, such as `1.23`.
pub(super) fn version() -> String {
    // SAFETY: neither has preconditions.
    let (major, minor) = unsafe { (leveldb_major_version(), leveldb_minor_version()) };
    format!("{major}.{minor}")
}

/// How reads are made: with or without checksums verified, else LevelDB's defaults.
pub(super) struct ReadOptions(Owned<RawReadOptions>);

// SAFETY: options are plain data, and only read once they are made.
unsafe impl Send for ReadOptions {}

impl ReadOptions {
    /// With checksums verified, or not.
    pub(super) fn new(verifies: bool) -> Self {
        // SAFETY: the creator has no preconditions; the options that it makes are live.
        unsafe {
            let options = Owned::new(leveldb_readoptions_create(), leveldb_readoptions_destroy);
            leveldb_readoptions_set_verify_checksums(options.get(), verifies.into());
            ReadOptions(options)
        }
    }
}

/// How writes are made.
pub(super) struct WriteOptions(Owned<RawWriteOptions>);

// SAFETY: options are plain data, and only read once they are made.
unsafe impl Send for WriteOptions {}

impl WriteOptions {
    /// Acknowledged after the log was synced, or after it was written.
    pub(super) fn new(sync: bool) -> Self {
        // SAFETY: the creator has no preconditions; the options that it makes are live.
        unsafe {
            let options = Owned::new(leveldb_writeoptions_create(), leveldb_writeoptions_destroy);
            leveldb_writeoptions_set_sync(options.get(), sync.into());
            WriteOptions(options)
        }
    }
}

/// A value that was copied out.
pub(super) struct Copied {
    raw: NonNull<u8>,
    bytes: usize,
}

impl Copied {
    /// The value.
    pub(super) fn value(&self) -> &[u8] {
        // SAFETY: the library allocated so many bytes, ours until they are freed.
        unsafe { borrowed(self.raw.as_ptr(), self.bytes) }
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // SAFETY: the library allocated it, and nothing borrows from it any more.
        unsafe { leveldb_free(self.raw.as_ptr().cast()) }
    }
}

/// Pairs in order.
pub(super) struct Cursor<'a> {
    raw: NonNull<RawIterator>,
    _database: PhantomData<&'a Database>,
}

impl cursor::Cursor for Cursor<'_> {
    fn pair(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: the iterator is live; while it is valid, key and value stay where they are until it
        // is moved, which takes it mutably.
        unsafe {
            if leveldb_iter_valid(self.raw.as_ptr()) == 0 {
                return None;
            }
            let (mut key_bytes, mut value_bytes) = (0, 0);
            let key = leveldb_iter_key(self.raw.as_ptr(), &mut key_bytes);
            let value = leveldb_iter_value(self.raw.as_ptr(), &mut value_bytes);
            Some((borrowed(key, key_bytes), borrowed(value, value_bytes)))
        }
    }

    fn advance(&mut self) {
        // SAFETY: the iterator is live and, by the requirement, valid.
        unsafe { leveldb_iter_next(self.raw.as_ptr()) }
    }
}

impl Cursor<'_> {
    /// Why it stands on no pair, if that isn't the end.
    pub(super) fn error(&self) -> Result<(), String> {
        checked(leveldb_free, |error| {
            // SAFETY: the iterator is live.
            unsafe { leveldb_iter_get_error(self.raw.as_ptr(), error) }
        })
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: it is live, and nothing borrows from it any more.
        unsafe { leveldb_iter_destroy(self.raw.as_ptr()) }
    }
}
