//! The experiments that vary our own settings at their tiny size, made against an engine in this process,
//! and their reports.

use std::collections::{BTreeMap, HashSet};
use std::time::SystemTime;

use super::{Experiment, PlannedRun, Scale, Subject, find};
use crate::record::{FELL_BEHIND, Record};
use crate::run;
use crate::runs_file::RunName;
use crate::spec::{Length, Pace};
use crate::target::Target;
use crate::target::engine::EngineTarget;

/// The experiments that vary our own settings.
fn ours() -> impl Iterator<Item = &'static dyn Experiment> {
    ["stages-over-time", "flush-threads", "table-collapse", "flush-stall", "collection"]
        .into_iter()
        .map(|name| find(name).unwrap())
}

/// Makes the runs, servers' ones on an engine too: a report knows records alone.
pub(super) fn records(experiment: &dyn Experiment) -> Vec<Record> {
    let directory = tempfile::tempdir().unwrap();
    let mut open: Option<(String, EngineTarget)> = None;
    let mut records = Vec::new();
    for (at, planned) in experiment.runs(Scale::Tiny, &[]).unwrap().into_iter().enumerate() {
        let store = planned.shared_store.clone().unwrap_or_else(|| format!("run {at}"));
        let target = match open.take() {
            Some((name, target)) if name == store => target,
            closed => {
                if let Some((_, target)) = closed {
                    Box::new(target).close().unwrap();
                }
                opened(&planned, &directory.path().join(store.replace(' ', "-")))
            }
        };
        let options = run::RunOptions { settle: false, ..planned.options.clone() };
        let loaded = run::run(&target, &planned.spec, &options, &mut |_, _| {}).unwrap();
        assert!(loaded.error.is_none(), "{}: {loaded:?}", experiment.name());
        let name = RunName {
            experiment: experiment.name().to_owned(),
            case: planned.case,
            target: planned.target,
            repetition: planned.repetition,
            spec: planned.spec,
        };
        records.push(name.record(
            target.settings(),
            target.directory(),
            SystemTime::now(),
            loaded.outcome,
        ));
        open = Some((store, target));
    }
    records
}

fn opened(planned: &PlannedRun, directory: &std::path::Path) -> EngineTarget {
    let settings = match &planned.subject {
        Subject::Engine { settings } => settings.clone(),
        _ => BTreeMap::new(),
    };
    let target = EngineTarget::open(directory, &planned.budget, &settings).unwrap();
    let options = run::RunOptions { settle: false, ..planned.options.clone() };
    match planned.filled_by() {
        Some(fill) => drop(run::run(&target, fill, &options, &mut |_, _| {}).unwrap()),
        None => run::prefill(&target, planned.fill(), &options, &mut |_, _| {}).unwrap(),
    }
    target.store().flush().unwrap();
    target
}

/// What every report must have: an answer of one sentence with figures, and its sections.
pub(super) fn check_report(experiment: &dyn Experiment, sections: &[&str]) -> Vec<Record> {
    let mut records = records(experiment);
    // Tests run beside each other, so a run may lag or fall behind; that isn't asked here.
    for record in &mut records {
        record.outcome.invalid = None;
    }
    let report = experiment.report(&records, "tallybook lab run it");
    let html = report.html();
    for section in sections {
        assert!(html.contains(&format!("<h2>{section}</h2>")), "{section}");
    }
    let summary = report.summary_markdown();
    let answer = summary.lines().find_map(|line| line.strip_prefix("**")).unwrap();
    assert!(!answer.contains("no answer"), "{answer}");
    assert!(answer.ends_with(".**") && !answer.contains(". "), "one sentence: {answer}");
    assert!(answer.chars().filter(char::is_ascii_digit).count() >= 4, "figures: {answer}");
    assert!(!answer.contains("NaN") && !answer.contains("- against"), "{answer}");
    assert!(summary.contains("| ---") && summary.contains(".svg)"), "{summary}");
    records
}

#[test]
fn planned_runs_are_sound_told_apart_and_stores_are_used_in_one_go() {
    for experiment in ours() {
        for scale in Scale::ALL {
            let runs = experiment.runs(*scale, &[]).unwrap();
            let mut told_apart = HashSet::new();
            let mut stores: Vec<&str> = Vec::new();
            for planned in &runs {
                planned.spec.check().unwrap();
                assert_eq!(planned.spec.durability, planned.budget.durability);
                let name = (&planned.case, &planned.target, planned.repetition);
                assert!(told_apart.insert(format!("{name:?}")), "{name:?} twice");
                if let Some(store) = &planned.shared_store
                    && stores.last() != Some(&store.as_str())
                {
                    assert!(!stores.contains(&store.as_str()), "{store} is returned to");
                    stores.push(store);
                }
            }
        }
    }
}

#[test]
fn repetitions_come_one_after_another_with_every_case_in_each() {
    for experiment in ours() {
        let runs = experiment.runs(Scale::Small, &[]).unwrap();
        assert!(runs.is_sorted_by_key(|planned| planned.repetition), "{}", experiment.name());
        let cases = |repetition| {
            let of = runs.iter().filter(|planned| planned.repetition == repetition);
            of.map(|planned| planned.case.clone()).collect::<Vec<_>>()
        };
        let last = runs.last().unwrap().repetition;
        for repetition in 0..=last {
            assert_eq!(cases(repetition), cases(0), "{}", experiment.name());
        }
        let seeds = |repetition| {
            let of = runs.iter().filter(|planned| planned.repetition == repetition);
            of.map(|planned| planned.spec.seed).collect::<HashSet<_>>()
        };
        assert!(last == 0 || seeds(0).is_disjoint(&seeds(1)), "{}", experiment.name());
    }
}

#[test]
fn engines_open_with_the_settings_that_are_planned() {
    for experiment in ours() {
        for scale in Scale::ALL {
            let directory = tempfile::tempdir().unwrap();
            let mut seen = HashSet::new();
            for planned in experiment.runs(*scale, &[]).unwrap() {
                let Subject::Engine { settings } = &planned.subject else { continue };
                if seen.insert(format!("{settings:?} {:?}", planned.budget)) {
                    let directory = directory.path().join(seen.len().to_string());
                    EngineTarget::open(&directory, &planned.budget, settings).unwrap();
                }
            }
        }
    }
}

#[test]
fn tiny_takes_seconds_and_small_less_than_half_an_hour() {
    for experiment in ours() {
        // Loads alone; each store adds its filling, and each run its settling.
        let tiny: f64 = loads_s(experiment, Scale::Tiny);
        let small = loads_s(experiment, Scale::Small);
        assert!(tiny < 5.0, "{}: {tiny} s", experiment.name());
        assert!(small < 20.0 * 60.0, "{}: {small} s", experiment.name());
        assert!(loads_s(experiment, Scale::Full) > small, "{}", experiment.name());
    }
}

fn loads_s(experiment: &dyn Experiment, scale: Scale) -> f64 {
    let seconds = |planned: &PlannedRun| match (planned.spec.length, planned.spec.pace) {
        (Length::Time(time), _) => time.as_secs_f64(),
        (
            Length::Operations(count),
            Pace::Constant { per_second } | Pace::Poisson { per_second },
        ) => count as f64 / per_second,
        // As fast as possible: at least so many a second.
        (Length::Operations(count), Pace::Closed) => count as f64 / 50_000.0,
    };
    experiment.runs(scale, &[]).unwrap().iter().map(seconds).sum()
}

#[test]
fn reports_of_nothing_and_of_failed_runs_are_drawn_and_give_no_answer() {
    for experiment in ours() {
        let html = experiment.report(&[], "again").html();
        assert!(html.contains("These runs give no answer."), "{}", experiment.name());
        let planned = experiment.runs(Scale::Tiny, &[]).unwrap();
        let failed: Vec<Record> = planned
            .into_iter()
            .map(|planned| {
                let name = RunName {
                    experiment: experiment.name().to_owned(),
                    case: planned.case,
                    target: planned.target,
                    repetition: planned.repetition,
                    spec: planned.spec,
                };
                let invalid = Some("wrong data: key 7".to_owned());
                let outcome = crate::record::Outcome { invalid, ..Default::default() };
                name.record(BTreeMap::new(), None, SystemTime::now(), outcome)
            })
            .collect();
        let html = experiment.report(&failed, "again").html();
        assert!(html.contains("These runs give no answer."), "{}", experiment.name());
        assert!(html.contains("wrong data: key 7"), "{}", experiment.name());
    }
}

#[test]
fn a_target_that_fell_behind_is_told_as_such() {
    let experiment = find("table-collapse").unwrap();
    let mut records = records(experiment);
    for record in &mut records {
        record.outcome.invalid = Some(FELL_BEHIND.to_owned());
    }
    let html = experiment.report(&records, "again").html();
    assert!(html.contains("no: not kept up"));
}

#[test]
fn what_varies_our_own_settings_refuses_rivals() {
    let against = ["rocksdb".to_owned()];
    for experiment in ours() {
        let error = experiment.runs(Scale::Tiny, &against).unwrap_err().to_string();
        assert!(error.contains("rocksdb"), "{error}");
    }
}

#[test]
fn flush_stall_answers_from_tiny_runs() {
    let sections = ["Puts across flushes", "Misses against hits", "Gets as tables accumulate"];
    let records = check_report(find("flush-stall").unwrap(), &sections);
    let flushes = |flush: &str| {
        let of = records.iter().find(|record| record.case.get("flush").is_some_and(|f| f == flush));
        of.unwrap().outcome.figures["flush.count"]
    };
    assert!(flushes("background") >= 1.0, "puts go across flushes");
    assert_eq!(flushes("none"), 0.0);
}

#[test]
fn flush_threads_answers_from_tiny_runs() {
    let sections = ["At 2,000 requests/s", "At 5,000 requests/s"];
    let records = check_report(find("flush-threads").unwrap(), &sections);
    assert_eq!(records.len(), 16);
}

#[test]
fn table_collapse_answers_from_tiny_runs_and_has_the_tables_it_names() {
    let sections = [
        "Five runs against a server",
        "Tables and misses, compaction off",
        "Tables and misses over HTTP, compaction off",
        "Flush threshold",
    ];
    let records = check_report(find("table-collapse").unwrap(), &sections);
    let is_counted = |record: &&Record| ["tables", "http"].contains(&&*record.case["part"]);
    for record in records.iter().filter(is_counted) {
        let wanted: f64 = record.case["tables"].parse().unwrap();
        let there = record.outcome.figures["level0.runs"];
        // The server of these tests has memtables of its own size.
        if record.case["part"] == "tables" {
            assert!((wanted * 0.9..=wanted * 1.1).contains(&there), "{there} of {wanted}");
        }
        let missed = record.outcome.kinds["get"].missed as f64 / record.outcome.operations as f64;
        let expected = match &*record.case["misses"] {
            "0 %" => 0.0..=0.0,
            "100 %" => 1.0..=1.0,
            _ => 0.2..=0.5,
        };
        assert!(expected.contains(&missed), "{missed} of {:?}", record.case);
    }
    let tables = |bytes: &str| {
        let of = |record: &&Record| {
            record.case.get("threshold").is_some_and(|one| one == bytes)
                && record.case["asked"] == "get"
        };
        records.iter().find(of).unwrap().outcome.figures["level0.runs"]
    };
    assert!(tables("65536") > tables("1048576"), "larger memtables leave fewer tables");
}

#[test]
fn collection_answers_from_tiny_runs() {
    let records = check_report(find("collection").unwrap(), &["Space", "Latency"]);
    let setting = |record: &Record| record.target_settings["collection_live_ratio"].clone();
    for record in &records {
        let expected = if record.case["collection"] == "on" { "0.5" } else { "0" };
        assert_eq!(setting(record), expected);
    }
}

#[test]
fn stages_over_time_answers_from_tiny_runs() {
    let sections = ["Latency from outside", "Stages", "Where reads ended"];
    let records = check_report(find("stages-over-time").unwrap(), &sections);
    assert!(records.iter().all(|record| record.outcome.figures["stage.get.head.count"] > 0.0));
    assert!(records.iter().any(|record| record.outcome.figures["exit.head.missed"] > 0.0));
}
