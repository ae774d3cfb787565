//! How often the server asks for memory to answer a request, counted over a connection that stays open.
//!
//! A counting allocator is this program's. The client writes requests that are made beforehand and reads
//! into a buffer that is there, so that everything counted is the server's or the engine's. The bounds
//! are what is measured today: a change that needs more has to say why.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tallybook::options::Options;
use tallybook::store::Store;
use tallybook_server::{Server, ServerOptions, ShutdownHandle};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// The most bytes asked for at once.
static LARGEST_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LARGEST_BYTES.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LARGEST_BYTES.fetch_max(size, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The count is the process's, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

const REQUESTS: u64 = 1000;
const VALUE: [u8; 100] = [b'v'; 100];
/// Allocations of one operation, as measured.
const PUT_MAX: u64 = 4;
const DELETE_MAX: u64 = 2;
const GET_MAX: u64 = 0;
/// A value is copied out of the memtable; a table's is a slice of the file.
const GET_FROM_MEMORY_MAX: u64 = 1;
/// Allocations of background threads that may fall into a measurement: the tick of the clock 200 times
/// a second, and a sync.
const BACKGROUND_MAX: u64 = REQUESTS / 4;

/// Allocations of `operation` a time, over many of them after some that aren't counted. The least of
/// three measurements: what else goes on in the process can only add.
fn measure(name: &str, mut operation: impl FnMut(u64)) -> f64 {
    let mut number = 0;
    let mut repeat = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..REQUESTS {
            operation(number);
            number += 1;
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    repeat();
    let least = (0..3).map(|_| repeat()).min().expect("three were made");
    let each = least as f64 / REQUESTS as f64;
    println!("{name:<24} {each:>7.3} allocations");
    each
}

fn key(number: u64) -> [u8; 13] {
    let mut key = *b"key-000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// A client that asks for no memory: one request, in which the key's place is known, and one buffer.
struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    key_at: usize,
    answer: Vec<u8>,
    /// How every answer begins and how long it is.
    status: &'static [u8],
    answer_bytes: usize,
}

impl Client {
    fn new(stream: TcpStream, method: &str, body: &[u8], status: &'static [u8]) -> Client {
        let mut request = format!("{method} /v0/entity?id=").into_bytes();
        let key_at = request.len();
        request.extend_from_slice(&key(0));
        let length = body.len();
        let rest = if body.is_empty() {
            " HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()
        } else {
            format!(" HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")
        };
        request.extend_from_slice(rest.as_bytes());
        request.extend_from_slice(body);
        Client { stream, request, key_at, answer: vec![0; 4096], status, answer_bytes: 0 }
    }

    fn ask(&mut self, key: &[u8]) {
        self.request[self.key_at..][..key.len()].copy_from_slice(key);
        self.stream.write_all(&self.request).unwrap();
        let mut read = 0;
        while read == 0 || read < self.answer_bytes {
            let count = self.stream.read(&mut self.answer[read..]).unwrap();
            assert!(count > 0, "the connection closed");
            read += count;
            if self.answer_bytes == 0 {
                self.answer_bytes = answer_length(&self.answer[..read]).unwrap_or(usize::MAX);
            }
        }
        assert_eq!(read, self.answer_bytes, "every answer is as long as the first");
        assert!(self.answer.starts_with(self.status));
    }
}

/// The length of an answer whose head is whole.
fn answer_length(answer: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(answer).ok()?;
    let head = text.find("\r\n\r\n")? + 4;
    let field = text.find("content-length: ").map(|at| &text[at + "content-length: ".len()..]);
    let body: usize = field.map_or(0, |field| field[..field.find('\r').unwrap()].parse().unwrap());
    Some(head + body)
}

fn check(name: &str, each: f64, bound: u64) {
    let bound = bound as f64 + BACKGROUND_MAX as f64 / REQUESTS as f64;
    assert!(each <= bound, "{name}: {each} allocations, at most {bound} were expected");
}

/// A server with one thread and an empty store.
struct Served {
    _dir: tempfile::TempDir,
    store: Store,
    address: SocketAddr,
    handle: ShutdownHandle,
    thread: JoinHandle<tallybook_server::Result<()>>,
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let free = "127.0.0.1:0".parse().unwrap();
        let options = ServerOptions { listen: free, admin: None, threads: 1, ..Default::default() };
        let server = Server::bind(options, store.clone()).unwrap();
        let (address, handle) = (server.data_addr(), server.shutdown_handle());
        let thread = std::thread::spawn(move || server.run());
        Served { _dir: dir, store, address, handle, thread }
    }

    fn end(self) {
        self.handle.shutdown();
        self.thread.join().unwrap().unwrap();
        self.store.close().unwrap();
    }
}

#[test]
fn a_request_takes_few_allocations() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let served = Served::new();
    let client = |method, body, status| {
        let stream = TcpStream::connect(served.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client::new(stream, method, body, status)
    };

    let mut put = client("PUT", &VALUE, b"HTTP/1.1 201");
    let puts = measure("PUT", |number| put.ask(&key(number)));
    let mut get = client("GET", b"", b"HTTP/1.1 200");
    let hits = measure("GET hit", |number| get.ask(&key(number % REQUESTS)));
    let mut miss = client("GET", b"", b"HTTP/1.1 404");
    let misses = measure("GET miss", |number| miss.ask(&key(number + 900_000_000)));
    let mut delete = client("DELETE", b"", b"HTTP/1.1 202");
    let deletes = measure("DELETE", |number| delete.ask(&key(number)));

    drop((put, get, miss, delete));
    served.end();
    check("PUT", puts, PUT_MAX);
    check("GET hit", hits, GET_FROM_MEMORY_MAX);
    check("GET miss", misses, GET_MAX);
    check("DELETE", deletes, DELETE_MAX);
}

/// A million operations used to be held, at 128 bytes each for 16 of the body, before they were counted.
#[test]
fn operations_beyond_the_limit_take_no_memory() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let served = Served::new();

    let operations = vec![r#"{"delete":[""]}"#; 1_000_000].join(",");
    let body = format!(r#"{{"operations":[{operations}]}}"#);
    let head =
        format!("POST /kv HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    LARGEST_BYTES.store(0, Ordering::Relaxed);
    let mut stream = TcpStream::connect(served.address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let largest_bytes = LARGEST_BYTES.load(Ordering::Relaxed);

    served.end();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("a batch has 1 to 1000 operations, this one has 1000000"), "{answer}");
    // The body is collected in a buffer that grows to twice its size.
    assert!(largest_bytes <= 2 * body.len() + 4096, "{largest_bytes} bytes at once");
}

#[test]
fn a_get_of_the_engine_takes_few_allocations() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
    for number in 0..REQUESTS {
        store.put(&key(number), &VALUE).unwrap();
    }
    let hit = |number| assert!(store.get(&key(number % REQUESTS)).unwrap().is_some());
    let miss = |number| assert!(store.get(&key(number + 900_000_000)).unwrap().is_none());
    let in_memory = (measure("get hit in memory", hit), measure("get miss in memory", miss));
    store.flush().unwrap();
    let in_table = (measure("get hit in a table", hit), measure("get miss in a table", miss));
    store.close().unwrap();
    check("get hit in memory", in_memory.0, GET_FROM_MEMORY_MAX);
    check("get miss in memory", in_memory.1, GET_MAX);
    check("get hit in a table", in_table.0, GET_MAX);
    check("get miss in a table", in_table.1, GET_MAX);
}
