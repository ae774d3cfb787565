//! A small store whose files are damaged: it opens or refuses, and shows nothing that was never written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use bytes::Bytes;
use tallybook::file_name::{self, FileKind};
use tallybook::options::LEVEL_COUNT;
use tallybook::store::ScanOptions;
use tallybook::vfs::{CrashMode, MemoryFileSystem, MemoryImage};
use tallybook::{Compression, Options, Store, WriteBatch, WriteOptions};

use crate::disk;
use crate::input::Input;

/// A store that was killed, and every value that any key ever had.
struct Killed {
    image: MemoryImage,
    written: BTreeMap<Bytes, BTreeSet<Bytes>>,
}

static KILLED: LazyLock<Killed> = LazyLock::new(Killed::make);

/// Small files, so that there are many.
pub(crate) fn options() -> Options {
    let mut compression = [Compression::None; LEVEL_COUNT];
    compression[1] = Compression::Lz4;
    compression[2..].fill(Compression::Zstd);
    Options {
        inline_max_bytes: 64,
        memtable_bytes: 4 << 10,
        memtable_journal_bytes: 64 << 10,
        write_buffer_bytes: 64 << 10,
        segment_bytes_min: 4 << 10,
        segment_bytes_max: 8 << 10,
        block_bytes: 256,
        table_bytes: 4 << 10,
        level_runs_max: 2,
        compression,
        ..Options::default()
    }
}

impl Killed {
    fn make() -> Killed {
        let fs = disk::empty();
        let store = Store::open_with(disk::dir(), options(), disk::inline(&fs));
        let store = store.expect("a new store opens");
        let mut written: BTreeMap<Bytes, BTreeSet<Bytes>> = BTreeMap::new();
        for round in 0..4u8 {
            for number in 0..24u8 {
                let key = Bytes::from(format!("key-{number:03}"));
                let value = Bytes::from(vec![round * 24 + number; usize::from(number) * 4 + 1]);
                let options = WriteOptions {
                    attributes: Bytes::copy_from_slice(&[number; 3][..usize::from(number % 4)]),
                    ..WriteOptions::default()
                };
                store.put_with(&key, &value, &options).expect("a write is taken");
                written.entry(key).or_default().insert(value);
            }
            store.delete(format!("key-{round:03}").as_bytes()).expect("a deletion is taken");
            store.delete_range(b"key-010", b"key-012").expect("a deletion is taken");
            if round < 3 {
                store.flush().expect("a flush succeeds");
            }
        }
        let mut batch = WriteBatch::new();
        batch.put("batch", "value").expect("the batch is small");
        batch.delete("key-020").expect("the batch is small");
        store.write(batch, None).expect("a batch is taken");
        written.entry("batch".into()).or_default().insert("value".into());
        store.sync().expect("a sync succeeds");
        Killed { image: fs.image(), written }
    }

    fn files(&self) -> MemoryFileSystem {
        self.image.crash(CrashMode::KeepAll, 0)
    }
}

/// The segments of the store that hold records, each without the zeros at its end.
pub(crate) fn segments() -> Vec<Vec<u8>> {
    let is_segment = |kind| matches!(kind, FileKind::Segment(_));
    let used = |bytes: &Vec<u8>| bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0) + 1;
    let cut = |bytes: Vec<u8>| bytes[..used(&bytes).next_multiple_of(8).min(bytes.len())].to_vec();
    let segments = contents(is_segment).into_iter().map(cut);
    segments.filter(|bytes| bytes.len() > 64).collect()
}

/// The files of this kind, in the order of their numbers.
pub(crate) fn contents(is_wanted: fn(FileKind) -> bool) -> Vec<Vec<u8>> {
    let fs = KILLED.files();
    let paths = disk::files(&fs).into_iter().filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        file_name::parse(name).is_some_and(is_wanted)
    });
    paths.map(|path| disk::read(&fs, &path)).collect()
}

/// Changes of files, as [`disk::damage`] makes them.
pub(crate) fn damage(data: &[u8]) -> bool {
    let mut input = Input(data);
    let corrects = input.u8() & 1 == 1;
    let fs = KILLED.files();
    disk::damage(&fs, &mut input, corrects);
    let Ok(store) = Store::open_with(disk::dir(), options(), disk::inline(&fs)) else {
        return false;
    };
    let shown = read_all(&store);
    if !corrects {
        for (key, value) in shown {
            let was_written =
                KILLED.written.get(&key).is_some_and(|values| values.contains(&value));
            assert!(was_written, "{key:?} was never {value:?}");
        }
    }
    true
}

fn read_all(store: &Store) -> Vec<(Bytes, Bytes)> {
    let mut shown = Vec::new();
    for key in KILLED.written.keys() {
        let _ = store.head(key);
        if let Ok(Some(value)) = store.get(key) {
            shown.push((key.clone(), value));
        }
    }
    for reverse in [false, true] {
        if let Ok(range) = store.range(ScanOptions { reverse, ..ScanOptions::default() }) {
            // A checksum that was made right may let through a table of more keys than there is time for.
            let found = range.take(10_000).map_while(|entry| entry.ok());
            shown.extend(found.map(|entry| (entry.key, entry.value)));
        }
    }
    let _ = store.verify(&mut |_, _| {});
    let _ = store.put(b"key-005", b"after").and_then(|_| store.flush());
    shown
}

/// Seeds of `damage`.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let files = disk::files(&KILLED.files()).len() as u8;
    let one = |corrects: u8, file: u8, what: u8, at: u16, patch: &[u8]| {
        [&[corrects][..], &disk::change(file, what, at, patch)].concat()
    };
    let mut seeds = vec![vec![0], vec![1]];
    for file in 0..files {
        seeds.push(one(1, file, 1, 70 + 16 * u16::from(file), &[1]));
        seeds.push(one(0, file, 0, 200, &[0; 8]));
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallybook::vfs::FileSystem;

    #[test]
    fn the_store_has_files_of_each_kind() {
        let fs = KILLED.files();
        let names = fs.list(disk::dir()).unwrap();
        let has = |kind: fn(FileKind) -> bool| {
            names.iter().filter_map(|name| file_name::parse(name)).any(kind)
        };
        assert!(has(|kind| matches!(kind, FileKind::Segment(_))));
        assert!(has(|kind| matches!(kind, FileKind::Table(_))));
        assert!(has(|kind| matches!(kind, FileKind::Manifest(_))));
        assert!(segments().len() > 1);
    }
}
