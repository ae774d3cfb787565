//! A floor under the engines: what is left of a store when all is left out that single requests don't need.
//!
//! 1. Records are in one mapped file, each with its checksum; a table in memory tells where.
//! 2. A put copies its record into the file, so that it survives the process being killed; with `sync`, one
//!    `fdatasync` serves all sessions, which wait for each other. Each key has two homes and takes them in
//!    turn, so that the file doesn't grow.
//! 3. A get compares key and checksum where the record lies. A scan reads a copy of all records in order, made
//!    when the first scan comes.
//!
//! It keeps no order for writes, gives no space back, bounds no memory, and has neither snapshots nor recovery:
//! what it takes is the price of moving these bytes and of checking them. That is not the least in every row:
//! its locks cost it something that an engine's readers need not pay, and what it gets lies in small pages.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use memmap2::{Advice, MmapOptions, MmapRaw};
use tallybook::checksum::{crc32c, crc32c_append};
use tallybook::vfs::prefetch::{prefetch_front, touch};
use tallybook::vfs::rounds::Rounds;
use tallybook::{key, vfs};

use super::{Answers, Budget, Request, Session, Target};
use crate::error::{Error, Result};
use crate::spec::Durability;

/// The target's name.
pub const NAME: &str = "floor";

/// The file's length at most; of the map, which takes address space and nothing else.
const FILE_BYTES_MAX: usize = 64 << 30;
/// Zeros are written ahead in such pieces, as the engine's journal writes them.
const PIECE_BYTES: usize = vfs::PIECE_BYTES as usize;
/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 256;
/// Checksum, length of the key, length of the value.
const HEADER_BYTES: usize = 12;

/// A floor in this process.
#[derive(Debug)]
pub struct Floor {
    shared: Arc<Shared>,
    directory: PathBuf,
}

#[derive(Debug)]
struct Shared {
    shards: Box<[RwLock<Shard>]>,
    records: Records,
    /// There if a write survives power loss.
    syncs: Option<Syncs>,
    sorted: RwLock<Sorted>,
    /// Whether something was written since they were sorted.
    changed: AtomicBool,
}

impl Floor {
    /// Makes one in `directory`.
    pub fn create(directory: &Path, budget: &Budget) -> Result<Floor> {
        std::fs::create_dir_all(directory).map_err(Error::io(directory.display().to_string()))?;
        let shared = Shared {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            records: Records::create(&directory.join("records"))?,
            syncs: (budget.durability == Durability::Sync).then(Syncs::default),
            sorted: RwLock::default(),
            changed: AtomicBool::new(false),
        };
        Ok(Floor { shared: Arc::new(shared), directory: directory.to_owned() })
    }
}

impl Target for Floor {
    fn name(&self) -> &str {
        NAME
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let survives =
            if self.shared.syncs.is_some() { "power loss" } else { "the process being killed" };
        [("survives".to_owned(), format!("{survives}, in the file; it can't be opened again"))]
            .into()
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        if let Some(syncs) = &self.shared.syncs {
            syncs.sessions.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Box::new(FloorSession { shared: self.shared.clone() }))
    }

    fn settle(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.directory)
    }

    fn process(&self) -> Option<u32> {
        None
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct FloorSession {
    shared: Arc<Shared>,
}

impl Drop for FloorSession {
    fn drop(&mut self) {
        if let Some(syncs) = &self.shared.syncs {
            syncs.sessions.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Session for FloorSession {
    fn perform(&mut self, request: Request<'_>, answers: &mut dyn Answers) -> Result<()> {
        match request {
            Request::Put { key, value } => {
                self.shared.put(key, value)?;
                answers.written();
            }
            Request::Delete { key } => {
                self.shared.delete(key)?;
                answers.written();
            }
            Request::Get { key } => self.shared.with_record(key, |record| {
                answers.value(record.map(Record::checked).transpose()?);
                Ok(())
            })?,
            Request::Head { key } => self.shared.with_record(key, |record| {
                answers.length(record.map(|record| record.value.len() as u64));
                Ok(())
            })?,
            Request::Scan { start, count } => self.shared.scan(start, count, answers)?,
        }
        Ok(())
    }
}

impl Shared {
    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        // The table within takes the lower bits.
        &self.shards[(hash >> 56) as usize % SHARDS]
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let hash = key::hash(key);
        let bytes = record_bytes(key, value)?;
        let mut shard = self.shard(hash).write().unwrap_or_else(PoisonError::into_inner);
        let place = shard.place_for(hash);
        if place.is_taken() && self.records.at(place).key != key {
            return Err(failed("two keys have one hash"));
        }
        let is_as_long = place.bytes == bytes;
        let home = match place.other {
            other if is_as_long && other != NOWHERE => other,
            _ => self.records.reserve(bytes)?,
        };
        self.records.write(home, key, value);
        let other = if is_as_long { place.home } else { NOWHERE };
        *place = Place { hash, home, other, bytes, is_deleted: false };
        drop(shard);
        self.acknowledge()
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let hash = key::hash(key);
        let mut shard = self.shard(hash).write().unwrap_or_else(PoisonError::into_inner);
        // A record of the key alone tells that it is gone.
        let home = self.records.reserve(record_bytes(key, &[])?)?;
        self.records.write(home, key, &[]);
        if let Some(at) = shard.find(hash) {
            shard.places[at].is_deleted = true;
        }
        drop(shard);
        self.acknowledge()
    }

    /// Something was written.
    fn acknowledge(&self) -> Result<()> {
        self.changed.store(true, Ordering::Relaxed);
        self.syncs.as_ref().map_or(Ok(()), |syncs| syncs.sync(&self.records))
    }

    fn with_record(
        &self,
        key: &[u8],
        tell: impl FnOnce(Option<Record<'_>>) -> Result<()>,
    ) -> Result<()> {
        let hash = key::hash(key);
        let shard = self.shard(hash).read().unwrap_or_else(PoisonError::into_inner);
        let place = shard.find(hash).map(|at| &shard.places[at]).filter(|it| !it.is_deleted);
        tell(place.map(|place| self.records.at(place)).filter(|record| record.key == key))
    }

    fn scan(&self, start: &[u8], count: u64, answers: &mut dyn Answers) -> Result<()> {
        if self.changed.load(Ordering::Relaxed) {
            let mut sorted = self.sorted.write().unwrap_or_else(PoisonError::into_inner);
            if self.changed.swap(false, Ordering::Relaxed) {
                *sorted = self.sort();
            }
        }
        self.sorted.read().unwrap_or_else(PoisonError::into_inner).scan(start, count, answers)
    }

    fn sort(&self) -> Sorted {
        let read = |shard| RwLock::read(shard).unwrap_or_else(PoisonError::into_inner);
        let shards: Vec<_> = self.shards.iter().map(read).collect();
        let places = shards.iter().flat_map(|shard| &shard.places);
        let live = places.filter(|place| place.is_taken() && !place.is_deleted);
        let mut records: Vec<Record<'_>> = live.map(|place| self.records.at(place)).collect();
        records.sort_unstable_by_key(|record| record.key);
        let mut sorted = Sorted::default();
        for record in records {
            sorted.fronts.push(key::front(record.key));
            sorted.starts.push(sorted.bytes.len());
            record.encode(|part| sorted.bytes.extend_from_slice(part));
        }
        sorted
    }
}

/// No home.
const NOWHERE: u64 = u64::MAX;

/// Where the record of a key is: half a cache line.
#[derive(Debug, Clone, Default)]
#[repr(align(32))]
struct Place {
    hash: u64,
    home: u64,
    /// Another home of the same length, with an older record, or `NOWHERE`.
    other: u64,
    /// Of the record; 0 where there is none.
    bytes: u32,
    is_deleted: bool,
}

impl Place {
    fn is_taken(&self) -> bool {
        self.bytes > 0
    }
}

/// A part of the table: open addresses (Knuth, "Sorting and Searching", 6.4, algorithm L).
#[derive(Debug, Default)]
struct Shard {
    /// None, or a power of two of them.
    places: Vec<Place>,
    taken: usize,
}

impl Shard {
    /// Where the hash is, or would be. Requires: there are places.
    fn index(&self, hash: u64) -> usize {
        let mask = self.places.len() - 1;
        let mut at = hash as usize & mask;
        while self.places[at].is_taken() && self.places[at].hash != hash {
            at = (at + 1) & mask;
        }
        at
    }

    fn find(&self, hash: u64) -> Option<usize> {
        let at = (!self.places.is_empty()).then(|| self.index(hash))?;
        self.places[at].is_taken().then_some(at)
    }

    /// The place of this hash, which whoever asks is going to take.
    fn place_for(&mut self, hash: u64) -> &mut Place {
        if self.taken * 4 >= self.places.len() * 3 {
            let larger = vec![Place::default(); (self.places.len() * 2).max(16)];
            for place in std::mem::replace(&mut self.places, larger) {
                if place.is_taken() {
                    let at = self.index(place.hash);
                    self.places[at] = place;
                }
            }
        }
        let at = self.index(hash);
        self.taken += usize::from(!self.places[at].is_taken());
        &mut self.places[at]
    }
}

fn record_bytes(key: &[u8], value: &[u8]) -> Result<u32> {
    u32::try_from(HEADER_BYTES + key.len() + value.len())
        .map_err(|_| failed("a record is below 4 GiB"))
}

/// A record, where it lies.
#[derive(Debug, Clone, Copy)]
struct Record<'a> {
    checksum: u32,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the front of these bytes. Requires: `encode` made them.
    fn decode(bytes: &'a [u8]) -> Record<'a> {
        let word = |at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes are four bytes"))
        };
        let (key_len, value_len) = (word(4) as usize, word(8) as usize);
        let (key, rest) = bytes[HEADER_BYTES..].split_at(key_len);
        Record { checksum: word(0), key, value: &rest[..value_len] }
    }

    fn new(key: &'a [u8], value: &'a [u8]) -> Record<'a> {
        Record { checksum: crc32c_append(crc32c(key), value), key, value }
    }

    fn encode(&self, mut put: impl FnMut(&[u8])) {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&self.checksum.to_le_bytes());
        header[4..8].copy_from_slice(&(self.key.len() as u32).to_le_bytes());
        header[8..].copy_from_slice(&(self.value.len() as u32).to_le_bytes());
        [&header[..], self.key, self.value].into_iter().for_each(&mut put);
    }

    /// The value, if the checksum is right.
    fn checked(self) -> Result<&'a [u8]> {
        touch(self.value);
        match Record::new(self.key, self.value).checksum == self.checksum {
            true => Ok(self.value),
            false => Err(failed("a record's checksum is wrong")),
        }
    }
}

/// The file. A home belongs to whoever holds the lock of its key's shard.
#[derive(Debug)]
struct Records {
    file: File,
    map: MmapRaw,
    tail: Mutex<Tail>,
    /// Records written.
    written: AtomicU64,
}

#[derive(Debug, Default)]
struct Tail {
    /// Where the next home begins.
    end: u64,
    /// Up to here there are zeros, or records.
    backed: u64,
}

impl Records {
    fn create(path: &Path) -> Result<Records> {
        let told = || Error::io(path.display().to_string());
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(path).map_err(told())?;
        let map = MmapOptions::new().len(FILE_BYTES_MAX).map_raw(&file).map_err(told())?;
        Ok(Records { file, map, tail: Mutex::default(), written: AtomicU64::new(0) })
    }

    /// A home of so many bytes, which the file has.
    fn reserve(&self, bytes: u32) -> Result<u64> {
        static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let home = tail.end;
        let end = home + u64::from(bytes);
        if end > FILE_BYTES_MAX as u64 {
            return Err(failed("its file is full"));
        }
        while end > tail.backed {
            let written = self.file.write_all_at(&ZEROS, tail.backed);
            written.map_err(Error::io("the floor's file"))?;
            // Without it every page is a fault of its own; if it fails, they are.
            let at = tail.backed as usize;
            let _ = self.map.advise_range(Advice::PopulateWrite, at, PIECE_BYTES);
            tail.backed += PIECE_BYTES as u64;
        }
        tail.end = end;
        Ok(home)
    }

    /// Writes a record. Requires: the home was reserved for its length, and its shard is locked for writing.
    fn write(&self, home: u64, key: &[u8], value: &[u8]) {
        let mut at = self.map.as_mut_ptr().wrapping_add(home as usize);
        Record::new(key, value).encode(|part| {
            // SAFETY: `reserve` had the file reach over the home, and nobody looks at it as long as its shard
            // is locked for writing.
            unsafe { at.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            at = at.wrapping_add(part.len());
        });
        self.written.fetch_add(1, Ordering::Release);
    }

    /// The record of a place that is taken. Requires: its shard is locked.
    fn at(&self, place: &Place) -> Record<'_> {
        let start = self.map.as_mut_ptr().wrapping_add(place.home as usize).cast_const();
        let len = place.bytes as usize;
        prefetch_front(start, len);
        // SAFETY: a record of this length was written there, and nobody changes it as long as its shard is
        // locked.
        Record::decode(unsafe { std::slice::from_raw_parts(start, len) })
    }
}

/// For so long sessions wait for each other: one that doesn't write must not stop the others for good.
const PATIENCE: Duration = Duration::from_millis(1);

/// Sessions that share syncs.
#[derive(Debug, Default)]
struct Syncs {
    sessions: AtomicUsize,
    /// Records that are on the disk.
    synced: AtomicU64,
    rounds: Rounds,
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    /// Sessions that want the next sync.
    waiting: usize,
    is_taken: bool,
}

impl Syncs {
    /// Returns once every record that was written before is on the disk. The session that comes last syncs for
    /// all, so that there are as few syncs as can be, and nobody is woken but to be answered.
    fn sync(&self, records: &Records) -> Result<()> {
        let own = records.written.load(Ordering::Acquire);
        let mut turn = self.turn();
        turn.waiting += 1;
        let mut is_patient = true;
        while turn.is_taken || is_patient && turn.waiting < self.sessions.load(Ordering::Relaxed) {
            let round = self.rounds.current();
            drop(turn);
            self.rounds.sleep(round, Some(PATIENCE));
            if self.synced.load(Ordering::Acquire) >= own {
                return Ok(());
            }
            is_patient = self.rounds.current() != round;
            turn = self.turn();
        }
        *turn = Turn { waiting: 0, is_taken: true };
        let all = records.written.load(Ordering::Acquire);
        drop(turn);
        let outcome = records.file.sync_data().map_err(Error::io("the floor's file"));
        let mut turn = self.turn();
        turn.is_taken = false;
        if outcome.is_ok() {
            self.synced.store(all, Ordering::Release);
        }
        self.rounds.end();
        drop(turn);
        self.rounds.wake();
        outcome
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy of all records, in the order of their keys.
#[derive(Debug, Default)]
struct Sorted {
    /// The first bytes of every key, as a number.
    fronts: Vec<u128>,
    starts: Vec<usize>,
    bytes: Vec<u8>,
}

impl Sorted {
    fn record(&self, at: usize) -> Record<'_> {
        Record::decode(&self.bytes[self.starts[at]..])
    }

    fn scan(&self, start: &[u8], count: u64, answers: &mut dyn Answers) -> Result<()> {
        let front = key::front(start);
        let before = self.fronts.partition_point(|&other| other < front);
        let starts = &self.starts[before..];
        let tied = self.fronts[before..].partition_point(|&other| other == front);
        let from = before
            + starts[..tied].partition_point(|&at| Record::decode(&self.bytes[at..]).key < start);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        for at in (from..self.fronts.len()).take(count) {
            let record = self.record(at);
            answers.pair(record.key, record.checked()?);
        }
        Ok(())
    }
}

fn failed(what: &str) -> Error {
    Error::Target { target: NAME.into(), what: what.into() }
}
