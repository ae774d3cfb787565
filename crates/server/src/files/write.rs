//! PUT and DELETE of a file.
//!
//! A PUT streams: what has come is written while more comes, and the name stands for the file only once
//! all of it has. A client that goes away before that leaves nothing.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_RANGE, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use tallybook::{Condition, Durability};
use tallybook_files::{Error, FileStore, Stat, UnlinkOptions, WriteOptions};

use super::{
    ATTRIBUTES_BYTES_MAX, INTAKE_BYTES, Intake, MD5, NOT_FOUND, describe_version, file_error,
};
use crate::api::{Answer, Api};
use crate::conditions::{Conditions, Demand};
use crate::engine::Engine;
use crate::link::Link;
use crate::options::DurabilityLevel;
use crate::reply::{
    self, ATTRIBUTES, DURABILITY, OVERLOADED, Problem, Reply, bad_request, from_base64,
};
use crate::upload::poll_data;
use crate::write::text;

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// What a request's headers ask of a change.
struct Asked {
    level: DurabilityLevel,
    conditions: Conditions,
    demand: Demand,
}

impl Asked {
    fn of<E>(api: &Api<E>, headers: &HeaderMap) -> Result<Asked, Problem> {
        let level = match text(headers, &DURABILITY)? {
            None => api.options.durability,
            Some(name) => DurabilityLevel::from_name(name)
                .ok_or(bad_request("x-tallybook-durability is os, interval or sync"))?,
        };
        let conditions = Conditions::from_headers(headers).map_err(|bad| bad_request(bad.0))?;
        let demand = conditions.for_write().map_err(|bad| bad_request(bad.0))?;
        Ok(Asked { level, conditions, demand })
    }

    /// What the file store is to check; where several versions are named, it is looked first.
    fn condition(&self, files: &FileStore, name: &str) -> Result<Option<Condition>, Error> {
        match self.demand {
            Demand::Condition(condition) => Ok(condition),
            Demand::Look => {
                let current = files.stat(name)?.map(|stat| stat.version);
                let held = self.conditions.for_version(current);
                held.map(Some).ok_or(Error::Conflict { current })
            }
        }
    }
}

/// `PUT /files/{name}`.
pub(crate) fn put<E: Engine>(
    api: &Arc<Api<E>>,
    files: &FileStore,
    link: &Rc<Link>,
    headers: HeaderMap,
    name: String,
    body: Incoming,
) -> Answer {
    let refuse = |problem| Answer::Ready(api.refuse(HeaderMap::new(), problem));
    let read = Asked::of(api, &headers).and_then(|asked| Ok((asked, write_options(&headers)?)));
    let (asked, mut options) = match read {
        Ok(read) => read,
        Err(problem) => return refuse(problem),
    };
    let level = asked.level;
    options.durability = Some(level.durability(api.options.interval_ms));
    options.size = body.size_hint().exact();
    let quotas = api.quotas_of(link);
    let Some(in_flight) = quotas.in_flight.try_take(1) else { return refuse(OVERLOADED) };
    let Some(memory) = quotas.body_memory.try_take(INTAKE_BYTES) else { return refuse(OVERLOADED) };
    let (api, link, files) = (api.clone(), link.clone(), files.clone());
    Answer::Later(Box::pin(async move {
        let opened = Intake::open(move || {
            options.condition = asked.condition(&files, &name)?;
            files.writer(&name, options)
        });
        let received = match opened.await {
            Ok(intake) => receive(intake, body, &link).await,
            Err(error) => Err(Refused::Store(error)),
        };
        drop((in_flight, memory));
        match received {
            Ok(stat) => created(headers, &stat, level),
            Err(Refused::Body(problem)) => api.refuse(headers, problem),
            Err(Refused::Store(error)) => file_error(&api, headers, &error),
        }
    }))
}

/// 201 with what is known of the file.
pub(super) fn created(headers: HeaderMap, stat: &Stat, level: DurabilityLevel) -> Reply {
    let mut reply = reply::empty(StatusCode::CREATED, headers);
    describe_version(reply.headers_mut(), stat);
    reply.headers_mut().insert(DURABILITY, HeaderValue::from_static(level.name()));
    reply
}

/// Why a file was not written.
enum Refused {
    Body(Problem),
    Store(Error),
}

async fn receive(mut intake: Intake, mut body: Incoming, link: &Link) -> Result<Stat, Refused> {
    while let Some(data) = poll_fn(|cx| poll_data(&mut body, cx)).await {
        intake.take(data.map_err(Refused::Body)?).await.map_err(Refused::Store)?;
    }
    link.body_unread.set(false);
    intake.commit().await.map_err(Refused::Store)
}

/// `DELETE /files/{name}`.
pub(crate) fn delete<E: Engine>(
    api: &Arc<Api<E>>,
    files: &FileStore,
    headers: HeaderMap,
    name: String,
) -> Answer {
    change(
        api,
        files,
        headers,
        name,
        |files, name, durability, condition| {
            files.unlink(name, UnlinkOptions { durability, condition })
        },
        |api, headers, level, unlinked| match unlinked {
            true => deleted(headers, level),
            false => api.refuse(headers, NOT_FOUND),
        },
    )
}

/// Makes a change without a body, as the headers ask for it.
pub(super) fn change<E: Engine, T: Send + 'static>(
    api: &Arc<Api<E>>,
    files: &FileStore,
    headers: HeaderMap,
    name: String,
    make: impl FnOnce(&FileStore, &str, Option<Durability>, Option<Condition>) -> Result<T, Error>
    + Send
    + 'static,
    respond: impl FnOnce(&Api<E>, HeaderMap, DurabilityLevel, T) -> Reply + 'static,
) -> Answer {
    let asked = match Asked::of(api, &headers) {
        Ok(asked) => asked,
        Err(problem) => return Answer::Ready(api.refuse(headers, problem)),
    };
    let level = asked.level;
    let durability = Some(level.durability(api.options.interval_ms));
    let files = files.clone();
    api.on_pool(
        move |_| {
            let condition = asked.condition(&files, &name)?;
            make(&files, &name, durability, condition)
        },
        move |api, made| match made {
            Ok(made) => respond(api, headers, level, made),
            Err(error) => file_error(api, headers, &error),
        },
    )
}

fn deleted(headers: HeaderMap, level: DurabilityLevel) -> Reply {
    let mut reply = reply::empty(StatusCode::NO_CONTENT, headers);
    reply.headers_mut().insert(DURABILITY, HeaderValue::from_static(level.name()));
    reply
}

pub(crate) fn write_options(headers: &HeaderMap) -> Result<WriteOptions, Problem> {
    if headers.contains_key(CONTENT_RANGE) {
        return Err(bad_request("a part of a file can't be put"));
    }
    let attributes = match text(headers, &ATTRIBUTES)? {
        None => Bytes::new(),
        Some(given) => from_base64(given.as_bytes())
            .filter(|attributes| attributes.len() <= ATTRIBUTES_BYTES_MAX)
            .ok_or(bad_request("x-tallybook-attributes is base64 of at most 4,096 bytes"))?,
    };
    let md5_expected = match text(headers, &CONTENT_MD5)? {
        None => None,
        Some(given) => Some(
            from_base64(given.as_bytes())
                .and_then(|md5| <[u8; 16]>::try_from(&md5[..]).ok())
                .ok_or(bad_request("content-md5 is base64 of 16 bytes"))?,
        ),
    };
    let md5 = match text(headers, &MD5)? {
        None => false,
        Some("compute") => true,
        Some(_) => return Err(bad_request("x-tallybook-md5 of a request is compute")),
    };
    Ok(WriteOptions { attributes, md5, md5_expected, ..WriteOptions::default() })
}
