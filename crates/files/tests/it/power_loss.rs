//! What a power loss takes out of the catalogue is not brought back by the buckets' entries, which are
//! there to make a lost catalogue anew.

use std::sync::{Arc, Mutex};

use tallybook::vfs::{CrashMode, MemoryFileSystem, MemoryImage};
use tallybook::{Options, ScanOptions, Store};
use tallybook_files::record::FileRecord;
use tallybook_files::{
    CopyOptions, CreateOptions, Durability, FileStore, WriteOptions, key_layout,
};

use crate::support::{CHUNK, assert_reads, bytes, in_memory, inline, memory_dir, reopen, small};

/// One bucket, so that whoever syncs it syncs what others put there.
fn one_bucket() -> CreateOptions {
    CreateOptions { bucket_count: 1, ..small() }
}

fn write_at(store: &FileStore, durability: Durability, name: &str, bytes: &[u8]) {
    let options = WriteOptions { durability: Some(durability), ..Default::default() };
    store.write(name, bytes, options).unwrap();
}

fn copy_at_sync() -> CopyOptions {
    CopyOptions { durability: Some(Durability::Sync), ..Default::default() }
}

/// An engine store of the file store that nobody has open.
fn engine_store(fs: &MemoryFileSystem, name: &str) -> Store {
    let options = Options { create_if_missing: false, ..Options::default() };
    Store::open_with(memory_dir().join(name), options, inline(fs.clone())).unwrap()
}

fn bucket(fs: &MemoryFileSystem) -> Store {
    engine_store(fs, "buckets/000-000001")
}

/// Names and versions of a bucket's entries.
fn entries(bucket: &Store) -> Vec<(String, u64)> {
    let prefix = Some(vec![key_layout::ENTRY].into());
    let heads = bucket.range_heads(ScanOptions { prefix, ..Default::default() }).unwrap();
    let parse = |key: &[u8]| key_layout::parse_entry(key).map(|(name, of)| (name.to_owned(), of));
    heads.map(|head| parse(&head.unwrap().key).unwrap()).collect()
}

/// Entries of versions that the catalogue knows neither as current nor as past.
fn lost_entries(fs: &MemoryFileSystem) -> Vec<(String, u64)> {
    let catalogue = engine_store(fs, "catalogue-000001");
    let is_known = |name: &str, version| {
        let record = catalogue.get(&key_layout::key(key_layout::NAME, name.as_bytes())).unwrap();
        let record = record.and_then(|value| FileRecord::decode(&value));
        let dead = key_layout::of_version(key_layout::ENTRY_DEAD, version);
        record.is_some_and(|record| record.version == version)
            || catalogue.get(&dead).unwrap().is_some()
    };
    entries(&bucket(fs)).into_iter().filter(|(name, of)| !is_known(name, *of)).collect()
}

/// What a power loss after each of the operations of `body` leaves.
fn losses(fs: &MemoryFileSystem, body: impl FnOnce()) -> Vec<MemoryFileSystem> {
    let images: Arc<Mutex<Vec<MemoryImage>>> = Arc::default();
    let taken = images.clone();
    fs.set_observer(Some(Box::new(move |_, _, moment| {
        taken.lock().unwrap().push(moment.image());
    })));
    body();
    fs.set_observer(None);
    let images = std::mem::take(&mut *images.lock().unwrap());
    images.iter().map(|image| image.crash(CrashMode::LoseUnsynced, 0)).collect()
}

/// The bucket was synced with the new entry before the catalogue was with the change. A power loss in
/// between left an entry of a version that never was, which nobody took away but a whole verification.
#[test]
fn an_entry_is_on_disk_no_sooner_than_what_it_says() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, one_bucket());
    write_at(&store, Durability::Sync, "first", &bytes(1, 100));
    let losses = losses(&fs, || {
        write_at(&store, Durability::Sync, "a", &bytes(2, CHUNK + 1));
        write_at(&store, Durability::Sync, "a", &bytes(3, 10));
        write_at(&store, Durability::Sync, "empty", b"");
        store.copy("a", "b", copy_at_sync()).unwrap();
        store.rename("b", "first", copy_at_sync()).unwrap();
    });
    assert!(losses.len() > 20, "{} operations", losses.len());
    for (ordinal, fs) in losses.iter().enumerate() {
        assert_eq!(lost_entries(fs), [], "after operation {ordinal}");
    }
}

/// With the catalogue synced first, the bytes have to be on disk before it: those of a file written at
/// `Os` are only asked for when its name is changed at `Sync`.
#[test]
fn a_name_given_at_sync_has_its_bytes_whenever_the_power_goes() {
    type Give = fn(&FileStore) -> tallybook_files::Result<tallybook_files::Stat>;
    let gives: [Give; 2] = [
        |store| store.rename("source", "target", copy_at_sync()),
        |store| store.copy("source", "target", copy_at_sync()),
    ];
    for give in gives {
        let fs = MemoryFileSystem::new();
        let create = CreateOptions { bucket_cap_bytes: 3 * CHUNK as u64, ..small() };
        let store = in_memory(&fs, create);
        let (old, new) = (bytes(1, 100), bytes(2, 7 * CHUNK));
        // All buckets are made before.
        write_at(&store, Durability::Sync, "filler", &bytes(3, 11 * CHUNK));
        store.unlink("filler", Default::default()).unwrap();
        store.reap().unwrap();
        write_at(&store, Durability::Sync, "target", &old);
        write_at(&store, Durability::Os, "source", &new);
        let losses = losses(&fs, || drop(give(&store).unwrap()));
        assert!(losses.len() > 5, "{} operations", losses.len());
        for (ordinal, fs) in losses.iter().enumerate() {
            let read = reopen(fs).unwrap().read("target");
            let read = read.unwrap_or_else(|error| panic!("operation {ordinal}: {error}"));
            assert!(read.is_some_and(|read| read == old || read == new), "operation {ordinal}");
        }
        assert_reads(&reopen(losses.last().unwrap()).unwrap(), "target", &new);
    }
}
