//! Every file name of a store, made and parsed in one place.

use std::path::{Path, PathBuf};

/// Files have smaller numbers: no store comes near, and the next number is always to be had.
pub const NUMBER_MAX: u64 = 1 << 48;

/// What a file in a store's directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// `LOCK`: held by the process that has the store open.
    Lock,
    /// `CURRENT`: names the live manifest.
    Current,
    /// `MANIFEST-000004`: the log of version edits.
    Manifest(u64),
    /// `000012.journal`: a journal segment.
    Segment(u64),
    /// `000013.sst`: a table.
    Table(u64),
    /// `000012.torn`: bytes that recovery cut off the end of a segment.
    Torn(u64),
    /// `*.tmp`: a file that was being made; removed on open.
    Temporary,
}

/// What the file with this name is; `None` for a foreign one.
pub fn parse(name: &str) -> Option<FileKind> {
    fn number(digits: &str) -> Option<u64> {
        let plain = digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
        if plain { digits.parse().ok().filter(|&number| number < NUMBER_MAX) } else { None }
    }
    match name {
        "LOCK" => return Some(FileKind::Lock),
        "CURRENT" => return Some(FileKind::Current),
        _ => {}
    }
    if let Some(digits) = name.strip_prefix("MANIFEST-") {
        return number(digits).map(FileKind::Manifest);
    }
    let (stem, extension) = name.rsplit_once('.')?;
    match extension {
        "journal" => number(stem).map(FileKind::Segment),
        "sst" => number(stem).map(FileKind::Table),
        "torn" => number(stem).map(FileKind::Torn),
        "tmp" => Some(FileKind::Temporary),
        _ => None,
    }
}

/// `DIR/LOCK`.
pub fn lock(dir: &Path) -> PathBuf {
    dir.join("LOCK")
}

/// `DIR/CURRENT`.
pub fn current(dir: &Path) -> PathBuf {
    dir.join("CURRENT")
}

/// `MANIFEST-000004`, without a directory.
pub fn manifest_name(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

/// `DIR/MANIFEST-000004`.
pub fn manifest(dir: &Path, number: u64) -> PathBuf {
    dir.join(manifest_name(number))
}

/// `DIR/000012.journal`.
pub fn segment(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.journal"))
}

/// `DIR/000013.sst`.
pub fn table(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.sst"))
}

/// `DIR/000012.torn`.
pub fn torn(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.torn"))
}

/// `DIR/NAME.tmp`.
pub fn temporary(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        let dir = Path::new("");
        for (path, kind) in [
            (lock(dir), FileKind::Lock),
            (current(dir), FileKind::Current),
            (manifest(dir, 4), FileKind::Manifest(4)),
            (segment(dir, 12), FileKind::Segment(12)),
            (table(dir, 1_234_567), FileKind::Table(1_234_567)),
            (torn(dir, 12), FileKind::Torn(12)),
            (temporary(dir, "CURRENT"), FileKind::Temporary),
        ] {
            assert_eq!(parse(path.to_str().unwrap()), Some(kind));
        }
        for foreign in ["", "x", "12.journal", "-00001.sst", "+00012.sst", "MANIFEST-", "a.txt"]
            .into_iter()
            .chain(["18446744073709551615.sst"])
        {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
    }
}
