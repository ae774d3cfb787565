//! The thread that keeps the books' past: snapshots for `/stages`, and the log lines.
//!
//! 1. Every [`Recent::EVERY`], if there is an admin listener, it keeps a snapshot.
//! 2. Every `log_interval_secs`, and once more when the server ends, it logs what came since.
//!
//! It only looks: it has no part in serving, and a server without either has no such thread.

mod lines;

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::api::Api;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::snapshot::{Recent, Snapshot};

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Books {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Books {
    /// Starts the thread, if it has anything to do. It logs to whom the calling thread logs.
    pub(crate) fn open<E: Engine>(api: &Arc<Api<E>>) -> Result<Books> {
        let log_secs = u64::from(api.options.log_interval_secs);
        let lines = (log_secs > 0).then(|| Duration::from_secs(log_secs));
        let snapshots = api.options.admin.is_some().then_some(Recent::EVERY);
        if lines.is_none() && snapshots.is_none() {
            return Ok(Books { stop: None, thread: None });
        }
        let (stop, stopped) = mpsc::channel();
        let keeper = Keeper {
            last: api.snapshot(),
            api: api.clone(),
            lines: lines.map(Rhythm::new),
            snapshots: snapshots.map(Rhythm::new),
        };
        let log = tracing::dispatcher::get_default(Clone::clone);
        let thread = thread::Builder::new()
            .name("tallybook-books".to_owned())
            .spawn(move || tracing::dispatcher::with_default(&log, || keeper.run(&stopped)))
            .map_err(|source| Error::Io { what: "a thread", source })?;
        Ok(Books { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Books {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // Its panic was printed, and what it did for show harms nothing else.
            let _ = thread.join();
        }
    }
}

/// When something is done again.
struct Rhythm {
    period: Duration,
    due: Instant,
}

impl Rhythm {
    fn new(period: Duration) -> Rhythm {
        Rhythm { period, due: Instant::now() + period }
    }

    /// Whether it is time. Times that passed unused are left out.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.due <= now;
        if is_due {
            self.due += self.period;
            if self.due <= now {
                self.due = now + self.period;
            }
        }
        is_due
    }
}

struct Keeper<E> {
    api: Arc<Api<E>>,
    /// What the next lines count from.
    last: Snapshot,
    lines: Option<Rhythm>,
    snapshots: Option<Rhythm>,
}

impl<E: Engine> Keeper<E> {
    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        if self.snapshots.is_some() {
            self.api.recent.add(self.api.snapshot());
        }
        loop {
            let rhythms = [&self.lines, &self.snapshots].into_iter().flatten();
            let due = rhythms.map(|rhythm| rhythm.due).min().expect("the thread has work");
            let pause = due.saturating_duration_since(Instant::now());
            if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                break;
            }
            let now = Instant::now();
            if self.snapshots.as_mut().is_some_and(|rhythm| rhythm.is_due(now)) {
                self.api.recent.add(self.api.snapshot());
            }
            if self.lines.as_mut().is_some_and(|rhythm| rhythm.is_due(now)) {
                self.log();
            }
        }
        if self.lines.is_some() {
            self.log();
        }
    }

    fn log(&mut self) {
        let now = self.api.snapshot();
        lines::log(&self.api, &now, &self.last);
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_passed_unused_are_left_out() {
        let period = Duration::from_secs(10);
        let start = Instant::now();
        let mut rhythm = Rhythm { period, due: start };
        assert!(rhythm.is_due(start));
        assert!(!rhythm.is_due(start + period / 2));
        assert!(rhythm.is_due(start + period * 5));
        assert!(!rhythm.is_due(start + period * 5));
        assert_eq!(rhythm.due, start + period * 6);
    }
}
