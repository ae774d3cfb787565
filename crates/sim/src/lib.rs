//! Test-only: what Tallybook's promises are tried with.
//!
//! A model of the store ([`model`]), operations drawn from a seed ([`generator`]), a runner that
//! makes each operation on both and compares every answer ([`runner`]), and trials that crash the
//! store, fail its file system or damage its files at every point ([`crashes`], [`faults`],
//! [`damage`], [`disk_full`], [`concurrency`]). Every trial answers `Result<(), Violation>`, so that
//! negative controls can assert that a planted bug is found. Nothing that ships imports this crate.
//!
//! A module imports only what stands above it.

pub mod violation;
pub mod random;
pub mod settings;
pub mod record;
pub mod model;
pub mod contents;
pub mod operations;
pub mod generator;
pub mod option_sets;
pub mod medium;
pub mod answers;
pub mod prepared;
pub mod runner;
pub mod workloads;
pub mod recovery;
pub mod crashes;
pub mod faults;
pub mod damage;
pub mod disk_full;
pub mod concurrency;

pub use violation::Violation;
