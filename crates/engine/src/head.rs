//! What is known of a value without reading its body, and what the tree holds of one write.

use bytes::Bytes;

use crate::key::{SeqNo, ValueKind};

/// What is known of a value without reading its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// SeqNo of the write that made the value. Never reused, never reset.
    pub version: SeqNo,
    /// Bytes of the value.
    pub length: u64,
    /// CRC-32C (RFC 3720) of the value.
    pub checksum: u32,
    /// When it was written, in milliseconds since the Unix epoch.
    pub written_at_ms: u64,
    /// When it expires, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// The caller's own bytes, up to 1 KiB.
    pub attributes: Bytes,
}

/// Where a value stands in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValuePointer {
    /// Number of the segment.
    pub segment: u64,
    /// Offset of the value's first byte in the segment's file.
    pub offset: u64,
    /// Bytes of the value.
    pub length: u32,
    /// CRC-32C of the value.
    pub checksum: u32,
}

/// The last part of an entry: the value, where it is, or that there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The value itself.
    Inline(Bytes),
    /// Where the value is.
    Ref(ValuePointer),
    /// No value: the key was deleted.
    Delete,
}

/// What the memtable and the tree hold of one write to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Number of the write.
    pub seqno: SeqNo,
    /// When it was written, in milliseconds since the Unix epoch.
    pub written_at_ms: u64,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_at_ms: u64,
    /// The caller's own bytes.
    pub attributes: Bytes,
    /// The value, where it is, or that there is none.
    pub body: Body,
}

/// An [`Entry`] by reference to where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// Number of the write.
    pub seqno: SeqNo,
    /// When it was written, in milliseconds since the Unix epoch.
    pub written_at_ms: u64,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_at_ms: u64,
    /// The caller's own bytes.
    pub attributes: &'a [u8],
    /// The value, where it is, or that there is none.
    pub body: BodyRef<'a>,
}

/// A [`Body`] by reference to where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyRef<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// Where the value is.
    Ref(ValuePointer),
    /// No value: the key was deleted.
    Delete,
}

impl EntryRef<'_> {
    /// The same with bytes of its own.
    pub fn to_entry(&self) -> Entry {
        Entry {
            seqno: self.seqno,
            written_at_ms: self.written_at_ms,
            expires_at_ms: self.expires_at_ms,
            attributes: Bytes::copy_from_slice(self.attributes),
            body: match &self.body {
                BodyRef::Inline(value) => Body::Inline(Bytes::copy_from_slice(value)),
                BodyRef::Ref(pointer) => Body::Ref(*pointer),
                BodyRef::Delete => Body::Delete,
            },
        }
    }
}

impl Entry {
    /// The kind that stands on disk for this entry.
    pub fn kind(&self) -> ValueKind {
        match self.body {
            Body::Inline(_) => ValueKind::Put,
            Body::Ref(_) => ValueKind::PutRef,
            Body::Delete => ValueKind::Delete,
        }
    }

    /// Whether the key has a value as of `now_ms` by this entry.
    pub fn is_live(&self, now_ms: u64) -> bool {
        !matches!(self.body, Body::Delete) && !self.is_expired(now_ms)
    }

    /// Whether the entry has expired as of `now_ms`.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms != 0 && self.expires_at_ms <= now_ms
    }

    /// The head; `None` for a deletion.
    pub fn head(&self) -> Option<Head> {
        let (length, checksum) = match &self.body {
            Body::Inline(value) => (value.len() as u64, crc32c::crc32c(value)),
            Body::Ref(pointer) => (u64::from(pointer.length), pointer.checksum),
            Body::Delete => return None,
        };
        Some(Head {
            version: self.seqno,
            length,
            checksum,
            written_at_ms: self.written_at_ms,
            expires_at_ms: (self.expires_at_ms != 0).then_some(self.expires_at_ms),
            attributes: self.attributes.clone(),
        })
    }
}
