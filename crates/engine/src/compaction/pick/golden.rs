//! Decisions, as drawings of versions and the choices expected.
//!
//! A line is a run: level, id, and tables as `number:smallest-largest`. Behind `largest`, `)` excludes
//! it; `smallest>visible` is a clipped table. In braces: `b` bytes and `e` entries (10 each), `k` keys
//! (as entries), `t` tombstones, `s` lowest-highest SeqNo (the number), `x` when all entries expire,
//! `v` bytes of values pointed at, `c` boundaries, `d` deleted range and its SeqNo.
//! Of idle stores, `hidden=entries,bytes`; all is hidden unless it is said.
//! `unreadable=table:key` is a table that can't be read from the key on, `retried` one that is tried again.
//! In choices, `]` is the end of a slice behind a table's largest key.
//! Defaults of options: `runs=2 job=1000 l1=1000`, and `l0-runs` as `runs`.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::sstable::{Properties, SegmentRef};
use crate::version::{Added, Clipped, VersionEdit};

#[derive(Default)]
struct Drawing {
    edit: VersionEdit,
    clips: VersionEdit,
    boundaries: HashMap<u64, Vec<Bytes>>,
    deleted: HashMap<u64, Vec<RangeTombstone>>,
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is not a number"))
}

fn key(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn slice(text: &str) -> Slice {
    let (start, end) = text.split_once("..").expect("start..end");
    let bound = |text: &str| (!text.is_empty()).then(|| key(text));
    Slice { start: bound(start), end: bound(end) }
}

impl Drawing {
    fn add(&mut self, level: usize, run_id: u64, text: &str) {
        let (bounds, figures) = text.split_once('{').unwrap_or((text, ""));
        let (id, bounds) = bounds.split_once(':').expect("number:bounds");
        let (smallest, largest) = bounds.split_once('-').expect("smallest-largest");
        let (smallest, visible) = smallest.split_once('>').unwrap_or((smallest, smallest));
        let table = number(id);
        let mut properties = Properties {
            file_bytes: 10,
            entries: 10,
            smallest: key(smallest),
            largest: key(largest.trim_end_matches(')')),
            largest_exclusive: largest.ends_with(')'),
            seqno_min: table,
            seqno_max: table,
            ..Properties::default()
        };
        let mut keys = None;
        for figure in figures.trim_end_matches('}').split_terminator(' ') {
            let (name, value) = figure.split_once('=').expect("name=value");
            match name {
                "b" => properties.file_bytes = number(value),
                "e" => properties.entries = number(value),
                "k" => keys = Some(number(value)),
                "t" => properties.tombstones = number(value),
                "x" => {
                    properties.expiring = properties.entries;
                    properties.expires_at_ms_max = number(value);
                }
                "v" => {
                    properties.segment_refs =
                        vec![SegmentRef { segment: 1, count: 1, bytes: number(value) }]
                }
                "s" => {
                    let (min, max) = value.split_once('-').expect("min-max");
                    (properties.seqno_min, properties.seqno_max) = (number(min), number(max));
                }
                "c" => {
                    self.boundaries.insert(table, value.split(',').map(key).collect());
                }
                "d" => {
                    let (range, seqno) = value.split_once('@').expect("range@seqno");
                    let Slice { start, end } = slice(range);
                    properties.range_tombstones += 1;
                    self.deleted.entry(table).or_default().push(RangeTombstone {
                        start: start.unwrap(),
                        end: end.unwrap(),
                        seqno: number(seqno),
                    });
                }
                _ => panic!("{name} is not a figure"),
            }
        }
        properties.keys = keys.unwrap_or(properties.entries);
        let meta = TableMeta::new(table, Arc::new(properties));
        self.edit.added.push(Added { level, run_id, meta });
        if visible != smallest {
            let smallest = key(visible);
            self.clips.clipped.push(Clipped { level, number: table, smallest });
        }
    }

    fn version(&self) -> Version {
        let mut unopened = |meta| Ok(LiveTable::unopened(meta));
        let version = Version::default().apply(&self.edit, &mut unopened).unwrap();
        version.apply(&self.clips, &mut unopened).unwrap()
    }
}

fn show_run(run: OutputRun) -> String {
    match run {
        OutputRun::Existing(id) => id.to_string(),
        OutputRun::New => "new".into(),
    }
}

fn show_tables(tables: &[std::sync::Arc<LiveTable>]) -> String {
    tables.iter().map(|table| table.number.to_string()).collect::<Vec<_>>().join(",")
}

fn show(choice: &Choice) -> String {
    let bound = |key: &Option<Bytes>| {
        key.as_ref().map_or(String::new(), |key| key.escape_ascii().to_string())
    };
    match choice {
        Choice::DoNothing => "nothing".into(),
        Choice::Move(moved) => {
            let (from, to) = (moved.from_level, moved.to_level);
            let run = show_run(moved.run);
            format!("move {} L{from} to L{to} {run}", show_tables(&moved.tables))
        }
        Choice::Drop(drop) => {
            let tables = drop.tables.iter();
            let tables = tables.map(|(level, table)| format!(" L{level}:{}", table.number));
            format!("drop{}", tables.collect::<String>())
        }
        Choice::Merge(merge) => {
            let inputs = merge.inputs.iter().map(|input| {
                let tables = show_tables(&input.tables);
                format!("L{}/{}:{tables} ", input.level, input.run_id)
            });
            let inputs: String = inputs.collect();
            let reason = format!("{:?}", merge.reason).to_lowercase();
            let (start, end) = (bound(&merge.slice.start), bound(&merge.slice.end) + ")");
            let end = end.replace("\\x00)", "]");
            let run = show_run(merge.output_run);
            let bottom = if merge.bottom { " bottom" } else { "" };
            format!("{reason} {inputs}[{start}..{end} to L{} {run}{bottom}", merge.output_level)
        }
    }
}

#[track_caller]
fn check(input: &str, expected: &str) {
    let mut drawing = Drawing::default();
    let (mut snapshots, mut busy) = (Vec::new(), Vec::new());
    let (mut unreadable, mut retried) = (Vec::new(), Vec::new());
    let (mut level_runs_max, mut job_bytes_max, mut level1_bytes) = (2, 1000, 1000);
    let mut level0_runs_max = None;
    let (mut now_ms, mut idle, mut manual) = (100, false, None);
    let (mut reads_paid, mut hidden) = (0, Hidden::ALL);
    for line in input.lines().map(str::trim).filter(|line| !line.is_empty()) {
        // A table's figures hold spaces: those in braces don't part words.
        let mut inside = false;
        let words = line.split(|char| {
            inside = char == '{' || inside && char != '}';
            char == ' ' && !inside
        });
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        if let Some(level) = words[0].strip_prefix('L') {
            let (level, run) = (number(level) as usize, number(words[1]));
            words[2..].iter().for_each(|table| drawing.add(level, run, table));
            continue;
        }
        for word in words {
            match word.split_once('=') {
                None if word == "idle" => idle = true,
                Some(("runs", value)) => level_runs_max = number(value) as usize,
                Some(("l0-runs", value)) => level0_runs_max = Some(number(value) as usize),
                Some(("job", value)) => job_bytes_max = number(value),
                Some(("l1", value)) => level1_bytes = number(value),
                Some(("now", value)) => now_ms = number(value),
                Some(("snapshot", value)) => snapshots.push(number(value)),
                Some(("manual", value)) => manual = Some(slice(value)),
                Some(("paid", value)) => reads_paid = number(value),
                Some(("hidden", value)) => {
                    let (entries, bytes) = value.split_once(',').expect("entries,bytes");
                    hidden = Hidden { entries: number(entries), bytes: number(bytes) };
                }
                Some((name @ ("unreadable" | "retried"), value)) => {
                    let (table, from) = value.split_once(':').expect("table:key");
                    let listed = if name == "retried" { &mut retried } else { &mut unreadable };
                    listed.push(Unreadable { table: number(table), from: key(from) });
                }
                // levels:slice:run
                Some(("busy", value)) => {
                    let parts: Vec<&str> = value.split(':').collect();
                    let (first, last) = parts[0].split_once('-').expect("first-last");
                    busy.push(InFlight {
                        slice: slice(parts[1]),
                        first_level: number(first) as usize,
                        output_level: number(last) as usize,
                        output_run: number(parts[2]),
                    });
                }
                _ => panic!("{word} is not an option"),
            }
        }
    }
    let version = drawing.version();
    let options = PickOptions {
        looks: &Cell::new(0),
        level_runs_max,
        level0_runs_max: level0_runs_max.unwrap_or(level_runs_max),
        job_bytes_max,
        level1_bytes,
        snapshots: &snapshots,
        now_ms,
        reads_paid,
        idle,
        hidden: &|_| hidden,
        busy: &busy,
        unreadable: &unreadable,
        retried: &retried,
        manual,
        boundaries: &|table| drawing.boundaries.get(&table.number).cloned().unwrap_or_default(),
        range_tombstones: &|table| drawing.deleted.get(&table.number).cloned().unwrap_or_default(),
    };
    assert_eq!(show(&pick(&version, &options)), expected, "for\n{input}");
}

#[test]
fn nothing_is_done_where_no_level_is_full() {
    check("", "nothing");
    check("idle", "nothing");
    check("manual=..", "nothing");
    check("L0 1 2:a-f", "nothing");
    check("L0 1 2:a-f\n idle", "nothing");
    check("runs=3\n L0 3 4:a-f\n L0 1 2:a-f", "nothing");
    check("L0 3 4:a-f\n L1 1 2:a-f", "nothing");
}

#[test]
fn a_full_l0_becomes_the_first_bottom_run() {
    check("L0 3 4:a-f\n L0 1 2:b-g", "full L0/3:4 L0/1:2 [a..g] to L1 new bottom");
}

#[test]
fn l0_waits_for_more_runs_unless_it_may_hide_much() {
    let two = "l0-runs=3\n L0 7 8:d-g{b=50}\n L0 5 6:a-f{b=51}";
    check(two, "nothing");
    check(&format!("{two}\n L1 1 2:a-f{{b=50}}"), "nothing");
    check(
        &format!("{two}\n L1 1 2:a-f{{b=49}}"),
        "full L0/7:8 L0/5:6 L1/1:2 [a..g] to L1 1 bottom",
    );
    check(&format!("{two}\n L0 3 4:a-f"), "full L0/7:8 L0/5:6 L0/3:4 [a..g] to L1 new bottom");
    let points = |bytes| format!("l0-runs=3\n L0 7 8:d-g{{b=50 v={bytes}}}\n L0 5 6:a-f{{b=50}}");
    check(&points(101), "nothing");
    check(&points(102), "full L0/7:8 L0/5:6 [a..g] to L1 new bottom");
}

#[test]
fn a_sweep_of_l0_that_has_begun_goes_on() {
    check(
        "l0-runs=3\n L0 7 8:d>f-g\n L0 5 6:f-g\n L1 1 2:a-e{b=900}",
        "full L0/7:8 L0/5:6 [f..g] to L1 1 bottom",
    );
}

#[test]
fn a_full_level_merges_with_the_overlapping_part_of_the_bottom_run() {
    check(
        "L0 9 10:c-f\n L0 7 8:d-g\n L1 1 2:a-b 3:b0-d 4:e-h 5:i-k",
        "full L0/9:10 L0/7:8 L1/1:3,4 [b0..h] to L1 1 bottom",
    );
}

#[test]
fn a_full_level_becomes_a_new_run_of_an_intermediate_one() {
    check(
        "L0 9 10:c-f\n L0 7 8:d-g\n L1 5 6:a-z\n L2 1 2:a-z",
        "full L0/9:10 L0/7:8 [c..g] to L1 new",
    );
    check(
        "L0 9 10:c-f\n L0 7 8:d-g\n L2 1 2:a-b 3:h-z",
        "full L0/9:10 L0/7:8 [c..g] to L1 new bottom",
    );
}

#[test]
fn output_joins_the_newest_run_that_has_nothing_in_the_slice() {
    check(
        "L0 9 10:c-f\n L0 7 8:d-g\n L1 5 6:g-z\n L1 3 4:x-z\n L2 1 2:a-z",
        "full L0/9:10 L0/7:8 [c..g] to L1 new",
    );
    check(
        "L0 9 10:c-f\n L0 7 8:d-g\n L1 5 6:a-b\n L2 1 2:a-z",
        "full L0/9:10 L0/7:8 [c..g] to L1 5",
    );
    check(
        "job=20\n L0 9 10:c-f 11:k-p\n L0 7 8:d-g 12:j-m\n L1 5 6:q-z\n L2 1 2:a-z",
        "full L0/9:10 L0/7:8 [c..g] to L1 5",
    );
}

#[test]
fn l0_goes_before_deeper_levels_and_they_before_the_rest() {
    let upper = "L0 9 10:a-f\n L0 7 8:a-f";
    let lower = "L1 5 6:a-f\n L1 3 4:a-f\n L2 1 2:a-f{t=8}";
    check(&format!("{upper}\n{lower}"), "full L0/9:10 L0/7:8 [a..f] to L1 new");
    check(lower, "full L1/5:6 L1/3:4 L2/1:2 [a..f] to L2 1 bottom");
}

#[test]
fn a_deepest_level_with_too_many_runs_makes_a_deeper_one() {
    check("L1 3 4:a-f\n L1 1 2:b-g", "full L1/3:4 L1/1:2 [a..g] to L2 new bottom");
}

#[test]
fn an_overgrown_bottom_run_goes_down_before_anything_is_merged_into_it() {
    let runs = "L0 9 10:a-f\n L0 7 8:a-f\n L1 1 2:a-m{b=60} 3:n-z{b=60}";
    check(&format!("l1=100\n{runs}"), "move 2,3 L1 to L2 1");
    check(&format!("l1=120\n{runs}"), "full L0/9:10 L0/7:8 L1/1:2 [a..m] to L1 1 bottom");
    check("l1=100\n L1 1 2:a-m{b=60} 3:n-z{b=60}", "nothing");
    let deeper = "L1 9 10:a-f\n L1 7 8:a-f\n L2 1 2:a-m{b=60} 3:n-z{b=60}";
    check(&format!("l1=59\n{deeper}"), "move 2,3 L2 to L3 1");
    check(&format!("l1=60\n{deeper}"), "full L1/9:10 L1/7:8 L2/1:2 [a..m] to L2 1 bottom");
}

#[test]
fn an_overgrown_bottom_run_waits_for_merges_into_it() {
    check(
        "l1=100 busy=0-1:x..:1\n L0 9 10:a-f\n L0 7 8:a-f\n L1 1 2:a-m{b=60} 3:n-z{b=60}",
        "nothing",
    );
}

#[test]
fn the_last_level_takes_whatever_comes() {
    check(
        "l1=1\n L5 9 10:a-f\n L5 7 8:a-f\n L6 1 2:a-m{b=900}",
        "full L5/9:10 L5/7:8 L6/1:2 [a..m] to L6 1 bottom",
    );
}

#[test]
fn disjoint_tables_move() {
    check("L0 3 4:g-k\n L0 1 2:a-f", "move 2,4 L0 to L1 new");
    check("L0 9 10:k-m\n L0 7 8:g-j\n L1 1 2:a-f", "move 8,10 L0 to L1 1");
    check("L0 9 10:k-m\n L0 7 8:g-j\n L1 1 2:a-f\n L2 3 4:a-z", "move 8,10 L0 to L1 1");
    check("L0 9 10:k-m\n L0 7 8:g-j\n L1 1 2:a-h\n L2 3 4:a-z", "move 8,10 L0 to L1 new");
    check("L0 9 10:g-m\n L0 7 8:a-g)", "move 8,10 L0 to L1 new");
}

#[test]
fn disjoint_tables_move_ahead_of_a_merge_and_end_it() {
    check("L0 9 10:d-g\n L0 7 8:a-c 11:e-h\n L1 1 2:f-z", "move 8 L0 to L1 1");
    check(
        "L0 9 10:d-g\n L0 7 11:e-h 12:k-l\n L1 1 2:f-h 3:m-z",
        "full L0/9:10 L0/7:11 L1/1:2 [d..h] to L1 1 bottom",
    );
}

#[test]
fn a_large_run_of_an_intermediate_level_goes_down_by_its_bytes() {
    check("l1=10\n L1 5 6:a-f{b=21}\n L2 1 2:g-k", "move 6 L1 to L2 1");
    check("l1=10\n L1 5 6:a-f{b=20}\n L2 1 2:g-k", "nothing");
}

#[test]
fn jobs_are_cut_at_tables_and_boundaries() {
    let wide = "L0 9 10:a-z{b=100 c=f,k,p,u}\n L0 7 8:b-y{b=100 c=e,j,o,t}";
    check(&format!("job=200\n{wide}"), "full L0/9:10 L0/7:8 [a..z] to L1 new bottom");
    check(&format!("job=100\n{wide}"), "full L0/9:10 L0/7:8 [a..k) to L1 new bottom");
    check(&format!("job=1\n{wide}"), "full L0/9:10 [a..b) to L1 new bottom");
    check(
        "job=25\n L0 9 10:a-d 11:e-h\n L0 7 8:b-e0 12:f-i",
        "full L0/9:10 L0/7:8 [a..e) to L1 new bottom",
    );
}

#[test]
fn a_sweep_goes_on_where_it_has_clipped() {
    check(
        "job=1\n L0 11 12:a-z\n L0 9 10:a>k-z\n L0 7 8:b>k-y\n L1 1 13:a-j\n L2 2 3:a-z",
        "full L0/9:10 L0/7:8 [k..z] to L1 1",
    );
    // A clip in the middle of a run is not a sweep's.
    check(
        "L0 11 12:a-z\n L0 7 8:b-d 9:e>k-y\n L2 2 3:a-z",
        "full L0/11:12 L0/7:8,9 [a..z] to L1 new",
    );
}

#[test]
fn the_bottom_run_is_clipped_at_its_left_only() {
    check(
        "job=30\n L0 9 10:e-z{b=20 c=m}\n L0 7 8:e-z{b=20 c=m}\n L1 1 2:a-f 3:g-p",
        "full L0/9:10 L0/7:8 L1/1:2 [a..g) to L1 1 bottom",
    );
}

#[test]
fn jobs_that_run_are_left_alone() {
    let runs = "L0 9 10:a-d 11:e-h\n L0 7 8:b-d0 12:f-i\n L1 1 2:a-d 3:e-i";
    check(
        &format!("busy=0-1:a..d1:1\n{runs}"),
        "full L0/9:11 L0/7:12 L1/1:3 [e..i] to L1 1 bottom",
    );
    check(&format!("busy=0-1:a..:1\n{runs}"), "nothing");
    check(&format!("busy=0-1:h..:1\n{runs}"), "full L0/9:10 L0/7:8 L1/1:2 [a..d0] to L1 1 bottom");
    check(
        "busy=2-3:..:1\n L0 9 10:a-d\n L0 7 8:a-d\n L2 5 6:a-d\n L2 3 4:a-d\n L3 1 2:a-d",
        "full L0/9:10 L0/7:8 [a..d] to L1 new",
    );
    check("busy=1-2:..:1\n L0 9 10:a-d\n L0 7 8:a-d\n L2 5 6:a-d\n L3 1 2:a-d", "nothing");
    check("busy=0-1:c..d:1\n L0 9 10:a-f\n L0 7 8:g-k", "move 8 L0 to L1 1");
}

#[test]
fn a_new_run_that_is_being_made_is_joined() {
    check(
        "busy=0-1:a..e:50\n L0 9 10:a-d 11:f-h\n L0 7 8:b-d 12:g-i",
        "full L0/9:11 L0/7:12 [f..i] to L1 50 bottom",
    );
}

#[test]
fn a_merge_ends_before_what_can_not_be_read() {
    let runs = "L0 9 10:a-h 11:m-p\n L0 7 8:b-k 12:n-q\n L1 1 2:a-i 3:j-z";
    let whole = "full L0/9:10,11 L0/7:8,12 L1/1:2,3 [a..z] to L1 1 bottom";
    check(runs, whole);
    let left = "full L0/9:10 L0/7:8 L1/1:2 [a..e) to L1 1 bottom";
    check(&format!("unreadable=2:e\n{runs}"), left);
    check(&format!("unreadable=10:e\n{runs}"), left);
    check(&format!("unreadable=4:e\n{runs}"), whole);
    // From its first key on: what is before it goes without it.
    check(&format!("unreadable=3:c\n{runs}"), "full L0/9:10 L0/7:8 L1/1:2 [a..j) to L1 1 bottom");
    // It was merged so far. What lies behind the table goes on; what straddles it waits.
    let rest = "L0 9 10:a>e-h 11:m-p\n L0 7 8:b>e-k 12:n-q\n L1 1 2:a>e-i 3:l-z";
    check(&format!("unreadable=2:e\n{rest}"), "full L0/9:11 L0/7:12 L1/1:3 [l..z] to L1 1 bottom");
}

#[test]
fn what_is_tried_again_is_come_to_first() {
    let runs = "L0 9 10:a-h\n L0 7 8:b-k\n L1 1 2:a-i";
    let left = "full L0/9:10 L0/7:8 L1/1:2 [a..e) to L1 1 bottom";
    check(&format!("retried=2:e\n{runs}"), left);
    check(
        "retried=2:e\n L0 9 10:a>e-h\n L0 7 8:b>e-k\n L1 1 2:a>e-i",
        "full L0/9:10 L0/7:8 L1/1:2 [e..k] to L1 1 bottom",
    );
    // Nothing begins to the left of it.
    check(
        "retried=2:e\n L0 9 10:g-h\n L0 7 8:g-k\n L1 1 2:a-i",
        "full L0/9:10 L0/7:8 L1/1:2 [a..k] to L1 1 bottom",
    );
}

#[test]
fn runs_go_down_beside_older_ones_that_wait_for_what_can_not_be_read() {
    let waiting = "L0 7 8:d>f-g\n L0 5 6:f-g\n L1 1 2:a-e 3:g-h";
    check(
        &format!("unreadable=6:f\n L0 11 12:a-b\n L0 9 10:a-c\n {waiting}"),
        "full L0/11:12 L0/9:10 L1/1:2 [a..e] to L1 1 bottom",
    );
    // A sweep of theirs goes on as any other.
    check(
        &format!("unreadable=6:f\n L0 13 14:a-c\n L0 11 12:a>b-c\n L0 9 10:a>b-c\n {waiting}"),
        "full L0/11:12 L0/9:10 L1/1:2 [a..e] to L1 1 bottom",
    );
    // Alone, each would have what it reaches below it written anew.
    check(&format!("unreadable=6:f\n L0 9 10:a-c\n {waiting}"), "nothing");
}

#[test]
fn runs_above_what_can_not_be_read_are_merged_with_each_other() {
    let above = "L0 9 10:a>f-m\n L0 7 8:b>f-k 11:n-p";
    check(
        &format!("unreadable=2:f\n {above}\n L1 1 2:a>f-z"),
        "full L0/9:10 L0/7:8 [f..m] to L0 7",
    );
    check("unreadable=2:f\n L0 9 10:f-m\n L0 7 11:n-p\n L1 1 2:a>f-z", "move 10 L0 to L0 7");
    check("unreadable=2:f\n L0 9 10:f-m 11:n-p\n L1 1 2:a>f-z", "nothing");
    // Of the same level, those that are newer.
    check(
        &format!("unreadable=6:f\n {above}\n L0 5 6:a>f-z\n L1 1 2:a-e 3:y-z"),
        "full L0/9:10 L0/7:8 [f..m] to L0 7",
    );
    check("unreadable=6:f\n L0 9 10:a>f-m\n L0 5 6:a>f-z\n L1 1 2:a-e 3:y-z", "nothing");
    // Above two of the bottom run.
    check(
        "unreadable=2:d unreadable=3:q\n L0 9 10:a>d-f 11:n>q-s\n L0 7 8:a>d-f 12:n>q-s\n \
         L1 1 2:a>d-g 3:n>q-z",
        "full L0/9:10,11 L0/7:8,12 [d..s] to L0 7",
    );
}

/// They waited to be as many as fill L0, which they can't become any more, and with those that came since slowed
/// writers.
#[test]
fn runs_between_two_that_can_not_be_read_are_merged_once_they_are_some() {
    let runs = "L0 15 16:b-c\n L0 13 14:a-z\n L0 9 10:d-f\n L0 7 8:e-g\n L1 1 2:a>d-g";
    let damaged = "l0-runs=4 unreadable=14:a unreadable=2:d";
    check(&format!("{damaged}\n {runs}"), "full L0/9:10 L0/7:8 [d..g] to L0 7");
    // What is newest goes on growing.
    let newer = "L0 17 18:b-c\n L0 15 16:b-c\n L0 13 14:a-z\n L0 9 10:d-f\n L1 1 2:a>d-g";
    check(&format!("{damaged}\n {newer}"), "nothing");
}

/// Where a flush is one table, such tables held up every key to the right of the damage.
#[test]
fn a_table_that_reaches_beyond_what_can_not_be_read_is_cut() {
    let below = "L1 1 2:a>d-g 3:h-z";
    // The newest first: the older one is in the way of both.
    let runs = "L0 9 10:a>d-z\n L0 7 8:b>d-y";
    check(&format!("unreadable=2:d\n {runs}\n {below}"), "damage L0/9:10 [d..g] to L0 9");
    let runs = "L0 9 12:d-g 10:g0-z\n L0 7 8:b>d-y";
    check(&format!("unreadable=2:d\n {runs}\n {below}"), "damage L0/7:8 [d..g] to L0 7");
    let runs = "L0 9 12:d-g 10:g0-z\n L0 7 13:d-g 8:g0-y";
    let rest = "full L0/9:10 L0/7:8 L1/1:3 [g0..z] to L1 1 bottom";
    check(&format!("unreadable=2:d\n {runs}\n {below}"), rest);
    // What an older one holds there goes with it.
    let runs = "L0 9 10:a>d-z\n L0 7 8:d-f 11:m-z";
    check(&format!("unreadable=2:d\n {runs}\n {below}"), "damage L0/9:10 [d..g] to L0 9");
    // First comes what is before the damage.
    check(
        "unreadable=2:d\n L0 9 10:c-z\n L0 7 8:b-y\n L1 1 2:a-g 3:h-z",
        "full L0/9:10 L0/7:8 L1/1:2 [a..d) to L1 1 bottom",
    );
    // What no table of the sweep holds is not waited for by any.
    let runs = "L0 9 10:a>d-z\n L0 7 8:a>d-y\n L1 5 6:b-c\n L2 1 2:a>d-g 3:h-z";
    check(&format!("unreadable=2:d\n {runs}"), "full L0/9:10 L0/7:8 [d..z] to L1 5");
}

#[test]
fn what_is_older_than_a_table_that_can_not_be_read_goes_down_without_it() {
    let runs = "L0 11 12:a>d-k\n L0 9 10:a>d-z\n L0 7 8:d-f 13:m-z\n L1 1 2:a-e 3:h-z";
    let older = "L0/7:8,13 L1/1:2,3 [a..z] to L1 1 bottom";
    check(&format!("unreadable=10:d\n {runs}"), &format!("full {older}"));
    check(&format!("idle runs=4 unreadable=10:d\n {runs}"), &format!("idle {older}"));
    check(&format!("manual=.. unreadable=10:d\n {runs}"), &format!("manual {older}"));
}

#[test]
fn what_can_not_be_read_is_in_the_way_of_jobs_that_take_its_table() {
    check(
        "unreadable=10:a\n L0 9 10:a-c 11:k-n\n L0 7 8:b-m",
        "full L0/9:11 L0/7:8 [b..n] to L1 new bottom",
    );
}

/// Each flush started the sweep over, and it never came to what lies behind the damage.
#[test]
fn a_sweep_goes_on_behind_what_can_not_be_read() {
    let swept = "L0 11 12:a>d-f 15:k>p-z\n L0 9 10:a>d-f 16:k>p-z\n L1 1 2:a>d-g 3:h-z";
    let rest = "full L0/11:15 L0/9:16 L1/1:3 [h..z] to L1 1 bottom";
    for flushed in ["a-z", "h-z"] {
        check(&format!("unreadable=2:d\n L0 13 14:{flushed}\n {swept}"), rest);
    }
    // It has come to the damage, and what is behind that is yet to be begun.
    let waiting = "L0 11 12:a>d-f 15:k-z\n L0 9 10:a>d-f 16:k-z\n L1 1 2:a>d-g 3:h-z";
    check(&format!("unreadable=2:d\n L0 13 14:a-z\n {waiting}"), rest);
    // What is tried again comes before what was flushed, and so does what can be read again.
    let again = "full L0/11:12,15 L0/9:10,16 L1/1:2,3 [d..z] to L1 1 bottom";
    check(&format!("retried=2:d\n L0 13 14:a-z\n {swept}"), again);
    check(&format!("L0 13 14:a-z\n {swept}"), again);
}

/// While one table waited, what was flushed since was merged as soon as it was a quarter as many runs.
#[test]
fn what_waits_for_what_can_not_be_read_is_no_sweep_that_has_begun() {
    let flushed = "l0-runs=4 unreadable=2:d\n L0 9 10:h-m";
    let below = "L1 1 2:a>d-g 3:h-z";
    check(&format!("{flushed}\n L0 7 8:a>d-f\n {below}"), "nothing");
    // Of what reaches further, the rest is still to go.
    let cut = "damage L0/7:8 [d..g] to L0 7";
    check(&format!("{flushed}\n L0 7 8:a>d-m\n {below}"), cut);
    let rest = "full L0/9:10 L0/7:8 L1/1:3 [h..z] to L1 1 bottom";
    check(&format!("{flushed}\n L0 7 12:d-g 8:g0>h-m\n {below}"), rest);
    // It goes past newer runs that can't be read, and doesn't come to deeper levels.
    let older = "full L0/7:8 L1/1:3 [h..z] to L1 1 bottom";
    check(&format!("l0-runs=4 unreadable=10:a\n L0 9 10:a-z\n L0 7 8:a>h-m\n {below}"), older);
    check(
        "l0-runs=4 unreadable=5:a\n L0 9 10:a>h-m\n L0 7 8:h-m\n L1 3 4:n-z\n L2 1 5:a-z",
        "full L0/9:10 L0/7:8 [h..m] to L1 3",
    );
}

#[test]
fn a_sweep_between_two_tables_that_can_not_be_read_goes_on() {
    let waiting = "L0 5 6:a>d-f 7:m>q-r\n L1 1 2:a>d-g 9:h-n 10:o-s";
    let newer = "L0 15 16:a>d-f 17:h>j-n\n L0 13 14:a>d-f 18:h>j-n";
    check(
        &format!("unreadable=2:d unreadable=10:q\n L0 20 21:a-z\n {newer}\n {waiting}"),
        "full L0/15:17 L0/13:18 L1/1:9,10 [h..q) to L1 1 bottom",
    );
}

#[test]
fn a_sweep_above_what_can_not_be_read_goes_on() {
    // Run 7 takes what comes out of it.
    let swept = "L0 9 10:a>k-m\n L0 7 12:f-j 8:k-m\n L1 1 2:a>f-z";
    let rest = "full L0/9:10 L0/7:8 [k..m] to L0 7";
    for flushed in ["a-z", "g-h"] {
        check(&format!("unreadable=2:f\n L0 13 14:{flushed}\n {swept}"), rest);
    }
}

#[test]
fn what_waits_for_what_can_not_be_read_has_nothing_merged_in_idle_time() {
    let below = "L0 7 8:f-m{b=90 e=90}\n L1 1 2:a-z{b=90 e=90}";
    check(&format!("idle runs=4 unreadable=2:f\n L0 9 10:a-c\n {below}"), "nothing");
    check(
        &format!("idle runs=4 unreadable=2:f\n L0 9 10:a-c{{b=40 e=40}}\n {below}"),
        "idle L0/9:10 L1/1:2 [a..f) to L1 1 bottom",
    );
}

#[test]
fn what_lies_behind_what_can_not_be_read_is_merged_in_idle_time() {
    let below = "L1 1 2:a>d-g 3:h-z";
    check(
        &format!("idle runs=4 unreadable=2:d\n L0 9 10:a>d-z\n {below}"),
        "damage L0/9:10 [d..g] to L0 9",
    );
    check(
        &format!("idle runs=4 unreadable=2:d\n L0 9 12:d-g 10:g0-z\n {below}"),
        "idle L0/9:10 L1/1:3 [g0..z] to L1 1 bottom",
    );
    check(&format!("idle runs=4 unreadable=2:d\n L0 9 12:d-g\n {below}"), "nothing");
    // What is little is not cut either: each flush of it would be.
    let below = "L1 1 2:a-g{b=90 e=90} 3:h-z{b=90 e=90}";
    let flushed = |bytes| format!("L0 9 10:a-z{{b={bytes} e=1}}");
    let idle = "idle runs=4 unreadable=2:a";
    check(&format!("{idle}\n {}\n {below}", flushed(1)), "nothing");
    check(&format!("{idle}\n {}\n {below}", flushed(40)), "damage L0/9:10 [a..g] to L0 9");
    check(&format!("{idle} hidden=0,0\n {}\n {below}", flushed(40)), "nothing");
    // What only has to move goes past what can't be read, and nothing is cut for it.
    let move_one = |damaged: &str, below: &str| {
        let idle = format!("idle hidden=0,0 runs=4 unreadable={damaged}");
        check(&format!("{idle}\n L0 9 10:a-z\n L0 7 8:h-m\n {below}"), "move 8 L0 to L1 1");
    };
    move_one("10:a", "L1 1 2:a-g 3:n-z");
    move_one("2:a", "L1 1 2:a-g 3:n-z");
}

/// In a store that is never idle reads passed several runs for ever.
#[test]
fn what_lies_behind_what_can_not_be_read_is_merged_for_reads() {
    let check_paid = |damaged: &str, runs: &str, expected: &str| {
        check(&format!("runs=4 paid=30 unreadable={damaged}\n {runs}"), expected);
    };
    let below = "L1 1 2:a>d-g 3:h-z";
    let cut = "damage L0/9:10 [d..g] to L0 9";
    check_paid("2:d", &format!("L0 9 10:a>d-z\n {below}"), cut);
    check_paid("2:d", &format!("L0 9 10:a>d-z{{e=31}}\n {below}"), "nothing");
    let behind = "reads L0/9:10 L1/1:3 [g0..z] to L1 1 bottom";
    check_paid("2:d", &format!("L0 9 12:d-g 10:g0-z\n {below}"), behind);
    let older = "reads L0/7:8 L1/1:3 [h..z] to L1 1 bottom";
    check_paid("10:d", &format!("L0 9 10:d-z\n L0 7 8:h-m\n {below}"), older);
}

#[test]
fn what_can_not_be_read_moves_and_is_dropped() {
    let overgrown = "L0 9 10:a-f\n L0 7 8:a-f\n L1 1 2:a-m{b=60} 3:n-z{b=60}";
    check(&format!("l1=100 unreadable=3:x\n{overgrown}"), "move 2,3 L1 to L2 1");
    check("unreadable=8:a\n L0 9 10:k-m\n L0 7 8:g-j\n L1 1 2:a-f", "move 8,10 L0 to L1 1");
    check("unreadable=2:b now=50\n L1 1 2:a-f{x=50}", "drop L1:2");
    check(
        "unreadable=8:b\n L0 9 10:a-d 11:f-h\n L0 7 8:b-d 12:g-i",
        "full L0/9:10 [a..b) to L1 new bottom",
    );
    check(
        "unreadable=8:a\n L0 9 10:a-d 11:f-h\n L0 7 8:a-d 12:g-i",
        "full L0/9:11 L0/7:12 [f..i] to L1 new bottom",
    );
}

#[test]
fn tables_of_tombstones_are_merged_with_what_they_hide() {
    let older = "L2 3 4:a-c 5:d-g 6:h-k\n L3 1 2:b-e";
    check(
        &format!("runs=4\n L1 7 8:a-b 9:d-f{{t=6}} 10:g-k\n{older}"),
        "tombstones L1/7:9 L2/3:5 L3/1:2 [b..f] to L3 1 bottom",
    );
    check(&format!("runs=4\n L1 7 9:d-f{{t=5}}\n{older}"), "nothing");
}

#[test]
fn few_tombstones_do_not_rewrite_much() {
    check("runs=4\n L1 7 9:d-f{t=6}\n L2 1 2:a-z{e=25}", "nothing");
    check(
        "runs=4\n L1 7 9:d-f{t=6}\n L2 1 2:a-z{e=24}",
        "tombstones L1/7:9 L2/1:2 [a..f] to L2 1 bottom",
    );
}

/// Nothing bounds what the tables of a store that was not made by us say of themselves.
#[test]
fn counts_beyond_all_numbers_are_as_large_as_can_be() {
    let much = u64::MAX;
    let older = format!("L2 1 2:a-e{{e={much}}} 3:f-z{{e={much}}}");
    check(&format!("runs=4\n L1 7 9:d-f{{t=6}}\n {older}"), "nothing");
    check(&format!("runs=4 paid=100\n L1 7 9:d-f{{e={much}}}\n {older}"), "nothing");
}

#[test]
fn tombstones_that_hide_nothing_are_dropped_in_place() {
    check("L0 7 9:d-f{t=6}\n L1 1 2:g-z", "garbage L0/7:9 [d..f] to L0 7 bottom");
    check("snapshot=8\n L0 7 9:d-f{t=6}\n L1 1 2:g-z", "nothing");
    check("snapshot=9\n L0 7 9:d-f{t=6}", "garbage L0/7:9 [d..f] to L0 7 bottom");
}

#[test]
fn expired_tables_go_whole_or_with_what_they_hide() {
    check("now=50\n L1 1 2:a-f{x=50}", "drop L1:2");
    check("now=49\n L1 1 2:a-f{x=50}", "nothing");
    check("busy=1-1:b..c:1\n L1 1 2:a-f{x=50}", "nothing");
    check("L0 3 4:a-f{x=50}\n L1 1 2:a-f", "expired L0/3:4 L1/1:2 [a..f] to L1 1 bottom");
}

#[test]
fn tables_that_a_deleted_range_covers_are_dropped() {
    let table = "L1 1 2:c-f{s=5-8}";
    check(&format!("L0 9 10:a-g){{d=a..g@9 s=9-9}}\n{table}"), "drop L1:2");
    check(&format!("L0 9 10:a-f){{d=a..f@9 s=9-9}}\n{table}"), "nothing");
    check(&format!("L0 9 10:a-g){{d=a..g@8 s=8-8}}\n{table}"), "nothing");
    check(&format!("L0 9 10:a>d-g){{d=a..g@9 s=9-9}}\n{table}"), "nothing");
    check(
        &format!("L0 9 10:a-d){{d=a..d@9 s=9-9}} 11:d-g){{d=d..g@10 s=9-10}}\n{table}"),
        "drop L1:2",
    );
}

#[test]
fn a_snapshot_between_keeps_what_a_range_deletes() {
    let runs = "L0 9 10:a-g){d=a..g@9 s=9-9}\n L1 1 2:c-f{s=5-8}";
    for (snapshot, expected) in [(4, "drop L1:2"), (5, "nothing"), (8, "nothing"), (9, "drop L1:2")]
    {
        check(&format!("snapshot={snapshot}\n{runs}"), expected);
    }
}

#[test]
fn idle_time_merges_heavy_upper_runs() {
    let bottom = "L2 1 2:a-z{b=90 e=90}";
    check(
        &format!("idle\n L0 5 6:a-c\n L1 3 4:x-z\n{bottom}"),
        "idle L0/5:6 L1/3:4 L2/1:2 [a..z] to L2 1 bottom",
    );
    check(&format!("idle\n L0 5 6:a-c\n{bottom}"), "nothing");
    check(
        &format!("idle\n L0 5 6:a-c{{v=1}}\n{bottom}"),
        "idle L0/5:6 L2/1:2 [a..z] to L2 1 bottom",
    );
    check(
        &format!("idle\n L0 5 6:a-c{{e=11 t=1}}\n{bottom}"),
        "idle L0/5:6 L2/1:2 [a..z] to L2 1 bottom",
    );
    check(
        &format!("idle\n L0 5 6:a-c{{e=0 b=1 d=a..b@6}}\n{bottom}"),
        "idle L0/5:6 L2/1:2 [a..z] to L2 1 bottom",
    );
}

#[test]
fn idle_time_leaves_runs_that_hide_little() {
    let runs = "L0 5 6:a-m{b=40 e=40}\n L1 1 2:a-z{b=60 e=60}";
    let merge = "idle L0/5:6 L1/1:2 [a..z] to L1 1 bottom";
    check(&format!("idle hidden=3,3\n{runs}"), "nothing");
    check(&format!("idle hidden=4,0\n{runs}"), merge);
    check(&format!("idle hidden=0,4\n{runs}"), merge);
    check("idle hidden=0,0\n L0 5 6:a-c\n L2 1 2:k-z", "move 6 L0 to L2 1");
}

#[test]
fn runs_that_reads_pass_are_merged_as_far_as_it_is_paid() {
    let runs = "L0 5 6:a-m{e=5}\n L0 3 4:b-k{e=3}\n L1 1 2:a-h{e=7} 7:i-p{e=9} 8:q-z";
    let whole = "reads L0/5:6 L0/3:4 L1/1:2,7 [a..p] to L1 1 bottom";
    check(&format!("runs=4 paid=24\n{runs}"), whole);
    check(&format!("runs=4 paid=23\n{runs}"), "nothing");
    let part = "reads L0/5:6 L1/1:2 [a..b) to L1 1 bottom";
    check(&format!("runs=4 job=1 paid=12\n{runs}"), part);
    check(&format!("runs=4 job=1 paid=11\n{runs}"), "nothing");
    check("paid=1\n L0 5 6:a-c\n L2 1 2:k-z", "move 6 L0 to L2 1");
    check("paid=99\n L1 1 2:a-h", "nothing");
    check("paid=99\n L0 1 2:a-h", "nothing");
}

#[test]
fn idle_time_moves_what_is_disjoint_unless_it_holds_garbage() {
    check("idle\n L0 5 6:a-c\n L2 1 2:k-z", "move 6 L0 to L2 1");
    check("idle\n L0 5 6:a-c{t=1}\n L2 1 2:k-z", "idle L0/5:6 [a..c] to L2 1 bottom");
    check("idle runs=4\n L0 5 6:a-c\n L0 3 4:b-d", "idle L0/5:6 L0/3:4 [a..d] to L1 new bottom");
}

#[test]
fn idle_merges_leave_out_bottom_tables_that_nothing_overlaps() {
    check(
        "idle\n L0 5 6:a-c 7:x-z\n L1 1 2:a-c 3:f-k 4:x-z",
        "idle L0/5:6 L1/1:2 [a..c] to L1 1 bottom",
    );
    check("idle\n L0 5 7:x-z\n L1 1 2:a-c 3:f-k 4:x-z", "idle L0/5:7 L1/1:4 [x..z] to L1 1 bottom");
}

#[test]
fn idle_time_drops_garbage_at_the_bottom() {
    check("idle\n L2 1 2:a-c 3:d-f{t=1} 4:g-k", "garbage L2/1:3 [d..f] to L2 1 bottom");
    check("idle\n L2 1 3:d-f{k=9}", "garbage L2/1:3 [d..f] to L2 1 bottom");
    check("idle snapshot=2\n L2 1 3:d-f{k=9}", "nothing");
    check("L2 1 3:d-f{k=9}", "nothing");
    check("idle snapshot=1\n L2 1 3:d>e-f", "garbage L2/1:3 [e..f] to L2 1 bottom");
}

#[test]
fn a_manual_merge_takes_all_runs_of_its_range() {
    let runs = "L0 7 8:a-c 9:d-f 10:g-k\n L1 5 6:b-e\n L2 1 2:a-b0 3:c-d 4:f-z";
    check(
        &format!("manual=..\n{runs}"),
        "manual L0/7:8,9,10 L1/5:6 L2/1:2,3,4 [a..z] to L2 1 bottom",
    );
    check(&format!("manual=d..e\n{runs}"), "manual L0/7:9 L1/5:6 L2/1:2,3 [a..e) to L2 1 bottom");
    check(&format!("manual=h..j\n{runs}"), "manual L0/7:10 L2/1:4 [f..j) to L2 1 bottom");
}

#[test]
fn a_manual_merge_skips_what_is_merged_already() {
    check("manual=..\n L2 1 2:a-b 3:c-d", "nothing");
    check("manual=..\n L2 1 2:a-b 3:c-d{t=1} 4:e-f", "manual L2/1:3 [c..d] to L2 1 bottom");
    check("manual=..c\n L2 1 2:a-b 3:c-d{t=1}", "nothing");
    check("manual=..\n L0 1 2:a-b", "move 2 L0 to L1 new");
    check("manual=..\n L0 5 6:a-b\n L2 1 2:c-d", "move 6 L0 to L2 1");
    check(
        "manual=..\n L0 5 6:b-c\n L2 1 2:c-d 3:e-f",
        "manual L0/5:6 L2/1:2 [b..d] to L2 1 bottom",
    );
}

#[test]
fn a_manual_merge_goes_past_what_can_not_be_read() {
    let check_from = |start: &str, runs: &str, expected: &str| {
        check(&format!("manual={start}.. unreadable=2:d\n {runs}"), expected);
    };
    let before = "manual L0/9:10 L1/1:2 [a..d) to L1 1 bottom";
    check_from("", "L0 9 10:a-z\n L1 1 2:a-g 3:h-z", before);
    let cut = "damage L0/9:10 [d..g] to L0 9";
    check_from("d", "L0 9 10:a>d-z\n L1 1 2:a>d-g 3:h-z", cut);
    let behind = "manual L0/9:10 L1/1:3 [g0..z] to L1 1 bottom";
    check_from("d", "L0 9 12:d-g 10:g0-z\n L1 1 2:a>d-g 3:h-z", behind);
    check_from("d", "L0 9 12:d-g\n L1 1 2:a>d-g 3:h-z", "nothing");
    // Nothing is cut for keys that weren't asked for.
    check("manual=..g unreadable=2:d\n L0 9 10:a>d-z\n L1 1 2:a>d-g 3:h-z", "nothing");
    // Older runs by themselves, up to where all go down together.
    let runs = "L0 9 10:a>d-m 12:n-z\n L0 7 8:e-f 13:n-z\n L1 1 2:d-g 3:n-z";
    check(
        &format!("manual=.. unreadable=10:d\n {runs}"),
        "manual L0/7:8 L1/1:2 [d..g] to L1 1 bottom",
    );
    check(
        &format!("manual=n.. unreadable=10:d\n {runs}"),
        "manual L0/9:12 L0/7:13 L1/1:3 [n..z] to L1 1 bottom",
    );
}

/// A job that began in the range would have ended before it.
#[test]
fn a_manual_merge_goes_past_what_can_not_be_read_to_the_left_of_its_range() {
    let check_from = |start: &str, damaged: &str, runs: &str, expected: &str| {
        check(&format!("manual={start}.. unreadable={damaged}\n {runs}"), expected);
    };
    let before = "manual L0/9:10 L1/1:2 [a..d) to L1 1 bottom";
    check_from("m", "2:d", "L0 9 10:a-z\n L1 1 2:a-g 3:h-z", before);
    let cut = "damage L0/9:10 [d..g] to L0 9";
    check_from("m", "2:d", "L0 9 10:a>d-z\n L1 1 2:a>d-g 3:h-z", cut);
    let behind = "manual L0/9:10 L1/1:3 [g0..z] to L1 1 bottom";
    check_from("m", "2:d", "L0 9 12:d-g 10:g0-z\n L1 1 2:a>d-g 3:h-z", behind);
    // What is damaged need not be below the table that reaches in.
    let chain = "L0 9 10:p-z\n L0 7 8:f-p0\n L1 1 2:a-g 3:h-z";
    check_from("q", "2:a", chain, "damage L0/7:8 [f..g] to L0 7");
    // Older runs by themselves begin no further left than they reach in.
    let older = "L0 7 8:a-c 11:k-p\n L1 1 2:a-g 3:h-z";
    let alone = "manual L0/7:11 L1/1:3 [h..z] to L1 1 bottom";
    check_from("m", "10:a", &format!("L0 9 10:a-z\n {older}"), alone);
}

/// One step to the left there was another table in the way, which reached further left.
#[test]
fn a_manual_merge_begins_as_far_left_of_its_range_as_it_has_to() {
    let below = "L1 1 3:a-e 4:h-j 5:n-z";
    for (runs, expected) in [
        // First what is before the damage that is further left, and so on from there.
        (
            format!("L0 9 10:b-g 11:k-z\n L0 7 8:f-l\n {below}"),
            "manual L0/9:10 L1/1:3 [a..c) to L1 1 bottom",
        ),
        (
            "L0 9 10:b>c-g 11:k-z\n L0 7 8:f-l\n L1 1 2:a-b 3:b0>c-e 4:h-j 5:n-z".into(),
            "damage L0/9:10 [c..e] to L0 9",
        ),
        (
            format!("L0 9 10:b>e0-g 11:k-z\n L0 7 8:f-l\n {below}"),
            "manual L0/9:10 L0/7:8 [e0..h) to L1 1 bottom",
        ),
        (format!("L0 9 11:k-z\n L0 7 8:f>h-l\n {below}"), "damage L0/7:8 [h..j] to L0 7"),
        (
            format!("L0 9 11:k-z\n L0 7 8:f>j0-l\n {below}"),
            "manual L0/9:11 L0/7:8 L1/1:5 [j0..z] to L1 1 bottom",
        ),
    ] {
        check(&format!("manual=m.. unreadable=3:c unreadable=4:h\n {runs}"), expected);
    }
}
