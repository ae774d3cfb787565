//! Sorted words, laid out so that a search waits for few cache lines.
//!
//! A static B-tree (Bayer and McCreight, "Organization and Maintenance of Large Ordered Indexes", 1972)
//! without pointers: a node is a cache line of eight words, and above the words stands, of every line but
//! the last, the last word; above these the same, until one line is left. The lines of the upper levels
//! are few and stay in the processor's caches.

/// Words of a cache line.
const LINE_WORDS: usize = 8;

/// Filled up with the largest word, which no word is above.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line([u64; LINE_WORDS]);

impl Line {
    #[inline]
    fn count_below(&self, word: u64) -> usize {
        self.0.iter().map(|&other| usize::from(other < word)).sum()
    }
}

/// Words in ascending order.
#[derive(Debug)]
pub(super) struct SortedWords {
    /// The words themselves first, the single line last.
    levels: Box<[Box<[Line]>]>,
}

impl SortedWords {
    /// Of these words, which ascend.
    pub(super) fn new(words: &[u64]) -> SortedWords {
        let mut levels = vec![lines(words)];
        while let Some((_, below)) = levels[levels.len() - 1].split_last()
            && !below.is_empty()
        {
            let upper: Vec<u64> = below.iter().map(|line| line.0[LINE_WORDS - 1]).collect();
            levels.push(lines(&upper));
        }
        SortedWords { levels: levels.into() }
    }

    /// How many are below `word`, and whether it may itself come next: if not, it is not there.
    #[inline]
    pub(super) fn search(&self, word: u64) -> (usize, bool) {
        let (mut below, mut is_next) = (0, false);
        for level in self.levels.iter().rev() {
            let line = &level[below];
            let at = line.count_below(word);
            is_next = line.0.get(at) == Some(&word);
            below = below * LINE_WORDS + at;
        }
        (below, is_next)
    }

    /// Memory held.
    pub(super) fn resident_bytes(&self) -> usize {
        self.levels.iter().map(|level| size_of_val(&**level)).sum()
    }
}

/// At least one line.
fn lines(words: &[u64]) -> Box<[Line]> {
    let mut lines = vec![Line([u64::MAX; LINE_WORDS]); words.len().div_ceil(LINE_WORDS).max(1)];
    for (line, words) in lines.iter_mut().zip(words.chunks(LINE_WORDS)) {
        line.0[..words.len()].copy_from_slice(words);
    }
    lines.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_counts_what_is_below_at_every_size() {
        for count in (0..100).chain([511, 512, 513, 520, 4095, 4096, 4097, 5000]) {
            // Each word twice, the largest of all among them.
            let words: Vec<u64> =
                (0..count).map(|at| u64::MAX - (count - 1 - at) / 2 * 3).collect();
            let sorted = SortedWords::new(&words);
            for (at, &word) in words.iter().enumerate() {
                for probe in [0, word - 1, word, word.saturating_add(1)] {
                    let below = words.partition_point(|&other| other < probe);
                    let is_next = words.get(below) == Some(&probe);
                    let found = sorted.search(probe);
                    assert_eq!(found.0, below, "{at} of {count}");
                    assert!(found.1 == is_next || probe == u64::MAX, "{at} of {count}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_below_in_nothing() {
        let sorted = SortedWords::new(&[]);
        assert_eq!((sorted.search(7), sorted.search(u64::MAX).0), ((0, false), 0));
    }
}
