//! Integers to bytes and back: little-endian fixed widths and LEB128 varints; and moves of a few bytes.
//!
//! Invariant: decoding any bytes never panics and never allocates; it answers `None` when they don't fit.

/// Appends `value` as a varint of 1 to 10 bytes (LEB128).
#[inline]
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    varint_bytes(value, |byte| out.push(byte));
}

/// Hands out the bytes of a varint.
#[inline(always)]
fn varint_bytes(mut value: u64, mut put: impl FnMut(u8)) {
    while value >= 0x80 {
        put(value as u8 | 0x80);
        value >>= 7;
    }
    put(value as u8);
}

/// Bytes that `put_varint` would append.
#[inline]
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a varint length and the bytes. Inlined always: called, it cost a flush 33 instructions a put.
#[inline(always)]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    append(out, bytes);
}

/// Appends bytes that are few, as those of keys are: see [`copy_to`].
#[inline(always)]
pub fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len());
    let len = out.len();
    // SAFETY: room for them was made behind the `len` bytes that are there, and they are written before they
    // count. Nobody else has a reference to it.
    unsafe {
        copy_to(bytes, out.as_mut_ptr().add(len));
        out.set_len(len + bytes.len());
    }
}

/// Copies bytes over others. Requires: they are as many.
#[inline(always)]
pub fn copy(bytes: &[u8], place: &mut [u8]) {
    assert_eq!(bytes.len(), place.len());
    // SAFETY: the place has as many bytes, and a reference of its own.
    unsafe { copy_to(bytes, place.as_mut_ptr()) };
}

/// Copies bytes to an address. Of 8 to 64, as keys and headers are, that takes two moves, which may overlap, and
/// no call: one costs 25 instructions, and a put made a dozen.
///
/// # Safety
///
/// So many bytes from there on may be written to, and are none of `bytes`.
#[inline(always)]
pub unsafe fn copy_to(bytes: &[u8], to: *mut u8) {
    /// # Safety
    ///
    /// As `copy_to`, of at least `N` bytes.
    #[inline(always)]
    unsafe fn move_ends<const N: usize>(bytes: &[u8], to: *mut u8) {
        let last = bytes.len() - N;
        // SAFETY: both ends are inside the bytes, which are at least `N`, and so inside their new place.
        unsafe {
            let front: [u8; N] = bytes.as_ptr().cast::<[u8; N]>().read_unaligned();
            let back: [u8; N] = bytes.as_ptr().add(last).cast::<[u8; N]>().read_unaligned();
            to.cast::<[u8; N]>().write_unaligned(front);
            to.add(last).cast::<[u8; N]>().write_unaligned(back);
        }
    }
    // SAFETY: the caller's, and the lengths are as asked for.
    unsafe {
        match bytes.len() {
            0 => {}
            8..=16 => move_ends::<8>(bytes, to),
            17..=32 => move_ends::<16>(bytes, to),
            33..=64 => move_ends::<32>(bytes, to),
            len => std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len),
        }
    }
}

/// Writes fields from the front of a byte slice on, which has room for them: what grows with each field asks
/// for room each time.
#[derive(Debug)]
pub struct Encoder<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Encoder<'a> {
    /// An encoder at the first byte. What is written behind the slice's end panics.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Encoder { bytes, at: 0 }
    }

    /// Offset of the next byte from the start.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Leaves so many bytes as they are.
    #[inline]
    pub fn skip(&mut self, len: usize) {
        self.at += len;
    }

    /// These bytes.
    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) {
        copy(bytes, &mut self.bytes[self.at..self.at + bytes.len()]);
        self.at += bytes.len();
    }

    /// The first `len` of these bytes. What lies behind may be written over too, until it is written itself:
    /// with that a few bytes, as suffixes of keys are, take one move of sixteen, whatever their number.
    #[inline(always)]
    pub fn put_front(&mut self, bytes: &[u8], len: usize) {
        match (bytes.first_chunk::<16>(), self.bytes[self.at..].first_chunk_mut::<16>()) {
            (Some(front), Some(place)) if len <= 16 => {
                *place = *front;
                self.at += len;
            }
            _ => self.put(&bytes[..len]),
        }
    }

    /// These bytes at an offset from the start, written before or skipped.
    #[inline]
    pub fn put_at<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.bytes[at..at + N].copy_from_slice(&bytes);
    }

    /// A varint, as of [`put_varint`].
    #[inline]
    pub fn put_varint(&mut self, value: u64) {
        varint_bytes(value, |byte| {
            self.bytes[self.at] = byte;
            self.at += 1;
        });
    }
}

/// Reads fields from the front of a byte slice, remembering how far it got.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    /// A decoder at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { bytes, at: 0 }
    }

    /// Offset of the next byte from the start.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// A little-endian `u16`.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    /// A little-endian `u32`.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A little-endian `u64`.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A varint; `None` also for one that overflows 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Passes a varint that isn't wanted. Where it ends is taken from a word, not from byte after byte: of
    /// those that have now one byte and now two, the processor would guess wrong.
    #[inline(always)]
    pub fn skip_varint(&mut self) -> Option<()> {
        let word = self.bytes.get(self.at..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
        match word.map(|word| !word & 0x8080_8080_8080_8080).filter(|&ends| ends != 0) {
            Some(ends) => self.at += ends.trailing_zeros() as usize / 8 + 1,
            None => drop(self.varint()?),
        }
        Some(())
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let slice = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(slice)
    }

    /// A varint length and that many bytes.
    #[inline]
    pub fn length_prefixed(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_tell_their_length() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value));
                assert_eq!(Decoder::new(&out).varint(), Some(value));
                // What comes behind it is none of its own, whatever it is.
                for behind in [&[][..], &[0; 9], &[0xff; 9]] {
                    let bytes = [&out, behind].concat();
                    let mut decoder = Decoder::new(&bytes);
                    decoder.skip_varint().unwrap();
                    assert_eq!(decoder.remaining(), behind.len());
                }
            }
        }
    }

    #[test]
    fn an_encoder_writes_what_appending_does() {
        let bytes: Vec<u8> = (1..=40).collect();
        for len in 0..=bytes.len() {
            for room in [0, 1, 7, 40] {
                let mut place = vec![0; 9 + len + room];
                let mut encoder = Encoder::new(&mut place);
                encoder.put(&bytes[..3]);
                encoder.skip(2);
                encoder.put_front(&bytes, len);
                encoder.put_varint(300);
                encoder.put_varint(7);
                encoder.put_at(3, [8, 9]);
                let end = encoder.position();
                let mut expected = vec![1, 2, 3, 8, 9];
                append(&mut expected, &bytes[..len]);
                put_varint(&mut expected, 300);
                put_varint(&mut expected, 7);
                assert_eq!(place[..end], expected, "{len} bytes with {room} behind");
            }
        }
    }

    #[test]
    fn moves_of_any_length_touch_nothing_else() {
        let bytes: Vec<u8> = (1..=100).collect();
        for len in 0..=bytes.len() {
            let mut place = [0; 110];
            copy(&bytes[..len], &mut place[5..5 + len]);
            assert_eq!(place, *[&[0; 5], &bytes[..len], &vec![0; 105 - len]].concat());
            let mut out = vec![7];
            append(&mut out, &bytes[..len]);
            assert_eq!(out, [&[7], &bytes[..len]].concat());
        }
    }

    #[test]
    fn short_or_overlong_input_is_none() {
        assert_eq!(Decoder::new(&[0x80]).varint(), None);
        assert_eq!(Decoder::new(&[0xff; 11]).varint(), None);
        for bad in [&[][..], &[0x80], &[0x80; 8], &[0xff; 11]] {
            assert_eq!(Decoder::new(bad).skip_varint(), None);
        }
        assert_eq!(Decoder::new(&[5, 1, 2]).length_prefixed(), None);
        assert_eq!(Decoder::new(&[1, 2, 3]).u32(), None);
    }
}
