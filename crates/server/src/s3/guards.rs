//! What a request says must hold, whatever it asks: whose the buckets are, and of what else a write may be of
//! nothing but what was meant. What can't be compared is refused, or the write would be done though it doesn't hold;
//! so are headers whose words would be passed over, as they aren't ASCII.

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};

use super::buckets::OWNER;
use super::refusal::Refusal;

/// Whose the bucket is that is asked, and the one that is copied from.
const OWNERS: [&str; 2] = ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"];

/// What directory buckets of S3 compare beside the entity tag.
const NOT_COMPARED: [&str; 3] =
    ["x-amz-if-match-initiated-time", "x-amz-if-match-last-modified-time", "x-amz-if-match-size"];

/// That what is deleted has a size or a time that a header names.
const UNCOMPARED: Refusal =
    Refusal::not_implemented("Headers of size and time are not compared; If-Match is.");

const NOT_ASCII: Refusal = Refusal::bad_request(
    "InvalidArgument",
    "A header that is compared has bytes that aren't ASCII.",
);

/// Refuses headers whose words are compared, here or by `s3s`, and aren't ASCII: what one of the two doesn't read,
/// the other may.
pub(crate) fn check_ascii(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_compared = |name: &str| match name {
        "authorization" | "content-encoding" | "content-md5" => true,
        _ => name.starts_with("x-amz-") && !name.starts_with("x-amz-meta-"),
    };
    let is_read = |(name, value): (&HeaderName, &HeaderValue)| {
        value.as_bytes().is_ascii() || !is_compared(name.as_str())
    };
    if headers.iter().all(is_read) { Ok(()) } else { Err(NOT_ASCII) }
}

/// Refuses a request that expects another owner, and one of which a guard can't be compared. Empty headers ask for
/// nothing.
pub(crate) fn check_guards(headers: &HeaderMap) -> Result<(), Refusal> {
    let has = |name: &&str, is_wrong: &dyn Fn(&HeaderValue) -> bool| {
        headers.get_all(*name).iter().any(|value| !value.is_empty() && is_wrong(value))
    };
    if OWNERS.iter().any(|name| has(name, &|owner| owner != OWNER)) {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "AccessDenied", "Access Denied"));
    }
    if NOT_COMPARED.iter().any(|name| has(name, &|_| true)) {
        return Err(UNCOMPARED);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What isn't ASCII was none here: an MD5 wasn't compared, and frames became part of the object.
    #[test]
    fn headers_that_are_compared_are_ascii() {
        let check = |name: &'static str, values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                let value = HeaderValue::from_bytes(value).unwrap();
                headers.append(HeaderName::from_static(name), value);
            }
            check_ascii(&headers).map_err(|refusal| refusal.status.as_u16())
        };
        for name in ["authorization", "content-encoding", "content-md5", "x-amz-acl"] {
            assert_eq!(check(name, &[b"plain\t"]), Ok(()), "{name}");
            assert_eq!(check(name, &["\u{e9}".as_bytes()]), Err(400), "{name}");
            assert_eq!(check(name, &[b"plain", b"\xff"]), Err(400), "{name}");
        }
        for name in ["x-amz-meta-colour", "content-type", "content-disposition"] {
            assert_eq!(check(name, &["\u{e9}".as_bytes()]), Ok(()), "{name}");
        }
    }

    /// They were passed over: what was expected to be another's, or of another size, was deleted.
    #[test]
    fn guards_hold_or_are_refused() {
        let check = |name: &'static str, values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            check_guards(&headers).map_err(|refusal| refusal.status.as_u16())
        };
        for name in OWNERS {
            assert_eq!(check(name, &["tallybook"]), Ok(()), "{name}");
            assert_eq!(check(name, &[""]), Ok(()), "{name}");
            assert_eq!(check(name, &["111122223333"]), Err(403), "{name}");
            assert_eq!(check(name, &["tallybook", "Tallybook"]), Err(403), "{name}");
        }
        for name in NOT_COMPARED {
            assert_eq!(check(name, &[""]), Ok(()), "{name}");
            assert_eq!(check(name, &["5"]), Err(501), "{name}");
        }
        assert_eq!(check("if-match", &["\"a\""]), Ok(()));
    }
}
