//! A few large values overwritten many times: the space must come back by itself.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tallybook::{Options, Store};

use crate::bulk::wait_until_settled;
use crate::process::{anonymous_bytes, disk_bytes, figure};

const KEYS: u64 = 5;
const VALUE_BYTES: usize = 1 << 20;

fn value(round: u64, key: u64) -> Vec<u8> {
    let mut value = vec![(round * KEYS + key) as u8; VALUE_BYTES];
    value[..8].copy_from_slice(&round.to_le_bytes());
    value[VALUE_BYTES - 8..].copy_from_slice(&key.to_le_bytes());
    value
}

fn round_of(value: &[u8], key: u64) -> u64 {
    let round = u64::from_le_bytes(value[..8].try_into().unwrap());
    assert!(value == self::value(round, key), "a value of round {round} is damaged");
    round
}

pub(crate) fn run(dir: &Path, writes: u64) {
    assert!(!dir.exists(), "{} exists", dir.display());
    let store = Store::open(dir, Options::default()).expect("a new store opens");
    let rounds = writes / KEYS;
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut disk_max = 0;
    let started = Instant::now();
    let snapshot = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Values may only become newer while they are read.
            let mut newest = [0; KEYS as usize];
            while !done.load(Ordering::Relaxed) {
                for key in 0..KEYS {
                    if let Some(value) = store.get(&key.to_be_bytes()).expect("a get") {
                        let round = round_of(&value, key);
                        assert!(round >= newest[key as usize], "a value became older");
                        newest[key as usize] = round;
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let mut snapshot = None;
        for round in 0..rounds {
            for key in 0..KEYS {
                store.put(&key.to_be_bytes(), &value(round, key)).expect("a put");
            }
            if round == rounds / 2 {
                snapshot = Some(store.snapshot());
            }
            if round % 100 == 0 {
                disk_max = disk_max.max(disk_bytes(dir));
            }
        }
        done.store(true, Ordering::Relaxed);
        snapshot
    });
    let elapsed = started.elapsed().as_secs_f64();
    figure("overwrites of 1 MiB", writes as f64 / elapsed, "/s");
    figure("verified reads meanwhile", reads.load(Ordering::Relaxed) as f64, "");
    figure("most disk meanwhile", disk_max as f64 / 1e6, "MB");
    if let Some(snapshot) = snapshot {
        for key in 0..KEYS {
            let value = snapshot.get(&key.to_be_bytes()).expect("a get").expect("a value");
            assert_eq!(round_of(&value, key), rounds / 2, "the snapshot sees its own moment");
        }
    }
    let settling = Instant::now();
    wait_until_settled(&store);
    figure("settled after", settling.elapsed().as_secs_f64() - 3.0, "s");
    for key in 0..KEYS {
        let value = store.get(&key.to_be_bytes()).expect("a get").expect("a value");
        assert_eq!(round_of(&value, key), rounds - 1);
    }
    let stats = store.stats();
    let live = KEYS * (8 + VALUE_BYTES as u64);
    let apart = stats.active_segment_bytes + stats.spare_segment_bytes;
    let disk = disk_bytes(dir);
    figure("live bytes", live as f64 / 1e6, "MB");
    figure("active and spare segments", apart as f64 / 1e6, "MB");
    figure("disk at rest, those apart", (disk - apart) as f64 / 1e6, "MB");
    figure("disk at rest, of live bytes", (disk - apart) as f64 / live as f64, "");
    let tables = stats.flush_bytes_written + stats.compaction_bytes_written;
    let written = stats.journal_bytes_written + tables + stats.collection_bytes_written;
    figure("write amplification", written as f64 / stats.user_bytes_written as f64, "");
    figure("memory of its own", anonymous_bytes() as f64 / 1e6, "MB");
    store.close().expect("the store closes");
}
