//! Writing a file: chunks first, under a content id of their own, then one change that makes it so.
//!
//! 1. The upload is noted in the catalogue with the buckets it writes to, so that a restart frees it.
//! 2. Full chunks go to the home bucket, or on from there to the first with room.
//! 3. `commit` syncs the chunks, unless `Os` was asked for, and changes the name in one batch. What the caller
//!    holds so that the change fits is held for that batch alone, and never while a disk is waited for.
//!
//! A writer that is dropped leaves nothing but chunks to be freed.

use std::sync::Arc;

use bytes::Bytes;
use tallybook::Durability;

use crate::buckets::Bucket;
use crate::change::{Change, check_condition, check_unlinks};
use crate::compacting::compact_for_room;
use crate::core::{Core, holding_nothing};
use crate::digest::{Hashing, emptied_of};
use crate::error::{Error, Result};
use crate::figures::sum;
use crate::key_layout::{self, key};
use crate::options::{ATTRIBUTES_BYTES_MAX, WriteOptions};
use crate::placement::{check_name, spill_order};
use crate::reaper;
use crate::record::{Content, ContentId, Extent, FileRecord, Share, Stat, encode_shares};

/// A file that is being written. Nothing of it shows until [`Writer::commit`].
#[derive(Debug)]
pub struct Writer {
    core: Arc<Core>,
    name: String,
    options: WriteOptions,
    id: ContentId,
    home: u8,
    chunk: Vec<u8>,
    chunks: u32,
    size: u64,
    extents: Vec<Extent>,
    shares: Vec<Share>,
    /// The bucket that took the last chunk.
    bucket: Option<(u8, Bucket)>,
    hashing: Option<Hashing>,
    is_committed: bool,
    has_failed: bool,
}

impl Writer {
    pub(crate) fn new(core: &Arc<Core>, name: &str, options: WriteOptions) -> Result<Writer> {
        check_name(name)?;
        core.check_open()?;
        check_attributes(&options.attributes)?;
        check_unlinks(options.unlinks.as_deref(), &[name])?;
        if options.condition.is_some() {
            check_condition(options.condition, core.record(name)?.map(|record| record.version))?;
        }
        let superblock = &core.superblock;
        let home = superblock.reference_id.bucket_of(name, superblock.bucket_count());
        let id = {
            let mut figures = core.figures.lock();
            figures.next_content += 1;
            ContentId::new(figures.next_content - 1, core.opening)
        };
        let md5 = options.md5 || options.md5_expected.is_some();
        let writer = Writer {
            core: core.clone(),
            name: name.to_owned(),
            id,
            home,
            chunk: Vec::new(),
            chunks: 0,
            size: 0,
            extents: Vec::new(),
            shares: Vec::new(),
            bucket: None,
            hashing: Some(Hashing::new(md5, !core.resources.is_inline())),
            options,
            is_committed: false,
            has_failed: false,
        };
        if let Some(size) = writer.options.size {
            writer.check_room(size)?;
        }
        Ok(writer)
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes written so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends bytes. After an error the file can't be committed.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.check_sound()?;
        let size = self.size + bytes.len() as u64;
        if self.options.size.is_some_and(|expected| size > expected) {
            return self.fail(Error::InvalidArgument(format!(
                "the file was to have {} bytes and has more",
                self.options.size.unwrap_or_default()
            )));
        }
        let chunk_bytes = self.core.superblock.chunk_bytes as usize;
        while !bytes.is_empty() {
            if self.chunk.capacity() == 0 {
                self.chunk = self.hashing.as_ref().and_then(Hashing::emptied).unwrap_or_default();
                let expected = self.options.size.unwrap_or(u64::MAX) - self.size;
                self.chunk
                    .reserve_exact(chunk_bytes.min(expected.try_into().unwrap_or(chunk_bytes)));
            }
            let (now, later) = bytes.split_at(bytes.len().min(chunk_bytes - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            self.size += now.len() as u64;
            bytes = later;
            if self.chunk.len() == chunk_bytes
                && let Err(error) = self.put_chunk()
            {
                return self.fail(error);
            }
        }
        Ok(())
    }

    /// Sets the attributes anew, for what is known only when the bytes are.
    pub fn set_attributes(&mut self, attributes: Bytes) -> Result<()> {
        check_attributes(&attributes)?;
        self.options.attributes = attributes;
        Ok(())
    }

    /// Has the name stand for what was written; answers what is known of the file.
    ///
    /// `Conflict`: the condition no longer holds. After an error in the final sync of `Sync` it is not
    /// known whether a power loss would keep the file; in all other cases an error means it is absent.
    pub fn commit(self) -> Result<Stat> {
        let Ok(stat) = self.commit_holding(holding_nothing)?;
        Ok(stat)
    }

    /// The same with what `hold` answers held while the name changes: it is asked once the chunks are on disk,
    /// and what it answered is dropped before the change is waited for. The inner error is what it refused
    /// with; then the file is absent.
    pub fn commit_holding<G, E>(
        mut self,
        hold: impl FnOnce() -> Result<G, E>,
    ) -> Result<Result<Stat, E>> {
        self.check_sound()?;
        if let Some(expected) = self.options.size
            && expected != self.size
        {
            return Err(Error::InvalidArgument(format!(
                "the file was to have {expected} bytes and has {}",
                self.size
            )));
        }
        if !self.chunk.is_empty() {
            self.put_chunk()?;
        }
        let hashes = self.hashing.take().expect("a writer hashes until it ends").finish();
        if let (Some(expected), Some(md5)) = (self.options.md5_expected, hashes.md5)
            && expected != md5
        {
            return Err(Error::InvalidArgument("the MD5 is not the one expected".to_owned()));
        }
        let content = Content {
            refs: 0,
            size: self.size,
            chunk_bytes: self.core.superblock.chunk_bytes,
            extents: std::mem::take(&mut self.extents),
        };
        let primary = content.bucket_of(0).unwrap_or(self.home);
        // An empty file has no chunk, but it has an entry.
        let primary_bucket = self.core.bucket_for_writing(primary)?;
        let durability = self.core.durability(self.options.durability);
        if durability != Durability::Os {
            for share in &self.shares {
                self.core.buckets.get(share.bucket)?.sync()?;
            }
        }
        let held = match hold() {
            Ok(held) => held,
            Err(refused) => return Ok(Err(refused)),
        };
        let stat = self.change_name(content, primary, hashes.blake3, hashes.md5, durability)?;
        drop(held);
        self.core.finish(durability, &[&primary_bucket])?;
        Ok(Ok(stat))
    }

    fn change_name(
        &mut self,
        content: Content,
        primary: u8,
        blake3: [u8; 32],
        md5: Option<[u8; 16]>,
        durability: Durability,
    ) -> Result<Stat> {
        let core = self.core.clone();
        let mut change = Change::begin(&core)?;
        let old = core.record(&self.name)?;
        check_condition(self.options.condition, old.as_ref().map(|old| old.version))?;
        let now_ms = core.now_ms();
        let record = FileRecord {
            version: change.take_version(),
            content: self.id,
            primary,
            size: self.size,
            blake3,
            md5,
            written_at_ms: now_ms,
            changed_at_ms: now_ms,
            attributes: std::mem::take(&mut self.options.attributes),
        };
        let stat = record.stat(&self.name);
        change.finish_upload(self.id, content)?;
        change.set(&self.name, record, old.as_ref())?;
        change.remove_beside(self.options.unlinks.as_deref())?;
        change.commit(durability)?;
        self.is_committed = true;
        Ok(stat)
    }

    /// Puts the chunk that is full, or the last one.
    fn put_chunk(&mut self) -> Result<()> {
        let bytes = Bytes::from(std::mem::take(&mut self.chunk));
        let len = bytes.len() as u64;
        let bucket = self.make_room(len)?;
        let store = match &self.bucket {
            Some((open, store)) if *open == bucket => store.clone(),
            _ => self.enter(bucket)?,
        };
        if let Some(hashing) = &mut self.hashing {
            hashing.update(&bytes);
        }
        let chunk_key = key_layout::chunk(self.id, self.chunks);
        match store.put(&chunk_key, &bytes) {
            // What the counters tell as free may still be on the disk.
            Err(tallybook::Error::NoSpace { .. }) => {
                compact_for_room(&self.core, bucket);
                store.put(&chunk_key, &bytes)?
            }
            put => put?,
        };
        self.chunks = self.chunks.checked_add(1).ok_or_else(|| {
            Error::InvalidArgument("a file has at most 4,294,967,295 chunks".to_owned())
        })?;
        match self.extents.last_mut() {
            Some(extent) if extent.bucket == bucket => extent.chunks += 1,
            _ => self.extents.push(Extent { bucket, chunks: 1 }),
        }
        // The buffer is used again, now or when it is hashed.
        self.chunk = emptied_of(bytes).unwrap_or_default();
        Ok(())
    }

    /// Goes on in another bucket than before; the catalogue knows before the first chunk is there.
    fn enter(&mut self, bucket: u8) -> Result<Bucket> {
        let store = self.core.bucket_for_writing(bucket)?;
        let noted: Vec<Share> =
            self.shares.iter().map(|share| Share { bucket: share.bucket, bytes: 0 }).collect();
        let durability = Some(self.core.options.unwaited());
        let options = tallybook::WriteOptions { durability, ..Default::default() };
        let note_key = key(key_layout::UPLOAD, &self.id.0);
        self.core.catalogue.put_with(&note_key, &encode_shares(&noted), &options)?;
        self.bucket = Some((bucket, store.clone()));
        Ok(store)
    }

    /// Reserves room for a chunk; answers the bucket.
    fn make_room(&mut self, len: u64) -> Result<u8> {
        let mut bucket = self.reserve(len);
        if bucket.is_none() {
            // What is dead may be freed now. What fails in a bucket doesn't matter if another has room.
            let reaped = reaper::reap_for_room(&self.core);
            bucket = self.reserve(len);
            if bucket.is_none() {
                reaped?;
            }
        }
        let bucket = bucket.ok_or_else(|| self.full(len))?;
        match self.shares.iter_mut().find(|share| share.bucket == bucket) {
            Some(share) => share.bytes += len,
            None => self.shares.push(Share { bucket, bytes: len }),
        }
        Ok(bucket)
    }

    fn reserve(&self, len: u64) -> Option<u8> {
        let cap_bytes = self.core.superblock.bucket_cap_bytes;
        let mut figures = self.core.figures.lock();
        let bucket =
            spill_order(self.home, self.core.superblock.bucket_count()).find(|&bucket| {
                figures.buckets[usize::from(bucket)].used().saturating_add(len) <= cap_bytes
            })?;
        figures.buckets[usize::from(bucket)].reserved += len;
        Some(bucket)
    }

    /// Refuses a size that all buckets together have no room for.
    fn check_room(&self, size: u64) -> Result<()> {
        let (cap_bytes, chunk_bytes) =
            (self.core.superblock.bucket_cap_bytes, u64::from(self.core.superblock.chunk_bytes));
        let has_room = || {
            let figures = self.core.figures.lock();
            let whole_chunks = |used: u64| cap_bytes.saturating_sub(used) / chunk_bytes;
            let chunks: u64 =
                figures.buckets.iter().map(|bucket| whole_chunks(bucket.used())).sum();
            let rest = size.saturating_sub(chunks.saturating_mul(chunk_bytes));
            rest == 0
                || rest < chunk_bytes
                    && figures
                        .buckets
                        .iter()
                        .any(|bucket| cap_bytes.saturating_sub(bucket.used()) % chunk_bytes >= rest)
        };
        if has_room() {
            return Ok(());
        }
        let reaped = reaper::reap_for_room(&self.core);
        if has_room() {
            return Ok(());
        }
        reaped?;
        Err(self.full(size))
    }

    fn full(&self, needed_bytes: u64) -> Error {
        let cap_bytes = self.core.superblock.bucket_cap_bytes;
        let figures = self.core.figures.lock();
        Error::BucketFull {
            bucket: self.home,
            cap_bytes,
            used_bytes: figures.buckets[usize::from(self.home)].used(),
            needed_bytes,
            free_bytes: sum(figures
                .buckets
                .iter()
                .map(|bucket| cap_bytes.saturating_sub(bucket.used()))),
        }
    }

    fn check_sound(&self) -> Result<()> {
        match self.has_failed {
            true => Err(Error::InvalidArgument("an earlier write of this file failed".to_owned())),
            false => Ok(()),
        }
    }

    fn fail<T>(&mut self, error: Error) -> Result<T> {
        self.has_failed = true;
        Err(error)
    }
}

fn check_attributes(attributes: &[u8]) -> Result<()> {
    if attributes.len() <= ATTRIBUTES_BYTES_MAX {
        return Ok(());
    }
    let what = format!(
        "attributes have at most {ATTRIBUTES_BYTES_MAX} bytes, these have {}",
        attributes.len()
    );
    Err(Error::InvalidArgument(what))
}

impl std::io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Writer::write(self, bytes).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.is_committed || self.shares.is_empty() {
            return;
        }
        if self.core.give_up_upload(self.id, &self.shares).is_err() {
            // The reaper tries again; should it never, the next opening finds the note of the upload.
            self.core.given_up.lock().push((self.id, std::mem::take(&mut self.shares)));
            self.core.note_reap_due();
        }
    }
}

impl Core {
    /// Waits for what `durability` asks for, after a change whose chunks are synced.
    ///
    /// The catalogue first: it has a note of an entry that is missing, but an entry whose version it
    /// lost would be the newest of its name when a catalogue is made anew.
    pub(crate) fn finish(&self, durability: Durability, buckets: &[&Bucket]) -> Result<()> {
        if durability == Durability::Sync {
            self.catalogue.sync()?;
            for bucket in buckets {
                bucket.sync()?;
            }
        }
        Ok(())
    }

    /// Gives up the uploads that could not be when their writers were dropped. One that still can't be stays
    /// with those after it.
    pub(crate) fn give_up_uploads(&self) -> Result<()> {
        let mut given_up = self.given_up.lock();
        while let Some((id, shares)) = given_up.last() {
            self.give_up_upload(*id, shares)?;
            given_up.pop();
        }
        Ok(())
    }

    fn give_up_upload(&self, id: ContentId, shares: &[Share]) -> Result<()> {
        let mut figures = self.figures.lock();
        let mut changed = figures.clone();
        let dead = changed.reserved_to_dead(shares);
        let mut batch = tallybook::WriteBatch::new();
        batch.use_reserve();
        batch.delete(key(key_layout::UPLOAD, &id.0))?;
        batch.put(key(key_layout::FREED, &id.0), encode_shares(&dead))?;
        changed.write_to(&mut batch)?;
        self.catalogue.write(batch, Some(Durability::Os))?;
        *figures = changed;
        drop(figures);
        self.note_reap_due();
        Ok(())
    }
}
