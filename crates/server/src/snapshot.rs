//! Everything the books say at one moment, and the few earlier moments to compare with.
//!
//! A snapshot holds every histogram, up to about a megabyte, so few are kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tallybook::stages::Stages;
use tallybook::store::Stats;

use crate::engine::Engine;
use crate::meter::{Meter, Traffic};

/// Snapshots that are kept.
const KEPT: usize = 2;

/// The books at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) at: Instant,
    pub(crate) traffic: Traffic,
    pub(crate) stages: Stages,
    pub(crate) stats: Stats,
}

impl Snapshot {
    /// Looks now.
    pub(crate) fn take<E: Engine>(engine: &E, meter: &Meter) -> Snapshot {
        Snapshot {
            at: Instant::now(),
            traffic: meter.traffic(),
            stages: engine.stages(),
            stats: engine.stats(),
        }
    }

    /// Time since an earlier moment.
    pub(crate) fn since(&self, earlier: Instant) -> Duration {
        self.at.saturating_duration_since(earlier)
    }
}

/// When the server started, and the last snapshots.
#[derive(Debug)]
pub(crate) struct Recent {
    pub(crate) started: Instant,
    kept: Mutex<VecDeque<Arc<Snapshot>>>,
}

impl Recent {
    /// How often a snapshot is added. What happened since the oldest one kept is then what happened in
    /// the last one to two of these.
    pub(crate) const EVERY: Duration = Duration::from_secs(5);

    /// Nothing, as of now.
    pub(crate) fn new() -> Recent {
        Recent { started: Instant::now(), kept: Mutex::default() }
    }

    /// Adds a snapshot; the oldest goes.
    pub(crate) fn add(&self, snapshot: Snapshot) {
        let mut kept = self.kept.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Arc::new(snapshot));
    }

    /// The oldest snapshot that is kept.
    pub(crate) fn oldest(&self) -> Option<Arc<Snapshot>> {
        self.kept.lock().front().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_last_two_is_what_one_compares_with() {
        let recent = Recent::new();
        assert!(recent.oldest().is_none());
        for age in 1..=4 {
            recent.add(Snapshot {
                at: recent.started + Duration::from_secs(age),
                traffic: Traffic::default(),
                stages: Stages::default(),
                stats: Stats::default(),
            });
            let expected = Duration::from_secs(age.max(2) - 1);
            assert_eq!(recent.oldest().unwrap().since(recent.started), expected);
        }
    }
}
