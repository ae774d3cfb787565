//! What a directory holds already, and whether runs may be added to it: a report of two commands, programs or
//! machines, or of two versions of a target, would compare runs that were not made in turn.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::Experiment;
use super::fingerprints::{Fingerprints, PROGRAM};
use super::plan::PlannedRun;
use super::runner::{Bench, COMMAND_FILE};
use super::stores;
use crate::error::{Error, Result};
use crate::machine;
use crate::record::{Machine, Record};

/// The setting in a record that tells a target's version.
const VERSION: &str = "version";
/// By what share the memory of one machine may differ: kernels keep a little more or less of it to themselves
/// from start to start.
const MEMORY_SHARE: f64 = 0.02;

/// Refuses a directory whose records another command, program or machine made than would make the runs.
pub(super) fn check(
    experiment: &dyn Experiment,
    runs: &[PlannedRun],
    records: &[Record],
    fingerprints: &mut Fingerprints<'_>,
    bench: &Bench<'_>,
) -> Result<()> {
    if !records.is_empty() {
        check_command(bench)?;
    }
    let stays = |record: &&Record| record.experiment == experiment.name() && record.outcome.tells();
    let staying: Vec<&Record> = records.iter().filter(stays).collect();
    check_programs(runs, &staying, fingerprints, bench.directory)?;
    let now = machine::machine(Some(&stores::place(bench.directory)));
    let differs = staying.iter().find_map(|record| difference(&record.machine, &now));
    differs.map_or(Ok(()), |what| {
        Err(refused(bench.directory, &format!("runs that another machine made ({what})")))
    })
}

/// Refuses a target that is of another version than its kept runs, which is known only once it is open.
pub(super) fn check_version(
    experiment: &dyn Experiment,
    run: &PlannedRun,
    settings: &BTreeMap<String, String>,
    records: &[Record],
    directory: &Path,
) -> Result<()> {
    let kept = records.iter().find_map(|record| {
        let stays = record.experiment == experiment.name() && record.outcome.tells();
        (stays && record.target == run.target)
            .then(|| record.target_settings.get(VERSION))
            .flatten()
    });
    match (kept, settings.get(VERSION)) {
        (Some(kept), Some(now)) if kept != now => {
            let what = format!("runs of {:?} in version {kept}, which is {now} now", run.target);
            Err(refused(directory, &what))
        }
        _ => Ok(()),
    }
}

/// Writes the command down by which the directory's runs are made.
pub(super) fn claim(bench: &Bench<'_>) -> Result<()> {
    let path = bench.directory.join(COMMAND_FILE);
    fs::write(&path, format!("{}\n", bench.command)).map_err(Error::io(path.display().to_string()))
}

fn check_command(bench: &Bench<'_>) -> Result<()> {
    let path = bench.directory.join(COMMAND_FILE);
    match fs::read_to_string(&path) {
        Ok(command) if command.trim() != bench.command => {
            Err(refused(bench.directory, &format!("the runs of {:?}", command.trim())))
        }
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(path.display().to_string())(error))
        }
        _ => Ok(()),
    }
}

fn check_programs(
    runs: &[PlannedRun],
    records: &[&Record],
    fingerprints: &mut Fingerprints<'_>,
    directory: &Path,
) -> Result<()> {
    let mut own: BTreeMap<&str, Vec<Option<String>>> = BTreeMap::new();
    for run in runs {
        let fingerprint = fingerprints.of(&run.subject)?;
        let known = own.entry(&run.target).or_default();
        if !known.contains(&fingerprint) {
            known.push(fingerprint);
        }
    }
    for record in records {
        let made_by = record.target_settings.get(PROGRAM);
        let is_own = |own: &Option<String>| own.is_none() || own.as_ref() == made_by;
        if own.get(&*record.target).is_some_and(|known| !known.iter().any(is_own)) {
            let what =
                format!("runs of {:?} that another build of its program made", record.target);
            return Err(refused(directory, &what));
        }
    }
    Ok(())
}

/// What tells two machines apart, in words.
fn difference(kept: &Machine, now: &Machine) -> Option<String> {
    let bytes =
        |bytes: Option<u64>| bytes.map_or("none".to_owned(), |bytes| format!("{bytes} bytes"));
    let memory = [kept, now].map(|machine| bytes(Some(machine.memory_bytes)));
    let limit = [kept, now].map(|machine| bytes(machine.memory_limit_bytes));
    let is_close = kept.memory_bytes.abs_diff(now.memory_bytes) as f64
        <= MEMORY_SHARE * kept.memory_bytes.max(now.memory_bytes) as f64;
    let (cores, cores_now) = (kept.cores.to_string(), now.cores.to_string());
    let read_ahead = [kept, now].map(|machine| bytes(machine.read_ahead_bytes));
    // Where one of the two can't be told, nothing is.
    let ahead_is_known = kept.read_ahead_bytes.is_some() && now.read_ahead_bytes.is_some();
    let read_ahead_now = if ahead_is_known { &read_ahead[1] } else { &read_ahead[0] };
    let all = [
        ("processor", &kept.cpu, &now.cpu),
        ("cores", &cores, &cores_now),
        ("memory", &memory[0], if is_close { &memory[0] } else { &memory[1] }),
        ("limit of memory", &limit[0], &limit[1]),
        ("kernel", &kept.kernel, &now.kernel),
        ("file system", &kept.file_system, &now.file_system),
        ("read-ahead", &read_ahead[0], read_ahead_now),
    ];
    let differs = all.into_iter().filter(|(_, kept, now)| kept != now);
    let told: Vec<String> =
        differs.map(|(what, kept, now)| format!("{what}: {kept}, now {now}")).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn refused(directory: &Path, what: &str) -> Error {
    Error::Refused(format!(
        "{} holds {what}; give another directory with --out, or remove this one",
        directory.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_another_by_what_its_figures_depend_on() {
        let machine = Machine {
            cpu: "a processor".into(),
            cores: 2,
            memory_bytes: 24 << 30,
            kernel: "6.18".into(),
            file_system: "ext4".into(),
            memory_limit_bytes: None,
            read_ahead_bytes: Some(128 << 10),
        };
        assert_eq!(difference(&machine, &machine), None);
        let after_a_start = Machine { memory_bytes: (24 << 30) - (20 << 20), ..machine.clone() };
        assert_eq!(difference(&machine, &after_a_start), None);
        let untold = Machine { read_ahead_bytes: None, ..machine.clone() };
        assert_eq!(difference(&machine, &untold), None);
        assert_eq!(difference(&untold, &machine), None);
        let others = [
            ("processor: a processor, now b", Machine { cpu: "b".into(), ..machine.clone() }),
            ("cores: 2, now 4", Machine { cores: 4, ..machine.clone() }),
            ("memory: ", Machine { memory_bytes: 16 << 30, ..machine.clone() }),
            ("limit of memory: none", Machine { memory_limit_bytes: Some(1), ..machine.clone() }),
            ("kernel: 6.18, now 7.0", Machine { kernel: "7.0".into(), ..machine.clone() }),
            ("file system: ext4", Machine { file_system: "xfs".into(), ..machine.clone() }),
            (
                "read-ahead: 131072 bytes, now 0",
                Machine { read_ahead_bytes: Some(0), ..machine.clone() },
            ),
        ];
        for (told, other) in others {
            let difference = difference(&machine, &other).unwrap();
            assert!(difference.starts_with(told) && !difference.contains(';'), "{difference}");
        }
    }
}
