//! Files that no live version names, and when they go.
//!
//! Everything that reads a file holds its [`FileGuard`]. When the last holder of a guard that was
//! marked obsolete lets go, the path joins the [`ObsoleteQueue`]; a background thread drains it.
//! Invariant: a file is removed only after its last reader let go, and never on a reader's thread.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::vfs::FileSystem;

/// Keeps a file on disk while anybody holds it.
#[derive(Debug)]
pub struct FileGuard {
    path: PathBuf,
    obsolete: AtomicBool,
    queue: Arc<ObsoleteQueue>,
}

impl FileGuard {
    /// A guard of the file at `path`, which stays until it is marked obsolete.
    pub fn new(path: PathBuf, queue: Arc<ObsoleteQueue>) -> Arc<FileGuard> {
        Arc::new(FileGuard { path, obsolete: AtomicBool::new(false), queue })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the file go once nobody holds the guard. Requires: no durable state names the file.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// Whether the file goes once nobody holds the guard.
    pub fn is_obsolete(&self) -> bool {
        self.obsolete.load(Ordering::Acquire)
    }
}

impl Drop for FileGuard {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.queue.push(std::mem::take(&mut self.path));
        }
    }
}

/// Files to remove.
#[derive(Debug, Default)]
pub struct ObsoleteQueue {
    paths: Mutex<Vec<PathBuf>>,
    failures: AtomicU64,
}

impl ObsoleteQueue {
    /// An empty queue.
    pub fn new() -> Arc<ObsoleteQueue> {
        Arc::default()
    }

    /// Adds a file that nobody reads any more.
    pub fn push(&self, path: PathBuf) {
        self.paths.lock().push(path);
    }

    /// Files that wait.
    pub fn len(&self) -> usize {
        self.paths.lock().len()
    }

    /// Whether no file waits.
    pub fn is_empty(&self) -> bool {
        self.paths.lock().is_empty()
    }

    /// Removals that failed so far; each was kept for another try.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Removes the files that wait and answers how many went. `forget` is told each path first, so
    /// that caches of handles and blocks let go of it. A file that can't be removed stays queued.
    pub fn drain(&self, fs: &dyn FileSystem, forget: &dyn Fn(&Path)) -> usize {
        // The lock is not held over the removals: readers push here when they drop a guard.
        let paths = std::mem::take(&mut *self.paths.lock());
        let mut removed = 0;
        for path in paths {
            forget(&path);
            match fs.remove(&path) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => removed += 1,
                Err(_) => {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    self.push(path);
                }
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::vfs::faulty::Fault;
    use crate::vfs::{FaultyFileSystem, MemoryFileSystem};

    fn file() -> (MemoryFileSystem, PathBuf) {
        let fs = MemoryFileSystem::new();
        fs.create_dir_all(Path::new("/d")).unwrap();
        let path = PathBuf::from("/d/000013.sst");
        fs.create(&path).unwrap();
        (fs, path)
    }

    #[test]
    fn a_file_goes_when_its_last_reader_lets_go() {
        let (fs, path) = file();
        let queue = ObsoleteQueue::new();
        let guard = FileGuard::new(path.clone(), queue.clone());
        let reader = guard.clone();
        guard.mark_obsolete();
        drop(guard);
        assert_eq!(queue.drain(&fs, &|_| ()), 0);
        assert!(fs.exists(&path).unwrap());
        drop(reader);
        assert!(fs.exists(&path).unwrap(), "a reader's thread removes nothing");
        let forgotten = RefCell::new(Vec::new());
        assert_eq!(queue.drain(&fs, &|path| forgotten.borrow_mut().push(path.to_owned())), 1);
        assert!(!fs.exists(&path).unwrap());
        assert_eq!(*forgotten.borrow(), [path]);
    }

    #[test]
    fn a_file_in_use_is_not_queued() {
        let queue = ObsoleteQueue::new();
        drop(FileGuard::new("d/000013.sst".into(), queue.clone()));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_failed_removal_is_tried_again() {
        let (memory, path) = file();
        let fs = FaultyFileSystem::new(Arc::new(memory));
        let queue = ObsoleteQueue::new();
        queue.push(path.clone());
        fs.fail_at(fs.operation_count() + 1, Fault::errno(5).sticky());
        assert_eq!(queue.drain(&fs, &|_| ()), 0);
        assert_eq!((queue.len(), queue.failures()), (1, 1));
        fs.clear();
        assert_eq!(queue.drain(&fs, &|_| ()), 1);
        assert_eq!((queue.len(), queue.failures()), (0, 1));
        queue.push(path);
        assert_eq!(queue.drain(&fs, &|_| ()), 1, "a file that is gone already counts as removed");
    }
}
