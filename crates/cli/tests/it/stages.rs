//! `stages`: what it prints of a running server, and what it says when there is none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::thread;

use crate::binary::{Dir, Outcome, Server, ask, run, tallybook};

fn stages(arguments: &[&str]) -> Outcome {
    run(tallybook().arg("stages").args(arguments))
}

fn busy_server(dir: &Dir) -> (Server, String) {
    let server = Server::start(&mut Server::command(dir));
    let admin = server.admin.clone().expect("there is an admin listener");
    assert_eq!(ask(&admin, "PUT", "/stages/sampling?every=1", b"").0, 200);
    for number in 0..20 {
        assert_eq!(server.ask("PUT", &format!("/kv/{number}"), b"value").0, 201);
        assert_eq!(server.ask("GET", &format!("/kv/{number}"), b"").0, 200);
    }
    (server, format!("http://{admin}"))
}

#[test]
fn table_shows_requests_stages_and_exits_aligned() {
    let dir = Dir::new();
    let (_server, url) = busy_server(&dir);
    for arguments in [&[url.as_str()][..], &[&url, "--interval"]] {
        let outcome = stages(arguments).success();
        let text = outcome.text();
        assert!(text.starts_with(&url) && text.contains("every operation is timed"), "{text}");
        for name in ["get", "put.journal", "put.memtable", "get.head", "head.memory"] {
            assert!(text.contains(&format!("\n{name} ")), "{name} in {text}");
        }
        let of_requests: Vec<_> =
            text.lines().skip_while(|line| !line.starts_with("request ")).take(3).collect();
        assert_eq!(of_requests.len(), 3, "{text}");
        assert!(of_requests.iter().all(|line| line.len() == of_requests[0].len()), "{text}");
    }
}

#[test]
fn json_is_what_the_server_says() {
    let dir = Dir::new();
    let (_server, url) = busy_server(&dir);
    let page = stages(&[&url, "--json"]).success().json();
    assert_eq!(page["sample_every"], 1);
    let operations = page["since_start"]["operations"].as_array().unwrap();
    let puts = operations.iter().find(|times| times["operation"] == "put").unwrap();
    assert_eq!(puts["count"], 20);
    assert!(page["interval"]["seconds"].is_number());
}

#[test]
fn sampling_that_is_off_is_said() {
    let dir = Dir::new();
    let server = Server::start(&mut Server::command(&dir));
    let admin = server.admin.clone().unwrap();
    assert_eq!(ask(&admin, "PUT", "/stages/sampling?every=0", b"").0, 200);
    let outcome = stages(&[&admin]).success();
    assert!(outcome.text().contains("sampling is off"), "{}", outcome.text());
}

#[test]
fn watching_prints_again_and_ends_with_code_1_when_the_server_does() {
    let dir = Dir::new();
    let (server, url) = busy_server(&dir);
    let mut child = tallybook()
        .args(["stages", "--watch=1", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut tables = 0;
    let mut line = String::new();
    while tables < 2 {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "it ended after {tables} tables");
        tables += usize::from(line.starts_with(&url));
        assert!(!line.contains('\x1b'), "standard output is no terminal: {line:?}");
    }
    assert_eq!(server.stop().0, Some(0));
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let ended: Outcome = child.wait_with_output().unwrap().into();
    ended.failure(1, &url);
}

#[test]
fn nothing_listening_is_said_with_code_1() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    stages(&[&format!("http://{free}")]).failure(1, &format!("nothing listens at http://{free}"));
}

#[test]
fn data_listener_is_told_from_the_admin_listener() {
    let dir = Dir::new();
    let server = Server::start(&mut Server::command(&dir));
    stages(&[&server.data]).failure(1, "is this the admin listener");
}

/// Answers one request with these bytes.
fn answer_once(answer: &'static str) -> (String, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        stream.write_all(answer.as_bytes()).unwrap();
    });
    (url, thread)
}

#[test]
fn answers_that_are_no_figures_fail_with_code_1() {
    for (answer, words) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "does not answer with JSON"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "is not what this version"),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answers 404"),
        ("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1\r\nContent-Length: 0\r\n\r\n", "302"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", "cannot be read"),
        ("nonsense\r\n\r\n", "cannot ask"),
    ] {
        let (url, thread) = answer_once(answer);
        stages(&[&url]).failure(1, words);
        thread.join().unwrap();
    }
}
