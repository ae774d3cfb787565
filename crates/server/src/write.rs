//! PUT and DELETE of one key, by both doors.
//!
//! A small unconditional write that needs no sync is made on the thread that read it; everything
//! that may wait (a sync, a lookup for a condition, a large value, a lagging engine) goes to the pool.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_RANGE, ETAG, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use tallybook::error::{Error, Result};
use tallybook::key::{ATTRIBUTES_BYTES_MAX, SeqNo};
use tallybook::store::WriteOptions;

use crate::admission::Share;
use crate::api::{Answer, Api};
use crate::clock::now_ms;
use crate::conditions::{Conditions, Demand, write_tag};
use crate::engine::Engine;
use crate::options::DurabilityLevel;
use crate::query::Key;
use crate::reply::{
    self, ATTRIBUTES, DURABILITY, EXPIRES_AT, Problem, Reply, TTL_MS, VERSION, bad_request,
};

/// What is done to the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Set it.
    Put,
    /// Delete it.
    Delete,
}

/// A write of one key, without its value.
#[derive(Debug)]
pub(crate) struct Mutation {
    verb: Verb,
    key: Key,
    headers: HeaderMap,
    /// `None` at `/v0`, whose replies say nothing.
    level: Option<DurabilityLevel>,
    may_wait: bool,
    /// Several versions are named: the key is looked at before the write.
    look: Option<Conditions>,
    options: WriteOptions,
}

impl Mutation {
    /// A write by `/v0/entity`.
    pub(crate) fn entity<E: Engine>(
        api: &Api<E>,
        verb: Verb,
        key: Key,
        headers: HeaderMap,
    ) -> Mutation {
        let level = api.options.durability;
        Mutation {
            verb,
            key,
            headers,
            level: None,
            may_wait: level == DurabilityLevel::Sync,
            look: None,
            options: WriteOptions {
                durability: Some(level.durability(api.options.interval_ms)),
                ..WriteOptions::default()
            },
        }
    }

    /// A write by `/kv/`, as its headers say.
    pub(crate) fn kv<E: Engine>(
        api: &Api<E>,
        verb: Verb,
        key: Key,
        headers: HeaderMap,
    ) -> Result<Mutation, Problem> {
        let (level, look, options) = Self::read_headers(api, verb, &headers)?;
        let looks = look.is_some() || options.condition.is_some();
        Ok(Mutation {
            verb,
            key,
            headers,
            level: Some(level),
            may_wait: looks || level == DurabilityLevel::Sync,
            look,
            options,
        })
    }

    fn read_headers<E: Engine>(
        api: &Api<E>,
        verb: Verb,
        headers: &HeaderMap,
    ) -> Result<(DurabilityLevel, Option<Conditions>, WriteOptions), Problem> {
        let level = match text(headers, &DURABILITY)? {
            None => api.options.durability,
            Some(name) => DurabilityLevel::from_name(name)
                .ok_or(bad_request("x-tallybook-durability is os, interval or sync"))?,
        };
        let mut options = WriteOptions {
            durability: Some(level.durability(api.options.interval_ms)),
            ..WriteOptions::default()
        };
        if verb == Verb::Put {
            if headers.contains_key(CONTENT_RANGE) {
                return Err(bad_request("a part of a value can't be put"));
            }
            options.expires_at_ms = expiry(headers)?;
            options.attributes = attributes(headers)?;
        }
        let conditions = Conditions::from_headers(headers).map_err(|bad| bad_request(bad.0))?;
        let mut look = None;
        match conditions.for_write().map_err(|bad| bad_request(bad.0))? {
            Demand::Condition(condition) => options.condition = condition,
            Demand::Look => look = Some(conditions),
        }
        Ok((level, look, options))
    }

    /// Makes the write, here or on the pool, and answers. `memory` is given back once it is made.
    pub(crate) fn perform<E: Engine>(
        mut self,
        api: &Arc<Api<E>>,
        value: Bytes,
        memory: Option<Share>,
    ) -> Answer {
        if !self.may_wait && api.may_write_inline(value.len()) {
            let made = self.apply(&api.engine, &value);
            return Answer::Ready(self.reply(api, made));
        }
        api.on_pool(
            move |engine| {
                let made = self.apply(engine, &value);
                drop(memory);
                (self, made)
            },
            |api, (mutation, made)| mutation.reply(api, made),
        )
    }

    fn apply<E: Engine>(&mut self, engine: &E, value: &[u8]) -> Result<SeqNo> {
        let key = self.key.as_slice();
        if let Some(conditions) = &self.look {
            let current = engine.head(key)?.map(|head| head.version);
            let condition = conditions.for_version(current).ok_or(Error::Conflict { current })?;
            self.options.condition = Some(condition);
        }
        match self.verb {
            Verb::Put => engine.put_with(key, value, &self.options),
            Verb::Delete => engine.delete_with(key, &self.options),
        }
    }

    fn reply<E: Engine>(self, api: &Api<E>, made: Result<SeqNo>) -> Reply {
        let version = match made {
            Ok(version) => version,
            Err(error) => return api.engine_error(self.headers, &error),
        };
        let status = match (self.verb, self.level) {
            (Verb::Put, _) => StatusCode::CREATED,
            (Verb::Delete, None) => StatusCode::ACCEPTED,
            (Verb::Delete, Some(_)) => StatusCode::NO_CONTENT,
        };
        let mut reply = reply::empty(status, self.headers);
        if let Some(level) = self.level {
            let mut tag = Vec::with_capacity(24);
            write_tag(version, &mut tag);
            let tag = Bytes::from(tag);
            let headers = reply.headers_mut();
            reply::insert(headers, VERSION, tag.slice(1..tag.len() - 1));
            if self.verb == Verb::Put {
                reply::insert(headers, ETAG, tag);
            }
            headers.insert(DURABILITY, HeaderValue::from_static(level.name()));
        }
        reply
    }
}

/// The text of a header that may be given once.
pub(crate) fn text<'a>(
    headers: &'a HeaderMap,
    name: &hyper::header::HeaderName,
) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(text) if values.next().is_none() => Ok(Some(text)),
        _ => Err(bad_request("a header is malformed or given twice")),
    }
}

pub(crate) fn expiry(headers: &HeaderMap) -> Result<u64, Problem> {
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|&number| digits && number > 0)
    };
    match (text(headers, &TTL_MS)?, text(headers, &EXPIRES_AT)?) {
        (None, None) => Ok(0),
        (Some(_), Some(_)) => {
            Err(bad_request("an expiry is given by x-tallybook-ttl-ms or -expires-at, not both"))
        }
        (Some(ttl), None) => number(ttl)
            .map(|ttl_ms| now_ms().saturating_add(ttl_ms))
            .ok_or(bad_request("x-tallybook-ttl-ms is a positive number of milliseconds")),
        (None, Some(at)) => number(at)
            .ok_or(bad_request("x-tallybook-expires-at is a positive number of milliseconds")),
    }
}

pub(crate) fn attributes(headers: &HeaderMap) -> Result<Bytes, Problem> {
    let Some(text) = text(headers, &ATTRIBUTES)? else {
        return Ok(Bytes::new());
    };
    reply::from_base64(text.as_bytes())
        .filter(|attributes| attributes.len() <= ATTRIBUTES_BYTES_MAX)
        .ok_or(bad_request("x-tallybook-attributes is base64 of at most 1,024 bytes"))
}
