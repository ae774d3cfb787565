//! What timing costs: the same reads and writes with no operation timed, one in 256, and every one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use tallybook::{Options, Store};

use crate::bulk::wait_until_settled;
use crate::paired::Paired;
use crate::process::thread_cpu_time;

/// How often operations are timed, and what that is called.
const SETTINGS: [(u32, &str); 3] = [(0, "off"), (256, "1 in 256"), (1, "every one")];
const NAMES: [&str; 3] = [SETTINGS[0].1, SETTINGS[1].1, SETTINGS[2].1];

/// Keys in tables, for reads.
const KEYS: u64 = 1_000_000;
/// Operations of one turn.
const TURN: u64 = 50_000;

fn key(at: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..].copy_from_slice(&at.to_be_bytes());
    key
}

/// Reads and writes in process, by the CPU time of the thread that makes them.
pub(crate) fn run(dir: &Path, within_percent: f64, rounds_max: usize) {
    let within = within_percent / 100.0;
    let store = loaded(dir);
    let mut next = 0_u64;
    let reads = Paired::run(&NAMES, within, rounds_max, |setting| {
        store.set_sample_every(SETTINGS[setting].0);
        turn(|| {
            next = next.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let found = store.get(&key((next >> 20) % KEYS)).expect("a get").expect("a known key");
            assert_eq!(found.len(), 100);
        })
    });
    store.close().expect("the store closes");
    reads.print("readrandom", "ns CPU/op");
    // Each turn fills a store of its own, so that all find the same: what flushes and compactions
    // leave behind would cost the next turn more than timing does.
    let fresh = dir.with_extension("fresh");
    let writes = Paired::run(&NAMES, within, rounds_max, |setting| {
        let options = Options { sample_every: SETTINGS[setting].0, ..Options::default() };
        let store = Store::open(&fresh, options).expect("a new store opens");
        let mut at = 0;
        let cost = turn(|| {
            store.put(&key(at), &[7; 100]).expect("a put");
            at += 1;
        });
        store.close().expect("the store closes");
        std::fs::remove_dir_all(&fresh).expect("the store's directory");
        cost
    });
    writes.print("fillrandom", "ns CPU/op");
}

/// CPU nanoseconds of one operation, from a turn of many.
fn turn(mut operation: impl FnMut()) -> f64 {
    let started = thread_cpu_time();
    for _ in 0..TURN {
        operation();
    }
    (thread_cpu_time() - started).as_nanos() as f64 / TURN as f64
}

/// `operations` reads and as many writes at one setting, and nothing else that differs: for counting
/// instructions, as the difference of two runs of unequal length.
pub(crate) fn instructions(dir: &Path, what: &str, sample_every: u32, operations: u64) {
    let options = Options { background: false, sample_every, ..Options::default() };
    let store = Store::open(dir, options).expect("a new store opens");
    for at in 0..10_000 {
        store.put(&key(at), &[7; 100]).expect("a put");
    }
    store.flush().expect("a flush");
    for at in 0..operations {
        if what == "readrandom" {
            assert!(store.get(&key(at * 7919 % 10_000)).expect("a get").is_some());
        } else {
            store.put(&key(10_000 + at), &[7; 100]).expect("a put");
        }
    }
    store.close().expect("the store closes");
}

fn loaded(dir: &Path) -> Store {
    let store = Store::open(dir, Options::default()).expect("a new store opens");
    for at in 0..KEYS {
        store.put(&key(at), &[7; 100]).expect("a put");
    }
    store.flush().expect("a flush");
    wait_until_settled(&store);
    store
}

/// GETs of a running server, by the CPU time of its process.
pub(crate) fn http(data: &str, admin: &str, pid: u32, within_percent: f64, rounds_max: usize) {
    const HTTP_KEYS: u64 = 10_000;
    const HTTP_TURN: u64 = 10_000;
    let mut connection = Connection::new(data);
    for at in 0..HTTP_KEYS {
        let body = [b'v'; 100];
        let head = format!(
            "PUT /v0/entity?id=k{at} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
        );
        assert_eq!(connection.ask(&[head.as_bytes(), &body].concat()), 201);
    }
    let requests: Vec<String> = (0..HTTP_KEYS)
        .map(|at| format!("GET /v0/entity?id=k{at} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        .collect();
    let mut next = 0;
    let gets = Paired::run(&NAMES, within_percent / 100.0, rounds_max, |setting| {
        let every = SETTINGS[setting].0;
        let change = format!(
            "PUT /stages/sampling?every={every} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        );
        assert_eq!(Connection::new(admin).ask(change.as_bytes()) / 100, 2);
        let started = process_cpu_time(pid);
        for _ in 0..HTTP_TURN {
            next = (next + 7919) % HTTP_KEYS;
            assert_eq!(connection.ask(requests[next as usize].as_bytes()), 200);
        }
        (process_cpu_time(pid) - started).as_nanos() as f64 / HTTP_TURN as f64
    });
    gets.print("HTTP GET", "ns CPU/op");
}

/// CPU time of every thread of a process, to the nanosecond. Threads that ended are not in it.
fn process_cpu_time(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the server runs");
    let of_task = |task: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
        let statistics = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        statistics.split_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(tasks.filter_map(of_task).sum())
}

/// A connection that asks one thing at a time.
struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    fn new(address: &str) -> Connection {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a TCP socket");
        Connection { stream, answer: vec![0; 64 << 10] }
    }

    /// Sends a request and reads its answer whole; the status.
    fn ask(&mut self, request: &[u8]) -> u16 {
        self.stream.write_all(request).expect("the connection holds");
        let mut len = 0;
        loop {
            let read = self.stream.read(&mut self.answer[len..]).expect("the connection holds");
            assert!(read > 0, "the server closed the connection");
            len += read;
            let answer = &self.answer[..len];
            let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let head = std::str::from_utf8(&answer[..end]).expect("a head is text");
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            if len >= end + 4 + length.unwrap_or(0) {
                return head[9..12].parse().expect("a status");
            }
        }
    }
}
