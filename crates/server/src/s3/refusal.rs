//! An answer in S3's words that isn't from `s3s`.

use std::borrow::Cow;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use s3s::{S3Error, S3ErrorCode};

use crate::body::Body;
use crate::reply::Reply;

/// Why a request isn't done. Neither text has anything of the request, nor what XML would escape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: Cow<'static, str>,
    message: Cow<'static, str>,
}

impl Refusal {
    pub(crate) const SLOW_DOWN: Refusal = Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "SlowDown",
        "Please reduce your request rate.",
    );
    pub(crate) const INCOMPLETE: Refusal =
        Refusal::bad_request("IncompleteBody", "The body is incomplete or malformed.");
    pub(crate) const OTHER_MD5: Refusal = Refusal::bad_request(
        "BadDigest",
        "The Content-MD5 you specified did not match what we received.",
    );
    pub(crate) const OTHER_SHA256: Refusal = Refusal::bad_request(
        "XAmzContentSHA256Mismatch",
        "The x-amz-content-sha256 you specified did not match what we received.",
    );

    pub(crate) const fn new(
        status: StatusCode,
        code: &'static str,
        message: &'static str,
    ) -> Refusal {
        Refusal { status, code: Cow::Borrowed(code), message: Cow::Borrowed(message) }
    }

    pub(crate) const fn bad_request(code: &'static str, message: &'static str) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(crate) const fn not_implemented(message: &'static str) -> Refusal {
        Refusal::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
    }

    pub(crate) fn answer(&self) -> Reply {
        let (code, message) = (&self.code, &self.message);
        let text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <Error><Code>{code}</Code><Message>{message}</Message></Error>"
        );
        let mut reply = Response::new(Body::Full(Bytes::from(text)));
        *reply.status_mut() = self.status;
        reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        reply
    }
}

impl From<Refusal> for S3Error {
    fn from(refusal: Refusal) -> S3Error {
        let Refusal { status, code, message } = refusal;
        let code = S3ErrorCode::from_bytes(code.as_bytes()).unwrap_or(S3ErrorCode::InternalError);
        let mut error = S3Error::with_message(code, message);
        error.set_status_code(status);
        error
    }
}

impl From<S3Error> for Refusal {
    fn from(error: S3Error) -> Refusal {
        Refusal {
            status: error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code: error.code().as_str().to_owned().into(),
            message: error.message().unwrap_or("").to_owned().into(),
        }
    }
}
