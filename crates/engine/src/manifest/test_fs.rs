//! Files in memory for the tests of this crate's lower layers: whole files in a map, and failures on
//! demand. It has no crashes, no locks and no maps.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::vfs::{Advice, File, FileSystem, SegmentMap};

type Contents = Arc<Mutex<Vec<u8>>>;

/// Files in memory. Clones are the same files.
#[derive(Debug, Clone, Default)]
pub(crate) struct TestFs {
    files: Arc<Mutex<BTreeMap<PathBuf, Contents>>>,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Debug, Default)]
struct Faults {
    /// Changing operations that still succeed; `None` for all.
    allowed: Option<u64>,
    full: bool,
    failures: u64,
}

#[derive(Debug)]
struct TestFile {
    contents: Contents,
    faults: Arc<Mutex<Faults>>,
}

impl Faults {
    /// Fails when it is time.
    fn change(&mut self) -> io::Result<()> {
        match &mut self.allowed {
            Some(0) => {
                self.failures += 1;
                Err(io::Error::other("failed on demand"))
            }
            Some(allowed) => {
                *allowed -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl TestFs {
    /// Makes a file of these bytes, replacing one.
    pub(crate) fn put(&self, path: &Path, bytes: &[u8]) {
        self.files.lock().insert(path.to_owned(), Arc::new(Mutex::new(bytes.to_vec())));
    }

    /// The bytes of a file.
    pub(crate) fn get(&self, path: &Path) -> Vec<u8> {
        self.files.lock()[path].lock().clone()
    }

    /// Lets this many changing operations succeed, and no more.
    pub(crate) fn fail_after(&self, allowed: u64) {
        self.faults.lock().allowed = Some(allowed);
    }

    /// Fails every write half-way for want of space.
    pub(crate) fn fill_disk(&self) {
        self.faults.lock().full = true;
    }

    /// Ends failures.
    pub(crate) fn heal(&self) {
        let mut faults = self.faults.lock();
        (faults.allowed, faults.full) = (None, false);
    }

    /// Operations that failed on demand so far.
    pub(crate) fn failures(&self) -> u64 {
        self.faults.lock().failures
    }

    fn file(&self, contents: Contents) -> Arc<dyn File> {
        Arc::new(TestFile { contents, faults: self.faults.clone() })
    }
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl FileSystem for TestFs {
    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        self.faults.lock().change()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let files = self.files.lock();
        let inside = files.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.faults.lock().change()?;
        if self.exists(path)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.put(path, b"");
        self.open(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let contents = self.files.lock().get(path).cloned();
        Ok(self.file(contents.ok_or(io::ErrorKind::NotFound)?))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.lock().change()?;
        let mut files = self.files.lock();
        let contents = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), contents);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faults.lock().change()?;
        self.files.lock().remove(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn hard_link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        unsupported()
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        self.faults.lock().change()
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        unsupported()
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
        Ok(self.contents.lock().len() as u64)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let contents = self.contents.lock();
        let from = contents.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let full = self.faults.lock().full;
        let failed = self.faults.lock().change();
        // A write that fails leaves half of itself behind.
        let part = if full || failed.is_err() { &buf[..buf.len() / 2] } else { buf };
        let mut contents = self.contents.lock();
        let end = offset as usize + part.len();
        if contents.len() < end {
            contents.resize(end, 0);
        }
        contents[offset as usize..end].copy_from_slice(part);
        failed?;
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.lock().change()?;
        self.contents.lock().resize(len as usize, 0);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.faults.lock().change()
    }

    fn start_writeback(&self, _offset: u64, _len: u64) {}

    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) {}

    fn map(&self, _len: u64) -> io::Result<Bytes> {
        unsupported()
    }

    fn map_segment(&self, _len: u64) -> io::Result<Arc<dyn SegmentMap>> {
        unsupported()
    }
}
