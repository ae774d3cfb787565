//! Where the time goes, stage by stage, over a long mixed load.
//!
//! Half reads, half updates, a tenth of the reads of absent keys, values long enough to stay in the
//! journal, so that a get reads a head and then a body. The load is cut into intervals on one store:
//! each leaves a record, for hours if need be. One that was interrupted begins anew: its store is gone.

use super::picks::{latency, median_of, of_case, rate_of, text, told, values_of};
use super::planning::{MIB, at_rate, budget, engine, only_ours, run, seed};
use super::{Experiment, PlannedRun, Scale};
use crate::chart::{LineChart, Point, StackedBar, StackedBars, Unit};
use crate::error::Result;
use crate::record::Record;
use crate::report::{Report, Table};
use crate::spec::{Spec, ValueSizes, Workload};

/// The experiment.
#[derive(Debug)]
pub(super) struct StagesOverTime;

/// Charts of stages: title, how to read it, and the stages.
const CHARTS: [(&str, &str, &[&str]); 4] = [
    (
        "Get",
        "Finding the entry of a key against getting its value.",
        &["get.total", "get.head", "get.body"],
    ),
    (
        "Put",
        "The parts of a put; the total holds what lies between them too.",
        &["put.total", "put.prepare", "put.stall", "put.wait", "put.journal", "put.memtable"],
    ),
    (
        "Head by where the entry was",
        "Deeper levels are asked after the ones above; a miss asks them all.",
        &["head.memory", "head.l0", "head.l1", "head.l2", "head.lower", "head.missed"],
    ),
    (
        "Inside a table",
        "One file's part of finding an entry.",
        &[
            "table.index",
            "table.filter",
            "table.recent",
            "table.cache",
            "table.fetch",
            "table.search",
        ],
    ),
];
/// Where reads ended.
const FOUND: [&str; 6] =
    ["head.memory", "head.l0", "head.l1", "head.l2", "head.lower", "head.missed"];
/// Where requests to one file ended.
const FILES: [&str; 6] =
    ["file.index", "file.filter", "file.recent", "file.cache", "file.block", "file.in_vain"];
/// Bars of intervals that are drawn, at most.
const BARS_MAX: usize = 12;

struct Size {
    intervals: u32,
    interval_seconds: f64,
    rate: f64,
    keys: u64,
    memtable_bytes: u64,
}

impl Size {
    fn of(scale: Scale) -> Size {
        match scale {
            Scale::Tiny => Size {
                intervals: 3,
                interval_seconds: 0.2,
                rate: 5_000.0,
                keys: 2_000,
                memtable_bytes: 64 << 10,
            },
            Scale::Small => Size {
                intervals: 60,
                interval_seconds: 15.0,
                rate: 10_000.0,
                keys: 400_000,
                memtable_bytes: 4 * MIB,
            },
            Scale::Full => Size {
                intervals: 720,
                interval_seconds: 60.0,
                rate: 20_000.0,
                keys: 20_000_000,
                memtable_bytes: 64 * MIB,
            },
        }
    }

    fn planned(&self, interval: u32) -> PlannedRun {
        let spec = Spec {
            workload: Workload::YcsbA,
            keys: self.keys,
            values: ValueSizes::Fixed(1500),
            missing: 0.1,
            seed: seed(0, interval),
            ..Spec::default()
        };
        let memtable = self.memtable_bytes.to_string();
        let settings = [("sample_every", "16"), ("memtable_bytes", &*memtable)];
        let number = format!("{:04}", interval + 1);
        let spec = at_rate(self.rate, self.interval_seconds, spec);
        let mut planned = run(0, &[("interval", &number)], engine(&settings), spec);
        // The load goes on from one interval to the next, with whatever work it left behind.
        planned.options.settle = false;
        planned.budget = budget(self.memtable_bytes * 4);
        planned.shared_store = Some("intervals".to_owned());
        planned
    }
}

impl Experiment for StagesOverTime {
    fn name(&self) -> &'static str {
        "stages-over-time"
    }

    fn question(&self) -> &'static str {
        "Where does the time of gets and puts go, and does that change over a long mixed load?"
    }

    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        only_ours(self.name(), against)?;
        let size = Size::of(scale);
        Ok((0..size.intervals).map(|interval| size.planned(interval)).collect())
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        let intervals = intervals(records);
        if let Some(answer) = answer(&intervals) {
            report.answer(answer);
        }
        latency_section(&mut report, &intervals);
        stages_section(&mut report, &intervals);
        exits_section(&mut report, &intervals);
        report
    }
}

/// An interval: when it ended, in seconds of load, and its records.
struct Interval<'a> {
    ended_s: f64,
    records: Vec<&'a Record>,
}

fn intervals(records: &[Record]) -> Vec<Interval<'_>> {
    let mut names = values_of(records, "interval");
    names.sort();
    let mut ended_s = 0.0;
    let interval = |name: &String| {
        let records = of_case(records, &[("interval", name)]);
        ended_s += median_of(&records, |record| Some(record.outcome.seconds)).unwrap_or(0.0);
        Interval { ended_s, records }
    };
    names.iter().map(interval).collect()
}

/// A figure over time.
fn points(intervals: &[Interval<'_>], figure: impl Fn(&Record) -> Option<f64>) -> Vec<Point> {
    let point = |interval: &Interval<'_>| {
        let y = median_of(&interval.records, &figure)?;
        Some(Point::new(interval.ended_s, y))
    };
    intervals.iter().filter_map(point).collect()
}

/// The mean of a stage, where there was any in the interval.
fn stage_mean(stage: &str) -> impl Fn(&Record) -> Option<f64> + use<> {
    let (count, mean) = (format!("stage.{stage}.count"), format!("stage.{stage}.mean_ns"));
    move |record| {
        told(&count)(record).filter(|count| *count > 0.0)?;
        told(&mean)(record)
    }
}

fn answer(intervals: &[Interval<'_>]) -> Option<String> {
    let (first, last) = (intervals.first()?, intervals.last()?);
    let mean = |interval: &Interval<'_>, stage| median_of(&interval.records, stage_mean(stage));
    let (head, body) = (mean(last, "get.head")?, mean(last, "get.body")?);
    let (total, before) = (mean(last, "get.total")?, mean(first, "get.total")?);
    let (put, put_before) = (mean(last, "put.total")?, mean(first, "put.total")?);
    let journal = mean(last, "put.journal")?;
    let ns = |value| Unit::Nanoseconds.format(value);
    Some(format!(
        "After {} of mixed load a get takes {} on average ({} in the first interval), finding its head {} \
         and getting its body {}, and a put {} ({} in the first), of which {} go to the journal.",
        Unit::Seconds.format(last.ended_s),
        ns(total),
        ns(before),
        ns(head),
        ns(body),
        ns(put),
        ns(put_before),
        ns(journal),
    ))
}

fn latency_section(report: &mut Report, intervals: &[Interval<'_>]) {
    let mut chart = LineChart::over_time("latency from when due", Unit::Nanoseconds).log_y();
    for kind in ["get", "put"] {
        chart = chart
            .line(format!("{kind} p50"), points(intervals, latency(kind, |one| one.p50_ns)))
            .line(format!("{kind} p99"), points(intervals, latency(kind, |one| one.p99_ns)));
    }
    report
        .section("Latency from outside")
        .paragraph("Each point is an interval's, at its end; all are of one store under one load.")
        .chart("Latency over time", "Level lines mean that age costs nothing.", &chart);
}

fn stages_section(report: &mut Report, intervals: &[Interval<'_>]) {
    report.section("Stages").paragraph(
        "Means as the engine measures them inside: one get or put in sixteen is timed. A stage that did not \
         happen in an interval has no point there.",
    );
    for (at, (title, caption, stages)) in CHARTS.iter().enumerate() {
        let chart = stages
            .iter()
            .fold(LineChart::over_time("mean", Unit::Nanoseconds).log_y(), |chart, stage| {
                chart.line(*stage, points(intervals, stage_mean(stage)))
            });
        if at == 0 {
            report.picture("Stages of a get over time", caption, &chart);
        } else {
            report.chart(title, caption, &chart);
        }
    }
    let mut table =
        Table::new(["stage", "first interval", "last interval", "p99 in the last", "timed in it"]);
    for stage in CHARTS.iter().flat_map(|(_, _, stages)| stages.iter()) {
        let of = |interval: Option<&Interval<'_>>, figure: &dyn Fn(&Record) -> Option<f64>| {
            interval.and_then(|interval| median_of(&interval.records, figure))
        };
        let (first, last) = (intervals.first(), intervals.last());
        let count = format!("stage.{stage}.count");
        let p99 = format!("stage.{stage}.p99_ns");
        table = table.row([
            (*stage).to_owned(),
            text(Unit::Nanoseconds, of(first, &stage_mean(stage))),
            text(Unit::Nanoseconds, of(last, &stage_mean(stage))),
            text(Unit::Nanoseconds, of(last, &told(&p99)).filter(|ns| *ns > 0.0)),
            text(Unit::Count, of(last, &told(&count))),
        ]);
    }
    report.summary_table("Stage means", &table);
}

fn exits_section(report: &mut Report, intervals: &[Interval<'_>]) {
    report.section("Where reads ended").paragraph(
        "Counted, not sampled. A request to a file that ends at its filter reads no block; one in vain \
         read a block that held nothing for it.",
    );
    let step = intervals.len().div_ceil(BARS_MAX).max(1);
    for (title, exits) in [("Reads by level", FOUND), ("Requests to files", FILES)] {
        let share = |interval: &Interval<'_>| {
            let count = |exit: &str| {
                median_of(&interval.records, told(&format!("exit.{exit}"))).unwrap_or(0.0)
            };
            let counts = exits.map(count);
            let all: f64 = counts.iter().sum::<f64>().max(1.0);
            StackedBar {
                name: format!("to {}", Unit::Seconds.format(interval.ended_s)),
                parts: counts.map(|count| count / all).to_vec(),
            }
        };
        let chart = StackedBars {
            title: format!("{title}, shares"),
            unit: Unit::Share,
            parts: exits.map(str::to_owned).to_vec(),
            bars: intervals.iter().step_by(step).map(share).collect(),
        };
        report.chart(title, "Each bar is one interval; its parts add up to all.", &chart);
    }
    let mut table = Table::new(["until", "gets", "puts", "flushes", "compactions", "collections"]);
    for interval in intervals.iter().step_by(step) {
        let of = |figure: &dyn Fn(&Record) -> Option<f64>| median_of(&interval.records, figure);
        table = table.row([
            Unit::Seconds.format(interval.ended_s),
            text(Unit::PerSecond, of(&|record| rate_of(record, "get"))),
            text(Unit::PerSecond, of(&|record| rate_of(record, "put"))),
            text(Unit::Count, of(&told("flush.count"))),
            text(Unit::Count, of(&told("compaction.count"))),
            text(Unit::Count, of(&told("collection.count"))),
        ]);
    }
    report.table("What was done", &table);
}
