//! What the fuzz targets call: what this server reads out of requests by itself, held to what it promises.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tallybook::batch::{Operation, WriteBatch};
use tallybook::head::Head;
use tallybook::store::KeyValue;

use crate::admission::Quota;
use crate::batch;
use crate::body::Piece;
use crate::byte_range::ByteRange;
use crate::conditions::{Conditions, Demand, Verdict, range_applies, write_tag};
use crate::files::{self, Asked};
use crate::options::DurabilityLevel;
use crate::query::{Key, percent_decode};
use crate::scan::{Given, Lines, Listing};
use crate::stream::Produce;
use crate::strict::{HeadLimits, OriginRules, Scanner};
use crate::write;

pub use crate::s3::fuzzing as s3;

/// Small, so that short requests reach them.
const LIMITS: HeadLimits =
    HeadLimits { request_line_bytes_max: 256, header_bytes_max: 512, header_count_max: 12 };

/// What passed the strict filter of a connection's bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    /// The bytes, as hyper sees them.
    pub released: Vec<u8>,
    /// Where in them the heads of requests are.
    pub heads: Vec<Range<usize>>,
    /// Whether the rest was refused.
    pub is_refused: bool,
}

/// The strict filter over a connection's bytes, which come in pieces of these sizes (in turn; none is
/// all at once). How they are cut must not matter but for where heads are found, which is said only
/// when each byte comes by itself.
pub fn framing(input: &[u8], sizes: &[u8]) -> Passed {
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let rules = Arc::new(OriginRules::new(everywhere, &[]));
    let mut scanner = Scanner::new(LIMITS, Some(rules));
    let mut passed = Passed { released: Vec::new(), heads: Vec::new(), is_refused: false };
    let mut sizes = sizes.iter().map(|&size| usize::from(size).max(1)).cycle();
    let (mut held, mut rest) = (Vec::new(), input);
    while !rest.is_empty() && !passed.is_refused {
        let (piece, after) = rest.split_at(sizes.next().unwrap_or(rest.len()).min(rest.len()));
        held.extend_from_slice(piece);
        rest = after;
        let scan = scanner.scan(&mut held);
        assert!(scan.release <= held.len());
        let start = passed.released.len();
        passed.released.extend(held.drain(..scan.release));
        if scan.heads > 0 {
            passed.heads.push(start..passed.released.len());
        }
        passed.is_refused = scan.violation.is_some();
    }
    passed
}

/// A request's target: key, name of a file, what is listed.
pub fn target(text: &[u8]) -> bool {
    let Ok(uri) = Uri::try_from(text) else {
        return false;
    };
    if let Some(Ok(key)) =
        Key::from_target(uri.clone(), false, |uri| uri.path().strip_prefix("/kv/"))
    {
        let raw = uri.path().strip_prefix("/kv/").expect("what was picked is there");
        assert_eq!(percent_decode(raw, false).as_deref(), Ok(key.as_slice()));
    }
    let name = files::name_of(&uri);
    if let Ok(name) = &name {
        tallybook_files::placement::check_name(name).expect("a name that was taken is one");
        assert_eq!(files::decode_name(&escaped(name.as_bytes())).as_ref(), Ok(name));
    }
    let query = uri.query();
    let listing = Listing::from_query(query.unwrap_or(""));
    if let Ok(Listing { options, .. }) = &listing {
        let bounds = [&options.prefix, &options.start, &options.end];
        assert!(bounds.into_iter().flatten().all(|bound| !bound.is_empty()));
    }
    let asked = files::asked(query);
    if let Ok(Asked::Page(options)) = &asked {
        assert!((1..=1000).contains(&options.limit));
        assert!(!options.prefix.starts_with('\0'));
    }
    name.is_ok() || (query.is_some() && (listing.is_ok() || asked.is_ok()))
}

/// Any bytes, escaped as a client does it, come back as they were.
pub fn escapes(bytes: &[u8]) {
    let text = escaped(bytes);
    for plus_is_space in [false, true] {
        assert_eq!(percent_decode(&text, plus_is_space).as_deref(), Ok(bytes));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(decoded) = percent_decode(text, true)
    {
        assert!(decoded.len() <= bytes.len());
    }
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02x}")).collect()
}

/// Headers as lines of `name: value`; those that hyper would not let through are left out.
fn headers(text: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in text.split(|&byte| byte == b'\n') {
        let mut parts = line.splitn(2, |&byte| byte == b':');
        let (name, value) = (parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]));
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii()))
        {
            headers.append(name, value);
        }
    }
    headers
}

/// The headers of a request for an entry or file at `version`, of so many bytes.
pub fn request_headers(text: &[u8], version: u64, length: usize) -> bool {
    let headers = headers(text);
    let conditions = Conditions::from_headers(&headers);
    if let Ok(conditions) = &conditions {
        check_conditions(conditions, version);
    }
    if let Some(Ok(range)) = headers.get("range").map(HeaderValue::to_str)
        && let ByteRange::Part(part) = ByteRange::parse(range, length)
    {
        assert!(part.start < part.end && part.end <= length);
        let again = format!("bytes={}-{}", part.start, part.end - 1);
        assert_eq!(ByteRange::parse(&again, length), ByteRange::Part(part));
    }
    range_applies(&headers, version);
    let expiry = write::expiry(&headers);
    let attributes = write::attributes(&headers);
    if let Ok(attributes) = &attributes {
        assert!(attributes.len() <= 1024);
    }
    let options = files::write_options(&headers);
    if let Ok(options) = &options {
        assert!(options.attributes.len() <= 4096);
    }
    let mut tag = Vec::new();
    write_tag(version, &mut tag);
    let mut own = HeaderMap::new();
    own.insert("if-match", HeaderValue::from_bytes(&tag).expect("a tag fits a header"));
    let own = Conditions::from_headers(&own).expect("a tag of ours is read");
    assert_eq!(own.for_read(Some(version)), Verdict::Proceed);
    assert_eq!(own.for_read(version.checked_add(1)), Verdict::Failed);
    conditions.is_ok() && expiry.is_ok() && attributes.is_ok() && options.is_ok()
}

/// What the engine is told to check holds exactly where the conditions do.
fn check_conditions(conditions: &Conditions, version: u64) {
    for version in [None, Some(version)] {
        let holds = conditions.for_read(version) == Verdict::Proceed;
        assert_eq!(conditions.for_version(version).is_some(), holds);
        if let Ok(Demand::Condition(demand)) = conditions.for_write() {
            assert_eq!(demand.is_none_or(|demand| demand.holds(version)), holds);
        }
    }
}

/// The body of a batch. What is read of it is written, and reads the same.
pub fn batch(body: &[u8]) -> bool {
    let read = |body: &[u8]| batch::parse(body, DurabilityLevel::Interval, 64);
    let Ok((writes, level)) = read(body) else {
        return false;
    };
    assert!((1..=64).contains(&writes.len()));
    let Ok((again, again_level)) = read(&batch_json(&writes, level)) else {
        panic!("a batch that was written is not read");
    };
    assert_eq!((again.operations(), again_level), (writes.operations(), level));
    true
}

fn batch_json(batch: &WriteBatch, level: DurabilityLevel) -> Vec<u8> {
    let base64 = |bytes: &[u8]| STANDARD.encode(bytes);
    let operation = |operation: &Operation| match operation {
        Operation::Put { key, value, expires_at_ms, attributes } => {
            let mut put = serde_json::json!({
                "key": base64(key), "value": base64(value), "attributes": base64(attributes),
            });
            if *expires_at_ms != 0 {
                put["expires_at"] = (*expires_at_ms).into();
            }
            serde_json::json!({ "put": put })
        }
        Operation::Delete { key } => serde_json::json!({ "delete": { "key": base64(key) } }),
        Operation::DeleteRange { start, end } => serde_json::json!({
            "delete_range": { "start": base64(start), "end": base64(end) },
        }),
    };
    let operations: Vec<_> = batch.operations().iter().map(operation).collect();
    let body = serde_json::json!({ "operations": operations, "durability": level.name() });
    body.to_string().into_bytes()
}

/// Records as a listing sends them: each line is JSON and holds what was put in.
pub fn listing_lines(records: Vec<(Vec<u8>, Vec<u8>)>) {
    let records: Vec<KeyValue> = records
        .into_iter()
        .map(|(key, value)| KeyValue {
            head: Head {
                version: value.len() as u64,
                length: value.len() as u64,
                checksum: 0,
                written_at_ms: key.len() as u64,
                expires_at_ms: key.first().map(|&byte| u64::from(byte)),
                attributes: Bytes::copy_from_slice(&key),
            },
            key: key.into(),
            value: value.into(),
        })
        .collect();
    let mut pieces: Vec<Piece> = Vec::new();
    let mut lines = Lines::new(Given::records(records.clone(), Quota::new(usize::MAX)));
    while lines.fill(&mut pieces).expect("records that are there are sent") {}
    let text: Vec<u8> =
        pieces.iter_mut().flat_map(|piece| piece.copy_to_bytes(piece.remaining())).collect();
    let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    assert_eq!(lines.len(), records.len());
    for (line, record) in lines.iter().zip(&records) {
        let line: serde_json::Value = serde_json::from_slice(line).expect("a line is JSON");
        let field = |name: &str| line[name].as_str().and_then(|text| STANDARD.decode(text).ok());
        assert_eq!(field("key").as_deref(), Some(&record.key[..]));
        assert_eq!(field("value").as_deref(), Some(&record.value[..]));
        assert_eq!(field("attributes").unwrap_or_default(), record.head.attributes);
        assert_eq!(line["version"], record.head.version);
        assert_eq!(line["expires_at"].as_u64(), record.head.expires_at_ms);
    }
}
