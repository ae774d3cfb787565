//! Files that hold secrets, which nobody but their owner may read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::exit::UsageError;

/// Mode bits that let others than the owner at a file.
const OPEN_TO_OTHERS: u32 = 0o077;

/// The text of a file that holds a secret, `what`. Refuses one that others may read or write, as who knows
/// the secret may do whatever it is for. Judged is the file that is read, whatever comes under its name.
pub(crate) fn read_secret(path: &Path, what: &str) -> Result<String, UsageError> {
    let refuse = |why: &str| UsageError(format!("{what} in {}: {why}", path.display()));
    let read = || -> io::Result<(u32, String)> {
        let mut file = File::open(path)?;
        let mode = file.metadata()?.permissions().mode();
        let mut text = String::new();
        if mode & OPEN_TO_OTHERS == 0 {
            file.read_to_string(&mut text)?;
        }
        Ok((mode, text))
    };
    match read() {
        Err(error) => Err(refuse(&error.to_string())),
        Ok((mode, _)) if mode & OPEN_TO_OTHERS != 0 => Err(refuse(&format!(
            "others may read the file (mode {:04o}); chmod 600 it",
            mode & 0o7777
        ))),
        Ok((_, text)) => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

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
