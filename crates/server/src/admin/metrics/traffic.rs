//! What the data listener did, and what it holds.

use std::fmt::Error;
use std::time::Duration;

use super::{Families, Scrape};
use crate::meter::Operation;

/// Bounds of request latency: 1-2-5 from 1 us to 10 s.
const BOUNDS: [Duration; 22] = {
    let mut bounds = [Duration::ZERO; 22];
    let (mut at, mut decade_us) = (0, 1);
    while at < bounds.len() {
        let step = [1, 2, 5][at % 3];
        bounds[at] = Duration::from_micros(decade_us * step);
        if at % 3 == 2 {
            decade_us *= 10;
        }
        at += 1;
    }
    bounds
};

pub(super) fn encode(families: &mut Families<'_>, scrape: &Scrape) -> Result<(), Error> {
    let traffic = &scrape.books.traffic;
    let operations =
        || Operation::ALL.into_iter().map(|operation| (operation, traffic.of(operation)));
    let by_status: Vec<(&str, String, u64)> = operations()
        .flat_map(|(operation, of)| {
            of.by_status
                .iter()
                .map(move |(status, count)| (operation.name(), status.to_string(), *count))
        })
        .collect();
    families.counters_by_two(
        "tallybook_requests_total",
        "Requests answered on the data and S3 listeners",
        ["operation", "status"],
        by_status.iter().map(|(operation, status, count)| ([*operation, status.as_str()], *count)),
    )?;
    let refusals: Vec<(String, u64)> =
        traffic.refusals().map(|(status, count)| (status.to_string(), count)).collect();
    families.counters(
        "tallybook_refusals_total",
        "Heads, slow requests and connections beyond the limit that were refused before they were requests",
        "status",
        refusals.iter().map(|(status, count)| (status.as_str(), *count)),
    )?;
    families.histograms(
        "tallybook_request_duration_seconds",
        "Time from a request's head being read to its reply being ready to send",
        &BOUNDS,
        "operation",
        operations().map(|(operation, of)| (operation.name(), &of.latency)),
    )?;
    families.counter(
        "tallybook_received_bytes_total",
        "Bytes received on data connections, heads included",
        traffic.bytes_received,
    )?;
    families.counter(
        "tallybook_sent_bytes_total",
        "Bytes sent on data connections, heads included",
        traffic.bytes_sent,
    )?;
    for (name, help, value) in [
        ("tallybook_connections", "Open data connections", scrape.connections),
        (
            "tallybook_connections_limit",
            "Most data connections at once",
            scrape.limits.connections_max as u64,
        ),
        (
            "tallybook_requests_in_flight",
            "Requests that wait for a body, the disk or the reader of a stream",
            scrape.in_flight,
        ),
        (
            "tallybook_requests_in_flight_limit",
            "Most such requests at once; more are answered 503",
            scrape.limits.in_flight_max as u64,
        ),
        (
            "tallybook_body_memory_limit_bytes",
            "Most memory for bodies being received and large values being sent; the memory in use is among tallybook_memory_bytes",
            scrape.limits.body_memory_bytes_max as u64,
        ),
    ] {
        families.gauge(name, help, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_run_from_a_microsecond_to_ten_seconds() {
        assert_eq!(BOUNDS[..4], [1, 2, 5, 10].map(Duration::from_micros));
        assert_eq!(BOUNDS[21], Duration::from_secs(10));
    }
}
