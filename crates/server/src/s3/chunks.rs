//! The chunks of a body in `aws-chunked`, followed as they pass:
//!
//! ```text
//! size in hex [;chunk-signature=...] CRLF  bytes CRLF   of each chunk
//! 0 [;chunk-signature=...] CRLF  trailers               at the end
//! ```
//!
//! `s3s` holds a chunk in memory until all of it has come, and reads eight digits of a size. So without
//! signatures each slice that comes becomes a chunk of its own; with them, which are of whole chunks, the chunks
//! pass as they are and may not be large. Small slices of them are copied together: each costs 32 bytes, and may
//! keep a buffer of which it is the least part.

use std::collections::VecDeque;

use bytes::Bytes;
use memchr::memchr;

/// The largest chunk with a signature. Clients send 64 KiB to 1 MiB.
pub(crate) const SIGNED_BYTES_MAX: u64 = 16 << 20;

/// Slices of a signed chunk that are shorter are gathered until there is so much.
const SLICE_BYTES: usize = 64 << 10;

/// The longest line before a chunk; with a signature it has 83 bytes and the size.
const LINE_BYTES_MAX: usize = 128;

/// What is wrong with a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadChunk {
    Malformed,
    /// With a signature.
    TooLarge,
}

/// Where in its chunks a body stands.
pub(crate) struct Chunks {
    is_signed: bool,
    stands: Stands,
    /// What has come of the line before a chunk.
    line: Vec<u8>,
    /// Bytes of the latest chunk.
    chunk_bytes: u64,
    /// Of a signed chunk, what isn't passed on yet.
    gathered: Vec<u8>,
}

enum Stands {
    Line,
    /// So many are left of the chunk's.
    Bytes(u64),
    /// Before one of the two that end the chunk.
    End(&'static [u8]),
    Trailers,
}

impl Chunks {
    pub(crate) fn new(is_signed: bool) -> Chunks {
        let (line, gathered) = (Vec::new(), Vec::new());
        Chunks { is_signed, stands: Stands::Line, line, chunk_bytes: 0, gathered }
    }

    pub(crate) fn is_signed(&self) -> bool {
        self.is_signed
    }

    /// Bytes of the latest chunk.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Whether the last chunk has come; trailers may follow.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.stands, Stands::Trailers)
    }

    /// Follows what has come, and adds what is to be passed on to `passed`: at a chunk's end all of it.
    pub(crate) fn push(
        &mut self,
        mut bytes: Bytes,
        passed: &mut VecDeque<Bytes>,
    ) -> Result<(), BadChunk> {
        while !bytes.is_empty() {
            match self.stands {
                Stands::Line => {
                    let end = memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1);
                    if self.line.len() + end > LINE_BYTES_MAX {
                        return Err(BadChunk::Malformed);
                    }
                    let part = bytes.split_to(end);
                    self.line.extend_from_slice(&part);
                    if self.line.ends_with(b"\n") {
                        self.begin(passed)?;
                    }
                    self.gather(part, passed);
                    if self.has_ended() {
                        self.pass_gathered(passed);
                    }
                }
                Stands::Bytes(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    let left = left - count as u64;
                    self.stands =
                        if left == 0 { Stands::End(b"\r\n") } else { Stands::Bytes(left) };
                    let slice = bytes.split_to(count);
                    if self.is_signed {
                        self.gather(slice, passed);
                    } else {
                        let line = Bytes::from(format!("{count:x}\r\n"));
                        passed.extend([line, slice, Bytes::from_static(b"\r\n")]);
                    }
                }
                Stands::End(end) => {
                    if !bytes.starts_with(&end[..1]) {
                        return Err(BadChunk::Malformed);
                    }
                    self.gather(bytes.split_to(1), passed);
                    if end.len() == 1 {
                        self.stands = Stands::Line;
                        self.pass_gathered(passed);
                    } else {
                        self.stands = Stands::End(&end[1..]);
                    }
                }
                Stands::Trailers => passed.push_back(std::mem::take(&mut bytes)),
            }
        }
        Ok(())
    }

    /// Gathers bytes with a signature, which are to be passed on as they are.
    fn gather(&mut self, mut slice: Bytes, passed: &mut VecDeque<Bytes>) {
        if !self.is_signed {
            return;
        }
        if slice.len() >= SLICE_BYTES {
            self.pass_gathered(passed);
            passed.push_back(slice);
            return;
        }
        while !slice.is_empty() {
            if self.gathered.capacity() == 0 {
                let left = if let Stands::Bytes(left) = self.stands { left } else { 0 };
                let wanted = (slice.len() as u64 + left + 2).min(SLICE_BYTES as u64);
                self.gathered.reserve_exact(wanted as usize);
            }
            let count = slice.len().min(SLICE_BYTES - self.gathered.len());
            self.gathered.extend_from_slice(&slice.split_to(count));
            if self.gathered.len() == SLICE_BYTES {
                self.pass_gathered(passed);
            }
        }
    }

    fn pass_gathered(&mut self, passed: &mut VecDeque<Bytes>) {
        if !self.gathered.is_empty() {
            passed.push_back(Bytes::from(std::mem::take(&mut self.gathered)));
        }
    }

    /// Begins the chunk whose line has come.
    fn begin(&mut self, passed: &mut VecDeque<Bytes>) -> Result<(), BadChunk> {
        self.chunk_bytes = size(&self.line, self.is_signed)?;
        self.line.clear();
        if self.chunk_bytes > 0 {
            self.stands = Stands::Bytes(self.chunk_bytes);
            return Ok(());
        }
        self.stands = Stands::Trailers;
        if !self.is_signed {
            passed.push_back(Bytes::from_static(b"0\r\n"));
        }
        Ok(())
    }
}

/// The size in the line before a chunk.
fn size(line: &[u8], is_signed: bool) -> Result<u64, BadChunk> {
    let line = line.strip_suffix(b"\r\n").ok_or(BadChunk::Malformed)?;
    let digits = match line.iter().position(|&byte| byte == b';') {
        // What its signature is wrong of is for `s3s` to say.
        Some(at) if is_signed => &line[..at],
        _ => line,
    };
    let digits = std::str::from_utf8(digits).map_err(|_| BadChunk::Malformed)?;
    // A sign would be taken for a number's.
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(BadChunk::Malformed);
    }
    // What passes as it is must be read by `s3s` as it is here.
    if is_signed && digits.len() > 8 {
        return Err(BadChunk::TooLarge);
    }
    let size = u64::from_str_radix(digits, 16).map_err(|_| BadChunk::Malformed)?;
    if is_signed && size > SIGNED_BYTES_MAX { Err(BadChunk::TooLarge) } else { Ok(size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_BYTES: usize = 64 << 10;

    /// What a body becomes that comes in frames of this size, and whether it has ended.
    fn passed(
        body: &[u8],
        frame_bytes: usize,
        is_signed: bool,
    ) -> Result<(Vec<u8>, bool), BadChunk> {
        let (mut chunks, mut passed) = (Chunks::new(is_signed), VecDeque::new());
        for frame in body.chunks(frame_bytes) {
            chunks.push(Bytes::copy_from_slice(frame), &mut passed)?;
        }
        Ok((Vec::from(passed).concat(), chunks.has_ended()))
    }

    /// The bytes in chunks, and what comes after the last.
    fn decoded(mut chunks: &[u8]) -> (Vec<u8>, &[u8]) {
        let mut bytes = Vec::new();
        loop {
            let end = chunks.windows(2).position(|two| two == b"\r\n").unwrap();
            let size = std::str::from_utf8(&chunks[..end]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            chunks = &chunks[end + 2..];
            if size == 0 {
                return (bytes, chunks);
            }
            bytes.extend_from_slice(&chunks[..size]);
            chunks = chunks[size..].strip_prefix(b"\r\n").unwrap();
        }
    }

    fn body(chunks: &[&[u8]], trailers: &[u8]) -> Vec<u8> {
        let chunk =
            |bytes: &&[u8]| [format!("{:X}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        let mut body = chunks.iter().map(chunk).collect::<Vec<_>>().concat();
        body.extend_from_slice(b"0\r\n");
        body.extend_from_slice(trailers);
        body
    }

    /// A chunk was held in memory until all of it had come.
    #[test]
    fn bytes_of_a_large_chunk_pass_as_they_come() {
        let large: Vec<u8> = (0..10 << 20).map(|at: u32| (at % 251) as u8).collect();
        let trailers = b"x-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        let body = body(&[&large, b"more"], trailers);
        let (mut chunks, mut passed) = (Chunks::new(false), VecDeque::new());
        let mut all = Vec::new();
        for (number, frame) in (0..).zip(body.chunks(FRAME_BYTES)) {
            chunks.push(Bytes::copy_from_slice(frame), &mut passed).unwrap();
            assert!(passed.iter().map(Bytes::len).sum::<usize>() >= frame.len() - 16, "{number}");
            assert!(passed.iter().all(|slice| slice.len() <= FRAME_BYTES));
            passed.drain(..).for_each(|slice| all.extend_from_slice(&slice));
        }
        assert!(chunks.has_ended());
        let (bytes, rest) = decoded(&all);
        assert!(bytes == [&large[..], b"more"].concat() && rest == trailers);
    }

    #[test]
    fn frames_may_end_anywhere() {
        let body = body(&[b"one", b"\r\n", &[7; 300]], b"\r\n");
        let whole = passed(&body, usize::MAX, false).unwrap();
        for frame_bytes in 1..40 {
            let (split, has_ended) = passed(&body, frame_bytes, false).unwrap();
            assert!(has_ended && decoded(&split) == decoded(&whole.0), "{frame_bytes}");
            assert_eq!(passed(&body, frame_bytes, true).unwrap(), (body.clone(), true));
        }
        for end in 0..body.len() - 4 {
            assert!(!passed(&body[..end], 7, false).unwrap().1, "{end}");
        }
        assert_eq!(passed(b"0\r\n", 1, false), Ok((b"0\r\n".to_vec(), true)));
    }

    /// Of a size of nine digits eight were read.
    #[test]
    fn sizes_have_as_many_digits_as_they_need() {
        let padded = passed(b"000000000000000000005\r\nabcde\r\n0000000000\r\n\r\n", 9, false);
        assert_eq!(decoded(&padded.unwrap().0), (b"abcde".to_vec(), &b"\r\n"[..]));
        let mut chunks = Chunks::new(false);
        for (size, bytes) in [("140000000", 5 << 30), ("ffffffffffffffff", u64::MAX)] {
            let mut chunks = Chunks::new(false);
            let mut passed = VecDeque::new();
            let line = format!("{size}\r\nabc");
            chunks.push(Bytes::from(line), &mut passed).unwrap();
            assert_eq!(Vec::from(passed).concat(), b"3\r\nabc\r\n");
            assert!(chunks.chunk_bytes() == bytes && !chunks.has_ended());
        }
        let too_large =
            chunks.push(Bytes::from_static(b"10000000000000000\r\n"), &mut VecDeque::new());
        assert_eq!(too_large, Err(BadChunk::Malformed));
    }

    /// Each byte of a signed chunk that came in a frame of its own was held as a slice, of 32 bytes and with the
    /// buffer that it was read into: 16 MiB were 512 MiB, counted as 16.
    #[test]
    fn small_slices_of_a_signed_chunk_are_passed_on_together() {
        let bytes: Vec<u8> = (0..400_000).map(|at: u32| (at % 251) as u8).collect();
        let line = format!("{:x};chunk-signature=00\r\n", bytes.len());
        let body = [line.as_bytes(), &bytes, b"\r\n0;chunk-signature=00\r\n", b"\r\n"].concat();
        for frame_bytes in [1, 1000, SLICE_BYTES - 1, SLICE_BYTES, 3 * SLICE_BYTES] {
            let (mut chunks, mut passed) = (Chunks::new(true), VecDeque::new());
            for frame in body.chunks(frame_bytes) {
                chunks.push(Bytes::copy_from_slice(frame), &mut passed).unwrap();
                assert!(chunks.gathered.capacity() <= 2 * SLICE_BYTES);
            }
            assert!(passed.len() <= 2 * bytes.len() / SLICE_BYTES + 4, "{frame_bytes}");
            assert_eq!(Vec::from(passed).concat(), body, "{frame_bytes}");
        }
        // What there is of a chunk at its end isn't kept back.
        let (mut chunks, mut passed) = (Chunks::new(true), VecDeque::new());
        for end in 0..body.len() - 2 {
            chunks.push(Bytes::copy_from_slice(&body[end..=end]), &mut passed).unwrap();
            if body[..=end].ends_with(b"\r\n") && end > line.len() {
                assert_eq!(passed.iter().map(Bytes::len).sum::<usize>(), end + 1);
            }
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        let long = [b'0'; LINE_BYTES_MAX + 1];
        for body in [
            &b"\r\n"[..],
            b"\n",
            b"5\nabcde",
            b"g\r\n",
            b"+5\r\nabcde\r\n",
            b"-5\r\n",
            b" 5\r\n",
            b"0x5\r\n",
            b"5\r\r\n",
            b"\xff\r\n",
            b"5\r\nabcdefg\r\n",
            b"5\r\nabcde\rX",
            &long,
        ] {
            for (frame_bytes, is_signed) in [(1, false), (1000, false), (1, true), (1000, true)] {
                let refused = passed(body, frame_bytes, is_signed);
                assert_eq!(refused, Err(BadChunk::Malformed), "{}", body.escape_ascii());
            }
        }
        // These have no signatures.
        let signed = b"5;chunk-signature=00\r\nabcde\r\n";
        assert_eq!(passed(signed, 9, false), Err(BadChunk::Malformed));
        assert!(passed(signed, 9, true).is_ok());
    }

    #[test]
    fn signed_chunks_may_not_be_large() {
        let line =
            |size: &str| passed(format!("{size};chunk-signature=00\r\n").as_bytes(), 9, true);
        assert!(line("1000000").is_ok() && line("01000000").is_ok());
        for size in ["1000001", "ffffffff", "100000000", "000000005"] {
            assert_eq!(line(size), Err(BadChunk::TooLarge), "{size}");
        }
    }
}
