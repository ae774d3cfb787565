//! Requests to S3 that are signed by hand, so that they can be changed afterwards as no client would.

use std::time::SystemTime;

use s3s::crypto::{Checksum as _, Sha256};
use s3s::dto::{Timestamp, TimestampFormat};
use tallybook_files::hex;
use tallybook_server::{S3Credentials, S3Options};
use tempfile::TempDir;

use crate::files::file_store;
use crate::s3::Door;

const ACCESS_KEY: &str = "AKIATALLYBOOK";
const SECRET_KEY: &str = "tallybook-secret-of-no-use";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

fn sha256(bytes: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    bytes.iter().for_each(|bytes| hasher.update(bytes));
    hasher.finalize()
}

/// HMAC (RFC 2104). Requires: the key has at most 64 bytes.
fn hmac(key: &[u8], text: &str) -> [u8; 32] {
    let padded = |pad: u8| {
        let mut block = [pad; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    sha256(&[&padded(0x5c), &sha256(&[&padded(0x36), text.as_bytes()])])
}

/// Now, as `20260101T000000Z`.
fn now() -> String {
    let mut text = Vec::new();
    let now = Timestamp::from(SystemTime::now());
    now.format(TimestampFormat::DateTime, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap().replace(['-', ':'], "");
    format!("{}Z", &text[..15])
}

/// A signed request without a query, and the headers that say so.
struct Signed {
    date: String,
    /// What `Authorization` has behind the algorithm.
    fields: String,
}

impl Signed {
    fn new(door: &Door, method: &str, path: &str) -> Signed {
        let date = now();
        let scope = format!("{}/us-east-1/s3/aws4_request", &date[..8]);
        let names = "host;x-amz-content-sha256;x-amz-date";
        let headers =
            format!("host:{}\nx-amz-content-sha256:{UNSIGNED}\nx-amz-date:{date}\n", door.address);
        let request = format!("{method}\n{path}\n\n{headers}\n{names}\n{UNSIGNED}");
        let digest = hex(&sha256(&[request.as_bytes()]));
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}");
        let secret = format!("AWS4{SECRET_KEY}").into_bytes();
        let key = ["us-east-1", "s3", "aws4_request"]
            .iter()
            .fold(hmac(&secret, &date[..8]), |key, word| hmac(&key, word));
        let signature = hex(&hmac(&key, &text));
        let credential = format!("{ACCESS_KEY}/{scope}");
        let fields =
            format!("Credential={credential}, SignedHeaders={names}, Signature={signature}");
        Signed { date, fields }
    }

    /// The headers, with this before the fields of `Authorization`.
    fn headers(&self, algorithm: &str) -> [String; 3] {
        [
            format!("Authorization: {algorithm} {}", self.fields),
            format!("x-amz-date: {}", self.date),
            format!("x-amz-content-sha256: {UNSIGNED}"),
        ]
    }
}

fn serving() -> (TempDir, Door) {
    let dir = tempfile::tempdir().unwrap();
    let mut s3 = S3Options::new("127.0.0.1:0".parse().unwrap());
    s3.credentials = vec![S3Credentials::new(ACCESS_KEY, SECRET_KEY).unwrap()];
    let door = Door::open(dir.path(), file_store(&dir.path().join("files")), s3);
    (dir, door)
}

/// Who saw a signed request to put an object could send it again with the source of a copy: the word before the
/// fields isn't signed, and the names in it were taken for those that are.
#[test]
fn signed_request_that_is_sent_again_can_do_nothing_else() {
    let (_dir, door) = serving();
    let ask = |method: &str, path: &str, algorithm: &str, more: &[&str], body: &[u8]| {
        let signed = Signed::new(&door, method, path).headers(algorithm);
        let headers: Vec<&str> =
            signed.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let (status, _, said) = door.ask(method, path, &headers, body);
        (status, String::from_utf8(said).unwrap())
    };
    let algorithm = "AWS4-HMAC-SHA256";
    for (path, body) in [("/bucket", ""), ("/bucket/secret", "secret"), ("/bucket/k", "value")] {
        let (status, said) = ask("PUT", path, algorithm, &[], body.as_bytes());
        assert_eq!(status, 200, "{path}: {said}");
    }
    let source = ["x-amz-copy-source: /bucket/secret"];
    for algorithm in [
        algorithm,
        "SignedHeaders=host;x-amz-copy-source,",
        "AWS4-HMAC-SHA256 SignedHeaders=host;x-amz-copy-source,",
    ] {
        let (status, said) = ask("PUT", "/bucket/k", algorithm, &source, b"");
        assert!(status == 403 && said.contains("AccessDenied"), "{algorithm}: {status} {said}");
    }
    assert_eq!(ask("GET", "/bucket/k", algorithm, &[], b""), (200, "value".to_owned()));
}
