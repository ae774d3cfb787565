//! What stores share: file system, clock, threads, caches, budgets.
//!
//! One set serves hundreds of stores. A store registers as a [`Participant`] and asks for work when
//! it has some; worker threads then call it back. Without threads ([`Resources::inline`]) the work is
//! done by whoever made it due, so that a run is deterministic. Nothing here knows what a store is.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::block_cache::BlockCache;
use crate::block_memory::BlockMemory;
use crate::error::{Error, Result};
use crate::file_cache::FileCache;
use crate::file_name;
use crate::key::hash;
use crate::memtable::SpareChunks;
use crate::salt::Salts;
use crate::vfs::{self, Clock, DiskFileSystem, FileSystem, JoinHandle, Priority, SystemClock};

/// How long nobody is ticked at least, whatever they ask for, and at most, though they ask for nothing.
const TICKS_APART_MIN: Duration = Duration::from_millis(1);
const TICKS_APART_MAX: Duration = Duration::from_secs(1);

/// Of the memory that memtables may take, so much is kept when they go, as a divisor.
const SPARE_SHARE: usize = 8;

/// Settings of [`Resources`].
#[derive(Debug, Clone)]
pub struct ResourceOptions {
    /// Threads that flush memtables; 0 is taken as 1. Default 1.
    pub flush_threads: usize,
    /// Threads that compact and collect; 0 is taken as 1. Default 1.
    pub compaction_threads: usize,
    /// Block cache, for `Reading::Pread` and compressed blocks. Default 64 MiB.
    pub block_cache_bytes: usize,
    /// How much of the block cache, at most half, is for recently read keys, which cost no block at
    /// all; for `Reading::Pread`. Default 8 MiB.
    pub recent_keys_bytes: usize,
    /// Most memtable bytes of all stores together; up to an eighth as much is kept for the next memtables
    /// until a store comes to rest. Default 512 MiB.
    pub write_buffer_bytes: usize,
    /// Most file handles kept open for reading in `Reading::Pread`. Default 512.
    pub file_handles_max: usize,
}

impl Default for ResourceOptions {
    fn default() -> Self {
        ResourceOptions {
            flush_threads: 1,
            compaction_threads: 1,
            block_cache_bytes: 64 << 20,
            recent_keys_bytes: 8 << 20,
            write_buffer_bytes: 512 << 20,
            file_handles_max: 512,
        }
    }
}

/// A store, as the threads see it. Each call does one step and says whether there may be more.
pub trait Participant: Send + Sync + Debug {
    /// Makes one journal segment ready.
    fn prepare_step(&self) -> bool;
    /// Writes one memtable out, or has the manifest name the journal segment in use.
    fn flush_step(&self) -> bool;
    /// Runs one compaction or collection job.
    fn compaction_step(&self) -> bool;
    /// Does what is due by the clock: interval syncs, idle work. For how long it needn't be called again,
    /// unless it hurries.
    fn tick(&self) -> Duration;
}

/// The kinds of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Journal segments made ready ahead of need: a writer that finds none makes it itself.
    Prepare,
    /// Flushes: writers may be waiting.
    Flush,
    /// Compaction and collection.
    Compaction,
}

/// File system, clock, threads, caches and budgets of any number of stores.
#[derive(Debug)]
pub struct Resources {
    /// The files.
    pub fs: Arc<dyn FileSystem>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Open read handles.
    pub file_cache: Arc<FileCache>,
    /// Decoded table blocks.
    pub block_cache: Arc<BlockCache>,
    /// Settings.
    pub options: ResourceOptions,
    /// Memtable bytes of all stores, immutable ones included.
    pub memtable_bytes: AtomicUsize,
    /// Memory of memtables that are gone, for those to come.
    pub spare_chunks: Arc<SpareChunks>,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle>>,
    inline: bool,
}

#[derive(Debug, Default)]
struct Shared {
    participants: Mutex<Vec<Weak<dyn Participant>>>,
    preparations: Queue,
    flushes: Queue,
    compactions: Queue,
    stopping: AtomicBool,
    /// Has memory made ready.
    memory: Bell,
    /// Has the ticking thread tick at once.
    hurry: Bell,
}

/// Calls one thread, which may wait for it.
#[derive(Debug, Default)]
struct Bell {
    is_called: Mutex<bool>,
    signal: Condvar,
}

impl Bell {
    fn call(&self) {
        *self.is_called.lock() = true;
        self.signal.notify_all();
    }

    /// Waits until it was called.
    fn wait(&self) {
        let mut is_called = self.is_called.lock();
        self.signal.wait_while(&mut is_called, |is_called| !*is_called);
        *is_called = false;
    }

    /// Waits until it was called, or so long.
    fn wait_for(&self, longest: Duration) {
        let mut is_called = self.is_called.lock();
        self.signal.wait_while_for(&mut is_called, |is_called| !*is_called, longest);
        *is_called = false;
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<VecDeque<Weak<dyn Participant>>>,
    signal: Condvar,
}

impl Queue {
    fn push(&self, participant: Weak<dyn Participant>) {
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|queued| queued.ptr_eq(&participant)) {
            waiting.push_back(participant);
            self.signal.notify_one();
        }
    }
}

impl Resources {
    /// The machine's disk and clocks, with threads.
    pub fn new(options: ResourceOptions) -> io::Result<Arc<Resources>> {
        Self::with(options, Arc::new(DiskFileSystem), Arc::new(SystemClock::default()))
    }

    /// Another file system and clock, with threads.
    pub fn with(
        options: ResourceOptions,
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Arc<Resources>> {
        let resources = Self::build(options, fs, clock, false);
        let mut threads = resources.threads.lock();
        for at in 0..resources.options.flush_threads.max(1) {
            let shared = resources.shared.clone();
            threads.push(vfs::spawn(&format!("tally-flush-{at}"), Priority::Normal, move || {
                work(&shared, Work::Flush);
            })?);
        }
        for at in 0..resources.options.compaction_threads.max(1) {
            let shared = resources.shared.clone();
            threads.push(vfs::spawn(&format!("tally-compact-{at}"), Priority::Low, move || {
                work(&shared, Work::Compaction);
            })?);
        }
        let shared = resources.shared.clone();
        threads.push(vfs::spawn("tally-prepare", Priority::Normal, move || {
            work(&shared, Work::Prepare)
        })?);
        let memory = resources.block_cache.memory();
        let (shared, kept) = (resources.shared.clone(), memory.clone());
        threads.push(vfs::spawn("tally-memory", Priority::Lowest, move || {
            keep_ready(&shared, &kept)
        })?);
        let shared = resources.shared.clone();
        memory.prepare_by(move || shared.memory.call());
        let shared = resources.shared.clone();
        threads.push(vfs::spawn("tally-tick", Priority::Normal, move || tick(&shared))?);
        drop(threads);
        Ok(resources)
    }

    /// Keeps everybody else out of a store's directory, until what this answers is dropped.
    pub(crate) fn lock_directory(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        self.fs.lock(&file_name::lock(dir)).map_err(|error| lock_error(dir, error))
    }

    /// As `lock_directory`, where nothing may be written; `None` if there is no file to lock, which whoever has a
    /// store open has made.
    pub(crate) fn lock_read_only_directory(
        &self,
        dir: &Path,
    ) -> Result<Option<Box<dyn Send + Sync>>> {
        match self.fs.lock_existing(&file_name::lock(dir)) {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(lock_error(dir, error)),
        }
    }

    /// That a directory is empty, or isn't there.
    pub(crate) fn check_empty(&self, dir: &Path) -> Result<()> {
        let is_there = self.fs.exists(dir).map_err(|error| Error::io("look up", dir, error))?;
        let is_empty = || self.fs.is_dir_empty(dir).map_err(|error| Error::io("list", dir, error));
        match !is_there || is_empty()? {
            true => Ok(()),
            false => Err(not_empty(dir)),
        }
    }

    /// That a directory that was empty has no file now but that of its lock, which is held.
    pub(crate) fn check_empty_but_for_lock(&self, dir: &Path) -> Result<()> {
        let names = self.fs.list(dir).map_err(|error| Error::io("list", dir, error))?;
        match names.iter().all(|name| dir.join(name) == file_name::lock(dir)) {
            true => Ok(()),
            false => Err(not_empty(dir)),
        }
    }

    /// Salts for a store's directory that differ from one opening to the next, and from one store to another.
    pub(crate) fn salts(&self, dir: &Path, next_file_number: u64) -> Salts {
        let place = hash(dir.as_os_str().as_encoded_bytes());
        let (now_ms, steady_ns) = (self.clock.now_ms(), self.clock.steady_ns());
        Salts::new(place ^ now_ms.rotate_left(32) ^ steady_ns ^ next_file_number)
    }

    /// Without any thread: flushes, compactions, collections and interval syncs run inside the calls
    /// that make them due, on the caller's thread.
    pub fn inline(
        options: ResourceOptions,
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Resources> {
        Self::build(options, fs, clock, true)
    }

    fn build(
        mut options: ResourceOptions,
        fs: Arc<dyn FileSystem>,
        clock: Arc<dyn Clock>,
        inline: bool,
    ) -> Arc<Resources> {
        // With none, nobody could go on behind a flush.
        options.write_buffer_bytes = options.write_buffer_bytes.max(1);
        Arc::new(Resources {
            file_cache: Arc::new(FileCache::new(fs.clone(), options.file_handles_max)),
            block_cache: Arc::new(BlockCache::new(
                options.block_cache_bytes,
                options.recent_keys_bytes,
            )),
            fs,
            clock,
            memtable_bytes: AtomicUsize::new(0),
            spare_chunks: Arc::new(SpareChunks::new(options.write_buffer_bytes / SPARE_SHARE)),
            options,
            shared: Arc::default(),
            threads: Mutex::default(),
            inline,
        })
    }

    /// Whether work is done by the caller that made it due.
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// Has `participant` ticked from now on, until it is dropped.
    pub fn register(&self, participant: Weak<dyn Participant>) {
        let mut participants = self.shared.participants.lock();
        participants.retain(|known| known.strong_count() > 0);
        participants.push(participant);
    }

    /// Asks for work to be done for `participant`; at once returns.
    pub fn request(&self, work: Work, participant: Weak<dyn Participant>) {
        match work {
            Work::Prepare => self.shared.preparations.push(participant),
            Work::Flush => self.shared.flushes.push(participant),
            Work::Compaction => self.shared.compactions.push(participant),
        }
    }

    /// Has all participants ticked now.
    pub fn hurry(&self) {
        self.shared.hurry.call();
    }

    /// In inline mode, does all work that is due for `participant`; else nothing.
    pub fn run_inline(&self, participant: &dyn Participant) {
        if !self.inline {
            return;
        }
        participant.tick();
        while participant.prepare_step()
            || participant.flush_step()
            || participant.compaction_step()
        {}
    }
}

impl Drop for Resources {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.hurry.call();
        self.shared.memory.call();
        let shared = &self.shared;
        for queue in [&shared.preparations, &shared.flushes, &shared.compactions] {
            let _waiting = queue.waiting.lock();
            queue.signal.notify_all();
        }
        for thread in self.threads.lock().drain(..) {
            // A worker may itself hold the last reference; it ends by itself then.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn lock_error(dir: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => Error::Locked { path: dir.to_owned() },
        _ => Error::io("lock", &file_name::lock(dir), error),
    }
}

fn not_empty(dir: &Path) -> Error {
    Error::InvalidArgument(format!("{} is not empty", dir.display()))
}

fn work(shared: &Shared, kind: Work) {
    let queue = match kind {
        Work::Prepare => &shared.preparations,
        Work::Flush => &shared.flushes,
        Work::Compaction => &shared.compactions,
    };
    loop {
        let participant = {
            let mut waiting = queue.waiting.lock();
            loop {
                if shared.stopping.load(Ordering::SeqCst) {
                    return;
                }
                match waiting.pop_front() {
                    Some(participant) => break participant,
                    None => queue.signal.wait(&mut waiting),
                }
            }
        };
        let Some(store) = participant.upgrade() else { continue };
        let more = match kind {
            Work::Prepare => store.prepare_step(),
            Work::Flush => store.flush_step(),
            Work::Compaction => store.compaction_step(),
        };
        if more {
            // To the back of the queue: stores take turns.
            queue.push(participant);
        }
    }
}

fn keep_ready(shared: &Shared, memory: &BlockMemory) {
    loop {
        shared.memory.wait();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        memory.make_ready();
    }
}

fn tick(shared: &Shared) {
    let mut period = TICKS_APART_MAX;
    loop {
        shared.hurry.wait_for(period);
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let participants: Vec<_> = shared.participants.lock().clone();
        // Each time wakes a thread: no sooner than the first of them asks for.
        let soonest = participants.iter().filter_map(Weak::upgrade).map(|store| store.tick()).min();
        period = soonest.unwrap_or(TICKS_APART_MAX).clamp(TICKS_APART_MIN, TICKS_APART_MAX);
    }
}
