//! `builds`: this program beside another build of it, in turn; what a change made for speed is judged by.
//!
//! Runs are those of `rivals`, of the workloads that are named, each side in processes of its own. With no
//! other program this one is compared with itself, which tells what these runs can't.

use std::path::PathBuf;

use super::planning::{engine, in_turn};
use super::rivals::{CORE_ROWS, NAMES, Row, place, planned};
use super::{Experiment, PlannedRun, Scale, Subject};
use crate::error::{Error, Result};
use crate::record::Record;
use crate::report::{Comparer, Comparison, Measure, Metric, Report, Verdict};
use crate::spec::Workload;

/// This program's name in records.
const THIS: &str = "this";
/// The other's.
const OTHER: &str = "other";
/// So many that an exact test can speak against chance (its p goes down to 0.008), and each side is the first as often
/// as the other.
const PAIRS: u32 = 8;
/// Of workloads that are named without one, bytes of a value.
const VALUE_BYTES: u32 = 100;

/// The experiment.
pub(super) struct Builds;

/// What the words after `--against` come to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    program: Option<PathBuf>,
    key_names: bool,
    rows: Vec<(Workload, u32)>,
}

impl Asked {
    /// A word that names a file, by a slash, is the other program, `names` has keys begin with names, and every
    /// other one is WORKLOAD or WORKLOAD:BYTES.
    fn parse(words: &[String]) -> Result<Asked> {
        let mut asked = Asked::default();
        for word in words {
            if word.contains('/') {
                if asked.program.replace(PathBuf::from(word)).is_some() {
                    let what = format!("two sides are compared, and {word:?} is a third");
                    return Err(Error::Invalid(what));
                }
                continue;
            }
            if word == NAMES {
                asked.key_names = true;
                continue;
            }
            let (name, bytes) = match word.split_once(':') {
                Some((name, bytes)) => (name, parse_bytes(word, bytes)?),
                None => (&**word, VALUE_BYTES),
            };
            let row = (Workload::from_name(name)?, bytes);
            if !asked.rows.contains(&row) {
                asked.rows.push(row);
            }
        }
        if asked.rows.is_empty() {
            asked.rows = CORE_ROWS.map(|workload| (workload, VALUE_BYTES)).to_vec();
        }
        // Sizes outermost, and what changes a store after what reads it.
        asked.rows.sort_by_key(|&(workload, bytes)| (bytes, place(workload)));
        Ok(asked)
    }
}

fn parse_bytes(word: &str, bytes: &str) -> Result<u32> {
    let invalid = |_| Error::Invalid(format!("{word:?} is no WORKLOAD:BYTES, as overwrite:4096"));
    bytes.parse().map_err(invalid)
}

impl Experiment for Builds {
    fn name(&self) -> &'static str {
        "builds"
    }

    fn question(&self) -> &'static str {
        "Is this build faster than another one, beyond what its own runs differ by?"
    }

    /// `against`: the other program's file, the workloads, as WORKLOAD or WORKLOAD:BYTES, and `names`.
    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        let Asked { program, key_names, rows } = Asked::parse(against)?;
        let other = match program {
            Some(program) => Subject::Build { program },
            None => engine(&[]),
        };
        let sides = [(OTHER, other), (THIS, engine(&[]))];
        let mut runs = Vec::new();
        for repetition in 0..scale.pick(2, PAIRS, 15) {
            for &(workload, value_bytes) in &rows {
                let row = Row { workload, threads: 1, value_bytes, key_names, is_first: false };
                runs.extend(
                    in_turn(&sides, repetition)
                        .map(|(name, subject)| planned(name, subject, row, scale, repetition)),
                );
            }
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        let all = Comparer::Targets { baseline: OTHER, subject: THIS }.compare(records);
        // Rows of the one comparison: with a level of their own they would say otherwise than there.
        let cost = Metric::of_run(Measure::CpuPerOperation);
        let costs = all.rows.iter().filter(|row| row.metric == cost).cloned().collect();
        let costs = Comparison { rows: costs, ..all.clone() };
        report.answer(answer(&costs));
        report
            .section("The two")
            .paragraph(
                "The baseline is the other program, or this one again where none was named. Runs were made in \
                 turn. CPU time is steadier than speed, because others on the machine take less of it away.",
            )
            .picture(
                "CPU time of this build, as a multiple of the other's",
                "Left of 1 it takes less.",
                &costs.chart(&[cost.measure]),
            )
            .summary_table("CPU per operation", &costs.table());
        report.comparison(all);
        report
    }
}

fn answer(costs: &Comparison) -> String {
    if costs.rows.is_empty() {
        return "These runs have no other side to compare with.".to_owned();
    }
    let count = |verdict| costs.rows.iter().filter(|row| row.verdict == verdict).count();
    let ratios = || costs.rows.iter().filter_map(|row| row.ratio).map(|ratio| ratio.estimate);
    format!(
        "In CPU time per operation this build takes less in {} of {} rows, more in {}, and in {} these runs \
         can't tell; the ratios go from {:.3} to {:.3}.",
        count(Verdict::Better),
        costs.rows.len(),
        count(Verdict::Worse),
        count(Verdict::Undecided),
        ratios().fold(f64::INFINITY, f64::min),
        ratios().fold(0.0, f64::max),
    )
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::experiment::tests::check_report;
    use crate::record::Outcome;

    fn parse(words: &[&str]) -> Result<Asked> {
        Asked::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_a_program_and_workloads_with_sizes() {
        let asked = parse(&["overwrite:4096", "./before", "overwrite", "readrandom"]).unwrap();
        assert_eq!(asked.program, Some(PathBuf::from("./before")));
        let rows =
            [(Workload::ReadRandom, 100), (Workload::Overwrite, 100), (Workload::Overwrite, 4096)];
        assert_eq!(asked.rows, rows);
        assert!(!asked.key_names && parse(&["overwrite", "names"]).unwrap().key_names);
        assert_eq!(parse(&[]).unwrap().rows.len(), CORE_ROWS.len());
        for wrong in [&["a/b", "a/c"][..], &["readrandm"], &["overwrite:4k"], &["overwrite:"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn both_sides_are_asked_for_the_same_in_turn() {
        let against = ["/a/tallybook".to_owned(), "fillrandom".to_owned()];
        let runs = Builds.runs(Scale::Small, &against).unwrap();
        let turns: Vec<&str> = runs.iter().map(|run| &*run.target).collect();
        assert_eq!(turns[..4], [OTHER, THIS, THIS, OTHER]);
        for pair in runs.chunks(2) {
            assert_eq!(pair[0].spec, pair[1].spec);
            assert_eq!(pair[0].budget, pair[1].budget);
            assert_eq!(pair[0].case, pair[1].case);
        }
        let program = PathBuf::from("/a/tallybook");
        assert!(runs.iter().all(|run| match run.target.as_str() {
            OTHER => run.subject == Subject::Build { program: program.clone() },
            _ => run.subject == engine(&[]),
        }));
    }

    /// The rows of processor time had a level of their own in the answer: it said "more in 1 of 1 rows" of what the
    /// statistics below it called undecided.
    #[test]
    fn the_answer_and_the_statistics_say_the_same_of_a_row() {
        let runs = Builds.runs(Scale::Small, &["readrandom".to_owned()]).unwrap();
        assert_eq!(runs.len(), 16);
        let (around, turned) = (
            [-2.0, -0.3, -0.1, 0.0, 0.0, 0.1, 0.3, 2.0],
            [0.0, 0.1, -2.0, 0.3, -0.3, 2.0, 0.0, -0.1],
        );
        let record = |(at, run): (usize, &PlannedRun)| {
            let place = run.repetition as usize;
            let cpu_s = match &*run.target {
                OTHER => 1.0 + 0.02 * around[place],
                _ => 1.0255 + 0.02 * turned[place],
            };
            let seconds = 1.0 + 0.01 * around[(at * 5) % 8];
            let outcome = Outcome { seconds, operations: 1000, cpu_s, ..Outcome::default() };
            let started = SystemTime::UNIX_EPOCH + Duration::from_secs(at as u64 * 10);
            run.name("builds").record([].into(), None, started, outcome)
        };
        let records: Vec<Record> = runs.iter().enumerate().map(record).collect();
        let summary = Builds.report(&records, "again").summary_markdown();
        assert!(summary.contains("less in 0 of 1 rows, more in 0, and in 1 these"), "{summary}");
        assert!(summary.contains("Where we lose: beyond chance in none"), "{summary}");
    }

    #[test]
    fn a_program_compared_with_itself_is_told_of() {
        check_report(&Builds, &["The two"]);
    }
}
