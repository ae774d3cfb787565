//! The study that came with KFS, held against its own figures and against these data.
//!
//! Its text is `doc/performance-testing.md` of the package, its figures are in `doc/img`, its script is
//! `perf/`. The cells are those of the study: an operation on files of one size.

use super::cells::{deviation, of_workload, sizes, times};
use super::{KFS, LEVELDB, OPERATIONS};
use crate::chart::Unit;
use crate::record::Record;
use crate::report::{Comparer, Comparison, Measure, Table, Verdict};
use crate::spec::Workload;
use crate::statistics::{holm, mann_whitney, mean, welch};

/// KFS and one LevelDB, cell by cell; `None` where one of them isn't there.
pub(super) fn comparison(records: &[Record]) -> Option<Comparison> {
    let comparer = Comparer::Targets { baseline: LEVELDB, subject: KFS };
    let comparison = comparer.compare_in(records, &|metric| metric.measure == Measure::P50);
    (!comparison.rows.is_empty()).then_some(comparison)
}

/// What the study says, what its own figures show, and what these runs show.
pub(super) fn table(records: &[Record], comparison: &Comparison) -> Table {
    Table::new(["the study's text", "the study's own figures and script", "these runs"])
        .row([
            "\u{201c}in every category the mean execution time is lower for KFS\u{201d}".to_owned(),
            "the text is wrong: in the figure for the hard disk, unlinking 8, 16 and 32 MiB is faster \
             in the one LevelDB, several times so at 8 MiB"
                .to_owned(),
            format!("KFS's mean is lower in {}", cells_lower(records, mean)),
        ])
        .row([
            "on the solid-state disk LevelDB varies more in writes and unlinks, \u{201c}but more \
             consistent for reads\u{201d}"
                .to_owned(),
            "the text is wrong on reads: in the figure LevelDB's deviation is the lower one at 64 and \
             128 MiB alone; it is on the hard disk that LevelDB reads more evenly, from 16 to 256 MiB"
                .to_owned(),
            format!("KFS's standard deviation is lower in {}", cells_lower(records, deviation)),
        ])
        .row([
            "beyond chance at 95 % but for reads of 8 to 256 MiB and unlinks of 64 MiB".to_owned(),
            "that list is the table's column for the hard disk; on the solid-state disk unlinks of 8, \
             writes of 16 and reads of 64 MiB aren't (p 0.25, 0.14, 0.06), and reads of 8 to 32, 128 \
             and 256 MiB are. Nothing is corrected for 21 tests a disk; by Holm's correction writes of \
             8 and 16 MiB (hard disk) and reads of 128 MiB (solid-state) drop out"
                .to_owned(),
            significance(comparison),
        ])
        .row([
            "\u{201c}statistically significant gains in speed and consistency\u{201d}".to_owned(),
            "three of the table's significant cells, unlinks of 8 to 32 MiB on the hard disk, are \
             losses of KFS; no test of consistency was made"
                .to_owned(),
            verdicts(comparison),
        ])
        .row([
            "each trial adds about 1 GiB, since unlinking only leaves tombstones".to_owned(),
            "the script of version 3.1.5 compacts after each trial, and takes its time apart".to_owned(),
            left_behind(records),
        ])
        .row([
            "chunks are keyed by a hash of the file's content".to_owned(),
            "its script draws a random key for each file".to_owned(),
            "a key for each trial and size, the same in all stores".to_owned(),
        ])
        .row([
            "measures \u{201c}the execution time\u{201d}".to_owned(),
            "its script counts ticks of 10 ms of a timer that the work itself holds up, and ends a \
             write before its last chunks are put"
                .to_owned(),
            "monotonic clocks of nanosecond resolution, to the last chunk".to_owned(),
        ])
}

fn cells(records: &[Record]) -> Vec<(&'static str, Vec<f64>, Vec<f64>)> {
    let sizes = sizes(records);
    let of = |operation: &'static str| {
        sizes.iter().map(move |size| {
            let of = |target| times(records, target, operation, size);
            (operation, of(KFS), of(LEVELDB))
        })
    };
    OPERATIONS.into_iter().flat_map(of).collect()
}

/// In how many cells of each operation a figure is lower for KFS.
fn cells_lower(records: &[Record], figure: impl Fn(&[f64]) -> Option<f64>) -> String {
    let cells = cells(records);
    let words = OPERATIONS.map(|operation| {
        let of: Vec<_> = cells.iter().filter(|(one, ..)| *one == operation).collect();
        let lower = of.iter().filter(|(_, kfs, leveldb)| figure(kfs) < figure(leveldb)).count();
        format!("{lower} of {} {operation}s", of.len())
    });
    words.join(", ")
}

/// Of each cell Welch's p and Mann and Whitney's, each as it came out and after Holm's correction over all cells.
pub(super) fn tests(comparison: &Comparison) -> Vec<[Option<f64>; 4]> {
    let of = |p: fn(&[f64], &[f64]) -> Option<f64>| -> Vec<[Option<f64>; 2]> {
        let rows = comparison.rows.iter();
        let all: Vec<Option<f64>> = rows.map(|row| p(&row.subject, &row.baseline)).collect();
        let family: Vec<f64> = all.iter().copied().flatten().collect();
        let mut corrected = holm(&family).into_iter();
        all.into_iter().map(|p| [p, p.and_then(|_| corrected.next())]).collect()
    };
    let by_welch = of(|a, b| welch(a, b).map(|outcome| outcome.p));
    let by_mann_whitney = of(|a, b| mann_whitney(a, b).map(|outcome| outcome.p));
    let both = by_welch.into_iter().zip(by_mann_whitney);
    both.map(|([a, b], [c, d])| [a, b, c, d]).collect()
}

fn significance(comparison: &Comparison) -> String {
    let cells = tests(comparison);
    let count = |at: usize| cells.iter().filter(|p| p[at].is_some_and(|p| p < 0.05)).count();
    format!(
        "Welch's p is below 0.05 in {} of {} cells, and in {} once corrected; Mann and Whitney's in {} \
         and {}",
        count(0),
        cells.len(),
        count(1),
        count(2),
        count(3),
    )
}

fn verdicts(comparison: &Comparison) -> String {
    let count = |verdict| comparison.rows.iter().filter(|row| row.verdict == verdict).count();
    format!(
        "KFS is faster beyond chance in {} of {} cells, slower in {}, and {} are undecided",
        count(Verdict::Better),
        comparison.rows.len(),
        count(Verdict::Worse),
        count(Verdict::Undecided)
    )
}

fn left_behind(records: &[Record]) -> String {
    let last = |target| of_workload(records, target, Workload::Rest).pop();
    let words = [KFS, LEVELDB].into_iter().filter_map(|target| {
        let record = last(target)?;
        let disk = Unit::Bytes.format(record.outcome.disk_bytes as f64);
        Some(format!("{target} keeps {disk} after {} trials", record.repetition + 1))
    });
    words.collect::<Vec<_>>().join(", ")
}
