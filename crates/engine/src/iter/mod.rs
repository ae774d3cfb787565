//! The cursor over versions of keys that every sorted source offers.
//!
//! Order is internal order: user key ascending, SeqNo descending.

use crate::error::Result;
use crate::head::Entry;
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
    /// The user key. Requires: valid.
    fn user_key(&self) -> &[u8];
    /// The SeqNo. Requires: valid.
    fn seqno(&self) -> SeqNo;
    /// The entry. Requires: valid.
    fn entry(&self) -> Result<Entry>;
}
