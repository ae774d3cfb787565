//! What an engine is opened with: its name, its place and its share of memory; and how it tells of
//! itself.
//!
//! The budget's write buffer is the sum over all memtables that an engine may hold, so each engine
//! divides it by how many those are.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use tallybook_lab::Error;
use tallybook_lab::spec::Durability;
use tallybook_lab::target::Budget;

/// What an engine is opened with.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The engine's name, variant included.
    pub name: &'static str,
    /// Where its files go.
    pub directory: PathBuf,
    /// Memory and durability.
    pub budget: Budget,
}

impl Opening {
    /// An error of this engine.
    pub(crate) fn error(&self, what: impl Display) -> Error {
        failure(self.name)(what)
    }

    /// Whether a write must survive power loss before it is acknowledged.
    pub(crate) fn syncs(&self) -> bool {
        self.budget.durability == Durability::Sync
    }

    /// Bytes of one memtable where the engine holds `count` of them.
    pub(crate) fn memtable_bytes(&self, count: u64) -> usize {
        // No engine here takes less than 64 KiB.
        usize::try_from(self.budget.write_buffer_bytes / count).unwrap_or(usize::MAX).max(64 << 10)
    }

    /// Bytes of the engine's own cache.
    pub(crate) fn cache_bytes(&self) -> usize {
        usize::try_from(self.budget.cache_bytes).unwrap_or(usize::MAX)
    }

    /// Bytes of a cache that holds written and read pages alike: both shares together.
    pub(crate) fn shared_cache_bytes(&self) -> usize {
        self.cache_bytes()
            .saturating_add(usize::try_from(self.budget.write_buffer_bytes).unwrap_or(usize::MAX))
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Turns an engine's error into the laboratory's, for `map_err`.
pub(crate) fn failure<E: Display>(name: &'static str) -> impl Fn(E) -> Error {
    move |what| Error::Target { target: name.to_owned(), what: what.to_string() }
}

/// What an acknowledged write survives, as settings tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Survives {
    /// Less than was asked: the last few milliseconds' writes go with the process.
    Nothing,
    /// The process being killed.
    Kill,
    /// Power loss.
    PowerLoss,
}

impl Survives {
    /// The words in `settings()["survives"]`.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Survives::Nothing => NOT_A_KILL,
            Survives::Kill => "the process being killed",
            Survives::PowerLoss => "power loss",
        }
    }
}

/// What `settings()["survives"]` says of an engine that may lose acknowledged writes when its
/// process is killed.
pub const NOT_A_KILL: &str = "not even the process being killed: the last writes are lost";

/// Settings by name, as they go into the record.
pub(crate) fn settings<const N: usize>(
    survives: Survives,
    pairs: [(&str, String); N],
) -> BTreeMap<String, String> {
    let mut settings: BTreeMap<_, _> =
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    settings.insert("survives".to_owned(), survives.words().to_owned());
    settings
}

/// The version of a crate that this was built with, from the lock file.
pub(crate) fn crate_version(name: &str) -> &'static str {
    const LOCK: &str = include_str!("../Cargo.lock");
    let entry = LOCK.split("[[package]]").find_map(|entry| {
        entry.trim_start().strip_prefix("name = \"")?.strip_prefix(name)?.strip_prefix('"')
    });
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        assert!(crate_version("sled").starts_with("0.34."));
        assert!(crate_version("fjall").starts_with("3."));
        assert_eq!(crate_version("no-such-crate"), "unknown");
    }
}
