//! The store: what a user of the engine holds.
//!
//! [`Store`] is a handle; the parts are in `inner`, the paths in a file each: `write`, `read`,
//! `cursor`, `range`, `durability`, `flushing`, `compacting`, `collecting`, `maintenance`; `tree` is where
//! they meet, `background` is what the threads call, and `retries` and `avoided` say when what failed is tried
//! again.

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod stage_tests;
mod table_search;
mod state;
mod current_state;
mod stats;
mod runs_passed;
mod sorted_run;
mod cursor;
mod range;
mod snapshot;
mod retries;
mod avoided;
mod inner;
mod read;
mod durability;
mod write;
mod tree;
mod flushing;
mod read_credit;
mod hidden;
mod compacting;
mod stored_values;
mod collecting;
mod rest;
mod background;
mod maintenance;
mod open;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::batch::WriteBatch;
use crate::error::{Error, Result};
use crate::head::Head;
use crate::key::SeqNo;
use crate::options::{Durability, Options};
use crate::resources::{ResourceOptions, Resources};
use crate::stages::{StageSums, Stages};
use crate::version::{LiveTable, Run};
use inner::Inner;

pub use cursor::Cursor;
pub use maintenance::{Damage, VerifyReport};
pub use range::{Range, RangeHeads};
pub use snapshot::Snapshot;
pub use state::ValueRef;
pub use stats::{LevelStats, Stats};

/// An open store. Cheap to clone; clones are the same store. All methods may be called from any
/// thread.
///
/// Dropping the last clone without [`Store::close`] is safe: what was written is synced, and what is
/// in memtables is found in the journal by the next open.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Handle>,
}

/// What the clones of a store share. Background threads hold the store itself, never this, so that
/// it is known when the last user has let go.
#[derive(Debug)]
struct Handle(Arc<Inner>);

impl Deref for Handle {
    type Target = Arc<Inner>;

    fn deref(&self) -> &Arc<Inner> {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// What a conditional write demands of the key as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The key has no value.
    Absent,
    /// The key has some value.
    Present,
    /// The key has a value of this version.
    Version(SeqNo),
    /// The key has no value of this version: none at all, or another.
    NotVersion(SeqNo),
}

impl Condition {
    /// Whether it holds of a key whose value is of this version, `None` if it has none.
    pub fn holds(self, version: Option<SeqNo>) -> bool {
        match self {
            Condition::Absent => version.is_none(),
            Condition::Present => version.is_some(),
            Condition::Version(wanted) => version == Some(wanted),
            Condition::NotVersion(unwanted) => version != Some(unwanted),
        }
    }
}

/// How one write is made. The default: the store's durability, no expiry, no attributes, no
/// condition.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// When it is acknowledged; `None` is the store's own.
    pub durability: Option<Durability>,
    /// When the entry expires, in milliseconds since the Unix epoch; 0 is never. Puts only.
    pub expires_at_ms: u64,
    /// Up to 1 KiB of the caller's own bytes. Puts only.
    pub attributes: Bytes,
    /// Write only if this holds, else `Error::Conflict`.
    pub condition: Option<Condition>,
}

/// How one value is read. The default: whatever its length, waiting for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Wait for the disk; without, `Error::WouldWait` when the answer would have to.
    pub wait: bool,
    /// `Error::Longer`, and nothing read, where the value has more bytes.
    pub value_bytes_max: u64,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { wait: true, value_bytes_max: u64::MAX }
    }
}

/// Which keys a scan visits. The default: all, ascending.
#[derive(Debug, Clone, Default)]
pub struct ScanOptions {
    /// First key of the range, included. `None`: from the start.
    pub start: Option<Bytes>,
    /// End of the range, excluded. `None`: to the end.
    pub end: Option<Bytes>,
    /// Only keys with this prefix, within the bounds.
    pub prefix: Option<Bytes>,
    /// Descending.
    pub reverse: bool,
}

/// One key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// What is known of the value.
    pub head: Head,
    /// The value.
    pub value: Bytes,
}

/// One key and what is known of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHead {
    /// The key.
    pub key: Bytes,
    /// What is known of the value.
    pub head: Head,
}

impl Store {
    /// Opens the store in `path`, or makes it, on the machine's disk with `Resources` of its own.
    ///
    /// `Locked`: somebody has it open. `Corruption`: something that was durable is damaged or missing.
    /// `InvalidArgument`: options that can't be.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Store> {
        // Before threads are started for it.
        options.check()?;
        let resource_options = ResourceOptions {
            write_buffer_bytes: options.write_buffer_bytes * 2,
            ..Default::default()
        };
        let resources = Resources::new(resource_options)
            .map_err(|error| Error::io("start threads for", path.as_ref(), error))?;
        Self::open_with(path, options, resources)
    }

    /// Opens the store in `path`, or makes it, on shared resources.
    pub fn open_with(
        path: impl AsRef<Path>,
        options: Options,
        resources: Arc<Resources>,
    ) -> Result<Store> {
        Ok(Store { inner: Arc::new(Handle(Inner::open(path.as_ref(), options, resources)?)) })
    }

    /// Flushes, syncs, marks the journal's end and lets the directory go. Later calls of any clone
    /// fail; iterators and values that were read stay usable, as long as the files are there and, after a
    /// failed sync, until the directory is opened again: that cuts off what did not come to the disk.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }

    /// Sets a key; answers its version. Keys have 1 to 4,096 bytes, values up to 256 MiB.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<SeqNo> {
        self.inner.put(key, value, &WriteOptions::default())
    }

    /// Sets a key, with expiry, attributes, durability or a condition.
    pub fn put_with(&self, key: &[u8], value: &[u8], options: &WriteOptions) -> Result<SeqNo> {
        self.inner.put(key, value, options)
    }

    /// Sets a key if `condition` holds, else `Conflict` with the key's version.
    pub fn put_if(&self, key: &[u8], value: &[u8], condition: Condition) -> Result<SeqNo> {
        let options = WriteOptions { condition: Some(condition), ..WriteOptions::default() };
        self.inner.put(key, value, &options)
    }

    /// Deletes a key, present or not; answers the version of the deletion.
    pub fn delete(&self, key: &[u8]) -> Result<SeqNo> {
        self.inner.delete(key, &WriteOptions::default())
    }

    /// Deletes a key, with durability or a condition.
    pub fn delete_with(&self, key: &[u8], options: &WriteOptions) -> Result<SeqNo> {
        self.inner.delete(key, options)
    }

    /// Deletes every key in `[start, end)` at the cost of one write.
    pub fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<SeqNo> {
        let mut batch = WriteBatch::new();
        batch.delete_range(Bytes::copy_from_slice(start), Bytes::copy_from_slice(end))?;
        self.inner.write(&batch, None)
    }

    /// Applies a batch atomically; answers the version of its last write. `None` is the store's
    /// durability.
    pub fn write(&self, batch: WriteBatch, durability: Option<Durability>) -> Result<SeqNo> {
        self.inner.write(&batch, durability)
    }

    /// Waits until every write acknowledged so far is synced.
    pub fn sync(&self) -> Result<()> {
        self.inner.sync_all()
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.get_with(key, ReadOptions::default())
    }

    /// The value of a key, with options of its own.
    pub fn get_with(&self, key: &[u8], options: ReadOptions) -> Result<Option<Bytes>> {
        self.inner.value_at(key, None, options)
    }

    /// The head of a key, never reading the body of a value that stays in the journal.
    pub fn head(&self, key: &[u8]) -> Result<Option<Head>> {
        self.inner.head_at(key, None, true)
    }

    /// Head and value of a key.
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<(Head, Bytes)>> {
        self.get_entry_with(key, ReadOptions::default())
    }

    /// Head and value of a key, with options of its own.
    pub fn get_entry_with(
        &self,
        key: &[u8],
        options: ReadOptions,
    ) -> Result<Option<(Head, Bytes)>> {
        self.inner.get_entry_at(key, None, options)
    }

    /// As `head`, but `WouldWait` when the answer would wait for the disk.
    pub fn head_nowait(&self, key: &[u8]) -> Result<Option<Head>> {
        self.inner.head_at(key, None, false)
    }

    /// Pins this moment for reading.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self)
    }

    /// Keys and values of a range, as of now.
    pub fn range(&self, options: ScanOptions) -> Result<Range> {
        let reverse = options.reverse;
        Ok(Range::new(self.cursor(options)?, reverse))
    }

    /// Keys and heads of a range, as of now; bodies that stay in the journal are not read.
    pub fn range_heads(&self, options: ScanOptions) -> Result<RangeHeads> {
        let reverse = options.reverse;
        Ok(RangeHeads::new(self.cursor(options)?, reverse))
    }

    /// A cursor over the live keys within the options' bounds; `reverse` is ignored.
    pub fn cursor(&self, options: ScanOptions) -> Result<Cursor> {
        self.inner.cursor_at(None, &options)
    }

    /// Writes every memtable to tables, and waits.
    pub fn flush(&self) -> Result<()> {
        self.inner.flush_all()
    }

    /// Merges everything in `[start, end)` (`None` is unbounded) to the bottom level, drops what is
    /// dead, and collects mostly dead segments; waits. `progress` is called after each job with the
    /// bytes done and the bytes in all. Damage is gone past, and is the error once all the rest is done.
    pub fn compact(
        &self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        self.compact_past_damage(start, end, progress)?.map_or(Ok(()), Err)
    }

    /// The same for who has to know whether it came to its end: what it went past because it can't be read is no
    /// error, but the answer; `Corruption`, which stays, only where there is nothing that may be read another time.
    pub fn compact_past_damage(
        &self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<Error>> {
        self.inner.compact(start, end, progress)
    }

    /// Has merges and collections end soon, for good, and `compact` answer `Busy`: for who is about to close the
    /// store, and first waits for others that use it.
    pub fn end_compacting(&self) {
        self.inner.cancel.store(true, Ordering::Release);
    }

    /// Makes a consistent copy of the store that can be opened, in a new or empty directory of the same file
    /// system, by hard links. It holds what was written before the call.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.inner.checkpoint(dir.as_ref())
    }

    /// Reads and checks every table block and every journal record that is kept. What is damaged, or can't be
    /// read, is listed in the report; an error means that the store is closed. `progress` is called with
    /// the bytes done and the bytes in all.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.inner.verify(progress)
    }

    /// The first keys of the blocks that tables are made of, of those that begin with `prefix`, ascending; none
    /// is read. They need not be keys of the store any more. A scan that damage ended goes on behind the next of
    /// them whose block can be read: `get` answers that key itself, a seek what is behind it.
    pub fn block_keys(&self, prefix: &[u8]) -> Vec<Bytes> {
        self.inner.block_keys(prefix)
    }

    /// Figures of the store.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// The books: how long each stage took and where reads ended, since the store was opened.
    /// [`Stages::since`] gives what came between two calls.
    pub fn stages(&self) -> Stages {
        self.inner.recorder.stages()
    }

    /// As `stages`, counts and sums alone: cheap enough to be asked for each second.
    pub fn stage_sums(&self) -> StageSums {
        self.inner.recorder.sums()
    }

    /// Times one operation in `sample_every` from now on, at most 1,048,576;
    /// 0: none.
    pub fn set_sample_every(&self, sample_every: u32) {
        self.inner.recorder.set_sample_every(sample_every);
    }

    /// Why writing has ended, if it has; reads go on.
    pub fn read_only_cause(&self) -> Option<String> {
        self.inner.poison.get().cloned()
    }

    /// How far background work lags: 0.0 is idle, at 1.0 writers wait.
    pub fn write_pressure(&self) -> f64 {
        self.inner.pressure()
    }

    /// Whether writers wait and no flush has made room for a second: the disk makes no progress.
    pub fn is_stalled(&self) -> bool {
        self.inner.is_stalled()
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        &self.inner.dir
    }
}

/// That a segment is not collected, and why.
fn uncollected((number, error): (u64, Error)) -> String {
    format!("segment {number} is not collected: {error}")
}

impl Inner {
    fn stats(&self) -> Stats {
        let state = self.state.load();
        let mut stats = Stats {
            last_seqno: self.visible_seqno.load(Ordering::Acquire),
            immutable_memtables: state.immutables.len() as u64,
            memtable_bytes: state.memtables().map(|memtable| memtable.bytes() as u64).sum(),
            immutable_memtable_bytes: self.immutable_bytes.load(Ordering::Relaxed) as u64,
            spare_memtable_bytes: self.resources.spare_chunks.bytes() as u64,
            collected_index_bytes: state.segments.index_bytes() as u64,
            unsynced_bytes: self.unsynced_bytes(),
            disk_available_bytes: self.resources.fs.available_bytes(&self.dir).ok(),
            snapshots: self.snapshots.list().len() as u64,
            torn_bytes: self.opening.torn_bytes,
            torn_records: self.opening.torn_records,
            open: self.opening.elapsed,
            replayed_bytes: self.opening.replayed_bytes,
            background_error: self
                .retries
                .failure()
                .map(|error| error.to_string())
                .or_else(|| self.merges_avoided.first().map(|(_, error)| error.to_string()))
                .or_else(|| self.segments_avoided.first().map(uncollected)),
            ..Stats::default()
        };
        self.counters.copy_to(&mut stats);
        (stats.gets, stats.heads) = (self.recorder.gets(), self.recorder.heads());
        let levels = state.version.levels.iter().zip(&mut stats.levels);
        for (number, (level, figures)) in levels.enumerate() {
            figures.runs = level.runs.len() as u64;
            figures.bytes = level.bytes();
            figures.files = level.tables().count() as u64;
            figures.entries = level.runs.iter().map(Run::entries).fold(0, u64::saturating_add);
            let index_bytes = |table: &Arc<LiveTable>| table.table().index_bytes() as u64;
            stats.table_index_bytes += level.tables().map(index_bytes).sum::<u64>();
            if level.runs.len() >= self.options.runs_max(number) {
                stats.compaction_debt_bytes += figures.bytes;
            }
        }
        for share in collecting::segment_shares(&state) {
            stats.segments += 1;
            stats.segment_bytes += share.bytes;
            stats.segment_live_bytes += share.live_bytes.min(share.bytes);
        }
        let log = self.log.lock();
        if let Some((active, closed)) = log.split_last() {
            stats.active_segment_bytes = active.segment.capacity();
            stats.segments += closed.len() as u64;
            stats.replay_segment_bytes = closed.iter().map(|log| log.segment.end()).sum();
            stats.segment_bytes += stats.replay_segment_bytes;
        }
        drop(log);
        let (spares, spare_bytes) = self.pool.spares();
        (stats.spare_segments, stats.spare_segment_bytes) = (spares as u64, spare_bytes);
        let cache = &self.resources.block_cache;
        stats.block_cache_bytes = cache.bytes();
        (stats.block_cache_hits, stats.block_cache_misses) = (cache.hits(), cache.misses());
        stats
    }

    /// Bytes of the journal that are not durable yet, neither there nor in tables.
    fn unsynced_bytes(&self) -> u64 {
        // In this order: what is appended in between must not make it look like less than nothing.
        let durable = self.sync.durable_lsn();
        self.sync.appended_lsn().saturating_sub(durable)
    }
}
