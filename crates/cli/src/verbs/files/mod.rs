//! `files`: an embedded file store, or with `--url` that of a running server.

mod report;
mod transfer;
mod remote;
mod download;

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};
use tallybook_files::{
    Condition, CopyOptions, CreateOptions, Destination, Durability, Error, FileStore,
    ImportOptions, ImportReport, ListEntry, ListOptions, OpenOptions, Page, Reaped, ReferenceId,
    RepairOptions, Stat, Totals, UnlinkOptions, VerifyOptions, VerifyReport,
};
use tallybook_server::json::verified;

use crate::data_dir;
use crate::exit::{Exit, UsageError, found, report as report_error, say};
use crate::file_arguments::{
    CopyArguments, CreateArguments, FileStoreArguments, FilesArguments, FilesCommand,
    ImportKfsArguments, ListArguments, RepairArguments, UnlinkArguments, VerifyFilesArguments,
};
use crate::key_text::escape;
use crate::output::Output;
use crate::progress::{Progress, Steps};

use report::Setup;

/// Entries of a listing that are asked for at a time.
const PAGE_ENTRIES: usize = 1000;

/// Runs one command on a file store.
pub(crate) fn files(arguments: FilesArguments) -> anyhow::Result<Exit> {
    let store = &arguments.store;
    if let Some(url) = &store.url {
        return remote::files(url, store.json, arguments.command);
    }
    match arguments.command {
        FilesCommand::Create(command) => create(store, command),
        FilesCommand::Write(command) => transfer::write(store, command),
        FilesCommand::Read(command) => transfer::read(store, &command),
        FilesCommand::Unlink(command) => unlink(store, &command),
        FilesCommand::Rename(command) => give_name(store, &command, FileStore::rename),
        FilesCommand::Copy(command) => give_name(store, &command, FileStore::copy),
        FilesCommand::List(command) => list(store, &command),
        FilesCommand::Stat(command) => {
            match open(&store.data)?.stat(&command.name)? {
                Some(stat) => print_stat(store.json, &stat)?,
                None => return Err(not_found(&command.name)),
            }
            Ok(Exit::Success)
        }
        FilesCommand::Totals => totals(store),
        FilesCommand::Verify(command) => verify(store, &command),
        FilesCommand::Repair(command) => repair(store, &command),
        FilesCommand::ImportKfs(command) => import_kfs(store, &command),
    }
}

/// How the commands open a store: what is to be freed is freed before they end.
fn options() -> OpenOptions {
    OpenOptions { background: false, durability: Durability::Sync, ..OpenOptions::default() }
}

/// Opens the store in `dir`.
fn open(dir: &Path) -> anyhow::Result<FileStore> {
    data_dir::check(dir)?;
    opened(dir, FileStore::open(dir, options()))
}

/// A store that was opened. What was wrong with the copies of its description keeps no command from its work.
fn opened(dir: &Path, store: tallybook_files::Result<FileStore>) -> anyhow::Result<FileStore> {
    let store =
        store.with_context(|| format!("cannot open the file store in {}", dir.display()))?;
    for problem in store.description_problems() {
        say(format_args!("tallybook: of the two copies of the store's description, {problem}"));
    }
    Ok(store)
}

/// Frees what the command unlinked, and closes the store. What the command did is done, whether or not all space
/// can be given back now.
fn finish(store: &FileStore) -> anyhow::Result<Exit> {
    if let Err(error) = store.reap() {
        say(format_args!("tallybook: not all space could be given back: {error}"));
    }
    store.close()?;
    Ok(Exit::Success)
}

fn not_found(name: &str) -> anyhow::Error {
    Error::NotFound { name: name.to_owned() }.into()
}

fn create(arguments: &FileStoreArguments, command: CreateArguments) -> anyhow::Result<Exit> {
    data_dir::prepare(&arguments.data)?;
    let parse = |digits: String| {
        let what = || UsageError(format!("{digits:?} is not 40 hex digits"));
        ReferenceId::from_hex(&digits).ok_or_else(what)
    };
    let mut create = CreateOptions {
        reference_id: command.reference_id.map(parse).transpose()?,
        chunk_bytes: u32::try_from(command.chunk.0).unwrap_or(u32::MAX),
        bucket_count: command.buckets,
        bucket_cap_bytes: command.bucket_cap.0,
        ..CreateOptions::default()
    };
    if !command.bucket_dir.is_empty() {
        // Relative to where the command runs, not to the store.
        let absolute = command.bucket_dir.iter().map(std::path::absolute);
        create.bucket_dirs = absolute.collect::<std::io::Result<_>>()?;
    }
    let store = FileStore::create(&arguments.data, create, options())?;
    if arguments.json {
        print(&json!({ "reference_id": store.reference_id().to_string() }))?;
    }
    finish(&store)
}

fn unlink(arguments: &FileStoreArguments, command: &UnlinkArguments) -> anyhow::Result<Exit> {
    let store = open(&arguments.data)?;
    let condition = command.if_version.map(Condition::Version);
    let options = UnlinkOptions { condition, ..UnlinkOptions::default() };
    if !store.unlink(&command.name, options)? {
        return Err(not_found(&command.name));
    }
    finish(&store)
}

fn give_name(
    arguments: &FileStoreArguments,
    command: &CopyArguments,
    give: impl Fn(&FileStore, &str, &str, CopyOptions) -> tallybook_files::Result<Stat>,
) -> anyhow::Result<Exit> {
    let store = open(&arguments.data)?;
    let condition = command.if_absent.then_some(Condition::Absent);
    let options = CopyOptions { condition, ..CopyOptions::default() };
    let stat = give(&store, &command.from, &command.to, options)?;
    if arguments.json {
        print(&report::stat(&stat))?;
    }
    finish(&store)
}

fn list(arguments: &FileStoreArguments, command: &ListArguments) -> anyhow::Result<Exit> {
    let store = open(&arguments.data)?;
    print_list(arguments.json, command, |options| Ok(store.list(options)?))
}

/// Prints what `pages` answers, page by page.
fn print_list(
    is_json: bool,
    command: &ListArguments,
    mut pages: impl FnMut(ListOptions) -> anyhow::Result<Page>,
) -> anyhow::Result<Exit> {
    let mut options = ListOptions {
        prefix: command.prefix.clone(),
        delimiter: command.delimiter.clone(),
        after: command.after.clone(),
        limit: PAGE_ENTRIES,
    };
    let mut left = command.limit.unwrap_or(u64::MAX);
    let mut out = Output::new();
    while left > 0 {
        options.limit = PAGE_ENTRIES.min(usize::try_from(left).unwrap_or(PAGE_ENTRIES));
        let page = pages(options.clone())?;
        for entry in &page.entries {
            match entry {
                entry if is_json => out.json(&report::entry(entry))?,
                ListEntry::File(stat) => {
                    let (time, name) =
                        (report::time(stat.changed_at_ms), escape(stat.name.as_bytes()));
                    writeln!(out, "{:>14}  {time}  {name}", stat.size)?;
                }
                ListEntry::Prefix(prefix) => {
                    writeln!(out, "{:>14}  {:20}  {}", "-", "", escape(prefix.as_bytes()))?;
                }
            }
        }
        left -= page.entries.len() as u64;
        match page.next_after {
            Some(after) => options.after = Some(after),
            None => break,
        }
    }
    out.flush()?;
    Ok(Exit::Success)
}

fn totals(arguments: &FileStoreArguments) -> anyhow::Result<Exit> {
    let store = open(&arguments.data)?;
    let setup = Setup { reference_id: store.reference_id(), chunk_bytes: store.chunk_bytes() };
    print_totals(arguments.json, setup, &store.totals())
}

fn print_totals(is_json: bool, setup: Setup, totals: &Totals) -> anyhow::Result<Exit> {
    let mut out = Output::new();
    match is_json {
        true => out.json(&report::totals(setup, totals))?,
        false => report::write_totals(&mut out, setup, totals)?,
    }
    out.flush()?;
    Ok(Exit::Success)
}

fn verify(arguments: &FileStoreArguments, command: &VerifyFilesArguments) -> anyhow::Result<Exit> {
    let store = open(&arguments.data)?;
    let progress = Progress::new("verify");
    let options = VerifyOptions { bytes_max: command.bytes.map(|bytes| bytes.0) };
    let report = store.verify(options, &mut |done, total| progress.update(done, total))?;
    drop(progress);
    let exit = print_verified(arguments.json, &report)?;
    end_check(exit, store.reap(), store.close())
}

/// How a check ends that found what `exit` says: that not all space could be given back, or the store not be closed,
/// doesn't hide it. Damage in what was to be freed, which the check didn't read, counts as found.
fn end_check(
    exit: Exit,
    reaped: tallybook_files::Result<Reaped>,
    closed: tallybook_files::Result<()>,
) -> anyhow::Result<Exit> {
    let freed = match reaped.context("not all space could be given back") {
        Err(error) if report_error(&error) == Exit::Corruption => Exit::Corruption,
        _ => exit,
    };
    found(freed, closed.map_err(anyhow::Error::from))
}

fn print_verified(is_json: bool, report: &VerifyReport) -> anyhow::Result<Exit> {
    let printed = match is_json {
        true => print(&verified(report)),
        false => write(|out| report::write_verified(out, report)),
    };
    found(exit_if(is_sound(report)), printed)
}

/// Whether everything was read, and is whole.
fn is_sound(report: &VerifyReport) -> bool {
    report.damage.is_empty()
        && report.lost_buckets.is_empty()
        && report.unread_buckets.is_empty()
        && report.unknown_buckets.is_empty()
        && report.unwritten == 0
}

fn repair(arguments: &FileStoreArguments, command: &RepairArguments) -> anyhow::Result<Exit> {
    data_dir::check(&arguments.data)?;
    let options = RepairOptions { unlink_damaged: command.unlink_damaged };
    let report = FileStore::repair(&arguments.data, options)?;
    let printed = match arguments.json {
        true => print(&report::repaired(&report)),
        false => write(|out| report::write_repaired(out, &report)),
    };
    // With the catalogue the names of what was in a lost bucket are gone, too.
    let is_whole = report.old_catalogue.is_none() || report.old_buckets.is_empty();
    // That nobody reads on makes it no more finished; and what it made anew no other repair tells of.
    let ended = match report.unfinished {
        Some(error) => {
            if let Err(unprinted) = &printed {
                report_error(unprinted);
            }
            Err(error).context("the repair did not come to its end, and another is needed")
        }
        None => printed,
    };
    found(exit_if(is_whole && is_sound(&report.verified)), ended)
}

fn import_kfs(
    arguments: &FileStoreArguments,
    command: &ImportKfsArguments,
) -> anyhow::Result<Exit> {
    let options = import_options(command)?;
    let store = transfer::open_or_create(&arguments.data)?;
    let report = import(command, &options, &store)?;
    let exit = print_imported(arguments.json, &report)?;
    found(exit, finish(&store).map(drop))
}

fn import_options(command: &ImportKfsArguments) -> anyhow::Result<ImportOptions> {
    let names = match &command.names {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?
            .lines()
            .map(str::to_owned)
            .collect(),
        None => Vec::new(),
    };
    Ok(ImportOptions { names })
}

fn import<D: Destination>(
    command: &ImportKfsArguments,
    options: &ImportOptions,
    destination: &D,
) -> Result<ImportReport, D::Error> {
    let progress = Steps::new("import", "buckets");
    tallybook_files::import_kfs(&command.path, options, destination, &mut |done, total| {
        progress.update(done, total);
    })
}

fn print_imported(is_json: bool, report: &ImportReport) -> anyhow::Result<Exit> {
    let is_whole = report.problems.iter().all(|problem| problem.is_imported);
    let printed = match is_json {
        true => print(&report::imported(report)),
        false => write(|out| report::write_imported(out, report)),
    };
    found(exit_if(is_whole), printed)
}

fn exit_if(is_sound: bool) -> Exit {
    if is_sound { Exit::Success } else { Exit::Corruption }
}

fn print_stat(is_json: bool, stat: &Stat) -> anyhow::Result<()> {
    if is_json {
        return print(&report::stat(stat));
    }
    write(|out| report::write_stat(out, stat))
}

fn write(text: impl FnOnce(&mut Output) -> std::io::Result<()>) -> anyhow::Result<()> {
    let mut out = Output::new();
    text(&mut out)?;
    Ok(out.flush()?)
}

fn print(value: &Value) -> anyhow::Result<()> {
    let mut out = Output::new();
    out.json(value)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use tallybook::Error as EngineError;

    use super::*;

    /// A script saw a full disk where there was damage, which only the text told of.
    #[test]
    fn what_fails_behind_a_check_does_not_hide_what_it_found() {
        let full = || Error::Engine(EngineError::NoSpace { path: PathBuf::from("bucket") });
        let damaged = || Error::Engine(EngineError::corruption(Path::new("bucket"), 0, "x"));
        let reaped = || Ok(Reaped::default());
        for exit in [Exit::Corruption, Exit::Success] {
            assert_eq!(end_check(exit, reaped(), Ok(())).unwrap(), exit);
            assert_eq!(end_check(exit, Err(full()), Ok(())).unwrap(), exit);
            assert_eq!(end_check(exit, Err(damaged()), Ok(())).unwrap(), Exit::Corruption);
        }
        assert_eq!(end_check(Exit::Corruption, reaped(), Err(full())).unwrap(), Exit::Corruption);
        assert!(end_check(Exit::Success, reaped(), Err(full())).is_err());
    }
}
