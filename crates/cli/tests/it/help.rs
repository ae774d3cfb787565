//! What the binary says about itself.

use std::io::Read;
use std::process::Stdio;

use crate::binary::{Dir, run, tallybook};

#[test]
fn help_names_every_command_and_every_exit_code() {
    let help = run(tallybook().arg("--help")).success();
    for command in [
        "serve",
        "get",
        "put",
        "head",
        "delete",
        "scan",
        "stages",
        "stats",
        "inspect",
        "verify",
        "salvage",
        "checkpoint",
        "compact",
        "files",
        "lab",
        "completions",
        "man",
    ] {
        assert!(help.text().contains(&format!("\n  {command} ")), "{command}");
        let own_help = run(tallybook().args([command, "--help"])).success();
        assert!(own_help.text().contains("Usage: tallybook"), "{command}");
    }
    for meaning in [
        "0  success",
        "1  failure",
        "2  usage",
        "3  the key was not found",
        "4  the store is open",
        "5  corruption",
        "6  the condition",
        "7  the file store",
    ] {
        assert!(help.text().contains(meaning), "{meaning}");
    }
}

#[test]
fn help_of_serve_names_settings_and_their_defaults() {
    let help = run(tallybook().args(["serve", "--help"])).success();
    for text in [
        "--listen",
        "127.0.0.1:8080",
        "--admin",
        "127.0.0.1:9080",
        "--data",
        "./tallybook-data",
        "--config",
        "--threads",
        "--flush-threads",
        "--durability",
        "--reading",
        "pread",
        "--inline-max-bytes",
        "--memtable-bytes",
        "--write-buffer-bytes",
        "--block-cache-bytes",
        "--log-interval-secs",
        "--allowed-hosts",
        "TALLYBOOK_",
    ] {
        assert!(help.text().contains(text), "{text}");
    }
}

#[test]
fn version_is_printed() {
    let version = run(tallybook().arg("--version")).success();
    assert_eq!(version.text(), concat!("tallybook ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_usage_exits_2() {
    for arguments in [
        &[][..],
        &["no-such-command"],
        &["get"],
        &["get", "key", "--no-such-flag"],
        &["put", "key", "value", "--file", "x"],
        &["put", "key", "value", "--ttl", "soon"],
        &["put", "key", "value", "--durability", "maybe"],
        &["put", "key", "value", "--if-absent", "--if-version", "1"],
        &["serve", "--listen", "nowhere"],
        &["serve", "--log-interval-secs", "often"],
        &["stages", "https://127.0.0.1:9080"],
        &["stages", "http://127.0.0.1:9080/stages"],
        &["stages", "--watch=0"],
        &["stages", "--json", "--interval"],
        &["serve", "--memtable-bytes", "many"],
    ] {
        assert_eq!(run(tallybook().args(arguments)).code, Some(2), "{arguments:?}");
    }
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(tallybook().args(["completions", shell])).success();
        assert!(script.text().contains("checkpoint"), "{shell}");
    }
}

#[test]
fn manual_pages_are_printed_or_written() {
    let page = run(tallybook().arg("man")).success();
    assert!(page.text().contains(".TH tallybook"));
    let dir = Dir::new();
    run(tallybook().args(["man", "--out"]).arg(dir.beside("man"))).success();
    assert!(dir.beside("man").join("tallybook-scan.1").is_file());
}

#[test]
fn output_that_nobody_reads_to_its_end_is_no_failure() {
    let dir = Dir::new();
    let value = vec![b'x'; 1 << 20];
    dir.verb_reading(&["put", "key", "-"], &value).success();
    let mut child = tallybook()
        .args(["get", "key", "--data"])
        .arg(dir.data())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 10]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
