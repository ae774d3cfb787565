//! What programs are, by the bytes of their files: runs of one are never taken for another's.
//!
//! What a program loads besides isn't looked at: the system's libraries, the packages of KFS.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::plan::Subject;
use super::subject::Programs;
use crate::error::{Error, Result};

/// The setting in a record that tells by what program its run was made.
pub(super) const PROGRAM: &str = "program";
/// Hexadecimal digits of a fingerprint.
const DIGITS: usize = 12;

/// Length and time of change of a file that was read.
type Stamp = (u64, Option<SystemTime>);

/// The fingerprints of programs, each read once.
pub(super) struct Fingerprints<'a> {
    programs: &'a Programs,
    known: BTreeMap<PathBuf, (Stamp, String)>,
}

impl<'a> Fingerprints<'a> {
    pub(super) fn new(programs: &'a Programs) -> Fingerprints<'a> {
        Fingerprints { programs, known: BTreeMap::new() }
    }

    /// That of the program by which runs on a subject are made; `None` where none is started, or there is none,
    /// which is refused elsewhere. A program that was replaced since it was first asked for is an error.
    pub(super) fn of(&mut self, subject: &Subject) -> Result<Option<String>> {
        let Some(path) = self.programs.file(subject) else { return Ok(None) };
        let Ok(metadata) = fs::metadata(path) else { return Ok(None) };
        let stamp = (metadata.len(), metadata.modified().ok());
        if let Some((_, known)) = self.known.get(path).filter(|(known, _)| *known == stamp) {
            return Ok(Some(known.clone()));
        }
        let fingerprint = read(path)?;
        match self.known.insert(path.to_owned(), (stamp, fingerprint.clone())) {
            Some((_, before)) if before != fingerprint => Err(Error::Invalid(format!(
                "{} was replaced by another program while runs of it were made",
                path.display()
            ))),
            _ => Ok(Some(fingerprint)),
        }
    }
}

fn read(path: &Path) -> Result<String> {
    let name = || path.display().to_string();
    let mut file = fs::File::open(path).map_err(Error::io(name()))?;
    let mut hasher = blake3::Hasher::new();
    std::io::copy(&mut file, &mut hasher).map_err(Error::io(name()))?;
    Ok(hasher.finalize().to_hex()[..DIGITS].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_replaced_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        let programs = Programs::default();
        let subject = Subject::Build { program: program.clone() };
        let of = |fingerprints: &mut Fingerprints<'_>| fingerprints.of(&subject);
        let mut fingerprints = Fingerprints::new(&programs);
        assert_eq!(of(&mut fingerprints).unwrap(), None);
        fs::write(&program, "one").unwrap();
        let one = of(&mut fingerprints).unwrap();
        assert!(one.as_ref().is_some_and(|one| one.len() == DIGITS));
        assert_eq!(of(&mut fingerprints).unwrap(), one);
        fs::write(&program, "another").unwrap();
        let error = of(&mut fingerprints).unwrap_err().to_string();
        assert!(error.contains("replaced"), "{error}");
        assert_ne!(of(&mut Fingerprints::new(&programs)).unwrap(), one);
    }
}
