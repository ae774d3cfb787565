//! The journal: the log every write goes to first, and the home of large values for good.
//!
//! One stream of records over many segment files; a position in it is an LSN, a byte count. The
//! bytes are in `docs/format.md`. Writers go through [`JournalWriter`] under the store's commit lock
//! and wait in [`SyncState`]; readers hold [`Segment`]s; [`recover`] replays; [`SegmentPool`] makes
//! and reuses files. Which segments are live is known to the manifest only.

pub mod record;
pub mod group_meta;
pub mod changes;
pub mod group;
pub mod segment_header;
mod backed;
pub mod segment;
mod sequence;
mod making;
pub mod spares;
mod gathering;
pub mod sync;
pub mod writer;
pub mod reader;
mod survey;
mod settle;
pub mod recovery;
mod collected_index;
pub mod collected;
pub mod verify;
mod salvage;
pub mod inspect;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unsynced_front_tests;

pub use changes::{Change, Changes};
pub use collected::{Collected, CollectedWriter};
pub use collected_index::{CollectedIndex, MovedValues, ValuePlace};
pub use group::PreparedGroup;
pub use inspect::inspect;
pub use making::SegmentOptions;
pub use reader::{Record, SegmentReader, Step};
pub use recovery::{Recovered, Replayed, recover};
pub use salvage::{KnownLog, SalvagedJournal, Told};
pub use segment::{JournalFiles, Segment};
pub use segment_header::{SEGMENT_HEADER_BYTES, SegmentType};
pub use sequence::Sequence;
pub use settle::copy_segment;
pub use spares::SegmentPool;
pub use sync::SyncState;
pub use verify::{SegmentDamage, SegmentReport, verify_segment};
pub use writer::{Appended, JournalPosition, JournalWriter, LogSegment};
