//! Experiments at their smallest: from the plan over the runs to the report, gone on with where they
//! were stopped, and failing as loudly as they must.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tallybook_lab::bare::{Bare, BareOptions};
use tallybook_lab::experiment::runner::{
    Bench, Programs, Stage, Summary, check, make, write_report,
};
use tallybook_lab::experiment::{Experiment, PlannedRun, Scale, Subject, find, with_repetitions};
use tallybook_lab::record::{FELL_BEHIND, Record};
use tallybook_lab::report::{Row, compare};
use tallybook_lab::runs_file::{RunsFile, last_of_each, load_records, standing_runs};
use tallybook_lab::spec::{Length, Pace, Spec, Workload};
use tallybook_lab::{Error, Result};

use crate::harness::quick;

fn programs() -> Programs {
    let verb = |name: &str| -> Vec<OsString> {
        vec![env!("CARGO_BIN_EXE_tallybook-lab").into(), name.into()]
    };
    Programs { child: verb("child"), ..Programs::default() }
}

fn made(experiment: &dyn Experiment, runs: &[PlannedRun], directory: &Path) -> Result<Summary> {
    let programs = programs();
    let bench = Bench { directory, command: "again", programs: &programs, stop: Arc::default() };
    make(experiment, runs, &bench, &mut |_| {})
}

/// The rivals experiment, short: three workloads that read.
fn few() -> (&'static dyn Experiment, Vec<PlannedRun>) {
    three([Workload::ReadRandom, Workload::ReadMissing, Workload::HeadRandom])
}

/// The rivals experiment, short: three workloads on one store.
fn three(wanted: [Workload; 3]) -> (&'static dyn Experiment, Vec<PlannedRun>) {
    let experiment = find("rivals").unwrap();
    let mut runs = with_repetitions(experiment.runs(Scale::Tiny, &[]).unwrap(), 1);
    runs.retain(|run| {
        let is_named_so = run.case["workload"] == run.spec.workload.name();
        wanted.contains(&run.spec.workload) && is_named_so && run.spec.threads == 1
    });
    assert_eq!(runs.len(), 3);
    (experiment, runs)
}

fn stores_left(directory: &Path) -> bool {
    directory.join("lab-stores").exists()
}

#[test]
fn rivals_runs_to_a_report_without_any_rival() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = find("rivals").unwrap();
    let runs = with_repetitions(experiment.runs(Scale::Tiny, &[]).unwrap(), 1);
    let summary = made(experiment, &runs, dir.path()).unwrap();
    assert_eq!(summary, Summary { asked: runs.len(), made: runs.len(), ..Summary::default() });
    let report = write_report(experiment, dir.path(), "rerun").unwrap();
    assert!(report.records().iter().all(|record| record.outcome.operations > 0));
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(Workload::ALL.iter().all(|workload| page.contains(workload.name())));
    for threaded in ["fillsync, 4 threads", "readrandom, 2 threads"] {
        assert!(page.contains(threaded), "{threaded}");
    }
    assert!(!stores_left(dir.path()));
}

/// It is compared with, and never the best rival.
#[test]
fn the_floor_is_a_column_and_no_rival() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = find("rivals").unwrap();
    let against = ["floor".to_owned(), "core".to_owned()];
    let runs = with_repetitions(experiment.runs(Scale::Tiny, &against).unwrap(), 1);
    let summary = made(experiment, &runs, dir.path()).unwrap();
    assert_eq!(summary, Summary { asked: runs.len(), made: runs.len(), ..Summary::default() });
    write_report(experiment, dir.path(), "rerun").unwrap();
    let told = std::fs::read_to_string(dir.path().join("summary.md")).unwrap();
    assert!(told.contains("no rival to compare with"), "{told}");
    let [head, first] = ["| workload", "| fillseq"]
        .map(|front| told.lines().find(|line| line.starts_with(front)).unwrap());
    assert!(head.contains("| floor |") && head.contains("CPU / floor's"), "{head}");
    let cells: Vec<&str> = first.trim_matches('|').split('|').map(str::trim).collect();
    let [.., speed, cpu, over_floor, best_over_floor] = cells[..] else { panic!("{first}") };
    assert_eq!([speed, cpu, best_over_floor], ["-"; 3]);
    assert!(over_floor.parse::<f64>().unwrap() > 0.0);
}

/// A closed loop finds a rate, which the runs that follow ask a share of; made again, nothing is.
#[test]
fn runs_that_follow_from_others_are_made_after_them_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = find("sustained").unwrap();
    let mut runs = experiment.runs(Scale::Tiny, &[]).unwrap();
    runs.retain(|run| run.case["rate"] == "highest");
    assert_eq!(runs.len(), 2);
    let summary = made(experiment, &runs, dir.path()).unwrap();
    assert_eq!(summary.made, 4, "{summary:?}");
    let records = load_records(&dir.path().join("runs.jsonl")).unwrap();
    for (closed, share) in records[..2].iter().zip(&records[2..]) {
        let Pace::Constant { per_second } = share.spec.pace else { panic!("{:?}", share.spec) };
        let highest = closed.outcome.operations as f64 / closed.outcome.seconds;
        assert!((per_second - highest * 0.95).abs() <= 1.0, "{per_second} of {highest}");
    }
    // A target that fell behind would do so again, or a lucky run would take its place.
    let path = dir.path().join("runs.jsonl");
    let mut behind = records[2].clone();
    behind.outcome.invalid = Some(FELL_BEHIND.to_owned());
    RunsFile::open(&path).unwrap().append(behind).unwrap();
    let again = made(experiment, &runs, dir.path()).unwrap();
    let lost = [0, 1, 3].into_iter().filter(|at: &usize| !records[*at].outcome.tells()).count();
    assert_eq!((again.kept, again.made), (4 - lost, lost));
    // What followed from a rate that was measured before is drawn no more.
    let mut stale = records[3].clone();
    stale.spec.pace = Pace::Constant { per_second: 7.0 };
    stale.started_at_ms -= 1;
    RunsFile::open(&path).unwrap().append(stale).unwrap();
    let report = write_report(experiment, dir.path(), "again").unwrap();
    assert_eq!(report.records().len(), 4);
    let is_stale = |record: &Record| record.spec.pace == Pace::Constant { per_second: 7.0 };
    assert!(!report.records().iter().any(is_stale));
}

/// A stop in the last planned run left none, though what follows from it wasn't made.
#[test]
fn what_follows_is_left_too_where_a_stop_ends_the_planned_runs() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = find("sustained").unwrap();
    let mut runs = experiment.runs(Scale::Tiny, &[]).unwrap();
    runs.retain(|run| run.case["rate"] == "highest");
    let stop = Arc::new(AtomicBool::new(false));
    let programs = programs();
    let bench =
        Bench { directory: dir.path(), command: "again", programs: &programs, stop: stop.clone() };
    let stop_after = |last: usize| {
        let mut done = 0;
        stop.store(false, Ordering::Relaxed);
        let summary = make(experiment, &runs, &bench, &mut |status| {
            done += usize::from(matches!(status.stage, Stage::Done(_)));
            stop.store(done == last, Ordering::Relaxed);
        });
        summary.unwrap()
    };
    let summary = stop_after(2);
    assert_eq!((summary.asked, summary.made, summary.left), (4, 2, 2), "{summary:?}");
    assert!(summary.interrupted && summary.again == 0, "{summary:?}");
    // Nothing is left, whatever was pressed, unless a run lagged.
    let summary = stop_after(2);
    assert_eq!(summary.interrupted, summary.left > 0, "{summary:?}");
    assert_eq!(summary.left, summary.uncounted.len(), "{summary:?}");
}

/// A stop in what follows left what follows alone: the ladder of a rung that lagged, which the same command makes again
/// from its first rung on, wasn't counted.
#[test]
fn what_is_made_again_is_left_too_where_a_stop_ends_what_follows() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = find("sustained").unwrap();
    let mut runs = experiment.runs(Scale::Tiny, &[]).unwrap();
    runs.retain(|run| ["10000", "highest"].contains(&&*run.case["rate"]));
    assert_eq!(runs.len(), 3, "a rung of one ladder, and both loops");
    let rung = runs.iter_mut().find(|run| run.case["rate"] == "10000").unwrap();
    // Nobody sends to the nanosecond.
    rung.options.load.lag_max = Duration::ZERO;
    let stop = Arc::new(AtomicBool::new(false));
    let programs = programs();
    let bench =
        Bench { directory: dir.path(), command: "again", programs: &programs, stop: stop.clone() };
    let summary = make(experiment, &runs, &bench, &mut |status| {
        let follows = status.run.case["rate"].starts_with("95 %");
        stop.fetch_or(follows, Ordering::Relaxed);
    });
    let summary = summary.unwrap();
    assert_eq!((summary.asked, summary.made), (5, 3), "{summary:?}");
    assert_eq!((summary.left, summary.again), (4, 2), "{summary:?}");
}

#[test]
fn what_is_there_is_not_made_again_and_a_stop_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let (experiment, runs) = few();
    let stop = Arc::new(AtomicBool::new(false));
    let programs = programs();
    let bench =
        Bench { directory: dir.path(), command: "again", programs: &programs, stop: stop.clone() };
    let mut lefts = Vec::new();
    let summary = make(experiment, &runs, &bench, &mut |status| {
        lefts.push(status.left);
        if status.number == 2 && status.stage == Stage::Filling(None) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let summary = summary.unwrap();
    assert!(summary.interrupted && summary.failed().is_empty(), "{summary:?}");
    assert_eq!((lefts[0], summary.made, summary.left), (None, 1, 2));
    assert!(lefts.last().unwrap().is_some() && !stores_left(dir.path()));
    let summary = made(experiment, &runs, dir.path()).unwrap();
    assert_eq!((summary.kept, summary.made), (1, 2));
    let again = made(experiment, &runs, dir.path()).unwrap();
    assert_eq!((again.kept, again.made), (3, 0));
    // The interrupted one is in the file, and counts no more.
    let report = write_report(experiment, dir.path(), "rerun").unwrap();
    assert_eq!(report.records().len(), 3);
    assert!(report.records().iter().all(|record| record.outcome.invalid.is_none()));
}

/// When each run of the file that counts began.
fn counting(directory: &Path) -> Vec<u64> {
    let records = last_of_each(load_records(&directory.join("runs.jsonl")).unwrap());
    let counts = |record: &&Record| record.outcome.invalid.is_none();
    records.iter().filter(counts).map(|record| record.started_at_ms).collect()
}

/// The rounds of a store that is gone are no beginning for those on another one.
#[test]
fn a_store_that_is_written_to_is_measured_from_its_first_run_to_its_last() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = find("collection").unwrap();
    let mut runs = experiment.runs(Scale::Tiny, &[]).unwrap();
    runs.retain(|run| run.case["collection"] == "on");
    assert_eq!(runs.len(), 4);
    for run in &mut runs {
        // No generator lags behind a closed loop.
        run.spec.pace = Pace::Closed;
        run.options.settle = false;
    }
    let programs = programs();
    let stopped_after = |done: usize| {
        let stop = Arc::new(AtomicBool::new(false));
        let bench = Bench {
            directory: dir.path(),
            command: "again",
            programs: &programs,
            stop: stop.clone(),
        };
        let summary = make(experiment, &runs, &bench, &mut |status| {
            if matches!(status.stage, Stage::Done(_)) && status.number == done {
                stop.store(true, Ordering::Relaxed);
            }
        });
        summary.unwrap()
    };
    let summary = stopped_after(1);
    assert_eq!((summary.made, summary.left), (1, 4), "the one that was made is left too");
    assert_eq!(summary.again, 1);
    let first = counting(dir.path());
    assert_eq!(first.len(), 1);
    let summary = stopped_after(2);
    assert_eq!((summary.kept, summary.made, summary.left), (0, 2, 4), "{summary:?}");
    assert_eq!(summary.again, 2);
    let summary = made(experiment, &runs, dir.path()).unwrap();
    assert_eq!((summary.kept, summary.made), (0, 4), "{summary:?}");
    // Old and new ones were taken for two runs of a side.
    let standing = standing_runs(&dir.path().join("runs.jsonl")).unwrap();
    let comparison = compare(("a", &standing), ("b", &standing));
    assert!(!comparison.rows.is_empty() && comparison.left_out.is_empty(), "{comparison:?}");
    let one_each = |row: &Row| (row.baseline.len(), row.subject.len()) == (1, 1);
    assert!(comparison.rows.iter().all(one_each), "{comparison:?}");
    let last = counting(dir.path());
    assert!(last.len() == 4 && last.iter().all(|at| *at > first[0]), "{first:?} {last:?}");
    // One that doesn't count has all of them made again, and a stop leaves none of the old ones beside new ones.
    let path = dir.path().join("runs.jsonl");
    let mut lagged = last_of_each(load_records(&path).unwrap()).remove(1);
    lagged.outcome.invalid = Some("the generator lagged".to_owned());
    RunsFile::open(&path).unwrap().append(lagged).unwrap();
    let summary = stopped_after(2);
    assert_eq!((summary.kept, summary.made), (0, 2), "{summary:?}");
    assert_eq!(counting(dir.path()).len(), 2);
    let summary = made(experiment, &runs, dir.path()).unwrap();
    assert_eq!((summary.kept, summary.made), (0, 4), "{summary:?}");
    assert_eq!(made(experiment, &runs, dir.path()).unwrap().kept, 4);
}

#[test]
fn what_was_to_go_on_from_a_run_that_failed_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let (experiment, mut runs) =
        three([Workload::ReadRandom, Workload::Overwrite, Workload::YcsbA]);
    // It can't be opened.
    let settings = BTreeMap::from([("speed".to_owned(), "high".to_owned())]);
    runs[0].subject = Subject::Engine { settings };
    let apart = PlannedRun { shared_store: None, repetition: 1, ..runs[2].clone() };
    let summary = made(experiment, &[runs.clone(), vec![apart]].concat(), dir.path()).unwrap();
    assert_eq!((summary.made, summary.failed().len()), (2, 3), "{summary:?}");
    assert!(summary.failed()[1].contains("not made: its store broke"), "{summary:?}");
    let records = load_records(&dir.path().join("runs.jsonl")).unwrap();
    let whys: Vec<bool> = records.iter().map(|one| one.outcome.invalid.is_none()).collect();
    assert_eq!(whys, [false, false, false, true]);
}

/// Names of runs don't tell what program made them, so that a second comparison found all of its runs there and
/// answered with the first one's.
#[test]
fn runs_of_another_build_are_not_taken_for_this_ones() {
    let dir = tempfile::tempdir().unwrap();
    let runs_dir = dir.path().join("runs");
    let other = dir.path().join("other");
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_tallybook-lab"));
    std::fs::write(&other, &script).unwrap();
    std::fs::set_permissions(&other, PermissionsExt::from_mode(0o755)).unwrap();
    let experiment = find("builds").unwrap();
    let against = [other.to_str().unwrap().to_owned(), "fillseq".to_owned()];
    let runs = with_repetitions(experiment.runs(Scale::Tiny, &against).unwrap(), 1);
    assert_eq!(made(experiment, &runs, &runs_dir).unwrap().made, 2);
    let again = made(experiment, &runs, &runs_dir).unwrap();
    assert_eq!((again.kept, again.made), (2, 0), "the same programs go on with what is there");
    let records = load_records(&runs_dir.join("runs.jsonl")).unwrap();
    assert_ne!(records[0].target_settings["program"], records[1].target_settings["program"]);
    std::fs::write(&other, script + "# Built again.\n").unwrap();
    let error = made(experiment, &runs, &runs_dir).unwrap_err().to_string();
    assert!(error.contains("another build") && error.contains("--out"), "{error}");
    assert_eq!(load_records(&runs_dir.join("runs.jsonl")).unwrap().len(), 2);
}

/// Runs of two machines, or of two commands, were not made in turn.
#[test]
fn runs_of_another_machine_or_command_are_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let (experiment, runs) = few();
    made(experiment, &runs[..1], dir.path()).unwrap();
    let programs = programs();
    let bench = |command| Bench {
        directory: dir.path(),
        command,
        programs: &programs,
        stop: Arc::default(),
    };
    let refused = |command| {
        let checked = check(experiment, &runs, &bench(command)).unwrap_err().to_string();
        let made = make(experiment, &runs, &bench(command), &mut |_| {}).unwrap_err().to_string();
        assert_eq!(checked, made);
        assert!(made.contains("--out"), "{made}");
        made
    };
    let error = refused("another");
    assert!(error.contains("the runs of \"again\""), "{error}");
    let path = dir.path().join("runs.jsonl");
    let before = std::fs::read_to_string(&path).unwrap();
    let mut record: Record = serde_json::from_str(&before).unwrap();
    let processor = std::mem::replace(&mut record.machine.cpu, "an abacus".to_owned());
    std::fs::write(&path, serde_json::to_string(&record).unwrap() + "\n").unwrap();
    let error = refused("again");
    assert!(error.contains(&format!("processor: an abacus, now {processor}")), "{error}");
    // A version is told by the target once it is open.
    std::fs::write(&path, before.replace("\"version\":\"", "\"version\":\"0.")).unwrap();
    check(experiment, &runs, &bench("again")).unwrap();
    let error = make(experiment, &runs, &bench("again"), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("in version 0."), "{error}");
    assert_eq!(load_records(&path).unwrap().len(), 1);
    assert!(!stores_left(dir.path()));
}

#[test]
fn wrong_data_is_a_failed_run_and_the_others_are_made() {
    let dir = tempfile::tempdir().unwrap();
    let (experiment, runs) = few();
    // It answers a constant, which nobody put.
    let server = Bare::start(BareOptions::default()).unwrap();
    let spec = Spec { keys: 300, length: Length::Operations(500), ..runs[0].spec.clone() };
    let liar = PlannedRun {
        subject: Subject::Url { url: server.url() },
        target: "liar".into(),
        options: quick(),
        shared_store: None,
        spec,
        ..runs[0].clone()
    };
    let all = [vec![liar], runs].concat();
    let summary = made(experiment, &all, dir.path()).unwrap();
    assert_eq!((summary.made, summary.failed().len()), (4, 1), "{summary:?}");
    assert!(summary.failed()[0].contains("wrong data"), "{summary:?}");
    let records = load_records(&dir.path().join("runs.jsonl")).unwrap();
    let why = records[0].outcome.invalid.as_ref().unwrap();
    assert!(why.contains("wrong data"), "{why}");
    assert!(records[1..].iter().all(|record| record.outcome.invalid.is_none()));
}

#[test]
fn a_setting_that_is_refused_is_a_failed_run() {
    let dir = tempfile::tempdir().unwrap();
    let (experiment, mut runs) = few();
    runs.truncate(1);
    let settings = BTreeMap::from([("speed".to_owned(), "high".to_owned())]);
    runs[0].subject = Subject::Engine { settings };
    let summary = made(experiment, &runs, dir.path()).unwrap();
    assert!(summary.failed()[0].contains("inline_max_bytes"), "{summary:?}");
    assert!(!stores_left(dir.path()));
}

#[test]
fn missing_rivals_and_a_small_disk_are_said_before_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = find("rivals").unwrap();
    let runs = experiment.runs(Scale::Tiny, &["lmdb".to_owned()]).unwrap();
    let error = made(experiment, &runs, dir.path()).unwrap_err().to_string();
    assert!(error.contains("cargo build --release --manifest-path rivals/Cargo.toml"), "{error}");
    let programs = Programs { rivals: Some(PathBuf::from("./not-there")), ..programs() };
    assert!(programs.check(&runs).unwrap_err().to_string().contains("./not-there"));
    let (experiment, mut runs) = few();
    runs[2].spec.keys = 1 << 46;
    let error = made(experiment, &runs, dir.path()).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert_eq!(std::fs::read(dir.path().join("runs.jsonl")).unwrap(), b"");
}

#[test]
fn two_experiments_do_not_share_a_directory_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (experiment, runs) = few();
    let mut second = None;
    let programs = programs();
    let bench = Bench {
        directory: dir.path(),
        command: "again",
        programs: &programs,
        stop: Arc::default(),
    };
    make(experiment, &runs[..1], &bench, &mut |_| {
        second.get_or_insert_with(|| made(experiment, &runs, dir.path()));
    })
    .unwrap();
    let error = second.unwrap().unwrap_err().to_string();
    assert!(error.contains("under way"), "{error}");
}
