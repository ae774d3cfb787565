//! Where a stack begins to tell something: at the request's handler, or at a background thread's work.
//!
//! What stands below is the same in every stack: thread start, runtime, hyper. Frames are recognised
//! by the module they are in, not by a function's name, so that inlining and renaming inside a module
//! don't matter; a test under load fails when none is recognised any more.

use super::kind::Kind;

/// Where a request's own work begins.
const SERVICE: &str = "tallybook_server::service::";
/// Where a connection's work begins that belongs to no request.
const CONNECTION: &str = "tallybook_server::connection::";
/// The profiler itself.
const PROFILER: &str = "tallybook_server::profile::";
/// The thread of a profile.
pub(super) const PROFILER_THREAD: &str = "tallybook-prof";
/// The modules that wait for work rather than do it.
const WAITING: [&str; 3] =
    ["tallybook_server::server::", "tallybook_server::worker::", "tallybook::resources::"];
/// What the engine does, whoever asked for it.
const STORE: &str = "tallybook::store::";
/// Threads on which everything but a request's handling is the runtime.
const RUNTIME_THREADS: [&str; 2] = ["tallybook-http", "tallybook-admin"];
/// Between a lock that was waited for and the profiler.
const WAIT_NOTES: [&str; 3] =
    ["tallybook::waits::", "tallybook::stages::", "core::ops::function::"];

/// The frames to show of a stack, from the root, of a thread that is called `thread`. `None` if it shows a
/// thread that waits for work, which nobody asked about. `full` keeps all but the profiler.
pub(super) fn cut<'a>(
    kind: Kind,
    thread: &'a str,
    frames: &[&'a str],
    full: bool,
) -> Option<Vec<&'a str>> {
    let frames = without_profiler(frames);
    if full {
        return Some(rooted(thread, frames));
    }
    if thread == PROFILER_THREAD {
        return (kind != Kind::OffCpu).then(|| vec![thread]);
    }
    if let Some(at) = position(frames, SERVICE) {
        return Some(frames[at..].to_vec());
    }
    let is_runtime = RUNTIME_THREADS.contains(&thread);
    let work = frames.iter().position(|frame| !is_runtime && is_work(frame));
    match work {
        Some(at) => Some(rooted(thread, &frames[at..])),
        None if kind == Kind::OffCpu => None,
        None => {
            let after_waiting = || frames.iter().rposition(|frame| is_waiting(frame));
            let at = position(frames, CONNECTION)
                .or_else(|| after_waiting().map(|at| at + 1))
                .unwrap_or(0);
            Some(rooted(thread, &frames[at..]))
        }
    }
}

fn rooted<'a>(thread: &'a str, frames: &[&'a str]) -> Vec<&'a str> {
    [&[thread], frames].concat()
}

/// Without the frames that take the sample, at the inner end of those that a thread takes of itself.
fn without_profiler<'a, 'b>(frames: &'b [&'a str]) -> &'b [&'a str] {
    let Some(at) = position(frames, PROFILER) else { return frames };
    let mut rest = &frames[..at];
    while let [before @ .., last] = rest
        && (WAIT_NOTES.iter().any(|module| is_in(last, module)) || last.contains("__rust_"))
    {
        rest = before;
    }
    rest
}

fn is_work(frame: &str) -> bool {
    let is_server = is_in(frame, "tallybook_server::") && !is_waiting(frame);
    is_server || is_in(frame, STORE)
}

fn is_waiting(frame: &str) -> bool {
    WAITING.iter().any(|module| is_in(frame, module))
}

fn position(frames: &[&str], module: &str) -> Option<usize> {
    frames.iter().position(|frame| is_in(frame, module))
}

fn is_in(frame: &str, module: &str) -> bool {
    frame.starts_with(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLER: &str = "tallybook_server::service::call";
    const HYPER: &str = "hyper::proto::h1::dispatch::poll_loop";

    fn check(kind: Kind, thread: &str, frames: &[&str], expected: Option<&[&str]>) {
        assert_eq!(cut(kind, thread, frames, false).as_deref(), expected);
    }

    #[test]
    fn request_begins_at_its_handler() {
        let serve = "tallybook_server::connection::serve";
        let frames = ["clone3", serve, HYPER, HANDLER, "tallybook::store::get"];
        for kind in Kind::ALL {
            check(kind, "tallybook-http", &frames, Some(&frames[3..]));
        }
        let full = cut(Kind::Cpu, "tallybook-http", &frames, true).unwrap();
        assert_eq!((full.len(), full[0]), (6, "tallybook-http"));
    }

    #[test]
    fn work_between_requests_belongs_to_the_thread() {
        let serve = "tallybook_server::connection::{async_fn}";
        let frames = ["clone3", serve, HYPER, "write"];
        let expected = ["tallybook-http", serve, HYPER, "write"];
        check(Kind::Cpu, "tallybook-http", &frames, Some(&expected));
    }

    #[test]
    fn background_thread_begins_at_its_work() {
        let step = "tallybook::store::background::flush_step";
        let frames = ["clone3", "tallybook::resources::work", step, "fdatasync"];
        let expected = ["tally-flush", step, "fdatasync"];
        check(Kind::OffCpu, "tally-flush", &frames, Some(&expected));
        let pool = "tallybook_server::api::{closure}";
        let frames = ["clone3", "tokio::runtime::blocking::pool::run", pool, "pwrite"];
        check(Kind::OffCpu, "tallybook-pool", &frames, Some(&["tallybook-pool", pool, "pwrite"]));
    }

    #[test]
    fn waiting_for_work_is_no_wait() {
        for (thread, frames) in [
            ("tallybook-http", ["tallybook_server::worker::run", "epoll_wait"]),
            ("tally-flush", ["tallybook::resources::work", "syscall"]),
            ("tallybook", ["tallybook_server::server::run", "pthread_join"]),
        ] {
            check(Kind::OffCpu, thread, &frames, None);
            assert!(cut(Kind::OffCpu, thread, &frames, true).is_some());
            check(Kind::Cpu, thread, &frames, Some(&[thread, frames[1]]));
        }
    }

    #[test]
    fn profiler_is_not_shown() {
        check(Kind::Cpu, PROFILER_THREAD, &["clone3", "inferno::f"], Some(&[PROFILER_THREAD]));
        check(Kind::OffCpu, PROFILER_THREAD, &["clone3", "nanosleep"], None);
        let lock = "tallybook::lock::wait";
        let frames = [
            HANDLER,
            lock,
            "tallybook::stages::recorder::note_wait",
            "tallybook::waits::tell",
            "tallybook_server::profile::locks::on_wait",
            "tallybook_server::profile::samples::record",
        ];
        check(Kind::Locks, "tallybook-http", &frames, Some(&[HANDLER, lock]));
        let frames = [
            HANDLER,
            "alloc::vec::with_capacity",
            "alloc::alloc::__rust_alloc",
            "tallybook_server::profile::allocs::alloc",
        ];
        check(Kind::Allocs, "tallybook-http", &frames, Some(&frames[..2]));
    }
}
