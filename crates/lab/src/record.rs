//! What came of a run: one line of `runs.jsonl`, complete enough to draw any chart from alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::Spec;

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The experiment it was made for.
    pub experiment: String,
    /// The varied parameters' values, such as `connections` = `16`; with the target and the repetition
    /// they tell runs of one experiment apart.
    pub case: BTreeMap<String, String>,
    /// The target's name, such as `tallybook` or `rocksdb`.
    pub target: String,
    /// Its version and settings.
    pub target_settings: BTreeMap<String, String>,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// What was asked.
    pub spec: Spec,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// What the machine is.
    pub machine: Machine,
    /// Tallybook's version, whatever the target.
    pub version: String,
    /// What was measured.
    pub outcome: Outcome,
}

/// The machine a run was made on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// Logical processors.
    pub cores: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The file system that held the data, such as `ext4`.
    pub file_system: String,
    /// A limit on memory that the run was held to, page cache included.
    pub memory_limit_bytes: Option<u64>,
    /// Bytes that the system reads ahead of the device that held the data, where it can be told.
    #[serde(default)]
    pub read_ahead_bytes: Option<u64>,
}

/// Why a run doesn't count whose target could not keep the rate.
pub const FELL_BEHIND: &str =
    "the target fell so far behind that requests long due were given up: the rate is beyond it";
/// Why a run doesn't count that was stopped.
const INTERRUPTED: &str = "interrupted";
/// Why a record counts no more whose run is made again.
pub const TAKEN_BACK: &str =
    "its store is gone, and all that was asked of it is asked again of another";

/// What a run is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It counts.
    Counts,
    /// Its target could not keep the rate. That is what it found out, and would find out again.
    FellBehind,
    /// It was stopped, and is still to be made.
    Interrupted,
    /// Its store is gone, and it is to be made again.
    TakenBack,
    /// It doesn't count: wrong data, a target that died, a generator that lagged, requests that failed.
    Lost,
}

/// What was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Why the run doesn't count, if it doesn't: wrong data, a target that died, a generator that
    /// lagged. What was measured until then is kept. [`Outcome::standing`] tells such reasons apart.
    pub invalid: Option<String>,
    /// How long it took, in seconds, until the last answer; of a run whose target fell behind, until it was given up.
    pub seconds: f64,
    /// Operations answered, all kinds; not those of the writer beside `readwhilewriting`, which are in `kinds`.
    pub operations: u64,
    /// Per kind of operation: `get`, `put`, `head`, `delete`, `scan`, `read-modify-write`.
    pub kinds: BTreeMap<String, KindOutcome>,
    /// Those operations in each second.
    pub per_second: Vec<u64>,
    /// How late, at worst, the generator itself sent a request, in seconds; open loop only.
    pub generator_lag_max_s: f64,
    /// CPU time of the target's process, in seconds. In process it is that of the whole, the generator's
    /// requests and checks included, but not its looking at the clock until a request is due, nor the
    /// collecting of what was measured.
    pub cpu_s: f64,
    /// The same, with the background work that the run left behind.
    pub cpu_settled_s: f64,
    /// How long that work took after the last operation, in seconds.
    pub settle_s: f64,
    /// Peak resident memory, in bytes.
    pub peak_resident_bytes: u64,
    /// Peak resident memory that is no file's, in bytes.
    pub peak_anonymous_bytes: u64,
    /// Bytes that the process had written to the device, once settled.
    pub device_written_bytes: u64,
    /// Bytes of keys and values that the run wrote.
    pub user_written_bytes: u64,
    /// Bytes of keys and values that live in the store at the end.
    pub live_bytes: u64,
    /// Bytes on disk at the end, once settled.
    pub disk_bytes: u64,
    /// XOR of the hashes of everything asked and answered, in hexadecimal: equal for equal work.
    pub work_checksum: String,
    /// What the target alone tells, by name: stage means, exits, compactions.
    pub figures: BTreeMap<String, f64>,
}

impl Outcome {
    /// What the run is worth.
    pub fn standing(&self) -> Standing {
        match self.invalid.as_deref() {
            None => Standing::Counts,
            Some(FELL_BEHIND) => Standing::FellBehind,
            Some(INTERRUPTED) => Standing::Interrupted,
            Some(TAKEN_BACK) => Standing::TakenBack,
            Some(_) => Standing::Lost,
        }
    }

    /// Whether it counts.
    pub fn counts(&self) -> bool {
        self.standing() == Standing::Counts
    }

    /// Whether it tells of its target: it counts, or its target fell behind. Such a run needs no other in its place,
    /// and is among the figures: else a lucky one would speak for all.
    pub fn tells(&self) -> bool {
        matches!(self.standing(), Standing::Counts | Standing::FellBehind)
    }

    /// Operations per second.
    pub fn throughput(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }

    /// CPU microseconds per operation, background work and a writer beside included.
    pub fn cpu_us_per_operation(&self) -> f64 {
        self.cpu_settled_s.max(self.cpu_s) * 1e6 / self.operations.max(1) as f64
    }

    /// Requests that failed: refused, answered with an error, or not answered.
    pub fn errors(&self) -> u64 {
        self.kinds.values().flat_map(|kind| kind.errors.values()).sum()
    }

    /// Those of them of one kind.
    pub fn errors_of(&self, kind: &str) -> u64 {
        self.kinds.values().filter_map(|one| one.errors.get(kind)).sum()
    }

    /// The share of all requests that failed.
    pub fn error_share(&self) -> f64 {
        self.share_of_requests(self.errors())
    }

    /// What share of all requests so many are.
    pub fn share_of_requests(&self, count: u64) -> f64 {
        let answered: u64 = self.kinds.values().map(|kind| kind.count).sum();
        count as f64 / (answered + self.errors()).max(1) as f64
    }

    /// Bytes written to the device per byte written by the user; `None` when none was.
    pub fn write_amplification(&self) -> Option<f64> {
        let user = self.user_written_bytes;
        (user > 0).then(|| self.device_written_bytes as f64 / user as f64)
    }

    /// Bytes on disk per byte that lives; `None` when none does.
    pub fn space_amplification(&self) -> Option<f64> {
        (self.live_bytes > 0).then(|| self.disk_bytes as f64 / self.live_bytes as f64)
    }
}

/// What was measured of one kind of operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KindOutcome {
    /// Operations answered as they should be; absent keys that were to be absent among them.
    pub count: u64,
    /// Of those, reads that found nothing.
    pub missed: u64,
    /// Errors by kind: a status, a refusal, a time-out.
    pub errors: BTreeMap<String, u64>,
    /// Latency from the moment at which each was due (open loop) or sent (closed loop); of a request that timed out, how
    /// long it was waited for.
    pub latency: Latency,
    /// Latency from the moment at which each was sent; of a closed loop the same.
    pub from_sent: Latency,
    /// The 50th, 99th and 100th percentile of `latency` in each second, in nanoseconds.
    pub per_second: Vec<[u64; 3]>,
}

/// A distribution of latencies, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean_ns: f64,
    /// Percentiles that everyone asks for: 50, 90, 99, 99.9, 99.99, 100.
    pub p50_ns: u64,
    /// 90th.
    pub p90_ns: u64,
    /// 99th.
    pub p99_ns: u64,
    /// 99.9th.
    pub p999_ns: u64,
    /// 99.99th.
    pub p9999_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// The whole histogram: hdrhistogram's V2 form, deflated, in base 64; empty for none.
    pub histogram: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn what_a_run_is_worth_is_told_by_why_it_does_not_count() {
        let standing = |why: Option<&str>| {
            let outcome = Outcome { invalid: why.map(str::to_owned), ..Outcome::default() };
            (outcome.standing(), outcome.counts(), outcome.tells())
        };
        assert_eq!(standing(None), (Standing::Counts, true, true));
        assert_eq!(standing(Some(FELL_BEHIND)), (Standing::FellBehind, false, true));
        assert_eq!(standing(Some(TAKEN_BACK)), (Standing::TakenBack, false, false));
        let interrupted = Error::Interrupted.to_string();
        assert_eq!(standing(Some(&interrupted)), (Standing::Interrupted, false, false));
        assert_eq!(standing(Some("wrong data: key 7")), (Standing::Lost, false, false));
    }
}
