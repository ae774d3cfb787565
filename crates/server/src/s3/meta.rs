//! What is kept of a bucket, an object, an upload or a part in the attributes of its file, as JSON.
//!
//! Fields may be added, as those that aren't known are passed over.

use std::collections::BTreeMap;

use bytes::Bytes;
use s3s::S3Result;
use s3s::dto::{ChecksumType, ETag, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tallybook_files::{Stat, hex};

use super::failure::damaged;

/// Most bytes of user metadata, names and values together, as S3 has it.
pub(crate) const USER_METADATA_BYTES_MAX: usize = 2 << 10;

/// The last millisecond that S3 can write down: the end of the year 9999.
const SHOWN_MS_MAX: u64 = 253_402_300_799_999;

/// An object, or an upload of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ObjectMeta {
    /// Only of an upload.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_disposition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache_control: Option<String>,
    /// Seconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<i64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) user: BTreeMap<String, String>,
    /// Where it isn't the MD5: that of an object made of parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checksum: Option<SavedChecksum>,
    /// The upload that an object was made of; of a copy, none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upload: Option<String>,
}

/// A checksum that came with the bytes and was right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedChecksum {
    /// `CRC32`, `CRC32C`, `CRC64NVME`, `SHA1` or `SHA256`.
    pub(crate) algorithm: String,
    /// Base64; of an upload that has none yet, empty.
    pub(crate) value: String,
    /// Of the parts' checksums instead of the bytes.
    #[serde(default)]
    pub(crate) is_composite: bool,
}

impl SavedChecksum {
    pub(crate) fn kind(&self) -> ChecksumType {
        let name =
            if self.is_composite { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT };
        ChecksumType::from_static(name)
    }
}

/// The settings of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BucketMeta {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) lifecycle: Vec<Rule>,
}

/// A rule of a bucket's lifecycle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) is_enabled: bool,
    pub(crate) prefix: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) larger_than: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) smaller_than: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expire_days: Option<u32>,
    /// Milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expire_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) abort_upload_days: Option<u32>,
}

/// The attributes that say this.
pub(crate) fn encode(meta: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(meta).expect("the fields are text and numbers"))
}

/// What the attributes say.
pub(crate) fn decode<M: DeserializeOwned + Default>(attributes: &[u8]) -> S3Result<M> {
    if attributes.is_empty() {
        return Ok(M::default());
    }
    serde_json::from_slice(attributes).map_err(|_| damaged())
}

/// An object: its file and what S3 keeps of it.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) stat: Stat,
    pub(crate) meta: ObjectMeta,
}

impl Object {
    pub(crate) fn of(stat: Stat) -> S3Result<Object> {
        let meta = decode(&stat.attributes)?;
        Ok(Object { stat, meta })
    }

    /// What S3 has in the entity tag.
    pub(crate) fn etag(&self) -> String {
        match (&self.meta.etag, &self.stat.md5) {
            (Some(etag), _) => etag.clone(),
            (None, Some(md5)) => hex(md5),
            // A file that got here without an MD5; its other hash will do to tell versions apart.
            (None, None) => hex(&self.stat.blake3[..16]),
        }
    }

    pub(crate) fn tag(&self) -> ETag {
        ETag::Strong(self.etag())
    }

    pub(crate) fn last_modified(&self) -> Timestamp {
        timestamp(self.stat.changed_at_ms)
    }

    pub(crate) fn size(&self) -> i64 {
        i64::try_from(self.stat.size).unwrap_or(i64::MAX)
    }
}

/// A time in milliseconds as S3 has it; the last there is for any beyond.
pub(crate) fn timestamp(at_ms: u64) -> Timestamp {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(at_ms.min(SHOWN_MS_MAX));
    Timestamp::from(at)
}

/// Milliseconds since the Unix epoch.
pub(crate) fn millis(at: &Timestamp) -> u64 {
    let at = time::OffsetDateTime::from(at.clone());
    u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the fuzz target `s3_object`: a time beyond the year 9999 in a file's record or attributes
    /// panicked in the listing that showed it. Now it is shown as the last time there is.
    #[test]
    fn time_beyond_what_s3_can_write_is_shown_as_the_last() {
        for at_ms in [SHOWN_MS_MAX, SHOWN_MS_MAX + 1, u64::MAX] {
            assert_eq!(millis(&timestamp(at_ms)), SHOWN_MS_MAX);
        }
        assert_eq!(millis(&timestamp(1_700_000_000_123)), 1_700_000_000_123);
    }
}
