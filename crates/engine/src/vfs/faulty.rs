//! A file system that fails the operations it is told to fail, and otherwise is another one.
//!
//! Every fallible call, of the file system, its files and its segment maps, has an ordinal. The call
//! that a fault hits doesn't reach the file system below (but for half of a short write, and the writing
//! of a durable write, whose sync is what fails), so a failed sync leaves everything unsynced. Stores
//! through a segment map can't fail and aren't counted.

use std::fmt::{self, Debug};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::{Advice, File, FileSystem, SegmentMap};

mod fault;

pub use fault::{Fault, FaultError, FiredOperation, OperationClass};

use OperationClass::{Reads, Syncs, Writes};
use fault::Faults;

/// A file system over another, with faults. Clones share ordinals and faults.
#[derive(Debug, Clone)]
pub struct FaultyFileSystem {
    inner: Arc<dyn FileSystem>,
    faults: Arc<Faults>,
}

impl FaultyFileSystem {
    /// A file system that fails nothing yet.
    pub fn new(inner: Arc<dyn FileSystem>) -> Self {
        FaultyFileSystem { inner, faults: Arc::default() }
    }

    /// Fallible operations so far, failed ones included.
    pub fn operation_count(&self) -> u64 {
        self.faults.operation_count()
    }

    /// Arms a fault for the first operation that matches it and has this ordinal or a later one. The
    /// next operation's ordinal is `operation_count() + 1`. Of several that are due, the one armed
    /// first fires.
    pub fn fail_at(&self, ordinal: u64, fault: Fault) {
        self.faults.arm(ordinal, fault);
    }

    /// Disarms all faults. Ordinals and counts go on.
    pub fn clear(&self) {
        self.faults.disarm();
    }

    /// Operations that failed by a fault so far.
    pub fn fired(&self) -> u64 {
        self.faults.fired()
    }

    /// The last operation that failed by a fault, for messages.
    pub fn last_fired(&self) -> Option<FiredOperation> {
        self.faults.last_fired()
    }

    fn file(&self, inner: Arc<dyn File>, path: &Path) -> Arc<dyn File> {
        let target = Target { faults: self.faults.clone(), path: path.into() };
        Arc::new(FaultyFile { inner, target })
    }
}

impl FileSystem for FaultyFileSystem {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.faults.check(Writes, "create_dir_all", path)?;
        self.inner.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.faults.check(Reads, "list", dir)?;
        self.inner.list(dir)
    }

    fn is_dir_empty(&self, dir: &Path) -> io::Result<bool> {
        self.faults.check(Reads, "is_dir_empty", dir)?;
        self.inner.is_dir_empty(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.faults.check(Writes, "create", path)?;
        Ok(self.file(self.inner.create(path)?, path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.faults.check(Reads, "open", path)?;
        Ok(self.file(self.inner.open(path)?, path))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.faults.check(Reads, "open_read", path)?;
        Ok(self.file(self.inner.open_read(path)?, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.check(Writes, "rename", to)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faults.check(Writes, "remove", path)?;
        self.inner.remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.check(Writes, "hard_link", to)?;
        self.inner.hard_link(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.faults.check(Syncs, "sync_dir", dir)?;
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.faults.check(Writes, "lock", path)?;
        self.inner.lock(path)
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.faults.check(Reads, "lock_existing", path)?;
        self.inner.lock_existing(path)
    }

    fn available_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.faults.check(Reads, "available_bytes", dir)?;
        self.inner.available_bytes(dir)
    }

    fn overwrites_in_place(&self, dir: &Path) -> bool {
        self.inner.overwrites_in_place(dir)
    }

    fn cached_bytes_max(&self) -> u64 {
        self.inner.cached_bytes_max()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.faults.check(Reads, "exists", path)?;
        self.inner.exists(path)
    }
}

/// What the operations of an open file are counted and failed by.
#[derive(Clone)]
struct Target {
    faults: Arc<Faults>,
    path: Arc<Path>,
}

impl Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.path, f)
    }
}

impl Target {
    fn check(&self, class: OperationClass, operation: &'static str) -> io::Result<()> {
        self.faults.check(class, operation, &self.path)
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn File>,
    target: Target,
}

impl File for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.target.check(Reads, "len")?;
        self.inner.len()
    }

    fn read_once_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.target.check(Reads, "read_once_at")?;
        self.inner.read_once_at(buf, offset)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.target.check(Reads, "read_exact_at")?;
        self.inner.read_exact_at(buf, offset)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.target.check(Reads, "read_cached_at")?;
        self.inner.read_cached_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let Target { faults, path } = &self.target;
        match faults.count(Writes, "write_all_at", path) {
            None => self.inner.write_all_at(buf, offset),
            Some(fault) => {
                if fault.short_write {
                    self.inner.write_all_at(&buf[..buf.len() / 2], offset)?;
                }
                Err(fault.error.into())
            }
        }
    }

    fn write_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let Err(error) = self.target.check(Syncs, "sync_range") else {
            return self.inner.write_durably_at(buf, offset);
        };
        self.inner.write_all_at(buf, offset)?;
        Err(error)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.target.check(Writes, "set_len")?;
        self.inner.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.target.check(Writes, "allocate")?;
        self.inner.allocate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.target.check(Syncs, "sync_data")?;
        self.inner.sync_data()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.inner.start_writeback(offset, len);
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) {
        self.inner.advise(advice, offset, len);
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        self.target.check(Reads, "map")?;
        self.inner.map(len)
    }

    fn map_segment(&self, len: u64) -> io::Result<Arc<dyn SegmentMap>> {
        self.target.check(Writes, "map_segment")?;
        let inner = self.inner.map_segment(len)?;
        Ok(Arc::new(FaultySegmentMap { inner, target: self.target.clone() }))
    }
}

#[derive(Debug)]
struct FaultySegmentMap {
    inner: Arc<dyn SegmentMap>,
    target: Target,
}

impl SegmentMap for FaultySegmentMap {
    fn populate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.target.check(Writes, "populate")?;
        self.inner.populate(offset, len)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.target.check(Writes, "write_zeros")?;
        self.inner.write_zeros(offset, len)
    }

    fn is_resident(&self, offset: u64, len: u64) -> bool {
        self.inner.is_resident(offset, len)
    }

    fn write_parts(&self, offset: u64, parts: &[&[u8]]) {
        self.inner.write_parts(offset, parts);
    }

    fn slice(&self, offset: u64, len: usize) -> Bytes {
        self.inner.slice(offset, len)
    }

    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.inner.lend(offset, len)
    }

    fn release(&self, offset: u64, len: u64) {
        self.inner.release(offset, len);
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::vfs::{CrashMode, MemoryFileSystem};

    const EIO: i32 = libc::EIO;

    fn faulty() -> FaultyFileSystem {
        FaultyFileSystem::new(Arc::new(MemoryFileSystem::new()))
    }

    fn errno(result: io::Result<impl Sized>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    /// Every fallible operation once; which of them failed with `EIO`, by place.
    fn all_operations(fs: &FaultyFileSystem, file: &dyn File, map: &dyn SegmentMap) -> Vec<usize> {
        let (root, a, b) = (Path::new("/"), Path::new("/a"), Path::new("/b"));
        let failed = [
            errno(fs.create_dir_all(Path::new("/dir"))),
            errno(fs.list(root)),
            errno(fs.create(a)),
            errno(fs.open(Path::new("/file"))),
            errno(fs.open_read(Path::new("/file"))),
            errno(fs.hard_link(Path::new("/file"), b)),
            errno(fs.rename(b, Path::new("/c"))),
            errno(fs.remove(Path::new("/spare"))),
            errno(fs.sync_dir(root)),
            errno(fs.lock(Path::new("/LOCK"))),
            errno(fs.available_bytes(root)),
            errno(fs.exists(a)),
            errno(file.len()),
            errno(file.is_empty()),
            errno(file.read_exact_at(&mut [0; 4], 0)),
            errno(file.read_cached_at(&mut [0; 4], 0)),
            errno(file.write_all_at(b"abcd", 0)),
            errno(file.write_durably_at(b"abcd", 0)),
            errno(file.set_len(8_192)),
            errno(file.allocate(8_192)),
            errno(file.sync_data()),
            errno(file.map(4)),
            errno(file.map_segment(4_096)),
            errno(map.write_zeros(4_096, 4_096)),
            errno(map.populate(0, 4_096)),
        ];
        (0..failed.len()).filter(|&place| failed[place] == Some(EIO)).collect()
    }

    const OPERATIONS: u64 = 25;

    fn prepared() -> (FaultyFileSystem, Arc<dyn File>, Arc<dyn SegmentMap>) {
        let fs = faulty();
        let file = fs.create(Path::new("/file")).unwrap();
        fs.create(Path::new("/spare")).unwrap();
        file.allocate(8_192).unwrap();
        file.sync_data().unwrap();
        let map = file.map_segment(8_192).unwrap();
        (fs, file, map)
    }

    #[test]
    fn each_fallible_operation_fails_at_its_ordinal_alone() {
        for place in 0..OPERATIONS {
            let (fs, file, map) = prepared();
            let start = fs.operation_count();
            fs.fail_at(start + 1 + place, Fault::errno(EIO));
            assert_eq!(all_operations(&fs, &*file, &*map), [place as usize]);
            assert_eq!(fs.operation_count() - start, OPERATIONS);
            assert_eq!(fs.fired(), 1);
            assert_eq!(fs.last_fired().unwrap().ordinal, start + 1 + place);
        }
    }

    #[test]
    fn a_sticky_fault_of_a_class_hits_that_class_until_it_is_cleared() {
        for (class, places) in [
            (OperationClass::Any, (0..OPERATIONS as usize).collect::<Vec<_>>()),
            (Reads, vec![1, 3, 4, 10, 11, 12, 13, 14, 15, 21]),
            (Writes, vec![0, 2, 5, 6, 7, 9, 16, 18, 19, 22, 23, 24]),
            (Syncs, vec![8, 17, 20]),
        ] {
            let (fs, file, map) = prepared();
            fs.fail_at(1, Fault::errno(EIO).sticky().class(class));
            assert_eq!(all_operations(&fs, &*file, &*map), places, "{class:?}");
            assert_eq!(fs.fired(), places.len() as u64);
            fs.clear();
            assert_eq!(all_operations(&fs, &*file, &*map), [] as [usize; 0]);
        }
    }

    #[test]
    fn a_fault_waits_for_the_first_operation_that_matches() {
        let (fs, file, _) = prepared();
        let fault = Fault::kind(io::ErrorKind::StorageFull);
        fs.fail_at(
            1,
            fault.only(|operation, path| operation == "set_len" && path == Path::new("/file")),
        );
        file.write_all_at(b"fine", 0).unwrap();
        fs.open(Path::new("/spare")).unwrap().set_len(9).unwrap();
        let error = file.set_len(9).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let fired = fs.last_fired().unwrap();
        assert_eq!((fired.operation, fired.path), ("set_len", PathBuf::from("/file")));
        assert_eq!(fired.ordinal, fs.operation_count());
        file.set_len(9).unwrap();
        assert_eq!(fs.fired(), 1);
    }

    #[test]
    fn a_delayed_operation_succeeds_later() {
        let (fs, file, _) = prepared();
        let delay = std::time::Duration::from_millis(20);
        fs.fail_at(1, Fault::delay(delay).class(Writes));
        let started = std::time::Instant::now();
        file.write_all_at(b"late", 0).unwrap();
        assert!(started.elapsed() >= delay);
        assert_eq!((fs.fired(), &file.map(4).unwrap()[..]), (1, &b"late"[..]));
    }

    #[test]
    fn a_short_write_leaves_its_first_half() {
        let fs = faulty();
        let file = fs.create(Path::new("/file")).unwrap();
        fs.fail_at(fs.operation_count() + 1, Fault::errno(libc::ENOSPC).short_write());
        let error = file.write_all_at(b"halves", 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.map(file.len().unwrap()).unwrap(), "hal");
    }

    #[test]
    fn a_failed_sync_makes_nothing_durable() {
        let memory = MemoryFileSystem::new();
        let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
        let file = fs.create(Path::new("/file")).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        file.write_all_at(b"bytes", 0).unwrap();
        fs.fail_at(1, Fault::errno(EIO).class(Syncs));
        assert_eq!(errno(file.sync_data()), Some(EIO));
        let left = memory.image().crash(CrashMode::LoseUnsynced, 0);
        assert_eq!(left.open(Path::new("/file")).unwrap().len().unwrap(), 0);
    }
}
