//! Where cached blocks are, and indexes that are not in a map: memory of their own in huge pages, each block
//! with the count of its users.
//!
//! A block and its count are one piece, so that whoever takes hold of a block waits for one line and not for
//! two, and the pieces lie close together in pages that the processor's tables remember. The allocator in it is
//! `talc`'s (after Lea's, with bins and boundary tags); of the pages in which no block is left
//! one is kept for the next, and the others go back to the system.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt::{self, Debug, Formatter};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use arc_swap::RefCnt;
use bytes::Bytes;
use parking_lot::Mutex;
use talc::base::Talc;
use talc::base::binning::DefaultBinning;
use talc::source::GlobalAllocSource;

use crate::vfs::huge_pages::{HUGE_PAGE_BYTES, HugeBytes, HugePages};

/// Memory of a block besides its bytes: its header, and the allocator's part.
pub(crate) const BLOCK_OVERHEAD_BYTES: usize = size_of::<Header>() + size_of::<usize>();

/// More users than any program has; more is a fault in counting.
const USERS_MAX: usize = isize::MAX as usize;

/// What takes more than this has memory of its own, and is no block that is worth a cache.
const SHARED_BYTES_MAX: usize = HUGE_PAGE_BYTES / 2;

/// Memory for blocks.
///
/// With `prepare_by`, whoever has a block in hand never waits for the system to find memory: if none is
/// ready, there is none for the block, and the next finds some.
pub(crate) struct BlockMemory {
    pieces: Mutex<Talc<GlobalAllocSource<HugePages>, DefaultBinning>>,
    pages: HugePages,
    /// Asks a thread to call `make_ready`.
    ask: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Whether it was asked, and has not begun.
    is_asked: AtomicBool,
}

impl Debug for BlockMemory {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockMemory").field("pages", &self.pages).finish_non_exhaustive()
    }
}

impl BlockMemory {
    /// Memory that takes nothing from the system until the first block comes.
    pub(crate) fn new() -> Arc<BlockMemory> {
        let pages = HugePages::default();
        let source = GlobalAllocSource::with_block_size(pages.clone(), HUGE_PAGE_BYTES);
        let pieces = Mutex::new(Talc::new(source));
        Arc::new(BlockMemory {
            pieces,
            pages,
            ask: OnceLock::new(),
            is_asked: AtomicBool::new(false),
        })
    }

    /// From now on has memory made ready ahead of need by whoever `ask` asks to call `make_ready`.
    pub(crate) fn prepare_by(&self, ask: impl Fn() + Send + Sync + 'static) {
        let _ = self.ask.set(Box::new(ask));
    }

    /// Has memory ready for the next blocks; may take milliseconds.
    pub(crate) fn make_ready(&self) {
        self.is_asked.store(false, Ordering::Relaxed);
        self.pages.make_ready();
    }

    /// A copy of a block; `None` if there is no memory for it, or none is ready.
    pub(crate) fn copy(self: &Arc<Self>, raw: &[u8]) -> Option<SharedBlock> {
        let layout = layout_of(raw.len())?;
        let ask = self.ask.get();
        let piece = self.allocate(layout, ask.is_none());
        if let Some(ask) = ask
            && !self.pages.is_ready()
            && !self.is_asked.swap(true, Ordering::Relaxed)
        {
            ask();
        }
        let header = piece?.cast::<Header>();
        let memory = ManuallyDrop::new(self.clone());
        let users = AtomicUsize::new(1);
        // SAFETY: the piece was given for this layout: a header, and behind it so many bytes. Nobody else knows
        // of it yet.
        unsafe {
            header.write(Header { users, length: raw.len(), memory });
            let bytes = header.add(1).cast::<u8>();
            bytes.copy_from_nonoverlapping(NonNull::from(raw).cast(), raw.len());
        }
        Some(SharedBlock { header })
    }

    /// A copy of what is in whole lines, for as long as it is used; may wait for memory. If the system has
    /// none, the process ends, as it does for other collections.
    pub(crate) fn copy_lines(self: &Arc<Self>, lines: &[CacheLine]) -> Bytes {
        let raw = lines.as_flattened();
        if lines.is_empty() {
            return Bytes::new();
        }
        let layout = layout_of_lines(lines.len());
        if raw.len() > SHARED_BYTES_MAX {
            let own = HugeBytes::new(raw.len());
            let mut own = own.unwrap_or_else(|| handle_alloc_error(layout));
            own.as_mut().copy_from_slice(raw);
            return Bytes::from_owner(own);
        }
        let piece = self.allocate(layout, true);
        let start = piece.unwrap_or_else(|| handle_alloc_error(layout)).cast::<CacheLine>();
        // SAFETY: the piece was given for so many lines, and nobody else knows of it yet.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(lines).cast(), lines.len()) };
        Bytes::from_owner(Lines { start, count: lines.len(), memory: self.clone() })
    }

    /// A piece of memory; without `wait`, of what is ready.
    fn allocate(&self, layout: Layout, wait: bool) -> Option<NonNull<u8>> {
        if layout.size() > SHARED_BYTES_MAX {
            return None;
        }
        loop {
            // SAFETY: every layout here has a line or a header at least.
            let piece = unsafe { self.pieces.lock().allocate(layout) };
            // The system is waited for without the lock.
            if piece.is_some() || !wait || !self.pages.make_ready() {
                return piece;
            }
        }
    }
}

/// What the processor fetches at once.
pub(crate) type CacheLine = [u8; 64];

/// Lines in this memory, each of them one line of the processor's caches.
#[derive(Debug)]
struct Lines {
    start: NonNull<CacheLine>,
    count: usize,
    memory: Arc<BlockMemory>,
}

// SAFETY: it owns its lines, which never change; the memory they go back to is behind a lock.
unsafe impl Send for Lines {}

impl AsRef<[u8]> for Lines {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `BlockMemory::copy_lines` wrote so many, which are there until this is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }.as_flattened()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let layout = layout_of_lines(self.count);
        // SAFETY: `BlockMemory::copy_lines` was given the piece by this memory for the same layout.
        unsafe { self.memory.pieces.lock().deallocate(self.start.as_ptr().cast(), layout) };
    }
}

fn layout_of_lines(count: usize) -> Layout {
    let lines = Layout::array::<CacheLine>(count).and_then(|l| l.align_to(size_of::<CacheLine>()));
    lines.expect("a slice of them is in memory")
}

/// A header and so many bytes behind it.
fn layout_of(length: usize) -> Option<Layout> {
    let (layout, start) = Layout::new::<Header>().extend(Layout::array::<u8>(length).ok()?).ok()?;
    debug_assert_eq!(start, size_of::<Header>());
    Some(layout)
}

/// What stands before a block's bytes.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Header {
    users: AtomicUsize,
    length: usize,
    /// Where the piece goes in the end; dropped after it.
    memory: ManuallyDrop<Arc<BlockMemory>>,
}

/// A block, and one of its users; the memory is free when the last is dropped.
#[derive(Debug)]
pub(crate) struct SharedBlock {
    header: NonNull<Header>,
}

// SAFETY: it owns a part in a block that never changes after `BlockMemory::copy`, and whose users are
// counted by an atomic; the memory it goes back to is behind a lock.
unsafe impl Send for SharedBlock {}
// SAFETY: as above.
unsafe impl Sync for SharedBlock {}

impl SharedBlock {
    fn header(&self) -> &Header {
        // SAFETY: written by `BlockMemory::copy`, and there until the last user, which this may be, is gone.
        unsafe { self.header.as_ref() }
    }

    /// The block as `Bytes`, as one more user of it.
    pub(crate) fn to_bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }
}

impl Deref for SharedBlock {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let length = self.header().length;
        // SAFETY: `BlockMemory::copy` wrote so many bytes behind the header, which never change.
        unsafe { std::slice::from_raw_parts(self.header.add(1).cast::<u8>().as_ptr(), length) }
    }
}

impl AsRef<[u8]> for SharedBlock {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for SharedBlock {
    #[inline]
    fn clone(&self) -> SharedBlock {
        // As `Arc`: who has one may make another without seeing anything newly.
        let before = self.header().users.fetch_add(1, Ordering::Relaxed);
        assert!(before < USERS_MAX, "a block's users are counted in a word");
        SharedBlock { header: self.header }
    }
}

impl Drop for SharedBlock {
    #[inline]
    fn drop(&mut self) {
        // As `Arc`: what every user did with the block happens before the last gives it back.
        if self.header().users.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            give_back(self.header);
        }
    }
}

/// Requires: the last user of the block is gone.
#[cold]
fn give_back(header: NonNull<Header>) {
    // SAFETY: nobody uses the header any more, whose part in the memory is taken out once.
    let (memory, length) = unsafe {
        let header = &mut *header.as_ptr();
        (ManuallyDrop::take(&mut header.memory), header.length)
    };
    let layout = layout_of(length).expect("the block was allocated by this layout");
    // SAFETY: `BlockMemory::copy` was given the piece by this memory for the same layout.
    unsafe { memory.pieces.lock().deallocate(header.as_ptr().cast(), layout) };
}

// SAFETY: as `Arc`, a pointer to the header stands for one user, who is neither counted nor dropped by
// turning one into the other.
unsafe impl RefCnt for SharedBlock {
    type Base = Header;

    fn into_ptr(block: SharedBlock) -> *mut Header {
        ManuallyDrop::new(block).header.as_ptr()
    }

    fn as_ptr(block: &SharedBlock) -> *mut Header {
        block.header.as_ptr()
    }

    unsafe fn from_ptr(header: *const Header) -> SharedBlock {
        // SAFETY: by the caller's word it came from `into_ptr`, which never answers null.
        SharedBlock { header: unsafe { NonNull::new_unchecked(header.cast_mut()) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: usize) -> Vec<u8> {
        vec![number as u8; number * 37 % 9000]
    }

    #[test]
    fn blocks_stay_as_they_are_whatever_comes_and_goes() {
        let memory = BlockMemory::new();
        let mut held: Vec<(usize, SharedBlock)> = Vec::new();
        for number in 0..3000 {
            held.push((number, memory.copy(&block(number)).unwrap()));
            if number % 3 == 0 {
                held.swap_remove(number * 7919 % held.len());
            }
        }
        held.iter().for_each(|(number, held)| assert_eq!(**held, *block(*number)));
    }

    #[test]
    fn a_block_outlives_whoever_made_it_for_as_long_as_it_has_users() {
        let memory = BlockMemory::new();
        let weak = Arc::downgrade(&memory);
        let first = memory.copy(b"some block").unwrap();
        let (second, bytes) = (first.clone(), first.to_bytes());
        drop((memory, first));
        assert_eq!(second.as_ref(), b"some block");
        drop(second);
        assert_eq!(bytes.slice(5..), "block");
        assert!(weak.upgrade().is_some());
        drop(bytes);
        assert!(weak.upgrade().is_none(), "the last block takes the memory with it");
    }

    #[test]
    fn blocks_wait_for_no_memory_where_somebody_makes_it_ready() {
        let memory = BlockMemory::new();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        memory.prepare_by(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        (0..10).for_each(|_| assert!(memory.copy(&block(1)).is_none()));
        assert_eq!(asked.load(Ordering::Relaxed), 1, "asked once until it is done");
        memory.make_ready();
        let held: Vec<SharedBlock> =
            (0..).map_while(|number| memory.copy(&block(number))).collect();
        let bytes: usize = held.iter().map(|held| held.len() + BLOCK_OVERHEAD_BYTES).sum();
        assert!(bytes > HUGE_PAGE_BYTES * 9 / 10, "{bytes} bytes fitted a page");
        assert_eq!(asked.load(Ordering::Relaxed), 2, "asked again when the page was begun");
        assert_eq!(memory.copy_lines(&[[7; 64]; 100]), [7; 6400][..], "lines are waited for");
        drop(held);
        assert!(memory.copy(&block(1)).is_some(), "what came back is used again");
    }

    #[test]
    fn lines_begin_where_the_processors_do_and_last_for_as_long_as_they_are_used() {
        let memory = BlockMemory::new();
        let weak = Arc::downgrade(&memory);
        let lines = |count: usize| (0..count).map(|at| [at as u8; 64]).collect::<Vec<CacheLine>>();
        let mut held = Vec::new();
        for count in [1, 7, 40_000, 0, 3] {
            let _between = memory.copy(&block(count));
            held.push((count, memory.copy_lines(&lines(count))));
        }
        drop(memory);
        for (count, copy) in held {
            assert_eq!(copy.as_ptr().align_offset(64).min(count), 0);
            assert_eq!(copy, lines(count).as_flattened());
        }
        assert!(weak.upgrade().is_none(), "the last lines take the memory with them");
    }

    #[test]
    fn threads_that_share_and_drop_blocks_leave_none() {
        let memory = BlockMemory::new();
        let shared: Vec<SharedBlock> =
            (0..50).map(|number| memory.copy(&block(number)).unwrap()).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (memory, shared) = (&memory, &shared);
                scope.spawn(move || {
                    for round in 0..2000 {
                        let number = (thread * 31 + round) % 50;
                        let (old, new) = (shared[number].clone(), memory.copy(&block(round)));
                        assert_eq!(*old, *block(number));
                        assert_eq!(*new.unwrap(), *block(round));
                    }
                });
            }
        });
        drop(shared);
        assert_eq!(Arc::strong_count(&memory), 1);
    }
}
