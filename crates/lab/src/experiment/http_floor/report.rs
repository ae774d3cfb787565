//! What the runs of `http-floor` say: ours beside the floor and the hash map, and beside other servers.

use super::{FLOOR, MAP, OURS, REQUESTS};
use crate::chart::{BarChart, LineChart, Unit};
use crate::experiment::kept_rate::telling;
use crate::experiment::picks::{
    bar_of, case, different, median_of, of_telling, or_dash, text, times_of, told,
};
use crate::load::GENERATOR_BUSY;
use crate::record::Record;
use crate::report::{Comparer, Measure, Metric, Report, Table, percentile_points};

/// A generator this busy has a part in the rate.
const GENERATOR_BUSY_MAX: f64 = 0.9;

/// Draws all of the report.
pub(super) fn draw(report: &mut Report, records: &[Record]) {
    let rows = rows(records);
    if let Some(answer) = answer(&rows) {
        report.answer(answer);
    }
    report.section("CPU time of the server per request");
    let caption = "Medians of runs made in turn; whiskers are 95 % bootstrap intervals. Times and shares of \
                   the floor are medians too, of run beside run. The load generator runs on the \
                   same machine and isn't counted.";
    report.picture("CPU per request, ours and the floor", caption, &bars(&rows));
    report.paragraph(&format!(
        "The share of the floor is of requests per second. Where it says that the generator was busy, one of \
         the two kept it so for more than {:.0} % of the time: there it is the share of generator and server \
         together, and nearer to 100 % than the server's own.",
        100.0 * GENERATOR_BUSY_MAX
    ));
    report.summary_table("Ours and the floor", &table(&rows));
    let targets = different(records, |one| Some(one.target.clone()));
    let is_other = |target: &&String| ![OURS, FLOOR, MAP].contains(&target.as_str());
    let others: Vec<&String> = targets.iter().filter(is_other).collect();
    if !others.is_empty() {
        report.summary_table("Other servers", &others_table(records, &others));
        report.paragraph(
            "A server that is named by its URL is one process in all repetitions, so that what differs from one \
             process of its kind to the next is in no p.",
        );
    }
    report.section("Latency");
    latencies(report, records, &targets);
    for baseline in std::iter::once(FLOOR).chain(others.iter().map(|other| other.as_str())) {
        report.comparison(Comparer::Targets { baseline, subject: OURS }.compare(records));
    }
}

/// A request at a number of connections, and what the three made of it.
struct Row<'a> {
    request: &'static str,
    /// The kind of operation that it is.
    kind: &'static str,
    connections: String,
    ours: Vec<&'a Record>,
    floor: Vec<&'a Record>,
    map: Vec<&'a Record>,
}

fn connections_of(records: &[Record]) -> Vec<String> {
    different(records, |one| one.case.get("connections").cloned())
}

fn select<'a>(
    records: &'a [Record],
    target: &str,
    request: &str,
    connections: &str,
) -> Vec<&'a Record> {
    of_telling(records, |one| {
        one.target == target
            && case(one, "request") == request
            && case(one, "connections") == connections
    })
}

fn rows(records: &[Record]) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (request, _, _, kind) in REQUESTS {
        for connections in connections_of(records) {
            let [ours, floor, map] =
                [OURS, FLOOR, MAP].map(|target| select(records, target, request, &connections));
            if !(ours.is_empty() && floor.is_empty()) {
                rows.push(Row { request, kind, connections, ours, floor, map });
            }
        }
    }
    rows
}

impl Row<'_> {
    fn name(&self) -> String {
        format!("{}, {} connections", self.request, self.connections)
    }

    /// CPU time of ours as a multiple of that of `side`.
    fn times(&self, side: &[&Record]) -> Option<f64> {
        times_of(&self.ours, side, |one| cpu().of(one))
    }

    /// Whether the generator had a part in the rate of ours or of the floor.
    fn is_generator_busy(&self) -> bool {
        [&self.ours, &self.floor].into_iter().any(|side| {
            median_of(side, told(GENERATOR_BUSY)).is_some_and(|busy| busy > GENERATOR_BUSY_MAX)
        })
    }
}

fn cpu() -> Metric {
    Metric::of_run(Measure::CpuPerOperation)
}

fn rate() -> Metric {
    Metric::of_run(Measure::Throughput)
}

/// Between what times of the floor a request costs.
fn answer(rows: &[Row<'_>]) -> Option<String> {
    let times = rows.iter().filter_map(|row| Some((row.times(&row.floor)?, row.name())));
    let mut times: Vec<(f64, String)> = times.collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, most) = (times.first()?, times.last()?);
    Some(format!(
        "A request costs the server between {:.2} ({}) and {:.2} ({}) times the CPU time that a bare HTTP \
         server takes to answer a constant.",
        least.0, least.1, most.0, most.1
    ))
}

fn table(rows: &[Row<'_>]) -> Table {
    let table = Table::new([
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
    let ratio = |value: Option<f64>| or_dash(value, |value| format!("{value:.2}"));
    let us = |side: &[&Record]| ratio(median_of(side, |one| cpu().of(one)));
    let shown = |side: &[&Record], metric: &Metric| {
        text(metric.unit(), median_of(side, |one| metric.of(one)))
    };
    rows.iter().fold(table, |table, row| {
        let p99 = Metric::of_kind(Measure::P99, row.kind);
        let share = times_of(&row.ours, &row.floor, |one| rate().of(one));
        let mark = if row.is_generator_busy() { ", generator busy" } else { "" };
        table.row([
            row.request.to_owned(),
            row.connections.clone(),
            us(&row.ours),
            us(&row.floor),
            ratio(row.times(&row.floor)),
            us(&row.map),
            ratio(row.times(&row.map)),
            shown(&row.ours, &rate()),
            shown(&row.floor, &rate()),
            or_dash(share, |share| format!("{:.0} %{mark}", 100.0 * share)),
            shown(&row.ours, &p99),
            shown(&row.floor, &p99),
        ])
    })
}

fn bars(rows: &[Row<'_>]) -> BarChart {
    let title = "CPU per request of the server; less is better";
    let chart = BarChart::new(title, Unit::Microseconds).series(OURS).series(FLOOR).series(MAP);
    rows.iter().fold(chart, |chart, row| {
        let bar = |side: &Vec<&Record>| bar_of(side, |one| cpu().of(one));
        chart.group(row.name(), [&row.ours, &row.floor, &row.map].map(bar).into())
    })
}

/// Each request's percentiles, at the most connections that there are of it.
fn latencies(report: &mut Report, records: &[Record], targets: &[String]) {
    let all_connections = connections_of(records);
    for (request, _, _, kind) in REQUESTS {
        let has_ours =
            |connections: &&String| !select(records, OURS, request, connections).is_empty();
        let Some(connections) = all_connections.iter().rev().find(has_ours) else { continue };
        let chart = targets.iter().fold(LineChart::percentiles("latency"), |chart, target| {
            let selection = select(records, target, request, connections);
            chart.line(target.clone(), percentile_points(telling(&selection), kind))
        });
        let title = format!("{request}, {connections} connections");
        let caption = "As fast as possible; each nine is as wide as the one before.";
        report.chart(&title, caption, &chart);
    }
}

/// Rates and latencies of ours beside those of servers whose processes can't be looked into.
fn others_table(records: &[Record], others: &[&String]) -> Table {
    let mut table =
        Table::new(["request", "connections", "server", "requests/s", "p50", "p99", "p99.9"]);
    for (request, _, _, kind) in REQUESTS {
        for connections in &connections_of(records) {
            for target in std::iter::once(OURS).chain(others.iter().map(|other| other.as_str())) {
                let selection = select(records, target, request, connections);
                let shown = |metric: &Metric| {
                    text(metric.unit(), median_of(&selection, |one| metric.of(one)))
                };
                let latency = |measure| shown(&Metric::of_kind(measure, kind));
                table = table.row([
                    request.to_owned(),
                    connections.clone(),
                    target.to_owned(),
                    shown(&rate()),
                    latency(Measure::P50),
                    latency(Measure::P99),
                    latency(Measure::P999),
                ]);
            }
        }
    }
    table
}
