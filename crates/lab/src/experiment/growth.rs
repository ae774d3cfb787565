//! `growth`: what an operation costs as a store grows.
//!
//! One store of each size is filled in random order; then, when it is at rest, keys are read at random,
//! asked for that are not there, and ranges read. Reads are warmed up until nearly every block was read
//! once, whatever the size: a block's checksum is computed when it is first read. A merge tree has a number of levels that grows with
//! the logarithm of its size, so the report sets each cost against the growth of that logarithm.

use super::picks::{different, median_of, of_case, of_valid, or_dash, text, values_of};
use super::planning::{engine, only_ours, run, seed};
use super::{Experiment, PlannedRun, Scale};
use crate::chart::{LineChart, Point, Unit};
use crate::error::Result;
use crate::record::Record;
use crate::report::{Measure, Metric, Report, Table};
use crate::run::RunOptions;
use crate::spec::{Length, Spec, Workload};

/// The experiment.
pub(super) struct Growth;

const WORKLOADS: [Workload; 4] =
    [Workload::FillRandom, Workload::ReadRandom, Workload::ReadMissing, Workload::SeekRandom];

impl Experiment for Growth {
    fn name(&self) -> &'static str {
        "growth"
    }

    fn question(&self) -> &'static str {
        "How does the cost of an operation grow with the number of keys?"
    }

    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        only_ours(self.name(), against)?;
        let sizes: [u64; 3] = scale.pick(
            [1_000, 2_000, 4_000],
            [1_000_000, 10_000_000, 50_000_000],
            [1_000_000, 10_000_000, 100_000_000],
        );
        let mut runs = Vec::new();
        for repetition in 0..scale.pick(1, 2, 3) {
            for keys in sizes {
                runs.extend(WORKLOADS.map(|workload| planned(repetition, workload, keys, scale)));
            }
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        let sizes = different(records, |one| Some(one.spec.keys));
        let cost = Metric::of_run(Measure::CpuPerOperation);
        let rate = Metric::of_run(Measure::Throughput);
        let mut chart = LineChart::sweep(
            "keys",
            Unit::Count,
            "CPU per operation, as a multiple of the smallest store's",
            Unit::Ratio,
        )
        .log_x();
        let columns = ["workload", "keys", "CPU", "operations/s", "CPU, times the smallest"];
        let mut table = Table::new(columns.into_iter().chain(["log(keys), times the smallest"]));
        let mut told = Vec::new();
        for workload in WORKLOADS {
            let of = |keys: u64, metric: &Metric| {
                let is_meant =
                    |one: &Record| one.spec.workload == workload && one.spec.keys == keys;
                median_of(&of_valid(records, is_meant), |one| metric.of(one))
            };
            let smallest = sizes.first().and_then(|&keys| of(keys, &cost));
            let mut points = Vec::new();
            for &keys in &sizes {
                let times = of(keys, &cost).zip(smallest).map(|(cost, smallest)| cost / smallest);
                points.extend(times.map(|times| Point::new(keys as f64, times)));
                table = table.row([
                    workload.name().to_owned(),
                    Unit::Count.format(keys as f64),
                    text(Unit::Microseconds, of(keys, &cost)),
                    text(Unit::PerSecond, of(keys, &rate)),
                    or_dash(times, |times| format!("{times:.2}")),
                    format!("{:.2}", log_growth(sizes[0], keys)),
                ]);
            }
            if let Some(last) = points.last().filter(|_| points.len() == sizes.len()) {
                told.push(format!("{} {:.2} times", workload.name(), last.y));
            }
            chart = chart.line(workload.name(), points);
        }
        if let [smallest, .., largest] = sizes[..] {
            let growth = |&keys: &u64| Point::new(keys as f64, log_growth(smallest, keys));
            chart = chart.line("log(keys)", sizes.iter().map(growth).collect());
            if !told.is_empty() {
                report.answer(format!(
                    "With {} instead of {} keys an operation costs: {}. The logarithm of the number of \
                     keys grows {:.2} times.",
                    Unit::Count.format(largest as f64),
                    Unit::Count.format(smallest as f64),
                    told.join(", "),
                    log_growth(smallest, largest),
                ));
            }
        }
        report
            .section("By the number of keys")
            .paragraph(
                "Values of 100 bytes, one thread, in process; CPU time includes background work until the \
                 store is at rest. What grows besides the tree is the memory that reads touch: a small \
                 store is in the processor's caches, a large one not even in what its page tables' cache \
                 covers, so that each access to memory takes longer.",
            )
            .picture("Cost by the number of keys", "1 is the smallest store.", &chart)
            .summary_table("Cost by the number of keys", &table);
        let depth = values_of(records, "keys");
        let depth = depth.iter().fold(
            Table::new(["keys", "write amplification", "on disk per live byte"]),
            |table, keys| {
                let fills = of_case(records, &[("keys", keys), ("workload", "fillrandom")]);
                table.row([
                    keys.clone(),
                    text(Unit::Ratio, median_of(&fills, |one| one.outcome.write_amplification())),
                    text(Unit::Ratio, median_of(&fills, |one| one.outcome.space_amplification())),
                ])
            },
        );
        report.table("Writes and space", &depth);
        report
    }
}

fn log_growth(smallest: u64, keys: u64) -> f64 {
    (keys as f64).ln() / (smallest as f64).ln()
}

fn planned(repetition: u32, workload: Workload, keys: u64, scale: Scale) -> PlannedRun {
    let is_fill = workload == Workload::FillRandom;
    let asked = scale.pick(1_000, 2_000_000, 10_000_000);
    // A block holds about 35 entries.
    let warm_up = (keys / 10).max(scale.pick(100, 500_000, 2_000_000));
    let [length, warm_up] = match workload {
        Workload::FillRandom => [keys, 0],
        // A hundred entries each.
        Workload::SeekRandom => [asked / 20, warm_up / 20],
        _ => [asked, warm_up],
    }
    .map(Length::Operations);
    let spec = Spec { workload, keys, length, seed: seed(repetition, 0), ..Spec::default() };
    let number = keys.to_string();
    let case = [("workload", workload.name()), ("keys", &*number)];
    let warm_up = (!is_fill).then_some(warm_up);
    PlannedRun {
        options: RunOptions { settle: is_fill, warm_up, ..RunOptions::default() },
        shared_store: Some(format!("growth {keys} {repetition}")),
        ..run(repetition, &case, engine(&[]), spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_is_filled_by_the_run_that_is_measured_and_read_after_it() {
        let runs = Growth.runs(Scale::Small, &[]).unwrap();
        for store in runs.chunks(WORKLOADS.len()) {
            assert_eq!(store[0].spec.workload, Workload::FillRandom);
            assert!(store.iter().all(|run| run.shared_store == store[0].shared_store));
        }
        assert!((log_growth(1_000, 1_000_000) - 2.0).abs() < 1e-9);
    }
}
