//! The manifest: edits, whole files, `CURRENT`.

use tallybook::file_name::{self, FileKind};
use tallybook::manifest::{self, Manifest};
use tallybook::version::VersionEdit;
use tallybook::vfs::MemoryFileSystem;

use crate::disk;
use crate::store;

const NUMBER: u64 = 4;

/// An edit: what decodes is encoded, and decodes to the same.
pub(crate) fn edit(data: &[u8]) -> bool {
    let Ok(edit) = VersionEdit::decode(data) else {
        return false;
    };
    assert_eq!(VersionEdit::decode(&edit.encode()), Ok(edit.clone()));
    drop(edit.to_string());
    true
}

/// A manifest whose checksums are right. What was recovered of it is written to another, and recovered
/// as it was.
pub(crate) fn file(data: &[u8]) -> bool {
    let fs = disk::empty();
    let mut bytes = data.to_vec();
    disk::correct_manifest(NUMBER, &mut bytes);
    let path = file_name::manifest(disk::dir(), NUMBER);
    disk::write(&fs, &path, &bytes);
    disk::write(&fs, &file_name::current(disk::dir()), &disk::current(NUMBER));
    let _ = manifest::inspect(&fs, &path, &mut String::new());
    let Some(edit) = recovered(&fs) else {
        return false;
    };
    Manifest::create(&fs, disk::dir(), NUMBER + 1, &edit).expect("memory takes a manifest");
    assert_eq!(recovered(&fs), Some(edit));
    true
}

fn recovered(fs: &MemoryFileSystem) -> Option<VersionEdit> {
    let recovered = manifest::recover(fs, disk::dir()).ok()??;
    recovered.version.check().expect("a version that was recovered is sound");
    Some(recovered.version.to_edit())
}

/// The contents of `CURRENT`: they name a manifest in one way only.
pub(crate) fn current(data: &[u8]) -> bool {
    let fs = disk::empty();
    disk::write(&fs, &file_name::current(disk::dir()), data);
    disk::write(&fs, &file_name::manifest(disk::dir(), NUMBER), b"");
    let is_named = match manifest::recover(&fs, disk::dir()) {
        Ok(found) => panic!("an empty manifest was recovered: {found:?}"),
        Err(error) => !error.to_string().contains("does not name a manifest"),
    };
    assert!(!is_named || data.starts_with(b"MANIFEST-") && data.ends_with(b"\n"));
    assert!(data != disk::current(NUMBER) || is_named);
    is_named
}

fn manifests() -> Vec<Vec<u8>> {
    store::contents(|kind| matches!(kind, FileKind::Manifest(_)))
}

pub(crate) fn file_seeds() -> Vec<Vec<u8>> {
    let whole = manifests();
    let first: Vec<Vec<u8>> = whole.iter().map(|bytes| bytes[..32].to_vec()).collect();
    let halves: Vec<Vec<u8>> =
        whole.iter().map(|bytes| bytes[..bytes.len() / 2].to_vec()).collect();
    [whole, halves, first].concat()
}

pub(crate) fn edit_seeds() -> Vec<Vec<u8>> {
    let mut edits = Vec::new();
    for bytes in manifests() {
        let mut at = 32;
        while let Some(length) = crate::input::u32_at(&bytes, at + 4) {
            let end = at + 9 + length as usize;
            edits
                .extend(bytes.get(at + 9..end).filter(|edit| !edit.is_empty()).map(<[u8]>::to_vec));
            at = end;
        }
    }
    edits.truncate(12);
    edits
}

pub(crate) fn current_seeds() -> Vec<Vec<u8>> {
    vec![disk::current(NUMBER), disk::current(1_234_567), b"MANIFEST-000004\n".to_vec()]
}
