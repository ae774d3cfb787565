//! Large values on their way to slow readers: counted before they are read and until they are gone.
//!
//! Each reader used to hold a value of its own, of up to 64 MiB, that nothing counted: some hundred
//! connections that read a kilobyte a second took all the memory there is.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::faults::Fault;
use crate::harness::{Client, Reply, Running, options, start_with};

/// More than sockets hold.
const LARGE_BYTES: usize = 40 << 20;

/// A server with memory for two such values, and one of them at `large` behind 300 smaller ones.
fn start() -> Running {
    let mut limited = options();
    limited.limits.body_memory_bytes_max = 100 << 20;
    let running = start_with(limited);
    for index in 0..300 {
        running.engine.store.put(format!("k{index:03}").as_bytes(), &[b'v'; 4096]).unwrap();
    }
    running.engine.store.put(b"large", &value()).unwrap();
    running
}

fn value() -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| (at / 4096) as u8).collect()
}

/// A client that asks and doesn't read.
fn slow(running: &Running, target: &str) -> Client {
    let mut client = running.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
    client
}

fn wait_for_memory(running: &Running, bytes: usize) {
    running.wait_for_figure("body_memory_bytes", bytes as u64);
}

fn assert_overloaded(reply: &Reply) {
    assert_eq!((reply.status, reply.error().as_str()), (503, "overloaded"));
    assert_eq!(reply.header("retry-after"), "1");
}

#[test]
fn large_values_are_refused_while_slow_readers_hold_the_memory() {
    for fault in [Fault::None, Fault::WouldWait] {
        let running = start();
        running.engine.set(fault);
        let mut first = slow(&running, "/kv/large");
        let second = slow(&running, "/v0/entity?id=large");
        wait_for_memory(&running, 2 * LARGE_BYTES);
        let mut client = running.client();
        for target in ["/kv/large", "/v0/entity?id=large"] {
            assert_overloaded(&client.get(target));
            assert_eq!(client.request("HEAD", target, &[], None).status, 200);
        }
        assert_overloaded(&client.request("GET", "/kv/large", &["Range: bytes=0-0"], None));
        let known = client.request("GET", "/kv/large", &["If-None-Match: *"], None);
        assert_eq!(known.status, 304);
        assert_eq!(client.get("/kv/k000").status, 200);
        assert!(first.reply("GET").body == value());
        wait_for_memory(&running, LARGE_BYTES);
        assert!(client.get("/kv/large").body == value());
        drop(second);
        wait_for_memory(&running, 0);
        let part = client.request("GET", "/kv/large", &["Range: bytes=4095-4096"], None);
        assert_eq!((part.status, part.body.as_slice()), (206, &[0, 1][..]));
        wait_for_memory(&running, 0);
    }
}

#[test]
fn value_larger_than_the_memory_is_read_alone() {
    let mut limited = options();
    limited.limits.body_memory_bytes_max = 1 << 20;
    let running = start_with(limited);
    running.engine.store.put(b"large", &value()).unwrap();
    let reader = slow(&running, "/kv/large");
    wait_for_memory(&running, 1 << 20);
    assert_overloaded(&running.client().get("/kv/large"));
    drop(reader);
    wait_for_memory(&running, 0);
    assert!(running.client().get("/kv/large").body == value());
    assert_eq!(running.client().get("/v0/entities?start=large").body.len(), LARGE_BYTES + 6);
    wait_for_memory(&running, 0);
}

#[test]
fn range_that_begins_with_a_large_value_is_refused_without_memory_for_it() {
    let running = start();
    let readers = [(); 2].map(|()| slow(&running, "/v0/entities?start=large"));
    wait_for_memory(&running, 2 * LARGE_BYTES);
    for target in ["/v0/entities?start=large", "/kv?start=large", "/kv?start=large&format=raw"] {
        assert_overloaded(&running.client().get(target));
    }
    assert_eq!(running.client().get("/kv?start=large&heads=true").status, 200);
    drop(readers);
    wait_for_memory(&running, 0);
}

#[test]
fn range_under_way_waits_for_memory_for_a_large_value() {
    let running = start();
    for target in ["/v0/entities?start=k", "/kv"] {
        let readers = [(); 2].map(|()| slow(&running, "/kv/large"));
        wait_for_memory(&running, 2 * LARGE_BYTES);
        let mut client = slow(&running, target);
        let reading = std::thread::spawn(move || client.reply("GET"));
        running.wait_for_figure("requests_in_flight", 1);
        std::thread::sleep(Duration::from_millis(200));
        assert!(!reading.is_finished());
        assert_eq!(running.figure("requests_in_flight"), 1);
        drop(readers);
        let reply = reading.join().unwrap();
        assert!(!reply.is_cut);
        if target == "/kv" {
            assert_eq!(reply.body.split_inclusive(|&byte| byte == b'\n').count(), 301);
            assert!(reply.body.len() > LARGE_BYTES / 3 * 4);
        } else {
            assert_eq!(reply.chunks.len(), 301);
            assert!(reply.chunks[300][6..] == value());
        }
        wait_for_memory(&running, 0);
    }
}

/// A value counted its base64, too: what one had of it left no room for the other, which was cut.
#[test]
fn two_exports_of_large_values_as_json_leave_each_other_room() {
    let running = start();
    running.engine.store.put(b"larger", &value()).unwrap();
    let mut first = slow(&running, "/kv");
    wait_for_memory(&running, LARGE_BYTES);
    let second = slow(&running, "/kv").reply("GET");
    assert!(!second.is_cut);
    wait_for_memory(&running, LARGE_BYTES);
    let first = first.reply("GET");
    assert!(!first.is_cut && first.body == second.body);
    assert_eq!(first.body.split_inclusive(|&byte| byte == b'\n').count(), 302);
    assert!(first.body.len() > 2 * (LARGE_BYTES / 3 * 4));
    wait_for_memory(&running, 0);
}

/// Where others kept the memory for hours, it kept its share of the requests in flight and a snapshot of the
/// store as long, and neither watchdog nor drain ended it.
#[test]
fn range_that_waits_for_memory_for_too_long_is_cut() {
    let mut limited = options();
    limited.limits.body_memory_bytes_max = LARGE_BYTES + 1;
    limited.timeouts.body_idle_ms = 2000;
    let running = start_with(limited);
    running.engine.store.put(b"k", &[b'v'; 4096]).unwrap();
    running.engine.store.put(b"large", &value()).unwrap();
    let mut holder = slow(&running, "/kv/large");
    wait_for_memory(&running, LARGE_BYTES);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Fast enough not to be cut, and for longer than a reader has patience.
            while !is_over.load(Relaxed) {
                holder.stream.read_exact(&mut [0; 128 << 10]).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let reply = slow(&running, "/v0/entities?start=k").reply("GET");
        let held = running.figure("body_memory_bytes");
        is_over.store(true, Relaxed);
        assert!(reply.is_cut);
        assert_eq!(reply.chunks.len(), 1);
        assert_eq!(held, LARGE_BYTES as u64, "there was no memory all the while");
    });
    running.wait_for_figure("requests_in_flight", 0);
}
