//! Open files and mapped segments of the file system in memory.
//!
//! A map for reading is a copy of the bytes at that moment; a slice of a segment is a copy too, but
//! counted, so that `is_shared` is exact. A segment refuses (panics) to be written where it was not
//! populated, which on a disk would end the process only when the disk is full.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::io::Errno;

use super::contents::PAGE_BYTES;
use super::volume::{Cell, Volume};
use crate::vfs::{Advice, File, PIECE_BYTES, SegmentMap};

/// A handle on a file. The file's bytes live as long as a handle, a segment map or a name.
pub(super) struct MemoryFile {
    pub(super) volume: Arc<Volume>,
    pub(super) cell: Arc<Cell>,
    pub(super) path: PathBuf,
    pub(super) writable: bool,
}

impl std::fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MemoryFile").field(&self.path).finish()
    }
}

impl MemoryFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(Errno::BADF.into()) }
    }

    fn grow_or_cut(&self, operation: &'static str, len: u64, cut: bool) -> io::Result<()> {
        self.check_writable()?;
        self.volume.mutate(operation, &self.path, |state| {
            let len = if cut { len } else { len.max(self.cell.len()) };
            if state.len_possible(&self.cell, len) < len {
                return Err(Errno::NOSPC.into());
            }
            self.cell.update(|contents| contents.set_len(len));
            Ok(())
        })
    }

    fn check_map_len(&self, len: u64) -> io::Result<usize> {
        if len > self.cell.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }
}

impl File for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.cell.len())
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.cell.read(buf, offset)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.cell.read(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        if buf.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(buf.len() as u64).ok_or(Errno::FBIG)?;
        let written = self.volume.mutate("write_all_at", &self.path, |state| {
            // A full disk takes the bytes that still fit, as `write` does.
            let end = state.len_possible(&self.cell, end);
            if end <= offset {
                return Err(Errno::NOSPC.into());
            }
            let written = (end - offset) as usize;
            self.cell.update(|contents| contents.write(&buf[..written], offset));
            Ok(written)
        })?;
        if written < buf.len() { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.grow_or_cut("set_len", len, true)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.grow_or_cut("allocate", len, false)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.volume.mutate("sync_data", &self.path, |state| {
            if !state.sync_disabled {
                self.cell.update(|contents| contents.sync());
            }
            Ok(())
        })
    }

    fn write_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(buf, offset)?;
        self.volume.mutate("sync_range", &self.path, |state| {
            if !state.sync_disabled {
                let end = offset + buf.len() as u64;
                self.cell.update(|contents| contents.sync_range(offset, end));
            }
            Ok(())
        })
    }

    fn start_writeback(&self, _offset: u64, _len: u64) {}

    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) {}

    fn map(&self, len: u64) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.check_map_len(len)?];
        self.cell.read(&mut bytes, 0)?;
        Ok(Bytes::from(bytes))
    }

    fn map_segment(&self, len: u64) -> io::Result<Arc<dyn SegmentMap>> {
        if !self.writable {
            return Err(Errno::ACCESS.into());
        }
        let pages = self.check_map_len(len)?.div_ceil(PAGE_BYTES);
        Ok(Arc::new(MemorySegment {
            volume: self.volume.clone(),
            cell: self.cell.clone(),
            path: self.path.clone(),
            len,
            populated: (0..pages).map(|_| AtomicBool::new(false)).collect(),
            slices: Arc::new(()),
        }))
    }
}

struct MemorySegment {
    volume: Arc<Volume>,
    cell: Arc<Cell>,
    path: PathBuf,
    len: u64,
    populated: Vec<AtomicBool>,
    /// Shared with every slice that lives.
    slices: Arc<()>,
}

impl std::fmt::Debug for MemorySegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MemorySegment").field(&self.path).finish()
    }
}

impl MemorySegment {
    /// The pages of a range, which lies in the map.
    fn pages(&self, offset: u64, len: u64) -> &[AtomicBool] {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "range {offset}+{len} lies in a segment map of {} bytes", self.len);
        if len == 0 {
            return &[];
        }
        let first = offset as usize / PAGE_BYTES;
        let last = (offset + len - 1) as usize / PAGE_BYTES;
        &self.populated[first..=last]
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        let pages = self.pages(offset, bytes.len() as u64);
        let populated = pages.iter().all(|page| page.load(Ordering::Acquire));
        assert!(populated, "range {offset}+{} is populated before it is written", bytes.len());
        if bytes.is_empty() {
            return;
        }
        let written = self.volume.mutate("map_write", &self.path, |_| {
            let inside = offset + bytes.len() as u64 <= self.cell.len();
            assert!(inside, "{} is not cut while it is mapped", self.path.display());
            self.cell.update(|contents| contents.write(bytes, offset));
            Ok(())
        });
        debug_assert!(written.is_ok(), "a store can't fail");
    }
}

impl SegmentMap for MemorySegment {
    fn populate(&self, offset: u64, len: u64) -> io::Result<()> {
        let pages = self.pages(offset, len);
        if offset + len > self.cell.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for page in pages {
            page.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.pages(offset, len);
        let mut bytes = vec![0; len as usize];
        self.cell.read(&mut bytes, offset)?;
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        bytes.fill(0);
        self.volume.mutate("write_zeros", &self.path, |_| {
            self.cell.update(|contents| contents.write(&bytes, offset));
            Ok(())
        })
    }

    /// A system pages out what it likes: here it is every other quarter of a mebibyte.
    fn is_resident(&self, offset: u64, len: u64) -> bool {
        self.pages(offset, len);
        (offset / PIECE_BYTES).is_multiple_of(2)
    }

    fn write_parts(&self, offset: u64, parts: &[&[u8]]) {
        let Some((first, rest)) = parts.split_first() else { return };
        let mut at = offset + first.len() as u64;
        for part in rest {
            self.store(at, part);
            at += part.len() as u64;
        }
        self.store(offset, first);
    }

    fn slice(&self, offset: u64, len: usize) -> Bytes {
        self.pages(offset, len as u64);
        if len == 0 {
            return Bytes::new();
        }
        let mut bytes = vec![0; len];
        let read = self.cell.read(&mut bytes, offset);
        assert!(read.is_ok(), "{} is not cut while it is mapped", Path::display(&self.path));
        Bytes::from_owner(Slice { bytes, _slices: self.slices.clone() })
    }

    fn release(&self, offset: u64, len: u64) {
        for page in self.pages(offset, len) {
            page.store(false, Ordering::Release);
        }
    }

    fn is_shared(&self) -> bool {
        Arc::strong_count(&self.slices) > 1
    }
}

/// A handed-out range, counted while it lives.
struct Slice {
    bytes: Vec<u8>,
    _slices: Arc<()>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
