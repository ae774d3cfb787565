//! Who is told when a thread has waited: for a lock, a sync, a flush, a stall.
//!
//! A lock profile needs the call stack of the thread that waited, while it is still there. So the
//! observer is called on that thread, right after the wait. One observer serves the whole process;
//! without one a wait costs a load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

/// Called after a wait with its name, such as `lock.commit`, and how long it took. It must be short,
/// and must not call a store.
pub type Observer = fn(name: &'static str, waited: Duration);

static IS_OBSERVED: AtomicBool = AtomicBool::new(false);
static OBSERVER: RwLock<Option<Observer>> = RwLock::new(None);

/// Has `observer` told of every wait in this process from now on, in place of any before; `None`:
/// nobody is.
pub fn observe(observer: Option<Observer>) {
    *OBSERVER.write() = observer;
    IS_OBSERVED.store(observer.is_some(), Ordering::Release);
}

/// Tells of a wait that has just ended.
#[inline]
pub(crate) fn note(name: &'static str, waited: Duration) {
    if IS_OBSERVED.load(Ordering::Acquire) {
        tell(name, waited);
    }
}

#[cold]
fn tell(name: &'static str, waited: Duration) {
    let observer = *OBSERVER.read();
    if let Some(observer) = observer {
        observer(name, waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn only_the_observer_of_the_moment_is_told() {
        static TOLD_NS: AtomicU64 = AtomicU64::new(0);
        let observer: Observer = |name, waited| {
            if name == "a test's wait" {
                TOLD_NS.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
            }
        };
        note("a test's wait", Duration::from_nanos(1));
        observe(Some(observer));
        note("a test's wait", Duration::from_nanos(10));
        observe(None);
        note("a test's wait", Duration::from_nanos(100));
        assert_eq!(TOLD_NS.load(Ordering::Relaxed), 10);
    }
}
