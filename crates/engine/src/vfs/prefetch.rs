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

/// Asks for the front of bytes that will be read in order a little later: as much of it as a core is well asked for
/// while it does something else. It has places for so many lines under way, whoever asks for more waits for one,
/// and what isn't asked for it may or may not fetch by itself. Decision 24 has the numbers.
#[inline]
pub fn prefetch_front(address: *const u8, len: usize) {
    match *WAYS {
        // 12 to 16 places; it goes on by itself.
        Ways::Loads => prefetch_range(address, len.min(768)),
        // 24 places, and none of them taken by what comes to the second-level cache alone.
        Ways::SecondLevel => prefetch_range_to_second_level(address, len.min(4096)),
        // 24 places; it goes on only when the range is read.
        Ways::Hints => prefetch_range(address, len.min(2048)),
    }
}

/// Waits for all cache lines of these bytes at once: one load of each, none of which depends on another.
#[inline]
pub fn load(bytes: &[u8]) {
    let lines = bytes.iter().step_by(CACHE_LINE_BYTES);
    std::hint::black_box(lines.fold(0, |sum, byte| sum ^ byte));
}

/// Has all cache lines of bytes that are about to be read in order come at once. Decision 24 has the numbers.
#[inline]
pub fn touch(bytes: &[u8]) {
    match *WAYS {
        Ways::Loads => load(bytes),
        Ways::SecondLevel => prefetch_range_to_second_level(bytes.as_ptr(), bytes.len()),
        Ways::Hints => prefetch_range(bytes.as_ptr(), bytes.len()),
    }
}

/// How a processor is best asked for many cache lines.
enum Ways {
    /// By loads: Intel's, where hints for many lines gained nothing.
    Loads,
    /// By hints for the second-level cache: AMD's from Zen 4 on. Before, they were taken for those for the first.
    SecondLevel,
    /// By hints for the first-level cache, where loads cost more than they saved: all others.
    Hints,
}

static WAYS: LazyLock<Ways> = LazyLock::new(ways);

#[cfg(target_arch = "x86_64")]
fn ways() -> Ways {
    // The second word of "GenuineIntel" and of "AuthenticAMD", as leaf 0 tells it.
    let maker = core::arch::x86_64::__cpuid(0).edx;
    if maker == u32::from_le_bytes(*b"ineI") {
        Ways::Loads
    } else if maker == u32::from_le_bytes(*b"enti") && is_x86_feature_detected!("avx512f") {
        Ways::SecondLevel
    } else {
        Ways::Hints
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn ways() -> Ways {
    Ways::Hints
}

/// Asks for all cache lines of a range, into the second-level cache.
#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_range_to_second_level(address: *const u8, len: usize) {
    use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    for at in (0..len + CACHE_LINE_BYTES - 1).step_by(CACHE_LINE_BYTES) {
        // SAFETY: as in `prefetch`.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.wrapping_add(at).cast()) }
    }
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
fn prefetch_range_to_second_level(_address: *const u8, _len: usize) {}

/// Nothing, as above.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn prefetch_for_writing(_address: *const u8, _len: usize) {}
