//! From which size on a value should stay in the journal: the same work with the value in the tree and
//! out of it, in turn.

use std::path::Path;
use std::time::Instant;

use tallybook::{Options, ScanOptions, Store};

use crate::bulk::wait_until_settled;
use crate::process::cpu_time;

const KEYS: u64 = 100_000;

/// The largest value that may be inline.
const INLINE_MAX: usize = 32 << 10;

pub(crate) fn run(dir: &Path) {
    println!(
        "value bytes, place, put us CPU, get us, scan us, write amplification, space amplification"
    );
    for bytes in [256usize, 512, 1024, 2048, 4096] {
        for (place, inline_max_bytes) in [("tree", INLINE_MAX), ("journal", 1)].repeat(2) {
            let line = measure(dir, bytes, inline_max_bytes);
            println!("{bytes:>6} {place:>8} {line}");
        }
    }
}

fn measure(dir: &Path, bytes: usize, inline_max_bytes: usize) -> String {
    let _ = std::fs::remove_dir_all(dir);
    let options = Options { inline_max_bytes, ..Options::default() };
    let store = Store::open(dir, options).expect("a new store opens");
    let key = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
    let value = vec![7; bytes];
    let cpu = cpu_time();
    // Each key twice: half of what was written is dead.
    for at in 0..2 * KEYS {
        store.put(&key(at % KEYS), &value).expect("a put");
    }
    wait_until_settled(&store);
    let put_us = (cpu_time() - cpu).as_secs_f64() * 1e6 / (2 * KEYS) as f64;
    let started = Instant::now();
    for at in 0..KEYS {
        let found = store.get(&key((at * 7919) % KEYS)).expect("a get");
        assert_eq!(found.expect("a value").len(), bytes);
    }
    let get_us = started.elapsed().as_secs_f64() * 1e6 / KEYS as f64;
    let started = Instant::now();
    assert_eq!(store.range(ScanOptions::default()).expect("a range").count() as u64, KEYS);
    let scan_us = started.elapsed().as_secs_f64() * 1e6 / KEYS as f64;
    let stats = store.stats();
    let tables = stats.flush_bytes_written + stats.compaction_bytes_written;
    let written = stats.journal_bytes_written + tables + stats.collection_bytes_written;
    let live = KEYS * (8 + bytes as u64);
    let held = stats.segment_bytes + stats.levels.iter().map(|level| level.bytes).sum::<u64>();
    store.close().expect("the store closes");
    std::fs::remove_dir_all(dir).expect("the store's directory");
    format!(
        "{put_us:>8.2} {get_us:>8.3} {scan_us:>8.3} {:>8.2} {:>8.2}",
        written as f64 / stats.user_bytes_written as f64,
        held as f64 / live as f64
    )
}
