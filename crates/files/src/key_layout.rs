//! The keys of the catalogue and of the buckets, made and parsed in one place.
//!
//! The first byte says what a key is. On disk: never renumber.

use crate::record::ContentId;

/// In the catalogue: `N | name`, what a name stands for.
pub const NAME: u8 = b'N';
/// In the catalogue: `C | content id`, where a content's chunks are.
pub const CONTENT: u8 = b'C';
/// In the catalogue: `U | content id`, an upload that has not been committed.
pub const UPLOAD: u8 = b'U';
/// In the catalogue: `P | version`, an entry that is to be in a bucket.
pub const ENTRY_DUE: u8 = b'P';
/// In the catalogue: `D | version`, an entry that is to leave a bucket.
pub const ENTRY_DEAD: u8 = b'D';
/// In the catalogue: `F | content id`, a content whose chunks are to be freed.
pub const FREED: u8 = b'F';
/// In the catalogue: `Q | name`, a file that is known to be damaged.
pub const QUARANTINED: u8 = b'Q';
/// In the catalogue: `B | bucket`, a bucket that exists, and its counters.
pub const BUCKET: u8 = b'B';
/// In the catalogue: `G | bucket`, bytes freed in a bucket since it was compacted.
pub const GARBAGE: u8 = b'G';
/// In the catalogue: `T`, the counters of the store.
pub const TOTALS: u8 = b'T';
/// In the catalogue: `V`, the name that the last verification ended with.
pub const VERIFIED: u8 = b'V';
/// In the catalogue while the store is closed: `S`, no bucket has entries or chunks that the catalogue doesn't know.
pub const SWEPT: u8 = b'S';
/// In the catalogue: `R | bucket`, a bucket of which not all entries could be read when the catalogue was made.
pub const UNREAD: u8 = b'R';
/// In the catalogue while there are such buckets: `X | name`, a name that was unlinked since.
pub const UNLINKED: u8 = b'X';
/// In a bucket: `c | content id | chunk number`, the bytes of a chunk.
pub const CHUNK: u8 = b'c';
/// In a bucket: `e | name | version`, all that is known of a file.
pub const ENTRY: u8 = b'e';
/// In a bucket: `i`, which bucket it is. In the catalogue: `i`, which store's it is.
pub const IDENTITY: u8 = b'i';

/// The key of a kind and what follows.
pub fn key(kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + rest.len());
    key.push(kind);
    key.extend_from_slice(rest);
    key
}

/// The content id of a key that has nothing else behind its kind.
pub fn parse_content(key: &[u8]) -> Option<ContentId> {
    let (_, id) = key.split_first()?;
    Some(ContentId(id.try_into().ok()?))
}

/// The key of a kind and a version.
pub fn of_version(kind: u8, version: u64) -> Vec<u8> {
    key(kind, &version.to_be_bytes())
}

/// The key of a chunk.
pub fn chunk(id: ContentId, number: u32) -> [u8; 21] {
    let mut key = [CHUNK; 21];
    key[1..17].copy_from_slice(&id.0);
    key[17..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Content id and number of a chunk's key.
pub fn parse_chunk(key: &[u8]) -> Option<(ContentId, u32)> {
    let key: &[u8; 21] = key.try_into().ok()?;
    let id = ContentId(key[1..17].try_into().ok()?);
    (key[0] == CHUNK).then_some((id, u32::from_be_bytes(key[17..].try_into().ok()?)))
}

/// The first key after all chunks of a content.
pub fn after_chunks(id: ContentId) -> Vec<u8> {
    let mut key = chunk(id, u32::MAX).to_vec();
    key.push(0);
    key
}

/// The key of an entry.
pub fn entry(name: &str, version: u64) -> Vec<u8> {
    let mut key = key(ENTRY, name.as_bytes());
    key.extend_from_slice(&version.to_be_bytes());
    key
}

/// Name and version of an entry's key.
pub fn parse_entry(key: &[u8]) -> Option<(&str, u64)> {
    let (rest, version) = key.split_last_chunk::<8>()?;
    let (kind, name) = rest.split_first()?;
    let name = std::str::from_utf8(name).ok()?;
    (*kind == ENTRY).then_some((name, u64::from_be_bytes(*version)))
}

/// The first key after all that start with `prefix`, if there is one.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_parse_back() {
        let id = ContentId::new(5, 6);
        assert_eq!(parse_chunk(&chunk(id, 7)), Some((id, 7)));
        assert_eq!(parse_entry(&entry("a/ü", 9)), Some(("a/ü", 9)));
        assert_eq!(parse_entry(&chunk(id, 7)), None);
        assert_eq!(parse_chunk(&entry("a", 9)), None);
        assert_eq!(id.count(), 5);
    }

    #[test]
    fn the_chunks_of_a_content_lie_before_those_of_the_next() {
        let (id, next) = (ContentId::new(5, u64::MAX), ContentId::new(6, 0));
        assert!(chunk(id, u32::MAX)[..] < after_chunks(id)[..]);
        assert!(after_chunks(id)[..] < chunk(next, 0)[..]);
    }

    #[test]
    fn a_prefix_ends_before_its_successor() {
        assert_eq!(after_prefix(b"a"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff"), None);
    }
}
