//! `POST /kv`: several writes, all or none.
//!
//! The body is JSON with keys and values in base64; names it doesn't know are refused. What is wrong
//! with it is told by place, never by quoting it. Operations beyond the limit are counted, not held.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use tallybook::batch::WriteBatch;
use tallybook::error::Error;
use tallybook::key::SeqNo;

use crate::admission::Share;
use crate::api::{Answer, Api};
use crate::body::Body;
use crate::clock::now_ms;
use crate::engine::Engine;
use crate::options::DurabilityLevel;
use crate::reply::{self, DURABILITY, JSON, Reply, VERSION};

struct Request {
    operations: Operations,
    durability: Option<DurabilityLevel>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum RequestField {
    Operations,
    Durability,
}

/// Reads a request with at most so many operations.
struct RequestWithin {
    operations_max: usize,
}

impl<'de> DeserializeSeed<'de> for RequestWithin {
    type Value = Request;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Request, D::Error> {
        deserializer.deserialize_struct("Request", &["operations", "durability"], self)
    }
}

impl<'de> Visitor<'de> for RequestWithin {
    type Value = Request;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a batch")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Request, A::Error> {
        let (mut operations, mut durability) = (None, None);
        while let Some(field) = map.next_key()? {
            match field {
                RequestField::Operations if operations.is_none() => {
                    let within = OperationsWithin { max: self.operations_max };
                    operations = Some(map.next_value_seed(within)?);
                }
                RequestField::Durability if durability.is_none() => {
                    durability = Some(map.next_value()?);
                }
                _ => return Err(A::Error::custom("a field is given twice")),
            }
        }
        let operations = operations.ok_or_else(|| A::Error::missing_field("operations"))?;
        Ok(Request { operations, durability: durability.flatten() })
    }
}

/// The operations of a request: all of them, or that they are too many.
struct Operations {
    held: Vec<Operation>,
    count: usize,
}

/// Reads at most so many operations, and counts the rest.
struct OperationsWithin {
    max: usize,
}

impl<'de> DeserializeSeed<'de> for OperationsWithin {
    type Value = Operations;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Operations, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for OperationsWithin {
    type Value = Operations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence of operations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Operations, A::Error> {
        let mut held = Vec::new();
        while held.len() < self.max {
            match seq.next_element()? {
                Some(operation) => held.push(operation),
                None => return Ok(Operations { count: held.len(), held }),
            }
        }
        let mut count = held.len();
        while seq.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Operations { held, count })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Operation {
    Put(Put),
    Delete(Delete),
    DeleteRange(DeleteRange),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Put {
    key: Base64,
    value: Base64,
    ttl_ms: Option<u64>,
    expires_at: Option<u64>,
    #[serde(default)]
    attributes: Base64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    key: Base64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteRange {
    start: Base64,
    end: Base64,
}

/// Bytes that travel as base64.
#[derive(Default)]
struct Base64(Bytes);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        let Text(text) = Text::deserialize(deserializer)?;
        let bytes = reply::from_base64(text.as_bytes());
        bytes.map(Base64).ok_or_else(|| D::Error::custom("not base64"))
    }
}

/// A batch whose body has been received.
pub(crate) struct Batch {
    headers: HeaderMap,
}

/// What became of a batch: its version and level, or the refusal's kind and words, or the engine's error.
pub(crate) enum Outcome {
    Made(SeqNo, DurabilityLevel),
    Malformed(String),
    Failed(Error),
}

impl Batch {
    pub(crate) fn new(headers: HeaderMap) -> Batch {
        Batch { headers }
    }

    /// Applies the batch, here or on the pool, and answers.
    pub(crate) fn perform<E: Engine>(
        self,
        api: &Arc<Api<E>>,
        body: Bytes,
        memory: Option<Share>,
    ) -> Answer {
        let default = api.options.durability;
        let (interval_ms, operations_max) =
            (api.options.interval_ms, api.options.limits.batch_operations_max);
        let parse = move |body: &[u8]| parse(body, default, operations_max);
        let write = move |engine: &E, batch: WriteBatch, level: DurabilityLevel| match engine
            .write(batch, Some(level.durability(interval_ms)))
        {
            Ok(version) => Outcome::Made(version, level),
            Err(error) => Outcome::Failed(error),
        };
        let headers = self.headers;
        if !api.may_write_inline(body.len()) {
            return api.on_pool(
                move |engine| {
                    let outcome = match parse(&body) {
                        Ok((batch, level)) => write(engine, batch, level),
                        Err(outcome) => outcome,
                    };
                    drop((body, memory));
                    outcome
                },
                move |api, outcome| respond(api, headers, outcome),
            );
        }
        match parse(&body) {
            Err(outcome) => Answer::Ready(respond(api, headers, outcome)),
            Ok((batch, DurabilityLevel::Sync)) => api.on_pool(
                move |engine| write(engine, batch, DurabilityLevel::Sync),
                move |api, outcome| respond(api, headers, outcome),
            ),
            Ok((batch, level)) => {
                let outcome = write(&api.engine, batch, level);
                Answer::Ready(respond(api, headers, outcome))
            }
        }
    }
}

/// The writes that a body asks for, and at what durability.
pub(crate) fn parse(
    body: &[u8],
    default: DurabilityLevel,
    operations_max: usize,
) -> Result<(WriteBatch, DurabilityLevel), Outcome> {
    // The types bound the nesting: a value deeper than an operation's fields fails where it begins, and one
    // that is passed over costs its parser a byte for each level.
    let mut json = serde_json::Deserializer::from_slice(body);
    let request = RequestWithin { operations_max }.deserialize(&mut json);
    let request = request.and_then(|request| json.end().map(|()| request)).map_err(|error| {
        Outcome::Malformed(format!(
            "the batch is malformed at line {}, column {}",
            error.line(),
            error.column()
        ))
    })?;
    let Operations { held, count } = request.operations;
    if !(1..=operations_max).contains(&count) {
        return Err(Outcome::Malformed(format!(
            "a batch has 1 to {operations_max} operations, this one has {count}"
        )));
    }
    let mut batch = WriteBatch::new();
    for operation in held {
        let added = match operation {
            Operation::Delete(delete) => batch.delete(delete.key.0),
            Operation::DeleteRange(range) => batch.delete_range(range.start.0, range.end.0),
            Operation::Put(put) => {
                let expires_at_ms = match (put.ttl_ms, put.expires_at) {
                    (None, None) => 0,
                    (Some(ttl_ms @ 1..), None) => now_ms().saturating_add(ttl_ms),
                    (None, Some(at @ 1..)) => at,
                    _ => {
                        return Err(Outcome::Malformed(
                            "an expiry is a positive ttl_ms or expires_at, not both".into(),
                        ));
                    }
                };
                batch.put_entry(put.key.0, put.value.0, expires_at_ms, put.attributes.0)
            }
        };
        added.map_err(Outcome::Failed)?;
    }
    Ok((batch, request.durability.unwrap_or(default)))
}

fn respond<E: Engine>(api: &Api<E>, mut headers: HeaderMap, outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Malformed(message) => reply::explain(
            headers,
            StatusCode::BAD_REQUEST,
            "bad_request",
            &message,
            api.retry_after(),
        ),
        Outcome::Failed(error) => api.engine_error(headers, &error),
        Outcome::Made(version, level) => {
            headers.clear();
            headers.insert(CONTENT_TYPE, JSON);
            headers.insert(VERSION, HeaderValue::from(version));
            headers.insert(DURABILITY, HeaderValue::from_static(level.name()));
            let text = format!(r#"{{"version":{version}}}"#);
            reply::reply(StatusCode::OK, headers, Body::Full(Bytes::from(text)))
        }
    }
}
