//! When enough of a table has expired for it to be written anew, from a sample.
//!
//! The times of the first and the last expiry say little where entries live for an hour and for years side by
//! side. So some entries are looked at, once, a few each from blocks evenly spaced.

use std::sync::Arc;

use crate::error::Result;
use crate::iter::InternalIterator;
use crate::key::SEQNO_MAX;
use crate::sstable::reader::Table;

/// Blocks that are looked at, at most, and entries of each.
const BLOCKS: usize = 32;
const ENTRIES_PER_BLOCK: usize = 8;

/// So much of a table has to have expired, as a divisor: its dead bytes are a quarter of its live ones then.
const SHARE: u64 = 5;

impl Table {
    /// From when on, in milliseconds since the Unix epoch, a fifth of the table has expired, values in the
    /// journal included, about; `u64::MAX` where that never comes. What can't be read is for a merge to tell of:
    /// a table with such a block counts as expired.
    ///
    /// The first call reads up to 32 blocks.
    pub fn largely_expired_at_ms(self: &Arc<Self>) -> u64 {
        if let Some(known) = self.largely_expired_if_known() {
            return known;
        }
        let moment = self.sample().map_or(0, moment_of);
        *self.largely_expired.get_or_init(|| moment)
    }

    /// The same, if no block has to be read for it.
    pub(crate) fn largely_expired_if_known(&self) -> Option<u64> {
        let properties = self.properties();
        let all_at_once = properties.expires_at_ms_min == properties.expires_at_ms_max
            && properties.expiring == properties.entries;
        match properties.expiring {
            0 => Some(u64::MAX),
            _ if all_at_once => Some(properties.expires_at_ms_max),
            _ => self.largely_expired.get().copied(),
        }
    }

    /// Of some entries: when they expire, and their bytes.
    fn sample(self: &Arc<Self>) -> Result<Vec<(u64, u64)>> {
        let all = self.block_count();
        let count = all.min(BLOCKS);
        let mut sampled = Vec::new();
        for nth in 0..count {
            if let Some(start) = self.boundary_keys().nth(nth * all / count) {
                self.sample_from(start, &mut sampled)?;
            }
        }
        Ok(sampled)
    }

    fn sample_from(self: &Arc<Self>, start: &[u8], sampled: &mut Vec<(u64, u64)>) -> Result<()> {
        let mut iter = self.iter(true);
        iter.seek(start, SEQNO_MAX)?;
        for _ in 0..ENTRIES_PER_BLOCK {
            if !iter.valid() {
                break;
            }
            let entry = iter.entry()?;
            let expires_at_ms = match entry.expires_at_ms {
                0 => u64::MAX,
                at_ms => at_ms,
            };
            sampled.push((expires_at_ms, entry.body.weight(iter.user_key())));
            iter.next()?;
        }
        Ok(())
    }
}

/// When a share of the bytes has expired; each entry is when it does so, and its bytes.
fn moment_of(mut sampled: Vec<(u64, u64)>) -> u64 {
    let needed = sampled.iter().map(|(_, bytes)| bytes).sum::<u64>().div_ceil(SHARE);
    sampled.sort_unstable();
    let mut expired = 0;
    let reached = sampled.iter().find(|(_, bytes)| {
        expired += bytes;
        expired >= needed
    });
    reached.map_or(u64::MAX, |&(at_ms, _)| at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_is_when_a_fifth_of_the_bytes_has_expired() {
        assert_eq!(moment_of(Vec::new()), u64::MAX);
        assert_eq!(moment_of(vec![(u64::MAX, 79), (300, 11), (100, 10)]), 300);
        assert_eq!(moment_of(vec![(u64::MAX, 81), (300, 10), (100, 9)]), u64::MAX);
        assert_eq!(moment_of(vec![(700, 400), (100, 100)]), 100);
    }
}
