//! How `lab run` ends: what it says of runs that failed or don't count, and its exit code.
//!
//! A script asks whether it has what it asked for. A run that failed, a generator that lagged, requests that were
//! refused: it hasn't. A target that fell behind the rate is what a ladder of rates looks for.

use tallybook_lab::Error;
use tallybook_lab::experiment::runner::{Stage, Status, Summary};
use tallybook_lab::load::FELL_BEHIND;

use crate::exit::{Exit, say};

/// Runs that were made and don't count: each with why.
#[derive(Debug, Default)]
pub(super) struct Ending {
    uncounted: Vec<(String, String)>,
}

impl Ending {
    /// Takes note of a run that is done.
    pub(super) fn note(&mut self, status: &Status<'_>) {
        if let Stage::Done(record) = status.stage
            && let Some(why) = &record.outcome.invalid
        {
            self.uncounted.push((status.run.label(), why.clone()));
        }
    }

    /// Says what doesn't count, and answers the exit code.
    pub(super) fn tell(self, summary: &Summary) -> Exit {
        let (behind, lost) = self.sorted(summary);
        let Summary { asked, failed, .. } = summary;
        if !behind.is_empty() {
            let (count, list) = (behind.len(), behind.join("\n  "));
            say(format_args!(
                "{count} of {asked} runs fell behind the rate that was asked:\n  {list}"
            ));
        }
        if !lost.is_empty() {
            let (count, list) = (lost.len(), lost.join("\n  "));
            say(format_args!(
                "tallybook: {count} of {asked} runs don't count; the same command makes them again:\n  {list}"
            ));
        }
        if !failed.is_empty() {
            let (count, list) = (failed.len(), failed.join("\n  "));
            say(format_args!(
                "tallybook: {count} of {asked} runs failed, and don't count:\n  {list}"
            ));
        }
        if !failed.is_empty() || !lost.is_empty() {
            return Exit::Failure;
        }
        if summary.interrupted {
            let left = summary.left;
            let again = left.saturating_sub(asked - summary.made - summary.kept);
            let again = match again {
                0 => String::new(),
                _ => {
                    format!(", {again} of them once more: they don't count, or their store is gone")
                }
            };
            say(format_args!(
                "interrupted; the same command goes on with the {left} runs that are left{again}"
            ));
            return Exit::Interrupted;
        }
        Exit::Success
    }

    /// Runs whose target fell behind, and others that don't count. Those that failed, and the one that was interrupted,
    /// are told of apart.
    fn sorted(self, summary: &Summary) -> (Vec<String>, Vec<String>) {
        let (mut behind, mut lost) = (Vec::new(), Vec::new());
        let interrupted = Error::Interrupted.to_string();
        for (label, why) in self.uncounted {
            let line = format!("{label}: {why}");
            let has_failed =
                summary.failed.iter().any(|one| one.starts_with(&format!("{label}: ")));
            if has_failed || (summary.interrupted && why == interrupted) {
                continue;
            }
            match why == FELL_BEHIND {
                true => behind.push(label),
                false => lost.push(line),
            }
        }
        (behind, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(uncounted: &[(&str, &str)], failed: &[&str], interrupted: bool) -> Exit {
        let uncounted = uncounted.iter().map(|(run, why)| ((*run).to_owned(), (*why).to_owned()));
        let failed = failed.iter().map(|one| (*one).to_owned()).collect();
        let summary = Summary { asked: 9, made: 3, failed, interrupted, ..Summary::default() };
        Ending { uncounted: uncounted.collect() }.tell(&summary)
    }

    #[test]
    fn what_is_lost_is_a_failure_and_what_is_found_is_none() {
        assert_eq!(exit(&[], &[], false), Exit::Success);
        assert_eq!(exit(&[("a, run 1", FELL_BEHIND)], &[], false), Exit::Success);
        assert_eq!(exit(&[("a, run 1", "the generator lagged: ...")], &[], false), Exit::Failure);
        assert_eq!(exit(&[("a, run 1", "9 requests failed")], &[], true), Exit::Failure);
        let wrong = "a, run 1: wrong data: key 7";
        assert_eq!(exit(&[("a, run 1", "wrong data: key 7")], &[wrong], false), Exit::Failure);
        let interrupted = Error::Interrupted.to_string();
        assert_eq!(exit(&[("a, run 1", &interrupted)], &[], true), Exit::Interrupted);
    }

    #[test]
    fn each_run_is_told_of_once() {
        let uncounted =
            [("a, run 1", FELL_BEHIND), ("b, run 1", "lagged"), ("c, run 1", "wrong data: key 7")];
        let uncounted = uncounted.map(|(run, why)| (run.to_owned(), why.to_owned())).to_vec();
        let failed = vec!["c, run 1: wrong data: key 7".to_owned()];
        let summary = Summary { asked: 3, made: 3, failed, ..Summary::default() };
        let (behind, lost) = Ending { uncounted }.sorted(&summary);
        assert_eq!(
            (behind, lost),
            (vec!["a, run 1".to_owned()], vec!["b, run 1: lagged".to_owned()])
        );
    }
}
