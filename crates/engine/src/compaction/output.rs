//! Sorted entries into table files: the writing end of flushes and compactions.
//!
//! Files are cut at about `table_bytes`, only between keys, so that no two files of a run share one.
//! Range deletions are cut at the same places: each file covers the keys from its first (or the
//! start of the output) up to the next file's first.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::fault_points::{Bug, is_planted};
use crate::file_name;
use crate::head::EntryRef;
use crate::key;
use crate::options::Compression;
use crate::range_tombstone::RangeTombstone;
use crate::salt::Salts;
use crate::sstable::{BuildTimes, BuiltTable, TableBuilder, TableBuilderOptions};
use crate::vfs::FileSystem;

/// How and where tables are written.
#[derive(Debug, Clone)]
pub struct OutputOptions {
    /// The store's directory.
    pub dir: PathBuf,
    /// Size at which a file is closed.
    pub table_bytes: u64,
    /// Size at which a block is closed.
    pub block_bytes: usize,
    /// Compression of blocks.
    pub compression: Compression,
    /// Where each file's salt comes from.
    pub salts: Arc<Salts>,
}

/// One finished file.
#[derive(Debug)]
pub struct OutputTable {
    /// Its number.
    pub number: u64,
    /// What is in it.
    pub built: BuiltTable,
}

/// Writes tables. Dropped unfinished, it removes what it wrote.
pub struct Output<'a> {
    fs: &'a Arc<dyn FileSystem>,
    next_file_number: &'a AtomicU64,
    options: OutputOptions,
    /// Not yet given to a file, ascending by start.
    range_tombstones: Vec<RangeTombstone>,
    builder: Option<(u64, TableBuilder)>,
    finished: Vec<OutputTable>,
    paths: Vec<PathBuf>,
    times: Arc<BuildTimes>,
}

impl<'a> Output<'a> {
    /// An output that holds `range_tombstones` (ascending by start).
    pub fn new(
        fs: &'a Arc<dyn FileSystem>,
        next_file_number: &'a AtomicU64,
        options: OutputOptions,
        range_tombstones: Vec<RangeTombstone>,
    ) -> Self {
        debug_assert!(range_tombstones.is_sorted_by(|a, b| a.start <= b.start));
        Output {
            fs,
            next_file_number,
            options,
            range_tombstones,
            builder: None,
            finished: Vec::new(),
            paths: Vec::new(),
            times: Arc::default(),
        }
    }

    /// What building takes, as it goes on.
    pub fn times(&self) -> Arc<BuildTimes> {
        self.times.clone()
    }

    /// Adds an entry. Requires: internal order.
    pub fn add(&mut self, user_key: &[u8], entry: &EntryRef<'_>) -> Result<()> {
        let ends = self.builder.as_ref().is_some_and(|(_, builder)| {
            // One that comes before it is for this table to refuse: the next would take any.
            builder.is_full(self.options.table_bytes)
                && key::is_before(builder.last_key(), user_key)
        });
        if ends {
            self.finish_table(Some(user_key))?;
        }
        let (_, builder) = match &mut self.builder {
            Some(open) => open,
            None => {
                let open = self.create()?;
                self.builder.insert(open)
            }
        };
        builder.add(user_key, entry)
    }

    /// Finishes and syncs the last file and the directory; answers every file.
    pub fn finish(mut self) -> Result<Vec<OutputTable>> {
        if self.builder.is_none() && !self.range_tombstones.is_empty() {
            self.builder = Some(self.create()?);
        }
        if self.builder.is_some() {
            self.finish_table(None)?;
        }
        if !self.finished.is_empty() && !is_planted(Bug::SkipDirSync) {
            self.times
                .names
                .time(|| self.fs.sync_dir(&self.options.dir))
                .map_err(|error| Error::io("sync", &self.options.dir, error))?;
        }
        self.paths.clear();
        Ok(std::mem::take(&mut self.finished))
    }

    fn create(&mut self) -> Result<(u64, TableBuilder)> {
        let number = self.next_file_number.fetch_add(1, Ordering::Relaxed);
        let path = file_name::table(&self.options.dir, number);
        let file = self.times.names.time(|| self.fs.create(&path));
        let file = file.map_err(|error| Error::io("create", &path, error))?;
        self.paths.push(path.clone());
        let options = TableBuilderOptions {
            block_bytes: self.options.block_bytes,
            compression: self.options.compression,
            salt: self.options.salts.next(),
        };
        Ok((number, TableBuilder::new(file, path, number, options, self.times())))
    }

    /// Closes the open file, whose keys all lie below `next_key`.
    fn finish_table(&mut self, next_key: Option<&[u8]>) -> Result<()> {
        let (number, mut builder) = self.builder.take().expect("a table is open");
        for tombstone in take_below(&mut self.range_tombstones, next_key) {
            builder.add_range_tombstone(tombstone);
        }
        self.finished.push(OutputTable { number, built: builder.finish()? });
        Ok(())
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        self.builder = None;
        for path in self.paths.drain(..) {
            // What can't be removed now is found and removed by the next open.
            let _ = self.fs.remove(Path::new(&path));
        }
    }
}

/// Takes the parts of the deletions that lie below `limit`, leaving the rest.
fn take_below(tombstones: &mut Vec<RangeTombstone>, limit: Option<&[u8]>) -> Vec<RangeTombstone> {
    let Some(limit) = limit else { return std::mem::take(tombstones) };
    let mut below = Vec::new();
    let mut rest = Vec::new();
    for tombstone in tombstones.drain(..) {
        if tombstone.end[..] <= *limit {
            below.push(tombstone);
        } else if tombstone.start[..] >= *limit {
            rest.push(tombstone);
        } else {
            let limit = Bytes::copy_from_slice(limit);
            below.push(RangeTombstone { end: limit.clone(), ..tombstone.clone() });
            rest.push(RangeTombstone { start: limit, ..tombstone });
        }
    }
    *tombstones = rest;
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_are_cut_at_file_boundaries() {
        let tombstone = |start: &'static str, end: &'static str| RangeTombstone {
            start: start.into(),
            end: end.into(),
            seqno: 1,
        };
        let mut all = vec![tombstone("a", "c"), tombstone("d", "h"), tombstone("k", "m")];
        let below = take_below(&mut all, Some(b"f"));
        assert_eq!(below, [tombstone("a", "c"), tombstone("d", "f")]);
        assert_eq!(all, [tombstone("f", "h"), tombstone("k", "m")]);
        assert_eq!(take_below(&mut all, None).len(), 2);
        assert!(all.is_empty());
    }
}
