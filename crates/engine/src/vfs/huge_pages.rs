//! Memory in huge pages, for what is read all over it.
//!
//! A read of memory that no cache has waits for the page tables too, if they are in no cache either; on a
//! machine inside a machine that is most of the wait. With pages of 2 MiB the processor remembers where all
//! of a block cache is. Where the system has no such page left, or gives none, it gives small ones.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a huge page, and what pieces of memory here are multiples of.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Gives whole huge pages, each taken from the system and given back to it.
#[derive(Debug)]
pub(crate) struct HugePages;

// SAFETY: memory is mapped for whoever asks, zeroed, and until it is given back, at a multiple of the
// page's size, which is a multiple of any alignment that is answered.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > HUGE_PAGE_BYTES {
            return null_mut();
        }
        let Some(bytes) = layout.size().checked_next_multiple_of(HUGE_PAGE_BYTES) else {
            return null_mut();
        };
        map_aligned(bytes).unwrap_or(null_mut())
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let bytes = layout.size().next_multiple_of(HUGE_PAGE_BYTES);
        // SAFETY: `alloc` mapped so much for this layout, and by the caller's word nobody uses it any more.
        // It can't fail for a range that is mapped; if it does, the memory stays taken.
        let _ = unsafe { munmap(memory.cast(), bytes) };
    }
}

/// Maps so many bytes, a multiple of huge pages, at a multiple of one.
fn map_aligned(bytes: usize) -> Option<*mut u8> {
    let mapped_bytes = bytes.checked_add(HUGE_PAGE_BYTES)?;
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new range, which the system chooses.
    let mapped = unsafe { mmap_anonymous(null_mut(), mapped_bytes, protection, flags) }.ok()?;
    let before = mapped.align_offset(HUGE_PAGE_BYTES);
    let start = mapped.wrapping_byte_add(before);
    let after = HUGE_PAGE_BYTES - before;
    // SAFETY: both ranges are inside what was mapped just now, before and behind what is kept, and nothing is
    // in them. The hint changes nothing that can be read.
    unsafe {
        if before > 0 {
            let _ = munmap(mapped, before);
        }
        let _ = munmap(start.wrapping_byte_add(bytes), after);
        let _ = madvise(start, bytes, Advice::LinuxHugepage);
    }
    Some(start.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_pages_zeroed_and_apart() {
        let layouts = [1, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 1]
            .map(|bytes| Layout::from_size_align(bytes, 64).unwrap());
        // SAFETY: the layouts have sizes above zero; what is written is inside the piece that was given for
        // its layout, which is given back once, with the same layout.
        unsafe {
            let pieces = layouts.map(|layout| HugePages.alloc(layout));
            for (&piece, layout) in pieces.iter().zip(layouts) {
                assert!(!piece.is_null());
                assert_eq!(piece.align_offset(HUGE_PAGE_BYTES), 0);
                let memory = std::slice::from_raw_parts_mut(piece, layout.size());
                assert!(memory.iter().all(|&byte| byte == 0));
                memory.fill(0xff);
            }
            for (piece, layout) in pieces.into_iter().zip(layouts) {
                HugePages.dealloc(piece, layout);
            }
        }
        let too_much = Layout::from_size_align(isize::MAX as usize - 4095, 4096).unwrap();
        // SAFETY: the layout has a size; nothing is done with what comes.
        assert!(unsafe { HugePages.alloc(too_much) }.is_null());
    }
}
