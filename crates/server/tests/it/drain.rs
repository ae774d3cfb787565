//! Stopping: what is under way finishes, what is idle closes, nothing new is taken.

use std::net::TcpStream;

use crate::faults::Fault;
use crate::harness::{options, start, start_with};

#[test]
fn requests_under_way_finish_and_idle_connections_close() {
    let mut running = start();
    running.client().put("/kv/k", b"v");
    let mut idle = running.client();
    idle.assert_open();
    let mut untouched = running.client();
    running.engine.set(Fault::Gate);
    let mut busy = running.client();
    busy.send("GET /kv/k HTTP/1.1\r\nHost: t\r\n\r\n");
    running.engine.wait_for_arrivals(1);
    running.handle.shutdown();
    idle.assert_closed();
    untouched.assert_closed();
    let mut admin = running.admin_client();
    assert_eq!(admin.get("/healthz").status, 200);
    let reply = admin.get("/readyz");
    assert_eq!((reply.status, reply.error().as_str()), (503, "draining"));
    running.engine.set(Fault::None);
    let reply = busy.reply("GET");
    assert_eq!((reply.body.as_slice(), reply.header("connection")), (&b"v"[..], "close"));
    busy.assert_closed();
    running.stop();
    assert!(TcpStream::connect(running.data).is_err());
    assert!(TcpStream::connect(running.admin).is_err());
}

#[test]
fn long_stream_is_sent_to_its_end() {
    let mut running = start();
    for index in 0..2000 {
        let key = format!("{index:04}");
        running.engine.store.put(key.as_bytes(), &[b'v'; 10_000]).unwrap();
    }
    let mut client = running.client();
    client.send("GET /v0/entities?start=0 HTTP/1.1\r\nHost: t\r\n\r\n");
    running.wait_for_figure("requests_in_flight", 1);
    running.handle.shutdown();
    let reply = client.reply("GET");
    assert_eq!(reply.chunks.len(), 2000);
    assert!(!reply.is_cut);
    running.stop();
}

#[test]
fn range_of_an_old_client_that_is_cut_at_the_limit_does_not_look_whole() {
    let mut limited = options();
    limited.timeouts.drain_ms = 50;
    let mut running = start_with(limited);
    for index in 0..3000 {
        running.engine.store.put(format!("{index:04}").as_bytes(), &[b'v'; 10_000]).unwrap();
    }
    let mut client = running.client();
    client.send("GET /v0/entities?start=0 HTTP/1.0\r\n\r\n");
    running.wait_for_figure("requests_in_flight", 1);
    running.stop();
    let (reply, is_reset) = client.read_to_end_or_reset();
    assert!(is_reset && reply.len() < 3000 * 10_000, "an end in order after {}", reply.len());
}

#[test]
fn upload_under_way_is_taken() {
    let mut running = start();
    let mut client = running.client();
    client.send("PUT /kv/k HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\n\r\nabc");
    running.wait_for_figure("requests_in_flight", 1);
    running.handle.shutdown();
    client.send("def");
    assert_eq!(client.reply("PUT").status, 201);
    client.assert_closed();
    running.stop();
    assert_eq!(running.engine.store.get(b"k").unwrap().unwrap(), "abcdef");
}

#[test]
fn request_that_does_not_finish_is_cut_at_the_limit() {
    let mut limited = options();
    limited.timeouts.drain_ms = 50;
    let mut running = start_with(limited);
    let mut client = running.client();
    client.send("PUT /kv/k HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\n\r\nabc");
    running.wait_for_figure("requests_in_flight", 1);
    running.stop();
    client.assert_closed();
    assert_eq!(running.engine.store.get(b"k").unwrap(), None);
}
