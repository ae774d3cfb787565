//! Values that are read one behind another: in large pieces, which the page cache doesn't keep.
//!
//! A range over more than memory holds reads each of its values once. Through the page cache each takes a
//! page from somebody else, for nothing, and a page that the system has to find first: where it has to get it
//! from a host, that takes longer than the disk. So a reader that has come far in the order in which values
//! lie, while they come from the disk, reads what lies before it a piece at a time into one buffer. Shorter
//! ranges, which may be read again, stay in the page cache as other values do.

use bytes::{Bytes, BytesMut};

use super::segment::Segment;
use crate::head::ValuePointer;

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Bytes that a disk reads on in the time in which it begins to read elsewhere, about 60 us. So many may lie
/// between two values that lie one behind another.
const JUMP_BYTES: u64 = 64 << 10;

/// No range of fewer bytes is a long one.
const LONG_BYTES_MIN: u64 = 16 << 20;

/// A long one is this part, as a divisor, of what the page cache may hold: as much as PostgreSQL has a scan
/// take before it lets it go round in a ring of its own.
const LONG_SHARE: u64 = 4;

/// What is known of a reader of values: whether it reads them in the order in which they lie.
#[derive(Debug, Default)]
pub struct Sequence {
    /// The segment of the value read last, and the offset behind it.
    last: (u64, u64),
    /// Bytes of values read one behind another, less `JUMP_BYTES` for each that lay elsewhere.
    credit: u64,
    /// So many make a long range, once that was asked.
    long_bytes: Option<u64>,
    /// What was read ahead.
    piece: Piece,
}

/// Bytes of a segment.
#[derive(Debug, Default)]
struct Piece {
    segment: u64,
    offset: u64,
    bytes: Bytes,
}

impl Piece {
    /// The bytes of a value, if all of them are here.
    fn get(&self, segment: u64, offset: u64, len: u32) -> Option<Bytes> {
        let from = offset.checked_sub(self.offset).filter(|_| segment == self.segment)?;
        let end = from.checked_add(u64::from(len)).filter(|&end| end <= self.bytes.len() as u64)?;
        Some(self.bytes.slice(from as usize..end as usize))
    }
}

impl Sequence {
    /// The value that a pointer names, which is at `offset` of `segment`, its checksum compared; `None` when
    /// it is to be read as any other, because it lies alone, or its bytes, or some near it, can't be read or
    /// are not what was written.
    /// Requires: values come from the disk.
    pub fn value(
        &mut self,
        segment: &Segment,
        offset: u64,
        pointer: &ValuePointer,
    ) -> Option<Bytes> {
        let &ValuePointer { length, checksum, .. } = pointer;
        let number = segment.number();
        let follows = self.go_to(number, offset, length);
        let mut value = self.piece.get(number, offset, length);
        if value.is_none() && follows && self.is_long(segment) {
            self.read_piece(segment, offset, length);
            value = self.piece.get(number, offset, length);
        }
        let value = value?;
        if segment.check_value(&value, offset, checksum).is_err() {
            self.piece = Piece::default();
            return None;
        }
        Some(value)
    }

    /// Notes that a value is read, and tells whether it lies behind the one before.
    fn go_to(&mut self, segment: u64, offset: u64, length: u32) -> bool {
        let (before, behind) = self.last;
        let gap = offset.checked_sub(behind).filter(|_| segment == before);
        let follows = gap.is_some_and(|gap| gap <= JUMP_BYTES);
        self.last = (segment, offset.saturating_add(u64::from(length)));
        self.credit = if follows {
            self.credit.saturating_add(u64::from(length))
        } else {
            self.credit.saturating_sub(JUMP_BYTES)
        };
        follows
    }

    /// Whether so much was read one behind another that the page cache would hold little else.
    fn is_long(&mut self, segment: &Segment) -> bool {
        self.credit >= LONG_BYTES_MIN && {
            let ask = || (segment.cached_bytes_max() / LONG_SHARE).max(LONG_BYTES_MIN);
            self.credit >= *self.long_bytes.get_or_insert_with(ask)
        }
    }

    /// Reads from `offset` on what is left of a segment, a piece of it or `length` bytes at most. What can't be
    /// read may be a value that nobody asked for: then the sequence begins anew, and values are read alone.
    fn read_piece(&mut self, segment: &Segment, offset: u64, length: u32) {
        let left = segment.end().saturating_sub(offset);
        let wanted = PIECE_BYTES.max(u64::from(length)).min(left) as usize;
        // Its memory is used again, unless somebody holds a value of the piece before.
        let held = std::mem::take(&mut self.piece).bytes.try_into_mut();
        let mut bytes = held.unwrap_or_else(|_| BytesMut::new());
        bytes.resize(wanted, 0);
        match segment.read_once(&mut bytes, offset) {
            Ok(()) => {
                self.piece = Piece { segment: segment.number(), offset, bytes: bytes.freeze() };
            }
            Err(_) => self.credit = 0,
        }
    }
}
