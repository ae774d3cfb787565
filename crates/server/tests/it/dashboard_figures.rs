//! What the dashboard's page is served: its files with their policies, and rows by number.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Client, PATIENCE, Reply, Running, start};

fn ask(client: &mut Client, method: &str, target: &str) -> Reply {
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
    client.reply(method)
}

fn figures(client: &mut Client, query: &str) -> Value {
    let reply = ask(client, "GET", &format!("/dashboard.json{query}"));
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.header("cache-control"), "no-store");
    serde_json::from_slice(&reply.body).unwrap()
}

/// Waits until this many seconds are in the history.
fn wait_for_rows(running: &Running, count: u64) -> Value {
    let mut client = running.admin_client();
    let start = Instant::now();
    loop {
        let figures = figures(&mut client, "");
        if figures["next"].as_u64().unwrap() >= count {
            return figures;
        }
        assert!(start.elapsed() < PATIENCE, "no rows come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn page_and_its_files_come_with_strict_policies_from_the_admin_listener_only() {
    let running = start();
    let mut admin = running.admin_client();
    let page = ask(&mut admin, "GET", "/");
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"));
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    let text = String::from_utf8(page.body).unwrap();
    let files: Vec<&str> =
        text.split('"').filter(|word| word.starts_with("/assets/") && word.contains('.')).collect();
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        let reply = ask(&mut admin, "GET", file);
        assert_eq!(reply.status, 200, "{file}");
        assert!(!reply.body.is_empty() && !reply.header("content-type").is_empty(), "{file}");
    }
    // A flame graph's script runs in a frame that has no origin, and so no access to this listener.
    let frame = ask(&mut admin, "GET", "/assets/flame.html");
    let policy = frame.header("content-security-policy");
    assert!(policy.ends_with("sandbox allow-scripts") && policy.starts_with("default-src 'none'"));
    assert_eq!(ask(&mut admin, "HEAD", "/").body, b"");
    assert_eq!(ask(&mut admin, "POST", "/").status, 405);
    for target in ["/", "/dashboard.json", "/assets/page.js"] {
        assert_eq!(ask(&mut running.client(), "GET", target).status, 400, "{target}");
    }
    assert_eq!(ask(&mut running.admin_client(), "GET", "/assets/nothing.js").status, 400);
}

#[test]
fn rows_are_given_once_and_only_those_that_are_new() {
    let running = start();
    let first = wait_for_rows(&running, 1);
    running.client().put("/kv/k", b"v");
    let all = wait_for_rows(&running, 3);
    assert_eq!(all["run"], first["run"]);
    let rows = all["times"].as_array().unwrap().len() as u64;
    assert_eq!(rows, all["next"].as_u64().unwrap());
    let names = all["names"].as_array().unwrap();
    assert_eq!(names.len(), all["columns"].as_array().unwrap().len());
    assert_eq!(names.len(), all["latest"].as_array().unwrap().len());
    let at = names.iter().position(|name| name == "put.rate").unwrap();
    let puts = all["columns"][at].as_array().unwrap();
    assert_eq!(puts.iter().filter(|rate| rate.as_f64().unwrap() > 0.0).count(), 1);

    let mut admin = running.admin_client();
    let newer = figures(&mut admin, &format!("?span=5m&since={}", rows - 1));
    let came_since = newer["next"].as_u64().unwrap() - (rows - 1);
    assert_eq!(newer["times"].as_array().unwrap().len() as u64, came_since);
    assert_eq!(newer["times"][0], all["times"][rows as usize - 1]);
    let none = figures(&mut admin, "?span=24h&since=0");
    assert_eq!((none["times"].as_array().unwrap().len(), &none["interval_s"]), (0, &120.into()));
    assert!(none["latest"].as_array().unwrap().len() == names.len(), "whatever the span");
}

#[test]
fn question_that_makes_no_sense_is_refused() {
    let running = start();
    for query in ["?span=1y", "?span=", "?since=-1", "?since=now", "?since=99999999999999999999"] {
        let mut admin = running.admin_client();
        let reply = ask(&mut admin, "GET", &format!("/dashboard.json{query}"));
        assert_eq!((reply.status, reply.error()), (400, "bad_request".into()), "{query}");
    }
    let mut admin = running.admin_client();
    figures(&mut admin, &format!("?since={}", u64::MAX));
}
