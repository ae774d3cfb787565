//! Buckets: made, listed, taken away when empty.

use s3s::dto::{Bucket, CreateBucketInput, ListBucketsInput, ListBucketsOutput, Owner};
use s3s::{S3Error, S3Result, s3_error};
use tallybook_files::{Condition, Error, ListEntry, ListOptions, UnlinkOptions, WriteOptions};

use super::failure::failed;
use super::layout;
use super::listing::{decode_token, encode_token};
use super::meta::{BucketMeta, encode, timestamp};
use super::shelf::{Shelf, UNTOLD};
use crate::files::in_slices;

/// Most buckets of a page, as in S3. Who asks for none gets all.
const BUCKETS_OF_PAGE_MAX: usize = 10_000;
/// Buckets that are asked for at a time.
const SLICE_ENTRIES: usize = 1000;

/// Whom everything belongs to: there are no users to tell apart.
pub(crate) const OWNER: &str = "tallybook";

/// The same as S3 shows it.
pub(crate) fn owner() -> Owner {
    Owner { display_name: Some(OWNER.to_owned()), id: Some(OWNER.to_owned()) }
}

impl Shelf {
    pub(crate) fn create_bucket(&self, input: &CreateBucketInput) -> S3Result<()> {
        if input.object_lock_enabled_for_bucket == Some(true) {
            return Err(s3_error!(NotImplemented, "Object lock is not implemented."));
        }
        let options = WriteOptions {
            condition: Some(Condition::Absent),
            attributes: encode(&BucketMeta::default()),
            md5: true,
            ..WriteOptions::default()
        };
        match self.files.write(&layout::bucket(&input.bucket), b"", options) {
            Ok(_) => Ok(()),
            Err(Error::Conflict { .. }) => Err(s3_error!(
                BucketAlreadyOwnedByYou,
                "Your previous request to create the named bucket succeeded and you already own it."
            )),
            Err(error) => Err(failed(error)),
        }
    }

    /// The buckets with the prefix that is asked for, in pages if `max-buckets` is.
    pub(crate) fn list_buckets(&self, input: &ListBucketsInput) -> S3Result<ListBucketsOutput> {
        let limit = match input.max_buckets {
            None => usize::MAX,
            Some(max) => match usize::try_from(max) {
                Ok(max @ 1..=BUCKETS_OF_PAGE_MAX) => max,
                _ => return Err(s3_error!(InvalidArgument, "max-buckets is 1 to 10,000.")),
            },
        };
        let token = input.continuation_token.as_deref().filter(|token| !token.is_empty());
        let options = ListOptions {
            prefix: layout::bucket(input.prefix.as_deref().unwrap_or("")),
            after: token.map(decode_token).transpose()?.as_deref().map(layout::bucket),
            limit,
            ..ListOptions::default()
        };
        let name_of = |name: &str| name.strip_prefix(layout::BUCKETS).unwrap_or(name).to_owned();
        let mut buckets = Vec::new();
        let list = |options| self.files.list(options).map_err(failed);
        let next = in_slices(SLICE_ENTRIES, list, options, |entry| {
            if let ListEntry::File(stat) = entry {
                let name = Some(name_of(&stat.name));
                let creation_date = Some(timestamp(stat.written_at_ms));
                buckets.push(Bucket { name, creation_date, ..Bucket::default() });
            }
            Ok::<_, S3Error>(true)
        })?;
        Ok(ListBucketsOutput {
            buckets: Some(buckets),
            continuation_token: next.map(|name| encode_token(&name_of(&name))),
            owner: Some(owner()),
            prefix: input.prefix.clone(),
        })
    }

    pub(crate) fn delete_bucket(&self, bucket: &str) -> S3Result<()> {
        let mut ended = Vec::new();
        let hold = || {
            let gate = self.gate.write();
            self.need_bucket(bucket)?;
            let first =
                ListOptions { prefix: layout::objects(bucket), limit: 1, ..ListOptions::default() };
            if !self.files.list(first).map_err(failed)?.entries.is_empty() {
                return Err(s3_error!(
                    BucketNotEmpty,
                    "The bucket you tried to delete is not empty."
                ));
            }
            ended = self.end_upload_notes(bucket)?;
            Ok(gate)
        };
        let name = layout::bucket(bucket);
        self.files.unlink_holding(&name, UnlinkOptions::default(), hold).map_err(failed)??;
        // Only their parts: there may be a bucket of that name again. What a kill leaves of them, the
        // sweeper takes.
        ended.iter().try_for_each(|upload| self.unlink_parts(bucket, upload))
    }

    /// Takes the notes of a bucket's uploads away before the bucket, as none may be left of one that is gone;
    /// answers which they were. What syncs that the bucket is gone syncs this.
    fn end_upload_notes(&self, bucket: &str) -> S3Result<Vec<String>> {
        let uploads = layout::uploads(bucket);
        let mut ended = Vec::new();
        self.each(&uploads, None, |entry| {
            self.files.unlink(entry.name(), UNTOLD).map_err(failed)?;
            ended.push(entry.name()[uploads.len()..].to_owned());
            Ok(())
        })?;
        Ok(ended)
    }
}
