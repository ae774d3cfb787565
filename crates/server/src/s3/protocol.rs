//! What S3 asks, each handed to the shelf. What isn't here answers 501.

use std::sync::Arc;

use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};

use super::buckets::owner;
use super::checks::refuse_unknown_checksums;
use super::failure::panicked;
use super::objects::refuse_unknown;
use super::shelf::Shelf;
use super::taken::Told;
use crate::admission::Share;

/// What a request counts as, which is in its extensions.
#[derive(Clone)]
pub(super) struct Counted {
    pub(super) in_flight: Arc<Share>,
    pub(super) told: Arc<Told>,
}

impl Counted {
    /// The request in flight, and its memory, for as long as this is held.
    fn hold(&self) -> (Arc<Share>, Option<Share>) {
        (self.in_flight.clone(), self.told.memory())
    }
}

/// Answers with what the shelf does on the pool.
macro_rules! on_pool {
    ($shelf:expr, $work:expr) => {
        $shelf.run($work).await.map(S3Response::new)
    };
}

fn private() -> (Option<Grants>, Option<Owner>) {
    let grantee = Grantee {
        display_name: owner().display_name,
        email_address: None,
        id: owner().id,
        type_: Type::from_static(Type::CANONICAL_USER),
        uri: None,
    };
    let permission = Some(Permission::from_static(Permission::FULL_CONTROL));
    (Some(vec![Grant { grantee: Some(grantee), permission }]), Some(owner()))
}

#[async_trait::async_trait]
impl S3 for Shelf {
    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        on_pool!(self, move |shelf| {
            refuse_unknown(&request.headers)?;
            shelf.create_bucket(&request.input)?;
            let location = Some(format!("/{}", request.input.bucket));
            Ok(CreateBucketOutput { location })
        })
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        on_pool!(self, move |shelf| {
            shelf.need_bucket(&request.input.bucket)?;
            Ok(HeadBucketOutput::default())
        })
    }

    async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        on_pool!(self, move |shelf| Shelf::list_buckets(shelf, &request.input))
    }

    async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        on_pool!(self, move |shelf| {
            shelf.delete_bucket(&request.input.bucket)?;
            Ok(DeleteBucketOutput::default())
        })
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        on_pool!(self, move |shelf| {
            shelf.need_bucket(&request.input.bucket)?;
            Ok(GetBucketLocationOutput::default())
        })
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        on_pool!(self, move |shelf| {
            shelf.need_bucket(&request.input.bucket)?;
            Ok(GetBucketVersioningOutput::default())
        })
    }

    async fn get_bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        on_pool!(self, move |shelf| {
            shelf.need_bucket(&request.input.bucket)?;
            let (grants, owner) = private();
            Ok(GetBucketAclOutput { grants, owner })
        })
    }

    async fn get_object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        on_pool!(self, move |shelf| {
            shelf.need_object(&request.input.bucket, &request.input.key)?;
            let (grants, owner) = private();
            Ok(GetObjectAclOutput { grants, owner, ..GetObjectAclOutput::default() })
        })
    }

    async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        on_pool!(self, move |shelf| {
            shelf.need_object(&request.input.bucket, &request.input.key)?;
            Ok(GetObjectTaggingOutput::default())
        })
    }

    async fn put_bucket_lifecycle_configuration(
        &self,
        request: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
        on_pool!(self, move |shelf| {
            let input = request.input;
            shelf.set_lifecycle(&input.bucket, input.lifecycle_configuration)?;
            Ok(PutBucketLifecycleConfigurationOutput::default())
        })
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        on_pool!(self, move |shelf| shelf.lifecycle(&request.input.bucket))
    }

    async fn delete_bucket_lifecycle(
        &self,
        request: S3Request<DeleteBucketLifecycleInput>,
    ) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
        on_pool!(self, move |shelf| {
            shelf.delete_lifecycle(&request.input.bucket)?;
            Ok(DeleteBucketLifecycleOutput::default())
        })
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let shelf = self.for_client(&request.extensions);
        Shelf::put_object(&shelf, request).await.map(S3Response::new)
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        Shelf::get_object(self, request).await.map(S3Response::new)
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        on_pool!(self, move |shelf| shelf.head_object(&request))
    }

    async fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        on_pool!(self, move |shelf| {
            let input = request.input;
            super::objects::check_version(input.version_id.as_deref())?;
            let object = shelf.need_object(&input.bucket, &input.key)?;
            // They come as one header with commas as well as one by one.
            let named = || input.object_attributes.iter().flat_map(|one| one.as_str().split(','));
            let asks = |name: &str| named().any(|one| one.trim() == name);
            let saved = object.meta.checksum.as_ref().filter(|_| asks("Checksum"));
            let mut checksum =
                Checksum { checksum_type: saved.map(|saved| saved.kind()), ..Checksum::default() };
            super::checks::show_checksum!(checksum, saved);
            let class = StorageClass::from_static(StorageClass::STANDARD);
            Ok(GetObjectAttributesOutput {
                e_tag: asks("ETag").then(|| object.tag()),
                object_size: asks("ObjectSize").then(|| object.size()),
                storage_class: asks("StorageClass").then_some(class),
                checksum: saved.is_some().then_some(checksum),
                last_modified: Some(object.last_modified()),
                ..GetObjectAttributesOutput::default()
            })
        })
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        on_pool!(self, move |shelf| shelf.copy_object(request))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        on_pool!(self, move |shelf| {
            Shelf::delete_object(shelf, &request.input)?;
            Ok(DeleteObjectOutput::default())
        })
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        on_pool!(self, move |shelf| Shelf::delete_objects(shelf, request.input))
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let client = self.for_client(&request.extensions);
        client.run(move |shelf| Shelf::list_objects(shelf, &request.input)).await
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let client = self.for_client(&request.extensions);
        client.run(move |shelf| Shelf::list_objects_v2(shelf, &request.input)).await
    }

    async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let client = self.for_client(&request.extensions);
        client.run(move |shelf| Shelf::list_object_versions(shelf, &request.input)).await
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        on_pool!(self, move |shelf| shelf.create_upload(request))
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let shelf = self.for_client(&request.extensions);
        Shelf::upload_part(&shelf, request).await.map(S3Response::new)
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        Shelf::upload_part_copy(self, request.input).await.map(S3Response::new)
    }

    async fn list_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let client = self.for_client(&request.extensions);
        client.run(move |shelf| Shelf::list_parts(shelf, &request.input)).await
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let client = self.for_client(&request.extensions);
        client.run(move |shelf| shelf.list_uploads(&request.input)).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        refuse_unknown_checksums(&request.headers)?;
        let S3Request { input, extensions, .. } = request;
        let completion = self.run(move |shelf| shelf.prepare(input)).await?;
        if !completion.takes_long() {
            return self.complete_alone(completion).await.map(S3Response::new);
        }
        // The answer begins at once and blanks follow, so that no client gives up, though it may have to wait
        // for its turn; an error then comes in the body, as with S3. A client that goes away ends only the
        // answer: what is done for it counts until it is done.
        let shelf = self.clone();
        let held = extensions.get().map(Counted::hold);
        let task = tokio::spawn(async move {
            let _held = held;
            shelf.complete_alone(completion).await
        });
        let done = async move { task.await.map_err(panicked)? };
        let output = CompleteMultipartUploadOutput {
            future: Some(Box::pin(done)),
            ..CompleteMultipartUploadOutput::default()
        };
        Ok(S3Response::new(output))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        on_pool!(self, move |shelf| {
            shelf.abort_upload(&request.input)?;
            Ok(AbortMultipartUploadOutput::default())
        })
    }
}
