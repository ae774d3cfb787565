//! sled 0.34, its last stable version: a log-structured tree with a log in process memory.
//!
//! What sled acknowledges is in a buffer of the process until a flush. `sled` flushes after each
//! write, so that what is acknowledged survives as asked; `sled-buffered` lets sled flush when it
//! likes, as its users mostly do, and says that this is less than was asked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tallybook_lab::target::{Answers, Request, Session, Target};
use tallybook_lab::{Error, Result};

use crate::options::{Opening, Survives, crate_version, failure, settings};

/// sled's default.
const FLUSH_EVERY_MS: u64 = 500;

/// Opens a database.
pub(super) fn open(opening: Opening, flushes: bool) -> Result<Box<dyn Target>> {
    let database = sled::Config::new()
        .path(opening.directory())
        .cache_capacity(opening.shared_cache_bytes() as u64)
        .flush_every_ms(Some(FLUSH_EVERY_MS))
        .open()
        .map_err(failure(opening.name))?;
    let log =
        File::open(opening.directory().join("db")).map_err(Error::io("opening sled's log"))?;
    let after_write = match (flushes, opening.syncs()) {
        (false, _) => AfterWrite::Nothing,
        (true, false) => AfterWrite::Flush,
        (true, true) => AfterWrite::FlushAndSync,
    };
    Ok(Box::new(Sled { database, log: Arc::new(log), after_write, opening }))
}

/// What is done after a write, before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterWrite {
    Nothing,
    /// sled's `flush`: `pwrite` and, on Linux, `sync_file_range`, which waits for the device but
    /// syncs neither its cache nor the file's length.
    Flush,
    /// That, and what is missing: `fdatasync` of the log.
    FlushAndSync,
}

struct Sled {
    database: sled::Db,
    log: Arc<File>,
    after_write: AfterWrite,
    opening: Opening,
}

impl Target for Sled {
    fn name(&self) -> &str {
        self.opening.name
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let (survives, durability) = match self.after_write {
            AfterWrite::Nothing => {
                (Survives::Nothing, "buffered in the process, flushed every 500 ms")
            }
            AfterWrite::Flush => (
                Survives::Kill,
                "flush() after each write, which also waits for the device: it has nothing weaker \
                 that survives a kill",
            ),
            AfterWrite::FlushAndSync => {
                (Survives::PowerLoss, "flush() and fdatasync of the log after each write")
            }
        };
        settings(
            survives,
            [
                ("version", format!("sled {}", crate_version("sled"))),
                ("durability", durability.to_owned()),
                (
                    "cache_capacity",
                    format!(
                        "{}, pages read and pages to write together",
                        self.opening.shared_cache_bytes()
                    ),
                ),
                ("flush_every_ms", FLUSH_EVERY_MS.to_string()),
                ("compression", "none".to_owned()),
                ("verify_checksums", "yes, when a page is read from the log".to_owned()),
            ],
        )
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(SledSession {
            database: self.database.clone(),
            log: Arc::clone(&self.log),
            after_write: self.after_write,
            name: self.opening.name,
        }))
    }

    fn settle(&self) -> Result<Duration> {
        self.database.flush().map_err(failure(self.opening.name))?;
        Ok(Duration::ZERO)
    }

    fn directory(&self) -> Option<&Path> {
        Some(self.opening.directory())
    }

    fn process(&self) -> Option<u32> {
        None
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        if let Ok(bytes) = self.database.size_on_disk() {
            figures.insert("log_bytes".to_owned(), bytes as f64);
        }
        figures
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.flush().map_err(failure(self.opening.name))?;
        Ok(())
    }
}

struct SledSession {
    database: sled::Db,
    log: Arc<File>,
    after_write: AfterWrite,
    name: &'static str,
}

impl SledSession {
    fn after_write(&self) -> Result<()> {
        if self.after_write != AfterWrite::Nothing {
            self.database.flush().map_err(failure(self.name))?;
        }
        if self.after_write == AfterWrite::FlushAndSync {
            self.log.sync_data().map_err(failure::<io::Error>(self.name))?;
        }
        Ok(())
    }

    fn scan(&self, start: &[u8], count: u64, answers: &mut dyn Answers) -> sled::Result<()> {
        let mut left = count;
        let mut pairs = self.database.range(start..);
        while left > 0
            && let Some(pair) = pairs.next()
        {
            let (key, value) = pair?;
            answers.pair(&key, &value);
            left -= 1;
        }
        Ok(())
    }
}

impl Session for SledSession {
    fn perform(&mut self, request: Request<'_>, answers: &mut dyn Answers) -> Result<()> {
        let failed = failure(self.name);
        match request {
            Request::Put { key, value } => {
                self.database.insert(key, value).map_err(failed)?;
                self.after_write()?;
                answers.written();
            }
            Request::Delete { key } => {
                self.database.remove(key).map_err(failed)?;
                self.after_write()?;
                answers.written();
            }
            Request::Get { key } => {
                let found = self.database.get(key).map_err(failed)?;
                answers.value(found.as_deref());
            }
            Request::Head { key } => {
                let found = self.database.get(key).map_err(failed)?;
                answers.length(found.map(|value| value.len() as u64));
            }
            Request::Scan { start, count } => {
                self.scan(start, count, answers).map_err(failed)?;
            }
        }
        Ok(())
    }
}
