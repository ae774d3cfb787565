//! `stats`: the store's figures, as a table or as JSON.

use std::io::Write;

use serde_json::{Map, Value, json};
use tallybook::options::LEVEL_COUNT;
use tallybook::store::{LevelStats, Stats};
use tallybook_server::json::levels;

use crate::arguments::StatsArguments;
use crate::exit::Exit;
use crate::output::Output;
use crate::verbs::embedded::{Purpose, open};

/// Prints the store's figures.
pub(crate) fn stats(arguments: &StatsArguments) -> anyhow::Result<Exit> {
    let store = open(&arguments.store.data, Purpose::Existing)?;
    let stats = store.stats();
    let mut out = Output::new();
    if arguments.json {
        out.json(&as_json(&stats))?;
    } else {
        write_text(&mut out, &stats)?;
    }
    out.flush()?;
    Ok(Exit::Success)
}

/// What is so, whoever opened the store. The counters of `Stats` start at zero with each open, so a
/// command that has just opened it has nothing to say by them.
fn figures(stats: &Stats) -> [(&'static str, u64); 14] {
    let sum = |part: fn(&LevelStats) -> u64| stats.levels.iter().map(part).sum::<u64>();
    [
        ("last_seqno", stats.last_seqno),
        ("tables", sum(|level| level.files)),
        ("table_bytes", sum(|level| level.bytes)),
        ("table_entries", sum(|level| level.entries)),
        ("segments", stats.segments),
        ("segment_bytes", stats.segment_bytes),
        ("segment_live_bytes", stats.segment_live_bytes),
        ("active_segment_bytes", stats.active_segment_bytes),
        ("spare_segments", stats.spare_segments),
        ("spare_segment_bytes", stats.spare_segment_bytes),
        ("memtable_bytes", stats.memtable_bytes),
        ("replayed_bytes", stats.replayed_bytes),
        ("torn_bytes", stats.torn_bytes),
        ("torn_records", stats.torn_records),
    ]
}

fn occupied_levels(stats: &Stats) -> impl Iterator<Item = (usize, &LevelStats)> {
    const { assert!(LEVEL_COUNT <= 10, "the table below has room for one digit") };
    stats.levels.iter().enumerate().filter(|(_, level)| level.files > 0)
}

fn as_json(stats: &Stats) -> Value {
    let mut object: Map<String, Value> =
        figures(stats).into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    object.insert("open_us".into(), json!(stats.open.as_micros() as u64));
    object.insert("levels".into(), levels(&stats.levels));
    object.into()
}

fn write_text(out: &mut Output, stats: &Stats) -> std::io::Result<()> {
    for (name, value) in figures(stats) {
        writeln!(out, "{:<22} {value:>16}", name.replace('_', " "))?;
    }
    writeln!(out, "{:<22} {:>16.6}", "open seconds", stats.open.as_secs_f64())?;
    let mut levels = occupied_levels(stats).peekable();
    if levels.peek().is_some() {
        writeln!(out, "\nlevel {:>8} {:>8} {:>16} {:>14}", "runs", "files", "bytes", "entries")?;
    }
    for (number, level) in levels {
        let LevelStats { runs, files, bytes, entries } = level;
        writeln!(out, "L{number}    {runs:>8} {files:>8} {bytes:>16} {entries:>14}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_names_every_figure_and_every_level() {
        let mut stats = Stats { last_seqno: 7, ..Stats::default() };
        stats.levels[2] = LevelStats { runs: 1, files: 3, bytes: 100, entries: 9 };
        let value = as_json(&stats);
        assert_eq!(value["last_seqno"], 7);
        assert_eq!(value["tables"], 3);
        assert_eq!(value["levels"].as_array().unwrap().len(), LEVEL_COUNT);
        assert_eq!(value["levels"][2]["entries"], 9);
        for (name, _) in figures(&stats) {
            assert!(value[name].is_u64(), "{name}");
        }
    }
}
