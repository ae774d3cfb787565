//! Files that hold secrets, which nobody but who needs them may read.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use crate::exit::UsageError;

/// Mode bits that let others than the owner at a file.
const OPEN_TO_OTHERS: u32 = 0o077;
/// Of those, the ones that a file of root's may not have for a process that isn't root's: it is given the file
/// through its group, as systemd and Kubernetes do.
const OPEN_TO_STRANGERS: u32 = 0o037;

/// The mode bits that a file has too many, for a process of a user.
fn too_open(mode: u32, owner: u32, user: u32) -> u32 {
    match owner == 0 && user != 0 {
        true => mode & OPEN_TO_STRANGERS,
        false => mode & OPEN_TO_OTHERS,
    }
}

/// The text of a file that holds a secret, `what`. Refuses one that others may read or write, as who knows
/// the secret may do whatever it is for. Judged is the file that is read, whatever comes under its name.
pub(crate) fn read_secret(path: &Path, what: &str) -> Result<String, UsageError> {
    let refuse = |why: &str| UsageError(format!("{what} in {}: {why}", path.display()));
    let is_too_open = |of: &Metadata| too_open(of.mode(), of.uid(), geteuid().as_raw()) != 0;
    let read = || -> io::Result<(Metadata, String)> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        let mut text = String::new();
        if !is_too_open(&metadata) {
            file.read_to_string(&mut text)?;
        }
        Ok((metadata, text))
    };
    match read() {
        Err(error) => Err(refuse(&error.to_string())),
        Ok((of, _)) if is_too_open(&of) => {
            let way = if of.uid() == geteuid().as_raw() {
                "chmod 600 it"
            } else {
                "chmod 640 it at most"
            };
            let mode = of.mode() & 0o7777;
            Err(refuse(&format!("others may read the file (mode {mode:04o}); {way}")))
        }
        Ok((_, text)) => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What systemd gives a service as a credential is root's, and its group's to read.
    #[test]
    fn a_file_of_roots_may_be_read_through_its_group() {
        for (mode, owner, user, is_refused) in [
            (0o100440, 0, 1000, false),
            (0o100640, 0, 1000, false),
            (0o100440, 1000, 1000, true),
            (0o100440, 0, 0, true),
            (0o100444, 0, 1000, true),
            (0o100460, 0, 1000, true),
            (0o100600, 1000, 1000, false),
        ] {
            assert_eq!(too_open(mode, owner, user) != 0, is_refused, "{mode:o} {owner} {user}");
        }
    }

    #[test]
    fn a_secret_is_read_only_where_its_owner_alone_may() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "word\n").unwrap();
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_secret(&path, "the token").unwrap(), "word\n");
        }
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let refused = read_secret(&path, "the token").unwrap_err().to_string();
            assert!(
                refused.starts_with("the token in ") && refused.contains("chmod 600"),
                "{refused}"
            );
        }
        assert!(read_secret(&dir.path().join("missing"), "the token").is_err());
    }
}
