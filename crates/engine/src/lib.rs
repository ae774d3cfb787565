//! Tallybook: a persistent key-value store that keeps its own books.
//!
//! Every write goes once into a journal; keys are found through a log-structured merge tree; large
//! values stay in the journal. The modules below are listed from the ground up: a module imports
//! only what stands above it.

// Vocabulary: what bytes and words mean.
pub mod error;
pub mod coding;
pub mod checksum;
pub mod salt;
pub mod key;
pub mod head;
pub mod options;
pub mod batch;
pub mod fault_points;
// The operating system: the only place that touches files, time and threads.
pub mod vfs;
pub mod file_name;
// The books: what is timed and counted.
pub mod waits;
pub mod stages;
pub mod lock;
// Reading sorted things.
pub mod range_tombstone;
pub mod iter;
#[cfg(test)]
mod test_fs;
// File formats: bytes in, bytes out; no threads, no state of a store.
pub mod file_cache;
pub mod recent_keys;
mod block_memory;
pub mod block_cache;
pub mod journal;
pub mod sstable;
// State.
pub mod memtable;
pub mod obsolete;
pub mod version;
pub mod manifest;
// Background work: each a function from state to work.
pub mod compaction;
pub mod collection;
pub mod stall;
pub mod resources;
// The store.
pub mod store;
pub mod inspect;
pub mod salvage;

pub use batch::WriteBatch;
pub use error::{Error, Result};
pub use head::Head;
pub use key::SeqNo;
pub use options::{Compression, Durability, JournalWriting, Options, Reading};
pub use resources::{ResourceOptions, Resources};
pub use stages::{Exit, Stage, Stages};
pub use store::{
    Condition, Cursor, Damage, KeyHead, KeyValue, LevelStats, Range, RangeHeads, ReadOptions,
    ScanOptions, Snapshot, Stats, Store, ValueRef, VerifyReport, WriteOptions,
};
