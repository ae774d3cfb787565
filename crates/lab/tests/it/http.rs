//! Servers of other makes: whatever manner of HTTP/1.1 they have, every request gets its answer once.

use std::net::TcpListener;
use std::time::Duration;

use tallybook_lab::Error;
use tallybook_lab::bare::{Bare, BareOptions};
use tallybook_lab::load::{LoadOptions, load};
use tallybook_lab::record::Standing;
use tallybook_lab::spec::{Length, Pace, Spec, ValueSizes, Workload};
use tallybook_lab::target::http::HttpTarget;
use tallybook_lab::workload::Plan;

use crate::harness::{Foreign, Manner, prefill, run, tiny};

/// Fills a server, then reads, updates and heads, over several connections, pipelined.
fn check(manner: Manner) {
    let server = Foreign::start(manner);
    let target = HttpTarget::new(&server.url()).unwrap();
    let values = ValueSizes::Uniform { min: 0, max: 300 };
    let base = Spec { keys: 300, threads: 3, pipeline: 4, values, ..tiny(Workload::YcsbA) };
    prefill(&target, &base);
    for workload in
        [Workload::YcsbA, Workload::UpdateRandom, Workload::ReadMissing, Workload::HeadRandom]
    {
        let spec = Spec { workload, ..base.clone() };
        let loaded = run(&target, &spec);
        assert!(loaded.error.is_none(), "{manner:?} {workload:?}: {:?}", loaded.error);
        assert_eq!(loaded.outcome.operations, 1500, "{manner:?} {workload:?}");
        assert!(loaded.outcome.kinds.values().all(|kind| kind.errors.is_empty()), "{manner:?}");
    }
}

/// It answers what it holds, and 404 to what it doesn't.
#[test]
fn bare_server_answers_from_a_hash_map() {
    let bare = Bare::start(BareOptions { keys: 300, ..BareOptions::default() }).unwrap();
    let target = HttpTarget::new(&bare.url()).unwrap();
    for (workload, kind) in [
        (Workload::ReadRandom, "get"),
        (Workload::ReadMissing, "get"),
        (Workload::HeadRandom, "head"),
    ] {
        // Its values are all alike.
        let loaded = run(&target, &Spec { keys: 300, verify: false, ..tiny(workload) });
        let kind = &loaded.outcome.kinds[kind];
        let absent = if workload == Workload::ReadMissing { kind.count } else { 0 };
        assert_eq!((kind.count, kind.missed), (1500, absent), "{workload:?}: {kind:?}");
    }
}

/// What is put is what is read: every key is put, and every value compared.
#[test]
fn bare_server_keeps_what_is_put_in_its_hash_map() {
    let bare = Bare::start(BareOptions { keys: 1, ..BareOptions::default() }).unwrap();
    let target = HttpTarget::new(&bare.url()).unwrap();
    for (workload, kind) in [(Workload::FillSeq, "put"), (Workload::ReadRandom, "get")] {
        let loaded = run(&target, &Spec { keys: 300, ..tiny(workload) });
        assert!(loaded.error.is_none(), "{workload:?}: {:?}", loaded.error);
        let kind = &loaded.outcome.kinds[kind];
        assert!(kind.count >= 300 && kind.missed == 0 && kind.errors.is_empty(), "{kind:?}");
    }
}

#[test]
fn plain_server() {
    check(Manner::Plain);
}

#[test]
fn server_of_small_chunks_and_odd_case() {
    check(Manner::Chunked);
}

#[test]
fn server_that_closes_with_a_word() {
    check(Manner::ClosesPolitely);
}

#[test]
fn server_that_closes_without_a_word() {
    check(Manner::ClosesSilently);
}

#[test]
fn server_whose_bodies_end_with_the_connection() {
    check(Manner::ToEnd);
}

#[test]
fn server_that_cuts_answers() {
    check(Manner::Cuts);
}

#[test]
fn refused_inserts_are_errors_and_what_they_would_have_put_may_be_absent() {
    let server = Foreign::start(Manner::Refuses);
    let target = HttpTarget::new(&server.url()).unwrap();
    let options = tallybook_lab::run::RunOptions { settle: false, ..Default::default() };
    // The two prefilled keys are put over connections of which none has made a second put.
    let spec = Spec { keys: 2, threads: 2, pipeline: 4, ..tiny(Workload::YcsbD) };
    tallybook_lab::run::prefill(&target, &spec, &options, &mut |_, _| {}).unwrap();
    let loaded = run(&target, &spec);
    assert!(loaded.error.is_none(), "{:?}", loaded.error);
    let put = &loaded.outcome.kinds["put"];
    assert!(put.errors["503"] >= 2 && put.count > put.errors["503"], "{put:?}");
    assert!(loaded.outcome.kinds["get"].missed > 0, "newest keys are read most");
    let many = Spec { keys: 200, ..spec };
    let refused = tallybook_lab::run::prefill(&target, &many, &options, &mut |_, _| {});
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("puts failed: 503"), "{error}");
}

#[test]
fn server_that_never_answers_is_a_time_out_of_each_request() {
    let server = Foreign::start(Manner::Silent);
    let target = HttpTarget::new(&server.url()).unwrap().with_timeout(Duration::from_millis(300));
    let length = tallybook_lab::spec::Length::Operations(8);
    let spec = Spec { length, threads: 2, pipeline: 2, ..tiny(Workload::ReadMissing) };
    let loaded = run(&target, &spec);
    assert!(loaded.error.is_none(), "{:?}", loaded.error);
    let get = &loaded.outcome.kinds["get"];
    assert_eq!((get.errors["time-out"], get.count, loaded.outcome.operations), (8, 0, 0));
    assert!(get.latency.p50_ns >= 300_000_000, "{:?}", get.latency);
}

/// What it never answered was in no error and no latency, and what it took was shared out over the time before.
#[test]
fn server_that_stops_answering_has_what_is_under_way_counted_as_waited_for() {
    let server = Foreign::start(Manner::SilentFrom(50));
    let target = HttpTarget::new(&server.url()).unwrap();
    let spec = Spec {
        pace: Pace::Constant { per_second: 1000.0 },
        length: Length::Time(Duration::from_millis(400)),
        threads: 2,
        pipeline: 2,
        ..tiny(Workload::ReadMissing)
    };
    // On a busy machine the generator lags, and that would be told first.
    let options = LoadOptions { lag_max: Duration::MAX, ..LoadOptions::default() };
    let loaded = load(&target, &Plan::new(&spec).unwrap(), &options, &mut |_, _| {}).unwrap();
    assert!(loaded.error.is_none(), "{:?}", loaded.error);
    let outcome = loaded.outcome;
    assert_eq!(outcome.standing(), Standing::FellBehind);
    let get = &outcome.kinds["get"];
    assert_eq!((get.count, get.errors["time-out"]), (98, 4));
    assert!(get.latency.max_ns > 10_000_000_000, "{:?}", get.latency);
    let share = outcome.throughput() / 1000.0;
    assert!(share < 0.02, "{share} of the rate");
}

#[test]
fn server_of_another_protocol_ends_the_run() {
    let server = Foreign::start(Manner::Nonsense);
    let target = HttpTarget::new(&server.url()).unwrap();
    let loaded = run(&target, &tiny(Workload::ReadMissing));
    let invalid = loaded.outcome.invalid.unwrap();
    assert!(invalid.contains("no HTTP answer"), "{invalid}");
}

#[test]
fn server_that_is_not_there_is_said_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let target = HttpTarget::new(&url).unwrap();
    let plan = tallybook_lab::workload::Plan::new(&tiny(Workload::ReadMissing)).unwrap();
    let options = tallybook_lab::load::LoadOptions::default();
    let error = tallybook_lab::load::load(&target, &plan, &options, &mut |_, _| {}).unwrap_err();
    assert!(matches!(&error, Error::Target { target, .. } if *target == url), "{error}");
}
