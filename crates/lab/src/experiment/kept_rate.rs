//! Which runs of a case tell of it, and whether they kept the rate that was asked.
//!
//! Invariant: a run whose target could not keep the rate is a finding, and never makes room for a lucky one
//! beside it.

use crate::record::Record;
use crate::spec::Pace;
use crate::statistics::median;

/// A run that takes less of what is asked for has a queue that grows, however short the run was.
const KEPT_SHARE: f64 = 0.99;

/// Those that count, and those whose target fell behind: how slow it was then is what they found.
pub(super) fn telling<'a>(records: &[&'a Record]) -> Vec<&'a Record> {
    records.iter().copied().filter(|record| record.outcome.tells()).collect()
}

/// The share of a constant rate that a run took; `None` where none was asked for.
fn taken_share(record: &Record) -> Option<f64> {
    match record.spec.pace {
        Pace::Constant { per_second } => Some(record.outcome.throughput() / per_second),
        Pace::Closed | Pace::Poisson { .. } => None,
    }
}

fn keeps(record: &Record) -> bool {
    let share = taken_share(record).filter(|_| record.outcome.counts());
    share.is_some_and(|share| share >= KEPT_SHARE)
}

/// Whether most of the runs that tell of a case took as many operations as were due.
pub(super) fn is_kept(records: &[&Record]) -> bool {
    records.iter().any(|record| keeps(record)) && not_kept(records).is_none()
}

/// The share of a constant rate that a case took, where most of the runs that tell of it didn't keep that rate.
pub(super) fn not_kept(records: &[&Record]) -> Option<f64> {
    let told = telling(records);
    let kept = told.iter().filter(|record| keeps(record)).count();
    let shares: Vec<f64> = told.iter().filter_map(|record| taken_share(record)).collect();
    median(&shares).filter(|_| 2 * kept <= told.len())
}

/// How many runs of a case count, where not all do: `1 of 3 counted`.
pub(super) fn counted(records: &[&Record]) -> Option<String> {
    let counted = records.iter().filter(|record| record.outcome.counts()).count();
    (counted < records.len()).then(|| format!("{counted} of {} counted", records.len()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::{FELL_BEHIND, Machine, Outcome};
    use crate::spec::Spec;

    /// A run of so many seconds.
    pub(in crate::experiment) fn took((repetition, seconds): (u32, f64)) -> Record {
        Record {
            experiment: String::new(),
            case: [].into(),
            target: String::new(),
            target_settings: [].into(),
            repetition,
            spec: Spec::default(),
            started_at_ms: 0,
            machine: Machine::default(),
            version: String::new(),
            outcome: Outcome { seconds, ..Outcome::default() },
        }
    }

    /// A run of ten seconds that took so many of the 1,000 gets a second that were asked of it.
    pub(in crate::experiment) fn at_rate(taken: u64, invalid: Option<&str>) -> Record {
        let mut record = took((0, 10.0));
        record.spec.pace = Pace::Constant { per_second: 1000.0 };
        record.outcome.operations = 10 * taken;
        record.outcome.invalid = invalid.map(str::to_owned);
        let get = crate::record::KindOutcome { count: 10 * taken, ..Default::default() };
        record.outcome.kinds.insert("get".to_owned(), get);
        record
    }

    /// The one run of three that counted was taken for all, and its rate for kept.
    #[test]
    fn most_runs_have_to_keep_a_rate() {
        let kept = at_rate(1000, None);
        let behind = at_rate(400, Some(FELL_BEHIND));
        let slow = at_rate(840, None);
        let lagged = at_rate(1000, Some("the generator lagged"));
        assert!(!is_kept(&[&kept, &behind, &behind]));
        assert_eq!(not_kept(&[&kept, &behind, &behind]), Some(0.4));
        assert_eq!(counted(&[&kept, &behind, &behind]).unwrap(), "1 of 3 counted");
        assert!(is_kept(&[&kept, &behind, &kept]));
        assert_eq!(not_kept(&[&kept, &behind, &kept]), None);
        assert!(!is_kept(&[&kept, &slow]) && is_kept(&[&kept]));
        assert_eq!(counted(&[&kept, &slow]), None);
        // Of a run that lagged nothing is known: it speaks neither for nor against.
        assert!(is_kept(&[&kept, &lagged, &lagged]) && !is_kept(&[&lagged]));
        assert_eq!(not_kept(&[&kept, &lagged, &lagged]), None);
        assert_eq!(counted(&[&kept, &lagged]).unwrap(), "1 of 2 counted");
        assert!(!is_kept(&[]));
        assert_eq!((not_kept(&[]), not_kept(&[&took((0, 1.0))])), (None, None));
    }
}
