//! What the runs of two files don't have in common: a difference may be of that, and not of what is looked for.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::Side;
use super::records::case_name;
use super::setup::machine_text;
use crate::record::Record;

/// The setting that tells one build of a program from another, which is what files are compared for.
const PROGRAM: &str = "program";
/// Most differences that are told of.
const TOLD_MAX: usize = 12;

/// The different values of each side.
type Values = [BTreeSet<String>; 2];

/// What a run was asked for, whatever its seed.
pub(super) fn work(record: &Record) -> String {
    let mut spec = record.spec.clone();
    spec.seed = 0;
    serde_json::to_string(&spec).expect("names and numbers are always JSON")
}

/// Where machines differ, and settings of a target in cases that both sides have: a sentence each.
pub(super) fn told(records: &[(Side, &Record)]) -> Vec<String> {
    let tells = |(_, record): &&(Side, &Record)| record.outcome.tells();
    let mut machines = Values::default();
    let mut cases: BTreeMap<_, [Vec<&Record>; 2]> = BTreeMap::new();
    for (side, record) in records.iter().filter(tells) {
        machines[place(*side)].insert(machine_text(&record.machine));
        let case = (&record.experiment, &record.target, case_name(record));
        cases.entry(case).or_default()[place(*side)].push(record);
    }
    let mut told: Vec<String> = difference("the machine", &machines).into_iter().collect();
    for ((_, target, _), sides) in &cases {
        if sides.iter().any(Vec::is_empty) {
            continue;
        }
        for (name, values) in settings(sides) {
            let sentence = difference(&format!("{name} of {target}"), &values);
            told.extend(sentence.filter(|sentence| !told.contains(sentence)));
        }
    }
    let more = told.len().saturating_sub(TOLD_MAX);
    told.truncate(TOLD_MAX);
    told.extend((more > 0).then(|| format!("{more} more settings")));
    told
}

/// The values of each setting of a case.
fn settings(sides: &[Vec<&Record>; 2]) -> BTreeMap<String, Values> {
    let mut settings: BTreeMap<String, Values> = BTreeMap::new();
    for (at, record) in
        sides.iter().enumerate().flat_map(|(at, of)| of.iter().map(move |one| (at, one)))
    {
        for (name, value) in record.target_settings.iter().filter(|(name, _)| *name != PROGRAM) {
            settings.entry(name.clone()).or_default()[at].insert(value.clone());
        }
    }
    settings
}

fn place(side: Side) -> usize {
    usize::from(side == Side::Subject)
}

fn difference(what: &str, values: &Values) -> Option<String> {
    let text = |side: &BTreeSet<String>| match side.len() {
        0 => "none".to_owned(),
        _ => side.iter().map(String::as_str).collect::<Vec<_>>().join(" or "),
    };
    let [baseline, subject] = values;
    (baseline != subject).then(|| format!("{what} ({} against {})", text(subject), text(baseline)))
}

#[cfg(test)]
mod tests {
    use crate::record::Record;
    use crate::report::compare::compare;
    use crate::report::records::tests::record;

    #[test]
    fn machines_and_settings_that_differ_are_told_of() {
        let side = || -> Vec<Record> { (0..3).map(|at| record("t", "1", at, 1000.0)).collect() };
        let (a, mut b) = (side(), side());
        b.iter_mut().for_each(|one| drop(one.target_settings.insert("program".into(), "1".into())));
        let alike = compare(("a", &a), ("b", &b));
        assert!(alike.unlike.is_empty() && !alike.text().contains("isn't the same"));
        for one in &mut b {
            one.machine.kernel = "6.18.0".into();
            one.target_settings.insert("cache".into(), "1 MiB".into());
        }
        // It failed before anything of it was known.
        b[2].outcome.invalid = Some("it never listens".into());
        b[2].target_settings.clear();
        let text = compare(("a", &a), ("b", &b)).text();
        assert!(text.contains("isn't the same") && text.contains("6.18.0"), "{text}");
        assert!(text.contains("cache of t (1 MiB against 64 MiB)"), "{text}");
    }
}
