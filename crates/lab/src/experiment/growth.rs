//! `growth`: what an operation costs as a store grows.
//!
//! One store of each size is filled in random order. When it is at rest, ranges are read from it at random
//! places, five times what it holds: the first reads after a fill check each block and pay for merges,
//! and what that costs grows with the store. Then keys are read at random, asked for that are not there, and
//! ranges read again. A merge tree has a number of levels that grows with the logarithm of its size, so the
//! report sets each cost against the growth of that logarithm. What of the growth is memory's own, engines
//! named beside ours show, `floor` first of all.

use super::picks::{case, different, median_of, of_case, of_telling, or_dash, text, values_of};
use super::planning::{engine_named, run, seed};
use super::rivals;
use super::{Experiment, PlannedRun, Scale};
use crate::chart::{LineChart, Point, Unit};
use crate::error::Result;
use crate::record::Record;
use crate::report::{Measure, Metric, Report, Table};
use crate::run::RunOptions;
use crate::spec::{Length, Spec, Workload};
use crate::target::engine::NAME as OURS;

/// The experiment.
pub(super) struct Growth;

/// What is done with each store, one after the other, and what it is called.
const STEPS: [(&str, Workload); 5] = [
    ("fillrandom", Workload::FillRandom),
    (FIRST_SEEKS, Workload::SeekRandom),
    ("readrandom", Workload::ReadRandom),
    ("readmissing", Workload::ReadMissing),
    ("seekrandom", Workload::SeekRandom),
];

const FIRST_SEEKS: &str = "seekrandom, first after the fill";

/// So many keys of a store are worth one of the first seeks, which reads a hundred.
const KEYS_PER_FIRST_SEEK: u64 = 20;

impl Experiment for Growth {
    fn name(&self) -> &'static str {
        "growth"
    }

    fn question(&self) -> &'static str {
        "How does the cost of an operation grow with the number of keys?"
    }

    /// `against`: engines, as of `rivals`; none unless named.
    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        let engines = match against {
            [] => vec![OURS],
            _ => rivals::engines(scale, against)?,
        };
        let sizes: [u64; 3] = scale.pick(
            [1_000, 2_000, 4_000],
            [1_000_000, 10_000_000, 50_000_000],
            [1_000_000, 10_000_000, 100_000_000],
        );
        let mut runs = Vec::new();
        for repetition in 0..scale.pick(1, 2, 3) {
            for keys in sizes {
                for engine in &engines {
                    runs.extend(STEPS.map(|step| planned(engine, repetition, step, keys, scale)));
                }
            }
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        let engines = different(records, |one| Some(one.target.clone()));
        let sizes = different(records, |one| Some(one.spec.keys));
        let growths: Vec<Growths> =
            engines.iter().map(|engine| Growths::of(engine, records, &sizes)).collect();
        if let [smallest, .., largest] = sizes[..] {
            let told = growths.iter().filter_map(|growths| Some((growths.engine, growths.told()?)));
            let told: Vec<String> = told
                .map(|(engine, told)| format!("an operation of {engine} costs: {told}"))
                .collect();
            if !told.is_empty() {
                report.answer(format!(
                    "With {} instead of {} keys {}. The logarithm of the number of keys grows {:.2} times.",
                    Unit::Count.format(largest as f64),
                    Unit::Count.format(smallest as f64),
                    told.join("; "),
                    log_growth(smallest, largest),
                ));
            }
        }
        report.section("By the number of keys").paragraph(
            "Values of 100 bytes, one thread, in process; CPU time includes background work until the \
             store is at rest. The first seeks after a fill are so many that they read five times what \
             the store holds; the merges that an engine does for them count, and the other reads come after \
             them. What grows besides the tree is the memory that reads touch: a small store is in the \
             processor's caches, a large one not even in what its page tables' cache covers, so that each \
             access to memory takes longer.",
        );
        for growths in &growths {
            let title = match growths.engine {
                OURS => "Cost by the number of keys".to_owned(),
                other => format!("Cost by the number of keys, {other}"),
            };
            report.picture(&title, "1 is the smallest store.", &growths.chart(&sizes));
        }
        let columns = ["engine", "workload", "keys", "CPU", "operations/s"];
        let columns =
            columns.into_iter().chain(["CPU, times the smallest", "log(keys), times the smallest"]);
        let table = growths.iter().fold(Table::new(columns), |table, one| one.rows(table, &sizes));
        report.summary_table("Cost by the number of keys", &table);
        report.table("Writes and space", &writes_and_space(records, &engines));
        report
    }
}

/// What operations of one engine cost at each size.
struct Growths<'a> {
    engine: &'a str,
    /// By step, then by size.
    costs: Vec<(&'static str, Vec<Cost>)>,
}

/// CPU per operation, that as a multiple of the smallest store's, and operations per second.
struct Cost {
    keys: u64,
    cpu: Option<f64>,
    times: Option<f64>,
    rate: Option<f64>,
}

impl<'a> Growths<'a> {
    fn of(engine: &'a str, records: &[Record], sizes: &[u64]) -> Growths<'a> {
        let cost = Metric::of_run(Measure::CpuPerOperation);
        let rate = Metric::of_run(Measure::Throughput);
        let costs_of = |(step, _): (&'static str, Workload)| {
            let of = |keys: u64, metric: &Metric| {
                let is_meant = |one: &Record| {
                    one.target == engine && case(one, "workload") == step && one.spec.keys == keys
                };
                median_of(&of_telling(records, is_meant), |one| metric.of(one))
            };
            let smallest = sizes.first().and_then(|&keys| of(keys, &cost));
            let cost_of = |&keys: &u64| {
                let cpu = of(keys, &cost);
                let times = cpu.zip(smallest).map(|(cost, smallest)| cost / smallest);
                Cost { keys, cpu, times, rate: of(keys, &rate) }
            };
            (step, sizes.iter().map(cost_of).collect())
        };
        Growths { engine, costs: STEPS.map(costs_of).into() }
    }

    /// How many times as much each operation costs in the end, where all sizes were measured.
    fn told(&self) -> Option<String> {
        let ends = self.costs.iter().filter_map(|(step, costs)| {
            let all: Option<Vec<f64>> = costs.iter().map(|cost| cost.times).collect();
            Some(format!("{step} {:.2} times", all?.last()?))
        });
        Some(ends.collect::<Vec<_>>().join(", ")).filter(|told| !told.is_empty())
    }

    fn chart(&self, sizes: &[u64]) -> LineChart {
        let y_title = "CPU per operation, as a multiple of the smallest store's";
        let chart = LineChart::sweep("keys", Unit::Count, y_title, Unit::Ratio).log_x();
        let chart = self.costs.iter().fold(chart, |chart, (step, costs)| {
            let point = |cost: &Cost| Some(Point::new(cost.keys as f64, cost.times?));
            chart.line(*step, costs.iter().filter_map(point).collect())
        });
        match sizes {
            [smallest, _, ..] => {
                let growth = |&keys: &u64| Point::new(keys as f64, log_growth(*smallest, keys));
                chart.line("log(keys)", sizes.iter().map(growth).collect())
            }
            _ => chart,
        }
    }

    fn rows(&self, table: Table, sizes: &[u64]) -> Table {
        let costs = self.costs.iter();
        let rows = costs.flat_map(|(step, costs)| costs.iter().map(move |cost| (step, cost)));
        rows.fold(table, |table, (step, cost)| {
            table.row([
                self.engine.to_owned(),
                (*step).to_owned(),
                Unit::Count.format(cost.keys as f64),
                text(Unit::Microseconds, cost.cpu),
                text(Unit::PerSecond, cost.rate),
                or_dash(cost.times, |times| format!("{times:.2}")),
                format!("{:.2}", log_growth(sizes[0], cost.keys)),
            ])
        })
    }
}

fn writes_and_space(records: &[Record], engines: &[String]) -> Table {
    let columns = ["engine", "keys", "write amplification", "on disk per live byte"];
    let sizes = values_of(records, "keys");
    let rows = engines.iter().flat_map(|engine| sizes.iter().map(move |keys| (engine, keys)));
    rows.fold(Table::new(columns), |table, (engine, keys)| {
        let mut fills = of_case(records, &[("keys", keys), ("workload", "fillrandom")]);
        fills.retain(|one| one.target == *engine);
        table.row([
            engine.clone(),
            keys.clone(),
            text(Unit::Ratio, median_of(&fills, |one| one.outcome.write_amplification())),
            text(Unit::Ratio, median_of(&fills, |one| one.outcome.space_amplification())),
        ])
    })
}

fn log_growth(smallest: u64, keys: u64) -> f64 {
    (keys as f64).ln() / (smallest as f64).ln()
}

fn planned(
    engine: &str,
    repetition: u32,
    (step, workload): (&str, Workload),
    keys: u64,
    scale: Scale,
) -> PlannedRun {
    let asked = scale.pick(1_000, 2_000_000, 10_000_000);
    // Of what each run opens anew, most is met once: a block holds about 35 entries.
    let warm_up = (keys / 10).max(scale.pick(100, 500_000, 2_000_000));
    let (length, warm_up) = match workload {
        Workload::FillRandom => (keys, None),
        Workload::SeekRandom if step == FIRST_SEEKS => (keys / KEYS_PER_FIRST_SEEK, None),
        // A hundred entries each.
        Workload::SeekRandom => (asked / 20, Some(warm_up / 20)),
        _ => (asked, Some(warm_up)),
    };
    let (length, warm_up) = (Length::Operations(length), warm_up.map(Length::Operations));
    let spec = Spec { workload, keys, length, seed: seed(repetition, 0), ..Spec::default() };
    let number = keys.to_string();
    let case = [("workload", step), ("keys", &*number)];
    PlannedRun {
        target: engine.to_owned(),
        // What isn't warmed up sets merges going, and is charged for them.
        options: RunOptions { settle: warm_up.is_none(), warm_up, ..RunOptions::default() },
        shared_store: Some(format!("growth of {engine} {keys} {repetition}")),
        ..run(repetition, &case, engine_named(engine), spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_is_filled_by_the_run_that_is_measured_and_read_after_it() {
        let runs = Growth.runs(Scale::Small, &["floor".to_owned()]).unwrap();
        let mut stores = std::collections::BTreeSet::new();
        for store in runs.chunks(STEPS.len()) {
            assert_eq!(store[0].spec.workload, Workload::FillRandom);
            assert!(store.iter().all(|run| run.shared_store == store[0].shared_store));
            assert!(stores.insert(&store[0].shared_store), "each is filled once");
        }
        assert_eq!(runs[STEPS.len()].target, "floor");
        assert!(Growth.runs(Scale::Small, &[]).unwrap().iter().all(|run| run.target == OURS));
        assert!((log_growth(1_000, 1_000_000) - 2.0).abs() < 1e-9);
    }
}
