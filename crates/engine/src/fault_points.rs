//! Bugs that a test can plant, to prove that the test suite would find them.
//!
//! Compiled in only with the feature `planted-bugs`, which nothing that ships enables; without it
//! every question is answered "no" at compile time. Planting is per thread.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Checksums of values and blocks are not compared.
    SkipChecksum,
    /// A `Sync` write is acknowledged without waiting for its sync.
    AckBeforeSync,
    /// The inputs of a compaction are removed before the manifest is synced.
    DeleteInputsBeforeManifestSync,
    /// A damaged block is read as if it held nothing.
    FallThroughOnCorruptBlock,
    /// Recovery starts numbering where the flushed tables end, reusing SeqNos of replayed records.
    ReuseSeqNoAfterCrash,
    /// Collection leaves live values behind.
    CollectionDropsLiveValue,
    /// A new directory entry is not synced.
    SkipDirSync,
    /// A compaction drops range deletions that are still needed.
    ForgetRangeTombstone,
}

#[cfg(feature = "planted-bugs")]
mod active {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants one bug in this thread, in place of any other.
    pub fn plant(bug: Bug) {
        PLANTED.set(Some(bug));
    }

    /// Removes this thread's bug.
    pub fn clear() {
        PLANTED.set(None);
    }

    /// Whether this thread has planted it.
    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "planted-bugs")]
pub use active::is_planted;
#[cfg(feature = "planted-bugs")]
pub use active::{clear, plant};

#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub(crate) fn is_planted(_bug: Bug) -> bool {
    false
}
