//! Files mapped into memory: whole for reading, or as a segment that is appended to.
//!
//! Invariant: no Rust reference ever covers bytes that may still be written. Stores go through the
//! raw pointer, and a slice covers only what its caller says is final. An I/O error in a page fault
//! ends the process; `populate` is what keeps stores from meeting one.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use bytes::Bytes;
use memmap2::{Advice, Mmap, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::io::Errno;

use super::{read_exact, write_all, write_zeros};
use crate::coding::copy_to;
use crate::vfs::SegmentMap;
use crate::vfs::handles::{Handles, OwnLine};
use crate::vfs::prefetch::{prefetch_for_writing, prefetch_front};

/// Bytes that `populate` reads and writes at a time where the kernel can't do it.
const REWRITE_BYTES: usize = 1 << 20;

/// Maps `[0, len)` of a file that has at least `len` bytes.
pub(super) fn map_for_reading(fd: &OwnedFd, len: usize) -> io::Result<Bytes> {
    if len == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the bytes stay as they are while the map lives: the caller of `File::map` never cuts
    // the file below `len`, and other processes are kept off by the directory's lock. Of a store that was
    // closed after a failed sync, and opened again while something of it is held, a recovery may cut off
    // what did not come to the disk; `Store::close` says so.
    let map: Mmap = unsafe { MmapOptions::new().len(len).map(fd)? };
    // A hint: where it is refused, reads are only slower.
    let _ = map.advise(Advice::Random);
    Ok(Bytes::from_owner(map))
}

/// A segment mapped for appending. The map lives until it and its last slice are dropped.
#[derive(Debug)]
pub(super) struct DiskSegmentMap {
    map: Arc<MmapRaw>,
    /// What slices hold, and count as users of.
    users: Handles<Arc<OwnLine<Arc<MmapRaw>>>>,
    fd: Arc<OwnedFd>,
}

impl DiskSegmentMap {
    /// Maps `[0, len)` of a file that has at least `len` bytes.
    pub(super) fn new(fd: &Arc<OwnedFd>, len: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(len).map_raw(&**fd)?;
        // Values are read one here, one there. With read-ahead each that isn't in memory brought 128 KiB
        // along, which pushed out the tables and kept the disk busy: of data somewhat larger than memory
        // HEAD p99 was 5 ms, without it 7 us. A hint.
        let _ = map.advise(Advice::Random);
        let map = Arc::new(map);
        let users = Handles::new(|| Arc::new(OwnLine(map.clone())));
        Ok(DiskSegmentMap { map, users, fd: fd.clone() })
    }

    /// The range's start as a pointer offset. Checked in release builds: past it lies foreign memory.
    fn check(&self, offset: u64, len: u64) -> usize {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.map.len() as u64);
        assert!(inside, "range {offset}+{len} lies in a segment map of {} bytes", self.map.len());
        offset as usize
    }

    /// Backs a range by writing back to the file what is read from it, which leaves its bytes as
    /// they are; the file's own error tells what is wrong.
    fn rewrite(&self, mut offset: u64, len: u64) -> io::Result<()> {
        let end = offset + len;
        let mut buf = vec![0; REWRITE_BYTES.min(len as usize)];
        while offset < end {
            let piece = buf.len().min((end - offset) as usize);
            read_exact(&self.fd, &mut buf[..piece], offset)?;
            write_all(&self.fd, &buf[..piece], offset)?;
            offset += piece as u64;
        }
        Ok(())
    }

    fn populate_pages(&self, offset: usize, len: usize) -> io::Result<()> {
        loop {
            match self.map.advise_range(Advice::PopulateWrite, offset, len) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl SegmentMap for DiskSegmentMap {
    fn populate(&self, offset: u64, len: u64) -> io::Result<()> {
        let start = self.check(offset, len);
        if len == 0 {
            return Ok(());
        }
        let Err(error) = self.populate_pages(start, len as usize) else {
            return Ok(());
        };
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            // A kernel before 5.14 doesn't know the advice.
            Some(Errno::INVAL) => self.rewrite(offset, len),
            // A store would get SIGBUS. The file's own calls say why: space (ENOSPC), a bad disk
            // (EIO), or a file that was cut. If they succeed the reason has gone.
            Some(Errno::FAULT) => {
                self.rewrite(offset, len)?;
                self.populate_pages(start, len as usize)
            }
            _ => Err(error),
        }
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len);
        // A store into a page that isn't in memory has the system make that page alone: 4 us. Of what
        // is written at once it makes one large page, where the file system can (ext4 from Linux 6.16
        // on), in less time.
        write_zeros(&self.fd, offset, offset + len)
    }

    fn is_resident(&self, offset: u64, len: u64) -> bool {
        let page_bytes = rustix::param::page_size();
        let end = self.check(offset, len) + len as usize;
        let first = offset as usize / page_bytes;
        let mut pages = vec![0u8; end.div_ceil(page_bytes) - first];
        // SAFETY: the pages lie in the map, whose length the system rounds up to whole ones, and there is a byte
        // for each.
        let outcome = unsafe {
            let start = self.map.as_mut_ptr().add(first * page_bytes);
            libc::mincore(start.cast(), end - first * page_bytes, pages.as_mut_ptr())
        };
        outcome != 0 || pages.iter().all(|page| page & 1 == 1)
    }

    fn write_parts(&self, offset: u64, parts: &[&[u8]]) {
        let Some((first, rest)) = parts.split_first() else { return };
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let start = self.check(offset, bytes as u64);
        // SAFETY: the range is inside the map, which lives as long as `self`. The caller is the only
        // writer of it and has no slice of it, so that neither a store nor a reference overlaps;
        // the parts can't overlap it either, because they would have to be such slices.
        unsafe {
            let target = self.map.as_mut_ptr().add(start);
            let mut at = target.add(first.len());
            for part in rest {
                copy_to(part, at);
                at = at.add(part.len());
            }
            copy_to(first, target);
        }
    }

    fn slice(&self, offset: u64, len: usize) -> Bytes {
        let start = self.check(offset, len as u64);
        if len == 0 {
            return Bytes::new();
        }
        Bytes::from_owner(Slice { user: self.users.own().clone(), start, len })
    }

    fn lend(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = self.check(offset, len as u64);
        // SAFETY: the range is inside the map, which lives as long as `self`, and the caller promises
        // that its bytes will not be written again.
        Some(unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(start), len) })
    }

    fn prefetch(&self, offset: u64, len: usize) {
        let start = self.check(offset, len as u64);
        prefetch_front(self.map.as_ptr().wrapping_add(start), len);
    }

    fn prefetch_for_writing(&self, offset: u64, len: usize) {
        let start = self.check(offset, len as u64);
        prefetch_for_writing(self.map.as_ptr().wrapping_add(start), len);
    }

    fn release(&self, offset: u64, len: u64) {
        let start = self.check(offset, len);
        if len == 0 {
            return;
        }
        // To write a page back, the system first takes away the permission to store in it, page by
        // page, and each time interrupts the cores that may remember it: 5 us a page, a fifth of all
        // that a put of 100 bytes cost. Pages that are not mapped are spared that, and are mapped
        // again, sixteen at once, when they are read.
        //
        // SAFETY: the advice drops the pages from the process's page table only: the map is shared,
        // so that their bytes stay with the file, and whoever reads them, through a slice too, meets
        // those. Nobody stores in them.
        let _ = unsafe {
            self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len as usize)
        };
    }

    fn is_shared(&self) -> bool {
        let shared = self.users.all().iter().any(|user| Arc::strong_count(user) > 1);
        // Pairs with the release when a slice drops the map: its reads come before any later store.
        fence(Ordering::Acquire);
        shared
    }
}

/// A handed-out range. Each owns its share of the map, instead of all being parts of one `Bytes`,
/// because `Bytes::is_unique` is always false for an owner and a `Bytes` of the whole map would be
/// a reference to bytes that are still to be written. Costs one allocation of 32 bytes.
struct Slice {
    user: Arc<OwnLine<Arc<MmapRaw>>>,
    start: usize,
    len: usize,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `DiskSegmentMap::slice` checked the range against the map, which this keeps alive,
        // and its caller promised that the bytes will not be written again.
        unsafe { std::slice::from_raw_parts(self.user.0.as_ptr().add(self.start), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::vfs::FileSystem;
    use crate::vfs::disk::{DiskFileSystem, ZEROS_BYTES};

    fn segment(dir: &Path, len: u64) -> DiskSegmentMap {
        let path = dir.join("segment");
        DiskFileSystem.create(&path).unwrap().allocate(len).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        DiskSegmentMap::new(&Arc::new(OwnedFd::from(file)), len as usize).unwrap()
    }

    #[test]
    fn populating_without_the_kernels_help_keeps_the_bytes() {
        let root = tempfile::tempdir().unwrap();
        let len = 2 * REWRITE_BYTES as u64 + 4096;
        let map = segment(root.path(), len);
        map.write(len - 4, b"last");
        map.write(0, b"first");
        map.rewrite(0, len).unwrap();
        assert_eq!(map.slice(0, 6), "first\0");
        assert_eq!(map.slice(len - 5, 5), "\0last");
    }

    #[test]
    fn zeros_touch_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let len = 3 * ZEROS_BYTES as u64;
        let map = segment(root.path(), len);
        map.populate(0, 4096).unwrap();
        map.write(0, b"header");
        map.write_zeros(6, len - 4096 - 6).unwrap();
        map.populate(6, len - 4096 - 6).unwrap();
        map.write(len - 4102, b"record");
        map.write_zeros(len - 4096, 4096).unwrap();
        assert_eq!(map.slice(0, 7), "header\0");
        assert_eq!(map.slice(len - 4103, 8), "\0record\0");
    }

    #[test]
    fn what_was_written_is_in_memory_until_the_system_drops_it() {
        let root = tempfile::tempdir().unwrap();
        let len = 256 << 10;
        let map = segment(root.path(), len);
        map.write_zeros(0, len).unwrap();
        assert!(map.is_resident(0, len) && map.is_resident(5_000, 1));
        let file = std::fs::File::open(root.path().join("segment")).unwrap();
        file.sync_data().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let dropped = !map.is_resident(0, len);
        map.populate(0, 100).unwrap();
        assert!(map.is_resident(0, 100));
        assert_eq!(map.slice(0, 4), "\0\0\0\0");
        // A file of a tmpfs is nowhere else.
        let is_tmpfs = rustix::fs::fstatfs(&file).unwrap().f_type == 0x0102_1994;
        assert!(dropped || is_tmpfs, "its pages were clean, and nobody had mapped them");
    }

    #[test]
    fn a_released_range_keeps_its_bytes_for_slices_and_for_the_file() {
        let root = tempfile::tempdir().unwrap();
        let len = 256 << 10;
        let map = segment(root.path(), len);
        map.populate(0, len).unwrap();
        map.write(100_000, b"before");
        let slice = map.slice(100_000, 6);
        map.release(0, 128 << 10);
        assert_eq!((&slice[..], &map.slice(100_000, 6)[..]), (&b"before"[..], &b"before"[..]));
        assert_eq!(&std::fs::read(root.path().join("segment")).unwrap()[100_000..][..6], b"before");
        map.populate(0, len).unwrap();
        map.write(100_006, b"after");
        assert_eq!(map.slice(100_000, 11), "beforeafter");
    }

    #[test]
    fn populating_past_a_cut_file_is_an_error_not_a_signal() {
        let root = tempfile::tempdir().unwrap();
        let map = segment(root.path(), 64 << 10);
        std::fs::File::options()
            .write(true)
            .open(root.path().join("segment"))
            .unwrap()
            .set_len(4096)
            .unwrap();
        let error = map.populate(0, 64 << 10).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    #[should_panic(expected = "lies in a segment map")]
    fn writing_outside_the_map_is_refused() {
        let root = tempfile::tempdir().unwrap();
        segment(root.path(), 4096).write(4090, b"0123456");
    }
}
