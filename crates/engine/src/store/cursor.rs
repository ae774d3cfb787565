//! A position among the live keys of one moment, and the iterators built on it.
//!
//! Below lies the merge of every memtable and run, with all versions of every key. The cursor shows,
//! of each key, the newest version its moment sees, if that is a value.
//!
//! Invariant: moving forward, the merge stands on the entry shown; moving backward, on the last entry
//! before all versions of the key shown.

use std::sync::Arc;

use bytes::Bytes;

use super::state::ReadState;
use super::{KeyHead, KeyValue, ScanOptions};
use crate::error::{Error, Result};
use crate::head::{Body, Entry, Head};
use crate::iter::merging::Source;
use crate::iter::{InternalIterator, MergingIterator};
use crate::key::{self, SeqNo};
use crate::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::stages::Recorder;
use crate::version::RunIter;
use crate::vfs::Clock;

/// After this many steps over versions of one key, the cursor seeks past them instead.
const STEPS_BEFORE_SEEK: usize = 8;

/// The keys a cursor may show: `[start, end)`.
#[derive(Debug, Clone, Default)]
struct Bounds {
    start: Option<Bytes>,
    end: Option<Bytes>,
}

impl Bounds {
    fn of(options: &ScanOptions) -> Bounds {
        let mut bounds = Bounds { start: options.start.clone(), end: options.end.clone() };
        if let Some(prefix) = options.prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
            if bounds.start.as_ref().is_none_or(|start| start < prefix) {
                bounds.start = Some(prefix.clone());
            }
            if let Some(end) = key::prefix_end(prefix).map(Bytes::from)
                && bounds.end.as_ref().is_none_or(|bound| *bound > end)
            {
                bounds.end = Some(end);
            }
        }
        bounds
    }

    fn is_below(&self, user_key: &[u8]) -> bool {
        self.start.as_ref().is_some_and(|start| user_key < &start[..])
    }

    fn is_beyond(&self, user_key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| user_key >= &end[..])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// A position among the live keys, movable both ways. Not valid until a seek.
///
/// It pins the files it reads for as long as it lives; what is written meanwhile it does not see.
pub struct Cursor {
    state: Arc<ReadState>,
    clock: Arc<dyn Clock>,
    recorder: Arc<Recorder>,
    merged: MergingIterator,
    range_tombstones: RangeTombstones,
    seqno: SeqNo,
    bounds: Bounds,
    direction: Direction,
    /// The key and entry shown.
    key: Vec<u8>,
    entry: Option<Entry>,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("seqno", &self.seqno).finish_non_exhaustive()
    }
}

impl Cursor {
    pub(super) fn new(
        state: Arc<ReadState>,
        clock: Arc<dyn Clock>,
        recorder: Arc<Recorder>,
        seqno: SeqNo,
        options: &ScanOptions,
    ) -> Cursor {
        let bounds = Bounds::of(options);
        let mut sources: Vec<Source> = Vec::new();
        let mut tombstones: Vec<RangeTombstone> = Vec::new();
        for memtable in state.memtables() {
            if !memtable.is_empty() {
                sources.extend(memtable.sources());
                tombstones.extend(memtable.range_tombstones().iter());
            }
        }
        let (start, end) = (bounds.start.as_deref(), bounds.end.as_deref());
        for (_, run) in state.version.runs() {
            let tables = run.overlapping(start, end);
            for table in tables.iter().filter(|table| table.properties.range_tombstones > 0) {
                tombstones.extend(table.range_tombstones());
            }
            if !tables.is_empty() {
                sources.push(Box::new(RunIter::new(tables.to_vec(), true)));
            }
        }
        tombstones.retain(|tombstone| tombstone.seqno <= seqno);
        Cursor {
            state,
            clock,
            recorder,
            merged: MergingIterator::new(sources),
            range_tombstones: RangeTombstones::new(tombstones),
            seqno,
            bounds,
            direction: Direction::Forward,
            key: Vec::new(),
            entry: None,
        }
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        match self.bounds.start.clone() {
            Some(start) => self.seek(&start),
            None => {
                self.direction = Direction::Forward;
                self.entry = None;
                self.merged.seek_to_first()?;
                self.find_forward()
            }
        }
    }

    /// Moves to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.direction = Direction::Backward;
        self.entry = None;
        match &self.bounds.end {
            Some(end) => self.merged.seek_before(end)?,
            None => self.merged.seek_to_last()?,
        }
        self.find_backward()
    }

    /// Moves to the first key at or after `user_key`.
    pub fn seek(&mut self, user_key: &[u8]) -> Result<()> {
        self.direction = Direction::Forward;
        self.entry = None;
        let from = match &self.bounds.start {
            Some(start) if user_key < &start[..] => &start[..],
            _ => user_key,
        };
        self.merged.seek(from, self.seqno)?;
        self.find_forward()
    }

    /// Moves to the last key before `user_key`.
    pub fn seek_before(&mut self, user_key: &[u8]) -> Result<()> {
        self.direction = Direction::Backward;
        self.entry = None;
        let before = match &self.bounds.end {
            Some(end) if user_key > &end[..] => &end[..],
            _ => user_key,
        };
        self.merged.seek_before(before)?;
        self.find_backward()
    }

    /// Moves to the next key; not valid after the last. Requires: valid.
    #[expect(clippy::should_implement_trait, reason = "a cursor moves, it does not yield")]
    pub fn next(&mut self) -> Result<()> {
        assert!(self.valid(), "a cursor is moved on only while it is valid");
        self.entry = None;
        if self.direction == Direction::Backward {
            self.direction = Direction::Forward;
            self.merged.seek(&self.key, 0)?;
        } else {
            self.skip_versions()?;
        }
        self.find_forward()
    }

    /// Moves to the key before; not valid after the first. Requires: valid.
    pub fn prev(&mut self) -> Result<()> {
        assert!(self.valid(), "a cursor is moved back only while it is valid");
        self.entry = None;
        if self.direction == Direction::Forward {
            self.direction = Direction::Backward;
            self.merged.seek_before(&self.key)?;
        }
        self.find_backward()
    }

    /// Whether there is a key here.
    pub fn valid(&self) -> bool {
        self.entry.is_some()
    }

    /// The key. Requires: valid.
    pub fn key(&self) -> &[u8] {
        assert!(self.valid(), "a cursor has a key only while it is valid");
        &self.key
    }

    /// What is known of the value. Requires: valid.
    pub fn head(&self) -> Head {
        self.shown().head().expect("a cursor shows values only")
    }

    /// The value, read from the journal if it is there. Requires: valid.
    pub fn value(&self) -> Result<Bytes> {
        self.state.value(self.shown().clone(), true, &mut self.recorder.begin())
    }

    fn shown(&self) -> &Entry {
        self.entry.as_ref().expect("a cursor has an entry only while it is valid")
    }

    /// Moves the merge past every version of `self.key`.
    fn skip_versions(&mut self) -> Result<()> {
        let mut steps = 0;
        while self.merged.valid() && self.merged.user_key() == &self.key[..] {
            if steps == STEPS_BEFORE_SEEK {
                return self.merged.seek(&self.key, 0);
            }
            self.merged.next()?;
            steps += 1;
        }
        Ok(())
    }

    fn find_forward(&mut self) -> Result<()> {
        let mut hidden_steps = 0;
        while self.merged.valid() && !self.bounds.is_beyond(self.merged.user_key()) {
            self.key.clear();
            self.key.extend_from_slice(self.merged.user_key());
            if self.merged.seqno() > self.seqno {
                hidden_steps += 1;
                if hidden_steps < STEPS_BEFORE_SEEK {
                    self.merged.next()?;
                } else {
                    hidden_steps = 0;
                    self.merged.seek(&self.key, self.seqno)?;
                }
                continue;
            }
            hidden_steps = 0;
            let entry = self.merged.entry()?;
            if self.shows(&self.key, &entry) {
                self.entry = Some(entry);
                return Ok(());
            }
            self.skip_versions()?;
        }
        Ok(())
    }

    fn find_backward(&mut self) -> Result<()> {
        while self.merged.valid() && !self.bounds.is_below(self.merged.user_key()) {
            self.key.clear();
            self.key.extend_from_slice(self.merged.user_key());
            let mut newest = None;
            while self.merged.valid() && self.merged.user_key() == &self.key[..] {
                if self.merged.seqno() <= self.seqno {
                    newest = Some(self.merged.entry()?);
                }
                self.merged.prev()?;
            }
            if let Some(entry) = newest
                && self.shows(&self.key, &entry)
            {
                self.entry = Some(entry);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the newest visible version of a key is a value.
    fn shows(&self, user_key: &[u8], entry: &Entry) -> bool {
        if matches!(entry.body, Body::Delete) {
            return false;
        }
        if entry.expires_at_ms != 0 && entry.is_expired(self.clock.now_ms()) {
            return false;
        }
        self.range_tombstones.cover(user_key, self.seqno) < entry.seqno
    }
}

/// Steps a cursor through its bounds in one direction.
#[derive(Debug)]
struct Walk {
    cursor: Cursor,
    reverse: bool,
    started: bool,
    ended: bool,
}

impl Walk {
    fn advance(&mut self) -> Option<Result<()>> {
        if self.ended {
            return None;
        }
        let moved = match (self.started, self.reverse) {
            (false, false) => self.cursor.seek_to_first(),
            (false, true) => self.cursor.seek_to_last(),
            (true, false) => self.cursor.next(),
            (true, true) => self.cursor.prev(),
        };
        self.started = true;
        if moved.is_err() || !self.cursor.valid() {
            self.ended = true;
        }
        match moved {
            Err(error) => Some(Err(error)),
            Ok(()) => self.cursor.valid().then_some(Ok(())),
        }
    }

    fn fail<T>(&mut self, error: Error) -> Result<T> {
        self.ended = true;
        Err(error)
    }
}

/// Iterates over keys and values of a range as of one moment. Owns what it needs; ends after an error.
#[derive(Debug)]
pub struct Range(Walk);

/// Iterates over keys and heads of a range as of one moment, reading no body that stays in the journal.
#[derive(Debug)]
pub struct RangeHeads(Walk);

impl Range {
    pub(super) fn new(cursor: Cursor, reverse: bool) -> Range {
        Range(Walk { cursor, reverse, started: false, ended: false })
    }
}

impl RangeHeads {
    pub(super) fn new(cursor: Cursor, reverse: bool) -> RangeHeads {
        RangeHeads(Walk { cursor, reverse, started: false, ended: false })
    }
}

impl Iterator for Range {
    type Item = Result<KeyValue>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.0.advance()? {
            return Some(Err(error));
        }
        let cursor = &self.0.cursor;
        Some(match cursor.value() {
            Ok(value) => Ok(KeyValue {
                key: Bytes::copy_from_slice(cursor.key()),
                head: cursor.head(),
                value,
            }),
            Err(error) => self.0.fail(error),
        })
    }
}

impl Iterator for RangeHeads {
    type Item = Result<KeyHead>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.0.advance()? {
            return Some(Err(error));
        }
        let cursor = &self.0.cursor;
        Some(Ok(KeyHead { key: Bytes::copy_from_slice(cursor.key()), head: cursor.head() }))
    }
}
