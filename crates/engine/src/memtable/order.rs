//! The records of a memtable in order: sorted when somebody wants to see them, not when written.
//!
//! Runs hold sorted records; what was written since the last look is sorted into another run, and
//! runs are merged when the older one is not much longer, or once looks have paid for it by passing
//! both, so that there are few: hardly more than one where many look between writes. A record is
//! compared by eight bytes of its key that follow what all keys of its run begin with. Where many have
//! the same, as keys of one of several names, these are sorted by eight bytes behind what they share in
//! turn; the key itself is looked at only where few are equal.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use super::Memtable;
use super::arena::{Arena, RecordRef, Walk};
use crate::error::Result;
use crate::head::{Entry, EntryRef};
use crate::iter::InternalIterator;
use crate::key::{self, SeqNo};

/// So many records ahead are asked for while a cursor moves on: they stand in the order of writing.
const RECORDS_AHEAD: usize = 4;

/// And their fronts, which tell their sizes, so many.
const FRONTS_AHEAD: usize = 10;

/// The key of the record that is so many further on is asked for while keys are looked at in the order of their
/// words: a flush of keys with eight names takes 210 ns an entry instead of 310.
const KEYS_AHEAD: usize = 12;

/// A run is at least so many times as long as the next: with 2, 4 and 8 an operation of `ycsb-e` takes
/// 6.42, 5.93 and 5.93 us.
const TIMES_AS_LONG: usize = 4;

/// Records are sorted by so many words of their keys at most, one behind what the keys with equal ones share.
const WORDS_MAX: usize = 8;

/// So many records with one word are sorted by another; fewer by their keys.
const SAME_MIN: usize = 8;

/// Seeking in one more run is taken to cost as much as merging so many records: with 0, 20, 40 and 80 an
/// operation of `ycsb-e` takes 5.53, 5.10, 5.22 and 5.30 us.
const RECORDS_PER_RUN: usize = 20;

/// The runs so far.
#[derive(Debug, Default)]
pub(super) struct Order {
    walked: Walk,
    /// Oldest first; each is `TIMES_AS_LONG` as long as the next, or longer.
    runs: Vec<Arc<Run>>,
    /// Records that may be merged for the runs that looks have passed, as reads pay for merges of tables.
    paid: usize,
}

impl Order {
    /// Runs that hold every record published before.
    pub(super) fn runs(&mut self, arena: &Arena) -> Vec<Arc<Run>> {
        let mut written = Written::default();
        self.walked = arena.walk(self.walked, |at, record| written.push(at, record.key()));
        if !written.records.is_empty() {
            self.runs.push(Arc::new(written.sort(arena)));
        }
        self.paid += RECORDS_PER_RUN * self.runs.len().saturating_sub(1);
        while let [.., older, newer] = &self.runs[..] {
            let (longer, shorter) = (older.records.len(), newer.records.len());
            if longer >= TIMES_AS_LONG * shorter {
                let Some(left) = self.paid.checked_sub(longer + shorter) else { break };
                self.paid = left;
            }
            let merged = Arc::new(Run::merge(arena, older, newer));
            self.runs.truncate(self.runs.len() - 2);
            self.runs.push(merged);
        }
        self.runs.clone()
    }
}

/// Sorted records.
#[derive(Debug)]
pub(super) struct Run {
    /// What every key begins with.
    common: Box<[u8]>,
    /// Eight bytes of each key behind that, big-endian, and the record.
    records: Box<[(u64, RecordRef)]>,
}

fn compare_whole(arena: &Arena, a: RecordRef, b: RecordRef) -> Ordering {
    let (a, b) = (arena.record(a), arena.record(b));
    key::compare(a.key(), a.seqno(), b.key(), b.seqno())
}

/// Records as they were written, each looked at once on its way to a run.
#[derive(Default)]
struct Written<'a> {
    /// What the keys so far begin with.
    common: &'a [u8],
    /// Eight bytes of each key behind that, and the record.
    records: Vec<(u64, RecordRef)>,
    /// Of so many records at the front the bytes are of another place: more was common to them.
    stale: usize,
}

impl<'a> Written<'a> {
    fn push(&mut self, record: RecordRef, key: &'a [u8]) {
        if self.records.is_empty() {
            self.common = key;
        }
        let common = key::common_prefix(self.common, key);
        if common < self.common.len() {
            self.common = &self.common[..common];
            self.stale = self.records.len();
        }
        self.records.push((key::word(key, common), record));
    }

    fn sort(self, arena: &Arena) -> Run {
        let Written { common, mut records, stale } = self;
        set_words(arena, &mut records[..stale], common.len());
        sort(arena, &mut records, common.len(), WORDS_MAX);
        Run { common: common.into(), records: records.into() }
    }
}

/// Sorts records whose keys all begin with `common` bytes, by their words behind that, and where many have one
/// word by up to so many `words` in all.
fn sort(arena: &Arena, records: &mut [(u64, RecordRef)], common: usize, words: usize) {
    // By the words alone, which takes no branches, and then what is left.
    records.sort_unstable_by_key(|&(word, _)| word);
    for same in records.chunk_by_mut(|(a, _), (b, _)| a == b).filter(|same| same.len() > 1) {
        let is_long = words > 1 && same.len() >= SAME_MIN;
        let longer = if is_long { shared_bytes(arena, same) } else { 0 };
        if longer <= common {
            same.sort_unstable_by(|&(_, left), &(_, right)| compare_whole(arena, left, right));
            continue;
        }
        let before = same[0].0;
        set_words(arena, same, longer);
        sort(arena, same, longer, words - 1);
        same.iter_mut().for_each(|(word, _)| *word = before);
    }
}

/// Makes the words of records anew, of the bytes behind the first `common` of their keys.
fn set_words(arena: &Arena, records: &mut [(u64, RecordRef)], common: usize) {
    for (word, record) in records {
        *word = key::word(arena.record(*record).key(), common);
    }
}

/// How many bytes the keys of these records all begin with.
fn shared_bytes(arena: &Arena, records: &[(u64, RecordRef)]) -> usize {
    let first = arena.record(records[0].1).key();
    let shared = |(at, &(_, record)): (usize, &(u64, RecordRef))| {
        if let Some(&(_, ahead)) = records.get(at + KEYS_AHEAD) {
            arena.prefetch_key(ahead);
        }
        key::common_prefix(first, arena.record(record).key())
    };
    records.iter().enumerate().map(shared).min().unwrap_or(0)
}

/// How many records at the front `before` holds for, as `partition_point`, in steps that double: few where
/// they are few.
fn gallop<T>(records: &[T], before: impl Fn(&T) -> bool) -> usize {
    let mut end = 1;
    while records.get(end - 1).is_some_and(&before) {
        end *= 2;
    }
    let start = end / 2;
    start + records[start..records.len().min(end)].partition_point(before)
}

impl Run {
    fn merge(arena: &Arena, left: &Run, right: &Run) -> Run {
        let same = key::common_prefix(&left.common, &right.common);
        let (older, newer) = (left.behind(arena, same), right.behind(arena, same));
        let mut merged = Vec::with_capacity(older.len() + newer.len());
        let mut older = &older[..];
        for &(word, record) in &newer[..] {
            let before = |&(other_word, other): &_| {
                let order = u64::cmp(&other_word, &word);
                order.then_with(|| compare_whole(arena, other, record)) == Ordering::Less
            };
            let (first, rest) = older.split_at(gallop(older, before));
            merged.extend_from_slice(first);
            merged.push((word, record));
            older = rest;
        }
        merged.extend_from_slice(older);
        Run { common: left.common[..same].into(), records: merged.into() }
    }

    /// The records with the words behind the first `common` bytes.
    fn behind(&self, arena: &Arena, common: usize) -> Cow<'_, [(u64, RecordRef)]> {
        if common == self.common.len() {
            return Cow::Borrowed(&self.records);
        }
        let mut records = self.records.to_vec();
        set_words(arena, &mut records, common);
        Cow::Owned(records)
    }

    /// How many records come before (`user_key`, `seqno`).
    fn count_before(&self, arena: &Arena, user_key: &[u8], seqno: SeqNo) -> usize {
        let shared = user_key.len().min(self.common.len());
        match user_key[..shared].cmp(&self.common[..shared]) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.records.len(),
            Ordering::Equal if shared < self.common.len() => return 0,
            Ordering::Equal => {}
        }
        let wanted = key::word(user_key, shared);
        let start = self.records.partition_point(|&(word, _)| word < wanted);
        let same = gallop(&self.records[start..], |&(word, _)| word == wanted);
        let same = &self.records[start..start + same];
        start + count_before_by_keys(arena, same, user_key, seqno)
    }
}

/// How many of these records come before (`user_key`, `seqno`), by their keys. While one is waited for, both
/// that may be next are asked for.
fn count_before_by_keys(
    arena: &Arena,
    records: &[(u64, RecordRef)],
    user_key: &[u8],
    seqno: SeqNo,
) -> usize {
    let mut left = 0..records.len();
    while !left.is_empty() {
        let middle = left.start + left.len() / 2;
        let halves = [left.start..middle, middle + 1..left.end];
        for half in halves.iter().filter(|half| !half.is_empty()) {
            arena.prefetch_key(records[half.start + half.len() / 2].1);
        }
        let record = arena.record(records[middle].1);
        let [below, above] = halves;
        left = match key::compare(record.key(), record.seqno(), user_key, seqno) {
            Ordering::Less => above,
            Ordering::Equal | Ordering::Greater => below,
        };
    }
    left.start
}

/// A cursor over one run.
#[derive(Debug)]
pub struct RunCursor {
    memtable: Arc<Memtable>,
    run: Arc<Run>,
    /// The record it is on; the run's length when it is on none.
    at: usize,
}

impl RunCursor {
    pub(super) fn new(memtable: Arc<Memtable>, run: Arc<Run>) -> RunCursor {
        let at = run.records.len();
        RunCursor { memtable, run, at }
    }

    #[inline]
    fn record(&self) -> super::arena::Record<'_> {
        self.memtable.arena.record(self.run.records[self.at].1)
    }

    /// Moves to the record before the one of this number.
    fn before(&mut self, at: usize) {
        self.at = at.checked_sub(1).unwrap_or(self.run.records.len());
    }
}

impl InternalIterator for RunCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.before(self.run.records.len());
        Ok(())
    }

    fn seek(&mut self, user_key: &[u8], seqno: SeqNo) -> Result<()> {
        self.at = self.run.count_before(&self.memtable.arena, user_key, seqno);
        Ok(())
    }

    fn seek_before(&mut self, user_key: &[u8]) -> Result<()> {
        let at = self.run.count_before(&self.memtable.arena, user_key, key::SEQNO_MAX);
        self.before(at);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        assert!(self.valid(), "next is called on a valid cursor");
        self.at += 1;
        let (records, arena) = (&self.run.records, &self.memtable.arena);
        if let Some(&(_, record)) = records.get(self.at + FRONTS_AHEAD) {
            arena.prefetch_front(record);
        }
        if let Some(&(_, record)) = records.get(self.at + RECORDS_AHEAD) {
            arena.prefetch(record);
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        assert!(self.valid(), "prev is called on a valid cursor");
        self.before(self.at);
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.at < self.run.records.len()
    }

    #[inline(always)]
    fn internal_key(&self) -> (&[u8], SeqNo) {
        let record = self.record();
        (record.key(), record.seqno())
    }

    #[inline(always)]
    fn entry(&self) -> Result<EntryRef<'_>> {
        Ok(self.record().entry())
    }

    fn owned_entry(&self) -> Result<Entry> {
        Ok(self.record().entry().to_entry())
    }

    #[inline]
    fn expiry(&self) -> Result<Option<u64>> {
        Ok(self.record().expiry())
    }
}
