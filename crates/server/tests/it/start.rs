//! Starting: addresses that are taken, open to others, or out of range.

use tallybook::options::Options;
use tallybook::store::Store;
use tallybook_server::{Error, Server};

use crate::harness::{options, start};

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
        assert!(Server::bind(options, store.clone()).is_ok());
    }
    store.close().unwrap();
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
