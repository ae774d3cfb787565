//! Memory of memtables that are gone, kept for those to come.
//!
//! Memory that comes from the system anew costs a page fault for each page, which was a tenth of all
//! processor time of a fill of small values: a memtable that follows another takes over its chunks and the
//! slots of its index.

use parking_lot::Mutex;

use super::chunk::Chunk;
use super::slots::Slots;

/// Smaller pieces aren't kept: an allocator has such memory itself.
const KEPT_BYTES_MIN: usize = 64 << 10;

/// Of the bytes of chunks that are kept, so many may be kept as slots, as a divisor.
const SLOTS_SHARE: usize = 2;

/// Memory of memtables that are gone; any number of stores share it.
#[derive(Debug)]
pub struct SpareMemory {
    chunk_bytes_max: usize,
    chunks: Mutex<Vec<Chunk>>,
    /// Those of one index, the last to go: its size is the likeliest to be asked for next.
    slots: Mutex<Option<Slots>>,
}

impl SpareMemory {
    /// None, and room for so many bytes of chunks.
    pub fn new(chunk_bytes_max: usize) -> SpareMemory {
        SpareMemory { chunk_bytes_max, chunks: Mutex::default(), slots: Mutex::default() }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let slots = self.slots.lock().as_ref().map_or(0, Slots::bytes);
        bytes_of(&self.chunks.lock()) + slots
    }

    /// Gives all of it back to the system.
    pub fn clear(&self) {
        let chunks = std::mem::take(&mut *self.chunks.lock());
        let slots = self.slots.lock().take();
        drop((chunks, slots));
    }

    /// An empty chunk of this size: a spare one, or a new one.
    pub(super) fn take_chunk(&self, bytes: usize) -> Chunk {
        let mut chunks = self.chunks.lock();
        let spare = chunks.iter().position(|chunk| chunk.bytes() == bytes);
        match spare.map(|at| chunks.swap_remove(at)) {
            Some(spare) => spare,
            None => {
                drop(chunks);
                Chunk::new(bytes)
            }
        }
    }

    /// Takes a chunk that nothing refers to any more, to keep it if there is room.
    pub(super) fn give_chunk_back(&self, mut chunk: Chunk) {
        if chunk.bytes() < KEPT_BYTES_MIN {
            return;
        }
        chunk.clear();
        let mut chunks = self.chunks.lock();
        if bytes_of(&chunks) + chunk.bytes() <= self.chunk_bytes_max {
            chunks.push(chunk);
        }
    }

    /// So many empty slots: spare ones, or new ones. Requires: a power of two.
    pub(super) fn take_slots(&self, count: usize) -> Slots {
        let spare = self.slots.lock().take_if(|spare| spare.count() == count);
        match spare {
            Some(mut spare) => {
                spare.clear();
                spare
            }
            None => Slots::new(count),
        }
    }

    /// Takes slots that nothing refers to any more, to keep them in place of those kept so far.
    pub(super) fn give_slots_back(&self, slots: Slots) {
        if (KEPT_BYTES_MIN..=self.chunk_bytes_max / SLOTS_SHARE).contains(&slots.bytes()) {
            let before = self.slots.lock().replace(slots);
            drop(before);
        }
    }
}

fn bytes_of(chunks: &[Chunk]) -> usize {
    chunks.iter().map(Chunk::bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_that_was_given_back_is_used_again_and_shows_nothing_of_before() {
        let spares = SpareMemory::new(1 << 20);
        let chunk = spares.take_chunk(128 << 10);
        chunk.append(0, b"a header", &[b"of", b" ", b"before"], 24);
        let memory = chunk.published(0).as_ptr();
        spares.give_chunk_back(chunk);
        assert_eq!(spares.bytes(), 128 << 10);
        assert_ne!(spares.take_chunk(64 << 10).published(0).as_ptr(), memory, "of another size");
        let chunk = spares.take_chunk(128 << 10);
        assert_eq!((chunk.published(0).as_ptr(), spares.bytes()), (memory, 0));
        assert!(chunk.published(0).is_empty());
        chunk.append(0, b"a header", &[b"", b"new", b""], 16);
        assert_eq!(chunk.published(0), b"a headernew\0\0\0\0\0");
        chunk.append(16, b"another one", &[b"of", b"16", b"!"], 16);
        assert_eq!(chunk.published(16), b"another oneof16!");
    }

    #[test]
    fn no_more_chunks_are_kept_than_there_is_room_for_and_none_that_are_small() {
        let spares = SpareMemory::new(300 << 10);
        let taken = [16, 128, 128, 128].map(|kib| spares.take_chunk(kib << 10));
        taken.into_iter().for_each(|chunk| spares.give_chunk_back(chunk));
        assert_eq!(spares.bytes(), 256 << 10);
        spares.clear();
        assert_eq!(spares.bytes(), 0);
    }

    #[test]
    fn the_last_slots_given_back_are_used_again_and_are_empty() {
        let spares = SpareMemory::new(1 << 20);
        let count = (128 << 10) / size_of::<u64>();
        let filled = |count| {
            let slots = spares.take_slots(count);
            (0..count as u32 / 2).for_each(|at| slots.set(at as usize, at, at));
            slots
        };
        let (before, last) = (filled(2 * count), filled(count));
        spares.give_slots_back(before);
        spares.give_slots_back(last);
        assert_eq!(spares.bytes(), 128 << 10);
        assert_eq!(spares.take_slots(2 * count).count(), 2 * count);
        let again = spares.take_slots(count);
        assert_eq!((again.count(), spares.bytes()), (count, 0));
        for tag in (0..=u32::MAX).step_by(1 << 17) {
            assert_eq!(again.find(tag, |_| true).1, None);
        }
        // Too many, and too few.
        spares.give_slots_back(Slots::new(count * 8));
        spares.give_slots_back(Slots::new(64));
        assert_eq!(spares.bytes(), 0);
    }
}
