//! PUTs over HTTP at a constant rate, as a client sees them: latency counts from the moment at which
//! a request was due, so a pause of the server counts for every request it delays.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::process::figure;

/// Latencies of one connection, in nanoseconds, from when each request was due and from when it went.
struct Latencies {
    from_due: Vec<u64>,
    from_sent: Vec<u64>,
    failed: u64,
}

pub(crate) fn run(address: &str, rate: u64, seconds: u64, connections: u64) {
    let begin = Instant::now() + Duration::from_millis(100);
    let period = Duration::from_secs_f64(connections as f64 / rate as f64);
    let count = rate * seconds / connections;
    let runs: Vec<Latencies> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|at| {
                let first = begin + period.mul_f64(at as f64 / connections as f64);
                scope.spawn(move || drive(address, at, first, period, count))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a connection's thread")).collect()
    });
    let elapsed = begin.elapsed().as_secs_f64();
    let failed: u64 = runs.iter().map(|run| run.failed).sum();
    figure("asked", rate as f64, "/s");
    figure("reached", (count * connections) as f64 / elapsed, "/s");
    figure("answers other than 201", failed as f64, "");
    percentiles("from due", runs.iter().flat_map(|run| run.from_due.iter().copied()).collect());
    percentiles("from sent", runs.iter().flat_map(|run| run.from_sent.iter().copied()).collect());
    assert_eq!(failed, 0, "every request is answered 201");
}

fn percentiles(name: &str, mut all: Vec<u64>) {
    all.sort_unstable();
    for (label, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)] {
        let at = ((all.len() as f64 * share) as usize).min(all.len() - 1);
        figure(&format!("{label} {name}"), all[at] as f64 / 1e3, "us");
    }
    figure(&format!("max {name}"), all[all.len() - 1] as f64 / 1e3, "us");
}

fn drive(address: &str, at: u64, first: Instant, period: Duration, count: u64) -> Latencies {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_nodelay(true).expect("a TCP socket");
    let mut latencies = Latencies { from_due: Vec::new(), from_sent: Vec::new(), failed: 0 };
    let value = [b'v'; 100];
    let mut request = Vec::new();
    let mut answer = [0; 4096];
    for number in 0..count {
        let due = first + period.mul_f64(number as f64);
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(early);
        }
        request.clear();
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at << 60);
        write!(
            request,
            "PUT /v0/entity?id=k{key:016x} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
        )
        .expect("writing to memory");
        request.extend_from_slice(&value);
        let sent = Instant::now();
        stream.write_all(&request).expect("the connection holds");
        let mut len = 0;
        while !answer[..len].windows(4).any(|end| end == b"\r\n\r\n") {
            let read = stream.read(&mut answer[len..]).expect("the connection holds");
            assert!(read > 0, "the server closed the connection");
            len += read;
        }
        latencies.failed += u64::from(!answer.starts_with(b"HTTP/1.1 201"));
        latencies.from_due.push(due.elapsed().as_nanos() as u64);
        latencies.from_sent.push(sent.elapsed().as_nanos() as u64);
    }
    latencies
}
