//! `http-floor`: how much of a request's cost is HTTP itself, and how much is ours.
//!
//! The floor is a bare hyper server that stores nothing and answers a constant. Beside it is one that has a hash
//! map in memory, the least that a store can be: what it takes more than the floor are the waits for memory of
//! a key and its value. Our blocks are in memory, and the tree is at rest, before a run begins; a server that is
//! written to isn't the one that is read from, whose cache it would empty. What reading a block or passing a run
//! costs is for other experiments to say.
//! Each repetition has servers of its own: where memory lies, and what a fill left, differs from one to the next.
//! Answers of ours are verified, the floor's can't be. Any other server that speaks `/v0` can be loaded beside
//! them, by its URL: it is filled with the same keys, and keeps them afterwards. It is the same process in all
//! repetitions, and the report says so.

use std::collections::BTreeMap;
use std::time::Duration;

use super::planning::in_turn;
use super::{Experiment, PlannedRun, Scale, Subject};
use crate::error::{Error, Result};
use crate::record::Record;
use crate::report::Report;
use crate::run::RunOptions;
use crate::spec::{Durability, Length, Spec, ValueSizes, Workload};
use crate::target::Budget;

mod report;

pub(super) const OURS: &str = "tallybook";
pub(super) const FLOOR: &str = "bare hyper";
pub(super) const MAP: &str = "hash map";
pub(super) const VALUE_BYTES: u32 = 100;
/// Nearly twice what the million keys take.
const CACHE_BYTES: u64 = 256 << 20;
/// Requests of a warm-up: each block is asked for thirty times, so that none is read from its file in the run,
/// and the merges that this many reads are worth are made.
const WARM_UP: u64 = 500_000;
/// The requests: name, workload, bytes of the floor's constant, kind of operation.
const REQUESTS: [(&str, Workload, u32, &str); 4] = [
    ("GET hit", Workload::ReadRandom, VALUE_BYTES, "get"),
    ("GET miss", Workload::ReadMissing, 0, "get"),
    ("PUT", Workload::Overwrite, 0, "put"),
    ("HEAD", Workload::HeadRandom, VALUE_BYTES, "head"),
];

/// The experiment.
pub(super) struct HttpFloor;

impl Experiment for HttpFloor {
    fn name(&self) -> &'static str {
        "http-floor"
    }

    fn question(&self) -> &'static str {
        "How close does the server come to one that does nothing but answer HTTP?"
    }

    /// `against`: URLs of servers that run already.
    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        if let Some(other) = against.iter().find(|word| !word.starts_with("http://")) {
            return Err(Error::Invalid(format!(
                "{} is run against servers by their URLs, http://HOST:PORT, which {other:?} isn't",
                self.name()
            )));
        }
        let seconds = scale.pick(0.2, 5.0, 30.0);
        let mut runs = Vec::new();
        for repetition in 0..scale.pick(1, 3, 7) {
            for &connections in scale.pick(&[1, 4][..], &[1, 16, 64], &[1, 16, 64]) {
                for (request, workload, floor_bytes, _) in REQUESTS {
                    let spec = Spec {
                        workload,
                        keys: scale.pick(2_000, 1_000_000, 1_000_000),
                        values: ValueSizes::Fixed(VALUE_BYTES),
                        length: Length::Time(Duration::from_secs_f64(seconds)),
                        threads: connections,
                        ..Spec::default()
                    };
                    let ours = PlannedRun {
                        case: BTreeMap::from([
                            ("request".to_owned(), request.to_owned()),
                            ("connections".to_owned(), connections.to_string()),
                        ]),
                        subject: Subject::Server { flags: BTreeMap::new() },
                        target: OURS.to_owned(),
                        repetition,
                        prefill: None,
                        options: RunOptions {
                            warm_up: Some(Length::Operations(scale.pick(2_000, WARM_UP, WARM_UP))),
                            settle_first: scale != Scale::Tiny,
                            settle: workload.writes() && scale != Scale::Tiny,
                            ..RunOptions::default()
                        },
                        budget: Budget {
                            write_buffer_bytes: 64 << 20,
                            cache_bytes: CACHE_BYTES,
                            durability: Durability::Os,
                        },
                        shared_store: Some(format!("{} {repetition}", use_of(workload))),
                        is_profiled: false,
                        memory_bytes_max: None,
                        spec,
                    };
                    let bare = format!("bare {floor_bytes} {repetition}");
                    let floor = floor_of(&ours, floor_bytes, bare);
                    let map = map_of(&floor);
                    let others = against.iter().map(|url| PlannedRun {
                        subject: Subject::Url { url: url.clone() },
                        target: url.clone(),
                        shared_store: Some(url.clone()),
                        ..ours.clone()
                    });
                    let all: Vec<_> =
                        [ours.clone(), floor, map].into_iter().chain(others).collect();
                    runs.extend(in_turn(&all, repetition));
                }
            }
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        report::draw(&mut report, records);
        report
    }
}

/// What a server is for: one that is written to isn't read from.
fn use_of(workload: Workload) -> &'static str {
    if workload.writes() { "written" } else { "read" }
}

/// The same run against the floor, which stores nothing: `server` names the one that is asked.
pub(super) fn floor_of(ours: &PlannedRun, body_bytes: u32, server: String) -> PlannedRun {
    PlannedRun {
        subject: Subject::Bare { body_bytes, keys: 0 },
        target: FLOOR.to_owned(),
        spec: Spec { verify: false, ..ours.spec.clone() },
        shared_store: Some(server),
        options: RunOptions { settle_first: false, settle: false, ..ours.options.clone() },
        ..ours.clone()
    }
}

/// The same run against the floor with a hash map of the keys, which answers what it finds and takes what is
/// put: another for writes than for reads, as with ours.
pub(super) fn map_of(floor: &PlannedRun) -> PlannedRun {
    PlannedRun {
        subject: Subject::Bare { body_bytes: VALUE_BYTES, keys: floor.spec.keys },
        target: MAP.to_owned(),
        shared_store: Some(format!("{MAP} {} {}", use_of(floor.spec.workload), floor.repetition)),
        ..floor.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::load::GENERATOR_BUSY;
    use crate::record::Outcome;

    fn report(against: &[String], busy: f64) -> Report {
        let record = |planned: PlannedRun| {
            let operations = if planned.target == OURS { 800 } else { 1000 };
            let figures = [(GENERATOR_BUSY.to_owned(), busy)].into();
            let outcome =
                Outcome { seconds: 1.0, operations, cpu_s: 1.0, figures, ..Outcome::default() };
            planned.name("http-floor").record([].into(), None, SystemTime::now(), outcome)
        };
        let planned = HttpFloor.runs(Scale::Tiny, against).unwrap();
        let records: Vec<Record> = planned.into_iter().map(record).collect();
        HttpFloor.report(&records, "rerun")
    }

    /// Its repetitions counted as of processes of their own.
    #[test]
    fn a_server_that_runs_already_is_told_to_be_one_process() {
        let told = "one process in all repetitions";
        assert!(report(&["http://127.0.0.1:8081".to_owned()], 0.5).html().contains(told));
        assert!(!report(&[], 0.5).html().contains(told));
    }

    /// A generator that has no time left makes a slow server and a fast one look alike.
    #[test]
    fn shares_that_a_busy_generator_has_a_part_in_are_marked() {
        let told = |busy: f64| report(&[], busy).summary_markdown();
        let busy = told(0.95);
        assert!(busy.contains("| 80 %, generator busy |"), "{busy}");
        let quiet = told(0.5);
        assert!(quiet.contains("| 80 % |") && !quiet.contains("generator busy |"), "{quiet}");
    }
}
