//! Preconditions of S3 requests, by entity tag and time, and what the file store is to check for them.

use hyper::header::{ETAG, HeaderName, HeaderValue, LAST_MODIFIED};
use hyper::{HeaderMap, StatusCode};
use s3s::dto::{ETagCondition, Timestamp, TimestampFormat};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use tallybook_files::Condition;

use super::meta::{Object, millis};
use crate::conditions::if_range_holds;

/// The conditions of a read.
#[derive(Default)]
pub(crate) struct ReadConditions {
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
    pub(crate) if_modified_since: Option<Timestamp>,
    pub(crate) if_unmodified_since: Option<Timestamp>,
}

fn is_named(condition: &ETagCondition, object: &Object) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(tag) => tag.value() == object.etag(),
    }
}

/// 412.
pub(crate) fn precondition_failed() -> S3Error {
    s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold")
}

fn tag_header(object: &Object) -> Option<HeaderValue> {
    object.tag().to_http_header().ok()
}

fn time_header(object: &Object) -> Option<HeaderValue> {
    let mut at = Vec::new();
    object.last_modified().format(TimestampFormat::HttpDate, &mut at).ok()?;
    HeaderValue::from_bytes(&at).ok()
}

/// 304, which says of what: a client renews by it what it has.
fn not_modified(object: &Object) -> S3Error {
    let mut headers = HeaderMap::new();
    headers.extend(tag_header(object).map(|tag| (ETAG, tag)));
    headers.extend(time_header(object).map(|at| (LAST_MODIFIED, at)));
    let mut error = S3Error::new(S3ErrorCode::NotModified);
    error.set_status_code(StatusCode::NOT_MODIFIED);
    error.set_headers(headers);
    error
}

impl ReadConditions {
    /// A tag goes before the time beside it (RFC 9110, section 13.2.2).
    pub(crate) fn check(&self, object: &Object) -> S3Result<()> {
        let seconds = |at_ms: u64| at_ms / 1000;
        let changed = seconds(object.stat.changed_at_ms);
        match (&self.if_match, &self.if_unmodified_since) {
            (Some(tags), _) if !is_named(tags, object) => return Err(precondition_failed()),
            (None, Some(since)) if changed > seconds(millis(since)) => {
                return Err(precondition_failed());
            }
            _ => {}
        }
        match (&self.if_none_match, &self.if_modified_since) {
            (Some(tags), _) if is_named(tags, object) => Err(not_modified(object)),
            (None, Some(since)) if changed <= seconds(millis(since)) => Err(not_modified(object)),
            _ => Ok(()),
        }
    }

    /// The same for the source of a copy, where each failure is a 412.
    pub(crate) fn check_source(&self, object: &Object) -> S3Result<()> {
        self.check(object).map_err(|_| precondition_failed())
    }
}

/// Whether a range of an object may be answered: a client that has a part of another one must get the whole
/// of this. Its `If-Range` is the strong tag or the time that it was told.
pub(crate) fn range_applies(headers: &HeaderMap, object: &Object) -> bool {
    let is_told = |value: Option<HeaderValue>, validator: &str| {
        value.is_some_and(|value| value.as_bytes() == validator.as_bytes())
    };
    if_range_holds(headers, |validator| {
        is_told(tag_header(object), validator) || is_told(time_header(object), validator)
    })
}

/// A condition of a request whose input has no field for it.
pub(crate) fn of_header(headers: &HeaderMap, name: HeaderName) -> S3Result<Option<ETagCondition>> {
    let parse = |value: &HeaderValue| {
        ETagCondition::parse_http_header(value.as_bytes())
            .map_err(|_| s3_error!(InvalidArgument, "A condition is an entity tag or *."))
    };
    headers.get(name).map(parse).transpose()
}

/// What the file store is to check when a write commits, unless `current`, which is what is there now, fails it
/// already.
pub(crate) fn for_write(
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
    current: impl FnOnce() -> S3Result<Option<Object>>,
) -> S3Result<Option<Condition>> {
    match (if_match, if_none_match) {
        (None, None) => Ok(None),
        (None, Some(ETagCondition::Any)) => match current()? {
            None => Ok(Some(Condition::Absent)),
            Some(_) => Err(precondition_failed()),
        },
        (Some(tags), None) => match current()? {
            None => Err(s3_error!(NoSuchKey, "The specified key does not exist.")),
            Some(object) if is_named(tags, &object) => {
                Ok(Some(Condition::Version(object.stat.version)))
            }
            Some(_) => Err(precondition_failed()),
        },
        _ => Err(s3_error!(
            NotImplemented,
            "A write takes If-Match with an entity tag, or If-None-Match: *"
        )),
    }
}
