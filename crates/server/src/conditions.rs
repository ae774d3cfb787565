//! Preconditions of a request: `If-Match`, `If-None-Match`, `If-Range` (RFC 9110, section 13).
//!
//! An entity tag is the version of the entry in quotes, so that a tag a client holds is a version
//! the engine can compare under its own lock. Tags that are no version match nothing.

use hyper::HeaderMap;
use hyper::header::{HeaderName, IF_MATCH, IF_NONE_MATCH, IF_RANGE};
use tallybook::key::SeqNo;
use tallybook::store::Condition;

/// A condition header that can't be read, or two that can't hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadCondition(pub(crate) &'static str);

/// The tags of one condition header.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tags {
    /// `*`
    Any,
    /// Versions named; foreign and (where they can't match) weak tags left out.
    Versions(Vec<SeqNo>),
}

impl Tags {
    fn contain(&self, version: Option<SeqNo>) -> bool {
        match self {
            Tags::Any => version.is_some(),
            Tags::Versions(versions) => version.is_some_and(|version| versions.contains(&version)),
        }
    }
}

/// The conditions of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

/// How a read goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As if there were no conditions.
    Proceed,
    /// 304: the client has this version.
    NotModified,
    /// 412.
    Failed,
}

/// What a write demands, as far as it can be said without looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demand {
    /// The engine checks this, or nothing.
    Condition(Option<Condition>),
    /// Several versions are named: look at the key, then ask `Conditions::for_version`.
    Look,
}

impl Conditions {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Conditions, BadCondition> {
        Ok(Conditions {
            if_match: tags(headers, &IF_MATCH, false)?,
            if_none_match: tags(headers, &IF_NONE_MATCH, true)?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none()
    }

    /// For a read of a key that stands at `version`.
    pub(crate) fn for_read(&self, version: Option<SeqNo>) -> Verdict {
        if self.if_match.as_ref().is_some_and(|tags| !tags.contain(version)) {
            return Verdict::Failed;
        }
        if self.if_none_match.as_ref().is_some_and(|tags| tags.contain(version)) {
            return Verdict::NotModified;
        }
        Verdict::Proceed
    }

    /// For a write.
    pub(crate) fn for_write(&self) -> Result<Demand, BadCondition> {
        let demand = match (&self.if_match, &self.if_none_match) {
            (Some(_), Some(_)) => {
                return Err(BadCondition("a write takes If-Match or If-None-Match, not both"));
            }
            (None, None) => Demand::Condition(None),
            (Some(Tags::Any), None) => Demand::Condition(Some(Condition::Present)),
            (None, Some(Tags::Any)) => Demand::Condition(Some(Condition::Absent)),
            (Some(Tags::Versions(versions)), None) => match versions[..] {
                // No write has version 0, so that this fails and reports the version there is.
                [] => Demand::Condition(Some(Condition::Version(0))),
                [version] => Demand::Condition(Some(Condition::Version(version))),
                _ => Demand::Look,
            },
            (None, Some(Tags::Versions(versions))) => match versions[..] {
                [] => Demand::Condition(None),
                [version] => Demand::Condition(Some(Condition::NotVersion(version))),
                _ => Demand::Look,
            },
        };
        Ok(demand)
    }

    /// For a write to a key seen at `version`: what the engine must still find, or `None`: 412.
    pub(crate) fn for_version(&self, version: Option<SeqNo>) -> Option<Condition> {
        let holds = self.for_read(version) == Verdict::Proceed;
        holds.then(|| version.map_or(Condition::Absent, Condition::Version))
    }
}

/// Whether a `Range` may be served from an entry at `version`. A date never matches: there are no dates.
pub(crate) fn range_applies(headers: &HeaderMap, version: SeqNo) -> bool {
    if_range_holds(headers, |validator| {
        tag(validator).is_some_and(|(weak, named)| !weak && named == Some(version))
    })
}

/// Whether there is no `If-Range`, or one whose validator `is_current` (RFC 9110, section 13.1.5).
pub(crate) fn if_range_holds(headers: &HeaderMap, is_current: impl Fn(&str) -> bool) -> bool {
    let mut validators = headers.get_all(IF_RANGE).iter();
    match (validators.next(), validators.next()) {
        (None, _) => true,
        (Some(validator), None) => validator.to_str().is_ok_and(|text| is_current(text.trim())),
        (Some(_), Some(_)) => false,
    }
}

/// The entity tag of a version.
pub(crate) fn write_tag(version: SeqNo, out: &mut Vec<u8>) {
    use std::io::Write;
    write!(out, "\"{version}\"").expect("a Vec takes every write");
}

fn tags(
    headers: &HeaderMap,
    name: &HeaderName,
    weak_matches: bool,
) -> Result<Option<Tags>, BadCondition> {
    let malformed = BadCondition("a condition header is malformed");
    let mut values = headers.get_all(name).iter();
    let Some(only) = values.next() else {
        return Ok(None);
    };
    let several = values.next().is_some();
    let only = only.to_str().map_err(|_| malformed)?.trim();
    if several || only.is_empty() {
        return Err(malformed);
    }
    if only == "*" {
        return Ok(Some(Tags::Any));
    }
    let mut versions = Vec::new();
    for text in only.split(',') {
        let (weak, version) = tag(text.trim()).ok_or(malformed)?;
        versions.extend(version.filter(|_| weak_matches || !weak));
    }
    Ok(Some(Tags::Versions(versions)))
}

/// Whether an entity tag is weak, and the version it names, if any; `None` if it is no tag. (A comma
/// inside a foreign tag is refused too; ours have none.)
fn tag(text: &str) -> Option<(bool, Option<SeqNo>)> {
    let (weak, text) = text.strip_prefix("W/").map_or((false, text), |rest| (true, rest));
    let opaque = text.strip_prefix('"')?.strip_suffix('"')?;
    if opaque.contains('"') {
        return None;
    }
    let canonical = opaque == "0" || !opaque.starts_with(['0', '+']);
    Some((weak, opaque.parse().ok().filter(|_| canonical)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn conditions(name: HeaderName, value: &'static str) -> Result<Conditions, BadCondition> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        Conditions::from_headers(&headers)
    }

    #[test]
    fn reads_follow_the_tags() {
        let matching = conditions(IF_MATCH, r#""3", "5""#).unwrap();
        assert_eq!(matching.for_read(Some(5)), Verdict::Proceed);
        assert_eq!(matching.for_read(Some(4)), Verdict::Failed);
        assert_eq!(matching.for_read(None), Verdict::Failed);
        let not = conditions(IF_NONE_MATCH, r#"W/"3""#).unwrap();
        assert_eq!(not.for_read(Some(3)), Verdict::NotModified);
        assert_eq!(not.for_read(Some(4)), Verdict::Proceed);
        assert_eq!(not.for_read(None), Verdict::Proceed);
    }

    #[test]
    fn writes_become_engine_conditions() {
        let demand = |name, value| conditions(name, value).unwrap().for_write().unwrap();
        assert_eq!(demand(IF_MATCH, "*"), Demand::Condition(Some(Condition::Present)));
        assert_eq!(demand(IF_NONE_MATCH, "*"), Demand::Condition(Some(Condition::Absent)));
        assert_eq!(demand(IF_MATCH, "\"7\""), Demand::Condition(Some(Condition::Version(7))));
        assert_eq!(demand(IF_MATCH, "W/\"7\""), Demand::Condition(Some(Condition::Version(0))));
        assert_eq!(demand(IF_MATCH, "\"07\""), Demand::Condition(Some(Condition::Version(0))));
        assert_eq!(demand(IF_MATCH, "\"1\",\"2\""), Demand::Look);
        assert_eq!(demand(IF_NONE_MATCH, "\"abc\""), Demand::Condition(None));
    }

    #[test]
    fn malformed_tags_are_refused() {
        for value in ["", "7", "\"7", "\"7\" \"8\"", "\"7\",", "*, \"7\"", "w/\"7\""] {
            assert!(conditions(IF_MATCH, value).is_err(), "{value}");
        }
    }
}
