//! Tables: immutable sorted files of versions of keys. `docs/format.md` has the bytes.
//!
//! ```text
//! data blocks | range deletions | fences | point index | properties | footer
//! ```
//!
//! [`TableBuilder`] writes one from front to back; [`Table`] answers look-ups from it, [`TableIter`]
//! walks it. Invariant: a table never changes once it was finished. Which tables there are, and what
//! their entries mean together, is not known here.

mod frame;
mod footer;
mod block;
mod block_builder;
mod point_index;
mod sorted_words;
mod fences;
mod range_deletions;
mod properties;
mod builder;
mod source;
mod reader;
mod iter;
mod expiry;
mod unreadable;
mod verify;
mod salvage;
mod inspect;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod tests;

pub use builder::{BuildTimes, BuiltTable, TableBuilder, TableBuilderOptions};
pub use inspect::inspect;
pub use iter::TableIter;
pub(crate) use point_index::{Candidates, PointIndex};
pub use properties::{Properties, SegmentRef};
pub use reader::Table;
pub use salvage::SalvagedTable;
pub use verify::Damage;
