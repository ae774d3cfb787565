//! The real file system: Linux, through `rustix` for files and `memmap2` for maps.
//!
//! Invariant: an operation that a signal interrupts is made again, and a read or write that moves
//! fewer bytes than asked for goes on, so that callers see neither. Files are made with mode 0600,
//! directories with 0700. Nothing here retries a failed sync: what it lost is unknown.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::{Advice, File, FileSystem, PIECE_BYTES, SegmentMap};

mod mapping;
mod memory_limit;

use mapping::DiskSegmentMap;

const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o700);

/// Most zeros that are written at once.
const ZEROS_BYTES: usize = PIECE_BYTES as usize;

/// Zeros to write.
static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];

/// A read or write leaves nothing in the page cache (`RWF_DONTCACHE`).
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// A page of the page cache.
const PAGE_BYTES: u64 = 4 << 10;

/// File systems that write what is overwritten elsewhere, by the numbers of statfs(2): btrfs, bcachefs, ZFS,
/// F2FS, NILFS; and those that don't tell what is below them: overlayfs, FUSE.
const COPY_ON_WRITE: [u32; 7] =
    [0x9123_683e, 0xca45_1a4e, 0x2fc1_2fc1, 0xf2f5_2010, 0x3434, 0x794c_7630, 0x6573_5546];

/// The machine's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskFileSystem;

impl FileSystem for DiskFileSystem {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut missing: Vec<&Path> = Vec::new();
        for dir in path.ancestors() {
            // The parent of a relative path's first component is the working directory.
            if dir.as_os_str().is_empty() || is_dir(dir)? {
                break;
            }
            missing.push(dir);
        }
        for dir in missing.into_iter().rev() {
            match retry_on_intr(|| rustix::fs::mkdir(dir, DIRECTORY_MODE)) {
                Ok(()) => {}
                // Somebody else was faster; their name is made durable all the same.
                Err(Errno::EXIST) if is_dir(dir)? => {}
                Err(error) => return Err(error.into()),
            }
            self.sync_dir(parent_of(dir))?;
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            // A name that isn't UTF-8 is none of the engine's.
            if !entry.file_type()?.is_dir()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn is_dir_empty(&self, dir: &Path) -> io::Result<bool> {
        Ok(std::fs::read_dir(dir)?.next().transpose()?.is_none())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        DiskFile::open(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        DiskFile::open(path, OFlags::RDWR)
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        DiskFile::open(path, OFlags::RDONLY)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::rename(from, to))?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::unlink(path))?)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::link(from, to))?)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let fd = open_fd(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(retry_on_intr(|| rustix::fs::fsync(&fd))?)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        lock_exclusively(open_fd(path, OFlags::RDWR | OFlags::CREATE)?)
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        lock_exclusively(open_fd(path, OFlags::RDONLY)?)
    }

    fn available_bytes(&self, dir: &Path) -> io::Result<u64> {
        let disk = retry_on_intr(|| rustix::fs::statvfs(dir))?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn overwrites_in_place(&self, dir: &Path) -> bool {
        // One that doesn't tell is like most.
        retry_on_intr(|| rustix::fs::statfs(dir))
            .map_or(true, |disk| !COPY_ON_WRITE.contains(&(disk.f_type as u32)))
    }

    fn cached_bytes_max(&self) -> u64 {
        memory_limit::bytes()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match retry_on_intr(|| rustix::fs::stat(path)) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn lock_exclusively(fd: OwnedFd) -> io::Result<Box<dyn Send + Sync>> {
    retry_on_intr(|| rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive))?;
    Ok(Box::new(fd))
}

/// Makes the calling thread as nice as `nice`, and `SCHED_BATCH`. Where the system forbids it, the
/// thread runs as it is.
pub fn lower_priority(nice: i32) {
    // On Linux a `None` process is the calling thread, not the whole process.
    if rustix::process::getpriority_process(None).unwrap_or(0) < nice {
        let _ = rustix::process::setpriority_process(None, nice);
    }
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` is a valid `sched_param` for the length of the call, and 0 is the caller.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters) };
}

fn is_dir(path: &Path) -> io::Result<bool> {
    match retry_on_intr(|| rustix::fs::stat(path)) {
        Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() => Ok(true),
        Ok(_) => Err(Errno::NOTDIR.into()),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

fn open_fd(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(retry_on_intr(|| rustix::fs::open(path, flags | OFlags::CLOEXEC, FILE_MODE))?)
}

/// An open file of the machine. Maps keep the descriptor open.
#[derive(Debug)]
struct DiskFile {
    fd: Arc<OwnedFd>,
}

impl DiskFile {
    fn open(path: &Path, flags: OFlags) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(DiskFile { fd: Arc::new(open_fd(path, flags)?) }))
    }

    /// Refuses to map bytes that the file doesn't have: touching them would end the process.
    fn check_map_len(&self, len: u64) -> io::Result<usize> {
        if len > self.len()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    /// Grows the file to `len` by writing zeros after its end. Holes before the end stay holes.
    fn write_zeros_to(&self, len: u64) -> io::Result<()> {
        write_zeros(&self.fd, self.len()?, len)
    }

    /// A read by call of a byte of each page counts as a use of it. 0.2 us a page that is in memory.
    fn note_used(&self, offset: u64, len: NonZeroU64) {
        let pages = offset / PAGE_BYTES..=(offset.saturating_add(len.get() - 1)) / PAGE_BYTES;
        for page in pages {
            let _ = rustix::io::pread(&self.fd, &mut [0], page * PAGE_BYTES);
        }
    }
}

impl File for DiskFile {
    fn len(&self) -> io::Result<u64> {
        Ok(retry_on_intr(|| rustix::fs::fstat(&self.fd))?.st_size as u64)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        read_exact(&self.fd, buf, offset)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        fill(buf, offset, |rest, at| match read_as(&self.fd, rest, at, ReadWriteFlags::NOWAIT) {
            // A file system that can't tell might wait, which is all the caller asks.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(Errno::WOULDBLOCK),
            read => read,
        })
    }

    fn read_once_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        fill(buf, offset, |rest, at| match read_as(&self.fd, rest, at, DONT_CACHE) {
            // The system, or the file system, knows no such read.
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                rustix::io::pread(&self.fd, rest, at)
            }
            read => read,
        })
    }

    fn read_new_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        // Into memory as it is: zeros would be read over at once.
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let from = offset + bytes.len() as u64;
            match retry_on_intr(|| rustix::io::pread(&self.fd, spare_capacity(&mut bytes), from))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => bytes.truncate(len),
            }
        }
        Ok(bytes)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        write_all(&self.fd, buf, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&self.fd, len))?)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        match retry_on_intr(|| rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), 0, len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros_to(len),
            result => Ok(result?),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fdatasync(&self.fd))?)
    }

    fn write_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let slices = [IoSlice::new(buf)];
        let flags = ReadWriteFlags::DSYNC;
        match retry_on_intr(|| rustix::io::pwritev2(&self.fd, &slices, offset, flags)) {
            Ok(count) if count == buf.len() => Ok(()),
            // Less was written, or the file system knows no such write.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.write_all_at(buf, offset)?;
                self.sync_data()
            }
            Err(error) => Err(error.into()),
        }
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        // A length of 0 would mean "to the end of the file".
        let (Ok(offset), Ok(len @ 1..)) = (i64::try_from(offset), i64::try_from(len)) else {
            return;
        };
        // SAFETY: the call takes no pointers, and the descriptor is open while `self` lives.
        unsafe {
            libc::sync_file_range(self.fd.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
        }
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) {
        let Some(nonzero) = NonZeroU64::new(len) else {
            return;
        };
        // No length means "to the end of the file": what a range beyond any file's end asks for.
        let fits = offset.checked_add(len).is_some_and(|end| i64::try_from(end).is_ok());
        let advice = match advice {
            Advice::Random => rustix::fs::Advice::Random,
            Advice::Sequential => rustix::fs::Advice::Sequential,
            Advice::WillNeed => rustix::fs::Advice::WillNeed,
            Advice::DontNeed => rustix::fs::Advice::DontNeed,
            Advice::Used => return self.note_used(offset, nonzero),
        };
        let _ = rustix::fs::fadvise(&self.fd, offset, fits.then_some(nonzero), advice);
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        mapping::map_for_reading(&self.fd, self.check_map_len(len)?)
    }

    fn map_segment(&self, len: u64) -> io::Result<Arc<dyn SegmentMap>> {
        Ok(Arc::new(DiskSegmentMap::new(&self.fd, self.check_map_len(len)?)?))
    }
}

fn read_exact(fd: &OwnedFd, buf: &mut [u8], offset: u64) -> io::Result<()> {
    fill(buf, offset, |rest, at| rustix::io::pread(fd, rest, at))
}

/// One `preadv2` with these flags.
fn read_as(
    fd: &OwnedFd,
    buf: &mut [u8],
    offset: u64,
    flags: ReadWriteFlags,
) -> rustix::io::Result<usize> {
    rustix::io::preadv2(fd, &mut [IoSliceMut::new(buf)], offset, flags)
}

/// Fills `buf` from `offset` on with what a call reads, again and again; `UnexpectedEof` when nothing is left.
#[inline]
fn fill(
    buf: &mut [u8],
    offset: u64,
    read: impl Fn(&mut [u8], u64) -> rustix::io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match retry_on_intr(|| read(&mut buf[done..], offset + done as u64))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    Ok(())
}

fn write_all(fd: &OwnedFd, buf: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match retry_on_intr(|| rustix::io::pwrite(fd, &buf[done..], offset + done as u64))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => done += count,
        }
    }
    Ok(())
}

/// Writes zeros over `[from, end)`, in pieces that end at multiples of `ZEROS_BYTES`.
fn write_zeros(fd: &OwnedFd, mut from: u64, end: u64) -> io::Result<()> {
    while from < end {
        let piece_end = (from + 1).next_multiple_of(ZEROS_BYTES as u64).min(end);
        write_all(fd, &ZEROS[..(piece_end - from) as usize], from)?;
        from = piece_end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_and_directories_are_for_their_owner_alone() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        DiskFileSystem.create_dir_all(&dir).unwrap();
        DiskFileSystem.create(&dir.join("file")).unwrap();
        DiskFileSystem.lock(&dir.join("LOCK")).unwrap();
        assert_eq!(mode_of(&root.path().join("a")), 0o700);
        assert_eq!(mode_of(&dir), 0o700);
        assert_eq!(mode_of(&dir.join("file")), 0o600);
        assert_eq!(mode_of(&dir.join("LOCK")), 0o600);
    }

    #[test]
    fn a_name_that_is_not_utf8_is_not_listed() {
        use std::os::unix::ffi::OsStrExt;
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
        std::fs::write(root.path().join("name"), "").unwrap();
        assert_eq!(DiskFileSystem.list(root.path()).unwrap(), ["name"]);
    }

    #[test]
    fn growing_by_zeros_keeps_what_the_file_holds() {
        let root = tempfile::tempdir().unwrap();
        let fd = open_fd(&root.path().join("file"), OFlags::RDWR | OFlags::CREATE).unwrap();
        let file = DiskFile { fd: Arc::new(fd) };
        file.write_all_at(b"kept", 0).unwrap();
        let len = 2 * ZEROS_BYTES as u64 + 5;
        file.write_zeros_to(len).unwrap();
        file.write_zeros_to(10).unwrap();
        assert_eq!(file.len().unwrap(), len);
        let mut bytes = vec![1; len as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..4], b"kept");
        assert!(bytes[4..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn hints_of_any_range_are_taken() {
        let root = tempfile::tempdir().unwrap();
        let file = DiskFileSystem.create(&root.path().join("file")).unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        for (offset, len) in [(0, 0), (0, 10_000), (5, u64::MAX), (u64::MAX, u64::MAX)] {
            file.start_writeback(offset, len);
            for advice in [Advice::Random, Advice::Sequential, Advice::WillNeed, Advice::DontNeed] {
                file.advise(advice, offset, len);
            }
        }
        let mut bytes = [0; 10_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [7; 10_000]);
    }

    #[test]
    fn only_the_background_thread_becomes_nicer() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        let thread = std::thread::spawn(move || {
            lower_priority(10);
            nice()
        });
        assert_eq!(thread.join().unwrap(), before.max(10));
        assert_eq!(nice(), before);
    }
}
