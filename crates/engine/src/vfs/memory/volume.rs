//! The state of one file system in memory, behind one lock, and the images taken of it.
//!
//! Invariant: whatever changes the state goes through `Volume::mutate`, which numbers it and tells
//! the observer before another change can happen, so that an image is of one exact moment. Reads of
//! contents take only the file's own lock, which is always taken after the state's.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use super::contents::{Contents, PAGE_BYTES};
use super::crash::{Chance, CrashMode};
use super::names::{FileNumber, Names, dir_of};

/// Told of every operation that changes the file system, right after it: the operation's ordinal
/// (the first is 1), what it was, and the moment, of which an image can be taken.
///
/// Runs while the file system is locked: it must not call the file system, nor drop its locks.
pub type Observer = Box<dyn FnMut(u64, &'static str, &Moment<'_>) + Send>;

/// The file system right after an operation.
pub struct Moment<'a> {
    state: &'a State,
    path: &'a Path,
}

impl Moment<'_> {
    /// The file system as it is.
    pub fn image(&self) -> MemoryImage {
        self.state.image()
    }

    /// The file or directory that the operation was for; a rename's or link's new name.
    pub fn path(&self) -> &Path {
        self.path
    }
}

/// One file: its bytes, whatever its names. Open files share it.
pub(super) struct Cell {
    number: FileNumber,
    contents: Mutex<Arc<Contents>>,
}

impl Cell {
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.contents.lock().read(buf, offset)
    }

    pub(super) fn len(&self) -> u64 {
        self.contents.lock().len()
    }

    /// Changes the contents. Requires: inside `Volume::mutate`.
    pub(super) fn update(&self, body: impl FnOnce(&mut Contents)) {
        // An image shares the contents: the first change after it copies the list of pages.
        body(Arc::make_mut(&mut self.contents.lock()));
    }
}

/// A file system as it was at one moment. Cheap to take and to keep: pages are shared with the file
/// system until that writes to them.
#[derive(Clone)]
pub struct MemoryImage {
    directories: BTreeSet<PathBuf>,
    names: Arc<Names>,
    contents: BTreeMap<FileNumber, Arc<Contents>>,
    capacity: Option<u64>,
}

impl std::fmt::Debug for MemoryImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryImage").field("files", &self.contents.len()).finish_non_exhaustive()
    }
}

impl MemoryImage {
    /// The state that a crash leaves; all of it is durable, and nothing is locked.
    pub(super) fn after_crash(&self, mode: CrashMode, seed: u64) -> State {
        // Each file has its own stream of choices, so that one file more doesn't change the rest.
        let names = self.names.after_crash(mode, &mut Chance::new(seed, u64::MAX));
        let mut state = State { directories: self.directories.clone(), ..State::default() };
        for &number in names.values() {
            state.cells.entry(number).or_insert_with(|| {
                let chance = &mut Chance::new(seed, number);
                let contents = self.contents[&number].after_crash(mode, chance);
                Arc::new(Cell { number, contents: Mutex::new(Arc::new(contents)) })
            });
        }
        state.file_number_last = state.cells.keys().next_back().copied().unwrap_or(0);
        state.names = Arc::new(Names::durable(names));
        state.capacity = self.capacity;
        state
    }
}

/// Everything there is to know of a file system.
#[derive(Default)]
pub(super) struct State {
    directories: BTreeSet<PathBuf>,
    names: Arc<Names>,
    cells: BTreeMap<FileNumber, Arc<Cell>>,
    file_number_last: FileNumber,
    pub(super) locks: BTreeSet<PathBuf>,
    pub(super) capacity: Option<u64>,
    pub(super) sync_disabled: bool,
    pub(super) observer: Option<Observer>,
    pub(super) operation_count: u64,
}

impl State {
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    pub(super) fn image(&self) -> MemoryImage {
        let contents = self.names.files().into_iter().map(|number| {
            let contents = self.cells[&number].contents.lock().clone();
            (number, contents)
        });
        MemoryImage {
            directories: self.directories.clone(),
            contents: contents.collect(),
            names: self.names.clone(),
            capacity: self.capacity,
        }
    }

    /// Whether a path is a directory: one that was made, a root, or the working directory.
    pub(super) fn is_dir(&self, path: &Path) -> bool {
        path.parent().is_none_or(|_| self.directories.contains(path))
    }

    pub(super) fn check_dir(&self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) {
            return Ok(());
        }
        let error = if self.names.get(path).is_some() { Errno::NOTDIR } else { Errno::NOENT };
        Err(error.into())
    }

    /// Whether neither a file nor a directory is in a directory.
    pub(super) fn is_dir_empty(&self, dir: &Path) -> bool {
        let is_inside = |other: &PathBuf| other.parent() == Some(dir);
        self.names.in_dir(dir).next().is_none() && !self.directories.iter().any(is_inside)
    }

    pub(super) fn make_dirs(&mut self, path: &Path) -> io::Result<()> {
        if path.ancestors().any(|dir| self.names.get(dir).is_some()) {
            return Err(Errno::NOTDIR.into());
        }
        let missing = path.ancestors().filter(|dir| dir.parent().is_some()).map(Path::to_owned);
        self.directories.extend(missing);
        Ok(())
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<Arc<Cell>> {
        if self.is_dir(path) {
            return Err(Errno::ISDIR.into());
        }
        let number = self.names.get(path).ok_or(Errno::NOENT)?;
        Ok(self.cells[&number].clone())
    }

    /// Makes an empty file.
    pub(super) fn create(&mut self, path: &Path) -> io::Result<Arc<Cell>> {
        self.check_new(path)?;
        if self.free_bytes() < footprint(0) {
            return Err(Errno::NOSPC.into());
        }
        self.file_number_last += 1;
        let number = self.file_number_last;
        let cell = Arc::new(Cell { number, contents: Mutex::default() });
        self.cells.insert(number, cell.clone());
        self.rename_files(vec![(path.to_owned(), Some(number))]);
        Ok(cell)
    }

    /// That a file can be made at a path.
    pub(super) fn check_new(&self, path: &Path) -> io::Result<()> {
        self.check_dir(&dir_of(path))?;
        if self.names.get(path).is_some() || self.is_dir(path) {
            return Err(Errno::EXIST.into());
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.file(from)?.number;
        self.check_dir(&dir_of(to))?;
        if self.is_dir(to) {
            return Err(Errno::ISDIR.into());
        }
        // POSIX: between two names of one file a rename does nothing.
        if self.names.get(to) != Some(file) {
            self.rename_files(vec![(from.to_owned(), None), (to.to_owned(), Some(file))]);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        self.rename_files(vec![(path.to_owned(), None)]);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.file(from)?.number;
        self.check_new(to)?;
        self.rename_files(vec![(to.to_owned(), Some(file))]);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.check_dir(dir)?;
        if !self.sync_disabled {
            Arc::make_mut(&mut self.names).sync_dir(dir);
            self.forget_unreachable();
        }
        Ok(())
    }

    /// Bytes that files may still grow by, all together.
    pub(super) fn free_bytes(&self) -> u64 {
        let Some(capacity) = self.capacity else {
            return u64::MAX;
        };
        let named = self.names.current_files();
        let in_use = |cell: &&Arc<Cell>| {
            // A removed file takes space while it is open, and no longer, synced or not.
            named.contains(&cell.number) || Arc::strong_count(cell) > 1
        };
        let used = self.cells.values().filter(in_use).map(|cell| footprint(cell.len()));
        capacity.saturating_sub(used.fold(0, u64::saturating_add))
    }

    /// The length up to which a file can grow towards `wanted`; `wanted` if there is space for it.
    pub(super) fn len_possible(&self, cell: &Cell, wanted: u64) -> u64 {
        let held = footprint(cell.len());
        if self.capacity.is_none() || footprint(wanted) <= held {
            return wanted;
        }
        let most = held.saturating_add(self.free_bytes()) / PAGE_BYTES as u64;
        wanted.min((most - 1).saturating_mul(PAGE_BYTES as u64))
    }

    fn rename_files(&mut self, outcome: Vec<(PathBuf, Option<FileNumber>)>) {
        Arc::make_mut(&mut self.names).change(outcome);
    }

    fn forget_unreachable(&mut self) {
        let reachable = self.names.files();
        self.cells.retain(|number, cell| reachable.contains(number) || Arc::strong_count(cell) > 1);
    }
}

/// Bytes that a file of a length takes on the disk: its pages, and one for itself.
fn footprint(len: u64) -> u64 {
    let pages = len.div_ceil(PAGE_BYTES as u64) + 1;
    pages.saturating_mul(PAGE_BYTES as u64)
}

/// The state with its lock.
#[derive(Default)]
pub(super) struct Volume {
    state: Mutex<State>,
}

impl Volume {
    pub(super) fn new(state: State) -> Self {
        Volume { state: Mutex::new(state) }
    }

    /// The state, for reading it and for what is no operation (locks, limits, the observer).
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Does an operation that changes the file system. One that fails changes nothing and doesn't
    /// count.
    pub(super) fn mutate<T>(
        &self,
        operation: &'static str,
        path: &Path,
        body: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state.lock();
        let done = body(&mut state)?;
        state.operation_count += 1;
        if let Some(mut observer) = state.observer.take() {
            let ordinal = state.operation_count;
            observer(ordinal, operation, &Moment { state: &state, path });
            state.observer = Some(observer);
        }
        Ok(done)
    }
}
