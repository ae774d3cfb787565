//! `completions` and `man`: the command line described to shells and readers.

use std::io::Write;

use anyhow::Context;
use clap::CommandFactory;

use crate::arguments::{Cli, CompletionsArguments, ManArguments};
use crate::exit::Exit;
use crate::output::Output;

/// Prints a completion script.
pub(crate) fn completions(arguments: &CompletionsArguments) -> anyhow::Result<Exit> {
    // Through a buffer, because the generator panics when its output fails.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "tallybook", &mut script);
    let mut out = Output::new();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Exit::Success)
}

/// Prints the manual page, or writes one for each command.
pub(crate) fn man(arguments: &ManArguments) -> anyhow::Result<Exit> {
    if let Some(dir) = &arguments.out {
        std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), dir))
            .with_context(|| format!("cannot write manual pages into {}", dir.display()))?;
        return Ok(Exit::Success);
    }
    let mut out = Output::new();
    clap_mangen::Man::new(Cli::command()).render(&mut out)?;
    out.flush()?;
    Ok(Exit::Success)
}
