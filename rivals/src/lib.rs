//! The stores that Tallybook is measured against, behind the laboratory's `Target` and `Session`.
//!
//! Invariant: an engine never acknowledges a write that survives less than the durability it was
//! opened with, unless its settings say so under `survives`. Each engine is used as its own
//! documentation recommends, within the same budget of memory. No load is made and no time taken
//! here: that is the laboratory's.
//! Modules are listed from the ground up: a module imports only what stands above it.

// What the engines share.
mod c_api;
mod stillness;
pub mod options;
// The engines, and their names.
pub mod engines;
// Whether they do as they say.
pub mod selftest;
pub mod killtest;

pub use engines::{NAMES, open, open_files};
