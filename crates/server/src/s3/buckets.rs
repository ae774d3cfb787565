//! Buckets: made, listed, taken away when empty.

use s3s::dto::{Bucket, CreateBucketInput, ListBucketsOutput, Owner};
use s3s::{S3Result, s3_error};
use tallybook_files::{
    Condition, Durability, Error, ListEntry, ListOptions, UnlinkOptions, WriteOptions,
};

use super::failure::failed;
use super::layout;
use super::meta::{BucketMeta, encode, timestamp};
use super::shelf::Shelf;

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

    pub(crate) fn list_buckets(&self) -> S3Result<ListBucketsOutput> {
        let mut buckets = Vec::new();
        self.each(layout::BUCKETS, None, |entry| {
            if let ListEntry::File(stat) = entry {
                let name = stat.name.strip_prefix(layout::BUCKETS).map(str::to_owned);
                let creation_date = Some(timestamp(stat.written_at_ms));
                buckets.push(Bucket { name, creation_date, ..Bucket::default() });
            }
            Ok(())
        })?;
        Ok(ListBucketsOutput {
            buckets: Some(buckets),
            owner: Some(owner()),
            ..ListBucketsOutput::default()
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
        ended.iter().try_for_each(|upload| self.unlink_all(&layout::parts(bucket, upload)))
    }

    /// Takes the notes of a bucket's uploads away before the bucket, as none may be left of one that is gone;
    /// answers which they were. What syncs that the bucket is gone syncs this.
    fn end_upload_notes(&self, bucket: &str) -> S3Result<Vec<String>> {
        let uploads = layout::uploads(bucket);
        let mut ended = Vec::new();
        self.each(&uploads, None, |entry| {
            let durability = Some(Durability::Os);
            let options = UnlinkOptions { durability, ..UnlinkOptions::default() };
            self.files.unlink(entry.name(), options).map_err(failed)?;
            ended.push(entry.name()[uploads.len()..].to_owned());
            Ok(())
        })?;
        Ok(ended)
    }
}
