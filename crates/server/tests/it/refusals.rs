//! What is refused before it is a request: counted, and in the form that the listener's clients read.
//!
//! It was in no figure, so that neither an attack nor a proxy with wrong settings showed; and clients of S3,
//! which ask again when they are told to in XML, were told in JSON.

use std::net::SocketAddr;

use tallybook::options::Options;
use tallybook::store::Store;
use tallybook_server::{S3Options, Server, ServerOptions};

use crate::exposition::Exposition;
use crate::files::file_store;
use crate::harness::{Client, options, start_with};

/// Heads that are refused, and with what. The last one stops before its end.
const HEADS: [(&str, u16, &str); 6] = [
    ("GET /kv HTTP/1.1\r\n\r\n", 400, "InvalidRequest"),
    ("GET /kv HTTP/1.1\r\nHost: t\r\nOrigin: null\r\n\r\n", 403, "AccessDenied"),
    ("GET /kv HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421, "InvalidRequest"),
    ("GET /kv?x", 414, "InvalidRequest"),
    ("GET /kv HTTP/1.1\r\nHost: t\r\nX: ", 431, "InvalidRequest"),
    ("GET /kv HTTP/1.1\r\nHost: t\r\n", 408, "RequestTimeout"),
];

/// For one connection, and little time.
fn narrow() -> ServerOptions {
    let mut options = options();
    options.limits.connections_max = 1;
    options.limits.request_line_bytes_max = 1000;
    options.limits.header_bytes_max = 1000;
    options.timeouts.header_ms = 2000;
    options
}

/// Has each head refused, and one connection beside another; statuses and bodies.
fn refusals(address: SocketAddr, mut wait_for_connections: impl FnMut(u64)) -> Vec<(u16, String)> {
    let mut seen = Vec::new();
    let mut take = |client: &mut Client| {
        let reply = client.reply("GET");
        assert_eq!(reply.headers.contains_key("retry-after"), reply.status == 503);
        client.assert_closed();
        seen.push((reply.status, String::from_utf8(reply.body).unwrap()));
    };
    for (head, status, _) in HEADS {
        wait_for_connections(0);
        let mut client = Client::connect(address);
        client.send(head);
        if matches!(status, 414 | 431) {
            client.send("y".repeat(2000));
        }
        take(&mut client);
    }
    wait_for_connections(0);
    let _first = Client::connect(address);
    wait_for_connections(1);
    take(&mut Client::connect(address));
    seen
}

#[test]
fn what_never_becomes_a_request_is_counted_by_its_status() {
    let running = start_with(narrow());
    let counts = || Exposition::parse(&running.metrics());
    let series = |status: u16| format!("tallybook_refusals_total{{status=\"{status}\"}}");
    let before = counts();
    let seen = refusals(running.data, |count| running.wait_for_figure("connections", count));
    let after = counts();
    let expected = HEADS.map(|(_, status, _)| status).into_iter().chain([503]);
    for ((status, body), expected) in seen.iter().zip(expected) {
        assert_eq!(*status, expected, "{body}");
        assert!(serde_json::from_str::<serde_json::Value>(body).unwrap()["message"].is_string());
        let name = series(*status);
        assert_eq!((before.value(&name), after.value(&name)), (0.0, 1.0), "{name}");
    }
    assert_eq!(after.sum("tallybook_refusals_total"), 7.0);
    // Of the admin listener nothing is counted.
    running.admin_client().send(HEADS[0].0);
    assert_eq!(counts().sum("tallybook_refusals_total"), 7.0);
}

#[test]
fn clients_of_s3_are_refused_in_xml() {
    let dir = tempfile::tempdir().unwrap();
    let files = file_store(&dir.path().join("files"));
    let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
    let mut s3 = S3Options::new("127.0.0.1:0".parse().unwrap());
    s3.allow_anonymous = true;
    let options = ServerOptions { s3: Some(s3), ..narrow() };
    let server = Server::bind_with_files(options, store.clone(), Some(files.clone())).unwrap();
    let (address, admin) = (server.s3_addr().unwrap(), server.admin_addr().unwrap());
    let handle = server.shutdown_handle();
    let figure = || {
        let figures: serde_json::Value =
            serde_json::from_slice(&Client::connect(admin).get("/stats").body).unwrap();
        figures["connections"].as_u64().unwrap()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| server.run().unwrap());
        let seen = refusals(address, |count| {
            while figure() != count {
                std::thread::yield_now();
            }
        });
        handle.shutdown();
        let expected = HEADS.map(|(_, status, code)| (status, code)).into_iter();
        for ((status, body), (expected, code)) in
            seen.iter().zip(expected.chain([(503, "SlowDown")]))
        {
            assert_eq!(*status, expected, "{body}");
            let error = body.strip_prefix(r#"<?xml version="1.0" encoding="UTF-8"?>"#).unwrap();
            assert!(error.starts_with(&format!("<Error><Code>{code}</Code><Message>")), "{body}");
            assert!(error.ends_with("</Message></Error>"), "{body}");
        }
    });
    store.close().unwrap();
    files.close().unwrap();
}
