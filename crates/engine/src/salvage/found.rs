//! What files there are of a store, and which manifest tells what they mean.

use std::path::Path;

use crate::error::{Error, Result};
use crate::file_name::{self, FileKind};
use crate::manifest::{self, RecoveredManifest};
use crate::resources::Resources;
use crate::version::Version;

/// The files of a store, and what its manifest says of them.
pub(super) struct Found {
    /// The version, or why there is none.
    pub(super) manifest: Result<Version, Error>,
    /// What is wrong with the file that names it, if it was found without.
    pub(super) current: Option<Error>,
    /// Numbers of all that are there, ascending.
    pub(super) tables: Vec<u64>,
    /// The same of segments.
    pub(super) segments: Vec<u64>,
}

/// Whether any of these files is one that only a store has.
pub(super) fn is_store(names: &[String]) -> bool {
    names.iter().filter_map(|name| file_name::parse(name)).any(|kind| {
        use FileKind::{Current, Manifest, Segment, Table};
        matches!(kind, Current | Manifest(_) | Segment(_) | Table(_))
    })
}

impl Found {
    pub(super) fn new(resources: &Resources, dir: &Path, names: &[String]) -> Result<Found> {
        let kinds: Vec<FileKind> = names.iter().filter_map(|name| file_name::parse(name)).collect();
        let numbers = |of: fn(FileKind) -> Option<u64>| {
            let mut numbers: Vec<u64> = kinds.iter().filter_map(|kind| of(*kind)).collect();
            numbers.sort_unstable();
            numbers
        };
        let tables = numbers(|kind| match kind {
            FileKind::Table(number) => Some(number),
            _ => None,
        });
        let segments = numbers(|kind| match kind {
            FileKind::Segment(number) => Some(number),
            _ => None,
        });
        let manifests = numbers(|kind| match kind {
            FileKind::Manifest(number) => Some(number),
            _ => None,
        });
        let version = |recovered: RecoveredManifest| recovered.version;
        let mut current = None;
        let manifest = match manifest::recover(&*resources.fs, dir) {
            Ok(Some(recovered)) => Ok(version(recovered)),
            Ok(None) => return Err(no_store(dir)),
            Err(newer @ Error::NewerFormat { .. }) => return Err(newer),
            // Where nothing names another, one alone is the live one.
            Err(error) => match manifests[..] {
                [number] if is_of_current(&error, dir) => {
                    match manifest::recover_file(&*resources.fs, dir, number) {
                        Err(newer @ Error::NewerFormat { .. }) => return Err(newer),
                        Ok(recovered) => {
                            current = Some(error);
                            Ok(version(recovered))
                        }
                        Err(_) => Err(error),
                    }
                }
                _ => Err(error),
            },
        };
        Ok(Found { manifest, current, tables, segments })
    }
}

/// Whether an error is that `CURRENT` is missing, can't be read, or names none.
fn is_of_current(error: &Error, dir: &Path) -> bool {
    matches!(error, Error::Corruption { file, .. } | Error::Io { path: file, .. }
        if *file == file_name::current(dir))
}

pub(super) fn no_store(dir: &Path) -> Error {
    Error::InvalidArgument(format!("{} holds no store", dir.display()))
}
