//! How long an experiment is going to take yet.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::PlannedRun;

/// How long runs take, by target and workload, learnt from those that were made.
#[derive(Debug, Default)]
pub(super) struct Estimate {
    taken: BTreeMap<(String, &'static str), (Duration, u32)>,
}

impl Estimate {
    /// What one run took.
    pub(super) fn learn(&mut self, run: &PlannedRun, taken: Duration) {
        let key = (run.target.clone(), run.spec.workload.name());
        let (sum, count) = self.taken.entry(key).or_default();
        *sum += taken;
        *count += 1;
    }

    /// What runs are likely to take; `None` before the first is done.
    pub(super) fn of(&self, runs: &[&PlannedRun]) -> Option<Duration> {
        let (sum, count) = self
            .taken
            .values()
            .fold((Duration::ZERO, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let mean = sum.checked_div(count)?;
        let likely = |run: &&PlannedRun| {
            let known = self.taken.get(&(run.target.clone(), run.spec.workload.name()));
            known.map_or(mean, |(sum, count)| *sum / *count)
        };
        Some(runs.iter().map(likely).sum())
    }
}
