//! LMDB, as bundled with heed: a B+tree in one mapped file, copied on write, one writer at a time.
//! `lmdb` is as it comes; `lmdb-random` has the system read no page ahead, as LMDB's documentation
//! says for random reads of more than there is memory; `lmdb-writemap` writes to the mapping itself, which
//! is faster where data fits in memory, says the documentation, and lets a stray pointer write to it too.
//!
//! Gets and scans show the mapping itself; a `Head` touches no page of a large value. Each put or
//! delete is a write transaction, as acknowledging it alone requires. Of the budget it uses nothing:
//! its cache is the page cache.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use heed::types::Bytes;
use heed::{Env, EnvFlags, EnvOpenOptions, RoTxn, WithoutTls};
use tallybook_lab::Result;
use tallybook_lab::target::{Answers, Request, Session, Target};

use super::commits::{Commits, Kept};
use crate::options::{Opening, Survives, crate_version, failure, settings};

/// Address space that the file may grow into; it is as long as its data needs.
const MAP_BYTES: usize = 256 << 30;
/// A slot is taken by each session that reads.
const READERS_MAX: u32 = 1024;

type Pairs = heed::Database<Bytes, Bytes>;

/// Opens an environment with one database, with flags beside those of the durability.
pub(super) fn open(opening: Opening, flags: EnvFlags) -> Result<Box<dyn Target>> {
    let environment = open_environment(&opening, flags).map_err(failure(opening.name))?;
    let pairs = create(&environment).map_err(failure(opening.name))?;
    Ok(Box::new(Lmdb { pairs, commits: Arc::default(), environment, opening }))
}

fn open_environment(opening: &Opening, mut flags: EnvFlags) -> heed::Result<Env<WithoutTls>> {
    flags.set(EnvFlags::NO_SYNC, !opening.syncs());
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(MAP_BYTES).max_readers(READERS_MAX);
    // SAFETY: NO_SYNC risks the file when the machine loses power, which `settings` says, and not
    // memory safety; WRITE_MAP risks it where other code of the process has unsafe faults.
    let options = unsafe { options.flags(flags) };
    // SAFETY: the directory was given to this process alone, so nobody else writes to the mapped file.
    unsafe { options.open(opening.directory()) }
}

fn create(environment: &Env<WithoutTls>) -> heed::Result<Pairs> {
    let mut transaction = environment.write_txn()?;
    let pairs = environment.create_database(&mut transaction, None)?;
    transaction.commit()?;
    Ok(pairs)
}

struct Lmdb {
    pairs: Pairs,
    commits: Arc<Commits>,
    environment: Env<WithoutTls>,
    opening: Opening,
}

impl Target for Lmdb {
    fn name(&self) -> &str {
        self.opening.name
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let flags = self.environment.get_flags().unwrap_or_default();
        let has = |flag: EnvFlags| flags & flag.bits() != 0;
        let reads_no_page_ahead = has(EnvFlags::NO_READ_AHEAD);
        let (survives, durability) = if self.opening.syncs() {
            (Survives::PowerLoss, "fdatasync in each commit")
        } else {
            (
                Survives::Kill,
                "NO_SYNC: written, not synced; power loss may damage the whole file, where a log \
                 loses its tail",
            )
        };
        let version = heed::lmdb_version();
        settings(
            survives,
            [
                (
                    "version",
                    format!(
                        "LMDB {}.{}.{}, heed {}",
                        version.major,
                        version.minor,
                        version.patch,
                        crate_version("heed")
                    ),
                ),
                ("durability", durability.to_owned()),
                ("write_buffer", "none: one write transaction per put".to_owned()),
                ("cache", "none but the page cache".to_owned()),
                ("map_size", MAP_BYTES.to_string()),
                (
                    "read_ahead",
                    if reads_no_page_ahead { "none: NO_READ_AHEAD" } else { "the system's" }
                        .to_owned(),
                ),
                ("write_map", if has(EnvFlags::WRITE_MAP) { "yes" } else { "no" }.to_owned()),
                ("compression", "none".to_owned()),
                ("verify_checksums", "it has none".to_owned()),
                (
                    "read_transactions",
                    "kept by each session until something is committed".to_owned(),
                ),
            ],
        )
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(LmdbSession {
            read: Kept::default(),
            pairs: self.pairs,
            commits: Arc::clone(&self.commits),
            environment: self.environment.clone(),
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
        let transaction = self.environment.read_txn();
        if let Ok(stat) = transaction.and_then(|transaction| self.pairs.stat(&transaction)) {
            figures.insert("tree_depth".to_owned(), f64::from(stat.depth));
            figures.insert("leaf_pages".to_owned(), stat.leaf_pages as f64);
            figures.insert("branch_pages".to_owned(), stat.branch_pages as f64);
            figures.insert("overflow_pages".to_owned(), stat.overflow_pages as f64);
            figures.insert("keys".to_owned(), stat.entries as f64);
        }
        figures
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

struct LmdbSession {
    // Declared first: it ends before the environment that it reads.
    read: Kept<RoTxn<'static, WithoutTls>>,
    pairs: Pairs,
    commits: Arc<Commits>,
    environment: Env<WithoutTls>,
    name: &'static str,
}

impl LmdbSession {
    fn reading(&mut self) -> heed::Result<&RoTxn<'static, WithoutTls>> {
        let environment = &self.environment;
        self.read.current(&self.commits, || environment.clone().static_read_txn())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> heed::Result<()> {
        self.read.end();
        let mut transaction = self.environment.write_txn()?;
        self.pairs.put(&mut transaction, key, value)?;
        transaction.commit()?;
        self.commits.count();
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> heed::Result<()> {
        self.read.end();
        let mut transaction = self.environment.write_txn()?;
        self.pairs.delete(&mut transaction, key)?;
        transaction.commit()?;
        self.commits.count();
        Ok(())
    }

    fn scan(&mut self, start: &[u8], count: u64, answers: &mut dyn Answers) -> heed::Result<()> {
        let pairs = self.pairs;
        let transaction = self.reading()?;
        // LMDB has no empty key, and refuses to look for one.
        let from = if start.is_empty() { Bound::Unbounded } else { Bound::Included(start) };
        let mut range = pairs.range(transaction, &(from, Bound::Unbounded))?;
        let mut left = count;
        while left > 0
            && let Some(pair) = range.next()
        {
            let (key, value) = pair?;
            answers.pair(key, value);
            left -= 1;
        }
        Ok(())
    }
}

impl Session for LmdbSession {
    fn perform(&mut self, request: Request<'_>, answers: &mut dyn Answers) -> Result<()> {
        let failed = failure(self.name);
        let pairs = self.pairs;
        match request {
            Request::Put { key, value } => {
                self.put(key, value).map_err(&failed)?;
                answers.written();
            }
            Request::Delete { key } => {
                self.delete(key).map_err(&failed)?;
                answers.written();
            }
            Request::Get { key } => {
                let transaction = self.reading().map_err(&failed)?;
                answers.value(pairs.get(transaction, key).map_err(&failed)?);
            }
            Request::Head { key } => {
                let transaction = self.reading().map_err(&failed)?;
                let found = pairs.get(transaction, key).map_err(&failed)?;
                answers.length(found.map(|value| value.len() as u64));
            }
            Request::Scan { start, count } => {
                self.scan(start, count, answers).map_err(&failed)?;
            }
        }
        Ok(())
    }
}
