//! Whether the server lives and whether it is ready.
//!
//! These answer without the engine's data, so that they answer under any load.

use hyper::{HeaderMap, StatusCode};
use serde_json::json;

use crate::api::Api;
use crate::engine::Engine;
use crate::reply::{self, Reply, STOPPING, json_reply};

/// `/healthz`: the process answers.
pub(crate) fn live(headers: HeaderMap) -> Reply {
    json_reply(headers, &json!({ "status": "ok" }))
}

/// `/readyz` and `/v0/status`: writes are taken; else 503 and why not.
pub(crate) fn ready<E: Engine>(api: &Api<E>, headers: HeaderMap) -> Reply {
    if api.is_draining() {
        return api.refuse(headers, STOPPING);
    }
    match api.engine.read_only_cause() {
        Some(cause) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            reply::explain(headers, status, "read_only", &cause, api.retry_after())
        }
        None => json_reply(headers, &json!({ "status": "ready" })),
    }
}
