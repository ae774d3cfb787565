//! Asking the processor for memory ahead of its use.

/// Bytes of a cache line, on the processors that matter here; where it is wrong, it is only slower.
const CACHE_LINE_BYTES: usize = 64;

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

/// Waits for all cache lines of these bytes at once: one load of each, none of which depends on another.
#[inline]
pub fn touch(bytes: &[u8]) {
    let lines = bytes.iter().step_by(CACHE_LINE_BYTES);
    std::hint::black_box(lines.fold(0, |sum, byte| sum ^ byte));
}

/// Nothing, on processors whose hint stable Rust has no name for.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn prefetch(_address: *const u8) {}
