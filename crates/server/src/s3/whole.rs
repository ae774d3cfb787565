//! A body that `s3s` reads whole before it does anything: looked through and hashed as it passes, and compared
//! before its last bytes do. `s3s` itself compares none of its digests, and answers 500 where it fails.

use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use md5::{Digest, Md5};
use s3s::crypto::{Checksum as _, Sha256};
use tallybook_files::hex;

use super::checks::Check;
use super::markup::Markup;
use super::query::names_of;
use super::receive::decode_md5;
use super::refusal::Refusal;

/// The longest such body: 1,000 keys of 1,024 bytes each, every one of them escaped, have less.
pub(crate) const WHOLE_BYTES_MAX: u64 = 8 << 20;

const NO_LENGTH: Refusal = Refusal::new(
    StatusCode::LENGTH_REQUIRED,
    "MissingContentLength",
    "You must provide the Content-Length HTTP header.",
);
const TOO_LONG: Refusal =
    Refusal::bad_request("MaxMessageLengthExceeded", "Your request was too big.");

/// What of such a body has passed.
pub(crate) struct Whole {
    /// Bytes that are still to come. What doesn't say how many may have none.
    left: Option<u64>,
    markup: Markup,
    /// With what is expected, in hex.
    sha256: Option<(Sha256, String)>,
    md5: Option<(Md5, [u8; 16])>,
    check: Option<Check>,
}

impl Whole {
    /// `None` if the body of such a request isn't read whole. One that has no bytes is compared at once.
    pub(crate) fn of(request: &Parts, length: Option<u64>) -> Result<Option<Whole>, Refusal> {
        let (_, has_key) = names_of(request.uri.path());
        let is_post = request.method == Method::POST;
        if !is_post && (request.method != Method::PUT || has_key) {
            return Ok(None);
        }
        if length.is_some_and(|length| length > WHOLE_BYTES_MAX) {
            return Err(TOO_LONG);
        }
        let text = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
        let hash = text("x-amz-content-sha256").unwrap_or("");
        if hash.starts_with("STREAMING-") {
            let what = "Only the bytes of an object may come in aws-chunked frames.";
            return Err(Refusal::not_implemented(what));
        }
        // What is neither is for `s3s` to refuse.
        let is_hash = hash.len() == 64 && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
        let md5 = text("content-md5").map(decode_md5).transpose()?;
        // A checksum that comes with a completion is of the object.
        let is_of_object = is_post && has_key;
        let check = if is_of_object { None } else { Check::of(&request.headers, None)? };
        let mut whole = Whole {
            left: length,
            markup: Markup::default(),
            sha256: is_hash.then(|| (Sha256::new(), hash.to_ascii_lowercase())),
            md5: md5.map(|expected| (Md5::new(), expected)),
            check,
        };
        if length == Some(0) {
            whole.finish()?;
        }
        Ok(Some(whole))
    }

    /// Bytes that are still to come.
    pub(crate) fn left(&self) -> u64 {
        self.left.unwrap_or(0)
    }

    /// Takes bytes before they are passed on, and compares with the last of them.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        if bytes.is_empty() {
            return Ok(());
        }
        let left = self.left.ok_or(NO_LENGTH)?.saturating_sub(bytes.len() as u64);
        self.left = Some(left);
        self.markup.take(bytes)?;
        if let Some((hasher, _)) = &mut self.sha256 {
            hasher.update(bytes);
        }
        if let Some((hasher, _)) = &mut self.md5 {
            Digest::update(hasher, bytes);
        }
        if let Some(check) = &mut self.check {
            check.update(bytes);
        }
        if left == 0 { self.finish() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), Refusal> {
        if self.sha256.take().is_some_and(|(hasher, expected)| hex(&hasher.finalize()) != expected)
        {
            return Err(Refusal::OTHER_SHA256);
        }
        if self.md5.take().is_some_and(|(hasher, expected)| hasher.finalize()[..] != expected) {
            return Err(Refusal::OTHER_MD5);
        }
        self.check.take().map(Check::finish).transpose()?;
        Ok(())
    }
}
