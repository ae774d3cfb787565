//! The last rows of one span, numbered from 0 since the start.
//!
//! Invariant: at most `rows_max` rows are held; number `next() - 1` is the last of them.

use std::collections::VecDeque;

use serde::Serialize;

/// Numbered rows, of which the oldest go.
#[derive(Debug)]
pub(super) struct Ring {
    rows: VecDeque<(u64, Box<[f32]>)>,
    rows_max: usize,
    next: u64,
}

/// One column of some rows. Most are the same throughout on most servers, and cost one number then.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Column {
    /// Every row has this value.
    Same(f32),
    /// Each row's value; not a number where there is none, which JSON has as null.
    Each(Vec<f32>),
}

impl Ring {
    pub(super) fn new(rows_max: usize) -> Ring {
        Ring { rows: VecDeque::new(), rows_max, next: 0 }
    }

    pub(super) fn push(&mut self, at_ms: u64, values: Box<[f32]>) {
        if self.rows.len() == self.rows_max {
            self.rows.pop_front();
        }
        self.rows.push_back((at_ms, values));
        self.next += 1;
    }

    /// The number that the next row will have.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn last(&self) -> Option<&[f32]> {
        self.rows.back().map(|(_, values)| &values[..])
    }

    /// Times and columns of the rows from number `since` on.
    pub(super) fn columns_since(&self, since: u64, columns: usize) -> (Vec<u64>, Vec<Column>) {
        let first = self.next - self.rows.len() as u64;
        let skipped = usize::try_from(since.saturating_sub(first)).unwrap_or(usize::MAX);
        let rows = || self.rows.iter().skip(skipped);
        let times = rows().map(|(at_ms, _)| *at_ms).collect();
        let column = |at| Column::of(rows().map(|(_, values)| values[at]));
        (times, (0..columns).map(column).collect())
    }
}

impl Column {
    fn of(mut values: impl Iterator<Item = f32> + Clone) -> Column {
        let all = values.clone();
        // By bits: a value that is missing throughout is the same throughout.
        match values.next() {
            Some(first) if values.all(|value| value.to_bits() == first.to_bits()) => {
                Column::Same(first)
            }
            _ => Column::Each(all.collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_numbers_when_the_oldest_go() {
        let mut ring = Ring::new(3);
        for at in 0..5_u8 {
            ring.push(u64::from(at) * 1000, Box::new([f32::from(at), 7.0, f32::NAN]));
        }
        let (times, columns) = ring.columns_since(0, 3);
        assert_eq!((times, ring.next()), (vec![2000, 3000, 4000], 5));
        assert_eq!(columns[..2], [Column::Each(vec![2.0, 3.0, 4.0]), Column::Same(7.0)]);
        assert_eq!(serde_json::to_string(&columns[2]).unwrap(), "null");
        assert_eq!(ring.columns_since(4, 1).0, [4000]);
        assert_eq!(ring.columns_since(5, 1), (vec![], vec![Column::Each(vec![])]));
        assert_eq!(ring.columns_since(u64::MAX, 1).0, [] as [u64; 0]);
        assert_eq!(ring.last().unwrap()[0], 4.0);
    }
}
