//! Call stacks on their way from where they are taken to the profile that asked for them.
//!
//! A fixed number of places, written by any thread in any state (in a signal handler, inside the
//! allocator) and emptied by the profile's own thread. When no place is free a sample is only counted.
//! The tables are static: a handler that comes late finds them in place, and closed.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use super::kind::Refusal;
use super::registers::Registers;
use super::unwind;

/// Most frames of one stack; one that is deeper loses its root.
const FRAMES_MAX: usize = 192;
/// Places. They are emptied 50 times a second.
const PLACES: usize = 256;

const FREE: u8 = 0;
const WRITING: u8 = 1;
const FULL: u8 = 2;

/// One call stack and what it stands for.
pub(super) struct Sample {
    /// What it counts for, in the profile's unit.
    pub(super) weight: u64,
    /// What was waited for, in a profile of waits.
    pub(super) label: Option<&'static str>,
    /// The thread's number and the first 15 bytes of its name.
    pub(super) thread: i32,
    thread_name: [u8; 16],
    depth: usize,
    addresses: [usize; FRAMES_MAX],
}

impl Sample {
    /// The calls under way, innermost first. Each address lies inside its call instruction.
    pub(super) fn addresses(&self) -> &[usize] {
        &self.addresses[..self.depth]
    }

    /// The name of the thread, up to 15 bytes of it.
    pub(super) fn thread_name(&self) -> String {
        let end = self.thread_name.iter().position(|&byte| byte == 0);
        let name = &self.thread_name[..end.unwrap_or(self.thread_name.len())];
        String::from_utf8_lossy(name).into_owned()
    }
}

struct Place {
    state: AtomicU8,
    sample: UnsafeCell<Sample>,
}

/// The samples of one kind of profile.
pub(super) struct Samples {
    is_claimed: AtomicBool,
    is_open: AtomicBool,
    next: AtomicUsize,
    lost_weight: AtomicU64,
    places: [Place; PLACES],
}

// SAFETY: a place's sample is written only by the thread that took it from `FREE` to `WRITING`, and
// read only by the one `Claim` after it became `FULL`.
unsafe impl Sync for Samples {}

impl Samples {
    pub(super) const fn new() -> Samples {
        const EMPTY: Sample = Sample {
            weight: 0,
            label: None,
            thread: 0,
            thread_name: [0; 16],
            depth: 0,
            addresses: [0; FRAMES_MAX],
        };
        Samples {
            is_claimed: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
            next: AtomicUsize::new(0),
            lost_weight: AtomicU64::new(0),
            places: [const { Place { state: AtomicU8::new(FREE), sample: UnsafeCell::new(EMPTY) } };
                PLACES],
        }
    }

    /// Reserves the table for one profile and makes walking possible.
    pub(super) fn claim(&'static self) -> Result<Claim, Refusal> {
        unwind::prepare().map_err(Refusal::Failed)?;
        if self.is_claimed.swap(true, Ordering::Acquire) {
            return Err(Refusal::Busy);
        }
        let claim = Claim { samples: self };
        // What came late to the last profile.
        claim.drain(|_| {});
        self.lost_weight.store(0, Ordering::Relaxed);
        Ok(claim)
    }

    /// Whether samples are taken.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Takes down the calls under way in this thread. Async-signal-safe.
    pub(super) fn record(&self, registers: &Registers, weight: u64, label: Option<&'static str>) {
        if !self.is_open.load(Ordering::Acquire) {
            return;
        }
        let Some(place) = self.take_place() else {
            self.lost_weight.fetch_add(weight, Ordering::Relaxed);
            return;
        };
        // SAFETY: the place is `WRITING`, and this thread made it so.
        let sample = unsafe { &mut *place.sample.get() };
        let Some(depth) = unwind::walk(registers, &mut sample.addresses) else {
            self.lost_weight.fetch_add(weight, Ordering::Relaxed);
            place.state.store(FREE, Ordering::Release);
            return;
        };
        sample.depth = depth;
        sample.weight = weight;
        sample.label = label;
        // SAFETY: the calls are async-signal-safe; the name has room for the 16 bytes that are
        // written.
        unsafe {
            sample.thread = libc::syscall(libc::SYS_gettid) as i32;
            libc::prctl(libc::PR_GET_NAME, sample.thread_name.as_mut_ptr());
        }
        place.state.store(FULL, Ordering::Release);
    }

    fn take_place(&self) -> Option<&Place> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        (0..PLACES).map(|step| &self.places[(first.wrapping_add(step)) % PLACES]).find(|place| {
            place
                .state
                .compare_exchange(FREE, WRITING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })
    }
}

/// The right to a kind's samples, which one profile at a time has.
pub(super) struct Claim {
    samples: &'static Samples,
}

impl Claim {
    /// Begins to take samples.
    pub(super) fn open(&self) {
        self.samples.is_open.store(true, Ordering::Release);
    }

    /// Ends taking samples.
    pub(super) fn close(&self) {
        self.samples.is_open.store(false, Ordering::Release);
    }

    /// Hands over the samples there are.
    pub(super) fn drain(&self, mut take: impl FnMut(&Sample)) {
        for place in &self.samples.places {
            if place.state.load(Ordering::Acquire) == FULL {
                // SAFETY: the place is `FULL`, so its writer is done, and there is one claim.
                take(unsafe { &*place.sample.get() });
                place.state.store(FREE, Ordering::Release);
            }
        }
    }

    /// The weight of the samples that found no place.
    pub(super) fn lost_weight(&self) -> u64 {
        self.samples.lost_weight.load(Ordering::Relaxed)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.close();
        self.samples.is_claimed.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_handed_over_once_or_counted_as_lost() {
        static SAMPLES: Samples = Samples::new();
        let claim = SAMPLES.claim().unwrap();
        SAMPLES.record(&Registers::here(), 1_000_000, None);
        claim.open();
        let (mut weight, mut depth_min) = (0, usize::MAX);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            SAMPLES.record(&Registers::here(), 1, Some("label"));
                        }
                    })
                })
                .collect();
            while !threads.iter().all(|thread| thread.is_finished()) {
                claim.drain(|sample| {
                    assert_eq!(sample.label, Some("label"));
                    weight += sample.weight;
                    depth_min = depth_min.min(sample.addresses().len());
                });
            }
        });
        claim.drain(|sample| weight += sample.weight);
        assert_eq!(weight + claim.lost_weight(), 4000);
        assert!(depth_min > 2);
        claim.close();
        SAMPLES.record(&Registers::here(), 1_000_000, None);
        claim.drain(|_| panic!("a closed table takes nothing"));
    }

    #[test]
    fn a_table_serves_one_profile_at_a_time() {
        static SAMPLES: Samples = Samples::new();
        let claim = SAMPLES.claim().unwrap();
        assert!(matches!(SAMPLES.claim(), Err(Refusal::Busy)));
        drop(claim);
        assert!(SAMPLES.claim().is_ok());
    }

    #[test]
    fn sample_knows_its_thread() {
        static SAMPLES: Samples = Samples::new();
        let claim = SAMPLES.claim().unwrap();
        claim.open();
        std::thread::Builder::new()
            .name("a thread with a long name".to_owned())
            .spawn(|| SAMPLES.record(&Registers::here(), 1, None))
            .unwrap()
            .join()
            .unwrap();
        let mut names = Vec::new();
        claim.drain(|sample| names.push(sample.thread_name()));
        assert_eq!(names, ["a thread with a"]);
    }
}
