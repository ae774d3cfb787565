//! Why a run could not be made, or doesn't count.

use std::io;

/// The outcome of something that may fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a run could not be made, or doesn't count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that isn't known; the known ones are told.
    #[error("{what} {name:?} is not known; known are: {}", known.join(", "))]
    Unknown {
        /// What kind of thing was named: `workload`, `experiment`, `target`.
        what: &'static str,
        /// The name that was given.
        name: String,
        /// Every name of that kind.
        known: Vec<String>,
    },
    /// A setting that makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A directory whose runs others would have to be made in turn with: it is added to no more.
    #[error("{0}")]
    Refused(String),
    /// A value or head that isn't what was written: a failed run, never a statistic.
    #[error("wrong data: {0}")]
    WrongData(String),
    /// The target died, refused, or could not be reached.
    #[error("{target}: {what}")]
    Target {
        /// Which target.
        target: String,
        /// What it said or did.
        what: String,
    },
    /// The disk is too small for what was asked.
    #[error("{what} needs about {needed_bytes} bytes on disk; {available_bytes} are free")]
    NoSpace {
        /// What was to be run.
        what: String,
        /// How much it takes.
        needed_bytes: u64,
        /// How much there is.
        available_bytes: u64,
    },
    /// A file or a process.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The run was interrupted; what it did so far is kept.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An `Io` for `map_err`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
