//! The operating system, as the engine sees it: files, time, threads.
//!
//! Nothing outside this module opens a file, reads a clock or starts a thread, so that a test can
//! own all three. Implementations: [`disk`] (the real one), [`memory`] (files in memory that can be
//! cloned as a crash would leave them), [`faulty`] (fails the n-th operation of another).

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

pub mod clock;
pub mod cycles;
pub mod disk;
pub(crate) mod disk_reads;
pub mod faulty;
pub(crate) mod handles;
pub(crate) mod huge_pages;
pub mod memory;
pub mod prefetch;
pub mod rounds;
pub(crate) mod thread_number;

pub use clock::{Clock, ManualClock, SystemClock};
pub use disk::DiskFileSystem;
pub use faulty::FaultyFileSystem;
pub use memory::{CrashMode, MemoryFileSystem, MemoryImage};

#[cfg(test)]
mod suite;

/// What is written at once, and begins and ends at multiples of this, the page cache holds as one page
/// where the file system can (ext4 from Linux 6.16 on). A larger page costs less to make and to let go, and
/// a reader that meets it for the first time has all of it mapped: of 128 MiB in pieces of 64 KiB, 256 KiB
/// and 1 MiB zeros take 27, 19 and 17 ms, mapping for stores 13, 10 and 12, and what a reader waits for
/// each 64 KiB that it comes to 1.8, 0.7 and 0.45 us. A store anywhere in a page writes all of it back.
pub const PIECE_BYTES: u64 = 256 << 10;

/// A tree of files. Errors are plain `io::Error`; the caller adds operation and path.
///
/// Durability, as on Linux: file contents are durable after `File::sync_data`; a new name, a rename,
/// a removal or a link is durable after `sync_dir` of its directory.
pub trait FileSystem: Send + Sync + Debug {
    /// Makes a directory and its missing parents (mode 0700), durably.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names of the files in a directory, in no order; neither directories nor names that aren't
    /// UTF-8.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Whether a directory holds nothing at all, what isn't listed included.
    fn is_dir_empty(&self, dir: &Path) -> io::Result<bool> {
        Ok(self.list(dir)?.is_empty())
    }
    /// Makes a new file (mode 0600) for reading and writing; `AlreadyExists` if there is one.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Renames a file, replacing `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Open handles and maps stay usable.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Gives a file a second name.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes an exclusive lock on a file, making it if missing; `WouldBlock` when another holds it.
    /// Held until the guard is dropped.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
    /// As `lock`, of a file that is there, and that only has to be readable.
    fn lock_existing(&self, _path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Bytes an ordinary user may still write on the disk of `dir`.
    fn available_bytes(&self, dir: &Path) -> io::Result<u64>;
    /// Whether what was allocated once is written over in place, so that a store into a map of it never
    /// lacks space: copy-on-write file systems look for another place, and end the process if there is none.
    fn overwrites_in_place(&self, _dir: &Path) -> bool {
        true
    }
    /// Bytes that the page cache may hold for this process, with what the process itself takes; 0 without one.
    fn cached_bytes_max(&self) -> u64 {
        0
    }
    /// Whether a path exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;
}

/// What a file will be used for, so that the page cache serves it well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Point reads: no read-ahead.
    Random,
    /// One pass: read ahead.
    Sequential,
    /// Will be read soon.
    WillNeed,
    /// Will not be read again: let it go first.
    DontNeed,
    /// Was used just now, through a map: keep it longer than what is read once. Linux lets what is mapped
    /// for reads at random go in the order in which it came, however often it is used (from 6.3 on).
    Used,
}

/// One open file.
pub trait File: Send + Sync + Debug {
    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file holds no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `buf` from `offset`; `UnexpectedEof` when the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// As `read_exact_at`, but `WouldBlock` when it would wait for the disk (`RWF_NOWAIT`).
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// As `read_exact_at`, but what isn't in the page cache isn't left there (`RWF_DONTCACHE`, Linux from
    /// 6.14 on, where the file system can).
    fn read_once_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buf, offset)
    }
    /// As `read_exact_at`, into memory of its own.
    fn read_new_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
    /// Exactly `len` bytes from `offset`; waiting for the disk, as `read_new_at`, or else as
    /// `read_cached_at`.
    fn read_at(&self, offset: u64, len: usize, wait: bool) -> io::Result<Vec<u8>> {
        if wait {
            return self.read_new_at(offset, len);
        }
        let mut bytes = vec![0; len];
        self.read_cached_at(&mut bytes, offset)?;
        Ok(bytes)
    }
    /// Writes all of `buf` at `offset`, growing the file as needed.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts or grows (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves disk space for `[0, len)` and grows the file to `len` with zeros; a longer file keeps
    /// its length. Where the disk can't reserve, zeros are written after the file's end.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Makes contents and length durable, stores through maps included (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
    /// Writes all of `buf` at `offset` and makes it durable (`RWF_DSYNC`); what was written elsewhere in
    /// the file can stay unsynced.
    fn write_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(buf, offset)?;
        self.sync_data()
    }
    /// Starts writing `[offset, offset+len)` back without waiting; a hint.
    fn start_writeback(&self, offset: u64, len: u64);
    /// Tells the page cache what to expect; a hint.
    fn advise(&self, advice: Advice, offset: u64, len: u64);
    /// Maps `[0, len)` for reading; `UnexpectedEof` when the file is shorter. Bytes that are written
    /// later may or may not show. Requires: the file is never cut below `len` while a slice lives.
    fn map(&self, len: u64) -> io::Result<Bytes>;
    /// Maps `[0, len)` for appending; `UnexpectedEof` when the file is shorter. Requires: the file is
    /// allocated to `len`, and never cut below it while the map lives.
    fn map_segment(&self, len: u64) -> io::Result<Arc<dyn SegmentMap>>;
}

/// A file mapped for appending: each byte is written once, then read by many.
pub trait SegmentMap: Send + Sync + Debug {
    /// Backs `[offset, offset+len)` with memory and disk space now, so that later stores can't fail.
    /// Keeps its bytes. Requires: no other thread writes the range meanwhile. The error is what a
    /// `write_all_at` of the range would answer, such as `StorageFull`.
    fn populate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Writes zeros over a range whose bytes nobody needs, which can make populating it far cheaper.
    /// Requires: no other thread populates it meanwhile.
    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Whether all of a range is in memory, so that to populate it nothing is read from the disk.
    fn is_resident(&self, _offset: u64, _len: u64) -> bool {
        true
    }
    /// Stores parts one behind the other from `offset` on, the first of them last.
    ///
    /// Requires: their range is inside the map and populated, no other thread writes it, and no slice
    /// of it has been handed out.
    fn write_parts(&self, offset: u64, parts: &[&[u8]]);
    /// The same of one part.
    #[cfg(test)]
    fn write(&self, offset: u64, bytes: &[u8]) {
        self.write_parts(offset, &[bytes]);
    }
    /// The bytes of a range that was written and will not be written again.
    fn slice(&self, offset: u64, len: usize) -> Bytes;
    /// The same where it stands, which spares counting who holds it: `is_shared` doesn't know of it.
    /// `None` where it can't be lent.
    fn lend(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        None
    }
    /// Asks the processor for a range that will be read soon. A hint.
    fn prefetch(&self, _offset: u64, _len: usize) {}
    /// Asks the processor for a range that will be stored in soon. A hint.
    fn prefetch_for_writing(&self, _offset: u64, _len: usize) {}
    /// Prepares a range for being written back, so that this costs the process less. It keeps its
    /// bytes, in memory and in every slice. A hint. Requires: nothing is stored in it any more, until
    /// it is populated again.
    fn release(&self, offset: u64, len: u64);
    /// Whether a slice that was handed out, or a part of it, still lives, so that the file must not be
    /// reused. Empty slices don't count. Requires: no `slice` runs meanwhile.
    fn is_shared(&self) -> bool;
}

/// A thread that can be waited for.
pub type JoinHandle = std::thread::JoinHandle<()>;

/// How a thread shares the processors with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Like the caller's: somebody waits for it, or soon would.
    Normal,
    /// A tenth of that (`SCHED_BATCH`, nice 10): work that has to keep up, but not at once.
    Low,
    /// A seventieth (`SCHED_BATCH`, nice 19): what can be done without.
    Lowest,
}

/// Starts a named thread.
pub fn spawn(
    name: &str,
    priority: Priority,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        match priority {
            Priority::Normal => {}
            Priority::Low => disk::lower_priority(10),
            Priority::Lowest => disk::lower_priority(19),
        }
        body();
    })
}
