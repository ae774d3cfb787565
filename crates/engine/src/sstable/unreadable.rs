//! How far a table can be read that is damaged.

use bytes::Bytes;

use crate::error::Error;
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
}
