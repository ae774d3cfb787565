//! `/metrics`: everything the books say, as Prometheus text.
//!
//! Nothing is registered: each scrape takes one snapshot and writes it down, so that the figures of a
//! scrape belong together and an idle server keeps nothing. Names and labels are fixed words; a key or
//! an address is never among them, and the number of series is bounded by the words there are.

mod families;
mod process;
mod stages;
mod store;
mod traffic;

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

use crate::api::Api;
use crate::body::Body;
use crate::engine::Engine;
use crate::options::Limits;
use crate::process::Process;
use crate::reply::{INTERNAL, Reply, reply};
use crate::snapshot::Snapshot;
use families::Families;

/// The text form that every Prometheus reads.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// `/metrics`.
pub(super) fn metrics<E: Engine>(api: &Api<E>, mut headers: HeaderMap) -> Reply {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape::take(api)));
    let mut text = String::new();
    if encode_registry(&mut text, &registry).is_err() {
        return api.refuse(headers, INTERNAL);
    }
    headers.clear();
    headers.insert(CONTENT_TYPE, TEXT);
    reply(StatusCode::OK, headers, Body::Full(text.into()))
}

/// Everything one scrape writes down.
#[derive(Debug)]
struct Scrape {
    books: Snapshot,
    process: Option<Process>,
    limits: Limits,
    connections: u64,
    in_flight: u64,
    body_memory_bytes: u64,
    write_pressure: f64,
    is_read_only: bool,
}

impl Scrape {
    fn take<E: Engine>(api: &Api<E>) -> Scrape {
        Scrape {
            books: api.snapshot(),
            process: Process::read(),
            limits: api.options.limits.clone(),
            connections: api.connections.open() as u64,
            in_flight: api.quotas.in_flight.used() as u64,
            body_memory_bytes: api.quotas.body_memory.used() as u64,
            write_pressure: api.engine.write_pressure(),
            is_read_only: api.engine.read_only_cause().is_some(),
        }
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut families = Families::new(encoder);
        families.gauges(
            "tallybook_build_info",
            "Always 1, the version is in the label",
            "version",
            [(env!("CARGO_PKG_VERSION"), 1u64)],
        )?;
        traffic::encode(&mut families, self)?;
        stages::encode(&mut families, &self.books.stages)?;
        store::encode(&mut families, self)?;
        match &self.process {
            Some(process) => process::encode(&mut families, process),
            None => Ok(()),
        }
    }
}
