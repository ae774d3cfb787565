//! A manifest as text, for people.
//!
//! Shows as much as can be read: damage is a line of the text, not an error.

use std::fmt::Write;
use std::path::Path;

use super::record::{self, HEADER_BYTES, HeaderError, Record};
use super::recover::read;
use crate::error::{Error, Result};
use crate::file_name::{self, FileKind};
use crate::version::VersionEdit;
use crate::vfs::FileSystem;

/// The records of the manifest at `path`, each with its offset, and one line per field of each edit.
pub fn inspect(fs: &dyn FileSystem, path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(FileKind::Manifest(number)) = name.and_then(file_name::parse) else {
        return Err(Error::InvalidArgument(format!("{} is not a manifest", path.display())));
    };
    let Some(bytes) = read(fs, path)? else {
        return Err(Error::InvalidArgument(format!("{} is missing", path.display())));
    };
    let mut text = format!("manifest {number}, {} bytes\n", bytes.len());
    match record::check_header(&bytes, number) {
        Ok(()) => write_records(&mut text, &bytes, number),
        Err(HeaderError::Damaged(what)) => writeln!(text, "0: damaged: {what}"),
        Err(HeaderError::Newer(version)) => writeln!(text, "0: newer format version {version}"),
    }
    .expect("a string takes all that is written to it");
    Ok(text)
}

fn write_records(text: &mut String, bytes: &[u8], number: u64) -> std::fmt::Result {
    let mut offset = HEADER_BYTES;
    while offset < bytes.len() {
        let Some((record, end)) = record::read(bytes, number, offset) else {
            let left = bytes.len() - offset;
            return match record::mark_beyond(bytes, number, offset) {
                true => writeln!(text, "{offset}: damaged: a mark stands beyond"),
                false => writeln!(text, "{offset}: torn: {left} bytes"),
            };
        };
        match record {
            Record::Mark => writeln!(text, "{offset}: mark")?,
            Record::Edit(payload) => {
                writeln!(text, "{offset}: edit, {} bytes", payload.len())?;
                match VersionEdit::decode(payload) {
                    Ok(edit) => {
                        edit.to_string().lines().try_for_each(|line| writeln!(text, "  {line}"))?;
                    }
                    Err(what) => writeln!(text, "  damaged: {what}")?,
                }
            }
        }
        offset = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;
    use crate::manifest::test_fs::TestFs;

    #[test]
    fn a_manifest_prints_line_by_line() {
        let fs = TestFs::default();
        let first = VersionEdit { last_seqno: Some(5), ..VersionEdit::default() };
        let mut manifest = Manifest::create(&fs, Path::new("d"), 4, &first).unwrap();
        let second = VersionEdit { next_file_number: Some(9), ..VersionEdit::default() };
        manifest.append(&second).unwrap();
        let path = manifest.path();
        let records = "32: edit, 2 bytes\n  last seqno 5\n43: mark\n52: edit, 2 bytes\n  \
                       next file number 9\n63: mark\n";
        let expected = format!("manifest 4, 72 bytes\n{records}");
        assert_eq!(inspect(&fs, path).unwrap(), expected);

        let whole = fs.get(path);
        fs.put(path, &[&whole[..], b"xyz"].concat());
        let expected = format!("manifest 4, 75 bytes\n{records}72: torn: 3 bytes\n");
        assert_eq!(inspect(&fs, path).unwrap(), expected);

        let mut flipped = whole;
        flipped[45] ^= 1;
        fs.put(path, &flipped);
        assert!(inspect(&fs, path).unwrap().ends_with("43: damaged: a mark stands beyond\n"));
    }

    #[test]
    fn only_manifests_are_inspected() {
        let fs = TestFs::default();
        for path in ["d/CURRENT", "d/MANIFEST-000009"] {
            let refused = inspect(&fs, Path::new(path));
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{path}");
        }
    }
}
