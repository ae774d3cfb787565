//! Objects: put, got, deleted.

use std::collections::BTreeMap;
use std::ops::Range;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use s3s::dto::{
    CopySource, DeleteObjectInput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETag,
    ETagCondition, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, Metadata,
    PutObjectInput, PutObjectOutput, StorageClass, StreamingBlob, Timestamp,
};
use s3s::{S3Request, S3Result, s3_error};
use tallybook_files::{Condition, Error, ReadOptions, Reader, UnlinkOptions, WriteOptions};

use super::checks::{Check, show_checksum};
use super::conditions::{ReadConditions, for_write, precondition_failed, range_applies};
use super::failure::failed;
use super::layout;
use super::meta::{Object, ObjectMeta, USER_METADATA_BYTES_MAX, encode, millis, timestamp};
use super::receive::{Delivery, commit};
use super::send::{Batch, Sending, read_batch};
use super::shelf::Shelf;

/// Refuses what an object can't be put with, nor a bucket be made with.
pub(crate) fn refuse_unknown(headers: &HeaderMap) -> S3Result<()> {
    let has = |name: &str| headers.get(name).is_some_and(|value| !value.is_empty());
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    for name in [
        "x-amz-server-side-encryption",
        "x-amz-server-side-encryption-customer-algorithm",
        "x-amz-copy-source-server-side-encryption-customer-algorithm",
        "x-amz-object-lock-mode",
        "x-amz-object-lock-legal-hold",
        "x-amz-tagging",
        "x-amz-website-redirect-location",
        "x-amz-write-offset-bytes",
    ] {
        if has(name) {
            return Err(s3_error!(NotImplemented, "The header {name} is not implemented."));
        }
    }
    if text("x-amz-storage-class").is_some_and(|class| class != StorageClass::STANDARD) {
        return Err(s3_error!(InvalidStorageClass, "The only storage class is STANDARD."));
    }
    let acl = text("x-amz-acl").filter(|acl| !acl.is_empty());
    if acl.is_some_and(|acl| !["private", "bucket-owner-full-control"].contains(&acl)) {
        return Err(s3_error!(NotImplemented, "The only access control list is private."));
    }
    let grants = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().starts_with("x-amz-grant-") && !value.is_empty()
    };
    if headers.iter().any(grants) {
        return Err(s3_error!(NotImplemented, "Grants of access are not implemented."));
    }
    Ok(())
}

/// Keys that can be stored and shown.
pub(crate) fn check_key(key: &str) -> S3Result<()> {
    if key.len() > 1024 {
        return Err(s3_error!(KeyTooLongError, "Your key is too long"));
    }
    if key.is_empty() || key.contains('\0') {
        return Err(s3_error!(InvalidArgument, "A key has 1 to 1,024 bytes and no NUL."));
    }
    Ok(())
}

/// Versions other than `null` don't exist.
pub(crate) fn check_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("" | "null") => Ok(()),
        Some(_) => Err(s3_error!(NoSuchVersion, "The specified version does not exist.")),
    }
}

/// User metadata within its limit.
pub(crate) fn user_metadata(metadata: Option<Metadata>) -> S3Result<BTreeMap<String, String>> {
    let metadata: BTreeMap<String, String> = metadata.unwrap_or_default().into_iter().collect();
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > USER_METADATA_BYTES_MAX {
        return Err(s3_error!(
            MetadataTooLarge,
            "Your metadata headers exceed the maximum allowed metadata size"
        ));
    }
    Ok(metadata)
}

/// The content encoding without the framing that is taken off the body.
pub(crate) fn content_encoding(given: Option<String>) -> Option<String> {
    let given = given?;
    let is_kept = |one: &&str| !one.eq_ignore_ascii_case("aws-chunked");
    let kept: Vec<&str> = given.split(',').map(str::trim).filter(is_kept).collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

/// A time as it is kept.
pub(crate) fn seconds(at: &Timestamp) -> i64 {
    i64::try_from(millis(at) / 1000).unwrap_or(i64::MAX)
}

impl Shelf {
    pub(crate) async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<PutObjectOutput> {
        let S3Request { input, headers, trailing_headers, .. } = request;
        refuse_unknown(&headers)?;
        check_key(&input.key)?;
        let meta = ObjectMeta {
            content_type: input.content_type,
            content_encoding: content_encoding(input.content_encoding),
            content_disposition: input.content_disposition,
            content_language: input.content_language,
            cache_control: input.cache_control,
            expires: input.expires.as_ref().map(seconds),
            user: user_metadata(input.metadata)?,
            ..ObjectMeta::default()
        };
        let (bucket, key) = (input.bucket, input.key);
        let (if_match, if_none_match) = (input.if_match, input.if_none_match);
        let name = layout::object(&bucket, &key);
        let of = (bucket.clone(), key);
        let condition = self.run(move |shelf| {
            shelf.need_bucket(&of.0)?;
            for_write(if_match.as_ref(), if_none_match.as_ref(), || shelf.object(&of.0, &of.1))
        });
        let options = WriteOptions { condition: condition.await?, ..WriteOptions::default() };
        let delivery = Delivery {
            name,
            body: input.body,
            length: input.content_length,
            content_md5: input.content_md5,
            check: Check::of(&headers, trailing_headers)?,
        };
        let finish = move |shelf: &Shelf, mut writer: tallybook_files::Writer, checksum| {
            writer.set_attributes(encode(&ObjectMeta { checksum, ..meta })).map_err(failed)?;
            commit(writer, || shelf.hold_bucket(&bucket))
        };
        let (stat, checksum) = self.receive(delivery, options, finish).await?;
        let mut output = PutObjectOutput {
            e_tag: Some(Object::of(stat)?.tag()),
            checksum_type: checksum.as_ref().map(|saved| saved.kind()),
            ..PutObjectOutput::default()
        };
        show_checksum!(output, &checksum);
        Ok(output)
    }

    pub(crate) async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<GetObjectOutput> {
        let S3Request { input, headers, .. } = request;
        let with_checksum = input.checksum_mode.is_some();
        let (object, part, batch) = self
            .run(move |shelf| {
                let (object, part, reader) = shelf.open_object(&input, &headers)?;
                let batch = read_batch(reader).map_err(failed)?;
                Ok((object, part, batch))
            })
            .await?;
        Ok(get_output(&object, part, batch, with_checksum))
    }

    fn open_object(
        &self,
        input: &GetObjectInput,
        headers: &HeaderMap,
    ) -> S3Result<(Object, Option<Range<u64>>, Reader)> {
        check_version(input.version_id.as_deref())?;
        let conditions = ReadConditions {
            if_match: input.if_match.clone(),
            if_none_match: input.if_none_match.clone(),
            if_modified_since: input.if_modified_since.clone(),
            if_unmodified_since: input.if_unmodified_since.clone(),
        };
        self.open_checked(&input.bucket, &input.key, |object| {
            conditions.check(object)?;
            check_part_number(input.part_number, object)?;
            Ok(input.range.as_ref().filter(|_| range_applies(headers, object)))
        })
    }

    /// Opens an object that `check` lets pass, or the range of it that `check` answers. Another object may
    /// come under the key meanwhile; then it is looked again.
    pub(super) fn open_checked<'r>(
        &self,
        bucket: &str,
        key: &str,
        check: impl Fn(&Object) -> S3Result<Option<&'r s3s::dto::Range>>,
    ) -> S3Result<(Object, Option<Range<u64>>, Reader)> {
        loop {
            let object = self.need_object(bucket, key)?;
            let part = check(&object)?.map(|range| part_of(range, object.stat.size)).transpose()?;
            let options = ReadOptions { range: part.clone(), ..ReadOptions::default() };
            let reader = self.files.reader(&object.stat.name, options).map_err(failed)?;
            if let Some(reader) =
                reader.filter(|reader| reader.stat().version == object.stat.version)
            {
                return Ok((object, part, reader));
            }
        }
    }

    pub(crate) fn head_object(
        &self,
        request: &S3Request<HeadObjectInput>,
    ) -> S3Result<HeadObjectOutput> {
        let S3Request { input, headers, .. } = request;
        check_version(input.version_id.as_deref())?;
        let object = self.need_object(&input.bucket, &input.key)?;
        let conditions = ReadConditions {
            if_match: input.if_match.clone(),
            if_none_match: input.if_none_match.clone(),
            if_modified_since: input.if_modified_since.clone(),
            if_unmodified_since: input.if_unmodified_since.clone(),
        };
        conditions.check(&object)?;
        check_part_number(input.part_number, &object)?;
        let range = input.range.as_ref().filter(|_| range_applies(headers, &object));
        let part = range.map(|range| part_of(range, object.stat.size)).transpose()?;
        let length = part.as_ref().map_or(object.stat.size, |part| part.end - part.start);
        let meta = &object.meta;
        let checksum = meta.checksum.as_ref().filter(|_| input.checksum_mode.is_some());
        let mut output = HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: i64::try_from(length).ok(),
            content_range: content_range(part.as_ref(), &object),
            content_type: Some(content_type(meta)),
            content_encoding: meta.content_encoding.clone(),
            content_disposition: meta.content_disposition.clone(),
            content_language: meta.content_language.clone(),
            cache_control: meta.cache_control.clone(),
            expires: expires(meta),
            e_tag: Some(object.tag()),
            last_modified: Some(object.last_modified()),
            metadata: Some(meta.user.clone().into_iter().collect()),
            checksum_type: checksum.map(|saved| saved.kind()),
            ..HeadObjectOutput::default()
        };
        show_checksum!(output, checksum);
        Ok(output)
    }

    pub(crate) fn delete_object(&self, input: &DeleteObjectInput) -> S3Result<()> {
        check_version(input.version_id.as_deref())?;
        check_key(&input.key)?;
        self.need_bucket(&input.bucket)?;
        self.delete_key(&input.bucket, &input.key, self.for_delete(input)?)
    }

    /// What the file store is to check of what is deleted. All that is named of it stands for its version.
    fn for_delete(&self, input: &DeleteObjectInput) -> S3Result<Option<Condition>> {
        let (size, at) = (input.if_match_size, input.if_match_last_modified_time.as_ref());
        let any = (size.is_some() || at.is_some()).then_some(&ETagCondition::Any);
        for_write(input.if_match.as_ref().or(any), None, || {
            let object = self.object(&input.bucket, &input.key)?;
            let is_named = |object: &Object| {
                size.is_none_or(|size| size == object.size())
                    && at.is_none_or(|at| seconds(at) == seconds(&object.last_modified()))
            };
            if object.as_ref().is_none_or(is_named) {
                Ok(object)
            } else {
                Err(precondition_failed())
            }
        })
    }

    fn delete_key(&self, bucket: &str, key: &str, condition: Option<Condition>) -> S3Result<()> {
        let options = UnlinkOptions { condition, ..UnlinkOptions::default() };
        match self.files.unlink(&layout::object(bucket, key), options) {
            Ok(_) => Ok(()),
            Err(Error::Conflict { .. }) => Err(precondition_failed()),
            Err(error) => Err(failed(error)),
        }
    }

    pub(crate) fn delete_objects(
        &self,
        input: DeleteObjectsInput,
    ) -> S3Result<DeleteObjectsOutput> {
        self.need_bucket(&input.bucket)?;
        let is_quiet = input.delete.quiet == Some(true);
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for named in input.delete.objects {
            let one = DeleteObjectInput {
                bucket: input.bucket.clone(),
                key: named.key.clone(),
                version_id: named.version_id.clone(),
                if_match: named.e_tag.map(ETagCondition::ETag),
                if_match_size: named.size,
                if_match_last_modified_time: named.last_modified_time,
                ..DeleteObjectInput::default()
            };
            match self.delete_object(&one) {
                Ok(()) if is_quiet => {}
                Ok(()) => deleted.push(DeletedObject {
                    key: Some(named.key),
                    version_id: named.version_id,
                    ..DeletedObject::default()
                }),
                Err(error) => errors.push(s3s::dto::Error {
                    key: Some(named.key),
                    version_id: named.version_id,
                    code: Some(error.code().as_str().to_owned()),
                    message: error.message().map(str::to_owned),
                }),
            }
        }
        Ok(DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: Some(errors),
            ..DeleteObjectsOutput::default()
        })
    }
}

fn get_output(
    object: &Object,
    part: Option<Range<u64>>,
    batch: Batch,
    with_checksum: bool,
) -> GetObjectOutput {
    let meta = &object.meta;
    let length = part.as_ref().map_or(object.stat.size, |part| part.end - part.start);
    // A client checks what it gets against it, so it goes only with the whole.
    let checksum = meta.checksum.as_ref().filter(|_| with_checksum && part.is_none());
    let mut output = GetObjectOutput {
        accept_ranges: Some("bytes".to_owned()),
        body: Some(StreamingBlob::new(Sending::new(batch, length))),
        content_length: i64::try_from(length).ok(),
        content_range: content_range(part.as_ref(), object),
        content_type: Some(content_type(meta)),
        content_encoding: meta.content_encoding.clone(),
        content_disposition: meta.content_disposition.clone(),
        content_language: meta.content_language.clone(),
        cache_control: meta.cache_control.clone(),
        expires: expires(meta),
        e_tag: Some(object.tag()),
        last_modified: Some(object.last_modified()),
        metadata: Some(meta.user.clone().into_iter().collect()),
        checksum_type: checksum.map(|saved| saved.kind()),
        ..GetObjectOutput::default()
    };
    show_checksum!(output, checksum);
    output
}

/// The bytes that a range names of so many. There is at least one: of nothing, there is no range.
fn part_of(range: &s3s::dto::Range, size: u64) -> S3Result<Range<u64>> {
    let part = range.check(size)?;
    if part.is_empty() {
        return Err(s3_error!(InvalidRange, "The requested range is not satisfiable"));
    }
    Ok(part)
}

fn content_range(part: Option<&Range<u64>>, object: &Object) -> Option<String> {
    part.map(|part| format!("bytes {}-{}/{}", part.start, part.end - 1, object.stat.size))
}

fn content_type(meta: &ObjectMeta) -> String {
    meta.content_type.clone().unwrap_or_else(|| "binary/octet-stream".to_owned())
}

pub(super) fn expires(meta: &ObjectMeta) -> Option<Timestamp> {
    let at = meta.expires.and_then(|at| u64::try_from(at).ok())?;
    Some(timestamp(at.saturating_mul(1000)))
}

/// The parts of an object are one again; only the first of one is known.
fn check_part_number(number: Option<i32>, object: &Object) -> S3Result<()> {
    match number {
        None => Ok(()),
        Some(1) if object.meta.etag.is_none() => Ok(()),
        Some(_) => {
            Err(s3_error!(NotImplemented, "Reading one part of an object is not implemented."))
        }
    }
}

/// Bucket and key of the source of a copy.
pub(crate) fn source_of(source: &CopySource) -> S3Result<(String, String)> {
    match source {
        CopySource::Bucket { bucket, key, version_id } => {
            check_version(version_id.as_deref())?;
            Ok((bucket.to_string(), key.to_string()))
        }
        _ => Err(s3_error!(NotImplemented, "A source is named by bucket and key.")),
    }
}

/// An entity tag in the strong form.
pub(crate) fn strong(value: String) -> ETag {
    ETag::Strong(value)
}
