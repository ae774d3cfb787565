//! Open loop over a session: each request at its moment, or as soon after it as the session is free.
//!
//! Latency counts from the moment at which a request was due, so a pause of the target is counted in
//! every request that it held up (coordinated omission; Tene, "How NOT to measure latency"). Slots
//! are never skipped; how late the generator itself was is recorded apart.

use std::time::Duration;

use quanta::Instant;

use super::closed::{Attempt, Lane};
use super::desk::Driven;
use super::interval::Times;
use super::pace::{self, Slot};
use super::stop::Stop;
use crate::error::Result;
use crate::target::Session;

/// What the loops of one run share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// When the first slot is due.
    pub(super) start: Instant,
    /// How long before a slot sleep ends.
    pub(super) margin: Duration,
    /// When requests that are still due are given up.
    pub(super) give_up: Option<Instant>,
}

/// Runs one thread's share at its schedule.
pub(super) fn run(
    mut lane: Lane,
    session: &mut dyn Session,
    timing: Timing,
    stop: &Stop<'_>,
) -> Result<Driven> {
    pace::wake_punctually();
    let mut attempt = Attempt::new(&lane.stream);
    let mut free_since = timing.start;
    let mut driven = Driven::default();
    let outcome = loop {
        let slot = lane.schedule.next(|| timing.start.elapsed());
        let due = match slot {
            None => break Ok(()),
            Some(Slot::AtOnce) => None,
            Some(Slot::At(offset)) => Some(timing.start + offset),
        };
        // Made ready before it is due, so that this isn't counted.
        if stop.is_set() || !attempt.prepare(&mut lane.stream) {
            break Ok(());
        }
        let sent = match due {
            None => Instant::now(),
            Some(due) => {
                let waited = pace::wait_until(due, timing.margin, stop);
                driven.spun += waited.spun;
                waited.until
            }
        };
        if stop.is_set() {
            break Ok(());
        }
        if timing.give_up.is_some_and(|give_up| sent > give_up) {
            driven.gave_up = Some(sent.saturating_duration_since(timing.start));
            break Ok(());
        }
        if let Some(due) = due {
            let own = sent.saturating_duration_since(due.max(free_since));
            lane.recorder.note_lag(sent - due.min(sent), own);
        }
        match attempt.make(session) {
            Ok(answered) => {
                let times = Times { due: due.unwrap_or(sent), sent, answered };
                lane.recorder.note(&attempt.operation, &attempt.check.told, times);
            }
            Err(error) => break Err(error),
        }
        free_since = Instant::now();
    };
    lane.recorder.finish();
    outcome.map(|()| driven)
}
