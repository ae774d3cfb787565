//! What `files` prints: as text, and as JSON.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use data_encoding::{BASE64, HEXLOWER};
use serde_json::{Value, json};
use tallybook_files::{
    ImportReport, ListEntry, ReferenceId, RepairReport, Stat, Totals, VerifyReport,
};
use tallybook_server::json::verified;

use super::is_sound;
use crate::key_text::escape;
use crate::output::Output;

/// A moment in UTC, to the second.
pub(super) fn time(ms: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}

pub(super) fn stat(stat: &Stat) -> Value {
    json!({
        "name": stat.name,
        "version": stat.version,
        "size": stat.size,
        "blake3": HEXLOWER.encode(&stat.blake3),
        "md5": stat.md5.map(|md5| HEXLOWER.encode(&md5)),
        "written_at_ms": stat.written_at_ms,
        "changed_at_ms": stat.changed_at_ms,
        "attributes": BASE64.encode(&stat.attributes),
    })
}

pub(super) fn write_stat(out: &mut Output, stat: &Stat) -> io::Result<()> {
    writeln!(out, "name        {}", escape(stat.name.as_bytes()))?;
    writeln!(out, "version     {}", stat.version)?;
    writeln!(out, "size        {}", stat.size)?;
    writeln!(out, "blake3      {}", HEXLOWER.encode(&stat.blake3))?;
    if let Some(md5) = stat.md5 {
        writeln!(out, "md5         {}", HEXLOWER.encode(&md5))?;
    }
    writeln!(out, "written     {}", time(stat.written_at_ms))?;
    writeln!(out, "changed     {}", time(stat.changed_at_ms))?;
    if !stat.attributes.is_empty() {
        writeln!(out, "attributes  {}", escape(&stat.attributes))?;
    }
    Ok(())
}

pub(super) fn entry(entry: &ListEntry) -> Value {
    match entry {
        ListEntry::File(file) => stat(file),
        ListEntry::Prefix(prefix) => json!({ "prefix": prefix }),
    }
}

/// What a store was made with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) reference_id: ReferenceId,
    pub(super) chunk_bytes: u32,
}

pub(super) fn totals(setup: Setup, totals: &Totals) -> Value {
    let buckets = totals.buckets.iter().filter(|bucket| bucket.exists).map(|bucket| {
        json!({
            "bucket": bucket.bucket,
            "live_bytes": bucket.live_bytes,
            "dead_bytes": bucket.dead_bytes,
            "free_bytes": bucket.free_bytes,
            "cap_bytes": bucket.cap_bytes,
        })
    });
    json!({
        "reference_id": setup.reference_id.to_string(),
        "chunk_bytes": setup.chunk_bytes,
        "files": totals.files,
        "file_bytes": totals.file_bytes,
        "live_bytes": totals.live_bytes,
        "dead_bytes": totals.dead_bytes,
        "free_bytes": totals.free_bytes,
        "cap_bytes": totals.cap_bytes,
        "buckets": buckets.collect::<Vec<_>>(),
    })
}

pub(super) fn write_totals(out: &mut Output, setup: Setup, totals: &Totals) -> io::Result<()> {
    writeln!(out, "reference id  {}", setup.reference_id)?;
    writeln!(out, "chunk bytes   {}", setup.chunk_bytes)?;
    writeln!(out, "files         {}", totals.files)?;
    writeln!(out, "file bytes    {}", totals.file_bytes)?;
    writeln!(out, "live bytes    {}", totals.live_bytes)?;
    writeln!(out, "dead bytes    {}", totals.dead_bytes)?;
    writeln!(out, "free bytes    {}", totals.free_bytes)?;
    writeln!(out)?;
    writeln!(out, "{:>6} {:>16} {:>16} {:>16}", "bucket", "live", "dead", "free")?;
    for bucket in totals.buckets.iter().filter(|bucket| bucket.exists) {
        let (live, dead, free) = (bucket.live_bytes, bucket.dead_bytes, bucket.free_bytes);
        writeln!(out, "{:>6} {live:>16} {dead:>16} {free:>16}", bucket.bucket)?;
    }
    Ok(())
}

pub(super) fn write_verified(out: &mut impl Write, report: &VerifyReport) -> io::Result<()> {
    writeln!(out, "checked {} files with {} bytes", report.files, report.bytes)?;
    for bucket in &report.lost_buckets {
        writeln!(out, "lost: bucket {bucket}")?;
    }
    for bucket in &report.unread_buckets {
        writeln!(out, "unread: bucket {bucket} could not be read through and swept")?;
    }
    for bucket in &report.unknown_buckets {
        writeln!(
            out,
            "unknown: bucket {bucket} is not known in full since the catalogue was made anew: run \
             `files repair` once it can be read"
        )?;
    }
    for damage in &report.damage {
        let name = escape(damage.name.as_bytes());
        let kind = if damage.is_unread { "unread" } else { "damaged" };
        let (offset, size, what) = (damage.offset, damage.size, &damage.what);
        writeln!(out, "{kind}: {name} at byte {offset} of {size}: {what}")?;
    }
    if report.entries_restored > 0 {
        writeln!(out, "{} entries put back into their buckets", report.entries_restored)?;
    }
    if report.unwritten > 0 {
        writeln!(out, "{} entries and notes could not be written", report.unwritten)?;
    }
    if report.orphans > 0 {
        writeln!(out, "{} leftovers of interrupted writes were freed", report.orphans)?;
    }
    match report.damage.len() {
        0 if is_sound(report) => writeln!(out, "no damage")?,
        count => writeln!(out, "{count} damaged files")?,
    }
    if !report.is_complete {
        writeln!(out, "not everything was read: the next run with --bytes goes on")?;
    }
    Ok(())
}

pub(super) fn repaired(report: &RepairReport) -> Value {
    let buckets = report.old_buckets.iter();
    let buckets = buckets.map(|(bucket, path)| json!({ "bucket": bucket, "old": path }));
    json!({
        "old_catalogue": report.old_catalogue,
        "old_buckets": buckets.collect::<Vec<_>>(),
        "absent_buckets": report.absent_buckets,
        "unread_buckets": report.unread_buckets,
        "verified": verified(&report.verified),
        "unfinished": report.unfinished.as_ref().map(ToString::to_string),
    })
}

pub(super) fn write_repaired(out: &mut Output, report: &RepairReport) -> io::Result<()> {
    if let Some(path) = &report.old_catalogue {
        let path = path.display();
        writeln!(out, "the catalogue was made anew; what is left of the old one is in {path}")?;
    }
    for (bucket, path) in &report.old_buckets {
        let path = path.display();
        writeln!(out, "bucket {bucket} was made anew; what is left of the old one is in {path}")?;
    }
    if !report.absent_buckets.is_empty() {
        let absent: Vec<String> = report.absent_buckets.iter().map(u8::to_string).collect();
        writeln!(out, "not found, or never made: buckets {}", absent.join(", "))?;
    }
    for bucket in &report.unread_buckets {
        writeln!(out, "bucket {bucket} could not be read through: files of it may be missing")?;
    }
    // A repair that didn't come to its end may not have come to that.
    match report.verified.is_complete {
        true => write_verified(out, &report.verified),
        false => Ok(()),
    }
}

pub(super) fn imported(report: &ImportReport) -> Value {
    let problems = report.problems.iter().map(|problem| {
        json!({
            "bucket": problem.bucket,
            "name": problem.name,
            "what": problem.what,
            "is_imported": problem.is_imported,
        })
    });
    json!({
        "imported": report.imported,
        "bytes": report.bytes,
        "present": report.present,
        "problems": problems.collect::<Vec<_>>(),
    })
}

pub(super) fn write_imported(out: &mut Output, report: &ImportReport) -> io::Result<()> {
    let ImportReport { imported, bytes, present, problems } = report;
    writeln!(out, "imported {imported} files with {bytes} bytes; {present} were there already")?;
    for problem in problems {
        let name = match &problem.name {
            Some(name) => escape(name.as_bytes()),
            None => format!("bucket {}", problem.bucket),
        };
        let outcome = if problem.is_imported { "imported, but" } else { "not imported" };
        writeln!(out, "{name}: {outcome}: {}", problem.what)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What could not be written has the verification exit 5, under a text that said "no damage".
    #[test]
    fn only_a_verification_that_finds_nothing_says_no_damage() {
        let last_line = |report: &VerifyReport| {
            let mut text = Vec::new();
            write_verified(&mut text, report).unwrap();
            String::from_utf8(text).unwrap().lines().last().unwrap().to_owned()
        };
        let sound = VerifyReport { is_complete: true, ..VerifyReport::default() };
        assert_eq!(last_line(&sound), "no damage");
        for report in [
            VerifyReport { unwritten: 1, ..sound.clone() },
            VerifyReport { lost_buckets: vec![1], ..sound.clone() },
            VerifyReport { unread_buckets: vec![1], ..sound.clone() },
        ] {
            assert_eq!(last_line(&report), "0 damaged files");
        }
    }
}
