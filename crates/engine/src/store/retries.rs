//! When background work that failed is tried again.
//!
//! 1. Each task waits for itself: a merge that fails holds up no flush.
//! 2. After a failure it waits for 200 ms: what was in the way may be gone soon.
//! 3. After the same failure again it waits four times as long, up to seconds: a merge may have written
//!    256 MiB by the time that it comes to it. What succeeds in between changes nothing about that.
//! 4. For want of space it never waits longer: somebody may free some at any time.
//!
//! A merge or a collection that meets damage in what it reads didn't fail as a task: see `avoided`.

use std::time::Duration;

use parking_lot::Mutex;

use crate::error::Error;
use crate::resources::Work;

/// Failed background work is first tried again after this.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(200);

/// After the same failure, so many times as long.
const GROWTH: u32 = 4;

/// The longest wait, and that of flushes, which writers may come to wait for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
const FLUSH_RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// A failure that didn't come again for this long is forgotten.
const REMEMBERED: Duration = Duration::from_secs(600);

/// What is tried again by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Flushing, and naming segments.
    Flush,
    /// Merging tables.
    Merge,
    /// Collecting segments.
    Collect,
    /// Giving back what only a busy store needs.
    Rest,
}

const TASKS: [Task; 4] = [Task::Flush, Task::Merge, Task::Collect, Task::Rest];

impl Task {
    /// What threads are asked for to do it.
    pub(super) fn work(self) -> Work {
        match self {
            Task::Flush => Work::Flush,
            Task::Merge | Task::Collect | Task::Rest => Work::Compaction,
        }
    }

    fn retry_after_max(self) -> Duration {
        if self == Task::Flush { FLUSH_RETRY_AFTER_MAX } else { RETRY_AFTER_MAX }
    }
}

/// What is known of one task.
#[derive(Debug, Default)]
struct Record {
    /// How it failed, unless it has succeeded since.
    failure: Option<Error>,
    /// Clock reading before which it is not tried again.
    retry_at_ns: Option<u64>,
    patience: Patience,
}

/// How something last failed, when, and after how long it was tried again.
#[derive(Debug, Clone, Default)]
pub(super) struct Patience {
    cause: String,
    failed_at_ns: u64,
    waited: Duration,
}

impl Patience {
    /// Notes a failure, and answers how long to wait: longer, up to `max`, after the same one again.
    pub(super) fn lose(&mut self, error: &Error, now_ns: u64, max: Duration) -> Duration {
        self.waited = match error {
            Error::NoSpace { .. } => RETRY_AFTER,
            _ if self.is_of(error) && self.is_fresh(now_ns) => {
                (self.waited * GROWTH).clamp(RETRY_AFTER, max)
            }
            _ => RETRY_AFTER,
        };
        (self.cause, self.failed_at_ns) = (cause_of(error), now_ns);
        self.waited
    }

    /// Has it begin anew: after the same failure it waits as after the first.
    pub(super) fn renew(&mut self) {
        self.waited = Duration::ZERO;
    }

    /// Whether the last failure is remembered.
    fn is_fresh(&self, now_ns: u64) -> bool {
        Duration::from_nanos(now_ns.saturating_sub(self.failed_at_ns)) <= REMEMBERED
    }

    /// The last wait.
    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    /// Whether it was lost to the same failure.
    pub(super) fn is_of(&self, error: &Error) -> bool {
        self.cause == cause_of(error)
    }
}

/// What two failures of the same cause have in common: each try writes another file.
fn cause_of(error: &Error) -> String {
    match error {
        Error::Io { op, source, .. } if !matches!(*op, "read" | "open" | "map") => {
            format!("{op}: {source}")
        }
        error => error.to_string(),
    }
}

/// The tasks that failed.
#[derive(Debug, Default)]
pub(super) struct Retries(Mutex<[Record; TASKS.len()]>);

impl Retries {
    /// Notes that a task failed: it waits from now on.
    pub(super) fn note_failure(&self, task: Task, error: &Error, now_ns: u64) {
        let record = &mut self.0.lock()[task as usize];
        let wait = record.patience.lose(error, now_ns, task.retry_after_max());
        record.retry_at_ns = Some(now_ns + wait.as_nanos() as u64);
        record.failure = Some(error.clone());
    }

    /// Notes that a task succeeded, or found nothing to do.
    pub(super) fn note_success(&self, task: Task) {
        let record = &mut self.0.lock()[task as usize];
        (record.failure, record.retry_at_ns) = (None, None);
    }

    /// Has a task tried again at once, as somebody asked for it.
    pub(super) fn end_wait(&self, task: Task) {
        self.0.lock()[task as usize].retry_at_ns = None;
    }

    /// Whether a task waits before it is tried again.
    pub(super) fn waits(&self, task: Task) -> bool {
        self.0.lock()[task as usize].retry_at_ns.is_some()
    }

    /// When the first of those that wait is tried again, if any does.
    pub(super) fn retry_at_ns(&self) -> Option<u64> {
        self.0.lock().iter().filter_map(|record| record.retry_at_ns).min()
    }

    /// Ends the waits that are over, and answers whose they were.
    pub(super) fn take_due(&self, now_ns: u64) -> Vec<Task> {
        let mut records = self.0.lock();
        let is_due = |record: &mut Record| record.retry_at_ns.take_if(|at| *at <= now_ns).is_some();
        TASKS.into_iter().filter(|&task| is_due(&mut records[task as usize])).collect()
    }

    /// A failure of a task that hasn't succeeded since.
    pub(super) fn failure(&self) -> Option<Error> {
        self.0.lock().iter().find_map(|record| record.failure.clone())
    }

    /// Whether a task failed for want of space, and hasn't succeeded since.
    pub(super) fn lacks_space(&self) -> bool {
        let lacks = |record: &Record| matches!(record.failure, Some(Error::NoSpace { .. }));
        self.0.lock().iter().any(lacks)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn damage(offset: u64) -> Error {
        Error::corruption(Path::new("table"), offset, "a wrong checksum")
    }

    /// The waits in milliseconds of a task that fails like this, tried again as soon as it may be.
    fn waits(task: Task, failures: &[Error]) -> Vec<u64> {
        let retries = Retries::default();
        let mut now_ns = 0;
        let wait = |error: &Error| {
            retries.note_failure(task, error, now_ns);
            assert!(retries.waits(task) && retries.take_due(now_ns).is_empty());
            let retry_at_ns = retries.retry_at_ns().unwrap();
            let waited_ms = (retry_at_ns - now_ns) / 1_000_000;
            now_ns = retry_at_ns;
            assert_eq!(retries.take_due(now_ns), [task]);
            // Something else of its kind may go well.
            retries.note_success(task);
            waited_ms
        };
        failures.iter().map(wait).collect()
    }

    #[test]
    fn the_same_failure_again_is_waited_for_ever_longer() {
        let same = vec![damage(1); 8];
        assert_eq!(waits(Task::Merge, &same[..5]), [200, 800, 3200, 10_000, 10_000]);
        let write = |number: u64| {
            let path = format!("{number:06}.sst");
            Error::io("write", Path::new(&path), std::io::Error::from_raw_os_error(5))
        };
        assert_eq!(waits(Task::Merge, &[write(1), write(2), write(3)]), [200, 800, 3200]);
        assert_eq!(waits(Task::Flush, &same[..5]), [200, 800, 3200, 5000, 5000]);
        let no_space = Error::NoSpace { path: "table".into() };
        assert_eq!(waits(Task::Merge, &vec![no_space; 5]), [200; 5]);
        let others = [damage(1), damage(1), damage(2), damage(1)];
        assert_eq!(waits(Task::Collect, &others), [200, 800, 200, 200]);
    }

    #[test]
    fn a_failure_of_long_ago_is_forgotten() {
        let retries = Retries::default();
        retries.note_failure(Task::Merge, &damage(1), 0);
        retries.note_success(Task::Merge);
        let later_ns = REMEMBERED.as_nanos() as u64 + 1;
        retries.note_failure(Task::Merge, &damage(1), later_ns);
        assert_eq!(retries.retry_at_ns(), Some(later_ns + RETRY_AFTER.as_nanos() as u64));
    }

    #[test]
    fn each_task_waits_for_itself() {
        let retries = Retries::default();
        retries.note_failure(Task::Merge, &damage(1), 0);
        assert!(retries.waits(Task::Merge) && !retries.waits(Task::Flush));
        retries.note_failure(Task::Flush, &Error::NoSpace { path: "table".into() }, 0);
        assert!(retries.lacks_space());
        retries.note_success(Task::Flush);
        assert!(!retries.lacks_space());
        assert_eq!(retries.failure().unwrap().to_string(), damage(1).to_string());
        retries.end_wait(Task::Merge);
        assert!(!retries.waits(Task::Merge) && retries.failure().is_some());
        retries.note_success(Task::Merge);
        assert!(retries.failure().is_none());
    }
}
