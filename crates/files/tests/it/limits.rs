//! What a store takes: file handles, threads, disk; and that unlinked space comes back by itself.

use std::path::Path;
use std::time::{Duration, Instant};

use tallybook_files::{
    CreateOptions, FileStore, OpenOptions, ReferenceId, UnlinkOptions, WriteOptions,
};

use crate::support::{CHUNK, REFERENCE, assert_reads, bytes, on_disk, small, write};

/// Bytes that a directory takes on the disk.
fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // A file that was removed meanwhile takes nothing.
                Err(_) => return 0,
            };
            if metadata.is_dir() { disk_bytes(&entry.path()) } else { metadata.blocks() * 512 }
        })
        .sum()
}

fn count_of(dir: &str) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn all_buckets_in_use_stay_within_the_limits() {
    let dir = tempfile::tempdir().unwrap();
    let create = CreateOptions {
        reference_id: ReferenceId::from_hex(REFERENCE),
        bucket_count: 256,
        ..CreateOptions::default()
    };
    let (handles, threads) = (count_of("/proc/self/fd"), count_of("/proc/self/task"));
    let store = on_disk(dir.path(), create);
    let key = |bucket: usize| format!("{:02x}{}", 0xad ^ bucket, &"0".repeat(38));
    for bucket in 0..256 {
        assert_eq!(usize::from(store.bucket_of(&key(bucket))), bucket);
        write(&store, &key(bucket), &bytes(bucket as u64, 1000));
        assert!(count_of("/proc/self/fd") <= handles + 512);
    }
    for bucket in (0..256).rev().step_by(8) {
        assert_reads(&store, &key(bucket), &bytes(bucket as u64, 1000));
    }
    assert!(store.open_buckets() <= OpenOptions::default().open_buckets_max);
    // Other tests of the process have some too.
    assert!(count_of("/proc/self/task") <= threads + 64);
    assert!(store.totals().buckets.iter().all(|bucket| bucket.exists));
    let taken = disk_bytes(dir.path());
    assert!(taken <= 2 << 30, "{} MiB", taken >> 20);
    store.close().unwrap();
}

#[test]
fn an_idle_bucket_is_closed_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let options = OpenOptions { idle_close: Duration::from_millis(50), ..OpenOptions::default() };
    let store = FileStore::create(dir.path(), small(), options).unwrap();
    write(&store, "file", b"bytes");
    assert!(soon(|| store.open_buckets() == 0));
    assert_reads(&store, "file", b"bytes");
}

/// An idle bucket was closed, and could not be opened again: what was in it could not be read until the disk
/// had room, though nothing else was wrong.
#[test]
fn a_bucket_that_a_full_disk_would_keep_from_being_opened_again_stays_open() {
    use std::sync::Arc;

    use tallybook::vfs::{MemoryFileSystem, SystemClock};

    let fs = MemoryFileSystem::new();
    let clock = Arc::new(SystemClock::default());
    let settings = tallybook_files::resource_options();
    let resources = tallybook::Resources::with(settings, Arc::new(fs.clone()), clock).unwrap();
    let idle_close = Duration::from_millis(50);
    let options = OpenOptions { idle_close, ..OpenOptions::default() };
    let dir = crate::support::memory_dir();
    let store = FileStore::create_with(dir, small(), options, resources).unwrap();
    let mut names = (0..).map(|number: u32| number.to_string());
    let other = names.find(|name| store.bucket_of(name) != store.bucket_of("file")).unwrap();
    for name in ["file", &other] {
        write(&store, name, &bytes(1, CHUNK));
    }
    assert!(soon(|| store.open_buckets() == 0));
    for name in ["file", &other] {
        assert_reads(&store, name, &bytes(1, CHUNK));
        fs.set_capacity((name == other).then_some(0));
    }
    let open = store.open_buckets();
    assert!(open > 0, "the one that was read last");
    // The thread looks once a second.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(store.open_buckets(), open);
    assert_reads(&store, &other, &bytes(1, CHUNK));
    fs.set_capacity(None);
    assert!(soon(|| store.open_buckets() == 0));
}

/// With little room left no bucket was closed, and whoever read through 256 of them had all of them open.
#[test]
fn a_full_disk_keeps_no_more_buckets_open_than_are_allowed() {
    let fs = tallybook::vfs::MemoryFileSystem::new();
    let store = crate::support::in_memory(&fs, small());
    let name_in = |bucket: u8| {
        let mut names = (0..).map(|number: u32| number.to_string());
        names.find(|name| store.bucket_of(name) == bucket).unwrap()
    };
    let names: Vec<String> = (0..4).map(name_in).collect();
    names.iter().for_each(|name| drop(write(&store, name, &bytes(1, CHUNK))));
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    leave(&fs, 2 << 20);
    let options = OpenOptions { open_buckets_max: 2, ..OpenOptions::default() };
    let (dir, resources) = (crate::support::memory_dir(), crate::support::inline(fs.clone()));
    let store = FileStore::open_with(dir, options, resources).unwrap();
    for name in names.iter().chain(&names) {
        assert_reads(&store, name, &bytes(1, CHUNK));
        assert!(store.open_buckets() <= 2, "{}", store.open_buckets());
    }
}

/// Removes the segments that a bucket held ready, as one at rest does.
fn remove_spares(fs: &tallybook::vfs::MemoryFileSystem, bucket: &str) {
    use tallybook::vfs::FileSystem;
    let dir = crate::support::memory_dir().join(bucket);
    let names = fs.list(&dir).unwrap();
    for path in names.iter().filter(|name| name.ends_with(".journal")).map(|name| dir.join(name)) {
        let mut record = [0; 64];
        // Behind the header.
        fs.open_read(&path).unwrap().read_exact_at(&mut record, 64).unwrap();
        if record == [0; 64] {
            fs.remove(&path).unwrap();
        }
    }
}

/// Has a disk have so much left.
fn leave(fs: &tallybook::vfs::MemoryFileSystem, bytes: u64) {
    use tallybook::vfs::FileSystem;
    const LARGE: u64 = 1 << 40;
    fs.set_capacity(Some(LARGE));
    let left = fs.available_bytes(&crate::support::memory_dir()).unwrap();
    fs.set_capacity(Some(LARGE - left + bytes));
}

/// Whether something comes true within 20 s.
fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn unlinked_space_comes_back_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), CreateOptions { bucket_count: 1, ..small() });
    write(&store, "kept", &bytes(0, 10 * CHUNK));
    let size = 32 << 20;
    let round = |seed| {
        write(&store, "file", &bytes(seed, size));
        write(&store, "file", &bytes(seed + 1, size));
        assert!(store.unlink("file", UnlinkOptions::default()).unwrap());
    };
    (0..3).for_each(|at| round(2 * at));
    assert!(soon(|| store.totals().dead_bytes == 0));
    // 1.3 times what is live, a segment that takes writes, and two ahead of need.
    let limit = (10 * CHUNK as u64) * 13 / 10 + 3 * (16 << 20);
    assert!(soon(|| disk_bytes(dir.path()) <= limit), "{} MiB", disk_bytes(dir.path()) >> 20);
    assert_reads(&store, "kept", &bytes(0, 10 * CHUNK));
}

#[test]
fn unlink_costs_the_same_whatever_the_size() {
    use std::sync::Arc;

    use tallybook::vfs::{FaultyFileSystem, MemoryFileSystem};

    // Operations of the file system are counted, and entries written to the engine's journals.
    let memory = MemoryFileSystem::new();
    let fs = FaultyFileSystem::new(Arc::new(memory.clone()));
    let (dir, resources) = (crate::support::memory_dir(), crate::support::inline(fs.clone()));
    let options = OpenOptions::default();
    let store = FileStore::create_with(dir, small(), options, resources).unwrap();
    write(&store, "small", b"x");
    write(&store, "large", &bytes(1, 16 << 20));
    let cost_of = |name: &str| {
        let before = (fs.operation_count(), memory.operation_count());
        assert!(store.unlink(name, UnlinkOptions::default()).unwrap());
        (fs.operation_count() - before.0, memory.operation_count() - before.1)
    };
    let (of_small, of_large) = (cost_of("small"), cost_of("large"));
    assert_eq!(of_small, of_large);
    assert!(of_large.1 > 0, "the unlinking was written down");
    assert_eq!(store.totals().dead_bytes, (16 << 20) + 1);
    // And what is left to the reaper is one range of keys.
    let before = memory.operation_count();
    store.reap().unwrap();
    assert!(memory.operation_count() - before < 256, "fewer operations than chunks");
}

#[test]
fn a_full_disk_refuses_the_file_and_heals() {
    use tallybook::vfs::MemoryFileSystem;
    let fs = MemoryFileSystem::new();
    let store = crate::support::in_memory(&fs, CreateOptions { bucket_count: 1, ..small() });
    write(&store, "kept", &bytes(1, 5 * CHUNK));
    fs.set_capacity(Some(24 << 20));
    let mut refused = 0;
    for round in 0..6 {
        let file = bytes(round, 6 << 20);
        let name = format!("{round}");
        match store.write(&name, &file, WriteOptions::default()) {
            Ok(_) => assert_reads(&store, &name, &file),
            Err(error) => {
                assert!(error.to_string().contains("space"), "{error}");
                assert!(store.read(&name).unwrap().is_none());
                refused += 1;
            }
        }
        assert_reads(&store, "kept", &bytes(1, 5 * CHUNK));
    }
    assert!((1..6).contains(&refused), "{refused} were refused");
    for round in 0..6 {
        store.unlink(&format!("{round}"), UnlinkOptions::default()).unwrap();
    }
    store.reap().unwrap();
    fs.set_capacity(Some(64 << 20));
    let file = bytes(9, 6 << 20);
    assert!(store.write("after", &file, WriteOptions::default()).is_ok());
    assert_reads(&store, "after", &file);
}

/// Every change of names puts something, and a full disk keeps its reserve for what only deletes: nothing could
/// be unlinked, and an upload that was given up kept its room until the store was opened again.
#[test]
fn a_full_disk_lets_files_be_unlinked_and_uploads_given_up() {
    use tallybook::vfs::MemoryFileSystem;
    use tallybook_files::{CopyOptions, Error};
    let fs = MemoryFileSystem::new();
    // A bucket whose segments are four times the catalogue's, which is full long before.
    let chunk = 512 << 10;
    let create = CreateOptions { bucket_count: 1, chunk_bytes: chunk as u32, ..small() };
    let store = crate::support::in_memory(&fs, create);
    write(&store, "a", b"bytes");
    let files: Vec<String> = (0..10_000).map(|number| format!("file {number}")).collect();
    files.iter().for_each(|name| drop(write(&store, name, b"")));
    let upload = |seed| {
        let mut writer = store.writer("upload", WriteOptions::default()).unwrap();
        writer.write(&bytes(seed, chunk)).unwrap();
        writer
    };
    let uploads = [upload(1), upload(2)];
    store.reap().unwrap();
    let fill = || {
        let attributes = Some(vec![7; 1000].into());
        let options = CopyOptions { attributes, ..CopyOptions::default() };
        for _ in 0..100_000 {
            match store.copy("a", "a", options.clone()) {
                Ok(_) => {}
                Err(Error::Engine(tallybook::Error::NoSpace { .. })) => return,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the disk never is full");
    };
    fs.set_capacity(Some(0));
    fill();
    let [first, second] = uploads;
    drop(first);
    assert_eq!(store.totals().uploading_bytes, chunk as u64);
    let unlink = |name: &String| store.unlink(name, UnlinkOptions::default());
    assert!(unlink(&files[0]).unwrap());
    store.reap().unwrap();
    assert_eq!((store.totals().dead_bytes, store.totals().uploading_bytes), (0, chunk as u64));
    // The reserve, too, is used up at last.
    fill();
    assert!(files.iter().skip(1).any(|name| unlink(name).is_err()));
    drop(second);
    assert_eq!(store.totals().uploading_bytes, chunk as u64);
    assert!(store.reap().is_err(), "it is told that the upload keeps its room");
    fs.set_capacity(None);
    store.reap().unwrap();
    assert_eq!((store.totals().dead_bytes, store.totals().uploading_bytes), (0, 0));
    store.close().unwrap();
    drop(store);
    let bucket = crate::support::engine_store(&fs, "buckets/000-000001");
    let prefix = Some(vec![tallybook_files::key_layout::CHUNK].into());
    let options = tallybook::ScanOptions { prefix, ..Default::default() };
    assert_eq!(bucket.range_heads(options).unwrap().count(), 1, "of a file that is there");
}

/// A large bucket's segments are of 64 MiB, and what frees space in it wanted room for a whole one: once it had
/// been closed, unlinks on a disk with less left were acknowledged, and nothing came back.
#[test]
fn a_full_disk_frees_what_is_unlinked_in_buckets_that_were_closed() {
    let fs = tallybook::vfs::MemoryFileSystem::new();
    let store = crate::support::in_memory(&fs, CreateOptions { bucket_count: 1, ..small() });
    let file = bytes(1, 24 << 20);
    write(&store, "file", &file);
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    remove_spares(&fs, "buckets/000-000001");
    leave(&fs, 5 << 20);
    let store = crate::support::reopen(&fs).unwrap();
    assert_reads(&store, "file", &file);
    assert!(store.unlink("file", UnlinkOptions::default()).unwrap());
    store.reap().unwrap();
    assert_eq!(store.totals().dead_bytes, 0);
    write(&store, "another", &file[..20 << 20]);
    assert_reads(&store, "another", &file[..20 << 20]);
}

#[test]
fn many_writers_and_readers_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), small());
    std::thread::scope(|scope| {
        for thread in 0..20 {
            let store = store.clone();
            scope.spawn(move || {
                for round in 0..5 {
                    let (name, seed) = (format!("{}", thread % 10), thread * 10 + round);
                    let len = (seed as usize * 7919) % (2 * CHUNK);
                    write(&store, &format!("{name}-{thread}"), &bytes(seed, len));
                    assert_reads(&store, &format!("{name}-{thread}"), &bytes(seed, len));
                }
            });
        }
    });
    assert_eq!(store.totals().files, 20);
    store.reap().unwrap();
    assert_eq!(store.totals().live_bytes, store.totals().file_bytes);
}
