//! A report with a chart of every kind, made from synthetic records: what its tests look at.

use std::path::Path;

use tallybook_lab::chart::{
    BarChart, HeatCell, HeatTable, LineChart, Point, StackedAreas, StackedBar, StackedBars,
    StripChart, StripRow, Unit,
};
use tallybook_lab::record::Record;
use tallybook_lab::report::{
    Comparer, FlameGraph, Measure, Metric, Report, Table, percentile_points, time_points,
};
use tallybook_lab::runs_file::load_records;
use tallybook_lab::statistics::{Bootstrap, median};

use crate::synthetic::{HOSTILE, records};

const TARGETS: [&str; 5] = ["tallybook", "rocksdb tuned", "leveldb", "lmdb", "redb"];
const WORKLOADS: [&str; 4] = ["readrandom", "fillrandom", "readmissing", "ycsb-a"];

/// What an interactive flame graph is made of: a script, and a handler that calls it.
const FLAME: &str = r##"<?xml version="1.0" standalone="no"?><svg version="1.1" width="1200"
 height="150" onload="init(evt)" viewBox="0 0 1200 150" xmlns="http://www.w3.org/2000/svg"
><script type="text/ecmascript"><![CDATA[
function init(evt) { if (1 < 2) parent.postMessage("flame graph drawn", "*"); }
]]></script><rect width="100%" height="150" fill="#eeeeb0"/><rect x="10" y="90" width="1100"
 height="20" fill="rgb(227,120,30)"/><rect x="10" y="65" width="600" height="20"
 fill="rgb(240,160,60)"/><text x="14" y="104" font-size="12" font-family="monospace">all</text></svg>"##;

fn of<'a>(records: &'a [Record], target: &str, workload: &str) -> Vec<&'a Record> {
    let wanted = |one: &&Record| one.target == target && one.spec.workload.name() == workload;
    records.iter().filter(wanted).collect()
}

fn figures(records: &[Record], target: &str, workload: &str, measure: Measure) -> Vec<f64> {
    let metric = Metric::of_run(measure);
    of(records, target, workload).into_iter().filter_map(|one| metric.of(one)).collect()
}

fn rates(record: &Record) -> Vec<f64> {
    record.outcome.per_second.iter().map(|count| *count as f64).collect()
}

/// A report with a chart of every kind.
fn report(records: Vec<Record>, flames: bool) -> Report {
    let rerun = "tallybook lab run rivals --scale small";
    let question = "How many operations per second does Tallybook answer, and at what CPU cost, \
                    beside the engines people use today?";
    let mut report = Report::new("rivals", question, rerun, records);
    let records = report.records().to_vec();
    let ours = median(&figures(&records, "tallybook", "readrandom", Measure::Throughput));
    let theirs = median(&figures(&records, "rocksdb tuned", "readrandom", Measure::Throughput));
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    report.answer(format!(
        "At random reads Tallybook answers {}, {:.2} times as many as tuned RocksDB ({}).",
        Unit::PerSecond.format(ours),
        ours / theirs,
        Unit::PerSecond.format(theirs)
    ));
    report.section("What it shows");
    report.paragraph(
        "Every engine has the same memory and the same durability; runs are made in turn.",
    );
    add_bars(&mut report, &records);
    add_heat(&mut report, &records);
    report.section("How long requests take");
    add_latencies(&mut report, &records);
    add_parts(&mut report);
    add_runs(&mut report, &records);
    let comparer = |baseline| Comparer::Targets { baseline, subject: "tallybook" };
    for baseline in ["rocksdb tuned", "lmdb"] {
        let comparison = comparer(baseline).compare(&records);
        let chart = comparison.chart(&[Measure::Throughput, Measure::P99]);
        let title = format!("Tallybook against {baseline}");
        report.chart(&title, "Medians of runs made in pairs; bars are 95 % intervals.", &chart);
        report.comparison(comparison);
    }
    report.paragraph(HOSTILE);
    if flames {
        let graph = |title: &str| FlameGraph { title: title.to_owned(), svg: FLAME.to_owned() };
        report.section("Where the time goes");
        report.flame_graphs(&[graph("CPU, one flush thread"), graph("CPU, four flush threads")]);
    }
    report
}

fn add_bars(report: &mut Report, records: &[Record]) {
    let mut chart = BarChart::new("operations per second; more is better", Unit::PerSecond);
    let mut table = Table::new(["workload"].into_iter().chain(TARGETS));
    for target in TARGETS {
        chart = chart.series(target);
    }
    for workload in WORKLOADS {
        let bar = |target: &str| {
            let figures = figures(records, target, workload, Measure::Throughput);
            Bootstrap::default().median(&figures)
        };
        chart = chart.group(workload, TARGETS.map(|target| bar(target).map(Into::into)).to_vec());
        let cells = TARGETS.map(|target| {
            bar(target).map_or("-".to_owned(), |bar| Unit::PerSecond.format(bar.estimate))
        });
        table = table.row([workload.to_owned()].into_iter().chain(cells));
    }
    let caption = "Medians of six runs; whiskers are 95 % bootstrap intervals.";
    report.picture("Operations per second, by workload and engine", caption, &chart);
    report.summary_table("Operations per second", &table);
}

fn add_heat(report: &mut Report, records: &[Record]) {
    let rate = |target: &str, workload: &str| {
        median(&figures(records, target, workload, Measure::Throughput)).unwrap()
    };
    let row = |workload: &str| {
        let cell = |target: &str| {
            let goodness = rate(target, workload) / rate("rocksdb tuned", workload);
            let note = Unit::PerSecond.format(rate(target, workload));
            Some(HeatCell { text: Unit::Ratio.format(goodness), goodness, note })
        };
        (workload.to_owned(), TARGETS.map(cell).to_vec())
    };
    let table = HeatTable {
        title: "operations per second, as multiples of tuned RocksDB's; blue is faster".to_owned(),
        columns: TARGETS.map(str::to_owned).to_vec(),
        rows: WORKLOADS.map(row).to_vec(),
    };
    report.picture("Who is faster, and by how much", "Each cell is a ratio of medians.", &table);
}

fn add_latencies(report: &mut Report, records: &[Record]) {
    let mut curve = LineChart::percentiles("latency");
    let mut time = LineChart::over_time("operations per second", Unit::PerSecond);
    let mut sweep =
        LineChart::sweep("value size", Unit::Bytes, "CPU per operation", Unit::Microseconds)
            .log_x();
    for (slot, target) in TARGETS.into_iter().enumerate() {
        curve = curve.line(target, percentile_points(of(records, target, "readrandom"), "get"));
        if slot < 3 {
            time = time.line(target, time_points(of(records, target, "readrandom"), rates));
        }
        let size = |power: i32| 100.0 * 4f64.powi(power);
        let points =
            (0..7).map(|power| Point::new(size(power), (slot + 2 + power as usize) as f64));
        sweep = sweep.line(target, points.collect());
    }
    let caption =
        "Each nine is as wide as the one before; the band spans six runs. Hover for figures.";
    report.picture("Latency of a get, by percentile", caption, &curve);
    let time = time.mark(25.0, "flush");
    report.chart("Gets answered in each second", "Dips are flushes.", &time);
    report.chart("CPU by value size", "Every point is a run.", &sweep);
}

fn add_parts(report: &mut Report) {
    let parts = ["filter", "index", "block", "body"].map(str::to_owned).to_vec();
    let bar =
        |name: &str, parts: &[f64]| StackedBar { name: name.to_owned(), parts: parts.to_vec() };
    let bars = StackedBars {
        title: "mean time per get".to_owned(),
        unit: Unit::Microseconds,
        parts: parts.clone(),
        bars: vec![bar("hit", &[0.1, 0.2, 0.6, 0.8]), bar("miss", &[0.3, 0.1, 0.05, 0.0])],
    };
    report.chart("Where a get spends its time", "Stages, from the engine's own timers.", &bars);
    let moment = |at: u32| (f64::from(at), vec![1.0, 2.0, 3.0 + f64::from(at % 30) / 10.0, 2.0]);
    let areas = StackedAreas {
        title: "CPU per get".to_owned(),
        unit: Unit::Microseconds,
        parts,
        moments: (0..=120).map(moment).collect(),
    };
    report.chart("The same over time", "Blocks cost more as the cache fills.", &areas);
}

fn add_runs(report: &mut Report, records: &[Record]) {
    let row = |(slot, target): (usize, &str)| {
        let runs = figures(records, target, "readrandom", Measure::Throughput);
        let median = Bootstrap::default().median(&runs);
        StripRow { name: target.to_owned(), slot, runs, median }
    };
    let chart = StripChart {
        title: "operations per second".to_owned(),
        unit: Unit::PerSecond,
        log: false,
        rows: TARGETS.into_iter().enumerate().map(row).collect(),
    };
    let caption =
        "Each dot is a run, first on top; the upright line is the median, the bar its interval.";
    report.chart("Every run of readrandom", caption, &chart);
}

/// Writes the report as an experiment would, runs first, and gives the page's address.
pub(crate) fn write(directory: &Path, flames: bool) -> String {
    let mut made = records(6, 120);
    made[3].outcome.invalid = Some("the generator lagged by 1.2 s".to_owned());
    let lines = made.iter().map(|record| serde_json::to_string(record).unwrap() + "\n");
    let path = directory.join("runs.jsonl");
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    let report = report(load_records(&path).unwrap(), flames);
    report.write(directory).unwrap();
    format!("file://{}", directory.join("report.html").display())
}
