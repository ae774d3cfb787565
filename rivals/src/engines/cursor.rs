//! A scan over the iterator of a library with a C interface, which stands on a pair and is moved on.
//!
//! Invariant: it isn't moved past the last pair that is wanted: a step may read another block.

use tallybook_lab::target::Answers;

/// Pairs in order.
pub(super) trait Cursor {
    /// The pair that it stands on; `None` at the end, or at an error.
    fn pair(&self) -> Option<(&[u8], &[u8])>;

    /// Moves on.
    ///
    /// Requires: it stands on a pair.
    fn advance(&mut self);
}

/// Shows up to `count` pairs, from the one on which it stands.
pub(super) fn show(cursor: &mut impl Cursor, count: u64, answers: &mut dyn Answers) {
    let mut left = count;
    while left > 0
        && let Some((key, value)) = cursor.pair()
    {
        answers.pair(key, value);
        left -= 1;
        if left > 0 {
            cursor.advance();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts how often it is moved.
    struct Counting {
        at: usize,
        pairs: usize,
    }

    impl Cursor for Counting {
        fn pair(&self) -> Option<(&[u8], &[u8])> {
            (self.at < self.pairs).then_some((b"key", b"value"))
        }

        fn advance(&mut self) {
            assert!(self.at < self.pairs, "it stood on no pair");
            self.at += 1;
        }
    }

    /// Counts the pairs that it is shown.
    struct Shown(usize);

    impl Answers for Shown {
        fn value(&mut self, _value: Option<&[u8]>) {}
        fn length(&mut self, _length: Option<u64>) {}
        fn pair(&mut self, _key: &[u8], _value: &[u8]) {
            self.0 += 1;
        }
        fn written(&mut self) {}
        fn failed(&mut self, _kind: &str) {}
    }

    #[test]
    fn it_moves_on_only_while_pairs_are_wanted() {
        for (count, pairs, shown, moved) in [(3, 10, 3, 2), (0, 10, 0, 0), (9, 4, 4, 4)] {
            let (mut cursor, mut answers) = (Counting { at: 0, pairs }, Shown(0));
            show(&mut cursor, count, &mut answers);
            assert_eq!((answers.0, cursor.at), (shown, moved), "{count} of {pairs}");
        }
    }
}
