//! Settings of a store and of single calls, with their defaults and ranges.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tallybook::{Condition, Durability, Reading};

use crate::error::{Error, Result};
use crate::placement::{BUCKETS_MAX, ReferenceId};

/// Most bytes of attributes of one file.
pub const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;

/// What is decided when a store is made, for good.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// Decides where names fall. Default: random.
    pub reference_id: Option<ReferenceId>,
    /// Bytes of a chunk. 64 KiB to 4 MiB, a power of two; default 128 KiB.
    pub chunk_bytes: u32,
    /// Buckets. 1 to 256, a power of two; default 64, which may all be open at once: opening one takes
    /// about 10 ms.
    pub bucket_count: usize,
    /// Most bytes of content in one bucket. At least one chunk; default 128 GiB.
    pub bucket_cap_bytes: u64,
    /// Directories that buckets are placed in, in turn, so that they may be on several disks. A
    /// relative one is inside the store's own. Default: `buckets`.
    pub bucket_dirs: Vec<PathBuf>,
}

impl Default for CreateOptions {
    fn default() -> Self {
        CreateOptions {
            reference_id: None,
            chunk_bytes: 128 << 10,
            bucket_count: 64,
            bucket_cap_bytes: 128 << 30,
            bucket_dirs: vec![PathBuf::from("buckets")],
        }
    }
}

impl CreateOptions {
    /// Refuses settings out of their documented ranges.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::InvalidArgument(what.to_owned()));
        if !self.chunk_bytes.is_power_of_two() || !(64 << 10..=4 << 20).contains(&self.chunk_bytes)
        {
            return refuse("chunk_bytes must be a power of two from 64 KiB to 4 MiB");
        }
        if !self.bucket_count.is_power_of_two() || self.bucket_count > BUCKETS_MAX {
            return refuse("bucket_count must be a power of two from 1 to 256");
        }
        if self.bucket_cap_bytes < u64::from(self.chunk_bytes) {
            return refuse("bucket_cap_bytes must be at least one chunk");
        }
        if self.bucket_dirs.is_empty() || self.bucket_dirs.len() > BUCKETS_MAX {
            return refuse("bucket_dirs must name 1 to 256 directories");
        }
        if self.bucket_dirs.iter().any(|dir| dir.to_str().is_none_or(|dir| dir.len() > 4096)) {
            return refuse("a bucket directory's path must be UTF-8 of at most 4,096 bytes");
        }
        Ok(())
    }
}

/// How an existing store is opened. Every field may change from one open to the next.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Durability of writes that don't name one. Default `Interval(100)`.
    pub durability: Durability,
    /// How chunks are read. Default `Pread`: an I/O error fails that read alone.
    pub reading: Reading,
    /// Most buckets kept open. 1 to 256; default 96.
    pub open_buckets_max: usize,
    /// A bucket is closed when it was not asked for this long. Default 60 s.
    pub idle_close: Duration,
    /// Bytes of a journal segment at first, of which a store of its own has a few. 4 KiB to 1 GiB;
    /// default: 1 MiB in the catalogue, 8 chunks in a bucket (1 to 4 MiB).
    pub segment_bytes_min: Option<u64>,
    /// Free space, sweep and compact buckets and close idle ones in the background. Default true; else
    /// `FileStore::reap` frees, sweeps and compacts.
    pub background: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            durability: Durability::Interval(100),
            reading: Reading::Pread,
            open_buckets_max: 96,
            idle_close: Duration::from_secs(60),
            segment_bytes_min: None,
            background: true,
        }
    }
}

/// How soon what nobody waits for is synced, in milliseconds, where the store's durability is `Sync`.
const UNWAITED_SYNC_MS: u32 = 100;

impl OpenOptions {
    /// Durability of a write that nobody is told of: of a chunk, a note, what the reaper removes. Whoever
    /// acknowledges something syncs what has to be on disk for it.
    pub(crate) fn unwaited(&self) -> Durability {
        match self.durability {
            Durability::Sync => Durability::Interval(UNWAITED_SYNC_MS),
            lazy => lazy,
        }
    }

    /// Refuses settings out of their documented ranges.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::InvalidArgument(what.to_owned()));
        if !(1..=BUCKETS_MAX).contains(&self.open_buckets_max) {
            return refuse("open_buckets_max must be 1 to 256");
        }
        if self.segment_bytes_min.is_some_and(|bytes| !(4 << 10..=1 << 30).contains(&bytes)) {
            return refuse("segment_bytes_min must be 4 KiB to 1 GiB");
        }
        Ok(())
    }
}

/// How a file is written.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// When the commit is acknowledged; `None` is the store's own.
    pub durability: Option<Durability>,
    /// Commit only if this holds of the file that has the name, else `Error::Conflict`. It is looked at
    /// when the writer is made and again, for good, on commit.
    pub condition: Option<Condition>,
    /// Up to 64 KiB of the caller's own bytes.
    pub attributes: Bytes,
    /// Bytes the file will have, where known: room is made sure of at once, and a commit with another
    /// number of bytes is refused.
    pub size: Option<u64>,
    /// Compute the MD5 too.
    pub md5: bool,
    /// What the MD5 must be, else the commit is refused; implies `md5`.
    pub md5_expected: Option<[u8; 16]>,
    /// Another name that stands for nothing from the same step on; it need not be there.
    pub unlinks: Option<String>,
}

/// How a file is read.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The bytes to read, cut at the file's end. `None`: all.
    pub range: Option<Range<u64>>,
    /// Read what is whole of a file that is known to be damaged, instead of refusing it.
    pub salvage: bool,
}

/// How a file is unlinked.
#[derive(Debug, Clone, Default)]
pub struct UnlinkOptions {
    /// When it is acknowledged; `None` is the store's own.
    pub durability: Option<Durability>,
    /// Unlink only if this holds, else `Error::Conflict`.
    pub condition: Option<Condition>,
}

/// How a file is renamed or copied.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// When it is acknowledged; `None` is the store's own.
    pub durability: Option<Durability>,
    /// Go on only if this holds of the file that has the new name, else `Error::Conflict`.
    pub condition: Option<Condition>,
    /// Go on only if this holds of the file that has the old name, else `Error::Conflict`.
    pub source_condition: Option<Condition>,
    /// New attributes; `None` keeps those of the old name.
    pub attributes: Option<Bytes>,
    /// Another name that stands for nothing from the same step on; it need not be there.
    pub unlinks: Option<String>,
}

/// Which names a listing shows.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Only names with this prefix.
    pub prefix: String,
    /// Names that have this after the prefix are rolled up to the part before and with it.
    pub delimiter: Option<String>,
    /// Only names, and rolled-up prefixes, after this one.
    pub after: Option<String>,
    /// Most entries of a page; 0 is 1,000.
    pub limit: usize,
}

/// How much is verified.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// Stop after the first file that brings the bytes read to this many; the next run goes on there.
    /// `None`: everything, from the start.
    pub bytes_max: Option<u64>,
}
