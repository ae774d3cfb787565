//! The time of many short parts of one long piece of work, added up.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::vfs::cycles;

/// Adds up how long parts took.
#[derive(Debug, Default)]
pub struct Stopwatch {
    cycles: AtomicU64,
}

impl Stopwatch {
    /// Runs `part` and adds how long it took.
    #[inline]
    pub fn time<T>(&self, part: impl FnOnce() -> T) -> T {
        let from = cycles::now();
        let done = part();
        self.cycles.fetch_add(cycles::now().saturating_sub(from), Ordering::Relaxed);
        done
    }

    /// All parts together, in nanoseconds.
    pub fn ns(&self) -> u64 {
        cycles::to_ns(self.cycles.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_the_parts_count() {
        let watch = Stopwatch::default();
        for _ in 0..3 {
            watch.time(|| std::thread::sleep(Duration::from_millis(2)));
        }
        let counted = watch.ns();
        assert!(counted >= 6_000_000, "{counted}");
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(watch.ns(), counted);
    }
}
