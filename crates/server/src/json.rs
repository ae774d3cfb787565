//! What both the server and the command line say in JSON, in one form.

use serde_json::{Value, json};
use tallybook::store::LevelStats;
use tallybook_files::VerifyReport;

/// The levels of a tree, from L0 on.
pub fn levels(levels: &[LevelStats]) -> Value {
    let level = |level: &LevelStats| {
        json!({
            "runs": level.runs,
            "files": level.files,
            "bytes": level.bytes,
            "entries": level.entries,
        })
    };
    levels.iter().map(level).collect()
}

/// What a verification of a file store found.
pub fn verified(report: &VerifyReport) -> Value {
    let damage = report.damage.iter().map(|damage| {
        json!({
            "name": damage.name,
            "size": damage.size,
            "offset": damage.offset,
            "what": damage.what,
            "is_unread": damage.is_unread,
        })
    });
    json!({
        "files": report.files,
        "bytes": report.bytes,
        "damage": damage.collect::<Vec<_>>(),
        "lost_buckets": report.lost_buckets,
        "unread_buckets": report.unread_buckets,
        "unknown_buckets": report.unknown_buckets,
        "entries_restored": report.entries_restored,
        "unwritten": report.unwritten,
        "orphans": report.orphans,
        "is_complete": report.is_complete,
    })
}
