//! The lab's helper processes: a child with Tallybook in it, and a bare server to measure against.
//!
//! ```text
//! tallybook-lab child                                     the protocol of `child`, on standard input
//! tallybook-lab files                                     the protocol of `files`, on standard input
//! tallybook-lab bare [ADDRESS [BODY_BYTES [THREADS]]]     a server that answers a constant
//! tallybook-lab calibrate                                 how fast the load generator is here
//! ```

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use tallybook_lab::bare::{Bare, BareOptions};
use tallybook_lab::load::{LoadOptions, load};
use tallybook_lab::process::Process;
use tallybook_lab::spec::{Length, Pace, Spec, ValueSizes, Workload};
use tallybook_lab::target::http::HttpTarget;
use tallybook_lab::target::nothing::Nothing;
use tallybook_lab::workload::Plan;
use tallybook_lab::{Error, Result};
use tallybook_lab::{child, files};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["child"] => child::serve_engine(),
        ["files"] => files::serve_tallybook(),
        ["bare", ref rest @ ..] => bare(rest),
        ["calibrate"] => calibrate(),
        _ => Err(Error::Invalid("usage: tallybook-lab child | files | bare | calibrate".into())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tallybook-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until it is killed; says on the first line of standard output where.
fn bare(arguments: &[&str]) -> Result<()> {
    let mut options = BareOptions::default();
    if let Some(address) = arguments.first() {
        options.listen = parse(address)?;
    }
    if let Some(bytes) = arguments.get(1) {
        options.body_bytes = parse(bytes)?;
    }
    if let Some(threads) = arguments.get(2) {
        options.threads = parse(threads)?;
    }
    let bare = Bare::start(options)?;
    println!("{}", bare.url());
    bare.wait();
    Ok(())
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::Invalid(format!("{text:?} is not what is asked for here")))
}

/// Loads a bare server in another process, as fast as possible, and prints what was reached.
fn calibrate() -> Result<()> {
    measure_generator()?;
    let program = std::env::current_exe().map_err(Error::io("this program"))?;
    let mut server = Command::new(program)
        .arg("bare")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::io("start the bare server"))?;
    let measured = measure(&mut server);
    // It serves until it is killed.
    let _ = server.kill();
    let _ = server.wait();
    measured
}

/// Prints what the generator costs by itself, per request.
fn measure_generator() -> Result<()> {
    println!("workload, value bytes: CPU ns/request of the generator alone");
    for (workload, bytes) in [
        (Workload::ReadRandom, 100),
        (Workload::YcsbC, 100),
        (Workload::FillRandom, 100),
        (Workload::FillRandom, 4096),
    ] {
        let spec = Spec {
            workload,
            keys: 5_000_000,
            length: Length::Operations(5_000_000),
            values: ValueSizes::Fixed(bytes),
            verify: false,
            ..Spec::default()
        };
        let before = Process::current().usage()?.cpu_s;
        let loaded = load(&Nothing, &Plan::new(&spec)?, &LoadOptions::default(), &mut |_, _| {})?;
        let used = Process::current().usage()?.cpu_s - before;
        let each_ns = used * 1e9 / loaded.outcome.operations.max(1) as f64;
        println!("{:>12}, {bytes:>5}: {each_ns:.0}", workload.name());
    }
    Ok(())
}

fn measure(server: &mut std::process::Child) -> Result<()> {
    let mut url = String::new();
    if let Some(stdout) = server.stdout.take() {
        BufReader::new(stdout).read_line(&mut url).map_err(Error::io("the bare server"))?;
    }
    let target = HttpTarget::new(url.trim())?;
    println!(
        "connections  pipeline  requests/s  p50 us  p99 us  CPU us/request: generator, server"
    );
    let server = Process::new(server.id());
    for (threads, pipeline) in [(1, 1), (16, 1), (64, 1), (16, 16), (64, 16)] {
        let spec = Spec {
            workload: Workload::ReadRandom,
            pace: Pace::Closed,
            length: Length::Time(Duration::from_secs(3)),
            // The bare server knows no values.
            verify: false,
            threads,
            pipeline,
            ..Spec::default()
        };
        let before = (Process::current().usage()?.cpu_s, server.usage()?.cpu_s);
        let loaded = load(&target, &Plan::new(&spec)?, &LoadOptions::default(), &mut |_, _| {})?;
        if let Some(error) = loaded.error {
            return Err(error);
        }
        let after = (Process::current().usage()?.cpu_s, server.usage()?.cpu_s);
        let outcome = loaded.outcome;
        let each = 1e6 / outcome.operations.max(1) as f64;
        let latency = &outcome.kinds["get"].latency;
        println!(
            "{threads:>11}  {pipeline:>8}  {:>10.0}  {:>6.1}  {:>6.1}  {:>25.2}, {:>6.2}",
            outcome.throughput(),
            latency.p50_ns as f64 / 1e3,
            latency.p99_ns as f64 / 1e3,
            (after.0 - before.0) * each,
            (after.1 - before.1) * each,
        );
    }
    Ok(())
}
