//! Replies: the headers that describe an entry, and errors as statuses with a JSON body.
//!
//! A reply reuses the header map its request came in, so that hyper finds room in it for the next
//! request. A 400 closes the connection: what follows on it may not be what the client meant. A 403 does, as
//! those of the filter do.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, RETRY_AFTER,
};
use hyper::{HeaderMap, Response, StatusCode};
use tallybook::head::Head;

use crate::body::Body;
use crate::conditions::write_tag;

pub(crate) const VERSION: HeaderName = HeaderName::from_static("x-tallybook-version");
pub(crate) const WRITTEN_AT: HeaderName = HeaderName::from_static("x-tallybook-written-at");
pub(crate) const EXPIRES_AT: HeaderName = HeaderName::from_static("x-tallybook-expires-at");
pub(crate) const CHECKSUM: HeaderName = HeaderName::from_static("x-tallybook-checksum");
pub(crate) const ATTRIBUTES: HeaderName = HeaderName::from_static("x-tallybook-attributes");
pub(crate) const DURABILITY: HeaderName = HeaderName::from_static("x-tallybook-durability");
pub(crate) const TTL_MS: HeaderName = HeaderName::from_static("x-tallybook-ttl-ms");

/// Type of a value: never sniffed as a page.
pub(crate) const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// Type of error bodies and figures.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Type of a listing.
pub(crate) const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// A reply that is ready.
pub(crate) type Reply = Response<Body>;

/// A refusal that needs nothing but its words: status, kind, message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) message: &'static str,
}

/// 400.
pub(crate) const fn bad_request(message: &'static str) -> Problem {
    Problem { status: StatusCode::BAD_REQUEST, kind: "bad_request", message }
}

/// 401, of the admin listener.
pub(crate) const UNAUTHORIZED: Problem = Problem {
    status: StatusCode::UNAUTHORIZED,
    kind: "unauthorized",
    message: "this listener wants the admin token, as Bearer or as the password of Basic",
};
/// 404.
pub(crate) const NOT_FOUND: Problem =
    Problem { status: StatusCode::NOT_FOUND, kind: "not_found", message: "the key is absent" };
/// 408, by whoever notices that a request stands still.
pub(crate) const TIMED_OUT: Problem = Problem {
    status: StatusCode::REQUEST_TIMEOUT,
    kind: "timeout",
    message: "the rest of the request did not come in time",
};
/// 412 of a read.
pub(crate) const PRECONDITION: Problem = Problem {
    status: StatusCode::PRECONDITION_FAILED,
    kind: "conflict",
    message: "the condition does not hold",
};
/// 413.
pub(crate) const TOO_LARGE: Problem = Problem {
    status: StatusCode::PAYLOAD_TOO_LARGE,
    kind: "too_large",
    message: "the body is longer than the limit",
};
/// 503 of the engine.
pub(crate) const STALLED: Problem = Problem {
    status: StatusCode::SERVICE_UNAVAILABLE,
    kind: "busy",
    message: "writes are waiting for the disk; retry later",
};
/// 503 of the server.
pub(crate) const OVERLOADED: Problem = Problem {
    status: StatusCode::SERVICE_UNAVAILABLE,
    kind: "overloaded",
    message: "too many requests are under way; retry later",
};
/// 503 of a connection that is one too many.
pub(crate) const TOO_MANY_CONNECTIONS: Problem = Problem {
    status: StatusCode::SERVICE_UNAVAILABLE,
    kind: "overloaded",
    message: "too many connections; retry later",
};
/// 503 of a server that ends.
pub(crate) const STOPPING: Problem = Problem {
    status: StatusCode::SERVICE_UNAVAILABLE,
    kind: "draining",
    message: "the server is stopping",
};
/// 500 of a defect.
pub(crate) const INTERNAL: Problem = Problem {
    status: StatusCode::INTERNAL_SERVER_ERROR,
    kind: "internal",
    message: "the request failed for an unexpected reason",
};

/// A reply with these headers and this body.
pub(crate) fn reply(status: StatusCode, headers: HeaderMap, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    *reply.headers_mut() = headers;
    reply
}

/// A reply without a body. `headers` is the request's map, whose room is reused.
pub(crate) fn empty(status: StatusCode, mut headers: HeaderMap) -> Reply {
    headers.clear();
    reply(status, headers, Body::Empty)
}

/// A refusal. A 503 carries `Retry-After`.
pub(crate) fn refuse(headers: HeaderMap, problem: Problem, retry_after: &HeaderValue) -> Reply {
    explain(headers, problem.status, problem.kind, problem.message, retry_after)
}

/// A refusal with a message made for the occasion.
pub(crate) fn explain(
    mut headers: HeaderMap,
    status: StatusCode,
    kind: &str,
    message: &str,
    retry_after: &HeaderValue,
) -> Reply {
    headers.clear();
    headers.insert(CONTENT_TYPE, JSON);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, retry_after.clone());
    }
    if matches!(status, StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN) {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let text = serde_json::json!({ "error": kind, "message": message }).to_string();
    reply(status, headers, Body::Full(Bytes::from(text)))
}

/// In which form a listener's clients read refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As of all requests here.
    Json,
    /// As S3 says it.
    Xml,
}

/// A refusal without a request that is being answered, after which the connection ends.
pub(crate) fn last_words(
    problem: Problem,
    form: Form,
    retry_after: Option<&HeaderValue>,
) -> String {
    let Problem { status, kind, message } = problem;
    let (content_type, body) = match form {
        Form::Json => {
            let body = serde_json::json!({ "error": kind, "message": message });
            ("application/json", body.to_string())
        }
        Form::Xml => {
            let code = match status {
                StatusCode::FORBIDDEN => "AccessDenied",
                StatusCode::REQUEST_TIMEOUT => "RequestTimeout",
                StatusCode::SERVICE_UNAVAILABLE => "SlowDown",
                _ => "InvalidRequest",
            };
            debug_assert!(!message.contains(['<', '&']), "{message:?} would have to be escaped");
            let declaration = r#"<?xml version="1.0" encoding="UTF-8"?>"#;
            let body = format!(
                "{declaration}<Error><Code>{code}</Code><Message>{message}</Message></Error>"
            );
            ("application/xml", body)
        }
    };
    let retry_after = retry_after.and_then(|seconds| seconds.to_str().ok());
    let retry_after =
        retry_after.map_or_else(String::new, |seconds| format!("retry-after: {seconds}\r\n"));
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n{retry_after}\
         connection: close\r\n\r\n{body}",
        body.len()
    )
}

/// 405 with the methods there are.
pub(crate) fn method_not_allowed(headers: HeaderMap, allowed: &'static str) -> Reply {
    let mut reply = explain(
        headers,
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "this path does not take this method",
        &HeaderValue::from_static("0"),
    );
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    reply
}

/// The answer to an engine error, which is logged here if it is the store's fault. What the log and
/// the client are told names files at most, never keys or values.
pub(crate) fn engine_error(
    headers: HeaderMap,
    error: &tallybook::error::Error,
    retry_after: &HeaderValue,
) -> Reply {
    use tallybook::error::Error;
    let explain =
        |status, kind, message: &str| explain(headers, status, kind, message, retry_after);
    match error {
        Error::InvalidArgument(what) => explain(StatusCode::BAD_REQUEST, "invalid_argument", what),
        Error::Conflict { current } => {
            let mut reply = explain(
                StatusCode::PRECONDITION_FAILED,
                "conflict",
                "the condition does not hold; nothing was written",
            );
            if let Some(version) = current {
                let mut tag = Vec::with_capacity(24);
                write_tag(*version, &mut tag);
                insert(reply.headers_mut(), ETAG, Bytes::from(tag));
            }
            reply
        }
        Error::Busy => explain(STALLED.status, STALLED.kind, STALLED.message),
        Error::Longer { .. } => explain(OVERLOADED.status, OVERLOADED.kind, OVERLOADED.message),
        Error::ReadOnly { .. } => {
            tracing::warn!(%error, "write refused");
            explain(
                StatusCode::SERVICE_UNAVAILABLE,
                "read_only",
                "the store takes no writes until it is reopened; whether this one was made is unknown",
            )
        }
        Error::NoSpace { .. } => {
            tracing::warn!(%error, "write refused");
            explain(
                StatusCode::INSUFFICIENT_STORAGE,
                "no_space",
                "the disk is full; the write was not made",
            )
        }
        Error::Corruption { .. } => {
            tracing::error!(%error, "damaged data");
            explain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "corruption",
                "the stored data is damaged and was not returned",
            )
        }
        Error::Io { .. } => {
            tracing::error!(%error, "disk error");
            explain(StatusCode::INTERNAL_SERVER_ERROR, "io_error", "the disk failed this operation")
        }
        _ => {
            tracing::error!(%error, "unexpected engine error");
            explain(INTERNAL.status, INTERNAL.kind, INTERNAL.message)
        }
    }
}

/// Adds the headers that describe an entry, and its entity tag, for who heeds conditions.
pub(crate) fn describe(headers: &mut HeaderMap, head: &Head) {
    let tag = describe_untagged(headers, head);
    insert(headers, ETAG, tag);
}

/// Adds the headers that describe an entry; answers its entity tag. All values are slices of one buffer: one
/// allocation.
pub(crate) fn describe_untagged(headers: &mut HeaderMap, head: &Head) -> Bytes {
    use std::io::Write;
    let mut text = Vec::with_capacity(128 + head.attributes.len() * 4 / 3);
    write_tag(head.version, &mut text);
    let tag_end = text.len();
    let mut field = |arguments: std::fmt::Arguments<'_>| {
        let start = text.len();
        text.write_fmt(arguments).expect("a Vec takes every write");
        start..text.len()
    };
    let written_at = field(format_args!("{}", head.written_at_ms));
    let checksum = field(format_args!("{:08x}", head.checksum));
    let expires_at = head.expires_at_ms.map(|at| field(format_args!("{at}")));
    let attributes = (!head.attributes.is_empty()).then(|| {
        field(format_args!("{}", base64::display::Base64Display::new(&head.attributes, &STANDARD)))
    });
    let text = Bytes::from(text);
    insert(headers, VERSION, text.slice(1..tag_end - 1));
    insert(headers, WRITTEN_AT, text.slice(written_at));
    insert(headers, CHECKSUM, text.slice(checksum));
    if let Some(range) = expires_at {
        insert(headers, EXPIRES_AT, text.slice(range));
    }
    if let Some(range) = attributes {
        insert(headers, ATTRIBUTES, text.slice(range));
    }
    text.slice(..tag_end)
}

/// Announces the length of a value that isn't sent.
pub(crate) fn announce_length(headers: &mut HeaderMap, length: u64) {
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
}

/// Adds a header of text made here. Requires: visible ASCII.
pub(crate) fn insert(headers: &mut HeaderMap, name: HeaderName, text: Bytes) {
    let value = HeaderValue::from_maybe_shared(text).expect("the text is visible ASCII");
    headers.insert(name, value);
}

/// Bytes from base64, strictly; `None` if they aren't.
pub(crate) fn from_base64(text: &[u8]) -> Option<Bytes> {
    STANDARD.decode(text).ok().map(Bytes::from)
}

/// 200 with JSON.
pub(crate) fn json_reply(headers: HeaderMap, value: &serde_json::Value) -> Reply {
    json_text_reply(headers, Bytes::from(value.to_string()))
}

/// 200 with JSON that is written already.
pub(crate) fn json_text_reply(mut headers: HeaderMap, text: Bytes) -> Reply {
    headers.clear();
    headers.insert(CONTENT_TYPE, JSON);
    reply(StatusCode::OK, headers, Body::Full(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::path::Path;
    use tallybook::error::Error;

    #[test]
    fn engine_errors_have_their_statuses() {
        let path = Path::new("/store/000001.journal");
        let io = |kind| Error::io("write", path, io::Error::from(kind));
        for (error, status, kind) in [
            (Error::InvalidArgument("a key has at least 1 byte".into()), 400, "invalid_argument"),
            (Error::Conflict { current: None }, 412, "conflict"),
            (Error::ReadOnly { cause: "sync".into() }, 503, "read_only"),
            (Error::Busy, 503, "busy"),
            (Error::Longer { length: 1 }, 503, "overloaded"),
            (io(io::ErrorKind::StorageFull), 507, "no_space"),
            (Error::corruption(path, 7, "checksum"), 500, "corruption"),
            (io(io::ErrorKind::Other), 500, "io_error"),
            (Error::Locked { path: path.into() }, 500, "internal"),
        ] {
            let reply = engine_error(HeaderMap::new(), &error, &HeaderValue::from_static("2"));
            assert_eq!(reply.status(), status);
            assert_eq!(reply.headers().contains_key(RETRY_AFTER), status == 503);
            assert_eq!(reply.headers().contains_key(CONNECTION), status == 400);
            let Body::Full(text) = reply.body() else { panic!("an error has a body") };
            let text: serde_json::Value = serde_json::from_slice(text).unwrap();
            assert_eq!(text["error"], kind);
            assert!(!text["message"].as_str().unwrap().contains("/store"));
        }
    }

    #[test]
    fn entry_is_described_in_headers() {
        let head = Head {
            version: 12,
            length: 5,
            checksum: 0xab,
            written_at_ms: 1000,
            expires_at_ms: Some(2000),
            attributes: Bytes::from_static(b"\x00\xff"),
        };
        let mut headers = HeaderMap::new();
        describe(&mut headers, &head);
        for (name, value) in [
            (ETAG, "\"12\""),
            (VERSION, "12"),
            (WRITTEN_AT, "1000"),
            (CHECKSUM, "000000ab"),
            (EXPIRES_AT, "2000"),
            (ATTRIBUTES, "AP8="),
        ] {
            assert_eq!(headers[name], value);
        }
    }
}
