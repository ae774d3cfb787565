//! `salvage`: what is whole of a damaged store, in a new one.

use std::io::Write;

use data_encoding::BASE64;
use serde_json::json;
use tallybook::Options;
use tallybook::salvage::{self, Doubt, SalvageReport, Wanted};

use crate::arguments::SalvageArguments;
use crate::exit::{Exit, found};
use crate::key_text::escape;
use crate::output::Output;
use crate::progress::Progress;
use crate::verbs::maintain::{damage_as_json, write_damage};

/// Saves what can be, says what couldn't, which makes the exit code 5.
pub(crate) fn salvage(arguments: &SalvageArguments) -> anyhow::Result<Exit> {
    let SalvageArguments { store, dir, everything, json } = arguments;
    let wanted = if *everything { Wanted::Everything } else { Wanted::Certain };
    let progress = Progress::new("salvage");
    let report =
        salvage::salvage(&store.data, dir, wanted, &Options::default(), &mut |done, total| {
            progress.update(done, total);
        })?;
    drop(progress);
    let exit = if report.is_whole() { Exit::Success } else { Exit::Corruption };
    found(exit, print(*json, &report, wanted))
}

fn print(is_json: bool, report: &SalvageReport, wanted: Wanted) -> anyhow::Result<()> {
    let mut out = Output::new();
    match is_json {
        true => out.json(&as_json(report))?,
        false => write_text(&mut out, report, wanted)?,
    }
    Ok(out.flush()?)
}

fn as_json(report: &SalvageReport) -> serde_json::Value {
    let named = report.named.iter().map(|(key, doubt)| {
        let why = match doubt {
            Doubt::MayBeOlder => "a later write may be lost",
            Doubt::Unreadable(why) => why,
        };
        let is_unreadable = matches!(doubt, Doubt::Unreadable(_));
        json!({ "key": BASE64.encode(key), "unreadable": is_unreadable, "why": why })
    });
    json!({
        "keys": report.keys,
        "value_bytes": report.value_bytes,
        "doubtful": report.doubtful,
        "unreadable": report.unreadable,
        "behind_hole": report.behind_hole,
        "has_manifest": report.has_manifest,
        "named": named.collect::<Vec<_>>(),
        "damage": damage_as_json(&report.damage),
        "more_damage": report.more_damage,
    })
}

fn write_text(out: &mut Output, report: &SalvageReport, wanted: Wanted) -> std::io::Result<()> {
    let SalvageReport { keys, value_bytes, doubtful, unreadable, behind_hole, .. } = report;
    write_damage(out, &report.damage)?;
    if report.more_damage > 0 {
        writeln!(out, "and {} more damaged places", report.more_damage)?;
    }
    for (key, doubt) in &report.named {
        let key = escape(key);
        match doubt {
            Doubt::MayBeOlder => writeln!(out, "in doubt: {key}: a later write may be lost")?,
            Doubt::Unreadable(why) => writeln!(out, "unreadable: {key}: {why}")?,
        }
    }
    let named = report.named.len() as u64;
    let others = doubtful + unreadable - named;
    if others > 0 {
        writeln!(out, "{others} others are in doubt or unreadable")?;
    }
    if !report.has_manifest {
        writeln!(out, "without a manifest: what was deleted or overwritten may be back")?;
    }
    let (taken, hint) = match wanted {
        Wanted::Everything => ("taken", ""),
        Wanted::Certain => ("left out", "; --everything takes them"),
    };
    if *doubtful > 0 {
        writeln!(out, "{doubtful} keys in doubt, {taken}{hint}")?;
    }
    if *behind_hole > 0 {
        writeln!(out, "{behind_hole} writes behind missing ones, {taken}{hint}")?;
        if wanted == Wanted::Everything {
            writeln!(out, "any other key may have been overwritten or deleted by a missing write")?;
        }
    }
    if *unreadable > 0 {
        writeln!(out, "{unreadable} unreadable keys, left out")?;
    }
    writeln!(out, "saved {keys} keys with {value_bytes} bytes of values")?;
    match report.is_whole() {
        true => writeln!(out, "nothing is missing"),
        false => {
            let places = report.damage.len() as u64 + report.more_damage;
            writeln!(out, "{places} damaged places")
        }
    }
}
