//! The dashboard: one page, what it loads, and the figures it asks for every second.
//!
//! Files are compiled in and loaded from this listener alone, which the content security policy makes
//! sure of. Figures are answers to plain requests: nothing is kept for a page that looks on, so one
//! that is slow or gone costs nothing.

mod assets;

use bytes::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{HeaderMap, StatusCode};
use serde::Serialize;

use crate::api::Api;
use crate::body::Body;
use crate::engine::Engine;
use crate::history::{Excerpt, Span};
use crate::query::first;
use crate::reply::{self, JSON, Problem, Reply, bad_request};

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const BAD_SPAN: Problem = bad_request("span is 5m, 1h or 24h");
const BAD_SINCE: Problem = bad_request("since is the number of a row");

/// Whether the page or one of its files has this path.
pub(crate) fn has_file(path: &str) -> bool {
    assets::find(path).is_some()
}

/// The page, or a file of it. Requires: `has_file(path)`.
pub(crate) fn file(path: &str, mut headers: HeaderMap) -> Reply {
    let asset = assets::find(path).expect("the path is one of a file");
    headers.clear();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(asset.policy));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // A new release has a new page; a file of an old one would not fit it.
    guard(&mut headers, "no-cache");
    reply::reply(StatusCode::OK, headers, Body::Full(Bytes::from_static(asset.text.as_bytes())))
}

/// Headers that keep other sites from making use of a reply.
fn guard(headers: &mut HeaderMap, caching: &'static str) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
}

/// What the page asks for: rows it doesn't have yet, and how the server is.
#[derive(Serialize)]
struct Figures<'a> {
    server: ServerState,
    #[serde(flatten)]
    excerpt: &'a Excerpt<'a>,
}

#[derive(Serialize)]
struct ServerState {
    version: &'static str,
    /// Why the server takes no writes, if it takes none.
    read_only: Option<String>,
    is_stopping: bool,
    /// The failure of background work that is being retried.
    background_error: Option<String>,
}

/// `/dashboard.json?span=SPAN&since=NUMBER`: the rows of a span from that number on, in columns.
pub(crate) fn data<E: Engine>(api: &Api<E>, query: Option<&str>, headers: HeaderMap) -> Reply {
    let Some(span) = Span::from_name(first(query, "span").unwrap_or("5m")) else {
        return api.refuse(headers, BAD_SPAN);
    };
    let Ok(since) = first(query, "since").unwrap_or("0").parse() else {
        return api.refuse(headers, BAD_SINCE);
    };
    let server = ServerState {
        version: env!("CARGO_PKG_VERSION"),
        read_only: api.engine.read_only_cause(),
        is_stopping: api.is_draining(),
        background_error: api.history.background_error(),
    };
    let text = api.history.excerpt(span, since, |excerpt| {
        serde_json::to_vec(&Figures { server, excerpt }).expect("figures have string keys")
    });
    let mut headers = headers;
    headers.clear();
    headers.insert(CONTENT_TYPE, JSON);
    guard(&mut headers, "no-store");
    reply::reply(StatusCode::OK, headers, Body::Full(Bytes::from(text)))
}
