//! A store of files, as the laboratory asks it.

use std::collections::BTreeMap;

use super::content::Content;
use crate::error::Result;

/// A store of files in this process. What is timed is each call as a whole.
pub trait FileTarget {
    /// Version and settings, for the record.
    fn settings(&self) -> BTreeMap<String, String>;
    /// Writes a file. It is acknowledged as the store was opened: at once, or synced.
    fn write(&mut self, name: &str, content: &mut Content) -> Result<()>;
    /// Shows a file's bytes in order, verified as the store verifies them; whether there is one.
    fn read(&mut self, name: &str, show: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// Unlinks a file.
    fn unlink(&mut self, name: &str) -> Result<()>;
    /// What it alone can tell, by name.
    fn figures(&self) -> BTreeMap<String, f64>;
    /// Closes it in order.
    fn close(self: Box<Self>) -> Result<()>;
}
