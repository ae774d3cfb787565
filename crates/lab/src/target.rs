//! What is loaded: a store in this process, a server over HTTP, a rival in a child process.
//!
//! A [`Target`] is one store, opened with settings. A [`Session`] is one thread's or connection's way
//! to it. The load generators know nothing else of what they load.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::Result;
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

/// Settings that every target gets alike, so that none is favoured.
#[derive(Debug, Clone)]
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
    /// Waits until background work is done: flushed, compacted as far as it goes by itself.
    fn settle(&self) -> Result<()>;
    /// Where its files are, if they are on this machine.
    fn directory(&self) -> Option<&Path>;
    /// The process that does its work, if it isn't this one.
    fn process(&self) -> Option<u32>;
    /// What it alone can tell, by name.
    fn figures(&self) -> BTreeMap<String, f64>;
    /// Closes it in order.
    fn close(self: Box<Self>) -> Result<()>;
}
