//! What `salvage` saves of stores of which something can't be read: never a value that a key didn't have last,
//! unless everything was asked for, and then never one that it never had.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tallybook::file_name;
use tallybook::key::{SEQNO_SAVED_MAX, SEQNO_USED_MAX};
use tallybook::manifest::{self, Manifest};
use tallybook::salvage::{Doubt, NAMED_MAX, SalvageReport, Wanted, salvage_with};
use tallybook::sstable::Properties;
use tallybook::version::{TableMeta, VersionEdit};
use tallybook::vfs::faulty::{Fault, FaultyFileSystem};
use tallybook::vfs::{CrashMode, FileSystem, ManualClock, MemoryFileSystem};
use tallybook::{
    Durability, Error, Options, ResourceOptions, Resources, Store, WriteBatch, WriteOptions,
};

const FROM: &str = "/s";
const TO: &str = "/new";

fn resources(fs: &MemoryFileSystem) -> Arc<Resources> {
    let clock = Arc::new(ManualClock::at_ms(1_000));
    Resources::inline(ResourceOptions::default(), Arc::new(fs.clone()), clock)
}

/// Small files, so that there are many.
fn options() -> Options {
    Options {
        memtable_bytes: 64 << 10,
        table_bytes: 16 << 10,
        block_bytes: 512,
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 64 << 10,
        ..Options::default()
    }
}

fn open(fs: &MemoryFileSystem, dir: &str) -> Store {
    Store::open_with(dir, options(), resources(fs)).unwrap()
}

fn salvage(fs: &MemoryFileSystem, wanted: Wanted) -> Result<SalvageReport, Error> {
    let (from, to) = (Path::new(FROM), Path::new(TO));
    salvage_with(from, to, wanted, &options(), &resources(fs), &mut |_, _| {})
}

/// All pairs of the store that was saved, each of which must be readable, and its figures be right.
fn saved(fs: &MemoryFileSystem) -> BTreeMap<Bytes, Bytes> {
    let store = open(fs, TO);
    let report = store.verify(&mut |_, _| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    let pairs = store.range(Default::default()).unwrap().map(|pair| pair.unwrap());
    let pairs: BTreeMap<Bytes, Bytes> = pairs.map(|pair| (pair.key, pair.value)).collect();
    for (key, value) in &pairs {
        assert_eq!(store.get(key).unwrap().as_ref(), Some(value));
    }
    // It is a store as any other: what it holds is overwritten, merged and collected.
    for key in pairs.keys() {
        store.put(key, b"another").unwrap();
    }
    store.compact(None, None, &mut |_, _| {}).unwrap();
    assert_eq!(store.range(Default::default()).unwrap().count(), pairs.len());
    store.close().unwrap();
    pairs
}

fn paths(fs: &MemoryFileSystem, extension: &str) -> Vec<PathBuf> {
    let names = fs.list(Path::new(FROM)).unwrap().into_iter();
    let mut paths: Vec<PathBuf> = names
        .filter(|name| name.contains(extension))
        .map(|name| Path::new(FROM).join(name))
        .collect();
    paths.sort();
    paths
}

fn flip(fs: &MemoryFileSystem, path: &Path, offset: u64) {
    let file = fs.open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], offset).unwrap();
}

fn contents(fs: &MemoryFileSystem, path: &Path) -> Vec<u8> {
    let file = fs.open_read(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Damages every place of any file of the kind that holds `needle`; there must be one.
fn flip_in(fs: &MemoryFileSystem, extension: &str, needle: &[u8]) {
    let mut found = 0;
    for path in paths(fs, extension) {
        let bytes = contents(fs, &path);
        for at in (0..bytes.len()).filter(|&at| bytes[at..].starts_with(needle)) {
            flip(fs, &path, at as u64 + needle.len() as u64 / 2);
            found += 1;
        }
    }
    assert!(found > 0);
}

fn key(at: u32) -> Bytes {
    Bytes::from(format!("key{at:05}"))
}

/// Small values for even keys, large ones for odd.
fn value(at: u32, generation: u32) -> Bytes {
    let bytes = if at.is_multiple_of(2) { 60 } else { 3_000 };
    Bytes::from(format!("<{at}.{generation}>").repeat(bytes / 6))
}

/// 400 keys in tables, every fourth of them overwritten later, every tenth deleted; closed.
fn filled(fs: &MemoryFileSystem) -> BTreeMap<Bytes, Bytes> {
    let store = open(fs, FROM);
    let mut expected = BTreeMap::new();
    for at in 0..400 {
        store.put(&key(at), &value(at, 0)).unwrap();
        expected.insert(key(at), value(at, 0));
    }
    store.compact(None, None, &mut |_, _| {}).unwrap();
    for at in (0..400).step_by(4) {
        store.put(&key(at), &value(at, 1)).unwrap();
        expected.insert(key(at), value(at, 1));
    }
    for at in (0..400).step_by(10) {
        store.delete(&key(at)).unwrap();
        expected.remove(&key(at));
    }
    store.flush().unwrap();
    store.close().unwrap();
    expected
}

#[test]
fn a_sound_store_is_saved_whole_with_all_that_is_known_of_its_values() {
    let fs = MemoryFileSystem::new();
    let mut expected = filled(&fs);
    let store = open(&fs, FROM);
    let with = WriteOptions {
        expires_at_ms: 9_999,
        attributes: Bytes::from("kind=7"),
        ..WriteOptions::default()
    };
    for (name, value) in [("large", vec![7; 5_000]), ("small", vec![8; 50])] {
        store.put_with(name.as_bytes(), &value, &with).unwrap();
        expected.insert(Bytes::from(name), value.into());
    }
    let gone = WriteOptions { expires_at_ms: 900, ..WriteOptions::default() };
    store.put_with(b"expired", b"value", &gone).unwrap();
    store.delete_range(b"key00100", b"key00200").unwrap();
    expected.retain(|name, _| !(key(100)..key(200)).contains(name));
    let heads: Vec<_> =
        store.range_heads(Default::default()).unwrap().map(Result::unwrap).collect();
    let last_seqno = store.stats().last_seqno;
    // Not closed: much of it stands in the log alone.
    let crashed = fs.image().crash(CrashMode::KeepAll, 1);

    let before: Vec<_> = paths(&crashed, "").iter().map(|path| contents(&crashed, path)).collect();
    let report = salvage(&crashed, Wanted::Certain).unwrap();
    assert!(report.is_whole() && report.has_manifest, "{report:?}");
    assert_eq!(report.keys, expected.len() as u64);
    let after: Vec<_> = paths(&crashed, "").iter().map(|path| contents(&crashed, path)).collect();
    assert!(before == after, "the old store is only read");
    let new = open(&crashed, TO);
    let new_heads: Vec<_> =
        new.range_heads(Default::default()).unwrap().map(Result::unwrap).collect();
    assert!(new_heads == heads);
    assert!(new.stats().last_seqno >= last_seqno, "no number is given out twice");
    new.close().unwrap();
    assert!(saved(&crashed) == expected);
}

/// A number of a table's footer.
fn in_footer(fs: &MemoryFileSystem, path: &Path, at: usize) -> u64 {
    let bytes = contents(fs, path);
    let at = bytes.len() - 80 + at;
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn a_damaged_point_index_or_properties_cost_nothing() {
    let fs = MemoryFileSystem::new();
    let expected = filled(&fs);
    for path in paths(&fs, ".sst") {
        flip(&fs, &path, in_footer(&fs, &path, 24));
        flip(&fs, &path, in_footer(&fs, &path, 36) + 3);
    }
    assert!(matches!(
        Store::open_with(FROM, options(), resources(&fs)),
        Err(Error::Corruption { .. })
    ));
    let report = salvage(&fs, Wanted::Certain).unwrap();
    assert!(!report.is_whole() && report.doubtful + report.unreadable == 0, "{report:?}");
    assert!(saved(&fs) == expected);
}

/// The newest writes to some keys stand in a block that can't be read: what is below them is not their value.
#[test]
fn what_a_lost_block_may_have_overwritten_is_left_out_and_named() {
    let fs = MemoryFileSystem::new();
    let expected = filled(&fs);
    flip_in(&fs, ".sst", &value(204, 1));
    let report = salvage(&fs, Wanted::Certain).unwrap();
    assert!(report.doubtful > 0 && report.damage.len() == 1, "{report:?}");
    let found = saved(&fs);
    assert!(found.iter().all(|(key, value)| expected.get(key) == Some(value)));
    let missing = expected.keys().filter(|key| !found.contains_key(*key)).count();
    assert!(!found.contains_key(&key(204)) && missing < 100, "{missing}");
    for key in expected.keys().filter(|key| !found.contains_key(*key)) {
        let is_named =
            report.named.iter().any(|(named, doubt)| named == key && *doubt == Doubt::MayBeOlder);
        assert!(is_named, "{key:?}");
    }

    clear(&fs);
    let report = salvage(&fs, Wanted::Everything).unwrap();
    assert!(report.doubtful > 0);
    let found = saved(&fs);
    assert!(expected.keys().all(|key| found.contains_key(key)));
    assert_eq!(
        found[&key(204)],
        value(204, 1),
        "the journal has it still, though nobody can be sure"
    );
}

/// Removes the new store.
fn clear(fs: &MemoryFileSystem) {
    for name in fs.list(Path::new(TO)).unwrap() {
        fs.remove(&Path::new(TO).join(name)).unwrap();
    }
}

/// Not even a footer is left of any table, but large values stand in the journal with their keys.
#[test]
fn values_of_lost_tables_are_found_in_the_journal() {
    let fs = MemoryFileSystem::new();
    let expected = filled(&fs);
    for path in paths(&fs, ".sst") {
        flip(&fs, &path, contents(&fs, &path).len() as u64 - 20);
    }
    let report = salvage(&fs, Wanted::Certain).unwrap();
    assert_eq!((report.keys, report.damage.is_empty()), (0, false));
    clear(&fs);
    let report = salvage(&fs, Wanted::Everything).unwrap();
    assert!(report.doubtful > 0, "{report:?}");
    let found = saved(&fs);
    let is_large = |(_, value): &(&Bytes, &Bytes)| value.len() > 1_024;
    let large = expected.iter().filter(is_large);
    assert!(large.clone().count() > 100);
    assert!(large.clone().all(|(key, value)| found.get(key) == Some(value)));
}

/// 40 keys in a range that was deleted before, the last ones written first, in several tables. Answers them, and the
/// tables ascending.
fn cut_within_a_deleted_range(fs: &MemoryFileSystem) -> (BTreeMap<Bytes, Bytes>, Vec<TableMeta>) {
    let store = open(fs, FROM);
    store.delete_range(b"key", b"kez").unwrap();
    let mut expected = BTreeMap::new();
    for at in (0..40).rev() {
        let value = Bytes::from(vec![at as u8; 900]);
        store.put(&key(at), &value).unwrap();
        expected.insert(key(at), value);
    }
    store.flush().unwrap();
    store.close().unwrap();
    let version = manifest::recover(fs, Path::new(FROM)).unwrap().unwrap().version;
    let mut tables: Vec<TableMeta> = version.tables().map(|(_, live)| live.meta.clone()).collect();
    tables.sort_by(|one, other| one.smallest.cmp(&other.smallest));
    let [first, second, ..] = &tables[..] else { panic!("{tables:?}") };
    assert!(first.largest_exclusive && first.largest == second.smallest);
    (expected, tables)
}

/// It ends with the deleted range that goes on in the next table, whose first key was in doubt for it.
#[test]
fn what_is_lost_of_a_table_ends_before_the_next_one_begins() {
    for is_lost in [true, false] {
        let fs = MemoryFileSystem::new();
        let (mut expected, tables) = cut_within_a_deleted_range(&fs);
        let next = &tables[1].smallest;
        if is_lost {
            let path = file_name::table(Path::new(FROM), tables[0].number);
            flip(&fs, &path, contents(&fs, &path).len() as u64 - 20);
            expected.retain(|key, _| key >= next);
        } else {
            let (last, value) = expected.range(..next.clone()).next_back().unwrap();
            flip_in(&fs, ".sst", value);
            let last = last.clone();
            expected.remove(&last);
        }
        let report = salvage(&fs, Wanted::Certain).unwrap();
        assert_eq!((report.doubtful, report.damage.len()), (0, 1), "{report:?}");
        assert!(saved(&fs) == expected);
    }
}

/// The table before it says nothing of the first key of one that is gone, and was thought to have had all its writes.
#[test]
fn without_a_manifest_all_of_a_missing_table_is_looked_for_in_the_journal() {
    let fs = MemoryFileSystem::new();
    let (expected, tables) = cut_within_a_deleted_range(&fs);
    fs.remove(&file_name::table(Path::new(FROM), tables[1].number)).unwrap();
    paths(&fs, "MANIFEST").iter().for_each(|path| fs.remove(path).unwrap());
    salvage(&fs, Wanted::Everything).unwrap();
    assert!(saved(&fs) == expected);
}

#[test]
fn a_damaged_value_never_gives_way_to_an_older_one() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs, FROM);
    store.put(b"key", &[1; 5_000]).unwrap();
    store.put(b"other", &[2; 5_000]).unwrap();
    store.flush().unwrap();
    store.put(b"key", &[3; 5_000]).unwrap();
    store.close().unwrap();
    flip_in(&fs, ".journal", &[3; 5_000]);
    for wanted in [Wanted::Certain, Wanted::Everything] {
        let report = salvage(&fs, wanted).unwrap();
        assert_eq!((report.keys, report.unreadable, report.doubtful), (1, 1, 0), "{report:?}");
        assert!(matches!(&report.named[..], [(key, Doubt::Unreadable(_))] if key == "key"));
        assert!(saved(&fs).contains_key(&b"other"[..]));
        clear(&fs);
    }
}

/// Writes of which one in the middle of the log can't be read.
#[test]
fn behind_a_hole_in_the_log_only_who_wants_everything_is_told() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs, FROM);
    store.put(b"a", b"first").unwrap();
    store.flush().unwrap();
    for (key, value) in [("b", "second"), ("a", "hidden by the hole"), ("c", "third")] {
        store.put(key.as_bytes(), value.as_bytes()).unwrap();
    }
    store.sync().unwrap();
    store.put(b"d", b"fourth").unwrap();
    let fs = fs.image().crash(CrashMode::KeepAll, 1);
    // The record's meta section, so that not even its key is known.
    let (path, at) = place_of(&fs, b"hidden by the hole");
    flip(&fs, &path, at - 5);
    assert!(matches!(
        Store::open_with(FROM, options(), resources(&fs)),
        Err(Error::Corruption { .. })
    ));

    let report = salvage(&fs, Wanted::Certain).unwrap();
    assert_eq!((report.keys, report.behind_hole, report.damage.len()), (2, 2, 1), "{report:?}");
    let pair = |key: &'static str, value: &'static str| (Bytes::from(key), Bytes::from(value));
    assert_eq!(saved(&fs), BTreeMap::from([pair("a", "first"), pair("b", "second")]));
    clear(&fs);
    let report = salvage(&fs, Wanted::Everything).unwrap();
    assert_eq!((report.keys, report.behind_hole), (4, 2));
    assert_eq!(saved(&fs)[&b"c"[..]], "third");
}

#[test]
fn without_a_manifest_everything_must_be_asked_for() {
    let fs = MemoryFileSystem::new();
    let expected = filled(&fs);
    let store = open(&fs, FROM);
    store.put(b"in the log", b"alone").unwrap();
    drop(store);
    let crashed = fs.image().crash(CrashMode::KeepAll, 1);
    // One manifest alone counts, whatever became of the file that names it.
    crashed.remove(&Path::new(FROM).join("CURRENT")).unwrap();
    let report = salvage(&crashed, Wanted::Certain).unwrap();
    assert!(report.has_manifest && report.damage.len() == 1, "{report:?}");
    clear(&crashed);
    for path in paths(&crashed, "MANIFEST") {
        crashed.remove(&path).unwrap();
    }
    assert!(matches!(salvage(&crashed, Wanted::Certain), Err(Error::InvalidArgument(_))));
    let report = salvage(&crashed, Wanted::Everything).unwrap();
    assert!(!report.has_manifest && !report.is_whole());
    let mut found = saved(&crashed);
    assert_eq!(found.remove(&b"in the log"[..]).unwrap(), "alone");
    assert!(found == expected, "what tables know to be deleted does not come back");
}

/// It isn't damaged, and who has the newer release needs no salvage.
#[test]
fn a_manifest_of_a_newer_format_is_told_from_a_damaged_one() {
    let fs = MemoryFileSystem::new();
    filled(&fs);
    let [manifest] = &paths(&fs, "MANIFEST")[..] else { panic!("there is one") };
    let mut header = contents(&fs, manifest)[..32].to_vec();
    header[8] += 1;
    let crc = tallybook::checksum::crc32c(&header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    fs.open(manifest).unwrap().write_all_at(&header, 0).unwrap();
    // As it is found by its name, and where it alone is left.
    for _ in 0..2 {
        let refused = salvage(&fs, Wanted::Everything);
        assert!(matches!(refused, Err(Error::NewerFormat { version: 2, .. })), "{refused:?}");
        let current = Path::new(FROM).join("CURRENT");
        if fs.exists(&current).unwrap() {
            fs.remove(&current).unwrap();
        }
    }
}

#[test]
fn values_of_a_collected_segment_without_an_index_are_found() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs, FROM);
    let mut expected = BTreeMap::new();
    for at in 0..100 {
        store.put(&key(at), &value(2 * at + 1, 0)).unwrap();
        expected.insert(key(at), value(2 * at + 1, 0));
    }
    store.flush().unwrap();
    // Every second value dies, without the tables being written anew that name the others.
    for at in (0..100).step_by(2) {
        store.delete(&key(at)).unwrap();
        expected.remove(&key(at));
    }
    store.flush().unwrap();
    store.compact(Some(b"key0009"), Some(b"key0009z"), &mut |_, _| {}).unwrap();
    assert!(store.stats().collections > 0);
    store.close().unwrap();
    let mut damaged = 0;
    for path in paths(&fs, ".journal") {
        let bytes = contents(&fs, &path);
        if bytes[12] == 2 {
            let index = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
            flip(&fs, &path, index + 50);
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    let report = salvage(&fs, Wanted::Certain).unwrap();
    assert_eq!((report.unreadable, report.doubtful), (0, 0), "{report:?}");
    assert!(saved(&fs) == expected);
}

#[test]
fn who_has_it_open_or_what_is_there_is_not_touched() {
    let fs = MemoryFileSystem::new();
    let shared = resources(&fs);
    let store = Store::open_with(FROM, options(), shared).unwrap();
    store.put(b"key", b"value").unwrap();
    assert!(matches!(salvage(&fs, Wanted::Certain), Err(Error::Locked { .. })));
    store.close().unwrap();
    fs.create_dir_all(Path::new(TO)).unwrap();
    fs.create(&Path::new(TO).join("mine")).unwrap();
    assert!(matches!(salvage(&fs, Wanted::Certain), Err(Error::InvalidArgument(_))));
    assert_eq!(fs.list(Path::new(TO)).unwrap(), ["mine"]);
    fs.remove(&Path::new(TO).join("mine")).unwrap();
    // No room: nothing is left of the try, and another one works.
    fs.set_capacity(Some(1 << 10));
    assert!(salvage(&fs, Wanted::Certain).is_err());
    fs.set_capacity(None);
    salvage(&fs, Wanted::Certain).unwrap();
    assert_eq!(saved(&fs).len(), 1);
}

/// A manifest of before is left, and tells of files that are gone.
#[test]
fn an_old_manifest_is_not_taken_for_the_one_that_is_named() {
    let fs = MemoryFileSystem::new();
    let expected = filled(&fs);
    let old = paths(&fs, "MANIFEST").remove(0);
    let bytes = contents(&fs, &old);
    let store = open(&fs, FROM);
    store.compact(None, None, &mut |_, _| {}).unwrap();
    store.close().unwrap();
    for path in paths(&fs, "MANIFEST") {
        fs.remove(&path).unwrap();
    }
    fs.create(&old).unwrap().write_all_at(&bytes, 0).unwrap();
    assert!(matches!(salvage(&fs, Wanted::Certain), Err(Error::InvalidArgument(_))));
    salvage(&fs, Wanted::Everything).unwrap();
    assert!(saved(&fs) == expected);
}

/// The end of a value in a batch can't be read, nor the record behind it: the batch was made all the same.
#[test]
fn a_damaged_value_before_a_hole_gives_way_to_nothing_older() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs, FROM);
    for key in ["deleted", "overwritten"] {
        store.put(key.as_bytes(), b"old").unwrap();
    }
    store.flush().unwrap();
    let mut batch = WriteBatch::new();
    batch.delete(Bytes::from("deleted")).unwrap();
    batch.put(Bytes::from("overwritten"), Bytes::from(vec![9; 5_000])).unwrap();
    store.write(batch, None).unwrap();
    for key in ["lost", "behind"] {
        store.put(key.as_bytes(), b"value").unwrap();
    }
    store.sync().unwrap();
    let fs = fs.image().crash(CrashMode::KeepAll, 1);
    let (path, at) = place_of(&fs, &[9; 5_000]);
    fs.open(&path).unwrap().write_all_at(&[0; 70], at + 4_970).unwrap();
    let report = salvage(&fs, Wanted::Certain).unwrap();
    assert_eq!((report.keys, report.unreadable, report.behind_hole), (0, 1, 1), "{report:?}");
    assert!(matches!(&report.named[..], [(key, Doubt::Unreadable(_))] if key == "overwritten"));
    assert!(saved(&fs).is_empty());
}

/// Where bytes stand in the journal.
fn place_of(fs: &MemoryFileSystem, needle: &[u8]) -> (PathBuf, u64) {
    let place = paths(fs, ".journal").into_iter().find_map(|path| {
        let bytes = contents(fs, &path);
        let at = bytes.windows(needle.len()).position(|window| window == needle)?;
        Some((path, at as u64))
    });
    place.expect("they are there")
}

/// Where records of a segment begin, and where the last one ends.
fn record_places(fs: &MemoryFileSystem, path: &Path) -> Vec<u64> {
    let fs: Arc<dyn FileSystem> = Arc::new(fs.clone());
    let mut places = Vec::new();
    let mut note = |line: &str| {
        let place = line.split(' ').next().and_then(|place| place.parse::<u64>().ok());
        places.extend(place.filter(|_| !line.starts_with(' ')));
    };
    tallybook::journal::inspect(&fs, path, &mut note).unwrap();
    places
}

/// It ends where a record does, or in zeros, but not where it was made to end, nor as it was written.
#[test]
fn a_log_that_was_cut_short_is_not_whole() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs, FROM);
    for at in 0..10 {
        store.put(&key(at), &value(at, 0)).unwrap();
    }
    let crashed = || fs.image().crash(CrashMode::KeepAll, 1);
    let whole = crashed();
    assert!(salvage(&whole, Wanted::Certain).unwrap().is_whole());
    let (path, _) = place_of(&whole, &value(9, 0));
    let places = record_places(&whole, &path);
    assert!(places.len() > 10);
    for &place in &places {
        let fs = crashed();
        fs.open(&path).unwrap().set_len(place).unwrap();
        let report = salvage(&fs, Wanted::Certain).unwrap();
        assert!(!report.is_whole() && report.keys < 11, "cut at {place}: {report:?}");
    }
    let fs = crashed();
    let last = places[places.len() - 2];
    fs.open(&path).unwrap().write_all_at(&[0; 96], last).unwrap();
    let report = salvage(&fs, Wanted::Certain).unwrap();
    assert_eq!((report.keys, report.is_whole()), (9, false), "{report:?}");
}

/// Opening looks at its header alone; it was taken for the end of the log.
#[test]
fn a_damaged_start_of_a_segment_that_is_kept_for_its_values_costs_nothing() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs, FROM);
    let mut expected = BTreeMap::new();
    for at in 0..100 {
        store.put(&key(at), &value(1, at)).unwrap();
        expected.insert(key(at), value(1, at));
    }
    store.flush().unwrap();
    store.put(b"deleted", &value(1, 0)).unwrap();
    store.delete(b"deleted").unwrap();
    store.compact(None, None, &mut |_, _| {}).unwrap();
    store.close().unwrap();
    let segments = paths(&fs, ".journal");
    assert!(segments.len() > 4);
    for segment in &segments[..3] {
        flip(&fs, segment, 70);
    }
    open(&fs, FROM).close().unwrap();
    for wanted in [Wanted::Certain, Wanted::Everything] {
        let report = salvage(&fs, wanted).unwrap();
        assert!(report.is_whole() && report.behind_hole == 0, "{report:?}");
        assert!(saved(&fs) == expected);
        clear(&fs);
    }
}

/// After a crash numbers go on far above those of before, which a reserve of as many doesn't reach.
#[test]
fn numbers_go_on_above_those_of_tables_without_properties() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs, FROM);
    store.put(b"before", b"value").unwrap();
    store.flush().unwrap();
    let fs = fs.image().crash(CrashMode::KeepAll, 1);
    let store = open(&fs, FROM);
    for at in 0..10 {
        store.put(&key(at), b"value").unwrap();
    }
    store.compact(None, None, &mut |_, _| {}).unwrap();
    store.close().unwrap();
    for path in [paths(&fs, "MANIFEST"), paths(&fs, ".journal")].concat() {
        fs.remove(&path).unwrap();
    }
    for path in paths(&fs, ".sst") {
        flip(&fs, &path, in_footer(&fs, &path, 36) + 3);
    }
    let report = salvage(&fs, Wanted::Everything).unwrap();
    assert_eq!((report.keys, saved(&fs).len()), (11, 11), "{report:?}");
}

/// A caller may hold the version of a write that can't be read. Each opening behind a crash leaves numbers out, more
/// than are left out behind what is found; where they went on, the segment's first record tells.
#[test]
fn numbers_go_on_above_those_of_a_write_that_is_lost() {
    let mut fs = MemoryFileSystem::new();
    let mut store = open(&fs, FROM);
    store.put(b"first", b"value").unwrap();
    for _ in 0..3 {
        fs = fs.image().crash(CrashMode::KeepAll, 1);
        store = open(&fs, FROM);
    }
    let lost = store.put(b"lost", b"value").unwrap();
    let fs = fs.image().crash(CrashMode::KeepAll, 1);
    let (path, at) = place_of(&fs, b"lost");
    flip(&fs, &path, at);
    paths(&fs, "MANIFEST").iter().for_each(|path| fs.remove(path).unwrap());
    assert_eq!(salvage(&fs, Wanted::Everything).unwrap().keys, 1);
    assert!(open(&fs, TO).put(b"next", b"value").unwrap() > lost);
}

/// Has the manifest say something else.
fn change_manifest(fs: &MemoryFileSystem, change: impl FnOnce(&mut VersionEdit)) {
    let found = manifest::recover(fs, Path::new(FROM)).unwrap().unwrap();
    let mut edit = found.version.to_edit();
    change(&mut edit);
    let number = found.version.next_file_number;
    edit.next_file_number = Some(number + 1);
    Manifest::create(fs, Path::new(FROM), number, &edit).unwrap();
}

/// The same, of tables.
fn change_properties(fs: &MemoryFileSystem, change: fn(&mut Properties)) {
    change_manifest(fs, |edit| {
        for added in &mut edit.added {
            let mut properties = (*added.meta.properties).clone();
            change(&mut properties);
            added.meta = TableMeta::new(added.meta.number, Arc::new(properties));
        }
    });
}

/// A number near the largest stands in a record or a table, whose checksums are right. The new store took writes
/// with larger ones, and didn't open with them.
#[test]
fn numbers_without_room_behind_them_are_damage_where_no_manifest_is() {
    let far = [SEQNO_SAVED_MAX + 2, SEQNO_USED_MAX - 9];
    for (seqno, is_flushed) in far.into_iter().flat_map(|far| [(far, false), (far, true)]) {
        let fs = MemoryFileSystem::new();
        let store = open(&fs, FROM);
        store.put(b"before", b"value").unwrap();
        store.flush().unwrap();
        store.close().unwrap();
        change_manifest(&fs, |edit| edit.seqno_next = Some(seqno));
        let store = open(&fs, FROM);
        assert_eq!(store.put(b"far", b"value").unwrap(), seqno);
        if is_flushed {
            store.flush().unwrap();
        }
        let fs = fs.image().crash(CrashMode::KeepAll, 1);
        if seqno < far[1] {
            // What opens is saved as it is.
            assert_eq!(salvage(&fs, Wanted::Certain).unwrap().keys, 2);
            clear(&fs);
        }
        paths(&fs, "MANIFEST").iter().for_each(|path| fs.remove(path).unwrap());
        let report = salvage(&fs, Wanted::Everything).unwrap();
        assert_eq!(report.keys, 1, "{report:?}");
        assert!(saved(&fs).contains_key(&b"before"[..]));
        open(&fs, TO).close().unwrap();
    }
}

/// In an older segment it was called impossible.
#[test]
fn a_number_that_only_a_store_with_a_manifest_has_is_looked_for_in_its_journal() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs, FROM);
    store.put(b"before", b"value").unwrap();
    store.flush().unwrap();
    store.close().unwrap();
    change_manifest(&fs, |edit| edit.seqno_next = Some(SEQNO_SAVED_MAX + 2));
    let store = open(&fs, FROM);
    store.put(b"far", &[7; 5000]).unwrap();
    store.flush().unwrap();
    let fs = fs.image().crash(CrashMode::KeepAll, 1);
    let tables = paths(&fs, ".sst");
    fs.remove(tables.last().unwrap()).unwrap();
    let report = salvage(&fs, Wanted::Everything).unwrap();
    assert_eq!((report.keys, report.damage.len()), (2, 1), "{report:?}");
    assert_eq!(saved(&fs)[&b"far"[..]][..], [7; 5000]);
}

#[test]
fn entries_beyond_the_numbers_that_the_manifest_has_of_a_table_are_damage() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs, FROM);
    for at in 0..10 {
        store.put(&key(at), b"value").unwrap();
    }
    store.flush().unwrap();
    store.close().unwrap();
    change_properties(&fs, |properties| properties.seqno_max = properties.seqno_min);
    for path in paths(&fs, ".sst") {
        flip(&fs, &path, in_footer(&fs, &path, 36) + 3);
    }
    let report = salvage(&fs, Wanted::Certain).unwrap();
    assert_eq!((report.keys, report.damage.len()), (0, 2), "{report:?}");
}

#[test]
fn impossible_sizes_in_a_manifest_are_no_harm() {
    let fs = MemoryFileSystem::new();
    filled(&fs);
    change_properties(&fs, |properties| {
        properties.segment_refs.iter_mut().for_each(|segment| segment.bytes = u64::MAX);
    });
    let report = salvage(&fs, Wanted::Certain).unwrap();
    assert!(!report.is_whole(), "{report:?}");
}

/// A write that is lost in the log, and no manifest that tells where the log begins.
#[test]
fn without_a_manifest_places_of_the_log_that_can_not_be_read_are_told_too() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs, FROM);
    for name in ["a", "lost", "c"] {
        store.put(name.as_bytes(), b"value").unwrap();
    }
    let fs = fs.image().crash(CrashMode::KeepAll, 1);
    let (path, at) = place_of(&fs, b"lost");
    flip(&fs, &path, at);
    paths(&fs, "MANIFEST").iter().for_each(|path| fs.remove(path).unwrap());
    let report = salvage(&fs, Wanted::Everything).unwrap();
    assert_eq!((report.keys, report.damage.len()), (2, 2), "{report:?}");
    assert!(report.damage.iter().any(|damage| damage.file == path), "{report:?}");
}

#[test]
fn a_manifest_that_is_alone_counts_where_the_file_that_names_it_can_not_be_read() {
    let fs = MemoryFileSystem::new();
    let expected = filled(&fs);
    let fails =
        |operation: &str, path: &Path| operation == "open_read" && path.ends_with("CURRENT");
    let report = salvage_failing(&fs, ErrorKind::Other, fails).unwrap();
    assert!(report.has_manifest && report.damage.len() == 1, "{report:?}");
    assert!(saved(&fs) == expected);
}

/// What is certain, where operations on the old store fail.
fn salvage_failing(
    fs: &MemoryFileSystem,
    kind: ErrorKind,
    only: fn(&str, &Path) -> bool,
) -> Result<SalvageReport, Error> {
    let faulty = FaultyFileSystem::new(Arc::new(fs.clone()));
    faulty.fail_at(0, Fault { sticky: true, only: Some(only), ..Fault::kind(kind) });
    let clock = Arc::new(ManualClock::at_ms(1_000));
    let resources = Resources::inline(ResourceOptions::default(), Arc::new(faulty), clock);
    let (from, to) = (Path::new(FROM), Path::new(TO));
    salvage_with(from, to, Wanted::Certain, &options(), &resources, &mut |_, _| {})
}

/// Where nothing may be written, who has it open still holds the lock, and a file that may be read shows it.
#[test]
fn a_directory_that_may_only_be_read_is_locked_by_what_is_there() {
    let fs = MemoryFileSystem::new();
    let expected = filled(&fs);
    let fails = |operation: &str, path: &Path| operation == "lock" && path.starts_with(FROM);
    let unreadable = |operation: &str, path: &Path| {
        ["lock", "lock_existing"].contains(&operation) && path.starts_with(FROM)
    };
    for kind in [ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied] {
        let store = open(&fs, FROM);
        let refused = salvage_failing(&fs, kind, fails);
        assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
        store.close().unwrap();
        let refused = salvage_failing(&fs, kind, unreadable);
        assert!(matches!(refused, Err(Error::Io { op: "lock", .. })), "{refused:?}");
        assert!(salvage_failing(&fs, kind, fails).unwrap().is_whole());
        clear(&fs);
        fs.remove(&Path::new(FROM).join("LOCK")).unwrap();
        assert!(salvage_failing(&fs, kind, fails).unwrap().is_whole());
        assert!(saved(&fs) == expected);
        clear(&fs);
    }
}

/// Another salvage into the same directory ends while this one reads the manifest.
#[test]
fn a_store_that_somebody_made_meanwhile_is_not_touched() {
    static FS: OnceLock<MemoryFileSystem> = OnceLock::new();
    let fs = FS.get_or_init(MemoryFileSystem::new);
    filled(fs);
    let disturb = |operation: &str, path: &Path| {
        let fs = FS.get().unwrap();
        let is_due = operation == "open_read" && path == Path::new(FROM).join("CURRENT");
        if is_due && !fs.exists(Path::new(TO)).unwrap() {
            let store = open(fs, TO);
            store.put(b"another", b"store").unwrap();
            store.close().unwrap();
        }
        false
    };
    let refused = salvage_failing(fs, ErrorKind::Other, disturb);
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    let pairs = BTreeMap::from([(Bytes::from("another"), Bytes::from("store"))]);
    assert_eq!(saved(fs), pairs);
}

/// Power is lost before anything was synced: what the manifest names is there, and holds no record.
#[test]
fn a_store_whose_only_writes_were_never_synced_is_whole() {
    let fs = MemoryFileSystem::new();
    let store = open(&fs, FROM);
    store.put(b"key", b"value").unwrap();
    let fs = fs.image().crash(CrashMode::LoseUnsynced, 1);
    let version = manifest::recover(&fs, Path::new(FROM)).unwrap().unwrap().version;
    assert!(version.journal_newest.segment != 0, "it was named");
    let report = salvage(&fs, Wanted::Certain).unwrap();
    assert!(report.is_whole() && report.keys == 0, "{report:?}");
    assert_eq!(open(&fs, FROM).stats().torn_records, 0);
}

/// The last write fails, and no other begins a segment.
#[test]
fn a_failed_write_that_was_cut_off_is_not_told_as_torn() {
    let fs = MemoryFileSystem::new();
    let faulty = FaultyFileSystem::new(Arc::new(fs.clone()));
    let clock = Arc::new(ManualClock::at_ms(1_000));
    let shared = Resources::inline(ResourceOptions::default(), Arc::new(faulty.clone()), clock);
    let options = Options { durability: Durability::Sync, ..options() };
    let store = Store::open_with(FROM, options, shared).unwrap();
    store.put(b"a", b"value").unwrap();
    let fails = |operation: &str, path: &Path| {
        operation == "write_all_at" && path.extension().is_some_and(|it| it == "journal")
    };
    faulty.fail_at(0, Fault::kind(ErrorKind::Other).short_write().only(fails));
    store.put(b"b", b"value").unwrap_err();
    store.close().unwrap();
    let report = salvage(&fs, Wanted::Certain).unwrap();
    assert!(report.is_whole() && report.keys == 1, "{report:?}");
    assert_eq!(open(&fs, FROM).stats().torn_records, 0);
}

#[test]
fn a_key_in_doubt_whose_value_can_not_be_read_is_told_once() {
    let fs = MemoryFileSystem::new();
    filled(&fs);
    flip_in(&fs, ".sst", &value(204, 1));
    flip_in(&fs, ".journal", &value(205, 0));
    let report = salvage(&fs, Wanted::Everything).unwrap();
    let named: Vec<_> = report.named.iter().filter(|(named, _)| *named == key(205)).collect();
    assert!(matches!(named[..], [(_, Doubt::Unreadable(_))]), "{named:?}");
    assert_eq!((report.unreadable, report.doubtful), (1, report.named.len() as u64 - 1));
    let taken = saved(&fs);
    let in_doubt = report.named.iter().filter(|(_, doubt)| *doubt == Doubt::MayBeOlder);
    assert!(in_doubt.into_iter().all(|(key, _)| taken.contains_key(key)));
}

/// A file can be made to have more of them than there is memory to name.
#[test]
fn damaged_places_beyond_the_first_ones_are_counted() {
    let fs = MemoryFileSystem::new();
    let one_segment = Options { memtable_bytes: 8 << 20, segment_bytes_max: 8 << 20, ..options() };
    let one_segment = Options { segment_bytes_min: 8 << 20, ..one_segment };
    let store = Store::open_with(FROM, one_segment, resources(&fs)).unwrap();
    let writes = 2 * NAMED_MAX as u32 + 20;
    for at in 0..writes {
        store.put(&key(at), b"value").unwrap();
    }
    store.sync().unwrap();
    store.put(b"behind", b"the sync").unwrap();
    let fs = fs.image().crash(CrashMode::KeepAll, 1);
    let (path, _) = place_of(&fs, b"behind");
    let places = record_places(&fs, &path);
    for place in places[1..].iter().take(writes as usize).step_by(2) {
        flip(&fs, &path, place + 50);
    }
    let report = salvage(&fs, Wanted::Everything).unwrap();
    assert_eq!((report.damage.len(), report.more_damage), (NAMED_MAX, 10));
    assert_eq!(report.keys, u64::from(writes) / 2 + 1);
}

#[test]
fn files_that_are_not_of_a_store_stay_alone() {
    let fs = MemoryFileSystem::new();
    fs.create_dir_all(Path::new(FROM)).unwrap();
    fs.create(&Path::new(FROM).join("notes")).unwrap();
    assert!(matches!(salvage(&fs, Wanted::Everything), Err(Error::InvalidArgument(_))));
    assert_eq!(fs.list(Path::new(FROM)).unwrap(), ["notes"], "not even a lock was made");
    filled(&fs);
    // Somebody puts a file there, and then there is no room.
    let mine = Path::new(TO).join("mine");
    let mut disturb = |_, _| {
        if !fs.exists(&mine).unwrap() {
            fs.create(&mine).unwrap();
            fs.set_capacity(Some(1 << 10));
        }
    };
    let (from, to) = (Path::new(FROM), Path::new(TO));
    let failed = salvage_with(from, to, Wanted::Certain, &options(), &resources(&fs), &mut disturb);
    assert!(failed.is_err());
    assert_eq!(fs.list(to).unwrap(), ["mine"]);
}

/// A cheap sequence of numbers (xorshift, Marsaglia, 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Whether there was a moment at which all of these keys had these values, whatever others had.
fn was_once(history: &[(Bytes, Option<Bytes>)], found: &BTreeMap<Bytes, Bytes>) -> bool {
    let mut right: BTreeSet<&Bytes> = BTreeSet::new();
    found.is_empty()
        || history.iter().any(|(key, value)| {
            match value.is_some() && found.get(key) == value.as_ref() {
                true => right.insert(key),
                false => right.remove(key),
            };
            right.len() == found.len()
        })
}

/// Bytes of files are changed, or their ends cut off, anywhere.
#[test]
fn whatever_is_damaged_nothing_that_was_not_there_is_saved() {
    let mut untouched = 0;
    for seed in 1..=120 {
        let mut numbers = Numbers(seed * 0x9e37_79b9);
        let fs = MemoryFileSystem::new();
        let store = open(&fs, FROM);
        // What was written, `None` for a deletion.
        let mut history: Vec<(Bytes, Option<Bytes>)> = Vec::new();
        for _ in 0..numbers.below(3_000) {
            let (at, write) = (numbers.below(120) as u32, numbers.below(1_000) as u32);
            match numbers.below(200) {
                0 => store.flush().unwrap(),
                1 => store.compact(None, None, &mut |_, _| {}).unwrap(),
                2..30 => {
                    store.delete(&key(at)).unwrap();
                    history.push((key(at), None));
                }
                30 => {
                    store.delete_range(&key(at), &key(at + 9)).unwrap();
                    history.extend((at..at + 9).map(|at| (key(at), None)));
                }
                _ => {
                    store.put(&key(at), &value(at, write)).unwrap();
                    history.push((key(at), Some(value(at, write))));
                }
            }
        }
        if seed % 2 == 0 {
            store.close().unwrap();
        }
        let fs = fs.image().crash(CrashMode::KeepAll, seed);
        let extensions = ["MANIFEST", ".journal", ".sst", "CURRENT", ".journal", ".sst"];
        for _ in 0..=numbers.below(3) {
            let paths = paths(&fs, extensions[numbers.below(6) as usize]);
            let Some(path) = paths.get(numbers.below(paths.len().max(1) as u64) as usize) else {
                continue;
            };
            let len = contents(&fs, path).len() as u64;
            match numbers.below(10) {
                0 => fs.open(path).unwrap().set_len(numbers.below(len)).unwrap(),
                1 => fs.remove(path).unwrap(),
                _ => (0..=numbers.below(4)).for_each(|_| flip(&fs, path, numbers.below(len))),
            }
        }
        for wanted in [Wanted::Certain, Wanted::Everything] {
            let report = match salvage(&fs, wanted) {
                Ok(report) => report,
                Err(Error::InvalidArgument(_)) if wanted == Wanted::Certain => continue,
                Err(error) => panic!("seed {seed}: {error}"),
            };
            let found = saved(&fs);
            assert_eq!(found.len() as u64, report.keys, "seed {seed}");
            match wanted {
                Wanted::Certain => {
                    assert!(was_once(&history, &found), "seed {seed}: the store never was so");
                }
                Wanted::Everything => {
                    let is_known = |(key, value): (&Bytes, &Bytes)| {
                        history.iter().any(|(at, was)| at == key && was.as_ref() == Some(value))
                    };
                    assert!(found.iter().all(is_known), "seed {seed}: a key never had its value");
                }
            }
            if report.is_whole() {
                let last: BTreeMap<_, _> = history.iter().cloned().collect();
                let last = last.into_iter().filter_map(|(key, value)| Some((key, value?)));
                assert!(found == last.collect(), "seed {seed}: something is missing");
                untouched += 1;
            }
            clear(&fs);
        }
    }
    assert!(untouched < 200, "most damage is found: {untouched}");
}
