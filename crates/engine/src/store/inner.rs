//! The parts of an open store and who may touch which.
//!
//! Locks, in the order in which they may be taken: `commit` (one writer at a time), `tree` (one
//! version edit at a time), `install` (replacing the read state). A read takes none of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::avoided::Avoided;
use super::current_state::CurrentState;
use super::retries::Retries;
use super::snapshot::SnapshotList;
use super::state::ReadState;
use super::stats::Counters;
use crate::collection;
use crate::compaction::pick::{Hidden, Unreadable};
use crate::error::{Error, Result};
use crate::journal::{JournalPosition, JournalWriter, LogSegment, Segment, SegmentPool, SyncState};
use crate::lock;
use crate::manifest::Manifest;
use crate::memtable::{Memtable, MemtableWriter};
use crate::obsolete::ObsoleteQueue;
use crate::options::Options;
use crate::resources::{Participant, Resources, Work};
use crate::salt::Salts;
use crate::stages::Recorder;
use crate::stall::{self, Throttle};
use crate::version::Version;
use crate::vfs::cycles;

/// Writers that wait for room wait in vain when there was none for this long.
const STALLED_AFTER_NS: u64 = 1_000_000_000;

/// What a version's upper runs hide, as far as is known.
#[derive(Debug)]
pub(super) struct KnownHidden {
    pub(super) of: Weak<Version>,
    /// When that was looked into.
    pub(super) at_ms: u64,
    pub(super) hidden: Hidden,
}

/// An open store.
pub(crate) struct Inner {
    /// The store itself, for handing out.
    pub(super) this: Weak<Inner>,
    pub(super) dir: PathBuf,
    pub(super) options: Options,
    pub(super) resources: Arc<Resources>,
    /// The books.
    pub(super) recorder: Arc<Recorder>,
    /// The directory's lock; let go by `close`.
    pub(super) lock: Mutex<Option<Box<dyn Send + Sync>>>,

    /// Everything a read needs.
    pub(super) state: CurrentState<ReadState>,
    /// Held while `state` is replaced.
    pub(super) install: lock::Mutex<()>,
    /// The last write that reads see.
    pub(super) visible_seqno: AtomicU64,
    pub(super) snapshots: SnapshotList,

    /// One writer at a time.
    pub(super) commit: lock::Mutex<Commit>,
    pub(super) sync: Arc<SyncState>,
    pub(super) pool: Arc<SegmentPool>,
    /// The segments that replay would read, oldest first; the last takes the writes.
    pub(super) log: lock::Mutex<Vec<LogSegment>>,
    /// Segments that nothing durable refers to, waiting for their last reader.
    pub(super) retired: Mutex<Vec<Arc<Segment>>>,

    /// One edit at a time.
    pub(super) tree: lock::Mutex<Tree>,
    pub(super) next_file_number: Arc<AtomicU64>,
    pub(super) salts: Arc<Salts>,
    pub(super) obsolete: Arc<ObsoleteQueue>,

    /// Memtables on their way out, oldest first.
    pub(super) flushes: lock::Mutex<FlushQueue>,
    /// Signalled when a flush ended, well or not.
    pub(super) flush_ended: Condvar,
    pub(super) immutable_bytes: AtomicUsize,
    /// Held while segments are prepared.
    pub(super) preparing: Mutex<()>,
    /// Held while files that nothing needs are removed.
    pub(super) removing: Mutex<()>,
    /// Held while a segment is named.
    pub(super) naming: Mutex<()>,
    /// Held while a compaction or collection job runs.
    pub(super) compacting: Mutex<()>,
    /// Of each collected segment, how many values were referred to when it was made. Until one of
    /// them dies, collecting it again gains nothing, however small its values are beside their records.
    pub(super) collected_values: Mutex<HashMap<u64, u64>>,
    /// Segments in which a live value can't be read, or can't be told: they are not collected.
    pub(super) segments_avoided: Avoided<u64>,
    /// What merges met that can't be read.
    pub(super) merges_avoided: Avoided<Unreadable>,

    /// Entries that were merged at the cost of reads.
    pub(super) read_credit_spent: AtomicU64,
    /// What reads had earned when a merge was last looked for.
    pub(super) read_credit_asked: AtomicU64,
    /// What a version's upper runs were last found to hide.
    pub(super) hidden_of: Mutex<Option<KnownHidden>>,

    pub(super) throttle: Throttle,
    /// Of `flush_pressure` this store's own as bits, refreshed when memtables or the tree change.
    pub(super) pressure_bits: AtomicU64,
    /// `lag_in_space` as bits, refreshed with it.
    pub(super) lag_in_space_bits: AtomicU64,
    /// Clock reading when the writer took the last segment that was ready; 0 where one is.
    pub(super) short_since_ns: AtomicU64,
    /// Why writing ended.
    pub(super) poison: OnceLock<String>,
    pub(super) closed: AtomicBool,
    /// Tells running jobs to give up.
    pub(super) cancel: AtomicBool,
    pub(super) counters: Counters,
    /// Clock reading by which a sync must have started; `NEVER_NS` for none.
    pub(super) sync_due_ns: AtomicU64,
    /// Nothing was written since idle work last found nothing to do.
    pub(super) settled: AtomicBool,
    /// When it last became so, in milliseconds since the Unix epoch.
    pub(super) settled_at_ms: AtomicU64,
    /// Clock reading when a flush last made room, or had nothing to do before the last began to wait.
    pub(super) progress_ns: AtomicU64,
    /// Clock reading of the last write, for telling idleness.
    pub(super) last_write_ns: AtomicU64,
    /// Clock reading when idle work was last found to have nothing to do.
    pub(super) idle_look_ns: AtomicU64,
    /// Clock reading when a full disk was last looked at.
    pub(super) room_look_ns: AtomicU64,
    /// Background work that failed.
    pub(super) retries: Retries,
    pub(super) opening: OpeningFigures,
}

/// What opening found; never changes.
#[derive(Debug, Default)]
pub(super) struct OpeningFigures {
    pub(super) elapsed: Duration,
    pub(super) replayed_bytes: u64,
    pub(super) torn_bytes: u64,
    pub(super) torn_records: u64,
}

/// What a writer holds.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) writer: JournalWriter,
    pub(super) last_seqno: u64,
    /// Of the active memtable.
    pub(super) active: MemtableWriter,
    /// Where the active memtable's first record is, or will be.
    pub(super) memtable_start: JournalPosition,
    /// When it was last noted that there are writes, in milliseconds since the Unix epoch.
    pub(super) noted_ms: u64,
}

/// What a version edit holds.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) manifest: Manifest,
}

/// Memtables on their way out.
#[derive(Debug, Default)]
pub(super) struct FlushQueue {
    pub(super) pending: std::collections::VecDeque<PendingFlush>,
    /// Flushes that run, to be waited for by `let_go`.
    pub(super) running: usize,
    /// No flush may start any more.
    pub(super) is_closed: bool,
    /// Memtables installed since the store was opened, for waiting.
    pub(super) installed: u64,
    /// The last failure since a flush succeeded.
    pub(super) failure: Option<Error>,
}

/// One memtable on its way out.
#[derive(Debug)]
pub(super) struct PendingFlush {
    pub(super) memtable: Arc<Memtable>,
    /// Where the journal goes on after it.
    pub(super) end: JournalPosition,
    pub(super) state: FlushState,
    /// How often a table that was written could not be opened.
    pub(super) opens_refused: u32,
    /// Reading of the cycle counter when it became one.
    pub(super) since: u64,
}

impl PendingFlush {
    /// One that waits from now on.
    pub(super) fn new(memtable: Arc<Memtable>, end: JournalPosition) -> PendingFlush {
        PendingFlush {
            memtable,
            end,
            state: FlushState::Waiting,
            opens_refused: 0,
            since: cycles::now(),
        }
    }
}

#[derive(Debug)]
pub(super) enum FlushState {
    Waiting,
    Running,
    Written(Vec<crate::compaction::output::OutputTable>),
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Inner {
    /// Refuses when the store was closed.
    pub(super) fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(Error::InvalidArgument("the store is closed".into())),
            false => Ok(()),
        }
    }

    /// Refuses when writing has ended.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_poison()
    }

    /// Refuses when a failed sync has ended writing.
    pub(super) fn check_poison(&self) -> Result<()> {
        match self.poison.get() {
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Ends writing for good when `error` means that the outcome of a sync is unknown.
    pub(super) fn poison_if_sync_failed(&self, error: &Error) {
        match error {
            Error::ReadOnly { cause } => {
                let _ = self.poison.set(cause.clone());
            }
            Error::Io { op: "sync", .. } => {
                let _ = self.poison.set(error.to_string());
            }
            _ => {}
        }
    }

    /// Replaces the read state by what `change` makes of it.
    pub(super) fn change_state(&self, change: impl FnOnce(&mut ReadState)) {
        let _install = self.install.lock();
        let mut state = ReadState::clone(&self.state.load());
        change(&mut state);
        self.state.replace(state);
        self.refresh_pressure();
    }

    /// Recomputes from the state how far background work lags.
    pub(super) fn refresh_pressure(&self) {
        let state = self.state.load();
        let options = &self.options;
        let flushes = stall::lag_of_flushes(
            self.immutable_bytes.load(Ordering::Relaxed),
            options.write_buffer_bytes,
            options.memtable_bytes,
        );
        let l0_runs = state.version.levels[0].runs.len();
        let merges = stall::lag_of_merges(l0_runs, options.runs_max(0), options.level_runs_max);
        let own = flushes.max(merges);
        self.pressure_bits.store(own.to_bits(), Ordering::Relaxed);
        let in_space = if options.background { self.find_lag_in_space(&state) } else { 0.0 };
        self.lag_in_space_bits.store(in_space.to_bits(), Ordering::Relaxed);
    }

    fn find_lag_in_space(&self, state: &ReadState) -> f64 {
        let level0_bytes = state.version.levels[0].weight();
        let shares = self.collectable(state);
        let dead_bytes = collection::backlog(&shares, self.options.collection_live_ratio);
        let merge_bytes = self.options.memtable_journal_bytes * self.options.level_runs_max as u64;
        let live_bytes = state.version.live_bytes();
        stall::lag_in_space(level0_bytes.saturating_add(dead_bytes), merge_bytes, live_bytes)
    }

    /// How far merges and collection lag, as [`stall::lag_in_space`].
    pub(super) fn lag_in_space(&self) -> f64 {
        f64::from_bits(self.lag_in_space_bits.load(Ordering::Relaxed))
    }

    /// How far flushes lag, 0.0 to 1.0: this store's own or those of the shared budget.
    pub(super) fn flush_pressure(&self) -> f64 {
        let own = f64::from_bits(self.pressure_bits.load(Ordering::Relaxed));
        let used = self.resources.memtable_bytes.load(Ordering::Relaxed);
        let budget = self.resources.options.write_buffer_bytes;
        if used <= budget / 2 {
            return own;
        }
        own.max((used as f64 / budget as f64).min(1.0))
    }

    /// How far background work lags, 0.0 to 1.0, from which writers are slowed beyond
    /// [`stall::PRESSURE_SLOW`]. Only flushes can have them wait.
    pub(super) fn pressure(&self) -> f64 {
        let flushes = self.flush_pressure();
        match self.lag_in_space() {
            0.0 => flushes,
            in_space => flushes.max(stall::PRESSURE_SLOW + in_space * stall::SLOWED_SHARE),
        }
    }

    /// Bytes that memtables may still take, this store's own and those of the shared budget.
    pub(super) fn memtable_room(&self) -> u64 {
        let own = self.immutable_bytes.load(Ordering::Relaxed) + self.state.load().active.bytes();
        let used = self.resources.memtable_bytes.load(Ordering::Relaxed);
        let own = self.options.write_buffer_bytes.saturating_sub(own);
        own.min(self.resources.options.write_buffer_bytes.saturating_sub(used)) as u64
    }

    /// Makes what the writer has started since known to readers. Requires: the commit lock.
    pub(super) fn note_rotation(&self, commit: &mut Commit) {
        if !commit.writer.has_started() {
            return;
        }
        let started = commit.writer.take_started();
        self.log.lock().extend(started.iter().cloned());
        self.change_state(|state| {
            let segments = Arc::make_mut(&mut state.segments);
            started.into_iter().for_each(|started| segments.insert(started.segment));
        });
        self.request(Work::Prepare);
        if self.pool.successors().0 == 0 {
            self.short_since_ns.store(self.resources.clock.steady_ns(), Ordering::Relaxed);
        }
        // It is to be named.
        self.request(Work::Flush);
    }

    /// Whether writers wait and no flush has made room for a second.
    pub(super) fn is_stalled(&self) -> bool {
        if self.pressure() < 1.0 {
            return false;
        }
        let progress_ns = self.progress_ns.load(Ordering::Relaxed);
        self.resources.clock.steady_ns().saturating_sub(progress_ns) > STALLED_AFTER_NS
    }

    /// Asks the resources for background work.
    pub(super) fn request(&self, work: Work) {
        let this: Weak<dyn Participant> = self.this.clone();
        self.resources.request(work, this);
    }

    /// Does the work that is due, where no thread would.
    pub(super) fn run_inline(&self) {
        if self.resources.is_inline() && !self.closed.load(Ordering::Acquire) {
            self.resources.run_inline(self);
        }
    }

    /// `Error::io` for a path in this store.
    pub(super) fn io(op: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |error| Error::io(op, &path, error)
    }
}
