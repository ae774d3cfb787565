//! The three workloads that are crashed and failed at every file operation.
//!
//! Short, so that every operation can be tried, and rich: each reaches flushes, merges, roll-overs of the journal.

use bytes::Bytes;
use tallybook::options::{Compression, Durability, JournalWriting, Options, Reading};

use crate::operations::{Bounds, Expiry, ReadStep, Step, ValueSpec, WriteStep};
use crate::option_sets::tiny;
use crate::random::Random;

/// Steps with the settings they are made under.
#[derive(Debug, Clone)]
pub struct Workload {
    /// What it is, for reports.
    pub name: &'static str,
    /// The store's settings.
    pub options: Options,
    /// What is done.
    pub steps: Vec<Step>,
}

/// Every key that a workload here writes.
pub fn keys() -> Vec<Bytes> {
    (0..40).map(|n| Bytes::from(format!("key/{n:02}"))).collect()
}

/// All three.
pub fn all(seed: u64) -> [Workload; 3] {
    [small_puts(seed), large_values(seed), batches(seed)]
}

/// Small puts and deletes under each durability, with syncs, flushes, a clean close in the middle.
pub fn small_puts(seed: u64) -> Workload {
    let mut writer = Writer::new(seed);
    let mut steps = Vec::new();
    for round in 0..60 {
        let len = writer.random.pick(&[0, 1, 20, 100, 400]);
        let durability = match round % 6 {
            0 => Some(Durability::Sync),
            1 | 2 => Some(Durability::Os),
            _ => None,
        };
        steps.push(Step::Write(writer.put(len), durability));
        if round % 5 == 4 {
            steps.push(Step::Write(writer.delete(), None));
        }
        steps.extend(match round {
            10 | 40 => Some(Step::Sync),
            15 | 45 => Some(Step::Advance(150)),
            20 | 50 => Some(Step::Flush),
            30 => Some(Step::Reopen),
            _ => None,
        });
        if round % 8 == 0 {
            steps.push(scan());
        }
    }
    let options = Options { journal_writing: JournalWriting::Written, ..tiny() };
    Workload { name: "small puts", options, steps }
}

/// Large values, overwritten until segments are mostly dead and are collected.
pub fn large_values(seed: u64) -> Workload {
    let mut writer = Writer::new(!seed);
    writer.keys.truncate(8);
    let mut steps = Vec::new();
    for round in 0..36 {
        let len = writer.random.pick(&[600, 1500, 5 << 10]);
        let durability = (round % 4 == 0).then_some(Durability::Sync);
        steps.push(Step::Write(writer.put(len), durability));
        steps.extend(match round {
            12 | 24 => Some(Step::Flush),
            17 | 35 => Some(Step::Compact(None, None)),
            20 => Some(Step::Write(writer.put(20 << 10), None)),
            28 => Some(Step::Advance(150)),
            _ => None,
        });
        if round % 6 == 0 {
            steps.push(scan());
        }
    }
    let options = Options {
        journal_writing: JournalWriting::Mapped,
        reading: Reading::Mapped,
        collection_live_ratio: 0.7,
        ..tiny()
    };
    Workload { name: "large values", options, steps }
}

/// Batches and range deletions between flushes and compactions.
pub fn batches(seed: u64) -> Workload {
    let mut writer = Writer::new(seed.rotate_left(32));
    let mut steps = Vec::new();
    for round in 0..30 {
        let len = 1 + writer.random.index(6);
        let mut writes: Vec<WriteStep> = (0..len)
            .map(|_| {
                let len = writer.random.pick(&[10, 200, 900]);
                if writer.random.chance(80) { writer.put(len) } else { writer.delete() }
            })
            .collect();
        if round % 7 == 3 {
            writes.push(writer.delete_range());
        }
        let durability = (round % 3 == 0).then_some(Durability::Sync);
        steps.push(Step::Batch(writes, durability));
        if round % 10 == 5 {
            steps.push(Step::Write(writer.delete_range(), None));
        }
        steps.extend(match round % 12 {
            4 => Some(Step::Flush),
            8 => Some(Step::Compact(None, None)),
            10 => Some(Step::Snapshot),
            _ => None,
        });
        if round % 6 == 0 {
            steps.push(scan());
        }
    }
    let mut options = Options { reading: Reading::Pread, ..tiny() };
    options.compression[1..].fill(Compression::Lz4);
    Workload { name: "batches", options, steps }
}

/// A store of a few KiB with every kind of file in it: inline and set-aside values, several levels, deleted keys
/// and ranges, older versions under newer ones. What is damaged byte by byte.
pub fn small_store(seed: u64) -> Workload {
    let mut writer = Writer::new(seed ^ 0xda3a);
    writer.keys.truncate(24);
    let mut steps = Vec::new();
    for round in 0..40 {
        let len = writer.random.pick(&[0, 10, 60, 60, 700]);
        steps.push(Step::Write(writer.put(len), None));
        steps.extend(match round {
            12 => Some(Step::Flush),
            16 => Some(Step::Write(writer.delete_range(), None)),
            20 => Some(Step::Write(writer.delete(), None)),
            24 => Some(Step::Compact(None, None)),
            34 => Some(Step::Flush),
            36 => Some(Step::Sync),
            _ => None,
        });
    }
    Workload { name: "small store", options: tiny(), steps }
}

fn scan() -> Step {
    let bounds = Bounds::default();
    Step::Read(ReadStep::Scan { bounds, reverse: false, limit: usize::MAX })
}

struct Writer {
    random: Random,
    keys: Vec<Bytes>,
    value_id: u64,
}

impl Writer {
    fn new(seed: u64) -> Self {
        Writer { random: Random::new(seed), keys: keys(), value_id: seed << 16 }
    }

    fn key(&mut self) -> Bytes {
        self.random.pick(&self.keys)
    }

    fn put(&mut self, len: usize) -> WriteStep {
        self.value_id += 1;
        WriteStep::Put {
            key: self.key(),
            value: ValueSpec { len, id: self.value_id },
            expiry: Expiry::Never,
            attributes_len: if self.random.chance(10) { 16 } else { 0 },
        }
    }

    fn delete(&mut self) -> WriteStep {
        WriteStep::Delete { key: self.key() }
    }

    fn delete_range(&mut self) -> WriteStep {
        let at = self.random.index(self.keys.len() - 4);
        WriteStep::DeleteRange { start: self.keys[at].clone(), end: self.keys[at + 4].clone() }
    }
}
