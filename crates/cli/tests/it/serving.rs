//! `serve`: its listeners, its signals, and who it shares its store with.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::binary::{Dir, SILENCE_MAX, Server, ask, run, tallybook};

#[test]
fn port_0_picks_ports_and_one_line_names_them() {
    let dir = Dir::new();
    let server = Server::start(&mut Server::command(&dir));
    let admin = server.admin.clone().expect("there is an admin listener");
    assert_eq!(
        server.announcement,
        format!("listening on http://{} (data), http://{admin} (admin)\n", server.data)
    );
    assert!(!server.data.ends_with(":0") && !admin.ends_with(":0"));
    assert_eq!(server.ask("GET", "/v0/status", b"").0, 200);
    assert_eq!(ask(&admin, "GET", "/healthz", b"").0, 200);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn admin_listener_can_be_off() {
    let dir = Dir::new();
    let server = Server::start(Server::command(&dir).args(["--admin", "off"]));
    assert_eq!(server.admin, None);
    assert_eq!(server.announcement, format!("listening on http://{} (data)\n", server.data));
}

#[test]
fn sigterm_and_sigint_stop_cleanly_and_keep_every_write() {
    let dir = Dir::new();
    for (round, signal) in [Signal::TERM, Signal::INT].into_iter().enumerate() {
        let server = Server::start(&mut Server::command(&dir));
        for number in 0..50 {
            let target = format!("/v0/entity?id={round}/{number}");
            assert_eq!(server.ask("PUT", &target, target.as_bytes()).0, 201);
        }
        server.signal(signal);
        let (code, log) = server.wait();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("started") && log.contains("stopped"), "{log}");
    }
    let scan = dir.verb(&["scan"]).success();
    assert_eq!(scan.text().lines().count(), 100);
    let get = dir.verb(&["get", "1/49"]).success();
    assert_eq!(get.stdout, b"/v0/entity?id=1/49");
}

/// That a line could not be written was said where it could not be written: a panic, which ends the process.
/// So a full disk, or a log collector that had gone, took the server with it.
#[test]
fn log_that_cannot_be_written_does_not_end_the_server() {
    let start = |stderr| {
        let dir = Dir::new();
        let mut command = Server::command(&dir);
        command.args(["--log-interval-secs", "1"]);
        (Server::start_logging_to(&mut command, stderr), dir)
    };
    let (reader, writer) = std::io::pipe().unwrap();
    let with_pipe = start(writer.into());
    drop(reader);
    let full = File::options().write(true).open("/dev/full").unwrap();
    for (server, _dir) in [with_pipe, start(full.into())] {
        let started = Instant::now();
        // Until lines of figures have come, a second apart.
        while started.elapsed() < Duration::from_millis(2500) {
            assert_eq!(server.ask("GET", "/healthz", b"").0, 200);
            assert_eq!(server.ask("PUT", "/kv/key", b"value").0, 201);
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn second_signal_ends_a_server_that_waits_for_a_request() {
    let dir = Dir::new();
    let server = Server::start(&mut Server::command(&dir));
    let mut stream = TcpStream::connect(&server.data).unwrap();
    stream.set_read_timeout(Some(SILENCE_MAX)).unwrap();
    let head = "PUT /v0/entity?id=key HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\
                Expect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // The server says that it waits for the body, so the request is under way for certain.
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");
    server.signal(Signal::TERM);
    while TcpStream::connect(&server.data).is_ok() {
        // Once it accepts nobody any more, it has taken the first signal.
        std::thread::yield_now();
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait().0, Some(143));
}

#[test]
fn acknowledged_writes_survive_sigkill() {
    let dir = Dir::new();
    let server = Server::start(&mut Server::command(&dir));
    for number in 0..100 {
        assert_eq!(server.ask("PUT", &format!("/v0/entity?id={number:03}"), b"value").0, 201);
    }
    server.signal(Signal::KILL);
    assert_eq!(server.wait().0, None);
    let server = Server::start(&mut Server::command(&dir));
    for number in 0..100 {
        let answer = server.ask("GET", &format!("/v0/entity?id={number:03}"), b"");
        assert_eq!(answer, (200, b"value".to_vec()));
    }
}

#[test]
fn second_server_on_a_store_fails_with_code_4_and_harms_nothing() {
    let dir = Dir::new();
    let server = Server::start(&mut Server::command(&dir));
    assert_eq!(server.ask("PUT", "/v0/entity?id=key", b"value").0, 201);
    run(&mut Server::command(&dir)).failure(4, "open in another process");
    dir.verb(&["get", "key"]).failure(4, "open in another process");
    assert_eq!(server.ask("GET", "/v0/entity?id=key", b""), (200, b"value".to_vec()));
}

#[test]
fn second_server_on_a_port_fails() {
    let (dir, other) = (Dir::new(), Dir::new());
    let server = Server::start(&mut Server::command(&dir));
    let mut second = tallybook();
    second.args(["serve", "--listen", &server.data, "--admin", "off", "--data"]);
    run(second.arg(other.data())).failure(1, &server.data);
    let admin = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = admin.local_addr().unwrap().to_string();
    let mut second = tallybook();
    second.args(["serve", "--listen", "127.0.0.1:0", "--admin", &taken, "--data"]);
    run(second.arg(other.data())).failure(1, &taken);
}

#[test]
fn store_of_a_server_is_read_by_the_verbs_and_the_other_way_round() {
    let dir = Dir::new();
    dir.verb(&["put", "from/verb", "verb"]).success();
    let server = Server::start(&mut Server::command(&dir));
    assert_eq!(server.ask("GET", "/kv/from/verb", b""), (200, b"verb".to_vec()));
    assert!((200..300).contains(&server.ask("PUT", "/kv/from/server", b"server").0));
    assert_eq!(server.stop().0, Some(0));
    assert_eq!(dir.verb(&["get", "from/server"]).success().stdout, b"server");
}

#[test]
fn data_directory_that_is_no_directory_is_refused() {
    let dir = Dir::new();
    std::fs::write(dir.data(), "a file").unwrap();
    run(&mut Server::command(&dir)).failure(1, "data directory");
}

#[test]
fn file_store_is_served_beside_the_store_and_kept() {
    let dir = Dir::new();
    let files = dir.beside("files");
    for expected in [404, 200] {
        let server = Server::start(Server::command(&dir).arg("--files").arg(&files));
        assert_eq!(server.ask("GET", "/files/a/b", b"").0, expected);
        assert_eq!(server.ask("PUT", "/files/a/b", b"bytes").0, 201);
        assert_eq!(server.stop().0, Some(0));
    }
    let read = run(tallybook().args(["files", "read", "a/b", "--data"]).arg(&files)).success();
    assert_eq!(read.stdout, b"bytes");
    // Without the setting there is no file store.
    let server = Server::start(&mut Server::command(&dir));
    assert_eq!(server.ask("GET", "/files/a/b", b"").0, 400);
}

#[test]
fn s3_is_served_to_who_has_credentials_or_on_loopback_to_all() {
    let dir = Dir::new();
    let command = || {
        let mut command = Server::command(&dir);
        command.args(["--s3", "127.0.0.1:0", "--files"]).arg(dir.beside("files"));
        command
    };
    run(&mut command()).failure(2, "s3_credentials_file");
    let credentials = dir.beside("credentials");
    std::fs::write(&credentials, "# who\nAKIATEST  secret-of-no-use\n").unwrap();
    let with_file = || {
        let mut command = command();
        command.arg("--s3-credentials-file").arg(&credentials);
        command
    };
    run(&mut with_file()).failure(2, "chmod 600");
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&credentials, own).unwrap();
    for (mut command, status) in [(with_file(), 403), (command(), 200)] {
        if status == 200 {
            command.arg("--s3-anonymous");
        }
        let server = Server::start(&mut command);
        let end = server.announcement.find(" (s3)").expect("S3 is announced");
        let s3 = server.announcement[..end].rsplit_once("http://").unwrap().1.to_owned();
        assert_eq!(ask(&s3, "GET", "/", b"").0, status);
        assert_eq!(server.stop().0, Some(0));
    }
}
