//! The operations of a trial, the same for every store they are tried on.
//!
//! What depends on the state of a store (a condition on the current version) is named here and resolved by the
//! runner.

use bytes::Bytes;
use tallybook::options::Durability;

use crate::random::Random;

/// A value of a length, its bytes drawn from `id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueSpec {
    /// Bytes of the value.
    pub len: usize,
    /// Which value of that length.
    pub id: u64,
}

impl ValueSpec {
    /// The value.
    pub fn bytes(&self) -> Bytes {
        Random::new(self.id).fill(self.len).into()
    }
}

/// When a put expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// So many milliseconds from now.
    In(u64),
    /// It has already.
    Past,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteStep {
    /// Sets a key.
    Put {
        /// The key.
        key: Bytes,
        /// Its value.
        value: ValueSpec,
        /// When it expires.
        expiry: Expiry,
        /// Bytes of attributes.
        attributes_len: usize,
    },
    /// Deletes a key.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Deletes `[start, end)`.
    DeleteRange {
        /// First key deleted.
        start: Bytes,
        /// First key kept.
        end: Bytes,
    },
}

/// What a conditional write demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStep {
    /// The key is absent.
    Absent,
    /// The key is present.
    Present,
    /// The key is at the version it has now.
    CurrentVersion,
    /// The key is at a version that it hasn't.
    OtherVersion,
    /// The key is not at the version it has now.
    NotCurrentVersion,
    /// The key is not at some version that it hasn't.
    NotOtherVersion,
}

/// The keys a scan or walk visits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// First key, included.
    pub start: Option<Bytes>,
    /// End, excluded.
    pub end: Option<Bytes>,
    /// Only keys with this prefix.
    pub prefix: Option<Bytes>,
}

/// One move of a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// To the first key.
    First,
    /// To the last key.
    Last,
    /// To the first key at or after this one.
    Seek(Bytes),
    /// To the last key before this one.
    SeekBefore(Bytes),
    /// On by one, where there is an entry to move from.
    Next,
    /// Back by one, where there is an entry to move from.
    Prev,
}

/// One read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadStep {
    /// A value alone.
    Get(Bytes),
    /// A head alone.
    Head(Bytes),
    /// Head and value.
    Entry(Bytes),
    /// Up to `limit` entries of a range.
    Scan {
        /// Where.
        bounds: Bounds,
        /// Descending.
        reverse: bool,
        /// Most entries taken.
        limit: usize,
    },
    /// Up to `limit` heads of a range.
    ScanHeads {
        /// Where.
        bounds: Bounds,
        /// Descending.
        reverse: bool,
        /// Most entries taken.
        limit: usize,
    },
    /// A cursor moved about.
    Walk {
        /// Where.
        bounds: Bounds,
        /// How.
        moves: Vec<Move>,
    },
}

/// One operation of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A write of its own.
    Write(WriteStep, Option<Durability>),
    /// A batch.
    Batch(Vec<WriteStep>, Option<Durability>),
    /// A conditional put or delete.
    Conditional(WriteStep, ConditionStep),
    /// A read of the store as it is.
    Read(ReadStep),
    /// Takes a snapshot and holds it.
    Snapshot,
    /// Reads one of the snapshots held (by index, modulo how many there are).
    ReadSnapshot(usize, ReadStep),
    /// Lets one of the snapshots go.
    DropSnapshot(usize),
    /// Moves the clock on by so many milliseconds, where the clock can be moved.
    Advance(u64),
    /// Flushes.
    Flush,
    /// Compacts a range.
    Compact(Option<Bytes>, Option<Bytes>),
    /// Waits for a sync.
    Sync,
    /// Verifies the store; nothing may be found.
    Verify,
    /// Makes a checkpoint, opens it and compares it.
    Checkpoint,
    /// Closes and opens the store.
    Reopen,
    /// Crashes the store and opens what is left; then goes on with that.
    Crash {
        /// Power is lost, instead of the process being killed.
        power_loss: bool,
        /// What of the unsynced survives a power loss.
        seed: u64,
    },
}
