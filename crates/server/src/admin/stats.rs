//! `/stats`: the store's figures and the server's, as JSON.

use hyper::HeaderMap;
use serde_json::{Value, json};
use tallybook::store::Stats;

use crate::api::Api;
use crate::engine::Engine;
use crate::json::levels;
use crate::reply::{Reply, json_reply};

/// `/stats`: the store's figures and the server's.
pub(crate) fn stats<E: Engine>(api: &Api<E>, headers: HeaderMap) -> Reply {
    let mut figures = store_figures(&api.engine.stats());
    figures["write_pressure"] = json!(api.engine.write_pressure());
    figures["connections"] = json!(api.connections.open());
    figures["requests_in_flight"] = json!(api.quotas.in_flight.used());
    figures["body_memory_bytes"] = json!(api.quotas.body_memory.used());
    json_reply(headers, &figures)
}

fn store_figures(stats: &Stats) -> Value {
    let mut figures = json!({
        "last_seqno": stats.last_seqno,
        "puts": stats.puts,
        "deletes": stats.deletes,
        "gets": stats.gets,
        "heads": stats.heads,
        "scans": stats.scans,
        "user_bytes_written": stats.user_bytes_written,
        "journal_bytes_written": stats.journal_bytes_written,
        "flush_bytes_written": stats.flush_bytes_written,
        "compaction_bytes_read": stats.compaction_bytes_read,
        "compaction_bytes_written": stats.compaction_bytes_written,
        "collection_bytes_written": stats.collection_bytes_written,
        "flushes": stats.flushes,
        "compactions": stats.compactions,
        "collections": stats.collections,
        "syncs": stats.syncs,
        "sync_overruns": stats.sync_overruns,
        "sync_overrun_max_us": micros(stats.sync_overrun_max),
        "stalled_writes": stats.stalled_writes,
        "stalled_us": micros(stats.stalled),
        "memtable_bytes": stats.memtable_bytes,
        "immutable_memtables": stats.immutable_memtables,
    });
    figures["levels"] = levels(&stats.levels);
    for (name, value) in [
        ("spare_memtable_bytes", stats.spare_memtable_bytes),
        ("table_index_bytes", stats.table_index_bytes),
        ("collected_index_bytes", stats.collected_index_bytes),
        ("segments", stats.segments),
        ("segment_bytes", stats.segment_bytes),
        ("segment_live_bytes", stats.segment_live_bytes),
        ("spare_segments", stats.spare_segments),
        ("spare_segment_bytes", stats.spare_segment_bytes),
        ("active_segment_bytes", stats.active_segment_bytes),
        ("snapshots", stats.snapshots),
        ("torn_bytes", stats.torn_bytes),
        ("torn_records", stats.torn_records),
        ("block_cache_bytes", stats.block_cache_bytes),
        ("block_cache_hits", stats.block_cache_hits),
        ("block_cache_misses", stats.block_cache_misses),
        ("open_us", micros(stats.open)),
        ("replayed_bytes", stats.replayed_bytes),
    ] {
        figures[name] = json!(value);
    }
    figures
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
