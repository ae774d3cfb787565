//! Allocations: a global allocator that takes a call stack about every 512 KiB while a profile runs.
//!
//! It is the system's allocator in all but that; while no profile runs it costs a load. Each stack
//! counts for the bytes that its thread asked for since its last one, so the sum is true. What is
//! freed doesn't count; what grows in place or by moving counts for its growth.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use super::kind::Refusal;
use super::registers::Registers;
use super::samples::{Claim, Samples};

/// Bytes between two samples of a thread, on average.
const BYTES_PER_SAMPLE: u64 = 512 << 10;

static SAMPLES: Samples = Samples::new();
/// The number of the profile: what a thread counted for an earlier one is forgotten.
static PROFILE: AtomicU32 = AtomicU32::new(0);

/// The system's allocator, with a profile of allocations. Make it the program's with
/// `#[global_allocator]`.
#[derive(Debug, Default, Clone, Copy)]
pub struct SampledAllocator;

// SAFETY: every call goes to the system's allocator as it came. What is done beside allocates nothing
// and doesn't panic.
unsafe impl GlobalAlloc for SampledAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size.saturating_sub(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// A running profile of allocations.
pub(super) struct Sampler {
    pub(super) claim: Claim,
}

impl Sampler {
    pub(super) fn start() -> Result<Sampler, Refusal> {
        let claim = SAMPLES.claim()?;
        PROFILE.fetch_add(1, Ordering::Relaxed);
        claim.open();
        if !is_installed() {
            return Err(Refusal::Unsupported(
                "this program does not use the allocator that can be profiled",
            ));
        }
        Ok(Sampler { claim })
    }
}

/// Whether an allocation of this thread is noted. Requires: the table is open.
fn is_installed() -> bool {
    // Some, because the first may only begin a new count, and one may be due for a sample.
    (0..4).any(|_| {
        let before = THREAD.with(|thread| thread.passed_bytes.get());
        drop(black_box(Vec::<u8>::with_capacity(black_box(1))));
        THREAD.with(|thread| thread.passed_bytes.get()) != before
    })
}

thread_local! {
    // Without a destructor and without an initialiser that runs: the allocator itself uses it.
    static THREAD: Meter = const { Meter::new() };
}

/// What one thread asked for.
struct Meter {
    profile: Cell<u32>,
    /// Bytes since the last sample.
    passed_bytes: Cell<u64>,
    /// Bytes at which the next is taken.
    sample_at_bytes: Cell<u64>,
    random: Cell<u64>,
}

#[inline]
fn note(size: usize) {
    if SAMPLES.is_open() {
        count(size);
    }
}

#[cold]
fn count(size: usize) {
    let due = THREAD.try_with(|thread| thread.count(size, PROFILE.load(Ordering::Relaxed)));
    if let Ok(Some(bytes)) = due {
        SAMPLES.record(&Registers::here(), bytes, None);
    }
}

impl Meter {
    const fn new() -> Meter {
        Meter {
            profile: Cell::new(0),
            passed_bytes: Cell::new(0),
            sample_at_bytes: Cell::new(0),
            random: Cell::new(0),
        }
    }

    /// Counts an allocation; the bytes that a sample taken now stands for, if one is due.
    fn count(&self, size: usize, profile: u32) -> Option<u64> {
        if self.profile.replace(profile) != profile {
            self.passed_bytes.set(0);
            self.sample_at_bytes.set(self.draw());
        }
        let passed = self.passed_bytes.get() + size as u64;
        if passed < self.sample_at_bytes.get() {
            self.passed_bytes.set(passed);
            return None;
        }
        self.passed_bytes.set(0);
        self.sample_at_bytes.set(self.draw());
        Some(passed)
    }

    /// Evenly between 1 and twice the average, so that no rhythm of allocations hides from it.
    fn draw(&self) -> u64 {
        // Xorshift, Marsaglia 2003, begun differently by each thread.
        let mut random = self.random.get();
        if random == 0 {
            random = std::ptr::from_ref(self) as u64 | 1;
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        1 + random % (2 * BYTES_PER_SAMPLE - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_for_all_bytes_that_passed() {
        let meter = Meter::new();
        let (mut samples, mut bytes) = (0_u64, 0);
        for _ in 0..1_000_000 {
            if let Some(sampled) = meter.count(1000, 1) {
                samples += 1;
                bytes += sampled;
            }
        }
        assert_eq!(bytes + meter.passed_bytes.get(), 1_000_000_000);
        let expected = 1_000_000_000 / BYTES_PER_SAMPLE;
        assert!((expected / 10 * 9..expected / 10 * 11).contains(&samples), "{samples}");
    }

    #[test]
    fn what_was_counted_for_an_earlier_profile_is_forgotten() {
        let meter = Meter::new();
        while meter.count(1 << 10, 1).is_some() {}
        let sampled = (0..10_000).find_map(|_| meter.count(1, 2));
        assert!(sampled.is_none_or(|bytes| bytes <= 10_000), "{sampled:?}");
    }

    #[test]
    fn program_with_another_allocator_is_refused() {
        let refused = Sampler::start().err();
        assert!(matches!(refused, Some(Refusal::Unsupported(_))), "{refused:?}");
        assert!(!SAMPLES.is_open());
    }
}
