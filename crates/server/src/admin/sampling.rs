//! `PUT /stages/sampling?every=N`: how many operations there are for each one that is timed.

use hyper::HeaderMap;
use serde_json::json;
use tallybook::stages::Recorder;

use crate::api::Api;
use crate::engine::Engine;
use crate::query::first;
use crate::reply::{Reply, bad_request, json_reply};

/// Changes sampling at once, for as long as the store is open; 0: no operation is timed.
pub(super) fn set<E: Engine>(api: &Api<E>, headers: HeaderMap, query: Option<&str>) -> Reply {
    let every = first(query, "every").and_then(parse);
    let Some(every) = every else {
        return api.refuse(headers, bad_request("every is a number from 0 (off) to 1,048,576"));
    };
    api.engine.set_sample_every(every);
    tracing::info!(sample_every = every, "sampling was changed");
    json_reply(headers, &json!({ "sample_every": every }))
}

fn parse(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let every = text.parse().ok().filter(|_| is_plain)?;
    (every <= Recorder::SAMPLE_EVERY_MAX).then_some(every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_in_range_are_taken() {
        assert_eq!(parse("0"), Some(0));
        assert_eq!(parse("1048576"), Some(1 << 20));
        for wrong in ["", "-1", "+1", "1.5", "1048577", "99999999999", "often", " 1"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
