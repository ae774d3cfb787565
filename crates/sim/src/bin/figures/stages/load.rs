//! The load: puts, gets and heads at a steady pace, over keys that become more and more.
//!
//! Of ten operations four are gets, four heads and two puts. A quarter of the reads ask for keys that
//! were never written, strewn between those that were; a quarter of the puts overwrite. Keys are read
//! evenly, so that no cache helps but one that holds the data.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tallybook::Store;
use tallybook::stages::Distribution;

use crate::bulk::{fill, key, mix};

/// Numbers from here on were never written.
const ABSENT: u64 = 1 << 40;

/// What the callers of a store share.
pub(super) struct Load<'a> {
    pub(super) store: &'a Store,
    pub(super) value_bytes: usize,
    /// Between two operations of one thread.
    pub(super) pause: Duration,
    /// Numbers below it were written.
    pub(super) written: AtomicU64,
    /// Held while the next number is put.
    pub(super) next: Mutex<()>,
    /// Held by each thread during an operation; to take all is to pause the load.
    pub(super) gates: Vec<Mutex<Seen>>,
    pub(super) is_over: AtomicBool,
}

/// What one thread saw since it was last asked.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) gets: Distribution,
    pub(super) heads: Distribution,
    pub(super) heads_absent: Distribution,
    pub(super) puts: Distribution,
}

/// The key of a number of the load.
fn key_of(number: u64) -> [u8; 16] {
    key(b's', number)
}

/// As many keys as asked for that are in no store of this load.
pub(super) fn absent_keys(from: u64, count: u64) -> impl Iterator<Item = [u8; 16]> {
    (from..from + count).map(|number| key_of(2 * ABSENT + number))
}

impl Load<'_> {
    /// Puts the first keys.
    pub(super) fn put_before(&self, keys: u64) {
        let mut value = vec![0; self.value_bytes];
        for _ in 0..keys {
            self.put_next(&mut value);
        }
    }

    /// Puts the next number. Each is put before the next is given out, because all below `written` may
    /// be read.
    fn put_next(&self, value: &mut [u8]) -> Duration {
        let _next = self.next.lock();
        let number = self.written.load(Ordering::Relaxed);
        let time = self.put(number, value);
        self.written.store(number + 1, Ordering::Release);
        time
    }

    fn put(&self, number: u64, value: &mut [u8]) -> Duration {
        fill(value, number);
        let started = Instant::now();
        self.store.put(&key_of(number), value).expect("a put");
        started.elapsed()
    }

    /// The work of thread `number` of the load, until it is over. The first makes the new keys.
    pub(super) fn work(&self, number: usize) {
        let mut value = vec![0; self.value_bytes];
        let mut expected = vec![0; self.value_bytes];
        let mut due = Instant::now();
        let mut step = number as u64;
        while !self.is_over.load(Ordering::Relaxed) {
            due += self.pause;
            let now = Instant::now();
            if due > now {
                std::thread::sleep(due - now);
            } else if now - due > Duration::from_millis(100) {
                // The disk sets the pace: what was missed is not made up for.
                due = now;
            }
            let mut seen = self.gates[number].lock();
            step += self.gates.len() as u64;
            self.step(mix(step), &mut value, &mut expected, &mut seen);
        }
    }

    fn step(&self, random: u64, value: &mut [u8], expected: &mut [u8], seen: &mut Seen) {
        let written = self.written.load(Ordering::Acquire);
        let present = (random >> 8) % written.max(1);
        let is_absent = (random >> 4).is_multiple_of(4) || written == 0;
        let number = if is_absent { ABSENT + present } else { present };
        let key = key_of(number);
        let started = Instant::now();
        match random % 10 {
            0..4 => {
                let found = self.store.get(&key).expect("a get");
                seen.gets.record(started.elapsed());
                assert_eq!(found.is_some(), !is_absent, "key {number}");
                if let Some(found) = found {
                    fill(expected, number);
                    assert!(*found == *expected, "value {number} is not what was put");
                }
            }
            4..8 => {
                let found = self.store.head(&key).expect("a head");
                let heads = if is_absent { &mut seen.heads_absent } else { &mut seen.heads };
                heads.record(started.elapsed());
                assert_eq!(found.is_some(), !is_absent, "key {number}");
            }
            _ => {
                let overwrites = (random >> 6).is_multiple_of(4) && written > 0;
                seen.puts.record(match overwrites {
                    true => self.put(present, value),
                    false => self.put_next(value),
                });
            }
        }
    }

    /// What was seen since the last call. Requires: the load is paused.
    pub(super) fn take_seen(gates: &mut [parking_lot::MutexGuard<'_, Seen>]) -> Seen {
        let mut all = Seen::default();
        for gate in gates {
            let seen = std::mem::take(&mut **gate);
            all.gets.add(&seen.gets);
            all.heads.add(&seen.heads);
            all.heads_absent.add(&seen.heads_absent);
            all.puts.add(&seen.puts);
        }
        all
    }
}
