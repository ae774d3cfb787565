//! Targets in a process of their own: the protocol, and what is left of a run when the process isn't.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tallybook_lab::Error;
use tallybook_lab::child::{Child, Opening};
use tallybook_lab::record::Standing;
use tallybook_lab::spec::{Durability, Length, Spec, Workload};
use tempfile::TempDir;

use crate::harness::{budget, quick, tiny};

fn spawn() -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tallybook-lab"));
    command.arg("child");
    Child::spawn(command).unwrap()
}

fn opening(dir: &TempDir) -> Opening {
    Opening {
        name: "tallybook".into(),
        directory: dir.path().join("store"),
        budget: budget(Durability::Os),
        settings: BTreeMap::new(),
    }
}

fn endless(dir: &TempDir) -> (Child, Spec) {
    let mut child = spawn();
    child.open(&opening(dir)).unwrap();
    let spec = Spec {
        length: Length::Time(Duration::from_secs(3600)),
        ..tiny(Workload::ReadWhileWriting)
    };
    child.prefill(&spec, &quick(), &mut |_| {}).unwrap();
    (child, spec)
}

#[test]
fn run_in_a_child_is_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = spawn();
    child.open(&opening(&dir)).unwrap();
    assert_eq!(child.settings()["write_buffer_bytes"], (8 << 20).to_string());
    let spec = tiny(Workload::YcsbA);
    child.prefill(&spec, &quick(), &mut |_| {}).unwrap();
    let loaded = child.run(&spec, &quick(), &mut |_| {}).unwrap();
    assert!(loaded.error.is_none() && loaded.outcome.invalid.is_none(), "{loaded:?}");
    assert_eq!(loaded.outcome.operations, 1500);
    assert!(loaded.outcome.peak_resident_bytes > 0 && loaded.outcome.disk_bytes > 0);
    assert_eq!(child.figures().unwrap()["stall.count"], 0.0);
    child.settle().unwrap();
    child.close().unwrap();
    // What it wrote is there for the next.
    let mut child = spawn();
    child.open(&opening(&dir)).unwrap();
    let reads = tiny(Workload::ReadRandom);
    let loaded = child.run(&reads, &quick(), &mut |_| {}).unwrap();
    assert!(loaded.error.is_none(), "{:?}", loaded.error);
}

#[test]
fn refusals_cross_the_pipe_and_the_child_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = spawn();
    let error = child.settle().unwrap_err().to_string();
    assert!(error.contains("no target is open"), "{error}");
    let unknown = Opening { name: "leveldbb".into(), ..opening(&dir) };
    let error = child.open(&unknown).unwrap_err();
    assert!(
        matches!(&error, Error::Unknown { known, .. } if known == &["tallybook", "floor"]),
        "{error}"
    );
    let settings = BTreeMap::from([("speed".into(), "high".into())]);
    let error = child.open(&Opening { settings, ..opening(&dir) }).unwrap_err();
    assert!(matches!(&error, Error::Unknown { what: "setting", .. }), "{error}");
    child.open(&opening(&dir)).unwrap();
    let sync = tiny(Workload::FillSync);
    let error = child.run(&sync, &quick(), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("durability"), "{error}");
    // An empty store holds none of the keys that it should.
    let loaded = child.run(&tiny(Workload::ReadRandom), &quick(), &mut |_| {}).unwrap();
    assert!(matches!(loaded.error, Some(Error::WrongData(_))), "{:?}", loaded.error);
    child.close().unwrap();
}

#[test]
fn killed_child_leaves_what_it_told_last() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, spec) = endless(&dir);
    let process = child.process();
    let loaded = child
        .run(&spec, &quick(), &mut |progress| {
            if progress.elapsed > Duration::from_millis(2500) {
                let killed = Command::new("kill").args(["-9", &process.to_string()]).status();
                assert!(killed.unwrap().success());
            }
        })
        .unwrap();
    assert!(matches!(&loaded.error, Some(Error::Target { target, .. }) if target == "tallybook"));
    let invalid = loaded.outcome.invalid.unwrap();
    assert!(invalid.contains("signal"), "{invalid}");
    assert!(loaded.outcome.operations > 0 && !loaded.outcome.per_second.is_empty());
    assert!(child.figures().is_err());
}

#[test]
fn interrupt_reaches_the_child() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, spec) = endless(&dir);
    let options = quick();
    let stop = options.load.stop.clone();
    let loaded = child.run(&spec, &options, &mut |_| stop.store(true, Ordering::Relaxed)).unwrap();
    assert!(matches!(loaded.error, Some(Error::Interrupted)), "{:?}", loaded.error);
    assert!(loaded.outcome.operations > 0);
    child.close().unwrap();
}

/// A child that hung in opening or closing was waited for without an end, whatever was pressed.
#[test]
fn child_that_hangs_in_opening_or_closing_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let short = Duration::from_millis(20);
    let opened = r#"{"tell":"opened","name":"mute","settings":{}}"#;
    let mute = |script: String| {
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        Child::spawn(command).unwrap().with_patience(short)
    };
    let mut child = mute(format!("read line; echo '{opened}'; exec sleep 3600"));
    child.open(&opening(&dir)).unwrap();
    let error = child.close().unwrap_err().to_string();
    assert!(error.contains("it fell silent, and was killed"), "{error}");
    let stop = Arc::new(AtomicBool::new(true));
    let mut child = mute("exec sleep 3600".to_owned()).with_stop(stop);
    // That it was killed for is no failure of its own.
    let error = child.open(&opening(&dir)).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    let mut child = mute(format!("read line; echo '{opened}'; exec sleep 3600"));
    child.open(&opening(&dir)).unwrap();
    let options = quick();
    options.load.stop.store(true, Ordering::Relaxed);
    let loaded = child.run(&tiny(Workload::ReadRandom), &options, &mut |_| {}).unwrap();
    assert!(matches!(loaded.error, Some(Error::Interrupted)), "{:?}", loaded.error);
    assert_eq!(loaded.outcome.standing(), Standing::Interrupted);
}

#[test]
fn program_that_knows_no_protocol_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut echo = Command::new("sh");
    echo.args(["-c", "read line; echo hello"]);
    let error = Child::spawn(echo).unwrap().open(&opening(&dir)).unwrap_err().to_string();
    assert!(error.contains("\"hello\""), "{error}");
    let mut fails = Command::new("sh");
    fails.args(["-c", "read line; echo oh no >&2; exit 3"]);
    let error = Child::spawn(fails).unwrap().open(&opening(&dir)).unwrap_err().to_string();
    assert!(error.contains("exit status: 3") && error.contains("oh no"), "{error}");
    assert!(Child::spawn(Command::new("./no-such-program")).is_err());
}
