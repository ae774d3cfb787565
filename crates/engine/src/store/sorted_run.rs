//! What a cursor merges: the sorted runs of memtables, and those of tables.
//!
//! One of two kinds that are known, instead of anything that is an `InternalIterator`: which of them it is
//! costs a branch that is foretold where a call through a table of methods could not be inlined.

use crate::error::Result;
use crate::head::{Entry, EntryRef, ValuePointer};
use crate::iter::InternalIterator;
use crate::key::SeqNo;
use crate::memtable::RunCursor;
use crate::version::RunIter;

/// A sorted run.
pub(super) enum SortedRun {
    /// Of a memtable.
    Memory(RunCursor),
    /// Of tables; ten times as large as the other.
    Tables(Box<RunIter>),
}

/// The same call to whichever it is.
macro_rules! either {
    ($run:expr, $inner:ident => $call:expr) => {
        match $run {
            SortedRun::Memory($inner) => $call,
            SortedRun::Tables($inner) => $call,
        }
    };
}

impl InternalIterator for SortedRun {
    fn seek_to_first(&mut self) -> Result<()> {
        either!(self, inner => inner.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        either!(self, inner => inner.seek_to_last())
    }

    fn seek(&mut self, user_key: &[u8], seqno: SeqNo) -> Result<()> {
        either!(self, inner => inner.seek(user_key, seqno))
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<()> {
        either!(self, inner => inner.seek_before(user_key))
    }

    #[inline(always)]
    fn next(&mut self) -> Result<()> {
        either!(self, inner => inner.next())
    }

    fn prev(&mut self) -> Result<()> {
        either!(self, inner => inner.prev())
    }

    #[inline(always)]
    fn valid(&self) -> bool {
        either!(self, inner => inner.valid())
    }

    #[inline(always)]
    fn internal_key(&self) -> (&[u8], SeqNo) {
        either!(self, inner => inner.internal_key())
    }

    #[inline]
    fn entry(&self) -> Result<EntryRef<'_>> {
        either!(self, inner => inner.entry())
    }

    fn owned_entry(&self) -> Result<Entry> {
        either!(self, inner => inner.owned_entry())
    }

    #[inline(always)]
    fn expiry(&self) -> Result<Option<u64>> {
        either!(self, inner => inner.expiry())
    }

    #[inline(always)]
    fn inline_value(&self) -> Result<Option<&[u8]>> {
        either!(self, inner => inner.inline_value())
    }

    fn values_ahead(&self, steps: usize, tell: &mut dyn FnMut(&ValuePointer)) {
        either!(self, inner => inner.values_ahead(steps, tell));
    }
}
