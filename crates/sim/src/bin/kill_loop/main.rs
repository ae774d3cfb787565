//! Kills a server again and again under load, and checks after each restart that no acknowledged
//! write was lost, that none is missing before a later one, and that answers don't flicker.
//!
//! Each cycle: start, check, write with all writers, kill at a random moment. The oracle is this
//! process: an acknowledgement counts once its whole answer was read here. It knows nothing of the
//! engine but its promises.

mod random;
mod value;
mod http;
mod report;
mod server;
mod model;
mod writer;
mod check;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::random::Random;
use crate::report::{Totals, Violation};
use crate::server::{Opened, Server};
use crate::writer::Writer;

/// Longest time that writers run in a cycle.
const RUN_MS_MAX: u64 = 1500;

/// Longest time after its start at which an opening server is killed.
const OPENING_MS_MAX: u64 = 60;

/// Longest time after SIGTERM at which a stopping server is killed.
const STOPPING_MS_MAX: u64 = 60;

/// Every so many cycles all keys are checked, else those touched lately.
const FULL_CHECK_CYCLES: u64 = 10;

const USAGE: &str = "\
usage: kill_loop --binary PATH [--cycles N] [--writers N] [--seed N] [--dir DIR] [--long]
  --binary PATH  the tallybook binary
  --cycles N     kills (default 300; with --long 10000)
  --writers N    concurrent writers (default 16)
  --seed N       replays the choices of a run (not the moments at which the kernel schedules)
  --dir DIR      where the store stands (default: a new directory, removed after success)";

/// What was asked for.
struct Arguments {
    binary: PathBuf,
    cycles: u64,
    writers: usize,
    seed: u64,
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("kill_loop: {what}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let is_temporary = arguments.dir.is_none();
    let dir = arguments.dir.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("tallybook-kill-loop-{}", std::process::id()))
    });
    println!("seed {} in {}", arguments.seed, dir.display());
    let mut totals = Totals::default();
    let outcome = run(&arguments, &dir, &mut totals);
    println!("{totals}");
    match outcome {
        Ok(()) if is_temporary => {
            // What is left in a temporary directory harms nobody.
            let _ = std::fs::remove_dir_all(&dir);
            ExitCode::SUCCESS
        }
        Ok(()) => ExitCode::SUCCESS,
        Err(violations) => {
            for violation in violations.iter().take(20) {
                println!("violation: {violation}");
            }
            println!("{} violations; seed {}", violations.len(), arguments.seed);
            println!("the store and the server's log are left in {}", dir.display());
            ExitCode::FAILURE
        }
    }
}

/// Runs all cycles; stops at the first one with a violation.
fn run(
    arguments: &Arguments,
    dir: &std::path::Path,
    totals: &mut Totals,
) -> Result<(), Vec<Violation>> {
    let mut random = Random::new(arguments.seed);
    let mut writers: Vec<Writer> =
        (0..arguments.writers).map(|number| Writer::new(number, random.fork())).collect();
    std::fs::create_dir_all(dir)
        .map_err(|error| vec![Violation::harness(format!("cannot make {dir:?}: {error}"))])?;
    let mut checked = 0;
    for cycle in 1..=arguments.cycles {
        totals.cycles = cycle;
        let server = Server::start(&arguments.binary, dir, &mut random)?;
        if random.chance(15) {
            thread::sleep(Duration::from_micros(random.below(OPENING_MS_MAX * 1000)));
            totals.killed_opening += 1;
            server.kill();
            continue;
        }
        let opened = server.wait_until_open().inspect_err(|_| totals.failed_opens += 1)?;
        totals.opened(opened.open_time);
        checked += 1;
        check_all(&mut writers, &opened, checked % FULL_CHECK_CYCLES == 0, totals)?;
        write_and_kill(&mut writers, opened, &mut random, totals)?;
        if cycle % 10 == 0 {
            println!("{totals}");
        }
    }
    finish(arguments, dir, &mut writers, &mut random, totals)
}

/// A last open, with every key checked, a clean stop, and a check of every byte on disk.
fn finish(
    arguments: &Arguments,
    dir: &std::path::Path,
    writers: &mut [Writer],
    random: &mut Random,
    totals: &mut Totals,
) -> Result<(), Vec<Violation>> {
    let opened = Server::start(&arguments.binary, dir, random)?
        .wait_until_open()
        .inspect_err(|_| totals.failed_opens += 1)?;
    totals.opened(opened.open_time);
    check_all(writers, &opened, true, totals)?;
    opened.stop_cleanly()?;
    server::verify(&arguments.binary, dir)?;
    Ok(())
}

fn check_all(
    writers: &mut [Writer],
    opened: &Opened,
    full: bool,
    totals: &mut Totals,
) -> Result<(), Vec<Violation>> {
    let address = opened.address();
    let outcomes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = writers
            .iter_mut()
            .map(|writer| scope.spawn(move || check::check(writer, address, full)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a checker panicked")).collect()
    });
    let mut violations = Vec::new();
    for outcome in outcomes {
        totals.checked_keys += outcome.checked_keys;
        totals.lost += outcome.lost;
        totals.holes += outcome.holes;
        violations.extend(outcome.violations);
    }
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

/// Lets all writers write until the server is killed, with SIGKILL at once or during a clean stop.
fn write_and_kill(
    writers: &mut [Writer],
    mut opened: Opened,
    random: &mut Random,
    totals: &mut Totals,
) -> Result<(), Vec<Violation>> {
    let address = opened.address();
    let run_for = Duration::from_micros(random.below(RUN_MS_MAX * 1000));
    let during_stop = random.chance(15).then(|| random.below(STOPPING_MS_MAX * 1000));
    let ending = AtomicBool::new(false);
    let (ended_by_itself, outcomes) = thread::scope(|scope| {
        let ending = &ending;
        let threads: Vec<_> = writers
            .iter_mut()
            .map(|writer| scope.spawn(move || writer.write_until_broken(address, ending)))
            .collect();
        thread::sleep(run_for);
        let ended_by_itself = opened.has_ended();
        ending.store(true, Ordering::SeqCst);
        if let Some(wait_us) = during_stop {
            opened.ask_to_stop();
            thread::sleep(Duration::from_micros(wait_us));
        }
        opened.kill();
        let outcomes: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("a writer panicked")).collect();
        (ended_by_itself, outcomes)
    });
    totals.killed_stopping += u64::from(during_stop.is_some());
    let mut violations = Vec::new();
    if ended_by_itself {
        violations.push(Violation::new("the server ended by itself; its log says why"));
    }
    for outcome in outcomes {
        totals.acknowledged += outcome.acknowledged;
        totals.indeterminate += outcome.indeterminate;
        violations.extend(outcome.violation);
    }
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

fn arguments() -> Result<Arguments, String> {
    fn number(name: &str, text: Option<String>) -> Result<u64, String> {
        text.and_then(|text| text.parse().ok()).ok_or_else(|| format!("{name} needs a number"))
    }
    let (mut binary, mut dir, mut cycles, mut writers) = (None, None, None, 16);
    let mut seed = random::seed_from_clock();
    let mut long = false;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--binary" => binary = words.next().map(PathBuf::from),
            "--dir" => dir = words.next().map(PathBuf::from),
            "--cycles" => cycles = Some(number(&word, words.next())?),
            "--writers" => writers = number(&word, words.next())? as usize,
            "--seed" => seed = number(&word, words.next())?,
            "--long" => long = true,
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    if !(1..=99).contains(&writers) {
        return Err("--writers is 1 to 99".into());
    }
    let binary = binary.ok_or("--binary is missing")?;
    let cycles = cycles.unwrap_or(if long { 10_000 } else { 300 });
    Ok(Arguments { binary, cycles, writers, seed, dir })
}
