//! Memory in huge pages, for what is read all over it.
//!
//! A read of memory that no cache has waits for the page tables too, if they are in no cache either; on a
//! machine inside a machine that is most of the wait. With pages of 2 MiB the processor remembers where all
//! of a block cache is. Where the system has no such page left, or gives none, it gives small ones.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

/// Bytes of a huge page.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Gives whole huge pages, of which one is kept ready for whoever asks next.
///
/// The system zeroes a page when it is first written to, and where it is a guest itself, its host may have to
/// find the memory: 0.2 to 6 ms. That is for whoever calls `make_ready`; nothing else here waits.
#[derive(Debug, Clone, Default)]
pub(crate) struct HugePages {
    ready: Arc<ReadyPage>,
}

/// A page that nobody uses, or null.
#[derive(Debug, Default)]
struct ReadyPage(AtomicPtr<u8>);

impl Drop for ReadyPage {
    fn drop(&mut self) {
        let page = *self.0.get_mut();
        if !page.is_null() {
            unmap(page, HUGE_PAGE_BYTES);
        }
    }
}

impl HugePages {
    /// Whether a page is ready.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.0.load(Ordering::Relaxed).is_null()
    }

    /// Has a page ready, which may take milliseconds; whether there is one, as there is unless the system
    /// has no more memory.
    pub(crate) fn make_ready(&self) -> bool {
        if self.is_ready() {
            return true;
        }
        let Some(page) = map_aligned(HUGE_PAGE_BYTES) else { return false };
        // Not by `MADV_POPULATE_WRITE`, for which whoever maps anything would have to wait.
        for at in (0..HUGE_PAGE_BYTES).step_by(page_size()) {
            // SAFETY: inside what was mapped just now for this alone: zeros over zeros.
            unsafe { page.add(at).write_volatile(0) };
        }
        self.keep(page);
        true
    }

    /// Keeps a page that nobody uses for whoever asks next, if there is none.
    fn keep(&self, page: *mut u8) {
        let none = null_mut();
        if self.ready.0.compare_exchange(none, page, Ordering::Release, Ordering::Relaxed).is_err()
        {
            unmap(page, HUGE_PAGE_BYTES);
        }
    }
}

// SAFETY: a page is given to one at a time, from when it is taken out of `ready` until it is given back, at
// a multiple of its size, which is a multiple of any alignment that is answered.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > HUGE_PAGE_BYTES || layout.size() > HUGE_PAGE_BYTES {
            return null_mut();
        }
        self.ready.0.swap(null_mut(), Ordering::Acquire)
    }

    unsafe fn dealloc(&self, page: *mut u8, _: Layout) {
        self.keep(page);
    }
}

/// Bytes of its own, in huge pages but for the last part of one; zeros at first.
#[derive(Debug)]
pub(crate) struct HugeBytes {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it owns what it points at, which is only written through `&mut`.
unsafe impl Send for HugeBytes {}
// SAFETY: as above.
unsafe impl Sync for HugeBytes {}

impl HugeBytes {
    /// So many; `None` if the system has no memory for them.
    pub(crate) fn new(bytes: usize) -> Option<HugeBytes> {
        map_aligned(bytes).map(|start| HugeBytes { start, bytes })
    }
}

impl AsRef<[u8]> for HugeBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: mapped for so many bytes, zeroed by the system, until this is dropped.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl AsMut<[u8]> for HugeBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else looks at them meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for HugeBytes {
    fn drop(&mut self) {
        unmap(self.start, self.bytes);
    }
}

/// Maps so many bytes from a multiple of a huge page on.
fn map_aligned(bytes: usize) -> Option<*mut u8> {
    let bytes = bytes.max(1).checked_next_multiple_of(page_size())?;
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

/// Gives back what `map_aligned` gave for so many bytes.
fn unmap(start: *mut u8, bytes: usize) {
    let bytes = bytes.max(1).next_multiple_of(page_size());
    // SAFETY: only owners in this file call it, once each, with the bytes that they mapped. It can't fail for a
    // range that is mapped; if it does, the memory stays taken.
    let _ = unsafe { munmap(start.cast(), bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Layout = match Layout::from_size_align(HUGE_PAGE_BYTES, 64) {
        Ok(layout) => layout,
        Err(_) => panic!("a page has a layout"),
    };

    #[test]
    fn a_page_is_given_when_it_is_ready_and_kept_when_it_comes_back() {
        let pages = HugePages::default();
        // SAFETY: the layout has a size above zero; what is written is inside the page, which is given back
        // once, with the same layout.
        unsafe {
            assert!(pages.alloc(PAGE).is_null() && !pages.is_ready());
            assert!(pages.make_ready() && pages.is_ready() && pages.make_ready());
            let first = pages.alloc(PAGE);
            assert_eq!(first.align_offset(HUGE_PAGE_BYTES), 0);
            let bytes = std::slice::from_raw_parts_mut(first, HUGE_PAGE_BYTES);
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(0xff);
            assert!(pages.alloc(PAGE).is_null() && pages.make_ready());
            let second = pages.alloc(PAGE);
            assert_ne!(first, second);
            pages.dealloc(first, PAGE);
            pages.dealloc(second, PAGE);
            assert_eq!(pages.alloc(PAGE), first);
            assert!(!pages.is_ready());
            pages.dealloc(first, PAGE);
        }
        let too_much = Layout::from_size_align(HUGE_PAGE_BYTES + 1, 64).unwrap();
        // SAFETY: the layout has a size; nothing is done with what comes.
        assert!(unsafe { pages.alloc(too_much) }.is_null());
    }

    #[test]
    fn bytes_of_their_own_are_zeros_and_apart() {
        let lengths = [0, 1, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 4097];
        let mut pieces = lengths.map(|bytes| HugeBytes::new(bytes).unwrap());
        for (piece, bytes) in pieces.iter_mut().zip(lengths) {
            assert_eq!(piece.as_ref().as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
            assert_eq!(piece.as_ref(), vec![0; bytes]);
            piece.as_mut().fill(0xff);
        }
        assert!(HugeBytes::new(isize::MAX as usize - 4095).is_none());
    }
}
