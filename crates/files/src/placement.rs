//! Where a file goes: from its name to a key, from the key to a bucket.
//!
//! 1. A name of 40 hex digits is the key as it stands; any other is hashed (RIPEMD-160, ISO/IEC 10118-3).
//! 2. The bucket is the first byte of the key XOR the first byte of the reference id; with fewer than
//!    256 buckets, the upper bits of that.
//! 3. A bucket without room spills into the next by XOR distance: home XOR 1, home XOR 2, and so on.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ripemd::{Digest, Ripemd160};

use crate::error::{Error, Result};

/// Bytes of keys and of reference ids.
pub const KEY_BYTES: usize = 20;

/// Longest name, in bytes of UTF-8. The shortest is 1.
pub const NAME_BYTES_MAX: usize = 1024;

/// Longest reserved name: one of the longest names in a namespace of its own.
pub const RESERVED_NAME_BYTES_MAX: usize = NAME_BYTES_MAX + 256;

/// Most buckets of a store.
pub const BUCKETS_MAX: usize = 256;

/// The 160 bits that decide where keys fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReferenceId(pub [u8; KEY_BYTES]);

impl ReferenceId {
    /// The id with these 40 hex digits.
    pub fn from_hex(digits: &str) -> Option<ReferenceId> {
        from_hex(digits).map(ReferenceId)
    }

    /// The bucket of a name.
    pub fn bucket_of(&self, name: &str, bucket_count: usize) -> u8 {
        self.bucket_of_key(&key_of(name), bucket_count)
    }

    /// The bucket of a key.
    pub fn bucket_of_key(&self, key: &[u8; KEY_BYTES], bucket_count: usize) -> u8 {
        let distance = self.0[0] ^ key[0];
        let shift = 8 - bucket_count.trailing_zeros();
        u8::try_from(u32::from(distance) >> shift).expect("a byte shifted right is a byte")
    }
}

impl std::fmt::Display for ReferenceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// The key of a name.
pub fn key_of(name: &str) -> [u8; KEY_BYTES] {
    from_hex(name).unwrap_or_else(|| Ripemd160::digest(name.as_bytes()).into())
}

/// Whether a name is reserved for who keeps a namespace of its own in the store: it starts with a NUL,
/// which sorts it before all others, and it is listed only where the prefix asks for it.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with('\0')
}

/// Refuses names that are too long or empty.
pub fn check_name(name: &str) -> Result<()> {
    let max = if is_reserved(name) { RESERVED_NAME_BYTES_MAX } else { NAME_BYTES_MAX };
    if (1..=max).contains(&name.len()) {
        return Ok(());
    }
    let what = format!("a name has 1 to {max} bytes, this one has {}", name.len());
    Err(Error::InvalidArgument(what))
}

/// The buckets that take a file's chunks, in the order they are tried.
pub fn spill_order(home: u8, bucket_count: usize) -> impl Iterator<Item = u8> {
    (0..bucket_count).map(move |step| home ^ step as u8)
}

/// Bytes as hex digits, in lower case.
pub fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

fn from_hex(digits: &str) -> Option<[u8; KEY_BYTES]> {
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str = "adc83b19e793491b1c6ea0fd8b46cd9f32e592fc";

    #[test]
    fn keys_and_buckets_are_those_of_kfs() {
        let reference = ReferenceId::from_hex(REFERENCE).unwrap();
        assert_eq!(hex(&key_of("hello")), "108f07b8382412612c048d07d13f814118445acd");
        assert_eq!(hex(&key_of("test")), "5e52fee47e6b070565f74372468cdc699de89107");
        for (name, bucket) in [("hello", 189), ("test", 243), ("", 49), (REFERENCE, 0)] {
            assert_eq!(reference.bucket_of(name, 256), bucket, "{name:?}");
        }
    }

    #[test]
    fn forty_hex_digits_are_the_key_in_either_case() {
        assert_eq!(hex(&key_of(&REFERENCE.to_uppercase())), REFERENCE);
        assert_ne!(hex(&key_of(&REFERENCE[1..])), REFERENCE[1..]);
    }

    #[test]
    fn fewer_buckets_take_the_upper_bits() {
        let reference = ReferenceId::from_hex(REFERENCE).unwrap();
        assert_eq!(reference.bucket_of("hello", 16), 189 >> 4);
        assert_eq!(reference.bucket_of("hello", 1), 0);
    }

    #[test]
    fn spilling_tries_every_bucket_once_nearest_first() {
        let order: Vec<u8> = spill_order(189, 256).collect();
        assert_eq!(order[..4], [189, 188, 191, 190]);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..=255));
    }

    #[test]
    fn names_have_limits() {
        assert!(check_name("a").is_ok());
        assert!(check_name(&"é".repeat(512)).is_ok());
        assert!(check_name("").is_err());
        assert!(check_name(&"x".repeat(1025)).is_err());
        assert!(check_name(&format!("\0{}", "x".repeat(1279))).is_ok());
        assert!(check_name(&format!("\0{}", "x".repeat(1280))).is_err());
    }
}
