//! What recently read keys save: two stores that hold the same and differ in that alone, read in turn.
//!
//! Both have the same memory for blocks and keys together. Passes alternate in one process, so that
//! what else the machine does hits both; the ratio is the median of the pairs'.

use std::path::Path;

use tallybook::{Exit, Options, Reading, ResourceOptions, Resources, Store};

use crate::bulk::{fill, key, mix, wait_until_settled};
use crate::process::thread_cpu_time;

const VALUE_BYTES: usize = 100;
const CACHE_BYTES: usize = 64 << 20;
const ZIPF_EXPONENT: f64 = 0.99;

/// Reads of one kind: the numbers of the keys, and what is asked of each.
struct Load {
    name: &'static str,
    numbers: Vec<u64>,
    read: fn(&Store, u64),
}

/// `recent_mib` 0 compares two stores that don't differ: what the ratios are worth.
pub(crate) fn run(dir: &Path, keys: u64, reads: u64, pairs: u64, recent_mib: u64) {
    assert!(keys >= 20 && reads > 0 && pairs > 0, "there is something to read");
    let cache_bytes = CACHE_BYTES.min(keys as usize * VALUE_BYTES / 3);
    println!("{keys} keys of {VALUE_BYTES} bytes, {reads} reads a pass, {pairs} pairs");
    let without = prepare(&dir.join("without"), keys, cache_bytes, 0);
    let with = prepare(&dir.join("with"), keys, cache_bytes, (recent_mib as usize) << 20);
    println!("load             ns without     ns with   ratio    (least to most)    hits");
    for load in loads(keys, reads) {
        pass(&without, &load);
        pass(&with, &load);
        let before = with.stages();
        let mut times = Vec::new();
        for pair in 0..pairs {
            let first = if pair % 2 == 0 { &without } else { &with };
            let second = if pair % 2 == 0 { &with } else { &without };
            let (a, b) = (pass(first, &load), pass(second, &load));
            times.push(if pair % 2 == 0 { (a, b) } else { (b, a) });
        }
        report(&load, &times, &with.stages().since(&before));
    }
}

fn report(load: &Load, times: &[(f64, f64)], stages: &tallybook::Stages) {
    let sorted = |of: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = times.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (without, with) = (sorted(|pair| pair.0), sorted(|pair| pair.1));
    let ratios = sorted(|pair| pair.1 / pair.0);
    let hits = stages.exits(Exit::FileRecent) as f64;
    let found = hits + (stages.exits(Exit::FileCache) + stages.exits(Exit::FileBlock)) as f64;
    let middle = times.len() / 2;
    println!(
        "{:<16} {:>10.1} {:>11.1} {:>7.3}    ({:.3} to {:.3}) {:>8.1} %",
        load.name,
        without[middle],
        with[middle],
        ratios[middle],
        ratios[0],
        ratios[ratios.len() - 1],
        100.0 * hits / found.max(1.0)
    );
}

/// A store of `keys` keys at rest.
fn prepare(dir: &Path, keys: u64, block_cache_bytes: usize, recent_keys_bytes: usize) -> Store {
    let resources = ResourceOptions { block_cache_bytes, recent_keys_bytes, ..Default::default() };
    let resources = Resources::new(resources).expect("threads start");
    let options = Options { reading: Reading::Pread, sample_every: 0, ..Options::default() };
    let store = Store::open_with(dir, options, resources).expect("a new store opens");
    let mut value = [0; VALUE_BYTES];
    for at in 0..keys {
        fill(&mut value, at);
        store.put(&key(b'r', at), &value).expect("a put");
    }
    store.flush().expect("a flush");
    wait_until_settled(&store);
    store
}

fn loads(keys: u64, reads: u64) -> Vec<Load> {
    let mut count = 0;
    let mut random = || {
        count += 1;
        mix(count ^ 0x5eed_0000_0000)
    };
    let mut zipf = Vec::with_capacity(keys as usize);
    let mut total = 0.0;
    for rank in 1..=keys {
        total += (rank as f64).powf(-ZIPF_EXPONENT);
        zipf.push(total);
    }
    let mut numbers = |of: &dyn Fn(u64) -> u64| (0..reads).map(|_| of(random())).collect();
    let zipfian: Vec<u64> = numbers(&|random| {
        let at = (random >> 11) as f64 / (1u64 << 53) as f64 * total;
        let rank = zipf.partition_point(|&upto| upto < at) as u64;
        // Ranks are strewn over the keys.
        mix(rank) % keys
    });
    let uniform: Vec<u64> = numbers(&|random| random % keys);
    let hot: Vec<u64> = numbers(&|random| mix(random % (keys / 20)) % keys);
    let absent: Vec<u64> = numbers(&|random| keys + random % keys);
    vec![
        Load { name: "GET zipfian", numbers: zipfian.clone(), read: get },
        Load { name: "GET 5 % of keys", numbers: hot, read: get },
        Load { name: "GET uniform", numbers: uniform.clone(), read: get },
        Load { name: "HEAD zipfian", numbers: zipfian, read: head },
        Load { name: "HEAD uniform", numbers: uniform, read: head },
        Load { name: "HEAD absent", numbers: absent, read: head_absent },
    ]
}

fn get(store: &Store, at: u64) {
    let value = store.get(&key(b'r', at)).expect("a get").expect("a value");
    assert_eq!(value[VALUE_BYTES - 1], at as u8);
}

fn head(store: &Store, at: u64) {
    let head = store.head(&key(b'r', at)).expect("a head").expect("a key");
    assert_eq!(head.length, VALUE_BYTES as u64);
}

fn head_absent(store: &Store, at: u64) {
    assert!(store.head(&key(b'r', at)).expect("a head").is_none());
}

/// CPU time of this thread a read, in nanoseconds.
fn pass(store: &Store, load: &Load) -> f64 {
    let started = thread_cpu_time();
    for &at in &load.numbers {
        (load.read)(store, at);
    }
    (thread_cpu_time() - started).as_nanos() as f64 / load.numbers.len() as f64
}
