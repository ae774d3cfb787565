//! A cursor over the tables of a run, one after another, within their visible bounds.

use std::ops::Range;
use std::sync::Arc;

use super::LiveTable;
use crate::error::{Error, Result};
use crate::head::{Entry, EntryRef, ValuePointer};
use crate::iter::InternalIterator;
use crate::key::{SEQNO_MAX, SeqNo};
use crate::sstable::TableIter;
use crate::stages::Stopwatch;

/// A cursor over a run. Tables are entered only when it comes to them.
pub struct RunIter {
    tables: Arc<Vec<Arc<LiveTable>>>,
    /// Which of them it goes through.
    places: Range<usize>,
    fill_cache: bool,
    watch: Option<Arc<Stopwatch>>,
    /// The table it is in, and the cursor there.
    current: Option<(usize, TableIter)>,
}

impl RunIter {
    /// A cursor over those tables of one run, ascending by key, that stand at `places`; `fill_cache`
    /// false leaves the block cache to others.
    pub fn new(
        tables: Arc<Vec<Arc<LiveTable>>>,
        places: Range<usize>,
        fill_cache: bool,
    ) -> RunIter {
        RunIter { tables, places, fill_cache, watch: None, current: None }
    }

    /// Has `watch` told how long blocks take to get.
    pub fn timed(self, watch: Arc<Stopwatch>) -> RunIter {
        RunIter { watch: Some(watch), ..self }
    }

    /// The place behind the tables of which this is true; they come first.
    fn place_behind(&self, is_before: impl Fn(&LiveTable) -> bool) -> usize {
        let tables = &self.tables[self.places.clone()];
        self.places.start + tables.partition_point(|table| is_before(table))
    }

    fn enter(&mut self, at: usize) -> &mut TableIter {
        let iter = self.tables[at].table().iter(self.fill_cache).timed(self.watch.clone());
        &mut self.current.insert((at, iter)).1
    }

    /// Goes on to the first entry of the tables from `at`. Once a table, so it is no part of a step.
    #[inline(never)]
    fn first_from(&mut self, mut at: usize) -> Result<()> {
        while at < self.places.end {
            let smallest = self.tables[at].smallest.clone();
            let iter = self.enter(at);
            iter.seek(&smallest, SEQNO_MAX)?;
            if iter.valid() {
                return Ok(());
            }
            at += 1;
        }
        self.current = None;
        Ok(())
    }

    /// Goes back to the last visible entry of the tables before `at`.
    fn last_before(&mut self, mut at: usize) -> Result<()> {
        while at > self.places.start {
            at -= 1;
            self.enter(at).seek_to_last()?;
            if self.is_visible() {
                return Ok(());
            }
        }
        self.current = None;
        Ok(())
    }

    /// Whether the current table's cursor is on an entry that the bounds let be seen.
    fn is_visible(&self) -> bool {
        let Some((at, iter)) = &self.current else { return false };
        iter.valid() && *iter.user_key() >= self.tables[*at].smallest[..]
    }

    #[inline(always)]
    fn current(&self) -> &TableIter {
        &self.current.as_ref().expect("the cursor is valid").1
    }
}

impl InternalIterator for RunIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.first_from(self.places.start)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.last_before(self.places.end)
    }

    fn seek(&mut self, user_key: &[u8], seqno: SeqNo) -> Result<()> {
        let at = self.place_behind(|table| table.ends_by(user_key));
        if at == self.places.end {
            self.current = None;
            return Ok(());
        }
        if *user_key < self.tables[at].smallest[..] {
            return self.first_from(at);
        }
        let iter = self.enter(at);
        iter.seek(user_key, seqno)?;
        if iter.valid() { Ok(()) } else { self.first_from(at + 1) }
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<()> {
        let after = self.place_behind(|table| table.smallest[..] < *user_key);
        if after == self.places.start {
            self.current = None;
            return Ok(());
        }
        let at = after - 1;
        self.enter(at).seek_before(user_key)?;
        if self.is_visible() { Ok(()) } else { self.last_before(at) }
    }

    #[inline(always)]
    fn next(&mut self) -> Result<()> {
        let (at, iter) = self.current.as_mut().expect("the cursor is valid");
        iter.next()?;
        if iter.valid() {
            return Ok(());
        }
        let next = *at + 1;
        self.first_from(next)
    }

    fn prev(&mut self) -> Result<()> {
        let (at, iter) = self.current.as_mut().expect("the cursor is valid");
        let at = *at;
        iter.prev()?;
        if self.is_visible() { Ok(()) } else { self.last_before(at) }
    }

    #[inline(always)]
    fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, iter)| iter.valid())
    }

    #[inline(always)]
    fn internal_key(&self) -> (&[u8], SeqNo) {
        self.current().internal_key()
    }

    #[inline]
    fn entry(&self) -> Result<EntryRef<'_>> {
        self.current().entry()
    }

    fn owned_entry(&self) -> Result<Entry> {
        self.current().owned_entry()
    }

    #[inline(always)]
    fn expiry(&self) -> Result<Option<u64>> {
        self.current().expiry()
    }

    #[inline(always)]
    fn inline_value(&self) -> Result<Option<&[u8]>> {
        self.current().inline_value()
    }

    fn values_ahead(&self, steps: usize, tell: &mut dyn FnMut(&ValuePointer)) {
        self.current().values_ahead(steps, tell);
    }

    fn corruption(&self, what: &str) -> Option<Error> {
        self.current().corruption(what)
    }
}
