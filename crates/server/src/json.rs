//! What both the server and the command line say in JSON, in one form.

use serde_json::{Value, json};
use tallybook::store::LevelStats;

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
