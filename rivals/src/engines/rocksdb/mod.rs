//! RocksDB, the system's library, with three settings: `rocksdb` (its defaults), `rocksdb-tuned`
//! (what its tuning guide recommends for data that the page cache holds) and `rocksdb-blob` (values
//! of 1 KiB and more in blob files).
//!
//! Gets use pinned slices, scans an iterator each. A `Head` is a get that looks at the length only:
//! RocksDB knows no cheaper way to a value's length.

mod raw;
mod settings;
mod database;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tallybook_lab::Result;
use tallybook_lab::process::thread_cpu_time;
use tallybook_lab::target::{Answers, Request, Session, Target};

use self::database::{Database, ReadOptions, WriteOptions};
use self::settings::Settings;
use super::cursor;
use crate::options::{Opening, Survives, failure, settings};

/// Which settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// RocksDB's defaults.
    Defaults,
    /// Recommended for data in the page cache.
    Tuned,
    /// Recommended for data read through a block cache.
    Cached,
    /// The same, keys and values apart.
    Blob,
}

/// Values from here on go to blob files, as those of Tallybook and fjall go to theirs.
const BLOB_BYTES_MIN: u64 = 1024;
/// RocksDB's default: one memtable is written to while another is flushed.
const MEMTABLE_COUNT: u16 = 2;

/// Opens a database.
pub(super) fn open(opening: Opening, variant: Variant) -> Result<Box<dyn Target>> {
    let chosen = chosen(&opening, variant);
    let database =
        Database::open(opening.directory(), &chosen).map_err(|what| opening.error(what))?;
    let library = Library::from_log(opening.directory());
    Ok(Box::new(RocksDb { database: Arc::new(database), chosen, library, opening }))
}

fn chosen(opening: &Opening, variant: Variant) -> Settings {
    let defaults = Settings {
        memtable_bytes: opening.memtable_bytes(MEMTABLE_COUNT.into()),
        memtable_count: MEMTABLE_COUNT,
        block_cache_bytes: Some(opening.cache_bytes()),
        ..Settings::default()
    };
    let threads = thread::available_parallelism().map_or(2, |count| count.get()).clamp(2, 16);
    let recommended = Settings {
        bloom_bits: Some(10.0),
        memtable_bloom_ratio: Some(0.1),
        dynamic_level_bytes: true,
        bytes_per_sync: Some(1 << 20),
        background_threads: u16::try_from(threads).ok(),
        ..defaults.clone()
    };
    match variant {
        Variant::Defaults => defaults,
        // Mapped reads make the block cache a second copy of what the page cache holds.
        Variant::Tuned => Settings {
            mmap_reads: true,
            block_cache_bytes: None,
            block_hash_ratio: Some(0.75),
            ..recommended
        },
        Variant::Cached => recommended,
        Variant::Blob => Settings { blob_bytes_min: Some(BLOB_BYTES_MIN), ..recommended },
    }
}

/// What the library tells of itself at the head of its log; it has no call for that.
#[derive(Debug, Default)]
struct Library {
    version: String,
    fast_crc32: String,
}

impl Library {
    fn from_log(directory: &Path) -> Self {
        // The record is poorer without the log, but right: nothing else depends on it.
        let log = fs::read(directory.join("LOG")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let find = |label: &str| {
            let found = log.lines().find_map(|line| line.split_once(label));
            found.map_or_else(|| "unknown".to_owned(), |(_, rest)| rest.trim().to_owned())
        };
        Library { version: find("RocksDB version:"), fast_crc32: find("Fast CRC32 supported:") }
    }
}

struct RocksDb {
    database: Arc<Database>,
    chosen: Settings,
    library: Library,
    opening: Opening,
}

impl RocksDb {
    fn number(&self, name: &CStr) -> u64 {
        self.database.number(name).unwrap_or(0)
    }

    fn has_background_work(&self) -> bool {
        let busy = [
            c"rocksdb.num-immutable-mem-table",
            c"rocksdb.mem-table-flush-pending",
            c"rocksdb.num-running-flushes",
            c"rocksdb.compaction-pending",
            c"rocksdb.num-running-compactions",
        ];
        busy.iter().any(|name| self.number(name) > 0)
    }
}

impl Target for RocksDb {
    fn name(&self) -> &str {
        self.opening.name
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let chosen = &self.chosen;
        let (survives, durability) = if self.opening.syncs() {
            (Survives::PowerLoss, "WriteOptions::sync: fdatasync of the log, one for a group")
        } else {
            (Survives::Kill, "the log is written, not synced")
        };
        let told = |on: bool, value: String| if on { value } else { "no".to_owned() };
        settings(
            survives,
            [
                ("version", format!("RocksDB {}", self.library.version)),
                ("fast_crc32", self.library.fast_crc32.clone()),
                ("durability", durability.to_owned()),
                ("write_buffer_size", chosen.memtable_bytes.to_string()),
                ("max_write_buffer_number", chosen.memtable_count.to_string()),
                (
                    "block_cache",
                    chosen.block_cache_bytes.map_or("none".to_owned(), |bytes| bytes.to_string()),
                ),
                ("compression", "none".to_owned()),
                ("verify_checksums", "yes".to_owned()),
                (
                    "bloom_bits_per_key",
                    chosen.bloom_bits.map_or("none".to_owned(), |bits| bits.to_string()),
                ),
                ("allow_mmap_reads", told(chosen.mmap_reads, "yes".to_owned())),
                (
                    "data_block_hash_index",
                    told(chosen.block_hash_ratio.is_some(), "yes, ratio 0.75".to_owned()),
                ),
                (
                    "memtable_bloom",
                    told(chosen.memtable_bloom_ratio.is_some(), "yes, whole keys, 0.1".to_owned()),
                ),
                (
                    "level_compaction_dynamic_level_bytes",
                    told(chosen.dynamic_level_bytes, "yes".to_owned()),
                ),
                (
                    "value_separation",
                    chosen.blob_bytes_min.map_or("no".to_owned(), |bytes| {
                        format!("BlobDB from {bytes} bytes, collected, blob cache shared")
                    }),
                ),
            ],
        )
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(RocksDbSession {
            read: ReadOptions::default(),
            write: WriteOptions::new(self.opening.syncs()),
            database: Arc::clone(&self.database),
            name: self.opening.name,
        }))
    }

    fn settle(&self) -> Result<Duration> {
        self.database.flush().map_err(failure(self.opening.name))?;
        let from = thread_cpu_time();
        // A finished compaction may call for the next one, a moment later.
        let mut idle = 0;
        while idle < 4 {
            if self.number(c"rocksdb.background-errors") > 0 {
                return Err(self.opening.error("background work failed; its LOG tells why"));
            }
            idle = if self.has_background_work() { 0 } else { idle + 1 };
            thread::sleep(Duration::from_millis(25));
        }
        Ok(thread_cpu_time() - from)
    }

    fn directory(&self) -> Option<&Path> {
        Some(self.opening.directory())
    }

    fn process(&self) -> Option<u32> {
        None
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        for (name, property) in [
            ("sst_bytes", c"rocksdb.total-sst-files-size"),
            ("blob_bytes", c"rocksdb.total-blob-file-size"),
            ("blob_live_garbage_bytes", c"rocksdb.live-blob-file-garbage-size"),
            ("blob_files", c"rocksdb.num-blob-files"),
            ("memtable_bytes", c"rocksdb.cur-size-all-mem-tables"),
            ("table_reader_bytes", c"rocksdb.estimate-table-readers-mem"),
            ("block_cache_bytes", c"rocksdb.block-cache-usage"),
            ("pending_compaction_bytes", c"rocksdb.estimate-pending-compaction-bytes"),
            ("keys_estimated", c"rocksdb.estimate-num-keys"),
        ] {
            if let Some(value) = self.database.number(property) {
                figures.insert(name.to_owned(), value as f64);
            }
        }
        for level in 0..7 {
            let property = CString::new(format!("rocksdb.num-files-at-level{level}"));
            let text = property.ok().and_then(|property| self.database.text(&property));
            if let Some(count) = text.and_then(|text| text.parse().ok()) {
                figures.insert(format!("files_l{level}"), count);
            }
        }
        figures
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

struct RocksDbSession {
    read: ReadOptions,
    write: WriteOptions,
    database: Arc<Database>,
    name: &'static str,
}

impl Session for RocksDbSession {
    fn perform(&mut self, request: Request<'_>, answers: &mut dyn Answers) -> Result<()> {
        let failed = failure(self.name);
        match request {
            Request::Put { key, value } => {
                self.database.put(&self.write, key, value).map_err(failed)?;
                answers.written();
            }
            Request::Delete { key } => {
                self.database.delete(&self.write, key).map_err(failed)?;
                answers.written();
            }
            Request::Get { key } => {
                let found = self.database.get(&self.read, key).map_err(failed)?;
                answers.value(found.as_ref().map(|pinned| pinned.value()));
            }
            Request::Head { key } => {
                let found = self.database.get(&self.read, key).map_err(failed)?;
                answers.length(found.map(|pinned| pinned.value().len() as u64));
            }
            Request::Scan { start, count } => {
                let mut cursor = self.database.iterate(&self.read, start);
                cursor::show(&mut cursor, count, answers);
                cursor.error().map_err(failed)?;
            }
        }
        Ok(())
    }
}
