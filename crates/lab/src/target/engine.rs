//! Tallybook in this process.
//!
//! Memory is the budget's, everything else the engine's own recommended settings unless overridden by
//! name. The `Interval` level isn't offered: a budget names what rivals have too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tallybook::{
    Exit, JournalWriting, Options, Reading, ResourceOptions, Resources, ScanOptions, Stages, Stats,
    Store,
};

use super::{Answers, Budget, Request, Session, Target};
use crate::error::{Error, Result};
use crate::process::{Process, QUIET, thread_cpu_time};
use crate::spec::Durability;

/// The target's name.
pub const NAME: &str = "tallybook";
/// Time between two looks, each of which takes a quarter of a millisecond.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Background threads, by the beginning of their names. Without background work the second is woken
/// now and then to find that it has nothing to do, which is not to be waited for.
const THREADS: [&str; 2] = ["tally-flush", "tally-compact"];

/// A store in this process.
#[derive(Debug)]
pub struct EngineTarget {
    store: Store,
    settings: BTreeMap<String, String>,
    directory: PathBuf,
    /// Those of `THREADS` that have work.
    threads: &'static [&'static str],
    /// What had been counted when the run began.
    before: Mutex<(Stats, Stages)>,
}

impl EngineTarget {
    /// Opens the store in `directory`, or makes it. `overrides` are settings of the engine by their
    /// names; unknown ones are refused.
    pub fn open(
        directory: &Path,
        budget: &Budget,
        overrides: &BTreeMap<String, String>,
    ) -> Result<EngineTarget> {
        let mut options = Options {
            durability: match budget.durability {
                Durability::Os => tallybook::Durability::Os,
                Durability::Sync => tallybook::Durability::Sync,
            },
            ..Options::default()
        };
        options.write_buffer_bytes = size(budget.write_buffer_bytes)?;
        // Four memtables fill the budget, so that one takes writes while others are flushed.
        let memtable = (options.write_buffer_bytes / 4).clamp(64 << 10, 1 << 30);
        options.memtable_bytes = memtable.min(options.write_buffer_bytes);
        let mut resource_options = ResourceOptions {
            write_buffer_bytes: options.write_buffer_bytes * 2,
            block_cache_bytes: size(budget.cache_bytes)?,
            ..ResourceOptions::default()
        };
        for (name, value) in overrides {
            set(&mut options, &mut resource_options, name, value)?;
        }
        let settings = settings(&options, &resource_options);
        let threads = if options.background { &THREADS[..] } else { &THREADS[..1] };
        let resources = Resources::new(resource_options).map_err(Error::io("threads"))?;
        let store = Store::open_with(directory, options, resources).map_err(refused)?;
        let before = Mutex::new((store.stats(), store.stages()));
        Ok(EngineTarget { store, settings, directory: directory.to_owned(), threads, before })
    }

    fn before(&self) -> MutexGuard<'_, (Stats, Stages)> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl Target for EngineTarget {
    fn name(&self) -> &str {
        NAME
    }

    fn settings(&self) -> BTreeMap<String, String> {
        self.settings.clone()
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(EngineSession { store: self.store.clone() }))
    }

    fn settle(&self) -> Result<Duration> {
        self.store.flush().map_err(refused)?;
        let looking_from = thread_cpu_time();
        let mut quiet_since = Instant::now();
        let mut last = None;
        while quiet_since.elapsed() < QUIET {
            let stats = self.store.stats();
            if let Some(error) = stats.background_error {
                return Err(gone(error));
            }
            let done = (stats.flushes, stats.compactions, stats.collections);
            let (ticks, is_running) = Process::current().threads_named(self.threads);
            let now = Some((done, ticks));
            if is_running || stats.immutable_memtables > 0 || now != last {
                quiet_since = Instant::now();
                last = now;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(thread_cpu_time() - looking_from)
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.directory)
    }

    fn process(&self) -> Option<u32> {
        None
    }

    fn begin(&self) {
        *self.before() = (self.store.stats(), self.store.stages());
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        let stats = self.store.stats();
        let (before, stages_before) = self.before().clone();
        let levels = stats.levels.iter().enumerate();
        for (level, figure) in levels.filter(|(_, figure)| figure.files > 0) {
            figures.insert(format!("level{level}.runs"), figure.runs as f64);
            figures.insert(format!("level{level}.files"), figure.files as f64);
            figures.insert(format!("level{level}.bytes"), figure.bytes as f64);
        }
        type Count = fn(&Stats) -> u64;
        let counted: [(&str, Count); 12] = [
            ("journal.bytes_written", |stats| stats.journal_bytes_written),
            ("flush.bytes_written", |stats| stats.flush_bytes_written),
            ("compaction.bytes_read", |stats| stats.compaction_bytes_read),
            ("compaction.bytes_written", |stats| stats.compaction_bytes_written),
            ("collection.bytes_written", |stats| stats.collection_bytes_written),
            ("flush.count", |stats| stats.flushes),
            ("compaction.count", |stats| stats.compactions),
            ("collection.count", |stats| stats.collections),
            ("sync.count", |stats| stats.syncs),
            ("stall.count", |stats| stats.stalled_writes),
            ("block_cache.hits", |stats| stats.block_cache_hits),
            ("block_cache.misses", |stats| stats.block_cache_misses),
        ];
        for (name, count) in counted {
            figures.insert(name.to_owned(), count(&stats).saturating_sub(count(&before)) as f64);
        }
        figures.insert("segments.count".into(), stats.segments as f64);
        figures.insert("segments.bytes".into(), stats.segment_bytes as f64);
        figures.insert("segments.live_bytes".into(), stats.segment_live_bytes as f64);
        let stalled = stats.stalled.saturating_sub(before.stalled);
        figures.insert("stall.seconds".into(), stalled.as_secs_f64());
        let stages = self.store.stages().since(&stages_before);
        for (stage, times) in stages.iter() {
            let summary = times.summary();
            let name = stage.name();
            figures.insert(format!("stage.{name}.count"), summary.count as f64);
            figures.insert(format!("stage.{name}.mean_ns"), summary.mean.as_nanos() as f64);
            figures.insert(format!("stage.{name}.p50_ns"), summary.p50.as_nanos() as f64);
            figures.insert(format!("stage.{name}.p99_ns"), summary.p99.as_nanos() as f64);
        }
        for &exit in Exit::ALL {
            figures.insert(format!("exit.{}", exit.name()), stages.exits(exit) as f64);
        }
        figures
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.close().map_err(refused)
    }
}

struct EngineSession {
    store: Store,
}

impl Session for EngineSession {
    fn perform(&mut self, request: Request<'_>, answers: &mut dyn Answers) -> Result<()> {
        let performed = match request {
            Request::Put { key, value } => self.store.put(key, value).map(|_| answers.written()),
            Request::Delete { key } => self.store.delete(key).map(|_| answers.written()),
            Request::Get { key } => {
                self.store.get(key).map(|value| answers.value(value.as_deref()))
            }
            Request::Head { key } => {
                self.store.head(key).map(|head| answers.length(head.map(|head| head.length)))
            }
            Request::Scan { start, count } => self.scan(start, count, answers),
        };
        match performed {
            Ok(()) => Ok(()),
            // The store refuses this write and goes on.
            Err(tallybook::Error::Busy) => {
                answers.failed("busy");
                Ok(())
            }
            Err(error) => Err(refused(error)),
        }
    }
}

impl EngineSession {
    fn scan(
        &self,
        start: &[u8],
        count: u64,
        answers: &mut dyn Answers,
    ) -> std::result::Result<(), tallybook::Error> {
        let options =
            ScanOptions { start: Some(Bytes::copy_from_slice(start)), ..ScanOptions::default() };
        let mut cursor = self.store.cursor(options)?;
        cursor.seek_to_first()?;
        let mut left = count;
        while left > 0 && cursor.valid() {
            answers.pair(cursor.key(), &cursor.value_ref()?);
            left -= 1;
            // Not past the last: a step may read another block.
            if left > 0 {
                cursor.next()?;
            }
        }
        Ok(())
    }
}

fn gone(what: impl Into<String>) -> Error {
    Error::Target { target: NAME.into(), what: what.into() }
}

fn refused(error: tallybook::Error) -> Error {
    gone(error.to_string())
}

fn size(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::Invalid(format!("{bytes} bytes are too many")))
}

/// Sets one setting by its name.
fn set(
    options: &mut Options,
    resources: &mut ResourceOptions,
    name: &str,
    value: &str,
) -> Result<()> {
    fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T> {
        let refuse = |_| Error::Invalid(format!("{name}: {value:?} is no number that fits"));
        value.parse().map_err(refuse)
    }
    match name {
        "inline_max_bytes" => options.inline_max_bytes = number(name, value)?,
        "memtable_bytes" => options.memtable_bytes = number(name, value)?,
        "memtable_journal_bytes" => options.memtable_journal_bytes = number(name, value)?,
        "segment_bytes_max" => options.segment_bytes_max = number(name, value)?,
        "block_bytes" => options.block_bytes = number(name, value)?,
        "table_bytes" => options.table_bytes = number(name, value)?,
        "level_runs_max" => options.level_runs_max = number(name, value)?,
        "collection_live_ratio" => options.collection_live_ratio = number(name, value)?,
        "sample_every" => options.sample_every = number(name, value)?,
        "flush_threads" => resources.flush_threads = number(name, value)?,
        "compaction_threads" => resources.compaction_threads = number(name, value)?,
        "background" => match value {
            "true" => options.background = true,
            "false" => options.background = false,
            _ => return Err(Error::Invalid("background is true or false".into())),
        },
        "journal_writing" => match value {
            "auto" => options.journal_writing = JournalWriting::Auto,
            "mapped" => options.journal_writing = JournalWriting::Mapped,
            "written" => options.journal_writing = JournalWriting::Written,
            _ => {
                return Err(Error::Invalid("journal_writing is auto, mapped or written".into()));
            }
        },
        "reading" => match value {
            "mapped" => options.reading = Reading::Mapped,
            "pread" => options.reading = Reading::Pread,
            _ => return Err(Error::Invalid("reading is mapped or pread".into())),
        },
        _ => {
            let known = [
                "background",
                "block_bytes",
                "collection_live_ratio",
                "compaction_threads",
                "flush_threads",
                "inline_max_bytes",
                "journal_writing",
                "level_runs_max",
                "memtable_bytes",
                "memtable_journal_bytes",
                "reading",
                "sample_every",
                "segment_bytes_max",
                "table_bytes",
            ];
            let known = known.map(str::to_owned).to_vec();
            return Err(Error::Unknown { what: "setting", name: name.to_owned(), known });
        }
    }
    Ok(())
}

fn settings(options: &Options, resources: &ResourceOptions) -> BTreeMap<String, String> {
    let pairs = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("durability", format!("{:?}", options.durability)),
        ("inline_max_bytes", options.inline_max_bytes.to_string()),
        ("memtable_bytes", options.memtable_bytes.to_string()),
        ("memtable_journal_bytes", options.memtable_journal_bytes.to_string()),
        ("write_buffer_bytes", options.write_buffer_bytes.to_string()),
        ("segment_bytes_max", options.segment_bytes_max.to_string()),
        ("journal_writing", format!("{:?}", options.journal_writing)),
        ("reading", format!("{:?}", options.reading)),
        ("block_bytes", options.block_bytes.to_string()),
        ("table_bytes", options.table_bytes.to_string()),
        ("compression", format!("{:?}", options.compression[0])),
        ("level_runs_max", options.level_runs_max.to_string()),
        ("background", options.background.to_string()),
        ("collection_live_ratio", options.collection_live_ratio.to_string()),
        ("sample_every", options.sample_every.to_string()),
        ("flush_threads", resources.flush_threads.to_string()),
        ("compaction_threads", resources.compaction_threads.to_string()),
        ("block_cache_bytes", resources.block_cache_bytes.to_string()),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}
