//! Reading the live manifest back into a version.
//!
//! 1. `CURRENT` names the manifest. It may be missing only where no store was ever finished.
//! 2. The first edit must be readable: it was synced before `CURRENT` named the file.
//! 3. Edits are folded up to the end, or up to the first record that can't be read. If a mark stands
//!    beyond that place it is damage and recovery refuses; else it is a torn write and is left out.
//!
//! Recovery writes nothing and opens no table. Nothing is read of a file that is longer than any writer makes it.

use std::path::Path;

use super::contents::{self, Contents};
use super::record::{self, HEADER_BYTES, HeaderError, Record};
use crate::error::{Error, Result};
use crate::file_name::{self, FileKind};
use crate::version::{LiveTable, Version, VersionEdit};
use crate::vfs::FileSystem;

/// `CURRENT` is shorter.
const CURRENT_BYTES_MAX: u64 = 64;

/// What the live manifest says.
#[derive(Debug)]
pub struct RecoveredManifest {
    /// Number of the manifest.
    pub number: u64,
    /// The version; its tables are not opened yet.
    pub version: Version,
    /// Edits read, the first included.
    pub edits: u64,
    /// Bytes of a torn write at the end that were left out.
    pub cut_bytes: u64,
}

/// Reads the live manifest of the store in `dir`; `None` when the directory holds no store.
pub fn recover(fs: &dyn FileSystem, dir: &Path) -> Result<Option<RecoveredManifest>> {
    let current = file_name::current(dir);
    let Some((file, bytes)) = contents::open(fs, &current, CURRENT_BYTES_MAX)? else {
        return refuse_orphans(fs, dir).map(|()| None);
    };
    let contents = contents::read_piece(&*file, &current, 0, bytes)?;
    let Some(number) = record::parse_current(&contents) else {
        return Err(Error::corruption(&current, 0, "does not name a manifest"));
    };
    recover_file(fs, dir, number).map(Some)
}

/// Reads the manifest with this number, whether it is the live one or not.
pub fn recover_file(fs: &dyn FileSystem, dir: &Path, number: u64) -> Result<RecoveredManifest> {
    let path = file_name::manifest(dir, number);
    let Some(contents) = Contents::read(fs, &path, number)? else {
        return Err(Error::corruption(&path, 0, "CURRENT names this manifest, and it is missing"));
    };
    check_header(&path, &contents.bytes, number)?;
    fold(&path, &contents, number)
}

/// Without `CURRENT`, segments or tables mean that a store has lost it. A manifest alone doesn't: it
/// is written first, so a store whose making was interrupted has one and no data.
fn refuse_orphans(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    let names = fs.list(dir).map_err(|error| Error::io("list", dir, error))?;
    let orphan = names.iter().find(|name| {
        matches!(file_name::parse(name), Some(FileKind::Segment(_) | FileKind::Table(_)))
    });
    match orphan {
        Some(name) => Err(Error::corruption(
            &file_name::current(dir),
            0,
            format!("the file is missing, and the directory holds {name}"),
        )),
        None => Ok(()),
    }
}

fn check_header(path: &Path, bytes: &[u8], number: u64) -> Result<()> {
    record::check_header(bytes, number).map_err(|error| match error {
        HeaderError::Damaged(what) => Error::corruption(path, 0, what),
        HeaderError::Newer(version) => Error::NewerFormat { file: path.to_owned(), version },
    })
}

fn fold(path: &Path, contents: &Contents, number: u64) -> Result<RecoveredManifest> {
    let bytes = &contents.bytes;
    let (mut version, mut edits, mut offset) = (Version::default(), 0, HEADER_BYTES);
    while offset < bytes.len() || edits == 0 || contents.has_mark_behind {
        let Some((record, end)) = record::read(bytes, number, offset) else {
            if edits > 0 && !contents.has_mark_beyond(number, offset) {
                break;
            }
            return Err(Error::corruption(path, offset as u64, "a record is unreadable"));
        };
        if let Record::Edit(payload) = record {
            fold_edit(&mut version, payload).map_err(|error| placed(error, path, offset))?;
            edits += 1;
        }
        offset = end;
    }
    let version = version.finish().map_err(|error| placed(error, path, offset))?;
    let cut_bytes = contents.file_bytes - offset as u64;
    Ok(RecoveredManifest { number, version, edits, cut_bytes })
}

fn fold_edit(version: &mut Version, payload: &[u8]) -> Result<()> {
    let edit = VersionEdit::decode(payload)
        .map_err(|what| Error::corruption(Path::new(""), 0, format!("an edit is wrong: {what}")))?;
    version.fold(&edit, &mut |meta| Ok(LiveTable::unopened(meta)))
}

/// Puts the file and the place into an error that was found in an edit.
fn placed(error: Error, path: &Path, offset: usize) -> Error {
    match error {
        Error::Corruption { what, .. } => Error::corruption(path, offset as u64, what),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::checksum;
    use crate::manifest::Manifest;
    use crate::manifest::test_fs::TestFs;
    use crate::sstable::Properties;
    use crate::version::{Added, TableMeta};
    use crate::vfs::MemoryFileSystem;

    const DIR: &str = "d";

    fn edit(number: u64) -> VersionEdit {
        let properties = Properties {
            entries: 1,
            keys: 1,
            smallest: Bytes::from("a"),
            largest: Bytes::from("z"),
            seqno_max: number,
            ..Properties::default()
        };
        let meta = TableMeta::new(number, Arc::new(properties));
        VersionEdit {
            added: vec![Added { level: 0, run_id: number, meta }],
            last_seqno: Some(number),
            ..VersionEdit::default()
        }
    }

    /// A manifest of four edits; answers its bytes, and the state and the file's end after each edit.
    fn sample(fs: &TestFs) -> (Vec<u8>, Vec<(VersionEdit, usize)>) {
        let mut manifest = Manifest::create(fs, Path::new(DIR), 4, &edit(10)).unwrap();
        let mut states = Vec::new();
        for number in 11..=14 {
            let state = recover(fs, Path::new(DIR)).unwrap().unwrap().version.to_edit();
            states.push((state, manifest.bytes() as usize));
            if number < 14 {
                manifest.append(&edit(number)).unwrap();
            }
        }
        (fs.get(manifest.path()), states)
    }

    fn recover_from(bytes: &[u8]) -> Result<RecoveredManifest> {
        let fs = TestFs::default();
        fs.put(Path::new("d/MANIFEST-000004"), bytes);
        fs.put(Path::new("d/CURRENT"), record::current(4).as_bytes());
        recover(&fs, Path::new(DIR)).map(Option::unwrap)
    }

    #[test]
    fn any_flipped_bit_is_refused_or_harmless() {
        let (bytes, states) = sample(&TestFs::default());
        let (last_state, last_mark) = (&states[3].0, bytes.len() - record::RECORD_HEADER_BYTES);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                match recover_from(&flipped) {
                    Ok(recovered) => {
                        assert!(at >= last_mark, "byte {at} was synced before the last mark");
                        assert_eq!(recovered.version.to_edit(), *last_state);
                        assert_eq!(recovered.cut_bytes, (bytes.len() - last_mark) as u64);
                    }
                    Err(Error::Corruption { file, .. }) => {
                        assert!(at < last_mark, "nothing before byte {at} is damaged");
                        assert_eq!(file, Path::new("d/MANIFEST-000004"));
                    }
                    Err(other) => panic!("byte {at}: {other}"),
                }
            }
        }
    }

    #[test]
    fn a_cut_manifest_holds_the_edits_before_the_cut() {
        let (bytes, states) = sample(&TestFs::default());
        let mark = record::RECORD_HEADER_BYTES;
        for cut in 0..=bytes.len() {
            let whole = states.iter().rposition(|(_, end)| end - mark <= cut);
            match (recover_from(&bytes[..cut]), whole) {
                (Ok(recovered), Some(at)) => {
                    assert_eq!(recovered.version.to_edit(), states[at].0, "cut at {cut}");
                    assert_eq!(recovered.edits, at as u64 + 1);
                    assert!(recovered.cut_bytes as usize <= cut);
                }
                (Err(Error::Corruption { .. }), None) => {}
                (other, whole) => panic!("cut at {cut}: {other:?}, {whole:?}"),
            }
        }
    }

    #[test]
    fn a_torn_tail_without_a_mark_is_left_out() {
        let (bytes, states) = sample(&TestFs::default());
        for tail in [&[0; 100][..], &[0xff; 100], &[1]] {
            let recovered = recover_from(&[&bytes[..], tail].concat()).unwrap();
            assert_eq!(recovered.version.to_edit(), states[3].0);
            assert_eq!(recovered.cut_bytes, tail.len() as u64);
        }
    }

    #[test]
    fn files_longer_than_any_writer_makes_them_are_not_read() {
        let memory = MemoryFileSystem::new();
        memory.create_dir_all(Path::new(DIR)).unwrap();
        let manifest = Manifest::create(&memory, Path::new(DIR), 4, &edit(10)).unwrap();
        let lengthen = |path: &Path, bytes: u64| memory.open(path).unwrap().set_len(bytes).unwrap();
        let recover = || recover(&memory, Path::new(DIR)).map(Option::unwrap);
        // Zeros are a torn tail.
        lengthen(manifest.path(), 5 << 20);
        let recovered = recover().unwrap();
        assert_eq!((recovered.edits, recovered.cut_bytes), (1, (5 << 20) - manifest.bytes()));
        let current = file_name::current(Path::new(DIR));
        for path in [manifest.path(), &current] {
            lengthen(path, contents::MANIFEST_BYTES_MAX + 1);
            match recover() {
                Err(Error::Corruption { file, .. }) => assert_eq!(file, path),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_edit_that_does_not_fit_is_damage_at_its_place() {
        let (mut bytes, _) = sample(&TestFs::default());
        let offset = bytes.len();
        let drop = VersionEdit { segments_dropped: vec![9], ..VersionEdit::default() };
        for payload in [drop.encode(), vec![99, 1]] {
            bytes.truncate(offset);
            bytes.extend(record::edit(4, offset as u64, &payload));
            match recover_from(&bytes) {
                Err(Error::Corruption { offset: at, .. }) => assert_eq!(at, offset as u64),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_missing_current_is_refused_where_there_is_data() {
        let refused = |name: &str| {
            let fs = TestFs::default();
            fs.put(&Path::new(DIR).join(name), b"");
            match recover(&fs, Path::new(DIR)) {
                Ok(None) => false,
                Err(Error::Corruption { file, .. }) => file == Path::new("d/CURRENT"),
                other => panic!("{other:?}"),
            }
        };
        assert!(refused("000012.journal") && refused("000013.sst"));
        assert!(!refused("LOCK") && !refused("notes.txt") && !refused("CURRENT.tmp"));
        assert!(!refused("MANIFEST-000004"), "a store whose making was interrupted");
    }

    #[test]
    fn a_damaged_current_or_a_missing_manifest_is_refused() {
        let fs = TestFs::default();
        sample(&fs);
        for (contents, file) in
            [("MANIFEST-000004 00000000\n", "CURRENT"), (&record::current(5), "MANIFEST-000005")]
        {
            fs.put(Path::new("d/CURRENT"), contents.as_bytes());
            match recover(&fs, Path::new(DIR)) {
                Err(Error::Corruption { file: found, .. }) => {
                    assert_eq!(found, Path::new(DIR).join(file));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_newer_format_is_refused_as_such() {
        let (mut bytes, _) = sample(&TestFs::default());
        bytes[8] = 2;
        let crc = checksum::crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        match recover_from(&bytes) {
            Err(Error::NewerFormat { file, version: 2 }) => {
                assert_eq!(file, Path::new("d/MANIFEST-000004"));
            }
            other => panic!("{other:?}"),
        }
    }
}
