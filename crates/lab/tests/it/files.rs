//! Stores of files: the protocol, the experiment without any rival, and a store that grows old over an
//! interruption.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tallybook_lab::Error;
use tallybook_lab::experiment::runner::{Bench, Programs, Stage, make, write_report};
use tallybook_lab::experiment::{Scale, find};
use tallybook_lab::files::{self, FilesChild, FilesOpening, REFERENCE_ID, file_name};
use tallybook_lab::run::RunOptions;
use tallybook_lab::runs_file::standing_runs;
use tallybook_lab::spec::{Durability, Spec, ValueSizes, Workload};

const CHILD: &str = env!("CARGO_BIN_EXE_tallybook-lab");

fn programs() -> Programs {
    let files: Vec<OsString> = vec![CHILD.into(), "files".into()];
    Programs { files, ..Programs::default() }
}

fn opening(directory: &Path, durability: Durability) -> FilesOpening {
    FilesOpening {
        name: files::NAME.to_owned(),
        directory: directory.join("store"),
        reference_id: REFERENCE_ID.to_owned(),
        durability,
        buckets: None,
    }
}

fn open(opening: &FilesOpening) -> FilesChild {
    let mut command = Command::new(CHILD);
    command.arg("files");
    FilesChild::spawn(command).unwrap().open(opening).unwrap()
}

fn file_spec(bytes: u32, seed: u64) -> Spec {
    Spec {
        workload: Workload::WriteReadUnlink,
        keys: 1,
        values: ValueSizes::Fixed(bytes),
        seed,
        ..Spec::default()
    }
}

#[test]
fn a_file_is_written_read_and_unlinked_and_everything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    for durability in [Durability::Os, Durability::Sync] {
        let mut child = open(&opening(dir.path(), durability));
        assert_eq!(child.settings()["buckets"], "64");
        let loaded =
            files::run(&mut child, &file_spec(3 << 20, 7), &RunOptions::default(), dir.path());
        assert!(loaded.error.is_none(), "{loaded:?}");
        let outcome = loaded.outcome;
        assert_eq!((outcome.operations, outcome.user_written_bytes), (3, 3 << 20));
        assert!(outcome.settle_s >= 3.5, "what it puts off is waited for: {}", outcome.settle_s);
        for kind in ["write", "read", "unlink"] {
            assert!(outcome.kinds[kind].latency.p50_ns > 0, "{kind}");
        }
        assert!(outcome.peak_resident_bytes > 0 && outcome.disk_bytes > 0);
        assert!(outcome.figures["handles_max"] > 3.0);
        assert_eq!(outcome.figures["live_bytes"], 0.0);
        child.close().unwrap();
    }
}

#[test]
fn what_was_written_is_there_for_the_next_and_other_bytes_are_wrong_data() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = open(&opening(dir.path(), Durability::Os));
    let name = file_name(3, 1, 500_000);
    child.write(&name, 500_000, 1).unwrap();
    child.close().unwrap();
    let mut child = open(&opening(dir.path(), Durability::Os));
    child.read(&name, 500_000, 1).unwrap();
    for (bytes, seed) in [(500_000, 2), (500_001, 1), (499_999, 1)] {
        let error = child.read(&name, bytes, seed).unwrap_err();
        assert!(matches!(error, Error::WrongData(_)), "{error}");
    }
    child.unlink(&name).unwrap();
    let error = child.read(&name, 500_000, 1).unwrap_err().to_string();
    assert!(error.contains("isn't there"), "{error}");
    let error = child.write("", 1, 1).unwrap_err().to_string();
    assert!(error.contains("1 to 1024 bytes"), "{error}");
    child.close().unwrap();
}

/// One that answers from a script, whatever it is asked.
fn scripted_child(answers: &[&str]) -> FilesChild {
    let mut command = Command::new("sh");
    let line = |answer: &&str| format!("read line; echo '{answer}'; ");
    command.arg("-c").arg(answers.iter().map(line).collect::<String>());
    FilesChild::spawn(command).unwrap()
}

/// Ctrl-C waited for up to ten minutes for a file.
#[test]
fn a_child_that_does_not_finish_after_a_stop_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let opened = r#"{"tell":"opened","settings":{}}"#;
    let mut command = Command::new("sh");
    command.args(["-c", &format!("read line; echo '{opened}'; exec sleep 3600")]);
    let stop = Arc::new(AtomicBool::new(false));
    let child = FilesChild::spawn(command).unwrap().with_stop(stop.clone());
    let child = child.with_patience(std::time::Duration::from_millis(20));
    let mut child = child.open(&opening(dir.path(), Durability::Os)).unwrap();
    stop.store(true, Ordering::Relaxed);
    let error = child.unlink("a").unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
}

/// After Ctrl-C each of 256 small files had a minute of its own.
#[test]
fn all_that_a_child_is_asked_after_a_stop_has_its_time_together() {
    let dir = tempfile::tempdir().unwrap();
    let opened = r#"{"tell":"opened","settings":{}}"#;
    let mut command = Command::new("sh");
    let answers =
        r#"while read line; do sleep 0.3; echo '{"tell":"done","ns":1,"sum":null}'; done"#;
    command.args(["-c", &format!("read line; echo '{opened}'; {answers}")]);
    let stop = Arc::new(AtomicBool::new(false));
    let child = FilesChild::spawn(command).unwrap().with_stop(stop.clone());
    let child = child.with_patience(std::time::Duration::from_millis(500));
    let mut child = child.open(&opening(dir.path(), Durability::Os)).unwrap();
    for _ in 0..3 {
        child.unlink("a").unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let unlinked = (0..3).try_for_each(|_| child.unlink("a").map(drop));
    assert!(matches!(unlinked, Err(Error::Interrupted)), "{unlinked:?}");
}

/// A stop had the child killed, and with it the last run, which was made, and all before it on its store.
#[test]
fn a_child_that_is_closing_is_waited_for_after_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let [opened, closed] = [r#"{"tell":"opened","settings":{}}"#, r#"{"tell":"closed"}"#];
    let mut command = Command::new("sh");
    let answers = format!("read line; echo '{opened}'; read line; sleep 1; echo '{closed}'");
    command.args(["-c", &answers]);
    let stop = Arc::new(AtomicBool::new(true));
    let child = FilesChild::spawn(command).unwrap().open(&opening(dir.path(), Durability::Os));
    let child = child.unwrap().with_stop(stop).with_patience(std::time::Duration::from_millis(20));
    child.close().unwrap();
}

#[test]
fn a_child_that_makes_other_bytes_or_talks_nonsense_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let opening = opening(dir.path(), Durability::Os);
    let opened = r#"{"tell":"opened","settings":{}}"#;
    let mut child =
        scripted_child(&[opened, r#"{"tell":"done","ns":1,"sum":7}"#]).open(&opening).unwrap();
    let error = child.write("a", 1000, 1).unwrap_err();
    assert!(matches!(error, Error::WrongData(_)), "{error}");
    for (answer, said) in [
        (r#"{"tell":"closed"}"#, "to another question"),
        ("[]", "which is no answer"),
        (r#"{"tell":"failed","what":"no room"}"#, "no room"),
    ] {
        let mut child = scripted_child(&[opened, answer]).open(&opening).unwrap();
        let error = child.unlink("a").unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let mut child = scripted_child(&[opened]).open(&opening).unwrap();
    assert!(child.figures().unwrap_err().to_string().contains("its process ended"));
}

#[test]
fn a_run_that_is_for_stores_of_keys_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = open(&opening(dir.path(), Durability::Os));
    let spec = Spec { workload: Workload::ReadRandom, ..file_spec(1, 1) };
    let loaded = files::run(&mut child, &spec, &RunOptions::default(), dir.path());
    assert!(loaded.error.unwrap().to_string().contains("stores of keys"));
    assert!(loaded.outcome.invalid.is_some());
}

#[test]
fn kfs_runs_to_a_report_without_any_rival() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = find("kfs").unwrap();
    let runs = experiment.runs(Scale::Tiny, &[]).unwrap();
    let programs = programs();
    let bench = Bench {
        directory: dir.path(),
        command: "again",
        programs: &programs,
        stop: Arc::default(),
    };
    let summary = make(experiment, &runs, &bench, &mut |_| {}).unwrap();
    assert_eq!((summary.made, summary.failed().len()), (runs.len(), 0), "{summary:?}");
    assert!(!dir.path().join("lab-stores").exists());
    let report = write_report(experiment, dir.path(), "rerun").unwrap();
    let html = report.html();
    let sections = [
        "What was asked",
        "Writing",
        "Reading",
        "Unlinking",
        "Space",
        "Memory, CPU and file handles",
    ];
    for section in sections {
        assert!(html.contains(&format!("<h2>{section}</h2>")), "{section}");
    }
    let summary = report.summary_markdown();
    let answer = summary.lines().find_map(|line| line.strip_prefix("**")).unwrap();
    assert!(answer.contains("figures asked for") && !answer.contains("NaN"), "{answer}");
    assert!(summary.contains("not measured in these runs"), "there is no KFS: {summary}");
    // Nothing of the study's cells can be told either.
    assert!(!html.contains("The study, its figures"));
}

#[test]
fn a_store_of_files_grows_old_over_an_interruption() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = find("kfs").unwrap();
    let mut runs = experiment.runs(Scale::Tiny, &[]).unwrap();
    runs.retain(|run| run.target == "tallybook" && run.case.contains_key("size"));
    assert_eq!(runs.len(), 4);
    let stop = Arc::new(AtomicBool::new(false));
    let programs = programs();
    let bench =
        Bench { directory: dir.path(), command: "again", programs: &programs, stop: stop.clone() };
    let summary = make(experiment, &runs, &bench, &mut |status| {
        if let (2, Stage::Done(_)) = (status.number, status.stage) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(summary.unwrap().made, 2);
    let store = dir.path().join("lab-stores/kept-tallybook/store");
    assert!(store.join("STORE").is_file());
    let bench = Bench { stop: Arc::default(), ..bench };
    let mut buckets = 0.0;
    let summary = make(experiment, &runs, &bench, &mut |status| {
        if let Stage::Done(record) = status.stage {
            buckets = record.outcome.figures["buckets"];
        }
    });
    assert_eq!(summary.unwrap().made, 2);
    // Every file falls into another bucket, and those of the first two runs were there.
    assert!(buckets > 2.0, "{buckets}");
    assert!(!dir.path().join("lab-stores").exists());
}

/// A new store whose target is refused, once it is open and its version known, was gone on with as the old one; later
/// the runs that the refusal protects were taken back before it.
#[test]
fn a_version_that_is_refused_leaves_the_runs_and_no_store_to_go_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = find("kfs").unwrap();
    let mut runs = experiment.runs(Scale::Tiny, &[]).unwrap();
    runs.retain(|run| run.target == "tallybook" && run.case.contains_key("size"));
    assert_eq!(runs.len(), 4);
    let programs = programs();
    let made = |last: usize| {
        let stop = Arc::new(AtomicBool::new(false));
        let bench = Bench {
            directory: dir.path(),
            command: "again",
            programs: &programs,
            stop: stop.clone(),
        };
        make(experiment, &runs, &bench, &mut |status| {
            let is_last = status.number == last && matches!(status.stage, Stage::Done(_));
            stop.fetch_or(is_last, Ordering::Relaxed);
        })
    };
    assert_eq!(made(2).unwrap().made, 2);
    std::fs::remove_dir_all(dir.path().join("lab-stores")).unwrap();
    let path = dir.path().join("runs.jsonl");
    let replace = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(from, to)).unwrap();
    };
    replace(r#""version":""#, r#""version":"other "#);
    let standing = standing_runs(&path).unwrap();
    let error = made(9).unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert_eq!((standing.len(), standing), (2, standing_runs(&path).unwrap()));
    replace(r#""version":"other "#, r#""version":""#);
    let summary = made(9).unwrap();
    assert_eq!((summary.kept, summary.made), (0, 4), "{summary:?}");
}

#[test]
fn what_is_not_installed_is_answered_with_the_command_that_installs_it() {
    let experiment = find("kfs").unwrap();
    let plan = |against: &str| experiment.runs(Scale::Tiny, &[against.to_owned()]).unwrap();
    let error = programs().check(&plan("kfs")).unwrap_err().to_string();
    assert!(error.contains("npm install --prefix rivals/kfs"), "{error}");
    let kfs = Some(PathBuf::from("./nowhere/kfs.js"));
    let error = Programs { kfs, ..programs() }.check(&plan("kfs")).unwrap_err().to_string();
    assert!(error.contains("./nowhere/node_modules/kfs"), "{error}");
    let error = programs().check(&plan("leveldb")).unwrap_err().to_string();
    assert!(error.contains("cargo build --release --manifest-path rivals/Cargo.toml"), "{error}");
    programs().check(&plan("tallybook")).unwrap();
}

#[test]
fn a_disk_too_small_for_what_kfs_leaves_is_said_before_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = find("kfs").unwrap();
    let mut runs = experiment.runs(Scale::Tiny, &["kfs".to_owned()]).unwrap();
    runs.retain(|run| run.target == "kfs");
    // KFS gives nothing back, so the bytes of all its runs are needed.
    let free = tallybook_lab::machine::available_bytes(dir.path()).unwrap();
    runs.iter_mut().for_each(|run| run.spec.keys = 1 + (free >> 21));
    let script = dir.path().join("kfs.js");
    std::fs::create_dir_all(dir.path().join("node_modules/kfs")).unwrap();
    std::fs::write(dir.path().join("node_modules/kfs/package.json"), "{}").unwrap();
    let programs = Programs { kfs: Some(script), ..programs() };
    let bench = Bench {
        directory: dir.path(),
        command: "again",
        programs: &programs,
        stop: Arc::default(),
    };
    let error = make(experiment, &runs, &bench, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
}
