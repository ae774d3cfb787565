//! The `tallybook` binary, run as its users run it.

mod binary;
mod help;
mod embedded;
mod files;
mod files_remote;
mod files_kills;
mod lab;
mod maintenance;
mod profile;
mod settings;
mod serving;
mod stages;
