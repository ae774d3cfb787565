//! The log lines of figures: which there are, what they hold, and when they come.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;
use tallybook_server::ServerOptions;
use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;

use crate::harness::{PATIENCE, Running, options, start_logging};

/// A log as the command line writes it with JSON lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}

impl Log {
    fn dispatch(&self) -> Dispatch {
        let lines = tracing_subscriber::fmt().json().flatten_event(true).with_ansi(false);
        Dispatch::new(lines.with_writer(self.clone()).finish())
    }

    /// The lines of figures so far.
    fn lines(&self) -> Vec<Value> {
        let log = self.0.lock().unwrap();
        // The last line may be half written.
        let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = std::str::from_utf8(&log[..whole]).unwrap().lines();
        lines
            .map(|line| serde_json::from_str::<Value>(line).expect(line))
            .filter(|line| line["target"] == "tallybook::books")
            .collect()
    }

    fn lines_of(&self, message: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["message"] == message).collect()
    }
}

fn start_every(log_interval_secs: u32) -> (Running, Log) {
    let log = Log::default();
    let options = ServerOptions { log_interval_secs, ..options() };
    (start_logging(options, log.dispatch()), log)
}

fn do_some_of_everything(running: &Running) {
    let mut client = running.client();
    for number in 0..5 {
        client.put(&format!("/kv/{number}"), b"value");
        client.get(&format!("/kv/{number}"));
        client.request("HEAD", &format!("/kv/{number}"), &[], None);
    }
    client.get("/kv/absent");
    client.get("/kv?prefix=1");
    client.request("DELETE", "/kv/0", &[], None);
    let batch = br#"{"operations":[{"delete":{"key":"YmF0Y2g="}}]}"#;
    client.request("POST", "/kv", &[], Some(batch));
}

#[test]
fn last_lines_tell_what_every_operation_and_the_store_did() {
    let (mut running, log) = start_every(3600);
    do_some_of_everything(&running);
    running.engine.store.flush().unwrap();
    assert_eq!(log.lines().len(), 0, "the interval is not over");
    running.stop();

    let requests = log.lines_of("requests");
    let of = |operation: &str| {
        let line = requests.iter().find(|line| line["operation"] == operation);
        line.unwrap_or_else(|| panic!("no line for {operation}")).clone()
    };
    for (operation, count) in
        [("get", 6), ("head", 5), ("put", 5), ("delete", 1), ("scan", 1), ("batch", 1)]
    {
        let line = of(operation);
        assert_eq!((&line["requests"], &line["failures"]), (&count.into(), &0.into()), "{line}");
        for field in ["interval_s", "requests_per_s", "mean_us", "p50_us", "p999_us", "max_us"] {
            assert!(line[field].as_f64().unwrap() > 0.0, "{field} of {line}");
        }
    }
    let only = |message: &str| {
        let lines = log.lines_of(message);
        assert_eq!(lines.len(), 1, "{message}");
        lines[0].clone()
    };
    for (message, fields) in [
        ("reads", "get_head_mean_us get_body_p99_us head_l0 head_missed file_filter block_fetched"),
        ("writes", "put_wait_p99_us put_journal_mean_us put_memtable_p50_us sync_p99_us"),
        ("server", "connections bytes_received bytes_sent resident_bytes open_fds"),
        ("store", "flushes compactions collections stalled_us memtable_bytes disk_available_bytes"),
        ("level", "level runs files bytes entries"),
    ] {
        let line = only(message);
        for field in fields.split(' ') {
            assert!(line[field].is_number(), "{field} of {line}");
        }
    }
    assert_eq!(only("writes")["puts"], 5);
    assert_eq!(only("writes")["deletes"], 2);
    assert_eq!(only("store")["flushes"], 1);
    assert_eq!(only("level")["level"], 0);
    assert!(only("server")["bytes_received"].as_u64().unwrap() > 0);
}

#[test]
fn lines_come_every_interval_and_hold_what_came_in_it() {
    let (running, log) = start_every(1);
    let start = Instant::now();
    let mut put = 0;
    while log.lines_of("store").len() < 2 {
        running.client().put("/kv/k", b"v");
        put += 1;
        assert!(start.elapsed() < PATIENCE, "the lines never came");
    }
    // Whatever the intervals were, together with the last one they hold every request once.
    drop(running);
    let lines = log.lines_of("requests");
    let puts = lines.iter().filter(|line| line["operation"] == "put");
    assert_eq!(puts.map(|line| line["requests"].as_u64().unwrap()).sum::<u64>(), put);
    let gets = lines.iter().filter(|line| line["operation"] == "get");
    assert_eq!(gets.count(), 0, "there is no line for what didn't happen");
}

#[test]
fn lines_need_no_admin_listener() {
    let log = Log::default();
    let dir = tempfile::tempdir().unwrap();
    let store =
        tallybook::Store::open(dir.path().join("store"), tallybook::Options::default()).unwrap();
    let options = ServerOptions { admin: None, log_interval_secs: 3600, ..options() };
    let server = tallybook_server::Server::bind(options, store.clone()).unwrap();
    let handle = server.shutdown_handle();
    let dispatch = log.dispatch();
    let thread =
        std::thread::spawn(move || tracing::dispatcher::with_default(&dispatch, || server.run()));
    handle.shutdown();
    thread.join().unwrap().unwrap();
    store.close().unwrap();
    assert_eq!(log.lines_of("store").len(), 1);
}

#[test]
fn lines_can_be_off() {
    let (mut running, log) = start_every(0);
    do_some_of_everything(&running);
    running.stop();
    assert_eq!(log.lines(), Vec::<Value>::new());
}

#[test]
fn keys_never_reach_the_lines() {
    let (mut running, log) = start_every(3600);
    running.client().put("/kv/Quetzalcoatl", b"Quetzalcoatl");
    running.client().get("/kv/Quetzalcoatl");
    running.stop();
    assert!(!log.lines().is_empty());
    let text = format!("{:?}", log.lines());
    assert!(!text.contains("Quetzal"), "{text}");
}
