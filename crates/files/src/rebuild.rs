//! Makes a catalogue from what the buckets say.
//!
//! 1. Take over the entries of each bucket that is found, of each name the newest.
//! 2. Count the names of each content and the bytes in each bucket, and drop contents without a name.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tallybook::vfs::FileSystem;
use tallybook::{Durability, Options, Resources, ScanOptions, Store, WriteBatch};

use crate::buckets::{Buckets, catalogue_options};
use crate::error::{Error, Result};
use crate::figures::{Figures, NUMBER_MAX};
use crate::key_layout::{self, key};
use crate::options::OpenOptions;
use crate::placement::check_name;
use crate::record::{Content, FileRecord, decode_entry};
use crate::superblock::Superblock;

/// Names that are written together.
const BATCH_NAMES: usize = 512;

/// A catalogue made anew.
pub(crate) struct Rebuilt {
    pub(crate) catalogue: Store,
    /// Buckets that were not found.
    pub(crate) absent: Vec<u8>,
}

/// Makes a catalogue from what the buckets say.
pub(crate) fn rebuild(
    dir: &Path,
    path: &Path,
    buckets: &Buckets,
    superblock: &Superblock,
    options: &OpenOptions,
    resources: &Arc<Resources>,
) -> Result<Rebuilt> {
    check_roots(&*resources.fs, dir, superblock)?;
    let catalogue = Store::open_with(
        path,
        Options { error_if_exists: true, ..catalogue_options(options) },
        resources.clone(),
    )?;
    let mut figures = Figures::new(superblock.bucket_count());
    let mut absent = Vec::new();
    for at in 0..superblock.bucket_count() {
        let bucket = u8::try_from(at).expect("there are at most 256 buckets");
        if !holds_store(&*resources.fs, &buckets.path(bucket))? {
            absent.push(bucket);
            continue;
        }
        figures.bucket(bucket).exists = true;
        match buckets.get(bucket) {
            Ok(store) => collect_entries(&catalogue, &store, superblock, &mut figures)?,
            Err(Error::BucketLost { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    count_names(&catalogue, &mut figures)?;
    let mut batch = WriteBatch::new();
    figures.write_to(&mut batch)?;
    catalogue.write(batch, Some(Durability::Sync))?;
    Ok(Rebuilt { catalogue, absent })
}

/// Refuses where a directory that buckets were to be placed in isn't there, as with a disk that isn't mounted:
/// without the catalogue nothing else tells of the files in them.
fn check_roots(fs: &dyn FileSystem, dir: &Path, superblock: &Superblock) -> Result<()> {
    for bucket in 0..superblock.bucket_count().min(superblock.bucket_dirs.len()) {
        let Some(root) = superblock.bucket_root(bucket) else { continue };
        if fs.exists(&root).map_err(|source| Error::io("look up", &root, source))? {
            continue;
        }
        let bucket = u8::try_from(bucket).expect("there are at most 256 buckets");
        let what = format!(
            "{} isn't there, and without the catalogue nothing tells what was; bring it back, or \
             make it, empty, to go on without",
            root.display()
        );
        return Err(Error::BucketLost { bucket, path: superblock.bucket_dir(dir, bucket), what });
    }
    Ok(())
}

/// Whether a bucket was made here.
fn holds_store(fs: &dyn FileSystem, path: &Path) -> Result<bool> {
    if !fs.exists(path).map_err(|source| Error::io("look up", path, source))? {
        return Ok(false);
    }
    let names = fs.list(path).map_err(|source| Error::io("list", path, source))?;
    Ok(names.iter().any(|name| name != "LOCK" && !name.ends_with(".tmp")))
}

/// Takes over the entries of a bucket, of each name the newest. One that can't be read is skipped: the
/// verification of the bucket tells of it.
fn collect_entries(
    catalogue: &Store,
    store: &Store,
    superblock: &Superblock,
    figures: &mut Figures,
) -> Result<()> {
    let prefix = Some(Bytes::from_static(&[key_layout::ENTRY]));
    for head in store.range_heads(ScanOptions { prefix, ..ScanOptions::default() })? {
        let entry_key = match head {
            Ok(head) => head.key,
            Err(tallybook::Error::Corruption { .. }) => break,
            Err(other) => return Err(other.into()),
        };
        let Some((name, version)) = key_layout::parse_entry(&entry_key) else { continue };
        if version >= NUMBER_MAX || check_name(name).is_err() {
            continue;
        }
        figures.next_version = figures.next_version.max(version + 1);
        let value = match store.get(&entry_key) {
            Ok(value) => value,
            Err(tallybook::Error::Corruption { .. }) => continue,
            Err(other) => return Err(other.into()),
        };
        let Some((record, content)) = value.and_then(|value| decode_entry(&value)) else {
            continue;
        };
        let mut buckets =
            content.extents.iter().map(|extent| extent.bucket).chain([record.primary]);
        let count = record.content.count();
        if count >= NUMBER_MAX || !buckets.all(|bucket| superblock.has_bucket(bucket)) {
            continue;
        }
        figures.next_content = figures.next_content.max(count + 1);
        let name_key = key(key_layout::NAME, name.as_bytes());
        let known = catalogue.get(&name_key)?.and_then(|value| FileRecord::decode(&value));
        if known.is_some_and(|known| known.version >= version) {
            continue;
        }
        let mut batch = WriteBatch::new();
        batch.put(name_key, record.encode())?;
        let content = Content { refs: 0, ..content };
        batch.put(key(key_layout::CONTENT, &record.content.0), content.encode())?;
        catalogue.write(batch, Some(Durability::Os))?;
    }
    Ok(())
}

/// Counts the names of each content, and drops contents without any.
fn count_names(catalogue: &Store, figures: &mut Figures) -> Result<()> {
    let all = |kind: u8| {
        let prefix = Some(Bytes::copy_from_slice(&[kind]));
        catalogue.range(ScanOptions { prefix, ..ScanOptions::default() })
    };
    let undecodable = || crate::core::undecodable(catalogue.path(), "value");
    for entry in all(key_layout::NAME)? {
        let record = FileRecord::decode(&entry?.value).ok_or_else(undecodable)?;
        let content_key = key(key_layout::CONTENT, &record.content.0);
        let content = catalogue.get(&content_key)?.and_then(|value| Content::decode(&value));
        let mut content = content.ok_or_else(undecodable)?;
        content.refs += 1;
        if content.refs == 1 {
            for share in content.shares() {
                figures.bucket(share.bucket).exists = true;
                figures.bucket(share.bucket).live += share.bytes;
            }
        }
        catalogue.put(&content_key, &content.encode())?;
        figures.files += 1;
        figures.file_bytes += record.size;
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
