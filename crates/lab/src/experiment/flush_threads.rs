//! One flush thread against four, on a server under load at two rates.
//!
//! Four connections put, get, delete, and get beside a writer. At 10,000 requests/s each connection
//! has one request under way, as most clients do; at 100,000 up to 32, because four requests at a time
//! can't carry that rate over loopback on a small machine, whatever the store does. Memtables are kept
//! small, so that flushes are many.

use super::picks::{
    LatencyRow, bar_of, latency, latency_table, median_of, of_case, percentile_chart, times,
};
use super::planning::{MIB, at_rate, budget, only_ours, run, seed, server};
use super::{Experiment, PlannedRun, Scale};
use crate::chart::{BarChart, Unit, thousands};
use crate::error::Result;
use crate::record::Record;
use crate::report::{Comparer, Report};
use crate::spec::{Spec, Workload};

/// The experiment.
#[derive(Debug)]
pub(super) struct FlushThreads;

const THREADS: [&str; 2] = ["1", "4"];
const CONNECTIONS: u32 = 4;

/// What is asked: its name, workload, and the kind of operation that is looked at.
const ASKED: [(&str, Workload, &str); 4] = [
    ("put", Workload::FillRandom, "put"),
    ("get", Workload::ReadRandom, "get"),
    ("delete", Workload::DeleteRandom, "delete"),
    ("put with get", Workload::ReadWhileWriting, "get"),
];

struct Size {
    repetitions: u32,
    /// Requests per second, and how many are under way on a connection.
    rates: [(u32, u32); 2],
    seconds: f64,
    /// Keys to be read.
    keys: u64,
    memtable_bytes: u64,
}

impl Size {
    fn of(scale: Scale) -> Size {
        match scale {
            Scale::Tiny => Size {
                repetitions: 1,
                rates: [(2_000, 1), (5_000, 4)],
                seconds: 0.1,
                keys: 2_000,
                memtable_bytes: 64 << 10,
            },
            Scale::Small => Size {
                repetitions: 3,
                rates: [(10_000, 1), (100_000, 32)],
                seconds: 8.0,
                keys: 300_000,
                memtable_bytes: 4 * MIB,
            },
            Scale::Full => Size {
                repetitions: 5,
                rates: [(10_000, 1), (100_000, 32)],
                seconds: 60.0,
                keys: 5_000_000,
                memtable_bytes: 16 * MIB,
            },
        }
    }

    fn planned(
        &self,
        repetition: u32,
        (rate, pipeline): (u32, u32),
        (asked, workload, _): (&str, Workload, &str),
        threads: &str,
    ) -> PlannedRun {
        // Puts and deletions meet each key once, so that there must be as many as requests.
        let once = matches!(workload, Workload::FillRandom | Workload::DeleteRandom);
        let requests = (f64::from(rate) * self.seconds) as u64;
        // Beside a writer at the full rate, a tenth as many gets, at least 1,000 a second.
        let get_rate = match workload {
            Workload::ReadWhileWriting => (rate / 10).max(1_000),
            _ => rate,
        };
        let spec = Spec {
            workload,
            keys: if once { requests } else { self.keys },
            background_rate: f64::from(rate),
            threads: CONNECTIONS,
            pipeline,
            seed: seed(repetition, 0),
            ..Spec::default()
        };
        let memtable = self.memtable_bytes.to_string();
        let buffer = (self.memtable_bytes * 8).to_string();
        let flags = [
            ("flush-threads", threads),
            ("memtable-bytes", &*memtable),
            ("write-buffer-bytes", &*buffer),
            ("durability", "os"),
        ];
        let is_profiled = repetition == 0 && rate == self.rates[1].0;
        let rate = rate.to_string();
        let case = [("asked", asked), ("rate", &*rate), ("flush threads", threads)];
        PlannedRun {
            is_profiled,
            budget: budget(self.memtable_bytes * 8),
            ..run(
                repetition,
                &case,
                server(&flags),
                at_rate(f64::from(get_rate), self.seconds, spec),
            )
        }
    }
}

impl Experiment for FlushThreads {
    fn name(&self) -> &'static str {
        "flush-threads"
    }

    fn question(&self) -> &'static str {
        "Do more flush threads make a loaded server faster?"
    }

    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        only_ours(self.name(), against)?;
        let size = Size::of(scale);
        let mut runs = Vec::new();
        for repetition in 0..size.repetitions {
            for rate in size.rates {
                for asked in ASKED {
                    for threads in THREADS {
                        runs.push(size.planned(repetition, rate, asked, threads));
                    }
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
        for (at, rate) in rates(records).into_iter().enumerate() {
            rate_section(&mut report, records, rate, at == 0);
        }
        let (baseline, subject) = (THREADS[0], THREADS[1]);
        let comparer = Comparer::Parameter { name: "flush threads", baseline, subject };
        report.comparison(comparer.compare(records));
        report
    }
}

/// The rates that were asked, lowest first.
fn rates(records: &[Record]) -> Vec<u32> {
    let rates = records.iter().filter_map(|record| record.case.get("rate")?.parse().ok());
    let mut rates: Vec<u32> = rates.collect();
    rates.sort_unstable();
    rates.dedup();
    rates
}

fn of<'a>(records: &'a [Record], rate: u32, asked: &str, threads: &str) -> Vec<&'a Record> {
    let rate = rate.to_string();
    of_case(records, &[("asked", asked), ("rate", &rate), ("flush threads", threads)])
}

/// Of puts, which alone wait for flushes.
fn answer(records: &[Record]) -> Option<String> {
    let rates = rates(records);
    let p99 = |rate, threads| {
        median_of(&of(records, rate, "put", threads), latency("put", |one| one.p99_ns))
    };
    let mut parts = Vec::new();
    for rate in rates {
        let (one, four) = (p99(rate, THREADS[0])?, p99(rate, THREADS[1])?);
        let ns = |value| Unit::Nanoseconds.format(value);
        parts.push(format!(
            "at {} puts/s the p99 is {} with one flush thread and {} with four ({} as long)",
            thousands(rate.into()),
            ns(one),
            ns(four),
            times(four, one)
        ));
    }
    let sentence = parts.join(", ");
    let mut letters = sentence.chars();
    let first = letters.next()?.to_uppercase();
    Some(format!("{first}{}.", letters.as_str()))
}

fn rate_section(report: &mut Report, records: &[Record], rate: u32, is_first: bool) {
    let title = format!("At {} requests/s", thousands(rate.into()));
    report.section(&title);
    let rows: Vec<LatencyRow<'_>> = ASKED
        .iter()
        .flat_map(|&(asked, _, kind)| {
            THREADS.map(|threads| LatencyRow {
                name: format!("{asked}, {threads} flush thread{}", plural(threads)),
                records: of(records, rate, asked, threads),
                kind,
            })
        })
        .collect();
    let bars = THREADS.iter().fold(
        BarChart::new("p99 latency from when due, less is better", Unit::Nanoseconds),
        |chart, threads| chart.series(format!("{threads} flush thread{}", plural(threads))),
    );
    let bars = ASKED.iter().fold(bars, |chart, &(asked, _, kind)| {
        let bar =
            |threads| bar_of(&of(records, rate, asked, threads), latency(kind, |one| one.p99_ns));
        chart.group(asked, THREADS.map(bar).to_vec())
    });
    report.picture(
        &format!("p99 by flush threads at {rate} per second"),
        "Medians over repetitions with 95 % intervals.",
        &bars,
    );
    let table = latency_table(&rows);
    if is_first {
        report.summary_table("Latencies", &table);
    } else {
        report.table("Latencies", &table);
    }
    for (asked, _, _) in ASKED {
        let name = format!("{asked},");
        let of_asked = rows.iter().filter(|row| row.name.starts_with(&name));
        let of_asked: Vec<LatencyRow<'_>> = of_asked.cloned().collect();
        let title = format!("{asked} at {} requests/s", thousands(rate.into()));
        report.chart(&title, "Further right is rarer.", &percentile_chart(&of_asked));
    }
}

fn plural(threads: &str) -> &'static str {
    if threads == "1" { "" } else { "s" }
}
