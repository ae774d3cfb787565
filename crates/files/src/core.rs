//! What all calls share: the catalogue, the buckets, the counters, and who is reading what.
//!
//! The catalogue decides what is there. Order of the locks: `compacting`, `reaping`, `given_up`, `unswept`,
//! `figures`, then a bucket's slot; `pins` and `unknown` are taken alone, or last. No sync is waited for with
//! `figures`: whoever commits needs it, and may hold what keeps others from reading.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tallybook::{Durability, Resources, ScanOptions, Store, WriteBatch};

use crate::buckets::{Bucket, Buckets};
use crate::error::{Error, Result};
use crate::figures::{Figures, NUMBER_MAX, NUMBER_READ_MAX};
use crate::key_layout::{self, key};
use crate::options::OpenOptions;
use crate::placement::check_name;
use crate::record::{
    Content, ContentId, Extent, FileRecord, Quarantine, Share, decode_entry, decode_numbers,
    decode_shares, encode_numbers,
};
use crate::superblock::Superblock;

/// What all calls share.
pub(crate) struct Core {
    pub(crate) dir: PathBuf,
    pub(crate) superblock: Superblock,
    pub(crate) options: OpenOptions,
    pub(crate) resources: Arc<Resources>,
    pub(crate) catalogue: Store,
    pub(crate) buckets: Buckets,
    /// The counters; whoever holds them commits.
    pub(crate) figures: Mutex<Figures>,
    /// Contents that are being read, and by how many.
    pub(crate) pins: Mutex<HashMap<ContentId, usize>>,
    /// Random, so that content ids of two openings differ.
    pub(crate) opening: u64,
    /// Held by whoever frees space.
    pub(crate) reaping: Mutex<()>,
    /// Held by whoever compacts a bucket, which may take minutes: the bucket whose turn is next.
    pub(crate) compacting: Mutex<u8>,
    /// Held by each writer that waits for room on a full disk.
    pub(crate) waiting_for_room: Arc<()>,
    /// Uploads that are over and could not be noted to be freed, with what they reserved.
    pub(crate) given_up: Mutex<Vec<(ContentId, Vec<Share>)>>,
    /// What the opening found to be swept, and is not yet. Held by whoever sweeps.
    pub(crate) unswept: Mutex<Unswept>,
    /// Buckets of which not all entries could be read when the catalogue was made.
    pub(crate) unknown: Mutex<BTreeMap<u8, KnownFrom>>,
    /// Something is to be freed.
    pub(crate) reap_due: Mutex<bool>,
    pub(crate) reap_signal: Condvar,
    /// Taken to tell that the store is being closed.
    pub(crate) closing: Mutex<()>,
    pub(crate) close_signal: Condvar,
    /// Versions whose entries were put into their buckets in this opening.
    pub(crate) put_entries: Mutex<HashSet<u64>>,
    pub(crate) is_closed: AtomicBool,
    /// Files known to be damaged: while there is none, nobody looks.
    pub(crate) has_quarantined: AtomicBool,
    /// Held until the store is closed.
    pub(crate) lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// Buckets that may have entries and chunks which a power loss took out of the catalogue.
#[derive(Debug, Default)]
pub(crate) struct Unswept {
    /// What is left of each, by its number: the key to go on at, of an entry or then a chunk. The first is next.
    pub(crate) buckets: VecDeque<(u8, Vec<u8>)>,
    /// Others could not be swept.
    pub(crate) is_in_part: bool,
}

impl Unswept {
    /// These buckets, of which nothing is swept.
    pub(crate) fn all(buckets: impl Iterator<Item = u8>) -> Unswept {
        let whole = |bucket| (bucket, vec![key_layout::ENTRY]);
        Unswept { buckets: buckets.map(whole).collect(), is_in_part: false }
    }

    /// Has all of a bucket be swept, too.
    pub(crate) fn add(&mut self, bucket: u8) {
        self.buckets.retain(|(known, _)| *known != bucket);
        self.buckets.push_front((bucket, vec![key_layout::ENTRY]));
    }

    /// Whether no bucket has any.
    pub(crate) fn is_over(&self) -> bool {
        self.buckets.is_empty() && !self.is_in_part
    }
}

/// From where on the catalogue knows all of a bucket of which not all entries could be read when it was made:
/// the first numbers that were given out afterwards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownFrom {
    /// Of versions.
    pub(crate) version: u64,
    /// Of the counts of contents.
    pub(crate) content: u64,
}

impl KnownFrom {
    /// The value of such a bucket's key.
    pub(crate) fn encode(self) -> Vec<u8> {
        encode_numbers(&[self.version, self.content])
    }

    /// What has this value. One without the numbers says no more than that not all is known.
    fn decode(value: &[u8]) -> KnownFrom {
        let [version, content] = decode_numbers(value).unwrap_or([NUMBER_MAX; 2]);
        KnownFrom { version, content }
    }
}

/// The buckets of which not all entries could be read when the catalogue was made.
pub(crate) fn unknown_buckets(
    catalogue: &Store,
    superblock: &Superblock,
) -> Result<BTreeMap<u8, KnownFrom>> {
    let prefix = Some(Bytes::from_static(&[key_layout::UNREAD]));
    let mut unknown = BTreeMap::new();
    for note in catalogue.range(ScanOptions { prefix, ..ScanOptions::default() })? {
        let note = note?;
        let bucket = note.key.get(1).filter(|&&bucket| superblock.has_bucket(bucket));
        unknown.extend(bucket.map(|&bucket| (bucket, KnownFrom::decode(&note.value))));
    }
    Ok(unknown)
}

/// What is held while a name changes where the caller has nothing to hold.
pub(crate) fn holding_nothing() -> Result<(), Infallible> {
    Ok(())
}

/// What doesn't decode though its checksum is right.
pub(crate) fn undecodable(dir: &std::path::Path, what: &str) -> Error {
    Error::CatalogueLost { path: dir.to_owned(), what: format!("a {what} of it doesn't decode") }
}

/// The name in a key, if writers take it.
pub(crate) fn decode_name(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|name| check_name(name).is_ok())
}

/// What a name stands for, in a bucket that there is.
pub(crate) fn decode_record(superblock: &Superblock, value: &[u8]) -> Option<FileRecord> {
    FileRecord::decode(value).filter(|record| superblock.has_bucket(record.primary))
}

/// A content, in buckets that there are.
pub(crate) fn decode_content(superblock: &Superblock, value: &[u8]) -> Option<Content> {
    Content::decode(value).filter(|content| is_of_store(superblock, content))
}

/// Whether a content is cut as all of a store are, and in buckets that there are.
fn is_of_store(superblock: &Superblock, content: &Content) -> bool {
    let exists = |extent: &Extent| superblock.has_bucket(extent.bucket);
    content.chunk_bytes == superblock.chunk_bytes && content.extents.iter().all(exists)
}

/// Shares of a content, in buckets that there are.
pub(crate) fn decode_known_shares(superblock: &Superblock, value: &[u8]) -> Option<Vec<Share>> {
    let exists = |share: &Share| superblock.has_bucket(share.bucket);
    decode_shares(value).filter(|shares| shares.iter().all(exists))
}

/// What an entry says, of buckets that there are.
pub(crate) fn decode_known_entry(
    superblock: &Superblock,
    value: &[u8],
) -> Option<(FileRecord, Content)> {
    let (record, content) = decode_entry(value)?;
    let is_known = superblock.has_bucket(record.primary) && is_of_store(superblock, &content);
    (is_known && record.content.count() < NUMBER_READ_MAX).then_some((record, content))
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::InvalidArgument("the file store is closed".to_owned()));
        }
        Ok(())
    }

    /// Whether threads of the store do what is due.
    pub(crate) fn has_threads(&self) -> bool {
        self.options.background && !self.resources.is_inline()
    }

    /// Waits so long, or until the store is being closed.
    pub(crate) fn wait_for_close(&self, time: Duration) {
        let mut closing = self.closing.lock();
        if self.check_open().is_ok() {
            self.close_signal.wait_for(&mut closing, time);
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.resources.clock.now_ms()
    }

    /// The reading of a clock that nobody sets.
    pub(crate) fn now_ns(&self) -> u64 {
        self.resources.clock.steady_ns()
    }

    pub(crate) fn durability(&self, asked: Option<Durability>) -> Durability {
        asked.unwrap_or(self.options.durability)
    }

    /// What a name stands for.
    pub(crate) fn record(&self, name: &str) -> Result<Option<FileRecord>> {
        let value = self.catalogue.get(&key(key_layout::NAME, name.as_bytes()))?;
        value.map(|value| self.decode_record(&value)).transpose()
    }

    pub(crate) fn decode_record(&self, value: &[u8]) -> Result<FileRecord> {
        decode_record(&self.superblock, value)
            .ok_or_else(|| undecodable(self.catalogue.path(), "name"))
    }

    /// A content that some name stands for.
    pub(crate) fn content(&self, id: ContentId) -> Result<Option<Content>> {
        let value = self.catalogue.get(&key(key_layout::CONTENT, &id.0))?;
        let decode = |value: Bytes| {
            decode_content(&self.superblock, &value)
                .ok_or_else(|| undecodable(self.catalogue.path(), "content"))
        };
        value.map(decode).transpose()
    }

    /// Known damage of a file.
    pub(crate) fn quarantine(&self, name: &str, version: u64) -> Result<Option<Quarantine>> {
        if !self.has_quarantined.load(Ordering::Acquire) {
            return Ok(None);
        }
        let value = self.catalogue.get(&key(key_layout::QUARANTINED, name.as_bytes()))?;
        let known = value.and_then(|value| Quarantine::decode(&value));
        Ok(known.filter(|known| known.version == version))
    }

    /// Whether the catalogue knows all files of all buckets. If not, those of others may have chunks anywhere.
    pub(crate) fn knows_all(&self) -> bool {
        self.unknown.lock().is_empty()
    }

    /// From where on the catalogue knows all of a bucket, unless it knows all anyway.
    pub(crate) fn known_from(&self, bucket: u8) -> Option<KnownFrom> {
        self.unknown.lock().get(&bucket).copied()
    }

    /// Whether a content may have names that the catalogue doesn't know. Their entries are all in the bucket of
    /// its first chunk.
    pub(crate) fn may_have_unknown_names(&self, id: ContentId, shares: &[Share]) -> bool {
        let known_from = shares.first().and_then(|share| self.known_from(share.bucket));
        known_from.is_some_and(|known_from| id.count() < known_from.content)
    }

    /// A bucket that is to take bytes, made on first use.
    pub(crate) fn bucket_for_writing(&self, bucket: u8) -> Result<Bucket> {
        if self.figures.lock().buckets[usize::from(bucket)].exists {
            return self.buckets.get(bucket);
        }
        let store = self.buckets.make(bucket)?;
        // Known to the catalogue, durably, before the first chunk: from then on it may not be missing. Others who
        // come first write the same, and each waits for a sync that has it.
        {
            let figures = self.figures.lock();
            if figures.buckets[usize::from(bucket)].exists {
                return Ok(store);
            }
            let mut changed = figures.clone();
            changed.bucket(bucket).exists = true;
            let mut batch = WriteBatch::new();
            changed.write_to(&mut batch)?;
            self.catalogue.write(batch, Some(Durability::Os))?;
        }
        // Without the lock: whoever commits waits for it.
        self.catalogue.sync()?;
        self.figures.lock().buckets[usize::from(bucket)].exists = true;
        Ok(store)
    }

    /// Writes the counters where nothing that they count is written with them. What can't be written now is with
    /// the next change.
    pub(crate) fn write_figures(&self, figures: &mut Figures) {
        let mut changed = figures.clone();
        let mut batch = WriteBatch::new();
        batch.use_reserve();
        let written = changed
            .write_to(&mut batch)
            .and_then(|()| Ok(self.catalogue.write(batch, Some(self.options.unwaited()))?));
        if written.is_ok() {
            *figures = changed;
        }
    }

    /// The bytes of a chunk, whose checksum the engine has compared. A lost bucket is told as such.
    pub(crate) fn chunk(
        &self,
        name: &str,
        id: ContentId,
        content: &Content,
        number: u32,
    ) -> Result<Bytes> {
        let damaged = |what: String| Error::Damaged {
            name: name.to_owned(),
            offset: u64::from(number) * u64::from(content.chunk_bytes),
            what,
        };
        let bucket = content.bucket_of(number).expect("the chunk is one of the content's");
        let store = self.buckets.get(bucket)?;
        let value = store.get(&key_layout::chunk(id, number)).map_err(|error| match error {
            damage @ tallybook::Error::Corruption { .. } => damaged(damage.to_string()),
            other => Error::from(other),
        })?;
        match value {
            Some(bytes) if bytes.len() as u64 == content.bytes_of(number) => Ok(bytes),
            Some(bytes) => Err(damaged(format!(
                "chunk {number} in bucket {bucket} has {} bytes instead of {}",
                bytes.len(),
                content.bytes_of(number)
            ))),
            None => Err(damaged(format!("chunk {number} is missing in bucket {bucket}"))),
        }
    }

    /// Has what is due be freed soon.
    pub(crate) fn note_reap_due(&self) {
        *self.reap_due.lock() = true;
        self.reap_signal.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::path::Path;

    use tallybook::vfs::faulty::{Fault, OperationClass};
    use tallybook::vfs::{FaultyFileSystem, ManualClock, MemoryFileSystem};

    use super::*;
    use crate::options::{CreateOptions, VerifyOptions, WriteOptions};
    use crate::store::{FileStore, resource_options};

    thread_local! {
        static CORE: RefCell<Option<Arc<Core>>> = const { RefCell::new(None) };
        static SYNCS: Cell<u32> = const { Cell::new(0) };
        static SYNCS_WITH_FIGURES: Cell<u32> = const { Cell::new(0) };
    }

    fn look_at_sync(_: &str, _: &Path) -> bool {
        CORE.with_borrow(|core| {
            if core.as_ref().is_some_and(|core| core.figures.is_locked()) {
                SYNCS_WITH_FIGURES.set(SYNCS_WITH_FIGURES.get() + 1);
            }
        });
        SYNCS.set(SYNCS.get() + 1);
        false
    }

    /// A commit that waited for the counters held what keeps others from reading meanwhile, as the gate of S3.
    #[test]
    fn no_sync_is_waited_for_with_the_counters() {
        let fs = FaultyFileSystem::new(Arc::new(MemoryFileSystem::new()));
        let clock = Arc::new(ManualClock::at_ms(1_000_000));
        let resources = Resources::inline(resource_options(), Arc::new(fs.clone()), clock);
        let create = CreateOptions { bucket_count: 2, ..CreateOptions::default() };
        let options = OpenOptions { durability: Durability::Sync, ..OpenOptions::default() };
        let store = FileStore::create_with("/files", create, options, resources).unwrap();
        let core = store.core().clone();
        CORE.set(Some(core.clone()));
        fs.fail_at(0, Fault::errno(5).class(OperationClass::Syncs).only(look_at_sync));
        // The first file of each bucket has it made.
        let names = ["0", "1", "2", "3", "4", "5", "6", "7"];
        for name in names {
            store.write(name, name.as_bytes(), WriteOptions::default()).unwrap();
        }
        assert!(core.figures.lock().buckets.iter().all(|bucket| bucket.exists));
        let made = SYNCS.get();
        assert!(made > 0);
        let id = core.record("0").unwrap().unwrap().content;
        let bucket = core.buckets.get(store.bucket_of("0")).unwrap();
        let chunk_key = key_layout::chunk(id, 0);
        let verify = || store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap().damage;
        bucket.delete(&chunk_key).unwrap();
        assert_eq!(verify().len(), 1);
        bucket.put(&chunk_key, b"0").unwrap();
        assert_eq!(verify(), []);
        assert_eq!(SYNCS_WITH_FIGURES.get(), 0);
        CORE.take();
    }
}
