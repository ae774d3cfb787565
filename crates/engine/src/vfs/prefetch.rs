//! Asking the processor for memory ahead of its use.

use std::sync::LazyLock;

/// Bytes of a cache line, on the processors that matter here; where it is wrong, it is only slower.
pub const CACHE_LINE_BYTES: usize = 64;

/// Asks for the cache line at this address. It changes nothing but how soon its bytes are there.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn prefetch(address: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which the processor ignores for an address that can't be read.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

/// Asks for all cache lines of a range.
#[inline]
pub fn prefetch_range(address: *const u8, len: usize) {
    // The range may begin within a line, and so end in one more.
    for at in (0..len + CACHE_LINE_BYTES - 1).step_by(CACHE_LINE_BYTES) {
        prefetch(address.wrapping_add(at));
    }
}

/// Bytes that a core is well asked for at once. It waits for so many lines at a time, and whoever asks for more
/// waits with it; what isn't asked for it may or may not fetch by itself. Intel's have 12 to 16 places for lines
/// under way, and go on by themselves; AMD's have 24, and go on only when the range is read. Decision 24 has the
/// numbers.
#[inline]
pub fn bytes_at_once() -> usize {
    if *IS_INTEL { 768 } else { 2048 }
}

/// Waits for all cache lines of these bytes at once: one load of each, none of which depends on another.
#[inline]
pub fn load(bytes: &[u8]) {
    let lines = bytes.iter().step_by(CACHE_LINE_BYTES);
    std::hint::black_box(lines.fold(0, |sum, byte| sum ^ byte));
}

/// Has all cache lines of bytes that are about to be read in order come at once: by loads on Intel's processors,
/// where hints gained nothing, by hints on AMD's, where loads cost more than they saved. Decision 24 has the
/// numbers.
#[inline]
pub fn touch(bytes: &[u8]) {
    if *IS_INTEL {
        load(bytes);
    } else {
        prefetch_range(bytes.as_ptr(), bytes.len());
    }
}

/// Whether the processor is one of Intel's, whose ways with memory differ from AMD's.
static IS_INTEL: LazyLock<bool> = LazyLock::new(is_intel);

#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    // The second word of "GenuineIntel", as leaf 0 tells it.
    core::arch::x86_64::__cpuid(0).edx == u32::from_le_bytes(*b"ineI")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_intel() -> bool {
    false
}

/// Asks for all cache lines of a range that will be stored in, from whichever processor has them.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn prefetch_for_writing(address: *const u8, len: usize) {
    for at in (0..len).step_by(CACHE_LINE_BYTES) {
        let line = address.wrapping_add(at);
        // SAFETY: a hint, which the processor ignores for an address that can't be written. There is no
        // intrinsic that makes this instruction of processors that all of x86-64 isn't sure to have; those
        // without it take it for none.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
    }
}

/// Nothing, on processors whose hint stable Rust has no name for.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn prefetch(_address: *const u8) {}

/// Nothing, as above.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn prefetch_for_writing(_address: *const u8, _len: usize) {}
