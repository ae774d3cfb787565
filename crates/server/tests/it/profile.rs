//! Profiles of the server that these tests run in: what they name, how they are refused, who ends them.

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tallybook::lock::Mutex;
use tallybook::stages::{Recorder, Stage};

use crate::faults::Fault;
use crate::harness::{Client, PATIENCE, Reply, Running, start};

/// There is one profile of a kind in a process, so the tests that take one take turns.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn profile(running: &Running, target: &str) -> Reply {
    running.admin_client().get(&format!("/debug/profile/{target}"))
}

/// A profile that is taken while requests of this kind come.
fn profile_under_load(running: &Running, target: &str, request: &[u8]) -> String {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = running.client();
                while !is_over.load(Ordering::Relaxed) {
                    client.send(request);
                    client.reply("GET");
                }
            });
        }
        let reply = profile(running, target);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
        String::from_utf8(reply.body).unwrap()
    })
}

/// Profiles under reads of a large value, which make the store work, until one has what is looked for:
/// a busy machine may run the server for a few samples only.
fn profile_reads_until(running: &Running, target: &str, is_found: impl Fn(&str) -> bool) -> String {
    running.client().put("/v0/entity?id=key", &[b'v'; 60_000]);
    let start = Instant::now();
    loop {
        let folded = profile_under_load(running, target, GET);
        if is_found(&folded) {
            return folded;
        }
        assert!(start.elapsed() < PATIENCE, "never found: {folded}");
    }
}

const GET: &[u8] = b"GET /v0/entity?id=key HTTP/1.1\r\nHost: t\r\n\r\n";

/// The frames of each stack of a folded profile, and its weight.
fn stacks(folded: &str) -> Vec<(Vec<&str>, u64)> {
    let stacks = folded.lines().map(|line| {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        (stack.split(';').collect(), weight.parse().unwrap())
    });
    stacks.collect()
}

fn has_frame(stack: &[&str], module: &str) -> bool {
    stack.iter().any(|frame| frame.starts_with(module))
}

#[test]
fn processor_time_of_reads_is_found_in_the_store_below_the_request() {
    let (_turn, running) = (turn(), start());
    let is_found = |folded: &str| {
        stacks(folded).iter().any(|(stack, _)| {
            stack[0].starts_with("tallybook_server::service::")
                && has_frame(stack, "tallybook::store::")
        })
    };
    let folded = profile_reads_until(&running, "cpu?seconds=1&format=folded", is_found);
    for (stack, _) in stacks(&folded) {
        // What belongs to a request begins at it; all else begins with the name of its thread.
        let at = stack.iter().position(|frame| frame.starts_with("tallybook_server::service::"));
        assert!(matches!(at, None | Some(0)), "{stack:?}");
        assert!(!has_frame(&stack, "tallybook_server::worker::"), "{stack:?}");
    }
}

#[test]
fn full_profile_keeps_what_is_below_the_request() {
    let (_turn, running) = (turn(), start());
    let is_found = |folded: &str| {
        stacks(folded).iter().any(|(stack, _)| {
            stack[0] == "tallybook-http"
                && has_frame(stack, "tallybook_server::worker::")
                && has_frame(stack, "tallybook_server::service::")
        })
    };
    profile_reads_until(&running, "cpu?seconds=1&format=folded&full=1", is_found);
}

#[inline(never)]
fn wait_for_the_lock(lock: &Mutex<u64>) {
    *lock.lock() += 1;
    std::hint::black_box(lock);
}

#[test]
fn waits_for_a_lock_are_named_and_have_their_stacks() {
    let (_turn, running) = (turn(), start());
    let recorder = Arc::new(Recorder::new(0));
    let lock = Arc::new(Mutex::new(Stage::LockTree, &recorder, 0_u64));
    let is_over = AtomicBool::new(false);
    let folded = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let held = lock.lock();
                std::thread::sleep(Duration::from_millis(5));
                drop(held);
                std::thread::yield_now();
            }
        });
        let waiter = std::thread::Builder::new().name("waiter-1".to_owned());
        let waits = || {
            while !is_over.load(Ordering::Relaxed) {
                wait_for_the_lock(&lock);
            }
        };
        waiter.spawn_scoped(scope, waits).unwrap();
        let reply = profile(&running, "locks?seconds=1&format=folded");
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(reply.status, 200);
        String::from_utf8(reply.body).unwrap()
    });
    let stacks = stacks(&folded);
    let waited_ns: u64 = stacks
        .iter()
        .filter(|(stack, _)| {
            stack[0] == "waiter"
                && stack.iter().any(|frame| frame.ends_with("wait_for_the_lock"))
                && stack.ends_with(&["tallybook::lock::wait", "lock.tree"])
        })
        .map(|(_, weight)| weight)
        .sum();
    // A single wait for the holder takes about as long.
    assert!(waited_ns > 1_000_000, "{folded}");
    for (stack, _) in &stacks {
        assert!(Stage::from_name(stack.last().unwrap()).is_some(), "{stack:?}");
        assert!(!has_frame(stack, "tallybook_server::profile::"), "{stack:?}");
    }
}

#[test]
fn time_blocked_is_found_where_a_request_waits_and_idleness_is_not_shown() {
    let (_turn, running) = (turn(), start());
    running.client().put("/v0/entity?id=key", b"value");
    running.engine.set(Fault::Gate);
    let mut client = running.client();
    client.send(GET);
    running.engine.wait_for_arrivals(1);
    let reply = profile(&running, "offcpu?seconds=1&format=folded");
    let full = profile(&running, "offcpu?seconds=1&format=folded&full=1");
    running.engine.set(Fault::None);
    assert_eq!(client.reply("GET").status, 200);
    let folded = String::from_utf8(reply.body).unwrap();
    let pool_ns: u64 = stacks(&folded)
        .iter()
        .filter(|(stack, _)| stack[0] == "tallybook-pool")
        .map(|(_, weight)| weight)
        .sum();
    // It waited for the whole second; half of that leaves room for a busy machine.
    assert!(pool_ns > 500_000_000, "{folded}");
    assert!(!folded.contains("epoll_wait"), "{folded}");
    assert!(String::from_utf8(full.body).unwrap().contains("epoll_wait"));
}

#[test]
fn second_profile_of_a_kind_is_refused_and_another_kind_is_not() {
    let (_turn, running) = (turn(), start());
    let first = running_profile(&running, "locks");
    let second = profile(&running, "locks?seconds=1");
    assert_eq!((second.status, second.error().as_str()), (409, "profile_running"));
    assert_eq!(profile(&running, "cpu?seconds=1&format=folded").status, 200);
    // Whoever has the turn next is not to meet its end.
    drop(first);
    wait_until_free(&running, "locks?seconds=1&format=folded");
}

/// A client that waits for a long profile, which has begun.
fn running_profile(running: &Running, kind: &str) -> Client {
    let mut client = running.admin_client();
    client.send(format!("GET /debug/profile/{kind}?seconds=300 HTTP/1.1\r\nHost: t\r\n\r\n"));
    // As long as nothing is refused here, that request has not begun.
    let start = Instant::now();
    while profile(running, &format!("{kind}?seconds=1&format=folded")).status != 409 {
        assert!(start.elapsed() < PATIENCE);
    }
    client
}

/// Asks until the answer isn't that a profile is being taken.
fn wait_until_free(running: &Running, target: &str) -> Reply {
    let start = Instant::now();
    loop {
        let reply = profile(running, target);
        if reply.status != 409 {
            assert_eq!(reply.status, 200);
            return reply;
        }
        assert_eq!(reply.error(), "profile_running");
        assert!(start.elapsed() < PATIENCE, "the profiler is never free");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn client_that_goes_away_frees_the_profiler() {
    let (_turn, running) = (turn(), start());
    for kind in ["cpu", "locks", "offcpu"] {
        drop(running_profile(&running, kind));
        wait_until_free(&running, &format!("{kind}?seconds=1&format=folded"));
    }
}

#[test]
fn client_that_closes_its_sending_half_is_told_that_the_profile_ended() {
    let (_turn, running) = (turn(), start());
    let mut client = running_profile(&running, "locks");
    client.stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    let reply = client.reply("GET");
    assert_eq!((reply.status, reply.error().as_str()), (408, "request_timeout"));
    wait_until_free(&running, "locks?seconds=1");
}

extern "C" fn foreign_handler(_: libc::c_int) {
    std::hint::black_box(());
}

#[test]
fn profiler_that_fails_says_why_and_harms_nothing() {
    let (_turn, running) = (turn(), start());
    let replace = |action: &libc::sigaction| {
        // SAFETY: all-zero bytes are a valid `sigaction`.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: both are valid, and the handler does nothing.
        let replaced = unsafe { libc::sigaction(libc::SIGPROF, action, &raw mut before) };
        assert_eq!(replaced, 0);
        before
    };
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let mut foreign: libc::sigaction = unsafe { std::mem::zeroed() };
    foreign.sa_sigaction = foreign_handler as *const () as usize;
    let before = replace(&foreign);
    let reply = profile(&running, "cpu?seconds=1");
    replace(&before);
    assert_eq!((reply.status, reply.error().as_str()), (500, "profile_failed"));
    assert!(String::from_utf8(reply.body).unwrap().contains("in use"));
    assert_eq!(profile(&running, "cpu?seconds=1").status, 200);
    running.client().assert_open();
}

#[test]
fn bad_orders_are_refused_with_what_is_possible() {
    let running = start();
    for (target, status, words) in [
        ("cpu?seconds=0", 400, "1 to 300"),
        ("cpu?seconds=301", 400, "1 to 300"),
        ("cpu?seconds=ten", 400, "1 to 300"),
        ("cpu?format=png", 400, "svg, pprof, folded"),
        ("cpu?full=2", 400, "0 or 1"),
        ("heap", 404, "cpu, allocs, locks, offcpu"),
        ("", 404, "cpu, allocs, locks, offcpu"),
    ] {
        let reply = profile(&running, target);
        assert_eq!(reply.status, status, "{target}");
        let body = String::from_utf8(reply.body).unwrap();
        assert!(body.contains(words), "{target}: {body}");
    }
    let mut data = running.client();
    data.send("GET /debug/profile/cpu HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(data.reply("GET").status, 400);
}

#[test]
fn allocations_are_refused_where_the_allocator_is_another() {
    let (_turn, running) = (turn(), start());
    let reply = profile(&running, "allocs?seconds=1");
    assert_eq!((reply.status, reply.error().as_str()), (501, "unsupported"));
}

#[test]
fn flame_graph_and_pprof_say_what_they_are() {
    let (_turn, running) = (turn(), start());
    running.client().put("/v0/entity?id=key", b"value");
    let picture = profile_under_load(&running, "cpu?seconds=1", GET);
    assert!(picture.contains("<svg") && picture.contains("Processor time"), "{picture}");
    let reply = profile(&running, "offcpu?seconds=1&full=1&format=pprof");
    assert_eq!(reply.header("content-type"), "application/octet-stream");
    if Command::new("go").arg("version").output().is_err() {
        // `profile::render` has decoded the form by other means.
        return;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&reply.body).unwrap();
    let top = Command::new("go")
        .args(["tool", "pprof", "-top"])
        .arg(file.path())
        .env("HOME", file.path().parent().unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&top.stdout);
    assert!(top.status.success() && text.contains("epoll_wait"), "{top:?}");
}

#[test]
fn profiled_server_still_answers_and_loses_no_write() {
    let (_turn, running) = (turn(), start());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        for kind in ["cpu", "locks", "offcpu"] {
            let running = &running;
            scope.spawn(move || {
                let reply = profile(running, &format!("{kind}?seconds=1&full=1"));
                assert_eq!(reply.status, 200, "{kind}");
                is_over.store(true, Ordering::Relaxed);
            });
        }
        let mut client: Client = running.client();
        let mut number = 0;
        while !is_over.load(Ordering::Relaxed) {
            let target = format!("/kv/{number}");
            assert_eq!(client.put(&target, target.as_bytes()).status, 201);
            assert_eq!(client.get(&target).body, target.as_bytes());
            number += 1;
        }
        assert!(number > 0);
    });
}
