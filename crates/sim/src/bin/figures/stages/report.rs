//! Tables, pictures and checks of a run, made of its lines.

use std::fmt::Write;
use std::path::Path;

use super::draw::{self, FILE_EXITS, READ_EXITS};
use super::interval::Interval;

/// Most that HEAD's p50 may differ between the first and the last interval, as a ratio.
const HEAD_RATIO_MAX: f64 = 1.5;
/// Least share of requests to files, for absent keys, that end at the index or the filter.
const EXCLUDED_MIN: f64 = 0.99;
/// Most blocks looked into for an absent key.
const IN_VAIN_MAX: f64 = 0.01;

/// Columns of a table.
const ROWS_MAX: usize = 12;

/// The lines of a run; none when there is no file. A last line that was cut off is left out.
pub(super) fn read(path: &Path) -> Vec<Interval> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Prints what shows that the run goes on.
pub(super) fn print_line(interval: &Interval) {
    let us = |ns: u64| ns as f64 / 1e3;
    let (head, get) = (interval.times("client.head"), interval.times("client.get"));
    println!(
        "{:>7.0} s {:>8.0} MB of journal {:>7.1} MB of tree {:>6.0} ops/s  HEAD p50 {:>6.2} p99 {:>8.2}  GET p50 {:>7.2} p99 {:>8.2} us  {:>6} major faults",
        interval.ended_s,
        interval.held.journal_bytes as f64 / 1e6,
        interval.held.level_bytes.iter().sum::<u64>() as f64 / 1e6,
        operations(interval) / interval.length_s,
        us(head.p50_ns),
        us(head.p99_ns),
        us(get.p50_ns),
        us(get.p99_ns),
        interval.memory.major_faults
    );
}

fn operations(interval: &Interval) -> f64 {
    let kinds = ["client.get", "client.head", "client.head.absent", "client.put"];
    kinds.iter().map(|kind| interval.times(kind).count as f64).sum()
}

/// Makes `README.md` and the pictures in `dir` of the lines there, and prints the checks.
pub(crate) fn report(dir: &Path) {
    let path = dir.join(super::LINES);
    let intervals = read(&path);
    assert!(!intervals.is_empty(), "no interval in {}", path.display());
    let mut text = String::from("# Where the time goes while the data outgrows memory\n\n");
    text.push_str(&introduction(&intervals));
    let checks = checks(&intervals);
    print!("{checks}");
    let _ = write!(text, "\n## What was asked\n\n{checks}");
    for picture in draw::pictures() {
        picture.draw(dir, &intervals).expect("a picture is drawn");
        let _ = write!(text, "\n## {}\n\n![{}]({})\n", picture.title, picture.title, picture.name);
        text.push_str(&table_for(picture.name, &intervals));
    }
    std::fs::write(dir.join("README.md"), text).expect("the report is written");
    println!("{}/README.md is written", dir.display());
}

fn introduction(intervals: &[Interval]) -> String {
    let last = intervals.last().expect("there are intervals");
    let tree: u64 = last.held.level_bytes.iter().sum();
    let ops: f64 = intervals.iter().map(operations).sum();
    let limit = match last.memory.limit_bytes {
        0 => "without a memory limit".to_owned(),
        bytes => format!("in a control group of {} MiB", bytes >> 20),
    };
    format!(
        "One store in one process, {limit}, for {:.1} minutes: {:.1} million operations (four tenths GET, four tenths HEAD, two tenths PUT; a quarter of the reads ask for absent keys; keys evenly chosen), made by `scripts/figures stages`. At the end the journal holds {:.0} MB, the tree {:.1} MB. {} flushes, {} compactions, {} collections went on meanwhile. One operation in eight is timed; exits are complete. Pictures and tables show each interval for itself; `intervals.jsonl` has every figure.\n",
        last.ended_s / 60.0,
        ops / 1e6,
        last.held.journal_bytes as f64 / 1e6,
        tree as f64 / 1e6,
        last.held.flushes,
        last.held.compactions,
        last.held.collections
    )
}

/// What was asked of the store, what was found, and whether that is enough.
fn checks(intervals: &[Interval]) -> String {
    let (first, last) = (&intervals[0], intervals.last().expect("there are intervals"));
    let p50 = |one: &Interval| one.times("client.head").p50_ns as f64;
    let (fast, slow) = (p50(first).min(p50(last)), p50(first).max(p50(last)));
    let ratio = slow / fast.max(1.0);
    let of = |value: fn(&Interval) -> u64| intervals.iter().map(value).sum::<u64>() as f64;
    let (keys, excluded) = (of(|one| one.probe.keys), of(|one| one.probe.excluded));
    let in_vain = of(|one| one.probe.in_vain);
    let share = excluded / (excluded + in_vain).max(1.0);
    let each = in_vain / keys.max(1.0);
    let fetched = of(|one| one.probe.fetched) / keys.max(1.0);
    let verdict = |is_enough: bool| if is_enough { "yes" } else { "**no**" };
    let mut text = String::from("| asked | found | enough |\n|---|---|---|\n");
    let _ = writeln!(
        text,
        "| HEAD p50 from first to last interval within {HEAD_RATIO_MAX}x | {:.2} us, {:.2} us: {ratio:.2}x | {} |",
        p50(first) / 1e3,
        p50(last) / 1e3,
        verdict(ratio <= HEAD_RATIO_MAX)
    );
    let _ = writeln!(
        text,
        "| requests to files for absent keys that end at the index or filter: at least {:.0} % | {:.2} % of {:.0} | {} |",
        EXCLUDED_MIN * 100.0,
        share * 100.0,
        excluded + in_vain,
        verdict(share >= EXCLUDED_MIN)
    );
    let _ = writeln!(
        text,
        "| absent keys that look into a block: at most {:.0} in 100 | {:.3} in 100 of {keys:.0} keys; {:.3} in 100 from the file | {} |",
        IN_VAIN_MAX * 100.0,
        each * 100.0,
        fetched * 100.0,
        verdict(each <= IN_VAIN_MAX)
    );
    let change = |stage: &str| {
        let (from, to) = (first.times(stage).p50_ns as f64, last.times(stage).p50_ns as f64);
        format!("{:.2} to {:.2} us ({:.1}x)", from / 1e3, to / 1e3, to / from.max(1.0))
    };
    let _ = writeln!(
        text,
        "\nHow much of HEAD's change is the store's: from first to last interval the p50 of finding a key in \
         the memtable, which stays as small as it was, goes from {}; of finding that no run has a key from \
         {}; of a whole GET from {}. As data outgrow memory, GETs wait for the disk, and whatever comes \
         next finds the processor's caches cold.",
        change("head.memory"),
        change("head.missed"),
        change("client.get")
    );
    text
}

/// The figures of a picture, for some of the intervals.
fn table_for(picture: &str, intervals: &[Interval]) -> String {
    let times: &[&str] = match picture {
        "get.svg" => &["get.head", "get.body", "get.total"],
        "put.svg" => &["put.journal", "put.memtable", "put.total"],
        "head.svg" => &READ_EXITS,
        "table.svg" => {
            &["table.index", "table.filter", "table.cache", "table.fetch", "table.search"]
        }
        "journal.svg" => &["journal.index", "journal.fetch"],
        "head-p50.svg" => &["client.head", "client.head.absent", "client.get", "client.put"],
        "exits.svg" => return counts(intervals, &READ_EXITS),
        "files.svg" => return counts(intervals, &FILE_EXITS),
        _ => return data(intervals),
    };
    let mut text = String::from("\nMean, p50, p99 in microseconds:\n\n");
    row(&mut text, "minute", times.iter().map(|stage| (*stage).to_owned()));
    rule(&mut text, times.len());
    for interval in chosen(intervals) {
        let cells = times.iter().map(|stage| {
            let times = interval.times(stage);
            let us = |ns: u64| ns as f64 / 1e3;
            match times.count {
                0 => "-".to_owned(),
                _ => format!(
                    "{:.2}, {:.2}, {:.1}",
                    us(times.mean_ns),
                    us(times.p50_ns),
                    us(times.p99_ns)
                ),
            }
        });
        row(&mut text, &minute(interval), cells);
    }
    text
}

fn counts(intervals: &[Interval], exits: &[&str]) -> String {
    let mut text = String::from("\nHow many, in the interval:\n\n");
    row(&mut text, "minute", exits.iter().map(|exit| (*exit).to_owned()));
    rule(&mut text, exits.len());
    for interval in chosen(intervals) {
        row(
            &mut text,
            &minute(interval),
            exits.iter().map(|exit| interval.exits(exit).to_string()),
        );
    }
    text
}

fn data(intervals: &[Interval]) -> String {
    let mut text = String::from("\n");
    let names = [
        "journal MB",
        "tree MB",
        "runs L0, L1, ...",
        "page cache MB",
        "own MB",
        "faults/s",
        "ops/s",
    ];
    row(&mut text, "minute", names.iter().map(|name| (*name).to_owned()));
    rule(&mut text, names.len());
    for one in chosen(intervals) {
        let mb = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
        let runs: Vec<_> = one.held.level_runs.iter().map(u64::to_string).collect();
        let cells = [
            mb(one.held.journal_bytes),
            format!("{:.1}", one.held.level_bytes.iter().sum::<u64>() as f64 / 1e6),
            runs.join(" "),
            mb(one.memory.cache_bytes),
            mb(one.memory.anonymous_bytes),
            format!("{:.0}", one.memory.major_faults as f64 / one.length_s),
            format!("{:.0}", operations(one) / one.length_s),
        ];
        row(&mut text, &minute(one), cells.into_iter());
    }
    text
}

/// Some of the intervals, evenly, the first and the last among them.
fn chosen(intervals: &[Interval]) -> impl Iterator<Item = &Interval> {
    let (count, last) = (intervals.len().min(ROWS_MAX), intervals.len() - 1);
    (0..count).map(move |at| &intervals[at * last / (count - 1).max(1)])
}

fn minute(interval: &Interval) -> String {
    format!("{:.1}", interval.ended_s / 60.0)
}

fn row(text: &mut String, first: &str, cells: impl Iterator<Item = String>) {
    let cells: Vec<String> = cells.collect();
    let _ = writeln!(text, "| {first} | {} |", cells.join(" | "));
}

fn rule(text: &mut String, cells: usize) {
    let _ = writeln!(text, "|{}", "---|".repeat(cells + 1));
}
