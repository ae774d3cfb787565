//! Whether the server lives and whether it is ready.
//!
//! These answer without the engine's data, so that they answer under any load.

use hyper::{HeaderMap, StatusCode};
use serde_json::json;

use crate::api::Api;
use crate::engine::Engine;
use crate::reply::{self, Reply, json_reply};

/// `/healthz`: the process answers.
pub(crate) fn live(headers: HeaderMap) -> Reply {
    json_reply(headers, &json!({ "status": "ok" }))
}

/// `/readyz` and `/v0/status`: writes are taken; else 503 and why not.
pub(crate) fn ready<E: Engine>(api: &Api<E>, headers: HeaderMap) -> Reply {
    let unavailable = |kind: &str, message: &str| {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        reply::explain(HeaderMap::new(), status, kind, message, api.retry_after())
    };
    if api.is_draining() {
        return unavailable("draining", "the server is stopping");
    }
    match api.engine.read_only_cause() {
        Some(cause) => unavailable("read_only", &cause),
        None => json_reply(headers, &json!({ "status": "ready" })),
    }
}
