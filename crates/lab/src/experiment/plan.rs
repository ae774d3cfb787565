//! What an experiment asks for: runs, each with its subject, spec and memory.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::files;
use crate::run::RunOptions;
use crate::runs_file::RunName;
use crate::spec::Spec;
use crate::target::Budget;

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// For tests: seconds.
    Tiny,
    /// For a report on a small machine: 30 minutes at most.
    Small,
    /// As much as it takes.
    Full,
}

impl Scale {
    /// Every one.
    pub const ALL: &[Scale] = &[Scale::Tiny, Scale::Small, Scale::Full];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Tiny => "tiny",
            Scale::Small => "small",
            Scale::Full => "full",
        }
    }

    /// The scale of this name; an error that lists all when there is none.
    pub fn from_name(name: &str) -> Result<Scale> {
        let found = Self::ALL.iter().copied().find(|one| one.name() == name);
        found.ok_or_else(|| Error::Unknown {
            what: "scale",
            name: name.to_owned(),
            known: Self::ALL.iter().map(|one| one.name().to_owned()).collect(),
        })
    }

    /// The one of three that belongs to it.
    pub fn pick<T>(self, tiny: T, small: T, full: T) -> T {
        match self {
            Scale::Tiny => tiny,
            Scale::Small => small,
            Scale::Full => full,
        }
    }
}

/// What a run is made against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A Tallybook engine in a child process of its own.
    Engine {
        /// Options of the engine by name, as `EngineTarget::open` takes them.
        settings: BTreeMap<String, String>,
    },
    /// The engine of another build of this program, as it comes, in a child process of its own.
    Build {
        /// Its file.
        program: PathBuf,
    },
    /// A rival engine in a child process of its own, from the `rivals` program.
    Rival {
        /// The engine's name there.
        name: String,
    },
    /// The floor under the engines, in a child process of its own.
    Floor,
    /// A Tallybook server in a process of its own, loaded over HTTP.
    Server {
        /// Flags of `serve` by name without dashes, such as `memtable-bytes` = `4MiB`. Memory and
        /// durability are the budget's where no flag says otherwise.
        flags: BTreeMap<String, String>,
    },
    /// Any server that speaks `/v0`.
    Url {
        /// Where it is.
        url: String,
    },
    /// A store of files in a child process of its own.
    Files {
        /// Which.
        store: FilesStore,
        /// Buckets that it is made with; `None` is its own number.
        buckets: Option<u32>,
    },
    /// A bare hyper server in a process of its own, that stores nothing.
    Bare {
        /// Bytes of every value.
        body_bytes: u32,
        /// Keys of a hash map that has the values of reads and takes those of puts; 0: each answer is a
        /// constant.
        keys: u64,
    },
}

/// A store of files that can be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilesStore {
    /// Tallybook's.
    Tallybook,
    /// The package of npm, in Node.js.
    Kfs,
    /// One LevelDB with the same chunks, from the `rivals` program.
    LevelDb,
}

impl FilesStore {
    /// Every one.
    pub const ALL: &[FilesStore] = &[FilesStore::Tallybook, FilesStore::Kfs, FilesStore::LevelDb];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            FilesStore::Tallybook => files::NAME,
            FilesStore::Kfs => "kfs",
            FilesStore::LevelDb => "leveldb",
        }
    }
}

/// One run that an experiment asks for.
#[derive(Debug, Clone)]
pub struct PlannedRun {
    /// The varied parameters' values.
    pub case: BTreeMap<String, String>,
    /// What it is made against.
    pub subject: Subject,
    /// The name under which it is recorded, such as `tallybook`, `rocksdb`, `one flush thread`.
    pub target: String,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Fill the store as for this spec before, or by it if it begins with an empty store; `None`: as for
    /// `spec`.
    pub prefill: Option<Spec>,
    /// What is asked.
    pub spec: Spec,
    /// How it is made.
    pub options: RunOptions,
    /// Memory and durability.
    pub budget: Budget,
    /// Runs with the same value use one store one after another, opened once and filled once, as the
    /// first of them asks. Where one finds what those before it left, an interrupted experiment that is gone
    /// on with makes all of them again; a store of files is kept and opened again, so that it grows old over
    /// its runs. `None`: a fresh store.
    pub shared_store: Option<String>,
    /// Whether a server's profiles are taken meanwhile, for the report.
    pub is_profiled: bool,
    /// Memory of the target's process, with the page cache of its files, once its store is filled; `None`:
    /// what the machine has.
    pub memory_bytes_max: Option<u64>,
}

impl PlannedRun {
    /// What tells it from others in `runs.jsonl`.
    pub fn name(&self, experiment: &str) -> RunName {
        RunName {
            experiment: experiment.to_owned(),
            case: self.case.clone(),
            target: self.target.clone(),
            repetition: self.repetition,
            spec: self.spec.clone(),
        }
    }

    /// The store that outlives an interruption, if it has one.
    pub fn kept_store(&self) -> Option<&str> {
        self.shared_store.as_deref().filter(|_| matches!(self.subject, Subject::Files { .. }))
    }

    /// The spec that its store is filled for.
    pub fn fill(&self) -> &Spec {
        self.prefill.as_ref().unwrap_or(&self.spec)
    }

    /// The run that fills its store, where that isn't what a run on a filled one begins with: every key in
    /// random order.
    pub fn filled_by(&self) -> Option<&Spec> {
        self.prefill.as_ref().filter(|fill| fill.workload.starts_empty())
    }

    /// In a few words, for progress and errors.
    pub fn label(&self) -> String {
        let workload = self.spec.workload.name();
        let case = self.case.iter().filter(|(_, value)| *value != workload);
        let case: String = case.map(|(name, value)| format!(", {name} {value}")).collect();
        format!("{}: {workload}{case}, run {}", self.target, self.repetition + 1)
    }
}
