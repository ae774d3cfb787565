//! What a read does only because it passes several runs, counted in steps of a cursor.
//!
//! Costs are of this order on the machine of `docs/performance.md`; what is made of the counts needs no
//! more.

use crate::stages::Recorder;

/// A look at an index that excludes the key costs about 40 ns, a step over the entries of several runs
/// about 40 ns more than over those of one, a seek in one more run 0.7 us, an entry of a merge 0.35 us.
/// These are their shares of an entry, as a divisor and as factors.
pub(super) const PROBES_PER_ENTRY: u64 = 8;
pub(super) const STEPS_PER_ENTRY: u64 = 8;
pub(super) const ENTRIES_PER_SEEK: u64 = 2;

/// Counts what a cursor does because there are several runs.
#[derive(Debug)]
pub(super) struct RunsPassed {
    /// Runs beyond the first; 0 when there are no several.
    further_runs: u64,
    /// Steps since they were last told, seeks in further runs among them as what they cost in steps.
    steps: u64,
}

impl RunsPassed {
    /// Of a cursor over so many runs of tables.
    pub(super) fn new(runs: usize) -> RunsPassed {
        RunsPassed { further_runs: (runs as u64).saturating_sub(1), steps: 0 }
    }

    /// Counts a seek, and tells of the steps before it.
    #[inline]
    pub(super) fn seek(&mut self, recorder: &Recorder) {
        if self.further_runs > 0 {
            self.tell(recorder);
            self.steps += self.further_runs * ENTRIES_PER_SEEK * STEPS_PER_ENTRY;
        }
    }

    #[inline]
    pub(super) fn step(&mut self) {
        self.steps += u64::from(self.further_runs > 0);
    }

    /// Tells the recorder what was counted, and counts anew.
    pub(super) fn tell(&mut self, recorder: &Recorder) {
        if self.steps > 0 {
            recorder.note_steps_over_runs(std::mem::take(&mut self.steps));
        }
    }
}
