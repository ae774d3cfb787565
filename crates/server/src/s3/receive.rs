//! Receives the bytes of an object or a part: checked, hashed and written as they come.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_core::Stream as _;
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use std::future::poll_fn;
use std::pin::Pin;
use tallybook_files::{Stat, WriteOptions, Writer};

use super::checks::Check;
use super::failure::failed;
use super::meta::SavedChecksum;
use super::refusal::Refusal;
use super::shelf::Shelf;
use crate::files::{INTAKE_BYTES, Intake};

/// What is received, and where it goes.
pub(crate) struct Delivery {
    pub(crate) name: String,
    pub(crate) body: Option<StreamingBlob>,
    pub(crate) length: Option<i64>,
    pub(crate) content_md5: Option<String>,
    pub(crate) check: Option<Check>,
}

impl Shelf {
    /// Writes a body to a file. `finish` is called on the pool when all of it has come, with the writer
    /// and the checksum that was right; it sets the attributes and commits.
    pub(crate) async fn receive(
        &self,
        delivery: Delivery,
        options: WriteOptions,
        finish: impl FnOnce(&Shelf, Writer, Option<SavedChecksum>) -> S3Result<Stat> + Send + 'static,
    ) -> S3Result<(Stat, Option<SavedChecksum>)> {
        let Delivery { name, body, length, content_md5, mut check } = delivery;
        let _memory = self.memory.try_take(INTAKE_BYTES).ok_or(Refusal::SLOW_DOWN)?;
        let expects_md5 = content_md5.is_some();
        let options = WriteOptions {
            md5: true,
            md5_expected: content_md5.map(|md5| decode_md5(&md5)).transpose()?,
            size: length.and_then(|length| u64::try_from(length).ok()),
            ..options
        };
        let files = self.files.clone();
        let opened = Intake::open(move || files.writer(&name, options)).await;
        let mut intake = opened.map_err(failed)?;
        if let Some(mut body) = body {
            while let Some(bytes) = poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await {
                let bytes = bytes.map_err(broken)?;
                if let Some(check) = &mut check {
                    check.update(&bytes);
                }
                intake.take(bytes).await.map_err(failed)?;
            }
        }
        let checksum = check.map(Check::finish).transpose()?;
        let saved = checksum.clone();
        let shelf = self.clone();
        let committed = intake.finish(move |writer| finish(&shelf, writer, checksum)).await;
        match committed.map_err(failed)? {
            Ok(stat) => Ok((stat, saved)),
            Err(error) if expects_md5 && *error.code() == S3ErrorCode::InvalidArgument => {
                Err(Refusal::OTHER_MD5.into())
            }
            Err(error) => Err(error),
        }
    }
}

/// What a body that ends in an error means: a wrong chunk signature, a wrong hash, or a client that went.
fn broken(error: s3s::StdError) -> S3Error {
    match error.downcast::<S3Error>() {
        Ok(error) => *error,
        Err(error) => {
            // Their types aren't public.
            let what = error.to_string();
            if what.contains("SignatureMismatch") {
                s3_error!(SignatureDoesNotMatch, "A chunk's signature is not the one calculated.")
            } else if what.contains("Sha256Mismatch") {
                Refusal::OTHER_SHA256.into()
            } else {
                Refusal::INCOMPLETE.into()
            }
        }
    }
}

pub(super) fn decode_md5(text: &str) -> S3Result<[u8; 16]> {
    let invalid = || s3_error!(InvalidDigest, "The Content-MD5 you specified is not valid.");
    let bytes = STANDARD.decode(text).map_err(|_| invalid())?;
    bytes.try_into().map_err(|_| invalid())
}

/// Commits with the gate held, as `hold` answers it, so that what it goes into stays.
pub(crate) fn commit<G>(writer: Writer, hold: impl FnOnce() -> S3Result<G>) -> S3Result<Stat> {
    writer.commit_holding(hold).map_err(failed)?
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;

    /// A wrong signature of a chunk was told as the wrong hash of a body.
    #[test]
    fn end_of_a_body_in_an_error_is_told_by_what_was_wrong() {
        for (what, code, status) in [
            ("AwsChunkedStreamError: SignatureMismatch", "SignatureDoesNotMatch", 403),
            ("UploadStreamError: Sha256Mismatch", "XAmzContentSHA256Mismatch", 400),
            ("AwsChunkedStreamError: Incomplete", "IncompleteBody", 400),
            ("connection reset by peer", "IncompleteBody", 400),
        ] {
            let error = broken(what.into());
            assert_eq!(
                (error.code().as_str(), error.status_code()),
                (code, StatusCode::from_u16(status).ok())
            );
        }
        let own = broken(Box::new(s3_error!(SlowDown)));
        assert_eq!(*own.code(), S3ErrorCode::SlowDown);
    }
}
