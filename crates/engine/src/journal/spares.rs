//! Segments held ready ahead of need, and files of dead segments kept for their next use: how many, how
//! large, and for how long.
//!
//! 1. A background thread calls `prepare` until it says that there is nothing to do. Where a new file is
//!    first written all over, which keeps the disk from the syncs that writers wait for, that begins once
//!    half of the first segment is used, which `prepare_first` has made on opening.
//! 2. The writer calls `take` when its segment is full; it costs the opening of a file.
//! 3. The store calls `give_back` with segments that nothing refers to any more.
//! 4. A store at rest calls `rest`, and holds little more than its data then.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::making::{Returned, SegmentMaker, SegmentOptions, Spare};
use super::segment::{JournalFiles, Segment};
use crate::error::{Error, Result};
use crate::file_name;
use crate::lock::Mutex;
use crate::salt::Salts;
use crate::stages::Stage;

/// Segments held ready.
pub const SPARES_MIN: usize = 2;

/// Segments held ready for a writer that is faster than they can be made. To make some takes two
/// commits of the file system's journal, however many they are: 50 to 100 ms on a busy disk, in which
/// the fastest writer measured fills two.
const SPARES_MAX: usize = 8;

/// While the store is written, files of dead segments are kept up to this share of what it holds, as a
/// divisor: a merge finds many dead at once, and as many are wanted until the next.
const KEPT_SHARE: u64 = 4;

#[derive(Debug)]
struct Inner {
    ready: VecDeque<Spare>,
    /// Spares to hold ready.
    wanted: usize,
    preparing: usize,
    /// So much is written that spares will be needed.
    is_begun: bool,
    returned: Vec<Returned>,
    /// No spare was wanted since the store came to rest.
    is_resting: bool,
}

impl Inner {
    /// Spares that are wanted and neither ready nor being made.
    fn missing(&self) -> usize {
        self.wanted.saturating_sub(self.ready.len() + self.preparing)
    }
}

/// Gives segments, made ahead of need where that can be.
#[derive(Debug)]
pub struct SegmentPool {
    maker: SegmentMaker,
    options: SegmentOptions,
    scale_bytes: AtomicU64,
    /// The last segment could not be made for want of space.
    is_disk_full: AtomicBool,
    /// Bytes of the journal's length that hold nothing any more.
    dead_bytes: AtomicU64,
    /// Bytes of closed segments that are pointed at.
    value_bytes: AtomicU64,
    /// Whether what is written now is pointed at.
    holds_values: AtomicBool,
    inner: Mutex<Inner>,
}

impl SegmentPool {
    /// A pool without spares. New files take their numbers from `next_file_number`, and every use of a file a
    /// salt.
    pub fn new(
        files: Arc<JournalFiles>,
        options: SegmentOptions,
        next_file_number: Arc<AtomicU64>,
        salts: Arc<Salts>,
    ) -> SegmentPool {
        let recorder = files.recorder.clone();
        let inner = Inner {
            ready: VecDeque::new(),
            wanted: SPARES_MIN,
            preparing: 0,
            is_begun: false,
            returned: Vec::new(),
            is_resting: false,
        };
        SegmentPool {
            maker: SegmentMaker::new(files, options, next_file_number, salts),
            options,
            scale_bytes: AtomicU64::new(0),
            is_disk_full: AtomicBool::new(false),
            dead_bytes: AtomicU64::new(0),
            value_bytes: AtomicU64::new(0),
            holds_values: AtomicBool::new(false),
            inner: Mutex::new(Stage::LockSpares, &recorder, inner),
        }
    }

    /// Where the journal's files are.
    pub fn files(&self) -> &Arc<JournalFiles> {
        self.maker.files()
    }

    /// Tells how large the journal has grown; segments grow with it.
    pub fn set_scale(&self, bytes: u64) {
        self.scale_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Tells how much of the journal's length holds nothing any more, so that segments grow with what the
    /// store holds and not with what it once wrote; and how much of closed segments is pointed at.
    pub fn set_dead(&self, dead_bytes: u64, value_bytes: u64) {
        self.dead_bytes.store(dead_bytes, Ordering::Relaxed);
        self.value_bytes.store(value_bytes, Ordering::Relaxed);
    }

    /// Tells whether values in the segment that was last written are pointed at.
    pub(super) fn set_holds_values(&self, holds_values: bool) {
        self.holds_values.store(holds_values, Ordering::Relaxed);
    }

    /// Keeps one spare of the smallest size and removes the others, for a store at rest.
    pub fn rest(&self) -> Result<()> {
        let smallest = self.make(self.options.segment_bytes_min, Vec::new(), 1)?;
        let (ready, returned) = {
            let mut inner = self.inner.lock();
            let ready = std::mem::replace(&mut inner.ready, smallest.into());
            inner.wanted = SPARES_MIN;
            inner.is_begun = false;
            inner.is_resting = true;
            (ready, std::mem::take(&mut inner.returned))
        };
        let ready = ready.iter().map(|spare| &spare.path);
        for path in ready.chain(returned.iter().map(|file| &file.path)) {
            self.maker.remove(path);
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
            self.maker.remove(&spare.path);
        }
    }

    /// Bytes of the next segment.
    ///
    /// The smallest size, doubled while the journal is at least two such segments large: small stores stay
    /// small, and large ones soon wait for few new files. What a store at rest has too much, it gives back.
    ///
    /// A journal in which nothing is pointed at doesn't grow with the store: its segments die with each
    /// flush, and of one size their files serve again and again.
    pub fn target_bytes(&self) -> u64 {
        let mut held = self.held_bytes();
        if !self.holds_values.load(Ordering::Relaxed) {
            let values = self.value_bytes.load(Ordering::Relaxed);
            held = held.min(values.saturating_add(self.options.log_bytes));
        }
        let mut target = self.options.segment_bytes_min;
        while target < self.options.segment_bytes_max && held >= target.saturating_mul(4) {
            target *= 2;
        }
        target.min(self.options.segment_bytes_max)
    }

    /// About what the store holds: the journal's length without what is dead of it.
    fn held_bytes(&self) -> u64 {
        let dead = self.dead_bytes.load(Ordering::Relaxed);
        self.scale_bytes.load(Ordering::Relaxed).saturating_sub(dead)
    }

    /// Whether it is time for `prepare`, now that `active` takes the writes.
    pub fn wants_spare(&self, active: &Segment) -> bool {
        let mut inner = self.inner.lock();
        inner.is_begun |= !self.options.writes_new_files() || active.needs_successor();
        inner.is_begun && inner.missing() > 0
    }

    /// Number of segments that are ready, and of those that are being made.
    pub fn successors(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.ready.len(), inner.preparing)
    }

    /// Makes the spares ready that are missing, from returned files as far as there are any; false when
    /// there are enough.
    pub fn prepare(&self) -> Result<bool> {
        let target = self.target_bytes();
        let (missing, returned, outgrown) = {
            let mut inner = self.inner.lock();
            let missing = inner.missing();
            if missing == 0 {
                return Ok(false);
            }
            inner.preparing += missing;
            inner.is_resting = false;
            let (mut fitting, outgrown): (Vec<_>, Vec<_>) =
                inner.returned.drain(..).partition(|file| file.capacity == target);
            inner.returned = fitting.split_off(missing.min(fitting.len()));
            (missing, fitting, outgrown)
        };
        for file in outgrown {
            self.maker.remove(&file.path);
        }
        let made = match self.room_for(missing - returned.len(), target) {
            Err(error) if returned.is_empty() => Err(error),
            new => self.make(target, returned, new.unwrap_or(0)),
        };
        let mut inner = self.inner.lock();
        inner.preparing -= missing;
        inner.ready.extend(made?);
        Ok(true)
    }

    /// How many of `wanted` new segments leave the reserve free; `NoSpace` when it is none of them.
    fn room_for(&self, wanted: usize, capacity: u64) -> Result<usize> {
        if wanted > 1 && self.check_reserve(capacity.saturating_mul(wanted as u64)).is_ok() {
            return Ok(wanted);
        }
        if wanted > 0 {
            self.check_reserve(capacity)?;
        }
        Ok(wanted.min(1))
    }

    /// A segment with room for `bytes_min` in all: a spare, or one made on the spot.
    ///
    /// On a full disk the last spare is kept for those who may use the reserve: deletions, and batches that say so.
    /// They get a smaller segment where there is no room for one of the size wanted.
    pub(super) fn take(&self, bytes_min: u64, may_use_reserve: bool) -> Result<Spare> {
        {
            let mut inner = self.inner.lock();
            let kept =
                if self.is_disk_full.load(Ordering::Relaxed) && !may_use_reserve { 1 } else { 0 };
            let fitting = inner.ready.iter().position(|spare| spare.capacity >= bytes_min);
            let fitting = fitting.filter(|_| inner.ready.len() > kept);
            let spare = fitting.and_then(|at| inner.ready.remove(at));
            if inner.ready.is_empty() && inner.preparing > 0 {
                inner.wanted = SPARES_MAX;
            }
            if let Some(spare) = spare {
                return Ok(spare);
            }
        }
        match self.take_made(self.target_bytes().max(bytes_min), may_use_reserve) {
            Err(Error::NoSpace { .. }) if may_use_reserve => self.take_small(bytes_min),
            taken => taken,
        }
    }

    /// A segment of this size, made of a returned file if one has it.
    fn take_made(&self, capacity: u64, may_use_reserve: bool) -> Result<Spare> {
        let returned = self.take_returned(|file| file.capacity == capacity);
        let new = usize::from(returned.is_none());
        if new > 0 && !may_use_reserve {
            self.check_reserve(capacity)?;
        }
        let mut made = self.make(capacity, Vec::from_iter(returned), new)?;
        Ok(made.pop().expect("as many as were asked for"))
    }

    /// A segment where there is no room for another of the size wanted: of any returned file with room for
    /// `bytes_min`, or as small as can be. A large store's segments are larger than what a full disk keeps for
    /// deletions, and these need little.
    fn take_small(&self, bytes_min: u64) -> Result<Spare> {
        let returned = self.take_returned(|file| file.capacity >= bytes_min);
        let smallest = self.options.segment_bytes_min.max(bytes_min);
        let capacity = returned.as_ref().map_or(smallest, |file| file.capacity);
        let new = usize::from(returned.is_none());
        let made = self.make(capacity, Vec::from_iter(returned), new);
        // That this one could be made says nothing of room for others.
        self.is_disk_full.store(true, Ordering::Relaxed);
        Ok(made?.pop().expect("as many as were asked for"))
    }

    fn take_returned(&self, fits: impl Fn(&Returned) -> bool) -> Option<Returned> {
        let mut inner = self.inner.lock();
        let fitting = inner.returned.iter().position(fits);
        fitting.map(|at| inner.returned.swap_remove(at))
    }

    /// `NoSpace` when a new segment would not leave the reserve free.
    fn check_reserve(&self, capacity: u64) -> Result<()> {
        let dir = &self.files().dir;
        let available = self.files().fs.available_bytes(dir);
        let available = available.map_err(|source| Error::io("look up", dir, source))?;
        let is_full = available < capacity.saturating_add(self.options.reserve_bytes);
        self.is_disk_full.store(is_full, Ordering::Relaxed);
        if is_full { Err(Error::NoSpace { path: dir.clone() }) } else { Ok(()) }
    }

    /// If the disk was full, looks again whether it is.
    pub fn look_for_room(&self) {
        if self.is_disk_full() {
            // Whether it could be looked at, the next that needs room tells.
            let _ = self.check_reserve(self.target_bytes());
        }
    }

    /// Whether there was no room for another segment when that was last looked at.
    pub fn is_disk_full(&self) -> bool {
        self.is_disk_full.load(Ordering::Relaxed)
    }

    /// Removes the files of dead segments, or else a spare, to make room on a full disk for work that
    /// frees more; whether there was any.
    pub fn release_spare(&self) -> bool {
        let released: Vec<PathBuf> = {
            let mut inner = self.inner.lock();
            match &inner.returned[..] {
                [] => inner.ready.pop_back().into_iter().map(|spare| spare.path).collect(),
                _ => inner.returned.drain(..).map(|file| file.path).collect(),
            }
        };
        released.iter().for_each(|path| self.maker.remove(path));
        !released.is_empty()
    }

    /// Has the first segment ready where a new file is written all over first, which takes milliseconds:
    /// opening takes them, not the first write.
    pub fn prepare_first(&self) -> Result<()> {
        if self.options.writes_new_files() {
            let spare = self.take(0, false)?;
            self.inner.lock().ready.push_front(spare);
        }
        Ok(())
    }

    /// Undoes a `take` whose segment could not be started; best effort.
    pub(super) fn discard(&self, spare: &Spare) {
        self.maker.remove(&spare.path);
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
            self.maker.remove(&path);
            return Ok(());
        };
        let capacity = segment.capacity();
        self.keep_or_remove(Returned { path, capacity, map: segment.into_map() });
        Ok(())
    }

    /// Takes a spare that an earlier opening of the store left, of `bytes` bytes.
    pub fn adopt(&self, number: u64, bytes: u64) {
        let path = file_name::segment(&self.files().dir, number);
        let file = Returned { path, capacity: bytes, map: None };
        // What a rest left is smaller than a large store's segments; on a full disk deletions may get no other.
        if bytes == self.options.segment_bytes_min {
            let mut inner = self.inner.lock();
            if inner.returned.is_empty() {
                inner.returned.push(file);
                return;
            }
        }
        self.keep_or_remove(file);
    }

    fn keep_or_remove(&self, file: Returned) {
        let target = self.target_bytes();
        let kept_bytes = match self.is_disk_full() {
            true => 0,
            false => self.held_bytes() / KEPT_SHARE,
        };
        {
            let mut inner = self.inner.lock();
            let held = inner.ready.len() + inner.preparing + inner.returned.len();
            // One more than is held ready: a spare is made as soon as one is taken, a while before the
            // file that could have been it comes back.
            let is_wanted = held <= inner.wanted || held as u64 * target < kept_bytes;
            if is_wanted && !inner.is_resting && file.capacity == target {
                inner.returned.push(file);
                return;
            }
        }
        self.maker.remove(&file.path);
    }

    /// Number of spares that are ready, and the bytes of these and of returned files.
    pub fn spares(&self) -> (usize, u64) {
        let inner = self.inner.lock();
        let ready: u64 = inner.ready.iter().map(|spare| spare.capacity).sum();
        let returned: u64 = inner.returned.iter().map(|file| file.capacity).sum();
        (inner.ready.len(), ready + returned)
    }

    /// Makes segments, and notes whether the disk has room for them.
    fn make(&self, capacity: u64, returned: Vec<Returned>, new: usize) -> Result<Vec<Spare>> {
        let made = self.maker.make(capacity, returned, new);
        let is_full = matches!(made, Err(Error::NoSpace { .. }));
        self.is_disk_full.store(is_full, Ordering::Relaxed);
        made
    }
}
