//! The names of files that hold S3's things. On disk: never rename.
//!
//! ```text
//! \0s3/b/BUCKET                a bucket: an empty file whose attributes are its settings
//! \0s3/o/BUCKET/KEY            an object
//! \0s3/u/BUCKET/UPLOAD         an upload in parts: an empty file whose attributes are the object's
//! \0s3/p/BUCKET/UPLOAD/NNNNN   a part of it
//! ```
//!
//! The NUL makes them reserved: nobody comes to them by another door. A bucket's name has no slash and
//! at most 63 bytes, so the longest key fits.

/// Before the name of each bucket.
pub(crate) const BUCKETS: &str = "\0s3/b/";

pub(crate) fn bucket(bucket: &str) -> String {
    format!("{BUCKETS}{bucket}")
}

/// What all objects of a bucket start with.
pub(crate) fn objects(bucket: &str) -> String {
    format!("\0s3/o/{bucket}/")
}

pub(crate) fn object(bucket: &str, key: &str) -> String {
    format!("\0s3/o/{bucket}/{key}")
}

/// What all uploads start with.
pub(crate) const UPLOADS: &str = "\0s3/u/";

/// What all uploads of a bucket start with.
pub(crate) fn uploads(bucket: &str) -> String {
    format!("{UPLOADS}{bucket}/")
}

pub(crate) fn upload(bucket: &str, upload: &str) -> String {
    format!("{UPLOADS}{bucket}/{upload}")
}

/// What all parts start with.
pub(crate) const PARTS: &str = "\0s3/p/";

/// What all parts of an upload start with.
pub(crate) fn parts(bucket: &str, upload: &str) -> String {
    format!("{PARTS}{bucket}/{upload}/")
}

/// Part numbers sort as the names do.
pub(crate) fn part(bucket: &str, upload: &str, number: u16) -> String {
    format!("{PARTS}{bucket}/{upload}/{number:05}")
}

#[cfg(test)]
mod tests {
    use tallybook_files::placement::{RESERVED_NAME_BYTES_MAX, is_reserved};

    use super::*;

    #[test]
    fn longest_names_fit_and_all_are_reserved() {
        let (long, id) = ("b".repeat(63), "f".repeat(32));
        for name in [
            bucket(&long),
            object(&long, &"k".repeat(1024)),
            upload(&long, &id),
            part(&long, &id, 10_000),
        ] {
            assert!(is_reserved(&name) && name.len() <= RESERVED_NAME_BYTES_MAX);
        }
    }
}
