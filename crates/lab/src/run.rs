//! One whole run: warm-up, load, settling, and every figure of its outcome.
//!
//! Figures of the process are taken right before the load, right after it, and again once background
//! work is done, so that work put off is charged to the run that caused it. Filling the store, which
//! comes before, looking whether background work is done, and reading back what was written last, at the
//! end, are charged to nobody.

use std::time::Instant;

use crate::error::{Error, Result};
use crate::load::{self, Collected, LoadOptions, Loaded, Progress, Watch};
use crate::machine;
use crate::process::{self, Process, Usage};
use crate::record::Outcome;
use crate::spec::{Length, Pace, Spec, Workload};
use crate::target::Target;
use crate::workload::{Kind, Plan};

/// Connections by which a server is filled, and warmed up if a run has fewer, and requests under way on each.
const FILL_CONNECTIONS: u32 = 16;
const FILL_PIPELINE: u32 = 4;

/// How a run is made.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// How its load is.
    pub load: LoadOptions,
    /// How long the same work is done before it counts, with a server over at least as many connections as
    /// it is filled by; `None`: not at all. Workloads that can be done only once have no warm-up.
    pub warm_up: Option<Length>,
    /// Wait for background work after the warm-up too, so that the run isn't charged for what that set
    /// going. Default false.
    pub settle_first: bool,
    /// Wait for background work at the end. Default true.
    pub settle: bool,
    /// Drop the store's files from the page cache right before the load, as far as they aren't mapped
    /// into memory: reads begin at the disk. Default false.
    pub cold: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            load: LoadOptions::default(),
            warm_up: None,
            settle_first: false,
            settle: true,
            cold: false,
        }
    }
}

/// Fills the store for runs of `spec`, and settles. Every key is put once, in random order; nothing is
/// done for workloads that start empty. Anything but success is an error: there is nothing to keep.
pub fn prefill(
    target: &dyn Target,
    spec: &Spec,
    options: &RunOptions,
    watch: &mut Watch<'_>,
) -> Result<()> {
    check_space(target, spec)?;
    if spec.workload.starts_empty() {
        return Ok(());
    }
    let (threads, pipeline) =
        if target.is_remote() { (FILL_CONNECTIONS, FILL_PIPELINE) } else { (1, 1) };
    let plan = Plan::new(&Plan::prefill(spec, threads, pipeline))?;
    let Loaded { outcome, error } = load::load(target, &plan, &options.load, watch)?;
    if let Some(error) = error {
        return Err(error);
    }
    let put = outcome.kinds.get(Kind::Put.name());
    let failed = put.and_then(|put| put.errors.iter().next());
    match failed {
        Some((kind, count)) => Err(Error::Target {
            target: target.name().to_owned(),
            what: format!("filling the store, {count} puts failed: {kind}"),
        }),
        None if options.settle => target.settle().map(|_| ()),
        None => Ok(()),
    }
}

/// Makes one run of `spec` against a store that was filled for it. An error means that it could not
/// begin; what ends it later is in what comes back, with all that was measured until then.
pub fn run(
    target: &dyn Target,
    spec: &Spec,
    options: &RunOptions,
    watch: &mut Watch<'_>,
) -> Result<Loaded> {
    let plan = Plan::new(spec)?;
    check_space(target, spec)?;
    load::calibrate_clocks();
    if let Some(length) = options.warm_up
        && let Some(plan) = Plan::warm_up(&warming(target, spec), length)?
    {
        let warmed = load::load(target, &plan, &options.load, &mut |_, _| {})?;
        if let Some(error) = warmed.error {
            return Ok(Loaded { outcome: invalid(&error), error: Some(error) });
        }
        if options.settle_first {
            target.settle()?;
        }
    }
    if let (true, Some(directory)) = (options.cold, target.directory()) {
        process::drop_from_page_cache(directory)?;
    }
    let process = watched(target);
    if let Some(process) = process {
        process.reset_peak();
    }
    target.begin();
    let before = usage(process);
    let mut anonymous_peak = before.anonymous_bytes;
    let mut sampling = |progress: &Progress, collected: &Collected| {
        let now = process.map_or(0, Process::anonymous_bytes);
        anonymous_peak = anonymous_peak.max(now);
        watch(progress, collected);
    };
    let mut loaded = load::load(target, &plan, &options.load, &mut sampling)?;
    let after = usage(process);
    let ended_at = Instant::now();
    let mut looking_s = 0.0;
    if options.settle && loaded.error.is_none() {
        match target.settle() {
            Ok(looking) => looking_s = looking.as_secs_f64(),
            Err(error) => loaded.error = Some(error),
        }
    }
    let settled = usage(process);
    let outcome = &mut loaded.outcome;
    if let Some(error) = &loaded.error {
        outcome.invalid = Some(error.to_string());
    }
    outcome.settle_s = if options.settle { ended_at.elapsed().as_secs_f64() } else { 0.0 };
    // Of a server it is another process's.
    let beside_s = match target.is_remote() {
        true => 0.0,
        false => load::spent_beside_requests_s(outcome),
    };
    outcome.cpu_s = (after.cpu_s - before.cpu_s - beside_s).max(0.0);
    outcome.cpu_settled_s =
        (settled.cpu_s - before.cpu_s - beside_s - looking_s).max(outcome.cpu_s);
    outcome.peak_resident_bytes = settled.peak_resident_bytes.max(after.peak_resident_bytes);
    outcome.peak_anonymous_bytes =
        anonymous_peak.max(after.anonymous_bytes).max(settled.anonymous_bytes);
    outcome.device_written_bytes =
        settled.device_written_bytes.saturating_sub(before.device_written_bytes);
    outcome.disk_bytes = target.directory().map_or(0, process::disk_bytes);
    outcome.live_bytes = live_bytes(&plan, outcome);
    outcome.figures.extend(target.figures());
    if loaded.error.is_none() {
        match load::read_back(target, &plan, outcome) {
            Ok(writes) => {
                outcome.figures.insert(load::READ_BACK.into(), writes as f64);
            }
            Err(error) => {
                // Whatever else was said of it, as that its target fell behind: that is a finding, and this none.
                outcome.invalid = Some(error.to_string());
                loaded.error = Some(error);
            }
        }
    }
    Ok(loaded)
}

/// The work of a warm-up: a single connection takes longer to warm a server up than a run lasts.
fn warming(target: &dyn Target, spec: &Spec) -> Spec {
    match spec.threads < FILL_CONNECTIONS && target.is_remote() && spec.pace == Pace::Closed {
        true => Spec { threads: FILL_CONNECTIONS, pipeline: FILL_PIPELINE, ..spec.clone() },
        false => spec.clone(),
    }
}

/// Fills the store, makes the run. As [`prefill`] and [`run`] one after the other.
pub fn prefill_and_run(
    target: &dyn Target,
    spec: &Spec,
    options: &RunOptions,
    watch: &mut Watch<'_>,
) -> Result<Loaded> {
    prefill(target, spec, options, watch)?;
    run(target, spec, options, watch)
}

/// An outcome of nothing but the reason why.
pub(crate) fn invalid(error: &Error) -> Outcome {
    Outcome { invalid: Some(error.to_string()), ..Outcome::default() }
}

fn check_space(target: &dyn Target, spec: &Spec) -> Result<()> {
    target.directory().map_or(Ok(()), |directory| machine::check_space(directory, spec))
}

/// The process that does the target's work, if it can be told.
fn watched(target: &dyn Target) -> Option<Process> {
    match target.process() {
        Some(id) => Some(Process::new(id)),
        None if target.is_remote() => None,
        None => Some(Process::current()),
    }
}

/// A process that is gone used nothing more; that it is gone is found elsewhere.
fn usage(process: Option<Process>) -> Usage {
    process.and_then(|process| process.usage().ok()).unwrap_or_default()
}

/// Bytes of keys and values that live in the store after a run. Lengths are the distribution's mean,
/// which overwriting keeps.
fn live_bytes(plan: &Plan, outcome: &Outcome) -> u64 {
    let spec = plan.spec();
    let count = |kind: Kind| outcome.kinds.get(kind.name()).map_or(0, |kind| kind.count);
    let keys = match spec.workload {
        _ if spec.workload.starts_empty() => count(Kind::Put),
        Workload::DeleteRandom => spec.keys.saturating_sub(count(Kind::Delete)),
        Workload::YcsbD | Workload::YcsbE => spec.keys + count(Kind::Put),
        _ => spec.keys,
    };
    (keys as f64 * (f64::from(spec.key_bytes) + plan.values().length_mean())).round() as u64
}
