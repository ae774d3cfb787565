//! Compaction: merging tables so that reads look in few places and dead bytes go.

pub mod retain;
pub mod output;
pub mod job;
pub mod pick;
