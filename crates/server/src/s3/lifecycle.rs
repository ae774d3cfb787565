//! Expiry by prefix, and the sweep that carries it out.
//!
//! A sweep unlinks objects that are due by their bucket's rules, ends uploads that are stale unless they are being
//! completed, and takes parts whose upload is gone. An object is due at the first midnight (UTC) after so many days,
//! as in S3. What can't be read or taken is left, and so is what is listed behind it where the listing fails there;
//! all else is swept.
//!
//! Rules that were replaced, or whose bucket was, or that can't be asked for any more, take nothing more: what goes by
//! them goes under the gate. By those that came meanwhile the next sweep goes.

use std::cell::Cell;
use std::fmt;
use std::ops::ControlFlow;

use s3s::dto::{
    AbortIncompleteMultipartUpload, BucketLifecycleConfiguration, ExpirationStatus,
    GetBucketLifecycleConfigurationOutput, LifecycleExpiration, LifecycleRule,
    LifecycleRuleAndOperator, LifecycleRuleFilter,
};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use tallybook_files::options::ATTRIBUTES_BYTES_MAX;
use tallybook_files::{Condition, Error, ListEntry, Stat, UnlinkOptions};

use super::failure::failed;
use super::layout;
use super::meta::{BucketMeta, ObjectMeta, Rule, decode, encode, millis, timestamp};
use super::shelf::{Shelf, UNTOLD};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// What a visit answers for the next to come.
const ON: ControlFlow<()> = ControlFlow::Continue(());

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    pub(crate) objects: u64,
    pub(crate) uploads: u64,
    pub(crate) parts: u64,
}

impl Rule {
    pub(super) fn of(rule: LifecycleRule) -> S3Result<Rule> {
        let marker = rule.expiration.as_ref().and_then(|one| one.expired_object_delete_marker);
        let unknown = rule.transitions.is_some()
            || rule.noncurrent_version_expiration.is_some()
            || rule.noncurrent_version_transitions.is_some()
            || marker == Some(true);
        check_filter(&rule)?;
        let filter = rule.filter.unwrap_or_default();
        let and = filter.and.unwrap_or_default();
        if unknown || filter.tag.is_some() || and.tags.is_some_and(|tags| !tags.is_empty()) {
            return Err(s3_error!(
                NotImplemented,
                "A rule may expire objects by prefix, size and age, and end uploads by age."
            ));
        }
        // A bound that can't be read is none, and the rule would expire what it was to keep.
        let size = |bytes: Option<i64>| {
            let negative = |_| s3_error!(InvalidArgument, "'ObjectSize' must not be negative");
            bytes.map(u64::try_from).transpose().map_err(negative)
        };
        let is_enabled = match rule.status.as_str() {
            ExpirationStatus::ENABLED => true,
            ExpirationStatus::DISABLED => false,
            _ => return Err(s3_error!(MalformedXML, "'Status' must be Enabled or Disabled")),
        };
        let days = |days: Option<i32>| match days {
            None => Ok(None),
            Some(days) => match u32::try_from(days) {
                Ok(days) if days > 0 => Ok(Some(days)),
                _ => Err(s3_error!(InvalidArgument, "'Days' must be a positive integer")),
            },
        };
        let (expiration, abort) = (rule.expiration, rule.abort_incomplete_multipart_upload);
        check_actions(expiration.as_ref(), abort.as_ref())?;
        let expiration = expiration.unwrap_or_default();
        let made = Rule {
            id: rule.id.unwrap_or_default(),
            is_enabled,
            prefix: filter.prefix.or(and.prefix).or(rule.prefix).unwrap_or_default(),
            larger_than: size(filter.object_size_greater_than.or(and.object_size_greater_than))?,
            smaller_than: size(filter.object_size_less_than.or(and.object_size_less_than))?,
            expire_days: days(expiration.days)?,
            expire_at_ms: expiration.date.as_ref().map(millis),
            abort_upload_days: days(abort.and_then(|abort| abort.days_after_initiation))?,
        };
        let is_sized = made.larger_than.is_some() || made.smaller_than.is_some();
        if is_sized && made.abort_upload_days.is_some() {
            return Err(s3_error!(
                InvalidRequest,
                "AbortIncompleteMultipartUpload cannot be specified with ObjectSize: an upload has none."
            ));
        }
        Ok(made)
    }

    pub(super) fn show(&self) -> LifecycleRule {
        let days = |days: Option<u32>| days.and_then(|days| i32::try_from(days).ok());
        let size = |bytes: Option<u64>| bytes.and_then(|bytes| i64::try_from(bytes).ok());
        let expires = self.expire_days.is_some() || self.expire_at_ms.is_some();
        let prefix = Some(self.prefix.clone());
        let filter = match (self.larger_than, self.smaller_than) {
            (None, None) => LifecycleRuleFilter { prefix, ..LifecycleRuleFilter::default() },
            (larger_than, smaller_than) => LifecycleRuleFilter {
                and: Some(LifecycleRuleAndOperator {
                    prefix,
                    object_size_greater_than: size(larger_than),
                    object_size_less_than: size(smaller_than),
                    ..LifecycleRuleAndOperator::default()
                }),
                ..LifecycleRuleFilter::default()
            },
        };
        let status = match self.is_enabled {
            true => ExpirationStatus::ENABLED,
            false => ExpirationStatus::DISABLED,
        };
        LifecycleRule {
            id: Some(self.id.clone()),
            status: ExpirationStatus::from_static(status),
            filter: Some(filter),
            expiration: expires.then(|| LifecycleExpiration {
                days: days(self.expire_days),
                date: self.expire_at_ms.map(timestamp),
                ..LifecycleExpiration::default()
            }),
            abort_incomplete_multipart_upload: self.abort_upload_days.map(|abort| {
                AbortIncompleteMultipartUpload { days_after_initiation: days(Some(abort)) }
            }),
            noncurrent_version_expiration: None,
            noncurrent_version_transitions: None,
            prefix: None,
            transitions: None,
        }
    }

    pub(super) fn expires(&self, key: &str, stat: &Stat, now_ms: u64) -> bool {
        let by_age = |days: u32| now_ms >= due_ms(stat.changed_at_ms, days);
        self.is_enabled
            && key.starts_with(&self.prefix)
            && self.larger_than.is_none_or(|bytes| stat.size > bytes)
            && self.smaller_than.is_none_or(|bytes| stat.size < bytes)
            && (self.expire_days.is_some_and(by_age)
                || self.expire_at_ms.is_some_and(|at_ms| now_ms >= at_ms))
    }
}

/// Refuses a rule that doesn't say in one place what it is for: of two, one would be passed over.
fn check_filter(rule: &LifecycleRule) -> S3Result<()> {
    let malformed = |what: &'static str| Err(s3_error!(MalformedXML, "{what}"));
    let Some(filter) = &rule.filter else {
        return match rule.prefix {
            Some(_) => Ok(()),
            None => malformed("A rule has a Filter or a Prefix."),
        };
    };
    let members = [
        filter.and.is_some(),
        filter.prefix.is_some(),
        filter.tag.is_some(),
        filter.object_size_greater_than.is_some(),
        filter.object_size_less_than.is_some(),
    ];
    if filter.and.as_ref().is_some_and(|and| *and == LifecycleRuleAndOperator::default()) {
        return malformed("An And has members.");
    }
    match members.into_iter().filter(|is_there| *is_there).count() {
        2.. => malformed("A Filter has one member; several are in an And."),
        1 if rule.prefix.is_some() => malformed("A rule has a Filter or a Prefix, not both."),
        _ => Ok(()),
    }
}

/// Refuses a rule of which an action doesn't say when, or says so twice, and one without any.
fn check_actions(
    expiration: Option<&LifecycleExpiration>,
    abort: Option<&AbortIncompleteMultipartUpload>,
) -> S3Result<()> {
    if expiration.is_none() && abort.is_none() {
        return Err(s3_error!(MalformedXML, "A rule must do something."));
    }
    if expiration.is_some_and(|one| one.days.is_some() == one.date.is_some()) {
        return Err(s3_error!(MalformedXML, "An Expiration has one of Days and Date."));
    }
    if abort.is_some_and(|abort| abort.days_after_initiation.is_none()) {
        let what = "An AbortIncompleteMultipartUpload has DaysAfterInitiation.";
        return Err(s3_error!(MalformedXML, "{what}"));
    }
    Ok(())
}

/// The first midnight after so many days.
fn due_ms(since_ms: u64, days: u32) -> u64 {
    since_ms.saturating_add(u64::from(days) * DAY_MS).div_ceil(DAY_MS).saturating_mul(DAY_MS)
}

impl Shelf {
    /// Replaces the rules of a bucket. No rules are none to replace them with: only `delete_lifecycle` takes
    /// them away.
    pub(crate) fn set_lifecycle(
        &self,
        bucket: &str,
        configuration: Option<BucketLifecycleConfiguration>,
    ) -> S3Result<()> {
        let rules = configuration.map(|configuration| configuration.rules).unwrap_or_default();
        if rules.is_empty() {
            return Err(s3_error!(MalformedXML, "A configuration has at least one rule."));
        }
        let rules: Vec<Rule> = rules.into_iter().map(Rule::of).collect::<S3Result<_>>()?;
        let bytes = encode(&BucketMeta { lifecycle: rules.clone() }).len();
        if bytes > ATTRIBUTES_BYTES_MAX {
            return Err(s3_error!(
                InvalidRequest,
                "The rules of a bucket have at most {ATTRIBUTES_BYTES_MAX} bytes as they are kept, \
                 and these {bytes}."
            ));
        }
        self.set_bucket(bucket, |meta| meta.lifecycle.clone_from(&rules))
    }

    pub(crate) fn delete_lifecycle(&self, bucket: &str) -> S3Result<()> {
        self.set_bucket(bucket, |meta| meta.lifecycle.clear())
    }

    pub(crate) fn lifecycle(
        &self,
        bucket: &str,
    ) -> S3Result<GetBucketLifecycleConfigurationOutput> {
        let (_, meta) = self.need_bucket(bucket)?;
        if meta.lifecycle.is_empty() {
            return Err(s3_error!(
                NoSuchLifecycleConfiguration,
                "The lifecycle configuration does not exist"
            ));
        }
        Ok(GetBucketLifecycleConfigurationOutput {
            rules: Some(meta.lifecycle.iter().map(Rule::show).collect()),
            ..GetBucketLifecycleConfigurationOutput::default()
        })
    }

    /// Sweeps every bucket as of `now_ms`. Uploads older than `upload_days_max` are stale in any case.
    /// `is_stopped` is asked before every entry that is looked at and every upload that is ended; once it says
    /// so, the sweep is over and says what it had done. The error is that of the first thing that was left.
    pub(crate) fn sweep(
        &self,
        now_ms: u64,
        upload_days_max: u32,
        is_stopped: &dyn Fn() -> bool,
    ) -> S3Result<Swept> {
        let swept = Swept::default();
        let mut sweep =
            Sweep { shelf: self, now_ms, upload_days_max, is_stopped, swept, failure: None };
        // Whether it was stopped, who stopped it knows.
        let _ = sweep.run()?;
        sweep.failure.map_or(Ok(sweep.swept), Err)
    }
}

/// A bucket, and its rules as they were when it had this version.
struct Ruled {
    name: String,
    version: u64,
    rules: Vec<Rule>,
    /// It has others by now, and will never have these again; or which it has can't be read.
    is_over: Cell<bool>,
}

/// A sweep under way. Its methods answer `Break` when it is to stop.
struct Sweep<'a> {
    shelf: &'a Shelf,
    now_ms: u64,
    upload_days_max: u32,
    is_stopped: &'a dyn Fn() -> bool,
    swept: Swept,
    /// Of the first thing that was left.
    failure: Option<S3Error>,
}

impl Sweep<'_> {
    fn run(&mut self) -> S3Result<ControlFlow<()>> {
        let mut buckets = Vec::new();
        let listed = self.shelf.each(layout::BUCKETS, None, |entry| {
            if let ListEntry::File(stat) = entry {
                let name = stat.name[layout::BUCKETS.len()..].to_owned();
                let what = format_args!("the objects of bucket {name}");
                // Its uploads end nevertheless.
                let meta = self.or_left(decode(&stat.attributes), BucketMeta::default(), what)?;
                let (version, rules) = (stat.version, meta.lifecycle);
                buckets.push(Ruled { name, version, rules, is_over: Cell::new(false) });
            }
            Ok(())
        });
        let last = buckets.last().map_or("", |bucket| &bucket.name);
        self.or_left(listed, (), format_args!("the buckets behind {last:?}"))?;
        for bucket in &buckets {
            if self.sweep_objects(bucket)?.is_break() || self.sweep_uploads(bucket)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        self.sweep_parts()
    }

    /// What was done, or `otherwise` where that failed by itself, as by damage: then this is left, which the log tells
    /// without a key. What the store refuses now, as when it is full, it refuses of all.
    fn or_left<T>(
        &mut self,
        done: S3Result<T>,
        otherwise: T,
        what: fmt::Arguments<'_>,
    ) -> S3Result<T> {
        match done {
            Err(error) if *error.code() == S3ErrorCode::InternalError => {
                tracing::error!(%error, "a sweep of s3 left {what}");
                self.failure.get_or_insert(error);
                Ok(otherwise)
            }
            done => done,
        }
    }

    /// Fails where the bucket isn't known to have the rules that were read: with `None` where it has others. Requires:
    /// the gate is held.
    fn check_rules(&self, bucket: &Ruled) -> Result<(), Option<S3Error>> {
        bucket.is_over.set(true);
        let stat = self.shelf.files.stat(&layout::bucket(&bucket.name)).map_err(failed)?;
        bucket.is_over.set(stat.is_none_or(|stat| stat.version != bucket.version));
        if bucket.is_over.get() { Err(None) } else { Ok(()) }
    }

    /// Unlinks what is due, unless it or the rules are others by now; whether it did. Nobody is told of it, so it
    /// waits for no sync: what a power loss brings back is due again.
    fn unlink<G>(
        &self,
        name: &str,
        condition: Option<Condition>,
        hold: impl FnOnce() -> Result<G, Option<S3Error>>,
    ) -> S3Result<bool> {
        let options = UnlinkOptions { condition, ..UNTOLD };
        match self.shelf.files.unlink_holding(name, options, hold) {
            Ok(Ok(unlinked)) => Ok(unlinked),
            Ok(Err(None)) | Err(Error::Conflict { .. }) => Ok(false),
            Ok(Err(Some(error))) => Err(error),
            Err(error) => Err(failed(error)),
        }
    }

    /// Visits the files with this prefix, which are `what`, until the sweep is to stop or a visit breaks off. One that
    /// can't be visited is left, and so are those from where they can't be listed on.
    fn each_file(
        &mut self,
        prefix: &str,
        what: fmt::Arguments<'_>,
        mut visit: impl FnMut(&mut Self, Stat) -> S3Result<ControlFlow<()>>,
    ) -> S3Result<ControlFlow<()>> {
        let walked = self.shelf.each_until(prefix, None, |entry| {
            if (self.is_stopped)() {
                return Ok(ControlFlow::Break(()));
            }
            let ListEntry::File(stat) = entry else { return Ok(ON) };
            let visited = visit(self, stat);
            self.or_left(visited, ON, format_args!("one of the {what}"))
        });
        self.or_left(walked, ON, format_args!("{what} from some on"))
    }

    fn sweep_objects(&mut self, bucket: &Ruled) -> S3Result<ControlFlow<()>> {
        let base = layout::objects(&bucket.name);
        let expires = |rule: &&Rule| rule.expire_days.is_some() || rule.expire_at_ms.is_some();
        for rule in bucket.rules.iter().filter(|rule| rule.is_enabled).filter(expires) {
            let prefix = format!("{base}{}", rule.prefix);
            let what = format_args!("objects of bucket {}", bucket.name);
            let swept = self.each_file(&prefix, what, |sweep, stat| {
                if !rule.expires(&stat.name[base.len()..], &stat, sweep.now_ms) {
                    return Ok(ON);
                }
                let hold = || {
                    let gate = sweep.shelf.gate.read();
                    sweep.check_rules(bucket).map(|()| gate)
                };
                // What was put under the key since the listing stays.
                let condition = Some(Condition::Version(stat.version));
                let unlinked = sweep.unlink(&stat.name, condition, hold);
                if bucket.is_over.get() {
                    // All others are left as this one is, which is told once.
                    let what = format_args!("the objects of bucket {} from some on", bucket.name);
                    sweep.or_left(unlinked, false, what)?;
                    return Ok(ControlFlow::Break(()));
                }
                sweep.swept.objects += u64::from(unlinked?);
                Ok(ON)
            })?;
            if bucket.is_over.get() {
                break;
            }
            if swept.is_break() {
                return Ok(swept);
            }
        }
        Ok(ON)
    }

    fn sweep_uploads(&mut self, bucket: &Ruled) -> S3Result<ControlFlow<()>> {
        let base = layout::uploads(&bucket.name);
        let mut stale = Vec::new();
        let what = format_args!("uploads of bucket {}", bucket.name);
        let listed = self.each_file(&base, what, |sweep, stat| {
            let upload = &stat.name[base.len()..];
            let meta = decode::<ObjectMeta>(&stat.attributes).map(Some);
            let what = format_args!("upload {upload} of bucket {}, unless it is old", bucket.name);
            let meta = sweep.or_left(meta, None, what)?;
            let key = meta.as_ref().map(|meta| &*meta.key);
            let is_as_old_as = |days: u32| {
                sweep.now_ms >= stat.written_at_ms.saturating_add(u64::from(days) * DAY_MS)
            };
            let is_due_anyway = is_as_old_as(sweep.upload_days_max)
                || key.is_some_and(|key| sweep.shelf.is_made(&bucket.name, key, upload));
            let ends = |rule: &Rule| {
                rule.is_enabled
                    && key.is_some_and(|key| key.starts_with(&rule.prefix))
                    && rule.abort_upload_days.is_some_and(is_as_old_as)
            };
            if is_due_anyway || bucket.rules.iter().any(ends) {
                stale.push((upload.to_owned(), is_due_anyway));
            }
            Ok(ON)
        })?;
        if listed.is_break() {
            return Ok(listed);
        }
        for (upload, is_due_anyway) in stale {
            if (self.is_stopped)() {
                return Ok(ControlFlow::Break(()));
            }
            if bucket.is_over.get() && !is_due_anyway {
                continue;
            }
            let ended = self.end_stale(bucket, &upload, is_due_anyway);
            let what = format_args!("upload {upload} of bucket {}", bucket.name);
            if self.or_left(ended, ON, what)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ON)
    }

    fn end_stale(
        &mut self,
        bucket: &Ruled,
        upload: &str,
        is_due_anyway: bool,
    ) -> S3Result<ControlFlow<()>> {
        // Its parts are read while it is completed.
        let Some(_alone) = self.shelf.completing.try_alone(upload) else {
            return Ok(ON);
        };
        let hold = || {
            let gate = self.shelf.gate.write();
            if !is_due_anyway {
                self.check_rules(bucket)?;
            }
            Ok(gate)
        };
        if !self.unlink(&layout::upload(&bucket.name, upload), None, hold)? {
            return Ok(ON);
        }
        self.swept.uploads += 1;
        // What a stop leaves of the parts, the next sweep takes.
        let parts = layout::parts(&bucket.name, upload);
        let what = format_args!("parts of upload {upload} of bucket {}", bucket.name);
        self.each_file(&parts, what, |sweep, stat| sweep.shelf.unlink_part(&stat.name).map(|_| ON))
    }

    /// Takes parts whose upload is gone: what a kill left of one that was ended.
    fn sweep_parts(&mut self) -> S3Result<ControlFlow<()>> {
        let mut last: Option<(String, bool)> = None;
        self.each_file(layout::PARTS, format_args!("parts of uploads"), |sweep, stat| {
            let rest = &stat.name[layout::PARTS.len()..];
            let of = rest.rsplit_once('/').map_or(rest, |(of, _)| of).to_owned();
            let known =
                last.as_ref().filter(|(known, _)| *known == of).map(|(_, is_there)| *is_there);
            let is_there = match known {
                Some(is_there) => is_there,
                None => {
                    let (bucket, upload) = of.split_once('/').unwrap_or((&of, ""));
                    let note = layout::upload(bucket, upload);
                    let stat = sweep.shelf.files.stat(&note).map_err(failed);
                    let is_there = stat.map(|stat| stat.is_some());
                    let what = format_args!("parts of upload {upload} of bucket {bucket}");
                    sweep.or_left(is_there, true, what)?
                }
            };
            last = Some((of, is_there));
            if !is_there {
                sweep.swept.parts += u64::from(sweep.shelf.unlink_part(&stat.name)?);
            }
            Ok(ON)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tallybook::vfs::faulty::{Fault, OperationClass};
    use tallybook_files::{CopyOptions, WriteOptions};

    use super::*;

    fn keys(shelf: &Shelf, prefix: &str) -> Vec<String> {
        let mut keys = Vec::new();
        shelf
            .each(prefix, None, |entry| {
                keys.push(entry.name()[prefix.len()..].to_owned());
                Ok(())
            })
            .unwrap();
        keys
    }

    #[test]
    fn objects_are_due_at_the_midnight_after_their_days() {
        assert_eq!(due_ms(1, 1), 2 * DAY_MS);
        assert_eq!(due_ms(DAY_MS, 1), 2 * DAY_MS);
        assert_eq!(due_ms(DAY_MS + 1, 30), 32 * DAY_MS);
        // A time that no sound record has: never, instead of an overflow.
        assert_eq!(due_ms(u64::MAX, 1), u64::MAX);
    }

    /// What 1,000 rules take was too much for a bucket's file, and the answer was of attributes.
    #[test]
    fn rules_beyond_what_is_kept_of_a_bucket_are_refused_as_such() {
        let (_dir, shelf) = Shelf::with_bucket("b");
        let set = |count: usize, id: &str| {
            let rule = Rule { id: id.to_owned(), expire_days: Some(30), ..Rule::default() };
            let rules = vec![rule.show(); count];
            shelf.set_lifecycle("b", Some(BucketLifecycleConfiguration { rules }))
        };
        set(1000, "").unwrap();
        let refused = set(1000, "rule-0000").unwrap_err();
        assert_eq!(*refused.code(), S3ErrorCode::InvalidRequest);
        assert!(refused.message().unwrap().contains("rules"));
        set(600, &"i".repeat(36)).unwrap();
        assert_eq!(shelf.lifecycle("b").unwrap().rules.unwrap().len(), 600);
    }

    #[test]
    fn sweep_takes_what_is_due_and_nothing_else() {
        let (_dir, shelf) = Shelf::with_bucket("b");
        shelf
            .set_bucket("b", |meta| {
                let rule = |prefix: &str, days| Rule {
                    is_enabled: true,
                    prefix: prefix.into(),
                    expire_days: Some(days),
                    ..Rule::default()
                };
                meta.lifecycle = vec![
                    rule("tmp/", 1),
                    rule("logs/", 10),
                    Rule { is_enabled: false, ..rule("kept/", 1) },
                    Rule { larger_than: Some(2), ..rule("large/", 1) },
                    Rule {
                        is_enabled: true,
                        prefix: "quick/".into(),
                        abort_upload_days: Some(2),
                        ..Rule::default()
                    },
                ];
            })
            .unwrap();
        for key in ["tmp/a", "tmp", "logs/a", "kept/a", "large/no"] {
            shelf.files.write(&layout::object("b", key), b"x", WriteOptions::default()).unwrap();
        }
        let large = layout::object("b", "large/yes");
        shelf.files.write(&large, b"xxx", WriteOptions::default()).unwrap();
        let upload = |id: &str, key: &str| {
            let meta = ObjectMeta { key: key.into(), ..ObjectMeta::default() };
            let options = WriteOptions { attributes: encode(&meta), ..WriteOptions::default() };
            shelf.note(&layout::upload("b", id), options).unwrap();
            shelf.note(&layout::part("b", id, 1), WriteOptions::default()).unwrap();
        };
        upload("11", "quick/a");
        upload("22", "slow/a");
        shelf.note(&layout::part("b", "33", 1), WriteOptions::default()).unwrap();
        shelf.note(&layout::part("gone", "44", 7), WriteOptions::default()).unwrap();

        let now_ms = shelf.files.stat(&large).unwrap().unwrap().changed_at_ms;
        let first = shelf.sweep(now_ms, 7, &|| false).unwrap();
        assert_eq!(first, Swept { objects: 0, uploads: 0, parts: 2 });
        let second = shelf.sweep(now_ms + 3 * DAY_MS, 7, &|| false).unwrap();
        assert_eq!(second, Swept { objects: 2, uploads: 1, parts: 0 });
        assert_eq!(keys(&shelf, &layout::objects("b")), ["kept/a", "large/no", "logs/a", "tmp"]);
        assert_eq!(keys(&shelf, layout::PARTS), ["b/22/00001"]);
        let third = shelf.sweep(now_ms + 12 * DAY_MS, 7, &|| false).unwrap();
        assert_eq!(third, Swept { objects: 1, uploads: 1, parts: 0 });
        assert_eq!(keys(&shelf, layout::PARTS), [""; 0]);
    }

    #[test]
    fn sweep_stops_where_it_is_told_to_and_a_later_one_goes_on() {
        let (_dir, shelf) = Shelf::with_bucket("b");
        let rule = Rule { is_enabled: true, expire_days: Some(1), ..Rule::default() };
        shelf.set_bucket("b", |meta| meta.lifecycle = vec![rule.clone()]).unwrap();
        for key in 0..10 {
            let name = layout::object("b", &key.to_string());
            shelf.files.write(&name, b"x", WriteOptions::default()).unwrap();
        }
        for part in 1..=5 {
            shelf.note(&layout::part("b", "33", part), WriteOptions::default()).unwrap();
        }
        let first = shelf.files.stat(&layout::object("b", "0")).unwrap().unwrap();
        let late_ms = first.changed_at_ms + 3 * DAY_MS;
        let asked = std::cell::Cell::new(0);
        let stop_after = |count| {
            asked.set(0);
            move |asked: &std::cell::Cell<u64>| asked.replace(asked.get() + 1) >= count
        };
        let after_4 = stop_after(4);
        let stopped = shelf.sweep(late_ms, 7, &|| after_4(&asked)).unwrap();
        assert_eq!(stopped, Swept { objects: 4, ..Swept::default() });
        assert_eq!(keys(&shelf, &layout::objects("b")).len(), 6);
        let after_8 = stop_after(8);
        let stopped = shelf.sweep(late_ms, 7, &|| after_8(&asked)).unwrap();
        assert_eq!(stopped, Swept { objects: 6, parts: 2, ..Swept::default() });
        let rest = shelf.sweep(late_ms, 7, &|| false).unwrap();
        assert_eq!(rest, Swept { parts: 3, ..Swept::default() });
        // Between uploads too, where there are no parts.
        for upload in 0..5 {
            let note = layout::upload("b", &upload.to_string());
            shelf.note(&note, WriteOptions::default()).unwrap();
        }
        let after_7 = stop_after(7);
        let stopped = shelf.sweep(late_ms + 7 * DAY_MS, 7, &|| after_7(&asked)).unwrap();
        assert_eq!(stopped, Swept { uploads: 2, ..Swept::default() });
        let rest = shelf.sweep(late_ms + 7 * DAY_MS, 7, &|| false).unwrap();
        assert_eq!(rest, Swept { uploads: 3, ..Swept::default() });
    }

    /// What this does, and what is logged meanwhile.
    fn logged<T>(run: impl FnOnce() -> T) -> (T, String) {
        let log = tempfile::NamedTempFile::new().unwrap();
        let lines = tracing_subscriber::fmt().with_ansi(false);
        let lines = lines.with_writer(std::sync::Arc::new(log.reopen().unwrap()));
        let done = tracing::dispatcher::with_default(&lines.finish().into(), run);
        (done, std::fs::read_to_string(log.path()).unwrap())
    }

    /// A sweep ended at the first thing that it couldn't read, each hour at the same one, and all behind that never
    /// expired. Nothing told which it was.
    #[test]
    fn sweep_leaves_what_is_damaged_and_goes_on() {
        let (_dir, shelf) = Shelf::with_bucket("c");
        let rule = Rule { is_enabled: true, expire_days: Some(1), ..Rule::default() };
        shelf.set_bucket("c", |meta| meta.lifecycle = vec![rule.clone()]).unwrap();
        let damaged = WriteOptions { attributes: "{".into(), ..WriteOptions::default() };
        let object = shelf.note(&layout::object("c", "k"), WriteOptions::default()).unwrap();
        for name in [
            layout::bucket("a"),
            layout::upload("a", "11"),
            layout::bucket("b"),
            layout::object("b", "k"),
            layout::upload("c", "22"),
        ] {
            shelf.note(&name, damaged.clone()).unwrap();
        }
        for name in [layout::upload("c", "33"), layout::part("gone", "44", 1)] {
            shelf.note(&name, WriteOptions::default()).unwrap();
        }
        let now_ms = object.changed_at_ms;
        let (swept, log) = logged(|| shelf.sweep(now_ms + 2 * DAY_MS, 7, &|| false));
        assert!(swept.is_err());
        for left in [
            "objects of bucket a",
            "objects of bucket b",
            "upload 11 of bucket a",
            "upload 22 of bucket c",
        ] {
            assert!(log.contains(left), "{left}: {log}");
        }
        assert_eq!(keys(&shelf, &layout::objects("c")), [""; 0]);
        assert_eq!(keys(&shelf, layout::PARTS), [""; 0]);
        // What ends by its age is not asked for anything else.
        assert_eq!(keys(&shelf, layout::UPLOADS), ["a/11", "c/22", "c/33"]);
        assert!(shelf.sweep(now_ms + 8 * DAY_MS, 7, &|| false).is_err());
        assert_eq!(keys(&shelf, layout::UPLOADS), [""; 0]);
        assert_eq!(keys(&shelf, &layout::objects("b")), ["k"]);
    }

    /// The bucket was asked for again with each object, and the log had two lines of each.
    #[test]
    fn a_bucket_that_can_not_be_read_any_more_is_told_of_once() {
        let (fs, shelf) = Shelf::over_faulty();
        // Large enough to be read from the journal each time.
        let id = "i".repeat(4096);
        let rule = Rule { id, is_enabled: true, expire_days: Some(1), ..Rule::default() };
        shelf.set_bucket("b", |meta| meta.lifecycle = vec![rule.clone()]).unwrap();
        let names: Vec<String> = (0..10).map(|key| layout::object("b", &key.to_string())).collect();
        for name in &names {
            shelf.note(name, WriteOptions::default()).unwrap();
        }
        let late_ms = shelf.files.stat(&names[9]).unwrap().unwrap().changed_at_ms + 3 * DAY_MS;
        let is_of_catalogue = |_: &str, path: &Path| path.starts_with("/files/catalogue-000001");
        let asked = Cell::new(0);
        let lose = || {
            if asked.replace(asked.get() + 1) == 0 {
                let reads = Fault::errno(5).class(OperationClass::Reads).only(is_of_catalogue);
                fs.fail_at(0, reads.sticky());
            }
            false
        };
        let (swept, log) = logged(|| shelf.sweep(late_ms, 7, &lose));
        assert!(swept.is_err());
        assert_eq!(log.matches("objects of bucket b").count(), 1, "{log}");
        assert_eq!((log.lines().count(), asked.get()), (2, 1), "{log}");
        fs.clear();
        assert_eq!(keys(&shelf, &layout::objects("b")).len(), names.len());
        let swept = shelf.sweep(late_ms, 7, &|| false).unwrap();
        assert_eq!(swept.objects, names.len() as u64);
    }

    /// A sweep went by the rules that it had read at first: what somebody who saw it had them taken away to keep
    /// was deleted nevertheless. And it looked at each object that had been due.
    #[test]
    fn rules_that_are_taken_away_during_a_sweep_take_nothing_more() {
        let (_dir, shelf) = Shelf::with_bucket("b");
        let rule = Rule {
            is_enabled: true,
            expire_days: Some(1),
            abort_upload_days: Some(1),
            ..Rule::default()
        };
        for key in 0..10 {
            let name = layout::object("b", &key.to_string());
            shelf.files.write(&name, b"x", WriteOptions::default()).unwrap();
        }
        shelf.note(&layout::upload("b", "11"), WriteOptions::default()).unwrap();
        let first = shelf.files.stat(&layout::object("b", "0")).unwrap().unwrap();
        let late_ms = first.changed_at_ms + 3 * DAY_MS;
        // With the third object, and after the last: the upload is asked for twice.
        for (at, left, asks) in [(3, 8, 5), (9, 0, 10)] {
            shelf.set_bucket("b", |meta| meta.lifecycle = vec![rule.clone()]).unwrap();
            let asked = std::cell::Cell::new(0);
            let take_away = || {
                asked.set(asked.get() + 1);
                if asked.get() == at {
                    shelf.delete_lifecycle("b").unwrap();
                }
                false
            };
            let swept = shelf.sweep(late_ms, 7, &take_away).unwrap();
            assert_eq!((swept.uploads, asked.get()), (0, asks), "{at}");
            assert_eq!(keys(&shelf, &layout::objects("b")).len(), left, "{at}");
        }
    }

    /// It looked at the rules before it waited for what it took to be done: who was told meanwhile that they were
    /// gone lost an object more, or an upload.
    #[test]
    fn rules_are_taken_away_only_when_nothing_goes_by_them_any_longer() {
        use std::sync::mpsc;
        use std::time::Duration;

        let (_dir, shelf) = Shelf::with_bucket("b");
        let rule = Rule {
            is_enabled: true,
            expire_days: Some(1),
            abort_upload_days: Some(1),
            ..Rule::default()
        };
        let names = [layout::object("b", "k"), layout::upload("b", "11")];
        let notes = names.clone().map(|name| shelf.note(&name, WriteOptions::default()).unwrap());
        let late_ms = notes[1].changed_at_ms + 3 * DAY_MS;
        // An upload is asked for when it is listed, and when it is ended.
        for (name, asks) in names.into_iter().zip([1, 2]) {
            shelf.set_bucket("b", |meta| meta.lifecycle = vec![rule.clone()]).unwrap();
            let (sender, asked) = mpsc::channel();
            let gate = shelf.gate.write();
            let sweeping = shelf.clone();
            let sweep = std::thread::spawn(move || {
                let is_stopped = || {
                    sender.send(()).unwrap();
                    false
                };
                sweeping.sweep(late_ms, 7, &is_stopped).unwrap()
            });
            (0..asks).for_each(|_| asked.recv().unwrap());
            // It waits for who changes the rules, and has the gate.
            assert!(asked.recv_timeout(Duration::from_millis(200)).is_err());
            let bucket = layout::bucket("b");
            let attributes = Some(encode(&BucketMeta::default()));
            let options = CopyOptions { attributes, ..CopyOptions::default() };
            shelf.files.copy(&bucket, &bucket, options).unwrap();
            drop(gate);
            assert_eq!(sweep.join().unwrap(), Swept::default());
            assert!(shelf.files.unlink(&name, UnlinkOptions::default()).unwrap());
        }

        let gate = shelf.gate.read();
        let (sender, set) = mpsc::channel();
        let setting = shelf.clone();
        let set_it = std::thread::spawn(move || {
            setting.delete_lifecycle("b").unwrap();
            sender.send(()).unwrap();
        });
        assert!(set.recv_timeout(Duration::from_millis(200)).is_err());
        drop(gate);
        set_it.join().unwrap();
    }
}
