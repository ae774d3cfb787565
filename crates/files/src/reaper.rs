//! Gives space back, and puts the buckets' entries in step with the catalogue. A pass:
//!
//! 1. Give up the uploads that could not be when they ended.
//! 2. Pin the catalogue as it is: what is noted later is the next pass's, so that a pass ends however
//!    much is written, and frees no content before the entries of its names are gone (but for an entry that
//!    is kept because the one after it found no room: what is freed may be what makes it).
//! 3. Sync the catalogue: what is removed below must never come back by a power loss.
//! 4. Put entries that are due and not there, remove dead ones, remove the chunks of contents without
//!    a name; contents that are being read wait.
//! 5. Sync the buckets, then take the notes and the dead bytes out of the catalogue in one batch.
//!
//! No pass waits for the compactions that follow from it, which are another thread's.
//!
//! A bucket that fails keeps its own notes waiting, and nobody else's; what it said is what the pass answers,
//! once it has done all that it could.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tallybook::{ScanOptions, Snapshot, WriteBatch};

use crate::buckets::Bucket;
use crate::change::decode_place;
use crate::compacting::compact_due;
use crate::core::{Core, decode_known_shares, undecodable};
use crate::error::{Error, Result};
use crate::key_layout;
use crate::record::{ContentId, Share, decode_shares, encode_entry};
use crate::sweep::sweep_step;

/// Notes that are looked at together.
const ROUND_NOTES: usize = 1024;

/// How often the thread looks for idle buckets.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long what is due waits for more.
const GATHER: Duration = Duration::from_millis(50);

/// How long the thread leaves disk and processors to others after each step of a sweep.
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Contents whose chunks were removed.
    pub contents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Contents that wait because they are being read, because a bucket doesn't open, or because names that
    /// could not be read when the catalogue was made anew may stand for them.
    pub waiting: u64,
}

/// Frees everything that is due at the time of the call, once.
pub(crate) fn reap(core: &Core) -> Result<Reaped> {
    let _reaping = core.reaping.lock();
    core.check_open()?;
    let given_up = core.give_up_uploads();
    let due = {
        // Nobody is in the middle of a change: the entry of a note that is seen was put, if it could be.
        let _figures = core.figures.lock();
        core.catalogue.snapshot()
    };
    let mut is_synced = false;
    let mut work = Work::new(core);
    for kind in [key_layout::ENTRY_DUE, key_layout::ENTRY_DEAD, key_layout::FREED] {
        let mut after = None;
        loop {
            let notes = notes_after(&due, kind, after.as_deref())?;
            let Some((last, _)) = notes.last() else { break };
            after = Some(last.clone());
            if !std::mem::replace(&mut is_synced, true) {
                // What is removed from here on must never be asked for again after a power loss.
                core.catalogue.sync()?;
            }
            for (note, value) in by_bucket(kind, notes) {
                core.check_open()?;
                match kind {
                    key_layout::ENTRY_DUE => work.put_entry(note, &value)?,
                    key_layout::ENTRY_DEAD => work.remove_entry(note, &value)?,
                    _ => work.free(note, &value)?,
                }
            }
            work.settle()?;
        }
    }
    let reaped = work.end()?;
    given_up.map(|()| reaped)
}

/// Frees everything that is due, for a writer that needs room. Where no thread does that, the buckets are compacted,
/// too, or the disk would fill with what is dead.
pub(crate) fn reap_for_room(core: &Core) -> Result<()> {
    let reaped = reap(core).map(drop);
    if !core.has_threads() {
        // By the counters there is room, whatever comes of it.
        let _ = compact_due(core);
    }
    reaped
}

/// A round of notes of a kind, after one of them.
fn notes_after(due: &Snapshot, kind: u8, after: Option<&[u8]>) -> Result<Vec<(Bytes, Bytes)>> {
    let prefix = Some(Bytes::copy_from_slice(&[kind]));
    let start = after.map(|after| Bytes::from([after, &[0]].concat()));
    let notes = due.range(ScanOptions { prefix, start, ..ScanOptions::default() })?;
    let round = notes.take(ROUND_NOTES);
    round.map(|note| note.map(|note| (note.key, note.value)).map_err(Error::from)).collect()
}

/// Notes in an order that opens each bucket once.
fn by_bucket(kind: u8, mut notes: Vec<(Bytes, Bytes)>) -> Vec<(Bytes, Bytes)> {
    notes.sort_by_key(|(_, value)| match kind {
        key_layout::FREED => decode_shares(value).and_then(|shares| Some(shares.first()?.bucket)),
        _ => decode_place(value).map(|(bucket, _)| bucket),
    });
    notes
}

/// What was done for a note, which leaves the catalogue once the buckets that it was done in are synced.
struct Done {
    note: Bytes,
    buckets: Vec<u8>,
    /// Of a note that an entry is to be put: the name.
    name: Option<String>,
    /// Of a content: what was freed.
    freed: Vec<Share>,
}

/// A pass.
struct Work<'a> {
    core: &'a Core,
    /// What has been done and not been settled with the catalogue.
    done: Vec<Done>,
    /// Buckets that were written to since.
    touched: BTreeMap<u8, Bucket>,
    /// Buckets that failed in this pass, and what they said.
    failed: BTreeMap<u8, Error>,
    /// What a bucket said that had no room. What is freed next may be what makes it.
    lacks_space: Option<Error>,
    /// Names whose entry isn't in its bucket yet: the one before stays until it is.
    held: HashSet<String>,
    /// The buckets of such entries: the one before may have been another name's.
    lacking: HashSet<u8>,
    reaped: Reaped,
}

impl<'a> Work<'a> {
    fn new(core: &'a Core) -> Work<'a> {
        Work {
            core,
            done: Vec::new(),
            touched: BTreeMap::new(),
            failed: BTreeMap::new(),
            lacks_space: None,
            held: HashSet::new(),
            lacking: HashSet::new(),
            reaped: Reaped::default(),
        }
    }

    /// Syncs the buckets, and takes what was done in them out of the catalogue.
    fn settle(&mut self) -> Result<()> {
        for (bucket, store) in std::mem::take(&mut self.touched) {
            if let Err(error) = store.sync() {
                self.failed.entry(bucket).or_insert(error.into());
            }
        }
        let is_settled =
            |done: &Done| !done.buckets.iter().any(|bucket| self.failed.contains_key(bucket));
        let (settled, waiting): (Vec<Done>, Vec<Done>) =
            std::mem::take(&mut self.done).into_iter().partition(is_settled);
        self.held.extend(waiting.into_iter().filter_map(|done| done.name));
        if settled.is_empty() {
            return Ok(());
        }
        let mut batch = WriteBatch::new();
        batch.use_reserve();
        let mut figures = self.core.figures.lock();
        let mut changed = figures.clone();
        for done in settled {
            batch.delete(done.note)?;
            self.reaped.contents += u64::from(!done.freed.is_empty());
            for share in done.freed {
                self.reaped.bytes += share.bytes;
                changed.freed(share);
                changed.count_freed(share.bucket, share.bytes);
            }
        }
        changed.write_to(&mut batch)?;
        // A power loss that takes it has the same done once more.
        self.core.catalogue.write(batch, Some(self.core.options.unwaited()))?;
        *figures = changed;
        Ok(())
    }

    /// What was done, or what went wrong.
    fn end(self) -> Result<Reaped> {
        match self.failed.into_values().next().or(self.lacks_space) {
            Some(error) => Err(error),
            None => Ok(self.reaped),
        }
    }

    /// Sees to it that the entry of a version is in its bucket, unless the version is past.
    fn put_entry(&mut self, note: Bytes, place: &[u8]) -> Result<()> {
        let core = self.core;
        let (version, bucket, name) = decode_note(core, &note, place)?;
        let mut done =
            Done { note, buckets: Vec::new(), name: Some(name.to_owned()), freed: Vec::new() };
        // Where the entry was put in this opening, a bucket that was closed since was synced by that.
        if core.put_entries.lock().remove(&version) && !core.buckets.is_open(bucket) {
            self.done.push(done);
            return Ok(());
        }
        let is_put = match self.bucket(bucket)? {
            Some(store) => {
                let put = ensure_entry(core, &store, name, version)?;
                self.has_worked(bucket, put.map_err(Error::from))
            }
            None => false,
        };
        if is_put {
            done.buckets.push(bucket);
            self.done.push(done);
        } else {
            self.held.extend(done.name);
            self.lacking.insert(bucket);
        }
        Ok(())
    }

    fn remove_entry(&mut self, note: Bytes, place: &[u8]) -> Result<()> {
        let (version, bucket, name) = decode_note(self.core, &note, place)?;
        if self.held.contains(name) || self.lacking.contains(&bucket) {
            return Ok(());
        }
        let Some(store) = self.bucket(bucket)? else { return Ok(()) };
        let removed = store.delete(&key_layout::entry(name, version));
        if self.has_worked(bucket, removed.map(drop).map_err(Error::from)) {
            self.done.push(Done { note, buckets: vec![bucket], name: None, freed: Vec::new() });
        }
        Ok(())
    }

    /// Removes the chunks of a content, unless it is being read, may have names that are not known, or a bucket
    /// of it is lost: with that it would come back without the others.
    fn free(&mut self, note: Bytes, shares: &[u8]) -> Result<()> {
        let id = note.get(1..).and_then(|id| id.try_into().ok()).map(ContentId);
        let (Some(id), Some(shares)) = (id, decode_known_shares(&self.core.superblock, shares))
        else {
            return Err(undecodable(self.core.catalogue.path(), "freed content"));
        };
        // In a statement of its own, so that the lock is let go.
        let is_pinned = self.core.pins.lock().contains_key(&id);
        let is_kept = is_pinned || self.core.may_have_unknown_names(id, &shares);
        let mut is_freed = !is_kept;
        for share in shares.iter().filter(|_| !is_kept) {
            is_freed &= self.bucket(share.bucket)?.is_some();
        }
        for share in &shares {
            if !is_freed {
                self.reaped.waiting += 1;
                return Ok(());
            }
            // Asked for again: looking at the others may have settled it.
            let Some(store) = self.bucket(share.bucket)? else { return Ok(()) };
            let removed =
                store.delete_range(&key_layout::chunk(id, 0), &key_layout::after_chunks(id));
            is_freed = self.has_worked(share.bucket, removed.map(drop).map_err(Error::from));
        }
        if is_freed {
            let buckets = shares.iter().map(|share| share.bucket).collect();
            self.done.push(Done { note, buckets, name: None, freed: shares });
        }
        Ok(())
    }

    /// A bucket to write to; `None` for one that is lost, whose notes stay until it is repaired, for one that a
    /// newer release wrote, and for one that failed in this pass.
    fn bucket(&mut self, bucket: u8) -> Result<Option<Bucket>> {
        if self.failed.contains_key(&bucket) {
            return Ok(None);
        }
        if let Some(store) = self.touched.get(&bucket) {
            return Ok(Some(store.clone()));
        }
        // So that buckets in use here never keep others from being closed.
        if self.touched.len() >= (self.core.options.open_buckets_max / 2).max(1) {
            self.settle()?;
        }
        match self.core.buckets.get(bucket) {
            Ok(store) => {
                self.touched.insert(bucket, store.clone());
                Ok(Some(store))
            }
            Err(error) if error.is_put_off() => Ok(None),
            Err(error) => {
                self.failed.insert(bucket, error);
                Ok(None)
            }
        }
    }

    /// Whether something worked in a bucket; keeps what the bucket said if not.
    fn has_worked(&mut self, bucket: u8, outcome: Result<()>) -> bool {
        match outcome {
            Ok(()) => return true,
            Err(error @ Error::Engine(tallybook::Error::NoSpace { .. })) => {
                self.lacks_space.get_or_insert(error);
            }
            Err(error) => drop(self.failed.entry(bucket).or_insert(error)),
        }
        false
    }
}

/// Puts the entry of a version into its bucket unless it is there, or the version is past. The inner error is
/// the bucket's.
fn ensure_entry(
    core: &Core,
    store: &Bucket,
    name: &str,
    version: u64,
) -> Result<tallybook::Result<()>> {
    let entry_key = key_layout::entry(name, version);
    match store.head(&entry_key) {
        Ok(None) => {}
        Ok(Some(_)) => return Ok(Ok(())),
        Err(error) => return Ok(Err(error)),
    }
    let current = core.record(name)?.filter(|record| record.version == version);
    let Some(record) = current else { return Ok(Ok(())) };
    let Some(content) = core.content(record.content)? else { return Ok(Ok(())) };
    Ok(store.put(&entry_key, &encode_entry(&record, &content)).map(drop))
}

fn decode_note<'a>(core: &Core, note: &[u8], place: &'a [u8]) -> Result<(u64, u8, &'a str)> {
    let version = note.get(1..).and_then(|version| version.try_into().ok());
    match (version.map(u64::from_be_bytes), decode_place(place)) {
        (Some(version), Some((bucket, name))) if core.superblock.has_bucket(bucket) => {
            Ok((version, bucket, name))
        }
        _ => Err(undecodable(core.catalogue.path(), "note")),
    }
}

/// Frees space, sweeps the buckets if the opening found that due, and closes idle ones, until the store is closed.
pub(crate) fn run(core: &Core) {
    let is_closed = || core.is_closed.load(Ordering::Acquire);
    loop {
        let is_due = {
            let mut due = core.reap_due.lock();
            if !*due && !is_closed() {
                core.reap_signal.wait_for(&mut due, LOOK_EVERY);
            }
            std::mem::take(&mut *due)
        };
        if is_due || !core.put_entries.lock().is_empty() {
            // What follows soon is done along with it.
            core.wait_for_close(GATHER);
            if !is_closed() && reap(core).is_err() {
                // A full disk, or one that failed; who writes is told by his own errors.
                core.wait_for_close(LOOK_EVERY);
                core.note_reap_due();
            }
        }
        // What is due comes first, but a step at least is taken however much that is.
        while !is_closed() && sweep_step(core) {
            core.wait_for_close(SWEEP_PAUSE);
            if *core.reap_due.lock() {
                break;
            }
        }
        if is_closed() {
            return;
        }
        core.buckets.close_idle();
    }
}
