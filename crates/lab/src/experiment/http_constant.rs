//! `http-constant`: whether the server keeps a constant rate across flushes and compactions, and with what
//! latency beside a bare server that stores nothing.
//!
//! One pipelined connection at 40,000 requests a second, as in the studies of servers that this grew from,
//! and 64 at 100,000. Memtables are small, so that puts are flushed and merged many times meanwhile.
//! Latency counts from when a request was due. The generator takes its part of the same cores, which is why
//! the bare server is what to compare with. Gets are also made from one that answers from a hash map in
//! memory, as in `http-floor`.

use super::http_floor::{FLOOR, MAP, OURS, VALUE_BYTES, floor_of, map_of};
use super::kept_rate::{counted, not_kept};
use super::picks::{
    LatencyRow, latency, latency_table, median_of, of_case, percent, percentile_chart, text,
    values_of,
};
use super::planning::{MIB, at_rate, budget, in_turn, only_ours, run, seed, server};
use super::{Experiment, PlannedRun, Scale};
use crate::chart::Unit;
use crate::error::Result;
use crate::record::Record;
use crate::report::Report;
use crate::run::RunOptions;
use crate::spec::{Spec, ValueSizes, Workload};

/// The experiment.
pub(super) struct HttpConstant;

/// Requests: name, workload, bytes of the floor's constant, kind of operation.
const REQUESTS: [(&str, Workload, u32, &str); 2] =
    [("PUT", Workload::Overwrite, 0, "put"), ("GET", Workload::ReadRandom, VALUE_BYTES, "get")];
/// Requests per second, connections, and requests under way on each.
const RATES: [(u32, u32, u32); 2] = [(40_000, 1, 16), (100_000, 64, 1)];

impl Experiment for HttpConstant {
    fn name(&self) -> &'static str {
        "http-constant"
    }

    fn question(&self) -> &'static str {
        "Does the server keep a constant rate across flushes and compactions, and with what latency?"
    }

    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        only_ours(self.name(), against)?;
        let mut runs = Vec::new();
        for repetition in 0..scale.pick(1, 3, 7) {
            for (per_second, connections, pipeline) in RATES {
                for (request, workload, floor_bytes, _) in REQUESTS {
                    let spec = Spec {
                        workload,
                        keys: scale.pick(2_000, 1_000_000, 1_000_000),
                        values: ValueSizes::Fixed(VALUE_BYTES),
                        threads: connections,
                        pipeline,
                        seed: seed(repetition, per_second),
                        ..Spec::default()
                    };
                    let per_second = per_second / scale.pick(40, 1, 1);
                    let seconds = scale.pick(0.1, 8.0, 60.0);
                    let spec = at_rate(f64::from(per_second), seconds, spec);
                    let per_second = per_second.to_string();
                    let case = [("request", request), ("rate", &*per_second)];
                    let ours = PlannedRun {
                        target: OURS.to_owned(),
                        options: RunOptions { settle: false, ..RunOptions::default() },
                        shared_store: Some(format!("{request} {repetition}")),
                        budget: budget(4 * MIB),
                        ..run(repetition, &case, server(&[]), spec)
                    };
                    let bare = format!("bare {request} {repetition}");
                    let floor = floor_of(&ours, floor_bytes, bare);
                    let map = (!workload.writes()).then(|| map_of(&floor));
                    let all: Vec<_> = [ours, floor].into_iter().chain(map).collect();
                    runs.extend(in_turn(&all, repetition));
                }
            }
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        let rates = values_of(records, "rate");
        let mut cases: Vec<(String, [LatencyRow<'_>; 3])> = Vec::new();
        for rate in &rates {
            let per_second = Unit::PerSecond.format(rate.parse().unwrap_or_default());
            for (request, _, _, kind) in REQUESTS {
                let of = of_case(records, &[("request", request), ("rate", rate)]);
                let name = format!("{request} at {per_second}");
                let sides = [OURS, FLOOR, MAP].map(|target| LatencyRow {
                    name: format!("{name}, {target}"),
                    records: of.iter().copied().filter(|one| one.target == target).collect(),
                    kind,
                });
                cases.push((name, sides));
            }
        }
        let is_there = |side: &LatencyRow<'_>| !side.records.is_empty();
        cases.retain(|(_, [ours, floor, _])| is_there(ours) && is_there(floor));
        let told: Vec<String> =
            cases.iter().filter_map(|(name, sides)| answer_of(name, sides)).collect();
        if !told.is_empty() {
            let refused: u64 = records.iter().map(|one| one.outcome.errors()).sum();
            report.answer(format!(
                "From when a request is due, p99.9 is {}; {refused} requests were not answered 2xx.",
                told.join(", ")
            ));
        }
        let rows: Vec<LatencyRow<'_>> =
            cases.iter().flat_map(|(_, sides)| sides.iter().cloned()).collect();
        report
            .section("Latency at a constant rate")
            .summary_table("Latency from when a request was due", &latency_table(&rows));
        let filled = rows.iter().filter_map(|row| median_of(&row.records, memtables));
        report.paragraph(&format!(
            "The puts of a run fill {} memtables or more, each of which is flushed meanwhile.",
            text(Unit::Count, filled.reduce(f64::min).map(f64::floor))
        ));
        for (at, (name, sides)) in cases.iter().enumerate() {
            let caption = "Each nine is as wide as the one before.";
            let chart = percentile_chart(sides);
            match at {
                0 => report.picture(name, caption, &chart),
                _ => report.chart(name, caption, &chart),
            };
        }
        report
    }
}

/// Our p99.9 of a case, beside the floor's and, of gets, the hash map's, and whether the rate was kept.
fn answer_of(name: &str, sides: &[LatencyRow<'_>; 3]) -> Option<String> {
    let p999 = |row: &LatencyRow<'_>| median_of(&row.records, latency(row.kind, |one| one.p999_ns));
    let [ours, floor, map] = sides;
    let (our_ns, floor_ns) = (p999(ours)?, p999(floor)?);
    let beside_map = p999(map)
        .map_or(String::new(), |map_ns| format!(", {:.2} times the hash map's", our_ns / map_ns));
    let kept = [(OURS, ours), (FLOOR, floor)].map(|(who, row)| {
        let share = not_kept(&row.records);
        share.map(|share| format!("not kept up by {who}, which takes {} of it", percent(share)))
    });
    let told: Vec<String> = kept.into_iter().flatten().chain(counted(&ours.records)).collect();
    let told = if told.is_empty() { String::new() } else { format!(" ({})", told.join("; ")) };
    Some(format!(
        "{} ({:.2} times the bare server's{beside_map}) for {name}{told}",
        Unit::Nanoseconds.format(our_ns),
        our_ns / floor_ns,
    ))
}

/// How many memtables a run's puts fill, which the store flushes and merges meanwhile.
fn memtables(record: &Record) -> Option<f64> {
    let memtable_bytes: f64 = record.target_settings.get("memtable-bytes")?.parse().ok()?;
    let puts = record.outcome.kinds.get("put")?.count as f64;
    let entry_bytes = f64::from(record.spec.key_bytes + VALUE_BYTES);
    Some(puts * entry_bytes / memtable_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::kept_rate::tests::took;
    use crate::record::{KindOutcome, Latency};
    use crate::spec::Pace;

    /// The report gave latencies at 84 % of the rate, and didn't say that it wasn't the rate.
    #[test]
    fn a_rate_that_is_not_kept_is_in_the_answer() {
        let made = |planned: PlannedRun| {
            let Pace::Constant { per_second } = planned.spec.pace else { panic!("{planned:?}") };
            let share = if planned.target == OURS { 0.84 } else { 1.0 };
            let mut record = took((planned.repetition, 10.0));
            (record.case, record.target) = (planned.case, planned.target);
            record.spec = planned.spec;
            record.outcome.operations = (10.0 * share * per_second) as u64;
            let latency = Latency { p999_ns: 1_000_000, ..Latency::default() };
            let count = record.outcome.operations;
            let kind = KindOutcome { count, latency, ..KindOutcome::default() };
            let name = if record.case["request"] == "PUT" { "put" } else { "get" };
            record.outcome.kinds.insert(name.to_owned(), kind);
            record
        };
        let planned = HttpConstant.runs(Scale::Tiny, &[]).unwrap();
        let records: Vec<Record> = planned.into_iter().map(made).collect();
        let summary = HttpConstant.report(&records, "again").summary_markdown();
        let answer = summary.lines().find(|line| line.starts_with("**")).unwrap();
        assert_eq!(answer.matches("(not kept up by tallybook, which takes 84 % of it)").count(), 4);
        assert!(!answer.contains("by bare hyper"), "{answer}");
        let told = |line: &&str| line.contains("| no: not kept up, 84 % of the rate taken |");
        assert_eq!(summary.lines().filter(told).count(), 4, "{summary}");
    }
}
