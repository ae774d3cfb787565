//! Values that prove themselves: each follows from its key and its writer's sequence number alone.
//!
//! `KEY SEQUENCE LENGTH CHECKSUM\n`, then noise. A value is right if and only if it is the one made
//! for the key and sequence it names, byte for byte.

use crate::random::{Random, mix};

/// Longest value.
const VALUE_BYTES_MAX: u64 = 20 << 10;

/// The value of write `sequence` to `key`.
pub(crate) fn make(key: &str, sequence: u64) -> Vec<u8> {
    let mut random = Random::new(hash(key.as_bytes()) ^ mix(sequence));
    let length = match random.below(100) {
        0..55 => 50 + random.below(450),
        55..90 => 500 + random.below(3600),
        _ => 4096 + random.below(VALUE_BYTES_MAX - 4096),
    };
    let mut noise = Vec::with_capacity(length as usize + 8);
    while (noise.len() as u64) < length {
        noise.extend_from_slice(&random.next().to_le_bytes());
    }
    noise.truncate(length as usize);
    let mut value = format!("{key} {sequence} {length} {:016x}\n", hash(&noise)).into_bytes();
    value.extend_from_slice(&noise);
    value
}

/// The sequence number of `value`, if it is wholly the value of some write to `key`.
pub(crate) fn sequence(key: &str, value: &[u8]) -> Option<u64> {
    let head_end = value.iter().position(|&byte| byte == b'\n')?;
    let head = std::str::from_utf8(&value[..head_end]).ok()?;
    let sequence = head.strip_prefix(key)?.trim_start().split(' ').next()?.parse().ok()?;
    (make(key, sequence) == value).then_some(sequence)
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_sequence_and_any_damage_shows() {
        let value = make("w00/reg/001", 7);
        assert_eq!(sequence("w00/reg/001", &value), Some(7));
        assert_eq!(sequence("w00/reg/002", &value), None);
        assert_eq!(sequence("w00/reg/001", &value[..value.len() - 1]), None);
        for place in [0, value.len() / 2, value.len() - 1] {
            let mut damaged = value.clone();
            damaged[place] ^= 1;
            assert_eq!(sequence("w00/reg/001", &damaged), None, "{place}");
        }
    }
}
