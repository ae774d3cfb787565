//! Whether an engine does, behind the laboratory's traits, what a map in memory does.
//!
//! 1. Random puts, overwrites, deletes, gets, heads and scans, each answer compared with a `BTreeMap`.
//! 2. What one session was told is written, another reads at once; several threads write together.
//! 3. After settling, and again after closing and opening, everything is compared.
//!
//! Small memtables make the flushes and compactions happen. Equal seeds make equal work.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use tallybook_lab::spec::Durability;
use tallybook_lab::target::{Answers, Budget, Request, Session, Target};
use tallybook_lab::{Error, Result};

use crate::engines::open;

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Operations of the random part.
    pub operations: u32,
    /// Puts of each thread in the part with several.
    pub puts_per_thread: u32,
    /// Where randomness starts.
    pub seed: u64,
}

/// Enough for several flushes and some compactions.
pub const OS: Amount = Amount { operations: 20_000, puts_per_thread: 1_000, seed: 1 };
/// Less, because each write waits for the device.
pub const SYNC: Amount = Amount { operations: 1_500, puts_per_thread: 100, seed: 2 };

const KEYS: u64 = 4_000;
const THREADS: u32 = 3;

/// The budget of the tests: small, so that the engines must flush.
pub fn budget(durability: Durability) -> Budget {
    Budget { write_buffer_bytes: 4 << 20, cache_bytes: 4 << 20, durability }
}

/// Runs it on one engine in an empty directory; the first wrong answer is the error.
pub fn run(name: &str, directory: &Path, durability: Durability, amount: Amount) -> Result<()> {
    let budget = budget(durability);
    let open = || open(name, directory, &budget, &BTreeMap::new());
    let mut model = Model::default();

    let target = open()?;
    check_description(&*target)?;
    let mut session = Checked { session: target.session()?, at: 0 };
    let mut random = Random(amount.seed);
    for _ in 0..amount.operations {
        step(&mut session, &mut model, &mut random)?;
    }
    across_sessions(&*target, &mut model)?;
    several_threads(&*target, &mut model, amount.puts_per_thread)?;
    everything(&mut session, &model)?;
    target.settle()?;
    everything(&mut session, &model)?;
    if target.figures().is_empty() {
        return Err(Error::Invalid(format!("{name} tells no figures")));
    }
    drop(session);
    target.close()?;

    let target = open()?;
    let mut session = Checked { session: target.session()?, at: 0 };
    everything(&mut session, &model)?;
    for _ in 0..amount.operations / 20 {
        step(&mut session, &mut model, &mut random)?;
    }
    everything(&mut session, &model)?;
    drop(session);
    target.close()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// xorshift64*, Vigna 2016.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    /// Mostly short values, some beyond the limit from which values are separated, a few empty.
    fn value(&mut self) -> Vec<u8> {
        let length = match self.below(20) {
            0 => 0,
            1 => 1_000 + self.below(100),
            2 => self.below(10_000),
            _ => self.below(300),
        };
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:013}").into_bytes()
}

/// What a session told of one request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    values: Vec<Option<Vec<u8>>>,
    lengths: Vec<Option<u64>>,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    writes: u32,
    failures: Vec<String>,
}

impl Answers for Told {
    fn value(&mut self, value: Option<&[u8]>) {
        self.values.push(value.map(<[u8]>::to_vec));
    }

    fn length(&mut self, length: Option<u64>) {
        self.lengths.push(length);
    }

    fn pair(&mut self, key: &[u8], value: &[u8]) {
        self.pairs.push((key.to_vec(), value.to_vec()));
    }

    fn written(&mut self) {
        self.writes += 1;
    }

    fn failed(&mut self, kind: &str) {
        self.failures.push(kind.to_owned());
    }
}

/// A session whose every answer is compared with what it should be.
struct Checked {
    session: Box<dyn Session>,
    at: u64,
}

impl Checked {
    fn expect(&mut self, request: Request<'_>, expected: Told) -> Result<()> {
        self.at += 1;
        let mut told = Told::default();
        self.session.perform(request, &mut told)?;
        if told == expected {
            return Ok(());
        }
        Err(Error::WrongData(format!("request {} ({}): {}", self.at, kind(&request), {
            describe(&told, &expected)
        })))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.expect(Request::Put { key, value }, Told { writes: 1, ..Told::default() })
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.expect(Request::Delete { key }, Told { writes: 1, ..Told::default() })
    }

    fn get(&mut self, key: &[u8], model: &Model) -> Result<()> {
        let values = vec![model.get(key).cloned()];
        self.expect(Request::Get { key }, Told { values, ..Told::default() })
    }

    fn head(&mut self, key: &[u8], model: &Model) -> Result<()> {
        let lengths = vec![model.get(key).map(|value| value.len() as u64)];
        self.expect(Request::Head { key }, Told { lengths, ..Told::default() })
    }

    fn scan(&mut self, start: &[u8], count: u64, model: &Model) -> Result<()> {
        let most = usize::try_from(count).unwrap_or(usize::MAX);
        let range = model.range(start.to_vec()..).take(most);
        let pairs = range.map(|(key, value)| (key.clone(), value.clone())).collect();
        self.expect(Request::Scan { start, count }, Told { pairs, ..Told::default() })
    }
}

fn kind(request: &Request<'_>) -> String {
    let name = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    match request {
        Request::Put { key, .. } => format!("put {}", name(key)),
        Request::Get { key } => format!("get {}", name(key)),
        Request::Head { key } => format!("head {}", name(key)),
        Request::Delete { key } => format!("delete {}", name(key)),
        Request::Scan { start, count } => format!("scan {count} from {}", name(start)),
    }
}

/// Lengths only: values would fill the screen.
fn describe(told: &Told, expected: &Told) -> String {
    let brief = |told: &Told| {
        let values: Vec<_> = told.values.iter().map(|value| value.as_ref().map(Vec::len)).collect();
        format!(
            "values of {values:?} bytes, lengths {:?}, {} pairs, {} writes, failures {:?}",
            told.lengths,
            told.pairs.len(),
            told.writes,
            told.failures
        )
    };
    format!("told {}; expected {}", brief(told), brief(expected))
}

fn check_description(target: &dyn Target) -> Result<()> {
    let settings = target.settings();
    for needed in ["version", "durability", "survives"] {
        if settings.get(needed).is_none_or(|value| value.contains("unknown")) {
            let what = format!("{} doesn't tell its {needed}", target.name());
            return Err(Error::Invalid(what));
        }
    }
    Ok(())
}

fn step(session: &mut Checked, model: &mut Model, random: &mut Random) -> Result<()> {
    let key = key(random.below(KEYS));
    match random.below(100) {
        0..60 => {
            let value = random.value();
            session.put(&key, &value)?;
            model.insert(key, value);
            Ok(())
        }
        60..75 => {
            session.delete(&key)?;
            model.remove(&key);
            Ok(())
        }
        75..90 => session.get(&key, model),
        90..98 => session.head(&key, model),
        _ => session.scan(&key, random.below(200), model),
    }
}

fn across_sessions(target: &dyn Target, model: &mut Model) -> Result<()> {
    let mut writer = Checked { session: target.session()?, at: 0 };
    let mut reader = Checked { session: target.session()?, at: 0 };
    for number in 0..50 {
        let key = key(number);
        let value = format!("shared {number}").into_bytes();
        reader.get(&key, model)?;
        writer.put(&key, &value)?;
        model.insert(key.clone(), value);
        reader.get(&key, model)?;
        writer.delete(&key)?;
        model.remove(&key);
        reader.head(&key, model)?;
    }
    Ok(())
}

fn several_threads(target: &dyn Target, model: &mut Model, puts: u32) -> Result<()> {
    let written = thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || -> Result<Model> {
                    let mut session = Checked { session: target.session()?, at: 0 };
                    let mut random = Random(u64::from(thread) + 100);
                    let mut own = Model::new();
                    for number in 0..puts {
                        let key = format!("thread{thread}-{:06}", number % 700).into_bytes();
                        let value = random.value();
                        session.put(&key, &value)?;
                        own.insert(key.clone(), value);
                        session.get(&key, &own)?;
                    }
                    Ok(own)
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().expect("a writer returns its errors"))
            .collect::<Result<Vec<Model>>>()
    })?;
    written.into_iter().for_each(|own| model.extend(own));
    Ok(())
}

fn everything(session: &mut Checked, model: &Model) -> Result<()> {
    session.scan(b"", u64::MAX, model)?;
    session.scan(b"kez", 10, model)?;
    session.scan(b"zzz", u64::MAX, model)?;
    session.scan(&key(KEYS / 2), 0, model)?;
    for number in 0..KEYS {
        let key = key(number);
        session.get(&key, model)?;
        session.head(&key, model)?;
    }
    for absent in ["ke", "key0000000000000x", "absent", "zzzzzzzz"] {
        session.get(absent.as_bytes(), model)?;
        session.head(absent.as_bytes(), model)?;
    }
    Ok(())
}
