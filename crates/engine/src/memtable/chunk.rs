//! Pieces of memory that arenas are made of, and those of arenas that are gone, kept for the next.
//!
//! Memory that comes from the system anew costs a page fault for each page, which was a tenth of all
//! processor time of a fill of small values: a memtable that follows another takes over its chunks.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::coding::copy_to;
use crate::vfs::prefetch::{CACHE_LINE_BYTES, prefetch_for_writing};

/// Chunks start at multiples of this.
pub(super) const ALIGNMENT: usize = 8;

/// Bytes that the processor is asked for behind each record, as the journal does: the release of the lock that
/// orders writes waits for all stores. Fills of 100 bytes take 0.96 of the processor time with it, overwrites 0.93.
const EXPECTED_BYTES: usize = 192;

/// Smaller chunks aren't kept: an allocator has such memory itself.
const KEPT_BYTES_MIN: usize = 64 << 10;

/// A piece of memory that is filled from the front.
#[derive(Debug)]
pub(super) struct Chunk {
    memory: NonNull<u8>,
    layout: Layout,
    /// Bytes from the front that hold records.
    used: AtomicUsize,
}

// SAFETY: the memory is owned; what is shared of it is written before `used` publishes it and never
// after.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn new(bytes: usize) -> Chunk {
        let layout = Layout::from_size_align(bytes, ALIGNMENT).expect("a chunk has a size");
        // SAFETY: the layout has a size above zero.
        let memory = NonNull::new(unsafe { alloc(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        Chunk { memory, layout, used: AtomicUsize::new(0) }
    }

    /// Bytes that it has room for.
    fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Writes a header and parts one after the other from `offset` on, and zeros up to `offset + bytes`, less
    /// than `ALIGNMENT` of them; they are published when this returns. Requires: one thread at a time; `offset`
    /// is where the last write ended.
    #[inline(always)]
    pub(super) fn append<const N: usize>(
        &self,
        offset: usize,
        header: &[u8; N],
        parts: &[&[u8]; 3],
        bytes: usize,
    ) {
        assert_eq!(self.used.load(Ordering::Relaxed), offset, "one thread writes at a time");
        let end = offset + bytes;
        let filled = N + parts.iter().map(|part| part.len()).sum::<usize>();
        const { assert!(N >= ALIGNMENT) };
        assert!(end <= self.bytes(), "a record fits its chunk");
        assert_eq!(filled.next_multiple_of(ALIGNMENT), bytes, "and its parts the record");
        // SAFETY: what is written lies between `offset` and `end`, inside the chunk, as checked above; nobody
        // reads bytes at or beyond `used`, and nobody else writes.
        unsafe {
            let start = self.memory.as_ptr().add(offset);
            // What the parts leave of the last word is padding, which may be read as bytes too.
            let last_word = start.add(bytes - ALIGNMENT);
            last_word.cast::<[u8; ALIGNMENT]>().write_unaligned([0; ALIGNMENT]);
            start.cast::<[u8; N]>().write_unaligned(*header);
            let mut to = start.add(N);
            for part in parts {
                copy_to(part, to);
                to = to.add(part.len());
            }
        }
        self.used.store(end, Ordering::Release);
        // The line that the next record starts in is there.
        let next = self.memory.as_ptr().wrapping_add(end + CACHE_LINE_BYTES);
        prefetch_for_writing(next, EXPECTED_BYTES);
    }

    /// What was published of the chunk from `offset` on.
    #[inline]
    pub(super) fn published(&self, offset: usize) -> &[u8] {
        let used = self.used.load(Ordering::Acquire);
        assert!(offset <= used, "a record is looked at after it was published");
        // SAFETY: the bytes below `used` are inside the allocation, were written before `used` was
        // stored, and are never written again.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(offset), used - offset) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nothing refers to it any more.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

/// Chunks of arenas that are gone, for those to come; any number of stores share them.
#[derive(Debug)]
pub struct SpareChunks {
    bytes_max: usize,
    chunks: Mutex<Vec<Chunk>>,
}

impl SpareChunks {
    /// None, and room for so many bytes of them.
    pub fn new(bytes_max: usize) -> SpareChunks {
        SpareChunks { bytes_max, chunks: Mutex::default() }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        bytes_of(&self.chunks.lock())
    }

    /// Gives all of them back to the system.
    pub fn clear(&self) {
        let chunks = std::mem::take(&mut *self.chunks.lock());
        drop(chunks);
    }

    /// An empty chunk of this size: a spare one, or a new one.
    pub(super) fn take(&self, bytes: usize) -> Chunk {
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
    pub(super) fn give_back(&self, mut chunk: Chunk) {
        if chunk.bytes() < KEPT_BYTES_MIN {
            return;
        }
        *chunk.used.get_mut() = 0;
        let mut chunks = self.chunks.lock();
        if bytes_of(&chunks) + chunk.bytes() <= self.bytes_max {
            chunks.push(chunk);
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
        let spares = SpareChunks::new(1 << 20);
        let chunk = spares.take(128 << 10);
        let memory = chunk.memory;
        chunk.append(0, b"a header", &[b"of", b" ", b"before"], 24);
        spares.give_back(chunk);
        assert_eq!(spares.bytes(), 128 << 10);
        assert_ne!(spares.take(64 << 10).memory, memory, "of another size");
        let chunk = spares.take(128 << 10);
        assert_eq!((chunk.memory, spares.bytes()), (memory, 0));
        assert!(chunk.published(0).is_empty());
        chunk.append(0, b"a header", &[b"", b"new", b""], 16);
        assert_eq!(chunk.published(0), b"a headernew\0\0\0\0\0");
        chunk.append(16, b"another one", &[b"of", b"16", b"!"], 16);
        assert_eq!(chunk.published(16), b"another oneof16!");
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for_and_nothing_small() {
        let spares = SpareChunks::new(300 << 10);
        let taken = [16 << 10, 128 << 10, 128 << 10, 128 << 10].map(|bytes| spares.take(bytes));
        taken.into_iter().for_each(|chunk| spares.give_back(chunk));
        assert_eq!(spares.bytes(), 256 << 10);
        spares.clear();
        assert_eq!(spares.bytes(), 0);
    }
}
