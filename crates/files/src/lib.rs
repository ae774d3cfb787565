//! Files of any size in Tallybook stores.
//!
//! A file store is a directory of buckets, each an engine store with a size cap, and a catalogue of
//! names. A file is cut into chunks; the hash of its name says in which bucket they go. A file is
//! there whole or not at all. The modules below are listed from the ground up: a module imports only
//! what stands above it.

// Vocabulary: what can go wrong, what can be asked, where things go.
pub mod error;
pub mod placement;
pub mod options;
// Formats: bytes in, bytes out.
pub mod record;
pub mod key_layout;
pub mod superblock;
// State: the buckets and the catalogue, and how a change is made to both.
mod buckets;
mod figures;
mod entries;
mod core;
mod change;
mod digest;
// What is asked of a store.
mod sweep;
mod compacting;
mod reaper;
mod writer;
mod reader;
mod names;
mod verify;
mod store;
mod rebuild;
mod takeover;
mod repair;
mod kfs;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use kfs::fuzzing;

pub use error::{Error, Result};
pub use figures::{BucketTotals, Totals};
pub use kfs::{Destination, ImportOptions, ImportProblem, ImportReport, TableFile, import_kfs};
pub use names::{ListEntry, Page};
pub use options::{
    CopyOptions, CreateOptions, ListOptions, OpenOptions, ReadOptions, UnlinkOptions,
    VerifyOptions, WriteOptions,
};
pub use placement::{ReferenceId, hex};
pub use reader::Reader;
pub use reaper::Reaped;
pub use record::Stat;
pub use repair::{RepairOptions, RepairReport};
pub use store::{FileStore, resource_options};
pub use tallybook::{Condition, Durability};
pub use verify::{FileDamage, Verification, VerifyReport};
pub use writer::Writer;
