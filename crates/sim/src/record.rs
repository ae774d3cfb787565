//! One version of a key as the model remembers it, and a state made of such.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tallybook::head::Head;
use tallybook::key::SeqNo;

use crate::violation::show;

/// One version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The value.
    pub value: Bytes,
    /// CRC-32C of the value.
    pub checksum: u32,
    /// The caller's own bytes.
    pub attributes: Bytes,
    /// When it expires; 0 is never.
    pub expires_at_ms: u64,
    /// Its version, once known.
    pub version: Option<SeqNo>,
    /// The clock before and after the call that wrote it.
    pub written_ms: (u64, u64),
}

impl Record {
    /// A record as a store showed it.
    pub fn observed(head: &Head, value: &Bytes) -> Self {
        Record {
            value: value.clone(),
            checksum: head.checksum,
            attributes: head.attributes.clone(),
            expires_at_ms: head.expires_at_ms.unwrap_or(0),
            version: Some(head.version),
            written_ms: (head.written_at_ms, head.written_at_ms),
        }
    }

    /// Whether a read at `now_ms` sees it.
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.expires_at_ms == 0 || self.expires_at_ms > now_ms
    }

    /// Says how a head differs from this record, if it does.
    pub fn check_head(&self, key: &[u8], head: &Head) -> Result<(), String> {
        let wrong = |what: &str, got: String, expected: String| {
            Err(format!("{what} of key {} is {got}, expected {expected}", show(key)))
        };
        if self.version.is_some_and(|version| version != head.version) {
            return wrong("version", format!("{}", head.version), format!("{:?}", self.version));
        }
        if head.length != self.value.len() as u64 {
            return wrong("length", head.length.to_string(), self.value.len().to_string());
        }
        if head.checksum != self.checksum {
            return wrong("checksum", head.checksum.to_string(), self.checksum.to_string());
        }
        if head.attributes != self.attributes {
            return wrong("attributes", show(&head.attributes), show(&self.attributes));
        }
        if head.expires_at_ms.unwrap_or(0) != self.expires_at_ms {
            return wrong(
                "expiry",
                format!("{:?}", head.expires_at_ms),
                self.expires_at_ms.to_string(),
            );
        }
        let (from, to) = self.written_ms;
        if !(from..=to).contains(&head.written_at_ms) {
            return wrong("write time", head.written_at_ms.to_string(), format!("{from}..={to}"));
        }
        Ok(())
    }

    /// Says how a value differs from this record, if it does.
    pub fn check_value(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        if self.value == value {
            return Ok(());
        }
        Err(format!(
            "value of key {} is {}, expected {}",
            show(key),
            show(value),
            show(&self.value)
        ))
    }
}

/// Every key with its newest record; expired ones stay, because they hide what they replaced.
pub type State = BTreeMap<Bytes, Arc<Record>>;

/// The keys of a state that a read at `now_ms` sees, ascending.
pub fn live(state: &State, now_ms: u64) -> impl DoubleEndedIterator<Item = (&Bytes, &Arc<Record>)> {
    state.iter().filter(move |(_, record)| record.is_live(now_ms))
}

/// The record that a read of `key` at `now_ms` sees.
pub fn live_record<'a>(state: &'a State, key: &[u8], now_ms: u64) -> Option<&'a Record> {
    state.get(key).filter(|record| record.is_live(now_ms)).map(Arc::as_ref)
}

/// One write of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put(Bytes, Record),
    /// Deletes a key.
    Delete(Bytes),
    /// Deletes `[start, end)`.
    DeleteRange(Bytes, Bytes),
}
