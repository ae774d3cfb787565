//! Verbs for whoever looks after a store: verify, inspect, checkpoint, compact.

use std::fs;
use std::path::PathBuf;

use tallybook::file_name::{self, FileKind};

use crate::binary::{Dir, run, tallybook, verb_on};

/// A store with small and large values, some of them overwritten and deleted.
fn filled() -> Dir {
    let dir = Dir::new();
    for key in ["a", "b", "c"] {
        dir.verb_reading(&["put", key, "-"], &key.repeat(20_000).into_bytes()).success();
        dir.verb(&["put", &format!("{key}/small"), "value"]).success();
    }
    dir.verb(&["put", "a/small", "another"]).success();
    dir.verb(&["delete", "b"]).success();
    dir
}

fn files(dir: &Dir) -> Vec<(PathBuf, FileKind)> {
    let kind = |path: &PathBuf| file_name::parse(path.file_name()?.to_str()?);
    let paths = fs::read_dir(dir.data()).unwrap().map(|entry| entry.unwrap().path());
    paths.filter_map(|path| kind(&path).map(|kind| (path, kind))).collect()
}

#[test]
fn verify_finds_nothing_wrong_with_a_sound_store() {
    let dir = filled();
    let text = dir.verb(&["verify"]).success();
    assert!(text.text().ends_with("no damage\n"), "{}", text.text());
    // Standard error is no terminal here, so no progress is drawn on it.
    assert_eq!(text.stderr, "");
    let report = dir.verb(&["verify", "--json"]).success().json();
    assert_eq!(report["damage"].as_array().map(Vec::len), Some(0));
    assert!(report["segments"].as_u64().unwrap() > 0);
}

#[test]
fn flipped_byte_in_a_value_exits_5_and_never_reads_as_a_value() {
    let dir = filled();
    dir.verb(&["compact"]).success();
    let marker = "c".repeat(64).into_bytes();
    let mut flipped = 0;
    for (path, _) in files(&dir) {
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(marker.len()).position(|window| window == marker) {
            bytes[at + 32] ^= 1;
            fs::write(&path, bytes).unwrap();
            flipped += 1;
        }
    }
    assert!(flipped > 0, "the value stands in some file");
    let verify = dir.verb(&["verify"]);
    assert_eq!(verify.code, Some(5), "{verify:?}");
    let get = dir.verb(&["get", "c"]);
    assert_eq!(get.code, Some(5), "{get:?}");
    assert_eq!(get.stdout, b"");
}

#[test]
fn inspect_lists_a_directory() {
    let dir = filled();
    fs::write(dir.data().join("foreign\x1b.txt"), "x").unwrap();
    let list = run(tallybook().arg("inspect").arg(dir.data())).success();
    for part in ["segment", ".journal", "CURRENT", "lock", "foreign\\u{1b}.txt"] {
        assert!(list.text().contains(part), "{part} in {}", list.text());
    }
    let json = run(tallybook().args(["inspect", "--json"]).arg(dir.data())).success().json();
    let listed = json.as_array().unwrap();
    assert_eq!(listed.len(), fs::read_dir(dir.data()).unwrap().count());
    let segment = listed.iter().find(|file| file["what"] == "segment").unwrap();
    assert!(segment["bytes"].as_u64().unwrap() > 0);
}

#[test]
fn inspect_prints_every_kind_of_file_as_text() {
    let dir = filled();
    dir.verb(&["compact"]).success();
    let mut kinds = [false; 3];
    for (path, kind) in files(&dir) {
        let place = match kind {
            FileKind::Segment(_) => 0,
            FileKind::Table(_) => 1,
            FileKind::Manifest(_) => 2,
            _ => continue,
        };
        let text = run(tallybook().arg("inspect").arg(&path)).success();
        assert!(!text.text().is_empty(), "{path:?}");
        kinds[place] = true;
    }
    assert_eq!(kinds, [true; 3], "a compacted store has segments, tables and a manifest");
}

/// Damage was told of in the middle of a long text, and a script that asked for the code saw none.
#[test]
fn inspect_of_a_damaged_block_shows_the_others_and_exits_5() {
    let dir = Dir::new();
    // Of several blocks, in each of which a value is found by its letters.
    for key in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        dir.verb(&["put", key, &key.repeat(1000)]).success();
    }
    dir.verb(&["compact"]).success();
    let of_table = |(path, kind)| matches!(kind, FileKind::Table(_)).then_some(path);
    let path: PathBuf = files(&dir).into_iter().find_map(of_table).expect("there is a table");
    let sound = run(tallybook().arg("inspect").arg(&path)).success();
    let mut table = fs::read(&path).unwrap();
    let at = table.windows(64).position(|window| window == [b'a'; 64]).expect("a value is found");
    table[at] ^= 1;
    fs::write(&path, table).unwrap();
    let damaged = run(tallybook().arg("inspect").arg(&path)).failure(5, "damaged places");
    assert!(damaged.text().contains("block 0 at 0 stored "), "{}", damaged.text());
    let last = sound.text().lines().last().unwrap();
    assert!(last.contains("\"j\"") && damaged.text().ends_with(&format!("{last}\n")), "{last}");
}

/// A segment of the journal, and where its last group is.
fn last_group(dir: &Dir) -> (PathBuf, usize) {
    let of_journal = |(path, kind)| matches!(kind, FileKind::Segment(_)).then_some(path);
    let path: PathBuf = files(dir).into_iter().find_map(of_journal).expect("there is a journal");
    let text = run(tallybook().arg("inspect").arg(&path)).success();
    let last = text.text().lines().rfind(|line| line.contains(" group ")).expect("a record");
    let offset = last.split(' ').next().unwrap().parse().unwrap();
    (path, offset)
}

/// The end of a journal that is being written, or was when the power went, is torn.
#[test]
fn inspect_of_a_torn_journal_exits_0() {
    let dir = filled();
    let (path, offset) = last_group(&dir);
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(offset + 10);
    fs::write(&path, bytes).unwrap();
    run(tallybook().arg("inspect").arg(&path)).success();
}

/// What stands behind proves that the disk had it: this is no torn end.
#[test]
fn inspect_of_a_damaged_journal_shows_the_rest_and_exits_5() {
    let dir = filled();
    let (path, offset) = last_group(&dir);
    let mut bytes = fs::read(&path).unwrap();
    bytes[offset + 9] ^= 1;
    fs::write(&path, bytes).unwrap();
    let damaged = run(tallybook().arg("inspect").arg(&path)).failure(5, "damaged places");
    assert!(damaged.text().contains(&format!("{offset} damaged: ")), "{}", damaged.text());
    assert!(damaged.text().contains(" mark "), "{}", damaged.text());
}

#[test]
fn inspect_refuses_what_is_no_file_of_a_store() {
    let dir = Dir::new();
    run(tallybook().arg("inspect").arg(dir.beside("missing"))).failure(1, "missing");
    let foreign = dir.beside("foreign.txt");
    fs::write(&foreign, "not a store's").unwrap();
    let inspect = run(tallybook().arg("inspect").arg(&foreign));
    assert_ne!(inspect.code, Some(0), "{inspect:?}");
}

#[test]
fn checkpoint_is_a_store_of_its_own() {
    let dir = filled();
    let copy = dir.beside("copy");
    dir.verb(&["checkpoint", copy.to_str().unwrap()]).success();
    dir.verb(&["put", "a/small", "written later"]).success();
    dir.verb(&["delete", "c"]).success();
    assert_eq!(verb_on(&copy, &["get", "a/small"]).success().stdout, b"another");
    assert_eq!(verb_on(&copy, &["get", "c"]).success().stdout, "c".repeat(20_000).as_bytes());
    verb_on(&copy, &["get", "b"]).failure(3, "b");
    verb_on(&copy, &["verify"]).success();
    let again = dir.verb(&["checkpoint", copy.to_str().unwrap()]);
    assert_ne!(again.code, Some(0), "a directory that is there is not overwritten");
}

#[test]
fn compaction_changes_no_answer() {
    let dir = filled();
    let before = dir.verb(&["scan", "--json"]).success().stdout;
    dir.verb(&["compact"]).success();
    assert_eq!(dir.verb(&["scan", "--json"]).success().stdout, before);
    dir.verb(&["verify"]).success();
}

#[test]
fn salvage_saves_what_is_whole_of_a_store_that_does_not_open() {
    let dir = filled();
    dir.verb(&["compact"]).success();
    let new = dir.data().with_file_name("new");
    let salvage = |arguments: &[&str]| {
        run(tallybook().args(["salvage", "--data"]).arg(dir.data()).arg(&new).args(arguments))
    };
    let whole = salvage(&["--json"]).success().json();
    assert_eq!((&whole["keys"], &whole["doubtful"]), (&5.into(), &0.into()));
    assert_eq!(salvage(&[]).code, Some(2), "it is there already");
    fs::remove_dir_all(&new).unwrap();
    // The footer of each table.
    for (path, _) in files(&dir).iter().filter(|(_, kind)| matches!(kind, FileKind::Table(_))) {
        let mut bytes = fs::read(path).unwrap();
        let at = bytes.len() - 20;
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(dir.verb(&["get", "a"]).code, Some(5));
    let text = salvage(&["--everything"]);
    assert_eq!(text.code, Some(5));
    for part in ["damaged: ", "lost are writes to keys from", "in doubt: a: ", "saved "] {
        assert!(text.text().contains(part), "{part} in {}", text.text());
    }
    let get = run(tallybook().args(["get", "a", "--data"]).arg(&new)).success();
    assert_eq!(get.stdout, b"a".repeat(20_000));
}
