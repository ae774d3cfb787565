//! What can go wrong, sorted by what the caller can do about it.
//!
//! A file that is not there is never an error of `stat`, `reader` or `unlink`; those say so.

use std::path::{Path, PathBuf};

/// The crate's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way a call of a file store can fail.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The engine failed; its error says what can be done.
    Engine(tallybook::Error),
    /// A name, setting or bound is out of its documented range. Fix the call.
    InvalidArgument(String),
    /// The file to rename or copy is not there. Name another.
    NotFound {
        /// Its name.
        name: String,
    },
    /// The condition of a write did not hold; nothing was changed. Look again and decide.
    Conflict {
        /// The file's current version; `None` if it is absent.
        current: Option<u64>,
    },
    /// Part of a file is not what was written. Other files still answer; restore this one.
    Damaged {
        /// The file's name.
        name: String,
        /// Offset in the file of the first byte that cannot be answered.
        offset: u64,
        /// What was found, and where on disk.
        what: String,
    },
    /// The bucket, and every one that its files may spill into, has no room. Unlink files, or make a
    /// store with more room and copy.
    BucketFull {
        /// The bucket that was to take the bytes.
        bucket: u8,
        /// Its cap.
        cap_bytes: u64,
        /// Bytes in it: live, not yet freed, and being written.
        used_bytes: u64,
        /// Bytes that were to be written.
        needed_bytes: u64,
        /// Bytes free in all buckets together.
        free_bytes: u64,
    },
    /// A bucket's directory is gone or cannot be opened, or the one that it is to be made in is gone. Put it
    /// back, or `repair` the store without it; files with no chunk in it still answer.
    BucketLost {
        /// The bucket.
        bucket: u8,
        /// Where it is expected.
        path: PathBuf,
        /// What was found there.
        what: String,
    },
    /// The catalogue is gone or damaged. `repair` makes it anew from the buckets.
    CatalogueLost {
        /// Where it is expected.
        path: PathBuf,
        /// What was found there.
        what: String,
    },
    /// The directory holds no file store, or its description is damaged.
    NotAStore {
        /// The directory.
        path: PathBuf,
        /// What was found there.
        what: String,
    },
}

impl From<tallybook::Error> for Error {
    fn from(error: tallybook::Error) -> Error {
        match error {
            tallybook::Error::InvalidArgument(what) => Error::InvalidArgument(what),
            tallybook::Error::Conflict { current } => Error::Conflict { current },
            other => Error::Engine(other),
        }
    }
}

impl Error {
    /// An error of an engine store that has to be whole: `lost` says so where it isn't. What the disk can't
    /// read this time isn't lost, nor what a newer release wrote: a repair would make the store anew.
    pub(crate) fn of_store(error: tallybook::Error, lost: impl FnOnce(String) -> Error) -> Error {
        match error {
            damage @ tallybook::Error::Corruption { .. } => lost(damage.to_string()),
            other => Error::from(other),
        }
    }

    /// Whether a bucket doesn't open before somebody does something about it: trying again is of no use.
    pub(crate) fn is_put_off(&self) -> bool {
        use tallybook::Error::NewerFormat;
        matches!(self, Error::BucketLost { .. } | Error::Engine(NewerFormat { .. }))
    }

    /// An I/O error of the engine's kind.
    pub(crate) fn io(op: &'static str, path: &Path, source: std::io::Error) -> Error {
        Error::Engine(tallybook::Error::io(op, path, source))
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Engine(error) => error.fmt(f),
            Error::InvalidArgument(what) => write!(f, "invalid argument: {what}"),
            Error::NotFound { name } => write!(f, "there is no file {name:?}"),
            Error::Conflict { current: Some(version) } => {
                write!(f, "condition failed: the file is at version {version}")
            }
            Error::Conflict { current: None } => {
                write!(f, "condition failed: there is no such file")
            }
            Error::Damaged { name, offset, what } => {
                write!(f, "file {name:?} is damaged at byte {offset}: {what}")
            }
            Error::BucketFull { bucket, cap_bytes, used_bytes, needed_bytes, free_bytes } => {
                write!(
                    f,
                    "bucket {bucket} is full: {needed_bytes} bytes don't fit beside {used_bytes} of \
                 {cap_bytes}, and all buckets together have {free_bytes} free"
                )
            }
            Error::BucketLost { bucket, path, what } => {
                write!(f, "bucket {bucket} in {} is lost: {what}", path.display())
            }
            Error::CatalogueLost { path, what } => write!(
                f,
                "the catalogue in {} is lost ({what}); repair makes it anew from the buckets",
                path.display()
            ),
            Error::NotAStore { path, what } => {
                write!(f, "{} holds no file store: {what}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Engine(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}
