//! A write that is about to be made: what the store is given, and what the model is to remember of it.

use bytes::Bytes;
use tallybook::batch::WriteBatch;
use tallybook::checksum;
use tallybook::error::Result;
use tallybook::key::SeqNo;
use tallybook::options::Durability;
use tallybook::store::{Condition, Store, WriteOptions};

use crate::operations::{Expiry, WriteStep};
use crate::random::Random;
use crate::record::{Record, Write};

/// One write, with what the model is to remember of it if it is made.
#[derive(Debug)]
pub struct Prepared {
    step: WriteStep,
    value: Bytes,
    attributes: Bytes,
    expires_at_ms: u64,
}

impl Prepared {
    /// A write that is about to be made at `now_ms`.
    pub fn new(step: &WriteStep, now_ms: u64) -> Self {
        let mut prepared = Prepared {
            step: step.clone(),
            value: Bytes::new(),
            attributes: Bytes::new(),
            expires_at_ms: 0,
        };
        if let WriteStep::Put { value, expiry, attributes_len, .. } = step {
            prepared.value = value.bytes();
            prepared.attributes = Random::new(!value.id).fill(*attributes_len).into();
            prepared.expires_at_ms = match expiry {
                Expiry::Never => 0,
                Expiry::In(ms) => now_ms + ms,
                Expiry::Past => now_ms - 1,
            };
        }
        prepared
    }

    /// What the model is to remember, if it is made between these moments.
    pub fn into_write(self, written_ms: (u64, u64)) -> Write {
        match self.step {
            WriteStep::Put { key, .. } => Write::Put(
                key,
                Record {
                    checksum: checksum::crc32c(&self.value),
                    value: self.value,
                    attributes: self.attributes,
                    expires_at_ms: self.expires_at_ms,
                    version: None,
                    written_ms,
                },
            ),
            WriteStep::Delete { key } => Write::Delete(key),
            WriteStep::DeleteRange { start, end } => Write::DeleteRange(start, end),
        }
    }
}

/// The key that a condition is on.
pub fn key_of(step: &WriteStep) -> &Bytes {
    match step {
        WriteStep::Put { key, .. } | WriteStep::Delete { key } => key,
        WriteStep::DeleteRange { start, .. } => start,
    }
}

/// Makes a single write, through the plainest call that can.
pub fn write_one(
    store: &Store,
    one: &Prepared,
    durability: Option<Durability>,
    condition: Option<Condition>,
) -> Result<SeqNo> {
    let options = WriteOptions {
        durability,
        expires_at_ms: one.expires_at_ms,
        attributes: one.attributes.clone(),
        condition,
    };
    let bare = durability.is_none() && one.expires_at_ms == 0 && one.attributes.is_empty();
    match (&one.step, condition) {
        (WriteStep::Put { key, .. }, None) if bare => store.put(key, &one.value),
        (WriteStep::Put { key, .. }, Some(condition)) if bare => {
            store.put_if(key, &one.value, condition)
        }
        (WriteStep::Put { key, .. }, _) => store.put_with(key, &one.value, &options),
        (WriteStep::Delete { key }, None) if bare => store.delete(key),
        (WriteStep::Delete { key }, _) => store.delete_with(key, &options),
        (WriteStep::DeleteRange { start, end }, _) if durability.is_none() => {
            store.delete_range(start, end)
        }
        (WriteStep::DeleteRange { .. }, _) => {
            write_batch(store, std::slice::from_ref(one), durability)
        }
    }
}

/// Makes several writes as a batch.
pub fn write_batch(
    store: &Store,
    writes: &[Prepared],
    durability: Option<Durability>,
) -> Result<SeqNo> {
    let mut batch = WriteBatch::new();
    for one in writes {
        match &one.step {
            WriteStep::Put { key, .. } => batch.put_entry(
                key.clone(),
                one.value.clone(),
                one.expires_at_ms,
                one.attributes.clone(),
            )?,
            WriteStep::Delete { key } => batch.delete(key.clone())?,
            WriteStep::DeleteRange { start, end } => {
                batch.delete_range(start.clone(), end.clone())?;
            }
        }
    }
    store.write(batch, durability)
}
