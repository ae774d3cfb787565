//! `/stages`: how long each stage took and where reads ended, as JSON, since the start and of late.
//!
//! Every stage and every exit is named, whether it happened or not, so that a reader needs no list of
//! its own. Times are in nanoseconds; nothing is scaled up for sampling.

use std::time::Duration;

use hyper::HeaderMap;
use serde_json::{Map, Value, json};
use tallybook::stages::{Distribution, Exit, Stage, Stages};

use crate::api::Api;
use crate::engine::Engine;
use crate::meter::{Operation, Traffic};
use crate::reply::{Reply, json_reply};

/// `/stages`. "Of late" is since the oldest snapshot kept: 5 to 10 seconds, and its length is said.
pub(super) fn stages<E: Engine>(api: &Api<E>, headers: HeaderMap) -> Reply {
    let now = api.snapshot();
    let since_start = period(now.since(api.recent.started), &now.stages, &now.traffic);
    let interval = match api.recent.oldest() {
        Some(then) => {
            let (stages, traffic) =
                (now.stages.since(&then.stages), now.traffic.since(&then.traffic));
            period(now.since(then.at), &stages, &traffic)
        }
        None => since_start.clone(),
    };
    let page = json!({
        "sample_every": now.stages.sample_every,
        "since_start": since_start,
        "interval": interval,
    });
    json_reply(headers, &page)
}

fn period(length: Duration, stages: &Stages, traffic: &Traffic) -> Value {
    let times = Stage::ALL.iter().map(|&stage| {
        let mut figures = figures(stages.times(stage));
        figures.insert("stage".to_owned(), json!(stage.name()));
        Value::Object(figures)
    });
    let exits: Map<String, Value> =
        Exit::ALL.iter().map(|&exit| (exit.name().to_owned(), json!(stages.exits(exit)))).collect();
    let operations = Operation::ALL.iter().map(|&operation| {
        let of = traffic.of(operation);
        let mut figures = figures(&of.latency);
        figures.insert("operation".to_owned(), json!(operation.name()));
        figures.insert("failures".to_owned(), json!(of.failures()));
        Value::Object(figures)
    });
    json!({
        "seconds": length.as_secs_f64(),
        "stages": times.collect::<Vec<_>>(),
        "exits": exits,
        "operations": operations.collect::<Vec<_>>(),
        "bytes_received": traffic.bytes_received,
        "bytes_sent": traffic.bytes_sent,
    })
}

fn figures(times: &Distribution) -> Map<String, Value> {
    let summary = times.summary();
    let mut figures = Map::new();
    figures.insert("count".to_owned(), json!(summary.count));
    for (name, time) in [
        ("total_ns", summary.total),
        ("mean_ns", summary.mean),
        ("p50_ns", summary.p50),
        ("p90_ns", summary.p90),
        ("p99_ns", summary.p99),
        ("p999_ns", summary.p999),
        ("max_ns", summary.max),
    ] {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        figures.insert(name.to_owned(), json!(ns));
    }
    figures
}
