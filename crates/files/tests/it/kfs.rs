//! Tables that the npm package `kfs` wrote are taken over; `tests/fixtures` says what is in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ripemd::Ripemd160;
use sha1::{Digest, Sha1};
use tallybook::checksum;
use tallybook::vfs::MemoryFileSystem;
use tallybook_files::{
    Destination, Error, FileStore, ImportOptions, ImportReport, ListEntry, ListOptions,
    ReferenceId, Result, TableFile, WriteOptions, hex, import_kfs,
};

use crate::support::{REFERENCE, assert_reads, in_memory, is_long, small};

const NAMES: [&str; 7] = ["hello", "test", "exact", "tail", "partial", "gone", "old name"];
const KEY: &str = "108f07b8382412612c048d07d13f814118445ace";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/table.kfs")
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at >> 8) * 31 + seed) as u8).collect()
}

/// What the table holds, but for the file that is partial.
fn whole_files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        (KEY, pattern(7, 5000)),
        ("exact", pattern(3, 131_072)),
        ("hello", pattern(1, 1)),
        ("old name", pattern(9, 777)),
        ("tail", pattern(5, 50)),
        ("test", pattern(2, 262_244)),
    ]
}

fn import(store: &FileStore, table: &Path) -> ImportReport {
    let options = ImportOptions { names: NAMES.map(str::to_owned).to_vec() };
    store.import_kfs(table, &options, &mut |_, _| {}).unwrap()
}

fn new_store() -> FileStore {
    in_memory(&MemoryFileSystem::new(), small())
}

/// Every file under a directory.
fn files_under(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_under(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn copy_of_fixture() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for path in files_under(&fixture()) {
        let to = dir.path().join(path.strip_prefix(fixture()).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap();
    }
    dir
}

#[test]
fn a_table_is_imported_with_both_key_hashes_and_what_is_wrong_is_said() {
    let before: Vec<_> =
        files_under(&fixture()).into_iter().map(|p| (fs::read(&p).unwrap(), p)).collect();
    let store = new_store();
    let report = import(&store, &fixture());
    for (name, file) in whole_files() {
        assert_reads(&store, name, &file);
    }
    assert_eq!((report.imported, report.present), (6, 0));
    let problems: Vec<_> = report
        .problems
        .iter()
        .map(|problem| (problem.name.as_deref().unwrap(), problem.is_imported))
        .collect();
    assert_eq!(problems.len(), 2, "{:?}", report.problems);
    assert!(problems.contains(&("tail", true)) && problems.contains(&("partial", false)));
    assert!(store.stat("partial").unwrap().is_none() && store.stat("gone").unwrap().is_none());
    // The source is as it was.
    let after: Vec<_> =
        files_under(&fixture()).into_iter().map(|p| (fs::read(&p).unwrap(), p)).collect();
    assert!(before == after);
    // A second run has nothing to do.
    let again = import(&store, &fixture());
    assert_eq!((again.imported, again.present), (0, 6));
}

#[test]
fn without_names_files_are_imported_by_key_and_found_by_it() {
    let store = new_store();
    let report = store.import_kfs(&fixture(), &ImportOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!(report.imported, 6);
    assert_reads(&store, "5e52fee47e6b070565f74372468cdc699de89107", &pattern(2, 262_244));
    // The key of a name is the name of the key: both are in the same bucket.
    assert_eq!(
        store.bucket_of("test"),
        store.bucket_of("5e52fee47e6b070565f74372468cdc699de89107")
    );
}

#[test]
fn a_damaged_table_imports_only_what_is_whole() {
    let mut noticed = 0;
    let mut tried = 0;
    for (at, path) in files_under(&fixture()).into_iter().enumerate() {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "r.id" {
            continue;
        }
        let contents = fs::read(&path).unwrap();
        let steps = if is_long() { 400 } else { 12 };
        let stride = (contents.len() / steps).max(1);
        for offset in (at % stride.min(7)..contents.len()).step_by(stride) {
            let copy = copy_of_fixture();
            let target = copy.path().join(path.strip_prefix(fixture()).unwrap());
            let mut damaged = contents.clone();
            damaged[offset] ^= 0x20;
            fs::write(&target, damaged).unwrap();
            let store = new_store();
            let report = import(&store, copy.path());
            let page = store.list(ListOptions::default()).unwrap();
            let whole = whole_files();
            for entry in &page.entries {
                let place = format!("{} with byte {offset} flipped", path.display());
                let known = whole.iter().find(|(name, _)| *name == entry.name());
                let ListEntry::File(stat) = entry else { panic!("no delimiter was asked for") };
                let (name, file) = known.unwrap_or_else(|| panic!("{place}: {}", stat.name));
                assert_eq!(stat.size, file.len() as u64, "{place}: {name}");
                assert_reads(&store, name, file);
            }
            let is_whole = page.entries.len() == whole.len();
            let is_told = report.problems.iter().any(|problem| problem.name.is_none());
            assert!(is_whole || is_told, "{name} at {offset}: {report:?}");
            noticed += u32::from(!is_whole);
            tried += 1;
        }
    }
    assert!(noticed > tried / 3, "{noticed} of {tried} were noticed");
}

#[test]
fn a_lost_current_is_a_problem_and_no_empty_bucket() {
    let copy = copy_of_fixture();
    fs::remove_file(copy.path().join("243.s/CURRENT")).unwrap();
    let report = import(&new_store(), copy.path());
    assert_eq!(report.imported, 5);
    let problem = report.problems.iter().find(|problem| problem.bucket == 243).unwrap();
    assert!(problem.name.is_none() && problem.what.contains("CURRENT"), "{problem:?}");
}

/// What could not be looked at was taken for a bucket that there never was, and the import for a whole one.
#[test]
fn a_bucket_that_can_not_be_looked_at_is_a_problem_and_no_absent_one() {
    for target in ["243.s", "nowhere"] {
        let copy = copy_of_fixture();
        let dir = copy.path().join("243.s");
        fs::rename(&dir, copy.path().join("away")).unwrap();
        std::os::unix::fs::symlink(target, &dir).unwrap();
        let report = import(&new_store(), copy.path());
        assert_eq!(report.imported, 5);
        let problem = report.problems.iter().find(|problem| problem.bucket == 243);
        assert!(problem.is_some_and(|problem| problem.name.is_none()), "{target}: {report:?}");
    }
}

/// What had been written last was left out in silence, or an older file taken in its place.
#[test]
fn a_log_that_is_missing_is_damage() {
    let copy = copy_of_fixture();
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    let (mut fewer, mut buckets) = (0, Vec::new());
    for log in files_under(copy.path()).into_iter().filter(is_log) {
        let left = fs::read(&log).unwrap();
        fs::remove_file(&log).unwrap();
        let store = new_store();
        let report = import(&store, copy.path());
        let name = log.file_name().unwrap().to_str().unwrap();
        let told = |problem: &&tallybook_files::ImportProblem| {
            problem.name.is_none() && problem.what.contains(name)
        };
        let problem = report.problems.iter().find(told);
        buckets.push(problem.unwrap_or_else(|| panic!("{}: {report:?}", log.display())).bucket);
        fewer += u32::from(report.imported < 6);
        let page = store.list(ListOptions::default()).unwrap();
        for name in page.entries.iter().map(ListEntry::name) {
            let files = whole_files();
            let (_, file) = files.iter().find(|(known, _)| *known == name).unwrap();
            assert_reads(&store, name, file);
        }
        fs::write(&log, left).unwrap();
    }
    // Two have nothing but a file that was deleted, and one that is partial.
    assert_eq!((buckets, fewer), (vec![21, 33, 114, 189, 243, 249, 253], 5));
}

/// A store that something happens to just before each write.
struct Disturbed<'a> {
    store: &'a FileStore,
    disturb: &'a dyn Fn(&str),
}

impl Destination for Disturbed<'_> {
    type Error = Error;

    fn has(&self, name: &str) -> Result<bool> {
        self.store.has(name)
    }

    fn write(&self, name: &str, file: &mut TableFile<'_>) -> Result<bool> {
        (self.disturb)(name);
        Destination::write(self.store, name, file)
    }
}

fn import_disturbed(store: &FileStore, table: &Path, disturb: &dyn Fn(&str)) -> ImportReport {
    let options = ImportOptions { names: NAMES.map(str::to_owned).to_vec() };
    import_kfs(table, &options, &Disturbed { store, disturb }, &mut |_, _| {}).unwrap()
}

#[test]
fn a_table_that_is_damaged_while_it_is_imported_leaves_no_part_of_a_file() {
    let copy = copy_of_fixture();
    // Checked when its bucket was read, and again when it is written.
    let flip = |name: &str| {
        if name == "test" {
            let path = copy.path().join("243.s/000005.ldb");
            let damaged = fs::read(&path).unwrap().iter().map(|byte| !byte).collect::<Vec<_>>();
            fs::write(&path, damaged).unwrap();
        }
    };
    let store = new_store();
    let report = import_disturbed(&store, copy.path(), &flip);
    assert_eq!(report.imported, 5);
    assert!(store.stat("test").unwrap().is_none());
    let problem = report.problems.iter().find(|it| it.name.as_deref() == Some("test")).unwrap();
    assert!(!problem.is_imported && problem.what.contains("000005.ldb"), "{problem:?}");
}

#[test]
fn a_file_that_comes_from_elsewhere_during_an_import_is_left_alone() {
    let store = new_store();
    let come = |name: &str| {
        if name == "test" {
            store.write(name, b"mine", WriteOptions::default()).unwrap();
        }
    };
    let report = import_disturbed(&store, &fixture(), &come);
    assert_eq!((report.imported, report.present), (5, 1));
    assert_reads(&store, "test", b"mine");
}

#[test]
fn what_is_no_table_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = new_store().import_kfs(dir.path(), &ImportOptions::default(), &mut |_, _| {});
    assert!(matches!(refused, Err(Error::NotAStore { .. })));
}

/// A record of a log of LevelDB, all in one.
fn log_record(body: &[u8]) -> Vec<u8> {
    let checksum = checksum::crc32c_append(checksum::crc32c(&[1]), body);
    let masked = checksum.rotate_left(17).wrapping_add(0xa282_ead8);
    let len = u16::try_from(body.len()).unwrap();
    [&masked.to_le_bytes()[..], &len.to_le_bytes(), &[1], body].concat()
}

/// A table whose files, by key, have one short chunk each.
fn small_table(files: &[(String, &str)]) -> tempfile::TempDir {
    let table = tempfile::tempdir().unwrap();
    let id = ReferenceId::from_hex(REFERENCE).unwrap();
    fs::write(table.path().join("r.id"), id.0).unwrap();
    let mut buckets: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    for (key, file) in files {
        let bytes = |bytes: &[u8]| [&[bytes.len() as u8], bytes].concat();
        let put = [&[1][..], &bytes(format!("{key} 000000").as_bytes()), &bytes(file.as_bytes())];
        buckets.entry(id.bucket_of(key, 256)).or_default().extend(put.concat());
    }
    for (bucket, puts) in buckets {
        let dir = table.path().join(format!("{bucket:03}.s"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("CURRENT"), "MANIFEST-000001\n").unwrap();
        // The number of the log.
        fs::write(dir.join("MANIFEST-000001"), log_record(&[2, 3])).unwrap();
        let count = files.iter().filter(|(key, _)| id.bucket_of(key, 256) == bucket).count();
        let batch = [&1_u64.to_le_bytes()[..], &(count as u32).to_le_bytes(), &puts].concat();
        fs::write(dir.join("000003.log"), log_record(&batch)).unwrap();
    }
    table
}

/// KFS 3.1.5 hashes names by RIPEMD-160 and leaves what is there under their SHA-1. Of a name with both
/// files the one whose bucket has the lower number got it, the older one as likely as not; the other counted as
/// present.
#[test]
fn of_two_files_of_a_name_the_older_one_does_not_get_it() {
    let id = ReferenceId::from_hex(REFERENCE).unwrap();
    let older = |name: &str| hex(&Sha1::digest(name.as_bytes()));
    let current = |name: &str| hex(&Ripemd160::digest(name.as_bytes()));
    let buckets = |name: &str| (id.bucket_of(&older(name), 256), id.bucket_of(&current(name), 256));
    let names: Vec<String> = (0..2000).map(|number| format!("name {number}")).collect();
    let find = |holds: fn((u8, u8)) -> bool, which: usize| {
        names.iter().filter(|name| holds(buckets(name))).nth(which).unwrap().clone()
    };
    let (before, after) = (|(older, current)| older < current, |(older, current)| older > current);
    let both = [find(before, 0), find(after, 0), find(|(older, current)| older == current, 0)];
    let alone = [find(before, 1), find(after, 1)];
    let mut files: Vec<(String, &str)> = Vec::new();
    for name in &both {
        files.extend([(older(name), "older"), (current(name), "current")]);
    }
    files.extend(alone.iter().map(|name| (older(name), "alone")));
    let table = small_table(&files);
    let import = |store: &FileStore| {
        let options = ImportOptions { names: names.clone() };
        let mut last = (0, 0);
        let progress = &mut |done, all| last = (done, all);
        let report = store.import_kfs(table.path(), &options, progress).unwrap();
        assert!(last.0 == last.1 && last.1 >= 256, "{last:?}");
        report
    };
    let store = new_store();
    let report = import(&store);
    for name in &both {
        assert_reads(&store, name, b"current");
        assert_reads(&store, &older(name), b"older");
        let is_told = |key: &str| {
            let mut problems = report.problems.iter();
            problems.any(|it| it.name.as_deref() == Some(key) && it.is_imported)
        };
        assert!(is_told(&older(name)) && !is_told(name), "{report:?}");
    }
    alone.iter().for_each(|name| assert_reads(&store, name, b"alone"));
    assert_eq!((report.imported, report.present, report.problems.len()), (8, 0, 3));
    let again = import(&store);
    assert_eq!((again.imported, again.present, again.problems.len()), (0, 8, 0));

    // Of a bucket that can't be read nobody knows what it has.
    let (lost, kept) = (&both[0], &both[1]);
    let dir = table.path().join(format!("{:03}.s", buckets(lost).1));
    fs::remove_file(dir.join("CURRENT")).unwrap();
    let store = new_store();
    import(&store);
    assert!(store.stat(lost).unwrap().is_none());
    assert_reads(&store, &older(lost), b"older");
    assert_reads(&store, kept, b"current");
}
