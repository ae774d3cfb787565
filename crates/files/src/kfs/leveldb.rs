//! Reads a LevelDB directory, and writes nothing to it.
//!
//! 1. `CURRENT` names the manifest, whose edits say which tables and which logs count.
//! 2. Every block of every table, and every record of the logs, is read once and its checksum compared;
//!    of each key the newest entry is kept, as a place and not as a value.
//! 3. Values are read from their places when asked for, and checked again.
//!
//! What is damaged is listed with the keys that it may have held. Blocks must not be compressed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tallybook::checksum;
use tallybook::coding::Decoder;

/// Bytes of a block of a log.
const LOG_BLOCK_BYTES: usize = 32 << 10;
/// Bytes of the header of a log's record: checksum, length, type.
const RECORD_HEADER_BYTES: usize = 7;
const FOOTER_BYTES: u64 = 48;
const TABLE_MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// Type byte and checksum behind a block.
const TRAILER_BYTES: u64 = 5;
/// Sequence number and type behind a key.
const KEY_TAIL_BYTES: usize = 8;
const TYPE_VALUE: u8 = 1;
/// No block of a store of 128 KiB values is larger.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// LevelDB writes a key whole at least every so many entries (`block_restart_interval`, which KFS leaves
/// as it is), so that all keys take no more than so many times the block.
const KEYS_PER_RESTART: usize = 16;

/// What is wrong, in words.
type Outcome<T> = Result<T, String>;

/// Keys that may have been lost: those after `after`, up to and with `upto`.
#[derive(Debug, Clone)]
pub(super) struct DamagedRange {
    pub(super) after: Vec<u8>,
    /// `None`: to the last key there is.
    pub(super) upto: Option<Vec<u8>>,
    pub(super) what: String,
}

/// Where a value is.
#[derive(Debug, Clone)]
pub(super) struct Place {
    file: Rc<(PathBuf, File)>,
    /// The block in a table; `None` for bytes of a log, which were checked and are kept.
    block: Option<Handle>,
    offset: usize,
    length: usize,
    kept: Rc<Vec<u8>>,
}

impl Place {
    /// Bytes of the value.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// The value.
    pub(super) fn read(&self) -> Outcome<Vec<u8>> {
        let range = self.offset..self.offset + self.length;
        match self.block {
            Some(handle) => Ok(read_block(&self.file, handle)?[range].to_vec()),
            None => Ok(self.kept[range].to_vec()),
        }
    }
}

/// A table's block: offset and bytes, without the trailer.
#[derive(Debug, Clone, Copy)]
struct Handle {
    offset: u64,
    length: u64,
}

/// What stands in a directory.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Live keys.
    pub(super) values: BTreeMap<Vec<u8>, Place>,
    pub(super) damage: Vec<DamagedRange>,
    /// A log that ends within a record, as a kill leaves it: what was written last is not all there.
    pub(super) torn: Option<String>,
}

/// The newest entry of a key so far; without a place it was deleted.
type Newest = BTreeMap<Vec<u8>, (u64, Option<Place>)>;

/// Reads a directory.
pub(super) fn read(dir: &Path) -> Outcome<Contents> {
    let current = std::fs::read_to_string(dir.join("CURRENT"))
        .map_err(|error| format!("CURRENT cannot be read: {error}"))?;
    let manifest = current.trim_end();
    if !manifest.starts_with("MANIFEST-") || manifest.contains('/') {
        return Err(format!("CURRENT says {manifest:?}"));
    }
    let bytes = std::fs::read(dir.join(manifest))
        .map_err(|error| format!("{manifest} cannot be read: {error}"))?;
    let records = log_records(&bytes);
    if let Some(what) = records.damage.or(records.torn) {
        return Err(format!("{manifest} is damaged: {what}"));
    }
    let mut version = Version::default();
    for record in &records.records {
        version.apply(record).ok_or_else(|| format!("an edit in {manifest} doesn't decode"))?;
    }
    let mut newest = Newest::new();
    let mut damage = Vec::new();
    for &number in version.tables.keys() {
        let (smallest, largest) = &version.tables[&number];
        if let Err(what) = read_table(dir, number, &mut newest, &mut damage) {
            let (after, upto) = (before(smallest), Some(largest.clone()));
            damage.push(DamagedRange { after, upto, what });
        }
    }
    let mut torn = None;
    let logs = version.logs(dir)?;
    let current = version.log_number;
    // A new LevelDB has none. Any key may have been written by one that is missing.
    if current > 0 && !logs.contains(&current) {
        let what = format!("{} is missing", dir.join(format!("{current:06}.log")).display());
        damage.push(DamagedRange { after: Vec::new(), upto: None, what });
    }
    for number in logs {
        let path = dir.join(format!("{number:06}.log"));
        torn = read_log(&path, &mut newest, &mut damage)?.or(torn);
    }
    let live = newest.into_iter().filter_map(|(key, (_, place))| Some((key, place?)));
    Ok(Contents { values: live.collect(), damage, torn })
}

/// A key that no other lies between it and `key`.
fn before(key: &[u8]) -> Vec<u8> {
    let mut before = key.to_vec();
    match before.last_mut() {
        Some(0) => drop(before.pop()),
        Some(last) => *last -= 1,
        None => {}
    }
    before
}

/// Which files count.
#[derive(Debug, Default)]
struct Version {
    /// Tables with their smallest and largest user keys.
    tables: BTreeMap<u64, (Vec<u8>, Vec<u8>)>,
    log_number: u64,
    previous_log_number: u64,
}

impl Version {
    fn apply(&mut self, edit: &[u8]) -> Option<()> {
        let mut fields = Decoder::new(edit);
        let mut deleted = BTreeSet::new();
        let mut added = Vec::new();
        while fields.remaining() > 0 {
            match fields.varint()? {
                // Comparator.
                1 => drop(fields.length_prefixed()?),
                2 => self.log_number = fields.varint()?,
                // Next file number, last sequence number.
                3 | 4 => drop(fields.varint()?),
                // Compaction pointer.
                5 => {
                    fields.varint()?;
                    fields.length_prefixed()?;
                }
                6 => {
                    fields.varint()?;
                    deleted.insert(fields.varint()?);
                }
                7 => {
                    fields.varint()?;
                    let number = fields.varint()?;
                    fields.varint()?;
                    let smallest = user_key(fields.length_prefixed()?)?.to_vec();
                    let largest = user_key(fields.length_prefixed()?)?.to_vec();
                    added.push((number, (smallest, largest)));
                }
                9 => self.previous_log_number = fields.varint()?,
                _ => return None,
            }
        }
        self.tables.retain(|number, _| !deleted.contains(number));
        self.tables.extend(added);
        Some(())
    }

    /// The logs that are not in tables yet, oldest first.
    fn logs(&self, dir: &Path) -> Outcome<Vec<u64>> {
        let entries = std::fs::read_dir(dir).map_err(|error| error.to_string())?;
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| error.to_string())?.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(".log"));
            if let Some(number) = stem.and_then(|stem| stem.parse::<u64>().ok())
                && (number >= self.log_number || number == self.previous_log_number)
            {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

fn user_key(internal: &[u8]) -> Option<&[u8]> {
    internal.get(..internal.len().checked_sub(KEY_TAIL_BYTES)?)
}

/// Sequence number and type of an internal key.
fn key_tail(internal: &[u8]) -> Option<(u64, u8)> {
    let tail = u64::from_le_bytes(*internal.last_chunk()?);
    Some((tail >> 8, tail as u8))
}

fn note(newest: &mut Newest, key: &[u8], seqno: u64, place: Option<Place>) {
    match newest.get_mut(key) {
        Some(known) if known.0 >= seqno => {}
        Some(known) => *known = (seqno, place),
        None => drop(newest.insert(key.to_vec(), (seqno, place))),
    }
}

fn read_table(
    dir: &Path,
    number: u64,
    newest: &mut Newest,
    damage: &mut Vec<DamagedRange>,
) -> Outcome<()> {
    let path = dir.join(format!("{number:06}.ldb"));
    let opened = File::open(&path).or_else(|_| File::open(dir.join(format!("{number:06}.sst"))));
    let file = opened.map_err(|error| format!("table {number:06} cannot be opened: {error}"))?;
    let len = file.metadata().map_err(|error| error.to_string())?.len();
    let file = Rc::new((path, file));
    let mut footer = [0; FOOTER_BYTES as usize];
    let start = len.checked_sub(FOOTER_BYTES).ok_or_else(|| at(&file, 0, "it has no footer"))?;
    let read = file.1.read_exact_at(&mut footer, start);
    read.map_err(|error| at(&file, start, &error.to_string()))?;
    let index = decode_footer(&footer).ok_or_else(|| at(&file, start, "it has no footer"))?;
    let index = Rc::new(read_block(&file, index)?);
    let blocks = entries(&index).ok_or_else(|| at(&file, 0, "its index doesn't decode"))?;
    let mut after = Vec::new();
    for (last_key, place) in blocks {
        let mut fields = Decoder::new(&index[place]);
        let last_key = user_key(&last_key).unwrap_or_default().to_vec();
        let block = decode_handle(&mut fields).ok_or_else(|| "a handle doesn't decode".to_owned());
        if let Err(what) = block.and_then(|block| read_entries(&file, block, newest)) {
            let upto = Some(last_key.clone());
            damage.push(DamagedRange { after: std::mem::take(&mut after), upto, what });
        }
        after = last_key;
    }
    Ok(())
}

fn read_entries(file: &Rc<(PathBuf, File)>, handle: Handle, newest: &mut Newest) -> Outcome<()> {
    let block = read_block(file, handle)?;
    let damaged = || at(file, handle.offset, "a block doesn't decode");
    for (key, value) in entries(&block).ok_or_else(damaged)? {
        let (seqno, kind) = key_tail(&key).ok_or_else(damaged)?;
        let place = (kind == TYPE_VALUE).then(|| Place {
            file: file.clone(),
            block: Some(handle),
            offset: value.start,
            length: value.len(),
            kept: Rc::default(),
        });
        note(newest, user_key(&key).ok_or_else(damaged)?, seqno, place);
    }
    Ok(())
}

fn at(file: &(PathBuf, File), offset: u64, what: &str) -> String {
    format!("corruption in {} at byte {offset}: {what}", file.0.display())
}

fn decode_handle(fields: &mut Decoder<'_>) -> Option<Handle> {
    Some(Handle { offset: fields.varint()?, length: fields.varint()? })
}

/// The handle of the index block.
fn decode_footer(footer: &[u8]) -> Option<Handle> {
    let magic = u64::from_le_bytes(*footer.last_chunk()?);
    let mut fields = Decoder::new(footer);
    decode_handle(&mut fields)?;
    (magic == TABLE_MAGIC).then(|| decode_handle(&mut fields))?
}

/// A block whose checksum is right.
fn read_block(file: &(PathBuf, File), handle: Handle) -> Outcome<Vec<u8>> {
    if handle.length > BLOCK_BYTES_MAX {
        return Err(at(file, handle.offset, "a block is said to be larger than any"));
    }
    // Before room is made for it: a handle may say anything.
    let len = file.1.metadata().map_err(|error| at(file, handle.offset, &error.to_string()))?.len();
    let frame_bytes = handle.length + TRAILER_BYTES;
    if len.checked_sub(handle.offset).is_none_or(|left| left < frame_bytes) {
        return Err(at(file, handle.offset, "a block leaves the file"));
    }
    let mut block = vec![0; frame_bytes as usize];
    let read = file.1.read_exact_at(&mut block, handle.offset);
    read.map_err(|error| at(file, handle.offset, &error.to_string()))?;
    let (body, checksum) = block.split_last_chunk::<4>().unwrap_or((&[], &[0; 4]));
    if unmask(u32::from_le_bytes(*checksum)) != checksum::crc32c(body) {
        return Err(at(file, handle.offset, "the checksum of a block is wrong"));
    }
    if body.last() != Some(&0) {
        return Err(at(file, handle.offset, "a block is compressed, which a KFS table's are not"));
    }
    block.truncate(handle.length as usize);
    Ok(block)
}

/// The keys of a block, with where their values are in it.
fn entries(block: &[u8]) -> Option<Vec<(Vec<u8>, std::ops::Range<usize>)>> {
    let restarts = u32::from_le_bytes(*block.last_chunk()?) as usize;
    let end = block.len().checked_sub(4 + restarts.checked_mul(4)?)?;
    let mut fields = Decoder::new(&block[..end]);
    let (mut key, mut key_bytes): (Vec<u8>, usize) = (Vec::new(), 0);
    let mut found = Vec::new();
    while fields.remaining() > 0 {
        let shared = usize::try_from(fields.varint()?).ok()?;
        let unshared = usize::try_from(fields.varint()?).ok()?;
        let length = usize::try_from(fields.varint()?).ok()?;
        if shared > key.len() {
            return None;
        }
        key.truncate(shared);
        key.extend_from_slice(fields.take(unshared)?);
        key_bytes += key.len();
        if key_bytes > block.len().checked_mul(KEYS_PER_RESTART)? {
            return None;
        }
        let start = fields.position();
        fields.take(length)?;
        found.push((key.clone(), start..start + length));
    }
    Some(found)
}

/// Checksums are stored rotated and moved, so that none is that of bytes with checksums in them.
fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(0xa282_ead8).rotate_right(17)
}

/// The records of a log up to what is damaged.
#[derive(Debug, Default)]
struct LogRecords {
    records: Vec<Vec<u8>>,
    /// What was found other than the end.
    damage: Option<String>,
    /// What is left at the end of a record that is not all there.
    torn: Option<String>,
}

fn log_records(log: &[u8]) -> LogRecords {
    let mut found = LogRecords::default();
    let mut partial: Option<Vec<u8>> = None;
    for (number, block) in log.chunks(LOG_BLOCK_BYTES).enumerate() {
        let mut offset = 0;
        while block.len() - offset >= RECORD_HEADER_BYTES {
            let (header, rest) = block[offset..].split_at(RECORD_HEADER_BYTES);
            let checksum = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let kind = header[6];
            let place = number * LOG_BLOCK_BYTES + offset;
            if header == [0; RECORD_HEADER_BYTES] {
                // What a power loss leaves where records were. LevelDB passes over them.
                match log[place..].iter().all(|&byte| byte == 0) {
                    true => found.torn = Some(format!("it is zeros from byte {place} on")),
                    false => found.damage = Some(format!("a record at byte {place} is zeros")),
                }
                return found;
            }
            let Some(body) = rest.get(..length) else {
                let fits = offset + RECORD_HEADER_BYTES + length <= LOG_BLOCK_BYTES;
                match fits {
                    true => found.torn = Some(format!("it ends within the record at byte {place}")),
                    false => {
                        found.damage = Some(format!("a record at byte {place} leaves its block"))
                    }
                }
                return found;
            };
            let actual = checksum::crc32c_append(checksum::crc32c(&[kind]), body);
            if unmask(checksum) != actual {
                found.damage = Some(format!("the checksum of the record at byte {place} is wrong"));
                return found;
            }
            // Full, first, middle, last.
            match (kind, partial.take()) {
                (1, None) => found.records.push(body.to_vec()),
                (2, None) => partial = Some(body.to_vec()),
                (3, Some(mut begun)) => {
                    begun.extend_from_slice(body);
                    partial = Some(begun);
                }
                (4, Some(mut begun)) => {
                    begun.extend_from_slice(body);
                    found.records.push(begun);
                }
                _ => {
                    found.damage = Some(format!("the record at byte {place} is out of turn"));
                    return found;
                }
            }
            offset += RECORD_HEADER_BYTES + length;
        }
        if block.len() < LOG_BLOCK_BYTES && block[offset..].iter().any(|&byte| byte != 0) {
            found.torn = Some("it ends within a record's header".to_owned());
        }
    }
    if partial.is_some() {
        found.torn = Some("it ends between the parts of a record".to_owned());
    }
    found
}

/// Reads what is not in tables yet; answers what is wrong with the end.
fn read_log(
    path: &Path,
    newest: &mut Newest,
    damage: &mut Vec<DamagedRange>,
) -> Outcome<Option<String>> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file = Rc::new((path.to_owned(), file));
    let mut found = log_records(&bytes);
    for record in std::mem::take(&mut found.records) {
        let record = Rc::new(record);
        if apply_batch(&file, &record, newest).is_none() {
            found.damage = Some("a batch doesn't decode".to_owned());
            break;
        }
    }
    if let Some(what) = found.damage {
        // Any key may have been written by what follows.
        let what = at(&file, 0, &what);
        damage.push(DamagedRange { after: Vec::new(), upto: None, what });
    }
    Ok(found.torn.map(|what| format!("{}: {what}", path.display())))
}

fn apply_batch(
    file: &Rc<(PathBuf, File)>,
    record: &Rc<Vec<u8>>,
    newest: &mut Newest,
) -> Option<()> {
    let mut fields = Decoder::new(record);
    let first = fields.u64()?;
    let count = fields.u32()?;
    for seqno in first..first.checked_add(u64::from(count))? {
        let kind = fields.u8()?;
        let key = fields.length_prefixed()?;
        let place = if kind == TYPE_VALUE {
            let length = fields.length_prefixed()?.len();
            let offset = fields.position() - length;
            Some(Place { file: file.clone(), block: None, offset, length, kept: record.clone() })
        } else {
            None
        };
        note(newest, key, seqno, place);
    }
    (fields.remaining() == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log whose last records a power loss had made zeros was taken for one that ends there, and a file
    /// imported without its end.
    #[test]
    fn zeros_in_a_log_are_no_clean_end() {
        let record = |body: &[u8]| {
            let checksum = checksum::crc32c_append(checksum::crc32c(&[1]), body);
            let masked = checksum.rotate_left(17).wrapping_add(0xa282_ead8);
            let mut record = masked.to_le_bytes().to_vec();
            record.extend_from_slice(&(body.len() as u16).to_le_bytes());
            record.push(1);
            record.extend_from_slice(body);
            record
        };
        let (first, second) = (record(b"first"), record(b"second"));
        let told = |parts: &[&[u8]]| {
            let found = log_records(&parts.concat());
            (found.records.len(), found.torn.is_some(), found.damage.is_some())
        };
        let (zeros, block) = (vec![0; second.len()], vec![0; LOG_BLOCK_BYTES - first.len()]);
        assert_eq!(told(&[&first, &second]), (2, false, false));
        assert_eq!(told(&[&first, &zeros]), (1, true, false));
        assert_eq!(told(&[&first, &block]), (1, true, false));
        assert_eq!(told(&[&first, &zeros, &second]), (1, false, true));
        assert_eq!(told(&[&first, &block, &second]), (1, false, true));
        // What is left of a block that has no room for a header is zeros always.
        let filler = record(&vec![7; LOG_BLOCK_BYTES - RECORD_HEADER_BYTES - 3]);
        assert_eq!(told(&[&filler, &[0; 3], &second]), (2, false, false));
    }

    /// What a handle says was believed up to 64 MiB, and room made for it, before the file was looked at.
    #[test]
    fn block_that_leaves_its_file_is_refused_before_room_is_made() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, [0; 100]).unwrap();
        let file = (path.path().to_owned(), File::open(&path).unwrap());
        for (offset, length) in [(0, BLOCK_BYTES_MAX), (0, 96), (96, 0), (u64::MAX, 1)] {
            let refused = read_block(&file, Handle { offset, length }).unwrap_err();
            assert!(refused.contains("a block leaves the file"), "{refused}");
        }
        let refused = read_block(&file, Handle { offset: 0, length: 95 }).unwrap_err();
        assert!(refused.contains("checksum"), "{refused}");
    }

    /// Entries of three bytes that repeat a key of half the block made keys of a thousand times its size.
    #[test]
    fn keys_that_repeat_more_than_a_restart_allows_are_refused() {
        let block = |shared: u8, count: usize| {
            let mut block = vec![0, 100, 0];
            block.extend([b'k'; 100]);
            block.extend([shared, 0, 0].repeat(count));
            block.extend([0, 0, 0, 0, 1, 0, 0, 0]);
            block
        };
        assert_eq!(entries(&block(100, 15)).unwrap().len(), 16);
        assert_eq!(entries(&block(100, 1000)), None);
    }
}
