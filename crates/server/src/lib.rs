//! Tallybook over HTTP/1.1: key-value requests in, engine calls out.
//!
//! Modules are listed from the ground up: a module imports only what stands above it. A runtime
//! thread never waits for the disk: what would wait goes to a bounded pool. Keys and values never
//! reach a log or an error message.

// Vocabulary.
mod error;
mod clock;
mod token;
mod options;
mod engine;
mod ticker;
mod admission;
mod value_memory;
mod meter;
mod process;
mod snapshot;
mod history;
// Profiles of the process: no HTTP.
pub mod profile;
// What is read from a request.
mod query;
mod conditions;
mod byte_range;
// What is written in a reply.
pub mod json;
mod body;
mod reply;
// One connection: bytes checked under hyper.
mod link;
mod strict;
// Requests.
mod api;
mod read;
mod write;
mod batch;
mod upload;
mod stream;
mod scan;
mod files;
mod s3;
mod health;
mod admin;
mod service;
// What is written down of it all.
mod books;
// Connections, threads, the server.
mod watchdog;
mod connection;
mod worker;
mod server;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;

pub use engine::{Engine, KeyValues};
pub use error::{Error, Result};
pub use options::{DurabilityLevel, Limits, S3Credentials, S3Options, ServerOptions, Timeouts};
pub use server::{Server, ShutdownHandle};
pub use token::AdminToken;
