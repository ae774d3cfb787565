//! `lab`: lists and runs experiments, compares their records, draws their reports again.
//!
//! Figures and reports go to files and standard output, progress to standard error. Ctrl-C ends the run
//! under way, keeps what is done and draws the report of it; the same command goes on from there.

mod ending;

use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use tallybook_lab::bare::{Bare, BareOptions};
use tallybook_lab::chart::{Chart as _, Unit, WIDE};
use tallybook_lab::experiment::runner::{
    self, Bench, COMMAND_FILE, Programs, RUNS_FILE, Stage, Status,
};
use tallybook_lab::experiment::{self, Experiment, Scale, with_repetitions};
use tallybook_lab::history::{self, Entry};
use tallybook_lab::limits::{self, Figure, Limit};
use tallybook_lab::machine::machine;
use tallybook_lab::record::Record;
use tallybook_lab::report::{compare as compare_records, machine_text};
use tallybook_lab::runs_file::standing_runs;
use tallybook_lab::{Error, child, files};

use crate::arguments::{LabArguments, LabCommand, LabRunArguments};
use crate::exit::{Exit, UsageError, found, say};
use crate::output::Output;
use crate::process;
use crate::serve;

/// The report in an experiment's directory.
const REPORT_FILE: &str = "report.html";

/// Runs one of the laboratory's commands.
pub(crate) fn lab(arguments: LabArguments) -> anyhow::Result<Exit> {
    match arguments.command {
        LabCommand::List => list(),
        LabCommand::Limits { data } => print_limits(&data),
        LabCommand::Run(arguments) => run(&arguments),
        LabCommand::Compare { baseline, subject } => compare(&baseline, &subject),
        LabCommand::Report { directory } => report(&directory),
        LabCommand::History { runs, change, file } => add_to_history(&runs, &change, &file),
        LabCommand::Child => Ok(child::serve_engine().map(|()| Exit::Success)?),
        LabCommand::Files => Ok(files::serve_tallybook().map(|()| Exit::Success)?),
        LabCommand::Bare { body_bytes, keys } => bare(body_bytes, keys),
        LabCommand::Serve(settings) => {
            end_with_standard_input()?;
            serve::run(*settings)
        }
    }
}

fn list() -> anyhow::Result<Exit> {
    let mut out = Output::new();
    let width = experiment::all().iter().map(|one| one.name().len()).max().unwrap_or(0);
    for one in experiment::all() {
        writeln!(out, "{:width$}  {}", one.name(), one.question())?;
    }
    out.flush()?;
    Ok(Exit::Success)
}

/// Prints the machine, and each limit as a row of a table as soon as it is known.
fn print_limits(directory: &Path) -> anyhow::Result<Exit> {
    let mut out = Output::new();
    let mut head = Some(machine(Some(directory)));
    let mut row = |limit: Limit| {
        if let Some(machine) = head.take() {
            writeln!(out, "{}\n", machine_text(&machine))?;
            writeln!(out, "| limit | figure |\n| --- | ---: |")?;
        }
        let figure = match limit.figure {
            Figure::Nanoseconds(ns) => Unit::Nanoseconds.format(ns),
            Figure::BytesPerSecond(bytes) => Unit::Bytes.format(bytes) + "/s",
            Figure::PerSecond(count) => Unit::PerSecond.format(count),
        };
        writeln!(out, "| {} | {figure} |", limit.what)?;
        out.flush()
    };
    let mut printed = Ok(());
    limits::measure(directory, &limits::Size::default(), &mut |limit| {
        if printed.is_ok() {
            printed = row(limit);
        }
    })?;
    printed?;
    Ok(Exit::Success)
}

fn run(arguments: &LabRunArguments) -> anyhow::Result<Exit> {
    let experiment = experiment::find(&arguments.name).map_err(usage)?;
    let scale = Scale::from_name(&arguments.scale).map_err(usage)?;
    let mut plan = experiment.runs(scale, &arguments.against).map_err(usage)?;
    if let Some(repetitions) = arguments.repetitions {
        plan = with_repetitions(plan, repetitions);
    }
    let directory = match &arguments.out {
        Some(directory) => directory.clone(),
        None => PathBuf::from("lab-runs").join(format!("{}-{}", experiment.name(), scale.name())),
    };
    let rerun = rerun(experiment, scale, arguments);
    let stop = process::stop_when_asked()?;
    let programs = programs()?;
    let bench = Bench { directory: &directory, command: &rerun, programs: &programs, stop };
    runner::check(experiment, &plan, &bench).map_err(usage)?;
    let mut show = Show::new();
    let made = runner::make(experiment, &plan, &bench, &mut |status| show.update(status));
    show.finish();
    let summary = made.map_err(|error| match error {
        // Of a version that is told by the first target once it is open, and of what others made meanwhile.
        Error::Refused(_) => usage(error),
        error => error.into(),
    })?;
    if summary.kept > 0 {
        say(format_args!("{} of {} runs were there already", summary.kept, summary.asked));
    }
    if summary.made + summary.kept == 0 && summary.uncounted.is_empty() {
        say("interrupted before the first run was done; the same command begins again");
        if directory.join(REPORT_FILE).exists() {
            say("what the report shows that is there is of runs that are made again");
        }
        return Ok(Exit::Interrupted);
    }
    // What nobody reads on is no less of a failure.
    let drawn = draw(experiment, &directory, &rerun);
    found(ending::tell(&summary), drawn)
}

/// The command that makes the runs again, quoted for a shell.
fn rerun(experiment: &dyn Experiment, scale: Scale, arguments: &LabRunArguments) -> String {
    let mut command = format!("tallybook lab run {} --scale {}", experiment.name(), scale.name());
    if !arguments.against.is_empty() {
        command += &format!(" --against {}", arguments.against.join(","));
    }
    if let Some(repetitions) = arguments.repetitions {
        command += &format!(" --repetitions {repetitions}");
    }
    command
}

/// How this program starts targets in processes of their own.
fn programs() -> anyhow::Result<Programs> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let verb = |name: &str| -> Vec<OsString> {
        vec![own.clone().into_os_string(), "lab".into(), name.into()]
    };
    Ok(Programs {
        child: verb("child"),
        files: verb("files"),
        server: verb("serve"),
        bare: verb("bare"),
        rivals: Programs::find_rivals(),
        kfs: Programs::find_kfs(),
    })
}

fn compare(baseline: &Path, subject: &Path) -> anyhow::Result<Exit> {
    let (a, b) = (records(baseline)?, records(subject)?);
    let (a_name, b_name) = (baseline.display().to_string(), subject.display().to_string());
    let comparison = compare_records((&a_name, &a), (&b_name, &b));
    let mut out = Output::new();
    write!(out, "{}", comparison.text())?;
    out.flush()?;
    Ok(Exit::Success)
}

fn add_to_history(runs: &Path, change: &str, file: &Path) -> anyhow::Result<Exit> {
    let chart = file.with_extension("svg");
    if chart == file {
        let what =
            format!("{} is where the chart would go; give --file another name", file.display());
        return Err(UsageError(what).into());
    }
    let entries = Entry::new(change, &records(runs)?)?.append(file)?;
    let drawing = history::chart(&entries).draw(WIDE).standalone("CPU per operation, by change");
    fs::write(&chart, drawing).with_context(|| format!("cannot write {}", chart.display()))?;
    let (file, changes) = (file.display(), entries.len());
    say(format_args!("{file} has {changes} changes; {} shows them", chart.display()));
    Ok(Exit::Success)
}

/// The runs of a file, or of an experiment's directory, but for those that are still to be made.
fn records(path: &Path) -> anyhow::Result<Vec<Record>> {
    let file = if path.is_dir() { path.join(RUNS_FILE) } else { path.to_owned() };
    Ok(standing_runs(&file)?)
}

fn report(directory: &Path) -> anyhow::Result<Exit> {
    let first = records(directory)?.into_iter().next();
    let Some(first) = first else {
        anyhow::bail!("{} holds no runs", directory.display());
    };
    let experiment = experiment::find(&first.experiment)?;
    let command = fs::read_to_string(directory.join(COMMAND_FILE));
    let rerun = match &command {
        Ok(command) => command.trim().to_owned(),
        Err(_) => format!("tallybook lab run {}", experiment.name()),
    };
    draw(experiment, directory, &rerun)?;
    Ok(Exit::Success)
}

/// Writes the report, and prints its summary and where it is.
fn draw(experiment: &dyn Experiment, directory: &Path, rerun: &str) -> anyhow::Result<()> {
    let report = runner::write_report(experiment, directory, rerun)?;
    let mut out = Output::new();
    writeln!(out, "{}", report.summary_markdown())?;
    writeln!(out, "{}", directory.join(REPORT_FILE).display())?;
    out.flush()?;
    Ok(())
}

/// Serves until standard input ends, which it does with whoever started this.
fn bare(body_bytes: usize, keys: u64) -> anyhow::Result<Exit> {
    let bare = Bare::start(BareOptions { body_bytes, keys, ..BareOptions::default() })?;
    let mut out = Output::new();
    writeln!(out, "{}", bare.url())?;
    out.flush()?;
    drop(out);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).context("standard input")?;
    Ok(Exit::Success)
}

/// Has this process stop in order when its standard input ends, so that no server outlives the
/// laboratory that started it, however that ended.
fn end_with_standard_input() -> anyhow::Result<()> {
    let watch = || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        // Fails only when there is no such process, which there is.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
    };
    let thread = std::thread::Builder::new().name("lab-input".into()).spawn(watch);
    thread.map(drop).context("cannot start a thread")
}

/// A name that isn't known, or a choice that can't be made, is the caller's to put right.
fn usage(error: Error) -> anyhow::Error {
    UsageError(error.to_string()).into()
}

/// Progress on standard error: a bar on a terminal, else a line for each run.
struct Show {
    bar: Option<ProgressBar>,
}

impl Show {
    fn new() -> Show {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("[{bar:20}] {pos}/{len} {wide_msg}")
                .expect("the template is a constant that parses");
            ProgressBar::new(0).with_style(style)
        });
        Show { bar }
    }

    fn update(&mut self, status: &Status<'_>) {
        let left = match status.left {
            Some(left) => format!("about {} left", time_text(left)),
            None => "time left not known yet".to_owned(),
        };
        let label = status.run.label();
        if let (Stage::Done(record), None) = (status.stage, &self.bar) {
            let outcome = &record.outcome;
            let figures = match &outcome.invalid {
                Some(why) => format!("doesn't count: {why}"),
                None => format!(
                    "{:.0} operations/s, {:.2} us of CPU each",
                    outcome.throughput(),
                    outcome.cpu_us_per_operation()
                ),
            };
            let (number, count) = (status.number, status.count);
            say(format_args!("{number}/{count} {label}: {figures}; {left}"));
        }
        let Some(bar) = &self.bar else { return };
        let (done, doing) = match status.stage {
            Stage::Filling(None) => (0, "opening".to_owned()),
            Stage::Filling(Some(progress)) => (0, format!("filling, {} put", progress.operations)),
            Stage::Running(progress) => (0, format!("{} operations", progress.operations)),
            Stage::Done(_) => (1, "done".to_owned()),
        };
        bar.set_length(status.count as u64);
        bar.set_position((status.number - 1 + done) as u64);
        bar.set_message(format!("{left}; {label}: {doing}"));
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn time_text(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5999 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}
