//! What of a request its signature is of. `s3s` compares the signature of the headers that the signer named,
//! and obeys those, too, that he didn't.

use std::borrow::Cow;

use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue, RANGE};
use hyper::{HeaderMap, StatusCode};

use super::checks::Algorithm;
use super::query::{Query, decode, is_body_header};
use super::refusal::Refusal;
use crate::byte_range::ByteRange;

/// The longest that a presigned URL may last.
const EXPIRES_S_MAX: u64 = 7 * 24 * 3600;

const UNSIGNED_MD5: Refusal =
    Refusal::bad_request("InvalidDigest", "The Content-MD5 is not the one that was signed.");

/// Headers that may come unsigned: those a signature of the request holds anyway, and what clients and caches
/// say of themselves. None changes what is done.
const NEVER_SIGNED: [&str; 3] = ["x-amz-content-sha256", "x-amz-date", "x-amz-user-agent"];

/// What a presigned URL has in its query of its signature and of the client.
const NEVER_LIFTED: [&str; 9] = [
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
    "x-amz-user-agent",
];

/// Refuses a signed request with headers that its signer didn't sign, and a presigned URL that lasts too long.
///
/// Who has a presigned URL to put an object would copy any other one into it with `x-amz-copy-source`.
pub(crate) fn check_signed(headers: &HeaderMap, query: &Query<'_>) -> Result<(), Refusal> {
    let Some(named) = signed_names(headers, query)? else { return Ok(()) };
    check_expires(query)?;
    let may_be_unsigned = |name: &str| {
        !name.starts_with("x-amz-")
            || name.starts_with("x-amz-cf-")
            || NEVER_SIGNED.contains(&name)
            || named.split(';').any(|signed| signed == name)
    };
    if headers.keys().all(|name| may_be_unsigned(name.as_str())) {
        return Ok(());
    }
    let what = "There were headers present in the request which were not signed";
    Err(Refusal::new(StatusCode::FORBIDDEN, "AccessDenied", what))
}

/// Makes headers of those that a presigned URL has in its query, as some clients presign: metadata was lost
/// there, and what isn't implemented passed.
pub(crate) fn lift_headers(headers: &mut HeaderMap, query: &Query<'_>) -> Result<(), Refusal> {
    if !query.is_presigned() {
        return Ok(());
    }
    let invalid = "What the query has of a header can't be one.";
    let invalid = Refusal::bad_request("InvalidArgument", invalid);
    let mut lifted = HeaderMap::new();
    for (name, value) in query.parameters() {
        let name = name.to_ascii_lowercase();
        let is_left = NEVER_LIFTED.contains(&&*name)
            // Of the body that there was when it was presigned: none.
            || Algorithm::ALL.iter().any(|algorithm| algorithm.header() == name)
            || name.starts_with("x-amz-sdk-");
        if is_left || !name.starts_with("x-amz-") && !is_body_header(&name) {
            continue;
        }
        if name.starts_with("x-amz-copy-source") {
            return Err(Refusal::not_implemented("The source of a copy is named by a header."));
        }
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid.clone())?;
        let value =
            HeaderValue::from_bytes(decode(value)?.as_bytes()).map_err(|_| invalid.clone())?;
        match headers.get(&name) {
            None => drop(lifted.append(name, value)),
            // Who has the URL may say of his bytes what they are, but not that they are others.
            Some(given) if name == "content-md5" && *given != value => return Err(UNSIGNED_MD5),
            Some(_) => {}
        }
    }
    headers.extend(lifted);
    Ok(())
}

/// Takes away a `Range` of another kind than one range of bytes, which a server may ignore (RFC 9110, section
/// 14.2), as `s3s` refuses it, and writes one of bytes as `s3s` reads it: with a small `bytes` and numbers that it
/// has room for. One that is signed stays, or the signature would be wrong.
pub(crate) fn plain_range(headers: &mut HeaderMap, query: &Query<'_>) -> Result<(), Refusal> {
    let given = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let Some(given) = given else { return Ok(()) };
    let plain = ByteRange::plain(given);
    if plain.as_deref() == Some(given) {
        return Ok(());
    }
    let named = signed_names(headers, query)?.unwrap_or_default();
    if named.split(';').any(|signed| signed == RANGE.as_str()) {
        return Ok(());
    }
    drop(named);
    headers.remove(RANGE);
    let plain = plain.and_then(|plain| HeaderValue::try_from(plain).ok());
    headers.extend(plain.map(|plain| (RANGE, plain)));
    Ok(())
}

/// The names of the headers that were signed, with semicolons in between; `None` where nothing was.
fn signed_names<'a>(
    headers: &'a HeaderMap,
    query: &'a Query<'_>,
) -> Result<Option<Cow<'a, str>>, Refusal> {
    if query.is_presigned() {
        return Ok(Some(query.value("X-Amz-SignedHeaders")?.unwrap_or_default()));
    }
    let authorization = headers.get(AUTHORIZATION);
    Ok(authorization.map(|value| Cow::Borrowed(named_in(value.to_str().unwrap_or("")))))
}

/// The names of the signed headers in `Authorization`; none in what hasn't the form that all clients send.
///
/// `s3s` takes any word for the algorithm, which isn't signed, and reads what comes behind it as this does: names
/// that are found anywhere else aren't those whose signature it compares.
fn named_in(authorization: &str) -> &str {
    let fields = authorization.strip_prefix("AWS4-HMAC-SHA256 ").unwrap_or("");
    let mut fields = fields.split(',').map(str::trim_start);
    let (credential, names, signature) = (fields.next(), fields.next(), fields.next());
    let begins =
        |field: Option<&str>, with: &str| field.is_some_and(|field| field.starts_with(with));
    let has_form = begins(credential, "Credential=")
        && begins(signature, "Signature=")
        && fields.next().is_none();
    let names = names.and_then(|names| names.strip_prefix("SignedHeaders="));
    names.filter(|_| has_form).unwrap_or("")
}

fn check_expires(query: &Query<'_>) -> Result<(), Refusal> {
    let expires = query.value("X-Amz-Expires")?;
    // What is no number is refused by `s3s`.
    let is_long =
        expires.and_then(|text| text.parse().ok()).is_some_and(|s: u64| s > EXPIRES_S_MAX);
    if is_long {
        let what = "X-Amz-Expires must be less than a week (in seconds), that is 604800.";
        return Err(Refusal::bad_request("AuthorizationQueryParametersError", what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair =
            |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        list.iter().map(pair).collect()
    }

    fn is_refused(list: &[(&'static str, &'static str)], query: &str) -> bool {
        check_signed(&headers(list), &Query::of(query).unwrap()).is_err()
    }

    /// A presigned PUT with a copy's source beside it copied an object that nobody had signed for.
    #[test]
    fn headers_that_change_what_is_done_must_be_signed() {
        let presigned = "X-Amz-SignedHeaders=host%3Bx-amz-acl&X-Amz-Signature=0";
        let authorization = (
            "authorization",
            "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, \
             SignedHeaders=host;x-amz-acl;x-amz-date, Signature=00",
        );
        for (name, is_free) in [
            ("x-amz-copy-source", false),
            ("x-amz-meta-colour", false),
            ("x-amz-security-token", false),
            ("x-amz-ac", false),
            ("x-amz-acl", true),
            ("x-amz-content-sha256", true),
            ("x-amz-date", true),
            ("x-amz-user-agent", true),
            ("x-amz-cf-id", true),
            ("x-amzn-trace-id", true),
            ("content-type", true),
        ] {
            let one = (name, "value");
            assert_eq!(is_refused(&[one], presigned), !is_free, "{name} presigned");
            assert_eq!(is_refused(&[authorization, one], "x=1"), !is_free, "{name} in headers");
            // The one in the query is what counts where there are both, however its name is written.
            let query = "X-Amz-%53ignature=0&X-Amz-SignedHeaders=host";
            let is_refused = is_refused(&[authorization, one], query);
            assert_eq!(is_refused, !is_free || name == "x-amz-acl", "{name} in both");
        }
        // What isn't signed at all is refused elsewhere, or may do everything.
        assert!(!is_refused(&[("x-amz-copy-source", "a/b")], "x=1"));
        assert!(is_refused(&[("x-amz-copy-source", "a/b")], "X-Amz-Signature"));
        assert!(is_refused(&[("authorization", "AWS4"), ("x-amz-copy-source", "a/b")], ""));
    }

    /// The first names in `Authorization` were taken, wherever they stood: `s3s` takes any word for the algorithm,
    /// which isn't signed, and so names that weren't signed could be put before those that were.
    #[test]
    fn names_of_signed_headers_stand_where_the_signature_has_them() {
        let real =
            "Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00";
        let faked = "SignedHeaders=host;x-amz-copy-source,";
        for authorization in [
            format!("{faked} {real}"),
            format!("AWS4-HMAC-SHA256 {faked} {real}"),
            format!("AWS4-HMAC-SHA256,{faked} {real}"),
            format!("AWS4-HMAC-SHA256 {real}, {faked}"),
            format!("AWS4-HMAC-SHA256 Credential=a,{faked}Signature=1/s3/aws4_request,{real}"),
            format!("AWS4-HMAC-SHA512 {}", real.replace("host", "host;x-amz-copy-source")),
        ] {
            let mut headers = headers(&[("x-amz-copy-source", "a/b")]);
            headers.insert(AUTHORIZATION, authorization.parse().unwrap());
            assert!(check_signed(&headers, &Query::of("").unwrap()).is_err(), "{authorization}");
        }
        for between in [",", ", ", ",\t "] {
            let authorization = format!("AWS4-HMAC-SHA256 {}", real.replace(", ", between));
            assert_eq!(named_in(&authorization), "host", "{authorization}");
        }
    }

    #[test]
    fn ranges_that_are_not_signed_are_written_plainly() {
        let range_of = |given: &'static str, query: &str| {
            let mut headers = headers(&[("range", given)]);
            plain_range(&mut headers, &Query::of(query).unwrap()).unwrap();
            headers.get(RANGE).map(|range| range.to_str().unwrap().to_owned())
        };
        let signed = "X-Amz-Signature=0&X-Amz-SignedHeaders=host%3Brange";
        for (given, plain) in [
            ("bytes=0-1", Some("bytes=0-1")),
            ("Bytes=0-1", Some("bytes=0-1")),
            ("bytes=0-1,3-4", None),
        ] {
            assert_eq!(range_of(given, "").as_deref(), plain, "{given}");
            assert_eq!(range_of(given, "X-Amz-Signature=0").as_deref(), plain, "{given}");
            assert_eq!(range_of(given, signed).as_deref(), Some(given));
        }
    }

    /// Metadata that was presigned in the query was lost, and access rights there were passed over.
    #[test]
    fn headers_in_a_presigned_query_are_headers() {
        let lift = |list: &[(&'static str, &'static str)], query: &str| {
            let mut headers = headers(list);
            lift_headers(&mut headers, &Query::of(query).unwrap()).map(|()| headers)
        };
        let of_signature = "X-Amz-Signature=0&X-Amz-Date=1&X-Amz-SignedHeaders=host&X-Amz-Expires=9\
            &X-Amz-Algorithm=a&X-Amz-Credential=b&X-Amz-Security-Token=c&X-Amz-Content-Sha256=d\
            &x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32&x-id=PutObject";
        assert_eq!(lift(&[], of_signature), Ok(HeaderMap::new()));
        let query =
            format!("{of_signature}&x-amz-%6Deta-colour=dark%20blue+&X-Amz-Acl=public-read");
        let lifted = [("x-amz-meta-colour", "dark blue "), ("x-amz-acl", "public-read")];
        assert_eq!(lift(&[], &query), Ok(headers(&lifted)));
        // What is signed as a header counts.
        let signed = [("x-amz-acl", "private"), ("x-amz-meta-colour", "red")];
        assert_eq!(lift(&signed, &query), Ok(headers(&signed)));
        let unsigned = query.replace("X-Amz-Signature=0&", "");
        assert_eq!(lift(&[], &unsigned), Ok(HeaderMap::new()));
        for (name, code) in [
            ("x-amz-copy-source", "NotImplemented"),
            ("x-amz-meta-a%20b", "InvalidArgument"),
            ("x-amz-meta-a=%0D%0Ahost:b&a", "InvalidArgument"),
        ] {
            let refused = lift(&[], &format!("X-Amz-Signature=0&{name}=a"));
            assert!(refused.is_err_and(|refusal| refusal.code == code), "{name}");
        }
    }

    /// The AWS SDK for JavaScript, version 2, presigns what a body is in the query: each of its writes was
    /// refused with 501.
    #[test]
    fn what_a_body_is_may_be_presigned_in_the_query() {
        use hyper::Method;

        use crate::s3::query::check_names;

        let md5 = "1B2M2Y8AsgTpgAmY7PhCfg==";
        let text = "Cache-Control=no-store&Content-Type=image%2Fpng&Content-MD5=1B2M2Y8AsgTpgAmY7PhCfg%3D%3D\
            &content-disposition=a&content-encoding=gzip&content-language=de&Expires=never";
        let presigned = format!("X-Amz-Signature=0&{text}");
        let query = Query::of(&presigned).unwrap();
        let lift = |list: &[(&'static str, &'static str)]| {
            let mut headers = headers(list);
            lift_headers(&mut headers, &query).map(|()| headers)
        };
        let all = [
            ("cache-control", "no-store"),
            ("content-type", "image/png"),
            ("content-md5", md5),
            ("content-disposition", "a"),
            ("content-encoding", "gzip"),
            ("content-language", "de"),
            ("expires", "never"),
        ];
        assert_eq!(lift(&[]), Ok(headers(&all)));
        let own = lift(&[("content-type", "text/plain"), ("content-md5", md5)]).unwrap();
        assert_eq!(own["content-type"], "text/plain");
        assert_eq!(lift(&[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")]), Err(UNSIGNED_MD5));
        let unsigned = Query::of(text).unwrap();
        for method in [Method::PUT, Method::POST, Method::DELETE] {
            assert_eq!(check_names(&method, "/b/k", &query), Ok(()), "{method}");
            assert!(check_names(&method, "/b/k", &unsigned).is_err(), "{method}");
        }
    }

    /// What an upload's checksum is to be was dropped with the checksums of the body.
    #[test]
    fn what_is_presigned_of_checksums_is_lifted_but_for_their_values() {
        let query = "X-Amz-Signature=0&x-amz-checksum-algorithm=SHA256&X-Amz-Checksum-Type=COMPOSITE\
            &x-amz-checksum-sha256=a&x-amz-checksum-md5=b&X-Amz-Checksum-Mode=ENABLED";
        let mut lifted = HeaderMap::new();
        lift_headers(&mut lifted, &Query::of(query).unwrap()).unwrap();
        let expected = [
            ("x-amz-checksum-algorithm", "SHA256"),
            ("x-amz-checksum-type", "COMPOSITE"),
            // Who asks for them in a presigned read is shown them.
            ("x-amz-checksum-mode", "ENABLED"),
            // Not known, so refused.
            ("x-amz-checksum-md5", "b"),
        ];
        assert_eq!(lifted, headers(&expected));
    }

    #[test]
    fn presigned_urls_last_a_week_at_most() {
        let expires = |text| format!("X-Amz-Signature=0&X-Amz-Expires={text}");
        assert!(!is_refused(&[], &expires("604800")) && !is_refused(&[], &expires("soon")));
        assert!(is_refused(&[], &expires("604801")) && is_refused(&[], &expires("4000000000")));
    }
}
