//! `kfs`: the file store beside KFS and beside one LevelDB, as the study that came with KFS compared
//! the latter two.
//!
//! 1. A trial writes, reads and unlinks a file of each size, from 8 to 512 MiB. At each size the
//!    stores take turns, in another order each time. Trials go on in the same stores.
//! 2. After its last file of a trial a store is left alone and its disk is watched.
//! 3. Then a small file is written into each of 256 buckets of a fresh store.
//!
//! The study wrote all files of a trial, then read all, then unlinked all; here a file is unlinked
//! before the next is written, so that stores can take turns.

mod cells;
mod asked;
mod study;
mod report;

use std::time::Duration;

use super::planning::{MIB, budget, named, seed};
use super::{Experiment, FilesStore, PlannedRun, Scale, Subject};
use crate::error::{Error, Result};
use crate::record::Record;
use crate::report::Report;
use crate::run::RunOptions;
use crate::spec::{Durability, Length, Spec, ValueSizes, Workload};
use crate::target::Budget;

/// A store as it is asked: its name in records, and whether its writes are synced.
const TARGETS: [(&str, FilesStore, Durability); 5] = [
    (OURS, FilesStore::Tallybook, Durability::Os),
    (OURS_SYNCED, FilesStore::Tallybook, Durability::Sync),
    (KFS, FilesStore::Kfs, Durability::Os),
    (LEVELDB, FilesStore::LevelDb, Durability::Os),
    (LEVELDB_SYNCED, FilesStore::LevelDb, Durability::Sync),
];
const OURS: &str = "tallybook";
const OURS_SYNCED: &str = "tallybook, synced";
const KFS: &str = "kfs";
const LEVELDB: &str = "leveldb";
const LEVELDB_SYNCED: &str = "leveldb, synced";
/// The study's sizes, in MiB.
const SIZES: [u64; 7] = [8, 16, 32, 64, 128, 256, 512];
const OPERATIONS: [&str; 3] = ["write", "read", "unlink"];
/// How many buckets a store has at most, and the bytes of the small file in each.
const BUCKETS: u32 = 256;
const SMALL_BYTES: u32 = 1000;

/// The experiment.
pub(super) struct Kfs;

impl Experiment for Kfs {
    fn name(&self) -> &'static str {
        "kfs"
    }

    fn question(&self) -> &'static str {
        "How fast are files written, read and unlinked beside KFS and one LevelDB, and what do they leave?"
    }

    /// `against`: stores of files. At the tiny scale no rival is asked for unless named, so that it
    /// runs where none is installed.
    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        let stores = stores(scale, against)?;
        let targets: Vec<_> =
            TARGETS.into_iter().filter(|(_, store, _)| stores.contains(store)).collect();
        let sizes: &[u64] = scale.pick(&[1, 2], &SIZES, &SIZES);
        let mut runs = Vec::new();
        for trial in 0..scale.pick(2, 10, 100) {
            for (at, &size) in sizes.iter().enumerate() {
                let turns = targets.iter().cycle().skip((trial as usize + at) % targets.len());
                for &target in turns.take(targets.len()) {
                    runs.push(file(target, size, trial, scale));
                    if at + 1 == sizes.len() {
                        runs.push(rest(target, trial, scale));
                    }
                }
            }
            let unsynced =
                targets.iter().filter(|(_, _, durability)| *durability == Durability::Os);
            let with_buckets = unsynced.filter(|(_, store, _)| *store != FilesStore::LevelDb);
            runs.extend(with_buckets.map(|&target| each_bucket(target, trial, scale)));
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        report::report(Report::new(self.name(), self.question(), rerun, records.to_vec()), records)
    }
}

/// Tallybook's, then those that were named, or those that belong to the scale.
fn stores(scale: Scale, against: &[String]) -> Result<Vec<FilesStore>> {
    let mut chosen = vec![FilesStore::Tallybook];
    for word in against {
        let found = FilesStore::ALL.iter().find(|store| store.name() == word);
        chosen.push(*found.ok_or_else(|| Error::Unknown {
            what: "store of files",
            name: word.clone(),
            known: FilesStore::ALL.iter().map(|store| store.name().to_owned()).collect(),
        })?);
    }
    if against.is_empty() && scale != Scale::Tiny {
        chosen.extend(FilesStore::ALL);
    }
    Ok(chosen)
}

type Target = (&'static str, FilesStore, Durability);

fn file(target: Target, mib: u64, trial: u32, scale: Scale) -> PlannedRun {
    let spec = Spec { workload: Workload::WriteReadUnlink, ..spec(mib * MIB, trial) };
    planned(target, &[("size", &format!("{mib:03} MiB"))], spec, trial, scale)
}

fn rest(target: Target, trial: u32, scale: Scale) -> PlannedRun {
    let length = Length::Time(Duration::from_secs(scale.pick(6, 30, 30)));
    let spec = Spec { workload: Workload::Rest, length, ..spec(0, trial) };
    planned(target, &[("part", "rest")], spec, trial, scale)
}

fn each_bucket(target: Target, trial: u32, scale: Scale) -> PlannedRun {
    let buckets = scale.pick(16, BUCKETS, BUCKETS);
    let spec = Spec {
        workload: Workload::EachBucket,
        keys: u64::from(buckets),
        ..spec(u64::from(SMALL_BYTES), trial)
    };
    let run = planned(target, &[("part", "buckets")], spec, trial, scale);
    PlannedRun {
        subject: Subject::Files { store: target.1, buckets: Some(BUCKETS) },
        shared_store: None,
        ..run
    }
}

fn spec(bytes: u64, trial: u32) -> Spec {
    Spec {
        keys: 1,
        key_bytes: 40,
        values: ValueSizes::Fixed(u32::try_from(bytes).unwrap_or(u32::MAX)),
        compressible: 0.0,
        length: Length::Operations(OPERATIONS.len() as u64),
        seed: seed(trial, 0),
        ..Spec::default()
    }
}

fn planned(
    target: Target,
    case: &[(&str, &str)],
    spec: Spec,
    trial: u32,
    scale: Scale,
) -> PlannedRun {
    let (name, store, durability) = target;
    PlannedRun {
        case: named(case),
        subject: Subject::Files { store, buckets: None },
        target: name.to_owned(),
        repetition: trial,
        prefill: None,
        spec: Spec { durability, ..spec },
        options: RunOptions { settle: scale != Scale::Tiny, ..RunOptions::default() },
        budget: Budget { durability, ..budget(0) },
        shared_store: Some(name.to_owned()),
        is_profiled: false,
        memory_bytes_max: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_each_size_the_stores_take_turns_and_each_goes_first() {
        let runs = Kfs.runs(Scale::Small, &[]).unwrap();
        let of_size = |trial: u32, size: &str| -> Vec<String> {
            let runs = runs.iter().filter(|run| {
                run.repetition == trial && run.case.get("size").is_some_and(|one| one == size)
            });
            runs.map(|run| run.target.clone()).collect()
        };
        let first = of_size(0, "008 MiB");
        assert_eq!(first, TARGETS.map(|(name, ..)| name));
        let firsts: std::collections::BTreeSet<String> =
            (0..5).map(|trial| of_size(trial, "512 MiB").remove(0)).collect();
        assert_eq!(firsts.len(), 5);
        let seeds = |target: &str| -> Vec<u64> {
            let of =
                runs.iter().filter(|run| run.target == target && run.case.contains_key("size"));
            of.map(|run| run.spec.seed).collect()
        };
        assert_eq!(seeds(OURS), seeds(KFS));
    }

    #[test]
    fn a_store_rests_behind_its_last_file_of_a_trial() {
        let runs = Kfs.runs(Scale::Small, &[]).unwrap();
        for (at, run) in runs.iter().enumerate() {
            if run.spec.workload == Workload::Rest {
                let before = &runs[at - 1];
                assert_eq!((&before.target, before.repetition), (&run.target, run.repetition));
                assert_eq!(before.case["size"], "512 MiB");
            }
        }
    }

    #[test]
    fn rivals_are_chosen_by_name() {
        let against = ["leveldb".to_owned()];
        let runs = Kfs.runs(Scale::Tiny, &against).unwrap();
        assert!(runs.iter().any(|run| run.target == LEVELDB_SYNCED));
        assert!(runs.iter().all(|run| run.target != KFS));
        let error = Kfs.runs(Scale::Tiny, &["kfz".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("kfs") && error.contains("leveldb"), "{error}");
    }
}
