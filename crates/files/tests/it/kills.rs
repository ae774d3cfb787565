//! A process that writes, replaces and unlinks is killed again and again; what it had acknowledged is
//! there each time, whole. `TALLYBOOK_LONG` makes it 300 times, or as often as it says if that is more
//! than 1. Most of a cycle is giving back the space of what the process replaced or unlinked.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tallybook_files::{
    CopyOptions, Durability, FileStore, ListOptions, OpenOptions, UnlinkOptions, VerifyOptions,
    WriteOptions,
};

use crate::support::{CHUNK, bytes, is_long, small};

const DIRECTORY: &str = "TALLYBOOK_KILLED_DIR";
const FIRST: &str = "TALLYBOOK_KILLED_FIRST";

/// Names that the process works on, each in a thread's turn of its own.
const NAMES: u64 = 8;

/// What step `number` does: which name, and the seed of its new bytes; `None` unlinks.
fn step(number: u64) -> (String, Option<u64>) {
    let name = format!("dir/{}", number % NAMES);
    (name, (number % 5 != 4).then_some(number))
}

fn size(seed: u64) -> usize {
    [0, 10, CHUNK, 3 * CHUNK + 1, 9 * CHUNK][(seed % 5) as usize] + (seed % 7) as usize
}

/// Not a test of its own: what the killed process does. It says a number before a step and after it.
#[test]
fn killed_process() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let store = FileStore::open(dir, OpenOptions::default()).unwrap();
    let mut out = std::io::stdout();
    for number in first.. {
        let (name, seed) = step(number);
        writeln!(out, "begin {number}").unwrap();
        let durability = Some(Durability::Os);
        match seed {
            // By way of another name now and then.
            Some(seed) if seed % 3 == 0 => {
                let file = bytes(seed, size(seed));
                store
                    .write("temporary", &file, WriteOptions { durability, ..Default::default() })
                    .unwrap();
                store.rename("temporary", &name, CopyOptions::default()).unwrap();
            }
            Some(seed) => {
                let file = bytes(seed, size(seed));
                store
                    .write(&name, &file, WriteOptions { durability, ..Default::default() })
                    .unwrap();
            }
            None => {
                store.unlink(&name, UnlinkOptions::default()).unwrap();
            }
        }
        writeln!(out, "done {number}").unwrap();
    }
}

/// How long something took each time.
struct Times {
    count: u32,
    sum: Duration,
    max: Duration,
}

impl Times {
    const fn new() -> Self {
        Times { count: 0, sum: Duration::ZERO, max: Duration::ZERO }
    }

    fn note(&mut self, start: Instant) {
        let took = start.elapsed();
        self.count += 1;
        self.sum += took;
        self.max = self.max.max(took);
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mean_ms = self.sum.as_millis() / u128::from(self.count.max(1));
        write!(f, "{mean_ms} ms, at most {} ms", self.max.as_millis())
    }
}

fn start(dir: &Path, first: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::killed_process", "--nocapture"])
        .env(DIRECTORY, dir)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets the process run, kills it; answers the last step it began and the last it acknowledged.
fn run_and_kill(dir: &Path, first: u64, after: Duration) -> (u64, Option<u64>) {
    let mut child = start(dir, first);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reader = std::thread::spawn(move || {
        let (mut begun, mut done) = (first, None);
        for line in lines.map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("begin ") {
                begun = number.parse().unwrap_or(begun);
            }
            if let Some(number) = line.strip_prefix("done ") {
                done = number.parse().ok().or(done);
            }
        }
        (begun, done)
    });
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn a_killed_process_leaves_what_it_acknowledged_and_no_part_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    FileStore::create(dir.path(), small(), OpenOptions::default()).unwrap().close().unwrap();
    let mut expected: BTreeMap<String, Option<u64>> = BTreeMap::new();
    let mut first = 0;
    let asked = std::env::var("TALLYBOOK_LONG").ok().and_then(|asked| asked.parse().ok());
    let cycles: u64 = match asked.filter(|&cycles| cycles > 1) {
        Some(cycles) => cycles,
        None if is_long() => 300,
        None => 6,
    };
    let mut acknowledged = 0;
    let [mut reopening, mut freeing, mut verifying] = [const { Times::new() }; 3];
    for cycle in 0..cycles {
        let after = Duration::from_millis(150 + cycle * 37 % 200);
        let (begun, done) = run_and_kill(dir.path(), first, after);
        for number in first..done.map_or(first, |done| done + 1) {
            acknowledged += 1;
            let (name, seed) = step(number);
            expected.insert(name, seed);
        }
        let start = Instant::now();
        let store = FileStore::open(dir.path(), OpenOptions::default()).unwrap();
        reopening.note(start);
        for at in 0..NAMES {
            let name = format!("dir/{at}");
            let read = store.read(&name).unwrap();
            let is = |seed: Option<u64>| read == seed.map(|seed| bytes(seed, size(seed)));
            let before = expected.get(&name).copied().flatten();
            let (name_begun, seed_begun) = step(begun);
            let is_after = name_begun == name && is(seed_begun);
            assert!(
                is(before) || is_after,
                "cycle {cycle}: {name} is neither {before:?} nor the step {begun}"
            );
            if is_after && !is(before) {
                expected.insert(name, seed_begun);
            }
        }
        let start = Instant::now();
        store.unlink("temporary", UnlinkOptions::default()).unwrap();
        store.reap().unwrap();
        freeing.note(start);
        let start = Instant::now();
        let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
        assert!(report.damage.is_empty() && report.orphans == 0, "cycle {cycle}: {report:?}");
        let totals = store.totals();
        let listed = store.list(ListOptions::default()).unwrap();
        assert_eq!(totals.files, listed.entries.len() as u64);
        assert_eq!((totals.live_bytes, totals.dead_bytes), (totals.file_bytes, 0));
        store.close().unwrap();
        verifying.note(start);
        first = begun + 1;
        if (cycle + 1) % 50 == 0 || cycle + 1 == cycles {
            println!(
                "{} kills, {acknowledged} steps acknowledged, 0 lost, 0 files in part; reopening \
                 {reopening}; freeing what was dead {freeing}; verifying {verifying}",
                cycle + 1
            );
        }
    }
    assert!(first > cycles, "the process did {first} steps in {cycles} runs");
}
