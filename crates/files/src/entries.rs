//! Reads the keys of a bucket behind what is damaged or what the disk can't read.
//!
//! Behind a block that can't be read it goes on with the next, whose first key the engine tells from memory.
//! Only seeks are used: what other tables have in between may be older than what the block has.

use bytes::Bytes;
use tallybook::{Cursor, ScanOptions, Store};

use crate::error::Result;
use crate::key_layout;

/// The keys of a kind in a bucket, in order.
pub(crate) struct KeyWalk<'a> {
    store: &'a Store,
    cursor: Cursor,
    /// All before was shown.
    from: Vec<u8>,
    /// The cursor is at the key that was shown last.
    is_at_last: bool,
    /// Looked up only where it is needed.
    block_keys: Option<Vec<Bytes>>,
    is_whole: bool,
}

impl<'a> KeyWalk<'a> {
    /// From a key on, whose first byte is the kind.
    pub(crate) fn new(store: &'a Store, from: &[u8]) -> Result<KeyWalk<'a>> {
        let prefix = Some(Bytes::copy_from_slice(&from[..1]));
        let cursor = store.cursor(ScanOptions { prefix, ..ScanOptions::default() })?;
        let from = from.to_vec();
        Ok(KeyWalk { store, cursor, from, is_at_last: false, block_keys: None, is_whole: true })
    }

    /// The next key that can be read.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let moved = match self.is_at_last {
                true => self.cursor.next(),
                false => twice(|| self.cursor.seek(&self.from)),
            };
            match moved {
                Ok(()) if !self.cursor.valid() => return Ok(None),
                Ok(()) => {
                    let found = Bytes::copy_from_slice(self.cursor.key());
                    self.from = [&found[..], &[0]].concat();
                    self.is_at_last = true;
                    return Ok(Some(found));
                }
                // The seek is the second try.
                Err(_) if self.is_at_last => {
                    self.is_at_last = false;
                    continue;
                }
                Err(error) if error.is_damage() => self.is_whole = false,
                Err(other) => return Err(other.into()),
            }
            let store = self.store;
            let block_keys =
                self.block_keys.get_or_insert_with(|| store.block_keys(&self.from[..1]));
            let next = block_keys.partition_point(|key| key[..] < self.from[..]);
            let Some(next) = block_keys.get(next).cloned() else { return Ok(None) };
            self.from = [&next[..], &[0]].concat();
            if readable(twice(|| store.head(&next)))?.is_some() {
                return Ok(Some(next));
            }
        }
    }

    /// Leaves out the keys before this one.
    pub(crate) fn skip_to(&mut self, key: Vec<u8>) {
        self.from = key;
        self.is_at_last = false;
    }

    /// Where the rest begins.
    pub(crate) fn rest(self) -> Vec<u8> {
        self.from
    }

    /// Whether all keys so far could be read.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }
}

/// Is shown key and value of an entry, or no value where that can't be read.
type Visit<'a> = dyn FnMut(&[u8], Option<Bytes>) -> Result<()> + 'a;

/// Shows the entries of a bucket; whether all could be read.
pub(crate) fn each_entry(store: &Store, visit: &mut Visit<'_>) -> Result<bool> {
    let mut walk = KeyWalk::new(store, &[key_layout::ENTRY])?;
    let mut are_values_whole = true;
    while let Some(entry_key) = walk.next()? {
        let value = twice(|| store.get(&entry_key));
        are_values_whole &= value.is_ok();
        visit(&entry_key, readable(value)?)?;
    }
    Ok(are_values_whole && walk.is_whole())
}

/// Reads again what the system could not at first.
fn twice<T>(mut read: impl FnMut() -> tallybook::Result<T>) -> tallybook::Result<T> {
    match read() {
        Err(error @ tallybook::Error::Io { .. }) if error.is_damage() => read(),
        outcome => outcome,
    }
}

/// What was read, if it could be.
fn readable<T>(read: tallybook::Result<Option<T>>) -> Result<Option<T>> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        read => Ok(read?),
    }
}
