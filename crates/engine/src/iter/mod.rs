//! The cursor over versions of keys that every sorted source offers.
//!
//! Order is internal order: user key ascending, SeqNo descending.

use crate::error::{Error, Result};
use crate::head::{BodyRef, Entry, EntryRef, ValuePointer};
use crate::key::SeqNo;

pub mod merging;

pub use merging::MergingIterator;

/// A cursor over `(user key, Entry)` in internal order. Not valid until a seek; after an error it is
/// not valid.
pub trait InternalIterator: Send {
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or after (`user_key`, `seqno`) in internal order.
    fn seek(&mut self, user_key: &[u8], seqno: SeqNo) -> Result<()>;
    /// Moves to the last entry before (`user_key`, SEQNO_MAX): the last whose key is below `user_key`.
    fn seek_before(&mut self, user_key: &[u8]) -> Result<()>;
    /// Moves on. Requires: valid.
    fn next(&mut self) -> Result<()>;
    /// Moves back. Requires: valid.
    fn prev(&mut self) -> Result<()>;
    /// Whether there is an entry here.
    fn valid(&self) -> bool;
    /// User key and SeqNo. Requires: valid.
    fn internal_key(&self) -> (&[u8], SeqNo);
    /// The entry, until the cursor moves. Requires: valid.
    fn entry(&self) -> Result<EntryRef<'_>>;
    /// The entry, to keep. Requires: valid.
    fn owned_entry(&self) -> Result<Entry>;

    /// As `EntryRef::expiry`; sources that know it without decoding the entry say so. Requires: valid.
    fn expiry(&self) -> Result<Option<u64>> {
        Ok(self.entry()?.expiry())
    }
    /// The value, if it is inline, until the cursor moves. Requires: valid.
    fn inline_value(&self) -> Result<Option<&[u8]>> {
        Ok(match self.entry()?.body {
            BodyRef::Inline(value) => Some(value),
            BodyRef::Ref(_) | BodyRef::Delete => None,
        })
    }

    /// Tells where the value of the entry so many steps behind this one lies, and at the front of a
    /// block those of all up to there: as far as the source has them at hand and they are in the journal.
    /// A hint, to have them fetched while this one is looked at. Requires: valid.
    fn values_ahead(&self, _steps: usize, _tell: &mut dyn FnMut(&ValuePointer)) {}

    /// The error that what the entry is in is not what was written, if it is in a file. Requires: valid.
    fn corruption(&self, _what: &str) -> Option<Error> {
        None
    }

    /// The user key. Requires: valid.
    fn user_key(&self) -> &[u8] {
        self.internal_key().0
    }
    /// The SeqNo. Requires: valid.
    fn seqno(&self) -> SeqNo {
        self.internal_key().1
    }
}
