//! How far a table can be read that is damaged, and whether it can be read again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::iter::InternalIterator;
use crate::key::{self, SEQNO_MAX};
use crate::sstable::block::{check_lengths, check_order};
use crate::sstable::reader::Table;
use crate::sstable::source::Purpose;

impl Table {
    /// The key by which a pass from `start` on has to end so that it doesn't meet this error of the table again;
    /// `start` where no such key is known.
    ///
    /// Where the system didn't say what of the file it can't read, blocks are read until one fails.
    pub(crate) fn readable_up_to(&self, error: &Error, start: &Bytes) -> Bytes {
        let blocks = 0..self.block_count();
        let damaged = match error {
            Error::Corruption { offset, .. } => {
                let begins_before = |block: usize| {
                    self.fences.handle(block).is_some_and(|handle| handle.offset <= *offset)
                };
                blocks.rev().find(|&block| begins_before(block))
            }
            _ => {
                let first = self.fences.count_below(start).saturating_sub(1);
                let mut blocks = blocks.skip(first);
                blocks.find(|&block| self.block_bytes(block, Purpose::Pass).is_err())
            }
        };
        // Behind the last entry of a block a pass takes up the next one, so it ends within the one before.
        match damaged.and_then(|block| block.checked_sub(1)) {
            Some(before) if self.fences.first_key(before) > start => {
                Bytes::copy_from_slice(self.fences.first_key(before))
            }
            _ => start.clone(),
        }
    }

    /// Reads what a pass from `start` on comes to, and fails where a merge would; `Busy` where it is cancelled.
    pub(crate) fn read_from(self: &Arc<Self>, start: &[u8], cancel: &AtomicBool) -> Result<()> {
        let mut iter = self.iter(false);
        iter.seek(start, SEQNO_MAX)?;
        let (mut last_key, mut last_seqno) = (Vec::new(), 0);
        while iter.valid() {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Busy);
            }
            let (user_key, entry) = (iter.user_key(), iter.entry()?);
            let taken = check_lengths(user_key, &entry.body)
                .and_then(|()| check_order(&last_key, last_seqno, user_key, entry.seqno));
            if let Some(error) = taken.err().and_then(|what| iter.corruption(what)) {
                return Err(error);
            }
            key::assign(&mut last_key, user_key);
            last_seqno = entry.seqno;
            iter.next()?;
        }
        Ok(())
    }
}
