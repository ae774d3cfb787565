//! Ten million small values and two hundred thousand large ones: loaded, read back, reopened.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tallybook::{Options, Stats, Store};

use crate::process::{anonymous_bytes, cpu_time, disk_bytes, figure, resident_bytes};

const SMALL_BYTES: usize = 100;
const LARGE_BYTES: usize = 4096;

/// A number for each number, one to one, without order (Steele, Lea and Flood 2014).
pub(crate) fn mix(at: u64) -> u64 {
    let mut z = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The 16-byte key of a number: order of keys is not order of numbers.
pub(crate) fn key(prefix: u8, at: u64) -> [u8; 16] {
    let mut key = [prefix; 16];
    key[1..9].copy_from_slice(&mix(at).to_be_bytes());
    key[9..16].copy_from_slice(&at.to_be_bytes()[1..]);
    key
}

/// Fills `value` with what belongs to a number; half of it compresses.
pub(crate) fn fill(value: &mut [u8], at: u64) {
    let half = value.len() / 2;
    value.fill(at as u8);
    for (piece, chunk) in value[..half].chunks_mut(8).enumerate() {
        let bytes = mix(at ^ ((piece as u64) << 40)).to_le_bytes();
        let len = chunk.len();
        chunk.copy_from_slice(&bytes[..len]);
    }
}

pub(crate) fn run(dir: &Path, small: u64, large: u64) {
    assert!(!dir.exists(), "{} exists", dir.display());
    let options = Options::default();
    let budget = options.write_buffer_bytes;
    let store = Store::open(dir, options.clone()).expect("a new store opens");
    load(&store, "small", b's', small, SMALL_BYTES);
    load(&store, "large", b'l', large, LARGE_BYTES);
    let settling = Instant::now();
    wait_until_settled(&store);
    figure("settled after", settling.elapsed().as_secs_f64(), "s");
    space(&store, dir, small, large, budget);
    read_back(&store, "small", b's', small, SMALL_BYTES);
    read_back(&store, "large", b'l', large, LARGE_BYTES);
    figure("memory of its own after reading", anonymous_bytes() as f64 / 1e6, "MB");
    store.close().expect("the store closes");
    drop(store);
    let opening = Instant::now();
    let store = Store::open(dir, options.clone()).expect("a closed store opens");
    figure("open after a clean close", opening.elapsed().as_secs_f64() * 1e3, "ms");
    store.close().expect("the store closes");
    drop(store);
    let child = Command::new(std::env::current_exe().unwrap()).arg("abandon").arg(dir).status();
    assert!(!child.expect("the child runs").success(), "the child ends by abort");
    let opening = Instant::now();
    let store = Store::open(dir, options).expect("an abandoned store opens");
    let elapsed = opening.elapsed().as_secs_f64();
    let replayed = store.stats().replayed_bytes as f64;
    figure("journal replayed", replayed / 1e6, "MB");
    figure("open with that journal", elapsed * 1e3, "ms");
    figure("per 64 MiB of journal", elapsed * 1e3 * (64 << 20) as f64 / replayed, "ms");
}

/// Writes 60 MB that are flushed by nobody, and ends the process.
pub(crate) fn abandon(dir: &Path) {
    let store = Store::open(dir, Options::default()).expect("a closed store opens");
    let mut value = [0; SMALL_BYTES];
    for at in 0..190_000 {
        fill(&mut value, at);
        store.put(&key(b'a', at), &value).expect("a put");
    }
    std::process::abort();
}

fn load(store: &Store, name: &str, prefix: u8, count: u64, bytes: usize) {
    let mut value = vec![0; bytes];
    let (started, cpu) = (Instant::now(), cpu_time());
    let mut longest = Duration::ZERO;
    let mut last = started;
    for at in 0..count {
        fill(&mut value, at);
        store.put(&key(prefix, at), &value).expect("a put");
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    let elapsed = started.elapsed().as_secs_f64();
    figure(&format!("{name}: puts"), count as f64 / elapsed, "/s");
    let cpu_us = (cpu_time() - cpu).as_secs_f64() * 1e6 / count as f64;
    figure(&format!("{name}: CPU per put, background included"), cpu_us, "us");
    figure(&format!("{name}: longest put"), longest.as_secs_f64() * 1e3, "ms");
    figure(
        &format!("{name}: memory of its own after loading"),
        anonymous_bytes() as f64 / 1e6,
        "MB",
    );
}

fn read_back(store: &Store, name: &str, prefix: u8, count: u64, bytes: usize) {
    let mut expected = vec![0; bytes];
    let (started, cpu) = (Instant::now(), cpu_time());
    for at in 0..count {
        let at = (at * 0x9e37_79b1) % count.max(1);
        fill(&mut expected, at);
        let found = store.get(&key(prefix, at)).expect("a get");
        assert!(found.as_deref() == Some(&expected[..]), "{name} value {at} is not what was put");
    }
    figure(&format!("{name}: verified gets"), count as f64 / started.elapsed().as_secs_f64(), "/s");
    let cpu_us = (cpu_time() - cpu).as_secs_f64() * 1e6 / count as f64;
    figure(&format!("{name}: CPU per verified get"), cpu_us, "us");
    let scanned = store
        .range(tallybook::ScanOptions { prefix: Some(vec![prefix].into()), ..Default::default() })
        .expect("a range");
    let (started, mut seen) = (Instant::now(), 0);
    for item in scanned {
        item.expect("an item");
        seen += 1;
    }
    assert_eq!(seen, count, "{name} keys in a range");
    figure(&format!("{name}: scanned"), count as f64 / started.elapsed().as_secs_f64(), "/s");
}

/// Waits until background work has had nothing to do for two seconds.
pub(crate) fn wait_until_settled(store: &Store) {
    let work = |stats: &Stats| (stats.flushes, stats.compactions, stats.collections);
    let mut before = work(&store.stats());
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(100));
        let now = work(&store.stats());
        if now != before {
            (before, quiet) = (now, Instant::now());
        }
    }
}

fn space(store: &Store, dir: &Path, small: u64, large: u64, budget: usize) {
    let stats = store.stats();
    let live = small * (16 + SMALL_BYTES as u64) + large * (16 + LARGE_BYTES as u64);
    let disk = disk_bytes(dir) - stats.active_segment_bytes - stats.spare_segment_bytes;
    figure("live bytes", live as f64 / 1e6, "MB");
    figure("disk, active and spare segments apart", disk as f64 / 1e6, "MB");
    figure("space amplification", disk as f64 / live as f64, "");
    let tables = stats.flush_bytes_written + stats.compaction_bytes_written;
    let written = stats.journal_bytes_written + tables + stats.collection_bytes_written;
    figure("write amplification", written as f64 / stats.user_bytes_written as f64, "");
    figure("write buffer budget", budget as f64 / 1e6, "MB");
    figure("memory of its own", anonymous_bytes() as f64 / 1e6, "MB");
    figure("memory resident, mapped files included", resident_bytes() as f64 / 1e6, "MB");
    println!("writes slowed {}, {:?} in all", stats.stalled_writes, stats.stalled);
    for (level, figures) in stats.levels.iter().enumerate().filter(|(_, level)| level.files > 0) {
        println!(
            "L{level}: {} runs, {} files, {:.1} MB, {} entries",
            figures.runs,
            figures.files,
            figures.bytes as f64 / 1e6,
            figures.entries
        );
    }
}
