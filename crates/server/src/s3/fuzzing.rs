//! What the fuzz targets call of S3: what is kept as JSON, and what this server reads by itself.

use bytes::Bytes;
use s3s::dto::ETagCondition;
use tallybook_files::Stat;

use super::conditions::{ReadConditions, for_write};
use super::listing::{decode_token, encode, encode_token};
use super::meta::{self, BucketMeta, Object, ObjectMeta, Rule};
use super::objects::{check_key, content_encoding, expires};
use super::receive::decode_md5;

/// The attributes of an object's or an upload's file, which was changed at this time.
pub fn object(attributes: &[u8], changed_at_ms: u64, tag: &str) -> bool {
    let stat = Stat {
        name: "object".into(),
        version: 7,
        size: 1,
        blake3: [1; 32],
        md5: Some([2; 16]),
        written_at_ms: changed_at_ms,
        changed_at_ms,
        attributes: Bytes::copy_from_slice(attributes),
    };
    let Ok(object) = Object::of(stat) else {
        return false;
    };
    let again: ObjectMeta =
        meta::decode(&meta::encode(&object.meta)).expect("what is kept is read");
    assert_eq!(again, object.meta);
    object.last_modified();
    object.tag();
    expires(&object.meta);
    object.meta.checksum.iter().for_each(|saved| drop(saved.kind()));
    check_conditions(&object, tag);
    true
}

fn check_conditions(object: &Object, tag: &str) {
    let conditions = |tag: &str| tag.parse::<s3s::dto::ETag>().ok().map(ETagCondition::ETag);
    let own = Some(ETagCondition::ETag(object.tag()));
    let read = ReadConditions { if_match: own.clone(), ..ReadConditions::default() };
    assert!(read.check(object).is_ok());
    let read = ReadConditions { if_none_match: own.clone(), ..ReadConditions::default() };
    assert!(read.check(object).is_err());
    let held = for_write(own.as_ref(), None, || Ok(Some(object.clone())));
    assert!(held.is_ok_and(|condition| condition.is_some()));
    let since = Some(object.last_modified());
    let read = ReadConditions {
        if_match: conditions(tag),
        if_modified_since: since.clone(),
        if_unmodified_since: since,
        ..ReadConditions::default()
    };
    // A time is compared by the second, and one that can't be shown is shown as the last that can.
    let _ = read.check(object);
}

/// The attributes of a bucket's file, and what its rules say of an object at these times.
pub fn bucket(attributes: &[u8], changed_at_ms: u64, now_ms: u64) -> bool {
    let Ok(bucket) = meta::decode::<BucketMeta>(attributes) else {
        return false;
    };
    let again: BucketMeta = meta::decode(&meta::encode(&bucket)).expect("what is kept is read");
    assert_eq!(again, bucket);
    let stat = |changed_at_ms| Stat {
        name: "object".into(),
        version: 7,
        size: 100,
        blake3: [1; 32],
        md5: None,
        written_at_ms: changed_at_ms,
        changed_at_ms,
        attributes: Bytes::new(),
    };
    for rule in &bucket.lifecycle {
        let is_due = |now_ms| rule.expires(&rule.prefix, &stat(changed_at_ms), now_ms);
        // What is due stays due.
        assert!(!is_due(now_ms) || is_due(u64::MAX));
        check_shown(rule);
    }
    true
}

/// A rule as S3 shows it says the same when it is set again, as far as S3 can say it.
fn check_shown(rule: &Rule) {
    let Ok(once) = Rule::of(rule.show()) else { return };
    let twice = Rule::of(once.show()).expect("a rule that was taken is taken again");
    assert_eq!(twice, once);
    assert_eq!((&once.prefix, once.is_enabled), (&rule.prefix, rule.is_enabled));
}

/// What stands in single headers and parameters.
pub fn values(text: &str) -> bool {
    let token = decode_token(text);
    if let Ok(key) = &token {
        assert_eq!(decode_token(&encode_token(key)).ok().as_ref(), Some(key));
        assert!(encode(key).is_ascii());
    }
    let md5 = decode_md5(text);
    if check_key(text).is_ok() {
        assert!((1..=1024).contains(&text.len()));
    }
    if let Some(kept) = content_encoding(Some(text.to_owned())) {
        assert!(!kept.split(',').any(|one| one.trim() == "aws-chunked"));
    }
    token.is_ok() || md5.is_ok()
}
