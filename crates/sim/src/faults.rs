//! Fails a workload's file system at every operation (R5).
//!
//! 1. The workload runs once without a fault, to count the operations.
//! 2. For each ordinal and each sort of fault it runs anew. Every call answers right or with a typed error, no
//!    call panics, and a failed sync ends writing.
//! 3. The fault is cleared. A store that takes writes takes them; what a kill, a power loss or a plain reopening
//!    leaves holds what was acknowledged at the level that survives it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tallybook::vfs::faulty::{Fault, OperationClass};
use tallybook::vfs::{CrashMode, FaultyFileSystem, MemoryFileSystem};

use crate::contents;
use crate::medium::{Medium, Memory, store_path};
use crate::model::Survival;
use crate::operations::Step;
use crate::recovery::{self, Depth, Left};
use crate::runner::{Runner, Tolerance};
use crate::violation::{At, Outcome, Violation, panic_message};
use crate::workloads::{self, Workload};

/// Linux error numbers.
const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// How thoroughly faults are tried.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Every how many operations.
    pub stride: usize,
    /// Every fault at every ordinal; else a single `EIO` at each, and one of the others in turn.
    pub every_fault: bool,
}

/// One sort of fault.
#[derive(Clone, Copy)]
struct Sort {
    name: &'static str,
    fault: fn() -> Fault,
    tolerance: Tolerance,
}

const SORTS: [Sort; 10] = {
    use Tolerance::{Faults, WriteFaults};
    [
        Sort { name: "EIO once", fault: || Fault::errno(EIO), tolerance: Faults },
        Sort { name: "EIO from then on", fault: || Fault::errno(EIO).sticky(), tolerance: Faults },
        Sort {
            name: "EIO for changes from then on",
            fault: || Fault::errno(EIO).sticky().class(OperationClass::Writes),
            tolerance: WriteFaults,
        },
        Sort {
            name: "EIO for the next sync",
            fault: || Fault::errno(EIO).class(OperationClass::Syncs),
            tolerance: WriteFaults,
        },
        Sort {
            name: "EIO for the next read",
            fault: || Fault::errno(EIO).class(OperationClass::Reads),
            tolerance: Faults,
        },
        Sort {
            name: "ENOSPC once",
            fault: || Fault::errno(ENOSPC).class(OperationClass::Writes),
            tolerance: WriteFaults,
        },
        Sort {
            name: "ENOSPC from then on",
            fault: || Fault::errno(ENOSPC).sticky().class(OperationClass::Writes),
            tolerance: WriteFaults,
        },
        Sort {
            name: "EIO after a short write",
            fault: || Fault::errno(EIO).class(OperationClass::Writes).short_write(),
            tolerance: WriteFaults,
        },
        Sort {
            name: "ENOSPC after short writes from then on",
            fault: || Fault::errno(ENOSPC).sticky().class(OperationClass::Writes).short_write(),
            tolerance: WriteFaults,
        },
        Sort { name: "EMFILE once", fault: || Fault::errno(EMFILE), tolerance: Faults },
    ]
};

/// Runs the trial; answers how many runs with a fault were made.
pub fn error_at_every_operation(workload: &Workload, plan: Plan) -> Outcome<usize> {
    let (fs, mut runner) = start(workload, None, Tolerance::Nothing)?;
    runner.run(&workload.steps).at(|| format!("{}, without a fault", workload.name))?;
    let operations = fs.operation_count();
    drop(runner);
    let mut runs = 0;
    for ordinal in (1..=operations).step_by(plan.stride) {
        let other = 1 + (ordinal as usize / plan.stride) % (SORTS.len() - 1);
        for (at, sort) in SORTS.iter().enumerate() {
            if plan.every_fault || at == 0 || at == other {
                runs += 1;
                guarded(|| run_with_fault(workload, ordinal, *sort))
                    .at(|| format!("{}, {} at operation {ordinal}", workload.name, sort.name))?;
            }
        }
    }
    Ok(runs)
}

fn guarded(body: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        Err(Violation::new(format!("panic: {}", panic_message(&*payload))))
    })
}

fn start(
    workload: &Workload,
    fault: Option<(u64, Fault)>,
    tolerance: Tolerance,
) -> Outcome<(FaultyFileSystem, Runner)> {
    let files = MemoryFileSystem::new();
    let fs = FaultyFileSystem::new(Arc::new(files.clone()));
    if let Some((ordinal, fault)) = fault {
        fs.fail_at(ordinal, fault);
    }
    let mut memory = Memory::new();
    memory.files = files;
    memory.seen = Arc::new(fs.clone());
    let runner = Runner::new(Medium::Memory(memory), workload.options.clone(), tolerance)?;
    Ok((fs, runner))
}

fn run_with_fault(workload: &Workload, ordinal: u64, sort: Sort) -> Outcome {
    let fault = Some((ordinal, (sort.fault)()));
    let (fs, mut runner) = start(workload, fault, sort.tolerance)?;
    for (at, step) in workload.steps.iter().enumerate() {
        let fired = fs.fired();
        let was_open = runner.store().is_some();
        let restarts = matches!(step, Step::Reopen);
        runner.step(step).at(|| format!("step {at}: {step:?}, after {:?}", fs.last_fired()))?;
        if fs.fired() > fired && was_open && !restarts {
            check_sync_poisons(&fs, &runner).at(|| format!("step {at}: {step:?}"))?;
        }
    }
    fs.clear();
    after_the_fault(runner)
        .at(|| format!("after the fault was cleared; it hit {:?}", fs.last_fired()))
}

/// A failed sync of anything in the store's directory leaves the outcome of earlier writes unknown.
fn check_sync_poisons(fs: &FaultyFileSystem, runner: &Runner) -> Outcome {
    let Some(fired) = fs.last_fired() else {
        return Ok(());
    };
    let is_sync = fired.operation.starts_with("sync") && fired.path.starts_with(store_path());
    let writable = runner.store().is_some_and(|store| store.read_only_cause().is_none());
    if is_sync && writable {
        return Err(Violation::new(format!("the store still takes writes after {fired:?} failed")));
    }
    Ok(())
}

fn after_the_fault(mut runner: Runner) -> Outcome {
    runner.tolerate(Tolerance::Nothing);
    let options = runner.options().clone();
    runner.check_contents().at(|| "reading it as it is".into())?;
    if let Some(store) = runner.store()
        && store.read_only_cause().is_none()
    {
        // Changes nothing that can be read, so that the model needn't know of it.
        store.delete(b"absent").at(|| "writing to a store that is not read-only".into())?;
        store.flush().at(|| "flushing a store that is not read-only".into())?;
    }
    let now_ms = runner.medium().now_ms();
    let Medium::Memory(memory) = runner.medium() else {
        unreachable!("faults are injected in memory")
    };
    let image = memory.files.image();
    for (mode, survival, depth) in [
        (CrashMode::KeepAll, Survival::Kill, Depth::ReadWriteAndLosePower),
        (CrashMode::LoseUnsynced, Survival::PowerLoss, Depth::Contents),
    ] {
        let window = runner.model().window(survival);
        let version_max = runner.model().version_max();
        let left = Left { files: image.crash(mode, 0), now_ms, version_max };
        recovery::check(left, &options, runner.model(), window, depth)
            .at(|| format!("after a crash, {survival:?}"))?;
    }
    let (medium, model) = runner.abandon();
    let store = medium.open(&options).at(|| "reopening in place".into())?;
    let contents =
        contents::read_all(&store, &workloads::keys()).at(|| "after reopening in place".into())?;
    model
        .explain(model.window(Survival::Kill), |state| contents::check(&contents, state, now_ms))
        .at(|| "after reopening in place".into())?;
    store.put(b"new", b"value").at(|| "writing after reopening in place".into())?;
    store.close().at(|| "closing after reopening in place".into())
}
