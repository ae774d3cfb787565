//! Listings of a bucket's objects, in their three forms.

use s3s::dto::{
    ChecksumAlgorithm, CommonPrefix, EncodingType, ListObjectVersionsInput,
    ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, ObjectStorageClass, ObjectVersion, ObjectVersionStorageClass,
};
use s3s::{S3Result, s3_error};
use tallybook_files::{ListEntry, ListOptions, hex};

use super::buckets::owner;
use super::failure::failed;
use super::layout;
use super::meta::Object;
use super::shelf::Shelf;

/// Most entries of a page.
const ENTRIES_MAX: i32 = 1000;

/// What every form asks.
struct Asked<'a> {
    bucket: &'a str,
    prefix: Option<&'a str>,
    delimiter: Option<&'a str>,
    after: Option<&'a str>,
    max_keys: Option<i32>,
    encoding: Option<&'a EncodingType>,
}

/// What every form answers.
struct Listed {
    objects: Vec<(String, Object)>,
    prefixes: Vec<CommonPrefix>,
    /// Where the next page goes on, unencoded.
    next: Option<String>,
    max_keys: i32,
    encodes: bool,
}

impl Listed {
    fn text(&self, text: &str) -> String {
        if self.encodes { encode(text) } else { text.to_owned() }
    }

    fn optional(&self, text: Option<&str>) -> Option<String> {
        text.map(|text| self.text(text))
    }
}

/// Percent-encodes what isn't plain in a key, for those who ask for it because XML can't carry all of it.
pub(super) fn encode(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => write!(out, "%{byte:02X}").expect("a String takes every write"),
        }
        out
    })
}

impl Shelf {
    fn list(&self, asked: &Asked<'_>) -> S3Result<Listed> {
        self.need_bucket(asked.bucket)?;
        let max_keys = asked.max_keys.unwrap_or(ENTRIES_MAX);
        if max_keys < 0 {
            return Err(s3_error!(InvalidArgument, "max-keys is not negative."));
        }
        let mut listed = Listed {
            objects: Vec::new(),
            prefixes: Vec::new(),
            next: None,
            max_keys: max_keys.min(ENTRIES_MAX),
            encodes: asked.encoding.is_some_and(|encoding| encoding.as_str() == EncodingType::URL),
        };
        if max_keys == 0 {
            return Ok(listed);
        }
        let base = layout::objects(asked.bucket);
        let named = |key: &str| format!("{base}{key}");
        let options = ListOptions {
            prefix: named(asked.prefix.unwrap_or("")),
            delimiter: asked.delimiter.map(str::to_owned),
            after: asked.after.filter(|after| !after.is_empty()).map(named),
            limit: usize::try_from(listed.max_keys).unwrap_or(1),
        };
        let page = self.files.list(options).map_err(failed)?;
        let key_of = |name: &str| name.strip_prefix(&base).unwrap_or(name).to_owned();
        for entry in page.entries {
            match entry {
                ListEntry::File(stat) => {
                    listed.objects.push((key_of(&stat.name), Object::of(stat)?));
                }
                ListEntry::Prefix(prefix) => {
                    let prefix = Some(listed.text(&key_of(&prefix)));
                    listed.prefixes.push(CommonPrefix { prefix });
                }
            }
        }
        listed.next = page.next_after.map(|name| key_of(&name));
        Ok(listed)
    }

    pub(crate) fn list_objects(&self, input: &ListObjectsInput) -> S3Result<ListObjectsOutput> {
        let listed = self.list(&Asked {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref(),
            delimiter: input.delimiter.as_deref(),
            after: input.marker.as_deref(),
            max_keys: input.max_keys,
            encoding: input.encoding_type.as_ref(),
        })?;
        Ok(ListObjectsOutput {
            name: Some(input.bucket.clone()),
            prefix: Some(listed.text(input.prefix.as_deref().unwrap_or(""))),
            marker: Some(listed.text(input.marker.as_deref().unwrap_or(""))),
            delimiter: listed.optional(input.delimiter.as_deref()),
            max_keys: Some(listed.max_keys),
            is_truncated: Some(listed.next.is_some()),
            next_marker: listed.optional(listed.next.as_deref()),
            contents: Some(contents(&listed, true)),
            common_prefixes: Some(listed.prefixes),
            encoding_type: input.encoding_type.clone(),
            ..ListObjectsOutput::default()
        })
    }

    pub(crate) fn list_objects_v2(
        &self,
        input: &ListObjectsV2Input,
    ) -> S3Result<ListObjectsV2Output> {
        let token = match &input.continuation_token {
            Some(token) if !token.is_empty() => Some(decode_token(token)?),
            _ => None,
        };
        let listed = self.list(&Asked {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref(),
            delimiter: input.delimiter.as_deref(),
            after: token.as_deref().or(input.start_after.as_deref()),
            max_keys: input.max_keys,
            encoding: input.encoding_type.as_ref(),
        })?;
        let count = listed.objects.len() + listed.prefixes.len();
        Ok(ListObjectsV2Output {
            name: Some(input.bucket.clone()),
            prefix: Some(listed.text(input.prefix.as_deref().unwrap_or(""))),
            delimiter: listed.optional(input.delimiter.as_deref()),
            start_after: listed.optional(input.start_after.as_deref()),
            max_keys: Some(listed.max_keys),
            key_count: i32::try_from(count).ok(),
            is_truncated: Some(listed.next.is_some()),
            continuation_token: input.continuation_token.clone(),
            next_continuation_token: listed.next.as_deref().map(encode_token),
            contents: Some(contents(&listed, input.fetch_owner == Some(true))),
            common_prefixes: Some(listed.prefixes),
            encoding_type: input.encoding_type.clone(),
            ..ListObjectsV2Output::default()
        })
    }

    /// Every object is the only version of its key, called `null`.
    pub(crate) fn list_object_versions(
        &self,
        input: &ListObjectVersionsInput,
    ) -> S3Result<ListObjectVersionsOutput> {
        let listed = self.list(&Asked {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref(),
            delimiter: input.delimiter.as_deref(),
            after: input.key_marker.as_deref(),
            max_keys: input.max_keys,
            encoding: input.encoding_type.as_ref(),
        })?;
        let versions = listed.objects.iter().map(|(key, object)| ObjectVersion {
            key: Some(listed.text(key)),
            version_id: Some("null".to_owned()),
            is_latest: Some(true),
            e_tag: Some(object.tag()),
            last_modified: Some(object.last_modified()),
            size: Some(object.size()),
            owner: Some(owner()),
            storage_class: Some(ObjectVersionStorageClass::from_static(
                ObjectVersionStorageClass::STANDARD,
            )),
            ..ObjectVersion::default()
        });
        Ok(ListObjectVersionsOutput {
            versions: Some(versions.collect()),
            name: Some(input.bucket.clone()),
            prefix: Some(listed.text(input.prefix.as_deref().unwrap_or(""))),
            key_marker: Some(listed.text(input.key_marker.as_deref().unwrap_or(""))),
            version_id_marker: Some(input.version_id_marker.clone().unwrap_or_default()),
            delimiter: listed.optional(input.delimiter.as_deref()),
            max_keys: Some(listed.max_keys),
            is_truncated: Some(listed.next.is_some()),
            next_key_marker: listed.optional(listed.next.as_deref()),
            next_version_id_marker: listed.next.is_some().then(|| "null".to_owned()),
            common_prefixes: Some(listed.prefixes),
            encoding_type: input.encoding_type.clone(),
            ..ListObjectVersionsOutput::default()
        })
    }
}

fn contents(listed: &Listed, with_owner: bool) -> Vec<s3s::dto::Object> {
    let content = |(key, object): &(String, Object)| s3s::dto::Object {
        key: Some(listed.text(key)),
        e_tag: Some(object.tag()),
        last_modified: Some(object.last_modified()),
        size: Some(object.size()),
        owner: with_owner.then(owner),
        checksum_algorithm: object
            .meta
            .checksum
            .as_ref()
            .map(|saved| vec![ChecksumAlgorithm::from(saved.algorithm.clone())]),
        checksum_type: object.meta.checksum.as_ref().map(|saved| saved.kind()),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        ..s3s::dto::Object::default()
    };
    listed.objects.iter().map(content).collect()
}

/// A token is the key in hex: opaque, and safe in a query and in XML.
pub(super) fn encode_token(key: &str) -> String {
    hex(key.as_bytes())
}

pub(super) fn decode_token(token: &str) -> S3Result<String> {
    let invalid = || s3_error!(InvalidArgument, "The continuation token provided is incorrect");
    let digits = token.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(invalid());
    }
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok()
    };
    let bytes: Option<Vec<u8>> = digits.chunks_exact(2).map(byte).collect();
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_as_the_key_they_are_of() {
        for key in ["a/b c+&<>", "日本", "x"] {
            assert_eq!(decode_token(&encode_token(key)).unwrap(), key);
        }
        for token in ["0", "zz", "ff", "+1"] {
            assert!(decode_token(token).is_err(), "{token}");
        }
    }

    #[test]
    fn keys_are_encoded_but_for_what_is_plain() {
        assert_eq!(encode("a/b c+\u{1}ü~"), "a/b%20c%2B%01%C3%BC~");
    }
}
