//! Caps, counters, and space that comes back.

use tallybook::vfs::MemoryFileSystem;
use tallybook_files::{CreateOptions, Error, UnlinkOptions, WriteOptions};

use crate::support::{CHUNK, assert_reads, bytes, in_memory, reopen, small, write};

/// A store of four buckets with room for four chunks each.
fn tight() -> CreateOptions {
    CreateOptions { bucket_cap_bytes: 4 * CHUNK as u64, ..small() }
}

#[test]
fn a_file_may_be_larger_than_a_bucket() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, tight());
    let file = bytes(1, 14 * CHUNK + 5);
    write(&store, "file", &file);
    let home = store.bucket_of("file");
    let used: Vec<u64> = store.totals().buckets.iter().map(|bucket| bucket.live_bytes).collect();
    let full = 4 * CHUNK as u64;
    // Home first, then home XOR 1, and so on.
    let by_distance: Vec<u64> = (0..4).map(|step| used[usize::from(home ^ step)]).collect();
    assert_eq!(by_distance, [full, full, full, 2 * CHUNK as u64 + 5]);
    drop(store);
    assert_reads(&reopen(&fs).unwrap(), "file", &file);
}

#[test]
fn a_full_store_says_so_with_the_sizes_and_free_space_never_goes_below_nothing() {
    let store = in_memory(&MemoryFileSystem::new(), tight());
    write(&store, "a", &bytes(1, 15 * CHUNK));
    let refused = store.write("b", &bytes(2, 2 * CHUNK), WriteOptions::default());
    let Err(Error::BucketFull { needed_bytes, free_bytes, cap_bytes, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        [needed_bytes, free_bytes, cap_bytes],
        [2, 1, 4].map(|chunks| chunks * CHUNK as u64)
    );
    // Without a size told, the cap is found while streaming.
    let mut writer = store.writer("b", WriteOptions::default()).unwrap();
    assert!(matches!(writer.write(&bytes(2, 2 * CHUNK)), Err(Error::BucketFull { .. })));
    assert!(matches!(writer.commit(), Err(Error::InvalidArgument(_))));
    let totals = store.totals();
    assert!(totals.buckets.iter().all(|bucket| bucket.free_bytes <= bucket.cap_bytes));
    // What is dead makes room.
    assert!(store.unlink("a", UnlinkOptions::default()).unwrap());
    write(&store, "b", &bytes(2, 16 * CHUNK));
    assert_eq!(store.totals().free_bytes, 0);
    assert_reads(&store, "b", &bytes(2, 16 * CHUNK));
}

#[test]
fn totals_are_exact_after_every_step_and_a_reopening() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, small());
    let (mut files, mut bytes_in) = (0, 0);
    for round in 0..40_usize {
        let size = (round * 7919) % (3 * CHUNK);
        write(&store, &format!("{round}"), &bytes(round as u64, size));
        (files, bytes_in) = (files + 1, bytes_in + size as u64);
        if round % 3 == 2 {
            let gone = round - 1;
            assert!(store.unlink(&format!("{gone}"), UnlinkOptions::default()).unwrap());
            (files, bytes_in) = (files - 1, bytes_in - ((gone * 7919) % (3 * CHUNK)) as u64);
        }
        let totals = store.totals();
        assert_eq!(
            (totals.files, totals.live_bytes, totals.file_bytes),
            (files, bytes_in, bytes_in)
        );
    }
    store.reap().unwrap();
    let totals = store.totals();
    assert_eq!((totals.dead_bytes, totals.uploading_bytes), (0, 0));
    assert_eq!(totals.free_bytes, totals.cap_bytes - bytes_in);
    store.close().unwrap();
    drop(store);
    assert_eq!(reopen(&fs).unwrap().totals(), totals);
}

#[test]
fn buckets_may_be_on_several_disks() {
    let fs = MemoryFileSystem::new();
    let disks = ["/disk one", "/disk two"].map(std::path::PathBuf::from);
    let store = in_memory(&fs, CreateOptions { bucket_dirs: disks.to_vec(), ..small() });
    for at in 0..8 {
        write(&store, &format!("{at}"), &bytes(at, CHUNK));
    }
    for bucket in store.totals().buckets.iter().filter(|bucket| bucket.exists) {
        let disk = &disks[usize::from(bucket.bucket) % 2];
        assert!(store.bucket_path(bucket.bucket).starts_with(disk));
    }
    drop(store);
    let store = reopen(&fs).unwrap();
    (0..8).for_each(|at| assert_reads(&store, &format!("{at}"), &bytes(at, CHUNK)));
}

/// The sum of what is free in all buckets ran over.
#[test]
fn caps_without_end_have_totals() {
    let create = CreateOptions { bucket_cap_bytes: u64::MAX, ..small() };
    let store = in_memory(&MemoryFileSystem::new(), create);
    write(&store, "file", b"bytes");
    let totals = store.totals();
    assert_eq!((totals.live_bytes, totals.free_bytes, totals.cap_bytes), (5, u64::MAX, u64::MAX));
}
