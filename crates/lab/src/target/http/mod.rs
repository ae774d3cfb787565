//! Any server that speaks `/v0`: `GET`, `PUT`, `DELETE`, `HEAD` of `/v0/entity?id=KEY`, ranges by
//! `/v0/entities?start=KEY&end=KEY`.
//!
//! Connections are kept alive, pipelined as deep as the load asks, and made anew when the server
//! closes them. A range's end is computed from the lab's own keys, because the interface has no count.

mod response;
mod request;
mod connection;
mod connections;

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::target::{Answers, Connections, Desk, Out, Request, Session, Target};
use connections::Epoll;
use request::RequestLines;

/// A request without an answer for this long has timed out.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A server under load.
#[derive(Debug, Clone)]
pub struct HttpTarget {
    server: Server,
    settings: BTreeMap<String, String>,
    directory: Option<PathBuf>,
    process: Option<u32>,
    /// Set when the user wants no more.
    stop: Arc<AtomicBool>,
}

/// Where a server is, and how it is spoken to.
#[derive(Debug, Clone)]
struct Server {
    name: String,
    address: SocketAddr,
    lines: RequestLines,
    timeout: Duration,
}

impl HttpTarget {
    /// The server at `url`, such as `http://127.0.0.1:8080`.
    pub fn new(url: &str) -> Result<HttpTarget> {
        let refuse = |what: &str| Error::Invalid(format!("{url}: {what}"));
        let rest =
            url.strip_prefix("http://").ok_or_else(|| refuse("it must begin with http://"))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.bytes().chain(path.bytes()).any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(refuse("it holds a space or a control character"));
        }
        let with_port = if has_port(host) { host.to_owned() } else { format!("{host}:80") };
        let address = with_port
            .to_socket_addrs()
            .map_err(|error| refuse(&error.to_string()))?
            .next()
            .ok_or_else(|| refuse("it has no address"))?;
        let path = path.trim_end_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(HttpTarget {
            server: Server {
                name: url.to_owned(),
                address,
                lines: RequestLines::new(&prefix, host),
                timeout: TIMEOUT,
            },
            settings: BTreeMap::new(),
            directory: None,
            process: None,
            stop: Arc::default(),
        })
    }

    /// Has records carry these settings of the server.
    pub fn with_settings(mut self, settings: BTreeMap<String, String>) -> HttpTarget {
        self.settings = settings;
        self
    }

    /// Has records tell what this process of this machine used, and how large its directory is.
    pub fn with_process(mut self, process: u32, directory: Option<PathBuf>) -> HttpTarget {
        self.process = Some(process);
        self.directory = directory;
        self
    }

    /// With a flag that, once set, has its background work not waited for.
    pub fn with_stop(mut self, stop: Arc<AtomicBool>) -> HttpTarget {
        self.stop = stop;
        self
    }

    /// Has requests time out after this long. Default 30 s.
    pub fn with_timeout(mut self, timeout: Duration) -> HttpTarget {
        self.server.timeout = timeout;
        self
    }
}

fn has_port(host: &str) -> bool {
    let after_address = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    after_address.contains(':')
}

impl Target for HttpTarget {
    fn name(&self) -> &str {
        &self.server.name
    }

    fn settings(&self) -> BTreeMap<String, String> {
        self.settings.clone()
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(HttpSession { connections: Epoll::connect(self.server.clone(), 1)? }))
    }

    fn connections(&self, count: u32) -> Result<Option<Box<dyn Connections>>> {
        Ok(Some(Box::new(Epoll::connect(self.server.clone(), count)?)))
    }

    fn is_remote(&self) -> bool {
        true
    }

    /// A server doesn't tell over `/v0` what it does in the background; its CPU time does, if its
    /// process is known.
    fn settle(&self) -> Result<Duration> {
        super::settle_by_cpu(self.process, &self.stop)
    }

    fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    fn process(&self) -> Option<u32> {
        self.process
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// One connection, one request at a time.
struct HttpSession {
    connections: Epoll,
}

impl Session for HttpSession {
    fn perform(&mut self, request: Request<'_>, answers: &mut dyn Answers) -> Result<()> {
        let mut desk = OneRequest { request: Some(request), answers, is_answered: false };
        self.connections.offer(0, &mut desk)?;
        while !desk.is_answered {
            self.connections.turn(Duration::from_secs(1), &mut desk)?;
        }
        Ok(())
    }
}

struct OneRequest<'a> {
    request: Option<Request<'a>>,
    answers: &'a mut dyn Answers,
    is_answered: bool,
}

impl Desk for OneRequest<'_> {
    fn answers(&mut self, _token: u64) -> &mut dyn Answers {
        self.answers
    }

    fn answered(&mut self, _token: u64) {
        self.is_answered = true;
    }

    fn refill(&mut self, _connection: usize, out: &mut dyn Out) {
        if let Some(request) = self.request.take() {
            out.send(0, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ctrl-C waited for up to ten minutes.
    #[test]
    fn a_stop_ends_settling() {
        let stop = Arc::new(AtomicBool::new(true));
        let target = HttpTarget::new("http://127.0.0.1:1").unwrap();
        let target = target.with_process(std::process::id(), None).with_stop(stop);
        assert!(matches!(target.settle(), Err(Error::Interrupted)));
    }

    #[test]
    fn urls_are_taken_apart_or_refused() {
        let target = HttpTarget::new("http://127.0.0.1:8080/base/").unwrap();
        assert_eq!(target.server.address, "127.0.0.1:8080".parse().unwrap());
        let target = HttpTarget::new("http://[::1]").unwrap();
        assert_eq!(target.server.address, "[::1]:80".parse().unwrap());
        for bad in ["127.0.0.1", "https://127.0.0.1", "http://", "http://a b", "http://127.0.0.1:x"]
        {
            assert!(HttpTarget::new(bad).is_err(), "{bad}");
        }
    }
}
