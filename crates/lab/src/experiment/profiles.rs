//! Flame graphs of a server under load: taken while a run goes on, kept as folded stacks beside the
//! records, drawn into the report side by side.
//!
//! A profile that can't be had is left out, and the run counts all the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use super::plan::PlannedRun;
use super::server;
use crate::chart::flame_graph;
use crate::error::{Error, Result};
use crate::report::{FlameGraph, Report};

/// Where the stacks are, in an experiment's directory.
const DIRECTORY: &str = "profiles";
/// The profiles that a server makes at once: kind, what it counts, what it shows.
const KINDS: [(&str, &str, &str); 3] = [
    ("cpu", "samples", "Processor time"),
    ("allocs", "bytes", "Bytes allocated"),
    ("locks", "ns", "Waits for locks, syncs, flushes and stalls"),
];
/// Time that a server may take beyond that of the profile.
const PATIENCE: Duration = Duration::from_secs(20);

/// Profiles that are being taken.
#[derive(Debug)]
pub(super) struct Taking(Vec<JoinHandle<()>>);

/// Asks the admin listener at `url` for a profile of each kind over `seconds`.
pub(super) fn take(url: &str, run: &PlannedRun, seconds: u64, directory: &Path) -> Taking {
    let directory = directory.join(DIRECTORY);
    let name: Vec<String> =
        run.case.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let name =
        name.join(", ").replace(|c: char| !c.is_ascii_alphanumeric() && !" ,-%".contains(c), "");
    let take = |(kind, _, _): (&'static str, &str, &str)| {
        let url = format!("{url}/debug/profile/{kind}?seconds={seconds}&format=folded");
        let path = directory.join(format!("{kind}, {name}.folded"));
        std::thread::spawn(move || {
            if let Err(error) = fetch(&url, seconds, &path) {
                eprintln!("no {kind} profile: {error}");
            }
        })
    };
    Taking(KINDS.map(take).into())
}

fn fetch(url: &str, seconds: u64, path: &Path) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(Error::io(directory.display().to_string()))?;
    }
    let folded = server::ask(url, Duration::from_secs(seconds) + PATIENCE)?;
    fs::write(path, folded).map_err(Error::io(path.display().to_string()))
}

impl Taking {
    /// Waits until they are there.
    pub(super) fn finish(self) {
        for thread in self.0 {
            // It panics only by a bug, and has said so.
            let _ = thread.join();
        }
    }
}

/// Adds the profiles in an experiment's directory to its report, those of one kind side by side.
pub(super) fn add_to(report: &mut Report, directory: &Path) {
    let Ok(files) = fs::read_dir(directory.join(DIRECTORY)) else { return };
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    if paths.is_empty() {
        return;
    }
    report.section("Where the time goes").paragraph(
        "Taken in the first of the repetitions, whose figures are among the others'; one below the other \
         on a narrow screen. Frames are as wide as their share, and the same function has the same colour.",
    );
    for (kind, unit, shows) in KINDS {
        let graphs = paths.iter().filter_map(|path| {
            let name = path.file_stem()?.to_str()?.strip_prefix(kind)?.strip_prefix(", ")?;
            let title = format!("{shows}: {name}");
            let svg = flame_graph(&title, unit, &fs::read_to_string(path).ok()?);
            Some(FlameGraph { title, svg })
        });
        report.flame_graphs(&graphs.collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_drawn_kind_by_kind_and_the_rest_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory.path().join(DIRECTORY);
        fs::create_dir(&taken).unwrap();
        for name in ["cpu, threads 4", "cpu, threads 1", "locks, threads 1", "notes"] {
            fs::write(taken.join(format!("{name}.folded")), "main;flush 7\n").unwrap();
        }
        let mut report = Report::new("n", "q", "again", Vec::new());
        add_to(&mut report, directory.path());
        let html = report.html();
        let at = |title: &str| html.find(title).unwrap_or_else(|| panic!("{title}"));
        assert!(at("Processor time: threads 1") < at("Processor time: threads 4"));
        assert!(at("Processor time: threads 4") < at("stalls: threads 1"));
        assert!(!html.contains("notes"));
    }

    #[test]
    fn without_profiles_there_is_no_section() {
        let directory = tempfile::tempdir().unwrap();
        let mut report = Report::new("n", "q", "again", Vec::new());
        add_to(&mut report, directory.path());
        assert!(!report.html().contains("Where the time goes"));
    }
}
