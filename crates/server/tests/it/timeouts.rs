//! Clients that stop: late heads, idle connections, bodies and answers that don't move.
//!
//! Limits here are short; each test waits for what must happen and none for how soon.

use std::io::Write;
use std::time::Duration;

use tallybook_server::ServerOptions;

use crate::faults::Fault;
use crate::files::{bytes, file_store};
use crate::harness::{options, start_with, start_with_files};

fn short() -> ServerOptions {
    let mut options = options();
    options.timeouts.header_ms = 200;
    options.timeouts.keep_alive_ms = 400;
    options.timeouts.body_idle_ms = 200;
    options
}

#[test]
fn head_that_comes_byte_by_byte_runs_out_of_time() {
    let running = start_with(short());
    let mut client = running.client();
    client.send("GET /v0/status HTTP/1.1\r\nHost: t\r\nX: ");
    while client.stream.get_mut().write_all(b"a").is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let reply = client.try_reply("GET");
    assert!(reply.is_none_or(|reply| reply.status == 408));
}

#[test]
fn unfinished_head_is_answered_408() {
    let running = start_with(short());
    let mut client = running.client();
    client.send("GET /v0/status HTTP/1.1\r\nHost: t\r\n");
    let reply = client.reply("GET");
    assert_eq!((reply.status, reply.error().as_str()), (408, "timeout"));
    client.assert_closed();
    let mut client = running.client();
    client.assert_open();
    client.send("GET /v0/status");
    assert_eq!(client.reply("GET").status, 408);
    client.assert_closed();
}

#[test]
fn silent_and_idle_connections_are_closed_without_a_word() {
    let running = start_with(short());
    running.client().assert_closed();
    let mut client = running.client();
    client.assert_open();
    client.assert_closed();
}

#[test]
fn body_that_stops_is_answered_408_and_nothing_is_written() {
    let running = start_with(short());
    for head in ["Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n5\r\nab"] {
        let mut client = running.client();
        client.send(format!("PUT /kv/k HTTP/1.1\r\nHost: t\r\n{head}"));
        assert_eq!(client.reply("PUT").status, 408);
        client.assert_closed();
    }
    assert_eq!(running.client().get("/kv/k").status, 404);
    running.wait_for_figure("requests_in_flight", 0);
}

#[test]
fn body_that_crawls_is_ended() {
    let mut options = short();
    options.timeouts.body_rate_bytes_min = 1 << 20;
    let running = start_with(options);
    let mut client = running.client();
    client.send("PUT /kv/k HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n");
    while client.stream.get_mut().write_all(b"a").is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(running.client().get("/kv/k").status, 404);
}

#[test]
fn reader_that_takes_nothing_is_cut_off() {
    let running = start_with(short());
    let value = vec![7u8; 32 << 20];
    assert_eq!(running.client().put("/kv/k", &value).status, 201);
    running.wait_for_figure("connections", 0);
    let mut client = running.client();
    client.send("GET /kv/k HTTP/1.1\r\nHost: t\r\n\r\n");
    running.wait_for_figure("connections", 1);
    running.wait_for_figure("connections", 0);
    assert!(client.read_to_end().len() < value.len());
}

#[test]
fn old_reader_that_takes_nothing_is_not_told_that_it_has_all() {
    let running = start_with(short());
    for index in 0..3000 {
        running.engine.store.put(format!("{index:04}").as_bytes(), &[b'v'; 10_000]).unwrap();
    }
    let mut client = running.client();
    client.send("GET /v0/entities?start=0 HTTP/1.0\r\n\r\n");
    running.wait_for_figure("connections", 1);
    running.wait_for_figure("connections", 0);
    let (reply, is_reset) = client.read_to_end_or_reset();
    assert!(is_reset && reply.len() < 3000 * 10_000, "an end in order after {}", reply.len());
}

#[test]
fn request_that_waits_for_the_engine_is_not_timed_out() {
    let running = start_with(short());
    running.client().put("/kv/k", b"v");
    running.engine.set(Fault::Gate);
    let mut client = running.client();
    client.send("GET /kv/k HTTP/1.1\r\nHost: t\r\n\r\n");
    running.engine.wait_for_arrivals(1);
    // Longer than every limit: a connection that could be ended by one would be.
    std::thread::sleep(Duration::from_millis(1000));
    running.engine.set(Fault::None);
    assert_eq!(client.reply("GET").body, b"v");
}

/// The body that had begun was that of the second request, and the first was dropped for it.
#[test]
fn request_received_whole_is_not_timed_out_by_the_body_of_the_next() {
    let mut options = options();
    options.timeouts.body_idle_ms = 1000;
    let running = start_with(options);
    running.engine.set(Fault::Gate);
    let mut client = running.client();
    client.send(
        "PUT /kv/a HTTP/1.1\r\nHost: t\r\nx-tallybook-durability: sync\r\nContent-Length: 1\r\n\r\nv\
         PUT /kv/b HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\n\r\nabc",
    );
    running.engine.wait_for_arrivals(1);
    std::thread::sleep(Duration::from_millis(2500));
    running.engine.set(Fault::None);
    assert_eq!(client.reply("PUT").status, 201);
    client.send("def");
    assert_eq!(client.reply("PUT").status, 201);
    assert_eq!(client.get("/kv/b").body, b"abcdef");
}

/// While an upload waited for a thread or the disk, its client was held up by our own window, and was
/// answered 408 for it.
#[test]
fn upload_that_waits_for_a_thread_is_not_timed_out() {
    let mut options = options();
    (options.threads, options.pool_threads) = (1, 1);
    options.timeouts.body_idle_ms = 1000;
    let dir = tempfile::tempdir().unwrap();
    let running = start_with_files(options, file_store(dir.path()));
    running.client().put("/kv/k", b"v");
    running.engine.set(Fault::Gate);
    let mut holder = running.client();
    holder.send("GET /kv/k HTTP/1.1\r\nHost: t\r\n\r\n");
    running.engine.wait_for_arrivals(1);
    let body = bytes(1, 20 << 20);
    let mut client = running.client();
    std::thread::scope(|scope| {
        let upload = scope.spawn(|| client.put("/files/f", &body));
        std::thread::sleep(Duration::from_millis(2500));
        running.engine.set(Fault::None);
        assert_eq!(upload.join().unwrap().status, 201);
    });
    assert_eq!(holder.reply("GET").body, b"v");
    assert!(running.client().get("/files/f").body == body);
}
