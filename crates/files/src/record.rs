//! The values of the catalogue and the buckets: bytes in, bytes out.
//!
//! Every value opens with its format version. The engine has checked its checksum before it comes
//! here, so what doesn't decode was written by another version, or is a bug. `docs/format.md` has the
//! bytes.

use bytes::Bytes;
use tallybook::coding::{Decoder, put_bytes, put_varint};

/// Version of every value. On disk: never renumber.
const VERSION: u8 = 1;

const HAS_MD5: u8 = 0x01;

/// What names the chunks of one content, for good: a counter and the number of the opening it was
/// taken in, which is random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentId(pub [u8; 16]);

impl ContentId {
    /// The id with this count in this opening.
    pub fn new(count: u64, opening: u64) -> ContentId {
        ContentId(((u128::from(count) << 64) | u128::from(opening)).to_be_bytes())
    }

    /// The count.
    pub fn count(&self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }
}

/// Chunks of a content that follow each other and are in one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The bucket.
    pub bucket: u8,
    /// How many chunks.
    pub chunks: u32,
}

/// The bytes of a file, whatever its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Names that have it.
    pub refs: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes of each chunk but the last.
    pub chunk_bytes: u32,
    /// Where the chunks are, in order.
    pub extents: Vec<Extent>,
}

impl Content {
    /// Number of chunks.
    pub fn chunk_count(&self) -> u32 {
        self.extents.iter().map(|extent| extent.chunks).sum()
    }

    /// The bucket of a chunk.
    pub fn bucket_of(&self, chunk: u32) -> Option<u8> {
        let mut end = 0;
        self.extents.iter().find_map(|extent| {
            end += extent.chunks;
            (chunk < end).then_some(extent.bucket)
        })
    }

    /// Bytes of a chunk.
    pub fn bytes_of(&self, chunk: u32) -> u64 {
        let start = u64::from(chunk) * u64::from(self.chunk_bytes);
        self.size.saturating_sub(start).min(u64::from(self.chunk_bytes))
    }

    /// The buckets that hold chunks, each with its bytes.
    pub fn shares(&self) -> Vec<Share> {
        let mut shares: Vec<Share> = Vec::new();
        let mut left = self.size;
        for extent in &self.extents {
            let bytes = left.min(u64::from(extent.chunks) * u64::from(self.chunk_bytes));
            left -= bytes;
            match shares.iter_mut().find(|share| share.bucket == extent.bucket) {
                Some(share) => share.bytes += bytes,
                None => shares.push(Share { bucket: extent.bucket, bytes }),
            }
        }
        shares
    }

    /// The value of a content's key.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_varint(&mut out, self.refs);
        put_varint(&mut out, self.size);
        out.extend_from_slice(&self.chunk_bytes.to_le_bytes());
        put_varint(&mut out, self.extents.len() as u64);
        for extent in &self.extents {
            out.push(extent.bucket);
            put_varint(&mut out, u64::from(extent.chunks));
        }
        out
    }

    /// The content with this value; `None` unless it is one, whose chunks are as many as its size needs.
    pub fn decode(value: &[u8]) -> Option<Content> {
        let mut fields = versioned(value)?;
        let (refs, size, chunk_bytes) = (fields.varint()?, fields.varint()?, fields.u32()?);
        let count = fields.varint()?;
        let mut extents = Vec::new();
        for _ in 0..count {
            let bucket = fields.u8()?;
            extents.push(Extent { bucket, chunks: u32::try_from(fields.varint()?).ok()? });
        }
        let chunks: u64 = extents.iter().map(|extent| u64::from(extent.chunks)).sum();
        let fits = chunk_bytes > 0 && chunks == size.div_ceil(u64::from(chunk_bytes));
        (fits && u32::try_from(chunks).is_ok() && fields.remaining() == 0).then_some(Content {
            refs,
            size,
            chunk_bytes,
            extents,
        })
    }
}

/// How much of a content is in one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The bucket.
    pub bucket: u8,
    /// Bytes in it that are counted.
    pub bytes: u64,
}

/// The value of an upload, or of a content that is to be freed: where it has chunks.
pub fn encode_shares(shares: &[Share]) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_varint(&mut out, shares.len() as u64);
    for share in shares {
        out.push(share.bucket);
        put_varint(&mut out, share.bytes);
    }
    out
}

/// What `encode_shares` made a value of.
pub fn decode_shares(value: &[u8]) -> Option<Vec<Share>> {
    let mut fields = versioned(value)?;
    let count = fields.varint()?;
    let mut shares = Vec::new();
    for _ in 0..count {
        shares.push(Share { bucket: fields.u8()?, bytes: fields.varint()? });
    }
    (fields.remaining() == 0).then_some(shares)
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    /// Number of the change that made it so; larger is newer.
    pub version: u64,
    /// Its content.
    pub content: ContentId,
    /// The bucket that has the entry for it: that of the content's first chunk.
    pub primary: u8,
    /// Bytes.
    pub size: u64,
    /// BLAKE3 of the bytes.
    pub blake3: [u8; 32],
    /// MD5 of the bytes, where it was asked for.
    pub md5: Option<[u8; 16]>,
    /// When the content was written, in milliseconds since the Unix epoch.
    pub written_at_ms: u64,
    /// When the name came to stand for it, in milliseconds since the Unix epoch.
    pub changed_at_ms: u64,
    /// The caller's own bytes.
    pub attributes: Bytes,
}

impl FileRecord {
    /// The value of a name's key.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96 + self.attributes.len());
        out.push(VERSION);
        put_varint(&mut out, self.version);
        out.extend_from_slice(&self.content.0);
        out.push(self.primary);
        put_varint(&mut out, self.size);
        out.extend_from_slice(&self.blake3);
        out.push(if self.md5.is_some() { HAS_MD5 } else { 0 });
        out.extend_from_slice(self.md5.as_ref().map_or(&[], |md5| &md5[..]));
        put_varint(&mut out, self.written_at_ms);
        put_varint(&mut out, self.changed_at_ms);
        put_bytes(&mut out, &self.attributes);
        out
    }

    /// The record with this value.
    pub fn decode(value: &[u8]) -> Option<FileRecord> {
        let mut fields = versioned(value)?;
        let version = fields.varint()?;
        let content = ContentId(fields.take(16)?.try_into().ok()?);
        let (primary, size) = (fields.u8()?, fields.varint()?);
        let blake3 = fields.take(32)?.try_into().ok()?;
        let md5 = match fields.u8()? {
            0 => None,
            HAS_MD5 => Some(fields.take(16)?.try_into().ok()?),
            _ => return None,
        };
        let (written_at_ms, changed_at_ms) = (fields.varint()?, fields.varint()?);
        let attributes = Bytes::copy_from_slice(fields.length_prefixed()?);
        (fields.remaining() == 0).then_some(FileRecord {
            version,
            content,
            primary,
            size,
            blake3,
            md5,
            written_at_ms,
            changed_at_ms,
            attributes,
        })
    }

    /// What is told of it.
    pub fn stat(&self, name: &str) -> Stat {
        Stat {
            name: name.to_owned(),
            version: self.version,
            size: self.size,
            blake3: self.blake3,
            md5: self.md5,
            written_at_ms: self.written_at_ms,
            changed_at_ms: self.changed_at_ms,
            attributes: self.attributes.clone(),
        }
    }
}

/// What is known of a file without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Its name.
    pub name: String,
    /// Number of the change that made it so; larger is newer, and never reused.
    pub version: u64,
    /// Bytes.
    pub size: u64,
    /// BLAKE3 of the bytes.
    pub blake3: [u8; 32],
    /// MD5 of the bytes, where it was asked for.
    pub md5: Option<[u8; 16]>,
    /// When the content was written, in milliseconds since the Unix epoch.
    pub written_at_ms: u64,
    /// When the name came to stand for it, in milliseconds since the Unix epoch.
    pub changed_at_ms: u64,
    /// The caller's own bytes.
    pub attributes: Bytes,
}

/// The value of an entry in a bucket, from which the catalogue can be made anew.
pub fn encode_entry(record: &FileRecord, content: &Content) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_bytes(&mut out, &record.encode());
    put_bytes(&mut out, &content.encode());
    out
}

/// What `encode_entry` made a value of.
pub fn decode_entry(value: &[u8]) -> Option<(FileRecord, Content)> {
    let mut fields = versioned(value)?;
    let record = FileRecord::decode(fields.length_prefixed()?)?;
    let content = Content::decode(fields.length_prefixed()?)?;
    (fields.remaining() == 0 && record.size == content.size).then_some((record, content))
}

/// Known damage of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// Version of the file that is damaged.
    pub version: u64,
    /// Offset of the first byte that cannot be answered.
    pub offset: u64,
    /// What was found.
    pub what: String,
}

impl Quarantine {
    /// The value of a quarantined name's key.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_varint(&mut out, self.version);
        put_varint(&mut out, self.offset);
        put_bytes(&mut out, self.what.as_bytes());
        out
    }

    /// The damage with this value.
    pub fn decode(value: &[u8]) -> Option<Quarantine> {
        let mut fields = versioned(value)?;
        let (version, offset) = (fields.varint()?, fields.varint()?);
        let what = String::from_utf8(fields.length_prefixed()?.to_vec()).ok()?;
        Some(Quarantine { version, offset, what })
    }
}

/// What a bucket says of itself, so that it is not taken for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Random number of the store.
    pub store: [u8; 16],
    /// Number of the bucket.
    pub bucket: u8,
    /// How often it was made anew.
    pub generation: u16,
}

impl Identity {
    /// The value of the identity's key.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.store);
        out.push(self.bucket);
        out.extend_from_slice(&self.generation.to_le_bytes());
        out
    }

    /// The identity with this value.
    pub fn decode(value: &[u8]) -> Option<Identity> {
        let mut fields = versioned(value)?;
        let store = fields.take(16)?.try_into().ok()?;
        Some(Identity { store, bucket: fields.u8()?, generation: fields.u16()? })
    }
}

/// What a catalogue says of itself, so that it is not taken for another store's or an older one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogueIdentity {
    /// Random number of the store.
    pub store: [u8; 16],
    /// How often it was made anew.
    pub generation: u32,
}

impl CatalogueIdentity {
    /// The value of the identity's key.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.store);
        out.extend_from_slice(&self.generation.to_le_bytes());
        out
    }

    /// The identity with this value.
    pub fn decode(value: &[u8]) -> Option<CatalogueIdentity> {
        let mut fields = versioned(value)?;
        let store = fields.take(16)?.try_into().ok()?;
        Some(CatalogueIdentity { store, generation: fields.u32()? })
    }
}

/// A list of numbers as a value.
pub fn encode_numbers(numbers: &[u64]) -> Vec<u8> {
    let mut out = vec![VERSION];
    numbers.iter().for_each(|&number| put_varint(&mut out, number));
    out
}

/// So many numbers from a value.
pub fn decode_numbers<const N: usize>(value: &[u8]) -> Option<[u64; N]> {
    let mut fields = versioned(value)?;
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = fields.varint()?;
    }
    (fields.remaining() == 0).then_some(numbers)
}

fn versioned(value: &[u8]) -> Option<Decoder<'_>> {
    let mut fields = Decoder::new(value);
    (fields.u8()? == VERSION).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> Content {
        let extents = vec![Extent { bucket: 9, chunks: 2 }, Extent { bucket: 8, chunks: 1 }];
        Content { refs: 1, size: 2 * 65_536 + 5, chunk_bytes: 65_536, extents }
    }

    fn record() -> FileRecord {
        FileRecord {
            version: 7,
            content: ContentId::new(3, 4),
            primary: 9,
            size: content().size,
            blake3: [1; 32],
            md5: Some([2; 16]),
            written_at_ms: 10,
            changed_at_ms: 11,
            attributes: Bytes::from_static(b"attributes"),
        }
    }

    #[test]
    fn values_decode_to_what_was_encoded() {
        let plain = FileRecord { md5: None, attributes: Bytes::new(), ..record() };
        for record in [record(), plain] {
            let entry = encode_entry(&record, &content());
            assert_eq!(decode_entry(&entry), Some((record, content())));
        }
        let shares = content().shares();
        assert_eq!(shares, [Share { bucket: 9, bytes: 131_072 }, Share { bucket: 8, bytes: 5 }]);
        assert_eq!(decode_shares(&encode_shares(&shares)), Some(shares));
        let quarantine = Quarantine { version: 1, offset: 2, what: "gone".into() };
        assert_eq!(Quarantine::decode(&quarantine.encode()), Some(quarantine));
        let identity = Identity { store: [3; 16], bucket: 200, generation: 300 };
        assert_eq!(Identity::decode(&identity.encode()), Some(identity));
        let catalogue = CatalogueIdentity { store: [3; 16], generation: 1 << 17 };
        assert_eq!(CatalogueIdentity::decode(&catalogue.encode()), Some(catalogue));
        assert_eq!(decode_numbers(&encode_numbers(&[1, 1 << 40])), Some([1, 1 << 40]));
    }

    #[test]
    fn values_that_are_cut_or_of_another_version_do_not_decode() {
        let entry = encode_entry(&record(), &content());
        for end in 0..entry.len() {
            assert_eq!(decode_entry(&entry[..end]), None, "cut at {end}");
        }
        let mut newer = entry;
        newer[0] = VERSION + 1;
        assert_eq!(decode_entry(&newer), None);
    }

    #[test]
    fn chunks_are_found_by_number() {
        let content = content();
        assert_eq!(
            [0, 1, 2, 3].map(|chunk| content.bucket_of(chunk)),
            [Some(9), Some(9), Some(8), None]
        );
        assert_eq!([0, 2].map(|chunk| content.bytes_of(chunk)), [65_536, 5]);
        assert_eq!(content.chunk_count(), 3);
    }
}
