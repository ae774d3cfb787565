//! What is damaged, or met damage, and is left alone for a while, so that the rest goes on.
//!
//! What is damaged stays so, mostly, and a disk may take seconds to find that out. So it is tried again ever more
//! rarely, but for as long as the store is open: a disk may read again what it could not.

use std::time::Duration;

use parking_lot::Mutex;

use super::retries::Patience;
use crate::error::Error;

/// The longest wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct Entry<T> {
    what: T,
    error: Error,
    patience: Patience,
    /// Clock reading before which it is left alone.
    retry_at_ns: Option<u64>,
}

/// What is left alone.
#[derive(Debug)]
pub(super) struct Avoided<T>(Mutex<Vec<Entry<T>>>);

impl<T> Default for Avoided<T> {
    fn default() -> Self {
        Avoided(Mutex::default())
    }
}

impl<T: PartialEq + Clone> Avoided<T> {
    /// Notes that something met damage: it is left alone from now on.
    pub(super) fn note(&self, what: T, error: &Error, now_ns: u64) {
        let mut entries = self.0.lock();
        // Several may come to one damaged place, and those of the next time be others.
        let same = entries.iter().filter(|entry| entry.patience.is_of(error));
        let last = same.max_by_key(|entry| (entry.retry_at_ns, entry.patience.waited()));
        let mut patience = last.map(|entry| entry.patience.clone()).unwrap_or_default();
        // One of them may wait already: what it met was not tried again in between.
        let waiting = last.and_then(|entry| entry.retry_at_ns);
        let retry_at_ns = waiting.unwrap_or_else(|| {
            now_ns + patience.lose(error, now_ns, RETRY_AFTER_MAX).as_nanos() as u64
        });
        entries.retain(|entry| {
            let is_over = entry.retry_at_ns.is_none() && entry.patience.is_of(error);
            entry.what != what && !is_over
        });
        let retry_at_ns = Some(retry_at_ns);
        entries.push(Entry { what, error: error.clone(), patience, retry_at_ns });
    }

    /// What is left alone now.
    pub(super) fn list(&self) -> Vec<T> {
        self.those(|entry| entry.retry_at_ns.is_some())
    }

    /// What was left alone, and is to be tried again.
    pub(super) fn due(&self) -> Vec<T> {
        self.those(|entry| entry.retry_at_ns.is_none())
    }

    fn those(&self, are: impl Fn(&Entry<T>) -> bool) -> Vec<T> {
        self.0.lock().iter().filter(|entry| are(entry)).map(|entry| entry.what.clone()).collect()
    }

    /// When the first of it is tried again, if there is any.
    pub(super) fn retry_at_ns(&self) -> Option<u64> {
        self.0.lock().iter().filter_map(|entry| entry.retry_at_ns).min()
    }

    /// Has everything tried again at once, as somebody asked for it, and answers whether there was any.
    pub(super) fn end_waits(&self) -> bool {
        let mut entries = self.0.lock();
        for entry in entries.iter_mut() {
            entry.retry_at_ns = None;
            entry.patience.renew();
        }
        !entries.is_empty()
    }

    /// Ends the waits that are over, and answers whether there were any.
    pub(super) fn end_due(&self, now_ns: u64) -> bool {
        let mut any = false;
        for entry in self.0.lock().iter_mut() {
            any |= entry.retry_at_ns.take_if(|at| *at <= now_ns).is_some();
        }
        any
    }

    /// Forgets what is well, or gone.
    pub(super) fn forget(&self, is_well: impl Fn(&T) -> bool) {
        self.0.lock().retain(|entry| !is_well(&entry.what));
    }

    /// Adds what is left alone now and isn't in `met` yet, and what it met: before somebody asks, it may be tried
    /// again.
    pub(super) fn gather(&self, met: &mut Vec<(T, Error)>) {
        for entry in self.0.lock().iter().filter(|entry| entry.retry_at_ns.is_some()) {
            if met.iter().all(|(what, _)| *what != entry.what) {
                met.push((entry.what.clone(), entry.error.clone()));
            }
        }
    }

    /// Something of it, and what it met.
    pub(super) fn first(&self) -> Option<(T, Error)> {
        self.0.lock().first().map(|entry| (entry.what.clone(), entry.error.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn damage(offset: u64) -> Error {
        Error::corruption(Path::new("table"), offset, "a wrong checksum")
    }

    /// Each waited four times as long as the one before it: all but the first for minutes.
    #[test]
    fn what_meets_one_damage_together_is_tried_again_together() {
        let avoided = Avoided::default();
        let mut now_ns = 0;
        for expected_ms in [200, 800] {
            for what in [1, 2, 2, 3, 4, 5, 6, 7] {
                avoided.note(what, &damage(1), now_ns);
            }
            now_ns += expected_ms * 1_000_000;
            assert_eq!(avoided.list(), [1, 2, 3, 4, 5, 6, 7]);
            assert!(avoided.end_due(now_ns));
            assert_eq!(avoided.due(), [1, 2, 3, 4, 5, 6, 7]);
        }
    }

    #[test]
    fn what_meets_damage_again_is_left_alone_for_longer_and_nothing_else_is() {
        let avoided = Avoided::default();
        let mut now_ns = 0;
        avoided.note("other", &damage(7), 250_000_000);
        for expected_ms in [200, 800, 3200] {
            avoided.note("this", &damage(1), now_ns);
            assert!(avoided.list().contains(&"this"));
            now_ns += expected_ms * 1_000_000;
            assert!(!avoided.end_due(now_ns - 1) || expected_ms > 200);
            assert!(avoided.end_due(now_ns) && !avoided.list().contains(&"this"));
        }
        assert_eq!(avoided.retry_at_ns(), None);
        // The same damage may be met by another.
        avoided.note("that", &damage(1), now_ns);
        assert_eq!(avoided.retry_at_ns(), Some(now_ns + 12_800_000_000));
        avoided.forget(|what| *what == "that");
        assert_eq!(avoided.first().map(|(what, _)| what), Some("other"));
    }
}
