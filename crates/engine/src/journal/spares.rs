//! Segments made ready ahead of need, and files of dead segments used again.
//!
//! 1. A background thread calls `prepare` until it says that there is nothing to do.
//! 2. The writer calls `take` when its segment is full; it costs the opening of a file.
//! 3. The store calls `give_back` with segments that nothing refers to any more.
//! 4. A store at rest calls `rest`, and holds little more than its data then.
//!
//! Invariant: a file is called `*.journal` only once its header is durable, so that a bad header is
//! always damage. A file gets a new number and a new salt for each use: old records never decode.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::ahead::AheadMap;
use super::record::Salt;
use super::segment::{JournalFiles, Segment};
use super::segment_header::{SegmentHeader, SegmentType};
use crate::error::{Error, Result};
use crate::file_name;
use crate::lock::Mutex;
use crate::stages::Stage;
use crate::vfs::File;

/// Most segments held ready.
pub const SPARES_MAX: usize = 2;

/// Bytes that are zeroed at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// How segments are made.
#[derive(Debug, Clone, Copy)]
pub struct SegmentOptions {
    /// Write through a map, else by `pwrite`.
    pub is_mapped: bool,
    /// Write zeros once over a new file, so that a later `fdatasync` has only data to write.
    pub zero_ahead: bool,
    /// Bytes of a segment at first.
    pub segment_bytes_min: u64,
    /// Bytes of a segment at last.
    pub segment_bytes_max: u64,
    /// Free bytes of the disk that new segments leave to flushes, compactions and deletions.
    pub reserve_bytes: u64,
    /// Where the salts start from; another for each opening of a store.
    pub seed: u64,
}

/// A segment that is ready to be written, without an open file.
#[derive(Debug)]
pub(super) struct Spare {
    header: SegmentHeader,
    path: PathBuf,
    capacity: u64,
    map: Option<Arc<AheadMap>>,
}

impl Spare {
    /// The segment, with its file open.
    pub(super) fn start(&self, files: &Arc<JournalFiles>) -> Result<Segment> {
        let file =
            files.fs.open(&self.path).map_err(|source| Error::io("open", &self.path, source))?;
        let map = self.map.clone();
        Ok(Segment::active(files.clone(), self.header, self.capacity, map, file))
    }
}

/// The file of a dead segment.
#[derive(Debug)]
struct Returned {
    path: PathBuf,
    capacity: u64,
    map: Option<Arc<AheadMap>>,
}

#[derive(Debug, Default)]
struct Inner {
    ready: VecDeque<Spare>,
    preparing: usize,
    returned: Vec<Returned>,
    /// No spare was wanted since the store came to rest.
    is_resting: bool,
}

/// Makes segments, ahead of need where it can.
#[derive(Debug)]
pub struct SegmentPool {
    files: Arc<JournalFiles>,
    options: SegmentOptions,
    next_file_number: Arc<AtomicU64>,
    salts: AtomicU64,
    scale_bytes: AtomicU64,
    /// The last segment could not be made for want of space.
    is_disk_full: AtomicBool,
    /// Bytes of the journal's length that hold nothing any more.
    dead_bytes: AtomicU64,
    inner: Mutex<Inner>,
}

impl SegmentPool {
    /// A pool without spares. New files take their numbers from `next_file_number`.
    pub fn new(
        files: Arc<JournalFiles>,
        options: SegmentOptions,
        next_file_number: Arc<AtomicU64>,
    ) -> SegmentPool {
        let recorder = files.recorder.clone();
        SegmentPool {
            files,
            options,
            next_file_number,
            salts: AtomicU64::new(options.seed),
            scale_bytes: AtomicU64::new(0),
            is_disk_full: AtomicBool::new(false),
            dead_bytes: AtomicU64::new(0),
            inner: Mutex::new(Stage::LockSpares, &recorder, Inner::default()),
        }
    }

    /// Where the journal's files are.
    pub fn files(&self) -> &Arc<JournalFiles> {
        &self.files
    }

    /// Tells how large the journal has grown; segments grow with it.
    pub fn set_scale(&self, bytes: u64) {
        self.scale_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Tells how much of the journal's length holds nothing any more, so that segments grow with what the
    /// store holds and not with what it once wrote.
    pub fn set_dead(&self, bytes: u64) {
        self.dead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Keeps one spare of the smallest size and removes the others, for a store at rest.
    pub fn rest(&self) -> Result<()> {
        let smallest = self.make(self.options.segment_bytes_min, None)?;
        let (ready, returned) = {
            let mut inner = self.inner.lock();
            let ready = std::mem::replace(&mut inner.ready, VecDeque::from([smallest]));
            inner.is_resting = true;
            (ready, std::mem::take(&mut inner.returned))
        };
        let ready = ready.iter().map(|spare| &spare.path);
        for path in ready.chain(returned.iter().map(|file| &file.path)) {
            self.remove(path);
        }
        Ok(())
    }

    /// Removes spares that are far larger than the next segment should be.
    pub fn shrink(&self) {
        let target = self.target_bytes();
        let outgrown: VecDeque<Spare> = {
            let mut inner = self.inner.lock();
            let (outgrown, kept) =
                inner.ready.drain(..).partition(|spare| spare.capacity > target.saturating_mul(2));
            inner.ready = kept;
            outgrown
        };
        for spare in outgrown {
            self.remove(&spare.path);
        }
    }

    /// Bytes of the next segment.
    ///
    /// The smallest size, doubled while the journal is at least two such segments large: small stores stay
    /// small, and large ones soon wait for few new files. What a store at rest has too much, it gives back.
    pub fn target_bytes(&self) -> u64 {
        let dead = self.dead_bytes.load(Ordering::Relaxed);
        let scale = self.scale_bytes.load(Ordering::Relaxed).saturating_sub(dead);
        let mut target = self.options.segment_bytes_min;
        while target < self.options.segment_bytes_max && scale >= target.saturating_mul(4) {
            target *= 2;
        }
        target.min(self.options.segment_bytes_max)
    }

    /// Whether `prepare` would make a segment.
    pub fn wants_spare(&self) -> bool {
        let inner = self.inner.lock();
        inner.ready.len() + inner.preparing < SPARES_MAX
    }

    /// Makes one spare ready, from a returned file if there is one; false when there are enough.
    pub fn prepare(&self) -> Result<bool> {
        let target = self.target_bytes();
        let (returned, outgrown) = {
            let mut inner = self.inner.lock();
            if inner.ready.len() + inner.preparing >= SPARES_MAX {
                return Ok(false);
            }
            inner.preparing += 1;
            inner.is_resting = false;
            let (mut fitting, outgrown): (Vec<_>, Vec<_>) =
                inner.returned.drain(..).partition(|file| file.capacity == target);
            let returned = fitting.pop();
            inner.returned = fitting;
            (returned, outgrown)
        };
        for file in outgrown {
            self.remove(&file.path);
        }
        let room = if returned.is_none() { self.check_reserve(target) } else { Ok(()) };
        let made = room.and_then(|()| self.make(target, returned));
        let mut inner = self.inner.lock();
        inner.preparing -= 1;
        inner.ready.push_back(made?);
        Ok(true)
    }

    /// Backs the next piece of a spare's map; false when all of all are.
    pub fn back_ahead(&self) -> Result<bool> {
        let maps: Vec<_> = {
            let inner = self.inner.lock();
            let maps = inner
                .ready
                .iter()
                .filter_map(|spare| Some((spare.map.clone()?, spare.path.clone())));
            maps.collect()
        };
        for (map, path) in maps {
            if map.back_ahead(&path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A segment with room for `bytes_min` in all: a spare, or one made on the spot.
    ///
    /// On a full disk the last spare is kept for those who may use the reserve: deletions.
    pub(super) fn take(&self, bytes_min: u64, may_use_reserve: bool) -> Result<Spare> {
        {
            let mut inner = self.inner.lock();
            let kept =
                if self.is_disk_full.load(Ordering::Relaxed) && !may_use_reserve { 1 } else { 0 };
            let fitting = inner.ready.iter().position(|spare| spare.capacity >= bytes_min);
            let fitting = fitting.filter(|_| inner.ready.len() > kept);
            if let Some(spare) = fitting.and_then(|at| inner.ready.remove(at)) {
                return Ok(spare);
            }
        }
        let capacity = self.target_bytes().max(bytes_min);
        let returned = {
            let mut inner = self.inner.lock();
            let fitting = inner.returned.iter().position(|file| file.capacity == capacity);
            fitting.map(|at| inner.returned.swap_remove(at))
        };
        if returned.is_none() && !may_use_reserve {
            self.check_reserve(capacity)?;
        }
        self.make(capacity, returned)
    }

    /// `NoSpace` when a new segment would not leave the reserve free.
    fn check_reserve(&self, capacity: u64) -> Result<()> {
        let dir = &self.files.dir;
        let available = self.files.fs.available_bytes(dir);
        let available = available.map_err(|source| Error::io("look up", dir, source))?;
        let is_full = available < capacity.saturating_add(self.options.reserve_bytes);
        self.is_disk_full.store(is_full, Ordering::Relaxed);
        if is_full { Err(Error::NoSpace { path: dir.clone() }) } else { Ok(()) }
    }

    /// Whether the last segment could not be made for want of space.
    pub fn is_disk_full(&self) -> bool {
        self.is_disk_full.load(Ordering::Relaxed)
    }

    /// Removes a spare, to make room on a full disk for work that frees more; whether there was one.
    pub fn release_spare(&self) -> bool {
        let Some(spare) = self.inner.lock().ready.pop_back() else { return false };
        self.remove(&spare.path);
        true
    }

    /// Undoes a `take` whose segment could not be started; best effort.
    pub(super) fn discard(&self, spare: &Spare) {
        self.remove(&spare.path);
    }

    /// Takes a segment that nothing durable refers to: its file becomes a spare, or is removed.
    /// Values that are still being read from it stay readable.
    pub fn give_back(&self, segment: Arc<Segment>) -> Result<()> {
        let path = segment.path().to_owned();
        let recyclable = match Arc::try_unwrap(segment) {
            Ok(segment) if segment.is_recyclable() => Some(segment),
            Ok(_) => None,
            Err(shared) => {
                shared.hold_file()?;
                None
            }
        };
        let Some(segment) = recyclable else {
            self.remove(&path);
            return Ok(());
        };
        let capacity = segment.capacity();
        self.keep_or_remove(Returned { path, capacity, map: segment.into_map() });
        Ok(())
    }

    /// Takes a spare that an earlier opening of the store left, of `bytes` bytes.
    pub fn adopt(&self, number: u64, bytes: u64) {
        let path = file_name::segment(&self.files.dir, number);
        self.keep_or_remove(Returned { path, capacity: bytes, map: None });
    }

    fn keep_or_remove(&self, file: Returned) {
        {
            let mut inner = self.inner.lock();
            let held = inner.ready.len() + inner.preparing + inner.returned.len();
            let is_wanted = held < SPARES_MAX && !inner.is_resting;
            if is_wanted && file.capacity == self.target_bytes() {
                inner.returned.push(file);
                return;
            }
        }
        self.remove(&file.path);
    }

    /// Number of spares that are ready, and the bytes of these and of returned files.
    pub fn spares(&self) -> (usize, u64) {
        let inner = self.inner.lock();
        let ready: u64 = inner.ready.iter().map(|spare| spare.capacity).sum();
        let returned: u64 = inner.returned.iter().map(|file| file.capacity).sum();
        (inner.ready.len(), ready + returned)
    }

    fn make(&self, capacity: u64, returned: Option<Returned>) -> Result<Spare> {
        let number = self.next_file_number.fetch_add(1, Ordering::Relaxed);
        let path = file_name::segment(&self.files.dir, number);
        let temporary = file_name::temporary(&self.files.dir, &format!("{number:06}.journal"));
        let header = SegmentHeader {
            segment_type: SegmentType::Log,
            number,
            salt: Salt::new(self.next_salt()),
            is_recycled: returned.is_some(),
            index_offset: 0,
            file_bytes: capacity,
        };
        let made = self.make_file(&header, &path, &temporary, capacity, returned);
        if made.is_err() {
            self.remove(&temporary);
            self.remove(&path);
        }
        let is_full = matches!(made, Err(Error::NoSpace { .. }));
        self.is_disk_full.store(is_full, Ordering::Relaxed);
        Ok(Spare { header, path, capacity, map: made? })
    }

    fn make_file(
        &self,
        header: &SegmentHeader,
        path: &Path,
        temporary: &Path,
        capacity: u64,
        returned: Option<Returned>,
    ) -> Result<Option<Arc<AheadMap>>> {
        let fs = &self.files.fs;
        let (file, old_map) = match returned {
            Some(returned) => {
                let renamed = fs.rename(&returned.path, temporary);
                renamed.map_err(|source| Error::io("rename", &returned.path, source))?;
                self.files.file_cache.forget(&returned.path);
                // The old name must not survive in front of the new header.
                self.sync_dir()?;
                let file = fs.open(temporary);
                (file.map_err(|source| Error::io("open", temporary, source))?, returned.map)
            }
            None => (self.create_file(temporary, capacity)?, None),
        };
        file.write_all_at(&header.encode(), 0)
            .map_err(|source| Error::io("write", temporary, source))?;
        file.sync_data().map_err(|source| Error::io("sync", temporary, source))?;
        fs.rename(temporary, path).map_err(|source| Error::io("rename", temporary, source))?;
        self.sync_dir()?;
        if !self.options.is_mapped {
            return Ok(None);
        }
        let map = match old_map {
            Some(map) => Arc::new(map.again()),
            None => {
                let map = file.map_segment(capacity);
                Arc::new(AheadMap::new(
                    map.map_err(|source| Error::io("map", path, source))?,
                    capacity,
                ))
            }
        };
        Ok(Some(map))
    }

    fn create_file(&self, temporary: &Path, capacity: u64) -> Result<Arc<dyn File>> {
        let file = self.files.fs.create(temporary);
        let file = file.map_err(|source| Error::io("create", temporary, source))?;
        file.allocate(capacity).map_err(|source| Error::io("allocate", temporary, source))?;
        if self.options.zero_ahead && !self.options.is_mapped {
            let zeros = vec![0; PIECE_BYTES.min(capacity) as usize];
            for offset in (0..capacity).step_by(PIECE_BYTES as usize) {
                let piece = PIECE_BYTES.min(capacity - offset) as usize;
                file.write_all_at(&zeros[..piece], offset)
                    .map_err(|source| Error::io("write", temporary, source))?;
            }
        }
        Ok(file)
    }

    fn sync_dir(&self) -> Result<()> {
        let dir = &self.files.dir;
        self.files.fs.sync_dir(dir).map_err(|source| Error::io("sync", dir, source))
    }

    /// Removes a file that nothing needs. One that can't be removed is found again on opening.
    fn remove(&self, path: &Path) {
        self.files.file_cache.forget(path);
        let _ = self.files.fs.remove(path);
    }

    /// The next of a sequence of well-mixed numbers (SplitMix64, Steele, Lea and Flood 2014).
    fn next_salt(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.salts.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
