//! The command line: every command and its arguments.
//!
//! Only `serve` has settings files (`settings`); the other commands work on an embedded store, but for
//! `stages`, which asks a running server.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit::EXIT_CODES;
use crate::file_arguments::FilesArguments;
use crate::key_text::KeyEncoding;
use crate::settings::Settings;
use crate::units::{DurabilityName, Span};

/// A persistent key-value store that keeps its own books.
///
/// `serve` offers a store over HTTP; `stages` and `profile` ask a running server where its time goes.
/// The commands that have --data open the store themselves, so no server may have it open meanwhile.
#[derive(Debug, Parser)]
#[command(name = "tallybook", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a store over HTTP until SIGTERM or SIGINT
    Serve(Box<Settings>),
    /// Write the value of a key to standard output, byte for byte
    Get(GetArguments),
    /// Set a key
    Put(PutArguments),
    /// Print what is known of a value without reading it
    Head(HeadArguments),
    /// Delete a key, present or not
    Delete(DeleteArguments),
    /// Print a range of keys and values, in byte order
    Scan(ScanArguments),
    /// Print the store's figures
    Stats(StatsArguments),
    /// Print where a running server spends its time
    Stages(StagesArguments),
    /// Print a journal, table or manifest file as text, or list a store's files; exits 5 if anything printed is
    /// damaged, but for the torn end of a journal or manifest
    Inspect(InspectArguments),
    /// Read everything and check every checksum; exits 5 if anything is damaged
    Verify(VerifyArguments),
    /// Save what is whole of a damaged store in a new one; the old one is only read. Exits 5 if anything is missing
    Salvage(SalvageArguments),
    /// Make a consistent, openable copy in a new directory of the same file system
    Checkpoint(CheckpointArguments),
    /// Merge the tree to its bottom level and collect the journal's dead space
    Compact(CompactArguments),
    /// Show where a running server spends time or memory
    Profile(ProfileArguments),
    /// Keep files of any size in a file store
    Files(Box<FilesArguments>),
    /// Measure Tallybook, alone and beside other engines, and draw reports
    Lab(LabArguments),
    /// Print a completion script for a shell
    Completions(CompletionsArguments),
    /// Print the manual page, or write all of them into a directory
    Man(ManArguments),
}

impl Command {
    /// Whether it serves a store, and sets up its own log.
    pub(crate) fn serves(&self) -> bool {
        match self {
            Command::Serve(_) => true,
            Command::Lab(arguments) => matches!(arguments.command, LabCommand::Serve(_)),
            _ => false,
        }
    }
}

/// Which store.
#[derive(Debug, Args)]
pub(crate) struct StoreArguments {
    /// Directory of the store
    #[arg(long, value_name = "DIR", env = "TALLYBOOK_DATA", default_value = "./tallybook-data")]
    pub(crate) data: PathBuf,
}

/// How keys are written.
#[derive(Debug, Args)]
pub(crate) struct EncodingArguments {
    /// How keys are written in arguments and plain output (JSON always has them in base64)
    #[arg(long, value_name = "ENCODING", value_enum, default_value_t = KeyEncoding::Utf8)]
    pub(crate) key_encoding: KeyEncoding,
}

/// Which key.
#[derive(Debug, Args)]
pub(crate) struct KeyArguments {
    /// The key; put `--` before one that starts with a dash
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) encoding: EncodingArguments,
}

/// Arguments of `get`.
#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) key: KeyArguments,
    /// Print an object with the value in base64 and its head
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `put`.
#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) key: KeyArguments,
    /// The value; `-`, or none when standard input is not a terminal, reads it from there
    #[arg(conflicts_with = "file")]
    pub(crate) value: Option<OsString>,
    /// Read the value from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Let the entry expire after this time, such as 90s or 2h
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<Span>,
    /// Up to 1 KiB of your own that is kept with the value and shown by `head`
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) attributes: String,
    /// Write only if the key is at this version
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
    /// Write only if the key has no value
    #[arg(long, conflicts_with = "if_version")]
    pub(crate) if_absent: bool,
    #[command(flatten)]
    pub(crate) write: WriteArguments,
}

/// How a write is made and what is said about it.
#[derive(Debug, Args)]
pub(crate) struct WriteArguments {
    /// What the write has survived when the command returns: os, interval[:MS] or sync
    #[arg(long, value_name = "LEVEL", default_value = "sync")]
    pub(crate) durability: DurabilityName,
    /// Print an object with the key and the write's version
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `head`.
#[derive(Debug, Args)]
pub(crate) struct HeadArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) key: KeyArguments,
    /// Print an object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) key: KeyArguments,
    /// Delete only if the key is at this version
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
    #[command(flatten)]
    pub(crate) write: WriteArguments,
}

/// How `scan` prints entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScanFormat {
    /// Key, tab, value, with what is not printable escaped
    Lines,
    /// One JSON object a line, keys and values in base64
    Ndjson,
    /// Key, newline, value, newline, byte for byte
    Raw,
}

/// Arguments of `scan`.
#[derive(Debug, Args)]
pub(crate) struct ScanArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) encoding: EncodingArguments,
    /// Only keys with this prefix
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// First key, included
    #[arg(long, value_name = "KEY")]
    pub(crate) start: Option<String>,
    /// End of the range, excluded
    #[arg(long, value_name = "KEY")]
    pub(crate) end: Option<String>,
    /// Most entries to print
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
    /// From the last key to the first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Print version, length and times instead of values, which are not read
    #[arg(long)]
    pub(crate) heads: bool,
    /// How entries are printed
    #[arg(long, value_enum, default_value_t = ScanFormat::Lines)]
    pub(crate) format: ScanFormat,
    /// Short for --format ndjson
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
}

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub(crate) struct StatsArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// Print an object
    #[arg(long)]
    pub(crate) json: bool,
}

const STAGES_HELP: &str = "\
Stages:
  get.head, get.body     finding a key's entry; getting its value
  head.memory .. missed  finding an entry, by where it was
  table.*, journal.*     inside one table file; inside the journal
  put.*                  a write: waiting its turn, journal, memtable, sync
  flush.*, compaction.*, collect.*, sync.*, lock.*
                         background work and waiting, each time counted

  One operation in 256 is timed unless the server is told otherwise. Exits, which say where reads
  ended, are all counted. To time every operation:
    curl -X PUT 'http://127.0.0.1:9080/stages/sampling?every=1'

Examples:
  tallybook stages
  tallybook stages http://127.0.0.1:9080 --interval --watch";

/// Arguments of `stages`.
#[derive(Debug, Args)]
#[command(after_help = STAGES_HELP)]
pub(crate) struct StagesArguments {
    /// The server's admin listener
    #[arg(default_value = "http://127.0.0.1:9080")]
    pub(crate) url: String,
    /// File that holds the admin token, if the listener wants one
    #[arg(long, value_name = "FILE", env = "TALLYBOOK_ADMIN_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Only the last 5 to 10 seconds, instead of all since the start
    #[arg(long)]
    pub(crate) interval: bool,
    /// Print again every so many seconds, in place on a terminal, until interrupted [default: 2]
    #[arg(
        long,
        value_name = "SECS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub(crate) watch: Option<u64>,
    /// Print what the server answers: an object a line, with both times
    #[arg(long, conflicts_with = "interval")]
    pub(crate) json: bool,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// A file of a store, or a store's directory
    pub(crate) path: PathBuf,
    /// Print the files of a directory as an array
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// Print an object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `salvage`.
#[derive(Debug, Args)]
#[command(after_help = SALVAGE_HELP)]
pub(crate) struct SalvageArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// The new store's directory, which must not exist, or be empty
    pub(crate) dir: PathBuf,
    /// Take all that can be read: also what may be an older value than the last, or may have been deleted
    #[arg(long)]
    pub(crate) everything: bool,
    /// Print an object
    #[arg(long)]
    pub(crate) json: bool,
}

const SALVAGE_HELP: &str = "\
For a store that can't be opened, or of which a part can't be read: first see whether a backup has it all.
What is taken has the number, the time, the expiry and the attributes that it had. Every key has the value that it had
last, or when the first write that is missing in the journal was made; a key of which a later write may be lost is left
out, and named. With --everything such keys are taken too, and what stands in the journal behind what is missing.
There must be room for another copy. What the new store lacks stays in the old one, so keep it.";

/// Arguments of `checkpoint`.
#[derive(Debug, Args)]
pub(crate) struct CheckpointArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// The copy's directory, which must not exist, or be empty
    pub(crate) dir: PathBuf,
}

/// Arguments of `compact`.
#[derive(Debug, Args)]
pub(crate) struct CompactArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

/// What a profile counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileKind {
    /// Processor time
    Cpu,
    /// Bytes allocated
    Allocs,
    /// Time waited for locks, syncs, flushes and stalls
    Locks,
    /// Time that threads stand blocked in
    #[value(name = "offcpu")]
    OffCpu,
}

/// The form of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileFormat {
    /// A flame graph, for a browser
    Svg,
    /// For `go tool pprof` and others
    Pprof,
    /// A line for each stack
    Folded,
}

/// Arguments of `profile`.
#[derive(Debug, Args)]
pub(crate) struct ProfileArguments {
    /// What to count
    pub(crate) kind: ProfileKind,
    /// The server's admin listener, such as http://127.0.0.1:9080
    pub(crate) url: String,
    /// File that holds the admin token, if the listener wants one
    #[arg(long, value_name = "FILE", env = "TALLYBOOK_ADMIN_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// How long to look
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=300))]
    pub(crate) seconds: u32,
    /// The file to write (default: standard output)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The form; told by the file's name otherwise
    #[arg(long, value_enum)]
    pub(crate) format: Option<ProfileFormat>,
    /// Keep the frames below the request's handler, and threads that wait for work
    #[arg(long)]
    pub(crate) full: bool,
}

const LAB_HELP: &str = "\
An experiment is a question. `run` makes its runs, each in processes of its own, and leaves in its
directory: runs.jsonl (a line for each run), report.html (one file that needs nothing else),
summary.md and pictures. `report` draws them again from runs.jsonl.

Examples:
  tallybook lab list
  tallybook lab limits --data /where/the/store/will/be
  tallybook lab run http-floor --scale small
  tallybook lab run rivals --against rocksdb-tuned,lmdb
  tallybook lab compare lab-runs/before lab-runs/after";

const LAB_RUN_HELP: &str = "\
Scales: tiny takes seconds and shows only that all works; small is for a report, on a small machine;
full takes as long as it takes.

Ctrl-C keeps what is done and draws its report; the same command goes on with what is left, and where
runs go on from one another on a store, with the first of those. Runs are made in turn (A B A B), so
leave the machine alone meanwhile. A directory whose runs another command, program or machine made is
refused: give another with --out. A value that was not written, a target that died, a generator that
lagged, or more than one failed request in a thousand makes a run invalid, and the exit code 1. A target
that fell behind a constant rate is a result, which isn't made again: exit code 0.

For rivals, --against names engines (rocksdb, rocksdb-tuned, rocksdb-cached, rocksdb-blob, leveldb,
leveldb-unverified, fjall, fjall-blob, lmdb, lmdb-random, lmdb-writemap, redb, sled, sled-buffered, or
tallybook for none), and `floor`, which is what the work costs without a store; `core` leaves the core
workloads at 100-byte values, and with `names` keys have 32 bytes and begin with names, as where
tables share a store: --against core,names,lmdb. Engines are in a program that is built apart, see
rivals/README.md: it is found at rivals/target/release/rivals, or where TALLYBOOK_RIVALS says.

For growth, --against may name engines and `floor` too, for http-floor the URL of a server.

For builds, --against names the file of another build of this program, with a slash in it, and the
workloads, as WORKLOAD or WORKLOAD:BYTES (of a value): --against ./before,overwrite,readrandom:4096.
With no program this one is compared with itself, with no workload the core ones are made, and with
`names` as above.

For kfs, --against names stores of files (kfs, leveldb, or tallybook for none). KFS is a package of
npm: npm install --prefix rivals/kfs. LevelDB is in the rivals' program.";

/// Arguments of `lab`.
#[derive(Debug, Args)]
#[command(after_help = LAB_HELP)]
pub(crate) struct LabArguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// What the laboratory is to do.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Print every experiment's name and question
    List,
    /// Print what this machine can do: the limits that an engine's figures are read against
    Limits {
        /// Where the disk is measured, made for it if need be; it takes up to 700 MB there, and gives them back
        #[arg(long, value_name = "DIR", default_value = ".")]
        data: PathBuf,
    },
    /// Make an experiment's runs, and its report
    Run(LabRunArguments),
    /// Compare the runs of two directories, or two runs.jsonl: the second with the first
    Compare {
        /// What is compared with
        baseline: PathBuf,
        /// What is compared
        subject: PathBuf,
    },
    /// Draw the report of a directory's runs again
    Report {
        /// The experiment's directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Add the medians of a directory's runs to the benchmark history, and draw its chart
    History {
        /// The experiment's directory, or a runs.jsonl
        runs: PathBuf,
        /// The change that was measured: its commit, and what it says of itself
        #[arg(long, value_name = "TEXT")]
        change: String,
        /// The history; its chart goes beside it, as .svg
        #[arg(long, value_name = "FILE", default_value = "reports/history.jsonl")]
        file: PathBuf,
    },
    /// A store in a process of its own, for the laboratory
    #[command(hide = true)]
    Child,
    /// A store of files in a process of its own, for the laboratory
    #[command(hide = true)]
    Files,
    /// A server that answers a constant, or from a hash map, for the laboratory
    #[command(hide = true)]
    Bare {
        /// Bytes of every value
        body_bytes: usize,
        /// Keys in the hash map; without it each answer is a constant
        #[arg(default_value_t = 0)]
        keys: u64,
    },
    /// As `tallybook serve`, until standard input ends, for the laboratory
    #[command(hide = true)]
    Serve(Box<Settings>),
}

/// Arguments of `lab run`.
#[derive(Debug, Args)]
#[command(after_help = LAB_RUN_HELP)]
pub(crate) struct LabRunArguments {
    /// The experiment; `tallybook lab list` names them
    pub(crate) name: String,
    /// How much is done: tiny, small or full
    #[arg(long, default_value = "small")]
    pub(crate) scale: String,
    /// What to compare with, where an experiment leaves that open: names with commas in between
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) against: Vec<String>,
    /// The experiment's directory [default: lab-runs/NAME-SCALE]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// How often each run is made, instead of as often as belongs to the scale
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: Option<u32>,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// Write a page for each command into this directory instead
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
