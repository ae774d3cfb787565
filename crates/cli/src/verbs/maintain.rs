//! `verify`, `checkpoint` and `compact`: long work on a whole store.

use std::io::Write;

use serde_json::json;
use tallybook::store::{Damage, VerifyReport};

use crate::arguments::{CheckpointArguments, CompactArguments, VerifyArguments};
use crate::exit::{Exit, found};
use crate::key_text::escape;
use crate::output::Output;
use crate::progress::Progress;
use crate::verbs::embedded::{Purpose, open};

/// Checks everything; damage is listed and makes the exit code 5.
pub(crate) fn verify(arguments: &VerifyArguments) -> anyhow::Result<Exit> {
    let store = open(&arguments.store.data, Purpose::Existing)?;
    let progress = Progress::new("verify");
    let report = store.verify(&mut |done, total| progress.update(done, total))?;
    drop(progress);
    let exit = if report.damage.is_empty() { Exit::Success } else { Exit::Corruption };
    found(exit, print(arguments.json, &report))
}

fn print(is_json: bool, report: &VerifyReport) -> anyhow::Result<()> {
    let mut out = Output::new();
    match is_json {
        true => out.json(&as_json(report))?,
        false => write_text(&mut out, report)?,
    }
    Ok(out.flush()?)
}

/// Makes a consistent copy.
pub(crate) fn checkpoint(arguments: &CheckpointArguments) -> anyhow::Result<Exit> {
    let store = open(&arguments.store.data, Purpose::Existing)?;
    store.checkpoint(&arguments.dir)?;
    Ok(Exit::Success)
}

/// Merges the tree and collects the journal.
pub(crate) fn compact(arguments: &CompactArguments) -> anyhow::Result<Exit> {
    let store = open(&arguments.store.data, Purpose::Existing)?;
    let progress = Progress::new("compact");
    store.compact(None, None, &mut |done, total| progress.update(done, total))?;
    drop(progress);
    store.close()?;
    Ok(Exit::Success)
}

/// Damaged places, as JSON has them.
pub(crate) fn damage_as_json(damage: &[Damage]) -> Vec<serde_json::Value> {
    let place = |damage: &Damage| {
        let file = damage.file.display().to_string();
        json!({ "file": file, "offset": damage.offset, "what": damage.what })
    };
    damage.iter().map(place).collect()
}

/// Damaged places, a line each.
pub(crate) fn write_damage(out: &mut Output, damage: &[Damage]) -> std::io::Result<()> {
    for damage in damage {
        let file = escape(damage.file.as_os_str().as_encoded_bytes());
        writeln!(out, "damaged: {file} at byte {}: {}", damage.offset, damage.what)?;
    }
    Ok(())
}

fn as_json(report: &VerifyReport) -> serde_json::Value {
    json!({
        "tables": report.tables,
        "segments": report.segments,
        "entries": report.entries,
        "values": report.values,
        "bytes": report.bytes,
        "damage": damage_as_json(&report.damage),
    })
}

fn write_text(out: &mut Output, report: &VerifyReport) -> std::io::Result<()> {
    let VerifyReport { tables, segments, entries, values, bytes, damage } = report;
    writeln!(
        out,
        "checked {tables} tables with {entries} entries, {segments} segments with {values} \
         values, {bytes} bytes"
    )?;
    write_damage(out, damage)?;
    match damage.len() {
        0 => writeln!(out, "no damage"),
        count => writeln!(out, "{count} damaged places"),
    }
}
