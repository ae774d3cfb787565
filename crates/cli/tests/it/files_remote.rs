//! `tallybook files --url`: the same commands on the file store of a running server.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use crate::binary::{Dir, Outcome, Server, ask, run, tallybook};

/// Bytes in which every place is told from its neighbours.
fn bytes(len: u32) -> Vec<u8> {
    (0..len).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

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
    for arguments in [&["verify"][..], &["repair"], &["create"], &["import-kfs", "x"]] {
        remote(at, arguments).failure(2, "on the directory with --data");
    }
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
        assert!(!dir.beside("target.tallybook-partial").exists());
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
