//! `POST /kv`: all or nothing, limits, and what is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{options, start, start_with};

fn b64(bytes: &str) -> String {
    STANDARD.encode(bytes)
}

fn put(key: &str, value: &str) -> Value {
    json!({ "put": { "key": b64(key), "value": b64(value) } })
}

fn body(operations: &[Value]) -> Vec<u8> {
    json!({ "operations": operations }).to_string().into_bytes()
}

#[test]
fn batch_applies_its_operations_in_order() {
    let running = start();
    let mut client = running.client();
    for key in ["r1", "r2", "r3", "gone"] {
        client.put(&format!("/kv/{key}"), b"old");
    }
    let before = client.put("/kv/before", b"");
    let operations = [
        put("a", "1"),
        put("a", "2"),
        json!({ "delete": { "key": b64("gone") } }),
        json!({ "delete_range": { "start": b64("r1"), "end": b64("r3") } }),
        json!({ "put": { "key": b64("e"), "value": "", "expires_at": 99999999999999u64, "attributes": "AAH/" } }),
    ];
    let reply = client.request("POST", "/kv", &[], Some(&body(&operations)));
    assert_eq!(reply.status, 200);
    let version = |text: &str| text.parse::<u64>().unwrap();
    let made: Value = serde_json::from_slice(&reply.body).unwrap();
    let first = version(before.header("x-tallybook-version"));
    assert_eq!(made["version"], first + 5);
    assert_eq!(reply.header("x-tallybook-version"), (first + 5).to_string());
    assert_eq!(client.get("/kv/a").body, b"2");
    for (key, status) in [("gone", 404), ("r1", 404), ("r2", 404), ("r3", 200)] {
        assert_eq!(client.get(&format!("/kv/{key}")).status, status, "{key}");
    }
    assert_eq!(client.get("/kv/e").header("x-tallybook-attributes"), "AAH/");
}

#[test]
fn batch_with_one_bad_operation_writes_nothing() {
    let running = start();
    let long = b64(&"k".repeat(4097));
    for bad in [
        json!({ "put": { "key": "", "value": "" } }),
        json!({ "put": { "key": long, "value": "" } }),
        json!({ "put": { "key": "*", "value": "" } }),
        json!({ "put": { "key": "YQ==" } }),
        json!({ "put": { "key": "YQ==", "value": "", "colour": 1 } }),
        json!({ "put": { "key": "YQ==", "value": "", "ttl_ms": 0 } }),
        json!({ "put": { "key": "YQ==", "value": "", "ttl_ms": 1, "expires_at": 1 } }),
        json!({ "put": { "key": "YQ==", "value": "", "attributes": b64(&"a".repeat(1025)) } }),
        json!({ "delete_range": { "start": "Yg==", "end": "YQ==" } }),
        json!({ "increment": { "key": "YQ==" } }),
        json!({ "put": { "key": "YQ==", "value": "" }, "delete": { "key": "YQ==" } }),
        json!("delete"),
        json!(null),
    ] {
        let mut client = running.client();
        let reply =
            client.request("POST", "/kv", &[], Some(&body(&[put("good", "1"), bad.clone()])));
        assert_eq!(reply.status, 400, "{bad}");
        client.assert_closed();
        assert_eq!(running.client().get("/kv/good").status, 404, "{bad}");
    }
}

#[test]
fn malformed_batches_are_refused_without_being_quoted() {
    let running = start();
    let nested = format!(r#"{{"operations":{}"#, "[".repeat(100_000));
    for text in [
        "",
        "{}",
        "[]",
        r#"{"operations":[]}"#,
        r#"{"operations":{}}"#,
        r#"{"operations":[],"operations":[]}"#,
        r#"{"operations":[{"delete":{"key":"c2VjcmV0"}}],"durability":"secret"}"#,
        r#"{"operations":[{"delete":{"key":"c2VjcmV0"}}],"secret":1}"#,
        r#"{"operations":[{"put":{"key":"c2VjcmV0","value":"secret!"}}]}"#,
        r#"{"operations":[{"delete":{"key":"c2VjcmV0"}}]} "#.trim_end_matches("} "),
        &nested,
    ] {
        let reply = running.client().request("POST", "/kv", &[], Some(text.as_bytes()));
        assert_eq!(reply.status, 400, "{text:.60}");
        let message = String::from_utf8(reply.body).unwrap();
        assert!(!message.contains("secret") && !message.contains("c2VjcmV0"), "{message}");
    }
}

#[test]
fn batch_is_limited_in_operations_and_bytes() {
    let mut limited = options();
    limited.limits.batch_operations_max = 10;
    limited.limits.batch_bytes_max = 100_000;
    let running = start_with(limited);
    let batch = |count: usize| body(&vec![put("k", "v"); count]);
    let mut client = running.client();
    assert_eq!(client.request("POST", "/kv", &[], Some(&batch(10))).status, 200);
    for (count, message) in [
        (0, "a batch has 1 to 10 operations, this one has 0"),
        (11, "a batch has 1 to 10 operations, this one has 11"),
        (1000, "a batch has 1 to 10 operations, this one has 1000"),
    ] {
        let reply = running.client().request("POST", "/kv", &[], Some(&batch(count)));
        let reply_body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!((reply.status, reply.error().as_str()), (400, "bad_request"));
        assert_eq!(reply_body["message"], message);
    }
    let large = body(&[put("k", &"x".repeat(70_000))]);
    assert_eq!(running.client().request("POST", "/kv", &[], Some(&large)).status, 200);
    let larger = body(&[put("k", &"x".repeat(80_000))]);
    assert_eq!(running.client().request("POST", "/kv", &[], Some(&larger)).status, 413);
}

#[test]
fn batch_is_as_durable_as_it_asks() {
    let running = start();
    let mut client = running.client();
    for level in ["os", "interval", "sync"] {
        let batch = json!({ "operations": [put("k", level)], "durability": level }).to_string();
        let reply = client.request("POST", "/kv", &[], Some(batch.as_bytes()));
        assert_eq!((reply.status, reply.header("x-tallybook-durability")), (200, level));
        assert_eq!(client.get("/kv/k").body, level.as_bytes());
    }
}
