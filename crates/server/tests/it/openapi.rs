//! `openapi.yaml` against the server: each status of each operation is met by a request below, and no
//! client of these tests ever meets a status that isn't described (see `harness`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_norway::Value;
use tallybook::error::Error;
use tallybook_files::{CreateOptions, FileStore, OpenOptions, VerifyReport};
use tempfile::TempDir;

use crate::faults::Fault;
use crate::harness::{Client, Running, options, start_with_files};

/// Statuses by method and path, and those of any request.
struct Description {
    operations: BTreeMap<(String, String), BTreeSet<u16>>,
    any_request: BTreeSet<u16>,
}

static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| {
    let document: Value = serde_norway::from_str(include_str!("../../openapi.yaml")).unwrap();
    check_references(&document, &document);
    let statuses = |responses: &Value| -> BTreeSet<u16> {
        let responses = responses.as_mapping().unwrap();
        responses.keys().map(|status| status.as_str().unwrap().parse().unwrap()).collect()
    };
    let mut operations = BTreeMap::new();
    for (path, item) in document["paths"].as_mapping().unwrap() {
        let path = path.as_str().unwrap();
        for (method, operation) in item.as_mapping().unwrap() {
            let method = method.as_str().unwrap().to_uppercase();
            if method != "PARAMETERS" {
                operations.insert((method, path.to_owned()), statuses(&operation["responses"]));
            }
        }
    }
    Description { operations, any_request: statuses(&document["x-any-request-responses"]) }
});

/// Every `$ref` points at something.
fn check_references(document: &Value, value: &Value) {
    if let Some(mapping) = value.as_mapping() {
        for (key, value) in mapping {
            if key.as_str() == Some("$ref") {
                let path = value.as_str().unwrap().strip_prefix("#/").unwrap();
                let target = path.split('/').fold(document, |target, part| &target[part]);
                assert!(!target.is_null(), "{path} is missing");
            }
            check_references(document, value);
        }
    } else if let Some(values) = value.as_sequence() {
        values.iter().for_each(|value| check_references(document, value));
    }
}

/// A count of what could not be written was answered and not described, so that clients made of the description
/// took what they were told for sound.
#[test]
fn a_report_of_a_verification_has_what_is_described() {
    let document: Value = serde_norway::from_str(include_str!("../../openapi.yaml")).unwrap();
    let schema = &document["components"]["schemas"]["FilesVerified"];
    let answered = tallybook_server::json::verified(&VerifyReport::default());
    let answered: BTreeSet<&str> =
        answered.as_object().unwrap().keys().map(String::as_str).collect();
    let described = schema["properties"].as_mapping().unwrap().keys();
    let described: BTreeSet<&str> = described.map(|name| name.as_str().unwrap()).collect();
    let required = schema["required"].as_sequence().unwrap().iter();
    let required: BTreeSet<&str> = required.map(|name| name.as_str().unwrap()).collect();
    assert_eq!((&described, &required), (&answered, &answered));
}

/// Fails on a status that this request's operation doesn't describe.
pub(crate) fn check_documented(method: &str, target: &str, status: u16) {
    let path = target.split('?').next().unwrap();
    let path = described_path(path);
    let operation = DESCRIPTION.operations.get(&(method.to_owned(), path.to_owned()));
    let described = operation.is_some_and(|statuses| statuses.contains(&status))
        || DESCRIPTION.any_request.contains(&status)
        || status == 100;
    assert!(described, "{status} is not described for {method} {path}");
}

/// The path as it is described.
fn described_path(path: &str) -> &str {
    if path.starts_with("/kv/") {
        "/kv/{key}"
    } else if path.starts_with("/files/") {
        "/files/{name}"
    } else if path.starts_with("/debug/profile/") {
        "/debug/profile/{kind}"
    } else {
        path
    }
}

/// Fails on a status that is described nowhere.
pub(crate) fn check_known_status(status: u16) {
    let known = DESCRIPTION.operations.values().any(|statuses| statuses.contains(&status))
        || DESCRIPTION.any_request.contains(&status)
        || status == 100;
    assert!(known, "{status} is described nowhere");
}

/// Whether only the admin listener answers this.
fn is_for_admin(target: &str) -> bool {
    let path = target.split('?').next().unwrap();
    path.starts_with("/debug/")
        || ["/stats", "/metrics", "/stages", "/stages/sampling"].contains(&path)
}

/// A request, the fault it meets, and the status it must have.
struct Example {
    method: &'static str,
    target: &'static str,
    headers: &'static [&'static str],
    body: Option<&'static [u8]>,
    fault: Fault,
    status: u16,
}

fn example(method: &'static str, target: &'static str, status: u16) -> Example {
    let body = (method == "PUT").then_some(&b"new"[..]);
    Example { method, target, headers: &[], body, fault: Fault::None, status }
}

impl Example {
    fn with(mut self, headers: &'static [&'static str]) -> Example {
        self.headers = headers;
        self
    }

    fn body(mut self, body: &'static [u8]) -> Example {
        self.body = Some(body);
        self
    }

    fn on(mut self, fault: Fault) -> Example {
        self.fault = fault;
        self
    }
}

const BATCH: &[u8] = br#"{"operations":[{"delete":{"key":"YmF0Y2g="}}]}"#;
const TOO_LARGE: &[u8] = &[0; 2000];

fn examples() -> Vec<Example> {
    let corrupt = || Fault::Error(Error::corruption("x".as_ref(), 1, "checksum"));
    let no_space = || Fault::Error(Error::NoSpace { path: "x".into() });
    let busy = || Fault::Error(Error::Busy);
    let mut examples = vec![
        example("GET", "/v0/entity?id=k", 200),
        example("GET", "/v0/entity", 400),
        example("GET", "/v0/entity?id=absent", 404),
        example("HEAD", "/v0/entity?id=k", 200),
        example("HEAD", "/v0/entity?id=", 400),
        example("HEAD", "/v0/entity?id=absent", 404),
        example("PUT", "/v0/entity?id=new", 201),
        example("PUT", "/v0/entity?id=%", 400),
        example("PUT", "/v0/entity?id=new", 413).body(TOO_LARGE),
        example("PUT", "/v0/entity?id=new", 507).on(no_space()),
        example("DELETE", "/v0/entity?id=new", 202),
        example("DELETE", "/v0/entity?id", 400),
        example("DELETE", "/v0/entity?id=new", 507).on(no_space()),
        example("GET", "/v0/entities?start=a&end=z", 200),
        example("GET", "/v0/entities?end=z", 400),
        example("GET", "/v0/status", 200),
        example("GET", "/v0/status", 503).on(Fault::ReadOnly),
        example("HEAD", "/v0/status", 200),
        example("HEAD", "/v0/status", 503).on(Fault::ReadOnly),
        example("GET", "/healthz", 200),
        example("HEAD", "/healthz", 200),
        example("GET", "/readyz", 200),
        example("GET", "/readyz", 503).on(Fault::ReadOnly),
        example("HEAD", "/readyz", 200),
        example("HEAD", "/readyz", 503).on(Fault::ReadOnly),
        example("GET", "/stats", 200),
        example("HEAD", "/stats", 200),
        example("GET", "/metrics", 200),
        example("HEAD", "/metrics", 200),
        example("GET", "/stages", 200),
        example("HEAD", "/stages", 200),
        example("PUT", "/stages/sampling?every=256", 200),
        example("PUT", "/stages/sampling?every=often", 400),
        example("GET", "/debug/profile/cpu?seconds=0", 400),
        example("GET", "/debug/profile/none", 404),
        example("GET", "/kv?prefix=k", 200),
        example("GET", "/kv?limit=many", 400),
        example("POST", "/kv", 200).body(BATCH),
        example("POST", "/kv", 400).body(b"{}"),
        example("POST", "/kv", 413).body(TOO_LARGE),
        example("POST", "/kv", 507).body(BATCH).on(no_space()),
        example("GET", "/kv/k", 200),
        example("GET", "/kv/k", 206).with(&["Range: bytes=0-0"]),
        example("GET", "/kv/k", 304).with(&["If-None-Match: *"]),
        example("GET", "/kv/", 400),
        example("GET", "/kv/absent", 404),
        example("GET", "/kv/k", 412).with(&["If-Match: \"999\""]),
        example("GET", "/kv/k", 416).with(&["Range: bytes=999-"]),
        example("HEAD", "/kv/k", 200),
        example("HEAD", "/kv/k", 304).with(&["If-None-Match: *"]),
        example("HEAD", "/kv/%a", 400),
        example("HEAD", "/kv/absent", 404),
        example("HEAD", "/kv/k", 412).with(&["If-Match: \"999\""]),
        example("PUT", "/kv/new", 201),
        example("PUT", "/kv/new", 400).with(&["x-tallybook-ttl-ms: soon"]),
        example("PUT", "/kv/k", 412).with(&["If-None-Match: *"]),
        example("PUT", "/kv/new", 413).body(TOO_LARGE),
        example("PUT", "/kv/new", 507).on(no_space()),
        example("DELETE", "/kv/new", 204),
        example("DELETE", "/kv/new?x", 400),
        example("DELETE", "/kv/k", 412).with(&["If-Match: \"999\""]),
        example("DELETE", "/kv/new", 507).on(no_space()),
        example("GET", "/files?totals", 200),
        example("GET", "/files?limit=0", 400),
        example("POST", "/files?verify", 200),
        example("POST", "/files?verify&bytes=many", 400),
        example("PUT", "/files/f", 201),
        example("PUT", "/files/f", 400).with(&["content-md5: none"]),
        example("PUT", "/files/f", 412).with(&["If-None-Match: *"]),
        example("PUT", "/files/f", 507).body(&[0; 70_000]),
        example("POST", "/files/g", 201).with(&["x-tallybook-copy-from: f"]),
        example("POST", "/files/g", 400),
        example("POST", "/files/g", 404).with(&["x-tallybook-rename-from: absent"]),
        example("POST", "/files/g", 412).with(&["x-tallybook-copy-from: f", "If-None-Match: *"]),
        example("GET", "/files/f", 200),
        example("GET", "/files/f", 206).with(&["Range: bytes=0-0"]),
        example("GET", "/files/f", 304).with(&["If-None-Match: *"]),
        example("GET", "/files/", 400),
        example("GET", "/files/absent", 404),
        example("GET", "/files/f", 412).with(&["If-Match: \"999\""]),
        example("GET", "/files/f", 416).with(&["Range: bytes=999-"]),
        example("HEAD", "/files/f", 200),
        example("HEAD", "/files/f", 304).with(&["If-None-Match: *"]),
        example("HEAD", "/files/%ff", 400),
        example("HEAD", "/files/absent", 404),
        example("HEAD", "/files/f", 412).with(&["If-Match: \"999\""]),
        example("DELETE", "/files/f", 412).with(&["If-Match: \"999\""]),
        example("DELETE", "/files/f?x", 400),
        example("DELETE", "/files/f", 204),
        example("DELETE", "/files/f", 404),
    ];
    for (method, target, body) in [
        ("GET", "/v0/entity?id=k", None),
        ("HEAD", "/v0/entity?id=k", None),
        ("PUT", "/v0/entity?id=k", Some(&b"v"[..])),
        ("DELETE", "/v0/entity?id=k", None),
        ("GET", "/v0/entities?start=k", None),
        ("GET", "/kv", None),
        ("POST", "/kv", Some(BATCH)),
        ("GET", "/kv/k", None),
        ("HEAD", "/kv/k", None),
        ("PUT", "/kv/k", Some(&b"v"[..])),
        ("DELETE", "/kv/k", None),
    ] {
        for (status, fault) in [(500, corrupt()), (503, busy())] {
            examples.push(Example { body, ..example(method, target, status).on(fault) });
        }
    }
    examples
}

fn short_limits() -> (TempDir, Running) {
    let mut options = options();
    options.limits.value_bytes_max = 1000;
    options.limits.batch_bytes_max = 1000;
    options.timeouts.header_ms = 200;
    let dir = tempfile::tempdir().unwrap();
    // Room for one chunk.
    let create = CreateOptions {
        chunk_bytes: 64 << 10,
        bucket_count: 1,
        bucket_cap_bytes: 64 << 10,
        ..CreateOptions::default()
    };
    let files = FileStore::create(dir.path(), create, OpenOptions::default()).unwrap();
    (dir, start_with_files(options, files))
}

#[test]
fn every_described_status_of_every_operation_is_met() {
    let (_dir, running) = short_limits();
    running.client().put("/kv/k", b"value");
    let mut unmet: BTreeSet<(String, String, u16)> = DESCRIPTION
        .operations
        .iter()
        .flat_map(|((method, path), statuses)| {
            statuses.iter().map(move |status| (method.clone(), path.clone(), *status))
        })
        .collect();
    // These are met in `profile`, where each profile has to wait for its turn.
    unmet.retain(|(_, path, status)| {
        path != "/debug/profile/{kind}" || ![200, 408, 409, 500, 501].contains(status)
    });
    // These are met in `files`, where a file is damaged on the disk, and two ask for one thing.
    unmet.remove(&("GET".to_owned(), "/files/{name}".to_owned(), 500));
    unmet.remove(&("POST".to_owned(), "/files".to_owned(), 409));
    for Example { method, target, headers, body, fault, status } in examples() {
        running.engine.set(fault);
        let address = if is_for_admin(target) { running.admin } else { running.data };
        let reply = Client::connect(address).request(method, target, headers, body);
        assert_eq!(reply.status, status, "{method} {target}");
        running.engine.set(Fault::None);
        let path = target.split('?').next().unwrap();
        let path = described_path(path);
        let described = unmet.remove(&(method.to_owned(), path.to_owned(), status));
        assert!(described, "{status} is not described for {method} {path}, or met twice");
    }
    assert!(unmet.is_empty(), "described but not met: {unmet:?}");
}

#[test]
fn every_status_of_any_request_is_met() {
    let (_dir, running) = short_limits();
    let mut unmet = DESCRIPTION.any_request.clone();
    // 503 is met as a connection beyond the limit, in `overload`, and by faults above.
    unmet.remove(&503);
    for (send, status) in [
        ("GET /nowhere HTTP/1.1\r\nHost: t\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: t\r\nOrigin: http://u\r\n\r\n".to_owned(), 403),
        ("GET / HTTP/1.1\r\n".to_owned(), 408),
        (format!("GET /{} HTTP/1.1\r\n", "a".repeat(20_000)), 414),
        ("GET / HTTP/1.1\r\nHost: other.example\r\n\r\n".to_owned(), 421),
        (format!("GET / HTTP/1.1\r\nX: {}\r\n", "a".repeat(20_000)), 431),
    ] {
        let mut client = running.client();
        client.send(send);
        assert_eq!(client.reply("GET").status, status);
        unmet.remove(&status);
    }
    for path in DESCRIPTION.operations.keys().map(|(_, path)| path) {
        let address = if is_for_admin(path) { running.admin } else { running.data };
        let target = path.replace("{key}", "k").replace("{name}", "f").replace("{kind}", "cpu");
        let reply = Client::connect(address).request("PATCH", &target, &[], None);
        assert_eq!(reply.status, 405, "{path}");
        let described: BTreeSet<&str> = DESCRIPTION
            .operations
            .keys()
            .filter(|(_, of)| of == path)
            .map(|(method, _)| method.as_str())
            .collect();
        let allowed: BTreeSet<&str> = reply.header("allow").split(", ").collect();
        assert_eq!(allowed, described, "{path}");
    }
    unmet.remove(&405);
    assert!(unmet.is_empty(), "described but not met: {unmet:?}");
}
