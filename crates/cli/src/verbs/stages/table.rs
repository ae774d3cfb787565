//! The tables of `stages`: what the server's `/stages` says, aligned for people.

use std::fmt::Write;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::Value;

/// `/stages`, as far as it is printed.
#[derive(Debug, Deserialize)]
struct Page {
    sample_every: u32,
    since_start: Period,
    interval: Period,
}

#[derive(Debug, Deserialize)]
struct Period {
    seconds: f64,
    stages: Vec<Times>,
    exits: serde_json::Map<String, Value>,
    operations: Vec<Times>,
}

#[derive(Debug, Deserialize)]
struct Times {
    #[serde(alias = "stage", alias = "operation")]
    name: String,
    count: u64,
    total_ns: u64,
    mean_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
}

/// The tables, with what `/stages` of the server at `url` answered.
pub(super) fn text(page: &Value, url: &str, of_interval: bool) -> anyhow::Result<String> {
    let page = Page::deserialize(page)
        .with_context(|| format!("{url}/stages is not what this version of tallybook reads"))?;
    let (period, which) = match of_interval {
        true => (&page.interval, "in the last"),
        false => (&page.since_start, "since the start,"),
    };
    ensure!(period.seconds.is_finite(), "{url}/stages says how long nothing was");
    let mut text = format!("{url} {which} {:.1} s; ", period.seconds);
    match page.sample_every {
        0 => text.push_str("sampling is off\n"),
        1 => text.push_str("every operation is timed\n"),
        every => writeln!(text, "1 operation in {every} is timed")?,
    }
    write_times(&mut text, "request", &period.operations)?;
    write_times(&mut text, "stage", &period.stages)?;
    write_exits(&mut text, &period.exits)?;
    if period.stages.iter().all(|stage| stage.count == 0) {
        text.push_str("\nNo stage was timed in this time: ");
        text.push_str(match page.sample_every {
            0 => "PUT /stages/sampling?every=256 switches sampling on.\n",
            _ => "there were too few operations. PUT /stages/sampling?every=1 times each.\n",
        });
    }
    Ok(text)
}

/// Those of which there are any.
fn write_times(text: &mut String, title: &str, all: &[Times]) -> std::fmt::Result {
    let some: Vec<&Times> = all.iter().filter(|times| times.count > 0).collect();
    if some.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\n{title:<18} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "count", "total", "mean", "p50", "p90", "p99", "p99.9", "max"
    )?;
    for times in some {
        write!(text, "{:<18} {:>12}", times.name, times.count)?;
        for ns in [
            times.total_ns,
            times.mean_ns,
            times.p50_ns,
            times.p90_ns,
            times.p99_ns,
            times.p999_ns,
            times.max_ns,
        ] {
            write!(text, " {:>9}", time(ns))?;
        }
        text.push('\n');
    }
    Ok(())
}

/// Exits by what ends there (`head.*`, `file.*`, ...), each with its share of those.
fn write_exits(text: &mut String, exits: &serde_json::Map<String, Value>) -> std::fmt::Result {
    let group = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let counts: Vec<(&str, u64)> =
        exits.iter().map(|(name, count)| (name.as_str(), count.as_u64().unwrap_or(0))).collect();
    if counts.iter().all(|(_, count)| *count == 0) {
        return Ok(());
    }
    writeln!(text, "\n{:<18} {:>12} {:>9}", "exit", "count", "share")?;
    for (name, count) in counts.iter().filter(|(_, count)| *count > 0) {
        let same = counts.iter().filter(|(other, _)| group(other) == group(name));
        let of: u64 = same.map(|(_, count)| count).sum();
        let percent = *count as f64 / of as f64 * 100.0;
        writeln!(text, "{name:<18} {count:>12} {percent:>8.2}%")?;
    }
    Ok(())
}

/// A time in three digits or so: `87ns`, `1.23us`, `45.6ms`, `789s`.
fn time(ns: u64) -> String {
    if ns < 1000 {
        return format!("{ns}ns");
    }
    let (mut value, mut unit) = (ns as f64 / 1e3, "us");
    for next in ["ms", "s"] {
        // Not 1000: 999.5 would be printed as 1000.
        if value >= 999.5 {
            (value, unit) = (value / 1e3, next);
        }
    }
    let decimals = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn times(key: &str, name: &str, count: u64) -> Value {
        json!({
            key: name, "count": count, "total_ns": 12_345_678, "mean_ns": 987, "p50_ns": 1_000,
            "p90_ns": 1_500, "p99_ns": 99_960, "p999_ns": 999_600, "max_ns": 2_000_000_000u64,
        })
    }

    fn page(sample_every: u32, count: u64) -> Value {
        let period = |seconds: f64| {
            json!({
                "seconds": seconds,
                "stages": [times("stage", "put.wait", count), times("stage", "put.sync", 0)],
                "exits": { "head.memory": 3 * count, "head.missed": count, "file.index": 0 },
                "operations": [times("operation", "get", count)],
            })
        };
        json!({
            "sample_every": sample_every, "since_start": period(100.0), "interval": period(7.5),
        })
    }

    #[test]
    fn tables_are_aligned_and_leave_out_what_never_happened() {
        let text = text(&page(256, 5), "http://h:1", false).unwrap();
        let expected = "\
http://h:1 since the start, 100.0 s; 1 operation in 256 is timed

request                   count     total      mean       p50       p90       p99     p99.9       max
get                           5    12.3ms     987ns    1.00us    1.50us     100us    1.00ms     2.00s

stage                     count     total      mean       p50       p90       p99     p99.9       max
put.wait                      5    12.3ms     987ns    1.00us    1.50us     100us    1.00ms     2.00s

exit                      count     share
head.memory                  15    75.00%
head.missed                   5    25.00%
";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_empty_explains_itself() {
        let off = text(&page(0, 0), "http://h:1", true).unwrap();
        assert!(off.starts_with("http://h:1 in the last 7.5 s; sampling is off\n"), "{off}");
        assert!(off.contains("every=256 switches sampling on"), "{off}");
        let few = text(&page(1, 0), "http://h:1", true).unwrap();
        assert!(few.contains("too few operations"), "{few}");
    }

    #[test]
    fn an_answer_of_another_shape_is_an_error() {
        for wrong in [json!(null), json!({}), json!({ "sample_every": -1 }), json!([1])] {
            assert!(text(&wrong, "http://h:1", false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_three_digits() {
        for (ns, expected) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_000, "1.00us"),
            (9_994, "9.99us"),
            (9_996, "10.0us"),
            (99_960, "100us"),
            (999_499, "999us"),
            (999_600, "1.00ms"),
            (59_000_000_000, "59.0s"),
            (7_200_000_000_000, "7200s"),
        ] {
            assert_eq!(time(ns), expected, "{ns}");
        }
    }
}
