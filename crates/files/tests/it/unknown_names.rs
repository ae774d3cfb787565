//! Names whose entries could not be read when the catalogue was made anew: what becomes of them, and of what
//! they share with others, until they can be.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tallybook::vfs::faulty::{Fault, FaultyFileSystem, OperationClass};
use tallybook::vfs::{CrashMode, FileSystem, MemoryFileSystem, MemoryImage};
use tallybook_files::record::{ContentId, FileRecord, decode_entry, encode_entry};
use tallybook_files::{
    CopyOptions, CreateOptions, Error, FileStore, OpenOptions, RepairOptions, RepairReport,
    UnlinkOptions, VerifyOptions, VerifyReport, key_layout,
};

use crate::failing_bucket::{
    chunk_count, in_bucket_0, in_journal_of_bucket_0, move_files, name_in,
};
use crate::support::{
    CHUNK, assert_reads, bytes, engine_store, in_memory, inline, memory_dir, reopen, small, write,
};

const BUCKETS: [&str; 2] = ["buckets/000-000001", "buckets/001-000001"];

/// A store of two buckets, with 300 names in each, and what was put there besides, in one table each.
struct Many {
    memory: MemoryFileSystem,
    /// The names of each bucket, in order.
    names: [Vec<String>; 2],
}

/// What is in a file of a name, which only its key is to have.
fn contents(name: &str) -> Vec<u8> {
    name.replace(' ', "_").into_bytes()
}

/// A block that was made unreadable.
struct Block {
    path: PathBuf,
    at: u64,
    sound: [u8; 4],
}

impl Many {
    fn new(besides: impl FnOnce(&FileStore, &[Vec<String>; 2])) -> Many {
        let memory = MemoryFileSystem::new();
        let cap = 8 * CHUNK as u64;
        let create = CreateOptions { bucket_count: 2, bucket_cap_bytes: cap, ..small() };
        let store = in_memory(&memory, create);
        let names = [0, 1].map(|bucket| {
            let mut names: Vec<String> = (0..299).map(|at| name_in(&store, bucket, at)).collect();
            let middle = (0..).map(|number| format!("name 3{number} middle"));
            names.extend(middle.filter(|name| store.bucket_of(name) == bucket).take(1));
            names.sort();
            names
        });
        for name in names.iter().flatten() {
            write(&store, name, &contents(name));
        }
        besides(&store, &names);
        store.reap().unwrap();
        store.close().unwrap();
        drop(store);
        let many = Many { memory, names };
        BUCKETS.iter().for_each(|bucket| many.compact(bucket));
        many
    }

    fn compact(&self, bucket: &str) {
        let bucket = engine_store(&self.memory, bucket);
        bucket.compact(None, None, &mut |_, _| {}).unwrap();
        bucket.close().unwrap();
    }

    /// Removes what names the live manifest of the catalogue made last.
    fn lose_catalogue(&self) {
        let dir = memory_dir().join(catalogue_name(&self.memory));
        self.memory.remove(&dir.join("CURRENT")).unwrap();
        self.memory.sync_dir(&dir).unwrap();
    }

    /// Damages the block that has the entry whose name ends so. It is neither the first nor the last of a table.
    fn damage(&self, bucket: &str, end: &str) -> Block {
        let dir = memory_dir().join(bucket);
        for file in self.memory.list(&dir).unwrap().iter().filter(|file| file.ends_with(".sst")) {
            let path = dir.join(file);
            let table = self.memory.open(&path).unwrap();
            let mut contents = vec![0; table.len().unwrap() as usize];
            table.read_exact_at(&mut contents, 0).unwrap();
            let mut windows = contents.windows(end.len());
            let Some(at) = windows.position(|window| window == end.as_bytes()) else { continue };
            let block =
                Block { path, at: at as u64, sound: contents[at..at + 4].try_into().unwrap() };
            table.write_all_at(&block.sound.map(|byte| !byte), block.at).unwrap();
            return block;
        }
        panic!("the entry is in no table");
    }

    fn heal(&self, block: &Block) {
        self.memory.open(&block.path).unwrap().write_all_at(&block.sound, block.at).unwrap();
    }

    fn repair(&self) -> RepairReport {
        repair(&self.memory, false).unwrap()
    }
}

/// The directory of the catalogue that was made last.
fn catalogue_name(fs: &MemoryFileSystem) -> String {
    let mut made = (1..9).map(|number| format!("catalogue-{number:06}"));
    let exists = |name: &String| fs.exists(&memory_dir().join(name).join("CURRENT")).unwrap();
    made.rfind(exists).unwrap()
}

fn repair(fs: &MemoryFileSystem, unlink_damaged: bool) -> tallybook_files::Result<RepairReport> {
    FileStore::repair_with(memory_dir(), RepairOptions { unlink_damaged }, inline(fs.clone()))
}

fn verify(store: &FileStore) -> VerifyReport {
    store.verify(VerifyOptions::default(), &mut |_, _| {}).unwrap()
}

fn missing<'a>(store: &FileStore, names: &'a [String]) -> Vec<&'a String> {
    names.iter().filter(|name| store.stat(name).unwrap().is_none()).collect()
}

/// Whether the store is whole, and its counters are what listing it says: every file is as large as its bytes,
/// which no other file has.
fn assert_sound(store: &FileStore) {
    let report = verify(store);
    assert_eq!((&report.damage[..], &report.unread_buckets[..]), (&[][..], &[][..]));
    assert_eq!((&report.unknown_buckets[..], report.orphans), (&[][..], 0));
    store.reap().unwrap();
    let totals = store.totals();
    assert_eq!((report.files, report.bytes), (totals.files, totals.file_bytes));
    assert_eq!((totals.live_bytes, totals.dead_bytes), (totals.file_bytes, 0));
}

fn close(store: FileStore) {
    store.close().unwrap();
}

/// A file in the first bucket that goes on in the second.
const SPILLED: &str = "name 4 spilled";

/// A name for the same bytes.
const COPY: &str = "a copy of it";

fn with_spilled_copy() -> Many {
    Many::new(|store, _| {
        // Whose bucket it is.
        let mut names = (0..).map(|number| format!("{number} {SPILLED}"));
        let name = names.find(|name| store.bucket_of(name) == 0).unwrap();
        write(store, &name, &bytes(1, 10 * CHUNK));
        store.rename(&name, SPILLED, CopyOptions::default()).unwrap();
        store.copy(SPILLED, COPY, CopyOptions::default()).unwrap();
    })
}

/// Its refs were those of the names that could be read: with the last of them its chunks went, and the other
/// name came back without them.
#[test]
fn what_an_unread_name_stands_for_too_is_not_freed() {
    let many = with_spilled_copy();
    let block = many.damage(BUCKETS[0], " spilled");
    many.lose_catalogue();
    assert_eq!(many.repair().unread_buckets, [0]);
    let store = reopen(&many.memory).unwrap();
    assert_eq!(store.read(SPILLED).unwrap(), None);
    store.unlink(COPY, UnlinkOptions::default()).unwrap();
    let reaped = store.reap().unwrap();
    assert_eq!((reaped.contents, reaped.waiting), (0, 1));
    // What was written since has no name but those that are known.
    let next = name_in(&store, 0, 1000);
    write(&store, &next, b"next");
    store.unlink(&next, UnlinkOptions::default()).unwrap();
    let reaped = store.reap().unwrap();
    assert_eq!((reaped.contents, reaped.waiting), (1, 1));
    close(store);
    many.repair();
    // Given up, nothing keeps it.
    let given_up = many.memory.image().crash(CrashMode::KeepAll, 0);
    repair(&given_up, true).unwrap();
    let kept = reopen(&given_up).unwrap().totals();
    assert_eq!((kept.live_bytes, kept.dead_bytes), (kept.file_bytes, 0));
    assert_eq!(chunk_count(&given_up, BUCKETS[1]) as u64, 300);
    many.heal(&block);
    many.repair();
    let store = reopen(&many.memory).unwrap();
    assert_eq!(missing(&store, &many.names.concat()), Vec::<&String>::new());
    assert_reads(&store, SPILLED, &bytes(1, 10 * CHUNK));
    assert_eq!(store.read(COPY).unwrap(), None);
    assert_sound(&store);
    store.unlink(SPILLED, UnlinkOptions::default()).unwrap();
    assert_eq!(store.reap().unwrap().contents, 1);
    assert_sound(&store);
    close(store);
    assert_eq!(chunk_count(&many.memory, BUCKETS[1]), 300);
}

/// One bucket that still could not be read had those given up that could, and without giving any up kept them
/// from coming back.
#[test]
fn each_bucket_is_taken_over_or_given_up_for_itself() {
    let many = Many::new(|_, _| {});
    let blocks = [0, 1].map(|at| many.damage(BUCKETS[at], " middle"));
    many.lose_catalogue();
    assert_eq!(many.repair().unread_buckets, [0, 1]);
    many.heal(&blocks[0]);
    for unlink_damaged in [false, true] {
        let left = many.memory.image().crash(CrashMode::KeepAll, 0);
        let report = repair(&left, unlink_damaged).unwrap();
        assert_eq!(report.old_catalogue, None);
        let store = reopen(&left).unwrap();
        assert_eq!(missing(&store, &many.names[0]), Vec::<&String>::new());
        assert!(!missing(&store, &many.names[1]).is_empty());
        let report = verify(&store);
        assert_eq!(report.unread_buckets, [1]);
        assert_eq!(&report.unknown_buckets[..], if unlink_damaged { &[][..] } else { &[1] });
        assert_eq!((report.orphans, report.is_complete), (0, true));
        close(store);
    }
    let store = {
        many.heal(&blocks[1]);
        many.repair();
        reopen(&many.memory).unwrap()
    };
    assert_eq!(missing(&store, &many.names[1]), Vec::<&String>::new());
    assert_sound(&store);
}

/// Damages what the first bucket is opened by, or makes it whole again.
fn flip_manifest(fs: &MemoryFileSystem) {
    let dir = memory_dir().join(BUCKETS[0]);
    let names = fs.list(&dir).unwrap();
    for name in names.iter().filter(|name| name.starts_with("MANIFEST")) {
        let (file, mut byte) = (fs.open(&dir.join(name)).unwrap(), [0]);
        file.read_exact_at(&mut byte, 10).unwrap();
        file.write_all_at(&byte.map(|byte| !byte), 10).unwrap();
    }
}

/// It was made anew and empty by the repair that made the catalogue, though its directory was there: what only it
/// knew was given up unasked, and the chunks of its files were swept from the sound ones.
#[test]
fn a_bucket_that_is_damaged_when_the_catalogue_is_made_anew_is_left_alone() {
    let many = with_spilled_copy();
    many.lose_catalogue();
    flip_manifest(&many.memory);
    let chunks = chunk_count(&many.memory, BUCKETS[1]);
    // Nor is it given up by this one.
    let report = repair(&many.memory, true).unwrap();
    assert_eq!((&report.unread_buckets[..], &report.old_buckets[..]), (&[0][..], &[][..]));
    assert_eq!((&report.verified.lost_buckets[..], report.verified.orphans), (&[0][..], 0));
    let store = reopen(&many.memory).unwrap();
    assert_eq!(missing(&store, &many.names[1]), Vec::<&String>::new());
    let next = name_in(&store, 1, 1000);
    write(&store, &next, b"next");
    close(store);
    let refused = many.memory.image().crash(CrashMode::KeepAll, 0);
    let refused = repair(&refused, false);
    assert!(matches!(refused, Err(Error::BucketLost { bucket: 0, .. })), "{refused:?}");
    let given_up = many.memory.image().crash(CrashMode::KeepAll, 0);
    assert_eq!(repair(&given_up, true).unwrap().old_buckets.len(), 1);
    assert!(chunk_count(&given_up, BUCKETS[1]) < chunks);
    assert_eq!(chunk_count(&many.memory, BUCKETS[1]), chunks + 1);
    flip_manifest(&many.memory);
    assert_eq!(many.repair().old_catalogue, None);
    let store = reopen(&many.memory).unwrap();
    assert_eq!(missing(&store, &many.names.concat()), Vec::<&String>::new());
    assert_reads(&store, SPILLED, &bytes(1, 10 * CHUNK));
    assert_reads(&store, &next, b"next");
    store.unlink(COPY, UnlinkOptions::default()).unwrap();
    assert_sound(&store);
}

/// Whoever was killed while making a bucket leaves one that doesn't open, and is no bucket that is damaged.
#[test]
fn a_bucket_that_was_never_made_in_full_keeps_nothing_waiting() {
    let memory = MemoryFileSystem::new();
    let store = in_memory(&memory, CreateOptions { bucket_count: 2, ..small() });
    write(&store, &name_in(&store, 0, 0), b"file");
    let names = [0, 1].map(|which| name_in(&store, 1, which));
    close(store);
    let images: Arc<Mutex<Vec<MemoryImage>>> = Arc::default();
    let taken = images.clone();
    memory.set_observer(Some(Box::new(move |_, _, moment| {
        taken.lock().unwrap().push(moment.image());
    })));
    let store = reopen(&memory).unwrap();
    let dir = memory_dir().join(BUCKETS[1]);
    write(&store, &names[0], b"file");
    memory.set_observer(None);
    let in_bucket_1 = |_: &str, path: &Path| path.starts_with("/files/buckets/001-000001");
    // Repairs it, while a read of that bucket fails once; answers the store, and which read that was.
    let repaired = |image: &MemoryImage, from: Option<u64>| {
        let left = image.crash(CrashMode::KeepAll, 0);
        let catalogue = memory_dir().join("catalogue-000001");
        left.remove(&catalogue.join("CURRENT")).unwrap();
        let fs = FaultyFileSystem::new(Arc::new(left.clone()));
        let fault = Fault::errno(5).class(OperationClass::Reads).only(in_bucket_1);
        from.into_iter().for_each(|ordinal| fs.fail_at(ordinal, fault));
        let options = RepairOptions::default();
        let report = FileStore::repair_with(memory_dir(), options, inline(fs.clone())).unwrap();
        assert_eq!((report.unread_buckets, report.verified.unknown_buckets), (vec![], vec![]));
        assert_eq!(report.old_buckets, [], "nothing of it is lost");
        let store = reopen(&left).unwrap();
        write(&store, &names[1], b"file");
        assert_reads(&store, &names[1], b"file");
        (store, fs.last_fired().map(|fired| fired.ordinal))
    };
    let (mut unmade, mut unread) = (0, 0);
    for image in images.lock().unwrap().iter() {
        let (store, _) = repaired(image, None);
        let is_begun = image.crash(CrashMode::KeepAll, 0).exists(&dir).unwrap();
        if is_begun && store.stat(&names[0]).unwrap().is_none() {
            unmade += 1;
            let mut from = 0;
            while let (_, Some(failed)) = repaired(image, Some(from)) {
                (from, unread) = (failed + 1, unread + 1);
            }
        }
    }
    assert!(unmade > 5 && unread > 5, "{unmade} unmade, {unread} not read");
}

/// A bucket that could not be read at first was made anew and empty once it was found to be lost, or away: what it
/// knew was given up unasked, and swept from the sound ones.
#[test]
fn a_bucket_that_is_lost_before_it_is_taken_over_is_given_up_only_if_asked_for() {
    let many = with_spilled_copy();
    many.lose_catalogue();
    let fs = FaultyFileSystem::new(Arc::new(many.memory.clone()));
    fs.fail_at(0, Fault::errno(5).class(OperationClass::Reads).only(in_bucket_0).sticky());
    let report = FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
    assert_eq!(report.unwrap().unread_buckets, [0]);
    let dir = memory_dir().join(BUCKETS[0]);
    let image = many.memory.image();
    for is_away in [false, true] {
        let left = image.crash(CrashMode::KeepAll, 0);
        match is_away {
            true => move_files(&left, &dir, Path::new("/elsewhere")),
            false => flip_manifest(&left),
        }
        let chunks = chunk_count(&left, BUCKETS[1]);
        let given_up = left.image().crash(CrashMode::KeepAll, 0);
        for _ in 0..2 {
            let refused = repair(&left, false);
            assert!(matches!(refused, Err(Error::BucketLost { bucket: 0, .. })), "{refused:?}");
            assert_eq!(chunk_count(&left, BUCKETS[1]), chunks);
        }
        let report = repair(&given_up, true).unwrap();
        assert_eq!(report.old_buckets.len(), 1);
        assert!(chunk_count(&given_up, BUCKETS[1]) < chunks);
        match is_away {
            true => move_files(&left, Path::new("/elsewhere"), &dir),
            false => flip_manifest(&left),
        }
        repair(&left, false).unwrap();
        let store = reopen(&left).unwrap();
        assert_eq!(missing(&store, &many.names.concat()), Vec::<&String>::new());
        assert_reads(&store, SPILLED, &bytes(1, 10 * CHUNK));
        store.unlink(COPY, UnlinkOptions::default()).unwrap();
        assert_sound(&store);
    }
}

/// A bucket whose entries were all read when the catalogue was made kept others from being taken over.
#[test]
fn a_bucket_that_is_known_has_no_say_in_what_is_taken_over() {
    let many = Many::new(|_, _| {});
    let block = many.damage(BUCKETS[0], " middle");
    many.lose_catalogue();
    assert_eq!(many.repair().unread_buckets, [0]);
    many.heal(&block);
    let other = many.damage(BUCKETS[1], " middle");
    let report = many.repair();
    assert_eq!((report.old_catalogue, &report.verified.unread_buckets[..]), (None, &[1][..]));
    let store = reopen(&many.memory).unwrap();
    assert_eq!(missing(&store, &many.names.concat()), Vec::<&String>::new());
    close(store);
    many.heal(&other);
    assert_sound(&reopen(&many.memory).unwrap());
}

/// The catalogue that had been written to since was thrown away for another made of entries alone: writes whose
/// entry had found no room were gone, and names unlinked meanwhile were back.
#[test]
fn what_was_changed_meanwhile_stays_when_names_are_taken_over() {
    let many = with_spilled_copy();
    let block = many.damage(BUCKETS[0], " spilled");
    many.lose_catalogue();
    many.repair();
    let fs = FaultyFileSystem::new(Arc::new(many.memory.clone()));
    let options = OpenOptions::default();
    let store = FileStore::open_with(memory_dir(), options, inline(fs.clone())).unwrap();
    let names = &many.names[0];
    let unread: Vec<String> = missing(&store, names).into_iter().cloned().collect();
    let known = names.iter().filter(|name| !unread.contains(name)).collect::<Vec<_>>();
    assert!(unread.len() > 5 && known.len() > 5, "{unread:?}");
    // Of those that are not known one gets a new file, one another that is unlinked, one that is renamed.
    write(&store, &unread[0], b"anew");
    write(&store, &unread[1], b"unlinked");
    write(&store, &unread[2], b"renamed");
    store.reap().unwrap();
    store.unlink(&unread[1], UnlinkOptions::default()).unwrap();
    store.rename(&unread[2], "renamed", CopyOptions::default()).unwrap();
    store.unlink(known[0], UnlinkOptions::default()).unwrap();
    store.rename(known[1], "moved", CopyOptions::default()).unwrap();
    store.reap().unwrap();
    fs.fail_at(
        0,
        Fault::errno(28).class(OperationClass::Writes).only(in_journal_of_bucket_0).sticky(),
    );
    let attributes = Some(bytes(1, 60_000).into());
    store.copy(known[2], "entryless", CopyOptions { attributes, ..Default::default() }).unwrap();
    store.unlink(known[2], UnlinkOptions::default()).unwrap();
    assert!(fs.fired() > 0);
    let version = store.stat("entryless").unwrap().unwrap().version;
    drop(store.close());
    drop(store);
    let left = many.memory.image().crash(CrashMode::KeepAll, 0);
    let entry = key_layout::entry("entryless", version);
    assert!(engine_store(&left, BUCKETS[0]).head(&entry).unwrap().is_none());
    many.heal(&block);
    assert_eq!(many.repair().old_catalogue, None);
    let store = reopen(&many.memory).unwrap();
    assert_reads(&store, &unread[0], b"anew");
    assert_reads(&store, "renamed", b"renamed");
    assert_reads(&store, "moved", &contents(known[1]));
    assert_reads(&store, "entryless", &contents(known[2]));
    for name in [&unread[1], &unread[2], known[0], known[1], known[2]] {
        assert_eq!(store.read(name).unwrap(), None, "{name} is back");
    }
    for name in &unread[3..] {
        assert_reads(&store, name, &contents(name));
    }
    assert_reads(&store, SPILLED, &bytes(1, 10 * CHUNK));
    store.unlink(COPY, UnlinkOptions::default()).unwrap();
    assert_sound(&store);
    close(store);
    // What takes names over leaves nothing of that.
    let catalogue = engine_store(&many.memory, &catalogue_name(&many.memory));
    for kind in [key_layout::UNREAD, key_layout::UNLINKED, key_layout::FREED] {
        let prefix = Some(vec![kind].into());
        let options = tallybook::ScanOptions { prefix, ..Default::default() };
        assert_eq!(catalogue.range_heads(options).unwrap().count(), 0, "{}", kind as char);
    }
}

#[test]
fn a_repair_that_ends_half_way_is_gone_on_with() {
    let many = with_spilled_copy();
    let block = many.damage(BUCKETS[0], " spilled");
    many.lose_catalogue();
    many.repair();
    let store = reopen(&many.memory).unwrap();
    store.unlink(COPY, UnlinkOptions::default()).unwrap();
    close(store);
    many.heal(&block);
    let in_catalogue = |_: &str, path: &Path| path.starts_with("/files/catalogue-000002");
    let (mut at, mut failed) = (0, 0);
    loop {
        let image = many.memory.image().crash(CrashMode::KeepAll, 0);
        let fs = FaultyFileSystem::new(Arc::new(image.clone()));
        fs.fail_at(at, Fault::errno(5).class(OperationClass::Writes).only(in_catalogue).sticky());
        let repaired =
            FileStore::repair_with(memory_dir(), RepairOptions::default(), inline(fs.clone()));
        failed += u32::from(!repaired.is_ok_and(|report| report.unfinished.is_none()));
        for mode in [CrashMode::KeepAll, CrashMode::LoseUnsynced] {
            let left = image.image().crash(mode, 0);
            repair(&left, false).unwrap();
            let store = reopen(&left).unwrap();
            assert_eq!(missing(&store, &many.names.concat()), Vec::<&String>::new(), "{at}");
            assert_reads(&store, SPILLED, &bytes(1, 10 * CHUNK));
            assert_eq!(store.read(COPY).unwrap(), None);
            assert_sound(&store);
        }
        if fs.fired() == 0 {
            break;
        }
        at += 7;
    }
    assert!(failed > 3, "{failed} of {at}");
}

/// Its entries could still not be swept, and with that its chunks were not: those of the files that were given
/// up stayed for good.
#[test]
fn chunks_of_what_was_given_up_go_though_a_block_stays_damaged() {
    let many = with_spilled_copy();
    many.damage(BUCKETS[0], " spilled");
    many.lose_catalogue();
    many.repair();
    let before = chunk_count(&many.memory, BUCKETS[0]);
    repair(&many.memory, true).unwrap();
    let store = reopen(&many.memory).unwrap();
    let report = verify(&store);
    // The damage is told of.
    assert_eq!((&report.unread_buckets[..], &report.unknown_buckets[..]), (&[0][..], &[][..]));
    assert_eq!((report.orphans, report.is_complete), (0, true));
    let gone = missing(&store, &many.names[0]).len();
    close(store);
    assert!(gone > 0);
    assert_eq!(chunk_count(&many.memory, BUCKETS[0]), before - gone);
}

/// They stayed until all of the store was verified, where the repair had come to its end just so far.
#[test]
fn chunks_of_what_was_given_up_go_though_the_repair_was_cut_off() {
    let many = with_spilled_copy();
    many.damage(BUCKETS[0], " spilled");
    many.lose_catalogue();
    many.repair();
    let store = reopen(&many.memory).unwrap();
    store.unlink(COPY, UnlinkOptions::default()).unwrap();
    close(store);
    let images: Arc<Mutex<Vec<MemoryImage>>> = Arc::default();
    let taken = images.clone();
    many.memory.set_observer(Some(Box::new(move |ordinal, _, moment| {
        if ordinal % 5 == 0 {
            taken.lock().unwrap().push(moment.image());
        }
    })));
    repair(&many.memory, true).unwrap();
    many.memory.set_observer(None);
    let chunks = |fs: &MemoryFileSystem| BUCKETS.map(|bucket| chunk_count(fs, bucket));
    let mut given_up = 0;
    for image in images.lock().unwrap().iter() {
        let left = image.crash(CrashMode::KeepAll, 0);
        let is_known = {
            let prefix = Some(vec![key_layout::UNREAD].into());
            let options = tallybook::ScanOptions { prefix, ..Default::default() };
            let catalogue = engine_store(&left, &catalogue_name(&left));
            catalogue.range_heads(options).unwrap().count() == 0
        };
        if is_known {
            let store = reopen(&left).unwrap();
            store.reap().unwrap();
            close(store);
            assert_eq!(chunks(&left), chunks(&many.memory));
            given_up += 1;
        }
    }
    assert!(given_up > 0);
    assert_eq!(chunks(&many.memory)[1], 300);
}

/// Nobody was told that another repair was all that was missing, and each opening swept all buckets.
#[test]
fn a_bucket_that_is_not_known_is_told_of_and_swept_of_what_came_later() {
    let many = with_spilled_copy();
    let block = many.damage(BUCKETS[0], " spilled");
    many.lose_catalogue();
    many.repair();
    many.heal(&block);
    let store = reopen(&many.memory).unwrap();
    let report = verify(&store);
    assert_eq!((&report.unread_buckets[..], &report.unknown_buckets[..]), (&[][..], &[0][..]));
    assert!(!missing(&store, &many.names[0]).is_empty());
    close(store);
    let catalogue = engine_store(&many.memory, &catalogue_name(&many.memory));
    assert!(catalogue.head(&[key_layout::SWEPT]).unwrap().is_some());
    catalogue.delete(&[key_layout::SWEPT]).unwrap();
    catalogue.close().unwrap();
    drop(catalogue);
    // As a power loss leaves it, which took the change from the catalogue.
    let late = key_layout::entry("late", 1 << 50);
    let bucket = engine_store(&many.memory, BUCKETS[0]);
    let prefix = Some(vec![key_layout::ENTRY].into());
    let options = tallybook::ScanOptions { prefix, ..Default::default() };
    let known = bucket.range(options).unwrap().next().unwrap().unwrap().value;
    let (record, content) = decode_entry(&known).unwrap();
    let entry = encode_entry(&FileRecord { version: 1 << 50, ..record }, &content);
    bucket.put(&late, &entry).unwrap();
    bucket.put(&key_layout::chunk(ContentId::new(1 << 50, 7), 0), b"nobody's").unwrap();
    bucket.close().unwrap();
    drop(bucket);
    let store = reopen(&many.memory).unwrap();
    store.reap().unwrap();
    close(store);
    let bucket = engine_store(&many.memory, BUCKETS[0]);
    assert!(bucket.head(&late).unwrap().is_none());
    // Nor is it taken over where it was not swept.
    bucket.put(&late, &entry).unwrap();
    bucket.close().unwrap();
    drop(bucket);
    many.repair();
    let store = reopen(&many.memory).unwrap();
    assert_eq!(missing(&store, &many.names.concat()), Vec::<&String>::new());
    assert!(matches!(store.copy("late", "x", Default::default()), Err(Error::NotFound { .. })));
    store.unlink(COPY, UnlinkOptions::default()).unwrap();
    assert_sound(&store);
}

/// What was written after the first time is from before the second, though nothing that is read says so.
#[test]
fn a_catalogue_lost_again_leaves_out_other_numbers() {
    let many = Many::new(|_, _| {});
    many.damage(BUCKETS[0], " middle");
    many.lose_catalogue();
    many.repair();
    let store = reopen(&many.memory).unwrap();
    let late = ["a", "b", "c"].map(|end| {
        let mut names = (0..).map(|number| format!("late {end} {number} is {end}"));
        names.find(|name| store.bucket_of(name) == 0).unwrap()
    });
    late.iter().for_each(|name| drop(write(&store, name, &contents(name))));
    store.reap().unwrap();
    close(store);
    let bucket = engine_store(&many.memory, BUCKETS[0]);
    bucket.flush().unwrap();
    bucket.close().unwrap();
    drop(bucket);
    let block = many.damage(BUCKETS[0], " is b");
    many.lose_catalogue();
    assert_eq!(many.repair().unread_buckets, [0]);
    let store = reopen(&many.memory).unwrap();
    assert!(missing(&store, &late).contains(&&late[1]));
    verify(&store);
    close(store);
    many.heal(&block);
    many.repair();
    let store = reopen(&many.memory).unwrap();
    late.iter().for_each(|name| assert_reads(&store, name, &contents(name)));
}
