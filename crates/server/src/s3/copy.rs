//! Copies: an object under another key, whose bytes are not moved.

use hyper::header::{IF_MATCH, IF_NONE_MATCH};
use s3s::dto::{CopyObjectInput, CopyObjectOutput, CopyObjectResult, MetadataDirective};
use s3s::{S3Request, S3Result, s3_error};
use tallybook_files::{Condition, CopyOptions, Error, Stat};

use super::checks::{Algorithm, show_checksum};
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
        let algorithm =
            input.checksum_algorithm.as_ref().map(|name| asked_algorithm(name.as_str()));
        let algorithm = algorithm.transpose()?;
        let directive = input.metadata_directive.as_ref().map(MetadataDirective::as_str);
        let replaces = directive == Some(MetadataDirective::REPLACE);
        if (&bucket, &key) == (&input.bucket, &input.key) && !replaces {
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
        let if_match = of_header(&headers, IF_MATCH)?;
        let if_none_match = of_header(&headers, IF_NONE_MATCH)?;
        let replacement = match replaces {
            false => None,
            true => Some(ObjectMeta {
                content_type: input.content_type,
                content_encoding: content_encoding(input.content_encoding),
                content_disposition: input.content_disposition,
                content_language: input.content_language,
                cache_control: input.cache_control,
                expires: input.expires.as_ref().map(seconds),
                user: user_metadata(input.metadata)?,
                ..ObjectMeta::default()
            }),
        };
        let (from, to) = ((&*bucket, &*key), (&*input.bucket, &*input.key));
        let object = self.copy_looked_at(from, to, |source| {
            conditions.check_source(source)?;
            check_algorithm(algorithm, source)?;
            // What a source has beyond the replacement belongs to the bytes.
            let own = ObjectMeta { upload: None, ..source.meta.clone() };
            let meta = match &replacement {
                None => own,
                Some(meta) => ObjectMeta { etag: own.etag, checksum: own.checksum, ..meta.clone() },
            };
            let condition =
                for_write(if_match.as_ref(), if_none_match.as_ref(), || self.object(to.0, to.1))?;
            Ok((meta, condition))
        })?;
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

    /// Copies an object with what `look` makes of it: the metadata of the copy, and the condition on what
    /// it replaces. Another object may come under the source's key meanwhile; then it is looked again.
    fn copy_looked_at(
        &self,
        from: (&str, &str),
        to: (&str, &str),
        look: impl Fn(&Object) -> S3Result<(ObjectMeta, Option<Condition>)>,
    ) -> S3Result<Object> {
        let name = layout::object(to.0, to.1);
        loop {
            let source = self.need_object(from.0, from.1)?;
            let (meta, condition) = look(&source)?;
            let Stat { name: source, version, .. } = source.stat;
            let options = CopyOptions {
                condition,
                source_condition: Some(Condition::Version(version)),
                attributes: Some(encode(&meta)),
                ..CopyOptions::default()
            };
            let hold = || self.hold_bucket(to.0);
            match self.files.copy_holding(&source, &name, options, hold) {
                Ok(copied) => return Object::of(copied?),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
            // Which of the two conditions it was, the error doesn't say.
            let now = self.files.stat(&source).map_err(failed)?;
            if now.is_some_and(|now| now.version == version) {
                return Err(precondition_failed());
            }
        }
    }
}

fn asked_algorithm(name: &str) -> S3Result<Algorithm> {
    let unknown = |()| s3_error!(InvalidRequest, "The checksum algorithm is not known.");
    name.parse().map_err(unknown)
}

/// Refuses a copy that is to have another checksum than its source: no bytes are read to compute one.
fn check_algorithm(asked: Option<Algorithm>, source: &Object) -> S3Result<()> {
    let has = |asked: Algorithm| {
        let saved = source.meta.checksum.as_ref();
        saved.is_some_and(|saved| saved.algorithm == asked.name() && !saved.is_composite)
    };
    if asked.is_none_or(has) {
        return Ok(());
    }
    Err(s3_error!(NotImplemented, "A copy has the checksum of its source, and no other."))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tallybook_files::{UnlinkOptions, WriteOptions};

    use super::*;

    /// A shelf with an object `b/k` of these bytes.
    fn with_object(bytes: &[u8]) -> (tempfile::TempDir, Shelf) {
        let (dir, shelf) = Shelf::with_bucket("b");
        put(&shelf, bytes);
        (dir, shelf)
    }

    fn put(shelf: &Shelf, bytes: &[u8]) {
        let options = WriteOptions { md5: true, ..WriteOptions::default() };
        shelf.files.write(&layout::object("b", "k"), bytes, options).unwrap();
    }

    /// A copy that asked for nothing was answered 412 when its source was put anew between the look at it
    /// and the copy: the client had named no condition that could fail. Now the new source is looked at.
    #[test]
    fn copy_whose_source_is_put_anew_meanwhile_is_of_the_new_one() {
        let (_dir, shelf) = with_object(b"first and longer");
        let seen = RefCell::new(Vec::new());
        let copied = shelf
            .copy_looked_at(("b", "k"), ("b", "to"), |source| {
                if seen.borrow().is_empty() {
                    put(&shelf, b"second");
                }
                seen.borrow_mut().push(source.stat.size);
                Ok((source.meta.clone(), None))
            })
            .unwrap();
        assert_eq!((seen.into_inner(), copied.stat.size), (vec![16, 6], 6));
        assert_eq!(shelf.files.read(&layout::object("b", "to")).unwrap().unwrap(), b"second");
    }

    #[test]
    fn copy_whose_source_is_deleted_meanwhile_finds_no_key() {
        let (_dir, shelf) = with_object(b"first");
        let refused = shelf
            .copy_looked_at(("b", "k"), ("b", "to"), |source| {
                shelf.files.unlink(&source.stat.name, UnlinkOptions::default()).unwrap();
                Ok((source.meta.clone(), None))
            })
            .unwrap_err();
        assert_eq!(refused.code().as_str(), "NoSuchKey");
        assert!(shelf.object("b", "to").unwrap().is_none());
    }

    #[test]
    fn copy_that_may_not_replace_what_is_there_is_refused_after_one_look() {
        let (_dir, shelf) = with_object(b"first");
        let looks = RefCell::new(0);
        let refused = shelf
            .copy_looked_at(("b", "k"), ("b", "k"), |source| {
                *looks.borrow_mut() += 1;
                Ok((source.meta.clone(), Some(Condition::Absent)))
            })
            .unwrap_err();
        assert_eq!((refused.code().as_str(), looks.into_inner()), ("PreconditionFailed", 1));
    }
}
