//! Numbers that a seed decides, and bytes changed by them.

/// Xorshift.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Changes one to four places.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let end = at + self.below((bytes.len() - at).min(16));
            match self.below(7) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                2 => drop(bytes.drain(at..end)),
                3 => drop(bytes.splice(at..end, self.next().to_le_bytes())),
                4 => bytes.truncate(at),
                // The largest number that a varint holds.
                5 => drop(bytes.splice(at..end, [[0xff; 9].as_slice(), &[1]].concat())),
                _ => {
                    let again = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    drop(bytes.splice(to..to, again));
                }
            }
        }
    }
}
