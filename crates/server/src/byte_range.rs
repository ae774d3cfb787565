//! The `Range` header (RFC 9110, section 14): one range of bytes.
//!
//! Several ranges, other units and malformed headers are ignored, as the RFC allows: the whole
//! value is the answer.

use std::ops::Range;

/// What a `Range` header asks of a value of a certain length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ByteRange {
    /// The whole value.
    Whole,
    /// These bytes; never empty.
    Part(Range<usize>),
    /// 416: nothing of it is in the value.
    Unsatisfiable,
}

impl ByteRange {
    pub(crate) fn parse(header: &str, length: usize) -> ByteRange {
        let Some((unit, spec)) = header.split_once('=') else {
            return ByteRange::Whole;
        };
        let Some((first, last)) = spec.trim().split_once('-') else {
            return ByteRange::Whole;
        };
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return ByteRange::Whole;
        }
        let range = match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => first..length.min(last.saturating_add(1)),
            (Some(first), None) if last.is_empty() => first..length,
            (None, Some(suffix)) if first.is_empty() => length.saturating_sub(suffix)..length,
            _ => return ByteRange::Whole,
        };
        if range.is_empty() { ByteRange::Unsatisfiable } else { ByteRange::Part(range) }
    }
}

/// A run of digits; one too large for any value stands for the largest number.
fn number(digits: &str) -> Option<usize> {
    let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_ranges_are_served() {
        for (header, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=2-4", 2..5),
            ("bytes=2-", 2..10),
            ("bytes=-3", 7..10),
            ("bytes=-30", 0..10),
            ("Bytes=5-99999999999999999999999", 5..10),
        ] {
            assert_eq!(ByteRange::parse(header, 10), ByteRange::Part(expected), "{header}");
        }
    }

    #[test]
    fn ranges_beyond_the_value_are_unsatisfiable() {
        for header in ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(ByteRange::parse(header, 10), ByteRange::Unsatisfiable, "{header}");
        }
        assert_eq!(ByteRange::parse("bytes=0-", 0), ByteRange::Unsatisfiable);
    }

    #[test]
    fn other_headers_are_ignored() {
        for header in
            ["bytes=4-2", "bytes=0-1,3-4", "items=0-1", "bytes=-", "bytes", "bytes=+1-2", ""]
        {
            assert_eq!(ByteRange::parse(header, 10), ByteRange::Whole, "{header}");
        }
    }
}
