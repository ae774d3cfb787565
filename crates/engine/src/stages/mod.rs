//! The books: how long each stage of each read and write took, and where reads ended.
//!
//! A [`Recorder`] belongs to one store. One operation in `sample_every` is timed, chosen at random
//! so that no rhythm of the load hides from it; counts of exits are always complete. Each thread
//! writes to a shard of its own; looking merges the shards. [`Trace`] is one operation's pen.

mod disk_waits;
mod recorder;
mod report;
mod stage;
mod stopwatch;

pub use disk_waits::DiskWaits;
pub use recorder::{Recorder, Trace};
pub use report::{Distribution, StageSums, Stages, Summary};
pub use stage::{Exit, Stage};
pub use stopwatch::Stopwatch;
