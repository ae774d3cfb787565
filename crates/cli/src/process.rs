//! What a command asks of its process: signals, limits, and to die rather than limp.

use std::ffi::c_int;
use std::fs;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// The signals that ask the process to stop. A first one asks, a second one ends it at once.
pub(crate) struct StopSignals {
    stopping: Arc<AtomicBool>,
    signals: Signals,
}

impl StopSignals {
    /// Takes over SIGTERM and SIGINT, also where they are ignored: what is served outlives whoever started it,
    /// and these are how it is asked to end.
    ///
    /// The exit on a second signal is an action of the signal handler itself, so that it works
    /// however stuck the rest of the process is.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // The order counts: a first signal finds the flag unset and sets it.
            flag::register_conditional_shutdown(signal, 128 + signal, stopping.clone())
                .and_then(|_| flag::register(signal, stopping.clone()))
                .context("cannot take over the stop signals")?;
        }
        let signals =
            Signals::new([SIGTERM, SIGINT]).context("cannot take over the stop signals")?;
        Ok(StopSignals { stopping, signals })
    }

    /// Whether a stop was asked for.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Runs `stop` when the first signal comes, also when it has come already.
    pub(crate) fn on_stop(mut self, stop: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                if self.signals.forever().next().is_some() {
                    stop();
                }
            })
            .context("cannot start the signal thread")?;
        Ok(())
    }
}

/// A flag that SIGTERM and SIGINT set. No second one ends the process at once: what it started would be
/// left behind.
pub(crate) fn stop_when_asked() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        flag::register(signal, stop.clone()).context("cannot take over the stop signals")?;
    }
    Ok(stop)
}

/// Has the signals that end a command do `act` first, and then end the process as they do by themselves. Those
/// that are ignored, and end nothing, stay so.
pub(crate) fn do_before_the_end(act: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let ends = [SIGTERM, SIGINT, SIGHUP, SIGQUIT].into_iter().filter(|&it| !is_ignored(it));
    let mut signals = Signals::new(ends).context("cannot take over the stop signals")?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            act();
            // It can't fail for these.
            let _ = emulate_default_handler(signal);
        }
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(wait)
        .context("cannot start the signal thread")?;
    Ok(())
}

/// Whether a signal is ignored: as `nohup` has SIGHUP, and a shell without job control SIGINT and SIGQUIT of
/// what it starts in the background. Requires: nothing of ours took the signal over.
fn is_ignored(signal: c_int) -> bool {
    // Where there is no such file, nothing counts as ignored.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    ignored.is_some_and(|bits| bits >> (signal - 1) & 1 == 1)
}

/// Makes a file that would grow beyond a limit an error (EFBIG) instead of the process's end.
/// SIGPIPE needs nothing: Rust ignores it from the start.
pub(crate) fn survive_file_size_limit() -> anyhow::Result<()> {
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))
        .context("cannot take over SIGXFSZ")?;
    Ok(())
}

/// Raises the soft limit of open files to the hard one; answers the limit in force.
pub(crate) fn raise_open_files_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files");
            limit.current
        }
    }
}

/// Whether the process may do everything.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Ends the process when any thread panics: a broken invariant in one thread must not leave the
/// others writing.
pub(crate) fn abort_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
}
