//! The buckets' engine stores: opened when needed, closed when idle.
//!
//! Invariants: a bucket that was made is never made again in silence, none is made where its disk isn't
//! mounted, and one that belongs to another store, or is another bucket, is not used. At most
//! `open_buckets_max` are kept open but for those in use at the moment, and those that can't be synced.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tallybook::{Durability, JournalWriting, Options, Resources, ScanOptions, Store, file_name};

use crate::error::{Error, Result};
use crate::key_layout;
use crate::options::OpenOptions;
use crate::record::Identity;
use crate::superblock::Superblock;

/// A bucket that is closed leaves at most this much to be replayed by the next opening, beyond which it
/// is flushed: a flush costs four syncs, replaying a mebibyte less than a millisecond.
const REPLAY_BYTES_MAX: u64 = 1 << 20;

/// Nor more journal segments than this.
const SEGMENTS_MAX: u64 = 16;

/// With less left on its disk an idle bucket stays open: opening it again takes a manifest, and writing to it
/// a segment of the journal, for what frees space the smallest.
const OPENING_BYTES: u64 = 4 << 20;

/// An open bucket. It is closed only when nobody else holds it.
pub(crate) type Bucket = Arc<Store>;

/// The buckets.
#[derive(Debug)]
pub(crate) struct Buckets {
    dir: PathBuf,
    superblock: Superblock,
    options: OpenOptions,
    resources: Arc<Resources>,
    slots: Vec<Mutex<Slot>>,
    /// For each bucket, when it was last asked for.
    used_ns: Vec<AtomicU64>,
    open_count: AtomicUsize,
    /// None is opened from here on.
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Slot {
    store: Option<Bucket>,
    /// It was not opened since an end without a close, which may have left something of it to be synced.
    is_unsynced: bool,
}

impl Buckets {
    pub(crate) fn new(
        dir: PathBuf,
        superblock: Superblock,
        options: OpenOptions,
        resources: Arc<Resources>,
    ) -> Buckets {
        let count = superblock.bucket_count();
        Buckets {
            dir,
            superblock,
            options,
            resources,
            slots: (0..count).map(|_| Mutex::default()).collect(),
            used_ns: (0..count).map(|_| AtomicU64::new(0)).collect(),
            open_count: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Tells of buckets that were not closed, and so may not be synced.
    pub(crate) fn note_unsynced(&mut self, buckets: impl IntoIterator<Item = u8>) {
        for bucket in buckets {
            self.slots[usize::from(bucket)].get_mut().is_unsynced = true;
        }
    }

    /// A bucket that has been made.
    pub(crate) fn get(&self, bucket: u8) -> Result<Bucket> {
        self.open(bucket, false)
    }

    /// A bucket, made if it has not been. Requires: nothing says that it was.
    pub(crate) fn make(&self, bucket: u8) -> Result<Bucket> {
        self.open(bucket, true)
    }

    /// `BucketLost` where the directory, elsewhere, that a bucket is placed in isn't there, as with a disk that
    /// isn't mounted: it was made with the store, and made again it would be on another disk.
    pub(crate) fn check_root(&self, bucket: u8) -> Result<()> {
        let Some(root) = self.superblock.bucket_root(usize::from(bucket)) else { return Ok(()) };
        if exists(&self.resources, &root)? {
            return Ok(());
        }
        let what = format!(
            "{} isn't there; bring it back, or make it, empty, to go on without what it held",
            root.display()
        );
        Err(Error::BucketLost { bucket, path: self.path(bucket), what })
    }

    /// Whether nothing was ever written to a bucket that doesn't open: the process ended as it was made.
    pub(crate) fn is_blank(&self, bucket: u8) -> Result<bool> {
        let options =
            Options { create_if_missing: false, ..engine_options(&self.options, &self.superblock) };
        let store = Store::open_with(self.path(bucket), options, self.resources.clone())?;
        Ok(store.range_heads(ScanOptions::default())?.next().transpose()?.is_none())
    }

    /// Number of buckets that are open.
    pub(crate) fn open_count(&self) -> usize {
        self.open_count.load(Ordering::Relaxed)
    }

    /// Whether a bucket is open. One that was closed is synced.
    pub(crate) fn is_open(&self, bucket: u8) -> bool {
        self.slots[usize::from(bucket)].lock().store.is_some()
    }

    /// Syncs every bucket; answers those that could not be, and why.
    pub(crate) fn sync_all(&self) -> Vec<(u8, Error)> {
        let buckets = (0..=u8::MAX).take(self.slots.len());
        buckets.filter_map(|bucket| Some((bucket, self.sync(bucket).err()?))).collect()
    }

    /// Syncs a bucket. One that was closed is synced; one that was not, before this opening, is once it is
    /// opened. A lost one has nothing to be synced.
    pub(crate) fn sync(&self, bucket: u8) -> Result<()> {
        let (open, is_unsynced) = {
            let slot = self.slots[usize::from(bucket)].lock();
            (slot.store.clone(), slot.is_unsynced)
        };
        match open {
            Some(store) => Ok(store.sync()?),
            None if is_unsynced => match self.get(bucket) {
                Ok(_) | Err(Error::BucketLost { .. }) => Ok(()),
                Err(error) => Err(error),
            },
            None => Ok(()),
        }
    }

    /// Where a bucket is.
    pub(crate) fn path(&self, bucket: u8) -> PathBuf {
        self.superblock.bucket_dir(&self.dir, bucket)
    }

    /// Closes what was not asked for in a while, and what is too much.
    pub(crate) fn close_idle(&self) {
        let now_ns = self.resources.clock.steady_ns();
        let idle_ns = self.options.idle_close.as_nanos() as u64;
        for bucket in 0..self.slots.len() {
            if now_ns.saturating_sub(self.used_ns[bucket].load(Ordering::Relaxed)) > idle_ns {
                self.close(bucket, false);
            }
        }
        self.close_surplus(usize::MAX);
    }

    /// Has compactions of open buckets end soon. Requires: all buckets are about to be closed.
    pub(crate) fn end_compacting(&self) {
        let open = |slot: &Mutex<Slot>| slot.lock().store.clone();
        self.slots.iter().filter_map(open).for_each(|store| store.end_compacting());
    }

    /// Closes everything that nobody holds.
    pub(crate) fn close_all(&self) -> Result<()> {
        self.is_closed.store(true, Ordering::Release);
        let mut outcome = Ok(());
        for slot in &self.slots {
            if let Some(store) = slot.lock().store.take() {
                self.open_count.fetch_sub(1, Ordering::Relaxed);
                outcome = outcome.and(close_engine_store(&store));
            }
        }
        Ok(outcome?)
    }

    fn open(&self, bucket: u8, make: bool) -> Result<Bucket> {
        let at = usize::from(bucket);
        self.used_ns[at].store(self.resources.clock.steady_ns(), Ordering::Relaxed);
        let mut slot = self.slots[at].lock();
        if let Some(store) = &slot.store {
            return Ok(store.clone());
        }
        // With the lock: whoever closes all takes it after saying so.
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::InvalidArgument("the file store is closed".to_owned()));
        }
        let store = Arc::new(self.open_store(bucket, make)?);
        slot.store = Some(store.clone());
        // What it found was synced by its recovery.
        slot.is_unsynced = false;
        drop(slot);
        self.open_count.fetch_add(1, Ordering::Relaxed);
        self.close_surplus(at);
        Ok(store)
    }

    fn open_store(&self, bucket: u8, make: bool) -> Result<Store> {
        if make {
            self.check_root(bucket)?;
        }
        let path = self.path(bucket);
        let lost = |what: String| Error::BucketLost { bucket, path: path.clone(), what };
        let options =
            Options { create_if_missing: make, ..engine_options(&self.options, &self.superblock) };
        let store = open_engine_store(&path, options, &self.resources, &lost)?;
        let expected = Identity {
            store: self.superblock.store,
            bucket,
            generation: self.superblock.bucket_generations[usize::from(bucket)],
        };
        let identity = store.get(&[key_layout::IDENTITY]);
        match identity.map_err(|error| Error::of_store(error, lost))? {
            Some(value) if Identity::decode(&value).as_ref() == Some(&expected) => Ok(store),
            Some(_) => Err(lost("it is another bucket, or another store's".to_owned())),
            None if make => {
                let durability = Some(Durability::Sync);
                let options = tallybook::WriteOptions { durability, ..Default::default() };
                store.put_with(&[key_layout::IDENTITY], &expected.encode(), &options)?;
                Ok(store)
            }
            None => Err(lost("it doesn't say which bucket it is".to_owned())),
        }
    }

    /// Closes the buckets least recently asked for, but `kept`, until there are few enough open: those on a full
    /// disk last. That it had room for one to be opened is the best sign that others can be again.
    fn close_surplus(&self, kept: usize) {
        if self.open_count() <= self.options.open_buckets_max {
            return;
        }
        let mut by_use: Vec<(u64, usize)> = (self.used_ns.iter().enumerate())
            .map(|(bucket, used_ns)| (used_ns.load(Ordering::Relaxed), bucket))
            .collect();
        by_use.sort_unstable();
        for even_if_full in [false, true] {
            for &(_, bucket) in &by_use {
                if self.open_count() <= self.options.open_buckets_max {
                    return;
                }
                if bucket != kept {
                    self.close(bucket, even_if_full);
                }
            }
        }
    }

    /// Closes a bucket unless somebody holds it, or its disk may have no room to open it again and that counts.
    /// One that can't be synced stays: who asks for a sync of it is to be told, and what opens it again can't
    /// know.
    fn close(&self, bucket: usize, even_if_full: bool) {
        let Some(mut slot) = self.slots[bucket].try_lock() else { return };
        let may_close = |store: &&Bucket| {
            let available = || self.resources.fs.available_bytes(store.path());
            let is_full = || available().is_ok_and(|bytes| bytes < OPENING_BYTES);
            Arc::strong_count(store) == 1 && (even_if_full || !is_full())
        };
        if slot.store.as_ref().filter(may_close).is_none_or(|store| store.sync().is_err()) {
            return;
        }
        let Some(store) = slot.store.take() else { return };
        self.open_count.fetch_sub(1, Ordering::Relaxed);
        let figures = store.stats();
        let to_replay = figures.replayed_bytes + figures.user_bytes_written;
        if to_replay >= REPLAY_BYTES_MAX || figures.segments >= SEGMENTS_MAX {
            // If it fails, the next opening finds in the journal what is not in a table.
            let _ = store.close();
        }
    }
}

/// Opens an engine store. `lost` tells of one that has to be there, and whole, and isn't.
pub(crate) fn open_engine_store(
    path: &Path,
    options: Options,
    resources: &Arc<Resources>,
    lost: &dyn Fn(String) -> Error,
) -> Result<Store> {
    match Store::open_with(path, options, resources.clone()) {
        // The engine refuses settings in the same way, whatever is there.
        Err(tallybook::Error::InvalidArgument(what))
            if !exists(resources, &file_name::current(path))? =>
        {
            Err(lost(what))
        }
        opened => opened.map_err(|error| Error::of_store(error, lost)),
    }
}

/// Closes an engine store, with all that was written to it on the disk. What there is no room for as a table is in
/// its journal, where the next opening finds it.
pub(crate) fn close_engine_store(store: &Store) -> tallybook::Result<()> {
    let synced = store.sync();
    match store.close() {
        Err(tallybook::Error::NoSpace { .. }) => synced,
        closed => synced.and(closed),
    }
}

fn exists(resources: &Resources, path: &Path) -> Result<bool> {
    resources.fs.exists(path).map_err(|source| Error::io("look up", path, source))
}

/// How the engine store of a bucket is opened: hundreds of them must stay small, and all but a few
/// bytes of what they hold stay in the journal.
fn engine_options(options: &OpenOptions, superblock: &Superblock) -> Options {
    let segment_bytes = (u64::from(superblock.chunk_bytes) * 8).clamp(1 << 20, 4 << 20);
    with_segments_of(
        options.segment_bytes_min.unwrap_or(segment_bytes),
        Options {
            durability: options.unwaited(),
            reading: options.reading,
            journal_writing: JournalWriting::Written,
            memtable_bytes: 1 << 20,
            write_buffer_bytes: 8 << 20,
            table_bytes: 8 << 20,
            ..Options::default()
        },
    )
}

/// How the engine store of the catalogue is opened. What is written to it all the time names a durability of
/// its own: `Sync` here has the journal written as suits syncs.
pub(crate) fn catalogue_options(options: &OpenOptions) -> Options {
    with_segments_of(
        options.segment_bytes_min.unwrap_or(1 << 20),
        Options {
            durability: options.durability,
            reading: options.reading,
            memtable_bytes: 4 << 20,
            write_buffer_bytes: 32 << 20,
            ..Options::default()
        },
    )
}

/// These options, with segments of so many bytes at first, which the largest may not be below.
fn with_segments_of(segment_bytes_min: u64, options: Options) -> Options {
    let segment_bytes_max = options.segment_bytes_max.max(segment_bytes_min);
    Options { segment_bytes_min, segment_bytes_max, ..options }
}
