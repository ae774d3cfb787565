//! What the query of a request names: sub-resources and arguments that are there, or the request is refused.
//!
//! `s3s` takes a request for a sub-resource that it doesn't know, and one with half of its arguments, for one
//! without: a `PUT` of an object's `?encryption`, or of its `?partNumber=1`, would replace the object, a `DELETE`
//! of a bucket's `?logging` the bucket itself. It decodes names before it looks at them, and so does this.

use std::borrow::Cow;

use hyper::Method;

use super::refusal::Refusal;
use crate::query::{BadEscape, parameters, percent_decode};

const MALFORMED: Refusal =
    Refusal::bad_request("InvalidURI", "The query could not be read: its escapes are malformed.");

/// Arguments of reads, which clients may send empty.
const READ_ARGUMENTS: [&str; 20] = [
    "bucket-region",
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-buckets",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "partNumber",
    "prefix",
    "start-after",
    "upload-id-marker",
    "uploadId",
    "version-id-marker",
    "versionId",
];

/// What S3 has beside buckets and objects. Another name with a value may be of a client's own making, and
/// changes nothing of a read.
const SUB_RESOURCES: [&str; 38] = [
    "abac",
    "accelerate",
    "acl",
    "analytics",
    "attributes",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "session",
    "tagging",
    "torrent",
    "uploads",
    "versioning",
    "versions",
    "website",
];

/// Headers of a body that the AWS SDK for JavaScript, version 2, has in the query of what it presigns, or others
/// might.
const BODY_HEADERS: [&str; 7] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "expires",
];

/// The parameters of a query in order, names decoded and values as they stand.
pub(crate) struct Query<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Query<'a> {
    pub(crate) fn of(query: &'a str) -> Result<Query<'a>, Refusal> {
        let named = |(name, value)| Ok((decode(name)?, value));
        parameters(query).map(named).collect::<Result<_, Refusal>>().map(Query)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|parameter| parameter.0 == name)
    }

    /// Whether it has the signature.
    pub(crate) fn is_presigned(&self) -> bool {
        self.has("X-Amz-Signature")
    }

    /// All of them, names decoded and values as they stand.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    /// The first value of this name, decoded.
    pub(crate) fn value(&self, name: &str) -> Result<Option<Cow<'a, str>>, Refusal> {
        let found = self.0.iter().find(|parameter| parameter.0 == name);
        found.map(|(_, value)| decode(value)).transpose()
    }
}

/// Refuses a query that names what isn't there, or not enough of what is.
pub(crate) fn check_names(method: &Method, path: &str, query: &Query<'_>) -> Result<(), Refusal> {
    let there = sub_resources(method, path);
    let (_, has_key) = names_of(path);
    // Those of a write are of an object: beside a bucket alone they would be passed over, and it made or deleted.
    let (arguments, is_read): (&[&str], bool) = match (method.as_str(), has_key) {
        ("PUT", true) => (&["partNumber", "uploadId"], false),
        ("POST", true) => (&["uploadId"], false),
        ("DELETE", true) => (&["uploadId", "versionId"], false),
        ("PUT" | "POST" | "DELETE", false) => (&[], false),
        _ => (&READ_ARGUMENTS, true),
    };
    if matches!(method.as_str(), "PUT" | "POST") && query.has("versionId") {
        let what = "Nothing is written to a version that is named.";
        return Err(Refusal::bad_request("InvalidArgument", what));
    }
    if method == Method::PUT && query.has("partNumber") != query.has("uploadId") {
        let what = "A part is named by partNumber and uploadId together.";
        return Err(Refusal::bad_request("InvalidArgument", what));
    }
    let is_presigned = query.is_presigned();
    let is_known = |(name, value): &(Cow<'_, str>, &str)| {
        name.is_empty()
            || there.contains(&&**name)
            || arguments.contains(&&**name)
            || name.starts_with("response-")
            || name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("x-"))
            || is_presigned && is_body_header(name)
            || is_read && !value.is_empty() && !SUB_RESOURCES.contains(&&**name)
    };
    if query.0.iter().all(is_known) {
        return Ok(());
    }
    Err(Refusal::not_implemented("The query names what is not implemented."))
}

/// Whether this is the name of a header that says of a body what it is.
pub(crate) fn is_body_header(name: &str) -> bool {
    BODY_HEADERS.iter().any(|header| header.eq_ignore_ascii_case(name))
}

/// What can be asked of a bucket or an object besides itself. What the protocol's file answers beyond it
/// is added here.
fn sub_resources(method: &Method, path: &str) -> &'static [&'static str] {
    let (has_bucket, has_key) = names_of(path);
    match (method.as_str(), has_bucket, has_key) {
        ("GET", true, false) => {
            &["acl", "lifecycle", "location", "uploads", "versioning", "versions"]
        }
        ("PUT" | "DELETE", true, false) => &["lifecycle"],
        ("POST", true, false) => &["delete"],
        ("GET", true, true) => &["acl", "attributes", "tagging"],
        ("POST", true, true) => &["uploads"],
        _ => &[],
    }
}

/// Whether a path names a bucket, and a key in it.
pub(crate) fn names_of(path: &str) -> (bool, bool) {
    // An escaped slash parts them too.
    let path = path.replace("%2F", "/").replace("%2f", "/");
    let path = path.strip_prefix('/').unwrap_or(&path);
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    (!bucket.is_empty(), !key.is_empty())
}

/// A name or a value, decoded.
pub(crate) fn decode(raw: &str) -> Result<Cow<'_, str>, Refusal> {
    let decoded = percent_decode(raw, true).map_err(|BadEscape| MALFORMED)?;
    match decoded {
        Cow::Borrowed(_) => Ok(Cow::Borrowed(raw)),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| MALFORMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_and_the_first_value_counts() {
        let query = Query::of("%61cl&a+b=1%202&%61cl=second&prefix=50%").unwrap();
        assert!(query.has("acl") && query.has("a b") && query.has("prefix") && !query.has("%61cl"));
        assert_eq!(query.value("acl").unwrap().as_deref(), Some(""));
        assert_eq!(query.value("a b").unwrap().as_deref(), Some("1 2"));
        assert_eq!(query.value("absent"), Ok(None));
        assert_eq!(query.value("prefix"), Err(MALFORMED));
        assert!(["%=1", "a&%ff", "%zz=1"].iter().all(|query| Query::of(query).is_err()));
    }

    /// An upload that was to be ended, of a key that was empty, took the bucket and all its uploads with it.
    #[test]
    fn arguments_of_an_object_need_its_key() {
        let check = |method: &Method, path: &str, query: &str| {
            check_names(method, path, &Query::of(query).unwrap())
        };
        for (method, query) in [
            (Method::DELETE, "uploadId=1"),
            (Method::DELETE, "versionId=null"),
            (Method::PUT, "partNumber=1&uploadId=1"),
            (Method::POST, "uploadId=1"),
        ] {
            assert_eq!(check(&method, "/bucket/key", query), Ok(()), "{method} {query}");
            for path in ["/bucket", "/bucket/", "/bucket%2F", "/"] {
                assert!(check(&method, path, query).is_err(), "{method} {path} {query}");
            }
        }
    }
}
