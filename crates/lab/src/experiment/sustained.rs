//! `sustained`: which rate of overwrites a store keeps up, and with what latency.
//!
//! A ladder of constant rates for small and for large values, each rung long enough to fill caches and
//! the page cache's share of dirty pages many times over, and all of a ladder on one store, so that
//! compaction and collection have their usual work. A closed loop tells the highest rate of a moment; only
//! a constant one tells what can be kept up without stalls (Luo and Carey, "On Performance Stability in
//! LSM-based Storage Systems", VLDB 2019). So each ladder ends as theirs do: a closed loop finds the highest
//! rate that lasts, and 95 % of it are then asked for. Latency counts from when a put was due.

use super::kept_rate::{counted, is_kept};
use super::picks::{
    LatencyRow, latency, latency_table, longest_chart, median_of, of_case, percentile_chart,
    rate_of, text, told, values_of,
};
use super::planning::{MIB, at_rate, budget, engine, only_ours, run, seed};
use super::{Experiment, PlannedRun, Scale};
use crate::chart::Unit;
use crate::error::Result;
use crate::record::Record;
use crate::report::{Report, Table};
use crate::runs_file::RunName;
use crate::spec::{Length, Pace, Spec, ValueSizes, Workload};

/// The experiment.
pub(super) struct Sustained;

/// Bytes of a value, and puts per second of each rung.
const LADDERS: [(u32, [u32; 4]); 2] =
    [(100, [100_000, 200_000, 300_000, 400_000]), (4096, [10_000, 20_000, 30_000, 40_000])];

/// What the varied rate is called of a closed loop, and of the share of its rate.
const HIGHEST: &str = "highest";
const SHARE_OF_HIGHEST: &str = "95 % of the highest";
const SHARE: f64 = 0.95;
/// This part of a closed loop's seconds tells nothing of the rate that lasts: until merges and collection
/// have something to do, writers run ahead of them. (Luo and Carey leave out the first 20 minutes of 120.)
const UNSTEADY_PART: usize = 3;

impl Experiment for Sustained {
    fn name(&self) -> &'static str {
        "sustained"
    }

    fn question(&self) -> &'static str {
        "Which rate of overwrites is kept up, and how long do puts take meanwhile?"
    }

    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        only_ours(self.name(), against)?;
        let mut runs = Vec::new();
        for repetition in 0..scale.pick(1, 1, 3) {
            for (bytes, rates) in LADDERS {
                runs.extend(rates.map(|rate| planned(repetition, bytes, rate, scale)));
                runs.push(closed(repetition, bytes, scale));
            }
        }
        Ok(runs)
    }

    fn following(&self, planned: &[PlannedRun], records: &[Record]) -> Vec<PlannedRun> {
        let closed = planned.iter().filter(|run| run.case["rate"] == HIGHEST);
        let share = |run: &PlannedRun| {
            let name = run.name(self.name());
            let found = records.iter().rev().find(|one| RunName::of(one) == name)?;
            let highest = steady_rate(found).filter(|_| found.outcome.counts())?;
            let mut share = run.clone();
            share.case.insert("rate".to_owned(), SHARE_OF_HIGHEST.to_owned());
            share.spec.pace = Pace::Constant { per_second: (highest * SHARE).floor() };
            share.shared_store = run.shared_store.as_ref().map(|store| format!("{store}, share"));
            Some(share)
        };
        closed.filter_map(share).collect()
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let records = &of_their_loops(records)[..];
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        let ladders = values_of(records, "value bytes");
        let told: Vec<String> =
            ladders.iter().filter_map(|bytes| highest_kept(records, bytes)).collect();
        if !told.is_empty() {
            let shares: Vec<String> =
                ladders.iter().filter_map(|bytes| share_told(records, bytes)).collect();
            report.answer(format!(
                "The highest rates of overwrites that are kept up, of the rungs: {}; at 95 % of a closed \
                 loop's steady rate {}.",
                told.join("; "),
                if shares.is_empty() { "nothing was asked".to_owned() } else { shares.join("; ") }
            ));
        }
        let shares: Vec<LatencyRow<'_>> =
            ladders.iter().flat_map(|bytes| share_rows(records, bytes)).collect();
        let rows: Vec<Vec<LatencyRow<'_>>> =
            ladders.iter().map(|bytes| latency_rows(records, bytes)).collect();
        report
            .section("Puts by rate")
            .summary_table("Puts by rate", &latency_table(&rows.concat()))
            .section("At 95 % of the highest rate")
            .paragraph(
                "A closed loop finds the highest rate that lasts, without its first third, in which writers run \
                 ahead of merges and collection; latency in it is that of a put alone. At 95 % of that rate \
                 latency counts from when a put was due.",
            )
            .table("A closed loop, and 95 % of its rate", &latency_table(&shares))
            .chart(
                "The longest put in each second, at the highest rate and 95 % of it",
                "Level lines mean that nothing ever stalls.",
                &longest_chart("longest put in each second", &shares),
            )
            .table("What the store did at those rates", &work_table(&shares));
        for (at, (bytes, rows)) in ladders.iter().zip(&rows).enumerate() {
            let longest = longest_chart("longest put in each second", rows);
            report.section(&format!("Values of {bytes} bytes"));
            let title = format!("Put latency by rate, values of {bytes} bytes");
            let chart = percentile_chart(rows);
            match at {
                0 => report.picture(&title, "Further right is rarer.", &chart),
                _ => report.chart(&title, "Further right is rarer.", &chart),
            };
            report
                .chart(
                    &format!("The longest put in each second, values of {bytes} bytes"),
                    "Level lines mean that nothing ever stalls.",
                    &longest,
                )
                .table("What the store did meanwhile", &work_table(rows));
        }
        report
    }
}

/// The rungs of a ladder, lowest first.
fn rungs<'a>(records: &'a [Record], bytes: &str) -> Vec<(u32, Vec<&'a Record>)> {
    let rates = values_of(records, "rate");
    let rung = |rate: &String| {
        let of = of_case(records, &[("value bytes", bytes), ("rate", rate)]);
        Some((rate.parse().ok()?, of)).filter(|(_, of): &(u32, _)| !of.is_empty())
    };
    let mut rungs: Vec<_> = rates.iter().filter_map(rung).collect();
    // A run that was broken off and gone on with has them in another order.
    rungs.sort_by_key(|(rate, _)| *rate);
    rungs
}

fn latency_rows<'a>(records: &'a [Record], bytes: &str) -> Vec<LatencyRow<'a>> {
    let row = |(rate, records)| {
        let per_second_bytes = f64::from(rate) * bytes.parse::<f64>().unwrap_or_default();
        let rate_bytes = Unit::Bytes.format(per_second_bytes);
        let name = format!("{bytes} B, {}, {rate_bytes}/s", per_second(rate));
        LatencyRow { name, records, kind: "put" }
    };
    rungs(records, bytes).into_iter().map(row).collect()
}

/// Without shares of the rate of a loop that is made again, or was since.
fn of_their_loops(records: &[Record]) -> Vec<Record> {
    let place = |record: &Record| (record.case.get("value bytes").cloned(), record.repetition);
    let is_of =
        |record: &Record, rate: &str| record.case.get("rate").is_some_and(|one| one == rate);
    let is_stale = |record: &Record| {
        let is_its_loop = |other: &Record| {
            is_of(other, HIGHEST)
                && place(other) == place(record)
                && other.started_at_ms <= record.started_at_ms
        };
        is_of(record, SHARE_OF_HIGHEST) && !records.iter().any(is_its_loop)
    };
    records.iter().filter(|record| !is_stale(record)).cloned().collect()
}

/// The closed loop, and the share of its rate.
fn share_rows<'a>(records: &'a [Record], bytes: &str) -> Vec<LatencyRow<'a>> {
    let row = |rate: &str| {
        let records = of_case(records, &[("value bytes", bytes), ("rate", rate)]);
        LatencyRow { name: format!("{bytes} B, {rate}"), records, kind: "put" }
    };
    [HIGHEST, SHARE_OF_HIGHEST].map(row).into_iter().filter(|row| !row.records.is_empty()).collect()
}

fn asked_rate(record: &Record) -> Option<f64> {
    match record.spec.pace {
        Pace::Constant { per_second } => Some(per_second),
        _ => None,
    }
}

/// Puts per second of a closed loop once merges and collection have their usual work.
fn steady_rate(record: &Record) -> Option<f64> {
    // The last second is cut short.
    let seconds = &record.outcome.per_second;
    let whole = &seconds[..seconds.len().min(record.outcome.seconds as usize)];
    let steady = &whole[whole.len() / UNSTEADY_PART..];
    match steady.len() {
        0 => rate_of(record, "put"),
        seconds => Some(steady.iter().sum::<u64>() as f64 / seconds as f64),
    }
}

/// What came of the share of a closed loop's rate.
fn share_told(records: &[Record], bytes: &str) -> Option<String> {
    let of = of_case(records, &[("value bytes", bytes), ("rate", SHARE_OF_HIGHEST)]);
    let asked = median_of(&of, asked_rate)?;
    let kept = match is_kept(&of) {
        true => "is kept up".to_owned(),
        false => {
            let reached = text(Unit::PerSecond, median_of(&of, |one| rate_of(one, "put")));
            format!("is not kept up ({reached} are taken)")
        }
    };
    let put = |pick| text(Unit::Nanoseconds, median_of(&of, latency("put", pick)));
    Some(format!(
        "{bytes} bytes at {} {kept}, with a p99.9 of {} and a longest put of {}{}",
        Unit::PerSecond.format(asked),
        put(|one| one.p999_ns),
        put(|one| one.max_ns),
        counted_text(&of),
    ))
}

fn highest_kept(records: &[Record], bytes: &str) -> Option<String> {
    let kept = rungs(records, bytes);
    let (rate, of) = kept.iter().rev().find(|(_, of)| is_kept(of))?;
    let put = |pick| text(Unit::Nanoseconds, median_of(of, latency("put", pick)));
    Some(format!(
        "values of {bytes} bytes at {}, with a p99 of {}, a p99.9 of {} and a longest put of {}{}",
        per_second(*rate),
        put(|one| one.p99_ns),
        put(|one| one.p999_ns),
        put(|one| one.max_ns),
        counted_text(of),
    ))
}

/// How many of the runs counted, where not all did.
fn counted_text(of: &[&Record]) -> String {
    counted(of).map_or(String::new(), |counted| format!(" ({counted})"))
}

fn per_second(rate: u32) -> String {
    Unit::PerSecond.format(f64::from(rate))
}

fn work_table(rows: &[LatencyRow<'_>]) -> Table {
    let columns = ["rate", "puts", "flushes", "puts slowed", "slowed for", "writes", "space"];
    rows.iter().fold(Table::new(columns), |table, row| {
        let of = &row.records;
        let figure = |name, unit| text(unit, median_of(of, told(name)));
        table.row([
            row.name.clone(),
            text(Unit::Count, median_of(of, |one| Some(one.outcome.operations as f64))),
            figure("flush.count", Unit::Count),
            figure("stall.count", Unit::Count),
            figure("stall.seconds", Unit::Seconds),
            text(Unit::Ratio, median_of(of, |one| one.outcome.write_amplification())),
            text(Unit::Ratio, median_of(of, |one| one.outcome.space_amplification())),
        ])
    })
}

/// As many puts as possible, of as many bytes as the study had.
fn closed(repetition: u32, bytes: u32, scale: Scale) -> PlannedRun {
    let put_bytes: u64 = match bytes {
        100 => scale.pick(1 << 20, 5 << 30, 20 << 30),
        _ => scale.pick(8 << 20, 20 << 30, 20 << 30),
    };
    // The rate of the rung that it is made from is asked of nobody.
    let mut closed = planned(repetition, bytes, LADDERS[0].1[0], scale);
    closed.case.insert("rate".to_owned(), HIGHEST.to_owned());
    closed.spec.pace = Pace::Closed;
    closed.spec.length = Length::Operations(put_bytes / entry_bytes(bytes));
    closed
}

/// Bytes of a key and its value.
fn entry_bytes(value_bytes: u32) -> u64 {
    u64::from(Spec::default().key_bytes + value_bytes)
}

fn planned(repetition: u32, bytes: u32, rate: u32, scale: Scale) -> PlannedRun {
    let per_entry = entry_bytes(bytes);
    let live_bytes: u64 = scale.pick(200 << 10, 1 << 30, 8 << 30);
    let put_bytes: u64 = match bytes {
        100 => scale.pick(1 << 20, 1 << 30, 20 << 30),
        _ => scale.pick(8 << 20, 4 << 30, 20 << 30),
    };
    let spec = Spec {
        workload: Workload::Overwrite,
        keys: live_bytes / per_entry,
        values: ValueSizes::Fixed(bytes),
        seed: seed(repetition, rate),
        ..Spec::default()
    };
    let seconds = (put_bytes / per_entry) as f64 / f64::from(rate);
    let (rate_text, bytes_text) = (rate.to_string(), bytes.to_string());
    let case = [("value bytes", &*bytes_text), ("rate", &*rate_text)];
    PlannedRun {
        budget: budget(256 * MIB),
        shared_store: Some(format!("sustained {bytes} {repetition}")),
        ..run(repetition, &case, engine(&[]), at_rate(f64::from(rate), seconds, spec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::kept_rate::tests::took;

    /// A run of ten seconds that took all the puts that were asked of it.
    fn made(repetition: u32, rate: &str, pace: Pace) -> Record {
        let mut record = took((repetition, 10.0));
        record.case.insert("value bytes".to_owned(), "100".to_owned());
        record.case.insert("rate".to_owned(), rate.to_owned());
        record.spec.pace = pace;
        record.outcome.operations = 10_000;
        let put = crate::record::KindOutcome { count: 10_000, ..Default::default() };
        record.outcome.kinds.insert("put".to_owned(), put);
        record.outcome.per_second = vec![1000; 10];
        record
    }

    /// A rate was kept in the table and "not kept up (all of it taken)" in the answer, where one of two runs lagged.
    #[test]
    fn a_run_that_lagged_speaks_neither_for_nor_against_a_share() {
        let share = Pace::Constant { per_second: 1000.0 };
        let mut records: Vec<Record> = (0..2)
            .flat_map(|at| {
                let closed = made(at, HIGHEST, Pace::Closed);
                [closed, made(at, "1000", share), made(at, SHARE_OF_HIGHEST, share)]
            })
            .collect();
        for lagged in &mut records[4..] {
            lagged.outcome.invalid = Some("the generator lagged".to_owned());
        }
        let answer = Sustained.report(&records, "again").summary_markdown();
        let answer = answer.lines().find(|line| line.starts_with("**")).unwrap();
        assert!(answer.contains("is kept up") && answer.contains("1 of 2 counted"), "{answer}");
    }

    /// The old share stood beside the new loop until the new one was made, and without any loop once that was taken
    /// back.
    #[test]
    fn a_share_of_a_rate_that_was_measured_anew_is_drawn_no_more() {
        let share = Pace::Constant { per_second: 950.0 };
        let mut records = vec![made(0, HIGHEST, Pace::Closed), made(0, SHARE_OF_HIGHEST, share)];
        (records[0].started_at_ms, records[1].started_at_ms) = (1, 2);
        assert_eq!(of_their_loops(&records).len(), 2);
        assert!(of_their_loops(&records[1..]).is_empty());
        records[0].started_at_ms = 3;
        assert_eq!(of_their_loops(&records), records[..1]);
    }

    #[test]
    fn a_ladder_climbs_on_one_store_and_a_rung_lasts_by_its_bytes() {
        let runs = Sustained.runs(Scale::Full, &[]).unwrap();
        for (ladder, (bytes, rates)) in runs.chunks(5).zip(LADDERS) {
            assert!(rates.is_sorted());
            assert!(ladder.iter().all(|run| run.shared_store == ladder[0].shared_store));
            for run in ladder {
                let Length::Operations(puts) = run.spec.length else { panic!("{:?}", run.spec) };
                let put_bytes = puts * (u64::from(bytes) + 16);
                assert!(put_bytes.abs_diff(20 << 30) < 1 << 20, "{put_bytes}");
            }
        }
    }
}
