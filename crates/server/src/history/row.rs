//! A row: what the difference between two looks says, under the names that the page uses.
//!
//! Names are `what.part`. Rates are by the second, times in microseconds, sizes in bytes. Where there
//! was nothing to measure the value is not a number, which JSON has as null: no latency isn't zero.

use std::time::Duration;

use tallybook::stages::{Exit, Stage, StageSums};
use tallybook::store::Stats;

use super::look::{Gauges, Look};
use crate::meter::Operation;

/// The parts of a get, a put, and of looking into tables, which the page stacks.
const GET: &[Stage] = &[Stage::GetHead, Stage::GetBody];
const PUT: &[Stage] = &[
    Stage::PutPrepare,
    Stage::PutStall,
    Stage::PutWait,
    Stage::PutJournal,
    Stage::PutMemtable,
    Stage::PutSync,
];
const HEAD: &[Stage] = &[
    Stage::HeadMemory,
    Stage::HeadL0,
    Stage::HeadL1,
    Stage::HeadL2,
    Stage::HeadLower,
    Stage::HeadMissed,
];
const TABLE: &[Stage] = &[
    Stage::TableIndex,
    Stage::TableFilter,
    Stage::TableCache,
    Stage::TableFetch,
    Stage::TableSearch,
];
/// Waits that are each timed.
const WAITS: &[Stage] = &[
    Stage::LockCommit,
    Stage::LockTree,
    Stage::LockInstall,
    Stage::LockFlushes,
    Stage::LockLog,
    Stage::LockSync,
    Stage::LockSpares,
    Stage::LockMemtable,
    Stage::SyncWait,
];

/// Names and values, in an order that never changes within a run.
#[derive(Debug, Default)]
pub(super) struct Row(Vec<(String, f32)>);

impl Row {
    /// What happened between two looks, and the largest of each gauge meanwhile.
    pub(super) fn between(from: &Look, to: &Look, peaks: &Gauges) -> Row {
        let mut row = Row::default();
        let seconds = to.seconds_since(from);
        row.traffic(from, to, seconds);
        let stages = to.stages.since(&from.stages);
        row.stages(&stages, seconds);
        row.exits(&stages, seconds);
        row.tree(&to.stats);
        row.work(&from.stats, &to.stats, seconds);
        row.sizes(to, peaks);
        let processor_s = (to.process.cpu_seconds - from.process.cpu_seconds).max(0.0);
        row.add("process.cores", processor_s / seconds);
        row.add("sample_every", f64::from(to.stages.sample_every));
        row.add("connections", peaks.connections as f64);
        row.add("in_flight", peaks.requests_in_flight as f64);
        row.add("write_pressure", peaks.write_pressure);
        row
    }

    pub(super) fn names(self) -> Vec<String> {
        self.0.into_iter().map(|(name, _)| name).collect()
    }

    pub(super) fn values(self) -> Box<[f32]> {
        self.0.into_iter().map(|(_, value)| value).collect()
    }

    fn add(&mut self, name: impl Into<String>, value: f64) {
        self.0.push((name.into(), five_digits(value)));
    }

    fn traffic(&mut self, from: &Look, to: &Look, seconds: f64) {
        let traffic = to.traffic.since(&from.traffic);
        let mut failures = 0;
        for operation in Operation::ALL {
            let (name, of) = (operation.name(), traffic.of(operation));
            failures += of.failures();
            let latency = of.latency.summary();
            let time = |time| if latency.count == 0 { f64::NAN } else { micros(time) };
            self.add(format!("{name}.rate"), of.requests() as f64 / seconds);
            self.add(format!("{name}.p50"), time(latency.p50));
            self.add(format!("{name}.p99"), time(latency.p99));
            self.add(format!("{name}.p999"), time(latency.p999));
            self.add(format!("{name}.max"), time(latency.max));
        }
        self.add("failures", failures as f64 / seconds);
        self.add("bytes.received", traffic.bytes_received as f64 / seconds);
        self.add("bytes.sent", traffic.bytes_sent as f64 / seconds);
    }

    /// Of each operation that was timed, the time by part. A part's share is its sum over the number
    /// of whole operations, so that the parts add up to the mean of the whole.
    fn stages(&mut self, since: &StageSums, seconds: f64) {
        let mut stack = |parts: &[Stage], operations: u64, whole: Option<Duration>, rest: &str| {
            let mean = |sum: Duration| match operations {
                0 => f64::NAN,
                _ => micros(sum) / operations as f64,
            };
            let mut accounted = Duration::ZERO;
            for &part in parts {
                let sum = since.times(part).1;
                accounted += sum;
                self.add(format!("stage.{}", part.name()), mean(sum));
            }
            if let Some(whole) = whole {
                self.add(format!("stage.{rest}"), mean(whole.saturating_sub(accounted)));
            }
        };
        let (gets, get_time) = since.times(Stage::GetTotal);
        stack(GET, gets, Some(get_time), "get.rest");
        let (puts, put_time) = since.times(Stage::PutTotal);
        stack(PUT, puts, Some(put_time), "put.rest");
        let finds = HEAD.iter().map(|&stage| since.times(stage).0).sum();
        stack(HEAD, finds, None, "");
        stack(TABLE, finds, None, "");
        for &wait in WAITS {
            self.add(format!("wait.{}", wait.name()), micros(since.times(wait).1) / seconds);
        }
    }

    fn exits(&mut self, since: &StageSums, seconds: f64) {
        for &exit in Exit::ALL {
            self.add(format!("exit.{}", exit.name()), since.exits(exit) as f64 / seconds);
        }
    }

    fn tree(&mut self, stats: &Stats) {
        for (level, of) in stats.levels.iter().enumerate() {
            self.add(format!("level.{level}.runs"), of.runs as f64);
            self.add(format!("level.{level}.files"), of.files as f64);
            self.add(format!("level.{level}.bytes"), of.bytes as f64);
            self.add(format!("level.{level}.entries"), of.entries as f64);
        }
    }

    fn work(&mut self, from: &Stats, to: &Stats, seconds: f64) {
        for (name, then, now) in [
            ("user.bytes", from.user_bytes_written, to.user_bytes_written),
            ("journal.bytes", from.journal_bytes_written, to.journal_bytes_written),
            ("flush.bytes", from.flush_bytes_written, to.flush_bytes_written),
            ("compaction.bytes_read", from.compaction_bytes_read, to.compaction_bytes_read),
            ("compaction.bytes", from.compaction_bytes_written, to.compaction_bytes_written),
            ("collection.bytes", from.collection_bytes_written, to.collection_bytes_written),
            ("flushes", from.flushes, to.flushes),
            ("compactions", from.compactions, to.compactions),
            ("collections", from.collections, to.collections),
            ("syncs", from.syncs, to.syncs),
            ("stall.writes", from.stalled_writes, to.stalled_writes),
            ("cache.hits", from.block_cache_hits, to.block_cache_hits),
            ("cache.misses", from.block_cache_misses, to.block_cache_misses),
        ] {
            self.add(name, now.saturating_sub(then) as f64 / seconds);
        }
        self.add("stall.time", micros(to.stalled.saturating_sub(from.stalled)) / seconds);
    }

    fn sizes(&mut self, to: &Look, peaks: &Gauges) {
        let stats = &to.stats;
        let own = to.process.own_bytes;
        let named = [
            ("memory.memtables", stats.memtable_bytes),
            ("memory.spare_memtables", stats.spare_memtable_bytes),
            ("memory.block_cache", stats.block_cache_bytes),
            ("memory.indexes", stats.table_index_bytes + stats.collected_index_bytes),
            ("memory.bodies", peaks.body_memory_bytes as u64),
        ];
        let sum: u64 = named.iter().map(|(_, bytes)| bytes).sum();
        for (name, bytes) in named {
            self.add(name, bytes as f64);
        }
        self.add("memory.rest", own.saturating_sub(sum) as f64);
        self.add("memory.own", own as f64);
        self.add("memory.mapped", to.process.mapped_bytes as f64);
        self.add("memtables.waiting", stats.immutable_memtables as f64);
        let tables: u64 = stats.levels.iter().map(|level| level.bytes).sum();
        let dead = stats.segment_bytes.saturating_sub(stats.segment_live_bytes);
        self.add("disk.tables", tables as f64);
        self.add("disk.journal_live", (stats.segment_bytes - dead) as f64);
        self.add("disk.journal_dead", dead as f64);
        self.add("disk.journal_active", stats.active_segment_bytes as f64);
        self.add("disk.spares", stats.spare_segment_bytes as f64);
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

/// Five digits say all that a chart shows, and JSON has them in six characters.
fn five_digits(value: f64) -> f32 {
    if value == 0.0 || !value.is_finite() {
        return value as f32;
    }
    let scale = 10_f64.powi(4 - value.abs().log10().floor() as i32);
    ((value * scale).round() / scale) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::time::Instant;
    use tallybook::options::Options;
    use tallybook::stages::Recorder;
    use tallybook::store::Store;

    use crate::meter::Meter;

    #[test]
    fn names_are_unique_and_the_same_in_every_row() {
        let nothing = Look::default();
        let names = Row::between(&nothing, &nothing, &Gauges::default()).names();
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        let process = crate::process::Process::read().unwrap();
        let something = Look { at: Some(Instant::now()), process, ..Look::default() };
        assert_eq!(Row::between(&nothing, &something, &Gauges::default()).names(), names);
    }

    fn row_of(from: &Look, to: &Look) -> HashMap<String, f32> {
        Row::between(from, to, &Gauges::default()).0.into_iter().collect()
    }

    /// A look at a recorder alone, so many seconds after `start`.
    fn look_at(recorder: &Recorder, start: Instant, seconds: u64) -> Look {
        let at = Some(start + Duration::from_secs(seconds));
        Look { at, stages: recorder.sums(), ..Look::default() }
    }

    #[test]
    fn parts_of_an_operation_add_up_to_its_mean_whichever_parts_it_had() {
        let recorder = Recorder::new(1);
        let start = Instant::now();
        let from = look_at(&recorder, start, 0);
        let pause = || std::thread::sleep(Duration::from_micros(200));
        // Three gets find their entry, one of them a value too.
        for has_value in [true, false, false] {
            let mut trace = recorder.begin();
            pause();
            trace.lap(Stage::GetHead);
            if has_value {
                pause();
                trace.lap(Stage::GetBody);
            }
            trace.total(Stage::GetTotal);
        }
        let to = look_at(&recorder, start, 1);
        let row = row_of(&from, &to);
        let (count, total) = to.stages.since(&from.stages).times(Stage::GetTotal);
        assert_eq!(count, 3);
        let mean = micros(total) as f32 / 3.0;
        let parts = ["head", "body", "rest"].map(|part| row[&format!("stage.get.{part}")]);
        let sum: f32 = parts.iter().sum();
        assert!((0.999..=1.001).contains(&(sum / mean)), "{parts:?}, mean {mean}");
        assert!(parts[0] >= 200.0 && parts[1] >= 200.0 / 3.0, "{parts:?}");
        assert!(row["stage.put.journal"].is_nan(), "no put was timed");
        let later = row_of(&to, &look_at(&recorder, start, 2));
        assert!(later["stage.get.head"].is_nan(), "and no get since");
    }

    #[test]
    fn exits_and_waits_are_by_the_second() {
        let recorder = Recorder::new(1);
        let start = Instant::now();
        let from = look_at(&recorder, start, 0);
        for _ in 0..30 {
            recorder.begin().count(Exit::L1);
        }
        let mut trace = recorder.begin_rare();
        std::thread::sleep(Duration::from_millis(2));
        trace.lap(Stage::LockCommit);
        let row = row_of(&from, &look_at(&recorder, start, 10));
        assert_eq!((row["exit.head.l1"], row["exit.head.l0"]), (3.0, 0.0));
        assert!(row["wait.lock.commit"] >= 200.0, "2 ms in 10 s: {}", row["wait.lock.commit"]);
    }

    #[test]
    fn five_digits_are_kept_of_any_value() {
        for (value, expected) in
            [(0.0, 0.0), (1.0, 1.0), (123_456.0, 123_460.0), (0.012_345_67, 0.012_346)]
        {
            assert_eq!(five_digits(value), expected as f32, "{value}");
        }
        assert!(five_digits(f64::NAN).is_nan());
    }

    #[test]
    fn a_row_says_what_a_store_did_between_two_looks() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let meter = Meter::default();
        let start = Instant::now();
        let from = Look::take(&store, &meter, start);
        for at in 0..100_u32 {
            store.put(&at.to_be_bytes(), &[7; 2000]).unwrap();
        }
        store.flush().unwrap();
        let to = Look::take(&store, &meter, start + Duration::from_secs(2));
        let row = row_of(&from, &to);
        assert!(row["user.bytes"] >= 100_000.0, "200 KB in 2 seconds: {}", row["user.bytes"]);
        assert_eq!((row["flushes"], row["level.0.files"]), (0.5, 1.0));
        assert_eq!(row["level.0.entries"], 100.0);
        assert!(row["disk.tables"] > 0.0 && row["memory.own"] > 0.0);
        assert!(row["get.p99"].is_nan() && row["stage.get.head"].is_nan());
        store.close().unwrap();
    }
}
