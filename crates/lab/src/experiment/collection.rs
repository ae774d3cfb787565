//! What collecting the journal gains in space, and costs in latency and writes, under churn.
//!
//! Values of 4 KiB stay in the journal, which is where overwritten ones are dead weight. In each round
//! three quarters as many puts as there are keys overwrite keys at random, at a constant rate, and
//! then gets read at random; every round goes on from the one before, on the same store. A live ratio
//! of 0 lets nothing be collected but what is wholly dead.

use super::picks::{
    LatencyRow, latency, latency_table, median_of, of_case, percentile_chart, text, times, told,
    values_of,
};
use super::planning::{MIB, at_rate, budget, engine, only_ours, run, seed};
use super::{Experiment, PlannedRun, Scale};
use crate::chart::{LineChart, Point, Unit};
use crate::error::Result;
use crate::record::{Latency, Record};
use crate::report::{Comparer, Report, Table};
use crate::spec::{Spec, ValueSizes, Workload};

/// The experiment.
#[derive(Debug)]
pub(super) struct Collection;

const COLLECTION: [(&str, &str); 2] = [("on", "0.5"), ("off", "0")];
/// Puts of a round, as a share of the keys.
const CHURN: f64 = 0.75;
const ASKED: [(&str, Workload); 2] = [("put", Workload::Overwrite), ("get", Workload::ReadRandom)];

struct Size {
    repetitions: u32,
    rounds: u32,
    keys: u64,
    put_rate: f64,
    get_rate: f64,
    get_seconds: f64,
    /// Largest segment, so that even a small store has many.
    segment_bytes: u64,
}

impl Size {
    fn of(scale: Scale) -> Size {
        match scale {
            Scale::Tiny => Size {
                repetitions: 1,
                rounds: 2,
                keys: 1_000,
                put_rate: 10_000.0,
                get_rate: 5_000.0,
                get_seconds: 0.05,
                segment_bytes: 4 * MIB,
            },
            Scale::Small => Size {
                repetitions: 3,
                rounds: 8,
                keys: 50_000,
                put_rate: 8_000.0,
                get_rate: 10_000.0,
                get_seconds: 4.0,
                segment_bytes: 8 * MIB,
            },
            Scale::Full => Size {
                repetitions: 5,
                rounds: 20,
                keys: 2_000_000,
                put_rate: 20_000.0,
                get_rate: 20_000.0,
                get_seconds: 30.0,
                segment_bytes: 64 * MIB,
            },
        }
    }

    fn planned(
        &self,
        repetition: u32,
        (collection, live_ratio): (&str, &str),
        round: u32,
        (asked, workload): (&str, Workload),
    ) -> PlannedRun {
        let spec = Spec {
            workload,
            keys: self.keys,
            values: ValueSizes::Fixed(4096),
            seed: seed(repetition, round),
            ..Spec::default()
        };
        let spec = match workload {
            Workload::Overwrite => {
                at_rate(self.put_rate, self.keys as f64 * CHURN / self.put_rate, spec)
            }
            _ => at_rate(self.get_rate, self.get_seconds, spec),
        };
        let segment = self.segment_bytes.to_string();
        let settings = [("collection_live_ratio", live_ratio), ("segment_bytes_max", &*segment)];
        let number = format!("{:03}", round + 1);
        let case = [("collection", collection), ("round", &*number), ("asked", asked)];
        PlannedRun {
            // Segments can be judged once their memtable is flushed, so memtables are small.
            budget: budget(4 * MIB),
            shared_store: Some(format!("collection {collection} {repetition}")),
            ..run(repetition, &case, engine(&settings), spec)
        }
    }
}

impl Experiment for Collection {
    fn name(&self) -> &'static str {
        "collection"
    }

    fn question(&self) -> &'static str {
        "What does collecting the journal under 75 % churn gain in space, and cost in latency?"
    }

    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        only_ours(self.name(), against)?;
        let size = Size::of(scale);
        let mut runs = Vec::new();
        for repetition in 0..size.repetitions {
            for collection in COLLECTION {
                for round in 0..size.rounds {
                    let planned = |asked| size.planned(repetition, collection, round, asked);
                    runs.extend(ASKED.map(planned));
                }
            }
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        if let Some(answer) = answer(records) {
            report.answer(answer);
        }
        let rounds = values_of(records, "round");
        space_section(&mut report, records, &rounds);
        latency_section(&mut report, records, &rounds);
        let last = rounds.last().map_or("", String::as_str);
        let at_the_end: Vec<Record> =
            of_case(records, &[("round", last)]).into_iter().cloned().collect();
        let comparer = Comparer::Parameter { name: "collection", baseline: "off", subject: "on" };
        report.comparison(comparer.compare(&at_the_end));
        report
    }
}

fn of<'a>(records: &'a [Record], collection: &str, round: &str, asked: &str) -> Vec<&'a Record> {
    of_case(records, &[("collection", collection), ("round", round), ("asked", asked)])
}

fn answer(records: &[Record]) -> Option<String> {
    let rounds = values_of(records, "round");
    let last = rounds.last()?;
    let space = |collection| {
        let of = of(records, collection, last, "put");
        median_of(&of, |record| record.outcome.space_amplification())
    };
    let p99 = |collection, asked| {
        let pick = |one: &Latency| one.p99_ns;
        median_of(&of(records, collection, last, asked), latency(asked, pick))
    };
    let (on, off) = (space("on")?, space("off")?);
    let (put_on, put_off) = (p99("on", "put")?, p99("off", "put")?);
    let (get_on, get_off) = (p99("on", "get")?, p99("off", "get")?);
    let ns = |value| Unit::Nanoseconds.format(value);
    Some(format!(
        "After {} rounds of 75 % churn the store takes {} its live bytes on disk with collection and {} \
         without, while the put p99 is {} against {}, and the get p99 {} against {}.",
        rounds.len(),
        times(on, 1.0),
        times(off, 1.0),
        ns(put_on),
        ns(put_off),
        ns(get_on),
        ns(get_off),
    ))
}

fn space_section(report: &mut Report, records: &[Record], rounds: &[String]) {
    let chart = COLLECTION.iter().fold(
        LineChart::sweep("round", Unit::Count, "bytes on disk per live byte", Unit::Ratio),
        |chart, (collection, _)| {
            let point = |(at, round): (usize, &String)| {
                let of = of(records, collection, round, "put");
                let y = median_of(&of, |record| record.outcome.space_amplification())?;
                Some(Point::new((at + 1) as f64, y))
            };
            let points = rounds.iter().enumerate().filter_map(point).collect();
            chart.line(format!("collection {collection}"), points)
        },
    );
    let columns = ["round", "collection", "on disk", "space", "writes", "collected", "collections"];
    let mut table = Table::new(columns);
    for round in rounds {
        for (collection, _) in COLLECTION {
            let of = of(records, collection, round, "put");
            let disk = median_of(&of, |record| Some(record.outcome.disk_bytes as f64));
            let space = median_of(&of, |record| record.outcome.space_amplification());
            let writes = median_of(&of, |record| record.outcome.write_amplification());
            table = table.row([
                round.clone(),
                collection.to_owned(),
                text(Unit::Bytes, disk),
                text(Unit::Ratio, space),
                text(Unit::Ratio, writes),
                text(Unit::Bytes, median_of(&of, told("collection.bytes_written"))),
                text(Unit::Count, median_of(&of, told("collection.count"))),
            ]);
        }
    }
    report
        .section("Space")
        .paragraph(
            "Once background work is done after a round's puts. Space is bytes on disk per byte that lives, \
             writes are bytes that went to the device per byte put.",
        )
        .picture("Space over rounds of churn", "1 would be no dead byte at all.", &chart)
        .summary_table("Space by round", &table);
}

fn latency_section(report: &mut Report, records: &[Record], rounds: &[String]) {
    let last = rounds.last().map_or("", String::as_str);
    report.section("Latency").paragraph(
        "Puts run while segments are collected; gets run once that is done. Curves are of the last round.",
    );
    let mut all = Vec::new();
    for (asked, _) in ASKED {
        let rows = COLLECTION.map(|(collection, _)| LatencyRow {
            name: format!("collection {collection}"),
            records: of(records, collection, last, asked),
            kind: asked,
        });
        let title = format!("{asked} latency in the last round");
        report.chart(&title, "Further right is rarer.", &percentile_chart(&rows));
        all.extend(rows);
    }
    report.table("The last round", &latency_table(&all));
    let mut chart =
        LineChart::sweep("round", Unit::Count, "p99 from when due", Unit::Nanoseconds).log_y();
    for (asked, _) in ASKED {
        for (collection, _) in COLLECTION {
            let point = |(at, round): (usize, &String)| {
                let of = of(records, collection, round, asked);
                let y = median_of(&of, latency(asked, |one| one.p99_ns))?;
                Some(Point::new((at + 1) as f64, y))
            };
            let points = rounds.iter().enumerate().filter_map(point).collect();
            chart = chart.line(format!("{asked}, collection {collection}"), points);
        }
    }
    report.chart("p99 over rounds", "Lower is faster.", &chart);
}
