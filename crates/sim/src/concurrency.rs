//! Threads against one store on the disk, while it flushes and merges in the background (R13, in part R11).
//!
//! Each trial does a fixed amount of work and checks what must hold in every interleaving, so that no verdict
//! depends on timing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use tallybook::batch::WriteBatch;
use tallybook::error::Error;
use tallybook::options::{Durability, Options};
use tallybook::store::{Condition, ScanOptions, Snapshot, Store};

use crate::medium::Medium;
use crate::random::Random;
use crate::violation::{At, Outcome, Violation};

const ACCOUNTS: u64 = 16;
const BALANCE: u64 = 1000;

/// A store on the disk, closed and opened between the parts of a trial.
struct Bench {
    medium: Medium,
    options: Options,
}

impl Bench {
    fn new(options: &Options) -> Outcome<Self> {
        let medium = Medium::disk().map_err(|error| Violation::new(error.to_string()))?;
        Ok(Bench { medium, options: options.clone() })
    }

    fn open(&self) -> Outcome<Store> {
        self.medium.open(&self.options).at(|| "open".into())
    }
}

/// Runs bodies on threads of their own, and upkeep on one more until they are done; the first violation wins.
fn race(store: &Store, bodies: Vec<Box<dyn Fn() -> Outcome + Send + '_>>) -> Outcome {
    let done = AtomicBool::new(false);
    let violations = Mutex::new(Vec::new());
    let note = |outcome: Outcome| {
        if let Err(violation) = outcome {
            violations.lock().expect("no panic while held").push(violation);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                note(store.flush().at(|| "flush".into()));
                note(store.compact(None, None, &mut |_, _| {}).at(|| "compact".into()));
            }
        });
        let workers: Vec<_> =
            bodies.into_iter().map(|body| scope.spawn(|| note({ body }()))).collect();
        let joined: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Release);
        if joined.iter().any(Result::is_err) {
            note(Err(Violation::new("a thread panicked")));
        }
    });
    match violations.into_inner().expect("no panic while held").into_iter().next() {
        Some(violation) => Err(violation),
        None => Ok(()),
    }
}

/// Money moves between accounts by batches; every snapshot and every scan sees all of it.
pub fn bank(seed: u64, options: &Options, transfers: u64) -> Outcome {
    let bench = Bench::new(options)?;
    let store = bench.open()?;
    let mut batch = WriteBatch::new();
    for account in 0..ACCOUNTS {
        batch.put(account_key(account), amount(BALANCE, account)).at(|| "batch".into())?;
    }
    store.write(batch, None).at(|| "first batch".into())?;
    let turn = Mutex::new(());
    let running = AtomicU64::new(2);
    let transfer = |seed: u64| {
        let (store, turn, running) = (&store, &turn, &running);
        move || {
            let mut random = Random::new(seed);
            let outcome = (0..transfers).try_for_each(|_| {
                // Reading and writing are one step only under a lock of the caller's.
                let _turn = turn.lock().expect("no panic while held");
                transfer_once(store, &mut random)
            });
            running.fetch_sub(1, Ordering::AcqRel);
            outcome
        }
    };
    let audit = || {
        while running.load(Ordering::Acquire) > 0 {
            check_total(&store.snapshot())?;
            let forward = store.range(accounts(false)).at(|| "scan".into())?;
            check_sum(forward.map(|entry| entry.map(|entry| entry.value)))?;
            let backward = store.range(accounts(true)).at(|| "scan".into())?;
            check_sum(backward.map(|entry| entry.map(|entry| entry.value)))?;
        }
        Ok(())
    };
    race(
        &store,
        vec![Box::new(transfer(seed)), Box::new(transfer(!seed)), Box::new(audit), Box::new(audit)],
    )?;
    store.close().at(|| "close".into())?;
    let again = bench.open()?;
    check_total(&again.snapshot()).at(|| "after reopening".into())
}

fn account_key(account: u64) -> Bytes {
    Bytes::from(format!("account/{account:02}"))
}

/// A balance; every other account's is padded beyond what stays inline.
fn amount(balance: u64, account: u64) -> Bytes {
    let mut bytes = balance.to_le_bytes().to_vec();
    bytes.resize(if account.is_multiple_of(2) { 8 } else { 2000 }, account as u8);
    bytes.into()
}

fn balance(value: &[u8]) -> Outcome<u64> {
    let (head, _) =
        value.split_first_chunk().ok_or_else(|| Violation::new("a balance was cut short"))?;
    Ok(u64::from_le_bytes(*head))
}

fn transfer_once(store: &Store, random: &mut Random) -> Outcome {
    let from = random.below(ACCOUNTS);
    let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
    let read = |account| {
        let value = store.get(&account_key(account)).at(|| "get".into())?;
        balance(&value.ok_or_else(|| Violation::new("an account is gone"))?)
    };
    let (source, target) = (read(from)?, read(to)?);
    let moved = random.below(source + 1);
    let mut batch = WriteBatch::new();
    // Deleting first shows readers that see half a batch an account that is missing.
    batch.delete(account_key(from)).at(|| "batch".into())?;
    batch.put(account_key(from), amount(source - moved, from)).at(|| "batch".into())?;
    batch.put(account_key(to), amount(target + moved, to)).at(|| "batch".into())?;
    let durability = random.chance(2).then_some(Durability::Sync);
    store.write(batch, durability).at(|| "transfer".into()).map(drop)
}

fn accounts(reverse: bool) -> ScanOptions {
    let prefix = Some(Bytes::from_static(b"account/"));
    ScanOptions { prefix, reverse, ..ScanOptions::default() }
}

fn check_total(snapshot: &Snapshot) -> Outcome {
    let scanned = snapshot.range(accounts(false)).at(|| "scan of a snapshot".into())?;
    check_sum(scanned.map(|entry| entry.map(|entry| entry.value)))?;
    check_sum((0..ACCOUNTS).filter_map(|account| snapshot.get(&account_key(account)).transpose()))
}

fn check_sum(values: impl Iterator<Item = tallybook::error::Result<Bytes>>) -> Outcome {
    let (mut sum, mut count) = (0, 0);
    for value in values {
        sum += balance(&value.at(|| "read".into())?)?;
        count += 1;
    }
    if (sum, count) != (ACCOUNTS * BALANCE, ACCOUNTS) {
        return Err(Violation::new(format!(
            "{count} accounts hold {sum}, expected {ACCOUNTS} with {}",
            ACCOUNTS * BALANCE
        )));
    }
    Ok(())
}

/// Threads count up shared counters by conditional puts; no increment is lost.
pub fn counters(options: &Options, threads: u64, increments: u64) -> Outcome {
    const COUNTERS: u64 = 3;
    let bench = Bench::new(options)?;
    let store = bench.open()?;
    let key = |counter: u64| format!("counter/{counter}").into_bytes();
    let count_up = |thread: u64| {
        let store = &store;
        move || (0..increments).try_for_each(|at| increment(store, &key((thread + at) % COUNTERS)))
    };
    let bodies = (0..threads).map(|thread| Box::new(count_up(thread)) as Box<_>).collect();
    race(&store, bodies)?;
    store.close().at(|| "close".into())?;
    let again = bench.open()?;
    let mut sum = 0;
    for counter in 0..COUNTERS {
        let value = again.get(&key(counter)).at(|| "get".into())?;
        sum += balance(&value.unwrap_or_default())?;
    }
    if sum != threads * increments {
        return Err(Violation::new(format!(
            "{} increments were acknowledged, the counters show {sum}",
            threads * increments
        )));
    }
    Ok(())
}

fn increment(store: &Store, key: &[u8]) -> Outcome {
    loop {
        let (condition, count) = match store.get_entry(key).at(|| "get".into())? {
            Some((head, value)) => (Condition::Version(head.version), balance(&value)?),
            None => (Condition::Absent, 0),
        };
        match store.put_if(key, &(count + 1).to_le_bytes(), condition) {
            Ok(version) => {
                let head = store.head(key).at(|| "head".into())?;
                if head.is_none_or(|head| head.version < version) {
                    return Err(Violation::new("a writer does not see its own write"));
                }
                return Ok(());
            }
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error).at(|| "conditional put".into()),
        }
    }
}

/// One thread counts a key up; to every reader its value and its version only ever grow, and so do those of every
/// later snapshot.
pub fn register(options: &Options, writes: u64) -> Outcome {
    const KEY: &[u8] = b"register";
    let bench = Bench::new(options)?;
    let store = bench.open()?;
    let running = AtomicBool::new(true);
    let write = || {
        let outcome = (1..=writes).try_for_each(|count| {
            let value = amount(count, count);
            store.put(KEY, &value).at(|| "put".into()).map(drop)
        });
        running.store(false, Ordering::Release);
        outcome
    };
    let read = || {
        let mut last = (0, 0);
        while running.load(Ordering::Acquire) {
            for entry in [
                store.get_entry(KEY).at(|| "get".into())?,
                store.snapshot().get_entry(KEY).at(|| "get from a snapshot".into())?,
            ] {
                let Some((head, value)) = entry else {
                    if last == (0, 0) {
                        continue;
                    }
                    return Err(Violation::new("a key that is never deleted went missing"));
                };
                let now = (head.version, balance(&value)?);
                if now.0 < last.0 || now.1 < last.1 || (now.0 == last.0) != (now.1 == last.1) {
                    return Err(Violation::new(format!(
                        "(version, value) went from {last:?} to {now:?}"
                    )));
                }
                last = now;
            }
        }
        Ok(())
    };
    race(&store, vec![Box::new(write), Box::new(read), Box::new(read)])?;
    store.close().at(|| "close".into())?;
    let value = bench.open()?.get(KEY).at(|| "get".into())?.unwrap_or_default();
    if balance(&value)? != writes {
        return Err(Violation::new("the last write is missing after reopening"));
    }
    Ok(())
}
