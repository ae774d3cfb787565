//! How reads hold up as tables pile up: misses, compaction, and the flush threshold.
//!
//! 1. Five runs against a server, one connection, 40,000 requests/s: puts into an empty store, gets of
//!    them, gets with a third absent, the same once compaction is done, and with few absent. Up to 16
//!    requests are under way, so that the connection itself carries the rate.
//! 2. An engine with compaction off, held at 1, 50 and 200 tables: misses 0, 34 and 100 %.
//! 3. The same over HTTP, with hits or misses alone, as fast as 16 connections ask.
//! 4. An engine with compaction off, and memtables of 1 to 64 MiB: fewer, larger tables.

use std::time::Duration;

use super::picks::{
    LatencyRow, bar_of, latency, latency_table, median_of, of_case, or_dash, percentile_chart,
    rate_of, text, times, told,
};
use super::planning::{MIB, at_rate, budget, engine, only_ours, run, seed, server};
use super::{Experiment, PlannedRun, Scale};
use crate::chart::{BarChart, LineChart, Point, Unit};
use crate::error::Result;
use crate::record::Record;
use crate::report::{Comparer, Report, Table};
use crate::spec::{Length, Spec, Workload};

/// The experiment.
#[derive(Debug)]
pub(super) struct TableCollapse;

/// The five runs: name, share of gets that miss (`None`: puts), and whether background work is done
/// before the next.
const FIVE: [(&str, Option<f64>, bool); 5] = [
    ("1 put, empty store", None, false),
    ("2 get", Some(0.0013), false),
    ("3 get, a third absent", Some(0.34), true),
    ("4 as 3, compacted", Some(0.34), true),
    ("5 get, compacted", Some(0.0065), true),
];
const TABLES: [u64; 3] = [1, 50, 200];
const MISSES: [(&str, f64); 3] = [("0 %", 0.0), ("34 %", 0.34), ("100 %", 1.0)];
/// Of the part over HTTP.
const HTTP_MISSES: [(&str, f64); 2] = [MISSES[0], MISSES[2]];
const HTTP_CONNECTIONS: u32 = 16;
/// What an entry of 16 + 100 bytes takes in a memtable, measured.
const ENTRY_BYTES: u64 = 196;

struct Size {
    repetitions: u32,
    rate: f64,
    seconds: f64,
    /// Of all parts but the first.
    keys: u64,
    /// Memtables of the last part.
    thresholds: [u64; 4],
}

impl Size {
    fn of(scale: Scale) -> Size {
        match scale {
            Scale::Tiny => Size {
                repetitions: 1,
                rate: 5_000.0,
                seconds: 0.1,
                keys: 70_000,
                thresholds: [64 << 10, 256 << 10, MIB, 4 * MIB],
            },
            Scale::Small => Size {
                repetitions: 3,
                rate: 40_000.0,
                seconds: 6.0,
                keys: 400_000,
                thresholds: [MIB, 4 * MIB, 16 * MIB, 64 * MIB],
            },
            Scale::Full => Size {
                repetitions: 5,
                rate: 40_000.0,
                seconds: 11.0,
                keys: 4_000_000,
                thresholds: [MIB, 4 * MIB, 16 * MIB, 64 * MIB],
            },
        }
    }

    fn five(&self, repetition: u32, at: usize) -> PlannedRun {
        let (name, missing, settles) = FIVE[at];
        // All that the first run puts; later ones read it, and fill a store of their own likewise.
        let keys = (self.rate * self.seconds) as u64;
        let spec = Spec {
            workload: if missing.is_some() { Workload::ReadRandom } else { Workload::FillRandom },
            keys,
            missing: missing.unwrap_or(0.0),
            pipeline: 16,
            seed: seed(repetition, at as u32),
            ..Spec::default()
        };
        let memtable = (keys * ENTRY_BYTES / 40).max(64 << 10).to_string();
        let flags = [("memtable-bytes", &*memtable), ("durability", "os")];
        let spec = at_rate(self.rate, self.seconds, spec);
        let mut planned = run(repetition, &[("part", "five"), ("run", name)], server(&flags), spec);
        planned.options.settle = settles;
        planned.shared_store = Some(format!("five {repetition}"));
        planned.is_profiled = repetition == 0;
        planned
    }

    fn held(&self, repetition: u32, tables: u64, (misses, missing): (&str, f64)) -> PlannedRun {
        let memtable_bytes = self.memtable_bytes(tables);
        let tables = tables.to_string();
        let case = [("part", "tables"), ("tables", &*tables), ("misses", misses)];
        let mut planned = self.uncompacted(repetition, &case, memtable_bytes, missing);
        planned.shared_store = Some(format!("tables {tables} {repetition}"));
        planned
    }

    fn over_http(
        &self,
        repetition: u32,
        tables: u64,
        (misses, missing): (&str, f64),
    ) -> PlannedRun {
        let memtable_bytes = self.memtable_bytes(tables);
        let tables = tables.to_string();
        let case = [("part", "http"), ("tables", &*tables), ("misses", misses)];
        let flags = [
            ("compaction", "false"),
            ("memtable-bytes", &*memtable_bytes.to_string()),
            ("memtable-journal-bytes", "4GiB"),
            // All blocks stay in memory, of many tables as of one.
            ("block-cache-bytes", "1GiB"),
        ];
        let spec = Spec {
            workload: Workload::ReadRandom,
            keys: self.keys,
            missing,
            threads: HTTP_CONNECTIONS,
            length: Length::Time(Duration::from_secs_f64(self.seconds)),
            seed: seed(repetition, 0),
            ..Spec::default()
        };
        let mut planned = run(repetition, &case, server(&flags), spec);
        planned.budget = budget((memtable_bytes * 4).max(64 * MIB));
        planned.options.warm_up = Some(Length::Time(Duration::from_secs_f64(self.seconds / 2.0)));
        planned.shared_store = Some(format!("http {tables} {repetition}"));
        planned
    }

    /// Memtables that leave so many tables.
    fn memtable_bytes(&self, tables: u64) -> u64 {
        // One table takes all; many are closed at their share, a little late rather than early.
        match tables {
            1 => (self.keys * ENTRY_BYTES * 2).min(1 << 30),
            many => self.keys * ENTRY_BYTES / many,
        }
    }

    fn threshold(&self, repetition: u32, bytes: u64, puts: bool) -> PlannedRun {
        let asked = if puts { "put" } else { "get" };
        let size = bytes.to_string();
        let case = [("part", "threshold"), ("threshold", &*size), ("asked", asked)];
        let mut planned = self.uncompacted(repetition, &case, bytes, 0.34);
        if puts {
            planned.spec.workload = Workload::FillRandom;
            planned.spec.missing = 0.0;
        }
        planned
    }

    /// Gets from a store without compaction that was filled through memtables of this size.
    fn uncompacted(
        &self,
        repetition: u32,
        case: &[(&str, &str)],
        memtable_bytes: u64,
        missing: f64,
    ) -> PlannedRun {
        let memtable_bytes = memtable_bytes.max(16 << 10);
        let memtable = memtable_bytes.to_string();
        let settings = [
            ("background", "false"),
            // The most: writers would be slowed for the many tables that are wanted here.
            ("level_runs_max", "64"),
            ("memtable_bytes", &*memtable),
            ("memtable_journal_bytes", "4294967296"),
        ];
        let spec = Spec {
            // Not `readmissing`: one workload's cases can be compared.
            workload: Workload::ReadRandom,
            keys: self.keys,
            missing,
            seed: seed(repetition, 0),
            ..Spec::default()
        };
        PlannedRun {
            budget: budget((memtable_bytes * 4).max(64 * MIB)),
            ..run(repetition, case, engine(&settings), at_rate(self.rate, self.seconds, spec))
        }
    }
}

impl Experiment for TableCollapse {
    fn name(&self) -> &'static str {
        "table-collapse"
    }

    fn question(&self) -> &'static str {
        "Do reads collapse as tables pile up, and what do misses, compaction and larger flushes change?"
    }

    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        only_ours(self.name(), against)?;
        let size = Size::of(scale);
        let mut runs = Vec::new();
        for repetition in 0..size.repetitions {
            runs.extend((0..FIVE.len()).map(|at| size.five(repetition, at)));
            for tables in TABLES {
                runs.extend(MISSES.map(|misses| size.held(repetition, tables, misses)));
            }
            for tables in TABLES {
                runs.extend(HTTP_MISSES.map(|misses| size.over_http(repetition, tables, misses)));
            }
            for puts in [true, false] {
                let thresholds = size.thresholds;
                runs.extend(thresholds.map(|bytes| size.threshold(repetition, bytes, puts)));
            }
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        if let Some(answer) = answer(records) {
            report.answer(answer);
        }
        five_section(&mut report, records);
        tables_section(&mut report, records);
        http_section(&mut report, records);
        threshold_section(&mut report, records);
        report
    }
}

fn held<'a>(records: &'a [Record], tables: u64, misses: &str) -> Vec<&'a Record> {
    of_tables(records, "tables", tables, misses)
}

fn of_tables<'a>(records: &'a [Record], part: &str, tables: u64, misses: &str) -> Vec<&'a Record> {
    let tables = tables.to_string();
    of_case(records, &[("part", part), ("tables", &tables), ("misses", misses)])
}

fn five(records: &[Record], at: usize) -> Vec<&Record> {
    of_case(records, &[("part", "five"), ("run", FIVE[at].0)])
}

/// Runs in level 0: each flush makes one, whatever the number of its files.
fn table_count(records: &[&Record]) -> Option<f64> {
    median_of(records, |record| Some(told("level0.runs")(record).unwrap_or(0.0)))
}

fn answer(records: &[Record]) -> Option<String> {
    let p99 = |records: &[&Record]| median_of(records, latency("get", |one| one.p99_ns));
    let many = TABLES[TABLES.len() - 1];
    let (few_records, many_records) = (held(records, 1, "34 %"), held(records, many, "34 %"));
    let (few, piled) = (p99(&few_records)?, p99(&many_records)?);
    let reached = median_of(&many_records, |record| rate_of(record, "get"))?;
    let (count, all_missed) = (table_count(&many_records)?, p99(&held(records, many, "100 %"))?);
    let all_hit = p99(&held(records, many, "0 %"))?;
    let (before, after) = (p99(&five(records, 2))?, p99(&five(records, 3))?);
    let ns = |value| Unit::Nanoseconds.format(value);
    let [hits, misses] = [HTTP_MISSES[0].0, HTTP_MISSES[1].0].map(|misses| {
        let shares = TABLES[1..].iter().filter_map(|&tables| share_of_one(records, tables, misses));
        let shares: Vec<String> = shares.map(|share| format!("{:.0}", share * 100.0)).collect();
        shares.join(" and ")
    });
    Some(format!(
        "With a third of the gets absent and compaction off, p99 is {} at one table and {} at {count:.0} \
         ({} as long, {} served); there misses alone take {} and hits {}; over HTTP {} tables answer {hits} % \
         of the hits that one table does and {misses} % of the misses; a server that compacts by itself \
         goes from {} right after the puts to {} once it is done.",
        ns(few),
        ns(piled),
        times(piled, few),
        Unit::PerSecond.format(reached),
        ns(all_missed),
        ns(all_hit),
        TABLES[1..].iter().map(u64::to_string).collect::<Vec<_>>().join(" and "),
        ns(before),
        ns(after),
    ))
}

fn five_section(report: &mut Report, records: &[Record]) {
    let rows: Vec<LatencyRow<'_>> = (0..FIVE.len())
        .map(|at| LatencyRow {
            name: FIVE[at].0.to_owned(),
            records: five(records, at),
            kind: if FIVE[at].1.is_some() { "get" } else { "put" },
        })
        .collect();
    report
        .section("Five runs against a server")
        .paragraph(
            "One connection, with up to 16 requests under way, one run after the other on one store. The \
             server compacts by itself at all times; runs 4 and 5 begin once it is done.",
        )
        .picture("Five runs", "Further right is rarer.", &percentile_chart(&rows))
        .summary_table("Five runs", &latency_table(&rows));
}

fn tables_section(report: &mut Report, records: &[Record]) {
    let mut chart = MISSES.iter().fold(
        BarChart::new("get p99 from when due, less is better", Unit::Nanoseconds),
        |chart, (misses, _)| chart.series(format!("{misses} absent")),
    );
    let mut rows = Vec::new();
    let mut counts = Table::new(["tables wanted", "absent", "tables there", "get p50", "get p99"]);
    for tables in TABLES {
        let bar = |(misses, _): (&str, f64)| {
            bar_of(&held(records, tables, misses), latency("get", |one| one.p99_ns))
        };
        chart = chart.group(format!("{tables} tables"), MISSES.map(bar).to_vec());
        for (misses, _) in MISSES {
            let of = held(records, tables, misses);
            let ns = |pick| text(Unit::Nanoseconds, median_of(&of, latency("get", pick)));
            counts = counts.row([
                tables.to_string(),
                misses.to_owned(),
                text(Unit::Count, table_count(&of)),
                ns(|one| one.p50_ns),
                ns(|one| one.p99_ns),
            ]);
            let name = format!("{tables} tables, {misses} absent");
            rows.push(LatencyRow { name, records: of, kind: "get" });
        }
    }
    report
        .section("Tables and misses, compaction off")
        .paragraph(
            "An engine in a process of its own, filled through memtables that make so many tables, all \
             over the whole range of keys. One thread.",
        )
        .picture(
            "p99 by tables and misses",
            "Medians over repetitions with 95 % intervals.",
            &chart,
        )
        .table("Tables that were there", &counts)
        .table("Latencies", &latency_table(&rows));
    let (one, many) = (TABLES[0].to_string(), TABLES[TABLES.len() - 1].to_string());
    let tables = Comparer::Parameter { name: "tables", baseline: &one, subject: &many };
    report.comparison(tables.compare(records));
    let misses = Comparer::Parameter { name: "misses", baseline: "0 %", subject: "100 %" };
    report.comparison(misses.compare(records));
}

/// Runs over HTTP with so many tables.
fn over_http<'a>(records: &'a [Record], tables: u64, misses: &str) -> Vec<&'a Record> {
    of_tables(records, "http", tables, misses)
}

/// The rate of gets over HTTP with so many tables, as a share of that with one.
fn share_of_one(records: &[Record], tables: u64, misses: &str) -> Option<f64> {
    let rate =
        |tables| median_of(&over_http(records, tables, misses), |record| rate_of(record, "get"));
    Some(rate(tables)? / rate(TABLES[0])?)
}

fn http_section(report: &mut Report, records: &[Record]) {
    let cpu = |record: &Record| Some(record.outcome.cpu_us_per_operation());
    let mut table = Table::new([
        "tables wanted",
        "absent",
        "tables there",
        "requests/s",
        "of one table's",
        "CPU of the server",
        "get p50",
        "get p99",
    ]);
    for tables in TABLES {
        for (misses, _) in HTTP_MISSES {
            let of = over_http(records, tables, misses);
            let ns = |pick| text(Unit::Nanoseconds, median_of(&of, latency("get", pick)));
            let share = share_of_one(records, tables, misses);
            table = table.row([
                tables.to_string(),
                misses.to_owned(),
                text(Unit::Count, table_count(&of)),
                text(Unit::PerSecond, median_of(&of, |record| rate_of(record, "get"))),
                or_dash(share, |share| format!("{:.0} %", share * 100.0)),
                text(Unit::Microseconds, median_of(&of, cpu)),
                ns(|one| one.p50_ns),
                ns(|one| one.p99_ns),
            ]);
        }
    }
    report
        .section("Tables and misses over HTTP, compaction off")
        .paragraph(&format!(
            "A server filled likewise, asked by {HTTP_CONNECTIONS} connections as fast as it answers.",
        ))
        .summary_table("Tables over HTTP", &table);
}

fn threshold_section(report: &mut Report, records: &[Record]) {
    let mut sizes: Vec<u64> =
        records.iter().filter_map(|record| record.case.get("threshold")?.parse().ok()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let of = |bytes: u64, asked: &str| {
        let bytes = bytes.to_string();
        of_case(records, &[("part", "threshold"), ("threshold", &bytes), ("asked", asked)])
    };
    let line = |asked: &'static str, pick| -> Vec<Point> {
        let point = |bytes: &u64| {
            let y = median_of(&of(*bytes, asked), latency(asked, pick))?;
            Some(Point::new(*bytes as f64 / MIB as f64, y))
        };
        sizes.iter().filter_map(point).collect()
    };
    let chart = LineChart::sweep("flush threshold, MiB", Unit::Count, "latency", Unit::Nanoseconds)
        .log_x()
        .log_y()
        .line("get p50", line("get", |one| one.p50_ns))
        .line("get p99", line("get", |one| one.p99_ns))
        .line("put p99", line("put", |one| one.p99_ns));
    let mut table = Table::new(["flush threshold", "tables", "get p50", "get p99", "put p99"]);
    for &bytes in &sizes {
        let gets = of(bytes, "get");
        let ns = |records: &[&Record], kind, pick| {
            text(Unit::Nanoseconds, median_of(records, latency(kind, pick)))
        };
        table = table.row([
            format!("{} MiB", bytes as f64 / MIB as f64),
            text(Unit::Count, table_count(&gets)),
            ns(&gets, "get", |one| one.p50_ns),
            ns(&gets, "get", |one| one.p99_ns),
            ns(&of(bytes, "put"), "put", |one| one.p99_ns),
        ]);
    }
    report
        .section("Flush threshold")
        .paragraph(
            "The same store filled through memtables of different sizes, compaction off; a third of the \
             gets is absent. Larger flushes leave fewer tables, and put more at stake in each.",
        )
        .chart("Latency by flush threshold", "Lower is faster.", &chart)
        .table("Thresholds", &table);
}
