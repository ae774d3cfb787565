//! Raw requests and what exactly becomes of each: the statuses, and whether the connection closes.

use crate::harness::start;

const OPEN: bool = false;
const CLOSED: bool = true;

struct Case {
    name: &'static str,
    send: String,
    statuses: &'static [u16],
    closes: bool,
}

fn case(
    name: &'static str,
    send: impl Into<String>,
    statuses: &'static [u16],
    closes: bool,
) -> Case {
    Case { name, send: send.into(), statuses, closes }
}

/// A GET of an absent key whose head holds these lines beside Host.
fn get_with(lines: &str) -> String {
    format!("GET /v0/entity?id=absent HTTP/1.1\r\nHost: t\r\n{lines}\r\n")
}

/// A PUT whose head ends in these lines, and what follows it.
fn put_with(lines: &str, rest: &str) -> String {
    format!("PUT /v0/entity?id=k HTTP/1.1\r\nHost: t\r\n{lines}\r\n{rest}")
}

fn chunked(chunks: &str) -> String {
    put_with("Transfer-Encoding: chunked\r\n", chunks)
}

fn request(method: &str, target: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: t\r\n\r\n")
}

#[rustfmt::skip] // one case a line
fn framing_cases() -> Vec<Case> {
    vec![
        case("plain get", get_with(""), &[404], OPEN),
        case("header values with tabs and spaces", get_with("X: \t a\tb \r\n"), &[404], OPEN),
        case("non-ASCII header value", get_with("X: h\u{e9}\r\n"), &[404], OPEN),
        case("empty header value", get_with("X:\r\n"), &[404], OPEN),
        case("lower-case header names", "GET /v0/status HTTP/1.1\r\nhost: t\r\n\r\n", &[200], OPEN),
        case("Host with port", "GET /v0/status HTTP/1.1\r\nHost: t:80\r\n\r\n", &[200], OPEN),
        case("IPv6 Host", "GET /v0/status HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", &[200], OPEN),
        case("empty Host", "GET /v0/status HTTP/1.1\r\nHost:\r\n\r\n", &[200], OPEN),
        case("missing Host", "GET /v0/status HTTP/1.1\r\n\r\n", &[400], CLOSED),
        case("two Hosts", get_with("Host: t\r\n"), &[400], CLOSED),
        case("two Hosts in other letters", get_with("hOST: u\r\n"), &[400], CLOSED),
        case("Host with a space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", &[400], CLOSED),
        case("Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", &[400], CLOSED),
        case("bare line feeds", "GET /v0/status HTTP/1.1\nHost: t\n\n", &[400], CLOSED),
        case("one bare line feed", "GET /v0/status HTTP/1.1\r\nHost: t\n\r\n", &[400], CLOSED),
        case("bare line feed at the end", "GET /v0/status HTTP/1.1\r\nHost: t\r\n\n", &[400], CLOSED),
        case("bare carriage return", get_with("X: a\rb\r\n"), &[400], CLOSED),
        case("empty line before the request", format!("\r\n{}", get_with("")), &[404], OPEN),
        case("two empty lines before it", format!("\r\n\r\n{}", get_with("")), &[400], CLOSED),
        case("folded header", get_with("X: a\r\n b\r\n"), &[400], CLOSED),
        case("fold right after the request line", "GET / HTTP/1.1\r\n Host: t\r\n\r\n", &[400], CLOSED),
        case("space before the colon", get_with("X : a\r\n"), &[400], CLOSED),
        case("header without colon", get_with("X\r\n"), &[400], CLOSED),
        case("header without name", get_with(": a\r\n"), &[400], CLOSED),
        case("parenthesis in a header name", get_with("X(y): a\r\n"), &[400], CLOSED),
        case("NUL in a header value", get_with("X: a\0b\r\n"), &[400], CLOSED),
        case("control character in a header value", get_with("X: a\u{1}b\r\n"), &[400], CLOSED),
        case("DEL in a header value", get_with("X: a\u{7f}b\r\n"), &[400], CLOSED),
        case("64 header fields", get_with(&"X: a\r\n".repeat(63)), &[404], OPEN),
        case("65 header fields", get_with(&"X: a\r\n".repeat(64)), &[431], CLOSED),
        case("headers of 15 KiB", get_with(&format!("X: {}\r\n", "a".repeat(15 << 10))), &[404], OPEN),
        case("headers over 16 KiB", get_with(&format!("X: {}\r\n", "a".repeat(16 << 10))), &[431], CLOSED),
        case("endless header", format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(40 << 10)), &[431], CLOSED),
        case("request line of 15 KiB", request("GET", &format!("/v0/status?{}", "a".repeat(15 << 10))), &[200], OPEN),
        case("request line over 16 KiB", request("GET", &format!("/{}", "a".repeat(16 << 10))), &[414], CLOSED),
        case("endless request line", format!("GET /{}", "a".repeat(70 << 10)), &[414], CLOSED),
        case("TLS hello", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}", &[400], CLOSED),
        case("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[400], CLOSED),
        case("unknown version", "GET /v0/status HTTP/1.2\r\nHost: t\r\n\r\n", &[400], CLOSED),
        case("lower-case protocol", "GET /v0/status http/1.1\r\nHost: t\r\n\r\n", &[400], CLOSED),
        case("HTTP/0.9", "GET /v0/status\r\n\r\n", &[400], CLOSED),
        case("two spaces in the request line", "GET  /v0/status HTTP/1.1\r\nHost: t\r\n\r\n", &[400], CLOSED),
        case("space after the version", "GET /v0/status HTTP/1.1 \r\nHost: t\r\n\r\n", &[400], CLOSED),
        case("space in the target", "GET /v0/entity?id=a b HTTP/1.1\r\nHost: t\r\n\r\n", &[400], CLOSED),
        case("fragment in the target", request("GET", "/v0/status#a"), &[400], CLOSED),
        case("raw bytes over 127 in the target", request("GET", "/v0/entity?id=\u{e9}"), &[400], CLOSED),
        case("method that is no token", request("G@T", "/v0/status"), &[400], CLOSED),
        case("CONNECT", "CONNECT t:80 HTTP/1.1\r\nHost: t\r\n\r\n", &[400], CLOSED),
        case("absolute form", request("GET", "http://t/v0/entity?id=absent"), &[404], OPEN),
        case("asterisk form", request("OPTIONS", "*"), &[400], CLOSED),
    ]
}

#[rustfmt::skip] // one case a line
fn body_cases() -> Vec<Case> {
    vec![
        case("put", put_with("Content-Length: 1\r\n", "v"), &[201], OPEN),
        case("put of nothing", put_with("Content-Length: 0\r\n", ""), &[201], OPEN),
        case("put without a length", put_with("", ""), &[201], OPEN),
        case("length with leading zeros", put_with("Content-Length: 001\r\n", "v"), &[201], OPEN),
        case("length with a plus", put_with("Content-Length: +1\r\n", "v"), &[400], CLOSED),
        case("negative length", put_with("Content-Length: -1\r\n", "v"), &[400], CLOSED),
        case("length in hex", put_with("Content-Length: 0x1\r\n", "v"), &[400], CLOSED),
        case("empty length", put_with("Content-Length:\r\n", ""), &[400], CLOSED),
        case("length list", put_with("Content-Length: 1, 1\r\n", "v"), &[400], CLOSED),
        case("two equal lengths", put_with("Content-Length: 1\r\nContent-Length: 1\r\n", "v"), &[400], CLOSED),
        case("two lengths", put_with("Content-Length: 1\r\nContent-Length: 2\r\n", "vw"), &[400], CLOSED),
        case("length beyond 64 bits", put_with("Content-Length: 18446744073709551616\r\n", ""), &[400], CLOSED),
        case("length at the end of 64 bits", put_with("Content-Length: 9223372036854775807\r\n", ""), &[413], CLOSED),
        case("length over the limit", put_with("Content-Length: 67108865\r\n", ""), &[413], CLOSED),
        case("length, then chunked", put_with("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "v"), &[400], CLOSED),
        case("chunked, then length", put_with("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), &[400], CLOSED),
        case("chunked put", chunked("1\r\nv\r\n0\r\n\r\n"), &[201], OPEN),
        case("chunked put in other letters", put_with("transfer-encoding: ChUnKeD\r\n", "1\r\nv\r\n0\r\n\r\n"), &[201], OPEN),
        case("chunked put of nothing", chunked("0\r\n\r\n"), &[201], OPEN),
        case("chunks with extensions", chunked("1;a=b;c=\"d\"\r\nv\r\n0\r\n\r\n"), &[201], OPEN),
        case("chunks with a trailer", chunked("1\r\nv\r\n0\r\nX: y\r\n\r\n"), &[201], OPEN),
        case("chunk size in capitals with zeros", chunked("0A\r\n0123456789\r\n0\r\n\r\n"), &[201], OPEN),
        case("chunk size that is no number", chunked("x\r\nv\r\n0\r\n\r\n"), &[400], CLOSED),
        case("chunk size with a sign", chunked("+1\r\nv\r\n0\r\n\r\n"), &[400], CLOSED),
        case("chunk size beyond 64 bits", chunked("10000000000000000\r\nv"), &[400], CLOSED),
        case("chunk line with a bare line feed", chunked("1\nv\r\n0\r\n\r\n"), &[400], CLOSED),
        case("chunk longer than its size", chunked("1\r\nvv\r\n0\r\n\r\n"), &[400], CLOSED),
        case("endless chunk extension", chunked(&format!("1;{}", "a".repeat(4 << 10))), &[400], CLOSED),
        case("folded trailer", chunked("1\r\nv\r\n0\r\nX: y\r\n z\r\n\r\n"), &[400], CLOSED),
        case("gzip, chunked", put_with("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), &[400], CLOSED),
        case("chunked twice", put_with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), &[400], CLOSED),
        case("identity", put_with("Transfer-Encoding: identity\r\n", "v"), &[400], CLOSED),
        case("xchunked", put_with("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), &[400], CLOSED),
        case("vertical tab before chunked", put_with("Transfer-Encoding: \u{b}chunked\r\n", "0\r\n\r\n"), &[400], CLOSED),
        case("chunked on HTTP/1.0", "PUT /v0/entity?id=k HTTP/1.0\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[400], CLOSED),
        case("get with a body", "GET /v0/entity?id=absent HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc", &[404], CLOSED),
        case("delete with a body", "DELETE /kv/k HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc", &[204], CLOSED),
        case("wrong method with a chunked body", "POST /kv/k HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nv\r\n0\r\n\r\n", &[405], CLOSED),
        case("delete with an empty body", "DELETE /kv/k HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n", &[204], OPEN),
        case("Expect: 100-continue", put_with("Expect: 100-continue\r\nContent-Length: 1\r\n", "v"), &[100, 201], OPEN),
        case("Expect with a body over the limit", put_with("Expect: 100-continue\r\nContent-Length: 99999999\r\n", ""), &[413], CLOSED),
        case("unknown expectation", put_with("Expect: miracles\r\nContent-Length: 1\r\n", "v"), &[201], OPEN),
    ]
}

#[rustfmt::skip] // one case a line
fn connection_cases() -> Vec<Case> {
    vec![
        case("HTTP/1.0", "GET /v0/status HTTP/1.0\r\n\r\n", &[200], CLOSED),
        case("HTTP/1.0 put", "PUT /v0/entity?id=k HTTP/1.0\r\nContent-Length: 1\r\n\r\nv", &[201], CLOSED),
        case("HTTP/1.0 keep-alive", "GET /v0/status HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &[200], OPEN),
        case("HTTP/1.0 with two Hosts", "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", &[400], CLOSED),
        case("Connection: close", get_with("Connection: close\r\n"), &[404], CLOSED),
        case("Connection: Close in a list", get_with("Connection: x, Close\r\n"), &[404], CLOSED),
        case("requests after a close are ignored", get_with("Connection: close\r\n") + &get_with(""), &[404], CLOSED),
        case("garbage after a close is ignored", get_with("Connection: close\r\n") + "\n\n\n", &[404], CLOSED),
        case("Upgrade: websocket", get_with("Connection: Upgrade\r\nUpgrade: websocket\r\n"), &[404], OPEN),
        case("Upgrade: h2c", get_with("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"), &[404], OPEN),
        case("good requests before a bad one are answered", get_with("").repeat(3) + "GET / HTTP/1.1\r\n\r\n", &[404, 404, 404, 400], CLOSED),
        case("request after a bad one is not", "GET / HTTP/1.1\r\n\r\n".to_owned() + &get_with(""), &[400], CLOSED),
        case("put before a bad request is answered", put_with("Content-Length: 1\r\n", "v") + "\n", &[201, 400], CLOSED),
        case("request after a 400 of a path is not answered", request("GET", "/nowhere") + &get_with(""), &[400], CLOSED),
    ]
}

#[rustfmt::skip] // one case a line
fn route_cases() -> Vec<Case> {
    vec![
        case("entity without id", request("GET", "/v0/entity"), &[400], CLOSED),
        case("entity with an empty id", request("GET", "/v0/entity?id="), &[400], CLOSED),
        case("entity with a bare id", request("PUT", "/v0/entity?id"), &[400], CLOSED),
        case("first id empty", request("GET", "/v0/entity?id=&id=a"), &[400], CLOSED),
        case("other parameters", request("DELETE", "/v0/entity?x=y&id=a&z"), &[202], OPEN),
        case("bad escape", request("GET", "/v0/entity?id=%zz"), &[400], CLOSED),
        case("cut escape", request("GET", "/v0/entity?id=a%2"), &[400], CLOSED),
        case("key of 4,096 bytes", request("GET", &format!("/v0/entity?id={}", "k".repeat(4096))), &[404], OPEN),
        case("key of 4,097 bytes", request("GET", &format!("/v0/entity?id={}", "k".repeat(4097))), &[400], CLOSED),
        case("escaped key of 4,096 bytes", request("GET", &format!("/v0/entity?id={}", "%41".repeat(4096))), &[404], OPEN),
        case("POST to an entity", request("POST", "/v0/entity?id=a"), &[405], OPEN),
        case("OPTIONS of an entity", request("OPTIONS", "/v0/entity?id=a"), &[405], OPEN),
        case("TRACE of an entity", request("TRACE", "/v0/entity?id=a"), &[405], OPEN),
        case("unheard-of method", request("BREW", "/v0/entity?id=a"), &[405], OPEN),
        case("method in small letters", request("get", "/v0/entity?id=a"), &[405], OPEN),
        case("head of an absent entity", request("HEAD", "/v0/entity?id=absent"), &[404], OPEN),
        case("entities without start", request("GET", "/v0/entities"), &[400], CLOSED),
        case("entities with an empty start", request("GET", "/v0/entities?start="), &[400], CLOSED),
        case("entities with an empty end", request("GET", "/v0/entities?start=a&end="), &[400], CLOSED),
        case("entities with a bad escape", request("GET", "/v0/entities?start=%"), &[400], CLOSED),
        case("entities backwards are none", request("GET", "/v0/entities?start=b&end=a"), &[200], OPEN),
        case("PUT to entities", request("PUT", "/v0/entities?start=a"), &[405], OPEN),
        case("status", request("GET", "/v0/status"), &[200], OPEN),
        case("head of status", request("HEAD", "/v0/status"), &[200], OPEN),
        case("POST to status", request("POST", "/v0/status"), &[405], OPEN),
        case("health", request("GET", "/healthz"), &[200], OPEN),
        case("readiness", request("GET", "/readyz"), &[200], OPEN),
        case("root", request("GET", "/"), &[400], CLOSED),
        case("path with a slash at its end", request("GET", "/v0/entity/?id=a"), &[400], CLOSED),
        case("path with dots", request("GET", "/v0/../v0/status"), &[400], CLOSED),
        case("escaped path", request("GET", "/v0%2Fstatus"), &[400], CLOSED),
        case("double slash", request("GET", "//v0/status"), &[400], CLOSED),
        case("figures are the admin listener's", request("GET", "/stats"), &[400], CLOSED),
        case("item without key", request("GET", "/kv/"), &[400], CLOSED),
        case("item with a bad escape", request("GET", "/kv/%4"), &[400], CLOSED),
        case("item with a query", request("GET", "/kv/a?b"), &[400], CLOSED),
        case("POST to an item", request("POST", "/kv/a"), &[405], OPEN),
        case("PUT to the collection", request("PUT", "/kv"), &[405], OPEN),
        case("batch of nothing", request("POST", "/kv"), &[400], CLOSED),
        case("listing with an unknown parameter", request("GET", "/kv?color=red"), &[400], CLOSED),
    ]
}

/// Sends each case in one write, and again byte by byte where it is short: what the server makes of a
/// request must not depend on how it arrives.
#[test]
fn every_raw_request_has_its_exact_answer() {
    let running = start();
    let cases: Vec<Case> = [framing_cases(), body_cases(), connection_cases(), route_cases()]
        .into_iter()
        .flatten()
        .collect();
    assert!(cases.len() >= 60);
    for Case { name, send, statuses, closes } in &cases {
        let ways = if send.len() < 300 { 2 } else { 1 };
        for way in 0..ways {
            let mut client = running.client();
            if way == 0 {
                // A server that closed early has answered already.
                let _ = std::io::Write::write_all(client.stream.get_mut(), send.as_bytes());
            } else {
                for byte in send.as_bytes() {
                    if std::io::Write::write_all(client.stream.get_mut(), &[*byte]).is_err() {
                        break;
                    }
                }
            }
            let method = if send.starts_with("HEAD") { "HEAD" } else { "GET" };
            for (index, status) in statuses.iter().enumerate() {
                let reply = client.try_reply(method);
                let got = reply.as_ref().map(|reply| reply.status);
                // A 100 is only sent while the body hasn't come.
                let continued = *status == 100 && got == Some(201);
                assert!(
                    got == Some(*status) || continued,
                    "{name}, way {way}, reply {index}: {got:?}"
                );
                if continued {
                    break;
                }
                let reply = reply.unwrap();
                if *closes && index + 1 == statuses.len() && reply.version == "HTTP/1.1" {
                    assert_eq!(reply.header("connection"), "close", "{name}");
                }
            }
            if *closes {
                client.assert_closed();
            } else {
                client.send("GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n");
                let next = client.try_reply("GET").map(|reply| reply.status);
                assert_eq!(next, Some(200), "{name}, way {way}: the connection stays open");
            }
        }
    }
}

#[test]
fn replies_name_no_server_and_refusals_say_why() {
    let running = start();
    let mut client = running.client();
    let reply = client.request("BREW", "/v0/entity?id=a", &[], None);
    assert_eq!(reply.header("allow"), "GET, HEAD, PUT, DELETE");
    assert_eq!(reply.error(), "method_not_allowed");
    assert_eq!(client.request("POST", "/v0/entities", &[], None).header("allow"), "GET");
    assert_eq!(client.request("DELETE", "/kv", &[], None).header("allow"), "GET, POST");
    assert_eq!(client.request("DELETE", "/healthz", &[], None).header("allow"), "GET, HEAD");
    let reply = client.get("/v0/entity?id=");
    assert_eq!((reply.status, reply.error().as_str()), (400, "bad_request"));
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.header("server"), "");
    assert_ne!(reply.header("date"), "");
}
