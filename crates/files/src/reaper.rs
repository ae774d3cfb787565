//! Gives space back, and puts the buckets' entries in step with the catalogue. A pass:
//!
//! 1. Pin the catalogue as it is: what is noted later is the next pass's, so that a pass ends however
//!    much is written, and frees no content before the entries of its names are gone.
//! 2. Sync the catalogue: what is removed below must never come back by a power loss.
//! 3. Put entries that are due and not there, remove dead ones, remove the chunks of contents without
//!    a name; contents that are being read wait.
//! 4. Sync the buckets, then take the notes and the dead bytes out of the catalogue in one batch.
//! 5. Where much of a bucket is dead, compact it: its tree is small, and its journal is collected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tallybook::{ScanOptions, Snapshot, WriteBatch};

use crate::buckets::Bucket;
use crate::change::decode_place;
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

/// A bucket is compacted when so many bytes were freed in it and a quarter of what is live.
const COMPACT_BYTES_MIN: u64 = 8 << 20;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Contents whose chunks were removed.
    pub contents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Contents that wait because they are being read, or because a bucket doesn't open.
    pub waiting: u64,
}

/// Frees everything that is due at the time of the call, once.
pub(crate) fn reap(core: &Core) -> Result<Reaped> {
    let _reaping = core.reaping.lock();
    core.check_open()?;
    let due = {
        // Nobody is in the middle of a change: the entry of a note that is seen was put, if it could be.
        let _figures = core.figures.lock();
        core.catalogue.snapshot()
    };
    let mut is_synced = false;
    let mut work = Work {
        core,
        batch: WriteBatch::new(),
        freed: Vec::new(),
        touched: BTreeMap::new(),
        reaped: Reaped::default(),
    };
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
    Ok(work.reaped)
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

/// What has been done in the buckets and not been settled with the catalogue.
struct Work<'a> {
    core: &'a Core,
    /// Takes the notes that were worked off out of the catalogue.
    batch: WriteBatch,
    freed: Vec<Share>,
    /// Buckets that were written to, and how many bytes were freed in each.
    touched: BTreeMap<u8, (Bucket, u64)>,
    reaped: Reaped,
}

impl Work<'_> {
    /// Syncs the buckets, and takes what was done out of the catalogue.
    fn settle(&mut self) -> Result<()> {
        for (store, _) in self.touched.values() {
            store.sync()?;
        }
        if !self.batch.is_empty() {
            let mut figures = self.core.figures.lock();
            let mut changed = figures.clone();
            self.freed.drain(..).for_each(|share| changed.freed(share));
            changed.write_to(&mut self.batch)?;
            self.core.catalogue.write(std::mem::take(&mut self.batch), None)?;
            *figures = changed;
        }
        compact(self.core, std::mem::take(&mut self.touched))
    }

    /// Sees to it that the entry of a version is in its bucket, unless the version is past.
    fn put_entry(&mut self, note: Bytes, place: &[u8]) -> Result<()> {
        let core = self.core;
        let (version, bucket, name) = decode_note(core, &note, place)?;
        // Where the entry was put in this opening, a bucket that was closed since was synced by that.
        if core.put_entries.lock().remove(&version) && !core.buckets.is_open(bucket) {
            return Ok(self.batch.delete(note)?);
        }
        let Some(store) = self.bucket(bucket)? else { return Ok(()) };
        let entry_key = key_layout::entry(name, version);
        if store.head(&entry_key)?.is_none() {
            let current = core.record(name)?.filter(|record| record.version == version);
            if let Some(record) = current
                && let Some(content) = core.content(record.content)?
            {
                match store.put(&entry_key, &encode_entry(&record, &content)) {
                    // It is tried again by the next pass. What this one frees may be what makes room.
                    Err(tallybook::Error::NoSpace { .. }) => return Ok(()),
                    put => put.map(|_| ())?,
                }
            }
        }
        Ok(self.batch.delete(note)?)
    }

    fn remove_entry(&mut self, note: Bytes, place: &[u8]) -> Result<()> {
        let (version, bucket, name) = decode_note(self.core, &note, place)?;
        let Some(store) = self.bucket(bucket)? else { return Ok(()) };
        store.delete(&key_layout::entry(name, version))?;
        Ok(self.batch.delete(note)?)
    }

    /// Removes the chunks of a content, unless it is being read or a bucket of it is lost.
    fn free(&mut self, note: Bytes, shares: &[u8]) -> Result<()> {
        let id = note.get(1..).and_then(|id| id.try_into().ok()).map(ContentId);
        let (Some(id), Some(shares)) = (id, decode_known_shares(&self.core.superblock, shares))
        else {
            return Err(undecodable(self.core.catalogue.path(), "freed content"));
        };
        // In a statement of its own, so that the lock is let go.
        let is_pinned = self.core.pins.lock().contains_key(&id);
        let mut is_freed = !is_pinned;
        for share in shares.iter().filter(|_| !is_pinned) {
            let Some(store) = self.bucket(share.bucket)? else {
                is_freed = false;
                continue;
            };
            store.delete_range(&key_layout::chunk(id, 0), &key_layout::after_chunks(id))?;
            if let Some((_, bytes)) = self.touched.get_mut(&share.bucket) {
                *bytes += share.bytes;
            }
        }
        if !is_freed {
            self.reaped.waiting += 1;
            return Ok(());
        }
        self.batch.delete(note)?;
        self.reaped.contents += 1;
        self.reaped.bytes += shares.iter().map(|share| share.bytes).sum::<u64>();
        self.freed.extend(shares);
        Ok(())
    }

    /// A bucket to write to; `None` for one that is lost, whose notes stay until it is repaired.
    fn bucket(&mut self, bucket: u8) -> Result<Option<Bucket>> {
        if let Some((store, _)) = self.touched.get(&bucket) {
            return Ok(Some(store.clone()));
        }
        // So that buckets in use here never keep others from being closed.
        if self.touched.len() >= (self.core.options.open_buckets_max / 2).max(1) {
            self.settle()?;
        }
        match self.core.buckets.get(bucket) {
            Ok(store) => {
                self.touched.insert(bucket, (store.clone(), 0));
                Ok(Some(store))
            }
            Err(Error::BucketLost { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }
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

/// Compacts the buckets in which much was freed since they last were.
fn compact(core: &Core, touched: BTreeMap<u8, (Bucket, u64)>) -> Result<()> {
    for (bucket, (store, freed_bytes)) in touched {
        let due = {
            let mut figures = core.figures.lock();
            let figures = &mut figures.buckets[usize::from(bucket)];
            figures.freed += freed_bytes;
            let is_due = figures.freed >= COMPACT_BYTES_MIN.max(figures.live / 4);
            if is_due {
                figures.freed = 0;
            }
            is_due
        };
        if due {
            store.compact(None, None, &mut |_, _| {})?;
        }
    }
    Ok(())
}

/// Frees space, sweeps the buckets if the opening found that due, and closes idle ones, until the store
/// is closed.
pub(crate) fn run(core: &Arc<Core>) {
    let is_closed = || core.is_closed.load(Ordering::Acquire);
    let wait = |time| {
        let mut closing = core.closing.lock();
        if !is_closed() {
            core.close_signal.wait_for(&mut closing, time);
        }
    };
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
            wait(GATHER);
            if !is_closed() && reap(core).is_err() {
                // A full disk, most likely; who writes is told by his own errors.
                wait(LOOK_EVERY);
                core.note_reap_due();
            }
        }
        // What is due comes first, but a step at least is taken however much that is.
        while !is_closed() && sweep_step(core) {
            wait(SWEEP_PAUSE);
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
