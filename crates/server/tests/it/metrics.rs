//! `/metrics`: that its text is Prometheus text, moves with what happens, and tells nothing of keys.

use std::io::{ErrorKind, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tallybook::stages::{Exit, Stage};
use tallybook::store::WriteOptions;

use crate::exposition::Exposition;
use crate::faults::Fault;
use crate::harness::{Client, PATIENCE, options, start, start_with};

/// Series that one server exports at most.
const SERIES_MAX: usize = 1500;

#[test]
fn promtool_finds_nothing_wrong() {
    let running = start();
    running.client().put("/kv/k", b"v");
    running.client().get("/kv/k");
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match promtool {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("promtool is missing: install Debian's package `prometheus`")
        }
        started => started.unwrap(),
    };
    promtool.stdin.take().unwrap().write_all(running.metrics().as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.is_empty(), "{}\n{said}", output.status);
}

#[test]
fn figures_move_with_what_happens() {
    let running = start();
    let before = Exposition::parse(&running.metrics());
    let mut client = running.client();
    for number in 0..20 {
        client.put(&format!("/kv/{number}"), &[b'v'; 5000]);
        assert_eq!(client.get(&format!("/kv/{number}")).status, 200);
    }
    assert_eq!(client.get("/kv/absent").status, 404);
    running.engine.store.flush().unwrap();
    let after = Exposition::parse(&running.metrics());

    for (series, grown) in [
        ("tallybook_requests_total{operation=\"put\",status=\"201\"}", 20.0),
        ("tallybook_requests_total{operation=\"get\",status=\"200\"}", 20.0),
        ("tallybook_requests_total{operation=\"get\",status=\"404\"}", 1.0),
        ("tallybook_request_duration_seconds_count{operation=\"get\"}", 21.0),
        ("tallybook_store_operations_total{operation=\"put\"}", 20.0),
        ("tallybook_flushes_total", 1.0),
        ("tallybook_level_runs{level=\"0\"}", 1.0),
    ] {
        let earlier = before.values.get(series).copied().unwrap_or(0.0);
        assert_eq!(after.value(series) - earlier, grown, "{series}");
    }
    for name in [
        "tallybook_received_bytes_total",
        "tallybook_sent_bytes_total",
        "tallybook_user_written_bytes_total",
        "tallybook_journal_written_bytes_total",
        "tallybook_journal_syncs_total",
        "tallybook_flush_written_bytes_total",
        "tallybook_level_bytes",
        "tallybook_disk_bytes",
        "tallybook_last_seqno",
        "tallybook_request_duration_seconds_sum",
    ] {
        assert!(after.sum(name) > before.sum(name), "{name}");
    }
    assert!(after.value("tallybook_memory_bytes{use=\"table_indexes\"}") > 0.0);
    assert!(after.value("tallybook_disk_available_bytes") > 0.0);
    assert!(after.value("process_resident_memory_bytes") > 0.0);
    assert_eq!(after.value("tallybook_connections"), 1.0);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(after.value(&format!("tallybook_build_info{{version=\"{version}\"}}")), 1.0);
}

/// A transfer of hours showed as nothing, and then as all of its bytes in one second.
#[test]
fn bytes_of_a_transfer_are_counted_while_it_goes_on() {
    let mut options = options();
    options.timeouts.header_ms = 400;
    options.timeouts.body_idle_ms = 3_600_000;
    let running = start_with(options);
    running.engine.store.put(b"k", &vec![7; 40 << 20]).unwrap();
    let mut client = running.client();
    client.send("GET /kv/k HTTP/1.1\r\nHost: t\r\n\r\n");
    client.stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
    let start = Instant::now();
    let sent = || Exposition::parse(&running.metrics()).value("tallybook_sent_bytes_total");
    while sent() < f64::from(1 << 20) {
        assert!(start.elapsed() < PATIENCE, "what was sent is not counted");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn stages_and_exits_move_when_every_operation_is_timed() {
    let running = start();
    running.engine.store.set_sample_every(1);
    let before = Exposition::parse(&running.metrics());
    assert_eq!(before.value("tallybook_stage_sample_every"), 1.0);
    let mut client = running.client();
    for number in 0..10 {
        client.put(&format!("/kv/{number}"), b"v");
        client.get(&format!("/kv/{number}"));
    }
    let after = Exposition::parse(&running.metrics());
    for series in [
        "tallybook_stage_seconds_count{stage=\"put.total\"}",
        "tallybook_stage_seconds_count{stage=\"put.journal\"}",
        "tallybook_stage_seconds_count{stage=\"get.total\"}",
        "tallybook_stage_seconds_count{stage=\"get.head\"}",
        "tallybook_read_exits_total{exit=\"head.memory\"}",
    ] {
        assert!(after.value(series) >= before.value(series) + 10.0, "{series}");
    }
}

#[test]
fn every_stage_and_exit_is_exported_within_the_bound_on_series() {
    let running = start();
    let parsed = Exposition::parse(&running.metrics());
    for stage in Stage::ALL {
        parsed.value(&format!("tallybook_stage_seconds_count{{stage=\"{}\"}}", stage.name()));
    }
    for exit in Exit::ALL {
        parsed.value(&format!("tallybook_read_exits_total{{exit=\"{}\"}}", exit.name()));
    }
    assert!(parsed.values.len() <= SERIES_MAX, "{} series", parsed.values.len());
}

#[test]
fn histograms_are_cumulative_and_end_in_their_count() {
    let running = start();
    let mut client = running.client();
    for _ in 0..50 {
        client.put("/kv/k", b"v");
    }
    let text = running.metrics();
    let mut last: Option<(String, u64)> = None;
    let parsed = Exposition::parse(&text);
    let mut ends = 0;
    for line in text.lines().filter(|line| line.contains("_bucket{")) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: u64 = value.parse().unwrap();
        let (le, labels) = series.split_once("_bucket{le=\"").unwrap().1.split_once("\",").unwrap();
        let name = series.split("_bucket").next().unwrap();
        let of = format!("{name}_count{{{labels}");
        if let Some((before, count)) = &last
            && *before == of
        {
            assert!(value >= *count, "{line}");
        }
        if le == "+Inf" {
            assert_eq!(value as f64, parsed.value(&of), "{line}");
            ends += 1;
        }
        last = Some((of, value));
    }
    assert_eq!(ends, Stage::COUNT + 9, "every histogram has an end");
    assert!(parsed.value("tallybook_request_duration_seconds_count{operation=\"put\"}") >= 50.0);
}

#[test]
fn keys_never_appear() {
    let running = start();
    let odd = "Quetzalcoatl-4711";
    let mut client = running.client();
    client.put(&format!("/kv/{odd}"), odd.as_bytes());
    client.get(&format!("/kv/{odd}"));
    client.get(&format!("/kv?prefix={odd}"));
    running
        .engine
        .store
        .put_with(odd.as_bytes(), odd.as_bytes(), &WriteOptions::default())
        .unwrap();
    running.engine.store.flush().unwrap();
    let mut admin = running.admin_client();
    for page in ["/metrics", "/stages"] {
        let text = String::from_utf8(admin.get(page).body).unwrap().to_lowercase();
        assert!(text.contains("put"), "{page} is not empty");
        for part in ["quetzal", "4711"] {
            assert!(!text.contains(part), "{part} in {page}");
        }
    }
}

#[test]
fn trouble_is_told() {
    let running = start();
    assert_eq!(Exposition::parse(&running.metrics()).value("tallybook_read_only"), 0.0);
    running.engine.set(Fault::ReadOnly);
    assert_eq!(Exposition::parse(&running.metrics()).value("tallybook_read_only"), 1.0);
    running.engine.set(Fault::Pressure(0.75));
    let parsed = Exposition::parse(&running.metrics());
    assert_eq!(parsed.value("tallybook_write_pressure_ratio"), 0.75);
}

#[test]
fn admin_pages_are_for_looking_and_on_the_admin_listener_alone() {
    let running = start();
    for page in ["/metrics", "/stages"] {
        for method in ["PUT", "POST", "DELETE"] {
            let reply = running.admin_client().request(method, page, &[], None);
            assert_eq!(
                (reply.status, reply.header("allow")),
                (405, "GET, HEAD"),
                "{method} {page}"
            );
        }
        let reply = Client::connect(running.data).get(page);
        assert_eq!(reply.status, 400, "{page}");
    }
    let reply = running.admin_client().request("HEAD", "/metrics", &[], None);
    assert_eq!(reply.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert_ne!(reply.header("content-length"), "0");
}
