//! A comparison in words, tables and charts: what was better, what worse, and what can't be told.

use super::compare::{Comparison, FAMILY_LEVEL, LEAST, LEVEL, RUNS_MIN, Row, Verdict};
use super::metric::Measure;
use super::table::Table;
use crate::chart::{RatioChart, RatioRow, Tone};
use crate::statistics::{Interval, magnitude};

/// The least difference of medians that is worth telling while it isn't decided.
const LEANING: f64 = 0.05;

impl Row {
    /// What the row says, as a clause: `get p99 is 1.42 ms against 1.10 ms, 1.29 times (1.20 to 1.38)`.
    pub fn sentence(&self) -> String {
        let unit = self.metric.unit();
        let figures = format!(
            "{} is {} against {}",
            self.metric.name(),
            unit.format(self.subject_median()),
            unit.format(self.baseline_median())
        );
        match self.ratio {
            Some(ratio) => format!(
                "{figures}, {:.2} times as much ({:.2} to {:.2})",
                ratio.estimate, ratio.low, ratio.high
            ),
            None => figures,
        }
    }

    fn leans(&self) -> bool {
        let worse = self.goodness().is_some_and(|goodness| goodness < 1.0 / (1.0 + LEANING));
        self.verdict == Verdict::Undecided && worse
    }

    fn tone(&self) -> Tone {
        match self.verdict {
            Verdict::Better => Tone::Better,
            Verdict::Worse => Tone::Worse,
            Verdict::Undecided => Tone::Same,
        }
    }

    /// In a word.
    pub(crate) fn verdict_text(&self) -> &'static str {
        match self.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Undecided => "undecided",
        }
    }
}

impl Comparison {
    /// Every row with its statistics.
    pub fn table(&self) -> Table {
        let columns = [
            "case",
            "metric",
            &self.baseline,
            &self.subject,
            "ratio (95 %)",
            "verdict",
            "p",
            "p, exact",
            "Cliff's delta",
            "Hedges' g",
            "difference (95 %)",
            "runs",
        ];
        self.rows.iter().fold(Table::new(columns), |table, row| {
            let unit = row.metric.unit();
            let effect =
                row.cliffs_delta.map(|delta| format!("{delta:+.2} {}", magnitude(delta).name()));
            let pairs = if row.paired { "in pairs" } else { "apart" };
            let cells = [
                row.case.clone(),
                row.metric.name(),
                unit.format(row.baseline_median()),
                unit.format(row.subject_median()),
                row.ratio.map_or(String::new(), ratio_text),
                row.verdict_text().to_owned(),
                p_text(row.decisive_p_corrected),
                p_text(row.exact_p),
                effect.unwrap_or_default(),
                row.hedges_g.map_or(String::new(), |g| format!("{g:+.2}")),
                row.difference.map_or(String::new(), |difference| {
                    let [low, estimate, high] =
                        [difference.low, difference.estimate, difference.high]
                            .map(|value| unit.format(value));
                    format!("{estimate} ({low} to {high})")
                }),
                format!("{} + {} {pairs}", row.baseline.len(), row.subject.len()),
            ];
            table.row_in(row.tone().class(), cells)
        })
    }

    /// The same for a terminal: fewer columns, then what was left out.
    pub fn text(&self) -> String {
        let columns =
            ["case", "metric", &self.baseline, &self.subject, "ratio (95 %)", "p", "p, exact"];
        let columns = columns.into_iter().chain(["delta", "verdict"]);
        let table = self.rows.iter().fold(Table::new(columns), |table, row| {
            let unit = row.metric.unit();
            table.row([
                row.case.clone(),
                row.metric.name(),
                unit.format(row.baseline_median()),
                unit.format(row.subject_median()),
                row.ratio.map_or(String::new(), ratio_text),
                p_text(row.decisive_p_corrected),
                p_text(row.exact_p),
                row.cliffs_delta.map_or(String::new(), |delta| format!("{delta:+.2}")),
                row.verdict_text().to_owned(),
            ])
        });
        let mut text = table.text();
        for note in self.notes() {
            text = text + "\n" + &note + "\n";
        }
        text
    }

    /// How the figures were made, and what these runs can't show.
    pub fn notes(&self) -> Vec<String> {
        let headline = self.rows.iter().filter(|row| row.metric.is_headline()).count();
        let family = match (headline, self.rows.len() - headline) {
            (0, all) | (all, 0) => format!("over all {all} rows"),
            (headline, others) => format!(
                "over the {headline} rows of speed and processor time, and over the {others} others apart"
            ),
        };
        let mut notes = vec![
            format!(
                "Ratios and differences are {} against {}, of medians, with 95 % bootstrap intervals; runs \
                 made in turn are resampled as pairs. p is Student's of the ratios of pairs (of their \
                 logarithms), or Welch's where runs are apart, corrected by Holm {family}. The exact p, as it \
                 came out, is the share of all ways to swap the sides of pairs that are as far from no \
                 difference, or Mann and Whitney's where runs are apart.",
                self.subject, self.baseline,
            ),
            format!(
                "A row is decided when each side has {RUNS_MIN} runs, p is below {FAMILY_LEVEL}, the exact p isn't \
                 above {LEVEL} (or is as low as so few runs can have it), and the interval leaves out 1 by more \
                 than {} %: of a program compared with itself any row is to be decided in {} % of comparisons at \
                 most, each of a report's for itself.",
                100.0 * LEAST,
                100.0 * LEVEL,
            ),
        ];
        notes.extend(self.out_of_reach());
        if self.rows.iter().any(|row| row.runs() < 5) {
            notes.push(
                "Cases with fewer than five runs a side have intervals that are too narrow: of three \
                 runs they cover the truth about 75 times in 100."
                    .to_owned(),
            );
        }
        if !self.unlike.is_empty() {
            notes.push(format!(
                "What isn't the same on both sides, beside what is compared: {}.",
                self.unlike.join("; ")
            ));
        }
        if !self.left_out.is_empty() {
            notes.push(format!("Left out: {}.", self.left_out.join("; ")));
        }
        notes
    }

    /// That these runs are too few for any verdict, or for an exact test to speak for any row, where they are.
    pub fn out_of_reach(&self) -> Option<String> {
        let least = self.rows.iter().map(Row::least_exact_p).reduce(f64::min)?;
        let confirms = if least > LEVEL { ": it can't confirm any row here" } else { "" };
        let decided = match self.decidable() {
            0 => "fewer than five runs a side decide nothing",
            _ if confirms.is_empty() => return None,
            _ => "what is decided rests on the shape that the other test takes noise to have",
        };
        let least = p_text(Some(least));
        Some(format!(
            "With so few runs the exact p can't go below {least}{confirms}, and {decided}."
        ))
    }

    /// How many rows have the runs that a verdict takes.
    pub fn decidable(&self) -> usize {
        self.rows.iter().filter(|row| row.runs() >= RUNS_MIN).count()
    }

    /// Where no run of the subject tells of it, while the baseline has some: one sentence each.
    pub fn failures(&self) -> Vec<String> {
        let names = format!("{} against {}", self.subject, self.baseline);
        self.failed
            .iter()
            .map(|case| format!("{names}, {case}: none of its runs counts."))
            .collect()
    }

    /// Where the subject is worse beyond chance, speed and processor time before the rest, of each the worst first:
    /// one sentence each.
    pub fn losses(&self) -> Vec<String> {
        self.sentences(|row| row.verdict == Verdict::Worse)
    }

    /// Where the subject's median is worse by 5 % or more, while the runs can't rule out chance; in the same order.
    pub fn leanings(&self) -> Vec<String> {
        self.sentences(Row::leans)
    }

    /// Those of speed and processor time.
    pub fn headline_leanings(&self) -> Vec<String> {
        self.sentences(|row| row.leans() && row.metric.is_headline())
    }

    fn sentences(&self, wanted: impl Fn(&Row) -> bool) -> Vec<String> {
        let mut rows: Vec<&Row> = self.rows.iter().filter(|row| wanted(row)).collect();
        let goodness = |row: &Row| row.goodness().unwrap_or(0.0);
        rows.sort_by(|a, b| goodness(a).total_cmp(&goodness(b)));
        rows.sort_by_key(|row| !row.metric.is_headline());
        let names = format!("{} against {}", self.subject, self.baseline);
        rows.iter().map(|row| format!("{names}, {}: {}.", row.case, row.sentence())).collect()
    }

    /// The ratios of some measures with their intervals around 1.
    pub fn chart(&self, measures: &[Measure]) -> RatioChart {
        let rows = self.rows.iter().filter(|row| measures.contains(&row.metric.measure));
        let rows = rows.filter_map(|row| {
            let better = if row.metric.more_is_better() { "more" } else { "less" };
            let name = format!("{}, {} ({better} is better)", row.case, row.metric.name());
            Some(RatioRow { name, ratio: row.ratio?, tone: row.tone() })
        });
        let title = format!("{} / {}", self.subject, self.baseline);
        RatioChart { title, rows: rows.collect() }
    }
}

fn ratio_text(ratio: Interval) -> String {
    format!("{:.3} ({:.3}-{:.3})", ratio.estimate, ratio.low, ratio.high)
}

/// A p as people write it.
pub(crate) fn p_text(p: Option<f64>) -> String {
    match p {
        None => "-".to_owned(),
        Some(p) if p < 0.001 => "<0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::compare::compare;
    use crate::report::records::tests::record;

    fn comparison(factor: f64, runs: u32) -> Comparison {
        let side = |factor: f64| -> Vec<_> {
            (0..runs)
                .map(|at| record("t", "1", at, (1000.0 + f64::from(at * 7 % 5)) * factor))
                .collect()
        };
        compare(("before", &side(1.0)), ("after", &side(factor)))
    }

    #[test]
    fn losses_are_stated_and_worst_comes_first() {
        let losses = comparison(0.5, 8).losses();
        assert!(
            losses[0].starts_with("after against before, fillrandom, connections 1: "),
            "{losses:?}"
        );
        assert!(
            losses.iter().any(|loss| loss.contains("get p99 is 9.98 ms against 4.99")),
            "{losses:?}"
        );
        assert!(comparison(2.0, 8).losses().is_empty());
    }

    #[test]
    fn what_is_not_decided_is_told_apart_from_what_is() {
        let single = comparison(0.5, 1);
        assert!(single.losses().is_empty());
        assert!(!single.leanings().is_empty());
        let notes = single.notes().join(" ");
        assert!(notes.contains("can't confirm") && notes.contains("too narrow"), "{notes}");
        assert!(comparison(1.0, 8).leanings().is_empty());
        let four = comparison(0.5, 4);
        assert!(four.losses().is_empty() && !four.leanings().is_empty());
        let notes = four.notes().join(" ");
        assert!(notes.contains("fewer than five runs a side decide nothing"), "{notes}");
    }

    /// Four of a side have an exact p of 0.029 where they are apart: of rows far below what is asked for nothing told
    /// why they weren't decided.
    #[test]
    fn that_four_runs_apart_decide_nothing_is_told() {
        let side = |repetitions: std::ops::Range<u32>, rate: f64| -> Vec<_> {
            repetitions.map(|at| record("t", "1", at, rate + f64::from(at * 7 % 5))).collect()
        };
        let four = compare(("before", &side(0..4, 1000.0)), ("after", &side(4..8, 500.0)));
        assert!(four.rows.iter().all(|row| !row.paired && row.verdict == Verdict::Undecided));
        let notes = four.notes().join(" ");
        assert!(notes.contains("fewer than five runs a side decide nothing"), "{notes}");
        assert!(notes.contains("can't go below 0.029") && !notes.contains("can't confirm"));
        assert_eq!(comparison(0.5, 8).out_of_reach(), None);
    }

    #[test]
    fn the_table_has_every_row_in_every_form() {
        let comparison = comparison(2.0, 8);
        let text = comparison.text();
        assert!(text.contains("operations/s") && text.contains("better"), "{text}");
        assert_eq!(comparison.table().html().matches("<tr class=").count(), comparison.rows.len());
        let chart = comparison.chart(&[Measure::Throughput, Measure::P99]);
        assert_eq!(chart.rows.len(), 2);
    }
}
