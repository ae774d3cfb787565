//! The `tallybook` binary, run as its users run it.

mod binary;
mod help;
mod embedded;
mod maintenance;
mod settings;
mod serving;
mod stages;
