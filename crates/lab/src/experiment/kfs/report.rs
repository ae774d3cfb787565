//! The report: what was asked and reached, times by trial, their means and tests, space, memory, and
//! the study beside its own figures.

use super::asked::{self, disk_series};
use super::cells::{
    bytes_of, deviation, mean_bar, middle, ns, of_size, of_workload, shown, sizes, targets, times,
};
use super::{KFS, LEVELDB, LEVELDB_SYNCED, OPERATIONS, OURS, OURS_SYNCED, study};
use crate::chart::{BarChart, LineChart, Point, StripChart, StripRow, Unit};
use crate::experiment::picks::{bar_of, median_of, or_dash, text, told};
use crate::process::QUIET;
use crate::record::Record;
use crate::report::{Comparer, Comparison, Measure, Report, Table, p_text};
use crate::spec::Workload;
use crate::statistics::{Bootstrap, mean, median};

/// Which of ours is held against which other.
const PAIRS: [(&str, &str); 4] =
    [(KFS, OURS), (KFS, OURS_SYNCED), (LEVELDB, OURS), (LEVELDB_SYNCED, OURS_SYNCED)];

/// The whole report.
pub(super) fn report(mut report: Report, records: &[Record]) -> Report {
    if let Some(answer) = answer(records) {
        report.answer(answer);
    }
    let asked = asked::asked(records);
    report
        .section("What was asked")
        .paragraph(
            "Rates and times are medians over trials; ratios are ratios of medians. KFS never syncs, \
             so it is held against the file store unsynced, and beside that synced.",
        )
        .summary_table("What was asked, and what these runs show", &asked::table(&asked));
    how(&mut report);
    for operation in OPERATIONS {
        times_section(&mut report, records, operation);
    }
    space_section(&mut report, records);
    resources_section(&mut report, records);
    let pairs = PAIRS.map(|(baseline, subject)| compared(records, baseline, subject));
    let pairs = pairs.into_iter().filter(|pair| !pair.rows.is_empty()).collect::<Vec<_>>();
    study_section(&mut report, records, &pairs);
    for pair in pairs {
        report.comparison(pair);
    }
    report
}

fn answer(records: &[Record]) -> Option<String> {
    let (size, ours) = asked::of_largest(records, OURS)?;
    let words = |times: &[String]| {
        format!("written in {}, read in {} and unlinked in {}", times[0], times[1], times[2])
    };
    let mut answer = format!("A file of {size} is {} (medians)", words(&ours));
    if let Some((_, kfs)) = asked::of_largest(records, KFS) {
        answer += &format!(", in KFS {}", words(&kfs));
    }
    let last = |target| {
        let last = of_workload(records, target, Workload::Rest).pop()?;
        let disk = Unit::Bytes.format(last.outcome.disk_bytes as f64);
        Some((disk, last.repetition + 1))
    };
    if let Some((disk, trials)) = last(OURS) {
        answer += &format!("; after {trials} trials with everything unlinked {disk} are on disk");
    }
    if let Some((disk, _)) = last(KFS) {
        answer += &format!(", in KFS {disk}");
    }
    let asked = asked::asked(records);
    let required: Vec<_> =
        asked.iter().filter(|one| !one.asked.starts_with("(not asked)")).collect();
    let reached = required.iter().filter(|one| one.reached == Some(true)).count();
    Some(format!("{answer}; {reached} of the {} figures asked for are reached.", required.len()))
}

fn how(report: &mut Report) {
    report
        .section("How it was measured")
        .paragraph(
            "Each store is in a process of its own, one for all trials: Tallybook's file store with its \
             defaults; KFS from npm with its defaults, in Node.js, through its streams; and one LevelDB \
             with KFS's chunks of 128 KiB, keys and sizes of memtable and cache. Content is the same \
             for all, made chunk by chunk while it is written, and different in each trial. Timed are, \
             by the monotonic clock of the store's own process: a write from the first byte handed over \
             until it is acknowledged; a read to the last byte, each byte being compared with what was \
             written; an unlinking until it is acknowledged. That the file is gone is looked at \
             afterwards.",
        )
        .paragraph(&format!(
            "Synced means that a write and an unlinking are acknowledged once they survive power loss; \
             for LevelDB, that the last put or delete syncs the log. Reads follow their write, so they \
             find the page cache warm. Every byte of Tallybook's is hashed (BLAKE3) and checksummed \
             (CRC-32C) on writing and verified on reading; LevelDB verifies its blocks' checksums; KFS \
             verifies nothing. Before each file the file system writes back what it still holds, and \
             after it what the store does by itself is waited for, until its process is quiet for \
             {} s: no store pays for another's work. An interrupted series goes on in the same stores, \
             closed and opened again.",
            QUIET.as_secs_f64()
        ));
}

fn times_section(report: &mut Report, records: &[Record], operation: &str) {
    let title = match operation {
        "write" => "Writing",
        "read" => "Reading",
        _ => "Unlinking",
    };
    report.section(title);
    let rows = sizes(records).into_iter().flat_map(|size| {
        targets(records).into_iter().map(move |(slot, target)| {
            let runs = times(records, target, operation, &size);
            let median = Bootstrap::default().median(&runs);
            StripRow { name: format!("{}, {target}", shown(&size)), slot, runs, median }
        })
    });
    let strip = StripChart {
        title: format!("time, {operation} of one file"),
        unit: Unit::Nanoseconds,
        log: true,
        rows: rows.filter(|row| !row.runs.is_empty()).collect(),
    };
    let caption =
        "A dot is a trial, the first on top; the stroke is the median with its 95 % interval.";
    report.picture(&format!("Every {operation} of every trial"), caption, &strip);
    if let Some(size) = sizes(records).pop() {
        let chart = LineChart::sweep("trial", Unit::Count, "time", Unit::Nanoseconds).log_y();
        let chart = targets(records).into_iter().fold(chart, |chart, (slot, target)| {
            let runs = times(records, target, operation, &size).into_iter().enumerate();
            let points = runs.map(|(at, time)| Point::new((at + 1) as f64, time)).collect();
            chart.line_in(slot, target, points)
        });
        let caption = "The stores grow old from trial to trial.";
        report.chart(
            &format!("The {operation} of {}, trial by trial", shown(&size)),
            caption,
            &chart,
        );
    }
    bars(report, records, operation);
    report.table(&format!("Every {operation}, in figures"), &figures(records, operation));
}

/// The study's bar charts: means, and standard deviations.
fn bars(report: &mut Report, records: &[Record], operation: &str) {
    // An unlinking is to cost the same whatever the size.
    let per_mib = operation != "unlink";
    let divisor = |size: &str| if per_mib { bytes_of(size) / f64::from(1 << 20) } else { 1.0 };
    let unit = if per_mib { " per MiB" } else { "" };
    let chart = |title: String| {
        targets(records)
            .into_iter()
            .fold(BarChart::new(title, Unit::Nanoseconds), |chart, (slot, target)| {
                chart.series_in(slot, target)
            })
    };
    let mut means = chart(format!("mean time, {operation}{unit}; less is better"));
    let mut deviations = chart(format!("standard deviation, {operation}{unit}; less is more even"));
    for size in sizes(records) {
        let of = |target| times(records, target, operation, &size);
        let all = targets(records);
        let mean = all.iter().map(|(_, target)| mean_bar(&of(target), divisor(&size)));
        means = means.group(shown(&size), mean.collect());
        let spread = all.iter().map(|(_, target)| {
            let value = deviation(&of(target))? / divisor(&size);
            Some(crate::chart::Bar { value, interval: None })
        });
        deviations = deviations.group(shown(&size), spread.collect());
    }
    let caption = "The whiskers are one standard deviation to both sides.";
    report.picture(&format!("Mean {operation} by size"), caption, &means);
    let caption = "Of all trials.";
    report.chart(&format!("Standard deviation, {operation} by size"), caption, &deviations);
}

fn figures(records: &[Record], operation: &str) -> Table {
    let columns =
        ["size", "store", "mean", "standard deviation", "median (95 %)", "rate", "CPU", "trials"];
    let mut table = Table::new(columns);
    for size in sizes(records) {
        for (_, target) in targets(records) {
            let runs = times(records, target, operation, &size);
            let Some(interval) = Bootstrap::default().median(&runs) else { continue };
            let [low, estimate, high] = [interval.low, interval.estimate, interval.high].map(ns);
            let rate = match operation {
                "unlink" => "-".to_owned(),
                _ => Unit::Bytes.format(bytes_of(&size) / (interval.estimate / 1e9)) + "/s",
            };
            let cpu = of_size(records, target, &size).into_iter();
            let cpu: Vec<f64> = cpu
                .filter_map(|record| record.outcome.figures.get(&format!("{operation}.cpu_s")))
                .copied()
                .collect();
            table = table.row([
                shown(&size).to_owned(),
                target.to_owned(),
                or_dash(mean(&runs), ns),
                or_dash(deviation(&runs), ns),
                format!("{estimate} ({low} to {high})"),
                rate,
                text(Unit::Seconds, median(&cpu)),
                runs.len().to_string(),
            ]);
        }
    }
    table
}

fn space_section(report: &mut Report, records: &[Record]) {
    report.section("Space").paragraph(
        "Disk is taken in blocks, as the file system gives them. After its last file of a trial, with \
         everything unlinked, a store is asked for nothing, and its disk is looked at once a second \
         until nothing has changed for 5 s, at most for 30 s.",
    );
    let over = |title: &str, y: &dyn Fn(&Record) -> f64| {
        let chart = LineChart::sweep("trial", Unit::Count, title, Unit::Bytes);
        targets(records).into_iter().fold(chart, |chart, (slot, target)| {
            let rests = of_workload(records, target, Workload::Rest);
            let point = |one: &&Record| Point::new(f64::from(one.repetition + 1), y(one));
            chart.line_in(slot, target, rests.iter().map(point).collect())
        })
    };
    let chart = over("bytes on disk", &|one| one.outcome.disk_bytes as f64);
    let caption = "Nothing lives then: what is there is dead, ready, or about the store itself.";
    report.picture("Disk after each trial", caption, &chart);
    let chart = LineChart::over_time("bytes on disk", Unit::Bytes);
    let chart = targets(records).into_iter().fold(chart, |chart, (slot, target)| {
        let last = of_workload(records, target, Workload::Rest).pop();
        let series = last.map(disk_series).unwrap_or_default();
        let points = series.iter().enumerate().map(|(at, y)| Point::new(at as f64, *y));
        chart.line_in(slot, target, points.collect())
    });
    let caption = "From its last unlinking on; where a line ends, nothing had changed for 5 s.";
    report.chart("Disk after the last trial, nobody asking", caption, &chart);
    let columns = [
        "store",
        "trials",
        "live",
        "on disk at rest",
        "of that, active and spare segments",
        "most after a file",
        "written to the device per byte",
    ];
    let table = by_store(records, columns, |target| {
        let rests = of_workload(records, target, Workload::Rest);
        let last = rests.last()?;
        let files: Vec<&Record> =
            sizes(records).iter().flat_map(|size| of_size(records, target, size)).collect();
        let most = files.iter().map(|one| one.outcome.disk_bytes).max().unwrap_or(0) as f64;
        let amplification = median_of(&files, |one| one.outcome.write_amplification());
        Some([
            target.to_owned(),
            rests.len().to_string(),
            "0".to_owned(),
            Unit::Bytes.format(last.outcome.disk_bytes as f64),
            text(Unit::Bytes, told("segments_ahead_bytes")(last)),
            Unit::Bytes.format(most),
            text(Unit::Ratio, amplification),
        ])
    });
    report.table("Space", &table);
}

fn resources_section(report: &mut Report, records: &[Record]) {
    report.section("Memory, CPU and file handles").paragraph(
        "Memory is the whole process's, with the code and, for KFS, Node.js. What the store does after \
         a file by itself is counted in its CPU.",
    );
    let all = targets(records);
    let mut chart = all.iter().fold(
        BarChart::new("peak resident memory in a trial; less is better", Unit::Bytes),
        |chart, (slot, target)| chart.series_in(*slot, *target),
    );
    for size in sizes(records) {
        let bars = all.iter().map(|(_, target)| {
            let runs = of_size(records, target, &size);
            bar_of(&runs, |one| Some(one.outcome.peak_resident_bytes as f64))
        });
        chart = chart.group(shown(&size), bars.collect());
    }
    let caption = "Medians over trials with 95 % intervals.";
    report.picture("Peak resident memory by size", caption, &chart);
    let columns = [
        "store",
        "most resident",
        "most that is no file's",
        "CPU per GiB written, read and unlinked",
        "most file handles",
    ];
    let table = by_store(records, columns, |target| {
        let files: Vec<&Record> =
            sizes(records).iter().flat_map(|size| of_size(records, target, size)).collect();
        let most = |figure: &dyn Fn(&Record) -> f64| {
            files.iter().map(|one| figure(one)).fold(0.0, f64::max)
        };
        let bytes: u64 = files.iter().map(|one| one.outcome.user_written_bytes).sum();
        let cpu: f64 = files.iter().map(|one| one.outcome.cpu_settled_s).sum();
        Some([
            target.to_owned(),
            Unit::Bytes.format(most(&|one| one.outcome.peak_resident_bytes as f64)),
            Unit::Bytes.format(most(&|one| one.outcome.peak_anonymous_bytes as f64)),
            Unit::Seconds.format(cpu / (bytes.max(1) as f64 / f64::from(1 << 30))),
            Unit::Count.format(most(&|one| told("handles_max")(one).unwrap_or(0.0))),
        ])
    });
    report.table("Memory, CPU and file handles over all trials", &table);
    let columns = [
        "store",
        "buckets",
        "open at the end",
        "most file handles",
        "disk",
        "write, median",
        "read, median",
    ];
    let table = by_store(records, columns, |target| {
        let runs = of_workload(records, target, Workload::EachBucket);
        let first = runs.first()?;
        let most =
            |name: &'static str| runs.iter().copied().filter_map(told(name)).fold(0.0, f64::max);
        let time = |kind| {
            let latency = crate::experiment::picks::latency(kind, |latency| latency.p50_ns);
            or_dash(median_of(&runs, latency), ns)
        };
        Some([
            target.to_owned(),
            first.spec.keys.to_string(),
            Unit::Count.format(most("open_buckets")),
            Unit::Count.format(most("handles_max")),
            text(Unit::Bytes, median_of(&runs, |one| Some(one.outcome.disk_bytes as f64))),
            time("write"),
            time("read"),
        ])
    });
    report.table("A small file in each of many buckets of a fresh store", &table);
}

/// A table with a row for each store that has one.
fn by_store<const N: usize>(
    records: &[Record],
    columns: [&str; N],
    row: impl Fn(&str) -> Option<[String; N]>,
) -> Table {
    let rows = targets(records).into_iter().filter_map(|(_, target)| row(target));
    rows.fold(Table::new(columns), Table::row)
}

fn study_section(report: &mut Report, records: &[Record], pairs: &[Comparison]) {
    let Some(comparison) = study::comparison(records) else { return };
    report
        .section("The study, its figures, and these runs")
        .paragraph(
            "KFS came with a study of KFS against one LevelDB, on a hard disk and a solid-state disk. \
             This is what its text says, where its own figures say otherwise, and what the same cells \
             show here. The LevelDB here is asked from Rust and KFS from Node.js, so what differs isn't \
             KFS's many databases alone.",
        )
        .table("Text, figures, and these runs", &study::table(records, &comparison))
        .paragraph(
            "Two-sided tests of each cell, as they come out and corrected by Holm over all cells; the \
             study has the former alone. The verdict is by the ratios of trials made in turn, as in the \
             statistics. All trials of a store are in one process, so that what differs from one store of \
             its kind to the next is in no p. A ratio below 1 is in KFS's favour.",
        )
        .table("KFS against one LevelDB", &tests_table(&comparison));
    for pair in pairs {
        let times = pair.rows.iter().filter(|row| row.metric.measure == Measure::P50);
        let times = Comparison { rows: times.cloned().collect(), ..pair.clone() };
        report.table(&format!("{} against {}", pair.subject, pair.baseline), &tests_table(&times));
    }
}

/// Two-sided tests with and without correction, and the sizes of effects.
fn tests_table(comparison: &Comparison) -> Table {
    let columns = [
        "cell",
        "operation",
        &*comparison.baseline,
        &*comparison.subject,
        "ratio (95 %)",
        "p, Welch",
        "corrected",
        "p, Mann-Whitney",
        "corrected",
        "Cliff's delta",
        "Hedges' g",
        "p of the verdict",
        "verdict",
    ];
    let tests = study::tests(comparison);
    comparison.rows.iter().zip(tests).fold(Table::new(columns), |table, (row, tests)| {
        let [welch, welch_corrected, mann_whitney, mann_whitney_corrected] = tests.map(p_text);
        let size = row.case.rsplit("size ").next().unwrap_or_default();
        let ratio = row.ratio.map_or(String::new(), |ratio| {
            format!("{:.3} ({:.3}-{:.3})", ratio.estimate, ratio.low, ratio.high)
        });
        table.row([
            shown(size).to_owned(),
            row.metric.kind.clone().unwrap_or_default(),
            ns(row.baseline_median()),
            ns(row.subject_median()),
            ratio,
            welch,
            welch_corrected,
            mann_whitney,
            mann_whitney_corrected,
            or_dash(row.cliffs_delta, |delta| format!("{delta:+.2}")),
            or_dash(row.hedges_g, |g| format!("{g:+.2}")),
            p_text(row.decisive_p_corrected),
            row.verdict_text().to_owned(),
        ])
    })
}

/// Times, CPU and memory of one store against another's, on files.
fn compared(records: &[Record], baseline: &str, subject: &str) -> Comparison {
    let of_files: Vec<Record> =
        records.iter().filter(|one| one.case.contains_key("size")).cloned().collect();
    let wanted = [Measure::P50, Measure::CpuPerOperation, Measure::PeakResident];
    let both = [baseline, subject].iter().all(|name| {
        sizes(&of_files).iter().any(|size| middle(&of_files, name, "write", size).is_some())
    });
    let of_files = if both { of_files } else { Vec::new() };
    Comparer::Targets { baseline, subject }
        .compare_in(&of_files, &|metric| wanted.contains(&metric.measure))
}
