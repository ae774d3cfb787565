//! Figures of the engine on real load: what the README quotes, made by a command anyone can rerun.
//!
//! Each figure is printed as a line `name value unit`. Every value read is compared with what was
//! written; a difference ends the run.

mod bulk;
mod flame;
mod inline;
mod overwrite;
mod paired;
mod process;
mod recent;
mod stages;
mod sampling;
mod steady;

use std::path::PathBuf;

const USAGE: &str = "\
usage: figures bulk DIR [SMALL_KEYS] [LARGE_KEYS]
           loads SMALL_KEYS values of 100 bytes (default 10000000) and LARGE_KEYS of 4 KiB
           (default 200000), reads all back, reopens
       figures overwrite DIR [WRITES]
           overwrites five values of 1 MiB, WRITES times in all (default 25000), with readers and a
           snapshot, and waits until the store is at rest
       figures inline DIR
           the same work with values in the tree and in the journal, for five sizes
       figures recent DIR [KEYS] [READS] [PAIRS] [MIB]
           reads of 2000000 keys without and with 8 MiB of recently read keys, 9 pairs of passes of
           500000 reads
       figures stages DIR OUT [SECONDS] [INTERVALS] [RATE] [VALUE_BYTES] [mapped|pread]
           a mixed load on a store that outgrows its memory (a control group it was started in): 660 s,
           66 intervals, 8000 operations a second, values of 6144 bytes; figures to OUT/intervals.jsonl
       figures stages-report OUT
           tables and pictures of OUT/intervals.jsonl, in OUT
       figures flame TITLE UNIT
           draws folded stacks, from standard input to standard output
       figures steady ADDRESS [RATE] [SECONDS] [CONNECTIONS]
           PUTs 100-byte values to the server at ADDRESS at RATE a second (default 20000) for SECONDS
           (default 40) over CONNECTIONS (default 4)
       figures sampling DIR [ROUNDS]
           what timing costs reads and writes: off, 1 in 256, every one, in turn, until the ratio is
           known to 0.3 % or ROUNDS (default 400) are done
       figures sampling-http DATA ADMIN PID [ROUNDS]
           the same of GETs from the server at those addresses, whose process is PID
       figures sampling-instructions DIR readrandom|fillrandom SAMPLE_EVERY OPERATIONS
           that many operations, for an instruction counter to count
DIR is made, and must not exist.";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| match arguments.get(at) {
        None => default,
        Some(text) => text.replace('_', "").parse().unwrap_or_else(|_| usage()),
    };
    let dir = PathBuf::from(arguments.get(1).unwrap_or_else(|| usage()));
    match arguments[0].as_str() {
        "bulk" => bulk::run(&dir, number(2, 10_000_000), number(3, 200_000)),
        // The part of `bulk` that must end without closing its store.
        "abandon" => bulk::abandon(&dir),
        "recent" => {
            recent::run(&dir, number(2, 2_000_000), number(3, 500_000), number(4, 9), number(5, 8))
        }
        "flame" => {
            flame::run(&arguments[1], arguments.get(2).unwrap_or_else(|| usage()));
        }
        "inline" => inline::run(&dir),
        "stages" => {
            let out = PathBuf::from(arguments.get(2).unwrap_or_else(|| usage()));
            let settings = stages::Settings {
                seconds: number(3, 660),
                intervals: number(4, 66),
                rate: number(5, 8000),
                value_bytes: number(6, 6144) as usize,
                reading: match arguments.get(7).map(String::as_str) {
                    None | Some("mapped") => tallybook::Reading::Mapped,
                    Some("pread") => tallybook::Reading::Pread,
                    Some(_) => usage(),
                },
            };
            stages::run(&dir, &out, &settings);
        }
        "stages-report" => stages::report(&dir),
        "overwrite" => overwrite::run(&dir, number(2, 25_000)),
        "sampling" => sampling::run(&dir, 0.3, number(2, 400) as usize),
        "sampling-http" => {
            let admin = arguments.get(2).unwrap_or_else(|| usage());
            let pid = number(3, 0) as u32;
            sampling::http(&arguments[1], admin, pid, 0.3, number(4, 400) as usize);
        }
        "sampling-instructions" => {
            let what = arguments.get(2).unwrap_or_else(|| usage());
            sampling::instructions(&dir, what, number(3, 0) as u32, number(4, 10_000));
        }
        "steady" => {
            let address = arguments[1].as_str();
            steady::run(address, number(2, 20_000), number(3, 40), number(4, 4));
        }
        _ => usage(),
    }
}

fn usage() -> ! {
    eprintln!("{USAGE}");
    std::process::exit(2)
}
