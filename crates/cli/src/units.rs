//! Values that settings are written in: byte counts, durations, durability, addresses, names.
//!
//! Each type reads the same text from a flag, an environment variable and a settings file. None
//! knows which setting it is for.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use tallybook::options::{Compression, Durability, Reading};

/// A number of bytes: `65536`, `64KiB`, `64MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteCount(pub(crate) u64);

impl ByteCount {
    /// As a size in memory.
    pub(crate) fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for ByteCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = bytesize::ByteSize::from_str(text)
            .map_err(|_| format!("{text:?} is not a number of bytes such as 65536 or 64MiB"))?;
        Ok(ByteCount(size.as_u64()))
    }
}

impl Serialize for ByteCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;
        impl Visitor<'_> for NumberOrText {
            type Value = ByteCount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, such as 65536 or \"64MiB\"")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<ByteCount, E> {
                Ok(ByteCount(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<ByteCount, E> {
                u64::try_from(number).map(ByteCount).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteCount, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(NumberOrText)
    }
}

/// A length of time: `250ms`, `10s`, `2h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let duration = humantime::parse_duration(text)
            .map_err(|error| format!("{text:?} is not a time such as 250ms or 10s: {error}"))?;
        Ok(Span(duration))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// When a write is acknowledged: `os`, `interval`, `interval:250` (milliseconds), `sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct DurabilityName(pub(crate) Durability);

/// The interval when none is named, in milliseconds.
const INTERVAL_MS: u32 = 100;

impl FromStr for DurabilityName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let durability = match text.split_once(':') {
            None if text == "os" => Durability::Os,
            None if text == "interval" => Durability::Interval(INTERVAL_MS),
            None if text == "sync" => Durability::Sync,
            Some(("interval", ms)) => Durability::Interval(
                ms.parse().map_err(|_| format!("{ms:?} is not a number of milliseconds"))?,
            ),
            _ => return Err(format!("{text:?} is not one of os, interval[:MS], sync")),
        };
        Ok(DurabilityName(durability))
    }
}

impl fmt::Display for DurabilityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Durability::Os => f.write_str("os"),
            Durability::Interval(ms) => write!(f, "interval:{ms}"),
            Durability::Sync => f.write_str("sync"),
        }
    }
}

/// Where the admin listener stands: an address, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum AdminAddress {
    /// There is none.
    Off,
    /// It listens here.
    At(SocketAddr),
}

impl AdminAddress {
    /// The address, if there is one.
    pub(crate) fn address(self) -> Option<SocketAddr> {
        match self {
            AdminAddress::Off => None,
            AdminAddress::At(address) => Some(address),
        }
    }
}

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(AdminAddress::Off);
        }
        let address =
            text.parse().map_err(|_| format!("{text:?} is neither off nor ADDRESS:PORT"))?;
        Ok(AdminAddress::At(address))
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminAddress::Off => f.write_str("off"),
            AdminAddress::At(address) => address.fmt(f),
        }
    }
}

/// Names of hosts: `books.example,kv.example`, or in a file a list of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct HostNames(pub(crate) Vec<String>);

impl FromStr for HostNames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(HostNames(names.map(str::to_owned).collect()))
    }
}

impl<'de> Deserialize<'de> for HostNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrList;
        impl<'de> Visitor<'de> for TextOrList {
            type Value = HostNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of hosts, such as \"books.example,kv.example\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<HostNames, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<HostNames, A::Error> {
                let mut names = HostNames::default();
                while let Some(name) = list.next_element()? {
                    names.0.push(name);
                }
                Ok(names)
            }
        }
        deserializer.deserialize_any(TextOrList)
    }
}

/// Serde reads and writes these types through their text.
macro_rules! through_text {
    ($($name:ident),*) => {$(
        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    )*};
}

through_text!(Span, DurabilityName, AdminAddress);

/// How files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReadingName {
    /// Through memory maps; an I/O error in a page fault ends the process.
    Mapped,
    /// Through `pread` and a block cache; an I/O error fails that read alone.
    Pread,
}

impl From<ReadingName> for Reading {
    fn from(name: ReadingName) -> Reading {
        match name {
            ReadingName::Mapped => Reading::Mapped,
            ReadingName::Pread => Reading::Pread,
        }
    }
}

/// How table blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CompressionName {
    /// Stored as they are.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard, level 1.
    Zstd,
}

impl From<CompressionName> for Compression {
    fn from(name: CompressionName) -> Compression {
        match name {
            CompressionName::None => Compression::None,
            CompressionName::Lz4 => Compression::Lz4,
            CompressionName::Zstd => Compression::Zstd,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_are_exact_through_text_and_serde() {
        for (text, bytes) in [("0", 0), ("65537", 65_537), ("64KiB", 65_536), ("1MiB", 1 << 20)] {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)), "{text}");
        }
        assert_eq!(serde_json::to_string(&ByteCount(65_537)).unwrap(), "65537");
        assert_eq!(serde_json::from_str::<ByteCount>("\"64KiB\"").unwrap(), ByteCount(65_536));
        assert!(serde_json::from_str::<ByteCount>("-1").is_err());
        assert!("64 potatoes".parse::<ByteCount>().is_err());
    }

    #[test]
    fn durability_names_read_back_as_written() {
        for (text, durability) in [
            ("os", Durability::Os),
            ("sync", Durability::Sync),
            ("interval:250", Durability::Interval(250)),
        ] {
            let name: DurabilityName = text.parse().unwrap();
            assert_eq!(name.0, durability);
            assert_eq!(name.to_string(), text);
        }
        assert_eq!("interval".parse(), Ok(DurabilityName(Durability::Interval(INTERVAL_MS))));
        for wrong in ["", "none", "interval:", "interval:-1", "sync:5"] {
            assert!(wrong.parse::<DurabilityName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn host_names_are_a_text_or_a_list() {
        let names = HostNames(vec!["books.example".to_owned(), "kv.example".to_owned()]);
        assert_eq!("books.example, kv.example,".parse(), Ok(names.clone()));
        assert_eq!("".parse(), Ok(HostNames::default()));
        for json in [r#""books.example,kv.example""#, r#"["books.example","kv.example"]"#] {
            assert_eq!(serde_json::from_str::<HostNames>(json).unwrap(), names);
        }
        let written = serde_json::to_string(&names).unwrap();
        assert_eq!(serde_json::from_str::<HostNames>(&written).unwrap(), names);
        assert!(serde_json::from_str::<HostNames>("1").is_err());
    }

    #[test]
    fn the_admin_listener_can_be_switched_off() {
        assert_eq!("off".parse(), Ok(AdminAddress::Off));
        let at: AdminAddress = "[::1]:0".parse().unwrap();
        assert_eq!(at.to_string(), "[::1]:0");
        assert!("localhost".parse::<AdminAddress>().is_err());
    }
}
