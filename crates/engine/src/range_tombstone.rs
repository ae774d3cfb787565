//! Deleted ranges: which SeqNo a key is deleted up to.

use std::collections::BinaryHeap;

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

/// A set of deleted ranges that tells which of them cover a key.
///
/// A segment tree (Bentley, "Algorithms for Klee's rectangle problems", 1977): the places where ranges
/// start or end cut the keys into pieces, the tree's leaves; a range is noted at the few nodes that
/// together are its pieces, and a key is covered by what is noted on its way from its leaf to the root.
/// So `n` ranges take memory for `n log n` numbers however they overlap, and a look-up is a search among
/// the edges and one in each of `log n` nodes.
#[derive(Debug, Clone, Default)]
pub struct RangeTombstones {
    /// The ranges, ascending.
    deletions: Vec<RangeTombstone>,
    /// Where they start and end, ascending. Piece `i` is the keys from edge `i` to edge `i + 1`.
    edges: Vec<Bytes>,
    /// SeqNos by node, ascending. The parent of node `n` is `n / 2`, the root 1, and the leaves are the
    /// second half.
    nodes: Vec<Vec<SeqNo>>,
    /// Memory taken, about.
    bytes: usize,
}

impl RangeTombstones {
    /// The set of these deletions, in any order.
    pub fn new(tombstones: impl IntoIterator<Item = RangeTombstone>) -> Self {
        let mut deletions: Vec<RangeTombstone> =
            tombstones.into_iter().filter(|deletion| deletion.start < deletion.end).collect();
        deletions.sort_unstable();
        deletions.dedup();
        let edges = edges(&deletions);
        let leaves = edges.len().saturating_sub(1);
        let mut nodes = vec![Vec::new(); 2 * leaves];
        let place = |edge: &Bytes| edges.partition_point(|other| other < edge) + leaves;
        for deletion in &deletions {
            // The nodes that end at either side and have their siblings outside, from the leaves up.
            let (mut from, mut to) = (place(&deletion.start), place(&deletion.end));
            while from < to {
                if from % 2 == 1 {
                    nodes[from].push(deletion.seqno);
                    from += 1;
                }
                if to % 2 == 1 {
                    to -= 1;
                    nodes[to].push(deletion.seqno);
                }
                (from, to) = (from / 2, to / 2);
            }
        }
        for seqnos in &mut nodes {
            seqnos.sort_unstable();
            seqnos.shrink_to_fit();
        }
        let keys: usize = edges.iter().map(Bytes::len).sum();
        let noted: usize = nodes.iter().map(|seqnos| size_of_val(&seqnos[..])).sum();
        let vectors =
            size_of_val(&deletions[..]) + size_of_val(&edges[..]) + size_of_val(&nodes[..]);
        RangeTombstones { deletions, edges, nodes, bytes: keys + noted + vectors }
    }

    /// Whether no range is deleted.
    pub fn is_empty(&self) -> bool {
        self.deletions.is_empty()
    }

    /// Number of deletions.
    pub fn len(&self) -> usize {
        self.deletions.len()
    }

    /// The newest deletion of `user_key` that a read at `max_seqno` sees; 0 for none.
    #[inline]
    pub fn cover(&self, user_key: &[u8], max_seqno: SeqNo) -> SeqNo {
        if self.is_empty() { 0 } else { self.newest_cover(user_key, max_seqno) }
    }

    fn newest_cover(&self, user_key: &[u8], max_seqno: SeqNo) -> SeqNo {
        let begun = self.edges.partition_point(|edge| edge[..] <= *user_key);
        if begun == 0 || begun == self.edges.len() {
            return 0;
        }
        let leaves = self.edges.len() - 1;
        let to_the_root = std::iter::successors(Some(begun - 1 + leaves), |node| Some(node / 2));
        let newest_of = |node: usize| {
            let seqnos = &self.nodes[node];
            let seen = seqnos.partition_point(|&seqno| seqno <= max_seqno);
            seen.checked_sub(1).map(|at| seqnos[at])
        };
        to_the_root.take_while(|&node| node > 0).filter_map(newest_of).max().unwrap_or(0)
    }

    /// The deletions, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &RangeTombstone> + '_ {
        self.deletions.iter()
    }

    /// Memory taken, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What readers who see all of these deletions have of them: of each piece the newest alone. Disjoint,
/// ascending, at most twice as many as there were. Requires: `deletions` ascend.
pub fn newest(deletions: &[RangeTombstone]) -> Vec<RangeTombstone> {
    debug_assert!(deletions.is_sorted());
    let mut starting = deletions.iter().peekable();
    // Those that have started: the newest first, with their ends.
    let mut open = BinaryHeap::new();
    let mut kept: Vec<RangeTombstone> = Vec::new();
    for piece in edges(deletions).windows(2) {
        let (start, end) = (&piece[0], &piece[1]);
        while let Some(deletion) = starting.next_if(|deletion| deletion.start <= *start) {
            open.push((deletion.seqno, &deletion.end));
        }
        while open.peek().is_some_and(|&(_, ended)| ended <= start) {
            open.pop();
        }
        let Some(&(seqno, _)) = open.peek() else { continue };
        match kept.last_mut() {
            Some(last) if last.end == *start && last.seqno == seqno => last.end = end.clone(),
            _ => kept.push(RangeTombstone { start: start.clone(), end: end.clone(), seqno }),
        }
    }
    kept
}

/// Every place where a deletion starts or ends, ascending.
fn edges(deletions: &[RangeTombstone]) -> Vec<Bytes> {
    let both = |deletion: &RangeTombstone| [deletion.start.clone(), deletion.end.clone()];
    let mut edges: Vec<Bytes> = deletions.iter().flat_map(both).collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    #[test]
    fn ranges_within_ranges_take_little_memory() {
        // As who trims a log deletes: from its front to ever later places.
        let ends = (1..=4000).map(|end: u32| (end, Bytes::copy_from_slice(&end.to_be_bytes())));
        let nested: Vec<RangeTombstone> = ends
            .map(|(end, key)| RangeTombstone { start: Bytes::new(), end: key, seqno: end.into() })
            .collect();
        let set = RangeTombstones::new(nested.clone());
        assert_eq!(set.len(), 4000);
        assert!(set.bytes() < 4000 * 500, "{} bytes", set.bytes());
        for at in [0u32, 1, 77, 3999] {
            let key = at.to_be_bytes();
            assert_eq!(set.cover(&key, SeqNo::MAX), 4000);
            assert_eq!(set.cover(&key, 100), if at < 100 { 100 } else { 0 });
        }
        assert_eq!(newest(&nested), nested[3999..]);
    }

    fn deletions() -> impl Strategy<Value = Vec<RangeTombstone>> {
        let deletion = |(start, end, seqno): (u8, u8, SeqNo)| RangeTombstone {
            start: Bytes::copy_from_slice(&[start]),
            end: Bytes::copy_from_slice(&[end]),
            seqno,
        };
        proptest::collection::vec((0u8..20, 0u8..20, 1u64..9).prop_map(deletion), 0..20)
    }

    fn cover_one_by_one(deletions: &[RangeTombstone], key: &[u8], max_seqno: SeqNo) -> SeqNo {
        let covers = deletions.iter().filter(|deletion| {
            deletion.start[..] <= *key && *key < deletion.end[..] && deletion.seqno <= max_seqno
        });
        covers.map(|deletion| deletion.seqno).max().unwrap_or(0)
    }

    proptest::proptest! {
        #[test]
        fn a_set_answers_as_its_deletions_do_one_by_one(deletions in deletions()) {
            let set = RangeTombstones::new(deletions.clone());
            for key in 0..21 {
                for max_seqno in 0..10 {
                    let expected = cover_one_by_one(&deletions, &[key], max_seqno);
                    prop_assert_eq!(set.cover(&[key], max_seqno), expected);
                }
            }
        }

        #[test]
        fn the_newest_of_each_piece_cover_what_all_do(deletions in deletions()) {
            let set = RangeTombstones::new(deletions);
            let all: Vec<_> = set.iter().cloned().collect();
            let newest = newest(&all);
            for key in 0..21 {
                let expected = cover_one_by_one(&all, &[key], SeqNo::MAX);
                prop_assert_eq!(cover_one_by_one(&newest, &[key], SeqNo::MAX), expected);
            }
            prop_assert!(newest.len() <= 2 * all.len());
            let disjoint = newest.windows(2).all(|pair| pair[0].end <= pair[1].start);
            prop_assert!(disjoint, "{newest:?}");
        }
    }
}
