//! Writes that are applied together: all or nothing, to readers and after a crash.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::key::{ATTRIBUTES_BYTES_MAX, VALUE_BYTES_MAX, check_key};

/// Most bytes of keys, values and attributes in one batch.
pub const BATCH_BYTES_MAX: usize = 512 << 20;

/// One write of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Sets a key.
    Put {
        /// The key.
        key: Bytes,
        /// Its value.
        value: Bytes,
        /// When it expires, in milliseconds since the Unix epoch; 0 is never.
        expires_at_ms: u64,
        /// The caller's own bytes.
        attributes: Bytes,
    },
    /// Deletes a key, which may be absent.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Deletes every key in `[start, end)`.
    DeleteRange {
        /// First key deleted.
        start: Bytes,
        /// First key after `start` that is kept.
        end: Bytes,
    },
}

/// Writes applied atomically, in the order they were added; each takes a SeqNo of its own.
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    pub(crate) operations: Vec<Operation>,
    bytes: usize,
    uses_reserve: bool,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<()> {
        self.put_entry(key, value, 0, Bytes::new())
    }

    /// Sets `key` to `value` with an expiry (Unix milliseconds, 0 is never) and attributes (up to 1 KiB).
    pub fn put_entry(
        &mut self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        expires_at_ms: u64,
        attributes: Bytes,
    ) -> Result<()> {
        let (key, value) = (key.into(), value.into());
        check_key(&key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::InvalidArgument(format!(
                "a value has at most {VALUE_BYTES_MAX} bytes, this one has {}",
                value.len()
            )));
        }
        if attributes.len() > ATTRIBUTES_BYTES_MAX {
            return Err(Error::InvalidArgument(format!(
                "attributes have at most {ATTRIBUTES_BYTES_MAX} bytes, these have {}",
                attributes.len()
            )));
        }
        self.push(
            key.len() + value.len() + attributes.len(),
            Operation::Put { key, value, expires_at_ms, attributes },
        )
    }

    /// Deletes `key`.
    pub fn delete(&mut self, key: impl Into<Bytes>) -> Result<()> {
        let key = key.into();
        check_key(&key)?;
        self.push(key.len(), Operation::Delete { key })
    }

    /// Deletes every key in `[start, end)`; `start` must be below `end`.
    pub fn delete_range(&mut self, start: impl Into<Bytes>, end: impl Into<Bytes>) -> Result<()> {
        let (start, end) = (start.into(), end.into());
        check_key(&start)?;
        check_key(&end)?;
        if start >= end {
            return Err(Error::InvalidArgument("a range starts below its end".into()));
        }
        self.push(start.len() + end.len(), Operation::DeleteRange { start, end })
    }

    /// Lets the batch have what a full disk keeps for deletions, as a batch that only deletes has it. For a
    /// change that puts a little so that more can be freed; the reserve is small, and what others use of it
    /// deletions lack.
    pub fn use_reserve(&mut self) {
        self.uses_reserve = true;
    }

    /// Whether `use_reserve` was called.
    pub fn uses_reserve(&self) -> bool {
        self.uses_reserve
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Bytes of all keys, values and attributes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The writes, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    fn push(&mut self, bytes: usize, operation: Operation) -> Result<()> {
        if self.bytes + bytes > BATCH_BYTES_MAX {
            return Err(Error::InvalidArgument(format!(
                "a batch has at most {BATCH_BYTES_MAX} bytes"
            )));
        }
        self.bytes += bytes;
        self.operations.push(operation);
        Ok(())
    }
}
