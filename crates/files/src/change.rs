//! A change of names: one batch of the catalogue, then the entries in the buckets.
//!
//! 1. Under the lock of the counters: look at what is there, and collect puts, deletions and counters.
//! 2. Write them to the catalogue in one batch. With that the change is made.
//! 3. Still under the lock, put the new entries into their buckets. What this doesn't get done, a
//!    record of step 2 has the reaper do.
//!
//! Dead entries and chunks are only noted; the reaper removes them.

use std::collections::BTreeMap;

use parking_lot::MutexGuard;
use tallybook::{Condition, Durability, WriteBatch};

use crate::buckets::Bucket;
use crate::core::{Core, decode_known_shares, undecodable};
use crate::error::{Error, Result};
use crate::figures::Figures;
use crate::key_layout::{self, key, of_version};
use crate::placement::check_name;
use crate::record::{Content, ContentId, FileRecord, encode_entry, encode_shares};

/// A change that is being put together. Nobody else changes names meanwhile.
pub(crate) struct Change<'a> {
    core: &'a Core,
    guard: MutexGuard<'a, Figures>,
    pub(crate) figures: Figures,
    batch: WriteBatch,
    /// Contents whose number of names changes; those without any are freed.
    contents: BTreeMap<ContentId, Content>,
    /// Entries that are to be in the buckets.
    entries: Vec<(String, FileRecord)>,
    frees: bool,
}

/// Notes of entries that wait for the reaper, beyond which it is called at once.
const NOTES_MAX: usize = 1024;

/// An entry: its version, its bucket, and key and value.
type PreparedEntry = (u64, Bucket, Vec<u8>, Vec<u8>);

/// Tests a condition against the version of what has a name.
pub(crate) fn check_condition(condition: Option<Condition>, current: Option<u64>) -> Result<()> {
    let holds = condition.is_none_or(|condition| condition.holds(current));
    if holds { Ok(()) } else { Err(Error::Conflict { current }) }
}

/// Refuses to unlink a name in the same change that is of it.
pub(crate) fn check_unlinks(unlinks: Option<&str>, names: &[&str]) -> Result<()> {
    let Some(unlinked) = unlinks else { return Ok(()) };
    check_name(unlinked)?;
    match names.contains(&unlinked) {
        true => Err(Error::InvalidArgument("a name is unlinked beside itself".to_owned())),
        false => Ok(()),
    }
}

/// The value of a key that says which entry of which bucket is meant.
pub(crate) fn encode_place(bucket: u8, name: &str) -> Vec<u8> {
    key(bucket, name.as_bytes())
}

/// Bucket and name of such a value.
pub(crate) fn decode_place(value: &[u8]) -> Option<(u8, &str)> {
    let (bucket, name) = value.split_first()?;
    Some((*bucket, std::str::from_utf8(name).ok()?))
}

impl<'a> Change<'a> {
    pub(crate) fn begin(core: &'a Core) -> Result<Change<'a>> {
        let guard = core.figures.lock();
        core.check_open()?;
        Ok(Change {
            core,
            figures: guard.clone(),
            guard,
            batch: WriteBatch::new(),
            contents: BTreeMap::new(),
            entries: Vec::new(),
            frees: false,
        })
    }

    /// The number of the next version.
    pub(crate) fn take_version(&mut self) -> u64 {
        self.figures.next_version += 1;
        self.figures.next_version - 1
    }

    /// Turns an upload into a content that no name stands for yet.
    pub(crate) fn finish_upload(&mut self, id: ContentId, content: Content) -> Result<()> {
        self.figures.reserved_to_live(&content.shares());
        self.batch.delete(key(key_layout::UPLOAD, &id.0))?;
        self.contents.insert(id, content);
        Ok(())
    }

    /// Has the catalogue know a content that it doesn't, or that it is about to free; a name is to stand for it.
    /// Requires: nobody frees meanwhile, and the buckets have been made.
    pub(crate) fn adopt(&mut self, id: ContentId, content: Content) -> Result<()> {
        if self.core.content(id)?.is_some() {
            return Ok(());
        }
        let freed_key = key(key_layout::FREED, &id.0);
        if let Some(shares) = self.core.catalogue.get(&freed_key)? {
            let shares = decode_known_shares(&self.core.superblock, &shares)
                .ok_or_else(|| undecodable(self.core.catalogue.path(), "freed content"))?;
            shares.into_iter().for_each(|share| self.figures.freed(share));
            self.batch.delete(freed_key)?;
        }
        self.figures.now_live(&content.shares());
        self.contents.insert(id, Content { refs: 0, ..content });
        Ok(())
    }

    /// Has a name stand for `record`, whose content is known to the catalogue or to this change.
    pub(crate) fn set(
        &mut self,
        name: &str,
        record: FileRecord,
        old: Option<&FileRecord>,
    ) -> Result<()> {
        self.content(record.content)?.refs += 1;
        self.figures.count_file(record.size);
        if let Some(old) = old {
            self.release(name, old)?;
        }
        self.batch.put(key(key_layout::NAME, name.as_bytes()), record.encode())?;
        let place = encode_place(record.primary, name);
        self.batch.put(of_version(key_layout::ENTRY_DUE, record.version), place)?;
        self.entries.push((name.to_owned(), record));
        Ok(())
    }

    /// Has a name stand for nothing.
    pub(crate) fn remove(&mut self, name: &str, old: &FileRecord) -> Result<()> {
        self.batch.delete(key(key_layout::NAME, name.as_bytes()))?;
        if !self.core.knows_all() {
            // What is read of the name one day is older.
            self.batch.put(key(key_layout::UNLINKED, name.as_bytes()), vec![1])?;
        }
        self.release(name, old)
    }

    /// Has the name stand for nothing that is unlinked beside, if it stands for anything. Requires: the change is
    /// of no name that `check_unlinks` wasn't told of.
    pub(crate) fn remove_beside(&mut self, unlinks: Option<&str>) -> Result<()> {
        let Some(name) = unlinks else { return Ok(()) };
        match self.core.record(name)? {
            Some(old) => self.remove(name, &old),
            None => Ok(()),
        }
    }

    /// Lets the change be made on a full disk: it frees more than it takes.
    pub(crate) fn use_reserve(&mut self) {
        self.batch.use_reserve();
    }

    /// Makes the change; waits for a sync only where `durability` asks for it after `commit`.
    pub(crate) fn commit(mut self, durability: Durability) -> Result<()> {
        for (id, content) in &self.contents {
            let content_key = key(key_layout::CONTENT, &id.0);
            if content.refs > 0 {
                self.batch.put(content_key, content.encode())?;
                continue;
            }
            let shares = content.shares();
            self.figures.live_to_dead(&shares);
            self.batch.delete(content_key)?;
            self.batch.put(key(key_layout::FREED, &id.0), encode_shares(&shares))?;
        }
        self.figures.write_to(&mut self.batch)?;
        let entries = self.prepare_entries()?;
        let mut is_due = self.frees || entries.len() < self.entries.len();
        let lazily = match durability {
            Durability::Sync => Durability::Os,
            lazily => lazily,
        };
        self.core.catalogue.write(self.batch, Some(lazily))?;
        *self.guard = self.figures;
        for (version, bucket, entry_key, value) in entries {
            // A failure leaves it to the reaper: the change is made.
            match bucket.put(&entry_key, &value) {
                Ok(_) => drop(self.core.put_entries.lock().insert(version)),
                Err(_) => is_due = true,
            }
        }
        drop(self.guard);
        if is_due || self.core.put_entries.lock().len() >= NOTES_MAX {
            self.core.note_reap_due();
        }
        Ok(())
    }

    /// The entries to be put, with their buckets. One that doesn't open is left to the reaper.
    fn prepare_entries(&self) -> Result<Vec<PreparedEntry>> {
        let mut prepared = Vec::new();
        for (name, record) in &self.entries {
            if let Ok(bucket) = self.core.buckets.get(record.primary) {
                let value = encode_entry(record, &self.contents[&record.content]);
                prepared.push((
                    record.version,
                    bucket,
                    key_layout::entry(name, record.version),
                    value,
                ));
            }
        }
        Ok(prepared)
    }

    /// Takes a name away from what it stood for.
    fn release(&mut self, name: &str, old: &FileRecord) -> Result<()> {
        let content = self.content(old.content)?;
        content.refs = content.refs.saturating_sub(1);
        self.figures.take_file(old.size);
        self.frees = true;
        let place = encode_place(old.primary, name);
        self.batch.put(of_version(key_layout::ENTRY_DEAD, old.version), place)?;
        if self.core.has_quarantined.load(std::sync::atomic::Ordering::Acquire) {
            self.batch.delete(key(key_layout::QUARANTINED, name.as_bytes()))?;
        }
        Ok(())
    }

    fn content(&mut self, id: ContentId) -> Result<&mut Content> {
        if !self.contents.contains_key(&id) {
            let content = self.core.content(id)?.ok_or_else(|| Error::CatalogueLost {
                path: self.core.catalogue.path().to_owned(),
                what: "a name of it stands for a content that it doesn't know".to_owned(),
            })?;
            self.contents.insert(id, content);
        }
        Ok(self.contents.get_mut(&id).expect("it was just put there"))
    }
}
