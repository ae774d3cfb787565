//! One file of the journal, shared by the writer and every reader of its values.
//!
//! Invariants: bytes below `end` are never written again while the segment lives; no value leaves
//! here without its checksum having been compared. How records are framed is not known here.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::RwLock;

use super::backed::BackedMap;
use super::record::RECORD_HEADER_BYTES;
use super::segment_header::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentType};
use crate::checksum;
use crate::error::{Error, Result};
use crate::fault_points::{Bug, is_planted};
use crate::file_cache::FileCache;
use crate::file_name;
use crate::options::Reading;
use crate::stages::Recorder;
use crate::vfs::handles::{Handles, handles_of};
use crate::vfs::prefetch::{prefetch_front, touch};
use crate::vfs::{Advice, File, FileSystem};

/// Bytes of the smallest page that the system reads.
const PAGE_BYTES: u64 = 4 << 10;

/// Of a value that is read now so many lines are waited for at once.
const TOUCHED_BYTES: usize = 4 << 10;

/// Once this part of a segment is used, as a divisor, there should be a successor.
const SUCCESSOR_SHARE: u64 = 2;

/// Where the journal's files are and how they are read.
#[derive(Debug)]
pub struct JournalFiles {
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// The store's directory.
    pub dir: PathBuf,
    /// Read handles of closed segments.
    pub file_cache: Arc<FileCache>,
    /// How values are read.
    pub reading: Reading,
    /// The store's books.
    pub recorder: Arc<Recorder>,
}

/// The map that a segment's values are read from. What is asked of it lies below the segment's end.
enum Mapped<'a> {
    /// The map it was written through.
    Written(&'a BackedMap),
    /// A map of all that was ever written.
    Sealed(&'a Handles<Bytes>),
}

impl<'a> Mapped<'a> {
    fn slice(self, offset: u64, len: u32) -> Bytes {
        match self {
            Mapped::Written(map) => map.slice(offset, len as usize),
            Mapped::Sealed(map) => map.own().slice(offset as usize..offset as usize + len as usize),
        }
    }

    fn lend(self, offset: u64, len: u32) -> Option<&'a [u8]> {
        match self {
            Mapped::Written(map) => map.lend(offset, len as usize),
            Mapped::Sealed(map) => {
                Some(&map.own()[offset as usize..offset as usize + len as usize])
            }
        }
    }
}

/// One file of the journal.
#[derive(Debug)]
pub struct Segment {
    files: Arc<JournalFiles>,
    header: SegmentHeader,
    path: PathBuf,
    /// Bytes of the file while it is written.
    capacity: u64,
    /// Offset behind the last complete record.
    end: AtomicU64,
    is_sealed: AtomicBool,
    /// Somebody was told that there should be a successor.
    is_successor_asked: AtomicBool,
    /// A value in it is, or was, pointed at.
    holds_values: AtomicBool,
    /// The file was shortened below `capacity`.
    is_cut: AtomicBool,
    /// The file may have a second name, in a checkpoint, and must not be written again.
    may_be_linked: AtomicBool,
    /// The map it was written through.
    map: Option<Arc<BackedMap>>,
    /// A map made for reading once the segment was sealed.
    sealed_map: OnceLock<Handles<Bytes>>,
    /// Held while bytes are unsynced, so that the system reports an error to this handle and to no
    /// later one, and after the file has lost its name.
    handle: RwLock<Option<Arc<dyn File>>>,
}

impl Segment {
    /// A segment that is about to be written.
    pub(super) fn active(
        files: Arc<JournalFiles>,
        header: SegmentHeader,
        capacity: u64,
        map: Option<Arc<BackedMap>>,
        file: Arc<dyn File>,
    ) -> Segment {
        let path = file_name::segment(&files.dir, header.number);
        Segment {
            files,
            header,
            path,
            capacity,
            end: AtomicU64::new(SEGMENT_HEADER_BYTES),
            is_sealed: AtomicBool::new(false),
            is_successor_asked: AtomicBool::new(false),
            holds_values: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            may_be_linked: AtomicBool::new(false),
            map,
            sealed_map: OnceLock::new(),
            handle: RwLock::new(Some(file)),
        }
    }

    /// A segment that will not be written again, whose records end at `end`.
    pub(super) fn sealed(
        files: Arc<JournalFiles>,
        header: SegmentHeader,
        capacity: u64,
        end: u64,
    ) -> Segment {
        let path = file_name::segment(&files.dir, header.number);
        Segment {
            files,
            header,
            path,
            capacity,
            end: AtomicU64::new(end),
            is_sealed: AtomicBool::new(true),
            is_successor_asked: AtomicBool::new(true),
            holds_values: AtomicBool::new(true),
            is_cut: AtomicBool::new(false),
            // Only of a file that was made since the store was opened it is known that it has one name.
            may_be_linked: AtomicBool::new(true),
            map: None,
            sealed_map: OnceLock::new(),
            handle: RwLock::new(None),
        }
    }

    /// Opens a closed segment whose records end at `end`; `Corruption` when the file is missing or shorter
    /// than `end`, or the header is damaged or another's.
    pub fn open(files: Arc<JournalFiles>, number: u64, end: u64) -> Result<Segment> {
        let path = file_name::segment(&files.dir, number);
        let (header, len) = read_header(&files, number, &path)?;
        if len < end {
            let what = format!("the segment has {len} bytes, its records had {end}");
            return Err(Error::corruption(&path, len, what));
        }
        Ok(Segment::sealed(files, header, len, end))
    }

    /// The segment's number.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// The segment's header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// What the segment holds.
    pub fn segment_type(&self) -> SegmentType {
        self.header.segment_type
    }

    /// The segment's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn capacity(&self) -> u64 {
        if self.is_cut.load(Ordering::Acquire) { self.end() } else { self.capacity }
    }

    /// Offset behind the last complete record.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Whether no record will be added.
    pub fn is_sealed(&self) -> bool {
        self.is_sealed.load(Ordering::Acquire)
    }

    /// Whether it is time to ask for a successor, true once. Requires: one thread at a time.
    #[inline]
    pub fn asks_for_successor(&self) -> bool {
        let asks = self.needs_successor() && !self.is_successor_asked.load(Ordering::Relaxed);
        if asks {
            // A swap would cost every put of a segment's second half its fence.
            self.is_successor_asked.store(true, Ordering::Relaxed);
        }
        asks
    }

    /// Whether so much is used that another should be ready soon.
    #[inline]
    pub(super) fn needs_successor(&self) -> bool {
        self.end() >= self.capacity / SUCCESSOR_SHARE
    }

    /// The map it is written through, if it is.
    pub(super) fn map(&self) -> Option<&Arc<BackedMap>> {
        self.map.as_ref()
    }

    /// Publishes the records below `end` to readers.
    pub(super) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Whether a value in it may be pointed at.
    pub(super) fn holds_values(&self) -> bool {
        self.holds_values.load(Ordering::Acquire)
    }

    /// Notes that a value in it will be pointed at. Requires: before its record is published.
    pub(super) fn note_values(&self) {
        self.holds_values.store(true, Ordering::Release);
    }

    /// Promises that no record will be added.
    pub(super) fn seal(&self) {
        self.is_sealed.store(true, Ordering::Release);
    }

    /// Takes away what a failed write left behind the end. Best effort: the next segment names that
    /// end, so that recovery never looks behind it. There may be none: then the header tells that the file was
    /// cut there, or, if that can't be written either, it will be taken for torn.
    pub(super) fn cut_failed_write(&self) {
        let Ok(file) = self.file("cut") else { return };
        self.mark_cut();
        let end = self.end();
        let header = SegmentHeader { file_bytes: end, ..self.header };
        let _ = file.write_all_at(&header.encode(), 0);
        if file.set_len(end).is_err() {
            let _ = file.write_all_at(&[0; RECORD_HEADER_BYTES as usize], end);
        }
    }

    /// Notes that the file is shorter than `capacity`, so that it is not used again.
    pub(super) fn mark_cut(&self) {
        self.is_cut.store(true, Ordering::Release);
    }

    /// The value of `len` bytes at `offset`, its checksum compared.
    ///
    /// `Corruption` when the bytes are not those the pointer was made for; with `wait` false,
    /// `WouldWait` when the disk would have to be waited for (through `pread` only).
    pub fn read_value(&self, offset: u64, len: u32, checksum: u32, wait: bool) -> Result<Bytes> {
        let mapped = self.read_mapped(offset, len, checksum, |map| Some(map.slice(offset, len)))?;
        if let Some(value) = mapped {
            return Ok(value);
        }
        let begun = self.files.recorder.disk_waits().begin(checksum);
        // A transfer can go wrong where the medium is right: look twice before calling it damage.
        let mut value = self.pread_value(offset, len as usize, wait)?;
        if self.check_value(&value, offset, checksum).is_err() {
            value = self.pread_value(offset, len as usize, wait)?;
            self.check_value(&value, offset, checksum)?;
        }
        self.files.recorder.disk_waits().end(begun, len);
        Ok(value)
    }

    /// As `read_value`, where the value stands, which spares counting who holds it; `None` where it
    /// can't be lent.
    pub fn lend_value(&self, offset: u64, len: u32, checksum: u32) -> Result<Option<&[u8]>> {
        self.read_mapped(offset, len, checksum, |map| map.lend(offset, len))
    }

    /// A value as `take` has it from the map, its checksum compared; `None` when there is no map or
    /// `take` has none. The pointer is checked in any case.
    #[inline]
    fn read_mapped<'a, T: AsRef<[u8]>>(
        &'a self,
        offset: u64,
        len: u32,
        checksum: u32,
        take: impl FnOnce(Mapped<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        self.check_pointer(offset, len)?;
        let Some(map) = self.mapped()? else { return Ok(None) };
        let begun = self.files.recorder.disk_waits().begin(checksum);
        self.announce(offset, len);
        let Some(value) = take(map) else { return Ok(None) };
        self.check_value(value.as_ref(), offset, checksum)?;
        self.files.recorder.disk_waits().end(begun, len);
        Ok(Some(value))
    }

    fn check_pointer(&self, offset: u64, len: u32) -> Result<()> {
        let first = SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES;
        let value_end = offset.checked_add(u64::from(len));
        if offset < first || value_end.is_none_or(|value_end| value_end > self.end()) {
            let what = format!("a pointer to {len} bytes leads out of the segment's records");
            return Err(Error::corruption(&self.path, offset, what));
        }
        Ok(())
    }

    pub(super) fn check_value(&self, value: &[u8], offset: u64, checksum: u32) -> Result<()> {
        // The checksum's steps depend on each other: it would wait for a value's lines a few at a time.
        touch(&value[..value.len().min(TOUCHED_BYTES)]);
        if checksum::crc32c(value) == checksum || is_planted(Bug::SkipChecksum) {
            return Ok(());
        }
        Err(Error::corruption(&self.path, offset, "a value's checksum is wrong"))
    }

    /// Fills `bytes` from `offset`, by way of memory that the page cache doesn't keep.
    pub(super) fn read_once(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let disk_waits = self.files.recorder.disk_waits();
        let begun = disk_waits.begin(0);
        let read = self.file("read")?.read_once_at(bytes, offset);
        read.map_err(|error| Error::io("read", &self.path, error))?;
        disk_waits.end(begun, bytes.len() as u32);
        Ok(())
    }

    /// Bytes of files that the page cache may hold.
    pub(super) fn cached_bytes_max(&self) -> u64 {
        self.files.fs.cached_bytes_max()
    }

    /// Has the system begin to read a value into memory, if it isn't there; a hint.
    pub fn want_value(&self, offset: u64, len: u32) {
        if let Ok(file) = self.file("read") {
            file.advise(Advice::WillNeed, offset, u64::from(len));
        }
    }

    /// Asks the processor for the front of a value that will be read soon, if the file is mapped. Without,
    /// each value of a scan is waited for anew: they lie in the order in which they were written.
    pub fn prefetch_value(&self, offset: u64, len: u32) {
        let Some(end) = offset.checked_add(u64::from(len)).filter(|&end| end <= self.end()) else {
            return;
        };
        match (&self.map, self.sealed_map.get()) {
            (Some(map), _) => map.prefetch(offset, len as usize),
            (None, Some(map)) => {
                if let Some(front) = map.own().get(offset as usize..end as usize) {
                    prefetch_front(front.as_ptr(), front.len());
                }
            }
            (None, None) => {}
        }
    }

    /// Makes everything written so far durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.release_written();
        self.file("sync")?.sync_data().map_err(|source| Error::Io {
            op: "sync",
            path: self.path.clone(),
            source: source.into(),
        })
    }

    /// Asks the system to begin writing what was appended so far, and doesn't wait for it.
    pub(super) fn start_writeback(&self) {
        self.release_written();
        if let Ok(file) = self.file("write back") {
            file.start_writeback(0, self.end());
        }
    }

    fn release_written(&self) {
        if let Some(map) = &self.map {
            map.release_upto(self.end());
        }
    }

    /// A handle of the file: the segment's own, else one that others share.
    pub(super) fn file(&self, op: &'static str) -> Result<Arc<dyn File>> {
        if let Some(file) = self.handle.read().as_ref() {
            return Ok(file.clone());
        }
        self.files.file_cache.open(&self.path).map_err(|source| Error::io(op, &self.path, source))
    }

    /// Holds on to the file, so that values can be read after it has lost its name.
    pub(super) fn hold_file(&self) -> Result<()> {
        let file = self.file("open")?;
        *self.handle.write() = Some(file);
        Ok(())
    }

    /// Lets go of the segment's own handle. Requires: sealed, and every byte synced.
    pub(super) fn release_file(&self) {
        *self.handle.write() = None;
    }

    /// Whether the file may become another segment: nobody holds bytes of it.
    pub(super) fn is_recyclable(&self) -> bool {
        self.is_sealed()
            && !self.is_cut.load(Ordering::Acquire)
            && !self.may_be_linked.load(Ordering::Acquire)
            && self.sealed_map.get().is_none()
            && self.header.segment_type == SegmentType::Log
            && self.map.as_ref().is_none_or(|map| !map.is_shared())
    }

    /// Cuts the file behind the last record, so that the next opening has no tail to look through.
    /// Requires: nothing will be appended.
    pub fn cut_to_end(&self) -> Result<()> {
        let io_error = |op| move |source| Error::io(op, &self.path, source);
        let end = self.end();
        let header = SegmentHeader { file_bytes: end, ..self.header };
        // The segment's own handle is gone once all is synced, and shared ones only read.
        let file = self.files.fs.open(&self.path).map_err(io_error("open"))?;
        file.write_all_at(&header.encode(), 0).map_err(io_error("write"))?;
        file.set_len(end).map_err(io_error("cut"))?;
        self.mark_cut();
        file.sync_data().map_err(io_error("sync"))
    }

    /// Has the file removed, and not reused, when it is given back: it was linked elsewhere.
    pub fn forbid_recycling(&self) {
        self.may_be_linked.store(true, Ordering::Release);
    }

    /// Tells that no checkpoint holds the file.
    #[cfg(test)]
    pub(super) fn has_one_name(&self) {
        self.may_be_linked.store(false, Ordering::Release);
    }

    pub(super) fn into_map(self) -> Option<Arc<BackedMap>> {
        self.map
    }

    /// Has a value that lies in several pages read as a whole, where it would come page by page.
    #[inline]
    fn announce(&self, offset: u64, len: u32) {
        if self.files.recorder.disk_waits().are_expected()
            && offset % PAGE_BYTES + u64::from(len) > PAGE_BYTES
        {
            self.want_value(offset, len);
        }
    }

    /// The map that values are read from: the one it was written through, or one made when a sealed
    /// segment is first asked for a value. `None` when values are read in another way.
    fn mapped(&self) -> Result<Option<Mapped<'_>>> {
        if self.files.reading != Reading::Mapped {
            return Ok(None);
        }
        if let Some(map) = &self.map {
            return Ok(Some(Mapped::Written(map)));
        }
        if !self.is_sealed() {
            return Ok(None);
        }
        let map = match self.sealed_map.get() {
            Some(map) => map,
            None => {
                let map = self
                    .file("map")?
                    .map(self.end())
                    .map_err(|source| Error::io("map", &self.path, source))?;
                self.sealed_map.get_or_init(|| handles_of(map))
            }
        };
        Ok(Some(Mapped::Sealed(map)))
    }

    #[cold]
    fn cut_short(&self, offset: u64) -> Error {
        Error::corruption(&self.path, offset, "the file ends before this value")
    }

    fn pread_value(&self, offset: u64, len: usize, wait: bool) -> Result<Bytes> {
        match self.file("read")?.read_at(offset, len, wait) {
            Ok(value) => Ok(Bytes::from(value)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.cut_short(offset))
            }
            Err(error) => Err(Error::io("read", &self.path, error)),
        }
    }
}

/// The header and the length of a segment's file.
pub(super) fn read_header(
    files: &JournalFiles,
    number: u64,
    path: &Path,
) -> Result<(SegmentHeader, u64)> {
    let io_error = |op| move |source| Error::io(op, path, source);
    let opened = files.file_cache.open(path);
    let file = opened.map_err(|source| Error::of_opening(path, source))?;
    let len = file.len().map_err(io_error("read"))?;
    let mut bytes = vec![0; len.min(SEGMENT_HEADER_BYTES) as usize];
    file.read_exact_at(&mut bytes, 0).map_err(io_error("read"))?;
    Ok((SegmentHeader::decode(path, number, &bytes)?, len))
}
