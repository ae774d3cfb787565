//! `/stages` and sampling: what is timed, over which time, and how that is changed while running.

use serde_json::Value;
use tallybook::stages::{Exit, Stage};

use crate::harness::{Client, Running, start};

fn count(period: &Value, list: &str, key: &str, name: &str) -> u64 {
    let all = period[list].as_array().unwrap();
    let found = all.iter().find(|times| times[key] == name);
    found.unwrap_or_else(|| panic!("no {name}"))["count"].as_u64().unwrap()
}

fn puts_timed(page: &Value) -> u64 {
    count(&page["since_start"], "stages", "stage", "put.total")
}

fn put_some(running: &Running, count: u64) {
    let mut client = running.client();
    for number in 0..count {
        assert_eq!(client.put(&format!("/kv/{number}"), b"v").status, 201);
    }
}

fn set_sampling(running: &Running, query: &str) -> u16 {
    running.admin_client().request("PUT", &format!("/stages/sampling{query}"), &[], None).status
}

#[test]
fn every_stage_exit_and_operation_is_named_with_its_times() {
    let running = start();
    put_some(&running, 10);
    let page = running.stages();
    for period in ["since_start", "interval"] {
        let period = &page[period];
        assert!(period["seconds"].as_f64().unwrap() > 0.0);
        let stages = period["stages"].as_array().unwrap();
        let names: Vec<_> = stages.iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
        assert_eq!(names, Stage::ALL.iter().map(|stage| stage.name()).collect::<Vec<_>>());
        let operations = period["operations"].as_array().unwrap();
        let names: Vec<_> =
            operations.iter().map(|one| one["operation"].as_str().unwrap()).collect();
        let all = ["get", "head", "put", "delete", "scan", "batch", "files", "s3", "other"];
        assert_eq!(names, all);
        for times in stages.iter().chain(operations) {
            let ns = |name: &str| times[name].as_u64().unwrap_or_else(|| panic!("no {name}"));
            assert!(ns("p50_ns") <= ns("p90_ns") && ns("p90_ns") <= ns("p99_ns"), "{times}");
            assert!(ns("p99_ns") <= ns("p999_ns") && ns("p999_ns") <= ns("max_ns"), "{times}");
            assert!(ns("mean_ns") <= ns("max_ns") && ns("mean_ns") <= ns("total_ns"), "{times}");
        }
        for exit in Exit::ALL {
            assert!(period["exits"][exit.name()].is_u64(), "{}", exit.name());
        }
    }
    assert_eq!(count(&page["since_start"], "operations", "operation", "put"), 10);
    assert_eq!(page["sample_every"], 256);
}

#[test]
fn the_interval_is_shorter_than_the_whole_and_says_how_long_it_is() {
    let running = start();
    let seconds = |page: &Value, period: &str| page[period]["seconds"].as_f64().unwrap();
    let page = running.stages();
    assert!(seconds(&page, "interval") <= seconds(&page, "since_start"));
    put_some(&running, 10);
    let later = running.stages();
    assert!(seconds(&later, "since_start") > seconds(&page, "since_start"));
    for operation in ["put", "get"] {
        let of = |period: &str| count(&later[period], "operations", "operation", operation);
        assert!(of("interval") <= of("since_start"));
    }
}

#[test]
fn change_of_sampling_takes_effect_at_once() {
    let running = start();
    assert_eq!(set_sampling(&running, "?every=0"), 200);
    let off = running.stages();
    assert_eq!(off["sample_every"], 0);
    put_some(&running, 600);
    let still_off = running.stages();
    assert_eq!(puts_timed(&still_off), puts_timed(&off));
    assert_eq!(set_sampling(&running, "?every=1"), 200);
    put_some(&running, 50);
    let on = running.stages();
    assert_eq!(on["sample_every"], 1);
    assert!(puts_timed(&on) >= puts_timed(&off) + 50, "{} {}", puts_timed(&on), puts_timed(&off));
}

#[test]
fn sampling_out_of_range_is_refused_and_changes_nothing() {
    let running = start();
    for query in ["", "?", "?every", "?every=", "?every=-1", "?every=1048577", "?every=1.5", "?x=1"]
    {
        assert_eq!(set_sampling(&running, query), 400, "{query:?}");
    }
    assert_eq!(running.stages()["sample_every"], 256);
    assert_eq!(set_sampling(&running, "?every=1048576"), 200);
    assert_eq!(running.stages()["sample_every"], 1_048_576);
}

#[test]
fn sampling_is_changed_by_put_on_the_admin_listener_alone() {
    let running = start();
    for method in ["GET", "POST", "DELETE"] {
        let mut admin = running.admin_client();
        let reply = admin.request(method, "/stages/sampling?every=1", &[], None);
        assert_eq!((reply.status, reply.header("allow")), (405, "PUT"), "{method}");
    }
    let mut data = Client::connect(running.data);
    assert_eq!(data.request("PUT", "/stages/sampling?every=1", &[], None).status, 400);
    assert_eq!(running.stages()["sample_every"], 256);
}

#[test]
fn sampling_of_every_operation_stays_correct_under_full_load() {
    let running = start();
    assert_eq!(set_sampling(&running, "?every=1"), 200);
    let before = puts_timed(&running.stages());
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let running = &running;
            scope.spawn(move || {
                let mut client = running.client();
                for number in 0..250 {
                    let key = format!("/kv/{writer}/{number}");
                    assert_eq!(client.put(&key, key.as_bytes()).status, 201);
                    assert_eq!(client.get(&key).body, key.as_bytes());
                }
            });
        }
        for _ in 0..20 {
            let page = running.stages();
            assert!(puts_timed(&page) - before <= 1000);
            running.metrics();
        }
    });
    assert_eq!(puts_timed(&running.stages()) - before, 1000);
}
