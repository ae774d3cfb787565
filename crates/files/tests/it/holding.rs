//! What a caller holds while a name changes is held for no sync, nor when it refuses the change.

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tallybook::vfs::MemoryFileSystem;
use tallybook::vfs::faulty::{Fault, FaultyFileSystem, OperationClass};
use tallybook_files::{
    CopyOptions, Durability, FileStore, OpenOptions, UnlinkOptions, WriteOptions,
};

use crate::support::{CHUNK, assert_reads, bytes, inline, memory_dir, small};

/// A store whose changes are synced, and what counts its syncs.
fn synced() -> (FaultyFileSystem, FileStore) {
    let fs = FaultyFileSystem::new(Arc::new(MemoryFileSystem::new()));
    let options = OpenOptions { durability: Durability::Sync, ..OpenOptions::default() };
    let store = FileStore::create_with(memory_dir(), small(), options, inline(fs.clone())).unwrap();
    fs.fail_at(0, Fault::delay(Duration::ZERO).class(OperationClass::Syncs).sticky());
    (fs, store)
}

/// Syncs so far, when something was held and when it was let go.
#[derive(Default)]
struct Spans {
    from: Cell<u64>,
    to: Cell<u64>,
}

struct Held<'a>(&'a FaultyFileSystem, &'a Spans);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.1.to.set(self.0.fired());
    }
}

impl Spans {
    fn hold<'a>(&'a self, fs: &'a FaultyFileSystem) -> Result<Held<'a>, Infallible> {
        self.from.set(fs.fired());
        Ok(Held(fs, self))
    }

    /// Whether there were syncs after this count before something was held. There are some afterwards, and
    /// none between.
    fn has_synced_before(&self, fs: &FaultyFileSystem, begun: u64) -> bool {
        assert_eq!(self.from, self.to);
        assert!(fs.fired() > self.to.get());
        self.from.get() > begun
    }
}

#[test]
fn chunks_are_synced_before_something_is_held_and_names_after() {
    let (fs, store) = synced();
    let spans = Spans::default();
    let long = bytes(1, 3 * CHUNK);
    // The bucket is made.
    store.write("file", b"first", WriteOptions::default()).unwrap();

    let mut writer = store.writer("file", WriteOptions::default()).unwrap();
    writer.write(&long).unwrap();
    let begun = fs.fired();
    writer.commit_holding(|| spans.hold(&fs)).unwrap().unwrap();
    assert!(spans.has_synced_before(&fs, begun));
    assert_reads(&store, "file", &long);

    let begun = fs.fired();
    let options = CopyOptions::default();
    store.copy_holding("file", "copy", options.clone(), || spans.hold(&fs)).unwrap().unwrap();
    // Its chunks are on disk.
    spans.has_synced_before(&fs, begun);

    // What it stands for was written without a sync.
    let lazy = WriteOptions { durability: Some(Durability::Os), ..WriteOptions::default() };
    store.write("lazy", &long, lazy).unwrap();
    let begun = fs.fired();
    store.rename_holding("lazy", "renamed", options, || spans.hold(&fs)).unwrap().unwrap();
    assert!(spans.has_synced_before(&fs, begun));

    let begun = fs.fired();
    let options = UnlinkOptions::default();
    assert!(store.unlink_holding("copy", options, || spans.hold(&fs)).unwrap().unwrap());
    assert!(!spans.has_synced_before(&fs, begun));
}

#[test]
fn nothing_has_changed_where_nothing_could_be_held() {
    let (_fs, store) = synced();
    store.write("file", b"first", WriteOptions::default()).unwrap();
    let refuse = || Err::<(), _>("gone");
    let mut writer = store.writer("file", WriteOptions::default()).unwrap();
    writer.write(b"second").unwrap();
    assert_eq!(writer.commit_holding(refuse).unwrap(), Err("gone"));
    let options = CopyOptions::default();
    let renamed = store.rename_holding("file", "other", options.clone(), refuse).unwrap();
    assert_eq!(renamed, Err("gone"));
    assert_eq!(store.copy_holding("file", "other", options, refuse).unwrap(), Err("gone"));
    let unlinked = store.unlink_holding("file", UnlinkOptions::default(), refuse).unwrap();
    assert_eq!(unlinked, Err("gone"));
    assert_reads(&store, "file", b"first");
    assert_eq!((store.totals().files, store.totals().uploading_bytes), (1, 0));
}
