//! Exit codes, and how an error becomes one.
//!
//! Invariant: a code's meaning never changes; scripts depend on it.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use tallybook::error::Error;
use tallybook_files::Error as FilesError;
use tallybook_server::Error as ServerError;

/// How a run of the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It did what was asked.
    Success = 0,
    /// It failed for a reason that has no code of its own.
    Failure = 1,
    /// Arguments, settings or a key are not acceptable.
    Usage = 2,
    /// The key has no value, or there is no file of the name.
    KeyNotFound = 3,
    /// Another process has the store open.
    Locked = 4,
    /// Bytes on disk are not what was written.
    Corruption = 5,
    /// The condition of a conditional write did not hold.
    ConditionFailed = 6,
    /// The file store, or the disk it is on, has no room for the file.
    Full = 7,
    /// An experiment was interrupted, and what it did is kept.
    Interrupted = 130,
}

/// The codes as `--help` prints them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  failure
  2  usage: an argument, a setting or a key is not acceptable
  3  the key was not found, or there is no file of the name
  4  the store is open in another process
  5  corruption was found
  6  the condition of a conditional write did not hold
  7  the file store or its disk is full (files)
  130, 143  ended at once by a second SIGINT, SIGTERM (serve)
  130  interrupted; what was done is kept (lab run)";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Something the caller can put right by asking differently.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// A server did not do what was asked.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The code that the same failure has on a store of one's own.
    pub(crate) exit: Exit,
    /// What it said.
    pub(crate) message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

/// Marks an `io::Error` as "nobody reads our standard output any more", which is no failure.
#[derive(Debug)]
pub(crate) struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for OutputClosed {}

/// Says something on standard error. Where nobody hears it, what is said by the exit code holds none the less.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says what went wrong on standard error and answers the exit code for it.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    if error.chain().any(is_output_closed) {
        return Exit::Success;
    }
    say(format_args!("tallybook: {}", one_line(error)));
    error.chain().find_map(code_of).unwrap_or(Exit::Failure)
}

/// How a check ended that found what `exit` says. That its findings couldn't be printed, or that nobody read
/// on, matters only where there are none.
pub(crate) fn found(exit: Exit, printed: anyhow::Result<()>) -> anyhow::Result<Exit> {
    match printed {
        Err(error) if exit != Exit::Success => {
            report(&error);
            Ok(exit)
        }
        printed => printed.map(|()| exit),
    }
}

/// The chain of causes, without those that the message before already ends with.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.ends_with(&cause) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&cause);
    }
    line
}

fn is_output_closed(cause: &(dyn std::error::Error + 'static)) -> bool {
    let io_error = cause.downcast_ref::<io::Error>();
    io_error.and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<OutputClosed>())
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if cause.is::<UsageError>() {
        return Some(Exit::Usage);
    }
    if let Some(refused) = cause.downcast_ref::<Refused>() {
        return Some(refused.exit);
    }
    if let Some(error) = cause.downcast_ref::<ServerError>() {
        return Some(match error {
            ServerError::InvalidOption(_)
            | ServerError::Insecure { .. }
            | ServerError::NoAdminToken { .. }
            | ServerError::NoS3Credentials { .. } => Exit::Usage,
            _ => Exit::Failure,
        });
    }
    if let Some(error) = cause.downcast_ref::<FilesError>() {
        return Some(match error {
            FilesError::Engine(Error::NoSpace { .. }) | FilesError::BucketFull { .. } => Exit::Full,
            FilesError::Engine(error) => code_of_engine(error),
            FilesError::InvalidArgument(_) => Exit::Usage,
            FilesError::NotFound { .. } => Exit::KeyNotFound,
            FilesError::Conflict { .. } => Exit::ConditionFailed,
            FilesError::Damaged { .. }
            | FilesError::BucketLost { .. }
            | FilesError::CatalogueLost { .. } => Exit::Corruption,
            _ => Exit::Failure,
        });
    }
    Some(code_of_engine(cause.downcast_ref::<Error>()?))
}

fn code_of_engine(error: &Error) -> Exit {
    match error {
        Error::InvalidArgument(_) | Error::NewerFormat { .. } => Exit::Usage,
        Error::Locked { .. } => Exit::Locked,
        Error::Corruption { .. } => Exit::Corruption,
        Error::Conflict { .. } => Exit::ConditionFailed,
        _ => Exit::Failure,
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use anyhow::Context;

    use super::*;

    fn exit_of(error: Error) -> Exit {
        let wrapped = Err::<(), _>(error).context("while testing").unwrap_err();
        report(&wrapped)
    }

    #[test]
    fn engine_errors_have_codes_of_their_own() {
        assert_eq!(exit_of(Error::InvalidArgument("x".into())), Exit::Usage);
        assert_eq!(exit_of(Error::NewerFormat { file: "f".into(), version: 9 }), Exit::Usage);
        assert_eq!(exit_of(Error::Locked { path: PathBuf::new() }), Exit::Locked);
        assert_eq!(exit_of(Error::corruption(Path::new("f"), 0, "x")), Exit::Corruption);
        assert_eq!(exit_of(Error::Conflict { current: None }), Exit::ConditionFailed);
        assert_eq!(exit_of(Error::Busy), Exit::Failure);
    }

    #[test]
    fn closed_output_is_no_failure_even_inside_an_engine_error() {
        let closed = io::Error::new(io::ErrorKind::BrokenPipe, OutputClosed);
        assert_eq!(exit_of(Error::io("write", Path::new("-"), closed)), Exit::Success);
        let other = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(exit_of(Error::io("write", Path::new("-"), other)), Exit::Failure);
    }

    #[test]
    fn what_was_found_outranks_that_it_could_not_be_printed() {
        let closed = || Err(io::Error::new(io::ErrorKind::BrokenPipe, OutputClosed).into());
        assert_eq!(found(Exit::Corruption, closed()).unwrap(), Exit::Corruption);
        assert_eq!(found(Exit::Corruption, Ok(())).unwrap(), Exit::Corruption);
        assert_eq!(found(Exit::Success, Ok(())).unwrap(), Exit::Success);
        assert!(found(Exit::Success, closed()).is_err());
    }

    #[test]
    fn a_cause_is_not_said_twice() {
        let cause = io::Error::other("the cause");
        let error = anyhow::Error::new(Error::io("read", Path::new("f"), cause)).context("outer");
        assert_eq!(one_line(&error), "outer: cannot read f: the cause");
    }
}
