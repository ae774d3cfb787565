//! Reads `runs.jsonl`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::record::{KindOutcome, Record};

/// The records of a file, in its order. A last line that was torn by an interruption is left out; any
/// other line that is no record is an error, because silence about it would skew what is drawn.
pub fn load_records(path: &Path) -> Result<Vec<Record>> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(Error::io(format!("reading {name}")))?;
    let mut records = Vec::new();
    for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(record) => records.push(record),
            Err(_) if !line.ends_with(b"\n") => {}
            Err(error) => {
                return Err(Error::Invalid(format!("{name}, line {}: {error}", at + 1)));
            }
        }
    }
    Ok(records)
}

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
    fn a_torn_last_line_is_left_out_and_a_damaged_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        let line = serde_json::to_string(&record("a", "1", 0, 1000.0)).unwrap();
        std::fs::write(&path, format!("{line}\n\n{line}\n{}", &line[..line.len() / 2])).unwrap();
        assert_eq!(load_records(&path).unwrap().len(), 2);
        std::fs::write(&path, format!("{line}\n{line}")).unwrap();
        assert_eq!(load_records(&path).unwrap().len(), 2);
        // Half a character at the tear is no text at all.
        std::fs::write(&path, [line.as_bytes(), b"\n{\"experiment\":\"\xc3"].concat()).unwrap();
        assert_eq!(load_records(&path).unwrap().len(), 1);
        std::fs::write(&path, format!("{line}\n{{}}\n{line}\n")).unwrap();
        let error = load_records(&path).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(load_records(&directory.path().join("none")).is_err());
    }

    #[test]
    fn a_case_is_named_by_workload_and_parameters() {
        let mut one = record("a", "16", 0, 1000.0);
        assert_eq!(case_name(&one), "fillrandom, connections 16");
        one.case = [("workload".to_owned(), "fillrandom".to_owned())].into();
        assert_eq!(case_name(&one), "fillrandom");
    }
}
