//! A running server, and a client that sees every byte.
//!
//! The client holds every reply to the description in `openapi.yaml`: a status that isn't described
//! there fails the test that met it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use tallybook::options::Options;
use tallybook::store::Store;
use tallybook_files::FileStore;
use tallybook_server::{Server, ServerOptions, ShutdownHandle};
use tempfile::TempDir;
use tracing::Dispatch;
use tracing::dispatcher::with_default;

use crate::faults::FaultyStore;
use crate::openapi;

/// Longer than anything takes: a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Running {
    pub(crate) data: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) engine: FaultyStore,
    pub(crate) files: Option<FileStore>,
    pub(crate) handle: ShutdownHandle,
    thread: Option<JoinHandle<tallybook_server::Result<()>>>,
    _dir: TempDir,
}

/// Options on free ports, with two threads, so that connections spread, and with the names by which
/// these tests call the server.
pub(crate) fn options() -> ServerOptions {
    let free = "127.0.0.1:0".parse().unwrap();
    let allowed_hosts = ["t", "test"].map(str::to_owned).to_vec();
    ServerOptions {
        listen: free,
        admin: Some(free),
        threads: 2,
        allowed_hosts,
        ..ServerOptions::default()
    }
}

pub(crate) fn start() -> Running {
    start_with(options())
}

pub(crate) fn start_with(options: ServerOptions) -> Running {
    start_logging(options, Dispatch::none())
}

/// A server that logs to `log`.
pub(crate) fn start_logging(options: ServerOptions, log: Dispatch) -> Running {
    run(options, Options::default(), None, log)
}

/// A server over a store with these options.
pub(crate) fn start_over(options: ServerOptions, store_options: Options) -> Running {
    run(options, store_options, None, Dispatch::none())
}

/// A server with a file store.
pub(crate) fn start_with_files(options: ServerOptions, files: FileStore) -> Running {
    run(options, Options::default(), Some(files), Dispatch::none())
}

fn run(
    options: ServerOptions,
    store_options: Options,
    files: Option<FileStore>,
    log: Dispatch,
) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), store_options).unwrap();
    let engine = FaultyStore::new(store);
    let server = Server::bind_with_files(options, engine.clone(), files.clone()).unwrap();
    let (data, admin) = (server.data_addr(), server.admin_addr().unwrap());
    let handle = server.shutdown_handle();
    let thread = Some(std::thread::spawn(move || with_default(&log, || server.run())));
    Running { data, admin, engine, files, handle, thread, _dir: dir }
}

impl Running {
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.data)
    }

    pub(crate) fn admin_client(&self) -> Client {
        Client::connect(self.admin)
    }

    /// Stops the server and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.handle.shutdown();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }

    /// A figure of `/stats`.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let reply = self.admin_client().get("/stats");
        let figures: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        figures[name].as_u64().unwrap_or_else(|| panic!("no figure {name}"))
    }

    /// The text of `/metrics`.
    pub(crate) fn metrics(&self) -> String {
        let reply = self.admin_client().get("/metrics");
        assert_eq!(reply.status, 200);
        String::from_utf8(reply.body).unwrap()
    }

    /// The JSON of `/stages`.
    pub(crate) fn stages(&self) -> serde_json::Value {
        let reply = self.admin_client().get("/stages");
        assert_eq!(reply.status, 200);
        serde_json::from_slice(&reply.body).unwrap()
    }

    /// Waits until a figure has this value.
    pub(crate) fn wait_for_figure(&self, name: &str, value: u64) {
        let start = std::time::Instant::now();
        while self.figure(name) != value {
            assert!(start.elapsed() < PATIENCE, "{name} never became {value}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.engine.set(crate::faults::Fault::None);
        if std::thread::panicking() {
            self.handle.shutdown();
        } else {
            self.stop();
            self.engine.store.close().unwrap();
            self.files.as_ref().map_or(Ok(()), FileStore::close).unwrap();
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) version: String,
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// The chunks of a chunked body.
    pub(crate) chunks: Vec<Vec<u8>>,
    /// A chunked body that ended without its end.
    pub(crate) is_cut: bool,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn error(&self) -> String {
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        body["error"].as_str().unwrap().to_owned()
    }
}

pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a request with the headers given as lines and reads its reply.
    pub(crate) fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[&str],
        body: Option<&[u8]>,
    ) -> Reply {
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: test\r\n").into_bytes();
        for header in headers {
            request.extend_from_slice(header.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        if let Some(body) = body {
            request.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body.unwrap_or_default());
        // A refusal may come before the body is sent to its end; then the reply says why.
        let _ = self.stream.get_mut().write_all(&request);
        let reply = self.reply(method);
        openapi::check_documented(method, target, reply.status);
        reply
    }

    pub(crate) fn get(&mut self, target: &str) -> Reply {
        self.request("GET", target, &[], None)
    }

    pub(crate) fn put(&mut self, target: &str, value: &[u8]) -> Reply {
        self.request("PUT", target, &[], Some(value))
    }

    /// The next reply; to a HEAD it has no body.
    pub(crate) fn reply(&mut self, method: &str) -> Reply {
        self.try_reply(method).expect("the connection closed before the reply")
    }

    /// The next reply, or `None` at the connection's end.
    pub(crate) fn try_reply(&mut self, method: &str) -> Option<Reply> {
        let status_line = self.line()?;
        let mut words = status_line.splitn(3, ' ');
        let version = words.next().unwrap().to_owned();
        assert!(version == "HTTP/1.1" || version == "HTTP/1.0", "{status_line:?}");
        let status = words.next().unwrap().parse().unwrap();
        let mut headers = HashMap::new();
        loop {
            let line = self.line().expect("the connection closed in a head");
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").unwrap();
            let twice = headers.insert(name.to_owned(), value.to_owned());
            assert_eq!(twice, None, "{name} is given twice");
        }
        openapi::check_known_status(status);
        let mut reply = Reply { version, status, headers, ..Reply::default() };
        let bodyless = method == "HEAD" || status < 200 || status == 204 || status == 304;
        if bodyless {
            return Some(reply);
        }
        if reply.header("transfer-encoding") == "chunked" {
            self.read_chunks(&mut reply);
        } else {
            let length: usize = reply.header("content-length").parse().unwrap();
            reply.body = vec![0; length];
            self.stream.read_exact(&mut reply.body).unwrap();
        }
        Some(reply)
    }

    fn read_chunks(&mut self, reply: &mut Reply) {
        loop {
            let Some(size) = self.line() else {
                reply.is_cut = true;
                return;
            };
            let size = usize::from_str_radix(&size, 16).unwrap();
            let mut chunk = vec![0; size];
            self.stream.read_exact(&mut chunk).unwrap();
            assert_eq!(self.line().as_deref(), Some(""));
            if size == 0 {
                return;
            }
            reply.body.extend_from_slice(&chunk);
            reply.chunks.push(chunk);
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.strip_suffix("\r\n").expect("lines end in CRLF").to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("reading a line: {error}"),
        }
    }

    /// Reads to the connection's end; fails if it stays open.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        self.read_to_end_or_reset().0
    }

    /// The same, and whether the end was a reset.
    pub(crate) fn read_to_end_or_reset(&mut self) -> (Vec<u8>, bool) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => (rest, false),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => (rest, true),
            Err(error) => panic!("the connection stays open: {error}"),
        }
    }

    /// Fails unless the server has closed without another byte.
    pub(crate) fn assert_closed(&mut self) {
        let rest = self.read_to_end();
        assert!(rest.is_empty(), "unexpected: {:?}", String::from_utf8_lossy(&rest));
    }

    /// Fails unless the connection still answers.
    pub(crate) fn assert_open(&mut self) {
        assert_eq!(self.get("/healthz").status, 200);
    }
}
