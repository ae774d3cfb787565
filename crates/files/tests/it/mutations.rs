//! Bytes from outside, changed at random with their checksums made right again: whoever decodes them
//! refuses or answers something sound, and never panics. `TALLYBOOK_LONG` makes it many times.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use tallybook::checksum;
use tallybook::vfs::{FileSystem, MemoryFileSystem};
use tallybook_files::ImportOptions;
use tallybook_files::key_layout::{self, parse_chunk, parse_entry};
use tallybook_files::placement::ReferenceId;
use tallybook_files::record::{
    CatalogueIdentity, Content, ContentId, Extent, FileRecord, Identity, Quarantine, decode_entry,
    decode_numbers, decode_shares, encode_entry, encode_numbers, encode_shares,
};
use tallybook_files::superblock::Superblock;

use crate::support::{REFERENCE, in_memory, is_long, memory_dir, small};

/// Numbers that a seed decides (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Changes one to four places.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let end = at + self.below((bytes.len() - at).min(16));
            match self.below(7) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                2 => drop(bytes.drain(at..end)),
                3 => drop(bytes.splice(at..end, self.next().to_le_bytes())),
                4 => bytes.truncate(at),
                // The largest number that a varint holds.
                5 => drop(bytes.splice(at..end, [[0xff; 9].as_slice(), &[1]].concat())),
                _ => {
                    let again = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    drop(bytes.splice(to..to, again));
                }
            }
        }
    }
}

fn cases(short: u64, long: u64) -> u64 {
    if is_long() { long } else { short }
}

fn valid_values() -> Vec<Vec<u8>> {
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
    let catalogue = CatalogueIdentity { store: [3; 16], generation: 7 };
    let identity = Identity { store: [3; 16], bucket: 200, generation: 300 };
    vec![
        record.encode(),
        content.encode(),
        encode_entry(&record, &content),
        encode_shares(&content.shares()),
        quarantine.encode(),
        identity.encode(),
        catalogue.encode(),
        encode_numbers(&[1, 1 << 40, u64::MAX]),
        key_layout::entry("dir/name", 7),
        key_layout::chunk(record.content, 3).to_vec(),
    ]
}

/// Decodes it as everything; what it is said to be is encoded, and decodes to the same.
fn decode_all(bytes: &[u8]) -> u64 {
    let mut accepted = 0;
    if let Some(record) = FileRecord::decode(bytes) {
        assert_eq!(FileRecord::decode(&record.encode()), Some(record));
        accepted += 1;
    }
    if let Some(content) = Content::decode(bytes) {
        let shares: u64 = content.shares().iter().map(|share| share.bytes).sum();
        assert_eq!(shares, content.size);
        assert_eq!(content.bucket_of(content.chunk_count()), None);
        assert_eq!(Content::decode(&content.encode()), Some(content));
        accepted += 1;
    }
    if let Some((record, content)) = decode_entry(bytes) {
        assert_eq!(decode_entry(&encode_entry(&record, &content)), Some((record, content)));
        accepted += 1;
    }
    if let Some(shares) = decode_shares(bytes) {
        assert_eq!(decode_shares(&encode_shares(&shares)), Some(shares));
        accepted += 1;
    }
    if let Some(quarantine) = Quarantine::decode(bytes) {
        assert_eq!(Quarantine::decode(&quarantine.encode()), Some(quarantine));
        accepted += 1;
    }
    accepted += u64::from(Identity::decode(bytes).is_some());
    accepted += u64::from(CatalogueIdentity::decode(bytes).is_some());
    accepted += u64::from(decode_numbers::<3>(bytes).is_some());
    accepted += u64::from(parse_entry(bytes).is_some());
    accepted + u64::from(parse_chunk(bytes).is_some())
}

#[test]
fn changed_records_are_refused_or_sound() {
    let valid = valid_values();
    let mut random = Random(0x5eed_0001);
    let (cases, mut accepted) = (cases(50_000, 50_000_000), 0);
    for _ in 0..cases {
        let mut bytes = valid[random.below(valid.len())].clone();
        random.mutate(&mut bytes);
        accepted += decode_all(&bytes);
    }
    println!("{cases} changed records, decoded in 9 ways each: {accepted} accepted, 0 panics");
    assert!(accepted > 0);
}

#[test]
fn a_changed_description_of_a_store_is_refused_or_sound() {
    let fs = MemoryFileSystem::new();
    drop(in_memory(&fs, small()));
    let path = memory_dir().join("STORE");
    let valid = {
        let file = fs.open_read(&path).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    fs.remove(&memory_dir().join("STORE.copy")).unwrap();
    let mut random = Random(0x5eed_0002);
    let (cases, mut accepted) = (cases(5_000, 5_000_000), 0);
    for _ in 0..cases {
        let mut bytes = valid[..valid.len() - 4].to_vec();
        random.mutate(&mut bytes);
        bytes.extend_from_slice(&checksum::crc32c(&bytes).to_le_bytes());
        fs.remove(&path).unwrap();
        fs.create(&path).unwrap().write_all_at(&bytes, 0).unwrap();
        if let Ok(superblock) = Superblock::read(&fs, &memory_dir()) {
            accepted += 1;
            let bucket = (superblock.bucket_count() - 1) as u8;
            superblock.bucket_dir(&memory_dir(), bucket);
            assert!(superblock.bucket_count() <= 256 && superblock.chunk_bytes > 0);
        }
    }
    println!("{cases} changed descriptions of a store: {accepted} accepted, 0 panics");
    assert!(accepted > 0 && accepted < cases);
}

/// Makes the checksums of a LevelDB log's records right, where its headers can be read.
fn correct_log(bytes: &mut [u8]) {
    for block in bytes.chunks_mut(32 << 10) {
        let mut at = 0;
        while let Some(header) = block.get(at..at + 7) {
            let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let Some(body) = block.get(at + 6..at + 7 + length) else { break };
            let sum = checksum::crc32c(body).rotate_right(15).wrapping_add(0xa282_ead8);
            block[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            at += 7 + length;
        }
    }
}

#[test]
fn a_changed_kfs_table_is_reported_or_imported() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/table.kfs");
    let bucket = ReferenceId::from_hex(REFERENCE).unwrap().bucket_of("hello", 256);
    let bucket = format!("{bucket:03}.s");
    let dir = tempfile::tempdir().unwrap();
    fs::copy(fixture.join("r.id"), dir.path().join("r.id")).unwrap();
    fs::create_dir(dir.path().join(&bucket)).unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(fixture.join(&bucket)).unwrap() {
        let entry = entry.unwrap();
        let contents = fs::read(entry.path()).unwrap();
        files.push((dir.path().join(&bucket).join(entry.file_name()), contents));
    }
    files.sort();
    let mut random = Random(0x5eed_0003);
    let (cases, mut imported, mut reported) = (cases(300, 60_000), 0, 0);
    let mut store = in_memory(&MemoryFileSystem::new(), small());
    for case in 0..cases {
        if case % 200 == 0 {
            store = in_memory(&MemoryFileSystem::new(), small());
        }
        for (path, contents) in &files {
            fs::write(path, contents).unwrap();
        }
        let (path, contents) = &files[random.below(files.len())];
        let mut bytes = contents.clone();
        random.mutate(&mut bytes);
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("MANIFEST") || name.ends_with(".log") {
            correct_log(&mut bytes);
        }
        fs::write(path, bytes).unwrap();
        match store.import_kfs(dir.path(), &ImportOptions::default(), &mut |_, _| {}) {
            Ok(report) => {
                imported += report.imported;
                reported += u64::from(!report.problems.is_empty());
            }
            Err(_) => reported += 1,
        }
    }
    println!(
        "{cases} changed KFS tables: {reported} reported, {imported} files imported, 0 panics"
    );
    assert!(reported > 0);
}
