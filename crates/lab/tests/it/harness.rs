//! Targets that behave as a test says: a store in memory, and servers of bytes.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tallybook_lab::load::{LoadOptions, Loaded, load};
use tallybook_lab::run::RunOptions;
use tallybook_lab::spec::{Durability, Spec, Workload};
use tallybook_lab::target::{Answers, Budget, Request, Session, Target};
use tallybook_lab::workload::Plan;
use tallybook_lab::{Error, Result};

pub(crate) fn budget(durability: Durability) -> Budget {
    Budget { write_buffer_bytes: 8 << 20, cache_bytes: 8 << 20, durability }
}

/// Options of runs whose figures don't matter.
pub(crate) fn quick() -> RunOptions {
    RunOptions { settle: false, ..RunOptions::default() }
}

/// A small spec of a workload.
pub(crate) fn tiny(workload: Workload) -> Spec {
    let is_sync = workload == Workload::FillSync;
    Spec {
        workload,
        keys: if is_sync { 50 } else { 2000 },
        length: tallybook_lab::spec::Length::Operations(match workload {
            Workload::FullScan => 3,
            Workload::FillSync => 50,
            // As long as it takes the writer beside the reads to come to its turn.
            Workload::ReadWhileWriting => 100_000,
            _ => 1500,
        }),
        durability: if is_sync { Durability::Sync } else { Durability::Os },
        threads: 2,
        scan_keys: 20,
        background_rate: 2000.0,
        ..Spec::default()
    }
}

pub(crate) fn run(target: &dyn Target, spec: &Spec) -> Loaded {
    load(target, &Plan::new(spec).unwrap(), &LoadOptions::default(), &mut |_, _| {}).unwrap()
}

pub(crate) fn prefill(target: &dyn Target, spec: &Spec) {
    tallybook_lab::run::prefill(target, spec, &quick(), &mut |_, _| {}).unwrap();
}

/// What a [`Memory`] target does at its n-th request, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Answers a read with another key's value.
    LiesAt(u64),
    /// Answers reads with nothing.
    LosesAt(u64),
    /// Acknowledges writes of keys that are there, and makes none of them from the n-th request on.
    ForgetsFrom(u64),
    /// Is gone.
    DiesAt(u64),
    Panics(u64),
    /// Refuses every n-th request.
    RefusesEvery(u64),
    /// Refuses every request from the n-th on.
    RefusesFrom(u64),
    /// Takes so many microseconds for each.
    Takes(u64),
    /// The same, and refuses every second.
    TakesAndRefuses(u64),
    /// Takes as long, and acknowledges writes of keys that are there, and makes none of them.
    TakesAndForgets(u64),
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store in memory.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    map: Arc<Mutex<Map>>,
    requests: Arc<AtomicU64>,
    fault: Fault,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory { map: Arc::default(), requests: Arc::default(), fault: Fault::None }
    }

    /// The same store with a fault, its requests counted anew.
    pub(crate) fn with(&self, fault: Fault) -> Memory {
        Memory { map: self.map.clone(), requests: Arc::default(), fault }
    }
}

impl Memory {
    fn forgets(&self, nth: u64) -> bool {
        match self.fault {
            Fault::ForgetsFrom(from) => nth >= from,
            Fault::TakesAndForgets(_) => true,
            _ => false,
        }
    }
}

impl Target for Memory {
    fn name(&self) -> &str {
        "memory"
    }
    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(self.clone()))
    }
    fn settle(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }
    fn directory(&self) -> Option<&Path> {
        None
    }
    fn process(&self) -> Option<u32> {
        None
    }
    fn figures(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for Memory {
    fn perform(&mut self, request: Request<'_>, answers: &mut dyn Answers) -> Result<()> {
        let nth = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        match self.fault {
            Fault::DiesAt(at) if nth >= at => {
                let what = "it died".to_owned();
                return Err(Error::Target { target: "memory".into(), what });
            }
            Fault::Panics(at) if nth >= at => panic!("as the test says"),
            Fault::RefusesEvery(every) if nth.is_multiple_of(every) => {
                answers.failed("503");
                return Ok(());
            }
            Fault::RefusesFrom(from) if nth >= from => {
                answers.failed("503");
                return Ok(());
            }
            Fault::Takes(us) | Fault::TakesAndForgets(us) | Fault::TakesAndRefuses(us) => {
                std::thread::sleep(Duration::from_micros(us));
                if matches!(self.fault, Fault::TakesAndRefuses(_)) && nth.is_multiple_of(2) {
                    answers.failed("503");
                    return Ok(());
                }
            }
            _ => {}
        }
        let mut map = self.map.lock().unwrap();
        match request {
            Request::Put { key, .. } | Request::Delete { key }
                if self.forgets(nth) && map.contains_key(key) =>
            {
                answers.written();
            }
            Request::Put { key, value } => {
                map.insert(key.to_vec(), value.to_vec());
                answers.written();
            }
            Request::Delete { key } => {
                map.remove(key);
                answers.written();
            }
            Request::Get { .. } if self.fault == Fault::LosesAt(nth) => answers.value(None),
            Request::Get { key } if self.fault == Fault::LiesAt(nth) => {
                let other = map.range(key.to_vec()..).nth(1).or(map.iter().next());
                answers.value(other.map(|(_, value)| &value[..]));
            }
            Request::Get { key } => answers.value(map.get(key).map(|value| &value[..])),
            Request::Head { key } => answers.length(map.get(key).map(|value| value.len() as u64)),
            Request::Scan { start, count } => {
                for (key, value) in map.range(start.to_vec()..).take(count as usize) {
                    answers.pair(key, value);
                }
            }
        }
        Ok(())
    }
}

/// How a [`Bytes`] server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As most do.
    Plain,
    /// Bodies in chunks of a few bytes, odd letter case.
    Chunked,
    /// Says `Connection: close` on every third answer, and closes.
    ClosesPolitely,
    /// Closes without a word after every fifth answer, whatever else was asked.
    ClosesSilently,
    /// Bodies that end with the connection.
    ToEnd,
    /// Cuts every seventh answer in the middle.
    Cuts,
    /// Refuses the second put of every connection, and every tenth that follows.
    Refuses,
    /// Reads, and never answers.
    Silent,
    /// The same from the n-th request of each connection on.
    SilentFrom(u64),
    /// Answers something that is no HTTP.
    Nonsense,
}

/// A server of another make: one thread a connection, answers in small pieces.
pub(crate) struct Foreign {
    pub(crate) address: SocketAddr,
}

impl Foreign {
    pub(crate) fn start(manner: Manner) -> Foreign {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let map: Arc<Mutex<Map>> = Arc::default();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, map) = (stream.unwrap(), map.clone());
                std::thread::spawn(move || drop(serve(stream, &map, manner)));
            }
        });
        Foreign { address }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn serve(mut stream: TcpStream, map: &Mutex<Map>, manner: Manner) -> std::io::Result<()> {
    let mut input = Vec::new();
    let mut bytes = [0; 4096];
    let mut puts = 0;
    for nth in 1_u64.. {
        let (head, body) = loop {
            if let Some(request) = take_request(&mut input) {
                break request;
            }
            match stream.read(&mut bytes)? {
                0 => return Ok(()),
                count => input.extend_from_slice(&bytes[..count]),
            }
        };
        if manner == Manner::Silent || matches!(manner, Manner::SilentFrom(from) if nth >= from) {
            continue;
        }
        if manner == Manner::Nonsense {
            return stream.write_all(b"220 mail ready\r\n");
        }
        let is_put = head.starts_with("PUT");
        puts += u64::from(is_put);
        let refuses = manner == Manner::Refuses && is_put && puts % 10 == 2;
        let (status, body, length) =
            if refuses { (503, Vec::new(), 0) } else { answer(&head, body, map) };
        let closes = manner == Manner::ToEnd || (manner == Manner::ClosesPolitely && nth % 3 == 0);
        let mut out = format!("HTTP/1.1 {status} Some Words\r\nServer: foreign\r\n").into_bytes();
        if closes {
            out.extend_from_slice(b"CONNECTION: Close\r\n");
        }
        let is_head = head.starts_with("HEAD");
        if manner == Manner::Chunked && !is_head {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for piece in body.chunks(7) {
                out.extend_from_slice(format!("{:X};ext=1\r\n", piece.len()).as_bytes());
                out.extend_from_slice(piece);
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(b"0\r\nTrailer: 1\r\n\r\n");
        } else {
            if manner != Manner::ToEnd || is_head {
                out.extend_from_slice(format!("cOnTeNt-LeNgTh: {length}\r\n").as_bytes());
            }
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&body);
        }
        if manner == Manner::Cuts && nth % 7 == 0 {
            return stream.write_all(&out[..out.len() / 2]);
        }
        stream.write_all(&out)?;
        if closes || (manner == Manner::ClosesSilently && nth % 5 == 0) {
            return Ok(());
        }
    }
    Ok(())
}

fn take_request(input: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let end = input.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(input[..end].to_vec()).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    if input.len() < end + length {
        return None;
    }
    let body = input[end..end + length].to_vec();
    input.drain(..end + length);
    Some((head, body))
}

fn answer(head: &str, body: Vec<u8>, map: &Mutex<Map>) -> (u16, Vec<u8>, usize) {
    let key = head.split_once("id=").unwrap().1.split(' ').next().unwrap().as_bytes().to_vec();
    let mut map = map.lock().unwrap();
    let (status, body) = match head.split(' ').next().unwrap() {
        "PUT" => {
            map.insert(key, body);
            (201, Vec::new())
        }
        "DELETE" => {
            map.remove(&key);
            (202, Vec::new())
        }
        method => match map.get(&key) {
            Some(value) if method == "HEAD" => return (200, Vec::new(), value.len()),
            Some(value) => (200, value.clone()),
            None => (404, Vec::new()),
        },
    };
    let length = body.len();
    (status, body, length)
}
