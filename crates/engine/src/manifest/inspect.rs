//! A manifest as text, for people.
//!
//! Shows as much as can be read: damage is a line of the text, and counted, not an error.

use std::fmt::Write;
use std::path::Path;

use super::contents::Contents;
use super::record::{self, HEADER_BYTES, HeaderError, Record};
use crate::error::{Error, Result};
use crate::file_name::{self, FileKind};
use crate::version::VersionEdit;
use crate::vfs::FileSystem;

/// Writes the records of the manifest at `path` to `text`, each with its offset, and one line per field of each
/// edit. Answers the number of those that are damaged; a torn end is not.
pub fn inspect(fs: &dyn FileSystem, path: &Path, text: &mut String) -> Result<u64> {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(FileKind::Manifest(number)) = name.and_then(file_name::parse) else {
        return Err(Error::InvalidArgument(format!("{} is not a manifest", path.display())));
    };
    let Some(contents) = Contents::read(fs, path, number)? else {
        return Err(Error::InvalidArgument(format!("{} is missing", path.display())));
    };
    if let Err(HeaderError::Newer(version)) = record::check_header(&contents.bytes, number) {
        return Err(Error::NewerFormat { file: path.to_owned(), version });
    }
    Ok(write(text, &contents, number).expect("a string takes all that is written to it"))
}

fn write(text: &mut String, contents: &Contents, number: u64) -> Result<u64, std::fmt::Error> {
    writeln!(text, "manifest {number}, {} bytes", contents.file_bytes)?;
    if let Err(HeaderError::Damaged(what)) = record::check_header(&contents.bytes, number) {
        writeln!(text, "0: damaged: {what}")?;
        return Ok(1);
    }
    write_records(text, contents, number)
}

/// Answers the number of damaged ones.
fn write_records(
    text: &mut String,
    contents: &Contents,
    number: u64,
) -> Result<u64, std::fmt::Error> {
    let mut damaged = 0;
    let mut offset = HEADER_BYTES;
    while (offset as u64) < contents.file_bytes {
        let Some((record, end)) = record::read(&contents.bytes, number, offset) else {
            let left = contents.file_bytes - offset as u64;
            if contents.has_mark_beyond(number, offset) {
                writeln!(text, "{offset}: damaged: a mark stands beyond")?;
                return Ok(damaged + 1);
            }
            writeln!(text, "{offset}: torn: {left} bytes")?;
            return Ok(damaged);
        };
        match record {
            Record::Mark => writeln!(text, "{offset}: mark")?,
            Record::Edit(payload) => {
                writeln!(text, "{offset}: edit, {} bytes", payload.len())?;
                match VersionEdit::decode(payload) {
                    Ok(edit) => {
                        edit.to_string().lines().try_for_each(|line| writeln!(text, "  {line}"))?;
                    }
                    Err(what) => {
                        writeln!(text, "  damaged: {what}")?;
                        damaged += 1;
                    }
                }
            }
        }
        offset = end;
    }
    Ok(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;
    use crate::manifest::test_fs::TestFs;

    fn inspected(fs: &TestFs, path: &Path) -> Result<(String, u64)> {
        let mut text = String::new();
        inspect(fs, path, &mut text).map(|damaged| (text, damaged))
    }

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
        assert_eq!(inspected(&fs, path).unwrap(), (expected, 0));

        let whole = fs.get(path);
        fs.put(path, &[&whole[..], b"xyz"].concat());
        let expected = format!("manifest 4, 75 bytes\n{records}72: torn: 3 bytes\n");
        assert_eq!(inspected(&fs, path).unwrap(), (expected, 0));

        let mut flipped = whole;
        flipped[45] ^= 1;
        fs.put(path, &flipped);
        let (text, damaged) = inspected(&fs, path).unwrap();
        assert!(text.ends_with("43: damaged: a mark stands beyond\n"), "{text}");
        assert_eq!(damaged, 1);
    }

    #[test]
    fn a_newer_format_is_refused_as_such() {
        let fs = TestFs::default();
        let path = Path::new("d/MANIFEST-000004");
        let mut newer = record::header(4);
        newer[8] = 2;
        let crc = crate::checksum::crc32c(&newer[..28]);
        newer[28..].copy_from_slice(&crc.to_le_bytes());
        fs.put(path, &newer);
        let refused = inspected(&fs, path);
        assert!(matches!(refused, Err(Error::NewerFormat { version: 2, .. })), "{refused:?}");
    }

    #[test]
    fn only_manifests_are_inspected() {
        let fs = TestFs::default();
        for path in ["d/CURRENT", "d/MANIFEST-000009"] {
            let refused = inspected(&fs, Path::new(path));
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{path}");
        }
    }
}
