//! Verbs on an embedded store: each test's steps are processes of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::binary::{Dir, run, tallybook, unread};

#[test]
fn value_is_read_back_byte_for_byte_by_another_process() {
    let dir = Dir::new();
    let every_byte: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    dir.verb_reading(&["put", "large", "-"], &every_byte).success();
    dir.verb(&["put", "small", "one value"]).success();
    dir.verb(&["put", "empty", ""]).success();
    assert_eq!(dir.verb(&["get", "large"]).success().stdout, every_byte);
    assert_eq!(dir.verb(&["get", "small"]).success().stdout, b"one value");
    assert_eq!(dir.verb(&["get", "empty"]).success().stdout, b"");
}

#[test]
fn value_comes_from_a_file_or_from_standard_input() {
    let dir = Dir::new();
    let file = dir.beside("value");
    fs::write(&file, b"from a file\n").unwrap();
    dir.verb(&["put", "file", "--file", file.to_str().unwrap()]).success();
    dir.verb_reading(&["put", "input"], b"from standard input\n").success();
    assert_eq!(dir.verb(&["get", "file"]).success().stdout, b"from a file\n");
    assert_eq!(dir.verb(&["get", "input"]).success().stdout, b"from standard input\n");
    dir.verb(&["put", "file", "--file", "/no/such/file"]).failure(1, "/no/such/file");
}

#[test]
fn absent_and_deleted_keys_exit_3() {
    let dir = Dir::new();
    dir.verb(&["put", "key", "value"]).success();
    for verb in ["get", "head"] {
        let absent = dir.verb(&[verb, "other"]).failure(3, "other");
        assert_eq!(absent.stdout, b"");
    }
    dir.verb(&["delete", "key"]).success();
    dir.verb(&["get", "key"]).failure(3, "key");
    dir.verb(&["delete", "key"]).success();
}

/// What is said besides couldn't be said, which was a panic and exit code 101.
#[test]
fn exit_codes_hold_where_nobody_reads_what_is_said() {
    let dir = Dir::new();
    dir.verb(&["put", "key", "value"]).success();
    for (arguments, code) in [
        (&["get", "other"][..], 3),
        (&["head", "other"], 3),
        (&["get", ""], 2),
        (&["put", "key", "another", "--if-absent"], 6),
        (&["get", "key"], 0),
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        for stderr in [unread(), full.into()] {
            let mut command = tallybook();
            command.args(arguments).arg("--data").arg(dir.data()).stderr(stderr);
            assert_eq!(run(&mut command).code, Some(code), "{arguments:?}");
        }
    }
}

#[test]
fn head_tells_all_but_the_value() {
    let dir = Dir::new();
    let put = dir.verb(&[
        "put",
        "key",
        "123456789",
        "--ttl",
        "1h",
        "--attributes",
        "text/plain",
        "--json",
    ]);
    let version = put.success().json()["version"].clone();
    let head = dir.verb(&["head", "key", "--json"]).success().json();
    assert_eq!(head["key"], "a2V5");
    assert_eq!(head["version"], version);
    assert_eq!(head["length"], 9);
    // The check value of CRC-32C.
    assert_eq!(head["checksum"], "e3069283");
    assert_eq!(head["attributes"], "dGV4dC9wbGFpbg==");
    let lifetime_ms = head["expires_at"].as_u64().unwrap() - head["written_at"].as_u64().unwrap();
    assert!((3_500_000..3_700_000).contains(&lifetime_ms), "{lifetime_ms}");
    assert!(head.get("value").is_none());
    let text = dir.verb(&["head", "key"]).success();
    for part in ["version ", "length      9\n", "e3069283", "expires at", "text/plain"] {
        assert!(text.text().contains(part), "{part} in {}", text.text());
    }
}

#[test]
fn conditional_writes_exit_6_when_their_condition_fails() {
    let dir = Dir::new();
    let put = dir.verb(&["put", "key", "one", "--if-absent", "--json"]).success();
    let version = put.json()["version"].to_string();
    dir.verb(&["put", "key", "two", "--if-absent"]).failure(6, "condition");
    dir.verb(&["put", "key", "two", "--if-version", &version]).success();
    dir.verb(&["put", "key", "three", "--if-version", &version]).failure(6, "condition");
    dir.verb(&["delete", "key", "--if-version", &version]).failure(6, "condition");
    assert_eq!(dir.verb(&["get", "key"]).success().stdout, b"two");
}

#[test]
fn every_durability_level_survives_the_process() {
    let dir = Dir::new();
    for level in ["os", "interval", "interval:5", "sync"] {
        dir.verb(&["put", level, "value", "--durability", level]).success();
    }
    let scan = dir.verb(&["scan"]).success();
    assert_eq!(scan.text(), "interval\tvalue\ninterval:5\tvalue\nos\tvalue\nsync\tvalue\n");
}

#[test]
fn scan_bounds_prefix_limit_and_order() {
    let dir = Dir::new();
    for key in ["a1", "a2", "b1", "b2", "c1"] {
        dir.verb(&["put", key, "v"]).success();
    }
    let keys = |arguments: &[&str]| {
        let scan = dir.verb(&[&["scan"], arguments].concat()).success();
        let lines = scan.text().lines().map(|line| line.split('\t').next().unwrap());
        lines.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(&[]), "a1 a2 b1 b2 c1");
    assert_eq!(keys(&["--start", "a2", "--end", "c1"]), "a2 b1 b2");
    assert_eq!(keys(&["--prefix", "b"]), "b1 b2");
    assert_eq!(keys(&["--prefix", "b", "--start", "b2"]), "b2");
    assert_eq!(keys(&["--reverse"]), "c1 b2 b1 a2 a1");
    assert_eq!(keys(&["--reverse", "--limit", "2"]), "c1 b2");
    assert_eq!(keys(&["--limit", "0"]), "");
    assert_eq!(keys(&["--prefix", "d"]), "");
}

#[test]
fn scan_formats() {
    let dir = Dir::new();
    dir.verb_reading(&["put", "--key-encoding", "hex", "6b0aff", "-"], b"a\tb\xff").success();
    let scan = |arguments: &[&str]| dir.verb(&[&["scan"], arguments].concat()).success();
    assert_eq!(scan(&[]).text(), "k\\n\\xff\ta\\tb\\xff\n");
    assert_eq!(scan(&["--key-encoding", "hex"]).text(), "6b0aff\ta\\tb\\xff\n");
    assert_eq!(scan(&["--key-encoding", "base64"]).text(), "awr/\ta\\tb\\xff\n");
    assert_eq!(scan(&["--format", "raw"]).stdout, b"k\n\xff\na\tb\xff\n");
    let entry = scan(&["--json"]).json();
    assert_eq!(entry["key"], "awr/");
    assert_eq!(entry["value"], "YQli/w==");
    assert_eq!(entry["length"], 4);
    let head = scan(&["--heads", "--format", "ndjson"]).json();
    assert_eq!(head["key"], "awr/");
    assert!(head.get("value").is_none());
    assert!(scan(&["--heads"]).text().contains("length=4"));
}

#[test]
fn get_as_json_holds_value_and_head() {
    let dir = Dir::new();
    dir.verb(&["put", "key", "value"]).success();
    let entry = dir.verb(&["get", "key", "--json"]).success().json();
    assert_eq!(entry["value"], "dmFsdWU=");
    assert_eq!(entry["length"], 5);
}

#[test]
fn reading_makes_no_store() {
    let dir = Dir::new();
    for arguments in [&["get", "key"][..], &["scan"], &["stats"], &["verify"], &["compact"]] {
        dir.verb(arguments).failure(1, "no data directory");
        assert!(!dir.data().exists());
    }
}

#[test]
fn new_store_belongs_to_its_owner_alone() {
    let dir = Dir::new();
    dir.verb(&["put", "key", "value"]).success();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.data()), 0o700);
    fs::set_permissions(dir.data(), fs::Permissions::from_mode(0o777)).unwrap();
    dir.verb(&["get", "key"]).failure(1, "chmod go-w");
}

#[test]
fn keys_out_of_range_and_malformed_keys_exit_2() {
    let dir = Dir::new();
    dir.verb(&["put", "key", "value"]).success();
    dir.verb(&["put", "", "value"]).failure(2, "key");
    dir.verb(&["get", &"k".repeat(5000)]).failure(2, "key");
    dir.verb(&["get", "--key-encoding", "hex", "xyz"]).failure(2, "hexadecimal");
    dir.verb(&["get", "--key-encoding", "base64", "?"]).failure(2, "base64");
}

#[test]
fn data_directory_can_be_named_by_the_environment() {
    let dir = Dir::new();
    dir.verb(&["put", "key", "value"]).success();
    let get = run(tallybook().args(["get", "key"]).env("TALLYBOOK_DATA", dir.data())).success();
    assert_eq!(get.stdout, b"value");
}

#[test]
fn stats_count_what_was_written() {
    let dir = Dir::new();
    let put = dir.verb(&["put", "key", "value", "--json"]).success().json();
    let stats = dir.verb(&["stats", "--json"]).success().json();
    assert_eq!(stats["last_seqno"], put["version"]);
    assert_eq!(stats["torn_bytes"], json!(0));
    assert_eq!(stats["levels"].as_array().map(Vec::len), Some(7));
    assert!(dir.verb(&["stats"]).success().text().contains("last seqno"));
}
