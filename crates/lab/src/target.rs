//! What is loaded: a store in this process, a server over HTTP, a rival in a child process.
//!
//! A [`Target`] is one store, opened with settings. A [`Session`] is one thread's or connection's way
//! to it; [`Connections`] are many ways that one thread drives at once, where a target has them. The
//! load generators know nothing else of what they load.

pub mod engine;
pub mod floor;
pub mod http;
pub mod nothing;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::process::{Process, QUIET};
use crate::spec::Durability;

/// One request, by reference to what the generator holds.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// Set a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Ask for a value.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Ask whether a key is there and how long its value is, without the value where possible.
    Head {
        /// The key.
        key: &'a [u8],
    },
    /// Delete a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Read up to `count` keys with their values, in order, from `start` on.
    Scan {
        /// The first key, or what would be just before it.
        start: &'a [u8],
        /// Most keys to read; `u64::MAX` for all.
        count: u64,
    },
}

/// What a session tells of an answer. Values are shown, not handed over, so that a target that reads
/// without copying isn't made to copy.
pub trait Answers {
    /// The value of a `Get`; `None` when the key is absent.
    fn value(&mut self, value: Option<&[u8]>);
    /// The length of a value, of a `Head`; `None` when the key is absent.
    fn length(&mut self, length: Option<u64>);
    /// One pair of a `Scan`, in order.
    fn pair(&mut self, key: &[u8], value: &[u8]);
    /// A write was acknowledged.
    fn written(&mut self);
    /// The target refused or failed: a status such as `503`, or its error's kind.
    fn failed(&mut self, kind: &str);
}

/// What a request that was waited for too long failed by.
pub const TIME_OUT: &str = "time-out";

/// One thread's or connection's way to a target.
pub trait Session: Send {
    /// Makes one request and tells of its answer. An `Err` ends the run: the target is gone.
    fn perform(&mut self, request: Request<'_>, answers: &mut dyn Answers) -> Result<()>;

    /// As `perform` of several at once, in order; targets that can have several under way do.
    fn perform_all(
        &mut self,
        requests: &[Request<'_>],
        answers: &mut dyn FnMut(usize) -> Box<dyn Answers>,
    ) -> Result<()> {
        for (at, request) in requests.iter().enumerate() {
            self.perform(*request, &mut *answers(at))?;
        }
        Ok(())
    }
}

/// Who asks over [`Connections`], and is told.
pub trait Desk {
    /// Where the answer to the request of this token is to be told.
    fn answers(&mut self, token: u64) -> &mut dyn Answers;
    /// All of that answer has been told.
    fn answered(&mut self, token: u64);
    /// What to send on this connection now, if anything.
    fn refill(&mut self, connection: usize, out: &mut dyn Out);
}

/// The way out of one connection.
pub trait Out {
    /// Queues a request behind those that were sent before; its answer comes under the token.
    fn send(&mut self, token: u64, request: Request<'_>);
}

/// Many connections to a target, driven by one thread. Each answers its requests in order.
pub trait Connections: Send {
    /// Lets the desk send on one connection, without waiting for anything.
    fn offer(&mut self, connection: usize, desk: &mut dyn Desk) -> Result<()>;

    /// Waits up to `wait` for answers, tells them, and lets the desk send where some came. Says how
    /// long it waited. An `Err` ends the run: the target is gone.
    fn turn(&mut self, wait: Duration, desk: &mut dyn Desk) -> Result<Duration>;
}

/// Settings that every target gets alike, so that none is favoured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Memory for buffered writes.
    pub write_buffer_bytes: u64,
    /// Memory for caches of its own, the page cache apart.
    pub cache_bytes: u64,
    /// What an acknowledged write must survive.
    pub durability: Durability,
}

/// One store that can be loaded.
pub trait Target: Send + Sync {
    /// Its name: `tallybook`, `rocksdb`, `http://…`.
    fn name(&self) -> &str;
    /// Version and settings, for the record.
    fn settings(&self) -> BTreeMap<String, String>;
    /// A way to it for one more thread or connection.
    fn session(&self) -> Result<Box<dyn Session>>;
    /// So many connections that one thread drives; `None` when the target has sessions only.
    fn connections(&self, _count: u32) -> Result<Option<Box<dyn Connections>>> {
        Ok(None)
    }
    /// Whether its work is done outside of this process.
    fn is_remote(&self) -> bool {
        self.process().is_some()
    }
    /// Waits until background work is done: flushed, compacted as far as it goes by itself. Answers the
    /// CPU time that this process took to look whether it is, which isn't the target's.
    fn settle(&self) -> Result<Duration>;
    /// Where its files are, if they are on this machine.
    fn directory(&self) -> Option<&Path>;
    /// The process that does its work, if it isn't this one.
    fn process(&self) -> Option<u32>;
    /// A run begins: figures that count do so from here.
    fn begin(&self) {}
    /// What it alone can tell, by name.
    fn figures(&self) -> BTreeMap<String, f64>;
    /// Closes it in order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The longest that a server is waited for.
const SETTLE_MAX: Duration = Duration::from_secs(600);

/// Waits until a process has done next to nothing for [`QUIET`]; one that can't be watched is given as long. Once
/// `stop` is set it isn't waited for.
fn settle_by_cpu(process: Option<u32>, stop: &AtomicBool) -> Result<Duration> {
    match process.map(Process::new) {
        None => std::thread::sleep(QUIET),
        Some(process) if process.wait_until_quiet(SETTLE_MAX, stop)? => {}
        Some(process) => {
            let what = format!("process {} isn't at rest after {SETTLE_MAX:?}", process.id());
            return Err(Error::Invalid(what));
        }
    }
    // The work is another process's, and so is its time.
    Ok(Duration::ZERO)
}
