//! The report itself: an experiment puts in its answer, charts and comparisons; what every report has
//! (setup, statistics, losses, raw runs, how to rerun) is drawn from the records.

use std::fmt::Write as _;
use std::path::Path;

use super::compare::Comparison;
use super::page::{embedded_json, figure, flame_frame, page};
use super::setup::{runs_table, setup_table, targets_table, time_span};
use super::table::{Table, escape_markdown};
use crate::chart::{Chart, WIDE, escape};
use crate::error::{Error, Result};
use crate::record::{KindOutcome, Latency, Record};

/// What is said of cases in which there is nothing of ours to be compared.
const NONE_COUNTS: &str = "none of the runs counts that were made";

/// What is said before the number of comparisons, where no side has the runs that a verdict takes: half the rate would
/// be told as no loss.
const TOO_FEW: &str = "these runs are too few to decide any of";

/// A flame graph: an SVG as inferno writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlameGraph {
    /// What it is of.
    pub title: String,
    /// The SVG.
    pub svg: String,
}

/// An experiment's report.
pub struct Report {
    name: String,
    question: String,
    answer: String,
    rerun: String,
    records: Vec<Record>,
    body: String,
    comparisons: Vec<Comparison>,
    pictures: Vec<(String, String)>,
    summary: Option<Table>,
    has_flame_graphs: bool,
}

impl Report {
    /// A report of records. `name` is the experiment's, `rerun` the exact command that makes the runs
    /// again. Text given here and below is shown as it is, never as markup.
    pub fn new(
        name: impl Into<String>,
        question: impl Into<String>,
        rerun: impl Into<String>,
        records: Vec<Record>,
    ) -> Report {
        Report {
            name: name.into(),
            question: question.into(),
            answer: String::new(),
            rerun: rerun.into(),
            records,
            body: String::new(),
            comparisons: Vec::new(),
            pictures: Vec::new(),
            summary: None,
            has_flame_graphs: false,
        }
    }

    /// What it is drawn from.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The answer, in one sentence with its figures.
    pub fn answer(&mut self, sentence: impl Into<String>) -> &mut Report {
        self.answer = sentence.into();
        self
    }

    /// A new section.
    pub fn section(&mut self, title: &str) -> &mut Report {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(title));
        self
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) -> &mut Report {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
        self
    }

    /// A chart; `caption` says how to read it.
    pub fn chart(&mut self, title: &str, caption: &str, chart: &dyn Chart) -> &mut Report {
        self.body.push_str(&figure(title, caption, chart));
        self
    }

    /// A chart that is kept as a file of its own too; the first is the summary's picture.
    pub fn picture(&mut self, title: &str, caption: &str, chart: &dyn Chart) -> &mut Report {
        self.pictures.push((title.to_owned(), chart.draw(WIDE).standalone(title)));
        self.chart(title, caption, chart)
    }

    /// A table.
    pub fn table(&mut self, title: &str, table: &Table) -> &mut Report {
        let _ = writeln!(self.body, "<h3>{}</h3>{}", escape(title), table.html());
        self
    }

    /// A table that is the summary's too.
    pub fn summary_table(&mut self, title: &str, table: &Table) -> &mut Report {
        self.summary = Some(table.clone());
        self.table(title, table)
    }

    /// Flame graphs side by side.
    pub fn flame_graphs(&mut self, graphs: &[FlameGraph]) -> &mut Report {
        let frames = graphs.iter().map(|graph| flame_frame(&graph.title, &graph.svg));
        let frames: String = frames.collect();
        let _ = writeln!(self.body, "<div class=\"flames\">{frames}</div>");
        self.has_flame_graphs |= !graphs.is_empty();
        self
    }

    /// A comparison, for the statistics and for where we lose: ours is the subject.
    pub fn comparison(&mut self, comparison: Comparison) -> &mut Report {
        self.comparisons.push(comparison);
        self
    }

    /// The whole page.
    pub fn html(&self) -> String {
        let kicker = format!("Tallybook laboratory \u{b7} {}", self.name);
        let mut body = format!(
            "<header><p class=\"kicker\">{}</p><h1>{}</h1><p class=\"answer\">{}</p></header>\n<main>\n",
            escape(&kicker),
            escape(&self.question),
            escape(self.answer_text())
        );
        body.push_str(&self.body);
        body.push_str(&self.losses_html());
        body.push_str(&self.statistics_html());
        self.setup_html(&mut body);
        self.runs_html(&mut body);
        let _ = write!(
            body,
            "<h2>How to rerun</h2>\n<pre>{}</pre>\n<p class=\"note\">The same command on the same \
             machine makes the same requests; figures differ by what else the machine does. This page \
             is drawn from <a href=\"runs.jsonl\">runs.jsonl</a> alone.</p>\n</main>\n\
             <footer>Tallybook laboratory, {}. Runs made {}.</footer>",
            escape(&self.rerun),
            escape(&self.name),
            escape(&time_span(&self.records))
        );
        page(&format!("{}: {}", self.name, self.question), &body, self.has_flame_graphs)
    }

    fn answer_text(&self) -> &str {
        if self.answer.is_empty() { "These runs give no answer." } else { &self.answer }
    }

    fn losses_html(&self) -> String {
        if self.comparisons.is_empty() {
            return String::new();
        }
        let list = |sentences: &[String]| {
            let items = sentences.iter().map(|one| format!("<li>{}</li>\n", escape(one)));
            format!("<ul>{}</ul>\n", items.collect::<String>())
        };
        let failures: Vec<String> =
            self.comparisons.iter().flat_map(Comparison::failures).collect();
        let losses: Vec<String> = self.comparisons.iter().flat_map(Comparison::losses).collect();
        let leanings: Vec<String> =
            self.comparisons.iter().flat_map(Comparison::leanings).collect();
        let rows: usize = self.comparisons.iter().map(|one| one.rows.len()).sum();
        let mut html = "<h2>Where we lose</h2>\n".to_owned();
        if !failures.is_empty() {
            let _ = write!(html, "<p>{NONE_COUNTS}:</p>\n{}", list(&failures));
        }
        let _ = writeln!(
            html,
            "<p>{}</p>",
            match (losses.len(), self.decidable(rows)) {
                (_, None) => format!("Not told: {TOO_FEW} {rows} comparisons."),
                (0, Some(all)) => format!("In none of {all}, as far as these runs can tell."),
                (some, Some(all)) => format!("In {some} of {all}, beyond chance:"),
            }
        );
        if !losses.is_empty() {
            html.push_str(&list(&losses));
        }
        if !leanings.is_empty() {
            html.push_str(
                "<p>Worse in the median by 5 % or more, while chance can't be ruled out:</p>\n",
            );
            html.push_str(&list(&leanings));
            if let Some(few) = self.comparisons.iter().find_map(Comparison::out_of_reach) {
                let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(&few));
            }
        }
        html
    }

    fn statistics_html(&self) -> String {
        let mut html = String::new();
        for (at, comparison) in self.comparisons.iter().enumerate() {
            if at == 0 {
                html.push_str("<h2>Statistics</h2>\n");
            }
            let title = format!("{} against {}", comparison.subject, comparison.baseline);
            let table = comparison.table().html();
            let _ =
                writeln!(html, "<h3>{}</h3><div class=\"verdicts\">{table}</div>", escape(&title));
            for note in comparison.notes() {
                let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(&note));
            }
        }
        html
    }

    fn setup_html(&self, body: &mut String) {
        let prose = |table: Table| format!("<div class=\"prose\">{}</div>", table.html());
        body.push_str("<h2>Setup</h2>\n");
        body.push_str(&prose(setup_table(&self.records)));
        body.push_str(&prose(targets_table(&self.records)));
    }

    fn runs_html(&self, body: &mut String) {
        let invalid: Vec<&Record> =
            self.records.iter().filter(|record| !record.outcome.counts()).collect();
        body.push_str("<h2>Raw runs</h2>\n");
        if !invalid.is_empty() {
            let count = match invalid.len() {
                1 => "One run doesn't count".to_owned(),
                some => format!("{some} runs don't count"),
            };
            let _ = writeln!(body, "<p>{count}; the table says why.</p>");
        }
        let _ = writeln!(
            body,
            "<details><summary>All {} runs</summary>{}</details>",
            self.records.len(),
            runs_table(&self.records).html()
        );
        let bare: Vec<Record> = self.records.iter().map(without_curves).collect();
        let json = serde_json::to_string(&bare).unwrap_or_else(|_| "[]".to_owned());
        let _ = writeln!(
            body,
            "<script type=\"application/json\" id=\"runs\">{}</script>\n<p class=\"note\">The page holds \
             them as JSON (element <code>runs</code>), without histograms and seconds, which are in \
             runs.jsonl.</p>",
            embedded_json(&json)
        );
    }

    /// Question, answer, picture and table, to be linked from a README.
    pub fn summary_markdown(&self) -> String {
        let mut text = format!(
            "# {}\n\n{}\n\n**{}**\n",
            escape_markdown(&self.name),
            escape_markdown(&self.question),
            escape_markdown(self.answer_text())
        );
        for (title, _) in &self.pictures {
            let _ = write!(text, "\n![{}]({})\n", escape_markdown(title), picture_file(title));
        }
        if let Some(table) = &self.summary {
            text = text + "\n" + &table.markdown();
        }
        text.push_str(&self.losses_markdown());
        let _ = write!(
            text,
            "\nRuns made {}. The whole report: [report.html](report.html); every run: \
             [runs.jsonl](runs.jsonl). To rerun:\n\n```sh\n{}\n```\n",
            escape_markdown(&time_span(&self.records)),
            self.rerun.replace("```", "")
        );
        text
    }

    /// How many of these rows can be decided, and how many can't; `None` where none can be.
    fn decidable(&self, rows: usize) -> Option<String> {
        let decidable: usize = self.comparisons.iter().map(Comparison::decidable).sum();
        match rows - decidable {
            _ if decidable == 0 => None,
            0 => Some(format!("{rows} comparisons")),
            few => Some(format!("{decidable} comparisons ({few} more have too few runs)")),
        }
    }

    /// What was lost beyond chance; speed and processor time that lean the same way, one by one, because a few runs
    /// decide nothing; and how many other figures do.
    fn losses_markdown(&self) -> String {
        let of = |pick: fn(&Comparison) -> Vec<String>| -> Vec<String> {
            self.comparisons.iter().flat_map(pick).collect()
        };
        let list = |sentences: &[String]| -> String {
            sentences.iter().map(|one| format!("- {}\n", escape_markdown(one))).collect()
        };
        let failures = of(Comparison::failures);
        let (losses, leanings) = (of(Comparison::losses), of(Comparison::headline_leanings));
        let others = of(Comparison::leanings).len() - leanings.len();
        let rows: usize = self.comparisons.iter().map(|one| one.rows.len()).sum();
        let mut text = match failures.len() {
            0 => String::new(),
            _ => format!("\nWhere we lose: {NONE_COUNTS}:\n\n{}", list(&failures)),
        };
        if rows == 0 {
            return text;
        }
        text += &match (losses.len(), self.decidable(rows)) {
            (_, None) => format!("\nWhere we lose: {TOO_FEW} {rows} comparisons.\n"),
            (0, Some(all)) => format!("\nWhere we lose: beyond chance in none of {all}.\n"),
            (some, Some(all)) => {
                let losses = list(&losses);
                format!("\nWhere we lose, beyond chance in {some} of {all}:\n\n{losses}")
            }
        };
        if !leanings.is_empty() {
            text += "\nSpeed and processor time that are worse in the median by 5 % or more, while chance can't \
                     be ruled out:\n\n";
            text += &list(&leanings);
        }
        if others > 0 {
            let _ = write!(
                text,
                "\n{others} figures of latency, memory or disk are worse in the median by 5 % or more, while \
                 chance can't be ruled out: the report lists them.\n"
            );
        }
        let few = self.comparisons.iter().find_map(Comparison::out_of_reach);
        if let Some(few) = few.filter(|_| !leanings.is_empty() || others > 0) {
            let _ = write!(text, "\n{} More are made with --repetitions.\n", escape_markdown(&few));
        }
        text
    }

    /// Writes `report.html`, `summary.md` and the pictures into a directory, beside `runs.jsonl`.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))
        };
        for (title, svg) in &self.pictures {
            write(&picture_file(title), svg)?;
        }
        write("summary.md", &self.summary_markdown())?;
        write("report.html", &self.html())
    }
}

/// A picture's file name: its title in lower-case letters, digits and hyphens.
fn picture_file(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.map(str::to_ascii_lowercase).take(8).collect::<Vec<_>>().join("-");
    format!("{}.svg", if name.is_empty() { "picture" } else { &name })
}

fn without_curves(record: &Record) -> Record {
    let mut bare = record.clone();
    bare.outcome.per_second.clear();
    let bare_latency = |latency: &mut Latency| latency.histogram.clear();
    for KindOutcome { latency, from_sent, per_second, .. } in bare.outcome.kinds.values_mut() {
        bare_latency(latency);
        bare_latency(from_sent);
        per_second.clear();
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{BarChart, Unit};
    use crate::report::compare::Comparer;
    use crate::report::records::tests::record;

    const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&</script><script>alert(2)</script>";

    fn report() -> Report {
        let mut records = Vec::new();
        for at in 0..6 {
            let rate = 1000.0 + f64::from(at * 7 % 5);
            records.push(record(HOSTILE, HOSTILE, at, rate));
            records.push(record("rival", HOSTILE, at, rate * 2.0));
        }
        records[0].target_settings.insert(HOSTILE.into(), HOSTILE.into());
        records[1].outcome.invalid = Some(HOSTILE.into());
        let comparer = Comparer::Targets { baseline: "rival", subject: HOSTILE };
        let comparison = comparer.compare(&records);
        let chart = BarChart::new(HOSTILE, Unit::Count).series(HOSTILE).group(HOSTILE, vec![None]);
        let table = Table::new([HOSTILE]).row([HOSTILE]);
        let mut report = Report::new(HOSTILE, HOSTILE, HOSTILE, records);
        report
            .answer(HOSTILE)
            .section(HOSTILE)
            .paragraph(HOSTILE)
            .picture(HOSTILE, HOSTILE, &chart)
            .summary_table(HOSTILE, &table)
            .comparison(comparison);
        report
    }

    #[test]
    fn names_from_outside_stay_text_everywhere() {
        let html = report().html();
        assert!(!html.contains("<img") && !html.contains("<script>alert"), "markup came through");
        // The runs as JSON, and the read-out.
        assert_eq!(html.matches("<script").count(), 2);
        assert_eq!(html.matches("</script>").count(), 2);
        let summary = report().summary_markdown();
        let before_code = summary.split("```").next().unwrap();
        assert!(!before_code.contains("<img"), "{summary}");
    }

    #[test]
    fn losses_runs_and_the_command_are_in_the_page_and_the_summary() {
        let mut report = report();
        report.answer("It is 2.0 times slower.");
        let html = report.html();
        for part in ["Where we lose", "beyond chance:", "How to rerun", "Raw runs", "Statistics"] {
            assert!(html.contains(part), "{part}");
        }
        assert!(
            html.contains("It is 2.0 times slower.") && html.contains("One run doesn't count"),
            "runs"
        );
        let summary = report.summary_markdown();
        assert!(
            summary.contains("Where we lose, beyond chance in")
                && summary.contains("(img-src-x-onerror")
        );
    }

    /// Half the rate in two runs beside two was in no summary: so few runs decide next to nothing.
    #[test]
    fn the_summary_names_a_loss_of_speed_that_few_runs_cannot_decide() {
        let mut records = Vec::new();
        for (at, rate) in [900.0, 1100.0].into_iter().enumerate() {
            records.push(record("tallybook", "1", at as u32, rate));
            records.push(record("rival", "1", at as u32, rate * 2.0));
        }
        let comparer = Comparer::Targets { baseline: "rival", subject: "tallybook" };
        let comparison = comparer.compare(&records);
        assert!(comparison.losses().is_empty());
        let mut report = Report::new("two", "Who is faster?", "again", records);
        let summary = report.comparison(comparison).summary_markdown();
        let lost = "- tallybook against rival, fillrandom, connections 1: operations/s is 1.00 k/s against 2.00";
        assert!(summary.contains("Where we lose: these runs are too few"), "{summary}");
        assert!(summary.contains(lost), "{summary}");
        assert!(summary.contains("CPU per operation is"), "{summary}");
        assert!(summary.contains("3 figures of latency, memory or disk"), "{summary}");
        assert!(summary.contains("p can't go below 0.500") && summary.contains("--repetitions"));
    }

    /// It was told to be lost in none of all, most of which had two runs a side: half the rate was no loss.
    #[test]
    fn what_few_runs_cannot_decide_is_not_told_as_no_loss() {
        let comparison = |runs: u32, factor: f64| {
            let mut records = Vec::new();
            for at in 0..runs {
                records.push(record("tallybook", "1", at, 1000.0));
                records.push(record("rival", "1", at, 1000.0 * factor));
            }
            Comparer::Targets { baseline: "rival", subject: "tallybook" }.compare(&records)
        };
        let records = vec![record("tallybook", "1", 0, 1000.0)];
        let mut report = Report::new("two", "Who is faster?", "again", records);
        let (few, enough) = (comparison(2, 2.0), comparison(5, 1.0));
        let (undecided, decided) = (few.rows.len(), enough.rows.len());
        report.comparison(few).comparison(enough);
        let told = format!("none of {decided} comparisons ({undecided} more have too few runs)");
        for text in [report.summary_markdown(), report.html()] {
            assert!(text.contains(&told), "{text}");
        }
    }

    /// What failed throughout was in no comparison, and so lost in none.
    #[test]
    fn a_case_in_which_all_own_runs_failed_is_told_of_as_lost() {
        let mut records = Vec::new();
        for at in 0..2 {
            records.push(record("tallybook", "1", at, 1000.0));
            records.push(record("rival", "1", at, 1000.0));
        }
        let summary = |records: &[Record]| {
            let comparer = Comparer::Targets { baseline: "rival", subject: "tallybook" };
            let mut report = Report::new("two", "Who is faster?", "again", records.to_vec());
            report.comparison(comparer.compare(records));
            (report.summary_markdown(), report.html())
        };
        let lost = "tallybook against rival, fillrandom, connections 1: none of its runs counts.";
        assert!(!summary(&records).0.contains(lost));
        for one in records.iter_mut().filter(|one| one.target == "tallybook") {
            one.outcome.invalid = Some("wrong data: key 7".to_owned());
        }
        let (markdown, html) = summary(&records);
        assert!(markdown.contains("Where we lose") && markdown.contains(lost), "{markdown}");
        assert!(html.contains(lost));
    }

    #[test]
    fn the_files_are_written_beside_the_runs() {
        let directory = tempfile::tempdir().unwrap();
        report().write(directory.path()).unwrap();
        for name in ["report.html", "summary.md", &picture_file(HOSTILE)] {
            assert!(std::fs::metadata(directory.path().join(name)).unwrap().len() > 100, "{name}");
        }
        let error = report().write(&directory.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("writing"), "{error}");
        assert_eq!(picture_file("../../etc: GET, p99.9"), "etc-get-p99-9.svg");
        assert_eq!(picture_file("\u{e9}"), "picture.svg");
    }
}
