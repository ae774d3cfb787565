//! What is known of a value without reading its body, and what the tree holds of one write.

use bytes::Bytes;

use crate::checksum;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyRef<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// Where the value is.
    Ref(ValuePointer),
    /// No value: the key was deleted.
    Delete,
}

impl BodyRef<'_> {
    /// About what an entry of the key with this body takes, its value included, wherever that is.
    pub fn weight(&self, user_key: &[u8]) -> u64 {
        /// Bytes of an entry besides its key and its value.
        const OVERHEAD_BYTES: u64 = 16;
        let value_bytes = match self {
            BodyRef::Inline(value) => value.len() as u64,
            BodyRef::Ref(pointer) => u64::from(pointer.length),
            BodyRef::Delete => 0,
        };
        user_key.len() as u64 + value_bytes + OVERHEAD_BYTES
    }
}

/// Whether what has this expiry, as of [`EntryRef::expiry`], is a value as of `now_ms`, which is asked for if it
/// matters.
#[inline]
pub fn is_live(expiry: Option<u64>, now_ms: impl FnOnce() -> u64) -> bool {
    expiry.is_some_and(|at_ms| at_ms == 0 || at_ms > now_ms())
}

impl EntryRef<'_> {
    /// The same with bytes of its own.
    #[inline]
    pub fn to_entry(&self) -> Entry {
        self.with_bytes(Bytes::copy_from_slice)
    }

    /// The same with slices of `owner`, which holds the bytes.
    #[inline]
    pub fn slices_of(&self, owner: &Bytes) -> Entry {
        self.with_bytes(|bytes| owner.slice_ref(bytes))
    }

    #[inline]
    fn with_bytes(&self, bytes: impl Fn(&[u8]) -> Bytes) -> Entry {
        Entry {
            seqno: self.seqno,
            written_at_ms: self.written_at_ms,
            expires_at_ms: self.expires_at_ms,
            attributes: if self.attributes.is_empty() {
                Bytes::new()
            } else {
                bytes(self.attributes)
            },
            body: match self.body {
                BodyRef::Inline(value) => Body::Inline(bytes(value)),
                BodyRef::Ref(pointer) => Body::Ref(pointer),
                BodyRef::Delete => Body::Delete,
            },
        }
    }

    /// The kind that stands on disk for this entry.
    pub fn kind(&self) -> ValueKind {
        match self.body {
            BodyRef::Inline(_) => ValueKind::Put,
            BodyRef::Ref(_) => ValueKind::PutRef,
            BodyRef::Delete => ValueKind::Delete,
        }
    }

    /// When the value expires, in milliseconds since the Unix epoch, 0 for never; `None` for a deletion.
    pub fn expiry(&self) -> Option<u64> {
        (!matches!(self.body, BodyRef::Delete)).then_some(self.expires_at_ms)
    }

    /// Whether the key has a value as of `now_ms` by this entry.
    pub fn is_live(&self, now_ms: u64) -> bool {
        is_live(self.expiry(), || now_ms)
    }
}

impl Entry {
    /// The same by reference.
    #[inline]
    pub fn by_ref(&self) -> EntryRef<'_> {
        EntryRef {
            seqno: self.seqno,
            written_at_ms: self.written_at_ms,
            expires_at_ms: self.expires_at_ms,
            attributes: &self.attributes,
            body: match &self.body {
                Body::Inline(value) => BodyRef::Inline(value),
                Body::Ref(pointer) => BodyRef::Ref(*pointer),
                Body::Delete => BodyRef::Delete,
            },
        }
    }

    /// Whether the key has a value as of `now_ms` by this entry.
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.by_ref().is_live(now_ms)
    }

    /// Bytes of the value; none for a deletion.
    #[inline]
    pub fn length(&self) -> u64 {
        match &self.body {
            Body::Inline(value) => value.len() as u64,
            Body::Ref(pointer) => u64::from(pointer.length),
            Body::Delete => 0,
        }
    }

    /// The head; `None` for a deletion.
    pub fn head(&self) -> Option<Head> {
        let (length, checksum) = match &self.body {
            Body::Inline(value) => (value.len() as u64, checksum::crc32c(value)),
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
