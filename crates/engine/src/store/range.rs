//! Iterators over a range of keys: a cursor that is stepped through its bounds.

use bytes::Bytes;

use super::cursor::Cursor;
use super::{KeyHead, KeyValue};
use crate::error::{Error, Result};

/// Steps a cursor through its bounds in one direction.
#[derive(Debug)]
struct Walk {
    cursor: Cursor,
    reverse: bool,
    started: bool,
    ended: bool,
    /// The entry it stands at is the next one still.
    stays: bool,
}

impl Walk {
    fn advance(&mut self) -> Option<Result<()>> {
        if self.ended {
            return None;
        }
        if std::mem::take(&mut self.stays) {
            return Some(Ok(()));
        }
        let moved = match (self.started, self.reverse) {
            (false, false) => self.cursor.seek_to_first(),
            (false, true) => self.cursor.seek_to_last(),
            (true, false) => self.cursor.next(),
            (true, true) => self.cursor.prev(),
        };
        self.started = true;
        if moved.is_err() || !self.cursor.valid() {
            self.ended = true;
        }
        match moved {
            Err(error) => Some(Err(error)),
            Ok(()) => self.cursor.valid().then_some(Ok(())),
        }
    }

    /// What `show` makes of the next entry; nothing follows an error but `Longer`.
    fn next<T>(&mut self, show: impl FnOnce(&Cursor) -> Result<T>) -> Option<Result<T>> {
        let shown = self.advance()?.and_then(|()| show(&self.cursor));
        match &shown {
            Ok(_) => {}
            Err(Error::Longer { .. }) => self.stays = true,
            Err(_) => self.ended = true,
        }
        Some(shown)
    }
}

/// Iterates over keys and values of a range as of one moment. Owns what it needs; ends after an error.
#[derive(Debug)]
pub struct Range(Walk);

/// Iterates over keys and heads of a range as of one moment, reading no body that stays in the journal.
#[derive(Debug)]
pub struct RangeHeads(Walk);

impl Range {
    pub(super) fn new(cursor: Cursor, reverse: bool) -> Range {
        Range(Walk { cursor, reverse, started: false, ended: false, stays: false })
    }

    /// As `next`, but `Error::Longer`, and nothing read, where the value has more bytes than so many. The
    /// entry is the next one still.
    pub fn next_within(&mut self, value_bytes_max: u64) -> Option<Result<KeyValue>> {
        self.0.next(|cursor| {
            let entry = cursor.entry()?;
            if entry.length() > value_bytes_max {
                return Err(Error::Longer { length: entry.length() });
            }
            let head = entry.head().expect("a cursor shows values only");
            let key = Bytes::copy_from_slice(cursor.key());
            Ok(KeyValue { key, head, value: cursor.value_of(entry)? })
        })
    }
}

impl RangeHeads {
    pub(super) fn new(cursor: Cursor, reverse: bool) -> RangeHeads {
        RangeHeads(Walk { cursor, reverse, started: false, ended: false, stays: false })
    }
}

impl Iterator for Range {
    type Item = Result<KeyValue>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_within(u64::MAX)
    }
}

impl Iterator for RangeHeads {
    type Item = Result<KeyHead>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(|cursor| {
            Ok(KeyHead { key: Bytes::copy_from_slice(cursor.key()), head: cursor.head()? })
        })
    }
}
