//! Listings of a bucket's objects, in their three forms, and the memory of a page of any.
//!
//! Long keys make a page of several mebibytes out of 1,000 entries. So it ends by its bytes as well, as clients
//! go by `IsTruncated`, and its memory is counted from before it is begun until it was sent. Where there is none
//! for a whole page it is a short one, which needs none.

use std::sync::Arc;

use s3s::dto::{
    ChecksumAlgorithm, CommonPrefix, ETag, EncodingType, ListObjectVersionsInput,
    ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, ObjectStorageClass, ObjectVersion, ObjectVersionStorageClass, Timestamp,
};
use s3s::{S3Response, S3Result, s3_error};
use tallybook_files::{ListEntry, ListOptions, hex};

use super::buckets::owner;
use super::failure::failed;
use super::layout;
use super::meta::{Object, SavedChecksum};
use super::refusal::Refusal;
use super::shelf::Shelf;
use crate::admission::{Quota, Share};
use crate::files::in_slices;
use crate::value_memory::SMALL_VALUE_BYTES_MAX;

/// Most entries of a page.
const ENTRIES_MAX: i32 = 1000;
/// A page ends before the entry that would take its text beyond this.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Entries that are asked for at a time.
const SLICE_ENTRIES: usize = 64;
/// What a page takes while it is made: a slice, its entries, and the text, whose room is doubled as it grows.
const PAGE_MEMORY_BYTES: usize = 4 << 20;
/// Room for what a page says besides its entries and what it was asked: the key that the next begins after has
/// up to 6 KiB.
pub(super) const PAGE_FRAME_BYTES: usize = 8 << 10;
/// Most bytes of an object's entry besides its key, and of a prefix's.
pub(super) const OBJECT_BYTES: usize = 512;
const PREFIX_BYTES: usize = 64;
/// Most bytes that one of a text is written as.
pub(super) const BYTES_OF_ONE_MAX: usize = 6;

/// The memory of a page, counted from before it is made.
pub(super) struct PageMemory {
    quota: Arc<Quota>,
    share: Option<Share>,
}

impl PageMemory {
    pub(super) fn new(quota: &Arc<Quota>) -> PageMemory {
        PageMemory { quota: quota.clone(), share: quota.try_take_at_most(PAGE_MEMORY_BYTES) }
    }

    /// The page ends before the entry that would take its text beyond this.
    pub(super) fn bytes_max(&self) -> usize {
        if self.share.is_some() { PAGE_BYTES_MAX } else { SMALL_VALUE_BYTES_MAX }
    }

    fn slice_entries(&self) -> usize {
        if self.share.is_some() { SLICE_ENTRIES } else { 1 }
    }

    /// What is held with a page that was made, of at most so many bytes.
    pub(super) fn keep(self, bytes: usize) -> S3Result<Option<Share>> {
        if bytes <= SMALL_VALUE_BYTES_MAX {
            return Ok(None);
        }
        let share = self.share.or_else(|| self.quota.try_take_at_most(bytes));
        let mut share = share.ok_or(Refusal::SLOW_DOWN)?;
        share.keep(bytes);
        Ok(Some(share))
    }
}

/// An answer with which its memory is held.
pub(super) fn held<T>(output: T, memory: Option<Share>) -> S3Response<T> {
    let mut response = S3Response::new(output);
    if let Some(memory) = memory {
        response.extensions.insert(Arc::new(memory));
    }
    response
}

/// What every form asks.
struct Asked<'a> {
    bucket: &'a str,
    prefix: Option<&'a str>,
    delimiter: Option<&'a str>,
    after: Option<&'a str>,
    /// What is only said again.
    echoed: Option<&'a str>,
    max_keys: Option<i32>,
    encoding: Option<&'a EncodingType>,
}

/// What is shown of an object.
struct Shown {
    /// Encoded, if that is asked for.
    key: String,
    tag: ETag,
    last_modified: Timestamp,
    size: i64,
    checksum: Option<SavedChecksum>,
}

/// What every form answers.
struct Listed {
    objects: Vec<Shown>,
    prefixes: Vec<CommonPrefix>,
    /// Where the next page goes on, unencoded.
    next: Option<String>,
    max_keys: i32,
    encodes: bool,
    /// At least as many as the text will have.
    bytes: usize,
    memory: Option<Share>,
}

impl Listed {
    /// Adds an entry under its key; false, and nothing is changed, if that would take the page beyond
    /// `bytes_max` and it isn't the first.
    fn add(&mut self, key: &str, entry: ListEntry, bytes_max: usize) -> S3Result<bool> {
        let key = self.text(key);
        let own = match entry {
            ListEntry::File(_) => OBJECT_BYTES,
            ListEntry::Prefix(_) => PREFIX_BYTES,
        };
        let bytes = self.bytes + own + xml_bytes(&key);
        let is_first = self.objects.is_empty() && self.prefixes.is_empty();
        if bytes > bytes_max && !is_first {
            return Ok(false);
        }
        self.bytes = bytes;
        match entry {
            ListEntry::File(stat) => {
                let object = Object::of(stat)?;
                self.objects.push(Shown {
                    key,
                    tag: object.tag(),
                    last_modified: object.last_modified(),
                    size: object.size(),
                    checksum: object.meta.checksum,
                });
            }
            ListEntry::Prefix(_) => self.prefixes.push(CommonPrefix { prefix: Some(key) }),
        }
        Ok(true)
    }

    /// The answer, with which its memory is held.
    fn answer<T>(&mut self, output: T) -> S3Response<T> {
        held(output, self.memory.take())
    }

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
        let memory = PageMemory::new(&self.memory);
        let given = [asked.prefix, asked.delimiter, asked.after, asked.echoed];
        let given: usize = given.into_iter().flatten().map(str::len).sum();
        let mut listed = Listed {
            objects: Vec::new(),
            prefixes: Vec::new(),
            next: None,
            max_keys: max_keys.min(ENTRIES_MAX),
            encodes: asked.encoding.is_some_and(|encoding| encoding.as_str() == EncodingType::URL),
            bytes: PAGE_FRAME_BYTES + BYTES_OF_ONE_MAX * given,
            memory: None,
        };
        if max_keys > 0 {
            let base = layout::objects(asked.bucket);
            let named = |key: &str| format!("{base}{key}");
            let options = ListOptions {
                prefix: named(asked.prefix.unwrap_or("")),
                delimiter: asked.delimiter.map(str::to_owned),
                after: asked.after.filter(|after| !after.is_empty()).map(named),
                limit: usize::try_from(listed.max_keys).unwrap_or(1),
            };
            let key_of = |name: &str| name.strip_prefix(&base).unwrap_or(name).to_owned();
            let list = |options| self.files.list(options).map_err(failed);
            let bytes_max = memory.bytes_max();
            let next = in_slices(memory.slice_entries(), list, options, |entry| {
                listed.add(&key_of(entry.name()), entry, bytes_max)
            })?;
            listed.next = next.map(|name| key_of(&name));
        }
        listed.memory = memory.keep(listed.bytes)?;
        Ok(listed)
    }

    pub(crate) fn list_objects(
        &self,
        input: &ListObjectsInput,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let mut listed = self.list(&Asked {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref(),
            delimiter: input.delimiter.as_deref(),
            after: input.marker.as_deref(),
            echoed: None,
            max_keys: input.max_keys,
            encoding: input.encoding_type.as_ref(),
        })?;
        let output = ListObjectsOutput {
            name: Some(input.bucket.clone()),
            prefix: Some(listed.text(input.prefix.as_deref().unwrap_or(""))),
            marker: Some(listed.text(input.marker.as_deref().unwrap_or(""))),
            delimiter: listed.optional(input.delimiter.as_deref()),
            max_keys: Some(listed.max_keys),
            is_truncated: Some(listed.next.is_some()),
            next_marker: listed.optional(listed.next.as_deref()),
            contents: Some(contents(&mut listed, true)),
            common_prefixes: Some(std::mem::take(&mut listed.prefixes)),
            encoding_type: input.encoding_type.clone(),
            ..ListObjectsOutput::default()
        };
        Ok(listed.answer(output))
    }

    pub(crate) fn list_objects_v2(
        &self,
        input: &ListObjectsV2Input,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let token = match &input.continuation_token {
            Some(token) if !token.is_empty() => Some(decode_token(token)?),
            _ => None,
        };
        let mut listed = self.list(&Asked {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref(),
            delimiter: input.delimiter.as_deref(),
            after: token.as_deref().or(input.start_after.as_deref()),
            echoed: input.continuation_token.as_deref(),
            max_keys: input.max_keys,
            encoding: input.encoding_type.as_ref(),
        })?;
        let count = listed.objects.len() + listed.prefixes.len();
        let output = ListObjectsV2Output {
            name: Some(input.bucket.clone()),
            prefix: Some(listed.text(input.prefix.as_deref().unwrap_or(""))),
            delimiter: listed.optional(input.delimiter.as_deref()),
            start_after: listed.optional(input.start_after.as_deref()),
            max_keys: Some(listed.max_keys),
            key_count: i32::try_from(count).ok(),
            is_truncated: Some(listed.next.is_some()),
            continuation_token: input.continuation_token.clone(),
            next_continuation_token: listed.next.as_deref().map(encode_token),
            contents: Some(contents(&mut listed, input.fetch_owner == Some(true))),
            common_prefixes: Some(std::mem::take(&mut listed.prefixes)),
            encoding_type: input.encoding_type.clone(),
            ..ListObjectsV2Output::default()
        };
        Ok(listed.answer(output))
    }

    /// Every object is the only version of its key, called `null`.
    pub(crate) fn list_object_versions(
        &self,
        input: &ListObjectVersionsInput,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let mut listed = self.list(&Asked {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref(),
            delimiter: input.delimiter.as_deref(),
            after: input.key_marker.as_deref(),
            echoed: input.version_id_marker.as_deref(),
            max_keys: input.max_keys,
            encoding: input.encoding_type.as_ref(),
        })?;
        let objects = std::mem::take(&mut listed.objects);
        let versions = objects.into_iter().map(|object| ObjectVersion {
            key: Some(object.key),
            version_id: Some("null".to_owned()),
            is_latest: Some(true),
            e_tag: Some(object.tag),
            last_modified: Some(object.last_modified),
            size: Some(object.size),
            owner: Some(owner()),
            storage_class: Some(ObjectVersionStorageClass::from_static(
                ObjectVersionStorageClass::STANDARD,
            )),
            ..ObjectVersion::default()
        });
        let output = ListObjectVersionsOutput {
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
            common_prefixes: Some(std::mem::take(&mut listed.prefixes)),
            encoding_type: input.encoding_type.clone(),
            ..ListObjectVersionsOutput::default()
        };
        Ok(listed.answer(output))
    }
}

fn contents(listed: &mut Listed, with_owner: bool) -> Vec<s3s::dto::Object> {
    let content = |object: Shown| s3s::dto::Object {
        key: Some(object.key),
        e_tag: Some(object.tag),
        last_modified: Some(object.last_modified),
        size: Some(object.size),
        owner: with_owner.then(owner),
        checksum_type: object.checksum.as_ref().map(|saved| saved.kind()),
        checksum_algorithm: object
            .checksum
            .map(|saved| vec![ChecksumAlgorithm::from(saved.algorithm)]),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        ..s3s::dto::Object::default()
    };
    std::mem::take(&mut listed.objects).into_iter().map(content).collect()
}

/// At least as many bytes as a text has in XML, where some are written by their names.
pub(super) fn xml_bytes(text: &str) -> usize {
    let is_named =
        |byte: &u8| matches!(byte, b'<' | b'>' | b'&' | b'"' | b'\'' | b'\r' | b'\n' | b'\t');
    text.len() + (BYTES_OF_ONE_MAX - 1) * text.bytes().filter(|byte| is_named(byte)).count()
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

    /// Puts objects with these keys.
    fn put(shelf: &Shelf, keys: &[String]) {
        for key in keys {
            let options = tallybook_files::WriteOptions::default();
            shelf.files.write(&layout::object("b", key), b"", options).unwrap();
        }
    }

    fn page(shelf: &Shelf, start_after: Option<&String>) -> S3Response<ListObjectsV2Output> {
        let encoding = EncodingType::from_static(EncodingType::URL);
        let input = ListObjectsV2Input {
            bucket: "b".to_owned(),
            encoding_type: Some(encoding),
            start_after: start_after.cloned(),
            ..ListObjectsV2Input::default()
        };
        shelf.list_objects_v2(&input).unwrap()
    }

    fn keys_of(page: &ListObjectsV2Output) -> Vec<String> {
        page.contents.iter().flatten().map(|object| object.key.clone().unwrap()).collect()
    }

    /// 1,000 keys of a kibibyte were 3.5 MB of which nothing was counted, for each client that took its time.
    #[test]
    fn page_ends_by_its_bytes_and_is_counted_until_it_is_gone() {
        let (_dir, shelf) = Shelf::with_bucket("b");
        let keys: Vec<String> = (0..400).map(|at| format!("{at:03}{}", "+".repeat(1000))).collect();
        put(&shelf, &keys);
        let encoded: Vec<String> = keys.iter().map(|key| encode(key)).collect();
        let first = page(&shelf, None);
        let shown = keys_of(&first.output);
        assert!((200..400).contains(&shown.len()), "{}", shown.len());
        assert_eq!(first.output.is_truncated, Some(true));
        let bytes: usize = shown.iter().map(String::len).sum();
        let counted = shelf.memory.used();
        assert!((bytes..=PAGE_BYTES_MAX).contains(&counted), "{counted}, {bytes}");
        // There is no room for another whole one.
        let second = page(&shelf, Some(&keys[shown.len() - 1]));
        let more = keys_of(&second.output);
        let bytes: usize = more.iter().map(String::len).sum();
        assert!((1..40).contains(&more.len()) && bytes < SMALL_VALUE_BYTES_MAX, "{}", more.len());
        assert_eq!(shelf.memory.used(), counted);
        drop(first);
        assert_eq!(shelf.memory.used(), 0);
        let third = page(&shelf, Some(&keys[shown.len() + more.len() - 1]));
        assert_eq!(third.output.is_truncated, Some(false));
        assert_eq!([shown, more, keys_of(&third.output)].concat(), encoded);
        drop(third);
        assert_eq!(shelf.memory.used(), 0);
    }

    #[test]
    fn page_that_says_again_more_than_there_is_memory_for_is_refused() {
        let (_dir, shelf) = Shelf::with_bucket("b");
        let held = shelf.memory.try_take(1 << 20).unwrap();
        let input = ListObjectsInput {
            bucket: "b".to_owned(),
            prefix: Some("+".repeat(15_000)),
            ..ListObjectsInput::default()
        };
        let refused = shelf.list_objects(&input).err().unwrap();
        assert_eq!(refused.code().as_str(), "SlowDown");
        drop(held);
        assert!(shelf.list_objects(&input).is_ok());
        assert_eq!(shelf.memory.used(), 0);
    }
}
