//! `tallybook files`: an embedded file store from the command line.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::binary::{Dir, Outcome, bytes, run, tallybook, unread};

fn files(dir: &Dir, arguments: &[&str]) -> Outcome {
    dir.verb(&[&["files"], arguments].concat())
}

fn path(dir: &Dir, name: &str) -> String {
    dir.beside(name).to_str().unwrap().to_owned()
}

#[test]
fn a_file_goes_in_from_a_path_and_comes_out_whole() {
    let dir = Dir::new();
    let (source, target) = (path(&dir, "source"), path(&dir, "target"));
    let contents = bytes(300_000);
    fs::write(&source, &contents).unwrap();
    let written = files(&dir, &["write", "a/b", &source, "--json", "--md5"]).success().json();
    assert_eq!(written["size"], contents.len());
    assert_eq!(written["md5"].as_str().map(str::len), Some(32));
    files(&dir, &["read", "a/b", &target]).success();
    assert!(fs::read(&target).unwrap() == contents);
    assert!(files(&dir, &["read", "a/b"]).success().stdout == contents);
    let part = files(&dir, &["read", "a/b", "--range", "131070-131080"]).success();
    assert!(part.stdout == contents[131_070..=131_080]);
    let part = files(&dir, &["read", "a/b", "--range", "-5"]).success();
    assert!(part.stdout == contents[contents.len() - 5..]);
}

/// A file that only its owner might read came out readable by all, a link became a file, and who put a link
/// where the read puts the file together had the bytes written to what that leads to.
#[test]
fn a_file_that_is_replaced_keeps_its_permissions_and_links_to_it() {
    let dir = Dir::new();
    let contents = bytes(100_000);
    let (source, target, link) = (path(&dir, "source"), path(&dir, "target"), path(&dir, "link"));
    fs::write(&source, &contents).unwrap();
    files(&dir, &["write", "file", &source]).success();
    fs::write(&target, "before").unwrap();
    fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
    symlink("target", &link).unwrap();
    let bystander = path(&dir, "bystander");
    fs::write(&bystander, "mine").unwrap();
    // Numbers of processes that may come next.
    for number in std::process::id()..std::process::id() + 200 {
        symlink(&bystander, path(&dir, &format!(".tallybook-partial.{number}.0"))).unwrap();
    }
    for to in [&target, &link] {
        files(&dir, &["read", "file", to]).success();
        assert!(fs::read(&target).unwrap() == contents);
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&bystander).unwrap(), b"mine");
        fs::write(&target, "before").unwrap();
    }
    let nowhere = path(&dir, "nowhere");
    symlink("no such file", &nowhere).unwrap();
    files(&dir, &["read", "file", &nowhere]).failure(1, "leads nowhere");
}

/// The file that standard output goes to was replaced, and what others had written to it was gone.
#[test]
fn standard_output_by_its_name_is_standard_output() {
    let dir = Dir::new();
    dir.verb_reading(&["files", "write", "file"], b" and after").success();
    let log = path(&dir, "log");
    fs::write(&log, "before").unwrap();
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let out = fs::File::options().append(true).open(&log).unwrap();
        let mut read = tallybook();
        read.args(["files", "read", "file", name, "--data"]).arg(dir.data()).stdout(out);
        assert!(read.status().unwrap().success());
    }
    let expected = format!("before{}", " and after".repeat(3));
    assert_eq!(fs::read_to_string(&log).unwrap(), expected);
}

#[test]
fn a_pipe_may_be_written_and_an_empty_file_exists() {
    let dir = Dir::new();
    dir.verb_reading(&["files", "write", "piped", "-"], b"from a pipe").success();
    dir.verb_reading(&["files", "write", "empty"], b"").success();
    assert_eq!(files(&dir, &["read", "piped"]).success().stdout, b"from a pipe");
    assert_eq!(files(&dir, &["read", "empty"]).success().stdout, b"");
}

#[test]
fn a_missing_name_has_an_exit_code_of_its_own() {
    let dir = Dir::new();
    files(&dir, &["create", "--buckets", "4"]).success();
    for arguments in [
        &["read", "nothing"][..],
        &["stat", "nothing"],
        &["unlink", "nothing"],
        &["rename", "nothing", "x"],
        &["copy", "nothing", "x"],
        &["read", "nothing", "--range", "0-1"],
    ] {
        files(&dir, arguments).failure(3, "there is no file \"nothing\"");
    }
    files(&dir, &["create"]).failure(2, "already");
    let elsewhere = Dir::new();
    files(&elsewhere, &["list"]).failure(1, "no data directory");
}

#[test]
fn conditions_and_full_buckets_have_exit_codes_of_their_own() {
    let dir = Dir::new();
    files(&dir, &["create", "--buckets", "1", "--bucket-cap", "128KiB", "--chunk", "64KiB"])
        .success();
    let large = path(&dir, "large");
    fs::write(&large, bytes(40_000)).unwrap();
    files(&dir, &["write", "x", &large]).failure(7, "is full: 160000 bytes don't fit");
    dir.verb_reading(&["files", "write", "x"], b"1").success();
    dir.verb_reading(&["files", "write", "x", "--if-absent"], b"2").failure(6, "condition failed");
    files(&dir, &["unlink", "x", "--if-version", "1"]).failure(6, "condition failed");
}

#[test]
fn names_are_listed_renamed_copied_and_counted() {
    let dir = Dir::new();
    for name in ["a", "dir/1", "dir/2"] {
        dir.verb_reading(&["files", "write", name], name.as_bytes()).success();
    }
    files(&dir, &["rename", "a", "dir/3"]).success();
    files(&dir, &["copy", "dir/1", "dir/1 again"]).success();
    files(&dir, &["unlink", "dir/2"]).success();
    let listed = files(&dir, &["list", "--json"]).success();
    let names: Vec<serde_json::Value> = listed
        .text()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["name"].clone())
        .collect();
    assert_eq!(names, ["dir/1", "dir/1 again", "dir/3"]);
    let rolled = files(&dir, &["list", "--delimiter", "/"]).success();
    assert_eq!(rolled.text().trim_end().rsplit(' ').next(), Some("dir/"));
    let totals = files(&dir, &["totals", "--json"]).success().json();
    assert_eq!((&totals["files"], &totals["live_bytes"]), (&3.into(), &6.into()));
    assert_eq!(totals["dead_bytes"], 0);
    let text = files(&dir, &["totals"]).success();
    assert!(text.text().contains("files         3\n"), "{}", text.text());
    let stat = files(&dir, &["stat", "dir/3"]).success();
    assert!(stat.text().contains("size        1\n"), "{}", stat.text());
}

#[test]
fn damage_exits_5_and_a_lost_catalogue_is_repaired() {
    let dir = Dir::new();
    let source = path(&dir, "source");
    fs::write(&source, bytes(1000)).unwrap();
    files(&dir, &["write", "file", &source]).success();
    assert!(files(&dir, &["verify"]).success().text().ends_with("no damage\n"));
    fs::remove_dir_all(dir.data().join("catalogue-000001")).unwrap();
    files(&dir, &["read", "file"]).failure(5, "repair makes it anew");
    let repaired = files(&dir, &["repair"]).success();
    assert!(repaired.text().contains("the catalogue was made anew"), "{}", repaired.text());
    assert!(files(&dir, &["read", "file"]).success().stdout == bytes(1000));

    fs::remove_dir_all(dir.data().join("buckets")).unwrap();
    let target = path(&dir, "target");
    files(&dir, &["read", "file", &target]).failure(5, "damaged at byte 0");
    assert!(!fs::exists(&target).unwrap());
    let verified = files(&dir, &["verify", "--json"]);
    assert_eq!(verified.code, Some(5));
    assert_eq!(verified.json()["damage"][0]["name"], "file");
    assert_eq!(files(&dir, &["repair", "--unlink-damaged"]).code, Some(5));
    files(&dir, &["read", "file"]).failure(3, "there is no file");
    assert!(files(&dir, &["verify"]).success().text().ends_with("no damage\n"));
}

/// Where nobody read its report, a repair that had ended half-way was told of as one that is done.
#[test]
fn a_repair_that_does_not_come_to_its_end_says_so_whoever_reads() {
    let dir = Dir::new();
    dir.verb_reading(&["files", "write", "file"], b"file").success();
    fs::remove_dir_all(dir.data().join("catalogue-000001")).unwrap();
    // In the way of the second copy of the description.
    let in_the_way = dir.data().join("STORE.tmp");
    fs::create_dir(&in_the_way).unwrap();
    let mut repair = tallybook();
    repair.args(["files", "repair", "--data"]).arg(dir.data()).stdout(unread());
    run(&mut repair).failure(1, "another is needed: cannot remove");
    fs::remove_dir(&in_the_way).unwrap();
    files(&dir, &["repair"]).success();
    assert_eq!(files(&dir, &["read", "file"]).success().stdout, b"file");
}

/// Its report couldn't be printed: what had been made anew was told nowhere, and nobody said that it wasn't.
#[test]
fn a_repair_that_does_not_come_to_its_end_says_that_its_report_was_not_printed() {
    let dir = Dir::new();
    dir.verb_reading(&["files", "write", "file"], b"file").success();
    fs::remove_dir_all(dir.data().join("catalogue-000001")).unwrap();
    fs::create_dir(dir.data().join("STORE.tmp")).unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut repair = tallybook();
    repair.args(["files", "repair", "--data"]).arg(dir.data()).stdout(full);
    let ended = run(&mut repair).failure(1, "another is needed: cannot remove");
    ended.failure(1, "No space left on device");
}

/// Nobody was told, and the store was one fault from being lost.
#[test]
fn a_damaged_description_is_told_of_once_and_put_right() {
    let dir = Dir::new();
    files(&dir, &["create"]).success();
    fs::write(dir.data().join("STORE.copy"), "damaged").unwrap();
    let told = files(&dir, &["list"]).success();
    assert!(told.stderr.contains("STORE.copy: it is damaged; it was written anew"), "{told:?}");
    fs::remove_file(dir.data().join("STORE")).unwrap();
    let told = files(&dir, &["list"]).success();
    assert!(told.stderr.contains("STORE: it is missing"), "{told:?}");
    assert_eq!(files(&dir, &["list"]).success().stderr, "");
}

#[test]
fn a_kfs_table_is_imported_and_again_without_harm() {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../files/tests/fixtures/table.kfs");
    let dir = Dir::new();
    let names = path(&dir, "names");
    fs::write(&names, "hello\ntest\ntail\n").unwrap();
    let report = files(&dir, &["import-kfs", table, "--names", &names, "--json"]);
    // One file of the table is partial.
    assert_eq!(report.code, Some(5), "{report:?}");
    assert_eq!(report.json()["imported"], 6);
    assert_eq!(files(&dir, &["read", "hello"]).success().stdout, [1]);
    let again = files(&dir, &["import-kfs", table, "--names", &names]);
    assert!(again.text().starts_with("imported 0 files"), "{}", again.text());
    assert!(again.text().contains("6 were there already"), "{}", again.text());
    files(&dir, &["import-kfs", &names]).failure(1, "r.id cannot be read");
}
