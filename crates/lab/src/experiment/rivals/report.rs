//! What the runs of `rivals` say: one table, a picture of it, and Tallybook beside each rival.

use super::{FIRST_READS, RIVALS};
use crate::chart::{HeatCell, HeatTable, Unit};
use crate::experiment::picks::{case, different, median_of, of_telling, percent, told};
use crate::load::WRITER_KEPT;
use crate::record::Record;
use crate::report::{Comparer, Measure, Metric, Report, Table};
use crate::spec::Durability;
use crate::target::{engine, floor};

/// A writer beside reads that made this share of its rate or more kept it.
const WRITER_KEEPS: f64 = 0.99;

/// An engine's CPU time per operation, and its operations per second: medians of its runs.
type Figures = (Option<f64>, Option<f64>);

/// Draws all of the report.
pub(super) fn draw(report: &mut Report, records: &[Record]) {
    let engines = engine_order(records);
    let rows = rows(records, &engines);
    report.answer(answer(records, &engines, &rows));
    report.section("One table");
    report.paragraph(&how_to_read(records));
    report.paragraph(what_reads_set_going(&rows));
    if has_floor(&engines) {
        report.paragraph(
            "The floor is no store: a table in memory and one mapped file, with checksums, written so that \
             it survives a kill, and nothing else: no order while it is written, no space given back, no \
             bounds, no recovery. Where the best rival takes less than an asked multiple of the floor, \
             that multiple can't be had on this machine by doing less.",
        );
    }
    report.summary_table("CPU per operation and operations per second", &table(&engines, &rows));
    report.picture(
        "Who is fastest, and by how much",
        "Each cell is a ratio of medians.",
        &heat(&engines, &rows),
    );
    for rival in engines.iter().filter(|name| is_rival(name)) {
        let comparer = Comparer::Targets { baseline: rival, subject: engine::NAME };
        report.comparison(comparer.compare(records));
    }
}

/// What was done, and what each engine made of it.
struct Row<'a> {
    workload: String,
    threads: u32,
    key_names: bool,
    value_bytes: String,
    /// Each engine's records that tell of it.
    records: Vec<Vec<&'a Record>>,
    /// How many runs of each engine were made.
    made: Vec<usize>,
    /// Each engine's figures.
    figures: Vec<Figures>,
}

/// The rows that the records are of, in the order in which they were made.
fn rows<'a>(records: &'a [Record], engines: &[String]) -> Vec<Row<'a>> {
    let cost = Metric::of_run(Measure::CpuPerOperation);
    let rate = Metric::of_run(Measure::Throughput);
    let what = |one: &Record| {
        let [workload, value_bytes] =
            ["workload", "value bytes"].map(|name| case(one, name).to_owned());
        (workload, one.spec.threads, one.spec.key_names, value_bytes)
    };
    let asked = different(records, |one| Some(what(one)));
    let row = |asked: (String, u32, bool, String)| {
        let is_of = |one: &Record, engine: &str| one.target == engine && what(one) == asked;
        let made = |engine: &String| records.iter().filter(|one| is_of(one, engine)).count();
        let made = engines.iter().map(made).collect();
        let of = |engine: &String| of_telling(records, |one| is_of(one, engine));
        let records: Vec<_> = engines.iter().map(of).collect();
        let figures = records.iter().map(|of_engine| {
            let median = |metric: &Metric| median_of(of_engine, |one| metric.of(one));
            (median(&cost), median(&rate))
        });
        let figures = figures.collect();
        let (workload, threads, key_names, value_bytes) = asked;
        Row { workload, threads, key_names, value_bytes, records, made, figures }
    };
    asked.into_iter().map(row).collect()
}

impl Row<'_> {
    /// What is done, as the first column says it.
    fn asked(&self) -> String {
        let threads = match self.threads {
            1 => String::new(),
            threads => format!(", {threads} threads"),
        };
        let names = if self.key_names { ", names" } else { "" };
        format!("{}{threads}{names}", self.workload)
    }

    /// Each engine's cell.
    fn cells(&self) -> impl Iterator<Item = String> {
        self.figures.iter().zip(&self.records).zip(&self.made).map(|((figures, records), made)| {
            let (Some(cost), Some(rate)) = figures else {
                return if *made > 0 { "failed".to_owned() } else { "-".to_owned() };
            };
            let mut text = format!("{cost:.2} us; {}", Unit::PerSecond.format(*rate));
            let kept = median_of(records, told(WRITER_KEPT)).filter(|kept| *kept < WRITER_KEEPS);
            text += &kept.map_or(String::new(), |kept| format!("; writer at {}", percent(kept)));
            if records.len() < *made {
                text += &format!("; {} of {made} counted", records.len());
            }
            text
        })
    }

    /// Whether a rival has a figure here to be compared with.
    fn has_rival(&self, engines: &[String]) -> bool {
        let rated = |(name, (_, rate)): (&String, &Figures)| is_rival(name) && rate.is_some();
        engines.iter().zip(&self.figures).any(rated)
    }

    /// Whether Tallybook's runs were made here, and none of them counts.
    fn has_failed(&self, engines: &[String]) -> bool {
        let own = engines.iter().zip(&self.made).zip(&self.records);
        own.filter(|((name, _), _)| *name == engine::NAME)
            .any(|((_, made), counting)| *made > 0 && counting.is_empty())
    }
}

/// In how many rows Tallybook is ahead; one that it failed in is one that it lost.
fn answer(records: &[Record], engines: &[String], rows: &[Row<'_>]) -> String {
    let speeds: Vec<f64> =
        rows.iter().filter_map(|row| ratios(engines, &row.figures).speed).collect();
    let ahead = speeds.iter().filter(|speed| **speed > 1.0).count();
    let failed =
        rows.iter().filter(|row| row.has_failed(engines) && row.has_rival(engines)).count();
    let compared = speeds.len() + failed;
    let rivals: Vec<&str> =
        engines.iter().map(String::as_str).filter(|name| is_rival(name)).collect();
    let best = match rivals[..] {
        _ if compared == 0 => return "These runs have no rival to compare with.".to_owned(),
        [only] => only.to_owned(),
        _ => format!("the best of {}", rivals.join(", ")),
    };
    let are_named = records.iter().all(|one| one.spec.key_names);
    let keys = if are_named { " with keys that begin with names" } else { "" };
    let failures = match failed {
        0 => String::new(),
        1 => "; in one row its own runs failed".to_owned(),
        some => format!("; in {some} rows its own runs failed"),
    };
    format!(
        "In the median Tallybook makes more operations per second than {best} in {ahead} of {compared} \
         rows{keys}, each rival taken where it is best{failures}."
    )
}

fn how_to_read(records: &[Record]) -> String {
    let keys = different(records, |one| Some(format!("keys of {}", one.spec.key_shape())));
    let level = match records.first().map(|one| one.spec.durability) {
        Some(Durability::Sync) => "sync: power loss",
        _ => "os: the process being killed",
    };
    format!(
        "Each cell: CPU time per operation, background work included, then operations per second; medians. \
         Speed above 1 and CPU below 1 is better than the best of the rivals in these runs, which may be \
         another one in each row and column. One thread where no more are named, {}, equal memory; an \
         acknowledged write survives {level} (fillsync: power loss). Which engine does more or less than that \
         for it is among the settings below (durability, survives).",
        keys.join(" or ")
    )
}

fn what_reads_set_going(rows: &[Row<'_>]) -> &'static str {
    match rows.iter().any(|row| row.workload == FIRST_READS) {
        true => {
            "Before reads are measured, others of their kind are made, and merges that an engine begins \
             because of those are in no row. What the first reads after a fill set going is in firstreads: as \
             many gets as there are keys, with the work behind them until the store is at rest."
        }
        false => {
            "Before reads are measured, others of their kind are made, and merges that an engine begins \
             because of those are in no row."
        }
    }
}

fn table(engines: &[String], rows: &[Row<'_>]) -> Table {
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |it| format!("{it:.2}"));
    let names = engines.iter().map(String::as_str);
    let mut columns: Vec<&str> = ["workload", "value bytes"].into_iter().chain(names).collect();
    columns.extend(["speed / best rival's", "CPU / best rival's"]);
    if has_floor(engines) {
        columns.extend(["CPU / floor's", "best rival's CPU / floor's"]);
    }
    rows.iter().fold(Table::new(columns), |table, row| {
        let Ratios { speed, cpu, over_floor, best_over_floor, .. } = ratios(engines, &row.figures);
        let mut cells = vec![row.asked(), row.value_bytes.clone()];
        cells.extend(row.cells());
        cells.extend([speed, cpu].map(ratio));
        if has_floor(engines) {
            cells.extend([over_floor, best_over_floor].map(ratio));
        }
        table.row(cells)
    })
}

fn heat(engines: &[String], rows: &[Row<'_>]) -> HeatTable {
    let compared = engines.len() - usize::from(has_floor(engines));
    HeatTable {
        title: "operations per second, as multiples of the best other engine's; blue is faster"
            .to_owned(),
        columns: engines[..compared].to_vec(),
        rows: (rows.iter())
            .map(|row| {
                let name = format!("{}, {} B", row.asked(), row.value_bytes);
                (name, heat_row(&row.figures[..compared]))
            })
            .collect(),
    }
}

fn is_rival(name: &str) -> bool {
    name != engine::NAME && name != floor::NAME
}

fn has_floor(engines: &[String]) -> bool {
    engines.iter().any(|name| name == floor::NAME)
}

/// Tallybook first, the others by first appearance in the list of rivals, the floor last.
fn engine_order(records: &[Record]) -> Vec<String> {
    let mut engines = different(records, |one| Some(one.target.clone()));
    let rank = |name: &str| match name {
        engine::NAME => 0,
        floor::NAME => usize::MAX,
        _ => 1 + RIVALS.iter().position(|(rival, _)| *rival == name).unwrap_or(RIVALS.len()),
    };
    engines.sort_by_key(|name| rank(name));
    engines
}

/// How Tallybook compares in one row, where there is something to compare with.
#[derive(Debug, Default, PartialEq)]
pub(in crate::experiment) struct Ratios<'a> {
    /// The rival that makes most operations per second.
    pub(in crate::experiment) fastest: Option<&'a str>,
    /// The rival that takes least CPU time per operation.
    pub(in crate::experiment) thriftiest: Option<&'a str>,
    /// Operations per second, over the best rival's.
    pub(in crate::experiment) speed: Option<f64>,
    /// CPU time per operation, over the best rival's.
    pub(in crate::experiment) cpu: Option<f64>,
    /// CPU time per operation, over the floor's.
    over_floor: Option<f64>,
    /// The best rival's CPU time per operation, over the floor's.
    best_over_floor: Option<f64>,
}

/// Compares the engines' costs and rates.
pub(in crate::experiment) fn ratios<'a>(engines: &'a [String], figures: &[Figures]) -> Ratios<'a> {
    let both = || engines.iter().zip(figures);
    let of = |wanted: &str| both().find(|(name, _)| *name == wanted).map(|(_, figures)| *figures);
    let rivals = || both().filter(|(name, _)| is_rival(name));
    let (our_cost, our_rate) = of(engine::NAME).unwrap_or_default();
    let (floor_cost, _) = of(floor::NAME).unwrap_or_default();
    let by_rate = rivals().filter_map(|(name, (_, rate))| Some((name.as_str(), (*rate)?)));
    let by_cost = rivals().filter_map(|(name, (cost, _))| Some((name.as_str(), (*cost)?)));
    let fastest = by_rate.max_by(|a, b| a.1.total_cmp(&b.1));
    let thriftiest = by_cost.min_by(|a, b| a.1.total_cmp(&b.1));
    let (best_rate, best_cost) = (fastest.map(|(_, rate)| rate), thriftiest.map(|(_, cost)| cost));
    let over =
        |one: Option<f64>, other: Option<f64>| one.zip(other).map(|(one, other)| one / other);
    Ratios {
        fastest: fastest.map(|(name, _)| name),
        thriftiest: thriftiest.map(|(name, _)| name),
        speed: over(our_rate, best_rate),
        cpu: over(our_cost, best_cost),
        over_floor: over(our_cost, floor_cost),
        best_over_floor: over(best_cost, floor_cost),
    }
}

/// Each engine's speed over the best of the others.
fn heat_row(figures: &[Figures]) -> Vec<Option<HeatCell>> {
    let best_other = |own: usize| {
        let others = figures.iter().enumerate().filter(|(at, _)| *at != own);
        others.filter_map(|(_, (_, rate))| *rate).reduce(f64::max)
    };
    let cell = |(at, (_, rate)): (usize, &Figures)| {
        let rate = (*rate)?;
        let goodness = best_other(at).map_or(1.0, |best| rate / best);
        let note = Unit::PerSecond.format(rate);
        Some(HeatCell { text: Unit::Ratio.format(goodness), goodness, note })
    };
    figures.iter().enumerate().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::kept_rate::tests::took;

    /// Rows that our own runs failed in were left out of the count: failing made us look better.
    #[test]
    fn a_row_that_our_own_runs_failed_in_is_not_ahead() {
        let run = |target: &str, workload: &str, repetition, seconds| {
            let mut one = took((repetition, seconds));
            one.target = target.to_owned();
            one.case.insert("workload".to_owned(), workload.to_owned());
            one.outcome.operations = 1000;
            one.outcome.cpu_s = seconds;
            one
        };
        let mut records = Vec::new();
        for (workload, seconds) in [("fillseq", 1.0), ("overwrite", 1.0), ("scan", 1.0)] {
            for repetition in 0..2 {
                records.push(run(engine::NAME, workload, repetition, seconds));
                records.push(run("lmdb", workload, repetition, 2.0));
            }
        }
        let answer = |records: &[Record]| {
            let engines = engine_order(records);
            super::answer(records, &engines, &rows(records, &engines))
        };
        assert!(answer(&records).contains("in 3 of 3 rows, each"), "{}", answer(&records));
        let fail = |one: &mut Record| one.outcome.invalid = Some("wrong data: key 7".to_owned());
        fail(&mut records[0]);
        fail(&mut records[2]);
        fail(&mut records[4]);
        let told = answer(&records);
        assert!(told.contains("in 2 of 3 rows, each"), "{told}");
        assert!(told.ends_with("; in one row its own runs failed."), "{told}");
        let engines = engine_order(&records);
        let rows = rows(&records, &engines);
        let cells: Vec<String> = rows.iter().filter_map(|row| row.cells().next()).collect();
        assert_eq!(cells[0], "failed");
        assert!(cells[1].ends_with("; 1 of 2 counted"), "{cells:?}");
        assert!(cells[2].ends_with("/s"), "{cells:?}");
        // Where every rival failed too there is nobody to lose to.
        records.iter_mut().for_each(fail);
        assert!(answer(&records).contains("no rival to compare with"));
    }

    #[test]
    fn the_best_rival_is_another_one_by_each_measure() {
        let engines = ["tallybook", "a", "b", "floor"].map(str::to_owned);
        let figures = [
            (Some(2.0), Some(300.0)),
            (Some(1.0), Some(100.0)),
            (Some(4.0), Some(200.0)),
            (Some(0.5), Some(900.0)),
        ];
        let without_floor = Ratios {
            fastest: Some("b"),
            thriftiest: Some("a"),
            speed: Some(1.5),
            cpu: Some(2.0),
            ..Ratios::default()
        };
        assert_eq!(ratios(&engines[..3], &figures[..3]), without_floor);
        let with_floor =
            Ratios { over_floor: Some(4.0), best_over_floor: Some(2.0), ..without_floor };
        assert_eq!(ratios(&engines, &figures), with_floor);
        assert_eq!(ratios(&engines[..1], &figures[..1]), Ratios::default());
        let row = heat_row(&figures[..3]);
        assert_eq!(row[1].as_ref().unwrap().goodness, 1.0 / 3.0);
    }
}
