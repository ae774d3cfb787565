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

use super::picks::{case, different, median_of, of_valid, told};
use super::planning::{engine_named, in_turn, run};
use super::{Experiment, PlannedRun, Scale, Subject};
use crate::chart::{HeatCell, HeatTable, Unit};
use crate::error::{Error, Result};
use crate::load::WRITER_KEPT;
use crate::record::Record;
use crate::report::{Comparer, Measure, Metric, Report, Table};
use crate::run::RunOptions;
use crate::spec::{Durability, Length, Spec, ValueSizes, Workload};
use crate::target::{Budget, engine, floor};

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
/// A writer beside reads that made this share of its rate or more kept it.
const WRITER_KEEPS: f64 = 0.99;
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
        let engines = engine_order(records);
        let rows = different(records, |one| {
            let Spec { threads, key_names, .. } = one.spec;
            let [workload, bytes] =
                ["workload", "value bytes"].map(|name| case(one, name).to_owned());
            Some((workload, threads, key_names, bytes))
        });
        let cost = Metric::of_run(Measure::CpuPerOperation);
        let rate = Metric::of_run(Measure::Throughput);
        let has_floor = engines.iter().any(|name| name == floor::NAME);
        let columns = ["workload", "value bytes"]
            .into_iter()
            .chain(engines.iter().map(String::as_str))
            .chain(["speed / best rival's", "CPU / best rival's"])
            .chain(
                has_floor
                    .then_some(["CPU / floor's", "best rival's CPU / floor's"])
                    .into_iter()
                    .flatten(),
            );
        let mut table = Table::new(columns);
        let mut cells = Vec::new();
        let (mut ahead, mut compared) = (0, 0);
        for (workload, threads, key_names, bytes) in &rows {
            let select = |engine: &str| {
                of_valid(records, |one| {
                    one.target == engine
                        && case(one, "workload") == workload
                        && one.spec.threads == *threads
                        && one.spec.key_names == *key_names
                        && case(one, "value bytes") == bytes
                })
            };
            let selections: Vec<_> = engines.iter().map(|engine| select(engine)).collect();
            let figures: Vec<(Option<f64>, Option<f64>)> = selections
                .iter()
                .map(|selection| {
                    (
                        median_of(selection, |one| cost.of(one)),
                        median_of(selection, |one| rate.of(one)),
                    )
                })
                .collect();
            let Ratios { speed, cpu, over_floor, best_over_floor, .. } = ratios(&engines, &figures);
            if let Some(speed) = speed {
                compared += 1;
                ahead += u32::from(speed > 1.0);
            }
            let asked = match threads {
                1 => workload.clone(),
                _ => format!("{workload}, {threads} threads"),
            };
            let asked = if *key_names { format!("{asked}, names") } else { asked };
            let name = format!("{asked}, {bytes} B");
            let texts = figures.iter().zip(&selections).map(|((cost, rate), selection)| {
                let (Some(cost), Some(rate)) = (cost, rate) else { return "-".to_owned() };
                let text = format!("{cost:.2} us; {}", Unit::PerSecond.format(*rate));
                match median_of(selection, told(WRITER_KEPT)).filter(|kept| *kept < WRITER_KEEPS) {
                    Some(kept) => format!("{text}; writer at {:.0} %", (100.0 * kept).floor()),
                    None => text,
                }
            });
            let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |it| format!("{it:.2}"));
            let over = has_floor.then(|| [ratio(over_floor), ratio(best_over_floor)]);
            table = table.row(
                [asked, bytes.clone()]
                    .into_iter()
                    .chain(texts)
                    .chain([ratio(speed), ratio(cpu)])
                    .chain(over.into_iter().flatten()),
            );
            let engines = figures.len() - usize::from(has_floor);
            cells.push((name, heat_row(&figures[..engines])));
        }
        report.answer(match compared {
            0 => "These runs have no rival to compare with.".to_owned(),
            _ => {
                let are_named = records.iter().all(|one| one.spec.key_names);
                let keys = if are_named { " with keys that begin with names" } else { "" };
                let rivals: Vec<&str> =
                    engines.iter().map(String::as_str).filter(|name| is_rival(name)).collect();
                let best = match rivals[..] {
                    [only] => only.to_owned(),
                    _ => format!("the best of {}", rivals.join(", ")),
                };
                format!(
                    "In the median Tallybook makes more operations per second than {best} in {ahead} of \
                     {compared} rows{keys}, each rival taken where it is best."
                )
            }
        });
        report.section("One table");
        let keys = different(records, |one| Some(format!("keys of {}", one.spec.key_shape())));
        let level = match records.first().map(|one| one.spec.durability) {
            Some(Durability::Sync) => "sync: power loss",
            _ => "os: the process being killed",
        };
        report.paragraph(&format!(
            "Each cell: CPU time per operation, background work included, then operations per second; \
             medians. Speed above 1 and CPU below 1 is better than the best of the rivals in these runs, which \
             may be another one in each row and column. One thread where no more are named, {}, equal memory; an \
             acknowledged write survives {level} (fillsync: power loss). Which engine does more or less than that for \
             it is among the settings below (durability, survives).",
            keys.join(" or ")
        ));
        report.paragraph(match rows.iter().any(|(workload, ..)| workload == FIRST_READS) {
            true => {
                "Before reads are measured, others of their kind are made, and merges that an engine begins \
                 because of those are in no row. What the first reads after a fill set going is in firstreads: as \
                 many gets as there are keys, with the work behind them until the store is at rest."
            }
            false => {
                "Before reads are measured, others of their kind are made, and merges that an engine begins \
                 because of those are in no row."
            }
        });
        if has_floor {
            report.paragraph(
                "The floor is no store: a table in memory and one mapped file, with checksums, written so that \
                 it survives a kill, and nothing else: no order while it is written, no space given back, no \
                 bounds, no recovery. Where the best rival takes less than an asked multiple of the floor, \
                 that multiple can't be had on this machine by doing less.",
            );
        }
        report.summary_table("CPU per operation and operations per second", &table);
        let heat = HeatTable {
            title: "operations per second, as multiples of the best other engine's; blue is faster"
                .to_owned(),
            columns: engines.iter().filter(|name| *name != floor::NAME).cloned().collect(),
            rows: cells,
        };
        report.picture(
            "Who is fastest, and by how much",
            "Each cell is a ratio of medians.",
            &heat,
        );
        for rival in engines.iter().filter(|name| is_rival(name)) {
            let comparer = Comparer::Targets { baseline: rival, subject: engine::NAME };
            report.comparison(comparer.compare(records));
        }
        report
    }
}

/// Tallybook, then the rivals that were named, or those that belong to the scale.
pub(super) fn engines(scale: Scale, against: &[String]) -> Result<Vec<&'static str>> {
    let names = || RIVALS.iter().map(|(name, _)| *name);
    let known = || names().chain([LESS_DURABLE, LMDB_RANDOM, engine::NAME, floor::NAME]);
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

fn is_rival(name: &str) -> bool {
    name != engine::NAME && name != floor::NAME
}

/// What the floor can do: it sorts all that it has before it scans, so that it doesn't scan and write in turn.
fn floor_does(workload: Workload) -> bool {
    workload != Workload::YcsbE
}

/// Tallybook first, the others by first appearance in the list of rivals, the floor last.
fn engine_order(records: &[Record]) -> Vec<String> {
    let mut engines = different(records, |one| Some(one.target.clone()));
    let rank = |name: &str| match name {
        engine::NAME => 0,
        floor::NAME => usize::MAX,
        _ => 1 + RIVALS.iter().position(|(rival, _)| *rival == name).unwrap_or(RIVALS.len()),
    };
    engines.sort_by_key(|name| rank(name));
    engines
}

/// How Tallybook compares in one row, where there is something to compare with.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ratios<'a> {
    /// The rival that makes most operations per second.
    pub(super) fastest: Option<&'a str>,
    /// The rival that takes least CPU time per operation.
    pub(super) thriftiest: Option<&'a str>,
    /// Operations per second, over the best rival's.
    pub(super) speed: Option<f64>,
    /// CPU time per operation, over the best rival's.
    pub(super) cpu: Option<f64>,
    /// CPU time per operation, over the floor's.
    over_floor: Option<f64>,
    /// The best rival's CPU time per operation, over the floor's.
    best_over_floor: Option<f64>,
}

/// Compares the engines' costs and rates.
pub(super) fn ratios<'a>(
    engines: &'a [String],
    figures: &[(Option<f64>, Option<f64>)],
) -> Ratios<'a> {
    let both = || engines.iter().zip(figures);
    let of = |wanted: &str| both().find(|(name, _)| *name == wanted).map(|(_, figures)| *figures);
    let rivals = || both().filter(|(name, _)| is_rival(name));
    let (our_cost, our_rate) = of(engine::NAME).unwrap_or_default();
    let (floor_cost, _) = of(floor::NAME).unwrap_or_default();
    let by_rate = rivals().filter_map(|(name, (_, rate))| Some((name.as_str(), (*rate)?)));
    let by_cost = rivals().filter_map(|(name, (cost, _))| Some((name.as_str(), (*cost)?)));
    let fastest = by_rate.max_by(|a, b| a.1.total_cmp(&b.1));
    let thriftiest = by_cost.min_by(|a, b| a.1.total_cmp(&b.1));
    let (best_rate, best_cost) = (fastest.map(|(_, rate)| rate), thriftiest.map(|(_, cost)| cost));
    let over =
        |one: Option<f64>, other: Option<f64>| one.zip(other).map(|(one, other)| one / other);
    Ratios {
        fastest: fastest.map(|(name, _)| name),
        thriftiest: thriftiest.map(|(name, _)| name),
        speed: over(our_rate, best_rate),
        cpu: over(our_cost, best_cost),
        over_floor: over(our_cost, floor_cost),
        best_over_floor: over(best_cost, floor_cost),
    }
}

/// Each engine's speed over the best of the others.
fn heat_row(figures: &[(Option<f64>, Option<f64>)]) -> Vec<Option<HeatCell>> {
    let best_other = |own: usize| {
        let others = figures.iter().enumerate().filter(|(at, _)| *at != own);
        others.filter_map(|(_, (_, rate))| *rate).reduce(f64::max)
    };
    let cell = |(at, (_, rate)): (usize, &(Option<f64>, Option<f64>))| {
        let rate = (*rate)?;
        let goodness = best_other(at).map_or(1.0, |best| rate / best);
        let note = Unit::PerSecond.format(rate);
        Some(HeatCell { text: Unit::Ratio.format(goodness), goodness, note })
    };
    figures.iter().enumerate().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
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
    fn the_best_rival_is_another_one_by_each_measure() {
        let engines = ["tallybook", "a", "b", "floor"].map(str::to_owned);
        let figures = [
            (Some(2.0), Some(300.0)),
            (Some(1.0), Some(100.0)),
            (Some(4.0), Some(200.0)),
            (Some(0.5), Some(900.0)),
        ];
        let without_floor = Ratios {
            fastest: Some("b"),
            thriftiest: Some("a"),
            speed: Some(1.5),
            cpu: Some(2.0),
            ..Ratios::default()
        };
        assert_eq!(ratios(&engines[..3], &figures[..3]), without_floor);
        let with_floor =
            Ratios { over_floor: Some(4.0), best_over_floor: Some(2.0), ..without_floor };
        assert_eq!(ratios(&engines, &figures), with_floor);
        assert_eq!(ratios(&engines[..1], &figures[..1]), Ratios::default());
        let row = heat_row(&figures[..3]);
        assert_eq!(row[1].as_ref().unwrap().goodness, 1.0 / 3.0);
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
