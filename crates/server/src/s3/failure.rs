//! The file store's errors as S3 has them. What is the store's fault is logged here; what is said and
//! logged names no key.

use hyper::StatusCode;
use s3s::{S3Error, S3ErrorCode, s3_error};
use tallybook_files::Error;
use tokio::task::JoinError;

use super::refusal::Refusal;

/// The answer to an error of the file store.
pub(crate) fn failed(error: Error) -> S3Error {
    use tallybook::Error as Engine;
    match &error {
        Error::Conflict { .. } => s3_error!(
            PreconditionFailed,
            "At least one of the pre-conditions you specified did not hold"
        ),
        Error::NotFound { .. } => s3_error!(NoSuchKey, "The specified key does not exist."),
        Error::InvalidArgument(what) => {
            S3Error::with_message(S3ErrorCode::InvalidArgument, what.clone())
        }
        Error::Engine(Engine::Busy) => Refusal::SLOW_DOWN.into(),
        Error::Engine(Engine::ReadOnly { .. }) => {
            tracing::warn!(%error, "write refused");
            s3_error!(ServiceUnavailable, "The store takes no writes until it is reopened.")
        }
        Error::BucketFull { .. } | Error::Engine(Engine::NoSpace { .. }) => {
            tracing::warn!(%error, "write refused");
            full()
        }
        Error::Damaged { offset, what, .. } => {
            tracing::error!(offset, what, "a damaged object was asked for");
            damaged()
        }
        _ => {
            tracing::error!(%error, "the file store failed");
            s3_error!(InternalError, "The file store failed this operation.")
        }
    }
}

fn full() -> S3Error {
    let mut error = S3Error::with_message(
        S3ErrorCode::Custom("InsufficientStorage".into()),
        "The file store is full; nothing was written.",
    );
    error.set_status_code(StatusCode::INSUFFICIENT_STORAGE);
    error
}

/// The answer to damage.
pub(crate) fn damaged() -> S3Error {
    s3_error!(InternalError, "The stored data is damaged and was not returned.")
}

/// The answer when what was done on the pool panicked.
pub(crate) fn panicked(_: JoinError) -> S3Error {
    s3_error!(InternalError, "The request failed for an unexpected reason.")
}
