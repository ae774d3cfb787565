//! The first 64 bytes of a segment's file: what the segment is, and the salt of its checksums.

use std::path::Path;

use super::record::Salt;
use crate::checksum;
use crate::coding::Decoder;
use crate::error::{Error, Result};

/// Bytes of a segment's header; its first record follows at once.
pub const SEGMENT_HEADER_BYTES: u64 = 64;

/// Newest version of the format that is read, and the one that is written.
pub const FORMAT_VERSION: u32 = 1;

const HEADER: usize = SEGMENT_HEADER_BYTES as usize;
const MAGIC: &[u8; 8] = b"TALLYJNL";
const FLAG_RECYCLED: u32 = 1;

/// What a segment holds. On disk: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SegmentType {
    /// Writes in the order they were committed.
    Log = 1,
    /// Live values of mostly dead segments, and an index of where they came from.
    Collected = 2,
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// What the segment holds.
    pub segment_type: SegmentType,
    /// The segment's number.
    pub number: u64,
    /// Seeds every checksum in the segment.
    pub salt: Salt,
    /// The file was another segment before: behind the last record may stand what that one held.
    pub is_recycled: bool,
    /// Where the index record of a collected segment stands; 0 in a log segment.
    pub index_offset: u64,
    /// Bytes that a log segment's file was made with, or cut to; 0 in a collected segment. A shorter file was
    /// cut by something else, or its cut is not on disk whole.
    pub file_bytes: u64,
}

impl SegmentHeader {
    /// The 64 bytes at the front of the file.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0u8; HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(self.segment_type as u32).to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..32].copy_from_slice(&self.salt.value().to_le_bytes());
        let flags = if self.is_recycled { FLAG_RECYCLED } else { 0 };
        out[32..36].copy_from_slice(&flags.to_le_bytes());
        out[40..48].copy_from_slice(&self.index_offset.to_le_bytes());
        out[48..56].copy_from_slice(&self.file_bytes.to_le_bytes());
        let crc = checksum::crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header of the segment `number` in the file at `path`, which starts with `bytes`. Every format version
    /// has the magic, the version and the checksum where this one has them.
    pub fn decode(path: &Path, number: u64, bytes: &[u8]) -> Result<SegmentHeader> {
        let damage = |what: String| Error::corruption(path, 0, what);
        let Some(bytes) = bytes.get(..HEADER) else {
            return Err(damage(format!("a segment of only {} bytes", bytes.len())));
        };
        if &bytes[..8] != MAGIC {
            return Err(damage("not a journal segment".into()));
        }
        let mut fields = Decoder::new(&bytes[8..]);
        let bad = || damage("bad segment header".into());
        let version = fields.u32().ok_or_else(bad)?;
        let segment_type = fields.u32().ok_or_else(bad)?;
        let found_number = fields.u64().ok_or_else(bad)?;
        let salt = Salt::new(fields.u64().ok_or_else(bad)?);
        let flags = fields.u32().ok_or_else(bad)?;
        fields.take(4).ok_or_else(bad)?;
        let index_offset = fields.u64().ok_or_else(bad)?;
        let file_bytes = fields.u64().ok_or_else(bad)?;
        if bytes[60..] != checksum::crc32c(&bytes[..60]).to_le_bytes() {
            return Err(bad());
        }
        if version > FORMAT_VERSION {
            return Err(Error::NewerFormat { file: path.to_owned(), version });
        }
        if version == 0 {
            return Err(damage("format version 0".into()));
        }
        if found_number != number {
            return Err(damage(format!("the header is that of segment {found_number}")));
        }
        let segment_type = match segment_type {
            1 => SegmentType::Log,
            2 => SegmentType::Collected,
            other => return Err(damage(format!("unknown segment type {other}"))),
        };
        let is_recycled = flags & FLAG_RECYCLED != 0;
        Ok(SegmentHeader { segment_type, number, salt, is_recycled, index_offset, file_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            segment_type: SegmentType::Log,
            number: 12,
            salt: Salt::new(99),
            is_recycled: true,
            index_offset: 0,
            file_bytes: 4096,
        }
    }

    #[test]
    fn a_header_comes_back_and_every_flip_is_refused() {
        let path = Path::new("000012.journal");
        let bytes = header().encode();
        assert_eq!(SegmentHeader::decode(path, 12, &bytes).unwrap(), header());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(path, 12, &damaged).is_err(), "bit {bit}");
        }
        assert!(SegmentHeader::decode(path, 12, &bytes[..63]).is_err());
        assert!(SegmentHeader::decode(path, 13, &bytes).is_err());
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let mut bytes = header().encode();
        bytes[8] = 2;
        let crc = checksum::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        let refused = SegmentHeader::decode(Path::new("x"), 12, &bytes);
        assert!(matches!(refused, Err(Error::NewerFormat { version: 2, .. })), "{refused:?}");
    }
}
