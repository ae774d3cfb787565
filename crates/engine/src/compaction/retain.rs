//! Which versions of a key a flush or a compaction keeps.
//!
//! Snapshots cut the SeqNos into stripes: `[.., s0]`, `(s0, s1]`, ..., `(sn, ..)`. Within a stripe no
//! reader can tell a version from the newest one, so only the newest is kept, and not even that one
//! if a range deletion of the same stripe is newer. At the bottom, where nothing older can be
//! uncovered, a deletion (or an expired entry) of the oldest stripe has done its work and goes too.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::head;
use crate::key::{self, SEQNO_MAX, SeqNo};
use crate::range_tombstone::{RangeTombstone, RangeTombstones, newest};

/// Decides entry by entry, in internal order.
#[derive(Debug)]
pub struct Retain<'a> {
    /// Pinned SeqNos, ascending.
    snapshots: &'a [SeqNo],
    range_tombstones: &'a RangeTombstones,
    /// Whether no older version of any key seen here exists outside the inputs.
    bottom: bool,
    now_ms: u64,
    last_key: Vec<u8>,
    /// Stripe of the last entry seen of `last_key`.
    last_stripe: Option<usize>,
}

impl<'a> Retain<'a> {
    /// Requires: `snapshots` ascend.
    pub fn new(
        snapshots: &'a [SeqNo],
        range_tombstones: &'a RangeTombstones,
        bottom: bool,
        now_ms: u64,
    ) -> Self {
        debug_assert!(snapshots.is_sorted());
        Retain {
            snapshots,
            range_tombstones,
            bottom,
            now_ms,
            last_key: Vec::new(),
            last_stripe: None,
        }
    }

    fn stripe(&self, seqno: SeqNo) -> usize {
        self.snapshots.partition_point(|&snapshot| snapshot < seqno)
    }

    /// Whether the entry with this SeqNo and expiry, as of `EntryRef::expiry`, which is asked for if it
    /// matters, is kept. Requires: calls come in internal order.
    #[inline]
    pub fn keeps(
        &mut self,
        user_key: &[u8],
        seqno: SeqNo,
        expiry: impl FnOnce() -> Result<Option<u64>>,
    ) -> Result<bool> {
        let stripe = self.stripe(seqno);
        if self.last_stripe.is_none() || !key::same(&self.last_key, user_key) {
            key::assign(&mut self.last_key, user_key);
        } else if self.last_stripe == Some(stripe) {
            return Ok(false);
        }
        self.last_stripe = Some(stripe);
        if !self.range_tombstones.is_empty() {
            let newest_reader = self.snapshots.get(stripe).copied().unwrap_or(SEQNO_MAX);
            if self.range_tombstones.cover(user_key, newest_reader) > seqno {
                return Ok(false);
            }
        }
        Ok(!self.bottom || stripe > 0 || head::is_live(expiry()?, || self.now_ms))
    }

    /// The range deletions that are kept, ascending by start: of each stripe the newest of each piece.
    pub fn kept_ranges(&self) -> Vec<RangeTombstone> {
        let mut stripes: BTreeMap<usize, Vec<RangeTombstone>> = BTreeMap::new();
        for deletion in self.range_tombstones.iter() {
            stripes.entry(self.stripe(deletion.seqno)).or_default().push(deletion.clone());
        }
        if self.bottom {
            stripes.remove(&0);
        }
        let mut kept: Vec<_> = stripes.values().flat_map(|stripe| newest(stripe)).collect();
        kept.sort();
        kept
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::head::{Body, Entry};

    /// Entries as `key@seqno`, with `-` for a deletion and `!` for an expired one; answers the kept.
    fn check(
        snapshots: &[SeqNo],
        ranges: &[(&str, &str, SeqNo)],
        bottom: bool,
        input: &str,
        expected: &str,
    ) {
        let tombstones = RangeTombstones::new(ranges.iter().map(|&(start, end, seqno)| {
            RangeTombstone { start: start.to_owned().into(), end: end.to_owned().into(), seqno }
        }));
        let mut retain = Retain::new(snapshots, &tombstones, bottom, 100);
        let kept: Vec<&str> = input
            .split_whitespace()
            .filter(|word| {
                let (key, rest) = word.split_once('@').unwrap();
                let entry = Entry {
                    seqno: rest.trim_end_matches(['-', '!']).parse().unwrap(),
                    written_at_ms: 0,
                    expires_at_ms: if rest.ends_with('!') { 50 } else { 0 },
                    attributes: Bytes::new(),
                    body: if rest.ends_with('-') {
                        Body::Delete
                    } else {
                        Body::Inline(Bytes::new())
                    },
                };
                let expiry = || Ok(entry.by_ref().expiry());
                retain.keeps(key.as_bytes(), entry.seqno, expiry).unwrap()
            })
            .collect();
        assert_eq!(kept.join(" "), expected, "{input} with snapshots {snapshots:?}");
    }

    #[test]
    fn the_newest_version_of_each_stripe_is_kept() {
        check(&[], &[], false, "a@9 a@5 a@1 b@7 b@2", "a@9 b@7");
        check(&[5], &[], false, "a@9 a@5 a@1 b@7 b@2", "a@9 a@5 b@7 b@2");
        check(&[3, 6], &[], false, "a@9 a@8 a@5 a@4 a@2 a@1", "a@9 a@5 a@2");
    }

    #[test]
    fn deletions_and_expired_entries_go_at_the_bottom_only() {
        check(&[], &[], false, "a@9- a@1 b@8! b@2", "a@9- b@8!");
        check(&[], &[], true, "a@9- a@1 b@8! b@2 c@3", "c@3");
        check(&[5], &[], true, "a@9- a@1", "a@9- a@1");
        check(&[9], &[], true, "a@9- a@1", "");
    }

    #[test]
    fn a_range_deletion_covers_older_entries_of_its_stripe() {
        check(&[], &[("a", "c", 5)], false, "a@9 a@1 b@4 c@3", "a@9 c@3");
        check(&[4], &[("a", "c", 5)], false, "b@4 b@2", "b@4");
        check(&[4, 6], &[("a", "c", 5)], false, "b@4 b@2", "b@4");
        check(&[2, 6], &[("a", "c", 5)], false, "b@4 b@2", "b@2");
    }

    proptest::proptest! {
        #[test]
        fn kept_ranges_delete_for_every_reader_what_all_did(
            ranges in proptest::collection::vec((0u8..12, 0u8..12, 1u64..20), 0..20),
            snapshots in proptest::collection::btree_set(1u64..20, 0..4),
        ) {
            let all = RangeTombstones::new(ranges.iter().map(|&(start, end, seqno)| {
                let key = |byte| Bytes::copy_from_slice(&[byte]);
                RangeTombstone { start: key(start), end: key(end), seqno }
            }));
            let snapshots: Vec<SeqNo> = snapshots.into_iter().collect();
            let kept = Retain::new(&snapshots, &all, false, 0).kept_ranges();
            proptest::prop_assert!(kept.is_sorted_by(|a, b| a.start <= b.start));
            let kept = RangeTombstones::new(kept);
            for reader in snapshots.iter().copied().chain([SEQNO_MAX]) {
                for key in 0..12 {
                    proptest::prop_assert_eq!(kept.cover(&[key], reader), all.cover(&[key], reader));
                }
            }
            // At the bottom the oldest stripe has done its work.
            let at_the_bottom = Retain::new(&snapshots, &all, true, 0).kept_ranges();
            let oldest = snapshots.first().copied().unwrap_or(SEQNO_MAX);
            proptest::prop_assert!(at_the_bottom.iter().all(|range| range.seqno > oldest));
        }
    }
}
