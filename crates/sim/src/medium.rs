//! What a store under trial stands on: files in memory with a clock that is moved by hand and no threads, so that
//! a run is determined by its seed; or the machine's disk, clock and threads.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tallybook::error::Result;
use tallybook::options::Options;
use tallybook::resources::{ResourceOptions, Resources};
use tallybook::store::Store;
use tallybook::vfs::{
    Clock, CrashMode, FileSystem, ManualClock, MemoryFileSystem, MemoryImage, SystemClock,
};
use tempfile::TempDir;

use crate::model::Survival;
use crate::random::Random;

/// Where the clock of a store in memory starts: some moment of 2027, in milliseconds.
const START_MS: u64 = 1_800_000_000_000;

/// What a store stands on.
#[derive(Debug)]
pub enum Medium {
    /// Files in memory.
    Memory(Memory),
    /// The machine's disk.
    Disk(Disk),
}

/// Files in memory, no threads.
#[derive(Debug)]
pub struct Memory {
    /// The files themselves.
    pub files: MemoryFileSystem,
    /// The file system as the store sees it: the files, or something that fails in front of them.
    pub seen: Arc<dyn FileSystem>,
    /// The clock.
    pub clock: Arc<ManualClock>,
    /// Caches and budgets.
    pub resources: ResourceOptions,
}

/// A temporary directory, removed with it.
#[derive(Debug)]
pub struct Disk {
    dir: Arc<TempDir>,
    clock: Arc<SystemClock>,
}

impl Memory {
    /// No files yet.
    pub fn new() -> Self {
        Memory::of(MemoryFileSystem::new(), START_MS)
    }

    /// These files, at some moment.
    pub fn of(files: MemoryFileSystem, now_ms: u64) -> Self {
        Memory {
            seen: Arc::new(files.clone()),
            files,
            clock: Arc::new(ManualClock::at_ms(now_ms)),
            resources: ResourceOptions::default(),
        }
    }

    /// Opens the store on it.
    pub fn open(&self, options: &Options) -> Result<Store> {
        self.open_at(STORE, options)
    }

    fn open_at(&self, name: &str, options: &Options) -> Result<Store> {
        let resources =
            Resources::inline(self.resources.clone(), self.seen.clone(), self.clock.clone());
        Store::open_with(memory_path(name), options.clone(), resources)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new()
    }
}

/// Name of the store's directory.
const STORE: &str = "store";

/// A directory in memory.
fn memory_path(name: &str) -> PathBuf {
    PathBuf::from("/").join(name)
}

/// The store's directory in memory.
pub fn store_path() -> PathBuf {
    memory_path(STORE)
}

/// What a crash leaves of an image: everything if the process was killed; if power was lost, by the seed nothing
/// unsynced or a random part of it.
pub fn crashed(image: &MemoryImage, survival: Survival, seed: u64) -> MemoryFileSystem {
    let mode = match survival {
        Survival::Kill => CrashMode::KeepAll,
        Survival::PowerLoss if Random::new(seed).chance(30) => CrashMode::LoseUnsynced,
        Survival::PowerLoss => CrashMode::Random,
    };
    image.crash(mode, seed)
}

impl Medium {
    /// Files in memory.
    pub fn memory() -> Self {
        Medium::Memory(Memory::new())
    }

    /// A new temporary directory.
    pub fn disk() -> std::io::Result<Self> {
        let dir = Arc::new(TempDir::with_prefix("tallybook-sim-")?);
        Ok(Medium::Disk(Disk { dir, clock: Arc::default() }))
    }

    /// Opens the store.
    pub fn open(&self, options: &Options) -> Result<Store> {
        self.open_at(STORE, options)
    }

    /// Opens another store beside it.
    pub fn open_at(&self, name: &str, options: &Options) -> Result<Store> {
        match self {
            Medium::Memory(memory) => memory.open_at(name, options),
            Medium::Disk(_) => Store::open(self.path(name), options.clone()),
        }
    }

    /// The path of a store.
    pub fn path(&self, name: &str) -> PathBuf {
        match self {
            Medium::Memory(_) => memory_path(name),
            Medium::Disk(disk) => disk.dir.path().join(name),
        }
    }

    /// The clock.
    pub fn now_ms(&self) -> u64 {
        match self {
            Medium::Memory(memory) => memory.clock.now_ms(),
            Medium::Disk(disk) => disk.clock.now_ms(),
        }
    }

    /// Moves the clock on; the machine's stays as it is.
    pub fn advance(&self, ms: u64) {
        if let Medium::Memory(memory) = self {
            memory.clock.advance(Duration::from_millis(ms));
        }
    }

    /// What a crash now leaves, and what sort of crash it came to be: the machine's disk can only lose the process.
    pub fn crash(&self, survival: Survival, seed: u64) -> (Survival, Medium) {
        match self {
            Medium::Memory(memory) => {
                let files = crashed(&memory.files.image(), survival, seed);
                let mut left = Memory::of(files, memory.clock.now_ms());
                left.resources = memory.resources.clone();
                (survival, Medium::Memory(left))
            }
            Medium::Disk(disk) => {
                let left = Disk { dir: disk.dir.clone(), clock: disk.clock.clone() };
                (Survival::Kill, Medium::Disk(left))
            }
        }
    }
}
