//! `rivals`: every workload on every engine, in process, with the same memory and durability.
//!
//! 1. Workloads that only read share one store per engine, filled once a round; those that overwrite
//!    follow on it, in the same order for every engine. Those that insert, delete or begin empty have
//!    stores of their own. The first reads of a filled store are a row of their own, with the merges that
//!    they set going.
//! 2. For each workload the engines come in turn, in another order each round.
//!
//! Two workloads are also made with several threads. One table comes of it: rows workloads, columns
//! engines, and the ratio to the best of the rivals that were run. If it is named, the floor under the
//! engines is a column too, and no rival.

use std::collections::BTreeMap;
use std::time::Duration;

use super::planning::{engine_named, in_turn, run};
use super::{Experiment, PlannedRun, Scale, Subject};
use crate::error::{Error, Result};
use crate::record::Record;
use crate::report::Report;
use crate::run::RunOptions;
use crate::spec::{Durability, Length, Spec, ValueSizes, Workload};
use crate::target::{Budget, engine, floor};

mod report;

pub(super) use report::ratios;

/// The rivals, and whether their values are kept apart from their keys from 1 KiB on.
const RIVALS: [(&str, bool); 9] = [
    ("rocksdb", false),
    ("rocksdb-tuned", false),
    ("rocksdb-blob", true),
    ("leveldb", false),
    ("fjall", false),
    ("fjall-blob", true),
    ("lmdb", false),
    ("redb", false),
    ("sled", false),
];
/// One that is known and not asked for unless named, because it promises less than the others.
const LESS_DURABLE: &str = "sled-buffered";
/// LMDB without the device's read-ahead, which is for data larger than memory; these are smaller.
pub(super) const LMDB_RANDOM: &str = "lmdb-random";
/// RocksDB with filters and all that a block cache takes, for the same.
pub(super) const ROCKSDB_CACHED: &str = "rocksdb-cached";
/// Other ways to set an engine, for who names them: blocks' checksums are never compared; writes go to the
/// mapping itself.
const OTHER_WAYS: [&str; 2] = ["leveldb-unverified", "lmdb-writemap"];
/// The word that leaves all but the core rows at one value size out.
const CORE: &str = "core";
/// The word that has keys begin with names.
pub(super) const NAMES: &str = "names";
/// Words that name no engine.
const WORDS: [&str; 2] = [CORE, NAMES];
/// Bytes of a key that begins with a name: more than half of them are the name's.
const NAMED_KEY_BYTES: u32 = 32;
pub(super) const CORE_ROWS: [Workload; 9] = [
    Workload::FillSeq,
    Workload::FillRandom,
    Workload::ReadRandom,
    Workload::ReadMissing,
    Workload::HeadRandom,
    Workload::SeekRandom,
    Workload::Overwrite,
    Workload::ReadWhileWriting,
    Workload::YcsbA,
];
/// Workloads that are also made with so many threads: sessions that read side by side, and that share syncs.
const THREADED: [(Workload, u32); 2] = [(Workload::FillSync, 4), (Workload::ReadRandom, 2)];
/// The row of the reads that come right after the fill.
const FIRST_READS: &str = "firstreads";
const VALUE_BYTES: [u32; 3] = [100, 1 << 10, 4 << 10];
/// Least length of values that engines with separation keep apart.
const SEPARATED_BYTES: u32 = 1 << 10;

/// The experiment.
pub(super) struct Rivals;

impl Experiment for Rivals {
    fn name(&self) -> &'static str {
        "rivals"
    }

    fn question(&self) -> &'static str {
        "What does each kind of work cost in Tallybook, beside the engines that people use today?"
    }

    /// `against`: engines, `floor`, `core` for the core rows at 100-byte values alone, and `names` for keys that
    /// begin with names. At the tiny scale no rival is asked for unless named, so that it runs where none is built.
    fn runs(&self, scale: Scale, against: &[String]) -> Result<Vec<PlannedRun>> {
        let [core, key_names] = WORDS.map(|wanted| against.iter().any(|word| word == wanted));
        let engines = engines(scale, against)?;
        let sizes = if core || scale == Scale::Tiny { &VALUE_BYTES[..1] } else { &VALUE_BYTES[..] };
        let repetitions = match scale {
            Scale::Tiny => 2,
            Scale::Small if core => 3,
            Scale::Small => 2,
            Scale::Full => 5,
        };
        let mut runs = Vec::new();
        // Sizes outermost: an experiment that is stopped early has whole rows.
        for &value_bytes in sizes {
            for repetition in 0..repetitions {
                for (workload, threads, is_first) in rows(core) {
                    let row = Row { workload, threads, value_bytes, key_names, is_first };
                    let fits = |name: &&str| {
                        if *name == floor::NAME {
                            return floor_does(workload);
                        }
                        let apart = RIVALS.iter().any(|(rival, apart)| rival == name && *apart);
                        against.iter().any(|word| word == *name)
                            || !apart
                            || value_bytes >= SEPARATED_BYTES
                    };
                    let present: Vec<&str> = engines.iter().copied().filter(fits).collect();
                    runs.extend(
                        in_turn(&present, repetition)
                            .map(|name| planned(name, engine_named(name), row, scale, repetition)),
                    );
                }
            }
        }
        Ok(runs)
    }

    fn report(&self, records: &[Record], rerun: &str) -> Report {
        let mut report = Report::new(self.name(), self.question(), rerun, records.to_vec());
        report::draw(&mut report, records);
        report
    }
}

/// Tallybook, then the rivals that were named, or those that belong to the scale.
pub(super) fn engines(scale: Scale, against: &[String]) -> Result<Vec<&'static str>> {
    let names = || RIVALS.iter().map(|(name, _)| *name);
    let known = || {
        names()
            .chain([LESS_DURABLE, LMDB_RANDOM, ROCKSDB_CACHED])
            .chain(OTHER_WAYS)
            .chain([engine::NAME, floor::NAME])
    };
    let mut chosen = vec![engine::NAME];
    for word in against.iter().filter(|word| !is_word(word)) {
        let found = known().find(|name| name == word).ok_or_else(|| Error::Unknown {
            what: "rival",
            name: word.clone(),
            known: known().chain(WORDS).map(str::to_owned).collect(),
        })?;
        if !chosen.contains(&found) {
            chosen.push(found);
        }
    }
    if against.iter().all(|word| is_word(word)) && scale != Scale::Tiny {
        chosen.extend(names());
    }
    Ok(chosen)
}

fn is_word(word: &str) -> bool {
    WORDS.contains(&word)
}

/// The workloads, with their threads and whether they are the first reads, in the order in which they are made;
/// what changes a store comes after what reads it.
fn rows(core: bool) -> Vec<(Workload, u32, bool)> {
    let mut all = vec![(Workload::ReadRandom, 1, true)];
    all.extend(Workload::ALL.iter().map(|&workload| (workload, 1, false)));
    all.retain(|(workload, ..)| !core || CORE_ROWS.contains(workload));
    if !core {
        all.extend(THREADED.map(|(workload, threads)| (workload, threads, false)));
    }
    // Stable: the first reads stay the first.
    all.sort_by_key(|&(workload, ..)| place(workload));
    all
}

/// Where among the others a workload comes: 0 has an empty store, 1 reads, 2 overwrites, 3 needs a store
/// of its own.
pub(super) fn place(workload: Workload) -> u8 {
    use Workload::{DeleteRandom, YcsbD, YcsbE};
    match workload {
        _ if workload.starts_empty() => 0,
        DeleteRandom | YcsbD | YcsbE => 3,
        _ if workload.writes() => 2,
        _ => 1,
    }
}

/// What is done, apart from who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) workload: Workload,
    pub(super) threads: u32,
    pub(super) value_bytes: u32,
    pub(super) key_names: bool,
    /// Whether it is the first that reads a filled store: as often as there are keys, with nothing before.
    pub(super) is_first: bool,
}

/// A run of a row by the engine `subject`, which records call by this name.
pub(super) fn planned(
    name: &str,
    subject: Subject,
    row: Row,
    scale: Scale,
    repetition: u32,
) -> PlannedRun {
    let Row { workload, threads, value_bytes: bytes, key_names, is_first } = row;
    let small = if bytes <= 100 { 500_000 } else { 150_000_000 / u64::from(bytes + 16) };
    let keys: u64 = scale.pick(1_000, small, small * 20);
    let time = Length::Time(Duration::from_secs_f64(scale.pick(0.1, 3.0, 30.0)));
    let is_sync = workload == Workload::FillSync;
    let spec = Spec {
        workload,
        keys,
        values: ValueSizes::Fixed(bytes),
        length: match workload {
            // An fdatasync each.
            Workload::FillSync => Length::Operations(scale.pick(50, 1_000, 20_000)),
            _ if workload.starts_empty() || is_first => Length::Operations(keys),
            Workload::DeleteRandom => Length::Operations(keys / 2),
            _ => time,
        },
        threads,
        durability: if is_sync { Durability::Sync } else { Durability::Os },
        key_names,
        key_bytes: if key_names { NAMED_KEY_BYTES } else { Spec::default().key_bytes },
        ..Spec::default()
    };
    let is_warm = place(workload) == 1 && !is_first;
    let durability = spec.durability;
    let mut case = BTreeMap::from([
        ("workload".to_owned(), if is_first { FIRST_READS } else { workload.name() }.to_owned()),
        ("value bytes".to_owned(), bytes.to_string()),
    ]);
    if threads > 1 {
        case.insert("threads".to_owned(), threads.to_string());
    }
    if key_names {
        case.insert("keys".to_owned(), NAMES.to_owned());
    }
    PlannedRun {
        case,
        target: name.to_owned(),
        options: RunOptions {
            warm_up: is_warm
                .then(|| Length::Time(Duration::from_secs_f64(scale.pick(0.05, 0.5, 5.0)))),
            // What reads set going they do in the warm-up (decision 25), and the first reads are charged for
            // what the fill left to them; engines that can't tell are waited for at a price.
            settle: !is_warm && scale != Scale::Tiny,
            ..RunOptions::default()
        },
        budget: Budget {
            write_buffer_bytes: scale.pick(4 << 20, 32 << 20, 128 << 20),
            cache_bytes: scale.pick(4 << 20, 32 << 20, 128 << 20),
            durability,
        },
        shared_store: matches!(place(workload), 1 | 2)
            .then(|| format!("{name}, {bytes} bytes, repetition {repetition}")),
        ..run(repetition, &[], subject, spec)
    }
}

/// What the floor can do: it sorts all that it has before it scans, so that it doesn't scan and write in turn.
fn floor_does(workload: Workload) -> bool {
    workload != Workload::YcsbE
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::load::WRITER_KEPT;
    use crate::record::Outcome;

    #[test]
    fn an_unknown_rival_lists_the_known_ones() {
        let error = Rivals.runs(Scale::Small, &["rocksdbx".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("rocksdb-tuned") && error.contains("core"), "{error}");
    }

    #[test]
    fn a_word_has_keys_begin_with_names() {
        let runs = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Rivals.runs(Scale::Small, &words).unwrap()
        };
        let (plain, named) = (runs(&["core", "lmdb"]), runs(&["names", "core", "lmdb"]));
        assert_eq!(plain.len(), named.len());
        for (plain, named) in plain.iter().zip(&named) {
            assert!(!plain.spec.key_names && named.spec.key_names);
            assert_eq!((plain.spec.key_bytes, named.spec.key_bytes), (16, 32));
            assert!(plain.case != named.case, "records of both are told apart");
            crate::workload::Plan::new(&named.spec).unwrap();
        }
    }

    /// The warm-up of other reads hides what they set going, as merges of what the fill left.
    #[test]
    fn the_first_reads_of_a_filled_store_are_charged_for_what_they_set_going() {
        for words in [&["lmdb"][..], &["lmdb", "core"]] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let runs = Rivals.runs(Scale::Small, &words).unwrap();
            let is_first = |run: &&PlannedRun| run.case["workload"] == FIRST_READS;
            let mut stores = std::collections::BTreeSet::new();
            for run in runs.iter().filter(|run| run.shared_store.is_some()) {
                let is_new = stores.insert(&run.shared_store);
                assert_eq!(is_first(&run), is_new, "{}", run.label());
            }
            for run in runs.iter().filter(is_first) {
                assert_eq!(run.spec.length, Length::Operations(run.spec.keys));
                assert!(run.options.warm_up.is_none() && run.options.settle);
            }
        }
    }

    #[test]
    fn the_answer_names_the_rivals_that_were_run() {
        let planned = Rivals.runs(Scale::Tiny, &["lmdb".to_owned(), "redb".to_owned()]).unwrap();
        let record = |planned: &PlannedRun| {
            let operations = if planned.target == engine::NAME { 200 } else { 100 };
            let outcome = Outcome { seconds: 1.0, operations, cpu_s: 1.0, ..Outcome::default() };
            planned.name("rivals").record([].into(), None, SystemTime::now(), outcome)
        };
        let records: Vec<Record> = planned.iter().map(record).collect();
        let report = Rivals.report(&records, "rerun");
        let (summary, rows) = (report.summary_markdown(), rows(false).len());
        let told = format!("than the best of lmdb, redb in {rows} of {rows} rows");
        assert!(summary.contains("In the median") && summary.contains(&told), "{summary}");
        assert!(summary.contains("| firstreads |"), "{summary}");
        assert!(
            report.html().contains("What the first reads after a fill set going is in firstreads")
        );
    }

    #[test]
    fn engines_take_turns_and_nothing_reads_a_store_that_was_written_to() {
        let against = ["lmdb".to_owned(), "redb".to_owned()];
        let runs = Rivals.runs(Scale::Small, &against).unwrap();
        let turns: Vec<&str> = runs.iter().take(6).map(|run| &*run.target).collect();
        assert_eq!(turns, ["tallybook", "lmdb", "redb", "tallybook", "lmdb", "redb"]);
        let mut written = std::collections::BTreeSet::new();
        for run in runs {
            let Some(store) = run.shared_store else { continue };
            if run.spec.workload.writes() {
                written.insert(store);
            } else {
                assert!(!written.contains(&store), "{:?}", run.spec.workload);
            }
        }
    }

    #[test]
    fn a_cell_says_that_the_writer_beside_kept_less_than_its_rate() {
        let planned = Rivals.runs(Scale::Tiny, &["lmdb".to_owned()]).unwrap();
        let record = |planned: &PlannedRun| {
            let kept = if planned.target == engine::NAME { 0.995 } else { 0.5 };
            let outcome = crate::record::Outcome {
                seconds: 1.0,
                operations: 100,
                cpu_s: 1.0,
                figures: [(WRITER_KEPT.to_owned(), kept)].into(),
                ..Default::default()
            };
            let now = std::time::SystemTime::now();
            planned.name("rivals").record([].into(), None, now, outcome)
        };
        let beside = planned.iter().filter(|run| run.spec.workload == Workload::ReadWhileWriting);
        let records: Vec<Record> = beside.map(record).collect();
        let summary = Rivals.report(&records, "rerun").summary_markdown();
        assert_eq!(summary.matches("; writer at ").count(), 1, "{summary}");
        assert!(summary.contains("; writer at 50 %"), "{summary}");
    }
}
