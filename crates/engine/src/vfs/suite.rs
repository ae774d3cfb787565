//! What every file system must do, run over the disk and over memory.
//!
//! Durability is not here: only the file system in memory can lose power.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::{
    Advice, DiskFileSystem, FaultyFileSystem, File, FileSystem, MemoryFileSystem, Priority,
    SegmentMap,
};

/// Runs `body` on each file system with an empty directory of it.
fn on_each(body: impl Fn(&dyn FileSystem, &Path)) {
    let root = tempfile::tempdir().unwrap();
    body(&DiskFileSystem, root.path());
    let memory = MemoryFileSystem::new();
    memory.create_dir_all(Path::new("/root")).unwrap();
    body(&memory, Path::new("/root"));
    let faulty = FaultyFileSystem::new(Arc::new(memory));
    faulty.create_dir_all(Path::new("/faulty")).unwrap();
    body(&faulty, Path::new("/faulty"));
}

fn read(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![1; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn kind<T>(result: std::io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

fn listed(fs: &dyn FileSystem, dir: &Path) -> BTreeSet<String> {
    fs.list(dir).unwrap().into_iter().collect()
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

#[test]
fn a_file_is_made_once_and_found_by_its_name() {
    on_each(|fs, dir| {
        let path = dir.join("file");
        assert_eq!(kind(fs.open(&path)), Some(ErrorKind::NotFound));
        assert_eq!(kind(fs.open_read(&path)), Some(ErrorKind::NotFound));
        assert!(!fs.exists(&path).unwrap());
        fs.create(&path).unwrap().write_all_at(b"bytes", 0).unwrap();
        assert_eq!(kind(fs.create(&path)), Some(ErrorKind::AlreadyExists));
        assert!(fs.exists(&path).unwrap());
        assert_eq!(read(&*fs.open_read(&path).unwrap()), b"bytes");
        assert_eq!(listed(fs, dir), names(["file"]));
    });
}

#[test]
fn directories_are_made_with_their_parents_and_not_listed() {
    on_each(|fs, dir| {
        let deep = dir.join("a/b/c");
        assert_eq!(kind(fs.create(&deep.join("file"))), Some(ErrorKind::NotFound));
        assert_eq!(kind(fs.list(&deep)), Some(ErrorKind::NotFound));
        assert_eq!(kind(fs.sync_dir(&deep)), Some(ErrorKind::NotFound));
        fs.create_dir_all(&deep).unwrap();
        fs.create_dir_all(&deep).unwrap();
        assert!(fs.is_dir_empty(&deep).unwrap() && !fs.is_dir_empty(&dir.join("a")).unwrap());
        fs.create(&deep.join("file")).unwrap();
        fs.create(&dir.join("beside")).unwrap();
        fs.sync_dir(&deep).unwrap();
        assert!(fs.exists(&dir.join("a/b")).unwrap());
        assert!(!fs.is_dir_empty(&deep).unwrap());
        assert_eq!(listed(fs, &deep), names(["file"]));
        assert_eq!(listed(fs, dir), names(["beside"]));
        let below_a_file = dir.join("beside/dir");
        assert_eq!(kind(fs.create_dir_all(&below_a_file)), Some(ErrorKind::NotADirectory));
        assert_eq!(kind(fs.create_dir_all(&dir.join("beside"))), Some(ErrorKind::NotADirectory));
        assert!(!fs.exists(&below_a_file).unwrap());
        assert!(fs.available_bytes(&deep).unwrap() > 0);
    });
}

#[test]
fn writing_past_the_end_fills_the_gap_with_zeros() {
    on_each(|fs, dir| {
        let file = fs.create(&dir.join("file")).unwrap();
        assert!(file.is_empty().unwrap());
        file.write_all_at(b"end", 10_000).unwrap();
        file.write_all_at(b"start", 0).unwrap();
        file.write_all_at(b"", 50_000).unwrap();
        let mut expected = vec![0; 10_003];
        expected[..5].copy_from_slice(b"start");
        expected[10_000..].copy_from_slice(b"end");
        assert_eq!(read(&*file), expected);
    });
}

#[test]
fn a_durable_write_is_a_write() {
    on_each(|fs, dir| {
        let file = fs.create(&dir.join("file")).unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        file.sync_data().unwrap();
        file.write_durably_at(&[8; 5_000], 1_000).unwrap();
        let mut expected = vec![7; 10_000];
        expected[1_000..6_000].fill(8);
        assert_eq!(read(&*file), expected);
        let read_only = fs.open_read(&dir.join("file")).unwrap();
        assert!(read_only.write_durably_at(b"no", 0).is_err());
    });
}

#[test]
fn reading_past_the_end_is_an_error() {
    on_each(|fs, dir| {
        let file = fs.create(&dir.join("file")).unwrap();
        file.write_all_at(&[7; 5_000], 0).unwrap();
        let mut buf = [0; 1_000];
        file.read_exact_at(&mut buf, 4_000).unwrap();
        assert_eq!(buf, [7; 1_000]);
        for offset in [4_001, 5_000, 1 << 40] {
            let read = file.read_exact_at(&mut buf, offset);
            assert_eq!(kind(read), Some(ErrorKind::UnexpectedEof));
            assert_eq!(kind(file.read_at(offset, 1_000, true)), Some(ErrorKind::UnexpectedEof));
        }
        file.read_exact_at(&mut [], 5_000).unwrap();
        assert_eq!(file.read_at(4_001, 999, true).unwrap(), [7; 999]);
        assert_eq!(file.read_at(5_000, 0, true).unwrap(), []);
    });
}

#[test]
fn a_cached_read_gives_the_bytes_or_says_that_it_would_wait() {
    on_each(|fs, dir| {
        let file = fs.create(&dir.join("file")).unwrap();
        file.write_all_at(&[7; 100_000], 0).unwrap();
        let mut buf = [0; 50_000];
        match file.read_cached_at(&mut buf, 30_000) {
            Ok(()) => assert_eq!(buf, [7; 50_000]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let past = kind(file.read_cached_at(&mut buf, 50_001));
        assert!(matches!(past, Some(ErrorKind::UnexpectedEof | ErrorKind::WouldBlock)), "{past:?}");
    });
}

#[test]
fn a_read_that_leaves_nothing_behind_gives_the_same_bytes() {
    on_each(|fs, dir| {
        let file = fs.create(&dir.join("file")).unwrap();
        let written: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
        file.write_all_at(&written, 0).unwrap();
        for (from, len) in [(0, 100_000), (30_001, 50_000), (99_999, 1), (100_000, 0)] {
            let mut buf = vec![0; len];
            file.read_once_at(&mut buf, from as u64).unwrap();
            assert_eq!(buf, written[from..from + len]);
        }
        let past = kind(file.read_once_at(&mut [0; 50_000], 50_001));
        assert_eq!(past, Some(ErrorKind::UnexpectedEof));
    });
}

#[test]
fn cutting_and_growing_leave_zeros() {
    on_each(|fs, dir| {
        let file = fs.create(&dir.join("file")).unwrap();
        file.write_all_at(&[7; 9_000], 0).unwrap();
        file.set_len(100).unwrap();
        file.set_len(6_000).unwrap();
        let mut expected = vec![0; 6_000];
        expected[..100].fill(7);
        assert_eq!(read(&*file), expected);
    });
}

#[test]
fn allocating_grows_with_zeros_and_never_cuts() {
    on_each(|fs, dir| {
        let file = fs.create(&dir.join("file")).unwrap();
        file.allocate(0).unwrap();
        file.write_all_at(b"kept", 0).unwrap();
        file.allocate(100_000).unwrap();
        file.allocate(50_000).unwrap();
        let bytes = read(&*file);
        assert_eq!(bytes.len(), 100_000);
        assert_eq!(bytes[..4], *b"kept");
        assert!(bytes[4..].iter().all(|&byte| byte == 0));
    });
}

#[test]
fn a_rename_replaces_and_open_files_keep_their_bytes() {
    on_each(|fs, dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs.create(&a).unwrap().write_all_at(b"a", 0).unwrap();
        let replaced = fs.create(&b).unwrap();
        replaced.write_all_at(b"b", 0).unwrap();
        fs.rename(&a, &b).unwrap();
        assert_eq!(listed(fs, dir), names(["b"]));
        assert_eq!(read(&*fs.open(&b).unwrap()), b"a");
        assert_eq!(read(&*replaced), b"b");
        assert_eq!(kind(fs.rename(&a, &b)), Some(ErrorKind::NotFound));
        fs.rename(&b, &b).unwrap();
        assert_eq!(read(&*fs.open(&b).unwrap()), b"a");
    });
}

#[test]
fn a_removed_file_lives_on_for_those_who_have_it() {
    on_each(|fs, dir| {
        let path = dir.join("file");
        let file = fs.create(&path).unwrap();
        file.write_all_at(b"bytes", 0).unwrap();
        let map = file.map(5).unwrap();
        fs.remove(&path).unwrap();
        fs.sync_dir(dir).unwrap();
        assert_eq!(kind(fs.remove(&path)), Some(ErrorKind::NotFound));
        file.write_all_at(b"more", 5).unwrap();
        file.sync_data().unwrap();
        assert_eq!(read(&*file), b"bytesmore");
        drop(file);
        assert_eq!(map, "bytes");
        assert_eq!(read(&*fs.create(&path).unwrap()), b"");
    });
}

#[test]
fn a_hard_link_is_a_second_name_of_the_same_bytes() {
    on_each(|fs, dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        let file = fs.create(&a).unwrap();
        fs.hard_link(&a, &b).unwrap();
        file.write_all_at(b"bytes", 0).unwrap();
        assert_eq!(kind(fs.hard_link(&a, &b)), Some(ErrorKind::AlreadyExists));
        assert_eq!(kind(fs.hard_link(&dir.join("c"), &b)), Some(ErrorKind::NotFound));
        fs.rename(&a, &b).unwrap();
        assert_eq!(listed(fs, dir), names(["a", "b"]), "POSIX: one file's two names stay");
        fs.remove(&a).unwrap();
        assert_eq!(read(&*fs.open(&b).unwrap()), b"bytes");
    });
}

#[test]
fn a_lock_is_held_by_one_until_it_is_dropped() {
    on_each(|fs, dir| {
        let path = dir.join("LOCK");
        let held = fs.lock(&path).unwrap();
        assert!(fs.exists(&path).unwrap());
        assert_eq!(kind(fs.lock(&path)), Some(ErrorKind::WouldBlock));
        let other = fs.lock(&dir.join("OTHER")).unwrap();
        assert_eq!(kind(fs.lock_existing(&path)), Some(ErrorKind::WouldBlock));
        drop(held);
        let again = fs.lock_existing(&path).unwrap();
        assert_eq!(kind(fs.lock(&path)), Some(ErrorKind::WouldBlock));
        drop((other, again));
        assert_eq!(kind(fs.lock_existing(&dir.join("MISSING"))), Some(ErrorKind::NotFound));
    });
}

#[test]
fn a_file_opened_for_reading_refuses_to_change() {
    on_each(|fs, dir| {
        let path = dir.join("file");
        fs.create(&path).unwrap().write_all_at(&[7; 4_096], 0).unwrap();
        let file = fs.open_read(&path).unwrap();
        assert!(file.write_all_at(b"bytes", 0).is_err());
        assert!(file.set_len(1).is_err());
        assert!(file.allocate(9_000).is_err());
        assert!(file.map_segment(4_096).is_err());
        file.sync_data().unwrap();
        assert_eq!(read(&*file), [7; 4_096]);
    });
}

#[test]
fn a_map_holds_the_files_bytes() {
    on_each(|fs, dir| {
        let file = fs.create(&dir.join("file")).unwrap();
        let bytes: Vec<u8> = (0..10_000u32).map(|index| index as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        assert_eq!(file.map(10_000).unwrap(), bytes);
        assert_eq!(file.map(5_000).unwrap(), bytes[..5_000]);
        assert_eq!(file.map(0).unwrap(), Bytes::new());
        assert_eq!(kind(file.map(10_001)), Some(ErrorKind::UnexpectedEof));
        assert_eq!(kind(file.map_segment(10_001)), Some(ErrorKind::UnexpectedEof));
    });
}

const SEGMENT_BYTES: u64 = 64 << 10;

/// A new file and the map that all of it can be stored through.
fn segment(fs: &dyn FileSystem, path: &Path) -> (Arc<dyn File>, Arc<dyn SegmentMap>) {
    let file = fs.create(path).unwrap();
    file.allocate(SEGMENT_BYTES).unwrap();
    let map = file.map_segment(SEGMENT_BYTES).unwrap();
    map.populate(0, SEGMENT_BYTES).unwrap();
    (file, map)
}

#[test]
fn a_segment_gives_back_what_was_stored_and_the_file_holds_it() {
    on_each(|fs, dir| {
        let path = dir.join("segment");
        let (file, map) = segment(fs, &path);
        map.populate(SEGMENT_BYTES, 0).unwrap();
        map.write(0, b"first");
        map.write(4_090, &[7; 5_000]);
        map.write(SEGMENT_BYTES - 4, b"last");
        assert_eq!(map.slice(0, 6), &b"first\0"[..]);
        assert_eq!(map.slice(4_090, 5_000), vec![7; 5_000]);
        file.write_all_at(b"written", 20_000).unwrap();
        assert_eq!(map.slice(20_000, 7), "written");
        file.sync_data().unwrap();
        let bytes = read(&*fs.open_read(&path).unwrap());
        assert_eq!(bytes[..5], *b"first");
        assert_eq!(bytes[4_090..9_090], [7; 5_000]);
        assert_eq!(bytes[SEGMENT_BYTES as usize - 4..], *b"last");
    });
}

#[test]
fn populating_keeps_the_bytes_of_a_file_that_is_used_again() {
    on_each(|fs, dir| {
        let file = fs.create(&dir.join("segment")).unwrap();
        file.write_all_at(&[7; SEGMENT_BYTES as usize], 0).unwrap();
        let map = file.map_segment(SEGMENT_BYTES).unwrap();
        map.populate(100, SEGMENT_BYTES - 200).unwrap();
        map.write(5_000, b"new");
        let mut expected = [7; SEGMENT_BYTES as usize];
        expected[5_000..5_003].copy_from_slice(b"new");
        assert_eq!(map.slice(0, SEGMENT_BYTES as usize), &expected[..]);
    });
}

#[test]
fn a_segment_is_shared_while_any_part_of_a_slice_lives() {
    on_each(|fs, dir| {
        let (_file, map) = segment(fs, &dir.join("segment"));
        map.write(0, b"some bytes");
        assert!(!map.is_shared());
        let slice = map.slice(0, 10);
        assert!(map.is_shared());
        let part = slice.slice(5..);
        let clone = part.clone();
        drop((slice, part));
        assert!(map.is_shared());
        assert_eq!(clone, "bytes");
        drop(clone);
        assert!(!map.is_shared());
        let of_another =
            std::thread::scope(|scope| scope.spawn(|| map.slice(0, 4)).join().unwrap());
        assert!(map.is_shared());
        drop((of_another, map.slice(5, 5)));
        assert!(!map.is_shared());
        let empty = map.slice(0, 0);
        assert!(empty.is_empty() && !map.is_shared());
    });
}

#[test]
fn what_is_lent_is_what_was_stored_and_is_not_shared() {
    on_each(|fs, dir| {
        let (_file, map) = segment(fs, &dir.join("segment"));
        map.write(SEGMENT_BYTES - 5, b"bytes");
        if let Some(lent) = map.lend(SEGMENT_BYTES - 5, 5) {
            assert_eq!(lent, b"bytes");
            assert_eq!(map.lend(SEGMENT_BYTES, 0), Some(&[][..]));
            assert!(!map.is_shared());
        }
    });
}

#[test]
fn a_slice_outlives_its_map_and_file() {
    on_each(|fs, dir| {
        let path = dir.join("segment");
        let (file, map) = segment(fs, &path);
        map.write(100, b"bytes");
        let slice = map.slice(100, 5);
        drop((map, file));
        fs.remove(&path).unwrap();
        assert_eq!(slice, "bytes");
    });
}

#[test]
fn threads_store_and_slice_different_ranges_at_once() {
    on_each(|fs, dir| {
        let (file, map) = segment(fs, &dir.join("segment"));
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let map = &map;
                scope.spawn(move || {
                    // Ranges of 100 bytes in turn, so that threads share pages.
                    for round in 0..100u64 {
                        let offset = round * 400 + u64::from(thread) * 100;
                        map.write(offset, &[thread + 1; 100]);
                        assert_eq!(map.slice(offset, 100), &[thread + 1; 100][..]);
                    }
                });
            }
        });
        let bytes = read(&*file);
        for (index, piece) in bytes[..40_000].chunks(100).enumerate() {
            assert_eq!(piece, [(index % 4) as u8 + 1; 100]);
        }
        assert!(!map.is_shared());
    });
}

#[test]
fn hints_change_nothing() {
    on_each(|fs, dir| {
        let file = fs.create(&dir.join("file")).unwrap();
        file.write_all_at(&[7; 9_000], 0).unwrap();
        file.start_writeback(0, 9_000);
        use Advice::*;
        for advice in [Random, Sequential, WillNeed, DontNeed, Used] {
            file.advise(advice, 0, 9_000);
        }
        assert_eq!(read(&*file), [7; 9_000]);
    });
}

#[test]
fn a_spawned_thread_has_its_name_and_runs() {
    for priority in [Priority::Normal, Priority::Low, Priority::Lowest] {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = super::spawn("worker", priority, move || {
            sender.send(std::thread::current().name().map(str::to_owned)).unwrap();
        });
        thread.unwrap().join().unwrap();
        assert_eq!(receiver.recv().unwrap().as_deref(), Some("worker"));
    }
}
