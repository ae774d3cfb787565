//! Removes from the buckets what the catalogue doesn't know, as a power loss may leave it there.
//!
//! 1. Entries of versions that are neither current nor noted as dead. A dead one is the reaper's: until
//!    its end is on disk, a power loss may make its version the current one again.
//! 2. Chunks of contents that no name stands for, that are not being written, nor noted to be freed here.
//!    Nobody can have known such a content: it is noted before its first chunk, and a note to free it names
//!    all of its buckets and goes after its chunks. Their bytes count as freed, so that the reaper has the bucket
//!    compacted.
//!
//! Where not all entries of a bucket could be read when the catalogue was made, it may not know files of that
//! bucket: entries of it from before stay, and the chunks of all buckets, until a repair has read them.
//! Behind a block that can't be read a sweep goes on.
//!
//! What is put meanwhile stays: the catalogue knows of it before it is in a bucket. All this goes in
//! steps of a bounded size.

use bytes::Bytes;
use tallybook::ScanOptions;

use crate::buckets::Bucket;
use crate::core::Core;
use crate::entries::KeyWalk;
use crate::error::Result;
use crate::key_layout::{self, key, of_version};
use crate::record::{ContentId, decode_shares};

/// Entries, or contents, that are swept in one step.
const SWEPT_MAX: usize = 1000;

/// Takes a step in sweeping the buckets that the opening found to be swept; false at the end. The entries of all
/// come first: a catalogue that is made anew takes them for files.
pub(crate) fn sweep_step(core: &Core) -> bool {
    let mut unswept = core.unswept.lock();
    // Whoever closes the store waits for the lock, and finds it as it is left here.
    if core.check_open().is_err() {
        return false;
    }
    let Some((bucket, from)) = unswept.buckets.pop_front() else { return false };
    let is_of_entries = from[0] == key_layout::ENTRY;
    let swept = core.buckets.get(bucket).and_then(|store| match is_of_entries {
        true => sweep_entries(core, bucket, &store, &from, &mut 0),
        false => sweep_chunks(core, bucket, &store, &from, &mut 0),
    });
    // One that is lost, most likely. The next opening tries again.
    unswept.is_in_part |= !matches!(swept, Ok(Swept { is_whole: true, .. }));
    match swept {
        Ok(Swept { next: Some(next), .. }) => unswept.buckets.push_front((bucket, next)),
        // Entries that can't be read keep no chunk: the catalogue says what is whose.
        Ok(_) if is_of_entries && core.knows_all() => {
            unswept.buckets.push_back((bucket, vec![key_layout::CHUNK]));
        }
        _ => {}
    }
    !unswept.buckets.is_empty()
}

/// What a step came to.
pub(crate) struct Swept {
    /// The key to go on at, `None` at the end.
    pub(crate) next: Option<Vec<u8>>,
    /// All keys could be read.
    pub(crate) is_whole: bool,
}

/// Sweeps some entries, from a key on, and counts what it removed.
pub(crate) fn sweep_entries(
    core: &Core,
    bucket: u8,
    store: &Bucket,
    from: &[u8],
    orphans: &mut u64,
) -> Result<Swept> {
    let known_from = core.known_from(bucket).map_or(0, |known_from| known_from.version);
    let mut walk = KeyWalk::new(store, from)?;
    for _ in 0..SWEPT_MAX {
        let Some(entry_key) = walk.next()? else {
            return Ok(Swept { next: None, is_whole: walk.is_whole() });
        };
        let Some((name, version)) = key_layout::parse_entry(&entry_key) else { continue };
        if version < known_from || is_current(core, name, version)? {
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
    Ok(Swept { is_whole: walk.is_whole(), next: Some(walk.rest()) })
}

/// Whether a version is what its name stands for.
fn is_current(core: &Core, name: &str, version: u64) -> Result<bool> {
    Ok(core.record(name)?.is_some_and(|record| record.version == version))
}

/// Sweeps the chunks of some contents, from a key on, and counts the contents.
pub(crate) fn sweep_chunks(
    core: &Core,
    bucket: u8,
    store: &Bucket,
    from: &[u8],
    orphans: &mut u64,
) -> Result<Swept> {
    let mut walk = KeyWalk::new(store, from)?;
    for _ in 0..SWEPT_MAX {
        let Some(chunk_key) = walk.next()? else {
            return Ok(Swept { next: None, is_whole: walk.is_whole() });
        };
        let Some((id, first)) = key_layout::parse_chunk(&chunk_key) else { continue };
        // What is known leaves the catalogue after its chunks, so that others wait for this only where it counts.
        if !is_known(core, id, bucket)? {
            let bytes = bytes_of(core, store, id, first);
            let mut figures = core.figures.lock();
            if !is_known(core, id, bucket)? {
                let from = key_layout::chunk(id, 0);
                store.delete_range(&from, &key_layout::after_chunks(id))?;
                *orphans += 1;
                if figures.count_freed(bucket, bytes) {
                    core.note_reap_due();
                }
                core.write_figures(&mut figures);
            }
        }
        // On to the next content: one step each, however many chunks it has.
        walk.skip_to(key_layout::after_chunks(id));
    }
    Ok(Swept { is_whole: walk.is_whole(), next: Some(walk.rest()) })
}

/// Bytes of a content's chunks in a bucket, from its first there on, without a look at each: all but the last are
/// full, and few contents are in a bucket in parts. What can't be read counts as one chunk.
fn bytes_of(core: &Core, store: &Bucket, id: ContentId, first: u32) -> u64 {
    let chunk_bytes = u64::from(core.superblock.chunk_bytes);
    let backwards = ScanOptions {
        start: Some(Bytes::copy_from_slice(&key_layout::chunk(id, first))),
        end: Some(Bytes::from(key_layout::after_chunks(id))),
        reverse: true,
        ..ScanOptions::default()
    };
    let last = store.range_heads(backwards).ok().and_then(|mut heads| heads.next()?.ok());
    let last =
        last.and_then(|last| Some((key_layout::parse_chunk(&last.key)?.1, last.head.length)));
    last.map_or(chunk_bytes, |(number, length)| {
        u64::from(number.saturating_sub(first)).saturating_mul(chunk_bytes) + length
    })
}

/// Whether a content is some file's, being written, or about to be freed in this bucket. Without the counters'
/// lock it may be all the same where this says that it is not.
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
