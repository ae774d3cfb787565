//! What can go wrong, sorted by what the caller can do about it.
//!
//! An absent key is never an error; it is `Ok(None)`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The engine's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way an engine call can fail.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation. Retry if `source` is transient; the store is unharmed.
    Io {
        /// The operation, e.g. `"read"`.
        op: &'static str,
        /// The file it was for.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Bytes on disk are not what was written. The data named is unreadable; the rest of the store still answers.
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// Byte offset of the damaged unit in it.
        offset: u64,
        /// What was found.
        what: String,
    },
    /// The file is sound, and of a format version that this release doesn't know. Open the store with a newer one.
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// Its format version.
        version: u32,
    },
    /// A key, value, option or bound is out of its documented range. Fix the call.
    InvalidArgument(String),
    /// Another process, or another `Store` in this one, has the directory open. Close that one.
    Locked {
        /// The store's directory.
        path: PathBuf,
    },
    /// Writing is over until the store is reopened, because a sync failed, or a write or rename of the manifest,
    /// and what of it is on disk is unknown. Reads still answer. Reopen.
    ReadOnly {
        /// What ended writing.
        cause: String,
    },
    /// The disk or a limit on it is full; the write was not made. Free space, then retry: the store heals by itself.
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// The condition of a conditional write did not hold; nothing was written. Read again and decide.
    Conflict {
        /// The key's current version; `None` if it is absent.
        current: Option<u64>,
    },
    /// The disk has made no progress for the stall deadline; nothing was written. Retry later.
    Busy,
    /// The answer would have to wait for the disk, and the caller asked not to wait. Ask again, waiting.
    WouldWait,
    /// The value is longer than the caller asked for, and was not read. Ask again, for so much.
    Longer {
        /// Bytes of the value.
        length: u64,
    },
}

impl Error {
    /// Whether something could not be read, or is not what was written.
    pub fn is_damage(&self) -> bool {
        match self {
            Error::Corruption { .. } | Error::Io { op: "read", .. } => true,
            Error::Io { op: "open", source, .. } => !lacks_means(source),
            _ => false,
        }
    }

    /// The file that it is about.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Error::Corruption { file, .. } | Error::Io { path: file, .. } => Some(file),
            _ => None,
        }
    }

    /// An `Io` or, where the system says that space is out, a `NoSpace` error.
    pub fn io(op: &'static str, path: &Path, source: io::Error) -> Error {
        match source.kind() {
            // After a failed sync the outcome of writes is unknown, whatever the reason.
            _ if op == "sync" => Error::Io { op, path: path.to_owned(), source: Arc::new(source) },
            _ if lacks_space(&source) => Error::NoSpace { path: path.to_owned() },
            io::ErrorKind::WouldBlock if op == "read" => Error::WouldWait,
            _ => Error::Io { op, path: path.to_owned(), source: Arc::new(source) },
        }
    }

    /// An error of syncing a file that nobody needs yet, and that goes for it: a lack of space is `NoSpace`.
    pub(crate) fn of_first_sync(path: &Path, source: io::Error) -> Error {
        Error::io(if lacks_space(&source) { "write" } else { "sync" }, path, source)
    }

    /// An error of opening a file that a store names: where it is missing, that is damage.
    pub fn of_opening(path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::NotFound => {
                Error::corruption(path, 0, "missing, though the store names it")
            }
            _ => Error::io("open", path, source),
        }
    }

    /// A `Corruption` error.
    pub fn corruption(file: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corruption { file: file.to_owned(), offset, what: what.into() }
    }
}

/// Whether the system could open no file now, whichever it is.
fn lacks_means(error: &io::Error) -> bool {
    let lacks_handles = [libc::EMFILE, libc::ENFILE].map(Some).contains(&error.raw_os_error());
    lacks_handles || error.kind() == io::ErrorKind::OutOfMemory
}

/// Whether the system refused something for want of space.
fn lacks_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Io { op, path, source } => {
                write!(f, "cannot {op} {}: {source}", path.display())
            }
            Error::Corruption { file, offset, what } => {
                write!(f, "corruption in {} at byte {offset}: {what}", file.display())
            }
            Error::NewerFormat { file, version } => write!(
                f,
                "{} has the newer format version {version}; open the store with a newer release",
                file.display()
            ),
            Error::InvalidArgument(what) => write!(f, "invalid argument: {what}"),
            Error::Locked { path } => {
                write!(f, "store {} is open in another process", path.display())
            }
            Error::ReadOnly { cause } => {
                write!(f, "store is read-only until it is reopened: {cause}")
            }
            Error::NoSpace { path } => write!(f, "no space left to write {}", path.display()),
            Error::Conflict { current: Some(version) } => {
                write!(f, "condition failed: the key is at version {version}")
            }
            Error::Conflict { current: None } => write!(f, "condition failed: the key is absent"),
            Error::Busy => write!(f, "the disk makes no progress; the write was not made"),
            Error::WouldWait => write!(f, "the answer would wait for the disk"),
            Error::Longer { length } => {
                write!(f, "the value has {length} bytes, which is too many")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}
