//! Read handles that are kept open, so that a read costs one system call instead of three.
//!
//! Invariant: once `forget` has returned, no handle opened before it is handed out again. At most
//! `handles_max` handles are kept; those in use elsewhere stay open until they are dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, UnitWeighter};

use crate::vfs::{File, FileSystem};

/// Shards of the cache. Handles are looked up once per block read, so a few are enough.
const SHARDS: usize = 4;

/// Read handles by path, the least useful closed first.
#[derive(Debug)]
pub struct FileCache {
    fs: Arc<dyn FileSystem>,
    handles: Cache<PathBuf, Arc<dyn File>>,
}

impl FileCache {
    /// An empty cache that keeps at most `handles_max` handles open.
    pub fn new(fs: Arc<dyn FileSystem>, handles_max: usize) -> Self {
        // Each shard takes an equal share, rounded up; a multiple of the shards keeps the limit exact.
        let capacity =
            if handles_max < SHARDS { handles_max } else { handles_max / SHARDS * SHARDS };
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(capacity)
            .weight_capacity(capacity as u64)
            .build()
            .expect("both capacities are set");
        let handles = Cache::with_options(
            options,
            UnitWeighter,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        );
        FileCache { fs, handles }
    }

    /// A read handle on a file, opened if none is kept. Threads that ask for the same file at once
    /// share one opening.
    pub fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        // `get_or_insert_with` marks the path while it opens; `forget` removes the mark, and then
        // the handle is answered but not kept.
        self.handles.get_or_insert_with(path, || self.fs.open_read(path))
    }

    /// A read handle that is not kept, for a file that is mapped or read once.
    pub fn open_once(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.fs.open_read(path)
    }

    /// Lets go of the handle on a file that was removed, renamed or replaced.
    pub fn forget(&self, path: &Path) {
        self.handles.remove(path);
    }

    /// Lets go of the handles on everything in a directory.
    pub fn forget_directory(&self, dir: &Path) {
        self.handles.retain(|path, _| path.parent() != Some(dir));
    }

    /// Handles kept now.
    pub fn handle_count(&self) -> usize {
        self.handles.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fs::TestFs;

    #[test]
    fn a_handle_is_opened_once_until_it_is_forgotten() {
        let fs = TestFs::new();
        let path = Path::new("a");
        fs.create(path).unwrap();
        let cache = FileCache::new(fs.clone(), 8);
        cache.open(path).unwrap();
        cache.open(path).unwrap();
        assert_eq!(fs.opened(), 1);
        fs.remove(path).unwrap();
        assert!(cache.open(path).is_ok());
        cache.forget(path);
        assert_eq!(cache.open(path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn handles_stay_below_their_limit() {
        let fs = TestFs::new();
        for limit in [0, 1, 3, 10, 101] {
            let cache = FileCache::new(fs.clone(), limit);
            for number in 0..300 {
                let path = PathBuf::from(format!("{number}"));
                fs.create(&path).unwrap();
                cache.open(&path).unwrap();
                assert!(cache.handle_count() <= limit);
            }
        }
    }

    #[test]
    fn a_failed_open_is_not_remembered() {
        let fs = TestFs::new();
        let cache = FileCache::new(fs.clone(), 8);
        assert!(cache.open(Path::new("a")).is_err());
        fs.create(Path::new("a")).unwrap();
        assert!(cache.open(Path::new("a")).is_ok());
    }
}
