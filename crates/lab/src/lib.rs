//! The laboratory: loads stores, times them from outside, compares them, and writes down the answer.
//!
//! A [`spec::Spec`] says what is asked, a [`target::Target`] of what it is asked, a
//! [`record::Record`] what came of it: one line of `runs.jsonl`. An experiment is a question with a
//! varied parameter: it makes runs and draws a report from their records, and from nothing else.
//! Modules are listed from the ground up: a module imports only what stands above it.

// Vocabulary: what is asked, what came of it, and both in bytes.
pub mod error;
pub mod keys;
pub mod spec;
pub mod record;
pub mod values;
pub mod json_lines;
// The machine and its processes.
pub mod machine;
pub mod process;
// What is loaded.
pub mod target;
// What can be said of repeated runs.
pub mod statistics;
// What the machine can do, whatever is loaded.
pub mod limits;
// Loading it.
pub mod workload;
pub mod load;
pub mod run;
pub mod runs_file;
// Targets in processes of their own.
pub mod child;
pub mod files;
pub mod bare;
// What came of it, drawn and told.
pub mod chart;
pub mod report;
pub mod history;
// Questions, and the runs that answer them.
pub mod experiment;

pub use error::{Error, Result};
