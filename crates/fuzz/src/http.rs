//! What the server reads out of requests by itself, and what it keeps for S3.

use tallybook_server::fuzzing::{self, Passed};

use crate::input::{Input, part};

/// Most headers that the parser under the filter takes.
const HEADERS_MAX: usize = 64;

/// A connection's bytes through the strict filter, whole, in pieces and byte by byte. What passes is
/// framed by the parser behind the filter exactly as by the filter.
pub(crate) fn framing(data: &[u8]) -> bool {
    let mut input = Input(data);
    let sizes = input.part();
    let bytes = input.rest();
    let by_bytes = fuzzing::framing(bytes, &[1]);
    for sizes in [&[][..], sizes, &[7, 64, 1]] {
        let passed = fuzzing::framing(bytes, sizes);
        assert_eq!(passed.released, by_bytes.released);
        assert_eq!(passed.is_refused, by_bytes.is_refused);
    }
    let Passed { released, heads, .. } = &by_bytes;
    heads.iter().for_each(|head| check_head(&released[head.clone()]));
    !heads.is_empty()
}

fn check_head(head: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    // What the parser refuses, it answers with 400 by itself.
    let Ok(status) = request.parse(head) else { return };
    assert_eq!(status, httparse::Status::Complete(head.len()), "both end the head at one place");
    let named = |name: &str| {
        let is_it = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        request.headers.iter().filter(is_it).count()
    };
    let (lengths, codings) = (named("content-length"), named("transfer-encoding"));
    assert!(lengths + codings <= 1, "a body has one framing");
    assert!(named("host") <= 1 && named("upgrade") == 0);
}

/// A request's target.
pub(crate) fn target(data: &[u8]) -> bool {
    fuzzing::escapes(data);
    fuzzing::target(data)
}

/// A request's headers, as lines.
pub(crate) fn headers(data: &[u8]) -> bool {
    let mut input = Input(data);
    // No write has version 0, which conditions make use of.
    let (version, length) = (input.u64().max(1), input.u32());
    fuzzing::request_headers(input.rest(), version, length as usize)
}

/// The body of a batch.
pub(crate) fn batch(data: &[u8]) -> bool {
    fuzzing::batch(data)
}

/// Records as a listing sends them.
pub(crate) fn listing(data: &[u8]) -> bool {
    let mut input = Input(data);
    let mut records = Vec::new();
    while !input.0.is_empty() {
        records.push((input.part().to_vec(), input.part().to_vec()));
    }
    let is_any = !records.is_empty();
    fuzzing::listing_lines(records);
    is_any
}

/// What is kept of an object or an upload.
pub(crate) fn s3_object(data: &[u8]) -> bool {
    let mut input = Input(data);
    let (changed_at_ms, tag) = (input.u64(), input.part());
    fuzzing::s3::object(input.rest(), changed_at_ms, &String::from_utf8_lossy(tag))
}

/// What is kept of a bucket: the rules of its lifecycle.
pub(crate) fn s3_bucket(data: &[u8]) -> bool {
    let mut input = Input(data);
    let (changed_at_ms, now_ms) = (input.u64(), input.u64());
    fuzzing::s3::bucket(input.rest(), changed_at_ms, now_ms)
}

/// Continuation tokens, MD5s, keys, encodings.
pub(crate) fn s3_values(data: &[u8]) -> bool {
    std::str::from_utf8(data).is_ok_and(fuzzing::s3::values)
}

/// A body in `aws-chunked`, whole, in pieces and byte by byte.
pub(crate) fn s3_chunks(data: &[u8]) -> bool {
    let mut input = Input(data);
    let sizes = input.part();
    fuzzing::s3::chunks(input.rest(), sizes)
}

/// The query of a request.
pub(crate) fn s3_query(data: &[u8]) -> bool {
    let mut input = Input(data);
    let request = input.u8();
    std::str::from_utf8(input.rest()).is_ok_and(|text| fuzzing::s3::query(text, request))
}

pub(crate) fn framing_seeds() -> Vec<Vec<u8>> {
    let whole = |sizes: &[u8], text: &str| [&part(sizes)[..], text.as_bytes()].concat();
    let chunked = "transfer-encoding: chunked\r\n\r\n";
    vec![
        whole(&[], "GET /kv/key HTTP/1.1\r\nhost: a\r\n\r\n"),
        whole(
            &[5],
            "PUT /kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.0\r\n\r\n",
        ),
        whole(
            &[3, 1],
            &format!(
                "PUT /kv/a HTTP/1.1\r\nhost: a\r\n{chunked}5;x=1\r\nhello\r\n0\r\nt: 1\r\n\r\nGET / HTTP/1.1\r\nhost:\r\n\r\n"
            ),
        ),
        whole(&[9], "\r\nGET / HTTP/1.1\r\nhost: a:80\r\nupgrade: websocket\r\n\r\n"),
        whole(
            &[],
            "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
    ]
}

pub(crate) fn target_seeds() -> Vec<Vec<u8>> {
    [
        "/kv/a%2Fkey",
        "/kv/plain?x=1",
        "/kv?prefix=a%20b+c&start=a&end=z&limit=10&reverse=true&format=raw",
        "/kv?key_encoding=base64&prefix=AP8%3D&heads=true",
        "/files/dir/name.txt",
        "/files/%F0%9F%98%80",
        "/files?prefix=dir%2F&delimiter=%2F&after=x&limit=1000",
        "/files?totals",
        "/v0/entities?start=a&end=b",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn header_seeds() -> Vec<Vec<u8>> {
    [
        "if-match: \"7\"\nrange: bytes=0-9",
        "if-none-match: *\nx-tallybook-ttl-ms: 1000",
        "if-match: \"7\", W/\"8\", \"foreign\"\nif-range: \"7\"\nrange: bytes=-5",
        "range: bytes=5-\nx-tallybook-expires-at: 1700000000000\nx-tallybook-attributes: AP8=",
        "content-md5: AAAAAAAAAAAAAAAAAAAAAA==\nx-tallybook-md5: compute\nrange: bytes=0-1,4-5",
    ]
    .map(|text| [&7u64.to_le_bytes()[..], &100u32.to_le_bytes(), text.as_bytes()].concat())
    .to_vec()
}

pub(crate) fn batch_seeds() -> Vec<Vec<u8>> {
    [
        r#"{"operations":[{"put":{"key":"a2V5","value":"dmFsdWU="}}]}"#,
        r#"{"operations":[{"put":{"key":"a2V5","value":"","expires_at":1700000000000,"attributes":"AP8="}},{"delete":{"key":"YQ=="}},{"delete_range":{"start":"YQ==","end":"Yg=="}}],"durability":"sync"}"#,
        r#"{"durability":"os","operations":[{"delete":{"key":"\u0059Q=="}}]}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn listing_seeds() -> Vec<Vec<u8>> {
    vec![
        [part(b"key"), part(b"value")].concat(),
        [part(b"a"), part(b""), part(b"\n\"\xff"), part(&[0; 300])].concat(),
    ]
}

pub(crate) fn s3_object_seeds() -> Vec<Vec<u8>> {
    [
        "",
        "{}",
        r#"{"key":"a/b","content_type":"text/plain","content_encoding":"gzip","cache_control":"no-cache","expires":1700000000,"user":{"name":"value"}}"#,
        r#"{"etag":"0123456789abcdef0123456789abcdef-3","checksum":{"algorithm":"CRC32C","value":"AAAAAA==","is_composite":true}}"#,
    ]
    .map(|text| {
        [&1_700_000_000_000u64.to_le_bytes()[..], &part(b"\"0202\""), text.as_bytes()].concat()
    })
    .to_vec()
}

pub(crate) fn s3_bucket_seeds() -> Vec<Vec<u8>> {
    [
        "{}",
        r#"{"lifecycle":[{"id":"old","is_enabled":true,"prefix":"logs/","expire_days":30}]}"#,
        r#"{"lifecycle":[{"id":"all","is_enabled":true,"prefix":"","larger_than":10,"smaller_than":1000,"expire_at_ms":1700000000000},{"id":"","is_enabled":false,"prefix":"x","abort_upload_days":7}]}"#,
    ]
    .map(|text| {
        let (changed_at_ms, now_ms) = (1_700_000_000_000u64, 1_710_000_000_000u64);
        [&changed_at_ms.to_le_bytes()[..], &now_ms.to_le_bytes(), text.as_bytes()].concat()
    })
    .to_vec()
}

pub(crate) fn s3_value_seeds() -> Vec<Vec<u8>> {
    ["6469722f6e616d65", "1B2M2Y8AsgTpgAmY7PhCfg==", "aws-chunked, gzip", "dir/a key"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

pub(crate) fn s3_chunk_seeds() -> Vec<Vec<u8>> {
    let signature = format!(";chunk-signature={}", "0a".repeat(32));
    [
        "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n".to_owned(),
        "1\r\na\r\n00000002\r\nbc\r\n0\r\n\r\n".to_owned(),
        format!("5{signature}\r\nhello\r\n1{signature}\r\n!\r\n0{signature}\r\n\r\n"),
        format!("2{signature}\r\n\r\n\r\n0{signature}\r\nx-amz-trailer-signature:0a\r\n\r\n"),
    ]
    .map(|text| [&part(&[3, 1, 60])[..], text.as_bytes()].concat())
    .to_vec()
}

pub(crate) fn s3_query_seeds() -> Vec<Vec<u8>> {
    let signature = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-SignedHeaders=host&X-Amz-Signature=0a";
    [
        // The first numbers a method and a path.
        (12, format!("{signature}&Content-Type=image%2Fpng&x-amz-%6Deta-a=b+c")),
        (12, format!("{signature}&Content-MD5=1B2M2Y8AsgTpgAmY7PhCfg%3D%3D&x-amz-copy-source=a")),
        (12, "partNumber=1&uploadId=a&x-id=UploadPart".to_owned()),
        (13, format!("uploads=&{signature}&x-amz-checksum-algorithm=CRC32&x-amz-acl=private")),
        (5, "list-type=2&prefix=a%2F&delimiter=%2F&max-keys=3&own=1".to_owned()),
        (8, "delete".to_owned()),
    ]
    .map(|(request, text)| [&[request][..], text.as_bytes()].concat())
    .to_vec()
}
