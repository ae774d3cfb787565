//! GET and HEAD of a file, with conditions and one range.
//!
//! The first chunks are read before the reply begins, so that damage there still has a status; damage
//! further on cuts the connection before a wrong byte is sent.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_RANGE, HeaderValue, RANGE};
use hyper::{HeaderMap, StatusCode};
use tallybook_files::{FileStore, ReadOptions, Stat};
use tokio::task::spawn_blocking;

use super::{NOT_FOUND, Outlet, Unnamed, describe, file_error};
use crate::api::{Answer, Api};
use crate::body::Body;
use crate::byte_range::ByteRange;
use crate::conditions::{self, Conditions, Verdict};
use crate::engine::Engine;
use crate::link::Link;
use crate::reply::{
    self, INTERNAL, OVERLOADED, PRECONDITION, Problem, Reply, announce_length, bad_request,
};
use crate::stream::{Batch, Records, read_batch};

/// `HEAD /files/{name}`.
pub(crate) fn head<E: Engine>(
    api: &Arc<Api<E>>,
    files: &FileStore,
    headers: HeaderMap,
    name: String,
) -> Answer {
    let conditions = match Conditions::from_headers(&headers) {
        Ok(conditions) => conditions,
        Err(bad) => return Answer::Ready(api.refuse(headers, bad_request(bad.0))),
    };
    let files = files.clone();
    api.on_pool(
        move |_| files.stat(&name),
        move |api, stat| {
            let stat = match stat {
                Ok(stat) => stat,
                Err(error) => return file_error(api, headers, &error),
            };
            match (conditions.for_read(stat.as_ref().map(|stat| stat.version)), stat) {
                (Verdict::Failed, _) => api.refuse(headers, PRECONDITION),
                (_, None) => api.refuse(headers, NOT_FOUND),
                (Verdict::NotModified, Some(stat)) => not_modified(headers, &stat),
                (Verdict::Proceed, Some(stat)) => {
                    let mut headers = describe(headers, &stat);
                    announce_length(&mut headers, stat.size);
                    reply::reply(StatusCode::OK, headers, Body::Empty)
                }
            }
        },
    )
}

/// What was found of a file.
enum Found {
    Absent,
    Failed,
    NotModified(Stat),
    Unsatisfiable(u64),
    Open { stat: Stat, part: Option<Range<u64>>, batch: Batch<Unnamed> },
}

/// `GET /files/{name}`.
pub(crate) fn get<E: Engine>(
    api: &Arc<Api<E>>,
    files: &FileStore,
    link: &Rc<Link>,
    headers: HeaderMap,
    name: String,
) -> Answer {
    let conditions = match Conditions::from_headers(&headers) {
        Ok(conditions) => conditions,
        Err(bad) => return Answer::Ready(api.refuse(headers, bad_request(bad.0))),
    };
    let Some(in_flight) = api.quotas_of(link).in_flight.try_take(1) else {
        return Answer::Ready(api.refuse(headers, OVERLOADED));
    };
    let (api, link, files) = (api.clone(), link.clone(), files.clone());
    Answer::Later(Box::pin(async move {
        let asked = headers.clone();
        let found = spawn_blocking(move || open(&files, &name, &conditions, &asked)).await;
        match found {
            Err(_) => api.refuse(headers, INTERNAL),
            Ok(Err(Unnamed(error))) => file_error(&api, headers, &error),
            Ok(Ok(Found::Absent)) => api.refuse(headers, NOT_FOUND),
            Ok(Ok(Found::Failed)) => api.refuse(headers, PRECONDITION),
            Ok(Ok(Found::NotModified(stat))) => not_modified(headers, &stat),
            Ok(Ok(Found::Unsatisfiable(size))) => unsatisfiable(&api, headers, size),
            Ok(Ok(Found::Open { batch: Batch { more: Err(Unnamed(error)), .. }, .. })) => {
                file_error(&api, headers, &error)
            }
            Ok(Ok(Found::Open { stat, part, batch })) => {
                let mut headers = describe(headers, &stat);
                let (status, range) = match part {
                    None => (StatusCode::OK, 0..stat.size),
                    Some(range) => {
                        let text = format!("bytes {}-{}/{}", range.start, range.end - 1, stat.size);
                        reply::insert(&mut headers, CONTENT_RANGE, Bytes::from(text));
                        (StatusCode::PARTIAL_CONTENT, range)
                    }
                };
                let patience = api.memory_patience();
                let records = Box::new(Records::new(link, batch, in_flight, patience));
                reply::reply(status, headers, Body::Sized(records, range.end - range.start))
            }
        }
    }))
}

/// Looks at the file, opens it if the conditions hold, and reads the first chunks.
fn open(
    files: &FileStore,
    name: &str,
    conditions: &Conditions,
    headers: &HeaderMap,
) -> Result<Found, Unnamed> {
    loop {
        let Some(stat) = files.stat(name).map_err(Unnamed)? else {
            return Ok(match conditions.for_read(None) {
                Verdict::Failed => Found::Failed,
                _ => Found::Absent,
            });
        };
        match conditions.for_read(Some(stat.version)) {
            Verdict::Failed => return Ok(Found::Failed),
            Verdict::NotModified => return Ok(Found::NotModified(stat)),
            Verdict::Proceed => {}
        }
        let part = match range_asked(headers, &stat) {
            ByteRange::Whole => None,
            ByteRange::Unsatisfiable => return Ok(Found::Unsatisfiable(stat.size)),
            ByteRange::Part(range) => Some(range.start as u64..range.end as u64),
        };
        let options = ReadOptions { range: part.clone(), ..ReadOptions::default() };
        let reader = files.reader(name, options).map_err(Unnamed)?;
        // Another file may have come under the name since it was looked at.
        if let Some(reader) = reader.filter(|reader| reader.stat().version == stat.version) {
            let batch = read_batch(Box::new(Outlet::new(reader)) as Box<_>);
            return Ok(Found::Open { stat, part, batch });
        }
    }
}

fn range_asked(headers: &HeaderMap, stat: &Stat) -> ByteRange {
    let size = usize::try_from(stat.size).unwrap_or(usize::MAX);
    match headers.get(RANGE).map(HeaderValue::to_str) {
        Some(Ok(range)) if conditions::range_applies(headers, stat.version) => {
            ByteRange::parse(range, size)
        }
        _ => ByteRange::Whole,
    }
}

fn not_modified(headers: HeaderMap, stat: &Stat) -> Reply {
    reply::reply(StatusCode::NOT_MODIFIED, describe(headers, stat), Body::Empty)
}

fn unsatisfiable<E: Engine>(api: &Api<E>, headers: HeaderMap, size: u64) -> Reply {
    let problem = Problem {
        status: StatusCode::RANGE_NOT_SATISFIABLE,
        kind: "range_not_satisfiable",
        message: "the range lies beyond the file",
    };
    let mut reply = api.refuse(headers, problem);
    reply::insert(reply.headers_mut(), CONTENT_RANGE, Bytes::from(format!("bytes */{size}")));
    reply
}
