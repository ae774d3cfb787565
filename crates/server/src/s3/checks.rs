//! Checksums that come with a body, in headers or behind it, and are compared before it is committed.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::HeaderName;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::{S3Result, TrailingHeaders, s3_error};

use super::meta::SavedChecksum;

/// What is known as a checksum algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    pub(crate) const ALL: [Algorithm; 5] = [
        Algorithm::Crc32,
        Algorithm::Crc32c,
        Algorithm::Crc64Nvme,
        Algorithm::Sha1,
        Algorithm::Sha256,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64Nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
        }
    }

    pub(crate) fn header(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "x-amz-checksum-crc32",
            Algorithm::Crc32c => "x-amz-checksum-crc32c",
            Algorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Algorithm::Sha1 => "x-amz-checksum-sha1",
            Algorithm::Sha256 => "x-amz-checksum-sha256",
        }
    }
}

impl FromStr for Algorithm {
    type Err = ();

    fn from_str(name: &str) -> Result<Algorithm, ()> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or(())
    }
}

/// Computes a checksum.
pub(crate) enum Hasher {
    Crc32(Crc32),
    Crc32c(Crc32c),
    Crc64Nvme(Crc64Nvme),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Hasher {
    pub(crate) fn new(algorithm: Algorithm) -> Hasher {
        match algorithm {
            Algorithm::Crc32 => Hasher::Crc32(Crc32::new()),
            Algorithm::Crc32c => Hasher::Crc32c(Crc32c::new()),
            Algorithm::Crc64Nvme => Hasher::Crc64Nvme(Crc64Nvme::new()),
            Algorithm::Sha1 => Hasher::Sha1(Sha1::new()),
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Crc32(hasher) => hasher.update(bytes),
            Hasher::Crc32c(hasher) => hasher.update(bytes),
            Hasher::Crc64Nvme(hasher) => hasher.update(bytes),
            Hasher::Sha1(hasher) => hasher.update(bytes),
            Hasher::Sha256(hasher) => hasher.update(bytes),
        }
    }

    /// The checksum in base64.
    pub(crate) fn finish(self) -> String {
        match self {
            Hasher::Crc32(hasher) => STANDARD.encode(hasher.finalize()),
            Hasher::Crc32c(hasher) => STANDARD.encode(hasher.finalize()),
            Hasher::Crc64Nvme(hasher) => STANDARD.encode(hasher.finalize()),
            Hasher::Sha1(hasher) => STANDARD.encode(hasher.finalize()),
            Hasher::Sha256(hasher) => STANDARD.encode(hasher.finalize()),
        }
    }
}

/// What is said to come behind the body.
fn announced(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = headers.get_all("x-amz-trailer").into_iter();
    lists.filter_map(|names| names.to_str().ok()).flat_map(|names| names.split(',')).map(str::trim)
}

/// Refuses a checksum that can't be compared: bytes that aren't the ones it is of would be taken for them.
pub(crate) fn refuse_unknown_checksums(headers: &HeaderMap) -> S3Result<()> {
    let is_unknown = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.strip_prefix("x-amz-checksum-").is_some_and(|kind| {
            !["algorithm", "mode", "type"].contains(&kind)
                && Algorithm::ALL.iter().all(|algorithm| algorithm.header() != name)
        })
    };
    if headers.keys().map(HeaderName::as_str).chain(announced(headers)).any(is_unknown) {
        return Err(s3_error!(
            NotImplemented,
            "The only checksums are CRC32, CRC32C, CRC64NVME, SHA-1 and SHA-256."
        ));
    }
    Ok(())
}

/// A checksum that a request announces.
pub(crate) struct Check {
    algorithm: Algorithm,
    hasher: Hasher,
    /// In a header; else it comes behind the body.
    expected: Option<String>,
    trailers: Option<TrailingHeaders>,
}

impl Check {
    /// The check that the headers ask for; at most one.
    pub(crate) fn of(
        headers: &HeaderMap,
        trailers: Option<TrailingHeaders>,
    ) -> S3Result<Option<Check>> {
        refuse_unknown_checksums(headers)?;
        let mut found = None;
        for algorithm in Algorithm::ALL {
            let value = headers.get(algorithm.header());
            let trails =
                announced(headers).any(|name| name.eq_ignore_ascii_case(algorithm.header()));
            if value.is_none() && !trails {
                continue;
            }
            if found.is_some() {
                return Err(s3_error!(InvalidRequest, "Expecting a single x-amz-checksum- header"));
            }
            let expected = value.and_then(|value| value.to_str().ok()).map(str::to_owned);
            let trailers = trailers.clone();
            found = Some(Check { algorithm, hasher: Hasher::new(algorithm), expected, trailers });
        }
        Ok(found)
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// The checksum, if it is the one expected. Requires: the body was received whole.
    pub(crate) fn finish(self) -> S3Result<SavedChecksum> {
        let name = self.algorithm.header();
        let trailing = self.trailers.and_then(|trailers| {
            let read = |headers: &HeaderMap| headers.get(name)?.to_str().ok().map(str::to_owned);
            trailers.read(read).flatten()
        });
        let Some(expected) = self.expected.or(trailing) else {
            return Err(s3_error!(InvalidRequest, "The checksum that was announced is missing."));
        };
        let value = self.hasher.finish();
        if value != expected {
            return Err(s3_error!(
                BadDigest,
                "The checksum you specified did not match what we received."
            ));
        }
        let algorithm = self.algorithm.name().to_owned();
        Ok(SavedChecksum { algorithm, value, is_composite: false })
    }
}

/// Puts a saved checksum into the fields of an output that has one for each algorithm.
macro_rules! show_checksum {
    ($output:expr, $saved:expr) => {
        if let Some(saved) = $saved {
            let value = Some(saved.value.clone());
            match saved.algorithm.as_str() {
                "CRC32" => $output.checksum_crc32 = value,
                "CRC32C" => $output.checksum_crc32c = value,
                "CRC64NVME" => $output.checksum_crc64nvme = value,
                "SHA1" => $output.checksum_sha1 = value,
                _ => $output.checksum_sha256 = value,
            }
        }
    };
}
pub(crate) use show_checksum;

/// The checksum that is given in the fields of an input that has one for each algorithm.
macro_rules! given_checksum {
    ($input:expr) => {
        [
            (Algorithm::Crc32, &$input.checksum_crc32),
            (Algorithm::Crc32c, &$input.checksum_crc32c),
            (Algorithm::Crc64Nvme, &$input.checksum_crc64nvme),
            (Algorithm::Sha1, &$input.checksum_sha1),
            (Algorithm::Sha256, &$input.checksum_sha256),
        ]
        .into_iter()
        .find_map(|(algorithm, value)| Some((algorithm, value.clone()?)))
    };
}
pub(crate) use given_checksum;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standards() {
        for (algorithm, expected) in [
            (Algorithm::Crc32, "y/Q5Jg=="),
            (Algorithm::Crc32c, "4waSgw=="),
            (Algorithm::Crc64Nvme, "rosUhgp5mIg="),
            (Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE="),
            (Algorithm::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
        ] {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(b"1234");
            hasher.update(b"56789");
            assert_eq!(hasher.finish(), expected, "{}", algorithm.name());
        }
    }
}
