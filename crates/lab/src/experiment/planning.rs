//! What planning a run takes, shared by the experiments.
//!
//! Invariant: runs that differ in the varied parameter alone ask for the same work: a repetition, not
//! the parameter, sets the seed.

use std::collections::BTreeMap;

use super::{PlannedRun, Subject};
use crate::error::{Error, Result};
use crate::run::RunOptions;
use crate::spec::{Durability, Length, Pace, Spec};
use crate::target::{Budget, engine, floor};

/// Bytes of a mebibyte.
pub(super) const MIB: u64 = 1 << 20;

/// Names with values, such as the varied parameters of a run.
pub(super) fn named(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// An engine with these settings.
pub(super) fn engine(settings: &[(&str, &str)]) -> Subject {
    Subject::Engine { settings: named(settings) }
}

/// The engine of this name: ours as it comes, or a rival.
pub(super) fn engine_named(name: &str) -> Subject {
    match name {
        engine::NAME => engine(&[]),
        floor::NAME => Subject::Floor,
        rival => Subject::Rival { name: rival.to_owned() },
    }
}

/// All of them, beginning with another in each repetition.
pub(super) fn in_turn<T: Clone>(all: &[T], repetition: u32) -> impl Iterator<Item = T> {
    let skipped = repetition as usize % all.len().max(1);
    all.iter().cycle().skip(skipped).take(all.len()).cloned()
}

/// A server with these flags.
pub(super) fn server(flags: &[(&str, &str)]) -> Subject {
    Subject::Server { flags: named(flags) }
}

/// A run of `spec` on a fresh store, with 64 MiB for writes and as much for caches.
pub(super) fn run(
    repetition: u32,
    case: &[(&str, &str)],
    subject: Subject,
    spec: Spec,
) -> PlannedRun {
    PlannedRun {
        case: named(case),
        subject,
        target: engine::NAME.to_owned(),
        repetition,
        prefill: None,
        spec,
        options: RunOptions::default(),
        budget: budget(64 * MIB),
        shared_store: None,
        is_profiled: false,
        memory_bytes_max: None,
    }
}

/// What a target gets: so much memory for buffered writes, and acknowledgement as the journal allows
/// it without syncs.
pub(super) fn budget(write_buffer_bytes: u64) -> Budget {
    Budget { write_buffer_bytes, cache_bytes: 64 * MIB, durability: Durability::Os }
}

/// As many requests as `rate` makes in so many seconds, at even intervals.
pub(super) fn at_rate(rate: f64, seconds: f64, spec: Spec) -> Spec {
    Spec {
        pace: Pace::Constant { per_second: rate },
        length: Length::Operations((rate * seconds) as u64),
        ..spec
    }
}

/// The seed of a repetition, or of one of its intervals.
pub(super) fn seed(repetition: u32, interval: u32) -> u64 {
    u64::from(repetition) * 100_000 + u64::from(interval) + 1
}

/// Refuses to be run against others, of an experiment that varies what only Tallybook has.
pub(super) fn only_ours(name: &str, against: &[String]) -> Result<()> {
    if against.is_empty() {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{name} says itself what it compares, and can't be run against {}",
        against.join(", ")
    )))
}
