//! Many requests on one connection: order, gathering, closing, clients that close their side.

use std::net::Shutdown;

use crate::faults::Fault;
use crate::harness::start;

fn put(key: usize, value: &str) -> String {
    format!(
        "PUT /v0/entity?id=k{key} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{value}",
        value.len()
    )
}

fn get(key: usize) -> String {
    format!("GET /v0/entity?id=k{key} HTTP/1.1\r\nHost: t\r\n\r\n")
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let running = start();
    let mut client = running.client();
    let puts: String = (0..200).map(|key| put(key, &format!("value {key}"))).collect();
    client.send(&puts);
    for _ in 0..200 {
        assert_eq!(client.reply("PUT").status, 201);
    }
    let gets: String = (0..300).map(get).collect();
    client.send(&gets);
    for key in 0..300 {
        let reply = client.reply("GET");
        if key < 200 {
            assert_eq!(reply.body, format!("value {key}").as_bytes());
        } else {
            assert_eq!(reply.status, 404);
        }
    }
    client.assert_open();
}

#[test]
fn answers_keep_their_order_when_the_first_has_to_wait() {
    let running = start();
    let mut client = running.client();
    client.put("/v0/entity?id=k1", b"one");
    running.engine.set(Fault::Gate);
    client.send(get(1) + "GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n");
    running.engine.wait_for_arrivals(1);
    running.engine.set(Fault::None);
    assert_eq!(client.reply("GET").body, b"one");
    assert_eq!(client.reply("GET").body, br#"{"status":"ok"}"#);
}

/// It was kept back for the third answer to go out with it, which had to wait for the second.
#[test]
fn answer_does_not_wait_for_the_request_behind_it_that_waits_for_the_disk() {
    const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n";
    let running = start();
    let mut client = running.client();
    client.put("/v0/entity?id=k1", b"one");
    running.engine.set(Fault::Gate);
    client.send([HEALTH, &get(1), HEALTH].concat());
    assert_eq!(client.reply("GET").body, br#"{"status":"ok"}"#);
    running.engine.wait_for_arrivals(1);
    running.engine.set(Fault::None);
    assert_eq!(client.reply("GET").body, b"one");
    assert_eq!(client.reply("GET").body, br#"{"status":"ok"}"#);
}

#[test]
fn heads_values_and_streams_mix_in_one_pipeline() {
    let running = start();
    let mut client = running.client();
    let large = "x".repeat(300_000);
    client.send(put(1, &large) + &put(2, "two"));
    client.send("HEAD /v0/entity?id=k1 HTTP/1.1\r\nHost: t\r\n\r\n");
    client.send(get(1) + "GET /v0/entities?start=k HTTP/1.1\r\nHost: t\r\n\r\n" + &get(2));
    assert_eq!(client.reply("PUT").status, 201);
    assert_eq!(client.reply("PUT").status, 201);
    assert_eq!(client.reply("HEAD").header("content-length"), "300000");
    assert_eq!(client.reply("GET").body, large.as_bytes());
    let range = client.reply("GET");
    assert_eq!(range.chunks.len(), 2);
    assert_eq!(range.chunks[1], b"k2\ntwo");
    assert_eq!(client.reply("GET").body, b"two");
    client.assert_open();
}

#[test]
fn client_that_closes_its_side_still_gets_its_answers() {
    let running = start();
    let mut client = running.client();
    client.put("/v0/entity?id=k1", b"one");
    running.engine.set(Fault::Gate);
    client.send(get(1) + &get(2));
    client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    running.engine.wait_for_arrivals(1);
    running.engine.set(Fault::None);
    assert_eq!(client.reply("GET").body, b"one");
    assert_eq!(client.reply("GET").status, 404);
    client.assert_closed();
}

#[test]
fn cut_request_leaves_nothing_behind() {
    let running = start();
    let mut client = running.client();
    client.send("PUT /v0/entity?id=cut HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc");
    client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    let reply = client.reply("PUT");
    assert_eq!((reply.status, reply.error().as_str()), (400, "bad_request"));
    client.assert_closed();
    assert_eq!(running.client().get("/v0/entity?id=cut").status, 404);
    let mut client = running.client();
    client.send("GET /v0/entity?id=cut HTTP/1.1\r\nHo");
    client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    client.assert_closed();
}

/// hyper skips its last flush on a connection that was asked to upgrade, and ends before the socket has
/// taken everything; a large answer before a close must not lose its end by either.
#[test]
fn large_answer_arrives_whole_before_the_connection_closes() {
    let running = start();
    let value = vec![7u8; 20 << 20];
    assert_eq!(running.client().put("/kv/k", &value).status, 201);
    for headers in ["Connection: close", "Connection: close, Upgrade\r\nUpgrade: h2c"] {
        let mut client = running.client();
        client.send(format!("GET /kv/k HTTP/1.1\r\nHost: t\r\n{headers}\r\n\r\n"));
        assert!(client.reply("GET").body == value);
        client.assert_closed();
    }
}
