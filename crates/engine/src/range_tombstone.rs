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
        // Every place where a deletion starts or ends, in order; at one place ends come first.
        let deletions = tombstones.into_iter().filter(|deletion| deletion.start < deletion.end);
        let mut edges: Vec<(Bytes, bool, SeqNo)> = deletions
            .flat_map(|RangeTombstone { start, end, seqno }| {
                [(start, true, seqno), (end, false, seqno)]
            })
            .collect();
        edges.sort();
        let mut fragments: Vec<Fragment> = Vec::new();
        // The deletions of the keys from `from` on, newest first.
        let (mut open, mut from) = (Vec::new(), Bytes::new());
        for (place, starts, seqno) in edges {
            if !open.is_empty() && from < place {
                let mut seqnos = open.clone();
                seqnos.dedup();
                match fragments.last_mut() {
                    Some(last) if last.end == from && last.seqnos == seqnos => {
                        last.end = place.clone();
                    }
                    _ => fragments.push(Fragment { start: from, end: place.clone(), seqnos }),
                }
            }
            let at = open.partition_point(|&other| other > seqno);
            if starts {
                open.insert(at, seqno);
            } else {
                open.remove(at);
            }
            from = place;
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

    proptest::proptest! {
        #[test]
        fn a_set_answers_as_its_deletions_do_one_by_one(
            deletions in proptest::collection::vec((0u8..20, 0u8..20, 1u64..9), 0..20),
        ) {
            let deletion = |&(start, end, seqno): &(u8, u8, SeqNo)| RangeTombstone {
                start: Bytes::copy_from_slice(&[start]),
                end: Bytes::copy_from_slice(&[end]),
                seqno,
            };
            let set = RangeTombstones::new(deletions.iter().map(deletion));
            // What a set lists makes the same set again.
            let again = RangeTombstones::new(set.iter());
            for key in 0..21 {
                for max_seqno in 0..10 {
                    let covers = deletions.iter().filter(|&&(start, end, seqno)| {
                        start <= key && key < end && seqno <= max_seqno
                    });
                    let expected = covers.map(|deletion| deletion.2).max().unwrap_or(0);
                    proptest::prop_assert_eq!(set.cover(&[key], max_seqno), expected);
                    proptest::prop_assert_eq!(again.cover(&[key], max_seqno), expected);
                }
            }
            let listed: Vec<_> = set.iter().collect();
            for pair in listed.windows(2) {
                let (one, next) = (&pair[0], &pair[1]);
                let is_same = one.start == next.start && one.end == next.end;
                proptest::prop_assert!(one.end <= next.start || is_same && one.seqno > next.seqno);
            }
        }
    }
}
