//! How `lab run` ends: what it says of runs that failed or don't count, and its exit code.
//!
//! A script asks whether it has what it asked for. A run that failed, a generator that lagged, requests that were
//! refused: it hasn't. A target that fell behind the rate is what a ladder of rates looks for.

use tallybook_lab::experiment::runner::{Became, Summary};

use crate::exit::{Exit, say};

/// Says what doesn't count and what is left, and answers the exit code.
pub(super) fn tell(summary: &Summary) -> Exit {
    texts(summary).iter().for_each(say);
    match summary {
        Summary { refused: Some(_), .. } => Exit::Usage,
        _ if summary.uncounted.iter().any(|one| one.became != Became::FellBehind) => Exit::Failure,
        Summary { interrupted: true, .. } => Exit::Interrupted,
        _ => Exit::Success,
    }
}

/// What is said, one text after the other.
fn texts(summary: &Summary) -> Vec<String> {
    let Summary { asked, left, again, .. } = summary;
    let list = |became, front: &str, what: &str| {
        let told = summary.told(became);
        let (count, lines) = (told.len(), told.join("\n  "));
        (count > 0).then(|| format!("{front}{count} of {asked} runs {what}:\n  {lines}"))
    };
    let name = "tallybook: ";
    let again = match again {
        0 => String::new(),
        _ => format!(", {again} of them once more: they don't count, or their store is gone"),
    };
    let interrupted = summary.interrupted.then(|| {
        format!("interrupted; the same command goes on with the {left} runs that are left{again}")
    });
    let refused = summary.refused.as_ref().map(|why| format!("{name}{why}"));
    let texts = [
        list(Became::FellBehind, "", "fell behind the rate that was asked"),
        list(Became::Lost, name, "don't count; the same command makes them again"),
        list(Became::Failed, name, "failed, and don't count"),
        interrupted,
        refused,
    ];
    texts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use tallybook_lab::experiment::runner::Uncounted;

    use super::*;

    fn summary(uncounted: &[Became], interrupted: bool) -> Summary {
        let uncounted = uncounted.iter().enumerate().map(|(at, became)| Uncounted {
            run: format!("a, run {}", at + 1),
            why: format!("{became:?}"),
            became: *became,
        });
        let (left, again) = if interrupted { (6, 1) } else { (0, 0) };
        let uncounted = uncounted.collect();
        Summary { asked: 9, made: 3, uncounted, interrupted, left, again, ..Summary::default() }
    }

    #[test]
    fn what_is_lost_is_a_failure_and_what_is_found_is_none() {
        let exit = |uncounted: &[Became], interrupted| tell(&summary(uncounted, interrupted));
        assert_eq!(exit(&[], false), Exit::Success);
        assert_eq!(exit(&[Became::FellBehind], false), Exit::Success);
        assert_eq!(exit(&[Became::Lost], false), Exit::Failure);
        assert_eq!(exit(&[Became::FellBehind, Became::Failed], false), Exit::Failure);
        assert_eq!(exit(&[], true), Exit::Interrupted);
        assert_eq!(exit(&[Became::FellBehind], true), Exit::Interrupted);
        assert_eq!(exit(&[Became::Lost], true), Exit::Failure);
    }

    /// What was made before a target was refused was neither told of nor drawn.
    #[test]
    fn what_was_refused_is_told_after_what_failed_before_it() {
        let refused = Some("it holds runs of version 1".to_owned());
        let summary = Summary { refused, ..summary(&[Became::Failed], false) };
        assert_eq!(tell(&summary), Exit::Usage);
        let texts = texts(&summary);
        assert!(texts[0].contains("1 of 9 runs failed"), "{texts:?}");
        assert_eq!(texts[1..], ["tallybook: it holds runs of version 1"]);
    }

    /// With one run that didn't count nothing was said of what is left.
    #[test]
    fn each_run_is_told_of_once_and_what_is_left_too() {
        let all = [Became::FellBehind, Became::Lost, Became::Failed];
        let texts = texts(&summary(&all, true));
        assert_eq!(
            texts,
            [
                "1 of 9 runs fell behind the rate that was asked:\n  a, run 1: FellBehind",
                "tallybook: 1 of 9 runs don't count; the same command makes them again:\n  a, run 2: Lost",
                "tallybook: 1 of 9 runs failed, and don't count:\n  a, run 3: Failed",
                "interrupted; the same command goes on with the 6 runs that are left, 1 of them once more: they \
                 don't count, or their store is gone",
            ]
        );
    }
}
