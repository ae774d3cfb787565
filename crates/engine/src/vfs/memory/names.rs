//! The names of files: what a process sees, and what power loss would leave of them.
//!
//! Invariant: applying every pending change, in order, to the durable names gives the current ones.
//! A change is durable when every directory it touches has been synced after it, or when a later
//! change of one of its names is. A crash keeps of each name's changes a prefix, and a change of two
//! names (a rename) whole or not at all, so that each name is as it was at some moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::crash::{Chance, CrashMode};

/// The number of a file, whatever its names.
pub(super) type FileNumber = u64;

/// Names and the files they stand for.
pub(super) type NameMap = BTreeMap<PathBuf, FileNumber>;

/// Names now, and names on disk.
#[derive(Clone, Default)]
pub(super) struct Names {
    current: NameMap,
    durable: NameMap,
    pending: Vec<Change>,
}

/// Names that change together.
#[derive(Clone)]
struct Change {
    /// What each name stands for afterwards; `None` for nothing.
    outcome: Vec<(PathBuf, Option<FileNumber>)>,
    /// Directories that have not been synced since.
    unsynced: Vec<PathBuf>,
}

impl Change {
    fn touches(&self, names: &BTreeSet<PathBuf>) -> bool {
        self.outcome.iter().any(|(name, _)| names.contains(name))
    }

    fn names(&self) -> impl Iterator<Item = PathBuf> {
        self.outcome.iter().map(|(name, _)| name.clone())
    }

    fn apply(&self, names: &mut NameMap) {
        for (name, file) in &self.outcome {
            match file {
                Some(file) => names.insert(name.clone(), *file),
                None => names.remove(name),
            };
        }
    }
}

impl Names {
    /// Names that all survive, as after a crash.
    pub(super) fn durable(names: NameMap) -> Self {
        Names { current: names.clone(), durable: names, pending: Vec::new() }
    }

    /// What a name stands for.
    pub(super) fn get(&self, name: &Path) -> Option<FileNumber> {
        self.current.get(name).copied()
    }

    /// Names in a directory, in order.
    pub(super) fn in_dir<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = &'a Path> {
        self.current
            .range(dir.to_owned()..)
            .map(|(name, _)| name.as_path())
            .take_while(move |name| name.starts_with(dir))
            .filter(move |name| name.parent() == Some(dir))
    }

    /// Changes names together; each gets its file, or nothing.
    pub(super) fn change(&mut self, outcome: Vec<(PathBuf, Option<FileNumber>)>) {
        let mut unsynced: Vec<PathBuf> = outcome.iter().map(|(name, _)| dir_of(name)).collect();
        unsynced.dedup();
        let change = Change { outcome, unsynced };
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    /// Makes the names in a directory durable.
    pub(super) fn sync_dir(&mut self, dir: &Path) {
        // From the last change to the first: an earlier change of a name is in a later one.
        let mut settled_names = BTreeSet::new();
        for change in self.pending.iter_mut().rev() {
            change.unsynced.retain(|unsynced| unsynced != dir);
            if change.touches(&settled_names) {
                change.unsynced.clear();
            }
            if change.unsynced.is_empty() {
                settled_names.extend(change.names());
            }
        }
        let (settled, pending) =
            std::mem::take(&mut self.pending).into_iter().partition(|c| c.unsynced.is_empty());
        self.pending = pending;
        let settled: Vec<Change> = settled;
        for change in settled {
            change.apply(&mut self.durable);
        }
    }

    /// Files that have a name now.
    pub(super) fn current_files(&self) -> BTreeSet<FileNumber> {
        self.current.values().copied().collect()
    }

    /// Files that a process or a crash can still find by a name.
    pub(super) fn files(&self) -> BTreeSet<FileNumber> {
        let pending = self.pending.iter().flat_map(|change| &change.outcome);
        let pending = pending.filter_map(|(_, file)| *file);
        self.current.values().chain(self.durable.values()).copied().chain(pending).collect()
    }

    /// The names that a crash leaves.
    pub(super) fn after_crash(&self, mode: CrashMode, chance: &mut Chance) -> NameMap {
        match mode {
            CrashMode::LoseUnsynced => self.durable.clone(),
            CrashMode::KeepAll => self.current.clone(),
            CrashMode::Random => self.torn(chance),
        }
    }

    fn torn(&self, chance: &mut Chance) -> NameMap {
        let mut names = self.durable.clone();
        let mut stale = BTreeSet::new();
        // From "nothing was kept" to "all was", so that long chains of changes survive at times.
        let kept_of_four = chance.below(5);
        for change in &self.pending {
            if chance.odds(kept_of_four, 4) && !change.touches(&stale) {
                change.apply(&mut names);
            } else {
                stale.extend(change.names());
            }
        }
        names
    }
}

/// The directory a name is in.
pub(super) fn dir_of(name: &Path) -> PathBuf {
    name.parent().map(Path::to_owned).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> PathBuf {
        PathBuf::from(text)
    }

    fn random(names: &Names, seeds: u64) -> BTreeSet<Vec<(PathBuf, u64)>> {
        (0..seeds)
            .map(|seed| names.after_crash(CrashMode::Random, &mut Chance::new(seed, 0)))
            .map(|left| left.into_iter().collect())
            .collect()
    }

    #[test]
    fn a_random_crash_keeps_a_rename_whole_or_not_at_all() {
        let mut names = Names::durable([(name("/a"), 1), (name("/b"), 2)].into());
        names.change(vec![(name("/a"), None), (name("/b"), Some(1))]);
        let before = vec![(name("/a"), 1), (name("/b"), 2)];
        let after = vec![(name("/b"), 1)];
        assert_eq!(random(&names, 100), [before, after].into());
    }

    #[test]
    fn a_random_crash_leaves_each_name_as_it_was_at_some_moment() {
        let mut names = Names::default();
        names.change(vec![(name("/a.tmp"), Some(1))]);
        names.change(vec![(name("/a.tmp"), None), (name("/a"), Some(1))]);
        names.change(vec![(name("/b"), Some(2))]);
        let left = random(&names, 300);
        assert_eq!(left.len(), 6, "3 states of the renamed file times 2 of the other: {left:?}");
    }

    #[test]
    fn a_rename_between_directories_is_durable_when_both_are_synced() {
        let mut names = Names::durable([(name("/x/a"), 1)].into());
        names.change(vec![(name("/x/a"), None), (name("/y/a"), Some(1))]);
        names.sync_dir(Path::new("/y"));
        assert_eq!(names.durable, [(name("/x/a"), 1)].into());
        names.sync_dir(Path::new("/x"));
        assert_eq!(names.durable, [(name("/y/a"), 1)].into());
    }

    #[test]
    fn a_synced_change_brings_the_earlier_changes_of_its_names() {
        let mut names = Names::durable([(name("/x/a"), 1)].into());
        names.change(vec![(name("/x/a"), None), (name("/y/a"), Some(1))]);
        names.change(vec![(name("/y/a"), None)]);
        names.sync_dir(Path::new("/y"));
        assert_eq!(names.durable, NameMap::new());
        assert!(names.pending.is_empty());
    }

    #[test]
    fn a_directory_lists_its_own_names_only() {
        let all = ["/x/a", "/x/b", "/x/c/d", "/xy", "/w"];
        let names = Names::durable(all.iter().map(|text| (name(text), 1)).collect());
        let listed: Vec<_> = names.in_dir(Path::new("/x")).collect();
        assert_eq!(listed, [Path::new("/x/a"), Path::new("/x/b")]);
    }
}
