//! The stores of an experiment under way: opened and filled when a run first needs them, closed and
//! removed after the last.
//!
//! Invariant: what is in the laboratory's own directory is of no use once the experiment ended, and is
//! removed; nothing outside of it is touched. Stores of files outlive an interruption, because what is
//! asked of them is how they grow old: from the first run on, before which a new one is none to be gone on with.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::memory_group::MemoryGroup;
use super::plan::{FilesStore, PlannedRun, Subject};
use super::subject::{Opened, Programs};
use crate::error::{Error, Result};
use crate::load::Progress;
use crate::machine;
use crate::process::drop_from_page_cache;
use crate::run::RunOptions;
use crate::spec::ValueSizes;

/// The directory of stores below an experiment's own. A name that nobody gives to anything else,
/// because it is removed with all that is in it.
const DIRECTORY: &str = "lab-stores";
/// A file beside a store of files whose first run has begun.
const BEGUN: &str = "begun";

/// One that is open.
pub(super) struct Held {
    pub(super) opened: Opened,
    /// Goes after the process in it.
    group: Option<MemoryGroup>,
    directory: PathBuf,
    /// Whether it outlives an interruption, once it has begun.
    is_kept: bool,
    /// Whether a run on it has to be made once more.
    is_unfinished: bool,
}

impl Held {
    /// Has it be gone on with after an interruption, if it is one of those: a run is about to be made on it.
    pub(super) fn begin(&self) -> Result<()> {
        if !self.is_kept {
            return Ok(());
        }
        let path = self.directory.join(BEGUN);
        fs::write(&path, "").map_err(Error::io(path.display().to_string()))
    }

    /// Notes that a run on it doesn't count: if it can be kept for it, it is.
    pub(super) fn leave_unfinished(&mut self) {
        self.is_unfinished = true;
    }
}

/// Those that are open.
pub(super) struct Stores<'a> {
    root: PathBuf,
    programs: &'a Programs,
    shared: BTreeMap<String, Held>,
    opened_count: u32,
}

impl<'a> Stores<'a> {
    /// None yet; what an experiment that was killed left is removed, but the stores that are to be gone
    /// on with.
    pub(super) fn new(
        directory: &Path,
        programs: &'a Programs,
        going_on: &[&str],
    ) -> Result<Stores<'a>> {
        let root = directory.join(DIRECTORY);
        let kept = going_on.iter().filter(|name| is_kept(directory, name));
        let kept: Vec<PathBuf> = kept.map(|name| root.join(kept_name(name))).collect();
        for entry in fs::read_dir(&root).into_iter().flatten().flatten() {
            if !kept.contains(&entry.path()) {
                remove(&entry.path())?;
            }
        }
        fs::create_dir_all(&root).map_err(Error::io(root.display().to_string()))?;
        Ok(Stores { root, programs, shared: BTreeMap::new(), opened_count: 0 })
    }

    /// Where stores are.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The store of a run: the shared one, or a new one that is filled.
    pub(super) fn take(
        &mut self,
        run: &PlannedRun,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<Held> {
        let shared = run.shared_store.as_ref().and_then(|name| self.shared.remove(name));
        if let Some(held) = shared {
            return Ok(held);
        }
        self.opened_count += 1;
        let directory = self.root.join(match run.kept_store() {
            Some(name) => kept_name(name),
            None => self.opened_count.to_string(),
        });
        fs::create_dir_all(&directory).map_err(Error::io(directory.display().to_string()))?;
        let opened = opened_and_filled(run, &directory, self.programs, watch);
        match opened {
            Ok((opened, group)) => {
                let is_kept = run.kept_store().is_some();
                Ok(Held { opened, group, directory, is_kept, is_unfinished: false })
            }
            Err(error) => {
                // One that a stop keeps from being opened again is gone on with another time.
                let is_stopped = run.options.load.stop.load(Ordering::Relaxed);
                if !(is_stopped && directory.join(BEGUN).is_file()) {
                    remove(&directory)?;
                }
                Err(error)
            }
        }
    }

    /// Keeps a store for later runs.
    pub(super) fn keep(&mut self, name: &str, held: Held) {
        self.shared.insert(name.to_owned(), held);
    }

    /// Closes a store in order, and removes it unless it is kept for runs that are to be made once more.
    pub(super) fn close(&mut self, held: Held) -> Result<()> {
        let closed = held.opened.close();
        drop(held.group);
        if !(held.is_kept && held.is_unfinished) {
            remove(&held.directory)?;
        }
        closed
    }

    /// Ends a store that can't be relied on any more.
    pub(super) fn drop_broken(&mut self, held: Held) -> Result<()> {
        drop(held.opened);
        drop(held.group);
        remove(&held.directory)
    }
}

impl Drop for Stores<'_> {
    fn drop(&mut self) {
        // What can't be removed now is when the experiment is gone on with.
        for (_, held) in std::mem::take(&mut self.shared) {
            if held.is_kept {
                // As good as killed if it fails, which it has to stand too.
                let _ = held.opened.close();
            } else {
                let _ = self.drop_broken(held);
            }
        }
        // Unless a kept store is in it.
        let _ = fs::remove_dir(&self.root);
    }
}

/// Where the stores of an experiment's directory are, or would be made.
pub(super) fn place(directory: &Path) -> PathBuf {
    let root = directory.join(DIRECTORY);
    if root.is_dir() { root } else { directory.to_owned() }
}

/// Whether a store of files of this name was kept below an experiment's directory. One that a kill found before its
/// first run wasn't: it would be taken for the one before it.
pub(super) fn is_kept(directory: &Path, store: &str) -> bool {
    directory.join(DIRECTORY).join(kept_name(store)).join(BEGUN).is_file()
}

/// The directory of a store that is kept.
fn kept_name(store: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("kept-{}", store.chars().map(word).collect::<String>())
}

/// The subject of a run, its store filled. Where its memory is to be limited it is opened anew for that, in a
/// group, with nothing of its files in memory: an engine that takes puts faster than it writes them can't be
/// filled under a limit.
fn opened_and_filled(
    run: &PlannedRun,
    directory: &Path,
    programs: &Programs,
    watch: &mut dyn FnMut(&Progress),
) -> Result<(Opened, Option<MemoryGroup>)> {
    let group = run.memory_bytes_max.map(MemoryGroup::new).transpose()?;
    let opened = filled(Opened::open(run, directory, programs, None)?, run, watch)?;
    if group.is_none() {
        return Ok((opened, None));
    }
    opened.close()?;
    drop_from_page_cache(directory)?;
    Ok((Opened::open(run, directory, programs, group.as_ref())?, group))
}

fn filled(
    mut opened: Opened,
    run: &PlannedRun,
    watch: &mut dyn FnMut(&Progress),
) -> Result<Opened> {
    // A run must not pay for the background work of its filling, whether or not it waits for its own.
    let options = RunOptions { settle: true, ..run.options.clone() };
    let Some(fill) = run.filled_by() else {
        opened.prefill(run.fill(), &options, watch)?;
        return Ok(opened);
    };
    match opened.run(fill, &options, watch)?.error {
        Some(error) => Err(error),
        None => Ok(opened),
    }
}

/// Removes a store. A kill meanwhile leaves nothing of its name, which half a store would be gone on with by.
fn remove(directory: &Path) -> Result<()> {
    match put_aside(directory).and_then(fs::remove_dir_all) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("remove {}", directory.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Gives a directory a name that is no store's, and answers it.
fn put_aside(directory: &Path) -> std::io::Result<PathBuf> {
    let mut name = OsString::from("gone-");
    name.push(directory.file_name().unwrap_or_default());
    let aside = directory.with_file_name(name);
    fs::rename(directory, &aside).map(|()| aside)
}

/// Refuses an experiment whose stores may not fit on the disk of `directory`, before it starts: of all
/// moments the one counts at which those that are open together take most.
pub(super) fn check_space(name: &str, directory: &Path, runs: &[&PlannedRun]) -> Result<()> {
    let mut open: BTreeMap<&str, u64> = BTreeMap::new();
    let mut needed_bytes = 0;
    for (at, run) in runs.iter().enumerate() {
        if matches!(run.subject, Subject::Bare { .. } | Subject::Url { .. }) {
            continue;
        }
        let own = match run.kept_store() {
            Some(store) => space_of_files(run, store, &runs[at..]),
            None => machine::space_needed(run.fill())?.max(machine::space_needed(&run.spec)?),
        };
        let shared = run.shared_store.as_deref();
        let others: u64 =
            open.iter().filter(|(name, _)| Some(**name) != shared).map(|(_, b)| b).sum();
        needed_bytes = needed_bytes.max(own.saturating_add(others));
        let Some(shared) = shared else { continue };
        open.insert(shared, own);
        if !is_used_later(shared, &runs[at + 1..]) {
            open.remove(shared);
        }
    }
    let available_bytes = machine::available_bytes(directory)?;
    if available_bytes < needed_bytes {
        return Err(Error::NoSpace { what: name.to_owned(), needed_bytes, available_bytes });
    }
    Ok(())
}

/// Bytes of disk that a store of files may take until the last of these runs that uses it. KFS gives
/// nothing back; the others may be late with it by a few files.
fn space_of_files(run: &PlannedRun, store: &str, runs: &[&PlannedRun]) -> u64 {
    const LATE: u64 = 4;
    let bytes = runs.iter().filter(|run| run.shared_store.as_deref() == Some(store)).map(|run| {
        match run.spec.values {
            ValueSizes::Fixed(bytes) => u64::from(bytes) * run.spec.keys,
            _ => 0,
        }
    });
    match run.subject {
        Subject::Files { store: FilesStore::Kfs, .. } => bytes.sum::<u64>() + (1 << 30),
        _ => bytes.max().unwrap_or(0) * LATE + (1 << 30),
    }
}

/// Whether one of these runs uses this store.
pub(super) fn is_used_later(name: &str, runs: &[&PlannedRun]) -> bool {
    runs.iter().any(|run| run.shared_store.as_deref() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Scale, find};

    #[test]
    fn a_store_that_is_being_removed_is_none_that_was_kept() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join(DIRECTORY);
        let store = root.join(kept_name("kfs"));
        fs::create_dir_all(store.join("store")).unwrap();
        fs::write(store.join(BEGUN), "").unwrap();
        assert!(is_kept(directory.path(), "kfs"));
        let aside = put_aside(&store).unwrap();
        assert!(!is_kept(directory.path(), "kfs") && aside.join("store").is_dir());
        // What a kill left is removed by the next.
        let programs = Programs::default();
        drop(Stores::new(directory.path(), &programs, &["kfs"]).unwrap());
        assert!(!root.exists());
        remove(&store).unwrap();
    }

    /// A kill before the first run on a new store had the rest of the old one's runs made on it.
    #[test]
    fn a_store_on_which_no_run_was_begun_is_none_that_was_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join(DIRECTORY).join(kept_name("kfs"));
        let programs = Programs::default();
        for is_begun in [true, false] {
            fs::create_dir_all(store.join("store")).unwrap();
            if is_begun {
                fs::write(store.join(BEGUN), "").unwrap();
            }
            assert_eq!(is_kept(directory.path(), "kfs"), is_begun);
            drop(Stores::new(directory.path(), &programs, &["kfs"]).unwrap());
            assert_eq!(store.exists(), is_begun);
            remove(&store).unwrap();
        }
    }

    /// Ctrl-C while an old store was being opened again had it removed.
    #[test]
    fn a_store_that_a_stop_keeps_from_being_opened_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let mut runs = find("kfs").unwrap().runs(Scale::Tiny, &[]).unwrap();
        runs.retain(|run| run.kept_store() == Some("tallybook"));
        let store = directory.path().join(DIRECTORY).join(kept_name("tallybook"));
        // It ends before it answers.
        let programs = Programs { files: vec!["true".into()], ..Programs::default() };
        for (is_begun, is_stopped) in [(true, true), (false, true), (true, false)] {
            fs::create_dir_all(&store).unwrap();
            if is_begun {
                fs::write(store.join(BEGUN), "").unwrap();
            }
            runs[0].options.load.stop.store(is_stopped, Ordering::Relaxed);
            let mut stores = Stores::new(directory.path(), &programs, &["tallybook"]).unwrap();
            assert!(stores.take(&runs[0], &mut |_| {}).is_err());
            assert_eq!(store.exists(), is_begun && is_stopped);
            remove(&store).unwrap();
        }
    }
}
