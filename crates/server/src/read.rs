//! GET and HEAD of one key, by both doors: `/v0/entity` and `/kv/`.
//!
//! The engine is asked on the thread that read the request; only when it would wait for the disk
//! does the request go to the pool. A HEAD never reads a value, and a large value is read only where there
//! is memory for it.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, RANGE};
use hyper::{HeaderMap, StatusCode};
use tallybook::error::{Error, Result};
use tallybook::head::Head;
use tallybook::store::ReadOptions;

use crate::admission::Quota;
use crate::api::{Answer, Api};
use crate::body::Body;
use crate::byte_range::ByteRange;
use crate::conditions::{self, Conditions, Verdict};
use crate::engine::Engine;
use crate::link::Link;
use crate::query::Key;
use crate::reply::{
    self, NOT_FOUND, OCTETS, PRECONDITION, Problem, Reply, announce_length, bad_request, describe,
    describe_untagged,
};
use crate::value_memory::{read_within, shared};

/// `GET /v0/entity`: the raw value and nothing else.
pub(crate) fn get_entity<E: Engine>(
    api: &Arc<Api<E>>,
    link: &Link,
    headers: HeaderMap,
    key: Key,
) -> Answer {
    let memory = &api.quotas_of(link).body_memory;
    let respond = |api: &Api<E>, mut headers: HeaderMap, value: Result<Option<Bytes>>| match value {
        Ok(Some(value)) => {
            headers.clear();
            headers.insert(CONTENT_TYPE, OCTETS);
            reply::reply(StatusCode::OK, headers, Body::Full(value))
        }
        Ok(None) => reply::empty(StatusCode::NOT_FOUND, headers),
        Err(error) => api.engine_error(headers, &error),
    };
    match get_value(&api.engine, memory, &key, false) {
        Err(Error::WouldWait) => {
            let memory = memory.clone();
            api.on_pool(
                move |engine| get_value(engine, &memory, &key, true),
                move |api, value| respond(api, headers, value),
            )
        }
        value => Answer::Ready(respond(api, headers, value)),
    }
}

/// The value of a key, counted if it is large.
fn get_value<E: Engine>(
    engine: &E,
    memory: &Arc<Quota>,
    key: &Key,
    wait: bool,
) -> Result<Option<Bytes>> {
    let (value, share) = read_within(memory, |value_bytes_max| {
        engine.get_with(key.as_slice(), ReadOptions { wait, value_bytes_max })
    })?;
    Ok(value.map(|value| shared(value, share)))
}

/// `HEAD /v0/entity`: what is known of the value, without the headers that conditions and ranges need, as
/// neither is heeded here.
pub(crate) fn head_entity<E: Engine>(api: &Arc<Api<E>>, headers: HeaderMap, key: Key) -> Answer {
    let respond = |api: &Api<E>, mut headers: HeaderMap, head: Result<Option<Head>>| match head {
        Ok(Some(head)) => {
            headers.clear();
            headers.insert(CONTENT_TYPE, OCTETS);
            describe_untagged(&mut headers, &head);
            announce_length(&mut headers, head.length);
            reply::reply(StatusCode::OK, headers, Body::Empty)
        }
        Ok(None) => api.refuse(headers, NOT_FOUND),
        Err(error) => api.engine_error(headers, &error),
    };
    with_head(api, headers, key, respond)
}

/// `HEAD /kv/{key}`, with conditions.
pub(crate) fn head<E: Engine>(api: &Arc<Api<E>>, headers: HeaderMap, key: Key) -> Answer {
    let conditions = match read_conditions(&headers) {
        Ok(conditions) => conditions,
        Err(problem) => return Answer::Ready(api.refuse(headers, problem)),
    };
    let respond = move |api: &Api<E>, headers: HeaderMap, head: Result<Option<Head>>| match head {
        Err(error) => api.engine_error(headers, &error),
        Ok(head) => match conditions.for_read(head.as_ref().map(|head| head.version)) {
            Verdict::Failed => api.refuse(headers, PRECONDITION),
            Verdict::NotModified => not_modified(headers, head),
            Verdict::Proceed => match head {
                None => api.refuse(headers, NOT_FOUND),
                Some(head) => {
                    let mut headers = describe_value(headers, &head);
                    announce_length(&mut headers, head.length);
                    reply::reply(StatusCode::OK, headers, Body::Empty)
                }
            },
        },
    };
    with_head(api, headers, key, respond)
}

/// Asks for a head, on the pool if that would wait, and responds to it.
fn with_head<E: Engine>(
    api: &Arc<Api<E>>,
    headers: HeaderMap,
    key: Key,
    respond: impl FnOnce(&Api<E>, HeaderMap, Result<Option<Head>>) -> Reply + 'static,
) -> Answer {
    match api.engine.head_nowait(key.as_slice()) {
        Err(Error::WouldWait) => api.on_pool(
            move |engine| engine.head(key.as_slice()),
            move |api, head| respond(api, headers, head),
        ),
        head => Answer::Ready(respond(api, headers, head)),
    }
}

/// `GET /kv/{key}`, with conditions and ranges.
pub(crate) fn get<E: Engine>(
    api: &Arc<Api<E>>,
    link: &Link,
    headers: HeaderMap,
    key: Key,
) -> Answer {
    let memory = &api.quotas_of(link).body_memory;
    let conditions = match read_conditions(&headers) {
        Ok(conditions) => conditions,
        Err(problem) => return Answer::Ready(api.refuse(headers, problem)),
    };
    match look(&api.engine, memory, &conditions, &key, false) {
        Err(Error::WouldWait) => {
            let (asked, memory) = (conditions.clone(), memory.clone());
            api.on_pool(
                move |engine| look(engine, &memory, &asked, &key, true),
                move |api, seen| value_reply(api, headers, &conditions, seen),
            )
        }
        seen => Answer::Ready(value_reply(api, headers, &conditions, seen)),
    }
}

/// What was seen of a key: nothing, its head alone because the conditions end the matter, or all.
type Seen = Option<(Head, Option<Bytes>)>;

fn look<E: Engine>(
    engine: &E,
    memory: &Arc<Quota>,
    conditions: &Conditions,
    key: &Key,
    wait: bool,
) -> Result<Seen> {
    let key = key.as_slice();
    if !conditions.is_empty()
        && let Some(head) = if wait { engine.head(key) } else { engine.head_nowait(key) }?
        && conditions.for_read(Some(head.version)) != Verdict::Proceed
    {
        return Ok(Some((head, None)));
    }
    let (entry, share) = read_within(memory, |value_bytes_max| {
        engine.get_entry_with(key, ReadOptions { wait, value_bytes_max })
    })?;
    Ok(entry.map(|(head, value)| (head, Some(shared(value, share)))))
}

fn value_reply<E: Engine>(
    api: &Api<E>,
    headers: HeaderMap,
    conditions: &Conditions,
    seen: Result<Seen>,
) -> Reply {
    let seen = match seen {
        Ok(seen) => seen,
        Err(error) => return api.engine_error(headers, &error),
    };
    let version = seen.as_ref().map(|(head, _)| head.version);
    match (conditions.for_read(version), seen) {
        (Verdict::Failed, _) => api.refuse(headers, PRECONDITION),
        (Verdict::NotModified, seen) => not_modified(headers, seen.map(|(head, _)| head)),
        (Verdict::Proceed, None) => api.refuse(headers, NOT_FOUND),
        (Verdict::Proceed, Some((head, value))) => {
            let value = value.expect("the value was read, as the conditions hold");
            part_reply(api, headers, &head, value)
        }
    }
}

/// The value, or the part of it that is asked for.
fn part_reply<E: Engine>(api: &Api<E>, headers: HeaderMap, head: &Head, value: Bytes) -> Reply {
    let range = match headers.get(RANGE).map(HeaderValue::to_str) {
        Some(Ok(range)) if conditions::range_applies(&headers, head.version) => {
            ByteRange::parse(range, value.len())
        }
        _ => ByteRange::Whole,
    };
    let content_range = |headers: &mut HeaderMap, text: String| {
        reply::insert(headers, CONTENT_RANGE, Bytes::from(text));
    };
    match range {
        ByteRange::Whole => {
            reply::reply(StatusCode::OK, describe_value(headers, head), Body::Full(value))
        }
        ByteRange::Part(range) => {
            let mut headers = describe_value(headers, head);
            let text = format!("bytes {}-{}/{}", range.start, range.end - 1, value.len());
            content_range(&mut headers, text);
            reply::reply(StatusCode::PARTIAL_CONTENT, headers, Body::Full(value.slice(range)))
        }
        ByteRange::Unsatisfiable => {
            let problem = Problem {
                status: StatusCode::RANGE_NOT_SATISFIABLE,
                kind: "range_not_satisfiable",
                message: "the range lies beyond the value",
            };
            let mut reply = api.refuse(headers, problem);
            content_range(reply.headers_mut(), format!("bytes */{}", value.len()));
            reply
        }
    }
}

fn read_conditions(headers: &HeaderMap) -> Result<Conditions, Problem> {
    Conditions::from_headers(headers).map_err(|bad| bad_request(bad.0))
}

fn describe_value(mut headers: HeaderMap, head: &Head) -> HeaderMap {
    headers.clear();
    headers.insert(CONTENT_TYPE, OCTETS);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    describe(&mut headers, head);
    headers
}

fn not_modified(mut headers: HeaderMap, head: Option<Head>) -> Reply {
    headers.clear();
    if let Some(head) = head {
        describe(&mut headers, &head);
    }
    reply::reply(StatusCode::NOT_MODIFIED, headers, Body::Empty)
}
