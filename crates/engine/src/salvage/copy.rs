//! The new store: one run of tables at the bottom, and collected segments for large values.
//!
//! Writes keep their number, their time, their expiry and their attributes. The store has no log: its first
//! opening begins one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checksum;
use crate::compaction::output::{Output, OutputOptions};
use crate::error::Result;
use crate::file_name;
use crate::head::{BodyRef, Entry, EntryRef, ValuePointer};
use crate::journal::{Collected, CollectedWriter, JournalFiles};
use crate::key::SeqNo;
use crate::manifest::Manifest;
use crate::options::{LEVEL_COUNT, Options};
use crate::salt::Salts;
use crate::version::{Added, SegmentKind, SegmentMeta, TableMeta, VersionEdit};
use crate::vfs::FileSystem;

/// Writes a store, in the order of its keys.
pub(super) struct Copy<'a> {
    files: &'a Arc<JournalFiles>,
    next_file_number: &'a AtomicU64,
    options: &'a Options,
    salts: Arc<Salts>,
    tables: Output<'a>,
    values: Option<(u64, CollectedWriter)>,
    kept: Vec<SegmentMeta>,
}

impl<'a> Copy<'a> {
    /// A store in the directory of `files`, which is empty.
    pub(super) fn new(
        files: &'a Arc<JournalFiles>,
        next_file_number: &'a AtomicU64,
        options: &'a Options,
        salts: Arc<Salts>,
    ) -> Copy<'a> {
        let output = OutputOptions {
            dir: files.dir.clone(),
            table_bytes: options.table_bytes,
            block_bytes: options.block_bytes,
            compression: options.compression[LEVEL_COUNT - 1],
            salts: salts.clone(),
        };
        let tables = Output::new(&files.fs, next_file_number, output, Vec::new());
        let (values, kept) = (None, Vec::new());
        Copy { files, next_file_number, options, salts, tables, values, kept }
    }

    /// Adds a key with its value, of which all but where it stands is as `entry` says. Requires: keys ascend.
    pub(super) fn add(&mut self, key: &[u8], entry: &Entry, value: &[u8]) -> Result<()> {
        let body = match value.len() < self.options.inline_max_bytes {
            true => BodyRef::Inline(value),
            false => BodyRef::Ref(self.add_value(key, entry, value)?),
        };
        let entry = EntryRef {
            seqno: entry.seqno,
            written_at_ms: entry.written_at_ms,
            expires_at_ms: entry.expires_at_ms,
            attributes: &entry.attributes,
            body,
        };
        self.tables.add(key, &entry)
    }

    fn add_value(&mut self, key: &[u8], entry: &Entry, value: &[u8]) -> Result<ValuePointer> {
        if self.values.as_ref().is_some_and(|(_, it)| it.bytes() >= self.options.segment_bytes_max)
        {
            self.finish_values()?;
        }
        let (segment, writer) = match &mut self.values {
            Some(open) => open,
            None => {
                let number = self.next_file_number.fetch_add(1, Ordering::Relaxed);
                let writer = CollectedWriter::new(self.files.clone(), number, self.salts.next())?;
                self.values.insert((number, writer))
            }
        };
        let checksum = checksum::crc32c(value);
        let offset = writer.copy(&[], key, entry, value, checksum)?;
        Ok(ValuePointer { segment: *segment, offset, length: value.len() as u32, checksum })
    }

    fn finish_values(&mut self) -> Result<()> {
        let Some((number, writer)) = self.values.take() else { return Ok(()) };
        let Collected { segment, .. } = writer.finish()?;
        self.kept.push(SegmentMeta {
            number,
            end_offset: segment.end(),
            base_lsn: 0,
            kind: SegmentKind::Collected,
            capacity: segment.end(),
        });
        Ok(())
    }

    /// Makes all of it durable, and then a store, which goes on behind `last_seqno`.
    pub(super) fn finish(mut self, last_seqno: SeqNo) -> Result<()> {
        self.finish_values()?;
        let number = || self.next_file_number.fetch_add(1, Ordering::Relaxed);
        let (run_id, manifest) = (number(), number());
        let tables = self.tables.finish()?;
        let added = tables.iter().map(|table| Added {
            level: LEVEL_COUNT - 1,
            run_id,
            meta: TableMeta::new(table.number, Arc::new(table.built.properties.clone())),
        });
        let edit = VersionEdit {
            added: added.collect(),
            segments_kept: self.kept,
            last_seqno: Some(last_seqno),
            seqno_next: Some(last_seqno + 1),
            next_file_number: Some(self.next_file_number.load(Ordering::Relaxed)),
            ..VersionEdit::default()
        };
        Manifest::create(&*self.files.fs, &self.files.dir, manifest, &edit)?;
        Ok(())
    }
}

/// Removes what an unfinished copy left in a directory that was empty before; what others put there since stays. So
/// does what can't be removed: it is no store.
pub(super) fn clear(fs: &dyn FileSystem, dir: &Path) {
    let names = fs.list(dir).unwrap_or_default().into_iter();
    for name in names.filter(|name| file_name::parse(name).is_some()) {
        let _ = fs.remove(&dir.join(name));
    }
}
