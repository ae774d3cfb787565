//! What is counted, and what must not happen.

use std::fmt;
use std::time::Duration;

/// A broken promise, or that the loop itself could not go on.
#[derive(Debug)]
pub(crate) struct Violation(String);

impl Violation {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Violation(what.into())
    }

    /// Something that kept the loop from its work and says nothing about the server.
    pub(crate) fn harness(what: String) -> Self {
        Violation(format!("(of the loop itself) {what}"))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Violation> for Vec<Violation> {
    fn from(violation: Violation) -> Self {
        vec![violation]
    }
}

/// Figures of the whole run.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) cycles: u64,
    /// Of those, killed before the server was open, and between SIGTERM and its end.
    pub(crate) killed_opening: u64,
    pub(crate) killed_stopping: u64,
    pub(crate) acknowledged: u64,
    /// Writes under way when the server was killed: they may be there or not.
    pub(crate) indeterminate: u64,
    pub(crate) checked_keys: u64,
    pub(crate) lost: u64,
    pub(crate) holes: u64,
    pub(crate) failed_opens: u64,
    reopen_ms_max: u128,
}

impl Totals {
    /// A server opened its store within this time.
    pub(crate) fn opened(&mut self, open_time: Duration) {
        self.reopen_ms_max = self.reopen_ms_max.max(open_time.as_millis());
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { cycles, killed_opening, killed_stopping, acknowledged, .. } = self;
        let Totals { indeterminate, checked_keys, lost, holes, failed_opens, .. } = self;
        write!(
            f,
            "cycles {cycles} (killed opening {killed_opening}, stopping {killed_stopping}), \
             acknowledged writes {acknowledged}, in flight {indeterminate}, \
             checked keys {checked_keys}, lost {lost}, holes {holes}, \
             failed opens {failed_opens}, max reopen {} ms",
            self.reopen_ms_max
        )
    }
}
