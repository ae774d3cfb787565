//! The frame of a journal record: its 48-byte header and what the checksums are seeded with.
//!
//! Invariant: a header decodes only at the offset, and in the use of the file, it was written for.
//! What a group's meta section says is in [`super::group`].

use crate::checksum;
use crate::coding::Decoder;
use crate::key::SeqNo;

/// Bytes of a record's header.
pub const RECORD_HEADER_BYTES: u64 = 48;

/// Records start at multiples of this.
pub const RECORD_ALIGNMENT: u64 = 8;

/// Bytes of a `Start` record: header and three `u64`.
pub const START_RECORD_BYTES: u64 = RECORD_HEADER_BYTES + START_META_BYTES as u64;

/// Bytes of a `Start` record's meta section.
pub const START_META_BYTES: usize = 24;

const HEADER: usize = RECORD_HEADER_BYTES as usize;

/// Bytes that every checksum begins with: those of the salt, and of an offset.
pub(super) const SEED_BYTES: usize = 2 * size_of::<u64>();

/// Bytes of the header's first field, the checksum of all others.
const CRC_BYTES: usize = 4;
/// Bytes that it is the checksum of.
const CHECKED_BYTES: usize = SEED_BYTES + HEADER - CRC_BYTES;

/// Those bytes. Up to the first multiple of 8 a checksum goes byte by byte.
#[repr(align(8))]
struct Checked([u8; CHECKED_BYTES]);

/// What a record is. On disk: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordType {
    /// Writes applied whole or not at all.
    Group = 1,
    /// Nothing but the LSN up to which the journal was synced.
    Mark = 2,
    /// The first record of a log segment, naming its predecessor.
    Start = 3,
    /// The last record of a collected segment: where values came from.
    Index = 4,
}

impl RecordType {
    fn from_u8(byte: u8) -> Option<RecordType> {
        match byte {
            1 => Some(RecordType::Group),
            2 => Some(RecordType::Mark),
            3 => Some(RecordType::Start),
            4 => Some(RecordType::Index),
            _ => None,
        }
    }
}

/// The random number that seeds every checksum of one use of a segment's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Salt(u64);

impl Salt {
    /// The salt with this value.
    pub fn new(value: u64) -> Salt {
        Salt(value)
    }

    /// The number that stands in the segment header.
    pub fn value(self) -> u64 {
        self.0
    }

    /// The CRC-32C of the salt, `offset` (both as `u64`) and `bytes`, one after the other.
    #[inline]
    pub fn crc(self, offset: u64, bytes: &[u8]) -> u32 {
        checksum::crc32c_append(checksum::crc32c(&self.seed(offset)), bytes)
    }

    /// As `crc`, of the bytes behind the first `SEED_BYTES` of a buffer, which are written over: one checksum
    /// instead of two, each of which costs a call.
    #[inline]
    pub(super) fn crc_in(self, offset: u64, buffer: &mut [u8]) -> u32 {
        buffer[..SEED_BYTES].copy_from_slice(&self.seed(offset));
        checksum::crc32c(buffer)
    }

    #[inline]
    fn seed(self, offset: u64) -> [u8; SEED_BYTES] {
        let mut seed = [0; SEED_BYTES];
        let (salt, at) = seed.split_at_mut(size_of::<u64>());
        salt.copy_from_slice(&self.0.to_le_bytes());
        at.copy_from_slice(&offset.to_le_bytes());
        seed
    }
}

/// The header of a record, without its own checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// What the record is.
    pub record_type: RecordType,
    /// SeqNo of the first entry; of the next entry to come when there are none.
    pub first_seqno: SeqNo,
    /// LSN below which everything was synced when the record was written.
    pub synced_upto: u64,
    /// When it was written, in milliseconds since the Unix epoch.
    pub written_at_ms: u64,
    /// Bytes of the meta section.
    pub meta_bytes: u32,
    /// Bytes of the value section.
    pub value_bytes: u32,
    /// Number of entries.
    pub count: u32,
    /// Checksum of the meta section.
    pub meta_crc: u32,
}

impl RecordHeader {
    /// The 48 bytes that stand at `offset`.
    #[inline]
    pub fn encode(&self, salt: Salt, offset: u64) -> [u8; HEADER] {
        // What the checksum is of ends with the header but for its first field, which is the checksum.
        let Checked(buffer) = &mut Checked([0; CHECKED_BYTES]);
        let out = &mut buffer[SEED_BYTES - CRC_BYTES..];
        out[4..8].copy_from_slice(&self.meta_crc.to_le_bytes());
        out[8..16].copy_from_slice(&self.first_seqno.to_le_bytes());
        out[16..24].copy_from_slice(&self.synced_upto.to_le_bytes());
        out[24..32].copy_from_slice(&self.written_at_ms.to_le_bytes());
        out[32..36].copy_from_slice(&self.meta_bytes.to_le_bytes());
        out[36..40].copy_from_slice(&self.value_bytes.to_le_bytes());
        out[40..44].copy_from_slice(&self.count.to_le_bytes());
        out[44] = self.record_type as u8;
        let crc = salt.crc_in(offset, buffer);
        let mut header = [0; HEADER];
        header.copy_from_slice(&buffer[SEED_BYTES - CRC_BYTES..]);
        header[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// The header at the front of `bytes`; `None` when they are no header written for this place.
    pub fn decode(bytes: &[u8], salt: Salt, offset: u64) -> Option<RecordHeader> {
        let bytes = bytes.get(..HEADER)?;
        // The cheap tests come first: a scan for records asks this at every eighth byte.
        let record_type = RecordType::from_u8(bytes[44])?;
        if bytes[45..] != [0, 0, 0] {
            return None;
        }
        let mut fields = Decoder::new(bytes);
        let Checked(buffer) = &mut Checked([0; CHECKED_BYTES]);
        buffer[SEED_BYTES..].copy_from_slice(&bytes[CRC_BYTES..]);
        if fields.u32()? != salt.crc_in(offset, buffer) {
            return None;
        }
        let meta_crc = fields.u32()?;
        let header = RecordHeader {
            record_type,
            meta_crc,
            first_seqno: fields.u64()?,
            synced_upto: fields.u64()?,
            written_at_ms: fields.u64()?,
            meta_bytes: fields.u32()?,
            value_bytes: fields.u32()?,
            count: fields.u32()?,
        };
        header.is_well_formed().then_some(header)
    }

    /// Bytes of the whole record, its padding included.
    pub fn record_bytes(&self) -> u64 {
        record_bytes(self.meta_bytes, self.value_bytes)
    }

    /// Offset of the value section of a record at `record_offset`.
    pub fn values_offset(&self, record_offset: u64) -> u64 {
        record_offset + RECORD_HEADER_BYTES + u64::from(self.meta_bytes)
    }

    fn is_well_formed(&self) -> bool {
        match self.record_type {
            // The shortest entry, a deletion of a 1-byte key, has 3 bytes of meta.
            RecordType::Group | RecordType::Index => {
                u64::from(self.count) * 3 <= u64::from(self.meta_bytes)
            }
            RecordType::Mark => self.meta_bytes == 0 && self.value_bytes == 0 && self.count == 0,
            RecordType::Start => {
                self.meta_bytes == START_META_BYTES as u32
                    && self.value_bytes == 0
                    && self.count == 0
            }
        }
    }
}

/// Bytes of a record with sections of these sizes, its padding included.
pub fn record_bytes(meta_bytes: u32, value_bytes: u32) -> u64 {
    (RECORD_HEADER_BYTES + u64::from(meta_bytes) + u64::from(value_bytes))
        .next_multiple_of(RECORD_ALIGNMENT)
}

/// What the `Start` record of a segment says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// LSN of the record itself.
    pub lsn: u64,
    /// Number of the segment before; 0 for none.
    pub predecessor: u64,
    /// Where the predecessor's records end.
    pub predecessor_end: u64,
}

impl Start {
    /// The meta section.
    pub fn encode(&self) -> [u8; START_META_BYTES] {
        let mut out = [0u8; START_META_BYTES];
        out[..8].copy_from_slice(&self.lsn.to_le_bytes());
        out[8..16].copy_from_slice(&self.predecessor.to_le_bytes());
        out[16..].copy_from_slice(&self.predecessor_end.to_le_bytes());
        out
    }

    /// What a meta section says.
    pub fn decode(meta: &[u8]) -> Option<Start> {
        let mut fields = Decoder::new(meta);
        let start = Start {
            lsn: fields.u64()?,
            predecessor: fields.u64()?,
            predecessor_end: fields.u64()?,
        };
        (fields.remaining() == 0).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> RecordHeader {
        RecordHeader {
            record_type: RecordType::Group,
            first_seqno: 7,
            synced_upto: 640,
            written_at_ms: 1_700_000_000_000,
            meta_bytes: 30,
            value_bytes: 5,
            count: 2,
            meta_crc: 99,
        }
    }

    #[test]
    fn a_header_decodes_only_with_its_salt_and_at_its_offset() {
        let salt = Salt::new(1);
        let bytes = header().encode(salt, 64);
        assert_eq!(RecordHeader::decode(&bytes, salt, 64), Some(header()));
        assert_eq!(RecordHeader::decode(&bytes, salt, 72), None);
        assert_eq!(RecordHeader::decode(&bytes, Salt::new(2), 64), None);
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_seen() {
        let salt = Salt::new(1);
        let bytes = header().encode(salt, 64);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&damaged, salt, 64), None, "bit {bit}");
        }
    }

    #[test]
    fn a_salted_checksum_is_of_all_its_parts_one_after_the_other() {
        let bytes: Vec<u8> = (0..200).collect();
        let (salt, offset) = (Salt::new(7), 4096u64);
        for len in [0, 1, 44, 63, 64, 65, 200] {
            let seed = [salt.value().to_le_bytes(), offset.to_le_bytes()].concat();
            let whole = [&seed, &bytes[..len]].concat();
            assert_eq!(salt.crc(offset, &bytes[..len]), checksum::crc32c(&whole), "{len}");
            let mut buffer = [&[9; SEED_BYTES], &bytes[..len]].concat();
            assert_eq!(salt.crc_in(offset, &mut buffer), checksum::crc32c(&whole), "{len}");
            assert_eq!(buffer, whole);
        }
    }

    #[test]
    fn zeros_are_no_header() {
        assert_eq!(RecordHeader::decode(&[0; HEADER], Salt::new(0), 0), None);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = RecordHeader::decode(&bytes, Salt::new(5), 64);
            let _ = Start::decode(&bytes);
        }
    }
}
