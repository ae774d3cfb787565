//! `http-floor`: how much of a request's cost is HTTP itself, and how much is ours.
//!
//! The floor is a bare hyper server that stores nothing and answers a constant. Beside it is one that has a hash
//! map in memory, the least that a store can be: what it takes more than the floor are the waits for memory of
//! a key and its value. Our blocks are in memory, and the tree is at rest, before a run begins; a server that is
//! written to isn't the one that is read from, whose cache it would empty. What reading a block or passing a run
//! costs is for other experiments to say.
//! Answers of ours are verified, the floor's can't be. Any other server that speaks `/v0` can be loaded beside
//! them, by its URL: it is filled with the same keys, and keeps them afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use super::picks::{bar_of, case, different, median_of, of_valid, or_dash, text, times_of, told};
use super::planning::in_turn;
use super::{Experiment, PlannedRun, Scale, Subject};
use crate::chart::{BarChart, Unit};
use crate::error::{Error, Result};
use crate::load::GENERATOR_BUSY;
use crate::record::Record;
use crate::report::{Comparer, Measure, Metric, Report, Table, percentile_points};
use crate::run::RunOptions;
use crate::spec::{Durability, Length, Spec, ValueSizes, Workload};
use crate::target::Budget;

pub(super) const OURS: &str = "tallybook";
pub(super) const FLOOR: &str = "bare hyper";
pub(super) const MAP: &str = "hash map";
pub(super) const VALUE_BYTES: u32 = 100;
/// Nearly twice what the million keys take.
const CACHE_BYTES: u64 = 256 << 20;
/// Requests of a warm-up: each block is asked for thirty times, so that none is read from its file in the run,
/// and the merges that this many reads are worth are made.
const WARM_UP: u64 = 500_000;
/// A generator this busy has a part in the rate.
const GENERATOR_BUSY_MAX: f64 = 0.9;
/// The requests: name, workload, bytes of the floor's constant, kind of operation.
const REQUESTS: [(&str, Workload, u32, &str); 4] = [
    ("GET hit", Workload::ReadRandom, VALUE_BYTES, "get"),
    ("GET miss", Workload::ReadMissing, 0, "get"),
    ("PUT", Workload::Overwrite, 0, "put"),
    ("HEAD", Workload::HeadRandom, VALUE_BYTES, "head"),
];

/// The experiment.
pub(super) struct HttpFloor;

impl Experiment for HttpFloor {
    fn name(&self) -> &'static str {
        "http-floor"
    }

    fn question(&self) -> &'static str {
        "How close does the server come to one that does nothing but answer HTTP?"
    }

    /// `against`: URLs of servers that run already.
    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        if let Some(other) = against.iter().find(|word| !word.starts_with("http://")) {
            return Err(Error::Invalid(format!(
                "{} is run against servers by their URLs, http://HOST:PORT, which {other:?} isn't",
                self.name()
            )));
        }
        let seconds = scale.pick(0.2, 5.0, 30.0);
        let mut runs = Vec::new();
        for repetition in 0..scale.pick(1, 3, 7) {
            for &connections in scale.pick(&[1, 4][..], &[1, 16, 64], &[1, 16, 64]) {
                for (request, workload, floor_bytes, _) in REQUESTS {
                    let spec = Spec {
                        workload,
                        keys: scale.pick(2_000, 1_000_000, 1_000_000),
                        values: ValueSizes::Fixed(VALUE_BYTES),
                        length: Length::Time(Duration::from_secs_f64(seconds)),
                        threads: connections,
                        ..Spec::default()
                    };
                    let ours = PlannedRun {
                        case: BTreeMap::from([
                            ("request".to_owned(), request.to_owned()),
                            ("connections".to_owned(), connections.to_string()),
                        ]),
                        subject: Subject::Server { flags: BTreeMap::new() },
                        target: OURS.to_owned(),
                        repetition,
                        prefill: None,
                        options: RunOptions {
                            warm_up: Some(Length::Operations(scale.pick(2_000, WARM_UP, WARM_UP))),
                            settle_first: scale != Scale::Tiny,
                            settle: workload.writes() && scale != Scale::Tiny,
                            ..RunOptions::default()
                        },
                        budget: Budget {
                            write_buffer_bytes: 64 << 20,
                            cache_bytes: CACHE_BYTES,
                            durability: Durability::Os,
                        },
                        shared_store: Some(use_of(workload).to_owned()),
                        is_profiled: false,
                        memory_bytes_max: None,
                        spec,
                    };
                    let floor = floor_of(&ours, floor_bytes, format!("bare {floor_bytes}"));
                    let map = map_of(&floor);
                    let others = against.iter().map(|url| PlannedRun {
                        subject: Subject::Url { url: url.clone() },
                        target: url.clone(),
                        shared_store: Some(url.clone()),
                        ..ours.clone()
                    });
                    let all: Vec<_> =
                        [ours.clone(), floor, map].into_iter().chain(others).collect();
                    runs.extend(in_turn(&all, repetition));
                }
            }
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        let connections = different(records, |one| one.case.get("connections").cloned());
        let select = |target: &str, request: &str, connections: &str| {
            of_valid(records, |one| {
                one.target == target
                    && case(one, "request") == request
                    && case(one, "connections") == connections
            })
        };
        let cpu = Metric::of_run(Measure::CpuPerOperation);
        let rate = Metric::of_run(Measure::Throughput);
        let mut table = Table::new([
            "request",
            "connections",
            "ours, CPU us",
            "bare, CPU us",
            "times the floor",
            "hash map, CPU us",
            "times the map",
            "ours, requests/s",
            "bare, requests/s",
            "share of the floor",
            "ours, p99",
            "bare, p99",
        ]);
        let mut bars =
            BarChart::new("CPU per request of the server; less is better", Unit::Microseconds)
                .series(OURS)
                .series(FLOOR)
                .series(MAP);
        let mut shares: Vec<(String, f64)> = Vec::new();
        for (request, _, _, kind) in REQUESTS {
            for connections in &connections {
                let [ours, floor, map] =
                    [OURS, FLOOR, MAP].map(|target| select(target, request, connections));
                if ours.is_empty() && floor.is_empty() {
                    continue;
                }
                let p99 = Metric::of_kind(Measure::P99, kind);
                let times = times_of(&ours, &floor, |one| cpu.of(one));
                let times_map = times_of(&ours, &map, |one| cpu.of(one));
                let share = times_of(&ours, &floor, |one| rate.of(one));
                let is_busy = [&ours, &floor].into_iter().any(|side| {
                    median_of(side, told(GENERATOR_BUSY))
                        .is_some_and(|busy| busy > GENERATOR_BUSY_MAX)
                });
                let mark = if is_busy { ", generator busy" } else { "" };
                let name = format!("{request}, {connections} connections");
                shares.extend(times.map(|times| (name.clone(), times)));
                let us = |side: &[&Record]| {
                    or_dash(median_of(side, |one| cpu.of(one)), |value| format!("{value:.2}"))
                };
                let shown = |side: &[&Record], metric: &Metric| {
                    or_dash(median_of(side, |one| metric.of(one)), |value| {
                        metric.unit().format(value)
                    })
                };
                table = table.row([
                    request.to_owned(),
                    connections.clone(),
                    us(&ours),
                    us(&floor),
                    or_dash(times, |times| format!("{times:.2}")),
                    us(&map),
                    or_dash(times_map, |times| format!("{times:.2}")),
                    shown(&ours, &rate),
                    shown(&floor, &rate),
                    or_dash(share, |share| format!("{:.0} %{mark}", 100.0 * share)),
                    shown(&ours, &p99),
                    shown(&floor, &p99),
                ]);
                bars = bars.group(
                    name,
                    [&ours, &floor, &map].map(|side| bar_of(side, |one| cpu.of(one))).into(),
                );
            }
        }
        shares.sort_by(|a, b| a.1.total_cmp(&b.1));
        if let (Some(least), Some(most)) = (shares.first(), shares.last()) {
            report.answer(format!(
                "A request costs the server between {:.2} ({}) and {:.2} ({}) times the CPU time that a \
                 bare HTTP server takes to answer a constant.",
                least.1, least.0, most.1, most.0
            ));
        }
        report.section("CPU time of the server per request");
        let caption = "Medians of runs made in turn; whiskers are 95 % bootstrap intervals. Times and shares of \
                       the floor are medians too, of run beside run. The load generator runs on the \
                       same machine and isn't counted.";
        report.picture("CPU per request, ours and the floor", caption, &bars);
        report.paragraph(&format!(
            "The share of the floor is of requests per second. Where it says that the generator was busy, one of \
             the two kept it so for more than {:.0} % of the time: there it is the share of generator and server \
             together, and nearer to 100 % than the server's own.",
            100.0 * GENERATOR_BUSY_MAX
        ));
        report.summary_table("Ours and the floor", &table);
        let targets = different(records, |one| Some(one.target.clone()));
        let others: Vec<&String> = targets
            .iter()
            .filter(|target| ![OURS, FLOOR, MAP].contains(&target.as_str()))
            .collect();
        if !others.is_empty() {
            report.summary_table("Other servers", &others_table(records, &others, &connections));
        }
        report.section("Latency");
        for (request, _, _, kind) in REQUESTS {
            let Some(connections) = connections
                .iter()
                .rev()
                .find(|connections| !select(OURS, request, connections).is_empty())
            else {
                continue;
            };
            let mut chart = crate::chart::LineChart::percentiles("latency");
            for target in &targets {
                let selection = select(target, request, connections);
                chart = chart.line(target.clone(), percentile_points(selection, kind));
            }
            let title = format!("{request}, {connections} connections");
            report.chart(
                &title,
                "As fast as possible; each nine is as wide as the one before.",
                &chart,
            );
        }
        for baseline in std::iter::once(FLOOR).chain(others.iter().map(|other| other.as_str())) {
            report.comparison(Comparer::Targets { baseline, subject: OURS }.compare(records));
        }
        report
    }
}

/// What a server is for: one that is written to isn't read from.
fn use_of(workload: Workload) -> &'static str {
    if workload.writes() { "written" } else { "read" }
}

/// The same run against the floor, which stores nothing: `server` names the one that is asked.
pub(super) fn floor_of(ours: &PlannedRun, body_bytes: u32, server: String) -> PlannedRun {
    PlannedRun {
        subject: Subject::Bare { body_bytes, keys: 0 },
        target: FLOOR.to_owned(),
        spec: Spec { verify: false, ..ours.spec.clone() },
        shared_store: Some(server),
        options: RunOptions { settle_first: false, settle: false, ..ours.options.clone() },
        ..ours.clone()
    }
}

/// The same run against the floor with a hash map of the keys, which answers what it finds and takes what is
/// put: another for writes than for reads, as with ours.
pub(super) fn map_of(floor: &PlannedRun) -> PlannedRun {
    PlannedRun {
        subject: Subject::Bare { body_bytes: VALUE_BYTES, keys: floor.spec.keys },
        target: MAP.to_owned(),
        shared_store: Some(format!("{MAP} {}", use_of(floor.spec.workload))),
        ..floor.clone()
    }
}

/// Rates and latencies of ours beside those of servers whose processes can't be looked into.
fn others_table(records: &[Record], others: &[&String], connections: &[String]) -> Table {
    let mut table =
        Table::new(["request", "connections", "server", "requests/s", "p50", "p99", "p99.9"]);
    let rate = Metric::of_run(Measure::Throughput);
    for (request, _, _, kind) in REQUESTS {
        for connections in connections {
            for target in std::iter::once(OURS).chain(others.iter().map(|other| other.as_str())) {
                let selection = of_valid(records, |one| {
                    one.target == target
                        && case(one, "request") == request
                        && case(one, "connections") == connections
                });
                let shown = |metric: &Metric| {
                    text(metric.unit(), median_of(&selection, |one| metric.of(one)))
                };
                let latency = |measure| shown(&Metric::of_kind(measure, kind));
                table = table.row([
                    request.to_owned(),
                    connections.clone(),
                    target.to_owned(),
                    shown(&rate),
                    latency(Measure::P50),
                    latency(Measure::P99),
                    latency(Measure::P999),
                ]);
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::record::Outcome;

    /// A generator that has no time left makes a slow server and a fast one look alike.
    #[test]
    fn shares_that_a_busy_generator_has_a_part_in_are_marked() {
        let told = |busy: f64| {
            let record = |planned: PlannedRun| {
                let operations = if planned.target == OURS { 800 } else { 1000 };
                let figures = [(GENERATOR_BUSY.to_owned(), busy)].into();
                let outcome =
                    Outcome { seconds: 1.0, operations, cpu_s: 1.0, figures, ..Outcome::default() };
                planned.name("http-floor").record([].into(), None, SystemTime::now(), outcome)
            };
            let planned = HttpFloor.runs(Scale::Tiny, &[]).unwrap();
            let records: Vec<Record> = planned.into_iter().map(record).collect();
            HttpFloor.report(&records, "rerun").summary_markdown()
        };
        let busy = told(0.95);
        assert!(busy.contains("| 80 %, generator busy |"), "{busy}");
        let quiet = told(0.5);
        assert!(quiet.contains("| 80 % |") && !quiet.contains("generator busy |"), "{quiet}");
    }
}
