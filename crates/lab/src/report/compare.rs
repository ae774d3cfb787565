//! Compares two sides, case by case and metric by metric: ratio, interval, tests, effect size.
//!
//! 1. Records that tell of their target are sorted into cases: what they share besides the two sides; of two files, what was asked too.
//! 2. Runs that were made in turn (A B A B) are paired: a moment when the machine was slow hit both.
//! 3. Each metric of a case that both sides have is one row. The rows of speed and processor time are one family
//!    that Holm's correction is made over, all others another.
//! 4. A row is decided by Student's test of the ratios of pairs, or Welch's of runs apart, when its corrected p is
//!    below 0.025: two families of half of 0.05 each, so that a program compared with itself is told of once in
//!    twenty comparisons, whatever row it is in.
//! 5. An exact test that assumes no shape has to agree (of swapping the sides of pairs; Mann and Whitney's), as far
//!    as so few runs let it: its own p may be above 0.05 only where it is the least that there can be. The ratio's
//!    interval has to leave out 1 by more than what is measured is good for, and fewer than five runs a side decide
//!    nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::metric::Metric;
use super::records::case_name;
use super::unlike;
use crate::record::Record;
use crate::statistics::{
    Bootstrap, Interval, cliffs_delta, hedges_g, holm, mann_whitney, median, smallest_of_pairs,
    smallest_p, student, swapped, welch,
};

/// How often a comparison of a program with itself may say of any row that it is better or worse.
pub(super) const LEVEL: f64 = 0.05;
/// The level below which a corrected p decides, in each of the two families.
pub(super) const FAMILY_LEVEL: f64 = LEVEL / 2.0;
/// The least difference that is told: latencies come in steps of a histogram, and a rate that is kept or bytes on
/// disk differ by a ten-thousandth with next to no spread.
pub(super) const LEAST: f64 = 0.005;
/// Fewer runs of a side decide nothing. Where a process is a fast or a slow one by chance, three pairs differ by the
/// same in one row of 32, which Student's test takes for certain, and four in one of 128; five do in one of 512.
pub(crate) const RUNS_MIN: usize = 5;
/// Runs of a pair began no further apart: in the longest experiments a row of all engines takes some hours.
const PAIR_APART_MAX_MS: u64 = 6 * 3_600_000;
/// What a p is more than another one of the same size by rounding, at most.
const ROUNDING: f64 = 1.0 + 1e-9;

/// What a row says of the subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Better than the baseline, beyond chance.
    Better,
    /// Worse than the baseline, beyond chance.
    Worse,
    /// These runs can't tell.
    Undecided,
}

/// One metric of one case.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The case.
    pub case: String,
    /// The metric.
    pub metric: Metric,
    /// The baseline's runs.
    pub baseline: Vec<f64>,
    /// The subject's.
    pub subject: Vec<f64>,
    /// Whether runs of both sides were made in turn, and are compared as pairs.
    pub paired: bool,
    /// The subject's median divided by the baseline's; `None` when that is 0.
    pub ratio: Option<Interval>,
    /// The subject's median less the baseline's.
    pub difference: Option<Interval>,
    /// The p that decides, as it came out: Student's of the ratios of pairs, Welch's of runs apart; `None` of single
    /// runs and where there is no spread.
    pub decisive_p: Option<f64>,
    /// The same after Holm's correction.
    pub decisive_p_corrected: Option<f64>,
    /// The exact p that has to agree: of swapping the sides of pairs, Mann and Whitney's of runs apart.
    pub exact_p: Option<f64>,
    /// Cliff's delta of the subject over the baseline.
    pub cliffs_delta: Option<f64>,
    /// Hedges' g of the subject over the baseline.
    pub hedges_g: Option<f64>,
    /// What it says.
    pub verdict: Verdict,
}

impl Row {
    /// The baseline's median.
    pub fn baseline_median(&self) -> f64 {
        median(&self.baseline).unwrap_or(f64::NAN)
    }

    /// The subject's median.
    pub fn subject_median(&self) -> f64 {
        median(&self.subject).unwrap_or(f64::NAN)
    }

    /// How many runs the side has that has fewer.
    pub(super) fn runs(&self) -> usize {
        self.baseline.len().min(self.subject.len())
    }

    /// The least that the exact p can be with so few runs.
    pub(super) fn least_exact_p(&self) -> f64 {
        match self.paired {
            true => smallest_of_pairs(self.runs()),
            false => smallest_p(self.baseline.len(), self.subject.len()),
        }
    }

    /// How many times as good as the baseline's the subject's median is; above 1 is better.
    pub fn goodness(&self) -> Option<f64> {
        let ratio = self.ratio.map(|ratio| ratio.estimate).filter(|ratio| *ratio > 0.0)?;
        Some(if self.metric.more_is_better() { ratio } else { 1.0 / ratio })
    }
}

/// Two sides compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What is compared with.
    pub baseline: String,
    /// What is compared.
    pub subject: String,
    /// One row per metric and case.
    pub rows: Vec<Row>,
    /// Cases of which the baseline has runs that tell of it, and the subject has made runs, none of which does.
    pub failed: Vec<String>,
    /// Cases that one side alone has, and runs that don't count, with why.
    pub left_out: Vec<String>,
    /// What the runs of both sides were made with that isn't the same: machines, settings.
    pub unlike: Vec<String>,
}

/// Which records are compared with which.
#[derive(Debug, Clone, Copy)]
pub enum Comparer<'a> {
    /// One target with another, in every case.
    Targets {
        /// The target compared with.
        baseline: &'a str,
        /// The target compared.
        subject: &'a str,
    },
    /// One value of a varied parameter with another, for every target.
    Parameter {
        /// The parameter.
        name: &'a str,
        /// The value compared with.
        baseline: &'a str,
        /// The value compared.
        subject: &'a str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Baseline,
    Subject,
}

type Sides<'a> = (Vec<&'a Record>, Vec<&'a Record>);

/// The experiment, the case, and what was asked.
type Key = (String, String, String);

/// Compares the records of two files, target by target: `b` with `a`, the baseline. Runs that were asked for different
/// work are left out, and what else they don't have in common is told.
pub fn compare(baseline: (&str, &[Record]), subject: (&str, &[Record])) -> Comparison {
    let of = |records, side| <[Record]>::iter(records).map(move |record| (side, record));
    let records = of(baseline.1, Side::Baseline).chain(of(subject.1, Side::Subject));
    let targets = |records: &[Record]| records.iter().map(|one| one.target.clone()).next();
    // Where all runs are of one target, its name would only lengthen every line.
    let first = targets(baseline.1);
    let same = |record: &Record| Some(&record.target) == first.as_ref();
    let one_target = baseline.1.iter().chain(subject.1).all(same);
    let case = |record: &Record| {
        let case = case_name(record);
        if one_target { case } else { format!("{}, {case}", record.target) }
    };
    let all: Vec<(Side, &Record)> = records.collect();
    let mut comparison =
        build(baseline.0, subject.0, all.iter().copied(), case, unlike::work, &|_| true);
    comparison.unlike = unlike::told(&all);
    comparison
}

impl Comparer<'_> {
    /// Compares records of one file with each other.
    pub fn compare(&self, records: &[Record]) -> Comparison {
        self.compare_in(records, &|_| true)
    }

    /// As `compare`, in some metrics alone: p-values are corrected over no others.
    pub fn compare_in(&self, records: &[Record], wanted: &dyn Fn(&Metric) -> bool) -> Comparison {
        match *self {
            Comparer::Targets { baseline, subject } => {
                let side = |record: &Record| side_of(&record.target, baseline, subject);
                let sided = records.iter().filter_map(|record| Some((side(record)?, record)));
                build(baseline, subject, sided, case_name, any_work, wanted)
            }
            Comparer::Parameter { name, baseline, subject } => {
                let side = |record: &Record| side_of(record.case.get(name)?, baseline, subject);
                let sided = records.iter().filter_map(|record| Some((side(record)?, record)));
                let label = |value: &str| format!("{name} {value}");
                let case = |record: &Record| {
                    let mut rest = record.clone();
                    rest.case.remove(name);
                    format!("{}, {}", record.target, case_name(&rest))
                };
                build(&label(baseline), &label(subject), sided, case, any_work, wanted)
            }
        }
    }
}

fn side_of(value: &str, baseline: &str, subject: &str) -> Option<Side> {
    match value {
        value if value == baseline => Some(Side::Baseline),
        value if value == subject => Some(Side::Subject),
        _ => None,
    }
}

fn build<'a>(
    baseline: &str,
    subject: &str,
    records: impl Iterator<Item = (Side, &'a Record)>,
    case: impl Fn(&Record) -> String,
    work: fn(&Record) -> String,
    wanted: &dyn Fn(&Metric) -> bool,
) -> Comparison {
    let (mut left_out, mut failed) = (Vec::new(), Vec::new());
    let mut made_by_subject: BTreeSet<Key> = BTreeSet::new();
    // By first appearance, which is the order in which the experiment varies its parameters.
    let mut order: Vec<Key> = Vec::new();
    let mut cases: BTreeMap<Key, Sides<'a>> = BTreeMap::new();
    for (side, record) in records {
        let key = (record.experiment.clone(), case(record), work(record));
        if let Some(why) = record.outcome.invalid.as_ref().filter(|_| !record.outcome.tells()) {
            let number = record.repetition + 1;
            left_out.push(format!("{} of {}, run {number}: {why}", key.1, record.target));
            if side == Side::Subject {
                made_by_subject.insert(key);
            }
            continue;
        }
        let sides = cases.entry(key.clone()).or_insert_with(|| {
            order.push(key);
            Sides::default()
        });
        match side {
            Side::Baseline => sides.0.push(record),
            Side::Subject => sides.1.push(record),
        }
    }
    let mut rows = Vec::new();
    for key in &order {
        let (a, b) = cases.get(key).cloned().unwrap_or_default();
        let has_other_work = |pick: fn(&Sides<'a>) -> bool| {
            let is_same_case = |other: &Key| (&other.0, &other.1) == (&key.0, &key.1);
            cases.iter().any(|(other, sides)| is_same_case(other) && pick(sides))
        };
        let missing = match (a.is_empty(), b.is_empty()) {
            (false, false) => {
                rows.extend(rows_of(&key.1, a, b, wanted));
                continue;
            }
            (true, _) if has_other_work(|sides| !sides.0.is_empty()) => None,
            (_, true) if has_other_work(|sides| !sides.1.is_empty()) => None,
            (true, _) => Some(baseline),
            (_, true) => Some(subject),
        };
        if missing == Some(subject) && made_by_subject.contains(key) {
            failed.push(key.1.clone());
        }
        let why = match missing {
            Some(side) => format!("{}: no run of {side}", key.1),
            None => format!("{}: asked for different work", key.1),
        };
        if !left_out.contains(&why) {
            left_out.push(why);
        }
    }
    correct(&mut rows);
    Comparison {
        baseline: baseline.to_owned(),
        subject: subject.to_owned(),
        rows,
        failed,
        left_out,
        unlike: Vec::new(),
    }
}

/// Within an experiment sides are asked for what it compares.
fn any_work(_: &Record) -> String {
    String::new()
}

fn rows_of(
    case: &str,
    mut a: Vec<&Record>,
    mut b: Vec<&Record>,
    wanted: &dyn Fn(&Metric) -> bool,
) -> Vec<Row> {
    a.sort_by_key(|record| record.started_at_ms);
    b.sort_by_key(|record| record.started_at_ms);
    let in_turn = interleaved(&a, &b);
    let metrics = Metric::in_records(a.iter().chain(&b).copied());
    let row = |metric: Metric| {
        let figures = |side: &[&Record]| -> Vec<f64> {
            side.iter().filter_map(|record| metric.of(record)).collect()
        };
        let (baseline, subject) = (figures(&a), figures(&b));
        if baseline.is_empty() || subject.is_empty() {
            return None;
        }
        // A figure that some runs lack leaves no pairs, and one of nothing has no ratio.
        let has_all = baseline.len() == a.len() && subject.len() == b.len();
        let paired = in_turn && has_all && baseline.iter().chain(&subject).all(|one| *one > 0.0);
        let bootstrap = Bootstrap::default();
        let (decisive_p, exact_p) = match paired {
            true => (student(&subject, &baseline), swapped(&subject, &baseline)),
            false => (
                welch(&subject, &baseline).map(|outcome| outcome.p),
                mann_whitney(&subject, &baseline).map(|outcome| outcome.p),
            ),
        };
        let (ratio, difference) = if paired {
            let ratio = bootstrap.paired_ratio(&subject, &baseline);
            (ratio, bootstrap.paired_difference(&subject, &baseline))
        } else {
            (bootstrap.ratio(&subject, &baseline), bootstrap.difference(&subject, &baseline))
        };
        Some(Row {
            case: case.to_owned(),
            metric,
            paired,
            ratio,
            difference,
            decisive_p,
            decisive_p_corrected: None,
            exact_p,
            cliffs_delta: cliffs_delta(&subject, &baseline),
            hedges_g: hedges_g(&subject, &baseline),
            verdict: Verdict::Undecided,
            baseline,
            subject,
        })
    };
    metrics.into_iter().filter(wanted).filter_map(row).collect()
}

/// Whether both sides, in order of time, took turns: every pair of neighbours has one run of each, and both are of one
/// repetition and of the same hours. A run that failed is made again later, and is no neighbour of what it was to be beside.
fn interleaved(a: &[&Record], b: &[&Record]) -> bool {
    let is_pair = |(a, b): (&&Record, &&Record)| {
        a.repetition == b.repetition
            && a.started_at_ms.abs_diff(b.started_at_ms) < PAIR_APART_MAX_MS
    };
    let runs = a.iter().map(|record| (record.started_at_ms, Side::Baseline));
    let mut runs: Vec<_> =
        runs.chain(b.iter().map(|run| (run.started_at_ms, Side::Subject))).collect();
    runs.sort_by_key(|(started, _)| *started);
    let takes_turns = || runs.chunks(2).all(|pair| pair[0].1 != pair[1].1);
    a.len() == b.len() && a.len() > 1 && a.iter().zip(b).all(is_pair) && takes_turns()
}

/// Corrects the p-values of rows, speed and processor time apart from the others, and decides the rows by them.
fn correct(rows: &mut [Row]) {
    let (mut headline, mut others): (Vec<&mut Row>, Vec<&mut Row>) =
        rows.iter_mut().partition(|row| row.metric.is_headline());
    correct_family(&mut headline);
    correct_family(&mut others);
}

/// The same of rows that are one family.
fn correct_family(rows: &mut [&mut Row]) {
    let corrected = |rows: &[&mut Row], p: fn(&Row) -> Option<f64>| -> Vec<Option<f64>> {
        let family: Vec<f64> = rows.iter().filter_map(|row| p(row)).collect();
        let mut family = holm(&family).into_iter();
        rows.iter().map(|row| p(row).and_then(|_| family.next())).collect()
    };
    let decisive = corrected(rows, |row| row.decisive_p);
    let exact = corrected(rows, |row| row.exact_p);
    for (at, row) in rows.iter_mut().enumerate() {
        row.decisive_p_corrected = decisive[at];
        let agrees = row.exact_p.is_some_and(|p| p <= LEVEL.max(row.least_exact_p() * ROUNDING));
        // Where nothing has any spread the exact p has to do alone.
        let decides = decisive[at].or(exact[at]).is_some_and(|p| p < FAMILY_LEVEL);
        let sure = decides && agrees && row.runs() >= RUNS_MIN;
        let is_telling = |ratio: &Interval| ratio.low > 1.0 + LEAST || ratio.high < 1.0 - LEAST;
        if let Some(ratio) = row.ratio.filter(|ratio| sure && is_telling(ratio)) {
            let better = (ratio.estimate > 1.0) == row.metric.more_is_better();
            row.verdict = if better { Verdict::Better } else { Verdict::Worse };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::FELL_BEHIND;
    use crate::report::metric::Measure;
    use crate::report::records::tests::record;

    fn runs(target: &str, case: &str, rates: &[f64], start: u64) -> Vec<Record> {
        let with_time = |(at, rate): (usize, &f64)| {
            let mut one = record(target, case, at as u32, *rate);
            one.started_at_ms = 1_700_000_000_000 + start + at as u64 * 60_000;
            one
        };
        rates.iter().enumerate().map(with_time).collect()
    }

    const SLOW: [f64; 6] = [1000.0, 1010.0, 990.0, 1005.0, 995.0, 1002.0];
    const FAST: [f64; 6] = [2000.0, 2030.0, 1980.0, 2010.0, 1990.0, 2004.0];

    fn throughput(comparison: &Comparison) -> &Row {
        let wanted = Metric::of_run(Measure::Throughput);
        comparison.rows.iter().find(|row| row.metric == wanted).unwrap()
    }

    #[test]
    fn a_clear_difference_is_decided_whichever_way_is_better() {
        let records = [runs("old", "1", &SLOW, 0), runs("new", "1", &FAST, 30_000)].concat();
        let comparison = Comparer::Targets { baseline: "old", subject: "new" }.compare(&records);
        let row = throughput(&comparison);
        assert!(row.paired && row.verdict == Verdict::Better, "{row:?}");
        assert!((row.ratio.unwrap().estimate - 2.0).abs() < 0.02, "{row:?}");
        assert_eq!(row.cliffs_delta, Some(1.0));
        assert!(row.decisive_p_corrected > row.decisive_p, "{row:?}");
        let p99 = comparison.rows.iter().find(|row| row.metric.name() == "get p99").unwrap();
        assert!(p99.ratio.unwrap().high < 0.6 && p99.verdict == Verdict::Better, "{p99:?}");
        assert!((p99.goodness().unwrap() - 2.0).abs() < 0.02);
        let back = Comparer::Targets { baseline: "new", subject: "old" }.compare(&records);
        assert_eq!(throughput(&back).verdict, Verdict::Worse);
    }

    #[test]
    fn the_metrics_that_are_asked_for_are_the_family() {
        let records = [runs("old", "1", &SLOW, 0), runs("new", "1", &FAST, 30_000)].concat();
        let comparer = Comparer::Targets { baseline: "old", subject: "new" };
        let one = comparer.compare_in(&records, &|metric| metric.measure == Measure::Throughput);
        assert_eq!(one.rows.len(), 1);
        assert_eq!(one.rows[0].decisive_p_corrected, one.rows[0].decisive_p);
    }

    /// A hundred figures of memory and latency raised the p of the rate until no rate could pass.
    #[test]
    fn speed_and_processor_time_are_a_family_of_their_own() {
        let records = [runs("old", "1", &SLOW, 0), runs("new", "1", &FAST, 30_000)].concat();
        let comparer = Comparer::Targets { baseline: "old", subject: "new" };
        let all = comparer.compare(&records);
        let alone = comparer.compare_in(&records, &Metric::is_headline);
        assert!(alone.rows.len() < all.rows.len());
        let cost = |comparison: &Comparison| {
            let wanted = Metric::of_run(Measure::CpuPerOperation);
            let row = comparison.rows.iter().find(|row| row.metric == wanted).unwrap();
            (row.decisive_p, row.decisive_p_corrected)
        };
        let (p, corrected) = cost(&alone);
        assert!(corrected > p);
        assert_eq!(cost(&all), (p, corrected));
    }

    #[test]
    fn runs_one_after_the_other_are_not_pairs_and_noise_decides_nothing() {
        let a = runs("same", "1", &SLOW, 0);
        let b = runs("same", "1", &[1003.0, 988.0, 1012.0, 996.0, 1001.0, 1004.0], 10_000_000);
        let comparison = compare(("before", &a), ("after", &b));
        let row = throughput(&comparison);
        assert!(!row.paired && row.verdict == Verdict::Undecided, "{row:?}");
        assert_eq!(row.case, "fillrandom, connections 1");
        assert!(row.ratio.unwrap().contains(1.0));
    }

    /// Of two runs in turn one failed, and was made again at the end: by order of time the others were paired with runs
    /// of other repetitions, and it with one of the day before.
    #[test]
    fn runs_that_were_made_again_later_are_no_pairs() {
        let paired = |starts: [(u64, u64); 3]| {
            let (mut old, mut new) =
                (runs("old", "1", &SLOW[..3], 0), runs("new", "1", &FAST[..3], 0));
            for (at, (a, b)) in starts.into_iter().enumerate() {
                old[at].started_at_ms = 1_700_000_000_000 + a * 60_000;
                new[at].started_at_ms = 1_700_000_000_000 + b * 60_000;
            }
            let comparer = Comparer::Targets { baseline: "old", subject: "new" };
            throughput(&comparer.compare(&[old, new].concat())).paired
        };
        assert!(paired([(0, 1), (3, 2), (4, 5)]));
        assert!(!paired([(0, 1), (6, 2), (4, 5)]), "the second is paired with the third");
        assert!(paired([(0, 1), (3, 2), (4, 300)]), "of the same evening");
        assert!(!paired([(0, 1), (3, 2), (4, 1440)]), "a day later");
    }

    #[test]
    fn a_parameter_is_compared_within_each_target() {
        let records = [
            runs("a", "1", &SLOW, 0),
            runs("a", "16", &FAST, 30_000),
            runs("b", "1", &SLOW, 0),
            runs("b", "16", &SLOW, 30_000),
        ];
        let comparer = Comparer::Parameter { name: "connections", baseline: "1", subject: "16" };
        let comparison = comparer.compare(&records.concat());
        let verdict = |case: &str| {
            let wanted = |row: &&Row| row.case == case && row.metric.measure == Measure::Throughput;
            comparison.rows.iter().find(wanted).unwrap().verdict
        };
        assert_eq!(verdict("a, fillrandom"), Verdict::Better);
        assert_eq!(verdict("b, fillrandom"), Verdict::Undecided);
    }

    #[test]
    fn runs_that_do_not_count_and_cases_without_a_partner_are_named() {
        let mut a = runs("t", "1", &SLOW, 0);
        a[2].outcome.invalid = Some("the generator lagged".into());
        let mut b = runs("t", "1", &FAST, 0);
        b.extend(runs("t", "64", &FAST, 0));
        let comparison = compare(("a", &a), ("b", &b));
        assert_eq!(throughput(&comparison).baseline.len(), 5);
        let left_out = comparison.left_out.join("; ");
        assert!(left_out.contains("run 3: the generator lagged"), "{left_out}");
        assert!(left_out.contains("connections 64: no run of a"), "{left_out}");
        assert!(compare(("a", &[]), ("b", &[])).rows.is_empty());
    }

    /// A table showed all runs of a target that fell behind, and the statistics the one that was lucky.
    #[test]
    fn runs_whose_target_fell_behind_are_compared() {
        let (a, mut b) = (runs("t", "1", &FAST, 0), runs("t", "1", &SLOW, 0));
        for one in &mut b[1..] {
            one.outcome.invalid = Some(FELL_BEHIND.into());
        }
        let comparison = compare(("a", &a), ("b", &b));
        let row = throughput(&comparison);
        assert_eq!((row.subject.len(), row.verdict), (6, Verdict::Worse));
        assert!(comparison.left_out.is_empty(), "{:?}", comparison.left_out);
    }

    #[test]
    fn a_case_of_which_no_own_run_tells_is_one_that_failed() {
        let (a, mut b) = (runs("t", "1", &SLOW, 0), runs("t", "1", &FAST, 0));
        for one in &mut b {
            one.outcome.invalid = Some("wrong data: key 7".into());
        }
        let failed = |a: &[Record], b: &[Record]| compare(("a", a), ("b", b)).failed;
        assert_eq!(failed(&a, &b), ["fillrandom, connections 1"]);
        // One run that counts is enough, and what wasn't asked for didn't fail.
        b[0].outcome.invalid = None;
        assert!(failed(&a, &b).is_empty() && failed(&a, &[]).is_empty());
        // Nobody lost to a side that failed itself.
        assert!(failed(&b[1..], &b[1..]).is_empty() && failed(&b[1..], &a).is_empty());
    }

    /// Runs at other sizes, rates or lengths were compared as if they were alike.
    #[test]
    fn runs_that_were_asked_for_different_work_are_left_out() {
        let a = [runs("t", "1", &SLOW, 0), runs("t", "2", &SLOW, 0)].concat();
        let mut b = [runs("t", "1", &FAST, 0), runs("t", "2", &FAST, 0)].concat();
        for record in &mut b {
            record.spec.seed += 1;
        }
        assert!(compare(("a", &a), ("b", &b)).left_out.is_empty(), "a seed is no other work");
        for record in b.iter_mut().filter(|record| record.case["connections"] == "2") {
            record.spec.keys += 1;
        }
        let comparison = compare(("a", &a), ("b", &b));
        assert!(comparison.rows.iter().all(|row| row.case == "fillrandom, connections 1"));
        assert_eq!(comparison.left_out, ["fillrandom, connections 2: asked for different work"]);
        assert!(comparison.text().contains("Left out: fillrandom, connections 2: asked"));
    }

    /// Its rate alone.
    fn rates(old: &[f64], new: &[f64]) -> Row {
        let records = [runs("old", "1", old, 0), runs("new", "1", new, 30_000)].concat();
        let comparer = Comparer::Targets { baseline: "old", subject: "new" };
        comparer
            .compare_in(&records, &|metric| metric.measure == Measure::Throughput)
            .rows
            .remove(0)
    }

    /// Welch's test took what a pair felt together for a difference that could be anything.
    #[test]
    fn pairs_decide_what_a_drift_of_the_machine_is_far_larger_than() {
        let old = [100_000, 108_000, 115_000, 120_000, 101_000, 112_000, 119_000, 106_000];
        let old = old.map(f64::from);
        let around = [0.002, -0.002, 0.001, -0.001, 0.0, 0.002, -0.002, 0.001];
        let new: Vec<f64> = old.iter().zip(around).map(|(old, by)| old * (1.01 + by)).collect();
        let row = rates(&old, &new);
        assert!(row.paired && welch(&row.subject, &row.baseline).unwrap().p > 0.5, "{row:?}");
        assert_eq!(row.verdict, Verdict::Better, "{row:?}");
    }

    /// Student's test takes noise for normal; with few pairs all of them have to point one way.
    #[test]
    fn one_pair_of_six_that_points_the_other_way_decides_nothing() {
        let new = [1020.0, 1021.0, 1019.0, 1020.0, 1020.0, 999.0];
        let row = rates(&[1000.0; 6], &new);
        assert!(row.decisive_p_corrected.unwrap() < FAMILY_LEVEL, "{row:?}");
        assert!(row.ratio.unwrap().low > 1.0 + LEAST, "{row:?}");
        assert_eq!((row.exact_p, row.verdict), (Some(0.0625), Verdict::Undecided));
        assert_eq!(rates(&[1000.0; 6], &new.map(|one| one + 5.0)).verdict, Verdict::Better);
    }

    /// One step of the histogram, in each run, was "worse beyond chance".
    #[test]
    fn what_is_smaller_than_the_measure_resolves_is_not_told() {
        let of = |target: &str, p50_ns: u64, start: u64| -> Vec<Record> {
            let mut runs = runs(target, "1", &[1000.0; 8], start);
            for run in &mut runs {
                run.outcome.kinds.get_mut("get").unwrap().latency.p50_ns = p50_ns;
            }
            runs
        };
        let verdict = |ns: u64| {
            let records = [of("old", 512, 0), of("new", ns, 30_000)].concat();
            let comparer = Comparer::Targets { baseline: "old", subject: "new" };
            let rows = comparer.compare_in(&records, &|metric| metric.measure == Measure::P50).rows;
            rows[0].verdict
        };
        assert_eq!([verdict(513), verdict(530)], [Verdict::Undecided, Verdict::Worse]);
    }

    #[test]
    fn single_runs_have_a_ratio_and_no_verdict() {
        let (a, b) = (runs("t", "1", &SLOW[..1], 0), runs("t", "1", &FAST[..1], 0));
        let comparison = compare(("a", &a), ("b", &b));
        let row = throughput(&comparison);
        assert_eq!((row.decisive_p, row.verdict), (None, Verdict::Undecided));
        assert!(row.ratio.is_some());
    }
}
