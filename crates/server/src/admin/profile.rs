//! `/debug/profile/{kind}?seconds=N&format=F&full=0|1`: takes a profile of the process and answers with
//! it.
//!
//! The answer comes when the time is over. A client that closes its side before that, or only the half
//! it sends by, ends the profile. A link to one is followed only from this server's own pages: elsewhere a
//! page could have it followed again and again, and each time the process is slowed down for minutes.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};

use crate::api::{Answer, Api};
use crate::body::Body;
use crate::engine::Engine;
use crate::link::Link;
use crate::profile::{self, Format, Kind, Order, Refusal, Running};
use crate::query::first;
use crate::reply::{Reply, explain, reply};

/// What stands before the kind in a path.
pub(super) const PREFIX: &str = "/debug/profile/";

const SECONDS_DEFAULT: u64 = 10;
const SECONDS_MAX: u64 = 300;
/// How often the client is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// A refusal: status, kind, message.
type Refused = (StatusCode, &'static str, String);

/// Takes the profile that `kind`, the rest of the path, and the query ask for.
pub(super) fn profile<E: Engine>(
    api: &Arc<Api<E>>,
    link: &Rc<Link>,
    kind: &str,
    query: Option<&str>,
    headers: HeaderMap,
) -> Answer {
    let retry_after = api.retry_after().clone();
    let refuse = move |headers, (status, kind, message): Refused| {
        explain(headers, status, kind, &message, &retry_after)
    };
    let started = refuse_page_of_another_site(&headers)
        .and_then(|()| parse(kind, query))
        .and_then(|order| Ok((order.format, profile::start(order).map_err(refusal)?)));
    let (format, running) = match started {
        Ok(started) => started,
        Err(refused) => return Answer::Ready(refuse(headers, refused)),
    };
    let link = link.clone();
    Answer::Later(Box::pin(async move {
        match wait(running, &link).await {
            Ok(profile) => present(headers, format, profile),
            Err(refused) => refuse(headers, refused),
        }
    }))
}

fn refuse_page_of_another_site(headers: &HeaderMap) -> Result<(), Refused> {
    let sites = headers.get_all("sec-fetch-site");
    if sites.iter().any(|site| matches!(site.as_bytes(), b"cross-site" | b"same-site")) {
        let message = "a page of another site has a link to a profile; open it from the dashboard, or \
                       type it";
        return Err((StatusCode::FORBIDDEN, "cross_origin", message.to_owned()));
    }
    Ok(())
}

async fn wait(mut running: Running, link: &Link) -> Result<Vec<u8>, Refused> {
    let mut look = tokio::time::interval(LOOK_PERIOD);
    loop {
        tokio::select! {
            finished = &mut running.finished => {
                let finished = finished.unwrap_or_else(|_| {
                    Err(Refusal::Failed("its thread ended early".to_owned()))
                });
                return finished.map_err(refusal);
            }
            _ = look.tick() => if link.peer_is_gone() {
                let message = "the connection was closed, so the profile was ended";
                return Err((StatusCode::REQUEST_TIMEOUT, "request_timeout", message.to_owned()));
            }
        }
    }
}

fn present(mut headers: HeaderMap, format: Format, profile: Vec<u8>) -> Reply {
    let content_type = match format {
        Format::Svg => "image/svg+xml",
        Format::Pprof => "application/octet-stream",
        Format::Folded => "text/plain; charset=utf-8",
    };
    headers.clear();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply(StatusCode::OK, headers, Body::Full(Bytes::from(profile)))
}

fn refusal(refusal: Refusal) -> Refused {
    match refusal {
        Refusal::Busy => (
            StatusCode::CONFLICT,
            "profile_running",
            "a profile of this kind is being taken; ask again when it is done".to_owned(),
        ),
        Refusal::Unsupported(why) => (StatusCode::NOT_IMPLEMENTED, "unsupported", why.to_owned()),
        Refusal::Failed(why) => {
            tracing::warn!(why, "a profile failed");
            let message = format!("the profile failed: {why}");
            (StatusCode::INTERNAL_SERVER_ERROR, "profile_failed", message)
        }
    }
}

fn parse(kind: &str, query: Option<&str>) -> Result<Order, Refused> {
    let bad = |message| (StatusCode::BAD_REQUEST, "bad_request", message);
    let kind = Kind::from_name(kind).ok_or_else(|| {
        let known = Kind::ALL.map(Kind::name).join(", ");
        (StatusCode::NOT_FOUND, "not_found", format!("the profiles are: {known}"))
    })?;
    let seconds = match first(query, "seconds") {
        None => Some(SECONDS_DEFAULT),
        Some(seconds) => seconds.parse().ok().filter(|n| (1..=SECONDS_MAX).contains(n)),
    }
    .ok_or_else(|| bad(format!("seconds is a whole number from 1 to {SECONDS_MAX}")))?;
    let format = match first(query, "format") {
        None => Some(Format::Svg),
        Some(format) => Format::from_name(format),
    }
    .ok_or_else(|| {
        bad(format!("format is one of: {}", Format::ALL.map(Format::name).join(", ")))
    })?;
    let full = match first(query, "full") {
        None | Some("0") => false,
        Some("1") => true,
        Some(_) => return Err(bad("full is 0 or 1".to_owned())),
    };
    Ok(Order { kind, duration: Duration::from_secs(seconds), format, full })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_have_defaults_and_bounds() {
        let order = parse("cpu", None).unwrap();
        assert_eq!((order.kind, order.format, order.full), (Kind::Cpu, Format::Svg, false));
        assert_eq!(order.duration, Duration::from_secs(10));
        let order = parse("offcpu", Some("full=1&seconds=300&format=pprof")).unwrap();
        assert_eq!((order.kind, order.format, order.full), (Kind::OffCpu, Format::Pprof, true));
        assert_eq!(order.duration, Duration::from_secs(300));
        for query in ["seconds=0", "seconds=301", "seconds=-1", "seconds=", "seconds=1.5"] {
            let (status, _, message) = parse("cpu", Some(query)).unwrap_err();
            assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
            assert!(message.contains("1 to 300"), "{message}");
        }
        for query in ["format=png", "format=", "full=yes"] {
            assert_eq!(parse("cpu", Some(query)).unwrap_err().0, StatusCode::BAD_REQUEST);
        }
        let (status, _, message) = parse("heap", None).unwrap_err();
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(Kind::ALL.iter().all(|kind| message.contains(kind.name())), "{message}");
    }
}
