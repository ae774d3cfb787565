//! LevelDB, the system's library, with a bloom filter of 10 bits a key, as its documentation
//! recommends. `leveldb` compares checksums on each read of a block that isn't cached, `leveldb-unverified`,
//! as its default is, never.
//!
//! Its interface copies values out of gets; scans show them where they lie. It has no flush: what the
//! memtable holds stays in the log until the memtable is full.

mod raw;
mod database;
pub(crate) mod files;

use std::collections::BTreeMap;
use std::ffi::{CString, c_int};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tallybook_lab::Result;
use tallybook_lab::target::{Answers, Request, Session, Target};

use self::database::{Database, ReadOptions, WriteOptions};
use super::cursor;
use crate::options::{Opening, Survives, failure, settings};
use crate::stillness;

const BLOOM_BITS: c_int = 10;
/// One memtable is written to while another is flushed.
const MEMTABLE_COUNT: u64 = 2;
/// Compactions write a file of 2 MiB in much less than a second, and each file is seen.
const STILL_LOOKS: u32 = 15;

/// Opens a database.
pub(super) fn open(opening: Opening, verifies: bool) -> Result<Box<dyn Target>> {
    let database = Database::open(
        opening.directory(),
        opening.memtable_bytes(MEMTABLE_COUNT),
        opening.cache_bytes(),
        BLOOM_BITS,
    )
    .map_err(|what| opening.error(what))?;
    Ok(Box::new(LevelDb { database: Arc::new(database), verifies, opening }))
}

struct LevelDb {
    database: Arc<Database>,
    verifies: bool,
    opening: Opening,
}

impl Target for LevelDb {
    fn name(&self) -> &str {
        self.opening.name
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let (survives, durability) = if self.opening.syncs() {
            (Survives::PowerLoss, "WriteOptions::sync: fdatasync of the log, one for a group")
        } else {
            (Survives::Kill, "the log is written, not synced")
        };
        settings(
            survives,
            [
                ("version", format!("LevelDB {}", database::version())),
                ("durability", durability.to_owned()),
                ("write_buffer_size", self.opening.memtable_bytes(MEMTABLE_COUNT).to_string()),
                ("memtables", MEMTABLE_COUNT.to_string()),
                ("block_cache", self.opening.cache_bytes().to_string()),
                ("compression", "none".to_owned()),
                (
                    "verify_checksums",
                    if self.verifies { "each read of a block" } else { "no" }.to_owned(),
                ),
                ("bloom_bits_per_key", BLOOM_BITS.to_string()),
                ("value_separation", "no".to_owned()),
            ],
        )
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(LevelDbSession {
            read: ReadOptions::new(self.verifies),
            write: WriteOptions::new(self.opening.syncs()),
            database: Arc::clone(&self.database),
            name: self.opening.name,
        }))
    }

    fn settle(&self) -> Result<Duration> {
        stillness::wait(STILL_LOOKS, || {
            let stats = self.database.text(c"leveldb.stats").unwrap_or_default();
            Ok((stats, stillness::files(self.opening.directory())?))
        })
    }

    fn directory(&self) -> Option<&Path> {
        Some(self.opening.directory())
    }

    fn process(&self) -> Option<u32> {
        None
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        for level in 0..7 {
            let property = CString::new(format!("leveldb.num-files-at-level{level}"));
            let text = property.ok().and_then(|property| self.database.text(&property));
            if let Some(count) = text.and_then(|text| text.parse().ok()) {
                figures.insert(format!("files_l{level}"), count);
            }
        }
        let memory = self.database.text(c"leveldb.approximate-memory-usage");
        if let Some(bytes) = memory.and_then(|text| text.parse().ok()) {
            figures.insert("memory_bytes".to_owned(), bytes);
        }
        figures
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

struct LevelDbSession {
    read: ReadOptions,
    write: WriteOptions,
    database: Arc<Database>,
    name: &'static str,
}

impl Session for LevelDbSession {
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
                answers.value(found.as_ref().map(|copied| copied.value()));
            }
            Request::Head { key } => {
                let found = self.database.get(&self.read, key).map_err(failed)?;
                answers.length(found.map(|copied| copied.value().len() as u64));
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
