//! What crashes leave, what observers see, and where the disk is full.

use std::sync::Mutex;

use super::*;

const PAGE: usize = 4096;

/// A file system with the directory `/d`.
fn with_dir() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    fs.create_dir_all(Path::new("/d")).unwrap();
    fs
}

fn path(name: &str) -> PathBuf {
    Path::new("/d").join(name)
}

fn write(fs: &MemoryFileSystem, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = fs.create(&path(name)).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn write_durably(fs: &MemoryFileSystem, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = write(fs, name, bytes);
    file.sync_data().unwrap();
    fs.sync_dir(Path::new("/d")).unwrap();
    file
}

fn read(fs: &MemoryFileSystem, name: &str) -> Vec<u8> {
    let file = fs.open_read(&path(name)).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Every name in `/d` with its bytes.
fn tree(fs: &MemoryFileSystem) -> Vec<(String, Vec<u8>)> {
    let names = fs.list(Path::new("/d")).unwrap();
    names.into_iter().map(|name| (name.clone(), read(fs, &name))).collect()
}

fn lose(fs: &MemoryFileSystem) -> MemoryFileSystem {
    fs.image().crash(CrashMode::LoseUnsynced, 0)
}

#[test]
fn synced_contents_under_an_unsynced_name_vanish() {
    let fs = with_dir();
    write(&fs, "file", b"bytes").sync_data().unwrap();
    assert_eq!(tree(&lose(&fs)), []);
    fs.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(tree(&lose(&fs)), [("file".into(), b"bytes".to_vec())]);
}

#[test]
fn a_synced_name_of_unsynced_contents_is_an_empty_file() {
    let fs = with_dir();
    let file = write(&fs, "file", b"bytes");
    fs.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(read(&lose(&fs), "file"), b"");
    file.sync_data().unwrap();
    file.write_all_at(b"more", 5).unwrap();
    assert_eq!(read(&lose(&fs), "file"), b"bytes");
}

#[test]
fn unsynced_rename_removal_and_link_are_undone() {
    let fs = with_dir();
    for name in ["kept", "replaced", "removed"] {
        write_durably(&fs, name, name.as_bytes());
    }
    let before = tree(&fs);
    fs.rename(&path("kept"), &path("replaced")).unwrap();
    fs.remove(&path("removed")).unwrap();
    fs.hard_link(&path("replaced"), &path("linked")).unwrap();
    let after = tree(&fs);
    assert_eq!(tree(&lose(&fs)), before);
    fs.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(tree(&lose(&fs)), after);
    let kept = b"kept".to_vec();
    assert_eq!(after, [("linked".into(), kept.clone()), ("replaced".into(), kept)]);
}

#[test]
fn a_killed_process_loses_nothing_that_was_written() {
    let fs = with_dir();
    write(&fs, "a", b"never synced");
    fs.rename(&path("a"), &path("b")).unwrap();
    fs.remove(&path("b")).unwrap();
    write(&fs, "c", &[3; 10_000]);
    assert_eq!(tree(&fs.image().crash(CrashMode::KeepAll, 0)), tree(&fs));
    assert_eq!(tree(&lose(&fs)), []);
}

#[test]
fn what_a_crash_leaves_is_durable_and_apart() {
    let fs = with_dir();
    let file = write(&fs, "file", b"before");
    let left = fs.image().crash(CrashMode::KeepAll, 0);
    file.write_all_at(b"after!", 0).unwrap();
    assert_eq!(read(&lose(&left), "file"), b"before");
    left.remove(&path("file")).unwrap();
    assert_eq!(read(&fs, "file"), b"after!");
}

#[test]
fn stores_through_a_segment_map_are_lost_page_by_page() {
    let fs = with_dir();
    let file = fs.create(&path("segment")).unwrap();
    file.allocate(8 * PAGE as u64).unwrap();
    let map = file.map_segment(8 * PAGE as u64).unwrap();
    map.populate(0, 8 * PAGE as u64).unwrap();
    map.write(0, &[1; PAGE]);
    file.sync_data().unwrap();
    fs.sync_dir(Path::new("/d")).unwrap();
    map.write(PAGE as u64, &[2; 7 * PAGE]);

    let mut expected = vec![0; 8 * PAGE];
    expected[..PAGE].fill(1);
    assert_eq!(read(&lose(&fs), "segment"), expected);

    let mixed = (0..50).any(|seed| {
        let left = read(&fs.image().crash(CrashMode::Random, seed), "segment");
        assert_eq!(left[..PAGE], [1; PAGE], "a synced page survives");
        let pages: Vec<&[u8]> = left[PAGE..].chunks(PAGE).collect();
        pages.contains(&&[0; PAGE][..]) && pages.contains(&&[2; PAGE][..])
    });
    assert!(mixed, "pages of one store are lost one by one");
}

#[test]
fn a_random_crash_keeps_a_name_without_its_contents_at_times() {
    let fs = with_dir();
    write(&fs, "file", b"bytes");
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        seen.insert(tree(&fs.image().crash(CrashMode::Random, seed)));
    }
    let file = |bytes: &[u8]| vec![("file".to_owned(), bytes.to_vec())];
    for possible in [vec![], file(b""), file(&[0; 5]), file(b"bytes")] {
        assert!(seen.contains(&possible), "{possible:?} is possible");
    }
}

/// A run with unsynced changes of every sort.
fn busy() -> MemoryFileSystem {
    let fs = with_dir();
    for index in 0..10u8 {
        let name = format!("{index}");
        let file = write_durably(&fs, &name, &[index; 20_000]);
        file.write_all_at(&[index + 100; 9_000], 3_000 * u64::from(index)).unwrap();
        write(&fs, &format!("new-{index}"), &[index; 5_000]);
    }
    fs.rename(&path("1"), &path("2")).unwrap();
    fs.remove(&path("3")).unwrap();
    fs.hard_link(&path("4"), &path("linked")).unwrap();
    fs
}

#[test]
fn the_same_calls_and_seed_give_the_same_crash() {
    let (one, other) = (busy().image(), busy().image());
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let left = tree(&one.crash(CrashMode::Random, seed));
        assert_eq!(left, tree(&other.crash(CrashMode::Random, seed)), "seed {seed}");
        seen.insert(left);
    }
    assert_eq!(seen.len(), 20, "other seeds give other crashes");
}

#[test]
fn two_names_of_a_file_are_still_one_file_after_a_crash() {
    let fs = with_dir();
    write_durably(&fs, "a", b"bytes");
    fs.hard_link(&path("a"), &path("b")).unwrap();
    fs.sync_dir(Path::new("/d")).unwrap();
    let left = fs.image().crash(CrashMode::Random, 7);
    left.open(&path("a")).unwrap().write_all_at(b"BYTES", 0).unwrap();
    assert_eq!(read(&left, "b"), b"BYTES");
}

#[test]
fn with_syncs_disabled_nothing_becomes_durable() {
    let fs = with_dir();
    fs.sync_disabled(true);
    write_durably(&fs, "file", b"bytes");
    assert_eq!(tree(&lose(&fs)), []);
    assert_eq!(tree(&fs).len(), 1);
}

#[test]
fn the_observer_sees_each_operation_and_the_state_right_after_it() {
    let fs = with_dir();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    fs.set_observer(Some(Box::new(move |ordinal, operation, moment| {
        let left = moment.image().crash(CrashMode::LoseUnsynced, 0);
        let name = moment.path().file_name().unwrap().to_owned();
        sink.lock().unwrap().push((ordinal, operation, name, tree(&left).len()));
    })));
    let file = fs.create(&path("f")).unwrap();
    file.allocate(4_096).unwrap();
    let map = file.map_segment(4_096).unwrap();
    map.populate(0, 4_096).unwrap();
    map.write(0, b"bytes");
    assert!(fs.remove(&path("absent")).is_err(), "a failure doesn't count");
    fs.sync_dir(Path::new("/d")).unwrap();
    fs.rename(&path("f"), &path("g")).unwrap();
    fs.set_observer(None);
    fs.remove(&path("g")).unwrap();

    let seen: Vec<_> = seen.lock().unwrap().drain(..).collect();
    let expected = [
        (1, "create", "f", 0),
        (2, "allocate", "f", 0),
        (3, "map_write", "f", 0),
        (4, "sync_dir", "d", 1),
        (5, "rename", "g", 1),
    ];
    assert_eq!(seen, expected.map(|(at, op, name, files)| (at, op, name.into(), files)));
    assert_eq!(fs.operation_count(), 6);
}

#[test]
fn growth_beyond_the_capacity_is_refused_until_space_is_freed() {
    let fs = with_dir();
    fs.set_capacity(Some(10 * PAGE as u64));
    let file = write(&fs, "file", &[1; 4 * PAGE]);
    assert_eq!(fs.available_bytes(Path::new("/d")).unwrap(), 5 * PAGE as u64);
    let full = |result: io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
    };
    full(file.set_len(10 * PAGE as u64));
    full(file.allocate(10 * PAGE as u64));
    assert_eq!(file.len().unwrap(), 4 * PAGE as u64);
    full(file.write_all_at(&[2; 10 * PAGE], PAGE as u64));
    assert_eq!(file.len().unwrap(), 9 * PAGE as u64, "what fits is written");
    assert_eq!(fs.available_bytes(Path::new("/d")).unwrap(), 0);
    full(fs.create(&path("other")).map(drop));
    file.write_all_at(&[3; 9 * PAGE], 0).unwrap();

    fs.remove(&path("file")).unwrap();
    assert_eq!(fs.available_bytes(Path::new("/d")).unwrap(), 0, "it is still open");
    drop(file);
    assert_eq!(fs.available_bytes(Path::new("/d")).unwrap(), 10 * PAGE as u64);
    fs.create(&path("other")).unwrap();
    fs.set_capacity(None);
    assert_eq!(fs.available_bytes(Path::new("/d")).unwrap(), 1 << 40);
}

#[test]
fn a_lock_does_not_outlive_a_crash() {
    let fs = with_dir();
    let _held = fs.lock(&path("LOCK")).unwrap();
    fs.sync_dir(Path::new("/d")).unwrap();
    assert!(lose(&fs).lock(&path("LOCK")).is_ok());
}

#[test]
#[should_panic(expected = "is populated before it is written")]
fn a_store_that_was_not_populated_is_refused() {
    let fs = with_dir();
    let file = fs.create(&path("segment")).unwrap();
    file.allocate(2 * PAGE as u64).unwrap();
    let map = file.map_segment(2 * PAGE as u64).unwrap();
    map.populate(0, PAGE as u64).unwrap();
    map.write(PAGE as u64 - 1, b"ab");
}

#[test]
fn a_quarter_gibibyte_of_small_appends_with_images_is_workable() {
    let fs = with_dir();
    let file = write(&fs, "file", &vec![1; 256 << 20]);
    file.sync_data().unwrap();
    let mut images = Vec::new();
    for index in 0..2_000u64 {
        file.write_all_at(&[2; 100], (256 << 20) + index * 100).unwrap();
        if index % 200 == 0 {
            images.push(fs.image());
        }
    }
    let lens: Vec<u64> = images
        .iter()
        .map(|image| image.crash(CrashMode::KeepAll, 0))
        .map(|left| left.open(&path("file")).unwrap().len().unwrap())
        .collect();
    let expected: Vec<u64> = (0..10).map(|image| (256 << 20) + image * 20_000 + 100).collect();
    assert_eq!(lens, expected);
}
