//! The `tallybook` command: serves a store over HTTP, or works on one directly.
//!
//! Steps: parse the arguments, run one command, turn its outcome into an exit code (`exit`). Values
//! and reports go to standard output, everything said about them to standard error.

mod exit;
mod units;
mod key_text;
mod output;
mod progress;
mod log;
mod secret;
mod kubernetes;
mod settings;
mod file_arguments;
mod arguments;
mod process;
mod partial;
mod data_dir;
mod http;
mod admin;
mod entry_json;
mod verbs;
mod serve;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Cli, Command};

/// Lets a running server tell where memory is asked for.
#[global_allocator]
static ALLOCATOR: tallybook_server::profile::SampledAllocator =
    tallybook_server::profile::SampledAllocator;

fn main() -> ExitCode {
    let outcome = run(Cli::parse().command);
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => exit::report(&error).into(),
    }
}

fn run(command: Command) -> anyhow::Result<exit::Exit> {
    if !command.serves() {
        log::start_for_verb();
    }
    match command {
        Command::Serve(settings) => serve::run(*settings),
        Command::Get(arguments) => verbs::read::get(&arguments),
        Command::Head(arguments) => verbs::read::head(&arguments),
        Command::Scan(arguments) => verbs::scan::scan(&arguments),
        Command::Put(arguments) => verbs::write::put(arguments),
        Command::Delete(arguments) => verbs::write::delete(&arguments),
        Command::Stages(arguments) => verbs::stages::stages(&arguments),
        Command::Stats(arguments) => verbs::stats::stats(&arguments),
        Command::Inspect(arguments) => verbs::inspect::inspect(&arguments),
        Command::Verify(arguments) => verbs::maintain::verify(&arguments),
        Command::Salvage(arguments) => verbs::salvage::salvage(&arguments),
        Command::Checkpoint(arguments) => verbs::maintain::checkpoint(&arguments),
        Command::Compact(arguments) => verbs::maintain::compact(&arguments),
        Command::Profile(arguments) => verbs::profile::profile(&arguments),
        Command::Files(arguments) => verbs::files::files(*arguments),
        Command::Lab(arguments) => verbs::lab::lab(arguments),
        Command::Completions(arguments) => verbs::describe::completions(&arguments),
        Command::Man(arguments) => verbs::describe::man(&arguments),
    }
}
