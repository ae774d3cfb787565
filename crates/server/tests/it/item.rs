//! One key: values of all kinds, heads, conditions, ranges, expiry, attributes, durability.

use crate::faults::Fault;
use crate::harness::start;
use tallybook::checksum;

#[test]
fn values_of_every_size_come_back_by_both_doors() {
    let running = start();
    let mut client = running.client();
    for length in [0, 1, 100, 1023, 1024, 65_536, 65_537, 300_000, 5_000_000] {
        let value: Vec<u8> = (0..length).map(|index| (index * 7 % 251) as u8).collect();
        assert_eq!(client.put(&format!("/v0/entity?id=v0-{length}"), &value).status, 201);
        assert_eq!(client.put(&format!("/kv/kv-{length}"), &value).status, 201);
        for target in [
            format!("/v0/entity?id=v0-{length}"),
            format!("/v0/entity?id=kv-{length}"),
            format!("/kv/v0-{length}"),
        ] {
            let reply = client.get(&target);
            assert_eq!(reply.status, 200, "{target}");
            assert!(reply.body == value, "{target}");
            let head = client.request("HEAD", &target, &[], None);
            assert_eq!(head.header("content-length"), length.to_string());
            assert_eq!(
                head.header("x-tallybook-checksum"),
                format!("{:08x}", checksum::crc32c(&value))
            );
        }
    }
}

#[test]
fn chunked_value_comes_back_whole() {
    let running = start();
    let mut client = running.client();
    client.send("PUT /v0/entity?id=k HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut value = Vec::new();
    for index in 0..200usize {
        let chunk = vec![index as u8; index * 10 + 1];
        client.send(format!("{:x}\r\n", chunk.len()));
        client.send(&chunk);
        client.send("\r\n");
        value.extend_from_slice(&chunk);
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.reply("PUT").status, 201);
    assert!(client.get("/v0/entity?id=k").body == value);
}

#[test]
fn client_that_waits_for_100_continue_is_told_to_go_on() {
    let running = start();
    let mut client = running.client();
    client
        .send("PUT /kv/k HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(client.reply("PUT").status, 100);
    client.send("abc");
    assert_eq!(client.reply("PUT").status, 201);
    assert_eq!(client.get("/kv/k").body, b"abc");
}

#[test]
fn keys_are_bytes_decoded_once() {
    let running = start();
    let mut client = running.client();
    for (put, get) in [
        ("/v0/entity?id=a%20b", "/v0/entity?id=a+b"),
        ("/v0/entity?id=a%2Bb", "/kv/a+b"),
        ("/kv/%00%ff%0D%0A", "/v0/entity?id=%00%FF%0d%0a"),
        ("/kv/a/../b//c", "/kv/a%2F..%2Fb%2F%2Fc"),
        ("/kv/%252F", "/v0/entity?id=%252F"),
    ] {
        assert_eq!(client.put(put, put.as_bytes()).status, 201);
        assert_eq!(client.get(get).body, put.as_bytes(), "{get}");
    }
    assert_eq!(client.put("/v0/entity?id=first&id=second", b"1").status, 201);
    assert_eq!(client.get("/kv/first").status, 200);
    assert_eq!(client.get("/kv/second").status, 404);
    assert_eq!(client.put("/kv/%3F", b"x").status, 201);
    assert_eq!(client.put("/kv/?", b"x").status, 400);
}

#[test]
fn deleting_answers_the_same_for_absent_keys() {
    let running = start();
    let mut client = running.client();
    client.put("/v0/entity?id=a", b"1");
    for _ in 0..2 {
        assert_eq!(client.request("DELETE", "/v0/entity?id=a", &[], None).status, 202);
        assert_eq!(client.get("/v0/entity?id=a").status, 404);
    }
    client.put("/kv/b", b"1");
    for _ in 0..2 {
        assert_eq!(client.request("DELETE", "/kv/b", &[], None).status, 204);
        assert_eq!(client.get("/kv/b").status, 404);
    }
    client.assert_open();
}

#[test]
fn versions_rise_by_one_and_are_the_entity_tags() {
    let running = start();
    let mut client = running.client();
    let first = client.put("/kv/k", b"1");
    let second = client.put("/kv/k", b"2");
    let version = |text: &str| text.parse::<u64>().unwrap();
    let (one, two) = (first.header("x-tallybook-version"), second.header("x-tallybook-version"));
    assert_eq!(version(two), version(one) + 1);
    assert_eq!(second.header("etag"), format!("\"{two}\""));
    assert_eq!(second.header("x-tallybook-durability"), "interval");
    let read = client.get("/kv/k");
    assert_eq!(read.header("etag"), second.header("etag"));
    assert_eq!(read.header("x-tallybook-version"), two);
    assert!(version(read.header("x-tallybook-written-at")) > 1_600_000_000_000);
    assert_eq!(read.header("x-tallybook-expires-at"), "");
    assert_eq!(read.header("content-type"), "application/octet-stream");
}

#[test]
fn writes_heed_their_conditions() {
    let running = start();
    let mut client = running.client();
    let mut put =
        |condition: &str, value: &[u8]| client.request("PUT", "/kv/k", &[condition], Some(value));
    assert_eq!(put("If-Match: *", b"0").status, 412);
    let made = put("If-None-Match: *", b"1");
    assert_eq!(made.status, 201);
    let tag = made.header("etag").to_owned();
    let refused = put("If-None-Match: *", b"2");
    assert_eq!((refused.status, refused.error().as_str()), (412, "conflict"));
    assert_eq!(refused.header("etag"), tag);
    assert_eq!(put("If-Match: \"999999\"", b"2").status, 412);
    assert_eq!(put(&format!("If-Match: W/{tag}"), b"2").status, 412);
    assert_eq!(put(&format!("If-None-Match: {tag}"), b"2").status, 412);
    let made = put(&format!("If-Match: {tag}"), b"2");
    assert_eq!(made.status, 201);
    let tag = made.header("etag").to_owned();
    assert_eq!(put("If-Match: \"999998\", \"999999\"", b"3").status, 412);
    let made = put(&format!("If-Match: \"999999\", {tag}"), b"3");
    assert_eq!(made.status, 201);
    let tag = made.header("etag").to_owned();
    assert_eq!(put("If-Match: *", b"4").status, 201);
    assert_eq!(put(&format!("If-None-Match: {tag}"), b"5").status, 201);
    let delete = |condition: &str| running.client().request("DELETE", "/kv/k", &[condition], None);
    assert_eq!(delete(&format!("If-Match: {tag}")).status, 412);
    assert_eq!(delete("If-Match: *").status, 204);
    assert_eq!(delete("If-Match: *").status, 412);
    assert_eq!(delete("If-Match: nonsense").status, 400);
}

#[test]
fn one_of_many_writers_of_a_version_wins() {
    let running = start();
    let tag = running.client().put("/kv/k", b"0").header("etag").to_owned();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|index| {
                let (running, condition) = (&running, format!("If-Match: {tag}"));
                scope.spawn(move || {
                    let value = [index];
                    running.client().request("PUT", "/kv/k", &[&condition], Some(&value)).status
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|&&status| status == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|&&status| status == 412).count(), 7, "{statuses:?}");
}

#[test]
fn reads_heed_their_conditions() {
    let running = start();
    let mut client = running.client();
    let tag = client.put("/kv/k", b"value").header("etag").to_owned();
    for method in ["GET", "HEAD"] {
        let mut read = |condition: &str| client.request(method, "/kv/k", &[condition], None);
        let unchanged = read(&format!("If-None-Match: {tag}"));
        assert_eq!((unchanged.status, unchanged.header("etag")), (304, tag.as_str()));
        assert_eq!(read(&format!("If-None-Match: \"7777\", W/{tag}")).status, 304);
        assert_eq!(read("If-None-Match: *").status, 304);
        assert_eq!(read("If-None-Match: \"7777\"").status, 200);
        assert_eq!(read(&format!("If-Match: {tag}")).status, 200);
        assert_eq!(read("If-Match: \"7777\"").status, 412);
    }
    assert_eq!(client.request("GET", "/kv/absent", &["If-None-Match: *"], None).status, 404);
    assert_eq!(client.request("GET", "/kv/absent", &["If-Match: *"], None).status, 412);
    assert_eq!(client.request("GET", "/kv/k", &["If-Match: k"], None).status, 400);
}

#[test]
fn parts_of_a_value_are_served() {
    let running = start();
    let mut client = running.client();
    let tag = client.put("/kv/k", b"0123456789").header("etag").to_owned();
    for (range, status, content_range, body) in [
        ("bytes=0-3", 206, "bytes 0-3/10", "0123"),
        ("bytes=7-", 206, "bytes 7-9/10", "789"),
        ("bytes=-2", 206, "bytes 8-9/10", "89"),
        ("bytes=5-100", 206, "bytes 5-9/10", "56789"),
        ("bytes=0-1,3-4", 200, "", "0123456789"),
        ("bytes=4-2", 200, "", "0123456789"),
        ("lines=1-2", 200, "", "0123456789"),
    ] {
        let reply = client.request("GET", "/kv/k", &[&format!("Range: {range}")], None);
        assert_eq!(reply.status, status, "{range}");
        assert_eq!(reply.header("content-range"), content_range, "{range}");
        assert_eq!(reply.body, body.as_bytes(), "{range}");
        assert_eq!(reply.header("accept-ranges"), "bytes");
    }
    let reply = client.request("GET", "/kv/k", &["Range: bytes=10-"], None);
    assert_eq!((reply.status, reply.header("content-range")), (416, "bytes */10"));
    for (if_range, status) in
        [(tag.as_str(), 206), ("\"7777\"", 200), ("Sat, 01 Jan 2000 00:00:00 GMT", 200)]
    {
        let headers = ["Range: bytes=0-0", &format!("If-Range: {if_range}")];
        assert_eq!(client.request("GET", "/kv/k", &headers, None).status, status, "{if_range}");
    }
    let head = client.request("HEAD", "/kv/k", &["Range: bytes=0-0"], None);
    assert_eq!((head.status, head.header("content-length")), (200, "10"));
    assert_eq!(client.request("GET", "/v0/entity?id=k", &["Range: bytes=0-0"], None).status, 200);
    let head = client.request("HEAD", "/v0/entity?id=k", &[], None);
    assert_eq!((head.header("accept-ranges"), head.header("etag")), ("", ""), "not heeded there");
    assert_eq!(head.header("x-tallybook-version"), tag.trim_matches('"'));
}

#[test]
fn expiry_and_attributes_travel_with_the_entry() {
    let running = start();
    let mut client = running.client();
    let far = u64::MAX / 4;
    let headers = [&format!("x-tallybook-expires-at: {far}"), "x-tallybook-attributes: AAH/"];
    assert_eq!(client.request("PUT", "/kv/k", &headers, Some(b"v")).status, 201);
    for (method, target) in [("GET", "/kv/k"), ("HEAD", "/kv/k"), ("HEAD", "/v0/entity?id=k")] {
        let reply = client.request(method, target, &[], None);
        assert_eq!(reply.header("x-tallybook-expires-at"), far.to_string());
        assert_eq!(reply.header("x-tallybook-attributes"), "AAH/");
    }
    let ttl = client.request("PUT", "/kv/ttl", &["x-tallybook-ttl-ms: 3600000"], Some(b"v"));
    assert_eq!(ttl.status, 201);
    let reply = client.get("/kv/ttl");
    let time = |name: &str| reply.header(name).parse::<u64>().unwrap();
    assert!(time("x-tallybook-expires-at") > time("x-tallybook-written-at"));
    let gone = client.request("PUT", "/kv/gone", &["x-tallybook-expires-at: 1"], Some(b"v"));
    assert_eq!(gone.status, 201);
    assert_eq!(client.get("/kv/gone").status, 404);
}

#[test]
fn durability_is_as_asked_and_said() {
    let running = start();
    let mut client = running.client();
    for level in ["os", "interval", "sync"] {
        let header = format!("x-tallybook-durability: {level}");
        let put = client.request("PUT", "/kv/k", &[&header], Some(b"v"));
        assert_eq!((put.status, put.header("x-tallybook-durability")), (201, level));
        let delete = client.request("DELETE", "/kv/k", &[&header], None);
        assert_eq!((delete.status, delete.header("x-tallybook-durability")), (204, level));
    }
}

#[test]
fn malformed_headers_are_refused_and_nothing_is_written() {
    let running = start();
    let too_many = format!("x-tallybook-attributes: {}", "A".repeat(1372));
    for header in [
        "x-tallybook-ttl-ms: 0",
        "x-tallybook-ttl-ms: soon",
        "x-tallybook-ttl-ms: +5",
        "x-tallybook-ttl-ms: 5\r\nx-tallybook-expires-at: 5",
        "x-tallybook-expires-at: 0",
        "x-tallybook-expires-at: 5\r\nx-tallybook-expires-at: 5",
        "x-tallybook-attributes: ***",
        "x-tallybook-durability: eventual",
        "If-Match: *\r\nIf-None-Match: *",
        "If-Match: \"1",
        "Content-Range: bytes 0-0/1",
        &too_many,
    ] {
        let mut client = running.client();
        let reply = client.request("PUT", "/kv/k", &[header], Some(b"v"));
        assert_eq!(reply.status, 400, "{header}");
        client.assert_closed();
        assert_eq!(running.client().get("/kv/k").status, 404, "{header}");
    }
    let most = format!("x-tallybook-attributes: {}A==", "A".repeat(1365));
    assert_eq!(running.client().request("PUT", "/kv/k", &[&most], Some(b"v")).status, 201);
}

#[test]
fn reads_that_wait_for_the_disk_answer_the_same() {
    let running = start();
    let mut client = running.client();
    let tag = client.put("/kv/k", b"value").header("etag").to_owned();
    running.engine.set(Fault::WouldWait);
    assert_eq!(client.get("/v0/entity?id=k").body, b"value");
    assert_eq!(client.get("/v0/entity?id=absent").status, 404);
    let reply = client.request("GET", "/kv/k", &["Range: bytes=1-2"], None);
    assert_eq!((reply.status, reply.body.as_slice()), (206, &b"al"[..]));
    let unchanged = client.request("GET", "/kv/k", &[&format!("If-None-Match: {tag}")], None);
    assert_eq!(unchanged.status, 304);
    assert_eq!(client.request("HEAD", "/kv/k", &[], None).header("content-length"), "5");
    assert_eq!(client.request("HEAD", "/v0/entity?id=absent", &[], None).status, 404);
}
