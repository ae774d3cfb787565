//! Damage: flipped bytes, lost files, lost buckets, a lost catalogue. Never a wrong byte.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tallybook::salvage::{Wanted, salvage_with};
use tallybook::vfs::{CrashMode, FileSystem, ManualClock, MemoryFileSystem, MemoryImage};
use tallybook::{Options, ResourceOptions, Resources, Store};
use tallybook_files::key_layout;
use tallybook_files::record::{
    Content, ContentId, Extent, FileRecord, decode_entry, encode_entry, encode_numbers,
};
use tallybook_files::{
    CreateOptions, Error, FileStore, ListEntry, ListOptions, OpenOptions, ReadOptions,
    RepairOptions, UnlinkOptions, VerifyOptions,
};

use crate::support::{
    CHUNK, assert_reads, bytes, engine_store, in_memory, inline, is_long, lose_catalogue,
    memory_dir, reopen, small, write,
};

const NAMES: [&str; 3] = ["first", "second", "third"];

fn file(name: &str) -> Vec<u8> {
    let at = NAMES.iter().position(|known| *known == name).unwrap();
    bytes(at as u64, [700, CHUNK + 300, 3000][at])
}

/// A store of two buckets with a few files, closed.
fn closed_store() -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, CreateOptions { bucket_count: 2, ..small() });
    for name in NAMES {
        write(&store, name, &file(name));
    }
    store.reap().unwrap();
    store.close().unwrap();
    fs
}

fn directories() -> Vec<PathBuf> {
    let dir = memory_dir();
    let inner = ["catalogue-000001", "buckets/000-000001", "buckets/001-000001"];
    std::iter::once(dir.clone()).chain(inner.map(|inner| dir.join(inner))).collect()
}

/// Every file of the store with its length.
fn all_files(fs: &MemoryFileSystem) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    for dir in directories() {
        for name in fs.list(&dir).unwrap() {
            let path = dir.join(name);
            let len = fs.open_read(&path).unwrap().len().unwrap();
            files.push((path, len));
        }
    }
    files.sort();
    files
}

fn copy_of(image: &MemoryImage) -> MemoryFileSystem {
    image.crash(CrashMode::KeepAll, 0)
}

/// Reads every file: each is what it was, or an error; none is silently missing. Whether all were read.
fn serves_nothing_wrong(fs: &MemoryFileSystem, place: &dyn Fn() -> String) -> bool {
    serves_only(reopen(fs), file, place)
}

/// The same of a store whose files are these.
fn serves_only(
    opened: tallybook_files::Result<FileStore>,
    file: fn(&str) -> Vec<u8>,
    place: &dyn Fn() -> String,
) -> bool {
    let Ok(store) = opened else { return false };
    let mut all = true;
    for name in NAMES {
        match store.read(name) {
            Ok(Some(read)) => assert!(read == file(name), "{}: {name} has wrong bytes", place()),
            Ok(None) => panic!("{}: {name} is silently missing", place()),
            Err(_) => all = false,
        }
    }
    if let Ok(page) = store.list(ListOptions::default()) {
        assert!(page.entries.iter().map(ListEntry::name).eq(NAMES), "{}: list", place());
    }
    all
}

/// Flips a byte of a file.
fn flip(fs: &MemoryFileSystem, path: &Path, offset: u64) {
    let damaged = fs.open(path).unwrap();
    let mut byte = [0];
    damaged.read_exact_at(&mut byte, offset).unwrap();
    damaged.write_all_at(&[byte[0] ^ 0x40], offset).unwrap();
}

#[test]
fn a_flipped_byte_in_any_file_serves_no_wrong_byte() {
    let image = closed_store().image();
    let mut tried = 0_u64;
    let mut unread = 0;
    for (path, len) in all_files(&copy_of(&image)) {
        // In the middle of a chunk, or of zeros that were reserved, one byte is as good as another.
        let stride = (len / 150).max(1) | 1;
        for offset in (0..len).step_by(stride as usize) {
            let fs = copy_of(&image);
            flip(&fs, &path, offset);
            let place = || format!("{} with byte {offset} flipped", path.display());
            unread += u64::from(!serves_nothing_wrong(&fs, &place));
            tried += 1;
        }
    }
    assert!(tried > 300 && unread > tried / 20, "{unread} of {tried} were noticed");
}

/// A few hundred bytes of a file of the small store.
fn small_file(name: &str) -> Vec<u8> {
    let at = NAMES.iter().position(|known| *known == name).unwrap();
    bytes(at as u64, [700, 0, 2500][at])
}

/// How a store is opened that has few bytes on disk.
fn few_bytes() -> OpenOptions {
    OpenOptions { segment_bytes_min: Some(4 << 10), ..OpenOptions::default() }
}

/// A store so small that every byte of every file of it can be flipped: all of them with
/// `TALLYBOOK_LONG`, which says how many there were, else a sample.
#[test]
fn every_flipped_byte_of_a_small_store_serves_no_wrong_byte() {
    let fs = MemoryFileSystem::new();
    let create = CreateOptions { bucket_count: 2, ..small() };
    let resources = inline(fs.clone());
    let store = FileStore::create_with(memory_dir(), create, few_bytes(), resources).unwrap();
    for name in NAMES {
        write(&store, name, b"replaced");
        write(&store, name, &small_file(name));
    }
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    let image = fs.image();
    let files = all_files(&copy_of(&image));
    let sum: u64 = files.iter().map(|(_, len)| len).sum();
    assert!(sum < 200 << 10, "the small store has {sum} bytes: {files:?}");
    let stride = if is_long() { 1 } else { 97 };
    let (mut places, mut refused) = (0_u64, 0);
    for (path, len) in &files {
        let (places_before, refused_before) = (places, refused);
        for offset in (0..*len).step_by(stride) {
            let fs = copy_of(&image);
            flip(&fs, path, offset);
            let opened = FileStore::open_with(memory_dir(), few_bytes(), inline(fs));
            let place = || format!("{} with byte {offset} flipped", path.display());
            refused += u64::from(!serves_only(opened, small_file, &place));
            places += 1;
        }
        let (of_places, of_refused) = (places - places_before, refused - refused_before);
        println!("{of_places:>7} bytes, {of_refused:>7} refused: {}", path.display());
    }
    let harmless = places - refused;
    println!(
        "{places} bytes flipped: {refused} refused, {harmless} harmless, 0 wrong bytes served"
    );
    assert!(refused > places / 20, "{refused} of {places} were noticed");
}

#[test]
fn a_file_cut_anywhere_serves_no_wrong_byte() {
    let image = closed_store().image();
    for (path, len) in all_files(&copy_of(&image)) {
        for share in 0..16 {
            let fs = copy_of(&image);
            fs.open(&path).unwrap().set_len(len * share / 16).unwrap();
            let place = || format!("{} cut to {share}/16", path.display());
            serves_nothing_wrong(&fs, &place);
        }
    }
}

#[test]
fn a_lost_file_serves_no_wrong_byte_and_never_an_empty_bucket() {
    let image = closed_store().image();
    for (path, _) in all_files(&copy_of(&image)) {
        let fs = copy_of(&image);
        fs.remove(&path).unwrap();
        let place = || format!("without {}", path.display());
        let all = serves_nothing_wrong(&fs, &place);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(!(all && name == "CURRENT"), "{}: nobody noticed", place());
    }
}

/// A table or a segment that was missing was taken for a disk that can't be read this time: the catalogue or the
/// bucket didn't open, and a repair refused both for good.
#[test]
fn a_repair_goes_on_without_any_file_that_is_lost() {
    let image = closed_store().image();
    let mut tables = Vec::new();
    for (path, _) in all_files(&copy_of(&image)) {
        let fs = copy_of(&image);
        fs.remove(&path).unwrap();
        let repaired =
            FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
        let report = repaired.unwrap_or_else(|error| panic!("without {}: {error}", path.display()));
        let lost = report.old_buckets.iter().find(|(_, old)| path.starts_with(old));
        let lost = lost.map(|&(bucket, _)| bucket);
        let store = reopen(&fs).unwrap();
        for name in NAMES {
            match store.read(name) {
                Ok(read) => assert!(read == Some(file(name)), "{name} without {}", path.display()),
                Err(error) => {
                    assert_eq!(lost, Some(store.bucket_of(name)), "{}: {error}", path.display());
                }
            }
        }
        tables.extend(
            path.extension()
                .is_some_and(|extension| extension == "sst")
                .then(|| path.parent().unwrap().to_owned()),
        );
    }
    tables.sort();
    let mut expected = directories().split_off(1);
    expected.sort();
    assert_eq!(tables, expected, "not each has a table");
}

/// What is whole of a bucket that can't be opened, put in its place: chunks are never changed, so what is found is
/// right.
#[test]
fn a_bucket_that_was_salvaged_serves_what_is_whole_of_it() {
    let image = closed_store().image();
    let tables: Vec<_> = all_files(&copy_of(&image))
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|it| it == "sst"))
        .filter(|(path, _)| path.starts_with(memory_dir().join("buckets")))
        .collect();
    assert_eq!(tables.len(), 2);
    for (path, len) in tables {
        let bucket = path.parent().unwrap();
        // Where the fences or the point index is, or the footer that tells where they are.
        for from_end in [20, 200, 300] {
            let fs = copy_of(&image);
            flip(&fs, &path, len - from_end);
            let place = || format!("{} with byte {} flipped", path.display(), len - from_end);
            assert!(!serves_nothing_wrong(&fs, &place), "{}", place());
            let (new, clock) = (Path::new("/new"), Arc::new(ManualClock::at_ms(1)));
            let resources =
                Resources::inline(ResourceOptions::default(), Arc::new(fs.clone()), clock);
            let (wanted, options) = (Wanted::Everything, Options::default());
            salvage_with(bucket, new, wanted, &options, &resources, &mut |_, _| {}).unwrap();
            for name in fs.list(bucket).unwrap() {
                fs.remove(&bucket.join(name)).unwrap();
            }
            for name in fs.list(new).unwrap() {
                fs.rename(&new.join(&name), &bucket.join(&name)).unwrap();
            }
            let repaired =
                FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
            let report = repaired.unwrap();
            assert!(report.old_buckets.is_empty(), "{}: {report:?}", place());
            let is_whole = serves_nothing_wrong(&fs, &place);
            let store = reopen(&fs).unwrap();
            let verified = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
            assert_eq!(verified.damage.is_empty(), is_whole, "{}", place());
            let read = NAMES.iter().filter(|name| store.read(name).is_ok()).count();
            assert!(read > 0, "{}", place());
        }
    }
}

#[test]
fn either_description_of_the_store_may_be_lost_and_repair_brings_it_back() {
    for name in ["STORE", "STORE.copy"] {
        let fs = closed_store();
        fs.remove(&memory_dir().join(name)).unwrap();
        assert!(serves_nothing_wrong(&fs, &|| name.to_owned()));
        FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone())).unwrap();
        assert!(fs.exists(&memory_dir().join(name)).unwrap());
    }
}

/// Removes all files of a bucket.
fn lose_bucket(fs: &MemoryFileSystem, bucket: u8) {
    let dir = memory_dir().join(format!("buckets/{bucket:03}-000001"));
    for name in fs.list(&dir).unwrap() {
        fs.remove(&dir.join(name)).unwrap();
    }
}

#[test]
fn a_lost_bucket_loses_only_its_files_and_the_store_says_which() {
    let fs = MemoryFileSystem::new();
    let create = CreateOptions { bucket_cap_bytes: 10 * CHUNK as u64, ..small() };
    let store = in_memory(&fs, create);
    let names: Vec<String> = (0..12).map(|at| format!("file {at}")).collect();
    for (seed, name) in (0..).zip(&names) {
        write(&store, name, &bytes(seed, CHUNK + seed as usize));
    }
    let lost = store.bucket_of(&names[0]);
    let (gone, kept): (Vec<_>, Vec<_>) =
        (0..).zip(&names).partition(|(_, name)| store.bucket_of(name) == lost);
    assert!(!gone.is_empty() && !kept.is_empty());
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    lose_bucket(&fs, lost);

    let store = reopen(&fs).unwrap();
    let kept_is_whole = |store: &FileStore| {
        kept.iter().for_each(|(seed, name)| {
            assert_reads(store, name, &bytes(*seed, CHUNK + *seed as usize));
        });
    };
    kept_is_whole(&store);
    for (_, name) in &gone {
        let refused = store.read(name);
        assert!(
            matches!(&refused, Err(Error::Damaged { offset: 0, what, .. })
                if what.contains(&format!("bucket {lost}"))),
            "{refused:?}"
        );
        assert!(store.stat(name).unwrap().is_some());
    }
    let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    let mut expected: Vec<&str> = gone.iter().map(|(_, name)| name.as_str()).collect();
    expected.sort_unstable();
    assert!(report.damage.iter().map(|damage| damage.name.as_str()).eq(expected.iter().copied()));
    assert_eq!(report.lost_buckets, [lost]);
    assert!(store.close().is_ok());
    drop(store);

    let options = RepairOptions { unlink_damaged: true };
    let report = FileStore::repair_with(memory_dir(), options, inline(fs.clone())).unwrap();
    assert_eq!(report.old_buckets.iter().map(|(bucket, _)| *bucket).collect::<Vec<_>>(), [lost]);
    let store = reopen(&fs).unwrap();
    kept_is_whole(&store);
    let totals = store.totals();
    assert_eq!(totals.files, kept.len() as u64);
    assert_eq!(totals.live_bytes + totals.dead_bytes, totals.file_bytes);
    write(&store, &names[0], b"again");
    assert_reads(&store, &names[0], b"again");
}

#[test]
fn a_bucket_of_another_store_or_number_is_not_taken_for_its_own() {
    let image = closed_store().image();
    let dirs = directories();
    let target = &dirs[3];
    for (from, source) in [(copy_of(&image), &dirs[2]), (closed_store(), target)] {
        let fs = copy_of(&image);
        put_in_place_of(target, &fs, source, &from);
        let store = reopen(&fs).unwrap();
        let in_it: Vec<&str> =
            NAMES.into_iter().filter(|name| store.bucket_of(name) == 1).collect();
        assert!(!in_it.is_empty());
        for name in in_it {
            let refused = store.read(name);
            assert!(
                matches!(&refused, Err(Error::Damaged { what, .. }) if what.contains("another")),
                "{refused:?}"
            );
        }
    }
}

/// Has a directory hold the files of another.
fn put_in_place_of(target: &Path, fs: &MemoryFileSystem, source: &Path, from: &MemoryFileSystem) {
    for name in fs.list(target).unwrap() {
        fs.remove(&target.join(name)).unwrap();
    }
    for name in from.list(source).unwrap().iter().filter(|name| *name != "LOCK") {
        let read = from.open_read(&source.join(name)).unwrap();
        let mut contents = vec![0; read.len().unwrap() as usize];
        read.read_exact_at(&mut contents, 0).unwrap();
        let copy = fs.create(&target.join(name)).unwrap();
        copy.write_all_at(&contents, 0).unwrap();
    }
}

/// Verifying a store by another's catalogue found every file damaged, and took the store's own away.
#[test]
fn a_catalogue_of_another_store_is_refused_and_repair_makes_the_right_one() {
    for bucket_count in [2, 16] {
        let other = MemoryFileSystem::new();
        let create = CreateOptions { bucket_count, ..small() };
        let store = in_memory(&other, create);
        (0..40).for_each(|number| drop(write(&store, &format!("other {number}"), b"other")));
        store.close().unwrap();
        let fs = closed_store();
        let catalogue = &directories()[1];
        put_in_place_of(catalogue, &fs, catalogue, &other);
        let refused = reopen(&fs);
        assert!(
            matches!(&refused, Err(Error::CatalogueLost { path, .. }) if path == catalogue),
            "{refused:?}"
        );
        let report =
            FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
        assert_eq!(report.unwrap().old_catalogue.as_ref(), Some(catalogue));
        let store = reopen(&fs).unwrap();
        assert_eq!(store.totals().files, NAMES.len() as u64);
        NAMES.iter().for_each(|name| assert_reads(&store, name, &file(name)));
    }
}

/// Values with right checksums that don't fit together are damage: they end neither a reader nor a
/// verification.
#[test]
fn records_that_contradict_each_other_are_refused() {
    type Change = fn(&mut FileRecord, &mut Content);
    let changes: [Change; 4] = [
        |record, _| record.size = CHUNK as u64 * 3,
        |record, _| record.size = 1,
        |record, _| record.primary = 200,
        |_, content| content.extents[0].bucket = 200,
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let fs = closed_store();
        let catalogue = engine_store(&fs, "catalogue-000001");
        let name_key = key_layout::key(key_layout::NAME, b"second");
        let mut record = FileRecord::decode(&catalogue.get(&name_key).unwrap().unwrap()).unwrap();
        let content_key = key_layout::key(key_layout::CONTENT, &record.content.0);
        let value = catalogue.get(&content_key).unwrap().unwrap();
        let mut content = Content::decode(&value).unwrap();
        change(&mut record, &mut content);
        catalogue.put(&name_key, &record.encode()).unwrap();
        catalogue.put(&content_key, &content.encode()).unwrap();
        catalogue.close().unwrap();
        drop(catalogue);
        let store = reopen(&fs).unwrap();
        for start in [0, 1000, CHUNK as u64 * 2] {
            let options = ReadOptions { range: Some(start..u64::MAX), salvage: false };
            let read = store.reader("second", options).and_then(|reader| {
                reader.unwrap().collect::<tallybook_files::Result<Vec<_>>>().map(drop)
            });
            assert!(read.is_err(), "change {at} from {start}");
        }
        let _ = store.verify(VerifyOptions::default(), &mut |_, _| {});
        drop(store);
        FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone())).unwrap();
        let store = reopen(&fs).unwrap();
        assert_reads(&store, "first", &file("first"));
        assert_reads(&store, "third", &file("third"));
    }
}

/// Keys with right checksums that no writer makes kept verifications and repairs busy for ever, or had each
/// repair end where the one before did.
#[test]
fn a_key_that_no_writer_makes_has_the_catalogue_made_anew() {
    let long = [b'x'; 2000];
    let keys: [(u8, &[u8]); 9] = [
        (key_layout::NAME, b"\xff"),
        (key_layout::NAME, b""),
        (key_layout::NAME, &long),
        (key_layout::BUCKET, b"\0"),
        (key_layout::BUCKET, b"\0\0"),
        (key_layout::CONTENT, b"short"),
        (key_layout::UPLOAD, b"short"),
        (key_layout::FREED, b"short"),
        (key_layout::FREED, &[0; 17]),
    ];
    for (kind, rest) in keys {
        let place = format!("{} {rest:?}", char::from(kind));
        let fs = closed_store();
        let catalogue = engine_store(&fs, "catalogue-000001");
        let name_key = key_layout::key(key_layout::NAME, b"second");
        let record = catalogue.get(&name_key).unwrap().unwrap();
        let id = FileRecord::decode(&record).unwrap().content;
        let content = catalogue.get(&key_layout::key(key_layout::CONTENT, &id.0)).unwrap().unwrap();
        let value = match kind {
            key_layout::NAME => record,
            key_layout::CONTENT => content,
            key_layout::BUCKET if rest.len() == 1 => "no numbers".into(),
            _ => encode_numbers(&[0]).into(),
        };
        catalogue.put(&key_layout::key(kind, rest), &value).unwrap();
        catalogue.close().unwrap();
        drop(catalogue);
        if let Ok(store) = reopen(&fs) {
            let mut verification = store.verification(&VerifyOptions::default()).unwrap();
            let steps =
                (0..1000).map_while(|_| verification.step().ok().filter(|goes_on| *goes_on));
            assert!(steps.count() < 1000, "{place}: the verification doesn't end");
        }
        let repaired =
            FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
        assert_eq!(repaired.unwrap().old_catalogue.as_ref(), Some(&directories()[1]), "{place}");
        let store = reopen(&fs).unwrap();
        assert_eq!(store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap().files, 3);
        store.reap().unwrap();
        NAMES.iter().for_each(|name| assert_reads(&store, name, &file(name)));
    }
}

/// An entry of a name that no writer takes was taken over, and ended every verification and repair from then on.
#[test]
fn an_entry_of_a_name_that_no_writer_takes_is_left_out() {
    let fs = closed_store();
    let bucket = engine_store(&fs, "buckets/000-000001");
    let prefix = Some(vec![key_layout::ENTRY].into());
    let options = tallybook::ScanOptions { prefix, ..Default::default() };
    let entry = bucket.range(options).unwrap().next().unwrap().unwrap().value;
    for name in ["", &"x".repeat(2000)] {
        bucket.put(&key_layout::entry(name, 7), &entry).unwrap();
    }
    bucket.close().unwrap();
    drop(bucket);
    lose_catalogue(&fs);
    let repaired =
        FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
    assert_eq!(repaired.unwrap().verified.files, 3);
    let store = reopen(&fs).unwrap();
    assert_eq!(store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap().damage, []);
    NAMES.iter().for_each(|name| assert_reads(&store, name, &file(name)));
}

/// Flips a byte of a bucket's journal in the middle of what looks like `needle`.
fn damage_bytes(dir: &Path, fs: &dyn FileSystem, needle: &[u8]) {
    for name in fs.list(dir).unwrap().iter().filter(|name| name.ends_with(".journal")) {
        let file = fs.open(&dir.join(name)).unwrap();
        let mut contents = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut contents, 0).unwrap();
        if let Some(at) = contents.windows(needle.len()).position(|window| window == needle) {
            file.write_all_at(&[!contents[at + 5]], at as u64 + 5).unwrap();
            return;
        }
    }
    panic!("the bytes are in no journal");
}

#[test]
fn verify_reports_and_quarantines_and_a_new_version_is_whole_again() {
    let fs = closed_store();
    let store = reopen(&fs).unwrap();
    let dir = store.bucket_path(store.bucket_of("second"));
    store.close().unwrap();
    drop(store);
    damage_bytes(&dir, &fs, &file("second")[100..200]);
    // Damage in a journal that recovery has no need to read.
    let store = reopen(&fs).unwrap();
    let salvage = |range| {
        let options = ReadOptions { range: Some(range), salvage: true };
        store.reader("second", options).unwrap().unwrap().next_chunk()
    };
    let report = store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!(report.damage.len(), 1);
    let damage = &report.damage[0];
    assert_eq!((damage.name.as_str(), damage.offset), ("second", 0));
    assert!(damage.what.contains(".journal"), "{}", damage.what);
    // Refused without being read, though what is whole can be asked for.
    let refused = store.reader("second", ReadOptions::default());
    assert!(matches!(refused, Err(Error::Damaged { offset: 0, .. })));
    assert!(salvage(CHUNK as u64..u64::MAX).unwrap().unwrap() == file("second")[CHUNK..]);
    assert!(salvage(CHUNK as u64 - 1..CHUNK as u64).is_err());
    write(&store, "second", b"new");
    assert_reads(&store, "second", b"new");
    assert!(store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap().damage.is_empty());
}

#[test]
fn verify_goes_on_where_it_stopped() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, small());
    (0..10).for_each(|at| drop(write(&store, &format!("{at}"), &bytes(at, 1000))));
    let options = VerifyOptions { bytes_max: Some(2500) };
    let mut files = Vec::new();
    loop {
        let report = store.verify(options.clone(), &mut |_, _| {}).unwrap();
        files.push(report.files);
        if report.is_complete {
            break;
        }
    }
    assert_eq!(files, [3, 3, 3, 1]);
}

#[test]
fn what_no_name_stands_for_is_swept_however_much_it_is() {
    const ORPHANS: u64 = 2500;
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, CreateOptions { bucket_count: 1, ..small() });
    let names: Vec<String> = (0..ORPHANS).step_by(100).map(|at| format!("{at:04}")).collect();
    names.iter().for_each(|name| drop(write(&store, name, name.as_bytes())));
    let path = store.bucket_path(0);
    store.close().unwrap();
    let bucket = Store::open_with(&path, Options::default(), inline(fs.clone())).unwrap();
    for at in 0..ORPHANS {
        let id = ContentId(bytes(at, 16).try_into().unwrap());
        bucket.put(&key_layout::entry(&format!("{at:04}"), 7), b"left behind").unwrap();
        bucket.put(&key_layout::chunk(id, 0), b"left behind").unwrap();
    }
    bucket.close().unwrap();
    let store = reopen(&fs).unwrap();
    let verify = || store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!(verify().orphans, 2 * ORPHANS);
    store.reap().unwrap();
    let again = verify();
    assert_eq!((again.orphans, again.files), (0, names.len() as u64));
    names.iter().for_each(|name| assert_reads(&store, name, name.as_bytes()));
}

#[test]
fn a_verification_that_is_given_up_leaves_its_share_to_the_next() {
    let store = in_memory(&MemoryFileSystem::new(), small());
    (0..4).for_each(|at| drop(write(&store, &format!("{at}"), &bytes(at, 2 * CHUNK))));
    let options = VerifyOptions { bytes_max: Some(4 * CHUNK as u64) };
    let share = || store.verify(options.clone(), &mut |_, _| {}).unwrap();
    assert_eq!((share().files, share().files), (2, 2));
    assert!(share().is_complete);

    assert_eq!(share().files, 2);
    let mut given_up = store.verification(&options).unwrap();
    let mut seen = Vec::new();
    while given_up.report().files == 0 {
        assert!(given_up.step().unwrap());
        seen.push(given_up.progress());
    }
    let chunk = CHUNK as u64;
    seen.dedup();
    assert_eq!(seen, [(0, 8 * chunk), (chunk, 8 * chunk), (2 * chunk, 8 * chunk)]);
    drop(given_up);
    assert_eq!(share().files, 2);
    assert_eq!((share().files, share().files), (0, 2));
}

#[test]
fn a_lost_catalogue_is_refused_by_name_and_repair_loses_nothing() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, CreateOptions { bucket_cap_bytes: 3 * CHUNK as u64, ..small() });
    let big = bytes(1, 8 * CHUNK + 1);
    write(&store, "big", &big);
    write(&store, "old", b"1");
    write(&store, "old", b"2");
    write(&store, "gone", b"3");
    write(&store, "empty", b"");
    store.rename("old", "new", Default::default()).unwrap();
    store.copy("new", "copy", Default::default()).unwrap();
    store.unlink("gone", UnlinkOptions::default()).unwrap();
    store.reap().unwrap();
    let (totals, listed) = (store.totals(), store.list(ListOptions::default()).unwrap());
    store.close().unwrap();
    drop(store);
    let catalogue = memory_dir().join("catalogue-000001");
    for name in fs.list(&catalogue).unwrap() {
        fs.remove(&catalogue.join(name)).unwrap();
    }
    let refused = reopen(&fs);
    assert!(
        matches!(&refused, Err(Error::CatalogueLost { path, .. }) if *path == catalogue),
        "{refused:?}"
    );
    let report = FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
    assert_eq!(report.unwrap().old_catalogue, Some(catalogue));
    let store = reopen(&fs).unwrap();
    assert_eq!(store.list(ListOptions::default()).unwrap(), listed);
    assert_eq!(store.totals(), totals);
    assert_reads(&store, "big", &big);
    let next = write(&store, "next", b"");
    assert!(listed.entries.iter().all(|entry| match entry {
        ListEntry::File(stat) => stat.version < next.version,
        ListEntry::Prefix(_) => false,
    }));
}

#[test]
fn a_store_is_open_once_and_a_directory_without_one_is_refused() {
    let fs = closed_store();
    let store = reopen(&fs).unwrap();
    let again = FileStore::open_with(memory_dir(), OpenOptions::default(), inline(fs.clone()));
    assert!(matches!(again, Err(Error::Engine(tallybook::Error::Locked { .. }))));
    drop(store);
    assert!(matches!(
        FileStore::open_with("/elsewhere", OpenOptions::default(), inline(fs.clone())),
        Err(Error::NotAStore { .. })
    ));
    let anew = FileStore::create_with(memory_dir(), small(), OpenOptions::default(), inline(fs));
    assert!(matches!(anew, Err(Error::InvalidArgument(_))));
}

/// The entry of a file in the bucket of a store of one, and the bucket.
fn entry_of(fs: &MemoryFileSystem, name: &str, version: u64) -> (Store, FileRecord, Content) {
    let bucket = engine_store(fs, "buckets/000-000001");
    let entry = bucket.get(&key_layout::entry(name, version)).unwrap().unwrap();
    let (record, content) = decode_entry(&entry).unwrap();
    (bucket, record, content)
}

/// The numbers went on after it, over what they may come to: the store could be opened once.
#[test]
fn an_entry_of_the_last_numbers_is_not_taken_over() {
    let last = (1 << 62) - 1;
    for (version, count) in [(last, 7), (7, last)] {
        let fs = MemoryFileSystem::new();
        let store = in_memory(&fs, CreateOptions { bucket_count: 1, ..small() });
        let known = write(&store, "file", b"bytes").version;
        store.reap().unwrap();
        store.close().unwrap();
        drop(store);
        let (bucket, record, content) = entry_of(&fs, "file", known);
        let record = FileRecord { version, content: ContentId::new(count, 7), ..record };
        let entry = encode_entry(&record, &content);
        bucket.put(&key_layout::entry("other", version), &entry).unwrap();
        bucket.close().unwrap();
        drop(bucket);
        lose_catalogue(&fs);
        FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone())).unwrap();
        for _ in 0..2 {
            let store = reopen(&fs).unwrap();
            assert_reads(&store, "file", b"bytes");
            assert!(store.stat("other").unwrap().is_none());
            store.close().unwrap();
        }
    }
}

/// Two came to more bytes than a counter takes: a repair ended the process, or counted wrongly.
#[test]
fn entries_cut_into_other_chunks_than_the_stores_are_not_taken_over() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, CreateOptions { bucket_count: 1, ..small() });
    let known = write(&store, "file", b"bytes").version;
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    let (bucket, record, content) = entry_of(&fs, "file", known);
    let size = u64::from(u32::MAX) * u64::from(u32::MAX);
    let extents = vec![Extent { bucket: 0, chunks: u32::MAX }];
    let content = Content { size, chunk_bytes: u32::MAX, extents, ..content };
    for at in 1..3 {
        let version = known + at;
        let content_id = ContentId::new(record.content.count() + at, 7);
        let record = FileRecord { version, content: content_id, size, ..record.clone() };
        let entry = encode_entry(&record, &content);
        assert!(decode_entry(&entry).is_some());
        bucket.put(&key_layout::entry(&format!("other {at}"), version), &entry).unwrap();
    }
    bucket.close().unwrap();
    drop(bucket);
    lose_catalogue(&fs);
    FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone())).unwrap();
    let store = reopen(&fs).unwrap();
    assert_reads(&store, "file", b"bytes");
    let totals = store.totals();
    assert_eq!((totals.files, totals.file_bytes, totals.live_bytes), (1, 5, 5));
}

/// It stood for another file's bytes from then on.
#[test]
fn an_entry_that_says_another_version_than_its_key_is_not_taken_over() {
    let fs = MemoryFileSystem::new();
    let store = in_memory(&fs, CreateOptions { bucket_count: 1, ..small() });
    let versions = ["a", "b"].map(|name| write(&store, name, name.as_bytes()).version);
    store.reap().unwrap();
    store.close().unwrap();
    drop(store);
    let (bucket, record, content) = entry_of(&fs, "b", versions[1]);
    let of_a = key_layout::entry("a", versions[1] + 1);
    bucket.put(&of_a, &encode_entry(&record, &content)).unwrap();
    bucket.close().unwrap();
    drop(bucket);
    lose_catalogue(&fs);
    FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone())).unwrap();
    let store = reopen(&fs).unwrap();
    ["a", "b"].iter().for_each(|name| assert_reads(&store, name, name.as_bytes()));
}
