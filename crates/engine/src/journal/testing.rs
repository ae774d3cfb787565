//! A file system in memory for the journal's tests: it can flip bytes, fail writes and hold syncs.
//!
//! It loses nothing by itself; a test that wants a crash cuts or damages files.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::*;
use crate::batch::WriteBatch;
use crate::error::Result;
use crate::file_cache::FileCache;
use crate::head::Entry;
use crate::options::Reading;
use crate::range_tombstone::RangeTombstone;
use crate::salt::Salts;
use crate::stages::Recorder;
use crate::vfs::{Advice, File, FileSystem, SegmentMap};

#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Writes that still succeed; negative: all.
    pub(super) writes_left: AtomicI64,
    pub(super) fail_syncs: AtomicBool,
    pub(super) fail_cuts: AtomicBool,
    pub(super) no_space: AtomicBool,
    pub(super) syncs: AtomicU64,
    pub(super) bytes_read: AtomicU64,
    /// Of each file, what can't be read.
    pub(super) unreadable: Mutex<Range<u64>>,
    holding: Mutex<(bool, u64)>,
    changed: Condvar,
}

impl Faults {
    /// Makes syncs wait (true) or lets them go.
    pub(super) fn hold_syncs(&self, hold: bool) {
        self.holding.lock().0 = hold;
        self.changed.notify_all();
    }

    /// Waits until a sync is being held.
    pub(super) fn wait_for_held_sync(&self) {
        let mut holding = self.holding.lock();
        while holding.1 == 0 {
            self.changed.wait(&mut holding);
        }
    }

    fn pass_sync(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        let mut holding = self.holding.lock();
        holding.1 += 1;
        self.changed.notify_all();
        while holding.0 {
            self.changed.wait(&mut holding);
        }
        holding.1 -= 1;
        drop(holding);
        if self.fail_syncs.load(Ordering::SeqCst) {
            return Err(io::Error::other("injected sync failure"));
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct TestFile {
    data: Mutex<Vec<u8>>,
    faults: Arc<Faults>,
}

#[derive(Debug, Clone)]
struct Handle(Arc<TestFile>);

#[derive(Debug)]
struct TestMap {
    file: Arc<TestFile>,
    shared: Arc<()>,
}

struct Slice {
    bytes: Vec<u8>,
    _shared: Arc<()>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[derive(Debug, Default)]
pub(super) struct TestFs {
    files: Mutex<BTreeMap<PathBuf, Arc<TestFile>>>,
    pub(super) faults: Arc<Faults>,
}

impl TestFs {
    pub(super) fn new() -> Arc<TestFs> {
        let fs = TestFs::default();
        fs.faults.writes_left.store(-1, Ordering::SeqCst);
        Arc::new(fs)
    }

    pub(super) fn names(&self) -> Vec<String> {
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        self.files.lock().keys().map(name).collect()
    }

    /// A file system with the same files, unharmed by what is done to this one.
    pub(super) fn fork(&self) -> Arc<TestFs> {
        let fork = TestFs::new();
        for (path, file) in self.files.lock().iter() {
            fork.put(path, file.data.lock().clone());
        }
        fork
    }

    pub(super) fn bytes(&self, path: &Path) -> Vec<u8> {
        self.file(path).unwrap().data.lock().clone()
    }

    pub(super) fn put(&self, path: &Path, bytes: Vec<u8>) {
        let file = TestFile { data: Mutex::new(bytes), faults: self.faults.clone() };
        self.files.lock().insert(path.to_owned(), Arc::new(file));
    }

    pub(super) fn flip(&self, path: &Path, offset: u64) {
        self.file(path).unwrap().data.lock()[offset as usize] ^= 0x40;
    }

    pub(super) fn truncate(&self, path: &Path, len: u64) {
        self.file(path).unwrap().data.lock().truncate(len as usize);
    }

    fn file(&self, path: &Path) -> io::Result<Arc<TestFile>> {
        let files = self.files.lock();
        files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl FileSystem for TestFs {
    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn list(&self, _dir: &Path) -> io::Result<Vec<String>> {
        Ok(self.names())
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        if self.file(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.put(path, Vec::new());
        self.open(path)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Handle(self.file(path)?)))
    }
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.file(from)?;
        let mut files = self.files.lock();
        files.remove(from);
        files.insert(to.to_owned(), file);
        Ok(())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        self.files.lock().remove(path);
        Ok(())
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.file(from)?;
        self.files.lock().insert(to.to_owned(), file);
        Ok(())
    }
    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }
    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }
    fn available_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(if self.faults.no_space.load(Ordering::SeqCst) { 0 } else { u64::MAX })
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.file(path).is_ok())
    }
}

impl File for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.data.lock().len() as u64)
    }
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let unreadable = self.0.faults.unreadable.lock().clone();
        if offset < unreadable.end && offset + buf.len() as u64 > unreadable.start {
            return Err(io::Error::other("can't be read"));
        }
        let data = self.0.data.lock();
        let from = offset as usize;
        let bytes = data.get(from..from + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        self.0.faults.bytes_read.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(())
    }
    fn read_cached_at(&self, _buf: &mut [u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut data = self.0.data.lock();
        let left = self.0.faults.writes_left.load(Ordering::SeqCst);
        // A failing write tears: the first half arrives.
        let kept = if left == 0 { buf.len() / 2 } else { buf.len() };
        let end = offset as usize + kept;
        if data.len() < end {
            data.resize(end, 0);
        }
        data[offset as usize..end].copy_from_slice(&buf[..kept]);
        if left == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if left > 0 {
            self.0.faults.writes_left.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.0.faults.fail_cuts.load(Ordering::SeqCst) {
            return Err(io::Error::other("injected cut failure"));
        }
        self.0.data.lock().resize(len as usize, 0);
        Ok(())
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.0.faults.no_space.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.data.lock().resize(len as usize, 0);
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.faults.pass_sync()
    }
    fn start_writeback(&self, _offset: u64, _len: u64) {}
    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) {}
    fn map(&self, len: u64) -> io::Result<Bytes> {
        let data = self.0.data.lock();
        let bytes = data.get(..len as usize).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(Bytes::copy_from_slice(bytes))
    }
    fn map_segment(&self, len: u64) -> io::Result<Arc<dyn SegmentMap>> {
        assert!(self.0.data.lock().len() as u64 >= len, "a map beyond the file's end");
        Ok(Arc::new(TestMap { file: self.0.clone(), shared: Arc::new(()) }))
    }
}

impl SegmentMap for TestMap {
    fn populate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.data.lock()[offset as usize..(offset + len) as usize].fill(0);
        Ok(())
    }
    fn write_parts(&self, offset: u64, parts: &[&[u8]]) {
        let (from, bytes) = (offset as usize, parts.concat());
        self.file.data.lock()[from..from + bytes.len()].copy_from_slice(&bytes);
    }
    fn slice(&self, offset: u64, len: usize) -> Bytes {
        let from = offset as usize;
        let bytes = self.file.data.lock()[from..from + len].to_vec();
        Bytes::from_owner(Slice { bytes, _shared: self.shared.clone() })
    }
    fn release(&self, _offset: u64, _len: u64) {}
    fn is_shared(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }
}

/// A directory, and how its journal is written and read.
#[derive(Debug, Clone)]
pub(super) struct Bench {
    pub(super) fs: Arc<TestFs>,
    pub(super) files: Arc<JournalFiles>,
    pub(super) is_mapped: bool,
    pub(super) next_file_number: Arc<AtomicU64>,
}

/// First SeqNo and changes of each group.
pub(super) type Groups = Vec<(u64, Vec<OwnedChange>)>;

/// A [`Change`] with bytes of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OwnedChange {
    Entry { key: Bytes, entry: Entry },
    DeleteRange(RangeTombstone),
}

impl From<Change<'_>> for OwnedChange {
    fn from(change: Change<'_>) -> Self {
        let own = Bytes::copy_from_slice;
        match change {
            Change::Entry { key, entry } => {
                OwnedChange::Entry { key: own(key), entry: entry.to_entry() }
            }
            Change::DeleteRange { start, end, seqno } => {
                OwnedChange::DeleteRange(RangeTombstone { start: own(start), end: own(end), seqno })
            }
        }
    }
}

/// A group that was written, with its changes.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) segment: Arc<Segment>,
    pub(super) end: JournalPosition,
    pub(super) has_rotated: bool,
    pub(super) changes: std::vec::IntoIter<OwnedChange>,
}

/// Values of at least this many bytes are pointed at in these tests.
pub(super) const INLINE_BYTES_MAX: usize = 64;

pub(super) const SEGMENT_BYTES: u64 = 16 << 10;

impl Bench {
    pub(super) fn pread() -> Bench {
        Bench::new(TestFs::new(), false, 1)
    }

    pub(super) fn mapped() -> Bench {
        Bench::new(TestFs::new(), true, 1)
    }

    fn new(fs: Arc<TestFs>, is_mapped: bool, next_file_number: u64) -> Bench {
        let files = JournalFiles {
            fs: fs.clone(),
            dir: PathBuf::from("/store"),
            file_cache: Arc::new(FileCache::new(fs.clone(), 4)),
            reading: if is_mapped { Reading::Mapped } else { Reading::Pread },
            recorder: Arc::new(Recorder::new(0)),
        };
        let next_file_number = Arc::new(AtomicU64::new(next_file_number));
        Bench { fs, files: Arc::new(files), is_mapped, next_file_number }
    }

    /// The same files, in a process of their own.
    pub(super) fn restart(&self) -> Bench {
        Bench::new(self.fs.fork(), self.is_mapped, self.next_file_number.load(Ordering::SeqCst))
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        let number = |name: &String| match crate::file_name::parse(name) {
            Some(crate::file_name::FileKind::Segment(number)) => Some(number),
            _ => None,
        };
        self.fs.names().iter().filter_map(number).collect()
    }

    pub(super) fn path(&self, number: u64) -> PathBuf {
        crate::file_name::segment(&self.files.dir, number)
    }

    pub(super) fn journal(&self) -> TestJournal {
        self.journal_from(JournalPosition::default(), 1)
    }

    pub(super) fn journal_from(&self, end: JournalPosition, next_seqno: u64) -> TestJournal {
        self.journal_of(self.options(), end, next_seqno)
    }

    /// A new journal whose files are zeroed before they are written.
    pub(super) fn journal_zeroed_ahead(&self) -> TestJournal {
        let options = SegmentOptions { zero_ahead: true, ..self.options() };
        self.journal_of(options, JournalPosition::default(), 1)
    }

    pub(super) fn options(&self) -> SegmentOptions {
        SegmentOptions {
            is_mapped: self.is_mapped,
            zero_ahead: false,
            segment_bytes_min: SEGMENT_BYTES,
            segment_bytes_max: SEGMENT_BYTES,
            log_bytes: u64::MAX,
            reserve_bytes: 0,
        }
    }

    /// A pool whose salts are another opening's for each `next_seqno`.
    pub(super) fn pool(&self, options: SegmentOptions, next_seqno: u64) -> SegmentPool {
        let salts = Arc::new(Salts::new(1_000 + next_seqno));
        SegmentPool::new(self.files.clone(), options, self.next_file_number.clone(), salts)
    }

    fn journal_of(
        &self,
        options: SegmentOptions,
        end: JournalPosition,
        next_seqno: u64,
    ) -> TestJournal {
        let pool = Arc::new(self.pool(options, next_seqno));
        let sync = Arc::new(SyncState::new(end.lsn, &self.files.recorder));
        let writer = JournalWriter::new(pool.clone(), sync.clone(), end);
        TestJournal { pool, sync, writer, next_seqno }
    }

    pub(super) fn recover(&self) -> Result<(Groups, Recovered)> {
        self.recover_from(JournalPosition::default())
    }

    pub(super) fn recover_from(&self, from: JournalPosition) -> Result<(Groups, Recovered)> {
        let mut groups = Vec::new();
        let recovered =
            recover(&self.files, from, 0, &self.numbers(), &HashSet::new(), &mut |replayed| {
                groups.push((
                    replayed.first_seqno,
                    replayed.changes.map(OwnedChange::from).collect(),
                ));
                Ok(())
            })?;
        Ok((groups, recovered))
    }
}

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct TestJournal {
    pub(super) pool: Arc<SegmentPool>,
    pub(super) sync: Arc<SyncState>,
    pub(super) writer: JournalWriter,
    pub(super) next_seqno: u64,
}

impl TestJournal {
    pub(super) fn try_write(&mut self, batch: &WriteBatch) -> Result<Written> {
        let mut buffer = Vec::new();
        let mut group = PreparedGroup::new(&mut buffer, batch, INLINE_BYTES_MAX);
        let (seqno, now_ms) = (self.next_seqno, 500 + self.next_seqno);
        let Appended { end, values_at } = self.writer.append(&mut group, seqno, now_ms)?;
        let has_rotated = !self.writer.take_started().is_empty();
        let segment = self.writer.active().expect("it was appended to one").clone();
        self.next_seqno += u64::from(group.count());
        let changes = group.changes(values_at, seqno, now_ms).map(OwnedChange::from);
        let changes = changes.collect::<Vec<_>>().into_iter();
        Ok(Written { segment, end, has_rotated, changes })
    }

    pub(super) fn try_put(&mut self, key: &[u8], value: &[u8]) -> Result<Written> {
        let mut batch = WriteBatch::new();
        batch.put(key.to_vec(), value.to_vec())?;
        self.try_write(&batch)
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Written {
        self.try_put(key, value).unwrap()
    }

    pub(super) fn sync_and_mark(&mut self) {
        self.sync.sync_upto(u64::MAX).unwrap();
        self.writer.append_mark(self.next_seqno, 1).unwrap();
    }
}
