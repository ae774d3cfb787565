//! Making segments: new files, and files of dead segments used again.
//!
//! However many are made at once, they take few commits of the file system's journal: the old names go
//! with one, the headers of new files come with one, and the new names with one.
//!
//! Invariant: a file is called `*.journal` only once its header is durable, so that a bad header is
//! always damage. A file gets a new number and a new salt for each use: old records never decode.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::backed::{BackedMap, Before};
use super::record::Salt;
use super::segment::{JournalFiles, Segment};
use super::segment_header::{SegmentHeader, SegmentType};
use crate::error::{Error, Result};
use crate::file_name;
use crate::salt::Salts;
use crate::vfs::File;

/// A file whose records are written and synced one by one is zeroed in pieces of this. The page cache holds
/// a piece as one page, and a sync looks through all of it: with pieces of 64 KiB a put takes 89 us, with
/// larger ones 95 to 103.
const ZEROS_BYTES: u64 = 64 << 10;

/// How segments are made.
#[derive(Debug, Clone, Copy)]
pub struct SegmentOptions {
    /// Write through a map, else by `pwrite`.
    pub is_mapped: bool,
    /// Write zeros once over a new file: all of it, so that a later `fdatasync` has only data to write,
    /// or if it is mapped, piece by piece before it is stored in.
    pub zero_ahead: bool,
    /// Bytes of a segment at first.
    pub segment_bytes_min: u64,
    /// Bytes of a segment at last.
    pub segment_bytes_max: u64,
    /// What the journal comes to while nothing in it is pointed at: it need hold no more than memtables do.
    pub log_bytes: u64,
    /// Free bytes of the disk that new segments leave to flushes, compactions and deletions.
    pub reserve_bytes: u64,
}

impl SegmentOptions {
    /// Whether a new file is written all over before it is a segment.
    pub(super) fn writes_new_files(&self) -> bool {
        self.zero_ahead && !self.is_mapped
    }
}

/// A segment that is ready to be written, without an open file.
#[derive(Debug)]
pub(super) struct Spare {
    header: SegmentHeader,
    /// Its file.
    pub(super) path: PathBuf,
    /// Bytes of the file.
    pub(super) capacity: u64,
    /// The file's map, unless it is written by `pwrite`.
    pub(super) map: Option<Arc<BackedMap>>,
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
pub(super) struct Returned {
    /// The file.
    pub(super) path: PathBuf,
    /// Its bytes.
    pub(super) capacity: u64,
    /// Its map, if its last use left one.
    pub(super) map: Option<Arc<BackedMap>>,
}

/// Makes segments.
#[derive(Debug)]
pub(super) struct SegmentMaker {
    files: Arc<JournalFiles>,
    options: SegmentOptions,
    next_file_number: Arc<AtomicU64>,
    salts: Arc<Salts>,
}

impl SegmentMaker {
    /// One whose new files take their numbers from `next_file_number`, and every use of a file a salt.
    pub(super) fn new(
        files: Arc<JournalFiles>,
        options: SegmentOptions,
        next_file_number: Arc<AtomicU64>,
        salts: Arc<Salts>,
    ) -> SegmentMaker {
        SegmentMaker { files, options, next_file_number, salts }
    }

    /// Where the journal's files are.
    pub(super) fn files(&self) -> &Arc<JournalFiles> {
        &self.files
    }

    /// Makes segments of returned files of that capacity and so many new ones; none on failure.
    pub(super) fn make(
        &self,
        capacity: u64,
        returned: Vec<Returned>,
        new: usize,
    ) -> Result<Vec<Spare>> {
        let spares = (0..returned.len() + new).map(|at| {
            let number = self.next_file_number.fetch_add(1, Ordering::Relaxed);
            let header = SegmentHeader {
                segment_type: SegmentType::Log,
                number,
                salt: Salt::new(self.salts.next()),
                is_recycled: at < returned.len(),
                index_offset: 0,
                file_bytes: capacity,
            };
            Spare { header, path: file_name::segment(&self.files.dir, number), capacity, map: None }
        });
        let mut spares: Vec<Spare> = spares.collect();
        let made = self.make_files(&mut spares, returned);
        if made.is_err() {
            for spare in &spares {
                self.remove(&self.temporary(spare));
                self.remove(&spare.path);
            }
        }
        made.map(|()| spares)
    }

    /// What a spare's file is called until its header is durable.
    fn temporary(&self, spare: &Spare) -> PathBuf {
        file_name::temporary(&self.files.dir, &format!("{:06}.journal", spare.header.number))
    }

    /// Makes the spares' files, the first of them of the returned ones, and maps them.
    fn make_files(&self, spares: &mut [Spare], returned: Vec<Returned>) -> Result<()> {
        let fs = &self.files.fs;
        for (spare, returned) in spares.iter().zip(&returned) {
            let renamed = fs.rename(&returned.path, &self.temporary(spare));
            renamed.map_err(|source| Error::io("rename", &returned.path, source))?;
            self.files.file_cache.forget(&returned.path);
        }
        if !returned.is_empty() {
            // The old names must not survive in front of the new headers.
            self.sync_dir()?;
        }
        let mut files = Vec::new();
        for spare in &*spares {
            let temporary = self.temporary(spare);
            let file = match spare.header.is_recycled {
                true => {
                    fs.open(&temporary).map_err(|error| Error::io("open", &temporary, error))?
                }
                false => self.create_file(&temporary, spare.capacity)?,
            };
            let header = spare.header.encode();
            match spare.header.is_recycled {
                // The header alone: what its last use left unsynced is dead, and may be all of it. Where
                // blocks are not written in place, even that takes room.
                true => file
                    .write_durably_at(&header, 0)
                    .map_err(|source| Error::of_first_sync(&temporary, source))?,
                false => file
                    .write_all_at(&header, 0)
                    .map_err(|source| Error::io("write", &temporary, source))?,
            }
            files.push(file);
        }
        // One commit takes the new ones, for the first was not synced before the last was written.
        let new = spares.iter().zip(&files).filter(|(spare, _)| !spare.header.is_recycled);
        for (spare, file) in new {
            let synced = file.sync_data();
            synced.map_err(|source| Error::of_first_sync(&self.temporary(spare), source))?;
        }
        for spare in &*spares {
            let temporary = self.temporary(spare);
            let renamed = fs.rename(&temporary, &spare.path);
            renamed.map_err(|source| Error::io("rename", &temporary, source))?;
        }
        self.sync_dir()?;
        if self.options.is_mapped {
            let mut old_maps = returned.into_iter().map(|returned| returned.map);
            for (spare, file) in spares.iter_mut().zip(&files) {
                spare.map = Some(self.map(spare, &**file, old_maps.next().flatten())?);
            }
        }
        Ok(())
    }

    fn map(
        &self,
        spare: &Spare,
        file: &dyn File,
        old: Option<Arc<BackedMap>>,
    ) -> Result<Arc<BackedMap>> {
        if let Some(old) = old {
            return Ok(Arc::new(old.again()));
        }
        let map = file.map_segment(spare.capacity);
        let map = map.map_err(|source| Error::io("map", &spare.path, source))?;
        let before = match spare.header.is_recycled {
            true => Before::Used,
            false if self.options.zero_ahead => Before::Nothing,
            false => Before::Unwritten,
        };
        Ok(Arc::new(BackedMap::new(map, spare.capacity, before)))
    }

    fn create_file(&self, temporary: &Path, capacity: u64) -> Result<Arc<dyn File>> {
        let file = self.files.fs.create(temporary);
        let file = file.map_err(|source| Error::io("create", temporary, source))?;
        file.allocate(capacity).map_err(|source| Error::io("allocate", temporary, source))?;
        if self.options.writes_new_files() {
            let zeros = vec![0; ZEROS_BYTES.min(capacity) as usize];
            for offset in (0..capacity).step_by(ZEROS_BYTES as usize) {
                let piece = ZEROS_BYTES.min(capacity - offset) as usize;
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
    pub(super) fn remove(&self, path: &Path) {
        self.files.file_cache.forget(path);
        let _ = self.files.fs.remove(path);
    }
}
