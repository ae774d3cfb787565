//! Checks all of a table, from the file, past every cache.
//!
//! 1. Footer and sections are read again.
//! 2. Each block is read, verified and decoded whole; its order and its fence are checked.
//! 3. Each key must be found through the point index, at its newest version.
//! 4. The counts must be those of the properties.
//!
//! Damage is listed, one finding a block, and does not end the check.

use crate::error::Error;
use crate::head::{BodyRef, EntryRef};
use crate::key::{self, SeqNo};
use crate::sstable::block::check_lengths;
use crate::sstable::footer::{FOOTER_BYTES, Footer};
use crate::sstable::point_index::Place;
use crate::sstable::reader::Table;
use crate::sstable::source::Purpose;

/// Something in a file that is not as it was written, or can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the damaged part in its file.
    pub offset: u64,
    /// What was found.
    pub what: String,
}

impl Table {
    /// Reads and checks everything; lists what is damaged. `progress` is called with the bytes done.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Vec<Damage> {
        let mut verifier = Verifier { table: self, damage: Vec::new(), seen: Seen::default() };
        for block in 0..self.block_count() {
            verifier.check_block(block);
            progress(self.fences.handle(block).map_or(0, |handle| handle.end()));
        }
        verifier.check_sections();
        verifier.check_counts();
        progress(self.file_bytes());
        verifier.damage
    }
}

#[derive(Default)]
struct Seen {
    entries: u64,
    keys: u64,
    tombstones: u64,
    expiring: u64,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
    pointers: u64,
    last_key: Vec<u8>,
    last_seqno: SeqNo,
}

struct Verifier<'a> {
    table: &'a Table,
    damage: Vec<Damage>,
    seen: Seen,
}

impl Verifier<'_> {
    fn found(&mut self, offset: u64, what: impl Into<String>) {
        self.damage.push(Damage { offset, what: what.into() });
    }

    fn found_error(&mut self, offset: u64, error: Error) {
        match error {
            Error::Corruption { offset, what, .. } => self.found(offset, what),
            other => self.found(offset, other.to_string()),
        }
    }

    fn check_sections(&mut self) {
        let file_bytes = self.table.file_bytes();
        let end = file_bytes - FOOTER_BYTES as u64;
        let is_as_opened = |bytes: &[u8]| {
            let bytes = bytes.try_into().expect("as many bytes as were asked for");
            Footer::decode(bytes, file_bytes).is_ok_and(|footer| footer == self.table.footer)
        };
        match self.table.source.bare(end, FOOTER_BYTES) {
            Ok(footer) if is_as_opened(&footer) => {}
            Ok(_) => self.found(end, "the footer is not what it was when the table was opened"),
            Err(error) => self.found_error(end, error),
        }
        for section in self.table.footer.sections() {
            if let Err(error) = self.table.source.section(section) {
                self.found_error(section.offset, error);
            }
        }
    }

    fn check_block(&mut self, number: usize) {
        let offset = self.table.fences.handle(number).map_or(0, |handle| handle.offset);
        let bytes = match self.table.block_bytes(number, Purpose::Pass) {
            Ok(bytes) => bytes,
            Err(error) => return self.found_error(offset, error),
        };
        if let Err(what) = self.check_entries(number, bytes.bytes()) {
            self.found(offset, what);
        }
    }

    fn check_entries(&mut self, number: usize, bytes: &[u8]) -> Result<(), &'static str> {
        let block = self.table.parse(number, bytes).map_err(|_| "malformed block")?;
        for slot in 0..block.len() {
            let raw = block.entry(slot).ok_or("malformed entry")?;
            let key = [block.prefix(), raw.suffix].concat();
            if slot == 0 && key != self.table.fences.first_key(number) {
                return Err("the block does not start with its fence");
            }
            let entry = block.whole(raw.seqno, raw.tail).ok_or("malformed entry")?;
            self.check_entry(&key, &entry, Place { block: number, slot })?;
        }
        Ok(())
    }

    fn check_entry(
        &mut self,
        key: &[u8],
        entry: &EntryRef<'_>,
        at: Place,
    ) -> Result<(), &'static str> {
        check_lengths(key, &entry.body)?;
        let properties = self.table.properties();
        let seen = &mut self.seen;
        let new_key = seen.last_key != key;
        if new_key {
            if key < &seen.last_key[..] {
                return Err("keys are out of order");
            }
            // After a block that could not be read, this may be an older version.
            let unread = at.slot == 0 && !self.damage.is_empty();
            if !unread && !self.table.index.candidates(key::hash(key)).any(|place| place == at) {
                return Err("the point index does not have a key");
            }
            key::assign(&mut seen.last_key, key);
        } else if entry.seqno >= seen.last_seqno {
            return Err("versions of a key are out of order");
        }
        let seqnos = properties.seqno_min..=properties.seqno_max;
        let times = properties.written_at_ms_min..=properties.written_at_ms_max;
        if !properties.covers(key)
            || !seqnos.contains(&entry.seqno)
            || !times.contains(&entry.written_at_ms)
        {
            return Err("an entry is outside the ranges of the properties");
        }
        seen.last_seqno = entry.seqno;
        seen.entries += 1;
        seen.keys += u64::from(new_key);
        seen.expiring += u64::from(entry.expires_at_ms != 0);
        seen.raw_key_bytes += key.len() as u64;
        match &entry.body {
            BodyRef::Inline(value) => seen.raw_value_bytes += value.len() as u64,
            BodyRef::Ref(_) => seen.pointers += 1,
            BodyRef::Delete => seen.tombstones += 1,
        }
        Ok(())
    }

    fn check_counts(&mut self) {
        // Entries that could not be read would only be reported again.
        if !self.damage.is_empty() {
            return;
        }
        let properties = self.table.properties();
        let counts = properties.segment_refs.iter().map(|reference| reference.count);
        let pointers = counts.fold(0, u64::saturating_add);
        let differing = [
            ("entries", self.seen.entries, properties.entries),
            ("keys", self.seen.keys, properties.keys),
            ("keys in the point index", self.table.index.entry_count(), properties.keys),
            ("point deletions", self.seen.tombstones, properties.tombstones),
            ("expiring entries", self.seen.expiring, properties.expiring),
            ("key bytes", self.seen.raw_key_bytes, properties.raw_key_bytes),
            ("value bytes", self.seen.raw_value_bytes, properties.raw_value_bytes),
            ("journal pointers", self.seen.pointers, pointers),
        ]
        .into_iter()
        .filter(|(_, seen, expected)| seen != expected);
        for (name, seen, expected) in differing {
            let what = format!("{seen} {name}, {expected} by the properties");
            self.found(self.table.footer.properties.offset, what);
        }
    }
}
