//! Keys as text: how one is given on the command line, and how bytes are shown to a person.
//!
//! Invariant: shown text never carries a control character to the terminal, and different bytes are
//! shown differently.

use std::fmt::Write;

use clap::ValueEnum;
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};

use crate::exit::UsageError;

/// How keys are written, in arguments and in plain output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyEncoding {
    /// As they are; output escapes what is not printable.
    Utf8,
    /// Hexadecimal.
    Hex,
    /// Base64 (RFC 4648, padded).
    Base64,
}

impl KeyEncoding {
    /// The bytes that `text` stands for.
    pub(crate) fn decode(self, text: &str) -> Result<Vec<u8>, UsageError> {
        let decoded = match self {
            KeyEncoding::Utf8 => return Ok(text.as_bytes().to_vec()),
            KeyEncoding::Hex => HEXLOWER_PERMISSIVE.decode(text.as_bytes()),
            KeyEncoding::Base64 => BASE64.decode(text.as_bytes()),
        };
        decoded.map_err(|error| {
            let name = if self == KeyEncoding::Hex { "hexadecimal" } else { "base64" };
            UsageError(format!("the key is not {name}: {error}"))
        })
    }

    /// Text for `bytes` that is safe to print.
    pub(crate) fn encode(self, bytes: &[u8]) -> String {
        match self {
            KeyEncoding::Utf8 => escape(bytes),
            KeyEncoding::Hex => HEXLOWER.encode(bytes),
            KeyEncoding::Base64 => BASE64.encode(bytes),
        }
    }
}

/// `bytes` as text: printable characters as they are, a backslash doubled, other characters as
/// `\n`, `\t`, `\u{..}`, bytes that are not UTF-8 as `\xNN`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\'' | '"' => text.push(character),
                _ => text.extend(character.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("writing to a String can't fail");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_text_holds_no_control_characters() {
        assert_eq!(escape(b"plain 'key' \"1\""), "plain 'key' \"1\"");
        assert_eq!(escape("кл\u{fc}ч".as_bytes()), "кл\u{fc}ч");
        assert_eq!(escape(b"a\tb\nc\\d\x1b[31m"), "a\\tb\\nc\\\\d\\u{1b}[31m");
        assert_eq!(escape(b"\xff\x00"), "\\xff\\0");
        assert_eq!(escape("\u{202e}x".as_bytes()), "\\u{202e}x");
    }

    #[test]
    fn encodings_read_back_what_they_write() {
        let bytes = [0_u8, 1, 0x7f, 0xff];
        for encoding in [KeyEncoding::Hex, KeyEncoding::Base64] {
            assert_eq!(encoding.decode(&encoding.encode(&bytes)).unwrap(), bytes);
        }
        assert_eq!(KeyEncoding::Hex.decode("00FF").unwrap(), [0, 0xff]);
        assert!(KeyEncoding::Hex.decode("0").is_err());
        assert!(KeyEncoding::Base64.decode("AA").is_err());
    }
}
