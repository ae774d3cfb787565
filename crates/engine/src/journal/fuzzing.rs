//! What the fuzz targets call of the journal: decoders behind the checksums, held to what they promise.

use super::changes::InlineValues;
use super::collected_index::decode_index;
use super::group_meta::{PutHead, RecordEntry, decode_group, encode_put};
use crate::coding::{put_bytes, put_varint};
use crate::head::BodyRef;
use crate::journal::{Change, Changes};
use crate::key::ValueKind;

/// The meta section of a group with so many entries and bytes of values. What decodes is encoded, and
/// decodes to the same; and as many changes come of it.
pub fn group(meta: &[u8], count: u32, value_bytes: u32) -> bool {
    let Some(entries) = decode_group(meta, count, value_bytes) else {
        return false;
    };
    assert_eq!(entries.len(), count as usize);
    let mut again = Vec::new();
    entries.iter().for_each(|entry| encode(meta, entry, &mut again));
    let decoded = decode_group(&again, count, value_bytes).expect("an encoded group decodes");
    let mut shown = Vec::new();
    decoded.iter().for_each(|entry| encode(&again, entry, &mut shown));
    assert_eq!(shown, again);
    let places = |entries: &[RecordEntry]| -> Vec<_> {
        entries.iter().map(|entry| (entry.value_offset, entry.value_bytes)).collect()
    };
    assert_eq!(places(&decoded), places(&entries));
    // Values so large are never made up for a test of the changes.
    let inline_bytes: u64 = inline(&entries).map(|entry| u64::from(entry.value_bytes)).sum();
    if inline_bytes <= 1 << 20 {
        check_changes(meta, &entries, &vec![0; inline_bytes as usize]);
    }
    true
}

fn inline(entries: &[RecordEntry]) -> impl Iterator<Item = &RecordEntry> {
    entries.iter().filter(|entry| entry.kind == ValueKind::Put)
}

fn encode(meta: &[u8], entry: &RecordEntry, out: &mut Vec<u8>) {
    let key = &meta[entry.key.clone()];
    match entry.kind {
        ValueKind::Put | ValueKind::PutRef => {
            let attributes = &meta[entry.attributes.clone()];
            let head = PutHead { expires_at_ms: entry.expires_at_ms, attributes };
            let value_bytes = u64::from(entry.value_bytes);
            encode_put(out, entry.kind, key, value_bytes, entry.checksum, head);
        }
        ValueKind::Delete | ValueKind::DeleteRange => {
            out.push(entry.kind as u8);
            put_bytes(out, key);
            if entry.kind == ValueKind::DeleteRange {
                put_bytes(out, &meta[entry.range_end.clone()]);
            }
        }
    }
}

fn check_changes(meta: &[u8], entries: &[RecordEntry], values: &[u8]) {
    let header = (1, 0, entries.len() as u32);
    let changes: Vec<Change<'_>> =
        Changes::new(meta, InlineValues::Packed(values), 1, 64, header).collect();
    assert_eq!(changes.len(), entries.len());
    for (entry, change) in entries.iter().zip(&changes) {
        match change {
            Change::DeleteRange { start, end, .. } => assert!(start < end),
            Change::Entry { key, entry: made } => {
                assert_eq!(*key, &meta[entry.key.clone()]);
                assert_eq!(made.kind(), entry.kind);
                if let BodyRef::Inline(value) = &made.body {
                    assert_eq!(value.len(), entry.value_bytes as usize);
                }
            }
        }
    }
}

/// The index of a collected segment, with so many places: ascending, and the same when encoded again.
pub fn collected_index(meta: &[u8], count: u32) -> bool {
    let Some(places) = decode_index(meta, count) else {
        return false;
    };
    assert!(places.is_sorted_by(|(a, _), (b, _)| a < b));
    let mut again = Vec::new();
    for &((segment, offset), new_offset) in &places {
        [segment, offset, new_offset].iter().for_each(|&number| put_varint(&mut again, number));
    }
    assert_eq!(decode_index(&again, count), Some(places));
    true
}
