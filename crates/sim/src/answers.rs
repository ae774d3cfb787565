//! What a read answers, and what a state of the model says it should.

use bytes::Bytes;
use tallybook::checksum;
use tallybook::error::Result;
use tallybook::head::Head;
use tallybook::store::{Cursor, Range, RangeHeads, ScanOptions, Snapshot, Store};

use crate::operations::{Bounds, Move, ReadStep};
use crate::record::{Record, State, live, live_record};
use crate::violation::show;

/// Something that can be read: a store as it is, or a snapshot of it.
pub trait Reader {
    /// A value.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;
    /// A head.
    fn head(&self, key: &[u8]) -> Result<Option<Head>>;
    /// Head and value.
    fn get_entry(&self, key: &[u8]) -> Result<Option<(Head, Bytes)>>;
    /// Entries of a range.
    fn range(&self, options: ScanOptions) -> Result<Range>;
    /// Heads of a range.
    fn range_heads(&self, options: ScanOptions) -> Result<RangeHeads>;
    /// A cursor.
    fn cursor(&self, options: ScanOptions) -> Result<Cursor>;
}

macro_rules! reader {
    ($type:ty) => {
        impl Reader for $type {
            fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
                self.get(key)
            }
            fn head(&self, key: &[u8]) -> Result<Option<Head>> {
                self.head(key)
            }
            fn get_entry(&self, key: &[u8]) -> Result<Option<(Head, Bytes)>> {
                self.get_entry(key)
            }
            fn range(&self, options: ScanOptions) -> Result<Range> {
                self.range(options)
            }
            fn range_heads(&self, options: ScanOptions) -> Result<RangeHeads> {
                self.range_heads(options)
            }
            fn cursor(&self, options: ScanOptions) -> Result<Cursor> {
                self.cursor(options)
            }
        }
    };
}
reader!(Store);
reader!(Snapshot);

/// One entry as a read showed it; a part it doesn't show is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    key: Bytes,
    head: Option<Head>,
    value: Option<Bytes>,
}

/// What a read answered: the entries it showed, in order; where it showed that there is none, `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer(Vec<Option<Shown>>);

impl ReadStep {
    /// Makes the read.
    pub fn run(&self, on: &impl Reader) -> Result<Answer> {
        let shown = match self {
            ReadStep::Get(key) => vec![on.get(key)?.map(|value| Shown {
                key: key.clone(),
                head: None,
                value: Some(value),
            })],
            ReadStep::Head(key) => vec![on.head(key)?.map(|head| Shown {
                key: key.clone(),
                head: Some(head),
                value: None,
            })],
            ReadStep::Entry(key) => vec![on.get_entry(key)?.map(|(head, value)| Shown {
                key: key.clone(),
                head: Some(head),
                value: Some(value),
            })],
            ReadStep::Scan { bounds, reverse, limit } => on
                .range(bounds.scan_options(*reverse))?
                .take(*limit)
                .map(|entry| {
                    entry.map(|entry| {
                        let (head, value) = (Some(entry.head), Some(entry.value));
                        Some(Shown { key: entry.key, head, value })
                    })
                })
                .collect::<Result<_>>()?,
            ReadStep::ScanHeads { bounds, reverse, limit } => on
                .range_heads(bounds.scan_options(*reverse))?
                .take(*limit)
                .map(|entry| {
                    entry.map(|entry| {
                        Some(Shown { key: entry.key, head: Some(entry.head), value: None })
                    })
                })
                .collect::<Result<_>>()?,
            ReadStep::Walk { bounds, moves } => {
                walk(on.cursor(bounds.scan_options(false))?, moves)?
            }
        };
        Ok(Answer(shown))
    }

    /// Says how an answer differs from what `state` holds at `now_ms`, if it does.
    pub fn check(&self, answer: &Answer, state: &State, now_ms: u64) -> Result<(), String> {
        let expected = self.expected(state, now_ms);
        for (at, (got, expected)) in answer.0.iter().zip(&expected).enumerate() {
            match (got, expected) {
                (None, None) => {}
                (Some(got), Some((key, record))) if got.key == **key => {
                    if let Some(value) = &got.value {
                        record.check_value(key, value)?;
                    }
                    if let Some(head) = &got.head {
                        record.check_head(key, head)?;
                    }
                }
                (got, expected) => {
                    let name = |key: Option<&Bytes>| {
                        key.map_or("no key".to_owned(), |key| format!("key {}", show(key)))
                    };
                    return Err(format!(
                        "entry {at} of the answer is {}, expected {}",
                        name(got.as_ref().map(|shown| &shown.key)),
                        name(expected.as_ref().map(|(key, _)| *key))
                    ));
                }
            }
        }
        if answer.0.len() != expected.len() {
            return Err(format!(
                "the answer has {} entries, expected {}",
                answer.0.len(),
                expected.len()
            ));
        }
        Ok(())
    }

    fn expected<'a>(
        &'a self,
        state: &'a State,
        now_ms: u64,
    ) -> Vec<Option<(&'a Bytes, &'a Record)>> {
        let within = |bounds: &Bounds| -> Vec<(&'a Bytes, &'a Record)> {
            live(state, now_ms)
                .filter(|(key, _)| bounds.contain(key))
                .map(|(key, record)| (key, record.as_ref()))
                .collect()
        };
        match self {
            ReadStep::Get(key) | ReadStep::Head(key) | ReadStep::Entry(key) => {
                vec![live_record(state, key, now_ms).map(|record| (key, record))]
            }
            ReadStep::Scan { bounds, reverse, limit }
            | ReadStep::ScanHeads { bounds, reverse, limit } => {
                let mut entries = within(bounds);
                if *reverse {
                    entries.reverse();
                }
                entries.into_iter().take(*limit).map(Some).collect()
            }
            ReadStep::Walk { bounds, moves } => expected_walk(&within(bounds), moves),
        }
    }
}

fn walk(mut cursor: Cursor, moves: &[Move]) -> Result<Vec<Option<Shown>>> {
    let mut shown = Vec::with_capacity(moves.len());
    for (step, at) in moves.iter().zip(0u32..) {
        match step {
            Move::First => cursor.seek_to_first()?,
            Move::Last => cursor.seek_to_last()?,
            Move::Seek(key) => cursor.seek(key)?,
            Move::SeekBefore(key) => cursor.seek_before(key)?,
            Move::Next if cursor.valid() => cursor.next()?,
            Move::Prev if cursor.valid() => cursor.prev()?,
            Move::Next | Move::Prev => {}
        }
        shown.push(if cursor.valid() {
            // Reading a value in between must not disturb the cursor, nor must leaving it unread.
            let value = match at % 3 {
                0 => Some(cursor.value()?),
                1 => Some(Bytes::copy_from_slice(&cursor.value_ref()?)),
                _ => None,
            };
            Some(Shown {
                key: Bytes::copy_from_slice(cursor.key()),
                head: Some(cursor.head()?),
                value,
            })
        } else {
            None
        });
    }
    Ok(shown)
}

fn expected_walk<'a>(
    entries: &[(&'a Bytes, &'a Record)],
    moves: &[Move],
) -> Vec<Option<(&'a Bytes, &'a Record)>> {
    let before = |key: &Bytes| entries.partition_point(|(at, _)| *at < key);
    let mut position: Option<usize> = None;
    moves
        .iter()
        .map(|step| {
            position = match step {
                Move::First => Some(0),
                Move::Last => entries.len().checked_sub(1),
                Move::Seek(key) => Some(before(key)),
                Move::SeekBefore(key) => before(key).checked_sub(1),
                Move::Next => position.map(|at| at + 1),
                Move::Prev => position.and_then(|at| at.checked_sub(1)),
            }
            .filter(|&at| at < entries.len());
            position.map(|at| entries[at])
        })
        .collect()
}

impl Bounds {
    fn contain(&self, key: &Bytes) -> bool {
        self.start.as_ref().is_none_or(|start| key >= start)
            && self.end.as_ref().is_none_or(|end| key < end)
            && self.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
    }

    fn scan_options(&self, reverse: bool) -> ScanOptions {
        ScanOptions {
            start: self.start.clone(),
            end: self.end.clone(),
            prefix: self.prefix.clone(),
            reverse,
        }
    }
}

impl Answer {
    /// A number that two stores agree on if they answered the same; versions and write times apart, which
    /// may differ between stores that were given the same writes.
    pub fn digest(&self) -> u32 {
        self.0.iter().fold(0, |mut digest, shown| {
            let Some(Shown { key, head, value }) = shown else {
                return checksum::crc32c_append(digest, b"none");
            };
            digest = checksum::crc32c_append(digest, key);
            if let Some(head) = head {
                digest = checksum::crc32c_append(digest, &head.length.to_le_bytes());
                digest = checksum::crc32c_append(digest, &head.checksum.to_le_bytes());
                digest = checksum::crc32c_append(digest, &head.attributes);
            }
            match value {
                Some(value) => checksum::crc32c_append(digest, value),
                None => digest,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_prefix_are_intersected() {
        let bounds =
            Bounds { start: Some("ab".into()), end: Some("ax".into()), prefix: Some("a".into()) };
        for (key, inside) in [("a", false), ("ab", true), ("aw", true), ("ax", false), ("b", false)]
        {
            assert_eq!(bounds.contain(&Bytes::from(key)), inside, "{key}");
        }
    }
}
