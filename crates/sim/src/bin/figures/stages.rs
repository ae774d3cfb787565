//! Where the time of reads and writes goes while the data outgrows memory, over time.
//!
//! 1. `run` loads one store at a steady pace and writes a line of JSON an interval (`intervals.jsonl`).
//!    A run that was cut off goes on, with the same store, after the lines that are there.
//! 2. `report` makes tables, pictures and checks of those lines, as often as wished.
//!
//! The memory limit is the caller's: a control group that the process was started in.

mod draw;
mod interval;
mod load;
mod memory;
mod report;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tallybook::{Options, Reading, Store};

use self::interval::{Held, Interval, Probe};
use self::load::{Load, Seen};
use self::memory::Group;
pub(crate) use self::report::report;

/// The file of a run's lines.
const LINES: &str = "intervals.jsonl";

/// Keys put before the first interval of a run, for each second of it: a store that holds next to
/// nothing answers from its memtable, and says nothing about later.
const PUT_BEFORE_PER_SECOND: u64 = 60;

/// Threads that make the load.
const THREADS: usize = 2;

/// Absent keys asked for between two intervals.
const PROBE_KEYS: u64 = 2000;

/// What is asked of a run.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How long it takes.
    pub(crate) seconds: u64,
    /// How many lines it writes.
    pub(crate) intervals: u64,
    /// Operations a second, as long as the disk keeps up.
    pub(crate) rate: u64,
    /// Bytes of a value.
    pub(crate) value_bytes: usize,
    /// How files are read.
    pub(crate) reading: Reading,
}

/// Loads the store in `dir`, a new one unless `out` has lines of it, and writes down each interval in
/// `out`.
pub(crate) fn run(dir: &Path, out: &Path, settings: &Settings) {
    std::fs::create_dir_all(out).expect("the report's directory");
    let earlier = report::read(&out.join(LINES));
    let has_lines = !earlier.is_empty();
    assert_eq!(dir.exists(), has_lines, "a store goes on after its own lines, a new one has none");
    // Small memtables, so that a tree of several levels comes about in minutes; small segments,
    // because two of them, the one that is written and the next, are always in memory.
    let options = Options {
        memtable_bytes: 1 << 20,
        segment_bytes_max: 16 << 20,
        sample_every: 8,
        reading: settings.reading,
        ..Options::default()
    };
    let store = Store::open(dir, options).expect("the store opens");
    let load = Load {
        store: &store,
        value_bytes: settings.value_bytes,
        pause: Duration::from_secs(THREADS as u64) / u32::try_from(settings.rate.max(1)).unwrap(),
        written: AtomicU64::new(earlier.last().map_or(0, |last| last.held.keys)),
        next: Mutex::new(()),
        gates: (0..THREADS).map(|_| Mutex::new(Seen::default())).collect(),
        is_over: AtomicBool::new(false),
    };
    if !has_lines {
        load.put_before(settings.seconds * PUT_BEFORE_PER_SECOND);
    }
    let ended_s = earlier.last().map_or(0.0, |last| last.ended_s);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let load = &load;
            scope.spawn(move || load.work(number));
        }
        observe(&load, out, settings, ended_s);
        load.is_over.store(true, Ordering::Relaxed);
    });
    store.close().expect("the store closes");
}

fn observe(load: &Load<'_>, out: &Path, settings: &Settings, mut ended_s: f64) {
    let lines = OpenOptions::new().create(true).append(true).open(out.join(LINES));
    let mut lines = lines.expect("a report file");
    let group = Group::of_this_process();
    let length = Duration::from_secs(settings.seconds) / settings.intervals.max(1) as u32;
    let mut before = load.store.stages();
    let mut faults = group.read().major_faults;
    for number in 0..settings.intervals {
        let started = Instant::now();
        std::thread::sleep(length);
        let mut gates: Vec<_> = load.gates.iter().map(|gate| gate.lock()).collect();
        let elapsed = started.elapsed().as_secs_f64();
        ended_s += elapsed;
        let mut interval = Interval { ended_s, length_s: elapsed, ..Interval::default() };
        let seen = Load::take_seen(&mut gates);
        let clients = [
            ("client.get", &seen.gets),
            ("client.head", &seen.heads),
            ("client.head.absent", &seen.heads_absent),
            ("client.put", &seen.puts),
        ];
        interval.record(&load.store.stages().since(&before), &clients);
        interval.held = Held::of(&load.store.stats(), load.written.load(Ordering::Acquire));
        interval.memory = group.read();
        let faults_now = interval.memory.major_faults;
        interval.memory.major_faults -= std::mem::replace(&mut faults, faults_now);
        let absent = load::absent_keys(number * PROBE_KEYS, PROBE_KEYS);
        interval.probe = Probe::ask(load.store, absent);
        let line = serde_json::to_string(&interval).expect("figures are JSON");
        writeln!(lines, "{line}").expect("the report file takes a line");
        report::print_line(&interval);
        before = load.store.stages();
        drop(gates);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_gives_lines_tables_and_pictures() {
        for reading in [Reading::Mapped, Reading::Pread] {
            let root = tempfile::tempdir().unwrap();
            let settings =
                Settings { seconds: 2, intervals: 4, rate: 2000, value_bytes: 4096, reading };
            run(&root.path().join("store"), root.path(), &settings);
            // The same again goes on after the first.
            run(&root.path().join("store"), root.path(), &settings);
            let intervals = report::read(&root.path().join(LINES));
            assert_eq!(intervals.len(), 8);
            assert!(intervals.is_sorted_by(|a, b| a.held.keys < b.held.keys));
            assert!(intervals.is_sorted_by(|a, b| a.ended_s < b.ended_s));
            for interval in &intervals {
                assert_eq!(interval.probe.keys, PROBE_KEYS);
                for stage in ["client.get", "client.head", "client.head.absent", "client.put"] {
                    assert!(interval.times(stage).count > 0, "{stage} in {interval:?}");
                }
            }
            let sampled = |stage| intervals.iter().map(|one| one.times(stage).count).sum::<u64>();
            assert!(sampled("get.head") > 0 && sampled("put.journal") > 0);
            assert!(intervals.iter().map(|one| one.exits("head.missed")).sum::<u64>() > 0);
            report(root.path());
            let readme = std::fs::read_to_string(root.path().join("README.md")).unwrap();
            for picture in draw::NAMES {
                let svg = std::fs::read_to_string(root.path().join(picture)).unwrap();
                assert!(svg.starts_with("<svg") && svg.contains("<polyline"), "{picture}");
                assert!(readme.contains(picture), "{picture} is shown");
            }
        }
    }
}
