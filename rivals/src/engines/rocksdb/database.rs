//! An open RocksDB database: the part of the C interface that is needed here, made safe.
//!
//! Invariant: every pointer that a type here holds came from the library, is not null, and is freed
//! once, by `Drop`. Slices borrow from what owns their memory.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;

use super::raw::*;
use super::settings::Settings;
use crate::c_api::{self, Owned, borrowed, checked, owned_text};
use crate::engines::cursor;

/// An open database; closed when dropped.
pub(super) struct Database {
    raw: NonNull<RawDatabase>,
}

// SAFETY: RocksDB's database may be used from any thread, by several at once.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: it is open; everything that borrows from it is gone.
        unsafe { rocksdb_close(self.raw.as_ptr()) }
    }
}

impl Database {
    /// Opens the database of this directory, made if there is none.
    pub(super) fn open(directory: &Path, settings: &Settings) -> Result<Self, String> {
        let path = c_api::path(directory)?;
        let options = settings.options();
        let raw = checked(rocksdb_free, |error| {
            // SAFETY: the options are live, the path ends in a zero byte.
            unsafe { rocksdb_open(options.get(), path.as_ptr(), error) }
        })?;
        NonNull::new(raw)
            .map(|raw| Database { raw })
            .ok_or_else(|| "opened nothing and told no error".to_owned())
    }

    /// Sets a key.
    pub(super) fn put(&self, how: &WriteOptions, key: &[u8], value: &[u8]) -> Result<(), String> {
        checked(rocksdb_free, |error| {
            // SAFETY: database and options are live; pointers and lengths are those of slices.
            unsafe {
                rocksdb_put(
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
        checked(rocksdb_free, |error| {
            // SAFETY: as in `put`.
            unsafe {
                rocksdb_delete(self.raw.as_ptr(), how.0.get(), key.as_ptr(), key.len(), error);
            }
        })
    }

    /// A key's value where it lies, not copied when it lies in the block cache or a mapped file.
    pub(super) fn get(&self, how: &ReadOptions, key: &[u8]) -> Result<Option<Pinned<'_>>, String> {
        let raw = checked(rocksdb_free, |error| {
            // SAFETY: as in `put`.
            unsafe {
                rocksdb_get_pinned(self.raw.as_ptr(), how.0.get(), key.as_ptr(), key.len(), error)
            }
        })?;
        Ok(NonNull::new(raw).map(|raw| Pinned { raw, _database: PhantomData }))
    }

    /// What is there now, in order, from the first key that isn't below `start` on.
    pub(super) fn iterate(&self, how: &ReadOptions, start: &[u8]) -> Cursor<'_> {
        // SAFETY: database and options are live, and options are copied; RocksDB reports failures
        // through the iterator, never by null.
        let raw = unsafe { rocksdb_create_iterator(self.raw.as_ptr(), how.0.get()) };
        let raw = NonNull::new(raw).expect("the library allocates or ends the process");
        let iterator = Cursor { raw, _database: PhantomData };
        // SAFETY: the iterator is live; pointer and length are those of a slice.
        unsafe { rocksdb_iter_seek(iterator.raw.as_ptr(), start.as_ptr(), start.len()) };
        iterator
    }

    /// Writes out the active memtable and waits for that.
    pub(super) fn flush(&self) -> Result<(), String> {
        // SAFETY: the creator has no preconditions.
        let how =
            unsafe { Owned::new(rocksdb_flushoptions_create(), rocksdb_flushoptions_destroy) };
        checked(rocksdb_free, |error| {
            // SAFETY: database and options are live. The default is to wait.
            unsafe { rocksdb_flush(self.raw.as_ptr(), how.get(), error) }
        })
    }

    /// A property that is a number; `None` when this version has none of that name.
    pub(super) fn number(&self, name: &CStr) -> Option<u64> {
        let mut value = 0;
        // SAFETY: the database is live, the name ends in a zero byte, the number is ours.
        let status = unsafe { rocksdb_property_int(self.raw.as_ptr(), name.as_ptr(), &mut value) };
        (status == 0).then_some(value)
    }

    /// A property that is text; `None` when this version has none of that name.
    pub(super) fn text(&self, name: &CStr) -> Option<String> {
        // SAFETY: the database is live, the name ends in a zero byte.
        let text = unsafe { rocksdb_property_value(self.raw.as_ptr(), name.as_ptr()) };
        owned_text(rocksdb_free, text)
    }
}

/// How reads are made: RocksDB's defaults, checksums verified.
pub(super) struct ReadOptions(Owned<RawReadOptions>);

// SAFETY: options are plain data, and only read once they are made.
unsafe impl Send for ReadOptions {}

impl Default for ReadOptions {
    fn default() -> Self {
        // SAFETY: the creator has no preconditions.
        let raw = unsafe { rocksdb_readoptions_create() };
        ReadOptions(Owned::new(raw, rocksdb_readoptions_destroy))
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
            let options = Owned::new(rocksdb_writeoptions_create(), rocksdb_writeoptions_destroy);
            rocksdb_writeoptions_set_sync(options.get(), sync.into());
            WriteOptions(options)
        }
    }
}

/// A value where it lies.
pub(super) struct Pinned<'a> {
    raw: NonNull<RawPinned>,
    _database: PhantomData<&'a Database>,
}

impl Pinned<'_> {
    /// The value.
    pub(super) fn value(&self) -> &[u8] {
        let mut bytes = 0;
        // SAFETY: the slice is live.
        let start = unsafe { rocksdb_pinnableslice_value(self.raw.as_ptr(), &mut bytes) };
        // SAFETY: the library's slice stays where it is until it is destroyed.
        unsafe { borrowed(start, bytes) }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // SAFETY: it is live, and nothing borrows from it any more.
        unsafe { rocksdb_pinnableslice_destroy(self.raw.as_ptr()) }
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
            if rocksdb_iter_valid(self.raw.as_ptr()) == 0 {
                return None;
            }
            let (mut key_bytes, mut value_bytes) = (0, 0);
            let key = rocksdb_iter_key(self.raw.as_ptr(), &mut key_bytes);
            let value = rocksdb_iter_value(self.raw.as_ptr(), &mut value_bytes);
            Some((borrowed(key, key_bytes), borrowed(value, value_bytes)))
        }
    }

    fn advance(&mut self) {
        // SAFETY: the iterator is live and, by the requirement, valid.
        unsafe { rocksdb_iter_next(self.raw.as_ptr()) }
    }
}

impl Cursor<'_> {
    /// Why it stands on no pair, if that isn't the end.
    pub(super) fn error(&self) -> Result<(), String> {
        checked(rocksdb_free, |error| {
            // SAFETY: the iterator is live.
            unsafe { rocksdb_iter_get_error(self.raw.as_ptr(), error) }
        })
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: it is live, and nothing borrows from it any more.
        unsafe { rocksdb_iter_destroy(self.raw.as_ptr()) }
    }
}
