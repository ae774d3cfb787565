//! Locks with a name: who has to wait for one leaves a trace of how long.
//!
//! Taking a free lock costs what it costs without a name. They guard against nothing themselves:
//! the guards are those of `parking_lot`.

use std::sync::Arc;

use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

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

/// A reader-writer lock with a name.
#[derive(Debug)]
pub struct RwLock<T> {
    name: Stage,
    recorder: Arc<Recorder>,
    inner: parking_lot::RwLock<T>,
}

impl<T> RwLock<T> {
    /// A lock whose waits, of readers and writers, are recorded as `name`.
    pub fn new(name: Stage, recorder: &Arc<Recorder>, value: T) -> RwLock<T> {
        RwLock { name, recorder: recorder.clone(), inner: parking_lot::RwLock::new(value) }
    }

    /// Takes the lock for reading.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        match self.inner.try_read() {
            Some(guard) => guard,
            None => self.wait(|inner| inner.read()),
        }
    }

    /// Takes the lock for writing.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        match self.inner.try_write() {
            Some(guard) => guard,
            None => self.wait(|inner| inner.write()),
        }
    }

    #[cold]
    fn wait<'a, G>(&'a self, take: impl FnOnce(&'a parking_lot::RwLock<T>) -> G) -> G {
        let from = cycles::now();
        let guard = take(&self.inner);
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
        let lock = RwLock::new(Stage::LockMemtable, &recorder, 0);
        *mutex.lock() += 1;
        drop((lock.read(), lock.read()));
        assert_eq!(recorder.stages().iter().count(), 0);
        let (guard, reading) = (mutex.lock(), lock.read());
        std::thread::scope(|scope| {
            scope.spawn(|| *mutex.lock() += 1);
            scope.spawn(|| *lock.write() += 1);
            std::thread::sleep(Duration::from_millis(20));
            drop((guard, reading));
        });
        let stages = recorder.stages();
        for name in [Stage::LockTree, Stage::LockMemtable] {
            assert_eq!(stages.times(name).count(), 1, "{}", name.name());
        }
        assert_eq!(stages.iter().count(), 2);
        assert_eq!((*mutex.lock(), *lock.read()), (2, 1));
    }
}
