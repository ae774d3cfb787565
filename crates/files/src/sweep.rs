//! Removes from the buckets what the catalogue doesn't know, as a power loss may leave it there.
//!
//! 1. Entries of versions that are neither current nor noted as dead. A dead one is the reaper's: until
//!    its end is on disk, a power loss may make its version the current one again.
//! 2. Chunks of contents that no name stands for, that are not being written, nor noted to be freed here.
//!    Nobody can have known such a content: it is noted before its first chunk, and a note to free it names
//!    all of its buckets and goes after its chunks.
//!
//! Where not all entries of a bucket could be read when the catalogue was made, it may not know files of that
//! bucket: its entries stay, and the chunks of all buckets, until a repair has read them.
//!
//! What is put meanwhile stays: the catalogue knows of it before it is in a bucket. All this goes in
//! steps of a bounded size.

use bytes::Bytes;
use tallybook::ScanOptions;

use crate::buckets::Bucket;
use crate::core::Core;
use crate::error::Result;
use crate::key_layout::{self, key, of_version};
use crate::record::{ContentId, decode_shares};

/// Entries, or contents, that are swept in one step.
const SWEPT_MAX: usize = 1000;

/// Takes a step in sweeping the entries that the opening found to be swept; false at the end.
pub(crate) fn sweep_step(core: &Core) -> bool {
    let mut unswept = core.unswept.lock();
    let Some(&bucket) = unswept.buckets.front() else { return false };
    // Whoever closes the store waits for the lock, and finds it as it is left here.
    if core.check_open().is_err() {
        return false;
    }
    let store = match core.known_from(bucket) {
        None => core.buckets.get(bucket).ok(),
        Some(_) => None,
    };
    match store.map(|store| sweep_entries(core, &store, &unswept.from, &mut 0)) {
        Some(Ok(Some(next))) => {
            unswept.from = next;
            return true;
        }
        Some(Ok(None)) => {}
        // One that is lost, most likely. The next opening tries again.
        Some(Err(_)) | None => unswept.is_in_part = true,
    }
    unswept.buckets.pop_front();
    unswept.from = vec![key_layout::ENTRY];
    !unswept.buckets.is_empty()
}

/// Sweeps some entries, from a key on, and counts what it removed; answers the key to go on at, `None` at
/// the end.
pub(crate) fn sweep_entries(
    core: &Core,
    store: &Bucket,
    from: &[u8],
    orphans: &mut u64,
) -> Result<Option<Vec<u8>>> {
    let prefix = Some(Bytes::from_static(&[key_layout::ENTRY]));
    let start = Some(Bytes::copy_from_slice(from));
    let heads = store.range_heads(ScanOptions { prefix, start, ..ScanOptions::default() })?;
    for (swept, head) in heads.enumerate() {
        let entry_key = head?.key;
        if swept == SWEPT_MAX {
            return Ok(Some(entry_key.to_vec()));
        }
        let Some((name, version)) = key_layout::parse_entry(&entry_key) else { continue };
        if is_current(core, name, version)? {
            continue;
        }
        // An entry is put after its name is set, under this lock.
        let _figures = core.figures.lock();
        let dead_key = of_version(key_layout::ENTRY_DEAD, version);
        if !is_current(core, name, version)? && core.catalogue.head(&dead_key)?.is_none() {
            store.delete(&entry_key)?;
            *orphans += 1;
        }
    }
    Ok(None)
}

/// Whether a version is what its name stands for.
fn is_current(core: &Core, name: &str, version: u64) -> Result<bool> {
    Ok(core.record(name)?.is_some_and(|record| record.version == version))
}

/// Sweeps the chunks of some contents, from a key on, and counts the contents; answers the key to go on
/// at, `None` at the end.
pub(crate) fn sweep_chunks(
    core: &Core,
    bucket: u8,
    store: &Bucket,
    from: &[u8],
    orphans: &mut u64,
) -> Result<Option<Vec<u8>>> {
    let prefix = Some(Bytes::from_static(&[key_layout::CHUNK]));
    let mut cursor = store.cursor(ScanOptions { prefix, ..ScanOptions::default() })?;
    cursor.seek(from)?;
    for _ in 0..SWEPT_MAX {
        if !cursor.valid() {
            return Ok(None);
        }
        let Some((id, _)) = key_layout::parse_chunk(cursor.key()) else {
            cursor.next()?;
            continue;
        };
        {
            let _figures = core.figures.lock();
            if !is_known(core, id, bucket)? {
                let from = key_layout::chunk(id, 0);
                store.delete_range(&from, &key_layout::after_chunks(id))?;
                *orphans += 1;
            }
        }
        // On to the next content: one step each, however many chunks it has.
        cursor.seek(&key_layout::after_chunks(id))?;
    }
    Ok(cursor.valid().then(|| cursor.key().to_vec()))
}

/// Whether a content is some file's, being written, or about to be freed in this bucket. Requires: the
/// counters' lock.
fn is_known(core: &Core, id: ContentId, bucket: u8) -> Result<bool> {
    for kind in [key_layout::CONTENT, key_layout::UPLOAD] {
        if core.catalogue.head(&key(kind, &id.0))?.is_some() {
            return Ok(true);
        }
    }
    let freed = core.catalogue.get(&key(key_layout::FREED, &id.0))?;
    let shares = freed.and_then(|shares| decode_shares(&shares)).unwrap_or_default();
    Ok(shares.iter().any(|share| share.bucket == bucket))
}
