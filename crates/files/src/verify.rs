//! Reads files and checks them against what the catalogue says, a share at a time if asked.
//!
//! 1. Each file from where the last run ended: every chunk, the whole hash, the entry in its bucket,
//!    which is put back where it is missing.
//! 2. What is damaged is noted in the catalogue, and refused from then on; what is whole again is not.
//! 3. After the last file, the buckets are swept: entries and chunks that the catalogue doesn't know,
//!    as a power loss may leave them, are removed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tallybook::{ScanOptions, WriteBatch};

use crate::buckets::Bucket;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::key_layout::{self, key};
use crate::options::{ReadOptions, VerifyOptions};
use crate::reader::Reader;
use crate::record::{ContentId, FileRecord, Quarantine, Share, encode_entry, encode_shares};

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
    /// Entries that were put back into their buckets.
    pub entries_restored: u64,
    /// Entries that no name stands for, and contents that no file has, which are being freed.
    pub orphans: u64,
    /// The last file was reached, and the buckets were swept.
    pub is_complete: bool,
}

pub(crate) fn verify(
    core: &Arc<Core>,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<VerifyReport> {
    core.check_open()?;
    let mut report = VerifyReport::default();
    let total = core.figures.lock().file_bytes;
    let start = match options.bytes_max {
        Some(_) => core.catalogue.get(&[key_layout::VERIFIED])?,
        None => None,
    };
    let mut after = start.map(|name| String::from_utf8_lossy(&name).into_owned());
    while let Some((name, record)) = next_file(core, after.as_deref())? {
        let begun = report.bytes;
        verify_file(core, &name, &mut report, &mut |bytes| progress(begun + bytes, total))?;
        restore_entry(core, &name, &record, &mut report)?;
        after = Some(name);
        if options.bytes_max.is_some_and(|bytes_max| report.bytes >= bytes_max) {
            let last = after.unwrap_or_default();
            core.catalogue.put(&[key_layout::VERIFIED], last.as_bytes())?;
            return Ok(report);
        }
    }
    core.catalogue.delete(&[key_layout::VERIFIED])?;
    sweep(core, &mut report)?;
    report.is_complete = true;
    Ok(report)
}

/// The first file after a name.
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
    let name = String::from_utf8_lossy(&cursor.key()[1..]).into_owned();
    let record = core.decode_record(&cursor.value()?)?;
    Ok(Some((name, record)))
}

fn verify_file(
    core: &Arc<Core>,
    name: &str,
    report: &mut VerifyReport,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let options = ReadOptions { salvage: true, ..ReadOptions::default() };
    let outcome = match Reader::new(core, name, &options) {
        Ok(None) => return Ok(()),
        Ok(Some(reader)) => {
            let (version, size) = (reader.stat().version, reader.stat().size);
            let mut read = 0;
            let mut outcome = Ok((version, size));
            for chunk in reader {
                match chunk {
                    Ok(bytes) => read += bytes.len() as u64,
                    Err(error) => outcome = Err((error, version, size)),
                }
                progress(read);
            }
            report.bytes += size;
            outcome
        }
        Err(error) => {
            let stat = core.stat(name)?;
            Err((error, stat.as_ref().map_or(0, |s| s.version), stat.map_or(0, |s| s.size)))
        }
    };
    report.files += 1;
    match outcome {
        Ok((version, _)) => note(core, name, version, None),
        Err((Error::Damaged { offset, what, .. }, version, size)) => {
            report.damage.push(FileDamage {
                name: name.to_owned(),
                size,
                offset,
                what: what.clone(),
            });
            note(core, name, version, Some(Quarantine { version, offset, what }))
        }
        Err((other, ..)) => Err(other),
    }
}

/// Notes in the catalogue that a file is damaged, or that it is not.
fn note(core: &Core, name: &str, version: u64, damage: Option<Quarantine>) -> Result<()> {
    let quarantine_key = key(key_layout::QUARANTINED, name.as_bytes());
    if damage.is_none() && core.quarantine(name, version)?.is_none() {
        return Ok(());
    }
    // Nobody changes the name meanwhile.
    let _figures = core.figures.lock();
    if core.record(name)?.is_none_or(|record| record.version != version) {
        return Ok(());
    }
    match damage {
        Some(damage) => {
            core.has_quarantined.store(true, Ordering::Release);
            core.catalogue.put(&quarantine_key, &damage.encode())?;
        }
        None => {
            core.catalogue.delete(&quarantine_key)?;
        }
    }
    Ok(())
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

/// Removes what the catalogue doesn't know from every bucket.
pub(crate) fn sweep(core: &Core, report: &mut VerifyReport) -> Result<()> {
    let existing: Vec<u8> = {
        let figures = core.figures.lock();
        (0u8..=u8::MAX).zip(&figures.buckets).filter(|(_, b)| b.exists).map(|(b, _)| b).collect()
    };
    let orphans = report.orphans;
    for bucket in existing {
        match core.buckets.get(bucket) {
            Ok(store) => {
                sweep_entries(core, &store, report)?;
                sweep_chunks(core, bucket, &store, report)?;
            }
            Err(Error::BucketLost { .. }) => report.lost_buckets.push(bucket),
            Err(other) => return Err(other),
        }
    }
    if report.orphans > orphans {
        core.note_reap_due();
    }
    Ok(())
}

fn sweep_entries(core: &Core, store: &Bucket, report: &mut VerifyReport) -> Result<()> {
    let prefix = Some(Bytes::from_static(&[key_layout::ENTRY]));
    for head in store.range_heads(ScanOptions { prefix, ..ScanOptions::default() })? {
        let entry_key = head?.key;
        let Some((name, version)) = key_layout::parse_entry(&entry_key) else { continue };
        let is_current =
            || Ok::<_, Error>(core.record(name)?.is_some_and(|r| r.version == version));
        if is_current()? {
            continue;
        }
        // An entry is put after its name is set, under this lock.
        let _figures = core.figures.lock();
        if !is_current()? {
            store.delete(&entry_key)?;
            report.orphans += 1;
        }
    }
    Ok(())
}

fn sweep_chunks(core: &Core, bucket: u8, store: &Bucket, report: &mut VerifyReport) -> Result<()> {
    let prefix = Some(Bytes::from_static(&[key_layout::CHUNK]));
    let mut cursor = store.cursor(ScanOptions { prefix, ..ScanOptions::default() })?;
    cursor.seek_to_first()?;
    while cursor.valid() {
        let Some((id, _)) = key_layout::parse_chunk(cursor.key()) else {
            cursor.next()?;
            continue;
        };
        {
            let figures = core.figures.lock();
            if !is_known(core, id)? {
                let mut batch = WriteBatch::new();
                let shares = encode_shares(&[Share { bucket, bytes: 0 }]);
                batch.put(key(key_layout::FREED, &id.0), shares)?;
                core.catalogue.write(batch, None)?;
                report.orphans += 1;
            }
            drop(figures);
        }
        // On to the next content: one step each, however many chunks it has.
        cursor.seek(&key_layout::after_chunks(id))?;
    }
    Ok(())
}

/// Whether a content is some file's, being written, or about to be freed. Requires: the counters' lock.
fn is_known(core: &Core, id: ContentId) -> Result<bool> {
    for kind in [key_layout::CONTENT, key_layout::UPLOAD, key_layout::FREED] {
        if core.catalogue.head(&key(kind, &id.0))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
