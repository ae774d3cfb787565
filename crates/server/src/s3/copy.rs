//! Copies: an object under another key, whose bytes are not moved.

use hyper::header::{IF_MATCH, IF_NONE_MATCH};
use s3s::dto::{CopyObjectInput, CopyObjectOutput, CopyObjectResult, MetadataDirective};
use s3s::{S3Request, S3Result, s3_error};
use tallybook_files::{Condition, CopyOptions, Error};

use super::checks::show_checksum;
use super::conditions::{ReadConditions, for_write, of_header, precondition_failed};
use super::failure::failed;
use super::layout;
use super::meta::{Object, ObjectMeta, encode};
use super::objects::{
    check_key, content_encoding, refuse_unknown, seconds, source_of, user_metadata,
};
use super::shelf::Shelf;

impl Shelf {
    pub(crate) fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<CopyObjectOutput> {
        let S3Request { input, headers, .. } = request;
        refuse_unknown(&headers)?;
        check_key(&input.key)?;
        let (bucket, key) = source_of(&input.copy_source)?;
        let directive = input.metadata_directive.as_ref().map(MetadataDirective::as_str);
        let replaces = directive == Some(MetadataDirective::REPLACE);
        let (from, to) = (layout::object(&bucket, &key), layout::object(&input.bucket, &input.key));
        if from == to && !replaces {
            return Err(s3_error!(
                InvalidRequest,
                "This copy request is illegal because it is trying to copy an object to itself \
                 without changing the object's metadata."
            ));
        }
        let conditions = ReadConditions {
            if_match: input.copy_source_if_match,
            if_none_match: input.copy_source_if_none_match,
            if_modified_since: input.copy_source_if_modified_since,
            if_unmodified_since: input.copy_source_if_unmodified_since,
        };
        let source = self.need_object(&bucket, &key)?;
        conditions.check_source(&source)?;
        let meta = match replaces {
            false => source.meta.clone(),
            true => ObjectMeta {
                content_type: input.content_type,
                content_encoding: content_encoding(input.content_encoding),
                content_disposition: input.content_disposition,
                content_language: input.content_language,
                cache_control: input.cache_control,
                expires: input.expires.as_ref().map(seconds),
                user: user_metadata(input.metadata)?,
                // These belong to the bytes.
                etag: source.meta.etag.clone(),
                checksum: source.meta.checksum.clone(),
                key: String::new(),
            },
        };
        let if_match = of_header(&headers, IF_MATCH)?;
        let if_none_match = of_header(&headers, IF_NONE_MATCH)?;
        let condition = for_write(if_match.as_ref(), if_none_match.as_ref(), || {
            self.object(&input.bucket, &input.key)
        })?;
        let options = CopyOptions {
            condition,
            source_condition: Some(Condition::Version(source.stat.version)),
            attributes: Some(encode(&meta)),
            ..CopyOptions::default()
        };
        let _gate = self.gate.read();
        self.need_bucket(&input.bucket)?;
        let copied = self.files.copy(&from, &to, options).map_err(|error| match error {
            Error::Conflict { .. } => precondition_failed(),
            error => failed(error),
        })?;
        let object = Object::of(copied)?;
        let checksum = &object.meta.checksum;
        let mut result = CopyObjectResult {
            e_tag: Some(object.tag()),
            last_modified: Some(object.last_modified()),
            checksum_type: checksum.as_ref().map(|saved| saved.kind()),
            ..CopyObjectResult::default()
        };
        show_checksum!(result, checksum);
        Ok(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() })
    }
}
