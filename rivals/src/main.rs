//! The child process in which the laboratory runs a rival, and the tests of the rivals by themselves.
//!
//! Without a verb it serves the laboratory on its standard input and output, as it does with `files`.

use std::env;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use rivals::options::NOT_A_KILL;
use rivals::{NAMES, killtest, selftest};
use tallybook_lab::spec::Durability;
use tallybook_lab::{Error, Result};

const USAGE: &str = "rivals: the stores that Tallybook is measured against

  rivals                      serve the laboratory on standard input and output
  rivals files                the same with a store of files: LevelDB, cut into chunks as KFS does
  rivals list                 name the engines
  rivals selftest NAME...     compare engines with a map in memory, and kill them; `all` for all";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        [] => serve(),
        ["files"] => tallybook_lab::files::serve_files(&rivals::open_files),
        ["list"] => {
            NAMES.iter().for_each(|name| println!("{name}"));
            Ok(())
        }
        ["selftest", "all"] => test(&NAMES),
        ["selftest", names @ ..] if !names.is_empty() => test(names),
        [killtest::VERB, name, directory] => {
            killtest::write_until_killed(name, Path::new(directory), &mut io::stdout())
        }
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(Error::Invalid(USAGE.to_owned())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves the laboratory.
fn serve() -> Result<()> {
    tallybook_lab::child::serve(&|asked| {
        rivals::open(&asked.name, &asked.directory, &asked.budget, &asked.settings)
    })
}

fn test(names: &[&str]) -> Result<()> {
    let binary = env::current_exe().map_err(Error::io("finding this program"))?;
    for name in names {
        let started = Instant::now();
        for (durability, amount) in
            [(Durability::Os, selftest::OS), (Durability::Sync, selftest::SYNC)]
        {
            let directory = temporary()?;
            selftest::run(name, directory.path(), durability, amount)?;
        }
        let directory = temporary()?;
        let found = killtest::run(&binary, name, directory.path())?;
        if found.lost > 0 && found.survives != NOT_A_KILL {
            let (lost, all) = (found.lost, found.acknowledged);
            return Err(Error::WrongData(format!(
                "{name}: {lost} of {all} acknowledged writes were lost when it was killed"
            )));
        }
        println!(
            "{name}: right in {:.1} s; killed after {} acknowledged writes, {} lost",
            started.elapsed().as_secs_f64(),
            found.acknowledged,
            found.lost
        );
    }
    Ok(())
}

fn temporary() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(Error::io("making a temporary directory"))
}
