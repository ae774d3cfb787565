//! Which tables hold only what no reader can see, and which hold some of it.

use bytes::Bytes;

use super::PickOptions;
use super::choice::Drop;
use crate::key::SeqNo;
use crate::range_tombstone::RangeTombstone;
use crate::version::{LiveTable, Run, TableMeta, Version};

/// All tables that can go whole: a deleted range covers every key of theirs and is newer than every
/// entry, with no snapshot in between; or every entry has expired, with nothing older to uncover.
pub(super) fn dead_tables(version: &Version, options: &PickOptions<'_>) -> Option<Drop> {
    let deleted = Deleted::new(version, options);
    let mut tables = Vec::new();
    for (level, run) in version.runs() {
        for table in run.tables.iter() {
            let busy = options.busy.iter().any(|job| job.slice.overlaps(table));
            if !busy
                && (deleted.covers(table, options.snapshots)
                    || is_expired(table, options.now_ms) && !has_older(version, level, run, table))
            {
                tables.push((level, table.clone()));
            }
        }
    }
    (!tables.is_empty()).then_some(Drop { tables })
}

/// Whether every entry of the table has expired.
pub(super) fn is_expired(table: &TableMeta, now_ms: u64) -> bool {
    let properties = &table.properties;
    properties.entries > 0
        && properties.expiring == properties.entries
        && properties.range_tombstones == 0
        && has_passed(properties.expires_at_ms_max, now_ms)
}

/// Whether a merge at the bottom would drop some of the table: what was clipped off; or what hides, is
/// hidden or has expired, any of which a snapshot older than the table's newest entry may need.
pub(super) fn has_garbage(table: &LiveTable, options: &PickOptions<'_>) -> bool {
    let properties = &table.properties;
    let dead = || {
        properties.tombstones > 0
            || properties.range_tombstones > 0
            || properties.entries > properties.keys
            || table.is_largely_expired(options.now_ms, options.looks)
    };
    let needed = options.snapshots.iter().any(|&snapshot| snapshot < properties.seqno_max);
    table.is_clipped() || !needed && dead()
}

/// Whether a run older than `run`, of `level`, shows a key within the table's bounds.
pub(super) fn has_older(version: &Version, level: usize, run: &Run, table: &TableMeta) -> bool {
    older_tables(version, level, run, table).next().is_some()
}

/// The tables of runs older than `run`, of `level`, that show a key within the table's bounds.
pub(super) fn older_tables<'v>(
    version: &'v Version,
    level: usize,
    run: &Run,
    table: &TableMeta,
) -> impl Iterator<Item = &'v LiveTable> {
    let (start, end, id) = (table.smallest.clone(), table.end(), run.id);
    let older = version.runs().filter(move |(at, run)| *at > level || *at == level && run.id < id);
    older.flat_map(move |(_, run)| run.overlapping(Some(&start), Some(&end))).map(|table| &**table)
}

fn has_passed(expires_at_ms: u64, now_ms: u64) -> bool {
    expires_at_ms != 0 && expires_at_ms <= now_ms
}

/// What visible parts of tables delete.
struct Deleted {
    /// Ascending by start.
    ranges: Vec<RangeTombstone>,
    /// For each range, the largest end of it and those before: ascending, so that it can be searched.
    reach: Vec<Bytes>,
}

impl Deleted {
    fn new(version: &Version, options: &PickOptions<'_>) -> Deleted {
        let visible = version.directory().deleting().iter().flat_map(|table| {
            let visible_end = table.end();
            (options.range_tombstones)(table).into_iter().filter_map(move |deleted| {
                let start = deleted.start.max(table.smallest.clone());
                let end = deleted.end.min(visible_end.clone());
                (start < end).then_some(RangeTombstone { start, end, seqno: deleted.seqno })
            })
        });
        let mut ranges: Vec<_> = visible.collect();
        ranges.sort();
        let mut furthest = Bytes::new();
        let reach = ranges.iter().map(|range| {
            furthest = furthest.clone().max(range.end.clone());
            furthest.clone()
        });
        Deleted { reach: reach.collect(), ranges }
    }

    /// Whether ranges that every reader of the table sees deleted leave no key of it.
    fn covers(&self, table: &TableMeta, snapshots: &[SeqNo]) -> bool {
        let properties = &table.properties;
        let hides = |deleted: &RangeTombstone| {
            let between =
                |&snapshot: &SeqNo| snapshot >= properties.seqno_min && snapshot < deleted.seqno;
            deleted.seqno > properties.seqno_max && !snapshots.iter().any(between)
        };
        let mut kept_from: &Bytes = &table.smallest;
        let first = self.reach.partition_point(|end| end <= kept_from);
        for deleted in &self.ranges[first..] {
            if deleted.start > *kept_from {
                break;
            }
            if hides(deleted) {
                kept_from = kept_from.max(&deleted.end);
            }
        }
        table.ends_by(kept_from)
    }
}
