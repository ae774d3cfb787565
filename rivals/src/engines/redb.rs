//! redb: a B+tree in one file, copied on write, one writer at a time.
//!
//! Its own `Durability::None` loses every commit since the last durable one when the process is
//! killed, which is weaker than `Os` asks. Every commit is therefore durable to redb, and for `Os`
//! the file's backend leaves out the syncs: commits are in the page cache when acknowledged, as
//! LMDB's are with NO_SYNC. Gets and scans show guarded pages of its cache.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redb::backends::FileBackend;
use redb::{
    Database, ReadOnlyTable, ReadableDatabase, ReadableTableMetadata, StorageBackend,
    TableDefinition,
};
use tallybook_lab::Result;
use tallybook_lab::target::{Answers, Request, Session, Target};

use super::commits::{Commits, Kept};
use crate::options::{Opening, Survives, crate_version, failure, settings};

const PAIRS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("pairs");

/// Opens a database of one table.
pub(super) fn open(opening: Opening) -> Result<Box<dyn Target>> {
    let database = open_database(&opening).map_err(failure(opening.name))?;
    create_table(&database).map_err(failure(opening.name))?;
    Ok(Box::new(Redb {
        database: Arc::new(Shared { database, commits: Commits::default() }),
        opening,
    }))
}

fn open_database(opening: &Opening) -> std::result::Result<Database, redb::DatabaseError> {
    let path = opening.directory().join("pairs.redb");
    let mut builder = Database::builder();
    builder.set_cache_size(opening.shared_cache_bytes());
    if opening.syncs() {
        return builder.create(path);
    }
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.map_err(redb::StorageError::Io)?;
    builder.create_with_backend(Unsynced::new(file)?)
}

fn create_table(database: &Database) -> std::result::Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(PAIRS)?;
    transaction.commit()?;
    Ok(())
}

/// A file whose writes are left to the page cache: they survive the process, not the machine.
#[derive(Debug)]
struct Unsynced(FileBackend);

impl Unsynced {
    fn new(file: File) -> std::result::Result<Self, redb::DatabaseError> {
        // This process alone was given the directory, and opens the file once. What redb's own
        // backend would lock, this one holds by the standard library's lock.
        file.try_lock().map_err(|error| redb::StorageError::Io(error.into()))?;
        Ok(Unsynced(FileBackend::new(file)?))
    }
}

impl StorageBackend for Unsynced {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

struct Shared {
    database: Database,
    commits: Commits,
}

struct Redb {
    database: Arc<Shared>,
    opening: Opening,
}

impl Target for Redb {
    fn name(&self) -> &str {
        self.opening.name
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let (survives, durability) = if self.opening.syncs() {
            (Survives::PowerLoss, "Durability::Immediate: fdatasync in each commit")
        } else {
            (
                Survives::Kill,
                "Durability::Immediate on a file whose syncs are left out; redb's own None would \
                 lose commits when the process is killed",
            )
        };
        settings(
            survives,
            [
                ("version", format!("redb {}", crate_version("redb"))),
                ("durability", durability.to_owned()),
                (
                    "cache",
                    format!(
                        "{}, pages read and pages to write together",
                        self.opening.shared_cache_bytes()
                    ),
                ),
                ("compression", "none".to_owned()),
                ("verify_checksums", "when it repairs, not on a read".to_owned()),
                (
                    "read_transactions",
                    "kept by each session until something is committed".to_owned(),
                ),
            ],
        )
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(RedbSession {
            read: Kept::default(),
            database: Arc::clone(&self.database),
            name: self.opening.name,
        }))
    }

    fn settle(&self) -> Result<Duration> {
        // It works in the thread that asks, and nowhere else.
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
        let stats = begin_read(&self.database.database)
            .and_then(|table| Ok((table.stats()?, table.len()?)));
        if let Ok((stats, keys)) = stats {
            figures.insert("tree_depth".to_owned(), f64::from(stats.tree_height()));
            figures.insert("leaf_pages".to_owned(), stats.leaf_pages() as f64);
            figures.insert("branch_pages".to_owned(), stats.branch_pages() as f64);
            figures.insert("stored_bytes".to_owned(), stats.stored_bytes() as f64);
            figures.insert("fragmented_bytes".to_owned(), stats.fragmented_bytes() as f64);
            figures.insert("keys".to_owned(), keys as f64);
        }
        figures
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;
type RedbResult<T> = std::result::Result<T, redb::Error>;

fn begin_read(database: &Database) -> RedbResult<Table> {
    Ok(database.begin_read()?.open_table(PAIRS)?)
}

struct RedbSession {
    read: Kept<Table>,
    database: Arc<Shared>,
    name: &'static str,
}

impl RedbSession {
    fn reading(&mut self) -> RedbResult<&Table> {
        let shared = &self.database;
        self.read.current(&shared.commits, || begin_read(&shared.database))
    }

    /// Sets a key, or deletes it.
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> RedbResult<()> {
        self.read.end();
        // Durability::Immediate is the default.
        let transaction = self.database.database.begin_write()?;
        {
            let mut table = transaction.open_table(PAIRS)?;
            match value {
                Some(value) => drop(table.insert(key, value)?),
                None => drop(table.remove(key)?),
            }
        }
        transaction.commit()?;
        self.database.commits.count();
        Ok(())
    }

    fn get(&mut self, key: &[u8], show: impl FnOnce(Option<&[u8]>)) -> RedbResult<()> {
        let found = self.reading()?.get(key)?;
        show(found.as_ref().map(|guard| guard.value()));
        Ok(())
    }

    fn scan(&mut self, start: &[u8], count: u64, answers: &mut dyn Answers) -> RedbResult<()> {
        let mut range = self.reading()?.range(start..)?;
        let mut left = count;
        while left > 0
            && let Some(pair) = range.next()
        {
            let (key, value) = pair?;
            answers.pair(key.value(), value.value());
            left -= 1;
        }
        Ok(())
    }
}

impl Session for RedbSession {
    fn perform(&mut self, request: Request<'_>, answers: &mut dyn Answers) -> Result<()> {
        let failed = failure(self.name);
        match request {
            Request::Put { key, value } => {
                self.write(key, Some(value)).map_err(failed)?;
                answers.written();
            }
            Request::Delete { key } => {
                self.write(key, None).map_err(failed)?;
                answers.written();
            }
            Request::Get { key } => {
                self.get(key, |value| answers.value(value)).map_err(failed)?;
            }
            Request::Head { key } => {
                self.get(key, |value| answers.length(value.map(|value| value.len() as u64)))
                    .map_err(failed)?;
            }
            Request::Scan { start, count } => {
                self.scan(start, count, answers).map_err(failed)?;
            }
        }
        Ok(())
    }
}
