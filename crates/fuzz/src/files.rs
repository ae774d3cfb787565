//! The file store: values of its keys, the description of a store, KFS tables that are taken over.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use tallybook::checksum;
use tallybook::coding::{put_bytes, put_varint};
use tallybook::vfs::MemoryFileSystem;
use tallybook_files::key_layout::{self, parse_chunk, parse_entry};
use tallybook_files::record::{
    CatalogueIdentity, Content, ContentId, Extent, FileRecord, Identity, Quarantine, decode_entry,
    decode_numbers, decode_shares, encode_entry, encode_numbers, encode_shares,
};
use tallybook_files::superblock::Superblock;
use tallybook_files::{Error, ReferenceId};

use crate::disk;
use crate::input::{Input, part};

/// A value or a key of the catalogue or a bucket, decoded as each of them: what decodes is encoded, and
/// decodes to the same.
pub(crate) fn record(data: &[u8]) -> bool {
    let mut accepted = 0;
    if let Some(record) = FileRecord::decode(data) {
        record.stat("name");
        assert_eq!(FileRecord::decode(&record.encode()), Some(record));
        accepted += 1;
    }
    if let Some(content) = Content::decode(data) {
        check_content(&content);
        assert_eq!(Content::decode(&content.encode()), Some(content));
        accepted += 1;
    }
    if let Some((record, content)) = decode_entry(data) {
        assert_eq!(decode_entry(&encode_entry(&record, &content)), Some((record, content)));
        accepted += 1;
    }
    if let Some(shares) = decode_shares(data) {
        assert_eq!(decode_shares(&encode_shares(&shares)), Some(shares));
        accepted += 1;
    }
    if let Some(quarantine) = Quarantine::decode(data) {
        assert_eq!(Quarantine::decode(&quarantine.encode()), Some(quarantine));
        accepted += 1;
    }
    if let Some(identity) = Identity::decode(data) {
        assert_eq!(Identity::decode(&identity.encode()), Some(identity));
        accepted += 1;
    }
    if let Some(identity) = CatalogueIdentity::decode(data) {
        assert_eq!(CatalogueIdentity::decode(&identity.encode()), Some(identity));
        accepted += 1;
    }
    if let Some(numbers) = decode_numbers::<3>(data) {
        assert_eq!(decode_numbers(&encode_numbers(&numbers)), Some(numbers));
        accepted += 1;
    }
    if let Some((name, version)) = parse_entry(data) {
        assert_eq!(key_layout::entry(name, version), data);
        accepted += 1;
    }
    if let Some((content, number)) = parse_chunk(data) {
        assert_eq!(key_layout::chunk(content, number)[..], *data);
        accepted += 1;
    }
    if let Some(id) = std::str::from_utf8(data).ok().and_then(ReferenceId::from_hex) {
        assert!(usize::from(id.bucket_of("name", 256)) < 256);
        accepted += 1;
    }
    accepted > 0
}

fn check_content(content: &Content) {
    let shares: u64 = content.shares().iter().map(|share| share.bytes).sum();
    assert_eq!(shares, content.size);
    let chunks = content.chunk_count();
    assert_eq!(content.bucket_of(chunks), None);
    if let Some(last) = chunks.checked_sub(1) {
        assert!(content.bucket_of(last).is_some());
        assert!(content.bytes_of(last) > 0);
        let full = u64::from(last) * u64::from(content.chunk_bytes);
        assert_eq!(full + content.bytes_of(last), content.size);
    }
}

/// `STORE`, with its checksum made right or as it is, beside a copy that is sound or missing.
pub(crate) fn superblock(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.u8();
    let mut bytes = input.rest().to_vec();
    if flags & 1 == 0 {
        bytes.extend_from_slice(&checksum::crc32c(&bytes).to_le_bytes());
    }
    let fs = disk::empty();
    disk::write(&fs, &disk::dir().join("STORE"), &bytes);
    if flags & 2 != 0 {
        disk::write(&fs, &disk::dir().join("STORE.copy"), &sound());
    }
    let found = match Superblock::read(&fs, disk::dir()) {
        Ok(found) => found,
        Err(error) => {
            let is_newer = matches!(error, Error::Engine(tallybook::Error::NewerFormat { .. }));
            assert!(flags & 2 == 0 || is_newer, "a sound copy is enough, but beside a newer one");
            return false;
        }
    };
    check_superblock(&found);
    let fs = disk::empty();
    found.write(&fs, disk::dir()).expect("memory takes a description");
    assert_eq!(Superblock::read(&fs, disk::dir()).ok(), Some(found));
    true
}

fn check_superblock(superblock: &Superblock) {
    assert!((1..=256).contains(&superblock.bucket_count()) && superblock.chunk_bytes > 0);
    for bucket in 0..superblock.bucket_count() {
        superblock.bucket_dir(disk::dir(), bucket as u8);
    }
    superblock.catalogue_dir(disk::dir());
}

fn description(buckets: u16) -> Superblock {
    Superblock {
        changes: 3,
        store: [5; 16],
        reference_id: ReferenceId([7; 20]),
        chunk_bytes: 65_536,
        bucket_cap_bytes: 1 << 40,
        catalogue_generation: 1,
        bucket_generations: (0..buckets).collect(),
        bucket_dirs: vec!["buckets".into(), "/disk/buckets".into()],
    }
}

fn encoded(superblock: &Superblock) -> Vec<u8> {
    let fs = MemoryFileSystem::clone(&disk::empty());
    superblock.write(&fs, disk::dir()).expect("memory takes a description");
    disk::read(&fs, &disk::dir().join("STORE"))
}

fn sound() -> Vec<u8> {
    encoded(&description(4))
}

/// A directory of LevelDB as KFS leaves it: a manifest, a table of up to four blocks, a log. Checksums
/// and the places of blocks are made right.
pub(crate) fn kfs(data: &[u8]) -> bool {
    thread_local! {
        static DIR: tempfile::TempDir = tempfile::tempdir().expect("there is a place for files");
    }
    DIR.with(|dir| kfs_in(dir.path(), data))
}

fn kfs_in(dir: &Path, data: &[u8]) -> bool {
    let mut input = Input(data);
    let (manifest, log) = (input.part(), input.part());
    let write = |name: &str, bytes: &[u8]| {
        fs::write(dir.join(name), bytes).expect("the directory takes a file");
    };
    let mut manifest = manifest.to_vec();
    correct_log(&mut manifest);
    let mut log = log.to_vec();
    correct_log(&mut log);
    write("CURRENT", b"MANIFEST-000002\n");
    write("MANIFEST-000002", &manifest);
    write("000006.log", &log);
    write("000005.ldb", &kfs_table(&mut input));
    tallybook_files::fuzzing::leveldb(dir)
}

/// Makes the checksums of a LevelDB log's records right, where its headers can be read.
fn correct_log(bytes: &mut [u8]) {
    for block in bytes.chunks_mut(32 << 10) {
        let mut at = 0;
        while let Some(header) = block.get(at..at + 7) {
            let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let Some(body) = block.get(at + 6..at + 7 + length) else { break };
            let masked = mask(checksum::crc32c(body));
            block[at..at + 4].copy_from_slice(&masked.to_le_bytes());
            at += 7 + length;
        }
    }
}

/// Checksums are stored rotated and moved.
fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A table of the blocks that are left in the input: with an index made for them, or, if there is
/// another part behind them, with that for its index.
fn kfs_table(input: &mut Input<'_>) -> Vec<u8> {
    let (blocks, has_index) = (usize::from(input.u8() % 5), input.u8() & 1 == 1);
    let mut file = Vec::new();
    let mut index = Vec::new();
    let mut handle = Vec::new();
    for number in 0..blocks {
        handle = append_block(&mut file, input.part());
        // The last key of the block, to whom it may concern.
        let key = [&[b'0' + number as u8; 40][..], b" 000000", &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
        index.extend([0, key.len() as u8, handle.len() as u8]);
        index.extend(key);
        index.extend(&handle);
    }
    index.extend([0; 4]);
    index.extend(1u32.to_le_bytes());
    if has_index {
        index = input.part().to_vec();
    }
    let mut footer = handle;
    footer.resize(footer.len().max(2), 0);
    footer.extend(append_block(&mut file, &index));
    footer.resize(40, 0);
    let given = input.take(40);
    footer[..given.len()].copy_from_slice(given);
    footer.extend(0xdb47_7524_8b80_fb57u64.to_le_bytes());
    file.extend(footer);
    file
}

/// Appends a block with its trailer; answers its handle.
fn append_block(file: &mut Vec<u8>, block: &[u8]) -> Vec<u8> {
    let mut handle = Vec::new();
    put_varint(&mut handle, file.len() as u64);
    put_varint(&mut handle, block.len() as u64);
    let start = file.len();
    file.extend_from_slice(block);
    file.push(0);
    let masked = mask(checksum::crc32c(&file[start..]));
    file.extend(masked.to_le_bytes());
    handle
}

pub(crate) fn record_seeds() -> Vec<Vec<u8>> {
    let extents = vec![Extent { bucket: 9, chunks: 2 }, Extent { bucket: 8, chunks: 1 }];
    let content = Content { refs: 1, size: 2 * 65_536 + 5, chunk_bytes: 65_536, extents };
    let record = FileRecord {
        version: 7,
        content: ContentId::new(3, 4),
        primary: 9,
        size: content.size,
        blake3: [1; 32],
        md5: Some([2; 16]),
        written_at_ms: 10,
        changed_at_ms: 1 << 40,
        attributes: Bytes::from_static(b"attributes"),
    };
    let quarantine = Quarantine { version: 1, offset: 2, what: "gone".into() };
    let identity = Identity { store: [3; 16], bucket: 200, generation: 300 };
    vec![
        record.encode(),
        content.encode(),
        encode_entry(&record, &content),
        encode_shares(&content.shares()),
        quarantine.encode(),
        identity.encode(),
        encode_numbers(&[1, 1 << 40, u64::MAX]),
        key_layout::entry("dir/name", 7),
        key_layout::chunk(record.content, 3).to_vec(),
        b"adc83b19e793491b1c6ea0fd8b46cd9f32e592fc".to_vec(),
    ]
}

pub(crate) fn superblock_seeds() -> Vec<Vec<u8>> {
    let whole = |flags: u8, buckets| [&[flags], &encoded(&description(buckets))[..]].concat();
    let cut = |flags: u8, buckets| {
        let bytes = encoded(&description(buckets));
        [&[flags], &bytes[..bytes.len() - 4]].concat()
    };
    vec![cut(0, 1), cut(0, 4), cut(0, 256), whole(1, 4), whole(3, 2), cut(2, 2)]
}

pub(crate) fn kfs_seeds() -> Vec<Vec<u8>> {
    let key = |number: u8| format!("{} {number:06}", "5a".repeat(20)).into_bytes();
    let internal =
        |number: u8, seqno: u8| [&key(number)[..], &[1, seqno, 0, 0, 0, 0, 0, 0]].concat();
    // Comparator, log number, next file, last sequence number, a table of two keys.
    let mut edit = vec![1];
    put_bytes(&mut edit, b"leveldb.BytewiseComparator");
    edit.extend([2, 6, 9, 0, 3, 7, 4, 9]);
    let plain_edit = edit.clone();
    edit.extend([7, 0, 5, 100]);
    put_bytes(&mut edit, &internal(0, 1));
    put_bytes(&mut edit, &internal(9, 1));
    let mut batch = vec![5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1];
    put_bytes(&mut batch, &key(3));
    put_bytes(&mut batch, b"in the log");
    batch.push(0);
    put_bytes(&mut batch, &key(1));
    let mut block = Vec::new();
    for number in [0u8, 1] {
        let internal = internal(number, 2);
        block.extend([0, internal.len() as u8, 5]);
        block.extend(internal);
        block.extend(b"value");
    }
    let mut sharing = block.clone();
    sharing.extend([46, 9, 1]);
    sharing.extend([b'2', 1, 2, 0, 0, 0, 0, 0, 0, b'v']);
    for block in [&mut block, &mut sharing] {
        block.extend([0; 4]);
        block.extend(1u32.to_le_bytes());
    }
    let record = |kind: u8, body: &[u8]| {
        let length = (body.len() as u16).to_le_bytes();
        [&[0; 4][..], &length, &[kind], body].concat()
    };
    let split =
        [record(2, &batch[..20]), record(3, &batch[20..40]), record(4, &batch[40..])].concat();
    let seed = |edit: &[u8], log: &[u8], blocks: &[&[u8]]| {
        let mut seed = [part(&record(1, edit)), part(log)].concat();
        seed.extend([blocks.len() as u8, 0]);
        blocks.iter().for_each(|block| seed.extend(part(block)));
        seed
    };
    vec![
        seed(&plain_edit, &record(1, &batch), &[]),
        seed(&plain_edit, &split, &[]),
        seed(&edit, &record(1, &batch), &[&block]),
        seed(&edit, &[], &[&block, &sharing]),
        seed(&edit, &record(1, &batch)[..30], &[&sharing]),
    ]
}
