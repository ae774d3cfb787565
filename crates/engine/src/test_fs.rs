//! A file system of plain byte vectors for unit tests of the file formats.
//!
//! It has just enough for writing, reading and damaging files; it models no crashes.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::vfs::{Advice, File, FileSystem, SegmentMap};

/// The files, and counts of what was done to them.
#[derive(Debug, Default)]
pub(crate) struct TestFs {
    files: Mutex<HashMap<PathBuf, Arc<TestFile>>>,
    opened: AtomicU64,
}

#[derive(Debug, Default)]
struct TestFile {
    bytes: Mutex<Vec<u8>>,
    cold: AtomicBool,
    damaged_reads: AtomicU64,
    /// Offset of a byte that can't be read, and one.
    unreadable: AtomicU64,
    failed_reads: AtomicU64,
    reads: AtomicU64,
}

impl TestFs {
    pub(crate) fn new() -> Arc<TestFs> {
        Arc::new(TestFs::default())
    }

    /// How often a file was opened for reading.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::SeqCst)
    }

    pub(crate) fn contents(&self, path: &Path) -> Vec<u8> {
        self.file(path).unwrap().bytes.lock().clone()
    }

    pub(crate) fn set_contents(&self, path: &Path, bytes: &[u8]) {
        *self.file(path).unwrap().bytes.lock() = bytes.to_vec();
    }

    /// While cold, reads that must not wait fail.
    pub(crate) fn set_cold(&self, path: &Path, cold: bool) {
        self.file(path).unwrap().cold.store(cold, Ordering::SeqCst);
    }

    /// The next `count` reads of the file answer with a flipped bit.
    pub(crate) fn damage_reads(&self, path: &Path, count: u64) {
        self.file(path).unwrap().damaged_reads.store(count, Ordering::SeqCst);
    }

    /// Reads that take in this byte of the file fail from now on.
    pub(crate) fn fail_reads_of(&self, path: &Path, offset: u64) {
        self.file(path).unwrap().unreadable.store(offset + 1, Ordering::SeqCst);
    }

    /// How many reads of the file failed for that.
    pub(crate) fn failed_reads(&self, path: &Path) -> u64 {
        self.file(path).unwrap().failed_reads.load(Ordering::SeqCst)
    }

    /// How many reads of the file there were.
    pub(crate) fn reads(&self, path: &Path) -> u64 {
        self.file(path).unwrap().reads.load(Ordering::SeqCst)
    }

    fn file(&self, path: &Path) -> io::Result<Arc<TestFile>> {
        self.files.lock().get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl FileSystem for TestFs {
    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn list(&self, _dir: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = Arc::new(TestFile::default());
        self.files.lock().insert(path.to_owned(), file.clone());
        Ok(file)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.file(path)?)
    }
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        Ok(self.file(path)?)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.files.lock().remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.files.lock().insert(to.to_owned(), file);
        Ok(())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.lock().remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn hard_link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }
    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn available_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.files.lock().contains_key(path))
    }
}

impl File for TestFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let unreadable = self.unreadable.load(Ordering::SeqCst);
        if (offset + 1..=offset + buf.len() as u64).contains(&unreadable) {
            self.failed_reads.fetch_add(1, Ordering::SeqCst);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let bytes = self.bytes.lock();
        let start = offset as usize;
        let from = bytes.get(start..start + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(from);
        let left = self.damaged_reads.load(Ordering::SeqCst);
        if left > 0 {
            self.damaged_reads.store(left - 1, Ordering::SeqCst);
            buf[0] ^= 1;
        }
        Ok(())
    }
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.cold.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes.lock();
        let end = offset as usize + buf.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(buf);
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.lock().resize(len as usize, 0);
        Ok(())
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn start_writeback(&self, _offset: u64, _len: u64) {}
    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) {}
    fn map(&self, len: u64) -> io::Result<Bytes> {
        let bytes = self.bytes.lock();
        let mapped = bytes.get(..len as usize).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Bytes::copy_from_slice(mapped))
    }
    fn map_segment(&self, _len: u64) -> io::Result<Arc<dyn SegmentMap>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
