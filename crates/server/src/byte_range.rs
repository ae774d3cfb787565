//! The `Range` header (RFC 9110, section 14): one range of bytes.
//!
//! Several ranges, other units and malformed headers are ignored, as the RFC allows: the whole
//! value is the answer.

use std::ops::Range;

/// The length of the longest file that a system has.
const LENGTH_MAX: usize = isize::MAX as usize;

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

    /// The one range of bytes that a header names, as the strictest reader takes it: a small `bytes`, no blanks, and
    /// no number above that of the longest file. `None` if the whole value is the answer whatever it is.
    pub(crate) fn plain(header: &str) -> Option<String> {
        if ByteRange::parse(header, usize::MAX) == ByteRange::Whole {
            return None;
        }
        let (first, last) = header.split_once('=')?.1.trim().split_once('-')?;
        let plain = |digits: &str| number(digits).map(|number| number.min(LENGTH_MAX).to_string());
        let [first, last] = [first, last].map(|digits| plain(digits).unwrap_or_default());
        Some(format!("bytes={first}-{last}"))
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
            assert_eq!(ByteRange::plain(header), None, "{header}");
        }
    }

    #[test]
    fn plain_range_is_the_same_one() {
        for (header, plain) in [
            ("bytes=2-4", "bytes=2-4"),
            ("bytes=2-", "bytes=2-"),
            ("bytes=-3", "bytes=-3"),
            ("bytes=-0", "bytes=-0"),
            ("BYTES = 007-9 ", "bytes=7-9"),
            ("bytes=0-18446744073709551615", "bytes=0-9223372036854775807"),
            ("bytes=99999999999999999999999-", "bytes=9223372036854775807-"),
            ("Bytes=-99999999999999999999999", "bytes=-9223372036854775807"),
        ] {
            assert_eq!(ByteRange::plain(header).as_deref(), Some(plain), "{header}");
            assert_eq!(ByteRange::parse(plain, 10), ByteRange::parse(header, 10), "{header}");
        }
    }
}
