//! Whether the disk was read for a thread.
//!
//! How long a read took doesn't tell: a thread whose processor was given to another, or by the host of a virtual
//! machine to another machine, waits as long as for a disk. The system counts for each thread what was read
//! from a device on its account, and the page faults that it waited in.

use std::cell::Cell;
use std::mem::MaybeUninit;

thread_local! {
    /// The count when this thread last asked.
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Whether the disk was read for this thread since it last asked. A call of the system, 0.4 us.
pub(crate) fn since_last_asked() -> bool {
    let count = count_of_this_thread();
    SEEN.with(|seen| seen.replace(count)) != count
}

/// Blocks read for this thread and page faults it waited in, from its start. Linux without the accounting of
/// tasks' reads (`CONFIG_TASK_IO_ACCOUNTING`) tells of the faults alone, and so of reads through a map.
fn count_of_this_thread() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: it writes one structure of this type, which is there, and all zeros are one too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    (usage.ru_inblock as u64).wrapping_add(usage.ru_majflt as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_only_computes_has_read_nothing() {
        // The code of this test itself may have to come from the disk, once.
        let is_quiet = |_| {
            std::hint::black_box((0..10_000u64).fold(0, |sum, at| sum ^ at.rotate_left(7)));
            !since_last_asked()
        };
        assert!((0..10).any(is_quiet));
    }
}
