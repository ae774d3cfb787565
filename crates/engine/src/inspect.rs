//! Any file of a store as text, for people.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::block_cache::BlockCache;
use crate::error::{Error, Result};
use crate::file_cache::FileCache;
use crate::file_name::{self, FileKind};
use crate::journal;
use crate::manifest;
use crate::options::Reading;
use crate::sstable::{self, Table};
use crate::vfs::{DiskFileSystem, FileSystem};

/// Writes the contents of a journal segment, table or manifest to `out`, an item a line. Answers the number of
/// records, blocks, entries and edits that are damaged, which the listing tells of in their place; what makes the
/// whole file unreadable is an error. A journal or manifest that is torn where it ends is not damaged: so does
/// one that is being written.
pub fn file(path: &Path, out: &mut dyn Write) -> Result<u64> {
    let fs: Arc<dyn FileSystem> = Arc::new(DiskFileSystem);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let written = |error| Error::io("write the listing of", path, error);
    match file_name::parse(name) {
        Some(FileKind::Segment(_)) => {
            let mut failed = None;
            let damaged = journal::inspect(&fs, path, &mut |line| {
                if failed.is_none() {
                    failed = writeln!(out, "{line}").err();
                }
            })?;
            failed.map_or(Ok(damaged), |error| Err(written(error)))
        }
        Some(FileKind::Table(number)) => {
            let opened = fs.open_read(path).map_err(|error| Error::io("open", path, error))?;
            let bytes = opened.len().map_err(|error| Error::io("read", path, error))?;
            let files = Arc::new(FileCache::new(fs, 1));
            let cache = Arc::new(BlockCache::new(0, 0));
            let table = Table::open(&files, path.to_owned(), number, bytes, Reading::Pread, cache)?;
            sstable::inspect(&Arc::new(table), out, true).map_err(written)
        }
        Some(FileKind::Manifest(_)) => {
            let mut text = String::new();
            let damaged = manifest::inspect(&*fs, path, &mut text)?;
            out.write_all(text.as_bytes()).map_err(written)?;
            Ok(damaged)
        }
        _ => Err(Error::InvalidArgument(format!(
            "{} is no journal segment, table or manifest of a store, by its name",
            path.display()
        ))),
    }
}
