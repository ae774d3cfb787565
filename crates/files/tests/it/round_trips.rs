//! What was written is read back: sizes around a chunk, ranges, replacement, streams.

use std::io::{Read, Write};

use tallybook::vfs::MemoryFileSystem;
use tallybook_files::{Condition, Error, ReadOptions, UnlinkOptions, WriteOptions};

use crate::support::{CHUNK, assert_reads, bytes, in_memory, on_disk, reopen, small, write};

#[test]
fn files_of_every_size_come_back() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, small());
    let sizes = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 10 << 20];
    for (seed, size) in (0..).zip(sizes) {
        let stat = write(&store, &format!("of {size}"), &bytes(seed, size));
        assert_eq!(stat.size, size as u64);
        assert_eq!(stat.blake3, *blake3::hash(&bytes(seed, size)).as_bytes());
    }
    store.close().unwrap();
    drop(store);
    let store = reopen(&fs).unwrap();
    for (seed, size) in (0..).zip(sizes) {
        assert_reads(&store, &format!("of {size}"), &bytes(seed, size));
    }
    assert_eq!(store.totals().files, sizes.len() as u64);
    assert_eq!(store.totals().live_bytes, sizes.iter().sum::<usize>() as u64);
}

#[test]
fn an_empty_file_exists() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    assert!(store.read("empty").unwrap().is_none());
    write(&store, "empty", b"");
    assert_eq!(store.read("empty").unwrap(), Some(Vec::new()));
    assert_eq!(store.stat("empty").unwrap().unwrap().size, 0);
}

#[test]
fn a_missing_file_is_told_from_an_empty_one() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    assert!(store.reader("nothing", ReadOptions::default()).unwrap().is_none());
    assert!(store.stat("nothing").unwrap().is_none());
    assert!(!store.unlink("nothing", UnlinkOptions::default()).unwrap());
}

#[test]
fn a_shorter_file_leaves_no_tail_of_the_longer_one() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    write(&store, "file", &bytes(1, 5 * CHUNK));
    write(&store, "file", &bytes(2, CHUNK + 3));
    assert_reads(&store, "file", &bytes(2, CHUNK + 3));
    store.reap().unwrap();
    assert_eq!(store.totals().live_bytes, CHUNK as u64 + 3);
    assert_eq!(store.totals().dead_bytes, 0);
}

#[test]
fn ranges_are_read_at_every_edge() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    let all = bytes(1, 3 * CHUNK + 100);
    write(&store, "file", &all);
    let edges = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 99, all.len(), 1 << 30];
    for start in edges {
        for end in edges.into_iter().filter(|&end| end >= start) {
            let range = Some(start as u64..end as u64);
            let options = ReadOptions { range, ..ReadOptions::default() };
            let mut read = Vec::new();
            store.reader("file", options).unwrap().unwrap().read_to_end(&mut read).unwrap();
            let expected = &all[start.min(all.len())..end.min(all.len())];
            assert!(read == expected, "{start}..{end}");
        }
    }
}

#[test]
fn a_range_reads_only_its_chunks() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    write(&store, "file", &bytes(1, 20 * CHUNK));
    let range = Some(5 * CHUNK as u64..5 * CHUNK as u64 + 10);
    let reader = store.reader("file", ReadOptions { range, ..ReadOptions::default() });
    let chunks: Vec<_> = reader.unwrap().unwrap().map(|chunk| chunk.unwrap().len()).collect();
    assert_eq!(chunks, [10]);
}

#[test]
fn a_stream_from_a_path_keeps_its_last_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(&dir.path().join("store"), small());
    let source = dir.path().join("source");
    for size in [2 * CHUNK, 2 * CHUNK + 1, 5 * CHUNK - 1] {
        std::fs::write(&source, bytes(3, size)).unwrap();
        let mut writer = store.writer("file", WriteOptions::default()).unwrap();
        std::io::copy(&mut std::fs::File::open(&source).unwrap(), &mut writer).unwrap();
        writer.flush().unwrap();
        writer.commit().unwrap();
        assert_reads(&store, "file", &bytes(3, size));
    }
}

#[test]
fn nothing_shows_before_the_commit_and_nothing_is_left_of_a_dropped_writer() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    write(&store, "file", b"old");
    let mut writer = store.writer("file", WriteOptions::default()).unwrap();
    writer.write(&bytes(1, 3 * CHUNK)).unwrap();
    assert_reads(&store, "file", b"old");
    assert_eq!(store.totals().uploading_bytes, 3 * CHUNK as u64);
    drop(writer);
    assert_eq!(store.totals().uploading_bytes, 0);
    assert_eq!(store.totals().dead_bytes, 3 * CHUNK as u64);
    store.reap().unwrap();
    assert_eq!(store.totals().dead_bytes, 0);
    assert_reads(&store, "file", b"old");
}

#[test]
fn two_writers_of_one_name_both_succeed_and_one_wins_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), small());
    let files = [bytes(1, 20 * CHUNK + 1), bytes(2, 19 * CHUNK)];
    for _ in 0..5 {
        std::thread::scope(|scope| {
            for file in &files {
                let store = store.clone();
                scope.spawn(move || {
                    let mut writer = store.writer("file", WriteOptions::default()).unwrap();
                    file.chunks(10_000).for_each(|part| writer.write(part).unwrap());
                    writer.commit().unwrap();
                });
            }
        });
        let read = store.read("file").unwrap().unwrap();
        assert!(files.contains(&read), "the file is neither of the two");
    }
}

#[test]
fn a_reader_keeps_what_it_reads_when_the_file_is_replaced() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    write(&store, "file", &bytes(1, 4 * CHUNK));
    let mut reader = store.reader("file", ReadOptions::default()).unwrap().unwrap();
    let mut read = reader.next_chunk().unwrap().unwrap().to_vec();
    write(&store, "file", b"new");
    assert_eq!(store.reap().unwrap().waiting, 1);
    reader.for_each(|chunk| read.extend_from_slice(&chunk.unwrap()));
    assert!(read == bytes(1, 4 * CHUNK));
    assert_eq!(store.reap().unwrap().contents, 1);
    assert_reads(&store, "file", b"new");
}

#[test]
fn conditions_are_held_at_the_commit() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    let only_if = |condition| WriteOptions { condition: Some(condition), ..Default::default() };
    let first = store.write("file", b"1", only_if(Condition::Absent)).unwrap();
    let refused = store.write("file", b"2", only_if(Condition::Absent));
    assert!(matches!(refused, Err(Error::Conflict { current }) if current == Some(first.version)));
    let mut late = store.writer("file", only_if(Condition::Version(first.version))).unwrap();
    late.write(b"late").unwrap();
    let second = store.write("file", b"3", only_if(Condition::Version(first.version))).unwrap();
    let refused = late.commit();
    assert!(matches!(refused, Err(Error::Conflict { current }) if current == Some(second.version)));
    assert_reads(&store, "file", b"3");
    let stale =
        UnlinkOptions { condition: Some(Condition::Version(first.version)), ..Default::default() };
    assert!(matches!(store.unlink("file", stale), Err(Error::Conflict { .. })));
}

#[test]
fn a_wrong_size_or_md5_is_refused() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    let mut short =
        store.writer("file", WriteOptions { size: Some(4), ..Default::default() }).unwrap();
    short.write(b"abc").unwrap();
    assert!(matches!(short.commit(), Err(Error::InvalidArgument(_))));
    let mut long =
        store.writer("file", WriteOptions { size: Some(2), ..Default::default() }).unwrap();
    assert!(matches!(long.write(b"abc"), Err(Error::InvalidArgument(_))));
    let wrong = WriteOptions { md5_expected: Some([0; 16]), ..Default::default() };
    assert!(matches!(store.write("file", b"abc", wrong), Err(Error::InvalidArgument(_))));
    assert!(store.stat("file").unwrap().is_none());
    let with_md5 = WriteOptions { md5: true, ..Default::default() };
    let stat = store.write("file", b"abc", with_md5).unwrap();
    // RFC 1321, A.5.
    let expected = "900150983cd24fb0d6963f7d28e17f72";
    assert_eq!(
        stat.md5.map(|md5| md5.map(|byte| format!("{byte:02x}")).concat()),
        Some(expected.into())
    );
}

#[test]
fn a_whole_file_is_read_in_one_pass() {
    use std::sync::Arc;

    use tallybook::vfs::FaultyFileSystem;
    use tallybook_files::{FileStore, OpenOptions};

    use crate::support::{inline, memory_dir};

    // Operations of the file system are counted: as many for each chunk, however many there are.
    let fs = FaultyFileSystem::new(Arc::new(MemoryFileSystem::new()));
    let options = OpenOptions::default();
    let resources = inline(fs.clone());
    let store = FileStore::create_with(memory_dir(), small(), options, resources).unwrap();
    let mut operations = Vec::new();
    for chunks in [20, 80] {
        write(&store, "file", &bytes(1, chunks * CHUNK));
        store.read("file").unwrap();
        let before = fs.operation_count();
        assert_reads(&store, "file", &bytes(1, chunks * CHUNK));
        operations.push((fs.operation_count() - before) as usize);
    }
    assert!(operations[0] >= 20 && operations[1] <= operations[0] * 4 + 20, "{operations:?}");
}
