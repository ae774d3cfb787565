//! Stores of files in processes of their own, asked to write, read and unlink one file at a time.
//!
//! ```text
//! lab    {"ask":"open",..}                   {"ask":"write","name":..,"bytes":..,"seed":..}
//! child                    {"tell":"opened"}                                   {"tell":"done","ns":..}
//! ```
//!
//! One question at a time, each answered by one line. The child makes the bytes, takes the time and
//! compares what it reads with what was written; what its process uses is looked at from outside.
//! The same protocol is spoken by `rivals files` and, in JavaScript, by `rivals/kfs/kfs.js`.

mod content;
mod message;
mod target;
mod ours;
mod serve;
mod handle;
mod run;

pub use content::{CHUNK_BYTES, Check, Content};
pub use handle::FilesChild;
pub use message::FilesOpening;
pub use ours::{NAME, memory_bytes_max};
pub use run::{file_name, run};
pub use serve::{serve_files, serve_tallybook};
pub use target::FileTarget;

/// The reference id that every store is made with, so that a name falls into the same bucket in all.
pub const REFERENCE_ID: &str = "adc83b19e793491b1c6ea0fd8b46cd9f32e592fc";
