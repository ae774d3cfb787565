//! Wall-clock time that threads stand blocked in.
//!
//! 1. 50 times a second the state of every thread is read from `/proc`.
//! 2. One that sleeps is sent a signal and takes its own call stack. A thread deep in the kernel does
//!    so only when it comes out; until then it is not asked again, and each time it is found blocked
//!    counts for the stack it will answer with.
//!
//! The signal cuts short some waits with a time-out (`epoll_wait`, `futex`): the runtime, the standard
//! library and the engine's file system all begin such a wait anew. It is SIGURG, which does nothing
//! in a process that doesn't handle it.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fs;
use std::time::{Duration, Instant};

use super::kind::Refusal;
use super::registers::Registers;
use super::samples::{Claim, Samples};
use super::signals;
use super::stacks::Tally;
use super::threads::threads;

/// How often threads are looked at.
const PERIOD: Duration = Duration::from_millis(20);
/// With more threads than this they are looked at less often.
const THREADS_PER_PERIOD: usize = 64;

static SAMPLES: Samples = Samples::new();

/// Looks at the threads of this process.
pub(super) struct Sampler {
    pub(super) claim: Claim,
    /// Threads that owe a stack, and the time it will count for.
    asked: HashMap<i32, u64>,
    looked: Instant,
    /// Answers that found no place, as counted at the last look.
    lost: u64,
}

impl Sampler {
    pub(super) fn start() -> Result<Sampler, Refusal> {
        let claim = SAMPLES.claim()?;
        signals::install(libc::SIGURG, on_question)?;
        threads().map_err(Refusal::Failed)?;
        claim.open();
        Ok(Sampler { claim, asked: HashMap::new(), looked: Instant::now(), lost: 0 })
    }

    /// Looks at the threads, when it is time to. Requires: the caller is the profile's own thread,
    /// which is left out.
    fn look(&mut self) {
        let passed = self.looked.elapsed();
        let Ok(threads) = threads() else { return };
        let periods = threads.len().div_ceil(THREADS_PER_PERIOD) as u32;
        if passed < PERIOD * periods {
            return;
        }
        self.looked = Instant::now();
        let passed_ns = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: these take no pointers.
        let (process, own) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid) as i32) };
        self.asked.retain(|thread, _| threads.contains(thread));
        let lost = self.claim.lost_weight();
        if std::mem::replace(&mut self.lost, lost) != lost {
            // Whose answers they were isn't known, so everybody may be asked again.
            self.asked.clear();
        }
        for thread in threads {
            if thread == own || !is_blocked(thread) {
                continue;
            }
            if let Some(owed_ns) = self.asked.get_mut(&thread) {
                *owed_ns += passed_ns;
            } else {
                self.asked.insert(thread, passed_ns);
                // It fails when the thread has ended, and then it owes nothing.
                // SAFETY: it takes no pointers, and the signal has a handler.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGURG) };
            }
        }
    }

    /// Adds the answers, then looks at the threads again.
    pub(super) fn collect(&mut self, tally: &mut Tally) {
        let asked = &mut self.asked;
        self.claim.drain(|sample| {
            if let Some(owed_ns) = asked.remove(&sample.thread) {
                tally.add(sample, owed_ns);
            }
        });
        self.look();
    }
}

fn is_blocked(thread: i32) -> bool {
    fs::read(format!("/proc/self/task/{thread}/stat"))
        .is_ok_and(|stat| matches!(state(&stat), Some(b'S' | b'D')))
}

/// The state in a line of `/proc/PID/stat`: the field after the name, which is in parentheses and may
/// hold any byte.
fn state(stat: &[u8]) -> Option<u8> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(name_end + 2).copied()
}

extern "C" fn on_question(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    signals::keeping_errno(|| {
        // SAFETY: the handler was installed with `SA_SIGINFO`.
        let registers = unsafe { Registers::interrupted(context) };
        SAMPLES.record(&registers, 1, None);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_stands_after_a_name_of_any_bytes() {
        assert_eq!(state(b"12 (name) S 1 2"), Some(b'S'));
        assert_eq!(state(b"12 (a) R (b) D 1 2"), Some(b'D'));
        assert_eq!(state(b"12 (name)"), None);
        assert_eq!(state(b""), None);
    }

    #[test]
    fn blocked_thread_is_asked_once_until_it_answers() {
        let mut sampler = Sampler::start().unwrap();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: it takes no pointers.
            tell.send(unsafe { libc::syscall(libc::SYS_gettid) } as i32).unwrap();
            ended.recv().unwrap_err();
        });
        let number = told.recv().unwrap();
        let mut waited_ns = 0;
        while waited_ns == 0 {
            std::thread::sleep(PERIOD);
            sampler.look();
            let mut answers = Vec::new();
            sampler.claim.drain(|sample| {
                answers.push((sample.thread, sample.addresses().len()));
            });
            for (thread, depth) in answers {
                let owed_ns = sampler.asked.remove(&thread).unwrap_or(0);
                if thread == number {
                    assert!(depth > 2);
                    waited_ns = owed_ns;
                }
            }
        }
        drop(end);
        thread.join().unwrap();
    }
}
