//! What the admin listener alone answers: figures, in the forms that people use.
//!
//! All but `/stages/sampling` only looks. A client that is slow, or gone, costs what its connection
//! holds.

mod dashboard;
mod metrics;
mod profile;
mod sampling;
mod stages;
mod stats;

use std::rc::Rc;
use std::sync::Arc;

use hyper::{HeaderMap, Method, Uri};

use crate::api::{Answer, Api};
use crate::engine::Engine;
use crate::link::Link;
use crate::reply::{Reply, method_not_allowed};

/// Answers a request to the admin listener; `Err` gives the headers back when no page has that path.
pub(crate) fn route<E: Engine>(
    api: &Arc<Api<E>>,
    link: &Rc<Link>,
    method: &Method,
    uri: &Uri,
    headers: HeaderMap,
) -> Result<Answer, HeaderMap> {
    if let Some(kind) = uri.path().strip_prefix(profile::PREFIX) {
        if *method != Method::GET {
            return Ok(Answer::Ready(method_not_allowed(headers, "GET")));
        }
        return Ok(profile::profile(api, link, kind, uri.query(), headers));
    }
    let page: fn(&Api<E>, &Uri, HeaderMap) -> Reply = match uri.path() {
        "/stats" => |api, _, headers| stats::stats(api, headers),
        "/metrics" => |api, _, headers| metrics::metrics(api, headers),
        "/stages" => |api, _, headers| stages::stages(api, headers),
        "/stages/sampling" if *method == Method::PUT => {
            return Ok(Answer::Ready(sampling::set(api, headers, uri.query())));
        }
        "/stages/sampling" => return Ok(Answer::Ready(method_not_allowed(headers, "PUT"))),
        "/dashboard.json" => |api, uri, headers| dashboard::data(api, uri.query(), headers),
        path if dashboard::has_file(path) => |_, uri, headers| dashboard::file(uri.path(), headers),
        _ => return Err(headers),
    };
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Ok(Answer::Ready(method_not_allowed(headers, "GET, HEAD")));
    }
    Ok(Answer::Ready(page(api, uri, headers)))
}
