//! Locks with a name: who has to wait for one leaves a trace of how long.
//!
//! Taking a free lock costs what it costs without a name. They guard against nothing themselves:
//! the guards are those of `parking_lot`.

use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::stages::{Recorder, Stage};
use crate::vfs::cycles;

/// A mutex with a name.
#[derive(Debug)]
pub struct Mutex<T> {
    name: Stage,
    recorder: Arc<Recorder>,
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A mutex whose waits are recorded as `name`.
    pub fn new(name: Stage, recorder: &Arc<Recorder>, value: T) -> Mutex<T> {
        Mutex { name, recorder: recorder.clone(), inner: parking_lot::Mutex::new(value) }
    }

    /// Takes the lock, waiting for it if need be.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.inner.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock()
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        let from = cycles::now();
        let guard = self.inner.lock();
        self.recorder.note_wait(self.name, from);
        guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_who_waits_is_recorded_and_by_name() {
        let recorder = Arc::new(Recorder::new(0));
        let mutex = Mutex::new(Stage::LockTree, &recorder, 0);
        let other = Mutex::new(Stage::LockMemtable, &recorder, 0);
        *mutex.lock() += 1;
        drop(other.lock());
        assert_eq!(recorder.stages().iter().count(), 0);
        let (guard, held) = (mutex.lock(), other.lock());
        std::thread::scope(|scope| {
            scope.spawn(|| *mutex.lock() += 1);
            scope.spawn(|| *other.lock() += 1);
            std::thread::sleep(Duration::from_millis(20));
            drop((guard, held));
        });
        let stages = recorder.stages();
        for name in [Stage::LockTree, Stage::LockMemtable] {
            assert_eq!(stages.times(name).count(), 1, "{}", name.name());
        }
        assert_eq!(stages.iter().count(), 2);
        assert_eq!((*mutex.lock(), *other.lock()), (2, 1));
    }
}
