//! One LevelDB as a store of files, cut into chunks and keyed as KFS does it: what KFS is compared with.
//!
//! A chunk's key is `NAME NNNNNN`, its value up to 128 KiB. Reading gets chunks until one isn't there;
//! unlinking gets and deletes them in the same way, as KFS does, so that the two differ in their many
//! databases and in Node.js alone. Memtable and cache are of KFS's sizes for one database. Beyond KFS,
//! checksums are verified, and the last write of a synced operation syncs the log.

use std::collections::BTreeMap;

use tallybook_lab::Result;
use tallybook_lab::files::{Content, FileTarget, FilesOpening};
use tallybook_lab::spec::Durability;

use super::database::{self, Database, ReadOptions, WriteOptions};
use crate::options::{Survives, failure, settings};

/// The store's name.
pub(crate) const NAME: &str = "leveldb";
/// KFS's `writeBufferSize` and `cacheSize`.
const MEMTABLE_BYTES: usize = 4 << 20;
const CACHE_BYTES: usize = 8 << 20;

/// An open database.
pub(crate) struct LevelDbFiles {
    database: Database,
    read: ReadOptions,
    write: WriteOptions,
    /// How the last of several writes is made.
    write_last: WriteOptions,
    is_synced: bool,
}

impl LevelDbFiles {
    /// Opens the database, or makes it.
    pub(crate) fn open(opening: &FilesOpening) -> Result<LevelDbFiles> {
        let database =
            Database::open(&opening.directory, MEMTABLE_BYTES, CACHE_BYTES, super::BLOOM_BITS);
        let is_synced = opening.durability == Durability::Sync;
        Ok(LevelDbFiles {
            database: database.map_err(failure(NAME))?,
            read: ReadOptions::new(true),
            write: WriteOptions::new(false),
            write_last: WriteOptions::new(is_synced),
            is_synced,
        })
    }

    fn write_options(&self, is_last: bool) -> &WriteOptions {
        if is_last { &self.write_last } else { &self.write }
    }
}

fn key(name: &str, chunk: u32) -> String {
    format!("{name} {chunk:06}")
}

impl FileTarget for LevelDbFiles {
    fn settings(&self) -> BTreeMap<String, String> {
        let (survives, durability) = if self.is_synced {
            // The log before the last may still be on its way when its memtable isn't a table yet.
            (Survives::PowerLoss, "the last write of a file or unlinking syncs the log")
        } else {
            (Survives::Kill, "nothing is synced but tables")
        };
        settings(
            survives,
            [
                ("version", format!("LevelDB {}", database::version())),
                ("durability", durability.to_owned()),
                ("chunk_bytes", tallybook_lab::files::CHUNK_BYTES.to_string()),
                ("write_buffer_size", MEMTABLE_BYTES.to_string()),
                ("block_cache", CACHE_BYTES.to_string()),
                ("compression", "none".to_owned()),
                ("verified", "LevelDB's checksum of each block".to_owned()),
            ],
        )
    }

    fn write(&mut self, name: &str, content: &mut Content) -> Result<()> {
        let chunks = content.chunks();
        for at in 0..chunks {
            let options = self.write_options(at + 1 == chunks);
            let put = self.database.put(options, key(name, at).as_bytes(), content.chunk(at));
            put.map_err(failure(NAME))?;
        }
        Ok(())
    }

    fn read(&mut self, name: &str, show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        for at in 0.. {
            let chunk = self.database.get(&self.read, key(name, at).as_bytes());
            let Some(chunk) = chunk.map_err(failure(NAME))? else { return Ok(at > 0) };
            show(chunk.value());
        }
        Ok(true)
    }

    fn unlink(&mut self, name: &str) -> Result<()> {
        let mut at = 0;
        let is_there = |at| {
            let chunk = self.database.get(&self.read, key(name, at).as_bytes());
            chunk.map(|chunk| chunk.is_some()).map_err(failure(NAME))
        };
        let mut goes_on = is_there(0)?;
        while goes_on {
            goes_on = is_there(at + 1)?;
            let options = self.write_options(!goes_on);
            let deleted = self.database.delete(options, key(name, at).as_bytes());
            deleted.map_err(failure(NAME))?;
            at += 1;
        }
        Ok(())
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        let memory = self.database.text(c"leveldb.approximate-memory-usage");
        let bytes = memory.and_then(|text| text.parse().ok());
        bytes.map(|bytes| ("memory_bytes".to_owned(), bytes)).into_iter().collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_read_and_unlinked_whole() {
        let directory = tempfile::tempdir().unwrap();
        for durability in [Durability::Os, Durability::Sync] {
            let opening = FilesOpening {
                name: NAME.to_owned(),
                directory: directory.path().to_owned(),
                reference_id: String::new(),
                durability,
                buckets: None,
            };
            let mut store = LevelDbFiles::open(&opening).unwrap();
            let mut content = Content::new(3, 300_000);
            store.write("a", &mut content).unwrap();
            store.write("b", &mut content).unwrap();
            let mut check = tallybook_lab::files::Check::new(content);
            assert!(store.read("a", &mut |bytes| check.piece(bytes)).unwrap());
            check.finish().unwrap();
            store.unlink("a").unwrap();
            assert!(!store.read("a", &mut |_| {}).unwrap());
            assert!(store.database.get(&store.read, b"a 000002").unwrap().is_none());
            let mut bytes = 0;
            assert!(store.read("b", &mut |piece| bytes += piece.len()).unwrap());
            assert_eq!(bytes, 300_000);
            Box::new(store).close().unwrap();
        }
    }
}
