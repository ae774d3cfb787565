//! The two copies of what describes a store: opening it has both say the same.

use std::path::Path;
use std::sync::Arc;

use tallybook::vfs::faulty::{Fault, FaultyFileSystem, OperationClass};
use tallybook::vfs::{FileSystem, MemoryFileSystem};
use tallybook_files::superblock::Superblock;
use tallybook_files::{FileStore, OpenOptions};

use crate::support::{assert_reads, in_memory, inline, memory_dir, reopen, small, write};

const COPIES: [&str; 2] = ["STORE.copy", "STORE"];

/// A store that is closed, with a file.
fn closed_store() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, small());
    write(&store, "file", b"bytes");
    store.close().unwrap();
    fs
}

/// A repair that was cut off between the two left one behind. As soon as the other could not be read it counted,
/// however long the store had been opened by that one.
#[test]
fn a_copy_that_stayed_behind_is_brought_up_by_opening() {
    let fs = closed_store();
    let dir = memory_dir();
    let (kept, stale) = (dir.join("kept"), dir.join("STORE"));
    let before = Superblock::read(&fs, &dir).unwrap();
    fs.rename(&stale, &kept).unwrap();
    let newer = Superblock { changes: before.changes + 1, ..before };
    newer.write(&fs, &dir).unwrap();
    fs.rename(&kept, &stale).unwrap();
    let store = reopen(&fs).unwrap();
    assert_eq!(store.description_problems(), ["STORE: it is older; it was written anew"]);
    assert_reads(&store, "file", b"bytes");
    store.close().unwrap();
    fs.remove(&dir.join("STORE.copy")).unwrap();
    assert_eq!(Superblock::read(&fs, &dir).unwrap(), newer);
}

/// Nobody was told, and nothing put it right.
#[test]
fn a_copy_that_is_damaged_or_missing_is_told_of_and_written_anew() {
    for name in COPIES {
        for is_missing in [false, true] {
            let fs = closed_store();
            let path = memory_dir().join(name);
            match is_missing {
                true => fs.remove(&path).unwrap(),
                false => fs.open(&path).unwrap().write_all_at(b"?", 20).unwrap(),
            }
            let store = reopen(&fs).unwrap();
            let [told] = store.description_problems() else { panic!("{name} is not told of") };
            assert!(told.starts_with(name) && told.ends_with("it was written anew"), "{told}");
            store.close().unwrap();
            drop(store);
            assert_eq!(reopen(&fs).unwrap().description_problems(), [""; 0]);
        }
    }
}

/// What is told of it where it can't be written anew either, as on a full disk.
#[test]
fn a_damaged_copy_that_can_not_be_written_anew_keeps_nothing_shut() {
    let memory = closed_store();
    memory.open(&memory_dir().join("STORE")).unwrap().write_all_at(b"?", 20).unwrap();
    let fs = FaultyFileSystem::new(Arc::new(memory));
    let is_new_copy = |_: &str, path: &Path| path.ends_with("STORE.tmp");
    let full = Fault::errno(28).class(OperationClass::Writes).only(is_new_copy).sticky();
    fs.fail_at(0, full);
    let store = FileStore::open_with(memory_dir(), OpenOptions::default(), inline(fs)).unwrap();
    let [told] = store.description_problems() else { panic!("it is not told of") };
    assert!(told.starts_with("STORE: it is damaged; it can't be written anew: "), "{told}");
    assert_reads(&store, "file", b"bytes");
}
