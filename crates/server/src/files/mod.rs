//! The file store over HTTP: `/files/{name}`, and listings at `/files`.
//!
//! The file store's calls block, so each is made on the pool. Bodies stream both ways: a few hundred
//! KiB of a file are in memory at once, whatever its size. Reserved names (see
//! `tallybook_files::placement::is_reserved`) belong to other doors and are refused at this one.

mod intake;
mod list;
mod outlet;
mod read;
mod write;
mod give;
mod verify;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{ACCEPT_RANGES, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode, Uri};
use tallybook_files::placement::{NAME_BYTES_MAX, is_reserved};
use tallybook_files::{Error, Stat, hex};

use crate::api::Api;
use crate::conditions::write_tag;
use crate::engine::Engine;
use crate::query::percent_decode;
use crate::reply::{
    self, ATTRIBUTES, OCTETS, Problem, Reply, VERSION, WRITTEN_AT, bad_request, insert,
};
use crate::scan::BAD_ESCAPE;

pub(crate) use give::give;
pub(crate) use intake::{INTAKE_BYTES, Intake};
#[cfg(feature = "fuzzing")]
pub(crate) use list::{Asked, asked};
pub(crate) use list::{in_slices, list};
pub(crate) use outlet::{Outlet, Unnamed};
pub(crate) use read::{get, head};
pub(crate) use verify::verify;
#[cfg(feature = "fuzzing")]
pub(crate) use write::write_options;
pub(crate) use write::{delete, put};

const BLAKE3: HeaderName = HeaderName::from_static("x-tallybook-blake3");
const MD5: HeaderName = HeaderName::from_static("x-tallybook-md5");
const CHANGED_AT: HeaderName = HeaderName::from_static("x-tallybook-changed-at");

/// Attributes up to this size are in headers.
const ATTRIBUTES_BYTES_MAX: usize = 4 << 10;

/// 404.
const NOT_FOUND: Problem =
    Problem { status: StatusCode::NOT_FOUND, kind: "not_found", message: "there is no such file" };

/// The name in `/files/{name}`, percent-decoded once.
pub(crate) fn name_of(uri: &Uri) -> Result<String, Problem> {
    if uri.query().is_some() {
        // A question mark that was meant as part of the name would silently name another file.
        return Err(bad_request("a name's question mark is written %3F"));
    }
    decode_name(uri.path().strip_prefix("/files/").unwrap_or_default())
}

pub(crate) fn decode_name(raw: &str) -> Result<String, Problem> {
    let name = percent_decode(raw, false).map_err(|_| BAD_ESCAPE)?;
    let name = std::str::from_utf8(&name).map_err(|_| bad_request("a name is UTF-8"))?;
    check_name(name)?;
    Ok(name.to_owned())
}

fn check_name(name: &str) -> Result<(), Problem> {
    match name.len() {
        0 => Err(bad_request("the name is missing or empty")),
        1..=NAME_BYTES_MAX if is_reserved(name) => {
            Err(bad_request("names that start with a NUL are reserved"))
        }
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(bad_request("the name is longer than 1,024 bytes")),
    }
}

/// The answer to an error of the file store, which is logged here if it is the store's fault. What the
/// log and the client are told names no file.
fn file_error<E: Engine>(api: &Api<E>, headers: HeaderMap, error: &Error) -> Reply {
    let retry_after = api.retry_after();
    let explain = |status, kind, message: &str| {
        reply::explain(headers.clone(), status, kind, message, retry_after)
    };
    match error {
        Error::Engine(error) => reply::engine_error(headers, error, retry_after),
        Error::Conflict { current } => {
            let error = tallybook::error::Error::Conflict { current: *current };
            reply::engine_error(headers, &error, retry_after)
        }
        Error::InvalidArgument(what) => explain(StatusCode::BAD_REQUEST, "invalid_argument", what),
        Error::NotFound { .. } => reply::refuse(headers, NOT_FOUND, retry_after),
        Error::Damaged { offset, what, .. } => {
            tracing::error!(offset, what, "a damaged file was asked for");
            let message = "the stored data is damaged and was not returned";
            explain(StatusCode::INTERNAL_SERVER_ERROR, "corruption", message)
        }
        Error::BucketFull { .. } => {
            tracing::warn!(%error, "write refused");
            let message = "the file store is full; the file was not written";
            explain(StatusCode::INSUFFICIENT_STORAGE, "no_space", message)
        }
        _ => {
            tracing::error!(%error, "the file store failed");
            let message = "a part of the file store is lost";
            explain(StatusCode::INTERNAL_SERVER_ERROR, "corruption", message)
        }
    }
}

/// Headers that describe a file, in the request's map.
fn describe(mut headers: HeaderMap, stat: &Stat) -> HeaderMap {
    headers.clear();
    headers.insert(CONTENT_TYPE, OCTETS);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    describe_version(&mut headers, stat);
    if !stat.attributes.is_empty() && stat.attributes.len() <= ATTRIBUTES_BYTES_MAX {
        insert(&mut headers, ATTRIBUTES, Bytes::from(STANDARD.encode(&stat.attributes)));
    }
    headers
}

/// Version, hashes and times.
fn describe_version(headers: &mut HeaderMap, stat: &Stat) {
    let mut tag = Vec::with_capacity(24);
    write_tag(stat.version, &mut tag);
    insert(headers, ETAG, Bytes::from(tag));
    headers.insert(VERSION, HeaderValue::from(stat.version));
    headers.insert(WRITTEN_AT, HeaderValue::from(stat.written_at_ms));
    headers.insert(CHANGED_AT, HeaderValue::from(stat.changed_at_ms));
    insert(headers, BLAKE3, Bytes::from(hex(&stat.blake3)));
    if let Some(md5) = &stat.md5 {
        insert(headers, MD5, Bytes::from(hex(md5)));
    }
}
