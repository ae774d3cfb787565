//! A file system in memory that can be cloned as a crash would leave it.
//!
//! It models durability as Linux promises it and no better: contents (page by page) and length are
//! durable after `sync_data`, names after `sync_dir` of their directory, directories at once. Every
//! change has an ordinal and can be observed, so that a test can crash after each one. With one
//! thread, everything is determined by the calls and the seed.
//!
//! Not modelled: a failed sync (see `faulty`), and pages written back before they are synced and
//! changed again after, of which only the last contents can survive.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{File, FileSystem};

mod crash;
mod contents;
mod names;
mod volume;
mod file;
#[cfg(test)]
mod tests;

pub use crash::CrashMode;
pub use volume::{MemoryImage, Moment, Observer};

use file::MemoryFile;
use volume::Volume;

/// What `available_bytes` answers when there is no capacity limit.
const UNLIMITED_BYTES: u64 = 1 << 40;

/// A tree of files in memory. Clones are handles on the same tree.
#[derive(Clone, Default)]
pub struct MemoryFileSystem {
    volume: Arc<Volume>,
}

impl std::fmt::Debug for MemoryFileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryFileSystem").finish_non_exhaustive()
    }
}

impl MemoryImage {
    /// A new file system as power loss (or a killed process, see [`CrashMode::KeepAll`]) at the
    /// moment of the image could leave it. What it holds is durable. Locks, the observer and
    /// `sync_disabled` are not carried over; the capacity is.
    pub fn crash(&self, mode: CrashMode, seed: u64) -> MemoryFileSystem {
        MemoryFileSystem { volume: Arc::new(Volume::new(self.after_crash(mode, seed))) }
    }
}

impl MemoryFileSystem {
    /// An empty file system: its roots exist, nothing else.
    pub fn new() -> Self {
        Self::default()
    }

    /// The file system as it is now. Not for observers, which have [`Moment::image`].
    pub fn image(&self) -> MemoryImage {
        self.volume.state().image()
    }

    /// Operations that changed something so far: `create` (also of a lock file), `write_all_at`,
    /// `map_write` (a store through a segment map), `set_len`, `allocate`, `sync_data`, `sync_range`
    /// (what a `write_durably_at` does after its write), `sync_dir`, `rename`, `remove`, `hard_link`.
    /// Those that failed don't count, except that a `write_all_at` that filled the disk counts if it
    /// wrote a part.
    pub fn operation_count(&self) -> u64 {
        self.volume.state().operation_count
    }

    /// Sets or ends the observer of operations. See [`Observer`] for what it must not do.
    pub fn set_observer(&self, observer: Option<Observer>) {
        // The old one is dropped after the lock: it may own what locks it.
        let _old = std::mem::replace(&mut self.volume.state().observer, observer);
    }

    /// While on, syncs answer `Ok` and make nothing durable: shows that a crash test would notice.
    pub fn sync_disabled(&self, on: bool) {
        self.volume.state().sync_disabled = on;
    }

    /// Limits the disk. Each file takes its length in whole 4 KiB pages and one page for itself, for
    /// as long as it has a name or is open; growth beyond the limit is `StorageFull`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.volume.state().capacity = bytes;
    }

    fn open_file(&self, path: &Path, writable: bool) -> io::Result<Arc<dyn File>> {
        let cell = self.volume.state().file(path)?;
        let (volume, path) = (self.volume.clone(), path.to_owned());
        Ok(Arc::new(MemoryFile { volume, cell, path, writable }))
    }
}

impl FileSystem for MemoryFileSystem {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.volume.state().make_dirs(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.volume.state();
        state.check_dir(dir)?;
        let names = state.names().in_dir(dir);
        Ok(names.filter_map(|name| Some(name.file_name()?.to_str()?.to_owned())).collect())
    }

    fn is_dir_empty(&self, dir: &Path) -> io::Result<bool> {
        let state = self.volume.state();
        state.check_dir(dir)?;
        Ok(state.is_dir_empty(dir))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let cell = self.volume.mutate("create", path, |state| state.create(path))?;
        let (volume, path) = (self.volume.clone(), path.to_owned());
        Ok(Arc::new(MemoryFile { volume, cell, path, writable: true }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open_file(path, true)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open_file(path, false)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.volume.mutate("rename", to, |state| state.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.volume.mutate("remove", path, |state| state.remove(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.volume.mutate("hard_link", to, |state| state.link(from, to))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.volume.mutate("sync_dir", dir, |state| state.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        match self.volume.mutate("create", path, |state| state.create(path)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.lock_existing(path)
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.volume.state();
        if state.names().get(path).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !state.locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(LockGuard { volume: self.volume.clone(), path: path.to_owned() }))
    }

    fn available_bytes(&self, dir: &Path) -> io::Result<u64> {
        let state = self.volume.state();
        state.check_dir(dir)?;
        Ok(state.free_bytes().min(UNLIMITED_BYTES))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.volume.state();
        Ok(state.is_dir(path) || state.names().get(path).is_some())
    }
}

/// A held lock.
struct LockGuard {
    volume: Arc<Volume>,
    path: PathBuf,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.volume.state().locks.remove(&self.path);
    }
}
