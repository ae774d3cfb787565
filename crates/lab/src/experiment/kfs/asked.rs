//! What is asked of the file store beside KFS, and whether these runs reach it.

use super::cells::{bytes_of, large, middle, ns, of_size, of_workload, shown, sizes, times};
use super::{BUCKETS, KFS, OPERATIONS, OURS, OURS_SYNCED};
use crate::chart::{Unit, thousands};
use crate::experiment::picks::told;
use crate::files::memory_bytes_max;
use crate::record::Record;
use crate::report::Table;
use crate::spec::Workload;
use crate::statistics::median;

const WRITE_TIMES: f64 = 5.0;
const READ_TIMES: f64 = 1.3;
const READ_BYTES_PER_S: f64 = 1.3 * (1 << 30) as f64;
const UNLINK_NS: f64 = 5e6;
const SPACE_TIMES: f64 = 1.3;
/// Tables, manifests and names, which a bucket has however little is in it.
const BUCKET_BYTES: f64 = (128 << 10) as f64;
/// What the process has beside the store's budget: its code, threads' stacks, and buffers of one file.
const PROCESS_BYTES: f64 = (64 << 20) as f64;
const HANDLES: f64 = 512.0;
const BUCKETS_BYTES: f64 = (2_u64 << 30) as f64;

/// One figure that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    /// Of what.
    pub(super) what: String,
    /// How much.
    pub(super) asked: String,
    /// What it is.
    pub(super) measured: String,
    /// `None`: these runs can't tell.
    pub(super) reached: Option<bool>,
}

impl Asked {
    fn new(what: &str, asked: &str, measured: Option<(String, bool)>) -> Asked {
        let (measured, reached) = match measured {
            Some((measured, reached)) => (measured, Some(reached)),
            None => ("not measured in these runs".to_owned(), None),
        };
        Asked { what: what.to_owned(), asked: asked.to_owned(), measured, reached }
    }
}

/// Every figure, in the order in which they are asked.
pub(super) fn asked(records: &[Record]) -> Vec<Asked> {
    vec![
        Asked::new(
            "writing, beside KFS, from 64 MiB on",
            "5 times its rate or more at every size",
            times_kfs(records, OURS, "write", WRITE_TIMES),
        ),
        Asked::new(
            "the same, each write synced, which KFS can't",
            "(not asked) 5 times",
            times_kfs(records, OURS_SYNCED, "write", WRITE_TIMES),
        ),
        Asked::new(
            "reading, beside KFS, from 64 MiB on",
            "1.3 times its rate or more",
            times_kfs(records, OURS, "read", READ_TIMES),
        ),
        Asked::new("reading, warm, from 64 MiB on", "1.3 GiB/s or more", read_rate(records)),
        Asked::new("unlinking 512 MiB", "below 5 ms", unlink(records, OURS)),
        Asked::new("the same, synced", "(not asked) below 5 ms", unlink(records, OURS_SYNCED)),
        Asked::new(
            "disk after the last trial, everything unlinked, nobody asking",
            "below 1.3 times what lives within 30 s; apart from that, active and spare segments, and \
             128 KiB of tables and manifest a bucket",
            space(records),
        ),
        Asked::new(
            "resident memory in all trials",
            "bounded by the store's budget and the process's own 64 MiB",
            memory(records),
        ),
        Asked::new(
            "256 nearly empty buckets",
            "not all open at once, at most 512 file handles and 2 GiB of disk",
            buckets(records),
        ),
    ]
}

/// The figures as a table.
pub(super) fn table(asked: &[Asked]) -> Table {
    asked.iter().fold(Table::new(["what", "asked", "measured", "reached"]), |table, one| {
        let (class, reached) = match one.reached {
            Some(true) => ("better", "yes"),
            Some(false) => ("worse", "no"),
            None => ("", "-"),
        };
        table.row_in(class, [&*one.what, &*one.asked, &*one.measured, reached])
    })
}

fn times_kfs(
    records: &[Record],
    target: &str,
    operation: &str,
    least: f64,
) -> Option<(String, bool)> {
    let ratio = |size: &String| {
        let ours = middle(records, target, operation, size)?;
        Some((size.clone(), middle(records, KFS, operation, size)? / ours))
    };
    let ratios: Option<Vec<(String, f64)>> = large(records).iter().map(ratio).collect();
    let ratios = ratios.filter(|ratios| !ratios.is_empty())?;
    let words: Vec<String> =
        ratios.iter().map(|(size, ratio)| format!("{ratio:.2} times at {}", shown(size))).collect();
    Some((words.join(", "), ratios.iter().all(|(_, ratio)| *ratio >= least)))
}

fn read_rate(records: &[Record]) -> Option<(String, bool)> {
    let rate = |size: &String| {
        Some((size.clone(), bytes_of(size) / (middle(records, OURS, "read", size)? / 1e9)))
    };
    let rates: Option<Vec<(String, f64)>> = large(records).iter().map(rate).collect();
    let rates = rates.filter(|rates| !rates.is_empty())?;
    let gib = f64::from(1 << 30);
    let words: Vec<String> = rates
        .iter()
        .map(|(size, rate)| format!("{:.2} GiB/s at {}", rate / gib, shown(size)))
        .collect();
    Some((words.join(", "), rates.iter().all(|(_, rate)| *rate >= READ_BYTES_PER_S)))
}

fn unlink(records: &[Record], target: &str) -> Option<(String, bool)> {
    let of_largest = times(records, target, "unlink", "512 MiB");
    let of_smallest = middle(records, target, "unlink", sizes(records).first()?)?;
    let middle = median(&of_largest)?;
    let longest = of_largest.iter().copied().fold(0.0, f64::max);
    let words = format!(
        "{} in the median, {} at most; the smallest file takes {}",
        ns(middle),
        ns(longest),
        ns(of_smallest)
    );
    Some((words, middle < UNLINK_NS))
}

fn space(records: &[Record]) -> Option<(String, bool)> {
    let last = of_workload(records, OURS, Workload::Rest).pop()?;
    let figure = |name| told(name)(last);
    let (live, buckets) = (figure("live_bytes")?, figure("buckets")?);
    let ahead = figure("segments_ahead_bytes").unwrap_or(0.0);
    let disk = last.outcome.disk_bytes as f64;
    let other = disk - ahead;
    let text = |bytes| Unit::Bytes.format(bytes);
    let words = format!(
        "after {} trials {} live and {} are on disk: {} in the active and spare segments of {buckets} \
         buckets and the catalogue, {} in all else, {} s after the last request",
        last.repetition + 1,
        text(live),
        text(disk),
        text(ahead),
        text(other),
        settled_at(last)
    );
    // Where nothing lives, there are still tables and manifests.
    Some((words, other < SPACE_TIMES * live + BUCKET_BYTES * (buckets + 1.0)))
}

/// The second from which on the disk was as at the end.
fn settled_at(rest: &Record) -> usize {
    let series = disk_series(rest);
    let last = series.last().copied().unwrap_or(0.0);
    series.iter().rposition(|bytes| *bytes > last).map_or(0, |at| at + 1)
}

/// Bytes on disk in each second of a rest.
pub(super) fn disk_series(rest: &Record) -> Vec<f64> {
    let figures = rest.outcome.figures.iter();
    figures.filter(|(name, _)| name.starts_with("disk_bytes.")).map(|(_, bytes)| *bytes).collect()
}

fn memory(records: &[Record]) -> Option<(String, bool)> {
    let peaks = sizes(records).into_iter().flat_map(|size| of_size(records, OURS, &size));
    let peak = peaks.map(|record| record.outcome.peak_resident_bytes).max()? as f64;
    let budget = memory_bytes_max() as f64;
    let text = |bytes| Unit::Bytes.format(bytes);
    let words = format!("{} at most, of a budget of {}", text(peak), text(budget));
    Some((words, peak <= budget + PROCESS_BYTES))
}

fn buckets(records: &[Record]) -> Option<(String, bool)> {
    let runs = of_workload(records, OURS, Workload::EachBucket);
    let most = |name: &'static str| runs.iter().copied().filter_map(told(name)).fold(0.0, f64::max);
    let all = runs.first()?.spec.keys as f64;
    let (handles, open) = (most("handles_max"), most("open_buckets"));
    let disk = runs.iter().map(|run| run.outcome.disk_bytes).max()? as f64;
    let words = format!(
        "of {all} buckets {open} were open at the end, with {} file handles at most and {} on disk",
        thousands(handles as i64),
        Unit::Bytes.format(disk)
    );
    let is_whole = all >= f64::from(BUCKETS);
    is_whole.then_some((words, open < all && handles <= HANDLES && disk <= BUCKETS_BYTES))
}

/// Times of one target on the largest files, of each operation.
pub(super) fn of_largest(records: &[Record], target: &str) -> Option<(String, Vec<String>)> {
    let size = sizes(records).pop()?;
    let middles: Option<Vec<String>> = OPERATIONS
        .iter()
        .map(|operation| Some(ns(middle(records, target, operation, &size)?)))
        .collect();
    Some((shown(&size).to_owned(), middles?))
}
