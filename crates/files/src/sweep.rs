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
    let store = core.buckets.get(bucket);
    let swept = store.and_then(|store| sweep(core, bucket, &store, &from, &mut 0));
    // One that is lost, most likely. The next opening tries again.
    unswept.is_in_part |= !matches!(swept, Ok(Swept { is_whole: true, .. }));
    if let Ok(Swept { next: Some(next), .. }) = swept {
        match next[0] == from[0] {
            true => unswept.buckets.push_front((bucket, next)),
            false => unswept.buckets.push_back((bucket, next)),
        }
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

/// Sweeps a part of a bucket, from a key on, and counts what it removed: entries, then chunks.
pub(crate) fn sweep(
    core: &Core,
    bucket: u8,
    store: &Bucket,
    from: &[u8],
    orphans: &mut u64,
) -> Result<Swept> {
    if from[0] == key_layout::CHUNK {
        return sweep_chunks(core, bucket, store, from, orphans);
    }
    let mut swept = sweep_entries(core, bucket, store, from, orphans)?;
    // Entries that can't be read keep no chunk: the catalogue says what is whose.
    if swept.next.is_none() && core.knows_all() {
        swept.next = Some(vec![key_layout::CHUNK]);
    }
    Ok(swept)
}

/// Sweeps some entries, from a key on, and counts what it removed.
fn sweep_entries(
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
fn sweep_chunks(
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
        if !is_known(core, id, bucket)? {
            remove_unknown(core, bucket, store, (id, first), orphans)?;
        }
        // On to the next content: one step each, however many chunks it has.
        walk.skip_to(key_layout::after_chunks(id));
    }
    Ok(Swept { is_whole: walk.is_whole(), next: Some(walk.rest()) })
}

/// Removes the chunks of a content, from the first there on, if it is still unknown with the counters' lock. Then
/// nobody comes to know it any more.
fn remove_unknown(
    core: &Core,
    bucket: u8,
    store: &Bucket,
    (id, first): (ContentId, u32),
    orphans: &mut u64,
) -> Result<()> {
    {
        let _figures = core.figures.lock();
        if is_known(core, id, bucket)? {
            return Ok(());
        }
    }
    // The keys are walked as they were; what was known then may have been freed since, and is counted.
    let Some(bytes) = bytes_of(core, store, id, first) else { return Ok(()) };
    store.delete_range(&key_layout::chunk(id, 0), &key_layout::after_chunks(id))?;
    *orphans += 1;
    let mut figures = core.figures.lock();
    figures.count_freed(bucket, bytes);
    core.write_figures(&mut figures);
    Ok(())
}

/// Bytes of a content's chunks in a bucket, from its first there on, without a look at each: all but the last are
/// full, and few contents are in a bucket in parts. What can't be read counts as one chunk; `None` where there is
/// none.
fn bytes_of(core: &Core, store: &Bucket, id: ContentId, first: u32) -> Option<u64> {
    let chunk_bytes = u64::from(core.superblock.chunk_bytes);
    let backwards = ScanOptions {
        start: Some(Bytes::copy_from_slice(&key_layout::chunk(id, first))),
        end: Some(Bytes::from(key_layout::after_chunks(id))),
        reverse: true,
        ..ScanOptions::default()
    };
    let last = store.range_heads(backwards).and_then(|mut heads| heads.next().transpose());
    let Ok(last) = last else { return Some(chunk_bytes) };
    let last = last?;
    let number = key_layout::parse_chunk(&last.key).map_or(first, |(_, number)| number);
    let full = u64::from(number.saturating_sub(first)).saturating_mul(chunk_bytes);
    Some(full.saturating_add(last.head.length))
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::path::Path;
    use std::sync::Arc;

    use tallybook::Resources;
    use tallybook::vfs::faulty::Fault;
    use tallybook::vfs::{FaultyFileSystem, ManualClock, MemoryFileSystem};

    use super::*;
    use crate::options::{CreateOptions, OpenOptions, UnlinkOptions, VerifyOptions, WriteOptions};
    use crate::store::{FileStore, resource_options};

    /// A walk shows keys as they were. What the reaper freed since was removed again, told of as an orphan, and
    /// counted as a chunk freed.
    #[test]
    fn what_is_freed_behind_a_walk_is_no_orphan() {
        let clock = Arc::new(ManualClock::at_ms(1_000_000));
        let fs = Arc::new(MemoryFileSystem::new());
        let resources = Resources::inline(resource_options(), fs, clock);
        let create = CreateOptions { bucket_count: 1, ..CreateOptions::default() };
        let store =
            FileStore::create_with("/files", create, OpenOptions::default(), resources).unwrap();
        store.write("file", b"bytes", WriteOptions::default()).unwrap();
        let core = store.core();
        let id = core.record("file").unwrap().unwrap().content;
        let bucket = core.buckets.get(0).unwrap();
        let mut walk = KeyWalk::new(&bucket, &[key_layout::CHUNK]).unwrap();
        assert!(store.unlink("file", UnlinkOptions::default()).unwrap());
        store.reap().unwrap();
        let shown = walk.next().unwrap().and_then(|key| key_layout::parse_chunk(&key));
        assert_eq!(shown, Some((id, 0)));
        let freed = || core.figures.lock().buckets[0].freed;
        let (before, mut orphans) = (freed(), 0);
        remove_unknown(core, 0, &bucket, (id, 0), &mut orphans).unwrap();
        assert_eq!((orphans, freed()), (0, before));
        // What nobody knows is one.
        bucket.put(&key_layout::chunk(id, 0), b"nobody's").unwrap();
        remove_unknown(core, 0, &bucket, (id, 0), &mut orphans).unwrap();
        assert_eq!((orphans, freed()), (1, before + 8));
    }

    thread_local! {
        static CORE: RefCell<Option<Arc<Core>>> = const { RefCell::new(None) };
        /// Writes to the bucket, and those among them while somebody else might have swept.
        static WRITES: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }

    fn look_at_write(operation: &str, path: &Path) -> bool {
        let is_write = operation == "write_all_at" && path.starts_with("/files/buckets");
        CORE.with_borrow(|core| {
            if let Some(core) = core.as_ref().filter(|_| is_write) {
                let (all, shared) = WRITES.get();
                WRITES.set((all + 1, shared + u32::from(!core.unswept.is_locked())));
            }
        });
        false
    }

    /// A verification and the thread could come to a content that nobody knows at once: both removed it, told of it,
    /// and counted its bytes as freed.
    #[test]
    fn a_verification_sweeps_alone() {
        let clock = Arc::new(ManualClock::at_ms(1_000_000));
        let fs = FaultyFileSystem::new(Arc::new(MemoryFileSystem::new()));
        let resources = Resources::inline(resource_options(), Arc::new(fs.clone()), clock);
        let create = CreateOptions { bucket_count: 1, ..CreateOptions::default() };
        let store =
            FileStore::create_with("/files", create, OpenOptions::default(), resources).unwrap();
        store.write("file", b"bytes", WriteOptions::default()).unwrap();
        let core = store.core().clone();
        let bucket = core.buckets.get(0).unwrap();
        bucket.put(&key_layout::chunk(ContentId::new(1 << 40, 7), 0), b"nobody's").unwrap();
        fs.fail_at(0, Fault::errno(5).only(look_at_write));
        CORE.set(Some(core));
        let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
        CORE.take();
        assert_eq!(report.orphans, 1);
        let (all, shared) = WRITES.get();
        assert!(all > 0 && shared == 0, "{shared} of {all}");
    }
}
