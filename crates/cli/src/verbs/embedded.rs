//! Opening the store that a command works on.
//!
//! A command reads with `pread`, so that a damaged disk gives an error and not a SIGBUS, and leaves
//! merging to whoever runs for longer.

use std::path::Path;

use anyhow::Context;
use tallybook::options::{Options, Reading};
use tallybook::store::Store;

use crate::data_dir;

/// What a command does to the store it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It needs a store that exists.
    Existing,
    /// It makes the store if there is none.
    Create,
}

/// Opens the store in `dir`.
pub(crate) fn open(dir: &Path, purpose: Purpose) -> anyhow::Result<Store> {
    let create_if_missing = purpose == Purpose::Create;
    match create_if_missing {
        true => data_dir::prepare(dir)?,
        false => data_dir::check(dir)?,
    }
    let options = Options {
        create_if_missing,
        reading: Reading::Pread,
        background: false,
        ..Options::default()
    };
    Store::open(dir, options).with_context(|| format!("cannot open the store in {}", dir.display()))
}
