//! The part of recovery that writes: afterwards the journal ends where replay ended, durably.
//!
//! Invariant: a crash at any point in here leaves a journal that is recovered to the same end.

use std::path::Path;

use super::segment::{JournalFiles, Segment};
use super::segment_header::SegmentHeader;
use super::survey::Candidate;
use crate::error::{Error, Result};
use crate::file_name;
use crate::vfs::File;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// What stands behind the end of the log.
#[derive(Debug, Default)]
pub(super) struct Tail<'a> {
    /// The segment that the log ends in, or that nothing is needed of.
    pub(super) cut: Option<Cut<'a>>,
    /// Later segments, the last first. Of one that is lost the header stays, until the manifest names no
    /// segment that is.
    pub(super) discarded: Vec<Cut<'a>>,
    /// The file that the log ends in is shorter than it should be.
    pub(super) is_short: bool,
    /// Valid record headers in all of these.
    pub(super) records: u64,
}

/// A segment that is to end earlier than its file.
#[derive(Debug)]
pub(super) struct Cut<'a> {
    pub(super) candidate: &'a Candidate,
    /// Where it is to end.
    pub(super) end: u64,
    /// What is torn; from `end` on, unless what stands before is in tables.
    pub(super) torn: std::ops::Range<u64>,
}

/// Saves the torn bytes as `*.torn` and takes them off the journal. Answers how many bytes, trailing
/// zeros apart, and how many records these were: at least one, if any.
pub(super) fn settle(files: &JournalFiles, tail: Tail<'_>) -> Result<(u64, u64)> {
    let mut torn_bytes = 0;
    // Durable one by one, or a later one could outlive its predecessor and look like damage.
    for cut in tail.discarded.iter().chain(&tail.cut) {
        torn_bytes += cut.torn.end - cut.torn.start;
        save_and_cut(files, cut, tail.is_short)?;
    }
    let is_torn = torn_bytes > 0 || tail.is_short;
    let torn_records = if is_torn { tail.records.max(1) } else { 0 };
    Ok((torn_bytes, torn_records))
}

fn save_and_cut(files: &JournalFiles, cut: &Cut<'_>, is_short: bool) -> Result<()> {
    let Cut { candidate, end, torn } = cut;
    if !torn.is_empty() {
        save(files, candidate, torn.start, torn.end)?;
    }
    if candidate.len > *end || is_short {
        let path = &candidate.path;
        let file = files.fs.open(path).map_err(|source| Error::io("open", path, source))?;
        let header = SegmentHeader { file_bytes: *end, ..candidate.header };
        file.write_all_at(&header.encode(), 0)
            .map_err(|source| Error::io("write", path, source))?;
        file.set_len(*end).map_err(|source| Error::io("cut", path, source))?;
        file.sync_data().map_err(|source| Error::io("sync", path, source))?;
        files.file_cache.forget(path);
    }
    Ok(())
}

/// Writes the bytes `[begin, end)` of a segment over themselves and syncs them: after a crash the page
/// cache may show bytes that a failed sync never got to the disk, and takes for clean.
pub(super) fn rewrite(files: &JournalFiles, path: &Path, begin: u64, end: u64) -> Result<()> {
    let file = files.fs.open(path).map_err(|source| Error::io("open", path, source))?;
    copy(file.as_ref(), path, begin..end, file.as_ref(), path, begin)?;
    file.sync_data().map_err(|source| Error::io("sync", path, source))
}

/// Copies a segment up to `end` to a new file that ends there, synced.
pub fn copy_segment(files: &JournalFiles, segment: &Segment, end: u64, to: &Path) -> Result<()> {
    let source = files.fs.open_read(segment.path());
    let source = source.map_err(|source| Error::io("open", segment.path(), source))?;
    let target = files.fs.create(to).map_err(|source| Error::io("create", to, source))?;
    let fill = || {
        copy(source.as_ref(), segment.path(), 0..end, target.as_ref(), to, 0)?;
        let header = SegmentHeader { file_bytes: end, ..*segment.header() };
        target
            .write_all_at(&header.encode(), 0)
            .map_err(|source| Error::io("write", to, source))?;
        target.sync_data().map_err(|source| Error::io("sync", to, source))
    };
    fill().inspect_err(|_| drop(files.fs.remove(to)))
}

/// Copies the bytes `[begin, end)` of a segment to its `*.torn` file, durably.
fn save(files: &JournalFiles, candidate: &Candidate, begin: u64, end: u64) -> Result<()> {
    let torn = file_name::torn(&files.dir, candidate.header.number);
    let temporary =
        file_name::temporary(&files.dir, &format!("{:06}.torn", candidate.header.number));
    let exists = files.fs.exists(&temporary);
    if exists.map_err(|source| Error::io("open", &temporary, source))? {
        let removed = files.fs.remove(&temporary);
        removed.map_err(|source| Error::io("remove", &temporary, source))?;
    }
    let source = files.file_cache.open(&candidate.path);
    let source = source.map_err(|error| Error::io("open", &candidate.path, error))?;
    let target = files.fs.create(&temporary);
    let target = target.map_err(|error| Error::io("create", &temporary, error))?;
    copy(source.as_ref(), &candidate.path, begin..end, target.as_ref(), &temporary, 0)?;
    target.sync_data().map_err(|error| Error::io("sync", &temporary, error))?;
    let renamed = files.fs.rename(&temporary, &torn);
    renamed.map_err(|error| Error::io("rename", &temporary, error))?;
    sync_dir(files)
}

fn copy(
    source: &dyn File,
    source_path: &Path,
    range: std::ops::Range<u64>,
    target: &dyn File,
    target_path: &Path,
    mut to: u64,
) -> Result<()> {
    let mut piece = Vec::new();
    let mut at = range.start;
    while at < range.end {
        piece.resize(PIECE_BYTES.min(range.end - at) as usize, 0);
        let read = source.read_exact_at(&mut piece, at);
        read.map_err(|error| Error::io("read", source_path, error))?;
        let written = target.write_all_at(&piece, to);
        written.map_err(|error| Error::io("write", target_path, error))?;
        at += piece.len() as u64;
        to += piece.len() as u64;
    }
    Ok(())
}

fn sync_dir(files: &JournalFiles) -> Result<()> {
    files.fs.sync_dir(&files.dir).map_err(|source| Error::io("sync", &files.dir, source))
}
