//! Point reads.

use std::sync::Arc;

use arc_swap::Guard;
use bytes::Bytes;

use super::inner::Inner;
use super::state::ReadState;
use super::stats::add;
use super::{Cursor, ReadOptions, ScanOptions};
use crate::error::{Error, Result};
use crate::head::{Entry, Head};
use crate::key::{SeqNo, check_key};
use crate::stages::{Stage, Trace};

impl Inner {
    /// A state and a SeqNo (`None`: the newest) that belong together.
    #[inline]
    fn view(&self, seqno: Option<SeqNo>) -> (Guard<Arc<ReadState>>, SeqNo) {
        match seqno {
            Some(seqno) => (self.state.load(), seqno),
            None => self.state.with_last_seqno(&self.visible_seqno),
        }
    }

    /// The live entry of a key at `seqno` (`None`: now) with the state it was found in.
    #[inline]
    fn find_live(
        &self,
        key: &[u8],
        seqno: Option<SeqNo>,
        wait: bool,
        trace: &mut Trace<'_>,
    ) -> Result<Option<(Guard<Arc<ReadState>>, Entry)>> {
        check_key(key)?;
        self.check_open()?;
        let (state, seqno) = self.view(seqno);
        let Some(entry) = state.find(key, seqno, wait, trace)? else {
            return Ok(None);
        };
        let now_ms = if entry.expires_at_ms == 0 { 0 } else { self.resources.clock.now_ms() };
        Ok(entry.is_live(now_ms).then_some((state, entry)))
    }

    /// The value of a key, and what `look` made of its entry. A call that answers `WouldWait` or `Longer`
    /// is not counted: another follows.
    fn get_at<T>(
        &self,
        key: &[u8],
        seqno: Option<SeqNo>,
        options: ReadOptions,
        look: impl FnOnce(&Entry) -> T,
    ) -> Result<Option<(T, Bytes)>> {
        let ReadOptions { wait, value_bytes_max } = options;
        let mut trace = self.recorder.begin();
        let mark = trace.mark();
        let found = self.find_live(key, seqno, wait, &mut trace)?;
        trace.since(Stage::GetHead, mark);
        let found = match found {
            None => None,
            Some((_, entry)) if entry.length() > value_bytes_max => {
                return Err(Error::Longer { length: entry.length() });
            }
            Some((state, entry)) => {
                let mark = trace.mark();
                let seen = look(&entry);
                let value = state.value(entry, wait, &mut trace)?;
                trace.since(Stage::GetBody, mark);
                Some((seen, value))
            }
        };
        trace.total(Stage::GetTotal);
        trace.count_get();
        Ok(found)
    }

    /// The value of a key.
    pub(super) fn value_at(
        &self,
        key: &[u8],
        seqno: Option<SeqNo>,
        options: ReadOptions,
    ) -> Result<Option<Bytes>> {
        Ok(self.get_at(key, seqno, options, |_| ())?.map(|((), value)| value))
    }

    /// Head and value of a key.
    pub(super) fn get_entry_at(
        &self,
        key: &[u8],
        seqno: Option<SeqNo>,
        options: ReadOptions,
    ) -> Result<Option<(Head, Bytes)>> {
        self.get_at(key, seqno, options, |entry| entry.head().expect("a value has a head"))
    }

    /// The head of a key; a value in the journal is not read.
    pub(super) fn head_at(
        &self,
        key: &[u8],
        seqno: Option<SeqNo>,
        wait: bool,
    ) -> Result<Option<Head>> {
        let mut trace = self.recorder.begin();
        let found = self.find_live(key, seqno, wait, &mut trace)?;
        trace.count_head();
        Ok(found.and_then(|(_, entry)| entry.head()))
    }

    /// A cursor at `seqno` (`None`: now).
    pub(super) fn cursor_at(&self, seqno: Option<SeqNo>, options: &ScanOptions) -> Result<Cursor> {
        self.check_open()?;
        add(&self.counters.scans, 1);
        let (state, seqno) = self.view(seqno);
        let state = Guard::into_inner(state);
        Ok(Cursor::new(state, self.resources.clock.clone(), self.recorder.clone(), seqno, options))
    }
}
