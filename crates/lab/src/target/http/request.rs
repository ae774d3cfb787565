//! Requests as bytes.

use std::io::Write;

use super::response::Asked;
use crate::keys::{KeyNumber, KeyShape};
use crate::target::Request;

/// What is the same in every request to one server.
#[derive(Debug, Clone)]
pub(super) struct RequestLines {
    entity: Vec<u8>,
    entities: Vec<u8>,
    end: Vec<u8>,
    host: Vec<u8>,
}

impl RequestLines {
    /// For a server whose paths begin with `prefix` and that is called `host`.
    pub(super) fn new(prefix: &str, host: &str) -> RequestLines {
        RequestLines {
            entity: format!(" {prefix}/v0/entity?id=").into_bytes(),
            entities: format!("GET {prefix}/v0/entities?start=").into_bytes(),
            end: format!(" HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes(),
            host: format!(" HTTP/1.1\r\nHost: {host}\r\nContent-Length: ").into_bytes(),
        }
    }

    /// Appends a request; says what its answer must be read as.
    pub(super) fn write(&self, request: Request<'_>, out: &mut Vec<u8>) -> Asked {
        match request {
            Request::Get { key } => self.write_entity(b"GET", key, Asked::Get, out),
            Request::Head { key } => self.write_entity(b"HEAD", key, Asked::Head, out),
            Request::Delete { key } => self.write_entity(b"DELETE", key, Asked::Write, out),
            Request::Put { key, value } => {
                out.extend_from_slice(b"PUT");
                out.extend_from_slice(&self.entity);
                write_escaped(key, out);
                out.extend_from_slice(&self.host);
                write!(out, "{}\r\n\r\n", value.len()).expect("writing to memory can't fail");
                out.extend_from_slice(value);
                Asked::Write
            }
            Request::Scan { start, count } => {
                out.extend_from_slice(&self.entities);
                write_escaped(start, out);
                if let Some(end) = end_of(start, count) {
                    out.extend_from_slice(b"&end=");
                    write_escaped(&end, out);
                }
                out.extend_from_slice(&self.end);
                Asked::Scan
            }
        }
    }

    fn write_entity(&self, method: &[u8], key: &[u8], asked: Asked, out: &mut Vec<u8>) -> Asked {
        out.extend_from_slice(method);
        out.extend_from_slice(&self.entity);
        write_escaped(key, out);
        out.extend_from_slice(&self.end);
        asked
    }
}

/// The prefilled key that is `count` after `start`; `None` for all that follow, or foreign keys.
fn end_of(start: &[u8], count: u64) -> Option<Vec<u8>> {
    let shape = KeyShape::of(start);
    let index = shape.read(start)?.index().checked_add(count).filter(|index| *index < 1 << 48)?;
    let mut end = Vec::new();
    shape.write(KeyNumber::present(index), &mut end);
    Some(end)
}

/// Appends a key as part of a query; unreserved characters stand for themselves (RFC 3986).
fn write_escaped(key: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if key.iter().all(|&byte| is_plain(byte)) {
        out.extend_from_slice(key);
        return;
    }
    for &byte in key {
        if is_plain(byte) {
            out.push(byte);
        } else {
            let escape = [b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
            out.extend_from_slice(&escape);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(request: Request<'_>) -> String {
        let mut out = Vec::new();
        RequestLines::new("/p", "h:1").write(request, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_are_as_the_interface_says() {
        let key = &b"a+b /\xff"[..];
        assert_eq!(
            written(Request::Get { key }),
            "GET /p/v0/entity?id=a%2Bb%20%2F%FF HTTP/1.1\r\nHost: h:1\r\n\r\n"
        );
        assert_eq!(
            written(Request::Put { key: b"k", value: b"xyz" }),
            "PUT /p/v0/entity?id=k HTTP/1.1\r\nHost: h:1\r\nContent-Length: 3\r\n\r\nxyz"
        );
        assert!(written(Request::Delete { key: b"k" }).starts_with("DELETE /p/v0/entity?id=k "));
        assert!(written(Request::Head { key: b"k" }).starts_with("HEAD /p/v0/entity?id=k "));
    }

    #[test]
    fn ranges_end_before_the_key_that_is_one_too_many() {
        for is_named in [false, true] {
            let shape = KeyShape { bytes: 32, is_named };
            let (mut start, mut end) = (Vec::new(), Vec::new());
            // The end's name is the one after the start's.
            shape.write(KeyNumber::absent((1 << 16) - 7), &mut start);
            shape.write(KeyNumber::present((1 << 16) + 3), &mut end);
            let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
            let expected = format!("GET /p/v0/entities?start={}&end={} ", text(&start), text(&end));
            assert!(written(Request::Scan { start: &start, count: 10 }).starts_with(&expected));
            let all = written(Request::Scan { start: &start, count: u64::MAX });
            assert!(all.starts_with(&format!("GET /p/v0/entities?start={} ", text(&start))));
        }
    }
}
