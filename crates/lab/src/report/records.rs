//! Names of records, and what failed in them.

use std::collections::BTreeMap;

use crate::record::{KindOutcome, Record};

/// What tells a record from others of its experiment, its target and repetition apart: the workload and
/// the varied parameters.
pub fn case_name(record: &Record) -> String {
    let workload = record.spec.workload.name();
    let varied = record.case.iter().filter(|(_, value)| *value != workload);
    let varied: Vec<String> = varied.map(|(name, value)| format!("{name} {value}")).collect();
    if varied.is_empty() {
        workload.to_owned()
    } else {
        format!("{workload}, {}", varied.join(", "))
    }
}

/// Failed requests by kind, added up: `150 503, 2 time-out`; `None` where there are none.
pub fn errors_text<'a>(kinds: impl IntoIterator<Item = &'a KindOutcome>) -> Option<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in kinds.into_iter().flat_map(|kind| &kind.errors) {
        *counts.entry(name).or_default() += count;
    }
    let texts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::{Latency, Machine, Outcome};
    use crate::spec::Spec;

    /// A record of `get`s with the given rate; latencies follow from it.
    pub(in crate::report) fn record(
        target: &str,
        case: &str,
        repetition: u32,
        rate: f64,
    ) -> Record {
        let latency = Latency {
            mean_ns: 1e9 / rate,
            p50_ns: (0.9e9 / rate) as u64,
            p90_ns: (2e9 / rate) as u64,
            p99_ns: (5e9 / rate) as u64,
            p999_ns: (20e9 / rate) as u64,
            p9999_ns: (50e9 / rate) as u64,
            max_ns: (90e9 / rate) as u64,
            histogram: String::new(),
        };
        let get = KindOutcome { count: rate as u64, latency, ..KindOutcome::default() };
        Record {
            experiment: "synthetic".into(),
            case: [("connections".to_owned(), case.to_owned())].into(),
            target: target.into(),
            target_settings: [("cache".to_owned(), "64 MiB".to_owned())].into(),
            repetition,
            spec: Spec::default(),
            started_at_ms: 1_700_000_000_000 + u64::from(repetition) * 60_000,
            machine: Machine { cpu: "A <processor>".into(), cores: 2, ..Machine::default() },
            version: "0.1.0".into(),
            outcome: Outcome {
                seconds: 1.0,
                operations: rate as u64,
                kinds: [("get".to_owned(), get)].into(),
                cpu_s: 1.0,
                cpu_settled_s: 1.1,
                peak_resident_bytes: 100_000_000,
                disk_bytes: 200_000_000,
                ..Outcome::default()
            },
        }
    }

    #[test]
    fn a_case_is_named_by_workload_and_parameters() {
        let mut one = record("a", "16", 0, 1000.0);
        assert_eq!(case_name(&one), "fillrandom, connections 16");
        one.case = [("workload".to_owned(), "fillrandom".to_owned())].into();
        assert_eq!(case_name(&one), "fillrandom");
    }
}
