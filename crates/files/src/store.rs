//! The file store: what a user holds.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tallybook::vfs::{self, FileSystem, JoinHandle, Priority};
use tallybook::{Durability, ResourceOptions, Resources, Store, WriteBatch};

use crate::buckets::{Buckets, catalogue_options, close_engine_store, open_engine_store};
use crate::compacting::{self, compact_due};
use crate::core::{
    Core, Unswept, decode_known_shares, holding_nothing, undecodable, unknown_buckets,
};
use crate::error::{Error, Result};
use crate::figures::{Figures, Totals};
use crate::key_layout::{self, key};
use crate::names::Page;
use crate::options::{
    CopyOptions, CreateOptions, ListOptions, OpenOptions, ReadOptions, UnlinkOptions,
    VerifyOptions, WriteOptions,
};
use crate::placement::ReferenceId;
use crate::reader::Reader;
use crate::reaper::{self, Reaped};
use crate::record::{CatalogueIdentity, Stat, encode_shares};
use crate::superblock::Superblock;
use crate::sweep::sweep_step;
use crate::verify::{Verification, VerifyReport};
use crate::writer::Writer;

/// Numbers that are left out at each opening, so that none that a power loss took is used again.
const NUMBERS_SKIPPED: u64 = 1 << 20;

/// An open file store. Cheap to clone; clones are the same store. All methods may be called from any
/// thread, and block. With the last clone the store is closed, and its writers and readers fail.
#[derive(Debug, Clone)]
pub struct FileStore {
    handle: Arc<Handle>,
}

/// What the clones share; the threads hold only the core.
#[derive(Debug)]
struct Handle {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle>>,
    description_problems: Vec<String>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl Handle {
    fn close(&self) -> Result<()> {
        let core = &self.core;
        if core.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // What else is under way is let finish; this may take minutes, and nobody needs it.
        core.buckets.end_compacting();
        {
            let _due = core.reap_due.lock();
            core.reap_signal.notify_all();
            let _closing = core.closing.lock();
            core.close_signal.notify_all();
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
        // Whoever compacts, frees space, sweeps or commits is let finish.
        let _compacting = core.compacting.lock();
        let _reaping = core.reaping.lock();
        let unswept = core.unswept.lock();
        let _figures = core.figures.lock();
        let buckets = core.buckets.close_all();
        if buckets.is_ok() && unswept.is_over() {
            // After all that it stands for. A failure costs the next opening a sweep.
            let _ = core.catalogue.put(&[key_layout::SWEPT], &[1]);
        }
        let catalogue = close_engine_store(&core.catalogue);
        *core.lock.lock() = None;
        buckets.and(Ok(catalogue?))
    }
}

/// Resources for one file store: so many handles and threads, however many buckets there are.
pub fn resource_options() -> ResourceOptions {
    ResourceOptions {
        block_cache_bytes: 16 << 20,
        recent_keys_bytes: 2 << 20,
        write_buffer_bytes: 128 << 20,
        file_handles_max: 128,
        ..ResourceOptions::default()
    }
}

impl FileStore {
    /// Makes a store in `dir`, which holds none, on resources of its own, and opens it.
    pub fn create(
        dir: impl AsRef<Path>,
        create: CreateOptions,
        options: OpenOptions,
    ) -> Result<FileStore> {
        let resources = own_resources(dir.as_ref())?;
        Self::create_with(dir, create, options, resources)
    }

    /// Makes a store in `dir` on shared resources, and opens it.
    pub fn create_with(
        dir: impl AsRef<Path>,
        create: CreateOptions,
        options: OpenOptions,
        resources: Arc<Resources>,
    ) -> Result<FileStore> {
        let dir = dir.as_ref();
        create.check()?;
        options.check()?;
        let lock = lock_directory(dir, &resources)?;
        if Superblock::exists(&*resources.fs, dir)? {
            let what = format!("{} holds a file store already", dir.display());
            return Err(Error::InvalidArgument(what));
        }
        let store = random()?;
        let reference_id = match create.reference_id {
            Some(given) => given,
            None => ReferenceId(random()?),
        };
        let superblock = Superblock {
            changes: 1,
            store,
            reference_id,
            chunk_bytes: create.chunk_bytes,
            bucket_cap_bytes: create.bucket_cap_bytes,
            catalogue_generation: 1,
            bucket_generations: vec![1; create.bucket_count],
            bucket_dirs: create.bucket_dirs,
        };
        // The catalogue first: a directory that says it is a store has one.
        let path = superblock.catalogue_dir(dir);
        Store::open_with(&path, catalogue_options(&options), resources.clone())?.close()?;
        // Those elsewhere now, so that a repair can tell one that isn't there from one without a bucket.
        for root in (0..superblock.bucket_dirs.len()).filter_map(|at| superblock.bucket_root(at)) {
            let made = resources.fs.create_dir_all(&root);
            made.map_err(|source| Error::io("create", &root, source))?;
        }
        superblock.write(&*resources.fs, dir)?;
        Self::open_locked(dir, superblock, options, resources, lock)
    }

    /// Opens the store in `dir` on resources of its own.
    pub fn open(dir: impl AsRef<Path>, options: OpenOptions) -> Result<FileStore> {
        let resources = own_resources(dir.as_ref())?;
        Self::open_with(dir, options, resources)
    }

    /// Opens the store in `dir` on shared resources.
    ///
    /// `NotAStore`: there is none. `CatalogueLost`: `repair` makes it anew. A bucket that is lost does
    /// not keep the store from being opened.
    pub fn open_with(
        dir: impl AsRef<Path>,
        options: OpenOptions,
        resources: Arc<Resources>,
    ) -> Result<FileStore> {
        let dir = dir.as_ref();
        options.check()?;
        if !Superblock::exists(&*resources.fs, dir)? {
            let what = "there is no STORE".to_owned();
            return Err(Error::NotAStore { path: dir.to_owned(), what });
        }
        let lock = lock_directory(dir, &resources)?;
        let superblock = Superblock::read(&*resources.fs, dir)?;
        Self::open_locked(dir, superblock, options, resources, lock)
    }

    /// Opens the store in `dir`, or makes one there.
    pub fn open_or_create(
        dir: impl AsRef<Path>,
        create: CreateOptions,
        options: OpenOptions,
        resources: Arc<Resources>,
    ) -> Result<FileStore> {
        match Superblock::exists(&*resources.fs, dir.as_ref())? {
            true => Self::open_with(dir, options, resources),
            false => Self::create_with(dir, create, options, resources),
        }
    }

    fn open_locked(
        dir: &Path,
        superblock: Superblock,
        options: OpenOptions,
        resources: Arc<Resources>,
        lock: Box<dyn Send + Sync>,
    ) -> Result<FileStore> {
        let store = Self::open_unlocked(dir, superblock, options, resources)?;
        *store.core().lock.lock() = Some(lock);
        Ok(store)
    }

    /// Opens the store in `dir`. Requires: the caller holds the lock of the directory.
    pub(crate) fn open_unlocked(
        dir: &Path,
        superblock: Superblock,
        options: OpenOptions,
        resources: Arc<Resources>,
    ) -> Result<FileStore> {
        let path = superblock.catalogue_dir(dir);
        let catalogue = open_catalogue(&path, &superblock, &options, &resources)?;
        // Before anything is changed that only this description leads to.
        let description_problems = superblock.put_in_step(&*resources.fs, dir)?;
        let (figures, unswept) = recover(&catalogue, &superblock)?;
        let has_quarantined = has_any(&catalogue, key_layout::QUARANTINED)?;
        let unknown = unknown_buckets(&catalogue, &superblock)?;
        let mut buckets =
            Buckets::new(dir.to_owned(), superblock.clone(), options.clone(), resources.clone());
        buckets.note_unsynced(unswept.buckets.iter().map(|(bucket, _)| *bucket));
        let core = Arc::new(Core {
            dir: dir.to_owned(),
            superblock,
            options,
            resources,
            catalogue,
            buckets,
            figures: Mutex::new(figures),
            pins: Mutex::default(),
            opening: u64::from_le_bytes(random()?),
            reaping: Mutex::new(()),
            compacting: Mutex::new(0),
            waiting_for_room: Arc::default(),
            given_up: Mutex::default(),
            unswept: Mutex::new(unswept),
            unknown: Mutex::new(unknown),
            reap_due: Mutex::new(true),
            reap_signal: Condvar::new(),
            closing: Mutex::new(()),
            close_signal: Condvar::new(),
            put_entries: Mutex::default(),
            is_closed: AtomicBool::new(false),
            has_quarantined: AtomicBool::new(has_quarantined),
            lock: Mutex::new(None),
        });
        let threads = Mutex::default();
        let handle = Arc::new(Handle { core: core.clone(), threads, description_problems });
        let runs: [fn(&Core); 2] = [reaper::run, compacting::run];
        for run in runs.into_iter().filter(|_| core.has_threads()) {
            let core = core.clone();
            let started = vfs::spawn("tally-files", Priority::Low, move || run(&core));
            let started = started.map_err(|error| Error::io("start a thread for", dir, error))?;
            handle.threads.lock().push(started);
        }
        Ok(FileStore { handle })
    }

    /// Syncs and lets the directory go. Later calls of any clone fail.
    pub fn close(&self) -> Result<()> {
        self.handle.close()
    }

    /// A writer of a file; nothing shows until it commits.
    pub fn writer(&self, name: &str, options: WriteOptions) -> Result<Writer> {
        Writer::new(self.core(), name, options)
    }

    /// Writes a file whose bytes are at hand.
    pub fn write(&self, name: &str, bytes: &[u8], options: WriteOptions) -> Result<Stat> {
        let size = Some(bytes.len() as u64);
        let mut writer = self.writer(name, WriteOptions { size, ..options })?;
        writer.write(bytes)?;
        writer.commit()
    }

    /// A reader of a file, if there is one of this name.
    pub fn reader(&self, name: &str, options: ReadOptions) -> Result<Option<Reader>> {
        Reader::new(self.core(), name, &options)
    }

    /// The bytes of a file, if there is one of this name.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(reader) = self.reader(name, ReadOptions::default())? else { return Ok(None) };
        let mut bytes = Vec::new();
        for chunk in reader {
            bytes.extend_from_slice(&chunk?);
        }
        Ok(Some(bytes))
    }

    /// What is known of a file, without reading it.
    pub fn stat(&self, name: &str) -> Result<Option<Stat>> {
        self.core().stat(name)
    }

    /// Unlinks a file, at the same cost whatever its size; whether there was one. Its space comes back
    /// by itself.
    pub fn unlink(&self, name: &str, options: UnlinkOptions) -> Result<bool> {
        let Ok(unlinked) = self.unlink_holding(name, options, holding_nothing)?;
        Ok(unlinked)
    }

    /// The same with what `hold` answers held while the name changes, as in [`Writer::commit_holding`].
    pub fn unlink_holding<G, E>(
        &self,
        name: &str,
        options: UnlinkOptions,
        hold: impl FnOnce() -> Result<G, E>,
    ) -> Result<Result<bool, E>> {
        self.core().unlink(name, &options, hold)
    }

    /// Gives a file another name, replacing what has it, in one step.
    pub fn rename(&self, from: &str, to: &str, options: CopyOptions) -> Result<Stat> {
        let Ok(stat) = self.rename_holding(from, to, options, holding_nothing)?;
        Ok(stat)
    }

    /// The same with what `hold` answers held while the names change, as in [`Writer::commit_holding`]. It may
    /// be asked again, after what it answered was dropped.
    pub fn rename_holding<G, E>(
        &self,
        from: &str,
        to: &str,
        options: CopyOptions,
        hold: impl Fn() -> Result<G, E>,
    ) -> Result<Result<Stat, E>> {
        self.core().give_name((from, to), &options, true, hold)
    }

    /// Has another name stand for the same bytes, which are not copied. Onto itself with attributes, it
    /// changes these.
    pub fn copy(&self, from: &str, to: &str, options: CopyOptions) -> Result<Stat> {
        let Ok(stat) = self.copy_holding(from, to, options, holding_nothing)?;
        Ok(stat)
    }

    /// The same with what `hold` answers held while the name changes, as in [`FileStore::rename_holding`].
    pub fn copy_holding<G, E>(
        &self,
        from: &str,
        to: &str,
        options: CopyOptions,
        hold: impl Fn() -> Result<G, E>,
    ) -> Result<Result<Stat, E>> {
        self.core().give_name((from, to), &options, false, hold)
    }

    /// A page of names, in byte order.
    pub fn list(&self, options: ListOptions) -> Result<Page> {
        self.core().list(&options)
    }

    /// What the store holds: exact, and from memory.
    pub fn totals(&self) -> Totals {
        self.core().figures.lock().totals(self.core().superblock.bucket_cap_bytes)
    }

    /// Reads files and checks every chunk and hash. What is damaged is reported, and refused from then
    /// on without being read. `progress` is called with the bytes done and the bytes in all.
    pub fn verify(
        &self,
        options: VerifyOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<VerifyReport> {
        let mut verification = self.verification(&options)?;
        while verification.step()? {
            let (done, total) = verification.progress();
            progress(done, total);
        }
        Ok(verification.report().clone())
    }

    /// The same, carried on by the caller: nothing is read until it takes a step.
    pub fn verification(&self, options: &VerifyOptions) -> Result<Verification> {
        Verification::new(self.core(), options)
    }

    /// Frees all space that is due, now, and sweeps the buckets if the store was not closed before it was
    /// opened. The background threads do both by themselves, if there are any.
    pub fn reap(&self) -> Result<Reaped> {
        let reaped = reaper::reap(self.core());
        // What fails in one bucket keeps no other from being swept.
        while sweep_step(self.core()) {}
        let compacted = compact_due(self.core());
        let reaped = reaped?;
        compacted.map(|()| reaped)
    }

    /// Waits until every change acknowledged so far is synced. What can't be is told once all else is.
    pub fn sync(&self) -> Result<()> {
        self.sync_except(&[])
    }

    /// Waits until what a name stands for is as durable as a write that names no durability is when it is
    /// acknowledged: for who finds what was written by another, whose sync may have failed or go on.
    pub fn settle(&self, name: &str) -> Result<()> {
        let core = self.core();
        core.check_open()?;
        let Some(record) = core.record(name)? else { return Ok(()) };
        core.finish(core.options.durability, &[&core.buckets.get(record.primary)?])
    }

    /// The same as `sync`, without telling of these buckets.
    pub(crate) fn sync_except(&self, untold: &[u8]) -> Result<()> {
        self.core().check_open()?;
        // The bytes before the names that stand for them. Names whose bytes can't be synced hold up no others:
        // at worst reading them is an error.
        let failed = self.core().buckets.sync_all();
        self.core().catalogue.sync()?;
        let told = failed.into_iter().find(|(bucket, _)| !untold.contains(bucket));
        told.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// What was wrong, when the store was opened, with the two copies of what describes it, and what became of it:
    /// a line for each copy. One that is missing, damaged, older or can't be read is written anew.
    pub fn description_problems(&self) -> &[String] {
        &self.handle.description_problems
    }

    /// The id that decides in which bucket a name falls.
    pub fn reference_id(&self) -> ReferenceId {
        self.core().superblock.reference_id
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.core().superblock.chunk_bytes
    }

    /// The home bucket of a name.
    pub fn bucket_of(&self, name: &str) -> u8 {
        let superblock = &self.core().superblock;
        superblock.reference_id.bucket_of(name, superblock.bucket_count())
    }

    /// Where a bucket is, or would be.
    pub fn bucket_path(&self, bucket: u8) -> std::path::PathBuf {
        self.core().buckets.path(bucket)
    }

    /// Number of buckets that are open.
    pub fn open_buckets(&self) -> usize {
        self.core().buckets.open_count()
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        &self.core().dir
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }
}

/// Opens the catalogue of an existing store: its own. One that doesn't say whose it is was made before they
/// did.
pub(crate) fn open_catalogue(
    path: &Path,
    superblock: &Superblock,
    options: &OpenOptions,
    resources: &Arc<Resources>,
) -> Result<Store> {
    let lost = |what: String| Error::CatalogueLost { path: path.to_owned(), what };
    let options = tallybook::Options { create_if_missing: false, ..catalogue_options(options) };
    let catalogue = open_engine_store(path, options, resources, &lost)?;
    let expected = superblock.catalogue_identity();
    let identity = catalogue.get(&[key_layout::IDENTITY]);
    match identity.map_err(|error| Error::of_store(error, lost))? {
        Some(value) if CatalogueIdentity::decode(&value) != Some(expected) => {
            Err(lost("it is another store's, or an older one".to_owned()))
        }
        _ => Ok(catalogue),
    }
}

/// The counters as they were, with numbers left out; what was being uploaded is to be freed. And the
/// buckets to be swept: all, unless the store was closed with nothing left to sweep.
fn recover(catalogue: &Store, superblock: &Superblock) -> Result<(Figures, Unswept)> {
    let totals = catalogue.get(&[key_layout::TOTALS])?;
    let buckets = scan(catalogue, key_layout::BUCKET)?;
    let numbered = buckets.iter().filter_map(|(key, value)| Some((*key.get(1)?, value.to_vec())));
    let mut figures = Figures::decode(totals.as_deref(), numbered, superblock.bucket_count())
        .ok_or_else(|| undecodable(catalogue.path(), "counter"))?;
    for (key, value) in scan(catalogue, key_layout::GARBAGE)? {
        key.get(1).into_iter().for_each(|&bucket| figures.recover_freed(bucket, &value));
    }
    figures.next_version += NUMBERS_SKIPPED;
    figures.next_content += NUMBERS_SKIPPED;
    let mut batch = WriteBatch::new();
    // What an upload left is freed however full the disk is.
    batch.use_reserve();
    for (upload, shares) in scan(catalogue, key_layout::UPLOAD)? {
        let shares = decode_known_shares(superblock, &shares)
            .ok_or_else(|| undecodable(catalogue.path(), "upload"))?;
        batch.put(key(key_layout::FREED, &upload[1..]), encode_shares(&shares))?;
        batch.delete(upload)?;
    }
    let unswept = match catalogue.head(&[key_layout::SWEPT])? {
        Some(_) => Unswept::default(),
        None => Unswept::all(figures.existing()),
    };
    batch.delete(vec![key_layout::SWEPT])?;
    batch.put(vec![key_layout::IDENTITY], superblock.catalogue_identity().encode())?;
    figures.write_to(&mut batch)?;
    catalogue.write(batch, Some(Durability::Sync))?;
    Ok((figures, unswept))
}

fn scan(catalogue: &Store, kind: u8) -> Result<Vec<(Bytes, Bytes)>> {
    let prefix = Some(Bytes::copy_from_slice(&[kind]));
    let range = catalogue.range(tallybook::ScanOptions { prefix, ..Default::default() })?;
    range.map(|entry| entry.map(|entry| (entry.key, entry.value)).map_err(Error::from)).collect()
}

fn has_any(catalogue: &Store, kind: u8) -> Result<bool> {
    let prefix = Some(Bytes::copy_from_slice(&[kind]));
    let mut heads =
        catalogue.range_heads(tallybook::ScanOptions { prefix, ..Default::default() })?;
    Ok(heads.next().transpose()?.is_some())
}

pub(crate) fn own_resources(dir: &Path) -> Result<Arc<Resources>> {
    Resources::new(resource_options()).map_err(|error| Error::io("start threads for", dir, error))
}

pub(crate) fn lock_directory(dir: &Path, resources: &Resources) -> Result<Box<dyn Send + Sync>> {
    let fs: &dyn FileSystem = &*resources.fs;
    fs.create_dir_all(dir).map_err(|source| Error::io("create", dir, source))?;
    let path = dir.join("LOCK");
    fs.lock(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::WouldBlock => {
            Error::Engine(tallybook::Error::Locked { path: dir.to_owned() })
        }
        _ => Error::io("lock", &path, source),
    })
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::io("read", Path::new("the system's random numbers"), std::io::Error::other(error))
    })?;
    Ok(bytes)
}
