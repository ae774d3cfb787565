//! Figures of a store: counters that are bumped where things happen, and the struct they leave in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::key::SeqNo;
use crate::options::LEVEL_COUNT;

/// Figures of one level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// Sorted runs.
    pub runs: u64,
    /// Files.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Entries in them, deletions included.
    pub entries: u64,
}

/// Figures of a store. Counters count from its opening.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// SeqNo of the last visible write.
    pub last_seqno: SeqNo,
    /// Keys put.
    pub puts: u64,
    /// Keys deleted, and ranges.
    pub deletes: u64,
    /// Values asked for.
    pub gets: u64,
    /// Heads asked for.
    pub heads: u64,
    /// Cursors and ranges opened.
    pub scans: u64,
    /// Bytes of keys, values and attributes written by the caller.
    pub user_bytes_written: u64,
    /// Bytes appended to the journal.
    pub journal_bytes_written: u64,
    /// Bytes of tables written by flushes.
    pub flush_bytes_written: u64,
    /// Bytes of tables read by compactions.
    pub compaction_bytes_read: u64,
    /// Bytes of tables written by compactions.
    pub compaction_bytes_written: u64,
    /// Bytes of segments written by collections.
    pub collection_bytes_written: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Compaction jobs done.
    pub compactions: u64,
    /// Segments collected.
    pub collections: u64,
    /// Syncs of the journal.
    pub syncs: u64,
    /// Interval syncs that started later than promised.
    pub sync_overruns: u64,
    /// The longest time by which one was late.
    pub sync_overrun_max: Duration,
    /// Writes that were slowed.
    pub stalled_writes: u64,
    /// How long they were, in all.
    pub stalled: Duration,
    /// Memory of the memtables, immutable ones included.
    pub memtable_bytes: u64,
    /// Memtables that wait for their flush.
    pub immutable_memtables: u64,
    /// Their memory.
    pub immutable_memtable_bytes: u64,
    /// Memory kept from memtables that are gone, for the next (of all stores that share it).
    pub spare_memtable_bytes: u64,
    /// The tree.
    pub levels: [LevelStats; LEVEL_COUNT],
    /// Bytes of the levels that hold as many runs as call for a merge: what compaction is behind by.
    pub compaction_debt_bytes: u64,
    /// Memory that the open tables take for their indexes.
    pub table_index_bytes: u64,
    /// Memory that tells where values are now whose segment was collected, until compactions make the tables
    /// name their new places.
    pub collected_index_bytes: u64,
    /// Closed segments.
    pub segments: u64,
    /// Bytes of the closed segments.
    pub segment_bytes: u64,
    /// Of these, bytes of segments that memtables still need: a replay would read them.
    pub replay_segment_bytes: u64,
    /// Bytes of values in closed segments that the tree refers to.
    pub segment_live_bytes: u64,
    /// Segments prepared and not yet in use.
    pub spare_segments: u64,
    /// Their bytes.
    pub spare_segment_bytes: u64,
    /// Bytes of the segment that takes the writes.
    pub active_segment_bytes: u64,
    /// Bytes of the journal that no sync has made durable yet.
    pub unsynced_bytes: u64,
    /// Bytes that the file system has left for the store, if it says.
    pub disk_available_bytes: Option<u64>,
    /// Pinned snapshots.
    pub snapshots: u64,
    /// Bytes that recovery cut off the journal's torn end.
    pub torn_bytes: u64,
    /// Records that recovery cut off.
    pub torn_records: u64,
    /// Bytes in the block cache (of all stores that share it).
    pub block_cache_bytes: u64,
    /// Blocks found in the cache.
    pub block_cache_hits: u64,
    /// Blocks not found in it.
    pub block_cache_misses: u64,
    /// How long opening took.
    pub open: Duration,
    /// Journal bytes replayed by opening.
    pub replayed_bytes: u64,
    /// The last failure of background work that is being retried, if it still fails; or the damage for which a
    /// merge is left alone; or why a journal segment is left as it is, whose live values can't all be read.
    pub background_error: Option<String>,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    // Changed under the commit lock.
    pub(super) puts: AtomicU64,
    pub(super) deletes: AtomicU64,
    pub(super) user_bytes_written: AtomicU64,
    pub(super) journal_bytes_written: AtomicU64,
    // Changed by anyone.
    pub(super) scans: AtomicU64,
    pub(super) flush_bytes_written: AtomicU64,
    pub(super) compaction_bytes_read: AtomicU64,
    pub(super) compaction_bytes_written: AtomicU64,
    pub(super) collection_bytes_written: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) compactions: AtomicU64,
    pub(super) collections: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) sync_overruns: AtomicU64,
    pub(super) sync_overrun_max_ns: AtomicU64,
    pub(super) stalled_writes: AtomicU64,
    pub(super) stalled_ns: AtomicU64,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

/// Adds to a counter that is changed only under the commit lock: without a locked instruction.
pub(super) fn add_alone(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed) + value, Ordering::Relaxed);
}

impl Counters {
    /// Copies every counter into `stats`.
    pub(super) fn copy_to(&self, stats: &mut Stats) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        stats.puts = load(&self.puts);
        stats.deletes = load(&self.deletes);
        stats.scans = load(&self.scans);
        stats.user_bytes_written = load(&self.user_bytes_written);
        stats.journal_bytes_written = load(&self.journal_bytes_written);
        stats.flush_bytes_written = load(&self.flush_bytes_written);
        stats.compaction_bytes_read = load(&self.compaction_bytes_read);
        stats.compaction_bytes_written = load(&self.compaction_bytes_written);
        stats.collection_bytes_written = load(&self.collection_bytes_written);
        stats.flushes = load(&self.flushes);
        stats.compactions = load(&self.compactions);
        stats.collections = load(&self.collections);
        stats.syncs = load(&self.syncs);
        stats.sync_overruns = load(&self.sync_overruns);
        stats.sync_overrun_max = Duration::from_nanos(load(&self.sync_overrun_max_ns));
        stats.stalled_writes = load(&self.stalled_writes);
        stats.stalled = Duration::from_nanos(load(&self.stalled_ns));
    }
}
