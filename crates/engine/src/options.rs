//! Settings of a store, with their defaults and ranges.

use std::time::Duration;

use crate::error::{Error, Result};

/// When a write is acknowledged, and so what it survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Survives the process being killed, not the machine.
    Os,
    /// Survives the process being killed at once; a sync is started within this many milliseconds.
    Interval(u32),
    /// Survives power loss: acknowledged after the journal was synced, one sync for a group.
    Sync,
}

/// How table blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Stored as they are; the only form that is read without a copy.
    None,
    /// LZ4 block format: fast both ways.
    Lz4,
    /// Zstandard level 1: smaller, slower.
    Zstd,
}

/// How files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Through memory maps, without a copy. An I/O error in a page fault ends the process (SIGBUS).
    Mapped,
    /// Through `pread` and a block cache. An I/O error fails that read alone.
    Pread,
}

/// How the journal is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalWriting {
    /// `Written` when the store's durability is `Sync`, and on copy-on-write file systems, else `Mapped`.
    Auto,
    /// Stores into a memory map of a preallocated segment: fastest without syncs. On a copy-on-write file
    /// system (btrfs, bcachefs, ZFS, F2FS, NILFS, and who knows below overlayfs or FUSE) a full disk then
    /// ends the process.
    Mapped,
    /// `pwrite` of each group: three times faster under `Sync`, and for file systems that can't map.
    Written,
}

/// Levels of the tree, L0 to L6.
pub const LEVEL_COUNT: usize = 7;

/// Settings of one store. Every field may change from one open to the next.
#[derive(Debug, Clone)]
pub struct Options {
    /// Make the store if the directory holds none. Default true.
    pub create_if_missing: bool,
    /// Refuse to open an existing store. Default false.
    pub error_if_exists: bool,
    /// Durability of writes that don't name one. Default `Interval(100)`.
    pub durability: Durability,
    /// A value of at least this many bytes stays in the journal. 1 to 32,768; default 1,024.
    pub inline_max_bytes: usize,
    /// A memtable is flushed at this size. 4 KiB to 1 GiB; default 64 MiB.
    pub memtable_bytes: usize,
    /// A memtable is flushed when it holds this much of the journal unflushed. Default 256 MiB.
    pub memtable_journal_bytes: u64,
    /// Memory for active and immutable memtables together. Writers are slowed once half of what it leaves
    /// beside one memtable waits to be flushed, and wait when it is used up. Default 256 MiB.
    pub write_buffer_bytes: usize,
    /// Smallest journal segment. Default 4 MiB.
    pub segment_bytes_min: u64,
    /// Largest journal segment but for one that holds a single larger group. Default 64 MiB.
    pub segment_bytes_max: u64,
    /// How the journal is written. Default `Auto`.
    pub journal_writing: JournalWriting,
    /// How files are read. Default `Mapped`.
    pub reading: Reading,
    /// A table block is closed at this size before compression. 256 B to 32 KiB; default 4 KiB.
    pub block_bytes: usize,
    /// A table file is closed at about this size. Default 32 MiB.
    pub table_bytes: u64,
    /// Compression of each level. Default none everywhere.
    pub compression: [Compression; LEVEL_COUNT],
    /// Runs in a level that call for a merge; in L0 four times as many while they are small (decision
    /// 26). 2 to 64; default 8.
    pub level_runs_max: usize,
    /// Most input bytes of one compaction job, as far as file boundaries allow. Default 256 MiB.
    pub compaction_job_bytes_max: u64,
    /// Compact and collect in the background. Default true.
    pub background: bool,
    /// A segment is collected when at most this share of it is live, 0.0 to 1.0; default 0.5. At 0.0 no
    /// live value is ever copied, and only segments without any are freed.
    pub collection_live_ratio: f64,
    /// One operation in so many is timed, 0 for none; `Store::set_sample_every` changes it while the
    /// store is open. To 1,048,576; default 256.
    pub sample_every: u32,
    /// A writer that waits for memory gets `Busy`, or `NoSpace` where flushes lack that, once no memtable was
    /// flushed for this long while it waited. Default 10 s.
    pub stall_deadline: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            create_if_missing: true,
            error_if_exists: false,
            durability: Durability::Interval(100),
            inline_max_bytes: 1024,
            memtable_bytes: 64 << 20,
            memtable_journal_bytes: 256 << 20,
            write_buffer_bytes: 256 << 20,
            segment_bytes_min: 4 << 20,
            segment_bytes_max: 64 << 20,
            journal_writing: JournalWriting::Auto,
            reading: Reading::Mapped,
            block_bytes: 4096,
            table_bytes: 32 << 20,
            compression: [Compression::None; LEVEL_COUNT],
            level_runs_max: 8,
            compaction_job_bytes_max: 256 << 20,
            background: true,
            collection_live_ratio: 0.5,
            sample_every: 256,
            stall_deadline: Duration::from_secs(10),
        }
    }
}

/// L0 collects so many times the runs of other levels, while they are small.
const LEVEL0_RUNS_FACTOR: usize = 4;

impl Options {
    /// Runs of a level that call for a merge whatever they weigh.
    pub(crate) fn runs_max(&self, level: usize) -> usize {
        match level {
            0 => self.level_runs_max * LEVEL0_RUNS_FACTOR,
            _ => self.level_runs_max,
        }
    }

    /// Refuses settings out of their documented ranges.
    pub fn check(&self) -> Result<()> {
        fn within<T: PartialOrd + std::fmt::Display>(
            name: &str,
            value: T,
            min: T,
            max: T,
        ) -> Result<()> {
            if value >= min && value <= max {
                return Ok(());
            }
            Err(Error::InvalidArgument(format!("{name} is {value}, must be {min} to {max}")))
        }
        within("inline_max_bytes", self.inline_max_bytes, 1, 32 << 10)?;
        within("memtable_bytes", self.memtable_bytes, 4 << 10, 1 << 30)?;
        within("memtable_journal_bytes", self.memtable_journal_bytes, 4 << 10, 1 << 40)?;
        within("write_buffer_bytes", self.write_buffer_bytes, self.memtable_bytes, 1 << 40)?;
        within("segment_bytes_min", self.segment_bytes_min, 4 << 10, 1 << 30)?;
        within("segment_bytes_max", self.segment_bytes_max, self.segment_bytes_min, 1 << 30)?;
        within("block_bytes", self.block_bytes, 256, 32 << 10)?;
        within("table_bytes", self.table_bytes, 4 << 10, 64 << 20)?;
        within("level_runs_max", self.level_runs_max, 2, 64)?;
        within("compaction_job_bytes_max", self.compaction_job_bytes_max, 4 << 10, 1 << 40)?;
        within("collection_live_ratio", self.collection_live_ratio, 0.0, 1.0)?;
        within("sample_every", self.sample_every, 0, 1 << 20)?;
        Ok(())
    }
}
