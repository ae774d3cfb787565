//! More or fewer repetitions than an experiment plans.
//!
//! A round that is added is the last one once more. It gets stores of its own, unless its stores served
//! several rounds anyway.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::PlannedRun;

/// The plan with so many repetitions of each run.
pub fn with_repetitions(mut runs: Vec<PlannedRun>, count: u32) -> Vec<PlannedRun> {
    runs.retain(|run| run.repetition < count);
    let Some(last) = runs.iter().map(|run| run.repetition).max() else { return runs };
    let mut rounds: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for run in &runs {
        if let Some(store) = &run.shared_store {
            rounds.entry(store.clone()).or_default().insert(run.repetition);
        }
    }
    let template: Vec<PlannedRun> =
        runs.iter().filter(|run| run.repetition == last).cloned().collect();
    for repetition in last + 1..count {
        for run in &template {
            let mut run = PlannedRun { repetition, ..run.clone() };
            let own = |store: &String| rounds.get(store).is_some_and(|rounds| rounds.len() == 1);
            if let Some(store) = run.shared_store.take_if(|store| own(store)) {
                run.shared_store = Some(format!("{store}, repetition {repetition}"));
            }
            runs.push(run);
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Scale, find};

    #[test]
    fn rounds_are_dropped_and_added_whole() {
        for experiment in crate::experiment::all() {
            let planned = experiment.runs(Scale::Tiny, &[]).unwrap();
            let round = planned.iter().filter(|run| run.repetition == 0).count();
            assert_eq!(with_repetitions(planned.clone(), 1).len(), round, "{}", experiment.name());
            let many = with_repetitions(planned, 7);
            for repetition in 0..7 {
                let found = many.iter().filter(|run| run.repetition == repetition).count();
                assert_eq!(found, round, "{}", experiment.name());
            }
        }
    }

    #[test]
    fn an_added_round_has_stores_of_its_own() {
        let planned = find("rivals").unwrap().runs(Scale::Tiny, &[]).unwrap();
        let runs = with_repetitions(planned, 3);
        let stores = |repetition: u32| -> BTreeSet<String> {
            let round = runs.iter().filter(|run| run.repetition == repetition);
            round.filter_map(|run| run.shared_store.clone()).collect()
        };
        assert!(!stores(1).is_empty() && stores(1).is_disjoint(&stores(2)));
    }
}
