//! Starting: addresses that are taken, open to others, or out of range.

use tallybook::options::Options;
use tallybook::store::Store;
use tallybook_server::{AdminToken, Error, Server};

use crate::harness::{options, start, start_with};

#[test]
fn second_server_on_the_port_fails() {
    let running = start();
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
    for taken in [running.data, running.admin] {
        let mut second = options();
        second.listen = taken;
        let error = Server::bind(second, store.clone()).err().unwrap();
        assert!(matches!(error, Error::Bind { address, .. } if address == taken));
        assert!(error.to_string().contains("another server has this port"), "{error}");
    }
    running.client().assert_open();
    store.close().unwrap();
}

#[test]
fn address_others_can_reach_needs_consent() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
    let open = "0.0.0.0:0".parse().unwrap();
    let mut data = options();
    data.listen = open;
    let mut admin = options();
    admin.admin = Some(open);
    for mut options in [data, admin] {
        let error = Server::bind(options.clone(), store.clone()).err().unwrap();
        assert!(matches!(error, Error::Insecure { .. }), "{error}");
        options.allow_insecure = true;
        if options.admin == Some(open) {
            let error = Server::bind(options.clone(), store.clone()).err().unwrap();
            assert!(matches!(error, Error::NoAdminToken { .. }), "{error}");
            options.admin_token = Some(AdminToken::new("a-token-of-no-use").unwrap());
        }
        assert!(Server::bind(options, store.clone()).is_ok());
    }
    store.close().unwrap();
}

#[test]
fn admin_listener_with_a_token_answers_only_who_brings_it() {
    let mut options = options();
    options.admin_token = Some(AdminToken::new("0123456789abcdef").unwrap());
    let running = start_with(options);
    let ask = |path: &str, authorization: &str| {
        let mut stream = std::net::TcpStream::connect(running.admin).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n");
        std::io::Write::write_all(&mut stream, format!("{head}{authorization}\r\n").as_bytes())
            .unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        answer
    };
    for path in ["/", "/metrics", "/stages", "/stats", "/debug/profile/cpu?seconds=1", "/nowhere"] {
        for authorization in ["", "Authorization: Bearer 0123456789abcdeF\r\n"] {
            let refused = ask(path, authorization);
            assert!(refused.starts_with("HTTP/1.1 401 "), "{path}: {refused}");
            assert!(refused.contains("www-authenticate: Basic "), "{refused}");
        }
    }
    let admitted = ask("/stats", "Authorization: Bearer 0123456789abcdef\r\n");
    assert!(admitted.starts_with("HTTP/1.1 200 "), "{admitted}");
    // Health is for balancers, which have no token.
    assert!(ask("/healthz", "").starts_with("HTTP/1.1 200 "));
    assert!(ask("/readyz", "").starts_with("HTTP/1.1 200 "));
}

#[test]
fn setting_out_of_range_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
    let mut wrong = options();
    wrong.limits.value_bytes_max = 1 << 40;
    let error = Server::bind(wrong, store.clone()).err().unwrap();
    assert!(matches!(error, Error::InvalidOption(_)), "{error}");
    store.close().unwrap();
}

#[test]
fn admin_listener_serves_no_data() {
    let running = start();
    for target in ["/v0/entity?id=k", "/v0/entities?start=k", "/kv/k", "/kv"] {
        let mut admin = running.admin_client();
        admin.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(admin.reply("GET").status, 400, "{target}");
    }
    running.client().put("/kv/k", b"v");
    assert_eq!(running.figure("last_seqno"), 1);
}
