//! Makes a catalogue from what the buckets say.
//!
//! 1. Take over the entries of each bucket that is found, of each name the newest.
//!    Behind a block that can't be read it goes on with the next.
//! 2. Count the names of each content and the bytes in each bucket, and drop contents without a name.
//! 3. Note the buckets of which not all could be read: the catalogue may not know files of theirs.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tallybook::vfs::FileSystem;
use tallybook::{Durability, Options, Resources, ScanOptions, Store, WriteBatch, WriteOptions};

use crate::buckets::{Bucket, Buckets, catalogue_options};
use crate::core::{KnownFrom, decode_known_entry};
use crate::entries::each_entry;
use crate::error::{Error, Result};
use crate::figures::{Figures, NUMBER_READ_MAX};
use crate::key_layout::{self, key};
use crate::options::OpenOptions;
use crate::placement::check_name;
use crate::record::{Content, FileRecord};
use crate::superblock::Superblock;

/// Versions and contents that are left out where not all could be read: what is written from then on is newer.
const NUMBERS_SKIPPED: u64 = 1 << 40;

/// Where that happens again, nothing may be left to read that tells what was left out before: the numbers go on
/// at a multiple of this, of how often the store's description was changed.
const NUMBERS_A_CHANGE: u64 = 1 << 41;

/// Names that are written together.
const BATCH_NAMES: usize = 512;

/// A catalogue made anew.
pub(crate) struct Rebuilt {
    pub(crate) catalogue: Store,
    /// Buckets that were not found.
    pub(crate) absent: Vec<u8>,
    /// Buckets of which not all entries could be read.
    pub(crate) unread: Vec<u8>,
}

/// Makes a catalogue from what the buckets say, in a directory that isn't there or is empty.
pub(crate) fn rebuild(
    path: &Path,
    buckets: &Buckets,
    superblock: &Superblock,
    options: &OpenOptions,
    resources: &Arc<Resources>,
) -> Result<Rebuilt> {
    check_roots(buckets, superblock)?;
    let catalogue = Store::open_with(
        path,
        Options { error_if_exists: true, ..catalogue_options(options) },
        resources.clone(),
    )?;
    let mut figures = Figures::new(superblock.bucket_count());
    let (mut absent, mut unread) = (Vec::new(), Vec::new());
    for at in 0..superblock.bucket_count() {
        let bucket = u8::try_from(at).expect("there are at most 256 buckets");
        let bucket_path = buckets.path(bucket);
        // One that can't be looked up was made, as far as anybody knows.
        let holds = twice(&bucket_path, || holds_store(&*resources.fs, &bucket_path))?;
        if holds == Some(false) {
            absent.push(bucket);
            continue;
        }
        let Some(is_read) = collect_bucket(&catalogue, buckets, bucket, superblock, &mut figures)?
        else {
            absent.push(bucket);
            continue;
        };
        figures.bucket(bucket).exists = true;
        if !is_read {
            unread.push(bucket);
        }
    }
    count_names(&catalogue, &mut figures)?;
    if !unread.is_empty() {
        let least = superblock.changes.saturating_add(1).saturating_mul(NUMBERS_A_CHANGE);
        for next in [&mut figures.next_version, &mut figures.next_content] {
            *next = (*next + NUMBERS_SKIPPED).max(least).min(NUMBER_READ_MAX);
        }
    }
    let known_from = KnownFrom { version: figures.next_version, content: figures.next_content };
    let mut batch = WriteBatch::new();
    for &bucket in &unread {
        batch.put(key(key_layout::UNREAD, &[bucket]), known_from.encode())?;
    }
    figures.write_to(&mut batch)?;
    catalogue.write(batch, Some(Durability::Sync))?;
    Ok(Rebuilt { catalogue, absent, unread })
}

/// A bucket that has been made; `None` if the disk can't read it.
pub(crate) fn open_twice(buckets: &Buckets, bucket: u8) -> Result<Option<Bucket>> {
    twice(&buckets.path(bucket), || buckets.get(bucket))
}

/// What was found in a bucket's directory, the second time if not the first; `None` if it can't be read.
fn twice<T>(dir: &Path, look: impl Fn() -> Result<T>) -> Result<Option<T>> {
    for _ in 0..2 {
        match look() {
            Err(Error::Engine(error)) if is_unread(&error, dir) => {}
            found => return found.map(Some),
        }
    }
    Ok(None)
}

/// The number of the system for a disk that fails, which has no name in `std`.
const EIO: i32 = 5;

/// Whether what is in a bucket's directory can't be read: to open it something is written, too. What a repair
/// isn't allowed to do, or the process has no means for, is nothing that the disk has done.
fn is_unread(error: &tallybook::Error, dir: &Path) -> bool {
    match error {
        tallybook::Error::Io { op, path, source } => {
            let is_of_disk = *op == "read"
                || source.raw_os_error() == Some(EIO)
                || source.kind() == ErrorKind::ReadOnlyFilesystem;
            is_of_disk && path.starts_with(dir)
        }
        tallybook::Error::NoSpace { path } => path.starts_with(dir),
        tallybook::Error::Corruption { file, .. } => file.starts_with(dir),
        _ => false,
    }
}

/// Refuses where a directory that buckets were to be placed in isn't there: without the catalogue nothing else
/// tells of the files in them.
fn check_roots(buckets: &Buckets, superblock: &Superblock) -> Result<()> {
    for bucket in 0..superblock.bucket_count().min(superblock.bucket_dirs.len()) {
        let bucket = u8::try_from(bucket).expect("there are at most 256 buckets");
        match buckets.check_root(bucket) {
            // What can't be looked up is told of each bucket.
            Ok(()) | Err(Error::Engine(_)) => {}
            Err(gone) => return Err(gone),
        }
    }
    Ok(())
}

/// Whether a bucket was made here.
fn holds_store(fs: &dyn FileSystem, path: &Path) -> Result<bool> {
    if !fs.exists(path).map_err(|source| Error::io("look up", path, source))? {
        return Ok(false);
    }
    let names = fs.list(path).map_err(|source| Error::io("list", path, source))?;
    // Without what names it, a manifest is of one that was never made.
    let is_of_none =
        |name: &str| name == "LOCK" || name.ends_with(".tmp") || name.starts_with("MANIFEST");
    Ok(!names.iter().all(|name| is_of_none(name)))
}

/// Takes over what there is of a bucket, but for one that was never made in full. Whether all entries could be read:
/// not those of one that is damaged, or another's, in which nobody knows what there was.
fn collect_bucket(
    catalogue: &Store,
    buckets: &Buckets,
    bucket: u8,
    superblock: &Superblock,
    figures: &mut Figures,
) -> Result<Option<bool>> {
    let path = buckets.path(bucket);
    let collected = match open_twice(buckets, bucket) {
        Ok(Some(store)) => collect_entries(catalogue, &store, superblock, figures),
        Ok(None) => Ok(false),
        Err(Error::BucketLost { .. }) => match twice(&path, || buckets.is_blank(bucket)) {
            Ok(Some(true)) => return Ok(None),
            _ => Ok(false),
        },
        Err(other) => Err(other),
    };
    match collected {
        Err(Error::Engine(error)) if is_unread(&error, &path) => Ok(Some(false)),
        collected => collected.map(Some),
    }
}

/// Takes over the entries of a bucket, of each name the newest. Whether all could be read.
fn collect_entries(
    catalogue: &Store,
    store: &Store,
    superblock: &Superblock,
    figures: &mut Figures,
) -> Result<bool> {
    each_entry(store, &mut |entry_key, value| {
        let Some((name, version)) = key_layout::parse_entry(entry_key) else { return Ok(()) };
        if version >= NUMBER_READ_MAX || check_name(name).is_err() {
            return Ok(());
        }
        figures.next_version = figures.next_version.max(version + 1);
        let entry = value.and_then(|value| decode_known_entry(superblock, &value));
        let entry = entry.filter(|(record, _)| record.version == version);
        let Some((record, content)) = entry else { return Ok(()) };
        figures.next_content = figures.next_content.max(record.content.count() + 1);
        let name_key = key(key_layout::NAME, name.as_bytes());
        let known = catalogue.get(&name_key)?.and_then(|value| FileRecord::decode(&value));
        if known.is_some_and(|known| known.version >= version) {
            return Ok(());
        }
        let mut batch = WriteBatch::new();
        batch.put(name_key, record.encode())?;
        let content = Content { refs: 0, ..content };
        batch.put(key(key_layout::CONTENT, &record.content.0), content.encode())?;
        Ok(catalogue.write(batch, Some(Durability::Os)).map(drop)?)
    })
}

/// Counts the names of each content, and drops contents without any.
fn count_names(catalogue: &Store, figures: &mut Figures) -> Result<()> {
    let all = |kind: u8| {
        let prefix = Some(Bytes::copy_from_slice(&[kind]));
        catalogue.range(ScanOptions { prefix, ..ScanOptions::default() })
    };
    let undecodable = || crate::core::undecodable(catalogue.path(), "value");
    // All is synced at the end, not name by name.
    let at_os = WriteOptions { durability: Some(Durability::Os), ..WriteOptions::default() };
    for entry in all(key_layout::NAME)? {
        let record = FileRecord::decode(&entry?.value).ok_or_else(undecodable)?;
        let content_key = key(key_layout::CONTENT, &record.content.0);
        let content = catalogue.get(&content_key)?.and_then(|value| Content::decode(&value));
        let mut content = content.ok_or_else(undecodable)?;
        content.refs += 1;
        if content.refs == 1 {
            let shares = content.shares();
            shares.iter().for_each(|share| figures.bucket(share.bucket).exists = true);
            figures.now_live(&shares);
        }
        catalogue.put_with(&content_key, &content.encode(), &at_os)?;
        figures.count_file(record.size);
    }
    let mut batch = WriteBatch::new();
    for entry in all(key_layout::CONTENT)? {
        let entry = entry?;
        if Content::decode(&entry.value).is_none_or(|content| content.refs == 0) {
            batch.delete(entry.key)?;
        }
        if batch.len() == BATCH_NAMES {
            catalogue.write(std::mem::take(&mut batch), Some(Durability::Os))?;
        }
    }
    catalogue.write(batch, Some(Durability::Os))?;
    Ok(())
}
