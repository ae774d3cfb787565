//! `lab` as its users run it: experiments over whole servers, stopped and gone on with, and what comes of
//! them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::binary::{Dir, Outcome, run, tallybook, unread};

fn lab(arguments: &[&str]) -> Outcome {
    run(tallybook().arg("lab").args(arguments))
}

fn text(path: &Path) -> String {
    path.to_str().expect("the path is text").to_owned()
}

fn lines(directory: &str) -> usize {
    fs::read_to_string(Path::new(directory).join("runs.jsonl")).unwrap().lines().count()
}

#[test]
fn list_names_experiments_with_their_questions() {
    let list = lab(&["list"]).success();
    for name in ["rivals", "kfs", "http-floor", "head-and-body"] {
        let line = list.text().lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.ends_with('?'), "{line}");
    }
    let help = lab(&["run", "--help"]).success();
    assert!(help.text().contains("TALLYBOOK_RIVALS") && !help.text().contains("child"));
}

#[test]
fn unknown_names_list_the_known_ones() {
    lab(&["run", "rivalz"]).failure(2, "http-floor");
    lab(&["run", "rivals", "--scale", "huge"]).failure(2, "tiny, small, full");
    lab(&["run", "rivals", "--scale", "tiny", "--against", "rocksdbx"]).failure(2, "rocksdb-tuned");
    lab(&["run", "kfs", "--against", "lmdb"]).failure(2, "tallybook, kfs, leveldb");
    lab(&["run", "http-floor", "--against", "lmdb"]).failure(2, "servers by their URLs");
    lab(&["run", "http-floor", "--repetitions", "0"]).failure(2, "repetitions");
}

#[test]
fn limits_of_a_directory_that_cannot_be_made_are_not_measured() {
    let dir = Dir::new();
    fs::write(dir.beside("file"), "").unwrap();
    let outcome = lab(&["limits", "--data", &text(&dir.beside("file").join("below"))]);
    assert!(outcome.text().is_empty(), "{}", outcome.text());
    outcome.failure(1, "Not a directory");
}

#[test]
fn missing_rivals_are_answered_with_the_command_that_builds_them() {
    let dir = Dir::new();
    let out = text(&dir.beside("runs"));
    let mut command = tallybook();
    command.args(["lab", "run", "rivals", "--scale", "tiny", "--against", "lmdb", "--out", &out]);
    let outcome = run(command.env("TALLYBOOK_RIVALS", dir.beside("none")));
    outcome.failure(1, "cargo build --release --manifest-path rivals/Cargo.toml");
}

#[test]
fn servers_are_measured_reported_and_compared() {
    let dir = Dir::new();
    let out = text(&dir.beside("floor"));
    let arguments = ["run", "http-floor", "--scale", "tiny", "--repetitions", "1", "--out", &out];
    let made = lab(&arguments).success();
    assert!(made.text().contains("times the CPU time") && made.stderr.contains("left"));
    assert_eq!(lines(&out), 24);
    let again = lab(&arguments).success();
    assert!(again.stderr.contains("24 of 24 runs were there already"), "{again:?}");
    assert_eq!(lines(&out), 24);

    let page = dir.beside("floor").join("report.html");
    let first = fs::read_to_string(&page).unwrap();
    assert!(first.contains("tallybook lab run http-floor --scale tiny --repetitions 1"));
    fs::remove_file(&page).unwrap();
    lab(&["report", &out]).success();
    assert_eq!(fs::read_to_string(&page).unwrap(), first);

    let compared = lab(&["compare", &out, &out]).success();
    assert!(compared.text().contains("operations/s"), "{compared:?}");
    assert!(!compared.text().contains("worse"), "{compared:?}");
    let holds = "tallybook lab run http-floor --scale tiny --repetitions 1";
    lab(&["run", "rivals", "--scale", "tiny", "--out", &out]).failure(2, holds);
    let more = ["run", "http-floor", "--scale", "tiny", "--repetitions", "2", "--out", &out];
    lab(&more).failure(2, holds);
    // As if all had been made before this program was built anew.
    let runs = dir.beside("floor").join("runs.jsonl");
    let made_here = fs::read_to_string(&runs).unwrap();
    let older = made_here.replace("\"program\":\"", "\"program\":\"0");
    fs::write(&runs, older).unwrap();
    let command = || fs::read_to_string(dir.beside("floor").join("command.txt")).unwrap();
    let before = command();
    lab(&arguments).failure(2, "another build");
    // As if they had been made elsewhere.
    let elsewhere = fs::read_to_string(&runs).unwrap().replace("\"cpu\":\"", "\"cpu\":\"Not ");
    fs::write(&runs, elsewhere.replace("\"program\":\"0", "\"program\":\"")).unwrap();
    lab(&arguments).failure(2, "runs that another machine made (processor: Not ");
    assert_eq!((command(), lines(&out)), (before, 24));
    // As if the others had been made of another version, which is known once its server is open.
    fs::write(
        &runs,
        made_here.split_once('\n').unwrap().1.replace("\"version\":\"", "\"version\":\"0"),
    )
    .unwrap();
    let refused = lab(&arguments).failure(2, "in version 0");
    assert!(refused.text().is_empty(), "{refused:?}");
    // A run of the floor, which has no version, is made before that is known, and told of.
    let but_two = made_here.lines().enumerate().filter(|(at, _)| ![1, 3].contains(at));
    let but_two: String = but_two.map(|(_, line)| format!("{line}\n")).collect();
    fs::write(&runs, but_two.replace("\"version\":\"", "\"version\":\"0")).unwrap();
    let refused = lab(&arguments).failure(2, "in version 0");
    assert!(refused.text().contains("times the CPU time"), "{refused:?}");
    assert_eq!(lines(&out), 23);
    fs::write(&runs, made_here).unwrap();
    lab(&["report", &text(&dir.beside("none"))]).failure(1, "none");

    let history = |file: &str| lab(&["history", &out, "--change", "abc", "--file", file]);
    let drawn = text(&dir.beside("h.svg"));
    history(&drawn).failure(2, "where the chart would go");
    assert!(!dir.beside("h.svg").exists());
    let added = history(&text(&dir.beside("h.jsonl"))).success();
    assert!(added.stderr.contains("has 1 changes") && dir.beside("h.svg").exists(), "{added:?}");
}

/// The report was written before failures were told of: with nobody reading on, they were no failures.
#[test]
fn failed_runs_are_a_failure_where_nobody_reads_the_report() {
    let dir = Dir::new();
    let out = text(&dir.beside("floor"));
    // It answers a constant, which nobody put.
    let mut liar = tallybook();
    liar.args(["lab", "bare", "100", "0"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut liar = liar.spawn().unwrap();
    let mut url = String::new();
    BufReader::new(liar.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let mut command = tallybook();
    command.args(["lab", "run", "http-floor", "--scale", "tiny", "--repetitions", "1"]);
    command.args(["--against", url.trim(), "--out", &out]).stdout(unread()).stderr(Stdio::piped());
    let outcome: Outcome = command.spawn().unwrap().wait_with_output().unwrap().into();
    drop(liar.stdin.take());
    liar.wait().unwrap();
    let outcome = outcome.failure(1, "runs failed, and don't count:");
    assert!(outcome.stderr.contains("wrong data"), "{outcome:?}");
}

#[test]
fn heads_are_measured_in_memory_and_from_the_disk() {
    let dir = Dir::new();
    let out = text(&dir.beside("heads"));
    let made = lab(&["run", "head-and-body", "--scale", "tiny", "--out", &out]).success();
    assert!(made.text().contains("as long as the HEAD of the same key"), "{made:?}");
    for picture in ["in-process-data-in-memory", "over-http-data-in-disk"] {
        assert!(dir.beside("heads").join(format!("head-and-get-{picture}.svg")).is_file());
    }
    assert!(!dir.beside("heads").join("lab-stores").exists());
}

/// Its report stayed as it was, and nothing said that the runs in it had just been taken back.
#[test]
fn an_interrupt_before_the_first_run_says_what_an_old_report_is_of() {
    let dir = Dir::new();
    let out = dir.beside("floor");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("report.html"), "old").unwrap();
    let mut command = tallybook();
    // Filling its first store takes seconds.
    command.args(["lab", "run", "http-floor", "--scale", "small", "--out", &text(&out)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !out.join("lab-stores").exists() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let outcome: Outcome = child.wait_with_output().unwrap().into();
    let outcome = outcome.failure(130, "before the first run was done");
    assert!(outcome.stderr.contains("is of runs that are made again"), "{outcome:?}");
}

#[test]
fn an_interrupt_keeps_what_is_done_and_the_same_command_goes_on() {
    let dir = Dir::new();
    let out = text(&dir.beside("floor"));
    let arguments =
        ["lab", "run", "http-floor", "--scale", "tiny", "--repetitions", "1", "--out", &out];
    let mut command = tallybook();
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("1/24 "), "{line}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let rest: Vec<String> = stderr.lines().map(Result::unwrap).collect();
    let outcome = child.wait_with_output().unwrap();
    assert_eq!(outcome.status.code(), Some(130), "{rest:?}");
    assert!(rest.last().unwrap().contains("the same command goes on"), "{rest:?}");
    assert!(dir.beside("floor").join("report.html").is_file());
    let made = run(tallybook().args(arguments)).success();
    assert!(made.stderr.contains("runs were there already"), "{made:?}");
}
