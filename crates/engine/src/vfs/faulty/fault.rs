//! Faults: what goes wrong, for which operations, and what did.
//!
//! Invariant: every operation is counted once and hit by at most one fault.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;

/// Operations by what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationClass {
    /// All of them.
    Any,
    /// Those that look: `list`, `is_dir_empty`, `open`, `open_read`, `lock_existing`, `available_bytes`,
    /// `exists`, `len`, `read_exact_at`, `read_once_at`, `read_cached_at`, `map`.
    Reads,
    /// Those that change: `create_dir_all`, `create`, `rename`, `remove`, `hard_link`, `lock`,
    /// `write_all_at`, `set_len`, `allocate`, `map_segment`, `populate`, `write_zeros`.
    Writes,
    /// `sync_data` and `sync_dir`.
    Syncs,
}

/// The error of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultError {
    /// A number of the operating system, such as that of `EIO`.
    Errno(i32),
    /// A kind without a number.
    Kind(io::ErrorKind),
}

impl From<FaultError> for io::Error {
    fn from(error: FaultError) -> io::Error {
        match error {
            FaultError::Errno(errno) => io::Error::from_raw_os_error(errno),
            FaultError::Kind(kind) => kind.into(),
        }
    }
}

/// What goes wrong, and for which operations.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// What the operation answers.
    pub error: FaultError,
    /// Whether every matching operation from then on fails, until `clear`.
    pub sticky: bool,
    /// Whether a `write_all_at` that is hit writes the first half of its bytes.
    pub short_write: bool,
    /// Operations that are hit.
    pub class: OperationClass,
    /// The operation succeeds after this long, instead of failing.
    pub delay: Option<Duration>,
    /// Of those, the ones for which this is true of name and path.
    pub only: Option<fn(&str, &Path) -> bool>,
}

impl Fault {
    /// A fault of any one operation, with an error number of the operating system.
    pub fn errno(errno: i32) -> Self {
        Self::new(FaultError::Errno(errno))
    }

    /// A fault of any one operation, with a kind of error.
    pub fn kind(kind: io::ErrorKind) -> Self {
        Self::new(FaultError::Kind(kind))
    }

    /// A fault that makes any one operation take longer by this, and does no other harm.
    pub fn delay(delay: Duration) -> Self {
        let fault = Self::kind(io::ErrorKind::TimedOut);
        Fault { delay: Some(delay), ..fault }
    }

    fn new(error: FaultError) -> Self {
        let class = OperationClass::Any;
        Fault { error, sticky: false, short_write: false, class, delay: None, only: None }
    }

    /// Hits every matching operation from then on.
    pub fn sticky(self) -> Self {
        Fault { sticky: true, ..self }
    }

    /// Lets a write that is hit write half of its bytes.
    pub fn short_write(self) -> Self {
        Fault { short_write: true, ..self }
    }

    /// Hits operations of one class.
    pub fn class(self, class: OperationClass) -> Self {
        Fault { class, ..self }
    }

    /// Hits operations for which `only` is true of name and path.
    pub fn only(self, only: fn(&str, &Path) -> bool) -> Self {
        Fault { only: Some(only), ..self }
    }

    fn matches(&self, class: OperationClass, operation: &str, path: &Path) -> bool {
        (self.class == OperationClass::Any || self.class == class)
            && self.only.is_none_or(|only| only(operation, path))
    }
}

/// An operation that failed by a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiredOperation {
    /// Its ordinal.
    pub ordinal: u64,
    /// The name of the trait's method.
    pub operation: &'static str,
    /// The file or directory it was for; a rename's or link's new name.
    pub path: PathBuf,
}

/// The faults that are armed and those that fired.
#[derive(Debug, Default)]
pub(super) struct Faults {
    state: Mutex<FaultState>,
}

#[derive(Debug, Default)]
struct FaultState {
    operation_count: u64,
    armed: Vec<(u64, Fault)>,
    fired: u64,
    last_fired: Option<FiredOperation>,
}

impl Faults {
    pub(super) fn operation_count(&self) -> u64 {
        self.state.lock().operation_count
    }

    pub(super) fn arm(&self, ordinal: u64, fault: Fault) {
        self.state.lock().armed.push((ordinal, fault));
    }

    pub(super) fn disarm(&self) {
        self.state.lock().armed.clear();
    }

    pub(super) fn fired(&self) -> u64 {
        self.state.lock().fired
    }

    pub(super) fn last_fired(&self) -> Option<FiredOperation> {
        self.state.lock().last_fired.clone()
    }

    /// Counts an operation; the fault that it fails by, if one does. Sits out a delay.
    pub(super) fn count(
        &self,
        class: OperationClass,
        operation: &'static str,
        path: &Path,
    ) -> Option<Fault> {
        let mut state = self.state.lock();
        state.operation_count += 1;
        let ordinal = state.operation_count;
        let due =
            |(at, fault): &(u64, Fault)| *at <= ordinal && fault.matches(class, operation, path);
        let place = state.armed.iter().position(due)?;
        let (_, fault) = state.armed[place];
        if !fault.sticky {
            state.armed.remove(place);
        }
        state.fired += 1;
        state.last_fired = Some(FiredOperation { ordinal, operation, path: path.to_owned() });
        drop(state);
        match fault.delay {
            Some(delay) => {
                std::thread::sleep(delay);
                None
            }
            None => Some(fault),
        }
    }

    /// Counts an operation; its error, if a fault hits it.
    pub(super) fn check(
        &self,
        class: OperationClass,
        operation: &'static str,
        path: &Path,
    ) -> io::Result<()> {
        match self.count(class, operation, path) {
            Some(fault) => Err(fault.error.into()),
            None => Ok(()),
        }
    }
}
