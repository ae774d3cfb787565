//! The processor's cycle counter: the cheapest way to tell how long a few instructions took.
//!
//! On x86-64 it is the time stamp counter, which on every processor of the last decade ticks at a
//! constant rate on all cores; elsewhere it is the steady clock. Its rate is measured against the
//! steady clock over the life of the process: exact to a thousandth after some milliseconds.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Readings before the rate is used are apart by at least this.
const CALIBRATION: Duration = Duration::from_millis(5);

/// The counter now. Never 0, so that 0 can say "not taken".
#[inline]
pub fn now() -> u64 {
    counter().max(1)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn counter() -> u64 {
    base().1.elapsed().as_nanos() as u64
}

/// Nanoseconds that a difference of two readings is.
#[inline]
pub fn to_ns(cycles: u64) -> u64 {
    (cycles as f64 * ns_per_cycle()) as u64
}

/// Starts measuring the rate; the first use of `to_ns` waits for what is missing of 5 ms since.
pub fn prepare() {
    base();
}

fn base() -> &'static (u64, Instant) {
    static BASE: OnceLock<(u64, Instant)> = OnceLock::new();
    #[cfg(target_arch = "x86_64")]
    return BASE.get_or_init(together);
    #[cfg(not(target_arch = "x86_64"))]
    return BASE.get_or_init(|| (0, Instant::now()));
}

fn ns_per_cycle() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (cycles, instant) = *base();
        loop {
            let elapsed = instant.elapsed();
            if elapsed >= CALIBRATION {
                let (counted, at) = together();
                let passed = counted.saturating_sub(cycles).max(1);
                return (at - instant).as_nanos() as f64 / passed as f64;
            }
            std::thread::sleep(CALIBRATION - elapsed);
        }
    })
}

/// Counter and clock at one moment: of several readings the one in which least time passed, so that
/// being put off the processor between the two doesn't count.
fn together() -> (u64, Instant) {
    let readings = (0..8).map(|_| {
        let counted = counter();
        let at = Instant::now();
        (counter().saturating_sub(counted), counted, at)
    });
    let (_, counted, at) = readings.min_by_key(|reading| reading.0).expect("there are several");
    (counted, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_agree_with_the_clock() {
        prepare();
        let (from, started) = (now(), Instant::now());
        std::thread::sleep(Duration::from_millis(30));
        let (cycles, elapsed) = (now() - from, started.elapsed());
        let ratio = to_ns(cycles) as f64 / elapsed.as_nanos() as f64;
        // Being put off the processor between the two readings is what the margin is for.
        assert!((0.5..2.0).contains(&ratio), "{ratio}");
    }
}
