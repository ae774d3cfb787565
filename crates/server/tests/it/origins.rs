//! Web pages that ask for what isn't theirs, and names that aren't this server's: refused by every
//! listener, with nothing done; what clients that aren't browsers send passes.

use std::net::SocketAddr;

use tallybook_browser::Browser;

use crate::harness::{Client, Reply, Running, options, start, start_with};

const BATCH: &str = r#"{"operations":[{"put":{"key":"aw==","value":"dg=="}}]}"#;

/// Sends a request with these lines as its headers, on a connection of its own.
fn ask(address: SocketAddr, method: &str, target: &str, lines: &str, body: &str) -> Reply {
    let mut client = Client::connect(address);
    let length = body.len();
    client.send(format!(
        "{method} {target} HTTP/1.1\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
    ));
    let reply = client.reply(method);
    if matches!(reply.status, 403 | 421) {
        assert_eq!(reply.header("connection"), "close");
        client.assert_closed();
    }
    reply
}

fn assert_refused(reply: &Reply, status: u16, kind: &str) {
    assert_eq!((reply.status, reply.error().as_str()), (status, kind));
}

fn holds_anything(running: &Running) -> bool {
    running.engine.store.get(b"k").unwrap().is_some()
}

/// A batch in a body of text is a request that any page may have a browser send.
#[test]
fn page_of_another_origin_changes_nothing() {
    let running = start();
    let own = format!("Host: {}\r\n", running.data);
    for foreign in [
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: http://127.0.0.1:1\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
    ] {
        for (method, target, body) in
            [("POST", "/kv", BATCH), ("PUT", "/kv/k", "v"), ("PUT", "/v0/entity?id=k", "v")]
        {
            for lines in [format!("{own}{foreign}"), format!("{foreign}{own}")] {
                let reply = ask(running.data, method, target, &lines, body);
                assert_refused(&reply, 403, "cross_origin");
            }
        }
        let lines = format!("Host: {}\r\n{foreign}", running.admin);
        let reply = ask(running.admin, "PUT", "/stages/sampling?every=7", &lines, "");
        assert_refused(&reply, 403, "cross_origin");
        assert_refused(&ask(running.admin, "GET", "/stats", &lines, ""), 403, "cross_origin");
    }
    assert!(!holds_anything(&running));
    assert_ne!(running.stages()["sample_every"], 7);
}

#[test]
fn page_of_the_same_origin_and_links_to_it_work() {
    let running = start();
    let site = "Sec-Fetch-Site: same-origin\r\n";
    let own = format!("Host: {0}\r\nOrigin: http://{0}\r\n{site}", running.data);
    assert_eq!(ask(running.data, "POST", "/kv", &own, BATCH).status, 200);
    assert!(holds_anything(&running));
    let own = format!("Host: {0}\r\nOrigin: http://{0}\r\n{site}", running.admin);
    assert_eq!(ask(running.admin, "PUT", "/stages/sampling?every=7", &own, "").status, 200);
    // As a browser follows a link of another page, and as it opens what was typed.
    let link =
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
    for lines in [link, "Sec-Fetch-Site: none\r\n"] {
        let lines = format!("Host: {}\r\n{lines}", running.admin);
        assert_eq!(ask(running.admin, "GET", "/", &lines, "").status, 200);
    }
}

/// Each costs the process minutes of being slowed down, and a page can have a link followed any number of
/// times, in windows of its own.
#[test]
fn link_of_another_site_takes_no_profile() {
    let running = start();
    let link = |site: &str| {
        let lines = format!(
            "Host: {}\r\nSec-Fetch-Site: {site}\r\nSec-Fetch-Mode: navigate\r\n\
             Sec-Fetch-Dest: document\r\n",
            running.admin
        );
        ask(running.admin, "GET", "/debug/profile/cpu?seconds=1&format=folded", &lines, "")
    };
    for site in ["cross-site", "same-site"] {
        assert_refused(&link(site), 403, "cross_origin");
    }
    // That one of a kind is taken at a time may be in the way of this one.
    for site in ["none", "same-origin"] {
        assert!(matches!(link(site).status, 200 | 409), "{site}");
    }
}

/// A page of `evil.example` is of the server's origin to the browser, once that name leads to 127.0.0.1.
#[test]
fn name_that_was_made_to_lead_here_is_refused_on_loopback() {
    let running = start();
    for (address, method, target) in
        [(running.data, "PUT", "/kv/k"), (running.data, "GET", "/kv"), (running.admin, "GET", "/")]
    {
        let port = address.port();
        let lines = format!("Host: evil.example:{port}\r\nOrigin: http://evil.example:{port}\r\n");
        assert_refused(&ask(address, method, target, &lines, ""), 421, "unknown_host");
        let absolute = format!("http://evil.example:{port}{target}");
        let lines = format!("Host: 127.0.0.1:{port}\r\n");
        assert_refused(&ask(address, method, &absolute, &lines, ""), 421, "unknown_host");
        let rebound = "GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        let mut client = Client::connect(address);
        client.send(format!("GET /healthz HTTP/1.1\r\n{lines}\r\n{rebound}"));
        assert_eq!(client.reply("GET").status, 200);
        assert_eq!(client.reply("GET").status, 421, "behind a request that was let in, too");
        client.assert_closed();
    }
    assert!(!holds_anything(&running));
}

#[test]
fn allowed_host_is_let_in_with_its_pages() {
    let mut options = options();
    options.allowed_hosts = vec!["books.example".to_owned()];
    let running = start_with(options);
    let lines = "Host: Books.example\r\nOrigin: https://books.example\r\n";
    assert_eq!(ask(running.data, "POST", "/kv", lines, BATCH).status, 200);
    let lines = "Host: books.example:9080\r\n";
    assert_eq!(ask(running.admin, "GET", "/stats", lines, "").status, 200);
    let lines = "Host: books.example\r\nOrigin: https://evil.example\r\n";
    assert_refused(&ask(running.data, "POST", "/kv", lines, BATCH), 403, "cross_origin");
    for host in ["other.example", "0.0.0.0", "[::]:8080"] {
        let lines = format!("Host: {host}\r\n");
        assert_refused(&ask(running.data, "POST", "/kv", &lines, BATCH), 421, "unknown_host");
    }
}

#[test]
fn listener_that_others_can_reach_goes_by_any_name() {
    let mut options = options();
    (options.listen, options.allow_insecure) = ("0.0.0.0:0".parse().unwrap(), true);
    let running = start_with(options);
    let lines = "Host: books.example\r\n";
    assert_eq!(ask(running.data, "PUT", "/kv/k", lines, "v").status, 201);
    let lines = "Host: books.example\r\nOrigin: http://evil.example\r\n";
    assert_refused(&ask(running.data, "DELETE", "/kv/k", lines, ""), 403, "cross_origin");
    assert!(holds_anything(&running));
}

#[test]
fn client_that_is_no_browser_is_asked_nothing() {
    let running = start();
    let port = running.data.port();
    for host in ["127.0.0.1", "localhost", "LOCALHOST.", "[::1]", "192.168.0.7"] {
        for host in [host.to_owned(), format!("{host}:{port}")] {
            // As curl sends a batch.
            let lines = format!(
                "Host: {host}\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\n"
            );
            assert_eq!(ask(running.data, "POST", "/kv", &lines, BATCH).status, 200, "{host}");
        }
    }
    assert_eq!(ask(running.data, "GET", "/kv/k", "Host:\r\n", "").status, 200);
}

/// What Chromium itself says of a page that asks the other listener, and its own.
#[test]
fn browser_has_a_page_ask_its_own_listener_alone() {
    let running = start();
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/stats", running.admin));
    let batch = BATCH.replace('"', "\\\"");
    let send = |address: &str, mode: &str| {
        format!(
            "fetch('http://{address}/kv', {{ method: 'POST', mode: '{mode}', body: \"{batch}\" }}) \
             .then((reply) => reply.status, () => 'unseen')"
        )
    };
    for mode in ["no-cors", "cors"] {
        browser.evaluate(&send(&running.data.to_string(), mode));
        browser.evaluate(&send(&format!("localhost:{}", running.data.port()), mode));
    }
    assert!(!holds_anything(&running));
    let own = "fetch('/stages/sampling?every=7', { method: 'PUT' }).then((reply) => reply.status)";
    assert_eq!(browser.evaluate(own), 200);
    assert_eq!(running.stages()["sample_every"], 7);
}
