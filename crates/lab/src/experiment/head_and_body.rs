//! `head-and-body`: what it saves to ask for a value's head instead of the value, by value size.
//!
//! Twice: with the store in memory, and with its files dropped from the page cache before each run, so
//! that reads begin at the disk. A cold run asks for few of the keys, so that it stays cold; files are
//! read with `pread`, because mapped pages can't be dropped.

use std::collections::BTreeMap;

use super::picks::{bar_of, case, different, median_of, of_telling, or_dash, text};
use super::planning::only_ours;
use super::{Experiment, PlannedRun, Scale, Subject};
use crate::chart::{BarChart, LineChart, Point, Unit};
use crate::error::Result;
use crate::record::Record;
use crate::report::{Comparer, Measure, Metric, Report, Table};
use crate::run::RunOptions;
use crate::spec::{Durability, Length, Spec, ValueSizes, Workload};
use crate::target::Budget;

const SIZES: [u32; 5] = [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20];
const WAYS: [(&str, &str); 2] = [("engine", "in process"), ("server", "over HTTP")];
const REQUESTS: [(&str, Workload, &str); 2] =
    [("HEAD", Workload::HeadRandom, "head"), ("GET", Workload::ReadRandom, "get")];
const PLACES: [(&str, bool); 2] = [("memory", false), ("disk", true)];

/// The experiment.
pub(super) struct HeadAndBody;

impl Experiment for HeadAndBody {
    fn name(&self) -> &'static str {
        "head-and-body"
    }

    fn question(&self) -> &'static str {
        "What does HEAD save over GET, by the size of the value, in memory and from the disk?"
    }

    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        only_ours(self.name(), against)?;
        let mut runs = Vec::new();
        let data_bytes: u64 = scale.pick(1 << 20, 512 << 20, 8 << 30);
        for repetition in 0..scale.pick(1, 3, 7) {
            for &bytes in scale.pick(&SIZES[..3], &SIZES[..], &SIZES[..]) {
                let keys = (data_bytes / u64::from(bytes + 16)).clamp(64, 2_000_000);
                for (place, cold) in PLACES {
                    let warm = scale.pick(500, 200_000, 1_000_000);
                    let asked = match cold {
                        true => (keys / 8).clamp(50, scale.pick(100, 4_000, 20_000)),
                        // The time of a whole copy to the socket bounds how many are worth asking for.
                        false => (warm * 1_000 / (1_000 + u64::from(bytes) / 4)).max(200),
                    };
                    for (way, _) in WAYS {
                        for (request, workload, _) in REQUESTS {
                            runs.push(planned(
                                way,
                                [("request", request), ("data in", place)],
                                Spec {
                                    workload,
                                    keys,
                                    values: ValueSizes::Fixed(bytes),
                                    length: Length::Operations(asked),
                                    ..Spec::default()
                                },
                                cold,
                                repetition,
                            ));
                        }
                    }
                }
            }
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        let mut all = Vec::new();
        for (place, _) in PLACES {
            report.section(match place {
                "memory" => "With the data in memory",
                _ => "With the data on the disk",
            });
            for (way, words) in WAYS {
                let rows = rows(records, place, way);
                let title = format!("HEAD and GET {words}, data in {place}");
                let caption = "Medians of runs made in turn; the band is the 95 % interval.";
                report.picture(&title, caption, &sweep(&rows));
                report.chart(&format!("CPU, {words}, data in {place}"), caption, &cpu(&rows));
                all.extend(rows.into_iter().map(|row| (place, words, row)));
            }
        }
        if let Some(answer) = answer(&all) {
            report.answer(answer);
        }
        report.summary_table("HEAD against GET", &table(&all));
        report.paragraph(
            "Where the ratio is near 1, a HEAD saves nothing: what a request costs anyway (over HTTP: the \
             request itself; from the disk: finding the key) outweighs the value.",
        );
        let requests = Comparer::Parameter { name: "request", baseline: "GET", subject: "HEAD" };
        report.comparison(requests.compare(&as_requests(records)));
        report
    }
}

/// Both requests for values of a size.
struct Row<'a> {
    size: u32,
    /// The records of each of the requests.
    records: [Vec<&'a Record>; 2],
}

/// The rows of a place and a way.
fn rows<'a>(records: &'a [Record], place: &str, way: &str) -> Vec<Row<'a>> {
    let of = |request: &str, size: u32| {
        of_telling(records, |one| {
            one.target == way
                && case(one, "request") == request
                && case(one, "data in") == place
                && size_of(one) == size
        })
    };
    let sizes = different(records, |one| Some(size_of(one)));
    let row = |size| Row { size, records: REQUESTS.map(|(request, ..)| of(request, size)) };
    sizes.into_iter().map(row).collect()
}

impl Row<'_> {
    /// A latency of HEAD and of GET.
    fn latency(&self, measure: Measure) -> [Option<f64>; 2] {
        [0, 1].map(|request| {
            let metric = Metric::of_kind(measure, REQUESTS[request].2);
            median_of(&self.records[request], |one| metric.of(one))
        })
    }

    /// How many times as long as a HEAD a GET takes in the median.
    fn times(&self) -> Option<f64> {
        let [head, get] = self.latency(Measure::P50);
        head.zip(get).map(|(head, get)| get / head)
    }

    fn value(&self) -> String {
        Unit::Bytes.format(f64::from(self.size))
    }
}

/// The median latency of each request by the value's size.
fn sweep(rows: &[Row<'_>]) -> LineChart {
    let chart =
        LineChart::sweep("value size", Unit::Bytes, "median latency", Unit::Nanoseconds).log_x();
    let requests = REQUESTS.iter().enumerate();
    requests.fold(chart.log_y(), |chart, (at, (request, _, kind))| {
        let p50 = Metric::of_kind(Measure::P50, *kind);
        let points = rows.iter().filter_map(|row| {
            let bar = bar_of(&row.records[at], |one| p50.of(one))?;
            let point = Point::new(f64::from(row.size), bar.value);
            Some(Point { band: bar.interval, ..point })
        });
        chart.line(*request, points.collect())
    })
}

fn cpu(rows: &[Row<'_>]) -> BarChart {
    let per_operation = Metric::of_run(Measure::CpuPerOperation);
    let chart = BarChart::new("CPU per request; less is better", Unit::Microseconds);
    let chart = REQUESTS.iter().fold(chart, |chart, (request, ..)| chart.series(*request));
    rows.iter().fold(chart, |chart, row| {
        let bars = row.records.iter().map(|side| bar_of(side, |one| per_operation.of(one)));
        chart.group(row.value(), bars.collect())
    })
}

/// Between how many times as long as its HEAD a GET takes; the rows come with their place and their way.
fn answer(rows: &[(&str, &str, Row<'_>)]) -> Option<String> {
    let told = rows.iter().filter_map(|(place, words, row)| {
        Some((row.times()?, format!("{} {words} with the data in {place}", row.value())))
    });
    let mut told: Vec<(f64, String)> = told.collect();
    told.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, most) = (told.first()?, told.last()?);
    Some(format!(
        "In the median a GET takes between {:.2} times ({}) and {:.1} times ({}) as long as the HEAD of the \
         same key.",
        least.0, least.1, most.0, most.1
    ))
}

fn table(rows: &[(&str, &str, Row<'_>)]) -> Table {
    let table = Table::new([
        "value",
        "data in",
        "way",
        "HEAD p50",
        "GET p50",
        "GET / HEAD",
        "HEAD p99",
        "GET p99",
    ]);
    rows.iter().fold(table, |table, (place, words, row)| {
        let ns = |figure| text(Unit::Nanoseconds, figure);
        let [head, get] = row.latency(Measure::P50).map(ns);
        let [head_p99, get_p99] = row.latency(Measure::P99).map(ns);
        let times = or_dash(row.times(), |times| format!("{times:.2}"));
        let (place, words) = (place.to_string(), words.to_string());
        table.row([row.value(), place, words, head, get, times, head_p99, get_p99])
    })
}

/// The records with both kinds of request under one name, as a comparison of the two needs them.
fn as_requests(records: &[Record]) -> Vec<Record> {
    let one_name = |record: &Record| {
        let mut record = record.clone();
        record.spec.workload = Workload::ReadRandom;
        let kinds = std::mem::take(&mut record.outcome.kinds);
        record.outcome.kinds =
            kinds.into_values().map(|outcome| ("request".to_owned(), outcome)).collect();
        record
    };
    records.iter().map(one_name).collect()
}

fn size_of(record: &Record) -> u32 {
    match record.spec.values {
        ValueSizes::Fixed(bytes) => bytes,
        ValueSizes::Uniform { max, .. } | ValueSizes::Pareto { max, .. } => max,
    }
}

fn planned(
    way: &str,
    parameters: [(&str, &str); 2],
    spec: Spec,
    cold: bool,
    repetition: u32,
) -> PlannedRun {
    let ValueSizes::Fixed(bytes) = spec.values else { unreachable!("sizes are fixed here") };
    let reading = BTreeMap::from([("reading".to_owned(), "pread".to_owned())]);
    let mut case: BTreeMap<String, String> =
        parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    case.insert("value bytes".to_owned(), bytes.to_string());
    let warm_up = match spec.length {
        Length::Operations(count) if !cold => Some(Length::Operations(count / 4)),
        _ => None,
    };
    PlannedRun {
        case,
        subject: match way {
            "engine" => Subject::Engine { settings: reading },
            _ => Subject::Server { flags: reading },
        },
        target: way.to_owned(),
        repetition,
        prefill: None,
        spec,
        options: RunOptions { warm_up, settle: false, cold, ..RunOptions::default() },
        // A small cache of its own: what is warm is in the page cache, and can be dropped from it.
        budget: Budget {
            write_buffer_bytes: 16 << 20,
            cache_bytes: 1 << 20,
            durability: Durability::Os,
        },
        shared_store: Some(format!("{way}, {bytes} bytes, repetition {repetition}")),
        is_profiled: false,
        memory_bytes_max: None,
    }
}
