//! The generator is right: pauses are counted, latencies are those of the target, no slot is skipped,
//! and what can't be right ends the run.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tallybook_lab::Error;
use tallybook_lab::bare::{Bare, BareOptions};
use tallybook_lab::load::{LoadOptions, load};
use tallybook_lab::record::{KindOutcome, Standing};
use tallybook_lab::spec::{Length, Pace, Spec, Workload};
use tallybook_lab::target::http::HttpTarget;
use tallybook_lab::workload::Plan;

use crate::harness::{Fault, Memory, prefill, quick, run, tiny};

const PAUSE: Duration = Duration::from_secs(1);
const RATE: f64 = 2000.0;
const SECONDS: u64 = 4;

/// Reads of a server that knows no values.
fn reads(pace: Pace, threads: u32) -> Spec {
    Spec {
        workload: Workload::ReadRandom,
        pace,
        length: Length::Time(Duration::from_secs(SECONDS)),
        threads,
        verify: false,
        ..Spec::default()
    }
}

fn load_pausing(spec: &Spec) -> KindOutcome {
    let pause = Some((Duration::from_secs(1), PAUSE));
    let server = Bare::start(BareOptions { pause, ..BareOptions::default() }).unwrap();
    let loaded = run(&HttpTarget::new(&server.url()).unwrap(), spec);
    assert!(loaded.error.is_none(), "{:?}", loaded.error);
    loaded.outcome.kinds["get"].clone()
}

/// Latencies that a server has that answers at once but for a pause of so many seconds, at a constant rate:
/// a request that is due in the pause waits for its end.
fn expected_ns(quantile: f64, pause: f64) -> f64 {
    let end = 1.0 + pause;
    let all = (RATE * SECONDS as f64) as u64;
    let mut latencies: Vec<f64> = (0..all)
        .map(|nth| nth as f64 / RATE)
        .map(|due| if (1.0..end).contains(&due) { (end - due) * 1e9 } else { 0.0 })
        .collect();
    latencies.sort_by(f64::total_cmp);
    latencies[(quantile * all as f64).ceil() as usize - 1]
}

#[test]
fn pause_counts_in_every_request_that_it_held_up() {
    let get = load_pausing(&reads(Pace::Constant { per_second: RATE }, 16));
    assert_eq!(get.count, (RATE * SECONDS as f64) as u64, "no slot is skipped");
    // 16 connections held one request each; the rest were due, and not yet sent.
    let second = 1_000_000_000;
    assert!(get.from_sent.p99_ns < second / 4, "{:?}", get.from_sent);
    assert!(get.from_sent.max_ns > second * 9 / 10, "{:?}", get.from_sent);
    // As long as it was for those that it held, which on a busy machine is longer than was asked for.
    let pause = get.from_sent.max_ns as f64 / 1e9;
    let found =
        [(0.99, get.latency.p99_ns), (0.999, get.latency.p999_ns), (1.0, get.latency.max_ns)];
    for (quantile, found) in found {
        let expected = expected_ns(quantile, pause);
        let ratio = found as f64 / expected;
        assert!((0.95..1.05).contains(&ratio), "{quantile}: {found} ns, expected {expected}");
    }
    let p90 = get.latency.p90_ns as f64 / expected_ns(0.9, pause);
    // The queue that the pause left takes its time to drain.
    assert!((0.95..1.25).contains(&p90), "p90 is {p90} of what was expected");
    assert!(get.latency.p50_ns < second / 2, "{:?}", get.latency);
}

#[test]
fn closed_loop_is_blind_to_the_same_pause() {
    let get = load_pausing(&reads(Pace::Closed, 16));
    assert!(get.latency.p99_ns < 250_000_000, "{:?}", get.latency);
    assert!(get.latency.max_ns > 900_000_000, "{:?}", get.latency);
}

#[test]
fn known_latency_is_what_is_measured() {
    // Long beside what a busy machine adds, and rare enough that no connection is waited for.
    let delay = Duration::from_millis(100);
    let server = Bare::start(BareOptions { delay, ..BareOptions::default() }).unwrap();
    let target = HttpTarget::new(&server.url()).unwrap();
    for pace in
        [Pace::Constant { per_second: 60.0 }, Pace::Poisson { per_second: 60.0 }, Pace::Closed]
    {
        let loaded = run(&target, &reads(pace, 32));
        let get = &loaded.outcome.kinds["get"];
        for p50 in [get.latency.p50_ns, get.from_sent.p50_ns] {
            let ratio = p50 as f64 / delay.as_nanos() as f64;
            assert!((1.0..1.02).contains(&ratio), "{pace:?}: {p50} ns");
        }
    }
}

#[test]
fn overloaded_target_gets_every_request_late_and_none_skipped() {
    let memory = Memory::new();
    let spec = Spec {
        workload: Workload::HeadRandom,
        // Each thread can make fewer than 1,000 a second.
        pace: Pace::Constant { per_second: 3000.0 },
        length: Length::Time(Duration::from_secs(1)),
        verify: false,
        ..tiny(Workload::HeadRandom)
    };
    let loaded = run(&memory.with(Fault::Takes(1000)), &spec);
    let head = &loaded.outcome.kinds["head"];
    assert_eq!(head.count, 3000);
    assert!(loaded.outcome.seconds > 1.4, "{}", loaded.outcome.seconds);
    assert!(head.latency.max_ns > 400_000_000, "from when it was due: {:?}", head.latency);
    assert!(head.from_sent.p50_ns < head.latency.p50_ns, "{head:?}");
    // The target was late, not the generator.
    assert!(loaded.outcome.generator_lag_max_s < 0.4, "{}", loaded.outcome.generator_lag_max_s);
}

#[test]
fn lag_beyond_the_bound_makes_a_run_invalid() {
    let spec = Spec {
        pace: Pace::Constant { per_second: 5000.0 },
        length: Length::Operations(1000),
        verify: false,
        ..tiny(Workload::HeadRandom)
    };
    let plan = Plan::new(&spec).unwrap();
    let server = Bare::start(BareOptions::default()).unwrap();
    let http = HttpTarget::new(&server.url()).unwrap();
    for target in [&Memory::new() as &dyn tallybook_lab::target::Target, &http] {
        let checked = |lag_max| {
            let options = LoadOptions { lag_max, ..LoadOptions::default() };
            load(target, &plan, &options, &mut |_, _| {}).unwrap().outcome
        };
        // Nobody sends to the nanosecond.
        let invalid = checked(Duration::ZERO).invalid.unwrap();
        assert!(invalid.starts_with("the generator lagged"), "{invalid}");
        let outcome = checked(Duration::from_secs(10));
        assert_eq!((outcome.invalid, outcome.operations), (None, 1000));
        assert!(outcome.generator_lag_max_s > 0.0);
    }
}

/// A rate that nobody can take.
fn beyond() -> Spec {
    Spec {
        workload: Workload::HeadRandom,
        pace: Pace::Constant { per_second: 1_000_000.0 },
        length: Length::Time(Duration::from_millis(500)),
        verify: false,
        ..tiny(Workload::HeadRandom)
    }
}

#[test]
fn rate_beyond_a_target_ends_with_the_reason() {
    let loaded = run(&Memory::new().with(Fault::Takes(1000)), &beyond());
    let invalid = loaded.outcome.invalid.unwrap();
    assert!(invalid.contains("beyond it"), "{invalid}");
    assert!(loaded.outcome.operations > 0);
}

/// A server that refused half of what it was asked, and fell behind with the rest, was a finding: the latencies of the
/// rest stood in tables and comparisons, and the exit code was 0.
#[test]
fn rate_beyond_a_target_that_refuses_requests_is_no_finding() {
    let outcome = run(&Memory::new().with(Fault::TakesAndRefuses(1000)), &beyond()).outcome;
    assert_eq!(outcome.standing(), Standing::Lost, "{:?}", outcome.invalid);
    let invalid = outcome.invalid.unwrap();
    assert!(invalid.contains("requests failed"), "{invalid}");
}

#[test]
fn lying_target_ends_the_run_as_wrong_data() {
    let memory = Memory::new();
    let spec = tiny(Workload::ReadRandom);
    prefill(&memory, &spec);
    for fault in [Fault::LiesAt(700), Fault::LosesAt(700)] {
        for pace in [Pace::Closed, Pace::Constant { per_second: 20_000.0 }] {
            let loaded = run(&memory.with(fault), &Spec { pace, ..spec.clone() });
            let error = loaded.error.unwrap();
            assert!(matches!(error, Error::WrongData(_)), "{fault:?}: {error}");
            assert!(loaded.outcome.invalid.unwrap().starts_with("wrong data"));
            assert!((600..1500).contains(&loaded.outcome.operations), "what came before is kept");
        }
    }
    assert!(run(&memory, &spec).error.is_none());
}

#[test]
fn dying_target_leaves_what_was_measured() {
    let memory = Memory::new();
    let spec = tiny(Workload::ReadRandom);
    prefill(&memory, &spec);
    for fault in [Fault::DiesAt(700), Fault::Panics(700)] {
        let loaded = run(&memory.with(fault), &spec);
        assert!(matches!(loaded.error, Some(Error::Target { .. })), "{:?}", loaded.error);
        assert!(loaded.outcome.invalid.unwrap().starts_with("memory: it "));
        // A whole run said of a target that panicked: "target: it panicked".
        let whole =
            tallybook_lab::run::run(&memory.with(fault), &spec, &quick(), &mut |_, _| {}).unwrap();
        let invalid = whole.outcome.invalid.unwrap();
        assert!(invalid.starts_with("memory: it "), "{invalid}");
        if fault == Fault::DiesAt(700) {
            assert_eq!(loaded.outcome.operations, 699);
            assert!(!loaded.outcome.kinds["get"].latency.histogram.is_empty());
        }
    }
}

#[test]
fn refusals_are_counted_by_kind_and_are_no_answers() {
    let memory = Memory::new();
    let spec = Spec { threads: 1, ..tiny(Workload::YcsbA) };
    prefill(&memory, &spec);
    let loaded = run(&memory.with(Fault::RefusesEvery(10)), &spec);
    assert!(loaded.error.is_none(), "{:?}", loaded.error);
    let refused: u64 = loaded.outcome.kinds.values().map(|kind| kind.errors["503"]).sum();
    assert_eq!((refused, loaded.outcome.operations), (150, 1350));
    assert_eq!((loaded.outcome.errors(), loaded.outcome.error_share()), (150, 0.1));
    let invalid = loaded.outcome.invalid.unwrap();
    assert!(invalid.contains("150 requests failed, 10.00 %"), "{invalid}");
    // One in a thousand and a half may fail.
    let outcome = run(&memory.with(Fault::RefusesEvery(1200)), &spec).outcome;
    assert_eq!((outcome.errors(), outcome.invalid), (1, None));
}

/// The puts beside were counted with the gets, so that an engine whose gets were slow had its rate from puts.
#[test]
fn puts_of_the_writer_beside_are_no_operations_and_what_it_kept_is_told() {
    let memory = Memory::new();
    let spec = Spec {
        workload: Workload::ReadWhileWriting,
        length: Length::Time(Duration::from_secs(1)),
        background_rate: 500.0,
        threads: 1,
        ..tiny(Workload::ReadWhileWriting)
    };
    prefill(&memory, &spec);
    let kept = |fault, rate| {
        let spec = Spec { background_rate: rate, ..spec.clone() };
        let outcome = run(&memory.with(fault), &spec).outcome;
        let (get, put) = (&outcome.kinds["get"], &outcome.kinds["put"]);
        assert!(put.count > 0);
        assert_eq!(outcome.operations, get.count);
        assert_eq!(outcome.per_second.iter().sum::<u64>(), get.count);
        assert_eq!(get.per_second.len(), outcome.per_second.len());
        outcome.figures.get("writer.kept_share").copied()
    };
    assert!(kept(Fault::None, 500.0).unwrap() > 0.9);
    // Fewer than a thousand a second.
    let half = kept(Fault::Takes(1000), 2000.0).unwrap();
    assert!((0.05..0.55).contains(&half), "{half}");
    assert_eq!(kept(Fault::None, 0.0), None);
}

#[test]
fn interrupt_keeps_what_was_measured() {
    let memory = Memory::new();
    for workload in [Workload::ReadRandom, Workload::ReadWhileWriting] {
        let spec = Spec { length: Length::Time(Duration::from_secs(3600)), ..tiny(workload) };
        prefill(&memory, &spec);
        let options = LoadOptions::default();
        let stop = options.stop.clone();
        let mut told = 0;
        let plan = Plan::new(&spec).unwrap();
        let loaded = load(&memory, &plan, &options, &mut |progress, _| {
            told += 1;
            if progress.elapsed > Duration::from_millis(500) {
                assert!(progress.left.unwrap() > Duration::from_secs(3500));
                stop.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
        assert!(told > 0 && matches!(loaded.error, Some(Error::Interrupted)));
        assert!(loaded.outcome.operations > 0);
    }
}
