//! Ranges: chunk by chunk at `/v0/entities`, as JSON lines and raw at `/kv`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tallybook::checksum;
use tallybook::error::Error;
use tallybook::options::Durability;
use tallybook::store::WriteOptions;

use crate::faults::Fault;
use crate::harness::{Running, start};

fn fill(running: &Running, count: usize, value_bytes: usize) {
    let options = WriteOptions { durability: Some(Durability::Os), ..WriteOptions::default() };
    for index in 0..count {
        let value = vec![b'a' + (index % 26) as u8; value_bytes];
        running.engine.store.put_with(format!("{index:06}").as_bytes(), &value, &options).unwrap();
    }
}

#[test]
fn entities_are_one_chunk_each_in_key_order() {
    let running = start();
    let mut client = running.client();
    for (key, value) in [("b", "2"), ("a%FF", "\n"), ("a", ""), ("c", "3"), ("%00", "0")] {
        client.put(&format!("/v0/entity?id={key}"), value.as_bytes());
    }
    let all = client.get("/v0/entities?start=%00");
    assert_eq!(all.status, 200);
    assert_eq!(all.header("transfer-encoding"), "chunked");
    let chunks: [&[u8]; 5] = [b"\0\n0", b"a\n", b"a\xff\n\n", b"b\n2", b"c\n3"];
    assert_eq!(all.chunks, chunks);
    assert_eq!(client.get("/v0/entities?start=a&end=b").chunks, chunks[1..3]);
    assert_eq!(client.get("/v0/entities?end=c&start=b").chunks, chunks[3..4]);
    assert_eq!(client.get("/v0/entities?start=d").body, b"");
    assert_eq!(client.get("/v0/entities?start=b&end=b").body, b"");
    client.assert_open();
}

#[test]
fn old_clients_get_a_range_that_ends_with_the_connection() {
    let running = start();
    fill(&running, 3, 2);
    let mut client = running.client();
    client.send("GET /v0/entities?start=0 HTTP/1.0\r\n\r\n");
    let (reply, is_reset) = client.read_to_end_or_reset();
    assert!(!is_reset);
    let reply = String::from_utf8(reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"));
    assert!(!head.contains("chunked"));
    assert_eq!(body, "000000\naa000001\nbb000002\ncc");
}

#[test]
fn long_range_of_an_old_client_ends_in_order() {
    let running = start();
    fill(&running, 2000, 10_000);
    for target in ["/v0/entities?start=0", "/kv?format=raw"] {
        let mut client = running.client();
        client.send(format!("GET {target} HTTP/1.0\r\n\r\n"));
        let (reply, is_reset) = client.read_to_end_or_reset();
        let body = reply.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        assert_eq!((reply.len() - body, is_reset), (2000 * 10_007, false), "{target}");
    }
}

#[test]
fn long_ranges_of_small_and_of_large_records_arrive_whole() {
    for (count, value_bytes) in [(30_000, 10), (100, 200_000), (2000, 4096)] {
        let running = start();
        fill(&running, count, value_bytes);
        let reply = running.client().get("/v0/entities?start=0");
        assert_eq!(reply.chunks.len(), count);
        for (index, chunk) in reply.chunks.iter().enumerate() {
            let key = format!("{index:06}\n");
            assert!(chunk.starts_with(key.as_bytes()));
            assert_eq!(chunk.len(), 7 + value_bytes);
            assert!(chunk[7..].iter().all(|&byte| byte == b'a' + (index % 26) as u8));
        }
    }
}

#[test]
fn reader_that_leaves_ends_its_stream() {
    let running = start();
    fill(&running, 3000, 10_000);
    let mut client = running.client();
    client.send("GET /v0/entities?start=0 HTTP/1.1\r\nHost: t\r\n\r\n");
    running.wait_for_figure("requests_in_flight", 1);
    drop(client);
    running.wait_for_figure("requests_in_flight", 0);
    running.wait_for_figure("connections", 0);
}

#[test]
fn damage_before_the_first_record_has_a_status_and_later_cuts_the_stream() {
    let running = start();
    fill(&running, 500, 10_000);
    let damage = Error::corruption("x".as_ref(), 1, "checksum");
    running.engine.set(Fault::ErrorAfter(0, damage.clone()));
    let reply = running.client().get("/v0/entities?start=0");
    assert_eq!((reply.status, reply.error().as_str()), (500, "corruption"));
    running.engine.set(Fault::ErrorAfter(300, damage));
    let mut client = running.client();
    let reply = client.get("/v0/entities?start=0");
    assert_eq!(reply.status, 200);
    assert!(reply.is_cut);
    assert!(reply.chunks.len() <= 300);
    client.assert_closed();
}

/// A client of HTTP/1.0, or a proxy that speaks it, knows the end of a range by the connection's end: a
/// range that was cut looked whole to it.
#[test]
fn damage_later_resets_the_connection_of_an_old_client() {
    let running = start();
    fill(&running, 500, 10_000);
    let damage = Error::corruption("x".as_ref(), 1, "checksum");
    running.engine.set(Fault::ErrorAfter(300, damage));
    for target in ["/v0/entities?start=0", "/kv?format=raw"] {
        for keep_alive in ["", "Connection: keep-alive\r\n"] {
            let mut client = running.client();
            client.send(format!("GET {target} HTTP/1.0\r\n{keep_alive}\r\n"));
            let (reply, is_reset) = client.read_to_end_or_reset();
            assert!(is_reset, "{target}: an end in order after {} bytes", reply.len());
        }
    }
}

fn lines(body: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(body).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn keys(body: &[u8]) -> Vec<String> {
    let key = |line: &Value| {
        String::from_utf8(STANDARD.decode(line["key"].as_str().unwrap()).unwrap()).unwrap()
    };
    lines(body).iter().map(key).collect()
}

#[test]
fn listing_obeys_its_parameters() {
    let running = start();
    let mut client = running.client();
    for key in ["a1", "a2", "a3", "b1", "b/2"] {
        client.put(&format!("/kv/{key}"), format!("value of {key}").as_bytes());
    }
    for (query, expected) in [
        ("", "a1 a2 a3 b/2 b1"),
        ("?prefix=a", "a1 a2 a3"),
        ("?prefix=b%2F", "b/2"),
        ("?start=a2", "a2 a3 b/2 b1"),
        ("?start=a2&end=b", "a2 a3"),
        ("?end=a2", "a1"),
        ("?reverse=true&limit=2", "b1 b/2"),
        ("?prefix=a&reverse=true", "a3 a2 a1"),
        ("?limit=0", ""),
        ("?start=z", ""),
        ("?start=b&end=a", ""),
        ("?start=&end=", "a1 a2 a3 b/2 b1"),
        ("?key_encoding=base64&prefix=YQ%3D%3D", "a1 a2 a3"),
        ("?key_encoding=base64&start=Yi8y", "b/2 b1"),
    ] {
        for heads in ["", if query.is_empty() { "?heads=true" } else { "&heads=true" }] {
            let reply = client.get(&format!("/kv{query}{heads}"));
            assert_eq!(reply.status, 200, "{query}");
            assert_eq!(reply.header("content-type"), "application/x-ndjson");
            assert_eq!(keys(&reply.body).join(" "), expected, "{query}{heads}");
        }
    }
    let raw = client.get("/kv?format=raw&limit=1");
    assert_eq!(raw.chunks, [b"a1\nvalue of a1"]);
}

#[test]
fn listing_says_what_is_known_of_each_entry() {
    let running = start();
    let mut client = running.client();
    let headers = ["x-tallybook-attributes: AAH/", "x-tallybook-expires-at: 99999999999999"];
    let made = client.request("PUT", "/kv/k", &headers, Some(b"\xff\0"));
    let version: u64 = made.header("x-tallybook-version").parse().unwrap();
    let line = &lines(&client.get("/kv").body)[0];
    assert_eq!(line["value"], "/wA=");
    let head = &lines(&client.get("/kv?heads=true").body)[0];
    assert_eq!(head["length"], 2);
    assert_eq!(head["checksum"], format!("{:08x}", checksum::crc32c(b"\xff\0")));
    assert!(head.get("value").is_none());
    for line in [line, head] {
        assert_eq!(line["version"], version);
        assert_eq!(line["expires_at"], 99_999_999_999_999u64);
        assert_eq!(line["attributes"], "AAH/");
        assert!(line["written_at"].as_u64().unwrap() > 0);
    }
}
