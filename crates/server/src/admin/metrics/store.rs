//! What the store did and holds: writes, the tree, background work, stalls, journal, memory, disk.

use std::fmt::Error;

use tallybook::options::LEVEL_COUNT;
use tallybook::store::{LevelStats, Stats};

use super::{Families, Scrape};

/// Levels as labels.
const LEVELS: [&str; LEVEL_COUNT] = ["0", "1", "2", "3", "4", "5", "6"];

pub(super) fn encode(families: &mut Families<'_>, scrape: &Scrape) -> Result<(), Error> {
    let stats = &scrape.books.stats;
    encode_operations(families, stats)?;
    encode_tree(families, stats)?;
    encode_background(families, stats)?;
    encode_pressure(families, scrape)?;
    encode_journal(families, stats)?;
    encode_uses(families, scrape)
}

fn encode_operations(families: &mut Families<'_>, stats: &Stats) -> Result<(), Error> {
    families.counters(
        "tallybook_store_operations_total",
        "Keys put and deleted, values and heads asked for, scans opened",
        "operation",
        [
            ("put", stats.puts),
            ("delete", stats.deletes),
            ("get", stats.gets),
            ("head", stats.heads),
            ("scan", stats.scans),
        ],
    )?;
    families.counter(
        "tallybook_user_written_bytes_total",
        "Bytes of keys, values and attributes written by callers",
        stats.user_bytes_written,
    )?;
    families.gauge("tallybook_last_seqno", "Number of the last visible write", stats.last_seqno)?;
    families.gauge("tallybook_snapshots", "Pinned snapshots", stats.snapshots)?;
    families.gauge(
        "tallybook_open_duration_seconds",
        "How long the opening of the store took",
        stats.open.as_secs_f64(),
    )
}

fn encode_tree(families: &mut Families<'_>, stats: &Stats) -> Result<(), Error> {
    let by_level =
        |figure: fn(&LevelStats) -> u64| LEVELS.into_iter().zip(stats.levels.iter().map(figure));
    families.gauges(
        "tallybook_level_runs",
        "Sorted runs in a level",
        "level",
        by_level(|level| level.runs),
    )?;
    families.gauges(
        "tallybook_level_files",
        "Table files in a level",
        "level",
        by_level(|level| level.files),
    )?;
    families.gauges(
        "tallybook_level_bytes",
        "Bytes of the table files in a level",
        "level",
        by_level(|level| level.bytes),
    )?;
    families.gauges(
        "tallybook_level_entries",
        "Entries in a level, deletions included",
        "level",
        by_level(|level| level.entries),
    )
}

fn encode_background(families: &mut Families<'_>, stats: &Stats) -> Result<(), Error> {
    for (name, help, value) in [
        ("tallybook_flushes_total", "Memtables flushed", stats.flushes),
        (
            "tallybook_flush_written_bytes_total",
            "Bytes of tables written by flushes",
            stats.flush_bytes_written,
        ),
        ("tallybook_compactions_total", "Compaction jobs done", stats.compactions),
        (
            "tallybook_compaction_read_bytes_total",
            "Bytes of tables read by compactions",
            stats.compaction_bytes_read,
        ),
        (
            "tallybook_compaction_written_bytes_total",
            "Bytes of tables written by compactions",
            stats.compaction_bytes_written,
        ),
        ("tallybook_collections_total", "Journal segments collected", stats.collections),
        (
            "tallybook_collection_written_bytes_total",
            "Bytes of segments written by collections",
            stats.collection_bytes_written,
        ),
    ] {
        families.counter(name, help, value)?;
    }
    families.gauge(
        "tallybook_compaction_debt_bytes",
        "Bytes of the levels that hold as many runs as call for a merge",
        stats.compaction_debt_bytes,
    )?;
    families.gauge(
        "tallybook_background_failing",
        "1 while the last background work failed and is being retried",
        u64::from(stats.background_error.is_some()),
    )
}

fn encode_pressure(families: &mut Families<'_>, scrape: &Scrape) -> Result<(), Error> {
    let stats = &scrape.books.stats;
    families.counter(
        "tallybook_stalled_writes_total",
        "Writes that were slowed",
        stats.stalled_writes,
    )?;
    families.counter(
        "tallybook_stalled_seconds_total",
        "How long writes were slowed, in all",
        stats.stalled.as_secs_f64(),
    )?;
    families.gauge(
        "tallybook_write_pressure_ratio",
        "How far background work lags: from 0.5 on writes are slowed, at 1 they wait",
        scrape.write_pressure,
    )?;
    families.gauge(
        "tallybook_read_only",
        "1 when the store takes no writes until it is reopened",
        u64::from(scrape.is_read_only),
    )
}

fn encode_journal(families: &mut Families<'_>, stats: &Stats) -> Result<(), Error> {
    families.counter(
        "tallybook_journal_written_bytes_total",
        "Bytes appended to the journal",
        stats.journal_bytes_written,
    )?;
    families.counter("tallybook_journal_syncs_total", "Syncs of the journal", stats.syncs)?;
    families.counter(
        "tallybook_journal_sync_overruns_total",
        "Interval syncs that started later than promised",
        stats.sync_overruns,
    )?;
    families.gauge(
        "tallybook_journal_sync_overrun_max_seconds",
        "The longest time by which one was late",
        stats.sync_overrun_max.as_secs_f64(),
    )?;
    families.gauge(
        "tallybook_journal_unsynced_bytes",
        "Bytes that no sync has made durable yet",
        stats.unsynced_bytes,
    )?;
    families.gauges(
        "tallybook_journal_segments",
        "Segments of the journal: closed, and prepared but not yet in use",
        "state",
        [("closed", stats.segments), ("spare", stats.spare_segments)],
    )?;
    families.gauge(
        "tallybook_journal_live_bytes",
        "Bytes of values in closed segments that the tree refers to",
        stats.segment_live_bytes,
    )?;
    families.gauge(
        "tallybook_journal_torn_bytes",
        "Bytes that the last opening cut off the journal's torn end",
        stats.torn_bytes,
    )
}

/// Memory and disk, each in parts that add up.
fn encode_uses(families: &mut Families<'_>, scrape: &Scrape) -> Result<(), Error> {
    let stats = &scrape.books.stats;
    let active_memtable_bytes = stats.memtable_bytes.saturating_sub(stats.immutable_memtable_bytes);
    families.gauges(
        "tallybook_memory_bytes",
        "Memory by use; process_resident_memory_bytes is all of it, with mapped files",
        "use",
        [
            ("memtable_active", active_memtable_bytes),
            ("memtables_immutable", stats.memtable_bytes - active_memtable_bytes),
            ("memtables_spare", stats.spare_memtable_bytes),
            ("block_cache", stats.block_cache_bytes),
            ("table_indexes", stats.table_index_bytes),
            ("collected_indexes", stats.collected_index_bytes),
            ("request_bodies", scrape.body_memory_bytes),
        ],
    )?;
    families.gauge(
        "tallybook_immutable_memtables",
        "Memtables that wait for their flush",
        stats.immutable_memtables,
    )?;
    families.counter(
        "tallybook_block_cache_hits_total",
        "Blocks found in the block cache",
        stats.block_cache_hits,
    )?;
    families.counter(
        "tallybook_block_cache_misses_total",
        "Blocks not found in the block cache",
        stats.block_cache_misses,
    )?;
    let kept = stats.segment_bytes.saturating_sub(stats.replay_segment_bytes);
    let live = stats.segment_live_bytes.min(kept);
    families.gauges(
        "tallybook_disk_bytes",
        "Disk by use: tables, and the journal's segments by what their bytes are needed for",
        "use",
        [
            ("tables", stats.levels.iter().map(|level| level.bytes).sum()),
            ("journal_live", live),
            ("journal_dead", kept - live),
            ("journal_unflushed", stats.replay_segment_bytes),
            ("journal_active", stats.active_segment_bytes),
            ("journal_spare", stats.spare_segment_bytes),
        ],
    )?;
    match stats.disk_available_bytes {
        Some(bytes) => families.gauge(
            "tallybook_disk_available_bytes",
            "Bytes that the file system has left for the store",
            bytes,
        ),
        None => Ok(()),
    }
}
