//! How often a comparison says that something differs: of a program and itself next to never, whatever the noise of the
//! machine, and of two that differ by as much as pairs can show nearly always. Counted over comparisons that are made
//! up, from a seed.

use tallybook_lab::record::{KindOutcome, Latency, Machine, Outcome, Record};
use tallybook_lab::report::{Comparer, Comparison, Measure, Row, Verdict};
use tallybook_lab::spec::Spec;

use crate::synthetic::Random;

/// Comparisons that are made up of each kind.
const COUNT: u32 = 400;
const OTHER: &str = "other";
const THIS: &str = "this";

/// What a machine does to the figures of a pair.
#[derive(Debug, Clone, Copy)]
enum Noise {
    /// Each run has noise of its own.
    Own,
    /// Both of a pair are in the same slow or fast hour, which are a tenth apart.
    Shared,
    /// What one of a pair has more the other has less, as of time that a host gives out.
    GivenAndTaken,
    /// A process is a fast or a slow one, as its memory lies: 5 % apart, and next to nothing else.
    TwoKinds,
}

impl Noise {
    const ALL: [Noise; 4] = [Noise::Own, Noise::Shared, Noise::GivenAndTaken, Noise::TwoKinds];

    /// By what both sides of a pair are multiplied.
    fn of_pair(self, random: &mut Random) -> [f64; 2] {
        let mut own = |size: f64| [0, 1].map(|_| size * random.normal());
        let logs = match self {
            Noise::Own => own(0.02),
            Noise::Shared => {
                let [a, b] = own(0.02);
                let [shared, _] = own(0.1);
                [shared + a, shared + b]
            }
            Noise::GivenAndTaken => {
                let [given, _] = own(0.03);
                [given, -given]
            }
            Noise::TwoKinds => {
                own(0.001).map(|rest| rest + if random.share() < 0.5 { 0.05 } else { 0.0 })
            }
        };
        logs.map(f64::exp)
    }
}

/// The figures of a run: operations a second, processor time of each, and a latency.
type Figures = [f64; 3];

fn record(target: &str, case: u32, repetition: u32, at: u64, figures: Figures) -> Record {
    let [operations, cpu_s, latency] = figures;
    let ns = (latency * 1e6) as u64;
    let latency = Latency { p50_ns: ns, ..Latency::default() };
    let count = (operations * 1e9) as u64;
    let get = KindOutcome { count, latency, ..KindOutcome::default() };
    Record {
        experiment: "made up".to_owned(),
        case: [("case".to_owned(), case.to_string())].into(),
        target: target.to_owned(),
        target_settings: [].into(),
        repetition,
        spec: Spec::default(),
        started_at_ms: 1_795_244_400_000 + at * 10_000,
        machine: Machine::default(),
        version: String::new(),
        outcome: Outcome {
            seconds: 1.0,
            operations: count,
            cpu_s: cpu_s * operations,
            kinds: [("get".to_owned(), get)].into(),
            ..Outcome::default()
        },
    }
}

/// Pairs of runs of so many cases, in turn; `cost`: by what the processor time of this program is multiplied.
fn compared(random: &mut Random, noise: Noise, pairs: u32, cases: u32, cost: f64) -> Comparison {
    let mut records = Vec::new();
    for repetition in 0..pairs {
        for case in 0..cases {
            let figures = [(); 3].map(|()| noise.of_pair(random));
            let mut sides =
                [(OTHER, figures.map(|pair| pair[0])), (THIS, figures.map(|pair| pair[1]))];
            sides[1].1[1] *= cost;
            // A B B A.
            sides.rotate_left(repetition as usize % 2);
            for (target, figures) in sides {
                records.push(record(target, case, repetition, records.len() as u64, figures));
            }
        }
    }
    let wanted = [Measure::Throughput, Measure::CpuPerOperation, Measure::P50];
    Comparer::Targets { baseline: OTHER, subject: THIS }
        .compare_in(&records, &|metric| wanted.contains(&metric.measure))
}

/// The share of so many comparisons of which this holds.
fn share(count: u32, made: impl Fn(&mut Random) -> bool) -> f64 {
    let mut random = Random(20_261_130);
    f64::from((0..count).map(|_| u32::from(made(&mut random))).sum::<u32>()) / f64::from(count)
}

fn is_decided(row: &Row) -> bool {
    row.verdict != Verdict::Undecided
}

/// With runs taken for independent, a report of a program and itself said "better" or "worse" up to three times as often
/// as it promised: three families had the whole level each, and what one run took from the other counted as evidence.
/// With three pairs it did so twice as often where processes are of two kinds, which those of a side are by chance.
#[test]
fn a_program_compared_with_itself_is_told_of_in_one_comparison_of_twenty_at_most() {
    let told = |noise, pairs, cases| {
        share(COUNT, |random| {
            compared(random, noise, pairs, cases, 1.0).rows.iter().any(is_decided)
        })
    };
    for noise in Noise::ALL {
        for pairs in [3, 4, 5, 8] {
            let told = told(noise, pairs, 1);
            assert!(told <= 0.05, "{noise:?}, {pairs} pairs: {told}");
        }
    }
    for (noise, pairs) in [(Noise::Own, 8), (Noise::TwoKinds, 5)] {
        let told = told(noise, pairs, 3);
        assert!(told <= 0.05, "{noise:?}, {pairs} pairs of three workloads: {told}");
    }
}

/// Noise that both of a pair share hid everything: the test took the sides for independent.
#[test]
fn a_difference_of_twice_the_noise_of_pairs_is_found_in_eight_of_them() {
    // Two runs of 2 % each are 2.8 % apart.
    let cost = (2.0 * 0.02 * 2.0_f64.sqrt()).exp();
    let verdict = |random: &mut Random, cases: u32| {
        let rows = compared(random, Noise::Shared, 8, cases, cost).rows;
        let row = rows.iter().find(|row| row.metric.measure == Measure::CpuPerOperation);
        row.unwrap().verdict
    };
    let found = share(COUNT, |random| verdict(random, 1) == Verdict::Worse);
    assert!(found >= 0.8, "{found}");
    let found = share(COUNT / 4, |random| verdict(random, 9) == Verdict::Worse);
    assert!(found >= 0.4, "of nine workloads: {found}");
}
