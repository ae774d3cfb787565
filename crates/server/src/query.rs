//! Keys and parameters out of a request target, decoded exactly once.
//!
//! Invariant: a `%` is followed by two hex digits or the request is refused; nothing is decoded
//! twice, and dots and slashes mean nothing.

use std::borrow::Cow;
use std::ops::Range;

use hyper::Uri;

/// A `%` without two hex digits after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadEscape;

/// Decodes `%XX`; with `plus_is_space`, `+` too, as in a query.
pub(crate) fn percent_decode(raw: &str, plus_is_space: bool) -> Result<Cow<'_, [u8]>, BadEscape> {
    let bytes = raw.as_bytes();
    let special = |&byte: &u8| byte == b'%' || (plus_is_space && byte == b'+');
    let Some(first) = bytes.iter().position(special) else {
        return Ok(Cow::Borrowed(bytes));
    };
    let mut decoded = Vec::with_capacity(bytes.len());
    decoded.extend_from_slice(&bytes[..first]);
    let mut rest = &bytes[first..];
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => {
                let [high, low, tail @ ..] = tail else {
                    return Err(BadEscape);
                };
                decoded.push(hex(*high)? << 4 | hex(*low)?);
                rest = tail;
            }
            b'+' if plus_is_space => decoded.push(b' '),
            _ => decoded.push(byte),
        }
    }
    Ok(Cow::Owned(decoded))
}

fn hex(digit: u8) -> Result<u8, BadEscape> {
    char::from(digit).to_digit(16).map(|value| value as u8).ok_or(BadEscape)
}

/// The parameters of a query in order, names and values as they stand.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or(pair.split_at(pair.len())))
}

/// The first parameter of this name, as it stands.
pub(crate) fn first<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    parameters(query?).find(|pair| pair.0 == name).map(|pair| pair.1)
}

/// A key, left where it stands in the request target unless it had to be decoded.
#[derive(Debug)]
pub(crate) enum Key {
    /// Bytes of the target, which is kept.
    InTarget(Uri, Range<usize>),
    /// Decoded bytes.
    Decoded(Vec<u8>),
}

impl Key {
    /// The key in the part of `uri`'s target that `pick` finds; `None` if it finds none.
    pub(crate) fn from_target(
        uri: Uri,
        plus_is_space: bool,
        pick: impl FnOnce(&Uri) -> Option<&str>,
    ) -> Option<Result<Key, BadEscape>> {
        let raw = pick(&uri)?;
        let range = match percent_decode(raw, plus_is_space) {
            Err(bad) => return Some(Err(bad)),
            Ok(Cow::Owned(key)) => return Some(Ok(Key::Decoded(key))),
            Ok(Cow::Borrowed([])) => return Some(Ok(Key::Decoded(Vec::new()))),
            Ok(Cow::Borrowed(key)) => {
                let start = key.as_ptr() as usize - target(&uri).as_ptr() as usize;
                start..start + key.len()
            }
        };
        Some(Ok(Key::InTarget(uri, range)))
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Key::InTarget(uri, range) => &target(uri).as_bytes()[range.clone()],
            Key::Decoded(key) => key,
        }
    }
}

fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or("", |target| target.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(raw: &str, plus_is_space: bool) -> Result<Vec<u8>, BadEscape> {
        percent_decode(raw, plus_is_space).map(Cow::into_owned)
    }

    #[test]
    fn escapes_are_decoded_once() {
        assert_eq!(decode("a%20b+c", true).unwrap(), b"a b c");
        assert_eq!(decode("a+b", false).unwrap(), b"a+b");
        assert_eq!(decode("%252F", true).unwrap(), b"%2F");
        assert_eq!(decode("%00%fF", true).unwrap(), b"\x00\xff");
    }

    #[test]
    fn broken_escapes_are_refused() {
        for raw in ["%", "%2", "a%zz", "%+1", "%2g", "%%20"] {
            assert_eq!(decode(raw, true), Err(BadEscape), "{raw}");
        }
    }

    #[test]
    fn first_parameter_of_a_name_counts() {
        let query = Some("x=1&id=a=b&id=c&flag");
        assert_eq!(first(query, "id"), Some("a=b"));
        assert_eq!(first(query, "flag"), Some(""));
        assert_eq!(first(query, "i"), None);
        assert_eq!(first(None, "id"), None);
    }

    #[test]
    fn plain_key_stays_in_the_target() {
        let uri: Uri = "http://host/v0/entity?x=y&id=key".parse().unwrap();
        let key = Key::from_target(uri, true, |uri| first(uri.query(), "id")).unwrap().unwrap();
        assert!(matches!(key, Key::InTarget(..)));
        assert_eq!(key.as_slice(), b"key");
    }

    #[test]
    fn empty_key_is_a_key_however_it_is_written() {
        for target in ["/v0/entity?id", "/v0/entity?id=", "/v0/entity?id&x=y"] {
            let uri: Uri = target.parse().unwrap();
            let key = Key::from_target(uri, true, |uri| first(uri.query(), "id")).unwrap();
            assert_eq!(key.unwrap().as_slice(), b"", "{target}");
        }
    }
}
