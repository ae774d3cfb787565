//! Opens what a run is made against, fills it, runs it, closes it, whatever kind it is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::memory_group::MemoryGroup;
use super::plan::{FilesStore, PlannedRun, Subject};
use super::server::{Server, command};
use crate::child::{Child, Opening};
use crate::error::{Error, Result};
use crate::files::{self, FilesChild, FilesOpening};
use crate::load::{Loaded, Progress};
use crate::run::{self, RunOptions};
use crate::spec::{Durability, Spec};
use crate::target::Target as _;
use crate::target::engine;
use crate::target::floor;
use crate::target::http::HttpTarget;

/// The variable that says where the `rivals` program is.
pub const RIVALS_VARIABLE: &str = "TALLYBOOK_RIVALS";
/// Where it is once built, from the project's directory.
const RIVALS_BUILT: &str = "rivals/target/release/rivals";
const RIVALS_BUILD: &str = "sudo apt-get install -y build-essential librocksdb-dev libleveldb-dev && \
                            cargo build --release --manifest-path rivals/Cargo.toml";

/// The script that has KFS answer the laboratory, from the project's directory.
const KFS_SCRIPT: &str = "rivals/kfs/kfs.js";
/// What is beside it once KFS is installed.
const KFS_INSTALLED: &str = "node_modules/kfs/package.json";
const KFS_INSTALL: &str = "npm install --prefix rivals/kfs";

/// The commands that start targets in processes of their own; an empty one can't be started here.
#[derive(Debug, Clone, Default)]
pub struct Programs {
    /// Speaks the protocol of `child`, with Tallybook in it.
    pub child: Vec<OsString>,
    /// Speaks the protocol of `files`, with Tallybook's file store in it.
    pub files: Vec<OsString>,
    /// As `tallybook serve`; flags follow.
    pub server: Vec<OsString>,
    /// A bare server; the bytes of its values follow.
    pub bare: Vec<OsString>,
    /// Speaks the protocol of `child`, with the rivals in it.
    pub rivals: Option<PathBuf>,
    /// The script that speaks the protocol of `files`, with KFS beside it in `node_modules`.
    pub kfs: Option<PathBuf>,
}

impl Programs {
    /// The `rivals` program: where the variable says, else where it is built.
    pub fn find_rivals() -> Option<PathBuf> {
        match std::env::var_os(RIVALS_VARIABLE) {
            Some(path) => Some(PathBuf::from(path)),
            None => find_above(RIVALS_BUILT),
        }
    }

    /// The script that runs KFS, whether or not KFS is installed beside it.
    pub fn find_kfs() -> Option<PathBuf> {
        find_above(KFS_SCRIPT)
    }

    /// Refuses, before anything is started, subjects that can't be had here.
    pub fn check(&self, runs: &[PlannedRun]) -> Result<()> {
        let wants = |wanted: fn(&Subject) -> bool| runs.iter().any(|run| wanted(&run.subject));
        let of_rivals = |subject: &Subject| {
            let leveldb = Subject::Files { store: FilesStore::LevelDb, buckets: None };
            matches!(subject, Subject::Rival { .. }) || *subject == leveldb
        };
        if wants(of_rivals) && !self.rivals.as_deref().is_some_and(Path::is_file) {
            let looked = match &self.rivals {
                Some(path) => format!("{} is not there", path.display()),
                None => {
                    format!("no {RIVALS_BUILT} here or above, and {RIVALS_VARIABLE} is not set")
                }
            };
            return Err(Error::Invalid(format!(
                "the rivals are not built ({looked}); to build them, in the project's directory:\n  \
                 {RIVALS_BUILD}\nor compare with none: --against tallybook"
            )));
        }
        for run in runs {
            if let Subject::Build { program } = &run.subject
                && !program.is_file()
            {
                return Err(Error::Invalid(format!("there is no program {}", program.display())));
            }
        }
        let of_kfs = |subject: &Subject| matches!(subject, Subject::Files { store, .. } if *store == FilesStore::Kfs);
        let is_installed = |script: &PathBuf| script.with_file_name(KFS_INSTALLED).is_file();
        if wants(of_kfs) && !self.kfs.as_ref().is_some_and(is_installed) {
            let looked = match &self.kfs {
                Some(script) => {
                    format!("{} is not there", script.with_file_name(KFS_INSTALLED).display())
                }
                None => format!("no {KFS_SCRIPT} here or above"),
            };
            return Err(Error::Invalid(format!(
                "KFS is not installed ({looked}); to install it, with Node.js 18 or newer, in the \
                 project's directory:\n  {KFS_INSTALL}\nor leave it out: --against leveldb, or \
                 --against tallybook for no rival"
            )));
        }
        Ok(())
    }

    /// The file of the program that is started for runs on a subject, if one is.
    pub(super) fn file<'a>(&'a self, subject: &'a Subject) -> Option<&'a Path> {
        fn first(words: &[OsString]) -> Option<&Path> {
            words.first().map(Path::new)
        }
        match subject {
            Subject::Engine { .. } | Subject::Floor => first(&self.child),
            Subject::Build { program } => Some(program),
            Subject::Rival { .. } | Subject::Files { store: FilesStore::LevelDb, .. } => {
                self.rivals.as_deref()
            }
            Subject::Server { .. } => first(&self.server),
            Subject::Bare { .. } => first(&self.bare),
            Subject::Files { store: FilesStore::Tallybook, .. } => first(&self.files),
            Subject::Files { store: FilesStore::Kfs, .. } => self.kfs.as_deref(),
            Subject::Url { .. } => None,
        }
    }

    /// The command that starts a store of files.
    fn of_files(&self, store: FilesStore) -> Vec<OsString> {
        let path = |path: &Option<PathBuf>| path.clone().map(PathBuf::into_os_string);
        match store {
            FilesStore::Tallybook => self.files.clone(),
            FilesStore::Kfs => {
                path(&self.kfs).map_or(Vec::new(), |script| vec!["node".into(), script])
            }
            FilesStore::LevelDb => {
                path(&self.rivals).map_or(Vec::new(), |program| vec![program, "files".into()])
            }
        }
    }
}

/// A file of the project, looked for from the current directory upwards.
fn find_above(name: &str) -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|at| at.join(name)).find(|path| path.is_file())
}

/// An open target.
pub(super) enum Opened {
    Child(Box<Child>),
    Files { child: Box<FilesChild>, directory: PathBuf },
    Http { target: Box<HttpTarget>, server: Option<Server>, is_bare: bool },
}

impl Opened {
    /// Opens the subject of a run on the store in `directory`, in a process of the group if one is given.
    pub(super) fn open(
        run: &PlannedRun,
        directory: &Path,
        programs: &Programs,
        group: Option<&MemoryGroup>,
    ) -> Result<Opened> {
        let store = directory.join("store");
        let log = directory.join("server.log");
        let stop = &run.options.load.stop;
        let opening = |name: &str, settings: &BTreeMap<String, String>| Opening {
            name: name.to_owned(),
            directory: store.clone(),
            budget: run.budget.clone(),
            settings: settings.clone(),
        };
        match &run.subject {
            Subject::Engine { settings } => {
                open_child(&programs.child, group, &opening(engine::NAME, settings), stop)
            }
            Subject::Build { program } => {
                // Told what this one is told.
                let mut words = programs.child.clone();
                if let Some(first) = words.first_mut() {
                    *first = program.clone().into_os_string();
                }
                open_child(&words, group, &opening(engine::NAME, &BTreeMap::new()), stop)
            }
            Subject::Floor => {
                open_child(&programs.child, group, &opening(floor::NAME, &BTreeMap::new()), stop)
            }
            Subject::Rival { name } => {
                let program: Vec<OsString> =
                    programs.rivals.iter().map(|path| path.clone().into_os_string()).collect();
                open_child(&program, group, &opening(name, &BTreeMap::new()), stop)
            }
            Subject::Files { store: kind, buckets } => {
                let opening = FilesOpening {
                    name: kind.name().to_owned(),
                    directory: store.clone(),
                    reference_id: files::REFERENCE_ID.to_owned(),
                    durability: run.budget.durability,
                    buckets: *buckets,
                };
                let child = FilesChild::spawn(command(&programs.of_files(*kind), group)?)?;
                let child = child.with_stop(stop.clone()).open(&opening)?;
                Ok(Opened::Files { child: Box::new(child), directory: directory.to_owned() })
            }
            Subject::Server { flags } => {
                let flags = server_flags(run, flags);
                let mut command = command(&programs.server, group)?;
                command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"]);
                command.arg(&store);
                for (name, value) in &flags {
                    command.arg(format!("--{name}={value}"));
                }
                let server = Server::start(command, &run.target, &log, stop)?;
                let mut settings = flags;
                settings.insert("version".into(), env!("CARGO_PKG_VERSION").into());
                let target = HttpTarget::new(server.url())?
                    .with_process(server.process(), Some(store))
                    .with_settings(settings)
                    .with_stop(stop.clone());
                Ok(Opened::Http { target: Box::new(target), server: Some(server), is_bare: false })
            }
            Subject::Bare { body_bytes, keys } => {
                let mut command = command(&programs.bare, group)?;
                command.arg(body_bytes.to_string()).arg(keys.to_string());
                let server = Server::start(command, &run.target, &log, stop)?;
                let mut settings = BTreeMap::from([("body_bytes".into(), body_bytes.to_string())]);
                if *keys > 0 {
                    settings.insert("keys".into(), keys.to_string());
                }
                let target = HttpTarget::new(server.url())?
                    .with_process(server.process(), None)
                    .with_settings(settings)
                    .with_stop(stop.clone());
                Ok(Opened::Http { target: Box::new(target), server: Some(server), is_bare: true })
            }
            Subject::Url { url } => {
                let settings = BTreeMap::from([("url".into(), url.clone())]);
                let target = HttpTarget::new(url)?.with_settings(settings);
                Ok(Opened::Http { target: Box::new(target), server: None, is_bare: false })
            }
        }
    }

    /// Where its profiles are to be had.
    pub(super) fn admin_url(&self) -> Option<&str> {
        match self {
            Opened::Http { server: Some(server), .. } => server.admin_url(),
            _ => None,
        }
    }

    /// Version and settings, for the record.
    pub(super) fn settings(&self) -> BTreeMap<String, String> {
        match self {
            Opened::Child(child) => child.settings().clone(),
            Opened::Files { child, .. } => child.settings().clone(),
            Opened::Http { target, .. } => target.settings(),
        }
    }

    /// As [`run::prefill`].
    pub(super) fn prefill(
        &mut self,
        spec: &Spec,
        options: &RunOptions,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<()> {
        match self {
            Opened::Child(child) => child.prefill(spec, options, watch),
            // It begins empty.
            Opened::Files { .. } => Ok(()),
            // It keeps nothing.
            Opened::Http { is_bare: true, .. } => Ok(()),
            Opened::Http { target, server, .. } => {
                let filled =
                    run::prefill(&**target, spec, options, &mut |progress, _| watch(progress));
                filled.map_err(|error| told_by(server, error))
            }
        }
    }

    /// As [`run::run`].
    pub(super) fn run(
        &mut self,
        spec: &Spec,
        options: &RunOptions,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<Loaded> {
        match self {
            Opened::Child(child) => child.run(spec, options, watch),
            Opened::Files { child, directory } => Ok(files::run(child, spec, options, directory)),
            Opened::Http { target, server, .. } => {
                let mut loaded =
                    run::run(&**target, spec, options, &mut |progress, _| watch(progress))?;
                if let Some(error @ Error::Target { .. }) = loaded.error {
                    let error = told_by(server, error);
                    loaded.outcome.invalid = Some(error.to_string());
                    loaded.error = Some(error);
                }
                if let Some(runs) = server.as_ref().and_then(Server::level0_runs) {
                    loaded.outcome.figures.insert("level0.runs".into(), runs);
                }
                Ok(loaded)
            }
        }
    }

    /// Closes it in order.
    pub(super) fn close(self) -> Result<()> {
        match self {
            Opened::Child(child) => child.close(),
            Opened::Files { child, .. } => child.close(),
            Opened::Http { server: Some(server), .. } => server.stop(),
            Opened::Http { server: None, .. } => Ok(()),
        }
    }
}

fn open_child(
    words: &[OsString],
    group: Option<&MemoryGroup>,
    opening: &Opening,
    stop: &Arc<AtomicBool>,
) -> Result<Opened> {
    let mut child = Child::spawn(command(words, group)?)?.with_stop(stop.clone());
    child.open(opening)?;
    Ok(Opened::Child(Box::new(child)))
}

/// Memory as the engine in process gets it, unless a flag says otherwise.
fn server_flags(run: &PlannedRun, flags: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let buffer_bytes = run.budget.write_buffer_bytes;
    let memtable_bytes = (buffer_bytes / 4).clamp(64 << 10, 1 << 30).min(buffer_bytes);
    let durability = match run.budget.durability {
        Durability::Os => "os",
        Durability::Sync => "sync",
    };
    let mut all = BTreeMap::from([
        ("write-buffer-bytes".to_owned(), buffer_bytes.to_string()),
        ("memtable-bytes".to_owned(), memtable_bytes.to_string()),
        ("block-cache-bytes".to_owned(), run.budget.cache_bytes.to_string()),
        ("durability".to_owned(), durability.to_owned()),
    ]);
    all.extend(flags.clone());
    all
}

/// A server that died tells more than the connection that broke.
fn told_by(server: &mut Option<Server>, error: Error) -> Error {
    match (&error, server) {
        (Error::Target { .. }, Some(server)) => server.ended().unwrap_or(error),
        _ => error,
    }
}
