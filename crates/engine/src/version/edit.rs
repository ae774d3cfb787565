//! The difference between two versions, and its bytes in the manifest.
//!
//! An edit is a sequence of fields, each a varint tag and what the tag calls for; `docs/format.md`
//! lists them. An unknown tag, a field that ends early and a number out of its range are refused:
//! half an edit is never applied.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::segments::{SegmentKind, SegmentMeta};
use super::table::TableMeta;
use crate::coding::{Decoder, put_bytes, put_varint};
use crate::journal::JournalPosition;
use crate::key::{KEY_BYTES_MAX, SEQNO_MAX, SeqNo};
use crate::options::LEVEL_COUNT;
use crate::sstable::{Properties, SegmentRef};

/// Tags of fields. On disk: never renumber.
mod tag {
    pub(super) const REPLAY_FROM: u64 = 1;
    pub(super) const LAST_SEQNO: u64 = 2;
    pub(super) const NEXT_FILE_NUMBER: u64 = 3;
    pub(super) const ADDED: u64 = 4;
    pub(super) const REMOVED: u64 = 5;
    pub(super) const CLIPPED: u64 = 6;
    pub(super) const MOVED: u64 = 7;
    pub(super) const SEGMENT_KEPT: u64 = 8;
    pub(super) const SEGMENT_DROPPED: u64 = 9;
    pub(super) const FORWARD: u64 = 10;
    pub(super) const FORWARD_DROPPED: u64 = 11;
}

/// Flags of an added table. On disk: never renumber.
const FLAG_LARGEST_EXCLUSIVE: u8 = 1;
const FLAG_CLIPPED: u8 = 2;

/// Longest bound: a user key, or the key that follows the longest one.
const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

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

    /// The bytes of the edit.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |numbers: &[u64], bytes: Option<&[u8]>| {
            numbers.iter().for_each(|&number| put_varint(&mut out, number));
            if let Some(bytes) = bytes {
                put_bytes(&mut out, bytes);
            }
        };
        if let Some(start) = self.replay_from {
            put(&[tag::REPLAY_FROM, start.segment, start.offset, start.lsn], None);
        }
        if let Some(seqno) = self.last_seqno {
            put(&[tag::LAST_SEQNO, seqno], None);
        }
        if let Some(number) = self.next_file_number {
            put(&[tag::NEXT_FILE_NUMBER, number], None);
        }
        for removed in &self.removed {
            put(&[tag::REMOVED, removed.level as u64, removed.number], None);
        }
        for moved in &self.moved {
            let (from, to) = (moved.from_level as u64, moved.to_level as u64);
            put(&[tag::MOVED, moved.number, from, to, moved.run_id], None);
        }
        for clipped in &self.clipped {
            let numbers = [tag::CLIPPED, clipped.level as u64, clipped.number];
            put(&numbers, Some(&clipped.smallest));
        }
        for meta in &self.segments_kept {
            let kind = meta.kind as u64;
            let (number, end, base) = (meta.number, meta.end_offset, meta.base_lsn);
            put(&[tag::SEGMENT_KEPT, number, end, base, kind, meta.capacity], None);
        }
        for &number in &self.segments_dropped {
            put(&[tag::SEGMENT_DROPPED, number], None);
        }
        for &(old, new) in &self.forwards {
            put(&[tag::FORWARD, old, new], None);
        }
        for &old in &self.forwards_dropped {
            put(&[tag::FORWARD_DROPPED, old], None);
        }
        self.added.iter().for_each(|added| encode_added(added, &mut out));
        out
    }

    /// Reads an edit back, or says what is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<VersionEdit, String> {
        let mut decoder = Decoder::new(bytes);
        let mut edit = VersionEdit::default();
        while decoder.remaining() > 0 {
            let at = decoder.position();
            let tag = decoder.varint().ok_or_else(|| format!("the tag at byte {at} is cut"))?;
            let field = decode_field(tag, &mut decoder, &mut edit);
            field.ok_or_else(|| format!("field {tag} at byte {at} is unknown or unreadable"))?;
        }
        Ok(edit)
    }
}

fn encode_added(added: &Added, out: &mut Vec<u8>) {
    let (meta, properties) = (&added.meta, &added.meta.properties);
    for number in [tag::ADDED, added.level as u64, added.run_id, meta.number] {
        put_varint(out, number);
    }
    let exclusive = if properties.largest_exclusive { FLAG_LARGEST_EXCLUSIVE } else { 0 };
    let clipped = if meta.is_clipped() { FLAG_CLIPPED } else { 0 };
    out.push(exclusive | clipped);
    put_bytes(out, &properties.smallest);
    put_bytes(out, &properties.largest);
    if meta.is_clipped() {
        put_bytes(out, &meta.smallest);
    }
    for number in [
        properties.file_bytes,
        properties.entries,
        properties.keys,
        properties.tombstones,
        properties.range_tombstones,
        properties.seqno_min,
        properties.seqno_max,
        properties.written_at_ms_min,
        properties.written_at_ms_max,
        properties.expires_at_ms_min,
        properties.expires_at_ms_max,
        properties.expiring,
        properties.raw_key_bytes,
        properties.raw_value_bytes,
        properties.segment_refs.len() as u64,
    ] {
        put_varint(out, number);
    }
    for reference in &properties.segment_refs {
        for number in [reference.segment, reference.count, reference.bytes] {
            put_varint(out, number);
        }
    }
}

/// Reads what follows `tag` into `edit`; `None` for an unknown tag or unreadable bytes.
fn decode_field(tag: u64, from: &mut Decoder<'_>, edit: &mut VersionEdit) -> Option<()> {
    match tag {
        tag::REPLAY_FROM => once(
            &mut edit.replay_from,
            JournalPosition {
                segment: from.varint()?,
                offset: from.varint()?,
                lsn: from.varint()?,
            },
        )?,
        tag::LAST_SEQNO => once(&mut edit.last_seqno, seqno(from)?)?,
        tag::NEXT_FILE_NUMBER => once(&mut edit.next_file_number, from.varint()?)?,
        tag::ADDED => edit.added.push(decode_added(from)?),
        tag::REMOVED => {
            edit.removed.push(Removed { level: level(from)?, number: from.varint()? });
        }
        tag::CLIPPED => edit.clipped.push(Clipped {
            level: level(from)?,
            number: from.varint()?,
            smallest: bound(from)?,
        }),
        tag::MOVED => edit.moved.push(Moved {
            number: from.varint()?,
            from_level: level(from)?,
            to_level: level(from)?,
            run_id: from.varint()?,
        }),
        tag::SEGMENT_KEPT => edit.segments_kept.push(SegmentMeta {
            number: from.varint()?,
            end_offset: from.varint()?,
            base_lsn: from.varint()?,
            kind: SegmentKind::from_u64(from.varint()?)?,
            capacity: from.varint()?,
        }),
        tag::SEGMENT_DROPPED => edit.segments_dropped.push(from.varint()?),
        tag::FORWARD => edit.forwards.push((from.varint()?, from.varint()?)),
        tag::FORWARD_DROPPED => edit.forwards_dropped.push(from.varint()?),
        _ => return None,
    }
    Some(())
}

/// Fills a field that an edit has at most once.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

fn level(from: &mut Decoder<'_>) -> Option<usize> {
    usize::try_from(from.varint()?).ok().filter(|&level| level < LEVEL_COUNT)
}

fn seqno(from: &mut Decoder<'_>) -> Option<SeqNo> {
    from.varint().filter(|&seqno| seqno <= SEQNO_MAX)
}

fn bound(from: &mut Decoder<'_>) -> Option<Bytes> {
    let bytes = from.length_prefixed().filter(|bytes| bytes.len() <= BOUND_BYTES_MAX)?;
    Some(Bytes::copy_from_slice(bytes))
}

fn decode_added(from: &mut Decoder<'_>) -> Option<Added> {
    let (level, run_id, number) = (level(from)?, from.varint()?, from.varint()?);
    let flags = from.u8()?;
    if flags & !(FLAG_LARGEST_EXCLUSIVE | FLAG_CLIPPED) != 0 {
        return None;
    }
    let (smallest, largest) = (bound(from)?, bound(from)?);
    let visible = if flags & FLAG_CLIPPED != 0 { Some(bound(from)?) } else { None };
    let properties = Properties {
        smallest,
        largest,
        largest_exclusive: flags & FLAG_LARGEST_EXCLUSIVE != 0,
        file_bytes: from.varint()?,
        entries: from.varint()?,
        keys: from.varint()?,
        tombstones: from.varint()?,
        range_tombstones: from.varint()?,
        seqno_min: seqno(from)?,
        seqno_max: seqno(from)?,
        written_at_ms_min: from.varint()?,
        written_at_ms_max: from.varint()?,
        expires_at_ms_min: from.varint()?,
        expires_at_ms_max: from.varint()?,
        expiring: from.varint()?,
        raw_key_bytes: from.varint()?,
        raw_value_bytes: from.varint()?,
        segment_refs: decode_segment_refs(from)?,
    };
    let meta = TableMeta::new(number, Arc::new(properties));
    let meta = match visible {
        Some(smallest) => meta.clip(smallest),
        None => meta,
    };
    Some(Added { level, run_id, meta })
}

fn decode_segment_refs(from: &mut Decoder<'_>) -> Option<Vec<SegmentRef>> {
    // Each takes at least 3 bytes: a count beyond that is refused before anything is allocated.
    let count = usize::try_from(from.varint()?).ok().filter(|&n| n <= from.remaining() / 3)?;
    (0..count)
        .map(|_| {
            Some(SegmentRef {
                segment: from.varint()?,
                count: from.varint()?,
                bytes: from.varint()?,
            })
        })
        .collect()
}

/// One line per field.
impl fmt::Display for VersionEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(JournalPosition { segment, offset, lsn }) = self.replay_from {
            writeln!(f, "replay from segment {segment} offset {offset} lsn {lsn}")?;
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
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 1..6).prop_map(Bytes::from)
    }

    fn table() -> impl Strategy<Value = TableMeta> {
        let segment_refs = vec(any::<[u64; 3]>(), 0..4);
        let figures = (any::<[u64; 12]>(), 0..=SEQNO_MAX, 0..=SEQNO_MAX);
        (any::<u64>(), key(), key(), any::<bool>(), option::of(key()), figures, segment_refs)
            .prop_map(|(number, smallest, largest, exclusive, clip, (n, min, max), refs)| {
                let properties = Properties {
                    file_bytes: n[0],
                    entries: n[1],
                    keys: n[2],
                    tombstones: n[3],
                    range_tombstones: n[4],
                    smallest,
                    largest,
                    largest_exclusive: exclusive,
                    seqno_min: min,
                    seqno_max: max,
                    written_at_ms_min: n[5],
                    written_at_ms_max: n[6],
                    expires_at_ms_min: n[7],
                    expires_at_ms_max: n[8],
                    expiring: n[9],
                    raw_key_bytes: n[10],
                    raw_value_bytes: n[11],
                    segment_refs: refs
                        .into_iter()
                        .map(|[segment, count, bytes]| SegmentRef { segment, count, bytes })
                        .collect(),
                };
                let meta = TableMeta::new(number, Arc::new(properties));
                match clip {
                    Some(smallest) => meta.clip(smallest),
                    None => meta,
                }
            })
    }

    fn segment() -> impl Strategy<Value = SegmentMeta> {
        (any::<[u64; 4]>(), any::<bool>()).prop_map(|(n, log)| SegmentMeta {
            number: n[0],
            end_offset: n[1],
            base_lsn: n[2],
            kind: if log { SegmentKind::Log } else { SegmentKind::Collected },
            capacity: n[3],
        })
    }

    fn edit() -> impl Strategy<Value = VersionEdit> {
        let level = || 0..LEVEL_COUNT;
        let tables = (
            vec((level(), any::<u64>(), table()), 0..4),
            vec((level(), any::<u64>()), 0..4),
            vec((level(), any::<u64>(), key()), 0..4),
            vec((any::<u64>(), level(), level(), any::<u64>()), 0..4),
        );
        let scalars =
            (option::of(any::<[u64; 3]>()), option::of(0..=SEQNO_MAX), option::of(any::<u64>()));
        let segments = (
            vec(segment(), 0..4),
            vec(any::<u64>(), 0..4),
            vec(any::<(u64, u64)>(), 0..4),
            vec(any::<u64>(), 0..4),
        );
        (tables, scalars, segments).prop_map(|(tables, scalars, segments)| {
            let (added, removed, clipped, moved) = tables;
            VersionEdit {
                added: added
                    .into_iter()
                    .map(|(level, run_id, meta)| Added { level, run_id, meta })
                    .collect(),
                removed: removed
                    .into_iter()
                    .map(|(level, number)| Removed { level, number })
                    .collect(),
                clipped: clipped
                    .into_iter()
                    .map(|(level, number, smallest)| Clipped { level, number, smallest })
                    .collect(),
                moved: moved
                    .into_iter()
                    .map(|(number, from_level, to_level, run_id)| Moved {
                        number,
                        from_level,
                        to_level,
                        run_id,
                    })
                    .collect(),
                replay_from: scalars.0.map(|[segment, offset, lsn]| JournalPosition {
                    segment,
                    offset,
                    lsn,
                }),
                last_seqno: scalars.1,
                next_file_number: scalars.2,
                segments_kept: segments.0,
                segments_dropped: segments.1,
                forwards: segments.2,
                forwards_dropped: segments.3,
            }
        })
    }

    proptest! {
        #[test]
        fn edits_round_trip(edit in edit()) {
            prop_assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(edit) = VersionEdit::decode(&bytes) {
                prop_assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit));
            }
        }

        #[test]
        fn a_cut_edit_is_refused_or_ends_between_fields(edit in edit(), cut in any::<prop::sample::Index>()) {
            let bytes = edit.encode();
            prop_assume!(!bytes.is_empty());
            let cut = cut.index(bytes.len());
            if let Ok(part) = VersionEdit::decode(&bytes[..cut]) {
                prop_assert_eq!(part.encode(), &bytes[..cut]);
            }
        }
    }

    #[test]
    fn what_an_edit_cannot_say_is_refused() {
        for (bytes, why) in [
            (&[99, 0][..], "unknown tag"),
            (&[2, 1, 2, 1], "a scalar twice"),
            (&[5, LEVEL_COUNT as u8, 1], "a level beyond the last"),
            (&[8, 1, 1, 1, 3, 1], "an unknown kind of segment"),
            (&[2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], "a seqno too large"),
            (&[4, 0, 1, 1, 4], "unknown flags"),
            (&[0x80], "half a tag"),
        ] {
            assert!(VersionEdit::decode(bytes).is_err(), "{why}");
        }
    }

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
