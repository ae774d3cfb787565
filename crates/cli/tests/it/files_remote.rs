//! `tallybook files --url`: the same commands on the file store of a running server.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::binary::{
    Dir, Outcome, SILENCE_MAX, Server, ask, bytes, run, tallybook, tallybook_ignoring,
};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../files/tests/fixtures/table.kfs");

fn serve(dir: &Dir) -> Server {
    Server::start(Server::command(dir).arg("--files").arg(dir.beside("files")))
}

/// A command on the file store of the server at `address`.
fn remote(address: &str, arguments: &[&str]) -> Outcome {
    run(tallybook().arg("files").args(arguments).arg("--url").arg(format!("http://{address}")))
}

/// The same command on the directory.
fn local(dir: &Dir, arguments: &[&str]) -> Outcome {
    run(tallybook().arg("files").args(arguments).arg("--data").arg(dir.beside("files")))
}

fn write_piped(address: &str, name: &str, input: &[u8]) -> Outcome {
    let mut child = tallybook()
        .args(["files", "write", name, "--url", address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap().into()
}

/// A way to a server. `limit` is asked, as each connection comes, after how many bytes of answers it
/// is to break.
fn breaking_way(server: &str, mut limit: impl FnMut(usize) -> usize + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = server.to_owned();
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (client, limit) = (client.unwrap(), limit(number));
            let Ok(to_server) = TcpStream::connect(&server) else { continue };
            let (mut from_client, mut up) =
                (client.try_clone().unwrap(), to_server.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from_client, &mut up));
            let mut down = &client;
            let _ = std::io::copy(&mut (&to_server).take(limit as u64), &mut down);
            let _ = (client.shutdown(Shutdown::Both), to_server.shutdown(Shutdown::Both));
        }
    });
    address
}

/// A way to a server that falls silent after so many bytes of answers, until what is answered here is
/// dropped.
fn silent_way(server: &str, bytes: u64) -> (String, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = server.to_owned();
    let (hold, held) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut down, mut to_server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (mut from_client, mut up) =
                (down.try_clone().unwrap(), to_server.try_clone().unwrap());
            thread::spawn(move || {
                let _ = std::io::copy(&mut from_client, &mut up);
                let _ = up.shutdown(Shutdown::Both);
            });
            let passed = std::io::copy(&mut (&to_server).take(bytes), &mut down);
            if passed.is_ok_and(|passed| passed == bytes) {
                let _ = held.recv();
                let _ = std::io::copy(&mut to_server, &mut down);
            }
            let _ = down.shutdown(Shutdown::Both);
        }
    });
    (address, hold)
}

/// A read to `path` of a file of which only the beginning has come.
fn half_a_read(mut tallybook: Command, way: &str, name: &str, path: &Path) -> Child {
    let child = tallybook
        .args(["files", "read", name, path.to_str().unwrap(), "--url", way])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let is_begun = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let is_partial = entry.file_name().to_string_lossy().contains("tallybook-partial");
        is_partial && entry.metadata().is_ok_and(|metadata| metadata.len() > 0)
    };
    let start = Instant::now();
    while !fs::read_dir(path.parent().unwrap()).unwrap().any(is_begun) {
        assert!(start.elapsed() < SILENCE_MAX, "nothing is read");
        thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Both put their file together under the same name: what was left there was the end of one behind the
/// beginning of the other, and one of them said that all was well.
#[test]
fn two_reads_to_one_path_leave_one_of_the_two_whole() {
    let dir = Dir::new();
    let server = serve(&dir);
    let (first, second) = (bytes(100_000), vec![7; 500_000]);
    write_piped(&server.data, "first", &first).success();
    write_piped(&server.data, "second", &second).success();
    fs::create_dir(dir.beside("out")).unwrap();
    let target = dir.beside("out/target");
    let (way, hold) = silent_way(&server.data, 200_000);
    let mut slow = half_a_read(tallybook(), &way, "first", &target);
    remote(&server.data, &["read", "second", target.to_str().unwrap()]).success();
    assert!(fs::read(&target).unwrap() == second);
    drop(hold);
    assert_eq!(slow.wait().unwrap().code(), Some(0));
    assert!(fs::read(&target).unwrap() == first);
    assert_eq!(fs::read_dir(dir.beside("out")).unwrap().count(), 1);
}

/// Whether these tests, and with them what they start, have a signal ignored: in a script's background SIGINT.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn a_read_that_a_signal_ends_leaves_nothing() {
    let dir = Dir::new();
    let server = serve(&dir);
    write_piped(&server.data, "file", &bytes(100_000)).success();
    for (signal, target) in [(Signal::INT, "a/target"), (Signal::TERM, "b/target")] {
        if is_ignored(signal) {
            continue;
        }
        let target = dir.beside(target);
        fs::create_dir(target.parent().unwrap()).unwrap();
        let (way, _hold) = silent_way(&server.data, 200_000);
        let mut child = half_a_read(tallybook(), &way, "file", &target);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 0);
    }
}

/// `nohup` and a script's `&` had no effect: signals that are ignored as a command starts were taken over, ended
/// it, and what it had read was removed.
#[test]
fn a_read_goes_on_through_signals_that_are_ignored() {
    let dir = Dir::new();
    let server = serve(&dir);
    let contents = bytes(100_000);
    write_piped(&server.data, "file", &contents).success();
    fs::create_dir(dir.beside("out")).unwrap();
    let target = dir.beside("out/target");
    let (way, hold) = silent_way(&server.data, 200_000);
    let mut child = half_a_read(tallybook_ignoring("HUP INT QUIT"), &way, "file", &target);
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT] {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    drop(hold);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(fs::read(&target).unwrap() == contents);
    assert_eq!(fs::read_dir(dir.beside("out")).unwrap().count(), 1);
}

#[test]
fn commands_print_the_same_as_on_the_directory() {
    let dir = Dir::new();
    let source = dir.beside("source");
    let contents = bytes(300_000);
    fs::write(&source, &contents).unwrap();
    let source = source.to_str().unwrap();
    let server = serve(&dir);
    let at = server.data.clone();
    let attributes = ["--attributes", "of mine", "--md5", "--json"];
    let written = remote(&at, &[&["write", "a b/ü?%", source], &attributes[..]].concat());
    let written = written.success().json();
    write_piped(&at, "piped", b"from a pipe").success();
    write_piped(&at, "empty", b"").success();
    remote(&at, &["copy", "piped", "dir/1"]).success();
    let renamed = remote(&at, &["rename", "piped", "dir/2", "--json"]).success().json();
    assert_eq!(renamed["name"], "dir/2");
    write_piped(&at, "gone", b"x").success();
    remote(&at, &["unlink", "gone"]).success();
    let read = |arguments: &[&str]| remote(&at, arguments).success().stdout;
    assert!(read(&["read", "a b/ü?%"]) == contents);
    assert!(read(&["read", "a b/ü?%", "--range", "131070-131080"]) == contents[131_070..=131_080]);
    assert!(read(&["read", "a b/ü?%", "--range", "-5"]) == contents[contents.len() - 5..]);
    assert!(read(&["read", "a b/ü?%", "--range", "9999999-"]).is_empty());
    assert!(read(&["read", "empty"]).is_empty());
    // The space of what was unlinked comes back by itself, a moment later.
    let start = Instant::now();
    while remote(&at, &["totals", "--json"]).success().json()["dead_bytes"] != 0 {
        assert!(start.elapsed() < SILENCE_MAX, "what was unlinked is never freed");
    }
    let commands: [&[&str]; 9] = [
        &["stat", "a b/ü?%"],
        &["stat", "a b/ü?%", "--json"],
        &["list"],
        &["list", "--json"],
        &["list", "--delimiter", "/"],
        &["list", "dir/", "--after", "dir/1", "--json"],
        &["list", "--limit", "2"],
        &["totals"],
        &["totals", "--json"],
    ];
    let asked: Vec<Outcome> = commands.iter().map(|command| remote(&at, command)).collect();
    server.stop();
    for (command, asked) in commands.into_iter().zip(asked) {
        let on_directory = local(&dir, command).success();
        assert_eq!(asked.success().text(), on_directory.text(), "{command:?}");
    }
    let stat = local(&dir, &["stat", "a b/ü?%", "--json"]).success().json();
    assert_eq!(written, stat);
    assert!(local(&dir, &["verify"]).success().text().ends_with("no damage\n"));
}

#[test]
fn failures_have_the_exit_codes_that_they_have_on_the_directory() {
    let dir = Dir::new();
    let cap = ["--buckets", "1", "--bucket-cap", "128KiB", "--chunk", "64KiB"];
    local(&dir, &[&["create"], &cap[..]].concat()).success();
    let large = dir.beside("large");
    fs::write(&large, bytes(40_000)).unwrap();
    let large = large.to_str().unwrap();
    let server = serve(&dir);
    let at = &server.data;
    for arguments in [
        &["read", "nothing"][..],
        &["stat", "nothing"],
        &["unlink", "nothing"],
        &["rename", "nothing", "x"],
        &["copy", "nothing", "x"],
        &["read", "nothing", "--range", "0-1"],
    ] {
        remote(at, arguments).failure(3, "there is no file \"nothing\"");
    }
    remote(at, &["write", "x", large]).failure(7, "the file store is full");
    write_piped(at, "x", b"1").success();
    let absent = ["write", "x", large, "--if-absent"];
    remote(at, &absent).failure(6, "condition failed: the file is at version");
    remote(at, &["unlink", "x", "--if-version", "1"]).failure(6, "condition failed");
    remote(at, &["copy", "x", "x", "--if-absent"]).failure(6, "condition failed");
    remote(at, &["read", ""]).failure(2, "a name has 1 to 1024 bytes");
    remote(at, &["create"]).failure(2, "on the directory with --data");
    remote(at, &["repair"]).failure(2, "a store that must be repaired can't be served");
    remote(at, &["import-kfs", "x"]).failure(1, "r.id cannot be read");
    remote(at, &["import-kfs", TABLE]).failure(7, "the file store is full");
    remote(at, &["read", "x", "--salvage"]).failure(2, "on the directory with --data");
    let attributes = "a".repeat(4097);
    remote(at, &["write", "x", large, "--attributes", &attributes]).failure(2, "4096 bytes");
    remote("127.0.0.1:1/path", &["list"]).failure(2, "is not a URL");
    let gone = at.clone();
    server.stop();
    remote(&gone, &["list"]).failure(1, "nothing listens at");
    let without = Server::start(&mut Server::command(&Dir::new()));
    remote(&without.data, &["list"]).failure(2, "without a file store");
}

#[test]
fn a_read_goes_on_where_the_connection_broke() {
    let dir = Dir::new();
    let source = dir.beside("source");
    let contents = bytes(1 << 20);
    fs::write(&source, &contents).unwrap();
    let server = serve(&dir);
    remote(&server.data, &["write", "file", source.to_str().unwrap()]).success();
    let cuts = || [70_000, 0, 1_000_000, 300, 1_000_001].into_iter().chain([usize::MAX].repeat(9));
    let way = || {
        let mut cuts = cuts();
        breaking_way(&server.data, move |_| cuts.next().unwrap())
    };
    let target = dir.beside("target");
    remote(&way(), &["read", "file", target.to_str().unwrap()]).success();
    assert!(fs::read(&target).unwrap() == contents);
    let part = ["read", "file", "--range", "1000000-3500000"];
    assert!(remote(&way(), &part).success().stdout == contents[1_000_000..=3_500_000]);
}

#[test]
fn a_read_that_cannot_go_on_fails_and_leaves_the_target_as_it_was() {
    let dir = Dir::new();
    let (source, target) = (dir.beside("source"), dir.beside("target"));
    fs::write(&source, bytes(1 << 18)).unwrap();
    fs::write(&target, "before").unwrap();
    let server = serve(&dir);
    remote(&server.data, &["write", "file", source.to_str().unwrap()]).success();
    let read = ["read", "file", target.to_str().unwrap()];
    let untouched = |target: &Path| {
        assert_eq!(fs::read(target).unwrap(), b"before");
        let mut beside = fs::read_dir(target.parent().unwrap()).unwrap();
        let is_partial = |name: &std::ffi::OsStr| name.to_string_lossy().contains("partial");
        assert!(!beside.any(|entry| is_partial(&entry.unwrap().file_name())));
    };

    let silent = breaking_way(&server.data, |number| if number == 0 { 100_000 } else { 0 });
    remote(&silent, &read).failure(1, "the connection broke at byte");
    untouched(&target);

    // Another file comes under the name while it is read.
    let at = server.data.clone();
    let replaced = breaking_way(&server.data, move |number| {
        if number == 1 {
            assert_eq!(ask(&at, "PUT", "/files/file", b"another").0, 201);
        }
        if number == 0 { 100_000 } else { usize::MAX }
    });
    remote(&replaced, &read).failure(6, "was replaced or unlinked while it was read");
    untouched(&target);
}

#[test]
fn a_damaged_file_is_an_error_and_never_a_short_one() {
    let dir = Dir::new();
    let (source, target) = (dir.beside("source"), dir.beside("target"));
    let contents = bytes(1 << 19);
    fs::write(&source, &contents).unwrap();
    let mut server = serve(&dir);
    remote(&server.data, &["write", "file", source.to_str().unwrap()]).success();
    for at in [1_800_000, 1000] {
        server.stop();
        damage(&dir.beside("files"), &contents[at..at + 64]);
        server = serve(&dir);
        let read = remote(&server.data, &["read", "file", target.to_str().unwrap()]);
        read.failure(5, "damaged");
        assert!(!target.exists());
        let part = remote(&server.data, &["read", "file", "--range", "300000-400000"]);
        assert!(part.success().stdout == contents[300_000..=400_000]);
    }
}

#[test]
fn verification_reports_what_it_reports_on_the_directory() {
    let dir = Dir::new();
    let source = dir.beside("source");
    let contents = bytes(1 << 16);
    fs::write(&source, &contents).unwrap();
    let source = source.to_str().unwrap();
    let server = serve(&dir);
    for name in ["a", "b\n", "c"] {
        remote(&server.data, &["write", name, source]).success();
    }
    let sound = remote(&server.data, &["verify"]).success();
    assert!(sound.text().ends_with("no damage\n"), "{}", sound.text());
    server.stop();
    assert_eq!(sound.text(), local(&dir, &["verify"]).success().text());

    // In the first of the three that is found.
    damage(&dir.beside("files"), &contents[200_000..200_064]);
    let server = serve(&dir);
    let commands: [&[&str]; 2] = [&["verify"], &["verify", "--json"]];
    let asked: Vec<Outcome> =
        commands.iter().map(|command| remote(&server.data, command)).collect();
    let name = asked[1].json()["damage"][0]["name"].as_str().unwrap().to_owned();
    // Known to be damaged, before a byte of it is read.
    remote(&server.data, &["read", &name, "--range", "0-9"]).failure(5, "damaged");
    server.stop();
    for (command, asked) in commands.into_iter().zip(asked) {
        let on_directory = local(&dir, command);
        assert_eq!((asked.code, on_directory.code), (Some(5), Some(5)), "{command:?}");
        assert_eq!(asked.text(), on_directory.text(), "{command:?}");
    }
}

#[test]
fn shares_of_a_verification_follow_one_another_over_both_ways() {
    let dir = Dir::new();
    let server = serve(&dir);
    for name in 0..6 {
        write_piped(&server.data, &name.to_string(), &[b'x'; 1000]).success();
    }
    let share = ["verify", "--bytes", "1500B", "--json"];
    let of = |outcome: Outcome| {
        let report = outcome.success().json();
        (report["files"].as_u64().unwrap(), report["is_complete"].as_bool().unwrap())
    };
    assert_eq!(of(remote(&server.data, &share)), (2, false));
    server.stop();
    assert_eq!(of(local(&dir, &share)), (2, false));
    let server = serve(&dir);
    assert_eq!(of(remote(&server.data, &share)), (2, false));
    assert_eq!(of(remote(&server.data, &share)), (0, true));
}

#[test]
fn a_verification_that_breaks_off_is_no_success() {
    let dir = Dir::new();
    let server = serve(&dir);
    write_piped(&server.data, "file", b"x").success();
    // Within the report, after the head.
    let way = breaking_way(&server.data, |_| 200);
    let broken = remote(&way, &["verify"]);
    assert!(broken.stdout.is_empty());
    broken.failure(1, "the verification ended before its report");
    // The server ends it, and says why.
    for (kind, code) in [("draining", 1), ("corruption", 5)] {
        let line = format!("{{\"error\":\"{kind}\",\"message\":\"so it is\"}}\n");
        let address = answering(&format!("{{\"done\":1,\"total\":2}}\n{line}"));
        remote(&address, &["verify"]).failure(code, "the server gave up: so it is");
    }
}

/// Something that answers one request with these bytes.
fn answering(body: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        client.write_all(answer.as_bytes()).unwrap();
        // Closing with the request unread would reset the connection under the answer.
        let _ = std::io::copy(&mut client, &mut std::io::sink());
    });
    address
}

#[test]
fn a_kfs_table_is_imported_as_into_the_directory() {
    let (dir, other) = (Dir::new(), Dir::new());
    let names = dir.beside("names");
    fs::write(&names, "hello\ntest\ntail\n").unwrap();
    let import = ["import-kfs", TABLE, "--names", names.to_str().unwrap()];
    let listed = |outcome: Outcome| -> Vec<(String, u64, String)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let files = outcome.success();
        let files = files.text().lines().map(|line| serde_json::from_str(line).unwrap());
        let file = |file: serde_json::Value| {
            (text(&file["name"]), file["size"].as_u64().unwrap(), text(&file["blake3"]))
        };
        files.map(file).collect()
    };
    let server = serve(&dir);
    let asked = remote(&server.data, &[&import[..], &["--json"]].concat());
    let on_directory = local(&other, &[&import[..], &["--json"]].concat());
    // One file of the table is partial.
    assert_eq!((asked.code, on_directory.code), (Some(5), Some(5)), "{asked:?}");
    assert_eq!(asked.json()["imported"], 6);
    assert_eq!(asked.text(), on_directory.text());
    let files = listed(remote(&server.data, &["list", "--json"]));
    assert_eq!(files, listed(local(&other, &["list", "--json"])));

    let again = remote(&server.data, &import);
    let on_directory = local(&other, &import);
    assert!(again.text().starts_with("imported 0 files"), "{}", again.text());
    assert_eq!((again.code, again.text()), (on_directory.code, on_directory.text()));
    assert_eq!(files, listed(remote(&server.data, &["list", "--json"])));
    assert!(remote(&server.data, &["verify"]).success().text().ends_with("no damage\n"));
}

#[test]
fn an_import_that_broke_off_goes_on_when_it_is_run_again() {
    let dir = Dir::new();
    let server = serve(&dir);
    // Enough for the first files; nothing comes through after that.
    let way = breaking_way(&server.data, |number| if number == 0 { 1500 } else { 0 });
    remote(&way, &["import-kfs", TABLE]).failure(1, &way);
    let there = remote(&server.data, &["totals", "--json"]).success().json();
    let there = there["files"].as_u64().unwrap();
    assert!((1..6).contains(&there), "{there}");
    let report = remote(&server.data, &["import-kfs", TABLE, "--json"]).json();
    assert_eq!((&report["imported"], &report["present"]), (&(6 - there).into(), &there.into()));
    assert!(remote(&server.data, &["verify"]).success().text().contains("checked 6 files"));
}

/// Flips a byte in the middle of what looks like this in a bucket of a file store.
fn damage(store: &Path, pattern: &[u8]) {
    for bucket in fs::read_dir(store.join("buckets")).unwrap() {
        for file in fs::read_dir(bucket.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let mut contents = fs::read(&path).unwrap();
            if let Some(at) = contents.windows(64).position(|window| window == pattern) {
                contents[at + 32] ^= 1;
                return fs::write(path, contents).unwrap();
            }
        }
    }
    panic!("the bytes are nowhere");
}
