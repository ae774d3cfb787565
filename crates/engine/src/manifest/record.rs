//! The bytes of a manifest and of `CURRENT`: header, records, marks.
//!
//! Each record's checksum covers the manifest's number and the record's offset, so that a record that
//! turns up in another place or file is not one. Nothing here touches a file.

use crate::checksum;
use crate::coding::Decoder;
use crate::file_name::{self, FileKind};

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 32;

const MAGIC: &[u8; 8] = b"TALLYMAN";
const FORMAT_VERSION: u32 = 1;

/// Bytes of a record before its payload: checksum, length, type.
pub(super) const RECORD_HEADER_BYTES: usize = 9;

/// Types of records. On disk: never renumber.
const TYPE_EDIT: u8 = 1;
const TYPE_MARK: u8 = 2;

/// What a record says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// The bytes of an edit.
    Edit(&'a [u8]),
    /// Everything before it was synced.
    Mark,
}

/// Why a header is not one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// It is damaged, or another file's.
    Damaged(&'static str),
    /// It is intact and of this newer format version.
    Newer(u32),
}

/// The header of manifest `number`.
pub(super) fn header(number: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&number.to_le_bytes());
    let crc = checksum::crc32c(&header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Checks that `bytes` begin with the header of manifest `number`. Every format version has the
/// magic, the version and the checksum where this one has them.
pub(super) fn check_header(bytes: &[u8], number: u64) -> Result<(), HeaderError> {
    let Some(found) = bytes.get(..HEADER_BYTES) else {
        return Err(HeaderError::Damaged("the file is shorter than its header"));
    };
    if &found[..8] != MAGIC {
        return Err(HeaderError::Damaged("the header is not a manifest's"));
    }
    let crc = checksum::crc32c(&found[..28]);
    if found[28..] != crc.to_le_bytes() {
        return Err(HeaderError::Damaged("the header's checksum fails"));
    }
    match Decoder::new(&found[8..12]).u32() {
        Some(version) if version > FORMAT_VERSION => Err(HeaderError::Newer(version)),
        _ if found == header(number) => Ok(()),
        _ => Err(HeaderError::Damaged("the header is another manifest's")),
    }
}

/// A record that holds an edit, for this offset of manifest `number`.
pub(super) fn edit(number: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    encode(number, offset, TYPE_EDIT, payload)
}

/// A mark, for this offset of manifest `number`.
pub(super) fn mark(number: u64, offset: u64) -> Vec<u8> {
    encode(number, offset, TYPE_MARK, &[])
}

/// The record at `offset` and where it ends; `None` when none can be read there.
pub(super) fn read(bytes: &[u8], number: u64, offset: usize) -> Option<(Record<'_>, usize)> {
    let mut decoder = Decoder::new(bytes.get(offset..)?);
    let (crc, length, kind) = (decoder.u32()?, decoder.u32()?, decoder.u8()?);
    let payload = decoder.take(length as usize)?;
    if crc != checksum(number, offset as u64, kind, payload) {
        return None;
    }
    let record = match kind {
        TYPE_EDIT => Record::Edit(payload),
        TYPE_MARK if payload.is_empty() => Record::Mark,
        _ => return None,
    };
    Some((record, offset + decoder.position()))
}

/// Whether a mark stands anywhere in bytes that begin at `offset`. Every place is tried: where records begin is
/// not known beyond one that can't be read.
pub(super) fn has_mark(bytes: &[u8], number: u64, offset: u64) -> bool {
    (offset..).zip(bytes.windows(RECORD_HEADER_BYTES)).any(|(at, found)| {
        // The cheap test first: a mark has length 0 and its type.
        found[4..] == [0, 0, 0, 0, TYPE_MARK] && found == mark(number, at)
    })
}

/// The contents of `CURRENT` that name manifest `number`.
pub(super) fn current(number: u64) -> String {
    let name = file_name::manifest_name(number);
    let crc = checksum::crc32c(name.as_bytes());
    format!("{name} {crc:08x}\n")
}

/// The number that the contents of `CURRENT` name; `None` when they are damaged.
pub(super) fn parse_current(contents: &[u8]) -> Option<u64> {
    let name = std::str::from_utf8(contents).ok()?.split(' ').next()?;
    match file_name::parse(name)? {
        FileKind::Manifest(number) if current(number).as_bytes() == contents => Some(number),
        _ => None,
    }
}

fn encode(number: u64, offset: u64, kind: u8, payload: &[u8]) -> Vec<u8> {
    // An edit of 4 GiB would list some 40 million tables.
    let length = u32::try_from(payload.len()).expect("an edit is below 4 GiB");
    let mut out = Vec::with_capacity(RECORD_HEADER_BYTES + payload.len());
    out.extend(checksum(number, offset, kind, payload).to_le_bytes());
    out.extend(length.to_le_bytes());
    out.push(kind);
    out.extend_from_slice(payload);
    out
}

fn checksum(number: u64, offset: u64, kind: u8, payload: &[u8]) -> u32 {
    let mut fixed = [0; 21];
    fixed[..8].copy_from_slice(&number.to_le_bytes());
    fixed[8..16].copy_from_slice(&offset.to_le_bytes());
    fixed[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    fixed[20] = kind;
    checksum::crc32c_append(checksum::crc32c(&fixed), payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_readable_only_where_it_was_written() {
        let bytes = edit(4, 0, b"payload");
        assert_eq!(read(&bytes, 4, 0), Some((Record::Edit(b"payload"), bytes.len())));
        assert_eq!(read(&bytes, 5, 0), None, "another manifest");
        let shifted = [b"x", &bytes[..]].concat();
        assert_eq!(read(&shifted, 4, 1), None, "another offset");
        assert_eq!(read(&bytes, 4, 99), None, "beyond the end");
    }

    #[test]
    fn marks_are_found_at_any_offset() {
        let mut bytes = vec![7; 13];
        bytes.extend(mark(4, 13));
        assert!(has_mark(&bytes, 4, 0) && has_mark(&bytes[13..], 4, 13));
        assert!(!has_mark(&bytes[14..], 4, 14) && !has_mark(&bytes[..21], 4, 0), "not whole");
        assert!(!has_mark(&bytes, 5, 0), "another manifest's");
        assert!(!has_mark(&bytes, 4, 1), "another place");
    }

    #[test]
    fn current_names_its_manifest_or_nothing() {
        let contents = current(4).into_bytes();
        assert_eq!(parse_current(&contents), Some(4));
        for at in 0..contents.len() {
            assert_eq!(parse_current(&contents[..at]), None, "cut at {at}");
            for bit in 0..8 {
                let mut flipped = contents.clone();
                flipped[at] ^= 1 << bit;
                assert_eq!(parse_current(&flipped), None, "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let mut newer = header(4);
        newer[8] = 2;
        assert!(matches!(check_header(&newer, 4), Err(HeaderError::Damaged(_))));
        let crc = checksum::crc32c(&newer[..28]);
        newer[28..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(check_header(&newer, 4), Err(HeaderError::Newer(2)));
        assert_eq!(check_header(&header(4), 4), Ok(()));
        assert!(matches!(check_header(&header(4), 5), Err(HeaderError::Damaged(_))));
    }
}
