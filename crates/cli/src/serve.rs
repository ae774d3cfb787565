//! `serve`: opens a store, serves it until a signal, and leaves it flushed.
//!
//! 1. Settings, log, signals, limits of the process.
//! 2. The stores, then the listeners; one line on standard output says where they are.
//! 3. On SIGTERM or SIGINT: stop accepting, drain, flush, exit 0.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use tallybook::resources::Resources;
use tallybook::store::Store;
use tallybook_files::{CreateOptions, FileStore};
use tallybook_server::Server;

use crate::data_dir;
use crate::exit::Exit;
use crate::log;
use crate::process::{self, StopSignals};
use crate::settings::Settings;

/// Serves until it is asked to stop.
pub(crate) fn run(flags: Settings) -> anyhow::Result<Exit> {
    let settings = flags.over_environment_and_file()?;
    let server_options = settings.server_options()?;
    log::start(settings.log(), settings.log_format())?;
    let signals = prepare_process()?;

    let store = open_store(&settings)?;
    let files = settings.files().map(|dir| open_files(dir, &settings)).transpose()?;
    let close = || {
        let close_files = || files.as_ref().map_or(Ok(()), FileStore::close);
        close_both(
            || store.close().context("cannot close the store"),
            || close_files().context("cannot close the file store"),
        )
    };
    let server = Server::bind_with_files(server_options, store.clone(), files.clone())?;
    if signals.is_stopping() {
        close()?;
        return Ok(Exit::Success);
    }
    let shutdown = server.shutdown_handle();
    signals.on_stop(move || shutdown.shutdown())?;
    announce(&server, &settings);

    let served = server.run().context("the server failed");
    // Whatever ended the serving, what was acknowledged is made safe.
    close()?;
    served?;
    tracing::info!("stopped");
    Ok(Exit::Success)
}

/// Closes both, whatever becomes of the first; answers the first error. What can't be closed has its reasons,
/// which are not the other's.
fn close_both(
    store: impl FnOnce() -> anyhow::Result<()>,
    files: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let of_store = store();
    let of_files = files();
    if let (Err(_), Err(error)) = (&of_store, &of_files) {
        // Only one can be answered.
        tracing::error!(error = format!("{error:#}"), "the file store was not closed either");
    }
    of_store.and(of_files)
}

fn prepare_process() -> anyhow::Result<StopSignals> {
    process::abort_on_panic();
    process::survive_file_size_limit()?;
    let signals = StopSignals::install()?;
    let open_files_max = process::raise_open_files_limit();
    tracing::debug!(?open_files_max, "limit of open files");
    if process::is_root() {
        tracing::warn!("running as root: a user of its own would keep mistakes small");
    }
    Ok(signals)
}

fn open_store(settings: &Settings) -> anyhow::Result<Store> {
    let dir = settings.data();
    data_dir::prepare(dir)?;
    let options = settings.store_options()?;
    let resources =
        Resources::new(settings.resource_options()).context("cannot start the store's threads")?;
    let store = Store::open_with(dir, options, resources)
        .with_context(|| format!("cannot open the store in {}", dir.display()))?;
    let stats = store.stats();
    if stats.torn_bytes > 0 {
        tracing::warn!(
            bytes = stats.torn_bytes,
            records = stats.torn_records,
            "cut off the journal's torn end; nothing that was synced was in it"
        );
    }
    tracing::info!(
        data = %dir.display(),
        version = stats.last_seqno,
        replayed_bytes = stats.replayed_bytes,
        open_ms = stats.open.as_millis() as u64,
        "store opened"
    );
    Ok(store)
}

fn open_files(dir: &Path, settings: &Settings) -> anyhow::Result<FileStore> {
    data_dir::prepare(dir)?;
    let resources = Resources::new(tallybook_files::resource_options())
        .context("cannot start the file store's threads")?;
    let (create, options) = (CreateOptions::default(), settings.file_store_options());
    let files = FileStore::open_or_create(dir, create, options, resources)
        .with_context(|| format!("cannot open the file store in {}", dir.display()))?;
    for problem in files.description_problems() {
        tracing::warn!(problem, "a copy of the file store's description was not as it should be");
    }
    let totals = files.totals();
    tracing::info!(
        files = totals.files,
        file_bytes = totals.file_bytes,
        dir = %dir.display(),
        "file store opened"
    );
    Ok(files)
}

/// Says where the server listens: a line for whoever started it, and one in the log.
fn announce(server: &Server<Store>, settings: &Settings) {
    let mut line = format!("listening on http://{} (data)", server.data_addr());
    if let Some(admin) = server.admin_addr() {
        line.push_str(&format!(", http://{admin} (admin)"));
    }
    if let Some(s3) = server.s3_addr() {
        line.push_str(&format!(", http://{s3} (s3)"));
    }
    tracing::info!(
        data_listener = %server.data_addr(),
        admin_listener = server.admin_addr().map(tracing::field::display),
        s3_listener = server.s3_addr().map(tracing::field::display),
        data = %settings.data().display(),
        "started"
    );
    // Whoever started the server may have closed its standard output; that is no reason to stop.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::anyhow;

    use super::*;

    /// A disk that is full under the store left the file store as after a crash.
    #[test]
    fn both_stores_are_closed_and_the_first_error_is_answered() {
        for (fails, expected) in [
            ([false, false], None),
            ([true, false], Some("store")),
            ([false, true], Some("files")),
            ([true, true], Some("store")),
        ] {
            let closed = Cell::new(0);
            let close = |name: &'static str, fails: bool| {
                closed.set(closed.get() + 1);
                if fails { Err(anyhow!(name)) } else { Ok(()) }
            };
            let outcome = close_both(|| close("store", fails[0]), || close("files", fails[1]));
            assert_eq!(outcome.err().map(|error| error.to_string()).as_deref(), expected);
            assert_eq!(closed.get(), 2);
        }
    }
}
