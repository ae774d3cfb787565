//! Every workload on every kind of target: it runs, every answer is verified, and the work is the
//! same wherever it is done.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use tallybook_lab::spec::{Durability, KeyDistribution, Pace, Spec, ValueSizes, Workload};
use tallybook_lab::target::Target;
use tallybook_lab::target::engine::EngineTarget;
use tallybook_lab::target::floor::Floor;
use tallybook_lab::target::http::HttpTarget;
use tallybook_server::{DurabilityLevel, Server, ServerOptions, ShutdownHandle};
use tempfile::TempDir;

use crate::harness::{Memory, budget, prefill, run, tiny};

fn engine(durability: Durability) -> (TempDir, EngineTarget) {
    let dir = tempfile::tempdir().unwrap();
    let small = BTreeMap::from([("memtable_bytes".to_owned(), "65536".to_owned())]);
    let target = EngineTarget::open(&dir.path().join("s"), &budget(durability), &small).unwrap();
    (dir, target)
}

fn floor(durability: Durability) -> (TempDir, Floor) {
    let dir = tempfile::tempdir().unwrap();
    let target = Floor::create(&dir.path().join("s"), &budget(durability)).unwrap();
    (dir, target)
}

/// Our server in this process.
struct Served {
    target: HttpTarget,
    handle: ShutdownHandle,
    thread: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Served {
    fn start() -> Served {
        let dir = tempfile::tempdir().unwrap();
        let store = tallybook::Store::open(dir.path().join("s"), Default::default()).unwrap();
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let durability = DurabilityLevel::Os;
        let options =
            ServerOptions { listen: free, admin: None, durability, ..ServerOptions::default() };
        let server = Server::bind(options, store).unwrap();
        let target = HttpTarget::new(&format!("http://{}", server.data_addr())).unwrap();
        let handle = server.shutdown_handle();
        let thread = Some(std::thread::spawn(move || server.run().unwrap()));
        Served { target, handle, thread, _dir: dir }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.shutdown();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Runs a spec on a new store; answers the work's checksum.
fn checked(target: &dyn Target, spec: &Spec) -> String {
    prefill(target, spec);
    let loaded = run(target, spec);
    let name = spec.workload.name();
    assert!(loaded.error.is_none(), "{name} on {}: {:?}", target.name(), loaded.error);
    let foreground: u64 = loaded
        .outcome
        .kinds
        .iter()
        .filter(|(kind, _)| spec.workload != Workload::ReadWhileWriting || *kind != "put")
        .map(|(_, kind)| kind.count)
        .sum();
    let tallybook_lab::spec::Length::Operations(asked) = spec.length else { unreachable!("it is") };
    assert_eq!(foreground, asked, "{name} on {}", target.name());
    assert!(loaded.outcome.kinds.values().all(|kind| kind.errors.is_empty()));
    if spec.workload == Workload::ReadWhileWriting {
        assert!(loaded.outcome.kinds["put"].count > 0, "somebody wrote");
    }
    loaded.outcome.work_checksum
}

#[test]
fn every_workload_is_verified_and_the_same_on_every_target() {
    for &workload in Workload::ALL {
        let spec = tiny(workload);
        let (_dir, engine) = engine(spec.durability);
        let on_engine = checked(&engine, &spec);
        assert_eq!(on_engine, checked(&Memory::new(), &spec), "{workload:?}");
        let (_dir, floor) = floor(spec.durability);
        assert_eq!(on_engine, checked(&floor, &spec), "{workload:?}");
        // A server decides itself about durability.
        if workload != Workload::FillSync {
            let served = Served::start();
            assert_eq!(on_engine, checked(&served.target, &spec), "{workload:?}");
        }
        let other = Spec { threads: 3, ..spec };
        assert_ne!(on_engine, checked(&Memory::new(), &other), "{workload:?}");
    }
}

#[test]
fn values_of_every_kind_are_verified_on_every_target() {
    let (_dir, engine) = engine(Durability::Os);
    let (_other_dir, floor) = floor(Durability::Os);
    let served = Served::start();
    for values in [
        ValueSizes::Fixed(0),
        ValueSizes::Fixed(8),
        ValueSizes::Uniform { min: 0, max: 3000 },
        ValueSizes::Pareto { min: 100, shape: 1.2, max: 200_000 },
    ] {
        for target in [&engine as &dyn Target, &floor, &served.target] {
            for workload in [Workload::YcsbA, Workload::Scan] {
                checked(target, &Spec { values, keys: 500, ..tiny(workload) });
            }
        }
    }
}

#[test]
fn every_distribution_is_verified_pipelined_and_in_an_open_loop() {
    let served = Served::start();
    for distribution in [
        KeyDistribution::Uniform,
        KeyDistribution::Sequential,
        KeyDistribution::Zipfian { exponent: 0.99 },
        KeyDistribution::Latest { exponent: 0.8 },
    ] {
        for pace in [Pace::Closed, Pace::Poisson { per_second: 20_000.0 }] {
            let base = tiny(Workload::YcsbD);
            let spec = Spec { distribution, pace, pipeline: 8, threads: 5, ..base };
            checked(&served.target, &spec);
            checked(
                &served.target,
                &Spec { workload: Workload::UpdateRandom, missing: 0.3, ..spec },
            );
        }
    }
}
