//! One operation: what is asked of which key, and what must come back.

use crate::keys::KeyNumber;
use crate::target::Request;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Ask for a value.
    Get,
    /// Set a key.
    Put,
    /// Ask for a head.
    Head,
    /// Delete a key.
    Delete,
    /// Read a range.
    Scan,
    /// Ask for a value, then set its key.
    ReadModifyWrite,
}

impl Kind {
    /// Every one, in the order of their numbers.
    pub const ALL: [Kind; 6] =
        [Kind::Get, Kind::Put, Kind::Head, Kind::Delete, Kind::Scan, Kind::ReadModifyWrite];

    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Put => "put",
            Kind::Head => "head",
            Kind::Delete => "delete",
            Kind::Scan => "scan",
            Kind::ReadModifyWrite => "read-modify-write",
        }
    }
}

/// One operation: what to ask, and what must come back.
#[derive(Debug, Clone)]
pub struct Operation {
    /// What is done.
    pub kind: Kind,
    /// The key, or where a scan starts.
    pub number: KeyNumber,
    /// Its bytes.
    pub key: Vec<u8>,
    /// Whether the key is in the store.
    pub is_present: bool,
    /// Which write this is, of those that write.
    pub generation: u64,
    /// How long the value is, of those that write.
    pub value_bytes: u32,
    /// Most keys, of scans.
    pub scan_keys: u64,
    /// Fewest prefilled keys that a scan must find.
    pub scan_keys_min: u64,
    /// Tells it from every other operation of the run; equal in equal runs.
    pub hash: u64,
}

impl Operation {
    /// One to be filled by [`super::Stream::next`].
    pub fn empty() -> Operation {
        Operation {
            kind: Kind::Get,
            number: KeyNumber::present(0),
            key: Vec::new(),
            is_present: false,
            generation: 0,
            value_bytes: 0,
            scan_keys: 0,
            scan_keys_min: 0,
            hash: 0,
        }
    }

    /// The request; of a read-modify-write, the reading one.
    pub fn request<'a>(&'a self, value: &'a [u8]) -> Request<'a> {
        let key = &self.key[..];
        match self.kind {
            Kind::Get | Kind::ReadModifyWrite => Request::Get { key },
            Kind::Put => Request::Put { key, value },
            Kind::Head => Request::Head { key },
            Kind::Delete => Request::Delete { key },
            Kind::Scan => Request::Scan { start: key, count: self.scan_keys },
        }
    }
}
