//! Ranges of keys: `GET /v0/entities` and `GET /kv`.
//!
//! `/v0/entities` sends each record as one chunk, `key\nvalue`. `/kv` sends JSON lines with keys and
//! values in base64, or the same records with `format=raw`.

use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use hyper::HeaderMap;
use tallybook::error::{Error, Result};
use tallybook::head::Head;
use tallybook::store::{KeyHead, KeyValue, ScanOptions};

use crate::admission::{Quota, Share};
use crate::api::{Answer, Api};
use crate::body::Piece;
use crate::engine::{Engine, KeyValues};
use crate::link::Link;
use crate::query::{first, parameters, percent_decode};
use crate::reply::{NDJSON, OCTETS, Problem, bad_request, from_base64};
use crate::stream::{self, BATCH_BYTES, Produce};
use crate::value_memory::{counted, read_within, shared};

/// A value from this size on goes out as it is; a smaller one is copied behind its key.
const COPIED_VALUE_BYTES_MAX: usize = 16 << 10;
/// Room for the rest of a line behind its value, so that lines that end a batch aren't made twice as large for it.
const LINE_REST_BYTES: usize = 2 << 10;

/// `GET /v0/entities?start=S[&end=E]`.
pub(crate) fn entities<E: Engine>(
    api: &Arc<Api<E>>,
    link: &Rc<Link>,
    headers: HeaderMap,
    query: Option<&str>,
) -> Answer {
    let bound = |name| match first(query, name) {
        None => Ok(None),
        Some("") => Err(bad_request("a bound of the range is empty")),
        Some(raw) => match percent_decode(raw, true) {
            Ok(key) => Ok(Some(Bytes::copy_from_slice(&key))),
            Err(_) => Err(BAD_ESCAPE),
        },
    };
    let bounds = bound("start").and_then(|start| Ok((start, bound("end")?)));
    let options = match bounds {
        Ok((Some(start), end)) => ScanOptions { start: Some(start), end, ..ScanOptions::default() },
        Ok((None, _)) => {
            return Answer::Ready(api.refuse(headers, bad_request("start is missing")));
        }
        Err(problem) => return Answer::Ready(api.refuse(headers, problem)),
    };
    let memory = api.quotas_of(link).body_memory.clone();
    stream::answer(api, link, headers, OCTETS, move |engine| {
        Ok(Box::new(Raw { records: Source::of(engine, options, usize::MAX, memory)? }))
    })
}

/// `GET /kv?prefix=&start=&end=&limit=&reverse=&heads=&format=&key_encoding=`.
pub(crate) fn list<E: Engine>(
    api: &Arc<Api<E>>,
    link: &Rc<Link>,
    headers: HeaderMap,
    query: Option<&str>,
) -> Answer {
    let listing = match Listing::from_query(query.unwrap_or("")) {
        Ok(listing) => listing,
        Err(problem) => return Answer::Ready(api.refuse(headers, problem)),
    };
    let content_type = if listing.raw { OCTETS } else { NDJSON };
    let memory = api.quotas_of(link).body_memory.clone();
    stream::answer(api, link, headers, content_type, move |engine| {
        let Listing { options, limit, heads, raw } = listing;
        Ok(if heads {
            let heads: Box<dyn Iterator<Item = Result<KeyHead>> + Send> = if is_void(&options) {
                Box::new(std::iter::empty())
            } else {
                Box::new(engine.range_heads(options)?)
            };
            Box::new(HeadLines { heads: heads.take(limit) })
        } else {
            let records = Source::of(engine, options, limit, memory)?;
            if raw {
                Box::new(Raw { records }) as Box<dyn Produce>
            } else {
                Box::new(Lines::new(records))
            }
        })
    })
}

pub(crate) const BAD_ESCAPE: Problem = bad_request("a percent escape is malformed");

/// What `GET /kv` is asked.
pub(crate) struct Listing {
    pub(crate) options: ScanOptions,
    limit: usize,
    heads: bool,
    raw: bool,
}

impl Listing {
    pub(crate) fn from_query(query: &str) -> Result<Listing, Problem> {
        let in_base64 = match first(Some(query), "key_encoding") {
            None | Some("percent") => false,
            Some("base64") => true,
            Some(_) => return Err(bad_request("key_encoding is percent or base64")),
        };
        let key = |raw: &str| -> Result<Option<Bytes>, Problem> {
            // In base64 a + is itself: whoever encodes keys so doesn't mean spaces.
            let decoded = percent_decode(raw, !in_base64).map_err(|_| BAD_ESCAPE)?;
            let key = if in_base64 {
                from_base64(&decoded).ok_or(bad_request("a key is not base64"))?
            } else {
                Bytes::copy_from_slice(&decoded)
            };
            Ok((!key.is_empty()).then_some(key))
        };
        let flag = |raw: &str| match raw {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(bad_request("reverse and heads are true or false")),
        };
        let mut listing = Listing {
            options: ScanOptions::default(),
            limit: usize::MAX,
            heads: false,
            raw: false,
        };
        let mut seen: Vec<&str> = Vec::new();
        for (name, value) in parameters(query).filter(|pair| !pair.0.is_empty()) {
            if seen.contains(&name) {
                return Err(bad_request("a parameter is given twice"));
            }
            seen.push(name);
            match name {
                "prefix" => listing.options.prefix = key(value)?,
                "start" => listing.options.start = key(value)?,
                "end" => listing.options.end = key(value)?,
                "reverse" => listing.options.reverse = flag(value)?,
                "heads" => listing.heads = flag(value)?,
                "limit" => {
                    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                    listing.limit = Some(value)
                        .filter(|_| digits)
                        .and_then(|value| value.parse().ok())
                        .ok_or(bad_request("limit is a number"))?;
                }
                "format" => {
                    listing.raw = match value {
                        "raw" => true,
                        "ndjson" => false,
                        _ => return Err(bad_request("format is ndjson or raw")),
                    }
                }
                "key_encoding" => {}
                _ => return Err(bad_request("a parameter is unknown")),
            }
        }
        if listing.heads && listing.raw {
            return Err(bad_request("heads have no raw format"));
        }
        Ok(listing)
    }
}

/// Whether the bounds leave room for no key.
fn is_void(options: &ScanOptions) -> bool {
    matches!((&options.start, &options.end), (Some(start), Some(end)) if start >= end)
}

/// The records of a range, of which the large ones are counted.
pub(crate) struct Source<R> {
    /// `None` where the bounds leave room for no key.
    range: Option<R>,
    /// How many are wanted still.
    left: usize,
    memory: Arc<Quota>,
}

impl<R: KeyValues> Source<R> {
    fn of<E: Engine<Range = R>>(
        engine: &E,
        options: ScanOptions,
        limit: usize,
        memory: Arc<Quota>,
    ) -> Result<Source<R>> {
        let range = if is_void(&options) { None } else { Some(engine.range(options)?) };
        Ok(Source { range, left: limit, memory })
    }

    /// The next one, and its share if it is large. `Error::Longer` while there is no memory for it.
    fn next(&mut self) -> Option<Result<(KeyValue, Option<Share>)>> {
        let range = self.range.as_mut().filter(|_| self.left > 0)?;
        let next = read_within(&self.memory, |value_bytes_max| {
            range.next_within(value_bytes_max).transpose()
        });
        match next {
            Ok((record, share)) => {
                self.left -= 1;
                record.map(|record| Ok((record, share)))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// Records as `key\nvalue`, each a piece of its own.
struct Raw<R> {
    records: Source<R>,
}

impl<R: KeyValues> Produce for Raw<R> {
    fn fill(&mut self, pieces: &mut Vec<Piece>) -> Result<bool> {
        // Small records share one buffer, so that they cost no allocation each.
        let mut copied = BytesMut::new();
        let mut bytes = 0;
        while bytes < BATCH_BYTES {
            let (KeyValue { key, value, .. }, share) = match self.records.next() {
                None => return Ok(false),
                Some(Err(Error::Longer { .. })) => return Ok(true),
                Some(record) => record?,
            };
            let value = shared(value, share);
            bytes += key.len() + 1 + value.len();
            let whole = value.len() < COPIED_VALUE_BYTES_MAX;
            let room = key.len() + 1 + if whole { value.len() } else { 0 };
            if copied.capacity() < room {
                copied = BytesMut::with_capacity(room.max(BATCH_BYTES / 4));
            }
            copied.put_slice(&key);
            copied.put_u8(b'\n');
            pieces.push(if whole {
                copied.put_slice(&value);
                Piece::from(copied.split().freeze())
            } else {
                Piece::new(copied.split().freeze(), value)
            });
        }
        Ok(true)
    }
}

/// Records as JSON lines, many to a piece. Of a line that is longer than a batch each one takes a part, so that
/// beside a large value there is never all of its base64.
pub(crate) struct Lines<R> {
    records: Source<R>,
    /// The record whose line is not at its end.
    begun: Option<Begun>,
}

/// A record of whose line the beginning is written.
struct Begun {
    record: KeyValue,
    /// Held until the line's last byte is gone: so others have their turn between two large values.
    share: Option<Share>,
    /// How much of the value is written: whole threes of bytes, whose base64 can be told alone.
    written: usize,
}

impl<R> Lines<R> {
    pub(crate) fn new(records: Source<R>) -> Lines<R> {
        Lines { records, begun: None }
    }
}

impl<R: KeyValues> Produce for Lines<R> {
    fn fill(&mut self, pieces: &mut Vec<Piece>) -> Result<bool> {
        fill_lines(pieces, |lines| {
            let mut begun = match self.begun.take() {
                Some(begun) => begun,
                None => match self.records.next()? {
                    Ok((record, share)) => {
                        push_base64(lines, br#"{"key":""#, &record.key);
                        lines.extend_from_slice(br#"","value":""#);
                        Begun { record, share, written: 0 }
                    }
                    Err(error) => return Some(Err(error)),
                },
            };
            let rest = &begun.record.value[begun.written..];
            let room = BATCH_BYTES.saturating_sub(lines.len()).div_ceil(4).max(1) * 3;
            if rest.len() > room {
                push_base64(lines, b"", &rest[..room]);
                begun.written += room;
                self.begun = Some(begun);
                return Some(Ok(None));
            }
            push_base64(lines, b"", rest);
            lines.push(b'"');
            push_head(lines, &begun.record.head);
            Some(Ok(begun.share))
        })
    }
}

/// Heads as JSON lines.
struct HeadLines<I> {
    heads: I,
}

impl<I: Iterator<Item = Result<KeyHead>> + Send> Produce for HeadLines<I> {
    fn fill(&mut self, pieces: &mut Vec<Piece>) -> Result<bool> {
        fill_lines(pieces, |lines| {
            let head = self.heads.next()?;
            Some(head.map(|KeyHead { key, head }| {
                push_base64(lines, br#"{"key":""#, &key);
                let (length, checksum) = (head.length, head.checksum);
                write!(lines, r#"","length":{length},"checksum":"{checksum:08x}""#)
                    .expect("a Vec takes every write");
                push_head(lines, &head);
                None
            }))
        })
    }
}

/// Has `push` add lines, or parts of them, until they are a batch; it answers what is held with them.
fn fill_lines(
    pieces: &mut Vec<Piece>,
    mut push: impl FnMut(&mut Vec<u8>) -> Option<Result<Option<Share>>>,
) -> Result<bool> {
    let (mut lines, mut shares) = (Vec::new(), Vec::new());
    let mut more = true;
    while more && lines.len() < BATCH_BYTES {
        match push(&mut lines) {
            None => more = false,
            Some(Err(Error::Longer { .. })) => break,
            Some(share) => shares.extend(share?),
        }
    }
    if !lines.is_empty() {
        let lines = Bytes::from(lines);
        let lines = if shares.is_empty() { lines } else { counted(lines, shares) };
        pieces.push(Piece::from(lines));
    }
    Ok(more)
}

fn push_base64(line: &mut Vec<u8>, before: &[u8], bytes: &[u8]) {
    line.extend_from_slice(before);
    let start = line.len();
    let encoded_bytes = bytes.len().div_ceil(3) * 4;
    line.reserve(encoded_bytes + LINE_REST_BYTES);
    line.resize(start + encoded_bytes, 0);
    STANDARD.encode_slice(bytes, &mut line[start..]).expect("the room is that of padded base64");
}

/// The rest of a line: what both formats say of an entry.
fn push_head(line: &mut Vec<u8>, head: &Head) {
    let (version, written_at) = (head.version, head.written_at_ms);
    let fits = "a Vec takes every write";
    write!(line, r#","version":{version},"written_at":{written_at}"#).expect(fits);
    if let Some(expires_at) = head.expires_at_ms {
        write!(line, r#","expires_at":{expires_at}"#).expect(fits);
    }
    if !head.attributes.is_empty() {
        push_base64(line, br#","attributes":""#, &head.attributes);
        line.push(b'"');
    }
    line.extend_from_slice(b"}\n");
}

/// A range of records that are there.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) struct Given(std::collections::VecDeque<KeyValue>);

#[cfg(any(test, feature = "fuzzing"))]
impl Given {
    pub(crate) fn records(records: Vec<KeyValue>, memory: Arc<Quota>) -> Source<Given> {
        Source { range: Some(Given(records.into())), left: usize::MAX, memory }
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl KeyValues for Given {
    fn next_within(&mut self, value_bytes_max: u64) -> Option<Result<KeyValue>> {
        let length = self.0.front()?.head.length;
        if length > value_bytes_max {
            return Some(Err(Error::Longer { length }));
        }
        self.0.pop_front().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &'static str, value: Bytes) -> KeyValue {
        let head = Head {
            version: 3,
            length: value.len() as u64,
            checksum: 0,
            written_at_ms: 5,
            expires_at_ms: Some(9),
            attributes: Bytes::from_static(b"a"),
        };
        KeyValue { key: Bytes::from_static(key.as_bytes()), head, value }
    }

    #[test]
    fn raw_batch_ends_near_its_size_and_keeps_every_record_apart() {
        let large = Bytes::from(vec![b'x'; BATCH_BYTES]);
        let values = [Bytes::from_static(b"1"), large.clone(), Bytes::new()];
        let records = ["a", "b", "c"].into_iter().zip(values).map(|(k, v)| record(k, v));
        let mut raw = Raw { records: Given::records(records.collect(), Quota::new(1 << 20)) };
        let mut pieces = Vec::new();
        assert!(raw.fill(&mut pieces).unwrap());
        assert_eq!(pieces.len(), 2);
        assert!(!raw.fill(&mut pieces).unwrap());
        use bytes::Buf;
        let texts: Vec<Bytes> =
            pieces.into_iter().map(|mut piece| piece.copy_to_bytes(piece.remaining())).collect();
        assert_eq!(texts[0], "a\n1");
        assert_eq!(texts[1], [b"b\n", &large[..]].concat());
        assert_eq!(texts[2], "c\n");
    }

    #[test]
    fn json_line_says_all_of_a_record() {
        let records = vec![record("k", Bytes::from_static(b"v"))];
        let mut lines = Lines::new(Given::records(records, Quota::new(0)));
        let mut pieces = Vec::new();
        assert!(!lines.fill(&mut pieces).unwrap());
        use bytes::Buf;
        assert_eq!(
            pieces[0].chunk(),
            b"{\"key\":\"aw==\",\"value\":\"dg==\",\"version\":3,\"written_at\":5,\"expires_at\":9,\"attributes\":\"YQ==\"}\n"
        );
    }

    /// Beside the value there was all of its base64: of the largest, more than an address may have of the memory.
    #[test]
    fn json_of_a_large_value_comes_in_parts_and_is_the_same() {
        // A part may end at each place of a three, with the value, and at its last byte or two.
        let lengths = (0..40).map(|at| BATCH_BYTES * 3 / 4 * (at % 4) + at);
        let values =
            lengths.map(|length| Bytes::from((0..length).map(|at| at as u8).collect::<Vec<_>>()));
        let records: Vec<KeyValue> = values.map(|value| record("key", value)).collect();
        let expected: String = records
            .iter()
            .map(|record| {
                let value = STANDARD.encode(&record.value);
                format!(
                    "{{\"key\":\"a2V5\",\"value\":\"{value}\",\"version\":3,\"written_at\":5,\
                     \"expires_at\":9,\"attributes\":\"YQ==\"}}\n"
                )
            })
            .collect();
        let quota = Quota::new(4 * BATCH_BYTES);
        let mut lines = Lines::new(Given::records(records, quota.clone()));
        let mut text = Vec::new();
        let mut more = true;
        while more {
            let mut pieces = Vec::new();
            more = lines.fill(&mut pieces).unwrap();
            use bytes::Buf;
            for mut piece in pieces {
                assert!(piece.remaining() < BATCH_BYTES + 200);
                text.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
            }
        }
        assert!(text == expected.as_bytes());
        assert_eq!(quota.used(), 0);
    }

    #[test]
    fn batch_ends_before_a_value_there_is_no_memory_for() {
        let records = || {
            let large = || Bytes::from(vec![b'x'; 100_000]);
            let values = [Bytes::from_static(b"1"), large(), large()];
            ["a", "b", "c"].into_iter().zip(values).map(|(k, v)| record(k, v)).collect()
        };
        let quota = Quota::new(300_000);
        let raw = Raw { records: Given::records(records(), quota.clone()) };
        let lines = Lines::new(Given::records(records(), quota.clone()));
        // A large value counts itself, and in JSON no more.
        for mut producer in [Box::new(raw) as Box<dyn Produce>, Box::new(lines)] {
            let others = quota.try_take(200_000).unwrap();
            let mut pieces = Vec::new();
            assert!(producer.fill(&mut pieces).unwrap());
            assert_eq!(quota.used(), 300_000);
            let mut none = Vec::new();
            assert!(producer.fill(&mut none).unwrap());
            assert!(none.is_empty());
            drop(pieces);
            assert!(!producer.fill(&mut none).unwrap());
            assert_eq!(none.len(), 1);
            drop((others, none));
            assert_eq!(quota.used(), 0);
        }
    }

    #[test]
    fn listing_is_strict_about_its_parameters() {
        assert!(Listing::from_query("").is_ok());
        assert!(
            Listing::from_query("prefix=a&limit=3&reverse=true&heads=false&format=raw").is_ok()
        );
        for query in [
            "limit=",
            "limit=-1",
            "limit=+1",
            "limit=1&limit=2",
            "reverse=yes",
            "format=xml",
            "heads=true&format=raw",
            "start=%z",
            "key_encoding=hex",
            "key_encoding=base64&start=*",
            "unknown=1",
        ] {
            assert!(Listing::from_query(query).is_err(), "{query}");
        }
        let listing = Listing::from_query("start=%2Fw+&key_encoding=base64");
        assert!(listing.is_err());
        let listing = Listing::from_query("start=%2F/%2B/&key_encoding=base64").unwrap();
        assert_eq!(listing.options.start.as_deref(), Some(&b"\xff\xff\xbf"[..]));
    }
}
