//! The query of a request, with its names decoded: `s3s` decodes them before it looks at them.

use std::borrow::Cow;

use super::refusal::Refusal;
use crate::query::{BadEscape, parameters, percent_decode};

const MALFORMED: Refusal =
    Refusal::bad_request("InvalidURI", "The query could not be read: its escapes are malformed.");

/// The parameters of a query in order, names decoded and values as they stand.
pub(crate) struct Query<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Query<'a> {
    pub(crate) fn of(query: &'a str) -> Result<Query<'a>, Refusal> {
        let named = |(name, value)| Ok((decode(name)?, value));
        parameters(query).map(named).collect::<Result<_, Refusal>>().map(Query)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|parameter| parameter.0 == name)
    }

    /// The first value of this name, decoded.
    pub(crate) fn value(&self, name: &str) -> Result<Option<Cow<'a, str>>, Refusal> {
        let found = self.0.iter().find(|parameter| parameter.0 == name);
        found.map(|(_, value)| decode(value)).transpose()
    }
}

/// A name or a value, decoded.
fn decode(raw: &str) -> Result<Cow<'_, str>, Refusal> {
    let decoded = percent_decode(raw, true).map_err(|BadEscape| MALFORMED)?;
    match decoded {
        Cow::Borrowed(_) => Ok(Cow::Borrowed(raw)),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| MALFORMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_and_the_first_value_counts() {
        let query = Query::of("%61cl&a+b=1%202&%61cl=second&prefix=50%").unwrap();
        assert!(query.has("acl") && query.has("a b") && query.has("prefix") && !query.has("%61cl"));
        assert_eq!(query.value("acl").unwrap().as_deref(), Some(""));
        assert_eq!(query.value("a b").unwrap().as_deref(), Some("1 2"));
        assert_eq!(query.value("absent"), Ok(None));
        assert_eq!(query.value("prefix"), Err(MALFORMED));
        assert!(["%=1", "a&%ff", "%zz=1"].iter().all(|query| Query::of(query).is_err()));
    }
}
