//! CRC-32C (Castagnoli, RFC 3720), the checksum of journals, values and manifests.
//!
//! Of the crates that compute it `crc-fast` is the fastest at every length: 65 ns for 4 KiB, where
//! `crc32c` takes 147, 7 ns for 100 bytes where that takes 9.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of these bytes.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of what `crc` is the checksum of, with these bytes behind it.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    // Between pieces the register is the checksum with all bits turned.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4.
    #[test]
    fn checksums_are_those_of_the_rfc() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(&descending), 0x113f_db5c);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn pieces_come_to_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..5000u32).map(|at| (at * at / 8) as u8).collect();
        for split in [0, 1, 7, 64, 255, 1024, 4999, 5000] {
            let (front, back) = bytes.split_at(split);
            assert_eq!(crc32c_append(crc32c(front), back), crc32c(&bytes));
        }
    }
}
