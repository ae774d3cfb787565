//! fjall, with its values beside their keys (`fjall`) or values of 1 KiB and more in files of their
//! own (`fjall-blob`); both ways its defaults, but for the budget.
//!
//! Gets and scans show slices that share the block that was read. A `Head` is `size_of`, which reads
//! no separated value.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use tallybook_lab::Result;
use tallybook_lab::target::{Answers, Request, Session, Target};

use crate::options::{Opening, Survives, crate_version, failure, settings};
use crate::stillness;

/// As RocksDB and LevelDB: one memtable is written to while another is flushed. fjall lets up to four
/// wait before it slows writers, so it may exceed the budget under load.
const MEMTABLE_COUNT: u64 = 2;
/// Flushes and compactions are counted by fjall; the looks cover the gap between two of them.
const STILL_LOOKS: u32 = 6;

/// Opens a database.
pub(super) fn open(opening: Opening, separates: bool) -> Result<Box<dyn Target>> {
    let failed = failure(opening.name);
    let database = Database::builder(opening.directory())
        .cache_size(opening.budget.cache_bytes)
        .open()
        .map_err(&failed)?;
    let options = || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(opening.memtable_bytes(MEMTABLE_COUNT) as u64)
            .with_kv_separation(separates.then(KvSeparationOptions::default))
    };
    let keyspace = database.keyspace("default", options).map_err(&failed)?;
    Ok(Box::new(Fjall { keyspace, database, separates, opening }))
}

struct Fjall {
    keyspace: Keyspace,
    database: Database,
    separates: bool,
    opening: Opening,
}

impl Target for Fjall {
    fn name(&self) -> &str {
        self.opening.name
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let (survives, durability) = if self.opening.syncs() {
            (Survives::PowerLoss, "PersistMode::SyncData after each write")
        } else {
            (Survives::Kill, "the journal is written, not synced")
        };
        let separation = if self.separates { "from 1024 bytes, collected" } else { "no" };
        settings(
            survives,
            [
                ("version", format!("fjall {}", crate_version("fjall"))),
                ("durability", durability.to_owned()),
                ("max_memtable_size", self.opening.memtable_bytes(MEMTABLE_COUNT).to_string()),
                ("memtables", "2; up to 4 more wait before writers are slowed".to_owned()),
                ("block_cache", self.opening.budget.cache_bytes.to_string()),
                ("compression", "none".to_owned()),
                ("verify_checksums", "yes, when a block is read".to_owned()),
                ("bloom", "default: 0.01 % in the first level, 10 bits a key below".to_owned()),
                ("value_separation", separation.to_owned()),
            ],
        )
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(FjallSession {
            keyspace: self.keyspace.clone(),
            database: self.database.clone(),
            syncs: self.opening.syncs(),
            name: self.opening.name,
        }))
    }

    fn settle(&self) -> Result<Duration> {
        self.keyspace.rotate_memtable_and_wait().map_err(failure(self.opening.name))?;
        let mut looks = 0_u64;
        stillness::wait(STILL_LOOKS, || {
            looks += 1;
            let busy =
                self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0;
            Ok((
                // Two looks at a busy engine never count as the same.
                if busy { looks } else { 0 },
                self.database.compactions_completed(),
                self.keyspace.table_count(),
                self.keyspace.sealed_memtable_count(),
            ))
        })
    }

    fn directory(&self) -> Option<&Path> {
        Some(self.opening.directory())
    }

    fn process(&self) -> Option<u32> {
        None
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        [
            ("tables", self.keyspace.table_count() as f64),
            ("tables_l0", self.keyspace.l0_table_count() as f64),
            ("blob_files", self.keyspace.blob_file_count() as f64),
            ("fragmented_blob_bytes", self.keyspace.fragmented_blob_bytes() as f64),
            ("keyspace_bytes", self.keyspace.disk_space() as f64),
            ("journals", self.database.journal_count() as f64),
            ("memtable_bytes", self.database.write_buffer_size() as f64),
            ("block_cache_bytes", self.database.cache_size() as f64),
            ("compactions", self.database.compactions_completed() as f64),
            ("compacting_s", self.database.time_compacting().as_secs_f64()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

struct FjallSession {
    keyspace: Keyspace,
    database: Database,
    syncs: bool,
    name: &'static str,
}

impl FjallSession {
    fn sync_if_asked(&self) -> fjall::Result<()> {
        if self.syncs { self.database.persist(PersistMode::SyncData) } else { Ok(()) }
    }

    fn scan(&self, start: &[u8], count: u64, answers: &mut dyn Answers) -> fjall::Result<()> {
        let mut left = count;
        let mut pairs = self.keyspace.range(start..);
        while left > 0
            && let Some(guard) = pairs.next()
        {
            let (key, value) = guard.into_inner()?;
            answers.pair(&key, &value);
            left -= 1;
        }
        Ok(())
    }
}

impl Session for FjallSession {
    fn perform(&mut self, request: Request<'_>, answers: &mut dyn Answers) -> Result<()> {
        let failed = failure(self.name);
        match request {
            Request::Put { key, value } => {
                self.keyspace.insert(key, value).map_err(&failed)?;
                self.sync_if_asked().map_err(&failed)?;
                answers.written();
            }
            Request::Delete { key } => {
                self.keyspace.remove(key).map_err(&failed)?;
                self.sync_if_asked().map_err(&failed)?;
                answers.written();
            }
            Request::Get { key } => {
                let found = self.keyspace.get(key).map_err(&failed)?;
                answers.value(found.as_deref());
            }
            Request::Head { key } => {
                let length = self.keyspace.size_of(key).map_err(&failed)?;
                answers.length(length.map(u64::from));
            }
            Request::Scan { start, count } => {
                self.scan(start, count, answers).map_err(&failed)?;
            }
        }
        Ok(())
    }
}
