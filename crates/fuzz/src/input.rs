//! A fuzzer's bytes, taken apart; and put together, for seeds.

/// Reads numbers and parts from the front of the bytes. Past their end there are zeros and empty parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        let mut number = [0; N];
        let taken = self.take(N);
        number[..taken.len()].copy_from_slice(taken);
        number
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.number::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.number())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.number())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.number())
    }

    /// A length of two bytes and as many bytes as that, or as there are.
    pub(crate) fn part(&mut self) -> &'a [u8] {
        let len = usize::from(self.u16());
        self.take(len)
    }

    /// What is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }
}

/// What `Input::part` reads back.
pub(crate) fn part(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).expect("a part of a seed is short");
    [&len.to_le_bytes()[..], bytes].concat()
}

/// The bytes at `at`, to be written over; `None` unless they are all there.
pub(crate) fn slot(bytes: &mut [u8], at: usize, len: usize) -> Option<&mut [u8]> {
    bytes.get_mut(at..at.checked_add(len)?)
}

/// The little-endian number of four bytes at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}
