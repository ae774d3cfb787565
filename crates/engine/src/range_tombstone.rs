//! Deleted ranges: which SeqNo a key is deleted up to.

use bytes::Bytes;

use crate::key::SeqNo;

/// Every key in `[start, end)` written before `seqno` is deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstone {
    /// First key deleted.
    pub start: Bytes,
    /// First key not deleted.
    pub end: Bytes,
    /// Number of the deletion.
    pub seqno: SeqNo,
}

/// A set of deleted ranges, split where they overlap so that a look-up is one binary search.
#[derive(Debug, Clone, Default)]
pub struct RangeTombstones {
    /// Disjoint, ascending; the SeqNos of each are descending.
    fragments: Vec<Fragment>,
}

#[derive(Debug, Clone)]
struct Fragment {
    start: Bytes,
    end: Bytes,
    seqnos: Vec<SeqNo>,
}

impl RangeTombstones {
    /// The set of these deletions, in any order.
    pub fn new(tombstones: impl IntoIterator<Item = RangeTombstone>) -> Self {
        let tombstones: Vec<_> = tombstones.into_iter().collect();
        let mut edges: Vec<Bytes> =
            tombstones.iter().flat_map(|t| [t.start.clone(), t.end.clone()]).collect();
        edges.sort();
        edges.dedup();
        let mut fragments: Vec<Fragment> = Vec::new();
        for pair in edges.windows(2) {
            let mut seqnos: Vec<SeqNo> = tombstones
                .iter()
                .filter(|t| t.start <= pair[0] && t.end >= pair[1])
                .map(|t| t.seqno)
                .collect();
            if seqnos.is_empty() {
                continue;
            }
            seqnos.sort_unstable_by(|a, b| b.cmp(a));
            seqnos.dedup();
            match fragments.last_mut() {
                Some(last) if last.end == pair[0] && last.seqnos == seqnos => {
                    last.end = pair[1].clone();
                }
                _ => fragments.push(Fragment {
                    start: pair[0].clone(),
                    end: pair[1].clone(),
                    seqnos,
                }),
            }
        }
        RangeTombstones { fragments }
    }

    /// Whether no range is deleted.
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The newest deletion of `user_key` that a read at `max_seqno` sees; 0 for none.
    pub fn cover(&self, user_key: &[u8], max_seqno: SeqNo) -> SeqNo {
        if self.fragments.is_empty() {
            return 0;
        }
        let after = self.fragments.partition_point(|fragment| fragment.start[..] <= *user_key);
        match after.checked_sub(1).map(|at| &self.fragments[at]) {
            Some(fragment) if *user_key < fragment.end[..] => {
                fragment.seqnos.iter().copied().find(|&seqno| seqno <= max_seqno).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// The deletions, disjoint or equal in range, ascending by start, newest first.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.fragments.iter().flat_map(|fragment| {
            fragment.seqnos.iter().map(|&seqno| RangeTombstone {
                start: fragment.start.clone(),
                end: fragment.end.clone(),
                seqno,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tombstone(start: &'static str, end: &'static str, seqno: SeqNo) -> RangeTombstone {
        RangeTombstone { start: Bytes::from(start), end: Bytes::from(end), seqno }
    }

    #[test]
    fn the_newest_visible_deletion_covers() {
        let set = RangeTombstones::new([
            tombstone("b", "f", 5),
            tombstone("d", "h", 9),
            tombstone("x", "z", 2),
        ]);
        for (key, max, expected) in [
            ("a", 99, 0),
            ("b", 99, 5),
            ("d", 99, 9),
            ("d", 8, 5),
            ("d", 4, 0),
            ("f", 99, 9),
            ("h", 99, 0),
            ("y", 99, 2),
            ("z", 99, 0),
        ] {
            assert_eq!(set.cover(key.as_bytes(), max), expected, "{key} at {max}");
        }
    }
}
