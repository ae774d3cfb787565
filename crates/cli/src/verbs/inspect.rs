//! `inspect`: one file of a store as text, or the list of a store's files.
//!
//! It takes no lock and changes nothing, so it may look at a store that is open elsewhere; what it
//! then sees may be half written.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use serde_json::json;
use tallybook::file_name::{self, FileKind};

use crate::arguments::InspectArguments;
use crate::exit::{Exit, found, say};
use crate::key_text::escape;
use crate::output::Output;

/// One file of a directory.
struct Listed {
    name: String,
    what: &'static str,
    bytes: u64,
}

/// Prints a file as text, or lists a directory.
pub(crate) fn inspect(arguments: &InspectArguments) -> anyhow::Result<Exit> {
    let path = &arguments.path;
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut out = Output::new();
    if !metadata.is_dir() {
        let inspected = tallybook::inspect::file(path, &mut out);
        // What was printed before damage was met is worth having.
        let printed = out.flush().map_err(anyhow::Error::from);
        return match inspected? {
            0 => printed.map(|()| Exit::Success),
            damaged => {
                say(format_args!("tallybook: damaged places in {}: {damaged}", path.display()));
                found(Exit::Corruption, printed)
            }
        };
    }
    let files = list(path)?;
    if arguments.json {
        let files: Vec<_> = files
            .iter()
            .map(|file| json!({ "name": file.name, "what": file.what, "bytes": file.bytes }))
            .collect();
        out.json(&json!(files))?;
    } else {
        for Listed { name, what, bytes } in files {
            writeln!(out, "{bytes:>14}  {what:<9}  {name}")?;
        }
    }
    out.flush()?;
    Ok(Exit::Success)
}

fn list(dir: &Path) -> anyhow::Result<Vec<Listed>> {
    let mut files = Vec::new();
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", dir.display()))?;
        let name = entry.file_name();
        let bytes = match entry.metadata() {
            Ok(metadata) => metadata.len(),
            // A store that is open elsewhere removes files under us.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(error).with_context(|| format!("cannot list {}", dir.display()));
            }
        };
        let what = describe(name.to_str().and_then(file_name::parse));
        files.push(Listed { name: escape(name.as_bytes()), what, bytes });
    }
    files.sort_by(|a, b| (a.what, &a.name).cmp(&(b.what, &b.name)));
    Ok(files)
}

fn describe(kind: Option<FileKind>) -> &'static str {
    match kind {
        Some(FileKind::Lock) => "lock",
        Some(FileKind::Current) => "current",
        Some(FileKind::Manifest(_)) => "manifest",
        Some(FileKind::Segment(_)) => "segment",
        Some(FileKind::Table(_)) => "table",
        Some(FileKind::Torn(_)) => "torn",
        Some(FileKind::Temporary) => "temporary",
        None => "foreign",
    }
}
