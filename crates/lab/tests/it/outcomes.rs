//! A whole run fills in every figure of its outcome.

use std::collections::BTreeMap;
use std::time::SystemTime;

use tallybook_lab::Error;
use tallybook_lab::run::{RunOptions, prefill, prefill_and_run, run};
use tallybook_lab::runs_file::{RunName, RunsFile};
use tallybook_lab::spec::{Durability, Length, Pace, Spec, ValueSizes, Workload};
use tallybook_lab::target::Target;
use tallybook_lab::target::engine::EngineTarget;

use crate::harness::{Fault, Memory, budget};

#[test]
fn run_of_the_engine_leaves_a_complete_record() {
    let dir = tempfile::tempdir().unwrap();
    let target =
        EngineTarget::open(&dir.path().join("s"), &budget(Durability::Os), &BTreeMap::new())
            .unwrap();
    let spec = Spec {
        workload: Workload::Overwrite,
        keys: 20_000,
        values: ValueSizes::Fixed(500),
        length: Length::Operations(40_000),
        ..Spec::default()
    };
    let options = RunOptions { warm_up: Some(Length::Operations(1000)), ..RunOptions::default() };
    let loaded = prefill_and_run(&target, &spec, &options, &mut |_, _| {}).unwrap();
    assert!(loaded.error.is_none() && loaded.outcome.invalid.is_none(), "{loaded:?}");
    let outcome = &loaded.outcome;
    assert_eq!((outcome.operations, outcome.kinds["put"].count), (40_000, 40_000));
    assert_eq!(outcome.user_written_bytes, 40_000 * 516);
    assert_eq!(outcome.live_bytes, 20_000 * 516);
    assert!(outcome.cpu_settled_s >= outcome.cpu_s && outcome.cpu_s > 0.0);
    assert!(outcome.settle_s >= 1.0, "it is idle for a while: {}", outcome.settle_s);
    assert!(outcome.disk_bytes > outcome.live_bytes, "{outcome:?}");
    assert!(outcome.peak_resident_bytes > 1 << 20 && outcome.peak_anonymous_bytes > 1 << 20);
    assert_eq!(outcome.per_second.iter().sum::<u64>(), 40_000);
    assert_eq!(outcome.figures["exit.head.missed"], 0.0);
    assert!(
        outcome.figures["flush.count"] >= 1.0 && outcome.figures["stage.put.total.count"] > 0.0
    );
    let latency = &outcome.kinds["put"].latency;
    assert!(
        latency.p50_ns > 0 && latency.p50_ns <= latency.p99_ns && latency.p99_ns <= latency.max_ns
    );

    let name = RunName {
        experiment: "outcomes".into(),
        case: BTreeMap::new(),
        target: target.name().into(),
        repetition: 0,
        spec,
    };
    let path = dir.path().join("runs.jsonl");
    let mut runs = RunsFile::open(&path).unwrap();
    let record =
        name.record(target.settings(), target.directory(), SystemTime::now(), loaded.outcome);
    assert!(!record.machine.file_system.is_empty());
    assert!(record.target_settings.contains_key("memtable_bytes"));
    runs.append(record.clone()).unwrap();
    let runs = RunsFile::open(&path).unwrap();
    assert!(runs.has(&name));
    assert_eq!(runs.records(), [record]);
}

#[test]
fn store_that_cannot_fit_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let target =
        EngineTarget::open(&dir.path().join("s"), &budget(Durability::Os), &BTreeMap::new())
            .unwrap();
    let spec = Spec { keys: 1 << 45, workload: Workload::ReadRandom, ..Spec::default() };
    let error =
        prefill_and_run(&target, &spec, &RunOptions::default(), &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert_eq!(target.store().stats().puts, 0);
}

#[test]
fn unknown_settings_are_refused_with_the_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str, value: &str| {
        let settings = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        EngineTarget::open(&dir.path().join("s"), &budget(Durability::Os), &settings)
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    let error = open("memtable_byte", "1");
    assert!(error.contains("memtable_bytes") && error.contains("reading"), "{error}");
    assert!(open("memtable_bytes", "many").contains("many"));
    assert!(open("block_bytes", "1").contains("block_bytes"));
}

/// A target that acknowledged writes of keys that are there, or deletions, and made none of them was the fastest.
#[test]
fn writes_that_were_acknowledged_and_not_made_make_a_run_invalid() {
    let made = |workload, length| {
        let spec = Spec { workload, keys: 5_000, length, ..Spec::default() };
        let options = RunOptions { settle: false, ..RunOptions::default() };
        let honest = Memory::new();
        prefill(&honest, &spec, &options, &mut |_, _| {}).unwrap();
        let forgetful = honest.with(Fault::ForgetsFrom(1_000));
        let told = run(&forgetful, &spec, &options, &mut |_, _| {}).unwrap();
        assert!(matches!(told.error, Some(Error::WrongData(_))), "{workload:?}: {:?}", told.error);
        assert!(told.outcome.invalid.is_some());
        let told = run(&honest.with(Fault::None), &spec, &options, &mut |_, _| {}).unwrap();
        assert!(told.error.is_none(), "{workload:?}: {:?}", told.error);
        assert!(told.outcome.figures["writes.read_back"] > 100.0);
    };
    for workload in [Workload::Overwrite, Workload::YcsbA, Workload::DeleteRandom] {
        made(workload, Length::Operations(3_000));
    }
    // The same keys and the same writes, but for the workload that they are of.
    made(Workload::UpdateRandom, Length::Operations(3_000));
    made(Workload::Overwrite, Length::Time(std::time::Duration::from_millis(200)));
}

/// The puts beside reads were never read back: an engine that drops them reads the faster for it.
#[test]
fn writes_beside_reads_that_were_not_made_make_a_run_invalid() {
    // As long as it takes the writer to come to its turn.
    let length = Length::Operations(100_000);
    let base = Spec { workload: Workload::ReadWhileWriting, keys: 5_000, ..Spec::default() };
    let spec = Spec { length, threads: 2, background_rate: 0.0, ..base };
    let options = RunOptions { settle: false, ..RunOptions::default() };
    let honest = Memory::new();
    prefill(&honest, &spec, &options, &mut |_, _| {}).unwrap();
    let told = run(&honest.with(Fault::ForgetsFrom(1)), &spec, &options, &mut |_, _| {}).unwrap();
    assert!(matches!(told.error, Some(Error::WrongData(_))), "{:?}", told.error);
    assert!(told.outcome.kinds["put"].count > 0 && told.outcome.invalid.is_some());
    let told = run(&honest.with(Fault::None), &spec, &options, &mut |_, _| {}).unwrap();
    assert!(told.error.is_none(), "{:?}", told.error);
    assert!(told.outcome.figures["writes.read_back"] > 0.0);
}

/// It was told as a target that fell behind, which is a finding: the exit code was 0.
#[test]
fn writes_that_were_not_made_at_a_rate_that_was_not_kept_are_wrong_data() {
    let spec = Spec {
        workload: Workload::Overwrite,
        keys: 5_000,
        pace: Pace::Constant { per_second: 1_000_000.0 },
        length: Length::Time(std::time::Duration::from_millis(100)),
        ..Spec::default()
    };
    let options = RunOptions { settle: false, ..RunOptions::default() };
    let honest = Memory::new();
    prefill(&honest, &spec, &options, &mut |_, _| {}).unwrap();
    let forgetful = honest.with(Fault::TakesAndForgets(1000));
    let told = run(&forgetful, &spec, &options, &mut |_, _| {}).unwrap();
    assert!(told.outcome.operations < 100_000, "it fell behind: {}", told.outcome.operations);
    assert!(matches!(told.error, Some(Error::WrongData(_))), "{:?}", told.error);
    let invalid = told.outcome.invalid.unwrap();
    assert!(invalid.starts_with("wrong data"), "{invalid}");
}

/// A get that timed out when it was read back was told as wrong data.
#[test]
fn a_read_back_that_is_refused_is_no_wrong_data() {
    let length = Length::Operations(3_000);
    let spec = Spec { workload: Workload::Overwrite, keys: 5_000, length, ..Spec::default() };
    let options = RunOptions { settle: false, ..RunOptions::default() };
    let honest = Memory::new();
    prefill(&honest, &spec, &options, &mut |_, _| {}).unwrap();
    let refuses = honest.with(Fault::RefusesFrom(3_001));
    let told = run(&refuses, &spec, &options, &mut |_, _| {}).unwrap();
    assert!(matches!(told.error, Some(Error::Target { .. })), "{:?}", told.error);
    let invalid = told.outcome.invalid.unwrap();
    assert!(invalid.contains("read back") && invalid.contains("503"), "{invalid}");
}
