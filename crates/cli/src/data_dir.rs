//! A store's directory as this command demands it: there, and writable by its owner alone.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, bail};

/// Mode bits that let others than the owner write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Makes the directory (mode 0700) if it is missing, then checks it.
pub(crate) fn prepare(dir: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot make the data directory {}", dir.display()))?;
    check(dir)
}

/// Refuses a directory that is missing, is no directory, or that others may write: whoever can
/// replace a store's files can make it answer anything.
pub(crate) fn check(dir: &Path) -> anyhow::Result<()> {
    let metadata = match fs::metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no data directory {} (name one with --data)", dir.display())
        }
        other => {
            other.with_context(|| format!("cannot read the data directory {}", dir.display()))?
        }
    };
    if !metadata.is_dir() {
        bail!("{} is not a directory", dir.display());
    }
    let mode = metadata.permissions().mode();
    if mode & WRITABLE_BY_OTHERS != 0 {
        bail!(
            "the data directory {dir} may be written by others (mode {mode:04o}): \
             run `chmod go-w {dir}` first",
            dir = dir.display(),
            mode = mode & 0o7777
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_directory_belongs_to_its_owner_alone() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("a/b");
        prepare(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [0o770, 0o707, 0o1777] {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert!(check(dir.path()).is_err(), "{mode:o}");
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        check(dir.path()).unwrap();
    }

    #[test]
    fn a_missing_directory_and_a_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check(&dir.path().join("missing")).is_err());
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(check(&file).is_err());
    }
}
