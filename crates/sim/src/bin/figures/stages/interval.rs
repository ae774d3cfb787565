//! What is written down of each interval: one line of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tallybook::stages::Distribution;
use tallybook::{Exit, Stages, Stats, Store};

use super::memory::Memory;

/// One interval of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Interval {
    /// When it ended, in seconds since the run began; probes don't count.
    pub(super) ended_s: f64,
    /// How long it was.
    pub(super) length_s: f64,
    /// Times by stage: the store's own, and `client.get`, `client.head`, ... as the caller saw them.
    pub(super) times: BTreeMap<String, Times>,
    /// Where reads and requests to files ended, and the blocks and values that they took.
    pub(super) exits: BTreeMap<String, u64>,
    /// The same for the absent keys alone that were asked for between this interval and the next.
    pub(super) probe: Probe,
    /// What the store held at the end.
    pub(super) held: Held,
    /// Memory at the end; faults are those of the interval.
    pub(super) memory: Memory,
}

/// A distribution in a few figures, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) mean_ns: u64,
    pub(super) p50_ns: u64,
    pub(super) p90_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) p999_ns: u64,
    pub(super) max_ns: u64,
}

/// Absent keys asked for while nothing else was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Probe {
    /// Keys asked for.
    pub(super) keys: u64,
    /// Requests to files that ended because no file covers the key, or at the file's filter.
    pub(super) excluded: u64,
    /// Requests to files that looked into a block, in vain.
    pub(super) in_vain: u64,
    /// Blocks that had to come from files.
    pub(super) fetched: u64,
}

/// What a store held.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Held {
    /// Keys put by the load.
    pub(super) keys: u64,
    pub(super) journal_bytes: u64,
    pub(super) level_bytes: Vec<u64>,
    pub(super) level_runs: Vec<u64>,
    pub(super) flushes: u64,
    pub(super) compactions: u64,
    pub(super) collections: u64,
}

impl Interval {
    /// The times of a stage; zeros when there were none.
    pub(super) fn times(&self, stage: &str) -> Times {
        self.times.get(stage).copied().unwrap_or_default()
    }

    /// How often reads ended so.
    pub(super) fn exits(&self, exit: &str) -> u64 {
        self.exits.get(exit).copied().unwrap_or(0)
    }

    /// Writes down what the store and its callers recorded.
    pub(super) fn record(&mut self, stages: &Stages, clients: &[(&str, &Distribution)]) {
        let own = stages.iter().map(|(stage, times)| (stage.name(), times));
        for (name, times) in own.chain(clients.iter().copied()) {
            self.times.insert(name.to_owned(), Times::of(times));
        }
        for &exit in Exit::ALL {
            self.exits.insert(exit.name().to_owned(), stages.exits(exit));
        }
    }
}

impl Times {
    fn of(times: &Distribution) -> Times {
        let summary = times.summary();
        let ns = |time: std::time::Duration| time.as_nanos() as u64;
        Times {
            count: summary.count,
            mean_ns: ns(summary.mean),
            p50_ns: ns(summary.p50),
            p90_ns: ns(summary.p90),
            p99_ns: ns(summary.p99),
            p999_ns: ns(summary.p999),
            max_ns: ns(summary.max),
        }
    }
}

impl Probe {
    /// Asks for the heads of keys that are not there, with nothing else going on but what the store does
    /// by itself.
    pub(super) fn ask(store: &Store, absent: impl Iterator<Item = [u8; 16]>) -> Probe {
        let before = store.stages();
        let mut keys = 0;
        for key in absent {
            assert!(store.head(&key).expect("a head").is_none(), "an absent key is not found");
            keys += 1;
        }
        let stages = store.stages().since(&before);
        Probe {
            keys,
            excluded: stages.exits(Exit::FileIndex) + stages.exits(Exit::FileFilter),
            in_vain: stages.exits(Exit::FileInVain),
            fetched: stages.exits(Exit::BlockFetched),
        }
    }
}

impl Held {
    /// What these figures say.
    pub(super) fn of(stats: &Stats, keys: u64) -> Held {
        Held {
            keys,
            journal_bytes: stats.segment_bytes + stats.active_segment_bytes,
            level_bytes: stats.levels.iter().map(|level| level.bytes).collect(),
            level_runs: stats.levels.iter().map(|level| level.runs).collect(),
            flushes: stats.flushes,
            compactions: stats.compactions,
            collections: stats.collections,
        }
    }
}
