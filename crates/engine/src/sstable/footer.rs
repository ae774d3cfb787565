//! The last 80 bytes of a table: where its parts are.
//!
//! Invariant: a decoded footer's sections lie inside the file, in order, before the footer.

use crate::checksum;
use crate::coding::Decoder;
use crate::sstable::frame::TRAILER_BYTES;

/// Bytes of a footer.
pub(super) const FOOTER_BYTES: usize = 80;

/// On disk: never change.
const MAGIC: &[u8; 8] = b"TALLYSST";

/// The version of the table format that is written.
pub(super) const FORMAT_VERSION: u32 = 3;

/// The version before, which has no salt: the file's number stands for one. It is read.
const UNSALTED_VERSION: u32 = 2;

/// A part of a table other than a data block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    /// Offset of its first byte.
    pub(super) offset: u64,
    /// Bytes, without the trailer.
    pub(super) bytes: u32,
}

impl Section {
    /// Offset behind the trailer.
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes) + TRAILER_BYTES as u64
    }
}

/// Where the parts of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    /// Deleted ranges.
    pub(super) range_tombstones: Section,
    /// Lengths and first keys of the data blocks.
    pub(super) fences: Section,
    /// Where each key is.
    pub(super) point_index: Section,
    /// What the table holds, in numbers.
    pub(super) properties: Section,
    /// Number of the file.
    pub(super) number: u64,
    /// Seeds the checksums of the other parts.
    pub(super) salt: u64,
}

/// Why the end of a file is no footer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FooterError {
    /// It is damaged, or of a format that is no longer read.
    Damaged(String),
    /// It is intact and of this newer format version.
    Newer(u32),
}

impl From<&str> for FooterError {
    fn from(what: &str) -> FooterError {
        FooterError::Damaged(what.to_owned())
    }
}

impl Footer {
    /// The bytes that end the file.
    pub(super) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for section in self.sections() {
            out.extend_from_slice(&section.offset.to_le_bytes());
            out.extend_from_slice(&section.bytes.to_le_bytes());
        }
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&checksum::crc32c(&out).to_le_bytes());
        out.try_into().expect("a footer has 80 bytes")
    }

    /// Checks and decodes the end of a file of `file_bytes`. Every format version has the version, the magic and
    /// the checksum where this one has them.
    pub(super) fn decode(
        bytes: &[u8; FOOTER_BYTES],
        file_bytes: u64,
    ) -> Result<Footer, FooterError> {
        let (body, crc) = bytes.split_at(FOOTER_BYTES - 4);
        // The magic comes first, so that a foreign file is called what it is.
        if &body[FOOTER_BYTES - 12..] != MAGIC {
            return Err("not a table: the magic is missing".into());
        }
        if crc != checksum::crc32c(body).to_le_bytes() {
            return Err("the footer's checksum does not match".into());
        }
        let (mut footer, version) = Footer::fields(body).expect("the footer has all its fields");
        match version {
            FORMAT_VERSION => {}
            UNSALTED_VERSION => footer.salt = footer.number << 32,
            newer if newer > FORMAT_VERSION => return Err(FooterError::Newer(newer)),
            _ => {
                let what = format!("table format {version} is no longer read");
                return Err(FooterError::Damaged(what));
            }
        }
        let limit = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let mut free = 0;
        for section in footer.sections() {
            let room = limit.checked_sub(section.offset);
            let needed = u64::from(section.bytes) + TRAILER_BYTES as u64;
            if section.offset < free || room.is_none_or(|room| room < needed) {
                return Err("the footer's sections overlap or leave the file".into());
            }
            free = section.end();
        }
        Ok(footer)
    }

    fn fields(body: &[u8]) -> Option<(Footer, u32)> {
        let mut decoder = Decoder::new(body);
        let mut section = || Some(Section { offset: decoder.u64()?, bytes: decoder.u32()? });
        let (range_tombstones, fences) = (section()?, section()?);
        let (point_index, properties) = (section()?, section()?);
        let (number, version, salt) = (decoder.u64()?, decoder.u32()?, decoder.u64()?);
        Some((Footer { range_tombstones, fences, point_index, properties, number, salt }, version))
    }

    /// The sections, in the order of the file.
    pub(super) fn sections(&self) -> [Section; 4] {
        [self.range_tombstones, self.fences, self.point_index, self.properties]
    }
}

/// A footer as the version before wrote it.
#[cfg(test)]
pub(super) fn as_unsalted(footer: &[u8; FOOTER_BYTES]) -> [u8; FOOTER_BYTES] {
    let mut before = *footer;
    before[56..60].copy_from_slice(&UNSALTED_VERSION.to_le_bytes());
    before[60..68].fill(0);
    let crc = checksum::crc32c(&before[..FOOTER_BYTES - 4]);
    before[FOOTER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer() -> Footer {
        Footer {
            range_tombstones: Section { offset: 100, bytes: 1 },
            fences: Section { offset: 110, bytes: 20 },
            point_index: Section { offset: 192, bytes: 64 },
            properties: Section { offset: 265, bytes: 30 },
            number: 7,
            salt: 0x1234_5678_9abc_def0,
        }
    }

    #[test]
    fn a_footer_round_trips() {
        let end = footer().properties.end() + FOOTER_BYTES as u64;
        assert_eq!(Footer::decode(&footer().encode(), end), Ok(footer()));
    }

    #[test]
    fn the_version_before_had_the_number_for_a_salt() {
        let end = footer().properties.end() + FOOTER_BYTES as u64;
        let before = as_unsalted(&footer().encode());
        assert_eq!(Footer::decode(&before, end), Ok(Footer { salt: 7 << 32, ..footer() }));
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let mut newer = footer().encode();
        newer[56..60].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        assert!(matches!(Footer::decode(&newer, 10_000), Err(FooterError::Damaged(_))));
        let crc = checksum::crc32c(&newer[..FOOTER_BYTES - 4]);
        newer[FOOTER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        let expected = Err(FooterError::Newer(FORMAT_VERSION + 1));
        assert_eq!(Footer::decode(&newer, 10_000), expected);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for bit in 0..FOOTER_BYTES * 8 {
            let mut bytes = footer().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::decode(&bytes, 10_000).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn sections_outside_the_file_or_over_each_other_are_refused() {
        let end = footer().properties.end() + FOOTER_BYTES as u64;
        assert!(Footer::decode(&footer().encode(), end - 1).is_err());
        assert!(Footer::decode(&footer().encode(), 0).is_err());
        let mut overlapping = footer();
        overlapping.fences.offset = 109;
        assert!(Footer::decode(&overlapping.encode(), end).is_err());
        let mut beyond = footer();
        beyond.properties.offset = u64::MAX - 8;
        assert!(Footer::decode(&beyond.encode(), end).is_err());
    }
}
