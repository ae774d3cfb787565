//! The manifest: the log of version edits, and `CURRENT`, which names the live one.
//!
//! 1. A new manifest begins with an edit that makes the whole version; it is synced before `CURRENT`
//!    names it.
//! 2. Each further edit is appended and synced; a mark follows it, unsynced. An unreadable record with
//!    a mark beyond it was synced once, so it is damage; one without is a torn write.
//!
//! Invariant: once `append` has answered `Ok`, the edit is durable. After a failure whose outcome is
//! unknown nothing is written any more. Opening a store begins a new manifest: none is ever continued.

mod record;
mod contents;
mod recover;
#[cfg(test)]
mod test_fs;
mod inspect;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use inspect::inspect;
pub use recover::{RecoveredManifest, recover, recover_file};

use crate::error::{Error, Result};
use crate::file_name;
use crate::version::VersionEdit;
use crate::vfs::{File, FileSystem};

/// A manifest below this size is never rolled.
const ROLL_BYTES_MIN: u64 = 1 << 20;

/// The live manifest, open for appending.
#[derive(Debug)]
pub struct Manifest {
    number: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    /// Where the next record goes.
    end: u64,
    snapshot_end: u64,
    /// Below this size it is never rolled.
    roll_bytes_min: u64,
    /// Nor, after a try that failed, before it has grown to this.
    retry_end: u64,
    poison: Option<String>,
}

impl Manifest {
    /// Writes a new manifest that begins with `snapshot`, and makes it the live one, durably. When it
    /// answers `Ok`, the manifest that was live before may be removed.
    ///
    /// After an `Io` error of a sync or a rename either may be live: the one before must not be appended to;
    /// reopen. After any other the one before is, and nothing of the new one is left.
    pub fn create(
        fs: &dyn FileSystem,
        dir: &Path,
        number: u64,
        snapshot: &VersionEdit,
    ) -> Result<Manifest> {
        let manifest = Manifest::write_new(fs, dir, number, snapshot)?;
        let temporary = match write_temporary(fs, dir, number) {
            Ok(temporary) => temporary,
            Err(error) => {
                // Each try takes a number of its own, and would leave a file of it.
                let _ = fs.remove(&manifest.path);
                return Err(error);
            }
        };
        let current = file_name::current(dir);
        if let Err(source) = fs.rename(&temporary, &current) {
            let error = Error::io("rename", &temporary, source);
            if matches!(error, Error::NoSpace { .. }) {
                let _ = fs.remove(&temporary);
                let _ = fs.remove(&manifest.path);
            }
            return Err(error);
        }
        fs.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))?;
        Ok(manifest)
    }

    /// Goes on in a new manifest that begins with `snapshot`, made live, durably; the file of the one before,
    /// which may be removed. `None`: a new one could not be made, and this one goes on, a mebibyte at least.
    ///
    /// `ReadOnly`: either may be live, and nothing is written any more; reopen.
    pub fn roll(
        &mut self,
        fs: &dyn FileSystem,
        dir: &Path,
        number: u64,
        snapshot: &VersionEdit,
    ) -> Result<Option<PathBuf>> {
        let mut manifest = match Manifest::create(fs, dir, number, snapshot) {
            Ok(manifest) => manifest,
            Err(error @ Error::Io { op: "sync" | "rename", .. }) => return Err(self.poison(error)),
            // `CURRENT`, which is renamed last, still names this one.
            Err(_) => {
                self.retry_end = self.end + self.roll_bytes_min;
                return Ok(None);
            }
        };
        manifest.roll_bytes_min = self.roll_bytes_min;
        Ok(Some(std::mem::replace(self, manifest).path))
    }

    /// Number of the file.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Whether a new manifest would be much smaller: this one is at least 1 MiB and twice what it
    /// began with.
    pub fn should_roll(&self) -> bool {
        let least = self.roll_bytes_min.max(self.snapshot_end.saturating_mul(2));
        self.end >= least.max(self.retry_end)
    }

    /// Has manifests rolled from this size on.
    #[cfg(test)]
    pub(crate) fn roll_from(&mut self, bytes: u64) {
        self.roll_bytes_min = bytes;
    }

    /// Appends an edit and makes it durable.
    ///
    /// `NoSpace`: nothing was recorded; free space and try again. Any other failure is `ReadOnly`, and
    /// so is every later call: whether the edit is on disk can only be told by reopening.
    pub fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        if let Some(cause) = &self.poison {
            return Err(Error::ReadOnly { cause: cause.clone() });
        }
        let bytes = record::edit(self.number, self.end, &edit.encode());
        match self.file.write_all_at(&bytes, self.end).map_err(|e| self.error("write", e)) {
            // Nothing of it was synced, and the next append writes over it.
            Err(error @ Error::NoSpace { .. }) => return Err(error),
            written => written.map_err(|error| self.poison(error))?,
        }
        let synced = self.file.sync_data().map_err(|error| self.error("sync", error));
        synced.map_err(|error| self.poison(error))?;
        self.end += bytes.len() as u64;
        self.mark();
        Ok(())
    }

    /// Writes header and first edit of a new file and syncs both and the name.
    fn write_new(
        fs: &dyn FileSystem,
        dir: &Path,
        number: u64,
        snapshot: &VersionEdit,
    ) -> Result<Manifest> {
        let path = file_name::manifest(dir, number);
        let mut bytes = record::header(number).to_vec();
        bytes.extend(record::edit(number, bytes.len() as u64, &snapshot.encode()));
        let file = write_file(fs, &path, &bytes)?;
        fs.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))?;
        let end = bytes.len() as u64;
        let mut manifest = Manifest {
            number,
            path,
            file,
            end,
            snapshot_end: end,
            roll_bytes_min: ROLL_BYTES_MIN,
            retry_end: 0,
            poison: None,
        };
        manifest.mark();
        Ok(manifest)
    }

    /// Says that everything before it was synced. One that can't be written is left out: it costs
    /// protection, not data, and whatever is wrong will fail the next edit.
    fn mark(&mut self) {
        let bytes = record::mark(self.number, self.end);
        if self.file.write_all_at(&bytes, self.end).is_ok() {
            self.end += bytes.len() as u64;
        }
    }

    fn error(&self, op: &'static str, error: io::Error) -> Error {
        Error::io(op, &self.path, error)
    }

    /// Ends writing; what the caller is told.
    fn poison(&mut self, error: Error) -> Error {
        let cause = error.to_string();
        self.poison = Some(cause.clone());
        Error::ReadOnly { cause }
    }
}

/// Writes the `CURRENT` that names manifest `number`, and syncs it, beside the one that there is.
fn write_temporary(fs: &dyn FileSystem, dir: &Path, number: u64) -> Result<PathBuf> {
    let temporary = file_name::temporary(dir, "CURRENT");
    match fs.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove", &temporary, error));
        }
        _ => {}
    }
    write_file(fs, &temporary, record::current(number).as_bytes())?;
    Ok(temporary)
}

/// Makes a new file of these bytes and syncs it; its name is not durable yet. What can't be written whole is
/// removed.
fn write_file(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Result<Arc<dyn File>> {
    let file = fs.create(path).map_err(|error| Error::io("create", path, error))?;
    let written = match file.write_all_at(bytes, 0) {
        Ok(()) => file.sync_data().map_err(|error| Error::io("sync", path, error)),
        Err(error) => Err(Error::io("write", path, error)),
    };
    match written {
        Ok(()) => Ok(file),
        Err(error) => {
            drop(file);
            let _ = fs.remove(path);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::test_fs::TestFs;

    fn edit(last_seqno: u64) -> VersionEdit {
        VersionEdit { last_seqno: Some(last_seqno), ..VersionEdit::default() }
    }

    fn recovered_seqno(fs: &TestFs) -> u64 {
        recover(fs, Path::new("d")).unwrap().unwrap().version.last_seqno
    }

    #[test]
    fn what_was_appended_is_recovered() {
        let fs = TestFs::default();
        let mut manifest = Manifest::create(&fs, Path::new("d"), 4, &edit(1)).unwrap();
        manifest.append(&edit(2)).unwrap();
        manifest.append(&edit(3)).unwrap();
        let recovered = recover(&fs, Path::new("d")).unwrap().unwrap();
        assert_eq!((recovered.number, recovered.edits, recovered.cut_bytes), (4, 3, 0));
        assert_eq!(recovered.version.last_seqno, 3);
    }

    #[test]
    fn a_new_manifest_replaces_the_live_one() {
        let fs = TestFs::default();
        fs.put(Path::new("d/CURRENT.tmp"), b"left by a crash");
        let mut old = Manifest::create(&fs, Path::new("d"), 4, &edit(1)).unwrap();
        old.append(&edit(2)).unwrap();
        Manifest::create(&fs, Path::new("d"), 9, &edit(2)).unwrap();
        fs.remove(old.path()).unwrap();
        assert_eq!(recover(&fs, Path::new("d")).unwrap().unwrap().number, 9);
        assert_eq!(recovered_seqno(&fs), 2);
    }

    #[test]
    fn a_manifest_rolls_when_it_has_doubled_beyond_1_mib() {
        let fs = TestFs::default();
        let large = |count| VersionEdit { segments_dropped: vec![1; count], ..edit(1) };
        let mut manifest = Manifest::create(&fs, Path::new("d"), 4, &edit(1)).unwrap();
        manifest.append(&large(400_000)).unwrap();
        assert!(!manifest.should_roll(), "{} bytes", manifest.bytes());
        manifest.append(&large(400_000)).unwrap();
        assert!(manifest.should_roll());
        let mut manifest = Manifest::create(&fs, Path::new("d"), 5, &large(1_000_000)).unwrap();
        manifest.append(&large(400_000)).unwrap();
        assert!(!manifest.should_roll(), "it has not doubled");
    }

    #[test]
    fn every_failing_operation_leaves_a_store_that_recovers() {
        // Each run lets one operation more succeed; what was acknowledged must be there in each.
        for allowed in 0.. {
            let fs = TestFs::default();
            let mut manifest = Manifest::create(&fs, Path::new("d"), 4, &edit(1)).unwrap();
            fs.fail_after(allowed);
            let second = manifest.append(&edit(2));
            let third = manifest.append(&edit(3));
            let failed = second.is_err() || third.is_err();
            let acknowledged = match (&second, &third) {
                (_, Ok(())) => 3,
                (Ok(()), _) => 2,
                _ => 1,
            };
            fs.heal();
            if failed {
                assert!(matches!(manifest.append(&edit(4)), Err(Error::ReadOnly { .. })));
            }
            let recovered = recovered_seqno(&fs);
            assert!((acknowledged..=3).contains(&recovered), "{acknowledged} {recovered}");
            if !failed {
                break;
            }
        }
    }

    #[test]
    fn a_failing_roll_leaves_one_of_both_live() {
        for allowed in 0.. {
            let fs = TestFs::default();
            Manifest::create(&fs, Path::new("d"), 4, &edit(7)).unwrap();
            fs.fail_after(allowed);
            let rolled = Manifest::create(&fs, Path::new("d"), 9, &edit(7));
            fs.heal();
            assert_eq!(recovered_seqno(&fs), 7);
            if rolled.is_ok() && fs.failures() == 0 {
                break;
            }
        }
    }

    #[test]
    fn a_roll_that_fails_goes_on_in_the_old_one_or_ends_writing() {
        let (mut went_on, mut ended) = (0, 0);
        for allowed in 0.. {
            let fs = TestFs::default();
            let mut manifest = Manifest::create(&fs, Path::new("d"), 4, &edit(7)).unwrap();
            fs.fail_after(allowed);
            let rolled = manifest.roll(&fs, Path::new("d"), 9, &edit(7));
            let failures = fs.failures();
            fs.heal();
            assert_eq!(recovered_seqno(&fs), 7);
            let appended = manifest.append(&edit(8));
            match rolled {
                Ok(None) => went_on += 1,
                Err(_) => {
                    assert!(matches!(appended, Err(Error::ReadOnly { .. })));
                    ended += 1;
                    continue;
                }
                Ok(Some(old)) => assert_eq!(old, Path::new("d/MANIFEST-000004")),
            }
            appended.unwrap();
            assert_eq!(recovered_seqno(&fs), 8);
            if failures == 0 {
                break;
            }
        }
        // Making and writing two files, the mark in one, what was left of the other; three syncs, then the
        // rename and the one behind it.
        assert_eq!((went_on, ended), (6, 5));
    }

    #[test]
    fn a_full_disk_can_be_freed_and_the_edit_tried_again() {
        let fs = TestFs::default();
        let mut manifest = Manifest::create(&fs, Path::new("d"), 4, &edit(1)).unwrap();
        fs.fill_disk();
        assert!(matches!(manifest.append(&edit(2)), Err(Error::NoSpace { .. })));
        assert_eq!(recovered_seqno(&fs), 1);
        fs.heal();
        manifest.append(&edit(3)).unwrap();
        assert_eq!(recovered_seqno(&fs), 3);
    }
}
