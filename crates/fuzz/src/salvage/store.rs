//! A store with a past, its files damaged: what is saved of it was there, and is a sound store.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tallybook::file_name::{self, FileKind};
use tallybook::key::SEQNO_USED_MAX;
use tallybook::salvage::{Doubt, NAMED_MAX, SalvageReport, Wanted, salvage_with};
use tallybook::vfs::{CrashMode, FileSystem, MemoryFileSystem};
use tallybook::{Error, Store};

use super::history::{HISTORY, LOOK_MS, Left, Pairs, options, pairs};
use crate::disk;
use crate::input::{Input, u32_at};

// What the first byte of an input says.
const CORRECTS: u8 = 1;
const WITHOUT_CURRENT: u8 = 2;
const WITHOUT_MANIFEST: u8 = 4;
const EVERYTHING: u8 = 8;
const CLOSED: u8 = 16;
const SAVES_AGAIN: u8 = 32;

/// More than any sound store here takes.
const CAPACITY_BYTES: u64 = 64 << 20;

fn new_dir() -> &'static Path {
    Path::new("/new")
}

/// Changes of files, as [`disk::damage`] makes them, and files that are gone.
pub(crate) fn store(data: &[u8]) -> bool {
    let mut input = Input(data);
    let flags = input.u8();
    let has = |flag| flags & flag != 0;
    let left = if has(CLOSED) { &HISTORY.closed } else { &HISTORY.killed };
    let fs = left.image.crash(CrashMode::KeepAll, 0);
    fs.set_capacity(Some(CAPACITY_BYTES));
    disk::damage(&fs, &mut input, has(CORRECTS));
    remove(&fs, |kind| match kind {
        FileKind::Current => has(WITHOUT_CURRENT),
        FileKind::Manifest(_) => has(WITHOUT_MANIFEST),
        _ => false,
    });
    let wanted = if has(EVERYTHING) { Wanted::Everything } else { Wanted::Certain };
    let opened = if has(CORRECTS) { Opened::Unknown } else { open_copy(&fs) };
    let before = contents(&fs);
    let saved = save(&fs, disk::dir(), new_dir(), wanted);
    assert!(contents(&fs) == before, "the old store is only read");
    let report = match saved {
        Ok(report) => report,
        Err(error) => {
            assert!(matches!(opened, Opened::Unknown), "a store that opens is not saved: {error}");
            // Of a damaged one whose checksums nobody made right something is saved, if anything is wanted.
            let is_refused =
                wanted == Wanted::Certain && matches!(error, Error::InvalidArgument(_));
            assert!(is_refused || has(CORRECTS), "nothing is saved: {error}");
            let names = fs.list(new_dir()).unwrap_or_default();
            assert!(names.is_empty(), "{names:?} are left of a try");
            return false;
        }
    };
    let found = check_saved(&fs, &report);
    check_named(&report, &found, wanted);
    if !has(CORRECTS) {
        check_past(left, &report, &found, wanted);
        check_log(left, &before, &found);
    }
    match opened {
        Opened::Sound(pairs) => {
            assert!(found == pairs, "a sound store is not saved as it is");
            // Of a spare that was cut nobody can say that it was one.
            let is_segment = |path: &Path| matches!(kind(path), Some(FileKind::Segment(_)));
            let is_doubtful =
                before.iter().any(|(path, bytes)| is_segment(path) && disk::may_lack_start(bytes));
            let is_whole = (is_doubtful || report.is_whole()) && report.behind_hole == 0;
            assert!(is_whole, "of a sound store: {report:?}");
        }
        Opened::Damaged(answers) => check_answers(&answers, &report, &found, wanted),
        Opened::Cut => assert!(!report.is_whole(), "recovery cuts off what is not missing"),
        Opened::Unknown => {}
    }
    match has(SAVES_AGAIN) {
        true => save_again(&fs, &found),
        false => write_over(&fs, &report, &found),
    }
    true
}

fn remove(fs: &MemoryFileSystem, is_gone: impl Fn(FileKind) -> bool) {
    for path in disk::files(fs).into_iter().filter(|path| kind(path).is_some_and(&is_gone)) {
        fs.remove(&path).expect("a file is removed from memory");
    }
}

fn kind(path: &Path) -> Option<FileKind> {
    file_name::parse(path.file_name()?.to_str()?)
}

/// All files of the old store, but for its lock.
fn contents(fs: &MemoryFileSystem) -> Vec<(PathBuf, Vec<u8>)> {
    let files = disk::files(fs).into_iter().filter(|path| kind(path) != Some(FileKind::Lock));
    files.map(|path| (path.clone(), disk::read(fs, &path))).collect()
}

fn save(
    fs: &MemoryFileSystem,
    from: &Path,
    to: &Path,
    wanted: Wanted,
) -> Result<SalvageReport, Error> {
    let mut last = 0;
    let mut progress = |done, total| {
        assert!(last <= done && done <= total, "{done} of {total}, after {last}");
        last = done;
    };
    salvage_with(from, to, wanted, &options(), &disk::inline_at(fs, LOOK_MS), &mut progress)
}

fn open(fs: &MemoryFileSystem, dir: &Path) -> Result<Store, Error> {
    Store::open_with(dir, options(), disk::inline_at(fs, LOOK_MS))
}

/// What opening a store tells of it.
enum Opened {
    /// It opens without losing anything, and `verify` has nothing to say: this is in it.
    Sound(Pairs),
    /// It opens without losing anything, but is damaged: this it still answers.
    Damaged(Pairs),
    /// Recovery cuts off the end of its log.
    Cut,
    /// Nothing that a salvage would have to say too.
    Unknown,
}

fn open_copy(fs: &MemoryFileSystem) -> Opened {
    let copy = fs.image().crash(CrashMode::KeepAll, 0);
    let Ok(store) = open(&copy, disk::dir()) else { return Opened::Unknown };
    let stats = store.stats();
    if stats.torn_records > 0 {
        return Opened::Cut;
    }
    match store.verify(&mut |_, _| {}) {
        Ok(report) if report.damage.is_empty() => Opened::Sound(pairs(&store)),
        _ => Opened::Damaged(answers(&store)),
    }
}

fn answers(store: &Store) -> Pairs {
    let answer = |key: &Bytes| Some((key.clone(), store.get_entry(key).ok()??));
    HISTORY.keys().into_iter().filter_map(answer).collect()
}

/// That what was saved is a sound store, which is as the report says.
fn check_saved(fs: &MemoryFileSystem, report: &SalvageReport) -> Pairs {
    let store = open(fs, new_dir()).expect("a saved store opens");
    let verified = store.verify(&mut |_, _| {}).expect("a saved store is verified");
    assert!(verified.damage.is_empty(), "{:?}", verified.damage);
    let found = pairs(&store);
    let bytes = found.values().map(|(_, value)| value.len() as u64).sum::<u64>();
    assert_eq!((report.keys, report.value_bytes), (found.len() as u64, bytes));
    let last_seqno = store.stats().last_seqno;
    for (key, (head, value)) in &found {
        assert_eq!(store.head(key).expect("a saved store answers").as_ref(), Some(head));
        assert_eq!(store.get(key).expect("a saved store answers").as_ref(), Some(value));
        assert!(head.version <= last_seqno, "the write of {key:?} is beyond {last_seqno}");
    }
    store.close().expect("a saved store is closed");
    found
}

/// That the keys that are in doubt are named, each once, and are in the new store or not as it is told.
fn check_named(report: &SalvageReport, found: &Pairs, wanted: Wanted) {
    let named = &report.named;
    let count = report.doubtful + report.unreadable;
    assert_eq!(named.len() as u64, count.min(NAMED_MAX as u64));
    assert!(named.is_sorted_by(|(one, _), (next, _)| one < next), "named twice: {named:?}");
    for (key, doubt) in named {
        let is_there = *doubt == Doubt::MayBeOlder && wanted == Wanted::Everything;
        assert_eq!(found.contains_key(key), is_there, "{key:?} {doubt:?}");
    }
}

/// That what was saved was once in the store: everything at once, if it is certain.
fn check_past(left: &Left, report: &SalvageReport, found: &Pairs, wanted: Wanted) {
    for (key, value) in found {
        assert!(HISTORY.knows(key, value), "{key:?} was never {value:?}");
    }
    assert!(wanted == Wanted::Everything || HISTORY.was_once(found), "the store never was so");
    // Zeros over the log's last records leave a log that ends before them; what was there when the store
    // was opened last, its manifest knows of.
    let mut ends = left.proven..=HISTORY.writes.len();
    let is_whole = report.is_whole();
    assert!(!is_whole || ends.any(|end| HISTORY.after(end) == *found), "something is missing");
}

/// That all which the log alone has is saved, where nothing but tables was changed.
fn check_log(left: &Left, damaged: &[(PathBuf, Vec<u8>)], found: &Pairs) {
    let whole = contents(&left.image.crash(CrashMode::KeepAll, 0));
    let is_table = |path: &Path| matches!(kind(path), Some(FileKind::Table(_)));
    let mut files = whole.iter().zip(damaged);
    let is_log_whole = whole.len() == damaged.len()
        && files.all(|((path, one), (_, other))| is_table(path) || one == other);
    for (key, value) in HISTORY.after(HISTORY.writes.len()) {
        if is_log_whole && value.0.version > left.seqno_in_tables {
            assert_eq!(found.get(&key), Some(&value), "{key:?} stands in the log");
        }
    }
}

/// That what the damaged store still answers is saved, or left out as a later write may be lost.
fn check_answers(answers: &Pairs, report: &SalvageReport, found: &Pairs, wanted: Wanted) {
    for (key, value) in answers {
        let is_named = || report.named.contains(&(key.clone(), Doubt::MayBeOlder));
        let is_left_out = wanted == Wanted::Certain && !found.contains_key(key) && is_named();
        assert!(is_left_out || found.get(key) == Some(value), "{key:?} is answered: {value:?}");
    }
}

/// Saves what was saved, of which nothing may be missing then.
fn save_again(fs: &MemoryFileSystem, found: &Pairs) {
    let to = Path::new("/again");
    let report = save(fs, new_dir(), to, Wanted::Certain).expect("a saved store is saved again");
    assert!(report.is_whole() && report.has_manifest, "of a saved store: {report:?}");
    let store = open(fs, to).expect("a saved store opens");
    assert!(pairs(&store) == *found, "a saved store is not saved as it is");
}

/// It is a store as any other: what it holds is overwritten, merged and collected, and it is opened again.
fn write_over(fs: &MemoryFileSystem, report: &SalvageReport, found: &Pairs) {
    let store = open(fs, new_dir()).expect("a saved store opens");
    for (key, (head, _)) in found {
        let version = store.put(key, key).expect("a saved store is written to");
        assert!(version > head.version, "a write of before hides that of {key:?}");
    }
    store.flush().expect("a saved store is flushed");
    store.compact(None, None, &mut |_, _| {}).expect("a saved store is compacted");
    for key in found.keys() {
        assert_eq!(store.get(key).expect("a saved store answers").as_ref(), Some(key));
    }
    assert!(pairs(&store).keys().eq(found.keys()));
    let last_seqno = store.stats().last_seqno;
    store.close().expect("a saved store is closed");
    // A manifest may say that no numbers are left.
    if !report.has_manifest || last_seqno <= SEQNO_USED_MAX {
        let store = open(fs, new_dir()).expect("a saved store that was written to opens");
        assert!(pairs(&store).iter().all(|(key, (_, value))| key == value));
        assert!(pairs(&store).keys().eq(found.keys()));
    }
}

/// Seeds of `store`.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let fs = HISTORY.killed.image.crash(CrashMode::KeepAll, 0);
    let files: Vec<(PathBuf, Vec<u8>)> =
        disk::files(&fs).into_iter().map(|path| (path.clone(), disk::read(&fs, &path))).collect();
    let none = [
        0,
        CORRECTS,
        SAVES_AGAIN,
        CLOSED,
        CLOSED | EVERYTHING,
        WITHOUT_CURRENT,
        WITHOUT_CURRENT | WITHOUT_MANIFEST | EVERYTHING,
        WITHOUT_MANIFEST | EVERYTHING | SAVES_AGAIN,
        WITHOUT_MANIFEST,
    ];
    let mut seeds: Vec<Vec<u8>> = none.iter().map(|&flags| vec![flags]).collect();
    for (number, (path, bytes)) in (0u8..).zip(&files) {
        // In turn, so that each way of looking at what was saved is taken.
        let flags = [0, EVERYTHING, SAVES_AGAIN, EVERYTHING | SAVES_AGAIN][usize::from(number % 4)];
        let mut seed = |flags: u8, what: u8, at: usize, patch: &[u8]| {
            let change = disk::change(number, what, at as u16, patch);
            seeds.push([&[flags][..], &change].concat());
        };
        match kind(path) {
            Some(FileKind::Segment(_)) => {
                seed(flags, 1, 70, &[1]);
                seed(flags | CORRECTS, 1, 150, &[1]);
            }
            Some(FileKind::Table(_)) => {
                let footer = bytes.len() - 80;
                let at = |field: usize| u32_at(bytes, footer + field).unwrap_or(0) as usize;
                seed(flags, 1, 30, &[1]);
                // The point index, and the properties.
                seed(flags, 1, at(24) + 2, &[1]);
                seed(flags, 1, at(36) + 10, &[1]);
                seed(flags ^ EVERYTHING, 1, footer + 20, &[1]);
            }
            Some(FileKind::Manifest(_)) => {
                seed(flags, 2, bytes.len() - 5, &[]);
                seed(flags | EVERYTHING, 0, 32, &[0; 8]);
            }
            _ => seed(flags, 0, 3, &[0; 8]),
        }
    }
    seeds.extend(changed_ends(&files));
    seeds
}

/// The newest segment of the log, cut at the end of each of its last records, and once in the middle of one; and with
/// the largest number in the last, where no manifest is.
fn changed_ends(files: &[(PathBuf, Vec<u8>)]) -> Vec<Vec<u8>> {
    let is_log = |bytes: &[u8]| u32_at(bytes, 12) == Some(1) && u32_at(bytes, 96) != Some(0);
    let segments = files.iter().enumerate().filter(|(_, (path, bytes))| {
        matches!(kind(path), Some(FileKind::Segment(_))) && is_log(bytes)
    });
    let Some((number, (_, bytes))) = segments.max_by_key(|(_, (path, _))| path) else {
        return Vec::new();
    };
    let ends = disk::record_ends(bytes);
    let last = ends.iter().rev().take(4).copied();
    let middle = ends.last().map(|end| end - 20);
    let cut = |at: usize| [&[0][..], &disk::change(number as u8, 2, at as u16, &[])].concat();
    let far = ends.iter().rev().nth(1).map(|last| {
        let change = disk::change(number as u8, 0, *last as u16 + 8, &SEQNO_USED_MAX.to_le_bytes());
        [&[CORRECTS | WITHOUT_MANIFEST | EVERYTHING][..], &change].concat()
    });
    last.chain(middle).map(cut).chain(far).collect()
}
