//! S3 over the file store: path-style buckets and objects, by the `s3s` crate's protocol and signatures.
//!
//! Objects are files under reserved names, so that what holds for files holds for them: there whole or
//! not at all, hashed, verified, unlinked at once. Everything that S3 knows of an object besides its
//! bytes is in the file's attributes. The file store's calls block and are made on the pool.

// What is kept, and under which names.
mod layout;
mod meta;
mod failure;
mod alone;
mod shelf;
// How bytes come and go.
mod checks;
mod receive;
mod send;
// What is asked, by subject.
mod conditions;
mod buckets;
mod objects;
mod copy;
mod listing;
mod multipart;
mod completion;
mod lifecycle;
// The protocol.
mod protocol;
mod refusal;
mod query;
mod signed;
mod guards;
mod chunks;
mod markup;
mod whole;
mod taken;
mod door;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub(crate) use door::Door;
