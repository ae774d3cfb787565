//! What a newer release wrote, and settings that the engine refuses: neither is lost, and no repair goes on without
//! it.

use std::path::{Path, PathBuf};

use tallybook::checksum;
use tallybook::vfs::{CrashMode, FileSystem, MemoryFileSystem};
use tallybook_files::{
    CreateOptions, Error, FileStore, OpenOptions, RepairOptions, UnlinkOptions, VerifyOptions,
};

use crate::failing_bucket::name_in;
use crate::support::{
    CHUNK, assert_reads, bytes, engine_store, in_memory, inline, lose_catalogue, memory_dir,
    reopen, small, write,
};

const DIRECTORIES: [&str; 2] = ["catalogue-000001", "buckets/000-000001"];

/// A format version that no release has.
const NEWER: u32 = 99;

fn contents(fs: &MemoryFileSystem, path: &Path) -> Vec<u8> {
    let file = fs.open_read(path).unwrap();
    let mut contents = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut contents, 0).unwrap();
    contents
}

/// Gives a file of an engine store a newer format version, with the right checksum; whether it has one.
fn make_newer(fs: &MemoryFileSystem, path: &Path) -> bool {
    let mut contents = contents(fs, path);
    let name = path.file_name().unwrap().to_str().unwrap();
    // Where the part that has the version begins, the version in it, and the checksum that follows.
    let (start, version, end) = match name.rsplit('.').next() {
        Some("sst") => (contents.len() - 80, 56, 76),
        Some("journal") => (0, 8, 60),
        _ if name.starts_with("MANIFEST") => (0, 8, 28),
        _ => return false,
    };
    let part = &mut contents[start..];
    part[version..version + 4].copy_from_slice(&NEWER.to_le_bytes());
    let checksum = checksum::crc32c(&part[..end]);
    part[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
    fs.open(path).unwrap().write_all_at(&contents, 0).unwrap();
    true
}

/// The store's description, and what is in engine stores that would be made anew.
fn left_alone(fs: &MemoryFileSystem) -> (Vec<Vec<u8>>, Vec<String>) {
    let descriptions = ["STORE", "STORE.copy"].map(|name| contents(fs, &memory_dir().join(name)));
    let anew = ["buckets/000-000002", "catalogue-000002", "catalogue-000003"];
    let names = |name| fs.list(&memory_dir().join(name)).unwrap_or_default();
    (descriptions.to_vec(), anew.into_iter().flat_map(names).collect())
}

fn is_of_newer(error: &Error) -> bool {
    !matches!(error, Error::CatalogueLost { .. } | Error::BucketLost { .. } | Error::Damaged { .. })
        && error.to_string().contains("newer format")
}

/// An older release took it for lost, and its repair made the store anew and empty.
#[test]
fn what_a_newer_release_wrote_is_refused_and_not_made_anew() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, CreateOptions { bucket_count: 2, ..small() });
    let names = [0, 1].map(|bucket| name_in(&store, bucket, 0));
    names.iter().for_each(|name| drop(write(&store, name, &bytes(1, CHUNK))));
    store.close().unwrap();
    drop(store);
    for name in DIRECTORIES {
        let store = engine_store(&memory, name);
        store.compact(None, None, &mut |_, _| {}).unwrap();
        store.close().unwrap();
    }
    let files: Vec<PathBuf> = DIRECTORIES
        .iter()
        .map(|name| memory_dir().join(name))
        .flat_map(|dir| memory.list(&dir).unwrap().into_iter().map(move |name| dir.join(name)))
        .collect();
    let mut refused_kinds = Vec::new();
    for path in files {
        let fs = memory.image().crash(CrashMode::KeepAll, 0);
        if !make_newer(&fs, &path) {
            continue;
        }
        let place = path.display();
        let before = left_alone(&fs);
        let read = reopen(&fs).and_then(|store| {
            assert_reads(&store, &names[1], &bytes(1, CHUNK));
            store.read(&names[0])
        });
        let Err(error) = read else { continue };
        assert!(is_of_newer(&error), "{place}: {error:?}");
        refused_kinds.push(path.extension().map(ToOwned::to_owned));
        for is_catalogue_lost in [false, !path.starts_with(memory_dir().join(DIRECTORIES[0]))] {
            if is_catalogue_lost {
                lose_catalogue(&fs);
            }
            let refused =
                FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
            assert!(refused.as_ref().is_err_and(is_of_newer), "{place}: {refused:?}");
            assert!(left_alone(&fs) == before, "{place}");
        }
    }
    refused_kinds.sort();
    refused_kinds.dedup();
    assert_eq!(refused_kinds.len(), 3, "{refused_kinds:?}");
}

/// Makes the manifests of a bucket those of a newer release.
fn make_bucket_newer(fs: &MemoryFileSystem, bucket: &str) {
    let dir = memory_dir().join(bucket);
    let names = fs.list(&dir).unwrap();
    let made = names.iter().filter(|name| make_newer(fs, &dir.join(name))).count();
    assert!(made > 0, "{names:?}");
}

/// A verification ended at the first file in such a bucket, and each pass of the reaper failed.
#[test]
fn a_bucket_that_a_newer_release_wrote_holds_up_no_other() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, CreateOptions { bucket_count: 2, ..small() });
    let names = [0, 1].map(|bucket| [0, 1].map(|which| name_in(&store, bucket, which)));
    names.iter().flatten().for_each(|name| drop(write(&store, name, &bytes(1, CHUNK))));
    store.close().unwrap();
    drop(store);
    make_bucket_newer(&fs, DIRECTORIES[1]);
    let store = reopen(&fs).unwrap();
    for [unlinked, _] in &names {
        assert!(store.unlink(unlinked, UnlinkOptions::default()).unwrap());
    }
    let reaped = store.reap().unwrap();
    assert_eq!((reaped.contents, reaped.waiting), (1, 1));
    let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    let [damage] = &report.damage[..] else { panic!("{report:?}") };
    assert!(damage.name == names[0][1] && damage.is_unread, "{damage:?}");
    assert!(damage.what.contains("newer format"), "{damage:?}");
    assert_eq!((report.files, &report.unread_buckets[..]), (2, &[0][..]));
    assert!(report.is_complete && report.lost_buckets.is_empty(), "{report:?}");
    // It is not refused from then on: with the release that wrote it, it is read.
    assert!(store.read(&names[0][1]).is_err_and(|error| is_of_newer(&error)));
    assert_reads(&store, &names[1][1], &bytes(1, CHUNK));
}

/// A bucket that another process looks into ended a verification, too.
#[test]
fn a_bucket_that_somebody_else_has_open_ends_no_verification() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, CreateOptions { bucket_count: 2, ..small() });
    let names = [0, 1].map(|bucket| name_in(&store, bucket, 0));
    names.iter().for_each(|name| drop(write(&store, name, &bytes(1, CHUNK))));
    store.close().unwrap();
    drop(store);
    let elsewhere = engine_store(&fs, DIRECTORIES[1]);
    let store = reopen(&fs).unwrap();
    let verify = || store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    let report = verify();
    let [damage] = &report.damage[..] else { panic!("{report:?}") };
    assert!(damage.name == names[0] && damage.is_unread, "{damage:?}");
    elsewhere.close().unwrap();
    drop(elsewhere);
    assert_eq!(verify().damage, []);
}

/// Each repair that was refused left a catalogue behind, filled from the buckets before that one.
#[test]
fn a_repair_that_is_refused_leaves_no_catalogue() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, CreateOptions { bucket_count: 2, ..small() });
    let names = [0, 1].map(|bucket| name_in(&store, bucket, 0));
    names.iter().for_each(|name| drop(write(&store, name, &bytes(1, CHUNK))));
    store.close().unwrap();
    drop(store);
    lose_catalogue(&fs);
    let repair =
        || FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
    let elsewhere = engine_store(&fs, "buckets/001-000001");
    let before = left_alone(&fs);
    for _ in 0..2 {
        let refused = repair();
        let is_locked = matches!(refused, Err(Error::Engine(tallybook::Error::Locked { .. })));
        assert!(is_locked, "{refused:?}");
        assert!(left_alone(&fs) == before, "{:?}", left_alone(&fs).1);
    }
    elsewhere.close().unwrap();
    drop(elsewhere);
    repair().unwrap();
    assert!(!fs.exists(&memory_dir().join("catalogue-000003")).unwrap());
    let store = reopen(&fs).unwrap();
    names.iter().for_each(|name| assert_reads(&store, name, &bytes(1, CHUNK)));
}

/// An older release took a description that a newer one had written for damaged, and wrote over it.
#[test]
fn a_description_of_a_newer_format_is_refused_and_left_as_it_is() {
    for name in ["STORE", "STORE.copy"] {
        let fs = MemoryFileSystem::new();
        let store = in_memory(&fs, small());
        write(&store, "file", b"file");
        store.close().unwrap();
        drop(store);
        let path = memory_dir().join(name);
        let mut newer = contents(&fs, &path);
        newer[8] = 2;
        let end = newer.len() - 4;
        let checksum = checksum::crc32c(&newer[..end]);
        newer[end..].copy_from_slice(&checksum.to_le_bytes());
        fs.open(&path).unwrap().write_all_at(&newer, 0).unwrap();
        let before = left_alone(&fs);
        let refused = [
            reopen(&fs).map(drop),
            FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()))
                .map(drop),
        ];
        for refused in refused {
            let told = refused.as_ref().is_err_and(|error| {
                is_of_newer(error) && error.to_string().contains(&*path.to_string_lossy())
            });
            assert!(told, "{name}: {refused:?}");
        }
        assert!(left_alone(&fs) == before, "{name}");
    }
}

/// A sound store was called lost where the segments that were asked for are larger than the engine's largest.
#[test]
fn large_segments_are_taken_and_no_sound_store_is_lost() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, CreateOptions { bucket_count: 1, ..small() });
    write(&store, "file", b"file");
    store.close().unwrap();
    drop(store);
    let options = OpenOptions { segment_bytes_min: Some(128 << 20), ..OpenOptions::default() };
    let store = FileStore::open_with(memory_dir(), options, inline(memory.clone())).unwrap();
    assert_reads(&store, "file", b"file");
    write(&store, "file", b"anew");
    assert_reads(&store, "file", b"anew");
}
