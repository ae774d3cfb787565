//! A file that is put together beside the path that it is for, and takes that place once it is whole.
//!
//! Whatever keeps it from that, a signal that ends the process included, leaves the path as it was and
//! nothing beside it. SIGKILL does leave the part, whose name, `.tallybook-partial.` and numbers, says what it
//! is.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};

use crate::output::Output;
use crate::process;

/// The part's path while there is one.
type Unfinished = Mutex<Option<PathBuf>>;

/// A file that isn't whole yet.
pub(crate) struct Partial {
    /// What it is written through.
    pub(crate) file: File,
    target: PathBuf,
    unfinished: Arc<Unfinished>,
}

impl Partial {
    /// Begins a file for `path`, where `existing` is what a file there has.
    pub(crate) fn begin(path: &Path, existing: Option<&Metadata>) -> anyhow::Result<Partial> {
        let cannot = |path: &Path| format!("cannot write {}", path.display());
        let target = match existing {
            // A link stays one: what it leads to is replaced.
            Some(_) => fs::canonicalize(path).with_context(|| cannot(path))?,
            None if fs::symlink_metadata(path).is_ok() => {
                bail!("cannot write {}: it is a link that leads nowhere", path.display())
            }
            None => path.to_owned(),
        };
        let unfinished = Arc::new(Unfinished::default());
        let of_signals = unfinished.clone();
        process::do_before_the_end(move || {
            let mut unfinished = lock(&of_signals);
            unfinished.take().map(fs::remove_file);
            // Nothing is begun and nothing takes its place any more.
            std::mem::forget(unfinished);
        })?;
        let mut guard = lock(&unfinished);
        let mode = if existing.is_some() { 0o600 } else { 0o666 };
        let (file, partial) = create_beside(&target, mode)?;
        *guard = Some(partial);
        drop(guard);
        let begun = Partial { file, target, unfinished };
        if let Some(existing) = existing {
            // Before the first byte: who may not read the file that is replaced may not read this one.
            let mut mode = existing.permissions().mode() & 0o777;
            let own = begun.file.metadata().with_context(|| cannot(path))?;
            let (uid, gid) = (existing.uid(), existing.gid());
            let is_given = (own.uid(), own.gid()) == (uid, gid)
                || fchown(&begun.file, Some(uid), Some(gid)).is_ok()
                || own.gid() == gid
                || fchown(&begun.file, None, Some(gid)).is_ok();
            if !is_given {
                // Of another group, which had no part in it.
                mode &= 0o707;
            }
            begun
                .file
                .set_permissions(Permissions::from_mode(mode))
                .with_context(|| cannot(path))?;
        }
        Ok(begun)
    }

    /// Puts it in its place, once it is on disk: what could not be written back, or a power loss, is to leave
    /// what it replaces. Requires: it is whole.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let cannot = || format!("cannot write {}", self.target.display());
        self.file.sync_all().with_context(cannot)?;
        let mut unfinished = lock(&self.unfinished);
        let partial = unfinished.as_ref().expect("a file is finished once");
        fs::rename(partial, &self.target).with_context(cannot)?;
        *unfinished = None;
        drop(unfinished);
        sync_directory_of(&self.target).with_context(cannot)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let removed: Option<io::Result<()>> = lock(&self.unfinished).take().map(fs::remove_file);
        if let Some(Err(error)) = removed {
            tracing::warn!(%error, "a part of a file was left behind");
        }
    }
}

/// Has `copy` write to standard output, or to a file at `path` that is replaced once it has.
pub(crate) fn deliver(
    path: Option<&Path>,
    copy: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // By these names it is standard output that is meant, and not the file that it may be.
    let is_output = |path: &&Path| {
        ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"]
            .iter()
            .any(|name| *path == Path::new(name))
    };
    match path.filter(|path| !is_output(path)) {
        Some(path) => replace(path, copy),
        None => copy(&mut Output::new()),
    }
}

fn replace(
    path: &Path,
    copy: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let existing = match fs::metadata(path) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(error).with_context(|| format!("cannot write {}", path.display()));
        }
    };
    // A device or a pipe is written to; it can't be replaced.
    if existing.as_ref().is_some_and(|metadata| !metadata.is_file()) {
        let mut file = File::options().write(true).open(path)?;
        return copy(&mut file);
    }
    let mut partial = Partial::begin(path, existing.as_ref())?;
    copy(&mut partial.file)?;
    partial.finish()
}

/// Makes a file of a name of its own beside `target`: another process may be writing to the same path, and one
/// of this process's number that was killed may have left its part.
fn create_beside(target: &Path, mode: u32) -> anyhow::Result<(File, PathBuf)> {
    for attempt in 0..100 {
        // Short, as the target's own name may be as long as names can be.
        let name = format!(".tallybook-partial.{}.{attempt}", std::process::id());
        let partial = target.with_file_name(name);
        // Never through a link that was put there for it.
        match File::options().write(true).create_new(true).mode(mode).open(&partial) {
            Ok(file) => return Ok((file, partial)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot write {}", partial.display()));
            }
        }
    }
    bail!("cannot write {}: too many parts of files are beside it", target.display())
}

/// Has a name be on disk, where the directory may be opened and its file system syncs one.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::Unsupported
            ) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

fn lock(unfinished: &Unfinished) -> MutexGuard<'_, Option<PathBuf>> {
    unfinished.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that may be written to and not read, and a path without one.
    #[test]
    fn a_directory_that_can_not_be_synced_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o300)).unwrap();
        sync_directory_of(&dir.path().join("file")).unwrap();
        sync_directory_of(Path::new("file")).unwrap();
        sync_directory_of(Path::new("/proc/self/file")).unwrap();
        assert!(sync_directory_of(&dir.path().join("none/file")).is_err());
    }

    /// In a container the process has the same number each time, and what a killed one left kept every later
    /// one from its path.
    #[test]
    fn a_part_that_was_left_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("n".repeat(255));
        let (_, left) = create_beside(&target, 0o600).unwrap();
        let (_, other) = create_beside(&target, 0o600).unwrap();
        assert_ne!(left, other);
        assert!(left.parent() == target.parent() && other.parent() == target.parent());
    }
}
