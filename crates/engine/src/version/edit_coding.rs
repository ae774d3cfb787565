//! The bytes of an edit in the manifest.
//!
//! An edit is a sequence of fields, each a varint tag and what the tag calls for; `docs/format.md`
//! lists them. An unknown tag, a field that ends early and a number out of its range are refused:
//! half an edit is never applied.

use std::sync::Arc;

use bytes::Bytes;

use super::edit::{Added, Clipped, Moved, Removed, VersionEdit};
use super::segments::{SegmentKind, SegmentMeta};
use super::table::TableMeta;
use crate::coding::{Decoder, put_bytes, put_varint};
use crate::journal::JournalPosition;
use crate::key::{KEY_BYTES_MAX, SEQNO_MAX, SeqNo};
use crate::options::LEVEL_COUNT;
use crate::sstable::Properties;

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
    pub(super) const SEQNO_NEXT: u64 = 12;
    pub(super) const JOURNAL_SYNCED: u64 = 13;
    pub(super) const JOURNAL_NEWEST: u64 = 14;
}

/// Longest bound: a user key, or the key that follows the longest one.
const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

impl VersionEdit {
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
        if let Some(place) = self.journal_synced {
            put(&[tag::JOURNAL_SYNCED, place.segment, place.offset, place.lsn], None);
        }
        if let Some(place) = self.journal_newest {
            put(&[tag::JOURNAL_NEWEST, place.segment, place.offset, place.lsn], None);
        }
        if let Some(seqno) = self.seqno_next {
            put(&[tag::SEQNO_NEXT, seqno], None);
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

fn position(from: &mut Decoder<'_>) -> Option<JournalPosition> {
    let (segment, offset, lsn) = (from.varint()?, from.varint()?, from.varint()?);
    Some(JournalPosition { segment, offset, lsn })
}

fn encode_added(added: &Added, out: &mut Vec<u8>) {
    let meta = &added.meta;
    for number in [tag::ADDED, added.level as u64, added.run_id, meta.number] {
        put_varint(out, number);
    }
    meta.properties.encode(out);
    put_bytes(out, if meta.is_clipped() { &meta.smallest } else { b"" });
}

/// Reads what follows `tag` into `edit`; `None` for an unknown tag or unreadable bytes.
fn decode_field(tag: u64, from: &mut Decoder<'_>, edit: &mut VersionEdit) -> Option<()> {
    match tag {
        tag::REPLAY_FROM => once(&mut edit.replay_from, position(from)?)?,
        tag::JOURNAL_SYNCED => once(&mut edit.journal_synced, position(from)?)?,
        tag::JOURNAL_NEWEST => once(&mut edit.journal_newest, position(from)?)?,
        tag::LAST_SEQNO => once(&mut edit.last_seqno, seqno(from)?)?,
        tag::SEQNO_NEXT => once(&mut edit.seqno_next, seqno(from)?)?,
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
    let meta = TableMeta::new(number, Arc::new(Properties::decode(from)?));
    let smallest = bound(from)?;
    // No key is empty: this is a table all of which is visible.
    let meta = if smallest.is_empty() { meta } else { meta.clip(smallest) };
    Some(Added { level, run_id, meta })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::sstable::SegmentRef;

    fn key() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 1..6).prop_map(Bytes::from)
    }

    fn table() -> impl Strategy<Value = TableMeta> {
        let segment_refs = prop::collection::btree_map(any::<u64>(), any::<(u64, u64)>(), 0..4);
        let figures = (any::<[u64; 5]>(), 0..=SEQNO_MAX, 1..u64::MAX, any::<bool>());
        (any::<u64>(), vec(key(), 2), option::of(key()), figures, segment_refs).prop_map(
            |(number, mut bounds, clip, (n, seqno, entries, exclusive), refs)| {
                bounds.sort();
                let properties = Properties {
                    file_bytes: n[0],
                    entries,
                    keys: entries,
                    tombstones: entries / 2,
                    range_tombstones: n[1],
                    largest: bounds.remove(1),
                    smallest: bounds.remove(0),
                    largest_exclusive: exclusive,
                    seqno_min: seqno / 2,
                    seqno_max: seqno,
                    written_at_ms_min: n[2] / 2,
                    written_at_ms_max: n[2],
                    raw_key_bytes: n[3],
                    raw_value_bytes: n[4],
                    segment_refs: refs
                        .into_iter()
                        .map(|(segment, (count, bytes))| SegmentRef { segment, count, bytes })
                        .collect(),
                    ..Properties::default()
                };
                let meta = TableMeta::new(number, Arc::new(properties));
                match clip {
                    Some(smallest) => meta.clip(smallest),
                    None => meta,
                }
            },
        )
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
                journal_synced: scalars.0.map(|[segment, offset, lsn]| JournalPosition {
                    segment: offset,
                    offset: lsn,
                    lsn: segment,
                }),
                journal_newest: scalars.0.map(|[segment, offset, lsn]| JournalPosition {
                    segment: lsn,
                    offset: segment,
                    lsn: offset,
                }),
                seqno_next: scalars.1.map(|seqno| seqno / 2),
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
            (&[4, 0, 1, 1, 4], "a table without figures"),
            (&[0x80], "half a tag"),
        ] {
            assert!(VersionEdit::decode(bytes).is_err(), "{why}");
        }
    }
}
