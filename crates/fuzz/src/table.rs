//! Tables: each part by itself, and whole files.

use std::sync::Arc;

use bytes::Bytes;
use tallybook::block_cache::BlockCache;
use tallybook::checksum;
use tallybook::coding::Decoder;
use tallybook::file_cache::FileCache;
use tallybook::file_name::{self, FileKind};
use tallybook::head::{BodyRef, Entry, EntryRef, ValuePointer};
use tallybook::iter::InternalIterator;
use tallybook::key::{self, SEQNO_MAX};
use tallybook::range_tombstone::RangeTombstone;
use tallybook::sstable::{
    self, BuildTimes, Properties, SegmentRef, Table, TableBuilder, TableBuilderOptions, fuzzing,
};
use tallybook::stages::Recorder;
use tallybook::vfs::FileSystem;
use tallybook::{Compression, Reading};

use crate::disk;
use crate::input::{Input, part};
use crate::store;

pub(crate) const NUMBER: u64 = 13;
const SALT: u64 = 0x7ab1e;
/// Entries of a table that are walked through.
pub(crate) const ENTRIES_MAX: usize = 4096;

/// A data block.
pub(crate) fn block(data: &[u8]) -> bool {
    fuzzing::block(data)
}

/// A frame around bytes that may be compressed.
pub(crate) fn frame(data: &[u8]) -> bool {
    let mut input = Input(data);
    let kind = input.u8();
    fuzzing::frame(input.rest(), kind)
}

/// A footer.
pub(crate) fn footer(data: &[u8]) -> bool {
    let mut input = Input(data);
    let file_bytes = input.u64();
    let mut bytes = [0; 80];
    let given = input.take(76);
    bytes[..given.len()].copy_from_slice(given);
    bytes[68..76].copy_from_slice(b"TALLYSST");
    let crc = checksum::crc32c(&bytes[..76]);
    bytes[76..].copy_from_slice(&crc.to_le_bytes());
    fuzzing::footer(&bytes, file_bytes)
}

/// Fences.
pub(crate) fn fences(data: &[u8]) -> bool {
    let mut input = Input(data);
    let (data_end, probe) = (input.u64(), input.part());
    fuzzing::fences(input.rest(), data_end, probe)
}

/// A point index.
pub(crate) fn point_index(data: &[u8]) -> bool {
    let mut input = Input(data);
    let (keys, blocks, hash) = (input.u32(), input.u16(), input.u64());
    fuzzing::point_index(input.rest(), u64::from(keys), usize::from(blocks), hash)
}

/// Deleted ranges.
pub(crate) fn range_deletions(data: &[u8]) -> bool {
    fuzzing::range_deletions(data)
}

/// Properties: what decodes is encoded, and decodes to the same.
pub(crate) fn properties(data: &[u8]) -> bool {
    let Some(properties) = Properties::decode(&mut Decoder::new(data)) else {
        return false;
    };
    let mut encoded = Vec::new();
    properties.encode(&mut encoded);
    let again = Properties::decode(&mut Decoder::new(&encoded));
    assert_eq!(again.as_ref(), Some(&properties));
    properties.covers(&properties.smallest);
    true
}

/// A whole table whose checksums are right. One that `verify` has nothing to say of answers alike
/// however it is asked.
pub(crate) fn file(data: &[u8]) -> bool {
    let mut bytes = data.to_vec();
    disk::correct_table(NUMBER, &mut bytes);
    let fs = disk::empty();
    let path = file_name::table(disk::dir(), NUMBER);
    disk::write(&fs, &path, &bytes);
    let fs: Arc<dyn FileSystem> = Arc::new(fs);
    let files = Arc::new(FileCache::new(fs, 4));
    let mut is_sound = false;
    for reading in [Reading::Mapped, Reading::Pread] {
        let cache = Arc::new(BlockCache::new(1 << 20, 1 << 16));
        let len = bytes.len() as u64;
        let Ok(table) = Table::open(&files, path.clone(), NUMBER, len, reading, cache) else {
            return false;
        };
        is_sound = examine(&Arc::new(table));
    }
    is_sound
}

fn examine(table: &Arc<Table>) -> bool {
    let mut text = Vec::new();
    let damaged = sstable::inspect(table, &mut text, true).expect("a vector takes every line");
    let is_sound = table.verify(&mut |_| {}).is_empty();
    assert!(damaged == 0 || !is_sound, "{damaged} items of a sound table are shown as damaged");
    let mut kept: Option<Vec<(Bytes, Entry)>> = None;
    for fill_cache in [false, true] {
        let forward = walk(table, fill_cache, false);
        let backward = walk(table, fill_cache, true);
        if is_sound {
            let forward = forward.expect("a sound table is read");
            let mut backward = backward.expect("a sound table is read backward");
            backward.reverse();
            assert_eq!(forward, backward);
            check_lookups(table, &forward);
            assert!(kept.replace(forward).is_none_or(|kept| kept.len() < ENTRIES_MAX));
        }
    }
    let smallest = table.properties().smallest.clone();
    for probe in [&smallest[..], b"", b"key-005", b"\xff"] {
        let mut iter = table.iter(true);
        if iter.seek(probe, SEQNO_MAX).is_ok() && iter.valid() {
            let found = iter.internal_key().0 >= probe;
            assert!(found || !is_sound);
        }
        let _ = iter.seek_before(probe);
        let _ = get(table, probe);
        table.range_tombstones().cover(probe, SEQNO_MAX);
        table.approximate_offset_of(probe);
    }
    is_sound
}

fn get(table: &Table, key: &[u8]) -> tallybook::Result<Option<Entry>> {
    let recorder = Recorder::new(0);
    table.get(key, key::hash(key), SEQNO_MAX, true, &mut recorder.begin())
}

pub(crate) fn walk(
    table: &Arc<Table>,
    fill_cache: bool,
    backward: bool,
) -> tallybook::Result<Vec<(Bytes, Entry)>> {
    let mut iter = table.iter(fill_cache);
    if backward {
        iter.seek_to_last()?
    } else {
        iter.seek_to_first()?
    }
    let mut entries = Vec::new();
    while iter.valid() && entries.len() < ENTRIES_MAX {
        iter.expiry()?;
        iter.inline_value()?;
        entries.push((Bytes::copy_from_slice(iter.internal_key().0), iter.owned_entry()?));
        if backward { iter.prev()? } else { iter.next()? }
    }
    Ok(entries)
}

fn check_lookups(table: &Table, entries: &[(Bytes, Entry)]) {
    let mut before: Option<&Bytes> = None;
    for (key, newest) in entries {
        // The first of a key's versions is its newest.
        if before != Some(key) {
            let found = get(table, key).expect("a sound table answers");
            assert_eq!(found.as_ref(), Some(newest));
        }
        before = Some(key);
    }
}

/// A table with an entry of each kind.
fn built(compression: Compression, keys: u8) -> Vec<u8> {
    let fs = disk::empty();
    let path = file_name::table(disk::dir(), NUMBER);
    let file = fs.create(&path).expect("a file is made in memory");
    let options = TableBuilderOptions { block_bytes: 256, compression, salt: SALT };
    let times = Arc::new(BuildTimes::default());
    let mut builder = TableBuilder::new(file, path.clone(), NUMBER, options, times);
    for number in 0..keys {
        let key = format!("key-{number:03}");
        let value = vec![number % 4; usize::from(number) * 3];
        let pointer = ValuePointer { segment: 3, offset: 200, length: 1000, checksum: 7 };
        let body = match number % 5 {
            0 => BodyRef::Ref(pointer),
            1 => BodyRef::Delete,
            _ => BodyRef::Inline(&value),
        };
        for seqno in [u64::from(number) + 100, u64::from(number) + 1] {
            let (expires_at_ms, attributes) = match number % 3 {
                0 => (1_700_000_000_000, &b"attributes"[..]),
                _ => (0, &b""[..]),
            };
            let entry = EntryRef { seqno, written_at_ms: 1000, expires_at_ms, attributes, body };
            builder.add(key.as_bytes(), &entry).expect("memory takes a table");
        }
    }
    for (start, end) in [("a", "b"), ("key-003", "key-005"), ("key-004", "key-007")] {
        let (start, end) = (Bytes::from(start), Bytes::from(end));
        builder.add_range_tombstone(RangeTombstone { start, end, seqno: 150 });
    }
    builder.finish().expect("memory takes a table");
    disk::read(&fs, &path)
}

/// The sections of a table by its footer: range deletions, fences, point index, properties.
pub(crate) fn sections(table: &[u8]) -> [(u64, Vec<u8>); 4] {
    let mut fields = Decoder::new(&table[table.len() - 80..]);
    [(); 4].map(|()| {
        let offset = fields.u64().expect("a footer has its fields");
        let bytes = fields.u32().expect("a footer has its fields");
        let start = offset as usize;
        (offset, table[start..start + bytes as usize].to_vec())
    })
}

/// Tables that seeds are parts of.
pub(crate) fn tables() -> Vec<Vec<u8>> {
    let is_table = |kind| matches!(kind, FileKind::Table(_));
    let mut tables = vec![
        built(Compression::None, 12),
        built(Compression::Lz4, 20),
        built(Compression::Zstd, 20),
        built(Compression::None, 0),
        built(Compression::None, 1),
    ];
    tables.extend(store::contents(is_table).into_iter().take(2));
    tables
}

pub(crate) fn file_seeds() -> Vec<Vec<u8>> {
    let mut seeds = tables();
    // Counts of pointers whose sum overflows: `verify` once added them up as they are.
    let count = |segment, count| SegmentRef { segment, count, bytes: 1 };
    seeds.push(with_properties(&seeds[0], |properties| {
        properties.segment_refs = vec![count(1, u64::MAX), count(2, 1)];
    }));
    seeds
}

/// A table with other properties; its checksums are still to be made right.
fn with_properties(table: &[u8], change: impl FnOnce(&mut Properties)) -> Vec<u8> {
    let [.., (offset, encoded)] = sections(table);
    let mut properties =
        Properties::decode(&mut Decoder::new(&encoded)).expect("a table has properties");
    change(&mut properties);
    let mut out = table[..offset as usize].to_vec();
    properties.encode(&mut out);
    let bytes = (out.len() - offset as usize) as u32;
    out.extend([0; 9]);
    let mut footer = table[table.len() - 80..].to_vec();
    footer[44..48].copy_from_slice(&bytes.to_le_bytes());
    out.extend(footer);
    out
}

fn seeds(of: fn(&[u8]) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = tables().iter().map(|table| of(table)).collect();
    seeds.dedup();
    seeds
}

pub(crate) fn block_seeds() -> Vec<Vec<u8>> {
    // Without compression, the first block is what lies before the second, or the trailer of the first.
    let mut seeds = Vec::new();
    for keys in [1, 4, 12] {
        let table = built(Compression::None, keys);
        let [_, (_, fences), ..] = sections(&table);
        let mut fields = Decoder::new(&fences);
        let mut at = 0usize;
        for _ in 0..fields.varint().unwrap_or(0) {
            let (Some(stored), Some(_)) = (fields.varint(), fields.length_prefixed()) else {
                break;
            };
            at = at.next_multiple_of(8);
            seeds.push(table[at..at + stored as usize].to_vec());
            at += stored as usize + 9;
        }
    }
    seeds.dedup();
    seeds
}

pub(crate) fn frame_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (kind, compression) in
        [Compression::None, Compression::Lz4, Compression::Zstd].iter().enumerate()
    {
        let table = built(*compression, 60);
        let [_, (_, fences), ..] = sections(&table);
        let mut fields = Decoder::new(&fences);
        fields.varint();
        let stored = fields.varint().expect("a table has a block") as usize;
        assert_eq!(usize::from(table[stored]), kind, "the block is compressed");
        seeds.push([&[kind as u8], &table[..stored]].concat());
    }
    seeds
}

pub(crate) fn footer_seeds() -> Vec<Vec<u8>> {
    seeds(|table| {
        let len = table.len() as u64;
        [&len.to_le_bytes()[..], &table[table.len() - 80..table.len() - 4]].concat()
    })
}

pub(crate) fn fences_seeds() -> Vec<Vec<u8>> {
    seeds(|table| {
        let [(data_end, _), (_, fences), ..] = sections(table);
        [&data_end.to_le_bytes()[..], &part(b"key-005"), &fences].concat()
    })
}

pub(crate) fn point_index_seeds() -> Vec<Vec<u8>> {
    seeds(|table| {
        let [_, (_, fences), (_, index), (_, properties)] = sections(table);
        let keys = Properties::decode(&mut Decoder::new(&properties)).map_or(0, |found| found.keys);
        let blocks = Decoder::new(&fences).varint().unwrap_or(0) as u16;
        let hash = key::hash(b"key-005");
        let head = [&(keys as u32).to_le_bytes()[..], &blocks.to_le_bytes(), &hash.to_le_bytes()];
        [&head.concat(), &index[..]].concat()
    })
}

pub(crate) fn range_deletion_seeds() -> Vec<Vec<u8>> {
    seeds(|table| sections(table)[0].1.clone())
}

pub(crate) fn properties_seeds() -> Vec<Vec<u8>> {
    seeds(|table| sections(table)[3].1.clone())
}
