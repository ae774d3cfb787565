//! The difference between two versions, as plain data.
//!
//! Its bytes are the business of `edit_coding`, what it does to a version that of `apply`.

use std::fmt;

use bytes::Bytes;

use super::segments::{SegmentKind, SegmentMeta};
use super::table::TableMeta;
use crate::journal::JournalPosition;
use crate::key::SeqNo;
use crate::sstable::SegmentRef;

/// A table that joins a run; the run is made if the level has none with this id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// Its level.
    pub level: usize,
    /// Its run.
    pub run_id: u64,
    /// The table.
    pub meta: TableMeta,
}

/// A table that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// The level it is in.
    pub level: usize,
    /// Number of the table.
    pub number: u64,
}

/// A table that loses its visible keys below `smallest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clipped {
    /// The level it is in.
    pub level: usize,
    /// Number of the table.
    pub number: u64,
    /// First key that stays visible.
    pub smallest: Bytes,
}

/// A table that joins a run of another level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Number of the table.
    pub number: u64,
    /// The level it is in.
    pub from_level: usize,
    /// The level it goes to.
    pub to_level: usize,
    /// The run it joins there, made if the level has none with this id.
    pub run_id: u64,
}

/// The difference between two versions. The default is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionEdit {
    /// Tables that join.
    pub added: Vec<Added>,
    /// Tables that leave.
    pub removed: Vec<Removed>,
    /// Tables that lose their left part.
    pub clipped: Vec<Clipped>,
    /// Tables that change level.
    pub moved: Vec<Moved>,
    /// Where replay starts from now on.
    pub replay_from: Option<JournalPosition>,
    /// SeqNo of the last write that tables hold.
    pub last_seqno: Option<SeqNo>,
    /// A place in the journal up to which it was synced.
    pub journal_synced: Option<JournalPosition>,
    /// Where the newest segment of the journal starts.
    pub journal_newest: Option<JournalPosition>,
    /// SeqNo that the next opening counts from, unless the journal holds later ones.
    pub seqno_next: Option<SeqNo>,
    /// A number that no file has had.
    pub next_file_number: Option<u64>,
    /// Closed segments that are kept, or that have changed.
    pub segments_kept: Vec<SegmentMeta>,
    /// Segments that are kept no longer.
    pub segments_dropped: Vec<u64>,
    /// Old segments and the collected ones that answer for them from now on.
    pub forwards: Vec<(u64, u64)>,
    /// Old segments that need no answer any more.
    pub forwards_dropped: Vec<u64>,
}

impl VersionEdit {
    /// Whether the edit changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == VersionEdit::default()
    }

    /// Takes in what happens to segments after this edit: `settling` says nothing of tables.
    pub(crate) fn settle(&mut self, settling: VersionEdit) {
        let VersionEdit { segments_kept, segments_dropped, forwards_dropped, .. } = settling;
        self.next_file_number = settling.next_file_number;
        self.segments_kept.extend(segments_kept);
        self.segments_dropped.extend(segments_dropped);
        self.forwards_dropped.extend(forwards_dropped);
    }
}

/// One line per field.
impl fmt::Display for VersionEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(JournalPosition { segment, offset, lsn }) = self.replay_from {
            writeln!(f, "replay from segment {segment} offset {offset} lsn {lsn}")?;
        }
        if let Some(JournalPosition { segment, offset, lsn }) = self.journal_synced {
            writeln!(f, "journal synced to segment {segment} offset {offset} lsn {lsn}")?;
        }
        if let Some(JournalPosition { segment, lsn, .. }) = self.journal_newest {
            writeln!(f, "newest segment {segment} lsn {lsn}")?;
        }
        if let Some(seqno) = self.seqno_next {
            writeln!(f, "next opening counts from SeqNo {seqno}")?;
        }
        if let Some(seqno) = self.last_seqno {
            writeln!(f, "last seqno {seqno}")?;
        }
        if let Some(number) = self.next_file_number {
            writeln!(f, "next file number {number}")?;
        }
        for Removed { level, number } in &self.removed {
            writeln!(f, "remove table {number} from L{level}")?;
        }
        for Moved { number, from_level, to_level, run_id } in &self.moved {
            writeln!(f, "move table {number} from L{from_level} to L{to_level} run {run_id}")?;
        }
        for Clipped { level, number, smallest } in &self.clipped {
            writeln!(f, "clip table {number} in L{level} to {}", smallest.escape_ascii())?;
        }
        for Added { level, run_id, meta } in &self.added {
            let properties = &meta.properties;
            write!(f, "add table {} to L{level} run {run_id}: ", meta.number)?;
            write!(f, "{} to {}", meta.smallest.escape_ascii(), meta.largest.escape_ascii())?;
            write!(f, "{}", if meta.largest_exclusive { " (excluded)" } else { "" })?;
            write!(f, ", {} bytes, {} entries", properties.file_bytes, properties.entries)?;
            write!(f, ", {} tombstones", properties.tombstones)?;
            write!(f, ", {} range tombstones", properties.range_tombstones)?;
            write!(f, ", seqno {} to {}", properties.seqno_min, properties.seqno_max)?;
            for SegmentRef { segment, count, bytes } in &properties.segment_refs {
                write!(f, ", {count} values ({bytes} bytes) in segment {segment}")?;
            }
            writeln!(f)?;
        }
        for meta in &self.segments_kept {
            let SegmentMeta { number, end_offset, base_lsn, capacity, .. } = meta;
            let kind = match meta.kind {
                SegmentKind::Log => "log",
                SegmentKind::Collected => "collected",
            };
            write!(f, "keep {kind} segment {number}: ends at {end_offset} of {capacity}")?;
            writeln!(f, ", base lsn {base_lsn}")?;
        }
        for number in &self.segments_dropped {
            writeln!(f, "drop segment {number}")?;
        }
        for (old, new) in &self.forwards {
            writeln!(f, "forward segment {old} to {new}")?;
        }
        for old in &self.forwards_dropped {
            writeln!(f, "drop the forward of segment {old}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_prints_a_line() {
        let edit = VersionEdit {
            removed: vec![Removed { level: 1, number: 7 }],
            clipped: vec![Clipped { level: 2, number: 8, smallest: Bytes::from("k\0") }],
            moved: vec![Moved { number: 9, from_level: 1, to_level: 2, run_id: 3 }],
            last_seqno: Some(5),
            forwards: vec![(1, 4)],
            ..VersionEdit::default()
        };
        assert_eq!(
            edit.to_string(),
            "last seqno 5\nremove table 7 from L1\nmove table 9 from L1 to L2 run 3\n\
             clip table 8 in L2 to k\\x00\nforward segment 1 to 4\n"
        );
    }
}
