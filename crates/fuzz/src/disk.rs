//! Files in memory, and checksums made right where what they cover was changed, as `docs/format.md` has
//! them, so that a fuzzer gets to what is behind them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tallybook::Resources;
use tallybook::checksum;
use tallybook::coding::Decoder;
use tallybook::file_name::{self, FileKind};
use tallybook::journal::group_meta::decode_group;
use tallybook::journal::record::{
    RECORD_HEADER_BYTES, RecordHeader, RecordType, START_META_BYTES, Salt, Start, record_bytes,
};
use tallybook::resources::ResourceOptions;
use tallybook::vfs::{FileSystem, ManualClock, MemoryFileSystem};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::input::{Input, part, slot, u32_at};

const RECORD_HEADER: usize = RECORD_HEADER_BYTES as usize;
const FOOTER_BYTES: usize = 80;
const TRAILER_BYTES: usize = 9;

/// Where stores in memory are.
pub(crate) fn dir() -> &'static Path {
    Path::new("/store")
}

/// A file system with one directory and no files.
pub(crate) fn empty() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    fs.create_dir_all(dir()).expect("a directory is made in memory");
    fs
}

/// What runs a store without a thread; caches are small, as making them takes longer than the store.
pub(crate) fn inline(fs: &MemoryFileSystem) -> Arc<Resources> {
    inline_at(fs, 1_000_000)
}

/// The same at another time.
pub(crate) fn inline_at(fs: &MemoryFileSystem, now_ms: u64) -> Arc<Resources> {
    let clock = Arc::new(ManualClock::at_ms(now_ms));
    let options = ResourceOptions {
        block_cache_bytes: 64 << 10,
        recent_keys_bytes: 4 << 10,
        write_buffer_bytes: 1 << 20,
        file_handles_max: 8,
        ..ResourceOptions::default()
    };
    Resources::inline(options, Arc::new(fs.clone()), clock)
}

/// Puts a file in its place.
pub(crate) fn write(fs: &MemoryFileSystem, path: &Path, bytes: &[u8]) {
    let _ = fs.remove(path);
    let file = fs.create(path).expect("a file is made in memory");
    file.write_all_at(bytes, 0).expect("memory takes a file");
}

pub(crate) fn read(fs: &MemoryFileSystem, path: &Path) -> Vec<u8> {
    let file = fs.open_read(path).expect("the file is there");
    let mut bytes = vec![0; file.len().expect("a file has a length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("memory gives a file back");
    bytes
}

/// The files of a directory in the order of their names.
pub(crate) fn files(fs: &MemoryFileSystem) -> Vec<PathBuf> {
    let mut names = fs.list(dir()).expect("the directory is there");
    names.sort();
    names.iter().map(|name| dir().join(name)).collect()
}

/// Changes up to eight files of the directory, each a file, what is done, where, and with what; and makes
/// checksums right, if they are to be.
pub(crate) fn damage(fs: &MemoryFileSystem, input: &mut Input<'_>, corrects: bool) {
    let paths = files(fs);
    for _ in 0..8 {
        if input.0.is_empty() {
            break;
        }
        let path = &paths[usize::from(input.u8()) % paths.len()];
        let mut bytes = read(fs, path);
        let (what, at) = (input.u8(), usize::from(input.u16()) % (bytes.len() + 1));
        let patch = input.part();
        match what % 4 {
            0 => {
                let end = bytes.len().min(at + patch.len());
                bytes[at..end].copy_from_slice(&patch[..end - at]);
            }
            1 => bytes[at..].iter_mut().zip(patch).for_each(|(byte, mask)| *byte ^= mask),
            2 => bytes.truncate(at),
            _ => drop(bytes.splice(at..at, patch.iter().copied())),
        }
        if corrects {
            correct(path, &mut bytes);
        }
        write(fs, path, &bytes);
    }
}

/// One of the changes that `damage` makes.
pub(crate) fn change(file: u8, what: u8, at: u16, patch: &[u8]) -> Vec<u8> {
    [&[file, what][..], &at.to_le_bytes(), &part(patch)].concat()
}

/// Makes every checksum of a file right that can be found, by the file's name.
pub(crate) fn correct(path: &Path, bytes: &mut [u8]) {
    match path.file_name().and_then(|name| name.to_str()).and_then(file_name::parse) {
        Some(FileKind::Segment(number)) => correct_segment(number, bytes),
        Some(FileKind::Table(number)) => drop(correct_table(number, bytes)),
        Some(FileKind::Manifest(number)) => drop(correct_manifest(number, bytes)),
        _ => {}
    }
}

fn put(bytes: &mut [u8], at: usize, checksum: &[u8]) {
    if let Some(slot) = slot(bytes, at, checksum.len()) {
        slot.copy_from_slice(checksum);
    }
}

/// A segment: header, then records for as long as their lengths can be followed.
pub(crate) fn correct_segment(number: u64, bytes: &mut [u8]) {
    put(bytes, 0, b"TALLYJNL");
    put(bytes, 8, &1u32.to_le_bytes());
    put(bytes, 16, &number.to_le_bytes());
    let Some(header) = bytes.get(..64) else { return };
    let crc = checksum::crc32c(&header[..60]);
    let salt = Salt::new(Decoder::new(&header[24..]).u64().unwrap_or(0));
    put(bytes, 60, &crc.to_le_bytes());
    let mut at = 64;
    while let Some(end) = correct_record(salt, at, bytes) {
        at = end;
    }
}

/// A record: where it ends, unless it leaves the file.
fn correct_record(salt: Salt, at: usize, bytes: &mut [u8]) -> Option<usize> {
    let (meta_bytes, value_bytes) = (u32_at(bytes, at + 32)?, u32_at(bytes, at + 36)?);
    // What follows the end of a log are zeros, and these shall stay an end.
    if bytes.get(at..at + RECORD_HEADER)?.iter().all(|&byte| byte == 0) {
        return None;
    }
    let end = at.checked_add(usize::try_from(record_bytes(meta_bytes, value_bytes)).ok()?)?;
    let meta_at = at + RECORD_HEADER;
    let values_at = meta_at.checked_add(meta_bytes as usize)?;
    let count = u32_at(bytes, at + 40)?;
    let (meta, values) = bytes.get(meta_at..end)?.split_at(meta_bytes as usize);
    let mut checksums = Vec::new();
    for entry in decode_group(meta, count, value_bytes).unwrap_or_default() {
        if entry.is_put() {
            let mut fields = Decoder::new(&meta[entry.key.end..]);
            fields.varint()?;
            let start = entry.value_offset as usize;
            let value = values.get(start..start + entry.value_bytes as usize)?;
            let place = meta_at + entry.key.end + fields.position();
            checksums.push((place, checksum::crc32c(value)));
        }
    }
    for (place, checksum) in checksums {
        put(bytes, place, &checksum.to_le_bytes());
    }
    let meta_crc = salt.crc(at as u64, &bytes[meta_at..values_at]);
    put(bytes, at + 4, &meta_crc.to_le_bytes());
    let crc = salt.crc(at as u64, &bytes[at + 4..at + RECORD_HEADER]);
    put(bytes, at, &crc.to_le_bytes());
    Some(end)
}

/// Whether a segment's file was cut so far that it may have lost its first record.
pub(crate) fn may_lack_start(segment: &[u8]) -> bool {
    const START_END: usize = 64 + RECORD_HEADER + START_META_BYTES;
    let made = segment.get(48..).map_or(0, |fields| Input(fields).u64());
    segment.len() < START_END && (segment.len() as u64) < made
}

/// What the first record of a segment of the log says, if it can be read.
pub(crate) fn start(segment: &[u8]) -> Option<Start> {
    let salt = Salt::new(Input(segment.get(24..)?).u64());
    let header = RecordHeader::decode(segment.get(64..)?, salt, 64)?;
    let meta = segment.get(64 + RECORD_HEADER..64 + RECORD_HEADER + START_META_BYTES)?;
    let is_whole = header.record_type == RecordType::Start && salt.crc(64, meta) == header.meta_crc;
    Start::decode(meta).filter(|_| is_whole)
}

/// The number in the first record header of a segment that can be read.
pub(crate) fn first_seqno(segment: &[u8]) -> Option<u64> {
    let salt = Salt::new(Input(segment.get(24..)?).u64());
    let header = |at: usize| RecordHeader::decode(&segment[at..], salt, at as u64);
    (64..segment.len()).step_by(8).find_map(header).map(|header| header.first_seqno)
}

/// Where the records of a sound segment end, the start included.
pub(crate) fn record_ends(bytes: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 64;
    while let (Some(meta), Some(values)) = (u32_at(bytes, at + 32), u32_at(bytes, at + 36))
        && bytes.get(at + 44).is_some_and(|&record_type| record_type > 0)
    {
        at += record_bytes(meta, values) as usize;
        ends.push(at);
    }
    ends
}

/// A table: the sections that the footer names, the blocks that the fences name, the footer.
pub(crate) fn correct_table(number: u64, bytes: &mut [u8]) -> Option<()> {
    let file_bytes = bytes.len() as u64;
    let footer_at = bytes.len().checked_sub(FOOTER_BYTES)?;
    put(bytes, footer_at + 48, &number.to_le_bytes());
    put(bytes, footer_at + 56, &2u32.to_le_bytes());
    put(bytes, footer_at + 68, b"TALLYSST");
    let crc = checksum::crc32c(&bytes[footer_at..footer_at + 76]);
    put(bytes, footer_at + 76, &crc.to_le_bytes());
    let mut fields = Decoder::new(&bytes[footer_at..]);
    let mut sections = [(0, 0); 4];
    for section in &mut sections {
        *section = (usize::try_from(fields.u64()?).ok()?, fields.u32()? as usize);
    }
    let [_, fences, _, properties] = sections;
    put(bytes, properties.0, &file_bytes.to_le_bytes());
    let fence_end = fences.0.checked_add(fences.1)?;
    let mut fields = Decoder::new(bytes.get(fences.0..fence_end)?);
    let mut blocks = Vec::new();
    let mut end = 0usize;
    let count = fields.varint()?;
    for _ in 0..count {
        let offset = end.next_multiple_of(8);
        let (Some(stored), Some(_)) = (fields.varint(), fields.length_prefixed()) else { break };
        let Some(next) = offset.checked_add(usize::try_from(stored).ok()?) else { break };
        if next > file_bytes as usize {
            break;
        }
        blocks.push((offset, next - offset));
        end = next + TRAILER_BYTES;
    }
    for (offset, stored) in blocks.into_iter().chain(sections) {
        correct_frame(number, offset, stored, bytes);
    }
    Some(())
}

fn correct_frame(number: u64, offset: usize, stored: usize, bytes: &mut [u8]) -> Option<()> {
    let end = offset.checked_add(stored)?.checked_add(1)?;
    let seed = (number << 32) ^ offset as u64;
    let checksum = xxh3_64_with_seed(bytes.get(offset..end)?, seed);
    put(bytes, end, &checksum.to_le_bytes());
    Some(())
}

/// A manifest: header, then records for as long as their lengths can be followed.
pub(crate) fn correct_manifest(number: u64, bytes: &mut [u8]) -> Option<()> {
    put(bytes, 0, b"TALLYMAN");
    put(bytes, 8, &1u32.to_le_bytes());
    put(bytes, 16, &number.to_le_bytes());
    let crc = checksum::crc32c(bytes.get(..28)?);
    put(bytes, 28, &crc.to_le_bytes());
    let mut at = 32;
    loop {
        let length = u32_at(bytes, at + 4)?;
        let end = (at + 9).checked_add(length as usize)?;
        let payload = bytes.get(at + 9..end)?;
        let mut fixed = [0; 21];
        fixed[..8].copy_from_slice(&number.to_le_bytes());
        fixed[8..16].copy_from_slice(&(at as u64).to_le_bytes());
        fixed[16..20].copy_from_slice(&length.to_le_bytes());
        fixed[20] = bytes[at + 8];
        let crc = checksum::crc32c_append(checksum::crc32c(&fixed), payload);
        put(bytes, at, &crc.to_le_bytes());
        at = end;
    }
}

/// The contents of `CURRENT` that name a manifest.
pub(crate) fn current(number: u64) -> Vec<u8> {
    let name = file_name::manifest_name(number);
    format!("{name} {:08x}\n", checksum::crc32c(name.as_bytes())).into_bytes()
}
