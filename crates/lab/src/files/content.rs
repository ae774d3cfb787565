//! The bytes of a file: the same for the same seed, in Rust and in JavaScript.
//!
//! 1. One chunk of 128 KiB is filled with 32-bit words of xorshift (Marsaglia 2003, shifts 13, 17, 5),
//!    little-endian, from the seed; 0 counts as 1.
//! 2. Chunk `n` of the file is that chunk with `n` and the seed as its first two words.
//!
//! So the chunks differ, can't be compressed, and cost next to nothing to make while they are timed.

/// Bytes of a chunk, as KFS cuts files.
pub const CHUNK_BYTES: usize = 128 << 10;

/// The bytes of one file.
#[derive(Debug, Clone)]
pub struct Content {
    bytes: u64,
    chunk: Vec<u8>,
}

impl Content {
    /// A file of so many bytes.
    pub fn new(seed: u32, bytes: u64) -> Content {
        let mut word = seed.max(1);
        let mut next = || {
            word ^= word << 13;
            word ^= word >> 17;
            word ^= word << 5;
            word
        };
        let mut chunk: Vec<u8> = (0..CHUNK_BYTES / 4).flat_map(|_| next().to_le_bytes()).collect();
        chunk[4..8].copy_from_slice(&seed.to_le_bytes());
        Content { bytes, chunk }
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Chunks of the file; the last may be short.
    pub fn chunks(&self) -> u32 {
        u32::try_from(self.bytes.div_ceil(CHUNK_BYTES as u64)).unwrap_or(u32::MAX)
    }

    /// The bytes of a chunk.
    ///
    /// Requires: the file has it.
    pub fn chunk(&mut self, at: u32) -> &[u8] {
        self.chunk[..4].copy_from_slice(&at.to_le_bytes());
        let rest = self.bytes - u64::from(at) * CHUNK_BYTES as u64;
        &self.chunk[..usize::try_from(rest).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)]
    }

    /// The sum of the words of chunk 0, by which two who make the same bytes know it.
    pub fn sum(&mut self) -> u32 {
        self.chunk[..4].fill(0);
        let words = self.chunk.chunks_exact(4);
        words.fold(0, |sum, word| {
            sum.wrapping_add(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        })
    }
}

/// Compares what is read, piece by piece, with what was written.
#[derive(Debug)]
pub struct Check {
    content: Content,
    position: u64,
    wrong_at: Option<u64>,
}

impl Check {
    /// Nothing is read yet.
    pub fn new(content: Content) -> Check {
        Check { content, position: 0, wrong_at: None }
    }

    /// Takes the next bytes.
    pub fn piece(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.wrong_at.is_none() {
            if self.position >= self.content.bytes {
                self.wrong_at = Some(self.position);
                return;
            }
            let at = (self.position / CHUNK_BYTES as u64) as u32;
            let from = (self.position % CHUNK_BYTES as u64) as usize;
            let expected = &self.content.chunk(at)[from..];
            let (now, later) = bytes.split_at(bytes.len().min(expected.len()));
            if now != &expected[..now.len()] {
                self.wrong_at = Some(self.position);
            }
            self.position += now.len() as u64;
            bytes = later;
        }
    }

    /// What was wrong with what was read, if anything.
    pub fn finish(&self) -> Result<(), String> {
        match self.wrong_at {
            Some(at) => Err(format!("other bytes than were written, in the chunk at byte {at}")),
            None if self.position < self.content.bytes => {
                Err(format!("{} of {} bytes", self.position, self.content.bytes))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rivals/kfs/kfs.js` makes the same bytes, and is held to the same sum on every write.
    #[test]
    fn the_bytes_are_those_of_xorshift() {
        let mut content = Content::new(1, 3 * CHUNK_BYTES as u64 - 5);
        assert_eq!(content.chunks(), 3);
        // The third and fourth numbers of xorshift32 from 1, as Wikipedia's code makes them.
        let third = 2_647_435_461_u32.to_le_bytes();
        assert_eq!(content.chunk(0)[8..12], third);
        assert_eq!(content.chunk(2)[..8], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(
            (content.chunk(1).len(), content.chunk(2).len()),
            (CHUNK_BYTES, CHUNK_BYTES - 5)
        );
        let sum = content.sum();
        assert_ne!(sum, Content::new(2, 1).sum());
    }

    #[test]
    fn pieces_of_any_length_are_compared() {
        let whole = |bytes: u64| {
            let mut content = Content::new(7, bytes);
            let chunks = content.chunks();
            (0..chunks).flat_map(|at| content.chunk(at).to_vec()).collect::<Vec<u8>>()
        };
        let bytes = whole(300_000);
        let read = |bytes: &[u8], piece: usize| {
            let mut check = Check::new(Content::new(7, 300_000));
            bytes.chunks(piece).for_each(|piece| check.piece(piece));
            check.finish()
        };
        for piece in [1000, CHUNK_BYTES, 200_000, 300_000] {
            read(&bytes, piece).unwrap();
        }
        assert!(read(&bytes[..299_999], 1000).unwrap_err().contains("299999 of 300000"));
        assert!(read(&[&bytes[..], b"x"].concat(), 1000).is_err());
        let mut flipped = bytes.clone();
        flipped[200_000] ^= 1;
        assert!(read(&flipped, CHUNK_BYTES).unwrap_err().contains("131072"));
    }
}
