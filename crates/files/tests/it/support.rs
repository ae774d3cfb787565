//! Stores to test with, and bytes that can be told apart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tallybook::vfs::{FileSystem, ManualClock, MemoryFileSystem};
use tallybook::{Options, Resources, Store};
use tallybook_files::{
    CreateOptions, FileStore, OpenOptions, ReferenceId, Result, Stat, WriteOptions,
    resource_options,
};

/// Bytes of a chunk in these tests.
pub(crate) const CHUNK: usize = 64 << 10;

/// The reference id of the test vectors.
pub(crate) const REFERENCE: &str = "adc83b19e793491b1c6ea0fd8b46cd9f32e592fc";

/// Where stores in memory are.
pub(crate) fn memory_dir() -> PathBuf {
    PathBuf::from("/files")
}

/// A small store: few buckets, small chunks, always the same placement.
pub(crate) fn small() -> CreateOptions {
    CreateOptions {
        reference_id: ReferenceId::from_hex(REFERENCE),
        chunk_bytes: CHUNK as u32,
        bucket_count: 4,
        ..CreateOptions::default()
    }
}

/// A file system without threads: what is due is done inside the call that makes it due.
pub(crate) fn inline(fs: impl FileSystem + 'static) -> Arc<Resources> {
    let clock = Arc::new(ManualClock::at_ms(1_000_000));
    Resources::inline(resource_options(), Arc::new(fs), clock)
}

/// A new store in memory.
pub(crate) fn in_memory(fs: &MemoryFileSystem, create: CreateOptions) -> FileStore {
    let resources = inline(fs.clone());
    FileStore::create_with(memory_dir(), create, OpenOptions::default(), resources).unwrap()
}

/// The store that is in memory.
pub(crate) fn reopen(fs: &MemoryFileSystem) -> Result<FileStore> {
    FileStore::open_with(memory_dir(), OpenOptions::default(), inline(fs.clone()))
}

/// An engine store of the file store that nobody has open.
pub(crate) fn engine_store(fs: &MemoryFileSystem, name: &str) -> Store {
    let options = Options { create_if_missing: false, ..Options::default() };
    Store::open_with(memory_dir().join(name), options, inline(fs.clone())).unwrap()
}

/// Removes what names the catalogue's live manifest.
pub(crate) fn lose_catalogue(fs: &MemoryFileSystem) {
    let dir = memory_dir().join("catalogue-000001");
    fs.remove(&dir.join("CURRENT")).unwrap();
    fs.sync_dir(&dir).unwrap();
}

/// A new store on the disk.
pub(crate) fn on_disk(dir: &Path, create: CreateOptions) -> FileStore {
    FileStore::create(dir, create, OpenOptions::default()).unwrap()
}

/// Bytes that differ from those of any other seed nearly everywhere.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

/// Writes a file.
pub(crate) fn write(store: &FileStore, name: &str, bytes: &[u8]) -> Stat {
    store.write(name, bytes, WriteOptions::default()).unwrap()
}

/// Whether two files are equal, without printing them.
pub(crate) fn assert_reads(store: &FileStore, name: &str, expected: &[u8]) {
    let read = store.read(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let read = read.unwrap_or_else(|| panic!("{name} is not there"));
    assert!(read == expected, "{name} has other bytes ({} of {})", read.len(), expected.len());
}

/// Whether tests are to take the time they would like: `TALLYBOOK_LONG` is set.
pub(crate) fn is_long() -> bool {
    std::env::var_os("TALLYBOOK_LONG").is_some()
}
