//! A thread that does something at a steady pace until it is dropped.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Ends its thread when dropped, after the work under way.
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Does `work` at once, then each `period`. Periods that passed while it was busy are left out.
    pub(crate) fn start(
        name: &str,
        period: Duration,
        mut work: impl FnMut() + Send + 'static,
    ) -> io::Result<Ticker> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut due = Instant::now();
            loop {
                work();
                let now = Instant::now();
                while due <= now {
                    due += period;
                }
                if stopped.recv_timeout(due - now) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Ticker { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // Its panic was printed, and what it did for show harms nothing else.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    #[test]
    fn work_is_done_again_and_again_until_the_ticker_is_dropped() {
        let (told, hear) = mpsc::channel();
        let rounds = Arc::new(AtomicU64::new(0));
        let counted = rounds.clone();
        let ticker = Ticker::start("ticker-test", Duration::from_millis(1), move || {
            counted.fetch_add(1, SeqCst);
            let _ = told.send(());
        });
        for _ in 0..3 {
            hear.recv().unwrap();
        }
        drop(ticker.unwrap());
        let ended_at = rounds.load(SeqCst);
        assert_eq!(hear.iter().count() as u64 + 3, ended_at, "the thread has ended");
    }
}
