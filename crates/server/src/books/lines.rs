//! The log lines: what came between two snapshots, complete enough to draw charts from.
//!
//! A line for each operation that had requests, one for reads, one for writes, one for the server,
//! one for the store, one for each level that holds anything. Counts are of the interval, sizes are
//! of its end. The target is `tallybook::books`; fields and their names stay as they are once released.

use std::time::Duration;

use tallybook::stages::{Exit, Stage, Stages, Summary};
use tallybook::store::Stats;

use crate::api::Api;
use crate::engine::Engine;
use crate::meter::Operation;
use crate::process::Process;
use crate::snapshot::Snapshot;

/// Logs what came between `last` and `now`.
pub(super) fn log<E: Engine>(api: &Api<E>, now: &Snapshot, last: &Snapshot) {
    let length = now.since(last.at);
    let interval_s = rounded(length.as_secs_f64());
    let stages = now.stages.since(&last.stages);
    log_operations(length, now, last);
    log_reads(interval_s, &stages);
    log_writes(interval_s, &stages, &now.stats, &last.stats);
    log_server(interval_s, api, now, last);
    log_store(interval_s, api.engine.write_pressure(), &now.stats, &last.stats);
    log_levels(&now.stats);
}

fn log_operations(length: Duration, now: &Snapshot, last: &Snapshot) {
    let traffic = now.traffic.since(&last.traffic);
    for operation in Operation::ALL {
        let of = traffic.of(operation);
        if of.requests() == 0 {
            continue;
        }
        let latency = of.latency.summary();
        tracing::info!(
            target: "tallybook::books",
            interval_s = rounded(length.as_secs_f64()),
            operation = operation.name(),
            requests = of.requests(),
            failures = of.failures(),
            // Two readings of a clock may be the same.
            requests_per_s = rounded(of.requests() as f64 / length.as_secs_f64().max(1e-9)),
            mean_us = us(latency.mean),
            p50_us = us(latency.p50),
            p90_us = us(latency.p90),
            p99_us = us(latency.p99),
            p999_us = us(latency.p999),
            max_us = us(latency.max),
            "requests"
        );
    }
}

/// Where GETs and HEADs spent their time, and where they ended.
fn log_reads(interval_s: f64, stages: &Stages) {
    if Exit::ALL.iter().all(|&exit| stages.exits(exit) == 0) {
        return;
    }
    let of = |stage| stages.times(stage).summary();
    let (head, body) = (of(Stage::GetHead), of(Stage::GetBody));
    let exits = |exit| stages.exits(exit);
    tracing::info!(
        target: "tallybook::books",
        interval_s,
        sample_every = stages.sample_every,
        gets_timed = of(Stage::GetTotal).count,
        get_head_mean_us = us(head.mean),
        get_head_p50_us = us(head.p50),
        get_head_p99_us = us(head.p99),
        get_body_mean_us = us(body.mean),
        get_body_p50_us = us(body.p50),
        get_body_p99_us = us(body.p99),
        head_memory_mean_us = us(of(Stage::HeadMemory).mean),
        head_l0_mean_us = us(of(Stage::HeadL0).mean),
        head_l1_mean_us = us(of(Stage::HeadL1).mean),
        head_l2_mean_us = us(of(Stage::HeadL2).mean),
        head_lower_mean_us = us(of(Stage::HeadLower).mean),
        head_missed_mean_us = us(of(Stage::HeadMissed).mean),
        head_memory = exits(Exit::Memory),
        head_l0 = exits(Exit::L0),
        head_l1 = exits(Exit::L1),
        head_l2 = exits(Exit::L2),
        head_lower = exits(Exit::Lower),
        head_missed = exits(Exit::Missed),
        file_index = exits(Exit::FileIndex),
        file_filter = exits(Exit::FileFilter),
        file_recent = exits(Exit::FileRecent),
        file_cache = exits(Exit::FileCache),
        file_block = exits(Exit::FileBlock),
        file_in_vain = exits(Exit::FileInVain),
        block_cached = exits(Exit::BlockCached),
        block_fetched = exits(Exit::BlockFetched),
        value_inline = exits(Exit::ValueInline),
        value_journal = exits(Exit::ValueJournal),
        "reads"
    );
}

/// Where writes spent their time, waits and syncs included.
fn log_writes(interval_s: f64, stages: &Stages, now: &Stats, last: &Stats) {
    let (puts, deletes) =
        (now.puts.saturating_sub(last.puts), now.deletes.saturating_sub(last.deletes));
    let syncs = now.syncs.saturating_sub(last.syncs);
    if puts + deletes + syncs == 0 {
        return;
    }
    let of = |stage| stages.times(stage).summary();
    let (wait, journal, memtable) =
        (of(Stage::PutWait), of(Stage::PutJournal), of(Stage::PutMemtable));
    let (total, sync): (Summary, Summary) = (of(Stage::PutTotal), of(Stage::SyncJournal));
    tracing::info!(
        target: "tallybook::books",
        interval_s,
        sample_every = stages.sample_every,
        puts,
        deletes,
        user_bytes = now.user_bytes_written.saturating_sub(last.user_bytes_written),
        journal_bytes = now.journal_bytes_written.saturating_sub(last.journal_bytes_written),
        puts_timed = total.count,
        put_mean_us = us(total.mean),
        put_p50_us = us(total.p50),
        put_p99_us = us(total.p99),
        put_prepare_mean_us = us(of(Stage::PutPrepare).mean),
        put_stall_mean_us = us(of(Stage::PutStall).mean),
        put_wait_mean_us = us(wait.mean),
        put_wait_p50_us = us(wait.p50),
        put_wait_p99_us = us(wait.p99),
        put_journal_mean_us = us(journal.mean),
        put_journal_p50_us = us(journal.p50),
        put_journal_p99_us = us(journal.p99),
        put_memtable_mean_us = us(memtable.mean),
        put_memtable_p50_us = us(memtable.p50),
        put_memtable_p99_us = us(memtable.p99),
        put_sync_mean_us = us(of(Stage::PutSync).mean),
        put_sync_p99_us = us(of(Stage::PutSync).p99),
        lock_commit_p99_us = us(of(Stage::LockCommit).p99),
        syncs,
        sync_overruns = now.sync_overruns.saturating_sub(last.sync_overruns),
        sync_mean_us = us(sync.mean),
        sync_p99_us = us(sync.p99),
        "writes"
    );
}

fn log_server<E: Engine>(interval_s: f64, api: &Api<E>, now: &Snapshot, last: &Snapshot) {
    let process = Process::read();
    tracing::info!(
        target: "tallybook::books",
        interval_s,
        connections = api.connections.open(),
        requests_in_flight = api.quotas.in_flight.used(),
        body_memory_bytes = api.quotas.body_memory.used(),
        bytes_received = now.traffic.bytes_received.saturating_sub(last.traffic.bytes_received),
        bytes_sent = now.traffic.bytes_sent.saturating_sub(last.traffic.bytes_sent),
        resident_bytes = process.map(|process| process.resident_bytes),
        cpu_s_total = process.map(|process| process.cpu_seconds),
        open_fds = process.map(|process| process.open_fds),
        "server"
    );
}

fn log_store(interval_s: f64, write_pressure: f64, now: &Stats, last: &Stats) {
    tracing::info!(
        target: "tallybook::books",
        interval_s,
        write_pressure = rounded(write_pressure),
        stalled_writes = now.stalled_writes.saturating_sub(last.stalled_writes),
        stalled_us = us(now.stalled.saturating_sub(last.stalled)),
        flushes = now.flushes.saturating_sub(last.flushes),
        flush_bytes = now.flush_bytes_written.saturating_sub(last.flush_bytes_written),
        compactions = now.compactions.saturating_sub(last.compactions),
        compaction_bytes_read = now.compaction_bytes_read.saturating_sub(last.compaction_bytes_read),
        compaction_bytes_written = now.compaction_bytes_written.saturating_sub(last.compaction_bytes_written),
        compaction_debt_bytes = now.compaction_debt_bytes,
        collections = now.collections.saturating_sub(last.collections),
        collection_bytes = now.collection_bytes_written.saturating_sub(last.collection_bytes_written),
        block_cache_hits = now.block_cache_hits.saturating_sub(last.block_cache_hits),
        block_cache_misses = now.block_cache_misses.saturating_sub(last.block_cache_misses),
        memtable_bytes = now.memtable_bytes,
        immutable_memtables = now.immutable_memtables,
        block_cache_bytes = now.block_cache_bytes,
        table_index_bytes = now.table_index_bytes,
        collected_index_bytes = now.collected_index_bytes,
        table_bytes = now.levels.iter().map(|level| level.bytes).sum::<u64>(),
        segments = now.segments,
        segment_bytes = now.segment_bytes,
        segment_live_bytes = now.segment_live_bytes,
        replay_segment_bytes = now.replay_segment_bytes,
        active_segment_bytes = now.active_segment_bytes,
        spare_segment_bytes = now.spare_segment_bytes,
        unsynced_bytes = now.unsynced_bytes,
        disk_available_bytes = now.disk_available_bytes,
        background_error = now.background_error.is_some(),
        "store"
    );
}

fn log_levels(stats: &Stats) {
    for (number, level) in stats.levels.iter().enumerate().filter(|(_, level)| level.files > 0) {
        tracing::info!(
            target: "tallybook::books",
            level = number,
            runs = level.runs,
            files = level.files,
            bytes = level.bytes,
            entries = level.entries,
            "level"
        );
    }
}

/// Microseconds to the nanosecond: the shortest stages take a few dozen of those.
fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

/// With three decimals at most.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_are_exact() {
        assert_eq!(us(Duration::from_nanos(1_234)).to_string(), "1.234");
        assert_eq!(us(Duration::from_nanos(30)).to_string(), "0.03");
        assert_eq!(us(Duration::from_secs(2)).to_string(), "2000000");
        assert_eq!(rounded(30.000_192).to_string(), "30");
        assert_eq!(rounded(7_439.052_1).to_string(), "7439.052");
    }
}
