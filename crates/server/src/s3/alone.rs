//! Who completes an upload does so alone: of several requests to do it, all but one wait.
//!
//! They wait before they take a turn (see `Shelf::run_long`), so that one upload has one at most, and is written
//! anew once at a time. The sweep doesn't wait, and leaves alone what is being completed.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Uploads that are being completed.
#[derive(Default)]
pub(super) struct Completing {
    /// The lock of each, for as long as somebody has it or waits for it.
    locks: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

/// The right to complete an upload, until it is dropped.
pub(super) type Alone = OwnedMutexGuard<()>;

impl Completing {
    /// Waits until nobody else completes this upload.
    pub(super) async fn alone(&self, upload: &str) -> Alone {
        self.lock_of(upload).lock_owned().await
    }

    /// The same right, unless somebody has it.
    pub(super) fn try_alone(&self, upload: &str) -> Option<Alone> {
        self.lock_of(upload).try_lock_owned().ok()
    }

    fn lock_of(&self, upload: &str) -> Arc<AsyncMutex<()>> {
        let mut locks = self.locks.lock();
        let known = locks.get(upload).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            locks.retain(|_, lock| lock.strong_count() > 0);
            let lock = Arc::default();
            locks.insert(upload.to_owned(), Arc::downgrade(&lock));
            lock
        })
    }
}
