//! More than the server takes: it says so at once, says when to come back, and health goes on.

use std::io::Write;
use std::net::{IpAddr, UdpSocket};

use tallybook::error::Error;

use crate::faults::Fault;
use crate::harness::{Client, Reply, options, start, start_with};

fn assert_unavailable(reply: &Reply, error: &str) {
    assert_eq!((reply.status, reply.error().as_str()), (503, error));
    assert_eq!(reply.header("retry-after"), "1");
}

#[test]
fn requests_beyond_those_in_flight_are_refused() {
    let mut limited = options();
    limited.limits.in_flight_max = 2;
    let running = start_with(limited);
    running.client().put("/kv/k", b"v");
    running.engine.set(Fault::Gate);
    let mut waiting: Vec<Client> = (0..2).map(|_| running.client()).collect();
    for client in &mut waiting {
        client.send("GET /kv/k HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    running.engine.wait_for_arrivals(2);
    let mut client = running.client();
    assert_unavailable(&client.get("/v0/entity?id=k"), "overloaded");
    assert_unavailable(&client.get("/v0/entities?start=k"), "overloaded");
    for target in ["/healthz", "/readyz", "/v0/status"] {
        assert_eq!(client.get(target).status, 200);
        assert_eq!(running.admin_client().get(target).status, 200);
    }
    running.engine.set(Fault::None);
    for client in &mut waiting {
        assert_eq!(client.reply("GET").body, b"v");
    }
    assert_eq!(client.get("/v0/entity?id=k").body, b"v");
}

/// An address of this machine that isn't loopback, if it has one. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// One address with as many slow bodies as there may be requests in flight had others refused for hours.
#[test]
fn slow_bodies_and_streams_of_one_address_leave_half_to_others() {
    let Some(address) = own_address() else {
        eprintln!("not tested: this machine has no address but loopback");
        return;
    };
    let mut limited = options();
    limited.listen = "0.0.0.0:0".parse().unwrap();
    limited.allow_insecure = true;
    limited.limits.in_flight_max = 4;
    let running = start_with(limited);
    let far = || Client::connect((address, running.data.port()).into());
    let slow = |mut client: Client| {
        client.send("PUT /kv/k HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\n\r\nabc");
        client
    };
    let mut held = vec![slow(far()), slow(far())];
    running.wait_for_figure("requests_in_flight", 2);
    assert_unavailable(&slow(far()).reply("PUT"), "overloaded");
    assert_unavailable(&far().get("/kv"), "overloaded");
    let near = || Client::connect(([127, 0, 0, 1], running.data.port()).into());
    assert_eq!(near().get("/kv").status, 200);
    held.extend([slow(near()), slow(near())]);
    running.wait_for_figure("requests_in_flight", 4);
    assert_unavailable(&near().get("/kv"), "overloaded");
    for client in &mut held {
        client.send("def");
        assert_eq!(client.reply("PUT").status, 201);
    }
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let mut limited = options();
    limited.limits.connections_max = 3;
    limited.limits.connections_per_address_max = 1;
    let running = start_with(limited);
    let mut clients: Vec<Client> = (0..3).map(|_| running.client()).collect();
    for client in &mut clients {
        client.assert_open();
    }
    let mut refused = running.client();
    refused.send("GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_unavailable(&refused.reply("GET"), "overloaded");
    refused.assert_closed();
    assert_eq!(running.admin_client().get("/healthz").status, 200);
    clients.pop();
    running.wait_for_figure("connections", 2);
    running.client().assert_open();
}

#[test]
fn stalled_engine_refuses_writes_before_their_bodies() {
    let running = start();
    running.client().put("/kv/k", b"v");
    running.engine.set(Fault::Pressure(1.0));
    for (method, target) in [("PUT", "/v0/entity?id=a"), ("PUT", "/kv/a"), ("POST", "/kv")] {
        let mut client = running.client();
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        ));
        assert_unavailable(&client.reply(method), "busy");
        client.assert_closed();
    }
    let mut client = running.client();
    assert_unavailable(&client.request("DELETE", "/kv/k", &[], None), "busy");
    assert_unavailable(&client.request("DELETE", "/v0/entity?id=k", &[], None), "busy");
    assert_eq!(client.get("/kv/k").body, b"v");
    running.engine.set(Fault::Pressure(0.9));
    assert_eq!(client.put("/kv/k", b"w").status, 201);
    assert_eq!(client.request("DELETE", "/kv/k", &[], None).status, 204);
}

#[test]
fn bodies_beyond_their_memory_are_refused() {
    let mut limited = options();
    limited.limits.body_memory_bytes_max = 300_000;
    let running = start_with(limited);
    let mut client = running.client();
    client.send(
        "PUT /kv/k HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 300001\r\n\r\n",
    );
    assert_unavailable(&client.reply("PUT"), "overloaded");
    client.assert_closed();
    let mut client = running.client();
    client.send("PUT /kv/k HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    while client.stream.get_mut().write_all(chunk.as_bytes()).is_ok() {}
    assert_unavailable(&client.reply("PUT"), "overloaded");
    assert_eq!(running.client().put("/kv/k", &[7; 250_000]).status, 201);
    running.wait_for_figure("body_memory_bytes", 0);
}

#[test]
fn chunked_body_over_the_limit_is_refused_while_it_comes() {
    let mut limited = options();
    limited.limits.value_bytes_max = 100_000;
    let running = start_with(limited);
    let mut client = running.client();
    client.send("PUT /kv/k HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    while client.stream.get_mut().write_all(chunk.as_bytes()).is_ok() {}
    assert_eq!(client.reply("PUT").status, 413);
    assert_eq!(running.client().put("/kv/k", &[7; 100_000]).status, 201);
    assert_eq!(running.client().put("/kv/l", &[7; 100_001]).status, 413);
}

#[test]
fn engine_errors_have_their_statuses_by_every_door() {
    let running = start();
    running.client().put("/kv/k", b"v");
    let io = |kind: std::io::ErrorKind| Error::io("write", "x".as_ref(), kind.into());
    for (error, status, kind) in [
        (Error::Busy, 503, "busy"),
        (Error::ReadOnly { cause: "a sync failed".into() }, 503, "read_only"),
        (io(std::io::ErrorKind::StorageFull), 507, "no_space"),
        (io(std::io::ErrorKind::Other), 500, "io_error"),
        (Error::corruption("x".as_ref(), 7, "checksum"), 500, "corruption"),
    ] {
        running.engine.set(Fault::Error(error));
        let mut client = running.client();
        let batch = br#"{"operations":[{"delete":{"key":"aw=="}}]}"#;
        for (method, target, body) in [
            ("PUT", "/v0/entity?id=k", Some(&b"w"[..])),
            ("DELETE", "/v0/entity?id=k", None),
            ("PUT", "/kv/k", Some(&b"w"[..])),
            ("DELETE", "/kv/k", None),
            ("POST", "/kv", Some(batch)),
        ] {
            let reply = client.request(method, target, &[], body);
            assert_eq!((reply.status, reply.error().as_str()), (status, kind), "{method} {target}");
            assert_eq!(reply.headers.contains_key("retry-after"), status == 503);
        }
        if status == 500 {
            for target in ["/v0/entity?id=k", "/kv/k", "/v0/entities?start=k", "/kv"] {
                assert_eq!(client.get(target).error(), kind, "{target}");
            }
        }
        client.assert_open();
    }
    running.engine.set(Fault::ReadOnly);
    for target in ["/readyz", "/v0/status"] {
        assert_unavailable(&running.client().get(target), "read_only");
        assert_unavailable(&running.admin_client().get(target), "read_only");
    }
    assert_eq!(running.client().get("/healthz").status, 200);
    assert_eq!(running.client().get("/kv/k").body, b"v");
}
