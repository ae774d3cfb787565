//! Closed loop over a session: the next request when the one before was answered.
//!
//! It finds how fast a target can be, and is blind to pauses: while the target pauses, nothing is
//! asked. `attempt`, one operation from its request to its checked answer, is shared with the open
//! loop.

use quanta::Instant;

use super::check::{Check, Told};
use super::interval::Times;
use super::pace::Schedule;
use super::recorder::Recorder;
use super::stop::Stop;
use crate::error::{Error, Result};
use crate::target::{Request, Session};
use crate::workload::{Kind, Operation, Stream};

/// One thread's work and what it needs for it.
pub(super) struct Lane {
    pub(super) stream: Stream,
    pub(super) schedule: Schedule,
    pub(super) recorder: Recorder,
}

impl Lane {
    /// Whether its requests wait for one another alone.
    pub(super) fn is_closed(&self) -> bool {
        self.schedule.is_closed()
    }
}

/// Runs one thread's share, as fast as its session answers.
pub(super) fn run(
    mut lane: Lane,
    session: &mut dyn Session,
    start: Instant,
    stop: &Stop<'_>,
) -> Result<()> {
    let mut attempt = Attempt::new(&lane.stream);
    let mut last = start;
    let outcome = loop {
        // The last answer's moment will do: reading the clock again would cost as much as a key.
        let elapsed = || last.saturating_duration_since(start);
        if stop.is_set() || lane.schedule.next(elapsed).is_none() {
            break Ok(());
        }
        if !attempt.prepare(&mut lane.stream) {
            break Ok(());
        }
        let sent = Instant::now();
        match attempt.make(session) {
            Ok(answered) => {
                last = answered;
                let times = Times { due: sent, sent, answered };
                lane.recorder.note(&attempt.operation, &attempt.check.told, times);
            }
            Err(error) => break Err(error),
        }
    };
    lane.recorder.finish();
    outcome
}

/// One operation after the other, from request to checked answer.
pub(super) struct Attempt {
    pub(super) operation: Operation,
    pub(super) check: Check,
    value: Vec<u8>,
}

impl Attempt {
    pub(super) fn new(stream: &Stream) -> Attempt {
        Attempt {
            operation: Operation::empty(),
            check: Check::new(stream.plan().clone()),
            value: Vec::new(),
        }
    }

    /// Makes the next operation ready to be sent; `false` when there is none.
    pub(super) fn prepare(&mut self, stream: &mut Stream) -> bool {
        if !stream.next(&mut self.operation) {
            return false;
        }
        write_value(stream, &self.operation, &mut self.value);
        self.check.expect(&self.operation);
        true
    }

    /// Makes it; says when its answer was shown. A wrong answer is an error.
    pub(super) fn make(&mut self, session: &mut dyn Session) -> Result<Instant> {
        session.perform(self.operation.request(&self.value), &mut self.check)?;
        let mut answered = self.check.finish();
        if self.operation.kind == Kind::ReadModifyWrite && self.check.told == Told::Good {
            self.check.expect_write(&self.operation);
            let request = Request::Put { key: &self.operation.key, value: &self.value };
            session.perform(request, &mut self.check)?;
            answered = self.check.finish();
        }
        refuse_wrong(&self.check.told)?;
        Ok(answered)
    }
}

/// Writes the value of an operation that needs one.
pub(super) fn write_value(stream: &Stream, operation: &Operation, value: &mut Vec<u8>) {
    if matches!(operation.kind, Kind::Put | Kind::ReadModifyWrite) {
        let values = stream.plan().values();
        values.write(operation.number, operation.generation, operation.value_bytes, value);
    }
}

/// A wrong answer ends the run.
pub(super) fn refuse_wrong(told: &Told) -> Result<()> {
    match told {
        Told::Wrong(what) => Err(Error::WrongData(what.clone())),
        _ => Ok(()),
    }
}
