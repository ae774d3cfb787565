//! Reads files and checks them against what the catalogue says, a share at a time if asked.
//!
//! 1. Each file from where the last run ended: every chunk, the whole hash, the entry in its bucket,
//!    which is put back where it is missing.
//! 2. What is damaged is noted in the catalogue, and refused from then on; what is whole again is not. What
//!    the disk could not read, or is in a bucket that is lost or can't be opened, is told of and not noted: it
//!    may come back. What can't be written is counted, and ends nothing.
//! 3. After the last file, the buckets are swept of entries and chunks that the catalogue doesn't know.
//!
//! All this goes in steps of a bounded size, so that whoever asked may look how far it is, or give up.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tallybook::{ScanOptions, WriteBatch};

use crate::core::{Core, Unswept, decode_name, undecodable};
use crate::error::{Error, Result};
use crate::key_layout::{self, key};
use crate::options::{ReadOptions, VerifyOptions};
use crate::reader::Reader;
use crate::record::{FileRecord, Quarantine, encode_entry};
use crate::sweep::sweep;

/// A damaged file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDamage {
    /// Its name.
    pub name: String,
    /// Bytes the file had.
    pub size: u64,
    /// Offset of the first byte that cannot be answered.
    pub offset: u64,
    /// What was found, and where on disk.
    pub what: String,
    /// The disk could not read it, or a bucket of it is lost or can't be opened. It may be read another time, so
    /// the file isn't refused from now on, nor does a repair unlink it.
    pub is_unread: bool,
}

/// What a verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Damaged files.
    pub damage: Vec<FileDamage>,
    /// Buckets that are lost: every damaged file that has chunks in one says so.
    pub lost_buckets: Vec<u8>,
    /// Buckets that could not be read through, or take no deletions: what the catalogue doesn't know was not
    /// removed from all of each.
    pub unread_buckets: Vec<u8>,
    /// Buckets that could not be read through when the catalogue was made anew: it may not know files of theirs,
    /// and nothing of these is removed. A repair takes over what can be read by now.
    pub unknown_buckets: Vec<u8>,
    /// Entries that were put back into their buckets.
    pub entries_restored: u64,
    /// Entries that could not be put back, and notes that could not be made, as on a full disk. The next
    /// verification tries again.
    pub unwritten: u64,
    /// Entries that no name stands for, and contents that no file has, which were removed.
    pub orphans: u64,
    /// The last file was reached, and the buckets were swept.
    pub is_complete: bool,
}

/// A verification under way, which its caller carries on step by step. Between the steps it holds
/// nothing but the file that is being read; given up, it is as if it had ended with the file before.
#[derive(Debug)]
pub struct Verification {
    core: Arc<Core>,
    bytes_max: Option<u64>,
    /// Bytes of all files when it began.
    total: u64,
    report: VerifyReport,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The first file after this name is next.
    Seeking(Option<String>),
    Reading(Box<Reading>),
    /// These buckets are to be swept, the first of them from this key on.
    Sweeping(VecDeque<u8>, Vec<u8>),
    Over,
}

/// A file that is being read.
#[derive(Debug)]
struct Reading {
    name: String,
    record: FileRecord,
    reader: Reader,
    bytes: u64,
}

impl Verification {
    pub(crate) fn new(core: &Arc<Core>, options: &VerifyOptions) -> Result<Verification> {
        core.check_open()?;
        let start = match options.bytes_max {
            Some(_) => core.catalogue.get(&[key_layout::VERIFIED])?,
            None => None,
        };
        let after = start.map(|name| String::from_utf8_lossy(&name).into_owned());
        Ok(Verification {
            core: core.clone(),
            bytes_max: options.bytes_max,
            total: core.figures.lock().file_bytes,
            report: VerifyReport {
                unknown_buckets: core.unknown.lock().keys().copied().collect(),
                ..VerifyReport::default()
            },
            stage: Stage::Seeking(after),
        })
    }

    /// Reads a chunk of a file, or sweeps a part of a bucket; false at the end. An error ends it.
    pub fn step(&mut self) -> Result<bool> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Seeking(after) => self.seek(after.as_deref())?,
            Stage::Reading(reading) => self.read(reading)?,
            Stage::Sweeping(buckets, from) => self.sweep(buckets, &from)?,
            Stage::Over => Stage::Over,
        };
        Ok(!matches!(self.stage, Stage::Over))
    }

    /// The bytes done and the bytes in all.
    pub fn progress(&self) -> (u64, u64) {
        let reading = match &self.stage {
            Stage::Reading(reading) => reading.bytes,
            _ => 0,
        };
        (self.report.bytes.saturating_add(reading), self.total)
    }

    /// What was found so far.
    pub fn report(&self) -> &VerifyReport {
        &self.report
    }

    fn seek(&mut self, after: Option<&str>) -> Result<Stage> {
        let Some((name, record)) = next_file(&self.core, after)? else {
            let forgotten = self.core.catalogue.delete(&[key_layout::VERIFIED]);
            self.count_unwritten(forgotten.map(drop).map_err(Error::from))?;
            let existing = self.core.figures.lock().existing().collect();
            return Ok(Stage::Sweeping(existing, vec![key_layout::ENTRY]));
        };
        let options = ReadOptions { salvage: true, ..ReadOptions::default() };
        match Reader::new(&self.core, &name, &options) {
            // It was unlinked meanwhile.
            Ok(None) => self.pass(name, &record),
            Ok(Some(reader)) => {
                Ok(Stage::Reading(Box::new(Reading { name, record, reader, bytes: 0 })))
            }
            Err(error) => {
                let stat = self.core.stat(&name)?;
                let (version, size) = stat.map_or((0, 0), |stat| (stat.version, stat.size));
                self.conclude(name, &record, (version, size, 0), Some(error))
            }
        }
    }

    fn read(&mut self, mut reading: Box<Reading>) -> Result<Stage> {
        let outcome = reading.reader.next_or_lost();
        if let Ok(Some(chunk)) = outcome {
            reading.bytes += chunk.len() as u64;
            return Ok(Stage::Reading(reading));
        }
        let Reading { name, record, reader, bytes } = *reading;
        let (version, size) = (reader.stat().version, reader.stat().size);
        self.report.bytes = self.report.bytes.saturating_add(size);
        self.conclude(name, &record, (version, size, bytes), outcome.err())
    }

    /// Notes how a file was found: its version, its size, and the bytes that were read.
    fn conclude(
        &mut self,
        name: String,
        record: &FileRecord,
        (version, size, bytes): (u64, u64, u64),
        error: Option<Error>,
    ) -> Result<Stage> {
        self.report.files += 1;
        match error {
            None => {
                let noted = note(&self.core, &name, version, None);
                self.count_unwritten(noted)?;
            }
            Some(Error::Damaged { offset, what, .. }) => {
                self.report.damage.push(FileDamage {
                    name: name.clone(),
                    size,
                    offset,
                    what: what.clone(),
                    is_unread: false,
                });
                let damage = Quarantine { version, offset, what };
                let noted = note(&self.core, &name, version, Some(damage));
                self.count_unwritten(noted)?;
            }
            Some(error) if may_pass(&self.core, &error) => {
                self.report.damage.push(FileDamage {
                    name: name.clone(),
                    size,
                    offset: bytes,
                    what: error.to_string(),
                    is_unread: true,
                });
            }
            Some(other) => return Err(other),
        }
        self.pass(name, record)
    }

    /// Goes on to the file after this one, unless the share ends here.
    fn pass(&mut self, name: String, record: &FileRecord) -> Result<Stage> {
        let restored = restore_entry(&self.core, &name, record, &mut self.report);
        self.count_unwritten(restored)?;
        if self.bytes_max.is_some_and(|bytes_max| self.report.bytes >= bytes_max) {
            let noted = self.core.catalogue.put(&[key_layout::VERIFIED], name.as_bytes());
            self.count_unwritten(noted.map(drop).map_err(Error::from))?;
            return Ok(Stage::Over);
        }
        Ok(Stage::Seeking(Some(name)))
    }

    /// Goes on where something could not be written: what was found is not lost by that.
    fn count_unwritten(&mut self, outcome: Result<()>) -> Result<()> {
        use tallybook::Error::{Busy, Io, NoSpace, ReadOnly};
        match outcome {
            Err(Error::Engine(Io { .. } | NoSpace { .. } | ReadOnly { .. } | Busy)) => {
                self.report.unwritten += 1;
                Ok(())
            }
            other => other,
        }
    }

    /// Removes what the catalogue doesn't know from the first of these buckets: entries, then chunks.
    fn sweep(&mut self, mut buckets: VecDeque<u8>, from: &[u8]) -> Result<Stage> {
        let Some(&bucket) = buckets.front() else {
            self.report.is_complete = true;
            if self.report.lost_buckets.is_empty() && self.report.unread_buckets.is_empty() {
                *self.core.unswept.lock() = Unswept::default();
            }
            return Ok(Stage::Over);
        };
        let store = self.core.buckets.get(bucket);
        let orphans = &mut self.report.orphans;
        // Others who sweep would find the same, and count it too.
        let unswept = self.core.unswept.lock();
        let swept = store.and_then(|store| sweep(&self.core, bucket, &store, from, orphans));
        drop(unswept);
        let (next, is_whole) = match swept {
            Ok(swept) => (swept.next, swept.is_whole),
            Err(Error::BucketLost { .. }) => {
                self.report.lost_buckets.push(bucket);
                (None, true)
            }
            Err(Error::Engine(error)) if is_of_bucket(&error, &self.core.buckets.path(bucket)) => {
                (None, false)
            }
            Err(other) => return Err(other),
        };
        if !is_whole && !self.report.unread_buckets.contains(&bucket) {
            self.report.unread_buckets.push(bucket);
        }
        if let Some(next) = next {
            return Ok(Stage::Sweeping(buckets, next));
        }
        buckets.pop_front();
        Ok(Stage::Sweeping(buckets, vec![key_layout::ENTRY]))
    }
}

/// The first file after a name. One whose name no writer takes can't be asked for, so the catalogue is lost.
fn next_file(core: &Core, after: Option<&str>) -> Result<Option<(String, FileRecord)>> {
    let prefix = Some(Bytes::from_static(&[key_layout::NAME]));
    let mut cursor = core.catalogue.cursor(ScanOptions { prefix, ..ScanOptions::default() })?;
    match after {
        Some(after) => {
            let mut start = key(key_layout::NAME, after.as_bytes());
            start.push(0);
            cursor.seek(&start)?;
        }
        None => cursor.seek_to_first()?,
    }
    if !cursor.valid() {
        return Ok(None);
    }
    let name = decode_name(&cursor.key()[1..])
        .ok_or_else(|| undecodable(core.catalogue.path(), "name"))?
        .to_owned();
    let record = core.decode_record(&cursor.value()?)?;
    Ok(Some((name, record)))
}

/// Notes in the catalogue that a file is damaged, or that it is not.
fn note(core: &Core, name: &str, version: u64, damage: Option<Quarantine>) -> Result<()> {
    let quarantine_key = key(key_layout::QUARANTINED, name.as_bytes());
    if damage.is_none() && core.quarantine(name, version)?.is_none() {
        return Ok(());
    }
    // Nobody changes the name meanwhile; whoever would waits for this, and so for no sync.
    let _figures = core.figures.lock();
    if core.record(name)?.is_none_or(|record| record.version != version) {
        return Ok(());
    }
    let mut batch = WriteBatch::new();
    match damage {
        Some(damage) => {
            core.has_quarantined.store(true, Ordering::Release);
            batch.put(quarantine_key, damage.encode())?;
        }
        None => batch.delete(quarantine_key)?,
    }
    core.catalogue.write(batch, Some(core.options.unwaited()))?;
    Ok(())
}

/// Whether what kept a file from being read may be over another time.
fn may_pass(core: &Core, error: &Error) -> bool {
    match error {
        Error::BucketLost { .. } | Error::Engine(tallybook::Error::Io { op: "read", .. }) => true,
        Error::Engine(error) => (0..=u8::MAX)
            .take(core.superblock.bucket_count())
            .any(|bucket| is_of_bucket(error, &core.buckets.path(bucket))),
        _ => false,
    }
}

/// Whether it is a bucket, in this directory, that could not be read or swept. Nothing else is written to by
/// that.
fn is_of_bucket(error: &tallybook::Error, dir: &Path) -> bool {
    match error {
        tallybook::Error::Io { path, .. } | tallybook::Error::NoSpace { path } => {
            path.starts_with(dir)
        }
        tallybook::Error::Corruption { file, .. } | tallybook::Error::NewerFormat { file, .. } => {
            file.starts_with(dir)
        }
        tallybook::Error::Locked { path } => path.starts_with(dir),
        tallybook::Error::ReadOnly { .. } | tallybook::Error::Busy => true,
        _ => false,
    }
}

/// Puts a file's entry back into its bucket if it is not there.
fn restore_entry(
    core: &Core,
    name: &str,
    record: &FileRecord,
    report: &mut VerifyReport,
) -> Result<()> {
    let Ok(bucket) = core.buckets.get(record.primary) else { return Ok(()) };
    let entry_key = key_layout::entry(name, record.version);
    let content = core.content(record.content)?;
    let Some(content) = content else { return Ok(()) };
    let expected = encode_entry(record, &content);
    // The number of names is not kept in step, and not used when a catalogue is made anew.
    let known = bucket.get(&entry_key).ok().flatten();
    let decoded = known.and_then(|value| crate::record::decode_entry(&value));
    if decoded.is_some_and(|(known, at)| known == *record && at.extents == content.extents) {
        return Ok(());
    }
    let _figures = core.figures.lock();
    if core.record(name)?.is_some_and(|current| current.version == record.version) {
        bucket.put(&entry_key, &expected)?;
        report.entries_restored += 1;
    }
    Ok(())
}
