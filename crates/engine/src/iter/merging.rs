//! Several sorted sources as one, in internal order.
//!
//! 1. A heap holds the valid sources, the next one to yield at the top.
//! 2. Moving on advances the top source and sifts it down.
//! 3. Turning round places every other source on the far side of the current entry first.
//!
//! Sources must not hold two entries with the same user key and SeqNo between them.

use std::cmp::Ordering;

use super::InternalIterator;
use crate::error::Result;
use crate::head::{Entry, EntryRef, ValuePointer};
use crate::key::{self, SeqNo};

/// A boxed source.
pub type Source = Box<dyn InternalIterator>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Where a valid source stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The front of its key, so that most comparisons need neither source.
    front: u128,
    source: usize,
}

/// The merge of several sources.
pub struct MergingIterator {
    sources: Vec<Source>,
    /// The valid sources as a binary heap, the current one first.
    heap: Vec<Place>,
    direction: Direction,
}

impl MergingIterator {
    /// The merge of these sources; not valid until a seek.
    pub fn new(sources: Vec<Source>) -> Self {
        let heap = Vec::with_capacity(sources.len());
        MergingIterator { sources, heap, direction: Direction::Forward }
    }

    /// Where a source stands. Requires: it is valid.
    fn place(&self, source: usize) -> Place {
        Place { front: key::front(self.sources[source].internal_key().0), source }
    }

    /// Whether the source at `a` yields before that at `b` in the current direction.
    #[inline]
    fn before(&self, a: Place, b: Place) -> bool {
        let order = a.front.cmp(&b.front).then_with(|| self.compare_whole(a, b));
        order
            == if self.direction == Direction::Forward { Ordering::Less } else { Ordering::Greater }
    }

    fn compare_whole(&self, a: Place, b: Place) -> Ordering {
        let (a_key, a_seqno) = self.sources[a.source].internal_key();
        let (b_key, b_seqno) = self.sources[b.source].internal_key();
        key::compare(a_key, a_seqno, b_key, b_seqno)
    }

    fn rebuild(&mut self, direction: Direction) {
        self.direction = direction;
        self.heap.clear();
        for source in 0..self.sources.len() {
            if self.sources[source].valid() {
                self.heap.push(self.place(source));
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut first = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.before(self.heap[child], self.heap[first]) {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.heap.swap(at, first);
            at = first;
        }
    }

    /// Restores the heap after the top source moved.
    fn settle(&mut self) {
        let source = self.heap[0].source;
        if self.sources[source].valid() {
            self.heap[0] = self.place(source);
        } else {
            self.heap.swap_remove(0);
        }
        if self.heap.len() > 1 {
            self.sift_down(0);
        }
    }

    fn seek_all(
        &mut self,
        direction: Direction,
        mut seek: impl FnMut(&mut Source) -> Result<()>,
    ) -> Result<()> {
        self.heap.clear();
        for source in &mut self.sources {
            seek(source)?;
        }
        self.rebuild(direction);
        Ok(())
    }

    /// Places every source but the top on the far side of the current entry.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let top = self.heap[0].source;
        let (user_key, seqno) = self.sources[top].internal_key();
        let user_key = user_key.to_vec();
        self.heap.clear();
        for (at, source) in self.sources.iter_mut().enumerate() {
            if at == top {
                continue;
            }
            // The first entry at or after the current one; no source but the top holds it itself.
            source.seek(&user_key, seqno)?;
            if direction == Direction::Backward {
                if source.valid() {
                    source.prev()?;
                } else {
                    source.seek_to_last()?;
                }
            }
        }
        self.rebuild(direction);
        // The current entry is the extreme one of its side, so it is on top again.
        debug_assert_eq!(
            self.heap.first().map(|place| place.source),
            Some(top),
            "the turning source stays current"
        );
        Ok(())
    }

    fn top(&self) -> &Source {
        &self.sources[self.heap[0].source]
    }
}

impl InternalIterator for MergingIterator {
    fn seek_to_first(&mut self) -> Result<()> {
        self.seek_all(Direction::Forward, |source| source.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.seek_all(Direction::Backward, |source| source.seek_to_last())
    }

    fn seek(&mut self, user_key: &[u8], seqno: SeqNo) -> Result<()> {
        self.seek_all(Direction::Forward, |source| source.seek(user_key, seqno))
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<()> {
        self.seek_all(Direction::Backward, |source| source.seek_before(user_key))
    }

    fn next(&mut self) -> Result<()> {
        if self.direction == Direction::Backward {
            self.turn(Direction::Forward)?;
        }
        let top = self.heap[0].source;
        let moved = self.sources[top].next();
        if moved.is_err() {
            self.heap.clear();
            return moved;
        }
        self.settle();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if self.direction == Direction::Forward {
            self.turn(Direction::Backward)?;
        }
        let top = self.heap[0].source;
        let moved = self.sources[top].prev();
        if moved.is_err() {
            self.heap.clear();
            return moved;
        }
        self.settle();
        Ok(())
    }

    fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    fn internal_key(&self) -> (&[u8], SeqNo) {
        self.top().internal_key()
    }

    fn entry(&self) -> Result<EntryRef<'_>> {
        self.top().entry()
    }

    fn owned_entry(&self) -> Result<Entry> {
        self.top().owned_entry()
    }

    fn expiry(&self) -> Result<Option<u64>> {
        self.top().expiry()
    }

    fn inline_value(&self) -> Result<Option<&[u8]>> {
        self.top().inline_value()
    }

    /// Of the same source: it comes next, or soon.
    fn values_ahead(&self, steps: usize, tell: &mut dyn FnMut(&ValuePointer)) {
        self.top().values_ahead(steps, tell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::BodyRef;
    use crate::key::SEQNO_MAX;

    /// A sorted list as a source.
    struct List {
        items: Vec<(Vec<u8>, SeqNo)>,
        at: Option<usize>,
    }

    impl InternalIterator for List {
        fn seek_to_first(&mut self) -> Result<()> {
            self.at = Some(0).filter(|_| !self.items.is_empty());
            Ok(())
        }
        fn seek_to_last(&mut self) -> Result<()> {
            self.at = self.items.len().checked_sub(1);
            Ok(())
        }
        fn seek(&mut self, user_key: &[u8], seqno: SeqNo) -> Result<()> {
            let at = self
                .items
                .partition_point(|(k, s)| key::compare(k, *s, user_key, seqno) == Ordering::Less);
            self.at = Some(at).filter(|&at| at < self.items.len());
            Ok(())
        }
        fn seek_before(&mut self, user_key: &[u8]) -> Result<()> {
            self.at = self.items.partition_point(|(k, _)| &k[..] < user_key).checked_sub(1);
            Ok(())
        }
        fn next(&mut self) -> Result<()> {
            self.at = self.at.map(|at| at + 1).filter(|&at| at < self.items.len());
            Ok(())
        }
        fn prev(&mut self) -> Result<()> {
            self.at = self.at.and_then(|at| at.checked_sub(1));
            Ok(())
        }
        fn valid(&self) -> bool {
            self.at.is_some()
        }
        fn internal_key(&self) -> (&[u8], SeqNo) {
            let (user_key, seqno) = &self.items[self.at.unwrap()];
            (user_key, *seqno)
        }
        fn entry(&self) -> Result<EntryRef<'_>> {
            Ok(EntryRef {
                seqno: self.seqno(),
                written_at_ms: 0,
                expires_at_ms: 0,
                attributes: &[],
                body: BodyRef::Delete,
            })
        }
        fn owned_entry(&self) -> Result<Entry> {
            Ok(self.entry()?.to_entry())
        }
    }

    #[test]
    fn random_walks_equal_a_sorted_list() {
        let mut state = 7u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut all = Vec::new();
            let mut lists = vec![Vec::new(), Vec::new(), Vec::new(), Vec::new()];
            for seqno in 1..=random(40) + 1 {
                let item = (vec![b'a' + random(8) as u8], seqno);
                lists[random(4) as usize].push(item.clone());
                all.push(item);
            }
            let order = |a: &(Vec<u8>, u64), b: &(Vec<u8>, u64)| key::compare(&a.0, a.1, &b.0, b.1);
            all.sort_by(order);
            let sources = lists.into_iter().map(|mut items| {
                items.sort_by(order);
                Box::new(List { items, at: None }) as Source
            });
            let mut merged = MergingIterator::new(sources.collect());
            let mut model = List { items: all, at: None };
            for _ in 0..100 {
                let target = [b'a' + random(9) as u8];
                match random(8) {
                    0 => (merged.seek_to_first().unwrap(), model.seek_to_first().unwrap()),
                    1 => (merged.seek_to_last().unwrap(), model.seek_to_last().unwrap()),
                    2 => (
                        merged.seek(&target, SEQNO_MAX).unwrap(),
                        model.seek(&target, SEQNO_MAX).unwrap(),
                    ),
                    3 => {
                        (merged.seek_before(&target).unwrap(), model.seek_before(&target).unwrap())
                    }
                    4 | 5 if model.valid() => (merged.next().unwrap(), model.next().unwrap()),
                    6 | 7 if model.valid() => (merged.prev().unwrap(), model.prev().unwrap()),
                    _ => continue,
                };
                assert_eq!(merged.valid(), model.valid());
                if model.valid() {
                    assert_eq!(merged.user_key(), model.user_key());
                    assert_eq!(merged.seqno(), model.seqno());
                }
            }
        }
    }
}
