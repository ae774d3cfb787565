//! What flushes do to latency: to writers while one is under way, to readers as tables accumulate.
//!
//! 1. Puts at a constant rate across flushes: with the usual background flush, with one that writers
//!    wait for, and with none. The engine has no flush in the writer's own thread; a write buffer of
//!    one memtable is nearest: while a memtable is flushed, writers are let in no faster than the flush
//!    drains.
//! 2. Gets of keys that are there against keys that are not.
//! 3. Gets beside a writer, interval by interval on one store, with and without compaction.

use super::picks::{
    LatencyRow, latency, latency_table, longest_chart, median_of, of_case, percentile_chart, text,
    told, values_of,
};
use super::planning::{MIB, at_rate, budget, engine, only_ours, run, seed};
use super::{Experiment, PlannedRun, Scale};
use crate::chart::{LineChart, Point, Unit};
use crate::error::Result;
use crate::record::Record;
use crate::report::{Comparer, Report, Table};
use crate::spec::{Spec, ValueSizes, Workload};

/// The experiment.
#[derive(Debug)]
pub(super) struct FlushStall;

/// How flushes are made: name, memory for writes in memtables, what it is.
const FLUSHES: [(&str, u64, &str); 3] = [
    ("background", 8, "in the background, while up to seven more memtables take writes"),
    ("waited for", 1, "in the background, but memory for one memtable: writers go as it drains"),
    ("none", 0, "none during the run: the memtable is larger than all that is put"),
];
/// Gets: of which keys, and the share that is absent.
const READS: [(&str, f64); 2] = [("there", 0.0), ("not there", 1.0)];
const COMPACTION: [(&str, &str); 2] = [("on", "true"), ("off", "false")];

struct Size {
    repetitions: u32,
    put_rate: f64,
    put_seconds: f64,
    memtable_bytes: u64,
    read_keys: u64,
    read_rate: f64,
    read_seconds: f64,
    intervals: u32,
    interval_seconds: f64,
    write_rate: f64,
}

impl Size {
    fn of(scale: Scale) -> Size {
        match scale {
            Scale::Tiny => Size {
                repetitions: 1,
                put_rate: 10_000.0,
                put_seconds: 0.1,
                memtable_bytes: 128 << 10,
                read_keys: 2_000,
                read_rate: 5_000.0,
                read_seconds: 0.1,
                intervals: 2,
                interval_seconds: 0.1,
                write_rate: 10_000.0,
            },
            Scale::Small => Size {
                repetitions: 5,
                put_rate: 20_000.0,
                put_seconds: 15.0,
                memtable_bytes: 8 * MIB,
                read_keys: 500_000,
                read_rate: 20_000.0,
                read_seconds: 8.0,
                intervals: 8,
                interval_seconds: 4.0,
                write_rate: 20_000.0,
            },
            Scale::Full => Size {
                repetitions: 10,
                put_rate: 50_000.0,
                // Longer, and all that is put would not fit the largest memtable.
                put_seconds: 30.0,
                memtable_bytes: 64 * MIB,
                read_keys: 20_000_000,
                read_rate: 20_000.0,
                read_seconds: 60.0,
                intervals: 20,
                interval_seconds: 30.0,
                write_rate: 20_000.0,
            },
        }
    }

    fn puts(&self, repetition: u32, flush: &str, memtables: u64) -> PlannedRun {
        let spec = at_rate(
            self.put_rate,
            self.put_seconds,
            Spec {
                workload: Workload::FillRandom,
                keys: (self.put_rate * self.put_seconds) as u64,
                values: ValueSizes::Fixed(500),
                seed: seed(repetition, 0),
                ..Spec::default()
            },
        );
        // An entry takes less than 100 bytes beside its value in a memtable.
        let all_bytes = (spec.keys * 600).clamp(MIB, 1 << 30);
        let (memtable_bytes, buffer_bytes) = match memtables {
            0 => (all_bytes, all_bytes * 4),
            many => (self.memtable_bytes, self.memtable_bytes * many),
        };
        let memtable = memtable_bytes.to_string();
        let journal = (all_bytes * 2).to_string();
        let settings = [("memtable_bytes", &*memtable), ("memtable_journal_bytes", &journal)];
        PlannedRun {
            budget: budget(buffer_bytes),
            ..run(repetition, &[("part", "puts"), ("flush", flush)], engine(&settings), spec)
        }
    }

    fn reads(&self, repetition: u32, reads: &str, missing: f64) -> PlannedRun {
        let spec = Spec {
            // Not `readmissing`: one workload's cases can be compared.
            workload: Workload::ReadRandom,
            keys: self.read_keys,
            missing,
            seed: seed(repetition, 0),
            ..Spec::default()
        };
        let spec = at_rate(self.read_rate, self.read_seconds, spec);
        PlannedRun {
            shared_store: Some(format!("reads {repetition}")),
            ..run(repetition, &[("part", "reads"), ("keys", reads)], engine(&[]), spec)
        }
    }

    fn accumulating(&self, repetition: u32, interval: u32, compaction: (&str, &str)) -> PlannedRun {
        let spec = Spec {
            workload: Workload::ReadWhileWriting,
            // Few, so that filling the store leaves few tables and the intervals make the rest.
            keys: self.read_keys / 10,
            background_rate: self.write_rate,
            seed: seed(repetition, interval),
            ..Spec::default()
        };
        let spec = at_rate(self.read_rate / 4.0, self.interval_seconds, spec);
        let memtable = (self.memtable_bytes / 8).max(64 << 10).to_string();
        // Without compaction writers would be slowed for the many runs that are wanted here.
        let settings = [
            ("memtable_bytes", &*memtable),
            ("background", compaction.1),
            ("level_runs_max", if compaction.1 == "true" { "8" } else { "64" }),
        ];
        let number = format!("{:03}", interval + 1);
        let case = [("part", "tables"), ("compaction", compaction.0), ("interval", &*number)];
        let mut planned = run(repetition, &case, engine(&settings), spec);
        // Settling would let compaction catch up between intervals, which no real reader has.
        planned.options.settle = false;
        planned.shared_store = Some(format!("compaction {} {repetition}", compaction.0));
        planned
    }
}

impl Experiment for FlushStall {
    fn name(&self) -> &'static str {
        "flush-stall"
    }

    fn question(&self) -> &'static str {
        "How much do flushes delay writers, and the tables they leave behind readers?"
    }

    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        only_ours(self.name(), against)?;
        let size = Size::of(scale);
        let mut runs = Vec::new();
        for repetition in 0..size.repetitions {
            let puts = |(flush, memtables, _)| size.puts(repetition, flush, memtables);
            runs.extend(FLUSHES.map(puts));
            runs.extend(READS.map(|(reads, missing)| size.reads(repetition, reads, missing)));
            for compaction in COMPACTION {
                let interval = |at| size.accumulating(repetition, at, compaction);
                runs.extend((0..size.intervals).map(interval));
            }
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        if let Some(answer) = answer(records) {
            report.answer(answer);
        }
        puts_section(&mut report, records);
        reads_section(&mut report, records);
        tables_section(&mut report, records);
        report
    }
}

fn puts_of<'a>(records: &'a [Record], flush: &str) -> Vec<&'a Record> {
    of_case(records, &[("part", "puts"), ("flush", flush)])
}

fn answer(records: &[Record]) -> Option<String> {
    let p999 = |records: &[&Record], kind| median_of(records, latency(kind, |one| one.p999_ns));
    let put = |flush| p999(&puts_of(records, flush), "put");
    let (background, waited, none) = (put("background")?, put("waited for")?, put("none")?);
    let get = |keys| p999(&of_case(records, &[("part", "reads"), ("keys", keys)]), "get");
    let (hit, miss) = (get("there")?, get("not there")?);
    let last = values_of(records, "interval").pop()?;
    let beside = |compaction| {
        let of = of_case(records, &[("compaction", compaction), ("interval", &last)]);
        Some((median_of(&of, latency("get", |one| one.p50_ns))?, median_of(&of, runs_in_level_0)?))
    };
    let (on, off) = (beside("on")?, beside("off")?);
    let ns = |value| Unit::Nanoseconds.format(value);
    Some(format!(
        "Across flushes the p99.9 of puts is {}, against {} when writers wait for the flush and {} \
         without any; that of gets is {} for keys that are not there and {} for those that are; and \
         after the last interval beside a writer the median get takes {} with compaction ({:.0} tables \
         in level 0), {} without ({:.0}).",
        ns(background),
        ns(waited),
        ns(none),
        ns(miss),
        ns(hit),
        ns(on.0),
        on.1,
        ns(off.0),
        off.1,
    ))
}

/// Runs in level 0, each one flush's, at the end of a run; a level without any tells nothing.
fn runs_in_level_0(record: &Record) -> Option<f64> {
    Some(told("level0.runs")(record).unwrap_or(0.0))
}

fn puts_section(report: &mut Report, records: &[Record]) {
    report.section("Puts across flushes").paragraph(
        "Puts are due at even intervals, and latency counts from when each was due, so that a pause is \
         charged to every request that it held up. The engine always flushes in a thread of its own; \
         where writers wait for it, the write buffer has room for one memtable alone.",
    );
    let rows: Vec<LatencyRow<'_>> = FLUSHES
        .iter()
        .map(|(flush, _, what)| LatencyRow {
            name: format!("{flush}: {what}"),
            records: puts_of(records, flush),
            kind: "put",
        })
        .collect();
    let short = |flush: &str| LatencyRow {
        name: flush.to_owned(),
        records: puts_of(records, flush),
        kind: "put",
    };
    report.picture(
        "Put latency by flush",
        "Further right is rarer; where lines part, flushes are felt.",
        &percentile_chart(&FLUSHES.map(|(flush, _, _)| short(flush))),
    );
    report.summary_table("Puts", &latency_table(&rows));
    let longest =
        longest_chart("longest put in each second", &FLUSHES.map(|(flush, _, _)| short(flush)));
    report.chart(
        "The longest put in each second",
        "The line is the median of the repetitions, the band reaches from the lowest to the highest.",
        &longest,
    );
    let flushes = FLUSHES.iter().fold(
        Table::new(["flush", "flushes in a run", "puts slowed", "slowed for"]),
        |table, (flush, _, _)| {
            let of = puts_of(records, flush);
            let figure = |name, unit| text(unit, median_of(&of, told(name)));
            table.row([
                (*flush).to_owned(),
                figure("flush.count", Unit::Count),
                figure("stall.count", Unit::Count),
                figure("stall.seconds", Unit::Seconds),
            ])
        },
    );
    report.table("What the engine did meanwhile (a last flush after the load included)", &flushes);
    for baseline in ["waited for", "none"] {
        let comparer = Comparer::Parameter { name: "flush", baseline, subject: "background" };
        report.comparison(comparer.compare(records));
    }
}

fn reads_section(report: &mut Report, records: &[Record]) {
    let rows = READS.map(|(keys, _)| LatencyRow {
        name: keys.to_owned(),
        records: of_case(records, &[("part", "reads"), ("keys", keys)]),
        kind: "get",
    });
    report
        .section("Misses against hits")
        .paragraph("Absent keys lie between those that are there, so that no key range tells them.")
        .chart(
            "Get latency of keys there and not there",
            "Lower is faster.",
            &percentile_chart(&rows),
        )
        .table("Gets", &latency_table(&rows));
    let (baseline, subject) = (READS[0].0, READS[1].0);
    report.comparison(Comparer::Parameter { name: "keys", baseline, subject }.compare(records));
}

fn tables_section(report: &mut Report, records: &[Record]) {
    let intervals = values_of(records, "interval");
    let of = |compaction: &str, interval: &str| {
        of_case(records, &[("compaction", compaction), ("interval", interval)])
    };
    let mut chart =
        LineChart::sweep("interval", Unit::Count, "get latency", Unit::Nanoseconds).log_y();
    let mut table =
        Table::new(["interval", "compaction", "tables in level 0", "p50", "p99", "p99.9"]);
    for (compaction, _) in COMPACTION {
        let line = |pick| -> Vec<Point> {
            let point = |(at, interval): (usize, &String)| {
                let y = median_of(&of(compaction, interval), latency("get", pick))?;
                Some(Point::new((at + 1) as f64, y))
            };
            intervals.iter().enumerate().filter_map(point).collect()
        };
        chart = chart
            .line(format!("p50, compaction {compaction}"), line(|one| one.p50_ns))
            .line(format!("p99, compaction {compaction}"), line(|one| one.p99_ns));
    }
    for interval in &intervals {
        for (compaction, _) in COMPACTION {
            let of = of(compaction, interval);
            let ns = |pick| text(Unit::Nanoseconds, median_of(&of, latency("get", pick)));
            table = table.row([
                interval.clone(),
                compaction.to_owned(),
                text(Unit::Count, median_of(&of, runs_in_level_0)),
                ns(|one| one.p50_ns),
                ns(|one| one.p99_ns),
                ns(|one| one.p999_ns),
            ]);
        }
    }
    report
        .section("Gets as tables accumulate")
        .paragraph(
            "One thread gets at a constant rate while another overwrites; each interval goes on where the \
             one before it ended, on the same store.",
        )
        .chart("Get latency over intervals", "Level lines mean that tables cost readers nothing.", &chart)
        .table("Intervals", &table);
    // The last interval has the most tables; comparing all would only ask the same question again.
    let last = intervals.last().map_or("", String::as_str);
    let at_the_end: Vec<Record> =
        of_case(records, &[("interval", last)]).into_iter().cloned().collect();
    let comparer = Comparer::Parameter { name: "compaction", baseline: "off", subject: "on" };
    report.comparison(comparer.compare(&at_the_end));
}
