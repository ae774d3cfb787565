//! Waits: the engine tells of each, on the thread that waited, with the name of what it waited for.
//!
//! A wait of 100 us or more is always taken down. A shorter one is with a chance in proportion, and
//! then counts for 100 us: the sums stay true, and the cost is bounded by the time spent waiting.

use std::cell::Cell;
use std::time::Duration;

use super::kind::Refusal;
use super::registers::Registers;
use super::samples::{Claim, Samples};

const ALWAYS_NS: u64 = 100_000;

static SAMPLES: Samples = Samples::new();

/// The engine's observer, as long as it is needed.
pub(super) struct Sampler {
    pub(super) claim: Claim,
}

impl Sampler {
    pub(super) fn start() -> Result<Sampler, Refusal> {
        let sampler = Sampler { claim: SAMPLES.claim()? };
        sampler.claim.open();
        tallybook::waits::observe(Some(on_wait));
        Ok(sampler)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        tallybook::waits::observe(None);
    }
}

fn on_wait(name: &'static str, waited: Duration) {
    let ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
    if let Some(weight) = weight(ns, random()) {
        SAMPLES.record(&Registers::here(), weight, Some(name));
    }
}

/// What a wait counts for, if it counts.
fn weight(ns: u64, random: u64) -> Option<u64> {
    if ns >= ALWAYS_NS { Some(ns) } else { (random % ALWAYS_NS < ns).then_some(ALWAYS_NS) }
}

/// Xorshift, Marsaglia 2003, a sequence for each thread.
fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    STATE.with(|state| {
        let mut random = state.get();
        if random == 0 {
            random = std::ptr::from_ref(state) as u64 | 1;
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        state.set(random);
        random
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_waits_add_up_to_their_true_sum() {
        let counted: u64 = (0..100_000).filter_map(|_| weight(5_000, random())).sum();
        let waited = 100_000 * 5_000;
        assert!((waited / 10 * 9..waited / 10 * 11).contains(&counted), "{counted} of {waited}");
        assert_eq!(weight(ALWAYS_NS, u64::MAX), Some(ALWAYS_NS));
        assert_eq!(weight(7 * ALWAYS_NS, 0), Some(7 * ALWAYS_NS));
        assert_eq!(weight(0, 0), None);
    }
}
