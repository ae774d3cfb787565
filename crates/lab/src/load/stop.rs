//! Why generators stop before their work is done.

use std::sync::atomic::{AtomicBool, Ordering};

/// A request to stop, by the user or because another thread failed.
#[derive(Debug)]
pub(super) struct Stop<'a> {
    /// The user's.
    interrupt: &'a AtomicBool,
    /// A thread failed, or the others ended that a background writer runs beside.
    own: AtomicBool,
}

impl<'a> Stop<'a> {
    pub(super) fn new(interrupt: &'a AtomicBool) -> Stop<'a> {
        Stop { interrupt, own: AtomicBool::new(false) }
    }

    pub(super) fn set(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.own.load(Ordering::Relaxed) || self.is_interrupted()
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}
