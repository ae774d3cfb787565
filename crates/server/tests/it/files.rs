//! Files over HTTP: whole or not at all, in any size and under any name.

use std::io::Write;
use std::net::Shutdown;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tallybook_files::{CreateOptions, FileStore, OpenOptions, VerifyOptions};
use tempfile::TempDir;

use crate::harness::{Client, PATIENCE, Running, options, start, start_with_files};

/// Bytes of a chunk in these tests.
const CHUNK: usize = 64 << 10;

fn create_options() -> CreateOptions {
    CreateOptions { chunk_bytes: CHUNK as u32, bucket_count: 4, ..CreateOptions::default() }
}

pub(crate) fn file_store(dir: &Path) -> FileStore {
    FileStore::create(dir, create_options(), OpenOptions::default()).unwrap()
}

fn serving() -> (TempDir, Running) {
    let dir = tempfile::tempdir().unwrap();
    let running = start_with_files(options(), file_store(dir.path()));
    (dir, running)
}

/// Bytes that differ from offset to offset and from seed to seed.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(length)
    .collect()
}

/// A body in chunks of this size.
fn chunked(body: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    for chunk in body.chunks(chunk_bytes) {
        write!(wire, "{:x}\r\n", chunk.len()).unwrap();
        wire.extend_from_slice(chunk);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    wire
}

fn put_chunked(client: &mut Client, target: &str, body: &[u8], chunk_bytes: usize) -> u16 {
    client.send(format!("PUT {target} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"));
    client.send(chunked(body, chunk_bytes));
    client.reply("PUT").status
}

fn listing(client: &mut Client, query: &str) -> serde_json::Value {
    let reply = client.get(&format!("/files?{query}"));
    assert_eq!(reply.status, 200, "{query}");
    serde_json::from_slice(&reply.body).unwrap()
}

fn names(page: &serde_json::Value) -> Vec<String> {
    let files = page["files"].as_array().unwrap().iter();
    files.map(|file| file["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn files_of_any_size_come_back_byte_for_byte() {
    let (_dir, running) = serving();
    let mut client = running.client();
    for (seed, size) in
        [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 10 << 20].into_iter().enumerate()
    {
        let file = bytes(seed as u64, size);
        let plain = client.put("/files/plain", &file);
        assert_eq!(plain.status, 201, "{size}");
        let status = put_chunked(&mut client, "/files/chunked", &file, 1 + size / 7);
        assert_eq!(status, 201, "{size}");
        for target in ["/files/plain", "/files/chunked"] {
            let read = client.get(target);
            assert_eq!(read.status, 200);
            assert!(read.body == file, "{target} of {size} bytes");
            assert_eq!(read.header("content-length"), size.to_string());
            let head = client.request("HEAD", target, &[], None);
            assert_eq!(head.header("content-length"), size.to_string());
            assert_eq!(head.header("x-tallybook-blake3"), plain.header("x-tallybook-blake3"));
        }
        assert_eq!(client.get("/files/plain").header("etag"), plain.header("etag"));
    }
}

#[test]
fn ranges_are_parts_of_the_file() {
    let (_dir, running) = serving();
    let mut client = running.client();
    let file = bytes(7, 3 * CHUNK + 5);
    client.put("/files/f", &file);
    let end = file.len();
    for (range, part) in [
        ("bytes=0-0", 0..1),
        ("bytes=5-", 5..end),
        ("bytes=-7", end - 7..end),
        ("bytes=65535-65536", CHUNK - 1..CHUNK + 1),
        ("bytes=65536-131071", CHUNK..2 * CHUNK),
        ("bytes=10-9999999999", 10..end),
    ] {
        let reply = client.request("GET", "/files/f", &[&format!("Range: {range}")], None);
        assert_eq!(reply.status, 206, "{range}");
        assert!(reply.body == file[part.clone()], "{range}");
        let said = format!("bytes {}-{}/{end}", part.start, part.end - 1);
        assert_eq!(reply.header("content-range"), said);
    }
    let beyond = client.request("GET", "/files/f", &[&format!("Range: bytes={end}-")], None);
    assert_eq!((beyond.status, beyond.header("content-range")), (416, &*format!("bytes */{end}")));
    let tag = client.get("/files/f").header("etag").to_owned();
    let current = ["Range: bytes=1-2", &format!("If-Range: {tag}")];
    assert_eq!(client.request("GET", "/files/f", &current, None).status, 206);
    let past = ["Range: bytes=1-2", "If-Range: \"1\""];
    assert_eq!(client.request("GET", "/files/f", &past, None).status, 200);
}

#[test]
fn conditions_decide_under_the_stores_own_lock() {
    let (_dir, running) = serving();
    // A refusal before the body is taken closes the connection.
    let ask = |method: &str, header: &str, body: Option<&[u8]>| {
        running.client().request(method, "/files/f", &[header], body)
    };
    assert_eq!(ask("PUT", "If-Match: *", Some(b"no")).status, 412);
    let first = ask("PUT", "If-None-Match: *", Some(b"first"));
    assert_eq!(first.status, 201);
    let tag = first.header("etag").to_owned();
    let conflict = ask("PUT", "If-None-Match: *", Some(b"no"));
    assert_eq!((conflict.status, conflict.header("etag")), (412, &*tag));
    assert_eq!(ask("GET", &format!("If-None-Match: {tag}"), None).status, 304);
    assert_eq!(ask("HEAD", "If-Match: \"1\"", None).status, 412);
    let second = ask("PUT", &format!("If-Match: {tag}, \"77\""), Some(b"second"));
    assert_eq!(second.status, 201);
    assert_eq!(ask("DELETE", &format!("If-Match: {tag}"), None).status, 412);
    assert_eq!(ask("GET", "X: y", None).body, b"second");
    let tag = second.header("etag").to_owned();
    assert_eq!(ask("DELETE", &format!("If-Match: {tag}"), None).status, 204);
    assert_eq!(ask("GET", "X: y", None).status, 404);
    assert_eq!(ask("DELETE", "X: y", None).status, 404);
}

#[test]
fn names_are_taken_as_they_are_after_one_decoding() {
    let (_dir, running) = serving();
    let mut client = running.client();
    let long = "x".repeat(1024);
    for (target, name) in [
        ("/files/a/b//c/", "a/b//c/"),
        ("/files/..", ".."),
        ("/files/./x/../y", "./x/../y"),
        ("/files/%2e%2e%2f%2F", "..//"),
        ("/files/%252F+", "%2F+"),
        ("/files/%3Fa=b%26c", "?a=b&c"),
        ("/files/%E4%BD%A0%E5%A5%BD/%D0%BC%D0%B8%D1%80", "你好/мир"),
        ("/files/%F0%9F%A6%80%20%0A", "🦀 \n"),
        (&*format!("/files/{long}"), &long),
    ] {
        assert_eq!(client.put(target, name.as_bytes()).status, 201, "{target}");
        assert_eq!(client.get(target).body, name.as_bytes(), "{target}");
        let files = running.files.as_ref().unwrap();
        assert_eq!(files.read(name).unwrap().unwrap(), name.as_bytes(), "{target}");
        assert_eq!(client.request("DELETE", target, &[], None).status, 204, "{target}");
    }
    for target in [
        "/files/",
        "/files/%",
        "/files/%ff",
        "/files/a?b",
        "/files/%00reserved",
        &format!("/files/{long}x"),
    ] {
        assert_eq!(running.client().put(target, b"x").status, 400, "{target}");
    }
    assert_eq!(running.files.as_ref().unwrap().totals().files, 0);
}

#[test]
fn listings_have_prefix_delimiter_and_pages() {
    let (_dir, running) = serving();
    let mut client = running.client();
    for name in ["a", "a/1", "a/2/x", "a/2/y", "a/3", "b%20+%26", "c/1"] {
        client.put(&format!("/files/{name}"), b"x");
    }
    let files = running.files.as_ref().unwrap();
    files.write("\0hidden", b"x", tallybook_files::WriteOptions::default()).unwrap();
    let all = listing(&mut client, "");
    assert_eq!(names(&all), ["a", "a/1", "a/2/x", "a/2/y", "a/3", "b +&", "c/1"]);
    assert!(all["next_after"].is_null());
    let folder = listing(&mut client, "prefix=a/&delimiter=/");
    assert_eq!(names(&folder), ["a/1", "a/3"]);
    assert_eq!(folder["prefixes"], serde_json::json!(["a/2/"]));
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = listing(&mut client, &format!("delimiter=%2F&limit=1&after={after}"));
        seen.extend(names(&page));
        seen.extend(
            page["prefixes"].as_array().unwrap().iter().map(|p| p.as_str().unwrap().into()),
        );
        match page["next_after"].as_str() {
            Some(next) => after = next.replace('+', "%2B").replace('&', "%26").replace(' ', "+"),
            None => break,
        }
    }
    assert_eq!(seen, ["a", "a/", "b +&", "c/"]);
    assert_eq!(listing(&mut client, "totals")["files"], 8);
    for query in [
        "limit=1001",
        "limit=x",
        "prefix=%ff",
        "prefix=%00h",
        "after=%00h",
        "delimiter=%01&after=%00%01",
        "colour=red",
        "prefix=%",
    ] {
        assert_eq!(running.client().get(&format!("/files?{query}")).status, 400, "{query}");
    }
}

#[test]
fn what_is_known_of_a_file_is_kept_with_it() {
    let (_dir, running) = serving();
    let mut client = running.client();
    let md5 = STANDARD.encode([
        0x5d, 0x41, 0x40, 0x2a, 0xbc, 0x4b, 0x2a, 0x76, 0xb9, 0x71, 0x9d, 0x91, 0x10, 0x17, 0xc5,
        0x92,
    ]);
    let headers = [
        &*format!("Content-MD5: {md5}"),
        "x-tallybook-attributes: AP8=",
        "x-tallybook-durability: sync",
    ];
    let written = client.request("PUT", "/files/f", &headers, Some(b"hello"));
    assert_eq!((written.status, written.header("x-tallybook-durability")), (201, "sync"));
    let head = client.request("HEAD", "/files/f", &[], None);
    assert_eq!(head.header("x-tallybook-md5"), "5d41402abc4b2a76b9719d911017c592");
    assert_eq!(head.header("x-tallybook-attributes"), "AP8=");
    let wrong = client.request("PUT", "/files/f", &headers[..1], Some(b"hallo"));
    assert_eq!(wrong.status, 400);
    assert_eq!(running.client().get("/files/f").body, b"hello");
}

#[test]
fn a_file_gets_another_name_without_being_copied() {
    let (_dir, running) = serving();
    let file = bytes(5, 3 * CHUNK);
    let written = running.client().put("/files/a", &file);
    let give =
        |target: &str, headers: &[&str]| running.client().request("POST", target, headers, None);
    let copied = give("/files/b%20c", &["x-tallybook-copy-from: a"]);
    assert_eq!(copied.status, 201);
    assert_eq!(copied.header("x-tallybook-blake3"), written.header("x-tallybook-blake3"));
    assert_ne!(copied.header("etag"), written.header("etag"));
    let files = running.files.as_ref().unwrap();
    let totals = files.totals();
    assert_eq!((totals.files, totals.live_bytes), (2, file.len() as u64));
    let absent = ["x-tallybook-rename-from: b%20c", "If-None-Match: *"];
    assert_eq!(give("/files/a", &absent).status, 412);
    let tag = format!("If-Match: {}", written.header("etag"));
    let moved = give("/files/a", &["x-tallybook-rename-from: b%20c", &tag]);
    assert_eq!(moved.status, 201);
    assert_eq!(running.client().get("/files/b%20c").status, 404);
    assert!(running.client().get("/files/a").body == file);
    assert_eq!(give("/files/a", &["x-tallybook-copy-from: b%20c"]).status, 404);
    for headers in [
        &[][..],
        &["x-tallybook-copy-from: %"],
        &["x-tallybook-copy-from: %00hidden"],
        &["x-tallybook-copy-from: a", "x-tallybook-rename-from: a"],
    ] {
        assert_eq!(give("/files/x", headers).status, 400, "{headers:?}");
    }
    assert_eq!(files.totals().files, 1);
}

#[test]
fn totals_tell_of_the_store_and_its_buckets() {
    let (_dir, running) = serving();
    let put = ["x-tallybook-md5: compute"];
    let written = running.client().request("PUT", "/files/f", &put, Some(b"hello"));
    assert_eq!(written.header("x-tallybook-md5"), "5d41402abc4b2a76b9719d911017c592");
    let wrong = running.client().request("PUT", "/files/f", &["x-tallybook-md5: no"], Some(b"x"));
    assert_eq!(wrong.status, 400);
    let totals = listing(&mut running.client(), "totals");
    let files = running.files.as_ref().unwrap();
    assert_eq!(totals["reference_id"], files.reference_id().to_string());
    assert_eq!(totals["chunk_bytes"], CHUNK);
    assert_eq!(totals["buckets"].as_array().unwrap().len(), 1);
    assert_eq!(totals["buckets"][0]["bucket"], files.bucket_of("f"));
    assert_eq!(totals["buckets"][0]["live_bytes"], 5);
}

#[test]
fn client_that_vanishes_during_an_upload_leaves_nothing() {
    let (_dir, running) = serving();
    let files = running.files.as_ref().unwrap();
    running.client().put("/files/kept", b"before");
    for (length, head) in [
        ("Content-Length: 9000000", Vec::new()),
        ("Transfer-Encoding: chunked", b"895440\r\n".to_vec()),
    ] {
        let mut client = running.client();
        client.send(format!("PUT /files/kept HTTP/1.1\r\nHost: t\r\n{length}\r\n\r\n"));
        client.send(head);
        client.send(bytes(1, 40 * CHUNK));
        let start = Instant::now();
        while files.totals().uploading_bytes == 0 {
            assert!(start.elapsed() < PATIENCE, "nothing is being uploaded");
            std::thread::sleep(Duration::from_millis(2));
        }
        client.stream.get_ref().shutdown(Shutdown::Both).unwrap();
        drop(client);
        while files.totals().uploading_bytes + files.totals().dead_bytes > 0 {
            assert!(start.elapsed() < PATIENCE, "{:?}", files.totals());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(files.totals().files, 1);
        assert_eq!(running.client().get("/files/kept").body, b"before");
    }
}

#[test]
fn upload_that_stalls_is_ended_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    options.timeouts.body_idle_ms = 200;
    let running = start_with_files(options, file_store(dir.path()));
    let mut client = running.client();
    client.send("PUT /files/f HTTP/1.1\r\nHost: t\r\nContent-Length: 9000000\r\n\r\n");
    client.send(bytes(1, 10 * CHUNK));
    assert_eq!(client.reply("PUT").status, 408);
    client.assert_closed();
    let files = running.files.as_ref().unwrap();
    let start = Instant::now();
    while files.totals().uploading_bytes + files.totals().dead_bytes > 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", files.totals());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(running.client().get("/files/f").status, 404);
}

/// Changes the first byte of these in a bucket, or changes it back.
fn flip(bucket: &Path, pattern: &[u8]) {
    for entry in std::fs::read_dir(bucket).unwrap() {
        let path = entry.unwrap().path();
        let mut content = std::fs::read(&path).unwrap();
        let rest = &pattern[1..];
        if let Some(found) = content.windows(rest.len()).position(|window| window == rest) {
            content[found - 1] ^= 1;
            return std::fs::write(path, content).unwrap();
        }
    }
    panic!("the bytes are nowhere in {}", bucket.display());
}

#[test]
fn damaged_file_is_never_sent_as_if_it_were_whole() {
    let dir = tempfile::tempdir().unwrap();
    let files = file_store(dir.path());
    let file = bytes(3, 20 * CHUNK);
    files.write("f", &file, tallybook_files::WriteOptions::default()).unwrap();
    let bucket = files.bucket_path(files.bucket_of("f"));
    files.close().unwrap();
    // One byte in the middle of the first chunk, then of one that is read when the reply has begun.
    for (at, has_begun) in [(1000, false), (15 * CHUNK + 1000, true)] {
        let pattern = &file[at..at + 64];
        flip(&bucket, pattern);
        let files = FileStore::open(dir.path(), OpenOptions::default()).unwrap();
        let running = start_with_files(options(), files);
        let mut client = running.client();
        if has_begun {
            client.send("GET /files/f HTTP/1.1\r\nHost: t\r\n\r\n");
            let sent = client.read_to_end();
            let start = sent.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
            assert!(sent.starts_with(b"HTTP/1.1 200 "), "the damage lies beyond the first chunks");
            assert!(sent[start..].len() < file.len() && file.starts_with(&sent[start..]));
        } else {
            let reply = client.get("/files/f");
            assert_eq!((reply.status, &*reply.error()), (500, "corruption"));
        }
        drop(running);
        flip(&bucket, pattern);
    }
}

/// Has the store verified: how far it came from line to line, and the report.
fn verify(running: &Running, query: &str) -> (Vec<(u64, u64)>, Value) {
    let reply = running.client().request("POST", &format!("/files?verify{query}"), &[], None);
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/x-ndjson"));
    let text = String::from_utf8(reply.body).unwrap();
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let report = lines.pop().unwrap()["report"].take();
    let number = |value: &Value| value.as_u64().unwrap();
    let progress = lines.iter().map(|line| (number(&line["done"]), number(&line["total"])));
    (progress.collect(), report)
}

#[test]
fn verification_reads_everything_or_a_share_after_the_other() {
    let (_dir, running) = serving();
    let mut client = running.client();
    for at in 0..10 {
        client.put(&format!("/files/{at}"), &bytes(at, 1000));
    }
    let (_, all) = verify(&running, "");
    assert_eq!((&all["files"], &all["bytes"]), (&10.into(), &10_000.into()));
    assert_eq!((&all["is_complete"], &all["damage"]), (&true.into(), &Value::Array(vec![])));
    let mut files = Vec::new();
    loop {
        let (_, share) = verify(&running, "&bytes=2500");
        files.push(share["files"].as_u64().unwrap());
        if share["is_complete"] == true {
            break;
        }
    }
    assert_eq!(files, [3, 3, 3, 1]);
    for target in ["/files", "/files?verify=1", "/files?verify&bytes=-1", "/files?verify&x=1"] {
        let reply = running.client().request("POST", target, &[], None);
        assert_eq!(reply.status, 400, "{target}");
    }
}

#[test]
fn verification_reports_damage_and_has_it_refused() {
    let dir = tempfile::tempdir().unwrap();
    let files = file_store(dir.path());
    let file = bytes(3, 20 * CHUNK);
    for name in ["f", "g"] {
        files.write(name, &file[..], tallybook_files::WriteOptions::default()).unwrap();
    }
    let bucket = files.bucket_path(files.bucket_of("f"));
    files.close().unwrap();
    let at = 15 * CHUNK + 1000;
    flip(&bucket, &file[at..at + 64]);
    let files = FileStore::open(dir.path(), OpenOptions::default()).unwrap();
    let running = start_with_files(options(), files.clone());
    let (_, report) = verify(&running, "");
    assert_eq!(report["files"], 2);
    let expected = files.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!(expected.damage.len(), 1);
    assert_eq!(report["damage"].as_array().unwrap().len(), 1);
    let (said, expected) = (&report["damage"][0], &expected.damage[0]);
    assert_eq!(said["name"], *expected.name);
    assert_eq!((&said["offset"], &said["size"]), (&expected.offset.into(), &expected.size.into()));
    assert_eq!(said["what"], *expected.what);
    // Even what lies before the damage.
    let target = format!("/files/{}", expected.name);
    let reply = running.client().request("GET", &target, &["Range: bytes=0-9"], None);
    assert_eq!((reply.status, &*reply.error()), (500, "corruption"));
}

#[test]
fn one_verification_goes_on_at_a_time_and_ends_with_its_client() {
    const REQUEST: &str = "POST /files?verify HTTP/1.1\r\nHost: t\r\n\r\n";
    let (_dir, running) = serving();
    running.client().put("/files/f", &bytes(1, 100 * CHUNK));
    let start = Instant::now();
    let (mut taken, mut refused) = (0, 0);
    while taken == 0 || refused == 0 {
        assert!(start.elapsed() < PATIENCE, "{taken} were taken and {refused} refused");
        let mut clients = [running.client(), running.client(), running.client()];
        clients.iter_mut().for_each(|client| client.send(REQUEST));
        assert_eq!(running.client().get("/files/f").status, 200);
        for mut client in clients {
            let reply = client.reply("POST");
            match reply.status {
                200 => taken += 1,
                status => {
                    assert_eq!((status, &*reply.error()), (409, "verify_running"));
                    refused += 1;
                }
            }
        }
    }
    running.client().send(REQUEST);
    while running.client().request("POST", "/files?verify", &[], None).status != 200 {
        assert!(start.elapsed() < PATIENCE, "who has gone away is still waited for");
    }
}

#[test]
fn without_a_file_store_there_are_no_files() {
    let running = start();
    for target in ["/files", "/files/f"] {
        assert_eq!(running.client().get(target).status, 400);
    }
}

/// Writes a file with attributes of this many bytes.
fn write_described(files: &FileStore, name: &str, attributes_bytes: usize) {
    let attributes = vec![7; attributes_bytes].into();
    let options = tallybook_files::WriteOptions { attributes, ..Default::default() };
    files.write(name, b"", options).unwrap();
}

/// A page was counted only once it was there: by their sizes 1,000 entries took 240 MB.
#[test]
fn page_ends_where_its_memory_does_and_the_next_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    options.limits.body_memory_bytes_max = 1 << 20;
    let running = start_with_files(options, file_store(dir.path()));
    let expected: Vec<String> = (0..100).map(|index| format!("{index:02}")).collect();
    for name in &expected {
        write_described(running.files.as_ref().unwrap(), name, 64 << 10);
    }
    let mut client = running.client();
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = listing(&mut client, &format!("after={after}"));
        let names = names(&page);
        assert!((1..=12).contains(&names.len()), "{} entries", names.len());
        seen.extend(names);
        match page["next_after"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, expected);
    running.wait_for_figure("body_memory_bytes", 0);
}

#[test]
fn listing_without_memory_for_a_whole_page_is_short_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    options.limits.body_memory_bytes_max = 800 << 10;
    let running = start_with_files(options, file_store(dir.path()));
    for index in 0..100 {
        let name = format!("/files/{}{index:02}", "n".repeat(1000));
        assert_eq!(running.client().put(&name, b"").status, 201);
    }
    write_described(running.files.as_ref().unwrap(), "large", 64 << 10);
    let mut client = running.client();
    let mut upload = running.client();
    upload.send("PUT /files/f HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\na");
    running.wait_for_figure("body_memory_bytes", 768 << 10);
    let short = client.get("/files?prefix=n");
    assert_eq!(short.status, 200);
    assert!(short.body.len() <= 64 << 10, "{}", short.body.len());
    let short: Value = serde_json::from_slice(&short.body).unwrap();
    assert_eq!(short["next_after"], *names(&short).last().unwrap());
    let refused = client.get("/files");
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"));
    upload.send("b");
    assert_eq!(upload.reply("PUT").status, 201);
    assert_eq!(names(&listing(&mut client, "")).len(), 102);
    running.wait_for_figure("body_memory_bytes", 0);
}

#[test]
fn uploads_beyond_the_limit_are_told_to_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    options.limits.in_flight_max = 1;
    let running = start_with_files(options, file_store(dir.path()));
    let mut first = running.client();
    first.send("PUT /files/f HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\na");
    running.wait_for_figure("requests_in_flight", 1);
    let second = running.client().put("/files/g", b"x");
    assert_eq!((second.status, second.header("retry-after")), (503, "1"));
    first.send("b");
    assert_eq!(first.reply("PUT").status, 201);
    assert_eq!(running.client().get("/files/f").body, b"ab");
}
