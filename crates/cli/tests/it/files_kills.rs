//! A server is killed again and again while files and S3 objects are put, replaced, put together from
//! parts and deleted. After each kill every file is whole or absent, what was acknowledged is there, and
//! the totals are exact. `TALLYBOOK_LONG` makes it many times.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tallybook_files::{FileStore, ListEntry, ListOptions, OpenOptions, VerifyOptions};

use crate::binary::{Dir, Server};

/// Each writer has so many names.
const NAMES: u64 = 3;
/// Smallest part of an upload but the last.
const PART_BYTES: usize = 5 << 20;

/// Bytes that a seed decides.
fn bytes(seed: u64) -> Vec<u8> {
    let sizes = [0, 10, 131_072, 400_001, 70_000];
    body_of(seed, sizes[(seed % 5) as usize] + (seed % 7) as usize)
}

fn body_of(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(len)
    .collect()
}

/// The two parts of an upload.
fn parts(seed: u64) -> [Vec<u8>; 2] {
    [body_of(seed, PART_BYTES), bytes(seed)]
}

/// What is under a name.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Holds {
    Nothing,
    Bytes(u64),
    Parts(u64),
}

impl Holds {
    fn is(self, read: &Option<Vec<u8>>) -> bool {
        match (self, read) {
            (Holds::Nothing, None) => true,
            (Holds::Bytes(seed), Some(read)) => *read == bytes(seed),
            (Holds::Parts(seed), Some(read)) => *read == parts(seed).concat(),
            _ => false,
        }
    }
}

/// One of those who write: by `/files`, or by S3.
struct Writer {
    number: u64,
    is_s3: bool,
    next: u64,
    /// What was acknowledged last, of each name.
    held: Vec<Holds>,
    acknowledged: u64,
    /// The step under way when the server died.
    begun: Option<(usize, Holds)>,
}

impl Writer {
    fn target(&self, name: usize) -> String {
        let door = if self.is_s3 { "/bucket" } else { "/files" };
        format!("{door}/of-{}/{name}", self.number)
    }

    /// Makes one step after another until the server dies.
    fn run(&mut self, address: &str) {
        loop {
            let step = self.next;
            self.next += 1;
            let name = (step % NAMES) as usize;
            // Of another writer, other bytes.
            let seed = step * 16 + self.number;
            let holds = match step % 7 {
                3 => Holds::Nothing,
                5 if self.is_s3 => Holds::Parts(seed),
                _ => Holds::Bytes(seed),
            };
            self.begun = Some((name, holds));
            if self.make(address, &self.target(name), holds).is_none() {
                return;
            }
            self.held[name] = holds;
            self.acknowledged += 1;
            self.begun = None;
        }
    }

    fn make(&self, address: &str, target: &str, holds: Holds) -> Option<()> {
        let demand = |answer: Answer, statuses: &[u16]| {
            assert!(statuses.contains(&answer.status), "{target}: {answer:?}");
        };
        match holds {
            Holds::Nothing => demand(ask(address, "DELETE", target, b"")?, &[204, 404]),
            Holds::Bytes(seed) => demand(ask(address, "PUT", target, &bytes(seed))?, &[200, 201]),
            Holds::Parts(seed) => {
                let created = ask(address, "POST", &format!("{target}?uploads"), b"")?;
                let upload = between(&created.body, "<UploadId>", "</UploadId>")?;
                let mut list = String::new();
                for (number, part) in (1..).zip(parts(seed)) {
                    let at = format!("{target}?partNumber={number}&uploadId={upload}");
                    let put = ask(address, "PUT", &at, &part)?;
                    let tag = put.etag.clone()?;
                    demand(put, &[200]);
                    list.push_str(&format!(
                        "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
                    ));
                }
                let list = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
                let at = format!("{target}?uploadId={upload}");
                let completed = ask(address, "POST", &at, list.as_bytes())?;
                let is_result = completed.body.contains("<CompleteMultipartUploadResult");
                assert!(is_result, "{target}: {completed:?}");
            }
        }
        Some(())
    }

    /// What is under each name is what was acknowledged, or the step that was under way.
    fn check(&mut self, address: &str) {
        for name in 0..NAMES as usize {
            let target = self.target(name);
            let answer = ask_bytes(address, "GET", &target, b"").expect("the server answers");
            let read = match answer.0 {
                200 => Some(answer.2),
                404 => None,
                status => panic!("{target}: {status}"),
            };
            if self.held[name].is(&read) {
                continue;
            }
            match self.begun {
                Some((begun, holds)) if begun == name && holds.is(&read) => self.held[name] = holds,
                begun => panic!(
                    "{target} is neither {:?} nor of the step {begun:?}: {:?} bytes",
                    self.held[name],
                    read.map(|read| read.len())
                ),
            }
        }
        self.begun = None;
    }
}

/// Ends the uploads that a kill left, which would otherwise wait for a week.
fn end_uploads(s3: &str) {
    let listed = ask(s3, "GET", "/bucket?uploads", b"").expect("the server answers");
    for upload in listed.body.split("<Upload>").skip(1) {
        let key = between(upload, "<Key>", "</Key>").expect("an upload has a key");
        let id = between(upload, "<UploadId>", "</UploadId>").expect("an upload has an id");
        let ended = ask(s3, "DELETE", &format!("/bucket/{key}?uploadId={id}"), b"").unwrap();
        assert_eq!(ended.status, 204, "{ended:?}");
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    etag: Option<String>,
    body: String,
}

fn ask(address: &str, method: &str, target: &str, body: &[u8]) -> Option<Answer> {
    let (status, head, body) = ask_bytes(address, method, target, body)?;
    let etag = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("etag").then(|| value.trim().to_owned())
    });
    Some(Answer { status, etag, body: String::from_utf8_lossy(&body).into_owned() })
}

/// Status, head and body; `None` if the server died before all of it came.
fn ask_bytes(
    address: &str,
    method: &str,
    target: &str,
    body: &[u8],
) -> Option<(u16, String, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = answer[end + 4..].to_vec();
    let length = between(&head.to_ascii_lowercase(), "content-length: ", "\r\n")
        .or_else(|| head.to_ascii_lowercase().rsplit_once("content-length: ").map(|x| x.1.into()));
    // A chunked answer, which only short ones are here, is left as it came.
    let is_whole = length.is_none_or(|length| length.trim() == body.len().to_string());
    is_whole.then_some((status, head, body))
}

fn between(text: &str, start: &str, end: &str) -> Option<String> {
    let rest = text.split_once(start)?.1;
    Some(rest.split_once(end)?.0.to_owned())
}

/// Opens the store that the killed server left: nothing is damaged or left over, and it holds exactly
/// what its names say.
fn check_store(dir: &Path) {
    let store = FileStore::open(dir, OpenOptions::default()).unwrap();
    store.reap().unwrap();
    let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    assert!(report.damage.is_empty() && report.orphans == 0, "{report:?}");
    let (mut files, mut file_bytes) = (0, 0);
    for prefix in ["", "\0"] {
        let options = ListOptions { prefix: prefix.to_owned(), ..ListOptions::default() };
        let page = store.list(ListOptions { limit: 100_000, ..options }).unwrap();
        for entry in page.entries {
            let ListEntry::File(stat) = entry else { continue };
            files += 1;
            file_bytes += stat.size;
        }
    }
    let totals = store.totals();
    assert_eq!((totals.files, totals.file_bytes), (files, file_bytes));
    assert_eq!((totals.live_bytes, totals.dead_bytes, totals.uploading_bytes), (file_bytes, 0, 0));
    store.close().unwrap();
}

#[test]
fn a_killed_server_leaves_what_it_acknowledged_and_no_part_of_a_file() {
    let is_long = std::env::var_os("TALLYBOOK_LONG").is_some();
    let cycles = if is_long { 100 } else { 4 };
    let dir = Dir::new();
    let files = dir.beside("files");
    let start = || {
        let mut command = Server::command(&dir);
        command.args(["--s3", "127.0.0.1:0", "--s3-anonymous", "--files"]).arg(&files);
        let server = Server::start(&mut command);
        let end = server.announcement.find(" (s3)").expect("S3 is announced");
        let s3 = server.announcement[..end].rsplit_once("http://").unwrap().1.to_owned();
        (server, s3)
    };
    let mut writers: Vec<Writer> = (0..4)
        .map(|number| Writer {
            number,
            is_s3: number % 2 == 1,
            next: 0,
            held: vec![Holds::Nothing; NAMES as usize],
            acknowledged: 0,
            begun: None,
        })
        .collect();
    let mut reopening_max = Duration::ZERO;
    for cycle in 0..cycles {
        let started = Instant::now();
        let (server, s3) = start();
        reopening_max = reopening_max.max(started.elapsed());
        if cycle == 0 {
            assert_eq!(ask(&s3, "PUT", "/bucket", b"").unwrap().status, 200);
        }
        let data = server.data.clone();
        let door = |writer: &Writer| if writer.is_s3 { s3.clone() } else { data.clone() };
        for writer in &mut writers {
            writer.check(&door(writer));
        }
        end_uploads(&s3);
        thread::scope(|scope| {
            for writer in &mut writers {
                let address = door(writer);
                scope.spawn(move || writer.run(&address));
            }
            thread::sleep(Duration::from_millis(200 + cycle * 73 % 500));
            server.signal(Signal::KILL);
        });
        server.wait();
        check_store(&files);
    }
    let acknowledged: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
    println!(
        "{cycles} kills of a server, {acknowledged} steps acknowledged, 0 lost, 0 files in part; \
         started again within {} ms",
        reopening_max.as_millis()
    );
    assert!(acknowledged > cycles, "{acknowledged} steps in {cycles} runs");
}
