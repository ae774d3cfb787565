//! Signal handlers that take a call stack.
//!
//! A handler, once installed, stays: a signal that is still on its way must not meet the default
//! action, which may end the process. It does nothing while no profile is open. Interrupted system
//! calls are restarted where the system can.

use std::ffi::{c_int, c_void};
use std::io;

use super::kind::Refusal;

pub(super) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Has `handler` called for `signal`, unless somebody else handles it already.
pub(super) fn install(signal: c_int, handler: Handler) -> Result<(), Refusal> {
    let failed = || Refusal::Failed(format!("signal {signal}: {}", io::Error::last_os_error()));
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let mut known: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: it only writes to `known`.
    if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut known) } != 0 {
        return Err(failed());
    }
    if known.sa_sigaction == handler as *const () as usize {
        return Ok(());
    }
    if known.sa_sigaction != libc::SIG_DFL && known.sa_sigaction != libc::SIG_IGN {
        let what = format!("signal {signal} is in use by another part of this program");
        return Err(Refusal::Failed(what));
    }
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler has the form that `SA_SIGINFO` asks for and is async-signal-safe.
    if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(failed());
    }
    Ok(())
}

/// Runs a handler's body and leaves `errno` as the interrupted code had it.
pub(super) fn keeping_errno(body: impl FnOnce()) {
    // SAFETY: the location is this thread's own and valid while it runs.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    body();
    // SAFETY: as above.
    unsafe { *errno = before };
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn first(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
        std::hint::black_box(1);
    }

    extern "C" fn second(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
        std::hint::black_box(2);
    }

    #[test]
    fn handler_of_somebody_else_is_left_alone() {
        let signal = libc::SIGRTMIN() + 9;
        install(signal, first).unwrap();
        install(signal, first).unwrap();
        assert!(matches!(install(signal, second), Err(Refusal::Failed(_))));
        install(signal, first).unwrap();
    }
}
