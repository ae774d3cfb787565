//! `beyond-memory`: what reads cost when a store is four times as large as the memory there is.
//!
//! 1. Gets at random in process, beside rivals: each engine in a control group of its own, which counts
//!    the page cache of its files, so that most gets wait for the disk. Stores are filled before the limit.
//!    LMDB is told that reads are at random: pages that the device would read ahead push others out. LevelDB
//!    can't be told. RocksDB has filters, without which it looks for a key in each level.
//! 2. The whole store as one range over HTTP, of values that lie in the order of their keys and of values
//!    that lie in another: how many bytes a second come, and what the server takes of memory meanwhile.
//!
//! Each run has a store of its own: what differs from one to the next would else be in all runs of an engine.
//! Control groups take root. At the tiny size memory isn't limited.

use std::collections::BTreeMap;
use std::time::Duration;

use super::picks::{
    LatencyRow, case, different, latency_table, median_of, of_case, of_telling, percentile_chart,
    rate_of, text, times, values_of,
};
use super::planning::{MIB, budget, engine_named, in_turn, run, seed, server};
use super::rivals::{LMDB_RANDOM, ROCKSDB_CACHED, engines, ratios};
use super::{Experiment, PlannedRun, Scale};
use crate::chart::Unit;
use crate::error::Result;
use crate::record::Record;
use crate::report::{Report, Table};
use crate::run::RunOptions;
use crate::spec::{Length, Spec, ValueSizes, Workload};
use crate::target::{Budget, engine::NAME as OURS};

/// The experiment.
pub(super) struct BeyondMemory;

/// Those that are the best of a row somewhere, and the one that most people use.
const RIVALS: [&str; 4] = [ROCKSDB_CACHED, "leveldb", LMDB_RANDOM, "fjall"];
/// How many times the memory the data are.
const TIMES: u64 = 4;

const GETS: &str = "gets";
const RANGE: &str = "range";
/// How the values of a range lie: name, and what fills the store so; `None`: in random order.
const ORDERS: [(&str, Option<Workload>); 2] =
    [("the keys' order", Some(Workload::FillSeq)), ("random order", None)];

impl Experiment for BeyondMemory {
    fn name(&self) -> &'static str {
        "beyond-memory"
    }

    fn question(&self) -> &'static str {
        "What do gets and ranges cost when the store is four times as large as memory?"
    }

    /// `against`: engines, as of `rivals`.
    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        let chosen: Vec<String> = match (against, scale) {
            ([], Scale::Small | Scale::Full) => RIVALS.map(str::to_owned).to_vec(),
            _ => against.to_vec(),
        };
        let names = engines(scale, &chosen)?;
        let mut runs = Vec::new();
        for repetition in 0..scale.pick(1, 3, 7) {
            runs.extend(in_turn(&names, repetition).map(|name| gets(name, repetition, scale)));
        }
        for order in ORDERS {
            runs.extend((0..scale.pick(1, 3, 7)).map(|repetition| range(order, repetition, scale)));
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        let gets: Vec<LatencyRow<'_>> =
            different(records, |one| (case(one, "asked") == GETS).then(|| one.target.clone()))
                .into_iter()
                .map(|target| LatencyRow {
                    records: of_case(records, &[("asked", GETS)])
                        .into_iter()
                        .filter(|one| one.target == target)
                        .collect(),
                    name: target,
                    kind: "get",
                })
                .collect();
        let orders = values_of(records, "values in");
        let told: Vec<String> = std::iter::once(gets_told(&gets))
            .chain(orders.iter().map(|order| range_told(records, order)))
            .flatten()
            .collect();
        if !told.is_empty() {
            report.answer(format!("{}.", told.join("; ")));
        }
        report
            .section("Gets at random")
            .paragraph(
                "One thread, values of 1 KiB, in process. Each engine has a control group, and in it a quarter \
                 of the memory that its data take.",
            )
            .summary_table("Gets at random", &latency_table(&gets))
            .picture("Gets at random", "Further right is rarer.", &percentile_chart(&gets))
            .section("A range over HTTP")
            .paragraph(
                "The whole store in one request, values of 4 KiB, by a server in a control group with a \
                 quarter of the memory that its data take. Its own memory is what is left without the pages \
                 of files, at the largest of all runs.",
            )
            .table("The whole store as one range", &ranges_table(records, &orders));
        report
    }
}

/// How many gets a second ours makes, how many times those of the fastest rival, and at what cost beside the one
/// that takes least.
fn gets_told(gets: &[LatencyRow<'_>]) -> Option<String> {
    let figure = |row: &LatencyRow<'_>| {
        let cost = median_of(&row.records, |one| Some(one.outcome.cpu_us_per_operation()));
        (cost, median_of(&row.records, |one| rate_of(one, row.kind)))
    };
    let names: Vec<String> = gets.iter().map(|row| row.name.clone()).collect();
    let figures: Vec<_> = gets.iter().map(figure).collect();
    let ours = names.iter().position(|name| name == OURS)?;
    let (cost, rate) = figures[ours];
    let made = format!(
        "A get takes {} of CPU, {} of them are made",
        text(Unit::Microseconds, cost),
        text(Unit::PerSecond, rate)
    );
    let ratios = ratios(&names, &figures);
    let (Some((speed, fastest)), Some((cpu, thriftiest))) =
        (ratios.speed.zip(ratios.fastest), ratios.cpu.zip(ratios.thriftiest))
    else {
        return Some(made);
    };
    Some(format!(
        "{made}, {speed:.2} times as many as by {fastest}, the fastest rival of these runs, with {cpu:.2} \
         times the CPU of {thriftiest}, which takes least",
    ))
}

fn range_told(records: &[Record], order: &str) -> Option<String> {
    let of = ranges(records, order);
    let rate = median_of(&of, bytes_per_second)?;
    Some(format!(
        "a range of values in {order} comes at {}/s, from a server of {} at most",
        Unit::Bytes.format(rate),
        text(Unit::Bytes, own_memory(&of)),
    ))
}

fn ranges_table(records: &[Record], orders: &[String]) -> Table {
    let columns = ["values in", "bytes/s", "data", "memory allowed", "data / memory", "own memory"];
    orders.iter().fold(Table::new(columns), |table, order| {
        let of = ranges(records, order);
        let data = median_of(&of, |one| Some(one.outcome.live_bytes as f64));
        let allowed = median_of(&of, |one| one.case.get("memory")?.parse().ok());
        table.row([
            order.clone(),
            text(Unit::Bytes, median_of(&of, bytes_per_second)),
            text(Unit::Bytes, data),
            text(Unit::Bytes, allowed),
            data.zip(allowed).map_or("-".to_owned(), |(data, allowed)| times(data, allowed)),
            text(Unit::Bytes, own_memory(&of)),
        ])
    })
}

fn ranges<'a>(records: &'a [Record], order: &str) -> Vec<&'a Record> {
    of_telling(records, |one| one.case.get("values in").is_some_and(|found| found == order))
}

/// Bytes of keys and values of a run that reads all of them, over and over.
fn bytes_per_second(record: &Record) -> Option<f64> {
    let outcome = &record.outcome;
    (outcome.seconds > 0.0)
        .then(|| outcome.operations as f64 * outcome.live_bytes as f64 / outcome.seconds)
}

/// The most that any of the runs took.
fn own_memory(records: &[&Record]) -> Option<f64> {
    records.iter().map(|record| record.outcome.peak_anonymous_bytes as f64).reduce(f64::max)
}

/// Gets of one engine.
fn gets(name: &str, repetition: u32, scale: Scale) -> PlannedRun {
    let memory_bytes = scale.pick(None, Some(160 * MIB), Some(1 << 30));
    let seconds = |seconds: f64| Length::Time(Duration::from_secs_f64(seconds));
    let spec = Spec {
        workload: Workload::ReadRandom,
        keys: keys(memory_bytes, 1 << 10),
        values: ValueSizes::Fixed(1 << 10),
        length: seconds(scale.pick(0.05, 8.0, 60.0)),
        seed: seed(repetition, 0),
        ..Spec::default()
    };
    PlannedRun {
        target: name.to_owned(),
        options: RunOptions {
            warm_up: Some(seconds(scale.pick(0.01, 4.0, 20.0))),
            settle: false,
            ..RunOptions::default()
        },
        budget: Budget { cache_bytes: 16 * MIB, ..budget(16 * MIB) },
        memory_bytes_max: memory_bytes,
        case: asked(GETS, memory_bytes),
        ..run(repetition, &[], engine_named(name), spec)
    }
}

/// The whole store over HTTP.
fn range(
    (order, filled_by): (&'static str, Option<Workload>),
    repetition: u32,
    scale: Scale,
) -> PlannedRun {
    let memory_bytes = scale.pick(None, Some(400 * MIB), Some(2 << 30));
    let spec = Spec {
        workload: Workload::FullScan,
        keys: keys(memory_bytes, 4 << 10),
        values: ValueSizes::Fixed(4 << 10),
        length: Length::Operations(1),
        seed: seed(repetition, 0),
        ..Spec::default()
    };
    let filled_by = filled_by.map(|workload| Spec {
        workload,
        length: Length::Operations(spec.keys),
        pipeline: 16,
        ..spec.clone()
    });
    let mut case = asked(RANGE, memory_bytes);
    case.insert("values in".to_owned(), order.to_owned());
    PlannedRun {
        prefill: filled_by,
        options: RunOptions { settle: false, ..RunOptions::default() },
        budget: Budget { cache_bytes: 16 * MIB, ..budget(16 * MIB) },
        memory_bytes_max: memory_bytes,
        case,
        ..run(repetition, &[], server(&[]), spec)
    }
}

/// So many that they are four times the memory, or a few.
fn keys(memory_bytes: Option<u64>, value_bytes: u64) -> u64 {
    let entry_bytes = value_bytes + u64::from(Spec::default().key_bytes);
    memory_bytes.map_or(200, |memory_bytes| memory_bytes * TIMES / entry_bytes)
}

/// The varied parameters: what is asked, and the bytes of memory.
fn asked(asked: &str, memory_bytes: Option<u64>) -> BTreeMap<String, String> {
    let memory = memory_bytes.map(|bytes| ("memory".to_owned(), bytes.to_string()));
    [("asked".to_owned(), asked.to_owned())].into_iter().chain(memory).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    use crate::experiment::tests::check_report;
    use crate::record::{KindOutcome, Outcome};

    #[test]
    fn a_store_is_larger_than_the_memory_there_is() {
        for run in BeyondMemory.runs(Scale::Small, &[]).unwrap() {
            let memory_bytes = run.memory_bytes_max.unwrap();
            let ValueSizes::Fixed(bytes) = run.spec.values else { panic!("{:?}", run.spec) };
            let data_bytes = run.fill().keys * u64::from(bytes + run.spec.key_bytes);
            assert!(data_bytes > memory_bytes * 39 / 10, "{data_bytes} in {memory_bytes}");
            assert!(run.budget.cache_bytes + run.budget.write_buffer_bytes < memory_bytes / 2);
        }
    }

    #[test]
    fn lmdb_reads_no_page_ahead_and_rocksdb_is_beside_it() {
        let runs = BeyondMemory.runs(Scale::Small, &[]).unwrap();
        let subjects: Vec<_> = runs.iter().map(|run| run.subject.clone()).collect();
        assert!(subjects.contains(&engine_named("lmdb-random")));
        assert!(subjects.contains(&engine_named("rocksdb-cached")));
        assert!(!subjects.contains(&engine_named("lmdb")));
    }

    #[test]
    fn the_answer_names_the_rivals_that_it_compares_with() {
        let planned = BeyondMemory.runs(Scale::Tiny, &["leveldb".into(), "fjall".into()]).unwrap();
        let record = |target: &str, gets: u64, cpu_s: f64| {
            let planned = planned.iter().find(|run| run.target == target).unwrap();
            let kind = KindOutcome { count: gets, ..KindOutcome::default() };
            let outcome = Outcome {
                seconds: 1.0,
                operations: gets,
                kinds: [("get".to_owned(), kind)].into(),
                cpu_s,
                ..Outcome::default()
            };
            planned.name("beyond-memory").record([].into(), None, SystemTime::now(), outcome)
        };
        let records = [
            record("tallybook", 3000, 0.012),
            record("leveldb", 1500, 0.004),
            record("fjall", 2000, 0.008),
        ];
        let summary = BeyondMemory.report(&records, "rerun").summary_markdown();
        let told = "1.50 times as many as by fjall, the fastest rival of these runs, with 1.50 times the CPU of \
                    leveldb";
        assert!(summary.contains(told), "{summary}");
    }

    /// What a server takes "at most" was the median of what its runs took.
    #[test]
    fn the_most_that_a_server_takes_is_that_of_its_worst_run() {
        let planned = BeyondMemory.runs(Scale::Tiny, &["leveldb".into()]).unwrap();
        let range = planned.iter().find(|run| run.case["asked"] == RANGE).unwrap();
        let records = [20_000_000, 30_000_000, 22_000_000].map(|peak_anonymous_bytes| {
            let (seconds, operations) = (1.0, 1);
            let outcome =
                Outcome { seconds, operations, peak_anonymous_bytes, ..Outcome::default() };
            range.name("beyond-memory").record([].into(), None, SystemTime::now(), outcome)
        });
        let summary = BeyondMemory.report(&records, "rerun").summary_markdown();
        assert!(summary.contains("from a server of 30.0 MB at most"), "{summary}");
    }

    #[test]
    fn a_record_that_says_less_is_left_out() {
        let mut planned = BeyondMemory.runs(Scale::Tiny, &[]).unwrap().remove(0);
        planned.case.clear();
        let name = planned.name("beyond-memory");
        let record = name.record([].into(), None, SystemTime::now(), Outcome::default());
        let html = BeyondMemory.report(&[record], "rerun").html();
        assert!(html.contains("These runs give no answer."), "{html}");
    }

    #[test]
    fn the_report_tells_of_gets_and_ranges() {
        check_report(&BeyondMemory, &["Gets at random", "A range over HTTP"]);
    }
}
