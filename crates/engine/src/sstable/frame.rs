//! The frame around every part of a table: compression and checksum.
//!
//! ```text
//! stored bytes | u8 compression | u64 xxh3 of both, seeded with the table's salt and the offset
//! ```
//!
//! Invariant: a frame that moved to another offset or file fails its checksum, also to one that has the same
//! number in another store or had it before. Bytes leave `decode` only after their checksum matched.

use std::cell::RefCell;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::fault_points::{Bug, is_planted};
use crate::options::Compression;

/// Bytes behind the stored bytes.
pub(super) const TRAILER_BYTES: usize = 9;

/// Most bytes of a block before compression.
pub(super) const RAW_BYTES_MAX: usize = 1 << 20;

/// Level at which Zstandard still writes hundreds of MB/s.
const ZSTD_LEVEL: i32 = 1;

/// Compression as it stands on disk: never renumber.
const NONE: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

/// Bytes in front of compressed ones: the raw size.
const SIZE_BYTES: usize = 4;

fn seed(salt: u64, offset: u64) -> u64 {
    salt ^ offset
}

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameError {
    /// The bytes are not those that were written here.
    Checksum,
    /// The checksum matches, but the contents can't be.
    Malformed,
}

impl FrameError {
    /// For an error message.
    pub(super) fn what(self) -> &'static str {
        match self {
            FrameError::Checksum => "the block's checksum does not match",
            FrameError::Malformed => "the block can't be decompressed",
        }
    }
}

/// Makes frames; holds the compressor and its buffer.
pub(super) struct FrameEncoder {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    buffer: Vec<u8>,
}

impl FrameEncoder {
    /// An encoder for one table.
    pub(super) fn new(compression: Compression) -> Self {
        let zstd = match compression {
            // Without a context (no memory for one) blocks are stored as they are.
            Compression::Zstd => zstd::bulk::Compressor::new(ZSTD_LEVEL).ok(),
            Compression::None | Compression::Lz4 => None,
        };
        FrameEncoder { compression, zstd, buffer: Vec::new() }
    }

    /// Makes the frame of a data block, which is what `out` holds from `start` on; answers the number of
    /// stored bytes.
    pub(super) fn enclose(
        &mut self,
        start: usize,
        salt: u64,
        offset: u64,
        out: &mut Vec<u8>,
    ) -> usize {
        let kind = match self.compress(&out[start..]) {
            Some((kind, len)) => {
                out.truncate(start);
                out.extend_from_slice(&self.buffer[..len]);
                kind
            }
            None => NONE,
        };
        enclose_stored(start, kind, salt, offset, out)
    }

    /// Compresses into `buffer`; `None` unless it saves at least an eighth.
    fn compress(&mut self, raw: &[u8]) -> Option<(u8, usize)> {
        let bound = match self.compression {
            Compression::None => return None,
            Compression::Lz4 => lz4_flex::block::get_maximum_output_size(raw.len()),
            Compression::Zstd => zstd::zstd_safe::compress_bound(raw.len()),
        };
        self.buffer.resize(SIZE_BYTES + bound, 0);
        let (size, body) = self.buffer.split_at_mut(SIZE_BYTES);
        size.copy_from_slice(&(raw.len() as u32).to_le_bytes());
        let (kind, len) = match &mut self.zstd {
            Some(zstd) => (ZSTD, zstd.compress_to_buffer(raw, body).ok()?),
            None if self.compression == Compression::Zstd => return None,
            None => (LZ4, lz4_flex::block::compress_into(raw, body).ok()?),
        };
        let stored = SIZE_BYTES + len;
        (stored <= raw.len() - raw.len() / 8).then_some((kind, stored))
    }
}

/// Appends the frame of bytes that are never compressed; answers their number.
pub(super) fn encode_plain(raw: &[u8], salt: u64, offset: u64, out: &mut Vec<u8>) -> usize {
    encode_stored(raw, NONE, salt, offset, out)
}

/// Appends the frame of bytes that are stored in this way; answers their number.
pub(super) fn encode_stored(
    stored: &[u8],
    kind: u8,
    salt: u64,
    offset: u64,
    out: &mut Vec<u8>,
) -> usize {
    let start = out.len();
    out.extend_from_slice(stored);
    enclose_stored(start, kind, salt, offset, out)
}

/// Makes the frame of what `out` holds from `start` on; answers the number of stored bytes.
fn enclose_stored(start: usize, kind: u8, salt: u64, offset: u64, out: &mut Vec<u8>) -> usize {
    let stored = out.len() - start;
    out.push(kind);
    let checksum = xxh3_64_with_seed(&out[start..], seed(salt, offset));
    out.extend_from_slice(&checksum.to_le_bytes());
    stored
}

/// Whether a frame's bytes are stored as they are. Not checked: a hint until `decode` has passed.
pub(super) fn is_plain(frame: &[u8]) -> bool {
    frame.len() >= TRAILER_BYTES && frame[frame.len() - TRAILER_BYTES] == NONE
}

/// Checks a frame and answers its raw bytes: a slice of `frame`, or decompressed.
pub(super) fn decode(frame: Bytes, salt: u64, offset: u64) -> Result<Bytes, FrameError> {
    match check(&frame, salt, offset)? {
        NONE => {
            let len = frame.len() - TRAILER_BYTES;
            Ok(frame.slice(..len))
        }
        kind => decompress(&frame[..frame.len() - TRAILER_BYTES], kind),
    }
}

/// Checks the checksum of a frame; answers the compression byte.
pub(super) fn check(frame: &[u8], salt: u64, offset: u64) -> Result<u8, FrameError> {
    let split = frame.len().checked_sub(8).ok_or(FrameError::Malformed)?;
    let (covered, checksum) = frame.split_at(split);
    let kind = *covered.last().ok_or(FrameError::Malformed)?;
    let expected = xxh3_64_with_seed(covered, seed(salt, offset));
    let matches = checksum == expected.to_le_bytes() || is_planted(Bug::SkipChecksum);
    if matches { Ok(kind) } else { Err(FrameError::Checksum) }
}

fn decompress(stored: &[u8], kind: u8) -> Result<Bytes, FrameError> {
    let (size, body) = stored.split_first_chunk::<SIZE_BYTES>().ok_or(FrameError::Malformed)?;
    let size = u32::from_le_bytes(*size) as usize;
    if size > RAW_BYTES_MAX {
        return Err(FrameError::Malformed);
    }
    let mut raw = vec![0; size];
    let len = match kind {
        LZ4 => lz4_flex::block::decompress_into(body, &mut raw).ok(),
        ZSTD => zstd_decompress(body, &mut raw),
        _ => None,
    };
    if len == Some(size) { Ok(Bytes::from(raw)) } else { Err(FrameError::Malformed) }
}

fn zstd_decompress(body: &[u8], raw: &mut [u8]) -> Option<usize> {
    thread_local! {
        // A context takes 150 KiB and longer to make than a block to decompress.
        static CONTEXT: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
            const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| {
        if context.is_none() {
            *context = zstd::bulk::Decompressor::new().ok();
        }
        context.as_mut()?.decompress_to_buffer(body, raw).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    fn encode(compression: Compression, raw: &[u8]) -> Bytes {
        let mut out = [b"before", raw].concat();
        let stored = FrameEncoder::new(compression).enclose(6, 3, 4096, &mut out);
        assert_eq!(6 + stored + TRAILER_BYTES, out.len());
        Bytes::from(out).slice(6..)
    }

    #[test]
    fn every_compression_round_trips() {
        let text = b"the same words, the same words, again and again ".repeat(50);
        let mut noise = vec![0u8; 3000];
        let mut state = 1u64;
        noise.fill_with(|| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        });
        for compression in ALL {
            for raw in [&b""[..], b"x", &text, &noise] {
                let frame = encode(compression, raw);
                assert_eq!(decode(frame, 3, 4096).unwrap(), raw);
            }
            let plain = compression == Compression::None;
            assert_eq!(is_plain(&encode(compression, &text)), plain);
            assert!(is_plain(&encode(compression, &noise)), "noise must be stored as it is");
        }
    }

    #[test]
    fn a_frame_in_another_place_or_file_fails() {
        let frame = encode(Compression::None, b"block");
        assert_eq!(decode(frame.clone(), 3, 4104), Err(FrameError::Checksum));
        assert_eq!(decode(frame, 4, 4096), Err(FrameError::Checksum));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for compression in ALL {
            let frame = encode(compression, &b"abcdefgh".repeat(20));
            for bit in 0..frame.len() * 8 {
                let mut damaged = frame.to_vec();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(damaged.into(), 3, 4096), Err(FrameError::Checksum));
            }
        }
    }

    #[test]
    fn impossible_contents_with_a_right_checksum_are_refused() {
        for kind in [LZ4, ZSTD, 3, 255] {
            for stored in [&b""[..], b"abc", &[255; 40], &[4, 0, 0, 0, 1, 2, 3]] {
                let mut out = Vec::new();
                encode_stored(stored, kind, 1, 0, &mut out);
                assert_eq!(decode(out.into(), 1, 0), Err(FrameError::Malformed));
            }
        }
        for len in 0..TRAILER_BYTES {
            assert!(decode(vec![0; len].into(), 1, 0).is_err());
        }
    }
}
