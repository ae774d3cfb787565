//! What the fuzz targets call of S3: what is kept as JSON, and what this server reads by itself.

use std::collections::VecDeque;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderMap, HeaderValue};
use s3s::dto::ETagCondition;
use tallybook_files::Stat;

use super::chunks::{BadChunk, Chunks};
use super::conditions::{ReadConditions, for_write};
use super::listing::{decode_token, encode, encode_token};
use super::meta::{self, BucketMeta, Object, ObjectMeta, Rule};
use super::objects::{check_key, content_encoding, expires};
use super::query::{Query, check_names, is_body_header};
use super::receive::decode_md5;
use super::signed::{check_signed, lift_headers, plain_range};

/// The attributes of an object's or an upload's file, which was changed at this time.
pub fn object(attributes: &[u8], changed_at_ms: u64, tag: &str) -> bool {
    let stat = Stat {
        name: "object".into(),
        version: 7,
        size: 1,
        blake3: [1; 32],
        md5: Some([2; 16]),
        written_at_ms: changed_at_ms,
        changed_at_ms,
        attributes: Bytes::copy_from_slice(attributes),
    };
    let Ok(object) = Object::of(stat) else {
        return false;
    };
    let again: ObjectMeta =
        meta::decode(&meta::encode(&object.meta)).expect("what is kept is read");
    assert_eq!(again, object.meta);
    object.last_modified();
    object.tag();
    expires(&object.meta);
    object.meta.checksum.iter().for_each(|saved| drop(saved.kind()));
    check_conditions(&object, tag);
    true
}

fn check_conditions(object: &Object, tag: &str) {
    let conditions = |tag: &str| tag.parse::<s3s::dto::ETag>().ok().map(ETagCondition::ETag);
    let own = Some(ETagCondition::ETag(object.tag()));
    let read = ReadConditions { if_match: own.clone(), ..ReadConditions::default() };
    assert!(read.check(object).is_ok());
    let read = ReadConditions { if_none_match: own.clone(), ..ReadConditions::default() };
    assert!(read.check(object).is_err());
    let held = for_write(own.as_ref(), None, || Ok(Some(object.clone())));
    assert!(held.is_ok_and(|condition| condition.is_some()));
    let since = Some(object.last_modified());
    let read = ReadConditions {
        if_match: conditions(tag),
        if_modified_since: since.clone(),
        if_unmodified_since: since,
        ..ReadConditions::default()
    };
    // A time is compared by the second, and one that can't be shown is shown as the last that can.
    let _ = read.check(object);
}

/// The attributes of a bucket's file, and what its rules say of an object at these times.
pub fn bucket(attributes: &[u8], changed_at_ms: u64, now_ms: u64) -> bool {
    let Ok(bucket) = meta::decode::<BucketMeta>(attributes) else {
        return false;
    };
    let again: BucketMeta = meta::decode(&meta::encode(&bucket)).expect("what is kept is read");
    assert_eq!(again, bucket);
    let stat = |changed_at_ms| Stat {
        name: "object".into(),
        version: 7,
        size: 100,
        blake3: [1; 32],
        md5: None,
        written_at_ms: changed_at_ms,
        changed_at_ms,
        attributes: Bytes::new(),
    };
    for rule in &bucket.lifecycle {
        let is_due = |now_ms| rule.expires(&rule.prefix, &stat(changed_at_ms), now_ms);
        // What is due stays due.
        assert!(!is_due(now_ms) || is_due(u64::MAX));
        check_shown(rule);
    }
    true
}

/// A rule as S3 shows it says the same when it is set again, as far as S3 can say it.
fn check_shown(rule: &Rule) {
    let Ok(once) = Rule::of(rule.show()) else { return };
    let twice = Rule::of(once.show()).expect("a rule that was taken is taken again");
    assert_eq!(twice, once);
    assert_eq!((&once.prefix, once.is_enabled), (&rule.prefix, rule.is_enabled));
}

/// What stands in single headers and parameters.
pub fn values(text: &str) -> bool {
    let token = decode_token(text);
    if let Ok(key) = &token {
        assert_eq!(decode_token(&encode_token(key)).ok().as_ref(), Some(key));
        assert!(encode(key).is_ascii());
    }
    let md5 = decode_md5(text);
    if check_key(text).is_ok() {
        assert!((1..=1024).contains(&text.len()));
    }
    if let Some(kept) = content_encoding(Some(text.to_owned())) {
        assert!(!kept.split(',').any(|one| one.trim().eq_ignore_ascii_case("aws-chunked")));
    }
    token.is_ok() || md5.is_ok()
}

/// A body in `aws-chunked` that comes in frames of these sizes (in turn). However it is cut, it is taken or
/// refused as it is byte by byte, and what is passed on has the same bytes and trailers; with signatures it is
/// the body itself.
pub fn chunks(body: &[u8], sizes: &[u8]) -> bool {
    let mut is_taken = false;
    for is_signed in [false, true] {
        let (by_bytes, seen) = follow(body, &[1], is_signed);
        for sizes in [&[][..], sizes] {
            let (cut, passed) = follow(body, sizes, is_signed);
            assert_eq!(cut, by_bytes);
            if cut.is_ok() && !is_signed {
                let expected = decoded(body);
                assert_eq!((decoded(&passed), decoded(&seen)), (expected.clone(), expected));
            }
            if cut == Ok(true) && is_signed {
                assert!(passed == body && seen == body);
            }
            assert!(!is_signed || body.starts_with(&passed));
        }
        is_taken |= by_bytes == Ok(true);
    }
    is_taken
}

/// Whether a body that comes in such frames has ended, and what was passed on of it.
fn follow(
    mut body: &[u8],
    sizes: &[u8],
    is_signed: bool,
) -> (std::result::Result<bool, BadChunk>, Vec<u8>) {
    let (mut chunks, mut passed) = (Chunks::new(is_signed), VecDeque::new());
    let mut sizes = sizes.iter().map(|&size| usize::from(size).max(1)).cycle();
    let mut pushed = Ok(());
    while pushed.is_ok() && !body.is_empty() {
        let (frame, rest) = body.split_at(sizes.next().unwrap_or(body.len()).min(body.len()));
        pushed = chunks.push(Bytes::copy_from_slice(frame), &mut passed);
        body = rest;
    }
    (pushed.map(|()| chunks.has_ended()), Vec::from(passed).concat())
}

/// The bytes of chunks without signatures, as far as they are there, and what comes after the last.
fn decoded(mut chunks: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut bytes = Vec::new();
    while let Some(end) = chunks.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&chunks[..end]).expect("a size that was taken is text");
        let size = u64::from_str_radix(size, 16).expect("a size that was taken is a number");
        chunks = &chunks[end + 2..];
        if size == 0 {
            return (bytes, chunks.to_vec());
        }
        let count = usize::try_from(size).unwrap_or(usize::MAX).min(chunks.len());
        bytes.extend_from_slice(&chunks[..count]);
        chunks = chunks.get(count + 2..).unwrap_or_default();
    }
    (bytes, Vec::new())
}

/// The query of a request, of a method and a path that this number says.
pub fn query(text: &str, request: u8) -> bool {
    let methods = [Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE];
    let method = &methods[usize::from(request) % methods.len()];
    let path = ["/", "/bucket", "/bucket/key"][usize::from(request) / methods.len() % 3];
    let Ok(query) = Query::of(text) else {
        return false;
    };
    let is_known = check_names(method, path, &query).is_ok();
    let lifted = lift(&query);
    // However the names are written.
    let escape = |name: &str| name.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let escaped: Vec<String> =
        query.parameters().map(|(name, value)| format!("{}={value}", escape(name))).collect();
    let escaped = escaped.join("&");
    let again = Query::of(&escaped).expect("what is escaped is read");
    assert!(again.parameters().eq(query.parameters()));
    assert_eq!(check_names(method, path, &again).is_ok(), is_known);
    assert_eq!(lift(&again), lifted);
    // Nothing beside it makes a write of a sub-resource that isn't there one without.
    let encryption = format!("{text}&encryption=1");
    let encryption = Query::of(&encryption).expect("a name more is read");
    let is_write = ![Method::GET, Method::HEAD].contains(method);
    assert!(!is_write || check_names(method, path, &encryption).is_err());
    let _ = query.value("X-Amz-SignedHeaders");
    is_known && lifted.is_some()
}

/// The headers of a request with this query, unless they are refused.
fn lift(query: &Query<'_>) -> Option<HeaderMap> {
    let given = [("content-type", "a/b"), ("x-amz-acl", "private"), ("range", "lines=1-2")];
    let given: HeaderMap = given
        .into_iter()
        .map(|(name, value)| {
            (name.parse().expect("a name is one"), HeaderValue::from_static(value))
        })
        .collect();
    let mut headers = given.clone();
    let _ = check_signed(&headers, query);
    lift_headers(&mut headers, query).ok()?;
    for name in headers.keys() {
        let may_be_lifted = query.is_presigned()
            && (is_body_header(name.as_str()) || name.as_str().starts_with("x-amz-"))
            && !name.as_str().starts_with("x-amz-copy-source");
        let is_given =
            given.get(name).is_some_and(|value| headers.get_all(name).iter().eq([value]));
        assert!(is_given || may_be_lifted && !given.contains_key(name), "{name}");
    }
    assert!(given.keys().all(|name| headers.contains_key(name)));
    plain_range(&mut headers, query).ok()?;
    Some(headers)
}
